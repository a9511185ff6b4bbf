# %% [markdown]
# # Is the GPU even the problem?
#
# Training is slow. Before you profile a single kernel, look from outside: is the GPU used at all, and is it the
# GPU that everything waits for? System monitors answer this beside a running job, without a change to it. They are
# also easy to misread.
#
# After this lesson you can
#
# - watch a training run with `amd-smi` and a job with omnistat, and read their files with pandas;
# - cut the minutes of your job out of a log of hours, and turn watts into watt-hours;
# - tell busy from working, by power and by the share of the peak that is reached;
# - give a first verdict, data, host, device or network, and say how sure you are.
#
# You need lesson 00. Commands are those of `amd-smi` in ROCm 7.2 and of omnistat 1.6 to 1.11. An AMD GPU is used where
# there is one.

# %%
import json
import os
import subprocess
import time

import pandas as pd
import proflab
import psutil
import tidyprof
from cifar_train.peaks import peak_flops
from gpumodel.devices import device
from proflab import exercise, say, show_figure, show_table
from proflab.parts.watched_runs import one_table, watched_run
from proflab.parts.work_map import work_map
from tidyprof import plots

lesson = proflab.start("01")

# %% [markdown]
# ## The picture to keep in mind
#
# The GPU's driver, a part of the operating system, keeps some numbers of each GPU. A monitor reads them now and then.
#
# | what | the question it answers | what it can't say |
# | --- | --- | --- |
# | activity, *busy* | was anything running? | how much of the GPU worked |
# | memory activity | were data moved to or from the GPU's memory? | whether they were needed |
# | power | how hard does the hardware work? | at what |
# | clocks | does heat or the power limit slow it down? | which kernel needs the power |
# | temperature | is it cooled? | |
# | memory in use (VRAM) | is a program there, is it about to run out? | whether the program does anything |
#
# None of these numbers tells of kernels, of Python, of the network or the disk.

# %% [markdown]
# From them you guess what the run waits for, which is one of four:
#
# | verdict | everything waits for | typical sight |
# | --- | --- | --- |
# | data | images that are read and prepared | GPU nearly idle, its memory in use |
# | host | the program that launches work | GPU busy for a part of the time, power low; fewer images, same step time |
# | device | the GPU | busy; fewer images, shorter step; with large kernels power or memory activity near the limit |
# | network | data from other GPUs | several GPUs, all busy, all at low power |
#
# ## Predict
#
# The run is that of AMD's published lines: ResNet-50 in mixed precision on one MI300X. *MFU*, model FLOPs utilisation,
# is the arithmetic that the model needs per second, as a share of what the GPU could do. A FLOP is one addition or
# multiplication of two numbers. Where you have an AMD GPU, the run is on yours.

# %%
# solution
busy_guess, mfu_guess = 90, 30
# end solution
proflab.predict("01.a", busy_guess, unit="%", what="how busy the GPU is in a healthy run")
proflab.predict("01.b", mfu_guess, unit="%", what="the MFU of the same run")

# %% [markdown]
# ## Capture
#
# The monitor runs beside the training, here in the background (`&`). Many clusters share out their machines with a
# program called Slurm; there you look into a running job, one of its machines at a time, with
# `srun --overlap --jobid JOB -w NODE -n1 amd-smi monitor ...`.
#
# | option | why |
# | --- | --- |
# | `monitor` | one line per GPU and moment; `metric` prints more of a single moment |
# | `-g 0` | only the GPU that is number 0 to the driver |
# | `-p -t -u -m -v` | power, temperature, activity and clock, memory activity, memory in use |
# | `-w 1 -W $WATCH` | a sample every second, which is the shortest interval, for `$WATCH` seconds |
# | `--csv --file` | a table in a file, which is rewritten at each sample |
#
# `2>&1` puts a tool's messages, which are no errors, between its results. Jupyter would show them in red. `exec 2>&1`
# does so for all commands that follow.
#
# On a machine that you share, number 0 can be another job's GPU: the monitor ignores `ROCR_VISIBLE_DEVICES`, the
# variable that hides GPUs from a program. `amd-smi process` tells on which one yours runs.
#
# Without a GPU the stand-in models the sensors of an MI300X while the command in `PROFLAB_WORKLOAD` trains. The
# training itself is then left out: `test -e /dev/kfd` asks whether the driver's file is there. Power is the weak part
# of this model: its ends, idle and limit, are known, what lies between is assumed.

