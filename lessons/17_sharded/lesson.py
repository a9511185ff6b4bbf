# %% [markdown]
# # Sharded training: what does it cost to talk?
#
# A model that doesn't fit one GPU is cut into shards, and each rank keeps one. Before a layer computes, its parameters
# have to come from the others. Is that too much talk? You can say so before you measure: bytes follow from the model,
# and time from bytes and links.
#
# After this lesson you can
#
# - say what DDP, FSDP2 and HSDP send in a step and hold on a rank, by hand, and find it in a trace;
# - predict the memory of a rank without the memory;
# - read published tables of collectives: waiting, transfer, bus bandwidth, and what a tool's column means;
# - choose between giving parameters back and keeping them.
#
# You need lessons 00 and 07. Everything runs here, with four processes and `gloo`, PyTorch's library of collectives
# for processors. GPUs come from a published run and from the course's model of an MI300X.

# %%
import json
import re
import shutil

import pandas as pd

import proflab
import tidyprof
from gpumodel import ShardedStep, simulate
from gpumodel.truth import profile_of
from proflab import exercise, say, show_figure, show_table
from tidyprof import plots

lesson = proflab.start("17")
folder = lesson.folder
shutil.copy(lesson.file("sharded.py"), folder)

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
# gathered before its forward pass and given back after it (*reshard*). The backward pass gathers it again.
#
# | time | computes | talks |
# | --- | --- | --- |
# | forward, layer 1 | layer 1 | gather layer 2 |
# | backward, layer 2 | layer 2 | gather layer 1 ahead (*prefetch*) |
# | backward, layer 1 | layer 1 | scatter the gradients of layer 2 |
#
# To *scatter* is short for reduce-scatter, from here on, and to *gather* for all-gather.
#
# ## Predict
#
# Four layers of a small transformer, on four ranks.

