/*
 * tensor: an n-dimensional array of numbers. Its binary form is an NPY file; its text form is
 * float32[2,3]{{1,2,3},{4,5,6}}.
 */
CREATE TYPE tensorbank.tensor;

CREATE FUNCTION tensorbank.tensor_in(cstring) RETURNS tensorbank.tensor
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_out(tensorbank.tensor) RETURNS cstring
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_recv(internal) RETURNS tensorbank.tensor
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_recv' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_send(tensorbank.tensor) RETURNS bytea
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_send' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE TYPE tensorbank.tensor (
	INPUT = tensorbank.tensor_in,
	OUTPUT = tensorbank.tensor_out,
	RECEIVE = tensorbank.tensor_recv,
	SEND = tensorbank.tensor_send,
	INTERNALLENGTH = VARIABLE,
	ALIGNMENT = int4,
	STORAGE = external
);
COMMENT ON TYPE tensorbank.tensor IS 'n-dimensional array of numbers; binary form NPY';

-- Equal: same element type, shape and bytes (so 0 and -0 differ, and a NaN equals itself).
CREATE FUNCTION tensorbank.tensor_eq(tensorbank.tensor, tensorbank.tensor) RETURNS boolean
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_eq' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_ne(tensorbank.tensor, tensorbank.tensor) RETURNS boolean
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_ne' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_hash(tensorbank.tensor) RETURNS integer
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_hash' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_hash_extended(tensorbank.tensor, bigint) RETURNS bigint
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_hash_extended' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR tensorbank.= (
	LEFTARG = tensorbank.tensor, RIGHTARG = tensorbank.tensor, FUNCTION = tensorbank.tensor_eq,
	COMMUTATOR = OPERATOR(tensorbank.=), NEGATOR = OPERATOR(tensorbank.<>),
	RESTRICT = pg_catalog.eqsel, JOIN = pg_catalog.eqjoinsel, HASHES
);
CREATE OPERATOR tensorbank.<> (
	LEFTARG = tensorbank.tensor, RIGHTARG = tensorbank.tensor, FUNCTION = tensorbank.tensor_ne,
	COMMUTATOR = OPERATOR(tensorbank.<>), NEGATOR = OPERATOR(tensorbank.=),
	RESTRICT = pg_catalog.neqsel, JOIN = pg_catalog.neqjoinsel
);
CREATE OPERATOR CLASS tensorbank.tensor_hash_ops DEFAULT FOR TYPE tensorbank.tensor USING hash AS
	OPERATOR 1 tensorbank.= (tensorbank.tensor, tensorbank.tensor),
	FUNCTION 1 tensorbank.tensor_hash(tensorbank.tensor),
	FUNCTION 2 tensorbank.tensor_hash_extended(tensorbank.tensor, bigint);

-- Casts: exact or 22003; to bytea for nothing, since the value is an NPY file already.
CREATE FUNCTION tensorbank.to_float8(tensorbank.tensor) RETURNS double precision[]
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_to_float8' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.to_int8(tensorbank.tensor) RETURNS bigint[]
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_to_int8' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.to_tensor(bytea) RETURNS tensorbank.tensor
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_from_bytea' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.to_tensor(real[]) RETURNS tensorbank.tensor
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_from_array' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.to_tensor(double precision[]) RETURNS tensorbank.tensor
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_from_array' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.to_tensor(integer[]) RETURNS tensorbank.tensor
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_from_array' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.to_tensor(bigint[]) RETURNS tensorbank.tensor
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_from_array' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE CAST (tensorbank.tensor AS double precision[]) WITH FUNCTION tensorbank.to_float8(tensorbank.tensor) AS ASSIGNMENT;
CREATE CAST (tensorbank.tensor AS bigint[]) WITH FUNCTION tensorbank.to_int8(tensorbank.tensor) AS ASSIGNMENT;
CREATE CAST (tensorbank.tensor AS bytea) WITHOUT FUNCTION;
CREATE CAST (bytea AS tensorbank.tensor) WITH FUNCTION tensorbank.to_tensor(bytea);
CREATE CAST (real[] AS tensorbank.tensor) WITH FUNCTION tensorbank.to_tensor(real[]) AS ASSIGNMENT;
CREATE CAST (double precision[] AS tensorbank.tensor) WITH FUNCTION tensorbank.to_tensor(double precision[]) AS ASSIGNMENT;
CREATE CAST (integer[] AS tensorbank.tensor) WITH FUNCTION tensorbank.to_tensor(integer[]) AS ASSIGNMENT;
CREATE CAST (bigint[] AS tensorbank.tensor) WITH FUNCTION tensorbank.to_tensor(bigint[]) AS ASSIGNMENT;

-- What a tensor is. Of a stored one only the header is read.
CREATE FUNCTION tensorbank.shape(tensor tensorbank.tensor) RETURNS bigint[]
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_shape' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.dtype(tensor tensorbank.tensor) RETURNS text
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_dtype' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.ndim(tensor tensorbank.tensor) RETURNS integer
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_ndim' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.size(tensor tensorbank.tensor) RETURNS bigint
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_size' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.npy(tensor tensorbank.tensor) RETURNS bytea
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_npy' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

-- Elements and parts. Indexes count from 0; outside the tensor: 2202E.
CREATE FUNCTION tensorbank.element(tensor tensorbank.tensor) RETURNS double precision
	AS 'MODULE_PATHNAME', 'tensorbank_element' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.element(tensor tensorbank.tensor, VARIADIC index bigint[]) RETURNS double precision
	AS 'MODULE_PATHNAME', 'tensorbank_element' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.element_numeric(tensor tensorbank.tensor) RETURNS numeric
	AS 'MODULE_PATHNAME', 'tensorbank_element_numeric' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.element_numeric(tensor tensorbank.tensor, VARIADIC index bigint[]) RETURNS numeric
	AS 'MODULE_PATHNAME', 'tensorbank_element_numeric' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.slice(tensor tensorbank.tensor, start bigint[], shape bigint[]) RETURNS tensorbank.tensor
	AS 'MODULE_PATHNAME', 'tensorbank_slice' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

-- Exact statistics of the elements that are not NaN; NULL where there is none.
CREATE TYPE tensorbank.tensor_stats AS (
	valid bigint,
	nan bigint,
	min double precision,
	max double precision,
	mean double precision,
	std double precision
);
CREATE FUNCTION tensorbank.stats(tensor tensorbank.tensor) RETURNS tensorbank.tensor_stats
	AS 'MODULE_PATHNAME', 'tensorbank_tensor_stats' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

-- A picture in characters of the last two axes.
CREATE FUNCTION tensorbank.preview(tensor tensorbank.tensor) RETURNS text
	AS 'MODULE_PATHNAME', 'tensorbank_preview' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
