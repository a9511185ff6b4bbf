# %% [markdown]
# # Where does a step go?
#
# The case is a training whose GPU works only part of the time. `torch.profiler` records what the processor and the GPU
# do on one time axis.
#
# After this lesson you can
#
# - put the profiler into your own script, and say what it sees of a data loader;
# - read an operator table, a timeline and a step budget without counting time twice;
# - tell which operator, and which shape, a kernel belongs to;
# - tell a GPU that waits for data from one that waits for launches, for other ranks or for the host.
#
# You need lesson 00. The profiler is that of your PyTorch; the recordings are from ROCm 6.4 to 7.2. A GPU is used where
# there is one; without it every cell still works.

# %%
import proflab

lesson = proflab.start("02")

# %%
lesson.sheet()

# %%
import statistics
import time
import timeit

import pandas as pd
import tidyprof
import torch
from proflab import case, exercise, say, show_figure, show_table
from proflab.parts.clinic_runs import modelled
from proflab.parts.modelled_trace import modelled_trace
from tidyprof import Intervals, Profile, plots
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset

# %% [markdown]
# ## The picture to keep in mind
#
# A *trace* is the list of everything that the profiler saw, with begin and end. It is drawn in lanes:
#
# | lane | who works | example | `kind` |
# | --- | --- | --- | --- |
# | range | your script names a piece of code | `forward` | annotation |
# | operator | PyTorch, on the processor | `aten::add_` | operator |
# | runtime call | HIP, AMD's library that drives the GPU | `hipLaunchKernel` | runtime |
# | stream | the GPU | a kernel, a copy | kernel, collective, copy, fill |
#
# An *operator* is one of PyTorch's functions, such as an addition; with a GPU most of them launch kernels. The queue
# that these are put into is a *stream*: work within a stream runs in order, work in two streams may run at the same
# time. Besides kernels a stream holds *copies* and *fills*, which move or set memory, and *collectives*, of which
# more below. Without a GPU the lanes end at the operator, which then does the work itself.
#
# ## Predict
#
# Before you look:

# %%
# solution
wait_guess, cost_guess = 60, 10
# end solution
proflab.predict("02.a", wait_guess, unit="%", what="how much of a step the GPU waits for data")
proflab.predict("02.b", cost_guess, unit="%", what="what the profiler adds to small operators")

# %% [markdown]
# ## Capture: a loop of your own
#
# A small model reads images from a slow disk: each takes two milliseconds to arrive. `record_function` gives a piece of
# code a name, called a *range*.

# %%
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()


class SlowDisk(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, number):
        time.sleep(0.002)
        return torch.rand(3, 32, 32).flip(2), number % 100


convolutions = nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2)
model = nn.Sequential(*convolutions, nn.Flatten(), nn.LazyLinear(100)).to(device)
model(torch.rand(1, 3, 32, 32).to(device))  # so that the last layer learns its size
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

# %% [markdown]
# A trace of a whole run is soon too big for a viewer. So the profiler follows a *schedule*: it waits while libraries
# start, warms up, then keeps the active steps. `prof.step()` at the end of each step
# moves it on. A run that ends before the active steps records nothing, without an error. So ask the schedule first:

# %%
plan = schedule(wait=2, warmup=1, active=3, repeat=1)
too_long = schedule(wait=30, warmup=1, active=3, repeat=1)
for name, chosen in {"plan": plan, "too_long": too_long}.items():
    print(f"{name:8}", " ".join(chosen(step).name for step in range(6)))


# %%
def train(recorder, batches):
    for _ in range(6):
        with record_function("data"):
            images, labels = (part.to(device) for part in next(batches))
        with record_function("forward"):
            loss = nn.functional.cross_entropy(model(images), labels)
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        recorder.step()


# %%
watched, runs = {}, {}
for workers in (2, 0):
    how = {"multiprocessing_context": "fork"} if workers else {}  # they know this class
    batches = iter(DataLoader(SlowDisk(), 16, num_workers=workers, **how))
    with profile(activities=activities, schedule=plan, record_shapes=True) as prof:
        train(prof, batches)
    path = lesson.folder / f"own_trace_{workers}_workers.json.gz"
    prof.export_chrome_trace(str(path))
    origin = tidyprof.Origin("measured", "this machine")
    watched[workers], runs[workers] = prof, tidyprof.read(path, origin=origin)
