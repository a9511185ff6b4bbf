# %% [markdown]
# # Prefill, decode and graphs: how fast can a model generate tokens?
#
# How fast can a language model generate text on your GPU, at best? To find out before you run anything, you need only
# the bytes that a step reads, the memory bandwidth and the peak arithmetic rate. Then you read server
# traces in which a single call launches nearly all kernels.
#
# After this lesson, you can:
#
# - compute the highest token rate that a GPU allows for a given model, and explain how the batch size changes it;
# - measure a model's prefill and decode times, and compare them with that bound;
# - read the trace of a HIP graph without being misled by its "idle" time and its launch statistics.
#
# **Before you start:** complete lessons 00, 02 and 05. You don't need a GPU.

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
# This lesson trains nothing
_ = torch.set_grad_enabled(False)
# On a busy machine, several threads wait for each other
torch.set_num_threads(1)

# %%
lesson.recall()

# %% [markdown]
# ## The picture to keep in mind
#
# A *token* is a word or a part of a word. A language model reads tokens and predicts the next one:
#
# {drawing 12_cache}
#
# - *Attention* compares the new token with all earlier tokens. Each layer therefore stores two rows of numbers
#   per token, a *key* and a *value*, in the *KV cache*. Without it, the model would have to process the whole text
#   again for each new token.
# - In most models, several attention heads (*query heads*) share one set of keys and values (a *KV head*).
#
# | | prefill | decode |
# | --- | --- | --- |
# | what happens | the model reads the whole prompt at once | each step generates one new token per request |
# | what limits it | arithmetic, because each weight is used for many tokens | memory bandwidth, because each weight is used for only one token per request |
# | what the user notices | *time to first token* ([TTFT][ttft]) | *time per output token* ([TPOT][tpot]) |
#
# [ttft]: https://docs.anyscale.com/llm/serving/benchmarking/metrics
# [tpot]: https://awsdocs-neuron.readthedocs-hosted.com/en/v2.26.0/libraries/nxd-inference/developer_guides/llm-inference-benchmarking-guide.html
#
# ## Predict
#
# What is the highest token rate that an MI300X can reach for one request to a model with eight billion 16-bit weights?
# Also predict the prefill time of a model on your machine.

# %%
# solution
pace_guess, prefill_guess = 200, 100
# end solution
proflab.predict(
    "12.a", pace_guess, unit="tokens/s", what="the bound of one request (8B, MI300X)"
)
proflab.predict(
    "12.b", prefill_guess, unit="times", what="a 128-token prefill, in decode steps"
)

# %% [markdown]
# ## Compute the bound first
#
# Each decode step reads every weight once, as well as the KV cache of each request. A step therefore takes at least
# `bytes / bandwidth`. The shapes of these two public models come from their `config.json` files. Each layer has four
# attention matrices and three matrices of width `inner`. The last matrix computes a score for each of the `words` in
# the vocabulary.

# %%
# Llama-3.1-8B
LLAMA = {
    "layers": 32,
    "width": 4096,
    "heads": 32,
    "kv_heads": 8,
    "head_size": 128,
    "inner": 14336,
    "words": 128256,
}
# Qwen3-8B
QWEN = LLAMA | {"layers": 36, "inner": 12288, "words": 151936}


# %%
def weights(model):
    attention = (
        model["width"] * model["head_size"] * 2 * (model["heads"] + model["kv_heads"])
    )
    layer = attention + 3 * model["width"] * model["inner"]
    return model["layers"] * layer + model["words"] * model["width"]


# A key and a value, 16 bits each
def cache_bytes(model, tokens):
    return model["layers"] * 2 * model["kv_heads"] * model["head_size"] * 2 * tokens


# %%
# FLOP/s and bytes per second of an MI300X
PEAK, BANDWIDTH = 1307.4e12, 5324.8e9
SOURCE = "https://rocm.docs.amd.com/en/latest/reference/gpu-arch/mi300.html"
MODELED = f"modeled: bytes and operations computed, peaks published by AMD ({SOURCE})"
alone_s = (2 * weights(LLAMA) + cache_bytes(LLAMA, 256)) / BANDWIDTH
show_text(
    f"Llama-3.1-8B reads {2 * weights(LLAMA) / 1e9:.1f} GB of weights per step, plus "
    f"{cache_bytes(LLAMA, 1) / 1e3:.0f} kB of cache per token of text. A single "
    f"request with 256 tokens can't exceed {1 / alone_s:.0f} tokens/s."
)

