"""Plain SQL at wire speed: reading ahead for read() anywhere above a scan, parallel scans, scans that wait together, cursors."""

import os
import re
import threading
import time

import numpy as np
import psycopg
import pytest

import zarrs
from cluster import open_up, wait_for
from conftest import fails

LATENCY = 0.05
BLOCKS = 72
TABLES = ["far_a", "far_b", "far_c", "far_d"]
READ = "tensorbank.element(tensorbank.read(t), 0, 0, 0)"


@pytest.fixture(scope="module", autouse=True)
def data(db, stores, faulty_session):
    zarrs.wind(f"{stores}/wire.zarr", time=12)
    for i, name in enumerate(TABLES):
        zarrs.wind(f"{stores}/{name}.zarr", time=12, seed=i)
    open_up(stores)
    with db.connect() as c:
        c.execute(f"CREATE SERVER far FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{faulty_session.url}')")
        c.execute("IMPORT FOREIGN SCHEMA \"wire.zarr\" FROM SERVER disk INTO public OPTIONS (statistics 'yes')")
        c.execute("CALL tensorbank.build_index('wire')")
        for name in TABLES:
            c.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER far INTO public')
        c.execute("CREATE TABLE copied AS SELECT block, time_min, lat_min, t_min, t_max, t_nan, md5(tensorbank.read(t)::bytea) AS sum FROM wire")
        c.execute("CREATE TABLE events AS SELECT n, (n * 7 % 72)::bigint AS at FROM generate_series(1, 40) n")
        c.execute("ANALYZE events")


@pytest.fixture
def far(conn, faulty):
    """A connection for which every object is LATENCY away, metadata known."""
    conn.execute("SET max_parallel_workers_per_gather = 0")
    for name in TABLES:
        conn.execute(f"SELECT count(*) FROM {name}")
    faulty.rule(r"/c/", "delay", seconds=LATENCY)
    return conn


def plan(connection, sql, options="COSTS OFF"):
    return "\n".join(line for (line,) in connection.execute(f"EXPLAIN ({options}) {sql}").fetchall())


def timed(connection, sql):
    start = time.monotonic()
    rows = connection.execute(sql).fetchall()
    return time.monotonic() - start, rows


def chunks(faulty, table=""):
    """Objects asked for; a request that takes long may be sent twice."""
    return {path for _, path, _, _ in faulty.requests(rf"{table}.*/t/c/")}


# ---- reading ahead ----

ABOVE = {
    "scan": f"SELECT block, {READ} FROM far_a",
    "aggregate": f"SELECT sum({READ}), count(*) FROM far_a",
    "grouped": f"SELECT block % 5, sum({READ}) FROM far_a GROUP BY 1",
    "sort": f"SELECT block, {READ} FROM far_a ORDER BY block % 7, lat_min",
    "join": f"SELECT e.n, {READ} FROM far_a a JOIN (SELECT DISTINCT ON (at) * FROM events) e ON a.block = e.at",
    "join and aggregate": f"SELECT e.n % 3, sum({READ}) FROM far_a a JOIN (SELECT DISTINCT ON (at) * FROM events) e ON a.block = e.at GROUP BY 1",
    "where": f"SELECT block FROM far_a WHERE {READ} > 100",
    "subquery": f"SELECT {READ} FROM (SELECT t FROM far_a ORDER BY lat_min, block LIMIT 50) s",
    "cte": f"WITH c AS MATERIALIZED (SELECT t FROM far_a) SELECT {READ} FROM c",
    "window": f"SELECT sum({READ}) OVER (ORDER BY lat_min, block) FROM far_a",
    "treated": "SELECT tensorbank.element(tensorbank.read(tensorbank.as_type(tensorbank.raw(t), 'float64')), 0, 0, 0) FROM far_a",
}


@pytest.mark.parametrize("shape", ABOVE)
def test_read_ahead(far, faulty, shape):
    seconds, _ = timed(far, ABOVE[shape])
    asked = chunks(faulty)
    assert len(asked) >= 35
    # many at a time
    assert seconds < len(asked) * LATENCY / 3, f"{seconds:.2f} s for {len(asked)} requests"


