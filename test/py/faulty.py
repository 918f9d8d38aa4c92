"""A static HTTP server over a folder that does what a script tells it: waits, hangs, breaks off, answers with errors."""

import email.utils
import hashlib
import http.server
import os
import re
import socket
import struct
import threading
import time
import urllib.parse


class Rule:
    """What happens to requests of paths that match; `times` -1: for ever, else that often."""

    def __init__(self, pattern, action, times=-1, **options):
        self.pattern = re.compile(pattern)
        self.action = action
        self.times = times
        self.options = options


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body):
        path = urllib.parse.unquote(self.path)
        faulty = self.server.faulty
        rule = faulty.take(path)
        faulty.log.append((self.command, path, self.headers.get("Range", "-"), rule.action if rule else "-"))
        action = rule.action if rule else None
        if action == "hang":
            faulty.released.wait(rule.options.get("seconds", 60))
            self.close_connection = True
            return
        if action == "delay":
            time.sleep(rule.options["seconds"])
        if action == "reset":
            self.reset()
            return
        if action == "status":
            self.plain(rule.options["code"], rule.options.get("headers", {}), rule.options.get("body", b"<Error/>"))
            return
        file = faulty.root + path
        if not os.path.isfile(file):
            self.plain(404, {}, b"not there")
            return
        with open(file, "rb") as f:
            data = f.read()
        self.send_object(data, body, action, rule)

    def plain(self, code, headers, body):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def send_object(self, data, body, action, rule):
        total = len(data)
        start, stop = 0, total
        wanted = re.match(r"bytes=(\d*)-(\d*)$", self.headers.get("Range", ""))
        ranged = wanted is not None and action != "whole"
        if ranged:
            first, last = wanted.groups()
            start = int(first) if first else max(total - int(last), 0)
            stop = min(int(last) + 1, total) if first and last else total
            if start >= total:
                self.plain(416, {"Content-Range": f"bytes */{total}"}, b"")
                return
        part = data[start:stop]
        said_start = start + (1 if action == "wrong_range" else 0)
        self.send_response(206 if ranged else 200)
        if ranged:
            self.send_header("Content-Range", f"bytes {said_start}-{said_start + len(part) - 1}/{total}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", '"' + hashlib.sha256(data).hexdigest()[:16] + '"')
        self.send_header("Last-Modified", email.utils.formatdate(1_600_000_000, usegmt=True))
        self.end_headers()
        if not body:
            return
        if action == "short":
            self.wfile.write(part[: len(part) // 2])
            self.close_connection = True
        elif action == "reset_body":
            self.wfile.write(part[: len(part) // 2])
            self.wfile.flush()
            time.sleep(0.05)
            self.reset()
        elif action == "hang_body":
            self.wfile.write(part[: len(part) // 2])
            self.wfile.flush()
            self.server.faulty.released.wait(rule.options.get("seconds", 60))
            self.close_connection = True
        elif action == "flip":
            changed = bytearray(part)
            changed[len(part) // 2] ^= 0x40
            self.wfile.write(bytes(changed))
        else:
            self.wfile.write(part)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        # clients that hang up are what is tested here
        pass


class Faulty:
    def __init__(self, root):
        self.root = str(root)
        self.rules = []
        self.log = []
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.faulty = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
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
            self.released.set()
            self.released = threading.Event()

    def take(self, path):
        with self.lock:
            for rule in self.rules:
                if rule.times != 0 and rule.pattern.search(path):
                    rule.times -= 1
                    return rule
        return None

    def requests(self, pattern):
        with self.lock:
            return [entry for entry in self.log if re.search(pattern, entry[1])]

    def stop(self):
        self.reset()
        self.server.shutdown()
        self.server.server_close()
