"""Writes the small stores that the SQL tests read. Run with zarr-python 3 and numpy; the result is committed.

weather.zarr    time 4 (hours), latitude 8 (descending, float32), longitude 10 (ascending, float64)
    t       float32, NaN at two places; values time * 1000 + latitude index * 10 + longitude index
    packed  int16, scale 0.1, offset 273, _FillValue -9999; one chunk was never written
    label   uint8
    coarse/ a group of its own: t2 sharded, latitude ascending every 20 degrees, longitude every 2
broken.zarr     x 8 in chunks of 2: chunk 0 is whole, 1 cut short, 2 no zstd at all, 3 fails its checksum
odd.zarr        x 6 with a coordinate that is not monotonic: v int64; and z without coordinate: w uint64
"""
import os
import shutil

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

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


def broken():
    path = os.path.join(HERE, "broken.zarr")
    shutil.rmtree(path, ignore_errors=True)
    root = zarr.create_group(path, zarr_format=3)
    root.create_array("v", shape=(8,), chunks=(2,), dtype="f4", fill_value=0, dimension_names=["x"],
                      compressors=[ZstdCodec(level=3), Crc32cCodec()])[...] = np.arange(8, dtype="f4")
    zarr.consolidate_metadata(path)

    def damage(number, change):
        name = os.path.join(path, "v", "c", str(number))
        with open(name, "rb") as file:
            data = file.read()
        with open(name, "wb") as file:
            file.write(change(data))

    damage(1, lambda data: data[:-5])
    damage(2, lambda data: b"not zstd" + crc32c(b"not zstd"))
    damage(3, lambda data: data[:-1] + bytes([data[-1] ^ 1]))


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "little")


weather()
odd()
broken()
