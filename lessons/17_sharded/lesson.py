# %% [markdown]
# # What does sharded training cost?
#
# A network that doesn't fit on one GPU is split into *shards*, and each rank keeps one shard. Before a rank can compute
# a layer, it has to collect the layer's parameters from the other ranks. This lesson shows how many bytes, how much
# memory and how much time this takes.
#
# After this lesson, you can:
#
# - compute what each rank sends per step and holds in memory under DDP, FSDP2 and HSDP, and check both in a trace;
# - read waiting time, transfer time and bus bandwidth from a published table of collectives, and check what a column
#   means;
# - decide whether FSDP should free or keep the parameters after the forward pass.
#
# **Before you start:** complete lessons 00 and 07. Everything runs on your CPU, where four processes communicate
# through `gloo`, PyTorch's communication library for CPUs. The GPU numbers come from a published run and from a GPU
# model.

# %%
import json
import re
import shutil

import pandas as pd

import proflab
import tidyprof
from proflab import exercise, show_figure, show_table, show_text
from tidyprof import Origin, plots

lesson = proflab.start("17")
shutil.copy(lesson.file("sharded.py"), lesson.folder)
folder, MEASURED = lesson.folder, Origin("measured", "gloo, four processes")

# %%
lesson.recall()

# %% [markdown]
# ## The picture to keep in mind
#
# | | each rank holds | each rank sends per step |
# | --- | --- | --- |
# | DDP | the whole model | its gradients, in an *all-reduce* |
# | FSDP | 1/N of everything | the parameters in two *all-gathers*, and the gradients in a *reduce-scatter* |
# | HSDP | 1/N of everything, in each group of N ranks | the same as under FSDP within its group, plus the gradients in an all-reduce between groups |
#
# - An *all-gather* (*gather* for short) collects the parts of all ranks on every rank.
# - A *reduce-scatter* adds up the data of all ranks and gives each rank one part of the sum. A reduce-scatter followed
#   by an all-gather has the same result as an all-reduce.
# - A *unit* is a layer that FSDP2 (`fully_shard`) gathers as a whole. FSDP2 gathers a unit early (*prefetch*) and frees
#   its parameters after the computation (*reshard*).
#
# {drawing 17_layers}
#
# ## Predict
#
# The first two guesses are about a small transformer with four layers on four ranks.

# %%
# solution
more_guess, peak_guess, exposed_guess = 100, 25, 20
# end solution
more_text = "the extra bytes that a rank sends under FSDP, relative to DDP"
peak_text = "the peak memory of a rank under FSDP, relative to DDP"
exposed_text = (
    "the exposed communication of Llama 70B on eight MI300X, as a share of the step"
)
proflab.predict("17.a", more_guess, unit="%", what=more_text)
proflab.predict("17.b", peak_guess, unit="%", what=peak_text)
proflab.predict("17.c", exposed_guess, unit="%", what=exposed_text)

# %% [markdown]
# ## Compute bytes and memory before you train
#
# `prepare` sets up one of four variants. Set `how` to `ddp`, `fsdp`, `fsdp_keep` (keeps the parameters after the
# forward pass) or `hsdp` (two groups of two ranks).

# %% language="bash"
# sed -n '/^def prepare/,/^$/p' $FOLDER/sharded.py

# %% [markdown]
# PyTorch's `FSDPMemTracker` predicts how much memory a step needs. It runs the step with fake tensors, which have
# shapes but no data.

# %% language="bash"
# echo "takes about 10 s on two quiet cores"
# cd $FOLDER
# python sharded.py . predict 2> predict.err

# %%
prediction = json.loads((folder / "predicted.json").read_text())
facts = prediction["facts"]
columns = "ranks layers layer_parameters parameters"
show_table(pd.DataFrame([facts]), columns, "The model", origin="as built")

# %%
# 4 minutes: how many MB (10^6 bytes) does each rank send per step under FSDP? Each parameter and each gradient takes 4
# bytes. In an all-gather or a reduce-scatter, a rank sends (N-1)/N of the data. Use `facts["ranks"]` and
# `facts["parameters"]`.
q = exercise("17.1", facts)
# solution
# A gather before forward, one before backward, a reduce-scatter of the gradients
passes = 3
answer = passes * (facts["ranks"] - 1) / facts["ranks"] * 4 * facts["parameters"] / 1e6
# end solution
q.check(answer)

# %%
# 3 minutes: how many MB does each rank hold under FSDP at the end of the backward pass, not counting activations? The
# optimizer is SGD with momentum, which stores one more number per parameter.
q = exercise("17.2", facts)
# solution
answer = 3 * 4 * facts["parameters"] / facts["ranks"] / 1e6
# end solution
q.check(answer)

# %% [markdown]
# ## Capture
#
# Now train each variant for a few steps. Every rank records its last step with torch.profiler.