rows = watched[0].key_averages()
print(rows.table(sort_by="self_cpu_time_total", row_limit=6, max_name_column_width=40))

# %% [markdown]
# That is all that your own script needs: the block around the loop, `step()` in it, and a line that writes the file. On
# a GPU sort by `self_device_time_total`. Notes on standard error such as `USDT ... profiler_start` are no failure.
#
# ## First look, and what loader processes do
#
# `tidyprof.read` turns a trace into tables with a row for each event. From them a table of phases is one `groupby`. On
# a GPU torch writes a range twice: on the host, and again around the work on the device that it launched. The second
# one has a `device`, and has to be left out, or time counts twice:

# %%
mine = runs[0]
phases = tidyprof.phases(mine)
ranges = mine.events.query("kind == 'annotation' and device.isna()")
by_hand = ranges.groupby("name", observed=True)["duration_ns"].sum()
assert by_hand[phases["phase"].unique()].sum() == phases["duration_ns"].sum()
show_table(phases, "step phase calls duration_ms percent", "Where the host spent each step")

# %%
rows = []
for workers, run in sorted(runs.items()):
    named = run.events.query("device.isna()").astype({"name": str})
    waits = named[named["name"].str.endswith("DataLoaderIter.__next__")]
    row = {"workers": workers, "range_of_the_loader": waits["name"].iloc[0].partition("#")[2]}
    row |= {"each_ns": waits["duration_ns"].mean(), "processes": named["process"].nunique()}
    rows.append(row | {"aten_flip": (named["name"] == "aten::flip").sum()})
columns = "workers range_of_the_loader each_ms aten_flip processes"
show_table(pd.DataFrame(rows), columns, "What the trace knows of the loader", origin=mine.origin)

# %% [markdown]
# Without workers your process loads the images itself: `aten::flip`, which `SlowDisk` calls once an image, is in the
# trace. With workers other processes do it, and the profiler does not follow them: no operator, no process.
# `_MultiProcessingDataLoaderIter.__next__` **is the wait for a worker**. If it is long, the workers are too slow or too
# few. And the sleep is in no operator in either trace.
#
# ## Trap: totals contain each other
#
# The profiler's own summary has one row per name. *Self* is the time in the operator alone, *total* includes the
# operators that it called. The ranges are rows too, and contain the operators once more. Every row is right,
# and still you must never add up `CPU total %`. The same holds for the columns that a GPU adds: an operator, its
# kernels and the range around them all show the same kernel time.

# %%
table = tidyprof.operators(mine)
show_table(table, "name calls total_ms self_ms percent", "Operators by self time", rows=5)
say(
    f"Self times add up to {table['percent'].sum():.0f} % of the operators' time, "
    f"totals to {100 * table['total_ns'].sum() / table['self_ns'].sum():.0f} %."
)

# %%
# 4 minutes: what share of the operators' self time, in percent, went into names with `conv`, any case? Compute it from
# torch's own rows, `watched[0].key_averages()`: each has `key`, `self_cpu_time_total` and `is_user_annotation`, which
# is true for the ranges.
q = exercise("02.1", mine)
# solution
operators = [row for row in watched[0].key_averages() if not row.is_user_annotation]
convolutions = [row for row in operators if "conv" in row.key.lower()]
spent = sum(row.self_cpu_time_total for row in operators)
answer = 100 * sum(row.self_cpu_time_total for row in convolutions) / spent
# end solution
q.check(answer)

# %% [markdown]
# ## What the profiler costs
#
# A watched step is slower. Each operator that is recorded costs the host a little, so a step of many small ones
# pays most. Fifty tiny layers, with and without:

# %%
narrow = nn.Sequential(*[nn.Linear(8, 8) for _ in range(50)])


def work():
    narrow(torch.ones(1, 8)).sum().backward()


def step_us():
    return 1e6 * statistics.median(timeit.repeat(work, number=1, repeat=10))


turns = []
for _ in range(5):
    plain_us = step_us()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as watching:
        turns.append((plain_us, step_us()))
plain_us, watched_us = (statistics.median(times) for times in zip(*turns, strict=True))
rows = watching.key_averages()
operators_each = sum(row.count for row in rows if not row.is_user_annotation) / 10
say(
    f"Here a step of {operators_each:,.0f} operators takes {plain_us / 1e3:.1f} ms without the "
    f"profiler and {watched_us / 1e3:.1f} ms with it: "
    f"{(watched_us - plain_us) / operators_each:.1f} µs for each operator (measured)."
)

