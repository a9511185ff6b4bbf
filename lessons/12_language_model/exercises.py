"""Exercises of lesson 12, how fast can a token be? On a model's shape, and on recordings of
servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from proflab.exercises import Exercise, Mistake, Number

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof import Profile

ITEM_BYTES = 2
"""Bytes of a number in 16 bits, as all models of this lesson store weights and cache."""


def weights(model: Mapping[str, int]) -> int:
    """Weights that a decode step reads: the layers' matrices and the last one, without the first
    table and norms.
    """
    attention = model["width"] * model["head_size"] * 2 * (model["heads"] + model["kv_heads"])
    return (
        model["layers"] * (attention + 3 * model["width"] * model["inner"])
        + model["words"] * model["width"]
    )


def token_bytes(model: Mapping[str, int], heads: str = "kv_heads", rows: int = 2) -> int:
    """Bytes of cache for one token: `rows` rows (key and value) of `heads` heads in each layer."""
    return model["layers"] * rows * model[heads] * model["head_size"] * ITEM_BYTES


def most_tokens(asked: Mapping[str, Any], token: int, requests: int | None = None) -> float:
    """Tokens per second at most, for `token` bytes of cache a token; of one request where
    `requests` is 1.
    """
    moved = ITEM_BYTES * weights(asked["model"]) + asked["batch"] * asked["context"] * token
    return (requests or asked["batch"]) * asked["bandwidth"] / moved


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
    """The longest time between the end of one event and the start of the next, of events that don't
    overlap.
    """
    events = events.sort_values("start_ns")
    ends = events["start_ns"] + events["duration_ns"]
    return int((events["start_ns"].iloc[1:].to_numpy() - ends.iloc[:-1].to_numpy()).max())


def graph_calls(profile: Profile) -> pd.DataFrame:
    """The calls of `hipGraphLaunch`, in order: a decode step lasts from one to the next."""
    return profile.events[profile.events["name"] == "hipGraphLaunch"].sort_values("start_ns")


def step_ns(profile: Profile) -> float:
    """The median decode step."""
    return float(graph_calls(profile)["start_ns"].diff().median())


def call_share(profile: Profile) -> float:
    """Time of the host in the call, in percent of a step: medians."""
    return 100 * float(graph_calls(profile)["duration_ns"].median()) / step_ns(profile)


def busy_share(profile: Profile) -> float:
    """Time of the device in whatever it does between the first call and the last, in percent of
    that time.
    """
    starts, events = graph_calls(profile)["start_ns"], profile.device_events
    during = events[events["start_ns"].between(starts.iloc[0], starts.iloc[-1])]
    return float(100 * during["duration_ns"].sum() / (starts.iloc[-1] - starts.iloc[0]))


def graph_share(profile: Profile) -> float:
    """Time of the device in the median graph, in percent of a step."""
    graphs = graph_events(profile).groupby("correlation_id")["duration_ns"].sum()
    return float(100 * graphs.median() / step_ns(profile))


def share_of_device(profile: Profile) -> float:
    """Time in graphs in percent of everything that ran on the device."""
    return float(
        100
        * graph_events(profile)["duration_ns"].sum()
        / profile.device_events["duration_ns"].sum()
    )


def summed_share(profile: Profile) -> float:
    """All graphs over all distances between two calls: one graph more than there are distances."""
    starts = graph_calls(profile)["start_ns"]
    return float(100 * graph_events(profile)["duration_ns"].sum() / (starts.max() - starts.min()))


EXERCISES = (
    Exercise(
        id="12.1",
        answer=Number(
            lambda data: most_tokens(data, token_bytes(data["model"])),
            unit="tokens/s",
            relative=0.01,
        ),
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
            (
                "The weights once, and for each request the cache of `context` tokens:"
                " `cache_bytes` has it for one text."
            ),
            "`batch * bandwidth / (2 * weights(model) + batch * cache_bytes(model, context))`",
        ),
        insight=lambda data: (
            f"Weights alone would allow {most_tokens(data, 0):,.0f}. With such texts most of what"
            " is read is cache:"
            f" {data['batch'] * data['context'] * token_bytes(data['model']) / 1e9:.0f} GB beside"
            f" {ITEM_BYTES * weights(data['model']) / 1e9:.0f} GB of weights."
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
                lambda data: 100 - idle_percent(graph_events(data)),
                "That is how long it is busy. The rest of the window is idle.",
            ),
            Mistake(
                lambda data: 100 / (100 / idle_percent(graph_events(data)) - 1),
                "You divided by the kernels' time. The whole is the time from the first moment to"
                " the last.",
            ),
            Mistake(
                lambda data: 100 * (1 - 1 / (1 - idle_percent(graph_events(data)) / 100)),
                "A share below nothing: you divided the window by the kernels' time. It is the"
                " other way round.",
            ),
            Mistake(
                lambda data: idle_percent(data.device_events),
                "You took all events of the file. Choose those that the graph started.",
            ),
        ),
        hints=(
            "The window is that of the graph's own events: from the first start to the last end.",
            "In one stream nothing overlaps, so durations may be added up.",
            (
                '`1 - nodes["duration_ns"].sum() / (ends.max() - nodes["start_ns"].min())`, in'
                " percent."
            ),
        ),
        insight=lambda data: (
            f"Nearly all of it is one gap of {longest_gap_ns(graph_events(data)) / 1e3:.0f} µs,"
            " while `hipGraphLaunch` still ran. Between the others there is hardly any time: no"
            " host is asked."
        ),
    ),
    Exercise(
        id="12.3",
        answer=Number(graph_share, unit="percent", relative=0.01),
        mistakes=(
            Mistake(
                call_share,
                "That is the host's time in the call `hipGraphLaunch`. Asked is what the call"
                " started on the device.",
            ),
            Mistake(
                busy_share,
                "That is all that the device does in a step: it chooses and copies the token"
                " outside of the graph.",
            ),
            Mistake(
                share_of_device,
                "That is the graphs' share of all device time, prefill included. A decode step is"
                " the whole here.",
            ),
            Mistake(
                lambda data: 100 - graph_share(data),
                "That is what is left of a step.",
            ),
            Mistake(
                summed_share,
                "You added up all graphs, and divided by the time from the first call to the last:"
                " that is one step less than there are graphs. Take medians.",
            ),
        ),
        hints=(
            "`graph_calls` has the calls; what each started on the device has its correlation id.",
            (
                '`served.device_events` with such ids, `.groupby("correlation_id")`, sum; then the'
                " median of the sums."
            ),
        ),
        insight=(
            "What is outside of the graph counts in each token. The shorter a step, the larger is"
            " the host's share of it."
        ),
    ),
)
