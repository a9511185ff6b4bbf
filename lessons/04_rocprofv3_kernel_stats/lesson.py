# %% [markdown] tags=["given"]
# # Which kernels, how often, how small?
#
# With both fixes from lesson 03, the H200 trains on 7,816 images/s. AMD published 12,787 images/s for this model and
# batch size on an MI300X. The next limit only shows if data arrives faster than on the H200's machine, so from here on
# the evidence comes from an MI300X: first AMD's recorded tables and traces, then a model. `$EXAMPLE` is now the run with
# `--num-workers 2`. The modeled loader keeps up with that, so batched transforms wouldn't change it.
#
# `rocprofv3` records every kernel that an unmodified program runs on an AMD GPU. Its table shows whether one kernel is
# worth optimizing, or whether too many small kernels leave the GPU without work.
#
# After this lesson, you can:
#
# - record a kernel trace of one process or of every rank of a job, and group it with pandas;
# - find the call that launches a kernel, and its place in the program;
# - tell a slow kernel from too many launches.
#
# **Before you start:** complete lessons 00, 02 and 03. Commands apply to ROCm 7.0 through {newest rocm}.

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

# %% [markdown]
# ## The picture to keep in mind
#
# A *dispatch* is one run of a kernel. The CPU launches kernels one by one, and the GPU runs them in order:
#
# | | the GPU is the limit | the CPU is the limit (*launch bound*) |
# | --- | --- | --- |
# | CPU | runs ahead, so the queue is full | launches as fast as it can |
# | GPU | runs one kernel after the other | runs each kernel at once, then waits for the next launch |
# | a step takes | the sum of all kernels | the number of launches times the time per launch |
# | a faster kernel | shortens the step | lengthens the gap after it |
#
# ## Predict

# %%
# solution
kernels_guess, step_guess = 500, 10
# end solution
proflab.predict("04.a", kernels_guess, unit="kernels", what="one step of 256 images")
proflab.predict(
    "04.b", step_guess, unit="times", what="the time of a step with 512 images to one with 32"
)

# %% [markdown]
# ## What AMD recorded
#
# AMD published the first rows of kernel tables for this training script on MI300X:

# %%
published = pd.read_csv(lesson.file("amd_kernel_tables.csv"), comment="#")
columns, origin = "name calls total_ms max_us percent", "recorded: MI300X, published by AMD"
for run in ("one GPU", "parallel"):
    rows = published[published["run"] == run]
    show_table(rows, columns, f"AMD, {run}", rows=4, origin=origin)

# %% [markdown]
# On one GPU, the first kernel only copies memory, and all shares are small. On several GPUs, the RCCL kernel comes
# first. It also runs while it waits for another rank, so a kernel table counts waiting as work (lesson 07).
#
# ## Capture
#
# Put the tool in front of the program's command, with `--` between them.
#
# | option | purpose |
# | --- | --- |
# | `--kernel-trace` | Record every dispatch. The tool records nothing that you don't name. |
# | `--hip-runtime-trace` | Record HIP calls, such as launches, which costs more time |
# | `--marker-trace` | Record ROCTX ranges (trainer: `--roctx`) |
# | `--stats` | Sum up what is recorded; alone, it is an error |
# | `--output-format` | Always name it. The default is CSV up to ROCm 6.4, and the database `rocpd` from 7.0. |
# | `--output-directory`, `--output-file` | Folder and start of the file names; otherwise `<machine>/<process>` |
#
# Without a GPU, the course replays a run on a modeled MI300X, and each figure is labeled `modeled`.

# %% language="bash"
# rm -rf $FOLDER/one
# rocprofv3 --kernel-trace --hip-runtime-trace --marker-trace --stats --output-format csv rocpd \
#     --output-directory $FOLDER/one --output-file gpu \
#     -- $EXAMPLE --max-steps 8 --roctx 2>&1 | grep -v Opened

# %% [markdown]
# `rocpd` is a database in one file, which lesson 06 queries. All times are in nanoseconds.
#
# ## First look
#
# `kernel_trace.csv` has one row per dispatch. Group it by name, and you get the table that `--stats` wrote:

# %%
trace = pd.read_csv(lesson.folder / "one/gpu_kernel_trace.csv")
trace["ns"] = trace["End_Timestamp"] - trace["Start_Timestamp"]
grouped = trace.groupby("Kernel_Name")["ns"].agg(["size", "sum", "mean", "min", "max"])
stats = pd.read_csv(lesson.folder / "one/gpu_kernel_stats.csv")
for name, ns in {"grouped": grouped["sum"], "--stats": stats["TotalDurationNs"]}.items():
    print(f"{name}: {len(ns)} kernel names, {ns.sum() / 1e6:.1f} ms")

# %% [markdown]
# The first step takes far longer, because the CPU has much to prepare. `steady_part` leaves out the warm-up:

# %%
run = own_run(lesson.folder / "one/gpu_results.db")
steady = steady_part(run)
table = tidyprof.kernels(steady.profile, include=DEVICE_KINDS)
title = f"The first kernel takes {table['percent'].iloc[0]:.0f}% of the kernel time"
show_figure(plots.top_kernels(table, 8, title=title))

# %% [markdown]
# Kernels of the category `copy` only move data, for example to transpose an array. A step budget counts the latter as
# compute. Record full names and shorten them later, because the tool's `--truncate-kernels` merges different kernels.
#
# AMD's second row is the backward batch norm, but the model's is the forward one, the kernel that it gets most wrong. So
# never rank kernels by a model.
#
# ## Who launches the copies?
#
# AMD's runtime uses the kernel `__amd_rocclr_copyBuffer` to copy within GPU memory. Who asked for these copies? Join each dispatch with the call that launched it, because both have the same `Correlation_Id`:

# %%
columns = {"Correlation_Id": "Correlation_Id", "Function": "call", "Start_Timestamp": "launched"}
calls = pd.read_csv(lesson.folder / "one/gpu_hip_api_trace.csv")[[*columns]]
copies = trace[trace["Kernel_Name"].str.contains("copyBuffer")]
copies = copies.merge(calls.rename(columns=columns), on="Correlation_Id")
show_text(f"{len(copies):,} copies, launched by {', '.join(copies['call'].unique())}")
show_text(f"A copy takes {copies['ns'].mean() / 1e3:.0f} µs ({run.origin})")

# %%
# 4 minutes: how many of the `copies` are launched within the range `backward`, per step? `copies["launched"]` is the
# time of the call on the CPU. `marks` has one row per range: `Function`, `Start_Timestamp` and `End_Timestamp`.
marks = pd.read_csv(lesson.folder / "one/gpu_marker_api_trace.csv")
q = exercise("04.1", (copies, marks))
# solution
backward = marks[marks["Function"] == "backward"]
ranges = zip(backward["Start_Timestamp"], backward["End_Timestamp"], strict=True)
answer = sum(copies["launched"].between(start, end).sum() for start, end in ranges) / len(backward)
# end solution
q.check(answer)

# %% [markdown]
# A `torch.profiler` trace names the operator, `aten::copy_`. The network has 161 parameters and 159 buffers, and that fits
# `DistributedDataParallel`, which the trainer uses even with one rank. It gathers the buffers in the forward pass and
# copies each gradient into a *bucket*, which is sent as a whole, in the backward pass. The copies don't depend on the
# batch size, so they are a fixed cost.
#
# ## Trap: percent of what?
#
# A percentage in this table is a share of the time of all *kernels*, not of the step. The *union* of lesson 02 shows how
# long any kernel runs:

# %%
busy_ns = tidyprof.busy(steady.profile)["busy_ns"].sum()
kernel_us = steady.dispatches["duration_ns"] / 1e3
show_text(f"Kernels run during {100 * busy_ns / steady.duration_ns:.0f}% of the steady steps.")
time_us = steady.duration_ns / len(kernel_us) / 1e3
show_text(f"Mean kernel: {kernel_us.mean():.0f} µs; step time per kernel: {time_us:.0f} µs")

