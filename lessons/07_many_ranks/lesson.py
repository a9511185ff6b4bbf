# %% [markdown]
# # What changes with many GPUs?
#
# Four GPUs should do four times as much work as one, but they do less. Often, the GPUs wait for each other, so the
# network isn't the cause. Find out which GPU waits for which and for how long.
#
# After this lesson, you can:
#
# - record each rank in a separate file and distinguish waiting from transfer;
# - identify the rank that the others wait for, or show that the evidence isn't sufficient;
# - estimate how long a transfer should take and decide whether more GPUs pay off.
#
# **Before you start:** complete lessons 00, 02 and 04. The commands work with ROCm 7.0 to {newest rocm}. Without four
# GPUs, the course replays files from modeled MI300X GPUs.

# %%
import pandas as pd
import proflab
import tidyprof
from proflab import case, exercise, show_figure, show_table, show_text
from proflab.parts.modeled_runs import modeled
from proflab.parts.steady_part import own_run, steady_part
from tidyprof import plots

lesson = proflab.start("07")

# %%
lesson.recall()

# %% [markdown]
# ## The example run so far
#
# Now four GPUs split each step of 1,024 images, 256 per GPU. Each GPU has two loader processes.

# %%
lesson.findings()

# %% [markdown] slide="An all-reduce ends only after the last rank has arrived."
# ## The picture to keep in mind
#
# In `DistributedDataParallel` (DDP), each process has its own GPU, a copy of the network and its own images. Such a
# process is a *rank*. After the backward pass, all copies need the same gradients. Therefore, RCCL, AMD's communication
# library, adds up the gradients from all ranks, and DDP divides the result by the number of ranks.
#
# {drawing 07_all_reduce}
#
# - A *collective* is an operation of all ranks. An *all-reduce* adds up data from all ranks.
# - A *bucket* is a group of gradients that are sent together. The last layers come first, so the exchange overlaps with
#   the backward pass.
# - A collective's kernel starts when *its own* rank arrives. The kernel ends after the *last* rank has arrived and the
#   data has been exchanged. Its duration is *waiting* plus *transfer*.
# - A *straggler* is a rank that the others wait for.
# - Communication is *exposed* if no computation runs at the same time.
#
# ## DDP, step by step
#
# This program computes each gradient twice, with DDP and with a manual all-reduce:
#
# 1. `init_process_group` meets the other ranks. On GPUs, use `"nccl"`, which is RCCL on AMD's.
# 2. `DistributedSampler` selects different samples per rank.
# 3. DDP gives all ranks rank 0's weights. On a GPU, call `torch.cuda.set_device(local_rank)`, then `.cuda()`.
# 4. DDP calls all-reduce during the backward pass.

# %%
# %%writefile {lesson.folder}/ranks.py
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = DataLoader(data, 16, sampler=DistributedSampler(data))
model = torch.nn.Linear(8, 1)
parallel = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * size)
for samples, wanted in loader:
    (own,) = torch.autograd.grad(mse_loss(model(samples), wanted), model.weight)
    mse_loss(parallel(samples), wanted).backward()
    dist.all_reduce(own)
    manual, ddp = (own / size)[0, :2], model.weight.grad[0, :2]
    print(f"rank {rank}: manual {manual}, DDP {ddp}", flush=True)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()

# %% language="bash"
# echo "First, two processes import PyTorch, which takes up to half a minute."
# OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 $FOLDER/ranks.py 2>&1

# %% [markdown]
# > **Note:** Call `loader.sampler.set_epoch(epoch)` before each epoch; otherwise, every epoch uses the same order. With
# > DDP, an epoch has fewer steps, so the *learning rate* is usually multiplied by the rank count. Compare the loss *per
# > epoch*.
#
# ## Predict
#
# In every step, one of four ranks arrives late. Make your predictions for a rank that arrives on time:

