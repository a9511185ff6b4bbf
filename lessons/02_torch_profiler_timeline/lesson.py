# %% [markdown]
# # Where does a step go?
#
# In the example run, the GPU works only part of the time. `torch.profiler` records what the CPU and the GPU do and
# shows both on one timeline. It works the same way on every vendor's GPUs.
#
# After this lesson, you can:
#
# - add the profiler to your own script, and explain how much of a data loader it sees;
# - read a timeline, and divide a step into a budget that doesn't count any time twice;
# - tell what an idle GPU is waiting for: data, launches, other ranks, the host or only the profiler.
#
# **Before you start:** complete lesson 00. The traces come from an NVIDIA H200, and from MI300X GPUs with ROCm 6.4 to
# 7.2.

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

# %% [markdown] slide="The host launches work into a stream, and the GPU takes it from there."
# ## The picture to keep in mind
#
# A *trace* lists every event that the profiler recorded, with the event's start time and duration. A viewer draws the
# events in lanes:
#
# {drawing 02_launch}
#
# An *operator* is a PyTorch function, such as an addition. With a GPU, most operators launch kernels through HIP (AMD's
# GPU runtime) or CUDA. Without a GPU, operators do the work themselves.
#
# A launch adds work to a *stream*, a queue on the GPU. Work in one stream runs in order, but work in different streams
# can run at the same time. In the event table, the `kind` column contains:
#
# | `kind` | what it is |
# | --- | --- |
# | `annotation` | a *range*, a named part of your script |
# | `operator`, `runtime` | a PyTorch function; a call to HIP or CUDA |
# | `kernel`, `collective` | a GPU kernel; a kernel that communicates with other GPUs |
# | `copy`, `fill` | copies memory; sets memory to a value |
#
# ## Predict
#
# Guess two values for the H200:

# %%
# solution
compute_guess, cost_guess = 10, 10
# end solution
proflab.predict(
    "02.a", compute_guess, unit="%", what="the GPU computing in a traced step"
)
proflab.predict(
    "02.b", cost_guess, unit="%", what="the time that the profiler adds to a step"
)

# %% [markdown]
# ## Capture: your own loop
#
# Train a small network on images from a simulated slow disk, which takes two milliseconds per image.

# %%
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
activities = [ProfilerActivity.CPU] + [
    ProfilerActivity.CUDA
] * torch.cuda.is_available()


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
# A trace of a whole run is too large for a viewer. With a *schedule*, the profiler waits while libraries start, warms
# up, and then records the active steps. If the run ends too early, the profiler records nothing and raises no error, so
# check the schedule first.

# %% slide="A schedule skips the first steps and records only a few."
plan = schedule(wait=2, warmup=1, active=3, repeat=1)
print(*[plan(step).name for step in range(6)])

# %% [markdown]
# Run the loop with and without two loader processes (*workers*). `record_function` names a range, and `prof.step()`
# ends a step.


# %%
runs = {}
for workers in (2, 0):
    # Workers know this class
    how = {"multiprocessing_context": "fork"} if workers else {}
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
    runs[workers] = tidyprof.read(
        path, origin=tidyprof.Origin("measured", "this machine")
    )

# %%
for row in sorted(prof.key_averages(), key=lambda row: -row.self_cpu_time_total)[:6]:
    print(
        f"{row.self_cpu_time_total / 1e3:6.1f} ms self time, {row.count:2} calls: "
        f"{row.key}"
    )

# %% [markdown]
# On a GPU, sort by `self_device_time_total`.
#
# *Self time* is spent in the operator alone, whereas *total time* includes the operators that it calls. Never add up
# total times or the GPU columns, because such a sum counts each kernel several times.
#
# ## First look: what you see of loader processes
#
# `tidyprof.read` returns tables with one row per event, so one `groupby` computes the time of each range. On a GPU,
# PyTorch records each range twice: on the host, and on the device around the work that the range launched. Keep the
# host's ranges, which have no `device`.

