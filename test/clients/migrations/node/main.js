// pg-transactional-outbox: makes its table by its own script, fills it, and polls it.
//
//   main.js write FIRST LAST    events FIRST to LAST, each in a transaction, and one that is rolled back
//   main.js relay COUNT         its listener, until it has handled COUNT or more; "sent N" for each
'use strict';

const { randomUUID } = require('node:crypto');
const { Client } = require('pg');
const outbox = require('pg-transactional-outbox');

const database = process.env.PGDATABASE;
const user = process.env.PGUSER;
const logger = outbox.getDisabledLogger();
const config = {
	outboxOrInbox: 'outbox',
	dbListenerConfig: { connectionString: process.env.DATABASE_URL },
	dbHandlerConfig: { connectionString: process.env.DATABASE_URL },
	settings: {
		dbSchema: 'public', dbTable: 'transactional_outbox',
		nextMessagesFunctionSchema: 'public', nextMessagesFunctionName: 'next_messages',
		nextMessagesBatchSize: 5, nextMessagesPollingIntervalInMs: 50,
	},
};

async function write(first, last)
{
	const client = new Client({ connectionString: process.env.DATABASE_URL });
	const store = outbox.initializeMessageStorage(config, logger);
	const event = (n) => store({
		id: randomUUID(), aggregateType: 'order', aggregateId: String(n % 3), messageType: 'order.created',
		payload: { n }, metadata: { tenant: 'a' },
	}, client);

	await client.connect();
	if (!(await client.query("SELECT to_regclass('transactional_outbox') AS oid")).rows[0].oid)
		await client.query(outbox.DatabaseSetupExporter.createPollingScript({
			outboxOrInbox: 'outbox', database, schema: 'public', table: 'transactional_outbox',
			listenerRole: user, handlerRole: user, nextMessagesSchema: 'public', nextMessagesName: 'next_messages',
		}, true));
	for (let n = first; n <= last; n++)
	{
		await client.query('BEGIN');
		await event(n);
		await client.query('COMMIT');
	}
	await client.query('BEGIN');
	await event(-1);
	await client.query('ROLLBACK');
	await client.end();
}

async function relay(count)
{
	let sent = 0;
	await new Promise((resolve) => {
		const [shutdown] = outbox.initializePollingMessageListener(config, {
			handle: async (message) => {
				console.log('sent', message.payload.n);
				if (++sent === count)
					setImmediate(() => shutdown().then(resolve));
			},
		}, logger);
	});
}

const [verb, ...numbers] = process.argv.slice(2);
({ write, relay })[verb](...numbers.map(Number)).then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
