"""The dataset as torch's IterableDataset; imported only where torch is wanted."""

import mmap
from multiprocessing.context import get_spawning_popen

import torch
from torch.utils.data import IterableDataset, get_worker_info

from ._dataset import Dataset


class TorchDataset(Dataset, IterableDataset):
    """See tensorbank.dataset. Plain loops and DataLoader(ds, batch_size=None) with any number of workers give the same batches."""

    torch = torch

    def __init__(self, *args):
        super().__init__(*args)
        # one byte that forked workers share with us: whether they took the iteration over
        self._taken = mmap.mmap(-1, 1)

    def _workers(self):
        info = get_worker_info()
        if info is None:
            return 0, 0
        if self._taken is not None:
            self._taken[0] = 1
        return info.id, info.num_workers

    def _owned_by_workers(self):
        return self._taken is not None and self._taken[0] == 1

    def __getstate__(self):
        # spawned workers get a copy by pickle instead
        if self._taken is not None and get_spawning_popen() is not None:
            self._taken[0] = 1
        return {**self.__dict__, "_taken": None}

    def __setstate__(self, state):
        self.__dict__.update(state)
        if get_worker_info() is None and get_spawning_popen() is None:
            self._taken = mmap.mmap(-1, 1)
