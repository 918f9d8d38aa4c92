"""Stores for the tests, written with zarr-python; small arrays of known values."""

import warnings

import numpy as np
import zarr

warnings.filterwarnings("ignore")


def put(group, name, data, chunks=None, dims=None, fill=0, shards=None, attributes=None, **more):
    """An array of a version 3 or version 2 group; chunks that equal the fill value are not written."""
    attributes = dict(attributes or {})
    if group.metadata.zarr_format == 2:
        if dims is not None:
            attributes["_ARRAY_DIMENSIONS"] = list(dims)
        array = group.create_array(name, shape=data.shape, dtype=data.dtype, chunks=chunks or data.shape, fill_value=fill,
                                   attributes=attributes, config={"write_empty_chunks": False}, **more)
    else:
        array = group.create_array(name, shape=data.shape, dtype=data.dtype, chunks=chunks or data.shape, shards=shards,
                                   fill_value=fill, dimension_names=dims, attributes=attributes,
                                   config={"write_empty_chunks": False}, **more)
    if data.size:
        array[...] = data
    return array


def group(path, zarr_format=3):
    return zarr.create_group(str(path), zarr_format=zarr_format, overwrite=True)


def wind(path, time=6, lat=12, lon=16, chunks=(2, 4, 4), shards=None, zarr_format=3, seed=1, consolidated=True):
    """A grid (time, lat, lon) with CF time, descending latitude, float32 `t` with NaN and int16 `p`, packed, with a sentinel."""
    random = np.random.default_rng(seed)
    root = group(path, zarr_format)
    dims = ("time", "lat", "lon")
    put(root, "time", np.arange(time, dtype="i4") * 6, dims=dims[:1],
        attributes={"units": "hours since 2020-01-01", "calendar": "standard"})
    put(root, "lat", np.linspace(60, -60, lat), dims=dims[1:2], attributes={"units": "degrees_north"})
    put(root, "lon", np.arange(lon, dtype="f4") * 2, dims=dims[2:], attributes={"units": "degrees_east"})
    # each block has its own level, so that predicates tell blocks apart
    k, j, i = np.meshgrid(*(np.arange(n) // c for n, c in zip((time, lat, lon), chunks)), indexing="ij")
    level = (k * 100 + j * 10 + i).astype("f4")
    t = (level + random.random((time, lat, lon)) * 5).astype("f4")
    t[0, 0, 0] = np.nan
    put(root, "t", t, chunks, dims, fill=float("nan"), shards=shards, attributes={"units": "K", "long_name": "temperature"})
    p = (level + 1).astype("i2")
    p[random.random(p.shape) < 0.1] = -9999
    put(root, "p", p, chunks, dims, fill=-9999, shards=shards,
        attributes={"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": -9999})
    if consolidated:
        zarr.consolidate_metadata(str(path))
    return t, p


def decoded(p):
    """The values of wind's packed array as xarray gives them: float64, since the attributes are Python floats."""
    return np.where(p == -9999, np.nan, p * 0.5 + 10.0)
