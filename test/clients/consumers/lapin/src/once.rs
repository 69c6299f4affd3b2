//! A consumer whose effect happens once for each message, however often that is delivered.

use crate::Error;
use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::*;
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use std::time::Duration;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

// [once]
async fn effect(db: &mut Client, delivery: &Delivery) -> Result<(), Error> {
    let id: Uuid = delivery.properties.message_id().as_ref().ok_or("no message_id")?.as_str().parse()?;
    let tx = db.transaction().await?; // rolled back if it is dropped
    let row = tx.query_one("SELECT inbox.outbox_inbox_accept('lapin', $1)", &[&id]).await?;
    if row.get(0) { // false: processed before
        let body: serde_json::Value = serde_json::from_slice(&delivery.data)?;
        tx.execute("INSERT INTO notifications (consumer, message_id, body) VALUES ('lapin', $1, $2)", &[&id, &body]).await?;
    }
    Ok(tx.commit().await?)
}

async fn handle(db: &mut Client, delivery: &Delivery) -> Result<(), Error> {
    let in_time = match effect(db, delivery).await {
        Ok(()) => delivery.ack(BasicAckOptions::default()).await?, // only after the commit
        Err(error) if db.is_closed() || not_now(&error) => return Err(error),
        // it is the message's own fault; x-delivery-limit bounds how often
        Err(_) => delivery.nack(BasicNackOptions { requeue: true, ..Default::default() }).await?,
    };
    // false and no error: the channel is gone, and what is still to be read comes again
    if in_time { Ok(()) } else { Err("too late to acknowledge".into()) }
}

/// No connection, a deadlock or a conflict, no room, or the server is going down.
fn not_now(error: &Error) -> bool {
    let code = error.downcast_ref::<tokio_postgres::Error>().map(|e| e.code().map_or("08000", |code| code.code()));
    code.is_some_and(|code| ["08", "40", "53", "57", "58"].contains(&&code[..2]))
}

async fn consume(uri: &str, queue: &str) -> Result<(), Error> {
    let (mut db, driver) = tokio_postgres::connect(&std::env::var("DATABASE_URL")?, NoTls).await?;
    tokio::spawn(driver);
    let connection = Connection::connect(&format!("{uri}?heartbeat=30"), ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.basic_qos(50, BasicQosOptions::default()).await?;
    let mut deliveries = channel
        .basic_consume(queue.into(), "".into(), BasicConsumeOptions::default(), FieldTable::default())
        .await?;
    println!("consuming");
    while let Some(delivery) = deliveries.next().await {
        handle(&mut db, &delivery?).await?;
    }
    Err("the consumer was cancelled".into())
}

pub async fn once(uri: &str, queue: &str) -> ! {
    loop {
        if let Err(error) = consume(uri, queue).await {
            println!("again in a second: {error}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
// [/once]