# %% [markdown]
# Each weight takes up two bytes and needs two operations per token. Therefore, the *intensity* (operations per byte,
# lesson 05) equals the number of tokens that the GPU processes each time it reads the weights, which is the prompt
# length in prefill and the number of requests in decode. Above the *knee* of the roofline, which is the peak arithmetic
# rate divided by the bandwidth, arithmetic is the limit.


# %%
# Seconds for the bytes, seconds for the arithmetic
def decode_s(model, batch, context):
    moved = 2 * weights(model) + batch * cache_bytes(model, context)
    return moved / BANDWIDTH, 2 * weights(model) * batch / PEAK


cases = [(batch, context) for context in (128, 4096) for batch in (1, 32, 1024)]
bounds = pd.DataFrame([(*case, *decode_s(LLAMA, *case)) for case in cases])
bounds.columns = ["batch", "context", "bytes_s", "arithmetic_s"]
step_s = bounds[["bytes_s", "arithmetic_s"]].max(axis=1)
bounds["tokens_per_second"] = bounds["batch"] / step_s
bounds["for_each_request"] = 1 / step_s
bounds["limit"] = np.where(
    bounds["bytes_s"] > bounds["arithmetic_s"], "memory", "arithmetic"
)
columns = "context batch limit tokens_per_second for_each_request"
show_table(
    bounds, columns, "Upper bounds for Llama-3.1-8B on an MI300X", origin=MODELED
)

# %%
longest = 2 * weights(LLAMA) / PEAK * BANDWIDTH / cache_bytes(LLAMA, 1)
show_text(
    f"The knee is at {PEAK / BANDWIDTH:.0f} operations per byte. Arithmetic can limit "
    f"decode only if the texts are shorter than {longest:.0f} tokens."
)

# %% [markdown]
# In prefill, arithmetic becomes the limit as soon as the number of tokens in the prompt exceeds the knee. In decode, a
# large batch reaches this limit only if the texts are short. With longer texts, reading the cache of one more request
# takes longer than computing its next token.

# %%
# 4 minutes: what is the upper bound on the decode rate of an MI300X for `asked`, in tokens per second over all
# requests? `model` has the same keys as LLAMA. Each number takes up 16 bits, and each of the `batch` texts has
# `context` tokens.
asked = {
    "model": QWEN,
    "batch": 16,
    "context": 8192,
    "bandwidth": BANDWIDTH,
    "peak": PEAK,
}
q = exercise("12.1", asked)
# solution
row_bytes = 2 * QWEN["kv_heads"] * QWEN["head_size"] * 2
moved = (
    2 * weights(QWEN) + asked["batch"] * asked["context"] * QWEN["layers"] * row_bytes
)
answer = asked["batch"] * asked["bandwidth"] / moved
# end solution
q.check(answer)

# %% [markdown]
# ## Capture: your own language model
#
# [This small model](../lessons/12_language_model/tiny_model.py) has random weights, but its shapes and its speed are
# real. Its KV cache has its full length from the start, so no tensor changes its shape, as graphs require.

# %%
has_gpu = torch.accelerator.is_available()
device = torch.accelerator.current_accelerator() if has_gpu else torch.device("cpu")
model, caches = TinyModel().to(device), empty_caches(1, device)
text = torch.randint(WORDS, (1, 129), device=device)
places = torch.arange(129, device=device)
whole = model(text, places, empty_caches(1, device))
# Prefill
model(text[:, :128], places[:128], caches)
decoded = model(text[:, 128:], places[128:], caches)
show_text(
    "Scores from a decode step and from a full pass differ by at most "
    f"{(decoded - whole).abs().max():.1g}."
)

# %% [markdown]
# ## First look
#
# First, measure the two roofs of *your* machine. Summing a large tensor shows the memory bandwidth, and multiplying
# large matrices shows the arithmetic rate. The loop alternates between all measurements. If the quartiles of a
# measurement are far apart, don't trust its times.

# %%
# On a GPU, exceed the size of its caches: an MI300X has 256 MB of Infinity Cache.
large = torch.ones(2 ** (28 if has_gpu else 25), device=device)
square = torch.ones(1024, 1024, device=device)
many = torch.randint(WORDS, (32, 1), device=device)
many_caches = empty_caches(32, device)
works = {
    "sum": large.sum,
    "product": lambda: square @ square,
    "prefill, 128 tokens": lambda: model(text[:, :128], places[:128], caches),
    "decode, 1 request": lambda: model(text[:, 128:], places[128:], caches),
    "decode, 32 requests": lambda: model(many, places[128:], many_caches),
}

