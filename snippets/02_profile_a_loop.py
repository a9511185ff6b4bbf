"""Trace a training loop with torch.profiler. The script also works under torchrun and
srun.

    python 02_profile_a_loop.py [FOLDER]

The script traces steps 5 to 7 and prints two tables. It also writes one file per rank,
such as FOLDER/trace_rank0.json.gz. You can open these files in https://ui.perfetto.dev.
Put your model, data and loop between the two dashed lines.
"""

import os
import sys
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, TensorDataset

WAIT, WARMUP, ACTIVE = 4, 1, 3
STEPS = 10
assert STEPS >= WAIT + WARMUP + ACTIVE, (
    "The schedule is longer than the run, so no trace would be written."
)

rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", 0)))
local = int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", 0)))
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "profile")
folder.mkdir(parents=True, exist_ok=True)

activities = [ProfilerActivity.CPU]
device = torch.device("cpu")
# Also True for AMD GPUs
if torch.cuda.is_available():
    activities.append(ProfilerActivity.CUDA)
    device = torch.device("cuda", local % torch.cuda.device_count())
elif hasattr(torch, "xpu") and torch.xpu.is_available():
    activities.append(ProfilerActivity.XPU)
    device = torch.device("xpu", local % torch.xpu.device_count())


def ready(prof):
    """Write the trace and the tables after the last active step."""
    prof.export_chrome_trace(str(folder / f"trace_rank{rank}.json.gz"))
    if rank == 0:
        by = "self_cpu_time_total" if device.type == "cpu" else "self_device_time_total"
        print(
            prof.key_averages().table(
                sort_by=by, row_limit=15, max_name_column_width=50
            )
        )
        shapes = prof.key_averages(group_by_input_shape=True)
        print(
            shapes.table(
                sort_by=by,
                row_limit=10,
                max_name_column_width=40,
                max_shapes_column_width=60,
            )
        )


# Your model, data and loop:
# ------------------------------------------------------------------------------
model = torch.nn.Sequential(
    torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)
).to(device)
optimizer = torch.optim.AdamW(model.parameters())
# If num_workers is above 0, the trace doesn't contain the workers' operators.
# DataLoader's `__next__` then shows the time spent waiting for a worker.
loader = DataLoader(
    TensorDataset(torch.randn(64 * STEPS, 512)),
    64,
    num_workers=0,
    pin_memory=device.type == "cuda",
)
batches = iter(loader)

with profile(
    activities=activities,
    schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
    on_trace_ready=ready,
    record_shapes=True,
    # True also records functions and modules, but slows down the run
    with_stack=False,
) as prof:
    for _ in range(STEPS):
        with record_function("data"):
            batch = next(batches)[0].to(device, non_blocking=True)
        with record_function("forward"):
            loss = (model(batch) - batch).square().mean()
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        # Without this call, the profiler records nothing
        prof.step()
# ------------------------------------------------------------------------------
