# %% [markdown]
# # Sharded training: what does it cost to talk?
#
# A model that doesn't fit one GPU is cut into shards, and each rank keeps one. Before a layer computes, its parameters
# come from the others. Too much talk? Bytes follow from the model, and time from bytes and links.
#
# After this lesson you can
#
# - say what DDP, FSDP2 and HSDP send in a step and hold on a rank, by hand, and find it in a trace;
# - read published tables of collectives: waiting, transfer, bus bandwidth, and what a tool's column means;
# - choose between giving parameters back and keeping them.
#
# You need lessons 00 and 07. Everything runs here, with four processes and `gloo`, PyTorch's library of collectives
# for processors. For GPUs there are a published run and a model.

# %%
import json
import re
import shutil

import pandas as pd

import proflab
import tidyprof
from proflab import exercise, show_table, show_text

lesson = proflab.start("17")
shutil.copy(lesson.file("sharded.py"), lesson.folder)
folder = lesson.folder

# %%
lesson.recall()

# %% [markdown]
# ## The picture to keep in mind
#
# | | each rank holds | and sends in a step |
# | --- | --- | --- |
# | DDP | everything | gradients: an *all-reduce* |
# | FSDP | 1/N of everything | parameters, twice: two *all-gathers*; gradients: a *reduce-scatter* |
# | HSDP | 1/N within a group of N ranks | the same within the group, and an all-reduce between groups |
#
# An *all-gather* gives every rank the parts of all. A *reduce-scatter* adds up what all have and gives each rank one
# part of the sum. One after the other they are an all-reduce. `fully_shard` (FSDP2) makes each layer a *unit*, which is
# gathered ahead (*prefetch*) and given back when it has computed (*reshard*). *Gather* is short for all-gather:
#
# {drawing 17_layers}
#
# ## Predict
#
# Four layers of a small transformer, on four ranks.

# %%
# solution
more_guess, peak_guess, exposed_guess = 100, 25, 20
# end solution
proflab.predict(
    "17.a", more_guess, unit="%", what="what a rank sends more under FSDP than under DDP"
)
proflab.predict(
    "17.b",
    peak_guess,
    unit="%",
    what="the peak of a rank's memory under FSDP, of that under DDP",
)
proflab.predict(
    "17.c",
    exposed_guess,
    unit="%",
    what="the share of a step of Llama 70B on eight MI300X that only talks",
)

# %% [markdown]
# ## Before you measure
#
# `HOW` is `ddp`, `fsdp`, `fsdp_keep` (parameters stay after forward) or `hsdp` (two groups of two).

# %%
print(re.search(r"def prepare.*?(?=\n\n\n)", (folder / "sharded.py").read_text(), re.DOTALL)[0])

# %% [markdown]
# First how fast the ranks exchange a few megabytes, and what a tracker says about memory. `FSDPMemTracker`, a tool of
# PyTorch, plays a step with tensors that have shapes and no data.

# %% language="bash"
# echo "takes about 20 s on two quiet cores"
# cd $FOLDER
# python sharded.py . before 2> before.err

# %%
facts = json.loads((folder / "before0.json").read_text())
columns = "ranks layers layer_parameters parameters"
show_table(pd.DataFrame([facts]), columns, "The model", origin="as built")

# %%
# 4 minutes: how many MB does a rank send in a step under FSDP? Parameters and gradients have four bytes. Of what a
# gather or a reduce-scatter exchanges a rank sends (N-1)/N. `facts` has `ranks` and `parameters`.
q = exercise("17.1", facts)
# solution
passes = 3  # a gather before forward, one before backward, a reduce-scatter of the gradients
answer = passes * (facts["ranks"] - 1) / facts["ranks"] * 4 * facts["parameters"] / 1e6
# end solution
q.check(answer)

# %%
# 3 minutes: how many MB does a rank hold under FSDP at the end of a backward pass, without activations? The optimizer
# is SGD with a momentum: one more number for each parameter.
q = exercise("17.2", facts)
# solution
answer = 3 * 4 * facts["parameters"] / facts["ranks"] / 1e6
# end solution
q.check(answer)

# %% [markdown]
# Of each exchange take the shortest duration on any rank: that is the transfer, and it needs no common clock.


# %%
def exchanges_s(moment, name):  # the shortest on any rank of each exchange
    files = sorted(folder.glob(f"{moment}?.json"))
    return pd.DataFrame([json.loads(file.read_text())["ping"][name] for file in files]).min()


