# %% [markdown]
# # Where does a step go?
#
# The GPU of the case works only part of the time. `torch.profiler` records what processor and GPU do on one time axis.
#
# After this lesson you can
#
# - put the profiler into your own script, and say what it sees of a data loader;
# - read a timeline, and make a step budget that counts no time twice;
# - tell a GPU that waits for data from one that waits for launches, ranks or the host, or only for the profiler.
#
# You need lesson 00. The recordings are from an NVIDIA H200, and from MI300X with ROCm 6.4 to 7.2; the profiler writes
# the same for both. Your own GPU is used where there is one.

# %%
import proflab

lesson = proflab.start("02")
lesson.findings()

# %%
lesson.recall()

# %%
import tidyprof
from proflab import exercise, show_figure, show_table, show_text
from tidyprof import Intervals, plots

# %% [markdown]
# ## The picture to keep in mind
#
# A *trace* is the list of everything that the profiler saw, with begin and end. It is drawn in lanes:
#
# {drawing 02_launch}
#
# An *operator* is one of PyTorch's functions, such as an addition; with a GPU most of them launch kernels, through HIP,
# AMD's library that drives the GPU, or CUDA. The queue that these are put into is a *stream*: work within a stream runs
# in order, work in two may run at the same time. Without a GPU the operator does the work itself. The column `kind`
# calls a range `annotation` and a runtime call `runtime`; in a stream are `kernel`, `collective` (more below), `copy`
# and `fill`, which move or set memory.
#
# ## Predict
#
# The case, as it ran on one NVIDIA H200:

# %%
# solution
wait_guess, cost_guess = 60, 10
# end solution
proflab.predict("02.a", wait_guess, unit="%", what="how much of a step the GPU waits for data")
proflab.predict("02.b", cost_guess, unit="%", what="what the profiler adds to a step")

# %% [markdown]
# ## Capture: a loop of your own
#
# A small model reads images from a slow disk: each takes two milliseconds to arrive. `record_function` names a piece of
# code, a *range*.

# %%
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()


class SlowDisk(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, number):
        time.sleep(0.002)
        return torch.rand(3, 32, 32).flip(2), number % 100


layers = nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 30 * 30, 100)
model = nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

# %% [markdown]
# A whole run is too big for a viewer. So a *schedule* lets the profiler wait while libraries start, warm up, then keep
# the active steps. `prof.step()` ends each step. A run that ends before the active steps records nothing, without an
# error. So ask the schedule first:

# %%
plan = schedule(wait=2, warmup=1, active=3, repeat=1)
print(*[plan(step).name for step in range(6)])


# %%
runs = {}
for workers in (2, 0):
    how = {"multiprocessing_context": "fork"} if workers else {}  # they know this class
    batches = iter(DataLoader(SlowDisk(), 16, num_workers=workers, **how))
    with profile(activities=activities, schedule=plan, record_shapes=True) as prof:
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
            prof.step()
    path = lesson.folder / f"own_trace_{workers}_workers.json.gz"
    prof.export_chrome_trace(str(path))
    runs[workers] = tidyprof.read(path, origin=tidyprof.Origin("measured", "this machine"))
for row in sorted(prof.key_averages(), key=lambda row: -row.self_cpu_time_total)[:6]:
    print(f"{row.self_cpu_time_total / 1e3:6.1f} ms itself, {row.count:2} calls: {row.key}")

# %% [markdown]
# On a GPU sort by `self_device_time_total`; `key_averages().table()` prints every column. Notes such as
# `USDT ... profiler_start` are harmless.
#
# ## First look, and what loader processes do
#
# `tidyprof.read` makes tables with a row for each event; a table of phases is one `groupby`. On a GPU torch writes a
# range twice: on the host, and again around the work on the device that it launched. Leave out the second one, which
# has a `device`:

# %%
mine = runs[0]
phases = tidyprof.phases(mine)
ranges = mine.events.query("kind == 'annotation' and device.isna()")
by_hand = ranges.groupby("name", observed=True)["duration_ns"].sum()
assert by_hand[phases["phase"].unique()].sum() == phases["duration_ns"].sum()
show_table(phases, "step phase calls duration_ms percent", "Where the host spent each step")

