"""The dataset factory: a frozen query as an iterable of batches, the same on every rank and after every restart."""

import importlib.util
import os
import sys
import time
import warnings

from ._batch import make_batch
from ._wire import SocketStream, SqlStream, StreamError, StreamLost

#: Attempts to open a lost stream again before the error is the user's; progress sets the count back.
RECONNECTS = 6


def dataset(dsn, query=None, params=None, *, dataset=None, batch_size=1, shuffle="none", seed=0, epoch=0, rank=None,
            world_size=None, device="host", prefetch=4, tail="drop", state=None, transform=None, copy=False,
            output=None):
    """A dataset that streams batches.

    dsn         libpq connection string of the server
    query       a SELECT (frozen for this dataset alone), or dataset: the name of one made by tensorbank.create_dataset
    params      texts for $1, $2 ... of the query
    shuffle     "none" or "full"; seed and epoch choose the order, which is the same everywhere
    rank, world_size   default: torch.distributed, else RANK and WORLD_SIZE of the environment, else 0 of 1
    tail        "drop", "pad" or "ragged": what becomes of samples that do not fill a global batch
    state       of a batch handed out before: go on after it
    transform   called with each Batch; its result is what the loop gets
    copy        hand out copies, so that batches may be kept without holding slots
    output      "torch" or "numpy"; default: torch where it was imported before

    The result is a torch IterableDataset where output is torch: give it to DataLoader(ds, batch_size=None).
    """
    if (query is None) == (dataset is None):
        raise ValueError("give either a query or the name of a dataset")
    if output is None:
        output = "torch" if "torch" in sys.modules else "numpy"
    if output not in ("torch", "numpy"):
        raise ValueError("output must be \"torch\" or \"numpy\"")
    if output == "torch" and importlib.util.find_spec("torch") is None:
        raise ValueError("output is torch and torch is not installed")
    options = {"batch_size": batch_size, "shuffle": shuffle, "seed": seed, "epoch": epoch, "device": device,
               "prefetch": prefetch, "tail": tail}
    rank, world_size = find_rank(rank, world_size)
    options.update(rank=rank, world_size=world_size)
    if output == "torch":
        from ._torch import TorchDataset as cls
    else:
        cls = Dataset
    return cls(dsn, query, params, dataset, options, state, transform, copy)


def find_rank(rank, world_size):
    if rank is not None or world_size is not None:
        if rank is None or world_size is None:
            raise ValueError("give rank and world_size together")
        return rank, world_size
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Dataset:
    """See tensorbank.dataset. Holds no connection between iterations: it can be pickled and forked."""

    torch = None

    def __init__(self, dsn, query, params, name, options, state, transform, copy):
        self._dsn = dsn
        self._query = query
        self._params = list(params or [])
        self._name = name
        self._options = options
        self._start = state
        self._last = state
        self._transform = transform
        self._copy = copy
        self._length = None

    # ---- what training loops ask ----

    def __len__(self):
        """Batches of an epoch for this rank, exact (from a state: what is left)."""
        if self._length is None:
            with _Connection(self, self._start) as stream:
                self._length = stream.batches
        return self._length

    def set_epoch(self, epoch):
        """Another epoch's order, from its beginning."""
        self._options["epoch"] = epoch
        self._start = self._last = None
        self._length = None

    def state_dict(self):
        """Where the last batch handed out leaves off; plain data."""
        if self._owned_by_workers():
            raise RuntimeError("the batches were handed out in DataLoader worker processes, whose state this process does not "
                               "see: keep batch.state of the last batch instead, and give it as state=")
        return {"state": self._last, "epoch": self._options["epoch"]}

    def load_state_dict(self, state):
        self._options["epoch"] = state["epoch"]
        self._start = self._last = state["state"]
        self._length = None

    def __iter__(self):
        state = self._start
        attempts = 0
        begun = False
        worker, workers = self._workers()
        while True:
            try:
                with _Connection(self, state, worker, workers, again=begun) as stream:
                    if stream.batches == 0 and state is None and workers <= 1:
                        warnings.warn("the stream has no batch: the dataset is empty, or smaller than batch_size times "
                                      "world_size with tail=\"drop\"", stacklevel=2)
                    begun = True
                    for message, arrays in stream:
                        attempts = 0
                        batch = make_batch(message, arrays, self.torch, self._copy)
                        del arrays
                        state = self._last = batch.state
                        if workers > 1:
                            # after one of its own batches a worker's next is the last of the round
                            worker = workers - 1
                        yield batch if self._transform is None else self._transform(batch)
                        del batch
                break
            except StreamLost:
                # the streamer was restarted: the state is exact, so nothing is lost or seen twice
                attempts += 1
                if attempts > RECONNECTS:
                    raise
                time.sleep(min(0.1 * 2 ** attempts, 5))
        # the next iteration begins at the start of the epoch that is set
        self._start = None
        self._length = None

    # ---- for subclasses ----

    def _workers(self):
        """(worker, workers): which of the rank's batches this process takes; (0, 0): all."""
        return 0, 0

    def _owned_by_workers(self):
        return False


