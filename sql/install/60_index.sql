/* The newest build of each table's index; rows of dropped tables go with the next build. */
CREATE TABLE tensorbank.index_build (
    relation oid PRIMARY KEY,
    pid integer NOT NULL,
    parts bigint NOT NULL,
    parts_done bigint NOT NULL,
    blocks_read bigint NOT NULL,
    bytes_read bigint NOT NULL,
    started timestamptz NOT NULL,
    updated timestamptz NOT NULL
);
REVOKE ALL ON tensorbank.index_build FROM PUBLIC;

CREATE VIEW tensorbank.index_progress WITH (security_barrier) AS
SELECT b.relation::pg_catalog.regclass AS relation, b.pid,
       CASE WHEN b.parts_done = b.parts THEN 'complete'
            WHEN EXISTS (SELECT FROM pg_catalog.pg_locks l
                         WHERE l.locktype = 'advisory' AND l.classid = 1952606584 AND l.objid = b.relation
                           AND l.objsubid = 2 AND l.granted
                           AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
                                             WHERE d.datname = pg_catalog.current_database()))
            THEN 'building' ELSE 'unfinished' END AS state,
       b.parts, b.parts_done, b.blocks_read, b.bytes_read, b.started, b.updated
FROM tensorbank.index_build b
JOIN pg_catalog.pg_class c ON c.oid = b.relation
WHERE pg_catalog.has_table_privilege(b.relation, 'SELECT');
GRANT SELECT ON tensorbank.index_progress TO PUBLIC;
COMMENT ON VIEW tensorbank.index_progress IS 'builds of indexes: how far they are';

CREATE PROCEDURE tensorbank.build_index(
    relation regclass, arrays text[] DEFAULT NULL, part_blocks bigint DEFAULT NULL,
    workers integer DEFAULT NULL, rebuild boolean DEFAULT false)
AS 'MODULE_PATHNAME', 'tensorbank_build_index' LANGUAGE C;
REVOKE ALL ON PROCEDURE tensorbank.build_index(regclass, text[], bigint, integer, boolean) FROM PUBLIC;
COMMENT ON PROCEDURE tensorbank.build_index(regclass, text[], bigint, integer, boolean)
    IS 'build or go on with the statistical index of a foreign table; owner only; commits each part';

CREATE FUNCTION tensorbank.index_status(
    relation regclass, OUT levels integer, OUT blocks bigint, OUT indexed bigint, OUT parts bigint,
    OUT parts_done bigint, OUT complete boolean, OUT serial bigint)
AS 'MODULE_PATHNAME', 'tensorbank_index_status' LANGUAGE C STRICT;
REVOKE ALL ON FUNCTION tensorbank.index_status(regclass) FROM PUBLIC;
COMMENT ON FUNCTION tensorbank.index_status(regclass) IS 'what the newest index of a foreign table covers';

CREATE FUNCTION tensorbank.estimate(
    query text, params text[] DEFAULT '{}', OUT blocks bigint, OUT requests bigint, OUT stored_bytes bigint,
    OUT decoded_bytes bigint)
AS 'MODULE_PATHNAME', 'tensorbank_estimate' LANGUAGE C STRICT;
REVOKE ALL ON FUNCTION tensorbank.estimate(text, text[]) FROM PUBLIC;
COMMENT ON FUNCTION tensorbank.estimate(text, text[])
    IS 'what a query would read, from the index alone: NULL stored bytes where only a request could tell';

/* What foreign tables stand for, for people and ORMs. */
CREATE VIEW tensorbank.columns WITH (security_barrier) AS
SELECT c.oid::pg_catalog.regclass AS relation, a.attname AS "column", a.attnum,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
       (SELECT o.option_value FROM pg_catalog.pg_options_to_table(a.attfdwoptions) o WHERE o.option_name = 'array') AS "array",
       (SELECT o.option_value FROM pg_catalog.pg_options_to_table(a.attfdwoptions) o WHERE o.option_name = 'dimension') AS dimension,
       (SELECT o.option_value FROM pg_catalog.pg_options_to_table(a.attfdwoptions) o WHERE o.option_name = 'statistic') AS statistic,
       (SELECT o.option_value FROM pg_catalog.pg_options_to_table(a.attfdwoptions) o WHERE o.option_name = 'bound') AS bound
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_foreign_table t ON t.ftrelid = c.oid
JOIN pg_catalog.pg_foreign_server s ON s.oid = t.ftserver
JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid = s.srvfdw
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE w.fdwname = 'tensorbank' AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT');
GRANT SELECT ON tensorbank.columns TO PUBLIC;
COMMENT ON VIEW tensorbank.columns IS 'what each column of a foreign table stands for';

CREATE FUNCTION tensorbank.describe(
    relation regclass, OUT "column" text, OUT dtype text, OUT dims text[], OUT shape bigint[], OUT chunk bigint[],
    OUT codecs text, OUT units text, OUT long_name text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'tensorbank_describe' LANGUAGE C STRICT;
REVOKE ALL ON FUNCTION tensorbank.describe(regclass) FROM PUBLIC;
COMMENT ON FUNCTION tensorbank.describe(regclass) IS 'the arrays behind a foreign table, as their metadata tell them';
