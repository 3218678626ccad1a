"""Failures of a GPU training, provoked for their texts: `python -m examples.grpo_torch.faults X`.

Each ends the process as a training would end. Only `make gpu` runs them.
"""

from __future__ import annotations

import datetime
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.distributed import checkpoint

from examples.grpo_torch.train import share_a_gpu


def cuda_oom() -> None:
    """Ask for more memory than the GPU has."""
    held = []
    while True:
        held.append(torch.empty(2**34, dtype=torch.uint8, device="cuda"))


def device_assert() -> None:
    """Look up a token that the embedding does not have."""
    table = torch.nn.Embedding(12, 8, device="cuda")
    table(torch.tensor([99], device="cuda")).sum().item()


ILLEGAL = """
extern "C" __global__ void stray(float* x) { x[1ull << 40] = 1.0f; }
"""
MISALIGNED = """
extern "C" __global__ void stray(float* x) { *(double*)((char*)x + 4) = 1.0; }
"""


def _stray(source: str) -> None:
    kernel = torch.cuda._compile_kernel(source, "stray")
    kernel((1, 1, 1), (1, 1, 1), (torch.zeros(8, device="cuda"),))
    torch.cuda.synchronize()


def illegal_address() -> None:
    """Write outside all memory."""
    _stray(ILLEGAL)


def misaligned_address() -> None:
    """Write eight bytes at an address that is a multiple of four."""
    _stray(MISALIGNED)


def _rank(rank: int, where: str) -> None:
    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl", where, rank=rank, world_size=2)
    torch.distributed.all_reduce(torch.ones(1, device="cuda"))
    torch.cuda.synchronize()


def nccl_two_ranks_one_gpu() -> None:
    """Give two ranks the same GPU."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (f"file://{folder}/meet",), nprocs=2)


def _late_rank(rank: int, where: str) -> None:
    """Both ranks on one GPU, which NCCL takes for two hosts; the second never comes."""
    share_a_gpu(rank)
    torch.cuda.set_device(0)
    patience = datetime.timedelta(seconds=10)
    dist = torch.distributed
    dist.init_process_group("nccl", where, rank=rank, world_size=2, timeout=patience)
    dist.all_reduce(torch.ones(1, device="cuda"))
    torch.cuda.synchronize()
    if rank == 1:
        time.sleep(60)  # a rank that hangs, seen from the other one
    dist.all_reduce(torch.ones(1, device="cuda"))
    torch.cuda.synchronize()


def nccl_timeout() -> None:
    """Wait for a rank that does not come."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_late_rank, (f"file://{folder}/meet",), nprocs=2)


class _Large(torch.utils.data.Dataset[torch.Tensor]):
    """Samples that a DataLoader's worker hands over in shared memory."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2**26,), float(index))


def full_shared_memory() -> None:
    """Share a tensor where /dev/shm is full (the caller mounts a small one)."""
    torch.ones(2**26).share_memory_()


def full_shared_memory_loader() -> None:
    """Load data by a worker where /dev/shm is full."""
    for batch in torch.utils.data.DataLoader(_Large(), num_workers=1):
        batch.sum().item()


def no_shared_memory() -> None:
    """Share a tensor larger than what /dev/shm has left."""
    size = os.statvfs("/dev/shm")
    torch.empty(size.f_bavail * size.f_frsize + 2**30, dtype=torch.uint8).share_memory_()


def full_disk() -> None:
    """Save weights to a disk that is full (FAULT_DISK: its mount point)."""
    torch.save(torch.zeros(2**26), Path(os.environ["FAULT_DISK"]) / "optimizer.pt")


def full_disk_safetensors() -> None:
    """The same, as safetensors."""
    save_file({"w": torch.zeros(2**26)}, Path(os.environ["FAULT_DISK"]) / "model.safetensors")


def full_disk_shards() -> None:
    """The same, by torch.distributed.checkpoint."""
    writer = checkpoint.FileSystemWriter(Path(os.environ["FAULT_DISK"]) / "shards")
    checkpoint.save({"w": torch.zeros(2**26)}, storage_writer=writer)


FAULTS = {
    each.__name__: each
    for each in (
        cuda_oom,
        device_assert,
        illegal_address,
        misaligned_address,
        nccl_two_ranks_one_gpu,
        nccl_timeout,
        no_shared_memory,
        full_shared_memory,
        full_shared_memory_loader,
        full_disk,
        full_disk_safetensors,
        full_disk_shards,
    )
}

if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
