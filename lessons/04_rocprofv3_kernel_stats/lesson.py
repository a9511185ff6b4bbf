# %% [markdown]
# # Which kernels, how often, how small?
#
# Two loader processes keep the case's data wait small, and the GPU still idles. `rocprofv3` records every kernel that a
# program runs on an AMD GPU, without a change to the program. Its table tells whether one kernel is worth making
# faster, or whether too many small ones starve the GPU.
#
# After this lesson you can
#
# - record a kernel trace of one process or of every rank of a job, and group it with pandas alone;
# - find out which call launches a kernel, and from where in the program;
# - tell a slow kernel from too many launches, and say what a percentage is a percentage of.
#
# You need lessons 00, 02 and 03. Commands hold from ROCm 7.0 to {newest rocm}.

# %%
import pandas as pd

import proflab
import tidyprof
from proflab import case, exercise, ledger, show_figure, show_table, show_text
from proflab.ledger.entries import two_digits
from proflab.parts.modeled_runs import modeled, plain_step
from proflab.parts.steady_part import mean_steps, own_run, steady_part
from tidyprof import DEVICE_KINDS, plots

lesson = proflab.start("04")

# %%
lesson.recall()

# %%
lesson.findings()

# %% [markdown]
# ## The picture to keep in mind
#
# A *dispatch* is one run of a kernel. The host launches them one by one, the GPU runs them in order:
#
# | | the GPU is the limit | the host is the limit (*launch bound*) |
# | --- | --- | --- |
# | host | runs ahead, the queue is full | launches as fast as it can |
# | GPU | one kernel after the other | runs each kernel at once, then waits for the next |
# | a step takes | the sum of all kernels | the number of launches times what one takes the host |
# | a faster kernel | makes the step shorter | makes the gap behind it longer |
#
# ## Predict

# %%
# solution
kernels_guess, step_guess = 500, 10
# end solution
proflab.predict("04.a", kernels_guess, unit="kernels", what="what runs in one step of 256 images")
proflab.predict("04.b", step_guess, unit="times", what="a step of 512 images against one of 32")

# %% [markdown]
# ## Capture
#
# The tool stands before the program's command, with `--` between them.
#
# | option | why |
# | --- | --- |
# | `--kernel-trace` | record every dispatch. Nothing is recorded unless you name it |
# | `--hip-runtime-trace` | record the host's calls, launches among them. It costs more: for questions like today's |
# | `--marker-trace` | record ranges that the program names through AMD's library ROCTX; the trainer: `--roctx` |
# | `--stats` | sum up whatever is recorded; alone it is an error |
# | `--output-format` | always name it: up to ROCm 6.4 you get CSV without it, from 7.0 on the database `rocpd` |
# | `--output-directory`, `--output-file` | folder and start of the names; else `<machine>/<process>` |
#
# Without a GPU the course replays the training on a modeled MI300X, and every figure says `modeled`.

# %% language="bash"
# rocprofv3 --kernel-trace --hip-runtime-trace --marker-trace --stats --output-format csv rocpd \
#     --output-directory $FOLDER/one --output-file gpu \
#     -- $EXAMPLE --max-steps 8 --roctx 2>&1 | grep -v Opened

# %% [markdown]
# `rocpd` is a database in one file; lesson 06 asks it questions. All times are nanoseconds.
#
# ## First look, by hand
#
# `kernel_trace.csv` has a row for each dispatch. Grouped by name, it is the table that `--stats` wrote.

# %%
trace = pd.read_csv(lesson.folder / "one/gpu_kernel_trace.csv")
trace["ns"] = trace["End_Timestamp"] - trace["Start_Timestamp"]
whole = trace.groupby("Kernel_Name")["ns"].agg(["size", "sum", "mean", "min", "max"])

stats = pd.read_csv(lesson.folder / "one/gpu_kernel_stats.csv").set_index("Name")
run = own_run(lesson.folder / "one/gpu_results.db")
assert whole["sum"].to_dict() == stats["TotalDurationNs"].to_dict()
show_text(f"Both: {len(trace):,} dispatches, {len(whole)} names, {trace['ns'].sum() / 1e6:.0f} ms.")

# %% [markdown]
# The first step is far longer, since the host has much to prepare: leave it out. `own_run` reads what was written here,
# `steady_part` keeps the steps after the warm-up.

# %%
steady = steady_part(run)
table = tidyprof.kernels(steady.profile, include=DEVICE_KINDS)
title = f"The first kernel has {table['percent'].iloc[0]:.0f} % of the kernel time"
show_figure(plots.top_kernels(table, 8, title=title))
show_text(f"{steady.steps} steady steps of {steady.step_ns / 1e6:.0f} ms.")

