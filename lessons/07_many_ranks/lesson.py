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
# - tell waiting from transfer in a collective, and name the rank that the others wait for;
# - bind each rank to the cores near its GPU, and read a thousand ranks without a thousand files in memory.
#
# You need lessons 00, 02 and 04. Commands are those of ROCm 7.0 to 7.2; the text says what differs
# elsewhere. Real tools need four GPUs here; without any, stand-ins answer, with files of a modelled MI300X.

# %%
import proflab
import tidyprof
from proflab import exercise, say, show_figure, show_table
from proflab.parts.steady_part import own_run, steady_part
from tidyprof import plots

lesson = proflab.start("07")

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
# A *launcher* starts one process per rank. Here the tool stands *outside* the launcher: its settings pass to the
# processes that `torchrun` starts on the same machine. `%env{RANK}%` becomes the value of the variable `RANK`, which
# `torchrun` sets in each process; `%pid%` is the process number. Name the format, since ROCm 7.0 writes a database
# otherwise. `--marker-trace` with `--roctx` marks the steps. Both runs do the same work; the second has a fault.

# %% language="bash"
# profile="rocprofv3 --kernel-trace --marker-trace --stats --output-format csv --output-file rank%env{RANK}%_pid%pid%"
# train="torchrun --standalone --nproc-per-node 4 -m cifar_train --max-steps 6 --roctx"
# $profile --output-directory runs/07/healthy -- $train 2>&1 | grep -v Opened
# $profile --output-directory runs/07/late -- $train --pathology rank-skew 2>&1 | grep -v Opened
# ls runs/07/late | grep kernel_trace

# %% [markdown]
# A cluster consists of machines called *nodes*. `torchrun` starts ranks only on its own node, so a job on several nodes
# starts it on each, as `scripts/slurm/launch.sh` of the course can do. Or another launcher starts all ranks: `srun`,
# if the cluster shares out its nodes by *Slurm*, or `mpirun` of an *MPI* library. `rocprofv3 ... -- srun ...` would
# profile the launcher only. So the tool stands *inside*, around each rank: `srun -n 4 rocprofv3 ... -- python ...`.
# This works with `torchrun` too, where `--no-python` says that the program is no Python file.
#
# `%rank%` is shorter than `%env{...}%`. But look at the names that two ranks under `torchrun` write:

# %% language="bash"
# torchrun --standalone --nproc-per-node 2 --no-python \
#     rocprofv3 --kernel-trace --output-format csv --output-directory runs/07/inside --output-file rank%rank%_pid%pid% \
#     -- python -m cifar_train --max-steps 2 2>&1 | grep Opened | grep kernel_trace

# %% [markdown]
# Both call themselves `rank0`. `%rank%` asks Slurm's variable first, then those of MPI libraries, and is 0 where none
# is set; `torchrun` sets none of them. The table shows four ranks on two nodes. The same process number may occur on
# both nodes.

# %%
from proflab.parts.rank_names import names_table

names = names_table(["rank%rank%", "rank%rank%_pid%pid%", "rank%env{RANK}%"])
show_table(names, "launcher pattern names files", "What a name becomes, and how many files are left of four")

# %%
# 5 minutes: a text for `--output-file` under mpirun in a Slurm job: each rank gets its own file, whose name tells its
# rank. Open MPI's mpirun sets `OMPI_COMM_WORLD_RANK` for each rank.
q = exercise("07.1", "mpirun in a Slurm job")
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
# `tidyprof.ranks` finds the same collective on every rank. The wait lasts from a rank's own entry to that of the last
# rank, the *transfer* from there to the end.

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
# The healthy run waits too: ranks are never quite equal, and every collective collects the differences.
#
# ## What travels: buckets
#
# torch.profiler also states how many elements (numbers) each collective moves. The course ships four such traces, one
# per rank, of a modelled run with the same fault. DDP fills a bucket up to a size (`bucket_cap_mb`, with a smaller one
# at the start), beginning with the last layers, whose gradients are ready first. So the exchange can hide behind the
# rest of the backward pass.

# %%
from proflab.parts.gradient_buckets import gradient_buckets

shipped = proflab.recording("modelled-rank-skew")
traces = tidyprof.read(shipped.path / "torch", origin=shipped.origin)
buckets = gradient_buckets(traces)
columns = "bucket elements bytes longest_ms transfer_ms"
show_table(buckets, columns, "The all-reduces of one step: longest kernel, and transfer alone")

