'use strict';
// A consumer whose effect happens once for each message, however often that is delivered.

const amqp = require('amqplib');
const pg = require('pg');

// [once]
async function effect(db, message) {
	const id = message.properties.messageId;
	await db.query('BEGIN');
	const { rows } = await db.query("SELECT inbox.outbox_inbox_accept('amqplib', $1) AS first", [id]);
	if (rows[0].first) { // false: processed before
		await db.query("INSERT INTO notifications (consumer, message_id, body) VALUES ('amqplib', $1, $2)",
			[id, message.content.toString()]);
	}
	await db.query('COMMIT');
}

async function handle(db, channel, message) {
	try {
		await effect(db, message);
	} catch (error) {
		if (!/^[0-9A-Z]{5}$/.test(error.code) || /^(08|40|53|57|58)/.test(error.code)) throw error; // no server, or "not now"
		await db.query('ROLLBACK');
		channel.nack(message); // the server's verdict on it; x-delivery-limit bounds how often
		return;
	}
	channel.ack(message); // only after the commit
}

// One transaction after the other on one connection; resolves when something ends.
async function consume(uri, queue) {
	const db = new pg.Client({ connectionString: process.env.DATABASE_URL });
	await db.connect();
	const connection = await amqp.connect(`${uri}?heartbeat=30`).catch(async (error) => { await db.end(); throw error; });
	try {
		const channel = await connection.createChannel();
		await channel.prefetch(50);
		await new Promise((resolve, reject) => {
			let last = Promise.resolve();
			for (const one of [db, connection, channel]) one.on('error', reject);
			for (const one of [connection, channel]) one.on('close', () => reject(new Error('closed')));
			channel.consume(queue, (message) => {
				last = last.then(() => handle(db, channel, message)).catch(reject);
			}).then(() => console.log('consuming'), reject);
		});
	} finally {
		await Promise.allSettled([db.end(), connection.close()]);
	}
}

async function main(uri, queue) {
	for (;;) { // amqplib does not reconnect by itself
		await consume(uri, queue).catch((error) => console.log('again in a second:', error.message));
		await new Promise((resolve) => setTimeout(resolve, 1000));
	}
}
// [/once]

module.exports = { main };
