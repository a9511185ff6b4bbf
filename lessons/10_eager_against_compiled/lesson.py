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
from proflab.parts.runs_above import runs_above
from tidyprof import Origin, plots
from tidyprof.plots import style
from cifar_train.config import parse
from gpumodel import Training, simulate
from gpumodel.truth import profile_of
from tidyprof.plots.figure import duration_text, new_figure, settings
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

# %%
lesson = proflab.start("10")
# More of them wait for each other on a busy machine, and then nothing can be compared.
torch.set_num_threads(1)

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
proflab.predict(
    "10.a", cost_guess, unit="times", what="the first compiled call, compared with an eager call"
)
proflab.predict(
    "10.b",
    calls_guess,
    unit="calls",
    what="how often to call, in the recording, until compiling has paid",
)

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
            query, key, value = (
                self.mix(self.norm(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
            )
            x = x + nn.functional.scaled_dot_product_attention(query, key, value).transpose(
                1, 2
            ).flatten(2)
        return x + self.down(nn.functional.gelu(self.up(x)))


block, batch = Block().to(device), torch.randn(32, 64, 128, device=device)

# %% [markdown]
# Each call is timed as in lesson 00: wait for the device at both ends. Eager and compiled take turns, so that whatever
# else the machine does meets both. The compiler keeps its results in a folder, for the next process too: a quick first
# call says nothing about a fresh machine. Here the folder is new.


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


# %%
def in_turn(ways, x, calls):
    rows = [
        {"how": how, "call": call, "ms": milliseconds(ways[how], x)}
        for call in range(calls)
        for how in ways
    ]
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
    times, origin = (
        in_turn({"eager": block, "compiled": compiled}, batch, calls=40),
        Origin("measured", "this machine"),
    )
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
def calls_figure(times, title):
    slowest = times.loc[times["ms"].idxmax()]
    longest = duration_text(1e6 * slowest["ms"])
    figure, (axes,) = new_figure(str(origin), height=3.2, title=title)
    for how, colour, mark in (("eager", style.BLUE, "o"), ("compiled", style.ORANGE, "^")):
        axes.plot("call", "ms", mark, data=times[times["how"] == how], color=colour, label=how)
    axes.annotate(f"  {longest}", (slowest["call"], slowest["ms"]), va="center")
    axes.set(yscale="log", xlabel="call", ylabel="time", ylim=(None, 3 * slowest["ms"]))
    axes.yaxis.set_major_formatter(lambda ms, _: duration_text(1e6 * ms))
    axes.legend()
    figure.alternative_text = f"Each call. The longest is {slowest['how']}, {longest}."
    return figure


with settings():
    show_figure(calls_figure(times, "The first compiled call pays for the others"))


# %%
def steady_calls(times):
    rest = times[times["call"] >= 3].groupby("how")["ms"].describe()[["25%", "50%", "75%", "max"]]
    return rest.set_axis(["quarter", "median", "three_quarters", "slowest"], axis=1)


rest = steady_calls(times)
show_table(
    rest.reset_index(),
    "how quarter median three_quarters slowest",
    "Calls from the fourth on, ms",
    origin=origin,
)


# %%
def verdict(rest):
    eager, compiled = rest.loc["eager"], rest.loc["compiled"]
    gain = eager["median"] / compiled["median"]
    if compiled["three_quarters"] < eager["quarter"]:
        return f"a gain, {gain:.2f} times as fast, and the quartiles don't overlap"
    if eager["three_quarters"] < compiled["quarter"]:
        return f"a loss, it takes {1 / gain:.2f} times as long, and the quartiles don't overlap"
    return f"can't tell, since the quartiles overlap (ratio of the medians: {gain:.2f})"


say(f"The block, here: **{verdict(rest)}**.")
say(f"The block as it was recorded ({there.origin}): **{verdict(steady_calls(recorded))}**.")
first = times.query("how == 'compiled' and call == 0")["ms"].iloc[0]
cost_times = first / rest.loc["eager", "median"]
say(f"The first compiled call took {first / 1e3:.1f} s, as long as {cost_times:,.0f} eager calls.")

# %% [markdown]
# The block is mostly matrix products, which stay as they are. So look at two extremes: nothing but small
# operators in a row, and one layer alone.


# %%
def chain(x):
    return x + (2 * x - 1).clamp(0, 1) * (x * x + 1).rsqrt()


cases = {"Small operators in a row": (chain, batch.repeat(1, 1, 4))}
cases["One small layer"] = nn.Linear(16, 16).to(device), batch[0, :1, :16].clone()
for name, (case, x) in cases.items():
    ways = {
        "eager": case,
        "compiled": torch.compile(case, backend="inductor" if can_compile else "eager"),
    }
    say(f"{name}, here: **{verdict(steady_calls(in_turn(ways, x, calls=40)))}**.")

# %% [markdown]
# Each small operator reads and writes memory; fused they do so once. One layer has nothing to fuse, and before each
# compiled call *guards* check whether what was compiled still fits: that can only cost.
#
# The next calls can be slow as well: a batch of another size makes the compiler take another look, and with
# `mode="reduce-overhead"` an early call records a graph. That is why the table begins with the fourth. For a step
# with `backward` the compiler generates a second graph, and the first step costs more.

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

# %%
both = (
    pd.concat(tables)
    .groupby(["part", "how"])[["calls", "self_ns"]]
    .sum()
    .div(2)
    .unstack(fill_value=0)
)
both.columns = [f"{how}_{'ns' if what == 'self_ns' else what}" for what, how in both.columns]
columns = "part eager_calls compiled_calls eager_ms compiled_ms"
shown = both.round().astype("int64").sort_values("eager_ns", ascending=False).reset_index()
show_table(shown, columns, "Per step: calls and self time", origin=pair["eager"].origin)
assert both["eager_calls"].sum() * 2 == tidyprof.operators(pair["eager"])["calls"].sum()


# %%
calls = both.rename(columns=lambda name: name.removesuffix("_calls"))[["eager", "compiled"]].astype(
    "int64"
)
say(
    f"Operators a step: {calls['eager'].sum():,} eager, {calls['compiled'].sum():,} compiled. "
    "Activations and normalisations are in the generated code, "
    f"{both.loc['generated code', 'compiled_ns'] / 1e6:.0f} ms a step. Linear layers are the same "
    f"library calls in both, {calls.loc['linear layers', 'compiled']} a step. Attention keeps its "
    f"library kernels, forward and backward, {calls.loc['attention', 'compiled']} calls; the "
    f"{calls.loc['attention', 'eager']} of the eager step count the operator around the forward "
    "kernel too."
)
assert calls.loc["linear layers", "eager"] == calls.loc["linear layers", "compiled"]
flash = [
    table.loc[table["name"].str.contains("flash_attention"), "calls"].sum() for table in tables
]
assert flash[0] == flash[1] == 2 * calls.loc["attention", "compiled"]

# %% [markdown]
# ## Trap: the step became faster, so compiling did it
#
# Compare the steps. It looks like a clear gain. But look at the optimizer's rows. It updates the weights *outside* of
# the model: the compiler never saw it, and its operators are the same in both runs, call for call.

# %%
step_ms = {how: tidyprof.steps(run)["duration_ns"].mean() / 1e6 for how, run in pair.items()}
say(
    f"A step takes {step_ms['eager']:.0f} ms eager and {step_ms['compiled']:.0f} ms compiled: "
    f"**{step_ms['eager'] / step_ms['compiled']:.2f} times as fast**."
)
phases = {
    how: tidyprof.phases(run).groupby("phase")["duration_ns"].sum() / 2e6
    for how, run in pair.items()
}
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
# What the compiler never saw serves as a *control*: code that is the same in both runs must take the same time. If it
# doesn't, something else changed between the two runs, such as how busy the machine was. They were recorded one after
# the other, two steps each, so this pair proves nothing about speed. It does prove which operators ran. The repair is
# how this lesson timed its own block: take turns, and compare medians with quartiles.
#
# ## On a GPU
#
# What would the same change do there? The course's model of an MI300X plays the trainer's vision transformer, eager and
# compiled, without a profiler. Both have the same time axis.


# %%
def played(options):
    return profile_of(simulate(Training(config=parse(f"{options} --max-steps 9".split()))))


switches = {"eager": "", "compiled": "--compile"}
modelled = {
    how: played(f"--model vit --num-workers 8 {switch}") for how, switch in switches.items()
}
MODELLED = f"{modelled['eager'].origin}; MI300X, ViT, batch 256"
show_figure(
    runs_above(
        modelled, MODELLED, first=5, title="Eager above compiled, in the time of three eager steps"
    )
)

# %%
rows = []
for how, run in modelled.items():
    steps, phases_of = tidyprof.steps(run).iloc[5:], tidyprof.phases(run)
    forward = phases_of[phases_of["phase"] == "forward"].iloc[-1]
    own = run.device_events[
        run.device_events["launch_ns"].sub(forward.start_ns).between(0, forward.duration_ns)
    ]
    row = {"how": how, "step_ns": steps["duration_ns"].median(), "forward_ns": forward.duration_ns}
    row["uneven_percent"] = 100 * (steps["duration_ns"].max() / steps["duration_ns"].min() - 1)
    rows.append(row | {"kernels": len(own), "kernels_ns": own["duration_ns"].sum()})
gpu, caption = pd.DataFrame(rows), "Steps; a forward on the host, and the kernels of that"
show_table(
    gpu, "how step_ms uneven_percent forward_ms kernels kernels_ms", caption, origin=MODELLED
)
eager, made = gpu.iloc[0], gpu.iloc[1]
say(
    f"By the model a step takes {eager.step_ns / 1e6:.1f} ms eager and {made.step_ns / 1e6:.1f} "
    f"ms compiled, **{eager.step_ns / made.step_ns:.2f} times as fast**: the host launches less, "
    "so it asks for the next batch earlier. Steps are even: the longest takes "
    f"{eager.uneven_percent:.0f} % more than the shortest eager, and {made.uneven_percent:.0f} % "
    "more compiled."
)

# %% tags=["given"]
images_per_s = {
    "eager": 2_013,
    "compiled": 2_128,
}  # AMD, HPCTrainingExamples: ResNet-50, two GPUs of an MI300A node
tokens_per_s = [(60_182, 62_640), (43_586, 43_850)]  # the same source: two language models

# %%
resnet = played("--num-workers 8"), played("--num-workers 8 --compile")
resnet = [tidyprof.steps(run)["duration_ns"].iloc[5:].median() for run in resnet]
published = images_per_s["compiled"] / images_per_s["eager"]
others = " and ".join(f"{after / before:.2f}" for before, after in tokens_per_s)
say(
    f"Believe less of it. For ResNet-50 the model promises {resnet[0] / resnet[1]:.2f} times, and "
    f"AMD's published pair ({images_per_s['eager']:,} and {images_per_s['compiled']:,} images/s) "
    f"gained **{published:.2f} times**; its two language models gained {others} times. So on a "
    "GPU that has enough to do a few percent are usual."
)

# %% [markdown]
# Where the host is the limit (lesson 04), even the compiled step launches kernel by kernel.
# `torch.compile(model, mode="reduce-overhead")` starts all kernels of a graph by one call, as the graphs in lesson 02.
# An inference is the `forward` alone, so take that of the table:

# %%
best = f"{made.forward_ns / made.kernels_ns:.1f} times as fast** as compiled"
say(
    f"Forward by the model: the host takes {eager.forward_ns / 1e6:.1f} ms eager, "
    f"{made.forward_ns / 1e6:.1f} ms compiled. The {made.kernels} compiled kernels take "
    f"{made.kernels_ns / 1e6:.1f} ms. As one graph they don't wait for the host: at best "
    f"**{best}, {eager.forward_ns / made.kernels_ns:.1f} times as fast as eager. That is "
    "modelled; lesson 12 records a graph."
)

# %% [markdown]
# On a GPU the generated code is kernels that you see one by one. This recording is one forward call of a compiled
# transformer block on an MI300X.

# %%
found = proflab.recording("torch-mi300x-compile-triton")
on_gpu = tidyprof.read(found.path, origin=found.origin)
kernels, host_names = tidyprof.kernels(on_gpu), tidyprof.operators(on_gpu)["name"]
show_table(kernels, "short_name category calls total_us percent", "Kernels of a compiled block")
say(
    f"On the host the block has become `{host_names[host_names.str.contains('Region')].iloc[0]}`. "
    "Names that begin with `triton_` are kernels that `torch.compile` generated with the Triton "
    "compiler: `poi` is pointwise, `red` a reduction, and the rest of the name lists what was "
    "merged. The matrix products (GEMM) and the attention (`attn_fwd`) come from libraries. The "
    "same block without the compiler was not recorded, so this says nothing about its gain."
)

# %%
# 2 minutes: which share of the kernels' time, in percent, did generated kernels take? `tidyprof.kernels(on_gpu)` has
# `name` and `percent`.
q = exercise("10.3", on_gpu)
# solution
table = tidyprof.kernels(on_gpu)
answer = table.loc[table["name"].str.startswith("triton_"), "percent"].sum()
# end solution
q.check(answer)

# %% [markdown]
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
    counted[how] = (
        sum(key == "attention" for key in keys),
        [key for key in keys if "Compiled Region" in key],
    )
say(
    f"Ranges `attention`: {counted['eager'][0]} eager, {counted['compiled'][0]} compiled. "
    f"Regions of the compiled one: {counted['compiled'][1]}."
)

# %% [markdown]
# A range inside of the model may be gone; ranges around the call of the model stay. Instead the trace has a region:
# `0/0` is the first graph in its first version, `1/0` is the second graph, after a graph break, and `0/1` is a second
# version of the first, after a recompile.
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


# %%
careful = Careful().to(device)
torch._dynamo.reset()
torch.compile(careful, backend=counting)(batch)
why = torch._dynamo.explain(careful)(batch)
say(
    f"{len(graphs)} graphs reach the compiler, of {graphs} nodes; {why.graph_break_count} graph "
    "break."
)
for reason in why.break_reasons:
    print(
        str(reason.reason).splitlines()[0],
        "in line",
        reason.user_stack[-1].lineno,
        "of its cell or file",
    )

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
# 6 minutes, open: write `repaired(x)`, which gives the same results as `careful(x)` in one graph. It may call
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
# **Recompiles.** A graph is made for what it has seen: types, shapes, numbers in Python. Its guards check all of these.
# With the counting backend and batches of several sizes:

# %%
graphs.clear()
torch._dynamo.reset()
asked = torch.compile(block, backend=counting)
seen = [
    (size, asked(batch[:size]) is not None and len(graphs)) for size in (32, 32, 20, 24, 28, 32)
]
say("Batch size: graphs so far. " + ", ".join(f"{size}: {count}" for size, count in seen) + ".")

# %% [markdown]
# The first other size is taken as a sign: the compiler makes a second version, for any size. So one odd batch at the
# end of an epoch costs one compilation. Worse is a number that changes in each step, such as a counter that the model
# uses: torch compiles eight times, then gives up and runs eagerly. The course's trainer has that fault
# (`--pathology recompile`). On a modelled GPU:

# %%
fault = proflab.recording("modelled-recompile")
waiting = tidyprof.read(fault.files["torch/trace_rank0_of_1.json.gz"], origin=fault.origin)
budget = tidyprof.step_budget(waiting, timeline="device")
waits = budget["duration_ns"].sub(budget["compute_ns"]).sum() / budget["duration_ns"].sum()
say(
    f"In a step the device computes nothing for {100 * waits:.1f} % of the time "
    f"({waiting.origin}). `tidyprof triage` calls the cause `{tidyprof.triage(waiting).cause}`."
)

# %% [markdown]
# Cures: batches of one size (`drop_last=True` in the data loader, or padding), `torch.compile(model, dynamic=True)`, or
# `torch._dynamo.mark_dynamic(batch, 0)` for the one dimension that changes. Numbers that change belong into tensors.
#
# The next two exercises are about a recording that you have not seen: a compiled block with twelve batches, from its
# first call on. The compiler's own work is in the trace: there is an operator `entire_frame_compile` for each
# compilation, and one such as `Torch-Compiled Region: 0/1` for each run of a graph.

# %%
unseen = tidyprof.read(there.path, origin=there.origin)
show_figure(
    plots.step_times(tidyprof.steps(unseen), title="Twelve batches, the compiler's time included")
)

# %%
# 4 minutes: how much of the time of all steps, in percent, went into compiling? Add up what is named
# `entire_frame_compile`.
q = exercise("10.5", unseen)
# solution
compiling = unseen.events[unseen.events["name"] == "entire_frame_compile"]
answer = 100 * compiling["duration_ns"].sum() / tidyprof.steps(unseen)["duration_ns"].sum()
# end solution
q.check(answer)

# %%
# 4 minutes: how many graph breaks does this model have in each call? Count the regions in the last step of `unseen`.
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
# the whole model would give all gradients at its end, too late for that. So the compiler splits it where a bucket ends,
# if it knows the buckets: wrap first, then compile, as PyTorch's manual does. Whether the all-reduce then really runs
# beside `backward`, a trace says (lesson 07). Every rank compiles for itself, so the first step is slow on each. If a
# shape differs on one rank, that rank recompiles while the others wait.

# %% [markdown]
# ## From CUDA to any GPU
#
# AMD's GPUs are called `cuda` in PyTorch, so that code moves without a change. For Intel's (XPU) names differ, and
# `torch.accelerator` is the way to write it once. Names without quotes are below `torch.`, and `ProfilerActivity` is
# in `torch.profiler`:
#
# | | NVIDIA, AMD | Intel | any |
# | --- | --- | --- | --- |
# | device | `"cuda"` | `"xpu"` | `accelerator.current_accelerator()` |
# | is there one? | `cuda.is_available()` | `xpu.is_available()` | `accelerator.is_available()` |
# | wait for it | `cuda.synchronize()` | `xpu.synchronize()` | `accelerator.synchronize()` |
# | collectives | `"nccl"`, on AMD it is RCCL | `"xccl"` | none: leave the name out |
# | profiler | `ProfilerActivity.CUDA` | `ProfilerActivity.XPU` | `profiler.supported_activities()` |
# | older scripts add | nothing | `ipex` | nothing |
#
# Sort a profiler's table by `self_device_time_total` on all of them. `ipex` is Intel's extension: such scripts
# `import intel_extension_for_pytorch as ipex` right after torch and call `ipex.optimize(model)`, by [its guide][ipex].
# PyTorch itself knows XPU now: [DeepSpeed][gone], for one, needs no extension with PyTorch 2.8 or newer.
#
# [ipex]: https://intel.github.io/intel-extension-for-pytorch/xpu/latest/tutorials/getting_started
# [gone]: https://github.com/microsoft/DeepSpeed/pull/7877
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
    advice = "compile" if calls_to_come > paid_after else "leave it"
    return f"{advice}: it pays after {paid_after:,.0f} calls"


steady = recorded[recorded["call"] >= 3].groupby("how")["ms"].median()
first_call = recorded.query("how == 'compiled' and call == 0")["ms"].iloc[0]
for calls_to_come in (100, 100_000):
    advice = decide(calls_to_come, first_call, steady["eager"], steady["compiled"], breaks=0)
    say(f"The recorded block, {calls_to_come:,} calls to come: {advice}.")
proflab.reveal("10.a", cost_times, origin=origin)
proflab.reveal(
    "10.b",
    (first_call - steady["compiled"]) / (steady["eager"] - steady["compiled"]),
    origin=there.origin,
)

# %% [markdown]
# ## What this view cannot see
#
# The times here are those of a processor, or modelled: the gain on your GPU you have to measure. The course has no pair
# of recordings from a GPU. Nor does a count of graphs say whether the results are the same: compare the losses (lesson
# 08).
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# | the first steps of each run take minutes | `TORCHINDUCTOR_CACHE_DIR`: a folder that outlives the job |
# | "No working C++ compiler found" | install g++, or load the site's module |
# | "hit config.recompile_limit" | something changes in every step: see `TORCH_LOGS=recompiles` |
# | a range of yours is missing in the trace | it is inside of the compiled model: put it around the call |

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
# - Take turns when you compare, on one thread, and believe a gain if the quartiles don't overlap.
# - A part that did not change is your control.
# - Fusion is for what lies between the large operators; those stay with their libraries.
# - A graph break or a recompile is a line of your code: count graphs, read the log, mend the line.
#
# Next question: why does it not fit into memory?
