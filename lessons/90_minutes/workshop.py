# %% [markdown]
# # One trace, one diagnosis, one cure
#
# A *profiler* records what another program does, and when. Here you follow one training that is slow from its first trace to a proven cure, then do the same with a script of yours. The sections are those of lessons 00, 02, 03 and 14, and what you answer counts there, too.
#
# After these parts you can
#
# - record a trace of a training, and read where a step goes;
# - tell a GPU that works from one that waits, and name what it waits for;
# - prove a cure by runs without a profiler;
# - let one word in front of a program of yours say where its steps go, and start there.
#
# You need two processor cores and no experience with profilers. An AMD GPU is used where there is one. Each part states its minutes; a script of your own takes ten more: bring it prepared, or take it home. Parts 3 and 4 also run alone, in a fresh kernel, and each cell can be run again later. Where it says *run it unread*, the cells only make what later ones need.

# %% [markdown]
# ## Part 1: one trace
#
# About 12 minutes. Each part begins with a table of what is here; the minutes in it are those of a whole lesson.

# %% [markdown]
# *From [lesson 00](00_start_here.ipynb), for the cells below: run it unread.*

# %%
import proflab
import tidyprof
from proflab import exercise, show_figure, show_text
from tidyprof import plots

lesson_00 = proflab.start("00", within="90_minutes")

# %% [markdown]
# ## How this course works
#
# `real` in the table means that a tool is installed. What is `missing` can wait. `replay` means that a tool
# is missing and the course replays a stored run of it. Run the cells from top to bottom. Files go to a folder of
# their own, `$FOLDER` in commands, and nothing leaves your machine. In an exercise you replace `...` with your answer
# and run the cell; `q.hint()`, `q.hint(2)` and `q.solution()` help. New words are in
# [the glossary](../docs/glossary.md) as well.
#
# Every number says who its witness is. No witness can answer everything:

# %% [markdown] tags=["given"]
# | witness | ask it | don't ask it |
# | --- | --- | --- |
# | *recorded: NVIDIA H200*, a real GPU | how slow the case is, how steps differ, what helped | about AMD's tools |
# | *measured*: your processor | what PyTorch does, in which order, and whether your code is right | how fast a GPU is |
# | AMD's published figures | how fast the same model ran on an MI300X | why |
# | *modeled: MI300X*, computed | what AMD's tools would show | what a cure gains |
#
# What is modeled names its error against AMD's runs. It also [assumes](../docs/gpumodel.md) how long the *loader*, the
# code that reads and prepares the images, takes for one: most of a modeled step of the case rests on that. Runs on the
# H200 were made once or twice.

# %% [markdown]
# ## The case
#
# ResNet-50, a model that classifies images, is trained on CIFAR-100: color photographs of 32 by 32 pixels in a hundred
# classes. It trains on one GPU, 256 images at a time, and somebody says that it is slow. Nothing is tuned, as in AMD's
# own example: you find out what to tune.
#
# The 256 images are a *batch*. Training repeats one *step*:
#
# | part of a step | what happens |
# | --- | --- |
# | data | the next batch is read, changed a little at random, and moved to the device |
# | forward | the model computes its answers |
# | loss | one number says how wrong they are |
# | backward | for each weight of the model: which change would make the loss smaller? |
# | optimizer | each weight is changed a little in that direction |
#
# The *device* is the GPU, or the processor where there is none. Nine lessons take the case from "it is slow" to a
# proven cure. Each ends with what its view can't tell, and that is the question of the next one:
#
# {drawing method}

# %% [markdown]
# ## A first trace
#
# `$EXAMPLE` is the command of the training. `--batch-size 4` keeps a step short on a processor, `--max-steps` ends the run
# early, `--torch-profile` traces the last three steps, and `--run-dir` says where results go. Without the
# data set images are made up; ignore the loss. One line names the *conditions*: model, precision (`automixed`: 16 bits
# where PyTorch finds that safe, else 32; in brackets what it was here), batch size, device. The first steps are
# *warm-up*, the others *steady*.

# %% language="bash"
# $EXAMPLE --batch-size 4 --max-steps 12 --torch-profile --run-dir $FOLDER/first

# %% [markdown]
# A trace has a row for everything that happened, with its begin and its length. The training marks the parts of its
# step. Where does it go? (Dashed: a step of the same run that was not recorded.)

