#!/usr/bin/env python3
"""Sessions that read at random from a store where one answer in twenty goes wrong, for as long as is wanted.

    PYTHONPATH=src/client/python build/venv/bin/python test/py/soak.py [--minutes 30] [--sessions 16] [--seed 1] [--share 0.05] [--json FILE]

The extension must be installed. Two clusters read the same store (soak_origin.py), the second through a cache whose files
are damaged all the while. Every value is compared with numpy's (soak_work.py). At the end: no wrong byte, no death, errors
only of those that docs name and of one statement in a thousand at most, descriptors and memory flat, nothing taken.
"""

import argparse
import collections
import json
import os
import pwd
import random
import shutil
import sys
import tempfile
import threading
import time

import numpy as np
import psycopg
import zarr

import cluster as clusters
import soak_origin
import zarrs
from conftest import no_internal_errors
from soak_work import Array, Process, Session

CLUSTER = ("log_line_prefix=%m_[%p]_%b_%e_", "shared_preload_libraries=tensorbank", "max_connections=100",
           "tensorbank.connect_timeout=3s", "tensorbank.first_byte_timeout=1s", "tensorbank.low_speed_time=1s",
           "tensorbank.metadata_max_age=5s")
#: most that a backend's memory may grow in any run once it is warm, and the streamer's: room for the heap's high-water
#: marks, which are reached by chance, and for decoded chunks, of which a session keeps up to 64 MB; each time
#: metadata is asked for again they are other chunks to it. A long run tells leaks from those
GROWTH_KB, STREAMER_KB = 24576, 8192
#: connections that a process keeps for later, and what else it opens for a while
SOCKETS = 140


def make_stores(folder):
    """Stores of several layouts; {name: {column: (golden values, chunk, whether their NaNs are stored ones)}}."""
    draw = np.random.default_rng(11)
    made = {}
    grid = {"time": 12, "lat": 128, "lon": 128, "chunks": (3, 32, 32)}
    for name, more in {"plain": {}, "sharded": {"shards": (6, 64, 128)}, "listed": {"consolidated": False}, "old": {"zarr_format": 2}}.items():
        t, p = zarrs.wind(f"{folder}/{name}.zarr", **grid, **more)
        made[name] = {"t": (t, grid["chunks"], True), "p": (zarrs.decoded(p), grid["chunks"], False)}
    shapes = {"bare": ((8, 256, 256), (1, 128, 256), None), "bareshards": ((16, 128, 128), (1, 64, 64), (8, 128, 128)),
              "checked": ((16, 96, 96), (2, 48, 48), (8, 96, 96))}
    for name, (shape, chunk, shards) in shapes.items():
        codecs = [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()] if name == "checked" else None
        x = draw.integers(0, 1 << 24, shape).astype("f4")
        zarrs.put(zarrs.group(f"{folder}/{name}.zarr"), "x", x, chunk, ("k", "j", "i"), shards=shards, compressors=codecs)
        zarr.consolidate_metadata(f"{folder}/{name}.zarr")
        made[name] = {"x": (x, chunk, True)}
    return made


def read_objects(folder):
    """{path in the bucket: bytes} of all files below a folder."""
    found = {}
    for root, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(root, name)
            with open(path, "rb") as file:
                found["/data/" + os.path.relpath(path, folder)] = file.read()
    return found


#: which stores are read how
SERVERS = {"web": ("plain", "sharded", "old", "bare", "bareshards", "checked"), "bucket": ("plain", "sharded", "listed", "bareshards")}


