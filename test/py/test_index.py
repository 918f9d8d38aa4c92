"""Building the index: each chunk is read once, parts are published one by one, growth and cancelling lose nothing."""

import collections
import os
import re
import threading
import time

import numpy as np
import psycopg
import pytest
import zarr

import zarrs
from cluster import open_up, wait_for
from conftest import fails, unique


def make(c, stores, web=None, name=None, server="web", **shape):
    """A store and its table; the table's name."""
    name = name or unique("index")
    arrays = zarrs.wind(f"{stores}/{name}.zarr", **shape)
    open_up(f"{stores}/{name}.zarr")
    c.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER {server} INTO public')
    return name, arrays


@pytest.mark.parametrize("workers", [0, 2])
def test_each_chunk_is_read_once(conn, stores, web, workers):
    name, _ = make(conn, stores)
    web.mark()
    conn.execute(f"CALL tensorbank.build_index('{name}', workers => {workers})")
    time.sleep(0.1)
    seen = collections.Counter(path for _, path, _, status, _ in web.requests(rf"/{name}\.zarr/(t|p)/c/") if status in (200, 206))
    assert len(seen) >= 36 and set(seen.values()) == {1}


@pytest.mark.parametrize("workers", [0, 2])
def test_each_byte_of_a_shard_is_read_once(conn, stores, web, workers):
    """Apart from the shard's index, which each process may ask for."""
    import os
    name, _ = make(conn, stores, time=8, lat=24, lon=32, shards=(4, 12, 16))
    web.mark()
    conn.execute(f"CALL tensorbank.build_index('{name}', workers => {workers})")
    time.sleep(0.1)
    spans = collections.defaultdict(list)
    for _, path, byte_range, status, _ in web.requests(rf"/{name}\.zarr/t/c/"):
        found = re.match(r"bytes=(\d+)-(\d+)$", byte_range)
        if status == 206 and found:
            spans[path].append((int(found.group(1)), int(found.group(2)) + 1))
    assert spans
    for path, parts in spans.items():
        parts.sort()
        for before, after in zip(parts, parts[1:]):
            assert before[1] <= after[0], f"{path}: {before} and {after} overlap"
        assert sum(b - a for a, b in parts) <= os.path.getsize(f"{stores}{path}")


def test_status_and_columns(conn, stores):
    name, _ = make(conn, stores, time=4, lat=16, lon=16)
    columns = "SELECT count(*) FROM tensorbank.columns WHERE relation = %s::regclass AND statistic IS NOT NULL"
    assert conn.execute(columns, (name,)).fetchone() == (0,)
    assert conn.execute("SELECT levels, blocks, indexed, complete, serial FROM tensorbank.index_status(%s)", (name,)).fetchone() == (0, 32, 0, False, 0)
    conn.execute(f"CALL tensorbank.build_index('{name}')")
    assert conn.execute(columns, (name,)).fetchone() == (14,)
    levels, blocks, indexed, complete, serial = conn.execute(
        "SELECT levels, blocks, indexed, complete, serial FROM tensorbank.index_status(%s)", (name,)).fetchone()
    assert (blocks, indexed, complete) == (32, 32, True) and levels >= 1 and serial > 0
    row = conn.execute("SELECT state, parts = parts_done FROM tensorbank.index_progress WHERE relation = %s::regclass", (name,)).fetchone()
    assert row == ("complete", True)
    # again: nothing to do, and nothing changes
    rows = conn.execute(f"SELECT block, t_min, p_std FROM {name} ORDER BY 1").fetchall()
    conn.execute(f"CALL tensorbank.build_index('{name}')")
    assert conn.execute(f"SELECT block, t_min, p_std FROM {name} ORDER BY 1").fetchall() == rows


def write_shard(path, values, n):
    """A shard of n x n chunks without compression, its index at the end: zarr-python takes minutes for so many chunks."""
    import os

    import google_crc32c
    across = values.shape[0] // n
    chunks = values.reshape(across, n, across, n).transpose(0, 2, 1, 3).tobytes()
    size = n * n * values.itemsize
    index = np.stack([np.arange(across * across, dtype="<u8") * size, np.full(across * across, size, dtype="<u8")], axis=1).tobytes()
    os.makedirs(os.path.dirname(path))
    with open(path, "wb") as file:
        file.write(chunks + index + google_crc32c.value(index).to_bytes(4, "little"))


