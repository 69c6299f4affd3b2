//! Each operation of the matrix by Diesel; migrations by diesel_migrations and its command line.

mod outbox;
mod schema;

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::result::Error;
use diesel::sql_types::Text;
use diesel_migrations::{embed_migrations, EmbeddedMigrations, MigrationHarness};
use serde_json::{json, Value};
use uuid::Uuid;

use outbox::{outbox_enqueue, outbox_new, Message, StoredMessage};
use schema::orders;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations");
const EXTENSION: EmbeddedMigrations = embed_migrations!("extension");

fn operation() -> String {
    std::env::args().nth(1).expect("an operation")
}

fn event_type() -> String {
    format!("order.{}", operation())
}

/// What it is refused with, or None. Diesel names kinds of errors, and has no SQLSTATE.
fn refused<T>(result: QueryResult<T>) -> Option<String> {
    let error = result.err()?;
    eprintln!("{error}");
    let text = error.to_string();
    Some(if text.contains("permission denied") {
        "42501".into()
    } else if text.contains("duplicate key") {
        "23505".into()
    } else if text.contains("cannot ") {
        "0A000".into()
    } else {
        "client".into()
    })
}

fn place_order(conn: &mut PgConnection) -> QueryResult<i64> {
    diesel::insert_into(orders::table)
        .values((orders::customer.eq(operation()), orders::total.eq(42)))
        .returning(orders::id)
        .get_result(conn)
}

fn message(order: i64, payload: Value) -> Message {
    Message {
        event_type: event_type(),
        aggregate_type: Some("order".into()),
        aggregate_id: Some(order.to_string()),
        payload: Some(payload),
        ..Default::default()
    }
}

fn enqueue(conn: &mut PgConnection, message: Message) -> QueryResult<Uuid> {
    diesel::insert_into(outbox_new::table).values(message).returning(outbox_new::id).get_result(conn)
}

fn placed(conn: &mut PgConnection) -> QueryResult<Uuid> {
    conn.transaction(|conn| {
        let order = place_order(conn)?;
        enqueue(conn, message(order, json!({"order": order})))
    })
}

fn map(conn: &mut PgConnection) -> Result<Value> {
    let time = |text: &str| text.parse::<DateTime<Utc>>().ok();
    let id = enqueue(conn, Message {
        id: None,
        route: Some("default".into()),
        event_type: event_type(),
        aggregate_type: Some("customer".into()),
        aggregate_id: Some("42".into()),
        payload: Some(json!({"n": 42, "name": "Zoë", "nothing": null})),
        body: None,
        headers: Some(json!({"tenant": "a\\b", "x-retries": 3})),
        properties: Some(json!({"priority": 5})),
        routing_key: Some("a.key".into()),
        created_at: time("2026-01-02T03:04:05Z"),
        available_at: time("2040-01-02T03:04:05Z"),
    })?;
    Ok(json!({"ids": [id]}))
}

fn insert(conn: &mut PgConnection) -> Result<Value> {
    // [insert]
    let id = conn.transaction(|conn| {
        let order: i64 = diesel::insert_into(orders::table)
            .values((orders::customer.eq("Zoë"), orders::total.eq(42)))
            .returning(orders::id)
            .get_result(conn)?;
        let created = Message {
            event_type: event_type(),
            aggregate_type: Some("order".into()),
            aggregate_id: Some(order.to_string()),
            payload: Some(json!({"order": order})),
            ..Default::default()
        };
        diesel::insert_into(outbox_new::table)
            .values(created)
            .returning(outbox_new::id)
            .get_result::<Uuid>(conn)
    })?;
    // [/insert]
    Ok(json!({"ids": [id]}))
}

fn function(conn: &mut PgConnection) -> Result<Value> {
    let id: Uuid = conn.transaction(|conn| {
        let order = place_order(conn)?;
        diesel::select(outbox_enqueue(event_type(), json!({"order": order}), "order", order.to_string())).get_result(conn)
    })?;
    Ok(json!({"ids": [id]}))
}

fn own_id(conn: &mut PgConnection) -> Result<Value> {
    let id = Uuid::now_v7();
    conn.transaction(|conn| {
        let order = place_order(conn)?;
        enqueue(conn, Message { id: Some(id), ..message(order, json!({"order": order})) })
    })?;
    Ok(json!({"ids": [id]}))
}

fn bytes(conn: &mut PgConnection) -> Result<Value> {
    let id = enqueue(conn, Message { event_type: event_type(), body: Some((0..=255).collect()), ..Default::default() })?;
    Ok(json!({"ids": [id]}))
}

