# %% [markdown]
# # What changes with many GPUs?
#
# Four GPUs should do four times the work. They do less, and the network is the first suspect. But often they just
# wait for each other. You find out who waits, for whom, and how long, and why one rank's profile can't tell you.
#
# After this lesson you can
#
# - record each rank into a file of its own, and tell waiting from transfer in five lines of pandas;
# - name the rank that the others wait for, or say that you can't tell;
# - say what a transfer should cost, and whether more GPUs pay.
#
# You need lessons 00, 02 and 04. Commands hold from ROCm 7.0 to {newest rocm}; the text says what differs
# elsewhere. Without four GPUs the course replays files of a modeled MI300X.

# %%
import re

import pandas as pd
import proflab
import tidyprof
from proflab import case, exercise, show_figure, show_table, show_text
from proflab.parts.clinic_runs import modeled
from proflab.parts.steady_part import own_run, steady_part
from tidyprof import plots

lesson = proflab.start("07")

# %%
lesson.recall()

# %% [markdown]
# ## The case so far
#
# Now four GPUs share a step of 1,024 images: each takes a batch of 256, with two loader processes.

# %%
lesson.findings()

# %% [markdown]
# ## The picture to keep in mind
#
# In `DistributedDataParallel` (DDP) each process, a *rank*, has its own GPU, a copy of the model, and its own
# images. After the backward pass all copies need the same gradients, so these are averaged over the ranks: an
# *all-reduce* of the library RCCL adds them up, and DDP divides by the number of ranks.
#
# {drawing 07_all_reduce}
#
# A *bucket* is a group of gradients that travel together: DDP fills one up to a size (`bucket_cap_mb`), beginning with
# the last layers, whose gradients are ready first, so that the exchange can hide behind the rest of the backward pass.
# A rank that others wait for is a *straggler*. A *collective* is an operation of all ranks, such as the all-reduce. Its
# kernel starts when its *own* rank gets there, and ends after the *last* rank has come and the data is exchanged. So
# its length is waiting plus *transfer*. Communication is *exposed* where no computation runs beside it.
#
# ## DDP, step by step
#
# The `assert` does by hand what DDP does: an all-reduce, divided by the ranks.

# %%
# %%writefile {lesson.folder}/ranks.py
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")  # 1. meet the others; on AMD's GPUs "nccl", which is RCCL there
rank, size = dist.get_rank(), dist.get_world_size()
print(f"rank {rank} is here\n", end="", flush=True)
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = DataLoader(data, 16, sampler=DistributedSampler(data))  # 2. other samples for each rank
model = torch.nn.Linear(8, 1)  # on a GPU: torch.cuda.set_device(local_rank), then .cuda()
parallel = torch.nn.parallel.DistributedDataParallel(model)  # 3. rank 0's weights for all
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * size)  # 4. a larger step, see below
for samples, wanted in loader:
    (own,) = torch.autograd.grad(mse_loss(model(samples), wanted), model.weight)
    loss = mse_loss(parallel(samples), wanted)
    loss.backward()  # 5. all-reduces, while the backward pass goes on
    dist.all_reduce(own)
    assert torch.allclose(own / size, model.weight.grad, atol=1e-6)
    optimizer.step()
    optimizer.zero_grad()
print(f"rank {rank}: {len(loader)} steps of {16 * size} samples, gradients as DDP's\n", end="")
dist.destroy_process_group()

# %% language="bash"
# echo "Two processes import PyTorch first: seconds, or half a minute on a busy machine."
# OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 $FOLDER/ranks.py 2>&1

# %% [markdown]
# Before each epoch call `loader.sampler.set_epoch(epoch)`: without it a rank sees the same samples in the same order
# every time. An epoch has fewer steps now. So the *learning rate* is usually multiplied by the number of ranks. Compare
# the loss *by epoch*.
#
# ## Predict
#
# One of four ranks comes late in every step. Guess, for a rank that is on time:

# %%
# solution
wait_guess, exchange_guess = 50, 20
# end solution
proflab.predict(
    "07.a", wait_guess, unit="%", what="the share of its time in collectives that is waiting"
)
proflab.predict(
    "07.b", exchange_guess, unit="ms", what="the exchange of all gradients of a ResNet-50, per step"
)

# %% [markdown]
# ## Capture: one file per rank
#
# A *launcher* starts one process per rank, and tells each who it is by environment variables. Here the tool stands
# *outside* the launcher: its settings pass to the processes that `torchrun` starts on the same machine. `%env{RANK}%`
# becomes the value of the variable `RANK`, which `torchrun` sets in each process; `%pid%` is the process number. Both
# runs do the same work; the second has a fault. **Not on a node of MI300A with ROCm 10.0**: several `rocprofv3` at once
# may [reset the whole node][reset], with the jobs of others.
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
# Other launchers start the ranks of several machines, called *nodes*, and there the tool stands *inside*, around each
# rank, as [the guide to clusters](../docs/slurm.md#names-of-files-by-rank) says. `%rank%` is shorter than `%env{...}%`,
# but asks Slurm's variable first. A Slurm job's script has that one, with the value 0, and what `mpirun` starts there
# inherits it:

# %%
launchers = pd.read_csv(lesson.file("launchers.csv"), comment="#").fillna("").set_index("launcher")
mpirun, documented = launchers.loc[["mpirun in a Slurm job"]], "documented: Open MPI, Slurm"
show_table(mpirun, "rank inherited", "What a rank finds in its environment", origin=documented)

# %%
# 3 minutes: a text for `--output-file` under mpirun in a Slurm job of two nodes. Each rank gets its own file, whose
# name tells its rank; the same process number may occur on both nodes. `rank` names the variable that differs.
q = exercise("07.1", launchers.loc["mpirun in a Slurm job"])
# solution
answer = "rank%env{OMPI_COMM_WORLD_RANK}%_pid%pid%"
# end solution
q.check(answer)

# %% [markdown]
# ## First look, and the trap
#
# Open the file of rank 0 alone, and ask which kernel takes the time:

# %%
runs = {name: steady_part(own_run(lesson.folder / name)) for name in ("healthy", "late")}
rank0 = tidyprof.kernels(runs["late"].profile, per_device=True).query("rank == 0")
rank0 = rank0.assign(percent=100 * rank0["total_ns"] / rank0["total_ns"].sum())
show_table(rank0, "short_name calls total_ms mean_us percent", "The late run by rank 0", rows=3)
busy = tidyprof.busy(runs["late"].profile)
show_table(busy, "rank busy_percent span_ms", "How busy is each GPU?")

# %% [markdown]
# So the network is slow, and one GPU is lazy? Both are wrong. A waiting kernel occupies its GPU and counts as busy,
# here and in `amd-smi` (lesson 01).
#
# ## The repair: all ranks side by side
#
# Every rank runs the same collectives in the same order. So number them on each rank, and compare the starts of those
# with the same number: a rank waits from its own start to the last one. The rest is the transfer. A rank that has ended
# before the last one came did not wait for it: after a *broadcast* the sender may leave at once.

# %%
ranks = [
    pd.read_csv(path).assign(rank=int(re.match(r"rank(\d+)", path.name)[1]))
    for path in (lesson.folder / "late").glob("rank*kernel_trace.csv")
]
each = (
    pd.concat(ranks)
    .rename(columns={"Start_Timestamp": "start", "End_Timestamp": "end"})
    .sort_values("start")
)
each = each[each["Kernel_Name"].str.contains("nccl|rccl", case=False)]
each["number"] = each.groupby("rank").cumcount()
last = each.groupby("number")["start"].transform("max")
each["wait"] = (last - each["start"]).where(each["end"] >= last, 0)
each["transfer"] = each["end"] - each["start"] - each["wait"]
by_hand = each.groupby("rank")[["wait", "transfer"]].sum()

