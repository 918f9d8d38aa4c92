"""The same rows and values over file:// and http://; what makes a request and what never does."""

import re
import time

import numpy as np
import pytest

import tensorbank
import zarrs
from cluster import open_up
from conftest import read_array

CHUNK = r"/(t|p)/c/"


@pytest.fixture(scope="module")
def data(db, stores):
    t, p = zarrs.wind(f"{stores}/plain.zarr")
    zarrs.wind(f"{stores}/sharded.zarr", shards=(6, 12, 8))
    zarrs.wind(f"{stores}/fresh.zarr")
    zarrs.wind(f"{stores}/old.zarr", zarr_format=2)
    open_up(stores)
    with db.connect() as c:
        for schema, server in (("near", "disk"), ("far", "web")):
            c.execute(f"CREATE SCHEMA {schema}")
            for name in ("plain", "sharded", "fresh", "old"):
                c.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER {server} INTO {schema}')
            for name in ("plain", "sharded", "old"):
                c.execute(f"CALL tensorbank.build_index('{schema}.{name}')")
    return t, p


def settled(web, pattern):
    """Requests since the mark: nginx writes its log when an answer is through."""
    time.sleep(0.1)
    return web.requests(pattern)


@pytest.mark.parametrize("name", ["plain", "sharded", "old"])
def test_same_rows_and_values(data, conn, name):
    t, p = data
    columns = [r[0] for r in conn.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
        " AND atttypid <> 'tensorbank.tensor_ref'::regtype ORDER BY attnum", (f"near.{name}",))]
    assert {"t_min", "t_max", "t_mean", "t_std", "t_valid", "t_nan", "t_missing", "p_min", "block_size"} <= set(columns)
    rows = {s: conn.execute(f"SELECT {', '.join(columns)} FROM {s}.{name} ORDER BY block").fetchall() for s in ("near", "far")}
    assert len(rows["near"]) == 3 * 3 * 4
    assert rows["near"] == rows["far"]
    for schema in ("near", "far"):
        assert np.array_equal(read_array(conn, f"SELECT tensorbank.read(tensorbank.ref('{schema}.{name}', 't'))"), t, equal_nan=True)
        got = read_array(conn, f"SELECT tensorbank.read(tensorbank.ref('{schema}.{name}', 'p'))")
        assert got.dtype == np.float64 and np.array_equal(got, zarrs.decoded(p), equal_nan=True)
        assert np.array_equal(read_array(conn, f"SELECT tensorbank.read(tensorbank.raw(tensorbank.ref('{schema}.{name}', 'p')))"), p)


def test_blocks_cover_the_array_once(data, conn):
    t, _ = data
    whole = np.full(t.shape, -1, dtype="f4")
    seen = np.zeros(t.shape, dtype=int)
    for origin, shape in conn.execute("SELECT tensorbank.origin(t), tensorbank.shape(t) FROM near.plain"):
        part = tuple(slice(o, o + n) for o, n in zip(origin, shape))
        seen[part] += 1
    assert (seen == 1).all()
    with conn.cursor(binary=True) as cursor:
        for origin, value in cursor.execute("SELECT tensorbank.origin(t), tensorbank.read(t) FROM near.plain"):
            block = tensorbank.from_npy(bytes(value))
            whole[tuple(slice(o, o + n) for o, n in zip(origin, block.shape))] = block
    assert np.array_equal(whole, t, equal_nan=True)


@pytest.mark.parametrize("name", ["fresh", "plain", "sharded"])
@pytest.mark.parametrize("sql", ["SELECT * FROM far.{}", "SELECT count(*) FROM far.{}", "SELECT t FROM far.{} WHERE lat_min > 0",
                                 "SELECT count(*) FROM far.{} WHERE time_max > '2020-01-02'"])
def test_no_chunk_is_asked_for(data, db, web, name, sql):
    with db.connect() as c:
        web.mark()
        assert len(c.execute(sql.format(name)).fetchall()) > 0
    assert settled(web, CHUNK) == []
    # the statement did go to the store: otherwise this would prove nothing
    assert settled(web, rf"/{name}\.zarr/") != []


def test_unindexed_columns_nobody_asks_for_cost_nothing(data, db, web):
    """A table with statistics columns and no index: count(*) and bounds read no chunk, a statistic reads its own array."""
    with db.connect() as c:
        c.execute("CREATE SCHEMA lazy; IMPORT FOREIGN SCHEMA \"fresh.zarr\" FROM SERVER web INTO lazy OPTIONS (statistics 'yes')")
    with db.connect() as c:
        web.mark()
        assert c.execute("SELECT count(*) FROM lazy.fresh").fetchone() == (36,)
        c.execute("SELECT lat_min, count(*) FROM lazy.fresh WHERE lon_max < 20 GROUP BY 1").fetchall()
        c.execute("SELECT count(block) FROM (SELECT * FROM lazy.fresh ORDER BY lat_min, block OFFSET 3) q").fetchall()
        assert settled(web, CHUNK) == []
        c.execute("SELECT max(t_max) FROM lazy.fresh").fetchall()
        assert {path.split("/")[2] for _, path, _, _, _ in settled(web, CHUNK)} == {"t"}


