# %% [markdown]
# # Eager against compiled: what does it change?
#
# PyTorch runs *eagerly* by default: each operation of the model becomes an operator of its own, at once.
# `torch.compile` looks at the model as a whole first, and replaces many small operators by few generated kernels. The
# first call pays for that. Did it pay off?
#
# After this lesson you can
#
# - measure what compiling costs and after how many calls it has paid;
# - say what the compiler changes, and check a gain against a part that it does not touch;
# - find graph breaks and recompiles, and take them out.
#
# You need lessons 00 and 02. Compiling for a processor needs a C++ compiler, for a GPU Triton, which comes with torch.
# Where it is missing, the lesson goes on with recordings.

# %%
import logging
import os
import shutil
import tempfile
import time

import pandas as pd
import proflab
import tidyprof
import torch
from proflab import exercise, show_table, show_text
from proflab.case import measured
from proflab.parts.signs_of_life import signs_of_life
from tidyprof import Origin
from torch import nn

lesson = proflab.start("10")
torch.set_num_threads(1)  # more of them wait for each other on a busy machine

# %%
lesson.recall()

# %% [markdown]
# ## The picture to keep in mind
#
# | | eager | compiled |
# | --- | --- | --- |
# | who decides what runs next | Python, operator by operator | the compiler, once for a whole *graph* of operators |
# | first call | as the others | seconds to minutes: tracing, generating code, running a C++ compiler or Triton |
# | small operators in a row | a kernel each, which reads and writes memory | *fused*: one kernel, memory once |
# | matrix products, convolutions | a library (hipBLASLt, MIOpen) | mostly the same library |
# | another shape, another type | just runs | may be compiled again: a *recompile* |
# | Python that can't be traced | just runs | splits the graph: a *graph break* |
#
# ## Predict
#
# A small part of a transformer is asked again and again.

# %%
# solution
cost_guess = 500
# end solution
what = "the first compiled call, compared with an eager call"
proflab.predict("10.a", cost_guess, unit="times", what=what)

# %% [markdown]
# ## Capture: the first call against the rest
#
# Attention, then two linear layers. `torch.accelerator` is whatever GPU there is.

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
# Each call is timed as in lesson 00; eager and compiled take turns. The compiler keeps its results in a folder, for the
# next process too: a quick first call says nothing about a fresh machine. Here the folder is new.


# %%
def in_turn(ways, x, calls=40):
    wait, rows = torch.accelerator.synchronize if has_gpu else lambda: None, []
    for call in range(calls):
        for how, answer in ways.items():
            wait()
            begin = time.perf_counter()
            with torch.no_grad():
                answer(x)
            wait()
            rows.append({"how": how, "call": call, "ms": 1e3 * (time.perf_counter() - begin)})
    return pd.DataFrame(rows)


# %%
cache = tempfile.TemporaryDirectory(prefix="compiled_")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name
torch._logging.set_logs(all=logging.ERROR)  # what it would warn of, the lesson shows
can_compile = has_gpu or bool(shutil.which(os.environ.get("CXX", "g++")))

# %%
there = proflab.recording("torch-cpu-compiled-block")
recorded = pd.read_csv(there.files["times.csv"])
if can_compile:
    show_text("The first compiled call can take a minute, more where others share the processors.")
    origin = Origin("measured", "this machine")
    with signs_of_life("Compiling and timing"):
        times = in_turn({"eager": block, "compiled": torch.compile(block)}, batch)
else:
    times, origin = recorded, there.origin
    show_text("There is no C++ compiler here (`g++`), so the times are those of a recording.")

# %% [markdown]
# ## First look
#
# The first compiled call is in another world, so leave it out. The *quartiles* are the values below which a quarter and
# three quarters of the calls lie. Only if those of eager and compiled don't overlap may you say that one is faster.


# %%
def steady_calls(times):
    rest = times[times["call"] >= 3].groupby("how")["ms"].describe()[["25%", "50%", "75%", "max"]]
    return rest.set_axis(["quarter", "median", "three_quarters", "slowest"], axis=1)


rest = steady_calls(times)
columns = "how quarter median three_quarters slowest"
show_table(rest.reset_index(), columns, "Calls from the fourth on, ms", origin=origin)


# %%
def verdict(rest):
    eager, compiled = rest.loc["eager"], rest.loc["compiled"]
    gain = eager["median"] / compiled["median"]
    if compiled["three_quarters"] < eager["quarter"]:
        return f"a gain, {gain:.2f} times as fast, and the quartiles don't overlap"
    if eager["three_quarters"] < compiled["quarter"]:
        return f"a loss, it takes {1 / gain:.2f} times as long, and the quartiles don't overlap"
    return f"inconclusive, since the quartiles overlap (ratio of the medians: {gain:.2f})"


