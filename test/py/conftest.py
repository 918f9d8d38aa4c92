"""Fixtures: a private cluster with the module preloaded, one without, nginx, the faulty server, a database per module."""

import os
import re
import shutil
import tempfile
import types
import uuid

import psycopg
import pytest

import cluster as clusters
import faulty as faulty_server
import s3
import tensorbank


@pytest.fixture(scope="session")
def folder():
    """A folder that the server's user may enter; removed at the end."""
    path = tempfile.mkdtemp(prefix="tb-py.", dir=os.environ.get("TMPDIR", "/tmp"))
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def stores(folder):
    """Where stores are written; the server reads them, and writes indexes beside them."""
    path = os.path.join(folder, "stores")
    os.mkdir(path)
    os.chmod(path, 0o777)
    return path


@pytest.fixture(scope="session")
def index_folder(folder):
    path = os.path.join(folder, "index")
    os.mkdir(path)
    os.chmod(path, 0o777)
    return path


def no_internal_errors(log):
    """Lines of a server log that speak of an internal error."""
    return [line for line in log.splitlines() if re.search(r"\bXX000\b|PANIC|TRAP:|terminated by signal 11|stack smashing", line)]


def start(folder, name, *options):
    path = os.path.join(folder, name)
    os.mkdir(path)
    # %e: the SQLSTATE, so that the log can be searched for it
    return clusters.Cluster(path, "log_line_prefix=%m_[%p]_%b_%e_", *options).start()


@pytest.fixture(scope="session")
def server(folder):
    # tests count requests: none is sent twice but where a test wants it
    made = start(folder, "cluster", "shared_preload_libraries=tensorbank", "max_connections=60", "tensorbank.hedge_percent=0")
    yield made
    text = made.log()
    made.wipe()
    bad = no_internal_errors(text)
    assert not bad, "internal errors in the server's log:\n" + "\n".join(bad[:20])


@pytest.fixture(scope="session")
def bare_server(folder):
    """A cluster that does not preload the module."""
    made = start(folder, "bare")
    yield made
    text = made.log()
    made.wipe()
    bad = no_internal_errors(text)
    assert not bad, "internal errors in the server's log:\n" + "\n".join(bad[:20])


@pytest.fixture(scope="session")
def web(folder, stores):
    made = clusters.Web(os.path.join(folder, "nginx"), stores)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def faulty_session(stores):
    made = faulty_server.Faulty(stores)
    yield made
    made.stop()


@pytest.fixture
def faulty(faulty_session):
    faulty_session.reset()
    yield faulty_session
    faulty_session.reset()


@pytest.fixture(scope="session")
def s3_servers(folder):
    made = s3.Servers(os.path.join(folder, "s3"))
    os.mkdir(made.folder)
    os.chmod(made.folder, 0o755)
    yield made
    made.wipe()


class Database:
    """A database with the extension, servers `disk` (file://), `web` (nginx), and roles of its own."""

    def __init__(self, server, name):
        self.server = server
        self.name = name

    def connect(self, user="postgres", **more):
        connection = self.server.connect(self.name, user, **more)
        connection.execute("SET timezone = 'UTC'")
        return connection

    def dsn(self, user="postgres", **more):
        return self.server.dsn(self.name, user, **more)


def make_database(server, name):
    with server.connect() as c:
        c.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        c.execute(f'CREATE DATABASE "{name}"')
    database = Database(server, name)
    with database.connect() as c:
        c.execute("CREATE EXTENSION tensorbank")
    return database


@pytest.fixture(scope="module")
def db(server, stores, index_folder, web, request):
    database = make_database(server, request.module.__name__)
    with database.connect() as c:
        c.execute(f"CREATE SERVER disk FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{stores}')")
        index = os.path.join(index_folder, request.module.__name__)
        os.mkdir(index)
        os.chmod(index, 0o777)
        c.execute(f"CREATE SERVER web FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{web.url}', index_url 'file://{index}')")
    return database


@pytest.fixture
def conn(db):
    with db.connect() as c:
        c.notices = []
        # the diagnostics are gone when the handler returns: a copy
        c.add_notice_handler(lambda d: c.notices.append(types.SimpleNamespace(
            severity_nonlocalized=d.severity_nonlocalized, sqlstate=d.sqlstate, message_primary=d.message_primary,
            message_detail=d.message_detail, message_hint=d.message_hint)))
        yield c


def read_array(connection, sql, *params):
    """The one tensor of a query as a numpy array."""
    with connection.cursor(binary=True) as cursor:
        cursor.execute(sql, params or None)
        (value,) = cursor.fetchone()
    return None if value is None else tensorbank.from_npy(bytes(value))


def fails(connection, state, sql, *params):
    """Run a statement that must fail with a SQLSTATE; returns the diagnostics."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(sql, params or None)
    diag = caught.value.diag
    assert caught.value.sqlstate == state, f"{caught.value.sqlstate} instead of {state}: {diag.message_primary} ({diag.message_detail})"
    return diag


def unique(prefix):
    return f"{prefix}_{uuid.uuid4().hex[:8]}"


#: lines that tests want told at the end of the run, whatever passed
SUMMARY = []


def pytest_terminal_summary(terminalreporter):
    for line in SUMMARY:
        terminalreporter.write_line(line)
