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
# - bind each rank to the cores near its GPU, and write a job script for another program.
#
# You need lessons 00, 02 and 04. Commands hold from ROCm 7.0 to {newest rocm}; the text says what differs
# elsewhere. Real tools need four GPUs here; without any, stand-ins answer, with files of a modelled MI300X.

# %%
import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import proflab
import tidyprof
from proflab import exercise, say, show_figure, show_table
from proflab.parts.steady_part import own_run, steady_part
from tidyprof import plots

lesson = proflab.start("07")

# %% [markdown]
# ## The case so far
#
# On one GPU the case is settled as far as its kernels allow. Now four GPUs train together, each with a batch of 256 and
# two loader processes, as in lesson 04. In every step they exchange what they have learnt.

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
# This is all that a script needs. The `assert` does by hand what DDP does: an all-reduce, divided by the ranks.

# %%
# %%writefile runs/07/ranks.py
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
    mse_loss(parallel(samples), wanted).backward()  # 5. all-reduces, while the backward pass goes on
    dist.all_reduce(own)
    assert torch.allclose(own / size, model.weight.grad, atol=1e-6)
    optimizer.step()
    optimizer.zero_grad()
print(f"rank {rank} of {size}: {len(loader)} steps of {BATCH * size} samples, by hand and by DDP the same gradient")

# %% [markdown]
# A mean over all ranks' samples is one step where a single process makes several: an epoch has fewer steps. To get as
# far with them, the *learning rate* is usually multiplied by the number of ranks, and raised to that over the first
# epochs. It is a rule of thumb: compare the loss *by epoch*, not by step.
#
# What does an all-reduce cost? It is easily measured. In a ring of $n$ ranks each sends $2(n-1)/n$ times the data over
# its link: every piece travels once round to be added up, and once to tell all. So the rate of the links, called *bus
# bandwidth*, is that factor times bytes over time. This goes to the end of the same script (`-a`), and a launcher
# starts it twice:

# %%
# %%writefile -a runs/07/ranks.py
import time

table = ["kilobytes,ms,bus_gb_per_s"]
for elements in (1_000, 100_000, 10_000_000):
    data, times = torch.ones(elements), []
    for _ in range(5):
        dist.barrier()  # so that nobody's lateness is in the time
        begin = time.perf_counter()
        dist.all_reduce(data)  # on a GPU torch.cuda.synchronize() must follow
        times.append(time.perf_counter() - begin)
    size_in_bytes = elements * data.element_size()
    rate = 2 * (size - 1) / size * size_in_bytes / min(times) / 1e9
    table.append(f"{size_in_bytes / 1e3},{1e3 * min(times)},{rate}")
if rank == 0:
    with open("runs/07/all_reduce.csv", "w") as file:
        print(*table, sep="\n", file=file)
dist.destroy_process_group()

# %% language="bash"
# OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 runs/07/ranks.py 2>&1

# %%
here = pd.read_csv("runs/07/all_reduce.csv")
published = pd.read_csv(lesson.file("bus_bandwidth.csv"), comment="#")
show_table(here, "kilobytes ms bus_gb_per_s", "Two processes, library gloo", origin="measured, on this processor")
show_table(
    published, "megabytes bus_gb_per_s", "Four MI300A, library RCCL", origin="recorded: AMD, HPCTrainingExamples"
)
small, large = here.iloc[0], here.iloc[-1]
say(
    f"{large['kilobytes'] / small['kilobytes']:,.0f} times the data took {large['ms'] / small['ms']:,.0f} times as "
    "long. A small all-reduce costs its start, whatever it carries: that is why gradients travel in buckets."
)

# %% [markdown]
# ## Predict
#
# One of four ranks comes late in every step. Guess, for a rank that is on time:

# %%
# solution
wait_guess, exchange_guess = 50, 20
# end solution
proflab.predict("07.a", wait_guess, unit="%", what="the share of its time in collectives that is waiting")
proflab.predict("07.b", exchange_guess, unit="ms", what="the exchange of all gradients of a ResNet-50, per step")

