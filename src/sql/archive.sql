--
-- Archive of published messages
--

CREATE TABLE @extschema@.outbox_archive (
	@columns archive@,
	published_at timestamptz NOT NULL
) PARTITION BY RANGE (published_at);

/*
 * What comes from the table outbox is compressed already if it can be, and stays
 * so; to try it again with a body that cannot costs six times what all else of
 * settling it does (measured: 13 ms per MB).
 */
ALTER TABLE @extschema@.outbox_archive
	@columns storage@;

/* Versions 7 grow with time, so a block range index finds an id for nothing. */
CREATE INDEX outbox_archive_id ON @extschema@.outbox_archive
	USING brin (id) WITH (pages_per_range = 16);

/* Only for days whose partition could not be made; normally empty. */
CREATE TABLE outbox_internal.outbox_archive_default PARTITION OF @extschema@.outbox_archive DEFAULT;
/* Rows are deleted from it, which a publication of all tables refuses otherwise. */
ALTER TABLE outbox_internal.outbox_archive_default REPLICA IDENTITY FULL;
/* A whole day may be in it, and is looked for each minute. */
CREATE INDEX outbox_archive_default_published_at ON outbox_internal.outbox_archive_default (published_at);

CREATE VIEW outbox_internal.outbox_archive AS
	SELECT a.ctid, a.tableoid, a.* FROM @extschema@.outbox_archive a;

/* By the names of the tables, without a lock on them. */
CREATE VIEW outbox_internal.outbox_archive_day AS
	SELECT pg_catalog.to_date(pg_catalog."right"(c.relname, 8), 'YYYYMMDD') AS day,
		(pg_catalog.clock_timestamp() AT TIME ZONE 'UTC')::date AS today
	FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
	WHERE i.inhparent = '@extschema@.outbox_archive'::pg_catalog.regclass
		AND c.relname ~ '^outbox_archive_p[0-9]{8}$';

COMMENT ON TABLE @extschema@.outbox_archive IS
'Published messages, append-only, one partition a day (UTC) of published_at; the relay makes partitions ahead and drops them after outbox.retention.';
COMMENT ON TABLE outbox_internal.outbox_archive_default IS
'Published messages of days that had no partition of their own.';

/*
 * Partitions with rows in them, as outbox_archive_maintain() has made them; an
 * administrator's own are his.  A day is one table, or, when routes have a retention
 * of their own, divided by route: a partition for each retention there is, named
 * with its seconds, and one for the rest.
 */
CREATE FUNCTION outbox_internal.outbox_archive_partitions(
	retention interval, OUT partition oid, OUT name text, OUT of_day oid,
	OUT day date, OUT own_retention interval, OUT alone boolean, OUT due boolean)
RETURNS SETOF record
LANGUAGE sql STABLE
BEGIN ATOMIC
	SELECT p.partition, p.name, p.of_day, p.day, p.own_retention, p.alone,
		(p.day + 1)::timestamp AT TIME ZONE 'UTC'
			<= clock_timestamp() - coalesce(p.own_retention, retention)
		/* The rest of a day stays, empty, for as long as another part of it. */
		AND (p.alone OR p.own_retention IS NOT NULL OR pg_relation_size(p.partition) > 0)
	FROM (SELECT coalesce(s.oid, d.oid) AS partition, coalesce(s.relname, d.relname)::text AS name,
			CASE WHEN s.oid IS NOT NULL THEN d.oid END AS of_day,
			to_date("right"(d.relname, 8), 'YYYYMMDD') AS day,
			substring(s.relname FROM '_([0-9]+)_[0-9a-f]{8}$')::bigint * interval '1 second' AS own_retention,
			count(*) OVER (PARTITION BY d.oid) = 1 AS alone,
			coalesce(s.relnamespace, d.relnamespace) = 'outbox_internal'::regnamespace AS ours
		FROM pg_extension e
			JOIN pg_depend x ON x.refclassid = 'pg_extension'::regclass AND x.refobjid = e.oid
				AND x.classid = 'pg_class'::regclass AND x.deptype = 'e'
			JOIN pg_inherits i ON i.inhrelid = x.objid
			JOIN pg_class d ON d.oid = i.inhrelid
			LEFT JOIN (pg_inherits j JOIN pg_class s ON s.oid = j.inhrelid)
				ON j.inhparent = d.oid
		WHERE e.extname = 'outbox' AND d.relname ~ '^outbox_archive_p[0-9]{8}$'
			AND d.relnamespace = 'outbox_internal'::regnamespace
			AND i.inhparent = '@extschema@.outbox_archive'::regclass) p
	WHERE p.ours;
