# %% [markdown]
# # One trace, one diagnosis, one fix
#
# A *profiler* records what a program does and when. In this notebook, you follow one slow training run from its first
# trace to a fix that works. Then you diagnose a script that wasn't prepared for profiling, and prove that your fix for
# it works. The first three parts come from lessons 00, 02 and 03, and your answers count in those lessons too.
#
# After these parts, you can:
#
# - record a trace of a training run, and read where the time in a step goes;
# - tell a GPU that works from one that waits, and name what the GPU waits for;
# - find out what limits an unmodified script, and prove a fix without a profiler.
#
# **Before you start:** you need two CPU cores, but no experience with profilers. If your machine has an AMD GPU, the
# notebook uses it. You can also run parts 3 and 4 on their own in a fresh kernel, and you can run every cell again
# later. If a text says *run this cell without reading it*, the cell only prepares later cells.

# %% [markdown]
# ## Part 1: one trace
#
# This part takes about 12 minutes. The first cell shows a table of the tools on your machine.
#
# *From [lesson 00](00_start_here.ipynb): run this cell without reading it.*

# %%
import proflab
import tidyprof
from proflab import exercise, show_figure, show_text
from tidyprof import plots

lesson_00 = proflab.start("00", within="90_minutes")

# %% [markdown]
# ## How this course works
#
# The table above lists the tools used in this lesson:
#
# - `real`: the tool is installed.
# - `replay`: the tool isn't installed, so the course replays a stored run of it.
# - `missing`: the tool isn't installed, but you don't need it yet.
#
# Run the cells from top to bottom. They write to one folder, `$FOLDER`, and nothing leaves your machine. In an
# exercise, replace `...` with your answer and run the cell. For help, run `q.hint()`, `q.hint(2)` or `q.solution()`.
# [The glossary](../docs/glossary.md) explains new terms.
#
# Every number comes with its source, because no single source can answer every question:

# %% [markdown] tags=["given"]
# | source | use it to find out | it can't show |
# | --- | --- | --- |
# | *recorded: NVIDIA H200*, a real GPU | how slow the example run is, how its steps vary, which fixes help | what AMD's tools print |
# | *measured* on your CPU | what PyTorch does, in which order, and whether your code is correct | how fast a GPU is |
# | figures that AMD published | how fast the same network runs on an MI300X | why it runs at that speed |
# | *modeled: MI300X*, computed | what AMD's tools print | how much time a fix saves |
#
# Each modeled number comes with its error, which we determined from AMD's runs. The GPU model also
# [assumes](../docs/contributors/gpumodel.md) how long the *loader*, the code that reads and prepares the images, takes per image.
# Most of a modeled step depends on this assumption. We made each H200 run only once or twice.

# %% [markdown]
# ## The example run
#
# The example run trains the image classifier ResNet-50 on CIFAR-100, a dataset of color photographs of 32 by 32 pixels
# in 100 classes. The images come from torchvision and the network from transformers. Like AMD's own example, the run
# isn't tuned.
#
# In each *step*, one GPU trains on a *batch* of 256 images:
#
# | part of a step | what happens |
# | --- | --- |
# | data | the loader reads the next batch, changes the images slightly at random, and moves them to the device |
# | forward | the network computes its predictions |
# | loss | one number measures how wrong the predictions are |
# | backward | PyTorch computes how each weight affects the loss |
# | optimizer | each weight changes slightly to reduce the loss |
#
# The *device* is the GPU or, if there is none, the CPU. Each core lesson ends with a question that its tool can't
# answer, and the next lesson starts with it:
#
# {drawing method}

# %% [markdown]
# ## A first trace
#
# `$EXAMPLE` is the command for the example run. In the next cell, `--batch-size 4` and `--max-steps 12` keep the run
# short on a CPU, `--torch-profile` traces the last three steps, and `--run-dir` names the folder for the results. The
# run takes about half a minute on two cores.
#
# Without the dataset, the trainer uses synthetic images, so ignore the loss. One line of the output states the
# *conditions*: the network, the precision, the batch size and the device. With `automixed`, PyTorch computes safe
# operations in 16 bits and all others in 32 bits. The first steps are the *warm-up*, and the later steps are *steady*.

