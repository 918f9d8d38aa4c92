"""pg_dump and restore: the same definitions, the same answers, stored refs and datasets included."""

import os
import subprocess

import pytest

import tensorbank
import zarrs
from cluster import open_up


@pytest.fixture(scope="module", autouse=True)
def data(db, stores):
    zarrs.wind(f"{stores}/dumped.zarr")
    open_up(f"{stores}/dumped.zarr")
    with db.connect() as c:
        c.execute("DROP ROLE IF EXISTS dump_reader; CREATE ROLE dump_reader LOGIN")
        c.execute('CREATE SCHEMA "odd schema"; IMPORT FOREIGN SCHEMA "dumped.zarr" FROM SERVER disk INTO "odd schema"')
        c.execute('ALTER FOREIGN TABLE "odd schema".dumped RENAME COLUMN p TO "odd ""column"')
        c.execute('CALL tensorbank.build_index(\'"odd schema".dumped\')')
        c.execute('CREATE VIEW warm AS SELECT block, t, t_max FROM "odd schema".dumped WHERE t_max > 100')
        c.execute('CREATE TABLE kept AS SELECT block, t, "odd ""column" AS p, tensorbank.read(t) AS value FROM "odd schema".dumped WHERE block < 5')
        c.execute("CREATE TABLE hashed (r tensorbank.tensor_ref DEFAULT tensorbank.ref('\"odd schema\".dumped', 't'))")
        c.execute("GRANT SELECT ON warm TO dump_reader")
        c.execute("SELECT tensorbank.create_dataset('frozen', 'SELECT t, block FROM warm')")
        c.execute("SELECT tensorbank.grant_dataset('frozen', 'dump_reader')")
    yield
    with db.connect() as c:
        c.execute("DROP OWNED BY dump_reader; DROP ROLE IF EXISTS dump_reader")


def tool(db, name):
    for folder in (subprocess.run([os.environ.get("PG_CONFIG", "pg_config"), "--bindir"], capture_output=True, text=True).stdout.strip(),
                   "/usr/lib/postgresql/15/bin"):
        if os.path.exists(f"{folder}/{name}"):
            return f"{folder}/{name}"
    pytest.skip(f"{name} is not installed")


def run(db, name, *arguments, dbname=None):
    done = subprocess.run([tool(db, name), "-h", db.server.socket, "-p", str(db.server.port), "-U", "postgres", "-d", dbname or db.name, *arguments],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


QUESTIONS = (
    'SELECT block, t::text, "odd ""column"::text, t_min, t_max, lat_min, time_max FROM "odd schema".dumped ORDER BY block',
    "SELECT block, t::text, t_max FROM warm ORDER BY block",
    "SELECT block, t::text, p::text, value::text, tensorbank.read(t) OPERATOR(tensorbank.=) value FROM kept ORDER BY block",
    "SELECT name, hash, samples, columns, params FROM tensorbank.datasets ORDER BY name",
    "SELECT relation::text, \"column\", type, \"array\", dimension, statistic, bound FROM tensorbank.columns ORDER BY 1, attnum",
    "SELECT grantee::text FROM tensorbank.dataset_grant")


@pytest.mark.parametrize("form", ["plain", "custom"])
def test_round_trip(db, folder, form):
    target = f"restored_{form}"
    with db.server.connect() as c:
        c.execute(f"CREATE DATABASE {target}")
    try:
        path = os.path.join(folder, f"dump.{form}")
        run(db, "pg_dump", "-F", form[0], "-f", path)
        if form == "plain":
            subprocess.run([tool(db, "pg_dump").replace("pg_dump", "psql") if os.path.exists(tool(db, "pg_dump").replace("pg_dump", "psql")) else "psql",
                            "-h", db.server.socket, "-p", str(db.server.port), "-U", "postgres", "-d", target, "-q", "-v", "ON_ERROR_STOP=1", "-f", path],
                           check=True, capture_output=True, text=True, timeout=120)
        else:
            run(db, "pg_restore", "--exit-on-error", path, dbname=target)
        with db.connect() as before, db.server.connect(target) as after:
            after.execute("SET timezone = 'UTC'")
            for question in QUESTIONS:
                assert before.execute(question).fetchall() == after.execute(question).fetchall(), question
            assert all(row[4] for row in after.execute(QUESTIONS[2]))
        got = [b for batch in tensorbank.dataset(db.server.dsn(target), dataset="frozen", batch_size=3, output="numpy", rank=0, world_size=1,
                                                 copy=True) for b in batch.block]
        expected = [b for batch in tensorbank.dataset(db.dsn(), dataset="frozen", batch_size=3, output="numpy", rank=0, world_size=1,
                                                      copy=True) for b in batch.block]
        assert got == expected and len(got) > 0
        # dumped again it is the same
        again = run(db, "pg_dump", "-F", "p", dbname=target)
        first = run(db, "pg_dump", "-F", "p")

        def stripped(text):
            # pg_dump 15.14 and later write a random key around a plain dump
            return [line for line in text.splitlines() if not line.startswith(("--", "\\restrict", "\\unrestrict"))]

        assert stripped(again) == stripped(first)
    finally:
        with db.server.connect() as c:
            c.execute(f"DROP DATABASE {target} WITH (FORCE)")


def test_drop_extension_takes_everything(db, server):
    with server.connect() as c:
        c.execute("CREATE DATABASE dropped")
    with server.connect("dropped") as c:
        c.execute("CREATE EXTENSION tensorbank")
        before = c.execute("SELECT count(*) FROM pg_proc WHERE pronamespace = 'tensorbank'::regnamespace").fetchone()[0]
        assert before > 50
        c.execute("DROP EXTENSION tensorbank CASCADE")
        for catalog, column in (("pg_namespace", "nspname"), ("pg_foreign_data_wrapper", "fdwname")):
            assert c.execute(f"SELECT count(*) FROM {catalog} WHERE {column} = 'tensorbank'").fetchone() == (0,)
    with server.connect() as c:
        c.execute("DROP DATABASE dropped WITH (FORCE)")