# %%
steps, seconds = (1500, 45) if lesson.has_gpu else (40, 3)
os.environ |= {"STEPS": str(steps), "WATCH": str(seconds)}

# %% language="bash"
# mkdir -p runs/01/healthy; rm -f runs/01/healthy/smi.csv  # by release, amd-smi appends to an old file or refuses
# export PROFLAB_WORKLOAD="python -m cifar_train --max-epochs 10 --max-steps $STEPS"
# echo $PROFLAB_WORKLOAD > runs/01/healthy/command.txt
# amd-smi monitor -g 0 -p -t -u -m -v -w 1 -W $WATCH --csv --file runs/01/healthy/smi.csv 2>&1 &
# test -e /dev/kfd && $PROFLAB_WORKLOAD --run-dir runs/01/healthy
# wait
# head -n 3 runs/01/healthy/smi.csv

# %% [markdown]
# Read such a file by its header, never by position: columns have come and changed names with ROCm 6.3, 7.0 and 7.2.
# Compare names in small letters: from 7.14 on amd-smi writes all keys of CSV and JSON so.
# `gfx` is the activity of the *graphics engine*: so AMD calls the part of the GPU that runs kernels. `mem` is that of
# the memory, `vram_used` is in mebibytes. `N/A` is a sensor that this GPU does not have. A run without its command is
# worth little later, so we kept that too.
#
# On a GPU the first steps with a new batch size can take minutes, while MIOpen tries out kernels (lesson 00): the log
# then shows that and not the training. So run this cell twice there, and the next one that trains too.
#
# ## First look
#
# A log begins before the training and ends after it. When does your program run on the GPU? While it holds memory
# there. The helper `watched_run` cuts at the same place, for logs of all kinds.

# %%
smi = pd.read_csv("runs/01/healthy/smi.csv", na_values="N/A").rename(columns=str.lower)
at_work = smi[smi["vram_used"] > smi["vram_used"].max() / 2]
busy, power = at_work["gfx"].median(), at_work["power_usage"].median()

healthy = watched_run("runs/01/healthy")
row = healthy.table.iloc[0]
assert (busy, power) == (row["busy_percent"], row["power_watt"])
columns = "run busy_percent memory_busy_percent memory_used_percent power_watt limit_watt limit_from"
show_table(healthy.table, columns, "Medians while the model was on the GPU")
say(
    f"{len(smi)} samples. The GPU is busy for {busy:.0f} % of the time and takes "
    f"{100 * power / row['limit_watt']:.0f} % of its power limit. "
    f"The trainer reached {healthy.images_per_second:,.0f} images/s."
)

# %% [markdown]
# `limit_from` tells who states the power limit: the monitor, or the course's table of GPUs where the log has none.
# `amd-smi monitor` states it from ROCm 7.0 on, omnistat's files don't. An idle GPU takes a good part of the limit
# already: read power from idle to limit, not from zero.
#
# Neither number says how much useful work is done. Ask a third: how fast is it, compared with what the hardware can do?
# `healthy.flops_per_image` counts forward and backward pass, `healthy.peak_flops` is the most FLOPs per second that
# AMD states for this GPU and precision. Where the trainer knows the GPU's peak, it prints the MFU itself.

# %%
# 4 minutes: what is the MFU of this run, in percent? You also need `healthy.images_per_second`.
q = exercise("01.1", healthy)
# solution
answer = 100 * healthy.images_per_second * healthy.flops_per_image / healthy.peak_flops
# end solution
q.check(answer)

# %% [markdown]
# No fault was built into this run, so it is called healthy. Yet its GPU is far from its limits, and where it was busy
# for a part of the time only, it was idle for the rest. Then what sets the pace?
#
# ## Two sick runs
#
# The trainer has faults built in. `slow-loader` reads each image slowly; `tiny-batch` takes a few images per step.
# Which differences do you expect? In the table, `model_tflops` is the arithmetic of MFU in TFLOP/s: so many million
# million FLOPs per second.

