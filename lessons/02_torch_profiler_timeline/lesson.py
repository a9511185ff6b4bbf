# %% [markdown]
# # Where does a step go?
#
# A training step keeps a processor busy, and often a GPU and a network at the same time. `torch.profiler` records
# what the processor and the GPU do on one time axis. You put it into a loop of your own, divide a step into parts that
# add up to it, and then do the same with recordings of an MI300X.
#
# After this lesson you can
#
# - put the profiler into your own script, and say why it waits and warms up before it keeps a step;
# - tell which line of a model, and which shape, a kernel belongs to;
# - read an operator table, a timeline and a step budget without counting time twice;
# - work with a trace that has no steps, and see where the host is blocked.
#
# You need lesson 00. The profiler is that of your PyTorch, whose version the table below shows; the recordings are
# from ROCm 6.4 to 7.2. A GPU is used where there is one; without it every cell still works.

# %%
import proflab

lesson = proflab.start("02")

# %%
import math
import os

import pandas as pd
import tidyprof
import torch
from proflab import exercise, say, show_figure, show_table
from proflab.parts.modelled_trace import RANK_OF_EIGHT, modelled_trace
from tidyprof import Profile, plots
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

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
# Two numbers again, before you look.

# %%
# solution
busy_guess, backward_guess = 90, 50
# end solution
proflab.predict("02.a", busy_guess, unit="%", what="the share of time in which the recorded MI300X runs kernels")
proflab.predict("02.b", backward_guess, unit="%", what="the share of your own step that the host spends in backward")

# %% [markdown]
# ## Capture: a loop of your own
#
# Any model will do. This one looks at images with two convolutions and decides with two linear layers.
# `record_function` gives a piece of code a name, called a *range*.

# %%
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2))
        self.decide = nn.Sequential(nn.Linear(64 * 14 * 14, 256), nn.ReLU(), nn.Linear(256, 100))

    def forward(self, images):
        with record_function("look"):
            features = self.look(images).relu().flatten(1)
        with record_function("decide"):
            return self.decide(features)


model = Reader().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

# %% [markdown]
# A trace of a whole training run is soon too big for a viewer. So the profiler follows a *schedule*:
#
# - **wait**: off, while libraries start and the first batches arrive;
# - **warm-up**: on, but the result is thrown away, since switching on disturbs the step;
# - **active**: on, and kept. Steps repeat, so three are enough to begin with.
#
# `prof.step()` at the end of each step tells the profiler where in the schedule it is. A run that ends before the
# active steps records nothing, without an error and without a file; one that ends among them writes those it had. So
# ask it first what it will do.
#
# The profiler writes notes to standard error, which a notebook shows in red: `USDT ... profiler_start` is no failure,
# and on a machine without a GPU neither is `gpuGetDeviceCount failed`. Where there is none, the first cell has silenced
# them, by `KINETO_LOG_LEVEL` and `TORCH_CPP_LOG_LEVEL`.

# %%
plan = schedule(wait=2, warmup=1, active=3, repeat=1)
too_long = schedule(wait=30, warmup=1, active=3, repeat=1)
for name, chosen in {"plan": plan, "too_long": too_long}.items():
    print(f"{name:8}", " ".join(chosen(step).name for step in range(6)))

# %%
activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()


def train(recorder):
    for _ in range(6):
        with record_function("data"):
            images, labels = torch.randn(16, 3, 32, 32).to(device), torch.randint(100, (16,)).to(device)
        with record_function("forward"):
            loss = nn.functional.cross_entropy(model(images), labels)
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        recorder.step()


def export(recorder):
    recorder.export_chrome_trace(str(lesson.folder / "own_trace.json.gz"))


with profile(activities=activities, schedule=plan, on_trace_ready=export, record_shapes=True) as prof:
    train(prof)
print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=8, max_name_column_width=40))

# %% [markdown]
# That is all that your own script needs: the block around the loop, `step()` in it, and a function that writes the
# file. On a GPU sort by `self_device_time_total`. Don't quote the step time of such a run: a watched step is slower.
#
# ## First look
#
# `tidyprof.read` turns the trace into tables with a row for each event. From them a table of phases is one `groupby`:

