-- Coming from pg_amqp: amqp.publish() and the others under their names, with their arguments and results,
-- which enqueue. Where the extension amqp is installed its functions are replaced in place, so that grants,
-- triggers and views stay, and it is dropped; the table amqp.broker stays, with the passwords in it, which
-- nobody needs any more. As a superuser, or as the owner of both extensions:
--
--   psql -f examples/migrations/pg_amqp.sql
--   SELECT amqp.add_exchange(1, 'orders');

\set ON_ERROR_STOP on
SELECT quote_ident(n.nspname) AS outbox_schema
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'outbox' \gset

BEGIN;
CREATE SCHEMA IF NOT EXISTS amqp;

-- Which route is meant by a broker and an exchange. outbox has one broker: who had several
-- decides here which of them it stands for.
CREATE TABLE IF NOT EXISTS amqp.exchange_route (
	broker_id integer NOT NULL,
	exchange varchar NOT NULL,
	route text NOT NULL,
	ordered boolean NOT NULL,
	PRIMARY KEY (broker_id, exchange)
);
COMMENT ON TABLE amqp.exchange_route IS
'Route of each exchange that amqp.publish() may be called with; ordered: messages with one routing key keep their order.';
GRANT USAGE ON SCHEMA amqp TO PUBLIC;
GRANT SELECT ON amqp.exchange_route TO PUBLIC;

CREATE OR REPLACE FUNCTION amqp.add_exchange(broker_id integer, exchange varchar,
	exchange_type varchar DEFAULT NULL, ordered boolean DEFAULT true) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, :outbox_schema, pg_temp AS $$
DECLARE
	new_route constant text := 'amqp/' || add_exchange.broker_id || '/' || add_exchange.exchange;
BEGIN
	INSERT INTO outbox_route (name, exchange, exchange_type)
	VALUES (new_route, add_exchange.exchange, add_exchange.exchange_type);
	INSERT INTO amqp.exchange_route VALUES (add_exchange.broker_id, add_exchange.exchange, new_route, add_exchange.ordered);
	RETURN new_route;
END
$$;
COMMENT ON FUNCTION amqp.add_exchange(integer, varchar, varchar, boolean) IS
'Makes a route for an exchange, to be published to by amqp.publish(), and returns its name. exchange_type: the exchange is declared durable at first use; NULL: it has to exist. ordered: messages with one routing key keep their order, and one of them is in flight at a time. For operators: needs INSERT on outbox_route and amqp.exchange_route.';
REVOKE EXECUTE ON FUNCTION amqp.add_exchange(integer, varchar, varchar, boolean) FROM PUBLIC;