# %% language="bash"
# for fault in slow-loader tiny-batch; do
#     mkdir -p runs/01/$fault; rm -f runs/01/$fault/smi.csv
#     steps=$STEPS; test $fault = slow-loader && steps=40
#     export PROFLAB_WORKLOAD="python -m cifar_train --max-epochs 10 --max-steps $steps --pathology $fault"
#     echo $PROFLAB_WORKLOAD > runs/01/$fault/command.txt
#     amd-smi monitor -g 0 -p -t -u -m -v -w 1 -W $WATCH --csv --file runs/01/$fault/smi.csv 2>&1 &
#     test -e /dev/kfd && $PROFLAB_WORKLOAD --run-dir runs/01/$fault
#     wait
# done

# %%
slow, tiny = watched_run("runs/01/slow-loader"), watched_run("runs/01/tiny-batch")
single = one_table([healthy, slow, tiny])
columns = "run busy_percent power_watt memory_used_percent batch_size images_per_second model_tflops"
show_table(single, columns, "Three runs")
gap_s, interval_s = slow.batch_size / slow.images_per_second, slow.profile.meta["interval_s"]
say(
    f"A step of slow-loader takes {gap_s:.1f} s, a sample comes every {interval_s:.0f} s: most samples fall into "
    "the waiting. That the GPU shows no activity does not mean that nothing ever runs on it. The memory tells that a "
    "program is there."
)

# %%
# 5 minutes: how many times as long as a step of `healthy` is one of `tiny-batch`? `single` has for each `run` the
# `batch_size`, which is the images of a step, and `images_per_second`.
q = exercise("01.2", single)
# solution
by_run = single.set_index("run")
step_s = by_run["batch_size"] / by_run["images_per_second"]
answer = step_s["tiny-batch"] / step_s["healthy"]
# end solution
q.check(answer)

# %% [markdown]
# This is how a suspicion becomes evidence: change one thing, and watch again. One look at a monitor could not tell
# whether the healthy run waits for its data, for its host or for the GPU.
#
# ## Trap: busy is not working
#
# Four GPUs now, each driven by a process of its own, which is called a *rank*. One rank is late in every step; the
# rest is as before. `torchrun` starts the ranks. Omnistat samples all GPUs of a job into a database and prints a
# report card. In *user mode* you start it inside your own job. Keep this order: query before you stop the server. Give
# both commands the same interval, in seconds; without one they use different ones, and the report can be empty.
#
# Two variables tell where a real omnistat is. Set them before you start Jupyter: `OMNISTAT_DIR` is the folder with its
# programs, `OMNISTAT_CONFIG` its configuration file, which names the database program among others. With the first of
# them the cell trains on four GPUs; where you have fewer, lower the number. Without it the stand-in plays the job.

# %% language="bash"
# exec 2>&1
# export PATH=${OMNISTAT_DIR:+$OMNISTAT_DIR:}$PATH
# mkdir -p runs/01/late-rank
# export PROFLAB_WORKLOAD="torchrun --nproc-per-node 4 -m cifar_train --max-steps 40 --pathology rank-skew"
# echo $PROFLAB_WORKLOAD > runs/01/late-rank/command.txt
# omnistat-usermode --start --interval 0.1
# test -x "$OMNISTAT_DIR/omnistat-usermode" && $PROFLAB_WORKLOAD --run-dir runs/01/late-rank
# omnistat-usermode --stopexporters
# omnistat-query --job ${SLURM_JOB_ID:-1} --interval 0.1 --export runs/01/late-rank
# omnistat-usermode --stopserver

# %% [markdown]
# The card averages over the whole job, start included. That is the first thing to repair: look at the samples over
# time. Omnistat's file has three lines of names, for what was sampled, on which machine, of which card.

# %%
omni = pd.read_csv("runs/01/late-rank/omnistat-rocm.gpu.csv", header=[0, 1, 2], index_col=0)
busy, used = omni["rocm_utilization_percentage"], omni["rocm_vram_used_percentage"]

