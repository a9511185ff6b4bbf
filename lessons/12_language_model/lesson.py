# %% [markdown]
# # Prefill, decode, graphs: how fast can a token be?
#
# How fast could a language model write at best, on this GPU? Three numbers tell before anything runs. Then you read
# recordings of servers, where one call launches nearly all kernels.
#
# After this lesson you can
#
# - compute from a model's shape how many tokens per second a GPU can give at most, and what a larger batch changes;
# - measure prefill and decode of a model, and say how near they come to that bound;
# - read the trace of a HIP graph without falling for its "idle" time and its launches.
#
# You need lessons 00, 02 and 05. A GPU is used where there is one; without it every cell still works.

# %%
import json
import time

import numpy as np
import pandas as pd
import proflab
import tidyprof
import torch
from proflab import exercise, show_figure, show_table, show_text
from tidyprof import Origin, plots
from torch import nn

lesson = proflab.start("12")
_ = torch.set_grad_enabled(False)  # nothing is trained here
torch.set_num_threads(1)  # more of them wait for each other on a busy machine

# %%
lesson.recall()

# %% [markdown]
# ## The picture to keep in mind
#
# A *token* is a piece of a word, and a text a row of tokens. The model reads a text and says which token comes next.
#
# | | prefill | decode |
# | --- | --- | --- |
# | what happens | the prompt is read, all its tokens at once | one new token for each request, again and again |
# | what limits it | arithmetic: many tokens with each weight | memory: every weight is read for one token |
# | what the user feels | *time to first token* ([TTFT][ttft]) | *time per output token* ([TPOT][tpot]) |
#
# *Attention* compares the new token with all earlier ones. For that, each layer keeps two rows of numbers for each
# token, its *key* and its *value*: the *KV cache*. Without it a model would compute the whole text again for each
# token. In most models several attention heads (*query heads*) share one head of keys and values (*KV heads*).
#
# [ttft]: https://docs.anyscale.com/llm/serving/benchmarking/metrics
# [tpot]: https://awsdocs-neuron.readthedocs-hosted.com/en/v2.26.0/libraries/nxd-inference/developer_guides/llm-inference-benchmarking-guide.html
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
# least `bytes / bandwidth`. Two public models by their shape (`config.json` of Llama-3.1-8B and Qwen3-8B): a layer has
# four matrices for attention and three that are `inner` wide, and the last matrix gives a score to each of the `words`.

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
    layer = attention + 3 * model["width"] * model["inner"]
    return model["layers"] * layer + model["words"] * model["width"]


def cache_bytes(model, tokens):  # a key and a value, 16 bits each
    return model["layers"] * 2 * model["kv_heads"] * model["head_size"] * 2 * tokens


# %%
PEAK, BANDWIDTH = 1307.4e12, 5324.8e9  # FLOP/s and bytes per second of an MI300X
SOURCE = "https://rocm.docs.amd.com/en/latest/reference/gpu-arch/mi300.html"
MODELED = f"modeled: bytes and operations by hand, peaks that AMD publishes ({SOURCE})"
alone_s = (2 * weights(LLAMA) + cache_bytes(LLAMA, 256)) / BANDWIDTH
show_text(
    f"Llama-3.1-8B: {2 * weights(LLAMA) / 1e9:.1f} GB of weights a step, "
    f"{cache_bytes(LLAMA, 1) / 1e3:.0f} kB of cache for each token of the text. One request with "
    f"256 tokens: at most {1 / alone_s:.0f} tokens per second."
)

# %% [markdown]
# No software gives more. A weight has two bytes, and takes two operations for each token. So the *intensity*,
# operations per byte (lesson 05), is the number of tokens that a weight meets once it is read: the prompt's length in
# prefill, the number of requests in decode. The *knee* of the roofline, where arithmetic takes over, is peak divided by
# bandwidth. A large batch reaches it only with short texts: each request brings its own cache.


# %%
def decode_s(model, batch, context):  # seconds for the bytes, seconds for the arithmetic
    moved = 2 * weights(model) + batch * cache_bytes(model, context)
    return moved / BANDWIDTH, 2 * weights(model) * batch / PEAK


