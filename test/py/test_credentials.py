"""Whose credentials count, who may use the database server's own, and that no secret shows. Against a real S3 server where the shared
test services are at hand: temporary keys, keys that expire in the middle, mappings that change under running streams."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import urllib.request

import numpy as np
import psycopg
import pytest

import cluster
import tensorbank
import zarrs
from conftest import fails, read_array, unique

SHARED = os.environ.get("TB_SHARED", os.path.join(os.path.dirname(cluster.ROOT), "shared"))
SERVICES = os.path.join(SHARED, "test-services")
ID, SECRET, TOKEN = "AKCANARYID0000000001", "canarySECRETcanary/secret+000000000001", "canaryTOKEN=="
FDW = "FOREIGN DATA WRAPPER tensorbank"


@pytest.fixture(scope="module")
def roles(db):
    names = ("cr_owner", "cr_user")
    with db.connect() as c:
        for name in names:
            c.execute(f"DROP ROLE IF EXISTS {name}")
            c.execute(f"CREATE ROLE {name} LOGIN")
        c.execute(f"GRANT USAGE ON {FDW} TO cr_owner; GRANT CREATE ON DATABASE {db.name} TO cr_owner")
        c.execute("GRANT CREATE ON SCHEMA public TO cr_owner")
    yield names
    with db.connect() as c:
        for name in names:
            c.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def server(url="s3://bucket/prefix", name="x", **options):
    more = "".join(f", {key} '{value}'" for key, value in options.items())
    return f"CREATE SERVER {name} {FDW} OPTIONS (url '{url}'{more})"


# ---- options: role x object x action ----

BAD_SERVERS = [
    ("HV00D", server("file:///tmp", region="eu-de")), ("HV00D", server("https://h/x", endpoint="https://h")),
    ("HV00D", server("https://h/x", credentials="environment")), ("HV00D", server("file:///tmp", allowed_hosts="h")),
    ("HV00D", server("https://h/x", anonymous="true")), ("HV00D", server("https://h/x", addressing="path")),
    ("HV024", server("s3://Bucket/x")), ("HV024", server("s3://b")), ("HV024", server("s3:///x")), ("HV024", server("s3://bucket/a/../b")),
    ("HV024", server("s3://bucket//b")), ("HV024", server("s3://key:secret@bucket/x")), ("HV024", server("s3://bucket/x?versionId=1")),
    ("HV024", server(region="eu de")), ("HV024", server(region="eu.evil.com")), ("HV024", server(endpoint="h")),
    ("HV024", server(endpoint="ftp://h")), ("HV024", server(endpoint="https://h/path")), ("HV024", server(endpoint="https://u:p@h")),
    ("HV024", server(addressing="sideways")), ("HV024", server(anonymous="perhaps")), ("HV024", server(credentials="magic")),
    ("HV024", server(credentials="environment,")), ("HV024", server(credentials="environment", anonymous="true")),
    ("HV024", server(anonymous="true", requester_pays="true")), ("HV024", server(profile="p")),
    ("HV024", server(profile="p", credentials="environment")), ("HV00D", server(access_key_id=ID)), ("HV00D", server(secret_access_key=SECRET)),
    ("HV00D", server(session_token=TOKEN)), ("HV00D", server(password=SECRET)), ("HV00D", server(aws_secret_access_key=SECRET)),
]


@pytest.mark.parametrize("state,statement", BAD_SERVERS)
def test_bad_server(roles, db, state, statement):
    with db.connect() as c:
        diag = fails(c, state, statement)
        assert diag.message_hint and "canary" not in diag.message_primary + diag.message_hint + (diag.message_detail or "")
        if "canary" in statement.lower():
            assert "USER MAPPING" in diag.message_hint


BAD_MAPPINGS = [
    ("HV002", {"access_key_id": ID}), ("HV002", {"secret_access_key": SECRET}), ("HV002", {"session_token": TOKEN}),
    ("HV002", {"password": SECRET}), ("HV024", {"user": "a", "access_key_id": ID, "secret_access_key": SECRET}),
    ("HV024", {"access_key_id": ID, "secret_access_key": SECRET, "password": SECRET}), ("HV024", {"access_key_id": "a b", "secret_access_key": SECRET}),
    ("HV024", {"access_key_id": ID, "secret_access_key": SECRET + "\n"}), ("HV00D", {"secret": SECRET}), ("HV00D", {"credentials": "environment"}),
]


@pytest.mark.parametrize("state,options", BAD_MAPPINGS)
def test_bad_mapping(roles, db, state, options):
    with db.connect() as c:
        c.execute("BEGIN; " + server(anonymous="true"))
        more = ", ".join(f"{key} '{value}'" for key, value in options.items())
        diag = fails(c, state, f"CREATE USER MAPPING FOR CURRENT_USER SERVER x OPTIONS ({more})")
        assert diag.message_hint and "canary" not in diag.message_primary + diag.message_hint + (diag.message_detail or "")


@pytest.mark.parametrize("options,superuser,owner", [
    ({}, None, None), ({"anonymous": "true"}, None, None), ({"region": "eu-de", "endpoint": "https://h:1"}, None, None),
    ({"credentials": "environment"}, None, "2F003"), ({"credentials": "instance, container"}, None, "2F003"),
    ({"credentials": "profile", "profile": "p"}, None, "2F003"), ({"allowed_hosts": "169.254.0.0/16"}, None, "42501"),
])
def test_who_may_create(roles, db, options, superuser, owner):
    for role, state in (("postgres", superuser), ("cr_owner", owner), ("cr_user", "42501")):
        with db.connect(role) as c:
            if state is not None:
                assert fails(c, state, server(**options)).message_hint or state == "42501"
                continue
            c.execute(server(**options))
            # neither by a later step
            if role != "postgres":
                fails(c, "2F003", "ALTER SERVER x OPTIONS (ADD credentials 'environment')") if "anonymous" not in options else None
                fails(c, "42501", "ALTER SERVER x OPTIONS (ADD allowed_hosts '169.254.169.254')")
            c.execute("DROP SERVER x")


TABLE = "CREATE FOREIGN TABLE public.{0} (block bigint, t tensorbank.tensor_ref) SERVER {0}"


@pytest.fixture
def ambient(roles, db):
    """A superuser's server with the database server's credentials, a table, and a view that its superuser owns."""
    name = unique("amb")
    with db.connect() as c:
        c.execute(server("s3://bucket/x", name, endpoint="http://127.0.0.1:9", credentials="environment"))
        c.execute(TABLE.format(name) + f"; CREATE VIEW {name}_view AS SELECT * FROM {name}; GRANT SELECT ON {name}_view, {name} TO cr_user, cr_owner")
    yield name
    with db.connect() as c:
        c.execute(f"DROP SERVER {name} CASCADE")


def test_ambient_goes_with_the_owner(ambient, db):
    # no credentials in the environment of this cluster: tried, and none found
    for role in ("postgres", "cr_user"):
        for relation in (ambient, f"{ambient}_view"):
            with db.connect(role) as c:
                diag = fails(c, "28000", f"SELECT * FROM {relation}")
                assert "AWS_ACCESS_KEY_ID is not set" in diag.message_detail and diag.message_hint
    with db.connect() as c:
        c.execute(f"ALTER SERVER {ambient} OWNER TO cr_owner")
    # the owner counts, not who asks and not who owns the view; superusers get no exception
    for role in ("postgres", "cr_user", "cr_owner"):
        for relation in (ambient, f"{ambient}_view"):
            with db.connect(role) as c:
                diag = fails(c, "2F003", f"SELECT * FROM {relation}")
                assert "cr_owner" in diag.message_detail and "user mapping" in diag.message_hint
    with db.connect("cr_owner") as c:
        c.execute(f"ALTER SERVER {ambient} OPTIONS (DROP credentials)")
        # without any the plain owner's server has nothing to sign with
        fails(c, "2F003", f"SELECT * FROM {ambient}")
        c.execute(f"ALTER SERVER {ambient} OPTIONS (ADD anonymous 'true')")
        fails(c, "HV00N", f"SELECT * FROM {ambient}")
        c.execute(f"CREATE USER MAPPING FOR CURRENT_USER SERVER {ambient} OPTIONS (user '{ID}', password '{SECRET}')")
        assert "anonymous" in fails(c, "HV024", f"SELECT * FROM {ambient}").message_primary


def test_a_plain_owner_cannot_reach_metadata(roles, db):
    with db.connect("cr_owner") as c:
        for url, options in (("http://169.254.169.254/latest", {}), ("s3://bucket/x", {"endpoint": "http://169.254.169.254", "anonymous": "true"}),
                             ("http://[::ffff:169.254.169.254]/", {}), ("http://0.0.0.0:80/", {})):
            name = unique("meta")
            c.execute(server(url, name, **options))
            c.execute(TABLE.format(name))
            fails(c, "42501", f"SELECT * FROM {name}")
            c.execute(f"DROP SERVER {name} CASCADE")


def test_keys_of_a_mapping(roles, db):
    name = unique("keys")
    with db.connect() as c:
        c.execute(server("s3://bucket/x", name, endpoint="http://127.0.0.1:9"))
        c.execute(TABLE.format(name))
        assert "user mapping" in fails(c, "28000", f"SELECT * FROM {name}").message_detail
        c.execute(f"CREATE USER MAPPING FOR CURRENT_USER SERVER {name} OPTIONS (user '{ID}')")
        fails(c, "HV002", f"SELECT * FROM {name}")
        c.execute(f"ALTER USER MAPPING FOR CURRENT_USER SERVER {name} OPTIONS (ADD password '{SECRET}')")
        fails(c, "HV00N", f"SELECT * FROM {name}")
        # only who may see them sees them
        c.execute(f"GRANT USAGE ON FOREIGN SERVER {name} TO cr_user")
        assert SECRET in str(c.execute("SELECT umoptions FROM pg_user_mappings WHERE srvname = %s", (name,)).fetchone())
        with db.connect("cr_user") as other:
            assert other.execute("SELECT umoptions FROM pg_user_mappings WHERE srvname = %s", (name,)).fetchone() == (None,)
        c.execute(f"DROP SERVER {name} CASCADE")


def test_no_secret_shows(roles, db, server):
    """Errors, plans, views, and the whole log at debug5 of everything but the statement that sets the mapping."""
    name = unique("canary")
    told = []
    with db.connect() as c:
        c.add_notice_handler(lambda d: told.append(f"{d.message_primary} {d.message_detail} {d.message_hint} {d.context}"))
        c.execute(f"CREATE SERVER {name} {FDW} OPTIONS (url 's3://bucket/x', endpoint 'http://127.0.0.1:9')")
        c.execute(TABLE.format(name))
        c.execute(f"CREATE USER MAPPING FOR CURRENT_USER SERVER {name} OPTIONS (access_key_id '{ID}', secret_access_key '{SECRET}',"
                  f" session_token '{TOKEN}')")
        mark = len(server.log())
        c.execute("SET log_min_messages = debug5; SET client_min_messages = debug5; SET log_error_verbosity = verbose")
        for sql in (f"SELECT * FROM {name}", f"EXPLAIN VERBOSE SELECT * FROM {name}", f'IMPORT FOREIGN SCHEMA "a.zarr" FROM SERVER {name} INTO public',
                    f"SELECT * FROM tensorbank.open_stream(query => 'SELECT * FROM {name}')"):
            try:
                told.extend(str(row) for row in c.execute(sql).fetchall())
            except psycopg.Error as e:
                told.append(f"{e.diag.message_primary} {e.diag.message_detail} {e.diag.message_hint} {e.diag.context}")
        for view in [r[0] for r in c.execute("SELECT viewname FROM pg_views WHERE schemaname = 'tensorbank'").fetchall()]:
            try:
                told.extend(str(row) for row in c.execute(f"SELECT * FROM tensorbank.{view}").fetchall())
            except psycopg.Error as e:
                told.append(str(e))
        told.extend(str(row) for row in c.execute("SELECT query FROM pg_stat_activity").fetchall())
        c.execute("RESET log_min_messages; RESET client_min_messages")
        c.execute(f"DROP SERVER {name} CASCADE")
    told.append(server.log()[mark:])
    assert len(told) > 5 and name in told[-1]
    for text in told:
        assert "canary" not in text.replace(name, ""), text[:500]


# ---- a real S3 server ----

def assignments(text):
    return dict(re.findall(r'^(S3_\w+)="?([^"\n]*)"?$', text, re.M))


@pytest.fixture(scope="module")
def s3(folder):
    """The server's address and keys: from the environment, else one is started."""
    script = os.path.join(SERVICES, "s3-server", "s3-server.sh")
    if not os.path.exists(script):
        pytest.skip(f"no S3 server: {script} is missing (TB_SHARED)")
    if "S3_STS_ENDPOINT" in os.environ:
        made = dict(os.environ)
        yield made
        return
    base = cluster.free_port()
    made = {**os.environ, "S3_PORT": str(base), "S3_DIR": os.path.join(folder, "s3-creds"), "S3_BUCKETS": "creds", "S3_KIND": "radosgw"}
    done = subprocess.run(["bash", script, "start"], env=made, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        pytest.skip(f"the S3 server does not start here: {done.stderr[-200:]}")
    made.update(assignments(done.stdout))
    yield made
    subprocess.run(["bash", script, "wipe"], env=made, capture_output=True, timeout=120)


def new_token(s3):
    script = os.path.join(SERVICES, "s3-server", "s3-sts.py")
    done = subprocess.run([sys.executable, script, s3["S3_STS_ENDPOINT"], s3["S3_ACCESS_KEY"], s3["S3_SECRET_KEY"],
                           "arn:aws:iam:::role/tensorbank"], capture_output=True, text=True, timeout=60, check=True)
    found = assignments(done.stdout)
    return found["S3_ACCESS_KEY"], found["S3_SECRET_KEY"], found["S3_SESSION_TOKEN"]


class Proxy:
    def __init__(self, upstream):
        self.port, self.admin = cluster.free_port(), cluster.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(SERVICES, "fault-proxy", "fault-proxy.py"), "--upstream", upstream, "--listen",
             f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert cluster.wait_for(self.answers, 10)

    def call(self, method, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin}{path}", method=method,
                                         data=None if body is None else json.dumps(body).encode())
        return json.loads(urllib.request.urlopen(request, timeout=10).read() or b"null")

    def answers(self):
        try:
            return self.call("GET", "/stats") is not None
        except OSError:
            return False

    def expire(self, *ids):
        """From now on the store says of these keys that they have expired."""
        self.call("PUT", "/rules", [{"id": i, "match": {"header": {"authorization": i}}, "fault": "expired"} for i in ids])

    def hits(self):
        return self.call("GET", "/stats")["requests"]