# %% slide="The profiler sums up the ranges of your loop."
mine = runs[0]
ranges = mine.events.query("kind == 'annotation' and device.isna()").astype(
    {"name": str}
)
sums = ranges.groupby("name")["duration_ns"].sum().reset_index()
show_table(sums, "name duration_ms", "Ranges in three steps", origin=mine.origin)

# %% slide="With loader processes, the trace shows only the wait for them."
for workers, run in sorted(runs.items()):
    named = (
        run.events.query("device.isna()")
        .astype({"name": str})
        .groupby("name")["duration_ns"]
    )
    seen = named.agg(calls="size", mean_ns="mean").filter(
        regex="DataLoader|aten::flip", axis=0
    )
    show_table(
        seen.reset_index(),
        "name calls mean_ms",
        f"{workers} workers",
        origin=mine.origin,
    )

# %% [markdown]
# Without workers, the training process loads the images, so the trace contains `aten::flip`, which `SlowDisk` calls
# once per image. With workers, other processes call `aten::flip`, and the profiler doesn't see them.
# `_MultiProcessingDataLoaderIter.__next__` **is the wait for a worker**. If this wait is long, the workers are too slow
# or too few.
#
# ## The example run
#
# `--torch-profile` puts the same code around the trainer's loop. On a GPU, omit `--batch-size 8`. A CPU spends nearly
# the whole step on arithmetic, so without a GPU, the figure shows the H200. The run takes about 20 seconds.

# %% language="bash"
# $EXAMPLE --batch-size 8 --max-steps 6 --torch-profile --record-shapes \
#     --run-dir $FOLDER/example

# %% slide="The GPU's lane is empty while the host is in the range data."
live = tidyprof.read(
    lesson.folder / "example", origin=tidyprof.Origin("measured", "this machine")
)
found = proflab.recording("torch-h200-case-plain")
recorded = tidyprof.read(found.path, origin=found.origin)
gpu = live if len(live.device_events) else recorded
second = int(tidyprof.steps(gpu)["step"].iloc[1])
show_figure(plots.timeline(gpu, step=second, title="One step of the example run"))

# %% [markdown]
# Does the stream (the lowest lane) contain work while the host is in `data`?
#
# ## Which operator launched a kernel, and with which shapes?
#
# In the trace file, a kernel and its operator have the same `External id`, so you can merge them:

# %% slide="Each kernel and its operator share an id, which also gives you the shapes."
kernels = gpu.device_events[["external_id", "short_name", "duration_ns"]].dropna()
operators = gpu.events.query("kind == 'operator'")[
    ["external_id", "name", "input_shapes"]
]
both = kernels.merge(operators, on="external_id")
sums = both.groupby(["short_name", "name", "input_shapes"], observed=True)[
    "duration_ns"
].sum()
columns = "short_name name input_shapes duration_ms"
show_table(
    sums.nlargest(3).reset_index(), columns, "Largest kernel times", origin=gpu.origin
)

# %% [markdown]
# ## A GPU that is never idle
#
# In the next trace, eight MI300X GPUs train one ResNet. Each *rank*, a process with its own GPU, writes a trace file,
# and the next cell reads rank 0's. During the backward pass, the ranks start to add up their gradients. This all-reduce
# is a *collective*, because all ranks take part. Its kernels come from AMD's RCCL library, but their names contain
# `nccl`.

# %%
found = proflab.recording("torch-mi300x-resnet-ddp-rank0")
rank = tidyprof.read(found.path, origin=found.origin)
show_text(f"{found.entry.workload}. Source: {found.entry.source_repo}.")

# %% [markdown]
# ## Trap: how busy is this GPU?
#
# Add up the kernel times, and divide the sum by the *span* from the first to the last event on the device.

