# %% [markdown]
# # What is the CPU doing while the GPU waits?
#
# A step budget shows how long the GPU waits, but not why. In lesson 02, half of the range `data` was outside any
# operator. AMD's system profiler, `rocprof-sys`, can look there: many times per second, it interrupts the program and
# records which function called which.
#
# After this lesson, you can:
#
# - record the CPU's call stacks next to the GPU's timeline;
# - find the GPU's idle gaps, and the functions behind them;
# - explain what call-stack samples can't show;
# - choose a fix from the evidence, and check it without a profiler.
#
# **Before you start:** complete lessons 00 and 02. Commands and settings apply to ROCm 6.4 through {newest rocm}
# ([what changed](../docs/releases.md)). The lesson uses an AMD GPU if your machine has one.

# %%
import proflab
import tidyprof
from proflab import case, exercise, show_figure, show_table, show_text
from proflab.parts.stacks_over_kernels import stacks_over_kernels
from proflab.parts.steady_part import own_run, steady_part
from tidyprof import plots

lesson = proflab.start("03")
fixed = lesson.folder / "fixed"
lesson.findings()

# %%
lesson.recall()

# %% [markdown] tags=["given"]
# ## The picture to keep in mind
#
# | | tracing | sampling |
# | --- | --- | --- |
# | looks at | every HIP call, kernel and copy | each thread, many times per second |
# | stores | start and end | a *sample*: the *call stack*, which is the running function, its caller, and so on |
# | shows | how often and how long | what was running, even outside any HIP call |
# | misses | what happens between the calls | what happens between the samples |
#
# `rocprof-sys` does both. Tracing finds a *gap*, which is time when nothing runs on the GPU, and samples explain it.
#
# ## Predict
#
# In the example run, the training process prepares its own images (`--num-workers 0`). Without an AMD GPU, this lesson
# replays a *modeled* MI300X, and the model assumes 0.14 ms per image. How much of a step does the longest gap take?

# %%
# solution
gap_guess = 20
# end solution
proflab.predict("03.a", gap_guess, unit="%", what="the longest gap's share of a step here")

# %% [markdown]
# ## Mark ranges in your own script
#
# AMD's tools read range names from the ROCTX library, which `torch.cuda.nvtx` calls in PyTorch for ROCm.
# `snippets/03_ranges.py` wraps its `range_push` and `range_pop`. The trainer's `--roctx` option marks each step
# (`ProfilerStep#0`) and its parts (`data`, `forward` and so on).
#
# ## Choose the settings
#
# Keep the settings in a file, which a job script can name and the results include. `rocprof-sys-avail -G FILE
# --advanced` writes all settings with their defaults, and `-bd -r NAME` explains one.
#
# | setting | meaning |
# | --- | --- |
# | `TRACE`, `PROFILE` | Write a Perfetto timeline; write sums. From ROCm 10.1, the default is a database (`USE_ROCPD`). |
# | `SAMPLING_REALTIME` | Sample by wall-clock time. The default, CPU time, misses a sleeping thread. |
# | `SAMPLING_FREQ` | Samples per second of each thread |
# | `SAMPLING_CPUS` | CPU cores whose frequency is recorded |
# | `ROCM_DOMAINS` | What to trace in ROCm; everything else is off |
# | `PERFETTO_BUFFER_SIZE_KB` | Memory for the trace. Once it is full, the *end* of the run is lost. |
# | `TIME_OUTPUT` | Name the output folder after the current minute |
#
# Memory, page faults and context switches are always recorded. For hardware counters, `rocprof-sys-avail -H -c GPU` lists
# the names for `ROCPROFSYS_ROCM_EVENTS`, and `-H -c CPU` lists those for `ROCPROFSYS_PAPI_EVENTS`, which require a
# `perf_event_paranoid` of at most 2.

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
# ## Capture
#
# The tool supports C, C++, Fortran, HIP, OpenCL and Python. It could also *instrument* a program by writing probes into
# its machine code, but for Python they would land in the interpreter. Sampling leaves the program as it is. Kernels
# of libraries, such as rocBLAS and hipBLASLt, are traced like all others.
#
# `rocprof-sys-sample` records call stacks, and `rocprof-sys-run` doesn't. Without a GPU, the course replays a modeled
# MI300X, and each figure is labeled `modeled`.