# %% [markdown]
# Eight programs on a real GPU, each with and without. An *event* is an operator or a runtime call, `us_an_event` what
# the profiler adds for each. `busy` is the GPU's time in a traced step, as a share of the untraced one, in percent.

# %%
costs = pd.read_csv(lesson.file("profiler_cost.csv"), comment="#")
costs["us_an_event"] = 1e3 * (costs["traced_ms"] - costs["untraced_ms"]) / costs["events"]
costs["busy"] = 100 * costs["busy_ms"] / costs["untraced_ms"]
print("recorded: one NVIDIA H200")
print(costs.drop(columns="busy_ms").round(1).to_string(index=False))

# %% [markdown]
# Two programs whose GPU never waits take as long with the profiler: it costs the host, not the kernels. The others pay
# by the event, and a GPU that works for most of a step is not safe: see the transformer's two lengths. More
# options cost more: `with_stack` (the call stack of Python, and the modules of the model), `profile_memory` (every
# allocation), `with_flops` (arithmetic, for the few operators with a formula).
#
# ## The case
#
# The trainer has the same block behind the switch `--torch-profile`. `$CASE` is the command of the case. The options
# behind it make it short on a processor; on a GPU leave out `--batch-size 8`. Without a GPU the processor does the
# arithmetic, too, which takes nearly all of the step. Then the trace of a modelled MI300X stands in for a GPU's.

# %% language="bash"
# $CASE --batch-size 8 --max-steps 6 --torch-profile --record-shapes --run-dir $FOLDER/case

# %%
live = tidyprof.read(lesson.folder / "case", origin=mine.origin)
gpu = live if len(live.device_events) else modelled_trace(case.options("02"))
step_ms = tidyprof.steps(gpu)["duration_ns"].median() / 1e6
unwatched = modelled(case.options("02"))
unwatched_ms = 1e3 * statistics.median(unwatched.seconds) * 256  # images a step
say(
    f"The trace below is {gpu.origin.kind} ({gpu.origin.detail}). A watched step of it takes "
    f"{step_ms:.0f} ms. Without the profiler the model of an MI300X says {unwatched_ms:.0f} ms. "
    "**So never quote the step time of a trace.**"
)
second = int(tidyprof.steps(gpu)["step"].iloc[1])
show_figure(plots.timeline(gpu, step=second, title="One step of the case"))

# %% [markdown]
# Read the picture from the lowest lane: does the stream work while the host is in `data`? Where there are too many
# events, a height is the share of time in which one runs. Which kernels are these? Tables shorten long names; the
# column `category` tells by the name what a kernel does. `GEMM` is a product of matrices.

# %%
names = tidyprof.kernels(gpu)
show_table(names, "short_name category calls total_ms mean_us percent", "Kernels by time", rows=5)

# %% [markdown]
# **Which operator, which shape launched this kernel?** Operator and kernel carry the same number in the file,
# `External id`. So a merge brings them together:

# %%
device_work = gpu.device_events[["external_id", "short_name", "operator", "duration_ns"]]
host_operators = gpu.events.query("kind == 'operator'")[["external_id", "name", "input_shapes"]]
launched = device_work.dropna(subset=["external_id"]).merge(host_operators, on="external_id")
assert (launched["name"].astype(str) == launched["operator"].astype(str)).all()
largest = names["short_name"].iloc[0]
its_own = launched[launched["short_name"] == largest]
per_step = len(its_own) / len(tidyprof.steps(gpu))
say(f"`{largest}` is launched by `{its_own['name'].iloc[0]}`, {per_step:.0f} times a step.")

# %%
# 4 minutes: lessons 04 and 05 go on with this kernel, so know where its time goes. At which `input_shapes` does it take
# most time in all? `its_own` has a row for each call of the kernel; give the text as it stands in the column.
q = exercise("02.2", gpu)
# solution
by_shape = its_own.groupby("input_shapes", observed=True)["duration_ns"].sum()
answer = by_shape.idxmax()
# end solution
q.check(answer)

