-- shop.sql: the shop's side.  Run it as a superuser in the shop's database.
--
-- An order and its event are written in one transaction: either both exist
-- or neither does.  The relay inside PostgreSQL does the rest.

CREATE EXTENSION IF NOT EXISTS outbox;

CREATE TABLE orders (
	id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	customer text NOT NULL,
	amount bigint NOT NULL CHECK (amount > 0),	-- in cents
	status text NOT NULL DEFAULT 'new'
		CHECK (status IN ('new', 'paid', 'shipped', 'cancelled')),
	created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The caller may choose the id.  Who loses the connection during COMMIT cannot
-- know whether it happened, and calls again with the same id: there is still
-- one order and one event.
CREATE FUNCTION create_order(customer text, amount bigint,
	order_id uuid DEFAULT gen_random_uuid(), route text DEFAULT 'default')
RETURNS uuid LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO orders (id, customer, amount)
	VALUES (order_id, customer, amount) ON CONFLICT (id) DO NOTHING;
	IF FOUND THEN
		PERFORM outbox_enqueue('order.created',
			jsonb_build_object('order_id', order_id, 'customer', customer,
				'amount', amount),
			aggregate_type => 'order', aggregate_id => order_id::text,
			route => route);
	END IF;
	RETURN order_id;
END
$$;

-- What the order service shows in /readyz, without the right to see more.
CREATE FUNCTION relay_state(OUT state text, OUT backlog bigint,
	OUT oldest_pending_seconds double precision, OUT failed bigint, OUT worst_problem text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
	SELECT state, backlog, extract(epoch FROM oldest_pending_age), failed, worst_problem
	FROM outbox_status
$$;
REVOKE EXECUTE ON FUNCTION relay_state FROM PUBLIC;

-- All that the application's role needs.  It cannot read messages, and knows
-- neither the broker's address nor its password.
CREATE ROLE shop LOGIN;
GRANT SELECT, INSERT ON orders TO shop;
GRANT EXECUTE ON FUNCTION outbox_enqueue, relay_state TO shop;
