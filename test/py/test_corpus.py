"""Stores that nobody here wrote: values, bounds and statistics against the truth that comes with them.

Each array counts once: right (every listed chunk has the bytes, and every block the statistics and bounds of the truth), refused (left
out or refused with an error that names what is not supported) or wrong. Nothing may be wrong.
"""

import datetime
import hashlib
import json
import math
import os
import shutil

import psycopg
import pytest

import cluster
import conftest
import tensorbank
from conftest import make_database

SHARED = os.environ.get("TB_SHARED", os.path.join(os.path.dirname(cluster.ROOT), "shared"))
HANDED = os.path.join(SHARED, "corpus", "handed")
#: What a reader may say of an array that it does not read.
CLEAR = ("0A000", "22023", "22030", "22032", "22P02", "22003", "54000", "HV00Q", "HV00R", "HV005")
#: What it may say of a chunk that must fail.
BROKEN = ("XX001", "0A000", "42501", "54000")
COUNT = {"right": 0, "refused": 0, "wrong": 0}
WRONG = []
REFUSED = {}


def stores_of_kind(kind):
    found = []
    for folder in ("", "bugs"):
        base = os.path.join(HANDED, folder)
        for name in sorted(os.listdir(base)) if os.path.isdir(base) else ():
            source = os.path.join(base, name, "source.json")
            if os.path.isfile(source):
                with open(source) as file:
                    about = json.load(file)
                if about["kind"] == kind:
                    found.append((os.path.join(folder, name), about["root"]))
    return found


STORES = stores_of_kind("zarr")
pytestmark = pytest.mark.skipif(not STORES, reason=f"no corpus at {HANDED} (TB_SHARED)")


@pytest.fixture(scope="module")
def corpus(server, folder):
    """The corpus copied to where the server may read it, and a database for it."""
    target = os.path.join(folder, "corpus")
    os.makedirs(f"{target}/bugs")
    for name, root in STORES:
        shutil.copytree(os.path.join(HANDED, name, root), os.path.join(target, name, root), copy_function=shutil.copyfile)
    cluster.open_up(target)
    os.mkdir(f"{folder}/corpus-index")
    os.mkdir(f"{folder}/corpus-none")
    os.chmod(f"{folder}/corpus-index", 0o777)
    os.chmod(f"{folder}/corpus-none", 0o777)
    database = make_database(server, "corpus")
    with database.connect() as c:
        for name, index in (("corpus", "corpus-none"), ("indexed", "corpus-index")):
            c.execute(f"CREATE SERVER {name} FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{target}', index_url 'file://{folder}/{index}')")
    yield database
    with database.server.connect() as c:
        c.execute('DROP DATABASE "corpus" WITH (FORCE)')


def quote(name):
    return '"' + name.replace('"', '""') + '"'


def text(value):
    return "'" + value.replace("'", "''") + "'"


class Imported:
    """The foreign tables of a store: where each array of the truth is."""

    def __init__(self, connection, schema, path):
        self.connection = connection
        self.schema = schema
        self.arrays = {}
        rows = connection.execute(
            "SELECT c.relation::text, c.\"column\", c.type, c.\"array\", c.dimension, c.statistic, c.bound,"
            " (SELECT option_value FROM pg_foreign_table, pg_options_to_table(ftoptions) WHERE ftrelid = c.relation AND option_name = 'path')"
            " FROM tensorbank.columns c JOIN pg_class r ON r.oid = c.relation"
            " WHERE r.relnamespace = %s::regnamespace ORDER BY c.relation, c.attnum", (schema,)).fetchall()
        self.columns = {}
        for relation, *column in rows:
            self.columns.setdefault(relation, []).append(column)
        for relation, columns in self.columns.items():
            for column, kind, array, *_, group in columns:
                if kind == "tensorbank.tensor_ref":
                    whole = "/".join(p for p in (group, array) if p)
                    self.arrays[whole[len(path):].strip("/")] = (relation, column, array)

    def single(self, where, number):
        """A table of one array alone, whose blocks are that array's chunks."""
        relation, _, array = self.arrays[where]
        table = f"{self.schema}.single_{number}"
        definitions = []
        for column, kind, of, dimension, statistic, bound, _ in self.columns[relation]:
            options = []
            if of is not None and bound is None and of != array:
                continue
            for key, value in (("array", of), ("dimension", dimension), ("statistic", statistic), ("bound", bound)):
                if value is not None:
                    options.append(f"{key} {text(value)}")
            if not options:
                options.append("block " + {"block": "'number'", "block_size": "'size'", "block_state": "'state'"}[column])
            definitions.append(f"{quote(column)} {kind} OPTIONS ({', '.join(options)})")
        path = self.columns[relation][0][-1]
        self.connection.execute(f"CREATE FOREIGN TABLE {table} ({', '.join(definitions)}) SERVER corpus OPTIONS (path {text(path)})")
        return table


def digest(array):
    array = array.astype(array.dtype.newbyteorder("<"), order="C")
    return hashlib.sha256(array.tobytes()).hexdigest()


