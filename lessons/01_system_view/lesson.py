# %% [markdown]
# # Is the GPU even the problem?
#
# The case is slow, two loaders make it faster, and a clock can't tell whether the GPU works or waits. Look from outside
# first: system monitors tell beside a running job whether the GPU is used, and are easy to misread.
#
# After this lesson you can
#
# - watch a training with `amd-smi`, a job with omnistat, and cut your job out of a log of hours;
# - tell busy from working, by power;
# - say which of data, host, device and network your evidence rules out, and which stay open.
#
# You need lesson 00. Commands are those of `amd-smi` in ROCm 7.2 and of omnistat 1.6 to 1.11. An AMD GPU is used where
# there is one.

# %%
import os

import pandas as pd
import proflab
import tidyprof
from proflab import case as the_case
from proflab import exercise, show_figure, show_table, show_text
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
# The GPU's driver keeps some numbers of each GPU; a monitor reads them now and then.
#
# | what | the question it answers | what it can't say |
# | --- | --- | --- |
# | activity, *busy* | was anything running? | how much of the GPU worked |
# | memory activity | were data moved to or from the GPU's memory? | whether they were needed |
# | power | how hard does the hardware work? | at what |
# | clocks, temperature | does heat or the power limit slow it down? | which kernel needs the power |
# | memory in use (VRAM) | is a program there, is it about to run out? | whether the program does anything |

# %% [markdown]
# A run waits for one of four. Cross out what the evidence speaks against:
#
# | suspect | everything waits for | what speaks against it |
# | --- | --- | --- |
# | data | images that the loader reads and prepares | a GPU that is never idle; steps as long with far fewer images |
# | host | the program that launches work | a GPU that is never idle |
# | device | the GPU | a GPU that is idle for much of the time |
# | network | data from other GPUs | one GPU alone; or several, of which one is idle while the others are busy |
#
# The last line needs care: where three GPUs are busy and one is idle, they wait for that one. Then judge that one.
#
# On LUMI and Frontier one thing looks odd first: **a card is two devices.** An MI250X has two dies, *GCDs*.
# `amd-smi`, PyTorch, Slurm and ranks count dies, so four cards are eight GPUs. Power belongs to the card: it stands
# with the first die and covers both, and the second says `N/A`. AMD's figures are for cards: halve them.
#
# ## Predict
#
# Two numbers of the H200 that trains the case.

# %%
# solution
busy_guess, power_guess = 30, 100
# end solution
proflab.predict("01.a", busy_guess, unit="%", what="how busy the GPU is in the case")
proflab.predict("01.b", power_guess, unit="W", what="what it takes more than before the training")

# %% [markdown]
# ## Capture
#
# The monitor runs beside the training, here in the background (`&`). Slurm shares out the machines of many clusters;
# there `srun --overlap --jobid JOB -w NODE -n1 amd-smi monitor ...` looks into a running job, a machine at a time.
#
# | option | why |
# | --- | --- |
# | `monitor` | one line per GPU and moment; `metric` prints more of a single moment |
# | `-g 0` | only the GPU that is number 0 to the driver |
# | `-p -t -u -m -v` | power, temperature, activity and clock, memory activity, memory in use |
# | `-w 1 -W $WATCH` | a sample every second, which is the shortest interval, for `$WATCH` seconds |
# | `--csv --file` | a table in a file, which is rewritten at each sample |
#
# Two questions come before the first sample. *Which GPU is it?* `rocminfo` lists those that ROCm sees, and
# `torch.cuda.get_device_properties(0)` says what PyTorch got: name, memory, compute units. *Is it yours alone?* A
# sensor belongs to the GPU and not to your job. On a shared node number 0 can be a neighbor's, since the monitor
# ignores `ROCR_VISIBLE_DEVICES`, the variable that hides GPUs from a program. `amd-smi process` tells who is on which.
#
# Without a GPU the course replays the sensors of a modeled MI300X during the command in `PROFLAB_WORKLOAD`. The
# training itself is then left out: `test -e /dev/kfd` asks whether the driver's file is there. Power between idle and
# limit is assumed. `2>&1` puts a tool's messages among its results.

# %%
steps, seconds = (1500, 45) if lesson.has_gpu else (40, 3)
os.environ |= {"STEPS": str(steps), "WATCH": str(seconds)}

# %% language="bash"
# mkdir -p $FOLDER/case; rm -f $FOLDER/case/smi.csv  # amd-smi would append to it, or refuse
# export PROFLAB_WORKLOAD="$EXAMPLE --max-epochs 10 --max-steps $STEPS"
# echo $PROFLAB_WORKLOAD > $FOLDER/case/command.txt
# amd-smi monitor -g 0 -p -t -u -m -v -w 1 -W $WATCH --csv --file $FOLDER/case/smi.csv 2>&1 &
# test -e /dev/kfd && $PROFLAB_WORKLOAD --run-dir $FOLDER/case
# wait
# head -n 3 $FOLDER/case/smi.csv