# %%
mine = tidyprof.read(lesson.folder / "own_trace.json.gz", origin=tidyprof.Origin("measured", "this machine"))
steps, phases = tidyprof.steps(mine), tidyprof.phases(mine)
ranges = mine.events[mine.events["kind"] == "annotation"]
by_hand = ranges.groupby("name", observed=True)["duration_ns"].sum()
assert all(by_hand[phase] == part.sum() for phase, part in phases.groupby("phase")["duration_ns"])
show_table(phases, "step phase calls duration_ms percent", "Where the host spent each recorded step")
say(
    f"{len(steps)} steps were kept, numbered from 0 over the whole run. The slowest took "
    f"{steps['duration_ns'].max() / steps['duration_ns'].min():.1f} times as long as the fastest."
)
show_figure(plots.timeline(mine, step=int(steps["step"].max()), title="Your last recorded step"))

# %% [markdown]
# ## Trap: totals contain each other
#
# The profiler's own summary has one row per name. *Self* is the time in the operator alone, *total* includes the
# operators that it called. The ranges are rows too, and contain the operators once more. Every row is right,
# and still you must never add up `CPU total %`. The same holds for the columns that a GPU adds: an operator, its
# kernels and the range around them all show the same kernel time. Self times of the processor may be added; of the
# GPU's add the operators' rows or the kernels' rows, never both.

# %%
table = tidyprof.operators(mine)
rows = {row.key: row for row in prof.key_averages()}
if device.type == "cpu":  # with a GPU torch also takes the runtime calls out of an operator's self time
    for operator in table.itertuples():
        row = rows[operator.name]
        assert operator.calls == row.count
        assert abs(operator.self_ns / 1e3 - row.self_cpu_time_total) < operator.calls  # microseconds, rounded
show_table(table, "name calls total_ms self_ms percent", "Operators, largest self time first", rows=6)
say(
    f"Self times add up to {table['percent'].sum():.0f} % of the operators' time, "
    f"totals to {100 * table['total_ns'].sum() / table['self_ns'].sum():.0f} %."
)

# %%
# 6 minutes: what share of the operators' self time, in percent, went into names with `conv`, any case? Compute it from
# torch's own rows, `prof.key_averages()`: each has `key`, `self_cpu_time_total` and `is_user_annotation`, which is true
# for the ranges.
q = exercise("02.1", mine)
# solution
operators = [row for row in prof.key_averages() if not row.is_user_annotation]
convolutions = [row for row in operators if "conv" in row.key.lower()]
spent = sum(row.self_cpu_time_total for row in operators)
answer = 100 * sum(row.self_cpu_time_total for row in convolutions) / spent
# end solution
q.check(answer)

# %% [markdown]
# ## Which shape, which part, which line?
#
# More options answer more questions, and cost more:
#
# | option | what it adds |
# | --- | --- |
# | `record_shapes` | the shapes of each operator's inputs |
# | `with_stack` | the Python call stack (which function called what), and the modules of the model |
# | `profile_memory` | every allocation |
# | `with_flops` | arithmetic, estimated from shapes, for the few operators with a formula |
# | `with_modules` | deprecated, and nothing but for scripted models (TorchScript): `with_stack` has the modules |
#
# Record with few options first, and add what you miss in a second run. This one adds three:

# %%
with profile(
    activities=activities, schedule=plan, record_shapes=True, with_stack=True, profile_memory=True, with_flops=True
) as detailed:
    train(detailed)
detailed.export_chrome_trace(str(lesson.folder / "detailed_trace.json.gz"))
more = tidyprof.read_torch_trace(lesson.folder / "detailed_trace.json.gz", origin=mine.origin, python_functions=True)
kinds = ["cpu_op", "user_annotation", "cpu_instant_event", "python_function"]
counts = pd.DataFrame({"first_run": mine.meta["events_by_category"], "second_run": more.meta["events_by_category"]})
counts = counts.reindex(kinds).fillna(0) / len(steps)
counts["what"] = ["operators", "ranges", "allocations", "calls of Python functions"]
counts = counts.rename_axis("category").reset_index()
show_table(counts, "category what first_run second_run", "Events per step in the file", origin=mine.origin)
packed = [os.path.getsize(lesson.folder / name) / 1e3 for name in ("own_trace.json.gz", "detailed_trace.json.gz")]
say(f"The packed file has {packed[0]:.0f} kB in the first run and {packed[1]:.0f} kB in the second.")

# %% [markdown]
# **The same operator at different shapes.** A name alone hides how different its calls are: the column `megaflop`
# counts their arithmetic, in millions of operations. In torch: `prof.key_averages(group_by_input_shape=True)`; in a
# file: `tidyprof.operators(profile, by_shape=True)`. Grouping by the call stack is `key_averages(group_by_stack_n=5)`.

