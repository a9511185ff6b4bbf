# %% [markdown]
# # Start here: can I trust my setup and my clock?
#
# A *profiler* records what a program does and when. In this course, you examine one slow training run with one profiler
# after another, until you know why it is slow and can prove that your fix works. You start with a trace and a clock,
# because only a trustworthy clock shows that a program is slow.
#
# After this lesson, you can:
#
# - run the training program, trace it, and read the trace with pandas;
# - time a PyTorch step on a GPU and on a CPU;
# - recognize five ways in which a step time misleads, and tell when a comparison is inconclusive.
#
# **Before you start:** you need two CPU cores, but no experience with profilers. If your machine has an AMD GPU, the
# lesson uses it.

# %%
import proflab
import tidyprof
from proflab import exercise, show_figure, show_text
from tidyprof import plots

lesson = proflab.start("00")

# %% [markdown]
# ## How this course works
#
# The table above lists the tools of this lesson:
#
# - `real`: the tool is installed.
# - `replay`: the tool is missing, so the course replays a stored run of it.
# - `missing`: the tool is missing, and you don't need it yet.
#
# Run the cells from top to bottom. They write to one folder, which commands call `$FOLDER`, and nothing leaves your
# machine. In an exercise, replace `...` with your answer and run the cell. For help, run `q.hint()`, `q.hint(2)` or
# `q.solution()`. [The glossary](../docs/glossary.md) explains new terms.
#
# Every number names its source, because no source can answer every question:

# %% [markdown] tags=["given"]
# | source | use it to find out | it can't show |
# | --- | --- | --- |
# | *recorded: NVIDIA H200*, a real GPU | how slow the example run is, how its steps vary, which fixes help | what AMD's tools print |
# | *measured* on your CPU | what PyTorch does, in which order, and whether your code is correct | how fast a GPU is |
# | figures that AMD published | how fast the same model runs on an MI300X | why |
# | *modeled: MI300X*, computed | what AMD's tools print | how much a fix gains |
#
# Modeled numbers state their error, which we know from AMD's runs. The model also [assumes](../docs/gpumodel.md) how
# long the *loader* takes per image. The loader is the code that reads and prepares the images, and most of a modeled
# step depends on this assumption. Each H200 run was made once or twice.

# %% [markdown]
# ## The example run
#
# The example run trains ResNet-50, an image classifier, on CIFAR-100, a set of color photographs of 32 by 32 pixels in
# 100 classes. The images come from torchvision and the model from transformers. One GPU trains on 256 images at a time.
# Like AMD's own example, the run isn't tuned. It seems slow, and you will find out what to change.
#
# The 256 images form a *batch*. Training repeats one *step* per batch:
#
# | part of a step | what happens |
# | --- | --- |
# | data | the loader reads the next batch, changes it slightly at random, and moves it to the device |
# | forward | the model computes its predictions |
# | loss | one number measures how wrong the predictions are |
# | backward | PyTorch computes how each weight affects the loss |
# | optimizer | each weight changes a little to reduce the loss |
#
# The *device* is the GPU, or the CPU on a machine without a GPU. Each of the nine core lessons ends with a question that its
# tool can't answer, and the next lesson starts with that question:
#
# {drawing method}

# %% [markdown]
# ## A first trace
#
# `$EXAMPLE` is the command of the example run. Here, `--batch-size 4` and `--max-steps 12` keep the run short on a CPU,
# `--torch-profile` traces the last three steps, and `--run-dir` names the folder for the results. The run takes about
# half a minute on two cores.
#
# Without the dataset, the trainer uses synthetic images, so ignore the loss. One line of the output states the
# *conditions*: the model, the precision, the batch size and the device. With `automixed`, PyTorch computes safe
# operations in 16 bits and all others in 32 bits. The first steps are *warm-up*, and the later ones are *steady*.

# %% language="bash"
# $EXAMPLE --batch-size 4 --max-steps 12 --torch-profile --run-dir $FOLDER/first

