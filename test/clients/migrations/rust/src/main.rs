//! pgmq: its own SQL, and its own client.
//!
//!     migrations write FIRST LAST    messages FIRST to LAST, each in a transaction, and one that is rolled back
//!     migrations relay COUNT         reads and archives COUNT; "sent N" for each
//!     migrations later N             one that is delayed by an hour
use pgmq::PGMQueueExt;
use serde_json::{json, Value};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

const QUEUE: &str = "orders";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize| args[i].parse::<i64>().expect("a number");
    // the server is in PGHOST and the like
    let pool = PgPoolOptions::new().connect_with(PgConnectOptions::new()).await?;
    let queue = PGMQueueExt::new_with_pool(pool).await;

    match args[1].as_str() {
        "write" => {
            queue.install_sql_from_embedded().await?;
            queue.create(QUEUE).await?;
            for n in number(2)..=number(3) {
                let mut tx = queue.connection.begin().await?;
                queue.send_with_cxn(QUEUE, &json!({"n": n, "type": "order.created"}), &mut *tx).await?;
                tx.commit().await?;
            }
            let mut tx = queue.connection.begin().await?;
            queue.send_with_cxn(QUEUE, &json!({"n": -1}), &mut *tx).await?;
            tx.rollback().await?;
        }
        "later" => {
            queue.send_delay(QUEUE, &json!({"n": number(2)}), 3600).await?;
        }
        _ => {
            for _ in 0..number(2) {
                let message = queue.read::<Value>(QUEUE, 30).await?.expect("a message");
                queue.archive(QUEUE, message.msg_id).await?;
                println!("sent {}", message.message["n"]);
            }
        }
    }
    Ok(())
}
