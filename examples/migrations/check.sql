-- What was there is what is in outbox: "missing" has to be 0, and "left" after the cut-over.
-- A message that was published longer ago than outbox.retention, or was discarded, is "missing", too.

\set ON_ERROR_STOP on
\if :{?migration}
\else
	\set migration outbox_from_polling
\endif
SELECT quote_ident(n.nspname) AS outbox_schema
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'outbox' \gset

SELECT (SELECT count(*) FROM :migration.pending) AS left,
	count(*) AS moved,
	count(*) FILTER (WHERE o.status = 'pending') AS waiting,
	count(*) FILTER (WHERE o.status = 'failed') AS failed,
	count(*) FILTER (WHERE o.id IS NULL AND a.id IS NOT NULL) AS published,
	count(*) FILTER (WHERE o.id IS NULL AND a.id IS NULL) AS missing
FROM :migration.moved m
	LEFT JOIN :outbox_schema.outbox o ON o.id = m.message_id
	LEFT JOIN (SELECT DISTINCT id FROM :outbox_schema.outbox_archive) a ON a.id = m.message_id;
