# %% [markdown]
# # What is the CPU doing while the GPU waits?
#
# A step budget shows how long the GPU waits, but not why. In lesson 02, half of the time in the `data` range was
# outside any operator. AMD's system profiler, `rocprof-sys`, can show what happens there because it interrupts the
# program many times per second and records its call stacks.
#
# After this lesson, you can:
#
# - record CPU call stacks alongside the GPU timeline;
# - find idle gaps on the GPU and the functions that cause them;
# - explain what call-stack samples can't show;
# - choose a fix based on the evidence, and check it without a profiler.
#
# **Before you start:** complete lessons 00 and 02. The commands and settings work with ROCm 6.4 through {newest rocm}
# ([changes](../docs/releases.md)).

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

# %% [markdown] tags=["given"] slide="Tracing records every call. Sampling looks at the program many times per second."
# ## The picture to keep in mind
#
# | | tracing | sampling |
# | --- | --- | --- |
# | observes | every HIP call, kernel and copy | each thread, many times per second |
# | stores | the start and end | a *sample* of the *call stack*: the running function, its caller, and so on |
# | shows | how often and how long something runs | what was running, even outside HIP calls |
# | misses | what happens between calls | what happens between samples |
#
# `rocprof-sys` does both. Tracing finds each *gap* (a time when nothing runs on the GPU), and samples help explain it.
#
# ## Predict
#
# In the example run, the training process prepares its own images (`--num-workers 0`). Without an AMD GPU, the lesson
# replays a *modeled* MI300X run, which assumes 0.14 ms of preparation per image. What share of a step does the longest
# gap take up?

# %%
# solution
gap_guess = 20
# end solution
proflab.predict("03.a", gap_guess, unit="%", what="the longest gap's share of a step")

# %% [markdown] slide="Settings select the sampling rate and what else is traced."
# ## Mark ranges in your own script
#
# AMD's tools get range names from the ROCTX library. In PyTorch for ROCm, `torch.cuda.nvtx` calls this library, and
# `snippets/03_ranges.py` wraps its `range_push` and `range_pop` functions. The trainer's `--roctx` option marks each
# step (`ProfilerStep#0`) and its parts (`data`, `forward` and so on).
#
# ## Choose the settings
#
# Keep the settings in a file that job scripts can use. `rocprof-sys-avail -G FILE --advanced` writes all default
# settings to a file, and `-bd -r NAME` explains a single setting.
#
# | setting | meaning |
# | --- | --- |
# | `TRACE`, `PROFILE` | A Perfetto timeline; total times. Since ROCm 10.1, the default is a database (`USE_ROCPD`). |
# | `SAMPLING_REALTIME` | Sample by wall-clock time. The default, CPU time, misses sleeping threads. |
# | `SAMPLING_FREQ` | Samples per second and thread |
# | `PROCESS_SAMPLING_FREQ`, `SAMPLING_CPUS` | Sensor samples per second; cores whose frequency to record |
# | `ROCM_DOMAINS` | ROCm events to trace |
# | `PERFETTO_BUFFER_SIZE_KB` | Memory for the trace. Once it is full, the *end* of the run is lost. |
# | `TIME_OUTPUT` | Name the output folder after the current time |
#
# Memory use, page faults and context switches are recorded by default. To record hardware counters, `rocprof-sys-avail -H
# -c GPU` lists the names for `ROCPROFSYS_ROCM_EVENTS`, and `-H -c CPU` lists the names for `ROCPROFSYS_PAPI_EVENTS`.
# PAPI events require a `perf_event_paranoid` setting of at most 2.

# %% language="bash"
# rocprof-sys-avail -bd -r SAMPLING_REALTIME --advanced 2>&1
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

# %% [markdown]
# ## Capture
#
# The tool supports C, C++, Fortran, HIP, OpenCL and Python. It can also *instrument* a program by inserting probes into
# its machine code, but for Python, they would end up in the interpreter. Sampling doesn't modify the program. Library
# kernels, such as those from rocBLAS and hipBLASLt, are traced like all others.
#
# `rocprof-sys-sample` records call stacks, whereas `rocprof-sys-run` doesn't.

# %% language="bash"
# rm -rf $FOLDER/one
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/one \
#     -- $EXAMPLE --max-steps 6 --roctx 2>&1 | grep -v Outputting

