# %% [markdown]
# # What changes with many GPUs?
#
# Four GPUs should do four times the work. They do less, and the network is the first suspect. But often they just
# wait for each other. You find out who waits, for whom, and how long, and you see why one rank's profile can't
# tell you.
#
# After this lesson you can
#
# - record each rank into a file of its own, and find it again;
# - tell waiting from transfer in five lines of pandas, and say what a transfer should cost;
# - name the rank that the others wait for, or say that you can't tell;
# - say whether more GPUs pay, and compared with what.
#
# You need lessons 00, 02 and 04. Commands hold from ROCm 7.0 to {newest rocm}; the text says what differs
# elsewhere. Real tools need four GPUs here; without any, stand-ins answer, with files of a modelled MI300X.

# %%
import gzip
import json
import re

import pandas as pd

import proflab
import tidyprof
from proflab import case, exercise, say, show_figure, show_table
from proflab.parts.clinic_runs import modelled, plain_step
from proflab.parts.steady_part import own_run, steady_part
from tidyprof import plots

lesson = proflab.start("07")

# %% [markdown]
# ## The case so far
#
# On one GPU the case is settled as far as its kernels allow. Now four GPUs share a step of 1,024 images: each takes
# a batch of 256, with two loader processes. In every step they exchange what they have learnt.

# %%
lesson.sheet()

# %% [markdown]
# ## The picture to keep in mind
#
# In `DistributedDataParallel` (DDP) each process, a *rank*, has its own GPU, a copy of the model, and its own
# images. After the backward pass all copies need the same gradients, so these are averaged over the ranks: an
# *all-reduce* of the library RCCL adds them up, and DDP divides by the number of ranks.
#
# | time | rank 0 | rank 3 |
# | --- | --- | --- |
# | backward, last layers | computes | is late: still in its forward pass |
# | first *bucket* of gradients is full | all-reduce starts, and **waits** | computes |
# | backward, first layers | computes beside the waiting all-reduce | computes |
# | rank 3's bucket is full | **exchange** | **exchange** |
# | optimizer | same new weights | same new weights |
#
# A bucket is a group of gradients that travel together. A rank that others wait for is a *straggler*. A *collective* is
# an operation of all ranks, such as the all-reduce. Its kernel starts when its *own* rank gets there. It ends after the
# *last* rank has come and the data is exchanged. So its length is waiting plus *transfer*. Communication is *exposed*
# where no computation runs beside it.
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

BATCH, RATE = 16, 0.01
dist.init_process_group("gloo")  # 1. meet the others; on AMD's GPUs "nccl", which is RCCL there
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = DataLoader(data, BATCH, sampler=DistributedSampler(data))  # 2. other samples for each rank
model = torch.nn.Linear(8, 1)  # on a GPU: torch.cuda.set_device(local_rank), then .cuda()
parallel = torch.nn.parallel.DistributedDataParallel(model)  # 3. rank 0's weights for all
optimizer = torch.optim.SGD(model.parameters(), lr=RATE * size)  # 4. a larger step, see below
for samples, wanted in loader:
    (own,) = torch.autograd.grad(mse_loss(model(samples), wanted), model.weight)
    loss = mse_loss(parallel(samples), wanted)
    loss.backward()  # 5. all-reduces, while the backward pass goes on
    dist.all_reduce(own)
    assert torch.allclose(own / size, model.weight.grad, atol=1e-6)
    optimizer.step()
    optimizer.zero_grad()
print(f"rank {rank}: {len(loader)} steps of {BATCH * size} samples, gradients as DDP's\n", end="")
dist.destroy_process_group()

# %% language="bash"
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
# rm -rf $FOLDER/healthy $FOLDER/late
# $profile --output-directory $FOLDER/healthy -- $train 2>&1 | grep -v Opened
# $profile --output-directory $FOLDER/late -- $train --pathology rank-skew 2>&1 | grep -v Opened
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
# Open the file of rank 0 alone, as one does, and ask which kernel takes the time:

