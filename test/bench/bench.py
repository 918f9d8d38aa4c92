"""Run the works in interleaved rounds and print ratios. See test/bench/run.sh for the settings.

A work is a list of contestants; each round runs every one once, in random order. GB/s are of decoded bytes, from opening the
store to the last block; only ratios of one run mean something.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time

import numpy as np
import psycopg
import zarr

import tensorbank

DIR = os.environ["TB_BENCH_DIR"]
STORES = f"{DIR}/stores"
HTTP = f"http://127.0.0.1:{os.environ['HTTP_PORT']}"
BLOCKS = int(os.environ.get("TB_BENCH_BLOCKS", "512"))
ROUNDS = int(os.environ.get("TB_BENCH_ROUNDS", "5"))
WORKS = os.environ.get("TB_BENCH_WORK", "wire zstd shards prune sql torch").split()
SIDE = 512  # a block is 1 x 512 x 512 float32: 1 MiB


def field(step, rng):
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32) / 64
    smooth = 280 + 10 * np.sin(x + step / 9) + 8 * np.cos(y - step / 7) + step / 100
    return np.round(smooth + rng.normal(0, 0.05, smooth.shape), 2).astype(np.float32)


def make_stores():
    layouts = {"raw": (None, None), "zstd": ((zarr.codecs.ZstdCodec(level=3),), None),
               "shards": ((zarr.codecs.ZstdCodec(level=3),), (64, SIDE, SIDE))}
    for name, (compressors, shards) in layouts.items():
        path = f"{STORES}/{name}.zarr"
        marker = f"{path}/.ready-{BLOCKS}"
        if os.path.exists(marker):
            continue
        rng = np.random.default_rng(1)
        group = zarr.create_group(path, zarr_format=3, overwrite=True)
        array = group.create_array("t", shape=(BLOCKS, SIDE, SIDE), dtype="float32", chunks=(1, SIDE, SIDE), shards=shards,
                                   compressors=compressors, dimension_names=("time", "y", "x"))
        for start in range(0, BLOCKS, 64):
            stop = min(start + 64, BLOCKS)
            array[start:stop] = np.stack([field(i, rng) for i in range(start, stop)])
        # over HTTP nothing can be listed
        zarr.consolidate_metadata(path)
        with open(marker, "w"):
            pass
        subprocess.run(["chmod", "-R", "a+rwX", path], check=True)


def listing(name):
    """The plain reader's list; for shards from their indexes."""
    path = f"{DIR}/{name}.txt"
    with open(path, "w") as out:
        for i in range(BLOCKS):
            size = SIDE * SIDE * 4
            if name != "shards":
                print(f"{name}.zarr/t/c/{i}/0/0 0 {os.path.getsize(f'{STORES}/{name}.zarr/t/c/{i}/0/0')} {size} {name}",
                      file=out)
                continue
            key = f"{name}.zarr/t/c/{i // 64}/0/0"
            data = open(f"{STORES}/{key}", "rb")
            data.seek(-64 * 16 - 4, 2)
            index = np.frombuffer(data.read(64 * 16), dtype="<u8").reshape(64, 2)
            print(f"{key} {index[i % 64][0]} {index[i % 64][1]} {size} zstd", file=out)
    return path


