/*
 * Streams and handles. A handle names a tensor in a buffer of the streamer and is good in the session (and for the
 * role) that got it, until it is released; every bad one is "invalid handle" (HV00B).
 */
CREATE TYPE tensorbank.handle;
CREATE FUNCTION tensorbank.handle_in(cstring) RETURNS tensorbank.handle
	AS 'MODULE_PATHNAME', 'tensorbank_handle_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.handle_out(tensorbank.handle) RETURNS cstring
	AS 'MODULE_PATHNAME', 'tensorbank_handle_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.handle_recv(internal) RETURNS tensorbank.handle
	AS 'MODULE_PATHNAME', 'tensorbank_handle_recv' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.handle_send(tensorbank.handle) RETURNS bytea
	AS 'MODULE_PATHNAME', 'tensorbank_handle_send' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE tensorbank.handle (
	INPUT = tensorbank.handle_in,
	OUTPUT = tensorbank.handle_out,
	RECEIVE = tensorbank.handle_recv,
	SEND = tensorbank.handle_send,
	INTERNALLENGTH = 40,
	ALIGNMENT = double
);
COMMENT ON TYPE tensorbank.handle IS 'a tensor in a buffer of the streamer';
CREATE FUNCTION tensorbank.handle_eq(tensorbank.handle, tensorbank.handle) RETURNS boolean
	AS 'MODULE_PATHNAME', 'tensorbank_handle_eq' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.handle_ne(tensorbank.handle, tensorbank.handle) RETURNS boolean
	AS 'MODULE_PATHNAME', 'tensorbank_handle_ne' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.handle_hash(tensorbank.handle) RETURNS integer
	AS 'MODULE_PATHNAME', 'tensorbank_handle_hash' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR tensorbank.= (
	LEFTARG = tensorbank.handle, RIGHTARG = tensorbank.handle, FUNCTION = tensorbank.handle_eq,
	COMMUTATOR = OPERATOR(tensorbank.=), NEGATOR = OPERATOR(tensorbank.<>),
	RESTRICT = pg_catalog.eqsel, JOIN = pg_catalog.eqjoinsel, HASHES
);
CREATE OPERATOR tensorbank.<> (
	LEFTARG = tensorbank.handle, RIGHTARG = tensorbank.handle, FUNCTION = tensorbank.handle_ne,
	COMMUTATOR = OPERATOR(tensorbank.<>), NEGATOR = OPERATOR(tensorbank.=),
	RESTRICT = pg_catalog.neqsel, JOIN = pg_catalog.neqjoinsel
);
CREATE OPERATOR CLASS tensorbank.handle_hash_ops DEFAULT FOR TYPE tensorbank.handle USING hash AS
	OPERATOR 1 tensorbank.= (tensorbank.handle, tensorbank.handle),
	FUNCTION 1 tensorbank.handle_hash(tensorbank.handle);

-- Single tensors: load() returns at once, wait() when the bytes are there, read() copies them into a value.
CREATE FUNCTION tensorbank.load(ref tensorbank.tensor_ref, device text DEFAULT 'host') RETURNS tensorbank.handle
	AS 'MODULE_PATHNAME', 'tensorbank_load' LANGUAGE C VOLATILE STRICT;
CREATE FUNCTION tensorbank.wait(handle tensorbank.handle) RETURNS void
	AS 'MODULE_PATHNAME', 'tensorbank_handle_wait' LANGUAGE C VOLATILE STRICT;
CREATE FUNCTION tensorbank.wait(handles tensorbank.handle[]) RETURNS void
	AS 'MODULE_PATHNAME', 'tensorbank_handles_wait' LANGUAGE C VOLATILE STRICT;
CREATE FUNCTION tensorbank.read(handle tensorbank.handle) RETURNS tensorbank.tensor
	AS 'MODULE_PATHNAME', 'tensorbank_handle_read' LANGUAGE C VOLATILE STRICT;
