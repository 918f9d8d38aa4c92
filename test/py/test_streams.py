"""Datasets and streams: what a rank gets, in which order, resumed exactly, and what a bad handle says."""

import gc
import json

import numpy as np
import psycopg
import pytest

import tensorbank
import zarrs
from cluster import open_up, wait_for
from conftest import fails, read_array, unique
from tensorbank import _wire

SAMPLES = 36


@pytest.fixture(scope="module", autouse=True)
def data(db, stores):
    t, p = zarrs.wind(f"{stores}/stream.zarr")
    open_up(f"{stores}/stream.zarr")
    with db.connect() as c:
        c.execute('IMPORT FOREIGN SCHEMA "stream.zarr" FROM SERVER disk INTO public')
        c.execute("CALL tensorbank.build_index('stream')")
        c.execute("SELECT tensorbank.create_dataset('all', 'SELECT t, p AS packed, block, p_mean AS label FROM stream')")
        c.execute("SELECT tensorbank.create_dataset('one', 'SELECT t, block FROM stream WHERE t_max > $1', params => '{100}')")
        rows = c.execute("SELECT block, tensorbank.origin(t), tensorbank.shape(t), p_mean FROM stream").fetchall()
    blocks = {}
    for block, origin, shape, label in rows:
        part = tuple(slice(o, o + n) for o, n in zip(origin, shape))
        blocks[block] = (t[part], zarrs.decoded(p)[part], label)
    return blocks


@pytest.fixture(autouse=True)
def nothing_left(db):
    """After each test: no stream runs, wherever the test ended."""
    yield
    gc.collect()
    with db.connect() as c:
        assert wait_for(lambda: c.execute("SELECT count(*) FROM tensorbank.streams").fetchone() == (0,), 10), c.execute(
            "SELECT * FROM tensorbank.streams").fetchall()


def stream(db, name="all", **options):
    options = {"batch_size": 4, "output": "numpy", "rank": 0, "world_size": 1, "copy": True, **options}
    return tensorbank.dataset(db.dsn(), dataset=name, **options)


def blocks_of(dataset):
    return [[int(b) for b in batch.block] for batch in dataset]


def flat(batches):
    return [b for batch in batches for b in batch]


# ---- values and order ----

def test_values(db, data):
    seen = 0
    for batch in stream(db, batch_size=5, shuffle="full", tail="ragged", copy=False):
        assert batch.t.dtype == np.float32 and batch.packed.dtype == np.float64
        assert batch.t.shape[1:] == (2, 4, 4)
        for k, block in enumerate(batch.block):
            t, p, label = data[int(block)]
            assert np.array_equal(batch.t[k], t, equal_nan=True)
            assert np.array_equal(batch.packed[k], p, equal_nan=True)
            assert batch.label[k] == label
            seen += 1
    assert seen == SAMPLES


def test_arrays_may_be_written(db, data):
    """A training loop subtracts a mean in place; the next epoch's data are whole all the same."""
    for _ in range(2):
        for batch in stream(db, copy=False):
            for k, block in enumerate(batch.block):
                assert np.array_equal(batch.t[k], data[int(block)][0], equal_nan=True)
            batch.t[...] -= 1e6