# %% [markdown]
# ## A GPU that is never idle
#
# Before you judge the case, look at a trace that is unlike it. Eight MI300X train one ResNet together. Each *rank*, a
# process with its own GPU, writes a file; this is that of rank 0. While the backward pass runs, the ranks begin to add
# up their gradients, which is called all-reduce. It is a *collective*: an operation that all ranks take part in. Its
# kernels are from AMD's library RCCL, but still carry the name of NVIDIA's, `nccl`.

# %%
found = proflab.recording("torch-mi300x-resnet-ddp-rank0")
rank = tidyprof.read_torch_trace(found.path, origin=found.origin, python_functions=True)
say(f"{found.entry.workload}. From {found.entry.source_repo}, licence {found.entry.licence}.")
modules = tidyprof.modules(rank)
show_table(modules, "name calls total_ms device_ms", "Parts of the model by their kernels", rows=4)
twice = modules.loc[modules["name"] == "Sequential_1", "calls"].iloc[0] / len(tidyprof.steps(rank))
say(
    f"The trace has Python's calls, so that modules have names. `Sequential_1` runs {twice:.0f} "
    "times in a step: activation checkpointing repeats forward during backward, to save memory."
)

# %% [markdown]
# ## Trap: how busy is this GPU?
#
# Add up the kernels, divide by the *span*, the time from first to last device event.

# %%
span_ns = tidyprof.busy(rank)["span_ns"].iloc[0]
kernels = rank.device_events[rank.device_events["kind"].isin(["kernel", "collective"])]
say(
    f"Kernels: {kernels['duration_ns'].sum() / 1e6:.1f} ms. Span: {span_ns / 1e6:.1f} ms. "
    f"**Busy: {100 * kernels['duration_ns'].sum() / span_ns:.0f} %**, which cannot be."
)
step = tidyprof.steps(rank, "device").iloc[1]
only_device = Profile(rank.device_events, meta=rank.meta)
window = {"start_ns": step.start_ns, "end_ns": step.start_ns + step.duration_ns}
show_figure(plots.timeline(only_device, **window, title="On the device both streams run at once"))

# %% [markdown]
# Two streams run at once: the same moment counts twice. The repair is a *union*: a moment counts once if anything
# runs in it. Sort the events by their start. Of each, only what lies behind the latest end so far is new:


# %%
def union_ns(events):
    events = events.sort_values("start_ns")
    end = events["start_ns"] + events["duration_ns"]
    seen_until = end.cummax().shift(fill_value=0)
    return (end - events["start_ns"].clip(lower=seen_until)).clip(lower=0).sum()


busy = tidyprof.busy(rank, ["kernel", "collective"])
assert union_ns(kernels) == busy["union_ns"].sum()
show_figure(plots.busy(busy, title="The sum of kernel durations is no utilisation"))

# %% [markdown]
# ## Trap: busy with what?
#
# For most of the step the only thing that runs is a collective. It ends when the last rank
# has arrived and the data is exchanged. Communication beside computation is *hidden*; communication alone,
# *exposed communication*, makes the step longer. `tidyprof.overlap` divides the time, with copies and fills:

# %%
parts = tidyprof.overlap(rank).iloc[0]
say(
    f"Busy with kernels: {busy['union_percent'].iloc[0]:.0f} % of the span, with copies and fills "
    f"{100 * parts['busy_ns'] / parts['total_ns']:.0f} %. But computing: only "
    f"**{parts['computation_percent']:.0f} %**. Idle: {parts['idle_percent']:.0f} %."
)

# %%
# 5 minutes: what share of the communication, in percent, is hidden behind kernels (kind `kernel`)? Two sets overlap
# for as long as their lengths together exceed that of their union: use `union_ns`.
q = exercise("02.3", rank)
# solution
collectives = kernels[kernels["kind"] == "collective"]
others = kernels[kernels["kind"] == "kernel"]
both_ns = union_ns(collectives) + union_ns(others) - union_ns(kernels)
answer = 100 * both_ns / union_ns(collectives)
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: the host runs ahead
#
# Launching is quick, so the host can queue work long before the device gets to it. How long a kernel waits in its queue
# is the time from the call that launched it to its start: `launches` computes `start_ns - launch_ns` for each.

# %%
delays = {}
for name, run in {"the case": gpu, "the rank of eight": rank}.items():
    made = tidyprof.launches(run)
    assert (made["delay_ns"] == made["start_ns"] - made["launch_ns"]).all()
    delays[name] = made["delay_ns"].median() / 1e3