# %% [markdown]
# Read such a file by its header, never by position: names of columns have changed with ROCm 6.3, 7.0 and 7.2, and are
# in small letters from 7.14 on. `gfx` is the activity of the *graphics engine*, the part that runs kernels, `mem` that
# of the memory; `vram_used` is in mebibytes, `N/A` a sensor that this GPU does not have. On a GPU run this cell twice,
# and the next one that trains too: MIOpen tries out kernels first (lesson 00).
#
# ## First look
#
# A log is longer than the training. Your program runs on the GPU while it holds memory there; `watched_run` cuts logs
# of all kinds there.

# %%
smi = pd.read_csv(lesson.folder / "case/smi.csv", na_values="N/A").rename(columns=str.lower)
at_work = smi[smi["vram_used"] > smi["vram_used"].max() / 2]
busy, power = at_work["gfx"].median(), at_work["power_usage"].median()

case = watched_run(lesson.folder / "case")
row = case.table.iloc[0]
assert (busy, power) == (row["busy_percent"], row["power_watt"])
columns = "run busy_percent memory_busy_percent memory_used_percent power_watt limit_watt"
show_table(case.table, f"{columns} limit_from", "Medians while the model was on the GPU")

# %% [markdown]
# `limit_from` tells who states the power limit: the monitor (from ROCm 7.0 on), or the course's table of GPUs. An idle
# GPU takes a good part of the limit already: read power from idle to limit, not from zero.
#
# Is it so on a real GPU? Here `nvidia-smi` watched an H200, ten times a second: before a program began to train, in
# steady steps of the case, and in a short run with more and larger arithmetic in each step.

# %%
sensors = pd.read_csv(lesson.file("h200_sensors.csv"), comment="#")
h200 = sensors.groupby("run", sort=False)[["busy_percent", "power_watt"]].agg(["mean", "max"])
names = h200.columns = ["busy_mean_percent", "busy_max_percent", "mean_watt", "max_watt"]
h200_busy, h200_watt = h200.loc["plain", ["busy_mean_percent", "mean_watt"]]
more_watt = h200_watt - h200.loc["start", "mean_watt"]
recorded = the_case.measured()
real, title = recorded.attrs["origin"], "An H200, whose limit is 700 W"
show_table(h200.reset_index(), f"run {' '.join(names)}", title, origin=real)
proflab.reveal("01.a", round(h200_busy, 1), real)
proflab.reveal("01.b", round(more_watt, 1), real)

# %% [markdown]
# While it trains, this GPU takes hardly more than before. The large run lasted less than a second, and its power was
# still rising: this sensor gives a mean of the last second. And how much of the peak is reached? *MFU*, model FLOPs
# utilization, is the arithmetic that the model needs per second, as a share of what the GPU could do. A FLOP is one
# addition or multiplication of two numbers.

# %%
mfu = case.images_per_second * case.flops_per_image / case.peak_flops
show_text(f"The MFU of the case is {100 * mfu:.2g} % ({case.profile.origin}).")

# %% [markdown]
# ## Change one thing
#
# Watch again with a batch of 4 images. A trap: fewer images, shorter step, so the GPU was the limit? It can't
# have saved more than it worked.

# %% language="bash"
# mkdir -p $FOLDER/small-batch; rm -f $FOLDER/small-batch/smi.csv
# export PROFLAB_WORKLOAD="$EXAMPLE --max-epochs 10 --max-steps $STEPS --batch-size 4"
# echo $PROFLAB_WORKLOAD > $FOLDER/small-batch/command.txt
# amd-smi monitor -g 0 -p -t -u -m -v -w 1 -W $WATCH --csv --file $FOLDER/small-batch/smi.csv 2>&1 &
# test -e /dev/kfd && $PROFLAB_WORKLOAD --run-dir $FOLDER/small-batch
# wait

# %%
small = watched_run(lesson.folder / "small-batch")
both = one_table([case, small])
both["step_ms"] = 1e3 * both["batch_size"] / both["images_per_second"]
step_ms = both.set_index("run")["step_ms"]
show_table(both, "run step_ms images_per_second busy_percent power_watt", "One thing changed")
saved = step_ms["case"] - step_ms["small-batch"]
four = recorded.query("run == 'small4' and part == 'steady'")["duration_ns"].median() / 1e6
show_text(
    f"The step got {saved:.0f} ms shorter. The GPU was busy for {busy / 100 * step_ms['case']:.0f} "
    f"ms of it. On the H200 a step of 4 images took {four:.0f} ms (recorded, two loaders)."
)