KINDS = ("all_gather", "reduce_scatter")
share = (facts["ranks"] - 1) / facts["ranks"]
moved = share * facts["ping"]["bytes"]
rates = {kind: moved / exchanges_s("before", kind).median() for kind in KINDS}
once = share * 4 * facts["parameters"]
gather_ms, scatter_ms = (1e3 * once / rates[kind] for kind in KINDS)
expected_ms = {"fsdp": 2 * gather_ms + scatter_ms, "fsdp_keep": gather_ms + scatter_ms}
show_text(
    f"A gather runs at {rates['all_gather'] / 1e9:.2f} GB/s here and a reduce-scatter at "
    f"{rates['reduce_scatter'] / 1e9:.2f} GB/s. So a step of FSDP should talk for "
    f"{expected_ms['fsdp']:.0f} ms, and one that keeps its parameters for "
    f"{expected_ms['fsdp_keep']:.0f} ms."
)

# %% [markdown]
# ## Capture

# %% language="bash"
# echo "takes about 20 s on two quiet cores"
# cd $FOLDER
# python sharded.py . train 2> train.err

# %% [markdown]
# ## Bytes by hand, bytes in the trace
#
# With RCCL a trace has each collective as a kernel, with its size (lesson 07). With gloo it has the call `c10d::...`,
# whose input shapes have the size, and what gloo does below, `gloo:...`. Take the bytes from the calls: gloo (torch
# 2.15) makes a reduce-scatter of an all-reduce of the whole, which sends twice as much, and of a gather it shows the
# part that one rank puts in.

# %%
HOW = ("ddp", "fsdp", "fsdp_keep", "hsdp")
traces = {
    how: [tidyprof.read(folder / how / f"rank{rank}.json") for rank in range(facts["ranks"])]
    for how in HOW
}


def calls_of(profile):
    events = profile.events[profile.events["name"].str.startswith("c10d::")]
    largest = [max(map(int, re.findall(r"\d+", shape))) for shape in events["input_shapes"]]
    return pd.DataFrame(
        {"call": events["name"].str.removeprefix("c10d::"), "bytes": [4 * each for each in largest]}
    )


# %%
counted = calls_of(traces["fsdp"][0]).groupby("call", as_index=False)["bytes"].agg(["size", "sum"])
counted = counted.rename(columns={"size": "calls"}).assign(MB=counted["sum"] / 1e6)
title, MEASURED = "Rank 0 under FSDP, one step", "measured: gloo, four processes"
show_table(counted, "call calls MB", title, origin=MEASURED)

# %%
talks = r"FSDP::(?:all_gather|post_backward_reduce) \("  # without copies and waits
ranges = traces["fsdp"][0].events.query("name.str.match(@talks) and device.isna()")
print(*ranges.sort_values("start_ns")["name"], sep="\n")

# %% [markdown]
# `FSDP::all_gather` is the gather of a unit, and `post_backward_reduce` the reduce-scatter of its gradients. The number
# is that of the unit, from 0. The backward pass begins with unit 3. Unit 2
# is gathered before the gradients of unit 3 leave: that is the prefetch.
#
# In bytes that a rank sends:

# %%
PASSES = {"allreduce_": 2, "_allgather_base_": 1, "_reduce_scatter_base_": 1}


def sent_mb(how):
    size = 2 if how == "hsdp" else facts["ranks"]  # each of its groups has two
    calls = calls_of(traces[how][0])
    return float((calls["call"].map(PASSES) * calls["bytes"]).sum() * (size - 1) / size / 1e6)


by_hand = {"ddp": 2 * once, "fsdp": 3 * once, "fsdp_keep": 2 * once}
# Within a pair; half of the gradients between.
by_hand["hsdp"] = 4 * facts["parameters"] * (3 * 1 / 2 + 2 * 1 / 2 / 2)
compared = pd.DataFrame(
    [{"how": how, "by_hand_mb": by_hand[how] / 1e6, "traced_mb": sent_mb(how)} for how in HOW]
)
show_table(compared, " ".join(compared), "What a rank sends in a step", origin=MEASURED)
more = 100 * (sent_mb("fsdp") / sent_mb("ddp") - 1)

# %% [markdown]
# ## Time: expected, then measured
#
# Four processes share this machine's cores, and gloo's bytes pass through them: the exchanges were tried again after
# the training. Where the third quartile of all tries is one and a half times the first or more, the rates are no rates.


# %%
def each_ms(profile):
    gloo = profile.events[profile.events["name"].str.startswith("gloo:")].sort_values("start_ns")
    return gloo["duration_ns"].to_numpy() / 1e6


def quiet(kind):
    tries = pd.concat([exchanges_s(moment, kind) for moment in ("before", "rank")])
    return tries.quantile(0.75) < 1.5 * tries.quantile(0.25)


