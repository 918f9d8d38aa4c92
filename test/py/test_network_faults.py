"""The catalogue of network faults, N1 to N27, through SELECT read(...): the right bytes or the right SQLSTATE, never other bytes.

Three layouts: `plain`, many small objects; `shards`, ranges of few objects, which are merged; `large`, uncompressed chunks of
2 MiB, whose transfers break in the middle.
"""

import email.utils
import os
import subprocess
import threading
import time

import numpy as np
import psycopg
import pytest
import zarr

import faulty as scripted
import fakes3
import s3
import zarrs
from cluster import SERVER_USER, open_up
from conftest import fails, make_database, no_internal_errors, read_array, start, unique

#: a resolver that answers for names below map.test as a file says, one "name answer" a line
RESOLVER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
    FILE *file;
    char name[256], answer[256];

    if (node == NULL || strstr(node, ".map.test") == NULL || (file = fopen("@FILE@", "r")) == NULL)
        return next(node, service, hints, result);
    while (fscanf(file, "%255s %255s", name, answer) == 2)
        if (strcmp(name, node) == 0)
        {
            fclose(file);
            if (strcmp(answer, "servfail") == 0)
                return EAI_AGAIN;
            if (strcmp(answer, "slow") == 0)
            {
                sleep(10);
                return EAI_NONAME;
            }
            return next(answer, service, hints, result);
        }
    fclose(file);
    return EAI_NONAME;
}
"""

CHUNKS = {"plain": r"/plain.zarr/t/c/", "shards": r"/shards.zarr/t/c/", "large": r"/large.zarr/x/c/"}
LAYOUTS = list(CHUNKS)


@pytest.fixture(scope="module")
def names(folder):
    """The file of the resolver's answers."""
    path = os.path.join(folder, "names")
    with open(path, "w") as file:
        file.write("nothing.map.test servfail\n")
    os.chmod(path, 0o644)
    return path


@pytest.fixture(scope="module")
def profile(folder):
    return os.path.join(folder, "profile")


@pytest.fixture(scope="module")
def server(folder, names, profile):
    """A cluster with the scripted resolver and a credentials file."""
    library = os.path.join(folder, "names.so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, "-x", "c", "-", "-ldl"], input=RESOLVER.replace("@FILE@", names), text=True,
                   check=True)
    os.chmod(library, 0o755)
    os.environ["LD_PRELOAD"] = library
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = profile
    try:
        made = start(folder, "network", "shared_preload_libraries=tensorbank")
    finally:
        del os.environ["LD_PRELOAD"], os.environ["AWS_SHARED_CREDENTIALS_FILE"]
    yield made
    text = made.log()
    made.wipe()
    bad = no_internal_errors(text)
    assert not bad, "internal errors in the server's log:\n" + "\n".join(bad[:20])


@pytest.fixture(scope="module")
def golden(stores):
    """What the arrays hold: by layout."""
    t, _ = zarrs.wind(f"{stores}/plain.zarr")
    zarrs.wind(f"{stores}/shards.zarr", shards=(6, 12, 8))
    root = zarrs.group(f"{stores}/large.zarr")
    x = np.random.default_rng(3).random((3, 512, 1024), dtype="f4")
    zarrs.put(root, "x", x, (1, 512, 1024), ("k", "j", "i"), compressors=None)
    zarr.consolidate_metadata(f"{stores}/large.zarr")
    open_up(stores)
    return {"plain": t, "shards": t, "large": x}


@pytest.fixture(scope="module")
def database(server, golden, stores, faulty_session):
    db = make_database(server, "test_network_faults")
    with db.connect() as c:
        c.execute(f"CREATE SERVER shaky FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{faulty_session.url}')")
        for name in LAYOUTS:
            c.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER shaky INTO public')
    return db


@pytest.fixture
def faulty(faulty_session):
    faulty_session.reset()
    faulty_session.settle()
    faulty_session.reset()
    yield faulty_session
    faulty_session.reset()