# %%
for workers, run in sorted(runs.items()):
    named = run.events.query("device.isna()").astype({"name": str}).groupby("name")["duration_ns"]
    seen = named.agg(calls="size", mean_ns="mean").filter(regex="DataLoader|aten::flip", axis=0)
    show_table(seen.reset_index(), "name calls mean_ms", f"{workers} workers", origin=mine.origin)

# %% [markdown]
# Without workers your process loads the images itself: `aten::flip`, which `SlowDisk` calls once an image, is in the
# trace. With workers other processes do it, and the profiler does not follow them.
# `_MultiProcessingDataLoaderIter.__next__` **is the wait for a worker**. If it is long, the workers are too slow or too
# few. The sleep is in no operator.
#
# ## Trap: totals contain each other
#
# In the profiler's own summary above *self time* is spent in the operator alone, *total* includes the operators that it
# called. The ranges are rows too, and contain the operators once more. So never add up `CPU total %`, nor the columns
# that a GPU adds: an operator, its kernels and the range around them all show the same kernel time.

# %%
times = tidyprof.operators(mine)[["self_ns", "total_ns"]].sum()
show_text(f"Totals add up to {100 * times.iloc[1] / times.iloc[0]:.0f} % of the operators' time.")

# %% [markdown]
# ## The case
#
# The trainer has the same block behind the switch `--torch-profile`. These options make it short on a processor; on a
# GPU leave out `--batch-size 8`. Without a GPU the processor does the arithmetic, too, which takes nearly all of the
# step. So the picture below is then that of an H200.

# %% language="bash"
# $EXAMPLE --batch-size 8 --max-steps 6 --torch-profile --record-shapes --run-dir $FOLDER/case

# %%
live = tidyprof.read(lesson.folder / "case", origin=tidyprof.Origin("measured", "this machine"))
found = proflab.recording("torch-h200-case-plain")
recorded = tidyprof.read(found.path, origin=found.origin)
gpu = live if len(live.device_events) else recorded
second = int(tidyprof.steps(gpu)["step"].iloc[1])
show_figure(plots.timeline(gpu, step=second, title="One step of the case"))

# %% [markdown]
# Read from the lowest lane: does the stream work while the host is in `data`? *Look closer* zooms to a kernel.
#
# ## Which operator, which shape launched a kernel?
#
# Both carry the same number in the file, `External id`, so a merge brings them together:

# %%
kernels = gpu.device_events[["external_id", "short_name", "duration_ns"]].dropna()
operators = gpu.events.query("kind == 'operator'")[["external_id", "name", "input_shapes"]]
both = kernels.merge(operators, on="external_id").groupby(
    ["short_name", "name", "input_shapes"], observed=True
)
sums = both["duration_ns"].sum().nlargest(3).reset_index()
show_table(sums, "short_name name input_shapes duration_ms", "Largest sums", origin=gpu.origin)

# %% [markdown]
# ## A GPU that is never idle
#
# Another trace: eight MI300X train one ResNet. Each *rank*, a process with its own GPU, writes a file; this is rank
# 0's. While backward runs, the ranks begin to add up their gradients, which is called all-reduce. It is a *collective*:
# all ranks take part. Its kernels, from AMD's library RCCL, still carry the name `nccl`.

# %%
found = proflab.recording("torch-mi300x-resnet-ddp-rank0")
rank = tidyprof.read(found.path, origin=found.origin)
show_text(f"{found.entry.workload}. From {found.entry.source_repo}.")

# %% [markdown]
# ## Trap: how busy is this GPU?
#
# Add up the kernels, divide by the *span*, from first to last device event.

# %%
span_ns = tidyprof.busy(rank)["span_ns"].iloc[0]
kernels = rank.device_events[rank.device_events["kind"].isin(["kernel", "collective"])]
show_text(
    f"Kernels: {kernels['duration_ns'].sum() / 1e6:.1f} ms. Span: {span_ns / 1e6:.1f} ms. "
    f"Busy: {100 * kernels['duration_ns'].sum() / span_ns:.0f} %."
)
step = int(tidyprof.steps(rank)["step"].iloc[1])
show_figure(plots.timeline(rank, step=step, title="The rank of eight: a step of its host"))