# %% language="bash"
# echo "takes about 20 s on two quiet cores"
# cd $FOLDER
# python sharded.py . train 2> train.err

# %% [markdown]
# ## Compare the bytes with the trace
#
# With RCCL, each collective appears in the trace as a kernel, together with its size (lesson 07). With gloo, each
# collective appears as a `c10d::...` call, whose input shapes give the size.
#
# > **Warning:** Don't take sizes from the `gloo:...` events, which show what gloo does inside a call. In PyTorch 2.15,
# > gloo implements a reduce-scatter as an all-reduce of all the data, which sends twice as many bytes. For a gather,
# > the event shows only one rank's part.

# %%
HOW = ("ddp", "fsdp", "fsdp_keep", "hsdp")
traces = {
    how: tidyprof.read(folder / how / "rank0.json", origin=MEASURED) for how in HOW
}


def calls_of(how):
    events = traces[how].events
    calls = events[events["name"].str.startswith("c10d::")]
    largest = [
        max(map(int, re.findall(r"\d+", shape))) for shape in calls["input_shapes"]
    ]
    names = calls["name"].str.removeprefix("c10d::")
    return pd.DataFrame({"call": names, "mb": [4 * size / 1e6 for size in largest]})


# %%
counted = (
    calls_of("fsdp")
    .groupby("call")["mb"]
    .agg(calls="size", data_mb="sum")
    .reset_index()
)
show_table(
    counted, "call calls data_mb", "Rank 0 under FSDP, one step", origin=MEASURED
)

# %%
events = traces["fsdp"].events
is_transfer = events["name"].str.match(r"FSDP::(?:all_gather|post_backward_reduce) \(")
print(*events[is_transfer].sort_values("start_ns")["name"], sep="\n")

# %% [markdown]
# `FSDP::all_gather` gathers a unit, and `FSDP::post_backward_reduce` sends the unit's gradients. The number in
# parentheses is the unit, counted from 0. The backward pass starts with unit 3. FSDP prefetches unit 2, because it
# gathers this unit before it sends the gradients of unit 3.
#
# The next cell computes how many bytes a rank sends in the calls of each variant.

# %%
PASSES = {"allreduce_": 2, "_allgather_base_": 1, "_reduce_scatter_base_": 1}


def sent_mb(how):
    # Ranks in each group
    size = 2 if how == "hsdp" else facts["ranks"]
    calls = calls_of(how)
    return (calls["call"].map(PASSES) * calls["mb"]).sum() * (size - 1) / size


# %%
whole_mb = 4 * facts["parameters"] / 1e6
share = (facts["ranks"] - 1) / facts["ranks"]
# Within a pair, and half of the gradients between pairs
hsdp = 3 * 1 / 2 + 2 * 1 / 2 / 2
factors = [2 * share, 3 * share, 2 * share, hsdp]
compared = pd.DataFrame(
    {"how": HOW, "computed_mb": [whole_mb * factor for factor in factors]}
)
compared["traced_mb"] = compared["how"].map(sent_mb)
show_table(
    compared,
    " ".join(compared),
    "Data per rank and step, from call sizes",
    origin=MEASURED,
)
more = 100 * (sent_mb("fsdp") / sent_mb("ddp") - 1)

# %% [markdown]
# A GPU job sends the same number of bytes, so divide it by the bandwidth of the *job's* links to estimate the transfer
# time. The durations in this CPU trace don't apply to GPUs, because gloo copies all data through shared CPU cores. On a
# CPU, the host waits inside `FSDP::all_gather`. On a GPU, the host continues, and the gather runs on a separate stream
# while the previous layer computes.
#
# ## Compare the memory with the prediction
#
# `profile_memory=True` records every allocation of the step. The figures show the memory that rank 0 allocates during
# the step, in addition to the parameters and momentum that it already holds.

# %%
for how in ("fsdp", "fsdp_keep"):
    events = traces[how].events
    starts = events[events["name"].str.match("FSDP::pre_|Optimizer.step")].sort_values(
        "start_ns"
    )
    # Until the next pass, or the optimizer
    lengths = starts["start_ns"].diff().shift(-1)
    names = starts["name"].str.removeprefix("FSDP::pre_")
    phases = starts.assign(name=names, duration_ns=lengths)[:-1]
    title = f"{how}: memory that one step allocates"
    use = traces[how].counters.query("name == 'allocated memory'")["value"] / 2**20
    figure = plots.memory(traces[how], ["allocated memory"], title=title, phases=phases)
    peak = use.max()
    show_figure(figure, (f"{peak:.1f} MiB", (use.argmax(), peak), (0.6, 0.85)))

