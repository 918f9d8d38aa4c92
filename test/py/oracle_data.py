"""Random stores for the oracle, and what numpy says of their blocks.

Nothing here asks the extension for anything: blocks, bounds and statistics follow from the arrays that were written.
"""

import datetime
import math

import numpy as np
import zarr

import zarrs

DTYPES = ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class Variable:
    """An array as it was written: packed values, what masks them, and how they decode."""

    def __init__(self, name, packed, sentinels=(), scale=None, offset=None):
        self.name = name
        self.packed = packed
        self.sentinels = sentinels
        self.scale = scale
        self.offset = offset

    @property
    def missing(self):
        found = np.zeros(self.packed.shape, dtype=bool)
        for sentinel in self.sentinels:
            same = self.packed == sentinel
            if self.packed.dtype.kind == "f" and np.isnan(sentinel):
                same = np.isnan(self.packed)
            found |= same
        return found

    @property
    def decoded_type(self):
        """xarray's rule for attributes that are JSON numbers (Python floats)."""
        d = self.packed.dtype
        if self.scale is not None or self.offset is not None:
            return np.dtype("f8")
        if not self.sentinels or d.kind == "b":
            return d
        if d.kind == "f":
            return d
        return np.dtype("f4") if d.itemsize <= 2 else np.dtype("f8")

    @property
    def decoded(self):
        """What xarray gives, masked elements as NaN where the type has it."""
        target = self.decoded_type
        with np.errstate(all="ignore"):
            values = self.packed.astype(target)
            if self.scale is not None:
                values = values * target.type(self.scale)
            if self.offset is not None:
                values = values + target.type(self.offset)
        if target.kind == "f":
            values = np.where(self.missing, target.type(np.nan), values)
        return values


class Axis:
    def __init__(self, name, size):
        self.name = name
        self.size = size
        self.values = None      # None: no coordinate, bounds are indexes
        self.attributes = {}
        self.kind = "index"     # index, int, float, time

    def decoded(self, values):
        """Coordinate values as PostgreSQL's columns have them."""
        if self.kind == "time":
            unit = {"days": 86400, "hours": 3600, "seconds": 1}[self.attributes["units"].split()[0]]
            base = datetime.datetime.fromisoformat(self.attributes["units"].split("since ")[1]).replace(
                tzinfo=datetime.timezone.utc)
            return [base + datetime.timedelta(seconds=float(v) * unit) for v in values]
        if self.kind == "float":
            return [float(v) for v in values]
        return [int(v) for v in values]


def random_axis(random, name, size):
    axis = Axis(name, size)
    kind = random.choice(["index", "int", "float", "time", "float"])
    axis.kind = kind
    if kind == "index":
        return axis
    if kind == "time":
        steps = np.arange(size, dtype=random.choice(["i4", "i8", "f8"])) * int(random.integers(1, 40))
        if steps.dtype.kind == "f":
            steps = steps * 0.125
        axis.attributes = {"units": f"{random.choice(['days', 'hours', 'seconds'])} since {random.choice(['1990-01-01', '2001-02-03', '1970-01-01 12:00:00'])}",
                           "calendar": str(random.choice(["standard", "gregorian", "proleptic_gregorian"]))}
    elif kind == "int":
        steps = (np.arange(size) * int(random.integers(1, 5)) - int(random.integers(0, 50))).astype(
            random.choice(["i2", "i4", "i8"]))
    else:
        steps = (np.linspace(-90, 90, size) + random.random()).astype(random.choice(["f4", "f8"]))
    shape = random.choice(["up", "down", "mixed"], p=[0.5, 0.3, 0.2])
    if shape == "down":
        steps = steps[::-1].copy()
    elif shape == "mixed":
        random.shuffle(steps)
    if kind == "float" and random.random() < 0.3:
        steps[random.integers(0, size)] = np.nan
    axis.values = steps
    return axis


def extremes(dtype):
    if dtype.kind == "b":
        return [False, True]
    if dtype.kind == "f":
        return [np.inf, -np.inf, -0.0, 0.0, (1e150 if dtype.itemsize == 8 else np.finfo(dtype).max), np.finfo(dtype).tiny, np.nan]
    info = np.iinfo(dtype)
    return [info.min, info.max, 0]