# %%
here = tidyprof.Origin("measured", "this machine")
trace = tidyprof.read(lesson_00.folder / "first/trace_rank0_of_1.json.gz", origin=here)
recorded, phases = tidyprof.steps(trace), tidyprof.phases(trace)
totals = phases.groupby("phase", observed=True)["duration_ns"].sum()
largest, seen_ns = totals.idxmax(), recorded["duration_ns"].sum()
show_figure(plots.step_budget(tidyprof.step_budget(trace), title="Where the recorded steps go"))
show_text(f"{len(trace.events):,} events in {len(recorded)} steps. The largest part: `{largest}`.")

# %%
# 3 minutes: If the largest part took no time at all, how many times as fast would the recorded steps be? Use
# `totals[largest]`, the time of this part over all recorded steps, and `seen_ns`, the time of these steps.
q = exercise("00.1", {"part_ns": totals[largest], "steps_ns": seen_ns})
# solution
answer = seen_ns / (seen_ns - totals[largest])
# end solution
q.check(answer)

# %% [markdown]
# A program that runs on a GPU is called a *kernel*. AI programs are hard to profile, since they have **many layers**:
# your Python calls PyTorch's operators, these call libraries such as MIOpen (convolutions) or hipBLASLt (matrix
# products), and a step runs hundreds of short kernels that others wrote; an HPC program has a few hot ones of its own.
# And they have **many workers**: some processes prepare data, the *host* (the processor with your program) launches
# kernels, the GPUs compute. Each can be the limit, and then the others wait.
#
# A *profile* adds up how often and how long, and stays small. A *trace* says when, and grows with the run.

# %% [markdown]
# ## Part 2: one diagnosis
#
# About 14 minutes; if you are late, take the answer of its exercise from `q.solution()`. On a processor the arithmetic fills the step. Where does the step of a real GPU go?

# %% [markdown]
# *From [lesson 02](02_torch_profiler_timeline.ipynb), for the cells below: run it unread.*

# %%
import proflab

lesson_02 = proflab.start("02", within="90_minutes")

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

# %% [markdown]
# PyTorch's own profiler is a block around the loop: `with profile(...) as prof:`, and `prof.step()` where a step ends. Names for pieces of the loop come from `with record_function("data"):`.

# %% [markdown]
# ## The case, seen by torch.profiler
#
# The trainer has the same block behind the switch `--torch-profile`. These options make it short on a processor; on a
# GPU leave out `--batch-size 8`. Without a GPU the processor does the arithmetic, too, which takes nearly all of the
# step. So the picture below is then that of an H200.

# %% language="bash"
# $EXAMPLE --batch-size 8 --max-steps 6 --torch-profile --record-shapes --run-dir $FOLDER/case

# %%
live = tidyprof.read(lesson_02.folder / "case", origin=tidyprof.Origin("measured", "this machine"))
found = proflab.recording("torch-h200-case-plain")
recorded = tidyprof.read(found.path, origin=found.origin)
gpu = live if len(live.device_events) else recorded
second = int(tidyprof.steps(gpu)["step"].iloc[1])
show_figure(plots.timeline(gpu, step=second, title="One step of the case"))

# %% [markdown]
# Read from the lowest lane: does the stream work while the host is in `data`? *Look closer* zooms to a kernel.

# %% [markdown]
# ## The step budget
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
# 6 minutes, open: A dictionary of parts that add up to `whole_step`, in ns. Call one `compute`, one `data_wait`, in
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
# ## Part 3: one cure
#
# About 25 minutes; if you are late, run *Gaps by hand* without reading its code. The GPU waits while the host is in `data`. (The dashed line is a step without the profiler, which slows the host down; as lesson 02 shows, the verdict holds there.) What does the host do in that time? `rocprof-sys`, AMD's system profiler, looks there: many times a second it interrupts the program and writes down which function called which. `--roctx` gives it the names of the ranges.

# %% [markdown]
# *From [lesson 03](03_rocprof_sys_sampling.ipynb), for the cells below: run it unread.*

# %%
import proflab
import tidyprof
from proflab import case, exercise, show_figure, show_text
from proflab.parts.stacks_over_kernels import stacks_over_kernels
from proflab.parts.steady_part import own_run, steady_part
from tidyprof import plots

lesson_03 = proflab.start("03", within="90_minutes")
fixed = lesson_03.folder / "fixed"

# %% [markdown]
# A *gap* is time in which nothing runs on the GPU. *Loaders* here are processes that prepare batches (`--num-workers`).

