# %% [markdown]
# # Start here: can I trust my setup and my clock?
#
# A *profiler* records what a program does and when. In this course, you examine one slow training run with one profiler
# after another until you know why the run is slow and can prove that your fix works. You start with a trace and a
# clock, because only a reliable clock can show that a program is slow.
#
# After this lesson, you can:
#
# - run the training program, trace it, and read the trace with pandas;
# - time a PyTorch step on a GPU and on a CPU;
# - recognize five ways in which a step time can mislead you.
#
# **Before you start:** you need two CPU cores, but no experience with profilers. If your machine has an AMD GPU, the
# lesson uses it.
#
# **How to run it:** press Shift+Enter in one cell after the other, from top to bottom. In an exercise, replace `...` with
# your answer and run the cell. For help, add `q.hint()` as its last line. After a restart, begin with the first cell.

# %%
import proflab
import tidyprof
from proflab import exercise, show_figure, show_text
from tidyprof import plots

lesson = proflab.start("00")

# %% [markdown]
# ## A first trace
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
# ## How this course works
#
# The table below the first cell lists the tools used in this lesson:
#
# - `real`: the tool is installed.
# - `replay`: the tool isn't installed, so the course replays a stored run of it.
# - `missing`: the tool isn't installed, but you don't need it yet.
#
# The cells write to one folder, `$FOLDER`, and nothing leaves your machine. `q.hint(2)` gives more help with an exercise
# than `q.hint()`, and `q.solution()` shows a solution. [The glossary](../docs/glossary.md) explains new terms.
#
# Every number comes with its source, because no single source can answer every question:

# %% [markdown] tags=["given"] slide="Each number states its source, because no source can answer every question."
# | source | use it to find out | it can't show |
# | --- | --- | --- |
# | *recorded: NVIDIA H200*, a real GPU | how slow the example run is, how its steps vary, which fixes help | what AMD's tools print |
# | *measured* on your CPU | what PyTorch does, in which order, and whether your code is correct | how fast a GPU is |
# | figures that AMD published | how fast the same network runs on an MI300X | why it runs at that speed |
# | *modeled: MI300X*, computed | what AMD's tools print | how much time a fix saves |
#
# Each modeled number comes with its error compared with AMD's runs. Most of a modeled step is the time that the loader
# takes per image, which the GPU model only [assumes](../docs/contributors/gpumodel.md). We made each H200 run only once
# or twice.

# %% [markdown]
# ## The example run, on your machine
#
# The trace shows the course's example run. It trains ResNet-50 on CIFAR-100, a dataset of color photographs of 32 by 32
# pixels in 100 classes. The images come from torchvision and the network from transformers. Like AMD's own example, the
# run isn't tuned. At the end of each core lesson, one question stays open, and the next lesson answers it:
#
# {drawing method}
#
# `$EXAMPLE` is the command for the example run. In the next cell, `--batch-size 4` and `--max-steps 12` keep the run
# short on a CPU, `--torch-profile` traces the last three steps, and `--run-dir` names the folder for the results. The
# *device* is the GPU or, if there is none, the CPU. The run takes half a minute on two idle cores, or minutes on busy
# ones.
#
# Without the dataset, the trainer uses synthetic images, so ignore the loss. One line of the output states the
# *conditions*: the network, the precision, the batch size and the device. With `automixed`, PyTorch computes safe
# operations in 16 bits and all others in 32 bits. The first steps are the *warm-up*, and the later steps are *steady*.

# %% language="bash"
# $EXAMPLE --batch-size 4 --max-steps 12 --torch-profile --run-dir $FOLDER/first

# %% [markdown]
# In the next figure, the dashed line shows the mean time of untraced steps. Is `data` also the largest part here?

# %% slide="On a machine without a GPU, arithmetic takes most of a step."
here = tidyprof.Origin("measured", "this machine")
trace = tidyprof.read(lesson.folder / "first/trace_rank0_of_1.json.gz", origin=here)
totals = tidyprof.phases(trace).groupby("phase", observed=True)["duration_ns"].sum()
show_figure(
    plots.step_budget(tidyprof.step_budget(trace), title="Time in the traced steps")
)
show_text(
    f"The trace has {len(trace.events):,} events. The largest part is "
    f"`{totals.idxmax()}`."
)

