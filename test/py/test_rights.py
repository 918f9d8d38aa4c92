"""An unprivileged role end to end, and everything that somebody may try to get around its rights."""

import psycopg
import pytest

import zarrs
from cluster import open_up
from conftest import fails, make_database, read_array


@pytest.fixture(scope="module")
def roles(db, stores, web):
    zarrs.wind(f"{stores}/rights.zarr")
    open_up(f"{stores}/rights.zarr")
    names = ("analyst", "trainer", "owner", "viewer", "nobody")
    with db.connect() as c:
        for name in names:
            c.execute(f"DROP ROLE IF EXISTS {name}")
            c.execute(f"CREATE ROLE {name} LOGIN")
        c.execute('IMPORT FOREIGN SCHEMA "rights.zarr" FROM SERVER disk INTO public')
        c.execute("CALL tensorbank.build_index('rights')")
        c.execute("CREATE SCHEMA views; GRANT USAGE ON SCHEMA views TO PUBLIC")
        c.execute("CREATE VIEW views.north AS SELECT block, lat_min, t, t_max FROM rights WHERE lat_min >= 0")
        c.execute("GRANT SELECT ON views.north TO viewer")
        c.execute("CREATE VIEW views.fenced WITH (security_barrier) AS SELECT block, lat_min, t, t_max FROM rights WHERE lat_min >= 0")
        c.execute("GRANT SELECT ON views.fenced TO viewer")
    yield names
    with db.connect() as c:
        for name in names:
            c.execute(f"DROP OWNED BY {name} CASCADE")
    with db.server.connect() as c:
        for name in names:
            c.execute(f"DROP OWNED BY {name} CASCADE")
            c.execute(f"DROP ROLE {name}")


def grant(db, *statements):
    with db.connect() as c:
        for statement in statements:
            c.execute(statement)


# ---- who may name a place ----

def test_servers(roles, db, stores, web):
    file_server = f"CREATE SERVER mine FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{stores}')"
    web_server = f"CREATE SERVER mine FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{web.url}')"
    grant(db, f"GRANT CREATE ON DATABASE {db.name} TO owner")
    with db.connect("owner") as c:
        fails(c, "42501", web_server)
        fails(c, "42501", file_server)
    grant(db, "GRANT USAGE ON FOREIGN DATA WRAPPER tensorbank TO owner")
    with db.connect("owner") as c:
        diag = fails(c, "42501", file_server)
        assert "pg_read_server_files" in diag.message_detail
        fails(c, "42501", f"CREATE SERVER mine FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{web.url}', index_url 'file://{stores}')")
        fails(c, "42501", f"CREATE SERVER mine FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{web.url}', ca_file '/etc/passwd')")
        c.execute(web_server)
        c.execute("CREATE SCHEMA own; IMPORT FOREIGN SCHEMA \"rights.zarr\" FROM SERVER mine INTO own")
        assert c.execute("SELECT count(tensorbank.read(t)) FROM own.rights").fetchone() == (36,)
        fails(c, "42501", f"ALTER SERVER mine OPTIONS (SET url 'file://{stores}')")
    # the right is looked at again whenever it is used
    grant(db, "REVOKE USAGE ON FOREIGN DATA WRAPPER tensorbank FROM owner")
    with db.connect("owner") as c:
        fails(c, "42501", "SELECT count(*) FROM own.rights")
    # a server of a superuser given to a plain role is that role's affair from then on
    grant(db, f"CREATE SERVER gift FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{stores}')", "CREATE SCHEMA gift",
          "IMPORT FOREIGN SCHEMA \"rights.zarr\" FROM SERVER gift INTO gift", "GRANT USAGE ON FOREIGN DATA WRAPPER tensorbank TO owner",
          "ALTER SERVER gift OWNER TO owner")
    with db.connect() as c:
        fails(c, "42501", "SELECT count(*) FROM gift.rights")


