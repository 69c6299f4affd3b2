// Binds values of Go's own types by pgx and database/sql; the folder above says what
// it reads and prints.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
)

type order struct {
	N       int     `json:"n"`
	Name    string  `json:"name"`
	Nothing *string `json:"nothing"`
}

// value is what an application has in hand for a kind of value, or nil and false.
func value(kind, text string) (any, bool) {
	var v any
	var err error
	switch kind {
	case "text":
		v = text
	case "null":
		v = nil
	case "int":
		var n int64
		n, err = strconv.ParseInt(text, 10, 32)
		v = int32(n)
	case "bigint":
		v, err = strconv.ParseInt(text, 10, 64)
	case "uuid":
		v, err = uuid.Parse(text)
	case "json":
		var m map[string]any
		err = json.Unmarshal([]byte(text), &m)
		v = m
	case "list":
		var l []any
		err = json.Unmarshal([]byte(text), &l)
		v = l
	case "struct":
		var o order
		err = json.Unmarshal([]byte(text), &o)
		v = o
	case "raw":
		v = json.RawMessage(text)
	case "time":
		v, err = time.Parse(time.RFC3339, text)
	default:
		return nil, false
	}
	if err != nil {
		panic(err)
	}
	return v, true
}

// database/sql has no type for JSON: applications marshal it, and pass bytes.
func marshalled(kind string, v any) any {
	switch kind {
	case "json", "list", "struct":
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return b
	}
	return v
}

type query func(statement string, args []any) (string, error)

func open(driver string) query {
	ctx := context.Background()
	switch driver {
	case "pgx", "pgx exec":
		config, err := pgx.ParseConfig("")
		if err != nil {
			panic(err)
		}
		if driver == "pgx exec" {
			// what is recommended behind a pooler
			config.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			panic(err)
		}
		return func(statement string, args []any) (id string, err error) {
			err = conn.QueryRow(ctx, statement, args...).Scan(&id)
			return
		}
	default:
		name := map[string]string{"pgx stdlib": "pgx", "lib/pq": "postgres"}[driver]
		db, err := sql.Open(name, os.Getenv("DATABASE_URL"))
		if err != nil {
			panic(err)
		}
		return func(statement string, args []any) (id string, err error) {
			err = db.QueryRow(statement, args...).Scan(&id)
			return
		}
	}
}

func sqlstate(err error) string {
	var pg *pgconn.PgError
	var lib *pq.Error
	switch {
	case errors.As(err, &pg):
		return pg.Code
	case errors.As(err, &lib):
		return string(lib.Code)
	}
	return "client"
}

func main() {
	driver := os.Args[1]
	run := open(driver)
	lines := bufio.NewScanner(os.Stdin)
next:
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		number, kinds, statement, texts := fields[0], strings.Split(fields[1], ","), fields[2], fields[3:]
		args := make([]any, len(kinds))
		for i, kind := range kinds {
			v, ok := value(kind, texts[i])
			if !ok {
				fmt.Printf("%s\tnone\n", number)
				continue next
			}
			if !strings.HasPrefix(driver, "pgx ") && driver != "pgx" || driver == "pgx stdlib" {
				v = marshalled(kind, v)
			}
			args[i] = v
		}
		id, err := run(statement, args)
		if err != nil {
			fmt.Printf("%s\t%s\t%s\n", number, sqlstate(err), strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Printf("%s\tok\t%s\n", number, id)
	}
}
