-- the type tensor: text and binary form, equality, casts, elements, statistics, preview
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tensorbank;
SET search_path = tensorbank, public;

-- text round-trips
SELECT v, v::tensor::text = v AS same FROM (VALUES
	('float32[2,3]{{1,2,3.1},{4,5,NaN}}'), ('float64[]{1.5}'), ('float32[0,3]{}'), ('bool[2]{t,f}'),
	('int8[3]{-128,127,0}'), ('int16[2]{-32768,32767}'), ('int32[2]{-2147483648,2147483647}'),
	('int64[2]{-9223372036854775808,9223372036854775807}'), ('uint8[2]{0,255}'), ('uint16[1]{65535}'),
	('uint32[1]{4294967295}'), ('uint64[1]{18446744073709551615}'), ('float16[4]{0.1,-0,NaN,-Infinity}'),
	('float32[3]{Infinity,1e-45,3.4028235e+38}'), ('float64[3]{5e-324,0.1,1.7976931348623157e+308}'),
	('int16[2,2,2]{{{1,2},{3,4}},{{5,6},{7,8}}}'), ('int16[1,1,1,1,1,1,1,1]{{{{{{{{7}}}}}}}}')) t (v);
SELECT ' float32 [ 2 , 1 ] { { 1 } , { 2e0 } } '::tensor, 'bool[4]{true,FALSE,1,no}'::tensor, 'float16[1]{65504}'::tensor = 'float16[1]{65503}'::tensor AS rounded;
SELECT bool_and(t::text::tensor = t) AS floats_keep_all_digits
FROM (SELECT array_agg(sin(i) * exp(i / 3.0))::float8[]::tensor AS t FROM generate_series(1, 500) i
	UNION ALL SELECT array_agg(sin(i) * exp(i / 9.0))::float4[]::tensor FROM generate_series(1, 500) i) s;

-- text that is none
SELECT 'float32[2]{1}'::tensor;
SELECT 'float32[2,2]{1,2,3,4}'::tensor;
SELECT 'float32[2]{1,NULL}'::tensor;
SELECT 'complex64[1]{1}'::tensor;
\set VERBOSITY terse
SELECT 'float32[2]{1,2,3}'::tensor;
SELECT 'float32[2,2]{{1,2},{3,4}} x'::tensor;
SELECT 'float32'::tensor;
SELECT 'float32[-1]{}'::tensor;
SELECT 'float32[1]{1'::tensor;
SELECT ''::tensor;
SELECT 'bool[1]{2}'::tensor;
SELECT 'int8[1]{1.5}'::tensor;
SELECT 'float32[100000000]{1}'::tensor;
\set VERBOSITY sqlstate
SELECT 'int8[1]{128}'::tensor;
SELECT 'uint8[1]{-1}'::tensor;
SELECT 'uint64[1]{18446744073709551616}'::tensor;
SELECT 'float16[1]{70000}'::tensor;
SELECT 'float32[1]{1e39}'::tensor;
SELECT 'float32[9223372036854775808]{}'::tensor;
SELECT 'float32[1000000000]{1}'::tensor;
SELECT 'float32[4611686018427387904,4611686018427387904]{1}'::tensor;
SELECT ('float32[' || repeat('1,', 32) || '1]{}')::tensor;
\set VERBOSITY default

-- binary form: an NPY file, and no other
SELECT encode('int16[2,2]{{1,2},{3,4}}'::tensor::bytea, 'escape');
SELECT npy('int16[2,2]{{1,2},{3,4}}') = tensor_send('int16[2,2]{{1,2},{3,4}}') AS sent, npy('int16[2,2]{{1,2},{3,4}}')::tensor;
-- big-endian, F order, another header length, NumPy's bool of any byte
CREATE FUNCTION pg_temp.npy(descr text, fortran text, shape text, data bytea) RETURNS bytea LANGUAGE sql AS $$
	SELECT '\x934e554d50590100'::bytea || set_byte('\x0000', 0, length(h)) || convert_to(h, 'UTF8') || data
	FROM (SELECT format(E'{''descr'': ''%s'', ''fortran_order'': %s, ''shape'': %s, }\n', descr, fortran, shape) AS h) s $$;