# %% [markdown]
# Under `fsdp`, memory use rises when a unit's parameters arrive and falls when FSDP frees them. Under `fsdp_keep`,
# memory use climbs with every unit of the forward pass and peaks at the last one.

# %%
held = json.loads((folder / "rank0.json").read_text())
memory = pd.DataFrame({"how": HOW})
memory["held_mb"] = [held[how]["held"] / 1e6 for how in HOW]
memory["predicted_peak_mb"] = memory["how"].map(prediction["peak"]) / 1e6
allocated = [
    traces[how].counters.query("name == 'allocated memory'")["value"].max()
    for how in HOW
]
before = [held[how]["held_before_a_step"] for how in HOW]
memory["measured_peak_mb"] = [
    (a + b) / 1e6 for a, b in zip(allocated, before, strict=True)
]
memory["off_percent"] = 100 * (
    memory["measured_peak_mb"] / memory["predicted_peak_mb"] - 1
)
origin = f"predicted: FSDPMemTracker; {MEASURED}"
show_table(memory, " ".join(memory), "Memory of rank 0", origin=origin)

# %% [markdown]
# `FSDPMemTracker` doesn't support DDP, so that prediction is missing. When you plan a job, leave a margin of at least
# the error shown under `off`.
#
# Under FSDP, a rank's peak memory is far above the memory that it holds between steps. One layer is a quarter of this
# network, so one gathered layer needs as much memory as all the parameters that a rank keeps. Each gather or
# reduce-scatter buffer needs as much again.
#
# Keeping the parameters increases peak memory but saves communication. Under HSDP, each rank holds twice as much as
# under FSDP, but its gathers stay within a pair of ranks.
#
# ## Trap: a misleading bandwidth column
#
# The next run is real: eight MI300X GPUs train Llama 70B under FSDP2. AMD published two traced steps of every rank, and
# the tables that its tool TraceLens creates from the traces. AMD provides these files as sample data, not as official
# performance figures.
#
# - `transfer_us` is a collective's shortest duration on any rank. It measures the transfer alone, and doesn't need
#   synchronized clocks.
# - `skew_us` is the time between the first rank's start and the last rank's start.

# %%
published = pd.read_csv(lesson.file("published_collectives.csv"), comment="#")
PUBLISHED = "published: AMD, TraceLens, Llama 70B on eight MI300X"
show_table(published, " ".join(published), "Collectives in two steps", origin=PUBLISHED)

# %%
# Parameters of a layer, and of Llama 3 70B
LAYER, WHOLE = 855_654_400, 70_553_706_496
show_text(
    f"A layer of Llama 3 70B has {LAYER:,} parameters. One eighth of them in bfloat16 "
    f"takes {LAYER * 2 / 8 / 2**20:.4f} MiB, and the table shows "
    f"{published['in_mib'][0]:.4f} MiB. The layer's float32 gradients take "
    f"{LAYER * 4 / 2**20:.4f} MiB."
)

# %% [markdown]
# *Bus bandwidth* is the number of bytes that a rank sends, divided by the transfer time. Compare it with the link
# bandwidth. According to TraceLens (`tool_bus`), a layer's gather has one eighth of the bus bandwidth of its
# reduce-scatter. Is that true?

# %%
# 5 minutes: what is the bus bandwidth of a layer's gather, in GB/s (10^9 bytes per second)? Use `in_mib` and
# `transfer_us` from the first row of `published`. `in_mib` is the size of one rank's part, in MiB. Each rank receives
# the parts of the seven other ranks.
q = exercise("17.3", published)
# solution
layer = published.iloc[0]
answer = 7 * layer["in_mib"] * 2**20 / (layer["transfer_us"] * 1e-6) / 1e9
# end solution
q.check(answer)

# %%
links = pd.read_csv(lesson.file("links.csv"), comment="#").iloc[0]
rated = links["links"] * links["rated_gb_per_s"]
usable = links["links"] * links["usable_gb_per_s"]
parts = published["collective"].map({"all-gather": 7, "reduce-scatter": 7 / 8})
sent_bytes = parts * published["in_mib"] * 2**20
published["bus_gb_per_s"] = sent_bytes / published["transfer_us"] / 1e3
published["of_usable_percent"] = 100 * published["bus_gb_per_s"] / usable
columns = "collective unit bus_gb_per_s of_usable_percent"
show_table(
    published, columns, "Bus bandwidth compared with the links", origin=PUBLISHED
)
show_text(
    f"{links['links']:.0f} links: {rated:.0f} GB/s rated, {usable:.0f} GB/s usable."
)

# %% [markdown]
# Although the GPU computes during these transfers, they run at nearly the usable speed of the links.
#
# ## Waiting or transfer?
#
# AMD published a table with three of the eight ranks:

