# %% [markdown] tags=["given"]
# # Which kernels, how often, how small?
#
# With both fixes from lesson 03, the H200 reaches 7,816 images/s, and its steps hardly depend on the images. AMD
# published 12,787 images/s for the same network and batch size on an MI300X. We have no H200 trace of the fixed run, so
# the evidence now comes from an MI300X: first AMD's recorded tables, then modeled runs. `$EXAMPLE` now uses
# `--num-workers 2`. The modeled loaders keep up at batch size 256, so batched transforms change nothing.
#
# `rocprofv3` records every kernel that an unmodified program runs on an AMD GPU. Its table shows whether a single
# kernel is worth optimizing or whether too many small kernels leave the GPU without work.
#
# After this lesson, you can:
#
# - record a kernel trace of one process or every rank of a job, and group it with pandas;
# - find a kernel's launch call and range;
# - tell whether a slow kernel or too many launches limit a step.
#
# **Before you start:** complete lessons 00, 02 and 03. The commands work with ROCm 7.0 to {newest rocm}.

# %%
import pandas as pd

import proflab
import tidyprof
from proflab import case, exercise, show_figure, show_table, show_text
from proflab.parts.steady_part import mean_steps, own_run, steady_part
from tidyprof import DEVICE_KINDS, plots

lesson = proflab.start("04")
lesson.findings()

# %%
lesson.recall()

# %% [markdown] slide="Is the GPU the limit, or the CPU that launches its work?"
# ## The picture to keep in mind
#
# A *dispatch* is one run of a kernel. The CPU launches kernels one by one, and the GPU runs them in order:
#
# | | the GPU is the limit | the CPU is the limit (*launch bound*) |
# | --- | --- | --- |
# | the CPU | runs ahead, so the queue is full | launches kernels as fast as it can |
# | the GPU | runs one kernel after another | runs each kernel at once, then waits for the next launch |
# | a step takes | the total time of all kernels | the number of launches times the time per launch |
# | a faster kernel | shortens the step | lengthens the gap after it |
#
# ## Predict

# %%
# solution
kernels_guess, step_guess = 500, 10
# end solution
proflab.predict("04.a", kernels_guess, unit="kernels", what="a step with 256 images")
proflab.predict(
    "04.b",
    step_guess,
    unit="times",
    what="the step time with 512 images, relative to 32",
)

# %% [markdown]
# ## What AMD recorded
#
# AMD published the top rows of its kernel tables for this training script on MI300X GPUs:

# %% slide="AMD published kernel statistics of the same network."
published = pd.read_csv(lesson.file("amd_kernel_tables.csv"), comment="#")
columns = "name calls total_ms max_us percent"
origin = "recorded: MI300X, published by AMD"
for run in ("one GPU", "parallel"):
    rows = published[published["run"] == run]
    show_table(rows, columns, f"AMD's table: {run}", rows=4, origin=origin)

# %% [markdown] slide="Each option of rocprofv3 records one kind of event."
# On one GPU, the top kernel only copies memory, and every kernel has a small share. On several GPUs, the RCCL kernel
# comes first. This kernel also runs while waiting for other ranks, so kernel tables count waiting as work (lesson 07).
#
# ## Capture
#
# Put the tool before the program's command, with `--` between them.
#
# | option | purpose |
# | --- | --- |
# | `--kernel-trace` | Record every dispatch. The tool records only what you request. |
# | `--hip-runtime-trace` | Record HIP calls, such as launches, which adds overhead |
# | `--marker-trace` | Record ROCTX ranges (trainer: `--roctx`) |
# | `--stats` | Summarize the recorded events; alone, it causes an error |
# | `--output-format` | Always set it. The default is CSV up to ROCm 6.4 and a `rocpd` database since 7.0. |
# | `--output-directory`, `--output-file` | Set the folder and the file name prefix; default: `<machine>/<process>` |
#
# Without a GPU, the course replays a modeled MI300X run.

# %% language="bash"
# rm -rf $FOLDER/one
# rocprofv3 --kernel-trace --hip-runtime-trace --marker-trace --stats \
#     --output-format csv rocpd --output-directory $FOLDER/one --output-file gpu \
#     -- $EXAMPLE --max-steps 8 --roctx 2>&1 | grep -v Opened

# %% [markdown]
# Lesson 06 queries the `rocpd` database. All times are in nanoseconds.
#
# ## First look
#
# `kernel_trace.csv` has one row per dispatch. Grouped by name, these rows give the same table as `--stats`:

# %% slide="Compute the statistics yourself from the trace before you trust the table."
trace = pd.read_csv(lesson.folder / "one/gpu_kernel_trace.csv")
trace["ns"] = trace["End_Timestamp"] - trace["Start_Timestamp"]
grouped = trace.groupby("Kernel_Name")["ns"].agg(["size", "sum", "mean", "min", "max"])
stats = pd.read_csv(lesson.folder / "one/gpu_kernel_stats.csv")
for name, ns in {
    "grouped": grouped["sum"],
    "--stats": stats["TotalDurationNs"],
}.items():
    print(f"{name}: {len(ns)} kernel names, {ns.sum() / 1e6:.1f} ms")

# %% [markdown]
# The first step takes far longer because the CPU has more to prepare. `steady_part` leaves out the warm-up:

# %% slide="A few kernels take most of the kernel time."
run = own_run(lesson.folder / "one/gpu_results.db")
steady = steady_part(run)
table = tidyprof.kernels(steady.profile, include=DEVICE_KINDS)
title = f"The top kernel takes {table['percent'].iloc[0]:.0f}% of the kernel time"
show_figure(plots.top_kernels(table, 8, title=title))

# %% [markdown]
# Kernels in the `copy` category only move data, for example to transpose an array. A step budget counts transposes as
# compute. Record full names and shorten them later because `--truncate-kernels` merges different kernels.
#
# Backward batch norm is second in AMD's table, but forward batch norm is second in the modeled run, which is least
# accurate for this kernel. Never rank kernels by modeled times.
#
# ## Who launches the copies?
#
# AMD's runtime uses the `__amd_rocclr_copyBuffer` kernel to copy data within GPU memory. Which code requests these
# copies? Join each dispatch with the call that launched it. Both have the same `Correlation_Id`:

# %% slide="A correlation id leads from a copy to the call that launched it."
columns = {
    "Correlation_Id": "Correlation_Id",
    "Function": "call",
    "Start_Timestamp": "launched",
}
calls = pd.read_csv(lesson.folder / "one/gpu_hip_api_trace.csv")[[*columns]]
copies = trace[trace["Kernel_Name"].str.contains("copyBuffer")]
copies = copies.merge(calls.rename(columns=columns), on="Correlation_Id")
show_text(f"{len(copies):,} copies, launched by {', '.join(copies['call'].unique())}")
show_text(f"A copy takes {copies['ns'].mean() / 1e3:.0f} µs ({run.origin}).")

# %%
# 4 minutes: how many of the `copies` are launched within the `backward` range per step? `copies["launched"]` is the
# time of the call on the CPU. `marks` has one row per range, with its name in `Function`, its `Start_Timestamp` and its
# `End_Timestamp`.
marks = pd.read_csv(lesson.folder / "one/gpu_marker_api_trace.csv")
q = exercise("04.1", (copies, marks))
# solution
backward = marks[marks["Function"] == "backward"]
ranges = zip(backward["Start_Timestamp"], backward["End_Timestamp"], strict=True)
answer = sum(
    copies["launched"].between(start, end).sum() for start, end in ranges
) / len(backward)
# end solution
q.check(answer)

# %% [markdown]
# A `torch.profiler` trace shows that the `aten::copy_` operator launches these copies. The network has 161 parameters
# and 159 buffers, so their number matches `DistributedDataParallel`, which the trainer uses even with one rank. In the
# forward pass, it gathers the buffers. In the backward pass, it copies each gradient into a *bucket*, which is sent as
# a whole. The copies don't depend on the batch size, so they are a fixed cost.
#
# ## Trap: percent of what?
#
# Percentages in the kernel table are shares of the total *kernel* time, not of the step. The *union* from lesson 02
# shows how long at least one kernel runs:

# %% slide="Percent of what? A share of the kernel time isn't a share of the step."
busy_ns = tidyprof.busy(steady.profile)["busy_ns"].sum()
kernel_us = steady.dispatches["duration_ns"] / 1e3
show_text(
    f"Kernels run during {100 * busy_ns / steady.duration_ns:.0f}% of the steady steps."
)
time_us = steady.duration_ns / len(kernel_us) / 1e3
show_text(
    f"Mean kernel time: {kernel_us.mean():.0f} µs; step time per kernel: {time_us:.0f} "
    "µs"
)

