# %% [markdown]
# # Prefill, decode, graphs: how fast can a token be?
#
# A language model writes one piece of text after the other. How fast could it be at best, on this GPU? Three numbers
# give the answer before anything runs. Then you read recordings of two servers, where nearly all kernels come from one
# launch, and where a trace claims that the GPU does nothing for much of the time.
#
# After this lesson you can
#
# - compute from a model's shape how many tokens per second a GPU can give at most, and what a larger batch changes;
# - measure prefill and decode of a model, and say how near they come to that bound;
# - read the trace of a HIP graph without falling for its "idle" time and its launches;
# - tell from kernels' names which path attention took.
#
# You need lessons 00, 02 and 05. A GPU is used where there is one; without it every cell still works.

# %%
import itertools
import json
import time

import numpy as np
import pandas as pd
import proflab
import tidyprof
import torch
from gpumodel.devices import device as published
from proflab import exercise, say, show_figure, show_table
from tidyprof import Origin, plots
from tidyprof.plots import style
from tidyprof.plots.figure import legend_above, new_figure, settings
from torch import nn
from torch.profiler import ProfilerActivity, profile

lesson = proflab.start("12")
_ = torch.set_grad_enabled(False)  # nothing is trained here
torch.set_num_threads(1)  # more of them wait for each other on a busy machine


def three_digits(value):
    return float(f"{value:.3g}")


# %% [markdown]
# ## The picture to keep in mind
#
# A *token* is a piece of a word, and a text a row of tokens. The model reads a text and says which token comes next.
#
# | | prefill | decode |
# | --- | --- | --- |
# | what happens | the prompt is read, all its tokens at once | one new token for each request, again and again |
# | matrix products | large: many tokens with each weight | thin: one token for each request with each weight |
# | what limits it | arithmetic | memory: every weight is read for every step |
# | what the user feels | the wait for the first token | the pace of the text |
# | a server's metric | *time to first token* (TTFT) | *time per output token* (TPOT) |
#
# *Attention* compares the new token with all earlier ones. For that, each layer keeps two rows of numbers for each
# token, its *key* and its *value*: the *KV cache*. Without it a model would compute the whole text again for each
# token. In most models several attention heads (*query heads*) share one head of keys and values (*KV heads*).
#
# ## Predict
#
# A model with eight billion weights in 16 bits, one request, an MI300X; and a small model of your own.

# %%
# solution
pace_guess, prefill_guess = 200, 100
# end solution
proflab.predict(
    "12.a",
    pace_guess,
    unit="tokens/s",
    what="the most that one request for an 8B model can get, MI300X",
)
proflab.predict(
    "12.b",
    prefill_guess,
    unit="times",
    what="prefill of 128 tokens on your machine, in decode steps",
)

# %% [markdown]
# ## By hand first
#
# In a decode step each weight is read from memory once, and so is the cache of each request. So the step takes at
# least `bytes / bandwidth`. Two public models by their shape (`config.json` of Llama-3.1-8B and Qwen3-8B). A layer has
# four matrices for attention and three more, which are `inner` wide. The last matrix turns a row into a score for each
# of the `words`. Of the first table, which turns a token into a row, a step reads one row for each token: left out.

# %%
LLAMA = {
    "layers": 32,
    "width": 4096,
    "heads": 32,
    "kv_heads": 8,
    "head_size": 128,
    "inner": 14336,
    "words": 128256,
}
QWEN = LLAMA | {"layers": 36, "inner": 12288, "words": 151936}


def weights(model):
    attention = model["width"] * model["head_size"] * 2 * (model["heads"] + model["kv_heads"])
    return (
        model["layers"] * (attention + 3 * model["width"] * model["inner"])
        + model["words"] * model["width"]
    )


# %%
def cache_bytes(model, tokens):  # a key and a value, 16 bits each
    return model["layers"] * 2 * model["kv_heads"] * model["head_size"] * 2 * tokens


norms, table_of_words = (2 * LLAMA["layers"] + 1) * LLAMA["width"], LLAMA["words"] * LLAMA["width"]
assert weights(LLAMA) + norms + table_of_words == 8_030_261_248  # as published
gpu = published("MI300X")
# FLOP/s, bytes per second.
PEAK, BANDWIDTH = gpu.peak_flops["matrix bfloat16"], gpu.memory_bandwidth
alone_s = (2 * weights(LLAMA) + cache_bytes(LLAMA, 256)) / BANDWIDTH
say(
    f"Llama-3.1-8B: {2 * weights(LLAMA) / 1e9:.1f} GB of weights a step, "
    f"{cache_bytes(LLAMA, 1) / 1e3:.0f} kB of cache for each token of the text. One request with "
    f"a text of 256 tokens: at least {1e3 * alone_s:.1f} ms a token, **at most {1 / alone_s:.0f} "
    "tokens per second**, whatever the software does."
)

# %% [markdown]
# Now the arithmetic. A weight has two bytes, and takes two operations for each token, a multiplication and an addition.
# So the *intensity*, operations per byte (lesson 05), is the number of tokens that a weight meets once it is read: the
# prompt's length in prefill, the number of requests in decode. The *knee* of the roofline, where arithmetic takes over,
# is peak divided by bandwidth.
#
# Does a large batch reach the knee, then? Only with short texts, since each request brings a cache of its own. A number
# of the cache is used once by each query head that shares it. So attention has as many operations per byte as heads
# share a KV head, at any batch.


# %%
def decode_s(model, batch, context):
    moved = 2 * weights(model) + batch * cache_bytes(model, context)
    return moved / BANDWIDTH, 2 * weights(
        model
    ) * batch / PEAK  # seconds for the bytes, seconds for the arithmetic


