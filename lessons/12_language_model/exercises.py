"""Exercises of lesson 12, how fast can a token be? On a model's shape, and on recordings of servers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number, Property

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

ITEM_BYTES = 2
"""Bytes of a number in 16 bits, as all models of this lesson store weights and cache."""


def weights(model: Mapping[str, int]) -> int:
    """Weights that a decode step reads: the layers' matrices and the last one, without the first table and norms."""
    attention = model["width"] * model["head_size"] * 2 * (model["heads"] + model["kv_heads"])
    return model["layers"] * (attention + 3 * model["width"] * model["inner"]) + model["words"] * model["width"]


def token_bytes(model: Mapping[str, int], heads: str = "kv_heads", rows: int = 2) -> int:
    """Bytes of cache for one token: `rows` rows (key and value) of `heads` heads in each layer."""
    return model["layers"] * rows * model[heads] * model["head_size"] * ITEM_BYTES


def most_tokens(asked: Mapping[str, Any], token: int, requests: int | None = None) -> float:
    """Tokens per second at most, for `token` bytes of cache a token; of one request where `requests` is 1."""
    moved = ITEM_BYTES * weights(asked["model"]) + asked["batch"] * asked["context"] * token
    return (requests or asked["batch"]) * asked["bandwidth"] / moved


def longest_text(asked: Mapping[str, Any], operations: int = 2) -> float:
    """Tokens of cache that take as long to read as one more token takes to compute."""
    computed_s = operations * weights(asked["model"]) / asked["peak"]
    return computed_s * asked["bandwidth"] / token_bytes(asked["model"])


def graph_events(profile: Profile) -> pd.DataFrame:
    """Device events that a `hipGraphLaunch` started. Raises ValueError if there is none."""
    calls = profile.events.loc[profile.events["name"] == "hipGraphLaunch", "correlation_id"]
    events = profile.device_events
    found = events[events["correlation_id"].isin(calls)]
    if not len(found):
        raise ValueError("no graph was launched in this recording")
    return found


def idle_percent(events: pd.DataFrame) -> float:
    """Idle share between the first and the last moment of events that don't overlap."""
    ends = events["start_ns"] + events["duration_ns"]
    return float(100 * (1 - events["duration_ns"].sum() / (ends.max() - events["start_ns"].min())))


def longest_gap_ns(events: pd.DataFrame) -> int:
    """The longest time between the end of one event and the start of the next, of events that don't overlap."""
    events = events.sort_values("start_ns")
    ends = events["start_ns"] + events["duration_ns"]
    return int((events["start_ns"].iloc[1:].to_numpy() - ends.iloc[:-1].to_numpy()).max())


def product_percent(data: tuple[Any, Any, Any], item_bytes: int = ITEM_BYTES) -> float:
    """Rate at which the last product reads its weights, in percent of the memory's peak."""
    last, kernel, gpu = data
    _, (width, words) = json.loads(last["input_shapes"])
    return 100 * item_bytes * width * words / kernel["duration_ns"] * 1e9 / gpu.memory_bandwidth


def arithmetic_percent(data: tuple[Any, Any, Any]) -> float:
    """Rate of the product's arithmetic in percent of the matrix units' peak."""
    last, kernel, gpu = data
    (rows, width), (_, words) = json.loads(last["input_shapes"])
    return 100 * 2 * rows * width * words / kernel["duration_ns"] * 1e9 / gpu.peak_flops["matrix bfloat16"]


def graph_share(profile: Profile, whole: str = "step") -> float:
    """Time in graphs in percent: of the median decode step, or of everything that ran on the device."""
    events, calls = graph_events(profile), profile.events[profile.events["name"] == "hipGraphLaunch"]
    if whole == "device":
        return float(100 * events["duration_ns"].sum() / profile.device_events["duration_ns"].sum())
    steps = calls["start_ns"].sort_values().diff().median()
    return float(100 * events.groupby("correlation_id")["duration_ns"].sum().median() / steps)


def one_launch(kernels: pd.DataFrame) -> float:
    """Share of the kernels, in percent, that the last graph started: the only one whose call is in the table."""
    return float(100 * kernels["Correlation_Id"].value_counts().iloc[0] / len(kernels))


def _summed_share(profile: Profile) -> float:
    """All graphs over all distances between two calls: one graph more than there are distances."""
    calls = profile.events.loc[profile.events["name"] == "hipGraphLaunch", "start_ns"]
    return float(100 * graph_events(profile)["duration_ns"].sum() / (calls.max() - calls.min()))


