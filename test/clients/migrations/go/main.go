// Watermill's SQL publisher as an outbox: makes its tables by itself, fills them, and reads them.
//
//	main write FIRST LAST    events FIRST to LAST, each in a transaction, and one that is rolled back
//	main relay COUNT         its subscriber, which acknowledges COUNT; "sent N" for each
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/lib/pq"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(i int) int {
	n, err := strconv.Atoi(os.Args[i])
	must(err)
	return n
}

func subscriber(db *sql.DB) *wsql.Subscriber {
	s, err := wsql.NewSubscriber(db, wsql.SubscriberConfig{
		SchemaAdapter:    wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: 1},
		OffsetsAdapter:   wsql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true,
	}, watermill.NopLogger{})
	must(err)
	return s
}

func write(db *sql.DB, n int, commit bool) {
	tx, err := db.Begin()
	must(err)
	p, err := wsql.NewPublisher(tx, wsql.PublisherConfig{SchemaAdapter: wsql.DefaultPostgreSQLSchema{}}, watermill.NopLogger{})
	must(err)
	m := message.NewMessage(watermill.NewUUID(), []byte(fmt.Sprintf(`{"n": %d}`, n)))
	m.Metadata.Set("tenant", "a")
	must(p.Publish("orders", m))
	if commit {
		must(tx.Commit())
	} else {
		must(tx.Rollback())
	}
}

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	must(err)
	s := subscriber(db)
	must(s.SubscribeInitialize("orders"))
	if os.Args[1] == "write" {
		for n := number(2); n <= number(3); n++ {
			write(db, n, true)
		}
		write(db, -1, false)
		return
	}
	messages, err := s.Subscribe(context.Background(), "orders")
	must(err)
	for i := 0; i < number(2); i++ {
		m := <-messages
		fmt.Println("sent", string(m.Payload[6:len(m.Payload)-1]))
		m.Ack()
	}
	must(s.Close())
}
