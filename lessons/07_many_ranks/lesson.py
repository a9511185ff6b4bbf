# %% [markdown]
# # What changes with many GPUs?
#
# Four GPUs should do four times the work, but they do less. The network is the first suspect. Often, though, the GPUs
# wait for each other. Find out who waits for whom, and how long.
#
# After this lesson, you can:
#
# - record each rank into its own file, and separate waiting from transfer;
# - name the rank that the others wait for, or show that the evidence isn't sufficient;
# - estimate what a transfer should cost, and decide whether more GPUs pay off.
#
# **Before you start:** complete lessons 00, 02 and 04. The commands work with ROCm 7.0 to {newest rocm}. Without four
# GPUs, the course replays files of a modeled MI300X.

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
# Now four GPUs share a step of 1,024 images, 256 each. Each GPU has two loader processes.

# %%
lesson.findings()

# %% [markdown]
# ## The picture to keep in mind
#
# In `DistributedDataParallel` (DDP), each process has its own GPU, a copy of the model and its own images. Such a
# process is a *rank*. After the backward pass, all copies need the same gradients. So RCCL, AMD's communication
# library, adds up the gradients of all ranks, and DDP divides by the number of ranks.
#
# {drawing 07_all_reduce}
#
# - A *collective* is an operation of all ranks. The *all-reduce* adds up data of all ranks.
# - A *bucket* is a group of gradients that travel together. The last layers come first, so the exchange overlaps with
#   the backward pass.
# - A collective's kernel starts when *its own* rank arrives. It ends after the *last* rank has arrived and the data
#   has been exchanged. So its duration is *waiting* plus *transfer*.
# - A *straggler* is a rank that the others wait for.
# - Communication is *exposed* while no computation runs.
#
# ## DDP, step by step
#
# This program computes each gradient twice: with DDP, and with a manual all-reduce.

# %%
# %%writefile {lesson.folder}/ranks.py
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")  # 1. meet the other ranks; "nccl" on GPUs, which is RCCL on AMD's
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = DataLoader(data, 16, sampler=DistributedSampler(data))  # 2. different samples per rank
model = torch.nn.Linear(8, 1)  # on a GPU: torch.cuda.set_device(local_rank), then .cuda()
parallel = torch.nn.parallel.DistributedDataParallel(model)  # 3. all ranks get rank 0's weights
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * size)  # 4. a larger learning rate
for samples, wanted in loader:
    (own,) = torch.autograd.grad(mse_loss(model(samples), wanted), model.weight)
    mse_loss(parallel(samples), wanted).backward()  # 5. all-reduces during the backward pass
    dist.all_reduce(own)
    print(
        f"rank {rank} {(own / size)[0, :2]} manually, {model.weight.grad[0, :2]} by DDP", flush=True
    )
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()

# %% language="bash"
# echo "Two processes import PyTorch first, which takes half a minute on a busy machine."
# OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 $FOLDER/ranks.py 2>&1

# %% [markdown]
# > **Note:** Call `loader.sampler.set_epoch(epoch)` before each epoch, or every epoch has the same order. An epoch
# > now has fewer steps, so the *learning rate* is usually multiplied by the number of ranks. Compare the loss *per
# > epoch*.
#
# ## Predict
#
# One of four ranks arrives late in every step. Make your predictions for a rank that is on time:

# %%
# solution
wait_guess, exchange_guess = 50, 20
# end solution
proflab.predict("07.a", wait_guess, unit="%", what="the share of collective time spent waiting")
proflab.predict("07.b", exchange_guess, unit="ms", what="a ResNet-50's gradient exchange per step")

# %% [markdown]
# ## Capture: one file per rank
# A *launcher* starts one process per rank and passes the rank in environment variables. Here the profiler is
# *outside* the launcher, and its settings reach all processes that `torchrun` starts on this machine. The tool
# replaces `%env{RANK}%` by the variable `RANK`, which `torchrun` sets, and `%pid%` by the process ID. The second run
# has a fault.
#
# > **Warning:** Don't run this on an MI300A node with ROCm 10.0. Several `rocprofv3` at the same time may [reset the
# > whole node][reset] and end other people's jobs.
#
# [reset]: https://github.com/ROCm/TheRock/issues/8229

