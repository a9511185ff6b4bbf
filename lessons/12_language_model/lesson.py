# %% [markdown]
# # Prefill, decode, graphs: how fast can a token be?
#
# How fast can a language model write at best on your GPU? Three numbers tell you before anything runs. Then you read
# traces of servers, in which one call launches nearly all kernels.
#
# After this lesson, you can:
#
# - compute from a model's shape how many tokens per second a GPU allows at most, and what a larger batch changes;
# - measure prefill and decode of a model, and compare them with that bound;
# - read the trace of a HIP graph without being misled by its "idle" time and its launches.
#
# **Before you start:** complete lessons 00, 02 and 05. If your machine has a GPU, the lesson uses it. Every cell also
# works without one.

# %%
import json
import time

import numpy as np
import pandas as pd
import proflab
import tidyprof
import torch
from proflab import exercise, show_figure, show_table, show_text
from proflab.parts.tiny_model import WORDS, TinyModel, empty_caches
from tidyprof import Origin, plots

lesson = proflab.start("12")
_ = torch.set_grad_enabled(False)  # this lesson trains nothing
torch.set_num_threads(1)  # on a busy machine, several threads wait for each other

# %%
lesson.recall()

# %% [markdown]
# ## The picture to keep in mind
#
# A *token* is a piece of a word. A language model reads tokens and predicts the next one:
#
# {drawing 12_cache}
#
# - *Attention* compares the new token with all earlier ones. For that, each layer stores two rows of numbers per
#   token, its *key* and its *value*, in the *KV cache*. Without the cache, the model would recompute the whole text
#   for each token.
# - In most models, several attention heads (*query heads*) share one head of keys and values (*KV head*).
#
# | | prefill | decode |
# | --- | --- | --- |
# | what happens | the model reads the whole prompt at once | each request gets one new token per step |
# | what limits it | arithmetic: many tokens per weight | memory: each weight is read for one token |
# | what the user notices | *time to first token* ([TTFT][ttft]) | *time per output token* ([TPOT][tpot]) |
#
# [ttft]: https://docs.anyscale.com/llm/serving/benchmarking/metrics
# [tpot]: https://awsdocs-neuron.readthedocs-hosted.com/en/v2.26.0/libraries/nxd-inference/developer_guides/llm-inference-benchmarking-guide.html
#
# ## Predict
#
# One request uses a model with eight billion 16-bit weights on an MI300X. Also predict for a small model of your own.

# %%
# solution
pace_guess, prefill_guess = 200, 100
# end solution
proflab.predict("12.a", pace_guess, unit="tokens/s", what="the limit of one request, 8B, MI300X")
proflab.predict("12.b", prefill_guess, unit="times", what="prefill of 128 tokens, in decode steps")

# %% [markdown]
# ## Compute the bound first
#
# A decode step reads each weight once, and the cache of each request. So it takes at least `bytes / bandwidth`. Here
# are the shapes of two public models, from their `config.json`. A layer has four matrices for attention and three
# with the width `inner`. The last matrix computes a score for each of the `words`.

# %%
LLAMA = {  # Llama-3.1-8B
    "layers": 32,
    "width": 4096,
    "heads": 32,
    "kv_heads": 8,
    "head_size": 128,
    "inner": 14336,
    "words": 128256,
}
QWEN = LLAMA | {"layers": 36, "inner": 12288, "words": 151936}  # Qwen3-8B


def weights(model):
    attention = model["width"] * model["head_size"] * 2 * (model["heads"] + model["kv_heads"])
    layer = attention + 3 * model["width"] * model["inner"]
    return model["layers"] * layer + model["words"] * model["width"]


def cache_bytes(model, tokens):  # a key and a value, 16 bits each
    return model["layers"] * 2 * model["kv_heads"] * model["head_size"] * 2 * tokens