theirs = tidyprof.ranks(own_run(lesson.folder / "late"))
assert (by_hand.to_numpy() == theirs[["wait_ns", "transfer_ns"]].to_numpy()).all()
show_table(theirs, "rank wait_ms transfer_ms arrived_last", "The late run with its first steps")

# %% [markdown]
# Why has rank 1 more transfer than the others? In the first two broadcasts it waited for the sender, and had left
# before the last rank came: no wait by this rule, so it counts as transfer. Look at single collectives before you blame
# a link.
#
# `tidyprof.ranks` does the same, and more. From here on we use it, on the steps after the warm-up:

# %%
compared = {name: tidyprof.ranks(part.profile) for name, part in runs.items()}
show_figure(plots.ranks(compared["late"], title="The late run: three ranks wait for one"))
columns = "rank computation_ms wait_ms transfer_ms arrived_last idle_ms"
both = pd.concat(compared, names=["run", None]).reset_index("run")
caption, origin = f"Both runs, {runs['late'].steps} steps", runs["late"].profile.origin
show_table(both, f"run {columns}", caption, origin=origin)
sums = {name: table[["wait_ns", "transfer_ns"]].sum() for name, table in compared.items()}
wait, transfer = sums["late"] / sums["healthy"]
show_text(f"The planted fault multiplies waiting by {wait:.1f}, the transfer by {transfer:.2f}.")

# %% [markdown]
# **Here waiting makes RCCL's kernels long, not the network.** The rank with the *shortest* collectives and the *least*
# busy GPU is the one that all wait for.
#
# A wait can pass beside computation, so it may be longer than what is exposed in the figure. And a tracer makes these
# kernels longer still: what it costs a rank differs, and all wait for the slowest.
#
# A rank may also be late with cores far from its GPU; on an MI250X each die is a rank's GPU and has cores of its own.
# [The page on Slurm](../docs/slurm.md#cores-and-gpus-of-a-rank) has the bindings, and one to try.
#
# The healthy run waits too, and one rank comes last more often than the others: no two hosts are equally fast. So
# `arrived_last` proves nothing. Measure **by how much, in each step**, and take what a healthy run shows as the threshold.
# A rank is late in a step by the mean, over the step's collectives, of its start minus the median start.