# %%
# solution
wait_guess, exchange_guess = 50, 20
# end solution
proflab.predict(
    "07.a", wait_guess, unit="%", what="the share of collective time spent waiting"
)
proflab.predict(
    "07.b", exchange_guess, unit="ms", what="a ResNet-50's gradient exchange per step"
)

# %% [markdown]
# ## Capture: one file per rank
# A *launcher* starts one process per rank and passes the rank in environment variables. In this cell, the profiler is
# *outside* the launcher, and its settings reach all processes that `torchrun` starts on this machine. The profiler
# replaces `%env{RANK}%` with the value of `RANK`, which `torchrun` sets, and `%pid%` with the process ID. The second
# run has an injected fault.
#
# > **Warning:** Don't run this on an MI300A node with ROCm 10.0. Several simultaneous `rocprofv3` processes may [reset
# > the whole node][reset] and end other users' jobs.
#
# [reset]: https://github.com/ROCm/TheRock/issues/8229

# %% language="bash"
# profile="rocprofv3 --kernel-trace --marker-trace --output-format csv"
# profile="$profile --output-file rank%env{RANK}%_pid%pid%"
# train="torchrun --standalone --nproc-per-node 4 -m cifar_train --max-steps 10 --roctx"
# rm -rf $FOLDER/healthy $FOLDER/late; filter="grep --line-buffered -v Opened"
# $profile --output-directory $FOLDER/healthy -- $train 2>&1 | $filter
# $profile --output-directory $FOLDER/late \
#     -- $train --inject-fault rank-skew 2>&1 | $filter
# ls $FOLDER/late | grep kernel_trace

# %% [markdown]
# Other launchers start ranks on several *nodes*. With these launchers, start the profiler *inside*, around each rank,
# as the [cluster guide](../docs/slurm.md#names-of-files-by-rank) shows. `%rank%` is shorter than `%env{...}%`, but it
# checks Slurm's variable first. A Slurm job script sets this variable to 0, and processes that `mpirun` starts there
# inherit it:

# %% slide="The launcher tells each process its rank through environment variables."
launchers = (
    pd.read_csv(lesson.file("launchers.csv"), comment="#")
    .fillna("")
    .set_index("launcher")
)
mpirun = launchers.loc[["mpirun in a Slurm job"]]
documented = "documented: Open MPI, Slurm"
show_table(
    mpirun, "rank inherited", "Environment variables of a rank", origin=documented
)

# %%
# 3 minutes: write a string for `--output-file` under mpirun in a Slurm job with two nodes. Each rank must write its own
# file with its rank in the name. Both nodes can use the same process IDs. The `rank` column contains the variable that
# identifies the rank.
q = exercise("07.1", launchers.loc["mpirun in a Slurm job"])
# solution
answer = "rank%env{OMPI_COMM_WORLD_RANK}%_pid%pid%"
# end solution
q.check(answer)

# %% [markdown]
# ## A first look and a trap
#
# Look at rank 0 alone. Which kernel takes the most time?

# %% slide="One rank alone looks busy, because waiting counts as work."
runs = {
    name: steady_part(own_run(lesson.folder / name)) for name in ("healthy", "late")
}
rank0 = tidyprof.kernels(runs["late"].profile, per_device=True).query("rank == 0")
show_table(rank0, "short_name calls total_ms mean_us", "Rank 0 of the late run", rows=3)
busy = tidyprof.busy(runs["late"].profile)
show_table(busy, "rank busy_percent span_ms", "Busy time of each GPU")

# %% [markdown]
# Is the network slow, or does one GPU have too little work? Neither. While a kernel waits, its GPU counts as busy, even
# in `amd-smi` (lesson 01).
#
# ## The solution: compare all ranks
#
# Every rank runs the same collectives in the same order, so number them on each rank and compare the start times of
# each collective. A rank waits from its own start until the last rank starts. The rest is transfer. One exception: a
# rank that finishes before the last rank arrives, such as the sender of a *broadcast*, didn't wait for it.

