"""Exercises of lesson 06, the ladder: SQL text is the answer, an open connection to SQLite the
data.

06.1 and 06.2 ask the case in a database of rocprofv3, 06.3 and 06.4 a run on four GPUs, where
operations overlap, and 06.5 a recording of vLLM by rpd. `op` is the lesson's own view of kernels
and copies, `marks` its table of ranges. Views and columns:
projects/rocprofiler-sdk/source/share/rocprofiler-sdk-rocpd of https://github.com/ROCm/rocm-systems,
and rocpd_python/rocpd/schema_data of https://github.com/ROCm/rocmProfileData.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from proflab.exercises.model import Exercise, Mistake
from proflab.parts.trace_database import Query, answer_of, wrong_query

TOP_FIVE = (
    "SELECT name, count(*), sum(duration) AS total FROM kernels GROUP BY name ORDER BY total DESC"
    " LIMIT 5"
)

CALLS = TOP_FIVE.replace("kernels", "regions")

BY_RANGE = """
SELECT m.range, sum(k.duration) AS gpu FROM kernels k JOIN regions r ON r.stack_id = k.stack_id
JOIN marks m ON r.start BETWEEN m.start AND m.end GROUP BY m.range ORDER BY gpu DESC
"""
"""GPU time by the range in which the launch call began; the trainer's ranges do not overlap."""

_LATEST = "max(end) OVER (ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"

IDLE = f"SELECT sum(max(0, start - latest)) FROM (SELECT start, {_LATEST} AS latest FROM op)"
"""Time without an operation in ns: each start is compared with the latest end so far, since
operations overlap.
"""

IDLE_BY_LAG = IDLE.replace(_LATEST, "lag(end) OVER (ORDER BY start, end)")
"""Compared with the end of the operation before: right only where nothing overlaps."""

IDLE_WITH_ITSELF = IDLE.replace(" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING", "")
"""Without its frame a window ends with the row itself, whose end lies behind its start: never a
gap.
"""

IDLE_BY_GPU = IDLE.replace("OVER (ORDER", "OVER (PARTITION BY gpu ORDER")
"""The idle time of each GPU, added up."""

IDLE_OF_FIRST = "SELECT sum(WallTime - GpuTime) FROM busy"

BY_GPU = """
SELECT gpu, sum(CASE WHEN name LIKE '%nccl%' THEN end - start ELSE 0 END),
    sum(CASE WHEN name LIKE '%nccl%' THEN 0 ELSE end - start END) FROM op WHERE kind = 'kernel' GROUP BY gpu
"""
"""GPU time in RCCL's kernels, and in all others, in ns on each GPU."""

COPY_SHARE = """
SELECT 100.0 * sum(CASE WHEN opType LIKE '%copy%' THEN end - start ELSE 0 END) / sum(end - start) FROM op
"""

ALL_BUT_KERNELS = COPY_SHARE.replace("LIKE '%copy%'", "<> 'KernelExecution'")

COPIES = "SELECT count(*) FROM op WHERE opType LIKE '%copy%'"

HOST_SHARE = COPY_SHARE.replace("%copy%", "%Host%")

WITHIN_SHARE = COPY_SHARE.replace("%copy%", "%DeviceToDevice%") + "WHERE opType LIKE '%copy%'"

CALLS_OF_COPIES = "SELECT 100.0 * (SELECT sum(end - start) FROM copy) / sum(end - start) FROM op"

COPY_CALLS = "SELECT 100.0 * (SELECT sum(end - start) FROM copyop) / sum(end - start) FROM op"


def one_value(database: sqlite3.Connection, sql: str) -> Any:
    """The first value of the first row."""
    return answer_of(database, sql).rows[0][0]


def wrong(messages: Mapping[str, str]) -> tuple[Mistake, ...]:
    """Plausible wrong queries, each with what to say to it."""
    return tuple(Mistake(wrong_query(sql), message) for sql, message in messages.items())