# %% [markdown]
# A function that runs on a GPU is called a *kernel*. AI programs are hard to profile for two reasons:
#
# - **Many layers.** Your Python code calls PyTorch operators, which call libraries such as MIOpen (for convolutions) or
#   hipBLASLt (for matrix products). One step runs hundreds of short library kernels, whereas a typical HPC program has
#   a few hot kernels of its own.
# - **Many workers.** Loader processes prepare the data, the *host* (the CPU that runs your program) launches kernels,
#   and the GPUs execute them. If one is slow, all the others wait.
#
# A *profile* summarizes how often each function ran and for how long, so its file stays small. A trace records each
# event, so its file grows with the run.
#
# ## Predict
#
# To tell whether the example run is slow, you need a clock. First, guess how long its first step takes on the H200, and
# how much two equal runs differ.

# %%
# solution
first_guess, difference_guess = 10, 2
# end solution
proflab.predict(
    "00.a", first_guess, unit="times", what="the first step relative to a typical one"
)
proflab.predict(
    "00.b", difference_guess, unit="%", what="the difference between equal runs"
)

# %% [markdown]
# ## Capture: the clock
#
# Run the example again without the profiler:

# %% language="bash"
# $EXAMPLE --batch-size 4 --max-steps 8 --run-dir $FOLDER/second

# %% [markdown]
# During the warm-up, libraries are loaded. On an AMD GPU, [MIOpen also tries out kernels][find] once for every new
# input size. Half of the steps are shorter than the *median*, and the middle half of all step times falls between the
# *quartiles*.
#
# [find]: https://github.com/pytorch/pytorch/pull/179795
#
# ## Lies 1 and 2: the wrong average
#
# Each run has a table with one row per step. The next H200 runs had no profiler.

# %%
import pandas as pd
from proflab import case, show_table
from proflab.training import training_run

second = training_run(lesson.folder / "second")
h200 = case.measured()
plain = h200.query("run == 'plain' and not traced")
loaders = h200.query("run == 'loaders' and not traced")
origin = f"{second.origin}; {h200.attrs['origin']}"


# %% slide="Warm-up steps distort the mean, so leave them out."
def steady(steps):
    return steps[(steps["part"] == "steady") & ~steps["profiled"]]


rows = []
for name, steps in (("your run", second.steps), ("H200", plain)):
    all_ms, later_ms = steps["duration_ns"] / 1e6, steady(steps)["duration_ns"] / 1e6
    rows.append((name, all_ms.mean(), later_ms.mean(), later_ms.median()))
names = "run mean_of_all_ms steady_mean_ms steady_median_ms"
show_table(
    pd.DataFrame(rows, columns=names.split()), names, "Averages per run", origin=origin
)

# %% [markdown]
# Warm-up steps distort the mean (*lie 1*), so leave them out. Is the median a better choice? In the next H200 run,
# `--num-workers 2` starts two processes that load the images. The figure shows slow steps in orange.

# %% slide="With two loaders, some steps wait for a batch. The median hides this wait."
show_figure(
    plots.step_times(loaders, title="With two loaders, some steps wait for a batch")
)
times = steady(loaders)["duration_ns"] / 1e6
show_text(
    f"Steady steps take {times.median():.0f} ms (median) or {times.mean():.0f} ms "
    "(mean)."
)

# %% [markdown]
# In the long steps, the GPU waits for a batch, but the median hides this wait (*lie 2*). This course therefore compares
# the mean of all steps after the warm-up, which accounts for all of their time. Report the median as well.

# %%
# 3 minutes: With two loaders, how many times as many images per second does the H200 process as without any? Use the
# `images` and `duration_ns` columns of the steady steps of `plain` and `loaders`.
q = exercise("00.2", {"plain": plain, "loaders": loaders})
# solution
sums = [steady(steps)[["images", "duration_ns"]].sum() for steps in (plain, loaders)]
per_ns = [each["images"] / each["duration_ns"] for each in sums]
answer = per_ns[1] / per_ns[0]
# end solution
q.check(answer)