# %%
rows = [
    (batch, context, *decode_s(LLAMA, batch, context))
    for context in (128, 4096)
    for batch in (1, 32, 256, 1024)
]
bounds = pd.DataFrame(rows, columns=["batch", "context", "bytes_s", "arithmetic_s"])
step_s = bounds[["bytes_s", "arithmetic_s"]].max(axis=1)
bounds["step_ns"] = (1e9 * step_s).map(three_digits)
bounds["tokens_per_second"] = (bounds["batch"] / step_s).map(three_digits)
bounds["for_each_request"] = 1 / step_s
bounds["limit"] = np.where(bounds["bytes_s"] > bounds["arithmetic_s"], "memory", "arithmetic")
MODELLED = (
    f"modelled: bytes and operations by hand, peaks that AMD publishes ({gpu.source.split(';')[0]})"
)
columns = "context batch limit step_us tokens_per_second for_each_request"
show_table(bounds, columns, "Bounds for Llama-3.1-8B on an MI300X", origin=MODELLED)
crossing = next(batch for batch in range(1, 10_000) if np.diff(decode_s(LLAMA, batch, 128)) > 0)
say(
    f"The knee is at {PEAK / BANDWIDTH:.0f} operations per byte: a prompt of so many tokens keeps "
    "the arithmetic busy. In decode it would take as many requests without a cache, and with "
    f"texts of 128 tokens it takes {crossing}. Attention stays at "
    f"{LLAMA['heads'] / LLAMA['kv_heads']:.0f} operations per byte. More requests give more "
    "tokens in all, and fewer to each."
)

# %%
# 4 minutes: how many tokens per second, all requests together, can an MI300X give at most for `asked`? Its `model` has
# the keys of LLAMA, numbers have 16 bits, `context` is the length of each of `batch` texts.
asked = {"model": QWEN, "batch": 16, "context": 8192, "bandwidth": BANDWIDTH, "peak": PEAK}
q = exercise("12.1", asked)
# solution
row_bytes = 2 * QWEN["kv_heads"] * QWEN["head_size"] * 2
moved = 2 * weights(QWEN) + asked["batch"] * asked["context"] * QWEN["layers"] * row_bytes
answer = asked["batch"] * asked["bandwidth"] / moved
# end solution
q.check(answer)

# %%
# 5 minutes: up to which length of the texts can decode be limited by arithmetic at all, however many requests there
# are? With each further request the step gets `context` tokens of cache to read and one token to compute. The weights
# are read once, so they don't count in the end. Take `peak` and `bandwidth`, and leave out attention's arithmetic.
q = exercise("12.2", asked)
# solution
arithmetic_s = 2 * weights(QWEN) / asked["peak"]  # one more request
answer = arithmetic_s * asked["bandwidth"] / cache_bytes(QWEN, 1)
# end solution
q.check(answer)

# %% [markdown]
# ## Capture: a language model of your own
#
# This one has random weights, so what it says is nonsense; its shapes and its speed are real. The cache has its full
# length from the beginning, and a mask hides what is not written yet. So all shapes stay the same in each step, which
# a graph will need.

# %%
has_gpu = torch.accelerator.is_available()
device = torch.accelerator.current_accelerator() if has_gpu else torch.device("cpu")
LAYERS, WIDTH, HEADS, LONGEST, WORDS = 6, 512, 8, 256, 8192


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, cache, places, seen):
        query, key, value = (
            self.mix(self.before(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        )
        cache.index_copy_(3, places, torch.stack([key, value]))
        mixed = nn.functional.scaled_dot_product_attention(
            query, cache[0], cache[1], attn_mask=seen
        )
        x = x + self.join(mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))


# %%
class TinyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words, places, caches):
        x = self.words(words) + self.places(places)
        seen = torch.arange(LONGEST, device=x.device) <= places[:, None]
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache, places, seen)
        return self.head(x[:, -1])


