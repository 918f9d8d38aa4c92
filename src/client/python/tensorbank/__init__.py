"""Training loops fed from TensorBank for PostgreSQL.

    import tensorbank
    ds = tensorbank.dataset("dbname=weather", dataset="na_wind", batch_size=32, shuffle="full", seed=7)
    for batch in ds:
        train(batch.u10, batch.label)

`dataset` is the factory of iterable datasets (of torch's IterableDataset where torch is imported). Batches are
zero-copy views of memory that the server's streamer filled. `register` makes psycopg deliver tensors as numpy arrays.
"""

from ._batch import Batch
from ._dataset import dataset
from ._npy import from_npy, register
from ._wire import StreamError

__all__ = ["Batch", "StreamError", "dataset", "from_npy", "register"]
__version__ = "0.1.0"