@pytest.mark.parametrize("shape", ABOVE)
def test_read_ahead_gives_the_same(conn, shape):
    sql = ABOVE[shape].replace("far_a", "wire")
    ahead = sorted(map(repr, conn.execute(sql).fetchall()))
    conn.execute("SET tensorbank.read_ahead = 0")
    assert len(ahead) > 0 and sorted(map(repr, conn.execute(sql).fetchall())) == ahead


def test_copy_reads_ahead(far, faulty):
    start = time.monotonic()
    with far.cursor() as cursor, cursor.copy("COPY (SELECT tensorbank.read(t) FROM far_a) TO STDOUT (FORMAT binary)") as copy:
        size = sum(len(piece) for piece in copy)
    assert size > BLOCKS * 32 * 4
    assert time.monotonic() - start < BLOCKS * LATENCY / 3


@pytest.mark.parametrize("sql", [f"SELECT {READ} FROM far_a LIMIT {{}}", f"SELECT {READ} FROM far_a ORDER BY lat_min, block LIMIT {{}}"])
@pytest.mark.parametrize("limit", [1, 2, 5, 20])
def test_limit_overshoots_by_little(far, faulty, sql, limit):
    rows = far.execute(sql.format(limit)).fetchall()
    assert len(rows) == limit
    asked = len(chunks(faulty))
    assert limit <= asked <= limit + max(limit, 2)
    if limit == 1:
        assert asked == 1


def test_a_join_fetches_what_it_returns(far, faulty):
    rows = far.execute(f"SELECT {READ} FROM far_a a JOIN events e ON a.block = e.at WHERE e.n < 4").fetchall()
    assert len(rows) == 3
    assert len(chunks(faulty)) == 3


def test_what_is_left_out_is_not_fetched(far, faulty):
    """By quals that prune nothing, and under conditions."""
    sql = f"SELECT block, {READ} FROM far_a WHERE block % 10 = 3 AND abs(block) > 5"
    assert [block for block, _ in far.execute(sql).fetchall()] == [13, 23, 33, 43, 53, 63]
    assert len(chunks(faulty)) == 6
    assert "Rows Removed by Filter: 66" in plan(far, sql, "ANALYZE, COSTS OFF, TIMING OFF")
    faulty.reset()
    rows = far.execute(f"SELECT CASE WHEN block < 3 THEN {READ} END FROM far_a").fetchall()
    assert len(rows) == BLOCKS and len(chunks(faulty)) == 3
    faulty.reset()
    far.execute(f"SELECT block FROM far_a WHERE block % 10 = 3 AND {READ} > 0").fetchall()
    assert len(chunks(faulty)) == 7


@pytest.mark.parametrize("sql", ["SELECT sum({}) FROM big", "SELECT {} FROM big ORDER BY block % 3, block"])
def test_a_full_budget(far, faulty, stores, sql):
    """Blocks of 256 KiB, of which four fit: four at a time, none by itself."""
    root = zarrs.group(f"{stores}/big.zarr")
    zarrs.put(root, "t", np.ones((40, 256, 256), "f4"), (1, 256, 256), ("time", "y", "x"))
    zarrs.zarr.consolidate_metadata(f"{stores}/big.zarr")
    open_up(stores)
    far.execute("DROP FOREIGN TABLE IF EXISTS big")
    far.execute('IMPORT FOREIGN SCHEMA "big.zarr" FROM SERVER far INTO public')
    far.execute("SET tensorbank.read_ahead = '1MB'")
    seconds, _ = timed(far, sql.format(READ))
    assert len(chunks(faulty, "big")) == 40
    far.execute("SET tensorbank.read_ahead = 0")
    alone, _ = timed(far, sql.format(READ))
    assert seconds < 0.45 * alone, f"{seconds:.2f} s, without {alone:.2f} s"