fn batch(conn: &mut PgConnection) -> Result<Value> {
    let ids: Vec<Uuid> = conn.transaction(|conn| {
        let order = place_order(conn)?;
        let messages: Vec<Message> = (0..100).map(|n| message(order, json!({"n": n}))).collect();
        diesel::insert_into(outbox_new::table).values(messages).returning(outbox_new::id).get_results(conn)
    })?;
    Ok(json!({"ids": ids}))
}

fn rollback(conn: &mut PgConnection) -> Result<Value> {
    let result = conn.transaction(|conn| {
        placed(conn)?;
        Err::<(), Error>(Error::RollbackTransaction)
    });
    assert_eq!(result, Err(Error::RollbackTransaction));
    Ok(json!({}))
}

fn savepoint(conn: &mut PgConnection) -> Result<Value> {
    let ids: Vec<Uuid> = conn.transaction(|conn| {
        let order = place_order(conn)?;
        let mut ids = Vec::new();
        for n in 1..=3 {
            let kept = conn.transaction(|conn| {
                let id = enqueue(conn, message(order, json!({"n": n})))?;
                if n == 2 {
                    return Err(Error::RollbackTransaction); // to the savepoint
                }
                Ok(id)
            });
            ids.extend(kept);
        }
        Ok::<_, Error>(ids)
    })?;
    Ok(json!({"ids": ids}))
}

fn stored(id: Uuid) -> StoredMessage {
    StoredMessage { id, event_type: "order.again".into(), payload: Some(json!({})) }
}

/// The changes of a model that Message is not.
fn again(conn: &mut PgConnection, id: Uuid) -> Option<String> {
    let stored = stored(id);
    refused(diesel::update(&stored).set(&stored).execute(conn))
}

fn second_save(conn: &mut PgConnection) -> Result<Value> {
    let id = placed(conn)?;
    let inserted = diesel::insert_into(outbox_new::table).values(&stored(id)).execute(conn);
    assert_eq!(refused(inserted).as_deref(), Some("23505"));
    let upserted = diesel::insert_into(outbox_new::table)
        .values(&stored(id))
        .on_conflict(outbox_new::id)
        .do_update()
        .set(outbox_new::event_type.eq("order.again"))
        .execute(conn);
    assert!(refused(upserted).is_some());
    Ok(json!({"ids": [id], "error": again(conn, id)}))
}

fn second_save_gone(conn: &mut PgConnection) -> Result<Value> {
    let id = placed(conn)?;
    #[derive(QueryableByName)]
    struct Waited {
        #[diesel(sql_type = Text)]
        outbox_wait: String,
    }
    let waited: Waited = diesel::sql_query("SELECT outbox_wait($1, '60 s')").bind::<diesel::sql_types::Uuid, _>(id).get_result(conn)?;
    assert_eq!(waited.outbox_wait, "published");
    Ok(json!({"ids": [id], "error": again(conn, id)}))
}

fn update(conn: &mut PgConnection) -> Result<Value> {
    let id = placed(conn)?;
    let updated = diesel::update(outbox_new::table).set(outbox_new::event_type.eq("order.changed")).execute(conn);
    assert!(refused(updated).is_some());
    Ok(json!({"ids": [id], "error": again(conn, id)}))
}

fn delete(conn: &mut PgConnection) -> Result<Value> {
    let id = placed(conn)?;
    let deleted = diesel::delete(outbox_new::table.find(id)).execute(conn);
    Ok(json!({"ids": [id], "error": refused(deleted)}))
}