class Database:
    """A cluster with the tables of the soak."""

    def __init__(self, folder, name, origin, cached):
        self.name = name
        self.cache = os.path.join(folder, f"{name}-cache") if cached else None
        index = os.path.join(folder, f"{name}-index")
        os.mkdir(index)
        os.chmod(index, 0o777)
        options = CLUSTER
        if cached:
            os.mkdir(self.cache, 0o700)
            if os.getuid() == 0:
                owner = pwd.getpwnam(clusters.SERVER_USER)
                os.chown(self.cache, owner.pw_uid, owner.pw_gid)
            options += (f"tensorbank.cache_directory={self.cache}", "tensorbank.cache_size=8MB")
        os.mkdir(os.path.join(folder, name))
        self.cluster = clusters.Cluster(os.path.join(folder, name), *options).start()
        self.lock = threading.Lock()
        self.admin = self.connect()
        c = self.admin
        c.execute("CREATE EXTENSION tensorbank")
        c.execute(f"CREATE SERVER web FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{origin.url}/data', index_url 'file://{index}')")
        c.execute(f"CREATE SERVER bucket FOREIGN DATA WRAPPER tensorbank OPTIONS (url 's3://data', endpoint '{origin.url}', index_url 'file://{index}')")
        c.execute("CREATE USER MAPPING FOR postgres SERVER bucket OPTIONS (access_key_id 'AKIDSOAK', secret_access_key 'soak')")
        for server, stores in SERVERS.items():
            c.execute(f"CREATE SCHEMA {server}")
            for store in stores:
                c.execute(f'IMPORT FOREIGN SCHEMA "{store}.zarr" FROM SERVER {server} INTO {server}')
        c.execute("CALL tensorbank.build_index('web.plain')")
        for name, query in DATASETS.items():
            c.execute("SELECT tensorbank.create_dataset(%s, %s)", (name, query[0]))

    def connect(self):
        return self.cluster.connect()

    def dsn(self):
        return self.cluster.dsn()

    def cancel(self, pid):
        with self.lock:
            self.admin.execute("SELECT pg_cancel_backend(%s)", (pid,))

    def ask(self, sql):
        with self.lock:
            return self.admin.execute(sql).fetchall()

    def left(self):
        """What is still taken a moment after the last session has ended, as lines."""
        try:
            return self.taken()
        except psycopg.OperationalError as e:
            return [f"{self.name}: the server died: {e}"]

    def taken(self):
        checks = {"the node's limits": ("SELECT requests, memory_bytes FROM tensorbank.node_status", [(0, 0)]),
                  "streams": ("SELECT count(*) FROM tensorbank.streams", [(0,)]),
                  "sessions": ("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'", [(1,)])}
        bad = []
        for what, (sql, want) in checks.items():
            if not clusters.wait_for(lambda: self.ask(sql) == want, 10):
                bad.append(f"{self.name}: {what} at the end: {self.ask(sql)}")
        return bad

    def log_errors(self):
        text = self.cluster.log()
        bad = no_internal_errors(text) + [line for line in text.splitlines() if "terminated by signal" in line or "reinitializing" in line or "Failed process was running" in line]
        return [f"{self.name}: {line}" for line in dict.fromkeys(bad)][:20]


#: name: (query, the server and store of its columns)
DATASETS = {"grid": ("SELECT t, p, block FROM web.plain", "web", "plain", ("t", "p")),
            "shards": ("SELECT t, block FROM bucket.sharded", "bucket", "sharded", ("t",)),
            "bare": ("SELECT x, block FROM web.bareshards", "web", "bareshards", ("x",)),
            "checked": ("SELECT x, block FROM web.checked", "web", "checked", ("x",))}


