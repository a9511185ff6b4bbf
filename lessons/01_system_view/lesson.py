# %% [markdown]
# # Is the GPU even the problem?
#
# The example run is slow, and a clock can't show whether its GPU works or waits. System monitors read the sensors of a
# GPU while a job runs, but their numbers are easy to misread.
#
# After this lesson, you can:
#
# - watch a program with `amd-smi`, watch a job with omnistat, and find your job in a long log;
# - use power to tell a busy GPU from a working one;
# - rule out data, host, device or network by evidence, and say which of them remain possible.
#
# **Before you start:** complete lesson 00. The commands match `amd-smi` in ROCm 7.2 and omnistat 1.6 to 1.11.
# If your machine has an AMD GPU, the lesson uses it.

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

# %% [markdown]
# ## The picture to keep in mind
#
# The driver keeps a few numbers for each GPU, and a monitor reads them at intervals:
#
# | number | what it shows | what it can't show |
# | --- | --- | --- |
# | activity (*busy*) | whether anything was running | how much of the GPU worked |
# | memory activity | whether data moved to or from GPU memory | whether the data was needed |
# | power | how hard the hardware works | what it works on |
# | clocks, temperature | whether heat or the power limit slows the GPU down | which kernel needs the power |
# | memory in use (VRAM) | whether a program is loaded, or about to run out of memory | whether the program computes |
#
# A run waits for one of four suspects. Rule out those that the evidence contradicts:

# %% [markdown]
# | suspect | everything waits for | evidence against it |
# | --- | --- | --- |
# | data | images that the loader reads and prepares | a GPU that is never idle; steps that stay long with far fewer images |
# | host | the program that launches work | a GPU that is never idle |
# | device | the GPU | a GPU that is idle for much of the time |
# | network | data from other GPUs | a single GPU; or one idle GPU while all others are busy |
#
# If three GPUs are busy and one is idle, the three wait for the idle one. Judge the idle one.
#
# > **Note:** On LUMI and Frontier, each MI250X card has two dies (*GCDs*). `amd-smi`, PyTorch, Slurm and ranks count
# > dies. The first die reports the power of the card, and the second reports `N/A`. Halve AMD's figures per card.
#
# ## Predict
#
# Guess two numbers of the H200 during the example run.

# %%
# solution
busy_guess, power_guess = 30, 100
# end solution
proflab.predict("01.a", busy_guess, unit="%", what="GPU activity in the example run")
proflab.predict("01.b", power_guess, unit="W", what="power above the level before training")

# %% [markdown]
# ## Capture
#
# The monitor runs in the background (`&`) during the training run:
#
# | option | effect |
# | --- | --- |
# | `-g 0` | selects the GPU that the driver calls 0 |
# | `-p -t -u -m -v` | adds power, temperature, activity and clock, memory activity, memory in use |
# | `-w 1 -W $WATCH` | takes a sample every second, the shortest interval, for `$WATCH` seconds |
# | `--csv --file` | writes a table, which the tool rewrites at each sample |
#
# Answer two questions before the first sample:
#
# - **Which GPU is it?** `rocminfo` lists the GPUs that ROCm sees. `torch.cuda.get_device_properties(0)` shows the name,
#   memory and compute units of the GPU that PyTorch uses.
# - **Is it yours alone?** Sensors belong to a GPU, not to your job. `amd-smi process` shows who uses which GPU. On a
#   shared node, GPU 0 can be a neighbor's, because the monitor ignores `ROCR_VISIBLE_DEVICES`.
#
# > **Tip:** On a Slurm cluster, `srun --overlap --jobid JOB -w NODE -n1 amd-smi monitor ...` watches one node of a
# > running job.
#
# Without a GPU, the course replays the sensors of a modeled MI300X, and power between idle and the limit is an
# assumption. The training itself doesn't run then: `test -e /dev/kfd` checks that the driver's device file exists.

# %%
steps, seconds = (1500, 45) if lesson.has_gpu else (40, 3)
os.environ |= {"STEPS": str(steps), "WATCH": str(seconds)}

# %% language="bash"
# mkdir -p $FOLDER/example; rm -f $FOLDER/example/smi.csv
# export PROFLAB_WORKLOAD="$EXAMPLE --max-epochs 10 --max-steps $STEPS"
# echo $PROFLAB_WORKLOAD > $FOLDER/example/command.txt
# amd-smi monitor -g 0 -p -t -u -m -v -w 1 -W $WATCH --csv --file $FOLDER/example/smi.csv 2>&1 &
# test -e /dev/kfd && $PROFLAB_WORKLOAD --run-dir $FOLDER/example
# wait
# head -n 3 $FOLDER/example/smi.csv

