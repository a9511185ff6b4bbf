# %% [markdown]
# # Start here: can I trust my setup and my clock?
#
# A *profiler* records what another program does, and when. This course uses one profiler after the other on one
# training that is too slow, until the cause is proven and cured. You begin with a trace of it and with a clock:
# without an honest clock nobody can say that anything is slow.
#
# After this lesson you can
#
# - run the training, trace it, and read the trace with pandas;
# - time a step of PyTorch code, on a GPU and on a processor;
# - recognise five ways in which a step time misleads, and say when you can't tell.
#
# You need two processor cores and no experience with profilers. An AMD GPU is used where there is one.

# %%
import statistics
import time

import pandas as pd
import proflab
import tidyprof
from proflab import case, exercise, say, show_figure, show_table
from proflab.parts.clinic_runs import modelled
from proflab.parts.modelled_trace import modelled_trace
from proflab.training import training_run
from tidyprof import plots

lesson = proflab.start("00")

# %% [markdown]
# ## How this course works
#
# `real` in the table means that a tool is installed. What is `missing` can wait. A `stand-in` is a program of this
# course that answers in place of a missing tool, and says so. Run the cells from top to bottom. Files go to a folder of
# their own, `$FOLDER` in commands, and nothing leaves your machine.
#
# Every number says where it comes from: *measured* here and now, *recorded* on a named machine, or *modelled*, which
# means computed. What is modelled names its error against AMD's own runs: in all kernel time, in one kernel (median and
# worst), and in collectives. New words are explained where they first appear, and again in
# [the glossary](../docs/glossary.md).
#
# In an exercise you replace `...` with your answer and run the cell. `q.hint()`, `q.hint(2)` and `q.solution()` help.
# Try a wrong answer first, and see what happens.

# %%
# 1 minute: a step took this many nanoseconds (billionths of a second). How many milliseconds is that?
step_ns = 20_020_836
q = exercise("00.1", step_ns)
# solution
answer = step_ns / 1e6
# end solution
q.check(answer)

# %% [markdown]
# ## The case
#
# ResNet-50, a model that classifies images, is trained on CIFAR-100: colour photographs of 32 by 32 pixels in a hundred
# classes. It trains on one GPU, 256 images at a time, and somebody says that it is slow. The program is plain on
# purpose, and nothing is tuned, as in AMD's own example: you find out what to tune.
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

# %%
show_figure(proflab.lessons.method("00"))

# %% [markdown]
# ## A first trace
#
# `$CASE` is the command of the training. `--batch-size 8` keeps a step short on a processor, `--max-steps` ends the run
# early, `--torch-profile` records a trace, and `--run-dir` says where results go. Most of the waiting is for PyTorch to
# start.

# %% language="bash"
# $CASE --batch-size 8 --max-steps 6 --torch-profile --run-dir $FOLDER/traced

# %% [markdown]
# A trace has a row for everything that happened, with its begin and its length. The training marks the parts of its
# step in it. Where does a step go?

# %%
here = tidyprof.Origin("measured", "this machine")
trace = tidyprof.read(lesson.folder / "traced/trace_rank0_of_1.json.gz", origin=here)
steps, phases = tidyprof.steps(trace), tidyprof.phases(trace)
totals = phases.groupby("phase", observed=True)["duration_ns"].sum()
largest, seen_ns = totals.idxmax(), steps["duration_ns"].sum()
show_figure(plots.step_budget(tidyprof.step_budget(trace), title="Where the recorded steps go"))
say(f"{len(trace.events):,} events in {len(steps)} steps. The largest part is `{largest}`.")

# %%
# 4 minutes: if the largest part took no time at all, how many times as fast would the recorded steps be? Use
# `totals[largest]`, the time of this part over all recorded steps, and `seen_ns`, the time of these steps.
q = exercise("00.2", {"part_ns": totals[largest], "steps_ns": seen_ns})
# solution
answer = seen_ns / (seen_ns - totals[largest])
# end solution
q.check(answer)