SELECT pg_temp.npy('>i2', 'False', '(3,)', '\x00010002fffe')::tensor;
SELECT pg_temp.npy('<i2', 'True', '(2, 3)', '\x010002000300040005000600')::tensor;
SELECT pg_temp.npy('>i2', 'True', '(2, 1, 2)', '\x0001000200030004')::tensor;
SELECT pg_temp.npy('|b1', 'False', '(3,)', '\x0002ff')::tensor;
SELECT pg_temp.npy('<f8', 'False', '()', '\x000000000000f83f')::tensor;
\set VERBOSITY sqlstate
SELECT pg_temp.npy('<i2', 'False', '(3,)', '\x0100')::tensor;
SELECT pg_temp.npy('<i2', 'False', '(1,)', '\x010000')::tensor;
SELECT pg_temp.npy('|O', 'False', '(1,)', '\x8003')::tensor;
SELECT pg_temp.npy('<c8', 'False', '(1,)', '\x0000000000000000')::tensor;
SELECT pg_temp.npy('<i2', 'False', '(18446744073709551615, 2)', '\x0100')::tensor;
SELECT '\x80'::bytea::tensor;
SELECT ''::bytea::tensor;
\set VERBOSITY default

-- stored, toasted, copied
CREATE TEMP TABLE tensors (id int, t tensor);
INSERT INTO tensors SELECT 1, (SELECT array_agg(i) FROM generate_series(1, 300000) i)::int[]::tensor;
INSERT INTO tensors VALUES (2, 'float32[2]{1,2}'), (3, 'float32[2]{1,2}'), (4, 'float32[2]{1,3}'), (5, 'float64[2]{1,2}'), (6, 'float32[1,2]{{1,2}}'), (7, NULL);
SELECT pg_column_size(t), shape(t), dtype(t), ndim(t), size(t), element(t, 299999) FROM tensors WHERE id = 1;
SELECT count(*) FROM (SELECT t FROM tensors GROUP BY t) g;
SELECT count(*) FROM (SELECT DISTINCT t FROM tensors) g;
SELECT a.id, b.id FROM tensors a JOIN tensors b USING (t) WHERE a.id < b.id;
SELECT 'float32[1]{0}'::tensor = 'float32[1]{-0}'::tensor AS zeros, 'float32[1]{NaN}'::tensor = 'float32[1]{NaN}'::tensor AS nans, 'float32[1]{0}'::tensor <> 'float64[1]{0}'::tensor AS types;

-- casts to arrays and back: exact or not at all
SELECT 'int32[2,2]{{1,2},{3,4}}'::tensor::float8[], 'float32[2,2]{{1,2},{3,4}}'::tensor::int8[], 'bool[2]{t,f}'::tensor::int8[], 'float16[2]{0.5,NaN}'::tensor::float8[];
SELECT 'float64[]{3}'::tensor::int8[] AS rank_0, 'float64[0,4]{}'::tensor::float8[] AS empty, 'int8[1,1,1,1,1,1]{{{{{{1}}}}}}'::tensor::int8[] AS rank_6;
SELECT ARRAY[[1,2],[3,4]]::tensor, '{}'::float8[]::tensor, ARRAY[1.5,2]::float4[]::tensor, ARRAY[1,2]::int8[]::tensor, '[5:6]={1,2}'::int[]::tensor;
INSERT INTO tensors (t) VALUES (ARRAY[1.5::float8, 2]) RETURNING t;
\set VERBOSITY terse
SELECT 'float32[1]{1.5}'::tensor::int8[];
SELECT 'float32[1]{NaN}'::tensor::int8[];
SELECT 'float64[1]{9223372036854775808}'::tensor::int8[];
SELECT 'int64[1]{9007199254740993}'::tensor::float8[];
SELECT 'int64[1]{9223372036854775807}'::tensor::float8[];
SELECT 'uint64[1]{18446744073709551615}'::tensor::float8[];
SELECT 'uint64[1]{9223372036854775808}'::tensor::int8[];
SELECT 'int8[1,1,1,1,1,1,1]{{{{{{{1}}}}}}}'::tensor::int8[];
SELECT ARRAY[1, NULL]::tensor;
\set VERBOSITY default

