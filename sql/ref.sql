-- tensor_ref: text form, making, regions, rights at use, reading
\getenv tb_data TB_DATA
\set ON_ERROR_STOP 0
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tensorbank;
SET timezone = 'UTC';
\set url 'file://' :tb_data
DROP SERVER IF EXISTS ref_files CASCADE;
CREATE SERVER ref_files FOREIGN DATA WRAPPER tensorbank OPTIONS (url :'url');
CREATE SCHEMA refs;
IMPORT FOREIGN SCHEMA "weather.zarr" FROM SERVER ref_files INTO refs;
IMPORT FOREIGN SCHEMA "odd.zarr" FROM SERVER ref_files INTO refs;
IMPORT FOREIGN SCHEMA "broken.zarr" FROM SERVER ref_files INTO refs;
SET search_path = tensorbank, public;

-- the whole array, and what a ref is
SELECT r, shape(r), origin(r), dtype(r), ndim(r), size(r) FROM ref('refs.weather', 't') r;
SELECT c AS column, ref('refs.weather', c), read(ref('refs.weather', c)) IS NOT NULL AS readable
FROM unnest(ARRAY['t', 'packed', 'label']) c;
\set VERBOSITY sqlstate
SELECT ref('refs.weather', 'none');
SELECT ref('refs.weather', 'block');
SELECT ref('pg_class', 'relname');
\set VERBOSITY default

-- the text form: qualified, quoted where needed, resolved when read
SELECT 'refs.weather.t[0:1,2:4,3:6] float32'::tensor_ref;
SELECT '  REFS."weather" . T [ 0:1 , 2:4,3:6 ]  float32 '::tensor_ref;
SELECT 'refs.weather.packed[0:1,0:2,0:2] int16 raw'::tensor_ref, 'refs.weather.packed[0:1,0:2,0:2] float32 cast'::tensor_ref,
	'refs.weather.packed[0:1,0:2,0:2] int32 raw cast'::tensor_ref;
ALTER FOREIGN TABLE refs.weather RENAME TO "We ather";
ALTER FOREIGN TABLE refs."We ather" RENAME COLUMN t TO "T""x";
SELECT r, r::text::tensor_ref = r AS round_trip FROM ref('refs."We ather"', 'T"x') r;
ALTER FOREIGN TABLE refs."We ather" RENAME COLUMN "T""x" TO t;
ALTER FOREIGN TABLE refs."We ather" RENAME TO weather;
SELECT 'refs.weather.t'::tensor_ref;
SELECT 'refs.weather.t[0:1'::tensor_ref;
SELECT 'refs.weather.t[1:0] float32'::tensor_ref;
SELECT 'refs.weather.t[-1:0] float32'::tensor_ref;
SELECT 'refs.weather.t[0:99999999999999999999] float32'::tensor_ref;
SELECT 'refs.weather.t[0:1] complex'::tensor_ref;
SELECT 'refs.weather.t[0:1] float32 pickled'::tensor_ref;
SELECT 'weather.t[0:1] float32'::tensor_ref;
SELECT 'refs.nothing.t[0:1] float32'::tensor_ref;
SELECT 'nowhere.weather.t[0:1] float32'::tensor_ref;
SELECT 'refs.weather.nothing[0:1] float32'::tensor_ref;
SELECT 'refs.weather.block[0:1] float32'::tensor_ref;
SELECT 'pg_catalog.pg_class.relname[0:1] float32'::tensor_ref;

-- comparing
SELECT count(DISTINCT r), count(*) FROM (VALUES ('refs.weather.t[0:1,0:2,0:2] float32'::tensor_ref),
	('refs.weather.t[0:1,0:2,0:2] float32'), ('refs.weather.t[0:1,0:2,0:3] float32'), ('refs.weather.t[0:1,0:2,0:2] float64 cast')) v (r);
SELECT r FROM (VALUES ('refs.weather.t[0:1,0:2,0:3] float32'::tensor_ref), ('refs.weather.t[0:1,0:2,0:2] float32')) v (r) ORDER BY r;

