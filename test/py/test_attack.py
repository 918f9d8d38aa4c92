"""A hostile and clumsy user: whatever is passed, stored or sent must end in a result or in a clear error of its own."""

import json
import os
import random
import re
import shutil
import socket
import struct

import psycopg
import pytest

import zarrs
from cluster import open_up
from conftest import fails, unique

# bad metadata: JSON, duplicate key, fill value, parameter, too large, overflow, unknown, no array, no group, names, types
METADATA_STATES = {"22032", "22030", "22P02", "22023", "54000", "22003", "0A000", "HV005", "HV00Q", "HV00R", "HV007", "HV004", "XX001"}

TOKENS = [b"null", b"-1", b"0", b"1e400", b"9223372036854775807", b"18446744073709551616", b"4611686018427387904", b"[]", b"{}", b'""',
          b"true", b'"\\ud800"', b'"\\u0000"', b'"NaN"', b"[[[[]]]]", b"1.5", b'"transpose"', b'"float16"', b'"months since 2000-01-01"', b"1e308"]

VALUES = {
    "int4": ["NULL", "0", "-1", "2147483647", "(-2147483648)::int4"],
    "int8": ["NULL", "0::int8", "-1::int8", "9223372036854775807", "(-9223372036854775808)::int8"],
    "float8": ["NULL", "'NaN'::float8", "'inf'::float8", "-1e308::float8"],
    "interval": ["NULL", "'178000000 years'::interval", "'6 hours'::interval"],
    "text": ["NULL", "''", "repeat('x', 100000)", "E'a\\n''$$'", "'t'", "'lat'"],
    "_text": ["NULL", "'{}'::text[]", "'{NULL}'::text[]", "'{{a,b},{c,d}}'::text[]", "array_fill('t'::text, ARRAY[3000])"],
    "_int8": ["NULL", "'{}'::int8[]", "'{NULL}'::int8[]", "'{0,0,0}'::int8[]", "'{9223372036854775807,9223372036854775807,1}'::int8[]",
              "'{-9223372036854775808,-1,0}'::int8[]", "'{{1,2},{3,4}}'::int8[]", "'[5:7]={1,1,1}'::int8[]", "array_fill(1::int8, ARRAY[1000])"],
    "_float8": ["NULL", "'{}'::float8[]", "'{NULL}'::float8[]", "'{NaN,inf}'::float8[]"],
    "bytea": ["NULL", "''::bytea", "'\\x934e554d505901007600'::bytea", "decode(repeat('ff', 1000), 'hex')"],
    "regclass": ["NULL", "'{table}'::regclass", "'pg_class'::regclass", "0::regclass", "4294967295::oid::regclass"],
    "tensor_ref": ["NULL", "(SELECT t FROM {table} LIMIT 1)", "'{table}.t[0:9223372036854775807,0:9223372036854775807,5:9] float32'::tensorbank.tensor_ref",
                   "'{table}.t[9223372036854775806:9223372036854775807,0:2,0:2] float32'::tensorbank.tensor_ref",
                   "'{table}.t[] float32'::tensorbank.tensor_ref", "'{table}.t[0:0,0:0,0:0] float32'::tensorbank.tensor_ref"],
    "tensor": ["NULL", "'float64[]{1}'::tensorbank.tensor", "'int8[0,3]{}'::tensorbank.tensor", "'uint64[1]{18446744073709551615}'::tensorbank.tensor"],
    "handle": ["NULL", "'4294967295.4294967295.65535.18446744073709551615@ffffffffffffffffffffffffffffffff'::tensorbank.handle",
               "'0.0.0.0@00000000000000000000000000000000'::tensorbank.handle"],
    "_handle": ["NULL", "'{}'::tensorbank.handle[]", "'{NULL}'::tensorbank.handle[]",
                "array_fill('1.0.0.1@0123456789abcdef0123456789abcdef'::tensorbank.handle, ARRAY[1000])"],
    "any": ["NULL", "1", "'lat'::text", "int4range(0, 2)", "'empty'::int8range", "tstzrange('-infinity', 'infinity')", "'NaN'::numeric",
            "'infinity'::timestamptz", "ARRAY[1]", "int8range(-9223372036854775808, 9223372036854775807)"],
}