def random_values(random, dtype, shape, chunks):
    """Values with a level per chunk, so that predicates tell blocks apart; some chunks constant, some extreme."""
    grid = np.meshgrid(*(np.arange(n) // c for n, c in zip(shape, chunks)), indexing="ij")
    level = sum(g * int(random.integers(1, 30)) for g in grid)
    if dtype.kind == "b":
        values = (random.random(shape) < (level % 5) / 4)
        return values.astype(dtype)
    noise = random.random(shape) * float(random.choice([0, 1, 10]))
    with np.errstate(all="ignore"):
        values = (level + noise - (10 if dtype.kind != "u" else 0)).astype("f8")
        values = np.clip(values, 0, 255) if dtype.itemsize == 1 and dtype.kind == "u" else values
        values = np.clip(values, -128, 127) if dtype.itemsize == 1 and dtype.kind == "i" else values
        values = values.astype(dtype)
    if dtype.itemsize == 8 and dtype.kind in "iu" and random.random() < 0.6:
        # beyond what a double can tell apart
        values = values + dtype.type(2**62 + 1)
    for value in extremes(dtype):
        if random.random() < 0.5:
            where = tuple(int(random.integers(0, n)) for n in shape)
            values[where] = value
    return values


def random_variable(random, name, dtype, shape, chunks):
    dtype = np.dtype(dtype)
    values = random_values(random, dtype, shape, chunks)
    variable = Variable(name, values)
    if dtype.kind in "iu" and random.random() < 0.5:
        sentinel = dtype.type(random.choice([-99, -1, 0]) if dtype.kind == "i" else random.choice([0, 255]))
        variable.sentinels = (sentinel,)
        if random.random() < 0.6 and dtype.itemsize <= 4:
            variable.scale = float(random.choice([0.1, 0.5, -2.0, 0.01]))
            variable.offset = float(random.choice([0.0, 273.15, -5.0]))
    elif dtype.kind == "f" and random.random() < 0.5:
        variable.sentinels = (dtype.type(random.choice([-9999.0, 1e4])),)
    # chunks of nothing but one value: missing, NaN, or never written
    for corner in np.ndindex(*(-(-n // c) for n, c in zip(shape, chunks))):
        part = tuple(slice(k * c, (k + 1) * c) for k, c in zip(corner, chunks))
        dice = random.random()
        if variable.sentinels and dice < 0.1:
            values[part] = variable.sentinels[0]
        elif dtype.kind == "f" and dice < 0.2:
            values[part] = np.nan
        elif dice < 0.3:
            values[part] = 0
    if variable.sentinels:
        values[random.random(shape) < 0.05] = variable.sentinels[0]
    return variable


class Store:
    """One random store: axes, variables, the shape of blocks."""

    def __init__(self, path, seed, dtypes, shape=None, chunks=None, shards=None, zarr_format=None):
        random = np.random.default_rng(seed)
        self.path = path
        self.random = random
        ndim = len(shape) if shape else int(random.integers(1, 5))
        if shape is None:
            shape = tuple(int(random.integers(*((20, 60), (8, 24), (5, 14), (3, 8))[ndim - 1])) for _ in range(ndim))
            chunks = tuple(int(random.integers(2, max(3, n // 2))) for n in shape)
        self.shape, self.chunks = shape, chunks
        self.axes = [random_axis(random, f"d{k}", n) for k, n in enumerate(shape)]
        self.variables = [random_variable(random, f"v{k}", d, shape, chunks) for k, d in enumerate(dtypes)]
        self.write(random, shards, zarr_format or int(random.choice([2, 3])))

    def write(self, random, shards, zarr_format):
        root = zarrs.group(self.path, zarr_format)
        dims = [a.name for a in self.axes]
        for axis in self.axes:
            if axis.values is not None:
                fill = None if zarr_format == 2 else 0
                zarrs.put(root, axis.name, axis.values, dims=[axis.name], fill=fill, attributes=axis.attributes)
        for variable in self.variables:
            attributes = {}
            if variable.sentinels:
                attributes["_FillValue"] = variable.sentinels[0].item()
            if variable.scale is not None:
                attributes.update(scale_factor=variable.scale, add_offset=variable.offset)
            dtype = variable.packed.dtype
            fill = dtype.type(0)
            if variable.sentinels and random.random() < 0.5:
                fill = variable.sentinels[0]
            elif dtype.kind == "f" and random.random() < 0.5 and zarr_format == 3:
                fill = dtype.type(np.nan)
            outer = None
            if shards is None and zarr_format == 3 and random.random() < 0.5:
                outer = tuple(c * int(random.integers(1, 4)) for c in self.chunks)
            elif zarr_format == 3:
                outer = shards
            more = {}
            if zarr_format == 2:
                more["order"] = str(random.choice(["C", "F"]))
            elif random.random() < 0.6:
                more["compressors"] = [random.choice([zarr.codecs.ZstdCodec(), zarr.codecs.GzipCodec(),
                                                      zarr.codecs.BloscCodec(cname="lz4")])]
            zarrs.put(root, variable.name, variable.packed, self.chunks, dims, fill, outer, attributes, **more)

    # ---- numpy's answers ----

    def bounds(self, axis, start, stop):
        if axis.values is None:
            return start, stop - 1
        part = axis.values[start:stop]
        part = part[~np.isnan(part)] if part.dtype.kind == "f" else part
        if not part.size:
            return None, None
        return axis.decoded([part.min()])[0], axis.decoded([part.max()])[0]

    @staticmethod
    def statistics(variable, part):
        """min, max, mean, std, valid, nan, missing of a block."""
        masked = variable.missing[part]
        # what is masked but not scaled keeps its integers exact
        values = (variable.packed if variable.scale is None else variable.decoded)[part]
        nan = np.isnan(values) & ~masked if values.dtype.kind == "f" else np.zeros(values.shape, dtype=bool)
        good = values[~(masked | nan)]
        counts = [int(good.size), int(nan.sum()), int(masked.sum())]
        if not good.size:
            return [None] * 4 + counts
        low, high = good.min().item(), good.max().item()
        with np.errstate(all="ignore"):
            wide = [int(v) for v in good.ravel()] if good.dtype.kind in "iub" else [float(v) for v in good.ravel()]
            if all(math.isfinite(v) for v in wide):
                mean = math.fsum(wide) / len(wide)
                try:
                    std = math.sqrt(math.fsum((v - mean) ** 2 for v in wide) / len(wide))
                except OverflowError:
                    std = math.inf
            else:
                # as IEEE has it: NaN where both infinities are
                mean, std = float(np.mean(good.astype("f8"))), None
        return [low, high, mean, std] + counts
