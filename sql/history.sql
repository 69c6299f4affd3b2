-- What operators do is remembered: who paused what and why, and outbox_history.
SET client_min_messages = error;
SET search_path = public, outbox_regress;
\set SHOW_CONTEXT never
DELETE FROM outbox_history;
INSERT INTO outbox_route (name) VALUES ('q');
CREATE ROLE regress_outbox_operator;
CREATE ROLE regress_outbox_shift IN ROLE regress_outbox_operator;
GRANT EXECUTE ON FUNCTION outbox_pause, outbox_resume TO regress_outbox_operator;
CREATE VIEW pauses AS
	SELECT 'database' AS what, paused, paused_by, clock_timestamp() - paused_at < '1 minute' AS now, pause_reason
	FROM outbox_control
	UNION ALL SELECT name, paused, paused_by, clock_timestamp() - paused_at < '1 minute', pause_reason FROM outbox_route;
CREATE FUNCTION remembered() RETURNS TABLE (role name, login boolean, action text, subject text,
	messages bigint, reason text, detail jsonb)
LANGUAGE sql AS $$
	WITH taken AS (DELETE FROM outbox_history h RETURNING h.*)
	SELECT t.role, t.login = session_user, t.action, t.subject, t.messages, t.reason, t.detail
	FROM taken t ORDER BY t.id
$$;

-- Who is the session's role: by SET ROLE, or as it logged in
BEGIN;
SET LOCAL ROLE regress_outbox_operator;
SELECT outbox_pause('q', 'queue is full');
SELECT outbox_pause(reason => 'maintenance');
RESET ROLE;
SELECT * FROM pauses WHERE paused;
SELECT * FROM remembered();
-- again: the newer one counts
SELECT outbox_pause('q');
SELECT paused_by = session_user AS own, now, pause_reason FROM pauses WHERE what = 'q';
SELECT outbox_resume('q', 'it is over');
SELECT outbox_resume();
SELECT * FROM pauses WHERE paused OR paused_by IS NOT NULL OR pause_reason IS NOT NULL;
SELECT role = session_user AS own, login, action, subject, reason FROM remembered();
ROLLBACK;
SET SESSION AUTHORIZATION regress_outbox_shift;
SELECT outbox_pause('q', 'by a member');
SET ROLE regress_outbox_operator;
SELECT outbox_resume('q');
RESET SESSION AUTHORIZATION;
SELECT role, login, action FROM outbox_history ORDER BY id;
SELECT role, action FROM remembered();
-- a function between them does not hide it
CREATE FUNCTION stop_all() RETURNS void LANGUAGE sql SECURITY DEFINER AS 'SELECT outbox_pause(''q'')'
	SET search_path = public, pg_temp;
SET ROLE regress_outbox_shift;
SELECT stop_all();
RESET ROLE;
SELECT paused_by FROM outbox_route WHERE name = 'q';
SELECT role, action FROM remembered();
SELECT outbox_resume('q');
DROP FUNCTION stop_all();

-- What failed, or was rolled back, is not remembered
DELETE FROM outbox_history;
SELECT outbox_pause('nowhere', 'why');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_resume('nowhere');
BEGIN;
SELECT outbox_pause('q');
ROLLBACK;
SELECT * FROM remembered();

