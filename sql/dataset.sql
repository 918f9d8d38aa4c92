-- datasets: freezing a query, what is refused, order, catalog, rights
\getenv tb_data TB_DATA
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tensorbank;
\set url 'file://' :tb_data
CREATE SERVER ds_files FOREIGN DATA WRAPPER tensorbank OPTIONS (url :'url');
CREATE SCHEMA ds;
IMPORT FOREIGN SCHEMA "weather.zarr" FROM SERVER ds_files INTO ds;

-- kinds of columns; the hash is one of the content, not of the name or the plan's order
SELECT length(tensorbank.create_dataset('first', $$
	SELECT t, label, block, latitude_min::real AS lat, block > 3 AS late, time_min, block::numeric / 4 AS quarter, NULL::text AS nothing
	FROM ds.weather $$));
SELECT samples, jsonb_pretty(columns) FROM tensorbank.datasets WHERE name = 'first';
SELECT tensorbank.create_dataset('same_a', 'SELECT t, block FROM ds.weather') = tensorbank.create_dataset('same_b',
	'SELECT * FROM (SELECT t, block FROM ds.weather WHERE block >= 8 UNION ALL SELECT t, block FROM ds.weather WHERE block < 8) x') AS same;
SELECT tensorbank.create_dataset('turned', 'SELECT t, block FROM ds.weather ORDER BY block DESC') <> hash AS differs
FROM tensorbank.datasets WHERE name = 'same_a';
-- times go as text in one form, whatever the session's settings
SET timezone = 'Asia/Tokyo';
SET datestyle = 'German';
SELECT tensorbank.create_dataset('zone', $$
	SELECT t, label, block, latitude_min::real AS lat, block > 3 AS late, time_min, block::numeric / 4 AS quarter, NULL::text AS nothing
	FROM ds.weather $$) = hash AS same FROM tensorbank.datasets WHERE name = 'first';
RESET timezone;
RESET datestyle;

-- parameters get the types that their places ask for
SELECT length(tensorbank.create_dataset('with_params', 'SELECT t FROM ds.weather WHERE latitude_min > $1 AND time_min = ANY ($2)',
	ARRAY['30.05', '{2020-01-01 00:00+00,2020-01-01 12:00+00}']));
SELECT samples, params FROM tensorbank.datasets WHERE name = 'with_params';
SELECT tensorbank.create_dataset('x', 'SELECT t FROM ds.weather WHERE latitude_min > $1');
SELECT tensorbank.create_dataset('x', 'SELECT t FROM ds.weather WHERE latitude_min > $1', '{1,2}');
SELECT tensorbank.create_dataset('x', 'SELECT t FROM ds.weather WHERE latitude_min > $1', '{high}');

-- what is no query for a dataset
SELECT tensorbank.create_dataset('first', 'SELECT t FROM ds.weather');
SELECT tensorbank.create_dataset('x', 'SELECT t FROM ds.weather; SELECT 1');
SELECT tensorbank.create_dataset('x', '');
SELECT tensorbank.create_dataset('x', 'SELECT t FRO ds.weather');
SELECT tensorbank.create_dataset('x', 'EXPLAIN SELECT t FROM ds.weather');
SELECT tensorbank.create_dataset('x', 'SELECT t, missing FROM ds.weather');
SELECT tensorbank.create_dataset('x', NULL);
CREATE TABLE ds.notes (n int);
CREATE SEQUENCE ds.counter;
CREATE FUNCTION ds.note() RETURNS int LANGUAGE sql AS 'INSERT INTO ds.notes VALUES (1) RETURNING n';
\set VERBOSITY sqlstate
SELECT tensorbank.create_dataset('x', 'INSERT INTO ds.notes VALUES (1)');
SELECT tensorbank.create_dataset('x', 'DROP TABLE ds.notes');
SELECT tensorbank.create_dataset('x', 'SELECT t INTO ds.copy FROM ds.weather');
SELECT tensorbank.create_dataset('x', 'WITH w AS (DELETE FROM ds.notes RETURNING n) SELECT t, n FROM ds.weather, w');
SELECT tensorbank.create_dataset('x', 'SELECT t, n FROM ds.weather, (SELECT n FROM ds.notes FOR UPDATE) x');
SELECT tensorbank.create_dataset('x', 'SELECT t, nextval(''ds.counter'') FROM ds.weather');
SELECT tensorbank.create_dataset('x', 'SELECT t, ds.note() FROM ds.weather');
-- and afterwards one may write again
INSERT INTO ds.notes VALUES (2);
SELECT count(*) FROM ds.notes;
\set VERBOSITY default

