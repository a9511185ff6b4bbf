"""Can the ranks of this job meet and add a number? `all_reduce.py SECONDS`, started on every rank.

Exit code 0 if they can within that time, 2 with one line if not. A collective that hangs cannot be
interrupted, so a timer ends the process.
"""

from __future__ import annotations

import os
import sys
import threading

from cifar_train.ranks import discover
from tidyprof.errors import UserError


def main(seconds: int) -> int:
    """Meet the other ranks and sum a one of each. Returns the exit code."""
    launch = discover()
    advice = "check NCCL_SOCKET_IFNAME and that all ranks see a GPU, before any profiler is started"

    def give_up() -> None:
        print(
            f"rank {launch.rank}: no all-reduce within {seconds} s; {advice}",
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
        print(f"all-reduce over {found} ranks on {device.type}: they meet")
    return 0 if found == launch.world_size else 2


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1])))
