CREATE FUNCTION @extschema@.outbox_capture()
RETURNS trigger
AS 'MODULE_PATHNAME', 'outbox_capture'
LANGUAGE C;

COMMENT ON FUNCTION @extschema@.outbox_capture() IS
'Makes messages of the changes of a table: CREATE TRIGGER ... AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture(''event=order''). Also FOR EACH STATEMENT with transition tables, and for TRUNCATE. Arguments are strings of the form name=value: event (prefix of inserted, updated, deleted, truncated) or event_type; aggregate_type; key (columns; default: the primary key; empty: no order); columns or except (of the payload); payload (row, changed, both or diff); unchanged (skip or emit: an UPDATE that changes nothing of it); unpublishable (refuse or omit: what cannot be published; by default a DELETE omits it); route; routing_key; headers (of op, schema, table, txid). It enqueues with the rights of the table''s owner, who needs EXECUTE on it. Errors: 22023 bad arguments, 42703 a column that is not there, 39P01 fired otherwise, 42501 the owner may not, those of outbox_enqueue().';

