-- The text that is published for a jsonb payload is that of jsonb_out().
CREATE TEMP TABLE samples (value jsonb);

INSERT INTO samples VALUES
	('{}'), ('[]'), ('null'), ('true'), ('false'), ('0'), ('""'), ('"x"'),
	('-1.50'), ('1e400'), ('1e-400'), ('123456789012345678901234567890.5'),
	('[null, true, false, 1, "a", [], {}, [[]], [{}], {"a": []}]'),
	('{"a": {"b": {"c": [1, {"d": null}, [2, [3]]]}}, "": "", "é": "€ 😀"}'),
	('{"b": 1, "a": 2, "b": 3, "aa": {}}');

-- each character that may need an escape, at each place of a word and beside it
INSERT INTO samples
SELECT jsonb_build_object(s, jsonb_build_array(s, s || s), 'other', s)
FROM unnest(array(SELECT chr(i) FROM generate_series(1, 131) i)
		|| ARRAY['é', '€', '😀', U&'\2028']) AS c(c),
	generate_series(0, 17) AS before, generate_series(0, 9) AS after,
	LATERAL (SELECT repeat('x', before) || c || repeat('~', after)) AS l(s);

-- arrays and objects of many, deep and long ones
INSERT INTO samples
SELECT jsonb_agg(i) FROM generate_series(1, 1000) i
UNION ALL
SELECT jsonb_object_agg(md5(i::text), i / 7.0) FROM generate_series(1, 1000) i
UNION ALL
SELECT (repeat('[{"k": ', 500) || '1' || repeat('}]', 500))::jsonb
UNION ALL
SELECT to_jsonb(string_agg(chr(1 + i % 127), '')) FROM generate_series(1, 300000) i;

SELECT count(*), max(length(value::text)) FROM samples;
SELECT left(value::text, 60) AS value, left(outbox_test_json(value), 60) AS published
FROM samples WHERE outbox_test_json(value) IS DISTINCT FROM value::text
ORDER BY 1 LIMIT 10;
-- and so is its size, which is counted without making it
SELECT left(value::text, 60) AS value, octet_length(value::text), outbox_test_json_size(value)
FROM samples WHERE outbox_test_json_size(value) <> octet_length(value::text)
ORDER BY 1 LIMIT 10;
-- up to a limit
SELECT outbox_test_json_size(to_jsonb(array_fill(1e131000, ARRAY[500])), 1000000) BETWEEN 1000001 AND 1200000 AS stopped;

-- a damaged value, with each bit of it turned round, is text or XX001, and never read beyond its end
CREATE CAST (bytea AS jsonb) WITHOUT FUNCTION;
CREATE CAST (jsonb AS bytea) WITHOUT FUNCTION;
CREATE FUNCTION outcome(damaged jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM outbox_test_json(damaged), outbox_test_json_size(damaged, 1000000000);
	RETURN 'text';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END
$$;
SELECT outcome(set_bit(sound, i, 1 - get_bit(sound, i))::jsonb), count(*) > 20 AS many
FROM (VALUES ('{"a": [1.5, "x", null, true, {"b": 1e100}], "bb": {"c": [[], {}, ""]}, "ccc": 0}'::jsonb::bytea)) v(sound),
	generate_series(0, 8 * octet_length(sound) - 1) i
GROUP BY 1 ORDER BY 1;
SELECT damage, outcome(damage::bytea::jsonb) FROM unnest(ARRAY[
	'', '\x01', '\x01000050', '\x0100004000000060', '\x01000040ffffff0f', '\x0100002000000000',
	'\x0100004000000010', '\x010000400400001010000000', '\x01000040060000100c0000000000',
	'\x0100004006000010180000000000', '\x01000040060000101800000000800000']) damage;
