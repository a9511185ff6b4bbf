# %% [markdown]
# # Eager versus compiled: what does compiling change?
#
# By default, PyTorch runs *eagerly*, one operator at a time. In contrast, `torch.compile` analyzes the whole model and
# replaces many small operators with a few generated kernels. Is the speedup worth a slow first call?
#
# After this lesson, you can:
#
# - measure the cost of compiling, and after how many calls it pays off;
# - describe what the compiler changes, and check a speedup against a part that it doesn't change;
# - find graph breaks and recompiles, and avoid them.
#
# **Before you start:** complete lessons 00 and 02. Compiling requires a C++ compiler on a CPU, or Triton (included with
# PyTorch) on a GPU. Without these tools, the lesson uses recorded results.

# %%
import os
import shutil
import time

import pandas as pd
import proflab
import tidyprof
import torch
from proflab import exercise, show_figure, show_table, show_text
from proflab.case import measured
from proflab.parts.runs_above import runs_above
from proflab.parts.signs_of_life import signs_of_life
from torch import nn

lesson = proflab.start("10")
# On a busy machine, several threads wait for each other
torch.set_num_threads(1)

# %%
lesson.recall()

# %% [markdown]
# ## The picture to keep in mind
#
# | | eager | compiled |
# | --- | --- | --- |
# | what selects the next operation | Python, one operator at a time | the compiler, once for a whole *graph* of operators |
# | first call | as fast as the others | takes seconds to minutes for tracing, code generation, and a C++ compiler or Triton |
# | consecutive small operators | one kernel each, which reads and writes memory | *fused* into one kernel, which reads and writes once |
# | matrix products, convolutions | from a library (hipBLASLt, MIOpen) | mostly from the same library |
# | input with a new shape or type | runs | may cause another compilation, a *recompile* |
# | Python code that can't be traced | runs | splits the graph, which is a *graph break* |
#
# ## Predict
#
# How slow is the first compiled call to a transformer block?

# %%
# solution
cost_guess = 500
# end solution
proflab.predict(
    "10.a",
    cost_guess,
    unit="times",
    what="the first compiled call, relative to an eager call",
)

# %% [markdown]
# ## Time the first call and the others
#
# The block consists of an attention layer and two linear layers:

# %%
has_gpu = torch.accelerator.is_available()
device = torch.accelerator.current_accelerator() if has_gpu else torch.device("cpu")