FUSED = {"AOTriton": r"^attn_fwd", "CK": r"ck_tile.*Fmha", "vLLM": r"paged_attention"}
"""Path of attention -> pattern of its kernels' names, as the lesson's table has them."""


def attention_path(kernels: pd.DataFrame) -> str:
    """The fused path that takes the most time in a table with `name` and `total_ns`, "math" if there is none."""
    names = kernels["name"].astype(str)
    spent = {path: kernels.loc[names.str.contains(pattern), "total_ns"].sum() for path, pattern in FUSED.items()}
    return max(spent, key=spent.get) if any(spent.values()) else "math"


def path_problem(answer: Any, data: Mapping[str, pd.DataFrame]) -> str | None:
    """What is wrong with a dictionary of paths, None if each table has the right one."""
    if not isinstance(answer, dict) or set(answer) != set(data):
        return f"A dictionary with these keys is asked: {', '.join(data)}."
    for name, kernels in data.items():
        right, names = attention_path(kernels), kernels["name"].astype(str)
        if answer[name] == right:
            continue
        if answer[name] not in {*FUSED, "math"}:
            return f"{name}: the answer is one of {', '.join(FUSED)} and math."
        if right == "math":
            return f"{name} has no fused kernel. What runs between the two products over all pairs?"
        if answer[name] == "math" or not names.str.contains(FUSED[answer[name]]).any():
            return f"{name}: no kernel's name says {answer[name]}. Look for `attn`, `attention` and `Fmha`."
        return f"{name} has kernels of {answer[name]} for decode, but others take more time: add up `total_ns`."
    return None


def _paths(data: Mapping[str, pd.DataFrame], **other: str) -> dict[str, str]:
    return {name: attention_path(kernels) for name, kernels in data.items()} | other