# %% [markdown]
# More than all of it? Two streams run at once: the same moment counts twice. In a *union* it counts once. Sort events
# by their start; of each, only what lies behind the latest end so far is new:


# %%
def busy_ns(events):
    events = events.sort_values("start_ns")
    end = events["start_ns"] + events["duration_ns"]
    seen_until = end.cummax().shift(fill_value=0)
    return (end - events["start_ns"].clip(lower=seen_until)).clip(lower=0).sum()


busy = tidyprof.busy(rank, ["kernel", "collective"])
assert busy_ns(kernels) == busy["busy_ns"].sum()

# %% [markdown]
# ## Trap: busy with what?
#
# For most of the step only a collective runs. It ends when the last rank has arrived and the data is exchanged.
# Communication beside computation is *hidden*; alone, *exposed communication*, it makes the step longer.
# `tidyprof.overlap` divides the time:

# %%
parts = tidyprof.overlap(rank).iloc[0]
show_text(
    f"Busy with kernels: {busy['busy_percent'].iloc[0]:.0f} % of the span. Computing: "
    f"{parts['computation_percent']:.0f} %. Idle: {parts['idle_percent']:.0f} %."
)

# %%
# 4 minutes: for what share of the communication, in percent, does no kernel (kind `kernel`) run beside it? Use
# `busy_ns`: how much longer is the union of both kinds, `kernels`, than that of one?
q = exercise("02.1", rank)
# solution
others = kernels[kernels["kind"] == "kernel"]
exposed_ns = busy_ns(kernels) - busy_ns(others)
answer = 100 * exposed_ns / busy_ns(kernels[kernels["kind"] == "collective"])
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: the host runs ahead
#
# A kernel waits from the call that launched it to its start:
#
# {drawing 02_queue}

# %%
for name, run in {"the case": gpu, "the rank of eight": rank}.items():
    delay_ns = run.device_events["start_ns"] - run.device_events["launch_ns"]
    show_text(f"A kernel waits in the queue, median: {name} {delay_ns.median() / 1e3:,.0f} µs.")

# %% [markdown]
# **The depth of the queue is evidence.** Microseconds: it has run dry. A step or longer: it is deep, and what the GPU
# does under the host's bar `ProfilerStep` belongs to an earlier step. A launch is `cudaLaunchKernel` on NVIDIA's GPUs.

# %% [markdown]
# ## Repair: the budget of the device's steps
#
# Give each event to the step that *launched* it: `timeline="device"` does that. Then divide the step into parts that
# add up: a *step budget*. Read down; the first row that fits gets the moment. The device has *run dry* where it is
# idle, and the next work was launched only after its last had ended: that gap the host made.
#
# | part | the moments in which |
# | --- | --- |
# | compute | a kernel runs that is no collective, or a fill |
# | exposed communication | a collective runs |
# | exposed copy | a copy runs |
# | blocked host | the device has run dry, the host is in a call that allocates, frees, copies or synchronizes |
# | data wait | the device is idle, the host is in its range `data` |
# | launch-bound idle | the device has run dry: the host has launched nothing yet |
# | other | the device is idle: the next work is queued, or earlier work that the file lacks runs |
#
# `snippets/02_step_budget.py`, at the end, does it with pandas, for the host's steps. Make a shorter one yourself.
# `Intervals` are sets of time: `&` is both, `|` is either, `-` takes away, and `.length` is in nanoseconds.

# %%
step = tidyprof.steps(gpu, "device").iloc[1]
whole_step = Intervals.window(step.start_ns, step.start_ns + step.duration_ns)
use = tidyprof.DeviceTime.of(gpu.device_events)  # use.computation, use.exposed_copy, use.busy (any)
data = gpu.events.query("kind == 'annotation' and name == 'data' and device.isna()")
loading = Intervals.union(data["start_ns"], data["start_ns"] + data["duration_ns"])

