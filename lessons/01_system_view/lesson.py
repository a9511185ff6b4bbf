# %% [markdown]
# # Is the GPU even the problem?
#
# The case is slow, and a clock can't tell whether the GPU works or waits. Look from outside first: is the GPU used at
# all? System monitors answer this beside a running job, and are easy to misread.
#
# After this lesson you can
#
# - watch a training with `amd-smi`, a job with omnistat, and cut your job out of a log of hours;
# - tell busy from working, by power and by the share of the peak that is reached;
# - say which of data, host, device and network your evidence rules out, and which stay open.
#
# You need lesson 00. Commands are those of `amd-smi` in ROCm 7.2 and of omnistat 1.6 to 1.11. An AMD GPU is used where
# there is one.

# %%
import json
import os
import subprocess

import pandas as pd
import proflab
import psutil
import tidyprof
from cifar_train.peaks import peak_flops
from gpumodel.devices import device
from gpumodel.validation import published
from proflab import exercise, say, show_figure, show_table
from proflab.parts.watched_runs import one_table, watched_run
from proflab.parts.work_map import work_map
from tidyprof import plots

lesson = proflab.start("01")

# %%
lesson.sheet()

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
# | clocks, temperature | does heat or the power limit slow it down? | which kernel needs the power |
# | memory in use (VRAM) | is a program there, is it about to run out? | whether the program does anything |

# %% [markdown]
# A run waits for one of four. You begin with all four as suspects, and cross out what the evidence speaks against:
#
# | suspect | everything waits for | what speaks against it |
# | --- | --- | --- |
# | data | images that the loader reads and prepares | steps that take equally long with far fewer images |
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
# *MFU*, model FLOPs utilisation, is the arithmetic that the model needs per second, as a share of what the GPU could
# do. A FLOP is one addition or multiplication of two numbers. Where you have no GPU, the run is on a modelled MI300X.

# %%
# solution
busy_guess, mfu_guess = 90, 30
# end solution
proflab.predict("01.a", busy_guess, unit="%", what="how busy the GPU is in the case")
proflab.predict("01.b", mfu_guess, unit="%", what="the MFU of the same run")

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
# `torch.cuda.get_device_properties(0)` says what PyTorch got: name, memory, compute units. Note them beside the log:
# peak and power limit depend on them. *Is it yours alone?* A sensor belongs to the GPU and not to your job. On a shared
# node number 0 can be a neighbour's, since the monitor ignores `ROCR_VISIBLE_DEVICES`, the variable that hides GPUs
# from a program. Its activity, memory and watts then look like yours. `amd-smi process` tells who is on which GPU.
#
# Without a GPU the stand-in models the sensors of an MI300X while the command in `PROFLAB_WORKLOAD` trains. The
# training itself is then left out: `test -e /dev/kfd` asks whether the driver's file is there. Power is the weak part
# of this model: its ends, idle and limit, are known, what lies between is assumed. `2>&1` puts a tool's messages, which
# are no errors, among its results.

# %%
steps, seconds = (1500, 45) if lesson.has_gpu else (40, 3)
os.environ |= {"STEPS": str(steps), "WATCH": str(seconds)}

# %% language="bash"
# mkdir -p $FOLDER/case; rm -f $FOLDER/case/smi.csv  # amd-smi would append to it, or refuse
# export PROFLAB_WORKLOAD="$CASE --max-epochs 10 --max-steps $STEPS"
# echo $PROFLAB_WORKLOAD > $FOLDER/case/command.txt
# amd-smi monitor -g 0 -p -t -u -m -v -w 1 -W $WATCH --csv --file $FOLDER/case/smi.csv 2>&1 &
# test -e /dev/kfd && $PROFLAB_WORKLOAD --run-dir $FOLDER/case
# wait
# head -n 3 $FOLDER/case/smi.csv

# %% [markdown]
# Read such a file by its header, never by position: columns have come and changed names with ROCm 6.3, 7.0 and 7.2.
# Compare names in small letters: from 7.14 on amd-smi writes all keys of CSV and JSON so.
# `gfx` is the activity of the *graphics engine*: so AMD calls the part of the GPU that runs kernels. `mem` is that of
# the memory, `vram_used` is in mebibytes. `N/A` is a sensor that this GPU does not have.
#
# On a GPU run this cell twice, and the next one that trains too: MIOpen tries out kernels first (lesson 00).
#
# ## First look
#
# A log begins before the training and ends after it. When does your program run on the GPU? While it holds memory
# there. The helper `watched_run` cuts at the same place, for logs of all kinds.

# %%
smi = pd.read_csv(lesson.folder / "case/smi.csv", na_values="N/A").rename(columns=str.lower)
at_work = smi[smi["vram_used"] > smi["vram_used"].max() / 2]
busy, power = at_work["gfx"].median(), at_work["power_usage"].median()

