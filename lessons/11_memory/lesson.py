# %% [markdown]
# # Why does it not fit?
#
# An "out of memory" error names the tensor that didn't fit, but not the tensors that use the memory. Here, you count
# what a training step needs and watch it over time. You find out whether memory is needed, kept by mistake, or
# free and still unusable.
#
# After this lesson, you can:
#
# - count the bytes of parameters, gradients, optimizer states and activations;
# - draw the memory of a step over time, and explain what remains after it;
# - tell memory that tensors use from memory that PyTorch has reserved;
# - find a leak or fragmented memory in a snapshot of PyTorch's allocator, line by line.
#
# **Before you start:** complete lessons 00 and 02. The counts are exact even on a CPU. Everything that exists only on a GPU
# is modeled or recorded.

# %%
import proflab
import tidyprof
import torch
from proflab import exercise, show_figure, show_table, show_text
from proflab.parts.snapshots import memory_map, modeled_snapshot, play_requests, trainer_parameters
from tidyprof import plots
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

lesson = proflab.start("11")
MEBIBYTE, HERE = 2**20, tidyprof.Origin("measured", "this machine")

# %%
lesson.recall()

# %% [markdown]
# ## The picture to keep in mind
#
# | what needs memory | how much | how long |
# | --- | --- | --- |
# | parameters | their number times the bytes of one | always |
# | gradients | the same again | from `backward` to `zero_grad` |
# | optimizer states | Adam: two numbers per parameter; SGD with momentum: one | from the first `step` |
# | activations: what `backward` needs from `forward` | grows with the batch size | from `forward` to `backward` |
# | temporary results | a few of the largest tensors | during one operator |
# | outside PyTorch: driver, RCCL's buffers | in none of PyTorch's numbers | always |
#
# An *activation* is what a layer keeps for its gradient. For a linear layer, it is the input, and for a ReLU, the result.
# Activations grow with the batch size, so change that first.
#
# ## Predict
#
# A model with two linear layers (512 to 2048 to 100) trains with Adam on batches of 256.

# %%
# solution
peak_guess = 3
# end solution
proflab.predict(
    "11.a", peak_guess, unit="times", what="the peak of a step relative to the parameters"
)

# %% [markdown]
# ## Count the bytes
#
# A tensor takes `numel() * element_size()` bytes. A number has 4 bytes in float32, 2 in bfloat16 and float16, and 8 in
# the integers of the labels.


# %%
def new_model():
    return nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 100))


