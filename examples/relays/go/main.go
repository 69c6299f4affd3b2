// A relay of one route of outbox to NATS JetStream. The database: PGHOST, PGUSER ...; its name in outbox_leases: PGAPPNAME.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"
)

var (
	url   = flag.String("nats", nats.DefaultURL, "NATS servers, separated by commas")
	route = flag.String("route", "nats", "route whose messages are relayed; subjects begin with it")
	lanes = flag.Int("lanes", 8, "publishes at the same time")
	batch = flag.Int("batch", 100, "messages of a lease: so many may come again after a crash")
	lease = flag.Duration("lease", 30*time.Second, "a lease lasts so long without a sign of life; six times a publish's timeout")
)

const claim = `SELECT token, id::text, CASE WHEN aggregate_id IS NULL THEN id::text ELSE json_build_array(aggregate_type, aggregate_id)::text END,
	$1 || '.' || routing_key, coalesce(body, convert_to(payload::text, 'UTF8')),
	coalesce((SELECT jsonb_object_agg(key, ARRAY[coalesce(value, '')]) FROM jsonb_each_text(headers)), '{}') ||
		jsonb_build_object('Nats-Msg-Id', ARRAY[id], 'event-type', ARRAY[event_type], 'aggregate-id', ARRAY[coalesce(aggregate_id, '')])
	FROM outbox_claim($1, $2, $3, current_setting('application_name')) ORDER BY seq`

type message struct {
	Token            int64
	ID, Key, Subject string
	Body             []byte
	Headers          nats.Header
	Err              error `db:"-"` // nil: the stream has it; context.Canceled: not sent
}

func refused(err error) bool { // for the message's sake, and not as the stream is out of reach
	var api *nats.APIError
	return errors.Is(err, nats.ErrBadSubject) || errors.Is(err, nats.ErrMaxPayload) ||
		errors.Is(err, nats.ErrNoStreamResponse) || errors.As(err, &api) && api.Code < 500
}

// Waits until the stream has it. By Nats-Msg-Id it drops the copy that a crash before the ack makes.
func (m *message) publish(js nats.JetStreamContext) error {
	if strings.ContainsAny(m.Subject, " \t\r\n*>") || strings.Contains("."+m.Subject+".", "..") {
		return nats.ErrBadSubject
	}
	_, err := js.PublishMsg(&nats.Msg{Subject: m.Subject, Data: m.Body, Header: m.Headers}, nats.AckWait(*lease/6), nats.RetryAttempts(0))
	return err
}

// One lease: claims, publishes, acks and nacks. Returns how long to wait before the next.
func relay(ctx context.Context, db *pgxpool.Pool, js nats.JetStreamContext) (pause time.Duration, err error) {
	until := time.Now().Add(*lease) // at the least, as the database counts from later on
	limited, cancel := context.WithTimeout(context.Background(), *lease/6)
	rows, _ := db.Query(limited, claim, *route, *batch, *lease)
	messages, err := pgx.CollectRows(rows, pgx.RowToStructByPos[message])
	if cancel(); err != nil || len(messages) == 0 {
		return 100 * time.Millisecond, err
	}
	settle := func(statement string, args ...any) { // again until it is known, or the lease is over
		for told := new(pgconn.PgError); err == nil; time.Sleep(100 * time.Millisecond) {
			limited, cancel := context.WithTimeout(context.Background(), *lease/6)
			_, failed := db.Exec(limited, statement, append([]any{messages[0].Token}, args...)...)
			if cancel(); failed == nil {
				return
			} else if errors.As(failed, &told) && told.Code[:2] != "57" || time.Now().After(until) {
				err = failed
			}
		}
	}
	running, held := errgroup.WithContext(ctx)
	running.SetLimit(*lanes)
	lock, keys := sync.Mutex{}, map[string][]*message{}
	may := func() bool { // asks the database before a publish that might not end within the lease
		lock.Lock()
		defer lock.Unlock()
		if now := time.Now(); held.Err() == nil && now.After(until.Add(-*lease/4*3)) {
			settle(`SELECT outbox_extend($1, $2)`, *lease)
			until = now.Add(*lease)
		}
		return held.Err() == nil && err == nil
	}
	for i := range messages {
		messages[i].Err = context.Canceled
		keys[messages[i].Key] = append(keys[messages[i].Key], &messages[i])
	}
	for _, key := range keys {
		key := key
		running.Go(func() error {
			for i := 0; i < len(key) && may(); i++ {
				if key[i].Err = key[i].publish(js); refused(key[i].Err) {
					return nil // nothing of a key overtakes
				} else if key[i].Err != nil {
					return key[i].Err // the stream is out of reach, which ends it for all
				}
			}
			return nil
		})
	}
	unreachable, acked := running.Wait(), []string{}
	for _, m := range messages {
		if m.Err == nil {
			acked = append(acked, m.ID)
		} else if refused(m.Err) {
			settle(`SELECT outbox_nack($1, $2::text::uuid, $3)`, m.ID, m.Err.Error())
		}
	}
	if len(acked) > 0 {
		settle(`SELECT outbox_ack($1, $2::text[]::uuid[])`, acked)
	}
	if unreachable != nil || ctx.Err() != nil && len(acked) < len(messages) {
		settle(`SELECT outbox_release($1)`) // others may have the rest at once
	}
	if err == nil {
		err = unreachable
	}
	return 0, err
}

func main() {
	flag.Parse()
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	db, err := pgxpool.New(context.Background(), "") // both connect when they have to, and again
	stream, failed := nats.Connect(*url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1))
	if err != nil || failed != nil {
		log.Fatal(err, failed)
	}
	js, _ := stream.JetStream()
	for backoff := time.Duration(0); ctx.Err() == nil; {
		pause, err := relay(ctx, db, js)
		if backoff = 2*backoff + 100*time.Millisecond; err == nil {
			backoff = 0
		} else if log.Print(err); backoff > 5*time.Second {
			backoff = 5 * time.Second
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause + backoff):
		}
	}
}
