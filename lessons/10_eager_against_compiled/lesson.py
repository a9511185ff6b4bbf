# %% [markdown]
# # Eager versus compiled: what does compiling change?
#
# PyTorch runs *eagerly* by default: each operation of a model is a separate operator. `torch.compile` first looks at the
# whole model and replaces many small operators with a few generated kernels. Is this worth a slow first call?
#
# After this lesson, you can:
#
# - measure what compiling costs, and after how many calls it has paid for itself;
# - describe what the compiler changes, and check a gain against a part that it doesn't change;
# - find graph breaks and recompiles, and avoid them.
#
# **Before you start:** complete lessons 00 and 02. Compiling needs a C++ compiler for a CPU, or Triton for a GPU, which
# comes with PyTorch. Otherwise, the lesson uses recorded results.

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
torch.set_num_threads(1)  # on a busy machine, several threads wait for each other

# %%
lesson.recall()

# %% [markdown]
# ## The picture to keep in mind
#
# | | eager | compiled |
# | --- | --- | --- |
# | what decides which operation is next | Python, operator by operator | the compiler, once for a whole *graph* of operators |
# | first call | like the others | seconds to minutes for tracing, code generation, and a C++ compiler or Triton |
# | small operators in a row | one kernel each, which reads and writes memory | *fused* into one kernel, which uses memory once |
# | matrix products, convolutions | from a library (hipBLASLt, MIOpen) | mostly from the same library |
# | another shape or type | just runs | may be compiled again: a *recompile* |
# | Python code that can't be traced | just runs | splits the graph: a *graph break* |
#
# ## Predict
#
# A transformer block is called many times.

# %%
# solution
cost_guess = 500
# end solution
proflab.predict(
    "10.a", cost_guess, unit="times", what="the first compiled call, relative to an eager call"
)

# %% [markdown]
# ## Time the first call and the others
#
# The block consists of attention and two linear layers:

# %%
has_gpu = torch.accelerator.is_available()
device = torch.accelerator.current_accelerator() if has_gpu else torch.device("cpu")


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
# Time each call as in lesson 00, and alternate between eager and compiled. The compiler keeps its results in a folder
# for the next process, so use a new folder to see what a new machine pays:


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
            rows.append({"how": how, "call": call, "ms": 1e3 * (time.perf_counter() - start)})
    return pd.DataFrame(rows)


# %% [markdown]
# The next cell takes about a minute on two cores. Without a C++ compiler (`g++`), it shows recorded times.

# %%
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(lesson.folder / f"compiled_{time.time():.0f}")
torch._logging.set_logs(all=40)  # only errors, because the lesson shows the causes of the warnings
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
# Leave out the first calls. The *quartiles* are the values below which a quarter and three quarters of the calls are. If
# those of eager and compiled overlap, the comparison is inconclusive.


# %%
def steady_calls(times):
    rest = times[times["call"] >= 3].groupby("how")["ms"].describe()
    return rest.rename(
        columns={"25%": "quarter", "50%": "median", "75%": "three_quarters"}
    ).reset_index()


columns, title = "how mean quarter median three_quarters max", "Calls from the fourth on, in ms"
for calls, source in ((times, origin), (recorded, there.origin)):
    show_table(steady_calls(calls), columns, title, origin=source)
first = times.query("how == 'compiled' and call == 0")["ms"].iloc[0]
show_text(f"The first compiled call took {first / 1e3:.1f} s.")

# %% [markdown]
# This block is mostly matrix products, which don't change. Small operators in a row gain more. Before each compiled
# call, *guards* check whether the compiled code still fits, so a single small layer can only lose.

# %%
# 4 minutes: after how many compiled calls has compiling paid for itself, in the `recorded` times (columns `how`, `call`
# and `ms`)? Use the medians from call 3 on as if they were exact. The cost is the first compiled call minus a steady one.
q = exercise("10.1", recorded)
# solution
steady = recorded[recorded["call"] >= 3].groupby("how")["ms"].median()
first_call = recorded.query("how == 'compiled' and call == 0")["ms"].iloc[0]
answer = (first_call - steady["compiled"]) / (steady["eager"] - steady["compiled"])
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: the step became faster, so compiling did it
#
# These two traces show the same two training steps of a vision transformer on a CPU, eager and compiled. The compiler
# never sees the optimizer, which is *outside* the model, so the same operators run there in both.

