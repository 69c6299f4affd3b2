-- On the managed PostgreSQL, where outbox cannot be installed: a table of one's
-- own with the arguments of outbox_enqueue(), and a publication of it.
-- The service has to have wal_level = logical.

CREATE TABLE outgoing (
	id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	event_type text NOT NULL,
	payload jsonb NOT NULL,
	aggregate_type text,
	aggregate_id text,
	headers jsonb,
	route text NOT NULL DEFAULT 'default',
	created_at timestamptz NOT NULL DEFAULT now()
);

-- INSERTs only: what the relay has got may be deleted here whenever one likes.
CREATE PUBLICATION outgoing FOR TABLE outgoing WITH (publish = 'insert');
