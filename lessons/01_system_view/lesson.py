# %% [markdown]
# # Is the GPU even the problem?
#
# The example run is slow, but a clock can't show whether the GPU works or waits. System monitors read the sensors of a
# GPU while a job runs, but their output is easy to misread.
#
# After this lesson, you can:
#
# - monitor a program with `amd-smi` and a job with omnistat, and find your job in a long log;
# - use power draw to tell a GPU that does useful work from one that only looks busy;
# - rule out the data, the host, the device or the network based on evidence, and name the suspects that remain.
#
# **Before you start:** complete lesson 00. The commands apply to `amd-smi` in ROCm 7.2 and to omnistat 1.6 to 1.11. If
# your machine has an AMD GPU, the lesson uses it.

# %%
import os

import pandas as pd
import proflab
import tidyprof
from proflab import case, exercise, show_figure, show_table, show_text
from proflab.parts.watched_runs import one_table, stated_limit, watched_run
from proflab.parts.work_map import work_map
from tidyprof import plots

lesson = proflab.start("01")

# %%
lesson.recall()

# %%
lesson.findings()

# %% [markdown] slide="Each value of a monitor shows one thing, and hides another."
# ## The picture to keep in mind
#
# The driver provides a few sensor values for each GPU, and a monitor reads them at regular intervals:
#
# | value | what it shows | what it can't show |
# | --- | --- | --- |
# | activity (*busy*) | whether anything was running | how much of the GPU was in use |
# | memory activity | whether data moved to or from GPU memory | whether the data was needed |
# | power | how hard the hardware works | what work it does |
# | clocks, temperature | whether heat or the power limit slows the GPU down | which kernel needs the power |
# | memory in use (VRAM) | whether a program is loaded, or is about to run out of memory | whether the program computes |
#
# A slow run waits for at least one of four suspects. Rule out those that the evidence contradicts:

# %% [markdown] slide="Four suspects can make a step slow. Each one leaves different evidence."
# | suspect | the run waits for | evidence against it |
# | --- | --- | --- |
# | data | images that the loader reads and prepares | a GPU that is never idle; steps that stay long with far fewer images |
# | host | the program that launches work | a GPU that is never idle |
# | device | the GPU | a GPU that is idle for much of the time |
# | network | data from other GPUs | a single GPU; or one idle GPU while all the others are busy |
#
# If three GPUs are busy and one is idle, the busy ones are waiting, so look for the cause on the idle one.
#
# > **Note:** On LUMI and Frontier, each MI250X card has two dies (*GCDs*). `amd-smi`, PyTorch and Slurm count each die
# > as a GPU, and each rank uses one die. The first die reports the power draw of the whole card, and the second reports
# > `N/A`. AMD publishes figures per card, so halve them.
#
# ## Predict
#
# Guess two numbers for the H200 during the example run.

# %%
# solution
busy_guess, power_guess = 30, 100
# end solution
proflab.predict("01.a", busy_guess, unit="%", what="GPU activity in the example run")
proflab.predict(
    "01.b", power_guess, unit="W", what="power draw above the level before training"
)

# %% [markdown] slide="Options of amd-smi select what it reads, and how often."
# ## Capture
#
# The monitor runs in the background (`&`) while the network trains:
#
# | option | effect |
# | --- | --- |
# | `-g 0` | selects GPU 0, as numbered by the driver |
# | `-p -t -u -m -v` | adds power, temperature, activity and clock, memory activity, and memory in use |
# | `-w 1 -W $WATCH` | takes one sample per second (the shortest interval) for `$WATCH` seconds |
# | `--csv --file` | writes a table to a file, which the tool rewrites at each sample |
#
# Answer two questions before you start the monitor:
#
# - **Which GPU is it?** `rocminfo` lists the GPUs that ROCm detects. `torch.cuda.get_device_properties(0)` shows the
#   name, memory and compute units of the GPU that PyTorch uses.
# - **Are you its only user?** Sensors measure the whole GPU, not your job. `amd-smi process` shows which processes use
#   each GPU. On a shared node, GPU 0 can be another user's, because the monitor ignores `ROCR_VISIBLE_DEVICES`.
#
# > **Tip:** On a Slurm cluster, `srun --overlap --jobid JOB -w NODE -n1 amd-smi monitor ...` monitors one node of a
# > running job.
#
# Without a GPU, the course replays the sensors of a modeled MI300X, whose power draw between idle and the limit is an
# assumption. The training program doesn't run then, because `test -e /dev/kfd` doesn't find the driver's device file.