# %%
places = {"eager": "torch-cpu-vit", "compiled": "torch-cpu-vit-compiled"}
shipped = {how: proflab.recording(place) for how, place in places.items()}
pair = {how: tidyprof.read(one.path, origin=one.origin) for how, one in shipped.items()}
step_ms = {how: tidyprof.steps(run)["duration_ns"].mean() / 1e6 for how, run in pair.items()}
phases = {
    how: tidyprof.phases(run).groupby("phase")["duration_ns"].sum() / 2e6
    for how, run in pair.items()
}
show_text(
    f"A step takes {step_ms['eager']:.0f} ms eager and {step_ms['compiled']:.0f} ms compiled."
)
shown = pd.DataFrame(phases).rename_axis("phase").reset_index()
show_table(shown, "phase eager compiled", "Mean of two steps, in ms", origin=pair["eager"].origin)

# %%
# 3 minutes: compiled, a step saves milliseconds. What share of these saved milliseconds, in percent, was saved in the
# phase `optimizer`? Use `phases` and `step_ms`, which are both in milliseconds per step.
q = exercise("10.2", pair)
# solution
shorter = step_ms["eager"] - step_ms["compiled"]
in_optimizer = phases["eager"]["optimizer"] - phases["compiled"]["optimizer"]
answer = 100 * in_optimizer / shorter
# end solution
q.check(answer)

# %% [markdown]
# A part that the compiler doesn't change is a *control*. If its time changes, something else changed as well, such as how
# busy the machine was. So these runs prove nothing about speed, but they show which operators ran:

# %%
calls = {how: tidyprof.operators(run).set_index("name")["calls"] for how, run in pair.items()}
for name in ("addmm", "_scaled_dot_product_flash_attention_for_cpu", "native_layer_norm"):
    counts = (f"{found.get(f'aten::{name}', 0)} {how}" for how, found in calls.items())
    show_text(f"`{name}`: {', '.join(counts)}")

# %% [markdown]
# Linear layers (`addmm`) and attention keep their library calls, and normalization is now in generated code. In GPU
# traces from Argonne's ALCF, linear layers gain and attention hardly does.
#
# ## Look at a GPU
#
# The example run at batch 1,024 was traced on an NVIDIA H200, eager and with `--compile`. Here are both on one time axis:

# %%
names = {"eager": "torch-h200-case-large", "compiled": "torch-h200-case-compiled"}
found = {how: proflab.recording(name) for how, name in names.items()}
traces = {how: tidyprof.read(one.path, origin=one.origin) for how, one in found.items()}
show_figure(runs_above(traces, "Eager above compiled, three traced steps"))

# %% [markdown]
# The compiled run requests its third batch earlier, because its forward passes take less time on the CPU. Both GPU
# rows look full only because each kernel is narrower than a pixel. Which kernels gain?

# %%
kernels = {how: tidyprof.kernels(trace) for how, trace in traces.items()}
kinds = {how: rows.groupby("category")["total_ns"].sum() / 3e6 for how, rows in kernels.items()}
shown = pd.DataFrame(kinds).fillna(0).rename_axis("category").reset_index()
show_table(
    shown, "category eager compiled", "Kernels of a step, in ms", origin=traces["eager"].origin
)
counts = {how: rows["calls"].sum() / 3 for how, rows in kernels.items()}
show_text(f"Kernels per step: {counts['eager']:.0f} eager, {counts['compiled']:.0f} compiled")

# %% [markdown]
# Convolutions keep their time, and the library chose other kernels for matrix products. Normalization and the changes of
# layout (both in *other*) take much less, because generated kernels replace them. Their names start with `triton_`, then
# `poi` for pointwise or `red` for a reduction, then the merged operators. Is the whole run faster?

# %%
runs = {"large": "eager", "compiled": "compiled"}
steps = measured().query("run in @runs and traced and not profiled and part == 'steady'")
steps = steps.assign(how=steps["run"].map(runs), call=steps["step"], ms=steps["duration_ns"] / 1e6)
show_table(steady_calls(steps), columns, "Steps on an H200, in ms", origin=traces["eager"].origin)

# %% [markdown]
# The middle half of the compiled steps is closer together, so steps are more even, except for one slow step. The mean
# didn't change, and the quartiles overlap: inconclusive. Nearly as many launches remain, and the CPU is the limit (lesson
# 04). `torch.compile(model, mode="reduce-overhead")` launches all kernels of a graph in one call (lesson 12).