def test_three_levels_on_a_large_grid(conn, stores):
    """A million elements in 65,536 blocks: at least three levels, and a selective scan looks at few nodes."""
    name = unique("large")
    root = zarrs.group(f"{stores}/{name}.zarr")
    values = np.add.outer(np.arange(1024) * 10.0, np.arange(1024) % 7).astype("f4")
    array = root.create_array("v", shape=values.shape, dtype="f4", chunks=(4, 4), shards=(1024, 1024), compressors=None, fill_value=-1,
                              dimension_names=["y", "x"])
    write_shard(f"{stores}/{name}.zarr/v/c/0/0", values, 4)
    assert (array[5:9, 1000:1024] == values[5:9, 1000:1024]).all()
    open_up(f"{stores}/{name}.zarr")
    conn.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER disk INTO public')
    conn.execute(f"CALL tensorbank.build_index('{name}')")
    levels, blocks, indexed = conn.execute("SELECT levels, blocks, indexed FROM tensorbank.index_status(%s)", (name,)).fetchone()
    assert levels >= 3 and blocks == indexed == 256 * 256
    (plan,) = conn.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM {name} WHERE v_max > 10230").fetchone()
    scan = plan[0]["Plan"]
    expected = int((values.reshape(256, 4, 256, 4).max(axis=(1, 3)) > 10230).sum())
    assert scan["Actual Rows"] == expected > 0
    pruned = {int(k.rsplit(" ", 1)[1]): v for k, v in scan.items() if k.startswith("Pruned at Level")}
    assert sum(v for k, v in pruned.items() if k > 0) > blocks * 0.9, "inner nodes rule out nearly everything"


def test_arrays_chosen(conn, stores):
    name, _ = make(conn, stores)
    fails(conn, "42703", f"CALL tensorbank.build_index('{name}', arrays => '{{nothing}}')")
    conn.execute(f"CALL tensorbank.build_index('{name}', arrays => '{{t}}')")
    statistics = {r[0] for r in conn.execute("SELECT \"array\" FROM tensorbank.columns WHERE relation = %s::regclass AND statistic IS NOT NULL", (name,))}
    assert statistics == {"t"}
    conn.execute(f"CALL tensorbank.build_index('{name}')")
    statistics = {r[0] for r in conn.execute("SELECT \"array\" FROM tensorbank.columns WHERE relation = %s::regclass AND statistic IS NOT NULL", (name,))}
    assert statistics == {"t", "p"}


def test_not_in_a_transaction(conn, stores):
    name, _ = make(conn, stores)
    with pytest.raises(psycopg.Error) as caught:
        with conn.transaction():
            conn.execute(f"CALL tensorbank.build_index('{name}')")
    assert caught.value.sqlstate == "2D000"
    fails(conn, "42809", "CALL tensorbank.build_index('pg_class')")


def test_cancel_and_go_on(db, conn, stores, faulty):
    """A build that is cancelled keeps what it published; the next one adds the rest."""
    name = unique("cancelled")
    zarrs.wind(f"{stores}/{name}.zarr", time=4, lat=48, lon=48, shards=(4, 24, 48))
    open_up(f"{stores}/{name}.zarr")
    conn.execute(f"CREATE SERVER {name} FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{faulty.url}', index_url 'file://{stores}')")
    conn.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER {name} INTO public')
    # the southern half of the array hangs
    faulty.rule(rf"/{name}\.zarr/t/c/0/1/", "hang")
    timer = threading.Timer(3.0, conn.cancel)
    timer.start()
    start = time.monotonic()
    with pytest.raises(psycopg.errors.QueryCanceled):
        conn.execute(f"CALL tensorbank.build_index('{name}', part_blocks => 36)")
    assert time.monotonic() - start < 4.5
    faulty.reset()
    with db.connect() as c:
        blocks, indexed, complete = c.execute("SELECT blocks, indexed, complete FROM tensorbank.index_status(%s)", (name,)).fetchone()
        assert 0 < indexed < blocks == 288 and not complete
        assert c.execute(f"SELECT count(*) FROM {name}").fetchone() == (288,)
        c.execute(f"CALL tensorbank.build_index('{name}', part_blocks => 36)")
        assert c.execute("SELECT indexed, complete FROM tensorbank.index_status(%s)", (name,)).fetchone() == (288, True)
        read, = c.execute("SELECT blocks_read FROM tensorbank.index_progress WHERE relation = %s::regclass", (name,)).fetchone()
        assert read == 288 - indexed