def test_budget(far, faulty):
    """Without room nothing is begun ahead, and the answer is the same."""
    far.execute("SET tensorbank.read_ahead = 0")
    seconds, rows = timed(far, f"SELECT {READ} FROM far_a WHERE block < 8")
    assert len(rows) == 8 and seconds > 7 * LATENCY


# ---- waiting together ----

UNION = " UNION ALL ".join(f"SELECT {READ} FROM {name} WHERE block < 8" for name in TABLES)


def test_async_append(far, faulty):
    assert plan(far, UNION).count("Async Foreign Scan") == 4
    far.execute("RESET max_parallel_workers_per_gather")
    assert plan(far, UNION).count("Async Foreign Scan") == 4
    timed(far, f"SELECT {READ} FROM far_a WHERE block < 8")
    one = min(timed(far, f"SELECT {READ} FROM far_a WHERE block BETWEEN 8 AND 15")[0] for _ in range(3))
    together, rows = timed(far, UNION)
    far.execute("SET enable_async_append = off")
    apart, same = timed(far, UNION)
    assert sorted(map(repr, rows)) == sorted(map(repr, same)) and len(rows) == 32
    assert together < 2.2 * one + LATENCY, f"one {one:.3f} s, four {together:.3f} s"
    assert together < 0.75 * apart, f"together {together:.3f} s, one after the other {apart:.3f} s"


def test_async_partitions(far, faulty):
    """Partitions that are foreign tables."""
    far.execute("DROP TABLE IF EXISTS parts")
    far.execute("CREATE TABLE parts (block bigint, t tensorbank.tensor_ref) PARTITION BY RANGE (block)")
    for i, name in enumerate(TABLES):
        far.execute(f"CREATE FOREIGN TABLE part_{i} PARTITION OF parts FOR VALUES FROM ({100 * i}) TO ({100 * i + 100}) SERVER far OPTIONS (path '{name}.zarr')")
    sql = f"SELECT {READ} FROM parts"
    assert plan(far, sql).count("Async Foreign Scan") == 4
    seconds, rows = timed(far, sql)
    assert len(rows) == 4 * BLOCKS
    assert len(chunks(faulty)) == 4 * BLOCKS and seconds < 4 * BLOCKS * LATENCY / 4
    far.execute("DROP TABLE parts")


def test_async_metadata_and_filters(far, faulty):
    """Rows without reads, quals that leave rows out, an early end, a rescan."""
    faulty.reset()
    everything = " UNION ALL ".join(f"SELECT block, '{name}' AS name, t FROM {name}" for name in TABLES)
    sql = f"SELECT name, count(*), sum(block) FROM ({everything}) s WHERE block % 3 = 1 GROUP BY 1 ORDER BY 1"
    assert "Async" in plan(far, sql)
    assert far.execute(sql).fetchall() == [(name, 24, sum(range(1, BLOCKS, 3))) for name in TABLES]
    assert len(far.execute(f"SELECT block FROM ({everything}) s LIMIT 100").fetchall()) == 100
    far.execute("SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET enable_memoize = off")
    sql = f"SELECT n, (SELECT sum({READ}) FROM ({everything}) s WHERE block = n) FROM generate_series(0, 5) n"
    got = far.execute(sql).fetchall()
    far.execute("SET enable_async_append = off")
    assert repr(got) == repr(far.execute(sql).fetchall()) and all(value is not None for _, value in got)


def test_async_cancel(far, faulty):
    faulty.reset()
    faulty.rule(r"/t/c/", "hang", seconds=20)
    far.execute("SET statement_timeout = '300ms'")
    start = time.monotonic()
    fails(far, "57014", UNION)
    assert time.monotonic() - start < 1.5


def test_async_error(far, faulty):
    faulty.reset()
    faulty.rule(r"far_c.*/t/c/", "status", code=403)
    with pytest.raises(psycopg.Error):
        far.execute(UNION).fetchall()
    faulty.reset()
    assert len(far.execute(UNION).fetchall()) == 32


# ---- parallel scans ----

FORCE = ("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;"
         "SET max_parallel_workers_per_gather = 3")
