"""The main job: import, index, query, read, freeze, train, kill, resume; says what happened in numbers."""

import json
import multiprocessing
import os
import shutil
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import numpy as np
import psycopg
import zarr

import stores
import tensorbank

DIR = os.environ["TB_DEMO_DIR"]
HTTP = f"http://127.0.0.1:{os.environ['HTTP_PORT']}"


def step(text):
    print(f"\n== {text}", flush=True)


def blocks_of(plan):
    """The scan of a plan in EXPLAIN's JSON."""
    if plan["Node Type"] == "Foreign Scan":
        return plan
    for child in plan.get("Plans", []):
        found = blocks_of(child)
        if found:
            return found
    return None


def explained(connection, sql):
    """Run a query under EXPLAIN ANALYZE: (milliseconds, scan)."""
    plan = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}").fetchone()[0]
    plan = plan if isinstance(plan, list) else json.loads(plan)
    return plan[0]["Execution Time"], blocks_of(plan[0]["Plan"])


def set_up(connection):
    step("Write the stores with zarr-python, import them over file:// and http://")
    stores.write_all(f"{DIR}/stores")
    for root, folders, files in os.walk(f"{DIR}/stores"):
        for name in folders + files:
            os.chmod(os.path.join(root, name), 0o777)
    connection.execute("CREATE EXTENSION tensorbank")
    connection.execute(f"CREATE SERVER disk FOREIGN DATA WRAPPER tensorbank OPTIONS (url 'file://{DIR}/stores')")
    connection.execute(f"CREATE SERVER web FOREIGN DATA WRAPPER tensorbank OPTIONS (url '{HTTP}', "
                       f"index_url 'file://{DIR}/index')")
    for schema, server in (("near", "disk"), ("far", "web")):
        connection.execute(f"CREATE SCHEMA {schema}")
        for store in ("winds.zarr", "sea.zarr"):
            connection.execute(f'IMPORT FOREIGN SCHEMA "{store}" FROM SERVER {server} INTO {schema}')
    for row in connection.execute(
            "SELECT ftrelid::regclass::text, d.* FROM pg_foreign_table, tensorbank.describe(ftrelid) d ORDER BY 1, 2"):
        print(f"   {row[0]:11} {row[1]:5} {row[2]:8} {dict(zip(row[3], row[4]))} in chunks of {row[5]}: {row[6]}")


def build(connection):
    step("Build the statistical index (each chunk is read once)")
    for table in ("near.winds", "near.sea", "far.winds", "far.sea"):
        start = time.time()
        connection.execute(f"CALL tensorbank.build_index('{table}')")
        levels, blocks, indexed = connection.execute(
            f"SELECT levels, blocks, indexed FROM tensorbank.index_status('{table}')").fetchone()
        print(f"   {table:11} {indexed} of {blocks} blocks, {levels} levels, {time.time() - start:.1f} s")


QUERIES = (
    ("gales over the North Atlantic in the winters of 1983 and later",
     "SELECT block, read(uwnd) FROM {}.winds WHERE uwnd_max > 11 AND lat_min >= 30 AND lon_min BETWEEN 280 AND 350"
     " AND time_min >= '1983-01-01'"),
    ("sea that is warmer than 29.5 degrees somewhere in the block",
     "SELECT block, read(sst) FROM {}.sea WHERE sst_max > 29.5"),
    ("sea below zero in July, south of 50 S",
     "SELECT block, read(sst) FROM {}.sea WHERE sst_min < 0 AND month_min = 7 AND lat_max < -50"),
)


def query(connection):
    step("Three selective queries: what was skipped, what was read")
    for title, sql in QUERIES:
        print(f"   {title}")
        answers = []
        for schema in ("near", "far"):
            text = sql.format(schema).replace("read(", "tensorbank.read(")
            ms, scan = explained(connection, text)
            answers.append(connection.execute(f"SELECT array_agg(block ORDER BY block) FROM ({text}) q").fetchone()[0])
            pruned = {k: v for k, v in scan.items() if k.startswith("Pruned") and v}
            print(f"     {schema}: {scan['Actual Rows']} of {scan['Blocks']} blocks in {ms:.1f} ms, "
                  f"{scan['Store Requests']} requests, {scan['Store Bytes'] / 1024:.0f} kB; "
                  + (", ".join(f"{k.lower()} {v}" for k, v in pruned.items()) or "nothing pruned"))
        assert answers[0] == answers[1], "file:// and http:// gave different rows"


def read_one(connection):
    step("Read a block into numpy and look at it")
    tensorbank.register(connection)
    with connection.cursor(binary=True) as cursor:
        cursor.execute("SELECT tensorbank.read(sst), sst::text, tensorbank.preview(tensorbank.read(sst)) FROM far.sea"
                       " WHERE sst_max > 29.5 AND sst_missing BETWEEN 5 AND 40 ORDER BY sst_std DESC LIMIT 1")
        array, name, preview = cursor.fetchone()
    print(f"   {name}: {array.dtype}{list(array.shape)}, {np.nanmin(array):.2f} to {np.nanmax(array):.2f} degrees, "
          f"{int(np.isnan(array).sum())} elements are land")
    print("\n".join("   " + line for line in preview.splitlines()))
    start = [int(part.split(":")[0]) for part in name.split("[")[1].split("]")[0].split(",")]
    whole = zarr.open_group(f"{DIR}/stores/sea.zarr", mode="r")["sst"]
    there = whole[tuple(slice(s, s + n) for s, n in zip(start, array.shape))]
    there = np.where(there == np.float32(-1e34), np.float32(np.nan), there)
    assert np.array_equal(array, there, equal_nan=True), "zarr-python reads other values"
    print("   zarr-python reads the same values")
    picture(array[0] if array.ndim == 3 else array, name)