def grow(stores, name, extra, value):
    # consolidated metadata would still tell the old shape
    root = zarr.open_group(f"{stores}/{name}.zarr", mode="r+", use_consolidated=False)
    steps = root["time"].shape[0]
    for array in ("t", "p"):
        old = root[array].shape
        root[array].resize((steps + extra, *old[1:]))
        root[array][steps:] = value
    root["time"].resize((steps + extra,))
    root["time"][:] = np.arange(steps + extra) * 6
    zarr.consolidate_metadata(f"{stores}/{name}.zarr")
    open_up(f"{stores}/{name}.zarr")


def test_growth(db, stores):
    """An archive that grew shows its new blocks without a new import; the old index answers for the rest."""
    with db.connect() as c:
        name, _ = make(c, stores, server="disk", time=6)
        c.execute(f"CALL tensorbank.build_index('{name}')")
        old = c.execute(f"SELECT block, t_min, t_max, p_missing FROM {name} ORDER BY 1").fetchall()
    grow(stores, name, 5, 777)
    with db.connect() as c:
        assert c.execute(f"SELECT count(*) FROM {name}").fetchone() == (72,)
        assert c.execute(f"SELECT block, t_min, t_max, p_missing FROM {name} ORDER BY 1 LIMIT 36").fetchall() == old
        # computed, not lost
        assert c.execute(f"SELECT count(*) FROM {name} WHERE t_max = 777").fetchone() == (36,)
        assert c.execute(f"SELECT count(*), max(time_max)::text FROM {name} WHERE t_min = 777 AND block >= 36").fetchone() == (36, "2020-01-03 12:00:00+00")
        blocks, indexed = c.execute("SELECT blocks, indexed FROM tensorbank.index_status(%s)", (name,)).fetchone()
        assert blocks == 72 and indexed == 36
        (plan,) = c.execute(f"EXPLAIN (FORMAT JSON) SELECT * FROM {name} WHERE t_max > 700").fetchone()
        assert plan[0]["Plan"]["Unindexed Blocks"] == 36
        c.execute("SET tensorbank.unindexed = 'error'")
        fails(c, "55000", f"SELECT count(*) FROM {name} WHERE t_max = 777")
        c.execute("RESET tensorbank.unindexed")
        c.execute(f"CALL tensorbank.build_index('{name}')")
        assert c.execute("SELECT blocks = indexed, complete FROM tensorbank.index_status(%s)", (name,)).fetchone() == (True, True)
        assert c.execute(f"SELECT count(*) FROM {name} WHERE t_max = 777").fetchone() == (36,)
        assert c.execute(f"SELECT block, t_min, t_max, p_missing FROM {name} ORDER BY 1 LIMIT 36").fetchall() == old


def test_growth_inside_an_edge_block(db, stores):
    """The last block was cut short by the old edge: its old statistics do not describe it any more."""
    with db.connect() as c:
        name, _ = make(c, stores, server="disk", time=5)
        c.execute(f"CALL tensorbank.build_index('{name}')")
        assert c.execute(f"SELECT count(*) FROM {name}").fetchone() == (36,)
    grow(stores, name, 1, 9999)
    with db.connect() as c:
        assert c.execute(f"SELECT count(*) FROM {name}").fetchone() == (36,)
        assert c.execute(f"SELECT count(*) FROM {name} WHERE t_max = 9999").fetchone() == (12,)
        assert c.execute(f"SELECT DISTINCT block_size FROM {name} WHERE t_max = 9999").fetchall() == [(32,)]


def test_growth_in_a_session(db, stores):
    with db.connect() as c:
        c.execute("SET tensorbank.metadata_max_age = 0")
        name, _ = make(c, stores, server="disk", time=6)
        assert c.execute(f"SELECT count(*) FROM {name}").fetchone() == (36,)
        grow(stores, name, 2, 1)
        assert wait_for(lambda: c.execute(f"SELECT count(*) FROM {name}").fetchone() == (48,), 3)