medians = ", ".join(f"{name} {us:,.0f} µs" for name, us in delays.items())
say(f"A kernel waits in the queue, median: {medians}.")
title = "The rank of eight: the host's second step, and older device work"
show_figure(plots.timeline(rank, step=int(tidyprof.steps(rank)["step"].iloc[1]), title=title))

# %% [markdown]
# **The depth of the queue is evidence.** Microseconds mean that the GPU waits for the host: each kernel starts as soon
# as it is launched. A wait as long as a step, or longer, means that the GPU is the limit. Then what the device does
# under the bar `ProfilerStep` belongs to an earlier step. In traces of NVIDIA's GPUs a launch is `cudaLaunchKernel`:
# a search for that finds nothing on AMD.

# %% [markdown]
# ## Repair: the budget of the device's steps
#
# Give each event to the step that *launched* it: `timeline="device"` does that. Then divide the device's step into
# parts that add up: a *step budget*. The device computes, communicates (exposed), copies (exposed), or has nothing to
# do:
#
# | part | why |
# | --- | --- |
# | data wait | the host waits for the next batch, or prepares it |
# | launch-bound idle | the host has launched nothing yet |
# | blocked host | the host waits itself, inside a call that allocates memory, copies or synchronises |
# | other | the next work waits in the queue (`queued`), or the device does what the file lacks (`earlier work`) |
#
# Make such a budget of the case yourself. `Intervals` are sets of time: `&` is both, `|` is either, `-` takes away,
# `.length` is in nanoseconds.

# %%
step = tidyprof.steps(gpu, "device").iloc[1]
whole = Intervals.window(step.start_ns, step.start_ns + step.duration_ns)
use = tidyprof.DeviceTime.of(gpu.device_events)  # use.computation, use.exposed_copy, use.busy (any)
data = gpu.events.query("kind == 'annotation' and name == 'data' and device.isna()")
loading = Intervals.union(data["start_ns"], data["start_ns"] + data["duration_ns"])

# %%
# 8 minutes, open: a dictionary of parts that add up to `whole`, in ns. Call one `compute`, one `data_wait`, in which
# the device does nothing and the host is in its range `data`, and one `idle`, in which the host is elsewhere.
q = exercise("02.4", gpu)
# solution
parts = {"compute": whole & use.computation, "copy": whole & use.exposed_copy}
parts |= {"data_wait": whole & (loading - use.busy), "idle": whole - use.busy - loading}
answer = {name: part.length for name, part in parts.items()}
# end solution
q.check(answer)

# %%
budget = tidyprof.step_budget(gpu, timeline="device")
show_figure(plots.step_budget(budget, title="The case: the device's steps, divided"))

# %% [markdown]
# ## Trap: the trace is not the run
#
# A budget of a trace is one of traced steps. Here are three of another run of the ResNet-50 in the table above, on the
# same NVIDIA H200. The script had timed ten steps before it recorded: the dashed line.

# %%
found = proflab.recording("torch-h200-resnet50")
traced = tidyprof.step_budget(tidyprof.read(found.path, origin=found.origin), timeline="device")
alone_ns = traced.attrs["untraced_ns"]
show_figure(plots.step_budget(traced, title="A ResNet-50 on an H200, traced"))

# %%
# 6 minutes: without the profiler, how much of a step is this GPU idle for launches, in percent of that step? `traced`
# has a row for each traced step, in ns. Take their means. The step without the profiler takes `alone_ns`, and all that
# the profiler adds is idleness of this sort.
q = exercise("02.5", traced)
# solution
mean = traced[["duration_ns", "launch_bound_ns"]].mean()
added = mean["duration_ns"] - alone_ns
answer = 100 * (mean["launch_bound_ns"] - added) / alone_ns
# end solution
q.check(answer)

# %% [markdown]
# So take the length of a step from a run without a profiler. Take the difference off the idleness of the trace, and
# only then read the reason. The block of lesson 14 measures both in one run. For another trace
# `python -m tidyprof triage TRACE --step-ms MS` takes the length from any log of yours, and does the rest.

# %% [markdown]
# ## Look for yourself
#
# Perfetto is a viewer for traces in the browser. The button opens [ui.perfetto.dev](https://ui.perfetto.dev) and hands
# it the trace, without an upload. The keys `w` and `s` zoom, `a` and `d` move. Click an event to see its shapes, and
# the arrow from a launch to its kernel. *Slices with the same name* in its details lists all its runs and their times.

