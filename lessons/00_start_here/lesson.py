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
# - run the course's training program, and read what it measured with pandas;
# - time a step of your own PyTorch code, on a GPU and on a processor;
# - recognise seven ways in which a step time misleads, and say when you can't tell.
#
# You need two processor cores and no experience with profilers. An AMD GPU is used where there is one. The table
# below shows the versions that you have. AMD's published numbers are from release 6.2 of ROCm, AMD's software for
# GPUs.

# %%
import statistics
import time

import pandas as pd
import proflab
import tidyprof
import torch
from proflab import exercise, say, show_figure, show_table
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
# A lesson writes each new idea once, in plain PyTorch, pandas, SQL or shell. Often an `assert` shows that the
# course's own helper gives the same; from then on the helper is used. The end shows what to take to work, where you
# don't have this course.
#
# Every number says where it comes from: *measured* here and now, *recorded* on a named machine, or *modelled*,
# which means computed. New words are explained where they first appear, and again in
# [the glossary](../docs/glossary.md).
#
# In an exercise you replace `...` by your answer and run the cell. `q.hint()`, `q.hint(2)` and `q.solution()`
# help; put them into the cell, or into one of your own. The heading tells how long it takes. Try a wrong answer
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

# %% [markdown] tags=["given"]
# | tool | the question it answers | lesson |
# | --- | --- | --- |
# | amd-smi, omnistat | Is the GPU used at all? Do power, heat or memory limit it? | [01](01_system_view.ipynb) |
# | torch.profiler | Where does a step go? | [02](02_torch_profiler_timeline.ipynb) |
# | rocprof-sys | What does the processor do while the GPU waits? | [03](03_rocprof_sys_sampling.ipynb) |
# | rocprofv3 | Which kernels, how often, how long? | [04](04_rocprofv3_kernel_stats.ipynb) |
# | rocprof-compute | How near is a kernel to the hardware's limit? | [05](05_rocprof_compute_kernel_analysis.ipynb) |
# | rpd | Can I ask my own question? | [06](06_rpd_queries.ipynb) |
# | debug agent | The job died or hangs: in which kernel? | [09](09_when_it_crashes.ipynb) |
#
# What they see, and what that costs:
#
# | tool | sees | cost |
# | --- | --- | --- |
# | amd-smi, omnistat | sensors: power, heat, memory, activity | runs beside the program |
# | torch.profiler | operators (PyTorch's functions), kernels | a few lines; AMD's three steps made 14 MB |
# | rocprof-sys | call stacks (who called whom on the host), kernels, sensors | AMD noted 90 s for ten steps |
# | rocprofv3 | kernels, some counters | a word before the command |
# | rocprof-compute | counters: what the hardware counts inside a kernel | runs the program once for each group |
# | rpd | kernels and what launched them, as a database | a word before the command |
# | debug agent | the GPU's state at a fault, no times | a library loaded at the start |

# %% [markdown]
# Read the first table from the top. Each tool asks a narrower question than the one above. Stop as soon as yours is
# answered. The costs are from the tools' own pages and from AMD's published runs of this training.
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
# The trainer writes one JSON object a line: one for the run, one for each step, one for the summary. Pandas reads
# such a file at once. `training_run` is the course's helper for it, and keeps the origin of the numbers too.

# %%
lines = pd.read_json("runs/00/first/metrics_rank0_of_1.jsonl", lines=True)
steps = lines[lines["record"] == "step"]
steady = steps[steps["part"] == "steady"]
median_ns = steady["duration_ns"].median()

run = training_run("runs/00/first")
assert median_ns == run.steady["duration_ns"].median()
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
# One list of times, three answers:

# %%
averages = {
    "mean of all steps": steps["duration_ns"].mean(),
    "mean without warm-up": steady["duration_ns"].mean(),
    "median without warm-up": median_ns,
}
table = pd.DataFrame({"way": averages.keys(), "step_ns": averages.values()})
show_table(table, "way step_ms", "Your run in one number", origin=run.origin)
ratio = table["step_ns"].iloc[0] / median_ns
hidden = "A long run would hide this, not cure it."
nothing = "Here the first steps hardly stand out. On a quicker machine or a GPU they do: leave them out all the same."
say(f"The mean of all steps is {ratio:.2f} times the median without warm-up. {hidden if ratio > 1.1 else nothing}")