def test_path_stays_below_the_url(roles, db, folder):
    import os
    with open(os.path.join(folder, "secret.txt"), "w") as file:
        file.write("secret")
    with db.connect() as c:
        for path in ("../secret.txt", "x/../../secret.txt", "/etc", "..", "a//b", "./x"):
            fails(c, "HV024", f"CREATE FOREIGN TABLE out (b bigint) SERVER disk OPTIONS (path '{path}')")
            with pytest.raises(psycopg.Error) as caught:
                c.execute(f"IMPORT FOREIGN SCHEMA \"{path}\" FROM SERVER disk INTO public")
            assert caught.value.sqlstate != "XX000"
        for path in ("%2e%2e/secret.txt", "..%2fsecret.txt"):
            fails(c, "HV00R", f"IMPORT FOREIGN SCHEMA \"{path}\" FROM SERVER disk INTO public")


def test_symlinks_are_not_followed(roles, db, stores, folder):
    import os
    zarrs.wind(f"{folder}/outside.zarr")
    open_up(f"{folder}/outside.zarr")
    os.symlink(f"{folder}/outside.zarr", f"{stores}/link.zarr")
    try:
        with db.connect() as c, pytest.raises(psycopg.Error) as caught:
            c.execute('IMPORT FOREIGN SCHEMA "link.zarr" FROM SERVER disk INTO public')
        assert caught.value.sqlstate in ("42501", "HV00R", "58030")
    finally:
        os.unlink(f"{stores}/link.zarr")


# ---- tables, columns, refs ----

def test_plain_role(roles, db):
    with db.connect("analyst") as c:
        fails(c, "42501", "SELECT * FROM rights")
        fails(c, "42501", "SELECT tensorbank.ref('rights', 't')")
        fails(c, "42501", "SELECT tensorbank.read('public.rights.t[0:2,0:4,0:4] float32'::tensorbank.tensor_ref)")
        fails(c, "42501", "CALL tensorbank.build_index('rights')")
        fails(c, "42501", "SELECT * FROM tensorbank.describe('rights')")
        fails(c, "42501", "SELECT * FROM tensorbank.index_build")
        fails(c, "42501", "SELECT * FROM tensorbank.dataset")
        fails(c, "42501", "CREATE USER MAPPING FOR CURRENT_USER SERVER disk")
        assert c.execute("SELECT count(*) FROM tensorbank.columns").fetchone() == (0,)
    grant(db, "GRANT SELECT ON rights TO analyst")
    with db.connect("analyst") as c:
        assert c.execute("SELECT count(*) FROM rights WHERE t_max > 100").fetchone()[0] > 0
        assert read_array(c, "SELECT tensorbank.read(t) FROM rights LIMIT 1") is not None
        assert read_array(c, "SELECT tensorbank.read(tensorbank.ref('rights', 't'))").shape == (6, 12, 16)
        assert c.execute("SELECT count(*) FROM tensorbank.columns").fetchone()[0] > 0
        fails(c, "42501", "CALL tensorbank.build_index('rights')")
    grant(db, "REVOKE SELECT ON rights FROM analyst")
    with db.connect("analyst") as c:
        fails(c, "42501", "SELECT * FROM rights")


def test_column_privileges(roles, db):
    grant(db, "GRANT SELECT (block, t) ON rights TO analyst")
    try:
        with db.connect("analyst") as c:
            assert c.execute("SELECT count(tensorbank.read(t)) FROM rights").fetchone() == (36,)
            fails(c, "42501", "SELECT p FROM rights")
            fails(c, "42501", "SELECT tensorbank.read(tensorbank.ref('rights', 'p'))")
            fails(c, "42501", "SELECT tensorbank.read('public.rights.p[0:2,0:4,0:4] float64'::tensorbank.tensor_ref)")
            # another array of the same table by the back door of a ref one may use
            fails(c, "42501", "SELECT tensorbank.read(tensorbank.align('public.rights.p[0:2,0:4,0:4] float64', t)) FROM rights LIMIT 1")
            assert {r[0] for r in c.execute("SELECT \"column\" FROM tensorbank.columns")} == {"block", "t"}
    finally:
        grant(db, "REVOKE SELECT (block, t) ON rights FROM analyst")


