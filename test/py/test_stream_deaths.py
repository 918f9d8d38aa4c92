"""kill -9 of clients, backends, the streamer and the supervisor: only their own streams are affected, everything is freed."""

import json
import os
import signal
import subprocess
import sys
import time

import psycopg
import pytest

import tensorbank
import zarrs
from cluster import alive, open_up, wait_for
from tensorbank import _wire

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(scope="module")
def server(folder):
    """A cluster of its own: it is killed here."""
    from conftest import no_internal_errors, start

    made = start(folder, "deaths", "shared_preload_libraries=tensorbank")
    yield made
    text = made.log()
    made.wipe()
    assert not no_internal_errors(text)


@pytest.fixture(scope="module", autouse=True)
def data(db, stores):
    zarrs.wind(f"{stores}/deaths.zarr", time=16, lat=48, lon=48, shards=(16, 48, 48))
    open_up(f"{stores}/deaths.zarr")
    with db.connect() as c:
        c.execute('IMPORT FOREIGN SCHEMA "deaths.zarr" FROM SERVER disk INTO public')
        c.execute("SELECT tensorbank.create_dataset('many', 'SELECT t, block FROM deaths')")
    # what an undisturbed run gives
    return [[int(b) for b in batch.block] for batch in dataset(db)]


def dataset(db, **options):
    return tensorbank.dataset(db.dsn(), dataset="many", **{"batch_size": 8, "shuffle": "full", "seed": 7, "output": "numpy", "rank": 0,
                                                           "world_size": 1, "copy": True, **options})


def spawn(db, *more):
    """A client in a process of its own; the first batch has come when this returns."""
    process = subprocess.Popen([sys.executable, f"{HERE}/stream_client.py", db.dsn(), "many", "8", "7", *more],
                               stdout=subprocess.PIPE, text=True)
    first = json.loads(process.stdout.readline())
    return process, first


def running(db):
    with db.connect() as c:
        return c.execute("SELECT count(*) FROM tensorbank.streams").fetchone()[0]


def settle(db, number=0):
    assert wait_for(lambda: running(db) == number, 10), f"{running(db)} streams instead of {number}"


def rings(db):
    """Shared memory that the streamer holds."""
    pid = db.server.streamer()
    names = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            names.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    return sum("memfd" in n for n in names)


def started(db):
    with db.connect() as c:
        return c.execute("SELECT pg_postmaster_start_time()").fetchone(), db.server.restarts()


def test_client_dies(db, data):
    before = started(db)
    other = iter(dataset(db))
    seen = [[int(b) for b in next(other).block]]
    process, first = spawn(db, "hold")
    assert first["blocks"] == data[0]
    settle(db, 2)
    process.kill()
    process.wait()
    settle(db, 1)
    seen += [[int(b) for b in batch.block] for batch in other]
    assert seen == data
    settle(db)
    assert rings(db) == 0
    assert started(db) == before


def test_client_dies_and_resumes(db, data):
    process, first = spawn(db)
    lines = [first] + [json.loads(process.stdout.readline()) for _ in range(4)]
    process.kill()
    process.wait()
    rest = [[int(b) for b in batch.block] for batch in dataset(db, state=lines[-1]["state"])]
    assert [line["blocks"] for line in lines] + rest == data
    settle(db)


def test_session_is_terminated(db, data):
    """pg_terminate_backend of the session behind a stream: its stream ends, and goes on from its state when asked."""
    before = started(db)
    iterator = iter(dataset(db, prefetch=2))
    seen, state = [], None
    with db.connect() as c:
        seen.append([int(b) for b in next(iterator).block])
        (pid,) = c.execute("SELECT pid FROM tensorbank.streams").fetchone()
        c.execute("SELECT pg_terminate_backend(%s)", (pid,))
        assert wait_for(lambda: c.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() == (0,))
    with pytest.raises((_wire.StreamError, _wire.StreamLost)):
        for batch in iterator:
            seen.append([int(b) for b in batch.block])
            state = batch.state
    assert seen == data[: len(seen)]
    settle(db)
    assert rings(db) == 0
    rest = dataset(db, state=state) if state else dataset(db)
    assert seen[: len(seen) if state else 0] + [[int(b) for b in batch.block] for batch in rest] == data
    settle(db)
    assert started(db) == before


def test_streamer_dies(db, data):
    """The child is killed again and again: the server and its worker do not notice, clients go on from their states."""
    before = started(db)
    above = db.server.supervisor()
    iterator = iter(dataset(db))
    seen = []
    for number in range(3):
        seen += [[int(b) for b in next(iterator).block] for _ in range(4)]
        child = db.server.streamer()
        db.server.kill(child)
        assert wait_for(lambda: db.server.streamer() not in (None, child), 15), "the streamer was not started again"
    seen += [[int(b) for b in batch.block] for batch in iterator]
    assert seen == data
    assert db.server.supervisor() == above
    assert started(db) == before
    settle(db)


