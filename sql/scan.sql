-- foreign tables: import, hand-written ones, pruning, order, joins, blocks without an index, building one
\getenv tb_data TB_DATA
\set ON_ERROR_STOP 0
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tensorbank;
SET timezone = 'UTC';
SET datestyle = ISO;
SET max_parallel_workers_per_gather = 0;
\set url 'file://' :tb_data
\set index_url 'file://' :tb_data '/scan_index'
\! mkdir -p -m 777 "$TB_DATA/scan_index"
DROP SERVER IF EXISTS scan_files CASCADE;
CREATE SERVER scan_files FOREIGN DATA WRAPPER tensorbank OPTIONS (url :'url', index_url :'index_url');
CREATE SCHEMA scans;
SET search_path = scans, public;

-- a plan, without what differs from run to run and from release to release
CREATE FUNCTION plan(query text, options text DEFAULT 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF') RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE format('EXPLAIN (%s) %s', options, query) LOOP
		CONTINUE WHEN line ~ '(Requests|Bytes|Retries|Memory|Buckets|Buffers|Storage|Heap Fetches|Index Levels|Pruned at Level)';
		RETURN NEXT regexp_replace(line, 'rows=(\d+)\.00', 'rows=\1');
	END LOOP;
END $$;

-- import: with statistics, other blocks, a dimension that grows
IMPORT FOREIGN SCHEMA "weather.zarr" LIMIT TO (weather) FROM SERVER scan_files INTO scans OPTIONS (statistics 'true');
SELECT "column", type, "array", dimension, statistic, bound FROM tensorbank.columns WHERE relation = 'weather'::regclass ORDER BY attnum;
SELECT block, time_min, latitude_min, latitude_max, longitude_min, longitude_max, block_size, block_state FROM weather WHERE block < 3;
CREATE SCHEMA coarse_cells;
IMPORT FOREIGN SCHEMA "weather.zarr" LIMIT TO (weather) FROM SERVER scan_files INTO coarse_cells
	OPTIONS (cell_shape '2,8,10', append_dim 'time');
SELECT block, time_min, time_max, block_size, t FROM coarse_cells.weather;
IMPORT FOREIGN SCHEMA "weather.zarr" FROM SERVER scan_files INTO coarse_cells OPTIONS (statistic 'true');
IMPORT FOREIGN SCHEMA "weather.zarr" FROM SERVER scan_files INTO coarse_cells OPTIONS (statistics 'maybe');
IMPORT FOREIGN SCHEMA "weather.zarr" FROM SERVER scan_files INTO coarse_cells OPTIONS (cell_shape '2,x');
IMPORT FOREIGN SCHEMA "../weather.zarr" FROM SERVER scan_files INTO coarse_cells;

-- tables written by hand: by options, by names, and wrong ones
CREATE FOREIGN TABLE by_option (n bigint OPTIONS (block 'number'), since timestamptz OPTIONS (dimension 'time', bound 'min'),
	temperature tensorbank.tensor_ref OPTIONS (array 't'), warmest double precision OPTIONS (array 't', statistic 'max'))
	SERVER scan_files OPTIONS (path 'weather.zarr');
SELECT * FROM by_option WHERE n = 15;
CREATE FOREIGN TABLE by_name (t tensorbank.tensor_ref, time_max timestamptz, block bigint, t_min double precision, block_size bigint)
	SERVER scan_files OPTIONS (path 'weather.zarr');
SELECT * FROM by_name WHERE block = 15;
CREATE FOREIGN TABLE wrong (t tensorbank.tensor_ref, t_max real) SERVER scan_files OPTIONS (path 'weather.zarr');
\set VERBOSITY sqlstate
SELECT * FROM wrong;
\set VERBOSITY default
SELECT * FROM wrong;
ALTER FOREIGN TABLE wrong DROP COLUMN t_max;
ALTER FOREIGN TABLE wrong ADD COLUMN height_min double precision;
SELECT * FROM wrong;
ALTER FOREIGN TABLE wrong DROP COLUMN height_min, ADD COLUMN note text;
SELECT * FROM wrong;
ALTER FOREIGN TABLE wrong DROP COLUMN note, ADD COLUMN u tensorbank.tensor_ref;
\set VERBOSITY terse
SELECT * FROM wrong;
\set VERBOSITY default
ALTER FOREIGN TABLE wrong DROP COLUMN t, DROP COLUMN u;
SELECT * FROM wrong;
CREATE FOREIGN TABLE wrong_option (t tensorbank.tensor_ref OPTIONS (stat 'max')) SERVER scan_files OPTIONS (path 'weather.zarr');
CREATE FOREIGN TABLE wrong_option (t tensorbank.tensor_ref OPTIONS (array 't', statistic 'median')) SERVER scan_files OPTIONS (path 'weather.zarr');
CREATE FOREIGN TABLE wrong_option (t tensorbank.tensor_ref) SERVER scan_files OPTIONS (paht 'weather.zarr');
CREATE FOREIGN TABLE wrong_option (t tensorbank.tensor_ref) SERVER scan_files OPTIONS (path '../weather.zarr');
CREATE FOREIGN TABLE wrong_option (t tensorbank.tensor_ref) SERVER scan_files OPTIONS (path 'weather.zarr', cell_shape '0');
\set VERBOSITY sqlstate
CREATE FOREIGN TABLE wrong_option (t tensorbank.tensor_ref) SERVER scan_files OPTIONS (paht 'weather.zarr');
CREATE FOREIGN TABLE wrong_option (t tensorbank.tensor_ref) SERVER scan_files OPTIONS (path 'weather.zarr', cell_shape '0');
\set VERBOSITY default

-- blocks without an index: computed, refused, left out with one warning, and not without a limit
SELECT block, t_min, t_max, t_valid, t_nan FROM weather WHERE t_max > 2900;
SET tensorbank.unindexed = error;
SELECT block FROM weather WHERE t_max > 2900;
SELECT count(*) FROM weather WHERE block < 4;
SET tensorbank.unindexed = exclude;
SELECT count(t_max) FROM weather;
SELECT n, (SELECT count(t_max) FROM weather WHERE block <= n) FROM generate_series(1, 3) n;
RESET tensorbank.unindexed;
SET tensorbank.compute_limit = 0;
SELECT block FROM weather WHERE t_max > 2900;
RESET tensorbank.compute_limit;

-- an index: once, and again
CALL tensorbank.build_index('weather', ARRAY['nothing']);
BEGIN;
CALL tensorbank.build_index('weather');
ROLLBACK;
SELECT levels > 0 AS levels, blocks, indexed, parts, parts_done, complete FROM tensorbank.index_status('weather');
ALTER FOREIGN TABLE by_option RENAME COLUMN temperature TO "te mp";
CALL tensorbank.build_index('by_option', part_blocks => 4, workers => 1);
SELECT "column", type, "array", statistic FROM tensorbank.columns WHERE relation = 'by_option'::regclass ORDER BY attnum;
CALL tensorbank.build_index('weather', workers => 0);
SELECT levels > 0 AS levels, blocks, indexed, parts = parts_done AS done, complete FROM tensorbank.index_status('weather');
SELECT relation, state, parts = parts_done AS done FROM tensorbank.index_progress WHERE relation IN ('weather'::regclass, 'by_option'::regclass) ORDER BY 1;
SET tensorbank.unindexed = error;
SELECT block, t_min, t_max, t_mean, t_std, t_valid, t_nan, t_missing, block_state FROM weather WHERE t_max > 2900;
SELECT block, packed_min, packed_max, packed_valid, packed_missing, block_state FROM weather WHERE packed_max IS NULL OR packed_missing > 0;

-- the same rows as a table holds, and the predicate that pruned
CREATE TABLE copy AS SELECT block, block_size, time_min, time_max, latitude_min, latitude_max, longitude_min, t_min, t_max, t_mean, t_std, t_valid,
	t_nan, packed_min, packed_max, label_max FROM weather;
CREATE FUNCTION same(clause text) RETURNS TABLE (rows bigint, same boolean, pushed text) LANGUAGE plpgsql AS $$
DECLARE columns text := 'SELECT block, block_size, time_min, time_max, latitude_min, t_min, t_max, packed_max FROM ';
	here text := 'weather WHERE ' || clause; there text := 'copy weather WHERE ' || clause;
BEGIN
	EXECUTE format('SELECT count(*) FROM %s', here) INTO rows;
	EXECUTE format('SELECT NOT EXISTS (SELECT * FROM ((%1$s%2$s EXCEPT ALL %1$s%3$s) UNION ALL (%1$s%3$s EXCEPT ALL %1$s%2$s)) x)',
				   columns, here, there) INTO same;
	SELECT btrim(p) INTO pushed FROM plan(format('SELECT FROM %s', here), 'COSTS OFF') p WHERE p LIKE '%Pushed:%';
	RETURN NEXT;
END $$;
SELECT clause, s.* FROM (VALUES
	('block < 5.5'), ('block >= 14::numeric'), ('block = 7::float8'), ('block > 1e300'), ('block < ''NaN''::float8'), ('block > 3::smallint'),
	('block IN (1, 3, NULL)'), ('block NOT IN (1, 3)'), ('block NOT IN (1, NULL)'), ('block = ANY (''{}''::int8[])'), ('block <> ALL (''{}''::int8[])'),
	('block = ANY (NULL::int8[])'), ('block BETWEEN 3 AND 5'), ('NOT (block < 14 OR block IS NULL)'), ('block + 1 = 5'), ('block_size <> 20'),
	('t_max > 3070'), ('t_max > 3070::real'), ('t_max >= 39.5::numeric'), ('t_max < ''NaN'''), ('t_max > ''infinity'''), ('t_max = ''NaN'''),
	('t_max - t_min > 34'), ('t_max * 2 < 80'), ('t_mean + 0.5 > t_max'), ('t_std > 14 AND t_nan = 0'), ('t_nan > 0'), ('3070 < t_max'),
	('packed_max IS NULL'), ('packed_max IS NOT NULL AND packed_max < 277'), ('NOT (packed_max > 277)'), ('label_max = 3'), ('label_max = 3.5'),
	('time_min = ''2020-01-01 06:00+00'''), ('time_min < date ''2020-01-02'''), ('time_min >= timestamp ''2020-01-01 12:00'''),
	('time_min < date ''infinity'''), ('time_min > date ''-infinity'''), ('time_min < date ''5874897-01-01'''),
	('time_min < timestamptz ''infinity'''), ('time_min > timestamp ''-infinity'''), ('time_min IN (''2020-01-01'', ''2020-01-01 18:00'')'),
	('latitude_min > 30.1::real'), ('latitude_max <= 35'), ('longitude_min = -10'), ('latitude_min > 30 AND random() < 2'), ('block::float8 < 3.5'),
	('block::numeric = 4.0'), ('t_max > block'), ('false'), ('NULL::boolean')) c (clause), same(clause) s;

-- zones: a local time is an instant of the session
SET timezone = 'Asia/Tokyo';
SELECT * FROM same('time_min < timestamp ''2020-01-01 15:30''');
SELECT * FROM same('time_min < date ''2020-01-02''');
SET timezone = 'UTC';

-- what was skipped
SELECT plan('SELECT block FROM weather WHERE time_min >= ''2020-01-01 18:00+00'' AND latitude_min > 30');
SELECT plan('SELECT block FROM weather WHERE t_max > 3070');

-- parameters: custom and generic plans, functions that are stable, subqueries
SET plan_cache_mode = force_generic_plan;
PREPARE warmer (double precision, int8[]) AS SELECT block FROM weather WHERE t_max > $1 AND block = ANY ($2);
EXECUTE warmer (3000, '{12,13,14,15}');
EXECUTE warmer (3060, '{12,13,14,15}');
EXECUTE warmer (NULL, '{12,13,14,15}');
SELECT plan('EXECUTE warmer (3060, ''{12,13,14,15}'')');
RESET plan_cache_mode;
DEALLOCATE warmer;
SELECT block FROM weather WHERE time_min < now() - interval '1 hour' AND block > (SELECT max(block) - 3 FROM copy);
SELECT n, (SELECT string_agg(block::text, ' ' ORDER BY block) FROM weather WHERE block % 4 = 0 AND t_min >= n * 1000) FROM generate_series(0, 4) n;

-- order: no sort for blocks either way, nor for what follows of the same row; but for what a join adds
SELECT plan('SELECT block, t_max FROM weather ORDER BY block DESC LIMIT 3', 'COSTS OFF');
SELECT block, t_max FROM weather ORDER BY block DESC LIMIT 3;
SELECT plan('SELECT block FROM weather ORDER BY block, time_min DESC, t_max', 'COSTS OFF');
SELECT block FROM weather WHERE t_max > 2000 ORDER BY block LIMIT 2;
CREATE TABLE events (name text, at timestamptz, lat double precision);
INSERT INTO events VALUES ('c', '2020-01-01 06:00', 20), ('a', '2020-01-01 06:00', 25), ('b', '2020-01-01 18:00', 50), ('d', NULL, 3);
SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off;
SELECT w.block, e.name FROM weather w JOIN events e ON w.block < 2 AND e.at IS NOT NULL ORDER BY w.block, e.name;

-- joins: each event prunes anew
SELECT e.name, w.block, w.t_max FROM events e JOIN weather w ON w.time_min <= e.at AND w.time_max >= e.at
	AND w.latitude_min <= e.lat AND w.latitude_max >= e.lat ORDER BY 1, 2;
SELECT plan('SELECT e.name, w.block FROM events e LEFT JOIN weather w ON w.time_min = e.at');
SELECT plan('SELECT e.name, w.block FROM events e LEFT JOIN weather w ON w.time_min = e.at - interval ''6 hours''');
SELECT e.name, count(w.block) FROM events e LEFT JOIN weather w ON w.time_min = e.at - interval '6 hours' GROUP BY 1 ORDER BY 1;
SELECT e.name, w.block, tensorbank.element(tensorbank.read(w.t), 0, 0, 0) FROM events e,
	LATERAL (SELECT * FROM weather WHERE time_min = e.at ORDER BY block LIMIT 2) w ORDER BY 1, 2;
RESET enable_hashjoin; RESET enable_mergejoin; RESET enable_material;
BEGIN;
SELECT w.block, e.name FROM events e JOIN weather w ON w.time_min = e.at AND w.block % 4 = 0 WHERE e.name = 'b' FOR UPDATE OF e;
ROLLBACK;

-- cursors: reading ahead, forth and again
BEGIN;
DECLARE c CURSOR FOR SELECT block, tensorbank.stats(tensorbank.read(t)) AS s FROM weather WHERE t_nan = 0;
FETCH 1 FROM c;
FETCH 3 FROM c;
SAVEPOINT s;
SELECT 1 / 0;
ROLLBACK TO s;
FETCH 2 FROM c;
COMMIT;

-- rights: a view's reader needs none on the table, neither for rows nor for what a cursor brings later; partitions ask for none
CREATE ROLE regress_tb_reader;
CREATE ROLE regress_tb_stranger;
GRANT USAGE ON SCHEMA scans TO regress_tb_reader, regress_tb_stranger;
CREATE VIEW shown AS SELECT block, t FROM weather WHERE block > 10;
CREATE TABLE parted (LIKE weather) PARTITION BY RANGE (block);
ALTER TABLE parted ATTACH PARTITION weather FOR VALUES FROM (0) TO (100);
GRANT SELECT ON shown, parted TO regress_tb_reader;
SET ROLE regress_tb_reader;
SELECT block, tensorbank.element(tensorbank.read(t), 0, 0, 0) FROM shown WHERE block > 13;
BEGIN;
DECLARE c CURSOR FOR SELECT block, tensorbank.element(tensorbank.read(t), 0, 0, 0) FROM shown;
FETCH 1 FROM c;
FETCH 1 FROM c;
FETCH 2 FROM c;
COMMIT;
SELECT count(*) FROM parted WHERE block < 3;
SELECT count(*) FROM weather;
SELECT * FROM tensorbank.index_status('weather');
SELECT relation FROM tensorbank.index_progress;
SET ROLE regress_tb_stranger;
SELECT count(*) FROM shown;
EXPLAIN SELECT count(*) FROM weather;
RESET ROLE;
ALTER TABLE parted DETACH PARTITION weather;

-- columns come and go under a prepared statement
RESET tensorbank.unindexed;
PREPARE p AS SELECT * FROM by_name WHERE block = 3;
EXECUTE p;
ALTER FOREIGN TABLE by_name DROP COLUMN time_max;
ALTER FOREIGN TABLE by_name RENAME COLUMN block_size TO elements;
SELECT * FROM by_name WHERE block = 3;
ALTER FOREIGN TABLE by_name ALTER COLUMN elements OPTIONS (ADD block 'size');
SELECT * FROM by_name WHERE block = 3;

-- file names may be any bytes, names in the catalog may not
\! mkdir -p "$TB_DATA/bytes.zarr" && cp -r "$TB_DATA/odd.zarr/v" "$TB_DATA/odd.zarr/x" "$TB_DATA/bytes.zarr"
\! cp -r "$TB_DATA/odd.zarr/v" "$TB_DATA/bytes.zarr/$(printf 'v\377')"
\! echo '{"zarr_format":3,"node_type":"group","attributes":{}}' >"$TB_DATA/bytes.zarr/zarr.json"
\! chmod -R a+rX "$TB_DATA/bytes.zarr"
IMPORT FOREIGN SCHEMA "bytes.zarr" FROM SERVER scan_files INTO scans;
SELECT "column" FROM tensorbank.columns WHERE relation = 'bytes'::regclass ORDER BY attnum;

-- the place of the index is gone: slower, and said so; but nothing can be built there
\set nowhere 'file://' :tb_data '/nowhere'
ALTER SERVER scan_files OPTIONS (SET index_url :'nowhere');
\set VERBOSITY terse
SELECT block, t_max FROM weather WHERE t_max > 3070;
\set VERBOSITY sqlstate
CALL tensorbank.build_index('weather');
\set VERBOSITY default

DROP SCHEMA scans, coarse_cells CASCADE;
DROP SERVER scan_files;
DROP ROLE regress_tb_reader, regress_tb_stranger;