# %% [markdown]
# A trace has one row per event, with its start and duration. The trainer marks the parts of each step, which shows
# where the time goes. The dashed line is the mean of the steps that weren't traced.

# %%
here = tidyprof.Origin("measured", "this machine")
trace = tidyprof.read(lesson.folder / "first/trace_rank0_of_1.json.gz", origin=here)
traced, phases = tidyprof.steps(trace), tidyprof.phases(trace)
totals = phases.groupby("phase", observed=True)["duration_ns"].sum()
largest, traced_ns = totals.idxmax(), traced["duration_ns"].sum()
show_figure(plots.step_budget(tidyprof.step_budget(trace), title="Where the traced steps go"))
show_text(f"{len(trace.events):,} events in {len(traced)} steps. The largest part: `{largest}`.")

# %%
# 3 minutes: If the largest part took no time at all, how many times as fast would the traced steps be? Use
# `totals[largest]`, the time of that part over all traced steps, and `traced_ns`, the time of these steps.
q = exercise("00.1", {"part_ns": totals[largest], "steps_ns": traced_ns})
# solution
answer = traced_ns / (traced_ns - totals[largest])
# end solution
q.check(answer)

# %% [markdown]
# A function that runs on a GPU is called a *kernel*. AI programs are hard to profile for two reasons:
#
# - **Many layers.** Your Python code calls PyTorch operators, which call libraries such as MIOpen (convolutions) or
#   hipBLASLt (matrix products). One step runs hundreds of short library kernels, while a typical HPC program has a few
#   hot kernels of its own.
# - **Many workers.** Some processes prepare data, the *host* (the CPU that runs your program) launches kernels, and the
#   GPUs compute. If one is slow, all others wait.
#
# A *profile* adds up how often each function ran and for how long, so it stays small. A *trace* records when each event
# happened, so it grows with the run. A trace is also a good way to read unfamiliar code, because it shows what a
# program really calls.
#
# ## Predict
#
# Is the example run slow? You need a clock to answer that. First, guess two numbers of the H200.

# %%
# solution
first_guess, difference_guess = 10, 2
# end solution
proflab.predict("00.a", first_guess, unit="times", what="the first step against a typical one")
proflab.predict("00.b", difference_guess, unit="%", what="the difference between two equal runs")

# %% [markdown]
# ## Capture: the clock
#
# Run the example again without the profiler, which takes about half a minute on two cores:

# %% language="bash"
# $EXAMPLE --batch-size 4 --max-steps 8 --run-dir $FOLDER/second

# %% [markdown]
# During warm-up, libraries load. On an AMD GPU, [MIOpen also tries out kernels][find] once for every new input size.
# Half of the steps are shorter than the *median*, and the middle half is between the *quartiles*.
#
# [find]: https://github.com/pytorch/pytorch/pull/179795
#
# ## Lies 1 and 2: the wrong average
#
# Each run has a table with one row per step. The H200 results in this section come from runs without a profiler.

# %%
import pandas as pd
from proflab import case, show_table
from proflab.training import training_run

second = training_run(lesson.folder / "second")
h200 = case.measured()
plain = h200.query("run == 'plain' and not traced")
loaders = h200.query("run == 'loaders' and not traced")
origin = f"{second.origin}; {h200.attrs['origin']}"


# %%
def steady(steps):
    return steps[(steps["part"] == "steady") & ~steps["profiled"]]


rows = []
for name, steps in (("here", second.steps), ("H200", plain)):
    all_ms, later_ms = steps["duration_ns"] / 1e6, steady(steps)["duration_ns"] / 1e6
    rows.append((name, all_ms.mean(), later_ms.mean(), later_ms.median()))
names = "run mean_of_all_ms steady_mean_ms steady_median_ms"
show_table(pd.DataFrame(rows, columns=names.split()), names, "One number per run", origin=origin)

