-- notifications.sql: the consumer's side, in a database of its own.

-- The inbox: it has accepted a message if and only if its effect is done.
CREATE SCHEMA inbox;
CREATE EXTENSION outbox_inbox SCHEMA inbox;

-- The effect.  Nothing here is unique by order: a message that was processed
-- twice would show.
CREATE TABLE notifications (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	order_id uuid NOT NULL,
	customer text NOT NULL,
	amount bigint NOT NULL,		-- in cents
	message text NOT NULL,
	received_at timestamptz NOT NULL
);

-- Bookkeeping of the demo, which wants to count; a real consumer needs nothing of it.
CREATE VIEW processed_messages AS
SELECT message_id FROM inbox.outbox_inbox WHERE consumer = 'notifications';

-- One row for each delivery, duplicates included.
CREATE TABLE deliveries (
	message_id uuid NOT NULL,
	duplicate boolean NOT NULL,
	redelivered boolean NOT NULL,	-- the broker's flag: it delivered this before
	received_at timestamptz NOT NULL
);

-- Also of the demo: what the shop's customers were told (see take_orders.py).
CREATE TABLE customers_log (
	order_id uuid PRIMARY KEY,
	told_at timestamptz NOT NULL
);