# %%
class Block(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        parts = self.mix(self.norm(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(*parts)
        x = x + seen.transpose(1, 2).flatten(2)
        return x + self.down(nn.functional.gelu(self.up(x)))


block, batch = Block().to(device), torch.randn(32, 64, 128, device=device)

# %% [markdown]
# Time each call as in lesson 00, and alternate between eager and compiled calls. The compiler caches its results in a
# folder, so use a new folder to measure the cost on a new machine:


# %%
def alternate(variants, x, calls=40):
    wait, rows = torch.accelerator.synchronize if has_gpu else lambda: None, []
    for call in range(calls):
        for how, model in variants.items():
            wait()
            start = time.perf_counter()
            with torch.no_grad():
                model(x)
            wait()
            rows.append(
                {"how": how, "call": call, "ms": 1e3 * (time.perf_counter() - start)}
            )
    return pd.DataFrame(rows)


# %% [markdown]
# The next cell takes about a minute on two cores.

# %%
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(
    lesson.folder / f"compiled_{time.time():.0f}"
)
# Only errors, because the lesson shows the causes of the warnings
torch._logging.set_logs(all=40)
there = proflab.recording("torch-cpu-compiled-block")
recorded = pd.read_csv(there.files["times.csv"])
times, origin = recorded, there.origin
if has_gpu or shutil.which(os.environ.get("CXX", "g++")):
    with signs_of_life("Compiling and timing"):
        times = alternate({"eager": block, "compiled": torch.compile(block)}, batch)
    origin = "measured: this machine"

# %% [markdown]
# ## First look
#
# Leave out the first calls. The *quartiles* are the values below which a quarter and three quarters of the calls fall.
# If the quartile ranges of eager and compiled calls overlap, the comparison is inconclusive.


# %%
def steady_calls(times):
    rest = times[times["call"] >= 3].groupby("how")["ms"].describe()
    return rest.rename(
        columns={"25%": "quarter", "50%": "median", "75%": "three_quarters"}
    ).reset_index()


columns = "how mean quarter median three_quarters max"
title = "From the fourth call on, in ms"
for calls, source in ((times, origin), (recorded, there.origin)):
    show_table(steady_calls(calls), columns, title, origin=source)
first = times.query("how == 'compiled' and call == 0")["ms"].iloc[0]
show_text(f"The first compiled call took {first / 1e3:.1f} s.")

# %% [markdown]
# This block consists mostly of matrix products, which the compiler doesn't change, so models with many consecutive
# small operators gain more. Before each compiled call, *guards* check whether the compiled code is still valid, so a
# single small layer only becomes slower.

# %%
# 4 minutes: according to the `recorded` times (columns `how`, `call` and `ms`), after how many compiled calls has
# compiling paid for itself? Treat the medians from call 3 on as exact. The cost is the time of the first compiled call
# minus the median time of a compiled call.
q = exercise("10.1", recorded)
# solution
steady = recorded[recorded["call"] >= 3].groupby("how")["ms"].median()
first_call = recorded.query("how == 'compiled' and call == 0")["ms"].iloc[0]
answer = (first_call - steady["compiled"]) / (steady["eager"] - steady["compiled"])
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: the step got faster, so compiling must be the reason
#
# These two traces show the same two training steps of a vision transformer on a CPU, eager and compiled. The optimizer
# is *outside* the model, so the compiler never sees it, and the same optimizer operators run in both traces.

# %%
places = {"eager": "torch-cpu-vit", "compiled": "torch-cpu-vit-compiled"}
shipped = {how: proflab.recording(place) for how, place in places.items()}
pair = {how: tidyprof.read(one.path, origin=one.origin) for how, one in shipped.items()}
step_ms = {
    how: tidyprof.steps(run)["duration_ns"].mean() / 1e6 for how, run in pair.items()
}
phases = {
    how: tidyprof.phases(run).groupby("phase")["duration_ns"].sum() / 2e6
    for how, run in pair.items()
}
show_text(
    f"An eager step takes {step_ms['eager']:.0f} ms, a compiled one "
    f"{step_ms['compiled']:.0f} ms."
)
shown = pd.DataFrame(phases).rename_axis("phase").reset_index()
show_table(
    shown,
    "phase eager compiled",
    "Mean of two steps, in ms",
    origin=pair["eager"].origin,
)

# %%
# 3 minutes: a compiled step takes less time than an eager step. What percentage of the saved time was saved in the
# `optimizer` phase? Use `phases` and `step_ms`, which both contain milliseconds per step.
q = exercise("10.2", pair)
# solution
shorter = step_ms["eager"] - step_ms["compiled"]
in_optimizer = phases["eager"]["optimizer"] - phases["compiled"]["optimizer"]
answer = 100 * in_optimizer / shorter
# end solution
q.check(answer)

# %% [markdown]
# A part that the compiler doesn't change is called a *control*. If its time changes, something else must have changed
# as well, such as the load on the machine. These runs prove nothing about speed, but they show which operators ran:

# %%
calls = {
    how: tidyprof.operators(run).set_index("name")["calls"] for how, run in pair.items()
}
for name in (
    "addmm",
    "_scaled_dot_product_flash_attention_for_cpu",
    "native_layer_norm",
):
    counts = (f"{found.get(f'aten::{name}', 0)} {how}" for how, found in calls.items())
    show_text(f"`{name}`: {', '.join(counts)}")

# %% [markdown]
# Linear layers (`addmm`) and attention still call library kernels, whereas generated code does the normalization. In
# GPU traces from Argonne's ALCF, linear layers become faster, but attention hardly changes.
#
# ## Look at a GPU
#
# We traced the example run with batch size 1,024 on an NVIDIA H200, eager and with `--compile`:

# %%
names = {"eager": "torch-h200-case-large", "compiled": "torch-h200-case-compiled"}
found = {how: proflab.recording(name) for how, name in names.items()}
traces = {how: tidyprof.read(one.path, origin=one.origin) for how, one in found.items()}
show_figure(runs_above(traces, "Eager (top) and compiled (bottom), three steps"))

# %% [markdown]
# The compiled run requests its third batch earlier, because its forward passes take less CPU time. Both GPU rows look
# full only because each kernel is narrower than a pixel. Which kernels became faster?

# %%
kernels = {how: tidyprof.kernels(trace) for how, trace in traces.items()}
kinds = {
    how: rows.groupby("category")["total_ns"].sum() / 3e6
    for how, rows in kernels.items()
}
shown = pd.DataFrame(kinds).fillna(0).rename_axis("category").reset_index()
show_table(
    shown,
    "category eager compiled",
    "Kernel time per step, in ms",
    origin=traces["eager"].origin,
)
counts = {how: rows["calls"].sum() / 3 for how, rows in kernels.items()}
show_text(
    f"Kernels per step: {counts['eager']:.0f} eager, {counts['compiled']:.0f} compiled"
)

# %% [markdown]
# Convolutions take as long as before, and matrix products use different library kernels. Normalization and layout
# changes (in eager mode, both in *other*) take much less time in generated kernels. The names of these kernels start with `triton_`,
# then `poi` (pointwise) or `red` (reduction), then the fused operators. Is the whole run faster?

# %%
runs = {"large": "eager", "compiled": "compiled"}
steps = measured().query(
    "run in @runs and traced and not profiled and part == 'steady'"
)
steps = steps.assign(
    how=steps["run"].map(runs), call=steps["step"], ms=steps["duration_ns"] / 1e6
)
show_table(
    steady_calls(steps),
    columns,
    "Steps on an H200, in ms",
    origin=traces["eager"].origin,
)

# %% [markdown]
# Except for one slow step, compiled steps vary less, but the mean didn't change. Because the quartile ranges overlap,
# the comparison is inconclusive. The compiled run launches nearly as many kernels, so the CPU is still the limit
# (lesson 04). `torch.compile(model, mode="reduce-overhead")` launches all kernels in a graph with one call (lesson 12).

# %% [markdown] tags=["given"]
# > **Note:** In AMD's [published comparisons](https://github.com/amd/HPCTrainingExamples), compiling made a ResNet-50
# > 1.06 times as fast (2,128 instead of 2,013 images/s), and two language models 1.04 and 1.01 times as fast. On the
# > H200, a second compiled run reached only half the rate of the run above.
#
# ## Find graph breaks
#
# The compiler may remove ranges *inside* the model from a trace, so put ranges around the call to the model. In the
# trace, `Torch-Compiled Region: 0/0` is the first graph. After a graph break, `1/0` is the second graph, and after a
# recompile, `0/1` is the second version of the first graph.
#
# A *backend* is a function that receives a graph and returns the function to run instead. This backend only counts
# graphs:

# %%
graphs = []


def counting(graph, inputs):
    graphs.append(graph)
    return graph.forward


class Careful(Block):
    def forward(self, x):
        x = super().forward(x)
        if x.abs().max().item() > 1e3:
            x = x.clamp(-1e3, 1e3)
        return x + 1


# %%
careful = Careful().to(device)
graphs.clear()
torch._dynamo.reset()
torch.compile(careful, backend=counting)(batch)
[reason] = torch._dynamo.explain(careful)(batch).break_reasons
show_text(
    f"The compiler gets {len(graphs)} graphs because of line "
    f"{reason.user_stack[-1].lineno}:"
)
print(str(reason.reason).splitlines()[0])

# %% [markdown]
# The `if` statement needs a Python value, so the first graph ends there. `.item()` fetches this value, which makes the
# CPU wait for the GPU. To get this report for your own script, run it with `TORCH_LOGS=graph_breaks,recompiles`.
# `torch.compile(model, fullgraph=True)` turns graph breaks into errors.

# %%
# 4 minutes: write `repaired(x)`, which returns the same results as `careful(x)` but compiles to one graph. It can
# call `Block.forward(careful, x)`. Clamping doesn't change values within the limits.
q = exercise("10.3", (careful, batch))


# solution
def repaired(x):
    x = Block.forward(careful, x)
    return x.clamp(-1e3, 1e3) + 1


answer = repaired
# end solution
q.check(answer)

# %% [markdown]
# ## Find recompiles
#
# Guards check types, shapes and numbers. When the batch size first changes, the compiler generates a second version
# that accepts any batch size, so a smaller last batch costs one compilation per run. What happens if a number changes
# in each step?


# %%
class Counted(nn.Module):
    number = 1

    def forward(self, x, number=0):
        return x * (self.number + number)


def graphs_for(numbers, as_attribute):
    graphs.clear()
    torch._dynamo.reset()
    model = Counted()
    compiled = torch.compile(model, backend=counting)
    for number in numbers:
        model.number = number if as_attribute else 1
        compiled(batch, 0 if as_attribute else number)
    return len(graphs)


# %%
for kind, numbers in {
    "int": range(3, 15),
    "float": [n + 0.5 for n in range(3, 15)],
}.items():
    counts = [graphs_for(numbers, as_attribute) for as_attribute in (False, True)]
    show_text(
        f"Twelve {kind} values: {counts[0]} graphs as an argument, {counts[1]} as an "
        "attribute"
    )

# %% [markdown]
# When a value first changes, the compiler turns an argument or a float into a variable. In contrast, it treats an
# integer *attribute* of the module as a constant, like a global name or a string. In this case, PyTorch 2.15 recompiles
# until it reaches its limit, and then runs eagerly. The trainer can inject this fault (`--inject-fault recompile`).
# Keep counters in tensors, or pass them as arguments.
#
# If shapes change, use batches of one size (`drop_last=True` in the data loader, or padding),
# `torch.compile(model, dynamic=True)`, or `torch._dynamo.mark_dynamic(batch, 0)` for a single changing dimension.
#
# ## Many GPUs
#
# DistributedDataParallel (DDP, lesson 07) reduces gradients in *buckets* during `backward`. Wrap the model in DDP
# first, and then compile it, so that the compiler splits its graph at bucket boundaries. Each rank compiles separately.
# If a shape differs on one rank, that rank recompiles while the others wait. [Some names differ on Intel
# GPUs](../docs/migration.md#pytorch-from-cuda-to-any-gpu), but `torch.accelerator` works on all GPUs.
#
# ## Decide
#
# Compile if the remaining calls save more time than compiling costs. Fix graph breaks and recompiles first.

# %%
eager_ms = times.query("how == 'eager' and call >= 3")["ms"].median()
proflab.reveal("10.a", first / eager_ms, origin=origin)

# %% [markdown]
# ## Three takeaways
#
# - Compiling costs seconds to minutes once, so it pays off only after many calls.
# - Compare a speedup with a part that the compiler doesn't change, and alternate the two variants.
# - Graph breaks and recompiles can cancel the speedup, and `TORCH_LOGS=graph_breaks,recompiles` reports both.
#
# ## What this view cannot see
#
# The H200 comparison uses one run of each variant, so measure the speedup on your own GPU. Also compare the losses
# (lesson 08), because graph counts don't show whether the results are correct.
#
# > **Note:** If each run starts slowly, set `TORCHINDUCTOR_CACHE_DIR` to a folder that outlives the job.
# > For "No working C++ compiler found", install g++ or load your site's module. For "hit
# > config.recompile_limit", use `TORCH_LOGS=recompiles`, or see the [known issues](../docs/known-issues.md).

# %% [markdown]
# ## At work, without this course
#
# {snippet 10_compile_cost.py}
#
# This script prints the times, graph breaks and recompiles of your model. Replace the code between the dashed lines.

# %% [markdown]
# Next question: why did the GPU run out of memory?