# %%
# 5 minutes: how long must a run be to hide it? Take the warm-up of your run, and let all further steps last as long
# as the median steady one. After how many steps, warm-up included, is the mean of all only 5 % above that median?
# `steps` and `steady` are those of the cells above.
q = exercise("00.2", run)
# solution
warmup = steps[steps["part"] == "warmup"]
lost_ns = (warmup["duration_ns"] - median_ns).sum()
answer = lost_ns / (0.05 * median_ns)
# end solution
q.check(answer)

# %% [markdown]
# Does this happen on small machines only? Here are the lines that AMD published for this model on one MI300X, its
# GPU for data centres. The script prints a speed for each batch of 256 images, so the time of a line is 256 divided by
# it.

# %%
published = pd.read_csv(lesson.file("published_rates.csv"), comment="#")
amd = tidyprof.Origin("recorded", "AMD Instinct MI300X, ROCm 6.2, published by AMD in HPCTrainingExamples")
one_gpu = published[published["run"] == "one GPU"].copy()
one_gpu["duration_ns"] = 256 / one_gpu["images_per_second"] * 1e9
one_gpu.attrs["origin"] = amd
show_figure(plots.step_times(one_gpu, title="AMD's run: the first step is far off, and step 4 is slow"))
later_ms = one_gpu["duration_ns"].iloc[1:] / 1e6
say(
    f"Step 0 ran at {one_gpu['images_per_second'].iloc[0]:,.0f} images/s, the median step at "
    f"{one_gpu['images_per_second'].median():,.0f}. Without step 0, step 4 alone still pulls the mean to "
    f"{later_ms.mean():.1f} ms; the median stays at {later_ms.median():.1f} ms."
)

# %% [markdown]
# The median ignores a slow step. That is good for a speed, and bad for a diagnosis: look at every slow step, and
# ask why.

# %%
# 5 minutes: what was the rate over all lines together, step 0 included, in images per second? Each line of `one_gpu`
# counts 256 images.
q = exercise("00.3", one_gpu)
# solution
seconds = one_gpu["duration_ns"].sum() / 1e9
images = 256 * len(one_gpu)
answer = images / seconds
# end solution
q.check(answer)

# %% [markdown]
# ## Lie 3: the clock is read before the device is done
#
# A GPU works *asynchronously*. Your program runs on the processor, the *host*. It only *launches* work for the GPU:
# it puts the work into a queue and goes on at once. To *synchronise* means to wait until the queue is empty.
#
# So there are two honest clocks for a step of your own. Here they are, with a model small enough for any machine:

# %%
device = "cuda" if torch.cuda.is_available() else "cpu"  # PyTorch calls AMD's GPUs cuda too
layers = [torch.nn.Flatten(), torch.nn.Linear(3072, 512), torch.nn.ReLU(), torch.nn.Linear(512, 100)]
model = torch.nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images, labels = torch.randn(256, 3, 32, 32, device=device), torch.randint(100, (256,), device=device)


def step():
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# %% [markdown]
# The first clock is the host's: wait, read, work, wait, read. The second one is the GPU's: an *event* is a mark that
# you put into the queue before and after the work. The GPU notes the time when it comes to it, and nobody has to wait
# between steps. `torch.accelerator.synchronize()` waits on a GPU of any maker.


# %%
def by_host_clock(step):
    if device == "cuda":
        torch.cuda.synchronize()  # nothing older may be counted
    begin = time.perf_counter()
    step()
    returned = time.perf_counter()
    if device == "cuda":
        torch.cuda.synchronize()  # all of the step must be counted
    return returned - begin, time.perf_counter() - begin


def by_events(step):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    step()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000  # it gives milliseconds


# %%
for _ in range(5):
    step()  # warm-up
clocks = pd.DataFrame([by_host_clock(step) for _ in range(25)], columns=["returned", "done"])
returned_ms, done_ms = 1e3 * clocks.median()
if device == "cuda":
    events_ms = 1e3 * statistics.median(by_events(step) for _ in range(25))
    say(
        f"Measured here: the host is back after {returned_ms:.2f} ms, the GPU is done after {done_ms:.2f} ms, and the "
        f"events say {events_ms:.2f} ms. A clock without the second wait shows the first number."
    )
else:
    say(
        f"Measured here, without a GPU: the call returns after {returned_ms:.3f} ms, and {done_ms:.3f} ms is when all "
        "is done. On a processor a call returns when its work is done, so there is nothing to wait for, and the trap "
        "can't be shown. Events need a GPU."
    )

# %% [markdown]
# You don't need a GPU to see what the trap does. Below, a second thread of this program stands in for one:
# `device.launch(work)` launches, `device.synchronize()` waits. Its work is real, each piece a product of two
# matrices, but it says nothing about how fast a GPU is.

