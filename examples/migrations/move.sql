-- Moves what is to be sent out of the old table into outbox, in transactions of :chunk rows
-- (1000). The old relay has to be stopped; applications go on writing as they did. It can be
-- interrupted, and run again.

\set ON_ERROR_STOP on
\if :{?migration}
\else
	\set migration outbox_from_polling
\endif
\if :{?chunk}
\else
	\set chunk 1000
\endif
SELECT format('SELECT %s.move(%s) AS moved', :'migration', :'chunk')
FROM generate_series(0, (SELECT count(*) FROM :migration.pending) / :chunk) \gexec