late = watched_run("runs/01/late-rank")
first = late.profile.counters.query("name == 'gpu_busy' and device == 0")
assert busy.iloc[:, 0].dropna().tolist() == first["value"].tolist()
say(f"{len(busy)} samples of {busy.shape[1]} GPUs; the columns of `busy` are {busy.columns[0]} to {busy.columns[-1]}.")
show_figure(plots.counters(late.profile, ["gpu_busy", "power"], title="The GPUs of one job"))

# %%
# 6 minutes: one card is the one that the others wait for. By how many percentage points do the others look busier than
# it, on average? Take for each card the median of `busy` over the samples in which it held more than half of the most
# memory that it ever held (`used` has the same columns).
q = exercise("01.3", late)
# solution
medians = busy[used > used.max() / 2].median()
others = medians.drop(medians.idxmin())
answer = others.mean() - medians.min()
# end solution
q.check(answer)

# %% [markdown]
# In each step the GPUs exchange what they have learnt. This *all-reduce* runs as a kernel of RCCL, AMD's library for
# GPUs that talk to each other. The kernel *spins* until the last GPU has come: it asks again and again, does nothing
# else, and counts as busy. AMD's published recording of four MI300 GPUs has this pattern too; lesson 07 reads it. One
# small kernel after another looks busy in the same way.
#
# ## A real node, and a log of hours
#
# Is a GPU well used if it is busy and takes much power? Here is a recording of a node, one machine of a cluster, with
# eight MI300X. A benchmark of text generation (vLLM, Llama-3.1-8B, one request at a time) was to be watched. Nobody
# stopped the monitor, so its log runs on, over one benchmark after the other. You will often get such a file. Two
# sensors stand in two files here, read at different moments: `merge_asof` joins each row with the nearest of the other.

# %%
there, gpu0 = proflab.try_recording("smi-mi300x-vllm-llama31-bs1"), None


def log_of(kind):
    path = next(path for name, path in there.files.items() if f"gpu_{kind}_" in name)
    return pd.read_csv(path).dropna(subset="device")


if there:
    usage, power = log_of("usage"), log_of("power")
    watts = power.loc[power["device"] == "card0", ["timestamp", "power_watts"]]
    gpu0 = pd.merge_asof(usage[usage["device"] == "card0"], watts, on="timestamp", direction="nearest")
    loaded = gpu0["vram_used_bytes"] > 1e9
    gpu0["window"] = (loaded != loaded.shift()).cumsum()
    windows = gpu0[loaded].groupby("window")["timestamp"].agg(["min", "max"])

    log = tidyprof.read_system(there.files[next(iter(there.files))].parents[1] / "monitoring", origin=there.origin)
    own = log.counters[(log.counters["device"] == 0) & (log.counters["name"] == "gpu_busy")]
    assert own["value"].tolist() == gpu0["gpu_use_percent"].tolist()

# %% [markdown]
# Each change between loaded and empty begins a new window: `shift` compares a row with the one before, `cumsum` numbers
# the changes. The same three lines cut your job out of any log.

# %%
if there:
    whole, end = gpu0["timestamp"].max() - gpu0["timestamp"].min(), windows["max"].iloc[0]
    say(
        f"The log covers {whole / 60:.0f} minutes of {usage['device'].nunique()} GPUs, with a sample about every "
        f"{gpu0['timestamp'].diff().median():.0f} s. GPU 0 held a model in {len(windows)} windows. The picture shows "
        f"the first {end - gpu0['timestamp'].iloc[0]:.0f} s, to the end of the first one: its memory is full long "
        "before it works."
    )
    begun = tidyprof.Profile(log.events, log.counters[log.counters["time_ns"] <= end * 10**9], log.meta)
    show_figure(plots.counters(begun, ["gpu_busy", "power", "memory_used"], [0, 1], "GPUs 0 and 1, first benchmark"))

