# %% [markdown]
# # Which kernels, how often, how small?
#
# Lesson 03 gave the case two loader processes, and the data wait is gone. The GPU still idles for more than half of a
# step. `rocprofv3` records every kernel that a program runs on an AMD GPU, without a change to the program. Its table
# tells whether one kernel is worth making faster, or whether too many small ones starve the GPU.
#
# After this lesson you can
#
# - record a kernel trace in a format that you chose, and group it with pandas alone;
# - find out which call launches a kernel, and from where in the program;
# - tell a slow kernel from too many launches, and say what a percentage is a percentage of;
# - cure a launch-bound training, and find the limit that comes next.
#
# You need lessons 00, 02 and 03. Commands hold from ROCm 7.0 to {newest rocm}.

# %%
import numpy as np
import pandas as pd

import proflab
import tidyprof
from proflab import case, exercise, ledger, say, show_figure, show_table
from proflab.parts.clinic_runs import modelled, plain_step
from proflab.parts.modelled_trace import modelled_trace
from proflab.parts.short_trial import fused_optimizer_gate
from proflab.parts.steady_part import mean_steps, own_run, steady_part
from tidyprof import DEVICE_KINDS, plots

lesson = proflab.start("04")

# %%
lesson.sheet()

# %% [markdown]
# ## The picture to keep in mind
#
# A *dispatch* is one run of a kernel. The host launches them one by one, the GPU runs them in order:
#
# | | the GPU is the limit | the host is the limit (*launch-bound*) |
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
# Without a GPU the stand-in plays the training on a modelled MI300X, and every figure says `modelled`.

# %% language="bash"
# rocprofv3 --kernel-trace --hip-runtime-trace --marker-trace --stats --output-format csv rocpd \
#     --output-directory $FOLDER/one --output-file gpu \
#     -- $CASE --max-steps 8 --roctx 2>&1 | grep -v Opened

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
say(f"{len(trace):,} dispatches, {len(whole)} names, {trace['ns'].sum() / 1e6:.0f} ms, in both.")

# %% [markdown]
# The ranges are in a file of their own. The trainer's first range in each step is `data`, so a step lasts from one
# `data` to the next.

# %%
# 5 minutes: how many ms do the kernels take together that start in step 4, the first step being 0? `marks` has the
# names in `Function` and times in `Start_Timestamp`, as `trace` has. Give three digits behind the point.
marks = pd.read_csv(lesson.folder / "one/gpu_marker_api_trace.csv")
q = exercise("04.1", (trace, marks))
# solution
begins = marks.loc[marks["Function"] == "data", "Start_Timestamp"].sort_values()
inside = trace["Start_Timestamp"].between(begins.iloc[4], begins.iloc[5], inclusive="left")
answer = trace.loc[inside, "ns"].sum() / 1e6
# end solution
q.check(answer)

# %% [markdown]
# All steps at once:

# %%
data = marks.loc[marks["Function"] == "data", "Start_Timestamp"].sort_values()
trace["step"] = np.searchsorted(data, trace["Start_Timestamp"], side="right") - 1
per_step = trace.groupby("step")["ns"].agg(dispatches="size", total_ns="sum")
per_step["step_ns"] = -data.diff(-1).to_numpy()
per_step = per_step.dropna().reset_index()
show_table(per_step, "step step_ms dispatches total_ms", "Kernels by host step", origin=run.origin)
say(
    f"Every step has about {len(trace) / len(data):,.0f} dispatches. One more or less is a kernel "
    "that was launched at the end of a step and ran in the next: ranges are times of the host. "
    "The kernels of the first step take as long as those of others, and yet the step takes "
    f"{per_step['step_ns'].iloc[0] / per_step['step_ns'].median():.0f} times as long, since the "
    "host has much to prepare. So leave it out."
)

# %% [markdown]
# `own_run` reads what was written here, `steady_part` keeps the steps after the warm-up.

# %%
steady = steady_part(run)
table = tidyprof.kernels(steady.profile, include=DEVICE_KINDS)
groups = table.groupby("category")["percent"].sum().sort_values(ascending=False)
title = f"The first kernel has {table['percent'].iloc[0]:.0f} % of the kernel time"
show_figure(plots.top_kernels(table, 8, title=title))
say(
    f"{steady.steps} steady steps of {steady.step_ns / 1e6:.1f} ms. By category: "
    + ", ".join(f"{name} {share:.0f} %" for name, share in groups.items())
    + ". A category says what a kernel does. `copy` means kernels that only move data: the "
    "runtime's own, and those that transpose an array. In a step budget the latter count as "
    "compute; its *exposed copy* is the time in which plain copies run and nothing else."
)

