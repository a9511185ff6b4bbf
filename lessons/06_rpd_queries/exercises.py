"""Exercises of lesson 06, the ladder: SQL text is the answer, an open connection to SQLite the data.

06.1 to 06.6 ask the case in a database of rocprofv3, 06.7 and 06.8 a run on four GPUs, where operations overlap, 06.9 a
recording of vLLM by rpd. `op` is the lesson's own view of kernels and copies together, `marks` its table of ranges.
Views and columns: projects/rocprofiler-sdk/source/share/rocprofiler-sdk-rocpd of
https://github.com/ROCm/rocm-systems, and rocpd_python/rocpd/schema_data of https://github.com/ROCm/rocmProfileData.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from proflab.exercises.answers import Property
from proflab.exercises.model import Exercise, Mistake
from proflab.exercises.queries import Query, wrong_query
from proflab.parts.trace_database import QuestionError, answer_of

SUM_TOLERANCE = 0.001
"""How far the parts may be from the whole, and `idle` from the time without an operation: a fraction of the whole."""

RUNTIME_COPIES = "SELECT count(*) FROM kernels WHERE name LIKE '%copyBuffer%'"

BY_KIND = "SELECT kind, count(*), sum(end - start) FROM op GROUP BY kind"

TOP_FIVE = "SELECT name, count(*), sum(duration) AS total FROM kernels GROUP BY name ORDER BY total DESC LIMIT 5"

TWO_CLOCKS = """
SELECT k.name, sum(k.duration) AS gpu, sum(r.duration) AS launch
FROM kernels k JOIN regions r ON r.stack_id = k.stack_id GROUP BY k.name ORDER BY gpu DESC LIMIT 5
"""

BY_RANGE = """
SELECT m.range, sum(k.duration) AS gpu FROM kernels k JOIN regions r ON r.stack_id = k.stack_id
JOIN marks m ON r.start BETWEEN m.start AND m.end GROUP BY m.range ORDER BY gpu DESC
"""
"""GPU time by the range in which the launch call began; the trainer's ranges do not overlap."""

STEADY = """ WHERE start > (SELECT start FROM regions WHERE category LIKE 'MARKER%'
    AND coalesce(json_extract(extdata, '$.message'), name) = 'data' ORDER BY start LIMIT 1 OFFSET 1)"""
"""Leaves out what starts before the second step of the trainer, whose ranges begin with `data`."""

SHORT_SHARE = "SELECT 100.0 * sum(CASE WHEN duration < 10000 THEN duration ELSE 0 END) / sum(duration) FROM kernels"

SHORT_CALLS = "SELECT 100.0 * sum(duration < 10000) / count(*) FROM kernels"

_LATEST = "max(end) OVER (ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"

IDLE = f"SELECT sum(max(0, start - latest)) FROM (SELECT start, {_LATEST} AS latest FROM op)"
"""Time without an operation in ns: each start is compared with the latest end so far, since operations overlap."""

IDLE_BY_LAG = IDLE.replace(_LATEST, "lag(end) OVER (ORDER BY start, end)")
"""Compared with the end of the operation before: right only where nothing overlaps."""

IDLE_OF_EACH = "SELECT sum(WallTime - GpuTime) FROM busy"

_LINE = f"WITH line AS (SELECT kind, start, end, coalesce({_LATEST}, start) AS latest FROM op)"
"""Each operation with the latest end before it: what of it lies beyond that is time that it adds."""

PARTS = f"""{_LINE} SELECT kind AS name, sum(max(0, end - max(start, latest))) AS ns FROM line GROUP BY kind
UNION ALL SELECT 'idle', sum(max(0, start - latest)) FROM line"""

SUMMED_PARTS = f"""{BY_KIND.replace("count(*), ", "")} UNION ALL
SELECT 'idle', max(end) - min(start) - sum(end - start) FROM op"""
"""Parts by sums of durations: right only where nothing overlaps."""

WALL_AND_IDLE = f"{_LINE} SELECT max(end) - min(start), sum(max(0, start - latest)) FROM line"
"""From the first start to the last end, and how much of it has no operation: both in ns."""

BUSY_OF_KIND = f"""WITH line AS (SELECT start, end, coalesce({_LATEST}, start) AS latest FROM op WHERE kind = '{{}}')
SELECT coalesce(sum(max(0, end - max(start, latest))), 0) FROM line"""
"""Time in ns in which an operation of one kind runs, each ns once."""