# %% [markdown] slide="A program only launches work and continues. It must wait before it reads the clock."
# ## Lie 3: the clock is read before the device finishes
#
# A GPU works *asynchronously*. Your program only *launches* work: it adds the work to a queue and continues.
#
# {drawing 00_clock}
#
# To *synchronize* means to wait until the queued work is done. In the next cell, a thread simulates a GPU:
# `device.launch(work)` launches work, and `device.synchronize()` waits for the work to finish.

# %%
import statistics
import time

from proflab.parts.timer_check import StandInDevice, matrix_work


def lying(device, work, clock):
    begin = clock()
    device.launch(work)
    return clock() - begin


# %% slide="A clock that is read too early measures only the launch."
device, work = StandInDevice(), matrix_work()
seconds = [lying(device, work, time.perf_counter) for _ in range(10)]
device.synchronize()
worked_ms = statistics.median(device.worked_ns) / 1e6
show_text(
    f"The timer reports {1e3 * statistics.median(seconds):.3f} ms per step, but the "
    f"device works for {worked_ms:.1f} ms (measured)."
)

# %%
# 6 minutes: Copy the `lying` timer, rename it, fix it, and assign it as in `answer = my_timer`. The function must
# return the time of this step's work in seconds, without the time of any work that was launched earlier.
q = exercise("00.3")


# solution
def honest(device, work, clock):
    device.synchronize()
    begin = clock()
    device.launch(work)
    device.synchronize()
    return clock() - begin


answer = honest
# end solution
q.check(answer)

# %% [markdown] slide="With events, the GPU records its own times, so the program doesn't wait between steps."
# A GPU also has its own clock. Put an *event* into the queue before and after the work. The GPU records the time when
# it reaches each event, so your program doesn't have to wait between steps. The trainer uses events:
#
# ```python
# # The same on AMD GPUs
# begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
# begin.record()
# step()
# end.record()
# # Once, after the run
# torch.cuda.synchronize()
# # In milliseconds
# begin.elapsed_time(end)
# ```
#
# > **Note:** [AMD's example][script] reads the host's clock before it waits for the GPU. With `--precision bfloat16`,
# > its step times therefore omit nearly all GPU work.
#
# [script]: https://github.com/amd/HPCTrainingExamples/blob/main/MLExamples/PyTorch_Profiling/train_cifar_100.py
#
# ## What do you report?
#
# When you publish a speed, also state its spread and its conditions.

# %%
# 4 minutes: Report on the steady steps of `loaders` in a dictionary with four keys. `median_ms` is the median
# step time, and `quartiles_ms` is a pair of step times with the lower quartile first. `images_per_second` is the rate
# over all these steps. `conditions` is a string that names the network, the precision (mixed), the batch size, the
# device and the number of loaders.
q = exercise("00.4", loaders)
# solution
answer = {
    "median_ms": times.median(),
    "quartiles_ms": (times.quantile(0.25), times.quantile(0.75)),
    "images_per_second": 1e3 * steady(loaders)["images"].sum() / times.sum(),
    "conditions": "ResNet-50, mixed precision, batch 256, one H200, 2 loader processes",
}
# end solution
q.check(answer)

# %% [markdown]
# ## Lies 4 and 5: timing with a profiler, and trusting a single run
#
# When is a difference real? Two runs of the same work show the noise. Compare the mean steady step times of both
# versions. If the difference is smaller than the noise, the comparison is inconclusive. Lesson 08 extends this rule
# with repeated runs and a confidence interval, as in `tidyprof gate`.
#
# We ran both commands again on the H200, and `torch.profiler` traced a few steps of these runs:

# %% slide="A profiler changes the times, and a single run can't show the noise."
steps = h200.query("part == 'steady' and run in ['plain', 'loaders']")
rates = (
    steps.groupby(["run", "traced", "profiled"])[["images", "duration_ns"]]
    .sum()
    .reset_index()
)
rates["images_per_second"] = 1e9 * rates["images"] / rates["duration_ns"]
rates["steps"] = rates["profiled"].map({True: "traced", False: "not traced"})
rates["trace"] = rates["traced"].map({True: "of some steps", False: "none"})
columns, origin = "run trace steps images_per_second", h200.attrs["origin"]
show_table(rates, columns, "Two runs of each command", origin=origin)
loaders_once, loaders_again, _, plain_once, plain_again, _ = rates["images_per_second"]

