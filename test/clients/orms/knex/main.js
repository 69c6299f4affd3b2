// node-postgres and Knex: README.md of the folder above says what each operation does.

const { randomUUID } = require('crypto');
// [enqueue]
const knexOf = require('knex');

const knex = knexOf({ client: 'pg', connection: process.env.DATABASE_URL, pool: { min: 0, max: 4 } });

// A list is an array of PostgreSQL for node-postgres, and has to be serialised.
const enqueue = (trx, message) =>
	trx('outbox_new').insert({ ...message, payload: JSON.stringify(message.payload) }, ['id']);

async function order(trx, customer) {
	const [{ id }] = await trx('orders').insert({ customer, total: 42 }, ['id']);
	return id;
}
// [/enqueue]

async function insert(operation) {
	// [insert]
	return knex.transaction(async (trx) => {
		const orderId = await order(trx, operation);
		const [{ id }] = await enqueue(trx, {
			event_type: 'order.' + operation, aggregate_type: 'order', aggregate_id: orderId,
			payload: { order: Number(orderId) },
		});
		return id;
	});
	// [/insert]
}

async function map() {
	const [{ id }] = await enqueue(knex, {
		route: 'default', event_type: 'order.map', aggregate_type: 'customer', aggregate_id: 42,
		payload: { n: 42, name: 'Zoë', nothing: null },
		headers: { tenant: 'a\\b', 'x-retries': 3 }, properties: { priority: 5 }, routing_key: 'a.key',
		created_at: new Date('2026-01-02T03:04:05Z'), available_at: new Date('2040-01-02T03:04:05Z'),
	});
	return { ids: [id] };
}

async function function_() {
	return knex.transaction(async (trx) => {
		const orderId = await order(trx, 'function');
		const { rows } = await trx.raw('SELECT outbox_enqueue(?, ?, ?, ?) AS id',
			['order.function', JSON.stringify({ order: Number(orderId) }), 'order', orderId]);
		return { ids: [rows[0].id] };
	});
}

async function own_id() {
	return knex.transaction(async (trx) => {
		const orderId = await order(trx, 'own_id');
		const id = randomUUID();
		await enqueue(trx, {
			id, event_type: 'order.own_id', aggregate_type: 'order', aggregate_id: orderId, payload: { order: Number(orderId) },
		});
		return { ids: [id] };
	});
}

async function bytes() {
	return knex.transaction(async (trx) => {
		const orderId = await order(trx, 'bytes');
		const body = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
		const [{ id }] = await trx('outbox_new').insert(
			{ event_type: 'order.bytes', aggregate_type: 'order', aggregate_id: orderId, body }, ['id']);
		return { ids: [id] };
	});
}

async function batch() {
	return knex.transaction(async (trx) => {
		const orderId = await order(trx, 'batch');
		const messages = Array.from({ length: 100 }, (_, n) => ({
			event_type: 'order.batch', aggregate_type: 'order', aggregate_id: orderId, payload: JSON.stringify({ n }),
		}));
		const rows = await trx('outbox_new').insert(messages, ['id']);
		return { ids: rows.map((row) => row.id) };
	});
}

async function rollback() {
	try {
		await knex.transaction(async (trx) => {
			const orderId = await order(trx, 'rollback');
			await enqueue(trx, { event_type: 'order.rollback', payload: { order: Number(orderId) } });
			throw new Error('the payment was refused');
		});
	} catch {
		return {};
	}
}

async function savepoint() {
	return knex.transaction(async (trx) => {
		const orderId = await order(trx, 'savepoint');
		const send = async (t, n) => (await enqueue(t, {
			event_type: 'order.savepoint', aggregate_type: 'order', aggregate_id: orderId, payload: { n },
		}))[0].id;
		const first = await send(trx, 1);
		await trx.transaction(async (inner) => {	// a savepoint
			await send(inner, 2);
			throw new Error('not this one');
		}).catch(() => undefined);
		return { ids: [first, await send(trx, 3)] };
	});
}

async function refused(id, again) {
	try {
		await again();
		return { ids: [id] };
	} catch (e) {
		return { ids: [id], error: e.code };
	}
}

async function update() {
	const id = await insert('update');
	return refused(id, () => knex('outbox_new').where({ id }).update({ event_type: 'order.changed' }));
}

async function delete_() {
	const id = await insert('delete');
	return refused(id, () => knex('outbox_new').where({ id }).del());
}

async function pool() {
	const ids = [];
	await Promise.all([1, 2, 3, 4].map(async () => {
		for (let i = 0; i < 25; i++) ids.push(await insert('pool'));
	}));
	return { ids };
}

// --- migrations

const extension = {
	async up(db) {
		await db.raw('CREATE SCHEMA IF NOT EXISTS outbox');
		await db.raw('CREATE EXTENSION IF NOT EXISTS outbox SCHEMA outbox');
	},
	async down() {},
};

const invoices = {
	async up(db) {
		await db.schema.createTable('invoices', (table) => {
			table.bigIncrements();
			table.text('customer').notNullable();
		});
	},
	async down(db) {
		await db.schema.dropTable('invoices');
	},
};

const source = (name, migration) => ({
	migrationSource: {
		getMigrations: async () => [name],
		getMigrationName: (n) => n,
		getMigration: async () => migration,
	},
});

async function tests() {
	const trx = await knex.transaction();
	await enqueue(trx, { event_type: 'order.tests', payload: {} });
	const { rows } = await trx.raw('SELECT event_type FROM outbox');
	if (rows.length !== 1) throw new Error('it is not there');
	await trx.rollback();
	return { says: 'rolled back' };
}

const none = async () => ({ none: 'it has no such thing' });

const operations = {
	map, insert: async () => ({ ids: [await insert('insert')] }), function: function_, own_id, bytes, batch, rollback, savepoint,
	second_save: none, second_save_gone: none, update, delete: delete_, pool, diff: none, diff_mended: none, dump: none, tests,
	migrate_up: async () => (await knex.migrate.latest(source('invoices', invoices)), {}),
	migrate_down: async () => (await knex.migrate.rollback(source('invoices', invoices)), {}),
	extension: async () => (await knex.migrate.latest(source('extension', extension)), {}),
};

operations[process.argv[2]]().then(async (said) => {
	console.log(JSON.stringify(said));
	await knex.destroy();
}).catch((e) => {
	console.error(e);
	process.exit(1);
});