# %%
def empty_caches(batch):
    return torch.zeros(LAYERS, 2, batch, HEADS, LONGEST, WIDTH // HEADS, device=device)


model = TinyModel().to(device)
text, places = torch.randint(WORDS, (1, 129), device=device), torch.arange(129, device=device)
caches = empty_caches(1)
whole = model(text, places, empty_caches(1))
model(text[:, :128], places[:128], caches)  # prefill
# Decode says the same.
assert torch.allclose(model(text[:, 128:], places[128:], caches), whole, atol=1e-4)

# %% [markdown]
# ## First look
#
# For the bound you need the two roofs of *your* machine. A sum over a large tensor reads each number once; a product
# of large matrices computes. Both are what torch reaches here, which is below what the machine could do. All four take
# turns, so that whatever else the machine does meets each of them; the numbers are quartiles. Where the third quartile
# is one and a half times the first or more, something disturbs the machine: then no share of a bound can be told.


# %%
def wait():
    if has_gpu:
        torch.accelerator.synchronize()


def in_turn_ms(works, repeats=7):  # name -> first quartile, median, third quartile
    times = {name: [] for name in works}
    for _ in range(repeats + 2):
        for name, work in works.items():
            wait()
            begin = time.perf_counter()
            work()
            wait()
            times[name].append(1e3 * (time.perf_counter() - begin))
    return {name: np.quantile(own[2:], [0.25, 0.5, 0.75]) for name, own in times.items()}


def can_tell(times):
    return all(high < 1.5 * low for low, _, high in times.values())


NOISE = "Measured times scatter too much to tell. Repeat this on a quiet machine."


# %%
# On a GPU more than its caches hold: an MI300X has 256 MB of Infinity Cache in front of its memory.
large, square = (
    torch.ones(2 ** (28 if has_gpu else 25), device=device),
    torch.ones(1024, 1024, device=device),
)
works = {"sum": large.sum, "product": lambda: square @ square}
works["prefill"] = lambda: model(text[:, :128], places[:128], caches)
works["decode"] = lambda: model(text[:, 128:], places[128:], caches)
times = in_turn_ms(works)
own_bandwidth = large.nbytes / times["sum"][1] * 1e3  # bytes per second
own_rate = 2 * 1024**3 / times["product"][1] * 1e3  # FLOP/s
quiet = can_tell(times)
say(
    f"Here: {own_bandwidth / 1e9:.0f} GB/s, {own_rate / 1e9:.0f} GFLOP/s, so the knee is at "
    f"{own_rate / own_bandwidth:.1f} operations per byte. With numbers of four bytes decode gets "
    f"there with {2 * own_rate / own_bandwidth:.0f} requests."
    if quiet
    else f"How fast is this machine? {NOISE}"
)

# %%
prefill, decode = times["prefill"], times["decode"]
tables = {id(model.words.weight), id(model.places.weight)}  # a step reads a row of each
own_weights = sum(one.numel() for one in model.parameters() if id(one) not in tables)
bound_ms = 1e3 * (4 * own_weights + caches.nbytes) / own_bandwidth
prefill_bound_ms = 1e3 * 2 * own_weights * 128 / own_rate
MEASURED = Origin("measured", "this machine")
both = pd.DataFrame([prefill, decode], columns=["quarter", "median", "three_quarters"])
both.insert(0, "what", ["prefill of 128 tokens", "decode of one token"])
both["bound"], both["tokens_per_second"] = (
    [prefill_bound_ms, bound_ms],
    [128e3 / prefill[1], 1e3 / decode[1]],
)

# %%
columns = f"what {'bound ' if quiet else ''}quarter median three_quarters tokens_per_second"
show_table(both, columns, "Times in ms", origin=MEASURED)
say(
    f"Decode reaches **{100 * bound_ms / decode[1]:.0f} % of its bound** (quartiles "
    f"{decode[0]:.1f} to {decode[2]:.1f} ms). Prefill handles 128 times the tokens in "
    f"{prefill[1] / decode[1]:.1f} times the time of a decode step."
    if quiet
    else f"How near does decode come to its bound? {NOISE}"
)

# %% [markdown]
# A share above the whole means that a roof is too low: a cache keeps weights from one step to the next (this small
# model fits as a whole into the Infinity Cache of an MI300X), or the sum was disturbed. (Of the last matrix prefill
# computes one row only, so its bound is a little high.) Now the batch. Each step reads the same weights, so by the
# bound further requests cost little up to the knee. Does your machine agree?

# %%
sizes = (1, 2, 4, 8, 16, 32)
batches = {
    size: (torch.randint(WORDS, (size, 1), device=device), empty_caches(size)) for size in sizes
}
works = {
    size: lambda words=words, own=own: model(words, places[128:], own)
    for size, (words, own) in batches.items()
}
times_of = in_turn_ms(works, repeats=5)
swept = []
for size, (low, middle, high) in times_of.items():
    bytes_ms = 1e3 * (4 * own_weights + batches[size][1].nbytes) / own_bandwidth
    roof_ms = max(bytes_ms, 1e3 * 2 * own_weights * size / own_rate)
    swept.append({"batch": size, "low": low, "step_ms": middle, "high": high, "roof_ms": roof_ms})
swept = pd.DataFrame(swept)
swept_quiet = quiet and can_tell(times_of)

# %%
with settings():
    figure, (above, below) = new_figure(
        str(MEASURED), height=5, rows=2, title="Tokens per second and time of a step, by batch"
    )
    batch, step_ms = swept["batch"], swept["step_ms"]
    for axes, middle, low, high, roof in (
        (above, *(1e3 * batch / swept[name] for name in ("step_ms", "high", "low", "roof_ms"))),
        (below, *(swept[name] for name in ("step_ms", "low", "high", "roof_ms"))),
    ):
        errors, place = [middle - low, high - middle], range(len(batch))
        measured = axes.errorbar(place, middle, errors, color=style.BLUE, marker="o", capsize=4)
        if swept_quiet:
            (bound,) = axes.plot(roof, "^--", color=style.TEXT, label="bound: bytes or arithmetic")
        axes.set_xticks(place, batch)
        axes.set_ylim(0, None)
    measured.set_label("measured, with quartiles")
    legend_above(above, [measured, bound] if swept_quiet else [measured])
    above.set_ylabel("tokens per second,\nall requests")
    below.set(xlabel="batch", ylabel="time of a step, ms")

# %%
first, last = swept.iloc[0], swept.iloc[-1]
gain, longer = (
    last["batch"] * first["step_ms"] / last["step_ms"],
    last["step_ms"] / first["step_ms"],
)
said = f"From 1 to {last['batch']:.0f} requests: {gain:.1f} times the tokens per second"
said += f", and {longer:.1f} times the time of a step"
figure.alternative_text = f"{said}." if swept_quiet else f"Times of a step by batch. {NOISE}"
show_figure(figure)

# %%
rates = list(zip(batch, batch / step_ms, strict=True))
fewer = [
    f"{size} gives fewer than {one}"
    for (one, low), (size, high) in itertools.pairwise(rates)
    if high < low
]
if swept_quiet:
    say(
        f"{said}, for which each request waits. By the bound a step would take "
        f"{last['roof_ms'] / first['roof_ms']:.1f} times as long. A product of one row and one "
        "of many come near to a roof; on many processors there are sizes between that reach "
        "neither, and there the measured curve leaves the dashed one."
    )
    if fewer:
        say(f"More requests do not always give more tokens here: {'; '.join(fewer)}.")
else:
    say(f"Does a larger batch give what the bound allows? {NOISE} So no bound is drawn.")

# %% [markdown]
# ## What the user waits for
#
# A server is judged by two times. [TTFT][ttft] is the time from the request to its first token: the wait in the queue,
# then the prefill. [TPOT][tpot] is the mean time for each later token: a decode step, and whatever the server does
# between two. What does a queue add? Take Llama-3.1-8B by its bounds, one request after the other, each with a prompt
# of a thousand tokens and an answer of a hundred, arriving at random.
#
# [ttft]: https://docs.anyscale.com/llm/serving/benchmarking/metrics
# [tpot]: https://awsdocs-neuron.readthedocs-hosted.com/en/v2.26.0/libraries/nxd-inference/developer_guides/llm-inference-benchmarking-guide.html


# %%
def waits_s(
    load, work_s, requests=20_000, seed=0
):  # a request waits for the one before, less the time between them
    between, waits = np.random.default_rng(seed).exponential(work_s / load, requests), [0.0]
    for gap in between[1:]:
        waits.append(max(0.0, waits[-1] + work_s - gap))
    return np.array(waits)


# %%
token_s, prefill_s = decode_s(LLAMA, 1, 1000)[0], 2 * weights(LLAMA) * 1000 / PEAK
rows = []
for load in (0.3, 0.6, 0.9):
    ttft = 1e9 * (waits_s(load, prefill_s + 100 * token_s) + prefill_s)
    row = {
        "load_percent": 100 * load,
        "TTFT_median_ns": three_digits(np.median(ttft)),
        "TTFT_95th_percentile_ns": three_digits(np.quantile(ttft, 0.95)),
    }
    rows.append(row | {"TPOT_ns": 1e9 * token_s})
queued, columns = pd.DataFrame(rows), "load_percent TTFT_median_ms TTFT_95th_percentile_ms TPOT_ms"
show_table(queued, columns, "One request at a time, by how busy the server is", origin=MODELLED)
worst = queued.iloc[-1]
say(
    f"Prefill takes {1e3 * prefill_s:.0f} ms in each row. At {worst.load_percent:.0f} % load one "
    f"request in twenty waits {worst.TTFT_95th_percentile_ns / 1e9:.1f} s or longer for its first "
    f"token, while TPOT stays at {1e3 * token_s:.1f} ms. No trace of the GPU shows that wait: "
    "measure at the server. Batching shortens the queue and lengthens each step: both are in "
    "the figure above."
)

# %% [markdown]
# ## What is in a step?
#
# A step is many small operations in a row. On a GPU each of these that computes is a kernel to launch.

# %%
activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
with profile(activities=activities) as prof:
    model(text[:, 128:], places[128:], caches)
prof.export_chrome_trace(str(lesson.folder / "decode_step.json.gz"))
step = tidyprof.read(lesson.folder / "decode_step.json.gz", origin=MEASURED)
operators = tidyprof.operators(step)
products = operators[operators["name"].isin(["aten::addmm", "aten::mm"])]
# Mix, join, up and down in each layer, and the head.
assert products["calls"].sum() == 4 * LAYERS + 1
show_table(
    operators,
    "name calls self_ms percent",
    "Operators of one decode step, largest self time first",
    rows=6,
)

# %%
share, largest = products["percent"].sum(), operators.iloc[0]
say(
    f"{operators['calls'].sum():,} operators for one token. The {products['calls'].sum()} matrix "
    f"products among them take {share:.0f} % of the time here; the largest is `{largest['name']}` "
    f"with {largest['percent']:.0f} %. "
    + (
        "So here the products are the step."
        if share > 50
        else "So here the many small operators are the step."
    )
)

# %% [markdown]
# On a GPU the host has to ask for as many operators, however fast they are done: where the kernels take less time than
# the host needs to launch them, the step waits for the host.

# %% [markdown]
# ## What a HIP graph does to a trace
#
# A *HIP graph* is a series of launches that is recorded once and then started by one call. Servers decode
# with graphs. Here are two recordings from an MI300X, each one decode step for a batch of 32: Qwen3-8B, served by
# SGLang, and a *mixture of experts*, a model that takes a part of its weights for each token, served by vLLM.

# %%
names = {"SGLang": "torch-mi300x-sglang-decode", "vLLM": "torch-mi300x-vllm-decode-hipgraph"}
found = {server: proflab.recording(name) for server, name in names.items()}
runs = {server: tidyprof.read(one.path, origin=one.origin) for server, one in found.items()}
sglang, vllm = runs["SGLang"], runs["vLLM"]


def graph_of(run):  # the call, and the device events that it started
    call = run.events[run.events["name"] == "hipGraphLaunch"].iloc[0]
    return call, run.device_events[run.device_events["correlation_id"] == call["correlation_id"]]


rows = []
for server, run in runs.items():
    call, nodes = graph_of(run)
    single = run.events.loc[run.events["name"] == "hipLaunchKernel", "duration_ns"].median()
    row = {"server": server, "in_graph": len(nodes), "device_events": len(run.device_events)}
    row |= {"with_operator": nodes["operator"].notna().sum(), "call_ns": call["duration_ns"]}
    rows.append(row | {"for_each_ns": row["call_ns"] / len(nodes), "single_launch_ns": single})
origin = "recorded: AMD Instinct MI300X, two files of AMD-AGI/TraceLens"
columns = "server in_graph device_events with_operator call_us for_each_us single_launch_us"
show_table(
    pd.DataFrame(rows), columns, "The graph's one launch, in time of the host", origin=origin
)

# %%
call, nodes = graph_of(sglang)
begin = int(call["start_ns"])
window = {"start_ns": begin - 300_000, "end_ns": begin + 4 * int(call["duration_ns"])}
show_figure(
    plots.timeline(sglang, **window, title="One call on the host, and then only the device works")
)
say(
    f"The call lasts {call['duration_ns'] / 1e6:.1f} ms, the kernels it starts take "
    f"{nodes['duration_ns'].sum() / 1e6:.1f} ms and go on to the right of the "
    "picture. In the median of the few that the file has, a single launch takes "
    f"{rows[0]['single_launch_ns'] / 1e3:.1f} µs of the host, a kernel in the "
    f"graph {rows[0]['for_each_ns'] / 1e3:.1f} µs. And a graph runs no Python and no operators."
)

# %% [markdown]
# ## Trap: the GPU is idle for much of the time
#
# How busy is the device in these two steps? Take the time from the first event in the file to the last, as a tool does
# that finds no step marks.

# %%
for server, run in runs.items():
    ends = run.events["start_ns"] + run.events["duration_ns"]
    whole_ns = ends.max() - run.events["start_ns"].min()
    say(
        f"{server}: **{100 * (1 - tidyprof.busy(run)['union_ns'].iloc[0] / whole_ns):.0f} % idle**."
    )

# %% [markdown]
# Before you blame a slow host, look at the work behind the gap: when was it launched? An idle device begins within
# microseconds. So of each stream take the first event in the file, and of these the one that waited longest.

# %%
rows = []
for server, run in runs.items():
    first = run.device_events.sort_values("start_ns").drop_duplicates("stream")
    first = first.assign(server=server, waited_ns=first["start_ns"] - first["launch_ns"]).nlargest(
        1, "waited_ns"
    )
    zero, other_ns = run.events["start_ns"].min(), tidyprof.step_budget(run)["other_ns"].iloc[0]
    first = first.assign(
        launch_ns=first["launch_ns"] - zero, start_ns=first["start_ns"] - zero, other_ns=other_ns
    )
    assert abs(first["waited_ns"].iloc[0] - other_ns) < 0.1 * other_ns
    rows.append(first)
columns, caption = (
    "server short_name launch_ms start_ms waited_ms other_ms",
    "The work behind the gap",
)
show_table(pd.concat(rows), columns, caption, origin=origin)
show_table(
    tidyprof.gaps(sglang), "duration_ms cause after before host_call", "SGLang's gaps", rows=2
)

# %% [markdown]
# The host launched this work at once, and still it waited. Something was in front of it. Both files hold only what
# *one step launched*; what the device did for the step before is not in them, and looks like nothing:
#
# - **vLLM.** The first copies are asked for, then nothing starts for milliseconds, then all of them run back to back in
#   the order of their stream.
# - **SGLang.** A first kernel runs at once in one stream. The others are to wait for an event of another stream
#   (`hipStreamWaitEvent`), and the host waits in a copy from the device until they run. What the event stood for is not
#   in the file. Whether the device worked all that time, nobody can tell from here.
#
# Its name is `earlier work`: `gaps` says so where the first event of a stream starts a millisecond or more after its
# launch. `tidyprof triage` names it likewise and leaves it out, and in `step_budget` it is in `other_ns`, neither
# launch-bound nor a blocked host. vLLM's wait is in the budget alone: it lies in front of the first event on the
# device, and a gap lies between two.
#
# The repair: ask for a window that begins and ends with the device's own work, such as the graph's; or record several
# steps and measure from one graph to the next.

# %%
call, nodes = graph_of(vllm)
begin, end = nodes["start_ns"].min(), (nodes["start_ns"] + nodes["duration_ns"]).max()
inside = tidyprof.Profile(nodes, meta=vllm.meta)
idle_ns = (end - begin) - nodes["duration_ns"].sum()  # one stream: nothing overlaps
assert idle_ns == (end - begin) - tidyprof.busy(inside)["union_ns"].iloc[0]
say(f"vLLM, inside of the graph: {(end - begin) / 1e6:.1f} ms, {idle_ns / 1e3:.2f} µs of it idle.")

# %%
# 3 minutes: how many percent of the time from the first to the last moment of its graph is SGLang's device idle?
# `graph_of(sglang)` gives the call and the graph's events, which are all in one stream.
q = exercise("12.3", sglang)
# solution
of_graph = graph_of(sglang)[1]
over_at = of_graph["start_ns"] + of_graph["duration_ns"]
answer = 100 * (1 - of_graph["duration_ns"].sum() / (over_at.max() - of_graph["start_ns"].min()))
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: kernels without a launch of their own
#
# All kernels of a graph have the same launch: the one call. Statistics of launches then say odd things. The delay from
# launch to start grows from kernel to kernel, as if the queue became longer; the depth of the queue, how many launches
# wait to start, reaches hundreds.


# %%
def delays_ns(run):  # launch to start, by hand
    known = run.device_events.dropna(subset=["launch_ns"])
    return (known["start_ns"] - known["launch_ns"]).astype("int64")


for server, run in runs.items():
    every, call = tidyprof.launches(run), graph_of(run)[0]
    assert sorted(delays_ns(run)) == sorted(every["delay_ns"])
    calls = run.device_events.sort_values("start_ns").drop_duplicates("correlation_id")
    once = every[every["start_ns"].isin(calls["start_ns"])]  # the first event of each call
    first = once[once["launch_ns"] == call["start_ns"]].iloc[0]
    say(
        f"{server}: {len(every)} launches with a median delay of "
        f"{every['delay_ns'].median() / 1e6:.2f} ms and up to {every['queue_depth'].max()} in the "
        f"queue. In truth the host made {len(once)} calls, and the graph's first kernel started "
        f"{first['delay_ns'] / 1e6:.2f} ms after its call."
    )

# %% [markdown]
# So count calls once, `drop_duplicates("correlation_id")`, before you say anything about launches. And there is no
# operator, no shape and no line on a kernel of a graph. AMD's TraceLens can [merge](
# https://rocm.docs.amd.com/projects/tracelens/en/latest/how-to/generate-perf-report-pytorch-inference.html) a trace of
# the recording of the graph, where they are, into one of its replay. By yourself: profile one step without graphs, and
# compare the kernels' names. `rocprofv3` has an option `--hip-graph-trace` since ROCm 10.0, and its database names the
# graph of a kernel in `graph_exec_id`; no recording of the course shows it.

# %% [markdown]
# ## The bound against a recording
#
# How near does SGLang's step come to its bound? For that you need the model's size. The range around the step holds the
# tokens in the cache (`sk` for all 32 requests). The shape is that of Qwen3-8B's public `config.json`, as the file's
# name says; each layer should have its kernel for attention.

# %%
device_names = sglang.device_events["name"].astype(str)
assert device_names.str.contains("paged_attention_ll4mi_QKV").sum() == QWEN["layers"]
ranges = sglang.events.loc[sglang.events["kind"] == "annotation", "name"].astype(str)
in_cache = int(ranges.str.extract(r"generation_32\(sq32sk(\d+)")[0].dropna().iloc[0])

# %%
parts = graph_of(sglang)[1].assign(part="the rest")
parts["category"] = [tidyprof.category(str(name), "kernel") for name in parts["name"]]
parts.loc[parts["category"] == "GEMM", "part"] = "weights (GEMM)"
parts.loc[parts["category"] == "attention", "part"] = "cache (attention)"
parts = parts.groupby("part")["duration_ns"].agg(kernels="size", duration_ns="sum").reset_index()
needed = {
    "weights (GEMM)": 2 * weights(QWEN),
    "cache (attention)": cache_bytes(QWEN, in_cache),
    "the rest": 0,
}
parts["gigabytes"] = parts["part"].map(needed) / 1e9
parts["bound_ns"] = (1e18 * parts["gigabytes"] / BANDWIDTH).round().astype("int64")
parts["of_the_bound_percent"] = 100 * parts["bound_ns"] / parts["duration_ns"]
parts["mean_ns"] = parts["duration_ns"] // parts["kernels"]
columns = "part kernels duration_ms gigabytes bound_ms of_the_bound_percent mean_us"
show_table(parts, columns, "SGLang's graph, by what has to be read", origin=sglang.origin)

# %%
kernels_s, bound_s = parts["duration_ns"].sum() / 1e9, parts["bound_ns"].sum() / 1e9
rest, shortest = parts.set_index("part").loc["the rest"], graph_of(sglang)[1]["duration_ns"].min()
intensity = 2 * weights(QWEN) * 32 / (2 * weights(QWEN) + cache_bytes(QWEN, in_cache))
say(
    f"The step's bound is {1e3 * bound_s:.2f} ms, {three_digits(32 / bound_s):,.0f} tokens per "
    f"second for the batch. Its kernels take {1e3 * kernels_s:.2f} ms, "
    f"{three_digits(32 / kernels_s):,.0f} tokens per second: "
    f"**{100 * bound_s / kernels_s:.0f} %** of the bound. With {intensity:.0f} operations per "
    f"byte, arithmetic is no limit. The rest reads little. Its {rest['kernels']:.0f} kernels take "
    f"{rest['mean_ns'] / 1e3:.1f} µs each, and no kernel of the graph is shorter than "
    f"{shortest / 1e3:.1f} µs: fewer kernels would help, by fusing them (lesson 10), not faster "
    "ones."
)

# %% [markdown]
# A line's percentage is its bound by its duration: how much of the possible pace it reaches, no share of the time. The
# rest has 0.0, since the count gives it nothing to read: its bound is no time at all, however fast its kernels are.
#
# Three parts, three remedies: other GEMM kernels or smaller weights for the first, a shorter or smaller cache for the
# second, fusion for the third. Read the percentages with care: the peak of the memory is never reached, and lesson 05
# shows how to find what can be.
#
# Now vLLM's step. The model's last product, a score for each word, runs after the graph. So it has an operator, with
# the shapes of its inputs. `tidyprof.matrix_products` lists such products with their sizes and operations per second.

# %%
# 4 minutes: which share of the memory's peak, in percent, does that product reach? `last` is its operator, `scores` its
# kernel. Count the bytes of the weights, in the type that `input_types` says; what else it reads and writes is little.
last = vllm.events[vllm.events["name"] == "aten::mm"].iloc[0]
scores = vllm.device_events[vllm.device_events["external_id"] == last["external_id"]].iloc[0]
print(last["input_shapes"], last["input_types"], scores["short_name"], scores["duration_ns"], "ns")
q = exercise("12.4", (last, scores, gpu))
# solution
read_bytes = 2 * np.prod(json.loads(last["input_shapes"])[1])
answer = 100 * read_bytes / (scores["duration_ns"] / 1e9) / BANDWIDTH
# end solution
q.check(answer)

# %% [markdown]
# ## Two recordings you have not seen
#
# First a whole piece of a server's life: vLLM with a model in FP8, recorded with rpd (lesson 06). It holds prefill and
# then decode, step after step. The table shows what the host called, and how many device events that started.

# %%
packed = proflab.recording("rpd-vllm-mytrace")
served = tidyprof.read(packed.path, origin=packed.origin)
calls = served.events.loc[served.events["kind"] == "runtime", ["correlation_id", "name"]]
started = served.device_events[["correlation_id", "duration_ns"]].merge(calls, on="correlation_id")
started = started.groupby("name", observed=True)["duration_ns"].agg(["size", "sum"]).reset_index()
started = started[started["size"] > 0].sort_values("sum", ascending=False)
started = started.rename(columns={"name": "call", "size": "device_events", "sum": "device_ns"})
show_table(started, "call device_events device_ms", "Who started what", origin=served.origin)

# %%
# 5 minutes: a decode step lasts from one `hipGraphLaunch` to the next. What share of it, in percent, does the graph
# itself run on the device? Take the median step, and the median of the graphs' summed durations (one stream).
q = exercise("12.5", served)
# solution
graph_calls = served.events[served.events["name"] == "hipGraphLaunch"].sort_values("start_ns")
of_graphs = served.device_events[
    served.device_events["correlation_id"].isin(graph_calls["correlation_id"])
]
graph_ns = of_graphs.groupby("correlation_id")["duration_ns"].sum()
answer = 100 * graph_ns.median() / graph_calls["start_ns"].diff().median()
# end solution
q.check(answer)

# %%
launched = served.events.loc[served.events["name"] == "hipGraphLaunch", "start_ns"].sort_values()
apart_ns = launched.diff().median()
in_decode = served.device_events[
    served.device_events["start_ns"].between(launched.iloc[0], launched.iloc[-1])
]
busy = tidyprof.busy(tidyprof.Profile(in_decode, meta=served.meta))
gaps = tidyprof.gaps(served, 300_000).query("start_ns > @launched.iloc[0]")
show_table(
    gaps, "duration_us cause after before host_call", "Longest gaps between the graphs", rows=4
)
say(
    f"A step takes {apart_ns / 1e6:.2f} ms, so each request gets {1e9 / apart_ns:.0f} tokens per "
    "second; how many requests there are, the file does not say. In decode the device is busy "
    f"for {busy['union_percent'].iloc[0]:.0f} % of the time: with the graph, then with choosing "
    "the token."
)

# %% [markdown]
# Between two graphs the device chooses the token and copies it to the host, then it waits until the host has prepared
# the next step. The cure is the server's: prepare a step while the one before runs. In vLLM's recording above the host
# asks for a step's copies long before they run, which looks like that.
#
# The second one is no PyTorch at all: llama.cpp on a small GPU, traced by `rocprofv3` into CSV files, whose author kept
# the rows of a few tokens. By `hipGraphLaunch` in its table of calls a graph started few kernels. Rows are missing
# there, so joining by the call would find only few of them. What do kernels of one graph have in common that does not
# need the call?

# %%
# 4 minutes: how many percent of these kernels were started by graphs? `hipLaunchKernel` starts one kernel.
there = proflab.recording("rocprofv3-csv-gfx1151-llamacpp-decode")
kernels = pd.read_csv(there.files["decode_kernel_trace.csv"])
q = exercise("12.6", kernels)
# solution
answer = 100 * kernels["Correlation_Id"].duplicated(keep=False).mean()
# end solution
q.check(answer)

# %% [markdown]
# ## Which path did attention take?
#
# Attention can be one *fused* kernel, which never writes the scores of all pairs of tokens to memory, or a row of
# separate kernels: a product, a softmax over all pairs, a product. PyTorch calls the second one the *math* path. Names
# tell which one ran:
#
# | a name holds | who made the kernel |
# | --- | --- |
# | `attn_fwd` below `aten::_flash_attention_forward` | [AOTriton][aot], PyTorch's fused attention on AMD |
# | `ck_tile` and `Fmha` | Composable Kernel (CK), AMD's templates |
# | `aiter` | AITER, another library of AMD's |
# | `paged_attention` and `vllm` | vLLM; SGLang's recording has it, too |
# | `softmax` | the math path, if the products before and after it have the same pairs |
# | `Cijk_` | Tensile, for matrix products: in rocBLAS and in hipBLASLt, where names have [`UserArgs`][lt] |
#
# rocBLAS [may pass a product on][blas] to hipBLASLt, so a name does not say which of the two was called.
# `HIPBLASLT_LOG_MASK=32` prints [each call to hipBLASLt][log].
#
# [aot]: https://github.com/ROCm/TheRock/issues/2229
# [lt]: https://github.com/ROCm/hipBLASLt/pull/932
# [blas]: https://rocm.docs.amd.com/projects/rocBLAS/en/docs-7.0.1/conceptual/rocblas-design-notes.html
# [log]: https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/reference/env-variables.html
#
# One more model, OWLv2, which finds things in images, as a table of its kernels:

# %%
owlv2 = pd.read_csv(lesson.file("owlv2_kernels.csv"), comment="#")
owlv2["percent"] = 100 * owlv2["total_ns"] / owlv2["total_ns"].sum()
owlv2["category"] = [tidyprof.category(name, "kernel") for name in owlv2["name"]]
OWLV2 = "recorded: AMD Instinct MI300X, OWLv2, AMD-AGI/TraceLens"
show_table(
    owlv2,
    "operator input_shapes category calls total_ms percent",
    "OWLv2's kernels",
    rows=4,
    origin=OWLV2,
)
fused = owlv2.loc[owlv2["category"] == "attention", "percent"].sum()
patches = json.loads(owlv2["input_shapes"].iloc[0])[0][-1]
pairs = owlv2[owlv2["input_shapes"].str.contains(f"{patches}, {patches}")]
say(
    f"The category attention has {fused:.0f} % of the time. The kernels that touch all pairs of "
    f"{patches:,} patches take {pairs['percent'].sum():.0f} %, the softmax alone "
    f"{pairs['percent'].max():.0f} %: that is its attention."
)

# %%
# 5 minutes: which path did attention take? In each table choose the one that takes the most time: "AOTriton", "CK",
# "vLLM" or "math". The tables have `name` and `total_ns`. Answer with a dictionary: table -> path.
block = proflab.recording("torch-mi300x-compile-triton")
kernels_of = {"OWLv2": owlv2, "compiled block": tidyprof.kernels(tidyprof.read(block.path))}
kernels_of |= {"SGLang": tidyprof.kernels(sglang), "vLLM, FP8": tidyprof.kernels(served)}
for name, table in kernels_of.items():
    print(name, *table["name"].astype(str).str[:70].head(5), sep="\n    ")
q = exercise("12.7", kernels_of)
# solution
answer = {"OWLv2": "math", "compiled block": "AOTriton", "SGLang": "vLLM", "vLLM, FP8": "CK"}
# end solution
q.check(answer)

# %% [markdown]
# OWLv2's trace has no operator `scaled_dot_product_attention`: the model asks for softmax itself. Where a trace has the
# operator and still a softmax over all pairs, PyTorch found no fused kernel for these inputs (see the known issues).

# %% [markdown] tags=["given"]
# ## What to do
#
# | what limits | what to do |
# | --- | --- |
# | the host's launches | a graph: [`torch.cuda.graph`][graph], or [compile][compile] with `mode="reduce-overhead"` |
# | the host, between two steps | a server that prepares the next step while this one runs |
# | the weights' bytes | a model in FP8 or FP4, which takes 2 to 4 times less memory by [AMD's guide to vLLM][guide] |
# | few requests for each reading of the weights | a larger batch, as far as the wait for a token allows |
# | the cache's bytes | shorter texts, or a model with fewer KV heads |
# | one request alone | [speculative decoding][spec]: a small model proposes tokens, the large one checks several |
# | single launches, on AMD | `HIP_FORCE_DEV_KERNARG=1`, by the same guide; AMD's images for vLLM set it |
#
# None of these rows is measured here: time your own case before and after.
#
# [graph]: https://docs.pytorch.org/docs/stable/generated/torch.cuda.graphs.graph.html
# [compile]: https://docs.pytorch.org/docs/stable/generated/torch.compile.html
# [guide]: https://rocm.docs.amd.com/en/docs-7.2.0/how-to/rocm-for-ai/inference-optimization/vllm-optimization.html
# [spec]: https://docs.redhat.com/en/documentation/red_hat_ai_inference_server/3.4/html/speculative_decoding/about-speculators_speculative-decoding

# %% [markdown]
# Recording a graph takes a few lines. It records kernels and the addresses of their data: to decode the next token,
# write it into the same `words_in` and `place_in` with `copy_`, then replay. Nothing in it may wait for the device, or
# let the host decide by a value. On AMD warm up in the stream that you record in: PyTorch keeps a handle of hipBLASLt
# for each stream and makes it at the first use, which [must not be during the recording][handle]. Two streams do not
# wait for each other by themselves, hence [`wait_stream`][streams], there and back.
#
# [handle]: https://github.com/pytorch/pytorch/pull/187745
# [streams]: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs


# %%
def recorded(work):
    stream, before = torch.cuda.Stream(), torch.cuda.current_stream()
    stream.wait_stream(before)  # its data may still be on their way
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    before.wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        answer = work()
    return graph, answer


if torch.cuda.is_available():
    words_in, place_in = text[:, 128:].clone(), places[128:].clone()
    graph, answer = recorded(lambda: model(words_in, place_in, caches))
    eager, replayed = in_turn_ms({"eager": works[1], "graph": graph.replay}).values()
    assert torch.allclose(answer, whole, atol=1e-3)
    say(f"Decode takes {eager[1]:.2f} ms eagerly and {replayed[1]:.2f} ms as a graph (medians).")
else:
    say("There is no GPU here that torch calls `cuda`, so nothing is recorded.")

# %% [markdown]
# ## Decide
#
# Bound, kernels and step are three times, in this order. The larger ratio of two neighbours says where to look.


# %%
def decide(bound_ms, kernels_ms, step_ms):
    waits, slow = step_ms / kernels_ms, kernels_ms / bound_ms
    if max(waits, slow) < 1.25:
        return "the bound itself: fewer bytes, or more tokens for each byte"
    if waits > slow:
        return "the device, which waits: graphs, or prepare the next step earlier"
    return (
        "the kernels: which (lesson 04), how near to their roofs (lesson 05)? Fuse the small ones"
    )


assert decide(1, 7, 10).startswith("the kernels")  # 7 times is more than 1.4 times

# %%
ends = graph_of(sglang)[1].eval("start_ns + duration_ns")
span_ms = (ends.max() - graph_of(sglang)[1]["start_ns"].min()) / 1e6
say(
    "SGLang, 32 requests; its step is the graph's first kernel to its last, as the file has no "
    "whole one."
)
say(f"Look at {decide(1e3 * bound_s, 1e3 * kernels_s, span_ms)}.")
# Without a GPU the operators are the step.
own_kernels_ms = step.device_events["duration_ns"].sum() / 1e6 or decode[1]
where = f"Look at {decide(bound_ms, own_kernels_ms, decode[1])}." if quiet else NOISE
say(f"Your own model, one request. {where}")
logged = proflab.recording("smi-mi300x-vllm-llama31-bs1")
request = json.loads(
    next(path for path in logged.files.values() if path.suffix == ".json").read_text()
)
token_s = request["avg_latency"] / 128  # 128 new tokens, the prompt's prefill included
say(
    f"And Llama-3.1-8B, one request ({logged.origin}): {1 / token_s:.0f} tokens per second, "
    f"{100 * alone_s / token_s:.0f} % of the bound at the top of this lesson. No trace says where "
    "the rest is."
)
proflab.reveal("12.a", three_digits(1 / alone_s), origin=MODELLED)
proflab.reveal("12.b", three_digits(prefill[1] / decode[1]))
if not quiet:
    say(f"The result of 12.b is uncertain. {NOISE}")

# %% [markdown]
# ## What this view cannot see
#
# The bound counts each byte once. What was really read, counters say (lesson 05). It knows one GPU: a model on several
# adds collectives to each step (lesson 07). And a step is not a request: TTFT and TPOT are measured at the server.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# | nearly all kernels without operator and shape | a graph: profile a step without it, or merge its recording (above) |
# | far too many launches, long delays, a deep queue | count calls, not kernels: one row for each correlation id |
# | idle for most of the file, as `earlier work` in `gaps` | the file was cut: measure from graph to graph |
# | an error or a hang while a graph is recorded, on AMD | [warm up in the stream of the recording][warm] |
# {issue attention-falls-back-to-the-math-path}
# {issue aiter-has-no-tuned-configuration-for-a-shape}
#
# [warm]: https://github.com/ROCm/pytorch/pull/3354

# %% [markdown]
# ## At work, without this course
#
# The bound from a model's `config.json`, and prefill and decode of a module of yours; replace the part between the two
# lines of dashes:
#
# {snippet 12_decode_bound.py}

# %% [markdown]
# ## Key points
#
# - Decode reads all weights for each step: tokens per second are at most bandwidth by bytes.
# - A batch shares the weights, never the cache. With long texts decode stays limited by memory at any batch.
# - A graph is one launch. Its kernels have no operator, and launch statistics count them many times.
# - A trace that was cut to one step shows idle time that never was. Measure between the device's own events.
# - A softmax over all pairs of tokens is attention's slow path, whatever the category says.
# - Bound, kernels, step: the largest ratio of two neighbours says where to look.
#
# Next question: is it slower after the upgrade?