# %%
PEAK, BANDWIDTH = 1307.4e12, 5324.8e9  # FLOP/s and bytes per second of an MI300X
SOURCE = "https://rocm.docs.amd.com/en/latest/reference/gpu-arch/mi300.html"
MODELED = f"modeled: bytes and operations computed, peaks published by AMD ({SOURCE})"
alone_s = (2 * weights(LLAMA) + cache_bytes(LLAMA, 256)) / BANDWIDTH
show_text(
    f"Llama-3.1-8B reads {2 * weights(LLAMA) / 1e9:.1f} GB of weights per step and "
    f"{cache_bytes(LLAMA, 1) / 1e3:.0f} kB of cache per token of text. One request with 256 "
    f"tokens gets at most {1 / alone_s:.0f} tokens/s."
)

# %% [markdown]
# No software can exceed this bound. A weight has two bytes and takes two operations per token. So the *intensity*
# (operations per byte, lesson 05) is the number of tokens per reading of the weights: the length of the prompt in
# prefill, and the number of requests in decode. The *knee* of the roofline, above which arithmetic is the limit, is
# the peak divided by the bandwidth.


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
show_text(
    f"The knee is at {PEAK / BANDWIDTH:.0f} operations per byte. Decode can be limited by "
    f"arithmetic only if texts are shorter than {longest:.0f} tokens."
)

# %% [markdown]
# In prefill, a prompt with as many tokens as the knee uses all of the arithmetic. In decode, a large batch gets there
# only with short texts. With longer texts, reading one more request's cache takes longer than computing its token.

# %%
# 4 minutes: how many tokens per second can an MI300X process at most for `asked`, all requests together? `model` has the
# keys of LLAMA, each number has 16 bits, and each of `batch` texts has `context` tokens.
asked = {"model": QWEN, "batch": 16, "context": 8192, "bandwidth": BANDWIDTH, "peak": PEAK}
q = exercise("12.1", asked)
# solution
row_bytes = 2 * QWEN["kv_heads"] * QWEN["head_size"] * 2
moved = 2 * weights(QWEN) + asked["batch"] * asked["context"] * QWEN["layers"] * row_bytes
answer = asked["batch"] * asked["bandwidth"] / moved
# end solution
q.check(answer)

# %% [markdown]
# ## Capture: your own language model
#
# The weights of [this small model](../lessons/12_language_model/tiny_model.py) are random, but its shapes and its
# speed are real. The cache has its full length from the start, and a mask hides unwritten entries. So no shape
# changes, which a graph requires.

# %%
has_gpu = torch.accelerator.is_available()
device = torch.accelerator.current_accelerator() if has_gpu else torch.device("cpu")
model, caches = TinyModel().to(device), empty_caches(1, device)
text, places = torch.randint(WORDS, (1, 129), device=device), torch.arange(129, device=device)
whole = model(text, places, empty_caches(1, device))
model(text[:, :128], places[:128], caches)  # prefill
decoded = model(text[:, 128:], places[128:], caches)
show_text(f"Decode and a full pass differ by at most {(decoded - whole).abs().max():.1g}.")

# %% [markdown]
# ## First look
#
# First measure the two roofs of *your* machine. The sum of a large tensor reads each number once, and the product of
# large matrices computes. All measurements alternate. If the quartiles are far apart, don't trust the times. Compare
# the roofs with the data sheet, because another program can use the memory's bandwidth all the time.

# %%
# On a GPU, use more memory than its caches hold: an MI300X has 256 MB of Infinity Cache.
large = torch.ones(2 ** (28 if has_gpu else 25), device=device)
square = torch.ones(1024, 1024, device=device)
many, many_caches = torch.randint(WORDS, (32, 1), device=device), empty_caches(32, device)
works = {
    "sum": large.sum,
    "product": lambda: square @ square,
    "prefill, 128 tokens": lambda: model(text[:, :128], places[:128], caches),
    "decode, 1 request": lambda: model(text[:, 128:], places[128:], caches),
    "decode, 32 requests": lambda: model(many, places[128:], many_caches),
}
wait, taken = torch.accelerator.synchronize if has_gpu else lambda: None, []
for _ in range(9):
    for work in works.values():
        wait()
        begin = time.perf_counter()
        work()
        wait()
        taken.append(1e3 * (time.perf_counter() - begin))