# %%
wait, taken = torch.accelerator.synchronize if has_gpu else lambda: None, []
for _ in range(9):
    for work in works.values():
        wait()
        begin = time.perf_counter()
        work()
        wait()
        taken.append(1e3 * (time.perf_counter() - begin))

# %%
# The first two warm up
timings = pd.DataFrame(np.reshape(taken, (9, -1)), columns=works)[2:]
times = timings.quantile([0.25, 0.5, 0.75]).T.set_axis(
    ["quarter", "median", "three_quarters"], axis=1
)
scatter = (times["three_quarters"] >= 1.5 * times["quarter"]).any()
here = Origin(
    "measured", f"this machine{', unreliable: times vary too much' if scatter else ''}"
)
# Bytes per second
own_bandwidth = large.nbytes / times["median"]["sum"] * 1e3
# FLOP/s
own_rate = 2 * 1024**3 / times["median"]["product"] * 1e3

# %%
# A step reads only one row per token from the embedding table.
own_weights = (
    sum(one.numel() for one in model.parameters()) - model.words.weight.numel()
)
steps, tokens = times[2:].rename_axis("what").reset_index(), np.array([128, 1, 32])
moved = 4 * own_weights + np.array([caches.nbytes, caches.nbytes, many_caches.nbytes])
steps["bound"] = 1e3 * np.maximum(
    moved / own_bandwidth, 2 * own_weights * tokens / own_rate
)
steps["of_the_bound_percent"] = 100 * steps["bound"] / steps["median"]
columns = "what bound quarter median three_quarters of_the_bound_percent"
show_table(steps, columns, "Times of the small model, in ms", origin=here)
prefill, alone, together = steps["median"]
show_text(
    f"Roofs: {own_bandwidth / 1e9:.1f} GB/s and {own_rate / 1e9:.0f} GFLOP/s. Prefill "
    f"of 128 tokens takes as long as {prefill / alone:.1f} decode steps. A decode step "
    f"for 32 requests takes {together / alone:.1f} times as long as a decode step for "
    "one request."
)

# %% [markdown]
# If a bound exceeds the median time, the measured roof is too low. On a GPU, a step of this small model takes far
# longer than its bound, because the host has to launch each small operator. Graphs solve this problem.
#
# ## What a HIP graph does to a trace
#
# A *HIP graph* is a series of kernel launches that is captured once and then started with a single call. Inference
# servers use graphs for decode. Each of these two traces from an MI300X shows one decode step for a batch of 32. SGLang
# serves Qwen3-8B, and vLLM serves a *mixture-of-experts* model, which uses only some of its weights for each token.

# %%
names = {
    "SGLang": "torch-mi300x-sglang-decode",
    "vLLM": "torch-mi300x-vllm-decode-hipgraph",
}
found = {server: proflab.recording(name) for server, name in names.items()}
runs = {
    server: tidyprof.read(one.path, origin=one.origin) for server, one in found.items()
}
sglang = runs["SGLang"]


# The call, and the device events that it started
def graph_of(run):
    call = run.events[run.events["name"] == "hipGraphLaunch"].iloc[0]
    return call, run.device_events[
        run.device_events["correlation_id"] == call["correlation_id"]
    ]


# %%
for server, run in runs.items():
    call, nodes = graph_of(run)
    single = run.events.loc[
        run.events["name"] == "hipLaunchKernel", "duration_ns"
    ].median()
    show_text(
        f"{server}: one call of {call['duration_ns'] / 1e3:,.0f} µs starts "
        f"{len(nodes)} kernels, which is {call['duration_ns'] / len(nodes) / 1e3:.2f} "
        f"µs per kernel. A single launch takes {single / 1e3:.2f} µs. Kernels with a "
        f"recorded operator: {nodes['operator'].notna().sum()} ({run.origin})."
    )

# %%
call, nodes = graph_of(sglang)
begin = int(call["start_ns"])
window = {"start_ns": begin - 300_000, "end_ns": begin + 4 * int(call["duration_ns"])}
figure = plots.timeline(sglang, **window, title="After one call, only the GPU works")
show_figure(figure, (f"starts {len(nodes)} kernels", (1.88, 1.9), (0.5, 0.7)))