-- values: as xarray gives them, raw, cast
SELECT read('refs.weather.t[0:2,0:2,2:5] float32'::tensor_ref);
SELECT read('refs.weather.packed[0:1,0:2,0:3] float64'::tensor_ref);
SELECT read(raw('refs.weather.packed[0:1,0:2,0:3] float64'));
SELECT read(as_type('refs.weather.packed[1:2,0:1,0:3] float64', 'float32')) AS cast, read(as_type(raw('refs.weather.packed[1:2,0:1,0:3] float64'), 'int64')) AS raw_cast;
SELECT stats(read('refs.weather.packed[3:4,4:8,5:10] float64'::tensor_ref)) AS never_written;
SELECT read('refs.weather.label[3:4,3:6,4:7] uint8'::tensor_ref);
SELECT read('refs.odd_x.v[0:3] int64'::tensor_ref), read('refs.odd_z.w[0:2] uint64'::tensor_ref);
SELECT stats(read(ref('refs.weather', 't')));
SELECT shape(read('refs.weather.t[0:0,0:2,0:2] float32'::tensor_ref));
SELECT count(*), sum(element(read(crop(ref('refs.weather', 't'), ARRAY[k, 7, 9], '{1,1,1}')), 0, 0, 0)) FROM generate_series(0, 3) k;
SELECT read(as_type('refs.weather.t[1:2,0:1,0:2] float32', 'int8'));
SELECT as_type(ref('refs.weather', 't'), 'complex64');
SELECT read(NULL::tensor_ref), ref(NULL, 't'), region(NULL::tensor_ref, 'time', 1);

-- refs that do not fit their array
SELECT read('refs.weather.t[0:5,0:2,0:2] float32'::tensor_ref);
SELECT read('refs.weather.t[0:1,0:2] float32'::tensor_ref);
SELECT read('refs.weather.t[0:1,0:2,0:2] float64'::tensor_ref);

-- crop: relative, outside NULL
SELECT crop('refs.weather.t[1:3,2:6,0:10] float32', '{1,1,5}', '{1,2,5}');
SELECT crop('refs.weather.t[1:3,2:6,0:10] float32', '{1,1,5}', '{2,2,5}') IS NULL AS outside,
	crop('refs.weather.t[1:3,2:6,0:10] float32', '{-1,1,5}', '{1,2,5}') IS NULL AS before;
\set VERBOSITY sqlstate
SELECT crop('refs.weather.t[1:3,2:6,0:10] float32', '{1,1}', '{1,2}');
SELECT crop('refs.weather.t[1:3,2:6,0:10] float32', '{1,1,0}', '{1,2,0}');
SELECT crop('refs.weather.t[1:3,2:6,0:10] float32', '{1,1,NULL}', '{1,2,3}');
\set VERBOSITY default

-- region: indexes, coordinate ranges, single values, counts
CREATE VIEW refs.block AS SELECT 'refs.weather.t[1:2,0:4,0:5] float32'::tensor_ref AS t;
SELECT region(t, 'time', int4range(0, 3)) FROM refs.block;
SELECT region(t, 'time', int8range(2, NULL), 'longitude', 9) FROM refs.block;
SELECT region(t, 'time', int4range(0, 5)) IS NULL AS outside, region(t, 'longitude', 10) IS NULL AS behind, region(t, 'longitude', -1) IS NULL AS before FROM refs.block;
SELECT region(t, 'time', tstzrange('2020-01-01 06:00', '2020-01-01 18:00')) AS half_open,
	region(t, 'time', tstzrange('2020-01-01 06:00', '2020-01-01 18:00', '[]')) AS closed FROM refs.block;
SELECT region(t, 'time', tstzrange('2020-01-01 06:00', '2020-01-01 18:00', '()')) AS open,
	region(t, 'time', tstzrange('-infinity', NULL)) AS unbounded, region(t, 'time', daterange('2020-01-01', '2020-01-02')) AS day FROM refs.block;
