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
# - say which parts of a step the compiler changes, and prove it with a part that it does not touch;
# - find graph breaks and recompiles, and take them out.
#
# You need lessons 00 and 02. Compiling for a processor needs a C++ compiler, for a GPU Triton, which comes with torch.
# Where it is missing, the lesson says so and goes on with recordings.

# %%
import logging
import os
import shutil
import tempfile
import time
import warnings

import pandas as pd
import proflab
import tidyprof
import torch
from proflab import exercise, say, show_figure, show_table
from tidyprof import Origin, plots
from tidyprof.plots import style
from tidyprof.plots.figure import add_legend, new_figure, settings
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

lesson = proflab.start("10")

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
# A small part of a transformer, asked again and again with a batch of 32.

# %%
# solution
cost_guess, calls_guess = 500, 2000
# end solution
proflab.predict("10.a", cost_guess, unit="times", what="the first compiled call, compared with an eager call")
proflab.predict("10.b", calls_guess, unit="calls", what="how often to call, in the recording, until compiling has paid")

# %% [markdown]
# ## Capture: the first call against the rest
#
# A model of your own again: attention, then two linear layers with an activation between. `torch.accelerator` is
# whatever GPU there is, from AMD, NVIDIA or Intel.

# %%
has_gpu = torch.accelerator.is_available()
device = torch.accelerator.current_accelerator() if has_gpu else torch.device("cpu")