# %% language="bash"
# $EXAMPLE --batch-size 4 --max-steps 12 --torch-profile --run-dir $FOLDER/first

# %% [markdown]
# A trace has one row per event, with the event's start time and duration. The trainer marks the parts of each step, so
# you can see where the time goes. The dashed line shows the mean time of untraced steps.

# %%
here = tidyprof.Origin("measured", "this machine")
trace = tidyprof.read(lesson_00.folder / "first/trace_rank0_of_1.json.gz", origin=here)
traced, phases = tidyprof.steps(trace), tidyprof.phases(trace)
totals = phases.groupby("phase", observed=True)["duration_ns"].sum()
largest, traced_ns = totals.idxmax(), traced["duration_ns"].sum()
show_figure(plots.step_budget(tidyprof.step_budget(trace), title="Time in the traced steps"))
show_text(f"The trace has {len(trace.events):,} events. The largest part is `{largest}`.")

# %%
# 3 minutes: If the largest part took no time at all, how many times as fast would the traced steps be? Use
# `totals[largest]`, the total time of that part in the traced steps, and `traced_ns`, the total time of these steps.
q = exercise("00.1", {"part_ns": totals[largest], "steps_ns": traced_ns})
# solution
answer = traced_ns / (traced_ns - totals[largest])
# end solution
q.check(answer)

# %% [markdown]
# A function that runs on a GPU is called a *kernel*. AI programs are hard to profile for two reasons:
#
# - **Many layers.** Your Python code calls PyTorch operators, which call libraries such as MIOpen (for convolutions) or
#   hipBLASLt (for matrix products). One step runs hundreds of short library kernels, whereas a typical HPC program has
#   a few hot kernels of its own.
# - **Many workers.** Loader processes prepare the data, the *host* (the CPU that runs your program) launches kernels,
#   and the GPUs execute them. If one is slow, all the others wait.
#
# A *profile* summarizes how often each function ran and for how long, so its file stays small. A *trace* records when
# each event happened, so its file grows with the run. A trace also helps you understand unfamiliar code, because it
# shows which functions a program actually calls.

# %% [markdown]
# ## Part 2: one diagnosis
#
# This part takes about 14 minutes. On a CPU, a step spends most of its time on arithmetic. Where does the time go on a
# real GPU?
#
# *From [lesson 02](02_torch_profiler_timeline.ipynb): run these cells without reading them.*

# %%
import proflab

lesson_02 = proflab.start("02", within="90_minutes")

# %%
import tidyprof
from proflab import exercise, show_figure, show_text
from tidyprof import Intervals, plots

# %% [markdown]
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

# %% [markdown]
# ## The example run, seen by torch.profiler
#
# To use PyTorch's profiler, put a block around the training loop. Write `with profile(...) as prof:`, call
# `prof.step()` at the end of each step, and name parts of the loop with `with record_function("data"):`.
#
# The trainer's `--torch-profile` option does this for you. On a GPU, omit `--batch-size 8`. A CPU spends nearly the
# whole step on arithmetic, so without a GPU, the figure shows a recorded step of an H200. The run takes about 20
# seconds.

# %% language="bash"
# $EXAMPLE --batch-size 8 --max-steps 6 --torch-profile --record-shapes --run-dir $FOLDER/example

# %%
live = tidyprof.read(
    lesson_02.folder / "example", origin=tidyprof.Origin("measured", "this machine")
)
found = proflab.recording("torch-h200-case-plain")
recorded = tidyprof.read(found.path, origin=found.origin)
gpu = live if len(live.device_events) else recorded
second = int(tidyprof.steps(gpu)["step"].iloc[1])
show_figure(plots.timeline(gpu, step=second, title="One step of the example run"))