CREATE FUNCTION tensorbank.release(handle tensorbank.handle) RETURNS void
	AS 'MODULE_PATHNAME', 'tensorbank_handle_release' LANGUAGE C VOLATILE STRICT;
CREATE FUNCTION tensorbank.release(handles tensorbank.handle[]) RETURNS void
	AS 'MODULE_PATHNAME', 'tensorbank_handles_release' LANGUAGE C VOLATILE STRICT;
COMMENT ON FUNCTION tensorbank.load IS 'have the streamer bring a tensor; freed at release, abort or session end';
COMMENT ON FUNCTION tensorbank.wait(tensorbank.handle) IS 'wait until a tensor is there';
COMMENT ON FUNCTION tensorbank.read(tensorbank.handle) IS 'the tensor of a handle, as a value';
COMMENT ON FUNCTION tensorbank.release(tensorbank.handle[]) IS 'give the tensors of a batch, or loaded ones, back';

-- Streams.
CREATE FUNCTION tensorbank.open_stream(
	dataset text DEFAULT NULL, query text DEFAULT NULL, params text[] DEFAULT NULL,
	batch_size integer DEFAULT 1, shuffle text DEFAULT 'none', seed bigint DEFAULT 0, epoch bigint DEFAULT 0,
	rank integer DEFAULT 0, world_size integer DEFAULT 1, device text DEFAULT 'host', prefetch integer DEFAULT 4,
	tail text DEFAULT 'drop', state text DEFAULT NULL, worker integer DEFAULT 0, workers integer DEFAULT 1,
	OUT stream bigint, OUT socket text, OUT token text, OUT batches bigint)
	AS 'MODULE_PATHNAME', 'tensorbank_open_stream' LANGUAGE C VOLATILE;
CREATE FUNCTION tensorbank.next_batch(stream bigint)
	RETURNS TABLE (batch bigint, tensors tensorbank.handle[], names text[], scalars jsonb, state text)
	AS 'MODULE_PATHNAME', 'tensorbank_next_batch' LANGUAGE C VOLATILE STRICT ROWS 1;
CREATE FUNCTION tensorbank.close_stream(stream bigint) RETURNS void
	AS 'MODULE_PATHNAME', 'tensorbank_close_stream' LANGUAGE C VOLATILE STRICT;
CREATE FUNCTION tensorbank.renew_stream(stream bigint) RETURNS void
	AS 'MODULE_PATHNAME', 'tensorbank_renew_stream' LANGUAGE C VOLATILE STRICT;
COMMENT ON FUNCTION tensorbank.open_stream IS 'begin to deliver a dataset in batches';
COMMENT ON FUNCTION tensorbank.next_batch(bigint) IS 'the next batch of a stream, no row at its end';
COMMENT ON FUNCTION tensorbank.close_stream(bigint) IS 'end a stream';
COMMENT ON FUNCTION tensorbank.renew_stream(bigint) IS 'send the streamer fresh credentials';

REVOKE EXECUTE ON FUNCTION tensorbank.load FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION tensorbank.open_stream FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION tensorbank.next_batch(bigint) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION tensorbank.renew_stream(bigint) FROM PUBLIC;

-- Running streams of the cluster, of the roles whose rights one has.
CREATE FUNCTION tensorbank.streams(
	OUT stream bigint, OUT pid integer, OUT role text, OUT dataset text, OUT device text, OUT rank integer,
	OUT world_size integer, OUT batches bigint, OUT done bigint, OUT ready integer, OUT slots integer, OUT bytes bigint,
	OUT wait_store_ms bigint, OUT wait_decode_ms bigint, OUT wait_consumer_ms bigint) RETURNS SETOF record
	AS 'MODULE_PATHNAME', 'tensorbank_streams' LANGUAGE C VOLATILE;
CREATE VIEW tensorbank.streams AS SELECT * FROM tensorbank.streams();
GRANT SELECT ON tensorbank.streams TO PUBLIC;
COMMENT ON VIEW tensorbank.streams IS 'running streams';
