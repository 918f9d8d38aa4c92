"""The brute-force oracle: indexed = unindexed = plain table filled by numpy, for random arrays and random predicates.

The plain table has the columns of the foreign table; its rows are what numpy says of the arrays that were written. Mean and
deviation are compared with numpy to rounding and then taken as the extension computes them, so that the same WHERE may be run
on all three tables. Last line: "oracle: N pairs" of (array, predicate).
"""

import decimal
import math
import os

import numpy as np
import psycopg
import pytest

import conftest
import oracle_data
import oracle_predicates
from cluster import open_up
from conftest import read_array

SEED = int(os.environ.get("TB_ORACLE_SEED", "0"))
#: (name, dtypes, predicates, further arguments of Store)
STORES = (
    [(f"r{k}", list(np.random.default_rng(900 + k + 1000 * SEED).choice(oracle_data.DTYPES, size=2)), 110, {}) for k in range(12)]
    + [(f"t{k}", pair, 110, {}) for k, pair in enumerate((("i8", "u8"), ("f4", "i2"), ("f8", "bool"), ("f2", "u4"), ("u1", "f8")))]
    # more than one level, few objects
    + [("deep", ("f4",), 160, {"shape": (40, 64, 48), "chunks": (2, 4, 4), "shards": (10, 32, 48), "zarr_format": 3}),
       ("line", ("i4",), 120, {"shape": (24000,), "chunks": (8,), "shards": (4000,), "zarr_format": 3})])
TOTAL = {"pairs": 0, "matched": 0, "errors": 0}


@pytest.fixture(scope="module")
def servers(db, stores, index_folder):
    with db.connect() as c:
        # the same stores without any index
        c.execute(f"CREATE SERVER bare FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{stores}',"
                  f" index_url 'file://{index_folder}/nothing')")
        c.execute("CREATE SCHEMA idx; CREATE SCHEMA raw; CREATE SCHEMA plain")
    os.makedirs(f"{index_folder}/nothing", exist_ok=True)
    os.chmod(f"{index_folder}/nothing", 0o777)


@pytest.fixture(scope="module", autouse=True)
def total():
    yield
    conftest.SUMMARY.append(f"oracle: {TOTAL['pairs']} pairs")


def columns_of(connection, table):
    return connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
        " AND NOT attisdropped ORDER BY attnum", (table,)).fetchall()


def same(a, b, name, context):
    """Equal as SQL has it: NULL only to NULL, -0 to 0."""
    if isinstance(a, decimal.Decimal) or isinstance(b, decimal.Decimal):
        equal = a is not None and b is not None and int(a) == int(b)
    elif a is None or b is None:
        equal = a is None and b is None
    elif name.endswith(("_mean", "_std")):
        equal = a == b or (a != a and b != b) or (a == a and b == b and math.isclose(a, b, rel_tol=1e-9, abs_tol=context))
    else:
        equal = a == b
    return equal


def expected_row(store, names, origin, shape):
    part = tuple(slice(o, o + n) for o, n in zip(origin, shape))
    row = {"block_size": int(np.prod(shape))}
    for axis, o, n in zip(store.axes, origin, shape):
        row[f"{axis.name}_min"], row[f"{axis.name}_max"] = store.bounds(axis, o, o + n)
    for variable in store.variables:
        values = store.statistics(variable, part)
        for suffix, value in zip(("min", "max", "mean", "std", "valid", "nan", "missing"), values):
            row[f"{variable.name}_{suffix}"] = value
    return row


def fill_plain(connection, store, name):
    """Check the unindexed table against numpy, and make the plain one."""
    columns = [(n, t) for n, t in columns_of(connection, f"raw.{name}") if t != "tensorbank.tensor_ref" and n != "block_state"]
    names = [n for n, _ in columns]
    rows = connection.execute(f"SELECT tensorbank.origin(v0), tensorbank.shape(v0), {', '.join(names)} FROM raw.{name}").fetchall()
    connection.execute(f"CREATE TABLE plain.{name} ({', '.join(f'{n} {t}' for n, t in columns)})")
    covered = np.zeros(store.shape, dtype="i4")
    table = []
    for origin, shape, *values in rows:
        covered[tuple(slice(o, o + n) for o, n in zip(origin, shape))] += 1
        expected = expected_row(store, names, origin, shape)
        got = dict(zip(names, values))
        for column in names:
            if column == "block":
                continue
            largest = 0.0
            if column.endswith(("_mean", "_std")):
                base = column.rsplit("_", 1)[0]
                ends = [abs(float(got[f"{base}_{e}"])) for e in ("min", "max") if got[f"{base}_{e}"] is not None]
                largest = 1e-9 * max([e for e in ends if math.isfinite(e)], default=0.0)
            assert same(got[column], expected[column], column, largest), (
                f"{name}, block {got['block']} at {origin} {shape}: {column} is {got[column]!r}, numpy says {expected[column]!r}")
        table.append([got[c] if c == "block" or c.endswith(("_mean", "_std")) else expected[c] for c in names])
    assert (covered == 1).all(), "the blocks do not tile the array"
    with connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO plain.{name} VALUES ({', '.join(['%s'] * len(names))})", table)
    return columns, table