# %%
# 3 minutes: for what percentage of the time in the steady steps does the first kernel of `table` run? All steady steps
# together take `steady.duration_ns`.
q = exercise("04.2", steady)
# solution
answer = 100 * table["total_ns"].iloc[0] / steady.duration_ns
# end solution
q.check(answer)

# %% [markdown]
# ## Is the run launch bound?
#
# Change the number of images per step, but not the number of launches. If the step time stays the same, the kernels'
# work isn't the limit.

# %% language="bash"
# rm -rf $FOLDER/batch*
# for batch in 32 512 1024; do
#     rocprofv3 --kernel-trace --marker-trace --hip-runtime-trace --output-format rocpd \
#         --output-directory $FOLDER/batch$batch --output-file gpu \
#         -- $EXAMPLE --max-steps 8 --roctx --batch-size $batch 2>&1 | grep -v Opened
# done

# %% slide="With more images per step, the idle time shrinks: the launches no longer limit it."
files = {
    f"batch {size}": lesson.folder / f"batch{size}/gpu_results.db"
    for size in (32, 512, 1024)
}
runs = {name: steady_part(own_run(file)) for name, file in files.items()}
budgets = mean_steps(
    {name: tidyprof.step_budget(part.profile) for name, part in runs.items()}
)
figure = plots.step_budget(budgets, title="The mean step with 32, 512 and 1,024 images")
wait, step = budgets[["data_wait_ns", "duration_ns"]].iloc[2] / 1e6
show_figure(figure, (f"{wait:.1f} ms of data wait", (0.7 * step, 1.7), (0.6, 0.8)))

# %% [markdown]
# The batch size decides which of three things limits this program: launches, GPU work or data loading. No fix helps
# with all three, and each fix invalidates older verdicts. Fewer launches shorten only the launch-bound time. In the
# *other* part, the next kernel has been launched, but the GPU needs a moment to start it. The data wait at 1,024 images
# depends on [an assumed time per image](../docs/contributors/gpumodel.md).
#
# ## Counters: how much work is in a launch?
#
# *Hardware counters* count events while a kernel runs. `rocprofv3-avail list --pmc` lists all counters for your GPU,
# and `pmc-check` tests whether some of them fit into one run. `SQ_WAVES` counts *waves*, which are groups of 64
# work-items that run together on an MI300X. `SQ_INSTS_VALU` counts vector instructions, one for a whole wave. Counting
# slows a run down, so record only a few steps.

# %% language="bash"
# rm -rf $FOLDER/pmc
# rocprofv3-avail pmc-check SQ_WAVES SQ_INSTS_VALU 2>&1
# rocprofv3 --pmc SQ_WAVES SQ_INSTS_VALU --output-format csv \
#     --output-directory $FOLDER/pmc --output-file gpu \
#     -- $EXAMPLE --max-steps 2 2>&1 | grep Opened

# %% [markdown]
# For a ratio over many dispatches, divide the totals. Otherwise, small dispatches count too much.

# %% slide="A counter states how much work is in one launch."
counted = pd.read_csv(lesson.folder / "pmc/gpu_counter_collection.csv")
norms = counted[counted["Kernel_Name"].str.startswith("MIOpenBatchNormBwdSpatial")]
sums = norms.groupby("Counter_Name")["Counter_Value"].sum()
each = sums["SQ_INSTS_VALU"] / sums["SQ_WAVES"]
show_text(f"Backward batch norm: {each:.0f} vector instructions per wave. {run.origin}")

# %% [markdown]
# ## Record every rank of a job
#
# On a cluster, put the tool *after* `srun`. Otherwise, it profiles `srun`. Each rank needs its own file name, in which
# `%rank%` stands for the rank and `%pid%` for the process ID.

# %%
# 5 minutes: write a job script, as one string, that records the kernels of `python train.py` on four ranks of one node.
# It should write one CSV file per rank to the `ranks` folder, with the rank in the name. The check runs the script with
# a fake `python`.
q = exercise("04.3", "train.py")
# solution
answer = r"""#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4 --time=00:15:00
srun rocprofv3 --kernel-trace --output-format csv --output-directory ranks \
    --output-file 'rank%rank%_pid%pid%' -- python train.py
"""
# end solution
q.check(answer)

# %% [markdown]
# ## Two fixes: fewer launches, and more work in each
#
# A fused optimizer, `torch.optim.Adam(..., fused=True)`, updates many weights in one kernel (trainer:
# `--fused-optimizer`). A larger batch processes more images with the same number of launches. How much do these fixes
# gain on the H200?

