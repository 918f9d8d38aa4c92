"""The cache of stored bytes when its disk or its files go wrong: queries answer right, the log says so once, nothing fails."""

import os
import random
import shutil
import subprocess
import threading

import numpy as np
import psycopg
import pytest
import zarr

import zarrs
from cluster import SERVER_USER, open_up
from conftest import make_database, no_internal_errors, read_array, start, unique

CHUNK = r"\.zarr/[tx]/c/"


def own_folder(path, mode=0o700):
    """A folder as the cache wants it: the server's user's alone."""
    os.makedirs(path, exist_ok=True)
    os.chmod(path, mode)
    if os.geteuid() == 0:
        shutil.chown(path, SERVER_USER, SERVER_USER)
    return path


@pytest.fixture(scope="module")
def golden(stores):
    t, _ = zarrs.wind(f"{stores}/cached.zarr", shards=(6, 12, 8))
    x = np.random.default_rng(4).integers(0, 1 << 30, (8, 128, 256), dtype="i4")
    zarrs.put(zarrs.group(f"{stores}/cachedraw.zarr"), "x", x, (1, 64, 256), ("k", "j", "i"), compressors=None)
    zarr.consolidate_metadata(f"{stores}/cachedraw.zarr")
    open_up(stores)
    return {"cached": t, "cachedraw": x}


@pytest.fixture
def cached(folder, golden, faulty):
    """Makes clusters with a cache in a folder; all go at the end, and their logs are looked through."""
    made = []

    def make(directory, **settings):
        server = start(folder, unique("cached"), "shared_preload_libraries=tensorbank", f"tensorbank.cache_directory={directory}",
                       *(f"tensorbank.{k}={v}" for k, v in settings.items()))
        made.append(server)
        db = make_database(server, "cached")
        with db.connect() as c:
            c.execute(f"CREATE SERVER shaky FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{faulty.url}')")
            for name in golden:
                c.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER shaky INTO public')
        return db

    yield make
    for server in made:
        text = server.log()
        server.wipe()
        assert not no_internal_errors(text)


def right(db, golden):
    """A session of its own reads what was written."""
    with db.connect() as c:
        for name, want in golden.items():
            column = "t" if name == "cached" else "x"
            got = read_array(c, f"SELECT tensorbank.read(tensorbank.ref('{name}', '{column}'))")
            assert got.tobytes() == want.tobytes()


def asked(db, golden, faulty):
    """Requests for chunks that a session's reads cost."""
    faulty.log.clear()
    right(db, golden)
    return len(faulty.requests(CHUNK))


def files(directory):
    return [os.path.join(root, name) for root, _, names in os.walk(directory) for name in names]


def test_sessions_share_it(cached, folder, golden, faulty):
    db = cached(own_folder(f"{folder}/{unique('cache')}"))
    first = asked(db, golden, faulty)
    assert first >= 16
    # what a session read last may not have reached the disk when it ended
    assert asked(db, golden, faulty) <= 4
    assert asked(db, golden, faulty) <= 2


@pytest.mark.parametrize("damage", ["flip", "sprinkle", "truncate", "zero", "swap", "garbage index"])
def test_p10_damaged_entries(cached, folder, golden, faulty, damage):
    """Whatever becomes of the files: a miss, fetched again, and never other bytes."""
    directory = own_folder(f"{folder}/{unique('cache')}")
    db = cached(directory)
    right(db, golden)
    draw = random.Random(7)
    touched = 0
    for path in files(directory):
        size = os.path.getsize(path)
        is_index = os.path.basename(path) == "index"
        if size == 0 or is_index != (damage == "garbage index"):
            continue
        touched += 1
        with open(path, "r+b") as file:
            if damage == "truncate":
                file.truncate(size // 2)
                continue
            # what was written lies at the beginning
            size = min(size, 4 << 20)
            content = bytearray(file.read(size))
            if damage == "flip":
                for at in range(0, size, 997):
                    content[at] ^= 0x20
            elif damage == "sprinkle":
                for _ in range(200):
                    content[draw.randrange(size)] ^= 1 << draw.randrange(8)
            elif damage == "zero":
                content = bytearray(size)
            elif damage == "swap":
                content[: size // 2], content[size // 2:] = content[size - size // 2:], content[: size - size // 2]
            else:
                content[:] = draw.randbytes(size)
            file.seek(0)
            file.write(content)
    assert touched > 0
    right(db, golden)
    right(db, golden)


def test_p9_directory_that_is_not_ours(cached, folder, golden, faulty):
    """Open to others: not used, said once a process, and no query fails."""
    directory = own_folder(f"{folder}/{unique('cache')}", 0o777)
    db = cached(directory)
    assert asked(db, golden, faulty) > 0
    assert asked(db, golden, faulty) > 0
    assert files(directory) == []
    assert "cache" in db.server.log()


@pytest.mark.parametrize("how", ["missing", "read only"])
def test_p9_directory_that_cannot_be_used(cached, folder, golden, faulty, how):
    directory = f"{folder}/{unique('cache')}"
    if how == "read only":
        own_folder(directory, 0o500)
    db = cached(directory)
    assert asked(db, golden, faulty) > 0
    assert "cache" in db.server.log()


def test_p9_directory_that_goes(cached, folder, golden, faulty):
    """Removed under running sessions: they go on, and so do new ones."""
    directory = own_folder(f"{folder}/{unique('cache')}")
    db = cached(directory)
    with db.connect() as c:
        sql = "SELECT tensorbank.read(tensorbank.ref('cachedraw', 'x'))"
        assert read_array(c, sql).tobytes() == golden["cachedraw"].tobytes()
        shutil.rmtree(directory)
        assert read_array(c, sql).tobytes() == golden["cachedraw"].tobytes()
    right(db, golden)


def test_p9_full_disk(cached, folder, golden, faulty):
    """A file system of 1 MB: what does not fit is read uncached."""
    directory = f"{folder}/{unique('full')}"
    os.mkdir(directory)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to mount a small file system")
    try:
        own_folder(directory)
        db = cached(directory)
        right(db, golden)
        right(db, golden)
        db.server.stop()
    finally:
        subprocess.run(["umount", "-l", directory], check=False)


@pytest.mark.parametrize("cancel", [False, True])
def test_p18_one_fetch_for_many(cached, folder, golden, faulty, cancel):
    """Sessions that ask for the same at once share the store's answers; one that is canceled does not take others along."""
    db = cached(own_folder(f"{folder}/{unique('cache')}"), hedge_percent=0)
    sql = "SELECT tensorbank.read(tensorbank.ref('cachedraw', 'x'))"
    sessions = [db.connect() for _ in range(4)]
    for c in sessions:
        c.execute("SELECT count(*) FROM cachedraw").fetchall()
    faulty.log.clear()
    faulty.rule("/cachedraw.zarr/x/c/", "delay", seconds=0.3)
    ends = []

    def read(c):
        try:
            ends.append(read_array(c, sql).tobytes() == golden["cachedraw"].tobytes())
        except psycopg.errors.QueryCanceled:
            ends.append("canceled")

    threads = [threading.Thread(target=read, args=(c,)) for c in sessions]
    if cancel:
        threads.append(threading.Timer(0.15, sessions[0].cancel))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for c in sessions:
        c.close()
    assert sorted(map(str, ends)) == ["True"] * (3 if cancel else 4) + ["canceled"] * cancel
    # 64 without sharing
    assert 16 <= len(faulty.requests("/cachedraw.zarr/x/c/")) <= (56 if cancel else 32)