# %%
rows = detailed.key_averages(group_by_input_shape=True)
shapes = [
    {"name": row.key, "shapes": str([shape for shape in row.input_shapes if shape]), "calls": row.count}
    | {"each_ns": 1e3 * row.self_cpu_time_total / row.count, "megaflop": row.flops / row.count / 1e6}
    for row in rows
    if row.key in ("aten::addmm", "aten::mm")
]
shapes = pd.DataFrame(shapes).sort_values("each_ns", ascending=False)
columns = "name shapes calls each_us megaflop"
show_table(shapes, columns, "Matrix products by the shapes of their inputs, each call", origin=mine.origin)
most, least = shapes.max(numeric_only=True), shapes.min(numeric_only=True)
say(
    f"The longest takes {most['each_ns'] / least['each_ns']:,.0f} times as long as the shortest; the largest does "
    f"{most['megaflop'] / least['megaflop']:,.0f} times the arithmetic of the smallest."
)

# %% [markdown]
# **FLOPs and intensity per part.** *FLOPs* are floating-point operations, *intensity* is how many of them are done for
# each byte that is moved. Few per byte means that memory is the limit, many that arithmetic is (lesson 05). Every event
# in `prof.events()` knows what called it on its thread, `cpu_parent`: go up until you meet a range that names a part.


# %%
def part_of(event):
    while event is not None and event.name not in ("look", "decide", "backward"):
        if event.name.startswith("autograd::engine"):
            return "backward"  # with a GPU it runs on a thread of its own, where the range is not
        event = event.cpu_parent
    return "elsewhere" if event is None else event.name


def size(event):
    return 4 * sum(math.prod(shape) for shape in event.input_shapes if shape)  # bytes of float32


counted = [event for event in detailed.events() if event.flops]
parts = pd.DataFrame(
    {"part": part_of(event), "calls": 1, "flops": event.flops, "bytes": size(event)}
    | {"ns": 1e3 * (event.cpu_time_total if device.type == "cpu" else event.device_time_total)}
    for event in counted
)
parts = parts.groupby("part", as_index=False).sum()
parts["gigaflop_per_s"], parts["flop_per_byte"] = parts["flops"] / parts["ns"], parts["flops"] / parts["bytes"]
show_table(parts, "part calls gigaflop_per_s flop_per_byte", "Operators with a formula, by part", origin=mine.origin)
assert sum(event.flops for event in counted) == sum(row.flops for row in detailed.key_averages())

# %% [markdown]
# Bytes are those of the inputs alone, so that the true intensity is lower. And mind what is missing: torch has no
# formula for `aten::convolution_backward`, so `backward` counts the matrix products only. A sum of FLOPs from this
# column is a lower bound.
#
# **Modules and lines.** With stacks in the trace, each operator has a module and a function of your code around it. On
# a GPU a third column, `device_ns`, adds up the kernels that were launched from there. To Python
# each cell of a notebook is a file of its own: one with a number for a name is the cell above that has this line.

# %%
show_table(tidyprof.modules(more), "name calls total_ms self_ms", "Modules of your model", rows=5)
lines = tidyprof.source_lines(more)
lines["source_line"] = lines["source_line"].str.replace(r".*/", "", regex=True)  # the file without its folder
forward = lines[lines["source_line"].str.endswith(": forward", na=False)]
show_table(forward, "source_line operator calls total_ms", "Called by `forward` (line of its `def`)", rows=4)

# %% [markdown]
# ## The same in a whole trainer
#
# The course's trainer has this very block, behind the switch `--torch-profile`, and ranges around the phases of a
# step. It trains a ResNet-50.

# %% language="bash"
# python -m cifar_train --max-steps 6 --batch-size 8 --torch-profile --record-shapes --run-dir runs/02/trainer

# %% [markdown]
# A timeline shows when, a *step budget* how much: its parts add up to the step. Without a GPU the parts are the phases
# on the host. With one they are what the device did; `timeline="device"` asks for the device's own steps, of which
# more below.

# %%
trainer = tidyprof.read("runs/02/trainer", origin=mine.origin)
show_figure(plots.step_budget(tidyprof.step_budget(trainer, timeline="device"), title="The trainer's steps, divided"))