# %%
ranks = pd.read_csv(lesson.file("published_ranks.csv"), comment="#")
ranks["waiting_percent"] = 100 * ranks["wait_us"] / ranks["collectives_us"]
columns = "rank wait_s collectives_s waiting_percent arrived_last came_first calls"
show_table(ranks, columns, "Ranks in the same run", origin=PUBLISHED)
skew_s = (published["calls"] * published["skew_us"]).sum() / 1e6
show_text(f"The skews of all collectives add up to {skew_s:.1f} s.")

# %% [markdown]
# Rank 0 usually arrives first and waits. Rank 0's trace alone would make the network look several times slower than it
# is.

# %%
run = pd.read_csv(lesson.file("published_timeline.csv"), comment="#").iloc[0]
columns = " ".join(run.index).replace("_ms", "_s")
show_table(run.to_frame().T, columns, "Rank 0, two steps", origin=PUBLISHED)

# %%
# 3 minutes: suppose that communication took no time at all and computation stayed the same. How many milliseconds would
# this run save *per step*? `run` covers two steps. Use its columns that end in `_ms`.
slow = ranks.set_index("rank").loc[4, ["arrived_last", "calls"]]
q = exercise("17.4", pd.concat([run, slow]))
# solution
answer = run["exposed_communication_ms"] / 2
# end solution
q.check(answer)

# %% [markdown]
# ## Would another setting help?
#
# The course's GPU model simulates this step on eight MI300X GPUs. Matrix products, attention and FSDP's copies run on
# one stream, while gathers and reduce-scatters run on another. The GPU model derives the speed of these collectives
# from an all-reduce on *four* MI300X GPUs and the number of links ([what the GPU model
# assumes](../docs/contributors/gpumodel.md)).

# %%
knobs = pd.read_csv(lesson.file("modeled_knobs.csv"), comment="#")
knobs["held_gb"] = (16 / 8 + 2 * knobs.pop("whole_parameters")) * WHOLE / 1e9
exposed = 100 * run["exposed_communication_ms"] / run["total_ms"]
knobs.loc[len(knobs)] = ["published run", run["total_ms"] / 2e3, exposed, None]
title = "Step time, exposed communication, and parameters and states held per GPU"
error = "error: kernel time -3 %, one kernel ±7 % (worst +38 %), collectives -25 %"
origin = f"modeled: MI300X, {error}; {PUBLISHED}"
show_table(knobs, " ".join(knobs), title, origin=origin)

# %% [markdown]
# The published run includes the optimizer and one slow rank (rank 4). The GPU model includes neither. We measured its
# error against AMD's ResNet runs on four MI300X GPUs.
#
# A setting that changes only hidden communication doesn't change the step time, so leave this job's settings alone.
# Keeping the parameters wouldn't save any time. Moreover, even without activations, each GPU would need more memory
# than an MI300X has.
#
# ## Decide
#
# | what you see | what to change |
# | --- | --- |
# | exposed gathers in the backward pass, and spare memory | `reshard_after_forward=False` |
# | exposed gathers in the forward pass, and a busy host | `set_modules_to_forward_prefetch` |
# | gathers that are slow between nodes but fast within a node | HSDP, with a two-dimensional mesh |
# | out of memory | use more ranks per group, or recompute activations (lesson 11) |
# | long collectives, but little exposed communication | nothing; find the rank that arrives last (lesson 07) |

# %%
proflab.reveal("17.a", more, MEASURED)
peaks = memory.set_index("how")["measured_peak_mb"]
proflab.reveal("17.b", 100 * peaks["fsdp"] / peaks["ddp"], MEASURED)
proflab.reveal("17.c", exposed, PUBLISHED)

# %% [markdown]
# ## Three takeaways
#
# - FSDP sends 1.5 times as much data as DDP, but each rank holds only its share of parameters, gradients and states.
# - A collective's duration is waiting plus transfer, so take the shortest duration on any rank as the transfer time.
# - Only exposed communication makes a step longer, so measure that share before you change a setting or buy links.

# %% [markdown] tags=["given"]
# ## What this view can't show
#
# - **Overlap:** a CPU run has none. Only a trace from real GPUs shows which communication is exposed.
# - **Slower computation:** collectives take up compute units and memory bandwidth of the GPU. The GPU model ignores
#   this effect.
# - **Several nodes:** both the published run and the GPU model use only one node.
# - **GPU memory outside tensors:** for example, allocator caches and RCCL buffers (lesson 11).
#
# See the [list of known issues](../docs/known-issues.md#several-ranks).

# %% [markdown]
# ## At work, without this course
#
# This script reads the torch.profiler traces of all ranks of a GPU job. For each gather, reduce-scatter and all-reduce,
# it prints the bus bandwidth and the share of time spent waiting. The script finds nothing in this lesson's CPU traces,
# because they contain no kernels.
#
# {snippet 17_sharded.py}

#
# Next question: yours.
