-- With and without the library in shared_preload_libraries; the expected files
-- differ.  Without it, messages are stored all the same, and the first one of a
-- session says what to set.
SELECT outbox_enqueue('first', '{}') IS NOT NULL AS ok;
SELECT outbox_enqueue('second', '{}') IS NOT NULL AS ok;
INSERT INTO outbox (event_type, payload) VALUES ('third', '{}');
SELECT event_type FROM outbox ORDER BY seq;
SELECT backlog FROM outbox_status;
SELECT state, hint FROM outbox_status WHERE state = 'not preloaded';
TRUNCATE outbox;
