# %% [markdown]
# # Why did the GPU run out of memory?
#
# An "out of memory" error reports the request that failed, but not the tensors that use up the memory. Calculate how
# much memory a training step needs, and watch it over time, to find out whether the memory is needed, kept by mistake,
# or free but unusable.
#
# After this lesson, you can:
#
# - calculate how many bytes parameters, gradients, optimizer states and activations take up;
# - plot a step's memory use over time, and explain what remains afterward;
# - distinguish memory in use from reserved memory;
# - find a memory leak or fragmentation in a snapshot of PyTorch's allocator.
#
# **Before you start:** complete lessons 00 and 02. The byte counts are exact even on a CPU. Data that requires a GPU is
# modeled or recorded.

# %%
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
# | parameters | number of parameters times bytes per parameter | always |
# | gradients | as much as the parameters | from `backward` to `zero_grad` |
# | optimizer states | Adam: two numbers per parameter; SGD with momentum: one | from the first `step` |
# | activations: what `backward` needs from `forward` | grows with the batch size | from `forward` to `backward` |
# | temporary results | a few of the largest tensors | during one operator |
# | driver, RCCL buffers | not included in PyTorch's numbers | always |
#
# An *activation* is a tensor that a layer saves to compute its gradient. A linear layer saves its input, and a ReLU
# saves its result. If memory runs out, reduce the batch size first, because activations grow with it.
#
# ## Predict
#
# A model with two linear layers (512 to 2048 to 100) is trained with Adam on batches of 256 samples.

# %%
# solution
peak_guess = 3
# end solution
proflab.predict(
    "11.a",
    peak_guess,
    unit="times",
    what="the peak of a step relative to the parameters",
)

# %% [markdown]
# ## Count the bytes
#
# A tensor takes up `numel() * element_size()` bytes. Each number takes 4 bytes in float32, 2 bytes in bfloat16 and
# float16, and 8 bytes in the integer labels.


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
print(f"parameters  {parameters:12,} bytes; calculated {formula:,}")
print(f"gradients   {size_of(p.grad for p in model.parameters()):12,} bytes")
print(
    f"Adam states {size_of(states):12,} bytes; twice the parameters, plus a counter "
    "per tensor"
)

# %% [markdown]
# To count activations, register a *hook*, a function that autograd calls for each tensor that it saves. Several tensors
# can share storage, and autograd also saves parameters, so count each storage once and leave out the parameters:


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
# First input, ReLU's result, logarithms in the loss
layers = 256 * 512 + 256 * 2048 + 256 * 100
# Labels, and the sum of their weights
formula = 4 * layers + 8 * 256 + 4
print(f"activations {activations:12,} bytes; calculated {formula:,}")

# %% [markdown]
# - **16 bits:** *autocast* keeps the parameters in float32 and converts them for matrix products. This makes only the
#   activations smaller, and autocast also stores the converted weights. Alternatively, store everything in bfloat16.
# - **The largest batch:** memory use grows linearly with the batch size, so peaks at two batch sizes give you the fixed
#   bytes and the bytes per sample. Subtract the fixed bytes from the device memory, and divide by the bytes per sample.

# %%
# 4 minutes: parameters and gradients are stored in bfloat16 and both Adam states in float32, which is a common setup.
# How many MiB (2**20 bytes) do all four take up together for the trainer's ResNet-50? `in_float32` lists the size of
# each parameter tensor in bytes, as stored in float32.
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
# With `profile_memory=True`, the profiler records every allocation. Start the profiler before you create the model:


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


# %%
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
    with record_function("model"):
        fresh = new_model()
        its_optimizer = torch.optim.Adam(fresh.parameters())
    for _ in range(3):
        one_step(fresh, its_optimizer)
prof.export_chrome_trace(str(lesson.folder / "memory_trace.json"))

# %% [markdown]
# In the trace, each allocation or release is a `[memory]` event with its size in bytes (negative for a release). The
# `allocated memory` counter is the running total of these sizes:

# %%
mine = tidyprof.read(lesson.folder / "memory_trace.json", origin=HERE)
in_use = mine.counters.query("name == 'allocated memory'")["value"]
parts = ("model", "data", "forward", "backward", "optimizer")
# A GPU records ranges twice
ranges = mine.events.query("name in @parts and device.isna()")
title = "Memory use during three training steps"
show_figure(plots.memory(mine, ["allocated memory"], title=title, phases=ranges))
print(
    f"at the end {in_use.iloc[-1]:12,.0f} bytes; calculated "
    f"{parameters + size_of(states):,}"
)
print(
    f"peak       {in_use.max():12,.0f} bytes; {in_use.max() / parameters:.1f} times "
    "the parameters"
)

