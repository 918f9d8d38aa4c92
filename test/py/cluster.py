"""A private PostgreSQL cluster and a private nginx, started by the project's own scripts."""

import os
import re
import signal
import socket
import subprocess
import time

import psycopg

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SERVER_USER = os.environ.get("TB_USER", "postgres")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def open_up(path):
    """Let the server's user read and write everything below a folder."""
    os.chmod(path, 0o777)
    for root, folders, files in os.walk(path):
        for name in folders:
            os.chmod(os.path.join(root, name), 0o777)
        for name in files:
            os.chmod(os.path.join(root, name), 0o666)


def alive(pid):
    """Whether a process runs; what nobody has waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(check, seconds=10.0, every=0.05):
    """The first true result of check(), or its last one when the time is over."""
    end = time.monotonic() + seconds
    while True:
        result = check()
        if result or time.monotonic() > end:
            return result
        time.sleep(every)


class Cluster:
    def __init__(self, folder, *options):
        self.folder = str(folder)
        self.options = options
        self.port = free_port()
        self.socket = None

    def script(self, *arguments):
        done = subprocess.run([f"{ROOT}/test/cluster.sh", *arguments], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"cluster.sh {arguments[0]}: {done.stderr}{self.log()[-3000:]}")
        return done.stdout.strip()

    def start(self):
        self.socket = self.script("start", self.folder, str(self.port), *self.options)
        return self

    def stop(self, mode="fast"):
        self.script("stop", self.folder, mode)

    def wipe(self):
        self.script("wipe", self.folder)

    def dsn(self, dbname="postgres", user="postgres", **more):
        parts = {"host": self.socket, "port": self.port, "dbname": dbname, "user": user, **more}
        return " ".join(f"{k}='{v}'" for k, v in parts.items())

    def connect(self, dbname="postgres", user="postgres", **more):
        return psycopg.connect(self.dsn(dbname, user, **more), autocommit=True)

    def log(self):
        try:
            with open(f"{self.folder}/log", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def postmaster(self):
        with open(f"{self.folder}/data/postmaster.pid") as file:
            return int(file.readline())

    def children(self, of=None):
        """(pid, title) of the processes below one, the postmaster by default."""
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open(f"/proc/{name}/stat") as file:
                    text = file.read()
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    title = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            rest = text.rsplit(")", 1)[1].split()
            if int(rest[1]) == (of or self.postmaster()) and rest[0] != "Z":
                found.append((int(name), title))
        return found

    def supervisor(self):
        """The background worker's process, None where there is none."""
        for pid, title in self.children():
            if "tensorbank" in title and "postgres" in title.split(":")[0]:
                return pid
        return None

    def streamer(self):
        """The program that the worker watches, None where there is none."""
        above = self.supervisor()
        if above is None:
            return None
        for pid, title in self.children(above):
            if "tensorbank_streamer" in title:
                return pid
        return None

    def kill(self, pid, sig=signal.SIGKILL):
        os.kill(pid, sig)

    def restarts(self):
        """How often a crash made the server start all its processes anew."""
        return self.log().count("all server processes terminated; reinitializing")

    def crash(self, pid):
        """Kill a process that is attached to shared memory, and wait for the server to come back."""
        before = self.restarts()
        self.kill(pid)
        assert wait_for(lambda: self.restarts() > before, 30), "the server did not notice"
        self.wait_up()

    def wait_up(self, seconds=30):
        """Until the server takes connections."""

        def up():
            try:
                self.connect().close()
                return True
            except psycopg.OperationalError:
                return False

        assert wait_for(up, seconds), "the server did not come back"


class Web:
    """nginx over a folder; counts requests by its log."""

    def __init__(self, folder, root):
        self.folder = str(folder)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.seen = 0
        subprocess.run([f"{ROOT}/test/nginx.sh", "start", self.folder, str(root), str(self.port)], check=True, timeout=30)

    def stop(self):
        subprocess.run([f"{ROOT}/test/nginx.sh", "stop", self.folder], check=False, timeout=30)

    def _lines(self):
        try:
            with open(f"{self.folder}/access.log") as file:
                return file.read().splitlines()
        except OSError:
            return []

    def mark(self):
        """Forget the requests so far."""
        self.seen = len(self._lines())

    def requests(self, pattern=None):
        """Requests since the mark, as (method, path, range, status, bytes), of paths that match a pattern."""
        found = []
        for line in self._lines()[self.seen:]:
            method, path, byte_range, status, sent = re.match(r"(\S+) (.*) (\S+) (\d+) (\d+)$", line).groups()
            if pattern is None or re.search(pattern, path):
                found.append((method, path, byte_range, int(status), int(sent)))
        return found
