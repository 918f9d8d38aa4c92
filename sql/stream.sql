-- streams and handles by SQL: batches, ranks, tails, resume, release, what ends a handle
\getenv tb_data TB_DATA
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS tensorbank;
\set url 'file://' :tb_data
CREATE SERVER st_files FOREIGN DATA WRAPPER tensorbank OPTIONS (url :'url');
CREATE SCHEMA st;
IMPORT FOREIGN SCHEMA "weather.zarr" FROM SERVER st_files INTO st;
SELECT length(tensorbank.create_dataset('st_all', 'SELECT t, label, block, latitude_min > 30 AS north FROM st.weather'));

-- a stream to its end; state without the hash, which holds the store's path
SELECT stream AS s, length(token) AS token, batches FROM tensorbank.open_stream('st_all', batch_size => 6, prefetch => 3, tail => 'ragged') \gset
SELECT :token AS token, :batches AS batches;
SELECT batch, cardinality(tensors) AS tensors, names, scalars, state::jsonb - 'dataset' AS state FROM tensorbank.next_batch(:s);
SELECT batch, scalars -> 'block' AS block FROM tensorbank.next_batch(:s);
SELECT tensors AS t2, state FROM tensorbank.next_batch(:s) \gset
-- every slot is held now, and the end needs none
SELECT * FROM tensorbank.next_batch(:s);

-- what is in a batch equals what read() gives
SELECT bool_and(same) AS same FROM (
	SELECT tensorbank.element(b.t, i, 0, y, x) IS NOT DISTINCT FROM tensorbank.element(r.t, 0, y, x) AS same
	FROM (SELECT tensorbank.read((:'t2'::tensorbank.handle[])[1]) AS t) b,
		(SELECT block - 12 AS i, tensorbank.read(t) AS t FROM st.weather WHERE block >= 12) r,
		generate_series(0, 3) y, generate_series(0, 4) x) e;
SELECT tensorbank.shape(tensorbank.read((:'t2'::tensorbank.handle[])[2]));
-- a slot goes back when all its tensors are released; a released handle is none
SELECT tensorbank.release((:'t2'::tensorbank.handle[])[1]);
SELECT tensorbank.read((:'t2'::tensorbank.handle[])[1]);
SELECT tensorbank.shape(tensorbank.read((:'t2'::tensorbank.handle[])[2]));
SELECT tensorbank.release(:'t2'::tensorbank.handle[]);
SELECT tensorbank.release((:'t2'::tensorbank.handle[])[2]);
SELECT tensorbank.release((:'t2'::tensorbank.handle[])[2]);
SELECT tensorbank.close_stream(:s);
SELECT tensorbank.close_stream(:s);
SELECT * FROM tensorbank.next_batch(:s);

-- when every slot is held and more is to come, next_batch says so
SELECT stream AS s FROM tensorbank.open_stream('st_all', batch_size => 1, prefetch => 2) \gset
SELECT tensors AS one FROM tensorbank.next_batch(:s) \gset
SELECT count(*) FROM tensorbank.next_batch(:s);
\set VERBOSITY sqlstate
SELECT * FROM tensorbank.next_batch(:s);
\set VERBOSITY default
SELECT tensorbank.release(:'one'::tensorbank.handle[]);
SELECT batch, scalars FROM tensorbank.next_batch(:s);
SELECT tensorbank.close_stream(:s);

