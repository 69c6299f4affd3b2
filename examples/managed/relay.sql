-- On a small server of one's own, which has outbox: the subscriber that publishes.
-- Run by a superuser, as whom the rows are applied then.
-- Here the same table only passes rows on, and keeps none.

CREATE EXTENSION IF NOT EXISTS outbox;

CREATE TABLE outgoing (
	id uuid PRIMARY KEY,
	event_type text NOT NULL,
	payload jsonb NOT NULL,
	aggregate_type text,
	aggregate_id text,
	headers jsonb,
	route text NOT NULL,
	created_at timestamptz NOT NULL
);

-- The message is enqueued in the transaction that applies the row, and has its
-- id.  Replication applies transactions in the order of their commits, each once,
-- with an empty search_path.
CREATE FUNCTION outgoing_enqueue() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp AS $$
BEGIN
	PERFORM outbox_enqueue(NEW.event_type, NEW.payload, NEW.aggregate_type, NEW.aggregate_id,
		headers => NEW.headers, route => NEW.route, message_id => NEW.id);
	RETURN NULL;
END
$$;

-- BEFORE and NULL: the row itself is not stored.
CREATE TRIGGER outgoing_enqueue BEFORE INSERT ON outgoing
	FOR EACH ROW EXECUTE FUNCTION outgoing_enqueue();
ALTER TABLE outgoing ENABLE ALWAYS TRIGGER outgoing_enqueue;