# %% [markdown]
# Record raw names, and shorten them when you read: the tool's `--truncate-kernels` adds up different kernels.
#
# AMD published such tables of this training on MI300X:

# %%
published = pd.read_csv(lesson.file("amd_kernel_tables.csv"), comment="#")
for name, rows in published.groupby("run"):
    columns, origin = "name calls total_ms max_us percent", "recorded: MI300X, published by AMD"
    show_table(rows, columns, f"AMD, {name}", rows=2, origin=origin)

# %% [markdown]
# On one GPU the first row is the one that you know. On several it is RCCL's kernel, far ahead. That one also runs while
# it waits for another rank, so a kernel table counts waiting as work. Lesson 07 tells them apart.
#
# ## Who launches the copies?
#
# The largest row may surprise you. `__amd_rocclr_copyBuffer` is a kernel of AMD's runtime that copies within the GPU's
# memory. Nobody wrote it into the model. To see where it comes from, join each kernel with the call that launched it:
# both have the same `Correlation_Id`.

# %%
columns = {"Correlation_Id": "Correlation_Id", "Function": "call", "Start_Timestamp": "launched"}
calls = pd.read_csv(lesson.folder / "one/gpu_hip_api_trace.csv")
calls = calls[list(columns)].rename(columns=columns)
copies = trace[trace["Kernel_Name"].str.contains("copyBuffer")].merge(calls, on="Correlation_Id")
say(f"{len(copies):,} copies, launched by {', '.join(copies['call'].unique())}. {run.origin}")

# %%
# 5 minutes: how many of these copies are launched within the range `backward`, in each step? `copies["launched"]` is
# when the host made the call.
q = exercise("04.2", (copies, marks))
# solution
backward = marks[marks["Function"] == "backward"]
ranges = zip(backward["Start_Timestamp"], backward["End_Timestamp"], strict=True)
answer = sum(copies["launched"].between(start, end).sum() for start, end in ranges) / len(backward)
# end solution
q.check(answer)

# %% [markdown]
# A trace of `torch.profiler` (lesson 02) knows the operator, and the network knows how many arrays it has:

# %%
from cifar_train.models import build_model

operators = modelled_trace(case.options("04"))
named = operators.events.astype({"name": str, "operator": str})
device = named[named["name"].str.contains("DtoD|BatchNormFwdTrain")]
found = device.groupby(["name", "operator"])["bytes"].agg(size="size", median_bytes="median")
found["calls_per_step"] = found["size"] / len(tidyprof.steps(operators))
columns, origin = "name operator calls_per_step median_bytes", operators.origin
show_table(found.reset_index(), columns, "Operators behind two kernels", origin=origin)
network = build_model("resnet")
arrays = {"parameters": len(list(network.parameters())), "buffers": len(list(network.buffers()))}
say(
    f"The network has {arrays['parameters']} parameters, and {arrays['buffers']} buffers, three "
    f"for each batch norm. Together that is {sum(arrays.values())} of the "
    f"{len(copies) / len(data):,.0f} copies in a step. They fit `DistributedDataParallel`, which "
    "the trainer uses with one rank too: in forward it gathers the buffers, in backward it copies "
    "each gradient into a bucket. Their size does not depend on the batch. They are tiny, and "
    f"each takes {copies['ns'].mean() / 1e3:.1f} µs: a fixed cost, not that of a transfer."
)

# %% [markdown]
# The other kernel of the table is for later. `aten::miopen_batch_norm` runs one `MIOpenBatchNormFwdTrainSpatial`, so
# its calls in a step are the network's batch norms. Lesson 05 goes on with it.
#
# ## Trap: percent of what?
#
# The first row's percentage looks like a promise: without this kernel, a step would be that much shorter. But it is a
# share of the time of all *kernels*, and the GPU does not run kernels all the time. The *union* of lesson 02 tells:

# %%
busy_ns = tidyprof.busy(steady.profile)["union_ns"].sum()
gaps = tidyprof.gaps(steady.profile, minimum_ns=1)["duration_ns"]
first = table.iloc[0]
say(
    f"`{first['short_name']}`: {first['percent']:.1f} % of the kernel time. But kernels run during "
    f"only {100 * busy_ns / steady.duration_ns:.0f} % of the steady steps. There are "
    f"{(gaps > 0).sum():,} gaps, half of them shorter than {gaps[gaps > 0].median() / 1e3:.1f} µs."
)