# %%
runs = {name: steady_part(own_run(lesson.folder / name)) for name in ("healthy", "late")}
each = tidyprof.kernels(runs["late"].profile, per_device=True)
rank0 = each[each["rank"] == 0]
rank0 = rank0.assign(percent=100 * rank0["total_ns"] / rank0["total_ns"].sum())
show_table(
    rank0, "short_name category calls total_ms mean_ms percent", "The late run by rank 0", rows=3
)
busy = tidyprof.busy(runs["late"].profile)
show_table(busy, "rank union_percent span_ms", "How busy is each GPU?")
rccl = rank0.loc[rank0["category"] == "collective", "percent"].sum()
say(
    f"RCCL takes {rccl:.0f} % of rank 0's kernel time. And three GPUs are busy for "
    f"{busy['union_percent'].nlargest(3).min():.0f} % of the time or more, one for "
    f"{busy['union_percent'].min():.0f} %."
)

# %% [markdown]
# So the network is slow, and three GPUs work hard while one is lazy? Both are wrong. A waiting kernel occupies its
# GPU: this table calls it busy, and so does the activity that `amd-smi` shows (lesson 01).
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
show_table(theirs, "rank wait_ms transfer_ms came_last", "The late run, its first steps included")

# %% [markdown]
# `tidyprof.ranks` does the same, and more. From here on we use it, on the steps after the warm-up:

# %%
compared = {name: tidyprof.ranks(part.profile) for name, part in runs.items()}
show_figure(plots.ranks(compared["late"], title="The late run: three ranks wait for one"))
columns = "rank computation_ms wait_ms transfer_ms came_last idle_ms"
for name, table in compared.items():
    show_table(table, columns, f"The {name} run, {runs[name].steps} steps")
wait = {name: table["wait_ns"].sum() / 1e6 for name, table in compared.items()}
transfer = {name: table["transfer_ns"].sum() / 1e6 for name, table in compared.items()}
spread = compared["late"]["computation_ns"].max() / compared["late"]["computation_ns"].min() - 1
say(
    f"The fault multiplies the waiting by {wait['late'] / wait['healthy']:.1f} and the transfer "
    f"by {transfer['late'] / transfer['healthy']:.2f}. Computation differs by {100 * spread:.1f} "
    "% between ranks. **What makes these RCCL kernels long is waiting, not the network.** The "
    "rank with the *shortest* collectives and the *least* busy GPU is the one that all wait for."
)

# %% [markdown]
# A wait can pass beside computation, so it may be longer than what is exposed in the figure. And a tracer makes these
# kernels longer still: what it costs a rank differs, and all wait for the slowest.
#
# A rank may also be late with cores far from its GPU; on an MI250X each die is a rank's GPU and has cores of its own.
# [The page on Slurm](../docs/slurm.md#cores-and-gpus-of-a-rank) has the bindings, and one to try.
#
# The healthy run waits too, and one rank comes last more often than the others: no two hosts are equally fast. So don't
# count. Measure **by how much, in each step**, and take what a healthy run shows as the threshold. A rank is late in a
# step by the mean, over the step's collectives, of its start minus the median start.

# %%
# 5 minutes: how late, in ms, is the latest rank of the healthy run in the worst of all steps? `starts` has a row for
# each collective and a column for each rank, in ns. `step` is the number of each row's step.
starts = tidyprof.collectives(runs["healthy"].profile, per_rank=True).pivot(
    index="number", columns="rank", values="start_ns"
)
step = starts.index // (len(starts) // runs["healthy"].steps)
q = exercise("07.2", runs["healthy"])
# solution
late = starts.sub(starts.median(axis=1), axis=0)
answer = late.groupby(step).mean().max(axis=None) / 1e6
# end solution
q.check(answer)