# %% [markdown]
# Read columns by name, not by position. The names changed with ROCm 6.3, 7.0 and 7.2, and are in lowercase since 7.14.
# `gfx` is the activity of the engine that runs kernels, and `mem` is the memory activity. `vram_used` is in
# MiB, and `N/A` means that the GPU lacks the sensor. On a GPU, run this cell and the next training cell twice, because
# MIOpen tries out kernels first (lesson 00).
#
# ## First look
#
# The log covers more time than the training run. Your program works while it holds GPU memory, so keep those samples.
# `watched_run` does the same for every kind of log.

# %%
smi = pd.read_csv(lesson.folder / "example/smi.csv", na_values="N/A").rename(columns=str.lower)
at_work = smi[smi["vram_used"] > smi["vram_used"].max() / 2]
busy, power = at_work["gfx"].median(), at_work["power_usage"].median()
show_text(f"Median activity: {busy:.0f}%. Median power: {power:.0f} W.")

example = watched_run(lesson.folder / "example")
columns = "run busy_percent memory_busy_percent memory_used_percent power_watt limit_watt"
show_table(example.table, f"{columns} limit_from", "Medians while the model was on the GPU")

# %% [markdown]
# The power limit comes from the monitor (since ROCm 7.0) or from the course's table of GPUs. An idle GPU already draws a
# good part of it, so compare power with the idle level, not with zero.
#
# What does a real GPU show? `nvidia-smi` watched an H200 ten times per second: before training, in steady steps of the
# example run, and in a short run with more arithmetic per step.

# %%
sensors = pd.read_csv(lesson.file("h200_sensors.csv"), comment="#")
h200 = sensors.groupby("run", sort=False)[["busy_percent", "power_watt"]].mean()
h200_busy, h200_watt = h200.loc["plain"]
more_watt = h200_watt - h200.loc["start", "power_watt"]
recorded = case.measured()
real, title = recorded.attrs["origin"], "Means of an H200, whose limit is 700 W"
show_table(h200.reset_index(), "run busy_percent power_watt", title, origin=real)
proflab.reveal("01.a", round(h200_busy, 1), real)
proflab.reveal("01.b", round(more_watt, 1), real)

# %% [markdown]
# During training, this GPU draws hardly more power than before. (The large run lasted less than a second. Its power was
# still rising, because this sensor reports the mean of the last second.)
#
# *MFU* (model FLOPs utilization) is the arithmetic that the model needs per second, as a share of the GPU's peak. A FLOP
# is one addition or multiplication of two numbers.

# %%
mfu = example.images_per_second * example.flops_per_image / example.peak_flops
show_text(f"The MFU of the example run is {100 * mfu:.2g}% ({example.profile.origin}).")

# %% [markdown]
# ## Change one thing
#
# Watch the run again with a batch of 4 images. If the step gets shorter with fewer images, was the GPU the limit? Only
# if the step doesn't shrink by more than the time that the GPU was busy.

# %% language="bash"
# mkdir -p $FOLDER/small-batch; rm -f $FOLDER/small-batch/smi.csv
# export PROFLAB_WORKLOAD="$EXAMPLE --max-epochs 10 --max-steps $STEPS --batch-size 4"
# echo $PROFLAB_WORKLOAD > $FOLDER/small-batch/command.txt
# amd-smi monitor -g 0 -p -t -u -m -v -w 1 -W $WATCH --csv --file $FOLDER/small-batch/smi.csv 2>&1 &
# test -e /dev/kfd && $PROFLAB_WORKLOAD --run-dir $FOLDER/small-batch
# wait

# %%
small = watched_run(lesson.folder / "small-batch")
both = one_table([example, small])
both["step_ms"] = 1e3 * both["batch_size"] / both["images_per_second"]
show_table(both, "run step_ms images_per_second busy_percent power_watt", "One change")
large_ms, small_ms = both["step_ms"]
four = recorded.query("run == 'small4' and part == 'steady'")["duration_ns"].mean() / 1e6
show_text(
    f"The step is {large_ms - small_ms:.0f} ms shorter, but the GPU was busy for only "
    f"{busy / 100 * large_ms:.0f} ms. On the H200, a step of 4 images takes {four:.0f} ms on "
    "average (recorded, two loaders)."
)