times = pd.DataFrame({"how": list(expected_ms), "expected_ms": list(expected_ms.values())})
times["measured_ms"] = [pd.DataFrame(map(each_ms, traces[how])).min().sum() for how in times["how"]]
if all(map(quiet, KINDS)):
    show_table(times, " ".join(times), "Transfer in a step", origin=MEASURED)
else:
    show_text(
        "Measured times scatter too much to tell what a step should take. Repeat this on a quiet "
        "machine. The bytes hold."
    )

# %% [markdown]
# What carries over to a job on GPUs are the bytes, not the times: divide them by the bandwidth of *its* links. Nor does
# the overlap: here the host waits in `FSDP::all_gather`; on a GPU it goes on, and the gather runs on a stream of its
# own beside the layer before.
#
# ## Memory: predicted, then measured
#
# Measured is what the tensors of rank 0 hold before a step, and the most that the step allocates on top
# (`profile_memory=True`).


# %%
def peak_mb(how):
    held = json.loads((folder / "rank0.json").read_text())[how]["held_before_a_step"]
    counters = traces[how][0].counters
    return (held + counters.loc[counters["name"] == "allocated memory", "value"].max()) / 1e6


# %%
predicted = json.loads((folder / "predicted.json").read_text())
rows = [
    {
        "how": how,
        "held_mb": json.loads((folder / "rank0.json").read_text())[how]["held"] / 1e6,
        "predicted_peak_mb": predicted[how]["Total"] / 1e6 if how in predicted else None,
        "measured_peak_mb": peak_mb(how),
    }
    for how in HOW
]
memory = pd.DataFrame(rows)
memory["off_percent"] = 100 * (memory["measured_peak_mb"] / memory["predicted_peak_mb"] - 1)
show_table(
    memory,
    " ".join(memory),
    "Memory of rank 0",
    origin="predicted: FSDPMemTracker; measured: four processes",
)

# %% [markdown]
# Leave at least as much room as the tracker is off. It has no prediction for DDP.
#
# One layer is a quarter of this model, so one gathered layer weighs as much as all parameters that a rank keeps. So do
# the buffers of gather and reduce-scatter. That is why the peak is far above what FSDP holds. With 80 layers, a gathered
# layer is only an 80th of the model.
#
# Parameters that stay cost memory at the peak, and save talk. HSDP holds twice as much as FSDP, and its gathers stay
# within a pair: on a cluster, within a node.
#
# ## Trap: slow by a column
#
# Now eight MI300X. AMD publishes traces of Llama 70B under FSDP2, two steps of each rank, and what its tool TraceLens
# makes of them. They are no official figures. `transfer_us` is the shortest duration on any rank, `skew_us` the time
# from the first rank's start to the last one's.

# %%
published = pd.read_csv(lesson.file("published_collectives.csv"), comment="#")
PUBLISHED = "published: AMD, TraceLens, Llama 70B on eight MI300X"
show_table(published, " ".join(published), "Collectives of two steps", origin=PUBLISHED)
LAYER, WHOLE = 855_654_400, 70_553_706_496  # parameters of a layer, and of Llama 3 70B
part = LAYER * 2 / 8 / 2**20
show_text(
    f"Do the bytes fit? A layer of Llama 3 70B has {LAYER:,} parameters. In "
    f"bfloat16 an eighth of them is {part:.4f} MiB, and the table says "
    f"{published['in_mib'][0]:.4f}. Gradients leave in float32: "
    f"{LAYER * 4 / 2**20:.4f} MiB."
)
# %% [markdown]
# *Bus bandwidth* is what a rank sends over the time of the transfer: compare it with the links. By the tool's own
# column `tool_bus` the gather of a layer is eight times slower than its reduce-scatter. Is it?

# %%
# 5 minutes: at which bus bandwidth, in GB/s (10^9 bytes a second), is a layer gathered? `in_mib` is what one rank puts
# in, in MiB; each gets the parts of the seven others.
q = exercise("17.3", published)
# solution
layer = published.iloc[0]
answer = 7 * layer["in_mib"] * 2**20 / (layer["transfer_us"] * 1e-6) / 1e9
# end solution
q.check(answer)

# %%
links = pd.read_csv(lesson.file("links.csv"), comment="#").iloc[0]
rated, usable = (links["links"] * links[name] for name in ("rated_gb_per_s", "usable_gb_per_s"))
gathers = published["collective"] == "all-gather"
sent_bytes = published["in_mib"] * 2**20 * gathers.map({True: 7, False: 7 / 8})
published["bus_gb_per_s"] = sent_bytes / published["transfer_us"] / 1e3
published["of_usable_percent"] = 100 * published["bus_gb_per_s"] / usable
columns = "collective unit bus_gb_per_s of_usable_percent"
show_table(published, columns, "Against the links", origin=PUBLISHED)
show_text(f"{links['links']:.0f} links, together {rated:.0f} GB/s; usable are {usable:.0f} GB/s.")

