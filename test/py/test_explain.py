"""What EXPLAIN tells: the predicate that prunes, and with ANALYZE what was skipped and what it cost."""

import pytest

import zarrs
from cluster import open_up


@pytest.fixture(scope="module", autouse=True)
def data(db, stores):
    zarrs.wind(f"{stores}/explained.zarr")
    zarrs.wind(f"{stores}/bare.zarr")
    open_up(stores)
    with db.connect() as c:
        c.execute('IMPORT FOREIGN SCHEMA "explained.zarr" FROM SERVER web INTO public')
        c.execute('IMPORT FOREIGN SCHEMA "bare.zarr" FROM SERVER web INTO public OPTIONS (statistics \'yes\')')
        c.execute("CALL tensorbank.build_index('explained')")


def scan_of(connection, sql, analyze=True):
    (plan,) = connection.execute(f"EXPLAIN (FORMAT JSON{', ANALYZE' if analyze else ''}) {sql}").fetchone()
    found = []

    def walk(node):
        if node["Node Type"] == "Foreign Scan":
            found.append(node)
        for child in node.get("Plans", []):
            walk(child)

    walk(plan[0]["Plan"])
    assert len(found) == 1
    return found[0]


def test_static(conn):
    scan = scan_of(conn, "SELECT * FROM explained WHERE t_max > 200 AND lat_min >= 0", analyze=False)
    assert "t_max" in scan["Pushed"] and "lat_min" in scan["Pushed"] and "200" in scan["Pushed"]
    assert scan["Blocks"] == 36
    assert scan["Index Levels"] >= 1
    assert "Pruned by Coordinates" not in scan


def test_estimated_bytes(conn):
    scan = scan_of(conn, "SELECT tensorbank.read(t) FROM explained WHERE t_max > 200", analyze=False)
    size, = conn.execute("SELECT max(block_size) FROM explained").fetchone()
    assert scan["Estimated Bytes"] == scan["Plan Rows"] * size * 4
    # nothing is read where read() is not called
    assert "Estimated Bytes" not in scan_of(conn, "SELECT t FROM explained WHERE t_max > 200", analyze=False)


def test_numbers_add_up(conn):
    scan = scan_of(conn, "SELECT * FROM explained WHERE t_max > 200 AND lat_min >= 0")
    (rows,) = conn.execute("SELECT count(*) FROM explained WHERE t_max > 200 AND lat_min >= 0").fetchone()
    assert scan["Actual Rows"] == rows > 0
    assert scan["Pruned by Coordinates"] > 0
    # what level 0 lets through is rechecked, row for row
    leaves = scan["Blocks"] - scan["Pruned by Coordinates"] - sum(
        n for key, n in scan.items() if key.startswith("Pruned at Level 0"))
    assert rows <= leaves <= scan["Blocks"]
    assert scan["Store Requests"] >= 0 and scan["Index Requests"] >= 0


def test_nothing_matches(conn):
    scan = scan_of(conn, "SELECT tensorbank.read(t) FROM explained WHERE t_max > 1e6")
    assert scan["Actual Rows"] == 0 and scan["Store Bytes"] == 0


def test_unindexed_says_so(conn):
    scan = scan_of(conn, "SELECT * FROM bare WHERE t_max > 200")
    assert scan["Index Levels"] == 0
    assert scan["Blocks Read for Statistics"] == 36
    assert scan["Store Bytes"] > 0


def test_arithmetic_is_pushed(conn):
    scan = scan_of(conn, "SELECT * FROM explained WHERE t_max - t_min > 4.5")
    assert "Pushed" in scan
    assert scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0) <= 36


def test_text_form(conn):
    text = "\n".join(r[0] for r in conn.execute("EXPLAIN SELECT * FROM explained WHERE t_max > 200 OR p_min IS NULL"))
    assert "Pushed: " in text and "Foreign Scan on explained" in text


def test_parameter_is_open_until_it_runs(conn):
    conn.execute("SET plan_cache_mode = force_generic_plan")
    conn.execute("PREPARE q(float8) AS SELECT * FROM explained WHERE t_max > $1")
    (plan,) = conn.execute("EXPLAIN (FORMAT JSON) EXECUTE q(200)").fetchone()
    assert plan[0]["Plan"]["Blocks"] == 36
    (plan,) = conn.execute("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE q(200)").fetchone()
    (rows,) = conn.execute("SELECT count(*) FROM explained WHERE t_max > 200").fetchone()
    assert plan[0]["Plan"]["Actual Rows"] == rows


def test_estimate_reads_no_data(conn, web):
    web.mark()
    row = conn.execute("SELECT blocks, requests, stored_bytes, decoded_bytes FROM tensorbank.estimate("
                       "'SELECT tensorbank.read(t) FROM explained WHERE t_max > $1', '{200}')").fetchone()
    (rows,) = conn.execute("SELECT count(*) FROM explained WHERE t_max > 200").fetchone()
    assert web.requests(r"/t/c/") == []
    assert row[0] == rows and row[3] == rows * 2 * 4 * 4 * 4
