# %% [markdown]
# # Start here: can I trust my setup and my clock?
#
# Every lesson of this course compares times. A clock is always right about something, but often not about what
# you asked. Later lessons use *profilers*: programs that record what another program does, and when. Before the
# first of them you look at what is installed here, run the training program once, and meet seven ways to get a
# wrong speed out of a right clock.
#
# After this lesson you can
#
# - run the course's training program and read its report;
# - recognise seven ways in which a step time misleads;
# - repair a timer, and report a speed that others can compare with theirs.
#
# You need two processor cores and no experience with profilers. An AMD GPU is used where there is one. The table
# below shows the versions that you have. AMD's published numbers are from release 6.2 of ROCm, AMD's software for
# GPUs.

# %%
import proflab
from proflab import exercise, say, show_figure, show_table
from proflab.parts.averages import averages, spread_table, verdict
from proflab.training import training_run
from tidyprof import plots

lesson = proflab.start("00")

# %% [markdown]
# ## How this course works
#
# `real` in the table means that it is installed; what is `missing` can wait. A `stand-in` is a program of this
# course that answers in place of a missing tool, and says so. Run the cells from top to bottom. Files go to the
# folder `runs` beside this notebook, and nothing leaves your machine.
#
# Every number says where it comes from: *measured* here and now, *recorded* on a named machine, or *modelled*,
# which means computed. New words are explained where they first appear, and again in
# [the glossary](../docs/glossary.md).
#
# In an exercise you replace `...` by your answer and run the cell. `q.hint()`, `q.hint(2)` and `q.solution()`
# help; put them into the cell, or into one of your own. The comment tells how long it takes. Try a wrong answer
# first, and see what happens.

# %%
# 1 minute: a step took this many nanoseconds (billionths of a second). How many milliseconds is that?
step_ns = 20_020_836
q = exercise("00.1", step_ns)
# solution
answer = step_ns / 1e6
# end solution
q.check(answer)

# %% [markdown]
# ## What you will profile
#
# A small image classifier, trained on CIFAR-100: colour photographs of 32 by 32 pixels in a hundred classes.
# Three models are there. `resnet` slides small filters over the image; `vit` and `swinv2` are transformers,
# which cut the image into patches and compare these. Images are handled in *batches*, and training repeats one
# *step*:
#
# | part of a step | what happens |
# | --- | --- |
# | data | the next batch is read, changed a little at random, and moved to the device |
# | forward | the model computes its answers |
# | loss | one number says how wrong they are |
# | backward | for each weight of the model: which change would make the loss smaller? |
# | optimizer | each weight is changed a little in that direction |
#
# The *device* is the GPU, or the processor where there is none. A program that runs on a GPU is called a
# *kernel*; one step runs many. Most lessons profile this step, each with another tool:

# %%
from proflab.parts.tool_map import tool_map

tool_map()

# %% [markdown]
# Read the map from the top. Each tool asks a narrower question than the one above. Stop as soon as yours is
# answered.
#
# ## Predict
#
# Guess two numbers before you look, and put them in place of `...`. Being wrong here is the point.

# %%
# solution
first_guess, difference_guess = 5, 1
# end solution
proflab.predict("00.a", first_guess, unit="times", what="the first step of a run, compared with a typical one")
proflab.predict("00.b", difference_guess, unit="%", what="the difference between two runs of the same training")

# %% [markdown]
# ## Capture
#
# `--max-steps` ends the run early, `--batch-size` keeps a step short on a processor, `--run-dir` says where
# results go. The rest stays as it is: the model is `resnet`, the precision `automixed`, which means short
# numbers where they are exact enough, and where the device is fast with them. Many processors are not; then
# `automixed` is plain `float32`. The report says in brackets which it was. Most of the waiting is for PyTorch to start.

# %% language="bash"
# python -m cifar_train --max-steps 12 --batch-size 8 --run-dir runs/00/first

# %% [markdown]
# How to read this:
#
# | line | what it says |
# | --- | --- |
# | `cifar_train: ...` | which images: made up if CIFAR-100 is not here; and the device: `cuda` means AMD's GPUs too |
# | `resnet, ...` | the *conditions*: model, precision (what it was here), batch size, device |
# | `steps` | how many, and how many of them are *warm-up* |
# | `step` | the *median*: half of the steps were faster. The middle half lies between the *quartiles* |
# | `images/s` | images of the *steady* steps, those after the warm-up, divided by their time |
# | `peak memory` | the most memory that the run needed; `a rank` counts with several GPUs only, see lesson 01 |
# | `loss` | first and last: a fast model that learns nothing is no success |
#
# ## First look
#
# The trainer keeps every step in a file. `training_run` makes a table of it.

# %%
run = training_run("runs/00/first")
show_table(run.steps, "step part images duration_ms images_per_second loss", "Your first run", rows=8)
show_figure(plots.step_times(run.steps, title="Your first run, step by step"))