# %% [markdown]
# *Lie 4, timing with a profiler:* the traced steps of `plain` are far slower than the untraced steps of either run, so
# the difference is real. Always time a program without the profiler.
#
# *Lie 5, trusting a single run:* without loaders, the untraced steps of both runs agree. With two loaders, the two
# rates differ by a factor of two. While the trace was being written, the loaders got ahead, so these runs aren't
# repeats. Always report how many runs you made.

# %%
typical = steady(plain)["duration_ns"].median()
proflab.reveal("00.a", float(f"{plain['duration_ns'].iloc[0] / typical:.2g}"), h200)
proflab.reveal("00.b", float(f"{100 * abs(plain_again / plain_once - 1):.2g}"), h200)

# %% [markdown]
# ## Decide
#
# AMD published a far higher rate for the same network and batch size, so the example run is slow. This is the first
# finding in the *findings log*, which each core lesson extends.

# %% slide="AMD published a far higher rate for the same network, so the example run is slow."
# Images/s, the median of AMD's published lines (docs/contributors/gpumodel.md)
amd = 12_787
lesson.conclude(
    f"On an H200, a step of the example run takes {256e3 / plain_once:.1f} ms, which "
    f"means {plain_once:,.0f} images/s. With two loader processes, the same GPU "
    f"processes {loaders_once:,.0f} images/s, {loaders_once / plain_once:.1f} times as "
    f"many. AMD published {amd:,.0f} images/s (median) for ResNet-50 with this batch "
    "size on an MI300X.",
    rules_out="that ResNet-50 must be this slow on an H200. The GPU may still be the "
    "limit.",
    because="An option that helps isn't a diagnosis. Was the GPU busy, or did it wait?",
    next="01",
    origin=f"{h200.attrs['origin']}; recorded: AMD Instinct MI300X, "
    "amd/HPCTrainingExamples",
)

# %% [markdown]
# ## What a step clock can't see
#
# A clock shows how long a step takes, but not which part takes longest or whether the GPU is working. The trace at the
# start showed both, but it slowed down the program, so check its result with other tools.
#
# Known issues: [`import torch` hangs](../docs/known-issues.md#import-torch-hangs-without-devkfd), and [CIFAR-100 takes
# an hour to download](../docs/known-issues.md#cifar-100-takes-an-hour-to-download).
#
# ## Three takeaways
#
# - Wait for the device to finish before you read the clock, or use events.
# - Compare mean steady step times, because the median hides long waits.
# - If two versions differ by less than two identical runs do, the comparison is inconclusive.

# %% [markdown] tags=["given"]
# ## At work, without this course
#
# ROCm, AMD's GPU software ([supported GPUs][gpus]), includes `amd-smi`, rocprof-sys, `rocprofv3` and rocprof-compute.
# PyTorch includes torch.profiler. AMD engineers develop rpd outside ROCm.
#
# On a cluster, profile on a compute node. To get a node, use `salloc --nodes=1 --gpus=1 --time=01:00:00` with Slurm or
# `qsub -I` with PBS. [In a container][docker], the GPU requires two device files, loader processes require shared
# memory, and debuggers require a permission:
#
# ```bash
# docker run -it --device /dev/kfd --device /dev/dri --group-add video --ipc=host \
#     --cap-add=SYS_PTRACE --security-opt seccomp=unconfined rocm/pytorch
# ```
#
# [gpus]: https://rocm.docs.amd.com/projects/install-on-linux/en/latest/reference/system-requirements.html
# [docker]: https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html

# %% [markdown]
# {snippet 00_time_a_step.py}
#
# Copy this file into your script's folder. On a GPU, the code times every step with events and compares the total with
# the host's clock.

# %% [markdown]
# Next question: is the GPU even the problem?