def check_values(connection, ref, array):
    """Bytes of every listed chunk; the first problem, or None."""
    for chunk in array["chunks"]:
        start = [i * n for i, n in zip(chunk["index"], array["chunk_shape"])]
        try:
            with connection.cursor(binary=True) as cursor:
                cursor.execute(f"SELECT tensorbank.read(tensorbank.raw(tensorbank.crop({ref.replace('%', '%%')}, %s::bigint[], %s::bigint[])))",
                               (start, chunk["shape"]))
                (value,) = cursor.fetchone()
        except psycopg.Error as e:
            if "error" in chunk and e.sqlstate in BROKEN:
                continue
            return f"chunk {chunk['index']}: {e.sqlstate} {e.diag.message_primary}: {e.diag.message_detail}", e.sqlstate
        if "error" in chunk:
            return f"chunk {chunk['index']} was read and must fail: {chunk['error']}", None
        if value is None:
            return f"chunk {chunk['index']} is outside of the array", None
        if digest(tensorbank.from_npy(bytes(value))) != chunk["sha256"]:
            return f"chunk {chunk['index']} has other bytes", None
    return None, None


def number(value):
    return float(value) if isinstance(value, str) else value


def close(got, expected):
    expected = number(expected)
    if got is None or expected is None:
        return got is None and expected is None
    if float(got) == float(expected):
        return True
    return math.isclose(float(got), float(expected), rel_tol=1e-12)


def check_statistics(row, prefix, chunk, advice):
    truth = chunk.get(advice) or chunk["stats"]
    pairs = (("valid", "valid_count"), ("min", "min"), ("max", "max"), ("mean", "mean"), ("std", "std"))
    for name, key in pairs:
        got = row[f"{prefix}_{name}"]
        expected = truth.get(key)
        infinite = truth.get("inf_count", 0)
        if name in ("mean", "std") and (infinite or expected is None):
            continue
        if name in ("mean", "std") and got is not None and math.isclose(
                float(got), number(expected), rel_tol=1e-9, abs_tol=1e-12 * max(abs(float(row[f"{prefix}_{e}"])) for e in ("min", "max"))):
            continue
        if not close(got, expected):
            return f"{name} is {got}, truth {expected}"
    if row[f"{prefix}_valid"] + row[f"{prefix}_nan"] + row[f"{prefix}_missing"] != truth["count"]:
        return "valid, nan and missing are not all"
    if not row[f"{prefix}_missing"] and row[f"{prefix}_nan"] != truth.get("nan_count", 0):
        return f"nan is {row[f'{prefix}_nan']}, truth {truth.get('nan_count')}"
    return None


def check_bounds(row, columns, chunk, refused):
    """Bounds of coordinates that the truth knows; a dimension whose coordinate is refused has indexes for bounds."""
    for column, _, _, dimension, _, bound, _ in columns:
        truth = chunk.get("bounds", {}).get(dimension)
        if bound is None or dimension is None or truth is None or "error" in truth or dimension in refused:
            continue
        got = row[column]
        if isinstance(got, datetime.datetime):
            expected = truth.get(f"{bound}_time")
            # rounded outward to the microsecond, where the truth is rounded to the nearest
            off = expected and (datetime.datetime.fromisoformat(expected[:26]) - got.replace(tzinfo=None)).total_seconds()
            if expected is None or not 0 <= (off if bound == "min" else -off) <= 1e-6:
                return f"{column} is {got}, truth {expected}"
        elif f"{bound}_time" not in truth and not isinstance(truth[bound], str) and not close(got, truth[bound]):
            return f"{column} is {got}, truth {truth[bound]}"
    return None


def check_blocks(connection, imported, where, table, array, refused):
    """Statistics and bounds of every block of a table that has the array's own chunks."""
    relation, column, _ = imported.arrays[where]
    cursor = connection.execute(f"SELECT *, tensorbank.origin({quote(column)}) AS origin, tensorbank.shape({quote(column)}) AS shape FROM {table}")
    names = [d.name for d in cursor.description]
    rows = {tuple(row[names.index("origin")]): dict(zip(names, row)) for row in cursor}
    for chunk in array["chunks"]:
        if "error" in chunk or "stats" not in chunk:
            continue
        row = rows.get(tuple(i * n for i, n in zip(chunk["index"], array["chunk_shape"])))
        if row is None or list(row["shape"]) != list(chunk["shape"]):
            return f"chunk {chunk['index']} is no block"
        prefix = column
        if f"{prefix}_min" not in row:
            return "there are no statistics"
        problem = check_statistics(row, prefix, chunk, array["fill_advice"]) or check_bounds(
            row, imported.columns[relation], chunk, refused)
        if problem:
            return f"block {chunk['index']}: {problem}"
    if array["listed"] == "all" and len(rows) != len(array["chunks"]):
        return f"{len(rows)} blocks, truth {len(array['chunks'])}"
    return None