# %% language="bash"
# rm -rf $FOLDER/one
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/one \
#     -- $EXAMPLE --max-steps 6 --roctx 2>&1 | grep -v Outputting

# %% [markdown]
# The `.proto` file contains the timeline and the samples. Without `rm`, a second run would add more files, because file
# names end with the process ID.
#
# ## First look: call stacks above the GPU
#
# `own_run` reads the folder, and `steady_part` keeps the steps after the warm-up. The figure shows one step: the call
# stacks of two threads, with callers above the functions that they call, and below them the share of time when the GPU
# was busy. Functions that are too short for a name are left out.

# %%
sampled = own_run(lesson.folder / "one")
steady = steady_part(sampled)
show_text(f"{steady.steps} steady steps; lost data: {sampled.meta['data_loss'] or 'none'}.")
step = tidyprof.steps(steady.profile).iloc[1]
window = int(step["start_ns"]), int(step["start_ns"] + step["duration_ns"])
show_figure(
    stacks_over_kernels(steady.profile, *window, title="Call stacks above the GPU: one step")
)

# %% [markdown]
# Kernels are narrower than a pixel here, so zoom in:

# %%
proflab.perfetto(steady.profile, step=int(step["step"]), title="One steady step")

# %% [markdown]
# ## Find the gaps
#
# `tidyprof.gaps` lists the gaps and what the CPU did in each. In the columns `after` and `before`,
# `amp_update_scale_cuda_kernel` ends a step in mixed precision, and `multi_tensor` kernels belong to the optimizer.

# %%
gaps = tidyprof.gaps(steady.profile)
show_table(gaps, "duration_us cause host_range host_call after before", "The longest gaps", rows=6)
gap = gaps.iloc[0]
proflab.reveal("03.a", 100 * gap["duration_ns"] / steady.step_ns, steady.profile)

# %% [markdown] tags=["given"]
# | column | meaning |
# | --- | --- |
# | `cause`: `launched late` | The CPU launched the next work only after the GPU had run out of work. The CPU made the gap. |
# | `cause`: `queued` | The next work was already launched, and the GPU itself needed the time. |
# | `host_range` | The range that covers most of the gap |
# | `host_call` | The HIP call that covers at least half of it. If empty, the CPU did something else. |
#
# > **Note:** The H200 waited for data for 87% of its traced steps (lesson 02). The model
# > [assumes](../docs/gpumodel.md#what-it-does-not-know) 0.14 ms per image, but the CPU in front of the H200 needed up to
# > 0.87 ms. For lengths, trust the H200. The model shows where the gap is and what AMD's tool writes.

# %% [markdown]
# ## Which function is in the gap?
#
# The table of events has one row for each function in a sample's stack, and `depth` 0 is the outermost function. The
# tool stores a sample as lasting from the thread's previous sample, so it was taken at the *end* of that time. Select
# the main thread, which marks the ranges:

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
# The long gap is in `__getitem__`, which `next_batch` calls on the main thread. The training process fetches its images
# itself, and the modeled stack ends there.
#
# > **Note:** A real stack shows each Python function as `_PyEval_EvalFrameDefault` among C functions, so use the
# > ranges for orientation. `rocprof-sys-python` names Python functions, except in threads that the program starts.
#
# ## Measure the stack on your own CPU
#
# What does the trainer do below `__getitem__`? Sample its data loader on your CPU, which takes about ten seconds on two
# cores. A timer interrupts the program 200 times per second. Then Python calls `look` with the running function, and
# `walk_stack` finds its callers. The cell keeps the functions of the trainer and of torchvision.

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
# `Batches.__getitems__` fetches a batch. Below it, torchvision transforms a single image in each call to
# `Compose.forward`, which fits the H200's `upsample_bilinear2d` for each image. `SyntheticImages.index_select` makes the
# images in memory, so no file is read.
#
# ## Function above, kernel below
#
# What did the GPU run when a function was sampled? `merge_asof` finds the last kernel that started before each sample:

# %%
import pandas as pd

innermost = samples.groupby("sample").last().sort_values("taken_ns")
work = steady.profile.device_events.sort_values("start_ns")
kernels = work[["short_name"]].rename(columns={"short_name": "kernel"}).astype(str)
kernels["taken_ns"], kernels["end_ns"] = work["start_ns"], work["start_ns"] + work["duration_ns"]
pairs = pd.merge_asof(innermost, kernels, on="taken_ns").astype({"short_name": str})
pairs = pairs[pairs["taken_ns"] < pairs["end_ns"]].value_counts(["short_name", "kernel"])
pairs, columns = pairs.rename("samples").reset_index(), "short_name kernel samples"
show_table(pairs, columns, "Function above, kernel below", rows=8, origin=sampled.origin)

# %% [markdown]
# No kernel runs below `__getitem__`, so it isn't in the table. The short gaps have another cause: on a GPU, PyTorch runs
# the backward pass on its own thread, which launches kernels one by one. Meanwhile, the main thread sleeps in
# `pthread_cond_wait`.
#
# ## Trap: samples are not calls
#
# Here are HIP calls, traced and sampled. `expected` is their total time multiplied by 500 samples per second:

# %%
calls = events.query("kind == 'runtime'").astype({"name": str}).groupby("name")["duration_ns"]
both = calls.agg(calls="size", total_ns="sum")
both["samples"] = samples.astype({"name": str}).groupby("name")["sample"].nunique()
both["expected"] = (both["total_ns"] * 500 / 1e9).round(1)
both = both.fillna({"samples": 0}).astype({"samples": int}).nlargest(5, "total_ns").reset_index()
columns, caption = "name calls total_ms samples expected", "HIP calls of the steady steps, two ways"
show_table(both, columns, caption, origin=sampled.origin)

# %% [markdown]
# One long call and a thousand short calls get about the same number of samples, so samples show a share of the time,
# never a number of calls. If you see *n* samples, another run may differ by the square root of *n*.
#
# A share becomes a time, because each sample represents one second divided by the frequency. In the next run, images
# are slow to read:

# %% language="bash"
# rm -rf $FOLDER/unseen
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/unseen \
#     -- $EXAMPLE --max-steps 8 --batch-size 16 --roctx --inject-fault slow-loader \
#     --batched-transforms 2>&1 | grep -v Outputting

# %%
# 3 minutes: how many milliseconds does this program sleep per image? Use only the samples of `unseen`. The name of the
# innermost function contains `sleep`, the frequency is 500 samples per second, and a step has 16 images.
unseen = steady_part(own_run(lesson.folder / "unseen"))
q = exercise("03.1", unseen)
# solution
rows = unseen.profile.events.query("kind == 'sample'")
asleep = rows[rows["name"].str.contains("sleep")]["sample"].nunique()
answer = 1000 * asleep / 500 / (unseen.steps * 16)
# end solution
q.check(answer)

# %% [markdown]
# ## Two more traps in a real trace
#
# This trace of a small training run was recorded on a CPU. Which function is most often the innermost one?

# %%
there = proflab.recording("rocprof-sys-cpu")
real = tidyprof.read(there.path, origin=there.origin)
tree = tidyprof.call_stacks(real)
own = tree.groupby("short_name")["self_count"].sum().sort_values(ascending=False)
show_text(f"In `{own.index[0]}`: {own.iloc[0]} of {real.events['sample'].nunique()} samples.")
show_table(tree.query("depth == 0"), "short_name percent", "Roots", rows=4, origin=real.origin)

