#!/usr/bin/env python3
"""Sessions that read at random from a store where one request in twenty goes wrong, for as long as is wanted.

    soak.py [--minutes 3] [--sessions 4] [--seed 1] [--share 0.05] [--json FILE]

Every block's hash is compared with the one that numpy gives; errors must be of those that documents name; no process may
die, and neither descriptors nor memory of backends and streamer may grow. test_soak.py runs it for TB_SOAK_MINUTES.
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import sys
import tempfile
import threading
import time

import numpy as np
import psycopg
import zarr

import cluster as clusters
import faulty as scripted
import tensorbank
import zarrs

#: errors that a fault may end in, when retries are used up
STATES = {"08006", "08P01", "53000", "40001", "42501", "28000", "HV00N", "XX001", "0A000", "57014", "57P03", "53200"}

#: what streams call them
CODES = {"lost": "08006", "protocol": "08P01", "throttled": "53000", "changed": "40001", "denied": "42501", "auth": "28000",
         "connect": "HV00N", "corrupt": "XX001", "unsupported": "0A000", "unavailable": "57P03"}

#: (name, action, options); of the options `ranged` says whether it is for requests of ranges or of whole objects only
FAULTS = [
    ("reset before the head", "reset", {}),
    ("reset at byte 0", "reset_body", {"after": 0}),
    ("reset at byte 1", "reset_body", {"after": 1}),
    ("reset in the middle", "reset_body", {}),
    ("reset before the last byte", "reset_body", {"after": -1}),
    ("closed without an answer", "close", {}),
    ("short body", "short", {}),
    ("short by one byte", "short", {"after": -1}),
    ("empty body", "short", {"after": 0}),
    ("longer Content-Length", "length", {}),
    ("no last chunk", "chunked", {"cut": True}),
    ("chunked", "chunked", {}),
    ("garbage", "garbage", {}),
    ("range off by one", "wrong_range", {"shift": 1}),
    ("range far off", "wrong_range", {"shift": 4096}),
    ("no Content-Range", "head", {"headers": {"Content-Range": None}, "ranged": True}),
    ("another total", "wrong_range", {"shift": 0, "total": 1 << 40}),
    ("short range", "short_range", {"bytes": 3, "ranged": True}),
    ("500", "status", {"code": 500}),
    ("502", "status", {"code": 502}),
    ("504", "status", {"code": 504}),
    ("503 SlowDown", "error", {"code": 503, "name": "SlowDown"}),
    ("503 Retry-After", "error", {"code": 503, "name": "SlowDown", "headers": {"Retry-After": "1"}}),
    ("429", "error", {"code": 429, "name": "TooManyRequests", "headers": {"Retry-After": "0"}}),
    ("408", "error", {"code": 408, "name": "RequestTimeout"}),
    ("error in a 200", "xml", {"ranged": True}),
    ("late", "delay", {"seconds": 0.5}),
    ("no answer", "hang", {"seconds": 5}),
    ("stalls in the middle", "hang_body", {"seconds": 5}),
    ("trickle", "drip", {"bytes_per_s": 20}),
    ("another ETag", "etag", {}),
    ("weak ETag", "etag", {"value": 'W/"x"'}),
    ("connection closed after the answer", "close_after", {}),
    ("checksum disagrees", "head", {"headers": {"x-amz-checksum-crc32c": "AAAAAA=="}, "ranged": False}),
]

SETTINGS = ("SET tensorbank.retries = 8; SET tensorbank.connect_timeout = '3s'; SET tensorbank.first_byte_timeout = '1s';"
            " SET tensorbank.low_speed_time = '1s'; SET tensorbank.metadata_max_age = '5s'")


class Faults(scripted.Faulty):
    """A share of requests for chunks fails, in a way that seed, path, range and try choose; never twice in a row."""

    def __init__(self, root, share, seed):
        self.share = share
        self.injected = {}
        super().__init__(root, seed=seed)
        self.keep_log = False

    def take(self, method, path, headers):
        if "/c/" not in path or self.share == 0:
            return None
        with self.lock:
            asked = (path, headers.get("Range", ""))
            nth = self.tries[asked] = self.tries.get(asked, 0) + 1
            drawn = random.Random(f"{self.seed} {path} {asked[1]} {nth}")
            if drawn.random() >= self.share:
                return None
            kinds = [f for f in FAULTS if f[2].get("ranged") in (None, "Range" in headers)]
            name, action, options = drawn.choice(kinds)
            self.injected[name] = self.injected.get(name, 0) + 1
        return scripted.Rule("", action, **options)


def make_stores(folder):
    """Stores of several layouts; {name: (array's name, golden data, chunk)}."""
    draw = np.random.default_rng(11)
    made = {}
    for name, shape, chunk, shards, more in [
            ("small", (24, 48, 48), (2, 12, 12), None, {}), ("shards", (24, 96, 96), (2, 12, 12), (24, 48, 48), {}),
            ("plainraw", (8, 256, 256), (1, 128, 256), None, {"compressors": None}),
            ("shardraw", (16, 128, 128), (1, 64, 64), (8, 128, 128), {"compressors": None})]:
        data = draw.integers(0, 1 << 20, shape).astype("f4")
        root = zarrs.group(f"{folder}/{name}.zarr")
        zarrs.put(root, "x", data, chunk, ("k", "j", "i"), shards=shards, **more)
        zarr.consolidate_metadata(f"{folder}/{name}.zarr")
        made[name] = (data, chunk)
    clusters.open_up(folder)
    return made


def digest(block):
    return hashlib.sha1(np.ascontiguousarray(block)).digest()


class Wrong(Exception):
    """What the soak exists to find."""


class Session(threading.Thread):
    """One session's loop until `end`; counts in `seen`."""

    def __init__(self, soak, number):
        super().__init__(daemon=True)
        self.soak = soak
        self.random = random.Random(f"{soak.seed} {number}")
        self.seen = {"statements": 0, "succeeded": 0, "blocks": 0, "bytes": 0, "canceled": 0, "streams": 0}
        self.errors = {}
        self.texts = []
        self.failure = None
        self.pid = None

    def run(self):
        try:
            with self.soak.connect() as c:
                c.execute(SETTINGS)
                self.pid = c.info.backend_pid
                while time.monotonic() < self.soak.end and not self.soak.stop.is_set():
                    self.once(c)
        except BaseException as e:
            self.failure = f"{type(e).__name__}: {e}"

    def once(self, c):
        name = self.random.choice(list(self.soak.golden))
        act = self.random.choices([self.scan, self.one, self.explain, self.cancel, self.stream], [8, 6, 1, 1, 1])[0]
        try:
            self.seen["statements"] += act is not self.cancel
            act(c, name)
            self.seen["succeeded"] += act is not self.cancel
        except (psycopg.Error, tensorbank.StreamError) as e:
            self.failed(getattr(e, "sqlstate", None) or CODES.get(getattr(e, "code", None)), act, str(e))
            if c.closed:
                raise

    def failed(self, state, act, text):
        state = state or "08006"
        if act == self.cancel and state == "57014":
            self.seen["canceled"] += 1
            return
        if state not in STATES or state == "57014":
            raise Wrong(f"{act.__name__} ended with {state}: {text}")
        self.errors[state] = self.errors.get(state, 0) + 1
        # a few of each to read
        if self.errors[state] <= 3:
            self.texts.append(f"{state} {text}"[:300])

    def compare(self, name, rows):
        hashes = self.soak.hashes[name]
        for origin, value in rows:
            block = tensorbank.from_npy(bytes(value))
            if digest(block) != hashes[tuple(origin)]:
                raise Wrong(f"other bytes in {name} at {origin}")
            self.seen["blocks"] += 1
            self.seen["bytes"] += block.nbytes

    def scan(self, c, name):
        step = self.random.choice([1, 1, 2, 5, 11])
        with c.cursor(binary=True) as cursor:
            rows = cursor.execute(f"SELECT tensorbank.origin(x), tensorbank.read(x) FROM {name} WHERE block % {step} = 0").fetchall()
        if len(rows) != (len(self.soak.hashes[name]) + step - 1) // step:
            raise Wrong(f"{len(rows)} rows of {name}")
        self.compare(name, rows)

    def one(self, c, name):
        block = self.random.randrange(len(self.soak.hashes[name]))
        with c.cursor(binary=True) as cursor:
            rows = cursor.execute(f"SELECT tensorbank.origin(x), tensorbank.read(x) FROM {name} WHERE block = {block}").fetchall()
        if len(rows) != 1:
            raise Wrong(f"{len(rows)} rows of one block")
        self.compare(name, rows)

    def explain(self, c, name):
        text = c.execute(f"EXPLAIN (ANALYZE, VERBOSE) SELECT tensorbank.read(x) FROM {name} WHERE block < 5").fetchall()
        if not text:
            raise Wrong("an empty plan")

    def cancel(self, c, name):
        timer = threading.Timer(self.random.random() * 0.2, c.cancel)
        timer.start()
        try:
            self.scan(c, name)
        finally:
            timer.cancel()
            timer.join()
            # a cancel that came late would hit the next statement
            try:
                c.execute("SELECT pg_sleep(0.01)")
            except psycopg.errors.QueryCanceled:
                pass

    def stream(self, c, name):
        hashes = self.soak.sums[name]
        blocks = 0
        for batch in tensorbank.dataset(self.soak.dsn(), dataset=name, batch_size=4, shuffle="full", tail="ragged", output="numpy",
                                        seed=self.random.randrange(1000)):
            for block in np.array(batch.x):
                if digest(block) not in hashes:
                    raise Wrong(f"a stream of {name} gave other bytes")
                blocks += 1
                self.seen["bytes"] += block.nbytes
        if blocks != len(self.soak.hashes[name]):
            raise Wrong(f"a stream of {name} gave {blocks} samples")
        self.seen["streams"] += 1
        self.seen["blocks"] += blocks


def process_state(pid):
    """(descriptors, private memory in KB) of a process; None: gone, or not ours to look at."""
    try:
        files = len(os.listdir(f"/proc/{pid}/fd"))
        with open(f"/proc/{pid}/smaps_rollup") as file:
            text = file.read()
    except OSError:
        return None
    return files, sum(int(n) for n in re.findall(r"^Private_(?:Clean|Dirty):\s+(\d+)", text, re.M))


class Soak:
    def __init__(self, minutes, sessions, seed, share, say=print):
        self.minutes, self.count, self.seed, self.say = minutes, sessions, seed, say
        self.stop = threading.Event()
        self.folder = tempfile.mkdtemp(prefix="tb-soak.", dir=os.environ.get("TMPDIR", "/tmp"))
        os.chmod(self.folder, 0o755)
        stores = os.path.join(self.folder, "stores")
        os.mkdir(stores)
        index = os.path.join(self.folder, "index")
        os.mkdir(index)
        os.chmod(index, 0o777)
        self.golden = make_stores(stores)
        self.hashes, self.sums = {}, {}
        for name, (data, chunk) in self.golden.items():
            self.hashes[name] = self.blocks(data, chunk)
            self.sums[name] = set(self.hashes[name].values())
        self.faults = Faults(stores, share, seed)
        os.mkdir(os.path.join(self.folder, "cluster"))
        self.server = clusters.Cluster(os.path.join(self.folder, "cluster"), "log_line_prefix=%m_[%p]_%b_%e_",
                                       "shared_preload_libraries=tensorbank").start()
        share, self.faults.share = self.faults.share, 0
        with self.server.connect() as c:
            c.execute("CREATE EXTENSION tensorbank")
            c.execute(f"CREATE SERVER shaky FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{self.faults.url}', index_url 'file://{index}')")
            for name in self.golden:
                c.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER shaky INTO public')
                c.execute("SELECT tensorbank.create_dataset(%s, %s)", (name, f"SELECT x FROM {name}"))
        self.faults.share = share

    @staticmethod
    def blocks(data, chunk):
        starts = [range(0, n, c) for n, c in zip(data.shape, chunk)]
        return {(k, j, i): digest(data[k:k + chunk[0], j:j + chunk[1], i:i + chunk[2]])
                for k in starts[0] for j in starts[1] for i in starts[2]}

    def connect(self):
        return self.server.connect()

    def dsn(self):
        return self.server.dsn()

    def run(self):
        """The report, with `failures`: what must not be."""
        begin = time.monotonic()
        self.end = begin + self.minutes * 60
        sessions = [Session(self, i) for i in range(self.count)]
        for s in sessions:
            s.start()
        # after a third of the time everything that is kept has been filled once
        warm, told = {}, begin
        while any(s.is_alive() for s in sessions):
            time.sleep(0.5)
            now = time.monotonic()
            if not warm and now > begin + self.minutes * 20:
                warm = self.states(sessions)
            if any(s.failure for s in sessions):
                self.stop.set()
            if now - told > 15:
                told = now
                self.say(f"soak: {now - begin:.0f} s, {self.total(sessions, 'statements')} statements, {self.total(sessions, 'blocks')} blocks, "
                         f"{sum(self.faults.injected.values())} faults", flush=True)
            if now > self.end + 120:
                break
        return self.report(sessions, warm, begin)

    @staticmethod
    def total(sessions, key):
        return sum(s.seen[key] for s in sessions)

    def states(self, sessions):
        """State of each live backend and of the streamer; memory is looked at where it is least, over a second."""
        who = {f"session {i}": s.pid for i, s in enumerate(sessions) if s.is_alive()}
        who["streamer"] = self.server.streamer()
        found = {}
        for name, pid in who.items():
            state = process_state(pid) if pid else None
            if state:
                found[name] = (pid, *state)
        return found

    def report(self, sessions, warm, begin):
        failures = [f"session {i}: {s.failure}" for i, s in enumerate(sessions) if s.failure]
        failures += [f"session {i} hangs" for i, s in enumerate(sessions) if s.is_alive()]
        log = self.server.log()
        failures += [line for line in log.splitlines()
                     if re.search(r"terminated by signal|PANIC|XX000|stack smashing|reinitializing", line)][:10]
        errors = {}
        for s in sessions:
            for state, n in s.errors.items():
                errors[state] = errors.get(state, 0) + n
        return {"seconds": round(time.monotonic() - begin), "sessions": self.count, "requests": sum(self.faults.counts.values()),
                "faults": sum(self.faults.injected.values()), "kinds": len(self.faults.injected),
                "injected": dict(sorted(self.faults.injected.items())), "errors": errors, "texts": [t for s in sessions for t in s.texts], "failures": failures,
                **{key: self.total(sessions, key) for key in sessions[0].seen}, "growth": self.growth(warm)}

    def growth(self, warm):
        """{who: (descriptors, KB)} that came on top since the warm state, of those that live."""
        found = {}
        for name, (pid, files, memory) in warm.items():
            now = process_state(pid)
            if now:
                found[name] = (now[0] - files, now[1] - memory)
        return found

    def close(self):
        self.stop.set()
        self.faults.stop()
        self.server.wipe()
        shutil.rmtree(self.folder, ignore_errors=True)


def judge(report):
    """What is wrong with a report, as lines."""
    bad = list(report["failures"])
    if report["statements"] and report["succeeded"] < 0.999 * report["statements"]:
        bad.append(f"{report['succeeded']} of {report['statements']} statements succeeded: less than 99.9 %: {report['errors']}")
    for name, (files, kilobytes) in report["growth"].items():
        if files > 16:
            bad.append(f"{name} has {files} more descriptors")
        if kilobytes > (1024 if name != "streamer" else 8192):
            bad.append(f"{name} has {kilobytes} KB more memory")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--json")
    args = parser.parse_args()
    soak = Soak(args.minutes, args.sessions, args.seed, args.share)
    try:
        report = soak.run()
    finally:
        soak.close()
    print(json.dumps(report, indent=1))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(report, file, indent=1)
    bad = judge(report)
    for line in bad:
        print(f"not ok: {line}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
