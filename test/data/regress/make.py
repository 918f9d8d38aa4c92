"""Writes the small stores that the SQL tests read. Run with zarr-python 3 and numpy; the result is committed.

weather.zarr    time 4 (hours), latitude 8 (descending, float32), longitude 10 (ascending, float64)
    t       float32, NaN at two places; values time * 1000 + latitude index * 10 + longitude index
    packed  int16, scale 0.1, offset 273, _FillValue -9999; one chunk was never written
    label   uint8
    coarse/ a group of its own: t2 sharded, latitude ascending every 20 degrees, longitude every 2
odd.zarr        x 6 with a coordinate that is not monotonic: v int64; and z without coordinate: w uint64
"""
import os
import shutil

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

HERE = os.path.dirname(os.path.abspath(__file__))


def array(group, name, data, chunks, dims, shards=None, fill=0, **attributes):
    made = group.create_array(name, shape=data.shape, chunks=chunks, shards=shards, dtype=data.dtype, fill_value=fill,
                              dimension_names=dims, compressors=[ZstdCodec(level=3)], attributes=attributes)
    made[...] = data
    return made


def weather():
    path = os.path.join(HERE, "weather.zarr")
    shutil.rmtree(path, ignore_errors=True)
    root = zarr.create_group(path, zarr_format=3)
    dims = ["time", "latitude", "longitude"]
    array(root, "time", np.arange(0, 24, 6, dtype="i4"), (4,), dims[:1], units="hours since 2020-01-01", calendar="standard")
    array(root, "latitude", np.linspace(70.1, 0.1, 8, dtype="f4"), (8,), dims[1:2], units="degrees_north")
    array(root, "longitude", np.arange(-10.0, 10.0, 2.0), (10,), dims[2:], units="degrees_east")
    k, j, i = np.meshgrid(np.arange(4), np.arange(8), np.arange(10), indexing="ij")
    t = (k * 1000 + j * 10 + i).astype("f4")
    t[0, 0, 3] = t[1, 5, 5] = np.nan
    array(root, "t", t, (1, 4, 5), dims, fill=float("nan"), units="K", long_name="temperature")
    packed = (k * 100 + j * 10 + i).astype("i2")
    packed[0, 0, 0] = -9999
    packed[3, 4:, 5:] = -9999
    array(root, "packed", packed, (1, 4, 5), dims, fill=-9999, scale_factor=0.1, add_offset=273.0, _FillValue=-9999)
    array(root, "label", ((k + j + i) % 4).astype("u1"), (1, 4, 5), dims)
    coarse = root.create_group("coarse")
    array(coarse, "latitude", np.linspace(0.1, 60.1, 4, dtype="f4"), (4,), dims[1:2], units="degrees_north")
    array(coarse, "longitude", np.arange(-10.0, 10.0, 4.0), (5,), dims[2:], units="degrees_east")
    array(coarse, "t2", np.arange(20, dtype="f8").reshape(4, 5), (2, 3), dims[1:], shards=(4, 6))
    zarr.consolidate_metadata(path)


def odd():
    path = os.path.join(HERE, "odd.zarr")
    shutil.rmtree(path, ignore_errors=True)
    root = zarr.create_group(path, zarr_format=3)
    array(root, "x", np.array([0.0, 2.0, 1.0, 5.0, 5.0, 9.0]), (6,), ["x"])
    array(root, "v", np.array([2**53 + 1, -5, 3, 4, 5, 6], dtype="i8"), (3,), ["x"])
    array(root, "w", np.array([2**64 - 1, 1, 2, 3], dtype="u8"), (2,), ["z"])
    zarr.consolidate_metadata(path)


weather()
odd()