# %%
from proflab.parts.asynchronous import StandInDevice, matrix_work

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
    return {"reported_ns": 1e9 * statistics.median(seconds), "worked_ns": statistics.median(device.worked_ns[1:])}


trap = trial(lying)
say(
    f"The timer reports {trap['reported_ns'] / 1e6:.3f} ms a step, the device worked for {trap['worked_ns'] / 1e6:.1f} "
    f"ms (measured on this thread): a speed {trap['worked_ns'] / trap['reported_ns']:,.0f} times too high."
)

# %% [markdown]
# AMD's published script has this order: launch, read the clock, print the loss, read the clock for the next step.
# Printing waits for the GPU, and this wait lies in no interval. How much is missed depends on the precision:
#
# - By default it is half precision (FP16). A helper called `GradScaler` then reads a value back before the optimizer,
#   which waits too. So forward and backward are inside the interval, and only the optimizer's work is not.
# - With `float32` or `bfloat16` (BF16) nothing waits inside. Such lines show mostly launching, and must not be
#   compared with the FP16 lines above.
#
# This follows from reading the script; nobody has measured it here. The course's trainer marks both ends of a step
# with events, and reads them after the run.

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

# %% [markdown] tags=["given"]
# ## Lie 4: images that were not there
#
# AMD's script divides 256 by the time, in every line. But the last batch holds what is left over. There is a second
# published run, of several GPUs; how many is not stated, and the lines are those of one. If eight share the 40,000
# images of an epoch (one pass over all of them), the run ends after exactly as many lines as it has.

# %%
# 6 minutes: if eight GPUs shared 40,000 images, what was the true rate of the last line, in images per second of
# this one GPU? Its lines are those of `published` whose `run` is `parallel`, with the columns `step` and
# `images_per_second`. Nobody has shown them to you yet: look first.
q = exercise("00.5", published[published["run"] == "parallel"])
# solution
parallel = published[published["run"] == "parallel"]
printed = parallel["images_per_second"].iloc[-1]
left = 40_000 // 8 - 256 * (len(parallel) - 1)
answer = printed * left / 256
# end solution
q.check(answer)

# %% [markdown]
# ## Lies 5, 6 and 7: three runs
#
# Two more runs. In the first of them, `--torch-profile` lets a profiler watch four of the steps; everything else is
# as before. The other changes the batch size.

# %% language="bash"
# python -m cifar_train --max-steps 12 --batch-size 8 --torch-profile --run-dir runs/00/watched
# python -m cifar_train --max-steps 4 --batch-size 32 --run-dir runs/00/larger

# %%
watched, larger = training_run("runs/00/watched"), training_run("runs/00/larger")
groups = {
    "the first run": run.steady,
    "the second, profiler off": watched.steady,
    "the second, profiler on": watched.watched,
    "the third": larger.steady,
}
spread = pd.DataFrame({name: group["duration_ns"].quantile([0.25, 0.5, 0.75]) for name, group in groups.items()}).T
spread.columns = ["lower_ns", "median_ns", "upper_ns"]
spread["batch"] = [group["images"].iloc[0] for group in groups.values()]
table = spread.rename_axis("steps_of").reset_index()
show_table(table, "steps_of batch lower_ms median_ms upper_ms", "Quartiles of the steady steps", origin=run.origin)

# %% [markdown]
# When is a difference a result? The first two rows did the same work. What they differ by is noise, and no smaller
# difference counts. And the middle halves, from quartile to quartile, must not overlap. Otherwise these runs can't
# tell. That is the whole rule:


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


same_work = (run.steady, watched.steady)
medians = [steps["duration_ns"].median() for steps in same_work]
difference = 100 * (max(medians) / min(medians) - 1)
profiled, profiler = compare(watched.watched, same_work)
batched, batch = compare(larger.steady, same_work)

# %%
why = f"two runs of the same work differ by {difference:.1f} % here, or the middle halves overlap"
cost = f"{profiled[0]:.2f} to {profiled[1]:.2f} times as long as the others"
words = {
    "slower": f"Watched steps took {cost}: the profiler has a price.",
    "faster": f"Watched steps took {cost}. A profiler can't do that: something else on this machine changed.",
    "can't tell": f"Watched steps took {cost}, and these runs can't tell what the profiler costs: {why}.",
}
gain = f"{1 / batched[1]:.2f} to {1 / batched[0]:.2f} times the images/s"
rate = {"can't tell": f"{gain}, which is no result: {why}."}
say(
    f"**5, the profiler inside the timer.** {words[profiler]}\n\n"
    "**6, one run.** While the profiler is off, both runs do the same work. Still their medians differ by "
    f"{difference:.1f} %. A change that is smaller than this is no result. If it is large, look first for other "
    "programs on this machine.\n\n"
    f"**7, no conditions.** The larger batch gives {rate.get(batch, gain + ', and no number is wrong.')} "
    "A rate says little without its batch size, precision, model and device."
)