# %% slide="The sum of kernel times exceeds the time span, because streams run at the same time."
span_ns = tidyprof.busy(rank)["span_ns"].iloc[0]
kernels = rank.device_events[rank.device_events["kind"].isin(["kernel", "collective"])]
show_text(
    f"Sum: {100 * kernels['duration_ns'].sum() / span_ns:.0f}% of {span_ns / 1e6:.1f} "
    "ms."
)
step = int(tidyprof.steps(rank)["step"].iloc[1])
show_figure(
    plots.timeline(rank, step=step, title="Rank 0 of eight: one step of the host")
)

# %% [markdown]
# The sum exceeds the span, because two streams run at the same time, so the sum counts some moments twice. A *union*
# counts each moment once. Sort the events by start time, and count only the part of each event after the latest end so
# far:


# %%
def busy_ns(events):
    events = events.sort_values("start_ns")
    end = events["start_ns"] + events["duration_ns"]
    seen_until = end.cummax().shift(fill_value=0)
    return (end - events["start_ns"].clip(lower=seen_until)).clip(lower=0).sum()


show_text(f"Union: {100 * busy_ns(kernels) / span_ns:.0f}% of the span.")

# %% [markdown]
# ## Trap: busy with what?
#
# For most of the step, only a collective runs, which ends after the last rank has arrived. While another kernel runs,
# the communication is *hidden*. Otherwise, the communication is *exposed* and makes the step longer.

# %%
parts = tidyprof.overlap(rank).iloc[0]
share, idle = parts["computation_percent"], parts["idle_percent"]
show_text(f"The GPU computes for {share:.0f}% of the span and is idle for {idle:.0f}%.")

# %%
# 4 minutes: During what percentage of the communication time does no kernel of kind `kernel` run? Use `busy_ns` to
# compare the union of both kinds in `kernels` with the union of one kind.
q = exercise("02.1", rank)
# solution
others = kernels[kernels["kind"] == "kernel"]
exposed_ns = busy_ns(kernels) - busy_ns(others)
answer = 100 * exposed_ns / busy_ns(kernels[kernels["kind"] == "collective"])
# end solution
q.check(answer)

# %% [markdown] slide="A kernel waits in the queue from its launch to its start. A long wait means a full queue."
# ## Trap: the host runs ahead
#
# After the launch call, a kernel waits in the queue until it starts:
#
# {drawing 02_queue}

# %%
for name, run in {"the example run": gpu, "rank 0 of eight": rank}.items():
    delay_ns = run.device_events["start_ns"] - run.device_events["launch_ns"]
    show_text(
        f"Median kernel wait in the queue of {name}: {delay_ns.median() / 1e3:,.0f} µs."
    )

# %% [markdown]
# **The queue is evidence.** If kernels wait for microseconds, the GPU has run out of queued work. If kernels wait for a
# step or longer, the queue is deep, and the GPU works on an earlier step than the host's `ProfilerStep` shows.

# %% [markdown] slide="A step budget has parts that add up to the step, so no time counts twice."
# ## The step budget of the device
#
# `timeline="device"` assigns each event to the step that *launched* it. You can then divide a step into a *step
# budget*, whose parts add up to the step. Each moment counts toward the first row that matches it. *Out of work* means
# idle until the host launches more work.
#
# | part | moments in which |
# | --- | --- |
# | compute | a kernel (not a collective) or a fill runs |
# | exposed communication | a collective runs |
# | exposed copy | a copy runs |
# | blocked host | the device is out of work, and the host is in a call that allocates, frees, copies or synchronizes |
# | data wait | the device is idle, and the host is in its `data` range |
# | launch-bound idle | the device is out of work, because the host hasn't launched any |
# | other | the device is idle although work is queued, or runs earlier work that isn't in the file |
#
# Compute a simpler budget yourself. `Intervals` objects are sets of time intervals. `&` computes the intersection, `|`
# the union and `-` the difference, and `.length` is the total in nanoseconds.


# %%
def union(events):
    return Intervals.union(
        events["start_ns"], events["start_ns"] + events["duration_ns"]
    )


def data_of(run):
    return union(
        run.events.query("kind == 'annotation' and name == 'data' and device.isna()")
    )


