-- For old tables whose rows are deleted when they were sent: how they come back.
\set mark 'DELETE FROM ' :old_table ' o WHERE o.' :"id" ' = ANY (ids) AND (' :ready ')'
\set unmark 'INSERT INTO ' :old_table ' OVERRIDING SYSTEM VALUE SELECT r.* FROM ' :migration '.moved m, jsonb_populate_record(NULL::' :old_table ', m.old_row) r WHERE m.message_id = ANY (messages) ORDER BY m.old_id'