@pytest.mark.parametrize("view", ["views.north", "views.fenced"])
def test_view_is_a_row_filter(roles, db, view):
    """A role without SELECT on the table reads what the view shows, and nothing else."""
    with db.connect("viewer") as c:
        fails(c, "42501", "SELECT t FROM rights")
        rows = c.execute(f"SELECT count(tensorbank.read(t)), min(lat_min) FROM {view}").fetchone()
        assert 0 < rows[0] < 36 and rows[1] >= 0
        # a part of what is shown
        part = f"SELECT tensorbank.read(tensorbank.crop(t, '{{0,0,0}}', '{{1,1,1}}')) FROM {view} LIMIT 1"
        assert read_array(c, part).shape == (1, 1, 1)
        # outside of it: whatever leaves the row drops the right
        for expression in ("tensorbank.region(t, 'lat', 0, 12)", "tensorbank.shift(t, 'lat', 4)", "t::text::tensorbank.tensor_ref",
                           "tensorbank.region(t, 'lat', numrange(-60, 0))"):
            with pytest.raises(psycopg.Error) as caught:
                c.execute(f"SELECT tensorbank.read({expression}) FROM {view}").fetchall()
            assert caught.value.sqlstate in ("42501", "22023", "42883"), f"{expression}: {caught.value}"
        assert c.execute("SELECT current_user").fetchone() == ("viewer",)


def test_a_stored_ref_has_no_rights(roles, db):
    with db.connect("viewer") as c:
        c.execute("CREATE TEMP TABLE kept AS SELECT t FROM views.north")
        fails(c, "42501", "SELECT tensorbank.read(t) FROM kept")
        text = c.execute("SELECT t::text FROM kept LIMIT 1").fetchone()[0]
        fails(c, "42501", "SELECT tensorbank.read(%s::tensorbank.tensor_ref)", text)
        # carried from one statement to the next by a variable, a cursor, a function
        c.execute("DO $$ DECLARE r tensorbank.tensor_ref; BEGIN SELECT t INTO r FROM views.north LIMIT 1; PERFORM set_config('x.ref', r::text, false); END $$")
        fails(c, "42501", "SELECT tensorbank.read(current_setting('x.ref')::tensorbank.tensor_ref)")
        # a stamp cannot be sent in from outside
        with c.cursor(binary=True) as cursor:
            binary = cursor.execute("SELECT tensorbank.tensor_ref_send(t) FROM views.north LIMIT 1").fetchone()[0]
        with pytest.raises(psycopg.Error) as caught:
            with c.cursor() as cursor:
                cursor.copy("COPY kept FROM STDIN (FORMAT binary)")
                with cursor.copy("COPY kept FROM STDIN (FORMAT binary)") as copy:
                    copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\1" + len(binary).to_bytes(4, "big") + bytes(binary) + b"\xff\xff")
            c.execute("SELECT tensorbank.read(t) FROM kept").fetchall()
        assert caught.value.sqlstate in ("42501", "22P03", "22P02")


def test_security_definer(roles, db):
    """A function of the owner's reads with the owner's rights; what it returns does not carry them on."""
    grant(db, "CREATE FUNCTION views.one() RETURNS tensorbank.tensor LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp"
          " AS $$ SELECT tensorbank.read(tensorbank.ref('public.rights', 't')) $$",
          "CREATE FUNCTION views.a_ref() RETURNS tensorbank.tensor_ref LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp"
          " AS $$ SELECT tensorbank.ref('public.rights', 't') $$",
          "GRANT EXECUTE ON FUNCTION views.one(), views.a_ref() TO viewer")
    with db.connect("viewer") as c:
        assert read_array(c, "SELECT views.one()").shape == (6, 12, 16)
        fails(c, "42501", "SELECT tensorbank.read(views.a_ref())")