# %%
def lateness_ms(profile, steps):
    each = tidyprof.collectives(profile, per_rank=True)
    starts = each.pivot(index="number", columns="rank", values="start_ns")
    late = starts.sub(starts.median(axis=1), axis=0) / 1e6
    return late.groupby(starts.index // (len(starts) // steps)).mean()  # a row per step


late = {name: lateness_ms(part.profile, part.steps) for name, part in runs.items()}
floor, typical = late["healthy"].max(axis=None), late["late"].median()
found = "**a straggler**" if typical.max() > floor else "can’t tell it from chance"
show_text(
    f"A rank of the healthy run starts a collective {floor:.2f} ms late at worst: the threshold. "
    f"In the late run rank {typical.idxmax()} starts {typical.max():.2f} ms late: {found}."
)

# %% [markdown]
# Take it on the same machine, with the same batch.
#
# ## Who is it? Real GPUs
#
# AMD recorded a ResNet that four MI300 train with DDP on CIFAR-100, in one file for all ranks, and did not say that it
# has a fault. It has no healthy twin, so ask more: the suspect has to be later in *each* step than any other
# rank in any.

# %%
recorded = proflab.recording("torch-mi300-ddp-4ranks-fused")
run = tidyprof.read(recorded.path, origin=recorded.origin)
unknown = tidyprof.collectives(run, per_rank=True)
show_table(unknown, "rank name start_ns duration_us", "All collectives", rows=4, origin=run.origin)

# %%
# 4 minutes: the recording has three steps. By how many ms is its latest rank, in its least late step, later than any
# other rank in its worst one? A negative number means that you can't tell. Begin with `lateness_ms(run, 3)`.
q = exercise("07.2", run)
# solution
late["unknown"] = lateness_ms(run, 3)
suspect = late["unknown"].median().idxmax()
answer = late["unknown"][suspect].min() - late["unknown"].drop(columns=suspect).max(axis=None)
# end solution
q.check(answer)

# %% [markdown]
# In the heat map each column is a collective, each row a rank. In a bright cell the rank waited long; the dot marks the
# rank that came last. The first two collectives of a step are *broadcasts*: rank 0 sends numbers of its batch
# normalizations to all, and need not wait for them. Where you have only a table of kernels for each rank, without any
# start, the shortest total of collectives is all transfer, and what the others have beyond it is waiting.

# %%
show_figure(plots.collectives(unknown, title="Who waits, and in which collective"))

# %% [markdown]
# And what should the transfer cost? The trace states the bytes of each collective. In a ring of *n* ranks each sends
# 2(*n* - 1)/*n* times the data over its link: every piece travels once round to be added up, and once to tell all.
# AMD has published that rate, the *bus bandwidth*, of four MI300A, for large messages; expect the order of magnitude.

# %%
table = tidyprof.ranks(run)
sent = run.events.query("collective == 'allreduce' and rank == 0")["bytes"].sum() / 3  # steps
rate = pd.read_csv(lesson.file("bus_bandwidth.csv"), comment="#")["bus_gb_per_s"].iloc[0]
transfer_ms = table["transfer_ns"].mean() / 3 / 1e6
first = table[table["rank"] == 0].iloc[0]
show_text(
    f"A step all-reduces {sent / 1e6:.0f} MB, four bytes for each parameter. At {rate:.0f} GB/s "
    f"that is {2 * (4 - 1) / 4 * sent / rate / 1e6:.2f} ms; recorded are {transfer_ms:.2f} ms. "
    f"Rank 0 spends {first['communication_ns'] / 3 / 1e6:.1f} ms of a step in collectives."
)

# %% [markdown]
# Such a sum, made before you profile, tells whether the network can be the cause at all.
#
# ## Do four GPUs pay?
#
# Is the case, a step of 1,024 images on one GPU, faster on four? Trainers print their rate *for each GPU*. The model
# plays both batches; a *batch* is that of each GPU:

# %%
played = {
    (gpus, batch): modeled(f"{case.options('07')} --batch-size {batch} --max-epochs 4", gpus)
    for gpus in (1, 4)
    for batch in (256, 1024)
}
scaling = pd.DataFrame(
    [(*which, one.images_per_second) for which, one in played.items()],
    columns=["gpus", "batch", "rate_per_gpu"],
)
origin = played[1, 1024].origin
show_table(scaling.round(), "gpus batch rate_per_gpu", "Images/s for each GPU", origin=origin)

# %%
# 4 minutes: somebody offers three more GPUs. How many times as many images per second does the case then get, if a step
# keeps its images, so that it stays the same training? `scaling` has a row for each run.
q = exercise("07.3", scaling)
# solution
rates = (scaling["gpus"] * scaling["rate_per_gpu"]).set_axis(played)
answer = rates[4, 256] / rates[1, 1024]
# end solution
q.check(answer)

# %%
total = {which: which[0] * one.images_per_second for which, one in played.items()}
show_text(
    f"Four against one, with 1,024 images on each: {total[4, 1024] / total[1, 1024]:.1f} times as "
    f"fast; with 256: {total[4, 256] / total[1, 256]:.1f} times."
)

# %% [markdown]
# The host launches the same kernels for a batch of 256 and of 1,024 (lesson 04). So **fill each GPU first, then add
# GPUs**. With 1,024 on each, a step of 4,096 images is another training. With 256 the gain looks good only because a
# single GPU with 256 often waits for its host.
#
# ## Decide
#
# Why is the straggler late? Compare its computation with that of the others. A late host may run on the wrong cores,
# far from its GPU or shared with another rank. *Binding* gives each rank its own: see [the guide to
# clusters](../docs/slurm.md#cores-and-gpus-of-a-rank). Of AMD's run, `tidyprof triage` names no
# straggler: rank 3 is last each time, but does no more work than the others, and half of the traced step may be the
# profiler's overhead.


# %%
def decide(late, table, threshold=None):
    suspect, computation = late.median().idxmax(), table.set_index("rank")["computation_ns"]
    if threshold is None:  # no healthy twin
        threshold = late.drop(columns=suspect).max(axis=None)
    if late[suspect].min() <= threshold:
        return "no straggler that could be told from chance."
    slower = computation[suspect] > 1.1 * computation.drop(suspect).median()
    why = "computes longer: its kernels (05)" if slower else "gets its work later: its host (03)"
    return f"rank {suspect}, in each step {late[suspect].min():.2f} ms late or more; its GPU {why}."


show_text("The late run: " + decide(late["late"], compared["late"], floor))
show_text("AMD's run, without a twin: " + decide(lateness_ms(run, 3), table))
proflab.reveal("07.a", 100 * first["wait_ns"] / (first["wait_ns"] + first["transfer_ns"]), run)
proflab.reveal("07.b", transfer_ms, run)

# %% [markdown]
# You have met four kinds of limit: data, launches, kernels, a late rank. Can you tell them apart when nobody says
# which?

# %%
slow = table.loc[table["arrived_last"].idxmax()]
spent, moved = first[["communication_ns", "transfer_ns"]] / 3e6  # ms a step
lesson.conclude(
    f"On four MI300 that AMD recorded rank {slow['rank']} comes last in {slow['arrived_last']} of "
    f"{slow['collectives']} collectives; of rank 0's {spent:.1f} ms a step in them {moved:.1f} are "
    "transfer. In the model four GPUs with 256 images each make "
    f"{total[4, 256] / total[1, 1024]:.2f} times the images a second of one with 1,024.",
    rules_out="In AMD's run the network, since ranks wait. In the model more GPUs for this step.",
    because="Every limit has its sign, and a change is no cure before it is proven.",
    next="08",
    origin=f"recorded: AMD Instinct MI300 series, amd/HPCTrainingExamples; {origin}",
)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# It says who is late, not why: look at that rank's host. It takes all ranks to be in one group; where the model itself
# is split over GPUs, there are several: number the collectives by group *and* rank. It trusts the clocks: between nodes
# they may disagree, so read `table.attrs["clocks"]` (the snippet below puts them right by the ends of the all-reduces).
#
# Of a thousand ranks `tidyprof.parallel.map_profiles` reduces each file [where it is read](../packages/tidyprof/docs/README.md).

# %% [markdown] tags=["given"]
# ## Known issues
#
# All ranks in one file, a tool around the launcher, no GPU because of two variables, a node of MI300A that resets: the
# cures, with sources, are in the part [*Several ranks* of the known issues](../docs/known-issues.md#several-ranks).

# %% [markdown]
# ## At work, without this course
#
# Who waits for whom in any job whose ranks write traces of torch.profiler:
#
# {snippet 07_who_waits.py}
#
# Such traces come from a job. This script is for Slurm. As it stands `rocprofv3` is around
# each rank, for the lines of pandas above. For `07_who_waits.py` let the program write its own traces: with the block
# of lesson 14 set `program=(env STEP_TIMER=trace python train.py)`, `tool=()` and `expected='trace_rank*.json.gz'`.
#
# {snippet 07_ranks_job.sh}
#
# And this one is for PBS with the launcher PALS. It is set up for Aurora, whose cards are Intel's, and has no tool
# around the ranks: the program writes its own traces. Cores and ranks of a node are values in it.
#
# {snippet 07_ranks_job_pbs.sh}

# %% [markdown]
# Next question: can you tell the causes apart blind, and prove a cure?