#: types of open_stream's arguments
TYPES = {"dataset": "text", "query": "text", "params": "text[]", "batch_size": "integer", "shuffle": "text", "seed": "bigint",
         "epoch": "bigint", "rank": "integer", "world_size": "integer", "device": "text", "prefetch": "integer", "tail": "text",
         "state": "text", "worker": "integer", "workers": "integer"}


class _Connection:
    """An open stream and the session it belongs to."""

    def __init__(self, owner, state, worker=0, workers=0, again=False):
        # again: what cannot be reached was there before, so it may come back
        self.again = again
        self.owner = owner
        self.state = state
        self.worker = worker
        self.workers = workers
        self.session = None
        self.stream = None
        self.batches = None

    def __enter__(self):
        import psycopg

        owner = self.owner
        try:
            self.session = psycopg.connect(owner._dsn, autocommit=True)
            arguments = {"dataset": owner._name, "query": owner._query, "state": self.state, **owner._options}
            if owner._query is not None:
                arguments["params"] = owner._params
            if self.workers > 1:
                arguments.update(worker=self.worker, workers=self.workers)
            # cast, so that a value of a wrong type meets the server's own hint and not "no such function"
            names = ", ".join(f"{name} => %({name})s::{TYPES[name]}" for name in arguments)
            row = self.session.execute(f"SELECT stream, socket, token, batches FROM tensorbank.open_stream({names})",
                                       arguments).fetchone()
            number, path, token, self.batches = row
            try:
                self.stream = SocketStream(path, token)
                self.stream.renew = lambda: self.session.execute("SELECT tensorbank.renew_stream(%s)", (number,))
            except (FileNotFoundError, ConnectionRefusedError, PermissionError):
                # another host, or a container without the socket: the same batches in band
                self.stream = SqlStream(self.session, number)
        except psycopg.Error as e:
            self.close()
            if e.sqlstate in ("57P03", "HV00B") or (e.sqlstate is None and self.again):
                raise StreamLost(str(e)) from e
            raise
        except BaseException:
            self.close()
            raise
        return self

    def __iter__(self):
        import psycopg

        while True:
            try:
                item = self.stream.next()
            except psycopg.Error as e:
                if e.sqlstate in ("57P03", "HV00B") or e.sqlstate is None:
                    raise StreamLost(str(e)) from e
                raise
            except StreamError as e:
                if e.code != "busy":
                    raise
                raise RuntimeError("every slot of the stream is held by batches that are still in use: drop them before "
                                   "the next, raise prefetch, or use copy=True") from e
            if item is None:
                return
            yield item
            del item

    def close(self):
        if self.stream is not None:
            self.stream.close()
        if self.session is not None:
            self.session.close()

    def __exit__(self, *_):
        self.close()