# %%
# 3 minutes: how many parameters (weights) does the model have, by these buckets? Each has one gradient.
q = exercise("07.2", buckets)
# solution
answer = buckets["elements"].sum()
# end solution
q.check(answer)

# %%
# 5 minutes: at which rate, in GB/s, is the largest bucket exchanged? Bytes per nanosecond are GB per second.
q = exercise("07.3", buckets)
# solution
big = buckets.loc[buckets["bytes"].idxmax()]
answer = big["bytes"] / big["transfer_ns"]
# end solution
q.check(answer)

# %% [markdown]
# ## Who is it? Real GPUs
#
# If AMD's public recording of four MI300 GPUs is at hand, `run` is that one, else the shipped traces. AMD recorded the
# same training, and did not say that a fault was built into it.
#
# In the heat map each column is a collective, each row a rank. In a bright cell the rank waited long; the dot marks the
# rank that came last. The first two collectives of a step are *broadcasts*: rank 0 sends numbers of its batch
# normalisations to all, and need not wait for them. What the map doesn't say: *why* somebody came late.

# %%
there = proflab.try_recording("torch-mi300-ddp-4ranks-fused")
run = tidyprof.read(there.path, origin=there.origin) if there else traces
each = tidyprof.collectives(run, per_rank=True)
show_figure(plots.collectives(each, title="Who waits, and in which collective"))

# %%
# 5 minutes: which rank (its number) do the others wait for? Use `each`: the `duration_ns` of its collectives by `rank`.
q = exercise("07.4", run)
# solution
answer = each.groupby("rank")["duration_ns"].sum().idxmin()
# end solution
q.check(answer)

# %%
# 5 minutes: what share of rank 0's time in collectives is waiting, in percent? `table` has `wait_ns`, `transfer_ns`.
table = tidyprof.ranks(run)
q = exercise("07.5", run)
# solution
row = table.set_index("rank").loc[0]
answer = 100 * row["wait_ns"] / (row["wait_ns"] + row["transfer_ns"])
# end solution
q.check(answer)

# %%
show_figure(plots.ranks(table, title="Where each rank's time goes"))
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
# cluster.

# %%
from tidyprof.analyses import collective_entries
from tidyprof.many import read_many

entries = read_many(sorted((shipped.path / "torch").iterdir()), collective_entries)
last = tidyprof.collectives(entries)["last_rank"].value_counts()
size = entries.memory_usage().sum() / entries["rank"].nunique()
say(
    f"{traces.meta['events_total']:,} events became {len(entries)} rows; of a thousand such ranks a table of "
    f"{1000 * size / 1e6:.1f} MB is left. It still says who came last: rank {last.index[0]}, in {last.iloc[0]} of "
    f"{last.sum()} collectives."
)

# %% [markdown]
# Or record fewer: since ROCm 7.2 `rocprofv3 --profile-mpi-ranks 0,3` lets the other ranks run without the tool. It
# needs variables for rank *and* size, which `srun` and MPI libraries set. But a rank that you don't record may be
# the straggler.
#
# ## On a cluster
#
# `submit_ranks` sends one of the scripts in `scripts/slurm` to Slurm and returns at once. While the job waits in the
# queue, and where there is no Slurm, `profiles` gives the recording instead and says so. Run the cell's last two lines
# again later.

# %%
from proflab.parts.rank_job import submit_ranks

submitted = submit_ranks("torch_profiler", ranks=4, recording=shipped.path / "torch")
result = tidyprof.ranks(submitted.profiles())
show_table(result, "rank computation_ms wait_ms transfer_ms came_last", "The job's ranks")

# %% [markdown]
# ## Binding
#
# A rank may be late because it runs on the wrong cores: far from its GPU, or on cores that another rank uses too.
# *Binding* gives each rank its own. A *NUMA node* is a group of cores and the memory near them, and so a part of a
# node. *Reserved* cores belong to the system, and a job does not get them. The table shows three machines as their
# guides print them, and one MI300X server as an example. Cores differ from server to server, so look at yours with
# `lscpu`.

# %%
from proflab.parts.node_topology import machines, node_topology

show_table(
    machines(), "machine gpu gpus cores_of_gpu_0 cores_of_last_gpu reserved", "Cores near the first and last GPU"
)
node = node_topology("LUMI")
show_table(node.table, "gpu numa_node cores reserved", "A node of LUMI; Frontier's is the same")

