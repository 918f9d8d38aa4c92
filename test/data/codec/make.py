"""Make the golden files of test/unit/test_blosc.c and test_codec.c: buffers as numcodecs writes them.

Run with a Python that has numcodecs:  python make.py  (writes blosc.pack and numcodecs.pack beside itself).

A pack is a list of records, all numbers little-endian 32-bit: length of the label, label, element size, decoded
bytes, seed, length of the encoded bytes, encoded bytes. The decoded bytes are not stored: `plain` below and
`gold_plain` in codec_help.h make the same from element size, length and seed.
"""

import pathlib
import struct

import numcodecs
from numcodecs import blosc

HERE = pathlib.Path(__file__).parent


def plain(element, length, seed):
    """A slow ramp with a little noise: what shuffles are good at, and not all the same byte."""
    out = bytearray()
    state = seed
    k = 0
    while len(out) < length:
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        value = seed * 1000 + k // 4 * 3 + (state >> 28 if k % 16 == 0 else 0)
        out += value.to_bytes(8, "little")[: min(element, 8)] + bytes(max(0, element - 8))
        k += 1
    return bytes(out[:length])


def noise(element, length, seed):
    """Bytes that no compressor makes smaller; seeds from 1000 on mean this."""
    out = bytearray()
    state = seed
    for _ in range(length):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(state >> 24)
    return bytes(out)


def record(label, element, length, seed, encode):
    data = (noise if seed >= 1000 else plain)(element, length, seed)
    encoded = bytes(encode(data))
    return (
        struct.pack("<I", len(label))
        + label.encode()
        + struct.pack("<IIII", element, length, seed, len(encoded))
        + encoded
    )


def blosc_record(cname, shuffle, element, length, seed, blocksize, level):
    label = f"{cname} shuffle {shuffle} element {element} bytes {length} block {blocksize} level {level} seed {seed}"
    return record(
        label,
        element,
        length,
        seed,
        lambda data: blosc.compress(data, cname.encode(), level, shuffle, blocksize, typesize=element),
    )


def blosc_pack():
    out = []
    for cname in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        for shuffle in (0, 1, 2):
            for element in (1, 2, 3, 4, 8, 16, 255):
                out.append(blosc_record(cname, shuffle, element, 5005, element, 2048, 5))
            out.append(blosc_record(cname, shuffle, 4, 100000, 7, 0, 5))    # blocks as the library likes
            out.append(blosc_record(cname, shuffle, 8, 40000, 9, 0, 1))
            out.append(blosc_record(cname, shuffle, 4, 3000, 1003, 1024, 5))  # streams that are stored
            out.append(blosc_record(cname, shuffle, 2, 60, 3, 0, 5))        # too small: the whole is stored
            out.append(blosc_record(cname, shuffle, 4, 1030, 5, 256, 9))    # the last block is 6 bytes
        out.append(blosc_record(cname, 1, 8, 4000, 4, 0, 0))                # level 0: stored
        out.append(blosc_record(cname, 1, 8, 1, 4, 0, 5))
    return b"".join(out)


def numcodecs_pack():
    out = []
    for name, codec in (
        ("zlib", numcodecs.Zlib(5)),
        ("gzip", numcodecs.GZip(5)),
        ("lz4", numcodecs.LZ4(1)),
        ("zstd", numcodecs.Zstd(3)),
        ("shuffle", numcodecs.Shuffle(4)),
        ("crc32c", numcodecs.CRC32C()),
    ):
        out.append(record(name, 4, 4000, 11, codec.encode))
        out.append(record(name, 4, 4000, 1011, codec.encode))
    return b"".join(out)


if __name__ == "__main__":
    (HERE / "blosc.pack").write_bytes(blosc_pack())
    (HERE / "numcodecs.pack").write_bytes(numcodecs_pack())