# %% [markdown]
# The GPU computes beside these transfers. So the links are well used: there is no fault in them.
#
# ## Waiting, or transfer?
#
# Of the tool's table of ranks three of eight are published.

# %%
ranks = pd.read_csv(lesson.file("published_ranks.csv"), comment="#")
ranks["waiting_percent"] = 100 * ranks["wait_us"] / ranks["collectives_us"]
columns = "rank wait_s collectives_s waiting_percent arrived_last came_first calls"
show_table(ranks, columns, "Ranks of the same run", origin=PUBLISHED)
skew_s = (published["calls"] * published["skew_us"]).sum() / 1e6
show_text(f"All skews of the collectives add up to {skew_s:.1f} s.")

# %% [markdown]
# Rank 0 comes first mostly, and waits: who reads its trace alone takes the network for several times slower than it is.
# Its waiting and the skews agree.

# %%
run = pd.read_csv(lesson.file("published_timeline.csv"), comment="#").iloc[0]
columns = " ".join(run.index).replace("_ms", "_s")
show_table(run.to_frame().T, columns, "Rank 0, two steps", origin=PUBLISHED)

# %%
# 3 minutes: if communication took no time at all, by how many percent would this run be shorter? Take it that what is
# computed gets no faster.
slow = ranks.set_index("rank").loc[4, ["arrived_last", "calls"]]
q = exercise("17.4", pd.concat([run, slow]))
# solution
answer = 100 * run["exposed_communication_ms"] / run["total_ms"]
# end solution
q.check(answer)

# %% [markdown]
# ## The same step in the model
#
# The course's model plays this step on eight MI300X: matrix products, attention and the copies of FSDP on one stream,
# gathers and reduce-scatters on a second one. How fast these are comes from an all-reduce of *four* MI300X and the
# number of links ([what the model assumes](../docs/gpumodel.md)).

# %%
knobs = pd.read_csv(lesson.file("modeled_knobs.csv"), comment="#")
knobs["held_gb"] = (16 / 8 + 2 * knobs.pop("whole_parameters")) * WHOLE / 1e9
exposed = 100 * run["exposed_communication_ms"] / run["total_ms"]
knobs.loc[len(knobs)] = ["published run", run["total_ms"] / 2e3, exposed, None]
title = "Length of the step, exposed talk, parameters and states on a GPU"
MODELED = (
    "modeled: MI300X, error: kernel time -3 %, one kernel ±7 % (worst +38 %), collectives -25 %"
)
origin = f"{MODELED}; {PUBLISHED}"
show_table(knobs, " ".join(knobs), title, origin=origin)

# %% [markdown]
# The published run has the optimizer in it, and a slow rank 4; the model has neither. Its errors are those of AMD's
# ResNet on four MI300X.
#
# A knob that moves hidden time moves nothing: leave this job as it is. Parameters that stay would save nothing, and a
# GPU would hold, before any activation, more than an MI300X has.
#
# ## Decide
#
# | you see | turn |
# | --- | --- |
# | exposed gathers in the backward pass, memory to spare | `reshard_after_forward=False` |
# | exposed gathers in the forward pass, a busy host | `set_modules_to_forward_prefetch` |
# | gathers slow between nodes, fast within | HSDP: a mesh of two dimensions |
# | out of memory | more ranks in a group, or recompute activations (lesson 11) |
# | long collectives, little exposed | nothing: look who comes last (lesson 07) |

# %%
proflab.reveal("17.a", more, MEASURED)
peaks = memory.set_index("how")
share_of_ddp = peaks["measured_peak_mb"]["fsdp"] / peaks["measured_peak_mb"]["ddp"]
proflab.reveal("17.b", 100 * share_of_ddp, "measured: four processes")
proflab.reveal("17.c", 100 * run["exposed_communication_ms"] / run["total_ms"], PUBLISHED)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# - Overlap: on a processor there is none. Only a trace of the real GPUs shows what is exposed.
# - What a collective takes from the products beside it: its kernel uses compute units and memory of the same GPU. The
#   model leaves that out.
# - Several nodes: neither the published run nor the model has any.
# - Memory of a GPU that no tensor holds: caches of the allocator, buffers of RCCL (lesson 11).
#
# See the [list of known issues](../docs/known-issues.md#several-ranks).

# %% [markdown]
# ## At work, without this course
#
# Gathers and reduce-scatters of any job on GPUs whose ranks write traces of torch.profiler: bus bandwidth, and how much
# is waiting. The traces of this lesson have no kernels, so it finds nothing in them.
#
# {snippet 17_sharded.py}

#
# Next question: yours.
