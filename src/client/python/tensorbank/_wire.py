"""The streamer's client socket: frames of JSON, the ring's memory, slots that return when nobody looks at them.

The messages are those of docs/internals/stream-protocol.md.
"""

import array
import ctypes
import json
import mmap
import os
import socket
import struct
import threading
import weakref

import numpy as np

MAX_FRAME = 16 << 20


class StreamError(RuntimeError):
    """An error the streamer told; `code` is its short word ("corrupt", "busy" ...)."""

    def __init__(self, error):
        self.code = error.get("code", "internal")
        self.detail = error.get("detail") or None
        self.hint = error.get("hint") or None
        text = error.get("message") or self.code
        if self.detail:
            text += f"\nDETAIL: {self.detail}"
        if self.hint:
            text += f"\nHINT: {self.hint}"
        super().__init__(text)


class StreamLost(ConnectionError):
    """The streamer is gone: the stream can be opened again from its state."""


class Wire:
    """One connection to the client socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.buffer = bytearray()
        self.descriptors = []
        # releases come from whatever thread drops the last view of a slot
        self.sending = threading.Lock()
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise

    def send(self, message):
        data = json.dumps(message).encode()
        with self.sending:
            try:
                self.socket.sendall(struct.pack("<I", len(data)) + data)
            except OSError as e:
                raise StreamLost(f"the streamer is gone: {e}") from e

    def _fill(self, wanted):
        while len(self.buffer) < wanted:
            try:
                data, ancillary, _, _ = self.socket.recvmsg(1 << 16, socket.CMSG_SPACE(4 * 4))
            except OSError as e:
                raise StreamLost(f"the streamer is gone: {e}") from e
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds = array.array("i")
                    fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
                    self.descriptors.extend(fds)
            if not data:
                raise StreamLost("the streamer closed the connection")
            self.buffer += data

    def receive(self):
        self._fill(4)
        (length,) = struct.unpack_from("<I", self.buffer)
        if length > MAX_FRAME:
            raise StreamLost("the streamer sent a frame that is too long")
        self._fill(4 + length)
        message = json.loads(bytes(self.buffer[4 : 4 + length]))
        del self.buffer[: 4 + length]
        if "error" in message:
            raise StreamError(message["error"])
        return message

    def call(self, message):
        self.send(message)
        return self.receive()

    def close(self):
        self.socket.close()
        for fd in self.descriptors:
            os.close(fd)
        self.descriptors = []


def _return_slot(wire_ref, slot, generation):
    wire = wire_ref()
    if wire is not None:
        try:
            wire.send({"op": "release", "slot": slot, "generation": generation})
        except StreamLost:
            pass


class SocketStream:
    """A stream whose ring is mapped into this process: batches are views, nothing is copied."""

    #: called when the store refused the stream's credentials
    renew = None

    def __init__(self, path, token):
        self.wire = Wire(path)
        try:
            self.info = self.wire.call({"op": "redeem", "token": token})
            fd = self.wire.descriptors.pop(0)
            try:
                self.ring = mmap.mmap(fd, self.info["slots"] * self.info["slot_bytes"])
            finally:
                os.close(fd)
        except BaseException:
            self.wire.close()
            raise

    def next(self):
        """(message, {name: array}) or None at the end."""
        message = self.wire.call({"op": "next"})
        while message.get("renew"):
            # refused again is an error; this ends
            if self.renew is None:
                raise StreamError({"code": "auth", "message": "credentials of the stream were refused",
                                   "hint": "Run tensorbank.renew_stream(stream) in its session, then take the next batch."})
            self.renew()
            message = self.wire.call({"op": "next"})
        if message.get("end"):
            return None
        size = self.info["slot_bytes"]
        start = message["slot"] * size
        # The one object that every view of this slot keeps alive; when it goes, the slot goes back.
        owner = (ctypes.c_char * size).from_buffer(self.ring, start)
        weakref.finalize(owner, _return_slot, weakref.ref(self.wire), message["slot"], message["generation"])
        arrays = {}
        for tensor in message["tensors"]:
            flat = np.frombuffer(owner, dtype=_dtype(tensor["dtype"]), offset=tensor["offset"] - start,
                                 count=int(np.prod(tensor["shape"], dtype=np.int64)))
            arrays[tensor["name"]] = flat.reshape(tensor["shape"])
        return message, arrays

    def close(self):
        self.wire.close()


class SqlStream:
    """A stream read in band through libpq, for clients on another host: same batches, one more copy."""

    def __init__(self, connection, stream):
        self.connection = connection
        self.stream = stream
        self.info = None

    def next(self):
        from ._npy import from_npy

        with self.connection.cursor(binary=True) as cursor:
            cursor.execute("SELECT batch, tensors::text[], names, scalars::text, state"
                           " FROM tensorbank.next_batch(%s)", (self.stream,))
            row = cursor.fetchone()
            if row is None:
                return None
            number, handles, names, scalars, state = row
            arrays = {}
            for name, handle in zip(names, handles):
                cursor.execute("SELECT tensorbank.read(%s::tensorbank.handle)", (handle,))
                arrays[name] = from_npy(cursor.fetchone()[0]).copy()
            cursor.execute("SELECT tensorbank.release(%s::text[]::tensorbank.handle[])", (handles,))
        scalars = json.loads(scalars)
        samples = len(next(iter(arrays.values()))) if arrays else len(next(iter(scalars.values()), []))
        return {"batch": number, "scalars": scalars, "state": state, "samples": samples, "padded": 0}, arrays

    def close(self):
        pass


def _dtype(name):
    return np.dtype("bool" if name == "bool" else name)
