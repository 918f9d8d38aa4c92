"""s3:// through SQL, against radosgw, SeaweedFS and the project's own strict server: values, keys, rights, writing."""

import threading

import numpy as np
import psycopg
import pytest
import zarr

import fakes3
import s3
import tensorbank
import zarrs
from cluster import open_up
from conftest import fails, read_array, unique


@pytest.fixture(scope="module", params=["own", *s3.KINDS])
def store(request, s3_servers):
    try:
        return s3_servers.get(request.param)
    except s3.Unavailable as e:
        pytest.skip(str(e))


@pytest.fixture(scope="module")
def wind(store, stores):
    """t and p of the stores `plain`, `listed` (not consolidated) and `sharded`, below `data/` of the bucket and the folder."""
    t, p = zarrs.wind(f"{stores}/plain.zarr")
    zarrs.wind(f"{stores}/listed.zarr", consolidated=False)
    zarrs.wind(f"{stores}/sharded.zarr", shards=(6, 12, 8))
    open_up(stores)
    for name in ("plain", "listed", "sharded"):
        store.upload(f"{stores}/{name}.zarr", f"data/{name}.zarr")
        store.upload(f"{stores}/{name}.zarr", f"data/{name}.zarr")
    return t, p


def make_server(c, store, url=None, endpoint=None, keys=None, options="", mapping=""):
    """A server and the mapping of its keys (None: those of the store, False: none); its name."""
    name = unique("s3")
    c.execute(f"CREATE SERVER {name} FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{url or f's3://{store.bucket}/data'}',"
              f" endpoint '{endpoint or store.endpoint}'{options})")
    if keys is not False:
        access, secret = keys or (store.access_key, store.secret_key)
        c.execute(f"CREATE USER MAPPING FOR CURRENT_USER SERVER {name} OPTIONS (access_key_id '{access}',"
                  f" secret_access_key '{secret}'{mapping})")
    return name


def import_group(c, server, group):
    """Import a group into a schema of its own; its name."""
    schema = unique("s")
    c.execute(f"CREATE SCHEMA {schema}")
    c.execute(f'IMPORT FOREIGN SCHEMA "{group}" FROM SERVER {server} INTO {schema}')
    return schema


def tables(c, schema):
    return [r[0] for r in c.execute("SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'f'", (schema,))]


def whole(c, table, column="t"):
    return read_array(c, f"SELECT tensorbank.read(tensorbank.ref('{table}', '{column}'))")


@pytest.mark.parametrize("name", ["plain", "listed", "sharded"])
def test_values(store, wind, conn, name):
    """By consolidated metadata, by listing, and in shards: what zarr-python wrote, bit for bit."""
    t, p = wind
    schema = import_group(conn, make_server(conn, store), f"{name}.zarr")
    assert tables(conn, schema) == [name]
    assert np.array_equal(whole(conn, f"{schema}.{name}"), t, equal_nan=True)
    assert np.array_equal(whole(conn, f"{schema}.{name}", "p"), zarrs.decoded(p), equal_nan=True)
    got = dict(conn.execute(f"SELECT tensorbank.origin(t)::text, (tensorbank.stats(tensorbank.read(t))).max FROM {schema}.{name}"))
    assert len(got) == 36
    for origin, top in got.items():
        k, j, i = (int(x) for x in origin.strip("{}").split(","))
        assert top == np.nanmax(t[k:k + 2, j:j + 4, i:i + 4])


def test_same_statement_everywhere(store, wind, db, conn, stores, faulty):
    """One text of a query, one of a loader: file://, http:// and s3:// give the same."""
    web = unique("web")
    conn.execute(f"CREATE SERVER {web} FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{faulty.url}')")
    schemas = [import_group(conn, server, "sharded.zarr") for server in ("disk", web, make_server(conn, store))]
    answers = []
    for schema in schemas:
        conn.execute(f"SET search_path = {schema}, public")
        rows = conn.execute("SELECT block, time_min, lat_min, lon_max, (tensorbank.stats(tensorbank.read(t))).mean, (tensorbank.stats(tensorbank.read(p)))::text"
                            " FROM sharded WHERE lon_max < 20 ORDER BY block").fetchall()
        conn.execute("RESET search_path")
        stream = tensorbank.dataset(db.dsn(), query=f"SELECT t AS x FROM {schema}.sharded", batch_size=4, seed=7, output="numpy")
        batches = [np.array(batch.x) for batch in stream]
        answers.append((rows, batches))
    assert len(answers[0][0]) > 10 and len(answers[0][1]) == 9
    for rows, batches in answers[1:]:
        assert rows == answers[0][0]
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(batches, answers[0][1], strict=True))


