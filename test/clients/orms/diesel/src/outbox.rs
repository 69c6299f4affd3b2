//! What print-schema leaves out, as it is a view.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use serde_json::Value;
use uuid::Uuid;

// [model]
diesel::table! {
    outbox_new (id) {
        id -> Uuid,
        route -> Text,
        event_type -> Text,
        aggregate_type -> Nullable<Text>,
        aggregate_id -> Nullable<Text>,
        payload -> Nullable<Jsonb>,
        body -> Nullable<Bytea>,
        headers -> Nullable<Jsonb>,
        properties -> Nullable<Jsonb>,
        routing_key -> Nullable<Text>,
        created_at -> Timestamptz,
        available_at -> Nullable<Timestamptz>,
    }
}

/// Not Clone, and inserted by value: what has been enqueued is moved, and cannot be enqueued again.
#[derive(Insertable, Default)]
#[diesel(table_name = outbox_new)]
pub struct Message {
    pub id: Option<Uuid>,
    pub route: Option<String>,
    pub event_type: String,
    pub aggregate_type: Option<String>,
    pub aggregate_id: Option<String>,
    pub payload: Option<Value>,
    pub body: Option<Vec<u8>>,
    pub headers: Option<Value>,
    pub properties: Option<Value>,
    pub routing_key: Option<String>,
    pub created_at: Option<DateTime<Utc>>,
    pub available_at: Option<DateTime<Utc>>,
}
// [/model]

/// What not to make: a model that can be saved.
#[derive(Insertable, Identifiable, AsChangeset)]
#[diesel(table_name = outbox_new)]
pub struct StoredMessage {
    pub id: Uuid,
    pub event_type: String,
    pub payload: Option<Value>,
}

diesel::define_sql_function! {
    fn outbox_enqueue(event_type: diesel::sql_types::Text, payload: diesel::sql_types::Jsonb,
        aggregate_type: diesel::sql_types::Text, aggregate_id: diesel::sql_types::Text) -> diesel::sql_types::Uuid;
}