END;

COMMENT ON FUNCTION outbox_internal.outbox_archive_partitions(interval) IS
'Partitions of outbox_archive that the relay has made: its oid and name, the table of its day if that is divided by route, the day (UTC), the retention of its routes if it is not the given one (outbox.retention), whether it is the only one of its day, and whether it is due to be dropped.';

/* How a day that is made now is divided; no rows: not at all. */
CREATE FUNCTION outbox_internal.outbox_archive_division(
	OUT suffix text, OUT bound text, OUT routes text)
RETURNS SETOF record
LANGUAGE sql STABLE
BEGIN ATOMIC
	WITH own AS (
		SELECT ceil(extract(epoch FROM r.retention))::bigint AS seconds,
			string_agg(format('%L', r.name), ', ' ORDER BY r.name COLLATE "C") AS names
		FROM @extschema@.outbox_route r
		WHERE r.retention > interval '0'
		GROUP BY 1)
	SELECT format('_%s_%s', o.seconds,
			lpad(to_hex(hashtextextended(o.names, 0) & 4294967295), 8, '0')),
		format('FOR VALUES IN (%s)', o.names),
		format('of routes kept for %s', justify_hours(o.seconds * interval '1 second'))
	FROM own o
	UNION ALL
	SELECT '_rest', 'DEFAULT', 'of all other routes'
	WHERE EXISTS (SELECT FROM own);
END;

COMMENT ON FUNCTION outbox_internal.outbox_archive_division() IS
'How a partition of outbox_archive is divided that is made now: ends of names, bounds and routes of its partitions, one for each retention that routes have, and one for the rest. No rows: it is not divided.';

/*
 * A table like the archive, and a member of the extension, so that pg_dump takes
 * it for a part of the extension.  LIKE the default partition, whose name is ours,
 * but for its index; ATTACH PARTITION makes those of the archive.  Neither knows
 * anything of tablespaces: the caller sets default_tablespace.
 */
CREATE FUNCTION outbox_internal.outbox_archive_create(
	name text, divided boolean, about text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	EXECUTE format('CREATE TABLE outbox_internal.%I (LIKE outbox_internal.outbox_archive_default INCLUDING ALL EXCLUDING INDEXES) %s',
		name, CASE WHEN divided THEN 'PARTITION BY LIST (route)' END);
	/* As the default partition: outbox_erase() deletes. */
	EXECUTE format('ALTER TABLE outbox_internal.%I REPLICA IDENTITY FULL', name);
	PERFORM outbox_internal.outbox_revoke_all('pg_class'::regclass,
		format('outbox_internal.%I', name)::regclass::oid);
	EXECUTE format('COMMENT ON TABLE outbox_internal.%I IS %L', name, about);
	EXECUTE format('ALTER EXTENSION outbox ADD TABLE outbox_internal.%I', name);
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_archive_create(text, boolean, text) IS
'Makes a table like outbox_archive, a member of the extension with that comment, to be attached as partition; divided: partitioned by route itself.';

/*
 * The caller has locked it, and what it is a part of.  The commit of a drop waits
 * until the file system has taken all files back, so a large one only leaves the
 * archive here, and is cut down after that; see outbox_archive_shrink().  What depends on
 * it is an error each time, before anything is lost.
 */
CREATE FUNCTION outbox_internal.outbox_archive_remove(partition oid, parent oid)
RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	large constant boolean := pg_total_relation_size(partition) > 16777216;
BEGIN
	BEGIN
		EXECUTE format('ALTER EXTENSION outbox DROP TABLE %s', partition::regclass);
		EXECUTE format('DROP TABLE %s', partition::regclass);
		IF large THEN
			RAISE SQLSTATE 'OX001';
		END IF;
		RETURN 'dropped';
	EXCEPTION WHEN SQLSTATE 'OX001' THEN
		NULL;
	END;
	IF parent IS NULL THEN
		PERFORM outbox_internal.outbox_archive_shrink(partition::regclass,
			16777216 / current_setting('block_size')::integer);
		RETURN 'shrunk';
	END IF;
	PERFORM outbox_internal.outbox_alter_table(parent,
		format('DETACH PARTITION %s', partition::regclass));
	/* A vacuum would stumble over what is cut off. */
	EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)',
		partition::regclass);
	EXECUTE format('ALTER TABLE %s RENAME TO %I', partition::regclass, 'outbox_archive_dropping_' || partition);
	RETURN 'detached';
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_archive_remove(oid, oid) IS
'Drops a partition of outbox_archive, or, when it has more than 16 MB, detaches it from its parent and renames it; with parent NULL cuts 16 MB off one that was detached. An error if anything depends on it (2BP01). Returns which.';

