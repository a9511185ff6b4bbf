# %% [markdown]
# # Is the GPU even the problem?
#
# Training is slow. Before you profile a single kernel, look from outside: is the GPU used at all, and is it the
# GPU that everything waits for? System monitors answer this beside a running job, without a change to it. They are
# also easy to misread.
#
# After this lesson you can
#
# - watch a training run with `amd-smi` and a job with omnistat, into a file that you can read again;
# - tell busy from working, by power and by the share of the peak that is reached;
# - give a first verdict, data, host, device or network, and say how sure you are.
#
# You need lesson 00. Commands are those of `amd-smi` in ROCm 7.2 and of omnistat 1.6. An AMD GPU is used where there
# is one.

# %%
import os
import subprocess

import pandas as pd
import proflab
from proflab import exercise, say, show_figure, show_table
from proflab.parts.power_map import power_map
from proflab.parts.recorded_decode import recorded_decode
from proflab.parts.watched_runs import joined_origin, one_table, watched_run
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
# mkdir -p runs/01/healthy
# export PROFLAB_WORKLOAD="python -m cifar_train --max-epochs 10 --max-steps $STEPS"
# echo $PROFLAB_WORKLOAD > runs/01/healthy/command.txt
# amd-smi monitor -g 0 -p -t -u -m -v -w 1 -W $WATCH --csv --file runs/01/healthy/smi.csv &
# test -e /dev/kfd && $PROFLAB_WORKLOAD --run-dir runs/01/healthy
# wait
# head -n 3 runs/01/healthy/smi.csv

# %% [markdown]
# Read such a file by its header, never by position: columns have come and changed names with ROCm 6.3, 7.0 and 7.2.
# `N/A` is a sensor that this GPU does not have, `MB` are mebibytes. A run without its command is worth little later,
# so we kept that too.
#
# On a GPU the first steps with a new batch size can take minutes, while MIOpen tries out kernels (lesson 00): the log
# then shows that and not the training. So run this cell twice there, and the next one that trains too.
#
# ## First look
#
# `limit_from` tells who states the power limit: the monitor, or the course's table of GPUs where the log has none.
# `amd-smi monitor` states it from ROCm 7.2 on, omnistat's files don't.

# %%
healthy = watched_run("runs/01/healthy")
columns = "run busy_percent memory_busy_percent memory_used_percent power_watt limit_watt limit_from images_per_second"
show_table(healthy.table, columns, "Medians while the model was on the GPU")
say(f"{healthy.profile.meta['samples']} samples. The trainer reached {healthy.images_per_second:,.0f} images/s.")

# %%
# 3 minutes: how much of its power limit does the GPU use, in percent? `healthy.table` has one row per GPU.
q = exercise("01.1", healthy)
# solution
answer = 100 * healthy.table["power_watt"].iloc[0] / healthy.table["limit_watt"].iloc[0]
# end solution
q.check(answer)

# %% [markdown]
# Neither number says how much useful work is done. Ask a third: how fast is it, compared with what the hardware can do?
# `healthy.flops_per_image` counts forward and backward pass, `healthy.peak_flops` is the most FLOPs per second that
# AMD states for this GPU and precision. Where the trainer knows the GPU's peak, it prints the MFU itself.

# %%
# 4 minutes: what is the MFU of this run, in percent? You also need `healthy.images_per_second`.
q = exercise("01.2", healthy)
# solution
answer = 100 * healthy.images_per_second * healthy.flops_per_image / healthy.peak_flops
# end solution
q.check(answer)

# %% [markdown]
# So this GPU is far from its limits, whatever the word *busy* suggests. Then what sets the pace?
#
# ## Two sick runs
#
# The trainer has faults built in. `slow-loader` reads each image slowly; `tiny-batch` takes a few images per step.
# Which differences do you expect? In the table, `model_tflops` is the arithmetic of MFU in TFLOP/s: so many million
# million FLOPs per second.

