/* Behind the columns that an administrator has added meanwhile. */
ALTER TABLE @extschema@.outbox
	ADD COLUMN chain_note text NOT NULL DEFAULT 'none';
ALTER TABLE @extschema@.outbox_route
	ADD COLUMN chain_limit integer;

COMMENT ON COLUMN @extschema@.outbox.chain_note IS 'Came with an update.';
COMMENT ON COLUMN @extschema@.outbox_route.chain_limit IS 'Came with an update.';