COPY_SHARE = """
SELECT 100.0 * sum(CASE WHEN opType LIKE '%copy%' THEN end - start ELSE 0 END) / sum(end - start) FROM op
"""

ALL_BUT_KERNELS = COPY_SHARE.replace("LIKE '%copy%'", "<> 'KernelExecution'")

COPIES = "SELECT count(*) FROM op WHERE opType LIKE '%copy%'"

COPY_CALLS = "SELECT 100.0 * (SELECT sum(end - start) FROM copyop) / sum(end - start) FROM op"


def one_value(database: sqlite3.Connection, sql: str) -> Any:
    """The first value of the first row."""
    return answer_of(database, sql).rows[0][0]


def parts_problem(answer: Any, database: sqlite3.Connection) -> str | None:
    """What is wrong with a query that divides the whole time into named parts, None if they add up to it."""
    try:
        given = answer_of(database, answer)
    except QuestionError as error:
        return error.sentence
    if len(given.columns) != 2 or not all(isinstance(ns, int | float) for _, ns in given.rows):
        return f"Two columns are asked, a name and a number of ns, in each row; it gives {len(given.columns)}."
    parts = {str(name): ns for name, ns in given.rows}
    if len(parts) < 3 or len(parts) < len(given.rows) or "idle" not in parts:
        return "Give at least three rows of different names, and call one of them `idle`."
    if min(parts.values()) < 0:
        return "A part is negative: durations of work that overlaps exceed the time, so count each ns once."
    wall, idle = answer_of(database, WALL_AND_IDLE).rows[0]
    share = sum(parts.values()) / wall
    if abs(share - 1) > SUM_TOLERANCE:
        why = "counted twice" if share > 1 else "in no part, or not in ns"
        return f"The parts add up to {100 * share:.1f} % of the whole: some time is {why}."
    if abs(parts["idle"] - idle) > SUM_TOLERANCE * wall:
        return "The sum is right, `idle` is not: in it no operation runs. Where work overlaps, count each ns once."
    kernels, copies = (one_value(database, BUSY_OF_KIND.format(kind)) for kind in ("kernel", "copy"))
    # Time in which both run may stand in either row.
    if not wall - idle - copies - 1 <= parts.get("kernel", -1) <= kernels + 1:
        return "`idle` and the sum are right, but the row `kernel` is missing, or holds something else."
    return None


def wrong(messages: Mapping[str, str]) -> tuple[Mistake, ...]:
    """Plausible wrong queries, each with what to say to it."""
    return tuple(Mistake(wrong_query(sql), message) for sql, message in messages.items())


def _example(sql: str) -> Callable[[sqlite3.Connection], str]:
    return lambda database: sql


