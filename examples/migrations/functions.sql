-- Second part of polling.sql and the like, after the view "pending": what moves rows
-- of the old table into outbox, and back.

CREATE VIEW :migration.settings AS
	SELECT :'old_table'::regclass AS old_table, :'id' AS id_column;

-- Moves these rows, in the old order, and marks them in the old table, so that no relay
-- of before sends them. A message that is in outbox already under its id stays as it is.
CREATE FUNCTION :migration.take(ids :id_type[]) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
	:routes;
	WITH fresh AS (
		INSERT INTO :migration.moved (old_id, message_id, old_row)
		SELECT p.old_id, p.id, p.old_row FROM :migration.pending p WHERE p.old_id = ANY (ids)
		ON CONFLICT (old_id) DO NOTHING
		RETURNING old_id)
	INSERT INTO :outbox_schema.outbox (id, route, event_type, aggregate_type, aggregate_id, payload, body,
		headers, properties, routing_key, created_at, available_at)
	SELECT p.id, p.route, p.event_type, p.aggregate_type, p.aggregate_id, p.payload, p.body,
		p.headers, p.properties, p.routing_key, p.created_at, p.available_at
	FROM :migration.pending p JOIN fresh USING (old_id)
	ORDER BY p.position
	ON CONFLICT (id) DO NOTHING;
	:mark;
	SELECT cardinality(ids)::bigint;
END;

-- The next rows, locked: who moves, or sends, the same ones waits, and finds them gone.
CREATE FUNCTION :migration.next_ids(max_rows bigint) RETURNS :id_type[] LANGUAGE sql
BEGIN ATOMIC
	SELECT ARRAY(SELECT o.:"id" FROM :old_table o WHERE :ready ORDER BY :position LIMIT max_rows FOR UPDATE);
END;

-- Moves so many of the oldest rows (NULL: all); how many it was.
CREATE FUNCTION :migration.move(max_rows bigint) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
	SELECT :migration.take(:migration.next_ids(max_rows));
END;

-- Which of the oldest rows would be refused, and why: moves each, and takes that back.
CREATE FUNCTION :migration.refused(max_rows bigint DEFAULT NULL)
RETURNS TABLE (old_id text, error_code text, error text)
LANGUAGE plpgsql SET search_path = pg_catalog, :migration, pg_temp AS $$
DECLARE
	p record;
BEGIN
	FOR p IN SELECT pending.old_id FROM pending ORDER BY position LIMIT max_rows LOOP
		BEGIN
			PERFORM take(ARRAY[p.old_id]);
			RAISE EXCEPTION USING ERRCODE = 'UNDO0';
		EXCEPTION
			WHEN SQLSTATE 'UNDO0' THEN NULL;
			WHEN OTHERS THEN
				old_id := p.old_id;
				error_code := SQLSTATE;
				error := SQLERRM;
				RETURN NEXT;
		END;
	END LOOP;
END
$$;

-- Trigger of the old table: what is written there from now on is moved at once. It has
-- the rights of whoever installs it, so applications need none that they do not have.
CREATE FUNCTION :migration.forward() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, :migration, pg_temp AS $$
DECLARE
	id moved.old_id%TYPE := to_jsonb(NEW) ->> TG_ARGV[0];
BEGIN
	PERFORM take(ARRAY[id]);
	RETURN NULL;
END
$$;

CREATE FUNCTION :migration.restore(messages uuid[]) RETURNS void LANGUAGE sql
BEGIN ATOMIC
	:unmark;
	DELETE FROM :migration.moved WHERE message_id = ANY (messages);
END;

-- Back again: what is still in outbox, waiting or failed, is removed there and is to be sent
-- in the old table as before. What a worker has in its memory stays. How many it was.
CREATE FUNCTION :migration.give_back(reason text, max_rows bigint DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, :outbox_schema, :migration, pg_temp AS $$
DECLARE
	found uuid[];
	gone uuid[];
BEGIN
	found := ARRAY(SELECT o.id FROM outbox o JOIN moved m ON m.message_id = o.id
		ORDER BY o.seq LIMIT max_rows FOR UPDATE OF o SKIP LOCKED);
	PERFORM outbox_discard_messages(give_back.reason, status, ids => found)
	FROM unnest('{pending,failed}'::text[]) status;
	gone := ARRAY(SELECT f FROM unnest(found) f WHERE NOT EXISTS (SELECT FROM outbox o WHERE o.id = f));
	PERFORM restore(gone);
	RETURN cardinality(gone);
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA :migration FROM PUBLIC;