@pytest.fixture(scope="module")
def bucket(s3, db, stores):
    """A store in the bucket, behind a proxy; a server `cos` for it and a table `far`."""
    spec = importlib.util.spec_from_file_location("s3probe", os.path.join(SERVICES, "s3-server", "s3-probe.py"))
    probe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(probe)
    t, _ = zarrs.wind(f"{stores}/far.zarr", time=64, chunks=(1, 4, 4))
    client = probe.S3(s3["S3_ENDPOINT"], s3["S3_ACCESS_KEY"], s3["S3_SECRET_KEY"])
    client.req("PUT", "creds")
    for root, _, files in os.walk(f"{stores}/far.zarr"):
        for name in files:
            path = os.path.join(root, name)
            with open(path, "rb") as file:
                status = client.req("PUT", "creds", os.path.relpath(path, stores), body=file.read())[0]
            assert status == 200, path
    proxy = Proxy(s3["S3_STS_ENDPOINT"])
    with db.connect() as c:
        c.execute(f"CREATE SERVER cos {FDW} OPTIONS (url 's3://creds', endpoint '{proxy.url}', addressing 'path')")
        set_mapping(c, new_token(s3), "CREATE")
        c.execute('IMPORT FOREIGN SCHEMA "far.zarr" FROM SERVER cos INTO public')
    yield t, proxy
    proxy.process.terminate()
    proxy.process.wait()