SELECT region(t, 'time', '2020-01-01 12:00'::timestamptz) AS exact, region(t, 'time', '2020-01-01 12:01'::timestamptz) IS NULL AS unmatched FROM refs.block;
-- descending float32 coordinate, ascending float64
SELECT region(t, 'latitude', numrange(30.1, 50.1)) AS half_open, region(t, 'latitude', numrange(30.1, 50.1, '[]')) AS closed FROM refs.block;
SELECT region(t, 'latitude', numrange(NULL, 20)) AS south, region(t, 'latitude', 40.1) AS exact, region(t, 'latitude', 40.1::float4) AS single, region(t, 'latitude', 40.2) IS NULL AS unmatched FROM refs.block;
SELECT region(t, 'longitude', numrange(-4, 4)) AS west, region(t, 'longitude', numrange(-4, 4), 4) AS four, region(t, 'longitude', numrange(-4, 4), 5) IS NULL AS not_five FROM refs.block;
SELECT region(t, 'longitude', numrange(-3.9, -3.1)) IS NULL AS between, region(t, 'longitude', 'empty'::numrange) IS NULL AS empty FROM refs.block;
SELECT read(region(t, 'time', '2020-01-01 18:00'::timestamptz, 'latitude', numrange(0, 11), 'longitude', numrange(6, NULL))) FROM refs.block;
-- without coordinate the index is the coordinate; not monotonic
SELECT region(ref('refs.odd_z', 'w'), 'z', numrange(1, 3)), region(ref('refs.odd_z', 'w'), 'z', 2.0), region(ref('refs.odd_z', 'w'), 'z', 2.5) IS NULL AS none;
SELECT region(ref('refs.odd_x', 'v'), 'x', numrange(1, 3)), region(ref('refs.odd_x', 'v'), 'x', 1.0);
SELECT region(ref('refs.odd_x', 'v'), 'x', numrange(0, 1, '[]'));
SELECT region(ref('refs.odd_x', 'v'), 'x', 5.0);
SELECT region(t, 'depth', 1) FROM refs.block;
SELECT region(t, 'time') FROM refs.block;
SELECT region(t, 1, 'time') FROM refs.block;
SELECT region(t, 'time', numrange(1, 2)) FROM refs.block;
SELECT region(t, 'latitude', tstzrange('2020-01-01', NULL)) FROM refs.block;
SELECT region(t, 'time', '2020-01-01') FROM refs.block;
SELECT region(t, 'time', int4range(0, 3), 0) FROM refs.block;
SELECT region(t, 'time', NULL::int4range) IS NULL AS "null" FROM refs.block;

-- shift and align
SELECT shift(t, 'time', 2) AS by_index, shift(t, 'time', 2::bigint) AS by_bigint, shift(t, 'time', 3) IS NULL AS outside, shift(t, 'time', -2) IS NULL AS before FROM refs.block;
SELECT shift(t, 'time', interval '6 hours') AS later, shift(t, 'time', interval '-6 hours') AS earlier, shift(t, 'time', interval '5 hours') IS NULL AS unmatched, shift(t, 'time', interval '1 day') IS NULL AS outside FROM refs.block;
SELECT shift(t, 'longitude', 4.0) AS east, shift(t, 'latitude', -20.0) AS south, shift(t, 'latitude', 10.0) IS NULL AS outside, shift(t, 'longitude', 1.0) IS NULL AS unmatched FROM refs.block;
SELECT shift(t, 'time', 1.5) FROM refs.block;
SELECT shift(t, 'latitude', interval '1 day') FROM refs.block;
SELECT shift(t, 'depth', 1) FROM refs.block;
SELECT align(ref('refs.coarse', 't2'), t) FROM refs.block;
SELECT align(t, crop(ref('refs.coarse', 't2'), '{1,1}', '{2,2}')) FROM refs.block;
SELECT align(ref('refs.odd_z', 'w'), t) AS nothing_shared FROM refs.block;
SELECT align(ref('refs.coarse', 't2'), region(t, 'longitude', 1)) IS NULL AS unmatched FROM refs.block;

-- where the bytes are
SELECT chunk, replace(url, :'tb_data', '') AS url, "offset", length IS NULL AS whole, codecs, missing FROM location(crop(ref('refs.weather', 'packed'), '{3,3,4}', '{1,2,2}'));
SELECT chunk, replace(url, :'tb_data', '') AS url, "offset" >= 0 AS placed, length > 0 AS some, codecs, missing FROM location(ref('refs.coarse', 't2'));

-- damaged chunks: the message names object and chunk; the others are read
SELECT read('refs.broken.v[0:2] float32'::tensor_ref);
SELECT read('refs.broken.v[0:4] float32'::tensor_ref);
SELECT read('refs.broken.v[4:5] float32'::tensor_ref);
SELECT read('refs.broken.v[7:8] float32'::tensor_ref);
\set VERBOSITY sqlstate
SELECT read(v) FROM refs.broken WHERE block = 1;
SELECT read(v) FROM refs.broken WHERE block = 2;
SELECT read(v) FROM refs.broken WHERE block = 3;
\set VERBOSITY default

-- rows of the table
SELECT block, t, read(t) IS NOT NULL AS read FROM refs.weather WHERE block < 3 ORDER BY block;
SELECT sum((stats(read(t))).valid) FROM refs.weather;
SELECT count(*) FROM refs.weather WHERE element(read(t), 0, 0, 0) >= 2000;