def test_scan_beside_a_build(db, stores):
    """Queries while parts are published: always every row."""
    with db.connect() as c:
        name, _ = make(c, stores, server="disk", time=8, lat=48, lon=64, shards=(8, 48, 64))
        c.execute(f"CALL tensorbank.build_index('{name}', workers => 0, part_blocks => 64)")
        expected = c.execute(f"SELECT count(*) FROM {name} WHERE t_max > 150").fetchone()
    problems, done = [], threading.Event()

    def ask():
        with db.connect() as mine:
            mine.execute("SET tensorbank.metadata_max_age = 0")
            while not done.is_set():
                got = mine.execute(f"SELECT count(*) FROM {name} WHERE t_max > 150").fetchone()
                if got != expected:
                    problems.append(got)

    thread = threading.Thread(target=ask)
    thread.start()
    with db.connect() as c:
        for _ in range(3):
            c.execute(f"CALL tensorbank.build_index('{name}', part_blocks => 64, rebuild => true)")
    done.set()
    thread.join()
    assert not problems


# ---- scans that PostgreSQL runs in unusual ways ----

def test_cursors(conn, stores):
    name, _ = make(conn, stores)
    expected = [r[0] for r in conn.execute(f"SELECT block FROM {name} ORDER BY block")]
    with conn.transaction():
        conn.execute(f"DECLARE c SCROLL CURSOR FOR SELECT block, t FROM {name} ORDER BY block")
        assert [r[0] for r in conn.execute("FETCH 5 FROM c")] == expected[:5]
        assert [r[0] for r in conn.execute("FETCH BACKWARD 2 FROM c")] == [expected[3], expected[2]]
        assert [r[0] for r in conn.execute("FETCH ABSOLUTE 30 FROM c")] == [expected[29]]
        conn.execute("DECLARE h CURSOR WITH HOLD FOR SELECT block, tensorbank.stats(tensorbank.read(t)) FROM " + name)
        conn.execute("FETCH 1 FROM h")
    assert len(conn.execute("FETCH ALL FROM h").fetchall()) == 35