# %%
# 3 minutes: during which share of the steady steps, in percent, does the first kernel of `table` run? All steady steps
# together take `steady.duration_ns`.
q = exercise("04.3", steady)
# solution
answer = 100 * table["total_ns"].iloc[0] / steady.duration_ns
# end solution
q.check(answer)

# %% [markdown]
# What does the GPU do with the rest? Look at the sizes.

# %%
took_us = steady.dispatches["duration_ns"] / 1e3
pace_us = steady.duration_ns / len(took_us) / 1e3
say(
    f"A kernel takes {took_us.mean():.1f} µs on average, {100 * (took_us < 10).mean():.0f} % take "
    f"less than 10 µs, and the step has {pace_us:.1f} µs for each. If a launch takes longer than "
    "that, the GPU waits."
)

# %% [markdown]
# ## The launch-bound test
#
# Change the number of images, and keep the number of launches. If the step takes as long as before, the work was not
# the limit.

# %% language="bash"
# for batch in 32 512 1024; do
#     rocprofv3 --kernel-trace --marker-trace --hip-runtime-trace --output-format rocpd \
#         --output-directory $FOLDER/batch$batch --output-file gpu \
#         -- $CASE --max-steps 8 --roctx --batch-size $batch 2>&1 | grep -v Opened
# done

# %%
files = {f"batch {size}": lesson.folder / f"batch{size}/gpu_results.db" for size in (32, 512, 1024)}
runs = {name: steady_part(own_run(file)) for name, file in files.items()}
small, large, _ = runs.values()
budgets = mean_steps({name: tidyprof.step_budget(part.profile) for name, part in runs.items()})
show_figure(plots.step_budget(budgets, title="The mean step with 32 images, 512 and 1,024"))
for name, part in runs.items():
    mean_us = part.dispatches["duration_ns"].mean() / 1e3
    lengths = tidyprof.step_budget(part.profile)["duration_ns"] / 1e6
    say(
        f"{name}: {len(part.dispatches) / part.steps:,.0f} kernels a step of {mean_us:.1f} µs on "
        f"average. The median step takes {lengths.median():.1f} ms, the mean {lengths.mean():.1f}."
    )

# %% [markdown]
# The trainer prints the median; here the mean tells what the median hides. Only *launch-bound* time becomes shorter
# with fewer launches. In *other* the next kernel was launched already: the GPU, too, needs a moment to start one. Eight
# steps flatter the loaders, which work ahead during the long first step: a table below has the steps of a longer run.

# %%
# 3 minutes: what limits each of the three runs? Give a dictionary from the name in `budgets["step"]` to the largest
# part of its mean step, such as `blocked_host_ns`. Compute is a part, too.
q = exercise("04.4", budgets)
# solution
parts = ["compute_ns", "exposed_communication_ns", "exposed_copy_ns"]
parts += ["launch_bound_ns", "blocked_host_ns", "data_wait_ns", "other_ns"]
answer = budgets.set_index("step")[parts].astype(float).idxmax(axis=1).to_dict()
# end solution
q.check(answer)

# %% [markdown]
# ## Counters: how much work is in a launch?
#
# A GPU's *hardware counters* count events while a kernel runs. `SQ_WAVES` counts *waves*, groups of 64 work-items that
# run together on an MI300X; `SQ_INSTS_VALU` the vector instructions that they execute, one for a whole wave.
# `rocprofv3-avail` lists what your GPU can count, and says whether some fit into one run. Counting makes a run much
# slower: name few counters, and take few steps.

# %% language="bash"
# rocprofv3-avail pmc-check SQ_WAVES SQ_INSTS_VALU 2>&1
# rocprofv3 --pmc SQ_WAVES SQ_INSTS_VALU --output-format csv --output-directory $FOLDER/pmc \
#     --output-file gpu -- $CASE --max-steps 2 2>&1 | grep Opened

# %% [markdown]
# The file is *long*: a row for each dispatch and counter. `pivot` makes a column of each counter.

# %%
counted = pd.read_csv(lesson.folder / "pmc/gpu_counter_collection.csv")
keys = ["Dispatch_Id", "Kernel_Name"]
wide = counted.pivot(index=keys, columns="Counter_Name", values="Counter_Value").reset_index()
origin = own_run(lesson.folder / "pmc").origin
norms = wide[wide["Kernel_Name"].str.startswith("MIOpenBatchNormFwdTrainSpatial")]
columns = "Dispatch_Id Kernel_Name SQ_INSTS_VALU SQ_WAVES"
show_table(norms.iloc[::20], columns, "Some dispatches of one kernel", rows=4, origin=origin)