# %% [markdown]
# What the picture says: which phase is long. What it doesn't say: why. A long `forward` may be large matrices,
# many tiny operators or another program on your processor.
#
# ## A real GPU
#
# Now a recording: eight MI300X train one ResNet together. Each rank, a process with its own GPU, writes a file; this
# is that of rank 0. While the backward pass runs, the ranks begin to add up their gradients, which is called
# all-reduce. It is a *collective*: an operation that all ranks take part in. Its kernels are from AMD's library RCCL,
# but still carry the name of NVIDIA's, `nccl`. If the recording can't be had, a modelled rank of eight takes its place.
#
# Kernel names are long. The tables shorten them: `MT256x192x64` in the name of a matrix product (*GEMM*) is the piece
# of the result that a group of work-items computes, and four characters behind a `#` keep apart names that would look
# the same. The column `category` says what a kernel does by its name. A kernel that transposes is a `copy` there; the
# `kind` copy is another thing, a transfer that the runtime was asked for.

# %%
there = proflab.try_recording("torch-mi300x-resnet-ddp-rank0")
gpu = tidyprof.read(there.path, origin=there.origin) if there else modelled_trace(RANK_OF_EIGHT, ranks=8)
if there:
    say(f"{there.entry.workload}. Published in {there.entry.source_repo}, {there.entry.licence} licence.")
names = tidyprof.kernels(gpu)
show_table(names, "short_name category calls total_ms mean_us percent", "Kernels by total time", rows=5)

# %% [markdown]
# **Which operator, which shape, which line launched this kernel?** Operator and kernel carry the same number in the
# file, `External id`. So a merge brings them together:

# %%
device_work = gpu.device_events[["external_id", "short_name", "operator", "duration_ns"]]
host_operators = gpu.events.loc[gpu.events["kind"] == "operator", ["external_id", "name", "input_shapes"]]
launched = device_work.dropna(subset=["external_id"]).merge(host_operators, on="external_id")
assert (launched["name"].astype(str) == launched["operator"].astype(str)).all()
by_operator = launched.groupby("name", observed=True)["duration_ns"].agg(["size", "sum"]).nlargest(5, "sum")
by_operator = by_operator.rename(columns={"size": "kernels", "sum": "device_ns"}).reset_index()
show_table(by_operator, "name kernels device_ms", "Device time by the operator that launched it", origin=gpu.origin)
say(f"{len(gpu.device_events) - len(launched):,} of {len(gpu.device_events):,} events have no operator: see below.")

# %%
# 6 minutes: the operator with the most device time among the convolutions of the forward pass is
# `aten::miopen_convolution` (`aten::convolution` where the rank is modelled). Which `input_shapes` of it take the most
# device time in all? `launched` has a row for each kernel; give the text as it stands in the column.
q = exercise("02.2", gpu)
# solution
chosen = launched[launched["name"].isin(["aten::miopen_convolution", "aten::convolution"])]
by_shape = chosen.groupby("input_shapes", observed=True)["duration_ns"].sum()
answer = by_shape.idxmax()
# end solution
q.check(answer)

# %%
if there:
    stacked = tidyprof.read_torch_trace(there.path, origin=there.origin, python_functions=True)
    modules, lines = tidyprof.modules(stacked), tidyprof.source_lines(stacked)
    show_table(modules, "name calls total_ms device_ms", "Parts of the model by the kernels they launched", rows=6)
    lines = lines.dropna(subset="source_line").drop_duplicates(["source_line", "device_ns"])  # the outermost operator
    show_table(lines, "source_line operator calls device_us", "Functions by the kernels they launched", rows=6)
    twice = modules.loc[modules["name"] == "Sequential_1", "calls"].iloc[0] / len(tidyprof.steps(gpu))
    say(
        f"`Sequential_1`, the second group of layers, runs {twice:.0f} times in a step: activation checkpointing "
        "computes the forward pass again during the backward pass, to save memory. No kernel table shows that."
    )

# %% [markdown]
# ## Trap: how busy is this GPU?
#
# Add up the kernels, divide by the *span*, the time from first to last device event. It looks harmless.

# %%
span_ns = tidyprof.busy(gpu)["span_ns"].iloc[0]
say(
    f"Kernels: {names['total_ns'].sum() / 1e6:.1f} ms. Span: {span_ns / 1e6:.1f} ms. "
    f"**Busy: {100 * names['total_ns'].sum() / span_ns:.0f} %**, which cannot be."
)
step = tidyprof.steps(gpu, "device").iloc[1]
only_device = Profile(gpu.device_events, meta=gpu.meta)
window = {"start_ns": step.start_ns, "end_ns": step.start_ns + step.duration_ns}
show_figure(plots.timeline(only_device, **window, title="One step on the device: both streams run at once"))

