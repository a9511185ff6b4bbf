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
                "You computed the tokens/s of one request. Multiply by `batch`.",
            ),
            Mistake(
                lambda data: pace(data, caches=0),
                "You left out the cache. Each request reads its own, in every layer.",
            ),
            Mistake(
                lambda data: pace(data, caches=1),
                "You counted the cache of one request. Multiply it by `batch`.",
            ),
            Mistake(
                lambda data: pace(data, heads="heads"),
                "You used the query heads for the cache. Use `kv_heads`, which they share.",
            ),
            Mistake(
                lambda data: pace(data, rows=1),
                "You counted one row per token and layer. Count two, a key and a value.",
            ),
            Mistake(
                lambda data: pace(data, item=1),
                "You used one byte per weight. A number with 16 bits has two bytes.",
            ),
            Mistake(
                lambda data: pace(data, **LLAMA),
                "You used the shape of LLAMA. Use `asked['model']`, which is QWEN.",
            ),
            Mistake(
                lambda data: 1 / (1 / pace(data) + 1 / arithmetic_pace(data)),
                "You added the times for bytes and arithmetic. They overlap, so the longer one is"
                " the bound.",
            ),
            Mistake(
                arithmetic_pace,
                "You used the arithmetic, which allows more tokens/s than the memory. Use the"
                " slower of the two.",
            ),
        ),
        hints=(
            "A step gives one token to each request. List everything that it reads.",
            "Add the weights once, and `cache_bytes(model, context)` for each request.",
            "Compute `batch * bandwidth / (2 * weights(model) + batch * cache_bytes(model,"
            " context))`.",
        ),
        insight=lambda data: (
            f"The weights alone would allow {pace(data, caches=0):,.0f} tokens/s. But with these"
            f" texts, a step reads {2 * weights(data['model']) / 1e9:.0f} GB of weights and"
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
                "You divided by the time of the kernels. Divide by the time from the first start to"
                " the last end.",
            ),
            Mistake(
                lambda data: idle_percent(data.device_events),
                "You used all events of the file. Select those that the graph started.",
            ),
        ),
        hints=(
            "Use a window from the first start to the last end of the graph's own events.",
            "Add up the durations, because nothing overlaps in one stream.",
            'Compute `1 - nodes["duration_ns"].sum() / (ends.max() - nodes["start_ns"].min())`, in'
            " percent.",
        ),
        insight=(
            "Nearly all of the idle time is one gap, while `hipGraphLaunch` was still running. The"
            " other gaps are tiny, because no kernel waits for the host."
        ),
    ),
    Exercise(
        id="12.3",
        answer=Number(graph_share, unit="percent"),
        mistakes=(
            Mistake(
                lambda data: of_step(data, graph_calls(data)["duration_ns"].median()),
                "You used the host's time in `hipGraphLaunch`. Use the device events that the call"
                " started.",
            ),
            Mistake(
                lambda data: of_step(data, device_ns(data) / len(graph_calls(data))),
                "You divided all device time by the steps. A share above 100% can't be right: this"
                " time includes the prefill, so select the graphs' events.",
            ),
            Mistake(
                busy_share,
                "You included everything that the device does in a step, such as choosing the"
                " token. Select the graphs' events.",
            ),
            Mistake(
                lambda data: 100 * graph_events(data)["duration_ns"].sum() / device_ns(data),
                "You divided by all device time, including the prefill. Divide by the decode step.",
            ),
        ),
        hints=(
            "Match the correlation ids of `graph_calls` with `served.device_events`.",
            'Group these events with `.groupby("correlation_id")`, add up the durations, and take'
            " the median of the sums.",
        ),
        insight=(
            "Every token also pays for the time outside the graph. The shorter a step is, the"
            " larger is the host's share."
        ),
    ),
)
