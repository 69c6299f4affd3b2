// Each operation of the matrix by GORM, over pgx; migrations by golang-migrate.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

type said map[string]any

var operation = os.Args[1]

// What it is refused with: the SQLSTATE, "by the model" without one, or nil.
func refused(err error) any {
	var server *pgconn.PgError
	if err == nil {
		return nil
	}
	fmt.Fprintln(os.Stderr, err)
	if errors.As(err, &server) {
		return server.Code
	}
	return "by the model"
}

func expect(what string, expected, is any) {
	if is != expected {
		panic(fmt.Sprintf("%s: %v, and not %v", what, is, expected))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func eventType() string { return "order." + operation }

// An order, and its message that is not stored yet.
func order(tx *gorm.DB) (Order, *Message, error) {
	order := Order{Customer: operation, Total: 42}
	err := tx.Create(&order).Error
	return order, &Message{EventType: eventType(), AggregateType: "order", AggregateID: fmt.Sprint(order.ID),
		Payload: JSON{"order": order.ID}}, err
}

func placed(db *gorm.DB) *Message {
	var message *Message
	must(db.Transaction(func(tx *gorm.DB) (err error) {
		if _, message, err = order(tx); err != nil {
			return err
		}
		return tx.Create(message).Error
	}))
	return message
}

// --- messages

func mapped(db *gorm.DB) said {
	available := time.Date(2040, 1, 2, 3, 4, 5, 0, time.UTC)
	message := Message{Route: "default", EventType: eventType(), AggregateType: "customer", AggregateID: "42",
		Payload: JSON{"n": 42, "name": "Zoë", "nothing": nil}, Headers: JSON{"tenant": `a\b`, "x-retries": 3},
		Properties: JSON{"priority": 5}, RoutingKey: "a.key",
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), AvailableAt: &available}
	must(db.Create(&message).Error)
	return said{"ids": []uuid.UUID{message.ID}}
}

func insert(db *gorm.DB) said {
	// [insert]
	var message Message
	err := db.Transaction(func(tx *gorm.DB) error {
		order := Order{Customer: "Zoë", Total: 42}
		if err := tx.Create(&order).Error; err != nil {
			return err
		}
		message = Message{EventType: eventType(), AggregateType: "order", AggregateID: fmt.Sprint(order.ID),
			Payload: JSON{"order": order.ID}}
		return tx.Create(&message).Error
	})
	// [/insert]
	must(err)
	expect("route", "default", message.Route)
	expect("created_at is zero", false, message.CreatedAt.IsZero())
	return said{"ids": []uuid.UUID{message.ID}}
}

func function(db *gorm.DB) said {
	var id uuid.UUID
	must(db.Transaction(func(tx *gorm.DB) error {
		order, _, err := order(tx)
		if err != nil {
			return err
		}
		return tx.Raw("SELECT outbox_enqueue(?, ?, 'order', ?)",
			eventType(), JSON{"order": order.ID}, fmt.Sprint(order.ID)).Row().Scan(&id)
	}))
	return said{"ids": []uuid.UUID{id}}
}

func ownID(db *gorm.DB) said {
	id := uuid.Must(uuid.NewV7())
	must(db.Transaction(func(tx *gorm.DB) error {
		_, message, err := order(tx)
		if err != nil {
			return err
		}
		message.ID = id
		return tx.Create(message).Error
	}))
	return said{"ids": []uuid.UUID{id}}
}

func bytes(db *gorm.DB) said {
	message := Message{EventType: eventType(), Body: make([]byte, 256)}
	for i := range message.Body {
		message.Body[i] = byte(i)
	}
	must(db.Create(&message).Error)
	return said{"ids": []uuid.UUID{message.ID}}
}

func batch(db *gorm.DB) said {
	var messages []*Message
	must(db.Transaction(func(tx *gorm.DB) error {
		order, _, err := order(tx)
		if err != nil {
			return err
		}
		for n := range 100 {
			messages = append(messages, &Message{EventType: eventType(), AggregateType: "order",
				AggregateID: fmt.Sprint(order.ID), Payload: JSON{"n": n}})
		}
		return tx.CreateInBatches(messages, 1000).Error
	}))
	ids := []uuid.UUID{}
	for _, message := range messages {
		ids = append(ids, message.ID)
	}
	return said{"ids": ids}
}

func rollback(db *gorm.DB) said {
	failure := errors.New("no")
	expect("rollback", failure, db.Transaction(func(tx *gorm.DB) error {
		placed(tx)
		return failure
	}))
	return said{}
}

func savepoint(db *gorm.DB) said {
	ids := []uuid.UUID{}
	must(db.Transaction(func(tx *gorm.DB) error {
		order, _, err := order(tx)
		if err != nil {
			return err
		}
		for n := 1; n <= 3; n++ {
			message := Message{EventType: eventType(), AggregateType: "order", AggregateID: fmt.Sprint(order.ID), Payload: JSON{"n": n}}
			err := tx.Transaction(func(nested *gorm.DB) error {
				if err := nested.Create(&message).Error; err != nil {
					return err
				}
				if n == 2 {
					return errors.New("no") // rolls back to the savepoint
				}
				return nil
			})
			if err == nil {
				ids = append(ids, message.ID)
			}
		}
		return nil
	}))
	return said{"ids": ids}
}

// All ways to save it once more.
func again(db *gorm.DB, message *Message) any {
	expect("Create()", "by the model", refused(db.Create(message).Error))
	return refused(db.Save(message).Error)
}

// The model without hooks: an INSERT with the same id. It is refused as long as the first is there.
func plain(db *gorm.DB, message *Message) *PlainMessage {
	return &PlainMessage{ID: message.ID, EventType: message.EventType, AggregateType: message.AggregateType,
		AggregateID: message.AggregateID, Payload: message.Payload}
}

func secondSave(db *gorm.DB) said {
	message := placed(db)
	expect("Create() without hooks", "23505", refused(db.Create(plain(db, message)).Error))
	if refused(db.Save(plain(db, message)).Error) == nil {
		panic("Save() without hooks is not refused")
	}
	return said{"ids": []uuid.UUID{message.ID}, "error": again(db, message)}
}

func await(db *gorm.DB, id uuid.UUID) {
	var state string
	must(db.Raw("SELECT outbox_wait(?, '60 s')", id).Scan(&state).Error)
	expect("outbox_wait()", "published", state)
}

func secondSaveGone(db *gorm.DB) said {
	message := placed(db)
	await(db, message.ID)
	if refused(db.Save(plain(db, message)).Error) == nil {
		panic("Save() without hooks is not refused")
	}
	return said{"ids": []uuid.UUID{message.ID}, "error": again(db, message)}
}

func update(db *gorm.DB) said {
	message := placed(db)
	message.EventType = "order.changed"
	if refused(db.Save(plain(db, message)).Error) == nil {
		panic("Save() without hooks is not refused")
	}
	expect("Updates()", "by the model", refused(db.Model(message).Updates(map[string]any{"event_type": "order.changed"}).Error))
	return said{"ids": []uuid.UUID{message.ID}, "error": refused(db.Save(message).Error)}
}

func deleted(db *gorm.DB) said {
	message := placed(db)
	if refused(db.Delete(plain(db, message)).Error) == nil {
		panic("Delete() without hooks is not refused")
	}
	return said{"ids": []uuid.UUID{message.ID}, "error": refused(db.Delete(message).Error)}
}

// GORM over a pool of pgx.
func pool(*gorm.DB) said {
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	must(err)
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	must(err)
	defer pool.Close()
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: stdlib.OpenDBFromPool(pool)}), &gorm.Config{})
	must(err)
	var group sync.WaitGroup
	var lock sync.Mutex
	ids := []uuid.UUID{}
	for range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 25 {
				message := placed(db)
				lock.Lock()
				ids = append(ids, message.ID)
				lock.Unlock()
			}
		}()
	}
	group.Wait()
	return said{"ids": ids}
}

