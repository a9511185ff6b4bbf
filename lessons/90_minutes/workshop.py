# %% [markdown]
# # One trace, one diagnosis, one fix
#
# A *profiler* records what a program does and when. In this notebook, you follow one slow training run from its first
# trace to a fix that works. Then you diagnose a script that wasn't prepared for profiling, and prove that your fix for
# it works. The first three parts come from lessons 00, 02 and 03, and your answers count in those lessons too.
#
# After these parts, you can:
#
# - tell a GPU that works from one that waits, and name what the GPU waits for;
# - find out what limits an unmodified script, and prove a fix without a profiler.
#
# **Before you start:** you need two CPU cores, but no experience with profilers. Run the cells from top to bottom. In
# an exercise, replace `...` with your answer and run the cell. For help, run `q.hint()`, `q.hint(2)` or `q.solution()`.

# %% tags=["setup"]
import os
import re
import shutil
import signal
import traceback
from collections import Counter
from pathlib import Path
from timeit import repeat

import torch
from cifar_train.config import parse
from cifar_train.data.loaders import build_loaders
from cifar_train.data.transforms import PER_IMAGE, BatchTransform

import proflab
import tidyprof
from proflab import case, exercise, show_figure, show_table, show_text
from proflab.parts.rounds import rounds_to_judge
from proflab.parts.stacks_over_kernels import stacks_over_kernels
from proflab.parts.steady_part import own_run, steady_part
from tidyprof import Intervals, plots

lesson = proflab.start("03", within="90_minutes")
folder, fixed = lesson.folder, lesson.folder / "fixed"

# %% [markdown] slide="A training step has five parts."
# ## Part 1: one trace
#
# A *trace* records when each event of a program happened. This trace comes from an NVIDIA H200 GPU, because we have no
# AMD GPU. A trace from an AMD GPU has the same kinds of lanes. The program trains an image classifier on a *batch* of 256
# images per *step*:
#
# | part of a step | what happens |
# | --- | --- |
# | data | the *loader* reads the next batch, changes the images slightly at random, and moves them to the GPU |
# | forward | the network computes its predictions |
# | loss | one number measures how wrong the predictions are |
# | backward | PyTorch computes how each weight affects the loss |
# | optimizer | each weight changes slightly to reduce the loss |
#
# Run the next cell to draw one step. In the figure, the lane `ranges` shows these parts, and the lowest lane, `stream
# 7`, shows when the GPU works.

# %% slide="The GPU waits for data most of the time. The lowest lane shows when it works."
found = proflab.recording("torch-h200-case-plain")
recorded = tidyprof.read(found.path, origin=found.origin)
phases = tidyprof.phases(recorded).query("step == 11").set_index("phase")
data_ns = phases.loc["data", "duration_ns"]
step_ns = tidyprof.steps(recorded).query("step == 11")["duration_ns"].iloc[0]
figure = plots.timeline(recorded, step=11, title="One training step on an NVIDIA H200")
waits = f"waiting for data: {data_ns / step_ns:.0%} of the step"
show_figure(figure, arrow=(waits, (60, 6.1), (0.06, 0.3)))

# %%
# 2 minutes: Suppose the data were always ready. How many times as fast would this step be? Use `data_ns`, the time of
# the part `data`, and `step_ns`, the time of the step.
q = exercise("00.1", {"part_ns": data_ns, "step_ns": step_ns})
# solution
answer = step_ns / (step_ns - data_ns)
# end solution
q.check(answer)

# %% [markdown]
# Every number in this course comes with its source. `recorded` numbers come from a real GPU, `measured` numbers come
# from your machine, and `modeled` numbers are computed, so they only show what a tool prints. Without AMD's tools, the
# course replays stored runs of them.

