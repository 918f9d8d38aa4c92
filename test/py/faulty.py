"""A static HTTP server over a folder that does what a script tells it: waits, hangs, breaks off, lies, answers with errors."""

import email.utils
import hashlib
import http.server
import os
import random
import re
import socket
import ssl
import struct
import threading
import time
import urllib.parse


class Rule:
    """What happens to requests of paths that match; `times` -1: for ever, else that often.

    method, header (a regular expression of "Name: value" lines) narrow it. p: the share of requests, drawn by the
    server's seed from path, range and try, so that a seed gives the same faults in whatever order requests come.
    """

    def __init__(self, pattern, action, times=-1, method=None, header=None, p=None, skip=0, **options):
        self.pattern = re.compile(pattern)
        self.action = action
        self.times = times
        self.method = method
        self.header = re.compile(header) if header else None
        self.p = p
        self.skip = skip
        self.options = options

    def matches(self, method, path, headers):
        if self.times == 0 or not self.pattern.search(path) or self.method not in (None, method):
            return False
        return self.header is None or any(self.header.search(f"{k}: {v}") for k, v in headers.items())


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # head and body in one write: Nagle's algorithm would hold the second back
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def date_time_string(self, timestamp=None):
        return super().date_time_string(time.time() + self.server.faulty.clock if timestamp is None else timestamp)

    def setup(self):
        super().setup()
        with self.server.faulty.lock:
            self.server.faulty.open += 1
            self.server.faulty.most_open = max(self.server.faulty.most_open, self.server.faulty.open)
            self.server.faulty.connections += 1

    def finish(self):
        with self.server.faulty.lock:
            self.server.faulty.open -= 1
        super().finish()

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        """One request: what a rule says, else the object."""
        path = urllib.parse.unquote(self.path)
        faulty = self.server.faulty
        rule = faulty.take(self.command, path, self.headers)
        action = rule.action if rule else None
        faulty.note(self.command, path, self.headers.get("Range", "-"), action or "-")
        if action == "delay":
            time.sleep(rule.options["seconds"])
        elif action is not None and self.instead(action, rule.options):
            return
        self.serve(path, action, rule.options if rule else {})

    def instead(self, action, options):
        """Faults that take the place of an answer; whether this was one."""
        if action == "hang":
            self.server.faulty.released.wait(options.get("seconds", 60))
            self.close_connection = True
        elif action == "reset":
            self.reset()
        elif action == "close":
            self.close_connection = True
        elif action == "garbage":
            self.wfile.write(options.get("bytes", b"\x15\x03\x01 what is this\r\n\r\n"))
            self.close_connection = True
        elif action == "status":
            self.plain(options["code"], options.get("headers", {}), options.get("body", b"<Error/>"))
        elif action == "error":
            body = f"<?xml version=\"1.0\"?><Error><Code>{options['name']}</Code><Message>as told</Message></Error>"
            self.plain(options["code"], {"Content-Type": "application/xml", **options.get("headers", {})}, body.encode())
        else:
            return False
        return True

    def serve(self, path, action, options):
        file = self.server.faulty.root + path
        if not os.path.isfile(file):
            self.plain(404, {}, b"not there")
            return
        with open(file, "rb") as f:
            self.send_object(f.read(), action, options)

    def plain(self, code, headers, body):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def reset(self):
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        # rfile and wfile hold the socket, too: it is closed, and reset, when the request is over
        self.server.faulty.resets.add(self.connection.fileno())

    def wanted(self, total):
        """(start, stop) of the range asked for; None: no range."""
        found = re.match(r"bytes=(\d*)-(\d*)$", self.headers.get("Range", ""))
        if found is None:
            return None
        first, last = found.groups()
        if not first:
            return max(total - int(last), 0), total
        return int(first), min(int(last) + 1, total) if last else total

    def send_object(self, data, action, options, etag=None, modified=1_600_000_000):
        """The object or the range of it that was asked for, in the way a fault says."""
        if options.get("data") is not None:
            data = options["data"]
        total = len(data)
        asked = None if action == "whole" else self.wanted(total)
        if asked and asked[0] >= total:
            self.plain(416, {"Content-Range": f"bytes */{total}"}, b"")
            return
        start, stop = asked or (0, total)
        if action == "short_range":
            stop = max(start + 1, stop - options.get("bytes", (stop - start) // 2))
        part = data[start:stop]
        if action == "xml":
            part = b"<?xml version=\"1.0\"?><Error><Code>InternalError</Code></Error>"
        headers = {"ETag": etag or '"' + hashlib.sha256(data).hexdigest()[:16] + '"', "Accept-Ranges": "bytes",
                   "Last-Modified": email.utils.formatdate(modified, usegmt=True)}
        if asked and action != "xml":
            said = start + (options.get("shift", 1) if action == "wrong_range" else 0)
            size = start + len(part) if options.get("ends") else options.get("total", total)
            headers["Content-Range"] = f"bytes {said}-{said + len(part) - 1}/{size}"
        headers["Content-Length"] = str(len(part))
        if action == "chunked":
            del headers["Content-Length"]
            headers["Transfer-Encoding"] = "chunked"
        if action == "gzip":
            headers["Content-Encoding"] = "gzip"
        if action == "etag":
            headers["ETag"] = options.get("value") or f'"{random.getrandbits(64):016x}"'
        if action == "length":
            headers["Content-Length"] = str(len(part) + options.get("more", 7))
        headers.update(options.get("headers", {}))
        self.send_response(206 if asked and action != "xml" else 200)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.send_body(part, action, options)

    def send_body(self, part, action, options):
        released = self.server.faulty.released
        after = options.get("after", len(part) // 2)
        after = after if after >= 0 else max(len(part) + after, 0)
        if action in ("short", "length", "xml"):
            self.wfile.write(part[:after] if action == "short" else part)
            self.close_connection = True
        elif action == "reset_body":
            self.wfile.write(part[:after])
            self.wfile.flush()
            time.sleep(0.05)
            self.reset()
        elif action == "hang_body":
            self.wfile.write(part[:after])
            self.wfile.flush()
            released.wait(options.get("seconds", 60))
            self.close_connection = True
        elif action == "flip":
            changed = bytearray(part)
            if changed:
                changed[after if after < len(changed) else -1] ^= 0x40
            self.wfile.write(bytes(changed))
        elif action == "chunked":
            self.send_chunked(part, options.get("cut", False))
        elif action == "drip":
            self.drip(part, options["bytes_per_s"], released)
        else:
            self.wfile.write(part)
        if action == "close_after":
            self.close_connection = True

    def send_chunked(self, part, cut):
        half = len(part) // 2
        for piece in (part[:half], b"" if cut else part[half:]):
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if cut:
            self.wfile.write(b"%x\r\n%s" % (len(part) - half, part[half:-1]))
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def drip(self, part, speed, released):
        every = 0.02 if speed > 1000 else 0.1
        step = max(1, int(speed * every))
        for at in range(0, len(part), step):
            self.wfile.write(part[at: at + step])
            self.wfile.flush()
            if released.wait(every):
                break
        self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        # clients that hang up are what is tested here
        pass

    def shutdown_request(self, request):
        # an orderly end would send FIN where a reset is wanted
        if request.fileno() in self.faulty.resets:
            self.faulty.resets.discard(request.fileno())
            request.close()
        else:
            super().shutdown_request(request)

    def get_request(self):
        sock, address = self.socket.accept()
        context = self.faulty.tls
        if context is not None:
            # the handshake is the connection's thread's affair
            sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return sock, address


class Faulty:
    def __init__(self, root, tls=None, seed=1, handler=Handler):
        self.root = str(root)
        self.tls = None
        if tls:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(*tls)
        self.rules = []
        self.log = []
        self.keep_log = True
        self.counts = {}
        self.tries = {}
        self.seed = seed
        self.clock = 0
        self.open = self.most_open = self.connections = 0
        self.resets = set()
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.server = Server(("127.0.0.1", 0), handler)
        self.server.faulty = self
        self.port = self.server.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def rule(self, pattern, action, times=-1, **options):
        with self.lock:
            self.rules.append(Rule(pattern, action, times, **options))

    def reset(self):
        """No rules, no log; whoever hangs goes on."""
        with self.lock:
            self.rules = []
            self.log = []
            self.tries = {}
            self.counts = {}
            self.clock = 0
            self.most_open = self.open
            self.connections = 0
            self.released.set()
            self.released = threading.Event()

    def take(self, method, path, headers):
        """The rule for a request, None: none."""
        with self.lock:
            draw = None
            for rule in self.rules:
                if not rule.matches(method, path, headers):
                    continue
                if rule.skip > 0:
                    rule.skip -= 1
                    continue
                if rule.p is not None:
                    if draw is None:
                        draw = self.draw(path, headers)
                    # one draw a request: the shares of the rules lie side by side
                    draw -= rule.p
                    if draw >= 0:
                        continue
                rule.times -= 1
                return rule
        return None

    def draw(self, path, headers):
        asked = (path, headers.get("Range", ""))
        nth = self.tries[asked] = self.tries.get(asked, 0) + 1
        return random.Random(f"{self.seed} {path} {asked[1]} {nth}").random()

    def note(self, method, path, byte_range, action):
        with self.lock:
            self.counts[action] = self.counts.get(action, 0) + 1
            if self.keep_log:
                self.log.append((method, path, byte_range, action))

    def requests(self, pattern):
        with self.lock:
            return [entry for entry in self.log if re.search(pattern, entry[1])]

    def settle(self, seconds=3):
        """Until no connection is left of sessions that ended: late requests of theirs would take rules meant for others."""
        end = time.monotonic() + seconds
        while self.open and time.monotonic() < end:
            time.sleep(0.01)

    def stop(self):
        self.reset()
        self.server.shutdown()
        self.server.server_close()
