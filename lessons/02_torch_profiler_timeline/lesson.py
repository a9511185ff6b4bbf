# %% [markdown]
# # Where does a step go?
#
# A training step keeps a processor busy, and often a GPU and a network at the same time. `torch.profiler` records
# what the processor and the GPU do on one time axis. You divide a step into parts that add up to it: first on your
# own machine, then in a recording of an MI300X.
#
# After this lesson you can
#
# - record a few steps, and say why the profiler waits and warms up before it keeps any;
# - read an operator table, a timeline and a step budget without counting time twice;
# - decide from a step budget which question to ask next.
#
# You need lesson 00. The profiler is that of your PyTorch, whose version the table below shows; the recordings are
# from ROCm 6.4 to 7.2. An AMD GPU is used where there is one; without it every cell still works.

# %%
import os

import pandas as pd
import proflab
import tidyprof
from proflab import exercise, say, show_figure, show_table
from proflab.parts.modelled_rank import modelled_rank
from tidyprof import Profile, plots

lesson = proflab.start("02")

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
# ## Capture
#
# A trace of a whole training run is soon too big for a viewer. So the profiler follows a *schedule*:
#
# - **wait**: off, while libraries start and the first batches arrive;
# - **warm-up**: on, but the result is thrown away, since switching on disturbs the step;
# - **active**: on, and kept. Steps repeat, so three are enough to begin with.
#
# `--torch-profile` asks for this and `--record-shapes` stores the shapes of each operator's inputs. The other
# options keep the run short. The trainer also puts a `record_function` range, which is just a name, around
# each phase of a step: data, forward, loss, backward, optimizer.

# %% language="bash"
# python -m cifar_train --max-steps 6 --batch-size 8 --torch-profile --record-shapes --run-dir runs/02/eager

# %% [markdown]
# Two files are new: the trace, and `key_averages`, the profiler's own summary. Don't quote the step time of this run:
# a watched step is slower, and the first ones were warm-up.
#
# A schedule that is longer than the run records nothing. Many scripts then end without an error and without
# a file. The trainer does the sum at the start and refuses:

# %% language="bash"
# python -m cifar_train --torch-profile --profile-wait 30 || true

# %% [markdown]
# ## First look
#
# `tidyprof.read` turns the trace into tables. `tidyprof.phases` gives the time of each range in each step.

# %%
mine = tidyprof.read("runs/02/eager", origin=tidyprof.Origin("measured", "this machine"))
steps, phases = tidyprof.steps(mine), tidyprof.phases(mine)
show_table(phases, "step phase calls duration_ms percent", "Where the host spent each recorded step")
say(
    f"{len(steps)} steps were kept, numbered from 0 over the whole run. The slowest took "
    f"{steps['duration_ns'].max() / steps['duration_ns'].min():.1f} times as long as the fastest."
)

# %%
# 3 minutes: in which phase did the host spend the most time in the last recorded step? Give its name as a text.
q = exercise("02.1", mine)
# solution
last_step = phases[phases["step"] == phases["step"].max()]
answer = last_step.sort_values("duration_ns")["phase"].iloc[-1]
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: totals contain each other
#
# The summary file has one row per name. *Self* is the time in the operator alone, *total* includes the
# operators that it called. The ranges are rows too, and contain the operators once more. Every row is right,
# and still you must never add up `CPU total %`. The same holds for the columns that a GPU adds: an operator, its
# kernels and the range around them all show the same kernel time.

# %% language="bash"
# head -n 12 runs/02/eager/key_averages_rank0_of_1.txt | sed -E 's/^[ -]{32}//'

# %%
table = tidyprof.operators(mine)
show_table(table, "name calls total_ms self_ms percent", "Operators, largest self time first", rows=6)
say(
    f"Self times add up to {table['percent'].sum():.0f} % of the operators' time, "
    f"totals to {100 * table['total_ns'].sum() / table['self_ns'].sum():.0f} %."
)

# %%
# 5 minutes: what share of the operators' time, in percent, went into names with `conv`, any case?
q = exercise("02.2", mine)
# solution
answer = table.loc[table["name"].str.contains("conv", case=False), "percent"].sum()
# end solution
q.check(answer)

# %% [markdown]
# ## One step as a picture
#
# The timeline shows when, the *step budget* how much: its parts add up to the step. Without a GPU the parts
# are the phases on the host. With one they are what the device did; `timeline="device"` asks for the device's own
# steps, of which more below.