# %% language="bash"
# for fault in slow-loader tiny-batch; do
#     mkdir -p runs/01/$fault
#     steps=$STEPS; test $fault = slow-loader && steps=40
#     export PROFLAB_WORKLOAD="python -m cifar_train --max-epochs 10 --max-steps $steps --pathology $fault"
#     echo $PROFLAB_WORKLOAD > runs/01/$fault/command.txt
#     amd-smi monitor -g 0 -p -t -u -m -v -w 1 -W $WATCH --csv --file runs/01/$fault/smi.csv &
#     test -e /dev/kfd && $PROFLAB_WORKLOAD --run-dir runs/01/$fault
#     wait
# done

# %%
slow, tiny = watched_run("runs/01/slow-loader"), watched_run("runs/01/tiny-batch")
single = one_table([healthy, slow, tiny])
show_table(single, "run busy_percent power_watt memory_used_percent images_per_second model_tflops", "Three runs")
gap_s, interval_s = slow.batch_size / slow.images_per_second, slow.profile.meta["interval_s"]
say(
    f"A step of slow-loader takes {gap_s:.1f} s, a sample comes every {interval_s:.0f} s: most samples fall into "
    "the waiting. That the GPU shows no activity does not mean that nothing ever runs on it. The memory tells that a "
    "program is there."
)

# %%
# 4 minutes: how many times as long as a step of `healthy` is one of `tiny`? Both have `batch_size`, the images of a
# step, and `images_per_second`.
q = exercise("01.3", (healthy, tiny))
# solution
answer = (tiny.batch_size / tiny.images_per_second) / (healthy.batch_size / healthy.images_per_second)
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
# time.

# %%
late = watched_run("runs/01/late-rank")
show_figure(plots.counters(late.profile, ["gpu_busy", "power"], title="Those that wait are busy, the late one is not"))
show_table(late.table, "device busy_percent power_watt images_per_second model_tflops", "While the model was there")

# %%
# 4 minutes: which GPU do the others wait for? Give its number in the column `device` of `late.table`.
q = exercise("01.4", late)
# solution
answer = late.table.set_index("device")["busy_percent"].idxmin()
# end solution
q.check(answer)

# %% [markdown]
# In each step the GPUs exchange what they have learnt. This *all-reduce* runs as a kernel of RCCL, AMD's library for
# GPUs that talk to each other. The kernel *spins* until the last GPU has come: it asks again and again, does nothing
# else, and counts as busy. AMD's published recording of four MI300 GPUs has this pattern too; lesson 07 reads it. One
# small kernel after another looks busy in the same way.
#
# A map of busy against power shows what neither shows alone. Without a GPU the heights of its points are the model's
# assumption: look at the pattern, don't quote the watts.

# %%
runs = one_table([healthy, slow, tiny, late])
show_figure(power_map(runs, title="Far to the right is busy, far up is working"))

# %% [markdown]
# ## A real GPU at full power
#
# Is a GPU well used if it is busy and takes much power? Here is a recording of a node, one machine of a cluster, with
# eight MI300X. A benchmark of text generation (vLLM, Llama-3.1-8B, one request at a time) runs on one of them.

# %%
there = proflab.try_recording("smi-mi300x-vllm-llama31-bs1")
decode = recorded_decode(there) if there else None
if there:
    names = ["gpu_busy", "power", "memory_used"]
    show_figure(plots.counters(decode.benchmark, names, [0, 1], "GPU 0 holds its memory long before it works"))
    cards = decode.log.counters.query("name == 'gpu_busy'").groupby("device")["value"].mean()
    power = decode.log.counters.query("name == 'power'").groupby("device")["value"].mean()
    say(
        f"{(cards > 1).sum()} of {len(cards)} GPUs works. The others take {power.iloc[1:].min():.0f} to "
        f"{power.iloc[1:].max():.0f} W for nothing, and the mean over the node, {cards.mean():.0f} % busy over the "
        f"whole log, describes none of them."
    )