# %% [markdown]
# Does the stream (the lowest lane) contain work while the host is in `data`?

# %% [markdown]
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
    return Intervals.union(events["start_ns"], events["start_ns"] + events["duration_ns"])


def data_of(run):
    return union(run.events.query("kind == 'annotation' and name == 'data' and device.isna()"))


step = tidyprof.steps(gpu, "device").iloc[1]
whole_step = Intervals.window(step.start_ns, step.start_ns + step.duration_ns)
use, loading = tidyprof.DeviceTime.of(gpu.device_events), data_of(gpu)

# %%
# 5 minutes, open: Divide `whole_step` into parts that add up to the step. Answer with a dictionary of the lengths of
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
# The figure shows the library's budget for both traced steps, sorted by kind:

# %%
budget = tidyprof.step_budget(gpu, timeline="device")
show_figure(plots.step_budget(budget, title="Parts of a step of the example run"))

# %% [markdown]
# ## Part 3: one fix
#
# This part takes about 20 minutes. The GPU waits while the host is in `data`. (In the last figure, the dashed line is
# the step time without the profiler, which slows down the host. Lesson 02 shows that the GPU also waits for data
# without the profiler.) What does the host do during that time? The AMD system profiler `rocprof-sys` interrupts the
# program many times per second and records its call stacks. With `--roctx`, the trainer passes the names of its ranges
# to `rocprof-sys`.
#
# *From [lesson 03](03_rocprof_sys_sampling.ipynb): run these two cells without reading them.*

# %%
import proflab
import tidyprof
from proflab import case, exercise, show_figure, show_table, show_text
from proflab.parts.stacks_over_kernels import stacks_over_kernels
from proflab.parts.steady_part import own_run, steady_part
from tidyprof import plots

lesson_03 = proflab.start("03", within="90_minutes")
fixed = lesson_03.folder / "fixed"

# %% language="bash"
# cat > $FOLDER/course.cfg <<END
# ROCPROFSYS_TRACE                   = true
# ROCPROFSYS_PROFILE                 = true
# ROCPROFSYS_SAMPLING_REALTIME       = true
# ROCPROFSYS_SAMPLING_FREQ           = 500
# ROCPROFSYS_PROCESS_SAMPLING_FREQ   = 10
# ROCPROFSYS_SAMPLING_CPUS           = all
# ROCPROFSYS_ROCM_DOMAINS            = hip_runtime_api,marker_api,kernel_dispatch,memory_copy
# ROCPROFSYS_PERFETTO_BUFFER_SIZE_KB = 200000
# ROCPROFSYS_TIME_OUTPUT             = false
# END

# %% [markdown] tags=["given"]
# ## Capture
#
# These settings record call stacks 500 times per second and trace HIP calls, ranges, kernels and copies. Without a GPU,
# the course replays a *modeled* MI300X run, and every figure of it is labeled `modeled`. The GPU model assumes 0.14 ms
# per image, although the CPU of the H200 needed up to 0.87 ms. For durations, trust the H200 trace. The modeled run
# only shows where the gap is.

# %% language="bash"
# rm -rf $FOLDER/one
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/one \
#     -- $EXAMPLE --max-steps 6 --roctx 2>&1 | grep -v Outputting

# %% [markdown]
# For one step, the figure shows the *call stacks* of two threads, with callers above the functions that they call, and
# the GPU's busy share below. A *gap* is a time when nothing runs on the GPU.

# %%
sampled = own_run(lesson_03.folder / "one")
steady = steady_part(sampled)
show_text(f"{steady.steps} steady steps; lost data: {sampled.meta['data_loss'] or 'none'}.")
step = tidyprof.steps(steady.profile).iloc[1]
window = int(step["start_ns"]), int(step["start_ns"] + step["duration_ns"])
title = "Call stacks above the GPU: one step"
show_figure(stacks_over_kernels(steady.profile, *window, title=title))
gaps, columns = tidyprof.gaps(steady.profile), "duration_us cause host_range after before"
show_table(gaps, columns, "The longest gaps", rows=4)

