"""S3 servers for the tests: radosgw and SeaweedFS, from the script in the shared folder, and the project's own strict one.

All have endpoint, access_key, secret_key, bucket (`tensorbank`), domain (of virtual hosts: bucket.domain), and put, get,
keys, upload. A real server that cannot be had (no script, no rights to install, no network) skips the test and says why.
"""

import importlib.util
import os
import random
import re
import socket
import subprocess

import fakes3

SHARED = os.environ.get("TB_SHARED") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "shared")
FOLDER = os.path.join(SHARED, "test-services", "s3-server")
KINDS = ("radosgw", "seaweedfs")


class Unavailable(Exception):
    """Why a real server is not to be had."""


def available():
    return os.path.exists(os.path.join(FOLDER, "s3-server.sh"))


def free_base():
    """A port that is free with what the servers take besides: the next four, and all of them 10000 above."""
    while True:
        base = random.randrange(20000, 30000, 10)
        try:
            for port in [base + i for i in range(5)] + [base + 10000 + i for i in range(5)]:
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base


def files_below(path):
    """(path relative to a folder, content) of every file below it."""
    for folder, _, files in os.walk(path):
        for name in files:
            file = os.path.join(folder, name)
            with open(file, "rb") as f:
                yield os.path.relpath(file, path), f.read()


class Server:
    """A real server in a folder of its own. With tls: tls_endpoint, ca_file; radosgw: sts_endpoint, where tokens are checked."""

    bucket = "tensorbank"

    def __init__(self, kind, folder, tls=False):
        if not available():
            raise Unavailable(f"{FOLDER}/s3-server.sh is not there")
        self.kind = kind
        self.env = dict(os.environ, S3_KIND=kind, S3_PORT=str(free_base()), S3_DIR=str(folder), S3_TLS=str(int(tls)),
                        S3_STS=str(int(tls)), S3_BUCKETS="tensorbank public", S3_MEM_BYTES=str(1 << 30))
        told = self._variables("start")
        self.endpoint = told["S3_ENDPOINT"]
        self.access_key = told["S3_ACCESS_KEY"]
        self.secret_key = told["S3_SECRET_KEY"]
        self.domain = told["S3_VHOST_DOMAIN"]
        self.tls_endpoint = told.get("S3_TLS_ENDPOINT")
        self.ca_file = told.get("S3_CA_FILE")
        self.sts_endpoint = told.get("S3_STS_ENDPOINT")
        spec = importlib.util.spec_from_file_location("s3_probe", os.path.join(FOLDER, "s3-probe.py"))
        probe = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(probe)
        self.client = probe.S3(self.endpoint, self.access_key, self.secret_key)

    def _script(self, command):
        # what the server's processes write must not hold our pipe open
        done = subprocess.run(["bash", os.path.join(FOLDER, "s3-server.sh"), command], env=self.env, timeout=300,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            if command == "start":
                self.wipe()
            raise Unavailable(f"{self.kind}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def _variables(self, command):
        return {name: value.strip('"') for name, value in re.findall(r"^(S3_\w+)=(.*)$", self._script(command), re.M)}

    def token(self):
        """Temporary keys: (access key, secret, token), good at sts_endpoint."""
        told = self._variables("token")
        return told["S3_ACCESS_KEY"], told["S3_SECRET_KEY"], told["S3_SESSION_TOKEN"]

    def wipe(self):
        subprocess.run(["bash", os.path.join(FOLDER, "s3-server.sh"), "wipe"], env=self.env, timeout=120, check=False,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def put(self, key, body, bucket=None):
        status, _, answer = self.client.req("PUT", bucket or self.bucket, key, body=body)[:3]
        assert status == 200, answer

    def get(self, key):
        """The bytes of an object; None: it is not there."""
        status, _, body = self.client.req("GET", self.bucket, key)[:3]
        assert status in (200, 404)
        return body if status == 200 else None

    def keys(self, prefix):
        answer = self.client.req("GET", self.bucket, "", query={"list-type": 2, "prefix": prefix})[2].decode()
        return re.findall("<Key>(.*?)</Key>", answer)

    def delete(self, key):
        self.client.req("DELETE", self.bucket, key)

    def upload(self, path, prefix):
        """Every file below a folder, under a prefix."""
        for name, content in files_below(path):
            self.put(f"{prefix}/{name}", content)


class Fake(fakes3.FakeS3):
    """The project's own, with the same methods."""

    kind = "own"
    bucket = "tensorbank"
    tls_endpoint = ca_file = sts_endpoint = None

    def put(self, key, body, bucket=None):
        self.buckets[bucket or self.bucket].objects[key] = fakes3.Object(body)

    def get(self, key):
        found = self.buckets[self.bucket].objects.get(key)
        return found.data if found else None

    def keys(self, prefix):
        return [k for k in self.buckets[self.bucket].objects if k.startswith(prefix)]

    def delete(self, key):
        self.buckets[self.bucket].objects.pop(key, None)

    def upload(self, path, prefix):
        for name, content in files_below(path):
            self.put(f"{prefix}/{name}", content)

    def wipe(self):
        self.stop()


class Servers:
    """The servers of a run, each started when first asked for."""

    def __init__(self, folder):
        self.folder = str(folder)
        self.made = {}

    def get(self, kind):
        """A server, or why there is none, as Unavailable."""
        if kind not in self.made:
            try:
                self.made[kind] = Fake() if kind == "own" else Server(kind, os.path.join(self.folder, kind), tls=True)
            except (Unavailable, subprocess.TimeoutExpired) as e:
                self.made[kind] = e
        found = self.made[kind]
        if isinstance(found, Exception):
            raise Unavailable(str(found))
        return found

    def wipe(self):
        for made in self.made.values():
            if not isinstance(made, Exception):
                made.wipe()