# %% [markdown]
# ## Decide: what do you report?
#
# A speed that others will see needs its spread and its conditions. Write yours.

# %%
# 5 minutes, open: report `run` as a dictionary. `median_ms` and `quartiles_ms` (a pair) of the steady steps;
# `images_per_second`, as the trainer counts it: the images of the steady steps divided by their time; `conditions`,
# a text that names model, precision, batch size and device (`run.conditions` is one). `run.steady` has `duration_ns`
# and `images`.
q = exercise("00.6", run)
# solution
times = run.steady["duration_ns"] / 1e6
answer = {
    "median_ms": times.median(),
    "quartiles_ms": (times.quantile(0.25), times.quantile(0.75)),
    "images_per_second": run.steady["images"].sum() / times.sum() * 1e3,
    "conditions": run.conditions,
}
# end solution
q.check(answer)

# %% [markdown]
# ## All seven, and the cure


# %%
def apart(said, true, verdict=""):
    times = max(said, true) / min(said, true)
    return "can't tell" if verdict == "can't tell" else f"{times:,.2f} times"


last = published[published["run"] == "parallel"]["images_per_second"].iloc[-1]
lies = [
    ("1. warm-up in the mean", "measured", apart(steps["duration_ns"].mean(), median_ns), "leave it out"),
    ("2. slow step in the mean", "recorded", apart(later_ms.mean(), later_ms.median()), "median, then ask why"),
    ("3. clock read too early", "measured", apart(trap["reported_ns"], trap["worked_ns"]), "synchronise at both ends"),
    ("4. images not there", "recorded", apart(last, last * 136 / 256), "count each batch"),
    ("5. profiler in the timer", "measured", apart(*spread["median_ns"].iloc[[2, 0]], profiler), "a run of its own"),
    ("6. one run only", "measured", apart(*medians), "repeat, give the spread"),
    ("7. no conditions stated", "measured", apart(batched[0], 1, batch), "state all of them"),
]
table = pd.DataFrame(lies, columns=["way_to_be_misled", "origin", "apart_by", "cure"])
show_table(table, "way_to_be_misled origin apart_by cure", "Seven ways a clock misleads", origin=f"{run.origin}; {amd}")

# %% [markdown]
# The third is measured on the thread that stands in for a GPU. The recipe for an honest clock:
#
# 1. Synchronise at both ends of what you time, or use events.
# 2. Warm up, and leave the warm-up out.
# 3. Report the median and the spread, with the conditions.
# 4. Change one thing at a time.
# 5. Repeat the run before you believe a difference. Say "can't tell" when you can't.
# 6. Use a profiler in a run of its own.
#
# ## Prediction and result

# %%
proflab.reveal("00.a", run.steps["duration_ns"].iloc[0] / median_ns, run)
proflab.reveal("00.b", difference, run)

# %% [markdown]
# ## What a step clock cannot see
#
# It says how long a step takes, not which part of it, and not why. It can't tell a busy GPU from a waiting one,
# nor a model that learns from one that is broken. Each of these is a question for another tool.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# {issue import-torch-hangs-without-devkfd}
# {issue cifar-100-takes-an-hour-to-download}
# | the first steps take minutes on an AMD GPU | [MIOpen tries out kernels][find]: that is warm-up, wait for it once |
# | `amd-smi` shows nothing of a short run | it looks once a second: raise `--max-steps` |
#
# [find]: https://github.com/pytorch/pytorch/pull/179795

# %% [markdown]
# ## At work, without this course
#
# Copy this beside your script. It marks every step with events on a GPU, so that it never waits between two steps,
# and checks itself against the host's clock.
#
# {snippet 00_time_a_step.py}

# %% [markdown]
# ## Key points
#
# - A clock on the host measures launching until you synchronise. Events measure in the GPU's own queue.
# - Times can be averaged, rates can't. Medians are for speeds, slow steps for questions.
# - A speed has a spread and conditions, or it proves nothing. "Can't tell" is a result too.
#
# Next question: is the GPU even the problem?