step = tidyprof.steps(gpu, "device").iloc[1]
whole_step = Intervals.window(step.start_ns, step.start_ns + step.duration_ns)
use, loading = tidyprof.DeviceTime.of(gpu.device_events), data_of(gpu)

# %%
# 5 minutes: Divide `whole_step` into parts that add up to the step. Answer with a dictionary of the lengths of
# the parts in ns. `compute` is the time in `use.computation`. During `data_wait`, the device does nothing (`use.busy`
# contains all of its work) and the host is in `loading`. During `idle`, the device does nothing and the host is
# elsewhere. Add a part for copies (`use.exposed_copy`).
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

# %% [markdown]
# The library's budget:

# %% slide="The budget names the largest part: the GPU waits for data."
budget = tidyprof.step_budget(gpu, timeline="device")
show_figure(plots.step_budget(budget, title="Parts of a step of the example run"))

# %% [markdown]
# ## Trap: the trace isn't the run
#
# This budget describes *traced* steps. The dashed line shows the mean time of the run's untraced steps.

# %%
mean = tidyprof.step_budget(recorded, timeline="device")
untraced_ns = mean.attrs["unprofiled_step_ns"]
mean = mean[["duration_ns", "data_wait_ns"]].mean()
added_ns = mean["duration_ns"] - untraced_ns
at_least = 100 * (mean["data_wait_ns"] - added_ns) / untraced_ns
show_text(
    f"On the {recorded.origin.detail}, traced steps take "
    f"{mean['duration_ns'] / 1e6:.0f} ms and untraced steps {untraced_ns / 1e6:.0f} "
    "ms. Even if the data wait contains all the time that the profiler adds, the GPU "
    f"waits for data for {at_least:.0f}% of an untraced step."
)

# %% [markdown] slide="The profiler slows down the host, so a traced step can be longer than a step of the run."
# The verdict therefore holds without the profiler, which slows down only the host:
#
# {drawing 02_observer}
#
# The profiler makes a step with many small operators much longer. Some options add more overhead: `with_stack` (Python
# functions and network modules), `profile_memory` (every allocation) and `with_flops` (the arithmetic of a few
# operators).
#
# The profiler can change the verdict, as in these three traced steps of a ResNet-50 on the same H200:

# %% slide="The dashed line shows the step without the profiler. The idle time behind it isn't real."
found = proflab.recording("torch-h200-resnet50")
traced = tidyprof.step_budget(
    tidyprof.read(found.path, origin=found.origin), timeline="device"
)
unprofiled_ns = traced.attrs["unprofiled_step_ns"]
figure = plots.step_budget(traced, title="Traced steps of a ResNet-50 on an H200")
real_ms = unprofiled_ns / 1e6
show_figure(figure, (f"real step: {real_ms:.1f} ms", (real_ms, -0.45), (0.72, 1.1)))

# %%
# 4 minutes: Without the profiler, for what percentage of a step is this GPU idle because it waits for launches?
# `traced` has one row per traced step, with times in ns. Use the means of `duration_ns` and `launch_bound_ns`. Assume
# that the profiler adds only launch-bound idle time. Without the profiler, a step takes `unprofiled_ns`.
q = exercise("02.3", traced)
# solution
mean = traced[["duration_ns", "launch_bound_ns"]].mean()
added = mean["duration_ns"] - unprofiled_ns
answer = 100 * (mean["launch_bound_ns"] - added) / unprofiled_ns
# end solution
q.check(answer)

# %% [markdown]
# > **Tip:** `python -m tidyprof triage TRACE --step-time-ms MS` makes this correction for you, if `MS` is the step time
# > without the profiler.

# %% [markdown]
# ## Look for yourself
#
# In JupyterLab, the button opens the trace in [Perfetto](https://ui.perfetto.dev) without an upload. Zoom with `w` and
# `s`, and move with `a` and `d`. Click an event to see its shapes, the arrow from launch to kernel, and *Slices with
# the same name*.

# %%
proflab.perfetto(gpu, step=second, title="One step of the example run")