def test_handles_of_a_dead_streamer(db):
    before = started(db)
    with db.connect() as c:
        number = c.execute("SELECT stream FROM tensorbank.open_stream('many', batch_size => 8)").fetchone()[0]
        handle = c.execute("SELECT tensors[1]::text FROM tensorbank.next_batch(%s)", (number,)).fetchone()[0]
        child = db.server.streamer()
        db.server.kill(child)
        assert wait_for(lambda: db.server.streamer() not in (None, child), 15)
        for sql, value in (("SELECT tensorbank.read(%s::tensorbank.handle)", handle), ("SELECT tensorbank.next_batch(%s)", number)):
            with pytest.raises(psycopg.Error) as caught:
                c.execute(sql, (value,))
            assert caught.value.sqlstate == "HV00B"
        # the same session opens another
        again = c.execute("SELECT stream FROM tensorbank.open_stream('many', batch_size => 8)").fetchone()[0]
        assert c.execute("SELECT batch FROM tensorbank.next_batch(%s)", (again,)).fetchone() == (0,)
    assert started(db) == before
    settle(db)


def test_streamer_dies_while_somebody_waits(db, stores, faulty):
    with db.connect() as c:
        c.execute(f"CREATE SERVER slow FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{faulty.url}', index_url 'file://{stores}')")
        c.execute("CREATE SCHEMA slow; IMPORT FOREIGN SCHEMA \"deaths.zarr\" FROM SERVER slow INTO slow")
        c.execute("SELECT tensorbank.create_dataset('slow', 'SELECT t, block FROM slow.deaths')")
        faulty.rule(r"/t/c/", "hang")
        number = c.execute("SELECT stream FROM tensorbank.open_stream('slow')").fetchone()[0]
        import threading
        child = db.server.streamer()
        timer = threading.Timer(0.5, db.server.kill, (child,))
        timer.start()
        start = time.monotonic()
        with pytest.raises(psycopg.Error) as caught:
            c.execute("SELECT * FROM tensorbank.next_batch(%s)", (number,))
        assert caught.value.sqlstate in ("57P03", "HV00B")
        assert time.monotonic() - start < 5
    assert wait_for(lambda: db.server.streamer() not in (None, child), 15)
    settle(db)


def test_supervisor_is_asked_to_end(db, data):
    """SIGTERM: the worker restarts alone."""
    before = started(db)
    above = db.server.supervisor()
    child = db.server.streamer()
    iterator = iter(dataset(db))
    seen = [[int(b) for b in next(iterator).block]]
    db.server.kill(above, signal.SIGTERM)
    assert wait_for(lambda: db.server.supervisor() not in (None, above) and db.server.streamer() not in (None, child), 20)
    assert not alive(child)
    seen += [[int(b) for b in batch.block] for batch in iterator]
    assert seen == data
    assert started(db) == before
    settle(db)


def test_supervisor_is_killed(db, data):
    """SIGKILL of a process with shared memory: PostgreSQL restarts all of its own, and clients resume."""
    child = db.server.streamer()
    state = next(iter(dataset(db))).state
    db.server.crash(db.server.supervisor())
    assert wait_for(lambda: not alive(child), 5), "the streamer outlived its supervisor"
    assert wait_for(lambda: db.server.streamer() is not None, 20)
    assert [[int(b) for b in batch.block] for batch in dataset(db, state=state)] == data[1:]
    settle(db)


def test_backend_is_killed(db, data):
    with db.connect() as c:
        pid = c.info.backend_pid
        c.execute("SELECT stream FROM tensorbank.open_stream('many', batch_size => 8)")
        c.execute("SELECT tensorbank.load(t) FROM deaths LIMIT 3")
        child = db.server.streamer()
        db.server.crash(pid)
    assert wait_for(lambda: db.server.streamer() not in (None, child), 20)
    assert not alive(child)
    settle(db)
    assert rings(db) == 0
    assert [[int(b) for b in batch.block] for batch in dataset(db)] == data
    # nothing of anonymous datasets or sockets is left over in the data directory but what is in use
    left = {n for n in os.listdir(f"{db.server.folder}/data") if "tensorbank" in n}
    assert left <= {"tensorbank.control", "tensorbank.control.lock", "tensorbank_tmp"}
    assert not os.path.exists(f"{db.server.folder}/data/tensorbank_tmp") or not os.listdir(f"{db.server.folder}/data/tensorbank_tmp")


def test_postmaster_is_killed(db):
    """Every child and the streamer end with it. Last: this cluster is not started again."""
    child, above, master = db.server.streamer(), db.server.supervisor(), db.server.postmaster()
    assert child and above
    db.server.kill(master)
    start = time.monotonic()
    assert wait_for(lambda: not any(alive(p) for p in (child, above)), 5)
    assert time.monotonic() - start < 2.5
    try:
        os.unlink(f"{db.server.folder}/data/postmaster.pid")
    except FileNotFoundError:
        pass