# %%
show_figure(plots.timeline(mine, step=int(steps["step"].max()), title="Your last recorded step"))
show_figure(plots.step_budget(tidyprof.step_budget(mine, timeline="device"), title="Your steps, divided"))

# %% [markdown]
# What the pictures say: which phase is long. What they don't say: why. A long `forward` may be large matrices,
# many tiny operators or another program on your processor.
#
# ## What more options cost
#
# - `--with-stack` adds the Python call stack: which line called this operator?
# - `--profile-memory` adds every allocation.
# - `--with-flops` adds a column of estimated arithmetic to the summary file. It comes from formulas, and only for
#   operations such as matrix products and convolutions.
#
# Record with few options first, and add what you miss in a second run. This one adds all three:

# %% language="bash"
# python -m cifar_train --max-steps 2 --batch-size 8 --torch-profile \
#     --with-stack --profile-memory --with-flops --run-dir runs/02/more

# %%
more = tidyprof.read("runs/02/more", origin=mine.origin)
kinds = ["cpu_op", "user_annotation", "cpu_instant_event", "python_function"]
counts = pd.DataFrame({"first_run": mine.meta["events_by_category"], "second_run": more.meta["events_by_category"]})
counts = counts.reindex(kinds).fillna(0) / [len(steps), len(tidyprof.steps(more))]
counts["what"] = ["operators", "ranges", "allocations", "calls of Python functions"]
counts = counts.rename_axis("category").reset_index()
show_table(counts, "category what first_run second_run", "Events per step in the file", origin=mine.origin)
packed = [os.path.getsize(run.meta["files"][0]) / 1e6 / len(tidyprof.steps(run)) for run in (mine, more)]
say(f"A step needs {packed[0]:.2f} MB of packed file in the first run and {packed[1]:.2f} MB in the second.")

# %% [markdown]
# ## A real GPU
#
# Now a recording: eight MI300X train one ResNet together. Each rank, a process with its own GPU, writes a file; this
# is that of rank 0. While the backward pass runs, the ranks begin to add up their gradients, which is called
# all-reduce. It is a *collective*: an operation that all ranks take part in. Its kernels are from AMD's library RCCL,
# but still carry the name of NVIDIA's, `nccl`. If the recording can't be had, a modelled rank of eight takes its place.

# %%
there = proflab.try_recording("torch-mi300x-resnet-ddp-rank0")
gpu = tidyprof.read(there.path, origin=there.origin) if there else modelled_rank()
if there:
    say(f"{there.entry.workload}. Published in {there.entry.source_repo}, {there.entry.licence} licence.")
names = tidyprof.kernels(gpu)
show_table(names, "short_name category calls total_ms mean_us percent", "Kernels by total time", rows=5)

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
# Two streams run at once, so the same moment counts twice. The repair is a *union*: a moment counts once if
# anything runs in it. `tidyprof.busy` gives both.

# %%
# 5 minutes: for which fraction of the span (0 to 1) does at least one kernel run, collectives included?
# `tidyprof.busy(gpu, [...])` counts only the kinds in the list.
q = exercise("02.3", gpu)
# solution
found_busy = tidyprof.busy(gpu, ["kernel", "collective"])
answer = found_busy["union_ns"].sum() / found_busy["span_ns"].sum()
# end solution
q.check(answer)

# %% [markdown]
# ## The second half of the trap: busy with what?
#
# Look at the picture again. For most of the step the only thing that runs is a collective. It ends when the last rank
# has arrived and the data is exchanged. Communication beside computation is *hidden*; communication alone is
# *exposed*, and makes the step longer.