@pytest.mark.parametrize("name, dtypes, count, more", STORES, ids=[s[0] for s in STORES])
def test_store(servers, db, stores, name, dtypes, count, more):
    store = oracle_data.Store(f"{stores}/{name}.zarr", sum(map(ord, name)) * 7 + 10000 * SEED, dtypes, **more)
    open_up(f"{stores}/{name}.zarr")
    with db.connect() as c:
        c.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER disk INTO idx')
        c.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER bare INTO raw OPTIONS (statistics \'yes\')')
        c.execute(f"CALL tensorbank.build_index('idx.{name}', workers => 0)")
        columns, table = fill_plain(c, store, name)
        status = c.execute("SELECT levels, blocks, indexed, complete FROM tensorbank.index_status(%s)", (f"idx.{name}",)).fetchone()
        assert status[1] == status[2] == len(table) and status[3]
        if name in ("deep", "line"):
            assert status[0] >= 2
        names = ", ".join(n for n, _ in columns)
        whole = [c.execute(f"SELECT {names} FROM {s}.{name} ORDER BY block").fetchall() for s in ("idx", "raw", "plain")]
        # NaN is NaN here
        whole = [[["NaN" if v != v else v for v in row] for row in rows] for rows in whole]
        assert whole[0] == whole[1], "statistics of the index differ from computed ones"
        assert len(whole[0]) == len(whole[2])
        check_predicates(c, store, name, columns, table, count)
        check_values(c, store, name)


def check_predicates(connection, store, name, columns, table, count):
    random = np.random.default_rng(len(name) + sum(map(ord, name)) + 10000 * SEED)
    usable = [oracle_predicates.Column(n, t, [row[k] for row in table]) for k, (n, t) in enumerate(columns)]
    arrays = tuple(v.name + "_" for v in store.variables)
    # the unindexed table computes again and again: on big grids it is asked for some of the predicates
    raw_share = 1.0 if len(table) < 1500 else 0.1
    done = 0
    while done < count:
        where = oracle_predicates.predicate(usable, random)
        if not any(a in where for a in arrays):
            continue
        text = "SELECT coalesce(array_agg(block ORDER BY block), '{{}}') FROM {}.{} WHERE {}"
        try:
            plain = connection.execute(text.format("plain", name, where)).fetchone()[0]
        except psycopg.Error as e:
            # overflow, or types that do not compare: nothing to compare with
            TOTAL["errors"] += 1
            assert e.sqlstate[:2] in ("22", "42"), where
            assert TOTAL["errors"] < 2000
            continue
        indexed = connection.execute(text.format("idx", name, where)).fetchone()[0]
        assert indexed == plain, f"{name}: indexed differs for {where}: lost {sorted(set(plain) - set(indexed))[:5]}"
        if random.random() < raw_share:
            unindexed = connection.execute(text.format("raw", name, where)).fetchone()[0]
            assert unindexed == plain, f"{name}: unindexed differs for {where}: lost {sorted(set(plain) - set(unindexed))[:5]}"
        if random.random() < 0.1:
            number = connection.execute(f"SELECT count(*) FROM idx.{name} WHERE {where}").fetchone()[0]
            assert number == len(plain), where
        done += 1
        TOTAL["pairs"] += 1
        TOTAL["matched"] += 0 < len(plain) < len(table)


