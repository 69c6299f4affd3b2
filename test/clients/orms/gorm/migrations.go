package main

import (
	"embed"
	"net/url"
	"os"
	"strings"

	"github.com/golang-migrate/migrate/v4"
	_ "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
)

//go:embed migrations extension
var scripts embed.FS

// By golang-migrate, with the scripts of a folder.
func migrations(folder string) (*migrate.Migrate, error) {
	source, err := iofs.New(scripts, folder)
	if err != nil {
		return nil, err
	}
	return migrate.NewWithSourceInstance("iofs", source, databaseURL("pgx5"))
}

func databaseURL(scheme string) string {
	u, _ := url.Parse(os.Getenv("DATABASE_URL"))
	u.Scheme = scheme
	if !strings.Contains(u.Host, "@") && u.User == nil {
		u.User = url.User(os.Getenv("PGUSER"))
	}
	return u.String()
}
