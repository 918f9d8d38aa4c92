"""Contestants in Python, each in a process of its own, so that imports and caches are its own; each times itself and prints one
JSON line. bench.py starts them: bench_python.py FUNCTION ARGUMENT...
"""

import json
import os
import resource
import sys
import time

import numpy as np

DIR = os.environ["TB_BENCH_DIR"]
STORES = f"{DIR}/stores"
HTTP = f"http://127.0.0.1:{os.environ['HTTP_PORT']}"
BLOCKS = int(os.environ.get("TB_BENCH_BLOCKS", "512"))
SIDE = 512


def cpu():
    return sum(getattr(resource.getrusage(who), field) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
               for field in ("ru_utime", "ru_stime"))


def server_cpu():
    """Seconds of CPU of the server, its backends and the streamer so far."""
    import psycopg

    with psycopg.connect("", autocommit=True) as connection:
        data = connection.execute("SHOW data_directory").fetchone()[0]
    with open(f"{data}/postmaster.pid") as pid_file:
        postmaster = int(pid_file.readline())
    ticks = 0
    parents = {}
    stats = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(pid)] = int(fields[1])
        # of the postmaster also what its ended children took
        stats[int(pid)] = sum(map(int, fields[11:15] if int(pid) == postmaster else fields[11:13]))
    for pid, used in stats.items():
        at = pid
        while at not in (0, 1, postmaster):
            at = parents.get(at, 0)
        if at == postmaster:
            ticks += used
    return ticks / os.sysconf("SC_CLK_TCK")


def timed(work, server=False):
    before = cpu() + (server_cpu() if server else 0)
    start = time.perf_counter()
    size, *more = work()
    seconds = time.perf_counter() - start
    used = cpu() + (server_cpu() if server else 0) - before
    print(json.dumps({"bytes": size, "seconds": seconds, "cpu": used, **(more[0] if more else {})}))


def zarr_http(name):
    import zarr
    from zarr.storage import FsspecStore

    zarr.config.set({"async.concurrency": 32})
    array = zarr.open_array(FsspecStore.from_url(f"{HTTP}/{name}.zarr/t"), mode="r")
    timed(lambda: (array[...].nbytes,))


def zarr_local(name):
    import zarr

    array = zarr.open_array(f"{STORES}/{name}.zarr/t", mode="r")
    timed(lambda: (array[...].nbytes,))


def tensorstore_all(name, base=HTTP):
    """TensorStore into two buffers that are touched before the clock, 32 requests under way."""
    import tensorstore as ts

    step = 8
    buffers = [np.ones((step, SIDE, SIDE), np.int16 if name == "pack" else np.float32) for _ in range(8)]

    def work():
        context = ts.Context({"cache_pool": {"total_bytes_limit": 0}, "data_copy_concurrency": {"limit": 2},
                              "http_request_concurrency": {"limit": 64}})
        array = ts.open({"driver": "zarr" if name == "lz4" else "zarr3",
                         "kvstore": {"driver": "http", "base_url": f"{base}/{name}.zarr/t/"}},
                        context=context, open=True, read=True, recheck_cached_data="open").result()
        running = []
        size = 0
        for n, start in enumerate(range(0, BLOCKS, step)):
            if len(running) == len(buffers):
                future, buffer = running.pop(0)
                future.result()
                size += buffer.nbytes
            buffer = buffers[n % len(buffers)]
            running.append((ts.array(buffer).write(array[start : start + step]), buffer))
        for future, buffer in running:
            future.result()
            size += buffer.nbytes
        return (size * 2 if name == "pack" else size,)

    timed(work)


def stream(name, server, shuffle="none", condition="true"):
    """Out of band: every batch is mapped; the clock runs from the query to the last batch, the streamer is warm."""
    import tensorbank

    def open_stream(condition):
        return tensorbank.dataset("", f"SELECT t FROM {server}_{name}.{name} WHERE {condition}", batch_size=8, shuffle=shuffle, seed=3,
                                  tail="ragged", output="numpy")

    for _ in open_stream("block < 8"):
        pass

    def work():
        size = 0
        first = None
        start = time.perf_counter()
        for batch in open_stream(condition):
            first = first or time.perf_counter() - start
            size += batch.t.nbytes
        return size, {"first": first}

    timed(work, server=True)


def sql_read(name, server, settings=""):
    import psycopg

    import tensorbank

    with psycopg.connect("", autocommit=True) as connection:
        tensorbank.register(connection)
        for setting in filter(None, settings.split(",")):
            connection.execute(f"SET {setting}")

        def work():
            size = 0
            with connection.cursor(binary=True) as cursor:
                for (array,) in cursor.stream(f"SELECT tensorbank.read(t) FROM {server}_{name}.{name}"):
                    size += array.nbytes
            return (size,)

        timed(work, server=True)


def sql_copy(query):
    """COPY in binary, the messages thrown away as they come."""
    import psycopg

    with psycopg.connect("", autocommit=True) as connection:

        def work():
            size = 0
            with connection.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT binary)") as copy:
                for message in copy:
                    size += len(message)
            return (size,)

        timed(work, server=True)


def sql_bytea():
    """The same number of bytes from PostgreSQL's own storage, uncompressed: what the transport and the client cost."""
    import psycopg

    with psycopg.connect("", autocommit=True) as connection:

        def work():
            size = 0
            with connection.cursor(binary=True) as cursor:
                for (value,) in cursor.stream("SELECT v FROM own_bytea"):
                    size += len(value)
            return (size,)

        timed(work, server=True)


def torch_tensorbank(name):
    import torch

    import tensorbank

    data = tensorbank.dataset("", dataset=f"all_{name}", batch_size=8, shuffle="full", seed=3)

    def work():
        size = 0
        for batch in data:
            size += batch.t.numel() * 4
            float(batch.t[:, 0, 0, 0].sum())
        return (size,)

    torch.set_num_threads(1)
    timed(work, server=True)


class ZarrMap:
    """What people write by hand: one item a block, shuffled by the DataLoader."""

    def __init__(self, url):
        self.url = url
        self.array = None

    def __len__(self):
        return BLOCKS

    def __getitem__(self, i):
        if self.array is None:
            import zarr
            from zarr.storage import FsspecStore

            self.array = zarr.open_array(FsspecStore.from_url(self.url), mode="r")
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
        return (size,)

    timed(work)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