-- ranks share each epoch; tails; an epoch's order is its own
CREATE FUNCTION st.blocks(seed bigint, epoch bigint, rank int, world int, size int, tail text, state text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	s bigint;
	b record;
	result text := '';
BEGIN
	SELECT stream INTO s FROM tensorbank.open_stream('st_all', batch_size => size, shuffle => 'full', seed => seed, epoch => epoch,
		rank => rank, world_size => world, tail => tail, state => state);
	LOOP
		SELECT * INTO b FROM tensorbank.next_batch(s);
		EXIT WHEN NOT FOUND;
		result := result || (b.scalars ->> 'block');
		PERFORM tensorbank.release(b.tensors);
	END LOOP;
	PERFORM tensorbank.close_stream(s);
	RETURN result;
END $$;
SELECT epoch, tail, rank, st.blocks(7, epoch, rank, 2, 3, tail)
FROM generate_series(0, 1) epoch, unnest(ARRAY['drop', 'pad', 'ragged']) WITH ORDINALITY tail (tail, o), generate_series(0, 1) rank
ORDER BY epoch, o, rank;
-- resume: one rank reads a batch, two ranks go on
SELECT stream AS s FROM tensorbank.open_stream('st_all', batch_size => 4, shuffle => 'full', seed => 7) \gset
SELECT scalars ->> 'block' AS block, state FROM tensorbank.next_batch(:s) \gset
SELECT :'block' AS done, st.blocks(0, 0, 0, 2, 3, 'ragged', :'state') AS rank_0, st.blocks(0, 0, 1, 2, 3, 'ragged', :'state') AS rank_1;
SELECT tensorbank.close_stream(:s);

-- the workers of a loader share the batches of their rank
CREATE FUNCTION st.numbers(worker int, workers int) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	s bigint;
	total bigint;
	b record;
	result text := '';
BEGIN
	SELECT stream, batches INTO s, total FROM tensorbank.open_stream('st_all', shuffle => 'full', seed => 7, worker => worker, workers => workers);
	LOOP
		SELECT * INTO b FROM tensorbank.next_batch(s);
		EXIT WHEN NOT FOUND;
		result := result || b.batch || (b.scalars ->> 'block') || ' ';
		PERFORM tensorbank.release(b.tensors);
	END LOOP;
	PERFORM tensorbank.close_stream(s);
	RETURN total || ': ' || result;
END $$;
SELECT workers, worker, st.numbers(worker, workers) FROM (VALUES (1, 0), (3, 0), (3, 1), (3, 2)) w (workers, worker);

-- arguments
SELECT tensorbank.open_stream('st_all', worker => 2, workers => 2);
SELECT tensorbank.open_stream('st_all', workers => 0);
SELECT tensorbank.open_stream();
SELECT tensorbank.open_stream('st_all', query => 'SELECT t FROM st.weather');
SELECT tensorbank.open_stream('st_none');
SELECT tensorbank.open_stream('st_all', params => '{1}');
SELECT tensorbank.open_stream('st_all', batch_size => 0);
SELECT tensorbank.open_stream('st_all', rank => 1);
SELECT tensorbank.open_stream('st_all', world_size => 0);
SELECT tensorbank.open_stream('st_all', prefetch => 0);
SELECT tensorbank.open_stream('st_all', shuffle => 'some');
SELECT tensorbank.open_stream('st_all', shuffle => NULL);
SELECT tensorbank.open_stream('st_all', tail => 'cut');
\set VERBOSITY sqlstate
SELECT tensorbank.open_stream('st_all', device => 'cuda');
SELECT tensorbank.open_stream('st_all', shuffle => 'near');
SELECT tensorbank.open_stream('st_all', state => 'now');
SELECT tensorbank.open_stream('st_all', state => replace(:'state', substr(:'state', 20, 6), '000000'));
SELECT tensorbank.open_stream(query => 'SELECT t FROM st.weather', world_size => 2);
SELECT tensorbank.open_stream(query => 'DELETE FROM pg_class');
\set VERBOSITY default

-- an anonymous dataset
SELECT stream AS s FROM tensorbank.open_stream(query => 'SELECT t, block FROM st.weather WHERE block > $1', params => '{12}', batch_size => 2) \gset
SELECT names, scalars FROM tensorbank.next_batch(:s);
SELECT tensorbank.renew_stream(:s);
SELECT tensorbank.close_stream(:s);

-- single tensors
BEGIN;
SELECT tensorbank.load(t) AS h FROM st.weather WHERE block = 5 \gset
SELECT tensorbank.wait(:'h'::tensorbank.handle);
SELECT tensorbank.read(:'h'::tensorbank.handle) OPERATOR(tensorbank.=) tensorbank.read(t) AS same FROM st.weather WHERE block = 5;
SAVEPOINT before;
SELECT tensorbank.load(tensorbank.as_type(tensorbank.crop(t, '{0,1,1}', '{1,2,3}'), 'float64')) AS h2 FROM st.weather WHERE block = 5 \gset
SELECT tensorbank.wait(ARRAY[:'h', :'h2']::tensorbank.handle[]);
SELECT tensorbank.read(:'h2'::tensorbank.handle);
ROLLBACK TO before;
SELECT tensorbank.read(:'h2'::tensorbank.handle);
ROLLBACK TO before;
COMMIT;
SELECT tensorbank.shape(tensorbank.read(:'h'::tensorbank.handle));
SELECT tensorbank.release(:'h'::tensorbank.handle);
SELECT tensorbank.read(:'h'::tensorbank.handle);
SELECT tensorbank.load(t, 'cuda') FROM st.weather WHERE block = 5;

-- bad handles: one text for all
SELECT ''::tensorbank.handle;
SELECT '1.0.0.1'::tensorbank.handle;
SELECT '1.0.0.1@0123456789abcdef0123456789abcdeg'::tensorbank.handle;
SELECT tensorbank.read('1.0.0.1@0123456789abcdef0123456789abcdef'::tensorbank.handle);
SELECT tensorbank.wait('1.0.0.1@0123456789abcdef0123456789abcdef'::tensorbank.handle);
SELECT tensorbank.release('{1.0.0.1@0123456789abcdef0123456789abcdef}'::tensorbank.handle[]);
SELECT tensorbank.release('{}'::tensorbank.handle[]);
SELECT '1.0.0.1@0123456789abcdef0123456789abcdef'::tensorbank.handle OPERATOR(tensorbank.=)
	'01.0.0.1@0123456789abcdef0123456789abcdef'::tensorbank.handle AS equal;

-- the role counts, too: a stream that another role opened is none
CREATE ROLE st_trainer;
GRANT EXECUTE ON FUNCTION tensorbank.next_batch TO st_trainer;
SELECT stream AS s FROM tensorbank.open_stream('st_all') \gset
SELECT tensors AS one FROM tensorbank.next_batch(:s) \gset
SELECT count(*) FROM tensorbank.streams WHERE stream = :s;
SET ROLE st_trainer;
SELECT * FROM tensorbank.next_batch(:s);
SELECT tensorbank.read((:'one'::tensorbank.handle[])[1]);
SELECT count(*) FROM tensorbank.streams;
SELECT tensorbank.open_stream('st_all');
SELECT tensorbank.load(t) FROM st.weather WHERE block = 5;
RESET ROLE;
-- DISCARD ALL ends all of it
DISCARD ALL;
SELECT tensorbank.read((:'one'::tensorbank.handle[])[1]);
SELECT pg_sleep(0.2);
SELECT count(*) FROM tensorbank.streams WHERE stream = :s;

SET client_min_messages = warning;
DROP OWNED BY st_trainer;
DROP ROLE st_trainer;
SELECT tensorbank.drop_dataset('st_all');
DROP SCHEMA st CASCADE;
DROP SERVER st_files CASCADE;