# %% [markdown] tags=["given"]
# ## Predict
#
# The case's process prepares its images itself (`--num-workers 0`). Guess a for what you run here: without an AMD GPU
# that is a *modeled* MI300X, and the model assumes 0.14 ms for an image. Guess b for the H200, without a profiler.

# %%
# solution
gap_guess, left_guess = 20, 60
# end solution
proflab.predict("03.a", gap_guess, unit="%", what="what the longest gap takes of a step here")
proflab.predict("03.b", left_guess, unit="%", what="what two loaders leave of an H200's step")

# %% [markdown]
# *From [lesson 03](03_rocprof_sys_sampling.ipynb), for the cells below: run it unread.*

# %% language="bash"
# rocprof-sys-avail -bd -r SAMPLING_REALTIME --advanced
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

# %% [markdown]
# That was a file of settings: call stacks 500 times a second, by the clock, so that threads are seen that sleep; calls of HIP, ranges, kernels and copies, with begin and end.

# %% [markdown]
# ## Capture
#
# The tool knows programs in C, C++, Fortran, HIP, OpenCL and Python. It could also *instrument* one: write probes into
# its machine code, which for Python would land in the interpreter. Sampling leaves the program as it is, and kernels of
# libraries such as rocBLAS or hipBLASLt are traced like others.
#
# Without a GPU, the course replays a modeled MI300X. Every figure then says `modeled`.

# %% language="bash"
# rm -rf $FOLDER/one
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/one \
#     -- $EXAMPLE --max-steps 6 --roctx 2>&1 | grep -v Outputting

# %% [markdown]
# The `.proto` file is the timeline, and the samples are in it. File names end with the number of the process, so a
# second run would join the first: hence `rm`.

# %% [markdown]
# ## First look: stacks above kernels
#
# `own_run` reads the folder, `steady_part` keeps the steps after the warm-up. The picture shows one step: the *call
# stacks* of both threads, callers above what they call, and below them how full the GPU was. A stack is drawn half the
# way to its neighbors, so it may stand beside its range. Functions too short for a name are left out, as in `forward`.

# %%
sampled = own_run(lesson_03.folder / "one")
steady = steady_part(sampled)
lost = f"Lost data: {sampled.meta['data_loss'] or 'none'}."
show_text(f"{steady.steps} steady steps of {steady.step_ns / 1e6:.0f} ms. {lost}")
step = tidyprof.steps(steady.profile).iloc[1]
window = int(step["start_ns"]), int(step["start_ns"] + step["duration_ns"])
show_figure(stacks_over_kernels(steady.profile, *window, title="Call stacks above the GPU: a step"))

# %% [markdown]
# A kernel is narrower than a dot: zoom in before you believe that a timeline is full.

# %%
proflab.perfetto(steady.profile, step=int(step["step"]), title="One steady step")

# %% [markdown]
# ## Gaps by hand
#
# The latest end so far is `cummax`; `shift` moves it to the next row, whose start it meets. In the table
# `amp_update_scale_cuda_kernel` ends a step of mixed precision, `multi_tensor` kernels are the optimizer's.

# %%
works = steady.profile.device_events.query("duration_ns > 0").sort_values("start_ns")
end = works["start_ns"] + works["duration_ns"]
idle = works["start_ns"] - end.cummax().shift(fill_value=works["start_ns"].iloc[0])
by_hand = idle[idle >= 10_000].sort_values(ascending=False)

found = tidyprof.gaps(steady.profile)
assert by_hand.tolist() == found["duration_ns"].tolist()
show_table(found, "duration_us cause host_range host_call after before", "The longest gaps", rows=6)
gap = found.iloc[0]
proflab.reveal("03.a", 100 * gap["duration_ns"] / steady.step_ns, steady.profile)

# %% [markdown] tags=["given"]
# The H200 waited for 87 % of its traced steps (lesson 02). A modeled gap is as long as the loader that the model
# [assumes](../docs/gpumodel.md#what-it-does-not-know): 0.14 ms for an image, where the H200's node took up to 0.88 ms.
# For lengths trust the recording; the model shows where the gap is, and what AMD's tool writes.
#
# `launched late`: the next work was launched only after the GPU had run dry, so the gap was made on the host. `queued`:
# it had been launched before, and the GPU itself needed the time. `host_range` covers most of the gap, `host_call` (a
# HIP call) at least half of it; where it is missing, the host did something else.

# %% [markdown]
# ## The call-stack answer
#
# A *sample* has one row per function in its stack, `depth` 0 being the outermost. The tool stores it as lasting from
# the thread's sample before; it was taken at the end of that time. Choose the main thread, which marks the ranges.

