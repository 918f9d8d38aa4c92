"""The benchmark's stores: smooth float32 fields in seven layouts, and for each the plain reader's list of ranges."""

import json
import os
import subprocess

import numpy as np
import zarr

SIDE = 512  # a block is 1 x 512 x 512 float32: 1 MiB
SMALL = 64  # a small one 1 x 64 x 64: 16 KiB
PER_SHARD = 64
LAYOUTS = ("raw", "raw8", "zstd", "shards", "lz4", "pack", "small")


def fields(n):
    """n steps of a field with a power-law spectrum that drifts, to 1/256 as packed archives have it."""
    rng = np.random.default_rng(1)
    ky = np.fft.fftfreq(SIDE)[:, None] * SIDE
    kx = np.fft.rfftfreq(SIDE)[None, :] * SIDE
    k = np.hypot(ky, kx)
    k[0, 0] = np.inf
    layers = []
    for _ in range(3):
        wave = (rng.standard_normal(k.shape) + 1j * rng.standard_normal(k.shape)) * k**-2.2 * np.exp(-((k / 200) ** 2))
        layer = np.fft.irfft2(wave, s=(SIDE, SIDE))
        layers.append(layer / layer.std())
    for step in range(n):
        field = 280 + 6 * np.roll(layers[0], 3 * step, 1) + 4 * np.roll(layers[1], -step, 0) + 2 * np.roll(layers[2], 5 * step, 1)
        yield (np.round(field * 256) / 256).astype(np.float32)


def create(path, name, blocks):
    zstd = (zarr.codecs.ZstdCodec(level=3),)
    shape = (blocks, SIDE, SIDE)
    if name == "lz4":
        from numcodecs import Blosc

        return zarr.create_group(path, zarr_format=2, overwrite=True).create_array(
            "t", shape=shape, dtype="float32", chunks=(1, SIDE, SIDE),
            compressors=Blosc(cname="lz4", clevel=5, shuffle=Blosc.SHUFFLE),
            attributes={"_ARRAY_DIMENSIONS": ["time", "y", "x"]})
    options = {
        "raw": ((1, SIDE, SIDE), None, None), "raw8": ((8, SIDE, SIDE), None, None), "zstd": ((1, SIDE, SIDE), None, zstd),
        "shards": ((1, SIDE, SIDE), (PER_SHARD, SIDE, SIDE), zstd), "pack": ((1, SIDE, SIDE), None, zstd),
        "small": ((1, SMALL, SMALL), (16, SIDE, SIDE), zstd)}
    chunks, shards, compressors = options[name]
    attributes = {"scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768} if name == "pack" else {}
    return zarr.create_group(path, zarr_format=3, overwrite=True).create_array(
        "t", shape=shape, dtype="int16" if name == "pack" else "float32", chunks=chunks, shards=shards,
        compressors=compressors, dimension_names=("time", "y", "x"), attributes=attributes)


def make_store(stores, name, blocks):
    path = f"{stores}/{name}.zarr"
    marker = f"{path}/.ready-2-{blocks}"
    if os.path.exists(marker):
        return
    array = create(path, name, blocks)
    held = []
    for i, field in enumerate(fields(blocks)):
        held.append(field)
        if len(held) == PER_SHARD or i == blocks - 1:
            data = np.stack(held)
            if name == "pack":
                data = np.round((data - 280) / 0.01).astype(np.int16)
            array[i + 1 - len(held) : i + 1] = data
            held = []
    zarr.consolidate_metadata(path)  # over HTTP nothing can be listed
    open(marker, "w").close()
    subprocess.run(["chmod", "-R", "a+rwX", path], check=True)


def shard_ranges(path, n):
    with open(path, "rb") as shard:
        shard.seek(-(n * 16 + 4), 2)
        return np.frombuffer(shard.read(n * 16), dtype="<u8").reshape(n, 2)


def make_list(stores, name, blocks, path):
    """Lines of test/bench/plain.c, in the order of the array's chunks."""
    root = f"{stores}/{name}.zarr/t"
    codec = {"raw": "raw", "raw8": "raw", "lz4": "blosc", "pack": "pack"}.get(name, "zstd")
    with open(path, "w") as out:
        if name == "small":
            side = SIDE // SMALL
            ranges = {}
            for i in range(blocks):
                for y in range(side):
                    for x in range(side):
                        shard = i // 16
                        if shard not in ranges:
                            ranges = {shard: shard_ranges(f"{root}/c/{shard}/0/0", 16 * side * side)}
                        offset, length = ranges[shard][((i % 16) * side + y) * side + x]
                        print(f"{name}.zarr/t/c/{shard}/0/0 {offset} {length} {SMALL * SMALL * 4} {codec}", file=out)
            return
        step = 8 if name == "raw8" else 1
        for i in range(0, blocks, step):
            decoded = step * SIDE * SIDE * 4
            if name == "shards":
                offset, length = shard_ranges(f"{root}/c/{i // PER_SHARD}/0/0", PER_SHARD)[i % PER_SHARD]
                print(f"{name}.zarr/t/c/{i // PER_SHARD}/0/0 {offset} {length} {decoded} {codec}", file=out)
                continue
            key = f"{name}.zarr/t/{i}.0.0" if name == "lz4" else f"{name}.zarr/t/c/{i // step}/0/0"
            print(f"{key} 0 {os.path.getsize(f'{stores}/{key}')} {decoded} {codec}", file=out)


def describe(stores, names):
    """Stored MiB of each layout."""
    sizes = {}
    for name in names:
        size = subprocess.run(["du", "-sk", "--apparent-size", f"{stores}/{name}.zarr"], capture_output=True, text=True, check=True).stdout
        sizes[name] = int(size.split()[0]) / 1024
    return json.dumps({name: round(size) for name, size in sizes.items()})