# %%
taken = pd.DataFrame(np.reshape(taken, (9, -1)), columns=works)[2:]  # the first two warm up
times = taken.quantile([0.25, 0.5, 0.75]).T.set_axis(
    ["quarter", "median", "three_quarters"], axis=1
)
scatter = (times["three_quarters"] >= 1.5 * times["quarter"]).any()
here = Origin("measured", f"this machine{', doubtful: the times scatter' if scatter else ''}")
own_bandwidth = large.nbytes / times["median"]["sum"] * 1e3  # bytes per second
own_rate = 2 * 1024**3 / times["median"]["product"] * 1e3  # FLOP/s

# %%
# A step reads only one row per token of the first table.
own_weights = sum(one.numel() for one in model.parameters()) - model.words.weight.numel()
steps, tokens = times[2:].rename_axis("what").reset_index(), np.array([128, 1, 32])
moved = 4 * own_weights + np.array([caches.nbytes, caches.nbytes, many_caches.nbytes])
steps["bound"] = 1e3 * np.maximum(moved / own_bandwidth, 2 * own_weights * tokens / own_rate)
steps["of_the_bound_percent"] = 100 * steps["bound"] / steps["median"]
columns = "what bound quarter median three_quarters of_the_bound_percent"
show_table(steps, columns, "Your own model, times in ms", origin=here)
prefill, alone, together = steps["median"]
show_text(
    f"Roofs: {own_bandwidth / 1e9:.1f} GB/s and {own_rate / 1e9:.0f} GFLOP/s. Prefill of 128 "
    f"tokens takes as long as {prefill / alone:.1f} decode steps. A step for 32 requests takes "
    f"{together / alone:.1f} times as long as a step for one."
)

# %% [markdown]
# If a share exceeds the whole, a roof is too low: the sum was disturbed, or a cache keeps weights between steps. On a
# GPU, the step is far from its bound for another reason: the host has to launch each small operator. Graphs solve
# that.
#
# ## What a HIP graph does to a trace
#
# A *HIP graph* is a series of launches that is recorded once and then started by one call. Servers use graphs to
# decode. These two traces from an MI300X show one decode step for a batch of 32. SGLang serves Qwen3-8B. vLLM serves
# a *mixture of experts*, a model that uses only some of its weights for each token.

# %%
names = {"SGLang": "torch-mi300x-sglang-decode", "vLLM": "torch-mi300x-vllm-decode-hipgraph"}
found = {server: proflab.recording(name) for server, name in names.items()}
runs = {server: tidyprof.read(one.path, origin=one.origin) for server, one in found.items()}
sglang = runs["SGLang"]


def graph_of(run):  # the call, and the device events that it started
    call = run.events[run.events["name"] == "hipGraphLaunch"].iloc[0]
    return call, run.device_events[run.device_events["correlation_id"] == call["correlation_id"]]


for server, run in runs.items():
    call, nodes = graph_of(run)
    single = run.events.loc[run.events["name"] == "hipLaunchKernel", "duration_ns"].median()
    show_text(
        f"{server}: one call of {call['duration_ns'] / 1e3:,.0f} µs starts {len(nodes)} kernels, "
        f"{call['duration_ns'] / len(nodes) / 1e3:.2f} µs each. A single launch takes "
        f"{single / 1e3:.2f} µs. Kernels with an operator: {nodes['operator'].notna().sum()} "
        f"({run.origin})."
    )

# %%
call, nodes = graph_of(sglang)
begin = int(call["start_ns"])
window = {"start_ns": begin - 300_000, "end_ns": begin + 4 * int(call["duration_ns"])}
show_figure(plots.timeline(sglang, **window, title="One call, then only the device works"))

