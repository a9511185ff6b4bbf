# %% [markdown]
# # Why does it not fit?
#
# "Out of memory" names the tensor for which there was no room. It does not name those that took the room. You count
# what a training step needs, watch it come and go, and find out whether memory is needed, kept by mistake, or free and
# useless.
#
# After this lesson you can
#
# - count the bytes of parameters, gradients, optimizer states and activations by hand, and prove the count;
# - draw the memory of a step over time, and say what stays and what goes;
# - tell memory that tensors use from memory that PyTorch has reserved;
# - find a leak and a fragmented memory in a snapshot of PyTorch's allocator, line by line.
#
# You need lessons 00 and 02. The counts are exact on a processor too; what only a GPU has is modelled or recorded.

# %%
import json
import pickle

import pandas as pd
import proflab
import tidyprof
import torch
from gpumodel.play.counters import CONTEXT_BYTES, IDLE_MEMORY_BYTES
from proflab import exercise, say, show_figure, show_table
from proflab.parts.memory_map import memory_map
from proflab.parts.snapshots import modelled_snapshot, phases_of, play_requests, trainer_parameters
from tidyprof import Origin, Profile, plots
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

lesson = proflab.start("11")
MEBIBYTE, HERE = 2**20, Origin("measured", "this machine")

# %% [markdown]
# ## The picture to keep in mind
#
# | who needs memory | how much | how long |
# | --- | --- | --- |
# | parameters | how many, times bytes of one | always |
# | gradients | the same again | from `backward` to `zero_grad` |
# | optimizer states | Adam keeps two numbers for each parameter, SGD with momentum one | from the first `step` on |
# | activations: results of `forward` that `backward` needs | grows with the batch | from `forward` to `backward` |
# | results on the way | the largest few tensors | shorter than an operator |
# | beside PyTorch: driver, libraries, RCCL | not in any of PyTorch's numbers | always |
#
# An *activation* is what a layer leaves behind for its gradient: a linear layer its input, a ReLU its result. The first
# three rows depend on the model alone, the fourth on the batch. So the batch is the first thing to change.
#
# ## Predict
#
# Two linear layers (512 to 2048 to 100), trained with Adam on batches of 256.

# %%
# solution
peak_guess, free_guess = 3, 50
# end solution
proflab.predict("11.a", peak_guess, unit="times", what="the peak of a step over its parameters")
proflab.predict(
    "11.b", free_guess, unit="%", what="the free part of what PyTorch has reserved after a step"
)

# %% [markdown]
# ## Count by hand
#
# Bytes are `numel() * element_size()`: 4 for float32, 2 for bfloat16 and float16, 8 for the integers of the labels.


# %%
def new_model(dtype=torch.float32):
    return nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 100)).to(dtype)