CLAUSES = ["true", "block < 5.5", "block IN (1, 3, NULL)", "block NOT IN (1, 3)", "block + 1 = 5", "t_max > 200", "t_max > 200::real",
           "t_max - t_min > 4.9", "t_nan > 0", "t_max IS NULL", "NOT (t_max > 200)", "time_min >= timestamp '2020-01-02 12:00'",
           "lat_min > 10 AND random() < 2", "lat_min > 0 OR t_nan > 0", "false", "block % 10 = 3", "block BETWEEN 60 AND 99"]


@pytest.fixture
def shared(conn):
    conn.execute(FORCE)
    return conn


@pytest.mark.parametrize("clause", CLAUSES)
def test_parallel_rows(shared, clause):
    sql = f"SELECT block, t_min, t_max, md5(tensorbank.read(t)::bytea) FROM wire WHERE {clause}"
    if clause not in ("false", "lat_min > 10 AND random() < 2"):
        assert "Parallel Foreign Scan" in plan(shared, sql)
    rows = sorted(shared.execute(sql).fetchall())
    assert rows == sorted(shared.execute(f"SELECT block, t_min, t_max, sum FROM copied WHERE {clause}").fetchall())


def test_parallel_shapes(shared):
    for sql in ("SELECT count(*), sum(block), min(t_min), max(t_max) FROM {}", "SELECT block % 4, count(*), max(t_max) FROM {} GROUP BY 1 ORDER BY 1",
                "SELECT e.n, w.t_max FROM events e JOIN {} w ON w.block = e.at ORDER BY 1", "SELECT block FROM {} ORDER BY block DESC LIMIT 5",
                "SELECT a.block, b.t_max FROM {0} a JOIN {0} b ON a.block = b.block + 1 ORDER BY 1",
                "SELECT n, (SELECT count(*) FROM {} WHERE block > n) FROM generate_series(0, 3) n"):
        assert shared.execute(sql.format("wire")).fetchall() == shared.execute(sql.format("copied")).fetchall(), sql


@pytest.mark.parametrize("workers", [0, 1, 8])
def test_parallel_workers(shared, workers):
    """None available, fewer than planned, all."""
    shared.execute(f"SET max_parallel_workers = {workers}")
    sql = "SELECT count(*), count(DISTINCT block), sum(length(tensorbank.read(t)::bytea)) FROM wire"
    text = plan(shared, "SELECT block, tensorbank.read(t) FROM wire", "ANALYZE, COSTS OFF, TIMING OFF")
    assert re.search(rf"Workers Launched: {min(workers, 2)}\b", text)
    rows, blocks, size = shared.execute(sql).fetchone()
    assert (rows, blocks) == (BLOCKS, BLOCKS)
    assert size == shared.execute("SELECT 72 * length(tensorbank.read(t)::bytea) FROM wire LIMIT 1").fetchone()[0]


def test_parallel_without_leader(shared):
    shared.execute("SET parallel_leader_participation = off")
    assert shared.execute(f"SELECT count({READ}) FROM wire").fetchone()[0] == BLOCKS
    shared.execute("SET parallel_leader_participation = on")


def test_parallel_rescan(shared):
    shared.execute("SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET enable_memoize = off")
    sql = "SELECT n, s.c FROM generate_series(1, 4) n CROSS JOIN LATERAL (SELECT count(*) + 0 * n AS c FROM {} WHERE t_max > 50 OFFSET 0) s ORDER BY 1"
    assert shared.execute(sql.format("wire")).fetchall() == shared.execute(sql.format("copied")).fetchall()


def test_parallel_join_reads_ahead(shared):
    """The node that reads ahead runs in workers, too."""
    sql = "SELECT e.n, md5(tensorbank.read(w.t)::bytea) FROM wire w JOIN events e ON w.block = e.at"
    shared.execute("SET enable_nestloop = off")
    text = plan(shared, sql)
    assert re.search(r"Gather[\s\S]*TensorBank Read Ahead[\s\S]*Parallel Foreign Scan", text), text
    assert sorted(shared.execute(sql).fetchall()) == sorted(
        shared.execute("SELECT e.n, w.sum FROM copied w JOIN events e ON w.block = e.at").fetchall())


