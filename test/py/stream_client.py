"""A trainer that may be killed: streams a dataset and tells each batch as a line of JSON.

    stream_client.py DSN DATASET BATCH_SIZE SEED [hold]

With "hold" it keeps the first batch and waits.
"""

import json
import sys
import time

import tensorbank

dsn, dataset, batch_size, seed = sys.argv[1:5]
data = tensorbank.dataset(dsn, dataset=dataset, batch_size=int(batch_size), shuffle="full", seed=int(seed), output="numpy",
                          rank=0, world_size=1)
for batch in data:
    print(json.dumps({"blocks": [int(b) for b in batch.block], "sum": float(batch.t[:, 0, 0, 1].sum()), "state": batch.state}), flush=True)
    if "hold" in sys.argv:
        time.sleep(120)