def size_of(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


model = new_model()
optimizer = torch.optim.Adam(model.parameters())
images, labels = torch.randn(256, 512), torch.randint(100, (256,))
nn.functional.cross_entropy(model(images), labels).backward()
optimizer.step()

# %%
parameters = size_of(model.parameters())
states = [state for states in optimizer.state.values() for state in states.values()]
formula = 4 * (512 * 2048 + 2048 + 2048 * 100 + 100)
print(f"parameters  {parameters:12,} bytes; by the formula {formula:,}")
print(f"gradients   {size_of(p.grad for p in model.parameters()):12,} bytes")
print(f"Adam states {size_of(states):12,} bytes; twice the parameters and a counter per tensor")

# %% [markdown]
# For activations, register a *hook*: autograd calls this function for each tensor that it saves. Several tensors can share
# storage, and autograd also saves parameters. So count each storage once and leave out the parameters:


# %%
def saved_bytes(model, images, labels):
    own, saved = {p.untyped_storage().data_ptr() for p in model.parameters()}, {}

    def pack(tensor):
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in own:
            saved[memory.data_ptr()] = memory.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = nn.functional.cross_entropy(model(images), labels)
    return sum(saved.values()), loss


# %%
activations, loss = saved_bytes(model, images, labels)
del loss
layers = 256 * 512 + 256 * 2048 + 256 * 100  # first input, ReLU's result, logarithms in the loss
formula = 4 * layers + 8 * 256 + 4  # labels, and the sum of their weights
print(f"activations {activations:12,} bytes; by the formula {formula:,}")

# %% [markdown]
# - **16 bits:** *autocast* keeps the parameters in float32 and converts them for matrix products. It saves only
#   activations, and it also keeps the converted weights. Alternatively, everything is bfloat16 from the start.
# - **The largest batch:** memory grows evenly with the batch size, so measure two peaks. They give you the fixed bytes and
#   the bytes per sample. Subtract the fixed bytes from the memory of the device, and divide by the bytes per sample.

# %%
# 4 minutes: parameters and gradients are in bfloat16, and both Adam states in float32, which is a common setup. How many
# MiB (2**20 bytes) do all four take for the trainer's ResNet-50? `in_float32` has the bytes of each of its parameters in
# float32.
in_float32 = trainer_parameters()
q = exercise("11.1", in_float32)
# solution
numbers = sum(in_float32) / 4
answer = numbers * (2 + 2 + 4 + 4) / MEBIBYTE
# end solution
q.check(answer)

# %% [markdown]
# ## Record the memory of a step
#
# `profile_memory=True` records every allocation, here starting with the first one.


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
# In the trace, each allocation is an event `[memory]` with its bytes, which are negative if memory is freed. Their running
# sum is the counter `allocated memory`:

# %%
mine = tidyprof.read(lesson.folder / "memory_trace.json", origin=HERE)
in_use = mine.counters.query("name == 'allocated memory'")["value"]
parts = ("model", "data", "forward", "backward", "optimizer")
ranges = mine.events.query("name in @parts and device.isna()")  # a GPU records ranges twice
title = "Memory of three training steps"
show_figure(plots.memory(mine, ["allocated memory"], title=title, phases=ranges))
print(f"at the end {in_use.iloc[-1]:12,.0f} bytes; counted {parameters + size_of(states):,}")
print(
    f"peak       {in_use.max():12,.0f} bytes; {in_use.max() / parameters:.1f} times the parameters"
)

# %% [markdown]
# - **forward** climbs by the activations, and **backward** frees them while gradients arrive.
# - **optimizer** climbs further in the first step. The states remain, and two temporary results are freed.
# - In the second step, `forward` and `backward` run with the states in memory as well. With this small batch, the peak is
#   still in `optimizer`. With a large batch, it is at the start of `backward`, so **the second step is the worst, not the
#   first**.
#
# A job that survives two steps fails later only if something changes: the batch size, a text length, or a leak.

# %% [markdown]
# ## Trap: a list of losses
#
# A tensor that you keep also keeps its *graph*, which is everything that `backward` would need. `backward` frees the
# graph, so a list of training losses takes a few bytes. A validation loop doesn't call `backward`, and the same list keeps
# the activations of every batch. Write `loss.item()`, or `loss.detach()` if the CPU must not wait, and put validation
# under `torch.no_grad()`.
#
# ## On a GPU: allocated, reserved, used
#
# A CPU returns memory at once. On a GPU, that is slow, so PyTorch's *caching allocator* takes memory in *segments* and
# keeps them. A tensor gets a *block* of a segment. This gives four numbers, each larger than the previous one:
#
# | number | where to read it | what it counts |
# | --- | --- | --- |
# | requested | `torch.cuda.memory_stats()["requested_bytes.all.current"]` | what tensors requested |
# | allocated | `torch.cuda.memory_allocated()` | their blocks: rounded up, plus leftovers too small to split off |
# | reserved | `torch.cuda.memory_reserved()` | all segments, including their free blocks |
# | used | VRAM in `amd-smi`, `torch.cuda.mem_get_info()` | reserved, plus driver, RCCL and other processes |
#
# The names contain `cuda` even on AMD GPUs. *VRAM* is the GPU's memory, which is HBM on an MI300X.

# %% [markdown]
# ## Take a snapshot
#
# The allocator can record what it does and which line requested it:
#
# ```python
# torch.cuda.memory._record_memory_history(max_entries=100_000)
# ...  # two or three steps, or until it fails
# torch.cuda.memory._dump_snapshot("snapshot.pickle")
# torch.cuda.memory._record_memory_history(enabled=None)
# ```
#
# This snapshot is modeled: the trainer's ResNet-50, batch size 256, three steps on an MI300X. Parameters and Adam states are
# exact, and the activations are an upper bound. We had no snapshot of a real GPU to compare.
#
# > **Warning:** A pickle can run code when you load it. `tidyprof` reads only plain data from it.

# %%
healthy = modeled_snapshot("healthy")
blocks = tidyprof.memory_blocks(healthy)
lines = blocks.fillna({"source_line": "free"}).groupby("source_line", as_index=False)
lines = lines[["bytes", "requested_bytes"]].sum().rename(columns={"bytes": "taken_bytes"})
columns, caption = "source_line requested_mib taken_mib", "After the last step, by line"
show_table(lines, columns, caption, origin=healthy.origin)

# %% [markdown]
# Much of the reserved memory is free after the step. It isn't wasted, because the next step takes it without a call to the
# driver. A line can hide the call that allocates: `train` is the line of `optimizer.step()`, which left Adam's states.
#
# ## Trap: VRAM is full, so the model is too large
#
# `amd-smi` shows what was taken from the driver, needed or not. Here are GPU logs of an MI300X that served a language
# model:

# %%
# 4 minutes: the model has 8 billion parameters in float16 and runs on GPU 0. What percentage of the highest `memory_used`
# (in bytes) of GPU 0 do the parameters take? `logs.counters` has the columns `name`, `device` and `value`.
found = proflab.recording("smi-mi300x-vllm-llama31-bs1")
logs = tidyprof.read(found.path, origin=found.origin)
q = exercise("11.2", logs)
# solution
used = logs.counters.query("name == 'memory_used' and device == 0")["value"]
answer = 100 * 8e9 * 2 / used.max()
# end solution
q.check(answer)

# %% [markdown]
# ## Find a leak
#
# The trainer can inject a fault that keeps one tensor per step (`--inject-fault memory-growth`). Both snapshots were taken
# after three steps, and both contain the lines of the parameters and Adam's states.

# %%
# 4 minutes: which line leaks, and how many MiB does it keep per step? Answer with a pair such as
# ("cifar_train/loop.py(7): run", 3.5). Use the columns `source_line` and `bytes` of `tidyprof.memory_blocks` for `healthy`
# and for `growing`.
growing = modeled_snapshot("growing")
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
# Adam's states take slightly less in `growing`, although they request the same bytes: they were placed in blocks with
# smaller leftovers. In your own job, take one snapshot after step 10 and one after step 20, and look for the `source_line`
# that grew. Peaks don't show a leak, because every step has one.
#
# ## Nearly full
#
# Before the allocator gives up, it frees all empty segments and tries again. Then the trace of every step contains
# `hipFree`, which waits until the GPU is idle, and `num_alloc_retries` in `torch.cuda.memory_stats()` grows.
# `torch.cuda.empty_cache()` in a loop has the same effect. `PYTORCH_NO_HIP_MEMORY_CACHING=1`, which is for finding memory
# errors, has it for every tensor.
#
# ## Free and still out of memory
#
# Tensors of medium size share segments. Here, a small device gets many of them, two out of three are freed, and then a
# larger tensor is requested. This model follows the rules of PyTorch's allocator.

# %%
# Bytes of each request, and whether its tensor stays:
requests = [(round(6.6 * MEBIBYTE), number % 3 == 0) for number in range(94)]
last, capacity = 64 * MEBIBYTE, 640 * MEBIBYTE
crowded = play_requests(requests, last, capacity)
left = tidyprof.memory_blocks(crowded)
free = left[left["state"] == "inactive"]["bytes"] / MEBIBYTE
show_text(f"Requests that failed: {(crowded.events['name'] == 'oom').sum()}, of 64 MiB.")
reserved = left["bytes"].sum() / MEBIBYTE
show_text(
    f"Free: {free.sum():.0f} of {reserved:.0f} MiB, at most {free.max():.0f} MiB in one block."
)
show_figure(memory_map(left, "Every segment holds one tensor that stays"))

# %% [markdown]
# This is *fragmentation*: enough memory is free, but not in one piece. A segment returns to the driver only when it is
# empty, and each of these holds a tensor that stays. PyTorch's error message reports it as "reserved by PyTorch but
# unallocated".

# %%
# 5 minutes: the fix without a setting is to allocate first what stays. Sort `requests` that way, keep the rest of the
# order, and call `play_requests(ordered, last, capacity)`. How many MiB are reserved at the end, with the last request?
q = exercise("11.4", (requests, last, capacity))
# solution
ordered = [one for one in requests if one[1]] + [one for one in requests if not one[1]]
fixed = play_requests(ordered, last, capacity, name="ordered")
answer = tidyprof.memory_blocks(fixed)["bytes"].sum() / MEBIBYTE
# end solution
q.check(answer)

# %% [markdown]
# **Settings.** The environment variable `PYTORCH_ALLOC_CONF` accepts `option:value,option:value`. Older PyTorch builds call
# it `PYTORCH_CUDA_ALLOC_CONF` or, on AMD, `PYTORCH_HIP_ALLOC_CONF`, and these names still work.
#
# | option | effect |
# | --- | --- |
# | `expandable_segments:True` | segments can grow, so changing sizes leave fewer leftovers |
# | `max_split_size_mb:N` | larger blocks aren't split; may cost time, no effect with the row above |
# | `roundup_power2_divisions:N` | rounds requests, so similar ones can use the same block |
# | `garbage_collection_threshold:0.8` | frees old unused blocks when this share of the memory is in use |
#
# Settings fix fragmentation, but never a need. First check whether sizes have to change: use batches of one length,
# `drop_last=True`, and the largest batch first.
#
# ## Decide
#
# | what you see | cause | what to do |
# | --- | --- | --- |
# | each step starts with more memory | a leak | compare two snapshots by line |
# | everything is taken at the start | a pool | check its setting and its metrics, because VRAM shows nothing |
# | requested is close to the device's memory | need | smaller batch, 16 bits, activation checkpointing, more GPUs |
# | reserved is close, requested is far below | fragmentation | equal sizes, allocate first what stays, then settings |
# | none of these | memory outside PyTorch | compare VRAM with `memory_reserved()` |

# %%
proflab.reveal("11.a", in_use.max() / parameters, origin=HERE)

# %% [markdown] tags=["given"]
# ## Three takeaways
#
# - Parameters, gradients and Adam's states take 16 bytes per parameter in float32, before the first activation.
# - A snapshot names the line that requested each block, so two snapshots show which line leaks.
# - Out of memory with free memory is fragmentation, and allocating first what stays avoids it.
#
# ## What this view cannot see
#
# PyTorch's numbers end at its allocator. They include the workspaces that it lends to hipBLAS and MIOpen (for hipBLAS, 128
# MiB per handle and stream on MI300 and newer, according to PyTorch's manual). They don't include what libraries allocate
# themselves, such as RCCL's buffers. A peak doesn't show time, and a step that fits by recomputing activations is slower.

# %% [markdown] tags=["given"]
# > **Note:** Known issues:
# >
# > - `expandable_segments` needs [PyTorch 2.12][expand] or AMD's PyTorch 2.11, and [ROCm 7.0][gate]. Leave it out if you
# >   see [faults with PyTorch 2.12][crash], [a hang][hang] or, with ROCm 7.14 and `max_split_size_mb`, [zeros][zeros].
# > - The viewer [memory_viz][viz] [reads pickles of protocol 4][five], but Python 3.14 writes protocol 5. See the snippet.
# > - If the process aborts without an `OutOfMemoryError`, set
# >   [`throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.9`][throw].
# > - `max_entries` and `stacks="python"` make a snapshot of gigabytes smaller. Gradients have no line, because `backward`
# >   runs in a thread without Python.
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
# {snippet 11_memory.py}
#
# Count the memory of your own model. On a GPU, the script also prints the allocator's numbers and writes a snapshot.
# Replace the part between the two dashed lines.

# %% [markdown]
# Next question: how fast can a language model be?