cases = [(batch, context) for context in (128, 4096) for batch in (1, 32, 1024)]
bounds = pd.DataFrame([(*case, *decode_s(LLAMA, *case)) for case in cases])
bounds.columns = ["batch", "context", "bytes_s", "arithmetic_s"]
step_s = bounds[["bytes_s", "arithmetic_s"]].max(axis=1)
bounds["tokens_per_second"], bounds["for_each_request"] = bounds["batch"] / step_s, 1 / step_s
bounds["limit"] = np.where(bounds["bytes_s"] > bounds["arithmetic_s"], "memory", "arithmetic")
columns = "context batch limit tokens_per_second for_each_request"
show_table(bounds, columns, "Bounds for Llama-3.1-8B on an MI300X", origin=MODELED)
longest = 2 * weights(LLAMA) / PEAK * BANDWIDTH / cache_bytes(LLAMA, 1)
show_text(f"Knee: {PEAK / BANDWIDTH:.0f} operations per byte. Longest text: {longest:.0f} tokens.")

# %% [markdown]
# A prompt of as many tokens as the knee keeps the arithmetic busy. In decode it takes as many requests, if there is no
# cache. With longer texts no batch gets there: to read one more request's cache takes longer than to compute its token.

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

# %% [markdown]
# ## Capture: a language model of your own
#
# Its weights are random; its shapes and its speed are real. The cache has its full length from the beginning, and a
# mask hides what is not written yet: all shapes stay the same, which a graph needs.

# %%
has_gpu = torch.accelerator.is_available()
device = torch.accelerator.current_accelerator() if has_gpu else torch.device("cpu")
LAYERS, WIDTH, HEADS, LONGEST, WORDS = 6, 512, 8, 256, 8192


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.join, up = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
        self.widen = nn.Sequential(nn.LayerNorm(WIDTH), up, nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, cache, places):
        rows = self.mix(self.norm(x)).unflatten(-1, (3, HEADS, -1))
        query, key, value = rows.permute(2, 0, 3, 1, 4)
        cache.index_copy_(3, places, torch.stack([key, value]))
        seen = torch.arange(LONGEST, device=x.device) <= places[:, None]
        mixed = nn.functional.scaled_dot_product_attention(query, *cache, attn_mask=seen)
        x = x + self.join(mixed.transpose(1, 2).flatten(2))
        return x + self.widen(x)


# %%
class TinyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, words, places, caches):
        x = self.words(words)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache, places)
        return self.head(x[:, -1])