# %%
# 3 minutes: during what share of the steady steps, in percent, does the first kernel of `table` run? All steady steps
# together take `steady.duration_ns`.
q = exercise("04.2", steady)
# solution
answer = 100 * table["total_ns"].iloc[0] / steady.duration_ns
# end solution
q.check(answer)

# %% [markdown]
# ## Is the run launch bound?
#
# Change the number of images, but keep the number of launches. If the step time stays the same, the kernels' work wasn't
# the limit.

# %% language="bash"
# rm -rf $FOLDER/batch*
# for batch in 32 512 1024; do
#     rocprofv3 --kernel-trace --marker-trace --hip-runtime-trace --output-format rocpd \
#         --output-directory $FOLDER/batch$batch --output-file gpu \
#         -- $EXAMPLE --max-steps 8 --roctx --batch-size $batch 2>&1 | grep -v Opened
# done

# %%
files = {f"batch {size}": lesson.folder / f"batch{size}/gpu_results.db" for size in (32, 512, 1024)}
runs = {name: steady_part(own_run(file)) for name, file in files.items()}
budgets = mean_steps({name: tidyprof.step_budget(part.profile) for name, part in runs.items()})
show_figure(plots.step_budget(budgets, title="The mean step with 32 images, 512 and 1,024"))

# %% [markdown]
# The same program has three limits, and the batch size decides: launches, the GPU's own work, or the loaders. No fix
# helps all three, and each fix makes older verdicts invalid. Only launch-bound time gets shorter with fewer launches. In
# *other*, the next kernel is already launched, but the GPU needs a moment to start it. The data wait at 1,024
# images depends on [an assumed time per image](../docs/gpumodel.md).
#
# ## Counters: how much work is in a launch?
#
# *Hardware counters* count events while a kernel runs. `rocprofv3-avail list --pmc` lists all counters of your GPU, and
# `pmc-check` tests whether some of them fit into one run. `SQ_WAVES` counts *waves*, which are groups of 64 work-items
# that run together on an MI300X. `SQ_INSTS_VALU` counts their vector instructions, one for a whole wave. Counting makes
# a run much slower, so record only a few steps.

# %% language="bash"
# rm -rf $FOLDER/pmc
# rocprofv3-avail pmc-check SQ_WAVES SQ_INSTS_VALU 2>&1
# rocprofv3 --pmc SQ_WAVES SQ_INSTS_VALU --output-format csv --output-directory $FOLDER/pmc \
#     --output-file gpu -- $EXAMPLE --max-steps 2 2>&1 | grep Opened

# %% [markdown]
# For a ratio over many dispatches, divide the sums. Otherwise, a small dispatch weighs as much as a large one.

# %%
counted = pd.read_csv(lesson.folder / "pmc/gpu_counter_collection.csv")
norms = counted[counted["Kernel_Name"].str.startswith("MIOpenBatchNormBwdSpatial")]
sums = norms.groupby("Counter_Name")["Counter_Value"].sum()
each = sums["SQ_INSTS_VALU"] / sums["SQ_WAVES"]
show_text(f"Backward batch norm: {each:.0f} vector instructions per wave. {run.origin}")

# %% [markdown]
# ## Record every rank of a job
#
# On a cluster, put the tool *after* `srun`, because otherwise it profiles `srun`. Each rank needs its own file name, in
# which the tool replaces `%rank%` with the rank and `%pid%` with the process ID.

# %%
# 5 minutes: write a job script, as one string, that records the kernels of `python train.py` on four ranks of one node.
# It writes CSV files below `ranks`, one per rank, with the rank in the name. The check runs it with a fake `python`.
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
# A fused optimizer, `torch.optim.Adam(..., fused=True)`, does Adam's arithmetic for many weights in one kernel (trainer:
# `--fused-optimizer`). A larger batch has more images for the same number of launches. What do they gain on the H200?