# %% [markdown]
# The dashed line is the median of all steps. An orange bar is a slow step, and says how many times the median it
# took. In the first steps libraries load, memory is reserved, and the processes that prepare the data start. On an
# AMD GPU there is more: MIOpen, AMD's library for convolutions (sliding filters), tries out kernels for every new
# size. All this is real, but it happens once.
#
# ## Lies 1 and 2: the wrong average
#
# One list of times, three speeds:

# %%
own = averages(run.steps)
show_table(own, "way steps step_ms images_per_second", "Your run in one number")
say(
    f"The mean of all steps is {own['step_ns'].iloc[0] / own['step_ns'].iloc[2]:.1f} times the median without warm-up. "
    "A long run would hide this, not cure it."
)

# %%
# 3 minutes: how many times as long as the median steady step was step 0? `run.steps` has all steps, `run.steady`
# the steady ones, both with a column `duration_ns`.
q = exercise("00.2", run)
# solution
answer = run.steps["duration_ns"].iloc[0] / run.steady["duration_ns"].median()
# end solution
q.check(answer)

# %% [markdown]
# Does this happen on small machines only? Here are the lines that AMD published for this model on one MI300X, its
# GPU for data centres, with a batch of 256.

# %%
from proflab.parts.published_rates import published_rates

one_gpu, parallel = published_rates("one GPU"), published_rates("parallel")
later = averages(one_gpu.iloc[1:].assign(part="steady"))
show_figure(plots.step_times(one_gpu, title="AMD's run: the first step is far off, and step 4 is slow"))
say(
    f"Step 0 ran at {one_gpu['images_per_second'].iloc[0]:,.0f} images/s; the median after the warm-up is "
    f"{averages(one_gpu)['images_per_second'].iloc[2]:,.0f}. Without step 0, step 4 alone still pulls the mean to "
    f"{later['step_ns'].iloc[1] / 1e6:.1f} ms; the median stays at {later['step_ns'].iloc[2] / 1e6:.1f} ms."
)

# %% [markdown]
# The median ignores a slow step. That is good for a speed, and bad for a diagnosis: look at every slow step, and
# ask why.

# %%
# 5 minutes: what was the rate over all lines together, step 0 included, in images per second?
# `one_gpu` has a row per line, with the columns `images`, `duration_ns` and `images_per_second`.
q = exercise("00.3", one_gpu)
# solution
answer = one_gpu["images"].sum() / one_gpu["duration_ns"].sum() * 1e9
# end solution
q.check(answer)

# %% [markdown]
# ## Lie 3: the clock is read before the device is done
#
# A GPU works *asynchronously*. Your program runs on the processor, the *host*. It only *launches* work for the GPU:
# it puts the work into a queue and goes on at once. To *synchronise* means to wait until the queue is empty.
#
# You don't need a GPU to see what this does to a clock. Below, a second thread of this program stands in for one:
# `device.launch(work)` launches, `device.synchronize()` waits. Its work is real, each piece a product of two
# matrices, but it says nothing about how fast a GPU is.

# %%
from proflab.parts.asynchronous import timer_table


def lying(device, work, clock):
    begin = clock()
    device.launch(work)
    return clock() - begin


timers = timer_table({"lying": lying})
columns = "timer reported_us worked_us reported_images_per_second true_images_per_second"
show_table(timers, columns, "The timer's report, and what the device did")
say(f"The timer reports a speed {timers['worked_ns'].iloc[0] / timers['reported_ns'].iloc[0]:,.0f} times too high.")

# %% [markdown]
# AMD's published script has this order: launch, read the clock, print the loss, read the clock for the next step.
# Printing waits for the GPU, and this wait lies in no interval. How much is missed depends on the precision:
#
# - By default it is half precision (FP16). A helper called `GradScaler` then reads a value back before the optimizer,
#   which waits too. So forward and backward are inside the interval, and only the optimizer's work is not.
# - With `float32` or `bfloat16` (BF16) nothing waits inside. Such lines show mostly launching, and must not be
#   compared with the FP16 lines above.
#
# This follows from reading the script; nobody has measured it here.
#
# The course's trainer marks both ends of a step in the GPU's own queue, and reads the marks after the run.

# %%
# 8 minutes: copy the timer, rename it and repair it, then `answer = my_timer`. The seconds that it returns must
# cover the work of the device, and no work that was launched before.
q = exercise("00.4")


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
show_table(timer_table({"lying": lying, "yours": answer}), columns, "All timers on the stand-in")

# %% [markdown] tags=["given"]
# ## Lie 4: images that were not there
#
# AMD's script divides 256 by the time, in every line. But the last batch holds what is left over. Here are the last
# lines of the second published run. It used several GPUs; how many is not stated, and the lines are those of one.
# If eight share the 40,000 images of an epoch (one pass over all of them), the run ends after exactly as many lines
# as it has.