def state_of(connection, sql, *params):
    """SQLSTATE of a statement, None where it succeeds; a lost connection fails the test."""
    try:
        connection.execute(sql, params or None)
    except psycopg.Error as error:
        assert error.sqlstate is not None, f"connection lost by {sql}"
        return error.sqlstate
    return None


def import_store(connection, name):
    connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
    connection.execute(f'CREATE SCHEMA "{name}"')
    return state_of(connection, f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER disk INTO "{name}"')


@pytest.fixture
def wind(db, stores):
    """A schema with a table of the name `wind` over a small store; its name is unique."""
    name = unique("attack")
    path = os.path.join(stores, f"{name}.zarr")
    zarrs.wind(path)
    open_up(path)
    with db.connect() as c:
        assert import_store(c, name) is None
    return name


def table_of(name):
    return f"{name}.{name}"


def mutate(data, rng):
    data = bytearray(data)
    kind = rng.random()
    if kind < 0.4:
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind < 0.9:
        token = rng.choice(list(re.finditer(rb'"[^"]*"|-?\d+|null|true|false|\[[^\[\]]*\]', bytes(data))))
        data[token.start():token.end()] = rng.choice(TOKENS)
    else:
        del data[rng.randrange(len(data)):]
    return bytes(data)


@pytest.mark.parametrize("zarr_format", [3, 2])
def test_broken_metadata(db, conn, stores, zarr_format):
    """Flipped bits, other values, cut ends in metadata: a clean error, or a table that answers."""
    rng = random.Random(zarr_format)
    name = unique("broken")
    path = os.path.join(stores, f"{name}.zarr")
    zarrs.wind(path, zarr_format=zarr_format, consolidated=False)
    open_up(path)
    documents = [os.path.join(root, f) for root, _, files in os.walk(path) for f in files if f in ("zarr.json", ".zarray", ".zattrs")]
    documents = [document for document in documents if os.path.getsize(document) > 20]
    conn.execute("SET tensorbank.metadata_max_age = 0")
    refused = 0
    for _ in range(150):
        document = rng.choice(documents)
        with open(document, "rb") as file:
            good = file.read()
        bad = mutate(good, rng)
        with open(document, "wb") as file:
            file.write(bad)
        states = [import_store(conn, name)]
        tables = conn.execute("SELECT oid::regclass::text FROM pg_class WHERE relnamespace = %s::regnamespace", (name,)).fetchall()
        for (table,) in tables:
            states += [state_of(conn, f"SELECT * FROM {table} LIMIT 3"), state_of(conn, f"SELECT count(*) FROM {table}")]
        refused += any(states)
        assert set(states) - {None} <= METADATA_STATES, (states, document, bad)
        with open(document, "wb") as file:
            file.write(good)
    assert refused > 20
    assert import_store(conn, name) is None


def test_every_function_with_odd_arguments(conn, wind):
    """Each function of the schema, called with NULL, extremes, empty and huge arrays."""
    rng = random.Random(1)
    functions = conn.execute(
        "SELECT p.proname, p.prokind = 'p', p.provariadic <> 0, ARRAY(SELECT t.typname::text FROM unnest(p.proargtypes)"
        " WITH ORDINALITY a (o, n) JOIN pg_type t ON t.oid = a.o ORDER BY n)"
        " FROM pg_proc p WHERE pronamespace = 'tensorbank'::regnamespace").fetchall()
    calls = 0
    for name, procedure, variadic, types in functions:
        if "internal" in types or "cstring" in types or name in ("handler", "validator"):
            continue
        for _ in range(12):
            values = [rng.choice(VALUES.get(t, ["NULL"])).replace("{table}", table_of(wind)) for t in types]
            casts = [v if t == "any" else f"{v}::{t if t not in ('tensor', 'tensor_ref', 'handle', '_handle') else 'tensorbank.' + t}"
                     for v, t in zip(values, types)]
            if variadic and types[-1] != "any":
                casts[-1] = "VARIADIC " + casts[-1]
            state = state_of(conn, f"{'CALL' if procedure else 'SELECT'} tensorbank.{name}({', '.join(casts)})")
            assert state is None or not state.startswith("XX"), (state, name, casts)
            calls += 1
    assert calls > 500


def test_scan_that_ends_early_leaves_memory_sound(db, wind):
    """A row that LIMIT left in the scan's slot was freed twice; the session broke in whatever it did next."""
    with db.connect() as c:
        for _ in range(10):
            c.execute(f"SELECT tensorbank.shape(tensorbank.read(t)) FROM {table_of(wind)} LIMIT 2").fetchall()
            c.execute(f"SELECT g, x.s FROM generate_series(0, 9) g, LATERAL (SELECT tensorbank.shape(tensorbank.read(t)) AS s"
                      f" FROM {table_of(wind)} w WHERE w.block >= g LIMIT 1) x").fetchall()
            c.execute(f"CALL tensorbank.build_index('{table_of(wind)}', rebuild => true)")
            c.execute("CREATE TEMP TABLE IF NOT EXISTS scratch (a int PRIMARY KEY, b text)")
            c.execute("INSERT INTO scratch VALUES (1, 'a') ON CONFLICT DO NOTHING")


def test_dropped_servers_leave_no_descriptors(db, conn, stores, wind):
    """A session that creates and drops servers keeps none of their directories open."""
    def descriptors():
        return len(os.listdir(f"/proc/{conn.info.backend_pid}/fd"))

    schema = unique("gone")

    def once():
        conn.execute(f"CREATE SERVER {schema} FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{stores}')")
        conn.execute(f"CREATE SCHEMA {schema}")
        conn.execute(f'IMPORT FOREIGN SCHEMA "{wind}.zarr" FROM SERVER {schema} INTO {schema}')
        assert conn.execute(f"SELECT count(*) FROM {schema}.{wind}").fetchone() == (36,)
        conn.execute(f"DROP SCHEMA {schema} CASCADE")
        conn.execute(f"DROP SERVER {schema}")

    for _ in range(10):
        once()
    before = descriptors()
    for _ in range(40):
        once()
    assert descriptors() < before + 20


def write_line(path, dimension, length):
    """A group with one array of one dimension, whose chunks were never written."""
    array = {"zarr_format": 3, "node_type": "array", "shape": [length], "data_type": "float32",
             "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
             "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
             "fill_value": 0, "dimension_names": [dimension], "attributes": {}}
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(os.path.join(path, "a"))
    for place, document in ((path, {"zarr_format": 3, "node_type": "group", "attributes": {}}), (os.path.join(path, "a"), array)):
        with open(os.path.join(place, "zarr.json"), "w") as file:
            json.dump(document, file)
    open_up(path)


def test_rewritten_store(conn, stores):
    """A store written anew and imported again in one session; a shorter age of metadata counts at once."""
    name = unique("anew")
    path = os.path.join(stores, f"{name}.zarr")
    counted = f"SELECT count(*) FROM {table_of(name)}"
    write_line(path, "x", 4)
    assert import_store(conn, name) is None
    assert conn.execute(counted).fetchone() == (2,)
    write_line(path, "y", 10)
    assert import_store(conn, name) is None
    assert conn.execute(counted).fetchone() == (5,)
    assert conn.execute(f"SELECT dims, shape FROM tensorbank.describe('{table_of(name)}')").fetchone() == (["y"], [10])
    write_line(path, "y", 20)
    conn.execute("SET tensorbank.metadata_max_age = 0")
    assert conn.execute(counted).fetchone() == (10,)


def test_array_without_blocks(conn, stores):
    """A dimension of length 0: no row, no division by zero."""
    name = unique("empty")
    path = os.path.join(stores, f"{name}.zarr")
    os.makedirs(os.path.join(path, "a"))
    array = {"zarr_format": 3, "node_type": "array", "shape": [0, 5], "data_type": "float32",
             "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 5]}},
             "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
             "fill_value": 0, "dimension_names": ["x", "y"], "attributes": {}}
    for place, document in ((path, {"zarr_format": 3, "node_type": "group", "attributes": {}}), (os.path.join(path, "a"), array)):
        with open(os.path.join(place, "zarr.json"), "w") as file:
            json.dump(document, file)
    open_up(path)
    assert import_store(conn, name) is None
    assert conn.execute(f"SELECT * FROM {table_of(name)} WHERE block >= 0 OR x_min > 3").fetchall() == []
    assert conn.execute(f"SELECT count(*) FROM {table_of(name)}").fetchone() == (0,)
    fails(conn, "55000", f"CALL tensorbank.build_index('{table_of(name)}')")


def test_flipped_index_loses_no_row(conn, stores, wind):
    """Damaged objects of an index: slower, warned about, never another result."""
    rng = random.Random(4)
    table = table_of(wind)
    conn.execute(f"CALL tensorbank.build_index('{table}', part_blocks => 8)")
    conn.execute("SET tensorbank.metadata_max_age = 0")
    queries = [f"SELECT block, t_min, t_max, p_nan FROM {table} ORDER BY block", f"SELECT block FROM {table} WHERE t_max > 150 ORDER BY block",
               f"SELECT count(*) FROM {table} WHERE p_min BETWEEN 20 AND 60 OR t_nan > 0"]
    good = [conn.execute(q).fetchall() for q in queries]
    objects = [os.path.join(root, f) for root, _, files in os.walk(os.path.join(stores, ".tensorbank", "hsi", f"{wind}.zarr")) for f in files]
    assert len(objects) > 10
    for _ in range(120):
        path = rng.choice(objects)
        with open(path, "rb") as file:
            data = file.read()
        bad = bytearray(data)
        if rng.random() < 0.7:
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        else:
            del bad[rng.randrange(len(bad)):]
        with open(path, "wb") as file:
            file.write(bad)
        assert [conn.execute(q).fetchall() for q in queries] == good, path
        with open(path, "wb") as file:
            file.write(data)


def test_garbage_on_the_client_socket(server, conn):
    """No frame, half a frame, 4 GiB announced, deep JSON, guessed tokens, foreign operations: the streamer goes on."""
    def frame(data):
        return struct.pack("<I", len(data)) + data

    rng = random.Random(7)
    streamer = server.streamer()
    kinds = [lambda: rng.randbytes(200), lambda: struct.pack("<I", 0xFFFFFFFF) + b"x" * 100, lambda: b'\x10\0\0\0{"op"',
             lambda: frame(b"[" * 60000), lambda: frame(json.dumps({"op": "redeem", "token": rng.randbytes(16).hex()}).encode()),
             lambda: frame(b'{"op":"next"}') * 5 + frame(b'{"op":"release","slot":-1,"generation":99999999999999999999}'),
             lambda: frame(b'{"op":"hello","version":1,"pid":1,"role":"postgres","user":10,"database":"x"}'),
             lambda: frame(b'{"op":"redeem","token":null}'), lambda: struct.pack("<I", 0), lambda: struct.pack("<I", 65537) + b"{" * 65537]
    for i in range(500):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"{server.socket}/.s.tensorbank.{server.port}")
            try:
                s.sendall(kinds[i % len(kinds)]())
            except (BrokenPipeError, ConnectionResetError):
                pass
    assert server.streamer() == streamer
    assert conn.execute("SELECT count(*) FROM tensorbank.streams").fetchone()[0] >= 0


def test_symbolic_links_lead_nowhere(db, conn, stores, folder, wind):
    """Neither a linked group nor a linked chunk is followed out of the server's url."""
    outside = os.path.join(folder, unique("outside"))
    shutil.copytree(os.path.join(stores, f"{wind}.zarr"), outside)
    open_up(outside)
    link = unique("link")
    os.symlink(outside, os.path.join(stores, f"{link}.zarr"))
    assert import_store(conn, link) == "42501"
    os.unlink(os.path.join(stores, f"{link}.zarr"))
    chunk = os.path.join(stores, f"{wind}.zarr", "t", "c", "0", "0", "0")
    os.rename(chunk, os.path.join(outside, "chunk"))
    os.symlink(os.path.join(outside, "chunk"), chunk)
    fails(conn, "42501", f"SELECT tensorbank.read(t) FROM {table_of(wind)} WHERE block = 0")
    assert state_of(conn, f"SELECT tensorbank.read(t) FROM {table_of(wind)} WHERE block = 1") is None
