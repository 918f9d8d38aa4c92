CREATE FUNCTION tensorbank.handler() RETURNS fdw_handler
AS 'MODULE_PATHNAME', 'tensorbank_handler' LANGUAGE C STRICT;

CREATE FUNCTION tensorbank.validator(text[], oid) RETURNS void
AS 'MODULE_PATHNAME', 'tensorbank_validator' LANGUAGE C STRICT;

REVOKE ALL ON FUNCTION tensorbank.handler() FROM PUBLIC;
REVOKE ALL ON FUNCTION tensorbank.validator(text[], oid) FROM PUBLIC;

CREATE FOREIGN DATA WRAPPER tensorbank
    HANDLER tensorbank.handler VALIDATOR tensorbank.validator;
COMMENT ON FOREIGN DATA WRAPPER tensorbank IS 'blocks of n-dimensional arrays in object stores';