# %% [markdown] tags=["given"]
# A program that runs on a GPU is called a *kernel*, and one step of this model runs
# hundreds of them. That makes AI programs hard to profile:
#
# - **Many layers.** Your Python calls PyTorch's operators. These call libraries such as MIOpen (convolutions) or
#   hipBLASLt (matrix products), which choose a kernel for each shape while the program runs. An HPC program often has a
#   few hot kernels, which its authors wrote and can tune. Here thousands of short ones come from others, and you more
#   often ask what keeps the GPU from running them.
# - **Many workers.** Some processes prepare data, the *host* (the processor with your program) launches kernels, and
#   the GPUs compute. Each of them can be the limit, and then the others wait.
#
# **Profile or trace?** A *profile* adds up: how often, how long in all. It stays small. A *trace* keeps each event with
# its time, and grows with the run. A profile says how much, a trace says when.
#
# **Reading foreign code.** A trace shows what a program really calls, in which order and how often: a quick way to know
# a model that somebody else wrote.

# %% [markdown] tags=["given"]
# | tool | sees | cost | made by |
# | --- | --- | --- | --- |
# | `amd-smi` | sensors: power, heat, memory, activity | runs beside the program | AMD, in ROCm |
# | torch.profiler | PyTorch's operators, kernels | a few lines; AMD's three steps made 14 MB | PyTorch's community |
# | rocprof-sys | call stacks on the host, kernels, sensors | AMD noted 90 s for ten steps | AMD, in ROCm |
# | `rocprofv3` | kernels, some counters | a word before the command | AMD, in ROCm |
# | rocprof-compute | what the hardware counts inside a kernel | runs the program several times | AMD, in ROCm |
# | rpd | kernels and what launched them, as a database | a word before the command | people at AMD, not in ROCm |
#
# *ROCm* is AMD's software for GPUs. Which GPUs and systems it supports is [on this page][hardware]. On a cluster you
# profile on a compute node, not on the login node: `salloc --nodes=1 --gpus=1 --time=01:00:00` gets one from Slurm,
# `qsub -I` from PBS. [In a container][docker] the GPU needs two devices, loaders need shared memory, debuggers a right:
# `docker run -it --device /dev/kfd --device /dev/dri --group-add video --ipc=host --cap-add=SYS_PTRACE
# --security-opt seccomp=unconfined rocm/pytorch`.
#
# [hardware]: https://rocm.docs.amd.com/projects/install-on-linux/en/latest/reference/system-requirements.html
# [docker]: https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html

# %% [markdown]
# ## Predict
#
# Is the case slow? That needs a clock. Guess two numbers before you look, in place of `...`.

# %%
# solution
first_guess, difference_guess = 5, 1
# end solution
proflab.predict("00.a", first_guess, unit="times", what="the first step against a typical one")
proflab.predict("00.b", difference_guess, unit="%", what="what two runs of one training differ by")

# %% [markdown]
# ## Capture: the clock
#
# The same training without the profiler, and once more. The second run is watched again in four of its steps:

# %% language="bash"
# $CASE --batch-size 8 --max-steps 8 --run-dir $FOLDER/first

# %% language="bash"
# $CASE --batch-size 8 --max-steps 12 --torch-profile --run-dir $FOLDER/watched > $FOLDER/log 2>&1

# %% [markdown]
# | line | what it says |
# | --- | --- |
# | `resnet, ...` | the *conditions*: model, precision (in brackets what it was here), batch size, device |
# | `steps` | how many, and how many of them are *warm-up* |
# | `step` | the *median*: half of the steps were faster. The middle half lies between the *quartiles* |
# | `images/s` | images of the *steady* steps, those after the warm-up, divided by their time |

# %%
lines = pd.read_json(lesson.folder / "first/metrics_rank0_of_1.jsonl", lines=True)
steps = lines[lines["record"] == "step"]
steady = steps[steps["part"] == "steady"]
median_ns = steady["duration_ns"].median()

run = training_run(lesson.folder / "first")
assert median_ns == run.steady["duration_ns"].median()
show_figure(plots.step_times(run.steps, title="Your first run, step by step"))

# %% [markdown]
# The dashed line is the median without the warm-up. An orange bar, if there is one, is a slow step, and says how many
# times the median it took; an arrow says that the bar is cut off. In the first steps libraries load and memory is
# reserved. On an AMD GPU MIOpen tries out kernels for every new size. All this is real, but it happens once.
#
# ## Lies 1 and 2: the wrong average

# %%
means = [steps["duration_ns"].mean(), steady["duration_ns"].mean(), median_ns]
ways = ["mean of all steps", "mean without warm-up", "median without warm-up"]
table = pd.DataFrame({"way": ways, "step_ns": means})
show_table(table, "way step_ms", "Your run in one number", origin=run.origin)
first = steps["duration_ns"].iloc[0] / median_ns
hidden = "Other programs hid the slow first step here: repeat it when all is quiet."
hidden = hidden if first < 1.1 else ""
say(f"The mean of all steps is {means[0] / median_ns:.2f} times that median. {hidden}\n\nOn a GPU:")

