# %% [markdown]
# # Why does it not fit?
#
# "Out of memory" names the tensor for which there was no room, not those that took the room. You count what a training
# step needs, watch it come and go, and find out whether memory is needed, kept by mistake, or free and useless.
#
# After this lesson you can
#
# - count the bytes of parameters, gradients, optimizer states and activations by hand, and prove the count;
# - draw the memory of a step over time, and say what stays and what goes;
# - tell memory that tensors use from memory that PyTorch has reserved;
# - find a leak and a fragmented memory in a snapshot of PyTorch's allocator, line by line.
#
# You need lessons 00 and 02. The counts are exact on a processor too; what only a GPU has is modeled or recorded.

# %%
import json
import pickle

import pandas as pd
import proflab
import tidyprof
import torch
from proflab import exercise, show_figure, show_table, show_text
from proflab.parts.snapshots import (
    memory_map,
    modeled_snapshot,
    play_requests,
    trainer_parameters,
)
from tidyprof import Origin, plots
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

lesson = proflab.start("11")
MEBIBYTE, HERE = 2**20, Origin("measured", "this machine")

# %%
lesson.recall()

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
# | beside PyTorch: driver, RCCL's buffers | not in any of PyTorch's numbers | always |
#
# An *activation* is what a layer leaves behind for its gradient: a linear layer its input, a ReLU its result. They grow
# with the batch: it is the first thing to change.
#
# ## Predict
#
# Two linear layers (512 to 2048 to 100), Adam, batches of 256.

# %%
# solution
peak_guess = 3
# end solution
proflab.predict("11.a", peak_guess, unit="times", what="the peak of a step over its parameters")

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
# **Half the bytes?** Two ways to 16 bits: *autocast* keeps the parameters in float32 and converts for the products, so
# it saves on activations alone, and keeps the converted weights too; or everything is bfloat16 from the start.
#
# **How large may the batch be?** What grows does so evenly, so two measured peaks are enough: fixed bytes, and bytes
# for each sample. The largest batch is what the fixed ones leave of the device, divided by those of a sample.

# %%
# 5 minutes: a usual recipe has parameters and gradients in bfloat16 and both of Adam's states in float32. How many MiB
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
# `profile_memory=True` records every allocation, here from the first on.


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

show_text(
    f"What is left at the end is exactly what was counted: parameters and two states. The peak is "
    f"{curve['value'].max() / parameters:.1f} times the parameters."
)

# %% [markdown]
# `forward` climbs by the activations. `backward` gives them back while gradients come. The first `optimizer` climbs
# more: the states stay, two results on the way go. In the second step `forward` and `backward` have the states beside
# them. With this small batch the peak is in `optimizer` all the same. With a large batch it is where `backward` begins,
# and then **the second step is the worst, not the first**. A job that survives two steps dies later only if something
# changes: the batch, the length of a text, or a leak.

# %% [markdown]
# ## Trap: a list of losses
#
# A tensor that is kept keeps its *graph*: everything that `backward` would need. `backward` frees the graph, so a list
# of training losses holds a few bytes. A validation loop calls no `backward`, and the same list holds the activations
# of every batch. Write `loss.item()`, or `loss.detach()` where the host must not wait, and put validation under
# `torch.no_grad()`.

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
# | used | VRAM in `amd-smi`, `torch.cuda.mem_get_info()` | reserved, and driver, RCCL, other processes |
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
# Here it is the modeled trainer: ResNet-50, batch 256, on an MI300X, three steps. The file has the structure that
# torch writes. Parameters and Adam's states are exact, what `forward` keeps is an upper bound, and no snapshot of a GPU
# was there to compare. A pickle can run code when it is loaded: open only your own by hand. `tidyprof` takes plain data
# alone.

# %%
healthy = modeled_snapshot("healthy")
with open(healthy.meta["files"][0], "rb") as file:
    raw = pickle.load(file)
blocks = tidyprof.memory_blocks(healthy)
assert sum(segment["total_size"] for segment in raw["segments"]) == blocks["bytes"].sum()
lines = blocks.fillna({"source_line": "free"}).groupby("source_line", as_index=False)
lines = lines[["bytes", "requested_bytes"]].sum().rename(columns={"bytes": "taken_bytes"})
columns, caption = "source_line requested_mib taken_mib", "After the last step, by line"
show_table(lines, columns, caption, origin=healthy.origin)

# %% [markdown]
# Much of what is reserved is free after the step. That is no waste: the next step takes it again, without asking the
# driver. A line of yours can hide a call that allocates: `train` is the line of `optimizer.step()`, and what it left
# are Adam's states. A monitor shows more than what is reserved: driver, runtime and RCCL come on top.

# %% [markdown]
# ## Trap: VRAM is full, so the model is too large
#
# `amd-smi` shows what is taken from the driver, needed or not. The next exercise is about a recording that you have not
# seen: GPU logs of an MI300X that served a language model.