# %% [markdown]
# In a graph, launching a kernel takes the host only a fraction of the usual time, and no Python code or operators run.
# All kernels in a graph share one launch, so launch statistics count that launch hundreds of times, with delays that
# grow from kernel to kernel. To count each call once, use `drop_duplicates("correlation_id")`. If a `rocprofv3` CSV
# file doesn't list the calls, kernels that share a `Correlation_Id` belong to the same graph.
#
# > **Warning:** Before ROCm 7.14, `hipGraphLaunch` is [much
# > slower](../docs/known-issues.md#hipgraphlaunch-is-slow-with-rocprofiler-sdk) while PyTorch records a trace through
# > rocprofiler-sdk.
#
# The trace doesn't link a graph's kernels to operators, shapes or source lines. There are three ways to find out where
# they come from:
#
# - Profile a step without graphs, and compare the kernel names.
# - Use AMD's TraceLens to [merge][merge] the trace of the graph capture into the trace of the replay.
# - Use `rocprofv3 --hip-graph-trace` (ROCm 10.0 or newer), which stores a `graph_exec_id` in its database. We haven't
#   tested this option.
#
# [merge]: https://rocm.docs.amd.com/projects/tracelens/en/latest/how-to/generate-perf-report-pytorch-inference.html
#
# ## Trap: the GPU seems idle most of the time
#
# Without step markers, a tool measures from the first event in the file to the last. What share of that time is the
# device idle? Before you blame the host for a gap, check how long the next work had been queued, because an idle device
# starts queued work within microseconds.

# %%
for server, run in runs.items():
    ends = run.events["start_ns"] + run.events["duration_ns"]
    whole_ns = ends.max() - run.events["start_ns"].min()
    idle_percent = 100 * (1 - tidyprof.busy(run)["busy_ns"].iloc[0] / whole_ns)
    # Of each stream
    first = run.device_events.sort_values("start_ns").drop_duplicates("stream")
    waited_ns = (first["start_ns"] - first["launch_ns"]).max()
    show_text(
        f"{server}: the device is idle for {idle_percent:.0f}% of {whole_ns / 1e6:.1f} "
        f"ms. In one stream, the first work started {waited_ns / 1e6:.1f} ms after its "
        "launch."
    )

# %% [markdown]
# The work after the gap waited for milliseconds, so something else was ahead of it in the queue. Each file contains
# only the work that *one step launched*. It doesn't show what the device did for the previous step, or whether it
# worked at all. `gaps` and `tidyprof triage` label this time `earlier work`, and `step_budget` counts it in `other_ns`.
#
# To avoid this trap, choose a window that starts and ends with the device's own work, such as the graph, or trace
# several steps and measure from one graph to the next.

# %%
# 3 minutes: consider the time from the start of the first kernel to the end of the last kernel in SGLang's graph. For
# what percentage of this time is the device idle? `graph_of(sglang)` returns the call and the graph's device events,
# which are all in one stream.
q = exercise("12.2", sglang)
# solution
of_graph = graph_of(sglang)[1]
over_at = of_graph["start_ns"] + of_graph["duration_ns"]
answer = 100 * (
    1 - of_graph["duration_ns"].sum() / (over_at.max() - of_graph["start_ns"].min())
)
# end solution
q.check(answer)

# %% [markdown]
# ## Compare a trace with the bound
#
# How close is SGLang's decode step to its bound? In the name of the range around the step, the number after `sk` is the
# number of tokens in the cache, summed over all 32 requests.

# %%
ranges = sglang.events.loc[sglang.events["kind"] == "annotation", "name"].astype(str)
in_cache = int(ranges.str.extract(r"generation_32\(sq32sk(\d+)")[0].dropna().iloc[0])
kinds = {"GEMM": "weights (GEMM)", "attention": "cache (attention)"}
read = {
    "weights (GEMM)": 2 * weights(QWEN),
    "cache (attention)": cache_bytes(QWEN, in_cache),
}
category = [tidyprof.category(str(name), "kernel") for name in nodes["name"]]
part = pd.Series(category, nodes.index, name="part").map(kinds).fillna("the rest")
parts = (
    nodes.groupby(part)["duration_ns"]
    .agg(kernels="size", duration_ns="sum")
    .reset_index()
)
parts["gigabytes"] = parts["part"].map(read).fillna(0) / 1e9
parts["bound_ns"] = 1e18 * parts["gigabytes"] / BANDWIDTH
parts["of_the_bound_percent"] = 100 * parts["bound_ns"] / parts["duration_ns"]
columns = "part kernels duration_ms gigabytes bound_ms of_the_bound_percent"
show_table(
    parts, columns, "Kernels in SGLang's graph, by what they read", origin=sglang.origin
)