# %% [markdown]
# The category `copy` means kernels that only move data: the runtime's own, and those that transpose an array. A step
# budget counts the latter as compute.
#
# Record raw names, and shorten them when you read: the tool's `--truncate-kernels` adds up different kernels.
#
# AMD published such tables of this training on MI300X:

# %%
published = pd.read_csv(lesson.file("amd_kernel_tables.csv"), comment="#")
for (name, rows), shown in zip(published.groupby("run"), (4, 2), strict=True):
    columns, origin = "name calls total_ms max_us percent", "recorded: MI300X, published by AMD"
    show_table(rows, columns, f"AMD, {name}", rows=shown, origin=origin)
one = published[published["run"] == "one GPU"].set_index("name")
amd_us = one["total_ns"] / one["calls"] / 1e3
model_us = table.set_index("short_name")["mean_ns"] / 1e3
for name in ("MIOpenBatchNormFwdTrainSpatial", "MIOpenBatchNormBwdSpatial"):
    show_text(f"`{name}`: {amd_us[name]:.1f} µs on average, {model_us[name]:.0f} in the model.")

# %% [markdown]
# On one GPU the first row is the one that you know. The second is the backward batch norm: the model puts the forward
# one there, the kernel that it gets worst. So never rank kernels by a model. On several GPUs RCCL's kernel comes first:
# it also runs while it waits for another rank, so a kernel table counts waiting as work (lesson 07).
#
# ## Who launches the copies?
#
# `__amd_rocclr_copyBuffer` is a kernel of AMD's runtime that copies within the GPU's memory. Nobody wrote it into the
# model. Join each kernel with the call that launched it: both have the same `Correlation_Id`.

# %%
columns = {"Correlation_Id": "Correlation_Id", "Function": "call", "Start_Timestamp": "launched"}
calls = pd.read_csv(lesson.folder / "one/gpu_hip_api_trace.csv")
calls = calls[list(columns)].rename(columns=columns)
copies = trace[trace["Kernel_Name"].str.contains("copyBuffer")].merge(calls, on="Correlation_Id")
show_text(f"{len(copies):,} copies, launched by {', '.join(copies['call'].unique())}. {run.origin}")

# %%
# 4 minutes: how many of these copies are launched within the range `backward`, in each step? `copies["launched"]` is
# when the host made the call. `marks` has the program's ranges: `Function`, `Start_Timestamp` and `End_Timestamp`.
marks = pd.read_csv(lesson.folder / "one/gpu_marker_api_trace.csv")
q = exercise("04.1", (copies, marks))
# solution
backward = marks[marks["Function"] == "backward"]
ranges = zip(backward["Start_Timestamp"], backward["End_Timestamp"], strict=True)
answer = sum(copies["launched"].between(start, end).sum() for start, end in ranges) / len(backward)
# end solution
q.check(answer)

# %% [markdown]
# A trace of `torch.profiler` names the operator, `aten::copy_`. The network knows how many arrays it has:

# %%
from cifar_train.models import build_model

network, steps_run = build_model("resnet"), (marks["Function"] == "data").sum()
parameters, buffers = len(list(network.parameters())), len(list(network.buffers()))
show_text(
    f"{parameters} parameters and {buffers} buffers; {len(copies) / steps_run:,.0f} copies in a "
    f"step, of {copies['ns'].mean() / 1e3:.0f} µs each."
)

# %% [markdown]
# These numbers fit `DistributedDataParallel`, which the trainer uses with one rank too: in forward it gathers the
# buffers, in backward it copies each gradient into a bucket. A copy takes as long whatever the batch: a fixed cost, not
# a transfer's.
#
# ## Trap: percent of what?
#
# The first row's percentage looks like a promise: without this kernel, a step would be that much shorter. But it is a
# share of the time of all *kernels*. The *union* of lesson 02 tells when any of them runs:

# %%
busy_ns = tidyprof.busy(steady.profile)["busy_ns"].sum()
first, took_us = table.iloc[0], steady.dispatches["duration_ns"] / 1e3
show_text(
    f"`{first['short_name']}`: {first['percent']:.0f} % of the kernel time. Kernels run during "
    f"{100 * busy_ns / steady.duration_ns:.0f} % of the steady steps. A kernel takes "
    f"{took_us.mean():.0f} µs on average, a step has "
    f"{steady.duration_ns / len(took_us) / 1e3:.0f} µs for each."
)