# %% [markdown]
# The `.proto` file contains the timeline and the samples.
#
# ## First look: call stacks above the GPU
#
# `own_run` reads the folder, and `steady_part` keeps only the steps after the warm-up. For one step, the figure shows
# the call stacks of two threads, with callers above the functions that they call, and the GPU's busy share below.

# %% slide="While the GPU is idle, the stack shows which function the host is in."
sampled = own_run(lesson.folder / "one")
steady = steady_part(sampled)
show_text(
    f"{steady.steps} steady steps; lost data: {sampled.meta['data_loss'] or 'none'}."
)
step = tidyprof.steps(steady.profile).iloc[1]
window = int(step["start_ns"]), int(step["start_ns"] + step["duration_ns"])
title = "Call stacks above the GPU: one step"
loading = tidyprof.phases(steady.profile).query("phase == 'data'")["duration_ns"]
text = f"up to {loading.max() / 1e6:.0f} ms in `data`"
figure = stacks_over_kernels(steady.profile, *window, title=title)
show_figure(figure, (text, (20, 0.5), (0.5, 1.08)))

# %% [markdown]
# Zoom in:

# %%
proflab.perfetto(steady.profile, step=int(step["step"]), title="One steady step")

# %% [markdown]
# ## Find the gaps
#
# `tidyprof.gaps` lists the gaps and what the CPU did during each one. In mixed precision, a step ends with
# `amp_update_scale_cuda_kernel`. The `multi_tensor` kernels belong to the optimizer.

# %% slide="Each gap has a cause, a range and a call before it."
gaps = tidyprof.gaps(steady.profile)
show_table(
    gaps,
    "duration_us cause host_range host_call after before",
    "The longest gaps",
    rows=6,
)
gap = gaps.iloc[0]
proflab.reveal("03.a", 100 * gap["duration_ns"] / steady.step_ns, steady.profile)

# %% [markdown] tags=["given"] slide="The columns of a gap tell whether the CPU launched the next work too late."
# | column | meaning |
# | --- | --- |
# | `cause`: `launched late` | The CPU caused the gap. It launched the next work after the GPU had run out of work. |
# | `cause`: `queued` | The next work had already been launched, so the GPU itself needed the time. |
# | `host_range` | The range that covers most of the gap |
# | `host_call` | The HIP call that covers at least half of the gap. If it is empty, the CPU did something else. |
#
# > **Note:** The H200's CPU needed up to 0.87 ms per image, not the
# > [assumed](../docs/contributors/gpumodel.md#what-it-does-not-know) 0.14 ms, so don't trust the modeled durations.

# %% [markdown]
# ## Which function is in the gap?
#
# The event table has one row for each function in the stack of a sample, and the outermost function has `depth` 0. A
# sample is stored as an interval that starts at the thread's previous sample, so the sample was taken at the *end* of
# the interval. Select the main thread:

# %% slide="Samples inside the longest gap name the function that the GPU waits for."
events = steady.profile.events
samples = events.query("kind == 'sample' and name != '__sigaction'").sort_values(
    "depth"
)
samples = samples.assign(taken_ns=samples["start_ns"] + samples["duration_ns"])
main_thread = events.query("kind == 'annotation'")["thread"].mode()[0]
times = gap["start_ns"], gap["start_ns"] + gap["duration_ns"]
inside = samples[
    samples["taken_ns"].between(*times) & (samples["thread"] == main_thread)
]
stacks = inside.groupby("sample")["short_name"].agg(" > ".join).value_counts()
show_text(
    "\n".join(f"{count} samples: {stack}" for stack, count in stacks.items())
    or "No sample."
)

# %% [markdown]
# During the long gap, the main thread is in `__getitem__`, which `next_batch` calls. Thus, the training process fetches
# its images itself. The modeled stack ends there.
#
# > **Note:** In a real stack, each Python function appears as `_PyEval_EvalFrameDefault` among C functions, so use the
# > ranges for orientation. `rocprof-sys-python` shows the names of Python functions, except in threads that the program
# > starts.
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
    ours = [
        code for code in codes if re.search("cifar_train|torchvision", code.co_filename)
    ]
    seen.append({code.co_qualname for code in ours})


# %% slide="Measured on your own CPU: the transforms take most of the time, image by image."
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
#
# ## Function above, kernel below
#
# What was the GPU running when a function was sampled? `merge_asof` finds the last kernel that started before each
# sample:

# %% slide="A function and the kernel below it, in the same moment."
import pandas as pd