# %%
graph = tidyprof.Profile(nodes, meta=sglang.meta)
show_figure(
    plots.top_kernels(tidyprof.kernels(graph), n=6, title="Kernels in SGLang's graph")
)
kernels_s, bound_s = parts["duration_ns"].sum() / 1e9, parts["bound_ns"].sum() / 1e9
show_text(
    f"The bound for the step is {1e3 * bound_s:.2f} ms, but its kernels take "
    f"{1e3 * kernels_s:.2f} ms, so they reach {100 * bound_s / kernels_s:.0f}% of the "
    f"possible speed. The shortest kernel takes {nodes['duration_ns'].min() / 1e3:.1f} "
    "µs."
)

# %% [markdown]
# Each part of the step needs a different fix:
#
# | part | fix |
# | --- | --- |
# | weights | faster GEMM kernels, or weights in fewer bits |
# | cache | shorter texts, or a smaller cache per token |
# | the rest | fewer kernels through fusion (lesson 10), because even a tiny kernel takes a minimum time |
#
# A kernel's name shows which library it comes from, and which path attention takes:
#
# | name contains | library or path |
# | --- | --- |
# | `attn_fwd` | [AOTriton][aot], PyTorch's fused attention kernel on AMD GPUs |
# | `ck_tile` and `Fmha` | Composable Kernel |
# | `aiter` | AITER |
# | `paged_attention` | vLLM (SGLang also uses its kernels) |
# | `softmax` over all pairs of tokens, between two matrix products | the slow *math* path |
# | `Cijk_` | Tensile, which generates the matrix products for rocBLAS and hipBLASLt |
#
# rocBLAS [can pass matrix products to hipBLASLt][blas]. `HIPBLASLT_LOG_MASK=32` logs [each hipBLASLt call][log].
#
# [aot]: https://github.com/ROCm/TheRock/issues/2229
# [blas]: https://rocm.docs.amd.com/projects/rocBLAS/en/docs-7.0.1/conceptual/rocblas-design-notes.html
# [log]: https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/reference/env-variables.html

# %% [markdown]
# ## Measure from graph to graph
#
# This rpd trace (lesson 06) shows many decode steps of vLLM with an FP8 model. Between
# two graphs, the device selects the next token and copies it to the host. Then the device waits until the host has
# prepared the next step.

# %%
packed = proflab.recording("rpd-vllm-mytrace")
served = tidyprof.read(packed.path, origin=packed.origin)
graph_calls = served.events[served.events["name"] == "hipGraphLaunch"].sort_values(
    "start_ns"
)
step_ns = graph_calls["start_ns"].diff().median()
show_text(
    f"A step takes {step_ns / 1e6:.2f} ms, so each request receives "
    f"{1e9 / step_ns:.0f} tokens/s."
)

# %%
# 4 minutes: a decode step lasts from one `hipGraphLaunch` call to the next. For what percentage of a step is the device
# running the graph? For each graph, add up the durations of its device events. Then divide the median of these sums by
# the median step time, `step_ns`.
q = exercise("12.3", served)
# solution
calls = graph_calls["correlation_id"]
of_graphs = served.device_events[served.device_events["correlation_id"].isin(calls)]
answer = (
    100 * of_graphs.groupby("correlation_id")["duration_ns"].sum().median() / step_ns
)
# end solution
q.check(answer)

