"""Tensors as the server sends them (NPY) and numpy arrays."""

import ast
import re
import struct

import numpy as np

#: the header as servers write it; the parser of Python 3.11 fails now and then where several threads use it
HEADER = re.compile(r"\{'descr': '([^']+)', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\),? *\}$")


def read_header(text):
    """(descr, fortran_order, shape) of an NPY header."""
    found = HEADER.match(text)
    if found is None:
        header = ast.literal_eval(text)
        return header["descr"], header["fortran_order"], header["shape"]
    descr, fortran, shape = found.groups()
    return descr, fortran == "True", tuple(int(n) for n in shape.split(",") if n.strip())


def from_npy(data):
    """The array in NPY bytes, without a copy where `data` allows it; never unpickles."""
    view = memoryview(data)
    if bytes(view[:6]) != b"\x93NUMPY":
        raise ValueError("not a tensor: the bytes do not start as NPY does")
    if view[6] == 1:
        (length,), start = struct.unpack_from("<H", view, 8), 10
    else:
        (length,), start = struct.unpack_from("<I", view, 8), 12
    descr, fortran, shape = read_header(bytes(view[start : start + length]).decode("latin1").strip())
    dtype = np.dtype(descr)
    if dtype.hasobject:
        raise ValueError("not a tensor: its elements are Python objects")
    array = np.frombuffer(view[start + length :], dtype=dtype)
    return array.reshape(shape, order="F" if fortran else "C")


def register(connection):
    """Have a psycopg connection load tensorbank.tensor as numpy arrays.

    Cursors must be binary (`connection.cursor(binary=True)`) for the short way; text works and is slow.
    """
    from psycopg.adapt import Loader
    from psycopg.pq import Format
    from psycopg.types import TypeInfo

    info = TypeInfo.fetch(connection, "tensorbank.tensor")
    if info is None:
        raise LookupError("the database has no type tensorbank.tensor: run CREATE EXTENSION tensorbank")

    class TensorLoader(Loader):
        format = Format.BINARY

        def load(self, data):
            return from_npy(bytes(data))

    info.register(connection)
    connection.adapters.register_loader(info.oid, TensorLoader)
    return info
