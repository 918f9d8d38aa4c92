"""Cancel and statement_timeout at every wait for a store: at once, and the session goes on."""

import os
import shutil
import socket
import subprocess
import threading
import time

import psycopg
import pytest

import zarrs
from cluster import SERVER_USER, open_up, wait_for
from conftest import make_database, no_internal_errors, start

#: a resolver that never answers for names below hang.test
RESOLVER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");

    while (node != NULL && strstr(node, "hang.test") != NULL)
        pause();
    return next(node, service, hints, result);
}
"""


@pytest.fixture(scope="module")
def server(folder):
    """A cluster with the hanging resolver and a cache."""
    library = os.path.join(folder, "resolver.so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, "-x", "c", "-", "-ldl"], input=RESOLVER, text=True, check=True)
    os.chmod(library, 0o755)
    cache = os.path.join(folder, "cache")
    os.mkdir(cache, 0o700)
    if os.geteuid() == 0:
        try:
            shutil.chown(cache, SERVER_USER, SERVER_USER)
        except LookupError:
            pass
    os.environ["LD_PRELOAD"] = library
    try:
        made = start(folder, "cancel", "shared_preload_libraries=tensorbank", f"tensorbank.cache_directory={cache}")
    finally:
        del os.environ["LD_PRELOAD"]
    yield made
    text = made.log()
    made.wipe()
    bad = no_internal_errors(text)
    assert not bad, "internal errors in the server's log:\n" + "\n".join(bad[:20])


class Silent:
    """A socket that takes connections and says nothing; `full`: not even that."""

    def __init__(self, full=False):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0 if full else 16)
        self.address = self.listener.getsockname()
        self.others = []
        for _ in range(4 if full else 0):
            other = socket.socket()
            other.setblocking(False)
            other.connect_ex(self.address)
            self.others.append(other)

    def close(self):
        for s in (*self.others, self.listener):
            s.close()


@pytest.fixture(scope="module")
def database(server, stores, faulty_session):
    zarrs.wind(f"{stores}/cancel.zarr")
    open_up(f"{stores}/cancel.zarr")
    db = make_database(server, "test_cancel")
    with db.connect() as c:
        c.execute(f"CREATE SERVER disk FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{stores}')")
        c.execute(f"CREATE SERVER shaky FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{faulty_session.url}')")
        c.execute("CREATE SERVER lookup FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'http://store.hang.test/x')")
        c.execute("CREATE SCHEMA shaky; CREATE SCHEMA disk")
        c.execute('IMPORT FOREIGN SCHEMA "cancel.zarr" FROM SERVER shaky INTO shaky')
        c.execute('IMPORT FOREIGN SCHEMA "cancel.zarr" FROM SERVER disk INTO disk')
    return db


@pytest.fixture
def silent_servers(database):
    """Servers `full_up` (no connection comes about) and `mute` (no answer to the TLS hello)."""
    full, mute = Silent(full=True), Silent()
    with database.connect() as c:
        for name, url in (("full_up", f"http://127.0.0.1:{full.address[1]}/x"), ("mute", f"https://127.0.0.1:{mute.address[1]}/x")):
            c.execute(f"DROP SERVER IF EXISTS {name} CASCADE")
            c.execute(f"CREATE SERVER {name} FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{url}')")
    yield
    full.close()
    mute.close()


READ = "SELECT tensorbank.read(t) FROM shaky.cancel"
KNOW = "SELECT count(*) FROM shaky.cancel"

#: where a statement waits: what the store does, settings, the statement, what the session knows before
SITES = {
    "resolution": (None, "", 'IMPORT FOREIGN SCHEMA "y" FROM SERVER lookup INTO public', None),
    "connect": (None, "", 'IMPORT FOREIGN SCHEMA "y" FROM SERVER full_up INTO public', None),
    "tls": (None, "", 'IMPORT FOREIGN SCHEMA "y" FROM SERVER mute INTO public', None),
    "metadata": ((r"zarr.json|zmetadata", "hang", {}), "tensorbank.metadata_max_age = 1", KNOW, None),
    "first byte": ((r"/t/c/", "hang", {}), "", READ, KNOW),
    "body": ((r"/t/c/", "hang_body", {}), "", READ, KNOW),
    "back-off": ((r"/t/c/0/0/0$", "status", {"code": 500}), "tensorbank.retries = 100", READ, KNOW),
    "throttle": ((r"/t/c/0/0/0$", "status", {"code": 503, "headers": {"Retry-After": "30"}}), "", READ, KNOW),
    "budget": ((r"/t/c/0/0/0$", "hang", {}), "tensorbank.max_requests_in_flight = 1", READ, KNOW),
}


def goes_on(connection):
    connection.execute("SET statement_timeout = 0")
    assert connection.execute("SELECT count(*) FROM disk.cancel").fetchone() == (36,)


def end_by_cancel(connection, sql):
    """Seconds from the cancel to the statement's end."""
    began = []

    def cancel():
        began.append(time.monotonic())
        connection.cancel()

    timer = threading.Timer(0.3, cancel)
    timer.start()
    try:
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(sql).fetchall()
        return time.monotonic() - began[0]
    finally:
        timer.join()