innermost = samples.groupby("sample").last().sort_values("taken_ns")
work = steady.profile.device_events.sort_values("start_ns")
kernels = work[["short_name"]].rename(columns={"short_name": "kernel"}).astype(str)
kernels["taken_ns"] = work["start_ns"]
kernels["end_ns"] = work["start_ns"] + work["duration_ns"]
pairs = pd.merge_asof(innermost, kernels, on="taken_ns").astype({"short_name": str})
pairs = pairs[pairs["taken_ns"] < pairs["end_ns"]].value_counts(
    ["short_name", "kernel"]
)
pairs, columns = pairs.rename("samples").reset_index(), "short_name kernel samples"
show_table(
    pairs, columns, "Sampled functions and their kernels", rows=8, origin=sampled.origin
)

# %% [markdown]
# No kernel runs during `__getitem__`, so this function isn't in the table. Many short gaps have another cause. On a GPU,
# PyTorch runs the backward pass in a separate thread, which launches kernels one by one. Meanwhile, the main thread
# sleeps in `pthread_cond_wait`.
#
# ## Trap: samples are not calls
#
# The table shows HIP calls that were both traced and sampled. The `expected` column is the total time multiplied by 500
# samples per second:

# %% slide="A call that is short and frequent has many calls, but few samples."
calls = (
    events.query("kind == 'runtime'")
    .astype({"name": str})
    .groupby("name")["duration_ns"]
)
both = calls.agg(calls="size", total_ns="sum")
both["samples"] = samples.astype({"name": str}).groupby("name")["sample"].nunique()
both["expected"] = (both["total_ns"] * 500 / 1e9).round(1)
both = (
    both.fillna({"samples": 0})
    .astype({"samples": int})
    .nlargest(5, "total_ns")
    .reset_index()
)
columns = "name calls total_ms samples expected"
caption = "HIP calls, traced and sampled"
show_table(both, columns, caption, origin=sampled.origin)

# %% [markdown]
# One long call gets about as many samples as a thousand short calls with the same total time, so samples show a share
# of the time, never a call count. With *n* samples, runs differ by about the square root of *n*.
#
# To convert samples to time, divide their number by the sampling frequency. In the next run, reading an image is slow:

# %% language="bash"
# rm -rf $FOLDER/unseen
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/unseen \
#     -- $EXAMPLE --max-steps 8 --batch-size 16 --roctx --inject-fault slow-loader \
#     --batched-transforms 2>&1 | grep -v Outputting

# %%
# 3 minutes: how many milliseconds does this program sleep per image? Use only the samples in `unseen`. While the
# program sleeps, the innermost function has `sleep` in its name. The frequency is 500 samples per second, and a step
# has 16 images.
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
# The next trace shows a small training run on a CPU. Which function is most often the innermost one?

# %%
there = proflab.recording("rocprof-sys-cpu")
real = tidyprof.read(there.path, origin=there.origin)
tree = tidyprof.call_stacks(real)
own = tree.groupby("short_name")["self_count"].sum().sort_values(ascending=False)
show_text(
    f"`{own.index[0]}`, in {own.iloc[0]} of {real.events['sample'].nunique()} samples"
)
show_table(
    tree.query("depth == 0"),
    "short_name percent",
    "Tree roots",
    rows=4,
    origin=real.origin,
)

# %% [markdown]
# **The tool samples itself.** Its signal handler is the innermost *frame* (entry) of every stack.
# `without=["__sigaction"]` removes this frame, along with the time of samples that contain nothing else.
#
# **Stacks are cut.** Every program starts in `__libc_start_main`, so the tree should have one root. However, the tool
# keeps only a limited number of innermost frames, so deep stacks lose their outermost functions.
#
# To compare cut stacks, start all of them at a function that you know, such as `run_backward`, the C++ function that
# starts a backward pass. In the *icicle plot* below, callers are above the functions that they call, and the width of a
# box shows its share of the time. "…" stands for functions that only call the next one.

# %% slide="During the backward pass, the largest self time is marked in orange."
backward = tidyprof.call_stacks(real, root="run_backward", without=["__sigaction"])
title = "What the CPU does during the backward pass"
show_figure(plots.call_stacks(backward, levels=4, smallest_percent=3, title=title))

# %%
# 3 minutes: what percentage of all sampled time in `real` does the backward pass account for? To get the total time of
# a tree, add up `total_ns` of its outermost functions (`depth` 0).
q = exercise("03.2", real)
# solution
whole = tidyprof.call_stacks(real).query("depth == 0")["total_ns"].sum()
part = (
    tidyprof.call_stacks(real, root="run_backward")
    .query("depth == 0")["total_ns"]
    .sum()
)
answer = 100 * part / whole
# end solution
q.check(answer)

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