# %% [markdown]
# (The file calls this GPU device 2, although it is that of rank 0: this version of the profiler counts the machine's
# two processors as devices as well.)
#
# Two streams run at once, so the same moment counts twice. The repair is a *union*: a moment counts once if anything
# runs in it. Sort the events by their start. Of each, only what lies behind the latest end so far is new:


# %%
def union_ns(events):
    events = events.sort_values("start_ns")
    end = events["start_ns"] + events["duration_ns"]
    seen_until = end.cummax().shift(fill_value=0)
    return (end - events["start_ns"].clip(lower=seen_until)).clip(lower=0).sum()


kernels = gpu.device_events[gpu.device_events["kind"].isin(["kernel", "collective"])]
busy = tidyprof.busy(gpu, ["kernel", "collective"])
assert union_ns(kernels) == busy["union_ns"].sum()
show_figure(plots.busy(busy, title="The sum of kernel durations is no utilisation"))

# %% [markdown]
# ## The second half of the trap: busy with what?
#
# Look at the timeline again. For most of the step the only thing that runs is a collective. It ends when the last rank
# has arrived and the data is exchanged. Communication beside computation is *hidden*; communication alone,
# *exposed communication*, makes the step longer. `tidyprof.overlap` divides the time, with copies and fills:

# %%
parts = tidyprof.overlap(gpu).iloc[0]
say(
    f"Busy with kernels: {busy['union_percent'].iloc[0]:.0f} %, with copies and fills "
    f"{100 * parts['busy_ns'] / parts['total_ns']:.0f} %. But computing: only "
    f"**{parts['computation_percent']:.0f} %**. Idle: {parts['idle_percent']:.0f} %. "
    "These are shares of the whole span. The device's steps, further down, are a part of it, with shares of their own."
)
if there:
    calls = pd.read_csv(there.files["reference/coll_analysis.csv"]).query("`Collective name` == 'allreduce'")
    sizes, times = calls["In msg size (MB)_first"], calls["dur_mean"]
    say(
        "By the report that AMD's tool TraceLens made of this file, "
        f"the larger all-reduce moves {sizes.max() / sizes.min():.1f} times the data of the smaller one in "
        f"{times.max() / times.min():.1f} times the time. If it were all transfer, the two numbers would agree. "
        "The rest is a fixed cost, or waiting for other ranks: one rank's file can't tell which."
    )

# %%
# 6 minutes: what share of the communication, in percent, is hidden behind kernels (kind `kernel`)? Two sets overlap
# for as long as their lengths together exceed that of their union: use `union_ns`.
q = exercise("02.3", gpu)
# solution
collectives = kernels[kernels["kind"] == "collective"]
others = kernels[kernels["kind"] == "kernel"]
both_ns = union_ns(collectives) + union_ns(others) - union_ns(kernels)
answer = 100 * both_ns / union_ns(collectives)
# end solution
q.check(answer)

# %% [markdown]
# ## Third trap: the host runs ahead
#
# Launching is quick, so the host queues work long before the device gets to it. What the device does under
# the bar `ProfilerStep` is then partly or wholly work of an earlier step. How long a kernel waits in its queue is the
# time from the call that launched it to its start: `launches` computes `start_ns - launch_ns` for each.

# %%
host, made = tidyprof.steps(gpu), tidyprof.launches(gpu)
assert (made["delay_ns"] == made["start_ns"] - made["launch_ns"]).all()
number = host["start_ns"].searchsorted(made["launch_ns"], side="right") - 1
waits = made.groupby(host["step"].to_numpy()[number.clip(0)])["delay_ns"].median() / 1e6
lost = gpu.meta["device_events_without_launch"]
say(
    f"A host step takes {host['duration_ns'].median() / 1e6:.0f} ms. Kernels wait in the queue, by the step that "
    f"launched them, for {', '.join(f'{wait:.1f}' for wait in waits)} ms (medians). {lost:,} of "
    f"{len(gpu.device_events):,} device events have no launch record: they were launched before the recording began."
)
show_figure(plots.timeline(gpu, step=int(host["step"].iloc[1]), title="The host's second step, and older device work"))
columns = "step duration_ms launched_earlier_percent no_launch_record_percent"
show_table(tidyprof.step_budget(gpu), columns, "Device work under each host step")

# %% [markdown]
# Does the queue grow for ever? No: sooner or later the host waits. It reads a result (`loss.item()`), it copies
# something to itself, it calls `synchronize`, or the queue is full. In this file it happens at the end:

# %%
ends = gpu.events[gpu.events["kind"] == "runtime"].nlargest(1, "duration_ns").iloc[0]
say(f"The longest call of the host is `{ends['name']}`, {ends['duration_ns'] / 1e6:.2f} ms.")

# %%
# 8 minutes: how many kernels (kind `kernel`) did the host launch during its second recorded step? `tidyprof.launches`
# has a row per launch, with `launch_ns` and `kind`; `tidyprof.steps` has `start_ns` and `duration_ns`.
q = exercise("02.4", gpu)
# solution
second = tidyprof.steps(gpu).iloc[1]
launches = tidyprof.launches(gpu)
inside = launches["launch_ns"].between(second.start_ns, second.start_ns + second.duration_ns - 1)
answer = (inside & (launches["kind"] == "kernel")).sum()
# end solution
q.check(answer)

# %% [markdown]
# The repair: give each event to the step that *launched* it. `timeline="device"` does that. On the device a step begins
# with its range on the host, but not before all that was launched earlier is done. Now the steps look alike, and their
# parts add up. Parts that this recording hardly has, and that others have:
#
# | part | the device has nothing to do, because |
# | --- | --- |
# | launch-bound idle | the host has launched nothing yet |
# | blocked host | the host waits itself, inside a call that allocates memory, copies or synchronises |
# | data wait | the host waits for the next batch |
# | other | the next work waits in the queue (`queued`), or the device does what the file lacks (`earlier work`) |
#
# The next exercise is open: make such a budget yourself, for the device's second step. `Intervals` are sets of
# time: `&` is both, `|` is either, `-` takes away, `.length` is in nanoseconds. `tidyprof.DeviceTime.of` has such
# sets: `computation`, `exposed_communication`, `exposed_copy` and `busy`, which is all of them.

# %%
budget = tidyprof.step_budget(gpu, timeline="device")
show_figure(plots.step_budget(budget, title="The device's steps, by launch time"))

# %%
from tidyprof import Intervals

# 8 minutes, open: a dictionary of three parts or more that add up to the step, in ns; call one `compute`. Begin with
# `tidyprof.DeviceTime.of(gpu.device_events)` and `Intervals.window(start, end)` of the step.
q = exercise("02.5", gpu)
# solution
step_on_device = tidyprof.steps(gpu, "device").iloc[1]
whole = Intervals.window(step_on_device.start_ns, step_on_device.start_ns + step_on_device.duration_ns)
use = tidyprof.DeviceTime.of(gpu.device_events)
answer = {"compute": (whole & use.computation).length, "communication": (whole & use.exposed_communication).length}
answer |= {"copy": (whole & use.exposed_copy).length, "idle": (whole - use.busy).length}
# end solution
q.check(answer)

# %% [markdown]
# ## A trace without steps, and a blocked host
#
# Many real traces have no `ProfilerStep`: nobody called `prof.step()`. Then something else has to mark a step: any
# range, operator or call that runs once in each. `tidyprof.steps` tries `zero_grad`, `forward` and the optimizer's
# range, then ranges that come again and again in the same order. It says what it took; `mark="..."` names another. By
# hand it is one `diff`:

# %%
found = proflab.try_recording("torch-mi300x-resnet18-train")
if found:
    unmarked = tidyprof.read(found.path, origin=found.origin)
    marked = tidyprof.steps(unmarked)
    marks = unmarked.events[unmarked.events["name"] == "Optimizer.zero_grad#SGD.zero_grad"]
    assert (marks["start_ns"].diff().dropna().to_numpy() == marked["duration_ns"].to_numpy()[:-1]).all()
    say(f"{found.entry.workload}, on an {found.entry.short_gpu}. Steps: {marked.attrs['steps']}.")
    title = "Five steps of ResNet-18: equal computing, a blocked host from the third on"
    show_figure(plots.step_budget(tidyprof.step_budget(unmarked, timeline="device"), title=title))
    show_table(tidyprof.blocked_calls(unmarked), "name category calls total_ms blocked_ms", "Calls the host waits in")

# %% [markdown]
# `hipMalloc` and `hipFree` take memory from the GPU and give it back, and `hipFree` waits until the GPU is idle.
# PyTorch's allocator normally keeps what it once took, so that a steady step has none of these calls. Here every step
# has hundreds; why freeing takes longer in the later steps, the file does not say. The folder that the recording comes
# from is called `no_pool`, which points to that cache being switched off (`PYTORCH_NO_HIP_MEMORY_CACHING=1`, for which
# PyTorch takes `PYTORCH_NO_CUDA_MEMORY_CACHING=1` as well). In your own traces look for `torch.cuda.empty_cache()` in
# the loop, and for memory that is nearly full.
#
# ## Copies that block, and graphs
#
# The next recording is a step of a language model that writes text, served by SGLang. Nothing marks a step in it, so
# its budget is one row for the whole file, and `attrs["steps"]` says so.