def test_order(db):
    plain = flat(blocks_of(stream(db)))
    assert plain == sorted(plain) and len(plain) == SAMPLES
    first = flat(blocks_of(stream(db, shuffle="full", seed=5)))
    assert first != plain and sorted(first) == plain
    assert first == flat(blocks_of(stream(db, shuffle="full", seed=5)))
    assert first != flat(blocks_of(stream(db, shuffle="full", seed=6)))
    assert first != flat(blocks_of(stream(db, shuffle="full", seed=5, epoch=1)))
    epochs = stream(db, shuffle="full", seed=5)
    assert flat(blocks_of(epochs)) == first
    epochs.set_epoch(1)
    assert flat(blocks_of(epochs)) == flat(blocks_of(stream(db, shuffle="full", seed=5, epoch=1)))


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_each_global_batch(db, world):
    whole = blocks_of(stream(db, shuffle="full", seed=3, batch_size=4 * world))
    ranks = [blocks_of(stream(db, shuffle="full", seed=3, rank=r, world_size=world)) for r in range(world)]
    assert {len(r) for r in ranks} == {SAMPLES // (4 * world)}
    for number, batch in enumerate(whole):
        parts = [ranks[r][number] for r in range(world)]
        assert all(len(p) == 4 for p in parts)
        assert sorted(flat(parts)) == sorted(batch)


@pytest.mark.parametrize("tail, batches, last", [("drop", 3, 10), ("ragged", 4, 6), ("pad", 4, 10)])
def test_tails(db, tail, batches, last):
    made = stream(db, batch_size=10, tail=tail)
    assert len(made) == batches
    got = list(made)
    assert len(got) == batches and len(got[-1].t) == last
    if tail == "pad":
        assert got[-1].padded == 4
    if tail != "drop":
        assert {int(b) for batch in got for b in batch.block} == set(range(SAMPLES))


def test_length_of_ranks_is_equal(db):
    for tail in ("drop", "pad", "ragged"):
        assert len({len(stream(db, batch_size=5, rank=r, world_size=2, tail=tail)) for r in (0, 1)}) == 1


# ---- resuming ----

@pytest.mark.parametrize("stop", [1, 4, 8])
def test_resume(db, stop):
    whole = list(stream(db, shuffle="full", seed=11))
    states = [b.state for b in whole]
    rest = blocks_of(stream(db, shuffle="full", seed=11, state=states[stop - 1]))
    assert rest == [[int(x) for x in b.block] for b in whole[stop:]]
    assert len(stream(db, shuffle="full", seed=11, state=states[stop - 1])) == len(whole) - stop
    assert all(len(s) < 1024 for s in states)


def test_state_is_the_same_on_all_ranks(db):
    states = [[b.state for b in stream(db, shuffle="full", seed=2, rank=r, world_size=2)] for r in (0, 1)]
    assert states[0] == states[1]


def test_resume_with_another_world(db):
    """Two ranks of 4 stop after two batches; one rank of 8 goes on at the same place."""
    state = [b.state for b in stream(db, shuffle="full", seed=2, rank=0, world_size=2)][1]
    whole = flat(blocks_of(stream(db, shuffle="full", seed=2, batch_size=1)))
    rest = flat(blocks_of(stream(db, shuffle="full", seed=2, batch_size=8, state=state, tail="ragged")))
    assert rest == whole[16:]


def test_state_dict(db):
    made = stream(db, shuffle="full", seed=2)
    iterator = iter(made)
    before = [[int(b) for b in next(iterator).block] for _ in range(3)]
    saved = json.loads(json.dumps(made.state_dict()))
    iterator.close()
    again = stream(db, shuffle="full", seed=2)
    again.load_state_dict(saved)
    assert before + blocks_of(again) == blocks_of(stream(db, shuffle="full", seed=2))


def test_state_of_another_dataset(db, conn):
    state = next(iter(stream(db))).state
    fails(conn, "22023", "SELECT tensorbank.open_stream('one', state => %s)", state)
    fails(conn, "22023", "SELECT tensorbank.open_stream('all', state => 'nonsense')")


# ---- torch ----

@pytest.mark.parametrize("workers, method", [(0, None), (2, "fork"), (2, "spawn")])
def test_dataloader(db, workers, method):
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    expected = blocks_of(stream(db, shuffle="full", seed=9))
    made = stream(db, shuffle="full", seed=9, output="torch", copy=False)
    loader = DataLoader(made, batch_size=None, num_workers=workers, multiprocessing_context=method)
    got = []
    for batch in loader:
        assert isinstance(batch.t, torch.Tensor) and batch.t.dtype == torch.float32
        got.append([int(b) for b in batch.block])
    assert sorted(got) == sorted(expected), "the workers share the rank's batches"
    if workers == 0:
        assert got == expected
        assert made.state_dict()["state"]
    else:
        with pytest.raises(RuntimeError, match="worker"):
            made.state_dict()


def test_torch_and_transform(db, data):
    torch = pytest.importorskip("torch")
    made = stream(db, output="torch", transform=lambda batch: (batch.t * 2, batch.block))
    t, block = next(iter(made))
    assert isinstance(t, torch.Tensor)
    assert np.array_equal(t[0].numpy(), data[int(block[0])][0] * 2, equal_nan=True)


# ---- slots ----

def test_holding_every_slot_says_so(db):
    made = stream(db, copy=False, prefetch=2, batch_size=1)
    held = []
    with pytest.raises(RuntimeError, match="prefetch"):
        for batch in made:
            held.append(batch.t)
    assert len(held) >= 2
    # what is held stays what it was
    assert len({float(h[0, 1, 1, 1]) for h in held}) == len(held)


def test_slot_returns_when_the_last_view_goes(db):
    made = stream(db, copy=False, prefetch=2, batch_size=1)
    kept = None
    count = 0
    for batch in made:
        kept = batch.t[0, 0]  # a view of a view, of the last batch only
        count += 1
    assert count == SAMPLES and kept is not None


def test_copies_may_all_be_kept(db, data):
    kept = list(stream(db, copy=True, prefetch=2, batch_size=1))
    assert len(kept) == SAMPLES
    for batch in kept:
        assert np.array_equal(batch.t[0], data[int(batch.block[0])][0], equal_nan=True)


# ---- tokens and the client socket ----

def opened(connection, arguments="'all', batch_size => 4"):
    return connection.execute(f"SELECT stream, socket, token, batches FROM tensorbank.open_stream({arguments})").fetchone()


def test_a_token_is_good_once(conn):
    _, path, token, _ = opened(conn)
    first = _wire.SocketStream(path, token)
    errors = set()
    for again in (token, "0" * 32, token[:-1] + ("0" if token[-1] != "0" else "1"), "", "x" * 5000):
        with pytest.raises(_wire.StreamError) as caught:
            _wire.SocketStream(path, again)
        errors.add(caught.value.code)
    assert len(errors) == 1
    # the one who has it is not disturbed
    assert first.next() is not None
    first.close()


def test_without_a_token_nothing_is_told(conn):
    _, path, _, _ = opened(conn)
    for message in ({"op": "next"}, {"op": "release", "slot": 0, "generation": 1}, {"op": "close"}, {"op": "streams"}, {"op": "hello", "version": 1},
                    {"op": "open", "dataset": {"file": "/etc/passwd"}}, {"no": 1}, [], "text"):
        wire = _wire.Wire(path)
        wire.send(message)
        if isinstance(message, dict) and message.get("op") == "release":
            wire.send({"op": "next"})
        with pytest.raises((_wire.StreamError, _wire.StreamLost)):
            wire.receive()
        wire.close()
    # garbage instead of frames
    import os
    import socket
    for garbage in (b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", (1 << 31).to_bytes(4, "little") + b"x", os.urandom(4096)):
        s = socket.socket(socket.AF_UNIX)
        s.connect(path)
        s.settimeout(5)
        s.sendall(garbage)
        s.shutdown(socket.SHUT_WR)
        try:
            while s.recv(4096):
                pass
        except ConnectionResetError:
            pass
        s.close()
    assert opened(conn)[3] == 9


def test_garbage_in_the_ring_changes_nothing_elsewhere(db, conn, data):
    """The client writes all over its memory: its neighbour's batches and its own next ones are right."""
    _, path, token, _ = opened(conn, "'all', batch_size => 2, prefetch => 3")
    mine = _wire.SocketStream(path, token)
    other = iter(stream(db, batch_size=2, copy=False))
    for _ in range(10):
        message, arrays = mine.next()
        for array in arrays.values():
            array[...] = -1
        blocks = message["scalars"]["block"]
        del arrays, array
        batch = next(other)
        assert [int(b) for b in batch.block] == blocks
        for k, block in enumerate(batch.block):
            assert np.array_equal(batch.t[k], data[int(block)][0], equal_nan=True)
        del batch
    mine.close()
    other.close()


# ---- in band ----

def test_in_band(db, conn, data):
    number, _, _, batches = opened(conn, "'all', batch_size => 4, shuffle => 'full', seed => 4")
    sql = _wire.SqlStream(conn, number)
    got = []
    while (item := sql.next()) is not None:
        message, arrays = item
        got.append(message["scalars"]["block"])
        for k, block in enumerate(got[-1]):
            assert np.array_equal(arrays["t"][k], data[block][0], equal_nan=True)
    assert len(got) == batches and got == blocks_of(stream(db, shuffle="full", seed=4))


def test_in_band_from_another_host(db):
    """Where the socket cannot be reached the client reads through libpq by itself."""
    made = stream(db, shuffle="full", seed=4)
    expected = blocks_of(made)
    original = _wire.SocketStream

    class Unreachable:
        def __init__(self, *_):
            raise FileNotFoundError

    from tensorbank import _dataset
    _dataset.SocketStream = Unreachable
    try:
        assert blocks_of(stream(db, shuffle="full", seed=4)) == expected
    finally:
        _dataset.SocketStream = original


# ---- handles ----

def bad_handle(connection, handle, call="tensorbank.read(%s::tensorbank.handle)"):
    diag = fails(connection, "HV00B", f"SELECT {call}", handle)
    return diag.message_primary, diag.message_detail, diag.message_hint


def test_every_bad_handle_has_one_text(db, conn):
    number, _, _, _ = opened(conn)
    handle = conn.execute("SELECT tensors[1]::text FROM tensorbank.next_batch(%s)", (number,)).fetchone()[0]
    stale = conn.execute("SELECT tensors[1]::text FROM tensorbank.next_batch(%s)", (number,)).fetchone()[0]
    conn.execute("SELECT tensorbank.read(%s::tensorbank.handle)", (handle,))
    conn.execute("SELECT tensorbank.release(ARRAY(SELECT unnest(%s::text[])::tensorbank.handle))", ([stale],))
    texts = {bad_handle(conn, stale)}
    # forged: each part of it changed
    body, epoch = handle.split("@")
    parts = body.split(".")
    forgeries = [".".join(parts[:k] + [format(int(parts[k], 16) + add, "x")] + parts[k + 1:]) + "@" + epoch
                 for k in range(4) for add in (7, 99)]
    forgeries += [f"{body}@{epoch[:k]}{(int(epoch[k], 16) + 1) % 16:x}{epoch[k + 1:]}" for k in range(len(epoch))]
    for other in forgeries:
        texts.add(bad_handle(conn, other))
    # foreign: another session of the same role, and another role in this session
    with db.connect() as other:
        texts.add(bad_handle(other, handle))
        texts.add(bad_handle(other, handle, "tensorbank.release(%s::tensorbank.handle)"))
        texts.add(bad_handle(other, handle, "tensorbank.wait(%s::tensorbank.handle)"))
    role = unique("nobody")
    conn.execute(f"CREATE ROLE {role}")
    conn.execute(f"SET ROLE {role}")
    texts.add(bad_handle(conn, handle))
    conn.execute("RESET ROLE")
    assert len(texts) == 1, texts
    # and the good one is still good
    assert conn.execute("SELECT tensorbank.shape(tensorbank.read(%s::tensorbank.handle))", (handle,)).fetchone()
    conn.execute("SELECT tensorbank.close_stream(%s)", (number,))
    texts.add(bad_handle(conn, handle))
    assert len(texts) == 1


def test_streams_of_others_do_not_exist(db, conn):
    number, _, _, _ = opened(conn)
    with db.connect() as other:
        for call in ("next_batch", "close_stream", "renew_stream"):
            fails(other, "HV00B", f"SELECT tensorbank.{call}(%s)", number)
    fails(conn, "HV00B", "SELECT tensorbank.next_batch(-1)")
    fails(conn, "HV00B", "SELECT tensorbank.next_batch(123456789)")


def test_load(conn, data):
    ref = "(SELECT t FROM stream WHERE block = 7)"
    handle = conn.execute(f"SELECT tensorbank.load({ref})::text").fetchone()[0]
    conn.execute("SELECT tensorbank.wait(%s::tensorbank.handle)", (handle,))
    got = read_array(conn, "SELECT tensorbank.read(%s::tensorbank.handle)", handle)
    assert np.array_equal(got, data[7][0], equal_nan=True)
    conn.execute("SELECT tensorbank.release(%s::tensorbank.handle)", (handle,))
    fails(conn, "HV00B", "SELECT tensorbank.read(%s::tensorbank.handle)", handle)


def test_abort_frees_what_it_loaded(conn):
    ref = "(SELECT t FROM stream WHERE block = 7)"
    kept = conn.execute(f"SELECT tensorbank.load({ref})::text").fetchone()[0]
    with pytest.raises(ZeroDivisionError):
        with conn.transaction():
            lost = conn.execute(f"SELECT tensorbank.load({ref})::text").fetchone()[0]
            raise ZeroDivisionError
    fails(conn, "HV00B", "SELECT tensorbank.read(%s::tensorbank.handle)", lost)
    with conn.transaction():
        outer = conn.execute(f"SELECT tensorbank.load({ref})::text").fetchone()[0]
        with pytest.raises(ZeroDivisionError):
            with conn.transaction():
                inner = conn.execute(f"SELECT tensorbank.load({ref})::text").fetchone()[0]
                raise ZeroDivisionError
    conn.execute("SELECT tensorbank.read(%s::tensorbank.handle)", (outer,))
    conn.execute("SELECT tensorbank.read(%s::tensorbank.handle)", (kept,))
    fails(conn, "HV00B", "SELECT tensorbank.read(%s::tensorbank.handle)", inner)


def test_discard_all_ends_streams(conn):
    number, _, _, _ = opened(conn)
    handle = conn.execute("SELECT tensors[1]::text FROM tensorbank.next_batch(%s)", (number,)).fetchone()[0]
    conn.execute("DISCARD ALL")
    fails(conn, "HV00B", "SELECT tensorbank.next_batch(%s)", number)
    fails(conn, "HV00B", "SELECT tensorbank.read(%s::tensorbank.handle)", handle)
    assert conn.execute("SELECT count(*) FROM tensorbank.streams").fetchone() == (0,)


def test_streams_survive_transactions(conn):
    with conn.transaction():
        number, _, _, _ = opened(conn)
    with pytest.raises(ZeroDivisionError):
        with conn.transaction():
            conn.execute("SELECT * FROM tensorbank.next_batch(%s)", (number,))
            raise ZeroDivisionError
    assert conn.execute("SELECT batch FROM tensorbank.next_batch(%s)", (number,)).fetchone() == (1,)
    assert conn.execute("SELECT count(*) FROM tensorbank.streams").fetchone() == (1,)


# ---- what cannot be frozen or opened ----

@pytest.mark.parametrize("query, state", [
    ("SELECT t FROM stream; SELECT 1", "42601"), ("", "42601"), ("INSERT INTO x VALUES (1)", "25006"),
    ("WITH w AS (DELETE FROM victim RETURNING 1) SELECT t FROM stream, w", "25006"), ("SELECT block FROM stream", "22023"),
    ("SELECT NULL::tensorbank.tensor_ref AS t FROM stream", "22004"), ("SELECT t FROM stream WHERE false", "22023"),
    ("SELECT tensorbank.crop(t, '{0,0,0}', ARRAY[1, 1, block % 3 + 1]) AS t FROM stream", "2202E"), ("SELECT t, t FROM stream", "42701"),
    ("SELECT t FROM nothing", "42P01"), ("SELECT t FROM stream WHERE t_max > $1", "22023"), ("SELEC t", "42601")])
def test_queries_that_cannot_be_frozen(conn, query, state):
    conn.execute("CREATE TABLE IF NOT EXISTS victim AS SELECT 1 AS a")
    for call in ("tensorbank.create_dataset('bad', %s)", "tensorbank.open_stream(query => %s)"):
        with pytest.raises(psycopg.Error) as caught:
            conn.execute(f"SELECT {call}", (query,))
        assert caught.value.sqlstate == state or (state == "22023" and caught.value.sqlstate in ("42P02", "22023")), caught.value
    assert conn.execute("SELECT count(*) FROM victim").fetchone() == (1,)
    assert conn.execute("SELECT count(*) FROM tensorbank.datasets WHERE name = 'bad'").fetchone() == (0,)


def test_anonymous(db):
    query = "SELECT t, block FROM stream WHERE t_max > $1"
    made = tensorbank.dataset(db.dsn(), query, ["100"], batch_size=4, output="numpy", rank=0, world_size=1, copy=True)
    named = stream(db, "one")
    assert blocks_of(made) == blocks_of(named)


def test_anonymous_of_many_ranks_is_refused(conn):
    diag = fails(conn, "22023", "SELECT tensorbank.open_stream(query => 'SELECT t FROM stream', world_size => 2)")
    assert "create_dataset" in f"{diag.message_hint} {diag.message_detail}"


@pytest.mark.parametrize("arguments, state", [
    ("'nothing'", "42704"), ("", "22023"), ("'all', query => 'SELECT 1'", "22023"), ("'all', batch_size => 0", "22023"), ("'all', shuffle => 'wild'", "22023"),
    ("'all', rank => 2, world_size => 2", "22023"), ("'all', rank => -1", "22023"), ("'all', device => 'cuda'", "0A000"), ("'all', tail => 'x'", "22023"),
    ("'all', batch_size => NULL", "22004"), ("'all', prefetch => 0", "22023")])
def test_wrong_arguments(conn, arguments, state):
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(f"SELECT tensorbank.open_stream({arguments})")
    assert caught.value.sqlstate == state, caught.value


def test_dataset_stands_still(db, conn, stores):
    """Growth, new tables, other rows: a frozen dataset has the samples it had."""
    before = conn.execute("SELECT hash, samples FROM tensorbank.datasets WHERE name = 'one'").fetchone()
    expected = blocks_of(stream(db, "one", shuffle="full", seed=1))
    again = conn.execute("SELECT tensorbank.create_dataset('two', 'SELECT t, block FROM stream WHERE t_max > $1', params => '{100}')").fetchone()[0]
    assert again == before[0], "the same content has the same hash"
    assert blocks_of(stream(db, "two", shuffle="full", seed=1)) == expected
    conn.execute("SELECT tensorbank.drop_dataset('two')")
    fails(conn, "42704", "SELECT tensorbank.open_stream('two')")


def test_corrupt_chunk(db, conn, stores):
    zarrs.wind(f"{stores}/rotten.zarr")
    path = f"{stores}/rotten.zarr/t/c/1/1/1"
    with open(path, "r+b") as file:
        content = file.read()
        file.seek(0)
        file.write(content[: len(content) // 2])
        file.truncate()
    open_up(f"{stores}/rotten.zarr")
    conn.execute('IMPORT FOREIGN SCHEMA "rotten.zarr" FROM SERVER disk INTO public')
    conn.execute("SELECT tensorbank.create_dataset('rotten', 'SELECT t, block FROM rotten')")
    got = 0
    with pytest.raises(_wire.StreamError) as caught:
        for batch in stream(db, "rotten", batch_size=1):
            got += 1
    assert caught.value.code == "corrupt" and "t/c/1/1/1" in str(caught.value)
    assert got >= 10
    number = opened(conn, "'rotten', batch_size => 1")[0]
    with pytest.raises(psycopg.errors.DataCorrupted) as caught:
        for _ in range(SAMPLES):
            conn.execute("SELECT tensorbank.release(tensors) FROM tensorbank.next_batch(%s)", (number,))
    assert "t/c/1/1/1" in str(caught.value)


def test_cancel_while_waiting_for_a_batch(db, stores, faulty):
    import time
    with db.connect() as c:
        c.execute(f"CREATE SERVER slow FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{faulty.url}', index_url 'file://{stores}')")
        c.execute("CREATE SCHEMA slow; IMPORT FOREIGN SCHEMA \"stream.zarr\" FROM SERVER slow INTO slow")
        c.execute("SELECT tensorbank.create_dataset('slow', 'SELECT t, block FROM slow.stream')")
        faulty.rule(r"/t/c/", "hang")
        number = opened(c, "'slow'")[0]
        c.execute("SET statement_timeout = '500ms'")
        start = time.monotonic()
        with pytest.raises(psycopg.errors.QueryCanceled):
            c.execute("SELECT * FROM tensorbank.next_batch(%s)", (number,))
        assert time.monotonic() - start < 1.5
        c.execute("SET statement_timeout = 0")
        faulty.reset()
        # the stream goes on where it was
        rows = [c.execute("SELECT batch, tensorbank.release(tensors) FROM tensorbank.next_batch(%s)", (number,)).fetchone()[0] for _ in range(3)]
        assert rows == [0, 1, 2]


def test_not_preloaded(bare_server, stores):
    """Without shared_preload_libraries: scans and read never start a worker; the first stream does."""
    from conftest import make_database
    database = make_database(bare_server, "bare_streams")
    with database.connect() as c:
        c.execute(f"CREATE SERVER disk FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{stores}')")
        c.execute('IMPORT FOREIGN SCHEMA "stream.zarr" FROM SERVER disk INTO public')
        assert c.execute("SELECT count(tensorbank.read(t)) FROM stream").fetchone() == (SAMPLES,)
        assert bare_server.supervisor() is None
        c.execute("SELECT tensorbank.create_dataset('all', 'SELECT t, block FROM stream')")
    got = flat(blocks_of(tensorbank.dataset(database.dsn(), dataset="all", batch_size=4, output="numpy", rank=0, world_size=1, copy=True)))
    assert got == list(range(SAMPLES))
    assert bare_server.supervisor() is not None


def test_wrong_arguments_say_what_is_wrong(db):
    """Not "no such function", and a database that is not there is not a lost stream."""
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="shuffle"):
        list(tensorbank.dataset(db.dsn(), dataset="whatever", shuffle=True))
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        list(tensorbank.dataset(db.dsn().replace(f"dbname='{db.name}'", "dbname='nowhere'"), dataset="whatever"))


def test_a_stream_without_a_batch_warns_and_holds_no_memory(db):
    with pytest.warns(UserWarning, match="no batch"):
        assert list(stream(db, batch_size=1_000_000)) == []
    with db.connect() as c:
        c.execute("SELECT * FROM tensorbank.open_stream('all', batch_size => 1000000)")
        (size,) = c.execute("SELECT bytes FROM tensorbank.streams").fetchone()
        assert size < 1 << 20
