"""torch.profiler around a training loop, also under torchrun or srun.

    python 02_profile_a_loop.py [FOLDER]

Writes FOLDER/trace_rank0.json.gz (one file a rank) for https://ui.perfetto.dev, and prints two
tables. Put your own model, data and loop between the dashed lines. Steps 0 to 4 are not recorded, 5
to 7 are.
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
    "the schedule does not fit into the run: nothing would be written"
)

rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", 0)))
local = int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", 0)))
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "profile")
folder.mkdir(parents=True, exist_ok=True)

activities = [ProfilerActivity.CPU]
device = torch.device("cpu")
if torch.cuda.is_available():  # AMD's GPUs too
    activities.append(ProfilerActivity.CUDA)
    device = torch.device("cuda", local % torch.cuda.device_count())
elif hasattr(torch, "xpu") and torch.xpu.is_available():
    activities.append(ProfilerActivity.XPU)
    device = torch.device("xpu", local % torch.xpu.device_count())


def ready(prof):
    """Called once, when the last active step is over."""
    prof.export_chrome_trace(str(folder / f"trace_rank{rank}.json.gz"))
    if rank == 0:
        by = "self_cpu_time_total" if device.type == "cpu" else "self_device_time_total"
        print(prof.key_averages().table(sort_by=by, row_limit=15, max_name_column_width=50))
        shapes = prof.key_averages(group_by_input_shape=True)
        print(
            shapes.table(
                sort_by=by, row_limit=10, max_name_column_width=40, max_shapes_column_width=60
            )
        )


# ------------------------------------------------------------------------------ your model, data
# and loop
model = torch.nn.Sequential(
    torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)
).to(device)
optimizer = torch.optim.AdamW(model.parameters())
# With num_workers above 0 the trace has none of the workers' operators: DataLoader's `__next__` is
# the wait for them.
loader = DataLoader(
    TensorDataset(torch.randn(64 * STEPS, 512)), 64, num_workers=0, pin_memory=device.type == "cuda"
)
batches = iter(loader)

with profile(
    activities=activities,
    schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
    on_trace_ready=ready,
    record_shapes=True,
    with_stack=False,  # True: functions and modules too; slower, larger, for a second run
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
        prof.step()  # the end of a step: without it nothing is recorded
# ------------------------------------------------------------------------------