# %% [markdown]
# In a graph, the host needs only a fraction of a single launch per kernel, and no Python and no operators run. All
# kernels of a graph have the same launch. So launch statistics count it hundreds of times, with delays that grow from
# kernel to kernel. Count each call once: `drop_duplicates("correlation_id")`. If a CSV file of `rocprofv3` has no
# calls, kernels that share a `Correlation_Id` belong to a graph.
#
# > **Warning:** With ROCm before 7.14, a PyTorch that records through rocprofiler-sdk makes `hipGraphLaunch` [much
# > slower](../docs/known-issues.md#hipgraphlaunch-is-slow-with-rocprofiler-sdk).
#
# A graph's kernels have no operator, shape or source line. There are three ways to get them:
#
# - Profile a step without graphs, and compare the names of the kernels.
# - Let AMD's TraceLens [merge][merge] a trace of the graph's recording into a trace of its replay.
# - Use `rocprofv3 --hip-graph-trace` (ROCm 10.0 or newer), whose database names the graph in `graph_exec_id`. We
#   haven't recorded this.
#
# [merge]: https://rocm.docs.amd.com/projects/tracelens/en/latest/how-to/generate-perf-report-pytorch-inference.html
#
# ## Trap: the GPU is idle for most of the time
#
# Without step marks, a tool measures from the first event of the file to the last. How idle is the device then?
# Before you blame the host, check how long the work after the gap had been queued. An idle device starts work within
# microseconds.

# %%
for server, run in runs.items():
    ends = run.events["start_ns"] + run.events["duration_ns"]
    whole_ns = ends.max() - run.events["start_ns"].min()
    idle_percent = 100 * (1 - tidyprof.busy(run)["busy_ns"].iloc[0] / whole_ns)
    first = run.device_events.sort_values("start_ns").drop_duplicates("stream")  # of each stream
    waited_ns = (first["start_ns"] - first["launch_ns"]).max()
    show_text(
        f"{server}: {idle_percent:.0f}% idle of {whole_ns / 1e6:.1f} ms. The first work of one "
        f"stream was launched {waited_ns / 1e6:.1f} ms before it started."
    )

# %% [markdown]
# So something else was ahead of it. Both files contain only the work that *one step launched*. They don't show what
# the device did for the previous step, or whether it worked at all. `gaps` and `tidyprof triage` call this time
# `earlier work`. `step_budget` counts it in `other_ns`.
#
# To fix this, choose a window that starts and ends with the device's own work, such as the graph. Or use several
# steps, measured from one graph to the next.

# %%
# 3 minutes: for what percentage of the time from the first start to the last end of its graph is SGLang's device idle?
# `graph_of(sglang)` returns the call and the graph's events, which are all in one stream.
q = exercise("12.2", sglang)
# solution
of_graph = graph_of(sglang)[1]
over_at = of_graph["start_ns"] + of_graph["duration_ns"]
answer = 100 * (1 - of_graph["duration_ns"].sum() / (over_at.max() - of_graph["start_ns"].min()))
# end solution
q.check(answer)

# %% [markdown]
# ## The bound against a trace
#
# How close is SGLang's step to its bound? The name of the range around the step contains the number of tokens in the
# cache (`sk`, for all 32 requests).

# %%
ranges = sglang.events.loc[sglang.events["kind"] == "annotation", "name"].astype(str)
in_cache = int(ranges.str.extract(r"generation_32\(sq32sk(\d+)")[0].dropna().iloc[0])
kinds = {"GEMM": "weights (GEMM)", "attention": "cache (attention)"}
read = {"weights (GEMM)": 2 * weights(QWEN), "cache (attention)": cache_bytes(QWEN, in_cache)}
category = [tidyprof.category(str(name), "kernel") for name in nodes["name"]]
part = pd.Series(category, nodes.index, name="part").map(kinds).fillna("the rest")
parts = nodes.groupby(part)["duration_ns"].agg(kernels="size", duration_ns="sum").reset_index()
parts["gigabytes"] = parts["part"].map(read).fillna(0) / 1e9
parts["bound_ns"] = 1e18 * parts["gigabytes"] / BANDWIDTH
parts["of_the_bound_percent"] = 100 * parts["bound_ns"] / parts["duration_ns"]
columns = "part kernels duration_ms gigabytes bound_ms of_the_bound_percent"
show_table(parts, columns, "SGLang's graph, by what it reads", origin=sglang.origin)

