//! Each operation of the matrix by sqlx, with statements that were checked when this was compiled.

use chrono::{DateTime, Utc};
use serde_json::{json, Value};
use sqlx::migrate::Migrator;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Acquire, PgConnection, PgPool, QueryBuilder};
use uuid::Uuid;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

static MIGRATOR: Migrator = sqlx::migrate!("./migrations");
static EXTENSION: Migrator = sqlx::migrate!("./extension");

fn operation() -> String {
    std::env::args().nth(1).expect("an operation")
}

fn event_type() -> String {
    format!("order.{}", operation())
}

/// The SQLSTATE of what it is refused with, "client" without one, or None.
fn refused<T>(result: sqlx::Result<T>) -> Option<String> {
    let error = result.err()?;
    eprintln!("{error}");
    Some(error.as_database_error().and_then(|e| e.code()).map_or("client".into(), |code| code.into()))
}

async fn place_order(conn: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar!("INSERT INTO orders (customer, total) VALUES ($1, 42) RETURNING id", operation()).fetch_one(conn).await
}

async fn enqueue(conn: &mut PgConnection, order: i64, payload: Value) -> sqlx::Result<Uuid> {
    // [insert]
    sqlx::query_scalar!(
        r#"INSERT INTO outbox_new (event_type, aggregate_type, aggregate_id, payload)
           VALUES ($1, 'order', $2, $3) RETURNING id AS "id!""#,
        event_type(),
        order.to_string(),
        payload
    )
    .fetch_one(conn)
    .await
    // [/insert]
}

async fn placed(pool: &PgPool) -> sqlx::Result<Uuid> {
    // [transaction]
    let mut tx = pool.begin().await?;
    let order = place_order(&mut tx).await?;
    let id = enqueue(&mut tx, order, json!({"order": order})).await?;
    tx.commit().await?;
    // [/transaction]
    Ok(id)
}

async fn map(pool: &PgPool) -> Result<Value> {
    let time = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
    let id = sqlx::query_scalar!(
        r#"INSERT INTO outbox_new (route, event_type, aggregate_type, aggregate_id, payload, headers, properties,
               routing_key, created_at, available_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id AS "id!""#,
        "default",
        event_type(),
        "customer",
        "42",
        json!({"n": 42, "name": "Zoë", "nothing": null}),
        json!({"tenant": "a\\b", "x-retries": 3}),
        json!({"priority": 5}),
        "a.key",
        time("2026-01-02T03:04:05Z"),
        time("2040-01-02T03:04:05Z")
    )
    .fetch_one(pool)
    .await?;
    Ok(json!({"ids": [id]}))
}

async fn insert(pool: &PgPool) -> Result<Value> {
    Ok(json!({"ids": [placed(pool).await?]}))
}