# %%
steps, seconds = (1500, 45) if lesson.has_gpu else (40, 3)
os.environ |= {"STEPS": str(steps), "WATCH": str(seconds)}

# %% language="bash"
# mkdir -p $FOLDER/example; rm -f $FOLDER/example/smi.csv
# export PROFLAB_WORKLOAD="$EXAMPLE --max-epochs 10 --max-steps $STEPS"
# echo $PROFLAB_WORKLOAD > $FOLDER/example/command.txt
# amd-smi monitor -g 0 -p -t -u -m -v -w 1 -W $WATCH --csv \
#     --file $FOLDER/example/smi.csv 2>&1 &
# test -e /dev/kfd && $PROFLAB_WORKLOAD --run-dir $FOLDER/example
# wait
# head -n 3 $FOLDER/example/smi.csv

# %% [markdown]
# Select columns by name, not by position. The names changed in ROCm 6.3, 7.0 and 7.2, and have been lowercase since
# 7.14. `gfx` is the activity of the engine that runs kernels, and `mem` is memory activity. `vram_used` is in MiB, and
# `N/A` means that the GPU lacks the sensor. On a GPU, run the cell above and the next training cell twice, because
# MIOpen tries out kernels in the first run (lesson 00).
#
# ## First look
#
# The log covers more time than the training run. Keep only the samples in which your program holds GPU memory, because
# it computes only then. `watched_run` does the same for every kind of log.

# %% slide="Look only at the rows in which the network is on the GPU."
smi = pd.read_csv(lesson.folder / "example/smi.csv", na_values="N/A").rename(
    columns=str.lower
)
at_work = smi[smi["vram_used"] > smi["vram_used"].max() / 2]
busy, power = at_work["gfx"].median(), at_work["power_usage"].median()
show_text(f"Median activity: {busy:.0f}%. Median power: {power:.0f} W.")

example = watched_run(lesson.folder / "example")
columns = (
    "run busy_percent memory_busy_percent memory_used_percent power_watt limit_watt"
)
show_table(
    example.table, f"{columns} limit_from", "Medians while the network was on the GPU"
)

# %% [markdown]
# The power limit comes from the monitor (since ROCm 7.0) or from the course's GPU table. Even an idle GPU draws a
# considerable part of this limit.
#
# On a real H200, `nvidia-smi` took ten samples per second: before training, during steady steps of the example run, and
# during a short run with more arithmetic per step.

# %% slide="The H200 is busy only part of the time, far below its power limit."
sensors = pd.read_csv(lesson.file("h200_sensors.csv"), comment="#")
h200 = sensors.groupby("run", sort=False)[["busy_percent", "power_watt"]].mean()
h200_busy, h200_watt = h200.loc["plain"]
more_watt = h200_watt - h200.loc["start", "power_watt"]
recorded = case.measured()
real, title = recorded.attrs["origin"], "Means for an H200 with a limit of 700 W"
show_table(h200.reset_index(), "run busy_percent power_watt", title, origin=real)
proflab.reveal("01.a", round(h200_busy, 1), real)
proflab.reveal("01.b", round(more_watt, 1), real)

# %% [markdown]
# During the example run, this GPU draws hardly more power than before training. (The last run took less than a second,
# so its power value, a mean over one second, was still rising.)
#
# *MFU* (model FLOPs utilization) is the arithmetic that the network requires per second, as a share of the GPU's peak
# rate. A *FLOP* is one addition or multiplication of two numbers.

