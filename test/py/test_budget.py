"""Budgets of the node and its statistics: shared by all sessions and the streamer, fair, and nothing grows."""

import glob
import os
import re
import threading
import time

import numpy as np
import psycopg
import pytest

import zarrs
from cluster import open_up, wait_for
from conftest import fails, read_array, unique

#: short queries of the growth test; more of them on demand
QUERIES = int(os.environ.get("TB_GROWTH", "10000"))
FLAT_KB = 1024


@pytest.fixture(scope="module", autouse=True)
def data(db, stores, faulty_session):
    t, p = zarrs.wind(f"{stores}/budget.zarr")
    open_up(f"{stores}/budget.zarr")
    with db.connect() as c:
        c.execute(f"CREATE SERVER shaky FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{faulty_session.url}')")
        c.execute(f"CREATE SERVER idle FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{faulty_session.url}')")
        c.execute("CREATE SCHEMA shaky; CREATE SCHEMA disk")
        c.execute('IMPORT FOREIGN SCHEMA "budget.zarr" FROM SERVER shaky INTO shaky')
        c.execute('IMPORT FOREIGN SCHEMA "budget.zarr" FROM SERVER disk INTO disk')
    return t, p


def statistics(connection, server="shaky"):
    cursor = connection.execute("SELECT * FROM tensorbank.io_statistics WHERE server = %s", (server,))
    row = cursor.fetchone()
    return None if row is None else dict(zip((d.name for d in cursor.description), row))


def grown(before, after):
    return {k: after[k] - before[k] for k in before if k not in ("server", "scope")}


# ---- statistics ----

def test_statistics_count_every_request(db, faulty):
    with db.connect() as watcher, db.connect() as c:
        before = statistics(watcher)
        assert before["scope"] == "node"
        faulty.rule(r"/t/c/1/1/1$", "status", times=1, code=500)
        faulty.rule(r"/t/c/0/0/1$", "status", code=404)
        c.execute("SELECT count(tensorbank.read(t)) FROM shaky.budget").fetchall()
        seen = grown(before, statistics(watcher))
        assert seen["requests"] == len(faulty.log)
        assert seen["retries"] == 1 and seen["missing"] >= 1 and seen["errors"] == 0
        assert seen["bytes"] > 36 * 100 and seen["wait_ms"] > 0
        faulty.rule(r"/t/c/2/2/2$", "status", code=403)
        before = statistics(watcher)
        fails(c, "42501", "SELECT tensorbank.read(t) FROM shaky.budget")
        assert grown(before, statistics(watcher))["errors"] == 1
        assert all(value >= 0 for value in grown(before, statistics(watcher)).values())
        # the servers are kept apart
        assert statistics(watcher, "idle")["requests"] == 0


def test_statistics_of_the_streamer(db, faulty):
    """What the streamer reads is counted under the same name."""
    with db.connect() as c:
        c.execute("SELECT count(*) FROM shaky.budget").fetchall()
        before = statistics(c)
        faulty.log.clear()
        (handle,) = c.execute("SELECT tensorbank.load(tensorbank.ref('shaky.budget', 't'))").fetchone()
        c.execute("SELECT tensorbank.wait(%s::tensorbank.handle)", (handle,))
        assert wait_for(lambda: grown(before, statistics(c))["requests"] == len(faulty.log))
        assert len(faulty.requests(r"/t/c/")) == 36