# %% [markdown] slide="A launch adds a kernel to a queue, and the GPU runs it later."
# ## Part 2: one diagnosis
#
# A function that runs on a GPU is called a *kernel*. The *host*, the CPU that runs your program, *launches* kernels:
#
# {drawing 02_launch}
#
# An *operator* is a PyTorch function, such as an addition. With a GPU, most operators launch kernels through HIP (AMD's
# GPU runtime) or CUDA. A launch adds work to a *stream*, a queue on the GPU. In the event table, the `kind` column
# contains `annotation` for a *range* (a named part of your script), `operator`, `runtime` (a call to HIP or CUDA),
# `kernel`, `collective` (a kernel that communicates with other GPUs), `copy` and `fill`.
#
# Record a trace of the same training run on your machine. `$EXAMPLE` is its command, and the trainer's
# `--torch-profile` option calls PyTorch's profiler. With a GPU, omit `--batch-size 8`. The run takes about 20 seconds.

# %% language="bash"
# $EXAMPLE --batch-size 8 --max-steps 6 --torch-profile --record-shapes \
#     --run-dir $FOLDER/example

# %%
live = tidyprof.read(
    folder / "example", origin=tidyprof.Origin("measured", "this machine")
)
gpu = live if len(live.device_events) else recorded
totals = tidyprof.phases(live).groupby("phase", observed=True)["duration_ns"].sum()
show_text(f"On your machine, the largest part of a step is `{totals.idxmax()}`.")

# %% [markdown] slide="A step budget divides a step into parts that add up to the step."
# ## The step budget of the device
#
# Without a GPU, the rest of this part uses the H200 trace. A *step budget* divides a step into parts that add up to the
# step. Each moment counts toward the first row that matches it:
#
# | part | moments in which |
# | --- | --- |
# | compute | a kernel (not a collective) or a fill runs |
# | exposed communication, exposed copy | a collective runs; a copy runs |
# | blocked host | the device is out of work, and the host is in a call that allocates, frees, copies or synchronizes |
# | data wait | the device is idle, and the host is in its `data` range |
# | launch-bound idle | the device is out of work, because the host hasn't launched any |
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
# The library's budget for both traced steps:

# %% slide="The budget names the largest part: the GPU waits for data."
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

# %% language="bash"
# cat > $FOLDER/course.cfg <<END
# ROCPROFSYS_TRACE = true
# ROCPROFSYS_PROFILE = true
# ROCPROFSYS_SAMPLING_REALTIME = true
# ROCPROFSYS_SAMPLING_FREQ = 500
# ROCPROFSYS_PROCESS_SAMPLING_FREQ = 10
# ROCPROFSYS_SAMPLING_CPUS = all
# ROCPROFSYS_ROCM_DOMAINS = hip_runtime_api,marker_api,kernel_dispatch,memory_copy
# ROCPROFSYS_PERFETTO_BUFFER_SIZE_KB = 200000
# ROCPROFSYS_TIME_OUTPUT = false
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

# %% slide="While the GPU is idle, the stack shows which function the host is in."
sampled = own_run(folder / "one")
steady = steady_part(sampled)
show_text(
    f"{steady.steps} steady steps; lost data: {sampled.meta['data_loss'] or 'none'}."
)
step = tidyprof.steps(steady.profile).iloc[1]
window = int(step["start_ns"]), int(step["start_ns"] + step["duration_ns"])
title = "Call stacks above the GPU: one step"
show_figure(stacks_over_kernels(steady.profile, *window, title=title))
gaps = tidyprof.gaps(steady.profile)
columns = "duration_us cause host_range after before"
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
seen = []


def look(number, frame):
    codes = [function.f_code for function, _ in traceback.walk_stack(frame)]
    ours = [
        code for code in codes if re.search("cifar_train|torchvision", code.co_filename)
    ]
    seen.append({code.co_qualname for code in ours})


# %%
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
# 3 minutes: record a run whose longest gap is at most half as long, and answer with its folder: `answer = fixed`.
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

# %% slide="Two loader processes make the mean step shorter, but some steps still wait."
recorded = case.measured()
origin = recorded.attrs["origin"]
steps = recorded.query("part == 'steady' and not traced").groupby("options")[
    "duration_ns"
]
runs = steps.agg(steps="size", mean_ns="mean", min_ns="min", max_ns="max").reset_index()
two = runs[runs["options"].isin(["--num-workers 0", "--num-workers 2"])]
columns = "options steps mean_ms min_ms max_ms"
caption = "H200 runs without and with loader processes"
show_table(two, columns, caption, origin=origin)

