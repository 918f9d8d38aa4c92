"""Bad input, bad stores and bad networks: the right SQLSTATE and text, no wrong value, and the session goes on."""

import json
import os
import threading
import time

import numpy as np
import psycopg
import pytest

import zarrs
from cluster import open_up, wait_for
from conftest import fails, make_database, read_array, unique


@pytest.fixture(scope="module", autouse=True)
def data(db, stores, faulty_session):
    t, p = zarrs.wind(f"{stores}/faults.zarr")
    open_up(f"{stores}/faults.zarr")
    with db.connect() as c:
        c.execute(f"CREATE SERVER shaky FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{faulty_session.url}')")
        c.execute("CREATE SCHEMA shaky; CREATE SCHEMA disk")
        c.execute('IMPORT FOREIGN SCHEMA "faults.zarr" FROM SERVER shaky INTO shaky')
        c.execute('IMPORT FOREIGN SCHEMA "faults.zarr" FROM SERVER disk INTO disk')
    return t, p


# ---- wrong definitions ----

@pytest.mark.parametrize("options, state", [
    ("url 'gopher://x/y'", "HV024"), ("url 'http:///x'", "HV024"), ("url 'http://u:p@host/x'", "HV024"), ("url 'file://host/x'", "HV024"),
    ("url 'http://h/x?y=1'", "HV024"), ("url 'file:///x', colour 'red'", "HV00D"), ("url 'file:///x', password 'x'", "HV00D"),
    ("url 'file:///x', path 'y'", "HV00D")])
def test_wrong_server(conn, options, state):
    diag = fails(conn, state, f"CREATE SERVER wrong FOREIGN DATA WRAPPER tensorbank OPTIONS ({options})")
    assert diag.message_hint


def test_server_without_url(conn):
    assert "url" in fails(conn, "HV002", "CREATE SERVER wrong FOREIGN DATA WRAPPER tensorbank").message_primary


def test_wrong_option_names_the_right_ones(conn):
    diag = fails(conn, "HV00D", "CREATE SERVER wrong FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file:///x', colour 'red')")
    assert "colour" in diag.message_primary and "index_url" in diag.message_hint
    diag = fails(conn, "HV00D", "CREATE SERVER wrong FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file:///x', password 'hush')")
    assert "USER MAPPING" in diag.message_hint and "hush" not in str(diag.message_primary) + str(diag.message_detail)
    diag = fails(conn, "HV00D", "CREATE FOREIGN TABLE wrong (b bigint OPTIONS (number 'x')) SERVER disk OPTIONS (path 'faults.zarr')")
    assert "array" in diag.message_hint
    fails(conn, "HV00D", 'IMPORT FOREIGN SCHEMA "faults.zarr" FROM SERVER disk INTO disk OPTIONS (depth \'1\')')
    fails(conn, "HV024", "CREATE FOREIGN TABLE wrong (b bigint) SERVER disk OPTIONS (path '../etc')")
    fails(conn, "HV024", "CREATE FOREIGN TABLE wrong (b bigint) SERVER disk OPTIONS (path 'x', cell_shape '0,1')")


def test_missing_store(conn):
    for server in ("disk", "web", "shaky"):
        fails(conn, "HV00R", f'IMPORT FOREIGN SCHEMA "nothing.zarr" FROM SERVER {server} INTO public')


def test_not_a_zarr(conn, stores):
    os.makedirs(f"{stores}/folder/inside", exist_ok=True)
    with open(f"{stores}/folder/readme.txt", "w") as file:
        file.write("no array here")
    open_up(f"{stores}/folder")
    fails(conn, "HV00Q", 'IMPORT FOREIGN SCHEMA "folder" FROM SERVER disk INTO public')
    # over http nothing tells a folder from nothing
    fails(conn, "HV00R", 'IMPORT FOREIGN SCHEMA "folder" FROM SERVER web INTO public')


@pytest.mark.parametrize("text, state", [("{", "22032"), ("[1]", None), ('{"zarr_format":3,"zarr_format":3}', "22030"), ('{"a":"\\ud800"}', "22032"),
                                         ('{"zarr_format": 9, "node_type": "array"}', None), ("[" * 100000, "54000")])