# %%
# 4 minutes: how many vector instructions does a wave of `MIOpenBatchNormFwdTrainSpatial` execute, over all its
# dispatches in `wide`?
q = exercise("04.5", wide)
# solution
one = wide[wide["Kernel_Name"].str.contains("MIOpenBatchNormFwdTrainSpatial")]
answer = one["SQ_INSTS_VALU"].sum() / one["SQ_WAVES"].sum()
# end solution
q.check(answer)

# %% [markdown]
# ## First cure: a fused optimizer
#
# PyTorch's Adam makes each step of its arithmetic in kernels of their own. Fused, one kernel makes them all, for many
# weights at once: `torch.optim.Adam(..., fused=True)`, the trainer's `--fused-optimizer`.

# %% language="bash"
# rocprofv3 --kernel-trace --marker-trace --output-format rocpd --output-directory $FOLDER/fused \
#     --output-file gpu -- $CASE --max-steps 8 --roctx --fused-optimizer 2>&1 | grep -v Opened

# %%
fused = steady_part(own_run(lesson.folder / "fused/gpu_results.db"))
before, after = (len(part.dispatches) / part.steps for part in (steady, fused))
say(f"{before:,.0f} kernels a step become {after:,.0f}: {before - after:,.0f} launches fewer.")

# %% [markdown]
# Faster, and the same training? The *gate* trains the network on the same images with and without, and compares
# gradients and losses. Then five turns of both, on your processor:

# %%
gate = fused_optimizer_gate()
say(str(gate))

# %%
short = "--num-workers 0 --batch-size 8 --max-steps 6 --warmup-steps 2"
turns = [ledger.trainer(short + more, inside=True) for more in ("", " --fused-optimizer")]
change = "fused optimizer, on a processor"
live = ledger.add("The fused optimizer makes the step shorter", *turns, gate, change=change)

# %% [markdown]
# And on the modelled GPU, in five plays:

# %%
plain = modelled(case.options("04"))
option = f"{case.options('04')} --fused-optimizer"
fewer = ledger.add(
    "The fused optimizer makes the step shorter", plain.seconds, modelled(option).seconds, gate,
    change="fused optimizer", origin=plain.origin,
)  # fmt: skip
say(f"Here: {live.interval}. Modelled GPU: {fewer.interval}, which is no measurement.")
step, quicker = plain_step(case.options("04")), plain_step(option)
saved = {name: value - quicker[name] for name, value in step.items()}
say(
    f"Only {100 * (1 - after / before):.1f} % of the launches are gone. Of the "
    f"{saved['step_ms']:.2f} ms that a step gets shorter in the model, {saved['compute_ms']:.2f} "
    f"ms are compute, and {saved['launch_bound_ms']:.2f} ms waiting for launches."
)

# %% [markdown]
# ## Second cure: more work in each launch
#
# The test above is a cure as well: the host launches as often for 1,024 images as for 32. But you have seen what came
# of it. Each cure uncovers the next limit.

# %%
# 4 minutes: how many loader processes does a batch of 1024 images need at least, to reach twice the images per second
# of `$CASE`? Give the options of the trainer as one text; change the batch, the loaders and the optimizer only. The
# check asks the model.
q = exercise("04.6", plain)
# solution
answer = "--batch-size 1024 --num-workers 4"
# end solution
q.check(answer)

# %%
larger = [f"--num-workers {workers} --batch-size 1024" for workers in (2, 8)] + [case.options("05")]
steps = {name: plain_step(name) for name in (case.options("04"), *larger)}
rows = pd.DataFrame([{"options": name} | step for name, step in steps.items()])
named = ["compute", "launch_bound", "data_wait"]
for part in named:
    rows[f"{part}_percent"] = 100 * rows[f"{part}_ms"] / rows["step_ms"]