# %% [markdown] slide="The largest part of the budget decides which tool comes next."
# ## Decide
#
# The largest part of your budget determines your next lesson:
#
# | largest part | next lesson |
# | --- | --- |
# | data wait, launch-bound idle, other | 03, call stacks |
# | compute, exposed copy | 04, kernels |
# | exposed communication, as on rank 0 of eight | 07, ranks |
# | blocked host | 11, memory |
#
# What does the host of the example run do in its `data` range?


# %%
def in_data(run):
    named = run.events.query("kind in ['operator', 'runtime']")
    named = named[data_of(run).contains(named["start_ns"])]
    longest = (
        named.groupby("name", observed=True)["duration_ns"].sum().nlargest(3).index
    )
    share = (data_of(run) - union(named)).length / data_of(run).length
    return 100 * share, ", ".join(longest)


unnamed, longest = in_data(gpu)
show_text(
    f"{unnamed:.0f}% of `data` is outside operators. The longest operators: {longest}."
)
inputs = gpu.events.query("name == 'aten::upsample_bilinear2d'")["input_shapes"].astype(
    str
)
show_text(f"Input shapes of `upsample_bilinear2d`: {'; '.join(inputs.iloc[:6:2])} ...")

# %% [markdown]
# On the H200, the longest operator is `upsample_bilinear2d`. Its inputs start with 1, so each call enlarges a single
# cropped image. But the host spends half of `data` outside operators, where it runs Python code or, as in `SlowDisk`,
# sleeps. Which function is it?

# %% slide="The GPU waits for data in most of the step, with and without the profiler."
shares = 100 * budget.filter(like="_ns").sum() / budget["duration_ns"].sum()
lesson.conclude(
    f"A traced step takes {budget['duration_ns'].mean() / 1e6:.0f} ms. The GPU waits "
    f"for data for {shares['data_wait_ns']:.0f}% of it, waits for launches for "
    f"{shares['launch_bound_ns']:.0f}%, and computes for {shares['compute_ns']:.0f}%. "
    f"On the H200, the GPU waits for data for at least {at_least:.0f}% of an untraced "
    "step.",
    rules_out=f"compute ({shares['compute_ns']:.0f}%) and copies "
    f"({shares['exposed_copy_ns']:.0f}%)",
    because=f"{unnamed:.0f}% of `data` is outside operators. Which function is it?",
    next="03",
    origin=gpu.origin,
)
proflab.reveal("02.a", shares["compute_ns"], origin=gpu.origin)
proflab.reveal("02.b", 100 * added_ns / untraced_ns, origin=recorded.origin)

# %% [markdown] tags=["given"]
# ## What this tool can't see
#
# The profiler sees only its own process, so it misses loader processes and other ranks (lesson 07). It also misses the
# Python code between operators (lesson 03). It records when a kernel ran, but not whether the kernel was efficient
# (lesson 05).
#
# > **Warning:** Kineto, the library that records the events, can lose kernels, especially with ROCm 7.2.1. Compare
# > kernel counts between steps, and see the [known
# > issues](../docs/known-issues.md#roctracer-loses-kernels-on-rocm-721).
#
# ## Three takeaways
#
# - Count each moment once: take the union of events, and divide a step into parts that add up.
# - Find out what an idle GPU waits for before you change anything.
# - A traced step takes longer than an untraced one, so check that the verdict holds without the profiler.

# %% [markdown]
# ## At work, without this course
#
# {snippet 02_profile_a_loop.py}
#
# Replace the code between the two dashed lines with your own network and loop.
#
# {snippet 02_trace_to_table.py}
#
# This script prints busy time, gaps and the largest kernels of any trace.
#
# {snippet 02_step_budget.py}
#
# This script divides the host's steps into the parts above, using only pandas.
#
# Further reading: [the PyTorch profiler manual](https://docs.pytorch.org/docs/stable/profiler.html).

# %% [markdown]
# Next question: what is the CPU doing while the GPU waits?
