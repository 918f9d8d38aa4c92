/*
 * tensor_ref: a lazy rectangular region of an array. It prints as schema.table.column[start:stop,...] dtype
 * and holds no data; read() brings the values.
 */
CREATE TYPE tensorbank.tensor_ref;

CREATE FUNCTION tensorbank.tensor_ref_in(cstring) RETURNS tensorbank.tensor_ref
	AS 'MODULE_PATHNAME', 'tensorbank_ref_in' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_ref_out(tensorbank.tensor_ref) RETURNS cstring
	AS 'MODULE_PATHNAME', 'tensorbank_ref_out' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_ref_recv(internal) RETURNS tensorbank.tensor_ref
	AS 'MODULE_PATHNAME', 'tensorbank_ref_recv' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_ref_send(tensorbank.tensor_ref) RETURNS bytea
	AS 'MODULE_PATHNAME', 'tensorbank_ref_send' LANGUAGE C STABLE STRICT PARALLEL SAFE;

CREATE TYPE tensorbank.tensor_ref (
	INPUT = tensorbank.tensor_ref_in,
	OUTPUT = tensorbank.tensor_ref_out,
	RECEIVE = tensorbank.tensor_ref_recv,
	SEND = tensorbank.tensor_ref_send,
	INTERNALLENGTH = VARIABLE,
	ALIGNMENT = double,
	STORAGE = plain
);
COMMENT ON TYPE tensorbank.tensor_ref IS 'lazy rectangular region of an array; tensorbank.read() brings its values';

CREATE FUNCTION tensorbank.tensor_ref_eq(tensorbank.tensor_ref, tensorbank.tensor_ref) RETURNS boolean
	AS 'MODULE_PATHNAME', 'tensorbank_ref_eq' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_ref_ne(tensorbank.tensor_ref, tensorbank.tensor_ref) RETURNS boolean
	AS 'MODULE_PATHNAME', 'tensorbank_ref_ne' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_ref_lt(tensorbank.tensor_ref, tensorbank.tensor_ref) RETURNS boolean
	AS 'MODULE_PATHNAME', 'tensorbank_ref_lt' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_ref_le(tensorbank.tensor_ref, tensorbank.tensor_ref) RETURNS boolean
	AS 'MODULE_PATHNAME', 'tensorbank_ref_le' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_ref_gt(tensorbank.tensor_ref, tensorbank.tensor_ref) RETURNS boolean
	AS 'MODULE_PATHNAME', 'tensorbank_ref_gt' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_ref_ge(tensorbank.tensor_ref, tensorbank.tensor_ref) RETURNS boolean
	AS 'MODULE_PATHNAME', 'tensorbank_ref_ge' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_ref_cmp(tensorbank.tensor_ref, tensorbank.tensor_ref) RETURNS integer
	AS 'MODULE_PATHNAME', 'tensorbank_ref_cmp' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_ref_hash(tensorbank.tensor_ref) RETURNS integer
	AS 'MODULE_PATHNAME', 'tensorbank_ref_hash' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.tensor_ref_hash_extended(tensorbank.tensor_ref, bigint) RETURNS bigint
	AS 'MODULE_PATHNAME', 'tensorbank_ref_hash_extended' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE OPERATOR tensorbank.= (
	LEFTARG = tensorbank.tensor_ref, RIGHTARG = tensorbank.tensor_ref, FUNCTION = tensorbank.tensor_ref_eq,
	COMMUTATOR = OPERATOR(tensorbank.=), NEGATOR = OPERATOR(tensorbank.<>),
	RESTRICT = pg_catalog.eqsel, JOIN = pg_catalog.eqjoinsel, HASHES, MERGES
);
CREATE OPERATOR tensorbank.<> (
	LEFTARG = tensorbank.tensor_ref, RIGHTARG = tensorbank.tensor_ref, FUNCTION = tensorbank.tensor_ref_ne,
	COMMUTATOR = OPERATOR(tensorbank.<>), NEGATOR = OPERATOR(tensorbank.=),
	RESTRICT = pg_catalog.neqsel, JOIN = pg_catalog.neqjoinsel
);
CREATE OPERATOR tensorbank.< (
	LEFTARG = tensorbank.tensor_ref, RIGHTARG = tensorbank.tensor_ref, FUNCTION = tensorbank.tensor_ref_lt,
	COMMUTATOR = OPERATOR(tensorbank.>), NEGATOR = OPERATOR(tensorbank.>=),
	RESTRICT = pg_catalog.scalarltsel, JOIN = pg_catalog.scalarltjoinsel
);
CREATE OPERATOR tensorbank.<= (
	LEFTARG = tensorbank.tensor_ref, RIGHTARG = tensorbank.tensor_ref, FUNCTION = tensorbank.tensor_ref_le,
	COMMUTATOR = OPERATOR(tensorbank.>=), NEGATOR = OPERATOR(tensorbank.>),
	RESTRICT = pg_catalog.scalarlesel, JOIN = pg_catalog.scalarlejoinsel
);
CREATE OPERATOR tensorbank.> (
	LEFTARG = tensorbank.tensor_ref, RIGHTARG = tensorbank.tensor_ref, FUNCTION = tensorbank.tensor_ref_gt,
	COMMUTATOR = OPERATOR(tensorbank.<), NEGATOR = OPERATOR(tensorbank.<=),
	RESTRICT = pg_catalog.scalargtsel, JOIN = pg_catalog.scalargtjoinsel
);
CREATE OPERATOR tensorbank.>= (
	LEFTARG = tensorbank.tensor_ref, RIGHTARG = tensorbank.tensor_ref, FUNCTION = tensorbank.tensor_ref_ge,
	COMMUTATOR = OPERATOR(tensorbank.<=), NEGATOR = OPERATOR(tensorbank.<),
	RESTRICT = pg_catalog.scalargesel, JOIN = pg_catalog.scalargejoinsel
);
CREATE OPERATOR CLASS tensorbank.tensor_ref_ops DEFAULT FOR TYPE tensorbank.tensor_ref USING btree AS
	OPERATOR 1 tensorbank.< (tensorbank.tensor_ref, tensorbank.tensor_ref),
	OPERATOR 2 tensorbank.<= (tensorbank.tensor_ref, tensorbank.tensor_ref),
	OPERATOR 3 tensorbank.= (tensorbank.tensor_ref, tensorbank.tensor_ref),
	OPERATOR 4 tensorbank.>= (tensorbank.tensor_ref, tensorbank.tensor_ref),
	OPERATOR 5 tensorbank.> (tensorbank.tensor_ref, tensorbank.tensor_ref),
	FUNCTION 1 tensorbank.tensor_ref_cmp(tensorbank.tensor_ref, tensorbank.tensor_ref);