def set_mapping(connection, keys, verb="ALTER"):
    word = "SET " if verb == "ALTER" else ""
    names = ("access_key_id", "secret_access_key", "session_token")
    options = ", ".join(f"{word}{name} '{value}'" for name, value in zip(names, keys))
    connection.execute(f"{verb} USER MAPPING FOR CURRENT_USER SERVER cos OPTIONS ({options})")


@pytest.fixture
def far(bucket, s3, db):
    """(values, proxy, connection, keys): fresh keys in the mapping, nothing expired."""
    t, proxy = bucket
    proxy.call("PUT", "/rules", [])
    keys = new_token(s3)
    with db.connect() as c:
        set_mapping(c, keys)
        yield t, proxy, c, keys


WHOLE = "SELECT tensorbank.read(tensorbank.ref('far', 't'))"


def test_session_token(far, s3):
    t, _, c, keys = far
    np.testing.assert_array_equal(read_array(c, WHOLE), t)
    # another token with the same key is refused, and a mapping set right is used by the next statement
    set_mapping(c, (keys[0], keys[1], "x" + keys[2]))
    with pytest.raises(psycopg.Error) as caught:
        read_array(c, WHOLE)
    assert caught.value.sqlstate in ("28000", "42501") and keys[2] not in str(caught.value)
    set_mapping(c, keys)
    np.testing.assert_array_equal(read_array(c, WHOLE), t)