def test_a_leaky_function_sees_no_hidden_row(roles, db):
    with db.connect("viewer") as c:
        c.execute("CREATE FUNCTION pg_temp.leak(double precision) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS"
                  " $$ BEGIN RAISE NOTICE '%', $1; RETURN true; END $$")
        seen = []
        c.add_notice_handler(lambda d: seen.append(float(d.message_primary)))
        c.execute("SELECT block FROM views.fenced WHERE pg_temp.leak(lat_min)").fetchall()
        assert seen and min(seen) >= 0


def test_index_and_estimates(roles, db):
    """Nothing that only an owner may do, and estimates only of what one may read."""
    with db.connect("viewer") as c:
        fails(c, "42501", "SELECT * FROM tensorbank.index_status('rights')")
        with pytest.raises(psycopg.Error) as caught:
            c.execute("SELECT * FROM tensorbank.estimate('SELECT t FROM rights')")
        assert caught.value.sqlstate == "42501"
        assert c.execute("SELECT count(*) FROM tensorbank.index_progress").fetchone() == (0,)


# ---- functions that reach out ----

def test_functions_are_not_for_everyone(roles, db):
    grant(db, "GRANT SELECT ON rights TO trainer")
    with db.connect("trainer") as c:
        fails(c, "42501", "SELECT tensorbank.create_dataset('d', 'SELECT t FROM rights')")
        fails(c, "42501", "SELECT tensorbank.open_stream('d')")
        fails(c, "42501", "SELECT tensorbank.load(t) FROM rights LIMIT 1")
        fails(c, "42501", "SELECT tensorbank.next_batch(1)")


def test_the_recipe_for_a_trainer(roles, db):
    """What the install script's comment and the README give."""
    grant(db, "GRANT SELECT ON rights TO trainer",
          "GRANT EXECUTE ON FUNCTION tensorbank.create_dataset, tensorbank.open_stream, tensorbank.next_batch, tensorbank.renew_stream,"
          " tensorbank.load TO trainer, analyst")
    import tensorbank
    with db.connect("trainer") as c:
        c.execute("SELECT tensorbank.create_dataset('own', 'SELECT t, block FROM rights')")
        assert c.execute("SELECT name, owner::text FROM tensorbank.datasets").fetchall() == [("own", "trainer")]
    options = {"dataset": "own", "batch_size": 6, "output": "numpy", "rank": 0, "world_size": 1, "copy": True}
    assert len(list(tensorbank.dataset(db.dsn("trainer"), **options))) == 6
    # another role sees nothing of it until it is granted
    with db.connect("analyst") as c:
        assert c.execute("SELECT count(*) FROM tensorbank.datasets").fetchone() == (0,)
        fails(c, "42501", "SELECT tensorbank.open_stream('own')")
        fails(c, "42501", "SELECT tensorbank.drop_dataset('own')")
        fails(c, "42501", "SELECT tensorbank.grant_dataset('own', 'analyst')")
    with db.connect("trainer") as c:
        c.execute("SELECT tensorbank.grant_dataset('own', 'analyst')")
    # the one who opens needs no right to the table: the owner answers for it
    assert len(list(tensorbank.dataset(db.dsn("analyst"), **options))) == 6
    # and when the owner may read no longer, nobody gets it
    grant(db, "REVOKE SELECT ON rights FROM trainer")
    for name in ("trainer", "analyst"):
        with db.connect(name) as c:
            fails(c, "42501", "SELECT tensorbank.open_stream('own')")
    grant(db, "GRANT SELECT ON rights TO trainer")
    with db.connect("trainer") as c:
        c.execute("SELECT tensorbank.revoke_dataset('own', 'analyst')")
    with db.connect("analyst") as c:
        fails(c, "42501", "SELECT tensorbank.open_stream('own')")


