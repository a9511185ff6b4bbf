"""Compute a model's maximum decode speed from its config.json, or time prefill and
decode.

    # TB/s and TFLOP/s, from the data sheet
    python 12_decode_bound.py config.json --bandwidth 5.3 --peak 1307
    python 12_decode_bound.py config.json --bandwidth 5.3 --peak 1307 --batch 32 \
        --context 4096
    # time the module between the dashed lines
    python 12_decode_bound.py

Download config.json from a model page on the Hugging Face Hub. The option --bytes sets
the size of one weight, and --cache-bytes sets the size of one number in the cache. The
result applies to a single GPU. The model must use all weights for each token, and each
layer must have three matrices after attention. The script rejects mixture-of-experts
models.

On a GPU, the script also captures decode as a graph and times the graph. The tensor
shapes in decode must not change, and decode must not wait for the device. The script
needs PyTorch 2.6 or newer.
"""

import argparse
import json
import statistics
import time

import torch

has_gpu = torch.accelerator.is_available()
device = torch.accelerator.current_accelerator() if has_gpu else torch.device("cpu")

# ------------------------------------------------------------------------------
# Your model, with prefill() and decode()
# In the prompt
TOKENS = 128
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).to(device)
prompt = torch.randn(TOKENS, 1024, device=device)
one_token = torch.randn(1, 1024, device=device)


def prefill():
    return model(prompt)


def decode():
    return model(one_token)


# ------------------------------------------------------------------------------


def sizes(config: dict) -> tuple[int, int]:
    """Return the number of weights that a decode step reads, and the count of cached
    numbers per token.
    """
    experts = [
        key
        for key, value in config.items()
        if "expert" in key and isinstance(value, int) and value > 1
    ]
    needed = {
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "intermediate_size",
        "vocab_size",
    }
    if experts or not needed <= {*config}:
        raise SystemExit(
            "The script can't compute a limit for this config: "
            f"{experts[0] if experts else sorted(needed - {*config})}"
        )
    layers, width, heads = (
        config["num_hidden_layers"],
        config["hidden_size"],
        config["num_attention_heads"],
    )
    kv_heads = config.get("num_key_value_heads") or heads
    head_size = config.get("head_dim") or width // heads
    # Query and output, key and value
    attention = 2 * width * head_size * (heads + kv_heads)
    matrices = layers * (attention + 3 * width * config["intermediate_size"])
    return matrices + width * config["vocab_size"], 2 * layers * kv_heads * head_size


def print_bound(options: argparse.Namespace) -> None:
    with open(options.config, encoding="utf-8") as file:
        weights, in_cache = sizes(json.load(file))
    bandwidth, peak = 1e12 * options.bandwidth, 1e12 * options.peak
    weight_bytes = options.bytes * weights
    cache_bytes = options.cache_bytes * in_cache * options.context
    moving = (weight_bytes + options.batch * cache_bytes) / bandwidth
    computing = 2 * weights * options.batch / peak
    step = max(moving, computing)
    print(
        f"weights {weight_bytes / 1e9:.2f} GB, cache "
        f"{options.cache_bytes * in_cache / 1e3:.1f} kB per token"
    )
    # Two FLOP for each weight and token
    knee = peak / bandwidth
    print(
        f"knee at {knee:.0f} FLOP per byte: memory also limits prefill below "
        f"{knee * options.bytes / 2:.0f} tokens"
    )
    limit = "memory" if moving > computing else "arithmetic"
    print(
        f"batch {options.batch}, {options.context} tokens each: a step takes at least "
        f"{1e3 * step:.3f} ms ({limit})"
    )
    print(
        f"at most {options.batch / step:,.1f} tokens/s in total, {1 / step:,.1f} per "
        "request"
    )


def milliseconds(work) -> list[float]:
    """Return the quartiles of 20 calls after 3 warmup calls, in milliseconds."""
    times = []
    for _ in range(23):
        if has_gpu:
            torch.accelerator.synchronize()
        begin = time.perf_counter()
        with torch.no_grad():
            work()
        if has_gpu:
            torch.accelerator.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.quantiles(times[3:], n=4)


def recorded(work):
    """Return a graph of `work`.

    Before you replay the graph, copy new data into its tensors with `copy_`.
    """
    stream, before = torch.cuda.Stream(), torch.cuda.current_stream()
    # The graph's data may still be in transit
    stream.wait_stream(before)
    with torch.no_grad():
        with torch.cuda.stream(stream):
            # So that libraries create their handles in this stream
            for _ in range(3):
                work()
        before.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            work()
    return graph


def print_times() -> None:
    works = [("prefill", prefill, TOKENS), ("decode", decode, 1)]
    if torch.cuda.is_available():
        works.append(("graph", recorded(decode).replay, 1))
    for name, work, tokens in works:
        low, middle, high = milliseconds(work)
        print(
            f"{name:8} median {middle:.3f} ms, quartiles {low:.3f} to {high:.3f}, "
            f"{1e3 * tokens / middle:,.0f} tokens/s"
        )
    read = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    print(
        f"{name} reads {read / 1e9:.3f} GB of weights, {read / middle / 1e6:.1f} GB/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", nargs="?", help="read this config.json of a model")
    parser.add_argument(
        "--bandwidth", type=float, help="set the GPU's memory bandwidth in TB/s"
    )
    parser.add_argument(
        "--peak", type=float, help="set the matrix units' peak in TFLOP/s"
    )
    for name, default in {
        "batch": 1,
        "context": 1024,
        "bytes": 2,
        "cache-bytes": 2,
    }.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    options = parser.parse_args()
    if options.config and not (options.bandwidth and options.peak):
        parser.error("Pass --bandwidth and --peak from the GPU's data sheet.")
    print_bound(options) if options.config else print_times()


if __name__ == "__main__":
    main()