def check_values(connection, store, name):
    """Regions across block borders: read() as xarray decodes, raw() as stored."""
    random = np.random.default_rng(5)
    for variable in store.variables:
        for _ in range(4):
            start = [int(random.integers(0, n)) for n in store.shape]
            size = [int(random.integers(1, n - s + 1)) for s, n in zip(start, store.shape)]
            part = tuple(slice(s, s + n) for s, n in zip(start, size))
            ref = f"tensorbank.crop(tensorbank.ref('idx.{name}', '{variable.name}'), %s::bigint[], %s::bigint[])"
            got = read_array(connection, f"SELECT tensorbank.read({ref})", start, size)
            expected = variable.decoded[part]
            assert got.dtype == expected.dtype and np.array_equal(got, expected, equal_nan=expected.dtype.kind == "f")
            got = read_array(connection, f"SELECT tensorbank.read(tensorbank.raw({ref}))", start, size)
            expected = variable.packed[part]
            assert got.dtype == expected.dtype and np.array_equal(got, expected, equal_nan=expected.dtype.kind == "f")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_values_are_those_of_xarray(servers, conn, stores, zarr_format):
    """A store written by xarray, with everything it packs: read() gives what open_zarr gives, in its type."""
    xarray = pytest.importorskip("xarray")
    random = np.random.default_rng(8)
    dims = ("time", "y", "x")
    celsius = (random.random((5, 12, 10)) * 60 - 20).round(2)
    celsius[random.random(celsius.shape) < 0.2] = np.nan
    data = xarray.Dataset(
        {"packed": (dims, celsius), "scaled_only": (dims, celsius), "single": (dims, celsius.astype("f4")),
         "masked": (dims, celsius), "count": (dims, random.integers(-5, 200, celsius.shape))},
        coords={"time": np.datetime64("2001-01-01", "ns") + np.arange(5) * np.timedelta64(1, "D"), "y": np.arange(12.0),
                "x": np.arange(10.0)})
    chunks = (2, 5, 4)
    encoding = {"packed": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 20.0, "_FillValue": -32768, "chunks": chunks},
                "scaled_only": {"dtype": "i4", "scale_factor": 0.01, "_FillValue": -1, "chunks": chunks},
                "single": {"_FillValue": -99.0, "chunks": chunks}, "masked": {"dtype": "i2", "_FillValue": -7, "chunks": chunks},
                "count": {"dtype": "i4", "chunks": chunks}}
    name = f"xarray{zarr_format}"
    data.to_zarr(f"{stores}/{name}.zarr", mode="w", encoding=encoding, zarr_format=zarr_format, consolidated=True)
    open_up(f"{stores}/{name}.zarr")
    conn.execute(f'IMPORT FOREIGN SCHEMA "{name}.zarr" FROM SERVER disk INTO idx')
    back = xarray.open_zarr(f"{stores}/{name}.zarr", consolidated=True)
    assert set(back.data_vars) == {n for n, t in columns_of(conn, f"idx.{name}") if t == "tensorbank.tensor_ref"}
    for column in back.data_vars:
        got = read_array(conn, f"SELECT tensorbank.read(tensorbank.ref('idx.{name}', '{column}'))")
        expected = back[column].values
        assert got.dtype == expected.dtype, column
        assert np.array_equal(got, expected, equal_nan=expected.dtype.kind == "f"), column
    low, high = conn.execute(f"SELECT min(time_min), max(time_max) FROM idx.{name}").fetchone()
    assert (low.isoformat(), high.isoformat()) == ("2001-01-01T00:00:00+00:00", "2001-01-05T00:00:00+00:00")


def test_parameters(servers, db):
    """Values bound at execution, in generic plans, of other types than the column's."""
    pairs = 0
    random = np.random.default_rng(17)
    with db.connect() as c:
        c.prepare_threshold = None
        c.execute("SET plan_cache_mode = force_generic_plan")
        for name in ("r1", "t1", "t2", "deep"):
            columns = columns_of(c, f"plain.{name}")
            names = [n for n, _ in columns]
            table = c.execute(f"SELECT * FROM plain.{name}").fetchall()
            numbers = [(k, n, t) for k, (n, t) in enumerate(columns) if n.startswith("v") and t in ("double precision", "bigint")]
            for k, column, kind in numbers:
                for parameter in ("float8", "int8", "numeric", "int4"):
                    op = str(random.choice(oracle_predicates.COMPARISONS))
                    sql = f"SELECT block FROM {{}}.{name} WHERE {column} {op} $1 ORDER BY 1"
                    for schema in ("idx", "plain"):
                        c.execute(f"PREPARE p_{schema}({parameter}) AS {sql.format(schema)}")
                    for _ in range(4):
                        column_values = oracle_predicates.Column(column, kind, [row[k] for row in table])
                        value = oracle_predicates.near(column_values, random)
                        if parameter.startswith("int"):
                            if value != value or abs(value) > 2**31:
                                continue
                            value = int(value)
                        # EXECUTE takes no parameters of the protocol
                        text = f"'{str(value).replace('inf', 'Infinity')}'"
                        if parameter == "numeric" and "e" in text.lower() and "infinity" not in text.lower():
                            continue
                        got = [c.execute(f"EXECUTE p_{schema}({text})").fetchall() for schema in ("idx", "plain")]
                        assert got[0] == got[1], f"{sql} with {parameter} {text}"
                        pairs += 1
                    c.execute("DEALLOCATE ALL")
    TOTAL["pairs"] += pairs
    assert pairs > 100


def test_enough(servers):
    """The oracle is worth nothing when few predicates tell blocks apart."""
    assert TOTAL["pairs"] >= 2000
    print(f"oracle: {TOTAL['matched']} of {TOTAL['pairs']} told blocks apart, {TOTAL['errors']} were no question for PostgreSQL")
    assert TOTAL["matched"] > TOTAL["pairs"] * 0.3