def test_revoked_while_it_streams(roles, db):
    with db.connect("trainer") as c:
        c.execute("SELECT tensorbank.create_dataset('revoked', 'SELECT t, block FROM rights')")
        number = c.execute("SELECT stream FROM tensorbank.open_stream('revoked')").fetchone()[0]
        c.execute("SELECT * FROM tensorbank.next_batch(%s)", (number,))
        grant(db, "REVOKE SELECT ON rights FROM trainer")
        fails(c, "42501", "SELECT * FROM tensorbank.next_batch(%s)", number)
        grant(db, "GRANT SELECT ON rights TO trainer")


def test_streams_of_other_roles_are_hidden(roles, db):
    with db.connect("trainer") as c, db.connect("analyst") as other:
        c.execute("SELECT stream FROM tensorbank.open_stream('own')")
        assert c.execute("SELECT count(*) FROM tensorbank.streams").fetchone() == (1,)
        assert other.execute("SELECT count(*) FROM tensorbank.streams").fetchone() == (0,)


def test_settings_of_the_superuser(roles, db):
    with db.connect("analyst") as c:
        for name, value in (("max_connections", "2"), ("max_requests_in_flight", "2"), ("ring_limit", "'1GB'"), ("streamer_threads", "1"),
                            ("streamer_program", "'/bin/sh'")):
            with pytest.raises(psycopg.Error) as caught:
                c.execute(f"SET tensorbank.{name} = {value}")
            assert caught.value.sqlstate in ("42501", "55P02")
        c.execute("SET tensorbank.retries = 1")
        fails(c, "42602", "SET tensorbank.nonsense = 1")


# ---- search_path, names, the extension itself ----

def test_hostile_search_path(roles, db):
    """Operators and functions of somebody else's in front of pg_catalog change nothing."""
    grant(db, "CREATE SCHEMA evil; GRANT ALL ON SCHEMA evil TO PUBLIC")
    with db.connect("nobody") as c:
        c.execute("CREATE FUNCTION evil.gt(double precision, double precision) RETURNS boolean LANGUAGE sql AS 'SELECT false'")
        c.execute("CREATE OPERATOR evil.> (LEFTARG = double precision, RIGHTARG = double precision, FUNCTION = evil.gt)")
        c.execute("CREATE FUNCTION evil.has_table_privilege(oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'")
        c.execute("CREATE TABLE evil.dataset (name text)")
    with db.connect() as c:
        expected = c.execute("SELECT block FROM rights WHERE t_max > 100 ORDER BY 1").fetchall()
        c.execute("SET search_path = evil, pg_catalog, public, tensorbank")
        # an operator of another meaning is not pushed: its own answer counts
        assert c.execute("SELECT block FROM rights WHERE t_max > 100 ORDER BY 1").fetchall() == []
        assert c.execute("SELECT block FROM rights WHERE t_max OPERATOR(pg_catalog.>) 100 ORDER BY 1").fetchall() == expected
        c.execute("CALL tensorbank.build_index('public.rights', rebuild => true)")
        c.execute("SELECT tensorbank.create_dataset('evil', 'SELECT t FROM public.rights')")
        text = c.execute("SELECT t::text FROM public.rights LIMIT 1").fetchone()[0]
        assert text.startswith("public.rights.t[")
        c.execute("SELECT tensorbank.read(%s::tensorbank.tensor_ref)", (text,))
    with db.connect("nobody") as c:
        c.execute("SET search_path = evil, pg_catalog")
        assert c.execute("SELECT count(*) FROM tensorbank.index_progress").fetchone() == (0,)