# %% [markdown]
# - During **forward**, memory use grows by the activations. During **backward**, activations are freed while gradients
#   are allocated.
# - During **optimizer** in the first step, memory use grows further because Adam allocates its states. They remain,
#   whereas two temporary results are freed.
# - In the second step, the states are already in memory during `forward` and `backward`. With this small batch, the
#   peak still occurs in `optimizer`. With a large batch, it occurs at the start of `backward`, so **the second step
#   needs the most memory, not the first**.
#
# A job that survives two steps fails later only if the batch size or the text length changes, or if memory leaks.

# %% [markdown]
# ## Trap: a list of losses
#
# A tensor that you keep also keeps its *graph*, which contains everything that `backward` would need. `backward` frees
# the graph, so a list of training losses takes up only a few bytes. A validation loop doesn't call `backward`, so the
# same list keeps the activations of every batch. Store `loss.item()` instead (or `loss.detach()` if the CPU must not
# wait for the GPU), and run validation under `torch.no_grad()`.
#
# ## On a GPU: allocated, reserved, used
#
# A CPU frees memory at once. On a GPU, freeing is slow, so PyTorch's *caching allocator* requests memory in
# *segments* and keeps them. Each tensor gets a *block* of a segment. Four numbers describe GPU memory, and each
# includes the previous one:
#
# | number | where to read it | what it counts |
# | --- | --- | --- |
# | requested | `torch.cuda.memory_stats()["requested_bytes.all.current"]` | the bytes that tensors requested |
# | allocated | `torch.cuda.memory_allocated()` | their blocks, including rounding and leftovers too small to split off |
# | reserved | `torch.cuda.memory_reserved()` | all segments, including their free blocks |
# | used | VRAM in `amd-smi`, `torch.cuda.mem_get_info()` | reserved memory, plus the driver, RCCL and other processes |
#
# Function names contain `cuda` even on AMD GPUs. *VRAM* is the GPU's memory, which is HBM on an MI300X.

# %% [markdown]
# ## Take a snapshot
#
# The allocator can record each of its operations and the source line that requested it:
#
# ```python
# torch.cuda.memory._record_memory_history(max_entries=100_000)
# ...  # two or three steps, or until it fails
# torch.cuda.memory._dump_snapshot("snapshot.pickle")
# torch.cuda.memory._record_memory_history(enabled=None)
# ```
#
# The following modeled snapshot shows three steps of the trainer's ResNet-50 on an MI300X with batch size 256. The
# bytes of parameters and Adam states are exact, whereas the activations are an upper bound. We had no real GPU snapshot
# for comparison.
#
# > **Warning:** Loading a pickle can run code. `tidyprof` reads only plain data from it.

# %%
healthy = modeled_snapshot("healthy")
blocks = tidyprof.memory_blocks(healthy)
lines = blocks.fillna({"source_line": "free"}).groupby("source_line", as_index=False)
lines = (
    lines[["bytes", "requested_bytes"]].sum().rename(columns={"bytes": "taken_bytes"})
)
columns = "source_line requested_mib taken_mib"
caption = "Memory after the last step, by line"
show_table(lines, columns, caption, origin=healthy.origin)

# %% [markdown]
# Much of the reserved memory is free after the step, but the next step can use it without calling the driver. The
# reported line can be a caller of the code that allocates. For example, `train` calls `optimizer.step()`, which
# allocated Adam's states.
#
# ## Trap: VRAM is full, so the model is too large
#
# `amd-smi` shows all memory that was taken from the driver, whether it is needed or not.

# %%
# 4 minutes: these logs are from an MI300X that served a language model with 8 billion parameters in float16 on GPU 0.
# What percentage of GPU 0's highest `memory_used` value (in bytes) do the parameters account for? `logs.counters` has
# the columns `name`, `device` and `value`.
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
# The trainer can inject a fault that keeps one tensor per step (`--inject-fault memory-growth`).

# %%
# 4 minutes: the `healthy` snapshot was taken without this fault and the `growing` snapshot with it, both after three
# steps. Which source line leaks memory, and how many MiB does it keep per step? Answer with a pair, such as
# ("cifar_train/loop.py(7): run", 3.5). Use the `source_line` and `bytes` columns of `tidyprof.memory_blocks`.
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
# In your own job, take snapshots after steps 10 and 20, and look for the `source_line` whose memory grew. A peak
# doesn't indicate a leak, because memory use peaks in every step.
#
# ## Nearly full
#
# Before the allocator gives up, it frees all empty segments and tries again. Each retry calls `hipFree`, which waits
# until the GPU is idle, and increases `num_alloc_retries` in `torch.cuda.memory_stats()`. Calling
# `torch.cuda.empty_cache()` in a loop also causes these waits, and `PYTORCH_NO_HIP_MEMORY_CACHING=1`, a setting for
# finding memory errors, causes one for every tensor.
#
# ## Out of memory although memory is free
#
# Medium-sized tensors share segments. In this simulation of PyTorch's allocator, a small
# device stores many such tensors. Two out of three of these tensors are freed, and then a larger tensor is requested.