# %% [markdown]
# ## What limits the H200 run with two loaders?
#
# The next cell lists the step times of that run and the longest gaps in a similar traced run:

# %% slide="With two loaders, the longest gap is still in the range data."
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

# %% slide="Transforming a whole batch at once takes far less time per image."
# As in a loader process
torch.set_num_threads(1)
images = torch.randint(0, 256, (256, 3, 32, 32), dtype=torch.uint8)
alone = min(
    repeat(lambda: torch.stack([PER_IMAGE(image) for image in images]), number=1)
)
together = min(repeat(lambda: BatchTransform(55, 0)(images), number=1))
show_text(
    f"Time per image: {alone / 0.256:.2f} ms alone, {together / 0.256:.2f} ms in a "
    "batch (measured)"
)

# %% [markdown]
# On the H200, the option also moves this work to the GPU. If data were always ready, each step would take
# about as long as the shortest step in the table. With both changes, how many times as fast will the mean step be?

# %%
# solution
batched_guess = 5
# end solution
proflab.predict(
    "03.b", batched_guess, unit="times", what="the speedup of both changes on an H200"
)

# %%
mean_ns = runs.set_index("options")["mean_ns"]
speedup = mean_ns["--num-workers 0"] / mean_ns
loaders, batched = speedup[["--num-workers 2", "--num-workers 2 --batched-transforms"]]
show_text(
    f"Two loaders: {loaders:.1f} times as fast; with batched transforms too: "
    f"{batched:.1f} times"
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
# The path of your script; empty: sort_letters.py
OWN_SCRIPT = ""
shutil.copy(lesson.file("../14_your_own_code/sort_letters.py"), folder)
script = (
    Path(OWN_SCRIPT or folder / "sort_letters.py").expanduser().resolve(strict=True)
)
text = script.read_text()
os.environ |= {"SCRIPT": str(script), "OUT": str(folder.resolve() / "own")}
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

# %% [markdown] slide="One command prints a report about an unmodified script."
# | line | meaning |
# | --- | --- |
# | Verdict | what limits the run, with its share of the step; `inconclusive` if the recorded data can't show it |
# | Why, Next | the reason; what to change first, and where to read more |
# | the table | the parts of a step without the profiler; during *other processes*, another process used the CPU core |
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
# 5 minutes: Which part of the step contains work that the script repeats needlessly, and which function does this
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

# %% language="bash" slide="Run both versions several times, in random order and without a trace."
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
# diff "$OUT/$name.txt" "$OUT/fixed_$name.txt" && echo "Both print the same losses."
# python -m tidyprof gate "$OUT/rounds/$name" "$OUT/rounds/fixed_$name" --paired 2>&1

# %% [markdown] tags=["given"]
# The first line states the verdict, the change in the mean step time, and a *confidence interval*. The change differs
# from round to round, and the interval contains the true change with the stated confidence. If the whole interval is
# below 0%, the fixed version is faster. If the interval contains 0%, the result is `inconclusive`, so you need more
# rounds or a more effective fix.
#
# The `confident` column judges each part in the same way. A short run is mostly startup, so compare step times, not the
# total time.
#
# The next table shows your rounds. If they disagree, because the machine is busy, it shows rounds that we recorded.

# %% slide="Each round compares both versions under the same conditions."
rounds, origin = rounds_to_judge(folder / "own/rounds")
show_table(
    rounds, "round before_ms fixed_ms", "Mean step time per round", origin=origin
)

# %%
# 3 minutes: By what percentage did the fix change the mean step time? Use the table `rounds`, and average over all
# rounds. If the fixed version is faster, the answer is negative.
q = exercise("90.2", rounds)
# solution
answer = 100 * (rounds["fixed_ms"].mean() / rounds["before_ms"].mean() - 1)
# end solution
q.check(answer)

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