QUICK = "SET tensorbank.connect_timeout = '2s'; SET tensorbank.first_byte_timeout = '1s'; SET tensorbank.low_speed_time = '1s'"


def session(database, settings="", retries=3):
    """A session that knows the tables and holds no chunk."""
    c = database.connect()
    c.execute(f"SET tensorbank.retries = {retries}; {QUICK}; {settings}")
    for name in LAYOUTS:
        c.execute(f"SELECT count(*) FROM {name}").fetchall()
    return c


def column(layout):
    return "x" if layout == "large" else "t"


def read_whole(c, layout):
    return read_array(c, f"SELECT tensorbank.read(tensorbank.ref('{layout}', '{column(layout)}'))")


def read_rows(c, layout):
    """The array put together from the rows of a scan: reads that come together are merged."""
    import tensorbank

    col, whole = column(layout), None
    with c.cursor(binary=True) as cursor:
        cursor.execute(f"SELECT tensorbank.origin({col}), tensorbank.read({col}) FROM {layout}")
        for origin, value in cursor:
            block = tensorbank.from_npy(bytes(value))
            whole = whole if whole is not None else {}
            whole[tuple(origin)] = block
    return whole


def right(c, layout, golden):
    """The scan's bytes and the whole array's are the golden ones."""
    want = golden[layout]
    rows = read_rows(c, layout)
    assert len(rows) == (3 if layout == "large" else 36)
    for origin, block in rows.items():
        part = want[tuple(slice(o, o + n) for o, n in zip(origin, block.shape))]
        assert block.tobytes() == part.tobytes(), f"other bytes at {origin}"
    assert read_whole(c, layout).tobytes() == want.tobytes()


def passes(database, golden, faulty, layout, action, settings="", retries=3, pattern=None, **options):
    """A fault that passes: the right bytes, and it did happen."""
    with session(database, settings, retries) as c:
        faulty.log.clear()
        faulty.rule(pattern or CHUNKS[layout], action, **{"times": 1, **options})
        right(c, layout, golden)
        assert any(entry[3] == action for entry in faulty.log), "the fault did not happen"


def lasts(database, faulty, layout, action, states, settings="", retries=1, pattern=None, **options):
    """A fault that lasts: an error of these states, with an object in it, and the session goes on; its diagnostics."""
    col = column(layout)
    with session(database, settings, retries) as c:
        faulty.rule(pattern or CHUNKS[layout], action, **options)
        with pytest.raises(psycopg.Error) as caught:
            c.execute(f"SELECT tensorbank.read({col}) FROM {layout}").fetchall()
        diag = caught.value.diag
        states = (states,) if isinstance(states, str) else states
        assert caught.value.sqlstate in states, f"{caught.value.sqlstate}: {diag.message_primary} ({diag.message_detail})"
        assert f"{layout}.zarr" in f"{diag.message_detail}"
        faulty.reset()
        n, = c.execute(f"SELECT count(tensorbank.read({col})) FROM {layout}").fetchone()
        assert n == (3 if layout == "large" else 36)
        return diag


# ---- N1 to N3: the connection breaks ----