# %%
# 6 minutes, open: a dictionary of parts that add up to `whole_step`, in ns. Call one `compute`, one `data_wait`, in
# which the device does nothing and the host is in its range `data`, and one `idle`, in which the host is elsewhere.
# What the device does besides is a part, too. `whole_step & use.computation` is the computing of this step alone.
q = exercise("02.2", gpu)
# solution
answer = {
    "compute": (whole_step & use.computation).length,
    "copy": (whole_step & use.exposed_copy).length,
    "data_wait": (whole_step & (loading - use.busy)).length,
    "idle": (whole_step - use.busy - loading).length,
}
# end solution
q.check(answer)

# %%
budget = tidyprof.step_budget(gpu, timeline="device")
show_figure(plots.step_budget(budget, title="The case: the device's steps, divided"))

# %% [markdown]
# ## Trap: the trace is not the run
#
# A budget of a trace is one of traced steps. The dashed line in the picture is the mean of steps of the same
# run that were not recorded:

# %%
case_budget = tidyprof.step_budget(recorded, timeline="device")
traced_ns, data_ns = case_budget[["duration_ns", "data_wait_ns"]].mean()
added_ns = traced_ns - (unprofiled_step_ns := case_budget.attrs["unprofiled_step_ns"])
events = recorded.events["kind"].isin(["operator", "runtime"]).sum() / len(case_budget)
show_text(
    f"On the {recorded.origin.detail} {traced_ns / 1e6:.0f} ms, without the profiler "
    f"{unprofiled_step_ns / 1e6:.0f} ms: {added_ns / events / 1e3:.1f} µs for each of "
    f"{events:,.0f} operators and runtime calls. Were all that in the wait for data, "
    f"it would still be {100 * (data_ns - added_ns) / unprofiled_step_ns:.0f} % of the step."
)

# %% [markdown]
# So here the verdict holds. And on your processor? Fifty tiny layers:

# %%
import timeit

narrow = nn.Sequential(*[nn.Linear(8, 8) for _ in range(50)])
work = timeit.Timer(lambda: narrow(torch.ones(1, 8)).sum().backward())
plain_s = min(work.repeat(20, number=1))
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as watching:
    watched_s = min(work.repeat(20, number=1))
count = sum(row.count for row in watching.key_averages()) / 20
show_text(f"Measured: the profiler adds {1e6 * (watched_s - plain_s) / count:.1f} µs an operator.")

# %% [markdown]
# It costs the host, not the kernels:
#
# {drawing 02_observer}
#
# A GPU that is never idle loses nothing, a step of many small operators pays most.
# More options cost more: `with_stack` (the call stack of Python, and the modules of the model), `profile_memory`
# (every allocation), `with_flops` (arithmetic, for the few operators with a formula).
#
# Sometimes the cost makes the verdict. A ResNet-50 on the same H200: three traced steps, and dashed the step that the
# script had timed before.

# %%
found = proflab.recording("torch-h200-resnet50")
traced = tidyprof.step_budget(tidyprof.read(found.path, origin=found.origin), timeline="device")
unwatched_ns = traced.attrs["unprofiled_step_ns"]
show_figure(plots.step_budget(traced, title="A ResNet-50 on an H200, traced"))

# %%
# 4 minutes: without the profiler, how much of a step is this GPU idle for launches, in percent of that step? `traced`
# has a row for each traced step, in ns. Take their means. The step without the profiler takes `unwatched_ns`, and all
# that the profiler adds is idleness of this sort.
q = exercise("02.3", traced)
# solution
mean = traced[["duration_ns", "launch_bound_ns"]].mean()
added = mean["duration_ns"] - unwatched_ns
answer = 100 * (mean["launch_bound_ns"] - added) / unwatched_ns
# end solution
q.check(answer)

# %% [markdown]
# So take the length of a step from a run without a profiler, and the difference off the idleness of the trace. Lesson
# 14 measures both in one run. Elsewhere `python -m tidyprof triage TRACE --step-time-ms MS` takes the length from any log of
# yours, and does the rest.

# %% [markdown]
# ## Look for yourself
#
# Perfetto is a viewer in the browser. In JupyterLab the button opens [ui.perfetto.dev](https://ui.perfetto.dev) and
# hands it the trace, without an upload. `w` and `s` zoom, `a` and `d` move. Click an event to see its shapes, and the
# arrow from a launch to its kernel. *Slices with the same name* in its details lists its runs and times.

