"""The store that the documentation's examples use, and the means to run a page's examples.

A page in Markdown is run from top to bottom against an empty database:

    ```sql        runs in psql, each block in a session of its own
    ```python     runs in one namespace a page
    ```text       right behind such a block: what it must print

A block behind the line <!-- not run --> is left out. In what runs, file:///srv/archive stands for the folder of the stores
and "dbname=weather" for the test's database. Pages name the roles analyst, trainer and keeper.

    docs_store.py write FOLDER              write era5.zarr
    docs_store.py run FOLDER DSN PAGE...    run pages
"""

import contextlib
import io
import os
import re
import subprocess
import sys

import numpy as np
import zarr

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROLES = ("analyst", "trainer", "keeper")

# What a reader brings along himself.
OWN = """
def train(*tensors):
    return sum(float(t.sum()) for t in tensors)

def checkpoint(state):
    assert state
"""


def write(folder):
    """era5.zarr: ten days, six-hourly, 24 x 48 points; blocks of 4 x 6 x 12, a storm over the North Atlantic."""
    path = os.path.join(str(folder), "era5.zarr")
    root = zarr.create_group(path, zarr_format=3, overwrite=True)
    time, latitude, longitude = np.arange(40, dtype="i4") * 6, 90 - 7.5 * np.arange(24), 7.5 * np.arange(48)
    put(root, "time", time, ("time",), {"units": "hours since 2020-06-26 00:00", "calendar": "standard"})
    put(root, "latitude", latitude, ("latitude",), {"units": "degrees_north"})
    put(root, "longitude", longitude, ("longitude",), {"units": "degrees_east"})
    t, y, x = np.meshgrid(time, latitude, longitude, indexing="ij")
    random = np.random.default_rng(3)
    gust = lambda: random.normal(0, 2, t.shape)
    storm = 40 * np.exp(-((y - 42 - t / 24) ** 2 + (x - 300 - t / 6) ** 2) / 100)
    u, v = 16 * np.exp(-((np.abs(y) - 45) ** 2) / 100) + storm + gust(), 3 * np.sin(np.radians(2 * x)) + gust()
    warm = 300 - 0.45 * np.abs(y - 15) + 14 * np.exp(-((y - 25) ** 2 + (x - 45) ** 2) / 300) + 3 * np.cos(t / 24 * 2 * np.pi)
    for name, data, units, long_name in (
            ("t2m", warm + gust() / 2, "K", "2 metre temperature"), ("u10", u, "m s-1", "10 metre zonal wind"),
            ("v10", v, "m s-1", "10 metre meridional wind"), ("wind", np.hypot(u, v), "m s-1", "10 metre wind speed")):
        put(root, name, data.astype("f4"), ("time", "latitude", "longitude"), {"units": units, "long_name": long_name},
            chunks=(4, 6, 12), shards=(8, 12, 24))
    zarr.consolidate_metadata(path)


def put(group, name, data, dims, attributes, chunks=None, shards=None):
    array = group.create_array(name, shape=data.shape, dtype=data.dtype, chunks=chunks or data.shape, shards=shards,
                               dimension_names=dims, fill_value=float("nan") if data.dtype.kind == "f" else 0, attributes=attributes)
    array[...] = data


def blocks(text):
    """(line, language, code, expected text or None) of each block of a page that runs."""
    found, lines, at = [], text.split("\n"), 0
    behind = None
    while at < len(lines):
        fence = re.match(r"```(\w*)\s*$", lines[at])
        if not fence:
            if lines[at].strip():
                behind = lines[at].strip()
            at += 1
            continue
        end = lines.index("```", at + 1)
        code = "\n".join(lines[at + 1 : end])
        if fence[1] in ("sql", "python") and behind != "<!-- not run -->":
            found.append([at + 1, fence[1], code, None])
            behind = found[-1]
        elif fence[1] == "text" and isinstance(behind, list):
            behind[3] = code
            behind = None
        else:
            behind = None
        at = end + 1
    return [tuple(block) for block in found]


def psql():
    bindir = subprocess.run([os.environ.get("PG_CONFIG", "pg_config"), "--bindir"], capture_output=True, text=True).stdout.strip()
    return os.path.join(bindir, "psql") if os.path.exists(os.path.join(bindir, "psql")) else "psql"


def plain(text):
    return [line.rstrip() for line in text.strip("\n").split("\n")]


def run_page(page, folder, dsn):
    """Run the examples of a page; returns their number, raises at the first that fails."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    names = {"__name__": "page"}
    exec(OWN, names)
    found = blocks(text)
    for line, language, code, expected in found:
        if "sys.argv" in code:
            continue    # a program, which a test of its own runs
        code = code.replace("file:///srv/archive", f"file://{folder}").replace("dbname=weather", dsn)
        where = f"{os.path.basename(page)}:{line}"
        if language == "sql":
            done = subprocess.run([psql(), "-X", "-q", "-P", "footer=off", "-v", "ON_ERROR_STOP=1", "-d", dsn], input=code, capture_output=True,
                                  text=True, timeout=120, env={**os.environ, "PGTZ": "UTC", "PGOPTIONS": "-c client_min_messages=warning"})
            output = done.stdout
            if done.returncode != 0:
                raise AssertionError(f"{where}: {done.stderr}")
        else:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * line + code, page, "exec"), names)
            output = printed.getvalue()
        if expected is not None and plain(output) != plain(expected):
            raise AssertionError(f"{where} printed\n{output}\ninstead of\n{expected}")
    return len(found)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        for name in sys.argv[4:]:
            print(f"{os.path.basename(name)}: {run_page(name, sys.argv[2], sys.argv[3])} examples")