-- By hand: what belongs to a pause comes and goes with it
UPDATE outbox_route SET paused = true WHERE name = 'q';
SELECT paused, paused_by = session_user AS own, now, pause_reason FROM pauses WHERE what = 'q';
UPDATE outbox_route SET paused_by = 'somebody', paused_at = '2026-01-01', pause_reason = 'mine' WHERE name = 'q';
UPDATE outbox_route SET max_attempts = 9 WHERE name = 'q';
SELECT * FROM pauses WHERE what = 'q';
UPDATE outbox_route SET paused = false WHERE name = 'q';
SELECT * FROM pauses WHERE what = 'q';
UPDATE outbox_route SET pause_reason = 'none', paused_by = 'x', paused_at = now() WHERE name = 'q';
SELECT * FROM pauses WHERE what = 'q';
INSERT INTO outbox_route (name, paused) VALUES ('r', true);
SELECT paused, paused_by = session_user AS own, now FROM pauses WHERE what = 'r';
-- a role that may change the table needs no right on functions
GRANT SELECT (name), UPDATE (paused), INSERT (name, paused) ON outbox_route TO regress_outbox_operator;
GRANT UPDATE (paused) ON outbox_control TO regress_outbox_operator;
-- (a new session has no plan of another role's)
\c -
SET search_path = public, outbox_regress;
BEGIN;
UPDATE outbox_control SET paused = false;
SET LOCAL ROLE regress_outbox_operator;
UPDATE outbox_route SET paused = true WHERE name = 'q';
INSERT INTO outbox_route (name, paused) VALUES ('s', true);
UPDATE outbox_control SET paused = true;
RESET ROLE;
SELECT what, paused, paused_by, now FROM pauses WHERE what <> 'r' AND paused ORDER BY what;
ROLLBACK;
DELETE FROM outbox_route WHERE name IN ('q', 'r');

-- A restore brings them as they were, and a pause from before it keeps its own
BEGIN;
UPDATE outbox_control SET paused = true, paused_by = 'before', paused_at = '2026-01-01', pause_reason = 'test';
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
COPY public.outbox_control (singleton, paused, system_identifier, database_oid, paused_by, paused_at, pause_reason) FROM stdin;
t	t	1	2	dumped	2025-01-01 00:00:00+00	other
\.
SELECT paused, paused_by, paused_at = '2026-01-01', pause_reason FROM public.outbox_control;
ROLLBACK;
BEGIN;
UPDATE outbox_control SET paused = false;
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
COPY public.outbox_control (singleton, paused, system_identifier, database_oid, paused_by, paused_at, pause_reason) FROM stdin;
t	t	1	2	dumped	2025-01-01 00:00:00+00	other
\.
SELECT paused, paused_by, paused_at = '2025-01-01 00:00:00+00', pause_reason FROM public.outbox_control;
COPY public.outbox_route (name, exchange, exchange_type, paused, paused_by, paused_at, pause_reason, max_pending) FROM stdin;
default	outbox	topic	t	dumped	2025-01-01 00:00:00+00	other	7
old	outbox	topic	t	\N	\N	\N	\N
\.
SELECT name, paused, paused_by, paused_at = '2025-01-01 00:00:00+00', pause_reason, max_pending FROM public.outbox_route ORDER BY name;
ROLLBACK;
-- one that was not paused does not end a pause
BEGIN;
UPDATE outbox_control SET paused = true, paused_by = 'before', paused_at = '2026-01-01';
SET LOCAL check_function_bodies = off;
SELECT set_config('search_path', '', true);
COPY public.outbox_control (singleton, paused, system_identifier, database_oid) FROM stdin;
t	f	1	2
\.
SELECT paused, paused_by FROM public.outbox_control;
ROLLBACK;

-- Old rows go, a thousand at a time
INSERT INTO outbox_history (role, action, at)
SELECT 'r', 'a', now() - i * interval '1 minute' FROM generate_series(1, 2500) i;
SELECT outbox_internal.outbox_history_maintain('1 day'), outbox_internal.outbox_history_maintain('1 day'), outbox_internal.outbox_history_maintain('1 day');
SELECT count(*), max(now() - at) < '25 hours' AS kept FROM outbox_history;
SELECT outbox_internal.outbox_history_maintain('0'), outbox_internal.outbox_history_maintain('0'), outbox_internal.outbox_history_maintain('0');
SELECT count(*) FROM outbox_history;

-- It is nobody's but the owner's
SET ROLE regress_outbox_operator;
SELECT outcome(statement) FROM unnest(ARRAY['TABLE outbox_history', 'DELETE FROM outbox_history',
	$$INSERT INTO outbox_history (role, action) VALUES ('r', 'a')$$,
	'SELECT outbox_internal.outbox_remember(''a'', NULL, NULL, NULL, NULL)',
	'SELECT outbox_internal.outbox_history_maintain(''0'')', 'SELECT outbox_internal.outbox_set_paused(NULL, false, NULL)']) statement;
RESET ROLE;

DROP VIEW pauses;
DROP FUNCTION remembered();
DROP OWNED BY regress_outbox_operator, regress_outbox_shift;
DROP ROLE regress_outbox_operator, regress_outbox_shift;