# %% [markdown]
# This is the open challenge. The *local rank* counts the ranks of one node: local rank 0 uses GPU 0, local rank 1 uses
# GPU 1, and so on. Give each rank cores near its GPU, none of them reserved or shared, and enough for the rank and its
# two loader processes, one core each. There is more than one right answer. For another machine, give the exercise
# `node_topology("MI300X server")` or `node_topology("Aurora")`.

# %%
# 8 minutes, open: a list with one text per local rank, in their order: its cores, such as "8-15" or "1,2,5".
q = exercise("07.6", node)
# solution
answer = ["49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"]
# end solution
q.check(answer)

# %% [markdown]
# Such a list becomes an option of the launcher: for `srun` one *mask* per rank, a hexadecimal number with a bit for
# each core, for Aurora's `mpiexec` a list. All cores of a mask must belong to the job, so it needs the whole node. It
# takes the place of `--cpus-per-task`, with which Slurm picks the cores itself.
#
# The GPU is chosen apart from that, and only *once*. This trainer takes the GPU with the number of its local rank. For
# that each rank must see all GPUs of its node, by `SLURM_GPU_BIND=none` where the site would hand out one to each; a
# rank that sees a single GPU takes it. Other programs are given one by a variable. If Slurm has set
# `ROCR_VISIBLE_DEVICES=2`, the process sees one GPU, which has the number 0 now, and `HIP_VISIBLE_DEVICES=2` on top of
# it leaves none.
#
# ## Decide
#
# Why the straggler is late chooses the next question. Compare its computation with that of the others. A cure is an
# experiment for the ledger, measured without the tool.


# %%
def decide(run_name, table):
    late, computation = table.attrs["straggler"], table.set_index("rank")["computation_ns"]
    slower = late is not None and computation[late] > 1.1 * computation.drop(late).median()
    cause = "why does its GPU compute longer? (05)" if slower else "what does its host do meanwhile? (03)"
    say(f"{run_name}: " + ("no straggler" if late is None else f"rank {late} comes late. Next: {cause}"))


decide("The late run", compared["late"])
decide("The traces of `run`", table)
first = table[table["rank"] == 0].iloc[0]
proflab.reveal("07.a", 100 * first["wait_ns"] / (first["wait_ns"] + first["transfer_ns"]), run)
proflab.reveal("07.b", buckets["transfer_ns"].sum() / buckets["step"].nunique() / 1e6, traces)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# It says who is late, not why: look at that rank's host. It takes all ranks to be in one group; where the model itself
# is split over GPUs, there are several. It trusts the clocks: between nodes they may disagree, so read
# `table.attrs["clocks"]`. And a binding changes copies and the host, not the kernels: [a study on LUMI][pop] found
# large differences for copies from many ranks; for some trainings AMD's examples found 2 % or less. Measure yours.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# | one file for all ranks | [rank and process number into the name][names] |
# | no kernel in the output | [the tool stood before the launcher: put it inside][inside] |
# | "invalid device ordinal" on all ranks but the first | each rank sees one GPU: it has the number 0 everywhere |
# | the job hangs at its start | [every node is its own master][master]: try one all-reduce before you profile |
# | a job in conv2d ends with `miopenStatusInternalError` | [MIOpen's databases belong on the node's own disk][miopen] |
# | RCCL is `rccl_main_kernel` in one file, `ncclDevKernel...` in another | releases differ: search for both |
#
# More of them, with sources, are in the [list of known issues](../docs/known-issues.md).
#
# [pop]: https://co-design.pop-coe.eu/experiments/gpu-affinity/lumi.html
# [names]: https://github.com/ROCm/rocm-systems/pull/7472
# [inside]: https://github.com/ROCm/rocm-systems/issues/1102
# [master]: https://github.com/pytorch/pytorch/issues/76069
# [miopen]: https://github.com/ROCm/MIOpen/issues/2214

# %% [markdown]
# ## Key points
#
# - One file per rank, with a name that tells the rank. Count the files.
# - A collective is waiting plus transfer; only all ranks together tell the two apart.
# - The rank with the shortest collectives and the least busy GPU is the one that all wait for.
# - Reduce traces where you read them, and bind ranks to the cores near their GPU.
#
# Next question: what is wrong with a run about which you know nothing?
