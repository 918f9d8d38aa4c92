"""Tables, indexes and datasets that live on S3 alone: listed, written beside the data, grown, streamed."""

import numpy as np
import psycopg
import pytest
import zarr

import s3
import tensorbank
import zarrs

@pytest.fixture(scope="module", params=s3.KINDS)
def bucket(request, s3_servers):
    try:
        return s3_servers.get(request.param)
    except s3.Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture
def place(bucket, db, conn, tmp_path, request):
    """A schema and a server of the test's own; the prefix they lie below."""
    name = request.node.name.split("[")[0] + "_" + bucket.kind
    conn.execute(f"CREATE SERVER {name} FOREIGN DATA WRAPPER tensorbank OPTIONS (url 's3://{bucket.bucket}/{name}', "
                 f"endpoint '{bucket.endpoint}', region 'us-east-1')")
    conn.execute(f"CREATE USER MAPPING FOR CURRENT_USER SERVER {name} OPTIONS (access_key_id '{bucket.access_key}', "
                 f"secret_access_key '{bucket.secret_key}')")
    conn.execute(f"CREATE SCHEMA {name}")
    conn.execute(f"SET search_path TO {name}, public")
    conn.commit()
    conn.autocommit = True
    yield name
    conn.execute(f"DROP SERVER {name} CASCADE")


def upload(bucket, path, place, consolidated=False, **more):
    zarrs.wind(path, consolidated=consolidated, **more)
    bucket.upload(path, f"{place}/w.zarr")
    return np.asarray(zarr.open_group(str(path), mode="r")["t"])


def import_table(conn, place):
    conn.execute(f'IMPORT FOREIGN SCHEMA "w.zarr" FROM SERVER {place} INTO {place}')
    return conn.execute("SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
                        "WHERE nspname = %s AND relkind = 'f'", (place,)).fetchone()[0]


def test_by_listing(bucket, conn, place, tmp_path):
    """Without consolidated metadata the table is found by listing, and its values are those of the store."""
    data = upload(bucket, tmp_path / "w", place)
    table = import_table(conn, place)
    conn.execute(f"CALL tensorbank.build_index('{table}'::regclass, part_blocks => 8)")
    low, high, valid = conn.execute(f"SELECT min(t_min), max(t_max), sum(t_valid)::bigint FROM {table}").fetchone()
    assert (low, high, valid) == (float(np.nanmin(data)), float(np.nanmax(data)), int(np.isfinite(data).sum()))
    assert bucket.keys(f"{place}/.tensorbank/")
    # what is there is gone on with, not built again
    conn.execute(f"CALL tensorbank.build_index('{table}'::regclass)")
    assert any("going on" in n.message_primary for n in conn.notices)


def test_growth(bucket, conn, place, tmp_path):
    """Parts of an index that still hold are carried over into that of the grown array."""
    upload(bucket, tmp_path / "w", place, time=8)
    table = import_table(conn, place)
    conn.execute(f"CALL tensorbank.build_index('{table}'::regclass, part_blocks => 8)")
    data = upload(bucket, tmp_path / "w2", place, time=14)
    conn.execute("SET tensorbank.metadata_max_age = '1ms'")
    conn.notices.clear()
    conn.execute(f"CALL tensorbank.build_index('{table}'::regclass)")
    assert any("going on" in n.message_primary for n in conn.notices)
    high, valid = conn.execute(f"SELECT max(t_max), sum(t_valid)::bigint FROM {table}").fetchone()
    assert (high, valid) == (float(np.nanmax(data)), int(np.isfinite(data).sum()))


def test_dataset(bucket, db, conn, place, tmp_path):
    """A dataset lies in the bucket under its content hash, is there once, and streams."""
    data = upload(bucket, tmp_path / "w", place)
    table = import_table(conn, place)
    query = f"SELECT t AS x FROM {place}.{table}"
    first = conn.execute("SELECT tensorbank.create_dataset(%s, %s)", (place, query)).fetchone()[0]
    again = conn.execute("SELECT tensorbank.create_dataset(%s, %s)", (place + "_2", query)).fetchone()[0]
    assert first == again
    assert len([k for k in bucket.keys(f"{place}/.tensorbank/") if first in k]) == 1
    total = 0.0
    samples = 0
    for batch in tensorbank.dataset(db.dsn(), dataset=place, batch_size=4, tail="ragged", output="numpy", copy=True):
        total += np.nansum(np.asarray(batch.x, dtype="f8"))
        samples += len(batch.x)
    assert samples == conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    assert total == pytest.approx(np.nansum(data.astype("f8")))


def test_no_bucket(bucket, conn, place):
    conn.execute(f"ALTER SERVER {place} OPTIONS (SET url 's3://tensorbank-nowhere/x')")
    with pytest.raises(psycopg.Error) as failure:
        conn.execute(f'IMPORT FOREIGN SCHEMA "w.zarr" FROM SERVER {place} INTO {place}')
    assert failure.value.sqlstate in ("HV00R", "42501")