-- elements and slices
SELECT element('int32[2,2]{{1,2},{3,4}}', 1, 0), element('float64[]{3}'), element('bool[2]{f,t}', 1), element_numeric('uint64[1]{18446744073709551615}', 0),
	element_numeric('float32[1]{0.1}', 0), element_numeric('float64[1]{0.1}', 0), element_numeric('int8[1]{-7}', 0), element_numeric('float64[1]{NaN}', 0);
SELECT slice('int32[3,4]{{1,2,3,4},{5,6,7,8},{9,10,11,12}}', '{1,1}', '{2,2}'), slice('int32[3,4]{{1,2,3,4},{5,6,7,8},{9,10,11,12}}', '{3,0}', '{0,2}'),
	slice('int8[2,2,2]{{{1,2},{3,4}},{{5,6},{7,8}}}', '{0,1,0}', '{2,1,2}'), slice('float32[]{3}', '{}', '{}');
SELECT element('int32[2,2]{{1,2},{3,4}}', 2, 0);
SELECT element('int32[2,2]{{1,2},{3,4}}', 0);
SELECT element('uint64[1]{18446744073709551615}', 0);
\set VERBOSITY sqlstate
SELECT element('int32[2,2]{{1,2},{3,4}}', 0, -1);
SELECT element('int32[0]{}', 0);
SELECT element('int32[2]{1,2}', VARIADIC '{NULL}'::int8[]);
SELECT slice('int32[3]{1,2,3}', '{1}', '{3}');
SELECT slice('int32[3]{1,2,3}', '{-1}', '{1}');
SELECT slice('int32[3]{1,2,3}', '{1}', '{9223372036854775807}');
SELECT slice('int32[3]{1,2,3}', '{1,1}', '{1,1}');
\set VERBOSITY default

-- statistics
SELECT (stats(t)).* FROM (VALUES ('float32[2,3]{{1,2,3},{4,5,NaN}}'::tensor), ('int8[4]{-1,-2,3,4}'), ('uint64[2]{18446744073709551615,0}'), ('bool[4]{t,f,f,f}'),
	('float64[2]{NaN,NaN}'), ('float64[0]{}'), ('float64[3]{1,Infinity,2}'), ('int64[]{5}'), ('float16[2]{1,2}')) v (t);
SELECT s.valid, s.nan, s.min, s.max, s.mean = 150000.5 AS mean, abs(s.std - sqrt((300000.0 ^ 2 - 1) / 12)) < 1e-6 AS std FROM tensors, stats(t) s WHERE id = 1;

-- previews
SELECT preview('int32[3,4]{{1,2,3,4},{5,6,7,8},{9,10,11,12}}');
SELECT preview('float32[5]{1,NaN,3,4,2}');
SELECT preview('float32[2,2,2]{{{1,2},{3,4}},{{5,6},{7,8}}}'), preview('float32[0]{}'), preview('float32[]{3}');
SELECT max(length(line)) AS widest, count(*) AS lines FROM tensors, regexp_split_to_table(preview(t), '\n') line WHERE id = 1;

-- NULL in, NULL out
SELECT element(NULL::tensor, 0), shape(NULL::tensor), stats(NULL::tensor), preview(NULL::tensor), NULL::tensor::float8[], NULL::float8[]::tensor;