// A transaction that is rolled back.
func tests(db *gorm.DB) said {
	tx := db.Begin()
	var found int64
	message := placed(tx)
	must(tx.Raw("SELECT count(*) FROM outbox WHERE id = ?", message.ID).Scan(&found).Error)
	expect("stored", int64(1), found)
	must(tx.Rollback().Error)
	return said{"says": "rolled back"}
}

// --- without GORM

// [pgx]
func place(ctx context.Context, conn *pgx.Conn, customer string, total int) (id uuid.UUID, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var order int64
		err := tx.QueryRow(ctx, "INSERT INTO orders (customer, total) VALUES ($1, $2) RETURNING id", customer, total).Scan(&order)
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, "SELECT outbox_enqueue($1, $2, 'order', $3)",
			eventType(), map[string]any{"order": order}, fmt.Sprint(order)).Scan(&id)
	})
	return id, err
}

// [/pgx]

// --- the schema

// What AutoMigrate would do.
type statements struct {
	logger.Interface
	lines []string
}

func (s *statements) LogMode(logger.LogLevel) logger.Interface { return s }

func (s *statements) Trace(_ context.Context, _ time.Time, fc func() (string, int64), _ error) {
	sql, _ := fc()
	if !strings.HasPrefix(strings.ToUpper(strings.TrimSpace(sql)), "SELECT") {
		s.lines = append(s.lines, sql)
	}
}