# %% [markdown]
# So a part of the step grows with the images but isn't GPU work: data or host prepares the images. (The model
# [assumes](../docs/gpumodel.md) how long that takes.) The step with 4 images hardly depends on its images, so there the
# limit isn't data.
#
# ## Trap: busy isn't working
#
# The next job uses four GPUs. `torchrun` starts one process per GPU, a *rank*, and one rank is always late. Omnistat
# samples all GPUs of a job into a database. In *user mode*, you start it inside your job. Query the database before you
# stop the server, and give both commands the same interval in seconds.
#
# > **Note:** To use a real omnistat, set `OMNISTAT_DIR` to the folder of its programs and `OMNISTAT_CONFIG` to its
# > configuration file before you start Jupyter. Otherwise, the course replays the job.

# %% language="bash"
# exec 2>&1; export PATH=${OMNISTAT_DIR:+$OMNISTAT_DIR:}$PATH
# mkdir -p $FOLDER/late-rank
# export PROFLAB_WORKLOAD="torchrun --nproc-per-node 4 -m cifar_train --max-steps 40 \
#     --inject-fault rank-skew"
# echo $PROFLAB_WORKLOAD > $FOLDER/late-rank/command.txt
# omnistat-usermode --start --interval 0.1
# test -x "$OMNISTAT_DIR/omnistat-usermode" && $PROFLAB_WORKLOAD --run-dir $FOLDER/late-rank
# omnistat-usermode --stopexporters
# omnistat-query --job ${SLURM_JOB_ID:-1} --interval 0.1 --export $FOLDER/late-rank
# omnistat-usermode --stopserver

# %% [markdown]
# The report averages over the whole job, including its start. The exported samples show more:

# %%
late = watched_run(lesson.folder / "late-rank")
title = "Four GPUs of one job: which one causes the delay?"
show_figure(plots.counters(late.profile, ["gpu_busy", "power"], title=title))

# %% [markdown]
# The GPU with the lowest activity is the only one that doesn't wait. In each step, the GPUs exchange their results with
# an *all-reduce*, a kernel of RCCL (AMD's library for communication between GPUs). The kernel *spins* until the last
# GPU arrives: it only checks again and again, but the GPU counts as busy. A sequence of small kernels looks equally
# busy.
#
# ## A real node and a long log
#
# What does a GPU look like that is busy and works? This log comes from a node with eight MI300X GPUs, which generated
# text (vLLM, Llama-3.1-8B, one request at a time). The monitor kept running, so the log covers several benchmarks.
#
# Activity and power are in two files with different timestamps, and `merge_asof` joins the nearest rows. A new window
# begins when the GPU memory fills or empties: `shift` finds these changes, and `cumsum` counts them.

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

# %%
monitoring = next(iter(there.files.values())).parents[1] / "monitoring"
log = tidyprof.read_system(monitoring, origin=there.origin)
show_text(f"GPU 0 held a model in {len(windows)} windows. The figure shows the first.")
first = log.counters[log.counters["time_ns"] <= windows["max"].iloc[0] * 10**9]
names, title = ["gpu_busy", "power", "memory_used"], "GPUs 0 and 1, first benchmark"
show_figure(plots.counters(tidyprof.Profile(log.events, first, log.meta), names, [0, 1], title))

# %%
limit = stated_limit("MI300X")
at_full = gpu0[gpu0["gpu_use_percent"] == 100]
watt, idle_watt = at_full["power_watts"].median(), gpu0.loc[~loaded, "power_watts"].median()
show_text(
    f"At full activity, GPU 0 draws {watt:.0f} W (median), {100 * watt / limit:.0f}% of the limit "
    f"of {limit:.0f} W. Without a model, it draws {idle_watt:.0f} W."
)

# %% [markdown]
# Don't trust a single sample. Some samples at full activity show hardly any power, because the two sensors aren't read
# at the same moment.
#
# Here, the device is the limit. For every new token, the GPU reads nearly all weights of the model, so its memory is the
# more likely cause than its arithmetic.
#
# ## Compare activity and power
#
# The figure shows all GPUs of this lesson. The recorded MI300X appears twice: at full activity and without a model.