# %%
weights = 8_030_261_248 - 128_256 * 4_096  # Llama-3.1-8B without its table of word pieces, of which a token reads a row
if there:
    request = json.loads(next(path for path in there.files.values() if path.suffix == ".json").read_text())
    flops, read_bytes = (
        2 * weights * (128 + 128),
        2 * weights * 128,
    )  # all tokens of a request; the new ones, in 16 bits
    mfu = flops / request["avg_latency"] / peak_flops("MI300X", "automixed")
    share = read_bytes / request["avg_latency"] / device("MI300X").memory_bandwidth
    full = gpu0[(gpu0["gpu_use_percent"] == 100) & (gpu0["timestamp"] <= end)]
    watt, limit = full["power_watts"].median(), device("MI300X").power_watt
    say(
        f"In its {len(full)} samples at full activity in this window GPU 0 takes {watt:.0f} W (median), "
        f"{100 * watt / limit:.0f} % of the limit of {limit:.0f} W, which is from the course's table of GPUs. Yet its "
        f"MFU is **{100 * mfu:.1f} %**. For every new word piece it must read nearly all weights of the model from "
        f"memory, which alone takes at least {100 * share:.0f} % of the memory's peak rate. So the device is likely "
        "the limit here, and then its memory rather than its arithmetic. "
        f"{len(full)} samples are a hint, no measurement."
    )
    watts = gpu0.loc[gpu0["gpu_use_percent"] == 100, "power_watts"]
    say(
        f"Don't trust a single sample: of the {len(watts)} at full activity in the whole log, "
        f"{(watts < watts.median() / 2).sum()} show hardly any power. Two sensors are not read at the same moment."
    )

# %% [markdown]
# ## Watts, watt-hours, joules an image
#
# Energy is power times time. Between two samples take the mean of both powers, times the seconds between them; a
# watt-hour is one watt for an hour. `rolling(2).mean()` is the mean with the row before, `diff()` the distance to it.
# Divide by what was done meanwhile: a joule is one watt for a second, so watts by images/s are joules an image.


# %%
def watt_hours(samples):
    seconds = samples["timestamp"].diff()
    return (seconds * samples["power_watts"].rolling(2).mean()).sum() / 3600


if there:
    energy = pd.Series({card: watt_hours(samples) for card, samples in power.groupby("device")})
    say(
        f"In {whole / 60:.0f} minutes GPU 0 took {energy['card0']:.0f} Wh. The other {len(energy) - 1}, which held no "
        f"model, took **{energy.drop('card0').sum():.0f} Wh** together."
    )

joules = at_work["power_usage"].mean() / healthy.images_per_second
assumed = "" if lesson.has_gpu else " Its power is the model's assumption: don't quote the number."
say(f"`healthy` takes {1e3 * joules:.1f} mJ an image, by {len(at_work)} samples ({healthy.profile.origin}).{assumed}")

# %% [markdown]
# A monitor that reads every few seconds misses what is shorter. The GPU also has an *energy counter*, which adds up all
# by itself: read it before and after, and subtract, with `amd-smi metric -E`. Here is one that a user published, and
# below it what becomes of a part of the log above if only its first, its last and every fifth sample between them are
# kept: a short peak is lost, or counts for longer than it lasted.

# %%
counted = pd.read_csv(lesson.file("published_energy.csv"), comment="#")
ends = counted.groupby("gpu")[["timestamp", "total_energy_consumption"]].agg(["first", "last"])
elapsed, spent = (ends[name]["last"] - ends[name]["first"] for name in ("timestamp", "total_energy_consumption"))
rates = ", ".join(f"{watt:.1f} W" for watt in spent / elapsed)
say(f"Two idle MI210 by their counters: {rates} (published by a user of amd-smi, see the file).")
if there:
    short = gpu0[gpu0["window"] == windows.index[-1]].head(25)
    thinned = [3600 * watt_hours(short.iloc[[0, *range(start, 24, 5), 24]]) for start in range(1, 6)]
    say(
        f"{len(short)} samples of GPU 0 hold {3600 * watt_hours(short):,.0f} J; by every fifth of them between "
        f"{min(thinned):,.0f} and {max(thinned):,.0f} J in the same time, depending on which ones these are."
    )