def test_statistics_are_for_who_may_use_the_server(db, server):
    role, monitor = unique("plain"), unique("monitor")
    with db.connect() as c:
        c.execute(f"CREATE ROLE {role} LOGIN; CREATE ROLE {monitor} LOGIN; GRANT pg_monitor TO {monitor}")
        every = c.execute("SELECT server FROM tensorbank.io_statistics ORDER BY 1").fetchall()
        assert [name for (name,) in every] == ["disk", "idle", "shaky", "web"]
        with db.connect(role) as p:
            assert p.execute("SELECT * FROM tensorbank.io_statistics").fetchall() == []
            fails(p, "42501", "SELECT * FROM tensorbank.node_status")
            fails(p, "42501", "SELECT tensorbank.node_status()")
            c.execute(f"GRANT USAGE ON FOREIGN SERVER shaky TO {role}")
            assert p.execute("SELECT server FROM tensorbank.io_statistics").fetchall() == [("shaky",)]
        with db.connect(monitor) as m:
            assert m.execute("SELECT server FROM tensorbank.io_statistics ORDER BY 1").fetchall() == every
            assert m.execute("SELECT scope FROM tensorbank.node_status").fetchone() == ("node",)
        c.execute(f"DROP OWNED BY {role}; DROP ROLE {role}; DROP ROLE {monitor}")


def test_explain_tells_of_retries(db, faulty):
    with db.connect() as c:
        sql = "EXPLAIN (ANALYZE, COSTS off) SELECT tensorbank.read(t) FROM shaky.budget"
        assert not re.search("Retries|Hedges|Throttled", str(c.execute(sql).fetchall()))
        faulty.rule(r"/t/c/1/1/1$", "status", times=2, code=500)
        assert "Retries: 2" in str(c.execute(sql).fetchall())


# ---- limits ----

def test_settings_are_checked(conn, db):
    fails(conn, "22023", "ALTER SYSTEM SET tensorbank.cache_directory = 'relative/path'")
    fails(conn, "55P02", "SET tensorbank.cache_directory = '/tmp'")
    fails(conn, "22023", "SET tensorbank.hedge_percent = 101")
    role = unique("plain")
    conn.execute(f"CREATE ROLE {role} LOGIN")
    with db.connect(role) as p:
        for name in ("max_connections", "max_requests_in_flight", "io_memory", "hedge_percent"):
            fails(p, "42501", f"SET tensorbank.{name} = 1")
        fails(p, "42501", "SHOW tensorbank.cache_directory")
    conn.execute(f"DROP ROLE {role}")


def most_requests(db, done):
    """Polls what is taken of the node's limits until done() is true."""
    most = 0
    with db.connect() as c:
        while not done():
            most = max(most, c.execute("SELECT requests FROM tensorbank.node_status").fetchone()[0])
    return most


def test_limit_holds_over_all_sessions(data, db, faulty):
    """Six sessions under one limit: never more than it and what latecomers' shares add, and each reads rightly."""
    t, _ = data
    limit = 6
    faulty.rule(r"/t/c/", "delay", seconds=0.02)
    results = []

    def read():
        with db.connect() as c:
            c.execute(f"SET tensorbank.max_requests_in_flight = {limit}")
            results.append(read_array(c, "SELECT tensorbank.read(tensorbank.ref('shaky.budget', 't'))"))

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    most = most_requests(db, lambda: not any(thread.is_alive() for thread in threads))
    for thread in threads:
        thread.join()
    assert len(results) == 6 and all(np.array_equal(r, t, equal_nan=True) for r in results)
    # a taker shows in the sum for a moment before it is refused: one of each
    assert 1 < most <= limit * (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5 + 1 / 6) + 6


def test_a_greedy_session_leaves_room(db, faulty):
    """One session takes all there is and goes on taking; another's small read takes hardly longer than alone."""
    faulty.rule(r"/t/c/", "delay", seconds=0.05)
    small = "SELECT tensorbank.read(t) FROM shaky.budget WHERE tensorbank.origin(t) = '{0,0,4}'"
    stop = threading.Event()

    def be_greedy():
        with db.connect() as c:
            c.execute("SET tensorbank.max_requests_in_flight = 4")
            while not stop.is_set():
                c.execute("SELECT count(tensorbank.read(t)) FROM shaky.budget").fetchall()
                time.sleep(0.01)

    def seconds():
        began = time.monotonic()
        with db.connect() as c:
            c.execute("SET tensorbank.max_requests_in_flight = 4")
            c.execute(small).fetchall()
        return time.monotonic() - began

    alone = sorted(seconds() for _ in range(5))[2]
    greedy = threading.Thread(target=be_greedy)
    greedy.start()
    try:
        time.sleep(0.5)
        beside = sorted(seconds() for _ in range(9))
    finally:
        stop.set()
        greedy.join()
    assert beside[4] < 2 * alone + 0.1, (alone, beside)