# %% [markdown] tags=["given"]
# > **Note:** AMD's [published pairs](https://github.com/amd/HPCTrainingExamples), a ResNet-50 (2,013 and 2,128 images/s)
# > and two language models, became 1.06, 1.04 and 1.01 times as fast. A second compiled run on the H200 reached only half
# > the rate.
#
# ## Find graph breaks
#
# The compiler may remove your ranges *inside* the model from a trace, so put ranges around the call. In the trace,
# `Torch-Compiled Region: 0/0` is the first graph in its first version. `1/0` is the second graph, after a graph break, and
# `0/1` is the second version of the first graph, after a recompile.
#
# A *backend* is a function that accepts a graph and returns what to run instead. This one only counts graphs:

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
    f"The compiler gets {len(graphs)} graphs, because of line {reason.user_stack[-1].lineno}:"
)
print(str(reason.reason).splitlines()[0])

# %% [markdown]
# `if` needs a value in Python, so the graph ends there. `.item()` fetches it, which makes the CPU wait for the GPU, and a
# second graph continues. `TORCH_LOGS=graph_breaks,recompiles python train.py` prints this report for your own script.
# `torch.compile(model, fullgraph=True)` turns a break into an error.

# %%
# 4 minutes, open: write `repaired(x)`, which returns the same results as `careful(x)` in one graph. It can call
# `Block.forward(careful, x)`. Clamping small values doesn't change them.
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
# Guards check types, shapes and numbers. At the first batch of another size, the compiler makes a second version for any
# size, so an odd last batch costs one compilation per run. What about a number that changes in each step?


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
for kind, numbers in {"int": range(3, 15), "float": [n + 0.5 for n in range(3, 15)]}.items():
    counts = [graphs_for(numbers, as_attribute) for as_attribute in (False, True)]
    show_text(
        f"Twelve values, {kind}: {counts[0]} graphs as an argument, {counts[1]} as an attribute"
    )

# %% [markdown]
# An argument, or a float, becomes a variable at the second value. An integer *attribute* of the module is a constant of
# the model, like a global name or a string. PyTorch 2.15 recompiles until its limit, then gives up and runs eagerly. The
# trainer can inject this fault (`--inject-fault recompile`). Keep counters in tensors, or pass them as arguments.
#
# For shapes, use batches of one size (`drop_last=True` in the data loader, or padding), `torch.compile(model,
# dynamic=True)`, or `torch._dynamo.mark_dynamic(batch, 0)` for the one dimension that changes.
#
# ## Many GPUs
#
# DistributedDataParallel (DDP, lesson 07) adds up gradients in *buckets* during `backward`. Wrap the model first, then
# compile it, so that the compiler splits its graph where a bucket ends. Each rank compiles for itself. If a shape differs
# on one rank, that rank recompiles while the others wait. [Names on Intel
# GPUs](../docs/migration.md#pytorch-from-cuda-to-any-gpu) differ, and `torch.accelerator` works on all GPUs.
#
# ## Decide
#
# Compile if enough calls remain to pay for it, and if nothing breaks or recompiles. Otherwise, fix that first.

# %%
eager_ms = times.query("how == 'eager' and call >= 3")["ms"].median()
proflab.reveal("10.a", first / eager_ms, origin=origin)

# %% [markdown]
# ## Three takeaways
#
# - Compiling costs seconds to minutes once, so it pays only after many calls.
# - Check a gain against a part that the compiler doesn't change, and alternate the two variants.
# - Graph breaks and recompiles cancel the gain, and `TORCH_LOGS=graph_breaks,recompiles` reports both.
#
# ## What this view cannot see
#
# The H200 pair is one run each, so measure the gain on your GPU. Compare the losses too (lesson 08), because a count of
# graphs doesn't show whether the results are the same.
#
# > **Note:** Does each run start with slow steps? Set `TORCHINDUCTOR_CACHE_DIR` to a folder that outlives the job. For "No
# > working C++ compiler found", install g++ or load your site's module. For "hit config.recompile_limit", see
# > `TORCH_LOGS=recompiles`, or the [list of known issues](../docs/known-issues.md).

# %% [markdown]
# ## At work, without this course
#
# {snippet 10_compile_cost.py}
#
# This script prints the times, graph breaks and recompiles of your model. Replace the code between the dashed lines.

# %% [markdown]
# Next question: why did the GPU run out of memory?