EXERCISES = (
    Exercise(
        id="12.1",
        answer=Number(lambda data: most_tokens(data, token_bytes(data["model"])), unit="tokens/s", relative=0.01),
        mistakes=(
            Mistake(
                lambda data: most_tokens(data, token_bytes(data["model"]), requests=1),
                "That is for each request. All of them together are asked.",
            ),
            Mistake(
                lambda data: most_tokens(data, 0),
                "You left out the cache: each request reads its own, in every layer.",
            ),
            Mistake(
                lambda data: most_tokens(data, token_bytes(data["model"], "heads")),
                "Query heads share keys and values: the cache has `kv_heads` of them.",
            ),
            Mistake(
                lambda data: most_tokens(data, token_bytes(data["model"], rows=1)),
                "There are two rows for each token in each layer: a key and a value.",
            ),
        ),
        hints=(
            "A step gives one token to each request. What does it read?",
            "The weights once, and for each request the cache of `context` tokens: `cache_bytes` has it for one text.",
            "`batch * bandwidth / (2 * weights(model) + batch * cache_bytes(model, context))`",
        ),
        insight=lambda data: (
            f"Weights alone would allow {most_tokens(data, 0):,.0f}. With such texts most of what is read is cache: "
            f"{data['batch'] * data['context'] * token_bytes(data['model']) / 1e9:.0f} GB beside "
            f"{ITEM_BYTES * weights(data['model']) / 1e9:.0f} GB of weights."
        ),
    ),
    Exercise(
        id="12.2",
        answer=Number(longest_text, unit="tokens", relative=0.01),
        mistakes=(
            Mistake(
                lambda data: longest_text(data, operations=1),
                "A weight takes two operations for each token: a multiplication and an addition.",
            ),
            Mistake(
                lambda data: data["peak"] / data["bandwidth"],
                "That is the knee: as many requests it takes where there is no cache at all.",
            ),
        ),
        hints=(
            "Compare what one more request adds: seconds of arithmetic, and seconds of reading its cache.",
            "The arithmetic: `2 * weights(model) / peak`. One token of cache: `cache_bytes(model, 1) / bandwidth`.",
            "The length at which both are equal is the first divided by the second.",
        ),
        insight=(
            "Longer texts keep decode limited by memory at any batch. In prefill the cache sets no such limit, but a "
            "prompt below the knee is limited by memory, too."
        ),
    ),
    Exercise(
        id="12.3",
        answer=Number(lambda data: idle_percent(graph_events(data)), unit="percent", relative=0.01),
        mistakes=(
            Mistake(
                lambda data: 100 / (100 / idle_percent(graph_events(data)) - 1),
                "You divided by the kernels' time. The whole is the time from the first moment to the last.",
            ),
            Mistake(
                lambda data: 100 * (1 - 1 / (1 - idle_percent(graph_events(data)) / 100)),
                "A share below nothing: you divided the window by the kernels' time. It is the other way round.",
            ),
            Mistake(
                lambda data: idle_percent(data.device_events),
                "You took all events of the file. Choose those that the graph started.",
            ),
        ),
        hints=(
            "The window is that of the graph's own events: from the first start to the last end.",
            "In one stream nothing overlaps, so durations may be added up.",
            '`1 - nodes["duration_ns"].sum() / (ends.max() - nodes["start_ns"].min())`, in percent.',
        ),
        insight=lambda data: (
            f"Nearly all of it is one gap of {longest_gap_ns(graph_events(data)) / 1e3:.0f} µs, while `hipGraphLaunch` "
            "still ran. Between the others there is hardly any time: no host is asked."
        ),
    ),
    Exercise(
        id="12.4",
        answer=Number(product_percent, unit="percent", relative=0.025),
        mistakes=(
            Mistake(
                lambda data: product_percent(data, item_bytes=4),
                "Four bytes for each weight would be more than the memory can deliver: read `input_types`.",
            ),
            Mistake(
                arithmetic_percent,
                "That is the share of the arithmetic's peak. The memory's is asked.",
            ),
        ),
        hints=(
            "The second shape of `input_shapes` is that of the weights.",
            "`json.loads(last['input_shapes'])` makes numbers of the text; bfloat16 has two bytes.",
            "`2 * width * words / seconds / BANDWIDTH`, in percent; `scores['duration_ns'] / 1e9` are the seconds.",
        ),
        insight=lambda data: (
            f"And {arithmetic_percent(data):.0f} % of the arithmetic's peak, so memory is the limit. One large product "
            "comes nearer to it than the many small ones of the layers."
        ),
    ),
    Exercise(
        id="12.5",
        answer=Number(graph_share, unit="percent", relative=0.01),
        mistakes=(
            Mistake(
                lambda data: graph_share(data, "device"),
                "That is the graphs' share of all device time, prefill included. A decode step is the whole here.",
            ),
            Mistake(
                lambda data: 100 - graph_share(data),
                "That is what is left of a step.",
            ),
            Mistake(
                _summed_share,
                "You added up all graphs, and divided by the time from the first call to the last: that is one step "
                "less than there are graphs. Take medians.",
            ),
        ),
        hints=(
            "Two medians: of the distance between two calls, and of the time in each graph.",
            "Distances: `start_ns` of the rows `hipGraphLaunch`, `.sort_values().diff().median()`.",
            'Of each graph: `served.device_events` with its correlation id, `.groupby("correlation_id")`, sum.',
        ),
        insight=(
            "What is outside of the graph counts in each token. The shorter a step, the larger is the host's share "
            "of it."
        ),
    ),
    Exercise(
        id="12.6",
        answer=Number(
            lambda data: 100 * data["Correlation_Id"].duplicated(keep=False).mean(), unit="percent", relative=0.005
        ),
        mistakes=(
            Mistake(
                one_launch,
                "That is the one graph whose call is in the table of calls. Others lost theirs when rows were dropped.",
            ),
            Mistake(
                lambda data: 100 * data["Correlation_Id"].duplicated().mean(),
                "You left out the first kernel of each graph: `keep=False` marks all.",
            ),
        ),
        hints=(
            "A launch has one correlation id. A graph's launch gives it to all its kernels.",
            "Which ids occur more than once? Mark all rows that have one of these.",
            '`kernels["Correlation_Id"].duplicated(keep=False)`',
        ),
        insight="A join of kernels with calls would have lost these rows, or called them kernels without a launch.",
    ),
    Exercise(
        id="12.7",
        answer=Property(path_problem, _paths),
        mistakes=(
            Mistake(lambda data: _paths(data, OWLv2="AOTriton"), "OWLv2 has no fused kernel"),
            Mistake(lambda data: _paths(data) | {"vLLM, FP8": "vLLM"}, "others take more time"),
            Mistake(lambda data: _paths(data, SGLang="CK"), "no kernel's name says CK"),
            Mistake(lambda data: _paths(data, SGLang="AITER"), "the answer is one of"),
            Mistake(lambda data: "math", "A dictionary with these keys"),
        ),
        hints=(
            "Look for the names of the lesson's table in each of the four, and add up `total_ns`.",
            '`table.loc[table["name"].astype(str).str.contains("Fmha"), "total_ns"].sum()`',
            "One has no fused kernel; one has two, for prefill and for decode.",
        ),
        insight="Names of kernels change with versions: look them up in your own trace before you rely on a pattern.",
    ),
)