# %% [markdown]
# Warm-up steps distort the mean, so leave them out (*lie 1*). Is the median a better choice? Look at an H200 run with one
# option changed: `--num-workers 2` starts two processes that load the images. Slow steps are orange.

# %%
show_figure(plots.step_times(loaders, title="Two loader processes: some steps wait for a batch"))
times = steady(loaders)["duration_ns"] / 1e6
show_text(f"The median steady step takes {times.median():.0f} ms, the mean {times.mean():.0f} ms.")

# %% [markdown]
# In the long steps, the GPU waits for a batch. The median hides that time (*lie 2*). This course therefore compares the
# mean over all steps after warm-up, because it counts all images and all their time. Report the median second, because
# it describes a typical step. `tidyprof gate` and the snippet of lesson 08 follow the same rule.

# %%
# 3 minutes: How many times as many images per second does the H200 train with two loaders as with none? Use the steady
# steps of `plain` and of `loaders`, with their columns `images` and `duration_ns`.
q = exercise("00.2", {"plain": plain, "loaders": loaders})
# solution
sums = [steady(steps)[["images", "duration_ns"]].sum() for steps in (plain, loaders)]
rates = [each["images"] / each["duration_ns"] for each in sums]
answer = rates[1] / rates[0]
# end solution
q.check(answer)

# %% [markdown]
# ## Lie 3: the clock is read before the device finishes
#
# A GPU works *asynchronously*. Your program only *launches* work, which means that it puts the work into a queue and
# continues immediately.
#
# {drawing 00_clock}
#
# To *synchronize* means to wait until the queue is empty. Below, a second thread of this program imitates a GPU.
# `device.launch(work)` launches work, and `device.synchronize()` waits for it.

# %%
import statistics
import time

from proflab.parts.timer_check import StandInDevice, matrix_work


def lying(device, work, clock):
    begin = clock()
    device.launch(work)
    return clock() - begin


device, work = StandInDevice(), matrix_work()
seconds = [lying(device, work, time.perf_counter) for _ in range(10)]
device.synchronize()
worked_ms = statistics.median(device.worked_ns) / 1e6
show_text(
    f"Measured: the timer reports {1e3 * statistics.median(seconds):.3f} ms per step, but the "
    f"device works for {worked_ms:.1f} ms."
)

# %%
# 6 minutes: Copy the timer, rename it, fix it, and hand it over as in `answer = my_timer`. It must return seconds that
# cover the work of this step, but no work that was launched earlier.
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

# %% [markdown]
# A GPU offers a second honest clock. Put an *event* into the queue before and after the work. The GPU records the time
# when it reaches an event, so your program doesn't have to wait between steps. The trainer of this course uses events:
#
# ```python
# begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # also on AMD GPUs
# begin.record()
# step()
# end.record()
# torch.cuda.synchronize()  # once, after the run
# begin.elapsed_time(end)  # in milliseconds
# ```
#
# > **Note:** [AMD's example][script] waits for the GPU after it reads the host's clock. In mixed precision, its times
# > miss the optimizer's work, because `GradScaler`, which scales the loss, waits just before that. With
# > `--precision bfloat16`, they miss nearly all work.
#
# [script]: https://github.com/amd/HPCTrainingExamples/blob/main/MLExamples/PyTorch_Profiling/train_cifar_100.py
#
# ## What do you report?
#
# If you publish a speed, state its spread and its conditions.

# %%
# 4 minutes, open: Report the steady steps of `loaders` as a dictionary. `median_ms` is a number, and `quartiles_ms` is a
# pair with the lower quartile first. `images_per_second` counts all these steps. `conditions` is a string that names
# the model, the precision (mixed), the batch size, the device and the number of loaders.
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
# ## Lies 4 and 5: the profiler in the timer, and a single run
#
# When is a difference real? Two runs of the same work show the noise. Compare mean steady step times over all steps. If
# a difference is smaller than the noise, the comparison is inconclusive. Lesson 08 completes this rule with repeats and
# an interval, as in `tidyprof gate`.
#
# Both commands ran on the H200 a second time, and `torch.profiler` traced a few steps of these runs:

# %%
steps = h200.query("part == 'steady' and run in ['plain', 'loaders']")
rates = steps.groupby(["run", "traced", "profiled"])[["images", "duration_ns"]].sum().reset_index()
rates["images_per_second"] = 1e9 * rates["images"] / rates["duration_ns"]
rates["steps"] = rates["profiled"].map({True: "traced", False: "not traced"})
rates["repeat"] = rates["traced"].map({True: "second", False: "first"})
columns, origin = "run repeat steps images_per_second", h200.attrs["origin"]
show_table(rates, columns, "Each command twice", origin=origin)
loaders_once, loaders_again, _, plain_once, plain_again, _ = rates["images_per_second"]

# %% [markdown]
# *Lie 4, the profiler in the timer:* the traced steps of `plain` are far slower than either run, so the difference is
# real. Time a program without the profiler.
#
# *Lie 5, a single run:* without loaders, two equal runs agree. With two loaders, they differ by a factor of two, because
# the loaders of the second run got ahead during its slow traced steps. So the traced steps of `loaders` prove
# nothing. Always report how many runs you made and how much they differ.
#
# In all later lessons, *the* number of a run comes from the run without a trace.

# %%
typical = steady(plain)["duration_ns"].median()
proflab.reveal("00.a", float(f"{plain['duration_ns'].iloc[0] / typical:.2g}"), h200)
proflab.reveal("00.b", float(f"{100 * (loaders_again / loaders_once - 1):.2g}"), h200)

# %% [markdown]
# ## Decide
#
# AMD published a far higher rate for the same model and batch size, so the example run is slow. That is the first line
# of the *findings log*, which every lesson continues.

# %%
amd = 12_787  # images/s, the median of AMD's published lines (docs/gpumodel.md)
lesson.conclude(
    f"On an H200, a step of the example run takes {256e3 / plain_once:.1f} ms, which is "
    f"{plain_once:,.0f} images/s. With two loader processes, the same GPU trains "
    f"{loaders_once:,.0f} images/s, {loaders_once / plain_once:.1f} times as many. AMD published "
    f"{amd:,.0f} images/s for this model and batch size on an MI300X.",
    rules_out="that this model must be this slow on this GPU; nothing about the GPU yet",
    because="An option that helps isn't a diagnosis: was the GPU busy, or did it wait?",
    next="01",
    origin=f"{h200.attrs['origin']}; recorded: AMD Instinct MI300X, amd/HPCTrainingExamples",
)

# %% [markdown]
# ## What a step clock can't see
#
# A clock shows how long a step takes. It doesn't show which part takes the time, or whether the GPU works or waits.
#
# Known issues: [`import torch` hangs](../docs/known-issues.md#import-torch-hangs-without-devkfd), and [CIFAR-100 takes
# an hour to download](../docs/known-issues.md#cifar-100-takes-an-hour-to-download).
#
# ## Three takeaways
#
# - Wait for the device before each reading of the clock, or use events.
# - Compare mean steady step times, because the median hides long waits.
# - If two versions differ by less than two equal runs do, the comparison is inconclusive.

# %% [markdown] tags=["given"]
# ## At work, without this course
#
# ROCm, AMD's software for GPUs ([supported models][gpus]), includes `amd-smi`, rocprof-sys, `rocprofv3` and
# rocprof-compute. torch.profiler is part of PyTorch. Engineers at AMD develop rpd outside ROCm.
#
# On a cluster, profile on a compute node. Slurm gives you one with `salloc --nodes=1 --gpus=1 --time=01:00:00`, and PBS
# with `qsub -I`. [In a container][docker], the GPU needs two devices, loaders need shared memory, and debuggers need a
# permission:
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
# Copy this file next to your script. On a GPU, it times every step with events and compares their sum with the host's
# clock.

# %% [markdown]
# Next question: is the GPU even the problem?