# %%
show_table(parallel.tail(3), "step images duration_ms images_per_second", "The end of AMD's parallel run, as printed")

# %%
# 4 minutes: if eight GPUs shared 40,000 images, what was the true rate of the last line, in images per second of
# this one GPU? `parallel` has a row per line.
q = exercise("00.5", parallel)
# solution
left = 40_000 // 8 - 256 * (len(parallel) - 1)
answer = left / parallel["duration_ns"].iloc[-1] * 1e9
# end solution
q.check(answer)

# %% [markdown]
# ## Lies 5, 6 and 7: three runs
#
# Two more runs. In the first of them, `--torch-profile` lets a profiler watch four of the steps; everything else is
# as before. The other changes the batch size. `lower` and `upper` below are the quartiles.

# %% language="bash"
# python -m cifar_train --max-steps 12 --batch-size 8 --torch-profile --run-dir runs/00/watched
# python -m cifar_train --max-steps 4 --batch-size 32 --run-dir runs/00/larger

# %%
watched, larger = training_run("runs/00/watched"), training_run("runs/00/larger")
plain = {"the first run": run.steady, "the second with the profiler off": watched.steady}
spread = spread_table({**plain, "the second with the profiler on": watched.watched, "the third": larger.steady})
show_table(spread, "steps_of count batch lower_ms median_ms upper_ms images_per_second", "Steady steps of three runs")
difference = 100 * abs(spread["median_ns"].iloc[1] / spread["median_ns"].iloc[0] - 1)
gain = spread["images_per_second"].iloc[3] / spread["images_per_second"].iloc[0]
say(
    f"**5, the profiler inside the timer.** {verdict('Watched steps', watched.watched, plain)}\n\n"
    "**6, one run.** While the profiler is off, both runs do the same work. Still their medians differ by "
    f"{difference:.1f} %. A change that is smaller than this is no result. If it is large, look first for other "
    "programs on this machine.\n\n"
    f"**7, no conditions.** The larger batch gives {gain:.2f} times the images/s, and neither number is wrong. "
    "A rate says little without its batch size, precision, model and device."
)

# %% [markdown]
# ## Decide: what do you report?
#
# A speed that others will see needs its spread and its conditions. Write yours.

# %%
# 5 minutes, open: report `run` as a dictionary. `median_ms` and `quartiles_ms` (a pair) of the steady steps;
# `images_per_second`, the batch size divided by the median; `conditions`, a text that names model, precision, batch
# size and device (`run.conditions` is one, `run.config["batch_size"]` the size).
q = exercise("00.6", run)
# solution
times = run.steady["duration_ns"] / 1e6
answer = {
    "median_ms": times.median(),
    "quartiles_ms": (times.quantile(0.25), times.quantile(0.75)),
    "images_per_second": run.config["batch_size"] / times.median() * 1e3,
    "conditions": run.conditions,
}
# end solution
q.check(answer)

# %% [markdown]
# ## All seven, and the cure

# %%
from proflab.parts.clock_lies import clock_lies, lies_table

lies_table(clock_lies(run, watched, larger, timers))

# %% [markdown]
# The recipe for an honest clock:
#
# 1. Synchronise at both ends of what you time.
# 2. Warm up, and leave the warm-up out.
# 3. Report the median and the spread, with the conditions.
# 4. Change one thing at a time.
# 5. Repeat the run before you believe a difference.
# 6. Use a profiler in a run of its own.
#
# ## Prediction and result

# %%
proflab.reveal("00.a", run.steps["duration_ns"].iloc[0] / run.steady["duration_ns"].median())
proflab.reveal("00.b", difference)

# %% [markdown]
# ## What a step clock cannot see
#
# It says how long a step takes, not which part of it, and not why. It can't tell a busy GPU from a waiting one,
# nor a model that learns from one that is broken. Each of these is a question for another tool on the map.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# | `import torch` for AMD GPUs hangs without one | [train where there is a GPU][login]; nothing else here imports it |
# | CIFAR-100 downloads very slowly | [fetch it the day before][slow] with `--download-only`, or use made-up images |
# | the first steps take minutes on an AMD GPU | [MIOpen tries out kernels][find]: that is warm-up, wait for it once |
# | `amd-smi` shows nothing of a short run | it looks once a second: raise `--max-steps` |
#
# [login]: https://github.com/pytorch/pytorch/issues/189110
# [slow]: https://github.com/pytorch/vision/issues/9536
# [find]: https://github.com/pytorch/pytorch/pull/179795
#
# ## Key points
#
# - A clock on the host measures launching until you synchronise.
# - Times can be averaged, rates can't. Medians are for speeds, slow steps for questions.
# - A speed has a spread and conditions, or it proves nothing.
#
# Next question: is the GPU even the problem?
