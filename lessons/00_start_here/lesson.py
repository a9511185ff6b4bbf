# %% [markdown]
# # Start here: can I trust my setup and my clock?
#
# A *profiler* records what another program does, and when. This course uses one profiler after the other on one
# training that is too slow, until the cause is proven and cured. You begin with a trace of it and with a clock:
# without an honest one nobody can say that anything is slow.
#
# After this lesson you can
#
# - run the training, trace it, and read the trace with pandas;
# - time a step of PyTorch code, on a GPU and on a processor;
# - recognize five ways in which a step time misleads, and say when you can't tell.
#
# You need two processor cores and no experience with profilers. An AMD GPU is used where there is one.

# %%
import proflab
import tidyprof
from proflab import exercise, show_figure, show_text
from tidyprof import plots

lesson = proflab.start("00")

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
trace = tidyprof.read(lesson.folder / "first/trace_rank0_of_1.json.gz", origin=here)
recorded, phases = tidyprof.steps(trace), tidyprof.phases(trace)
totals = phases.groupby("phase", observed=True)["duration_ns"].sum()
largest, seen_ns = totals.idxmax(), recorded["duration_ns"].sum()
show_figure(plots.step_budget(tidyprof.step_budget(trace), title="Where the recorded steps go"))
show_text(f"{len(trace.events):,} events in {len(recorded)} steps. The largest part: `{largest}`.")

# %%
# 3 minutes: if the largest part took no time at all, how many times as fast would the recorded steps be? Use
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
#
# ## Predict
#
# Is the case slow? That needs a clock. Guess two numbers of the H200 before you look, in place of `...`.

# %%
# solution
first_guess, difference_guess = 10, 2
# end solution
proflab.predict("00.a", first_guess, unit="times", what="the first step against a typical one")
proflab.predict("00.b", difference_guess, unit="%", what="what two runs of one command differ by")

# %% [markdown]
# ## Capture: the clock
#
# Once more, without the profiler:

# %% language="bash"
# $EXAMPLE --batch-size 4 --max-steps 8 --run-dir $FOLDER/second

# %% [markdown]
# In the warm-up libraries load, and on an AMD GPU [MIOpen tries out kernels][find] for every new size: once. The
# *median* is the step that half of the steady ones beat, and the middle half lies between the *quartiles*.
#
# [find]: https://github.com/pytorch/pytorch/pull/179795
#
# ## Lies 1 and 2: the wrong average
#
# Each run has a table with a row for each step.

# %%
import pandas as pd
from proflab import case, show_table
from proflab.training import training_run

first, second = (training_run(lesson.folder / name) for name in ("first", "second"))
h200 = case.measured()
plain, loaders = (h200[h200["traced"] & (h200["run"] == run)] for run in ("plain", "loaders"))


def steady(steps):
    return steps[(steps["part"] == "steady") & ~steps["profiled"]]


def in_one_number(steps):
    times = steps["duration_ns"], steady(steps)["duration_ns"]
    return [times[0].mean(), times[1].mean(), times[1].median()]


names = "run mean_of_all_ms steady_mean_ms steady_median_ms"
runs = [("here", second.steps), ("H200, plain", plain)]
rows = [(name, *(each / 1e6 for each in in_one_number(steps))) for name, steps in runs]
both = f"{second.origin}; {h200.attrs['origin']}"
show_table(pd.DataFrame(rows, columns=names.split()), names, "A run in one number", origin=both)

# %% [markdown]
# The warm-up spoils the mean, so leave it out (*lie 1*). Is the median the cure? The H200 once more, with one option
# changed: two processes of their own load the images, `--num-workers 2`. Slow steps are orange,
# an arrow marks a bar that is cut off, and a profiler watched the steps that are missing.

# %%
title = "Two loader processes: most steps are short"
show_figure(plots.step_times(loaders[~loaders["profiled"]], title=title))
_, mean_ns, median_ns = in_one_number(loaders)
show_text(
    f"Half of the steady steps take at most {median_ns / 1e6:.0f} ms. Their mean is "
    f"{mean_ns / 1e6:.0f} ms."
)