case = watched_run(lesson.folder / "case")
row = case.table.iloc[0]
assert (busy, power) == (row["busy_percent"], row["power_watt"])
columns = "run busy_percent memory_busy_percent memory_used_percent power_watt limit_watt"
show_table(case.table, f"{columns} limit_from", "Medians while the model was on the GPU")
say(
    f"{len(smi)} samples, in which the GPU is busy for {at_work['gfx'].min():.0f} to "
    f"{at_work['gfx'].max():.0f} % of the time. It takes {100 * power / row['limit_watt']:.0f} % "
    f"of its power limit. The trainer reached {case.images_per_second:,.0f} images/s."
)

# %% [markdown]
# `limit_from` tells who states the power limit: the monitor (from ROCm 7.0 on), or the course's table of GPUs. An idle
# GPU takes a good part of the limit already: read power from idle to limit, not from zero.
#
# The GPU does little. Is this what such a model does on such a GPU? AMD published a run of it, with the same batch, in
# mixed precision.

# %%
amd = {figure["name"]: figure for figure in published()["figures"]}
rate, amd_idle = amd["single_images"]["value"], amd["single_idle_share"]["value"]
say(
    f"AMD's run on an MI300X reached {rate:,.0f} images/s, {rate / case.images_per_second:.1f} "
    f"times the rate of the case. Its GPU idled for {amd_idle:.0f} %, this one {100 - busy:.0f} %."
)

# %% [markdown]
# `case.flops_per_image` counts forward and backward pass, `case.peak_flops` is the most FLOPs per second that AMD
# states for this GPU and precision.

# %%
# 3 minutes: what is the MFU of this run, in percent? You also need `case.images_per_second`.
q = exercise("01.1", case)
# solution
answer = 100 * case.images_per_second * case.flops_per_image / case.peak_flops
# end solution
q.check(answer)

# %% [markdown]
# ## Change one thing
#
# Change one thing and watch again: the same command with a batch of 4 images. If the
# GPU's work sets the pace, the step gets shorter, and not by more than the GPU had worked in it.

# %% language="bash"
# mkdir -p $FOLDER/small-batch; rm -f $FOLDER/small-batch/smi.csv
# export PROFLAB_WORKLOAD="$CASE --max-epochs 10 --max-steps $STEPS --batch-size 4"
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

# %% [markdown]
# Here is a trap: fewer images, shorter step, so the GPU was the limit? The images also have to be prepared, and that
# takes longer for more of them too. Ask how much of the difference the GPU can explain.

# %%
# 4 minutes: suppose that with 4 images the GPU had nothing to do at all. By how many milliseconds did the step get
# shorter beyond what the GPU can have saved? `step_ms` has both steps, `both` and `busy` how busy the GPU was.
q = exercise("01.2", (case, small))
# solution
saved = step_ms["case"] - step_ms["small-batch"]
answer = saved - busy / 100 * step_ms["case"]
# end solution
q.check(answer)

# %% [markdown]
# A clearly positive answer clears the GPU: a part of the step grows with the images and is not its work. What is left
# with 4 images hardly depends on them. The first part may be data, the second one looks like the host; one sensor can't
# tell them apart.
#
# ## Trap: busy is not working
#
# The case uses one GPU. Take another job: four GPUs, each driven by a
# process of its own, which is called a *rank*. `torchrun` starts them. One rank is late in every step. Omnistat samples
# all GPUs of a job into a database. In *user mode* you start it inside your own job. Query before you stop the server,
# and give both commands the same interval, in seconds.
#
# A real omnistat is used where `OMNISTAT_DIR` names the folder with its programs, and `OMNISTAT_CONFIG` its
# configuration file; set them before you start Jupyter. Without them the stand-in plays the job.

# %% language="bash"
# exec 2>&1; export PATH=${OMNISTAT_DIR:+$OMNISTAT_DIR:}$PATH
# mkdir -p $FOLDER/late-rank
# export PROFLAB_WORKLOAD="torchrun --nproc-per-node 4 -m cifar_train --max-steps 40 \
#     --pathology rank-skew"
# echo $PROFLAB_WORKLOAD > $FOLDER/late-rank/command.txt
# omnistat-usermode --start --interval 0.1
# test -x "$OMNISTAT_DIR/omnistat-usermode" && $PROFLAB_WORKLOAD --run-dir $FOLDER/late-rank
# omnistat-usermode --stopexporters
# omnistat-query --job ${SLURM_JOB_ID:-1} --interval 0.1 --export $FOLDER/late-rank
# omnistat-usermode --stopserver

# %% [markdown]
# The report card averages over the whole job, start included. Look at the samples instead. Omnistat's file has three
# lines of names, for what was sampled, on which machine, of which GPU.