# %% slide="The first step distorts every mean, so leave it out."
files = (lesson.folder / "late").glob("rank*kernel_trace.csv")
tables = [pd.read_csv(path).assign(rank=int(path.name[4])) for path in files]
each = pd.concat(tables, ignore_index=True)
each = each[each["Kernel_Name"].str.contains("nccl|rccl", case=False)]
each = each.rename(columns={"Start_Timestamp": "start", "End_Timestamp": "end"})
each["number"] = each.sort_values("start").groupby("rank").cumcount()
last = each.groupby("number")["start"].transform("max")
each["wait_ns"] = (last - each["start"]).where(each["end"] >= last, 0)
each["transfer_ns"] = each["end"] - each["start"] - each["wait_ns"]
sums = each.groupby("rank", as_index=False)[["wait_ns", "transfer_ns"]].sum()
origin = runs["late"].profile.origin
show_table(
    sums, "rank wait_ms transfer_ms", "The late run with its first steps", origin=origin
)

# %% [markdown]
# Why does rank 1 have a longer transfer time than the others? In the first two broadcasts, rank 1 waited for the sender
# and finished before the last rank arrived, which this rule counts as transfer. Check individual collectives before
# blaming a link.
#
# Use `tidyprof.ranks` to apply this rule to the steps after the warm-up:

# %% slide="Compare all ranks: three of them wait for one."
compared = {name: tidyprof.ranks(part.profile) for name, part in runs.items()}
show_figure(
    plots.ranks(compared["late"], title="In the late run, three ranks wait for one")
)
columns = "run rank computation_ms wait_ms transfer_ms arrived_last idle_ms"
both = pd.concat(compared, names=["run", None]).reset_index("run")
show_table(both, columns, f"Both runs, {runs['late'].steps} steps", origin=origin)

# %% [markdown]
# The fault multiplies the waiting time but not the transfer time. **Waiting, not the network, makes the RCCL kernels
# long.** The other ranks wait for the rank with the *shortest* collectives and the *least* busy GPU. This rank computes
# for as long as the others, so its GPU must receive its work later. Therefore, look at its host (lesson 03). A profiler
# makes RCCL kernels even longer because all ranks wait for the rank with the most overhead.
#
# A host can be late because its CPU cores are far from its GPU. *Binding* assigns cores to each rank. On an MI250X,
# each die is a separate GPU with its own cores. The [cluster guide](../docs/slurm.md#cores-and-gpus-of-a-rank) lists
# bindings.
#
# Even in the healthy run, one rank arrives last more often than the others, so `arrived_last` alone proves nothing.
# Measure **how late each rank is in each step**, with a healthy run (same machine and batch size) as the threshold. The
# lateness is a rank's start time minus the median start time of all ranks, averaged over the collectives in a step.