# %%
events = steady.profile.events
samples = events.query("kind == 'sample' and name != '__sigaction'").sort_values("depth")
samples = samples.assign(taken_ns=samples["start_ns"] + samples["duration_ns"])
main_thread = events.query("kind == 'annotation'")["thread"].mode()[0]
times = gap["start_ns"], gap["start_ns"] + gap["duration_ns"]
inside = samples[samples["taken_ns"].between(*times) & (samples["thread"] == main_thread)]
stacks = inside.groupby("sample")["short_name"].agg(" > ".join).value_counts()
show_text("\n".join(f"{count} samples: {stack}" for stack, count in stacks.items()) or "No sample.")

# %% [markdown]
# The long gap is in `__getitem__`, called by `next_batch` on the main thread: the training process fetches its images
# itself, one by one. There the stack ends. That `__getitem__` transforms them, the H200's trace told, by
# `upsample_bilinear2d`; whether it also reads files, neither says.
#
# The model is nicer than reality: it names Python functions. In a real stack each is one more
# `_PyEval_EvalFrameDefault` among C functions; the range says *where*, these say *what*. `rocprof-sys-python` names
# Python functions, but not those of threads that the program starts.

# %% [markdown]
# `__sigaction`, which was left out above, is the tool itself: its interruption ends every stack.

# %% [markdown]
# ## Close the gap
#
# Run the command of *Capture* with another option (`python -m cifar_train --help`) into `$FOLDER/fixed`, which is
# `fixed` in Python, and let the GPU do the same work.

# %% language="bash"
# # solution
# rm -rf $FOLDER/fixed
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/fixed \
#     -- $EXAMPLE --max-steps 6 --roctx --num-workers 2 2>&1 | grep -v Outputting
# # end solution

# %%
# 5 minutes, open: Give the folder of a run in which the largest gap is at most half as long: `answer = fixed`.
q = exercise("03.3", steady)
# solution
# In the cell above, behind `rm -rf $FOLDER/fixed`:
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/fixed \
#     -- $EXAMPLE --max-steps 6 --roctx --num-workers 2
answer = fixed
# end solution
q.check(answer)

# %% [markdown]
# ## The cure, measured
#
# A cure is proven without the tool. On the H200 the case ran four times, with and without *loader processes*, which
# prepare the next batches while the GPU computes. `torch.profiler` was on in some steps of two of these runs; the table
# has the others:

# %%
recorded = case.measured()
steps = recorded.query("part == 'steady' and not profiled and run in ['plain', 'loaders']")
steps = steps.assign(profiler=steps["traced"].map({False: "off", True: "on before"}))
sides = steps.groupby(["options", "profiler"])["duration_ns"]
sides = sides.agg(steps="size", mean_ns="mean", median_ns="median", max_ns="max").reset_index()
columns, origin = "options profiler steps mean_ms median_ms max_ms", recorded.attrs["origin"]
show_table(sides, columns, "Four runs of the case", origin=origin)

means = sides.pivot(index="profiler", columns="options", values="mean_ns")
plain, loaders = means["--num-workers 0"], means["--num-workers 2"]
gain = (plain / loaders)["off"]

# %% [markdown]
# Only the run without a profiler is the run: there two loaders more than halve the mean step. In the other the loaders
# got ahead while the profiler wrote its file, and the cure looks twice as good. Some steps find a batch that is ready,
# others wait long: the mean has both, the median hides it.


# %% [markdown]
# And is it the same training? Lesson 03 proves it: batches of loader processes are equal to the last digit.

# %% [markdown]
# ## Decide
#
# The next question follows the largest wait, or the kernels (05) where no wait is half as long as the computing. If it
# still waits for data, try more loader processes before you go on.


# %%
THEN = {
    "data_wait_ns": ("04", "Here the GPU still waits for data (03.3). And with that cured?"),
    "launch_bound_ns": ("04", "In the model it then waits for launches: which kernels, how many?"),
    "exposed_communication_ns": ("07", "The GPU then waits for other GPUs. For which one?"),
    "compute_ns": ("05", "The GPU then computes: is its largest kernel near its ceiling?"),
}