# %%
def lateness_ms(part):
    each = tidyprof.collectives(part.profile, per_rank=True)
    starts = each.pivot(index="number", columns="rank", values="start_ns")
    late = starts.sub(starts.median(axis=1), axis=0) / 1e6
    return late.groupby(starts.index // (len(starts) // part.steps)).mean()


floor = lateness_ms(runs["healthy"]).max(axis=None)
typical = lateness_ms(runs["late"]).median()
found = "**a straggler**" if typical.max() > floor else "can’t tell it from chance"
say(
    f"A rank of the healthy run starts a collective {floor:.2f} ms late in its worst step. That "
    "is the threshold."
)
say(
    f"The late run: the latest, rank {typical.idxmax()}, starts a collective {typical.max():.2f} "
    f"ms late: {found}."
)

# %% [markdown]
# Take the healthy run from the same machine, with the same batch: a threshold of another one says nothing. Without one,
# ask that the suspect is later in *each* step than any other rank in any.
#
# ## What travels: buckets
#
# torch.profiler also states how many elements (numbers) each collective moves. The course ships four of its traces,
# one per rank, of a modelled run with the same fault. DDP fills a bucket up to a size (`bucket_cap_mb`, with a smaller
# one at the start), beginning with the last layers, whose gradients are ready first. So the exchange can hide behind
# the rest of the backward pass.


# %%
def collectives_of(path):
    trace = json.loads(gzip.decompress(path.read_bytes()))
    # A file of all ranks has it with each event.
    rank = trace.get("distributedInfo", {}).get("rank")
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    found = [event for event in kernels if "Collective name" in event["args"]]
    return pd.DataFrame(
        {"rank": rank, "start_us": one["ts"], "length_us": one["dur"], **one["args"]}
        for one in found
    )


# %%
shipped = proflab.recording("modelled-rank-skew")
files = sorted((shipped.path / "torch").iterdir())
travels = pd.concat(map(collectives_of, files)).sort_values("start_us", ignore_index=True)
travels = travels.rename(columns={"Collective name": "name", "In msg nelems": "elements"})
first = travels[travels["rank"] == 0]
show_table(first, "name elements dtype length_us", "Rank 0, one step", origin=shipped.origin)
gradients = travels.query("rank == 0 and name == 'allreduce'")["elements"].sum()
say(f"The all-reduces carry {gradients:,} gradients, one for each parameter of the model.")

# %% [markdown]
# What does an exchange cost? In a ring of $n$ ranks each sends $2(n-1)/n$ times the data over its link: every piece
# travels once round to be added up, and once to tell all. So the rate of the links, called *bus bandwidth*, is that
# factor times bytes over time.

# %%
# 4 minutes: at which bus bandwidth, in GB/s, is the largest bucket exchanged? `big` has it for all four ranks. A
# `Float` has four bytes, times are in µs, and the exchange begins when the last rank has come.
big = travels[travels["elements"] == travels["elements"].max()]
q = exercise("07.3", travels)
# solution
exchange_us = (big["start_us"] + big["length_us"]).max() - big["start_us"].max()
answer = 2 * (4 - 1) / 4 * 4 * big["elements"].max() / exchange_us / 1e3
# end solution
q.check(answer)

# %% [markdown]
# What *should* it cost? AMD has published the bus bandwidth of four MI300A, for large messages. That is another GPU of
# the family, so expect the order of magnitude:

# %%
traces = tidyprof.read(files[0].parent, origin=shipped.origin)
exchanged = tidyprof.ranks(traces)
rate = pd.read_csv(lesson.file("bus_bandwidth.csv"), comment="#")["bus_gb_per_s"].iloc[0]
expected_ms = 2 * (4 - 1) / 4 * 4 * gradients / rate / 1e6
say(
    f"{4 * gradients / 1e6:.0f} MB at the published {rate:.0f} GB/s would take {expected_ms:.2f} "
    f"ms a step. The modelled exchange takes {exchanged['transfer_ns'].mean() / 1e6:.2f} ms, and "
    f"rank 0 spends {exchanged['communication_ns'].iloc[0] / 1e6:.1f} ms in collectives. Such a "
    "sum, made before you profile, tells whether the network can be the cause at all."
)

# %% [markdown]
# ## Who is it? Real GPUs
#
# AMD recorded a ResNet that four MI300 train with DDP on CIFAR-100, in one file for all ranks, and did not say that it
# has a fault. Do these ranks wait for one?

# %%
recorded = proflab.recording("torch-mi300-ddp-4ranks-fused")
run = tidyprof.read(recorded.path, origin=recorded.origin)
unknown = collectives_of(recorded.path).sort_values("start_us")
unknown["start_us"] -= unknown["start_us"].min()
show_table(unknown, "rank start_us length_us", "All collectives", rows=5, origin=run.origin)

# %%
# 5 minutes: what share of rank 0's time in collectives is waiting, in percent? `unknown` has a row for each collective
# of each rank, in order of time, with `rank`, `start_us` and `length_us`. Write it as above.
q = exercise("07.4", run)
# solution
unknown["number"] = unknown.groupby("rank").cumcount()
last = unknown.groupby("number")["start_us"].transform("max")
left = unknown["start_us"] + unknown["length_us"]
unknown["wait"] = (last - unknown["start_us"]).where(left >= last, 0)
own = unknown[unknown["rank"] == 0]
answer = 100 * own["wait"].sum() / own["length_us"].sum()
# end solution
q.check(answer)

# %%
# 2 minutes: somebody has only a table of kernels for each rank, without any start. One rank keeps the others waiting.
# How many ms do the others wait, on average? Of `unknown` use nothing but `rank` and `length_us`.
q = exercise("07.5", run)
# solution
totals = unknown.groupby("rank")["length_us"].sum().sort_values() / 1000
answer = (totals.iloc[1:] - totals.iloc[0]).mean()
# end solution
q.check(answer)

# %% [markdown]
# In the heat map each column is a collective, each row a rank. In a bright cell the rank waited long; the dot marks the
# rank that came last. The first two collectives of a step are *broadcasts*: rank 0 sends numbers of its batch
# normalisations to all, and need not wait for them. What the map doesn't say: *why* somebody came late.

# %%
table = tidyprof.ranks(run)
show_figure(
    plots.collectives(
        tidyprof.collectives(run, per_rank=True), title="Who waits, and in which collective"
    )
)
exposed = table["exposed_communication_ns"] / table["total_ns"]
transfer_share = (table["transfer_ns"] / table["total_ns"]).max()
say(
    f"Exposed communication is {100 * exposed.min():.0f} to {100 * exposed.max():.0f} % of the "
    f"time. All transfers together, hidden or not, are {100 * transfer_share:.1f} % at most: a "
    "faster network could save no more."
)

# %% [markdown]
# ## Do four GPUs pay?
#
# Is the case, a step of 1,024 images on one GPU, faster on four? Trainers print their rate *for each GPU*. The model
# plays both batches; a *batch* is that of each GPU:

# %%
played = {
    (gpus, batch): modelled(f"{case.options('07')} --batch-size {batch} --max-epochs 4", 1, gpus)
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
q = exercise("07.6", scaling)
# solution
rates = (scaling["gpus"] * scaling["rate_per_gpu"]).set_axis(played)
answer = rates[4, 256] / rates[1, 1024]
# end solution
q.check(answer)

# %%
total = {which: which[0] * one.images_per_second for which, one in played.items()}
small, large = (
    plain_step(f"{case.options('07')} --batch-size {batch}")["step_ms"] for batch in (256, 1024)
)
say(
    f"Four GPUs with 256 images each: {total[4, 256]:,.0f} images/s. One with 1,024: "
    f"{total[1, 1024]:,.0f}. On one GPU a step of 256 takes {small:.1f} ms, one of 1,024 "
    f"{large:.1f} ms: the host launches the same kernels for both (lesson 04). So **fill each GPU "
    f"first, then add GPUs**. With 1,024 on each, four are {total[4, 1024] / total[1, 1024]:.1f} "
    "times as fast as one, but a step of 4,096 images is another training. With 256 on each, four "
    f"are {total[4, 256] / total[1, 256]:.1f} times as fast as one. That looks good only because "
    "a single GPU with 256 often waits for its host."
)

# %% [markdown]
# ## Decide
#
# Why is the straggler late? Compare its computation with that of the others. A late host may run on the wrong cores,
# far from its GPU or shared with another rank. *Binding* gives each rank its own: see [the guide to
# clusters](../docs/slurm.md#cores-and-gpus-of-a-rank).


# %%
def decide(run_name, table):
    late, computation = table.attrs["straggler"], table.set_index("rank")["computation_ns"]
    slower = late is not None and computation[late] > 1.1 * computation.drop(late).median()
    cause = (
        "its GPU computes longer: its kernels (05)"
        if slower
        else "its GPU gets its work later: its host (03)"
    )
    say(
        f"{run_name}: "
        + ("no straggler" if late is None else f"rank {late} comes last most, and {cause}.")
    )


decide("The late run", compared["late"])
decide("The unknown run, of which there is no healthy twin to compare with", table)
first = table[table["rank"] == 0].iloc[0]
proflab.reveal("07.a", 100 * first["wait_ns"] / (first["wait_ns"] + first["transfer_ns"]), run)
proflab.reveal("07.b", exchanged["transfer_ns"].mean() / 1e6, traces)

# %% [markdown]
# You have met four kinds of limit now: data, launches, kernels, and a rank that comes late. Several can look alike in
# one table. Can you tell them apart when nobody says which it is, and prove a cure?

# %%
lesson.conclude(
    "With one late rank of four, the ranks wait "
    f"{wait['late'] / wait['healthy']:.0f} times as long in collectives, and the time of the "
    f"transfers changes by {100 * abs(transfer['late'] / transfer['healthy'] - 1):.0f} %. Without "
    f"the fault no rank is later than {floor:.1f} ms, its own worst step. Four GPUs with 256 "
    f"images each make {total[4, 256] / total[1, 1024]:.2f} times the images a second of one with "
    "1,024.",
    rules_out="The network: the collectives are long because ranks wait in them. More GPUs for the "
    "same step.",
    because="Every limit has its sign, and a change is no cure before it is proven.",
    next="08",
    origin=runs["late"].profile.origin,
)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# It says who is late, not why: look at that rank's host. It takes all ranks to be in one group; where the model itself
# is split over GPUs, there are several: number the collectives by group *and* rank. It trusts the clocks: between nodes
# they may disagree, so read `table.attrs["clocks"]` (the snippet below puts them right by the ends of the all-reduces).
#
# Of a thousand ranks `tidyprof.many.read_many` reduces each file [where it is read](../docs/tidyprof/README.md).

# %% [markdown] tags=["given"]
# ## Known issues
#
# All ranks in one file, a tool around the launcher, no GPU because of two variables, a node of MI300A that resets: the
# cures, with sources, are in the [list of known issues](../docs/known-issues.md#several-ranks).

# %% [markdown]
# ## At work, without this course
#
# Who waits for whom in any job whose ranks write traces of torch.profiler:
#
# {snippet 07_who_waits.py}
#
# Such traces come from a job. This script is for Slurm. As it stands `rocprofv3` is around
# each rank, for the lines of pandas above. For `07_who_waits.py` let the program write its own traces: with the block
# of lesson 14 set `program=(env WATCH=trace python train.py)`, `tool=()` and `expected='trace_rank*.json.gz'`.
#
# {snippet 07_ranks_job.sh}
#
# And this one for PBS with the launcher PALS:
#
# {snippet 07_ranks_job_pbs.sh}

# %% [markdown]
# Next question: can you tell the causes apart blind, and prove a cure?
