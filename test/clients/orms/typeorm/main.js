// TypeORM: README.md of the folder above says what each operation does.

require('reflect-metadata');
const { DataSource, EntitySchema, EventSubscriber } = require('typeorm');
const { randomUUID } = require('crypto');

// [model]
// synchronize: false keeps schema:sync and migration:generate away from the view.
class OutboxMessage {}

const OutboxMessageSchema = new EntitySchema({
	name: 'OutboxMessage',
	target: OutboxMessage,
	tableName: 'outbox_new',
	synchronize: false,
	columns: {
		id: { type: 'uuid', primary: true, default: () => 'outbox_uuid7()' },
		route: { type: 'text', default: 'default' },
		created_at: { type: 'timestamptz', createDate: true },
		event_type: { type: 'text' },
		aggregate_type: { type: 'text', nullable: true },
		aggregate_id: { type: 'text', nullable: true },
		payload: { type: 'jsonb', nullable: true },
		body: { type: 'bytea', nullable: true },
		headers: { type: 'jsonb', nullable: true },
		properties: { type: 'jsonb', nullable: true },
		routing_key: { type: 'text', nullable: true },
		available_at: { type: 'timestamptz', nullable: true },
	},
});
// [/model]

const Order = new EntitySchema({
	name: 'Order',
	tableName: 'orders',
	columns: {
		id: { type: 'bigint', primary: true, generated: 'identity', generatedIdentity: 'BY DEFAULT' },
		customer: { type: 'text' },
		total: { type: 'integer' },
	},
});

// [once]
// save() asks for the id, finds nothing in the view, and INSERTs again.
class OnlyOnce {
	listenTo() {
		return OutboxMessage;
	}
	beforeInsert({ entity }) {
		if (entity.created_at) throw new Error(`message ${entity.id} was enqueued before`);
	}
}
EventSubscriber()(OnlyOnce);		// @EventSubscriber() in TypeScript
// [/once]

const operation = process.argv[2];

if (operation === 'diff') OutboxMessageSchema.options.synchronize = true;		// the default

const source = new DataSource({
	type: 'postgres', url: process.env.DATABASE_URL, entities: [OutboxMessageSchema, Order], subscribers: [OnlyOnce], poolSize: 4,
	migrations: operation === 'extension' ? [extension()] : [invoices()],
});

async function order(manager, customer) {
	return (await manager.save(Order, { customer, total: 42 })).id;
}

async function insert() {
	// [insert]
	return source.transaction(async (manager) => {
		const { id: orderId } = await manager.save(Order, { customer: operation, total: 42 });
		const message = manager.create(OutboxMessage, {
			event_type: 'order.' + operation, aggregate_type: 'order', aggregate_id: orderId,
			payload: { order: Number(orderId) },
		});
		await manager.insert(OutboxMessage, message);		// not save(); message.id is set
		return message;
	});
	// [/insert]
}

const ids = (...messages) => ({ ids: messages.map((m) => m.id) });

async function one(manager, columns) {
	const message = manager.create(OutboxMessage, { event_type: 'order.' + operation, aggregate_type: 'order', ...columns });
	await manager.insert(OutboxMessage, message);
	return message;
}

async function map() {
	const message = {
		route: 'default', event_type: 'order.map', aggregate_type: 'customer', aggregate_id: 42,
		payload: { n: 42, name: 'Zoë', nothing: null },
		headers: { tenant: 'a\\b', 'x-retries': 3 }, properties: { priority: 5 }, routing_key: 'a.key',
		created_at: new Date('2026-01-02T03:04:05Z'), available_at: new Date('2040-01-02T03:04:05Z'),
	};
	const { identifiers } = await source.createQueryBuilder().insert().into(OutboxMessage).values(message).callListeners(false).execute();
	return { ids: [identifiers[0].id] };
}

async function function_() {
	return source.transaction(async (manager) => {
		const orderId = await order(manager, operation);
		const [{ id }] = await manager.query('SELECT outbox_enqueue($1, $2, $3, $4) AS id',
			['order.function', { order: Number(orderId) }, 'order', orderId]);
		return { ids: [id] };
	});
}

async function own_id() {
	return source.transaction(async (manager) => {
		const orderId = await order(manager, operation);
		return ids(await one(manager, { id: randomUUID(), aggregate_id: orderId, payload: { order: Number(orderId) } }));
	});
}

