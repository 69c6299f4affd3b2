-- The relay's statements are run in a schema whose name needs quotes, and the
-- sessions after this one find the extension by their search_path.
CREATE SCHEMA "Out Box";
BEGIN;
CREATE EXTENSION outbox SCHEMA "Out Box";
SELECT "Out Box".outbox_pause();
COMMIT;
CREATE EXTENSION outbox_test;
SELECT format('ALTER DATABASE %I SET search_path = "Out Box", public', current_database()) \gexec
\c -
-- nothing there yet
SELECT * FROM outbox_test_claim();
SELECT * FROM outbox_test_claim_due();
SELECT * FROM outbox_test_list();
SELECT * FROM outbox_test_list_retries();
SELECT * FROM outbox_test_visit_failed('{1}');
SELECT outbox_test_next_due() IS NULL AS none;
SELECT outbox_test_check_holders('{}', '{}');
SELECT outbox_test_check_holders('{00000000-0000-0000-0000-000000000000}', '{1}');
