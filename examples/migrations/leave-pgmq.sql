-- Out of outbox, into a queue of pgmq (1.5 or later, for the headers), which has to be there:
--
--   psql -v queue=orders -f examples/migrations/leave-pgmq.sql

\set ON_ERROR_STOP on

\set insert 'SELECT pgmq.send(' :'queue' ', m.payload, jsonb_strip_nulls(coalesce(m.headers, ''{}'') || jsonb_build_object(''message_id'', m.id, ''type'', m.event_type, ''aggregate_type'', m.aggregate_type, ''aggregate_id'', m.aggregate_id)), coalesce(m.available_at, now())) FROM unnest(messages) m ORDER BY m.seq'
\ir leave.sql
