"""Exercises of lesson 06, the ladder: SQL text is the answer, an open connection to SQLite the data.

06.1, 06.4 and 06.5 ask the recording of AMD's blog, whose copies and fill tell apart what only looks alike; 06.2, 06.3
and 06.6 the learner's own runs in .rpd files, 06.7 the training in a database of rocprofv3, 06.8 and 06.9 a run on four
GPUs, where operations overlap, 06.10 a recording of vLLM.
Views and columns: rocpd_python/rocpd/schema_data of https://github.com/ROCm/rocmProfileData, and
projects/rocprofiler-sdk/source/share/rocprofiler-sdk-rocpd of https://github.com/ROCm/rocm-systems.
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

OTHERS = "SELECT count(*) FROM op WHERE opType <> 'KernelExecution'"

RATE = "SELECT 2.0 * 100000 * 50000 * 800 / max(duration) / 1000 FROM kernel"

BY_TYPE = "SELECT opType, count(*), sum(end - start) FROM op GROUP BY opType"

TOP_FIVE = """
SELECT kernelName, count(*), sum(duration) AS total
FROM kernel GROUP BY kernelName ORDER BY total DESC LIMIT 5
"""

TOP_FIVE_OF_ALL = """
SELECT description, count(*), sum(end - start) AS total
FROM op GROUP BY description ORDER BY total DESC LIMIT 5
"""
"""The same of all operations: copies have no description, and share a row."""

TOP_FIVE_ROCPD = "SELECT name, count(*), sum(duration) AS total FROM kernels GROUP BY name ORDER BY total DESC LIMIT 5"

TWO_CLOCKS = """
SELECT o.description, sum(o.end - o.start) AS gpu, sum(a.end - a.start) AS launch
FROM rocpd_api_ops l JOIN op o ON o.id = l.op_id JOIN api a ON a.id = l.api_id
WHERE o.opType = 'KernelExecution' GROUP BY o.description ORDER BY gpu DESC LIMIT 5
"""

STEADY = """ WHERE start > (
    SELECT start FROM api WHERE apiName = 'UserMarker' AND args LIKE '%data%' ORDER BY start LIMIT 1 OFFSET 1)"""
"""Leaves out what starts before the second step of the trainer, whose ranges begin with `data`."""

SHORT_SHARE = "SELECT 100.0 * sum(CASE WHEN duration < 10000 THEN duration ELSE 0 END) / sum(duration) FROM kernel"

SHORT_CALLS = "SELECT 100.0 * sum(duration < 10000) / count(*) FROM kernel"

_LATEST = "max(end) OVER (ORDER BY start, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"

IDLE = f"SELECT sum(max(0, start - latest)) FROM (SELECT start, {_LATEST} AS latest FROM op)"
"""Time without an operation in ns: each start is compared with the latest end so far, since operations overlap."""

IDLE_BY_LAG = IDLE.replace(_LATEST, "lag(end) OVER (ORDER BY start, id)")
"""Compared with the end of the operation before: right only where nothing overlaps."""

_LINE = f"WITH line AS (SELECT opType, start, end, coalesce({_LATEST}, start) AS latest FROM op)"
"""Each operation with the latest end before it: what of it lies beyond that is time that it adds."""

PARTS = f"""{_LINE} SELECT opType AS name, sum(max(0, end - max(start, latest))) AS ns FROM line GROUP BY opType
UNION ALL SELECT 'idle', sum(max(0, start - latest)) FROM line"""

SUMMED_PARTS = f"""{BY_TYPE.replace("count(*), ", "")} UNION ALL
SELECT 'idle', max(end) - min(start) - sum(end - start) FROM op"""
"""Parts by sums of durations: right only where nothing overlaps."""

WALL_AND_IDLE = f"{_LINE} SELECT max(end) - min(start), sum(max(0, start - latest)) FROM line"
"""WallTime of the view `busy`, and how much of it has no operation: both in ns, overlapping operations count once."""

COPY_SHARE = """
SELECT 100.0 * sum(CASE WHEN opType LIKE '%copy%' THEN end - start ELSE 0 END) / sum(end - start) FROM op
"""


def one_value(database: sqlite3.Connection, sql: str) -> Any:
    """The first value of the first row."""
    return answer_of(database, sql).rows[0][0]


def parts_problem(answer: Any, database: sqlite3.Connection) -> str | None:
    """What is wrong with a query that divides WallTime into named parts, None if they add up to it."""
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
        return f"The parts add up to {100 * share:.1f} % of WallTime: some time is {why}."
    if abs(parts["idle"] - idle) > SUM_TOLERANCE * wall:
        return "The sum is right, `idle` is not: in it no operation runs. Where work overlaps, count each ns once."
    return None


def wrong(messages: Mapping[str, str]) -> tuple[Mistake, ...]:
    """Plausible wrong queries, each with what to say to it."""
    return tuple(Mistake(wrong_query(sql), message) for sql, message in messages.items())


def _example(sql: str) -> Callable[[sqlite3.Connection], str]:
    return lambda database: sql


EXERCISES = (
    Exercise(
        id="06.1",
        answer=Query(OTHERS, ("number of operations",)),
        mistakes=wrong(
            {
                OTHERS.replace("<> 'KernelExecution'", "= 'Copy'"): "No type is called so. Which are there?",
                OTHERS.replace("<> 'KernelExecution'", "LIKE '%copy%'"): "These are the copies. A fill is no kernel "
                "either, so say what they are not: `<>`.",
                OTHERS.replace("<>", "="): "These are the kernels.",
                "SELECT count(*) FROM op": "These are all operations, the kernels too.",
            }
        ),
        hints=(
            "`SELECT DISTINCT opType FROM op` shows the types that there are.",
            "`WHERE opType <> '...'` keeps what is of another type.",
        ),
        insight=lambda data: (
            f"{100 * one_value(data, OTHERS) / one_value(data, 'SELECT count(*) FROM op'):.0f} % of all operations."
        ),
    ),
    Exercise(
        id="06.2",
        answer=Query(RATE, ("TFLOP/s",), units=("TFLOP/s",)),
        mistakes=wrong(
            {
                RATE.replace("2.0", "2"): "Whole numbers stay whole when SQL divides them: write `2.0`.",
                RATE.replace("2.0", "1.0"): "Half of it: each pair is multiplied and added, two operations.",
                RATE.replace("max(duration)", "GpuTime").replace("kernel", "busy"): "GpuTime holds the copies too.",
                RATE.replace(" / 1000", ""): "Operations per ns are GFLOP/s: a thousand of them are a TFLOP/s.",
            }
        ),
        hints=(
            "The product takes 2 · rows · inner size · columns operations. The view `kernel` has a column `duration`.",
            "Operations / ns are GFLOP/s. Divide by 1000 for TFLOP/s.",
        ),
        insight=lambda data: f"{one_value(data, RATE):.1f} TFLOP/s. Compare it with AMD's larger product in the table.",
    ),
    Exercise(
        id="06.3",
        answer=Query(BY_TYPE, ("type", "number", "ns together"), units=("", "", "ns")),
        mistakes=wrong(
            {
                BY_TYPE.replace("sum", "avg"): "This is the mean. All together is asked: `sum`.",
                BY_TYPE.replace("start)", "start) / 1000"): "These are whole µs, ns are asked.",
                BY_TYPE.replace("GROUP BY opType", ""): "One row for everything: without GROUP BY there is one group.",
            }
        ),
        hints=("Three columns: the type, a count and a sum.", "An operation lasts `end - start` ns."),
        insight="Such a table is the first thing to ask of any trace: it shows at once what is missing.",
    ),
    Exercise(
        id="06.4",
        answer=Query(TOP_FIVE, ("name", "calls", "ns"), ordered=True, units=("", "", "ns")),
        mistakes=wrong(
            {
                TOP_FIVE_OF_ALL: "Copies are in it: their row has no name. Ask the view `kernel`, or leave them out.",
                "SELECT Name, TotalCalls, TotalDuration FROM top LIMIT 5": "`top` gives µs and adds up copies too. "
                "`kernel` has each kernel with its `duration` in ns.",
                TOP_FIVE.replace("total DESC", "count(*) DESC"): "These are called most often; most time is asked.",
                TOP_FIVE.replace(" DESC", ""): "These take the least time: without DESC the smallest come first.",
                TOP_FIVE.replace(
                    "BY total", "BY max(duration)"
                ): "These hold the longest single calls. Sort by the sum.",
            }
        ),
        hints=(
            "The view `kernel` has `kernelName` and `duration`.",
            "The worked question has the same form: another view, other columns.",
            "`... GROUP BY kernelName ORDER BY total DESC LIMIT 5`",
        ),
        insight="This is the view `top` in ns, and of the kernels alone.",
    ),
    Exercise(
        id="06.5",
        answer=Query(TWO_CLOCKS, ("name", "ns on the GPU", "ns in launch calls"), ordered=True, units=("", "ns", "ns")),
        mistakes=wrong(
            {
                TWO_CLOCKS.replace(
                    "WHERE o.opType = 'KernelExecution'", ""
                ): "The row without a name holds the copies: keep the kernels with WHERE.",
                TWO_CLOCKS.replace("BY gpu", "BY launch"): "Sorted by the launch calls: that is `ktop` again.",
                TWO_CLOCKS.replace(
                    "= l.api_id", "= l.op_id"
                ): "The second JOIN takes an operation for a call: `l.api_id`.",
                TWO_CLOCKS.replace("sum(o.end - o.start)", "sum(a.end - a.start)"): "Both times are those of the calls "
                "(`a`). The time on the GPU is that of the operation (`o`).",
            }
        ),
        hints=(
            "`rocpd_api_ops` has a row for each launch: `api_id` is the call, `op_id` what it launched.",
            "Begin with `FROM rocpd_api_ops l JOIN op o ON o.id = l.op_id JOIN api a ON a.id = l.api_id`.",
            "`SELECT o.description, sum(o.end - o.start) AS gpu, sum(a.end - a.start) ... GROUP BY o.description`",
        ),
        insight="Two questions, two columns: which kernel is slow, and which one is slow to launch.",
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
            "`SELECT 100.0 * sum(CASE ... END) / sum(duration) FROM kernel WHERE start > (...)`",
        ),
        insight=lambda data: (
            f"And {one_value(data, SHORT_CALLS + STEADY):.0f} % of the calls, each of which takes the host some µs."
        ),
    ),
    Exercise(
        id="06.7",
        answer=Query(TOP_FIVE_ROCPD, ("name", "calls", "ns"), ordered=True, units=("", "", "ns")),
        mistakes=wrong(
            {
                "SELECT name, total_calls, total_duration FROM top_kernels LIMIT 5": "`top_kernels` gives µs, ns are "
                "asked. `kernels` has each dispatch with its `duration` in ns.",
                "SELECT name, total_calls, total_duration FROM top LIMIT 5": "It mixes in the calls on the host.",
            }
        ),
        hints=(
            "The view is called `kernels` here, and has `name` and `duration`.",
            "Take your answer of rung 4 and change three names.",
        ),
        insight="The question stayed, three names changed.",
    ),
    Exercise(
        id="06.8",
        answer=Query(IDLE, ("ns",), units=("ns",)),
        mistakes=wrong(
            {
                IDLE_BY_LAG: "Work overlaps, and `lag` knows one row: compare with the latest end of all before.",
                IDLE.replace("max(0, start - latest)", "start - latest"): "Where work overlaps, `start - latest` is "
                "negative: add up `max(0, ...)`.",
                IDLE.replace(
                    "sum(max(0, start - latest))", "max(start - latest)"
                ): "This is the longest gap. All of them together are asked.",
                "SELECT sum(WallTime - GpuTime) FROM busy": "That adds up the GPUs, each with its own idle time, and "
                "counts overlapping work twice.",
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
        id="06.9",
        answer=Property(parts_problem, _example(PARTS)),
        mistakes=(
            Mistake(_example(BY_TYPE.replace("count(*), ", "")), "call one of them `idle`"),
            Mistake(_example(SUMMED_PARTS), "count each ns once"),
            Mistake(_example("SELECT 'kernels', 1, 2"), "Two columns are asked"),
            Mistake(_example(f"{PARTS} UNION ALL SELECT 'all', max(end) - min(start) FROM op"), "counted twice"),
            Mistake(_example(f"SELECT name, ns / 1000.0 FROM ({PARTS})"), "or not in ns"),
        ),
        hints=(
            "Rung 3 has the form of the busy parts, but counts some time twice. What is missing is one row more.",
            "WITH names a result, so that the next SELECT can use it; UNION ALL puts rows below others.",
            "`WITH line AS (SELECT opType, start, end, coalesce(max(end) OVER (...), start) AS latest FROM op)`, then "
            "a SELECT with GROUP BY opType, and one for `idle`: rung 8.",
        ),
        insight="Parts that add up to the whole hide nothing.",
    ),
    Exercise(
        id="06.10",
        answer=Query(COPY_SHARE, ("percent",), units=("percent",)),
        mistakes=wrong(
            {
                COPY_SHARE.replace(
                    "LIKE '%copy%'", "<> 'KernelExecution'"
                ): "What is no `KernelExecution` need not be a copy: list the types, and look at some descriptions.",
                "SELECT 100.0 * sum(opType LIKE '%copy%') / count(*) FROM op": "This is their share of the operations. "
                "Their share of the time is asked.",
                COPY_SHARE.replace("%copy%", "CopyHost%"): "These are the copies from the host alone.",
            }
        ),
        hints=(
            "List the types first, with number and time: rung 3.",
            "One type is neither a kernel by its name nor a copy. What are its descriptions?",
            "The form is that of rung 6, with `opType LIKE '%copy%'` as condition.",
        ),
        insight="Little: serving a model moves few bytes between host and GPU.",
    ),
)