async function bytes() {
	return source.transaction(async (manager) => {
		const orderId = await order(manager, operation);
		return ids(await one(manager, { aggregate_id: orderId, body: Buffer.from(Array.from({ length: 256 }, (_, i) => i)) }));
	});
}

async function batch() {
	return source.transaction(async (manager) => {
		const orderId = await order(manager, operation);
		const { identifiers } = await manager.insert(OutboxMessage, Array.from({ length: 100 }, (_, n) => ({
			event_type: 'order.batch', aggregate_type: 'order', aggregate_id: orderId, payload: { n },
		})));
		return ids(...identifiers);
	});
}

async function rollback() {
	try {
		await source.transaction(async (manager) => {
			const orderId = await order(manager, operation);
			await one(manager, { aggregate_id: orderId, payload: {} });
			throw new Error('the payment was refused');
		});
	} catch {
		return {};
	}
}

async function savepoint() {
	return source.transaction(async (manager) => {
		const aggregate_id = await order(manager, operation);
		const first = await one(manager, { aggregate_id, payload: { n: 1 } });
		await manager.transaction(async (inner) => {		// a savepoint
			await one(inner, { aggregate_id, payload: { n: 2 } });
			throw new Error('not this one');
		}).catch(() => undefined);
		return ids(first, await one(manager, { aggregate_id, payload: { n: 3 } }));
	});
}

async function refused(message, again) {
	const said = ids(message);
	try {
		await again();
		return said;
	} catch (e) {
		console.error(e.message);
		return { ...said, error: e.code ?? 'by the model' };
	}
}

async function second_save() {
	const message = await insert();
	return refused(message, () => source.manager.save(OutboxMessage, message));
}

async function second_save_gone() {
	const message = await insert();
	const [{ outcome }] = await source.query("SELECT outbox_wait($1, '1 minute') AS outcome", [message.id]);
	if (outcome !== 'published') throw new Error(outcome);
	return refused(message, () => source.manager.save(OutboxMessage, message));
}

async function update() {
	const message = await insert();
	return refused(message, () => source.manager.update(OutboxMessage, { id: message.id }, { event_type: 'order.changed' }));
}

async function delete_() {
	const message = await insert();
	return refused(message, () => source.manager.delete(OutboxMessage, { id: message.id }));
}

async function pool() {
	const all = [];
	await Promise.all([1, 2, 3, 4].map(async () => {
		for (let i = 0; i < 25; i++) all.push(await insert());
	}));
	return ids(...all);
}

// --- schema:log and migrations

async function diff() {
	const { upQueries } = await source.driver.createSchemaBuilder().log();
	return { wants: upQueries.map((q) => q.query) };
}

function extension() {
	return class Extension1700000000000 {
		async up(runner) {
			await runner.query('CREATE SCHEMA IF NOT EXISTS outbox');
			await runner.query('CREATE EXTENSION IF NOT EXISTS outbox SCHEMA outbox');
		}
		async down() {}
	};
}

function invoices() {
	return class Invoices1700000000001 {
		async up(runner) {
			await runner.query('CREATE TABLE invoices (id bigint PRIMARY KEY)');
		}
		async down(runner) {
			await runner.query('DROP TABLE invoices');
		}
	};
}

async function tests() {
	const runner = source.createQueryRunner();
	await runner.startTransaction();
	await runner.manager.insert(OutboxMessage, { event_type: 'order.tests', payload: {} });
	const rows = await runner.query('SELECT event_type FROM outbox');
	if (rows.length !== 1) throw new Error('it is not there');
	await runner.rollbackTransaction();
	await runner.release();
	return { says: 'rolled back' };
}

const operations = {
	map, insert: async () => ids(await insert()), function: function_, own_id, bytes, batch, rollback, savepoint,
	second_save, second_save_gone, update, delete: delete_, pool, diff, diff_mended: diff, tests,
	dump: async () => ({ none: 'it has none' }),
	migrate_up: async () => (await source.runMigrations(), {}),
	migrate_down: async () => (await source.undoLastMigration(), {}),
	extension: async () => (await source.runMigrations(), {}),
};

(async () => {
	await source.initialize();
	console.log(JSON.stringify(await operations[operation]()));
	await source.destroy();
})().catch((e) => {
	console.error(e);
	process.exit(1);
});