# %% [markdown] tags=["given"]
# ## What to do
#
# | what limits decode | fix |
# | --- | --- |
# | kernel launches on the host | a graph: [`torch.cuda.graph`][graph], or [`torch.compile`][compile] with `mode="reduce-overhead"` |
# | host work between two steps | a server that prepares the next step during the current one |
# | reading the weights | a model in FP8 or FP4, which needs a half or a quarter of the memory ([AMD's vLLM guide][guide]) |
# | too few requests per step | a larger batch, as long as users accept the time per token |
# | reading the KV cache | shorter texts, or a model with fewer KV heads |
# | a single request | [speculative decoding][spec]: a small model proposes several tokens, and the large one checks them |
# | individual launches on AMD GPUs | `HIP_FORCE_DEV_KERNARG=1`, as described in the same guide (set in AMD's vLLM images) |
#
# We haven't measured these fixes.
#
# [graph]: https://docs.pytorch.org/docs/stable/generated/torch.cuda.graphs.graph.html
# [compile]: https://docs.pytorch.org/docs/stable/generated/torch.compile.html
# [guide]: https://rocm.docs.amd.com/en/docs-7.2.0/how-to/rocm-for-ai/inference-optimization/vllm-optimization.html
# [spec]: https://docs.redhat.com/en/documentation/red_hat_ai_inference_server/3.4/html/speculative_decoding/about-speculators_speculative-decoding

# %% [markdown]
# To capture a graph, copy `recorded` from the snippet below.
#
# - A graph stores kernels and the addresses of their data. For the next token, write the new input into the same
#   tensors with `copy_`, and then replay the graph.
# - No operation in the graph may wait for the device or let the host make a decision based on a computed value.
# - On AMD GPUs, warm up in the stream that you use for the capture. PyTorch creates a hipBLASLt handle for each stream
#   on first use, and doing so [during the capture][handle] causes [an error or a hang][warm].
# - Streams don't wait for each other automatically, so call [`wait_stream`][streams] in both directions.
#
# [handle]: https://github.com/pytorch/pytorch/pull/187745
# [warm]: https://github.com/ROCm/pytorch/pull/3354
# [streams]: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs

# %% [markdown]
# ## Decide
#
# The larger of these two ratios shows where to look:
#
# | larger ratio | where to look |
# | --- | --- |
# | kernel time / bound | the kernels (lessons 04 and 05): compare them with their roofs, and fuse the small ones |
# | step time / kernel time | the waiting time: use graphs, or prepare the next step earlier |
# | neither (both are at most 1.25) | the bound itself: read fewer bytes, or process more tokens per byte |

# %%
span_ms = (
    (nodes["start_ns"] + nodes["duration_ns"]).max() - nodes["start_ns"].min()
) / 1e6
show_text(
    f"SGLang, 32 requests: kernel time / bound = {kernels_s / bound_s:.2f}, graph time "
    f"/ kernel time = {span_ms / 1e3 / kernels_s:.2f} (this trace has one graph)"
)
proflab.reveal("12.a", float(f"{1 / alone_s:.3g}"), origin=MODELED)
proflab.reveal("12.b", float(f"{prefill / alone:.3g}"), origin=here)

# %%
logged = proflab.recording("smi-mi300x-vllm-llama31-bs1")
path = next(path for path in logged.files.values() if path.suffix == ".json")
# 128 new tokens, prefill included
token_s = json.loads(path.read_text())["avg_latency"] / 128
show_text(
    f"Llama-3.1-8B, one request ({logged.origin}): {1 / token_s:.0f} tokens/s, which "
    f"is {100 * alone_s / token_s:.0f}% of the bound. This log doesn't show where the "
    "rest goes."
)

# %% [markdown]
# ## Three takeaways
#
# - Decode usually spends its time reading the weights and the KV cache, so compute that bound before you measure.
# - One call launches all kernels in a graph, so measure idle time within a graph or from one graph to the next.
# - Compare the bound, the kernel time and the step time to decide whether to fix the kernels or the waiting time.

# %% [markdown] tags=["given"]
# ## What this view can't show
#
# - The bound assumes that each byte is read once. Hardware counters show how many bytes were really read (lesson 05).
# - A model that is split across several GPUs adds collectives to each step (lesson 07).
# - TTFT includes a request's waiting time in the server's queue. If requests arrive at random and each answer takes the
#   same time, a request waits on average for `load / (2 * (1 - load))` answers: 4.5 at 90% load.
#
# Known issues: [attention falls back to the math
# path](../docs/known-issues.md#attention-falls-back-to-the-math-path),
# [AITER has no tuned configuration](../docs/known-issues.md#aiter-has-no-tuned-configuration-for-a-shape).

# %% [markdown]
# ## At work, without this course
#
# This script computes the bound from a model's `config.json`. It also times prefill and decode of your module and,
# on a GPU, decode as a graph. Replace the code between the dashed lines:
#
# {snippet 12_decode_bound.py}

# %% [markdown]
# Next question: is it slower after the upgrade?