-- rows that do not fit
SELECT tensorbank.create_dataset('x', 'SELECT CASE WHEN block <> 3 THEN t END AS t, label FROM ds.weather');
SELECT tensorbank.create_dataset('x', $$ SELECT CASE WHEN block % 8 = 0 THEN tensorbank.crop(t, '{0,0,0}', '{1,2,2}')
	WHEN block = 1 THEN tensorbank.as_type(t, 'float64') ELSE t END AS t FROM ds.weather $$);
SELECT tensorbank.create_dataset('x', 'SELECT t, t FROM ds.weather');
SELECT tensorbank.create_dataset('x', 'SELECT block FROM ds.weather');
SELECT tensorbank.create_dataset('x', 'SELECT ARRAY[t, t] AS t, label FROM ds.weather');
SELECT tensorbank.create_dataset('x', 'SELECT t FROM ds.weather WHERE block < 0');
SELECT tensorbank.create_dataset('x', 'SELECT t FROM ds.weather', shape_policy => 'concat');
SELECT tensorbank.create_dataset('x', 'SELECT t FROM ds.weather', shape_policy => 'any');
SELECT name FROM tensorbank.datasets WHERE name = 'x';

-- rights: EXECUTE is granted, the caller reads the tables, a view stands for its owner
CREATE ROLE ds_trainer;
CREATE ROLE ds_other;
CREATE VIEW ds.north AS SELECT t, block FROM ds.weather WHERE latitude_min > 30;
GRANT USAGE ON SCHEMA ds TO ds_trainer, ds_other;
GRANT SELECT ON ds.north TO ds_trainer;
SET ROLE ds_trainer;
SELECT tensorbank.create_dataset('mine', 'SELECT t FROM ds.north');
RESET ROLE;
GRANT EXECUTE ON FUNCTION tensorbank.create_dataset, tensorbank.open_stream, tensorbank.next_batch TO ds_trainer, ds_other;
SET ROLE ds_trainer;
SELECT length(tensorbank.create_dataset('mine', 'SELECT t, block FROM ds.north'));
SELECT tensorbank.create_dataset('x', 'SELECT t FROM ds.weather');
SELECT name, owner, samples FROM tensorbank.datasets;
SELECT count(*) FROM tensorbank.dataset;
SELECT tensorbank.drop_dataset('first');
SELECT tensorbank.grant_dataset('first', 'ds_trainer');
SELECT tensorbank.open_stream('first');
SET ROLE ds_other;
SELECT tensorbank.open_stream('mine');
SET ROLE ds_trainer;
SELECT tensorbank.grant_dataset('mine', 'ds_other');
SELECT tensorbank.grant_dataset('mine', 'ds_nobody');
SET ROLE ds_other;
SELECT name, owner, samples FROM tensorbank.datasets;
SELECT tensorbank.drop_dataset('mine');
RESET ROLE;
-- the owner lost the right: nobody opens it
REVOKE SELECT ON ds.north FROM ds_trainer;
SET ROLE ds_other;
SELECT tensorbank.open_stream('mine');
SET ROLE ds_trainer;
SELECT tensorbank.open_stream('mine');
SELECT tensorbank.revoke_dataset('mine', 'ds_other');
SELECT tensorbank.drop_dataset('mine');
SELECT tensorbank.drop_dataset('mine');
RESET ROLE;

SELECT tensorbank.drop_dataset(name) FROM tensorbank.datasets ORDER BY name;
SELECT count(*) FROM tensorbank.datasets;
DROP OWNED BY ds_trainer, ds_other;
DROP ROLE ds_trainer, ds_other;
DROP SCHEMA ds CASCADE;
DROP SERVER ds_files CASCADE;