# %% [markdown]
# A part of the step grows with the images and is not the GPU's work: images also have to be prepared, by data or host.
# (How long that takes is [assumed](../docs/gpumodel.md) in the model.) What is left with 4 images hardly depends on
# them: that is not data.
#
# ## Trap: busy is not working
#
# Another job: four GPUs, each driven by a process of its own, a *rank*; `torchrun` starts them. One rank is always
# late. Omnistat samples all GPUs of a job into a database. In *user mode* you start it inside your job. Query before
# you stop the server, and give both commands the same interval, in seconds.
#
# A real omnistat is used where `OMNISTAT_DIR` names the folder with its programs, and `OMNISTAT_CONFIG` its
# configuration file; set them before you start Jupyter. Without them the course replays the job.

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
# The report card averages over the whole job, start included. The file of samples has three lines of names, for what
# was sampled, on which machine, of which GPU.

# %%
omni = pd.read_csv(lesson.folder / "late-rank/omnistat-rocm.gpu.csv", header=[0, 1, 2], index_col=0)
busy_of, used = omni["rocm_utilization_percentage"], omni["rocm_vram_used_percentage"]
late = watched_run(lesson.folder / "late-rank")
medians = busy_of[used > used.max() / 2].median()
assert sorted(medians) == sorted(late.table["busy_percent"])
title = "Four GPUs of one job: which one is at fault?"
show_figure(plots.counters(late.profile, ["gpu_busy", "power"], title=title))

# %% [markdown]
# The one that looks worst is the only one that waits for nobody. In each step the GPUs exchange what they have
# learnt. This *all-reduce* runs as a kernel of RCCL, AMD's library for GPUs that talk to each other. The kernel *spins*
# until the last GPU has come: it asks again and again, does nothing else, and counts as busy. One small kernel after
# another looks busy in the same way.
#
# ## A real node, and a log of hours
#
# What does a GPU look like that is busy and works? Here is a recording of a machine with eight MI300X. A benchmark of
# text generation (vLLM, Llama-3.1-8B, one request at a time) was to be watched. Nobody stopped the monitor, so its log
# runs on, over one benchmark after the other. Two sensors stand in two files, read at different moments: `merge_asof`
# joins each row with the nearest of the other. Each change between loaded and empty begins a new window: `shift`
# compares a row with the one before, `cumsum` numbers the changes.

# %%
there = proflab.recording("smi-mi300x-vllm-llama31-bs1")


def log_of(kind):
    path = next(path for name, path in there.files.items() if f"gpu_{kind}_" in name)
    return pd.read_csv(path).dropna(subset="device")


usage, power = log_of("usage"), log_of("power")
watts = power.loc[power["device"] == "card0", ["timestamp", "power_watts"]]
gpu0 = pd.merge_asof(usage[usage["device"] == "card0"], watts, on="timestamp", direction="nearest")
loaded = gpu0["vram_used_bytes"] > 1e9
gpu0["window"] = (loaded != loaded.shift()).cumsum()
windows = gpu0[loaded].groupby("window")["timestamp"].agg(["min", "max"])

# %%
monitoring = next(iter(there.files.values())).parents[1] / "monitoring"
log = tidyprof.read_system(monitoring, origin=there.origin)
whole, end = gpu0["timestamp"].max() - gpu0["timestamp"].min(), windows["max"].iloc[0]
show_text(
    f"The log covers {whole / 60:.0f} minutes of {usage['device'].nunique()} GPUs. GPU 0 held a "
    f"model in {len(windows)} windows, of which the picture shows the first."
)
begun = tidyprof.Profile(log.events, log.counters[log.counters["time_ns"] <= end * 10**9], log.meta)
names, title = ["gpu_busy", "power", "memory_used"], "GPUs 0 and 1, first benchmark"
show_figure(plots.counters(begun, names, [0, 1], title))

# %%
limit = stated_limit("MI300X")
at_full = gpu0[gpu0["gpu_use_percent"] == 100]
watt, idle_watt = at_full["power_watts"].median(), gpu0.loc[~loaded, "power_watts"].median()
show_text(
    f"In its {len(at_full)} samples at full activity GPU 0 takes {watt:.0f} W (median), "
    f"{100 * watt / limit:.0f} % of the limit of {limit:.0f} W, and without a model "
    f"{idle_watt:.0f} W."
)

# %% [markdown]
# Don't trust a single sample: some at full activity show hardly any power, since two sensors are not read at the same
# moment.
#
# So this device is the limit, and rather its memory than its arithmetic: for every new word piece it reads nearly all
# weights of the model, and its MFU stays small.
#
# ## Two numbers, and none says it alone
#
# All GPUs of this lesson, the recorded MI300X twice: at full activity, and without a model.

