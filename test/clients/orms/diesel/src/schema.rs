// @generated automatically by Diesel CLI.

diesel::table! {
    orders (id) {
        id -> Int8,
        customer -> Text,
        total -> Int4,
    }
}