# %%
cured = steady_part(own_run(fixed)) if fixed.exists() else steady
left = tidyprof.step_budget(cured.profile)[[*THEN]].mean()
wait = left.drop("compute_ns").idxmax()
then, because = THEN[wait if left[wait] > left["compute_ns"] / 2 else "compute_ns"]
proflab.reveal("03.b", 100 / gain, origin)
lesson_03.conclude(
    f"The longest gap, {gap['duration_ns'] / 1e6:.0f} ms of a step of {steady.step_ns / 1e6:.0f} "
    f"ms ({sampled.origin.kind}), lies under `__getitem__`, which the training process calls "
    f"itself. On an H200 two loader processes make the mean step {gain:.1f} times as fast "
    "(recorded, without a profiler).",
    rules_out="the GPU as the reason of that gap: the host makes it",
    because=because,
    next=then,
    origin=f"{steady.profile.origin}; {origin}",
)

# %% [markdown]
# ## Part 4: your own script
#
# About 18 minutes, ten more with a script of yours. The trainer had ranges and switches for all of this. Here is a script without any, which sorts lines of a log by the numbers of their words. The first cell prints it: read its loop. All times from here on are *measured* on your processor.

# %% [markdown]
# *From [lesson 14](14_your_own_code.ipynb), for the cells below: run it unread.*

# %%
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import proflab
from proflab import exercise, show_figure
from proflab.parts.signs_of_life import signs_of_life

lesson_14 = proflab.start("14", within="90_minutes")
folder, HERE = lesson_14.folder, "measured: this machine"
for name in ("their_script.py", "turns.py", "sort_letters.py"):
    shutil.copy(lesson_14.file(name), folder)
print((folder / "their_script.py").read_text())

# %% [markdown]
# ## One word in front
#
# The script as it is, behind `tidyprof run` (most of what it prints is left out here):

# %% language="bash"
# cd $FOLDER
# export OMP_NUM_THREADS=1
# rm -rf unedited  # of an earlier try
# python -m tidyprof run --out unedited -- python their_script.py 2>&1 |
#     grep --line-buffered -v '[1-9]: loss'

# %% [markdown]
# | line | what it says |
# | --- | --- |
# | Verdict | what limits the run, with its share of the step; `inconclusive` if the files can't show it |
# | Why, Next | what shows it, what to change first, and where to read more |
# | the table | how a step divides without the profiler; in *other programs*, another program had the CPU core |
# | Doubt | what speaks against the verdict: other programs need a quiet machine, uneven steps `--steps 10` |
# | Files | a trace, times and machine of each rank: for a viewer, for pandas, for `tidyprof gate` |
#
# `--why` adds the evidence: how steps were found, where the host was in them, and the facts with their tables.
#
# On a quiet machine this script is `no-bottleneck`: nothing waits. That does not say that all its work is needed, since
# no profiler knows what your training can do without. That is for you to find, part by part.
#
# **No magic.** torch calls whom you like after each step of an optimizer. The timing, without the command:

# %% language="bash"
# cd $FOLDER
# cat > by_hand.py << 'END'
# import runpy
# import statistics
# import time
# from torch.optim.optimizer import register_optimizer_step_post_hook
#
# ends = []
# register_optimizer_step_post_hook(lambda *_: ends.append(time.perf_counter()))
# runpy.run_path("their_script.py", run_name="__main__")
# steps = [then - first for first, then in zip(ends[10:], ends[11:])]
# print(f"a step: {1e3 * statistics.mean(steps):.1f} ms, the mean of {len(steps)}")
# END
# OMP_NUM_THREADS=1 python by_hand.py 2>&1 | grep --line-buffered -v '[1-9]: loss'

# %% [markdown]
# The command does so for the first 10 steps (that count for nothing) and 20 more, then runs torch.profiler for three,
# then times 20 again. On a GPU it synchronizes only where such a window begins and ends. Without an optimizer a
# backward pass marks the step, else the call of a module, or what you name: `--step-marker NAME`. A shorter program is told
# which `--skip-steps` fits.

# %% [markdown]
# Lesson 14 finds and cures two faults of that script: work that it need not do, which no profiler calls a fault. Here it is your turn. No script with you? Leave `OWN_SCRIPT` empty: `sort_letters.py` in `runs/90_minutes` stands in for yours, and the cure below is one for it.

# %% [markdown]
# ## Your own script
#
# Now a script of yours, as it is. Make it short and repeatable: 40 steps, a seed, the losses printed with all digits.
# If the GPU is the limit, look at its kernels: `rocprofv3 --kernel-trace --stats --output-format csv` (lesson 04),
# then lesson 05. One cure at a time, five repeats in turns, better nine, the same losses; write down what you expect.
#
# The command ends with `tidyprof triage`, which also reads traces of other makers (`--step-time-ms MS` says how long a
# step takes without the profiler), says what speaks against its verdict, and writes [a page to
# send](../docs/triage.md). `tidyprof gate` compares [repeats before and after](../docs/gate.md). All of it comes with
# tidyprof, which [runs without an installation](../docs/triage.md).