# %% [markdown]
# `launched late` means that the CPU caused the gap: it launched the next work after the GPU had run out of work. In the
# figure, the longest gap is below `__getitem__`, which `next_batch` calls. The training process therefore fetches its
# images itself. The modeled stack ends there.
#
# ## Measure the stack on your own CPU
#
# Which functions does `__getitem__` call? Sample the trainer's data loader on your CPU, which takes about ten seconds
# on two cores. A timer interrupts the program 200 times per second. At each interrupt, Python passes the running
# function to `look`, and `walk_stack` finds its callers. The cell keeps only trainer and torchvision functions.

# %%
import re
import signal
import traceback

seen = []


def look(number, frame):
    codes = [function.f_code for function, _ in traceback.walk_stack(frame)]
    ours = [code for code in codes if re.search("cifar_train|torchvision", code.co_filename)]
    seen.append({code.co_qualname for code in ours})


# %%
from collections import Counter

from cifar_train.config import parse
from cifar_train.data.loaders import build_loaders

options = parse(["--num-workers", "0", "--batch-size", "64", "--data", "synthetic"])
batches = iter(build_loaders(options, "synthetic", 0, 1, "cpu").train)
signal.signal(signal.SIGALRM, look)
signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
for _ in range(10):
    next(batches)
signal.setitimer(signal.ITIMER_REAL, 0)
for name, count in Counter(name for stack in seen for name in stack).most_common(10):
    print(f"{100 * count / len(seen):4.0f}% of {len(seen)} samples are in {name}")

# %% [markdown]
# `Batches.__getitems__` fetches a batch. To transform it, torchvision calls `Compose.forward` once per image. In this
# function, `RandomResizedCrop` runs `upsample_bilinear2d`, as in the H200 trace. `SyntheticImages.index_select` creates
# the images in memory, not from a file.

# %% [markdown]
# ## Fix 1: load the images in other processes
#
# *Loader processes* prepare the next batches while the GPU computes. Add one option to the command from *Capture*
# (`python -m cifar_train --help` lists all options), and write the results to `$FOLDER/fixed`. The GPU must still do
# the same work.

# %% language="bash"
# # solution
# rm -rf $FOLDER/fixed
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/fixed \
#     -- $EXAMPLE --max-steps 6 --roctx --num-workers 2 2>&1 | grep -v Outputting
# # end solution

# %%
# 3 minutes, open: record a run whose longest gap is at most half as long, and answer with its folder: `answer = fixed`.
q = exercise("03.3", steady)
# solution
# In the cell above, after `rm -rf $FOLDER/fixed`:
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/fixed \
#     -- $EXAMPLE --max-steps 6 --roctx --num-workers 2
answer = fixed
# end solution
q.check(answer)

# %% [markdown]
# Always check a fix without the profiler. This table shows H200 runs without a trace:

# %%
recorded = case.measured()
origin = recorded.attrs["origin"]
steps = recorded.query("part == 'steady' and not traced").groupby("options")["duration_ns"]
runs = steps.agg(steps="size", mean_ns="mean", min_ns="min", max_ns="max").reset_index()
two = runs[runs["options"].isin(["--num-workers 0", "--num-workers 2"])]
columns, caption = (
    "options steps mean_ms min_ms max_ms",
    "H200 runs without and with loader processes",
)
show_table(two, columns, caption, origin=origin)

# %% [markdown]
# ## What limits the H200 run with two loaders?
#
# The next cell lists the step times of that run and the longest gaps in a similar traced run:

# %%
times_ms = steps.get_group("--num-workers 2") / 1e6
show_text(f"Steps with two loaders, in ms: {', '.join(f'{ms:.0f}' for ms in times_ms)}")
h200 = proflab.recording("torch-h200-case-loaders")
traced = tidyprof.read(h200.path, origin=h200.origin)
columns = "duration_us cause host_range after before"
show_table(tidyprof.gaps(traced), columns, "The longest gaps with two loaders", rows=3)

