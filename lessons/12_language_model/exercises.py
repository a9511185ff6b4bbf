"""Exercises of lesson 12: bounds from a model's shape, and traces of servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

LLAMA = {"layers": 32, "inner": 14336, "words": 128256}
"""Values of Llama-3.1-8B that differ from those of Qwen3-8B."""


def weights(model: Mapping[str, int]) -> int:
    """Return the number of weights that a decode step reads: the matrices of the layers and the
    last one, without the first table and norms.
    """
    attention = model["width"] * model["head_size"] * 2 * (model["heads"] + model["kv_heads"])
    layer = attention + 3 * model["width"] * model["inner"]
    return model["layers"] * layer + model["words"] * model["width"]


def moved_bytes(
    asked: Mapping[str, Any],
    *,
    heads: str = "kv_heads",
    rows: int = 2,
    item: int = 2,
    caches: int | None = None,
    **shape: int,
) -> float:
    """Return the bytes that a step reads: weights of `item` bytes, and for each of `caches` texts
    `rows` rows of `heads` heads per token and layer. `shape` replaces values of the model.
    """
    model = {**asked["model"], **shape}
    token = model["layers"] * rows * model[heads] * model["head_size"] * 2
    texts = asked["batch"] if caches is None else caches
    return item * weights(model) + texts * asked["context"] * token


def pace(asked: Mapping[str, Any], **changed: Any) -> float:
    """Return the bound in tokens/s, all requests together."""
    return asked["batch"] * asked["bandwidth"] / moved_bytes(asked, **changed)


def arithmetic_pace(asked: Mapping[str, Any]) -> float:
    """Return the tokens/s that the arithmetic allows."""
    return asked["peak"] / (2 * weights(asked["model"]))


def graph_events(profile: Profile) -> pd.DataFrame:
    """Return the device events that a `hipGraphLaunch` started. Raises ValueError without one."""
    events = profile.device_events
    found = events[events["correlation_id"].isin(graph_calls(profile)["correlation_id"])]
    if not len(found):
        raise ValueError("no graph was launched in this trace")
    return found


def span_ns(events: pd.DataFrame) -> int:
    """Return the time from the first start to the last end."""
    return (events["start_ns"] + events["duration_ns"]).max() - events["start_ns"].min()


def idle_percent(events: pd.DataFrame) -> float:
    """Return the idle share between the first start and the last end of events that don't
    overlap.
    """
    return float(100 * (1 - events["duration_ns"].sum() / span_ns(events)))


def graph_calls(profile: Profile) -> pd.DataFrame:
    """Return the calls to `hipGraphLaunch` in order. A decode step lasts from one to the next."""
    return profile.events[profile.events["name"] == "hipGraphLaunch"].sort_values("start_ns")


def step_ns(profile: Profile) -> float:
    """Return the median decode step."""
    return float(graph_calls(profile)["start_ns"].diff().median())


def of_step(profile: Profile, nanoseconds: float) -> float:
    """Return a time in percent of the median decode step."""
    return float(100 * nanoseconds / step_ns(profile))


def graph_share(profile: Profile) -> float:
    """Return the device time of the median graph, in percent of a step."""
    graphs = graph_events(profile).groupby("correlation_id")["duration_ns"].sum()
    return of_step(profile, graphs.median())


def busy_share(profile: Profile) -> float:
    """Return all device time between the first call and the last, in percent of that time."""
    starts, events = graph_calls(profile)["start_ns"], profile.device_events
    during = events[events["start_ns"].between(starts.iloc[0], starts.iloc[-1])]
    return float(100 * during["duration_ns"].sum() / (starts.iloc[-1] - starts.iloc[0]))


def device_ns(profile: Profile) -> int:
    """Return the sum of all device events."""
    return profile.device_events["duration_ns"].sum()


EXERCISES = (
    Exercise(
        id="12.1",
        answer=Number(pace, unit="tokens/s"),
        mistakes=(
            Mistake(
                lambda data: pace(data) / data["batch"],
                "You computed the rate of one request. Multiply it by `batch`.",
            ),
            Mistake(
                lambda data: pace(data, caches=0),
                "You left out the KV cache. Each request reads its own cache in every layer.",
            ),
            Mistake(
                lambda data: pace(data, caches=1),
                "You counted the KV cache of a single request. Multiply its size by `batch`.",
            ),
            Mistake(
                lambda data: pace(data, heads="heads"),
                "You used the number of query heads for the cache. Query heads share keys and"
                " values, so use `kv_heads`.",
            ),
            Mistake(
                lambda data: pace(data, rows=1),
                "You counted one row per token and layer. Count two rows: a key and a value.",
            ),
            Mistake(
                lambda data: pace(data, item=1),
                "You counted one byte per weight. A 16-bit number takes up two bytes.",
            ),
            Mistake(
                lambda data: pace(data, **LLAMA),
                "You used the shape of LLAMA. Use `asked['model']`, which has the shape of QWEN.",
            ),
            Mistake(
                lambda data: 1 / (1 / pace(data) + 1 / arithmetic_pace(data)),
                "You added the memory time and the arithmetic time. The two overlap, so use only"
                " the longer time.",
            ),
            Mistake(
                arithmetic_pace,
                "You computed the arithmetic limit, but the memory limit is lower. Use the lower"
                " of the two limits.",
            ),
        ),
        hints=(
            "Each step generates one token per request. List everything that a step reads.",
            "Count the weights once, and add `cache_bytes(model, context)` for each request.",
            "Compute `batch * bandwidth / (2 * weights(model) + batch * cache_bytes(model,"
            " context))`.",
        ),
        insight=lambda data: (
            f"If only the weights had to be read, {pace(data, caches=0):,.0f} tokens/s would be"
            " possible. With these long texts, however, a step reads"
            f" {2 * weights(data['model']) / 1e9:.0f} GB of weights and"
            f" {(moved_bytes(data) - 2 * weights(data['model'])) / 1e9:.0f} GB of cache."
        ),
    ),
    Exercise(
        id="12.2",
        answer=Number(
            lambda data: idle_percent(graph_events(data)),
            unit="percent",
            relative=0.005,
            absolute=0.05,
        ),
        mistakes=(
            Mistake(
                lambda data: 100 / (100 / idle_percent(graph_events(data)) - 1),
                "You divided by the total kernel time. Divide by the time from the first kernel's"
                " start to the last kernel's end.",
            ),
            Mistake(
                lambda data: idle_percent(data.device_events),
                "You used all events in the file. Select only the events that the graph started.",
            ),
        ),
        hints=(
            "Use a window from the start of the graph's first event to the end of its last event.",
            "Add up the durations, because events in one stream don't overlap.",
            'Compute `1 - nodes["duration_ns"].sum() / (ends.max() - nodes["start_ns"].min())`, in'
            " percent.",
        ),
        insight=(
            "A single gap, during which `hipGraphLaunch` was still running, accounts for nearly all"
            " of the idle time. The other gaps are tiny, because the kernels don't wait for the"
            " host."
        ),
    ),
    Exercise(
        id="12.3",
        answer=Number(graph_share, unit="percent"),
        mistakes=(
            Mistake(
                lambda data: of_step(data, graph_calls(data)["duration_ns"].median()),
                "You used the time that the host spends in `hipGraphLaunch`. Use the durations of"
                " the device events that the call started.",
            ),
            Mistake(
                lambda data: of_step(data, device_ns(data) / len(graph_calls(data))),
                "You divided the total device time by the number of steps. This time includes the"
                " prefill, so the share exceeds 100%. Select the graphs' events.",
            ),
            Mistake(
                busy_share,
                "You included all device work in a step, such as selecting the token. Select only"
                " the graphs' events.",
            ),
            Mistake(
                lambda data: 100 * graph_events(data)["duration_ns"].sum() / device_ns(data),
                "You divided by the total device time, which includes the prefill. Divide by the"
                " duration of a decode step.",
            ),
        ),
        hints=(
            "Select the rows of `served.device_events` with the correlation IDs of `graph_calls`.",
            'Group these events with `.groupby("correlation_id")`, add up the durations, and take'
            " the median of the sums.",
        ),
        insight=(
            "The time outside the graph adds to the time per token. The shorter a step is, the"
            " larger this share becomes."
        ),
    ),
)