async fn function(pool: &PgPool) -> Result<Value> {
    let mut tx = pool.begin().await?;
    let order = place_order(&mut tx).await?;
    let id = sqlx::query_scalar!(
        r#"SELECT outbox_enqueue($1, $2, 'order', $3) AS "id!""#,
        event_type(),
        json!({"order": order}),
        order.to_string()
    )
    .fetch_one(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(json!({"ids": [id]}))
}

async fn own_id(pool: &PgPool) -> Result<Value> {
    let id = Uuid::now_v7();
    let mut tx = pool.begin().await?;
    let order = place_order(&mut tx).await?;
    sqlx::query!(
        "INSERT INTO outbox_new (id, event_type, aggregate_type, aggregate_id, payload) VALUES ($1, $2, 'order', $3, $4)",
        id,
        event_type(),
        order.to_string(),
        json!({"order": order})
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(json!({"ids": [id]}))
}

async fn bytes(pool: &PgPool) -> Result<Value> {
    let body: Vec<u8> = (0..=255).collect();
    let id = sqlx::query_scalar!(r#"INSERT INTO outbox_new (event_type, body) VALUES ($1, $2) RETURNING id AS "id!""#, event_type(), body)
        .fetch_one(pool)
        .await?;
    Ok(json!({"ids": [id]}))
}

async fn batch(pool: &PgPool) -> Result<Value> {
    let mut tx = pool.begin().await?;
    let order = place_order(&mut tx).await?;
    let mut insert = QueryBuilder::new("INSERT INTO outbox_new (event_type, aggregate_type, aggregate_id, payload) ");
    insert.push_values(0..100, |mut row, n| {
        row.push_bind(event_type()).push_bind("order").push_bind(order.to_string()).push_bind(json!({"n": n}));
    });
    let ids: Vec<Uuid> = insert.push(" RETURNING id").build_query_scalar().fetch_all(&mut *tx).await?;
    tx.commit().await?;
    Ok(json!({"ids": ids}))
}

/// A transaction that is dropped is rolled back.
async fn rollback(pool: &PgPool) -> Result<Value> {
    let mut tx = pool.begin().await?;
    let order = place_order(&mut tx).await?;
    enqueue(&mut tx, order, json!({"order": order})).await?;
    drop(tx);
    Ok(json!({}))
}

async fn savepoint(pool: &PgPool) -> Result<Value> {
    let mut ids = Vec::new();
    let mut tx = pool.begin().await?;
    let order = place_order(&mut tx).await?;
    for n in 1..=3 {
        let mut nested = tx.begin().await?;
        let id = enqueue(&mut nested, order, json!({"n": n})).await?;
        if n == 2 {
            nested.rollback().await?;
            continue;
        }
        nested.commit().await?;
        ids.push(id);
    }
    tx.commit().await?;
    Ok(json!({"ids": ids}))
}

/// An application's own save(); there are no objects.
async fn upsert(pool: &PgPool, id: Uuid) -> Option<String> {
    refused(
        sqlx::query!(
            "INSERT INTO outbox_new (id, event_type, payload) VALUES ($1, 'order.again', '{}')
             ON CONFLICT (id) DO UPDATE SET event_type = excluded.event_type",
            id
        )
        .execute(pool)
        .await,
    )
}

async fn update(pool: &PgPool) -> Result<Value> {
    let id = placed(pool).await?;
    let again = sqlx::query!("INSERT INTO outbox_new (id, event_type, payload) VALUES ($1, 'order.again', '{}')", id).execute(pool).await;
    assert_eq!(refused(again).as_deref(), Some("23505"));
    assert_eq!(upsert(pool, id).await.as_deref(), Some("42501"));
    let updated = sqlx::query!("UPDATE outbox_new SET event_type = 'order.changed' WHERE id = $1", id).execute(pool).await;
    Ok(json!({"ids": [id], "error": refused(updated)}))
}

async fn delete(pool: &PgPool) -> Result<Value> {
    let id = placed(pool).await?;
    let deleted = sqlx::query!("DELETE FROM outbox_new WHERE id = $1", id).execute(pool).await;
    Ok(json!({"ids": [id], "error": refused(deleted)}))
}

async fn connections(pool: &PgPool) -> Result<Value> {
    let tasks: Vec<tokio::task::JoinHandle<sqlx::Result<Vec<Uuid>>>> = (0..4)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let mut ids = Vec::new();
                for _ in 0..25 {
                    ids.push(placed(&pool).await?);
                }
                Ok::<_, sqlx::Error>(ids)
            })
        })
        .collect();
    let mut ids = Vec::new();
    for task in tasks {
        ids.extend(task.await??);
    }
    Ok(json!({"ids": ids}))
}

async fn tests(pool: &PgPool) -> Result<Value> {
    let mut tx = pool.begin().await?;
    let order = place_order(&mut tx).await?;
    let id = enqueue(&mut tx, order, json!({"order": order})).await?;
    let found: i64 = sqlx::query_scalar("SELECT count(*) FROM outbox WHERE id = $1").bind(id).fetch_one(&mut *tx).await?;
    assert_eq!(found, 1);
    tx.rollback().await?;
    Ok(json!({"says": "rolled back"}))
}

async fn migrate_up(pool: &PgPool) -> Result<Value> {
    MIGRATOR.run(pool).await?;
    Ok(json!({}))
}

async fn migrate_down(pool: &PgPool) -> Result<Value> {
    MIGRATOR.undo(pool, 0).await?;
    Ok(json!({}))
}

async fn extension(pool: &PgPool) -> Result<Value> {
    EXTENSION.run(pool).await?;
    Ok(json!({}))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let pool = PgPoolOptions::new().max_connections(4).connect(&std::env::var("DATABASE_URL")?).await?;
    let said = match operation().as_str() {
        "map" => map(&pool).await,
        "insert" => insert(&pool).await,
        "function" => function(&pool).await,
        "own_id" => own_id(&pool).await,
        "bytes" => bytes(&pool).await,
        "batch" => batch(&pool).await,
        "rollback" => rollback(&pool).await,
        "savepoint" => savepoint(&pool).await,
        "update" => update(&pool).await,
        "delete" => delete(&pool).await,
        "pool" => connections(&pool).await,
        "tests" => tests(&pool).await,
        "migrate_up" => migrate_up(&pool).await,
        "migrate_down" => migrate_down(&pool).await,
        "extension" => extension(&pool).await,
        _ => Ok(json!({"none": "sqlx has no objects, and no models"})),
    }?;
    pool.close().await;
    println!("{said}");
    Ok(())
}