# %% slide="Two loaders make the mean step shorter, but not each step."
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

# %% slide="The longest gap with two loaders is still in the range data."
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
# More processes need more CPU cores. Your stacks suggest another fix: `--batched-transforms` applies each operator to
# the whole batch instead of a single image. Compare both on your CPU:

# %% slide="The same transforms take a fraction of the time when they handle a whole batch."
from timeit import repeat

import torch
from cifar_train.data.transforms import PER_IMAGE, BatchTransform

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

# %% slide="Both fixes together are worth more than each one alone."
mean_ns = runs.set_index("options")["mean_ns"]
speedup = mean_ns["--num-workers 0"] / mean_ns
loaders, batched = speedup[["--num-workers 2", "--num-workers 2 --batched-transforms"]]
show_text(
    f"Two loaders: {loaders:.1f} times as fast; with batched transforms too: "
    f"{batched:.1f} times"
)
proflab.reveal("03.b", batched, origin)

# %% [markdown]
# Batched transforms use different random numbers. Lesson 08 shows that the network still trains.
#
# Is data still the limit? Compare this step with a step of only 4 images on the same H200:

# %%
both, four = mean_ns[
    ["--num-workers 2 --batched-transforms", "--num-workers 2 --batch-size 4"]
]
show_text(
    f"256 images: {both / 1e6:.0f} ms per step; 4 images: {four / 1e6:.0f} ms "
    f"({origin})"
)

# %% [markdown]
# With hardly any images, the step takes nearly as long, so data isn't the main limit now. Launches may be.
#
# ## Several ranks
#
# Let the launcher start the tool on each rank: `srun -n 4 rocprof-sys-run -c FILE -- python ...`. Because
# the tool delays ranks, measure communication with a lighter tool (lesson 07).
#
# ## Decide
#
# We have no H200 trace with both fixes, so lesson 04 looks at an MI300X.

# %% slide="Data was the limit. The next suspect is the launches."
lesson.conclude(
    f"The longest gap lasts {gap['duration_ns'] / 1e6:.0f} of "
    f"{steady.step_ns / 1e6:.0f} ms ({sampled.origin.kind}), in `__getitem__`. Stacks "
    "on this CPU show that it transforms images one by one. On an H200, two loader "
    f"processes make the mean step {loaders:.1f} times as fast, or {batched:.1f} times "
    "with batched transforms as well.",
    rules_out="the GPU as the cause of that gap, because the CPU launched the next "
    "work late",
    because="With both, a step hardly depends on its images. Do launches limit it?",
    next="04",
    origin=f"{steady.profile.origin}; {origin}",
)

# %% [markdown] tags=["given"]
# ## Three takeaways
#
# - Tracing finds gaps on the GPU, and call-stack samples show which functions run on the CPU during these gaps.
# - Samples measure shares of time, so never read them as call counts.
# - Choose a fix based on evidence, and measure its speedup without the profiler.
#
# ## What this view cannot see
#
# - **Operators, shapes and kernel efficiency:** see lessons 02 and 05.
# - **Functions without symbols:** the tool shows the nearest function that has a symbol, which can be the wrong one.
#   [Compile][tips] your own C++ code with `-g1` and with optimization.
# - **Real durations:** sampling slows the program down, so don't report times from a sampled run.
#
# - **Some data loaders:** [loader processes can
#   crash](../docs/known-issues.md#dataloader-workers-crash-under-sampling).
#
# [tips]: https://rocm.docs.amd.com/projects/rocprofiler-systems/en/latest/how-to/general-tips-using-rocprof-sys.html

# %% [markdown]
# ## At work, without this course
#
# {snippet 03_ranges.py}
#
# Mark ranges in any training loop. If ROCTX isn't available, the snippet only prints one line.
#
# {snippet 03_sample.sh}
#
# Record any program with these settings.
#
# {snippet 03_wall_clock.py}
#
# Turn the output of `ROCPROFSYS_PROFILE` into a table with the count, mean, minimum, maximum and standard deviation. If
# the deviation is larger than the mean, the function has different kinds of calls, and the mean describes none of them.
#
# Read on: [AMD's rocprof-sys manual](https://rocm.docs.amd.com/projects/rocprofiler-systems/en/latest/).

# %% [markdown]
# Next question: which kernels run, how often, and how small are they?
