//! Binds values of Rust's own types by tokio-postgres and sqlx; the folder above says
//! what it reads and prints.

use std::io::BufRead;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::{format_description::well_known::Rfc3339, OffsetDateTime};
use uuid::Uuid;

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    n: i32,
    name: String,
    nothing: Option<String>,
}

/// What an application has in hand.
enum Bound {
    Text(String),
    Int(i32),
    Bigint(i64),
    Uuid(Uuid),
    Json(Value),
    Struct(Order),
    Time(OffsetDateTime),
    Null(Option<String>),
}

fn value(kind: &str, text: &str) -> Option<Bound> {
    Some(match kind {
        "text" => Bound::Text(text.to_string()),
        "int" => Bound::Int(text.parse().unwrap()),
        "bigint" => Bound::Bigint(text.parse().unwrap()),
        "uuid" => Bound::Uuid(text.parse().unwrap()),
        "json" | "list" => Bound::Json(serde_json::from_str(text).unwrap()),
        "struct" => Bound::Struct(serde_json::from_str(text).unwrap()),
        "time" => Bound::Time(OffsetDateTime::parse(text, &Rfc3339).unwrap()),
        "null" => Bound::Null(None),
        _ => return None,
    })
}

/// SQLSTATE, or none if the driver has refused; and what was said.
type Failure = (Option<String>, String);

async fn by_tokio_postgres(
    client: &tokio_postgres::Client, statement: &str, values: Vec<Bound>,
) -> Result<String, Failure> {
    use tokio_postgres::types::{Json, ToSql};
    let values: Vec<Box<dyn ToSql + Sync>> = values
        .into_iter()
        .map(|v| -> Box<dyn ToSql + Sync> {
            match v {
                Bound::Text(v) => Box::new(v),
                Bound::Int(v) => Box::new(v),
                Bound::Bigint(v) => Box::new(v),
                Bound::Uuid(v) => Box::new(v),
                Bound::Json(v) => Box::new(v),
                Bound::Struct(v) => Box::new(Json(v)),
                Bound::Time(v) => Box::new(v),
                Bound::Null(v) => Box::new(v),
            }
        })
        .collect();
    let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|v| &**v).collect();
    match client.query_one(statement, &values).await {
        Ok(row) => Ok(row.get(0)),
        Err(e) => Err((e.code().map(|c| c.code().to_string()), format!("{e:?}"))),
    }
}

async fn by_sqlx(
    connection: &mut sqlx::PgConnection, statement: &str, values: Vec<Bound>,
) -> Result<String, Failure> {
    let mut query = sqlx::query_scalar::<_, String>(statement);
    for v in values {
        query = match v {
            Bound::Text(v) => query.bind(v),
            Bound::Int(v) => query.bind(v),
            Bound::Bigint(v) => query.bind(v),
            Bound::Uuid(v) => query.bind(v),
            Bound::Json(v) => query.bind(v),
            Bound::Struct(v) => query.bind(sqlx::types::Json(v)),
            Bound::Time(v) => query.bind(v),
            Bound::Null(v) => query.bind(v),
        };
    }
    query.fetch_one(connection).await.map_err(|e| {
        let code = e.as_database_error().and_then(|d| d.code()).map(|c| c.to_string());
        (code, e.to_string())
    })
}

enum Connection {
    TokioPostgres(tokio_postgres::Client),
    Sqlx(sqlx::PgConnection),
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let url = std::env::var("DATABASE_URL").unwrap();
    let mut connection = match std::env::args().nth(1).as_deref() {
        Some("tokio-postgres") => {
            let (client, io) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(io);
            Connection::TokioPostgres(client)
        }
        Some("sqlx") => Connection::Sqlx(sqlx::Connection::connect(&url).await.unwrap()),
        _ => panic!("which driver?"),
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let fields: Vec<&str> = line.split('\t').collect();
        let (number, kinds, statement) = (fields[0], fields[1], fields[2]);
        let values: Option<Vec<Bound>> = kinds.split(',').zip(&fields[3..]).map(|(k, t)| value(k, t)).collect();
        let Some(values) = values else {
            println!("{number}\tnone");
            continue;
        };
        let result = match &mut connection {
            Connection::TokioPostgres(client) => by_tokio_postgres(client, statement, values).await,
            Connection::Sqlx(connection) => by_sqlx(connection, statement, values).await,
        };
        match result {
            Ok(id) => println!("{number}\tok\t{id}"),
            Err((code, text)) => {
                println!("{number}\t{}\t{}", code.as_deref().unwrap_or("client"), text.replace(['\n', '\t'], " "))
            }
        }
    }
}