# %% [markdown]
# ## Capture: one file per rank
#
# A *launcher* starts one process per rank, and tells each who it is by environment variables. Here the tool stands
# *outside* the launcher: its settings pass to the processes that `torchrun` starts on the same machine. `%env{RANK}%`
# becomes the value of the variable `RANK`, which `torchrun` sets in each process; `%pid%` is the process number. Name
# the format, since ROCm 7.0 writes a database otherwise. `--marker-trace` with `--roctx` marks the steps. Both runs do
# the same work; the second has a fault. **Not on a node of MI300A with ROCm 10.0**: several `rocprofv3` at once may
# [reset the whole node][reset], with the jobs of others.
#
# [reset]: https://github.com/ROCm/TheRock/issues/8229

# %% language="bash"
# profile="rocprofv3 --kernel-trace --marker-trace --output-format csv --output-file rank%env{RANK}%_pid%pid%"
# train="torchrun --standalone --nproc-per-node 4 -m cifar_train --max-steps 10 --roctx"
# rm -rf runs/07/healthy runs/07/late
# $profile --output-directory runs/07/healthy -- $train 2>&1 | grep -v Opened
# $profile --output-directory runs/07/late -- $train --pathology rank-skew 2>&1 | grep -v Opened
# ls runs/07/late | grep kernel_trace

# %% [markdown]
# A cluster consists of machines called *nodes*. `torchrun` starts ranks only on its own node, so a job on several nodes
# starts it on each. Or another launcher starts all ranks: `srun`, if the cluster shares out its nodes by *Slurm*,
# `mpiexec` where that is *PBS*, or `mpirun` of an *MPI* library. `rocprofv3 ... -- srun ...` would profile the launcher
# only. So the tool stands *inside*, around each rank: `srun -n 4 rocprofv3 ... -- python ...`. This works with
# `torchrun` too, where `--no-python` says that the program is no Python file.
#
# `%rank%` is shorter than `%env{...}%`. But look at the names that two ranks under `torchrun` write:

# %% language="bash"
# torchrun --standalone --nproc-per-node 2 --no-python \
#     rocprofv3 --kernel-trace --output-format csv --output-directory runs/07/inside --output-file rank%rank%_pid%pid% \
#     -- python -m cifar_train --max-steps 2 2>&1 | grep Opened | grep kernel_trace

# %% [markdown]
# Both call themselves `rank0`. `%rank%` asks some variables in turn, Slurm's first, and is 0 where none of them is set.
# The table shows what four ranks on two nodes call their files. A batch script is itself task 0 of a Slurm step, so
# what it starts inherits that number. The same process number may occur on both nodes.