# %%
kernels_only = tidyprof.busy(gpu, ["kernel", "collective"])
show_figure(plots.busy(kernels_only, title="The sum of kernel durations is no utilisation"))
parts = tidyprof.overlap(gpu).iloc[0]
say(
    f"Busy with kernels: {kernels_only['union_percent'].iloc[0]:.0f} %, with copies and fills "
    f"{100 * parts['busy_ns'] / parts['total_ns']:.0f} %. But computing: only "
    f"**{parts['computation_percent']:.0f} %**. Idle: {parts['idle_percent']:.0f} %."
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
# 5 minutes: what share of the recorded time, in percent, is exposed communication? See `tidyprof.overlap(gpu)`.
q = exercise("02.4", gpu)
# solution
answer = tidyprof.overlap(gpu)["exposed_communication_percent"].iloc[0]
# end solution
q.check(answer)

# %% [markdown]
# ## Third trap: the host runs ahead
#
# Launching is quick, so the host queues work long before the device gets to it. What the device does under
# the bar `ProfilerStep` is then partly or wholly work of an earlier step.

# %%
made, host = tidyprof.launches(gpu), tidyprof.steps(gpu)
lost = gpu.meta["device_events_without_launch"]
say(
    f"Work starts on the device {made['delay_ns'].median() / 1e6:.0f} ms after its launch (median), behind "
    f"{made['queue_depth'].median():,.0f} others. A host step takes {host['duration_ns'].median() / 1e6:.0f} ms. "
    f"{lost:,} of {len(gpu.device_events):,} device events have no launch record: they were launched before "
    "the recording began."
)
show_figure(plots.timeline(gpu, step=int(host["step"].iloc[1]), title="The host's second step, and older device work"))
columns = "step duration_ms launched_earlier_percent no_launch_record_percent"
show_table(tidyprof.step_budget(gpu), columns, "Device work under each host step")

# %%
# 8 minutes: how many kernels (kind `kernel`) did the host launch during its second recorded step? `tidyprof.launches`
# has a row per launch, with `launch_ns` and `kind`; `tidyprof.steps` has `start_ns` and `duration_ns`.
q = exercise("02.5", gpu)
# solution
second = tidyprof.steps(gpu).iloc[1]
launched = tidyprof.launches(gpu)
inside = launched["launch_ns"].between(second.start_ns, second.start_ns + second.duration_ns - 1)
answer = (inside & (launched["kind"] == "kernel")).sum()
# end solution
q.check(answer)

# %% [markdown]
# The repair: give each event to the step that *launched* it. `timeline="device"` does that. Now the steps
# look alike, and their parts add up. A part that AMD's recording lacks, and that a modelled rank may have, is
# *launch-bound idle*: time in which the device had nothing to do because the host had launched nothing. Where the host
# had launched nothing because it waited itself, inside a call that allocates memory, copies or synchronises, the part
# is called *blocked host*, and `tidyprof.blocked_calls` names the calls. The shares differ a little from those above,
# since these steps leave out the work that was launched before the recording.
#
# The last exercise is open: make such a budget yourself, for the device's second step. `Intervals` are sets of
# time: `&` is both, `|` is either, `-` takes away, `.length` is in nanoseconds. `tidyprof.DeviceTime.of` has such
# sets: `computation`, `exposed_communication`, `exposed_copy` and `busy`, which is all of them.

# %%
budget = tidyprof.step_budget(gpu, timeline="device")
show_figure(plots.step_budget(budget, title="The device's steps, by launch time"))

# %%
from tidyprof import Intervals

# 8 minutes, open: a dictionary of three parts or more that add up to the step, in ns; call one `compute`. Begin with
# `tidyprof.DeviceTime.of(gpu.device_events)` and `Intervals.window(start, end)` of the step.
q = exercise("02.6", gpu)
# solution
step_on_device = tidyprof.steps(gpu, "device").iloc[1]
whole = Intervals.window(step_on_device.start_ns, step_on_device.start_ns + step_on_device.duration_ns)
use = tidyprof.DeviceTime.of(gpu.device_events)
answer = {"compute": (whole & use.computation).length, "communication": (whole & use.exposed_communication).length}
answer |= {"copy": (whole & use.exposed_copy).length, "idle": (whole - use.busy).length}
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
# ## Eager against compiled
#
# PyTorch runs *eagerly* by default: each operation of the model becomes an operator of its own, at once.
# `torch.compile` (`--compile`) looks at the model as a whole, and replaces many small operators by few generated
# kernels. The course ships two recordings of its vision transformer, ViT, on a processor: the same two steps, eager and
# compiled. Which operators are gone?

# %%
places = {"eager": "torch-cpu-vit", "compiled": "torch-cpu-vit-compiled"}
shipped = {name: proflab.recording(place) for name, place in places.items()}
pair = {name: tidyprof.read(one.path, origin=one.origin) for name, one in shipped.items()}
parts = {
    "aten::addmm": "linear layers",
    "aten::mm": "linear layers, backward",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "attention",
    "aten::gelu": "activation",
    "aten::native_layer_norm": "normalisation",
    "aten::lerp_": "optimizer",
    "CompiledFunction": "generated code",
}
lists = {name: tidyprof.operators(run).set_index("name")["calls"] / 2 for name, run in pair.items()}
calls = pd.DataFrame(lists).reindex(list(parts)).fillna(0)
calls = calls.assign(part=list(parts.values())).rename_axis("operator").reset_index()
show_table(calls, "operator part eager compiled", "Calls per step", origin=pair["eager"].origin)
total = {name: count.sum() for name, count in lists.items()}
say(f"All operators of a step: {total['eager']:,.0f} eager, {total['compiled']:,.0f} compiled.")

# %% [markdown]
# The big ones stay: linear layers and attention are library calls, and the compiler leaves them to the library. What
# lies between them, activations and normalisations, goes into generated code. The optimizer is outside the model, so
# it stays too.
#
# On a GPU you see the generated kernels one by one. This recording is one forward call of a compiled transformer block.

# %%
found = proflab.try_recording("torch-mi300x-compile-triton")
if found:
    run = tidyprof.read(found.path, origin=found.origin)
    kernels, host_names = tidyprof.kernels(run), tidyprof.operators(run)["name"]
    show_table(kernels, "short_name category calls total_us percent", "Kernels of a compiled block")
    fused = kernels["name"].str.startswith("triton_")
    say(
        f"On the host the block has become `{host_names[host_names.str.contains('Region')].iloc[0]}`. "
        f"{fused.sum()} of {len(kernels)} names are kernels that `torch.compile` generated with the Triton compiler: "
        "`poi` is pointwise, `red` a reduction, and the name lists the operations that were merged into one kernel. "
        f"They take {kernels.loc[fused, 'percent'].sum():.0f} % of the time. The matrix products (GEMM) and the "
        "attention (`attn_fwd`) come from libraries. "
        "There is no recording of the same block without the compiler, so this says nothing about its gain."
    )

# %% [markdown]
# ## Look for yourself
#
# Perfetto is a viewer for traces that runs in the browser. The button below opens [ui.perfetto.dev](
# https://ui.perfetto.dev) in another tab and hands it the trace, without an upload. You can also drag a trace file into
# it, packed as it is. The keys `w` and `s` zoom, `a` and `d` move. Click an event to see its shapes, and the arrow from
# a launch to its kernel. Perfetto shows; for numbers come back to the tables.

# %%
proflab.perfetto(mine, step=int(steps["step"].max()), title="Your last recorded step")

# %% [markdown]
# ## Decide
#
# The largest part of the budget chooses the next question. Name it for both runs before you run the cell.


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


decide("Your run", tidyprof.step_budget(mine, timeline="device"))
decide("The MI300X", budget)
proflab.reveal("02.a", kernels_only["union_percent"].iloc[0], origin=gpu.origin)
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
# | no or few GPU events with ROCm 7.2.1 | [use ROCm 7.2.2][lost] |
# | no GPU event with early rocprofiler-sdk | [take a torch with its recorder Kineto of April 2026 or later][late] |
# | kernels missing at the start of the window | [keep the warm-up, compare counts between steps][start] |
# | `device` is 1 or 2, the row says `GPU 0` | older ROCm back ends count processors too: don't select by rank |
# | the GPU's own bar `ProfilerStep` is far too short | it leaves out kernels in an inner range: use launch times |
# | ranges missing inside `torch.compile` | rely on the steps |
# | TensorBoard shows an empty trace on ROCm | [use Perfetto][board] |
#
# [lost]: https://github.com/ROCm/legacy-rocm-build/issues/6102
# [late]: https://github.com/pytorch/kineto/pull/1338
# [start]: https://github.com/pytorch/kineto/issues/996
# [board]: https://github.com/pytorch/pytorch/issues/113760

# %% [markdown]
# ## Key points
#
# - Wait, warm up, then record few steps; check that the schedule fits into the run.
# - Add self times, never totals. Add sets of time, never durations.
# - Busy is not computing: a waiting collective is busy too.
# - The host runs ahead, so a kernel belongs to the step that launched it.
#
# Next question: what is the processor doing while the GPU waits?