# %% language="bash"
# profile="rocprofv3 --kernel-trace --marker-trace --output-format csv"
# profile="$profile --output-file rank%env{RANK}%_pid%pid%"
# train="torchrun --standalone --nproc-per-node 4 -m cifar_train --max-steps 10 --roctx"
# rm -rf $FOLDER/healthy $FOLDER/late; filter="grep --line-buffered -v Opened"
# $profile --output-directory $FOLDER/healthy -- $train 2>&1 | $filter
# $profile --output-directory $FOLDER/late -- $train --inject-fault rank-skew 2>&1 | $filter
# ls $FOLDER/late | grep kernel_trace

# %% [markdown]
# Other launchers start ranks on several *nodes*. There, put the tool *inside*, around each rank, as [the guide to
# clusters](../docs/slurm.md#names-of-files-by-rank) shows. `%rank%` is shorter than `%env{...}%`, but it checks
# Slurm's variable first. The script of a Slurm job sets it to 0, and processes that `mpirun` starts there inherit it:

# %%
launchers = pd.read_csv(lesson.file("launchers.csv"), comment="#").fillna("").set_index("launcher")
mpirun, documented = launchers.loc[["mpirun in a Slurm job"]], "documented: Open MPI, Slurm"
show_table(mpirun, "rank inherited", "The environment of a rank", origin=documented)

# %%
# 3 minutes: write a string for `--output-file` under mpirun in a Slurm job of two nodes. Each rank must get its own file
# with its rank in the name. Process IDs can repeat on the other node. `rank` is the variable that identifies the rank.
q = exercise("07.1", launchers.loc["mpirun in a Slurm job"])
# solution
answer = "rank%env{OMPI_COMM_WORLD_RANK}%_pid%pid%"
# end solution
q.check(answer)

# %% [markdown]
# ## First look, and the trap
#
# Look at rank 0 alone. Which kernel takes the time?

# %%
runs = {name: steady_part(own_run(lesson.folder / name)) for name in ("healthy", "late")}
rank0 = tidyprof.kernels(runs["late"].profile, per_device=True).query("rank == 0")
show_table(rank0, "short_name calls total_ms mean_us", "The late run on rank 0", rows=3)
busy = tidyprof.busy(runs["late"].profile)
show_table(busy, "rank busy_percent span_ms", "How busy is each GPU?")

# %% [markdown]
# Is the network slow, and one GPU lazy? Neither. A kernel that waits occupies its GPU and counts as busy, here and in
# `amd-smi` (lesson 01).
#
# ## The solution: all ranks side by side
#
# Every rank runs the same collectives in the same order. So number them on each rank, and compare the starts of each
# number. A rank waits from its own start until the last rank starts. The rest is transfer. One exception: a rank that
# leaves before the last one arrives, such as the sender of a *broadcast*, didn't wait for it.

# %%
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
show_table(sums, "rank wait_ms transfer_ms", "The late run, first steps included", origin=origin)

# %% [markdown]
# Why does rank 1 have more transfer than the others? In the first two broadcasts, it waited for the sender and left
# before the last rank arrived, which this rule counts as transfer. Check single collectives before you blame a link.
#
# `tidyprof.ranks` applies the same rule. Use it on the steps after the warm-up:

# %%
compared = {name: tidyprof.ranks(part.profile) for name, part in runs.items()}
show_figure(plots.ranks(compared["late"], title="The late run: three ranks wait for one"))
columns = "run rank computation_ms wait_ms transfer_ms arrived_last idle_ms"
both = pd.concat(compared, names=["run", None]).reset_index("run")
show_table(both, columns, f"Both runs, {runs['late'].steps} steps", origin=origin)

# %% [markdown]
# The fault multiplies the waiting, but not the transfer. **Waiting makes RCCL's kernels long, not the network.** All
# others wait for the rank with the *shortest* collectives and the *least* busy GPU. It computes as long as they do,
# so its GPU gets the work later: look at its host (lesson 03). A profiler lengthens these kernels further, because
# all ranks wait for the rank with the most overhead.
#
# A host can be late because its rank runs on CPU cores far from its GPU. *Binding* assigns cores to each rank; on an
# MI250X, each die is a separate GPU with its own cores. [The guide to
# clusters](../docs/slurm.md#cores-and-gpus-of-a-rank) lists bindings, and one to try.
#
# Even in the healthy run, one rank arrives last more often than the others, so `arrived_last` proves nothing. Measure
# **by how much a rank is late in each step**, with the healthy run as the threshold. Lateness is the rank's start
# minus the median start of all ranks, averaged over the step's collectives.