# %%
# 5 minutes: the model has 8 billion parameters in float16 and runs on GPU 0. At the time of its highest `memory_used`
# (bytes), which share of that, in percent, are the parameters? `logs.counters` has `name`, `device` and `value`.
found = proflab.recording("smi-mi300x-vllm-llama31-bs1")
logs = tidyprof.read(found.path, origin=found.origin)
q = exercise("11.2", logs)
# solution
used = logs.counters.query("name == 'memory_used' and device == 0")["value"]
answer = 100 * 8e9 * 2 / used.max()
# end solution
q.check(answer)

# %% [markdown]
# ## A leak in a snapshot
#
# The trainer has a fault that keeps a tensor in every step (`--inject-fault memory-growth`). What stays after each step
# does not come back, and what stays has a line. Both snapshots were taken after three steps; the lines of Adam's states
# and of the parameters are in both.

# %%
growing = modeled_snapshot("growing")

# %%
# 5 minutes: which line leaks, and how many MiB does it keep in each step? Answer with a pair such as
# ("cifar_train/loop.py(7): run", 3.5), by the blocks' `source_line` and `bytes`. `tidyprof.memory_blocks` takes
# `growing` as well.
q = exercise("11.3", (healthy, growing))
# solution
by_line = [
    tidyprof.memory_blocks(run).groupby("source_line", observed=True)["bytes"].sum()
    for run in (healthy, growing)
]
grown = by_line[1].sub(by_line[0], fill_value=0)
answer = grown.idxmax(), grown.max() / 3 / MEBIBYTE
# end solution
q.check(answer)

# %% [markdown]
# In your own job take one after step 10 and one after step 20, and look for the `source_line` that has grown. Peaks
# don't tell, since every step has one.
#
# ## Nearly full
#
# Before it gives up, the allocator frees all segments that are empty and asks again. Then `hipFree`, which waits until
# the GPU is idle, is in the trace of every step, and `num_alloc_retries` in `torch.cuda.memory_stats()` grows.
# `torch.cuda.empty_cache()` in a loop does it on purpose, and `PYTORCH_NO_HIP_MEMORY_CACHING=1`, which is for finding
# memory errors, for every tensor.
#
# ## Free and still out of memory
#
# Middle-sized tensors share segments. Here many of them come to a small device, two of three end, and then one larger
# tensor is asked for. The model of the allocator follows the rules of torch's own.

# %%
sizes = [round(6.6 * MEBIBYTE)] * 94
requests = [(size, place % 3 == 0) for place, size in enumerate(sizes)]  # bytes, does it stay?
last, capacity = 64 * MEBIBYTE, 640 * MEBIBYTE
crowded = play_requests(requests, last, capacity)
left = tidyprof.memory_blocks(crowded)
free = left[left["state"] == "inactive"]
failed = crowded.events[crowded.events["name"] == "oom"].iloc[0]
show_text(
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
# 6 minutes: the cure that needs no setting is to allocate first what stays. Order `requests` so (the rest as it is),
# play them again, and give the MiB that are reserved at the end, with the last request in place.
q = exercise("11.4", (requests, last, capacity))
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
# Each step begins with more: **a leak**, compare two snapshots by line. All is taken at the start, whatever there is to
# do: **a pool**, VRAM says nothing, ask its setting and its metrics. Requested is near to the device: **need**, a
# smaller batch, 16 bits, activation checkpointing, or more GPUs. Reserved is near, requested far below:
# **fragmentation**, equal sizes, what stays first, then the settings. None of these: look for memory outside of
# PyTorch.

# %%
proflab.reveal("11.a", curve["value"].max() / parameters, origin=HERE)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# PyTorch's numbers end at its allocator. The workspaces that it lends to hipBLAS and MIOpen are in them: for hipBLAS
# 128 MiB for each handle and stream on MI300 and newer, by torch's manual. What libraries take themselves is not, such
# as RCCL's buffers. That rest is VRAM in `amd-smi` less `memory_reserved()`. And a peak says nothing about time: a step
# that fits by recomputing activations is slower.

# %% [markdown] tags=["given"]
# **Known issues.** `expandable_segments` needs [torch 2.12][expand] or AMD's torch 2.11, and [ROCm 7.0][gate]. Leave it
# out where you see [faults with torch 2.12][crash], [a hang][hang], or, with ROCm 7.14 and `max_split_size_mb`,
# [zeros][zeros]. The viewer [memory_viz][viz] [reads pickles of protocol 4][five], Python 3.14 writes 5: see the
# snippet. If the process aborts in place of an `OutOfMemoryError`, set [both of
# `throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.9`][throw]. A snapshot of gigabytes gets smaller by
# `max_entries` and `stacks="python"`. It has no line for gradients: `backward` runs in a thread without Python.
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
# Next question: how fast can a language model be?
