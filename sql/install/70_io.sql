-- What reading cost, server by server: monotonic while the node's books exist.
CREATE FUNCTION tensorbank.io_statistics(
    OUT server text, OUT scope text, OUT requests bigint, OUT bytes bigint, OUT retries bigint, OUT hedges bigint,
    OUT merged bigint, OUT throttled bigint, OUT errors bigint, OUT missing bigint, OUT cache_hits bigint,
    OUT cache_bytes bigint, OUT wait_ms double precision) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'tensorbank_io_statistics' LANGUAGE C VOLATILE;
CREATE VIEW tensorbank.io_statistics AS SELECT * FROM tensorbank.io_statistics();
GRANT SELECT ON tensorbank.io_statistics TO PUBLIC;
COMMENT ON VIEW tensorbank.io_statistics IS 'requests to stores by server, of all sessions and the streamer';

-- What all processes have taken of the limits now.
CREATE FUNCTION tensorbank.node_status(
    OUT scope text, OUT processes integer, OUT active integer, OUT requests integer, OUT max_requests integer,
    OUT memory_bytes bigint, OUT max_memory_bytes bigint, OUT connections_share integer) RETURNS record
    AS 'MODULE_PATHNAME', 'tensorbank_node_status' LANGUAGE C VOLATILE;
REVOKE ALL ON FUNCTION tensorbank.node_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tensorbank.node_status() TO pg_monitor;
CREATE VIEW tensorbank.node_status AS SELECT * FROM tensorbank.node_status();
GRANT SELECT ON tensorbank.node_status TO pg_monitor;
COMMENT ON VIEW tensorbank.node_status IS 'use of the limits on requests, by all processes of the cluster';
