"""Run the works in interleaved rounds and print ratios. See test/bench/run.sh for the settings.

A work is a list of contestants; each round runs every one once, in random order. GB/s are of decoded bytes, from opening the
store to the last block; only ratios of one run mean something. CPU counts client, server, workers and streamer.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time

import bench_data
import psycopg

DIR = os.environ["TB_BENCH_DIR"]
STORES = f"{DIR}/stores"
PORT = int(os.environ["HTTP_PORT"])
HTTP = f"http://127.0.0.1:{PORT}"
DOORS = {"20 ms": PORT + 1, "100 ms": PORT + 2, "20 ms, 80 MB/s a connection": PORT + 3}
BLOCKS = int(os.environ.get("TB_BENCH_BLOCKS", "512"))
ROUNDS = int(os.environ.get("TB_BENCH_ROUNDS", "5"))
WORKS = os.environ.get("TB_BENCH_WORK", "whole memory selection small latency band tail cache prune torch").split()
HERE = os.path.dirname(os.path.abspath(__file__))


def run_json(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


def plain(name, base=HTTP, connections=16, seed=0, every=1, passes=1):
    return lambda: run_json("build/bench/plain", f"{DIR}/{name}.txt", base, connections, 2, seed, every, passes)


def engine(name, base=HTTP, *options):
    return lambda: run_json("build/bench/engine", *options, f"{base}/{name}.zarr", "t")


def python(function, *arguments):
    return lambda: run_json(sys.executable, f"{HERE}/bench_python.py", function, *arguments)


def has_tensorstore():
    return subprocess.run([sys.executable, "-c", "import tensorstore"], capture_output=True, check=False).returncode == 0


def rounds(title, contestants, value="speed"):
    """Print medians and the ratio to the first. Returns the results by contestant."""
    results = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        names = list(contestants)
        random.shuffle(names)
        for name in names:
            one = contestants[name]()
            one["speed"] = one["bytes"] / one["seconds"] / 1e9
            one["cpu_per_gib"] = one["cpu"] / (one["bytes"] / 2**30)
            results[name].append(one)
    print(f"\n{title}; {ROUNDS} rounds: GB/s median (min..max), ratio to the first; CPU s/GiB, ratio")
    base = results[next(iter(contestants))]
    for name, runs in results.items():
        speeds = [run["speed"] for run in runs]
        ratio = statistics.median(run["speed"] / first["speed"] for run, first in zip(runs, base))
        used = statistics.median(run["cpu_per_gib"] for run in runs)
        cpu = statistics.median(run["cpu_per_gib"] / first["cpu_per_gib"] for run, first in zip(runs, base))
        print(f"  {name:34} {statistics.median(speeds):6.3f} ({min(speeds):.3f}..{max(speeds):.3f})  {ratio:5.2f}   {used:6.3f}  {cpu:5.2f}", flush=True)
    return results


def median_of(runs, key):
    return statistics.median(run[key] for run in runs)


def requests_of(door):
    """Requests in a door's log so far (nginx writes it each second)."""
    time.sleep(1.2)
    with open(f"{DIR}/http/requests.{door}") as log:
        return sum("t/c/" in line for line in log)


def set_up():
    with psycopg.connect("", autocommit=True) as connection:
        connection.execute("CREATE EXTENSION tensorbank")
        connection.execute(f"CREATE SERVER web FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{HTTP}', "
                           f"index_url 'file://{DIR}/index')")
        connection.execute(f"CREATE SERVER disk FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{STORES}')")
        for server in ("web", "disk"):
            for name in bench_data.LAYOUTS:
                connection.execute(f"CREATE SCHEMA {server}_{name}")
                connection.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER {server} INTO {server}_{name}')
        connection.execute("CREATE TABLE own_bytea (v bytea)")
        connection.execute("ALTER TABLE own_bytea ALTER v SET STORAGE EXTERNAL")
        connection.execute("INSERT INTO own_bytea SELECT tensorbank.read(t)::bytea FROM disk_raw.raw")
        for name in ("zstd", "shards"):
            connection.execute(f"SELECT tensorbank.create_dataset('all_{name}', 'SELECT t FROM web_{name}.{name}')")


def whole():
    """Goal 1: all blocks of six layouts."""
    for name in ("raw", "raw8", "zstd", "shards", "lz4", "pack"):
        contestants = {"plain libcurl": plain(name), "engine": engine(name),
                       "stream (client to streamer)": python("stream", name, "web")}
        if has_tensorstore():
            contestants["tensorstore"] = python("tensorstore_all", name)
        rounds(f"whole store, {name}", contestants)


def memory():
    """Goal 2: memory beyond the slots and page faults do not grow with the store."""
    for name in ("zstd", "raw"):
        print(f"\nmemory, {name}: passes over {BLOCKS} blocks, peak MiB beyond slots, minor faults a block after the first quarter")
        for passes in (1, 4):
            one = engine(name, HTTP, "-r", passes)()
            print(f"  {passes} passes: {one['rss']:6.1f} MiB  {one['faults'] / one['blocks'] / 0.75:.2f}", flush=True)