# %% slide="The MFU compares the arithmetic that training needs with what the GPU could do."
mfu = example.images_per_second * example.flops_per_image / example.peak_flops
show_text(f"The MFU of the example run is {100 * mfu:.2g}% ({example.profile.origin}).")

# %% [markdown]
# ## Change one thing
#
# Monitor the run again with a batch size of 4. A shorter step suggests that the GPU was the limit, but only if the step
# doesn't shrink by more than the GPU's busy time.

# %% language="bash"
# mkdir -p $FOLDER/small-batch; rm -f $FOLDER/small-batch/smi.csv
# export PROFLAB_WORKLOAD="$EXAMPLE --max-epochs 10 --max-steps $STEPS --batch-size 4"
# echo $PROFLAB_WORKLOAD > $FOLDER/small-batch/command.txt
# amd-smi monitor -g 0 -p -t -u -m -v -w 1 -W $WATCH --csv \
#     --file $FOLDER/small-batch/smi.csv 2>&1 &
# test -e /dev/kfd && $PROFLAB_WORKLOAD --run-dir $FOLDER/small-batch
# wait

# %% slide="A smaller batch barely shortens the step, so the GPU isn't what the step waits for."
small = watched_run(lesson.folder / "small-batch")
both = one_table([example, small])
both["step_ms"] = 1e3 * both["batch_size"] / both["images_per_second"]
show_table(
    both, "run step_ms images_per_second busy_percent power_watt", "Two batch sizes"
)
large_ms, small_ms = both["step_ms"]
per_image = (large_ms - small_ms) / (example.batch_size - small.batch_size)
show_text(
    f"The step is {large_ms - small_ms:.0f} ms shorter, but the GPU was busy for only "
    f"{busy / 100 * large_ms:.0f} ms. Each image adds {per_image:.2f} ms, so 4 images "
    f"take {4 * per_image:.1f} of {small_ms:.0f} ms."
)

# %% [markdown]
# Part of the step time therefore grows with the number of images but isn't GPU work, so either the data or the host
# causes it. (The GPU model [assumes](../docs/contributors/gpumodel.md) how long the images take.) Only a small part of the 4-image
# step depends on its images, so data isn't the limit of that run.
#
# ## Trap: a busy GPU isn't always working
#
# The next job uses four GPUs. `torchrun` starts one process, called a *rank*, per GPU, and one rank is always late.
# Omnistat samples every GPU in a job and stores the results in a database. In *user mode*, you start omnistat inside
# your job. Before you stop the server, query the database with the recording interval in seconds.
#
# > **Note:** To use omnistat itself, set `OMNISTAT_DIR` to the folder of its programs and `OMNISTAT_CONFIG` to its
# > configuration file before you start Jupyter. Otherwise, the course replays the job.

# %% language="bash"
# exec 2>&1; export PATH=${OMNISTAT_DIR:+$OMNISTAT_DIR:}$PATH
# mkdir -p $FOLDER/late-rank
# export PROFLAB_WORKLOAD="torchrun --nproc-per-node 4 -m cifar_train --max-steps 40 \
#     --inject-fault rank-skew"
# echo $PROFLAB_WORKLOAD > $FOLDER/late-rank/command.txt
# omnistat-usermode --start --interval 0.1
# test -x "$OMNISTAT_DIR/omnistat-usermode" &&
#     $PROFLAB_WORKLOAD --run-dir $FOLDER/late-rank
# omnistat-usermode --stopexporters
# omnistat-query --job ${SLURM_JOB_ID:-1} --interval 0.1 --export $FOLDER/late-rank
# omnistat-usermode --stopserver

# %% [markdown]
# The report shows averages over the whole job, including its startup. The exported samples show more:

# %% slide="All four GPUs look busy. Only the power shows which three of them wait."
late = watched_run(lesson.folder / "late-rank")
title = "Four GPUs in one job: which one causes the delay?"
show_figure(plots.counters(late.profile, ["gpu_busy", "power"], title=title))

