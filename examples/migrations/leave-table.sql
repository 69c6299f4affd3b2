-- Out of outbox, into a table that a program polls. The table and its columns as in polling.sql:
--
--   psql -v table=shop.outbox_events -f examples/migrations/leave-table.sql
--
-- For another one, say how: -v insert='INSERT INTO ... SELECT ... FROM unnest(messages) m ORDER BY m.seq',
-- where m has the columns of outbox.

\set ON_ERROR_STOP on

\if :{?table}
\else
	\set table outbox_events
\endif
\if :{?insert}
\else
	\set insert 'INSERT INTO ' :table ' (aggregate_type, aggregate_id, type, payload, created_at) SELECT m.aggregate_type, m.aggregate_id, m.event_type, m.payload, m.created_at FROM unnest(messages) m ORDER BY m.seq'
\endif
\ir leave.sql