-- rights: a view is a filter, what reaches beyond the row is not
CREATE ROLE ref_reader;
GRANT USAGE ON SCHEMA refs TO ref_reader;
CREATE VIEW refs.some AS SELECT block, t FROM refs.weather WHERE block = 1;
CREATE VIEW refs.made AS SELECT ref('refs.weather', 't') AS t;
GRANT SELECT ON refs.some, refs.made TO ref_reader;
CREATE TABLE refs.stored AS SELECT t FROM refs.some;
GRANT SELECT ON refs.stored TO ref_reader;
CREATE FUNCTION refs.first() RETURNS tensor LANGUAGE sql SECURITY DEFINER SET search_path = tensorbank, pg_temp
	AS $$ SELECT read(t) FROM refs.weather WHERE block = 0 $$;
SET ROLE ref_reader;
SELECT shape(read(t)), stats(read(t)) FROM refs.some;
SELECT read(crop(t, '{0,0,0}', '{1,1,2}')), read(as_type(raw(crop(t, '{0,0,0}', '{1,1,2}')), 'float64')) FROM refs.some;
SELECT shape(refs.first());
SELECT read(t) FROM refs.weather;
SELECT read(region(t, 'time', 0)) FROM refs.some;
SELECT shift(t, 'time', 1) FROM refs.some;
SELECT url FROM refs.some, location(t);
SELECT read(t::text::tensor_ref) FROM refs.some;
SELECT read(t) FROM refs.stored;
SELECT t FROM refs.made;
SELECT * FROM location('refs.weather.t[0:1,0:2,0:2] float32'::tensor_ref);
SELECT ref('refs.weather', 't');
RESET ROLE;
GRANT SELECT (t) ON refs.weather TO ref_reader;
SET ROLE ref_reader;
SELECT shape(read(t)) FROM refs.stored;
SELECT shape(read('refs.weather.t[0:1,0:2,0:2] float32'::tensor_ref));
SELECT read('refs.weather.label[0:1,0:2,0:2] uint8'::tensor_ref);
RESET ROLE;

-- the table goes, the ref stays, reading says so
CREATE FOREIGN TABLE refs.gone (v tensor_ref OPTIONS (array 'v'), v2 tensor_ref OPTIONS (array 'v')) SERVER ref_files OPTIONS (path 'odd.zarr');
CREATE TABLE refs.kept AS SELECT ref('refs.gone', 'v2') AS r;
SELECT read(r) FROM refs.kept;
ALTER FOREIGN TABLE refs.gone DROP COLUMN v2;
SELECT regexp_replace(r::text, '\d+', 'N') FROM refs.kept;
SELECT read(r) FROM refs.kept;
DROP FOREIGN TABLE refs.gone;
SELECT regexp_replace(r::text, '"\d+"', '"N"', 'g') FROM refs.kept;
\set VERBOSITY sqlstate
SELECT read(r) FROM refs.kept;
SELECT '"?"."99"."1"[0:1] float32'::tensor_ref;
\set VERBOSITY default

-- reading ahead: errors between, subtransactions, a scan inside another's rows, rescans
DO $$
DECLARE
	r record;
	failed int := 0;
	valid bigint := 0;
	inner_valid bigint := 0;
BEGIN
	FOR r IN SELECT block, t FROM refs.weather ORDER BY block LOOP
		BEGIN
			valid := valid + (tensorbank.stats(tensorbank.read(r.t))).valid;
			PERFORM tensorbank.read(t), 1 / (block - 3) FROM refs.weather;
		EXCEPTION WHEN division_by_zero THEN
			failed := failed + 1;
		END;
		inner_valid := inner_valid + (SELECT sum((tensorbank.stats(tensorbank.read(w.t))).valid) FROM refs.weather w WHERE w.block = r.block);
	END LOOP;
	-- PL variables of the failed subtransactions were not rolled back, the table's rows never are
	RAISE WARNING '% failed, % and % valid', failed, valid, inner_valid;
END $$;
SELECT sum((stats(read(w.t))).valid) FROM generate_series(0, 15) b, LATERAL (SELECT t FROM refs.weather WHERE block = b OFFSET 0) w;
BEGIN;
DECLARE ahead CURSOR FOR SELECT block, element(read(t), 0, 0, 0) FROM refs.weather;
FETCH 2 FROM ahead;
SAVEPOINT before;
FETCH 2 FROM ahead;
SELECT 1 / 0;
ROLLBACK TO before;
SELECT (stats(read(t))).max FROM refs.weather WHERE block = 15;
ROLLBACK;
SET tensorbank.read_ahead = 0;
SELECT sum((stats(read(t))).valid) FROM refs.weather;
RESET tensorbank.read_ahead;

DROP SCHEMA refs CASCADE;
DROP SERVER ref_files CASCADE;
DROP ROLE ref_reader;