def test_rescans_are_flat(conn, stores):
    """Ten thousand rescans of a nested loop: every row, and no memory that grows with them."""
    name, _ = make(conn, stores)
    conn.execute(f"CALL tensorbank.build_index('{name}')")
    conn.execute("SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET enable_memoize = off")
    sql = f"SELECT count(*) FROM generate_series(0, %s) g CROSS JOIN LATERAL (SELECT block FROM {name} WHERE t_max > g %% 300 OFFSET 0) q"
    expected = sum(conn.execute(f"SELECT count(*) FROM {name} WHERE t_max > %s", (k,)).fetchone()[0] for k in range(300))

    def resident():
        with open(f"/proc/{conn.info.backend_pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))

    conn.execute(sql, (299,))
    assert conn.execute(sql, (299,)).fetchone() == (expected,)
    before = resident()
    assert conn.execute(sql, (2999,)).fetchone() == (expected * 10,)
    assert resident() - before < 2048, "kB after 3,000 rescans"


def test_many_failed_statements_leak_no_connections(db, stores, faulty):
    """Errors in the middle of scans: descriptors stay as many as they were."""
    import os
    with db.connect() as c:
        name = unique("leak")
        zarrs.wind(f"{stores}/{name}.zarr")
        open_up(f"{stores}/{name}.zarr")
        c.execute(f"CREATE SERVER {name} FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{faulty.url}')")
        c.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER {name} INTO public')
        c.execute("SET tensorbank.retries = 0")
        faulty.rule(r"/t/c/1/1/1$", "status", code=403)

        def descriptors():
            return len(os.listdir(f"/proc/{c.info.backend_pid}/fd"))

        def fail():
            with pytest.raises(psycopg.Error):
                c.execute(f"SELECT tensorbank.read(t) FROM {name}").fetchall()

        for _ in range(5):
            fail()
        before = descriptors()
        for _ in range(20):
            fail()
        assert descriptors() <= before + 4


def test_dropped_while_it_is_scanned(db, conn, stores):
    name, _ = make(conn, stores)
    with conn.transaction():
        conn.execute(f"DECLARE c CURSOR FOR SELECT t FROM {name}")
        conn.execute("FETCH 1 FROM c")
        with db.connect() as other:
            other.execute("SET lock_timeout = '200ms'")
            fails(other, "55P03", f"DROP FOREIGN TABLE {name}")
        fails_inside(conn, f"DROP FOREIGN TABLE {name}")
        assert len(conn.execute("FETCH ALL FROM c").fetchall()) == 35
    conn.execute(f"DROP FOREIGN TABLE {name}")


def fails_inside(connection, sql):
    with pytest.raises(psycopg.errors.ObjectInUse):
        with connection.transaction():
            connection.execute(sql)


def test_server_altered_under_a_prepared_statement(conn, stores, web):
    """The next execution sees the new place."""
    import shutil
    name = unique("moved")
    zarrs.wind(f"{stores}/{name}.zarr")
    shutil.copytree(f"{stores}/{name}.zarr", f"{stores}/{name}_2/{name}.zarr")
    open_up(f"{stores}/{name}.zarr")
    open_up(f"{stores}/{name}_2")
    zarr.open_group(f"{stores}/{name}_2/{name}.zarr", mode="r+")["t"][...] = 5
    open_up(f"{stores}/{name}_2")
    conn.execute(f"CREATE SERVER {name} FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{stores}')")
    conn.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER {name} INTO public')
    conn.execute(f"PREPARE q AS SELECT max((tensorbank.stats(tensorbank.read(t))).max) FROM {name}")
    assert conn.execute("EXECUTE q").fetchone()[0] > 100
    conn.execute(f"ALTER SERVER {name} OPTIONS (SET url 'file://{stores}/{name}_2')")
    assert conn.execute("EXECUTE q").fetchone() == (5.0,)


def test_servers_that_share_an_index_url_keep_their_indexes_apart(conn, stores, index_folder):
    """Same path, same grid, other data: the index of one must not answer for the other."""
    name = unique("twin")
    tables = []
    for k in range(2):
        os.makedirs(f"{stores}/{name}_{k}")
        zarrs.wind(f"{stores}/{name}_{k}/same.zarr", seed=20 + k)
        open_up(f"{stores}/{name}_{k}")
        conn.execute(f"CREATE SERVER {name}_{k} FOREIGN DATA WRAPPER tensorbank OPTIONS"
                     f" (url 'file://{stores}/{name}_{k}', index_url 'file://{index_folder}')")
        conn.execute(f"CREATE SCHEMA {name}_{k}")
        conn.execute(f'IMPORT FOREIGN SCHEMA "same.zarr" FROM SERVER {name}_{k} INTO {name}_{k}')
        tables.append(f"{name}_{k}.same")
        conn.execute(f"CALL tensorbank.build_index('{tables[k]}')")
    for table in tables:
        for maximum, ref in conn.execute(f"SELECT t_max, t::text FROM {table}").fetchall():
            (stats,) = conn.execute("SELECT (tensorbank.stats(tensorbank.read(%s::tensorbank.tensor_ref))).max", (ref,)).fetchone()
            assert maximum == stats


def test_an_overwritten_chunk_is_read_anew_by_parts(conn, stores):
    """Parts of a chunk share one read of it, for a second: then an overwritten object shows, whatever metadata_max_age is."""
    name = unique("rewritten")
    root = zarrs.group(f"{stores}/{name}.zarr")
    array = zarrs.put(root, "v", np.full((4, 4), 1.0), (4, 4), ("y", "x"))
    zarr.consolidate_metadata(f"{stores}/{name}.zarr")
    open_up(f"{stores}/{name}.zarr")
    conn.execute("SET tensorbank.metadata_max_age = '1h'")
    conn.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER web INTO public OPTIONS (cell_shape \'2,2\')')
    read = f"SELECT (tensorbank.stats(tensorbank.read(v))).max FROM {name} ORDER BY block"
    assert [m for (m,) in conn.execute(read)] == [1.0] * 4
    array[...] = 2.0
    open_up(f"{stores}/{name}.zarr")
    wait_for(lambda: [m for (m,) in conn.execute(read)] == [2.0] * 4, seconds=5)
    conn.execute("RESET tensorbank.metadata_max_age")