CREATE OR REPLACE FUNCTION amqp.publish(broker_id integer, exchange varchar, routing_key varchar, message varchar,
	delivery_mode integer DEFAULT NULL, content_type varchar DEFAULT NULL,
	reply_to varchar DEFAULT NULL, correlation_id varchar DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, :outbox_schema, pg_temp AS $$
DECLARE
	-- as pg_amqp had it for NULL
	target constant varchar := coalesce(publish.exchange, 'amq.direct');
	key constant varchar := coalesce(publish.routing_key, '');
	way amqp.exchange_route;
BEGIN
	IF publish.broker_id IS NULL THEN
		RETURN false;
	END IF;
	SELECT r.* INTO way FROM amqp.exchange_route r WHERE r.broker_id = publish.broker_id AND r.exchange = target;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_object',
			MESSAGE = format('no route for exchange "%s" of broker %s', target, publish.broker_id),
			HINT = format('An operator adds it: SELECT amqp.add_exchange(%s, %L);', publish.broker_id, target);
	END IF;
	IF publish.delivery_mode NOT IN (1, 2) THEN
		RAISE WARNING 'Ignored delivery_mode %, value should be 1 or 2', publish.delivery_mode;
	END IF;
	PERFORM outbox_enqueue_bytes(coalesce(nullif(key, ''), nullif(target, ''), 'amqp'), convert_to(coalesce(publish.message, ''), 'UTF8'),
		aggregate_type => CASE WHEN way.ordered THEN target END,
		aggregate_id => CASE WHEN way.ordered THEN coalesce(nullif(key, ''), '-') END,
		route => way.route, routing_key => key, content_type => publish.content_type,
		properties => jsonb_strip_nulls(jsonb_build_object('reply_to', publish.reply_to, 'correlation_id', publish.correlation_id)));
	RETURN true;
END
$$;
COMMENT ON FUNCTION amqp.publish(integer, varchar, varchar, varchar, integer, varchar, varchar, varchar) IS
'Enqueues a message for outbox, with the arguments of pg_amqp: it is published if the transaction commits, until the broker confirms it, always persistent. True; NULL as broker_id: false. 42704: the exchange has no route, see amqp.add_exchange(). Needs what outbox_enqueue_bytes() needs.';

CREATE OR REPLACE FUNCTION amqp.autonomous_publish(broker_id integer, exchange varchar, routing_key varchar, message varchar,
	delivery_mode integer DEFAULT NULL, content_type varchar DEFAULT NULL,
	reply_to varchar DEFAULT NULL, correlation_id varchar DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
		MESSAGE = 'a message cannot be published whether or not its transaction commits',
		HINT = 'Use amqp.publish(), or call that in a session of its own (dblink) where a rolled back transaction has to be told.';
END
$$;
COMMENT ON FUNCTION amqp.autonomous_publish(integer, varchar, varchar, varchar, integer, varchar, varchar, varchar) IS
'Not supported (0A000): an outbox publishes what has committed.';

CREATE OR REPLACE FUNCTION amqp.exchange_declare(broker_id integer, exchange varchar, exchange_type varchar,
	passive boolean, durable boolean, auto_delete boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF EXISTS (SELECT FROM amqp.exchange_route r
			WHERE r.broker_id = exchange_declare.broker_id AND r.exchange = exchange_declare.exchange) THEN
		RETURN true;
	END IF;
	IF exchange_declare.broker_id IS NULL OR exchange_declare.passive THEN
		RETURN false;
	END IF;
	IF exchange_declare.durable IS NOT TRUE OR exchange_declare.auto_delete THEN
		RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
			MESSAGE = format('exchange "%s" would not outlive the broker', exchange_declare.exchange),
			HINT = 'outbox declares durable exchanges only; declare others beside it, and call amqp.add_exchange() without a type.';
	END IF;
	PERFORM amqp.add_exchange(exchange_declare.broker_id, exchange_declare.exchange, exchange_declare.exchange_type);
	RETURN true;
END
$$;
COMMENT ON FUNCTION amqp.exchange_declare(integer, varchar, varchar, boolean, boolean, boolean) IS
'True if the exchange has a route; else makes one by amqp.add_exchange(), if the caller may, and outbox declares the exchange at first use. passive: looks only.';

CREATE OR REPLACE FUNCTION amqp.disconnect(broker_id integer) RETURNS void
LANGUAGE sql VOLATILE STRICT
BEGIN ATOMIC
	SELECT;
END;
COMMENT ON FUNCTION amqp.disconnect(integer) IS 'Does nothing: no session has a connection of its own.';

-- What stays is taken out of the extension before it goes.
SELECT format('ALTER EXTENSION amqp DROP %s', CASE d.classid WHEN 'pg_proc'::regclass THEN 'FUNCTION ' || d.objid::regprocedure
		ELSE CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END || ' ' || d.objid::regclass END)
FROM pg_extension e
	JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
	LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
WHERE e.extname = 'amqp' AND (d.classid = 'pg_proc'::regclass OR c.relkind IN ('r', 'S')) \gexec
DROP EXTENSION IF EXISTS amqp;
COMMIT;