show_text(f"Here: **{verdict(rest)}**. {there.origin}: **{verdict(steady_calls(recorded))}**.")
first = times.query("how == 'compiled' and call == 0")["ms"].iloc[0]
show_text(f"The first compiled call took {first / 1e3:.1f} s.")

# %% [markdown]
# The block is mostly matrix products, which stay as they are; small operators in a row gain more. A small layer alone
# has nothing to fuse, and before each compiled call *guards* check whether what was compiled still fits: that can only
# cost. Calls after the first can be slow as well, so the table begins with the fourth. For a step with `backward` a
# second graph is compiled.

# %%
# 4 minutes: after how many compiled calls has compiling paid, in the recorded times? `recorded` has the columns `how`,
# `call` and `ms`. Take the medians from call 3 on, as if they were sure, and as cost what the first compiled call takes
# beyond a steady one.
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
# Two recordings of the course's vision transformer on a processor: the same two training steps, eager and compiled. A
# clear gain? Look at the optimizer, *outside* of the model: the compiler never saw it, and its operators are the same
# in both runs.

# %%
places = {"eager": "torch-cpu-vit", "compiled": "torch-cpu-vit-compiled"}
shipped = {how: proflab.recording(place) for how, place in places.items()}
pair = {how: tidyprof.read(one.path, origin=one.origin) for how, one in shipped.items()}

# %%
step_ms = {how: tidyprof.steps(run)["duration_ns"].mean() / 1e6 for how, run in pair.items()}
phases = {}
for how, run in pair.items():
    phases[how] = tidyprof.phases(run).groupby("phase")["duration_ns"].sum() / 2e6
    show_text(f"A step takes {step_ms[how]:.0f} ms {how}.")
shown = pd.DataFrame(phases).rename_axis("phase").reset_index()
show_table(shown, "phase eager compiled", "Mean of two steps, ms", origin=pair["eager"].origin)

# %%
# 4 minutes: compiled, the step saves milliseconds. What share of the saved ones, in percent, was saved in the phase
# `optimizer`? Compute it from `phases`, milliseconds a step, and `step_ms`.
q = exercise("10.2", pair)
# solution
shorter = step_ms["eager"] - step_ms["compiled"]
in_optimizer = phases["eager"]["optimizer"] - phases["compiled"]["optimizer"]
answer = 100 * in_optimizer / shorter
# end solution
q.check(answer)

# %% [markdown]
# What the compiler never saw serves as a *control*: if it does not take the same time, something else changed, such as
# how busy the machine was. Recorded one after the other, two steps each, this pair proves nothing about speed. The
# repair: take turns, as above.
#
# ## On a GPU
#
# The case at batch 1,024 ran on an NVIDIA H200, eager and with `--compile`, once each. Kernels whose names begin with
# `triton_` were generated, with the compiler Triton: `poi` is pointwise, `red` a reduction, and the rest of the name
# lists what was merged.

# %%
runs = {"large": "eager", "compiled": "compiled"}
case = measured()
own = case.query("run in @runs and traced and not profiled and part == 'steady'").copy()
own["how"], own["call"], own["ms"] = own["run"].map(runs), own["step"], own["duration_ns"] / 1e6
on_h200, recorded_there = steady_calls(own), case.attrs["origin"]
total = own.groupby("how")[["images", "ms"]].sum()
on_h200["images_per_s"] = (1e3 * total["images"] / total["ms"]).round()
show_table(
    on_h200.reset_index(), f"{columns} images_per_s", "Steps on a GPU, ms", origin=recorded_there
)
show_text(f"By the rule of this lesson: **{verdict(on_h200)}**.")

# %%
rows = []
for run, how in runs.items():
    trace = tidyprof.read(proflab.recording(f"torch-h200-case-{run}").path)
    kernels = tidyprof.kernels(trace)
    kernels[["calls", "total_ns"]] /= len(tidyprof.steps(trace))
    made = kernels[kernels["name"].str.startswith("triton_")]
    row = {"how": how, "kernels": kernels["calls"].sum(), "kernels_ns": kernels["total_ns"].sum()}
    rows.append(row | {"generated": made["calls"].sum(), "generated_ns": made["total_ns"].sum()})
on_gpu = pd.DataFrame(rows).round().convert_dtypes()
names = "how kernels kernels_ms generated generated_ms"
show_table(on_gpu, names, "Kernels of a step, and the generated ones", origin=recorded_there)

# %% [markdown]
# The compiler did its work: the kernels take less than half of the time. But nearly as many launches are left, and the
# host is the limit (lesson 04), so the rate of images did not move: one slow step took what the others gained, and a
# second compiled run had half the rate. There `torch.compile(model, mode="reduce-overhead")` starts all kernels of a
# graph by one call (lesson 12).

