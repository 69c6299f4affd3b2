-- Out of outbox, into CAP's outbox. Its processor of failed messages sends them, four minutes after
-- they were added (FallbackWindowLookbackSeconds). cap-msg-type is the name of a class: consumers of CAP
-- do not need it.
--
--   psql -v route=cap -f examples/migrations/leave-cap.sql

\set ON_ERROR_STOP on

\if :{?table}
\else
	\set table '"cap"."published"'
\endif
-- what CAP calls its Version in CapOptions
\if :{?version}
\else
	\set version v1
\endif
\set insert 'INSERT INTO ' :table ' ("Id", "Version", "Name", "Content", "Retries", "Added", "ExpiresAt", "StatusName") SELECT coalesce((m.headers ->> ''cap-msg-id'')::bigint, m.seq), ' :'version' ', m.event_type, jsonb_build_object(''Headers'', jsonb_build_object(''cap-msg-id'', m.seq::text, ''cap-msg-name'', m.event_type, ''cap-msg-type'', ''Object'', ''cap-corr-id'', m.seq::text, ''cap-corr-seq'', ''0'', ''cap-senttime'', to_char(m.created_at, ''MM/DD/YYYY HH24:MI:SS'')) || coalesce(m.headers, ''{}''), ''Value'', m.payload)::text, 0, m.created_at, m.available_at, CASE WHEN m.available_at > now() THEN ''Delayed'' ELSE ''Scheduled'' END FROM unnest(messages) m ORDER BY m.seq'
\ir leave.sql