def test_parallel_costs(conn):
    """Defaults: no workers for metadata."""
    assert "Parallel" not in plan(conn, "SELECT * FROM wire")
    assert "Parallel" not in plan(conn, "SELECT count(*) FROM wire WHERE t_max > 100")


def test_parallel_left_out(shared):
    """One warning with the count of all processes."""
    shared.execute("SET tensorbank.unindexed = exclude")
    with shared.cursor() as cursor:
        cursor.execute("DROP FOREIGN TABLE IF EXISTS no_index")
        cursor.execute("CREATE FOREIGN TABLE no_index (block bigint, t tensorbank.tensor_ref, t_max double precision) SERVER far OPTIONS (path 'far_a.zarr')")
    shared.notices.clear()
    shared.execute("SELECT count(t_max) FROM no_index")
    told = [n for n in shared.notices if "left out" in n.message_primary]
    assert len(told) == 1 and told[0].message_detail.startswith("72 ")


def test_parallel_rights(db, shared):
    """A view filters rows for a role that may not read the table; workers decode for it."""
    with db.connect() as c:
        c.execute("DROP VIEW IF EXISTS shown")
        c.execute("DROP ROLE IF EXISTS wire_reader")
        c.execute("CREATE ROLE wire_reader")
        c.execute("CREATE VIEW shown WITH (security_barrier) AS SELECT block, t FROM wire WHERE block >= 10")
        c.execute("GRANT SELECT ON shown TO wire_reader")
    shared.execute("SET ROLE wire_reader")
    sql = "SELECT block, md5(tensorbank.read(t)::bytea) FROM shown"
    assert "Parallel Foreign Scan" in plan(shared, sql)
    rows = sorted(shared.execute(sql).fetchall())
    again = sorted(shared.execute("SELECT block, md5(tensorbank.read(t)::bytea) FROM shown ORDER BY block % 5").fetchall())
    fails(shared, "42501", "SELECT tensorbank.read(t) FROM wire")
    shared.execute("RESET ROLE")
    assert rows == again == sorted(shared.execute("SELECT block, sum FROM copied WHERE block >= 10").fetchall())


def worker_of(connection, leader):
    rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE leader_pid = %s AND pid <> leader_pid", (leader,)).fetchall()
    return rows[0][0] if rows else None


@pytest.mark.parametrize("how", ["pg_terminate_backend", "pg_cancel_backend"])
def test_parallel_worker_dies(db, far, faulty, how):
    faulty.reset()
    faulty.rule(r"/t/c/", "delay", seconds=0.3)
    far.execute(FORCE)
    far.execute("SET tensorbank.read_ahead = 0")
    errors = []

    def work():
        try:
            far.execute(f"SELECT sum({READ}) FROM far_a").fetchall()
        except psycopg.Error as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    with db.connect() as other:
        pid = wait_for(lambda: worker_of(other, far.info.backend_pid))
        assert pid, "no worker"
        time.sleep(0.1)
        other.execute(f"SELECT {how}(%s)", (pid,))
    thread.join(30)
    assert len(errors) == 1 and errors[0].sqlstate in ("57P01", "57014")
    faulty.reset()
    assert far.execute(f"SELECT count({READ}) FROM far_a").fetchone()[0] == BLOCKS


# ---- cursors, refs, memory ----

