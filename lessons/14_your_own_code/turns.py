"""Run before.py and fixed.py alternately on all ranks of torchrun, and keep seconds and losses."""

import json
import os
import random
import time

import before
import fixed
import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
draw = random.Random(14)  # the same order on all ranks
for turn in range(6):
    for name, script in draw.sample([("before", before), ("fixed", fixed)], 2):
        warmup = "" if turn else "warmup/"
        os.environ["STEP_TIMER_DIR"] = f"turns/{warmup}{name}/run{turn}"
        started = time.perf_counter()
        losses = script.main(steps=12)
        row = {"version": name, "seconds": time.perf_counter() - started, "losses": losses}
        if dist.get_rank() == 0:
            print(f"turn {turn}, {name}: {row['seconds']:.2f} s", flush=True)
            if turn:
                with open("turns/runs.jsonl", "a") as file:
                    file.write(json.dumps(row) + "\n")
dist.destroy_process_group()