CREATE OPERATOR CLASS tensorbank.tensor_ref_hash_ops DEFAULT FOR TYPE tensorbank.tensor_ref USING hash AS
	OPERATOR 1 tensorbank.= (tensorbank.tensor_ref, tensorbank.tensor_ref),
	FUNCTION 1 tensorbank.tensor_ref_hash(tensorbank.tensor_ref),
	FUNCTION 2 tensorbank.tensor_ref_hash_extended(tensorbank.tensor_ref, bigint);

-- Making refs. Outside the array or unmatched: NULL. Rights are looked at here and again when a ref is read.
CREATE FUNCTION tensorbank.ref(relation regclass, "column" text) RETURNS tensorbank.tensor_ref
	AS 'MODULE_PATHNAME', 'tensorbank_ref' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.region(ref tensorbank.tensor_ref, VARIADIC choice "any") RETURNS tensorbank.tensor_ref
	AS 'MODULE_PATHNAME', 'tensorbank_region' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;
CREATE FUNCTION tensorbank.crop(ref tensorbank.tensor_ref, start bigint[], shape bigint[]) RETURNS tensorbank.tensor_ref
	AS 'MODULE_PATHNAME', 'tensorbank_crop' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
-- by indexes: integer types of their own, so that a literal 1 does not become a number
CREATE FUNCTION tensorbank.shift(ref tensorbank.tensor_ref, dimension text, by bigint) RETURNS tensorbank.tensor_ref
	AS 'MODULE_PATHNAME', 'tensorbank_shift_index' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;
CREATE FUNCTION tensorbank.shift(ref tensorbank.tensor_ref, dimension text, by integer) RETURNS tensorbank.tensor_ref
	AS 'MODULE_PATHNAME', 'tensorbank_shift_int' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;
-- by coordinate values
CREATE FUNCTION tensorbank.shift(ref tensorbank.tensor_ref, dimension text, by double precision) RETURNS tensorbank.tensor_ref
	AS 'MODULE_PATHNAME', 'tensorbank_shift_number' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;
CREATE FUNCTION tensorbank.shift(ref tensorbank.tensor_ref, dimension text, by interval) RETURNS tensorbank.tensor_ref
	AS 'MODULE_PATHNAME', 'tensorbank_shift_interval' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;
CREATE FUNCTION tensorbank.align(ref tensorbank.tensor_ref, "like" tensorbank.tensor_ref) RETURNS tensorbank.tensor_ref
	AS 'MODULE_PATHNAME', 'tensorbank_align' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;

-- Treatments, carried by the ref until it is read.
CREATE FUNCTION tensorbank.raw(ref tensorbank.tensor_ref) RETURNS tensorbank.tensor_ref
	AS 'MODULE_PATHNAME', 'tensorbank_raw' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10;
CREATE FUNCTION tensorbank.as_type(ref tensorbank.tensor_ref, dtype text) RETURNS tensorbank.tensor_ref
	AS 'MODULE_PATHNAME', 'tensorbank_as_type' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

-- What a ref is.
CREATE FUNCTION tensorbank.shape(ref tensorbank.tensor_ref) RETURNS bigint[]
	AS 'MODULE_PATHNAME', 'tensorbank_ref_shape' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.origin(ref tensorbank.tensor_ref) RETURNS bigint[]
	AS 'MODULE_PATHNAME', 'tensorbank_ref_origin' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.dtype(ref tensorbank.tensor_ref) RETURNS text
	AS 'MODULE_PATHNAME', 'tensorbank_ref_dtype' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.ndim(ref tensorbank.tensor_ref) RETURNS integer
	AS 'MODULE_PATHNAME', 'tensorbank_ref_ndim' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION tensorbank.size(ref tensorbank.tensor_ref) RETURNS bigint
	AS 'MODULE_PATHNAME', 'tensorbank_ref_size' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
-- Where its chunks are; offset and length NULL where the whole object is meant or nothing is stored.
CREATE FUNCTION tensorbank.location(
	ref tensorbank.tensor_ref,
	OUT chunk bigint[], OUT url text, OUT "offset" bigint, OUT length bigint, OUT codecs text, OUT missing boolean
) RETURNS SETOF record
	AS 'MODULE_PATHNAME', 'tensorbank_location' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 1000 ROWS 10;

-- The values. Dear, so that a plan calls it last and only for rows that are wanted.
CREATE FUNCTION tensorbank.read(ref tensorbank.tensor_ref) RETURNS tensorbank.tensor
	AS 'MODULE_PATHNAME', 'tensorbank_read' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10000;
