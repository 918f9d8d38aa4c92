"""What a training loop gets."""

import numpy as np


class Batch:
    """One batch: a column an attribute (and an item), `state` to resume after it, `number`, `padded`.

    Tensor columns have the samples on their first axis and are views of the stream's ring: the slot goes back to the streamer
    when the batch and everything made from its arrays without a copy are gone.
    """

    def __init__(self, message, columns):
        self._columns = columns
        self.state = message["state"]
        self.number = message["batch"]
        self.padded = message.get("padded", 0)
        self._samples = message.get("samples", 0)

    def __getattr__(self, name):
        # only what __init__ did not set comes here
        columns = self.__dict__.get("_columns", {})
        if name in columns:
            return columns[name]
        raise AttributeError(f"the batch has no column {name!r}; it has {', '.join(columns) or 'none'}")

    def __getitem__(self, name):
        return self._columns[name]

    def __contains__(self, name):
        return name in self._columns

    def __len__(self):
        return self._samples

    def keys(self):
        return self._columns.keys()

    def items(self):
        return self._columns.items()

    def __repr__(self):
        parts = ", ".join(f"{k}: {getattr(v, 'dtype', 'list')}{list(getattr(v, 'shape', [len(v)]))}"
                          for k, v in self._columns.items())
        return f"<Batch {self.number}: {parts}>"


def scalar_array(values):
    """Scalars of a batch as an array where they are numbers without gaps, else the list as it came."""
    if any(v is None for v in values):
        return values
    if all(isinstance(v, bool) for v in values):
        return np.array(values, dtype=bool)
    if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return np.array(values, dtype=np.int64)
    special = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
    if all(isinstance(v, (int, float)) or v in special for v in values) and any(isinstance(v, float) for v in values):
        return np.array([special.get(v, v) for v in values], dtype=np.float64)
    return values


def make_batch(message, arrays, torch=None, copy=False):
    columns = {name: array.copy() if copy else array for name, array in arrays.items()}
    for name, values in message["scalars"].items():
        columns[name] = scalar_array(values)
    if torch is not None:
        columns = {name: torch.from_numpy(widen(value)) if isinstance(value, np.ndarray) else value
                   for name, value in columns.items()}
    return Batch(message, columns)


def widen(array):
    """torch 1.x has no uint16, uint32 and uint64: the next type that holds every value (uint64: int64, wrapping is refused)."""
    if array.dtype == np.uint16:
        return array.astype(np.int32)
    if array.dtype == np.uint32:
        return array.astype(np.int64)
    if array.dtype == np.uint64:
        if array.size and array.max() > np.iinfo(np.int64).max:
            raise OverflowError("uint64 values do not fit torch's int64: cast the column with tensorbank.as_type")
        return array.astype(np.int64)
    return array