EXERCISES = (
    Exercise(
        id="06.1",
        answer=Query(TOP_FIVE, ("name", "calls", "ns"), ordered=True, units=("", "", "ns")),
        mistakes=wrong(
            {
                "SELECT name, total_calls, total_duration FROM top_kernels LIMIT 5": (
                    "`top_kernels` gives µs, ns are "
                    "asked. `kernels` has each dispatch with its `duration` in ns."
                ),
                "SELECT name, total_calls, total_duration FROM top LIMIT 5": (
                    "It mixes in the calls on the host."
                ),
                **dict.fromkeys(
                    (CALLS, CALLS.replace("GROUP", "WHERE category NOT LIKE 'MARKER%' GROUP")),
                    "These are calls on the host (`regions`), another clock. The GPU's kernels are"
                    " in `kernels`.",
                ),
                TOP_FIVE.replace(
                    "total DESC", "count(*) DESC"
                ): "These are called most often; most time is asked.",
                TOP_FIVE.replace(
                    " DESC", ""
                ): "These take the least time: without DESC the smallest come first.",
                TOP_FIVE.replace(
                    "BY total", "BY max(duration)"
                ): "These hold the longest single calls. Sort by the sum.",
                TOP_FIVE.replace(
                    "sum(", "avg("
                ): "These are means. All ns of a kernel together are asked: `sum`.",
                TOP_FIVE.replace(
                    "sum(duration)", "sum(duration) / 1000"
                ): "These are whole µs, ns are asked.",
            }
        ),
        hints=(
            "The view `kernels` has `name` and `duration`.",
            "The worked question has the same form: another view, no condition.",
            "`... GROUP BY name ORDER BY total DESC LIMIT 5`",
        ),
        insight="This is the view `top_kernels`, in ns.",
    ),
    Exercise(
        id="06.2",
        answer=Query(BY_RANGE, ("range", "ns on the GPU"), ordered=True, units=("", "ns")),
        mistakes=wrong(
            {
                BY_RANGE.replace("ON r.start", "ON m.tid = r.tid AND r.start"): (
                    "Kernels are missing: all of the backward pass. PyTorch's autograd launches"
                    " them from a thread of its own, while the range is open in the main thread."
                    " Compare the times alone."
                ),
                BY_RANGE.replace("ON r.start", "ON k.start"): (
                    "That is when the kernels ran. The host runs ahead, so "
                    "they may run in a later range: ask when the call began, `r.start`."
                ),
                BY_RANGE.replace("sum(k.duration)", "sum(r.duration)"): (
                    "That is the time of the calls (`r`). The time "
                    "on the GPU is that of the kernel (`k`)."
                ),
                BY_RANGE.replace(
                    "sum(k.duration)", "sum(m.end - m.start)"
                ): "That adds up the range once for each kernel.",
                BY_RANGE.replace(
                    "sum(k.duration)", "count(*)"
                ): "That is how many kernels. Their ns are asked.",
            }
        ),
        hints=(
            (
                "Three tables in one line: the kernel, its call by `stack_id`, and the mark in"
                " which the call began."
            ),
            (
                "`JOIN marks m ON r.start BETWEEN m.start AND m.end`: which thread called doesn't"
                " matter."
            ),
            "`SELECT m.range, sum(k.duration) AS gpu FROM ... GROUP BY m.range ORDER BY gpu DESC`",
        ),
        insight=(
            "So a cure for the forward pass alone can't win half of this time. No table of kernels"
            " shows that."
        ),
    ),
    Exercise(
        id="06.3",
        answer=Query(IDLE, ("ns",), units=("ns",)),
        mistakes=wrong(
            {
                IDLE_BY_LAG: (
                    "Work overlaps, and `lag` knows one row: compare with the latest end of all"
                    " before."
                ),
                IDLE.replace(
                    "max(0, start - latest)", "start - latest"
                ): "Where work overlaps, `start - latest` is negative: add up `max(0, ...)`.",
                IDLE.replace(
                    "sum(max(0, start - latest))", "max(start - latest)"
                ): "This is the longest gap. All of them together are asked.",
                IDLE_BY_GPU: (
                    "`PARTITION BY gpu` gives each GPU a line of its own, and adds up their idle"
                    " times. Asked is when *none* works: one line for all rows."
                ),
                IDLE_WITH_ITSELF: (
                    "The row itself is in this window, and it ends after its start. Let the window"
                    " stop before it: `ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING`."
                ),
                IDLE.replace(
                    "FROM op)", "FROM op WHERE kind = 'kernel')"
                ): "Kernels alone: while a copy runs, the GPU works, too. Take all rows of `op`.",
                IDLE_OF_FIRST: (
                    "The view `busy` is that of the first file alone: one GPU of the four."
                ),
            }
        ),
        hints=(
            "Look at the window in the text above: it gives the latest end of all rows before.",
            (
                "A window can't stand inside `sum(...)`: first a SELECT that gives the gaps, then"
                " one that adds them up."
            ),
            (
                "`SELECT sum(max(0, start - latest)) FROM (SELECT start, max(end) OVER (...) AS"
                " latest FROM op)`"
            ),
        ),
        insight=lambda data: (
            f"{one_value(data, IDLE) / 1e6:,.1f} ms. By `lag` it would be"
            f" {one_value(data, IDLE_BY_LAG) / 1e6:,.1f} ms."
        ),
    ),
    Exercise(
        id="06.4",
        answer=Query(BY_GPU, ("gpu", "ns of RCCL", "ns of the others"), units=("", "ns", "ns")),
        mistakes=wrong(
            {
                BY_GPU.replace(" WHERE kind = 'kernel'", ""): (
                    "The copies are among the others. Only kernels are "
                    "asked: `WHERE kind = 'kernel'`."
                ),
                BY_GPU.replace("end - start", "1"): "That is how many kernels. Their ns are asked.",
                BY_GPU.replace(
                    "GROUP BY gpu", ""
                ): "One row for all: without GROUP BY there is one group.",
                BY_GPU.replace(
                    "THEN 0 ELSE end - start", "THEN end - start ELSE end - start"
                ): "The second sum has all kernels, RCCL's too.",
                BY_GPU.replace(
                    "sum(", "max("
                ): "These are the longest single kernels. All together are asked: `sum`.",
                BY_GPU.replace(
                    "%nccl%", "nccl"
                ): "No kernel is called just so: `%nccl%` finds a word within a name.",
            }
        ),
        hints=(
            "One row for each GPU: `SELECT gpu, ... FROM op ... GROUP BY gpu`.",
            (
                "`CASE WHEN name LIKE '%nccl%' THEN end - start ELSE 0 END` is the time of RCCL's"
                " kernels, else 0."
            ),
            (
                "The second sum has 0 behind THEN and the time behind ELSE. `WHERE kind = 'kernel'`"
                " leaves the copies out."
            ),
        ),
        insight=(
            "No tool made this table for you: it has four files in it, and your own two groups."
        ),
    ),
    Exercise(
        id="06.5",
        answer=Query(COPY_SHARE, ("percent",), units=("percent",)),
        mistakes=(
            *wrong(
                {
                    ALL_BUT_KERNELS: (
                        "What is no `KernelExecution` need not be a copy: list the types, and look"
                        " at some descriptions."
                    ),
                    "SELECT 100.0 * sum(opType LIKE '%copy%') / count(*) FROM op": (
                        "This is their share of the operations. Their share of the time is asked."
                    ),
                    COPY_SHARE.replace(
                        "%copy%", "CopyHost%"
                    ): "These are the copies from the host alone.",
                    HOST_SHARE: (
                        "These are the copies to and from the host. Those within the GPU are copies"
                        " too."
                    ),
                    COPY_SHARE.replace(
                        "100.0 * ", ""
                    ): "Whole numbers stay whole, so this is 0: begin with `100.0 *`.",
                    COPY_SHARE.replace("100.0", "100"): (
                        "100 and both sums are whole numbers, so SQL cuts off what "
                        "lies behind the point: write `100.0 *`."
                    ),
                    CALLS_OF_COPIES: (
                        "`copy` has calls on the host: how long the program was in them. The copies"
                        " themselves are rows of `op`."
                    ),
                }
            ),
            Mistake(
                wrong_query(COPY_CALLS),
                lambda data: (
                    f"The view `copyop` has {one_value(data, 'SELECT count(*) FROM copyop')} of"
                    f" {one_value(data, COPIES)} copies: those whose call was recorded as one. `op`"
                    " has all."
                ),
            ),
        ),
        hints=(
            "List the types first, with number and time, as above: `GROUP BY opType`.",
            "One type is neither a kernel by its name nor a copy. What are its descriptions?",
            "The form is that of rung 4, with `opType LIKE '%copy%'` as condition.",
        ),
        insight=lambda data: (
            f"Little, and {one_value(data, WITHIN_SHARE):.0f} % of it is CopyDeviceToDevice, within"
            f" the GPU. Between host and GPU it is {one_value(data, HOST_SHARE):.1f} % of the time."
        ),
    ),
)