# %%
proflab.perfetto(gpu, step=second, title="One step of the case")

# %% [markdown]
# ## Decide
#
# The largest part of the budget chooses the next lesson, for your own `$EXAMPLE`, too. `blocked host` asks for memory here
# (lesson 11), `exposed communication`, as on the rank of eight, for the rank that is late (lesson 07).

# %%
NEXT = {"data_wait": "03", "launch_bound": "03", "compute": "04", "exposed_copy": "04"}
NEXT |= {"exposed_communication": "07", "blocked_host": "11", "other": "03"}
shares = 100 * budget[[f"{part}_ns" for part in NEXT]].sum() / budget["duration_ns"].sum()
shares.index = list(NEXT)
show_text(f"Largest: {shares.idxmax()} {shares.max():.0f} %. Next: lesson {NEXT[shares.idxmax()]}.")

# %% [markdown]
# What is known of the range in which the case waits?


# %%
def in_data(run):
    named = run.events.query("kind in ['operator', 'runtime']")
    data = run.events.query("kind == 'annotation' and name == 'data' and device.isna()")
    pair = [Intervals.union(x["start_ns"], x["start_ns"] + x["duration_ns"]) for x in (named, data)]
    within = named[pair[1].contains(named["start_ns"])].groupby("name", observed=True)
    longest = within["duration_ns"].sum().nlargest(3).index
    return 100 * (pair[1] - pair[0]).length / pair[1].length, ", ".join(longest)


looked = {f"the case ({gpu.origin})": gpu, "the case (measured)": live, "SlowDisk (measured)": mine}
for name, run in looked.items():
    unnamed, longest = in_data(run)
    show_text(f"{name}: {unnamed:.0f} % of `data` is in no operator. Longest there: {longest}.")

# %% [markdown]
# The H200's trace names a transform, run for one image at a time: `upsample_bilinear2d` enlarges a crop. But a large
# part of `data` is in no operator: Python between them, or, as in `SlowDisk`, a sleep. Which function?

# %%
step_ms, timed_ns = budget["duration_ns"].mean() / 1e6, budget.attrs["unprofiled_step_ns"]
without = f" Without the profiler it takes {timed_ns / 1e6:.0f} ms." if timed_ns else ""
small = [f"{part} ({share:.0f} %)" for part, share in shares.iloc[2:].items() if share < 15]
lesson.conclude(
    f"In a traced step of {step_ms:.0f} ms the GPU waits for data for "
    f"{shares['data_wait']:.0f} %, for launches for {shares['launch_bound']:.0f} %, and computes "
    f"for {shares['compute']:.0f} %.{without}",
    rules_out=", ".join(small).replace("_", " "),
    because=f"{in_data(gpu)[0]:.0f} % of `data` is in no operator: which function is it?",
    next=NEXT[shares.idxmax()],
    origin=gpu.origin,
)
proflab.reveal("02.a", shares["data_wait"], origin=gpu.origin)
proflab.reveal("02.b", 100 * (traced_ns / unprofiled_step_ns - 1), origin=recorded.origin)

# %% [markdown] tags=["given"]
# ## What this tool cannot see
#
# It sees one process: no loader process, no other rank (lesson 07). It sees operators, not the Python between them
# (lesson 03; `with_stack` names functions, and makes the traced step longer still). It knows when a kernel ran, not
# whether it ran well (lesson 05). And Kineto, its recorder, can lose kernels, above all with ROCm 7.2.1: compare counts
# between steps, see the [known issues](../docs/known-issues.md#roctracer-loses-kernels-on-rocm-721).

# %% [markdown]
# ## At work, without this course
#
# The block in a script of your own. Replace what stands between the two lines of dashes with your model and loop:
#
# {snippet 02_profile_a_loop.py}

# %% [markdown]
# Busy time, gaps and the largest kernels of any trace:
#
# {snippet 02_trace_to_table.py}

# %% [markdown]
# And the step budget:
#
# {snippet 02_step_budget.py}
#
# Read on: [PyTorch's manual](https://docs.pytorch.org/docs/stable/profiler.html).

# %% [markdown]
# Next question: what is the processor doing while the GPU waits?