def test_statistics_are_answered_by_the_index(data, db, web):
    with db.connect() as c:
        web.mark()
        rows = c.execute("SELECT block, t_min, t_max, t_mean FROM far.plain WHERE t_max > 200 AND p_missing > 0").fetchall()
        assert rows
    assert settled(web, CHUNK) == []


def test_pruned_blocks_are_never_requested(data, db, web):
    """One object a chunk: those of the selected blocks, each once."""
    with db.connect() as c:
        wanted = c.execute("SELECT tensorbank.origin(t) FROM near.plain WHERE t_max > 220 AND lon_min >= 8").fetchall()
        assert 0 < len(wanted) < 36
    expected = sorted("/plain.zarr/t/c/" + "/".join(str(o // n) for o, n in zip(origin, (2, 4, 4))) for (origin,) in wanted)
    with db.connect() as c:
        web.mark()
        rows = c.execute("SELECT tensorbank.read(t) FROM far.plain WHERE t_max > 220 AND lon_min >= 8").fetchall()
        assert len(rows) == len(wanted)
    assert sorted(path for _, path, _, _, _ in settled(web, CHUNK)) == expected


def test_pruned_parts_of_shards_are_never_requested(data, db, web):
    """Many chunks an object: no byte of a chunk that was pruned."""
    where = "t_max > 220 AND lon_min >= 8"
    with db.connect() as c:
        chunks = c.execute(
            f"SELECT {where}, l.url, l.\"offset\", l.length FROM far.sharded, tensorbank.location(t) l").fetchall()
    pruned = [(url.split("/", 3)[3], start, start + n) for kept, url, start, n in chunks if not kept]
    kept = [(url.split("/", 3)[3], start, start + n) for keep, url, start, n in chunks if keep]
    assert pruned and kept
    with db.connect() as c:
        web.mark()
        assert len(c.execute(f"SELECT tensorbank.read(t) FROM far.sharded WHERE {where}").fetchall()) == len(kept)
    asked = []
    for _, path, byte_range, status, _ in settled(web, r"/sharded\.zarr/t/c/"):
        found = re.match(r"bytes=(\d+)-(\d+)$", byte_range)
        if found is None:
            # the shard's index, from its end
            assert re.match(r"bytes=-\d+$", byte_range), f"{path} was asked for with range {byte_range}"
            continue
        asked.append((path.lstrip("/"), int(found.group(1)), int(found.group(2)) + 1))
    assert asked
    for path, start, stop in pruned:
        for asked_path, first, last in asked:
            assert not (path == asked_path and first < stop and start < last), f"bytes {start} to {stop} of {path} were read"
    for path, start, stop in kept:
        assert any(path == p and first <= start and stop <= last for p, first, last in asked)


def test_limit_reads_one_block(data, db, web):
    with db.connect() as c:
        web.mark()
        assert len(c.execute("SELECT tensorbank.read(t) FROM far.plain WHERE t_max > 0 LIMIT 1").fetchall()) == 1
    assert len(settled(web, CHUNK)) == 1


def test_cursor_reads_what_is_fetched(data, db, web):
    """The queue ahead grows with what is used: a cursor that stops early has not read the table."""
    with db.connect() as c:
        web.mark()
        with c.transaction(), c.cursor(name="some") as cursor:
            cursor.itersize = 1
            cursor.execute("SELECT tensorbank.read(t) FROM far.plain")
            cursor.fetchone()
    assert 1 <= len(settled(web, CHUNK)) <= 4


def test_nothing_is_read_twice_in_a_statement(data, db, web):
    with db.connect() as c:
        web.mark()
        c.execute("SELECT tensorbank.stats(tensorbank.read(t)) FROM far.plain").fetchall()
    paths = [path for _, path, _, _, _ in settled(web, CHUNK)]
    assert len(paths) == len(set(paths)) == 36


def test_parameterised_join_prunes(data, db, web):
    with db.connect() as c:
        c.execute("CREATE TABLE events (at timestamptz, level float8)")
        c.execute("INSERT INTO events VALUES ('2020-01-01 06:00', 20), ('2020-01-02 00:00', 230)")
        c.execute("ANALYZE events")
        sql = ("SELECT e.at, w.block FROM events e JOIN {}.plain w ON w.time_min <= e.at AND w.time_max >= e.at"
               " AND w.t_max > e.level ORDER BY 1, 2")
        near = c.execute(sql.format("near")).fetchall()
        c.execute("SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off")
        nested = c.execute(sql.format("far")).fetchall()
        assert near == nested and near
        c.execute("CREATE TABLE plain_copy AS SELECT block, time_min, time_max, t_max FROM near.plain")
        expected = c.execute("SELECT e.at, w.block FROM events e JOIN plain_copy w ON w.time_min <= e.at AND w.time_max >= e.at"
                             " AND w.t_max > e.level ORDER BY 1, 2").fetchall()
        assert near == expected


def test_hsi_is_ordinary_zarr(data, db, index_folder):
    """Somebody else's reader opens the index: zarr-python finds groups and arrays in what build_index wrote."""
    import os

    import zarr

    groups = [root for root, _, files in os.walk(f"{index_folder}/test_transparency") if "zarr.json" in files]
    assert groups
    opened = 0
    for path in groups:
        node = zarr.open(path, mode="r")
        if isinstance(node, zarr.Array):
            assert node[...].size == node.size
            opened += 1
    assert opened > 0