# %%
def lateness_ms(profile, steps):
    each = tidyprof.collectives(profile, per_rank=True)
    starts = each.pivot(index="number", columns="rank", values="start_ns")
    late = starts.sub(starts.median(axis=1), axis=0) / 1e6
    return late.groupby(starts.index // (len(starts) // steps)).mean()  # one row per step


late = {name: lateness_ms(part.profile, part.steps) for name, part in runs.items()}
threshold, typical = late["healthy"].max(axis=None), late["late"].median()
verdict = "**It is a straggler.**" if typical.max() > threshold else "This can be chance."
show_text(
    f"Healthy run: no rank is more than {threshold:.2f} ms late in a step. Late run: rank "
    f"{typical.idxmax()} is {typical.max():.2f} ms late in its median step. {verdict}"
)

# %% [markdown]
# Use the same machine and batch size.
#
# ## Who is the straggler? Real GPUs
#
# AMD recorded a ResNet that four MI300 GPUs train with DDP on CIFAR-100. AMD didn't report a fault, and there is no
# healthy run to compare with. So use a stricter rule: the suspect must be later in *each* of its steps than any other
# rank in any step.

# %%
recorded = proflab.recording("torch-mi300-ddp-4ranks-fused")
run = tidyprof.read(recorded.path, origin=recorded.origin)
unknown = tidyprof.collectives(run, per_rank=True)
show_figure(plots.collectives(unknown, title="Which rank waits in which collective?"))

# %% [markdown]
# Each row is a rank, and each column is a collective. The brighter a cell, the longer the rank waited. The dot marks
# the rank that arrived last. Each step starts with two *broadcasts*: rank 0 sends statistics and doesn't need to
# wait.

# %%
# 4 minutes: the trace has three steps. Compute a number in ms: the suspect's smallest lateness in a step, minus the
# largest lateness of any other rank in any step. A negative number means that the evidence isn't sufficient. The suspect
# is the rank with the largest median lateness. Start with `lateness_ms(run, 3)`.
q = exercise("07.2", run)
# solution
late["unknown"] = lateness_ms(run, 3)
suspect = late["unknown"].median().idxmax()
answer = late["unknown"][suspect].min() - late["unknown"].drop(columns=suspect).max(axis=None)
# end solution
q.check(answer)

# %% [markdown]
# > **Tip:** If your tables of kernels have no starts, compare the totals of collectives. The shortest total is all
# > transfer, and the excess of the other ranks is waiting.
#
# What should the transfer cost? In a ring of *n* ranks, each rank sends 2(*n* - 1)/*n* times the data: every piece
# travels around once to be added up and once to be distributed. AMD's published *bus bandwidth* is for four MI300A
# and large messages, so expect only the order of magnitude:

# %%
table = tidyprof.ranks(run)
sent = run.events.query("collective == 'allreduce' and rank == 0")["bytes"].sum() / 3  # steps
rate = pd.read_csv(lesson.file("bus_bandwidth.csv"), comment="#")["bus_gb_per_s"].iloc[0]
transfer_ms = table["transfer_ns"].mean() / 3e6
need_ms = 2 * (4 - 1) / 4 * sent / rate / 1e6
show_text(
    f"Each step all-reduces {sent / 1e6:.0f} MB. At {rate:.0f} GB/s, that takes {need_ms:.2f} ms. "
    f"The trace shows {transfer_ms:.2f} ms of transfer."
)
columns = "rank computation_ms communication_ms wait_ms transfer_ms"
show_table(table, columns, "AMD's run: all three steps", origin=run.origin)

# %% [markdown]
# Such an estimate shows, before you profile, whether the network can be the cause at all. Again, the straggler
# computes no longer than the others.
#
# ## Do four GPUs pay off?
#
# Does the example run, with 1,024 images per step on one GPU, get faster on four? Trainers print their rate *per
# GPU*, and `batch` is the batch of each GPU:

# %%
options = f"{case.options('07')} --batch-size {{}} --max-epochs 4"
setups = [(gpus, batch) for gpus in (1, 4) for batch in (256, 1024)]
rates = [modeled(options.format(batch), gpus) for gpus, batch in setups]
scaling = pd.DataFrame(setups, columns=["gpus", "batch"])
scaling["rate_per_gpu"] = [one.images_per_second for one in rates]
origin = rates[0].origin
show_table(scaling.round(), "gpus batch rate_per_gpu", "Images/s of each GPU", origin=origin)

# %%
# 4 minutes: someone offers you three more GPUs. How many times as many images/s does the example run then process in
# total, if a step keeps its 1,024 images so that the training stays the same? Use the rows of `scaling`.
q = exercise("07.3", scaling)
# solution
total = (scaling["gpus"] * scaling["rate_per_gpu"]).set_axis(setups)
answer = total[4, 256] / total[1, 1024]
# end solution
q.check(answer)

# %% [markdown]
# The host launches the same kernels for a batch of 256 and a batch of 1,024 (lesson 04). So **fill each GPU first,
# then add GPUs**.
#
# - With 1,024 images on each GPU, the rate per GPU hardly drops, but 4,096 images per step change the training.
# - With 256, four GPUs seem to scale well, but only because a single GPU with 256 often waits for its host.
#
# ## Decide
#
# By the rule above, AMD's rank 3 is a straggler. `tidyprof triage` is more careful and names none: rank 3 does no
# more work than the others, and half of the traced step may be profiler overhead.

# %%
first, slow = table.loc[0], table.loc[table["arrived_last"].idxmax()]
proflab.reveal("07.a", 100 * first["wait_ns"] / first["communication_ns"], run)
proflab.reveal("07.b", transfer_ms, run)

# %% [markdown]
# You have now met four limits: data, launches, kernels and a late rank. Can you tell them apart without a hint?

# %%
spent, moved = first[["communication_ns", "transfer_ns"]] / 3e6  # ms per step
gain = 4 * scaling["rate_per_gpu"][2] / scaling["rate_per_gpu"][1]
lesson.conclude(
    f"On four MI300 GPUs that AMD recorded, rank {slow['rank']} arrives last in "
    f"{slow['arrived_last']} of {slow['collectives']} collectives. Rank 0 spends {spent:.1f} ms "
    f"per step in them, of which {moved:.1f} ms are transfer. In the model, four GPUs with 256 "
    f"images each process {gain:.2f} times the images/s of one GPU with 1,024.",
    rules_out="In AMD's run, the network, because ranks wait. In the model, more GPUs.",
    because="Each limit has its own evidence, and a change isn't a fix until it is proven.",
    next="08",
    origin=f"recorded: AMD Instinct MI300 series, amd/HPCTrainingExamples; {origin}",
)

# %% [markdown]
# ## Three takeaways
#
# - A long collective can be mostly waiting, so compare all ranks.
# - A rank is a straggler if it is later than any rank of a healthy run, or than any other rank in each step.
# - Fill each GPU before you add GPUs, and estimate the transfer before you blame the network.

# %% [markdown] tags=["given"]
# ## What this view can't show
#
# - It shows who is late, but not why. Look at that rank's host.
# - It assumes one group of ranks. If the model is split over GPUs, number the collectives per group *and* rank.
# - Clocks may differ between nodes, see `table.attrs["clocks"]`. The snippet below corrects them.
#
# For a thousand ranks, `tidyprof.parallel.map_profiles` reduces each file [while it reads
# it](../packages/tidyprof/docs/README.md).

# %% [markdown] tags=["given"]
# ## Known issues
#
# Do all ranks write into one file, or is no GPU found because of two variables? [*Several
# ranks*](../docs/known-issues.md#several-ranks) in the known issues has fixes with sources.

# %% [markdown]
# ## At work, without this course
#
# Show who waits for whom in any job whose ranks write `torch.profiler` traces:
#
# {snippet 07_who_waits.py}
#
# This Slurm script runs `rocprofv3` around each rank. For traces that `07_who_waits.py` can read, use the block of
# lesson 14 and set `program=(env STEP_TIMER=trace python train.py)`, `tool=()` and `expected='trace_rank*.json.gz'`.
#
# {snippet 07_ranks_job.sh}
#
# This script is for PBS with PALS, with values for Aurora's Intel GPUs. The program writes the traces.
#
# {snippet 07_ranks_job_pbs.sh}

# %% [markdown]
# Next question: can you tell the causes apart without a hint, and prove a fix?