@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("after", [None, 0, 1, -1, 1000])
def test_n01_reset(database, golden, faulty, layout, after):
    if after is None:
        passes(database, golden, faulty, layout, "reset", times=2)
    else:
        passes(database, golden, faulty, layout, "reset_body", times=2, after=after)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_n01_lasting_reset(database, faulty, layout):
    lasts(database, faulty, layout, "reset", "08006")
    lasts(database, faulty, layout, "reset_body", "08006", after=1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("after", [0, 1, -1])
def test_n02_short_body(database, golden, faulty, layout, after):
    passes(database, golden, faulty, layout, "short", times=2, after=after)
    faulty.reset()
    lasts(database, faulty, layout, "short", "08006", after=after)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_n03_no_last_chunk(database, golden, faulty, layout):
    passes(database, golden, faulty, layout, "chunked", times=2, cut=True)
    faulty.reset()
    lasts(database, faulty, layout, "chunked", "08006", cut=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_n03_chunked_is_fine(database, golden, faulty, layout):
    """A body without a length that does end is no fault."""
    passes(database, golden, faulty, layout, "chunked", times=-1, retries=0)


# ---- N4 to N7: ranges ----

RANGES = r"Range: bytes=\d"


@pytest.mark.parametrize("options", [{"shift": 1}, {"shift": -1}, {"shift": 100}, {"headers": {"Content-Range": None}},
                                     {"headers": {"Content-Range": "bytes */*"}}, {"headers": {"Content-Range": "bytes 5-4/3"}},
                                     {"headers": {"Content-Range": "octets 0-1/2"}}])
def test_n04_other_range(database, golden, faulty, options):
    action = "wrong_range" if "shift" in options else "range_header"
    passes(database, golden, faulty, "shards", action, header=RANGES, **options)
    faulty.reset()
    lasts(database, faulty, "shards", action, "08P01", header=RANGES, **options)


def test_n05_shorter_range(database, golden, faulty):
    """Less than was asked for, told truthfully: retried, then an error; never short data."""
    passes(database, golden, faulty, "shards", "short_range", header=RANGES, bytes=5)
    faulty.reset()
    lasts(database, faulty, "shards", "short_range", ("08P01", "08006"), header=RANGES, bytes=5)


def test_n05_object_ends(database, faulty):
    """The object ends before what the shard's index names."""
    lasts(database, faulty, "shards", "short_range", ("XX001", "40001"), header=RANGES, bytes=5, ends=True)


def test_n06_whole_for_a_range(database, golden, faulty, stores):
    """Little more than was asked for is cut; much more is refused at once."""
    zarrs.wind(f"{stores}/narrow.zarr", shards=(2, 4, 4))
    open_up(f"{stores}/narrow.zarr")
    with session(database) as c:
        c.execute('DROP FOREIGN TABLE IF EXISTS narrow; IMPORT FOREIGN SCHEMA "narrow.zarr" FROM SERVER shaky INTO public')
        faulty.rule(r"/narrow.zarr/t/c/", "whole", header=RANGES)
        got = read_array(c, "SELECT tensorbank.read(tensorbank.ref('narrow', 't'))")
        assert got.tobytes() == golden["plain"].tobytes()


def test_n06_much_more_than_asked(database, faulty, stores):
    """One small part of a shard of 18 MiB: refused at once, not read to the end."""
    root = zarrs.group(f"{stores}/wide.zarr")
    zarrs.put(root, "x", np.ones((18, 512, 512), dtype="f4"), (1, 512, 512), ("k", "j", "i"), shards=(18, 512, 512), compressors=None)
    zarr.consolidate_metadata(f"{stores}/wide.zarr")
    open_up(f"{stores}/wide.zarr")
    with session(database) as c:
        c.execute('DROP FOREIGN TABLE IF EXISTS wide; IMPORT FOREIGN SCHEMA "wide.zarr" FROM SERVER shaky INTO public')
        faulty.rule(r"/wide.zarr/x/c/", "whole", header=RANGES)
        diag = fails(c, "0A000", "SELECT tensorbank.read(x) FROM wide WHERE block = 3")
        assert diag.message_hint and "wide.zarr/x/c/0/0/0" in diag.message_detail
        faulty.reset()
        assert (read_array(c, "SELECT tensorbank.read(x) FROM wide WHERE block = 3") == 1).all()


def test_n07_object_shrank(database, faulty):
    lasts(database, faulty, "shards", "status", "40001", header=RANGES, code=416, headers={"Content-Range": "bytes */10"})


# ---- N8 to N12: statuses ----

@pytest.mark.parametrize("code, name", [(503, "SlowDown"), (429, "TooManyRequests")])
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_n08_waits_as_told(database, golden, faulty, code, name, form):
    after = "2" if form == "seconds" else email.utils.formatdate(time.time() + 3, usegmt=True)
    with session(database) as c:
        faulty.rule(CHUNKS["plain"] + "1/1/1$", "error", times=1, code=code, name=name, headers={"Retry-After": after})
        begin = time.monotonic()
        assert read_whole(c, "plain").tobytes() == golden["plain"].tobytes()
        assert 1.0 < time.monotonic() - begin < 8


def test_n08_lasting_throttle(database, faulty):
    diag = lasts(database, faulty, "plain", "error", "53000", code=503, name="SlowDown", headers={"Retry-After": "1"})
    assert "503" in diag.message_detail and "wait 1 s" in diag.message_detail


def test_n08_absurd_wait_is_interruptible(database, faulty):
    with session(database) as c:
        faulty.rule(CHUNKS["plain"], "error", code=503, name="SlowDown", headers={"Retry-After": "1000000000"})
        c.execute("SET statement_timeout = '700ms'")
        begin = time.monotonic()
        fails(c, "57014", "SELECT tensorbank.read(t) FROM plain")
        assert time.monotonic() - begin < 1.7


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("code", [500, 502, 504])
def test_n09_burst(database, golden, faulty, layout, code):
    passes(database, golden, faulty, layout, "status", times=3, code=code, retries=5)


def test_n10_error_in_a_200(database, golden, faulty):
    """Instead of a range: asked again. Instead of a whole chunk, whose length nobody knows: its decoder finds it out."""
    passes(database, golden, faulty, "shards", "xml", times=1)


@pytest.mark.parametrize("layout, states", [("shards", ("08P01", "0A000", "XX001")), ("plain", "XX001"), ("large", "XX001")])
def test_n10_error_in_every_200(database, faulty, layout, states):
    lasts(database, faulty, layout, "xml", states)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_n11_denied(database, faulty, layout):
    diag = lasts(database, faulty, layout, "error", "42501", code=403, name="AccessDenied")
    assert "403" in diag.message_detail


def test_n12_missing(database, golden, faulty):
    """A chunk: fill value. An array, a group: an error."""
    with session(database) as c:
        faulty.rule(CHUNKS["plain"] + "0/1/1$", "error", code=404, name="NoSuchKey")
        want = golden["plain"].copy()
        want[0:2, 4:8, 4:8] = np.nan
        assert np.array_equal(read_whole(c, "plain"), want, equal_nan=True)
    for what in ("missing bucket", "array"):
        faulty.reset()
        with database.connect() as c:
            if what == "array":
                faulty.rule(r"/plain.zarr/.*zarr.json|/plain.zarr/\.z", "error", code=404, name="NoSuchKey")
                with pytest.raises(psycopg.Error) as caught:
                    c.execute("SELECT tensorbank.read(t) FROM plain").fetchall()
                assert caught.value.sqlstate in ("HV00R", "HV005", "HV00Q"), caught.value
            else:
                faulty.rule(r"/", "error", code=404, name="NoSuchBucket")
                fails(c, "HV00R", 'IMPORT FOREIGN SCHEMA "plain.zarr" FROM SERVER shaky INTO public')


def test_n12_bucket_that_is_gone(database, own):
    """NoSuchBucket in the middle of a scan is no missing chunk."""
    with database.connect() as c:
        table = s3_table(c, own, keys=(own.access_key, own.secret_key))
        bucket = own.buckets.pop(own.bucket)
        fails(c, "HV00R", f"SELECT tensorbank.read(t) FROM {table}")
        own.buckets[own.bucket] = bucket
        assert c.execute(f"SELECT count(tensorbank.read(t)) FROM {table}").fetchone() == (36,)


def test_n12_part_whose_shard_goes(database, golden, faulty):
    """The shard's index was there, so its parts are no fill values: the object changed."""
    lasts(database, faulty, "shards", "error", "40001", header=RANGES, code=404, name="NoSuchKey")


# ---- N13 to N15: silence and slowness ----

@pytest.mark.parametrize("layout", LAYOUTS)
def test_n13_no_bytes(database, golden, faulty, layout):
    begin = time.monotonic()
    passes(database, golden, faulty, layout, "hang", seconds=20)
    assert time.monotonic() - begin < 8
    faulty.reset()
    lasts(database, faulty, layout, "hang", "08006", settings="SET tensorbank.first_byte_timeout = '300ms'", seconds=20)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_n14_drip(database, golden, faulty, layout):
    """A trickle is given up and asked for again."""
    begin = time.monotonic()
    passes(database, golden, faulty, layout, "drip", bytes_per_s=10)
    assert time.monotonic() - begin < 15
    faulty.reset()
    lasts(database, faulty, layout, "drip", "08006", bytes_per_s=10, retries=0)


def test_n14_slow_is_not_stalled(database, golden, faulty):
    """A body that takes longer than every limit, at a fair pace, is read."""
    passes(database, golden, faulty, "large", "drip", times=-1, bytes_per_s=1_200_000, retries=0,
           settings="SET tensorbank.low_speed_limit = 100000; SET tensorbank.hedge_percent = 0")


@pytest.mark.parametrize("layout", ["shards", "large"])
def test_n15_timeout_inside_a_block(database, golden, faulty, layout):
    """Attempts that stop at other places, one after the other: the write position starts anew each time."""
    with session(database, retries=5) as c:
        for after in (-1, 1, 100000 if layout == "large" else 10):
            faulty.rule(CHUNKS[layout], "hang_body", times=1, after=after, seconds=20)
        right(c, layout, golden)


# ---- N16, N17: names and certificates ----

def test_n16_names(database, golden, faulty, names):
    def says(answer):
        with open(names, "w") as file:
            file.write(f"store.map.test {answer}\n")

    with database.connect() as c:
        c.execute("SET tensorbank.retries = 1")
        c.execute(f"CREATE SERVER named FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'http://store.map.test:{faulty.port}')")
        c.execute("CREATE SCHEMA named")
        statement = 'IMPORT FOREIGN SCHEMA "plain.zarr" FROM SERVER named INTO named'
        says("servfail")
        fails(c, "HV00N", statement)
        with open(names, "w") as file:
            file.write("other.map.test 127.0.0.1\n")
        fails(c, "HV00N", statement)
        says("slow")
        c.execute("SET statement_timeout = '300ms'")
        begin = time.monotonic()
        fails(c, "57014", statement)
        assert time.monotonic() - begin < 1.0
        c.execute("SET statement_timeout = 0")
        # the address changes: the old one refuses connections, a fresh look-up leads to the new one
        says("127.0.0.7")
        fails(c, "HV00N", statement)
        says("127.0.0.1")
        c.execute(statement)
        assert c.execute("SELECT count(tensorbank.read(t)) FROM named.plain").fetchone() == (36,)


def certificate(folder, name, alt, days, authority=None):
    """(certificate, key), signed by an authority or by itself."""
    base = os.path.join(folder, name)
    run = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{base}.key"]
    if authority is None:
        subprocess.run([*new, "-x509", "-days", str(days), "-out", f"{base}.pem"], **run)
    else:
        subprocess.run([*new, "-out", f"{base}.csr"], **run)
        with open(f"{base}.ext", "w") as file:
            file.write(f"subjectAltName={alt}\n")
        subprocess.run(["openssl", "x509", "-req", "-in", f"{base}.csr", "-CA", f"{authority[0]}", "-CAkey", f"{authority[1]}",
                        "-CAcreateserial", "-days", str(days), "-extfile", f"{base}.ext", "-out", f"{base}.pem"], **run)
    os.chmod(f"{base}.pem", 0o644)
    return f"{base}.pem", f"{base}.key"


@pytest.fixture(scope="module")
def authority(folder):
    return certificate(folder, "authority", None, 30)


@pytest.mark.parametrize("case", ["good", "expired", "wrong_name", "unknown", "abort"])
def test_n17_tls(database, golden, stores, folder, authority, case):
    days, alt, ca = 30, "IP:127.0.0.1", authority
    if case == "expired":
        days = -1
    elif case == "wrong_name":
        alt = "DNS:elsewhere.test"
    elif case == "unknown":
        ca = certificate(folder, "stranger", None, 30)
    tls = None if case == "abort" else certificate(folder, f"leaf_{case}", alt, days, ca)
    web = scripted.Faulty(stores, tls)
    try:
        with database.connect() as c:
            name = unique("tls")
            c.execute(f"SET tensorbank.retries = 20; CREATE SCHEMA {name}")
            c.execute(f"CREATE SERVER {name} FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'https://127.0.0.1:{web.port}', ca_file '{authority[0]}')")
            statement = f'IMPORT FOREIGN SCHEMA "plain.zarr" FROM SERVER {name} INTO {name}'
            if case == "good":
                c.execute(statement)
                assert c.execute(f"SELECT count(tensorbank.read(t)) FROM {name}.plain").fetchone() == (36,)
                return
            if case == "abort":
                c.execute("SET tensorbank.retries = 1")
            before = web.connections
            fails(c, "HV00N", statement)
            assert web.log == []
            if case != "abort":
                # one for each kind of metadata that is asked for at once
                assert web.connections - before <= 6, "trust that fails is not tried again"
    finally:
        web.stop()


# ---- N18: redirects ----

def test_n18_redirect_on_the_host(database, golden, faulty):
    with session(database) as c:
        faulty.rule(CHUNKS["plain"] + "0/0/0$", "status", times=1, code=307, headers={"Location": "/plain.zarr/t/c/0/0/0"})
        assert read_whole(c, "plain").tobytes() == golden["plain"].tobytes()


@pytest.mark.parametrize("location, state", [
    ("/plain.zarr/t/c/0/0/0", "08P01"), ("http://192.0.2.1/x", "42501"), ("http://localhost/x", "42501"), ("file:///etc/passwd", "42501"),
    ("ftp://127.0.0.1/x", "42501"), ("//169.254.169.254/latest", "42501")])
def test_n18_redirects_that_are_refused(database, faulty, location, state):
    begin = time.monotonic()
    lasts(database, faulty, "plain", "status", state, pattern=CHUNKS["plain"] + "0/0/0$", code=302, headers={"Location": location})
    assert time.monotonic() - begin < 5


def test_n18_not_to_plain_http(database, faulty, stores, folder, authority):
    web = scripted.Faulty(stores, certificate(folder, "leaf_down", "IP:127.0.0.1", 30, authority))
    try:
        with database.connect() as c:
            name = unique("down")
            c.execute(f"CREATE SCHEMA {name}; CREATE SERVER {name} FOREIGN DATA WRAPPER tensorbank"
                      f" OPTIONS (url 'https://127.0.0.1:{web.port}', ca_file '{authority[0]}')")
            c.execute(f'IMPORT FOREIGN SCHEMA "plain.zarr" FROM SERVER {name} INTO {name}')
            web.rule("/t/c/", "status", code=307, headers={"Location": f"http://127.0.0.1:{faulty.port}/plain.zarr/t/c/0/0/0"})
            fails(c, "42501", f"SELECT tensorbank.read(t) FROM {name}.plain")
            assert faulty.log == []
    finally:
        web.stop()


# ---- N19, N20: keys and clocks ----

@pytest.fixture
def own(stores, golden):
    made = s3.Fake()
    made.upload(f"{stores}/plain.zarr", "plain.zarr")
    yield made
    made.stop()


def s3_table(c, own, options="", keys=None):
    name = unique("own")
    c.execute(f"CREATE SERVER {name} FOREIGN DATA WRAPPER tensorbank OPTIONS (url 's3://{own.bucket}', endpoint '{own.endpoint}'{options})")
    if keys:
        c.execute(f"CREATE USER MAPPING FOR CURRENT_USER SERVER {name} OPTIONS (access_key_id '{keys[0]}', secret_access_key '{keys[1]}')")
    c.execute(f"CREATE SCHEMA {name}")
    c.execute(f'IMPORT FOREIGN SCHEMA "plain.zarr" FROM SERVER {name} INTO {name}')
    return f"{name}.plain"


def write_profile(path, access, secret):
    with open(path + ".new", "w") as file:
        file.write(f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n")
    os.chmod(path + ".new", 0o600)
    if os.geteuid() == 0:
        import shutil

        shutil.chown(path + ".new", SERVER_USER)
    os.replace(path + ".new", path)


def test_n19_keys_that_expire(database, golden, own, profile):
    """Keys of a file expire in the middle: read again, and the scan goes on; when the file has no better ones, 28000."""
    own.access["FIRSTKEY000000000001"] = fakes3.Key("first")
    own.access["SECONDKEY00000000001"] = fakes3.Key("second")
    write_profile(profile, "FIRSTKEY000000000001", "first")
    with database.connect() as c:
        table = s3_table(c, own, ", credentials 'profile'")
        with c.transaction(), c.cursor(name="scan", binary=True) as cursor:
            cursor.itersize = 1
            cursor.execute(f"SELECT tensorbank.read(t) FROM {table}")
            cursor.fetchone()
            own.access["FIRSTKEY000000000001"].expired = True
            write_profile(profile, "SECONDKEY00000000001", "second")
            assert len(cursor.fetchall()) == 35
        own.access["SECONDKEY00000000001"].expired = True
        fails(c, "28000", f"SELECT tensorbank.read(t) FROM {table}")


@pytest.mark.parametrize("minutes", [-20, 20])
def test_n20_clocks_that_differ(database, golden, own, minutes):
    own.clock = minutes * 60
    with database.connect() as c:
        c.execute("SET tensorbank.hedge_percent = 0")
        table = s3_table(c, own, keys=(own.access_key, own.secret_key))
        own.log.clear()
        got = read_array(c, f"SELECT tensorbank.read(tensorbank.ref('{table}', 't'))")
        assert got.tobytes() == golden["plain"].tobytes()
        # the difference is known by now: nothing is asked twice
        assert len(own.requests("/t/c/")) == 36


# ---- N21 to N23: versions and checksums ----

def test_n21_version_that_changes_once(database, golden, faulty):
    passes(database, golden, faulty, "shards", "etag", header=RANGES, value='"another"')


def test_n21_version_that_keeps_changing(database, faulty):
    lasts(database, faulty, "shards", "etag", "40001", header=RANGES)


def test_n21_never_two_versions(database, faulty, stores):
    """Shards are replaced all the while: a tensor is of one version of its object, or an error."""
    for value in (1, 2):
        root = zarrs.group(f"{stores}/turn{value}.zarr")
        zarrs.put(root, "x", np.full((8, 64, 64), value, dtype="f4"), (1, 64, 64), ("k", "j", "i"), shards=(8, 64, 64), compressors=None)
        zarr.consolidate_metadata(f"{stores}/turn{value}.zarr")
    open_up(stores)
    os.makedirs(f"{stores}/turning.zarr", exist_ok=True)
    subprocess.run(["cp", "-rT", f"{stores}/turn1.zarr", f"{stores}/turning.zarr"], check=True)
    open_up(f"{stores}/turning.zarr")
    stop = threading.Event()

    def turn():
        value = 1
        while not stop.is_set():
            value = 3 - value
            subprocess.run(["cp", f"{stores}/turn{value}.zarr/x/c/0/0/0", f"{stores}/next"], check=True)
            os.replace(f"{stores}/next", f"{stores}/turning.zarr/x/c/0/0/0")
            time.sleep(0.02)

    with database.connect() as c:
        c.execute(f"SET tensorbank.retries = 5; {QUICK}")
        c.execute('IMPORT FOREIGN SCHEMA "turning.zarr" FROM SERVER shaky INTO public')
        thread = threading.Thread(target=turn)
        thread.start()
        try:
            seen, states = set(), []
            for _ in range(40):
                try:
                    got = read_array(c, "SELECT tensorbank.read(tensorbank.ref('turning', 'x'))")
                    values = set(np.unique(got))
                    assert len(values) == 1, "two versions in one tensor"
                    seen |= values
                except psycopg.Error as e:
                    states.append(e.sqlstate)
        finally:
            stop.set()
            thread.join()
        assert set(states) <= {"40001"}
        assert seen == {1.0, 2.0}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("headers", [{"ETag": None}, {"ETag": 'W/"weak"'}, {"ETag": "unquoted"}, {"ETag": '""'}, {"ETag": "'single'"},
                                     {"ETag": None, "Last-Modified": None}])
def test_n22_odd_versions(database, golden, faulty, layout, headers):
    passes(database, golden, faulty, layout, "head", times=-1, headers=headers)
    # and a transfer that breaks is not resumed by halves
    faulty.reset()
    with session(database) as c:
        faulty.rule(CHUNKS[layout], "reset_body", times=1, headers=headers)
        faulty.rule(CHUNKS[layout], "head", headers=headers)
        right(c, layout, golden)


@pytest.mark.parametrize("layout", ["plain", "large"])
def test_n23_checksum_that_disagrees(database, golden, faulty, layout):
    headers = {"x-amz-checksum-crc32c": "AAAAAA=="}
    passes(database, golden, faulty, layout, "head", headers=headers)
    faulty.reset()
    lasts(database, faulty, layout, "head", "XX001", headers=headers)


# ---- N24, N25: two answers, old connections ----

@pytest.mark.parametrize("layout", LAYOUTS)
def test_n24_late_answer(database, golden, faulty, layout):
    """One request is late: asked again, the first answer wins, each block comes once."""
    with session(database, "SET tensorbank.hedge_percent = 100; SET tensorbank.first_byte_timeout = '20s'") as c:
        right(c, layout, golden)
    with session(database, "SET tensorbank.hedge_percent = 100; SET tensorbank.first_byte_timeout = '20s'") as c:
        for _ in range(3):
            read_rows(c, layout)
        faulty.rule(CHUNKS[layout], "delay", times=1, skip=2, seconds=3)
        right(c, layout, golden)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_n25_connections_closed_while_idle(database, golden, faulty, layout):
    """The server closed what was kept: no attempt is charged for it."""
    with session(database, retries=0) as c:
        faulty.rule(CHUNKS[layout], "close_after")
        right(c, layout, golden)
        time.sleep(0.3)
        right(c, layout, golden)


# ---- N26, N27 ----

@pytest.mark.parametrize("layout", LAYOUTS)
def test_n26_encoded(database, faulty, layout):
    lasts(database, faulty, layout, "gzip", "08P01")


def test_n27_connections_are_bounded(database, golden, faulty):
    with session(database, "SET tensorbank.max_connections = 2") as c:
        for layout in LAYOUTS:
            faulty.rule(CHUNKS[layout], "delay", seconds=0.01)
        before = faulty.open
        faulty.most_open = before
        right(c, "plain", golden)
        assert faulty.most_open <= max(before, 2) + 2


def limit_files(pid, most):
    """Set how many files a process of the server's user may open; what it was."""
    with open(f"/proc/{pid}/limits") as file:
        was = next(line for line in file if line.startswith("Max open files")).split()[3]
    run = ["runuser", "-u", SERVER_USER, "--"] if os.geteuid() == 0 else []
    subprocess.run([*run, "prlimit", "--pid", str(pid), f"--nofile={most}:"], check=True)
    return was


def test_n27_no_descriptors(database, golden, faulty):
    """The process may open no more files: 53000, and with room again it goes on."""
    with session(database, "SET tensorbank.hedge_percent = 0", retries=1) as c:
        c.execute("SELECT tensorbank.read(t) FROM plain WHERE block = 0").fetchall()
        # kept connections end, so that the next request needs a descriptor
        faulty.rule(".", "close_after")
        read_rows(c, "plain")
        was = limit_files(c.info.backend_pid, 3)
        try:
            diag = fails(c, "53000", "SELECT tensorbank.read(t) FROM plain")
            assert diag.message_hint and "files" in diag.message_primary
        finally:
            limit_files(c.info.backend_pid, was)
        faulty.reset()
        right(c, "plain", golden)