CREATE FUNCTION outbox_internal.outbox_archive_shrink(partition regclass, blocks integer)
RETURNS boolean
AS 'MODULE_PATHNAME', 'outbox_archive_shrink'
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION outbox_internal.outbox_archive_shrink(regclass, integer) IS
'Cuts so many blocks off a detached partition that is about to be dropped (outbox_archive_dropping_...); any other table, and one that this transaction has detached or renamed, is an error (55000), one that somebody has locked is 55P03, and blocks below 1 are 22023. No rollback brings them back. Returns whether nothing is left.';

CREATE FUNCTION outbox_internal.outbox_archive_make_day(day date)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	part text := 'outbox_archive_p' || to_char(day, 'YYYYMMDD');
	about text := 'Messages published on ' || to_char(day, 'YYYY-MM-DD') || ' (UTC)';
	suffixes text[];
	bounds text[];
	routes text[];
	piece record;
BEGIN
	/* Once: somebody may give a route another retention meanwhile. */
	SELECT array_agg(d.suffix), array_agg(d.bound), array_agg(d.routes)
	INTO suffixes, bounds, routes
	FROM outbox_internal.outbox_archive_division() d;
	PERFORM outbox_internal.outbox_archive_create(part, suffixes IS NOT NULL, about || '.');
	FOR piece IN SELECT * FROM unnest(suffixes, bounds, routes) AS p(suffix, bound, routes) LOOP
		PERFORM outbox_internal.outbox_archive_create(part || piece.suffix, false,
			about || ' ' || piece.routes || '.');
		EXECUTE format('ALTER TABLE outbox_internal.%I ATTACH PARTITION outbox_internal.%I %s',
			part, part || piece.suffix, piece.bound);
	END LOOP;
	/* Made apart, because CREATE TABLE ... PARTITION OF locks readers out. */
	PERFORM outbox_internal.outbox_alter_table(outbox_internal.outbox_relation('outbox_archive'),
		format('ATTACH PARTITION outbox_internal.%I FOR VALUES FROM (%L) TO (%L)', part,
			to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00', to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00'));
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_archive_make_day(date) IS
'Makes the partition of outbox_archive for a day (UTC).';

/* Removes a partition that is due, and what becomes empty with it. */
CREATE FUNCTION outbox_internal.outbox_archive_drop_due(
	partition oid, name text, of_day oid, alone boolean, own_retention interval)
RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	archive constant oid := outbox_internal.outbox_relation('outbox_archive');
	done text;
BEGIN
	IF alone THEN
		/* DROP TABLE of a partition locks these three. */
		PERFORM outbox_internal.outbox_lock_table(archive, 'AccessExclusiveLock', false);
		LOCK TABLE ONLY outbox_internal.outbox_archive_default IN ACCESS EXCLUSIVE MODE NOWAIT;
		EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT',
			coalesce(of_day, partition)::regclass);
		IF of_day IS NULL THEN
			RETURN outbox_internal.outbox_archive_remove(partition, archive) || ' ' || name;
		END IF;
		done := outbox_internal.outbox_archive_remove(partition, of_day);
		name := (SELECT c.relname FROM pg_class c WHERE c.oid = of_day);
		EXECUTE format('ALTER EXTENSION outbox DROP TABLE %s', of_day::regclass);
		EXECUTE format('DROP TABLE %s', of_day::regclass);
		RETURN done || ' ' || name;
	END IF;
	EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', of_day::regclass);
	done := outbox_internal.outbox_archive_remove(partition, of_day);
	/*
	 * A clock that is set back must find a place for what it publishes, so as
	 * long as there is the day there is one for the rest.
	 */
	IF own_retention IS NULL THEN
		PERFORM outbox_internal.outbox_archive_create(name, false, 'Messages of other routes; empty.');
		EXECUTE format('ALTER TABLE %s ATTACH PARTITION outbox_internal.%I DEFAULT', of_day::regclass, name);
	END IF;
	RETURN done || ' ' || name;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_archive_drop_due(oid, text, oid, boolean, interval) IS