def end_by_timeout(connection, sql):
    connection.execute("SET statement_timeout = '300ms'")
    began = time.monotonic()
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute(sql).fetchall()
    return time.monotonic() - began - 0.3


@pytest.mark.parametrize("end", [end_by_cancel, end_by_timeout])
@pytest.mark.parametrize("site", SITES)
def test_cancel(database, silent_servers, faulty, site, end):
    rule, setting, sql, before = SITES[site]
    times = []
    for _ in range(3):
        faulty.reset()
        with database.connect() as c:
            if setting:
                c.execute(f"SET {setting}")
            if before:
                c.execute(before).fetchall()
            if rule:
                faulty.rule(rule[0], rule[1], **rule[2])
            times.append(end(c, sql))
            if rule:
                assert faulty.requests(rule[0]), "the statement did not get so far"
            goes_on(c)
    assert max(times) < 1.0, times
    assert min(times) < 0.1, times


def test_cancel_twice_on_one_session(database, silent_servers, faulty):
    """One session goes through all waits, one after the other, and reads rightly at the end."""
    with database.connect() as c:
        c.execute(KNOW).fetchall()
        for rule, setting, sql, _ in SITES.values():
            faulty.reset()
            if rule:
                c.execute("SET tensorbank.metadata_max_age = " + ("1" if "max_age" in setting else "'1min'"))
                faulty.rule(rule[0], rule[1], **rule[2])
            assert end_by_timeout(c, sql) < 1.0
            goes_on(c)
        faulty.reset()
        assert c.execute("SELECT count(tensorbank.read(t)) FROM shaky.cancel").fetchone() == (36,)


def test_cancel_while_another_fetches(database, faulty):
    """The second of two who want the same bytes waits for the first one's request, and can be cancelled there."""
    with database.connect() as first, database.connect() as second:
        for c in (first, second):
            c.execute(KNOW).fetchall()
        faulty.rule(r"/p/c/", "hang")
        sql = "SELECT tensorbank.read(p) FROM shaky.cancel WHERE tensorbank.origin(p) = '{0,0,4}'"
        holder = threading.Thread(target=lambda: pytest.raises(psycopg.Error, first.execute, sql))
        holder.start()
        try:
            assert wait_for(lambda: len(faulty.requests(r"/p/c/")) == 1)
            for end in (end_by_cancel, end_by_timeout):
                assert end(second, sql) < 1.0
                goes_on(second)
            assert len(faulty.requests(r"/p/c/")) == 1, "the second one asked the store itself"
        finally:
            first.cancel()
            holder.join()
        # the one who fetched is gone: the next one does it
        faulty.reset()
        assert second.execute(f"SELECT count(x) FROM ({sql}) AS s(x)").fetchone() == (1,)


def test_end_of_session_while_waiting(database, faulty):
    """pg_terminate_backend is heard as soon."""
    faulty.rule(r"/p/c/", "hang")
    with database.connect() as c, database.connect() as other:
        c.execute(KNOW).fetchall()
        began = []

        def end():
            began.append(time.monotonic())
            other.execute("SELECT pg_terminate_backend(%s)", (c.info.backend_pid,))

        timer = threading.Timer(0.3, end)
        timer.start()
        with pytest.raises(psycopg.OperationalError):
            c.execute("SELECT tensorbank.read(p) FROM shaky.cancel").fetchall()
        assert time.monotonic() - began[0] < 1.0
        timer.join()
        assert wait_for(lambda: other.execute("SELECT requests FROM tensorbank.node_status").fetchone() == (0,), 3)