def test_bad_metadata(conn, stores, text, state):
    name = unique("meta") + ".zarr"
    os.makedirs(f"{stores}/{name}")
    with open(f"{stores}/{name}/zarr.json", "w") as file:
        file.write(text)
    open_up(f"{stores}/{name}")
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(f'IMPORT FOREIGN SCHEMA "{name}" FROM SERVER disk INTO public')
    assert caught.value.sqlstate != "XX000"
    if state:
        assert caught.value.sqlstate == state, caught.value
    # the session goes on
    assert conn.execute("SELECT count(*) FROM disk.faults").fetchone() == (36,)


def edit_codecs(stores, name, array, codecs):
    path = f"{stores}/{name}/{array}/zarr.json"
    with open(path) as file:
        document = json.load(file)
    document["codecs"] = codecs
    with open(path, "w") as file:
        json.dump(document, file)


def test_unknown_codec_leaves_the_array_out(conn, stores):
    zarrs.wind(f"{stores}/codec.zarr", consolidated=False)
    edit_codecs(stores, "codec.zarr", "p", [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "wonderpress"}])
    open_up(f"{stores}/codec.zarr")
    conn.execute('IMPORT FOREIGN SCHEMA "codec.zarr" FROM SERVER disk INTO public')
    warnings = [n for n in conn.notices if n.severity_nonlocalized == "WARNING"]
    assert len(warnings) == 1
    text = f"{warnings[0].message_primary} {warnings[0].message_detail}"
    assert warnings[0].sqlstate == "0A000" and "wonderpress" in text and 'codec.zarr/p"' in text
    columns = [r[0] for r in conn.execute("SELECT \"column\" FROM tensorbank.columns WHERE relation = 'codec'::regclass")]
    assert "t" in columns and "p" not in columns
    assert conn.execute("SELECT count(tensorbank.read(t)) FROM codec").fetchone() == (36,)


def test_hand_written_table_of_an_unknown_codec(conn, stores):
    conn.execute("CREATE FOREIGN TABLE press (block bigint OPTIONS (block 'number'), p tensorbank.tensor_ref OPTIONS (array 'p'))"
                 " SERVER disk OPTIONS (path 'codec.zarr')")
    with pytest.raises(psycopg.Error) as caught:
        conn.execute("SELECT tensorbank.read(p) FROM press").fetchall()
    assert caught.value.sqlstate == "0A000"
    assert "wonderpress" in str(caught.value)


def test_wrong_column_type(conn):
    diag = fails_lazily(conn, "HV004", "CREATE FOREIGN TABLE typed (m text OPTIONS (array 't', statistic 'min'),"
                        " t tensorbank.tensor_ref OPTIONS (array 't')) SERVER disk OPTIONS (path 'faults.zarr')", "SELECT m FROM typed")
    assert "double precision" in f"{diag.message_detail} {diag.message_hint}"
    fails_lazily(conn, "HV005", "CREATE FOREIGN TABLE absent (t tensorbank.tensor_ref OPTIONS (array 'nothing')) SERVER disk"
                 " OPTIONS (path 'faults.zarr')", "SELECT t FROM absent")