# %% [markdown]
# The GPU waits for a batch in the long steps, but the median hides them (*lie 2*). So one rule holds in this course:
# compare the mean over all steps after the warm-up, because it counts all images and all their time. Report the median
# second, because it describes a typical step. `tidyprof gate` and the snippet of lesson 08 follow the same rule.

# %%
# 4 minutes: how many times as many images a second does the H200 train with two loaders as with none? Take the steps
# that `steady` leaves of `plain` and of `loaders`; their columns are `images` and `duration_ns`.
q = exercise("00.2", {"plain": plain, "loaders": loaders})
# solution
sums = [steady(steps)[["images", "duration_ns"]].sum() for steps in (plain, loaders)]
rates = [each["images"] / each["duration_ns"] for each in sums]
answer = rates[1] / rates[0]
# end solution
q.check(answer)

# %% [markdown]
# ## Lie 3: the clock is read before the device is done
#
# A GPU works *asynchronously*. Your program only *launches* work: it puts it into a queue and goes on at once.
#
# {drawing 00_clock}
#
# To *synchronize* means to wait until the queue is empty. Below, a second thread of this program stands
# in for a GPU: `device.launch(work)` launches, `device.synchronize()` waits. It says nothing about a GPU's speed.

# %%
import statistics
import time

from proflab.parts.timer_check import StandInDevice, matrix_work

work = matrix_work()


def lying(device, work, clock):
    begin = clock()
    device.launch(work)
    return clock() - begin


def trial(timer, steps=10):
    device = StandInDevice()
    device.launch(work)
    device.synchronize()
    seconds = [timer(device, work, time.perf_counter) for _ in range(steps)]
    device.synchronize()
    return 1e3 * statistics.median(seconds), statistics.median(device.worked_ns[1:]) / 1e6


reported_ms, worked_ms = trial(lying)
show_text(f"Measured: the timer says {reported_ms:.3f} ms a step, the device {worked_ms:.1f} ms.")

# %%
# 6 minutes: copy the timer, rename it and repair it, then `answer = my_timer`. The seconds that it returns must
# cover the work of the device, and no work that was launched before.
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
# On a GPU there is a second honest clock. An *event* is a mark that you put into the queue before and after the work.
# The GPU notes the time when it comes to it, and nobody has to wait between two steps. The course's trainer does this:
#
# ```python
# begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # PyTorch calls AMD's GPUs cuda too
# begin.record()
# step()
# end.record()
# torch.cuda.synchronize()  # after the run, once
# begin.elapsed_time(end)  # in milliseconds
# ```
#
# [AMD's example][script] reads the host's clock, and waits for the GPU after that: its lines miss the optimizer's work
# in mixed precision, where `GradScaler` waits before it, and nearly all work with `--precision bfloat16`.
#
# [script]: https://github.com/amd/HPCTrainingExamples/blob/main/MLExamples/PyTorch_Profiling/train_cifar_100.py
#
# ## What do you report?
#
# A speed that others will see needs its spread and its conditions.

# %%
# 4 minutes, open: report `steady(loaders)` as a dictionary: `median_ms` and `quartiles_ms` (a pair) of its steps;
# `images_per_second`, which they reached together; `conditions`, a text that names model, precision (mixed), batch
# size, device and loaders.
q = exercise("00.4", loaders)
# solution
times = steady(loaders)["duration_ns"] / 1e6
answer = {
    "median_ms": times.median(),
    "quartiles_ms": (times.quantile(0.25), times.quantile(0.75)),
    "images_per_second": steady(loaders)["images"].sum() / times.sum() * 1e3,
    "conditions": "ResNet-50, mixed precision, batch 256, one H200, 2 loader processes",
}
# end solution
q.check(answer)

# %% [markdown]
# ## Lies 4 and 5: the profiler in the timer, and one run
#
# When is a difference a result? Two runs of the same work differ by noise, and a smaller difference doesn't count.
# Compare means over all steps after the warm-up, as in lie 2. If the difference is within the noise, the comparison is
# inconclusive:


# %%
def per_image(steps):
    return steps["duration_ns"].sum() / steps["images"].sum()


