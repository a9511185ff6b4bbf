"""Run three ranks that hang, or a fix, on a CPU: python hangs.py FOLDER SNIPPET NAME..."""

import importlib.util
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

LIMIT_S, WATCH_S, RANKS = 4, 0.5, 3
spec = importlib.util.spec_from_file_location("find_missing_ranks", sys.argv[2])
find_missing_ranks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(find_missing_ranks)  # sets TORCH_FR_BUFFER_SIZE, so before torch

import torch
import torch.distributed as dist


def late(rank):
    if rank == 1:
        time.sleep(1.5 * LIMIT_S)  # writes a checkpoint
    dist.all_reduce(torch.ones(4))


def skipped(rank):
    if rank != 1:
        dist.all_reduce(torch.ones(4))  # the sum of the losses
    dist.all_reduce(torch.ones(4))  # gradients
    dist.all_reduce(torch.ones(4))  # gradients


def fixed(rank):
    dist.all_reduce(torch.ones(4))  # the sum of the losses, on every rank
    dist.all_reduce(torch.ones(4))
    dist.all_reduce(torch.ones(4))


def other_size(rank):
    if rank == 1:
        time.sleep(LIMIT_S / 2)
    dist.all_reduce(torch.ones(6 if rank == 1 else 4))


def other_order(rank):
    if rank == 1:
        dist.all_reduce(torch.ones(4))
        dist.broadcast(torch.ones(4), 0)
    else:
        dist.broadcast(torch.ones(4), 0)
        dist.all_reduce(torch.ones(4))


def dead(rank):
    if rank == 1:
        os._exit(9)  # as if the system had killed it
    dist.all_reduce(torch.ones(4))


def run(hang, rank, folder):
    sys.stdout = sys.stderr = (folder / f"log_{rank}.txt").open("w", buffering=1)
    os.dup2(sys.stderr.fileno(), 2)
    limit = timedelta(seconds=LIMIT_S)
    meeting = f"file://{folder.resolve()}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS, timeout=limit)
    began = time.time()
    stop = find_missing_ranks.watch(folder, rank, every=WATCH_S)
    try:
        dist.all_reduce(torch.ones(4))  # a step without a problem
        hang(rank)
        print(f"{time.time() - began:.1f} s: rank {rank} is done")
    except RuntimeError as error:
        print(f"{time.time() - began:.1f} s: rank {rank} says: {str(error).rpartition('] ')[2]}")
    finally:
        stop()


def aborted(rank):
    if rank != 1:
        dist.all_reduce(torch.ones(1))  # the loss
    dist.all_reduce(torch.ones(643))  # gradients


def play(hangs, folder):
    """Run all hangs at once, with one process per rank."""
    children = {}
    for hang in hangs:
        of_hang = Path(folder, hang.__name__)
        of_hang.mkdir(parents=True, exist_ok=True)
        for old in of_hang.iterdir():
            old.unlink()  # dumps of an earlier run must not mix with those of this one
        for rank in range(RANKS):
            child = os.fork()
            if not child:
                try:
                    run(hang, rank, of_hang)
                finally:
                    os._exit(0)
            children[child] = hang.__name__
    while children:
        hang = children.pop(os.wait()[0])
        if hang not in children.values():
            print(f"{hang}: finished", flush=True)


if __name__ == "__main__":
    play([globals()[name] for name in sys.argv[3:]], sys.argv[1])