# %% slide="Larger batches and fused optimizers need fewer launches per image."
plain, large = case.options("04"), case.options("05")
recorded = case.measured().query("part == 'steady' and not profiled")
sums = recorded.groupby(["run", "traced"])[["images", "duration_ns"]].sum()
fixes = sums.loc[[("loaders", False), ("fused", False), ("large", True)]].reset_index()
fixes["images_per_s"] = 1e9 * fixes["images"] / fixes["duration_ns"]
fixes["options"] = [plain, f"{plain} --fused-optimizer", large]
show_table(
    fixes,
    "options traced images_per_s",
    "Fixes on an H200",
    origin=recorded.attrs["origin"],
)

# %% [markdown]
# Loaders that get ahead can double a rate (lesson 00), so a smaller gain is inconclusive. In
# the last row, they worked ahead while a trace was being written, so it shows the GPU's rate. With two loaders, steps still
# wait for data:

# %%
two = recorded.query("run == 'loaders' and not traced")["duration_ns"] / 1e6
show_text(
    "Two loaders, sorted step times in ms: "
    + ", ".join(f"{ms:.0f}" for ms in sorted(two))
)

# %% [markdown]
# Over a long run, two loaders deliver one batch per *mean* step time.

# %%
# 3 minutes: how many such loaders are needed so that no step has to wait? Assume that a step without waiting takes as
# long as the shortest step in `two`. Give the number before rounding up.
q = exercise("04.4", two)
# solution
answer = 2 * two.mean() / two.min()
# end solution
q.check(answer)

# %% [markdown]
# ## Decide
#
# This table shows a modeled step before and after both fixes. Its largest part leads to the next question:

# %% slide="The parts of a modeled step with each fix."
steps = pd.read_csv(lesson.file("../modeled_steps.csv"), comment="#").set_index(
    "options"
)
both = steps.loc[[plain, large]]
parts = "step_ms compute_ms launch_bound_ms data_wait_ms exposed_copy_ms other_ms"
show_table(both.reset_index(), f"options {parts}", "A modeled step", origin=run.origin)
before, after = (100 * both.div(both["step_ms"], axis=0)).to_dict("records")

# %% slide="Now the GPU computes nearly all the time. Is its top kernel near its limit?"
lesson.conclude(
    "In the modeled run with two loaders and batch size 256, the GPU computes for "
    f"{before['compute_ms']:.0f}% of a step and waits for launches for "
    f"{before['launch_bound_ms']:.0f}%. With batch size 1,024, eight loaders and fused "
    f"optimizer, it computes for {after['compute_ms']:.0f}%.",
    rules_out="the CPU, in this modeled run; on the H200 machine, eight loaders can't "
    "keep up",
    because="The GPU computes nearly all the time. Is its top kernel near its limit?",
    next="05",
    origin=run.origin,
)
small, wide, _ = runs.values()
proflab.reveal("04.a", len(steady.dispatches) / steady.steps, steady.profile)
proflab.reveal("04.b", float(f"{wide.step_ns / small.step_ns:.2g}"), wide.profile)

# %% [markdown]
# ## Three takeaways
#
# - A kernel table shows how often and how long each kernel runs, and its percentages are shares of the kernel time.
# - If fewer images take the same time, launches are the limit, and faster kernels only lengthen the gaps.
# - Each fix changes the limit, so record a new trace before you choose the next fix.

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# - **Whether a kernel could be faster:** see lesson 05.
# - **The real step time:** the tool slows launches down. Measure without the tool before you conclude that a run is
#   launch bound.
#
# > **Note:** The RCCL kernel is called `rccl_main_kernel` or `ncclDevKernel...`, depending on the release. If a CSV
# > file is missing or the tool doesn't find a GPU, see the [known
# > issues](../docs/known-issues.md#rocprofv3-writes-a-database-instead-of-csv). [More of
# > rocprofv3](../docs/more-of-rocprofv3.md) covers PC sampling and thread traces. `rocprof` and `rocprofv2` have
# > options that look similar, but [the meanings differ](../docs/migration.md).

# %% [markdown]
# ## At work, without this course
#
# {snippet 04_profile_job.sh}
#
# Record a kernel trace on every rank of a Slurm job, for any program.
#
# {snippet 04_busy_time.py}
#
# Print the top kernels, busy time and gaps from these traces with pandas alone.
#
# Read on: [AMD's rocprofv3 manual](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html).
#
# Next question: is the top kernel near its limit?
