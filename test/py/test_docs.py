"""The examples of the README and of docs/ run, and print what the pages say."""

import glob
import os
import subprocess
import sys

import pytest

import cluster
import docs_store

PAGES = [os.path.relpath(p, cluster.ROOT) for p in
         sorted([f"{cluster.ROOT}/README.md", *glob.glob(f"{cluster.ROOT}/docs/**/*.md", recursive=True)])]
#: What a page that does not begin with CREATE EXTENSION takes for given.
GIVEN = """
CREATE EXTENSION tensorbank;
CREATE SERVER disk FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{folder}');
CREATE SCHEMA era5;
IMPORT FOREIGN SCHEMA "era5.zarr" FROM SERVER disk INTO era5;
"""


def examples(page):
    with open(os.path.join(cluster.ROOT, page), encoding="utf-8") as file:
        return docs_store.blocks(file.read())


@pytest.fixture(scope="module")
def archive(server, folder):
    path = os.path.join(folder, "docs")
    os.mkdir(path)
    docs_store.write(path)
    cluster.open_up(path)
    with server.connect() as c:
        for role in docs_store.ROLES:
            c.execute(f"CREATE ROLE {role}")
    yield path
    with server.connect() as c:
        for role in docs_store.ROLES:
            c.execute(f"DROP OWNED BY {role} CASCADE")
            c.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("page", [p for p in PAGES if any("sys.argv" not in code for _, _, code, _ in examples(p))])
def test_page(server, archive, page, monkeypatch):
    # as on a laptop: one rank
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    name = "docs_page"
    with server.connect() as c:
        c.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        c.execute(f"CREATE DATABASE {name}")
    try:
        if not any("CREATE EXTENSION" in code for _, language, code, _ in examples(page) if language == "sql"):
            with server.connect(name) as c:
                c.execute(GIVEN.format(folder=archive))
                c.execute("CALL tensorbank.build_index('era5.era5')")
                c.execute("SELECT tensorbank.create_dataset('storms', 'SELECT u10 AS u, v10 AS v, wind_max AS label FROM era5.era5"
                          " WHERE wind_max > $1', params => '{25}')")
        assert docs_store.run_page(os.path.join(cluster.ROOT, page), archive, server.dsn(name)) > 0
    finally:
        with server.connect() as c:
            c.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_the_reader_of_indexes(server, archive, tmp_path):
    """docs/formats/hsi.md ends with a reader in a few lines of zarr-python: it counts what a query counts."""
    program = [code for _, language, code, _ in examples("docs/formats/hsi.md") if language == "python" and "sys.argv" in code]
    assert len(program) == 1
    script = tmp_path / "reader.py"
    script.write_text(program[0])
    with server.connect() as c:
        c.execute("DROP DATABASE IF EXISTS docs_reader WITH (FORCE)")
        c.execute("CREATE DATABASE docs_reader")
    try:
        with server.connect("docs_reader") as c:
            c.execute(GIVEN.format(folder=archive))
            c.execute("CALL tensorbank.build_index('era5.era5')")
            (head,) = [root for root, _, files in os.walk(f"{archive}/.tensorbank/hsi") if any(f.startswith("head-") for f in files)]
            for threshold in (-1, 25, 33, 1000):
                done = subprocess.run([sys.executable, str(script), head, "wind", str(threshold)], capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                (expected,) = c.execute("SELECT count(*) FROM era5.era5 WHERE wind_max > %s", (threshold,)).fetchone()
                assert done.stdout.startswith(f"{expected} of 160 blocks")
    finally:
        with server.connect() as c:
            c.execute("DROP DATABASE docs_reader WITH (FORCE)")


def test_there_are_examples():
    assert "README.md" in PAGES and len(examples("README.md")) >= 3


def test_links_lead_somewhere():
    """Relative links between pages."""
    import re
    missing = []
    for page in PAGES:
        with open(os.path.join(cluster.ROOT, page), encoding="utf-8") as file:
            for target in re.findall(r"\]\(([^)#\s]+?)(?:#[^)]*)?\)", file.read()):
                if "://" not in target and not os.path.exists(os.path.join(cluster.ROOT, os.path.dirname(page), target)):
                    missing.append(f"{page}: {target}")
    assert not missing
