// Events of a queue, as the SDK of CloudEvents for Go reads them.
//
//	main 1.0|0-9-1 PORT QUEUE N	one line of JSON for each: attributes, time in microseconds, data in base64
//
// The SDK has a protocol for AMQP 1.0, which RabbitMQ speaks with the plugin rabbitmq_amqp1_0 and, since 4.0, without.
// What a client of AMQP 0-9-1 has received is a message for it, too: headers are its application properties.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/Azure/go-amqp"
	ceamqp "github.com/cloudevents/sdk-go/protocol/amqp/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

type shown struct {
	ID              string                 `json:"id"`
	Source          string                 `json:"source"`
	Type            string                 `json:"type"`
	Subject         *string                `json:"subject"`
	DataSchema      *string                `json:"dataschema"`
	DataContentType string                 `json:"datacontenttype"`
	SpecVersion     string                 `json:"specversion"`
	Time            int64                  `json:"time"`
	Extensions      map[string]interface{} `json:"extensions"`
	Data            []byte                 `json:"data"`
}

// What is not there is empty in the SDK.
func optional(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}

func show(e *event.Event) shown {
	extensions := e.Extensions()
	if extensions == nil {
		extensions = map[string]interface{}{}
	}
	return shown{
		ID: e.ID(), Source: e.Source(), Type: e.Type(), Subject: optional(e.Subject()),
		DataSchema: optional(e.DataSchema()), DataContentType: e.DataContentType(), SpecVersion: e.SpecVersion(),
		Time: e.Time().UnixMicro(), Extensions: extensions, Data: e.Data()}
}

func print(ctx context.Context, message binding.Message) error {
	e, err := binding.ToEvent(ctx, message)
	if err == nil {
		err = e.Validate()
	}
	if err != nil {
		return err
	}
	line, err := json.Marshal(show(e))
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	return nil
}

func receive10(ctx context.Context, port, queue string, count int) error {
	protocol, err := ceamqp.NewProtocol("amqp://127.0.0.1:"+port, "/amq/queue/"+queue,
		[]amqp.ConnOption{amqp.ConnSASLPlain("guest", "guest")}, nil)
	if err != nil {
		return err
	}
	for i := 0; i < count; i++ {
		message, err := protocol.Receive(ctx)
		if err == nil {
			err = print(ctx, message)
		}
		if err == nil {
			err = message.Finish(nil)
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", i+1, err)
		}
	}
	return protocol.Close(ctx)
}

func fromDelivery(delivery amqp091.Delivery) *ceamqp.Message {
	return ceamqp.NewMessage(&amqp.Message{
		Properties:            &amqp.MessageProperties{ContentType: &delivery.ContentType},
		ApplicationProperties: delivery.Headers,
		Data:                  [][]byte{delivery.Body}}, nil)
}

func receive091(ctx context.Context, port, queue string, count int) error {
	connection, err := amqp091.Dial("amqp://guest:guest@127.0.0.1:" + port)
	if err != nil {
		return err
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	deliveries, err := channel.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for i := 0; i < count; i++ {
		delivery := <-deliveries
		if err := print(ctx, fromDelivery(delivery)); err != nil {
			return fmt.Errorf("message %d: %w", i+1, err)
		}
		if err := delivery.Ack(false); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	receive := map[string]func(context.Context, string, string, int) error{"1.0": receive10, "0-9-1": receive091}[os.Args[1]]
	count, err := strconv.Atoi(os.Args[4])
	if err == nil {
		err = receive(ctx, os.Args[2], os.Args[3], count)
	}
	if err != nil {
		log.Fatal(err)
	}
}