# %%
found = proflab.try_recording("torch-mi300x-sglang-decode")
if found:
    served = tidyprof.read(found.path, origin=found.origin)
    budget_of_all = tidyprof.step_budget(served)
    say(f"{found.entry.workload}. Steps: {budget_of_all.attrs['steps']}.")
    waits = tidyprof.blocked_calls(served)
    show_table(waits, "name category calls total_ms blocked_ms", "Calls the host waits in")
    copies = served.device_events.query("kind == 'copy'")
    show_table(copies, "name bytes duration_us", "Copies on the device", origin=served.origin)
    launching = served.events[served.events["name"] == "hipGraphLaunch"]
    started = served.device_events["correlation_id"].isin(launching["correlation_id"])
    say(
        f"One call, `hipGraphLaunch`, starts {started.sum()} of {len(started)} device events; "
        f"{served.device_events.loc[started, 'operator'].notna().sum()} of these have an operator."
    )

# %% [markdown]
# **Copies.** `hipMemcpyWithStream` returns when the copy is done. A few hundred bytes take microseconds on the device;
# the call takes as long as everything that was queued before it. Here the file does not hold what that was. So the call
# is long, and `blocked` next to nothing: that counts time in which nothing was launched, and here the next work was.
# `gaps` calls such time `earlier work`; lesson 12 shows how to see it by hand.
#
# The copy's name tells its direction, and the direction the cure. `DtoH`, as here, is a result on its way to the host
# (`loss.item()`, `.cpu()`, `print(loss)`): fetch it every hundredth step. `HtoD` is a batch on its way to the GPU from
# ordinary memory: `pin_memory=True` in the data loader and `.to(device, non_blocking=True)`, which becomes
# `hipMemcpyAsync`.
#
# **Graphs.** A *HIP graph* is a series of launches that was recorded once and is started by one call
# (`torch.cuda.CUDAGraph`). All its kernels share the correlation id of that call. They have no operator, no shapes and
# no line: what a graph runs you have to profile without the graph.

# %%
# 6 minutes, on a recording that you have not seen: vLLM serves a language model on an MI300X. What share of its device
# events, in percent, was started by `hipGraphLaunch`?
found = proflab.try_recording("torch-mi300x-vllm-decode-hipgraph")
unseen = tidyprof.read(found.path, origin=found.origin) if found else None
q = exercise("02.6", unseen)
# solution
answer = None
if unseen:
    graphs = unseen.events.loc[unseen.events["name"] == "hipGraphLaunch", "correlation_id"]
    answer = 100 * unseen.device_events["correlation_id"].isin(graphs).mean()
# end solution
q.check(answer)

# %% [markdown]
# ## Two dialects
#
# CUDA is NVIDIA's counterpart of HIP. PyTorch calls an AMD GPU `cuda` too, so traces from AMD mix two languages: the
# *category* of a call is `cuda_runtime` as on NVIDIA, its *name* begins with `hip`. A script that searches for
# `cudaLaunchKernel` finds nothing on AMD, one that searches for the category works. Intel GPUs
# (`ProfilerActivity.XPU`) have a category of their own, `xpu_runtime`; the course has no recording of one. The *back
# end* is the library that records the GPU: on AMD roctracer in older builds of torch, rocprofiler-sdk in newer ones.

# %%
recordings = ["torch-mi300x-resnet-ddp-rank0", "torch-mi350x-rocprofiler-sdk", "torch-nvidia-a100-alexnet"]
words = []
for found in filter(None, map(proflab.try_recording, recordings)):
    run = tidyprof.read(found.path)
    calls = run.events.query("kind == 'runtime'").astype({"name": str, "source_category": str})
    calls = calls[calls["name"].str.contains("Launch")]
    row = {
        "recording": found.origin.detail,
        "back_end": run.meta["backend"],
        "device": run.device_events["device"].max(),
    }
    row |= {"category": ", ".join(calls["source_category"].unique()), "calls": ", ".join(calls["name"].unique())}
    words.append(row)
if words:
    columns = "recording back_end device category calls"
    show_table(pd.DataFrame(words), columns, "Calls that launch kernels", origin="recorded: see the first column")