# %% [markdown]
# The GPU with the lowest activity is the only one that doesn't wait. In each step, the GPUs exchange their results in
# an *all-reduce*, a kernel from RCCL (AMD's library for communication between GPUs). The kernel *spins* until the last
# GPU arrives: it only checks again and again, but the GPU counts as busy. A GPU that runs one small kernel after
# another looks equally busy.
#
# ## A real node and a long log
#
# What do the sensors show when a GPU is busy with useful work? The next log comes from a node with eight MI300X GPUs.
# On this node, vLLM generated text (Llama-3.1-8B, one request at a time). The monitor kept running, so the log covers
# several benchmarks.
#
# Activity and power are in two files with different timestamps, so `merge_asof` joins the rows that are closest in
# time. A new window starts when a program fills or frees the GPU memory. `shift` finds these changes, and `cumsum`
# counts them.

# %%
there = proflab.recording("smi-mi300x-vllm-llama31-bs1")


def log_of(kind):
    path = next(path for name, path in there.files.items() if f"gpu_{kind}_" in name)
    table = pd.read_csv(path)
    return table[table["device"] == "card0"]


watts = log_of("power")[["timestamp", "power_watts"]]
gpu0 = pd.merge_asof(log_of("usage"), watts, on="timestamp", direction="nearest")
loaded = gpu0["vram_used_bytes"] > 1e9
gpu0["window"] = (loaded != loaded.shift()).cumsum()
windows = gpu0[loaded].groupby("window")["timestamp"].agg(["min", "max"])

# %% slide="A log of a real node: the GPU waits while the model loads, then works in bursts."
monitoring = next(iter(there.files.values())).parents[1] / "monitoring"
log = tidyprof.read_system(monitoring, origin=there.origin)
show_text(
    f"GPU 0 held a network in {len(windows)} windows. The figure shows the first one."
)
end_ns = windows["max"].iloc[0] * 10**9
first = log.counters.query("time_ns <= @end_ns and device < 2")
names = ["gpu_busy", "power", "memory_used"]
title = "First benchmark: loading, then bursts of work"
show_figure(plots.counters(tidyprof.Profile(log.events, first, log.meta), names, title))

# %% slide="Power separates a GPU that works from a GPU that only waits."
limit = stated_limit("MI300X")
at_full = gpu0[gpu0["gpu_use_percent"] == 100]
watt = at_full["power_watts"].median()
idle_watt = gpu0.loc[~loaded, "power_watts"].median()
show_text(
    f"At full activity, GPU 0 draws {watt:.0f} W (median), {100 * watt / limit:.0f}% "
    f"of its {limit:.0f} W limit. Without a network, it draws {idle_watt:.0f} W."
)

# %% [markdown]
# Don't trust a single sample. Some samples at full activity show hardly any power draw, because the monitor doesn't
# read both sensors at the same moment.
#
# In this run, the device is the limit. For every new token, the GPU reads nearly all weights of the language model, so
# its memory is a more likely cause than its arithmetic.
#
# ## Compare activity and power
#
# The figure shows all GPUs from this lesson. The recorded MI300X appears twice: at full activity and without a network.

# %% slide="Activity and power together place each run: at the right it is busy, and at the top it works."
names = ["run", "device", "busy_percent", "power_watt", "limit_watt"]
rows = [
    ["text generation", 0, 100.0, watt, limit],
    ["no network", 0, 0.0, idle_watt, limit],
]
rows.append(["example on an H200", 0, h200_busy, h200_watt, 700.0])
watched = one_table([example, small, late])
seen = pd.concat([watched, pd.DataFrame(rows, columns=names)], ignore_index=True)
seen.attrs["origin"] = f"{watched.attrs['origin']}; {log.origin}; {real}"
seen["power_share_percent"] = 100 * seen["power_watt"] / seen["limit_watt"]
show_figure(work_map(seen, title="GPUs on the right are busy, GPUs at the top work"))
show_table(seen, f"{' '.join(names)} power_share_percent", "All points of the figure")