def test_what_sessions_took_comes_back(db, faulty):
    """After sessions that ended in the middle of reads, however, nothing is taken."""
    faulty.rule(r"/t/c/", "hang")
    with db.connect() as watcher:
        watcher.execute("SELECT * FROM tensorbank.node_status").fetchall()
        for _ in range(3):
            c = db.connect()
            c.execute("SELECT count(*) FROM shaky.budget").fetchall()
            c.execute("SET statement_timeout = '200ms'")
            fails(c, "57014", "SELECT tensorbank.read(t) FROM shaky.budget")
            c.close()
        taken = "SELECT requests, memory_bytes FROM tensorbank.node_status"
        assert wait_for(lambda: watcher.execute(taken).fetchone() == (0, 0), 3)


# ---- growth ----

def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def private_kb(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"RssAnon:\s+(\d+)", file.read()).group(1))


def stays_flat(connection, step, n, warm):
    """Descriptors and memory of a session after n steps, of which the first ones do not count."""
    pid = connection.info.backend_pid
    for i in range(warm):
        step(i)
    before = descriptors(pid), private_kb(pid)
    for i in range(n):
        step(i)
    after = descriptors(pid), private_kb(pid)
    assert after[0] <= before[0] + 1, f"descriptors: {before[0]}, then {after[0]}"
    assert after[1] <= before[1] + FLAT_KB, f"kB: {before[1]}, then {after[1]}"


def test_short_queries(db, faulty):
    queries = ("SELECT count(*) FROM disk.budget", "SELECT t FROM disk.budget LIMIT 1", "SELECT tensorbank.read(t) FROM disk.budget LIMIT 1",
               "SELECT block FROM disk.budget WHERE block = 7", "SELECT server FROM tensorbank.io_statistics LIMIT 1")
    with db.connect() as c:
        stays_flat(c, lambda i: c.execute(queries[i % len(queries)]).fetchall(), QUERIES, QUERIES // 10)


def test_short_queries_over_http(db, faulty):
    """Also those that end before their requests do."""
    queries = ("SELECT tensorbank.read(t) FROM shaky.budget LIMIT 1", "SELECT tensorbank.read(p) FROM shaky.budget WHERE block = 7")
    with db.connect() as c:
        stays_flat(c, lambda i: c.execute(queries[i % len(queries)]).fetchall(), QUERIES // 20, QUERIES // 40)


def test_exception_loops(db):
    """Reads that fail inside subtransactions, thousands in one statement."""
    loop = """DO $$BEGIN FOR i IN 1..%d LOOP
        BEGIN PERFORM tensorbank.read(tensorbank.ref('disk.budget', 't'), ARRAY[int4range(90, 95)]); EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN PERFORM 1 / (count(*) - 36) FROM disk.budget; EXCEPTION WHEN division_by_zero THEN NULL; END;
    END LOOP; END$$"""
    with db.connect() as c:
        stays_flat(c, lambda i: c.execute(loop % (QUERIES // 20)), 10, 2)


def test_rescans(db):
    """A nested loop that starts a scan for every outer row and stops it after the first one."""
    loop = f"""SELECT count(x) FROM generate_series(1, {QUERIES // 10}) AS g,
        LATERAL (SELECT t AS x FROM disk.budget WHERE block >= g % 30 LIMIT 1) AS s"""
    with db.connect() as c:
        stays_flat(c, lambda i: c.execute(loop).fetchall(), 5, 2)


def test_no_files_are_left(db, server):
    """Nothing but the books lies in the server's directory for statistics."""
    names = [os.path.basename(p) for p in glob.glob(f"{server.folder}/data/pg_stat_tmp/*")]
    assert [n for n in names if n.startswith("tensorbank")] == ["tensorbank.node"]