def selection():
    """Goal 3: a tenth of the blocks, from the query to the last batch, against the plain reader who has the list."""
    for name in ("zstd", "shards"):
        before = requests_of(PORT)
        one = engine(name, HTTP, "-s", 5, "-e", 10)()
        requests = requests_of(PORT) - before
        needed = plain(name, seed=5, every=10)()["wire"]
        print(f"\nselection, {name}: {one['blocks']} blocks in {requests} requests for chunks and shard indexes; bytes "
              f"{one['wire'] / needed:.3f} of what the chunks are")
        condition = f"block % 10 = 3 AND block >= 0"
        rounds(f"selection of a tenth, {name}", {
            "plain libcurl, given the list": plain(name, every=10),
            "engine, every tenth": engine(name, HTTP, "-e", 10),
            "query to last batch": python("stream", name, "web", "none", condition),
            "all of it": python("stream", name, "web")})


def small():
    """Goal 4: blocks of 16 KiB."""
    rounds("small blocks in random order", {"plain libcurl": plain("small", connections=32, seed=5),
                                            "engine": engine("small", HTTP, "-s", 5, "-f", 128)})
    rounds("small blocks in order", {"plain libcurl": plain("small", connections=32), "engine": engine("small", HTTP, "-f", 256)})


def latency():
    """Goal 5: with default settings against the best number of connections of the plain reader."""
    for title, door in DOORS.items():
        base = f"http://127.0.0.1:{door}"
        contestants = {f"plain libcurl, {n} connections": plain("zstd", base, n) for n in (8, 16, 32, 64, 128)}
        contestants["engine"] = engine("zstd", base, "-f", 160)
        contestants["engine, no delay"] = engine("zstd", HTTP, "-f", 160)
        results = rounds(f"latency {title}", contestants)
        best = max(median_of(runs, "speed") for name, runs in results.items() if name.startswith("plain"))
        print(f"  engine to the best plain {median_of(results['engine'], 'speed') / best:.2f}, to itself without delay "
              f"{median_of(results['engine'], 'speed') / median_of(results['engine, no delay'], 'speed'):.2f}")


def band():
    """Goal 6: in band."""
    for name in ("raw", "zstd"):
        rounds(f"in band, {name}: SELECT read(t) through psycopg", {
            "own bytea": python("sql_bytea"), "tensorbank, disk": python("sql_read", name, "disk"),
            "tensorbank, web": python("sql_read", name, "web"),
            "plain libcurl (no server)": plain(name)})
        rounds(f"in band, {name}: COPY ... TO STDOUT (FORMAT binary)", {
            "own bytea": python("sql_copy", "SELECT v FROM own_bytea"),
            "tensorbank, disk": python("sql_copy", f"SELECT tensorbank.read(t) FROM disk_{name}.{name}"),
            "tensorbank, web": python("sql_copy", f"SELECT tensorbank.read(t) FROM web_{name}.{name}")})


def tail():
    """Goal 7: one request in a hundred waits half a second."""
    late = f"http://127.0.0.1:{PORT + 4}"
    before = requests_of(PORT + 4)
    results = rounds("tail: 1 % of requests wait 500 ms", {
        "engine, none late": engine("zstd", HTTP, "-r", 4), "engine, some late": engine("zstd", late, "-r", 4),
        "plain libcurl, some late": plain("zstd", late, passes=4)})
    sent = sum(run["requests"] for run in results["engine, some late"])
    needed = sum(run["requests"] for run in results["engine, none late"])
    print(f"  requests with late ones {sent / needed:.3f} of those without")
    del before


def cache():
    """Goal 8: the second read comes from the local cache."""
    directory = f"{DIR}/cache"

    def fresh():
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(directory, mode=0o700)

    for name in ("zstd", "raw"):
        fresh()
        engine(name, HTTP, "-c", directory)()
        engine(name, HTTP, "-c", directory)()
        rounds(f"second read, {name}", {"plain, the files": plain(name, f"file:{STORES}"),
                                        "engine, cached": engine(name, HTTP, "-c", directory)})

        def first():
            fresh()
            return engine(name, HTTP, "-c", directory)()

        rounds(f"first read, {name}", {"engine without cache": engine(name), "engine filling the cache": first})


def prune():
    """A scan that prunes everything, warm, as the client sees it."""
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


def torch():
    rounds("torch: shuffled batches of 8", {
        "zarr DataLoader, 0 workers": python("torch_zarr", "zstd", 0),
        "zarr DataLoader, 2 workers": python("torch_zarr", "zstd", 2), "tensorbank": python("torch_tensorbank", "zstd")})


def main():
    for name in bench_data.LAYOUTS:
        bench_data.make_store(STORES, name, BLOCKS)
        bench_data.make_list(STORES, name, BLOCKS, f"{DIR}/{name}.txt")
    print(f"{BLOCKS} blocks of 1 MiB decoded; stored, MiB: {bench_data.describe(STORES, bench_data.LAYOUTS)}", flush=True)
    set_up()
    for name in WORKS:
        globals()[name]()


if __name__ == "__main__":
    main()