# %%
proflab.perfetto(gpu, step=second, title="One step of the case")

# %% [markdown]
# ## Decide
#
# The largest part of the budget chooses the next lesson, for your own `$CASE`, too. `blocked host` asks for memory here
# (lesson 11), `exposed communication` for the rank that is late (lesson 07).

# %%
NEXT = {"data_wait": "03", "launch_bound": "03", "other": "03", "compute": "04"}
NEXT |= {"exposed_copy": "04", "exposed_communication": "07", "blocked_host": "11"}


def shares_of(budget):
    parts = tidyprof.analyses.parts_of(budget)
    return {part: 100 * budget[f"{part}_ns"].sum() / budget["duration_ns"].sum() for part in parts}


def decide(name, budget):
    shares = shares_of(budget)
    first = max(shares, key=shares.get)
    say(f"{name}: {first.replace('_', ' ')} {shares[first]:.0f} %. Next: lesson {NEXT[first]}.")
    return NEXT[first]


# %%
decide("The rank of eight", tidyprof.step_budget(rank, timeline="device"))
shares = shares_of(budget)
following = decide("The case", budget)
small = [f"{part} ({most:.0f} %)".replace("_", " ") for part, most in shares.items() if most < 15]
lesson.conclude(
    f"In a watched step of {step_ms:.0f} ms the GPU waits for data for {shares['data_wait']:.0f} "
    f"%, for launches for {shares['launch_bound']:.0f} %, and computes for "
    f"{shares['compute']:.0f} %.",
    rules_out=", ".join(small),
    because="The trace names the range in which the GPU waits, not what the processor does in it.",
    next=following,
    origin=gpu.origin,
)
wait_ms = shares["data_wait"] / 100 * step_ms
if gpu is not live:
    say(
        f"The wait for data is {wait_ms:.0f} ms, with hardly an operator in it: the profiler makes "
        f"the rest longer. It is {100 * wait_ms / unwatched_ms:.0f} % of the unwatched step."
    )
proflab.reveal("02.a", shares["data_wait"], origin=gpu.origin)
proflab.reveal("02.b", 100 * (watched_us / plain_us - 1))

# %% [markdown]
# What does the processor do in that range? The model plays hardly an operator there. Your own run recorded them:

# %%
host = live.events[live.events["kind"].isin(["operator", "runtime"])]
recorded = Intervals.union(host["start_ns"], host["start_ns"] + host["duration_ns"])
of_live = live.events.query("kind == 'annotation' and name == 'data' and device.isna()")
in_data = Intervals.union(of_live["start_ns"], of_live["start_ns"] + of_live["duration_ns"])
alone = 100 * (in_data - recorded).length / in_data.length
say(f"In the live run {alone:.0f} % of `data` is in no operator at all.")

# %% [markdown] tags=["given"]
# ## What this tool cannot see
#
# It sees one process: no loader process, no other rank (lesson 07). It sees operators, not the Python between them
# (lesson 03). It knows when a kernel ran, not whether it ran well (lesson 05).
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# {issue roctracer-loses-kernels-on-rocm-721}
# {issue a-torch-wheel-keeps-the-roctracer-of-its-own-rocm}
# {issue trace-without-any-gpu-record}
# | kernels missing at the start of the window | [keep the warm-up, compare counts between steps][start] |
#
# [start]: https://github.com/pytorch/kineto/issues/996

# %% [markdown]
# ## At work, without this course
#
# The block in a script of your own. Replace what stands between the two lines of dashes with your model and loop:
#
# {snippet 02_profile_a_loop.py}

# %% [markdown]
# And the numbers of this lesson from any trace, with pandas alone:
#
# {snippet 02_trace_to_table.py}
#
# Read on: [PyTorch's manual](https://docs.pytorch.org/docs/stable/profiler.html).

# %% [markdown]
# ## Key points
#
# - Wait, warm up, then record few steps. A watched step is longer, and idle for longer: time one without.
# - Add self times of one kind of row, never totals. Add sets of time, never durations.
# - Busy is not computing: a waiting collective is busy too.
# - A kernel belongs to the step that launched it. A deep queue means that the GPU is the limit.
# - Of loader processes a trace shows the wait alone.
#
# Next question: what is the processor doing while the GPU waits?