'Drops, or detaches, a partition that outbox_archive_partitions() says is due. Waits for nobody''s lock: an error (55P03).';

CREATE FUNCTION outbox_internal.outbox_archive_maintain(retention interval)
RETURNS text
LANGUAGE plpgsql STRICT
SET search_path = pg_catalog, pg_temp
/*
 * It runs in the process that publishes, and whoever waits for such locks holds
 * up all who come after: the tables are locked without waiting, and what else
 * these commands lock (the extension, say) is waited for this long at most.
 */
SET lock_timeout = '10ms'
/* The worker's session has it off, for statements of src/store only. */
SET enable_sort = on SET default_tablespace = ''
AS $$
DECLARE
	archive constant oid := outbox_internal.outbox_relation('outbox_archive');
	today constant date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
	yesterday constant timestamptz := clock_timestamp() - interval '1 day';
	longest constant interval := greatest(retention,
		(SELECT max(r.retention) FROM outbox_internal.outbox_route r));
	shortest constant interval := least(retention,
		(SELECT min(r.retention) FROM outbox_internal.outbox_route r WHERE r.retention > interval '0'));
	wanted constant text[] := ARRAY(SELECT v.suffix FROM outbox_internal.outbox_archive_division() v
		ORDER BY v.suffix COLLATE "C");
	pieces text[];
	part text;
	day date;
	old record;
	there boolean;
	used boolean;
	removed integer;
	dependents text;
	kept text;				/* why a table cannot be dropped */