# %% [markdown]
# The counter has faults of its own: [on an MI100 it was far too low][counter], so compare it once with watts times
# seconds. And mind what a sensor covers: the two dies of an MI250X share one, whose power and limit are for both, and
# the second die shows `N/A`. So divide its joules by the images of both.
#
# [counter]: https://github.com/ROCm/amdsmi/issues/38

# %%
# 8 minutes: how many watt-hours did the last window with a model in memory cost beyond what an idle GPU takes in that
# time? `gpu0` has `timestamp` (seconds), `power_watts`, `window` and `vram_used_bytes`; a window lasts from its first
# to its last sample. Take as idle the median power of all samples of `gpu0` without a model.
q = exercise("01.4", gpu0)
# solution
last = gpu0[gpu0["window"] == windows.index[-1]]
idle_watt = gpu0.loc[gpu0["vram_used_bytes"] <= 1e9, "power_watts"].median()
hours = (last["timestamp"].max() - last["timestamp"].min()) / 3600
answer = watt_hours(last) - idle_watt * hours
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: three numbers, and none says it alone
#
# Here are all GPUs of this lesson, by how busy they were and by how much of their arithmetic was of use.

# %%
runs = one_table([healthy, slow, tiny, late])
seen, origins = runs, [runs.attrs["origin"]]
if there:
    decode = {"run": "recorded text generation", "device": 0, "busy_percent": 100.0, "mfu_percent": 100 * mfu}
    seen = pd.concat([runs, pd.DataFrame([decode | {"power_watt": watt, "limit_watt": limit}])], ignore_index=True)
    origins.append(str(log.origin))
seen.attrs["origin"] = "; ".join(origins)
show_figure(work_map(seen, title="To the right is busy, upwards is arithmetic that the model needs"))
show_table(seen, "run device busy_percent power_watt limit_watt mfu_percent", "The same points, with their power")

# %% [markdown]
# Busy and useful have little to do with each other: GPUs that wait for a late one can be the busiest of all. Power is a
# second witness. The recorded GPU is shown by the few samples at full activity, not by a
# median as the others; there it is near the limit although the arithmetic is small, because the memory works
# hard; on a GPU that only spins it should be low. Where you have no GPU, the power of the four runs is the model's
# assumption: look at the pattern, don't quote the watts.

# %% [markdown]
# ## Your own machine, now
#
# A monitor is a loop: read, write down, sleep. This one watches the machine while a command runs: the share of the
# processors that works, and the memory in use. Both are measured, on whatever you have.


# %%
def watch(command, every_s=0.2):
    rows, begin = [], time.time()
    psutil.cpu_percent()  # it counts from call to call
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            time.sleep(every_s)
            rows.append((time.time() - begin, psutil.cpu_percent(), psutil.virtual_memory().percent))
    assert process.returncode == 0, f"{command} failed"
    return pd.DataFrame(rows, columns=["second", "processors_percent", "memory_percent"])


command = "python -m cifar_train --max-steps 3 --batch-size 4 --run-dir runs/01/here"
here = watch(command.split())
here["part"] = (here["second"] > here["second"].max() / 2).map({False: "first half", True: "second half"})
halves = here.groupby("part")[["processors_percent", "memory_percent"]].mean().reset_index()
show_table(halves, "part processors_percent memory_percent", "This machine", origin="measured: this machine, now")

# %% [markdown]
# The beginning is Python loading its libraries, not training: a mean over all of it mixes the two. What else ran on
# this machine is in these numbers too. On a GPU node let `amd-smi monitor` write beside it, as above, and join both
# tables by time with `merge_asof`: a GPU that is idle while all processors work waits for data or for its host.

# %% [markdown]
# ## Decide: the first verdict
#
# Back to the four runs. The table of verdicts is at the top; the map and the exercises are your evidence. What sets the
# pace of `healthy` depends on the GPU.