# %%
# solution
more_guess, apart_guess, exposed_guess = 100, 50, 20
# end solution
proflab.predict(
    "17.a", more_guess, unit="%", what="what a rank sends more under FSDP than under DDP"
)
proflab.predict(
    "17.b",
    apart_guess,
    unit="%",
    what="how far bytes / bandwidth is from the measured time, at worst",
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
# This makes the three. `HOW` is `ddp`, `fsdp`, `fsdp_keep` (parameters stay after forward) or `hsdp` (two groups of
# two).

# %%
print(re.search(r"def prepare.*?(?=\n\n\n)", (folder / "sharded.py").read_text(), re.DOTALL)[0])

# %% [markdown]
# First what needs no training: how fast the ranks exchange a few megabytes, and what a tracker says about memory.
# `FSDPMemTracker`, a tool of PyTorch, plays a step with tensors that have shapes and no data.

# %% language="bash"
# echo "takes about 20 s on two quiet cores"
# cd $FOLDER
# python sharded.py . before 2> before.err && ls before*.json predicted.json

# %%
facts = json.loads((folder / "before0.json").read_text())
ping = facts["ping"]
show_table(
    pd.DataFrame([facts]),
    "ranks layers layer_parameters parameters",
    "The model",
    origin="as built",
)

# %%
# 4 minutes: how many MB does a rank send in a step under FSDP? Parameters and gradients have four bytes. Of what is
# gathered or scattered a rank sends (N-1)/N. `facts` has `ranks` and `parameters`.
q = exercise("17.1", facts)
# solution
passes = 3  # gather before forward, gather before backward, scatter the gradients
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
# Now time. Rates first: of each exchange the median.

# %%
sent = (facts["ranks"] - 1) / facts["ranks"] * ping["bytes"]
rates = {name: sent / pd.Series(ping[name]).median() for name in ("all_gather", "reduce_scatter")}
once = (facts["ranks"] - 1) / facts["ranks"] * 4 * facts["parameters"]
expected_ms = {
    "fsdp": 1e3 * once * (2 / rates["all_gather"] + 1 / rates["reduce_scatter"]),
    "fsdp_keep": 1e3 * once * (1 / rates["all_gather"] + 1 / rates["reduce_scatter"]),
}
say(
    f"A gather runs at {rates['all_gather'] / 1e9:.2f} GB/s here and a scatter at "
    f"{rates['reduce_scatter'] / 1e9:.2f} GB/s. So a step of FSDP should talk for "
    f"{expected_ms['fsdp']:.0f} ms, and one that keeps its parameters for "
    f"{expected_ms['fsdp_keep']:.0f} ms."
)

# %% [markdown]
# ## Capture

# %% language="bash"
# echo "takes about 20 s on two quiet cores"
# cd $FOLDER
# python sharded.py . train 2> train.err && ls ddp fsdp fsdp_keep hsdp

# %% [markdown]
# ## Bytes by hand, bytes in the trace
#
# With RCCL a trace has each collective as a kernel, with its size (lesson 07). With gloo it has the call `c10d::...`,
# whose input shapes have the size, and what gloo does below, `gloo:...`.

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
fsdp_calls = calls_of(traces["fsdp"][0])
counted = (
    fsdp_calls.groupby("call")["bytes"]
    .agg(["size", "sum"])
    .reset_index()
    .rename(columns={"size": "calls"})
)
counted["MB"] = counted["sum"] / 1e6
show_table(
    counted, "call calls MB", "Rank 0 under FSDP, one step", origin="measured: gloo, four processes"
)

# %%
talks = r"FSDP::(?:all_gather|post_backward_reduce) \("  # without copies and waits
ranges = (
    traces["fsdp"][0]
    .events.query("name.str.match(@talks) and device.isna()")
    .sort_values("start_ns")
)
ranges = ranges.assign(start_ms=(ranges["start_ns"] - ranges["start_ns"].min()) / 1e6)
ranges["ms"] = ranges["duration_ns"] / 1e6
show_table(
    ranges,
    "name start_ms ms",
    "FSDP’s own ranges: what talks in a step",
    rows=len(ranges),
    origin="measured: gloo, four processes",
)

# %% [markdown]
# `FSDP::all_gather` is the gather of a unit, and `post_backward_reduce` scatters its gradients. The number is that of
# the unit, from 0. Forward, the units are gathered in order. Then the backward pass begins with unit 3. Unit 2 is
# gathered before the gradients of unit 3 are scattered: that is the prefetch.
#
# All of it as bytes that a rank sends:

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
show_table(
    compared,
    " ".join(compared),
    "What a rank sends in a step",
    origin="measured: gloo, four processes",
)
more = 100 * (sent_mb("fsdp") / sent_mb("ddp") - 1)

# %% [markdown]
# ## Trap: what runs below the call
#
# That is what the calls ask for. What does gloo do?

# %%
events = json.loads((folder / "fsdp" / "rank0.json").read_text())["traceEvents"]
below = pd.DataFrame(
    [
        {"call": event["name"], "bytes": 4 * event["args"]["Input Dims"][0][0]}
        for event in events
        if event["name"].startswith("gloo:")
    ]
)
below = (
    below.groupby("call")["bytes"]
    .agg(["size", "sum"])
    .reset_index()
    .rename(columns={"size": "calls"})
)
below["MB"] = below["sum"] / 1e6
show_table(
    below, "call calls MB", "What gloo gets to do, FSDP", origin="measured: gloo, four processes"
)

# %%
part_mb, whole_mb = (
    table.set_index("call")["MB"][name]
    for table, name in ((below, "gloo:all_gather"), (counted, "_allgather_base_"))
)
say(
    f"gloo’s gathers have {part_mb:.1f} MB, their calls {whole_mb:.1f}. Both are right: gloo shows "
    f"what one rank puts in, 1/{whole_mb / part_mb:.0f} of the whole. The scatters are another "
    "matter."
)

# %%
# 3 minutes: how many MB does a rank really send for the scatters of a step? gloo makes each an all-reduce of the whole.
q = exercise("17.3", fsdp_calls)
# solution
scattered = fsdp_calls.loc[fsdp_calls["call"] == "_reduce_scatter_base_", "bytes"].sum()
answer = 2 * (facts["ranks"] - 1) / facts["ranks"] * scattered / 1e6
# end solution
q.check(answer)

# %% [markdown]
# The rate of the scatter above was measured with the same gloo, so the expected time holds it already.
#
# ## Time: expected, then measured
#
# A rank that comes early waits inside the call. So of each collective take the shortest duration on any rank, as tools
# for such tables do. It needs no common clock.


# %%
def each_ms(profile):
    gloo = profile.events[profile.events["name"].str.startswith("gloo:")].sort_values("start_ns")
    return gloo["duration_ns"].to_numpy() / 1e6


def shortest_ms(how):
    return float(pd.DataFrame([each_ms(profile) for profile in traces[how]]).min().sum())


rows = [
    {"how": how, "expected_ms": expected_ms[how], "measured_ms": shortest_ms(how)}
    for how in expected_ms
]
times = pd.DataFrame(rows)
show_table(times, " ".join(times), "Transfer in a step", origin="measured: gloo, four processes")

# %%
apart = 100 * abs(times.set_index("how")["expected_ms"] / times.set_index("how")["measured_ms"] - 1)
fewer, shorter = (
    100 * (1 - keep / give)
    for give, keep in ((sent_mb("fsdp"), sent_mb("fsdp_keep")), times["measured_ms"])
)
say(
    f"Expected and measured differ by {apart['fsdp']:.0f} % for FSDP and by "
    f"{apart['fsdp_keep']:.0f} % where parameters stay, which sends {fewer:.0f} % fewer bytes."
)
say(
    f"Keeping them took {shorter:.0f} % less time."
    if shorter > 0
    else "Keeping them saved no time here: on shared cores the noise of single exchanges is larger "
    "than that."
)
say(
    "Four processes share the cores of this machine, and gloo’s bytes pass through them, too. "
    "Trust the bytes, and of the times the order of magnitude. With its waiting, rank 0 spends "
    f"{each_ms(traces['fsdp'][0]).sum():.0f} ms in collectives under FSDP."
)

# %%
# 2 minutes: what of this carries over to a job on GPUs: "the bytes", "the times" or "the overlap"?
q = exercise("17.4", fsdp_calls)
# solution
answer = "the bytes"
# end solution
q.check(answer)

# %% [markdown]
# gloo overlaps otherwise than RCCL. Here `FSDP::all_gather` lasts until the parameters are there, and the host waits.
# On a GPU the host goes on, and the gather runs on a stream of its own beside the layer before.
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
show_table(
    memory,
    " ".join(memory),
    "Memory of rank 0",
    origin="predicted: FSDPMemTracker; measured: four processes",
)
kept = pd.DataFrame(predicted)[["fsdp", "fsdp_keep"]].drop("Total") / 1e6
kept = kept[kept.max(axis=1) > 0].reset_index(names="what")
show_table(
    kept, "what fsdp fsdp_keep", "At the predicted peak, in MB", origin="predicted: FSDPMemTracker"
)

# %%
peaks = memory.set_index("how")
off = (peaks["measured_peak_mb"] / peaks["predicted_peak_mb"] - 1).dropna() * 100
say(
    f"The measured peaks are {off.min():+.0f} to {off.max():+.0f} % from what the tracker says: "
    "leave at least that much room. It has no prediction for DDP."
)
moments = {how: "backward" if predicted[how]["Sharded Grad"] else "forward" for how in expected_ms}
say(
    "The second table’s columns may be of different moments. Under `fsdp` the peak is in the "
    f"{moments['fsdp']} pass, under `fsdp_keep` in the {moments['fsdp_keep']} pass: only a peak in "
    "the backward pass holds gradients."
)

# %%
hsdp = 100 * (peaks["measured_peak_mb"]["hsdp"] / peaks["measured_peak_mb"]["ddp"] - 1)
say(
    f"One layer is 1/{facts['layers']} of this model, so one gathered layer weighs as much as all "
    f"parameters that a rank keeps, {predicted['fsdp']['Sharded Param'] / 1e6:.1f} MB. So do the "
    "buffers of gather and scatter. That is why the peak under FSDP is far above what it holds, "
    f"and HSDP’s {hsdp:+.0f} % from DDP’s. With 80 layers, a gathered layer is only an 80th of the "
    "model."
)
say(
    "To keep the parameters costs "
    f"{peaks['measured_peak_mb']['fsdp_keep'] - peaks['measured_peak_mb']['fsdp']:.1f} MB more at "
    f"the peak and saves {compared['traced_mb'][1] - compared['traced_mb'][2]:.1f} MB of talk. "
    "HSDP holds twice as much as FSDP, and its gathers stay within a pair: on a cluster, within "
    "a node."
)

# %% [markdown]
# ## Eight MI300X: a published run
#
# AMD publishes eight traces of Llama 70B under FSDP2, two steps of each, and what its tool TraceLens makes of them.
# They are there to try the tool with, and no official figures. `transfer_us` is the shortest duration on any rank,
# `skew_us` the time from the first rank's start to the last one's.

# %%
published = pd.read_csv(lesson.file("published_collectives.csv"), comment="#")
PUBLISHED = "published: AMD, TraceLens, Llama 70B on eight MI300X"
show_table(published, " ".join(published), "Collectives of two steps", origin=PUBLISHED)
llama = ShardedStep()
part = llama.layer_parameters * 2 / 8 / 2**20
say(
    f"Do the bytes fit? A layer of Llama 3 70B has {llama.layer_parameters:,} parameters. In "
    f"bfloat16 an eighth of them is {part:.4f} MiB, and the table says "
    f"{published['in_mib'][0]:.4f}. Gradients are scattered in float32: "
    f"{llama.layer_parameters * 4 / 2**20:.4f} MiB."
)
by_rule = 2 * 2 * llama.layers
say(
    f"Two gathers of each of {llama.layers} layers in two steps would be {by_rule}. There are "
    f"{by_rule - published['calls'][0]} fewer, one a step: one layer stays between forward and "
    "backward. The last one needn’t be given back, as the backward pass begins with it (your run "
    "gave it back: unit 3 is gathered twice in a row). The root (embedding and head) stays by "
    "default, so it is gathered once a step."
)

# %% [markdown]
# *Bus bandwidth* is what a rank sends over the time of the transfer: compare it with the links. By the tool's own
# column `tool_bus` the gather of a layer is eight times slower than its scatter. Is it?

# %%
# 5 minutes: at which bus bandwidth, in GB/s (10^9 bytes a second), is a layer gathered? `in_mib` is what one rank puts
# in, in MiB; each gets the parts of the seven others.
q = exercise("17.5", published)
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
published["bus_gb_s"] = sent_bytes / published["transfer_us"] / 1e3
published["of_usable"] = 100 * published["bus_gb_s"] / usable
show_table(
    published,
    "collective unit bus_gb_s of_usable",
    "Against the links; in % of the usable",
    origin=PUBLISHED,
)
say(
    f"Each GPU has {links['links']:.0f} links, rated at {rated:.0f} GB/s together, of which "
    f"{usable:.0f} GB/s are usable. These transfers reach {published['of_usable'].min():.0f} to "
    f"{published['of_usable'].max():.0f} % of that, while the GPU computes beside them. The links "
    "are well used: there is no fault in the links."
)

# %% [markdown]
# ## Waiting, or transfer?
#
# The tool has a table of ranks, too. Three of eight are published.

# %%
ranks = pd.read_csv(lesson.file("published_ranks.csv"), comment="#")
show_table(ranks, " ".join(ranks), "Ranks of the same run", origin=PUBLISHED)
more_calls = ranks["collectives"].max() - published["calls"].sum()
total_skew = (published["calls"] * published["skew_us"]).sum() / 1e6
say(
    f"A rank has {ranks['collectives'].max()} collectives, the table above "
    f"{published['calls'].sum()}: it leaves out {more_calls} all-reduces, each below 0.01 MiB."
)
say(
    f"All skews of the table above add up to {total_skew:.1f} s. Rank 0 comes first mostly, and "
    f"waits for {ranks['wait_us'].max() / 1e6:.1f} s: the two agree."
)
say(
    "A skew compares starts on different ranks, so it needs clocks that agree, as within a node. "
    "And profilers don’t start at the same moment: the skew of the first collectives may be that. "
    "The shortest duration needs neither."
)

# %%
# 2 minutes: which share of rank 0's time in collectives is waiting, in percent?
q = exercise("17.6", ranks)
# solution
row = ranks.set_index("rank").loc[0]
answer = 100 * row["wait_us"] / row["collectives_us"]
# end solution
q.check(answer)

# %%
run = pd.read_csv(lesson.file("published_timeline.csv"), comment="#").iloc[0]
show_table(run.to_frame().T, " ".join(run.index), "Rank 0, two steps", origin=PUBLISHED)

# %%
# 3 minutes: if communication took no time at all, by how many percent would this run be shorter? Take it that what is
# computed gets no faster.
slow = ranks.set_index("rank").loc[4, ["came_last", "collectives"]]
q = exercise("17.7", pd.concat([run, slow]))
# solution
answer = 100 * run["exposed_communication_ms"] / run["total_ms"]
# end solution
q.check(answer)

# %% [markdown]
# ## The same step in the model
#
# The course's model plays this step on eight MI300X: matrix products, attention and the copies of FSDP on one stream,
# gathers and scatters on a second one. How fast they are comes from an all-reduce of *four* MI300X and the number of
# links, so the published run is a test.

# %%
runs = {
    "as published": llama,
    "parameters stay": ShardedStep(reshard=False),
    "no prefetch": ShardedStep(prefetch=False),
}
played = {name: simulate(step) for name, step in runs.items()}
modelled = {name: profile_of(each) for name, each in played.items()}
tables = {name: tidyprof.ranks(each) for name, each in modelled.items()}
MODELLED = modelled["as published"].origin


def transfer_us(run, collective, unit):
    tables = [rank.device_work[rank.device_work["collective"] == collective] for rank in run.ranks]
    shortest = pd.DataFrame([table["duration_ns"].to_numpy() for table in tables]).min()
    size = tables[0]["bytes_read"].reset_index(drop=True)
    return shortest[(size == size.max()) == (unit != "a layer")].mean() / 1e3


# %%
NAMES = {"all-gather": "_allgather_base", "reduce-scatter": "_reduce_scatter_base"}
tested = published[["collective", "unit", "transfer_us"]].copy()
tested["modelled_us"] = [
    transfer_us(played["as published"], NAMES[row.collective], row.unit)
    for row in tested.itertuples()
]
tested["error_percent"] = 100 * (tested["modelled_us"] / tested["transfer_us"] - 1)
show_table(tested, " ".join(tested), "The model against the published run", origin=MODELLED)
step_s = tables["as published"]["total_ns"].max() / 1e9
say(
    f"Transfers are {tested['error_percent'].min():+.0f} to {tested['error_percent'].max():+.0f} "
    f"% off. A step takes {step_s:.1f} s in the model, without the optimizer, and "
    f"{run['total_ms'] / 2e3:.1f} s in the published run. The errors in the table’s footer are of "
    "other runs: AMD’s ResNet, with all-reduces on four MI300X. For this step the rows hold."
)

# %%
show_figure(
    plots.ranks(tables["as published"], title="A step of Llama 70B on eight modelled MI300X")
)

# %% [markdown]
# A modelled rank 0 waits less than the published one: the model has no slow rank 4. Now the knobs.

# %%
rows = []
for name, step in runs.items():
    table = tables[name]
    extra = 0 if step.reshard else 2 * step.parameters / 1e9
    rows.append(
        {
            "knob": name,
            "step_s": table["total_ns"].max() / 1e9,
            "exposed_percent": 100 * (table["exposed_communication_ns"] / table["total_ns"]).mean(),
            "held_gb": 16 * step.parameters / step.ranks / 1e9 + extra,
        }
    )
knobs = pd.DataFrame(rows)
show_table(
    knobs,
    " ".join(knobs),
    "Length of the step, exposed talk, parameters and states on a GPU",
    origin=MODELLED,
)

# %%
# 3 minutes: what do you do with this job: "leave it", "reshard_after_forward=False" or "no backward prefetch"?
# An MI300X has 192 GB.
q = exercise("17.8", llama)
# solution
answer = "leave it"
# end solution
q.check(answer)

# %% [markdown]
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
proflab.reveal("17.a", more, "measured: gloo, four processes")
proflab.reveal("17.b", apart.max(), "measured: gloo, four processes")
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
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# | a reduce-scatter on processors shows an all-reduce | gloo does it so (torch 2.15): count half the bytes |
# {issue a-table-of-collectives-shows-gathers-eight-times-too-slow}
# {issue streams-share-a-hardware-queue-and-do-not-overlap}
#
# More of them, with sources, are in the [list of known issues](../docs/known-issues.md).

# %% [markdown]
# ## At work, without this course
#
# Gathers and scatters of any job on GPUs whose ranks write traces of torch.profiler: bus bandwidth, and how much is
# waiting. The traces of this lesson have no kernels, so it finds nothing in them.
#
# {snippet 17_sharded.py}

# %% [markdown]
# ## Key points
#
# - FSDP sends three times (N-1)/N of the parameters in a step, DDP twice. It holds 1/N.
# - Bytes follow from the model. Divide them by the bandwidth of the links before you measure.
# - Of a collective's duration take the shortest on any rank: that is the transfer.
# - Ask of every column what a message is: one rank's part, or the whole.
# - Hidden talk costs no time. A knob pays where talk is exposed.
#
# Next question: yours.