# %% [markdown]
# AMD published these lines of the same model and batch on one MI300X, its GPU
# for data centres. The script prints a speed for each batch, so a line's time is 256 images divided by its speed.

# %%
published = pd.read_csv(lesson.file("published_rates.csv"), comment="#")
published["duration_ns"] = 256 / published["images_per_second"] * 1e9
published["part"] = ["warmup"] + ["steady"] * (len(published) - 1)
amd = tidyprof.Origin("recorded", "AMD Instinct MI300X, ROCm 6.2, amd/HPCTrainingExamples")
published.attrs["origin"] = amd
show_figure(plots.step_times(published, title="AMD's run: step 0 is far off, and step 4 is slow"))

# %%
# 5 minutes: a long run would hide step 0, not cure it. If AMD's run went on, and all steps but step 0 took the median
# of `published` without step 0: after how many steps, step 0 included, is the mean only 5 % above that median?
q = exercise("00.3", published)
# solution
times = published["duration_ns"]
typical_ns = times.iloc[1:].median()
answer = (times.iloc[0] - typical_ns) / (0.05 * typical_ns)
# end solution
q.check(answer)

# %% [markdown]
# The median ignores a slow step. That is good for a speed, and bad for a diagnosis: look at every slow step, and ask
# why. And the case? Nobody measured it on an MI300X. The course's model computes it:

# %%
played = modelled(case.options("00"))
case_ns = 256e9 / played.images_per_second
say(f"The case: {case_ns / 1e6:.1f} ms a step, {256e9 / case_ns:,.0f} images/s ({played.origin}).")

# %%
# 5 minutes: how many times as long as AMD's typical step does a step of the case take? The typical step is the median
# time of `published` without step 0. `case_ns` is the step of the case.
q = exercise("00.4", {"case_ns": case_ns, "lines": published})
# solution
typical_ns = published["duration_ns"].iloc[1:].median()
answer = case_ns / typical_ns
# end solution
q.check(answer)

# %% [markdown]
# ## Lie 3: the clock is read before the device is done
#
# A GPU works *asynchronously*. Your program only *launches* work for it: it puts the work into a queue and goes on at
# once. To *synchronise* means to wait until the queue is empty. You don't need a GPU to see the trap. Below, a second
# thread of this program stands in for one: `device.launch(work)` launches, `device.synchronize()` waits. Its work is
# real, but says nothing about the speed of a GPU.

# %%
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
say(f"Measured here: the timer says {reported_ms:.3f} ms a step, the device {worked_ms:.1f} ms.")

# %%
# 8 minutes: copy the timer, rename it and repair it, then `answer = my_timer`. The seconds that it returns must
# cover the work of the device, and no work that was launched before.
q = exercise("00.5")


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

# %% [markdown]
# What do AMD's lines measure? The [script][script] does this in each step:
#
# 1. It reads the clock, and fetches a batch.
# 2. It launches forward, backward and optimizer.
# 3. It reads the clock again. The difference is the step's time.
# 4. It prints the loss. This waits until the GPU has done everything, but no clock runs.
#
# In mixed precision a helper called `GradScaler` reads a value back before the optimizer. That waits for forward and
# backward inside the interval, and only the optimizer's work is missed. So AMD's steps are a little longer than their
# lines say. With `--precision bfloat16` nothing waits inside: such lines show mostly launching. This follows from
# the script; nobody measured it.
#
# [script]: https://github.com/amd/HPCTrainingExamples/blob/main/MLExamples/PyTorch_Profiling/train_cifar_100.py
#
# ## Lies 4 and 5: the profiler in the timer, and one run
#
# When is a difference a result? Two runs of the same work differ by noise, and no smaller difference counts. And the
# middle halves, from quartile to quartile, must not overlap. Otherwise these runs can't tell. That is the whole rule:


# %%
def per_image(steps):
    return (steps["duration_ns"] / steps["images"]).quantile([0.25, 0.5, 0.75])