# %%
# 6 minutes: one of data, host, device, network for each run, as a dictionary with the keys `healthy`, `slow-loader`,
# `tiny-batch` and `late-rank`. For `late-rank` judge the rank that the others wait for.
q = exercise("01.5", (healthy, slow, tiny, late))
# solution
ratio = (tiny.batch_size / tiny.images_per_second) / (healthy.batch_size / healthy.images_per_second)
pace = "host" if ratio >= 0.9 else "device"
answer = {"healthy": pace, "slow-loader": "data", "tiny-batch": "host", "late-rank": "host"}
# end solution
q.check(answer)

# %% [markdown]
# How sure can you be?
#
# | you saw | you may say | still open |
# | --- | --- | --- |
# | GPU nearly idle, memory in use | it is not the device: sure | disk, loader or host: look at the processors |
# | busy for a part of the time | the GPU waits for the rest of it: sure | data or host: change the batch, watch again |
# | busy, near the power limit | the device: likely | arithmetic or memory: MFU, then counters |
# | busy at low power on some GPUs | they wait: likely | why the idle one is late: a timeline of it |
# | busy at low power on all GPUs | network, or small kernels: a guess | change the batch; a timeline tells |
#
# The last exercise is open: what would have warned you? Write an alarm that rings for GPUs that look busy and do
# little. It is tried on every GPU of this lesson, with sensors a little off.

# %%
q = exercise("01.6", seen)


# 7 minutes, open: write `def answer(busy_percent, power_watt, limit_watt)`. It gets percent from 0 to 100, then watts,
# and the power limit of that GPU. It returns True for a GPU that looks busy and does little.
# solution
def answer(busy_percent, power_watt, limit_watt):
    return busy_percent > 85 and power_watt < 0.6 * limit_watt


# end solution
q.check(answer)

# %% [markdown]
# ## Prediction and result

# %%
proflab.reveal("01.a", healthy.table["busy_percent"].iloc[0], healthy.profile)
proflab.reveal("01.b", 100 * healthy.mfu, healthy.profile)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# It sees no kernel, no operator, no line of code, and nothing shorter than its interval. It can't see the network
# directly: omnistat can count its bytes, but nobody counts waiting. The verdict is a first one, to choose the next
# tool by.

# %% [markdown] tags=["given"]
# ## Known issues
#
# More, with sources, in the [list of known issues](../docs/known-issues.md).
#
# | symptom | what to do |
# | --- | --- |
# | the file of `amd-smi` has no last sample with several GPUs | ask for one sample more than you need |
# | CSV on the screen repeats its header for every sample | use `--file`; a new name for each run |
# | an MI300A or MI300X split into *partitions* shows `N/A` | only the first one reports sensors: count per GPU |
# | the file of `amd-smi` states no power limit | before ROCm 7.0: `amd-smi static --limit` prints it |
# | GPUs are numbered otherwise than in PyTorch | `amd-smi list -e` shows both numbers, from ROCm 6.4 on |
# {issue power-and-activity-tell-different-stories}
# | omnistat does not start | it needs ssh to all nodes of the job, VictoriaMetrics, and up to 1.6 Python below 3.11 |
# | omnistat finds no GPU from ROCm 10 on | in its configuration: `enable_rocm_smi = False`, `enable_amd_smi = True` |
# | omnistat's report is empty | same `--interval` in both commands, and a job that lasts longer than it |

# %% [markdown]
# ## At work, without this course
#
# Put the first command around yours in the job script. The summary says how much of its time, memory and energy each
# GPU spent, for the whole log or for a window of it.
#
# {snippet 01_gpu_log.py}
#
# Read on: [AMD SMI's command line](https://rocm.docs.amd.com/projects/amdsmi/en/latest/how-to/amdsmi-cli-tool.html),
# [Omnistat](https://amdresearch.github.io/omnistat).

# %% [markdown]
# ## Key points
#
# - Busy means that something ran. Power says how hard, MFU how usefully, and none of them says it alone.
# - A GPU that waits for another one looks busy. The one that is waited for looks idle.
# - A monitor raises a suspicion; one changed run turns it into evidence.
# - A mean over a whole job, or over all GPUs, describes none of them: cut out the window, look at each GPU.
# - Energy is the sum of power times time. Idle GPUs count too.
#
# Next question: where does a step go?