# %%
if there:
    row = decode.working.iloc[0]
    say(
        f"In its {row['samples']} samples at full activity GPU 0 takes {row['power_watt']:.0f} W (median), "
        f"{100 * row['power_watt'] / row['limit_watt']:.0f} % of the {row['limit_watt']:.0f} W that the course's table "
        f"of GPUs gives as the limit; the log has none. Yet its MFU is **{100 * decode.mfu:.1f} %**, all tokens of a "
        "request counted. For every new word piece it must read nearly all weights of the model from memory, which "
        f"alone takes at least {100 * decode.bandwidth_share:.0f} % of the memory's peak rate. So the device is likely "
        "the limit here, and then its memory rather than its arithmetic."
    )
    full = decode.pairs.query("busy_percent == 100")["power_watt"]
    say(
        f"Don't trust a single sample either: {(full < full.median() / 2).sum()} of {len(full)} samples at full "
        "activity show hardly any power. Two sensors are not read at the same moment."
    )

# %% [markdown]
# ## Your own machine, now
#
# The course has a small sampler too. It watches the processors, the memory, and GPUs where it sees any, while the
# block runs. Here the trainer runs on whatever you have.

# %%
with proflab.sampler("runs/01/here/sampler.csv") as log:
    command = "python -m cifar_train --max-steps 3 --batch-size 4 --run-dir runs/01/here"
    subprocess.run(command.split(), check=True, capture_output=True)
here = log.profile()
shown = [name for name in ("gpu_busy", "power", "cpu_user", "process_memory") if name in here.meta["quantities"]]
show_figure(plots.counters(here, shown, title="This machine during a short training"))
say(
    f"{log.meta['samples']} samples in {log.meta['samples'] * log.every_s:.0f} s, {log.meta['gpus']} GPUs seen. "
    "The beginning is Python loading its libraries, not training: a mean over all of it would mix the two. The memory "
    "includes that of this notebook."
)

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
seen = pd.concat([runs, decode.working]) if there else runs
q = exercise("01.6", seen)


# 7 minutes, open: write `def answer(busy_percent, power_watt, limit_watt)`. It gets percent from 0 to 100, then watts,
# and the power limit of that GPU. It returns True for a GPU that looks busy and does little.
# solution
def answer(busy_percent, power_watt, limit_watt):
    return busy_percent > 85 and power_watt < 0.6 * limit_watt


# end solution
q.check(answer)

# %%
if there:
    seen.attrs["origin"] = joined_origin(runs.attrs["origin"], decode.log.origin)
    show_figure(power_map(seen, title="The recorded GPU is where a GPU at its limit should be"))

# %% [markdown]
# ## Prediction and result

# %%
proflab.reveal("01.a", healthy.table["busy_percent"].iloc[0])
proflab.reveal("01.b", 100 * healthy.mfu)

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
# | an MI250X shows power in every second line only | its two dies share one sensor: value and limit are for both |
# | the file of `amd-smi` states no power limit | before ROCm 7.2: `amd-smi static --limit` prints it |
# | GPUs are numbered otherwise than in PyTorch | `amd-smi list -e` shows both numbers, from ROCm 6.4 on |
# | busy stands at 100 % while nothing runs | [reported for single drivers][stuck]: look at power |
# | omnistat does not start | it needs ssh to all nodes of the job, VictoriaMetrics, and Python below 3.11 |
# | omnistat's report is empty | same `--interval` in both commands, and a job that lasts longer than it |
#
# [stuck]: https://github.com/ROCm/rocm-systems/pull/10293

# %% [markdown]
# ## Key points
#
# - Busy means that something ran. Power says how hard, MFU how usefully, and none of them says it alone.
# - A GPU that waits for another one looks busy. The one that is waited for looks idle.
# - A monitor raises a suspicion; one changed run turns it into evidence.
# - A mean over a whole job, or over all GPUs, describes none of them.
#
# Next question: where does a step go?
