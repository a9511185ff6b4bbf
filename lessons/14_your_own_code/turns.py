"""Runs before.py and cured.py in turns, alone or on all ranks of torchrun, and keeps the seconds
and losses of each run.
"""

import json
import os
import random
import time

import before
import cured
import torch
import torch.distributed as dist

torch.set_num_threads(1)
rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if ranks > 1:
    dist.init_process_group("gloo")
draw = random.Random(14)  # the same order on all ranks
os.makedirs(f"turns_{ranks}", exist_ok=True)
with open(f"turns_{ranks}/runs_rank{rank}.jsonl", "w") as kept:
    for turn in range(6):
        for name, script in draw.sample([("before", before), ("cured", cured)], 2):
            counted = "" if turn else "not_counted/"
            os.environ["STEP_TIMER_DIR"] = f"turns_{ranks}/{counted}{name}/run{turn}"
            begin = time.perf_counter()
            losses = script.main(steps=12)
            row = {
                "turn": turn,
                "script": name,
                "seconds": time.perf_counter() - begin,
                "losses": losses,
            }
            if turn:
                print(json.dumps(row), file=kept, flush=True)
            if rank == 0:
                print(f"turn {turn}, {name}: {row['seconds']:.2f} s", flush=True)
if ranks > 1:
    dist.destroy_process_group()
