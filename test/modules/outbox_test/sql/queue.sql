-- The order of keys in the worker's memory, step by step; no row is needed.
-- The words are explained in queue_steps.c.

-- One message of a key at a time; what has no key waits for nobody
SELECT * FROM outbox_test_queue('admit:1:a admit:2:a admit:3:b admit:4 admit:4 send claims
	ack:1 send settle:1 send ack:2 settle:2 ack:3 settle:3 ack:4 settle:4 claims');
-- The settling before the next one of the key is on the disk: it waited, it came
-- before the settling, it is in the table only; and not where nothing waits
SELECT * FROM outbox_test_queue('admit:1:a admit:2:a send ack:1 durable');
SELECT * FROM outbox_test_queue('admit:1:a send ack:1 durable admit:2:a durable');
SELECT * FROM outbox_test_queue('admit:1:a send lock:2:a ack:1 durable');
SELECT * FROM outbox_test_queue('admit:1:a admit:2 send ack:1 ack:2 durable');

-- Unknown after a lost link: in front of the others, in the old order
SELECT * FROM outbox_test_queue('admit:1:a admit:2:b admit:3 send admit:4 admit:5:a unknown claims send');
-- but what was confirmed is not unknown
SELECT * FROM outbox_test_queue('admit:1:a admit:2:b send ack:1 unknown send');

-- Suspects of having lost it are none when they are confirmed, or have left memory
SELECT * FROM outbox_test_queue('admit:1 admit:2:a admit:3 send blame suspects send ack:1 suspects
	unknown drop suspects');

-- An attempt has failed: its key waits in the table, others go on; it comes first
-- when its time has come
SELECT * FROM outbox_test_queue('admit:1:a admit:2:a admit:3:b send reject:1 retry:1 reread
	admit:4:a claims due:1:a send reread ack:1 settle:1 reread read:0:a admit:2:a admit:4:a send');
-- It has failed for good, and the route blocks: whoever lets the key go on may have
-- made it pending again
SELECT * FROM outbox_test_queue('admit:1:a admit:2:a send reject:1 fail:1 admit:3:a send reread
	unblock:a reread read:0:a admit:1:a admit:2:a admit:3:a send');
-- What is older than the failed one goes on; what is later is read when it is gone
SELECT * FROM outbox_test_queue('admit:1:a admit:2:a admit:5:a block:3:a claims admit:4:a send ack:1 settle:1 send
	ack:2 settle:2 send reread unblock:a reread read:0:a admit:4:a admit:5:a send');
-- and when some of that is in the table only, the failed one is found by the claim
SELECT * FROM outbox_test_queue('block:3:a reread lock:2:a release:a reread read:0:a block:3:a admit:2:a send reread');
-- A retry holds beside it
SELECT * FROM outbox_test_queue('admit:4:a send reject:4 retry:4 block:3:a due:4:a send unblock:a reread read:0:a admit:5:a
	send due:4:a send');

-- A locked row: what waits behind it leaves memory, what is in front goes on
SELECT * FROM outbox_test_queue('admit:1:a admit:2:a admit:4:a lock:3:a claims send ack:1 settle:1 send reread
	release:a send ack:2 settle:2 reread');
-- Behind rows that are in the table only nothing is kept, not even when it fits
SELECT * FROM outbox_test_queue('lock:2:a release:a reread admit:3:a admit:2:a send reread');
-- Read up to a number: from the next on
SELECT * FROM outbox_test_queue('lock:2:a release:a read:2:a admit:2:a send ack:2 settle:2 reread');

-- A head that cannot be settled: what waits behind it leaves memory, nothing of its key is kept or read before it is
SELECT * FROM outbox_test_queue('admit:1:a admit:2:a admit:3:b send ack:1 remain:1 claims reread admit:2:a due:4:a
	remain:1 durable send settle:1 reread claims');
SELECT * FROM outbox_test_queue('admit:1:a admit:2:a send reject:1 remain:1 claims reread retry:1 reread due:1:a send');

-- What is locked leaves its contents, confirmed or rejected
SELECT * FROM outbox_test_queue('admit:1:a admit:2 admit:3 contents send ack:1 ack:2 reject:3 contents remain:1 remain:3 contents
	remain:1 contents settle:1 settle:2 contents retry:3 contents');

-- Of large ones a key keeps no more waiting than one claim reads, and the others are read when they have gone
SELECT * FROM outbox_test_queue('large:1:a large:2:a large:3:a large:4:a large:5:a admit:6:a reread admit:7:b claims send ack:1 settle:1 send
	reread ack:2 settle:2 send ack:3 settle:3 reread read:0:a large:5:a admit:6:a send');
-- and all keys together half of what a worker keeps
SELECT * FROM outbox_test_queue((SELECT string_agg(format('large:%s:%s', 10 * n + i, chr(96 + n)), ' ' ORDER BY n, i)
	FROM generate_series(1, 9) n, generate_series(1, 3) i) || ' admit:500:z large:501:z reread send');

-- Everything leaves memory that is not sent, in whatever state
SELECT * FROM outbox_test_queue('admit:1:a send admit:2:a admit:3 admit:4:b drop claims send');

-- ordering = 'pipelined': messages of a key go together, and are settled from the first one on
SELECT * FROM outbox_test_queue('pipelined admit:1:a admit:2:a admit:3:a send ack:2 settling ack:1 settling settle:1 durable
	admit:4:a send settle:2 ack:3 settling');
-- A lost link: from the first one that is not answered on, in the old order, whatever was confirmed behind it
SELECT * FROM outbox_test_queue('pipelined admit:1:a admit:2:a admit:3:a admit:4:a send ack:1 ack:3 admit:5:a unknown settling claims send');
-- A refusal: the key stops, what is not sent is a row again, what is refused behind it is so, too, and costs no attempt
SELECT * FROM outbox_test_queue('pipelined admit:1:a admit:2:a admit:3:a admit:4:b send admit:5:a reject:1 behind:1 claims reject:2
	ack:3 settling claims admit:6:a send retry:1 settle:3 reread again:1:a send reread ack:1 settle:1 reread');
SELECT * FROM outbox_test_queue('pipelined admit:1:a admit:2:a send return:1 admit:3:a send reject:1 settling ack:2 settling');
-- The older refusal counts, though it comes later; and not before what is older is gone
SELECT * FROM outbox_test_queue('pipelined admit:1:a admit:2:a admit:3:a send reject:3 settling reject:2 settling ack:1 settling claims
	settle:1 settling');
-- A message that was refused goes alone, and so does the next one until something of the key is confirmed
SELECT * FROM outbox_test_queue('pipelined admit:1:a admit:2:a send reject:1 reject:2 claims retry:1 again:1:a read:0:a admit:2:a send reject:1 fail:1
	unblock:a read:0:a admit:2:a admit:3:a send ack:2 send');
-- An older one that comes later waits for those that are sent
SELECT * FROM outbox_test_queue('pipelined admit:2:a admit:3:a send due:1:a admit:4:a send unknown claims send');
-- A row that cannot be settled stops it, too
SELECT * FROM outbox_test_queue('pipelined admit:1:a admit:2:a send admit:3:a ack:1 remain:1 claims send ack:2 settling');
-- ordering = 'key' again: what is sent is the last that goes together
SELECT * FROM outbox_test_queue('pipelined admit:1:a admit:2:a send serial admit:3:a send ack:1 settle:1 send ack:2 durable settle:2 send');
SELECT * FROM outbox_test_queue('pipelined admit:1:a admit:2:a send serial unknown claims send');
-- and the other way round
SELECT * FROM outbox_test_queue('admit:1:a admit:2:a admit:3:a send pipelined ack:1 settle:1 send');
-- Half of the window is one key's, and half of the bytes: what is not answered leaves the rest to others
SELECT * FROM outbox_test_queue('window:4 pipelined admit:1:a admit:2:a admit:3:a admit:4:b send room:a ack:2 send ack:1 durable
	settle:1 send window:12 admit:5:a room:a send');
SELECT * FROM outbox_test_queue('pipelined ' || (SELECT string_agg(format('large:%s:a', n), ' ' ORDER BY n) FROM generate_series(1, 18) n)
	|| ' admit:19:b send ack:1 settle:1 send');
-- A key that has stopped is not read again before what was refused is settled
SELECT * FROM outbox_test_queue('pipelined admit:1:a admit:2:a send admit:3:a reject:1 reject:2 reread room:a fail:1 unblock:a reread room:a');
-- Of a key of which nothing goes no more is read than waits
SELECT * FROM outbox_test_queue('lock:1:a release:a room:a');
-- Two of the same number: the one that is about to be settled stays where it is
SELECT * FROM outbox_test_queue('pipelined admit:1:a twin:1:a send reject:1 settling reject:1001 settling claims retry:1 reread');
-- A key whose refused message is discarded is forgotten when it was read again
SELECT * FROM outbox_test_queue('pipelined admit:1:a send reject:1 retry:1 keys release:a reread read:0:a done:a keys');
SELECT * FROM outbox_test_queue('pipelined admit:1:a admit:2:a send reject:1 reject:2 retry:1 release:a read:0:a keys done:a keys');
