package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	amqp "github.com/rabbitmq/amqp091-go"
)

// A consumer whose effect happens once for each message, however often that is delivered.

// [once]
func handle(ctx context.Context, db *pgx.Conn, d amqp.Delivery) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { // committed at its end
		var first bool
		err := tx.QueryRow(ctx, "SELECT inbox.outbox_inbox_accept('amqp091-go', $1::text::uuid)", d.MessageId).Scan(&first)
		if err != nil || !first { // not the first time: processed before
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO notifications (consumer, message_id, body) VALUES ('amqp091-go', $1::text::uuid, $2::text::jsonb)",
			d.MessageId, string(d.Body))
		return err
	})
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return d.Ack(false) // only after the commit
	case errors.As(err, &refused) && !db.IsClosed():
		return d.Nack(false, true) // the server's verdict on it; x-delivery-limit bounds how often
	default:
		return err
	}
}

func consume(ctx context.Context, uri, queue string) error {
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	conn, err := amqp.DialConfig(uri, amqp.Config{Heartbeat: 30 * time.Second})
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(50, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	fmt.Println("consuming")
	for d := range deliveries { // ends with the channel
		if err := handle(ctx, db, d); err != nil {
			return err
		}
	}
	return errors.New("the channel was closed")
}

func once(uri, queue string) {
	for { // the library does not reconnect by itself
		err := consume(context.Background(), uri, queue)
		fmt.Println("again in a second:", err)
		time.Sleep(time.Second)
	}
}

// [/once]