class Vandal(threading.Thread):
    """Damages files of a cache while they are used: bits, lengths, whole pages, whole files."""

    def __init__(self, soak, folder):
        super().__init__(daemon=True)
        self.soak, self.folder = soak, folder
        self.random = random.Random(soak.seed)
        self.count = collections.Counter()

    def run(self):
        while not self.soak.stop.wait(0.1):
            files = [os.path.join(root, name) for root, _, names in os.walk(self.folder) for name in names]
            if files:
                try:
                    self.damage(self.random.choice(files))
                except (OSError, ValueError):
                    pass        # the cache took it away

    def damage(self, path):
        # the index is mapped into memory: whoever cuts a mapped file off kills its readers, and nothing helps against that
        may_cut = os.path.basename(path) != "index"
        what = self.random.choices(["bit", "page", "cut", "empty", "gone"], [12, 4, 3 * may_cut, may_cut, 0.2])[0]
        size = os.path.getsize(path)
        if what == "gone":
            os.unlink(path)
        elif what in ("cut", "empty"):
            os.truncate(path, self.random.randrange(size) if what == "cut" else 0)
        else:
            with open(path, "r+b", buffering=0) as file:
                at = self.random.randrange(size)
                if what == "bit":
                    file.seek(at)
                    byte = file.read(1)[0]
                    file.seek(at)
                    file.write(bytes([byte ^ 1 << self.random.randrange(8)]))
                else:
                    file.seek(at)
                    file.write(self.random.randbytes(min(512, size - at)))
        self.count[what] += 1