func wants(db *gorm.DB, models ...any) said {
	log := &statements{Interface: logger.Discard, lines: []string{}}
	must(db.Session(&gorm.Session{DryRun: true, Logger: log}).AutoMigrate(models...))
	return said{"wants": log.lines}
}

func diff(db *gorm.DB) said { return wants(db, &Order{}, &Message{}) }

func diffMended(db *gorm.DB) said {
	must(db.AutoMigrate(&Order{}))
	return wants(db, &Order{})
}

func dump(db *gorm.DB) said {
	tables, err := db.Migrator().GetTables()
	must(err)
	for _, table := range tables {
		if strings.Contains(table, "outbox") {
			return said{"says": "tables of ours"}
		}
	}
	return said{"says": "nothing of ours"}
}

func up(*gorm.DB) said {
	folder := map[string]string{"extension": "extension"}[operation]
	if folder == "" {
		folder = "migrations"
	}
	m, err := migrations(folder)
	must(err)
	must(m.Up())
	return said{}
}

func down(*gorm.DB) said {
	m, err := migrations("migrations")
	must(err)
	must(m.Down())
	return said{}
}

var operations = map[string]func(*gorm.DB) said{
	"map": mapped, "insert": insert, "function": function, "own_id": ownID, "bytes": bytes, "batch": batch,
	"rollback": rollback, "savepoint": savepoint, "second_save": secondSave, "second_save_gone": secondSaveGone,
	"update": update, "delete": deleted, "pool": pool, "tests": tests, "diff": diff, "diff_mended": diffMended,
	"dump": dump, "migrate_up": up, "migrate_down": down, "extension": up,
	"pgx": func(*gorm.DB) said {
		conn, err := pgx.Connect(context.Background(), os.Getenv("DATABASE_URL"))
		must(err)
		id, err := place(context.Background(), conn, operation, 42)
		must(err)
		return said{"ids": []uuid.UUID{id}}
	},
}

func main() {
	db, err := gorm.Open(postgres.Open(os.Getenv("DATABASE_URL")), &gorm.Config{Logger: logger.Discard})
	must(err)
	out, err := json.Marshal(operations[operation](db))
	must(err)
	fmt.Println(string(out))
}