# %%
graph = tidyprof.Profile(nodes, meta=sglang.meta)
show_figure(plots.top_kernels(tidyprof.kernels(graph), n=6, title="The kernels of SGLang's graph"))
kernels_s, bound_s = parts["duration_ns"].sum() / 1e9, parts["bound_ns"].sum() / 1e9
show_text(
    f"The bound of the step is {1e3 * bound_s:.2f} ms, but its kernels take {1e3 * kernels_s:.2f} "
    f"ms, which is {100 * bound_s / kernels_s:.0f}% of the possible speed. The shortest kernel "
    f"takes {nodes['duration_ns'].min() / 1e3:.1f} µs."
)

# %% [markdown]
# Each part needs another fix:
#
# | part | fix |
# | --- | --- |
# | weights | other GEMM kernels, or smaller weights |
# | cache | a shorter or smaller cache |
# | the rest | fewer kernels, by fusion (lesson 10), because no kernel is shorter however little it reads |
#
# The name of a kernel shows which path attention takes:
#
# | in the name | library |
# | --- | --- |
# | `attn_fwd` | [AOTriton][aot], PyTorch's fused kernel on AMD |
# | `ck_tile` with `Fmha` | Composable Kernel |
# | `aiter` | AITER |
# | `paged_attention` | vLLM, also in SGLang |
# | `softmax` over all pairs of tokens, between two products | the slow *math* path |
# | `Cijk_` | Tensile, for products, in rocBLAS and hipBLASLt |
#
# rocBLAS [can pass a product to hipBLASLt][blas], and `HIPBLASLT_LOG_MASK=32` logs [each call][log] to it.
#
# [aot]: https://github.com/ROCm/TheRock/issues/2229
# [blas]: https://rocm.docs.amd.com/projects/rocBLAS/en/docs-7.0.1/conceptual/rocblas-design-notes.html
# [log]: https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/reference/env-variables.html

# %% [markdown]
# ## From graph to graph
#
# This trace has many steps: vLLM with an FP8 model, recorded with rpd (lesson 06). Between two graphs, the device
# chooses the token and copies it to the host. Then it waits until the host has prepared the next step.

# %%
packed = proflab.recording("rpd-vllm-mytrace")
served = tidyprof.read(packed.path, origin=packed.origin)
graph_calls = served.events[served.events["name"] == "hipGraphLaunch"].sort_values("start_ns")
step_ns = graph_calls["start_ns"].diff().median()
show_text(
    f"A step takes {step_ns / 1e6:.2f} ms, so each request gets {1e9 / step_ns:.0f} tokens/s."
)

# %%
# 4 minutes: a decode step lasts from one `hipGraphLaunch` to the next. For what percentage of it does the graph run on
# the device? Divide the median of the graphs' summed durations by the median step, `step_ns`.
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
# | limit | fix |
# | --- | --- |
# | the host's launches | a graph: [`torch.cuda.graph`][graph], or [compile][compile] with `mode="reduce-overhead"` |
# | the host, between two steps | a server that prepares the next step while this one runs |
# | the bytes of the weights | a model in FP8 or FP4, which takes 2 to 4 times less memory ([AMD's guide to vLLM][guide]) |
# | few requests per reading of the weights | a larger batch, as long as users accept the time per token |
# | the bytes of the cache | shorter texts, or a model with fewer KV heads |
# | a single request | [speculative decoding][spec]: a small model proposes tokens, and the large one checks several |
# | single launches, on AMD | `HIP_FORCE_DEV_KERNARG=1`, by the same guide; AMD's images for vLLM set it |
#
# We haven't measured any of these rows, so time your own program before and after.
#
# [graph]: https://docs.pytorch.org/docs/stable/generated/torch.cuda.graphs.graph.html
# [compile]: https://docs.pytorch.org/docs/stable/generated/torch.compile.html
# [guide]: https://rocm.docs.amd.com/en/docs-7.2.0/how-to/rocm-for-ai/inference-optimization/vllm-optimization.html
# [spec]: https://docs.redhat.com/en/documentation/red_hat_ai_inference_server/3.4/html/speculative_decoding/about-speculators_speculative-decoding