def test_more_than_a_page(store, conn, tmp_path):
    """More than 1000 keys below a group that has to be listed: arrays of the second page count, too."""
    root = zarrs.group(tmp_path / "many")
    for i in range(1030):
        zarrs.put(root, f"a{i:04}", np.full(2, i, dtype="i2"), dims=("x",), fill=-1)
    names = dict(s3.files_below(tmp_path / "many"))
    assert len(names) > 2000
    for name, body in names.items():
        if name.endswith("zarr.json") or name.startswith("a1029/"):
            store.put(f"data/many.zarr/{name}", body)
    server = make_server(conn, store)
    schema = unique("s")
    conn.execute(f"CREATE SCHEMA {schema}")
    conn.execute(f'IMPORT FOREIGN SCHEMA "many.zarr" FROM SERVER {server} INTO {schema}')
    columns = [r[0] for r in conn.execute("SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND"
                                          " atttypid = 'tensorbank.tensor_ref'::regtype", (f"{schema}.many",))]
    assert len(columns) == 1030
    assert (whole(conn, f"{schema}.many", "a1029") == 1029).all()


@pytest.mark.parametrize("odd", ["with space", "plus+plus", "per%cent", "per%20cent", "grüße-Ω-水", "q?a=b&c", "hash#tag", "semi;colon",
                                    "eq=uals", "tilde~ok", "paren(s)'", "at@,comma:x", "star*$!"])
def test_odd_keys(store, wind, conn, stores, odd):
    t, _ = wind
    store.upload(f"{stores}/sharded.zarr", f"data/{odd}/w.zarr")
    schema = unique("s")
    conn.execute(f"CREATE SCHEMA {schema}")
    server = make_server(conn, store)
    conn.execute(f'IMPORT FOREIGN SCHEMA "{odd}/w.zarr" FROM SERVER {server} INTO {schema}')
    assert np.array_equal(whole(conn, f"{schema}.w"), t, equal_nan=True)


@pytest.mark.parametrize("addressing", ["path", "virtual", "auto"])
def test_addressing(store, wind, conn, addressing):
    endpoint = store.endpoint.replace("127.0.0.1", store.domain) if addressing == "virtual" else store.endpoint
    before = getattr(store, "virtual", 0)
    schema = import_group(conn, make_server(conn, store, endpoint=endpoint, options=f", addressing '{addressing}'"), "plain.zarr")
    assert np.array_equal(whole(conn, f"{schema}.plain"), wind[0], equal_nan=True)
    if store.kind == "own":
        assert (store.virtual > before) == (addressing == "virtual")


def test_tls(store, wind, conn):
    if store.tls_endpoint is None:
        pytest.skip("this server has no TLS")
    server = make_server(conn, store, endpoint=store.tls_endpoint, options=f", ca_file '{store.ca_file}'")
    schema = import_group(conn, server, "sharded.zarr")
    assert np.array_equal(whole(conn, f"{schema}.sharded"), wind[0], equal_nan=True)
    untrusted = make_server(conn, store, endpoint=store.tls_endpoint)
    fails(conn, "HV00N", f'IMPORT FOREIGN SCHEMA "plain.zarr" FROM SERVER {untrusted} INTO public')


@pytest.mark.parametrize("case", ["secret", "key"])
def test_wrong_keys(store, wind, conn, case):
    keys = (store.access_key, "hushhushhushhush") if case == "secret" else ("NOSUCHKEY00000000001", store.secret_key)
    server = make_server(conn, store, keys=keys)
    diag = fails(conn, "28000", f'IMPORT FOREIGN SCHEMA "plain.zarr" FROM SERVER {server} INTO public')
    told = " ".join(str(x) for x in (diag.message_primary, diag.message_detail, diag.message_hint, diag.context))
    assert diag.message_hint and keys[1] not in told and "Signature=" not in told