def test_schema_made_before(roles, server):
    """CREATE EXTENSION takes over nothing of anyone's."""
    with server.connect() as c:
        c.execute("CREATE DATABASE squatted")
    with server.connect("squatted") as c:
        c.execute("CREATE SCHEMA tensorbank")
        fails(c, "42P06", "CREATE EXTENSION tensorbank")
        c.execute("DROP SCHEMA tensorbank")
        c.execute("CREATE EXTENSION tensorbank")
        c.execute("DROP EXTENSION tensorbank")
        assert c.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'tensorbank'").fetchone() == (0,)
        c.execute("CREATE EXTENSION tensorbank")
    with server.connect() as c:
        c.execute("DROP DATABASE squatted WITH (FORCE)")


def test_hostile_names(roles, db, stores):
    """Dimension and array names with quotes, dollars, newlines and great length import as what they are."""
    import numpy as np
    import zarr
    root = zarrs.group(f"{stores}/names.zarr")
    odd = 'a"b\'c$$d'
    long = "very_" * 30
    zarrs.put(root, "x", np.arange(4.0), dims=["x"])
    zarrs.put(root, odd, np.arange(4.0), (2,), ["x"])
    zarrs.put(root, long, np.arange(4.0) + 1, (2,), ["x"])
    zarrs.put(root, "select", np.arange(4.0) + 2, (2,), ["x"])
    open_up(f"{stores}/names.zarr")
    with db.connect() as c:
        c.execute('IMPORT FOREIGN SCHEMA "names.zarr" FROM SERVER disk INTO public')
        columns = dict(c.execute("SELECT \"array\", \"column\" FROM tensorbank.columns WHERE relation = 'names'::regclass AND statistic IS NULL"
                                 " AND type = 'tensorbank.tensor_ref'").fetchall())
        assert set(columns) == {odd, long, "select"}
        assert len(columns[long]) < 64 and len(set(columns.values())) == 3
        for array, first in ((odd, 0), (long, 1), ("select", 2)):
            got = read_array(c, "SELECT tensorbank.read(tensorbank.ref('names', %s))", columns[array])
            assert got.tolist() == [first, first + 1, first + 2, first + 3]
        c.execute("CALL tensorbank.build_index('names')")
        text = c.execute("SELECT tensorbank.ref('names', %s)::text", (columns[odd],)).fetchone()[0]
        assert read_array(c, "SELECT tensorbank.read(%s::tensorbank.tensor_ref)", text).tolist() == [0, 1, 2, 3]


def test_secrets_stay_in_the_mapping(roles, db, web):
    """A password is in no message, plan, view or log but the statement that set it."""
    canary = "canary-7c1f"
    with db.connect() as c:
        c.execute(f"CREATE SERVER locked FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{web.url}')")
        c.execute(f"CREATE USER MAPPING FOR CURRENT_USER SERVER locked OPTIONS (user 'u', password '{canary}')")
        c.execute("CREATE SCHEMA locked; IMPORT FOREIGN SCHEMA \"rights.zarr\" FROM SERVER locked INTO locked")
        before = db.server.log().count(canary)
        c.execute("SET client_min_messages = debug5; SET log_min_messages = debug5")
        plan = c.execute("EXPLAIN (ANALYZE, VERBOSE) SELECT tensorbank.read(t) FROM locked.rights LIMIT 1").fetchall()
        assert canary not in str(plan)
        with pytest.raises(psycopg.Error) as caught:
            c.execute('IMPORT FOREIGN SCHEMA "nothing.zarr" FROM SERVER locked INTO locked')
        diag = caught.value.diag
        assert canary not in f"{diag.message_primary}{diag.message_detail}{diag.message_hint}{diag.context}"
        assert canary not in str(c.execute("SELECT * FROM locked.rights, tensorbank.location(t) LIMIT 1").fetchall())
        assert db.server.log().count(canary) == before
    with db.connect("analyst") as c:
        assert canary not in str(c.execute("SELECT * FROM pg_user_mappings").fetchall())