# %%
names = ["run", "device", "busy_percent", "power_watt", "limit_watt"]
rows = [["text generation", 0, 100.0, watt, limit], ["no model", 0, 0.0, idle_watt, limit]]
rows.append(["example on an H200", 0, h200_busy, h200_watt, 700.0])
watched = one_table([example, small, late])
seen = pd.concat([watched, pd.DataFrame(rows, columns=names)], ignore_index=True)
seen.attrs["origin"] = f"{watched.attrs['origin']}; {log.origin}; {real}"
seen["power_share_percent"] = 100 * seen["power_watt"] / seen["limit_watt"]
show_figure(work_map(seen, title="Busy GPUs are at the right, working GPUs at the top"))
show_table(seen, f"{' '.join(names)} power_share_percent", "The same points")

# %% [markdown]
# GPUs that wait for a late rank are nearly as busy as the GPU that generates text, but do almost nothing. Only power
# tells them apart.
#
# Data and host work while a GPU is idle, and both use the same CPU cores. Two loaders help (lesson 00), so data is a
# cause. The host may still limit the rest of the step.
#
# ## What is ruled out, and what remains possible?

# %%
# 4 minutes: Which of `data`, `host`, `device` and `network` remain possible in each run? Answer with a dictionary from
# run to the set of remaining suspects. The runs are `example`, `small-batch`, `late-rank` (judge the rank that the others
# wait for) and `text generation` (GPU 0 at full activity).
q = exercise("01.1", (example, small, late))
# solution
per_image = (large_ms - small_ms) / (example.batch_size - small.batch_size)
fixed = 1 - small.batch_size * per_image / small_ms
is_busy = both.set_index("run")["busy_percent"] >= 75
idle = {"data", "host"}
answer = {
    "example": {"device"} if is_busy["example"] else idle,
    "small-batch": {"device"} if is_busy["small-batch"] else idle if fixed < 0.9 else {"host"},
    "late-rank": idle,
    "text generation": {"device"},
}
# end solution
q.check(answer)

# %% [markdown]
# Next, write an alarm. The check tries it on every GPU of the last table, with slightly different sensor values and
# with another power limit.

# %%
q = exercise("01.2", seen)


# 3 minutes, open: Write `def answer(busy_percent, power_watt, limit_watt)`. It receives the activity in percent (0 to
# 100), the power in watts and the power limit of that GPU in watts. Return True if the GPU looks busy but does little.
# Choose a power threshold between the idle power and the working power of the recorded GPU.
# solution
def answer(busy_percent, power_watt, limit_watt):
    return busy_percent > 85 and power_watt < 0.55 * limit_watt


# end solution
q.check(answer)

# %% [markdown]
# ## Decide
#
# The GPU is idle most of the time. If it were never idle, you would look at its kernels in lesson 04.

# %%
most = 10 * -(-at_work["gfx"].max() // 10)  # rounded up, because the few samples are rough
lesson.conclude(
    f"During the example run on an H200, the GPU is busy for {h200_busy:.0f}% of the time and "
    f"draws {h200_watt:.0f} of 700 W, which is {more_watt:.0f} W more than before. The monitor of "
    f"this lesson shows less than {most:.0f}% activity for the same command.",
    rules_out="the device, and with one GPU the network",
    because="Does the GPU wait for data or for the host? A timeline shows it.",
    next="02",
    origin=f"{real}; {example.profile.origin}",
)

# %% [markdown] tags=["given"]
# ## What this view can't see
#
# A monitor shows no kernel, no operator, no line of code and no wait for the network. It also misses everything that is
# shorter than its interval.
#
# > **Warning:** With several GPUs, ask `amd-smi` for one sample more than you need, because the last one is incomplete.
# > Since ROCm 10.1, omnistat finds no GPU unless its configuration has `enable_rocm_smi = False` and
# > `enable_amd_smi = True`.
#
# [Known issues](../docs/known-issues.md#power-and-activity-tell-different-stories) include power and activity that
# contradict each other, and GPU numbers that differ from PyTorch's. Since ROCm 6.4, `amd-smi list -e` shows both
# numbers.
#
# ## Three takeaways
#
# - A busy GPU can do almost nothing, so read activity together with power.
# - Compare power with the idle level of the GPU, not with zero.
# - Rule out a suspect only by evidence, and keep the others.

# %% [markdown]
# ## At work, without this course
#
# {snippet 01_gpu_log.py}
#
# Put its `record` command in front of yours in the job script. `summary` reports activity, memory and energy of each
# GPU, for the whole log or for a window of time.
#
# Further reading: [AMD SMI](https://rocm.docs.amd.com/projects/amdsmi/en/latest/how-to/amdsmi-cli-tool.html),
# [Omnistat](https://github.com/ROCm/omnistat).

# %% [markdown]
# Next question: where does a step go?