# %% [markdown]
# The limit is still data loading. Two processes prepare two batches in parallel, so a step that finds a finished batch
# is short, but the next step may wait a long time. The longest gap in the trace is also in the `data` range.
#
# More processes need more CPU cores. Your stacks suggest another fix. Torchvision transforms each image separately,
# whereas `--batched-transforms` applies each operator to the whole batch. Compare the two on your CPU:

# %%
from timeit import repeat

import torch
from cifar_train.data.transforms import PER_IMAGE, BatchTransform

torch.set_num_threads(1)  # as in a loader process
images = torch.randint(0, 256, (256, 3, 32, 32), dtype=torch.uint8)
alone = min(repeat(lambda: torch.stack([PER_IMAGE(image) for image in images]), number=1))
together = min(repeat(lambda: BatchTransform(55, 0)(images), number=1))
show_text(
    f"Time per image: {alone / 0.256:.2f} ms alone, {together / 0.256:.2f} ms in a batch (measured)"
)

# %% [markdown]
# On the H200, the option also moves this work to the GPU. If data were always ready, each step would take
# about as long as the shortest step in the table. With both changes, how many times as fast will the mean step be?

# %%
# solution
batched_guess = 5
# end solution
proflab.predict("03.b", batched_guess, unit="times", what="the speedup of both changes on an H200")

# %%
mean_ns = runs.set_index("options")["mean_ns"]
speedup = mean_ns["--num-workers 0"] / mean_ns
loaders, batched = speedup[["--num-workers 2", "--num-workers 2 --batched-transforms"]]
show_text(
    f"Two loaders: {loaders:.1f} times as fast; with batched transforms too: {batched:.1f} times"
)
proflab.reveal("03.b", batched, origin)

# %% [markdown]
# Is the training still the same? Lesson 08 checks the images that both fixes deliver and shows that the network still
# trains.

# %% [markdown]
# ## Part 4: an unprepared script
#
# This part takes about 20 minutes, plus about ten minutes if you use your own script. So far, the trainer had ranges
# and options for everything. `sort_letters.py` has neither. The script learns to recognize letters that ask for money.
# In this part, all times are *measured* on your CPU.
#
# To use your own script, set `OWN_SCRIPT` to its path. The script should run for at most 15 seconds, take at least 40
# steps, use a seed, and print its losses.

# %%
import os
import shutil
from pathlib import Path

import proflab
from proflab import exercise

lesson_14 = proflab.start("14", within="90_minutes")
OWN_SCRIPT = ""  # the path of your script; empty: sort_letters.py
shutil.copy(lesson_14.file("sort_letters.py"), lesson_14.folder)
script = Path(OWN_SCRIPT or lesson_14.folder / "sort_letters.py").expanduser().resolve(strict=True)
text = script.read_text()
os.environ |= {"SCRIPT": str(script), "OUT": str(lesson_14.folder.resolve() / "own")}
print(text[text.find("def numbers_of") :])

# %% [markdown]
# ## Put one command in front
#
# `tidyprof run` runs the unmodified script. It times 20 steps, traces 3 steps, and times 20 more. `--with-stack` also
# records Python functions. The run takes about 15 seconds.

# %% language="bash"
# cd "$(dirname "$SCRIPT")"; rm -rf "$OUT/first"
# export OMP_NUM_THREADS=1
# python -m tidyprof run --with-stack --out "$OUT/first" -- python "$SCRIPT" 2>&1

# %% [markdown]
# | line | meaning |
# | --- | --- |
# | Verdict | what limits the run, with its share of the step; `inconclusive` if the recorded data can't show it |
# | Why, Next | the reason; what to change first, and where to read more |
# | the table | the parts of a step without the profiler; during *other programs*, another program used the CPU core |
# | Doubt | what weakens the verdict |
#
# On a busy machine, the verdict can be *not confident* or `inconclusive`. The table is valid even then.
#
# > **Note:** After each optimizer step, PyTorch calls the functions that you register with
# > `register_optimizer_step_post_hook`. `tidyprof run` uses such hooks to find the steps. This script has no optimizer,
# > so `tidyprof run` uses the calls to its network to mark the steps.
#
# ## What is wrong with this script?