def test_denied(store, wind, conn):
    """Nobody's keys in a bucket that wants some; of the own server also a key without rights."""
    server = make_server(conn, store, keys=False, options=", anonymous 'true'")
    fails(conn, "42501", f'IMPORT FOREIGN SCHEMA "plain.zarr" FROM SERVER {server} INTO public')
    if store.kind == "own":
        store.access["WEAKKEY0000000000001"] = fakes3.Key("weaksecret")
        store.buckets[store.bucket].denied.add("WEAKKEY0000000000001")
        server = make_server(conn, store, keys=("WEAKKEY0000000000001", "weaksecret"))
        fails(conn, "42501", f'IMPORT FOREIGN SCHEMA "plain.zarr" FROM SERVER {server} INTO public')


def test_missing_bucket(store, wind, conn):
    server = make_server(conn, store, url="s3://no-such-bucket-here/data")
    fails(conn, "HV00R", f'IMPORT FOREIGN SCHEMA "plain.zarr" FROM SERVER {server} INTO public')
    server = make_server(conn, store)
    fails(conn, "HV00R", f'IMPORT FOREIGN SCHEMA "nothing.zarr" FROM SERVER {server} INTO public')


def test_bucket_that_goes(store, wind, conn, stores):
    """A store that is there when the table is made and not when it is read: never fill values."""
    store.upload(f"{stores}/plain.zarr", "data/going.zarr")
    server = make_server(conn, store)
    schema = import_group(conn, server, "going.zarr")
    conn.execute(f"ALTER SERVER {server} OPTIONS (SET url 's3://no-such-bucket-here/data')")
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(f"SELECT tensorbank.read(t) FROM {schema}.going").fetchall()
    assert caught.value.sqlstate in ("HV00R", "HV005")


def test_missing_chunk_is_fill(store, wind, conn, stores):
    """The store says NoSuchKey of a chunk: the fill value, here NaN, and nothing else changes."""
    store.upload(f"{stores}/plain.zarr", "data/holes.zarr")
    store.delete("data/holes.zarr/t/c/1/1/1")
    schema = import_group(conn, make_server(conn, store), "holes.zarr")
    want = wind[0].copy()
    want[2:4, 4:8, 4:8] = np.nan
    assert np.array_equal(whole(conn, f"{schema}.holes"), want, equal_nan=True)


def test_anonymous(store, wind, conn, stores):
    if store.kind != "own":
        pytest.skip("its buckets are not public")
    for name, body in s3.files_below(f"{stores}/sharded.zarr"):
        store.put(f"data/open.zarr/{name}", body, "public")
    signed = store.signed
    schema = import_group(conn, make_server(conn, store, url="s3://public/data", keys=False, options=", anonymous 'true'"), "open.zarr")
    assert np.array_equal(whole(conn, f"{schema}.open"), wind[0], equal_nan=True)
    assert store.signed == signed


def test_session_token(store, wind, conn):
    """Temporary keys work with their token only."""
    if store.kind == "own":
        access, secret, token, endpoint = "TEMPKEY0000000000001", "tempsecret", "token/with+odd=characters==", store.endpoint
        store.access[access] = fakes3.Key(secret, token)
    elif store.kind == "radosgw":
        (access, secret, token), endpoint = store.token(), store.sts_endpoint
    else:
        pytest.skip("this server has no temporary keys")
    good = make_server(conn, store, endpoint=endpoint, keys=(access, secret), mapping=f", session_token '{token}'")
    schema = import_group(conn, good, "sharded.zarr")
    assert np.array_equal(whole(conn, f"{schema}.sharded"), wind[0], equal_nan=True)
    bad = make_server(conn, store, endpoint=endpoint, keys=(access, secret))
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(f'IMPORT FOREIGN SCHEMA "plain.zarr" FROM SERVER {bad} INTO public')
    assert caught.value.sqlstate in ("28000", "42501")


def test_region_is_learnt(store, wind, conn, stores):
    """A bucket elsewhere: asked again, signed for its region, and the region kept."""
    if store.kind != "own":
        pytest.skip("it has one region")
    far = store.buckets["far-bucket"] = fakes3.Bucket(region="eu-west-7")
    for name, body in s3.files_below(f"{stores}/plain.zarr"):
        far.objects[f"data/plain.zarr/{name}"] = fakes3.Object(body)
    schema = import_group(conn, make_server(conn, store, url="s3://far-bucket/data"), "plain.zarr")
    store.log.clear()
    assert np.array_equal(whole(conn, f"{schema}.plain"), wind[0], equal_nan=True)
    assert len(store.requests("/t/c/")) == 36


