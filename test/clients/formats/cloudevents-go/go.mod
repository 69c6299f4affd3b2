module cloudevents

go 1.18

require (
	github.com/Azure/go-amqp v0.17.0
	github.com/cloudevents/sdk-go/protocol/amqp/v2 v2.15.2
	github.com/cloudevents/sdk-go/v2 v2.15.2
	github.com/rabbitmq/amqp091-go v1.9.0
)