# %%
omni = pd.read_csv(lesson.folder / "late-rank/omnistat-rocm.gpu.csv", header=[0, 1, 2], index_col=0)
busy_of, used = omni["rocm_utilization_percentage"], omni["rocm_vram_used_percentage"]

late = watched_run(lesson.folder / "late-rank")
samples = late.profile.counters
held = samples[samples["name"] == "memory_used_percent"]
begin = held.loc[held["value"] > held["value"].max() / 2, "time_ns"].min()
begun = samples[samples["time_ns"] >= begin]
training = tidyprof.Profile(late.profile.events, begun, late.profile.meta)
show_figure(plots.counters(training, ["gpu_busy", "power"], title="The GPUs of one job at work"))

# %%
# 4 minutes: one GPU is the one that the others wait for. By how many percentage points do the others look busier than
# it, on average? Take each GPU's median while it trains, by the same rule as above; `busy_of` and `used` have a column
# for each GPU.
q = exercise("01.3", late)
# solution
medians = busy_of[used > used.max() / 2].median()
others = medians.drop(medians.idxmin())
answer = others.mean() - medians.min()
# end solution
q.check(answer)

# %% [markdown]
# In each step the GPUs exchange what they have learnt. This *all-reduce* runs as a kernel of RCCL, AMD's library for
# GPUs that talk to each other. The kernel *spins* until the last GPU has come: it asks again and again, does nothing
# else, and counts as busy. One small kernel after another looks busy in the same way.
#
# ## A real node, and a log of hours
#
# What does a GPU look like that is busy and works? Here is a recording of a node, one machine of a cluster, with
# eight MI300X. A benchmark of text generation (vLLM, Llama-3.1-8B, one request at a time) was to be watched. Nobody
# stopped the monitor, so its log runs on, over one benchmark after the other. Two
# sensors stand in two files here, read at different moments: `merge_asof` joins each row with the nearest of the other.
# Each change between loaded and empty begins a new window: `shift` compares a row with the one before, `cumsum` numbers
# the changes.

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
say(
    f"The log covers {whole / 60:.0f} minutes of {usage['device'].nunique()} GPUs. GPU 0 held a "
    f"model in {len(windows)} windows, of which the picture shows the first."
)
begun = tidyprof.Profile(log.events, log.counters[log.counters["time_ns"] <= end * 10**9], log.meta)
names, title = ["gpu_busy", "power", "memory_used"], "GPUs 0 and 1, first benchmark"
show_figure(plots.counters(begun, names, [0, 1], title))

# %%
weights = 8_030_261_248 - 128_256 * 4_096  # without the table of words: a token reads a row
request = json.loads(next(there.path.glob("**/*.json")).read_text())
flops, read_bytes = 2 * weights * (128 + 128), 2 * weights * 128  # of a request; 2 bytes a weight
mfu = flops / request["avg_latency"] / peak_flops("MI300X", "automixed")
share = read_bytes / request["avg_latency"] / device("MI300X").memory_bandwidth
limit = device("MI300X").power_watt
at_full = gpu0[gpu0["gpu_use_percent"] == 100]
watt, idle_watt = at_full["power_watts"].median(), gpu0.loc[~loaded, "power_watts"].median()
odd = (at_full["power_watts"] < watt / 2).sum()
say(
    f"In its {len(at_full)} samples at full activity GPU 0 takes {watt:.0f} W (median), "
    f"{100 * watt / limit:.0f} % of the limit of {limit:.0f} W, and without a model "
    f"{idle_watt:.0f} W. Yet the MFU of its first benchmark is **{100 * mfu:.1f} %**. For every "
    "new word piece it must read nearly all weights of the model from memory, which takes at "
    f"least {100 * share:.0f} % of the memory's peak rate. So the device is the limit here, and "
    f"rather its memory than its arithmetic. Don't trust a single sample: {odd} of these show "
    "hardly any power, since two sensors are not read at the same moment."
)

# %% [markdown]
# ## Three numbers, and none says it alone
#
# All GPUs of this lesson, the recorded one twice: at full activity, and without a model.

# %%
recorded = [["text generation", 0, 100.0, 100 * mfu, watt], ["no model", 0, 0.0, 0.0, idle_watt]]
names = ["run", "device", "busy_percent", "mfu_percent", "power_watt"]
watched = one_table([case, small, late])
points = pd.DataFrame(recorded, columns=names).assign(limit_watt=limit)
seen = pd.concat([watched, points], ignore_index=True)
seen.attrs["origin"] = f"{watched.attrs['origin']}; {log.origin}"
seen["power_share_percent"] = 100 * seen["power_watt"] / seen["limit_watt"]
show_figure(work_map(seen, title="To the right is busy, upwards is useful arithmetic"))
columns = "run device busy_percent power_watt limit_watt power_share_percent MFU_percent"
listed = seen.rename(columns={"mfu_percent": "MFU_percent"})
show_table(listed, columns, "The same points, with their power")