# %% [markdown]
# **The form.** Fill in `OWN_SCRIPT`. While it is empty, the form runs on `sort_letters.py`: another style, with a
# class that trains, a data loader, no optimizer, and a fault of its own. A trainer of a library (transformers,
# Lightning) needs nothing either; where hooks can't name its parts, hand it one of the two callbacks at the end of
# this notebook. They do not run here: Trainer needs `accelerate`, and neither that nor Lightning is part of the course.

# %%
OWN_SCRIPT = ""  # path of yours
LAUNCH = [sys.executable]  # or ["torchrun", "--standalone", "--nproc-per-node", "2"]
script = Path(OWN_SCRIPT or folder / "sort_letters.py").expanduser().resolve(strict=True)


def run(script, to, *options):
    watched = [sys.executable, "-m", "tidyprof", "run", *options, "--out", folder.resolve() / to]
    own, command = os.environ | {"OMP_NUM_THREADS": "1"}, [*watched, "--", *LAUNCH, script.name]
    with signs_of_life(to):
        done = subprocess.run(command, cwd=script.parent, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-800:]
    return done.stdout, done.stderr


# %%
shutil.rmtree(folder / "own", ignore_errors=True)  # of an earlier try
said, screen = run(script, "own/first", "--with-stack")
print(screen)

# %% [markdown]
# **Verdict and cure.** Which part, which function, why? If the verdict is `inconclusive` or not confident, *Next* says
# what to do first. The cure is text of the script, and the text that replaces it. It goes into a copy beside the script, so that
# the two can run in turns, with `--no-trace`: times alone.

# %%
VERDICT = "data: `numbers_of` reads each letter anew in every epoch, in the process that trains"
FIX = {
    "self.letters = list(lines)": "self.letters = [numbers_of(line) for line in lines]",
    "return numbers_of(self.letters[place])": "return self.letters[place]",
}
text = script.read_text()
for old, new in FIX.items():
    assert text.count(old) == 1, f"{old!r} is not there once"
    text = text.replace(old, new)
own_cured = script.with_name(f"cured_{script.name}")
own_cured.write_text(text)
print(f"{own_cured.name} has {len(FIX)} changes")

# %%
shutil.rmtree(folder / "own/turns", ignore_errors=True)
differs = []
for turn in range(1, 6):
    for side, path in random.sample([("before", script), ("cured", own_cured)], 2):
        prints, _ = run(path, f"own/turns/{side}/run{turn}", "--no-trace")
        pairs = zip(said.splitlines(), prints.splitlines(), strict=False)
        differs += [f"{old!r}, now {line!r}" for old, line in pairs if old != line]
print(f"a print differs: {differs[0]}" if differs else "the same prints in all runs")
print(f"verdict: {VERDICT}")

# %% language="bash"
# python -m tidyprof gate $FOLDER/own/turns/before $FOLDER/own/turns/cured --paired 2>&1

# %% [markdown]
# A print that differs may be a time. A loss may differ only if the cure deals the data out in another way: then
# compare final losses over several seeds. Is one rank slower? `triage` names it; compare what its batches hold.
#
# The gate compares steps. A short run is mostly start-up, so its seconds say little about a long one.

# %% [markdown]
# ## Where to go from here
#
# The course begins with [lesson 00](00_start_here.ipynb), which asks whether you can trust the clock that all of this rests on; what is done here needs no second time. [Lesson 04](04_rocprofv3_kernel_stats.ipynb) goes on where the wait is cured: which kernels are left? [Lesson 14](14_your_own_code.ipynb) takes a script from the clock to the line of Python, on two ranks.

# %% [markdown]
# ## At work, without this course
#
# First `python -m tidyprof run -- python train.py`, or without tidyprof the hook of torch above. Where hooks can't name
# your parts, this block:
#
# {snippet 14_instrument_me.py}
#
# The same where a library has the loop:
#
# {snippet 14_callbacks.py}
#
# And the check list as a job for Slurm, with the questions in their order; fill in account and command:
#
# {snippet 14_check_list.sh}

# %% [markdown]
# Next question: yours.

# %% [markdown]
# The step budget of part 2, with pandas alone:
#
# {snippet 02_step_budget.py}