# %% slide="A rank is late only if it is later than chance allows."
def lateness_ms(profile, steps):
    each = tidyprof.collectives(profile)
    starts = each.pivot(index="number", columns="rank", values="start_ns")
    late = starts.sub(starts.median(axis=1), axis=0) / 1e6
    # One row per step
    return late.groupby(starts.index // (len(starts) // steps)).mean()


late = {name: lateness_ms(part.profile, part.steps) for name, part in runs.items()}
threshold, typical = late["healthy"].max(axis=None), late["late"].median()
verdict = (
    "**It is a straggler.**" if typical.max() > threshold else "This could be chance."
)
show_text(
    f"Healthy run: no rank is more than {threshold:.2f} ms late in any step. Late run: "
    f"rank {typical.idxmax()} is {typical.max():.2f} ms late in its median step. "
    f"{verdict}"
)

# %% [markdown]
# ## Who is the straggler on real GPUs?
#
# AMD recorded DDP training of a ResNet on CIFAR-100 with four MI300 GPUs. AMD didn't report a fault, and there is no
# healthy run. Therefore, use a stricter rule: in *each* step, the suspect must be later than any other rank in any
# step.

# %% slide="Each column is a collective, and the dot marks the rank that came last."
recorded = proflab.recording("torch-mi300-ddp-4ranks-fused")
run = tidyprof.read(recorded.path, origin=recorded.origin)
unknown = tidyprof.collectives(run)
longest = unknown.loc[unknown["wait_ns"].idxmax()]
text = f"rank {longest['rank']} waits for {longest['wait_ns'] / 1e6:.1f} ms"
figure = plots.collectives(unknown, title="Which rank waits in which collective?")
show_figure(figure, (text, tuple(longest[["number", "rank"]]), (0.4, 1.05)))

# %% [markdown]
# The brighter a cell is, the longer the rank waited. In the two *broadcasts* at the start of each step, rank 0 sends
# statistics without waiting.

# %%
# 4 minutes: the trace has three steps. The suspect is the rank with the largest median lateness. From the suspect's
# smallest lateness in any step, subtract the largest lateness of any other rank in any step, and answer in ms. If the
# result is negative, the evidence isn't sufficient. Start with `lateness_ms(run, 3)`.
q = exercise("07.2", run)
# solution
late["unknown"] = lateness_ms(run, 3)
suspect = late["unknown"].median().idxmax()
answer = late["unknown"][suspect].min() - late["unknown"].drop(columns=suspect).max(
    axis=None
)
# end solution
q.check(answer)

# %% [markdown]
# > **Tip:** If a table has no start times, the shortest total collective time is all transfer, and the excess on other
# > ranks is waiting.
#
# How long should the transfer take? In a ring of *n* ranks, each rank sends 2(*n* - 1)/*n* times the data because every
# piece travels around once to be added up and once to be distributed. AMD's published *bus bandwidth* is for four
# MI300A GPUs and large messages, so expect only the order of magnitude:

# %% slide="The message itself needs little time, so most of the collective is waiting."
table = tidyprof.ranks(run)
# Steps
sent = run.events.query("collective == 'allreduce' and rank == 0")["bytes"].sum() / 3
rate = pd.read_csv(lesson.file("bus_bandwidth.csv"), comment="#")["bus_gb_per_s"].iloc[
    0
]
transfer_ms = table["transfer_ns"].mean() / 3e6
need_ms = 2 * (4 - 1) / 4 * sent / rate / 1e6
show_text(
    f"Each step all-reduces {sent / 1e6:.0f} MB. At {rate:.0f} GB/s, this takes "
    f"{need_ms:.2f} ms. The trace shows {transfer_ms:.2f} ms of transfer."
)
columns = "rank computation_ms communication_ms wait_ms transfer_ms"
show_table(table, columns, "All three steps of AMD's run", origin=run.origin)

# %% [markdown]
# Before you profile, such an estimate shows whether the network can be the cause at all.
#
# ## Do four GPUs pay off?
#
# Is the example run, with 1,024 images per step on one GPU, faster on four GPUs? Trainers print the rate *per GPU*, and
# `batch` is the batch size per GPU:

# %% slide="Images per second and GPU tell whether more GPUs pay off."
options = f"{case.options('07')} --batch-size {{}} --max-epochs 4"
setups = [(gpus, batch) for gpus in (1, 4) for batch in (256, 1024)]
rates = [modeled(options.format(batch), gpus) for gpus, batch in setups]
scaling = pd.DataFrame(setups, columns=["gpus", "batch"])
scaling["rate_per_gpu"] = [one.images_per_second for one in rates]
origin = rates[0].origin
show_table(
    scaling.round(), "gpus batch rate_per_gpu", "Images/s per GPU", origin=origin
)

# %%
# 4 minutes: someone offers you three more GPUs. Keep 1,024 images per step so that training doesn't change. How many
# times as many images/s does the example run then process in total? Use the rows in `scaling`.
q = exercise("07.3", scaling)
# solution
total = (scaling["gpus"] * scaling["rate_per_gpu"]).set_axis(setups)
answer = total[4, 256] / total[1, 1024]
# end solution
q.check(answer)

# %% [markdown]
# The host launches the same kernels for 256 images as for 1,024 (lesson 04). Therefore, **fill each GPU first, then add
# GPUs**.
#
# - With 1,024 images per GPU, the rate per GPU hardly drops, but 4,096 images per step change how the network trains.
# - With 256 images per GPU, four GPUs seem to scale well, but only because a single GPU with 256 often waits for its
#   host.
#
# ## Decide
#
# By the strict rule, rank 3 in AMD's run is a straggler. `tidyprof triage` is more careful and names none because rank
# 3 does no more work than the others, and half of the traced step may be profiler overhead.

# %%
first, slow = table.loc[0], table.loc[table["arrived_last"].idxmax()]
proflab.reveal("07.a", 100 * first["wait_ns"] / first["communication_ns"], run)
proflab.reveal("07.b", transfer_ms, run)

# %% slide="On AMD's four GPUs, one rank arrives last in nearly all collectives."
# Milliseconds per step
spent, moved = first[["communication_ns", "transfer_ns"]] / 3e6
gain = 4 * scaling["rate_per_gpu"][2] / scaling["rate_per_gpu"][1]
lesson.conclude(
    f"On four MI300 GPUs that AMD recorded, rank {slow['rank']} arrives last in "
    f"{slow['arrived_last']} of {slow['collectives']} collectives. Rank 0 spends "
    f"{spent:.1f} ms per step in them, of which {moved:.1f} ms are transfer. In "
    f"modeled runs, four GPUs with 256 images each process {gain:.2f} times the "
    "images/s of one GPU with 1,024.",
    rules_out="The network in AMD's run, because ranks wait. More GPUs in the modeled "
    "runs.",
    because="Each limit needs its own evidence, and a change isn't a fix until you "
    "prove it.",
    next="08",
    origin=f"recorded: AMD Instinct MI300 series, amd/HPCTrainingExamples; {origin}",
)

# %% [markdown]
# ## Three takeaways
#
# - A long collective may consist mostly of waiting, so compare all ranks.
# - A rank is a straggler if it is later than any rank in a healthy run, or later in each step than any other rank in
#   any step.
# - Fill each GPU before you add GPUs, and estimate the transfer before blaming the network.

# %% [markdown] tags=["given"]
# ## What this view can't show
#
# - This view shows which rank is late but not why. Look at that rank's host.
# - This view assumes a single process group. If the network is split across GPUs, number the collectives per group
#   *and* rank.
# - Clocks may differ between nodes (see `table.attrs["clocks"]`). The first snippet below corrects them.
#
# For a thousand ranks, `tidyprof.parallel.map_profiles` reduces each file [while reading
# it](../packages/tidyprof/docs/README.md).

# %% [markdown] tags=["given"]
# ## Known issues
#
# If all ranks write to one file, or if two environment variables hide the GPUs, see [*Several
# ranks*](../docs/known-issues.md#several-ranks).

# %% [markdown]
# ## At work, without this course
#
# Show which rank waits for which in any job whose ranks write `torch.profiler` traces:
#
# {snippet 07_who_waits.py}
#
# Run `rocprofv3` around each rank with this Slurm script. To record traces for `07_who_waits.py`, use the code block
# from lesson 14 and set `program=(env STEP_TIMER=trace python train.py)`, `tool=()` and
# `expected='trace_rank*.json.gz'`.
#
# {snippet 07_ranks_job.sh}
#
# This script is for PBS and PALS, with values for Aurora's Intel GPUs.
#
# {snippet 07_ranks_job_pbs.sh}

# %% [markdown]
# Next question: can you tell the causes apart without a hint, and prove a fix?