# %% [markdown] tags=["given"]
# AMD's [published pairs](https://github.com/amd/HPCTrainingExamples), a ResNet-50 (2,013 and 2,128 images/s) and two
# language models, gained 1.06, 1.04 and 1.01 times. The course's model of an MI300X promises a third more for the case:
# that is no gain, since the host of its assumptions is [no host of yours](../docs/gpumodel.md).
#
# ## What the compiler ignores
#
# A range of yours inside of the model may be gone from a trace; put it around the call. Instead the trace has regions:
# `Torch-Compiled Region: 0/0` is the first graph in its first version, `1/0` the second graph, after a graph break, and
# `0/1` a second version of the first, after a recompile.
#
# ## Graph breaks and recompiles
#
# A *backend* is a function that takes a graph and returns what to run instead. This one only counts:

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


careful = Careful().to(device)
torch._dynamo.reset()
torch.compile(careful, backend=counting)(batch)
why = torch._dynamo.explain(careful)(batch)
show_text(f"{len(graphs)} graphs reach the compiler; {why.graph_break_count} graph break.")
[reason] = why.break_reasons
print(str(reason.reason).splitlines()[0], "in line", reason.user_stack[-1].lineno)

# %% [markdown]
# `if` needs a value in Python, so the graph ends there: `.item()` fetches the value, for which the host waits until the
# GPU has computed it, and a second graph goes on. In a script of your own `TORCH_LOGS=graph_breaks,recompiles` in front
# of `python train.py` gives this report, and `torch.compile(model, fullgraph=True)` makes a break an error.

# %%
# 5 minutes, open: write `repaired(x)`, which gives the same results as `careful(x)` in one graph. It may call
# `Block.forward(careful, x)`. Clamping what is small changes nothing.
q = exercise("10.3", (careful, batch))


# solution
def repaired(x):
    x = Block.forward(careful, x)
    return x.clamp(-1e3, 1e3) + 1


answer = repaired
# end solution
q.check(answer)

# %% [markdown]
# **Recompiles.** Guards check types, shapes, numbers in Python. At the first batch of another size the compiler makes a
# second version, for any size: an odd batch at the end of an epoch costs one compilation. And a number that changes in
# each step, such as a counter?


# %%
class Counted(nn.Module):
    number = 1

    def forward(self, x, number=0):
        return x * (self.number + number)


def graphs_for(numbers, as_attribute):
    graphs.clear()
    torch._dynamo.reset()
    model = Counted()
    asked = torch.compile(model, backend=counting)
    for number in numbers:
        if as_attribute:
            model.number = number
        asked(batch, 0 if as_attribute else number)
    return len(graphs)


for kind, numbers in {"int": range(3, 15), "float": [n + 0.5 for n in range(3, 15)]}.items():
    argument, attribute = graphs_for(numbers, False), graphs_for(numbers, True)
    show_text(f"Twelve numbers, {kind}: {argument} graphs as argument, {attribute} as attribute.")

# %% [markdown]
# An argument, and a float, become a variable at the second look. An integer that is an *attribute* of the module (or a
# global name) counts as a constant of the model: torch 2.15 compiles until its limit, then gives up and runs eagerly.
# So it does with a text; the course's trainer has that fault (`--inject-fault recompile`). Keep counters in tensors, or
# hand them over.
#
# Cures for shapes: batches of one size (`drop_last=True` in the data loader, or padding), `torch.compile(model,
# dynamic=True)`, or `torch._dynamo.mark_dynamic(batch, 0)` for the one dimension that changes.

# %% [markdown]
# ## With many GPUs
#
# DistributedDataParallel (DDP, lesson 07) adds up gradients in *buckets*, while `backward` still runs. The compiler
# splits its graph where a bucket ends, if it knows the buckets: wrap first, then compile, as PyTorch's manual does.
# Every rank compiles for itself, so the first step is slow on each. If a shape differs on one rank, that rank
# recompiles while the others wait.
#
# On Intel's GPUs names differ, and `torch.accelerator` is the way to write code once: see
# [the table of names](../docs/migration.md#pytorch-from-cuda-to-any-gpu).
#
# ## Decide
#
# Compile if the calls to come outnumber the price, and nothing breaks or recompiles. Otherwise mend that first.

# %%
proflab.reveal("10.a", first / rest.loc["eager", "median"], origin=origin)

# %% [markdown]
# ## What this view cannot see
#
# The pair from a GPU is one run each, and the gain on your GPU you have to measure. Nor does a count of graphs say
# whether the results are the same: compare the losses (lesson 08).
#
# **Known issues.** First steps that take minutes in each run want `TORCHINDUCTOR_CACHE_DIR`, a folder that outlives the
# job. "No working C++ compiler found": install g++, or load the site's module. "hit config.recompile_limit": something
# changes in every step, see `TORCH_LOGS=recompiles`. More are in [the list](../docs/known-issues.md).

# %% [markdown]
# ## At work, without this course
#
# Times, breaks and recompiles of a model of your own; replace the part between the two lines of dashes:
#
# {snippet 10_compile_cost.py}

# %% [markdown]
# Next question: why does it not fit into memory?