# %% [markdown]
# The GPUs that wait for a late one are nearly as busy as the one that generates text, and do next to nothing. Power is
# the second witness: the recorded GPU is near its limit, although its arithmetic is small, because its memory works
# hard. Where you have no GPU, the power of the watched runs is the model's assumption; the recorded points are real.
#
# ## The processors beside it
#
# Who else works while the GPU is idle? Look at the processors: here those of your machine, while the case trains on it.

# %%
psutil.cpu_percent()  # it counts from call to call
short = f"--batch-size 4 --max-steps 3 --run-dir {lesson.folder}/here"
subprocess.run([*os.environ["CASE"].split(), *short.split()], check=True, capture_output=True)
say(f"Measured here: {psutil.cpu_percent():.0f} % of the processors' time is work, start included.")

# %% [markdown]
# An idle GPU beside busy processors waits for data or for its host: both are work of the same processors.
#
# ## Decide: what is ruled out, what stays open?

# %%
# 5 minutes: which of data, host, device, network stay open? Answer with a dictionary whose keys are `case`,
# `small-batch`, `late-rank` (judge the rank that the others wait for), `text generation` (GPU 0 at full activity) and
# `first window` (GPU 0 over the whole first window of its log, in `gpu0`). Each value is the set of
# suspects that no evidence rules out.
q = exercise("01.4", (case, small, late, gpu0))
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
# The last exercise is open: an alarm, tried on every GPU of the last table, with sensors a little off.

# %%
q = exercise("01.5", seen)


# 4 minutes, open: write `def answer(busy_percent, power_watt, limit_watt)`. It gets percent from 0 to 100, then watts,
# and the power limit of that GPU. It returns True for a GPU that looks busy and does little. The recorded GPU, idle
# and at work, shows between which powers your line has to be.
# solution
def answer(busy_percent, power_watt, limit_watt):
    return busy_percent > 85 and power_watt < 0.55 * limit_watt


# end solution
q.check(answer)

# %% [markdown]
# Now the line for the case. A GPU that is idle for most of the time asks for a timeline of a step; one that is never
# idle would ask for its kernels, in lesson 04. A few samples are a rough measure, so the sheet gets upper bounds: the
# highest sample, rounded up to the next ten.


# %%
def decide(busy_percent):
    return "04" if busy_percent >= 75 else "02"


rough = at_work["gfx"], 100 * at_work["power_usage"] / row["limit_watt"]
most, most_power = (10 * -(-samples.max() // 10) for samples in rough)
idle = decide(busy) == "02"
lesson.conclude(
    f"The GPU holds the model, is busy for less than {most:.0f} % of a step of "
    f"{step_ms['case']:.0f} ms, and takes less than {most_power:.0f} % of its power limit. A "
    f"step with {small.batch_size} images still takes {step_ms['small-batch']:.0f} ms; of the "
    f"{step_ms['case'] - step_ms['small-batch']:.0f} ms that it saves, the GPU can explain at most "
    f"{most / 100 * step_ms['case']:.0f} ms.",
    rules_out="the device, and with one GPU the network" if idle else "data, host, network",
    because="A timeline tells data from host." if idle else "The device: which kernels?",
    next=decide(busy),
    origin=case.profile,
)

# %% [markdown]
# ## Prediction and result

# %%
proflab.reveal("01.a", case.table["busy_percent"].iloc[0], case.profile)
proflab.reveal("01.b", float(f"{100 * case.mfu:.3g}"), case.profile)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# It sees no kernel, no operator, no line of code, no waiting for the network, and nothing shorter than its interval.
#
# ## Known issues
#
# More, with sources, in the [list of known issues](../docs/known-issues.md).
#
# | symptom | what to do |
# | --- | --- |
# | the file of `amd-smi` has no last sample with several GPUs | ask for one sample more than you need |
# | `amd-smi` numbers its GPUs differently from PyTorch | `amd-smi list -e` shows both numbers, from ROCm 6.4 on |
# {issue power-and-activity-tell-different-stories}
# | omnistat finds no GPU from ROCm 10.1 on | its configuration: `enable_rocm_smi = False`, `enable_amd_smi = True` |

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
# ## Key points
#
# - Busy means that something ran. Power says how hard, MFU how usefully, and none of them says it alone.
# - A shorter step with fewer images does not convict the GPU: compare with what it was busy.
# - A GPU that waits for another one looks busy. The one that is waited for looks idle.
# - A mean over a job or over all GPUs describes none of them. A model in memory is not yet at work.
#
# Next question: where does a step go?