def test_index_and_dataset_beside_the_data(store, wind, db, conn, stores):
    """build_index and create_dataset write below the prefix; a second session finds them; a dataset streams."""
    prefix = unique("data/beside")
    store.upload(f"{stores}/plain.zarr", f"{prefix}/plain.zarr")
    server = make_server(conn, store, url=f"s3://{store.bucket}/{prefix}")
    schema = import_group(conn, server, "plain.zarr")
    conn.execute(f"CALL tensorbank.build_index('{schema}.plain')")
    written = store.keys(f"{prefix}/.tensorbank/")
    assert written
    with db.connect() as c:
        c.execute("SET tensorbank.unindexed = 'error'")
        low, high, n = c.execute(f"SELECT min(t_min), max(t_max), sum(t_valid) FROM {schema}.plain").fetchone()
    assert (low, high, n) == (float(np.nanmin(wind[0])), float(np.nanmax(wind[0])), int(np.isfinite(wind[0]).sum()))
    name = unique("set")
    conn.execute("SELECT tensorbank.create_dataset(%s, %s)", (name, f"SELECT t AS x FROM {schema}.plain")).fetchall()
    stream = tensorbank.dataset(db.dsn(), dataset=name, batch_size=4, tail="ragged", output="numpy")
    got = sum(np.nansum(np.array(batch.x, dtype="f8")) for batch in stream)
    assert got == pytest.approx(np.nansum(wind[0].astype("f8")))
    assert len(store.keys(f"{prefix}/.tensorbank/")) > len(written)


def test_two_builders(store, wind, db, conn, stores):
    """Both begin at once: one wins or they share; the index is whole and the answers are right."""
    prefix = unique("data/race")
    store.upload(f"{stores}/plain.zarr", f"{prefix}/plain.zarr")
    schema = import_group(conn, make_server(conn, store, url=f"s3://{store.bucket}/{prefix}"), "plain.zarr")
    gate, ends = threading.Barrier(2), []

    def build():
        with db.connect() as c:
            gate.wait(20)
            try:
                c.execute(f"CALL tensorbank.build_index('{schema}.plain')")
                ends.append("00000")
            except psycopg.Error as e:
                ends.append(e.sqlstate)

    threads = [threading.Thread(target=build) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "00000" in ends and set(ends) <= {"00000", "55P03", "40001"}
    assert conn.execute(f"SELECT blocks = indexed, complete FROM tensorbank.index_status('{schema}.plain')").fetchone() == (True, True)
    assert conn.execute(f"SELECT max(t_max) FROM {schema}.plain").fetchone() == (float(np.nanmax(wind[0])),)


def test_one_content_one_dataset(store, wind, db, conn, stores):
    """Two creations of one content at once: both name the same object, which is written once."""
    prefix = unique("data/twins")
    store.upload(f"{stores}/plain.zarr", f"{prefix}/plain.zarr")
    schema = import_group(conn, make_server(conn, store, url=f"s3://{store.bucket}/{prefix}"), "plain.zarr")
    gate, ends = threading.Barrier(2), []

    def create(i):
        with db.connect() as c:
            gate.wait(20)
            ends.append(c.execute("SELECT tensorbank.create_dataset(%s, %s)", (unique(f"twin{i}"), f"SELECT t AS x FROM {schema}.plain")).fetchone()[0])

    threads = [threading.Thread(target=create, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ends) == 2 and ends[0] == ends[1]
    assert len([k for k in store.keys(f"{prefix}/.tensorbank/") if ends[0] in k]) == 1


def test_big_objects(store, db, conn, tmp_path):
    """A shard of 12 MiB and chunks of 1 MiB: ranges come back in their places."""
    data = np.random.default_rng(5).integers(0, 1 << 30, (12, 512, 512), dtype="i4")
    root = zarrs.group(tmp_path / "big")
    zarrs.put(root, "x", data, (1, 512, 512), ("k", "j", "i"), shards=(12, 512, 512), compressors=None)
    zarr.consolidate_metadata(str(tmp_path / "big"))
    store.upload(tmp_path / "big", "data/big.zarr")
    schema = import_group(conn, make_server(conn, store), "big.zarr")
    with conn.cursor(binary=True) as cursor:
        rows = cursor.execute(f"SELECT tensorbank.origin(x), tensorbank.read(x) FROM {schema}.big").fetchall()
    assert len(rows) == 12
    for origin, value in rows:
        assert np.array_equal(tensorbank.from_npy(bytes(value))[0], data[origin[0]])