def test_refs_in_a_sorted_cursor(db, conn):
    """Rows that a sort holds may be read at a later FETCH; what was stored may not be read when the cursor is gone."""
    with db.connect() as c:
        c.execute("DROP VIEW IF EXISTS kept_view")
        c.execute("DROP TABLE IF EXISTS kept")
        c.execute("DROP ROLE IF EXISTS cursor_reader")
        c.execute("CREATE ROLE cursor_reader")
        c.execute("CREATE VIEW kept_view AS SELECT block, lat_min, t FROM wire WHERE block < 20")
        c.execute("CREATE TABLE kept (ref tensorbank.tensor_ref)")
        c.execute("GRANT SELECT ON kept_view TO cursor_reader")
        c.execute("GRANT SELECT, INSERT ON kept TO cursor_reader")
    conn.execute("SET ROLE cursor_reader")
    conn.execute("BEGIN")
    for name, tail in (("s", "ORDER BY lat_min, block"), ("m", "ORDER BY block DESC"), ("u", "")):
        conn.execute(f"DECLARE {name} SCROLL CURSOR FOR SELECT block, {READ} FROM kept_view {tail}")
        first = conn.execute(f"FETCH 3 FROM {name}").fetchall()
        rest = conn.execute(f"FETCH ALL FROM {name}").fetchall()
        back = conn.execute(f"FETCH BACKWARD 5 FROM {name}").fetchall()
        # behind the last row: the last ones, from the end
        assert len(first) == 3 and len(rest) == 17 and repr(back) == repr(rest[:-6:-1])
        conn.execute(f"CLOSE {name}")
    conn.execute("INSERT INTO kept SELECT t FROM kept_view WHERE block = 3")
    fails(conn, "42501", "SELECT tensorbank.read(ref) FROM kept")
    conn.execute("ROLLBACK")
    conn.execute("INSERT INTO kept SELECT t FROM kept_view WHERE block = 3")
    fails(conn, "42501", "SELECT tensorbank.read(ref) FROM kept")
    conn.execute("RESET ROLE")


def test_cursor_with_hold(conn):
    conn.execute("BEGIN")
    conn.execute("DECLARE h CURSOR WITH HOLD FOR SELECT block, md5(tensorbank.read(t)::bytea) FROM wire ORDER BY block")
    first = conn.execute("FETCH 2 FROM h").fetchall()
    conn.execute("COMMIT")
    rest = conn.execute("FETCH ALL FROM h").fetchall()
    conn.execute("CLOSE h")
    assert first + rest == conn.execute("SELECT block, sum FROM copied ORDER BY block").fetchall()


def memory(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"RssAnon:\s+(\d+) kB", file.read()).group(1))


def grows(connection, sql, rounds=3):
    connection.execute(sql)
    pid = connection.info.backend_pid
    connection.execute(sql)
    before = memory(pid)
    for _ in range(rounds):
        connection.execute(sql)
    return memory(pid) - before


def test_rescans_leave_memory_flat(conn):
    conn.execute("SET max_parallel_workers_per_gather = 0; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET enable_memoize = off")
    sql = "SELECT count(w.t_max) FROM generate_series(1, 33000) n JOIN wire w ON w.block = n % 72"
    text = plan(conn, sql)
    assert "Nested Loop" in text
    assert conn.execute(sql).fetchone()[0] == 33000
    assert grows(conn, sql) < 1024


def test_exceptions_leave_memory_flat(conn):
    conn.execute("SET max_parallel_workers_per_gather = 0")
    sql = f"""DO $$ DECLARE x double precision; BEGIN
        FOR i IN 1 .. 3000 LOOP
            BEGIN
                SELECT {READ} / (i % 2) INTO x FROM wire ORDER BY lat_min, block LIMIT 1 OFFSET 3;
            EXCEPTION WHEN division_by_zero THEN NULL;
            END;
        END LOOP; END $$"""
    assert grows(conn, sql) < 1024


def test_open_files_stay(far, faulty):
    faulty.reset()
    pid = far.info.backend_pid
    for _ in range(3):
        far.execute(UNION).fetchall()
    before = len(os.listdir(f"/proc/{pid}/fd"))
    for _ in range(30):
        far.execute(UNION).fetchall()
        try:
            far.execute(f"SELECT 1 / (block - 5) FROM ({UNION.replace('SELECT', 'SELECT block,')}) s").fetchall()
        except psycopg.Error:
            pass
    assert len(os.listdir(f"/proc/{pid}/fd")) <= before + 1