BEGIN
	PERFORM set_config('default_tablespace', t.spcname, true)
	FROM pg_class c
		JOIN pg_tablespace t ON t.oid = c.reltablespace
		JOIN pg_database d ON d.datname = current_database() AND d.dattablespace <> t.oid
	WHERE c.oid = archive;

	/* Today's partition and those of the next two days, unless kept nowhere. */
	FOR i IN 0..2 LOOP
		EXIT WHEN longest <= interval '0';
		day := today + i;
		part := 'outbox_archive_p' || to_char(day, 'YYYYMMDD');
		there := to_regclass('outbox_internal.' || part) IS NOT NULL;
		IF there THEN
			/* A day that has begun stays as it is, and one that is not ours. */
			CONTINUE WHEN i = 0;
			pieces := (SELECT coalesce(array_agg(substr(p.name, length(part) + 1)
					ORDER BY p.name COLLATE "C") FILTER (WHERE p.of_day IS NOT NULL), '{}')
				FROM outbox_internal.outbox_archive_partitions(retention) p
				WHERE p.day = today + i
				HAVING count(*) > 0);
			CONTINUE WHEN pieces IS NULL OR pieces = wanted;
		END IF;
		/* Rows of that day in the default partition would refuse another. */
		CONTINUE WHEN EXISTS (
			SELECT FROM outbox_internal.outbox_archive_default
			WHERE published_at >= day::timestamp AT TIME ZONE 'UTC'
				AND published_at < (day + 1)::timestamp AT TIME ZONE 'UTC');
		/* What ATTACH PARTITION will lock. */
		PERFORM outbox_internal.outbox_lock_table(archive, 'ShareUpdateExclusiveLock', false);
		LOCK TABLE ONLY outbox_internal.outbox_archive_default IN ACCESS EXCLUSIVE MODE NOWAIT;
		/* Somebody else may have made it in between. */
		CONTINUE WHEN NOT there AND to_regclass('outbox_internal.' || part) IS NOT NULL;
		BEGIN
			IF there THEN
				/* Routes have got another retention since it was made. */
				PERFORM outbox_internal.outbox_lock_table(archive, 'AccessExclusiveLock', false);
				EXECUTE format('LOCK TABLE outbox_internal.%I IN ACCESS EXCLUSIVE MODE NOWAIT', part);
				EXECUTE format('SELECT EXISTS (SELECT FROM outbox_internal.%I)', part) INTO used;
				CONTINUE WHEN used;
				FOR old IN
					SELECT p.name FROM outbox_internal.outbox_archive_partitions(retention) p
					WHERE p.day = today + i AND p.of_day IS NOT NULL
					UNION ALL
					SELECT part
					/* it comes after what it consists of */
					ORDER BY 1 DESC
				LOOP
					EXECUTE format('ALTER EXTENSION outbox DROP TABLE outbox_internal.%I', old.name);
					EXECUTE format('DROP TABLE outbox_internal.%I', old.name);
				END LOOP;
			END IF;
			PERFORM outbox_internal.outbox_archive_make_day(day);
			RETURN CASE WHEN there THEN 'remade ' ELSE 'created ' END || part;
		/* The second: an administrator's partition has that day. */
		EXCEPTION WHEN dependent_objects_still_exist OR invalid_object_definition THEN
			GET STACKED DIAGNOSTICS dependents = PG_EXCEPTION_DETAIL;
			kept := SQLERRM || ': ' || dependents;
		END;
	END LOOP;

	/* The oldest partition whose whole day is out of retention, and on which nothing depends. */
	IF EXISTS (SELECT FROM outbox_internal.outbox_archive_partitions(retention) p WHERE p.due) THEN
		/* One drops at a time, and what somebody else has dropped just now is seen. */
		PERFORM outbox_internal.outbox_lock_table(archive, 'ShareUpdateExclusiveLock', false);
		FOR old IN
			SELECT * FROM outbox_internal.outbox_archive_partitions(retention) p
			WHERE p.due
			ORDER BY p.name COLLATE "C"
		LOOP
			BEGIN
				RETURN outbox_internal.outbox_archive_drop_due(old.partition, old.name::text, old.of_day,
					old.alone, old.own_retention);
			EXCEPTION WHEN dependent_objects_still_exist THEN
				GET STACKED DIAGNOSTICS dependents = PG_EXCEPTION_DETAIL;
				kept := coalesce(kept, SQLERRM || ': ' || dependents);
			END;
		END LOOP;
	END IF;

	/* What has left the archive. */
	FOR old IN
		SELECT c.oid AS partition, c.relname AS name
		FROM pg_class c
			JOIN pg_depend x ON x.classid = 'pg_class'::regclass AND x.objid = c.oid AND x.deptype = 'e'
			JOIN pg_extension e ON x.refclassid = 'pg_extension'::regclass AND x.refobjid = e.oid
		WHERE c.relname ~ '^outbox_archive_dropping_[0-9]+$' AND NOT c.relispartition
			AND c.relnamespace = 'outbox_internal'::regnamespace AND e.extname = 'outbox'
	LOOP
		BEGIN
			EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', old.partition::regclass);
			RETURN outbox_internal.outbox_archive_remove(old.partition, NULL::oid) || ' ' || old.name;
		EXCEPTION WHEN dependent_objects_still_exist THEN
			GET STACKED DIAGNOSTICS dependents = PG_EXCEPTION_DETAIL;
			kept := coalesce(kept, SQLERRM || ': ' || dependents);
		END;
	END LOOP;

	/* Few at a time, as all of a day may be there. */
	DELETE FROM outbox_internal.outbox_archive_default
	WHERE ctid = ANY (ARRAY(
		SELECT d.ctid FROM outbox_internal.outbox_archive_default d
			LEFT JOIN outbox_internal.outbox_route r ON r.name = d.route AND r.retention > interval '0'
		WHERE d.published_at < yesterday - shortest
			AND d.published_at < yesterday - coalesce(r.retention, outbox_archive_maintain.retention)
		ORDER BY d.published_at
		LIMIT 1000));
	GET DIAGNOSTICS removed = ROW_COUNT;
	/* It would undo the rest: once nothing else is left to do. */
	IF kept IS NOT NULL AND removed = 0 THEN
		RAISE EXCEPTION '%', outbox_internal.outbox_printable(split_part(kept, E'\n', 1)::text)
			USING ERRCODE = 'dependent_objects_still_exist';
	END IF;
	RETURN CASE WHEN removed = 1000 OR kept IS NOT NULL THEN 'deleted from outbox_archive_default' END;
END
$$;

COMMENT ON FUNCTION outbox_internal.outbox_archive_maintain(interval) IS
'Makes, divides again, drops, detaches or shortens one partition of outbox_archive, as the retention (that of routes without one of their own) asks for, and says which; NULL when there is nothing to do. Waits for nobody''s lock: an error (55P03) says that somebody reads the archive. The relay calls it; the owner of the extension may.';

