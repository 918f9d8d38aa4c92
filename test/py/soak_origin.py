"""The soak's store: objects in memory over HTTP (and as an S3 bucket), of whose answers a share is broken, each in one of many ways.

A process of its own. Every fault passes: one path gets at most two in a row, and those that a reader may try only once more
(a wrong answer, not a lost one) come only where none was before. Those of class "final" are what a reader must refuse at
once; they are remembered, so that the statement's error can be compared with what really happened.
"""

import base64
import collections
import email.utils
import hashlib
import multiprocessing
import os
import random
import re
import socket
import struct
import threading
import time
import urllib.parse

#: seconds within which requests of one path may be the same one, tried again
AGAIN = 12.0
MODIFIED = email.utils.formatdate(1_600_000_000, usegmt=True)
REASONS = {200: "OK", 206: "Partial Content", 304: "Not Modified", 307: "Temporary Redirect", 404: "Not Found", 408: "Request Timeout",
           412: "Precondition Failed", 416: "Range Not Satisfiable", 429: "Too Many Requests", 500: "Internal Server Error",
           502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout"}


class Object:
    def __init__(self, data):
        self.data = data
        self.etag = '"' + hashlib.md5(data).hexdigest() + '"'


class Answer:
    """An answer as it would be sent; kinds change it, or send it in their own way."""

    def __init__(self, status, headers, body, head=False):
        self.status = status
        self.headers = headers
        self.body = body
        self.no_body = head

    def head(self):
        lines = [f"HTTP/1.1 {self.status} {REASONS[self.status]}", *(f"{k}: {v}" for k, v in self.headers if v is not None)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def set(self, name, value):
        self.headers = [(k, value if k == name else v) for k, v in self.headers]

    def sent(self):
        return b"" if self.no_body else self.body


class Request:
    def __init__(self, text):
        lines = text.split("\r\n")
        self.method, target, _ = lines[0].split(" ", 2)
        self.path, _, query = target.partition("?")
        self.path = urllib.parse.unquote(self.path)
        self.target = target
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        self.headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        self.range = self.headers.get("range", "")


# ---- kinds: (origin, connection, request, answer) -> whether the connection goes on ----

def reset(conn):
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def cut(after, how):
    """The head and the beginning of the body; what is negative counts from the end, a fraction from the whole."""

    def act(origin, conn, request, answer):
        n = len(answer.body)
        stop = int(n * after) if isinstance(after, float) else after if after >= 0 else n + after
        conn.sendall(answer.head() + answer.body[:stop])
        if how == "reset":
            # what was sent shall arrive
            time.sleep(0.01)
            return reset(conn)
        if how == "hang":
            origin.wait(conn, 5)
        return False

    return act


def reset_at_once(origin, conn, request, answer):
    return reset(conn)


def no_answer(origin, conn, request, answer):
    return False


def hang(origin, conn, request, answer):
    origin.wait(conn, 5)
    return False


def half_head(origin, conn, request, answer):
    conn.sendall(answer.head()[:40])
    return False


def raw(data):
    def act(origin, conn, request, answer):
        conn.sendall(data)
        return False

    return act


def chunked(cut_off):
    def act(origin, conn, request, answer):
        answer.headers = [(k, v) for k, v in answer.headers if k != "Content-Length"] + [("Transfer-Encoding", "chunked")]
        out, at, step = [answer.head()], 0, max(len(answer.body) // 3, 1)
        while at < len(answer.body):
            piece = answer.body[at:at + step]
            out.append(b"%X;x=1\r\n%s\r\n" % (len(piece), piece))
            at += step
        conn.sendall(b"".join(out) + (b"" if cut_off else b"0\r\nX-Trailer: 1\r\n\r\n"))
        return not cut_off

    return act


def header(name, value):
    """Another value of a header, None: none; a function gets the answer."""

    def act(origin, conn, request, answer):
        answer.set(name, value(answer) if callable(value) else value)
        conn.sendall(answer.head() + answer.sent())
        return True

    return act


def more_headers(*headers):
    def act(origin, conn, request, answer):
        answer.headers += headers
        conn.sendall(answer.head() + answer.sent())
        return True

    return act


def shifted(by):
    def change(answer):
        first, last, total = re.match(r"bytes (\d+)-(\d+)/(\d+)", dict(answer.headers)["Content-Range"]).groups()
        return f"bytes {int(first) + by}-{int(last) + by}/{total}"

    return header("Content-Range", change)


def shorter(origin, conn, request, answer):
    """A part of what was asked for, told truthfully."""
    first, _, total = re.match(r"bytes (\d+)-(\d+)/(\d+)", dict(answer.headers)["Content-Range"]).groups()
    answer.body = answer.body[:len(answer.body) // 2]
    answer.set("Content-Range", f"bytes {first}-{int(first) + len(answer.body) - 1}/{total}")
    answer.set("Content-Length", len(answer.body))
    conn.sendall(answer.head() + answer.sent())
    return True


def whole(origin, conn, request, answer):
    """200 for a range."""
    conn.sendall(origin.object_answer(request, origin.objects[request.path], "").head() + origin.objects[request.path].data)
    return True


def status(code, *headers, times=1, body=b"<Error/>"):
    def act(origin, conn, request, answer):
        sent = Answer(code, [("Content-Length", len(body)), ("Content-Type", "application/xml"), *headers], body, answer.no_body)
        conn.sendall(sent.head() + sent.sent())
        return True

    act.times = times
    return act


def error(code, name, *headers):
    return status(code, *headers, body=f'<?xml version="1.0"?><Error><Code>{name}</Code><Message>as told</Message></Error>'.encode())


def xml_in_200(origin, conn, request, answer):
    body = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>'
    sent = Answer(200, [("Content-Length", len(body)), ("Content-Type", "application/xml")], body, answer.no_body)
    conn.sendall(sent.head() + sent.sent())
    return True


def drip(origin, conn, request, answer):
    conn.sendall(answer.head())
    for at in range(0, len(answer.body), 2):
        conn.sendall(answer.body[at:at + 2])
        if origin.wait(conn, 0.1):
            break
    return False


def head_in_pieces(origin, conn, request, answer):
    text = answer.head()
    for at in range(0, len(text), 16):
        conn.sendall(text[at:at + 16])
        time.sleep(0.001)
    conn.sendall(answer.sent())
    return True


def flipped(origin, conn, request, answer):
    body = bytearray(answer.body)
    body[len(body) // 2] ^= 0x10
    conn.sendall(answer.head() + bytes(body))
    return True


def excess(origin, conn, request, answer):
    """More than was told, on a connection that stays: the next answer must not begin with it."""
    conn.sendall(answer.head() + answer.sent() + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad")
    return True


def late(low, high):
    def act(origin, conn, request, answer):
        origin.wait(conn, random.uniform(low, high))
        conn.sendall(answer.head() + answer.sent())
        return True

    return act


def closed_after(origin, conn, request, answer):
    """The connection ends while it is idle, without a word of it in the answer."""
    conn.sendall(answer.head() + answer.sent())
    origin.wait(conn, 0.003)
    return False


def told_close(origin, conn, request, answer):
    answer.headers.append(("Connection", "close"))
    conn.sendall(answer.head() + answer.sent())
    return False


def old_http(origin, conn, request, answer):
    conn.sendall(answer.head().replace(b"HTTP/1.1", b"HTTP/1.0", 1) + answer.sent())
    return False


def interim(origin, conn, request, answer):
    conn.sendall(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + answer.head() + answer.sent())
    return True


def redirect(origin, conn, request, answer):
    sent = Answer(307, [("Location", f"http://{request.headers['host']}{request.target}"), ("Content-Length", "0")], b"")
    conn.sendall(sent.head())
    return True


def checksum(name, digest):
    return more_headers((f"x-amz-checksum-{name}", base64.b64encode(digest).decode()))


def if_range(request, answer):
    return answer.status == 206 and len(answer.body) >= 2


def if_body(request, answer):
    return answer.status in (200, 206) and len(answer.body) >= 16


def if_whole(request, answer):
    return answer.status == 200 and len(answer.body) >= 16


def if_checked(request, answer):
    """Chunks whose codecs end in a checksum; not in their shard's index alone, whose bytes are few."""
    return "/checked." in request.path and "/c/" in request.path and if_body(request, answer)


def if_chunk_range(request, answer):
    return "/c/" in request.path and if_range(request, answer)


#: name: (class, when it may come, what it does). Classes: "lost", tried as often as is set; "wrong", tried once more;
#: "fine", no fault to a reader that knows HTTP; "final", refused with one of the states
KINDS = {
    "reset before the head": ("lost", None, reset_at_once),
    "reset at byte 0": ("lost", if_body, cut(0, "reset")),
    "reset at byte 1": ("lost", if_body, cut(1, "reset")),
    "reset in the middle": ("lost", if_body, cut(0.5, "reset")),
    "reset at byte n-1": ("lost", if_body, cut(-1, "reset")),
    "short body": ("lost", if_body, cut(0.5, "close")),
    "short by one byte": ("lost", if_body, cut(-1, "close")),
    "closed without an answer": ("lost", None, no_answer),
    "half a head": ("lost", None, half_head),
    "chunked without end": ("lost", if_body, chunked(True)),
    "no Content-Range": ("wrong", if_range, header("Content-Range", None)),
    "malformed Content-Range": ("wrong", if_range, header("Content-Range", "bytes 7-2/x")),
    "Content-Range without total": ("wrong", if_range, header("Content-Range", lambda a: re.sub(r"/\d+$", "/*", dict(a.headers)["Content-Range"]))),
    "range shifted by one": ("wrong", if_range, shifted(1)),
    "range shifted far": ("wrong", if_range, shifted(4096)),
    "shorter range": ("wrong", if_range, shorter),
    "200 for a range": ("fine", if_range, whole),
    "503 at once": ("lost", None, error(503, "SlowDown", ("Retry-After", "0"))),
    "503 later": ("lost", None, error(503, "SlowDown", ("Retry-After", "1"))),
    "503 untold": ("lost", None, error(503, "SlowDown")),
    "429": ("lost", None, error(429, "TooManyRequests", ("Retry-After", "0"))),
    "408": ("lost", None, error(408, "RequestTimeout")),
    "500": ("lost", None, status(500)),
    "500 with a long page": ("lost", None, status(500, body=b"x" * 100_000)),
    "502": ("lost", None, status(502, body=b"<html>bad gateway</html>")),
    "504 twice": ("lost", None, status(504, times=2)),
    "error in a 200": ("wrong", if_chunk_range, xml_in_200),
    "no byte": ("lost", None, hang),
    "stall in the middle": ("lost", if_body, cut(0.5, "hang")),
    "drip": ("lost", lambda r, a: len(a.body) > 200 and a.status in (200, 206), drip),
    "no ETag": ("wrong", if_body, header("ETag", None)),
    "weak ETag": ("wrong", if_body, header("ETag", lambda a: "W/" + dict(a.headers)["ETag"])),
    "closed while idle": ("fine", None, closed_after),
    "Connection: close": ("fine", None, told_close),
    "HTTP/1.0": ("fine", None, old_http),
    "chunked": ("fine", if_body, chunked(False)),
    "interim answers": ("fine", None, interim),
    "head in pieces": ("fine", None, head_in_pieces),
    "many headers": ("fine", None, more_headers(*((f"X-Meta-{i}", "v" * 200) for i in range(100)))),
    "headers twice": ("fine", if_body, lambda o, c, r, a: more_headers(*[h for h in a.headers if h[0] != "Content-Range"])(o, c, r, a)),
    "garbage": ("wrong", None, raw(b"\x15\x03\x01\x00\x02\x02\x16 what is this\r\n\r\n")),
    "garbage status line": ("wrong", None, raw(b"HTTP/1.1 2x6 Hm\r\nContent-Length: 2\r\n\r\nno")),
    "two lengths": ("wrong", if_body, lambda o, c, r, a: more_headers(("Content-Length", len(a.body) + 5))(o, c, r, a) and False),
    "excess bytes": ("fine", if_body, excess),
    "wrong checksum": ("wrong", if_whole, checksum("sha256", hashlib.sha256(b"?").digest())),
    "flipped bit": ("wrong", if_checked, flipped),
    "late answer": ("fine", None, late(0.2, 0.8)),
    "latency": ("fine", None, late(0.01, 0.1)),
    "redirect": ("fine", None, redirect),
    "416": ("final", if_chunk_range, status(416, ("Content-Range", "bytes */10"), body=b"")),
    "gzip": ("final", if_body, more_headers(("Content-Encoding", "gzip"))),
    "huge headers": ("final", None, more_headers(*((f"X-Meta-{i}", "v" * 1000) for i in range(200)))),
    "another ETag": ("final", lambda r, a: "/c/" in r.path and if_body(r, a), header("ETag", '"0123456789abcdef"')),
}
#: what statements may end with because of a final kind
FINAL = {"416": {"40001", "XX001"}, "gzip": {"08P01"}, "huge headers": {"08P01"}, "another ETag": {"40001"}}
#: of a hundred faults
FINAL_PERCENT = 1


class Origin:
    """Serves `objects` {path: bytes}, in the process that calls serve(); paths begin with /bucket/."""

    def __init__(self, objects, share, seed):
        self.objects = {path: Object(data) for path, data in objects.items()}
        self.share = share
        self.target = share
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.requests = self.faults = self.bytes = 0
        self.recent = {}
        self.burst = {}
        self.final = []
        self.open = self.most_open = 0
        self.by_class = {c: [n for n, k in KINDS.items() if k[0] == c] for c in ("lost", "wrong", "fine", "final")}

    def wait(self, conn, seconds):
        """Sleep until the other end goes; whether it did."""
        conn.settimeout(seconds)
        try:
            return conn.recv(1, socket.MSG_PEEK) == b""
        except socket.timeout:
            return False
        except OSError:
            return True
        finally:
            conn.settimeout(60)

    # ---- which fault ----

    def draw(self, request, answer):
        """The name of a kind, None: an answer as it should be."""
        now = time.monotonic()
        with self.lock:
            self.requests += 1
            self.bytes += len(answer.sent())
            if self.target == 0:
                return None
            asked = (request.path, request.range)
            if asked in self.burst:
                name = self.burst.pop(asked)
                return self.told(name, request, now)
            # what is held back in one place is made up for elsewhere
            share = self.target * (1.5 if self.faults < self.target * self.requests else 0.9)
            if self.random.random() >= share:
                return None
            before = [t for t in self.recent.get(request.path, ()) if now - t < AGAIN]
            self.recent[request.path] = before
            if len(before) >= 2:
                return None
            if self.random.random() * 100 < FINAL_PERCENT:
                choice = self.by_class["final"]
            elif before:
                choice = self.by_class["lost"] + self.by_class["fine"]
            else:
                choice = self.by_class["lost"] + self.by_class["fine"] + self.by_class["wrong"]
            choice = [n for n in choice if KINDS[n][1] is None or KINDS[n][1](request, answer)]
            # two of one: only as the first
            choice = [n for n in choice if not (before and getattr(KINDS[n][2], "times", 1) > 1)]
            if not choice:
                return None
            # kinds that rarely may come have their turn then
            (name,) = self.random.choices(choice, [1 / (1 + self.counts[n]) ** 2 for n in choice])
            if getattr(KINDS[name][2], "times", 1) > 1:
                self.burst[asked] = name
            return self.told(name, request, now)

    def told(self, name, request, now):
        kind = KINDS[name][0]
        self.faults += 1
        self.counts[name] += 1
        if kind in ("lost", "wrong"):
            self.recent.setdefault(request.path, []).append(now)
        elif kind == "final":
            self.final.append((time.time(), request.path, name))
        return name

    # ---- right answers ----

    def object_answer(self, request, found, wanted):
        head = request.method == "HEAD"
        total = len(found.data)
        headers = [("Date", email.utils.formatdate(usegmt=True)), ("ETag", found.etag), ("Last-Modified", MODIFIED), ("Accept-Ranges", "bytes")]
        if request.headers.get("if-none-match") == found.etag:
            return Answer(304, headers + [("Content-Length", 0)], b"")
        if request.headers.get("if-match", found.etag) != found.etag:
            return Answer(412, [("Content-Length", 0)], b"")
        match = re.match(r"bytes=(\d*)-(\d*)$", wanted)
        if match is None:
            return Answer(200, headers + [("Content-Length", total)], found.data, head)
        first, last = match.groups()
        start, stop = (int(first), min(int(last) + 1, total) if last else total) if first else (max(total - int(last), 0), total)
        if start >= total:
            return Answer(416, [("Content-Range", f"bytes */{total}"), ("Content-Length", 0)], b"")
        return Answer(206, headers + [("Content-Length", stop - start), ("Content-Range", f"bytes {start}-{stop - 1}/{total}")],
                      found.data[start:stop], head)

    def listing(self, request):
        """A page of an S3 listing; all fits into one."""
        prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
        bucket = request.path.split("/")[1]
        keys, folders = [], set()
        for path, found in sorted(self.objects.items()):
            key = path[len(bucket) + 2:]
            if not path.startswith(f"/{bucket}/{prefix}"):
                continue
            rest = key[len(prefix):]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
            else:
                keys.append(f"<Contents><Key>{key}</Key><Size>{len(found.data)}</Size><ETag>{found.etag}</ETag></Contents>")
        body = ('<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>' + "".join(keys) +
                "".join(f"<CommonPrefixes><Prefix>{f}</Prefix></CommonPrefixes>" for f in sorted(folders)) + "</ListBucketResult>").encode()
        return Answer(200, [("Content-Type", "application/xml"), ("Content-Length", len(body))], body)

    def right(self, request):
        if request.query.get("list-type") == "2":
            return self.listing(request)
        found = self.objects.get(request.path)
        if found is None:
            body = b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>'
            return Answer(404, [("Content-Type", "application/xml"), ("Content-Length", len(body))], body, request.method == "HEAD")
        return self.object_answer(request, found, request.range)

    # ---- connections ----

    def converse(self, conn):
        with self.lock:
            self.open += 1
            self.most_open = max(self.open, self.most_open)
        buffer = b""
        try:
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            conn.settimeout(60)
            while True:
                while b"\r\n\r\n" not in buffer:
                    piece = conn.recv(65536)
                    if not piece or len(buffer) > 65536:
                        return
                    buffer += piece
                head, _, buffer = buffer.partition(b"\r\n\r\n")
                request = Request(head.decode("latin-1"))
                answer = self.right(request)
                name = self.draw(request, answer) if answer.status in (200, 206) and request.method == "GET" else None
                if name is None:
                    conn.sendall(answer.head() + answer.sent())
                elif not KINDS[name][2](self, conn, request, answer):
                    return
        except OSError:
            pass                # clients that hang up are what is tested here
        finally:
            conn.close()
            with self.lock:
                self.open -= 1

    def serve(self, listener, pipe):
        """Until the pipe closes. Takes ("share", s), ("report",); answers each."""
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()
        while True:
            try:
                what, *more = pipe.recv()
            except (EOFError, OSError, KeyboardInterrupt):
                os._exit(0)
            with self.lock:
                if what == "share":
                    self.target = self.share if more[0] is None else more[0]
                    if more[0] is None:
                        self.requests = self.faults = 0
                        self.counts.clear()
                pipe.send({"requests": self.requests, "faults": self.faults, "bytes": self.bytes, "kinds": dict(self.counts),
                           "final": list(self.final), "open": self.open, "most_open": self.most_open})

    def accept(self, listener):
        while True:
            conn, _ = listener.accept()
            threading.Thread(target=self.converse, args=(conn,), daemon=True).start()


class OriginProcess:
    """The origin in a process of its own."""

    def __init__(self, objects, share, seed):
        listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.pipe, theirs = multiprocessing.Pipe()
        self.lock = threading.Lock()
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=self.child, args=(objects, share, seed, listener, self.pipe, theirs), daemon=True)
        self.process.start()
        theirs.close()
        listener.close()

    @staticmethod
    def child(objects, share, seed, listener, other, pipe):
        other.close()
        Origin(objects, share, seed).serve(listener, pipe)

    def ask(self, *what):
        with self.lock:
            self.pipe.send(what)
            return self.pipe.recv()

    def stop(self):
        self.pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.terminate()
