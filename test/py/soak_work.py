"""What a session of the soak does: statements at random, whose values are compared with what numpy has."""

import collections
import itertools
import os
import random
import re
import threading
import time

import numpy as np
import psycopg

import tensorbank
from soak_origin import FINAL

#: what a statement may end with where faults last longer than its retries
STATES = {"08006", "08P01", "53000", "40001", "HV00N", "XX001", "0A000", "57P03", "53200", "HV014"}
#: statements and seconds after which a backend has everything that it keeps
WARM_STATEMENTS, WARM_SECONDS = 60, 60
#: times that all chunks are kept in part, until the 64 MB for that are full
WARM_ROUNDS = 8
#: SQLSTATEs of what the streamer tells by its own words
CODES = {"lost": "08006", "protocol": "08P01", "throttled": "53000", "changed": "40001", "connect": "HV00N", "corrupt": "XX001",
         "unsupported": "0A000", "unavailable": "57P03"}


class Wrong(Exception):
    """What must never be: other values than the golden ones, an error that no document names, a session that dies."""


class Array:
    """A column with its golden values, as read() gives them."""

    def __init__(self, table, column, data, chunk, exact=True):
        self.table, self.column, self.data, self.chunk, self.exact = table, column, data, chunk, exact
        starts = [range(0, n, c) for n, c in zip(data.shape, chunk)]
        # in the order of block numbers
        self.origins = list(itertools.product(*starts))
        self.blocks = [self.part(o, chunk) for o in self.origins]
        self.valid = [int(np.count_nonzero(~np.isnan(b))) for b in self.blocks]
        self.most = [float(np.nanmax(b)) for b in self.blocks]

    def part(self, start, shape):
        return np.ascontiguousarray(self.data[tuple(slice(s, s + n) for s, n in zip(start, shape))])

    def check(self, got, want, where):
        same = got.dtype == want.dtype and got.shape == want.shape
        # NaNs that a computation makes have no golden bits
        if not same or not (got.tobytes() == want.tobytes() if self.exact else np.array_equal(got, want, equal_nan=True)):
            raise Wrong(f"other values in {self.table}.{self.column}, {where}")
        return got.nbytes


class Process:
    """Descriptors and memory of a process over time, looked at while it is idle."""

    def __init__(self, pid):
        self.pid = pid
        self.begin = time.monotonic()
        self.samples = []

    def look(self, statements):
        try:
            links = []
            for name in os.listdir(f"/proc/{self.pid}/fd"):
                try:
                    links.append(os.readlink(f"/proc/{self.pid}/fd/{name}"))
                except OSError:
                    pass
            with open(f"/proc/{self.pid}/status") as file:
                memory = int(re.search(r"RssAnon:\s+(\d+)", file.read()).group(1))
        except (OSError, AttributeError):
            return
        # connections that are kept for later come and go within their limit
        sockets = sum(link.startswith("socket:") for link in links)
        self.samples.append((time.monotonic() - self.begin, statements, len(links) - sockets, sockets, memory))

    def growth(self, seconds=0):
        """(descriptors, sockets at most, KB) since it was warm; None: it did not live long enough to say. Of a run of so many seconds."""
        warm = [s for s in self.samples if s[0] >= max(WARM_SECONDS, seconds / 3) and s[1] >= WARM_STATEMENTS]
        if len(warm) < 8:
            return None
        quarter = len(warm) // 4
        first, last = warm[:quarter], warm[-quarter:]
        # the least of each: what runs just now holds some for a while
        return min(s[2] for s in last) - min(s[2] for s in first), max(s[3] for s in warm), min(s[4] for s in last) - min(s[4] for s in first)