def fails_lazily(connection, state, definition, use):
    """An error of the definition, or at first use."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(definition)
        connection.execute(use).fetchall()
    assert caught.value.sqlstate == state, caught.value
    return caught.value.diag


# ---- corrupt data ----

def spoil(stores, name, chunk, how):
    zarrs.wind(f"{stores}/{name}.zarr")
    path = f"{stores}/{name}.zarr/t/c/{chunk}"
    with open(path, "rb") as file:
        content = bytearray(file.read())
    if how == "cut":
        content = content[: len(content) // 2]
    elif how == "empty":
        content = bytearray()
    elif how == "flip":
        content[len(content) // 2] ^= 0x10
        content[4] ^= 0x01
    elif how == "more":
        content += b"rest"
    with open(path, "wb") as file:
        file.write(content)
    open_up(f"{stores}/{name}.zarr")


@pytest.mark.parametrize("how", ["cut", "empty", "flip", "more"])
@pytest.mark.parametrize("where", ["disk", "web"])
def test_corrupt_chunk(conn, stores, how, where):
    name = f"spoilt_{how}_{where}"
    spoil(stores, name, "1/0/2", how)
    conn.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER {where} INTO public')
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(f"SELECT tensorbank.read(t) FROM {name}").fetchall()
    assert caught.value.sqlstate == "XX001"
    assert "t/c/1/0/2" in f"{caught.value.diag.message_detail}"
    # the others are still readable
    rows = conn.execute(f"SELECT tensorbank.stats(tensorbank.read(t)) FROM {name} WHERE tensorbank.origin(t) <> '{{2,0,8}}'").fetchall()
    assert len(rows) == 35


def test_store_that_vanishes(conn, stores):
    zarrs.wind(f"{stores}/gone.zarr")
    open_up(f"{stores}/gone.zarr")
    conn.execute('IMPORT FOREIGN SCHEMA "gone.zarr" FROM SERVER disk INTO public')
    os.rename(f"{stores}/gone.zarr", f"{stores}/elsewhere.zarr")
    conn.close()


def test_gone_store_is_not_fill_values(db):
    with db.connect() as c:
        fails(c, "HV005", "SELECT count(*) FROM gone")


# ---- networks ----

def fresh(db, settings=""):
    """A session without connections or caches."""
    c = db.connect()
    c.execute(f"SET tensorbank.retries = 3; SET tensorbank.connect_timeout = '2s'; {settings}")
    return c


@pytest.mark.parametrize("action, options", [
    ("reset", {}), ("short", {}), ("reset_body", {}), ("status", {"code": 503}), ("status", {"code": 500}), ("status", {"code": 502}),
    ("status", {"code": 429, "headers": {"Retry-After": "0"}}), ("wrong_range", {})])
def test_passing_faults_are_retried(data, db, faulty, action, options):
    """Once or twice something goes wrong: the values are right in the end."""
    t, _ = data
    with fresh(db) as c:
        c.execute("SELECT count(*) FROM shaky.faults").fetchall()
        faulty.rule(r"/t/c/", action, times=1 if action == "wrong_range" else 2, **options)
        got = read_array(c, "SELECT tensorbank.read(tensorbank.ref('shaky.faults', 't'))")
        assert np.array_equal(got, t, equal_nan=True)
        assert len(faulty.requests(r"/t/c/")) > 36 or action == "wrong_range"


@pytest.mark.parametrize("action, options, state", [
    ("reset", {}, "08006"), ("short", {}, "08006"), ("reset_body", {}, "08006"), ("status", {"code": 503}, "53000"),
    ("status", {"code": 429}, "53000"), ("status", {"code": 403}, "42501"), ("status", {"code": 401}, "28000"), ("status", {"code": 500}, "08006"),
    ("status", {"code": 302, "headers": {"Location": "http://192.0.2.1/x"}}, "42501"),
    ("status", {"code": 302, "headers": {"Location": "file:///etc/passwd"}}, "42501")])
def test_lasting_faults_are_errors(data, db, faulty, action, options, state):
    with fresh(db, "SET tensorbank.retries = 1") as c:
        c.execute("SELECT count(*) FROM shaky.faults").fetchall()
        faulty.rule(r"/t/c/1/1/1$", action, **options)
        with pytest.raises(psycopg.Error) as caught:
            c.execute("SELECT tensorbank.read(t) FROM shaky.faults").fetchall()
        assert caught.value.sqlstate == state, f"{caught.value.sqlstate}: {caught.value}"
        assert "t/c/1/1/1" in str(caught.value.diag.message_detail)
        faulty.reset()
        assert c.execute("SELECT count(tensorbank.read(t)) FROM shaky.faults").fetchone() == (36,)


def test_only_404_is_a_missing_chunk(data, db, faulty):
    with fresh(db) as c:
        faulty.rule(r"/t/c/0/0/1$", "status", code=404)
        got = read_array(c, "SELECT tensorbank.read(t) FROM shaky.faults WHERE tensorbank.origin(t) = '{0,0,4}'")
        assert np.isnan(got).all()


def test_nobody_listens(conn):
    from cluster import free_port

    conn.execute(f"CREATE SERVER nobody FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'http://127.0.0.1:{free_port()}/x')")
    conn.execute("SET tensorbank.retries = 0")
    fails(conn, "HV00N", 'IMPORT FOREIGN SCHEMA "y" FROM SERVER nobody INTO public')
    conn.execute("CREATE SERVER unknown FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'http://no-such-host.invalid/x')")
    fails(conn, "HV00N", 'IMPORT FOREIGN SCHEMA "y" FROM SERVER unknown INTO public')


def canceled(db, sql, how, setup="", wait=0.6):
    """Run a statement that hangs and end it; the seconds it took from then on."""
    with fresh(db) as c:
        if setup:
            c.execute(setup).fetchall()
        if how == "timeout":
            c.execute("SET statement_timeout = '700ms'")
            start = time.monotonic() + 0.7
        else:
            timer = threading.Timer(wait, c.cancel)
            timer.start()
            start = time.monotonic() + wait
        with pytest.raises(psycopg.errors.QueryCanceled):
            c.execute(sql).fetchall()
        took = time.monotonic() - start
        c.execute("SET statement_timeout = 0")
        assert c.execute("SELECT count(*) FROM disk.faults").fetchone() == (36,)
    return took


@pytest.mark.parametrize("how", ["cancel", "timeout"])
@pytest.mark.parametrize("action", ["hang", "hang_body"])
def test_cancel_while_a_server_hangs(db, faulty, action, how):
    faulty.rule(r"/t/c/", action)
    took = canceled(db, "SELECT tensorbank.read(t) FROM shaky.faults", how, "SELECT count(*) FROM shaky.faults")
    assert took < 1.0


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_cancel_while_metadata_hangs(db, faulty, how):
    faulty.rule(r"zarr.json|zmetadata", "hang")
    assert canceled(db, "SELECT count(*) FROM shaky.faults", how) < 1.0


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_cancel_during_back_off(db, faulty, how):
    faulty.rule(r"/t/c/", "status", code=503, headers={"Retry-After": "30"})
    took = canceled(db, "SELECT tensorbank.read(t) FROM shaky.faults", how, "SELECT count(*) FROM shaky.faults")
    assert took < 1.0


def test_cancel_while_connecting(db):
    """A backlog that is full: the connection hangs in the handshake."""
    import socket

    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    others = []
    for _ in range(4):
        other = socket.socket()
        other.setblocking(False)
        other.connect_ex(full.getsockname())
        others.append(other)
    with db.connect() as c:
        c.execute(f"CREATE SERVER IF NOT EXISTS full_up FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'http://127.0.0.1:{full.getsockname()[1]}/x')")
    took = canceled(db, 'IMPORT FOREIGN SCHEMA "y" FROM SERVER full_up INTO public', "cancel")
    assert took < 1.0
    for s in (*others, full):
        s.close()


def test_cancel_while_a_name_is_resolved(db):
    """Wherever names lead here: an error at once, or a wait that ends within a second of the limit."""
    with db.connect() as c:
        c.execute("CREATE SERVER IF NOT EXISTS lookup FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'http://a-name-to-look-up.invalid/x')")
        c.execute("SET statement_timeout = '500ms'; SET tensorbank.retries = 20")
        start = time.monotonic()
        with pytest.raises(psycopg.Error) as caught:
            c.execute('IMPORT FOREIGN SCHEMA "y" FROM SERVER lookup INTO public')
        assert caught.value.sqlstate in ("57014", "HV00N")
        assert time.monotonic() - start < 1.5
        assert c.execute("SELECT 1").fetchone() == (1,)


def test_slow_server_is_lost(db, faulty):
    faulty.rule(r"/t/c/1/1/1$", "hang")
    with fresh(db, "SET tensorbank.retries = 1; SET tensorbank.first_byte_timeout = '300ms'") as c:
        start = time.monotonic()
        with pytest.raises(psycopg.Error) as caught:
            c.execute("SELECT tensorbank.read(t) FROM shaky.faults").fetchall()
        assert caught.value.sqlstate == "08006"
        assert time.monotonic() - start < 10


# ---- refs ----

def test_dropped_table_under_a_stored_ref(conn):
    conn.execute("CREATE SCHEMA short; IMPORT FOREIGN SCHEMA \"faults.zarr\" FROM SERVER disk INTO short")
    conn.execute("CREATE TABLE kept AS SELECT t FROM short.faults LIMIT 2")
    conn.execute("ALTER FOREIGN TABLE short.faults DROP COLUMN t")
    fails(conn, "42703", "SELECT tensorbank.read(t) FROM kept")
    conn.execute("DROP FOREIGN TABLE short.faults")
    fails(conn, "42P01", "SELECT tensorbank.read(t) FROM kept")
    # it still prints, or says the same
    with conn.cursor() as cursor:
        try:
            cursor.execute("SELECT t::text FROM kept")
        except psycopg.Error as e:
            assert e.sqlstate == "42P01"


def test_null_and_odd_arguments(conn):
    assert conn.execute("SELECT tensorbank.read(NULL::tensorbank.tensor_ref)").fetchone() == (None,)
    fails(conn, "42P01", "SELECT tensorbank.ref('nothing', 't')")
    fails(conn, "42P01", "SELECT tensorbank.ref('pg_class', 'relname')")
    fails(conn, "22P02", "SELECT 'nonsense'::tensorbank.tensor_ref")


# ---- the index ----

def test_limit_of_computing(conn):
    conn.execute("CREATE SCHEMA dear; IMPORT FOREIGN SCHEMA \"faults.zarr\" FROM SERVER disk INTO dear OPTIONS (statistics 'yes')")
    conn.execute("SET tensorbank.compute_limit = 0")
    assert fails(conn, "54000", "SELECT count(*) FROM dear.faults WHERE t_max > 0").message_hint
    conn.execute("SET tensorbank.unindexed = 'error'")
    fails(conn, "55000", "SELECT count(*) FROM dear.faults WHERE t_max > 0")
    conn.execute("SET tensorbank.unindexed = 'exclude'")
    conn.notices.clear()
    assert conn.execute("SELECT count(*) FROM dear.faults WHERE t_max > 0").fetchone() == (0,)
    assert any("36" in f"{n.message_primary} {n.message_detail}" for n in conn.notices if n.severity_nonlocalized == "WARNING")
    # what does not need statistics is not affected
    assert conn.execute("SELECT count(*) FROM dear.faults").fetchone() == (36,)


def test_read_only_store_has_no_place_for_an_index(conn):
    diag = fails(conn, "55000", "CALL tensorbank.build_index('shaky.faults')")
    assert "index_url" in diag.message_hint


def test_two_builds_at_once(db, stores):
    zarrs.wind(f"{stores}/twice.zarr", time=8, lat=48, lon=64, shards=(8, 48, 64))
    open_up(f"{stores}/twice.zarr")
    with db.connect() as c:
        c.execute('IMPORT FOREIGN SCHEMA "twice.zarr" FROM SERVER disk INTO public')
    states = []

    def build():
        with db.connect() as mine:
            try:
                mine.execute("CALL tensorbank.build_index('twice', part_blocks => 32)")
                states.append("ok")
            except psycopg.Error as e:
                states.append(e.sqlstate)

    threads = [threading.Thread(target=build) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "ok" in states and set(states) <= {"ok", "55P03", "40001"}
    with db.connect() as c:
        assert c.execute("SELECT blocks = indexed, complete FROM tensorbank.index_status('twice')").fetchone() == (True, True)


def index_files(folder):
    found = []
    for root, _, names in os.walk(folder):
        found += [os.path.join(root, n) for n in names]
    return sorted(found)


def test_damaged_index_never_loses_rows(db, stores, index_folder):
    """Each file of the index with a byte changed, cut, or gone: the same rows, or an error; never fewer rows."""
    zarrs.wind(f"{stores}/damage.zarr")
    open_up(f"{stores}/damage.zarr")
    place = f"{index_folder}/damage"
    os.mkdir(place)
    os.chmod(place, 0o777)
    with db.connect() as c:
        c.execute(f"CREATE SERVER damaged FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{stores}', index_url 'file://{place}')")
        c.execute('CREATE SCHEMA damage; IMPORT FOREIGN SCHEMA "damage.zarr" FROM SERVER damaged INTO damage')
        c.execute("CALL tensorbank.build_index('damage.damage')")
        sql = "SELECT block, t_min, t_max, t_valid, p_missing FROM damage.damage WHERE t_max > 150 OR p_min < 20 ORDER BY 1"
        right = c.execute(sql).fetchall()
        assert 0 < len(right) < 36
    random = np.random.default_rng(3)
    wrong = outcomes = 0
    for path in index_files(place):
        with open(path, "rb") as file:
            good = file.read()
        spots = [("flip", int(random.integers(0, len(good)))) for _ in range(6)] if good else []
        for how, at in spots + [("cut", len(good) // 2), ("gone", 0)]:
            if how == "gone":
                os.unlink(path)
            else:
                bad = bytearray(good)
                if how == "flip":
                    bad[at] ^= 1 << int(random.integers(0, 8))
                else:
                    bad = bad[:at]
                with open(path, "wb") as file:
                    file.write(bad)
                os.chmod(path, 0o666)
            with db.connect() as c:
                outcomes += 1
                try:
                    wrong += c.execute(sql).fetchall() != right
                except psycopg.Error as e:
                    assert e.sqlstate in ("XX002", "54000", "55000", "22032", "22030", "HV00R", "42703"), f"{how} {path}: {e.sqlstate} {e}"
            with open(path, "wb") as file:
                file.write(good)
            os.chmod(path, 0o666)
    assert outcomes > 10 and wrong == 0
    with db.connect() as c:
        assert c.execute(sql).fetchall() == right


def test_overwritten_data_is_noticed(db, stores):
    zarrs.wind(f"{stores}/changing.zarr")
    open_up(f"{stores}/changing.zarr")
    with db.connect() as c:
        c.execute('IMPORT FOREIGN SCHEMA "changing.zarr" FROM SERVER disk INTO public')
        c.execute("CALL tensorbank.build_index('changing')")
        before = c.execute("SELECT t_max FROM changing WHERE block = 0").fetchone()[0]
    import zarr
    array = zarr.open_group(f"{stores}/changing.zarr", mode="r+")["t"]
    array[0:2, 0:4, 0:4] = 5000.0
    open_up(f"{stores}/changing.zarr")
    with db.connect() as c:
        assert before < 5000
        got = read_array(c, "SELECT tensorbank.read(t) FROM changing WHERE block = 0")
        assert (got == 5000).all()
        # an index of older data says nothing of the new: built again it does
        c.execute("CALL tensorbank.build_index('changing', rebuild => true)")
        assert c.execute("SELECT t_max FROM changing WHERE block = 0").fetchone() == (5000.0,)


# ---- crashes; last, since the server restarts ----

@pytest.fixture(scope="module")
def fragile(folder, stores):
    """A cluster that may be killed."""
    from conftest import start

    made = start(folder, "fragile", "shared_preload_libraries=tensorbank")
    database = make_database(made, "crash")
    with database.connect() as c:
        c.execute(f"CREATE SERVER disk FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{stores}')")
    yield database
    made.wipe()


def build_in_background(database, table):
    """Start a build; returns (pid of its backend, thread)."""
    ready = threading.Event()
    box = {}

    def work():
        try:
            with database.connect() as c:
                box["pid"] = c.info.backend_pid
                ready.set()
                c.execute(f"CALL tensorbank.build_index('{table}', part_blocks => 64)")
                box["done"] = True
        except psycopg.Error as e:
            box["error"] = e
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait(20)
    return box, thread


def test_build_goes_on_after_kill(fragile, stores):
    zarrs.wind(f"{stores}/long.zarr", time=16, lat=96, lon=96, shards=(16, 96, 96))
    open_up(f"{stores}/long.zarr")
    with fragile.connect() as c:
        c.execute('IMPORT FOREIGN SCHEMA "long.zarr" FROM SERVER disk INTO public')
    killed = 0
    for _ in range(3):
        box, thread = build_in_background(fragile, "long")

        def published():
            try:
                with fragile.connect() as c:
                    row = c.execute("SELECT parts_done FROM tensorbank.index_progress WHERE relation = 'long'::regclass").fetchone()
                return box.get("done") or (row is not None and row[0] > killed)
            except psycopg.OperationalError:
                return False

        wait_for(published, 20, 0.01)
        if not box.get("done"):
            fragile.server.crash(box["pid"])
            killed += 1
        thread.join()
        if box.get("done"):
            break
        with fragile.connect() as c:
            # what is published answers, the rest is computed: no row is lost
            assert c.execute("SELECT count(*) FROM long WHERE time_min >= '2020-01-01'").fetchone() == (8 * 24 * 24,)
    assert killed > 0, "the build was over before it could be killed"
    with fragile.connect() as c:
        done_before = c.execute("SELECT parts_done FROM tensorbank.index_status('long')").fetchone()[0]
        c.execute("CALL tensorbank.build_index('long', part_blocks => 64)")
        status = c.execute("SELECT blocks = indexed, complete, parts FROM tensorbank.index_status('long')").fetchone()
        assert status[:2] == (True, True)
        if done_before:
            # what was published before was not read again
            read, = c.execute("SELECT blocks_read FROM tensorbank.index_progress WHERE relation = 'long'::regclass").fetchone()
            assert read < 8 * 24 * 24