# %% [markdown]
# **The tool samples itself.** Its signal handler is the innermost *frame*, or entry, of every stack.
# `without=["__sigaction"]` removes the frame, and with it the time of samples that contain nothing else.
#
# **Stacks are cut.** A program starts in `__libc_start_main`, so there should be one root. However, the tool keeps a
# limited number of frames, counted from the inside, and a deeper stack loses its outer end.
#
# To compare cut stacks, start all of them at a function that you know, such as `run_backward`, the C++ function that
# starts a backward pass. In the *icicle* below, callers are above the functions that they call, and widths are shares of
# the time. "…" replaces functions that only call the one that is named.

# %%
backward = tidyprof.call_stacks(real, root="run_backward", without=["__sigaction"])
title = "What the CPU does in the backward pass"
show_figure(plots.call_stacks(backward, levels=4, smallest_percent=3, title=title))

# %%
# 3 minutes: what share of all sampled time in `real`, in percent, is in the backward pass? Add up `total_ns` of the
# outermost functions (`depth` 0) to get the total time of a tree.
q = exercise("03.2", real)
# solution
whole = tidyprof.call_stacks(real).query("depth == 0")["total_ns"].sum()
part = tidyprof.call_stacks(real, root="run_backward").query("depth == 0")["total_ns"].sum()
answer = 100 * part / whole
# end solution
q.check(answer)

# %% [markdown]
# ## Fix 1: load the images in other processes
#
# *Loader processes* prepare the next batches while the GPU computes. Run the command from *Capture* with one more option
# (`python -m cifar_train --help` lists them), and write to `$FOLDER/fixed`. The GPU must do the same work.

# %% language="bash"
# # solution
# rm -rf $FOLDER/fixed
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/fixed \
#     -- $EXAMPLE --max-steps 6 --roctx --num-workers 2 2>&1 | grep -v Outputting
# # end solution

# %%
# 3 minutes, open: give the folder of a run whose longest gap is at most half as long: `answer = fixed`.
q = exercise("03.3", steady)
# solution
# In the cell above, after `rm -rf $FOLDER/fixed`:
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/fixed \
#     -- $EXAMPLE --max-steps 6 --roctx --num-workers 2
answer = fixed
# end solution
q.check(answer)

# %% [markdown]
# Check a fix without the profiler. This table has H200 runs without a trace:

# %%
recorded = case.measured()
origin = recorded.attrs["origin"]
steps = recorded.query("part == 'steady' and not traced").groupby("options")["duration_ns"]
runs = steps.agg(steps="size", mean_ns="mean", min_ns="min", max_ns="max").reset_index()
two = runs[runs["options"].isin(["--num-workers 0", "--num-workers 2"])]
columns, caption = (
    "options steps mean_ms min_ms max_ms",
    "The H200 without and with loader processes",
)
show_table(two, columns, caption, origin=origin)

# %% [markdown]
# ## What limits the H200 run with two loaders?
#
# Here are its steps one by one, and the longest gaps in a trace with two loaders:

# %%
times_ms = steps.get_group("--num-workers 2") / 1e6
show_text(f"Steps with two loaders, in ms: {', '.join(f'{ms:.0f}' for ms in times_ms)}")
h200 = proflab.recording("torch-h200-case-loaders")
traced = tidyprof.read(h200.path, origin=h200.origin)
columns = "duration_us cause host_range after before"
show_table(tidyprof.gaps(traced), columns, "The longest gaps with two loaders", rows=3)

# %% [markdown]
# Still data. Two processes prepare two batches side by side, so a step that finds a batch is short, and the next one
# waits long. The longest gap in the trace is also in `data`.
#
# More processes need more CPU cores. Your stacks point to a cheaper way: torchvision transforms each image alone, but
# `--batched-transforms` hands the whole batch to each operator. Compare the two on your CPU:

# %%
from timeit import timeit

import torch
from cifar_train.data.transforms import PER_IMAGE, BatchTransform

images = torch.randint(0, 256, (256, 3, 32, 32), dtype=torch.uint8)
alone = timeit(lambda: torch.stack([PER_IMAGE(image) for image in images]), number=1)
together = timeit(lambda: BatchTransform(55, 0)(images), number=1)
show_text(
    f"Per image: {alone / 0.256:.2f} ms alone, {together / 0.256:.2f} ms in a batch (measured)"
)

# %% [markdown]
# On the H200, `--batched-transforms` also moves this work to the GPU. If data were always ready, each step would be about
# as short as the fastest one in the table. How many times as fast as the first run will the mean step be with both changes?

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
    f"Two loaders: {loaders:.1f} times as fast; with batched transforms: {batched:.1f} times."
)
proflab.reveal("03.b", batched, origin)

# %% [markdown]
# The random numbers of batched transforms differ. Lesson 08 proves that the model still trains.
#
# ## Several ranks
#
# Put the tool inside the launcher: `srun -n 4 rocprof-sys-run -c FILE -- python ...`. Each recorded call delays a rank,
# and then all ranks wait. Measure communication with a lighter tool (lesson 07).
#
# ## Decide
#
# The training process prepared its images one by one, and both fixes follow from that. No H200 trace shows what limits
# the run now, so the next lesson turns to a GPU that got its data faster.

# %%
lesson.conclude(
    f"The longest gap, {gap['duration_ns'] / 1e6:.0f} of {steady.step_ns / 1e6:.0f} ms per step "
    f"({sampled.origin.kind}), is in `__getitem__`, and stacks on this CPU show that it transforms "
    "images one by one. On an H200, two loader processes make the mean step "
    f"{loaders:.1f} times as fast, and batched transforms {batched:.1f} times.",
    rules_out="the GPU as the cause of that gap, because the CPU makes it",
    because="With data on time, which kernels run, how many, and how small are they?",
    next="04",
    origin=f"{steady.profile.origin}; {origin}",
)

# %% [markdown] tags=["given"]
# ## Three takeaways
#
# - Tracing finds a gap on the GPU, and call-stack samples show which function runs on the CPU in the meantime.
# - Samples measure shares of time, so never read them as numbers of calls.
# - A fix follows from the evidence, and only a run without the profiler shows its speedup.
#
# ## What this view cannot see
#
# - **Operators, shapes and the quality of a kernel:** see lessons 02 and 05.
# - **Functions without symbols:** they appear under the nearest function that has one, which can be wrong.
#   [Compile][tips] your own C++ code with `-g1` and with optimization.
# - **The real duration:** sampling slows the run down, so don't use its times.
#
# - **Some data loaders:** [workers can crash](../docs/known-issues.md#dataloader-workers-crash-under-sampling).
#
# [tips]: https://rocm.docs.amd.com/projects/rocprofiler-systems/en/latest/how-to/general-tips-using-rocprof-sys.html

# %% [markdown]
# ## At work, without this course
#
# {snippet 03_ranges.py}
#
# Mark ranges in any training loop. Without ROCTX, it only prints one line.
#
# {snippet 03_sample.sh}
#
# Record any program with these settings.
#
# {snippet 03_wall_clock.py}
#
# Turn the sums from `ROCPROFSYS_PROFILE` into a table with count, mean, minimum, maximum and standard deviation. If the
# deviation is larger than the mean, the calls are of several kinds, and the mean describes none of them.
#
# Read on: [AMD's rocprof-sys manual](https://rocm.docs.amd.com/projects/rocprofiler-systems/en/latest/).

# %% [markdown]
# Next question: which kernels run, how often, and how small are they?