# %%
names = ["run", "device", "busy_percent", "power_watt", "limit_watt"]
rows = [["text generation", 0, 100.0, watt, limit], ["no model", 0, 0.0, idle_watt, limit]]
rows.append(["case on an H200", 0, h200_busy, h200_watt, 700.0])
watched = one_table([case, small, late])
seen = pd.concat([watched, pd.DataFrame(rows, columns=names)], ignore_index=True)
seen.attrs["origin"] = f"{watched.attrs['origin']}; {log.origin}; {real}"
seen["power_share_percent"] = 100 * seen["power_watt"] / seen["limit_watt"]
show_figure(work_map(seen, title="To the right is busy, upwards is work"))
show_table(seen, f"{' '.join(names)} power_share_percent", "The same points")

# %% [markdown]
# The GPUs that wait for a late one are nearly as busy as the one that generates text, and do next to nothing: power is
# the second witness. Who else works while a GPU is idle? Its data and its host, both on the same processors. That two
# loaders help (lesson 00) accuses the data, and clears nobody: what is left of the step may still wait for the host.
#
# ## Decide: what is ruled out, what stays open?

# %%
# 5 minutes: which of data, host, device, network stay open? Answer with a dictionary whose keys are `case`,
# `small-batch`, `late-rank` (judge the rank that the others wait for), `text generation` (GPU 0 at full activity) and
# `first window` (GPU 0 over the whole first window of its log, in `gpu0`). Each value is the set of
# suspects that no evidence rules out.
q = exercise("01.1", (case, small, late, gpu0))
# solution
per_image = (step_ms["case"] - step_ms["small-batch"]) / (case.batch_size - small.batch_size)
fixed = 1 - small.batch_size * per_image / step_ms["small-batch"]
idle_open = {"data", "host"}
is_busy = both.set_index("run")["busy_percent"] >= 75
answer = {
    "case": {"device"} if is_busy["case"] else idle_open,
    "small-batch": {"device"} if is_busy["small-batch"] else idle_open if fixed < 0.9 else {"host"},
    "late-rank": idle_open,
    "text generation": {"device"},
    "first window": idle_open,  # the model is in memory, and for most of the time nothing runs
}
# end solution
q.check(answer)

# %% [markdown]
# An alarm, tried on every GPU of the last table, with sensors a little off, and at another power limit:

# %%
q = exercise("01.2", seen)


# 3 minutes, open: write `def answer(busy_percent, power_watt, limit_watt)`. It gets percent from 0 to 100, then watts,
# and the power limit of that GPU. It returns True for a GPU that looks busy and does little. The recorded GPU, idle
# and at work, shows between which powers your line has to be.
# solution
def answer(busy_percent, power_watt, limit_watt):
    return busy_percent > 85 and power_watt < 0.55 * limit_watt


# end solution
q.check(answer)

# %% [markdown]
# Now the line for the case. A GPU that is idle for most of the time asks for a timeline of a step; one that is never
# idle would ask for its kernels, in lesson 04.

# %%
most = 10 * -(-at_work["gfx"].max() // 10)  # a few samples are rough: an upper bound
lesson.conclude(
    f"While the case trains on an H200, its GPU is busy for {h200_busy:.0f} % of the time, and "
    f"takes {h200_watt:.0f} of 700 W, {more_watt:.0f} W more than before. The monitor of this "
    f"lesson, beside the same command, says less than {most:.0f} % busy.",
    rules_out="the device, and with one GPU the network",
    because="A timeline tells data from host.",
    next="02",
    origin=f"{real}; {case.profile.origin}",
)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# It sees no kernel, no operator, no line of code, no waiting for the network, and nothing shorter than its interval.
#
# Known issues, such as power and activity that tell different stories or another numbering than PyTorch's, are in
# [the list](../docs/known-issues.md#power-and-activity-tell-different-stories). With several GPUs ask `amd-smi` for one
# sample more than you need: the last one lacks some. `amd-smi list -e` shows both numbers of a GPU, from ROCm 6.4 on.
# omnistat finds no GPU from ROCm 10.1 on, unless its configuration has `enable_rocm_smi = False` and
# `enable_amd_smi = True`.

# %% [markdown]
# ## At work, without this course
#
# Put the first command around yours in the job script. The summary says how much of its time, memory and energy each
# GPU spent, for the whole log or for a window of it.
#
# {snippet 01_gpu_log.py}
#
# Read on: [AMD SMI](https://rocm.docs.amd.com/projects/amdsmi/en/latest/how-to/amdsmi-cli-tool.html),
# [Omnistat](https://github.com/ROCm/omnistat).

# %% [markdown]
# Next question: where does a step go?