class Block(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        with record_function("attention"):
            query, key, value = self.mix(self.norm(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
            x = x + nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return x + self.down(nn.functional.gelu(self.up(x)))


block, batch = Block().to(device), torch.randn(32, 64, 128, device=device)

# %% [markdown]
# Each call is timed as in lesson 00: wait for the device at both ends. Eager and compiled take turns, so that whatever
# else the machine does meets both. And mind two caches: the compiler keeps its results in a folder, for the next
# process too. A first call that was quick yesterday says nothing about a fresh machine. Here the folder is new.


# %%
def milliseconds(answer, x):
    if has_gpu:
        torch.accelerator.synchronize()
    begin = time.perf_counter()
    with torch.no_grad():
        answer(x)
    if has_gpu:
        torch.accelerator.synchronize()
    return 1e3 * (time.perf_counter() - begin)


def in_turn(ways, x, calls):
    rows = [{"how": how, "call": call, "ms": milliseconds(ways[how], x)} for call in range(calls) for how in ways]
    return pd.DataFrame(rows)


cache = tempfile.TemporaryDirectory(prefix="compiled_")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name
torch._logging.set_logs(all=logging.ERROR)  # what it would warn of, the lesson shows
can_compile = has_gpu or bool(shutil.which(os.environ.get("CXX", "g++")))
warnings.filterwarnings("ignore", module="torch")
compiled = torch.compile(block) if can_compile else block

# %%
there = proflab.recording("torch-cpu-compiled-block")
recorded = pd.read_csv(there.files["times.csv"])
if can_compile:
    times, origin = in_turn({"eager": block, "compiled": compiled}, batch, calls=40), Origin("measured", "this machine")
    torch._dynamo.reset()  # forgets what was compiled, but not the folder
    again = milliseconds(torch.compile(block), batch)
    say(f"Compiled a second time, with the folder filled: {again / 1e3:.1f} s for the first call.")
else:
    times, origin = recorded, there.origin
    say("There is no C++ compiler here (`g++`), so the times are those of a recording.")

# %% [markdown]
# ## First look
#
# One figure with a logarithmic axis, since the first call is in another world; and a table of the rest. The *quartiles*
# are the values below which a quarter and three quarters of the calls lie. Only if those of eager and compiled don't
# overlap may you say that one is faster.


# %%
def calls_figure(times, origin, title):
    with settings():
        figure, (axes,) = new_figure(str(origin), height=3.2, title=title)
        looks = {"eager": (style.BLUE, "o"), "compiled": (style.ORANGE, "^")}
        for how, own in times.groupby("how"):
            axes.plot(own["call"], own["ms"], looks[how][1], color=looks[how][0], label=how, markersize=5)
        axes.set(yscale="log", xlabel="call", ylabel="time, ms")
        axes.legend()
    slowest = times.loc[times["ms"].idxmax()]
    figure.alternative_text = f"Time of each call. The longest is call {slowest['call']}, {slowest['how']}."
    return figure


show_figure(calls_figure(times, origin, "The first compiled call pays for the others"))
rest = times[times["call"] >= 3].groupby("how")["ms"].describe()[["25%", "50%", "75%", "max"]]
rest.columns = ["quarter", "median", "three_quarters", "slowest"]
show_table(
    rest.reset_index(), "how quarter median three_quarters slowest", "Calls from the fourth on, ms", origin=origin
)


# %%
def verdict(rest):
    eager, compiled = rest.loc["eager"], rest.loc["compiled"]
    gain = eager["median"] / compiled["median"]
    if compiled["three_quarters"] < eager["quarter"]:
        return f"The steady compiled call is faster: {gain:.2f} times."
    if eager["three_quarters"] < compiled["quarter"]:
        return f"The steady compiled call is slower: it takes {1 / gain:.2f} times as long."
    return f"Can't tell which is faster: the quartiles overlap (ratio of the medians: {gain:.2f})."


say(verdict(rest))
first = times.query("how == 'compiled' and call == 0")["ms"].iloc[0]
cost_times = first / rest.loc["eager", "median"]
say(f"The first compiled call took {first / 1e3:.1f} s, as long as {cost_times:,.0f} eager calls.")

# %% [markdown]
# The next calls can be slow as well: a batch of another size makes the compiler take another look, and with
# `mode="reduce-overhead"` the second call records a graph. That is why the table begins with the fourth. For a step
# with `backward` the compiler generates a second graph, and the first step costs more.

# %%
# 5 minutes: after how many compiled calls has compiling paid, in the recorded times? `recorded` has the columns `how`,
# `call` and `ms`. Take the medians from call 3 on, and as cost what the first compiled call takes beyond a steady one.
q = exercise("10.1", recorded)
# solution
steady = recorded[recorded["call"] >= 3].groupby("how")["ms"].median()
first_call = recorded.query("how == 'compiled' and call == 0")["ms"].iloc[0]
answer = (first_call - steady["compiled"]) / (steady["eager"] - steady["compiled"])
# end solution
q.check(answer)

# %% [markdown]
# ## What is gone, what stays?
#
# The course ships two recordings of its vision transformer, ViT, on a processor: the same two training steps of the
# same trainer, eager and compiled (`--compile`). Map each operator to a part of the model, then add up calls and self
# times: attention, linear layers, and what lies between.

# %%
PARTS = {
    r"aten::(addmm|mm|bmm)": "linear layers",
    r".*scaled_dot_product.*": "attention",
    r"aten::(lerp_|addcdiv_|addcmul_|sqrt|div|mul_)": "optimizer, mostly",
    r"(CompiledFunction|## Call CompiledFxGraph|Torch-Compiled).*": "generated code",
}
places = {"eager": "torch-cpu-vit", "compiled": "torch-cpu-vit-compiled"}
shipped = {how: proflab.recording(place) for how, place in places.items()}
pair = {how: tidyprof.read(one.path, origin=one.origin) for how, one in shipped.items()}
tables = []
for how, run in pair.items():
    table = tidyprof.operators(run).assign(how=how, part="others")
    for pattern, part in PARTS.items():
        table.loc[table["name"].str.fullmatch(pattern), "part"] = part
    tables.append(table)
both = pd.concat(tables).groupby(["part", "how"])[["calls", "self_ns"]].sum().div(2).unstack(fill_value=0)
both.columns = [f"{how}_{'ns' if what == 'self_ns' else what}" for what, how in both.columns]
columns = "part eager_calls compiled_calls eager_ms compiled_ms"
shown = both.round().astype("int64").reset_index()
show_table(shown, columns, "Per step: calls and self time", origin=pair["eager"].origin)
assert both["eager_calls"].sum() * 2 == tidyprof.operators(pair["eager"])["calls"].sum()


# %%
def parts_figure(both, origin):
    with settings():
        figure, (axes,) = new_figure(str(origin), height=3.4, title="Eager against compiled, part by part")
        looks = {"eager": (style.BLUE, ""), "compiled": (style.ORANGE, "//")}
        for place, (how, (colour, hatch)) in enumerate(looks.items()):
            rows = [row - 0.2 + 0.4 * place for row in range(len(both))]
            axes.barh(rows, both[f"{how}_ns"] / 1e6, 0.38, color=colour, hatch=hatch, edgecolor=style.TEXT)
        axes.set_yticks(range(len(both)), both.index)
        axes.set(xlabel="self time a step, ms", ylim=(len(both) - 0.5, -0.5))
        add_legend(axes, looks)
    figure.alternative_text = f"Self time by part, eager and compiled: {', '.join(both.index)}."
    return figure


show_figure(parts_figure(both, pair["eager"].origin))

# %%
calls = both.rename(columns=lambda name: name.removesuffix("_calls"))[["eager", "compiled"]].astype("int64")
say(
    f"Operators a step: {calls['eager'].sum():,} eager, {calls['compiled'].sum():,} compiled. "
    f"Activations and normalisations are in the generated code, {both.loc['generated code', 'compiled_ns'] / 1e6:.0f} "
    "ms a step. Linear layers are the same library calls in both, "
    f"{calls.loc['linear layers', 'compiled']} a step. Attention keeps its library kernels, forward and backward, "
    f"{calls.loc['attention', 'compiled']} calls; the {calls.loc['attention', 'eager']} of the eager step count the "
    "operator around the forward kernel too."
)
assert calls.loc["linear layers", "eager"] == calls.loc["linear layers", "compiled"]
flash = [table.loc[table["name"].str.contains("flash_attention"), "calls"].sum() for table in tables]
assert flash[0] == flash[1] == 2 * calls.loc["attention", "compiled"]

# %% [markdown]
# ## Trap: the step became faster, so compiling did it
#
# Compare the steps. It looks like a clear gain. But look at the bar of the optimizer: it updates the weights *outside*
# of the model, so that the compiler never saw it. Its operators are the same in both runs, call for call.

# %%
step_ms = {how: tidyprof.steps(run)["duration_ns"].mean() / 1e6 for how, run in pair.items()}
say(
    f"A step takes {step_ms['eager']:.0f} ms eager and {step_ms['compiled']:.0f} ms compiled: "
    f"**{step_ms['eager'] / step_ms['compiled']:.2f} times as fast**."
)
phases = {how: tidyprof.phases(run).groupby("phase")["duration_ns"].sum() / 2e6 for how, run in pair.items()}
shown = pd.DataFrame(phases).rename_axis("phase").reset_index()
show_table(shown, "phase eager compiled", "Mean of two steps, ms", origin=pair["eager"].origin)

# %%
# 5 minutes: how much of what the step became shorter, in percent, fell to the phase `optimizer`? Compute it from
# `phases`, milliseconds a step, and `step_ms`.
q = exercise("10.2", pair)
# solution
shorter = step_ms["eager"] - step_ms["compiled"]
in_optimizer = phases["eager"]["optimizer"] - phases["compiled"]["optimizer"]
answer = 100 * in_optimizer / shorter
# end solution
q.check(answer)

# %% [markdown]
# What the compiler never saw serves as a *control*: code that is the same in both runs must take the same time. If it
# doesn't, the machine was another one in the second run: busier, colder, with fuller caches. The two were recorded one
# after the other, two steps each, so this pair proves nothing about speed. The calls of operators it does prove. The
# repair is how this lesson timed its own block: take turns, and compare medians with quartiles.
#
# ## On a GPU
#
# There the generated code is kernels that you see one by one. This recording is one forward call of a compiled
# transformer block on an MI300X.

# %%
found = proflab.try_recording("torch-mi300x-compile-triton")
on_gpu = tidyprof.read(found.path, origin=found.origin) if found else None
if found:
    kernels, host_names = tidyprof.kernels(on_gpu), tidyprof.operators(on_gpu)["name"]
    show_table(kernels, "short_name category calls total_us percent", "Kernels of a compiled block")
    say(
        f"On the host the block has become `{host_names[host_names.str.contains('Region')].iloc[0]}`. Names that begin "
        "with `triton_` are kernels that `torch.compile` generated with the Triton compiler: `poi` is pointwise, `red` "
        "a reduction, and the rest of the name lists what was merged. The matrix products (GEMM) and the attention "
        "(`attn_fwd`) come from libraries. There is no recording of the same block without the compiler, so this says "
        "nothing about its gain."
    )

# %%
# 3 minutes: which share of the kernels' time, in percent, did generated kernels take? `tidyprof.kernels(on_gpu)` has
# `name` and `percent`.
q = exercise("10.3", on_gpu)
# solution
answer = None
if on_gpu:
    table = tidyprof.kernels(on_gpu)
    answer = table.loc[table["name"].str.startswith("triton_"), "percent"].sum()
# end solution
q.check(answer)

# %% [markdown]
# Fewer launches also help where the host is the limit (lesson 04): `torch.compile(model, mode="reduce-overhead")`
# starts all kernels of a graph by one call, as the graphs in lesson 02. No recording of the course shows it.
#
# ## What the compiler ignores
#
# `record_function` marks `attention` in the block above. Ask both for a profile:

# %%
counted = {}
torch._dynamo.reset()
for how, answering in {"eager": block, "compiled": torch.compile(block, backend="eager")}.items():
    with torch.no_grad():
        answering(batch)
        with profile(activities=[ProfilerActivity.CPU]) as prof:
            answering(batch)
    keys = [row.key for row in prof.key_averages()]
    counted[how] = sum(key == "attention" for key in keys), [key for key in keys if "Compiled Region" in key]
say(
    f"Ranges `attention`: {counted['eager'][0]} eager, {counted['compiled'][0]} compiled. "
    f"Regions of the compiled one: {counted['compiled'][1]}."
)

# %% [markdown]
# A range inside of the model may be gone; ranges around the call of the model stay. In its place stands a region:
# `0/0` is the first graph in its first version. Two graphs in a step mean a graph break, `0/1` a recompile.
#
# (`backend="eager"` traces the model as the compiler does, and then runs it eagerly. It needs no C++ compiler, takes
# little time, and shows everything that happens before code is generated.)
#
# ## Graph breaks and recompiles
#
# What does the compiler get, and how often? A *backend* is a function that takes a graph and returns what to run
# instead. This one only counts:

# %%
graphs = []


def counting(graph, inputs):
    graphs.append(len(graph.graph.nodes))
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
say(f"{len(graphs)} graphs reach the compiler, of {graphs} nodes; {why.graph_break_count} graph break.")
for reason in why.break_reasons:
    print(str(reason.reason).splitlines()[0], "in line", reason.user_stack[-1].lineno, "of its cell or file")

# %% [markdown]
# `if` needs a value in Python, so the graph has to end there: everything before it is run, `.item()` fetches the value,
# for which the host waits until the GPU has computed it, and a second graph goes on. In a script of your own the same
# report comes with
#
# ```
# TORCH_LOGS=graph_breaks,recompiles python train.py
# ```
#
# and `torch.compile(model, fullgraph=True)` makes a break an error.

# %%
# 8 minutes, open: write `repaired(x)`, which gives the same results as `careful(x)` in one graph. It may call
# `Block.forward(careful, x)`. Clamping what is small changes nothing.
q = exercise("10.4", (careful, batch))


# solution
def repaired(x):
    x = Block.forward(careful, x)
    return x.clamp(-1e3, 1e3) + 1


answer = repaired
# end solution
q.check(answer)

# %% [markdown]
# **Recompiles.** A graph is made for what it has seen: types, shapes, numbers in Python. Before each call *guards*
# check whether they still hold. With the counting backend and batches of several sizes:

# %%
graphs.clear()
torch._dynamo.reset()
asked = torch.compile(block, backend=counting)
seen = [(size, asked(batch[:size]) is not None and len(graphs)) for size in (32, 32, 20, 24, 28, 32)]
say("Batch size: graphs so far. " + ", ".join(f"{size}: {count}" for size, count in seen) + ".")

# %% [markdown]
# The first other size is taken as a sign: the compiler makes a second version, for any size. So one odd batch at the
# end of an epoch costs one compilation. Worse is a number that changes in each step, such as a counter that the model
# uses: torch compiles eight times, then gives up and runs eagerly. The course's trainer has that fault
# (`--pathology recompile`), and a modelled GPU shows what it means:

# %%
fault = proflab.recording("modelled-recompile")
waiting = tidyprof.read(fault.files["torch/trace_rank0_of_1.json.gz"], origin=fault.origin)
budget = tidyprof.step_budget(waiting, timeline="device")
show_figure(plots.step_budget(budget, title="A step with a recompile: the GPU waits for the host"))

# %% [markdown]
# Cures: batches of one size (`drop_last=True` in the data loader, or padding), `torch.compile(model, dynamic=True)`, or
# `torch._dynamo.mark_dynamic(batch, 0)` for the one dimension that changes. Numbers that change belong into tensors.
#
# The next two exercises are about a recording that you have not seen: a compiled block, asked by batches, from its
# first call on. The compiler's own work is in the trace: `entire_frame_compile` is an operator there, one for each
# compilation, and `Torch-Compiled Region: 0/1` is one for each run of a graph.

# %%
unseen = tidyprof.read(there.path, origin=there.origin)
show_figure(plots.step_times(tidyprof.steps(unseen), title="Twelve batches, the compiler's time included"))

# %%
# 5 minutes: how much of the time of all steps, in percent, went into compiling? Add up what is named
# `entire_frame_compile`.
q = exercise("10.5", unseen)
# solution
compiling = unseen.events[unseen.events["name"] == "entire_frame_compile"]
answer = 100 * compiling["duration_ns"].sum() / tidyprof.steps(unseen)["duration_ns"].sum()
# end solution
q.check(answer)

# %%
# 6 minutes: how many graph breaks does this model have in each call? Count the regions in the last step of `unseen`.
q = exercise("10.6", unseen)
# solution
last = tidyprof.steps(unseen).iloc[-1]
regions = unseen.events[unseen.events["name"].astype(str).str.startswith("Torch-Compiled Region")]
answer = (regions["start_ns"] >= last.start_ns).sum() - 1
# end solution
q.check(answer)

# %% [markdown]
# ## With many GPUs
#
# DistributedDataParallel (DDP, lesson 07) adds up gradients in *buckets*, while `backward` still runs. One graph for
# the whole model would give all gradients at its end, too late for an exchange beside `backward`; so the compiler
# splits it where a bucket ends. PyTorch's manual wraps first and compiles then, so that the compiler knows the buckets.
# Does the order matter in your version? Count the graphs in both, with one process:


# %%
class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x


# %%
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
wrap = {"bucket_cap_mb": 2}  # small, so that this small model has several
orders = {
    "compile(model)": lambda: torch.compile(Stack(), backend=counting),
    "compile(DDP(model))": lambda: torch.compile(
        nn.parallel.DistributedDataParallel(Stack(), **wrap), backend=counting
    ),
    "DDP(compile(model))": lambda: nn.parallel.DistributedDataParallel(
        torch.compile(Stack(), backend=counting), **wrap
    ),
}
found = {}
for order, make in orders.items():
    graphs.clear()
    torch._dynamo.reset()
    make()(torch.randn(4, 512)).sum().backward()
    found[order] = len(graphs)
    print(f"{order:20} {found[order]} graph{'s' if found[order] > 1 else ''}")
torch.distributed.destroy_process_group()
alone, outside, inside = found.values()
assert alone == 1 < outside
if inside == outside:
    say(f"Both orders are cut at the buckets: torch {torch.__version__} knows them in either.")
else:
    say(f"In torch {torch.__version__} only the order of the manual is cut at the buckets: wrap first, then compile.")

# %% [markdown]
# Whatever the counts say, wrap first, then compile: this order is the one that the manual describes. What they can't
# show: whether the all-reduce then really runs beside `backward`. That needs GPUs and a trace (lesson 07). Every rank
# compiles for itself, so the first step is as slow on each; and a shape that differs on one rank makes that rank
# recompile while the others wait.
#
# ## From CUDA to any GPU
#
# AMD's GPUs are called `cuda` in PyTorch, so that code moves without a change. For Intel's (XPU) names differ, and
# `torch.accelerator` is the way to write it once:
#
# | | NVIDIA and AMD | Intel | any |
# | --- | --- | --- | --- |
# | device | `"cuda"` | `"xpu"` | `torch.accelerator.current_accelerator()` |
# | is there one? | `torch.cuda.is_available()` | `torch.xpu.is_available()` | `torch.accelerator.is_available()` |
# | wait for it | `torch.cuda.synchronize()` | `torch.xpu.synchronize()` | `torch.accelerator.synchronize()` |
# | collectives | `"nccl"` (on AMD this is RCCL) | `"xccl"` | `init_process_group()` without a name |
# | profiler | `ProfilerActivity.CUDA` | `ProfilerActivity.XPU` | `torch.profiler.supported_activities()` |
# | sort a table by | `self_device_time_total` | the same | the same |
#
# ## Decide
#
# Compile if the calls to come outnumber the price, and nothing breaks or recompiles. Otherwise mend that first.


# %%
def decide(calls_to_come, first_ms, eager_ms, compiled_ms, breaks):
    if breaks:
        return "mend the graph breaks first"
    if compiled_ms >= eager_ms:
        return "leave it: no gain"
    paid_after = (first_ms - compiled_ms) / (eager_ms - compiled_ms)
    return f"{'compile' if calls_to_come > paid_after else 'leave it'}: it pays after {paid_after:,.0f} calls"


steady = recorded[recorded["call"] >= 3].groupby("how")["ms"].median()
first_call = recorded.query("how == 'compiled' and call == 0")["ms"].iloc[0]
for calls_to_come in (100, 100_000):
    advice = decide(calls_to_come, first_call, steady["eager"], steady["compiled"], breaks=0)
    say(f"The recorded block, {calls_to_come:,} calls to come: {advice}.")
proflab.reveal("10.a", cost_times, origin=origin)
proflab.reveal("10.b", (first_call - steady["compiled"]) / (steady["eager"] - steady["compiled"]), origin=there.origin)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# A processor shows the mechanism, not the gain: on a GPU the fused kernels save memory traffic and launches, and the
# share differs from model to model. The course has no pair of recordings from a GPU. AMD published three pairs for its
# training examples, on two GPUs of a node with MI300A: 2,013 and 2,128 images/s for a ResNet-50, 60,182 and 62,640
# tokens per second, 43,586 and 43,850 tokens per second for two language models. So a few percent, or none, is a usual
# result. Nor does a count of graphs say whether the results are the same: compare the losses (lesson 08).
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# | first steps of each run take minutes | keep the cache: `TORCHINDUCTOR_CACHE_DIR` on a disk that outlives the job |
# | "No working C++ compiler found" | install g++, or load the site's module |
# | "hit config.recompile_limit" | something changes in every step: see `TORCH_LOGS=recompiles` |
# | a range of yours is missing in the trace | it is inside of the compiled model: put it around the call |
# | steps of seconds between quick ones | recompiles, or the last, smaller batch |
# | a profile of the first steps shows the compiler | let the schedule wait until all shapes were seen |

# %% [markdown]
# ## At work, without this course
#
# Times, breaks and recompiles of a model of your own; replace the part between the two lines of dashes:
#
# {snippet 10_compile_cost.py}

# %% [markdown]
# ## Key points
#
# - Time the first call apart from the rest, and ask after how many calls it has paid.
# - Take turns when you compare; a part that did not change is your control.
# - Fusion is for what lies between the large operators; those stay with their libraries.
# - A graph break or a recompile is a line of your code: count graphs, read the log, mend the line.
#
# Next question: why does it not fit into memory?