# %%
# Bytes, stays
requests = [(round(6.6 * MEBIBYTE), number % 3 == 0) for number in range(94)]
last, capacity = 64 * MEBIBYTE, 640 * MEBIBYTE
crowded = play_requests(requests, last, capacity)
left = tidyprof.memory_blocks(crowded)
free = left[left["state"] == "inactive"]["bytes"] / MEBIBYTE
show_text(f"Failed requests of 64 MiB: {(crowded.events['name'] == 'oom').sum()}")
reserved = left["bytes"].sum() / MEBIBYTE
show_text(f"Free: {free.sum():.0f} of {reserved:.0f} MiB.")
show_figure(memory_map(left, "Every segment holds a tensor that stays in memory"))

# %% [markdown]
# This is *fragmentation*: enough memory is free, but not in one piece. A segment returns to the driver only when it is
# empty, and each of these segments holds a tensor that stays. PyTorch's error message calls such memory "reserved by
# PyTorch but unallocated".

# %%
# 5 minutes: to avoid fragmentation without changing a setting, allocate the tensors that stay before all others. Sort
# `requests` in this way, but keep the order within each group, and call `play_requests(ordered, last, capacity)`. How
# many MiB are reserved at the end, including the last request?
q = exercise("11.4", (requests, last, capacity))
# solution
ordered = [one for one in requests if one[1]] + [one for one in requests if not one[1]]
fixed = play_requests(ordered, last, capacity, name="ordered")
answer = tidyprof.memory_blocks(fixed)["bytes"].sum() / MEBIBYTE
# end solution
q.check(answer)

# %% [markdown]
# **Settings.** Set options in the environment variable `PYTORCH_ALLOC_CONF`, as `option:value,option:value`. Older
# PyTorch builds call it `PYTORCH_CUDA_ALLOC_CONF` or, on AMD GPUs, `PYTORCH_HIP_ALLOC_CONF`, and these names still
# work.
#
# | option | effect |
# | --- | --- |
# | `expandable_segments:True` | lets segments grow, so changing sizes leave fewer unusable blocks |
# | `max_split_size_mb:N` | doesn't split larger blocks; may cost time, and has no effect with the option above |
# | `roundup_power2_divisions:N` | rounds up requests, so that similar requests can use the same block |
# | `garbage_collection_threshold:0.8` | frees old unused blocks when this share of the memory is in use |
#
# Settings can fix fragmentation, but they don't reduce a step's memory needs. First, check whether sizes have to
# vary: use batches of one length, set `drop_last=True`, and run the largest batch first.
#
# ## Decide
#
# | what you see | cause | what to do |
# | --- | --- | --- |
# | each step starts with more memory in use | a leak | compare two snapshots by source line |
# | memory is full from the start | a memory pool | check its setting and metrics, because VRAM use stays constant |
# | requested memory nearly fills the device | the step needs more | smaller batch, 16 bits, activation checkpointing, more GPUs |
# | reserved memory nearly fills the device, but requested memory doesn't | fragmentation | equal sizes, allocating long-lived tensors first, then settings |
# | none of these | memory outside PyTorch | compare VRAM use with `memory_reserved()` |

# %%
proflab.reveal("11.a", in_use.max() / parameters, origin=HERE)

# %% [markdown] tags=["given"]
# ## Three takeaways
#
# - In float32, parameters, gradients and Adam states take up 16 bytes per parameter, even before the first activation.
# - A snapshot lists the line that requested each block, so comparing two snapshots shows which line leaks.
# - If a request fails although enough memory is free, memory is fragmented, so allocate long-lived tensors first.
#
# ## What this view cannot see
#
# PyTorch's numbers cover only its allocator. These numbers include the workspaces that PyTorch lends to hipBLAS and
# MIOpen (for hipBLAS, PyTorch documents 128 MiB per handle and stream on MI300 and newer GPUs). These numbers don't
# include what libraries allocate themselves, such as RCCL buffers. A peak also doesn't show that recomputing
# activations makes a step slower.

# %% [markdown] tags=["given"]
# > **Note:** Known issues:
# >
# > - `expandable_segments` needs [PyTorch 2.12][expand] or AMD's PyTorch 2.11, and [ROCm 7.0][gate]. Omit this option
# >   if you see [faults with PyTorch 2.12][crash], [a hang][hang] or, with ROCm 7.14 and `max_split_size_mb`,
# >   [unexpected zeros][zeros].
# > - The [memory_viz][viz] viewer [reads pickle protocol 4][five], but Python 3.14 writes protocol 5. The snippet
# >   writes protocol 4.
# > - If the process aborts without an `OutOfMemoryError`, set
# >   [`throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.9`][throw].
# > - `max_entries` and `stacks="python"` make huge snapshots smaller. Gradients have no source line, because `backward`
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
# This script measures your model's memory use. On a GPU, it also prints the allocator's numbers and writes a
# snapshot. Replace the code between the dashed lines.

# %% [markdown]
# Next question: how fast can a model generate tokens?
