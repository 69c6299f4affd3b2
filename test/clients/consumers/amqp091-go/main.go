// What amqp091-go hands out of each message of some queues, for test/clients/consumers.pl.
//
// usage: main setup NAME           declares the queues that need arguments
//
//	main read QUEUE=N...      prints N deliveries of each, one JSON object a line
//	main once QUEUE           consumes, each message once (once.go)
//
// The broker is in AMQP_URI.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func setup(ch *amqp.Channel, name string) {
	declare := func(queue string, arguments amqp.Table) {
		_, err := ch.QueueDeclare(queue, true, false, false, false, arguments)
		check(err)
	}
	declare(name+".priority", amqp.Table{"x-max-priority": 10})
	declare(name+".quorum", amqp.Table{
		"x-queue-type":              "quorum",
		"x-single-active-consumer":  true,
		"x-delivery-limit":          20,
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": name + ".dead",
	})
	declare(name+".dead", nil)
	declare(name+".headers", nil)
	check(ch.QueueBind(name+".headers", "", "headed", false,
		amqp.Table{"x-match": "all", "region": "eu", "tier": 7, "vip": true}))
}

// properties are those that the library has fields for; what is not set is an
// empty string, a zero or the time zero there.
func properties(d amqp.Delivery) map[string]value {
	all := map[string]value{}
	for name, s := range map[string]string{
		"content_type": d.ContentType, "content_encoding": d.ContentEncoding, "correlation_id": d.CorrelationId,
		"reply_to": d.ReplyTo, "expiration": d.Expiration, "message_id": d.MessageId, "type": d.Type,
		"user_id": d.UserId, "app_id": d.AppId,
	} {
		if s != "" {
			all[name] = typed(s)
		}
	}
	for name, n := range map[string]uint8{"delivery_mode": d.DeliveryMode, "priority": d.Priority} {
		if n != 0 {
			all[name] = typed(n)
		}
	}
	if !d.Timestamp.IsZero() {
		all["timestamp"] = typed(d.Timestamp)
	}
	return all
}

func read(ch *amqp.Channel, queue string, wanted int) {
	check(ch.Qos(100, 0, false))
	deliveries, err := ch.Consume(queue, queue, false, false, false, false, nil)
	check(err)
	out := json.NewEncoder(os.Stdout)
	for ; wanted > 0; wanted-- {
		d := <-deliveries
		check(out.Encode(map[string]any{
			"queue":       queue,
			"redelivered": d.Redelivered,
			"exchange":    d.Exchange,
			"routing_key": d.RoutingKey,
			"properties":  properties(d),
			"headers":     typed(d.Headers),
			"body":        contents{fmt.Sprintf("%T", d.Body), len(d.Body), digest(d.Body)},
		}))
		if strings.HasSuffix(queue, ".quorum") && !d.Redelivered {
			check(d.Nack(false, true))
		} else {
			check(d.Ack(false))
		}
	}
	check(ch.Cancel(queue, false))
}

func main() {
	if os.Args[1] == "once" {
		once(os.Getenv("AMQP_URI"), os.Args[2])
		return
	}
	conn, err := amqp.Dial(os.Getenv("AMQP_URI"))
	check(err)
	ch, err := conn.Channel()
	check(err)
	if os.Args[1] == "setup" {
		setup(ch, os.Args[2])
	} else {
		for _, word := range os.Args[2:] {
			queue, n, _ := strings.Cut(word, "=")
			wanted, err := strconv.Atoi(n)
			check(err)
			read(ch, queue, wanted)
		}
	}
	check(conn.Close())
}