def test_expired_in_a_scan(far, s3):
    t, proxy, c, keys = far
    with c.transaction():
        c.execute("DECLARE k CURSOR FOR SELECT tensorbank.read(t) FROM far ORDER BY block")
        assert len(c.execute("FETCH 2 FROM k").fetchall()) == 2
        proxy.expire(keys[0])
        c.execute("SAVEPOINT s")
        diag = fails(c, "28000", "FETCH ALL FROM k")
        assert diag.message_hint and keys[1] not in str(diag.message_detail)
    set_mapping(c, new_token(s3))
    np.testing.assert_array_equal(read_array(c, WHOLE), t)


STREAM = "SELECT t FROM far"


def batches_by_sql(c, number):
    while True:
        row = c.execute("SELECT tensors::text[] FROM tensorbank.next_batch(%s)", (number,)).fetchone()
        if row is None:
            return
        yield [read_array(c, "SELECT tensorbank.read(%s::tensorbank.handle)", handle) for handle in row[0]]
        c.execute("SELECT tensorbank.release(%s::text[]::tensorbank.handle[])", (row[0],))


def expected(t):
    """What a stream over all blocks brings, as a sorted list of sums (NaN aside)."""
    k, j, i = t.shape[0], t.shape[1] // 4, t.shape[2] // 4
    return sorted(float(np.nansum(t[a, 4 * b:4 * b + 4, 4 * d:4 * d + 4].astype("f8"))) for a in range(k) for b in range(j) for d in range(i))