def compare(steps, same_work):
    quick, slow = sorted(map(per_image, same_work))
    noise, ratios = slow / quick, (per_image(steps) / slow, per_image(steps) / quick)
    verdict = (
        "slower" if ratios[0] > noise else "faster" if ratios[1] < 1 / noise else "inconclusive"
    )
    return ratios, verdict


# %%
def rate(steps):
    return 1e9 * steps["images"].sum() / steps["duration_ns"].sum()


seen = [("here", first.watched, [first.steady, second.steady])]
for run in ("plain", "loaders"):
    one, again = (
        h200[(h200["run"] == run) & (h200["traced"] == traced)] for traced in (True, False)
    )
    seen.append((f"H200, {run}", one[one["profiled"]], [steady(one), steady(again)]))
rows = []
for name, watched, same_work in seen:
    (low, high), verdict = compare(watched, same_work)
    rows.append((name, f"{low:.2f} to {high:.2f} times, {verdict}", *map(rate, same_work)))
names = "run watched_against_others images_per_second and_again"
show_table(pd.DataFrame(rows, columns=names.split()), names, "Watched, and run twice", origin=both)

# %% [markdown]
# *Lie 4, the profiler in the timer:* watched steps of `plain` are slower, so time without it. *Lie 5, one run:* the
# same command on the same GPU, twice. Without loaders both runs agree. With two they don't, and your report is the
# faster one: during its slow watched steps the loaders could get ahead. So say how many runs you have and what they
# differ by. A change that is smaller is no result.

# %%
warm = plain["duration_ns"].iloc[0] / in_one_number(plain)[2]
most, least = sorted(rows[-1][2:], reverse=True)
proflab.reveal("00.a", float(f"{warm:.2g}"), h200)
proflab.reveal("00.b", float(f"{100 * (most / least - 1):.2g}"), h200)

# %% [markdown]
# ## Decide
#
# The case's first line goes into the *case sheet*, which every lesson continues.

# %%
plain_rate = rows[1][2]
amd = 12_787  # images/s, the median of AMD's published lines (docs/gpumodel.md)
times = least / max(rows[1][2:])
lesson.conclude(
    f"On an H200 a step of the case takes {256e3 / plain_rate:.0f} ms, {plain_rate:,.0f} images/s. "
    f"With two loader processes the same GPU made {most:,.0f} and, once more, {least:,.0f}: at "
    f"least {times:.1f} times as many. AMD's lines of this model and batch on an MI300X say "
    f"{amd:,.0f}.",
    rules_out="that this model has to be so slow on this GPU; nothing about the GPU yet",
    because="An option that helps is no diagnosis: was the GPU busy, or did it wait?",
    next="01",
    origin=f"{h200.attrs['origin']}; recorded: AMD Instinct MI300X, amd/HPCTrainingExamples",
)

# %% [markdown]
# ## What a step clock cannot see
#
# It says how long a step takes, not which part of it, and not why. It can't tell a busy GPU from a waiting one.
#
# Known issues: [`import torch` hangs](../docs/known-issues.md#import-torch-hangs-without-devkfd), [CIFAR-100 takes an
# hour to download](../docs/known-issues.md#cifar-100-takes-an-hour-to-download).

# %% [markdown] tags=["given"]
# ## At work, without this course
#
# `amd-smi`, rocprof-sys, `rocprofv3` and rocprof-compute come with *ROCm*, AMD's software for GPUs
# ([which ones][gpus]); torch.profiler is PyTorch's, rpd by people at AMD and not in ROCm. On a cluster profile on a
# compute node: `salloc --nodes=1 --gpus=1 --time=01:00:00` gets one from Slurm, `qsub -I` from PBS.
# [In a container][docker] the GPU needs two devices, loaders need shared memory, debuggers a right:
# `docker run -it --device /dev/kfd --device /dev/dri --group-add video --ipc=host --cap-add=SYS_PTRACE
# --security-opt seccomp=unconfined rocm/pytorch`.
#
# [gpus]: https://rocm.docs.amd.com/projects/install-on-linux/en/latest/reference/system-requirements.html
# [docker]: https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html

# %% [markdown]
# Copy this beside your script. It marks every step with events on a GPU, and checks itself against the host's clock.
#
# {snippet 00_time_a_step.py}

# %% [markdown]
# Next question: is the GPU even the problem?