fn pool(_: &mut PgConnection) -> Result<Value> {
    let manager = ConnectionManager::<PgConnection>::new(std::env::var("DATABASE_URL")?);
    let pool = Pool::builder().max_size(4).build(manager)?;
    let ids = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (pool, ids) = (pool.clone(), ids.clone());
            std::thread::spawn(move || {
                for _ in 0..25 {
                    let id = placed(&mut pool.get().unwrap()).unwrap();
                    ids.lock().unwrap().push(id);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let ids = ids.lock().unwrap();
    Ok(json!({"ids": *ids}))
}

/// What begin_test_transaction() and test_transaction() are for.
fn tests(conn: &mut PgConnection) -> Result<Value> {
    conn.test_transaction::<_, Error, _>(|conn| {
        let id = placed(conn)?;
        let found: i64 = diesel::sql_query("SELECT count(*) FROM outbox WHERE id = $1")
            .bind::<diesel::sql_types::Uuid, _>(id)
            .get_result::<Count>(conn)?
            .count;
        assert_eq!(found, 1);
        Ok(())
    });
    Ok(json!({"says": "`test_transaction()`"}))
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    count: i64,
}

/// Diesel's command line, beside this program, in a directory with a diesel.toml.
fn cli(directory: &Path, arguments: &[&str]) -> Result<String> {
    let out = Command::new(std::env::current_exe()?.with_file_name("diesel")).current_dir(directory).args(arguments).output()?;
    eprintln!("{}", String::from_utf8_lossy(&out.stderr));
    if !out.status.success() {
        return Err(format!("diesel {arguments:?}: {}", String::from_utf8_lossy(&out.stderr)).into());
    }
    Ok(String::from_utf8(out.stdout)?)
}

/// A directory that looks like a project of Diesel's, while this runs.
fn in_project<T>(run: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let directory = std::env::temp_dir().join(format!("diesel-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("migrations"))?;
    std::fs::write(directory.join("diesel.toml"), "[print_schema]\nfile = \"schema.rs\"\n")?;
    let result = run(&directory);
    std::fs::remove_dir_all(&directory)?;
    result
}

/// Statements of `diesel migration generate --diff-schema`, with these modules as schema.rs.
fn wants(modules: &[&str]) -> Result<Value> {
    in_project(|directory| {
        let mut wants = Vec::new();
        std::fs::write(directory.join("schema.rs"), modules.concat())?;
        cli(directory, &["migration", "generate", "diff", "--diff-schema"])?;
        for migration in std::fs::read_dir(directory.join("migrations"))? {
            let script = migration?.path().join("up.sql");
            if script.exists() {
                let text = std::fs::read_to_string(script)?;
                let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("--")).collect();
                wants.extend(lines.join("\n").split(';').map(str::trim).filter(|s| !s.is_empty()).map(String::from));
            }
        }
        Ok(json!({"wants": wants}))
    })
}

const SCHEMA: &str = include_str!("schema.rs");

/// The part of outbox.rs that is a schema.
fn view() -> &'static str {
    let source = include_str!("outbox.rs");
    let begin = source.find("diesel::table!").unwrap();
    &source[begin..source.find("/// Not Clone").unwrap()]
}

fn diff(_: &mut PgConnection) -> Result<Value> {
    wants(&[SCHEMA, view()])
}

fn diff_mended(_: &mut PgConnection) -> Result<Value> {
    wants(&[SCHEMA])
}

fn dump(_: &mut PgConnection) -> Result<Value> {
    in_project(|directory| {
        let schema = cli(directory, &["print-schema"])?;
        assert_eq!(schema.trim(), SCHEMA.trim());
        // who owns the extension sees all of its tables
        let owner = std::env::var("DATABASE_URL")?.replace("shop@", &format!("{}@", std::env::var("SUPERUSER")?));
        assert!(cli(directory, &["print-schema", "--schema", "outbox", "--database-url", &owner]).is_err());
        let arguments = ["print-schema", "--schema", "outbox", "--except-tables", "^outbox", "--database-url", &owner];
        assert!(!cli(directory, &arguments)?.contains("table!"));
        Ok(json!({"says": "nothing of ours"}))
    })
}

fn migrate_up(conn: &mut PgConnection) -> Result<Value> {
    conn.run_pending_migrations(MIGRATIONS)?;
    Ok(json!({}))
}

fn migrate_down(conn: &mut PgConnection) -> Result<Value> {
    conn.revert_last_migration(MIGRATIONS)?;
    Ok(json!({}))
}

fn extension(conn: &mut PgConnection) -> Result<Value> {
    conn.run_pending_migrations(EXTENSION)?;
    Ok(json!({}))
}

fn main() -> Result<()> {
    let run = match operation().as_str() {
        "map" => map,
        "insert" => insert,
        "function" => function,
        "own_id" => own_id,
        "bytes" => bytes,
        "batch" => batch,
        "rollback" => rollback,
        "savepoint" => savepoint,
        "second_save" => second_save,
        "second_save_gone" => second_save_gone,
        "update" => update,
        "delete" => delete,
        "pool" => pool,
        "tests" => tests,
        "diff" => diff,
        "diff_mended" => diff_mended,
        "dump" => dump,
        "migrate_up" => migrate_up,
        "migrate_down" => migrate_down,
        "extension" => extension,
        other => panic!("no operation {other}"),
    };
    let mut conn = PgConnection::establish(&std::env::var("DATABASE_URL")?)?;
    println!("{}", run(&mut conn)?);
    Ok(())
}
