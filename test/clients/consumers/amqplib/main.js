'use strict';
// What amqplib hands out of each message of some queues, for test/clients/consumers.pl.
//
// usage: main.js setup NAME           declares the queues that need arguments
//        main.js read QUEUE=N...      prints N deliveries of each, one JSON object a line
//        main.js once QUEUE           consumes, each message once (once.js)
//
// The broker is in AMQP_URI.

const amqp = require('amqplib');
const { typed, typedBody } = require('./typed');

const PROPERTIES = {
	contentType: 'content_type', contentEncoding: 'content_encoding', deliveryMode: 'delivery_mode',
	priority: 'priority', correlationId: 'correlation_id', replyTo: 'reply_to', expiration: 'expiration',
	messageId: 'message_id', timestamp: 'timestamp', type: 'type', userId: 'user_id', appId: 'app_id',
};

async function setup(channel, name) {
	await channel.assertQueue(`${name}.priority`, { durable: true, maxPriority: 10 });
	await channel.assertQueue(`${name}.quorum`, {
		durable: true,
		deadLetterExchange: '',
		deadLetterRoutingKey: `${name}.dead`,
		arguments: { 'x-queue-type': 'quorum', 'x-single-active-consumer': true, 'x-delivery-limit': 20 },
	});
	await channel.assertQueue(`${name}.dead`, { durable: true });
	await channel.assertQueue(`${name}.headers`, { durable: true });
	await channel.bindQueue(`${name}.headers`, 'headed', '',
		{ 'x-match': 'all', region: 'eu', tier: 7, vip: true });
}

function properties(message) {
	const all = {};
	for (const [name, said] of Object.entries(PROPERTIES)) {
		if (message.properties[name] !== undefined) all[said] = typed(message.properties[name]);
	}
	return all;
}

function show(queue, message) {
	process.stdout.write(JSON.stringify({
		queue,
		redelivered: message.fields.redelivered,
		exchange: message.fields.exchange,
		routing_key: message.fields.routingKey,
		properties: properties(message),
		headers: typed(message.properties.headers),
		body: typedBody(message.content),
	}) + '\n');
}

async function read(channel, queue, wanted) {
	await channel.prefetch(100);
	await new Promise((resolve, reject) => {
		channel.consume(queue, (message) => {
			show(queue, message);
			if (queue.endsWith('.quorum') && !message.fields.redelivered) channel.nack(message);
			else channel.ack(message);
			if (--wanted === 0) resolve();
		}, { consumerTag: queue }).catch(reject);
	});
	await channel.cancel(queue);
}

async function main([act, ...words]) {
	if (act === 'once') return require('./once').main(process.env.AMQP_URI, words[0]);
	const connection = await amqp.connect(process.env.AMQP_URI);
	const channel = await connection.createChannel();
	if (act === 'setup') await setup(channel, words[0]);
	for (const word of act === 'read' ? words : []) {
		const [queue, wanted] = word.split('=');
		await read(channel, queue, Number(wanted));
	}
	await connection.close();
}

main(process.argv.slice(2)).catch((error) => {
	console.error(error);
	process.exit(1);
});