# %% [markdown]
# To record a graph, copy `recorded` from the snippet below.
#
# - A graph stores kernels and the addresses of their data. For the next token, write it into the same tensors with
#   `copy_`, then replay.
# - No operation in the graph may wait for the device, or let the host decide by a value.
# - On AMD, warm up in the stream that you record in. PyTorch creates a handle of hipBLASLt for each stream on first
#   use, which [must not happen during the recording][handle] ([an error or a hang][warm]).
# - Two streams don't wait for each other automatically, so call [`wait_stream`][streams] in both directions.
#
# [handle]: https://github.com/pytorch/pytorch/pull/187745
# [warm]: https://github.com/ROCm/pytorch/pull/3354
# [streams]: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs

# %% [markdown]
# ## Decide
#
# Compare three times in this order: bound, kernels, step. The larger ratio of two neighbors shows where to look.
#
# | larger ratio | look at |
# | --- | --- |
# | kernels / bound | the kernels (lessons 04, 05): compare them with their roofs, and fuse the small ones |
# | step / kernels | the waiting: use graphs, or prepare the next step earlier |
# | neither above 1.25 | the bound itself: fewer bytes, or more tokens per byte |

# %%
span_ms = ((nodes["start_ns"] + nodes["duration_ns"]).max() - nodes["start_ns"].min()) / 1e6
show_text(
    f"SGLang, 32 requests: kernels / bound = {kernels_s / bound_s:.2f}, "
    f"step / kernels = {span_ms / 1e3 / kernels_s:.2f}"
)
proflab.reveal("12.a", float(f"{1 / alone_s:.3g}"), origin=MODELED)
proflab.reveal("12.b", float(f"{prefill / alone:.3g}"), origin=here)

# %%
logged = proflab.recording("smi-mi300x-vllm-llama31-bs1")
path = next(path for path in logged.files.values() if path.suffix == ".json")
token_s = json.loads(path.read_text())["avg_latency"] / 128  # 128 new tokens, prefill included
show_text(
    f"Llama-3.1-8B, one request ({logged.origin}): {1 / token_s:.0f} tokens/s, which is "
    f"{100 * alone_s / token_s:.0f}% of the bound. No trace shows where the rest goes."
)

# %% [markdown]
# ## Three takeaways
#
# - The bytes of weights and cache limit decode, so compute the bound from the model's shape before you measure.
# - A graph has one launch for all kernels, so measure its idle time within the graph or from graph to graph.
# - Compare bound, kernels and step: the larger ratio shows whether to fix the kernels or the waiting.

# %% [markdown] tags=["given"]
# ## What this view can't show
#
# - The bound counts each byte once. Counters show what was really read (lesson 05).
# - A model on several GPUs adds collectives to each step (lesson 07).
# - TTFT includes the wait in the queue. In queueing theory, a server that answers requests one by one, at random
#   times, makes each wait for `load / (2 * (1 - load))` answers on average: 4.5 at 90% load. Measure that at the
#   server.
#
# Known issues: [attention falls back to the math
# path](../docs/known-issues.md#attention-falls-back-to-the-math-path),
# [AITER has no tuned configuration](../docs/known-issues.md#aiter-has-no-tuned-configuration-for-a-shape).

# %% [markdown]
# ## At work, without this course
#
# This script computes the bound from a model's `config.json`. It also times prefill and decode of your module, on a
# GPU also as a graph. Replace the part between the dashed lines:
#
# {snippet 12_decode_bound.py}

# %% [markdown]
# Next question: is it slower after the upgrade?