class Session(threading.Thread):
    """One session's loop until soak.end; half of them connect anew now and then."""

    def __init__(self, soak, number, database):
        super().__init__(daemon=True)
        self.soak, self.number, self.database = soak, number, database
        self.random = random.Random(f"{soak.seed} {number}")
        self.count = collections.Counter()
        self.states = collections.Counter()
        self.texts = []
        self.wrong = None
        self.doing = None
        self.processes = []
        self.c = None
        self.actions = {self.block: 20, self.some_rows: 20, self.region: 14, self.whole: 4, self.aggregate: 10, self.few: 8, self.cursor: 8,
                        self.by_statistics: 6, self.union: 4, self.explain: 4, self.metadata: 4, self.copy: 4, self.stream: 3,
                        self.canceled: 8, self.timed_out: 3}

    def run(self):
        try:
            self.connect()
            if self.number % 2 == 0:
                self.warm_up()
            self.soak.ready.wait(120)
            while time.monotonic() < self.soak.end and not self.soak.stop.is_set():
                self.step()
        except Exception as e:
            if not self.soak.stop.is_set():
                self.wrong = f"session {self.number}, {self.doing}: {type(e).__name__}: {str(e).strip()}"
            self.soak.ready.abort()
        finally:
            if self.c is not None:
                self.c.close()

    def connect(self):
        if self.c is not None:
            self.c.close()
            self.count["reconnects"] += 1
        self.c = self.database.connect()
        self.c.execute("SET statement_timeout = '90s'")
        if self.number % 4 >= 2:
            self.c.execute("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0")
        self.processes.append(Process(self.c.info.backend_pid))
        self.looked = 0
        self.done = 0

    def warm_up(self):
        """Fill what is kept of chunks, so that it no longer grows; before there are faults."""
        # other metadata, other chunks: each round adds to them
        self.c.execute("SET tensorbank.metadata_max_age = 0; SET max_parallel_workers_per_gather = 0")
        for _ in range(WARM_ROUNDS):
            for array in self.soak.arrays:
                self.doing = f"warm-up of {array.table}"
                self.corners(array)
        self.c.execute("RESET tensorbank.metadata_max_age; RESET max_parallel_workers_per_gather")

    def step(self):
        if self.number % 2 == 1 and self.random.random() < 1 / 150:
            self.connect()
        (action,) = self.random.choices(list(self.actions), list(self.actions.values()))
        self.doing = action.__name__
        self.insist(action)
        self.done += 1
        if time.monotonic() - self.looked > 1:
            self.looked = time.monotonic()
            self.processes[-1].look(self.done)

    def insist(self, action):
        """What a final fault ended succeeds when it is said again."""
        for _ in range(6):
            if self.attempt(action):
                return
        raise Wrong(f"{self.doing} is refused again and again: {self.texts[-1:]}")

    def attempt(self, action):
        """Whether it need not be said again."""
        began = time.time()
        interrupted = action in (self.canceled, self.timed_out)
        try:
            action()
            self.count["statements"] += 1
            return True
        except (psycopg.Error, tensorbank.StreamError) as e:
            state, text = (CODES.get(e.code, e.code) if isinstance(e, tensorbank.StreamError) else e.sqlstate), self.told(e)
            if state is None or self.c.closed:
                raise
            if interrupted and state == "57014":
                self.count["canceled"] += 1
                return True
            if self.final(state, text, began):
                self.count["refused"] += 1
                return False
            self.count["statements"] += 1
            self.count["failed"] += 1
            self.states[state] += 1
            self.texts.append(f"{time.strftime('%H:%M:%S')} {self.doing} {state}: {text}")
            if state not in STATES:
                raise Wrong(f"{self.doing} ended with {state}: {text}")
            return True

    @staticmethod
    def told(e):
        diag = getattr(e, "diag", None)
        parts = (str(e), getattr(diag, "message_detail", None), getattr(diag, "message_hint", None))
        return " | ".join(dict.fromkeys(p.strip() for p in parts if p))

    def final(self, state, text, began):
        """Whether a fault that must be refused explains an error."""
        # a version that was told wrongly is kept with a shard's index until it is looked at again
        return any(at > began - 60 and state in FINAL[name] and path.split("/", 2)[2] in text for at, path, name in self.soak.origin.ask("report")["final"])

    # ---- helpers ----

    def array(self):
        return self.random.choice(self.soak.arrays)

    def rows(self, array, sql):
        """Rows (origin, value) of a query; compares each."""
        with self.c.cursor(binary=True) as cursor:
            rows = cursor.execute(sql).fetchall()
        return self.compare(array, rows)

    def compare(self, array, rows):
        for origin, value in rows:
            want = array.blocks[array.origins.index(tuple(origin))]
            self.count["bytes"] += array.check(tensorbank.from_npy(bytes(value)), want, f"block at {origin}")
            self.count["blocks"] += 1
        return len(rows)

    @staticmethod
    def select(array, rest=""):
        return f"SELECT tensorbank.origin({array.column}), tensorbank.read({array.column}) FROM {array.table} {rest}"

    def expect(self, got, want, what):
        if got != want:
            raise Wrong(f"{what}: {got} instead of {want}")

    # ---- statements ----

    def corners(self, array):
        ones = "{" + ",".join("1" * array.data.ndim) + "}"
        zeros = ones.replace("1", "0")
        rows = self.c.execute(f"SELECT tensorbank.read(tensorbank.crop({array.column}, '{zeros}', '{ones}')) FROM {array.table}").fetchall()
        self.expect(len(rows), len(array.blocks), "corners")

    def block(self):
        array = self.array()
        self.expect(self.rows(array, self.select(array, f"WHERE block = {self.random.randrange(len(array.blocks))}")), 1, "rows of a block")

    def some_rows(self):
        array = self.array()
        first = self.random.randrange(len(array.blocks))
        last = min(first + self.random.randrange(1, 24), len(array.blocks) - 1)
        self.expect(self.rows(array, self.select(array, f"WHERE block BETWEEN {first} AND {last}")), last - first + 1, "rows of some blocks")

    def whole(self):
        array = self.array()
        if self.random.random() < 0.5:
            self.expect(self.rows(array, self.select(array)), len(array.blocks), "rows of all blocks")
            return
        with self.c.cursor(binary=True) as cursor:
            (value,) = cursor.execute(f"SELECT tensorbank.read(tensorbank.ref('{array.table}', '{array.column}'))").fetchone()
        self.count["bytes"] += array.check(tensorbank.from_npy(bytes(value)), array.data, "the whole")

    def region(self):
        array = self.array()
        start = [self.random.randrange(n) for n in array.data.shape]
        shape = [self.random.randrange(1, min(n - s, 2 * c) + 1) for n, s, c in zip(array.data.shape, start, array.chunk)]
        with self.c.cursor(binary=True) as cursor:
            (value,) = cursor.execute(f"SELECT tensorbank.read(tensorbank.crop(tensorbank.ref('{array.table}', '{array.column}'), %s, %s))",
                                      (start, shape)).fetchone()
        self.count["bytes"] += array.check(tensorbank.from_npy(bytes(value)), array.part(start, shape), f"region {start} {shape}")

    def aggregate(self):
        array = self.array()
        first = self.random.randrange(len(array.blocks))
        last = min(first + 15, len(array.blocks) - 1)
        got = self.c.execute(
            f"SELECT count(*), sum((s).valid)::bigint, max((s).max) FROM (SELECT tensorbank.stats(tensorbank.read({array.column})) AS s"
            f" FROM {array.table} WHERE block BETWEEN {first} AND {last}) AS x").fetchone()
        want = (last - first + 1, sum(array.valid[first:last + 1]), max(array.most[first:last + 1]))
        self.expect(got, want, f"aggregates of {array.table}.{array.column}")

    def few(self):
        array, n = self.array(), self.random.randrange(1, 4)
        self.expect(self.rows(array, self.select(array, f"LIMIT {n} OFFSET {self.random.randrange(4)}")), n, "rows under a limit")

    def cursor(self):
        array = self.array()
        with self.c.transaction(), self.c.cursor("soak", binary=True) as cursor:
            cursor.execute(self.select(array))
            for _ in range(self.random.randrange(1, 4)):
                self.compare(array, cursor.fetchmany(self.random.randrange(1, 6)))

    def by_statistics(self):
        array = self.soak.indexed
        bound = self.random.choice(array.most)
        got = [b for b, in self.c.execute(f"SELECT block FROM {array.table} WHERE {array.column}_max > %s ORDER BY block", (bound,))]
        self.expect(got, [i for i, m in enumerate(array.most) if m > bound], "blocks by statistics")

    def union(self):
        arrays = [self.array() for _ in range(3)]
        n = self.random.randrange(2, 9)
        got = self.c.execute(" UNION ALL ".join(
            f"SELECT count(*), sum((tensorbank.stats(tensorbank.read({a.column}))).valid)::bigint FROM {a.table} WHERE block < {n}" for a in arrays)).fetchall()
        self.expect(sorted(got), sorted((len(a.valid[:n]), sum(a.valid[:n])) for a in arrays), "counts of several tables")

    def explain(self):
        array = self.array()
        plan = self.c.execute(f"EXPLAIN (ANALYZE, VERBOSE) {self.select(array, 'WHERE block < 4')}").fetchall()
        if "Foreign Scan" not in str(plan):
            raise Wrong(f"a plan without a scan: {plan}")

    def metadata(self):
        array = self.array()
        (n,) = self.c.execute(f"SELECT count(*) FROM {array.table}").fetchone()
        self.expect(n, len(array.blocks), "count")
        chunks = self.c.execute(f"SELECT count(*) FROM {array.table}, LATERAL tensorbank.location({array.column}) WHERE block < 3").fetchone()
        self.expect(chunks, (3,), "places of chunks")
        self.c.execute("SELECT * FROM tensorbank.describe(%s::regclass)", (array.table,)).fetchall()
        if self.random.random() < 0.3:
            # forgets what it knows of metadata
            self.c.execute("SET tensorbank.metadata_max_age = 0")
            self.c.execute(f"SELECT count(*) FROM {array.table}").fetchall()
            self.c.execute("RESET tensorbank.metadata_max_age")

    def copy(self):
        array = self.array()
        n = self.random.randrange(1, 9)
        with self.c.cursor() as cursor, cursor.copy(f"COPY (SELECT block, tensorbank.npy(tensorbank.read({array.column})) FROM {array.table}"
                                                    f" WHERE block < {n}) TO STDOUT (FORMAT binary)") as data:
            data.set_types(["int8", "bytea"])
            rows = list(data.rows())
        self.expect(len(rows), n, "copied rows")
        self.compare(array, [(array.origins[b], v) for b, v in rows])

    def stream(self):
        name, arrays = self.random.choice(list(self.soak.datasets.items()))
        batches = tensorbank.dataset(self.database.dsn(), dataset=name, batch_size=self.random.randrange(1, 9), shuffle=self.random.choice(["none", "full"]),
                                     seed=self.random.randrange(100), tail="ragged", output="numpy", rank=0, world_size=1)
        seen = []
        # some stop in the middle
        most = self.random.choice([3, 10, 1000])
        for number, batch in enumerate(batches):
            blocks = [int(b) for b in batch.block]
            for array in arrays:
                values = getattr(batch, array.column)
                for k, b in enumerate(blocks):
                    self.count["bytes"] += array.check(np.asarray(values[k]), array.blocks[b], f"block {b} of a stream")
                    self.count["blocks"] += 1
            seen += blocks
            self.count["batches"] += 1
            if number >= most:
                break
        else:
            self.expect(sorted(seen), list(range(len(arrays[0].blocks))), "samples of a stream")
        if len(set(seen)) != len(seen):
            raise Wrong("a stream gave a sample twice")

    # ---- statements that end early ----

    def canceled(self):
        pid = self.c.info.backend_pid
        timer = threading.Timer(self.random.random() ** 2 * 0.3, self.database.cancel, (pid,))
        timer.start()
        try:
            self.random.choice([self.whole, self.some_rows, self.aggregate, self.region, self.cursor, self.union, self.copy])()
        finally:
            timer.join()
            self.settle()

    def settle(self):
        """A cancel that came late may hit the next statement: one that does not count."""
        try:
            self.c.execute("SELECT pg_sleep(0.005)")
        except psycopg.errors.QueryCanceled:
            pass

    def timed_out(self):
        self.c.execute(f"SET statement_timeout = {self.random.randrange(1, 80)}")
        try:
            self.random.choice([self.whole, self.some_rows, self.aggregate, self.region])()
        finally:
            for _ in range(3):
                try:
                    self.c.execute("SET statement_timeout = '90s'")
                    break
                except psycopg.errors.QueryCanceled:
                    pass