# %% [markdown]
# If a launch takes longer than a step has for each kernel, the GPU waits.

# %%
# 3 minutes: during which share of the steady steps, in percent, does the first kernel of `table` run? All steady steps
# together take `steady.duration_ns`.
q = exercise("04.2", steady)
# solution
answer = 100 * table["total_ns"].iloc[0] / steady.duration_ns
# end solution
q.check(answer)

# %% [markdown]
# ## The launch-bound test
#
# Change the number of images, and keep the number of launches. If the step takes as long as before, the work was not
# the limit.

# %% language="bash"
# for batch in 32 512 1024; do
#     rocprofv3 --kernel-trace --marker-trace --hip-runtime-trace --output-format rocpd \
#         --output-directory $FOLDER/batch$batch --output-file gpu \
#         -- $EXAMPLE --max-steps 8 --roctx --batch-size $batch 2>&1 | grep -v Opened
# done

# %%
files = {f"batch {size}": lesson.folder / f"batch{size}/gpu_results.db" for size in (32, 512, 1024)}
runs = {name: steady_part(own_run(file)) for name, file in files.items()}
small, large, _ = runs.values()
budgets = mean_steps({name: tidyprof.step_budget(part.profile) for name, part in runs.items()})
show_figure(plots.step_budget(budgets, title="The mean step with 32 images, 512 and 1,024"))
# %% [markdown]
# The same program has three limits, and the batch alone chooses: launches, the device's own work, the loaders. No cure
# helps all three, and old verdicts expire with each. Only *launch-bound* time becomes shorter with fewer launches. In
# *other* the next kernel was launched already: the GPU, too, needs a moment to start one. That two loaders don't keep
# up with 1,024 images rests on [an assumed time for each image](../docs/gpumodel.md); and eight steps flatter loaders,
# which work ahead during the long first one.

# %% [markdown]
# ## Counters: how much work is in a launch?
#
# *Hardware counters* count events while a kernel runs. `SQ_WAVES` counts *waves*, groups of 64 work-items that run
# together on an MI300X; `SQ_INSTS_VALU` the vector instructions that they execute, one for a whole wave.
# `rocprofv3-avail` says whether counters fit into one run. Counting makes a run much slower: take few steps.

# %% language="bash"
# rocprofv3-avail pmc-check SQ_WAVES SQ_INSTS_VALU 2>&1
# rocprofv3 --pmc SQ_WAVES SQ_INSTS_VALU --output-format csv --output-directory $FOLDER/pmc \
#     --output-file gpu -- $EXAMPLE --max-steps 2 2>&1 | grep Opened

# %% [markdown]
# The file is *long*: a row for each dispatch and counter. `pivot` makes a column of each counter. Of a ratio over many
# dispatches take the sums first, then divide: a small dispatch must not weigh as much as a large one.

# %%
counted = pd.read_csv(lesson.folder / "pmc/gpu_counter_collection.csv")
keys = ["Dispatch_Id", "Kernel_Name"]
wide = counted.pivot(index=keys, columns="Counter_Name", values="Counter_Value").reset_index()
sums = wide[wide["Kernel_Name"].str.startswith("MIOpenBatchNormBwdSpatial")].sum()
each = sums["SQ_INSTS_VALU"] / sums["SQ_WAVES"]
origin = own_run(lesson.folder / "pmc").origin
show_text(f"Backward batch norm: {each:.0f} vector instructions a wave ({origin}).")

# %% [markdown]
# ## Every rank of a job
#
# On a cluster the tool stands *inside* `srun`: around it, it would watch `srun`. Every rank writes, so each needs a
# name of its own: `%rank%` in a name becomes the rank, `%pid%` the process.

# %%
# 5 minutes: write a job script, as one text, that records the kernels of `python train.py` on four ranks of one node,
# as CSV below `ranks`, one file a rank, with its rank in its name. The check runs it with a `python` that does nothing.
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
# ## Two cures: fewer launches, and more work in each
#
# A fused optimizer makes all of Adam's arithmetic in one kernel, for many weights at once:
# `torch.optim.Adam(..., fused=True)`, the trainer's `--fused-optimizer`. A larger batch launches as often, for more
# images. Both, in images per second on an NVIDIA H200 (single runs, two of some) and in the model:

