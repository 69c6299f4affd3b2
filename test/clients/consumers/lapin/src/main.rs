//! What lapin hands out of each message of some queues, for test/clients/consumers.pl.
//!
//! usage: main setup NAME           declares the queues that need arguments
//!        main read QUEUE=N...      prints N deliveries of each, one JSON object a line
//!        main once QUEUE           consumes, each message once (once.rs)
//!
//! The broker is in AMQP_URI.

mod once;
mod typed;

use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::*;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection, ConnectionProperties};
use serde_json::{json, Map, Value};
use typed::{digest, integer, table, text};

type Error = Box<dyn std::error::Error + Send + Sync>;

fn arguments(all: &[(&str, AMQPValue)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in all {
        table.insert((*name).into(), value.clone());
    }
    table
}

fn string(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

async fn setup(channel: &Channel, name: &str) -> lapin::Result<()> {
    let quorum = arguments(&[
        ("x-queue-type", string("quorum")),
        ("x-single-active-consumer", AMQPValue::Boolean(true)),
        ("x-delivery-limit", AMQPValue::LongInt(20)),
        ("x-dead-letter-exchange", string("")),
        ("x-dead-letter-routing-key", string(&format!("{name}.dead"))),
    ]);
    let priority = arguments(&[("x-max-priority", AMQPValue::LongInt(10))]);
    for (queue, arguments) in [
        ("priority", priority),
        ("quorum", quorum),
        ("dead", FieldTable::default()),
        ("headers", FieldTable::default()),
    ] {
        let queue = format!("{name}.{queue}");
        channel.queue_declare(queue.as_str().into(), QueueDeclareOptions::durable(), arguments).await?;
    }
    let wanted = arguments(&[
        ("x-match", string("all")),
        ("region", string("eu")),
        ("tier", AMQPValue::LongLongInt(7)),
        ("vip", AMQPValue::Boolean(true)),
    ]);
    let queue = format!("{name}.headers");
    channel.queue_bind(queue.as_str().into(), "headed".into(), "".into(), QueueBindOptions::default(), wanted).await
}

fn properties(delivery: &Delivery) -> Value {
    let p = &delivery.properties;
    let mut all = Map::new();
    let texts: [(&str, &Option<ShortString>); 10] = [
        ("content_type", p.content_type()),
        ("content_encoding", p.content_encoding()),
        ("correlation_id", p.correlation_id()),
        ("reply_to", p.reply_to()),
        ("expiration", p.expiration()),
        ("message_id", p.message_id()),
        ("type", p.kind()),
        ("user_id", p.user_id()),
        ("app_id", p.app_id()),
        ("cluster_id", p.cluster_id()),
    ];
    for (name, value) in texts {
        if let Some(said) = value {
            all.insert(name.into(), text(said.as_str().as_bytes(), "ShortString"));
        }
    }
    for (name, value) in [("delivery_mode", p.delivery_mode()), ("priority", p.priority())] {
        if let Some(n) = value {
            all.insert(name.into(), integer(n, "u8"));
        }
    }
    if let Some(n) = p.timestamp() {
        all.insert("timestamp".into(), integer(n, "u64"));
    }
    Value::Object(all)
}

fn show(queue: &str, delivery: &Delivery) {
    let said = json!({
        "queue": queue,
        "redelivered": delivery.redelivered,
        "exchange": delivery.exchange.as_str(),
        "routing_key": delivery.routing_key.as_str(),
        "properties": properties(delivery),
        "headers": delivery.properties.headers().as_ref().map(table).unwrap_or(json!({"t": "n"})),
        "body": {"as": "Vec<u8>", "size": delivery.data.len(), "sha256": digest(&delivery.data)},
    });
    println!("{said}");
}

async fn read(connection: &Connection, queue: &str, mut wanted: usize) -> Result<(), Error> {
    let channel = connection.create_channel().await?;
    channel.basic_qos(100, BasicQosOptions::default()).await?;
    let mut deliveries = channel
        .basic_consume(queue.into(), "".into(), BasicConsumeOptions::default(), FieldTable::default())
        .await?;
    while wanted > 0 {
        let delivery = deliveries.next().await.ok_or("the consumer was cancelled")??;
        show(queue, &delivery);
        if queue.ends_with(".quorum") && !delivery.redelivered {
            delivery.nack(BasicNackOptions { requeue: true, ..Default::default() }).await?;
        } else {
            delivery.ack(BasicAckOptions::default()).await?;
        }
        wanted -= 1;
    }
    channel.close(200, "".into()).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().collect();
    let uri = std::env::var("AMQP_URI")?;
    if words[1] == "once" {
        once::once(&uri, &words[2]).await;
    }
    let connection = Connection::connect(&uri, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?; // closed with the connection
    if words[1] == "setup" {
        setup(&channel, &words[2]).await?;
    } else {
        for word in &words[2..] {
            let (queue, wanted) = word.split_once('=').ok_or("not QUEUE=N")?;
            read(&connection, queue, wanted.parse()?).await?;
        }
    }
    connection.close(200, "".into()).await?;
    Ok(())
}
