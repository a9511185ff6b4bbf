"""Test whether a job's ranks can communicate. Run `all_reduce.py SECONDS` on every rank.

The ranks add up numbers. The exit code is 0 if they finish within SECONDS. Otherwise, the exit
code is 2, and each rank prints one line. A hanging collective can't be interrupted, so a timer
ends the process.
"""

from __future__ import annotations

import os
import sys
import threading

from cifar_train.ranks import discover
from tidyprof.errors import UserError


def main(seconds: int) -> int:
    """Add up the number 1 from each rank, and return the exit code."""
    launch = discover()
    advice = "Check NCCL_SOCKET_IFNAME, and check that each rank detects a GPU"

    def give_up() -> None:
        print(
            f"the all-reduce on rank {launch.rank} took longer than {seconds} s. {advice}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(2)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    import torch
    import torch.distributed as dist

    from cifar_train.ranks import join, leave, pick_device

    try:
        device = pick_device("auto", launch)
        join(launch, device, seconds)
        total = torch.ones(1, device=device)
        dist.all_reduce(total)
        found = int(total.item())
        leave(launch)
    except (UserError, RuntimeError) as error:
        print(f"rank {launch.rank}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
        return 2
    if launch.rank == 0:
        print(f"the {found} ranks can communicate ({device.type})")
    return 0 if found == launch.world_size else 2


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1])))