def judge(connection, imported, schema, path, number_, array, warned):
    """("right" | "refused" | "wrong", why) for an array of the truth."""
    where = array["path"].strip("/")
    if where not in imported.arrays and any(f"{path}/{where}".rstrip("/") in w for w in warned):
        return "refused", next(w for w in warned if f"{path}/{where}".rstrip("/") in w)
    group, _, name = where.rpartition("/")
    table = f"{schema}.ref_{number_}"
    ref = f"tensorbank.ref('{table}', 'r')"
    try:
        if where in imported.arrays:
            relation, column, _ = imported.arrays[where]
            ref = f"tensorbank.ref({text(relation)}::regclass, {text(column)})"
        else:
            # a coordinate: it is bounds in the tables of others, and readable by a table of its own
            connection.execute(f"CREATE FOREIGN TABLE {table} (r tensorbank.tensor_ref OPTIONS (array {text(name or '.')})) SERVER corpus"
                               f" OPTIONS (path {text('/'.join(p for p in (path, group) if p))})")
        connection.execute(f"SELECT {ref}").fetchone()
    except psycopg.Error as e:
        kind = "refused" if e.sqlstate in CLEAR else "wrong"
        return kind, f"{e.sqlstate} {e.diag.message_primary}: {e.diag.message_detail}"
    problem, state = check_values(connection, ref, array)
    if problem is None and where in imported.arrays and array["chunks"]:
        try:
            if any(c.get("error") for c in array["chunks"]):
                return "right", None
            problem = check_blocks(connection, imported, where, imported.single(where, number_), array,
                                   [w.split('"')[1].rpartition("/")[2] for w in warned if w.startswith("array is left out")])
        except psycopg.Error as e:
            problem = f"{e.sqlstate} {e.diag.message_primary}: {e.diag.message_detail}"
    if problem is None:
        return "right", None
    return ("refused" if state == "0A000" else "wrong"), problem


@pytest.mark.parametrize("name, root", STORES, ids=[s[0] for s in STORES])
def test_store(corpus, name, root):
    with open(os.path.join(HANDED, name, "truth.json")) as file:
        truth = json.load(file)
    path = f"{name}/{root}"
    schema = "s" + hashlib.sha256(name.encode()).hexdigest()[:8]
    problems = []
    with corpus.connect() as c:
        warned = []
        c.add_notice_handler(lambda d: warned.append(f"{d.message_primary} {d.message_detail}"))
        c.execute(f"CREATE SCHEMA {schema}; CREATE SCHEMA {schema}_i")
        option = f"OPTIONS (path {text(path)}, statistics 'yes')"
        try:
            c.execute(f"IMPORT FOREIGN SCHEMA x FROM SERVER corpus INTO {schema} {option}")
        except psycopg.Error as e:
            assert e.sqlstate in CLEAR, f"{e.sqlstate}: {e}"
            COUNT["refused"] += len(truth["arrays"])
            REFUSED[name] = f"{e.sqlstate} {e.diag.message_primary}: {e.diag.message_detail}"
            # the whole store is refused only where nothing in it can be read
            assert not truth["arrays"] or "expect" in source(name) or all("error" in a for a in truth["arrays"]), REFUSED[name]
            return
        imported = Imported(c, schema, path)
        for k, array in enumerate(truth["arrays"]):
            if "chunks" not in array:
                continue
            verdict, why = judge(c, imported, schema, path, k, array, warned)
            COUNT[verdict] += 1
            if verdict == "refused":
                REFUSED[f"{name}:{array['path']}"] = why
            if verdict == "wrong":
                WRONG.append(f"{name}:{array['path']}: {why}")
                problems.append(f"{array['path']}: {why}")
        check_indexed(c, schema, option, imported, truth)
    assert not problems, "\n".join(problems)


def source(name):
    with open(os.path.join(HANDED, name, "source.json")) as file:
        return json.load(file)


def check_indexed(connection, schema, option, imported, truth):
    """Every table again with an index: the same rows."""
    if any("error" in chunk for array in truth["arrays"] for chunk in array.get("chunks", ())):
        return
    connection.execute(f"IMPORT FOREIGN SCHEMA x FROM SERVER indexed INTO {schema}_i {option}")
    for relation in imported.columns:
        other = relation.replace(schema, f"{schema}_i", 1)
        columns = ", ".join(quote(c[0]) for c in imported.columns[relation] if c[1] != "tensorbank.tensor_ref" and c[0] != "block_state")
        try:
            plain = connection.execute(f"SELECT {columns} FROM {relation} ORDER BY block").fetchall()
        except psycopg.Error as e:
            # what cannot be read cannot be computed either
            assert e.sqlstate in ("0A000", "XX001", "54000"), e
            continue
        if plain:
            connection.execute(f"CALL tensorbank.build_index({text(other)}, workers => 0)")
        assert connection.execute(f"SELECT {columns} FROM {other} ORDER BY block").fetchall() == plain, other


def test_count(corpus):
    for name, why in sorted(REFUSED.items()):
        print(f"    refused {name}: {why}")
    conftest.SUMMARY.append(f"corpus: right {COUNT['right']}, refused {COUNT['refused']}, wrong {COUNT['wrong']}")
    assert not WRONG, "\n".join(WRONG)
    assert COUNT["right"] > 250