EXERCISES = (
    Exercise(
        id="06.1",
        answer=Query(RUNTIME_COPIES, ("number of kernels",)),
        mistakes=wrong(
            {
                RUNTIME_COPIES.replace("%copyBuffer%", "%copy%"): "PyTorch has kernels with `copy` in their names, "
                "too: look for the runtime's whole word.",
                RUNTIME_COPIES.replace("LIKE '%copyBuffer%'", "= 'copyBuffer'"): "No kernel is called just so: `LIKE` "
                "finds a word within a name.",
                "SELECT count(*) FROM memory_copies": "These are the copies between host and GPU.",
                "SELECT count(*) FROM kernels": "These are all kernels.",
            }
        ),
        hints=(
            "`SELECT DISTINCT name FROM kernels WHERE name LIKE '%copy%'` shows which names there are.",
            "`WHERE name LIKE '%...%'` keeps the rows whose name holds a word.",
        ),
        insight=lambda data: (
            f"{100 * one_value(data, RUNTIME_COPIES) / one_value(data, 'SELECT count(*) FROM kernels'):.0f} % of all "
            "kernels. rpd built on roctracer lists them as copies: the number of kernels has two right answers."
        ),
    ),
    Exercise(
        id="06.2",
        answer=Query(BY_KIND, ("kind", "number", "ns together"), units=("", "", "ns")),
        mistakes=wrong(
            {
                BY_KIND.replace("sum", "avg"): "This is the mean. All together is asked: `sum`.",
                BY_KIND.replace("start)", "start) / 1000"): "These are whole µs, ns are asked.",
                BY_KIND.replace("GROUP BY kind", ""): "One row for everything: without GROUP BY there is one group.",
            }
        ),
        hints=("Three columns: the kind, a count and a sum.", "An operation lasts `end - start` ns."),
        insight="Such a table is the first thing to ask of any trace: it shows at once what is missing.",
    ),
    Exercise(
        id="06.3",
        answer=Query(TOP_FIVE, ("name", "calls", "ns"), ordered=True, units=("", "", "ns")),
        mistakes=wrong(
            {
                "SELECT name, total_calls, total_duration FROM top_kernels LIMIT 5": "`top_kernels` gives µs, ns are "
                "asked. `kernels` has each dispatch with its `duration` in ns.",
                "SELECT name, total_calls, total_duration FROM top LIMIT 5": "It mixes in the calls on the host.",
                TOP_FIVE.replace("total DESC", "count(*) DESC"): "These are called most often; most time is asked.",
                TOP_FIVE.replace(" DESC", ""): "These take the least time: without DESC the smallest come first.",
                TOP_FIVE.replace("BY total", "BY max(duration)"): "These hold the longest single calls. Sort by the "
                "sum.",
            }
        ),
        hints=(
            "The view `kernels` has `name` and `duration`.",
            "The worked question has the same form: another view, no condition.",
            "`... GROUP BY name ORDER BY total DESC LIMIT 5`",
        ),
        insight="This is the view `top_kernels` in ns. Keep it: the other rungs build on it.",
    ),
    Exercise(
        id="06.4",
        answer=Query(TWO_CLOCKS, ("name", "ns on the GPU", "ns in launch calls"), ordered=True, units=("", "ns", "ns")),
        mistakes=wrong(
            {
                TWO_CLOCKS.replace("BY gpu", "BY launch"): "Sorted by the launch calls: the kernels with the most GPU "
                "time are asked.",
                TWO_CLOCKS.replace("r.stack_id = k.stack_id", "r.id = k.id"): "`id` numbers the rows of each view by "
                "itself. The link is `stack_id`.",
                TWO_CLOCKS.replace("sum(k.duration)", "sum(r.duration)"): "Both times are those of the calls "
                "(`r`). The time on the GPU is that of the kernel (`k`).",
            }
        ),
        hints=(
            "A kernel and the call that launched it have the same `stack_id`.",
            "Begin with `FROM kernels k JOIN regions r ON r.stack_id = k.stack_id`.",
            "`SELECT k.name, sum(k.duration) AS gpu, sum(r.duration) ... GROUP BY k.name`",
        ),
        insight="Two questions, two columns: which kernel is slow, and which one is slow to launch.",
    ),
    Exercise(
        id="06.5",
        answer=Query(BY_RANGE, ("range", "ns on the GPU"), ordered=True, units=("", "ns")),
        mistakes=wrong(
            {
                BY_RANGE.replace("ON r.start", "ON m.tid = r.tid AND r.start"): "Kernels are missing: all of the "
                "backward pass. PyTorch's autograd launches them from a thread of its own, while the range is open in "
                "the main thread. Compare the times alone.",
                BY_RANGE.replace("ON r.start", "ON k.start"): "That is when the kernels ran. The host runs ahead, so "
                "they may run in a later range: ask when the call began, `r.start`.",
                BY_RANGE.replace("sum(k.duration)", "sum(r.duration)"): "That is the time of the calls (`r`). The time "
                "on the GPU is that of the kernel (`k`).",
                BY_RANGE.replace(
                    "sum(k.duration)", "sum(m.end - m.start)"
                ): "That adds up the range once for each kernel.",
                BY_RANGE.replace("sum(k.duration)", "count(*)"): "That is how many kernels. Their ns are asked.",
            }
        ),
        hints=(
            "Three tables in one line: the kernel, its call by `stack_id`, and the mark in which the call began.",
            "`JOIN marks m ON r.start BETWEEN m.start AND m.end`: which thread called doesn't matter.",
            "`SELECT m.range, sum(k.duration) AS gpu FROM ... GROUP BY m.range ORDER BY gpu DESC`",
        ),
        insight="So a cure for the forward pass alone can't win half of this time. No table of kernels shows that.",
    ),
    Exercise(
        id="06.6",
        answer=Query(SHORT_SHARE + STEADY, ("percent",), units=("percent",)),
        mistakes=wrong(
            {
                SHORT_CALLS + STEADY: "This is their share of the calls. Of the time is asked.",
                SHORT_SHARE.replace("100.0", "100") + STEADY: "What is behind the point is cut off: write `100.0`.",
                SHORT_SHARE: "The first step is still in it.",
                SHORT_SHARE.replace("<", ">=") + STEADY: "This is the rest: the longer ones.",
            }
        ),
        hints=(
            "Two sums of one view: one over the short kernels, one over all.",
            "`CASE WHEN duration < 10000 THEN duration ELSE 0 END` is the duration of the short ones, else 0.",
            "`SELECT 100.0 * sum(CASE ... END) / sum(duration) FROM kernels WHERE start > (...)`",
        ),
        insight=lambda data: (
            f"And {one_value(data, SHORT_CALLS + STEADY):.0f} % of the calls, each of which takes the host some µs."
        ),
    ),
    Exercise(
        id="06.7",
        answer=Query(IDLE, ("ns",), units=("ns",)),
        mistakes=wrong(
            {
                IDLE_BY_LAG: "Work overlaps, and `lag` knows one row: compare with the latest end of all before.",
                IDLE.replace("max(0, start - latest)", "start - latest"): "Where work overlaps, `start - latest` is "
                "negative: add up `max(0, ...)`.",
                IDLE.replace("sum(max(0, start - latest))", "max(start - latest)"): "This is the longest gap. All of "
                "them together are asked.",
                IDLE_OF_EACH: "The view `busy` is that of the first file alone: one GPU of the four.",
            }
        ),
        hints=(
            "Look at the window in the text above: it gives the latest end of all rows before.",
            "A window can't stand inside `sum(...)`: first a SELECT that gives the gaps, then one that adds them up.",
            "`SELECT sum(max(0, start - latest)) FROM (SELECT start, max(end) OVER (...) AS latest FROM op)`",
        ),
        insight=lambda data: (
            f"{one_value(data, IDLE) / 1e6:,.1f} ms. By `lag` it would be {one_value(data, IDLE_BY_LAG) / 1e6:,.1f} ms."
        ),
    ),
    Exercise(
        id="06.8",
        answer=Property(parts_problem, _example(PARTS)),
        mistakes=(
            Mistake(_example(BY_KIND.replace("count(*), ", "")), "call one of them `idle`"),
            Mistake(_example(SUMMED_PARTS), "count each ns once"),
            Mistake(_example("SELECT 'kernels', 1, 2"), "Two columns are asked"),
            Mistake(
                _example(PARTS.replace("kind AS name", "'the ' || kind AS name")),
                "the row `kernel` is missing",
            ),
            Mistake(_example(f"{PARTS} UNION ALL SELECT 'all', max(end) - min(start) FROM op"), "counted twice"),
            Mistake(_example(f"SELECT name, ns / 1000.0 FROM ({PARTS})"), "or not in ns"),
        ),
        hints=(
            "Rung 2 has the form of the busy parts, but counts some time twice. What is missing is one row more.",
            "WITH names a result, so that the next SELECT can use it; UNION ALL puts rows below others.",
            "`WITH line AS (SELECT kind, start, end, coalesce(max(end) OVER (...), start) AS latest FROM op)`, then "
            "a SELECT with GROUP BY kind, and one for `idle`: rung 7.",
        ),
        insight="Parts that add up to the whole hide nothing.",
    ),
    Exercise(
        id="06.9",
        answer=Query(COPY_SHARE, ("percent",), units=("percent",)),
        mistakes=(
            *wrong(
                {
                    ALL_BUT_KERNELS: "What is no `KernelExecution` need not be a copy: list the types, and look at "
                    "some descriptions.",
                    "SELECT 100.0 * sum(opType LIKE '%copy%') / count(*) FROM op": "This is their share of the "
                    "operations. Their share of the time is asked.",
                    COPY_SHARE.replace("%copy%", "CopyHost%"): "These are the copies from the host alone.",
                }
            ),
            Mistake(
                wrong_query(COPY_CALLS),
                lambda data: (
                    f"The view `copyop` has {one_value(data, 'SELECT count(*) FROM copyop')} of "
                    f"{one_value(data, COPIES)} copies: those whose call was recorded as one. `op` has all."
                ),
            ),
        ),
        hints=(
            "List the types first, with number and time: rung 2.",
            "One type is neither a kernel by its name nor a copy. What are its descriptions?",
            "The form is that of rung 6, with `opType LIKE '%copy%'` as condition.",
        ),
        insight="Little: serving a model moves few bytes between host and GPU.",
    ),
)