rows["other_percent"] = 100 - rows[[f"{part}_percent" for part in named]].sum(axis=1)
columns = " ".join(["options step_ms", *(f"{part}_percent" for part in [*named, "other"])])
show_table(rows, columns, "The step without a profiler", origin=plain.origin)
recorded_ms, long_ms = runs["batch 1024"].step_ns / 1e6, steps[larger[0]]["step_ms"]
say(
    f"With two loaders and 1,024 images a step takes {long_ms:.0f} ms in the long run, and "
    f"{recorded_ms:.0f} ms in the eight steps above: their batches were partly ready before."
)
cured = modelled(case.options("05"))
both = ledger.add(
    "More work in each launch makes an image cheaper", plain.seconds, cured.seconds,
    change="batch 1024, 8 loaders, fused optimizer", origin=plain.origin,
)  # fmt: skip
say(
    f"With two loaders the data wait is back. All three changes give {both.speed_up.ratio:.1f} "
    f"times the images per second in the model. The verdict is *{both.verdict}*: a larger batch is "
    "another training, with fewer steps. Only a full run tells whether it learns as well."
)

# %% [markdown]
# ## Decide
#
# The largest part of a step chooses the next question. Record the case with both cures:

# %% language="bash"
# rocprofv3 --kernel-trace --marker-trace --hip-runtime-trace --output-format rocpd \
#     --output-directory $FOLDER/cured --output-file gpu \
#     -- $CASE --max-steps 8 --roctx --batch-size 1024 --num-workers 8 --fused-optimizer 2>&1 \
#     | grep -v Opened

# %%
QUESTIONS = {
    "compute": ("05", "The device nearly always works: is its largest kernel near its ceiling?"),
    "exposed_communication": ("07", "The device waits for other ranks: which one is late?"),
    "data_wait": ("03", "The device waits for data: what does the loader do?"),
}
HOST = ("03", "The device waits for the host: what does it do between launches?")


def decide(parts):
    return QUESTIONS.get(max(parts, key=parts.get), HOST)


end = steady_part(own_run(lesson.folder / "cured/gpu_results.db"))
budget = tidyprof.step_budget(end.profile)
parts = tidyprof.analyses.parts_of(budget)
number, because = decide({part: budget[f"{part}_ns"].mean() for part in parts})
kernels = tidyprof.kernels(end.profile, include=DEVICE_KINDS)
say(f"This run: {because} Lesson {number}. Largest kernel: `{kernels['short_name'].iloc[0]}`.")
proflab.reveal("04.a", len(steady.dispatches) / steady.steps, steady.profile)
proflab.reveal("04.b", float(f"{large.step_ns / small.step_ns:.3g}"), large.profile)


# %% [markdown]
# For the case sheet count the modelled step, without the tool:

# %%
sick, well = steps[case.options("04")], steps[case.options("05")]
parts = {name.removesuffix("_ms"): value for name, value in well.items() if name != "step_ms"}
number, because = decide(parts)
share = [100 * step["compute_ms"] / step["step_ms"] for step in (sick, well)]
lesson.conclude(
    f"With two loaders and batch 256 the device computes for {share[0]:.0f} % of a step, and "
    f"waits for launches for {100 * sick['launch_bound_ms'] / sick['step_ms']:.0f} %. With batch "
    f"1,024, eight loaders and the fused optimizer it computes for {share[1]:.0f} %.",
    rules_out="the host and the loader, at this batch", because=because, next=number,
    origin=plain.origin, changes=[live, fewer, both],
)  # fmt: skip

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# It says how long a kernel ran, not whether it could be faster: lesson 05. It can't tell waiting from work inside an
# RCCL kernel. And the tool makes launches slower, by an amount that nobody has published for this training: compare
# with the trainer's own step time, without the tool, before you call a run launch-bound.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# {issue no-csv-where-there-used-to-be-one}
# {issue all-ranks-write-into-one-file}
# {issue rocprofv3-in-a-virtual-environment-finds-no-gpu}
# | RCCL is `rccl_main_kernel` in one file, `ncclDevKernel...` in another | releases differ: search for both |
#
# More of them, with sources, are in the [list of known issues](../docs/known-issues.md). PC sampling, thread trace and
# other switches of the tool: [more of rocprofv3](../docs/more-of-rocprofv3.md). Coming from `rocprof` or `rocprofv2`?
# [The options look alike, their meaning changed](../docs/migration.md).

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

# %% [markdown]
# ## Key points
#
# - Name the format, the trace and the file in every command; the defaults change.
# - A percentage in a kernel table is a share of kernel time. Ask for the share of a step.
# - Many short kernels make the host the limit: launch fewer, or give each more work. Then look for the next limit.
# - Few steps flatter the loaders, which work ahead. Look at a longer run before you count on them.
#
# Next question: is its largest kernel near its ceiling?
