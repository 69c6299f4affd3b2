'use strict';
// What a JavaScript value is, for test/clients/consumers.pl: its kind (s text, b bytes,
// o truth value, i bigint, d number, n nothing, a list, m map), its type, itself.

const crypto = require('crypto');

const LONG = 1000; // bytes of a text above which only a digest is said

function digest(octets) {
	return crypto.createHash('sha256').update(octets).digest('hex');
}

function bits(number) {
	const buffer = Buffer.alloc(8);
	buffer.writeDoubleBE(number);
	return buffer.toString('hex');
}

// JavaScript has one type for both kinds of numbers.
function kindAndValue(value) {
	if (value === null || value === undefined) return ['n', null];
	if (typeof value === 'boolean') return ['o', value];
	if (typeof value === 'bigint') return ['i', value.toString()];
	if (typeof value === 'number') return ['d', bits(value)];
	if (typeof value === 'string') return ['s', Buffer.byteLength(value) > LONG ? digest(value) : value];
	if (Buffer.isBuffer(value)) return ['b', value.toString('hex')];
	if (Array.isArray(value)) return ['a', value.map(typed)];
	return ['m', Object.fromEntries(Object.entries(value).map(([name, element]) => [name, typed(element)]))];
}

function typeName(value) {
	if (value === null || typeof value !== 'object') return value === null ? 'null' : typeof value;
	// a header may be named so
	return typeof value.constructor === 'function' ? value.constructor.name : 'Object';
}

function typed(value) {
	const [t, v] = kindAndValue(value);
	return { t, as: typeName(value), v };
}

function typedBody(body) {
	return { as: typeName(body), size: body.length, sha256: digest(body) };
}

module.exports = { typed, typedBody };