def size_of(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


model = new_model()
optimizer = torch.optim.Adam(model.parameters())
images, labels = torch.randn(256, 512), torch.randint(100, (256,))
nn.functional.cross_entropy(model(images), labels).backward()
optimizer.step()
states = [state for of_parameter in optimizer.state.values() for state in of_parameter.values()]
parameters, gradients = size_of(model.parameters()), size_of(p.grad for p in model.parameters())
assert gradients == parameters == 4 * (512 * 2048 + 2048 + 2048 * 100 + 100)
counters = 4 * len([*model.parameters()])  # Adam counts its steps, a number for each tensor
assert size_of(states) == 2 * parameters + counters

# %% [markdown]
# **Activations.** Autograd calls a *hook*, a function of yours, for each tensor that it saves. Several can share one
# memory, and parameters are saved too, so each memory is counted once and those of parameters not at all:


# %%
def saved_bytes(model, images, labels):
    own, saved = {p.untyped_storage().data_ptr() for p in model.parameters()}, {}

    def pack(tensor):
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in own:
            saved[memory.data_ptr()] = memory.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = nn.functional.cross_entropy(model(images).float(), labels)
    return sum(saved.values()), loss


activations, loss = saved_bytes(model, images, labels)
# Input of the first layer, result of the ReLU, logarithms in the loss.
layers = 256 * 512 + 256 * 2048 + 256 * 100
assert activations == 4 * layers + 8 * 256 + 4  # labels, and the sum of their weights
del loss

# %% [markdown]
# **Half the bytes?** Two ways to 16 bits: *autocast* keeps the parameters in float32 and converts for the
# products; or everything is bfloat16 from the start.

# %%
rows = [
    {"way": "float32", "parameters": parameters, "gradients": gradients, "states": size_of(states)}
]
rows[0]["saved"] = activations
with torch.autocast("cpu", dtype=torch.bfloat16):
    rows.append(rows[0] | {"way": "autocast", "saved": saved_bytes(model, images, labels)[0]})
half = new_model(torch.bfloat16)
kept, loss = saved_bytes(half, images.bfloat16(), labels)
loss.backward()
adam = torch.optim.Adam(half.parameters())
adam.step()
states_of_half = size_of(
    state for of_parameter in adam.state.values() for state in of_parameter.values()
)
sizes = size_of(half.parameters()), size_of(p.grad for p in half.parameters()), states_of_half, kept

# %%
rows.append(
    dict(
        zip(
            ("way", "parameters", "gradients", "states", "saved"),
            ("all bfloat16", *sizes),
            strict=True,
        )
    )
)
ways = pd.DataFrame(rows)
show_table(ways, "way parameters gradients states saved", "Bytes of one training step", origin=HERE)
saving = 100 * (1 - ways["saved"][1] / ways["saved"][0])
say(
    f"Autocast saves {saving:.0f} % of what `forward` keeps, and nothing else. Less than half, "
    f"since the converted weights are kept too: {ways['saved'][1] - ways['saved'][2]:,} bytes "
    "that `all bfloat16` does not need."
)

# %%
# 6 minutes: a usual recipe has parameters and gradients in bfloat16 and both of Adam's states in float32. How many MiB
# (2**20 bytes) do these take for the ResNet-50 of the course's trainer? `in_float32` has the bytes of each of its
# parameters in float32.
in_float32 = trainer_parameters()
q = exercise("11.1", in_float32)
# solution
numbers = sum(in_float32) / 4
answer = numbers * (2 + 2 + 4 + 4) / MEBIBYTE
# end solution
q.check(answer)

# %% [markdown]
# ## Capture: the memory of a step
#
# `profile_memory=True` records every allocation. Everything happens inside of the block here, so that the curve begins
# at nothing.


# %%
def one_step(model, optimizer):
    with record_function("data"):
        images, labels = torch.randn(256, 512), torch.randint(100, (256,))
    with record_function("forward"):
        loss = nn.functional.cross_entropy(model(images), labels)
    with record_function("backward"):
        loss.backward()
    with record_function("optimizer"):
        optimizer.step()
        optimizer.zero_grad()


with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
    with record_function("model"):
        fresh = new_model()
        its_optimizer = torch.optim.Adam(fresh.parameters())
    for _ in range(3):
        one_step(fresh, its_optimizer)
prof.export_chrome_trace(str(lesson.folder / "memory_trace.json"))

# %% [markdown]
# ## First look
#
# In the trace an allocation is an event `[memory]`: bytes taken, or less than nothing for bytes given back. By hand
# their sum is a curve. `tidyprof` has it in `counters`:

# %%
events = json.loads((lesson.folder / "memory_trace.json").read_text())["traceEvents"]
changes = pd.Series([event["args"]["Bytes"] for event in events if event["name"] == "[memory]"])
mine = tidyprof.read(lesson.folder / "memory_trace.json", origin=HERE)
curve = mine.counters[mine.counters["name"] == "allocated memory"]
assert curve["value"].tolist() == changes.cumsum().tolist()
assert curve["value"].iloc[-1] == 3 * parameters + counters
parts = ("model", "data", "forward", "backward", "optimizer")
ranges = mine.events.query("name in @parts and device.isna()")  # on a GPU ranges are there twice
title = "Three steps of training, from the model on"
show_figure(plots.memory(mine, ["allocated memory"], title=title, phases=ranges))

# %%
ranges = ranges.iloc[:9]  # the model, and two steps
inside = [
    curve[curve["time_ns"].between(one.start_ns, one.start_ns + one.duration_ns)]
    for one in ranges.itertuples()
]
peaks = pd.DataFrame(
    {
        "range": ranges["name"].astype(str),
        "highest_MiB": [part["value"].max() / MEBIBYTE for part in inside],
        "at_its_end_MiB": [part["value"].iloc[-1] / MEBIBYTE for part in inside],
    }
)
show_table(
    peaks, "range highest_MiB at_its_end_MiB", "Memory in use, the model and two steps", origin=HERE
)

# %%
say(
    f"What is left at the end is exactly what was counted: parameters and two states. The peak is "
    f"{curve['value'].max() / parameters:.1f} times the parameters."
)
first, second = (
    peaks.iloc[place : place + 4].set_index("range")["highest_MiB"] for place in (1, 5)
)
peaks_are = "equally high" if abs(second.max() / first.max() - 1) < 0.01 else "not equally high"
more = second["backward"] - first["backward"]
say(
    f"Both steps peak in `{second.idxmax()}`, {peaks_are}. `backward` reaches {more:.1f} MiB more "
    "in the second one."
)

# %% [markdown]
# Read it as a story. `forward` climbs by the activations. `backward` gives them back while gradients come. The first
# `optimizer` climbs once more: the states stay, two results on the way go. In the second step `forward` and `backward`
# have the states beside them. With this small batch the peak is in `optimizer` all the same. With a large batch it is
# where `backward` begins, and then **the second step is the worst, not the first**. A job that survives two steps dies
# later only if something changes: the batch, the length of a text, or a leak.

# %%
# 4 minutes: which share of the highest memory use, in percent, is given back by the end of the last step? `curve` has
# the column `value`, in bytes.
q = exercise("11.2", mine)
# solution
highest, at_the_end = curve["value"].max(), curve["value"].iloc[-1]
answer = 100 * (highest - at_the_end) / highest
# end solution
q.check(answer)

# %% [markdown]
# **How large may the batch be?** Two measurements are enough, since what grows does so evenly: fixed bytes, and
# bytes for each sample.

# %%
batches = {
    size: saved_bytes(model, torch.randn(size, 512), torch.randint(100, (size,)))[0]
    for size in (64, 256)
}
each = (batches[256] - batches[64]) / (256 - 64)
show_table(
    pd.DataFrame({"batch": batches.keys(), "saved_bytes": batches.values()}),
    "batch saved_bytes",
    "What `forward` keeps",
    origin=HERE,
)
say(
    f"Each sample keeps {each:,.0f} bytes, and {batches[64] - 64 * each:.0f} do not depend on the "
    "batch."
)

# %%
# 7 minutes: `measured` has the peak of a training step in bytes for two batch sizes (`batch`, `peak_bytes`), made up
# for a larger model, and `room` is the memory of an MI300X. What is the largest batch that fits, as a whole number?
measured, room = pd.DataFrame({"batch": [32, 96], "peak_bytes": [41.6e9, 62.4e9]}), 206_141_652_992
q = exercise("11.3", (measured, room))
# solution
small, large = measured.iloc[0], measured.iloc[1]
each = (large["peak_bytes"] - small["peak_bytes"]) / (large["batch"] - small["batch"])
fixed = small["peak_bytes"] - each * small["batch"]
answer = int((room - fixed) // each)
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: a list of losses
#
# A tensor that is kept keeps its *graph*: everything that `backward` would need. Keep the losses of five batches in
# three ways, and add up what is not given back:


# %%
def not_given_back(keep, backward):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        kept = []
        for _ in range(5):
            loss = nn.functional.cross_entropy(model(images), labels)
            if backward:
                loss.backward()
            kept.append(keep(loss))
        del loss
    prof.export_chrome_trace(str(lesson.folder / "kept_trace.json"))
    events = json.loads((lesson.folder / "kept_trace.json").read_text())["traceEvents"]
    return sum(event["args"]["Bytes"] for event in events if event["name"] == "[memory]")


# %%
keepers = {
    "the loss": lambda loss: loss,
    "loss.detach()": torch.Tensor.detach,
    "loss.item()": torch.Tensor.item,
}
model.zero_grad(set_to_none=False)
leaks = pd.DataFrame(
    [
        {
            "kept": name,
            "without_backward": not_given_back(keep, False),
            "after_backward": not_given_back(keep, True),
        }
        for name, keep in keepers.items()
    ]
)
show_table(
    leaks,
    "kept without_backward after_backward",
    "Bytes not given back after five batches",
    origin=HERE,
)

# %% [markdown]
# `backward` frees the graph, so a list of training losses holds a few bytes. A validation loop calls no `backward`, and
# the same list holds the activations of every batch. Write `loss.item()`, or `loss.detach()` where the host must not
# wait, and put validation under `torch.no_grad()`.

# %% [markdown]
# ## On a GPU: allocated, reserved, used
#
# A processor gives memory back at once. On a GPU that is slow, so PyTorch's *caching allocator* takes memory in
# *segments* and keeps them; a tensor gets a *block* of one. There are four numbers now, each larger than the last:
#
# | number | where | what |
# | --- | --- | --- |
# | requested | `torch.cuda.memory_stats()["requested_bytes.all.current"]` | what tensors asked for |
# | allocated | `torch.cuda.memory_allocated()` | the same in blocks: rounded up, with rests too small to split off |
# | reserved | `torch.cuda.memory_reserved()` | all segments, with what is free in them |
# | used | VRAM in `amd-smi`, `torch.cuda.mem_get_info()` | reserved, and driver, libraries, other processes |
#
# The names say `cuda` on AMD too. *VRAM* is the GPU's memory, HBM on an MI300X.

# %% [markdown]
# ## Snapshots
#
# The allocator can write down what it does and from which line:
#
# ```python
# torch.cuda.memory._record_memory_history(max_entries=100_000)
# ...  # two or three steps, or until it fails
# torch.cuda.memory._dump_snapshot("snapshot.pickle")
# torch.cuda.memory._record_memory_history(enabled=None)
# ```
#
# Here it is the modelled trainer: ResNet-50, batch 256, on an MI300X, three steps. The file has the structure that
# torch writes; what is kept during `forward` is an upper bound. A pickle can run code when it is loaded, so by hand
# only your own: `tidyprof` refuses everything in it that is no plain data.

# %%
healthy = modelled_snapshot("healthy")
with open(healthy.meta["files"][0], "rb") as file:
    raw = pickle.load(file)
blocks = tidyprof.memory_blocks(healthy)
reserved = sum(segment["total_size"] for segment in raw["segments"])
taken = [
    block
    for segment in raw["segments"]
    for block in segment["blocks"]
    if block["state"] == "active_allocated"
]
assert reserved == blocks["bytes"].sum()
assert (
    sum(block["size"] for block in taken)
    == blocks.query("state == 'active_allocated'")["bytes"].sum()
)
show_figure(
    plots.memory(healthy, title="Three steps of the modelled trainer", phases=phases_of(healthy))
)

# %%
lines = (
    blocks.fillna({"source_line": "free"})
    .groupby("source_line", as_index=False)[["bytes", "requested_bytes"]]
    .sum()
)
show_table(
    lines,
    "source_line requested_bytes bytes",
    "After the last step, by line",
    origin=healthy.origin,
)
free_percent = (
    100 * blocks.loc[blocks["state"] == "inactive", "bytes"].sum() / blocks["bytes"].sum()
)
say(
    f"{free_percent:.0f} % of what is reserved is free after the step. That is no waste: the next "
    "step takes it again, without asking the driver. In the whole history there are "
    f"{(healthy.events['name'] == 'alloc').sum():,} `alloc` and only "
    f"{(healthy.events['name'] == 'segment_alloc').sum()} `segment_alloc`, each of them a "
    "`hipMalloc`."
)

# %% [markdown]
# A monitor shows more than what is reserved, and so does the line `in use` of the course's stand-ins:

# %%
idle, context = (taken / MEBIBYTE for taken in (IDLE_MEMORY_BYTES, CONTEXT_BYTES))
say(
    f"Reserved: {reserved / MEBIBYTE:.0f} MiB. Beside that, in the model: {idle:.0f} MiB that an "
    f"idle MI300X has in use (from a public log), and {context:.0f} MiB for runtime and libraries "
    "(an assumption)."
)

# %% [markdown]
# A line of yours can hide a call that allocates. `train` in the first row is the line of `optimizer.step()`, and what
# it left are Adam's states, two for each parameter:

# %%
by_update = lines.loc[lines["source_line"].str.endswith("train"), "requested_bytes"].sum()
assert by_update == 2 * sum(trainer_parameters())

# %% [markdown]
# ## Trap: VRAM is full, so the model is too large
#
# `amd-smi` shows what is taken from the driver, needed or not. The next exercise is about a recording that you have not
# seen: GPU logs of an MI300X that served a language model.

# %%
# 6 minutes: the model has 8 billion parameters in float16 and runs on GPU 0. At the time of its highest `memory_used`
# (bytes), which share of that, in percent, are the parameters? `logs.counters` has `name`, `device` and `value`.
found = proflab.recording("smi-mi300x-vllm-llama31-bs1")
logs = tidyprof.read(found.path, origin=found.origin)
q = exercise("11.4", logs)
# solution
used = logs.counters.query("name == 'memory_used' and device == 0")["value"]
answer = 100 * 8e9 * 2 / used.max()
# end solution
q.check(answer)

# %% [markdown]
# ## A leak in a snapshot
#
# The trainer has a fault that keeps a tensor in every step (`--pathology memory-growth`). What stays after each step
# does not come back, and what stays has a line.

# %%
growing = modelled_snapshot("growing", "--pathology memory-growth")


def at_the_start_of_steps(run: Profile):
    loading = run.events["source_line"].astype(str).str.endswith("next_batch") & (
        run.events["name"] == "alloc"
    )
    requested = run.counters[run.counters["name"] == "requested memory"]
    place = requested["time_ns"].searchsorted(run.events.loc[loading, "start_ns"]) - 1
    return requested["value"].to_numpy()[place][::2]  # images, not labels


starts = pd.DataFrame({"step": range(3)})
for name, run in {"healthy_MiB": healthy, "growing_MiB": growing}.items():
    starts[name] = at_the_start_of_steps(run) / MEBIBYTE
show_table(
    starts, "step healthy_MiB growing_MiB", "Requested before each step", origin=growing.origin
)

# %% [markdown]
# The first step begins before Adam has states. From the second on a healthy step begins with what the one before began
# with.

# %%
# 8 minutes: after how many steps is the MI300X full (`room`, in bytes)? Take the growth of one step from the blocks in
# `growing` that have a line ending in `after_backward` (three steps were played), and the peak from its counter
# `requested memory`. Fragmentation aside: count whole steps from now on until the peak has no more room.
q = exercise("11.5", (growing, room))
# solution
leaked = tidyprof.memory_blocks(growing)
leaked = leaked[leaked["source_line"].str.endswith("after_backward", na=False)]
a_step = leaked["bytes"].sum() / 3
peak = growing.counters.query("name == 'requested memory'")["value"].max()
answer = int((room - peak) // a_step)
# end solution
q.check(answer)

# %% [markdown]
# In a snapshot of your own: take one after step 10 and one after step 20, group the blocks by `source_line`, and look
# for the line that has grown. Peaks don't tell, since every step has one.
#
# ## An allocator without a pool
#
# What if nothing is kept? This recording of ResNet-18 on an MI300X has its memory from `hipMalloc` for each tensor, and
# gives it back with `hipFree`, which waits until the GPU is idle. The folder that it comes from is called `no_pool`.
# `PYTORCH_NO_HIP_MEMORY_CACHING=1`, which is for finding memory errors, has this effect.

# %%
found = proflab.recording("torch-mi300x-resnet18-train")
pool_less = tidyprof.read(found.path, origin=found.origin)
steps = tidyprof.steps(pool_less)
calls = pool_less.events[pool_less.events["name"].isin(["hipMalloc", "hipFree"])]
step = steps["start_ns"].searchsorted(calls["start_ns"], side="right") - 1
calls = calls.assign(step=steps["step"].to_numpy()[step]).groupby(["step", "name"], observed=True)[
    "duration_ns"
]
table = calls.agg(calls="count", duration_ns="sum").reset_index()
show_table(
    table, "step name calls duration_ms", "Taking memory and giving it back", origin=found.origin
)
whole = steps["duration_ns"].sum()
in_free = table.loc[table["name"] == "hipFree", "duration_ns"].sum()
waits = tidyprof.blocked_calls(pool_less).set_index("name")["blocked_ns"]
say(
    f"The host spends {100 * in_free / whole:.0f} % of its steps in `hipFree`, and for "
    f"{100 * waits['hipFree'] / whole:.0f} % of them the GPU has nothing to do meanwhile. With "
    "the caching allocator a steady step has none of these calls."
)

# %% [markdown]
# The same happens, less often, where memory is nearly full: before it gives up, the allocator frees all segments that
# are empty and asks again. Then `hipFree` is in the trace of every step, and `num_alloc_retries` in
# `torch.cuda.memory_stats()` grows. `torch.cuda.empty_cache()` in a loop does it on purpose.
#
# ## Free and still out of memory
#
# Middle-sized tensors share segments. Here many of them come to a small device, two of three end, and then one larger
# tensor is asked for. The model of the allocator follows the rules of torch's own.

# %%
requests = [
    (round(6.6 * MEBIBYTE), place % 3 == 2) for place in range(90)
]  # bytes, and whether it stays
last, capacity = 64 * MEBIBYTE, 640 * MEBIBYTE
crowded = play_requests(requests, last, capacity)
left = tidyprof.memory_blocks(crowded)
free = left[left["state"] == "inactive"]
failed = crowded.events[crowded.events["name"] == "oom"].iloc[0]
say(
    f"Out of memory for {failed['bytes'] / MEBIBYTE:.0f} MiB, while "
    f"{free['bytes'].sum() / MEBIBYTE:.0f} of {left['bytes'].sum() / MEBIBYTE:.0f} MiB reserved "
    f"are free. The largest free block has {free['bytes'].max() / MEBIBYTE:.0f} MiB."
)
show_figure(memory_map(left, "Every segment holds one tensor that stays"))

# %% [markdown]
# That is *fragmentation*: enough is free, but nowhere in one piece. A segment goes back to the driver only when it is
# empty, and each of these holds one tensor. The error message of torch says it as well, in "reserved by PyTorch but
# unallocated".

# %%
# 8 minutes: the cure that needs no setting is to allocate first what stays. Order `requests` so (the rest as it is),
# play them again, and give the MiB that are reserved at the end, with the last request in place.
q = exercise("11.6", (requests, last, capacity))
# solution
ordered = [one for one in requests if one[1]] + [one for one in requests if not one[1]]
cured = play_requests(ordered, last, capacity, name="ordered")
assert "oom" not in set(cured.events["name"])
answer = tidyprof.memory_blocks(cured)["bytes"].sum() / MEBIBYTE
# end solution
q.check(answer)

# %% [markdown]
# **Settings.** The environment variable `PYTORCH_ALLOC_CONF` takes `option:value,option:value`. Older builds of torch
# know it as `PYTORCH_CUDA_ALLOC_CONF` or, on AMD, `PYTORCH_HIP_ALLOC_CONF`; the older names still work.
#
# | option | what it does |
# | --- | --- |
# | `expandable_segments:True` | segments that can grow, so that sizes that change leave fewer slivers |
# | `max_split_size_mb:N` | larger blocks are not split; can cost time, does nothing beside the row above |
# | `roundup_power2_divisions:N` | rounds requests, so that nearly equal ones can use the same block |
# | `garbage_collection_threshold:0.8` | frees old unused blocks when so much of the memory is in use |
#
# They cure fragmentation, never need. First look whether the sizes have to change at all: batches of one length,
# `drop_last=True`, the largest batch first.
#
# ## Decide
#
# Five facts choose the next question: requested at the peak, reserved, the size of the device, whether a step begins
# with more than the one before, and whether the program takes its memory at its start, whatever it then has to do.


# %%
def decide(requested, reserved, device, grows, at_its_start=False):
    if grows:
        return "a leak: compare two snapshots by line"
    if at_its_start:
        return "a pool: VRAM says nothing. Ask its setting what it takes, its metrics what is used"
    if requested > 0.9 * device:
        return "need: a smaller batch, 16 bits, activation checkpointing, or more GPUs"
    if reserved > 0.9 * device and requested < 0.7 * reserved:
        return "fragmentation: equal sizes, largest first, then the settings"
    return "it fits: look for memory outside of PyTorch if it fails all the same"


# %%
def most(run: Profile, name: str):
    return run.counters.loc[run.counters["name"] == name, "value"].max()


end = crowded.counters.query("name == 'requested memory'")["value"].iloc[-1]
say(f"The requests: {decide(end, left['bytes'].sum(), capacity, grows=False)}.")
for name, run in {"The healthy trainer": healthy, "The growing one": growing}.items():
    _, second, third = at_the_start_of_steps(run)
    needs = most(run, "requested memory"), most(run, "reserved memory")
    say(f"{name}: {decide(*needs, room, third > second)}.")
used = logs.counters.query("name == 'memory_used' and device == 0")["value"]
busy = used[used > 0.1 * used.max()]  # a server is there
at_its_start = busy.median() > 0.8 * used.max()
say(
    "The server of the log: "
    f"{decide(8e9 * 2, used.max(), room, grows=False, at_its_start=at_its_start)}."
)
proflab.reveal("11.a", curve["value"].max() / parameters, origin=HERE)
proflab.reveal("11.b", free_percent, origin=healthy.origin)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# PyTorch's numbers end at its allocator. Libraries take memory beside it: workspaces of hipBLAS are inside (128 MiB for
# each handle and stream on MI300 and newer, by torch's manual), buffers of RCCL and the driver's own are not. That rest
# is VRAM in `amd-smi` less `memory_reserved()`. And a peak says nothing about time: a step that fits by recomputing
# activations is slower.

# %% [markdown] tags=["given"]
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# | the viewer [memory_viz][viz] stays empty | [it reads protocol 4, and Python 3.14 writes 5][five]: see the snippet |
# | `expandable_segments` "not supported on this platform" | [torch 2.12][expand] or AMD's 2.11, and [ROCm 7.0][gate] |
# | faults, zeros or [a hang][hang] with it | leave it out on ROCm: seen [with torch 2.12][crash], [with 7.14][zeros] |
# | no line for gradients in a snapshot | `backward` runs in a thread without Python |
# | no `OutOfMemoryError` | [both of `throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.9`][throw] |
# | files of gigabytes | `max_entries`, and `stacks="python"` |
#
# [viz]: https://pytorch.org/memory_viz
# [five]: https://github.com/pytorch/pytorch/issues/183842
# [expand]: https://github.com/pytorch/pytorch/pull/177974
# [gate]: https://github.com/pytorch/pytorch/pull/179930
# [hang]: https://github.com/pytorch/pytorch/issues/192259
# [crash]: https://github.com/pytorch/pytorch/issues/187343
# [throw]: https://github.com/pytorch/pytorch/pull/179473
# [zeros]: https://github.com/ROCm/legacy-rocm-build/issues/6603

# %% [markdown]
# ## At work, without this course
#
# Counts of your own model, and on a GPU the allocator's numbers and a snapshot; replace the part between the two lines
# of dashes:
#
# {snippet 11_memory.py}

# %% [markdown]
# ## Key points
#
# - Parameters, gradients and states depend on the model, activations on the batch: count them, then measure.
# - The states come with the first update, so judge by the second step. What stays should be the same after each step.
# - VRAM shows what is reserved. Ask the allocator what is in use.
# - A leak has a line, and two snapshots show it. Fragmentation has holes, and a map shows them.
#
# Next question: how fast can a language model be?
