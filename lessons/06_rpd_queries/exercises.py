"""Exercises of lesson 06, the ladder: SQL text is the answer, a TraceDatabase the data.

06.1, 06.2 and 06.4 to 06.7 ask the learner's own training run in an .rpd file, 06.3 the own matrix product, 06.8 the
training run in a database of rocprofv3, and 06.9 and 06.10 the recording of AMD's blog where it is there. Views and
columns: rocpd_python/rocpd/schema_data of https://github.com/ROCm/rocmProfileData, and
projects/rocprofiler-sdk/source/share/rocprofiler-sdk-rocpd of https://github.com/ROCm/rocm-systems.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proflab.exercises.answers import Property
from proflab.exercises.model import Exercise, Mistake
from proflab.exercises.queries import KnownQuery, Query, known_query, wrong_query
from proflab.parts.published_products import published_products
from proflab.parts.trace_database import QuestionError, TraceDatabase

LARGE_FLOPS = 2 * 100_000 * 50_000 * 800
"""Operations of the product in `runs/06/large.rpd`: a multiplication and an addition for each pair of values."""

SHORT_NS = 10_000
"""Below this a kernel counts as short in 06.7: a launch call takes some µs too."""

SUM_TOLERANCE = 0.001
"""How far the parts may be from the whole, and `idle` from the time without an operation: a fraction of the whole."""

COUNT = "SELECT count(*) FROM op"

COPIES = "SELECT count(*) FROM op WHERE opType LIKE 'Copy%'"

RATE = f"SELECT {float(LARGE_FLOPS)} / max(duration) / 1000 FROM kernel"

BY_TYPE = """
SELECT opType, count(*), sum("end" - start)
FROM op GROUP BY opType
"""

TOP_FIVE = """
SELECT kernelName, count(*), sum(duration) AS total
FROM kernel GROUP BY kernelName
ORDER BY total DESC LIMIT 5
"""

TWO_CLOCKS = """
SELECT o.description, sum(o."end" - o.start) AS gpu, sum(a."end" - a.start) AS launch
FROM rocpd_api_ops l
JOIN op o ON o.id = l.op_id
JOIN api a ON a.id = l.api_id
WHERE o.opType = 'KernelExecution'
GROUP BY o.description ORDER BY gpu DESC LIMIT 5
"""

SHORT_SHARE = f"""
SELECT 100.0 * sum(CASE WHEN duration < {SHORT_NS} THEN duration ELSE 0 END) / sum(duration)
FROM kernel
"""

SHORT_CALLS = f"SELECT 100.0 * sum(duration < {SHORT_NS}) / count(*) FROM kernel"

TOP_FIVE_ROCPD = """
SELECT name, count(*), sum(duration) AS total
FROM kernels GROUP BY name
ORDER BY total DESC LIMIT 5
"""

LONGEST_GAP = """
SELECT max(gap) FROM (
    SELECT start - lag("end") OVER (ORDER BY start) AS gap FROM op
)
"""
"""Right as long as no operations overlap, as in the recording."""

TRUE_GAP = """
SELECT max(start - latest) FROM (
    SELECT start, max("end") OVER (ORDER BY start, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest
    FROM op
)
"""
"""The same where operations overlap: compared with the latest end so far, not with the end of the one before."""

_LINE = """
WITH line AS (
    SELECT opType, start, "end", coalesce(
        max("end") OVER (ORDER BY start, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start) AS latest
    FROM op
)
"""
"""Each operation with the latest end before it: what of it lies beyond that is time that it adds."""

PARTS = f"""{_LINE}SELECT opType AS name, sum(max(0, "end" - max(start, latest))) AS ns FROM line GROUP BY opType
UNION ALL
SELECT 'idle', sum(max(0, start - latest)) FROM line
"""

WALL_AND_IDLE = f'{_LINE}SELECT max("end") - min(start), sum(max(0, start - latest)) FROM line'
"""WallTime of the view `busy`, and how much of it has no operation: both in ns, overlapping operations count once."""


def one_value(database: TraceDatabase, sql: str) -> Any:
    """The first value of the first row."""
    return database.answer(sql).rows[0][0]


def longest_gap_share(database: TraceDatabase) -> float:
    """The longest time without an operation, in percent of the time from the first to the last one."""
    return float(100 * one_value(database, TRUE_GAP) / one_value(database, WALL_AND_IDLE))


def parts_problem(answer: Any, database: TraceDatabase) -> str | None:
    """What is wrong with a query that divides WallTime into named parts, None if they add up to it."""
    try:
        given = database.answer(answer)
    except QuestionError as error:
        return f"{str(error)[:1].upper()}{str(error)[1:]}."
    if len(given.columns) != 2 or not all(isinstance(ns, int | float) for _, ns in given.rows):
        return f"Two columns are asked, a name and a number of ns, in each row; it gives {len(given.columns)}."
    parts = {str(name): ns for name, ns in given.rows}
    if len(parts) < 3 or len(parts) < len(given.rows) or "idle" not in parts:
        return "Give at least three rows of different names, and call one of them `idle`."
    if min(parts.values()) < 0:
        return "A part is negative: what was subtracted from what?"
    wall, idle = database.answer(WALL_AND_IDLE).rows[0]
    share = sum(parts.values()) / wall
    if share > 1 + SUM_TOLERANCE:
        return f"The parts add up to {100 * share:.1f} % of WallTime: some time is counted twice."
    if share < 1 - SUM_TOLERANCE:
        return f"The parts add up to {100 * share:.1f} % of WallTime: some time is in no part, or not in ns."
    if abs(parts["idle"] - idle) > SUM_TOLERANCE * wall:
        return "The sum is right, `idle` is not: it is the time in which no operation runs."
    return None


def _gap_by_lag(database: TraceDatabase) -> KnownQuery:
    """The gap to the operation before; twice that where it is right, as no operations overlap."""
    same = one_value(database, LONGEST_GAP) == one_value(database, TRUE_GAP)
    return known_query(f"SELECT 2 * ({LONGEST_GAP})" if same else LONGEST_GAP, database)


def _example(sql: str) -> Callable[[TraceDatabase], str]:
    return lambda database: sql


EXERCISES = (
    Exercise(
        id="06.1",
        answer=Query(lambda data: COUNT, ("number of operations",)),
        mistakes=(
            Mistake(
                wrong_query("SELECT count(*) FROM api"),
                "These are the calls on the host; the work of the GPU is in `op`.",
            ),
            Mistake(
                wrong_query("SELECT count(*) FROM kernel"),
                "`kernel` has the kernels only. Copies are operations too: ask `op`.",
            ),
        ),
        hints=("One row of the view `op` is one operation.", "`SELECT count(*) FROM ...`"),
        insight=lambda data: f"{one_value(data, COUNT):,} operations, behind {_calls(data):,} calls on the host.",
    ),
    Exercise(
        id="06.2",
        answer=Query(lambda data: COPIES, ("number of copies",)),
        mistakes=(
            Mistake(
                wrong_query("SELECT count(*) FROM op WHERE opType = 'Copy'"),
                "No type is called just `Copy`: `=` compares the whole word, `LIKE 'Copy%'` its beginning.",
            ),
            Mistake(
                wrong_query("SELECT count(*) FROM op WHERE opType = 'KernelExecution'"),
                "These are the kernels.",
            ),
            Mistake(
                wrong_query("SELECT count(*) FROM op WHERE opType LIKE 'CopyHost%'"),
                "These are the copies from the host. There are other directions too.",
            ),
        ),
        hints=(
            "`SELECT DISTINCT opType FROM op` shows the types that there are.",
            "`WHERE opType LIKE 'Copy%'` keeps what begins with Copy.",
        ),
        insight=lambda data: f"{100 * one_value(data, COPIES) / one_value(data, COUNT):.0f} % of all operations.",
    ),
    Exercise(
        id="06.3",
        answer=Query(lambda data: RATE, ("TFLOP/s",), units=("TFLOP/s",), relative=0.001),
        mistakes=(
            Mistake(
                wrong_query(f"SELECT {LARGE_FLOPS} / max(duration) / 1000 FROM kernel"),
                "Whole numbers divided by whole numbers are cut off in SQL: begin with `2.0 *`.",
            ),
            Mistake(
                wrong_query(f"SELECT {LARGE_FLOPS / 2} / max(duration) / 1000 FROM kernel"),
                "Half of it: each pair of values is multiplied and added, which are two operations.",
            ),
            Mistake(
                wrong_query(f"SELECT {float(LARGE_FLOPS)} / GpuTime / 1000 FROM busy"),
                "GpuTime holds the copies too. The kernel alone is asked.",
            ),
            Mistake(
                wrong_query(f"SELECT {float(LARGE_FLOPS)} / max(duration) FROM kernel"),
                "Operations per ns are GFLOP/s: a thousand of them are a TFLOP/s.",
            ),
        ),
        hints=(
            "The product takes 2 · rows · inner size · columns operations. The view `kernel` has a column `duration`.",
            "Operations / ns are GFLOP/s. Divide by 1000 for TFLOP/s.",
            "`SELECT 2.0 * 100000 * 50000 * 800 / max(duration) / 1000 FROM ...`",
        ),
        insight=lambda data: (
            f"{one_value(data, RATE):.1f} TFLOP/s ({data.origin.kind}). AMD's run on an MI200 reached "
            f"{published_products()['tflops_per_second'].iloc[1]:.1f}."
        ),
    ),
    Exercise(
        id="06.4",
        answer=Query(lambda data: BY_TYPE, ("type", "number", "ns together"), units=("", "", "ns")),
        mistakes=(
            Mistake(
                wrong_query('SELECT opType, count(*), avg("end" - start) FROM op GROUP BY opType'),
                "This is the mean. All together is asked: `sum`.",
            ),
            Mistake(
                wrong_query('SELECT opType, count(*), sum("end" - start) / 1000 FROM op GROUP BY opType'),
                "These are whole µs, ns are asked.",
            ),
            Mistake(
                wrong_query('SELECT opType, count(*), sum("end" - start) FROM op'),
                "One row for everything: without GROUP BY there is one group.",
            ),
        ),
        hints=(
            "Three columns: the type, a count and a sum.",
            'An operation lasts `"end" - start` ns. END is a word of SQL too, hence the quotes.',
            '`SELECT opType, count(*), sum("end" - start) FROM op GROUP BY ...`',
        ),
        insight="Such a table is the first thing to ask of any trace: it shows at once what is missing.",
    ),
    Exercise(
        id="06.5",
        answer=Query(lambda data: TOP_FIVE, ("name", "calls", "ns"), ordered=True, units=("", "", "ns")),
        mistakes=(
            Mistake(
                wrong_query(TOP_FIVE.replace("total DESC", "count(*) DESC")),
                "These are called most often; those with the most time are asked.",
            ),
            Mistake(
                wrong_query(TOP_FIVE.replace(" DESC", "")),
                "These take the least time: ORDER BY begins with the smallest, unless DESC stands behind it.",
            ),
            Mistake(
                wrong_query(TOP_FIVE.replace("ORDER BY total", "ORDER BY max(duration)")),
                "These hold the longest single calls. Sort by the sum of a kernel's calls.",
            ),
            Mistake(
                wrong_query(
                    'SELECT description, count(*), sum("end" - start) AS total FROM op GROUP BY description '
                    "ORDER BY total DESC LIMIT 5"
                ),
                "A row without a name: copies have no description. Ask `kernel`, or leave them out with WHERE.",
            ),
        ),
        hints=(
            "The view `kernel` has `kernelName` and `duration`.",
            "`AS total` names a column, and ORDER BY can use the name.",
            "`... GROUP BY kernelName ORDER BY total DESC LIMIT 5`",
        ),
        insight="This is your own `top`: without the copies, and in ns instead of whole µs.",
    ),
    Exercise(
        id="06.6",
        answer=Query(
            lambda data: TWO_CLOCKS,
            ("name", "ns on the GPU", "ns in launch calls"),
            ordered=True,
            units=("", "ns", "ns"),
        ),
        mistakes=(
            Mistake(
                wrong_query(TWO_CLOCKS.replace("ORDER BY gpu", "ORDER BY launch")),
                "Sorted by the launch calls: that is `ktop` again. Sort by the time on the GPU.",
            ),
            Mistake(
                wrong_query(TWO_CLOCKS.replace("ON a.id = l.api_id", "ON a.id = l.op_id")),
                "The second JOIN compares a call's number with an operation's: use `l.api_id`.",
            ),
            Mistake(
                wrong_query(TWO_CLOCKS.replace('sum(o."end" - o.start) AS gpu', 'sum(a."end" - a.start) AS gpu')),
                "Both times are those of the calls (`a`). The time on the GPU is that of the operation (`o`).",
            ),
        ),
        hints=(
            "`rocpd_api_ops` has a row for each launch: `api_id` is the call, `op_id` what it launched.",
            "Begin with `FROM rocpd_api_ops l JOIN op o ON o.id = l.op_id JOIN api a ON a.id = l.api_id`.",
            '`SELECT o.description, sum(o."end" - o.start) AS gpu, sum(a."end" - a.start) ...`, of the rows with '
            "`o.opType = 'KernelExecution'`, one group per `o.description`.",
        ),
        insight="Two questions, two columns: which kernel is slow, and which one is slow to launch.",
    ),
    Exercise(
        id="06.7",
        answer=Query(lambda data: SHORT_SHARE, ("percent",), units=("percent",)),
        mistakes=(
            Mistake(
                wrong_query(SHORT_CALLS),
                "This is their share of the calls. The share of the time is asked.",
            ),
            Mistake(
                wrong_query(SHORT_SHARE.replace("100.0", "100")),
                "The part behind the point is cut off: whole numbers stay whole. Write `100.0`.",
            ),
            Mistake(
                wrong_query(SHORT_SHARE.replace("sum(duration)", "(SELECT GpuTime FROM busy)")),
                "GpuTime holds the copies too. Divide by the time of the kernels.",
            ),
            Mistake(
                wrong_query(SHORT_SHARE.replace("<", ">=")),
                "This is the rest: the longer ones.",
            ),
        ),
        hints=(
            f"{SHORT_NS // 1000} µs are {SHORT_NS} ns. Two sums: one over the short kernels, one over all.",
            f"`CASE WHEN duration < {SHORT_NS} THEN duration ELSE 0 END` is the duration of the short ones, else 0.",
            "`SELECT 100.0 * sum(CASE ... END) / sum(duration) FROM kernel`",
        ),
        insight=lambda data: (
            f"{one_value(data, SHORT_SHARE):.0f} % of the time, {one_value(data, SHORT_CALLS):.0f} % of "
            "the calls. The host needs some µs for each of them, as you saw on rung 6."
        ),
    ),
    Exercise(
        id="06.8",
        answer=Query(lambda data: TOP_FIVE_ROCPD, ("name", "calls", "ns"), ordered=True, units=("", "", "ns")),
        mistakes=(
            Mistake(
                wrong_query("SELECT name, total_calls, total_duration FROM top_kernels LIMIT 5"),
                "`top_kernels` gives µs, ns are asked. `kernels` has each dispatch with its `duration` in ns.",
            ),
            Mistake(
                wrong_query("SELECT name, total_calls, total_duration FROM top LIMIT 5"),
                "The view `top` of this format mixes in the calls on the host. Ask `kernels`.",
            ),
            Mistake(
                wrong_query(TOP_FIVE_ROCPD.replace("total DESC", "count(*) DESC")),
                "These are called most often; those with the most time are asked.",
            ),
        ),
        hints=(
            "The view is called `kernels` here, and has `name` and `duration`.",
            "Take your answer of rung 5 and change three names.",
        ),
        insight="The question stayed, three names changed. Compare the first rows with those of rung 5.",
    ),
    Exercise(
        id="06.9",
        answer=Query(lambda data: TRUE_GAP, ("ns",), units=("ns",)),
        mistakes=(
            Mistake(
                wrong_query(LONGEST_GAP.replace('lag("end")', "lag(start)")),
                'From start to start: that holds the operation itself. Look back to its `"end"`.',
            ),
            Mistake(
                wrong_query(LONGEST_GAP.replace("lag(", "lead(")),
                "`lead` looks at the row behind. You need the one before: `lag`.",
            ),
            Mistake(
                wrong_query("SELECT WallTime - GpuTime FROM busy"),
                "These are all gaps together. The longest single one is asked.",
            ),
            Mistake(_gap_by_lag, "Two operations overlap here: compare with the latest end so far."),
        ),
        hints=(
            '`lag("end") OVER (ORDER BY start)` is the end of the operation before.',
            "A window can't stand inside `max(...)`: first a SELECT that gives the gaps, then one that asks it.",
            '`SELECT max(gap) FROM (SELECT start - lag("end") OVER (ORDER BY start) AS gap FROM op)`. Where operations '
            "overlap, the latest end so far takes the place of `lag`: see the solution.",
        ),
        insight=lambda data: (
            f"{one_value(data, TRUE_GAP) / 1e6:,.1f} ms, which is {longest_gap_share(data):.0f} % of "
            "the time from the first to the last operation."
        ),
    ),
    Exercise(
        id="06.10",
        answer=Property(parts_problem, _example(PARTS)),
        mistakes=(
            Mistake(_example('SELECT opType, sum("end" - start) FROM op GROUP BY opType'), "call one of them `idle`"),
            Mistake(_example("SELECT 'kernels', 1, 2"), "Two columns are asked"),
            Mistake(
                _example(f"{PARTS} UNION ALL SELECT 'all', GpuTime FROM busy"),
                "some time is counted twice",
            ),
            Mistake(_example(f"SELECT name, ns / 1000.0 FROM ({PARTS})"), "or not in ns"),
            Mistake(
                _example(
                    "SELECT CASE name WHEN 'idle' THEN 'rest' WHEN 'CopyDeviceToHost' THEN 'idle' ELSE name END, ns "
                    f"FROM ({PARTS})"
                ),
                "`idle` is not",
            ),
        ),
        hints=(
            "Rung 4 gives the busy parts. What is missing is one row more.",
            "WITH names a result, so that the next SELECT can use it; UNION ALL puts rows below others.",
            "`idle` is `WallTime - GpuTime`, as long as no operations overlap. The solution works for those too: it "
            "counts of each operation what lies beyond the latest end so far.",
        ),
        insight="Parts that add up to the whole hide nothing.",
    ),
)


def _calls(database: TraceDatabase) -> int:
    return one_value(database, "SELECT count(*) FROM api")
