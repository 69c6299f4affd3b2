/*
 * A route for each of the three ways; topology.py makes what stands behind their
 * exchanges.
 */
INSERT INTO outbox_route (name, exchange, exchange_type, routing_key) VALUES
	-- the exchange hashes the routing key, so a key's messages meet in one queue
	('hashed', 'hashed', 'x-consistent-hash', '{aggregate_type}.{aggregate_id}'),
	-- a stream behind an exchange like any other
	('log', 'log', 'topic', '{event_type}'),
	-- the partitions of a super stream, chosen by the same kind of hash
	('parted', 'parted.hash', 'x-consistent-hash', '{aggregate_type}.{aggregate_id}'),
	-- a queue that loses nothing that is rejected
	('guarded', 'guarded', 'topic', '{event_type}');