def compare(steps, same_work):
    (low, middle, high), first, second = per_image(steps), *map(per_image, same_work)
    noise = max(first[0.5], second[0.5]) / min(first[0.5], second[0.5])
    ratios = sorted(middle / other[0.5] for other in (first, second))
    if low > max(first[0.75], second[0.75]) and ratios[0] > noise:
        return ratios, "slower"
    if high < min(first[0.25], second[0.25]) and ratios[1] < 1 / noise:
        return ratios, "faster"
    return ratios, "can't tell"


# %%
watched = training_run(lesson.folder / "watched")
same_work = (run.steady, watched.steady)
medians = [steps["duration_ns"].median() for steps in same_work]
difference = 100 * (max(medians) / min(medians) - 1)
profiled, profiler = compare(watched.watched, same_work)
verdict = "These can't tell its cost." if profiler == "can't tell" else f"They were {profiler}."
traced_ns = tidyprof.steps(modelled_trace(case.options("00")))["duration_ns"].median()
say(
    f"**4, the profiler in the timer** ({run.origin}). Watched steps took {profiled[0]:.2f} to "
    f"{profiled[1]:.2f} times as long as the others. {verdict} On the modelled MI300X "
    f"torch.profiler makes the case's step {traced_ns / case_ns:.2f} times as long.\n\n**5, one "
    "run.** While the profiler is off, both runs do the same work. Still their medians differ by "
    f"{difference:.1f} %. A change that is smaller than this is no result. If it is large, look "
    "for other programs on this machine."
)

# %% [markdown]
# ## Decide: what do you report?
#
# A speed that others will see needs its spread and its conditions.

# %%
# 5 minutes, open: report AMD's run as a dictionary. `median_ms` and `quartiles_ms` (a pair) of the steps without step
# 0; `images_per_second`, which these steps reached together; `conditions`, a text that names model, precision, batch
# size and device. `published` has `duration_ns` and `images_per_second` of each step; AMD trained in mixed precision.
q = exercise("00.6", published)
# solution
times = published["duration_ns"].iloc[1:] / 1e6
answer = {
    "median_ms": times.median(),
    "quartiles_ms": (times.quantile(0.25), times.quantile(0.75)),
    "images_per_second": 256 * len(times) / times.sum() * 1e3,
    "conditions": "ResNet-50, mixed precision, batch 256, one MI300X",
}
# end solution
q.check(answer)

# %%
proflab.reveal("00.a", first, run)
say(hidden or "So leave the first steps out, or let the median do it.")
proflab.reveal("00.b", difference, run)

# %% [markdown]
# And the case? Its first line goes into the *case sheet*, which every lesson continues. One side is modelled, the other
# one recorded: enough to ask why, and no proof of a cause. If you time `$CASE` on an MI300X, put your step in place of
# `case_ns`.


# %%
def decide(times_as_long):
    return "01" if times_as_long > 1.1 else ""  # the model itself can be off by some percent


typical_ns = published["duration_ns"].iloc[1:].median()
slower = case_ns / typical_ns
lesson.conclude(
    f"A step of the case takes {case_ns / 1e6:.0f} ms, {256e9 / case_ns:,.0f} images/s "
    f"(modelled). AMD's lines of this model and batch say {typical_ns / 1e6:.0f} ms, "
    f"{256e9 / typical_ns:,.0f} images/s (recorded). The case takes {slower:.1f} times as long.",
    rules_out="that this model has to be so slow on this GPU; nothing about the GPU yet",
    because="A clock can't tell a busy GPU from a waiting one.",
    next=decide(slower),
    origin=f"{played.origin}; {amd}",
)

# %% [markdown]
# ## What a step clock cannot see
#
# It says how long a step takes, not which part of it, and not why. It can't tell a busy GPU from a waiting one.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# {issue import-torch-hangs-without-devkfd}
# {issue cifar-100-takes-an-hour-to-download}
# | the first steps take minutes on an AMD GPU | [MIOpen tries out kernels][find]: that is warm-up, wait for it once |
#
# [find]: https://github.com/pytorch/pytorch/pull/179795

# %% [markdown]
# ## At work, without this course
#
# Copy this beside your script. It marks every step with events on a GPU, so that it never waits between two steps, and
# checks itself against the host's clock.
#
# {snippet 00_time_a_step.py}

# %% [markdown]
# ## Key points
#
# - Synchronise at both ends of what you time, or use events. Leave the warm-up out.
# - Times can be averaged, rates can't. Report the median, the spread and the conditions.
# - Repeat the run before you believe a difference, and keep the profiler out of it. "Can't tell" is a result too.
#
# Next question: is the GPU even the problem?