# %%
measured = case.measured()
calm = measured[(measured["part"] == "steady") & ~measured["profiled"]]
sums = calm.groupby(["run", "traced"])[["images", "duration_ns"]].sum()
rates = (1e9 * sums["images"] / sums["duration_ns"]).map("{:,.0f}".format)
cures = pd.DataFrame({"H200_images_per_second": rates.groupby("run").agg(" and ".join)})
cures = cures.loc[["loaders", "fused", "large"]].assign(
    options=[case.options("04"), f"{case.options('04')} --fused-optimizer", case.options("05")]
)
played = {run: modeled(text) for run, text in cures["options"].items()}
parts = {run: plain_step(text) for run, text in cures["options"].items()}
cures["modeled"] = [two_digits(played[run].images_per_second) for run in cures.index]
columns, origin = "options H200_images_per_second modeled", played["loaders"].origin
show_table(cures, columns, "Two cures", origin=f"recorded: {case.MEASURED_ON}; {origin}")

# %% [markdown]
# Two runs of one kind differ by a factor of two: the faster one recorded a trace, and while that was written its
# loaders got ahead. And at batch 1,024 these were batches that eight loaders had ready before (lesson 08 shows it): a
# rate of the device, not of an epoch. Look at the steps of the run without a trace:

# %%
two = calm[(calm["run"] == "loaders") & ~calm["traced"]]["duration_ns"] / 1e6
show_text("Two loaders, ms a step: " + ", ".join(f"{step:.0f}" for step in two.sort_values()) + ".")
show_text(f"The median is {two.median():.0f} ms, the mean {two.mean():.0f} ({case.MEASURED_ON}).")

# %% [markdown]
# The trainer prints the median, an epoch pays the mean: some steps wait until the loaders have caught up. In the long
# run two loaders deliver one batch for each *mean* step.

# %%
# 3 minutes: how many such loader processes would keep up with steps that never wait, those as short as the shortest one
# of `two`? Give the number before it is rounded up.
q = exercise("04.4", two)
# solution
answer = 2 * two.mean() / two.min()
# end solution
q.check(answer)

# %%
sides = played["loaders"].seconds, played["large"].seconds
both = ledger.add(
    "More work in each launch makes an image cheaper", *sides,
    change="batch 1,024, 8 loaders, fused optimizer", origin=origin,
)  # fmt: skip

# %% [markdown]
# *Unproven*: a larger batch is another training, and only a full run tells whether it learns as well. The model was
# checked at batch 256 only. Lesson 08 goes on from here.
#
# ## Decide
#
# The largest part of a step chooses the next question.

# %%
NEXT = {
    "compute": ("05", "The device nearly always works: is its largest kernel near its ceiling?"),
    "data_wait": ("03", "The device waits for data: what does the loader do?"),
    "launch_bound": ("03", "The device waits for the host: what does it do between launches?"),
}
sick, well = parts["loaders"], parts["large"]
number, because = NEXT[max(NEXT, key=lambda part: well[f"{part}_ms"])]
share = [100 * step["compute_ms"] / step["step_ms"] for step in (sick, well)]
lesson.conclude(
    f"In the model, with two loaders and batch 256, the device computes for {share[0]:.0f} % of a "
    f"step, and waits for launches for {100 * sick['launch_bound_ms'] / sick['step_ms']:.0f} %. "
    f"With batch 1,024, eight loaders and the fused optimizer it computes for {share[1]:.0f} %.",
    rules_out="the host, at this batch and in the model; on the H200 eight loaders can't keep up",
    because=because, next=number,
    origin=origin, changes=[both],
)  # fmt: skip
proflab.reveal("04.a", len(steady.dispatches) / steady.steps, steady.profile)
proflab.reveal("04.b", float(f"{large.step_ns / small.step_ns:.2g}"), large.profile)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# It says how long a kernel ran, not whether it could be faster: lesson 05. It can't tell waiting from work inside an
# RCCL kernel. And the tool makes launches slower, by an amount that nobody has published for this training: compare
# with the trainer's own step time, without the tool, before you call a run launch bound.
#
# No CSV where there used to be one, no GPU in a virtual environment: [known
# issues](../docs/known-issues.md#no-csv-where-there-used-to-be-one). RCCL is `rccl_main_kernel` in one release,
# `ncclDevKernel...` in another. PC sampling, thread trace and other switches: [more of
# rocprofv3](../docs/more-of-rocprofv3.md). Coming from `rocprof` or `rocprofv2`? [The options look alike, their meaning
# changed](../docs/migration.md).

# %% [markdown]
# ## At work, without this course
#
# A job script for any program, and a table of what it wrote. The table needs pandas and nothing else:
#
# {snippet 04_profile_job.sh}

# %% [markdown]
# And the table:
#
# {snippet 04_busy_time.py}
#
# Read on: [AMD's manual of rocprofv3](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html).
#
# Next question: is its largest kernel near its ceiling?