def empty_caches(batch):
    return torch.zeros(LAYERS, 2, batch, HEADS, LONGEST, WIDTH // HEADS, device=device)


model, caches = TinyModel().to(device), empty_caches(1)
text, places = torch.randint(WORDS, (1, 129), device=device), torch.arange(129, device=device)
whole = model(text, places, empty_caches(1))
model(text[:, :128], places[:128], caches)  # prefill
# Decode says the same.
assert torch.allclose(model(text[:, 128:], places[128:], caches), whole, atol=1e-4)

# %% [markdown]
# ## First look
#
# The two roofs of *your* machine: a sum over a large tensor reads each number once; a product of large matrices
# computes. All take turns.
#
# Can the times be trusted? Not where quartiles lie far apart. Nor, without a GPU, where the thread had a processor for
# less than the time on the wall, since other programs had it: a load that never changes shows there alone. Neither sees
# a neighbor who takes the *memory's* bandwidth, a low clock, or another job on your GPU: so compare the roofs with the
# data sheet.

# %%
# On a GPU more than its caches hold: an MI300X has 256 MB of Infinity Cache in front of its memory.
large = torch.ones(2 ** (28 if has_gpu else 25), device=device)
square = torch.ones(1024, 1024, device=device)
many, many_caches = torch.randint(WORDS, (32, 1), device=device), empty_caches(32)
works = {
    "sum": large.sum,
    "product": lambda: square @ square,
    "prefill, 128 tokens": lambda: model(text[:, :128], places[:128], caches),
    "decode, 1 request": lambda: model(text[:, 128:], places[128:], caches),
    "decode, 32 requests": lambda: model(many, places[128:], many_caches),
}
wait, taken = torch.accelerator.synchronize if has_gpu else lambda: None, []
for turn in range(9):
    for what, work in works.items():
        wait()
        begin, computed = time.perf_counter(), time.thread_time()
        work()
        wait()
        took, computed = time.perf_counter() - begin, time.thread_time() - computed
        taken.append((turn, what, 1e3 * took, 100 * computed / took))


# %%
def disturbed(times, has_gpu):  # what speaks against these times, "" if nothing does
    if not has_gpu and times["processor_percent"].min() < 90:
        return "other programs had the processor for a part of the time"
    return "the times scatter" if (times["three_quarters"] >= 1.5 * times["quarter"]).any() else ""


taken = pd.DataFrame(taken, columns=["turn", "what", "ms", "processor_percent"])
by_work = taken[taken["turn"] > 1].groupby("what", sort=False)  # the first turns warm up
times = by_work["ms"].quantile([0.25, 0.5, 0.75]).unstack()
times.columns = ["quarter", "median", "three_quarters"]
times = times.join(by_work["processor_percent"].median()).reset_index()
doubt = disturbed(times, has_gpu)

# %%
own_bandwidth = large.nbytes / times["median"][0] * 1e3  # bytes per second
own_rate = 2 * 1024**3 / times["median"][1] * 1e3  # FLOP/s
# Of the first table a step reads a row for each token.
own_weights = sum(one.numel() for one in model.parameters()) - model.words.weight.numel()
steps, tokens = times[2:].copy(), np.array([128, 1, 32])
moved = 4 * own_weights + np.array([caches.nbytes, caches.nbytes, many_caches.nbytes])
steps["bound"] = 1e3 * np.maximum(moved / own_bandwidth, 2 * own_weights * tokens / own_rate)
steps["of_the_bound_percent"] = 100 * steps["bound"] / steps["median"]
columns = "what bound quarter median three_quarters of_the_bound_percent"
here = Origin("measured", f"this machine{doubt and ', doubtful: '}{doubt}")
show_table(steps, columns, "Your own model, times in ms", origin=here)
prefill, alone, together = steps["median"]
show_text(
    f"Roofs: {own_bandwidth / 1e9:.1f} GB/s and {own_rate / 1e9:.0f} GFLOP/s, so the knee is at "
    f"{own_rate / own_bandwidth:.1f} operations per byte. Prefill handles 128 times the tokens in "
    f"{prefill / alone:.1f} decode steps; 32 requests take {together / alone:.1f} times as long as "
    f"one. {f'**Doubtful: {doubt}.** Repeat this on a quiet machine.' if doubt else ''}"
)

# %% [markdown]
# A share above the whole means that a roof is too low: the sum was disturbed, or a cache keeps weights from one step to
# the next. On a GPU the step is far from its bound for another reason: the host has to launch each small operator. That
# is what graphs are for.
#
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
show_table(pd.DataFrame(rows), columns, "The graph's one launch, on the host", origin=origin)

# %%
call, nodes = graph_of(sglang)
begin = int(call["start_ns"])
window = {"start_ns": begin - 300_000, "end_ns": begin + 4 * int(call["duration_ns"])}
show_figure(plots.timeline(sglang, **window, title="One call, then only the device works"))

# %% [markdown]
# A kernel in the graph takes the host a fraction of what a single launch takes (the last two columns), and the graph
# runs no Python and no operators. All its kernels have the same launch. So statistics of launches count it hundreds of
# times, with delays that grow from kernel to kernel: count calls once, `drop_duplicates("correlation_id")`. In a CSV
# file of `rocprofv3` that lost its calls, kernels that share a `Correlation_Id` are those of a graph.
#
# No kernel of a graph has an operator, a shape or a line. Three ways to get them: profile a step without graphs and
# compare the kernels' names; let AMD's TraceLens [merge][merge] a trace of the graph's recording into one of its
# replay; or `rocprofv3 --hip-graph-trace` since ROCm 10.0, whose database names a kernel's graph in `graph_exec_id` (no
# recording of the course shows it).
#
# [merge]: https://rocm.docs.amd.com/projects/tracelens/en/latest/how-to/generate-perf-report-pytorch-inference.html
#
# ## Trap: the GPU is idle for much of the time
#
# How busy is the device from the first event in the file to the last, as a tool asks that finds no step marks? Before
# you blame the host, ask how long the work behind the gap had waited since its launch: an idle device begins within
# microseconds.

# %%
for server, run in runs.items():
    ends = run.events["start_ns"] + run.events["duration_ns"]
    whole_ns = ends.max() - run.events["start_ns"].min()
    idle_percent = 100 * (1 - tidyprof.busy(run)["busy_ns"].iloc[0] / whole_ns)
    first = run.device_events.sort_values("start_ns").drop_duplicates("stream")  # of each stream
    waited_ns = (first["start_ns"] - first["launch_ns"]).max()
    assert np.isclose(waited_ns, tidyprof.step_budget(run)["other_ns"].iloc[0], rtol=0.1)
    show_text(
        f"{server}: {idle_percent:.0f} % idle of {whole_ns / 1e6:.1f} ms. One stream's first work "
        f"was launched {waited_ns / 1e6:.1f} ms before it began."
    )

# %% [markdown]
# Still it waited: something was in front of it. Both files hold only what *one step launched*; what the device did for
# the step before is not in them. Whether it worked, nobody can tell. `gaps` and `tidyprof triage` call it `earlier
# work`; in `step_budget` it is in `other_ns`, neither launch-bound time nor a blocked host.
#
# The repair: a window that begins and ends with the device's own work, such as the graph's; or several steps, measured
# from one graph to the next.

# %%
# 3 minutes: how many percent of the time from the first to the last moment of its graph is SGLang's device idle?
# `graph_of(sglang)` gives the call and the graph's events, which are all in one stream.
q = exercise("12.2", sglang)
# solution
of_graph = graph_of(sglang)[1]
over_at = of_graph["start_ns"] + of_graph["duration_ns"]
answer = 100 * (1 - of_graph["duration_ns"].sum() / (over_at.max() - of_graph["start_ns"].min()))
# end solution
q.check(answer)

# %% [markdown]
# ## The bound against a recording
#
# How near does SGLang's step come to its bound? The range around the step holds the tokens in the cache (`sk` for all
# 32 requests). The shape is that of Qwen3-8B, as the file's name says; each layer should have its kernel for attention.

# %%
device_names = sglang.device_events["name"].astype(str)
assert device_names.str.contains("paged_attention_ll4mi_QKV").sum() == QWEN["layers"]
ranges = sglang.events.loc[sglang.events["kind"] == "annotation", "name"].astype(str)
in_cache = int(ranges.str.extract(r"generation_32\(sq32sk(\d+)")[0].dropna().iloc[0])
kinds = {"GEMM": "weights (GEMM)", "attention": "cache (attention)"}
read = {"weights (GEMM)": 2 * weights(QWEN), "cache (attention)": cache_bytes(QWEN, in_cache)}
nodes = graph_of(sglang)[1]
category = [tidyprof.category(str(name), "kernel") for name in nodes["name"]]
part = pd.Series(category, nodes.index, name="part").map(kinds).fillna("the rest")
parts = nodes.groupby(part)["duration_ns"].agg(kernels="size", duration_ns="sum").reset_index()
parts["gigabytes"] = parts["part"].map(read).fillna(0) / 1e9
parts["bound_ns"] = 1e18 * parts["gigabytes"] / BANDWIDTH
parts["of_the_bound_percent"] = 100 * parts["bound_ns"] / parts["duration_ns"]
columns = "part kernels duration_ms gigabytes bound_ms of_the_bound_percent"
show_table(parts, columns, "SGLang's graph, by what has to be read", origin=sglang.origin)

# %%
kernels_s, bound_s = parts["duration_ns"].sum() / 1e9, parts["bound_ns"].sum() / 1e9
show_text(
    f"The step's bound is {1e3 * bound_s:.2f} ms, its kernels take {1e3 * kernels_s:.2f} ms: "
    f"{100 * bound_s / kernels_s:.0f} % of the possible pace. The shortest kernel of the graph "
    f"takes {nodes['duration_ns'].min() / 1e3:.1f} µs."
)

# %% [markdown]
# No kernel is shorter, however little it reads: the rest needs fewer kernels, by fusing them (lesson 10), not faster
# ones. Three parts, three remedies: other GEMM kernels or smaller weights for the first, a shorter or smaller cache for
# the second, fusion for the third.
#
# Names of kernels tell which path attention took: `attn_fwd` is [AOTriton][aot], PyTorch's fused kernel on AMD;
# `ck_tile` with `Fmha` Composable Kernel; `aiter` AITER; `paged_attention` comes from vLLM, in SGLang too. A `softmax`
# over all pairs of tokens between two products is the slow *math* path, though its category says reduction. `Cijk_` is
# Tensile, for products, in rocBLAS and in hipBLASLt: rocBLAS [may pass a product on][blas], and `HIPBLASLT_LOG_MASK=32`
# prints [each call][log] of the latter.
#
# [aot]: https://github.com/ROCm/TheRock/issues/2229
# [blas]: https://rocm.docs.amd.com/projects/rocBLAS/en/docs-7.0.1/conceptual/rocblas-design-notes.html
# [log]: https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/reference/env-variables.html
#
# ## From graph to graph
#
# Many steps of a server: vLLM with a model in FP8, recorded with rpd (lesson 06). Between two graphs the device chooses
# the token and copies it to the host, then it waits until the host has prepared the next step.

# %%
packed = proflab.recording("rpd-vllm-mytrace")
served = tidyprof.read(packed.path, origin=packed.origin)
graph_calls = served.events[served.events["name"] == "hipGraphLaunch"].sort_values("start_ns")
step_ns = graph_calls["start_ns"].diff().median()
show_text(f"A step takes {step_ns / 1e6:.2f} ms: each request gets {1e9 / step_ns:.0f} tokens/s.")

# %%
# 4 minutes: a decode step lasts from one `hipGraphLaunch` to the next. What share of it, in percent, does the graph
# itself run on the device? Take the median step, `step_ns`, and the median of the graphs' summed durations.
q = exercise("12.3", served)
# solution
calls = graph_calls["correlation_id"]
of_graphs = served.device_events[served.device_events["correlation_id"].isin(calls)]
answer = 100 * of_graphs.groupby("correlation_id")["duration_ns"].sum().median() / step_ns
# end solution
q.check(answer)

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
# Recording a graph takes the few lines of `recorded` in the snippet below. It keeps kernels and the addresses of their
# data: to decode the next token, write it into the same tensors with `copy_`, then replay. Nothing in it may wait for
# the device, or let the host decide by a value. On AMD warm up in the stream that you record in: PyTorch makes a handle
# of hipBLASLt for each stream at the first use, which [must not be during the recording][handle] ([an error or a
# hang][warm]). Two streams do not wait for each other by themselves, hence [`wait_stream`][streams], there and back.
#
# [handle]: https://github.com/pytorch/pytorch/pull/187745
# [warm]: https://github.com/ROCm/pytorch/pull/3354
# [streams]: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs

# %% [markdown]
# ## Decide
#
# Bound, kernels and step are three times, in this order. The larger ratio of two neighbors says where to look.


# %%
def decide(bound_ms, kernels_ms, step_ms):
    waits, slow = step_ms / kernels_ms, kernels_ms / bound_ms
    if max(waits, slow) < 1.25:
        return "the bound itself: fewer bytes, or more tokens for each byte"
    if waits > slow:
        return "the device, which waits: graphs, or prepare the next step earlier"
    return "the kernels (lessons 04, 05): which, how near to their roofs? Fuse the small ones"


span_ms = ((nodes["start_ns"] + nodes["duration_ns"]).max() - nodes["start_ns"].min()) / 1e6
show_text(f"SGLang, 32 requests, graph: look at {decide(1e3 * bound_s, 1e3 * kernels_s, span_ms)}.")
logged = proflab.recording("smi-mi300x-vllm-llama31-bs1")
path = next(path for path in logged.files.values() if path.suffix == ".json")
token_s = json.loads(path.read_text())["avg_latency"] / 128  # 128 new tokens, prefill included
show_text(
    f"Llama-3.1-8B, one request ({logged.origin}): {1 / token_s:.0f} tokens per second, "
    f"{100 * alone_s / token_s:.0f} % of the bound at the top of this lesson. No trace says where "
    "the rest is."
)
proflab.reveal("12.a", float(f"{1 / alone_s:.3g}"), origin=MODELED)
proflab.reveal("12.b", float(f"{prefill / alone:.3g}"), origin=here)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# The bound counts each byte once; what was really read, counters say (lesson 05). A model on several GPUs adds
# collectives to each step (lesson 07). And a step is not a request: TTFT holds the wait in the queue, too. By
# queueing theory a server that answers requests one by one, at random times, makes each wait for `load / (2 * (1 -
# load))` answers on average: 4.5 of them at 90 % load. No trace of the GPU shows that: measure at the server.
#
# Known issues: [attention falls back to the math path](../docs/known-issues.md#attention-falls-back-to-the-math-path),
# [AITER has no tuned configuration](../docs/known-issues.md#aiter-has-no-tuned-configuration-for-a-shape).

# %% [markdown]
# ## At work, without this course
#
# The bound from a model's `config.json`; prefill and decode of a module of yours, on a GPU as a graph, too. Replace the
# part between the two lines of dashes:
#
# {snippet 12_decode_bound.py}

# %% [markdown]
# Next question: is it slower after the upgrade?