# %% [markdown]
# ## Look for yourself
#
# Perfetto is a viewer for traces that runs in the browser. The button below opens [ui.perfetto.dev](
# https://ui.perfetto.dev) in another tab and hands it the trace, without an upload. You can also drag a trace file into
# it, packed as it is. The keys `w` and `s` zoom, `a` and `d` move. Click an event to see its shapes, and the arrow from
# a launch to its kernel. Perfetto calls an event a *slice*. Behind the arrow beside a slice's name it offers *Slices
# with the same name*, a list of all of them with their durations: is this call slow, or are all? In pandas that list is
# one filter:

# %%
proflab.perfetto(mine, step=int(steps["step"].max()), title="Your last recorded step")

# %%
same = mine.events[mine.events["name"] == "aten::addmm"].sort_values("duration_ns", ascending=False)
shown = same.assign(after_ns=same["start_ns"] - mine.events["start_ns"].min())
show_table(shown, "name after_ms duration_us input_shapes", "Slices with the same name", rows=6, origin=mine.origin)

# %% [markdown]
# ## Decide
#
# The largest part of the budget chooses the next question. Name it for each run before you run the cell.


# %%
NEXT = {
    "compute": "which kernels? (lesson 04)",
    "exposed_communication": "which rank is late? (lesson 07)",
    "launch_bound": "what is the host doing meanwhile? (lesson 03)",
    "blocked_host": "in which call does the host wait? (tidyprof.blocked_calls)",
    "data_wait": "why is the data late? (lesson 03)",
    "exposed_copy": "which copies, and why here? (lesson 04)",
    "other": "what does the timeline show there?",
}


def decide(run, budget):
    parts = {part: budget[f"{part}_ns"].sum() for part in tidyprof.analyses.parts_of(budget)}
    largest = max(parts, key=parts.get)
    share = 100 * parts[largest] / budget["duration_ns"].sum()
    question = NEXT.get(largest, "which operators in it? (see their table)")
    say(f"{run}: {largest.replace('_', ' ')} takes {share:.0f} %. Next: {question}")


decide("Your loop", tidyprof.step_budget(mine, timeline="device"))
decide("The MI300X", budget)
proflab.reveal("02.a", busy["union_percent"].iloc[0], origin=gpu.origin)
backward = phases.loc[phases["phase"] == "backward", "duration_ns"].sum()
proflab.reveal("02.b", 100 * backward / steps["duration_ns"].sum())

# %% [markdown] tags=["given"]
# ## What this tool cannot see
#
# It knows when a kernel ran, not whether it ran well: that needs counters (lesson 05). It sees one rank, and not
# what the others were doing (lesson 07). It sees operators, not the C++ or the operating system below them
# (lesson 03). And it changes what it measures: never quote its step times as the speed of training.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# {issue roctracer-loses-kernels-on-rocm-721}
# {issue a-torch-wheel-keeps-the-roctracer-of-its-own-rocm}
# {issue trace-without-any-gpu-record}
# | kernels missing at the start of the window | [keep the warm-up, compare counts between steps][start] |
# | `device` is 1 or 2, the row says `GPU 0` | older ROCm back ends count processors too: don't select by rank |
# | the GPU's own bar `ProfilerStep` is far too short | it leaves out kernels in an inner range: use launch times |
# | ranges missing inside `torch.compile` | rely on the steps (lesson 10) |
# {issue the-trace-view-of-tensorboard-stays-empty}
#
# [start]: https://github.com/pytorch/kineto/issues/996

# %% [markdown]
# ## At work, without this course
#
# The block in a script of your own. Replace what stands between the two lines of dashes by your model and loop:
#
# {snippet 02_profile_a_loop.py}

# %% [markdown]
# And the numbers of this lesson from any trace, with pandas alone:
#
# {snippet 02_trace_to_table.py}
#
# Read on: [PyTorch's manual of `torch.profiler`](https://docs.pytorch.org/docs/stable/profiler.html).

# %% [markdown]
# ## Key points
#
# - Wait, warm up, then record few steps; ask the schedule whether it fits into the run.
# - Shapes, stacks and FLOPs cost a second run, and answer which layer and which line.
# - Add self times of one kind of row, never totals. Add sets of time, never durations.
# - Busy is not computing: a waiting collective is busy too.
# - The host runs ahead, so a kernel belongs to the step that launched it.
# - Idle with a blocked host: look for allocations, copies and synchronisation.
#
# Next question: what is the processor doing while the GPU waits?