# %% [markdown]
# The GPUs that wait for a late rank are nearly as busy as the GPU that generates text, but they do almost no work, as
# only their power draw shows.
#
# While the GPU is idle, the same CPU cores prepare data and run the host program. Using two data-loader processes helps
# (lesson 00), so data loading is one of the causes. The host may still limit the rest of the step.
#
# ## What is ruled out, and what remains possible?

# %%
# 4 minutes: Which of the suspects `data`, `host`, `device` and `network` remain possible in each run? Answer with a
# dictionary that maps each run to the set of its remaining suspects. The runs are `example`, `small-batch`, `late-rank`
# (consider the rank that the others wait for) and `text generation` (consider GPU 0 at full activity).
q = exercise("01.1", (example, small, late))
# solution
fixed = 1 - small.batch_size * per_image / small_ms
is_busy = both.set_index("run")["busy_percent"] >= 75
idle = {"data", "host"}
answer = {
    "example": {"device"} if is_busy["example"] else idle,
    "small-batch": {"device"}
    if is_busy["small-batch"]
    else idle
    if fixed < 0.9
    else {"host"},
    "late-rank": idle,
    "text generation": {"device"},
}
# end solution
q.check(answer)

# %% [markdown]
# Next, write an alarm. The check tries it on every GPU in the last table, with slightly different sensor values and a
# second power limit.

# %%
q = exercise("01.2", seen)


# 3 minutes: Write `def answer(busy_percent, power_watt, limit_watt)`. The function receives the activity in
# percent (0 to 100), the power draw in watts and the power limit of that GPU in watts. Return True if the GPU looks
# busy but does little work. Choose a power threshold between the recorded GPU's power draw without a network and its
# power draw at full activity.
# solution
def answer(busy_percent, power_watt, limit_watt):
    return busy_percent > 85 and power_watt < 0.55 * limit_watt


# end solution
q.check(answer)

# %% [markdown]
# ## Decide
#
# If the GPU were never idle in the example run, you would look at its kernels next (lesson 04).

# %% slide="The monitor rules out the GPU's computing, but can't tell data from the host."
# Rounded up, because the few samples are rough
most = 10 * -(-at_work["gfx"].max() // 10)
lesson.conclude(
    f"During the example run on an H200, the GPU is busy for {h200_busy:.0f}% of the "
    f"time and draws {h200_watt:.0f} of 700 W, {more_watt:.0f} W more than before "
    f"training. In this lesson, the monitor shows less than {most:.0f}% activity for "
    "the same command.",
    rules_out="the device and, with a single GPU, the network",
    because="Does the GPU wait for data or for the host? A timeline can show it.",
    next="02",
    origin=f"{real}; {example.profile.origin}",
)

# %% [markdown] tags=["given"]
# ## What this view can't see
#
# A monitor doesn't show kernels, operators, lines of code or waits for the network. It also misses everything shorter
# than its sampling interval.
#
# > **Warning:** If you monitor several GPUs, request one more sample from `amd-smi` than you need, because the last one
# > is incomplete. Since ROCm 10.1, omnistat doesn't find any GPU unless its configuration contains `enable_rocm_smi =
# > False` and `enable_amd_smi = True`.
#
# The [known issues](../docs/known-issues.md#a-gpu-shows-100-activity-but-training-is-slow) include power and activity
# values that contradict each other, and GPU IDs that differ from those in PyTorch. Since ROCm 6.4, `amd-smi list -e`
# shows both IDs.
#
# ## Three takeaways
#
# - A GPU can look busy and do almost no work, so read activity together with power draw.
# - Compare a GPU's power draw with its idle level, not with zero.
# - Rule out a suspect only if the evidence contradicts it.

# %% [markdown]
# ## At work, without this course
#
# {snippet 01_gpu_log.py}
#
# In your job script, put this file's `record` command in front of your own. `summary` reports the activity, memory and
# energy of each GPU for the whole log or a time window.
#
# Further reading: the manuals of [AMD
# SMI](https://rocm.docs.amd.com/projects/amdsmi/en/latest/how-to/amdsmi-cli-tool.html) and
# [Omnistat](https://github.com/ROCm/omnistat).

# %% [markdown]
# Next question: where does a step go?