def test_a_mapping_changes_under_a_stream(far, s3):
    """By SQL: changed keys are sent with the next batch, and what was fetched ahead with the old ones is fetched again."""
    t, proxy, c, keys = far
    number = c.execute("SELECT stream FROM tensorbank.open_stream(query => %s, batch_size => 8, prefetch => 2)", (STREAM,)).fetchone()[0]
    seen = []
    for n, (batch,) in enumerate(batches_by_sql(c, number)):
        seen.extend(float(np.nansum(sample.astype("f8"))) for sample in batch)
        if n == 5:
            fresh = new_token(s3)
            proxy.expire(keys[0])
            set_mapping(c, fresh)
    assert sorted(seen) == expected(t)


def test_expired_without_others(far, s3):
    """Renewed once, refused again: the error, not a wait."""
    t, proxy, c, keys = far
    number = c.execute("SELECT stream FROM tensorbank.open_stream(query => %s, batch_size => 8, prefetch => 2)", (STREAM,)).fetchone()[0]
    stream = batches_by_sql(c, number)
    next(stream)
    proxy.expire(keys[0])
    with pytest.raises(psycopg.Error) as caught:
        for _ in stream:
            pass
    assert caught.value.sqlstate == "28000" and caught.value.diag.message_hint


def test_the_client_renews(far, s3, db):
    """On the socket: the streamer says renew, the client has its session send the new keys, no batch is lost."""
    t, proxy, c, keys = far
    data = tensorbank.dataset(db.dsn(), STREAM, batch_size=8, prefetch=2, output="numpy", copy=True)
    seen = []
    for n, batch in enumerate(data):
        seen.extend(float(np.nansum(sample.astype("f8"))) for sample in batch.t)
        if n == 5:
            fresh = new_token(s3)
            set_mapping(c, fresh)
            proxy.expire(keys[0])
    assert sorted(seen) == expected(t)
    set_mapping(c, new_token(s3))
    data = tensorbank.dataset(db.dsn(), STREAM, batch_size=8, prefetch=2, output="numpy", copy=True)
    with pytest.raises(tensorbank.StreamError) as caught:
        for n, batch in enumerate(data):
            if n == 1:
                proxy.call("PUT", "/rules", [{"id": "all", "fault": "expired"}])
    assert caught.value.code == "auth"