# %%
launchers = pd.read_csv(lesson.file("launchers.csv"), comment="#").fillna("")
ASKED = ["SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "MPI_RANKID", "MPI_LOCALRANKID", "MPI_RANK"]


def file_name(pattern, launcher, rank):
    inherited = dict([launcher["inherited"].split("=")] if launcher["inherited"] else [])
    variables = {**inherited, launcher["rank"]: str(rank)}
    found = next((variables[name] for name in ASKED if name in variables), "0")
    return re.sub(r"%env\{(\w+)\}%", lambda name: variables.get(name[1], ""), pattern.replace("%rank%", found))


for pattern in ("rank%rank%", "rank%env{RANK}%"):
    names = [[file_name(pattern, launcher, rank) for rank in range(4)] for _, launcher in launchers.iterrows()]
    launchers[pattern] = [", ".join(dict.fromkeys(own)) for own in names]
written = {path.name.partition("_")[0] for path in Path("runs/07/late").glob("*kernel_trace.csv")}
assert written == {file_name("rank%env{RANK}%", launchers.iloc[0], rank) for rank in range(4)}
show_table(launchers, "launcher rank rank%rank% rank%env{RANK}%", "Four ranks, and the names of their files",
           origin="modelled: by the rules that the tool documents")  # fmt: skip

# %%
# 5 minutes: a text for `--output-file` under mpirun in a Slurm job: each rank gets its own file, whose name tells its
# rank. The column `rank` names the variable that a launcher sets for each rank.
q = exercise("07.1", launchers.set_index("launcher").loc["mpirun in a Slurm job"])
# solution
answer = "rank%env{OMPI_COMM_WORLD_RANK}%_pid%pid%"
# end solution
q.check(answer)

# %% [markdown]
# ## First look, and the trap
#
# Open the file of rank 0 alone, as one does, and ask which kernel takes the time:

# %%
runs = {name: steady_part(own_run(f"runs/07/{name}")) for name in ("healthy", "late")}
each = tidyprof.kernels(runs["late"].profile, per_device=True)
rank0 = each[each["rank"] == 0]
rank0 = rank0.assign(percent=100 * rank0["total_ns"] / rank0["total_ns"].sum())
show_table(rank0, "short_name category calls total_ms mean_ms percent", "The late run by rank 0", rows=3)
busy = tidyprof.busy(runs["late"].profile)
show_table(busy, "rank union_percent span_ms", "How busy is each GPU?")
rccl = rank0.loc[rank0["category"] == "collective", "percent"].sum()
say(
    f"RCCL takes {rccl:.0f} % of rank 0's kernel time. And three GPUs are busy for "
    f"{busy['union_percent'].nlargest(3).min():.0f} % of the time or more, one for {busy['union_percent'].min():.0f} %."
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
ranks = [pd.read_csv(path).assign(rank=int(re.match(r"rank(\d+)", path.name)[1]))
         for path in Path("runs/07/late").glob("rank*kernel_trace.csv")]  # fmt: skip
each = pd.concat(ranks).rename(columns={"Start_Timestamp": "start", "End_Timestamp": "end"}).sort_values("start")
each = each[each["Kernel_Name"].str.contains("nccl|rccl", case=False)]
each["number"] = each.groupby("rank").cumcount()
last = each.groupby("number")["start"].transform("max")
each["wait"] = (last - each["start"]).where(each["end"] >= last, 0)
each["transfer"] = each["end"] - each["start"] - each["wait"]
by_hand = each.groupby("rank")[["wait", "transfer"]].sum()

theirs = tidyprof.ranks(own_run("runs/07/late"))
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
    f"The fault multiplies the waiting by {wait['late'] / wait['healthy']:.1f} and the transfer by "
    f"{transfer['late'] / transfer['healthy']:.2f}. Computation differs by {100 * spread:.1f} % between ranks. **What "
    "makes these RCCL kernels long is waiting, not the network.** The rank with the *shortest* collectives and the "
    "*least* busy GPU is the one that all wait for."
)

# %% [markdown]
# Two things to know about the figure. A wait can pass beside computation, so it may be longer than what is exposed. And
# a bar begins with the rank's first event on its GPU: that of a late rank is shorter, since it begins later.
#
# The healthy run waits too. Is it really healthy?

# %%
say(compared["healthy"].attrs["evidence"])

# %% [markdown]
# A rank is named there, although no fault was built in. Some rank always comes last. *Shares* of the waiting say who,
# but not whether it matters, and the collectives of a step are no independent witnesses: who is late in the first one
# is late in all. So measure **by how much, in each step**, and compare with what a healthy run does by chance. We say
# that a rank is late in a step by the mean, over the step's collectives, of its start minus the median start.

# %%
# 8 minutes: how late, in ms, is the latest rank of the healthy run in the worst of all steps? `starts` has a row for
# each collective and a column for each rank, in ns. It holds `steps` steps with equally many collectives each.
starts = tidyprof.collectives(runs["healthy"].profile, per_rank=True).pivot(
    index="number", columns="rank", values="start_ns"
)
steps = runs["healthy"].steps
q = exercise("07.2", runs["healthy"])
# solution
late = starts.sub(starts.median(axis=1), axis=0)
step = starts.index // (len(starts) // steps)
answer = late.groupby(step).mean().max(axis=None) / 1e6
# end solution
q.check(answer)


# %%
def lateness_ms(part):
    each = tidyprof.collectives(part.profile, per_rank=True)
    starts = each.pivot(index="number", columns="rank", values="start_ns")
    late = starts.sub(starts.median(axis=1), axis=0) / 1e6
    return late.groupby(starts.index // (len(starts) // part.steps)).mean()


def verdict(late, floor):
    typical = late.median()
    rank = typical.idxmax()
    text = f"the latest, rank {rank}, starts a collective {typical[rank]:.2f} ms late"
    return f"{text}: {'**a straggler**' if typical[rank] > floor else 'can’t tell it from chance'}"


floor = lateness_ms(runs["healthy"]).max(axis=None)
say(f"A rank of the healthy run starts a collective {floor:.2f} ms late in its worst step. That is the threshold.")
for name, part in runs.items():
    say(f"The {name} run: {verdict(lateness_ms(part), floor)}.")

# %% [markdown]
# Take the healthy run from the same machine, with the same batch: a threshold of another one says nothing. Without one,
# ask that the suspect is later in *each* step than any other rank in any.
#
# ## What travels: buckets
#
# torch.profiler also states how many elements (numbers) each collective moves, of which type, in which *process group*
# (ranks that talk to each other), and each file states its own rank. So do your traces. The course ships four, one per
# rank, of a modelled run with the same fault. DDP fills a bucket up to a size (`bucket_cap_mb`, with a smaller one at
# the start), beginning with the last layers, whose gradients are ready first. So the exchange can hide behind the rest
# of the backward pass.


# %%
def collectives_of(path):
    trace = json.loads(gzip.decompress(path.read_bytes()))
    rank = trace.get("distributedInfo", {}).get("rank")  # a file of all ranks has it with each event
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    found = [event for event in kernels if "Collective name" in event["args"]]
    return pd.DataFrame([{"rank": rank, "start_us": event["ts"], "us": event["dur"], **event["args"]}
                         for event in found])  # fmt: skip


shipped = proflab.recording("modelled-rank-skew")
files = sorted((shipped.path / "torch").iterdir())
travels = pd.concat(map(collectives_of, files)).sort_values("start_us", ignore_index=True)
travels = travels.rename(
    columns={"Collective name": "name", "In msg nelems": "elements", "Process Group Ranks": "group"}
)
columns = "rank name elements dtype group us"
show_table(travels[travels["rank"] == 0], columns, "Rank 0's collectives in one step", origin=shipped.origin)
gradients = travels.query("rank == 0 and name == 'allreduce'")["elements"].sum()
say(f"The all-reduces carry {gradients:,} gradients, one for each parameter of the model.")

# %%
# 8 minutes: at which bus bandwidth, in GB/s, is the largest bucket exchanged? A `Float` has four bytes, `travels` has
# all four ranks, times are in µs, and the exchange begins when the last rank has come.
q = exercise("07.3", travels)
# solution
big = travels[travels["elements"] == travels["elements"].max()]
exchange_us = (big["start_us"] + big["us"]).max() - big["start_us"].max()
answer = 2 * (4 - 1) / 4 * 4 * big["elements"].max() / exchange_us / 1e3
# end solution
q.check(answer)

# %% [markdown]
# `tidyprof.collective_bandwidth` lists such rates for each size of message. A call's time holds its waiting, so the
# highest rate of a row is nearest to yours.
#
# What *should* it cost? The published rate is of other GPUs of the same family, in a node with as many of them, and of
# large messages. So expect the order of magnitude:

# %%
traces = tidyprof.read(files[0].parent, origin=shipped.origin)
exchanged = tidyprof.ranks(traces)
rate = published["bus_gb_per_s"].iloc[0]
expected_ms = 2 * (4 - 1) / 4 * 4 * gradients / rate / 1e6
say(
    f"{4 * gradients / 1e6:.0f} MB at {rate:.0f} GB/s would take {expected_ms:.2f} ms a step. The modelled exchange "
    f"takes {exchanged['transfer_ns'].mean() / 1e6:.2f} ms, and rank 0 spends "
    f"{exchanged['communication_ns'].iloc[0] / 1e6:.1f} ms in collectives. Such a sum, made before you profile, tells "
    "whether the network can be the cause at all."
)

# %% [markdown]
# ## Who is it? Real GPUs
#
# AMD recorded the same training on four MI300, in one file for all ranks, and did not say that a fault was built into
# it. If this public recording is at hand, `path` is that one, else one rank of the shipped traces after the other.

# %%
there = proflab.try_recording("torch-mi300-ddp-4ranks-fused")
run = tidyprof.read(there.path, origin=there.origin) if there else traces
unknown = pd.concat(map(collectives_of, [there.path] if there else files)).sort_values("start_us")
unknown["start_us"] -= unknown["start_us"].min()
show_table(unknown, "rank start_us us", "Collectives of all ranks", rows=5, origin=run.origin)

# %%
# 8 minutes: what share of rank 0's time in collectives is waiting, in percent? `unknown` has a row for each collective
# of each rank, in order of time, with `rank`, `start_us` and its length `us`. Write it as above.
q = exercise("07.4", run)
# solution
unknown["number"] = unknown.groupby("rank").cumcount()
last = unknown.groupby("number")["start_us"].transform("max")
left = unknown["start_us"] + unknown["us"]
unknown["wait"] = (last - unknown["start_us"]).where(left >= last, 0)
own = unknown[unknown["rank"] == 0]
answer = 100 * own["wait"].sum() / own["us"].sum()
# end solution
q.check(answer)

# %%
# 3 minutes: somebody has only a table of kernels for each rank, without any start. Which rank (its number) do the
# others wait for? Of `unknown` use nothing but `rank` and `us`.
q = exercise("07.5", run)
# solution
answer = unknown.groupby("rank")["us"].sum().idxmin()
# end solution
q.check(answer)

# %% [markdown]
# In the heat map each column is a collective, each row a rank. In a bright cell the rank waited long; the dot marks the
# rank that came last. The first two collectives of a step are *broadcasts*: rank 0 sends numbers of its batch
# normalisations to all, and need not wait for them. What the map doesn't say: *why* somebody came late.

# %%
table = tidyprof.ranks(run)
show_figure(plots.collectives(tidyprof.collectives(run, per_rank=True), title="Who waits, and in which collective"))
exposed = table["exposed_communication_ns"] / table["total_ns"]
transfer_share = (table["transfer_ns"] / table["total_ns"]).max()
say(
    f"Exposed communication is {100 * exposed.min():.0f} to {100 * exposed.max():.0f} % of the time. All transfers "
    f"together, hidden or not, are {100 * transfer_share:.1f} % at most: a faster network could save no more."
)

# %% [markdown]
# ## A thousand ranks
#
# The traces of a thousand ranks are too much for the memory of most machines. So reduce each file *where it is read*:
# `read_many` gives every file to a worker process, which hands back a small table. The workers may be those of a
# cluster. Or record fewer: since ROCm 7.2 `rocprofv3 --profile-mpi-ranks 0,3` lets the other ranks run without the
# tool. It knows ranks by the variables of `srun` and `mpirun`, not by those of `torchrun`: under that nothing is
# filtered, or in a Slurm job all ranks of a node count as one. Since ROCm 7.13 you can name the variables, with
# `--mpi-world-rank-variable RANK --mpi-world-size-variable WORLD_SIZE`. But a rank that you don't record may be the
# straggler.

# %%
from tidyprof.analyses import collective_entries
from tidyprof.many import read_many

entries = read_many(files, collective_entries)
who = tidyprof.collectives(entries)["last_rank"].value_counts()
size = entries.memory_usage().sum() / entries["rank"].nunique()
say(
    f"Four traces became {len(entries)} rows; of a thousand such ranks a table of {1000 * size / 1e6:.1f} MB is left. "
    f"It still says who came last: rank {who.index[0]}, in {who.iloc[0]} of {who.sum()} collectives."
)

# %% [markdown]
# ## Binding
#
# A rank may be late because it runs on the wrong cores: far from its GPU, or on cores that another rank uses too.
# *Binding* gives each rank its own. Try it: two processes count for a moment, on one core together and on a core each.
# `taskset -c 0 python ...` would do the same from outside.

# %%
COUNT = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
end, count = time.perf_counter() + 0.3, 0
while time.perf_counter() < end: count += 1
print(count)
"""


def counted(cores):
    command = [sys.executable, "-c", COUNT]
    ranks = [subprocess.Popen([*command, str(core)], stdout=subprocess.PIPE, text=True) for core in cores]
    return sum(int(rank.communicate()[0]) for rank in ranks)


cores = sorted(os.sched_getaffinity(0))
pairs = [(counted([cores[0]] * 2), counted([cores[0], cores[-1]])) for _ in range(3)]
together, apart = np.array(pairs).T
factor = f"{np.median(apart / together):.1f} times as much is done on a core each"
sure = len(cores) > 1 and apart.min() > together.max()
say(f"{factor}, in each of three tries." if sure else "Can't tell: one core only, or others use this machine too.")

# %% [markdown]
# A *NUMA node* is a group of cores and the memory near them, and so a part of a node. `lscpu` lists the cores of each,
# `numactl --hardware` its memory, and `amd-smi topology` which GPU is linked to which, and how. *Reserved* cores belong
# to the system, and a job does not get them. The table has three machines as their guides print them. Cores differ from
# server to server, so look at yours.

# %%
from tidyprof.plots.figure import new_figure, settings

nodes = pd.read_csv(lesson.file("nodes.csv"), comment="#", dtype={"reserved": "Int64"})
node = nodes[nodes["machine"] == "LUMI"]
with settings():
    figure, (axes,) = new_figure("documented: LUMI's user guide", 3.4, title="A node of LUMI: GPU 0 is not near core 0")
    for _, gpu in node.iterrows():
        axes.barh(gpu["numa_node"], 8, left=gpu["first_core"], height=0.7, color="#56B4E9", edgecolor="black")
        axes.barh(gpu["numa_node"], 1, left=gpu["reserved"], height=0.7, color="#BDBDBD", hatch="//", edgecolor="black")
        axes.text(gpu["first_core"] + 4.5, gpu["numa_node"], f"GPU {gpu['gpu']}", ha="center", va="center")
    axes.set(xlabel="processor core (hatched: reserved)", ylabel="NUMA node", yticks=range(4), xlim=(0, 64))
figure.alternative_text = "Cores by NUMA node, each group of eight beside its GPU: " + ", ".join(
    f"GPU {gpu.gpu} near cores {gpu.first_core} to {gpu.last_core}" for gpu in node.itertuples()
)
show_figure(figure)

# %% [markdown]
# This is the open challenge. The *local rank* counts the ranks of one node: local rank 0 uses GPU 0, local rank 1 uses
# GPU 1, and so on. Give each rank cores near its GPU, none of them reserved or shared, and enough for the rank and its
# two loader processes, one core each. There is more than one right answer. For another machine, give the exercise its
# rows of `nodes`: those of `MI300X server` or of `Aurora`.

# %%
show_table(
    node, "gpu numa_node first_core last_core reserved", "A node of LUMI", origin="documented: LUMI's user guide"
)

# %%
# 8 minutes, open: a list with one text per local rank, in their order: its cores, such as "8-15" or "1,2,5".
q = exercise("07.6", node)
# solution
answer = ["49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"]
# end solution
q.check(answer)

# %% [markdown]
# For `srun` such a list becomes one *mask* per rank, a hexadecimal number with a bit for each core. For the `mpiexec`
# of PALS, as on Aurora, it stays a list. All cores of a mask must belong to the job, so it needs the whole node.

# %%
near = [range(gpu.first_core + 1, gpu.last_core + 1) for gpu in node.itertuples()]
masks = ",".join(f"{sum(1 << core for core in own):x}" for own in near)
assert masks.startswith("fe000000000000,fe00000000000000,fe0000")  # as LUMI's guide prints it
say(f"`srun --cpu-bind=mask_cpu:{masks}`")
say(f"`mpiexec --cpu-bind list:{':'.join(f'{own[0]}-{own[-1]}' for own in near)}`")

# %% [markdown]
# The GPU is chosen apart from that, and only *once*. Either each rank sees all GPUs of its node (`SLURM_GPU_BIND=none`
# where the site would hand out one to each) and takes the one of its local rank, as this trainer does. Or a variable
# shows it a single one, which has the number 0 then:
#
# | variable | who obeys | what it lists |
# | --- | --- | --- |
# | `ROCR_VISIBLE_DEVICES` | ROCm's runtime, so all programs and profilers | GPUs; each half of an MI250X is one |
# | `HIP_VISIBLE_DEVICES` | HIP programs, such as PyTorch | GPUs of those that the first one left |
# | `ZE_AFFINITY_MASK` | Intel's runtime | devices, or `0.1` for tile 1 of card 0 |
# | `ZE_FLAT_DEVICE_HIERARCHY` | Intel's runtime | `FLAT`: each *tile*, one of two parts of a card, is a device |
#
# Two masks on top of each other are a trap. If Slurm has set `ROCR_VISIBLE_DEVICES=2`, the process sees one GPU, which
# has the number 0, and `HIP_VISIBLE_DEVICES=2` on top of it leaves none.
#
# ## On a cluster
#
# `proflab.job` sends one of the scripts in `scripts/slurm` to Slurm and returns at once. While the job waits in the
# queue, and where there is no Slurm, the recording stands in and says so. Run the cell's last two lines again later.

# %%
from proflab.errors import CourseError

try:
    found = proflab.job("torch_profiler", ranks=4, recording=shipped.path / "torch").result()
except CourseError as refusal:
    say(f"Not submitted: {refusal}. What follows is the recording.")
    found = [shipped.path / "torch"]
result = tidyprof.ranks([tidyprof.read(path) for path in found])
show_table(result, "rank computation_ms wait_ms transfer_ms came_last", "The job's ranks")

# %% [markdown]
# ## Decide
#
# Why the straggler is late chooses the next question. Compare its computation with that of the others. A cure is an
# experiment for the ledger, measured without the tool.


# %%
def decide(run_name, table):
    late, computation = table.attrs["straggler"], table.set_index("rank")["computation_ns"]
    slower = late is not None and computation[late] > 1.1 * computation.drop(late).median()
    cause = "its GPU computes longer: its kernels (05)" if slower else "its GPU gets its work later: its host (03)"
    say(f"{run_name}: " + ("no straggler" if late is None else f"rank {late} comes last most, and {cause}."))


decide("The late run", compared["late"])
decide("The unknown run, of which there is no healthy twin to compare with", table)
first = table[table["rank"] == 0].iloc[0]
proflab.reveal("07.a", 100 * first["wait_ns"] / (first["wait_ns"] + first["transfer_ns"]), run)
proflab.reveal("07.b", exchanged["transfer_ns"].mean() / 1e6, traces)

# %% [markdown]
# You have met four kinds of limit now: data, launches, kernels, and a rank that comes late. Each has its sign, and
# several can look alike in one table. Can you tell them apart when nobody says which it is, and prove a cure?

# %%
lesson.conclude(
    f"With one late rank of four, waiting in collectives grows {wait['late'] / wait['healthy']:.0f} times, and the "
    f"transfer itself {transfer['late'] / transfer['healthy']:.2f} times. Without the fault no rank is later than "
    f"{floor:.1f} ms, its own worst step.",
    rules_out="The network: the collectives are long because ranks wait in them.",
    because="Every limit has its sign, and a change is no cure before it is proven.",
    next="08", origin=runs["late"].profile.origin,
)  # fmt: skip

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# It says who is late, not why: look at that rank's host. It takes all ranks to be in one group; where the model itself
# is split over GPUs, there are several: number the collectives by group *and* rank. It trusts the clocks: between nodes
# they may disagree, so read `table.attrs["clocks"]` (the snippet below puts them right by the ends of the all-reduces).
# And a binding changes copies and the host, not kernels: [a study on LUMI][pop] found large differences for copies; for
# some trainings AMD found 2 % or less. Measure yours.
#
# [pop]: https://co-design.pop-coe.eu/experiments/gpu-affinity/lumi.html

# %% [markdown] tags=["given"]
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# {issue all-ranks-write-into-one-file}
# {issue the-tool-profiles-the-launcher}
# {issue two-visibility-variables-hide-every-gpu}
# {issue every-node-is-its-own-master}
# {issue miopen-databases-on-a-network-file-system}
# | RCCL is `rccl_main_kernel` in one file, `ncclDevKernel...` in another | releases differ: search for both |
# {issue several-rocprofv3-reset-a-node-of-mi300a}
# {issue the-start-of-the-profiler-looks-like-communication}
# {issue rccl-of-rocm-72-does-not-find-the-networks-plugin}
# {issue rccl-is-slow-on-mi250x}
#
# More of them, with sources, are in the [list of known issues](../docs/known-issues.md).

# %% [markdown]
# ## At work, without this course
#
# Who waits for whom in any job whose ranks write traces of torch.profiler:
#
# {snippet 07_who_waits.py}
#
# Such traces come from a job. This script is for Slurm; fill in its first lines. As it stands `rocprofv3` is around
# each rank, for the lines of pandas above. For `07_who_waits.py` let the program write its own traces: with the block
# of lesson 14 set `program=(env WATCH=trace python train.py)`, `tool=()` and `expected='trace_rank*.json.gz'`.
#
# {snippet 07_ranks_job.sh}
#
# And this one for PBS with the launcher PALS:
#
# {snippet 07_ranks_job_pbs.sh}

# %% [markdown]
# ## Key points
#
# - One file per rank, with a name that tells the rank. Count the files.
# - A collective is waiting plus transfer; only all ranks together tell the two apart.
# - Work out what the exchange should cost before you blame the network.
# - Some rank always comes last. It is a straggler if it comes later than a healthy run explains.
# - Reduce traces where you read them, and bind ranks to the cores near their GPU.
#
# Next question: can you tell the causes apart blind, and prove a cure?