# %%
plain, large = case.options("04"), case.options("05")
recorded = case.measured().query("part == 'steady' and not profiled")
sums = recorded.groupby(["run", "traced"])[["images", "duration_ns"]].sum()
fixes = sums.loc[[("loaders", False), ("fused", False), ("large", True)]].reset_index()
fixes["images_per_s"], fixes["options"] = (
    1e9 * fixes["images"] / fixes["duration_ns"],
    [plain, f"{plain} --fused-optimizer", large],
)
show_table(
    fixes, "options traced images_per_s", "Fixes on an H200", origin=recorded.attrs["origin"]
)

# %% [markdown]
# The last row exists only as a run with a trace. While the trace was written, eight loaders worked ahead, so this is the
# rate of the GPU, not of an epoch. With two loaders, steps still wait for data:

# %%
two = recorded.query("run == 'loaders' and not traced")["duration_ns"] / 1e6
show_text("Two loaders, ms per step: " + ", ".join(f"{ms:.0f}" for ms in two.sort_values()))

# %% [markdown]
# In the long run, two loaders deliver one batch per *mean* step.

# %%
# 3 minutes: how many such loaders would keep up if no step had to wait? Assume that such a step takes the shortest time in
# `two`. Give the number before rounding it up.
q = exercise("04.4", two)
# solution
answer = 2 * two.mean() / two.min()
# end solution
q.check(answer)

# %% [markdown]
# ## Decide
#
# The largest part of a step gives the next question. A modeled step, before and after both fixes:

# %%
steps = pd.read_csv(lesson.file("../modeled_steps.csv"), comment="#").set_index("options")
both, parts = steps.loc[[plain, large]], "step_ms compute_ms launch_bound_ms data_wait_ms other_ms"
show_table(both.reset_index(), f"options {parts}", "A modeled step", origin=run.origin)
before, after = (100 * both.div(both["step_ms"], axis=0)).to_dict("records")
lesson.conclude(
    "In the model, with two loaders and batch 256, the GPU computes for "
    f"{before['compute_ms']:.0f}% of a step and waits for launches for "
    f"{before['launch_bound_ms']:.0f}%. With batch 1,024, eight loaders and the fused optimizer, "
    f"it computes for {after['compute_ms']:.0f}%.",
    rules_out="the CPU, at this batch size in the model; on the H200, eight loaders can't keep up",
    because="The GPU computes nearly all the time. Is its largest kernel near its limit?",
    next="05",
    origin=run.origin,
)
small, wide, _ = runs.values()
proflab.reveal("04.a", len(steady.dispatches) / steady.steps, steady.profile)
proflab.reveal("04.b", float(f"{wide.step_ns / small.step_ns:.2g}"), wide.profile)

# %% [markdown]
# Only a complete run shows whether the model learns as well with a larger batch.
#
# ## Three takeaways
#
# - A kernel table shows how often a kernel runs and how long, and its percentages are shares of the kernel time.
# - If a step takes the same time with fewer images, launches limit it, and a faster kernel only lengthens the gap.
# - Each fix moves the limit, so trace again before you choose the next one.

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# - **Whether a kernel could be faster:** see lesson 05.
# - **The real step time:** the tool slows launches down. Compare with the step time without the tool before you decide
#   that a run is launch bound.
#
# > **Note:** RCCL's kernel is `rccl_main_kernel` in one release and `ncclDevKernel...` in another. A CSV file is missing,
# > or no GPU is found? See the [known issues](../docs/known-issues.md#no-csv-where-there-used-to-be-one). [More of
# > rocprofv3](../docs/more-of-rocprofv3.md) covers PC sampling and thread traces. The options of `rocprof` and
# > `rocprofv2` look alike, but [their meaning changed](../docs/migration.md).

# %% [markdown]
# ## At work, without this course
#
# {snippet 04_profile_job.sh}
#
# Record a kernel trace on every rank of a Slurm job, for any program.
#
# {snippet 04_busy_time.py}
#
# Print the largest kernels, the busy time and the gaps of these traces. It needs only pandas.
#
# Read on: [AMD's rocprofv3 manual](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html).
#
# Next question: is the largest kernel near its limit?