# %%
# 5 minutes, open: Which part of the step contains work that the script repeats needlessly, and which function does this
# work? Answer with a pair of strings, `part, function`. Then fix the script: `FIX` maps text in the script to its
# replacement. (If you use your own script, write `FIX` and ignore the check.)
q = exercise("90.1", None if OWN_SCRIPT else text)
# solution
answer = "data", "numbers_of"
FIX = {
    "self.letters = list(lines)": "self.letters = [numbers_of(line) for line in lines]",
    "return numbers_of(self.letters[place])": "return self.letters[place]",
}
# end solution
q.check(answer)

# %%
changed = text
for old, new in ({} if FIX is ... else FIX).items():
    assert changed.count(old) == 1, f"{old!r} must occur exactly once in the script."
    changed = changed.replace(old, new)
script.with_name(f"fixed_{script.name}").write_text(changed)
print(f"Changes in fixed_{script.name}: {0 if FIX is ... else len(FIX)}")

# %% [markdown]
# ## Prove the fix
#
# A single run before the fix and another one after it prove nothing. Run both versions in seven rounds, in random order
# and without a trace (`--no-trace`). If the machine becomes slower, both versions become slower. The rounds take about
# two minutes on two cores.

# %% language="bash"
# cd "$(dirname "$SCRIPT")"; rm -rf "$OUT/rounds"; mkdir -p "$OUT"
# name=$(basename "$SCRIPT")
# export OMP_NUM_THREADS=1
# for round in 1 2 3 4 5 6 7; do
#     echo "round $round of 7"
#     for version in $(shuf -e "$name" "fixed_$name"); do
#         python -m tidyprof run --no-trace --out "$OUT/rounds/$version/$round" \
#             -- python "$version" > "$OUT/$version.txt" 2>/dev/null
#     done
# done
# diff "$OUT/$name.txt" "$OUT/fixed_$name.txt" && echo "Both versions print the same losses."
# python -m tidyprof gate "$OUT/rounds/$name" "$OUT/rounds/fixed_$name" --paired 2>&1

# %% [markdown] tags=["given"]
# The first line states the verdict, the change in the mean step time, and a *confidence interval*. The change differs
# from round to round, and the interval contains the true change with the stated confidence. If the whole interval is
# below 0%, the fixed version is faster. If the interval contains 0%, the result is `inconclusive`, so you need more
# rounds or a more effective fix.
#
# The `confident` column judges each part in the same way. With three parts, a confident verdict requires at least seven
# rounds. A short run is mostly startup, so compare step times, not the total time.

# %% [markdown]
# ## Where to go from here
#
# - [Lesson 00](00_start_here.ipynb) asks whether you can trust your clock. You don't need to repeat the parts above.
# - [Lesson 04](04_rocprofv3_kernel_stats.ipynb) asks which kernels run when the data arrives on time.
# - [Lesson 14](14_your_own_code.ipynb) diagnoses a script, from a step time to a line of Python, on two ranks.
#
# ## Three takeaways
#
# - A slow step alone explains little, so first find out whether the GPU works or waits, and what it waits for.
# - A fix follows from the evidence: in this run, the images were prepared one by one.
# - Prove a fix with paired runs without a profiler, and check that the losses stay the same.

# %% [markdown]
# ## At work, without this course
#
# Start with `python -m tidyprof run -- python train.py`, which [doesn't require an installation](../docs/triage.md).
#
# {snippet 14_instrument_me.py}
#
# If hooks can't find the parts of your loop, copy the lines from this file into the loop.
#
# {snippet 02_step_budget.py}
#
# This script computes the step budget from part 2, using only pandas.

# %% [markdown]
# Next question: what limits your own script?
