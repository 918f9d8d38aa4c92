/*
 * Datasets: frozen, ordered lists of samples. The files lie in stores under the hash of their content; the catalog
 * here gives them names and owners.
 *
 * Whoever is to freeze and stream needs, besides SELECT on the tables (README has the recipe):
 *	GRANT EXECUTE ON FUNCTION tensorbank.create_dataset, tensorbank.open_stream, tensorbank.next_batch,
 *		tensorbank.renew_stream, tensorbank.load TO trainer;
 * The other functions only touch what the caller owns or what its session holds already.
 */
CREATE TABLE tensorbank.dataset (
	name text PRIMARY KEY,
	owner regrole NOT NULL,
	hash text NOT NULL,
	samples bigint NOT NULL,
	server name NOT NULL,				-- the file lies at url of this server, or at its index_url
	url text NOT NULL,
	columns jsonb NOT NULL,
	query text NOT NULL,
	params text[],
	created timestamptz NOT NULL DEFAULT pg_catalog.now(),
	tables regclass[] NOT NULL,			-- relations that the query names: the owner must keep SELECT on them
	ref_tables regclass[] NOT NULL,		-- columns that the samples come from, and whose right counted
	ref_columns name[] NOT NULL,
	ref_users regrole[] NOT NULL,
	servers name[] NOT NULL,			-- stores that the samples lie in
	urls text[] NOT NULL
);
REVOKE ALL ON tensorbank.dataset FROM PUBLIC;
CREATE TABLE tensorbank.dataset_grant (
	name text NOT NULL REFERENCES tensorbank.dataset ON DELETE CASCADE,
	grantee regrole NOT NULL,			-- 0: everyone
	PRIMARY KEY (name, grantee)
);
REVOKE ALL ON tensorbank.dataset_grant FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('tensorbank.dataset', '');
SELECT pg_catalog.pg_extension_config_dump('tensorbank.dataset_grant', '');

-- Those that the current user owns or was granted.
CREATE VIEW tensorbank.datasets WITH (security_barrier) AS
	SELECT d.name, d.owner, d.hash, d.samples, d.columns, d.server, d.url, d.query, d.params, d.created
	FROM tensorbank.dataset d
	WHERE pg_catalog.pg_has_role(d.owner, 'USAGE') OR EXISTS (
		SELECT FROM tensorbank.dataset_grant g
		WHERE g.name OPERATOR(pg_catalog.=) d.name
			AND (g.grantee OPERATOR(pg_catalog.=) 0::pg_catalog.oid OR pg_catalog.pg_has_role(g.grantee, 'USAGE')));
GRANT SELECT ON tensorbank.datasets TO PUBLIC;
COMMENT ON VIEW tensorbank.datasets IS 'datasets that the current user may open';

-- Run one SELECT once, put its rows in a total order, store them; gives the content hash.
CREATE FUNCTION tensorbank.create_dataset(
	name text, query text, params text[] DEFAULT NULL, shape_policy text DEFAULT 'error') RETURNS text
	AS 'MODULE_PATHNAME', 'tensorbank_create_dataset' LANGUAGE C VOLATILE;
REVOKE EXECUTE ON FUNCTION tensorbank.create_dataset FROM PUBLIC;
COMMENT ON FUNCTION tensorbank.create_dataset IS 'freeze a query as a dataset; gives its hash';

-- For the owner. The file stays: other databases may name the same hash.
CREATE FUNCTION tensorbank.drop_dataset(name text) RETURNS void
	AS 'MODULE_PATHNAME', 'tensorbank_drop_dataset' LANGUAGE C VOLATILE STRICT;
CREATE FUNCTION tensorbank.grant_dataset(name text, role text) RETURNS void
	AS 'MODULE_PATHNAME', 'tensorbank_grant_dataset' LANGUAGE C VOLATILE STRICT;
CREATE FUNCTION tensorbank.revoke_dataset(name text, role text) RETURNS void
	AS 'MODULE_PATHNAME', 'tensorbank_revoke_dataset' LANGUAGE C VOLATILE STRICT;
COMMENT ON FUNCTION tensorbank.drop_dataset(text) IS 'forget the name of a dataset';
COMMENT ON FUNCTION tensorbank.grant_dataset(text, text) IS 'let a role open a dataset';
COMMENT ON FUNCTION tensorbank.revoke_dataset(text, text) IS 'take back what grant_dataset gave';