def run_json(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    return json.loads(done.stdout)


def plain(name):
    return lambda: run_json("build/bench/plain", f"{DIR}/{name}.txt", HTTP, 16, 2)


def engine(name):
    return lambda: run_json("build/bench/engine", f"{HTTP}/{name}.zarr", "t", 2, 32)


def python(function, *arguments):
    """A Python contestant in a process of its own, so that imports and caches are its own; it times itself."""
    return lambda: run_json(sys.executable, __file__, function, *arguments)


def timed(work):
    start = time.perf_counter()
    size = work()
    print(json.dumps({"bytes": size, "seconds": time.perf_counter() - start}))


def zarr_http(name):
    from zarr.storage import FsspecStore

    zarr.config.set({"async.concurrency": 32})
    array = zarr.open_array(FsspecStore.from_url(f"{HTTP}/{name}.zarr/t"), mode="r")
    timed(lambda: array[...].nbytes)


def zarr_local(name):
    array = zarr.open_array(f"{STORES}/{name}.zarr/t", mode="r")
    timed(lambda: array[...].nbytes)


def sql_read(name, server):
    with psycopg.connect("", autocommit=True) as connection:
        tensorbank.register(connection)
        connection.execute("SET tensorbank.read_ahead = '64MB'")

        def work():
            size = 0
            with connection.cursor(binary=True) as cursor:
                for (array,) in cursor.stream(f"SELECT tensorbank.read(t) FROM {server}_{name}.{name}"):
                    size += array.nbytes
            return size

        timed(work)


def sql_bytea(name):
    """The same number of bytes from PostgreSQL's own storage, uncompressed: what the transport and the client cost."""
    with psycopg.connect("", autocommit=True) as connection:

        def work():
            size = 0
            with connection.cursor(binary=True) as cursor:
                for (value,) in cursor.stream("SELECT v FROM own_bytea"):
                    size += len(value)
            return size

        timed(work)


def torch_tensorbank(name):
    import torch

    data = tensorbank.dataset("", dataset=f"all_{name}", batch_size=8, shuffle="full", seed=3)

    def work():
        size = 0
        for batch in data:
            size += batch.t.numel() * 4
            float(batch.t[:, 0, 0, 0].sum())
        return size

    torch.set_num_threads(1)
    timed(work)


class ZarrMap:
    """What people write by hand: one item a block, shuffled by the DataLoader."""

    def __init__(self, url):
        self.url = url
        self.array = None

    def __len__(self):
        return BLOCKS

    def __getitem__(self, i):
        if self.array is None:
            if self.url.startswith("http"):
                from zarr.storage import FsspecStore

                self.array = zarr.open_array(FsspecStore.from_url(self.url), mode="r")
            else:
                self.array = zarr.open_array(self.url, mode="r")
        return self.array[i : i + 1]


def torch_zarr(name, workers):
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    loader = DataLoader(ZarrMap(f"{HTTP}/{name}.zarr/t"), batch_size=8, shuffle=True, num_workers=int(workers),
                        multiprocessing_context="spawn" if int(workers) else None)

    def work():
        size = 0
        for batch in loader:
            size += batch.numel() * 4
            float(batch[:, 0, 0, 0].sum())
        return size

    timed(work)


def set_up():
    with psycopg.connect("", autocommit=True) as connection:
        connection.execute("CREATE EXTENSION tensorbank")
        connection.execute(f"CREATE SERVER web FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{HTTP}', "
                           f"index_url 'file://{DIR}/index')")
        connection.execute(f"CREATE SERVER disk FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{STORES}')")
        for server in ("web", "disk"):
            for name in ("raw", "zstd", "shards"):
                connection.execute(f"CREATE SCHEMA {server}_{name}")
                connection.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER {server} INTO {server}_{name}')
        connection.execute("CREATE TABLE own_bytea (v bytea)")
        connection.execute("ALTER TABLE own_bytea ALTER v SET STORAGE EXTERNAL")
        connection.execute("INSERT INTO own_bytea SELECT tensorbank.read(t)::bytea FROM disk_raw.raw")
        for name in ("zstd", "shards"):
            connection.execute(f"SELECT tensorbank.create_dataset('all_{name}', 'SELECT t FROM web_{name}.{name}')")


def rounds(title, contestants):
    results = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        names = list(contestants)
        random.shuffle(names)
        for name in names:
            one = contestants[name]()
            results[name].append(one["bytes"] / one["seconds"] / 1e9)
    print(f"\n{title}: {BLOCKS} blocks of 1 MiB, {ROUNDS} rounds, GB/s median (min..max), ratio to the first")
    base = results[next(iter(contestants))]
    for name, speeds in results.items():
        ratio = statistics.median(s / b for s, b in zip(speeds, base))
        print(f"  {name:28} {statistics.median(speeds):6.3f} ({min(speeds):.3f}..{max(speeds):.3f})  {ratio:5.2f}", flush=True)


def prune():
    """A scan that prunes everything, warm, as the client sees it; and the same plan and execution by EXPLAIN."""
    with psycopg.connect("", autocommit=True) as connection:
        connection.execute("CALL tensorbank.build_index('disk_zstd.zstd')")
        sql = "SELECT block FROM disk_zstd.zstd WHERE t_max < 0"
        for _ in range(20):
            connection.execute(sql).fetchall()
        times = []
        for _ in range(200):
            start = time.perf_counter()
            rows = connection.execute(sql).fetchall()
            times.append((time.perf_counter() - start) * 1000)
            assert not rows
    times.sort()
    print(f"\nprune: nothing of {BLOCKS} blocks matches, warm: median {times[100]:.3f} ms, p99 {times[197]:.3f} ms")


def main():
    make_stores()
    for name in ("raw", "zstd", "shards"):
        listing(name)
    set_up()
    if "wire" in WORKS:
        rounds("wire: raw ranges over HTTP", {"plain libcurl": plain("raw"), "engine": engine("raw"),
                                              "zarr-python": python("zarr_http", "raw")})
    for name in ("zstd", "shards"):
        if name in WORKS:
            rounds(f"{name} over HTTP", {"plain libcurl": plain(name), "engine": engine(name),
                                         "zarr-python": python("zarr_http", name)})
    if "prune" in WORKS:
        prune()
    if "sql" in WORKS:
        for name in ("raw", "zstd"):
            rounds(f"sql: {name} in band, SELECT read(t) through psycopg", {
                "own bytea": python("sql_bytea", name), "tensorbank, disk": python("sql_read", name, "disk"),
                "tensorbank, web": python("sql_read", name, "web"), "zarr-python, disk": python("zarr_local", name),
                "zarr-python, web": python("zarr_http", name)})
    if "torch" in WORKS:
        rounds("torch: shuffled batches of 8", {"zarr DataLoader, 0 workers": python("torch_zarr", "zstd", 0),
                                                "zarr DataLoader, 2 workers": python("torch_zarr", "zstd", 2),
                                                "tensorbank": python("torch_tensorbank", "zstd")})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        globals()[sys.argv[1]](*sys.argv[2:])
    else:
        main()
