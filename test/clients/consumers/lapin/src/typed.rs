//! What a value is, for test/clients/consumers.pl: its kind (s text, b bytes, o truth value,
//! i integer, d double, n nothing, a list, m map), its type, itself.

use lapin::types::{AMQPValue, FieldTable};
use serde_json::{json, Map, Value};
use sha2::{Digest, Sha256};

/// Bytes of a text above which only a digest is said.
const LONG: usize = 1000;

pub fn digest(octets: &[u8]) -> String {
    hex(&Sha256::digest(octets))
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

pub fn text(octets: &[u8], name: &str) -> Value {
    match std::str::from_utf8(octets) {
        Ok(_) if octets.len() > LONG => json!({"t": "s", "as": name, "v": digest(octets)}),
        Ok(said) => json!({"t": "s", "as": name, "v": said}),
        Err(_) => json!({"t": "b", "as": name, "v": hex(octets)}),
    }
}

pub fn integer(value: impl ToString, name: &str) -> Value {
    json!({"t": "i", "as": name, "v": value.to_string()})
}

pub fn table(table: &FieldTable) -> Value {
    let all: Map<String, Value> =
        table.inner().iter().map(|(name, value)| (name.to_string(), typed(value))).collect();
    json!({"t": "m", "as": "FieldTable", "v": all})
}

pub fn typed(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::Void => json!({"t": "n", "as": "Void", "v": null}),
        AMQPValue::Boolean(b) => json!({"t": "o", "as": "Boolean(bool)", "v": b}),
        AMQPValue::LongLongInt(n) => integer(n, "LongLongInt(i64)"),
        AMQPValue::LongInt(n) => integer(n, "LongInt(i32)"),
        AMQPValue::Double(d) => json!({"t": "d", "as": "Double(f64)", "v": format!("{:016x}", d.to_bits())}),
        AMQPValue::LongString(s) => text(s.as_bytes(), "LongString"),
        AMQPValue::FieldArray(a) => {
            json!({"t": "a", "as": "FieldArray", "v": a.as_slice().iter().map(typed).collect::<Vec<_>>()})
        }
        AMQPValue::FieldTable(t) => table(t),
        other => panic!("{other:?}"),
    }
}