def picture(plane, name):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 4))
    image = axes.imshow(plane, origin="lower", cmap="viridis")
    axes.set_title(name, fontsize=8)
    figure.colorbar(image, label="degrees Celsius")
    figure.savefig("build/demo.png", dpi=120)
    print("   picture: build/demo.png")


DATASET = ("SELECT uwnd AS u, vwnd AS v, uwnd_mean AS label FROM far.winds"
           " WHERE block_size = 864 AND uwnd_missing = 0 AND uwnd_std > $1")


def freeze(connection):
    step("Freeze a query as a dataset")
    connection.execute("SELECT tensorbank.create_dataset('windy', %s, params => '{2}')", (DATASET,))
    name, count, digest = connection.execute(
        "SELECT name, samples, hash FROM tensorbank.datasets WHERE name = 'windy'").fetchone()
    print(f"   {name}: {count} samples, sha256 {digest[:16]}...")


def train(rank, queue, stop_at=None, state=None, epochs=(0, 1)):
    """A tiny model that tells the mean zonal wind from both components; hands its samples and losses over."""
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2 * 864, 1))
    step_size = torch.optim.SGD(model.parameters(), lr=1e-5)
    data = tensorbank.dataset("", dataset="windy", batch_size=16, shuffle="full", seed=7, rank=rank, world_size=2,
                              state=state, epoch=epochs[0])
    seen, losses = [], []
    for epoch in epochs:
        if epoch != epochs[0]:
            data.set_epoch(epoch)
        total = count = 0
        for batch in data:
            x = torch.cat([batch.u, batch.v], dim=1).float()
            loss = torch.nn.functional.mse_loss(model(x)[:, 0], batch.label.float())
            step_size.zero_grad()
            loss.backward()
            step_size.step()
            seen.append((epoch, batch.number, [round(float(s), 6) for s in batch.u.double().sum(dim=(1, 2, 3))], batch.state))
            total += float(loss.detach())
            count += 1
            if stop_at is not None and len(seen) == stop_at:
                queue.put((rank, seen, losses))
                time.sleep(60)  # waits to be killed
        losses.append(total / max(count, 1))
    queue.put((rank, seen, losses))


def run_ranks(ranks, **options):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=train, args=(rank, queue), kwargs=options) for rank in ranks]
    for worker in workers:
        worker.start()
    results = dict((r, (s, l)) for r, s, l in (queue.get(timeout=300) for _ in ranks))
    return workers, results


def train_all():
    step("Train a tiny torch model for two epochs on ranks 0 and 1 of 2, shuffled")
    start = time.time()
    workers, whole = run_ranks((0, 1))
    for worker in workers:
        worker.join()
    for rank in (0, 1):
        seen, losses = whole[rank]
        print(f"   rank {rank}: {len(seen)} batches of 16, loss {losses[0]:.3f} then {losses[1]:.3f}")
    sums = [{s for e, _, ss, _ in whole[r][0] if e == 0 for s in ss} for r in (0, 1)]
    print(f"   {time.time() - start:.1f} s; the ranks share {len(sums[0] & sums[1])} samples of an epoch")
    step("Kill rank 1 with SIGKILL in the middle of the first epoch and resume it")
    workers, part = run_ranks((1,), stop_at=5, epochs=(0,))
    workers[0].kill()
    workers[0].join()
    before = part[1][0]
    workers, rest = run_ranks((1,), state=before[-1][3], epochs=(0,))
    workers[0].join()
    resumed = [s for _, _, s, _ in before] + [s for _, _, s, _ in rest[1][0]]
    expected = [s for e, _, s, _ in whole[1][0] if e == 0]
    assert resumed == expected, "the resumed run saw other samples"
    print(f"   {len(before)} batches before, {len(rest[1][0])} after: the same {sum(map(len, expected))} samples in the same "
          "order as the run that was not killed")


def main():
    with psycopg.connect("", autocommit=True) as connection:
        connection.add_notice_handler(lambda d: d.severity_nonlocalized == "WARNING" and print("   WARNING:", d.message_primary))
        set_up(connection)
        build(connection)
        query(connection)
        read_one(connection)
        freeze(connection)
        train_all()
        step("Done")
        size = sum(os.path.getsize(os.path.join(r, f)) for r, _, fs in os.walk(f"{DIR}/stores") for f in fs)
        print(f"   data {size / 1e6:.1f} MB; everything above ran on the same tables over file:// and http://")


if __name__ == "__main__":
    main()