class Soak:
    def __init__(self, minutes=3.0, sessions=4, seed=1, share=0.05, say=print):
        self.minutes, self.sessions, self.seed, self.say = minutes, sessions, seed, say
        self.stop = threading.Event()
        self.folder = tempfile.mkdtemp(prefix="tb-soak.", dir=os.environ.get("TMPDIR", "/tmp"))
        os.chmod(self.folder, 0o755)
        stores = os.path.join(self.folder, "stores")
        os.mkdir(stores)
        golden = make_stores(stores)
        made = {(server, store, column): Array(f"{server}.{store}", column, *what)
                for server, names in SERVERS.items() for store in names for column, what in golden[store].items()}
        self.arrays = list(made.values())
        self.indexed = made["web", "plain", "t"]
        self.datasets = {name: [made[server, store, column] for column in columns] for name, (_, server, store, columns) in DATASETS.items()}
        # forked before there are threads
        self.origin = soak_origin.OriginProcess(read_objects(stores), share, seed)
        self.databases = []
        try:
            self.origin.ask("share", 0)
            for name, cached in (("uncached", False), ("cached", True)):
                self.databases.append(Database(self.folder, name, self.origin, cached))
        except BaseException:
            self.close()
            raise

    def run(self):
        """The report, with `failures`: what must not be."""
        self.ready = threading.Barrier(self.sessions + 1)
        sessions = [Session(self, i, self.databases[i // 2 % 2]) for i in range(self.sessions)]
        vandals = [Vandal(self, d.cache) for d in self.databases if d.cache]
        streamers = {d.name: Process(d.cluster.streamer()) for d in self.databases}
        for session in sessions:
            session.start()
        self.begin = told = time.monotonic()
        self.end = self.begin + 300
        try:
            self.ready.wait(150)
        except threading.BrokenBarrierError:
            self.stop.set()
        self.begin = told = time.monotonic()
        self.end = self.begin + self.minutes * 60
        self.origin.ask("share", None)
        for vandal in vandals:
            vandal.start()
        while any(s.is_alive() for s in sessions) and time.monotonic() < self.end + 120:
            time.sleep(0.5)
            for d in self.databases:
                streamers[d.name].pid = d.cluster.streamer() or streamers[d.name].pid
                streamers[d.name].look(1 << 30)
            if any(s.wrong for s in sessions):
                self.stop.set()
            if time.monotonic() - told > 15:
                told = time.monotonic()
                self.progress(sessions)
        hanging = [f"session {s.number} hangs in {s.doing}" for s in sessions if s.is_alive()]
        self.stop.set()
        origin = self.origin.ask("share", 0)
        return self.report(sessions, vandals, streamers, hanging, origin)

    def progress(self, sessions):
        seen = sum((s.count for s in sessions), collections.Counter())
        origin = self.origin.ask("report")
        self.say(f"soak: {time.monotonic() - self.begin:.0f} s: {seen['statements']} statements, {seen['failed']} failed, {seen['canceled']} canceled,"
                 f" {seen['blocks']} blocks compared; {origin['requests']} requests, {origin['faults']} faults", flush=True)

    def report(self, sessions, vandals, streamers, hanging, origin):
        seconds = time.monotonic() - self.begin
        count = sum((s.count for s in sessions), collections.Counter())
        growth = [g for s in sessions for p in s.processes if (g := p.growth(seconds))]
        streamed = {name: p.growth(seconds) for name, p in streamers.items()}
        failures = [s.wrong for s in sessions if s.wrong] + hanging
        for d in self.databases:
            failures += d.left() + d.log_errors()
        report = {"seconds": round(seconds), "sessions": self.sessions, "requests": origin["requests"], "faults": origin["faults"],
                  "kinds": dict(sorted(origin["kinds"].items())), "connections": origin["most_open"], **count,
                  "states": dict(sum((s.states for s in sessions), collections.Counter())), "texts": [t for s in sessions for t in s.texts],
                  "damaged": dict(sum((v.count for v in vandals), collections.Counter())),
                  "memory": {f"session {s.number}, process {i}": [x[4] for x in p.samples[::8]] for s in sessions for i, p in enumerate(s.processes)},
                  "backends": len(growth), "backend_growth": [max(g[i] for g in growth) for i in range(3)] if growth else None,
                  "streamer_growth": streamed, "failures": failures,
                  "statements_per_s": round(count["statements"] / seconds, 1), "mb_per_s": round(count["bytes"] / 1e6 / seconds, 1),
                  "requests_per_s": round(origin["requests"] / seconds, 1)}
        return report

    def close(self):
        self.stop.set()
        for database in self.databases:
            database.cluster.wipe()
        self.origin.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def judge(report):
    """What is wrong with a report, as lines."""
    bad = list(report["failures"])
    failed, statements = report.get("failed", 0), report.get("statements", 0)
    if failed > max(statements / 1000, 0):
        bad.append(f"{failed} of {statements} statements failed, more than one in a thousand: {report['states']}")
    for who, limit, growth in [("backends", GROWTH_KB, report["backend_growth"]),
                               *((f"streamer of {name}", STREAMER_KB, g) for name, g in report["streamer_growth"].items())]:
        if growth is None:
            continue
        descriptors, sockets, kilobytes = growth
        if descriptors > 0:
            bad.append(f"{who}: {descriptors} more descriptors")
        if sockets > SOCKETS:
            bad.append(f"{who}: {sockets} sockets")
        if kilobytes > limit:
            bad.append(f"{who}: {kilobytes} KB more memory")
    return bad


def summary(report):
    get = report.get
    return (f"soak: {report['seconds']} s, {report['sessions']} sessions: {get('statements', 0)} statements ({report['statements_per_s']}/s), "
            f"{get('failed', 0)} failed {report['states'] or ''}, {get('refused', 0)} refused and repeated, {get('canceled', 0)} canceled, "
            f"{get('reconnects', 0)} reconnects, {get('blocks', 0)} blocks compared ({report['mb_per_s']} MB/s), {get('batches', 0)} batches; "
            f"{report['requests']} requests ({report['requests_per_s']}/s), {report['faults']} faults of {len(report['kinds'])} kinds: "
            f"{', '.join(f'{k} {n}' for k, n in report['kinds'].items())}; cache files damaged: {report['damaged'] or 'none'}; "
            f"growth (descriptors, most sockets, KB) of {report['backends']} backends {report['backend_growth']}, "
            f"of streamers {report['streamer_growth']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("TB_SOAK_MINUTES", 3)))
    parser.add_argument("--sessions", type=int, default=int(os.environ.get("TB_SOAK_SESSIONS", 4)))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TB_SOAK_SEED", 1)))
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--json", help="write the report there")
    args = parser.parse_args()
    soak = Soak(args.minutes, args.sessions, args.seed, args.share)
    try:
        report = soak.run()
    finally:
        soak.close()
    if args.json:
        with open(args.json, "w") as file:
            json.dump(report, file, indent=1)
    for line in report["texts"][:40]:
        print(line)
    print(summary(report))
    bad = judge(report)
    for line in bad:
        print(f"not ok: {line}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
