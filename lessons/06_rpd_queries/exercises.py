"""Exercises of lesson 06. An answer is a string of SQL, and the data is an open SQLite connection.

06.1 and 06.2 query the example run in a database of rocprofv3. 06.3 and 06.4 query a run on four
GPUs, where operations overlap. 06.5 queries a trace of vLLM by rpd. `op` is the lesson's view of
kernels and copies, and `marks` is its table of ranges. Definitions of the views and columns:
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
"""GPU time by the range in which the launch call starts; the trainer's ranges don't overlap."""

_LATEST = "max(end) OVER (ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"

IDLE = f"SELECT sum(max(0, start - latest)) FROM (SELECT start, {_LATEST} AS latest FROM op)"
"""Idle time in ns: each start is compared with the latest end so far, because operations overlap."""

IDLE_BY_LAG = IDLE.replace(_LATEST, "lag(end) OVER (ORDER BY start, end)")
"""Idle time by the end of the previous operation, which is right only without overlap."""

BY_GPU = """
SELECT gpu, sum(CASE WHEN name LIKE '%nccl%' THEN end - start ELSE 0 END),
    sum(CASE WHEN name LIKE '%nccl%' THEN 0 ELSE end - start END) FROM op WHERE kind = 'kernel' GROUP BY gpu
"""
"""Time in ns on each GPU: RCCL's kernels, and all other kernels."""

COPY_SHARE = """
SELECT 100.0 * sum(CASE WHEN opType LIKE '%copy%' THEN end - start ELSE 0 END) / sum(end - start) FROM op
"""

HOST_SHARE = COPY_SHARE.replace("%copy%", "%Host%")

WITHIN_SHARE = COPY_SHARE.replace("%copy%", "%DeviceToDevice%") + "WHERE opType LIKE '%copy%'"


def one_value(database: sqlite3.Connection, sql: str) -> Any:
    """Return the first value of the first row."""
    return answer_of(database, sql).rows[0][0]


def wrong(messages: Mapping[str, str]) -> tuple[Mistake, ...]:
    """Return a Mistake for each plausible wrong query and its feedback."""
    return tuple(Mistake(wrong_query(sql), message) for sql, message in messages.items())


def edited(sql: str, messages: Mapping[tuple[str, str], str]) -> tuple[Mistake, ...]:
    """Return mistakes that replace one part of the right query by another."""
    return wrong({sql.replace(*edit): message for edit, message in messages.items()})


EXERCISES = (
    Exercise(
        id="06.1",
        answer=Query(TOP_FIVE, ("name", "calls", "ns"), ordered=True, units=("", "", "ns")),
        mistakes=(
            *wrong(
                {
                    "SELECT name, total_calls, total_duration FROM top LIMIT 5": (
                        "You used the `top` view, which also contains host calls. Use the"
                        " `kernels` view."
                    ),
                    **dict.fromkeys(
                        (CALLS, CALLS.replace("GROUP", "WHERE category NOT LIKE 'MARKER%' GROUP")),
                        (
                            "You added up host calls from `regions`, so these times are host"
                            " times. Use the `kernels` view for GPU times."
                        ),
                    ),
                }
            ),
            *edited(
                TOP_FIVE,
                {
                    ("total DESC", "count(*) DESC"): (
                        "You sorted by the number of calls, but the question ranks kernels by time."
                        " Sort by the sum of `duration`."
                    ),
                    (" DESC", ""): (
                        "You sorted with the smallest total first. Add `DESC` to `ORDER BY`."
                    ),
                    ("BY total", "BY max(duration)"): (
                        "You sorted by the longest single call. Sort by the sum of `duration`."
                    ),
                    ("sum(", "avg("): (
                        "You computed the mean per call, but the question asks for the total. Use"
                        " `sum(duration)`."
                    ),
                },
            ),
        ),
        hints=(
            "Use the `kernels` view, which has the columns `name` and `duration`.",
            "Change the query from the section above: use another view, no `WHERE` and five rows.",
            "End the query with `GROUP BY name ORDER BY total DESC LIMIT 5`.",
        ),
        insight="The `top_kernels` view contains the same table, with times in µs.",
    ),
    Exercise(
        id="06.2",
        answer=Query(BY_RANGE, ("range", "ns on the GPU"), ordered=True, units=("", "ns")),
        mistakes=edited(
            BY_RANGE,
            {
                ("ON r.start", "ON m.tid = r.tid AND r.start"): (
                    "You compared thread IDs, which excludes the backward kernels because"
                    " PyTorch's autograd launches them from a second thread. Compare only the"
                    " times."
                ),
                ("ON r.start", "ON k.start"): (
                    "You used the time when the kernel ran, but by then, the host may be in a"
                    " later range. Use the start of the host call, `r.start`."
                ),
                ("sum(k.duration)", "sum(r.duration)"): (
                    "You added up the durations of the host calls (`r`). For GPU time, add up the"
                    " kernel durations (`k`)."
                ),
                ("sum(k.duration)", "sum(m.end - m.start)"): (
                    "You added the length of the range once for each kernel. Add up `k.duration`"
                    " instead."
                ),
                ("sum(k.duration)", "count(*)"): (
                    "You counted the kernels, but the question asks for their time. Add up"
                    " `k.duration`."
                ),
            },
        ),
        hints=(
            "Join three tables: kernels, host calls (by `stack_id`) and ranges (by time).",
            "Add `JOIN marks m ON r.start BETWEEN m.start AND m.end`.",
            "Start with `SELECT m.range, sum(k.duration) AS gpu` and end with"
            " `GROUP BY m.range ORDER BY gpu DESC`.",
        ),
        insight=(
            "A faster forward pass alone can't save half of this time. A kernel table doesn't show"
            " this."
        ),
    ),
    Exercise(
        id="06.3",
        answer=Query(IDLE, ("ns",), units=("ns",)),
        mistakes=(
            *wrong(
                {
                    IDLE_BY_LAG: (
                        "You compared each start only with the previous row, but an older"
                        " operation may still be running. Use the latest end of all earlier rows."
                    ),
                    "SELECT sum(WallTime - GpuTime) FROM busy": (
                        "The `busy` view covers only the first file, which is from one of the four"
                        " GPUs. Query `op` instead."
                    ),
                }
            ),
            *edited(
                IDLE,
                {
                    ("max(0, start - latest)", "start - latest"): (
                        "You included negative gaps, which occur if operations overlap. Add up"
                        " `max(0, ...)`."
                    ),
                    ("sum(max(0, start - latest))", "max(start - latest)"): (
                        "You found the longest gap. Add up all gaps."
                    ),
                    ("OVER (ORDER", "OVER (PARTITION BY gpu ORDER"): (
                        "`PARTITION BY gpu` computes the idle time of each GPU separately. Put all"
                        " rows into one window to find the times when all GPUs are idle."
                    ),
                    (" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING", ""): (
                        "Your window includes the current row, which ends after its own start. End"
                        " the window one row earlier with `ROWS BETWEEN UNBOUNDED PRECEDING AND 1"
                        " PRECEDING`."
                    ),
                    ("FROM op)", "FROM op WHERE kind = 'kernel')"): (
                        "You left out the copies, but a GPU that copies data isn't idle. Use all"
                        " rows of `op`."
                    ),
                },
            ),
        ),
        hints=(
            "Start with the window from the text above, which returns the latest end so far.",
            "Compute the gaps in an inner SELECT, and add them up in an outer SELECT.",
            "Complete `SELECT sum(max(0, start - latest)) FROM (SELECT start, max(end) OVER (...)"
            " AS latest FROM op)`.",
        ),
        insight=lambda data: (
            f"All GPUs are idle for {one_value(data, IDLE) / 1e6:,.1f} ms. With `lag`, the result"
            f" would be {one_value(data, IDLE_BY_LAG) / 1e6:,.1f} ms."
        ),
    ),
    Exercise(
        id="06.4",
        answer=Query(BY_GPU, ("gpu", "ns of RCCL", "ns of the others"), units=("", "ns", "ns")),
        mistakes=edited(
            BY_GPU,
            {
                (" WHERE kind = 'kernel'", ""): (
                    "You included copies with the other kernels. Add `WHERE kind = 'kernel'`."
                ),
                ("end - start", "1"): (
                    "You counted the kernels, but the question asks for their time. Add up `end -"
                    " start`."
                ),
                ("GROUP BY gpu", ""): ("You combined all GPUs into one row. Add `GROUP BY gpu`."),
                ("THEN 0 ELSE end - start", "THEN end - start ELSE end - start"): (
                    "Your second total includes RCCL kernels. Use 0 after `THEN` in the second"
                    " `CASE`."
                ),
                ("sum(", "max("): (
                    "You found the longest individual kernels. Use `sum` to add up all kernels."
                ),
                ("%nccl%", "nccl"): (
                    "Your pattern matches no kernel. The names contain `nccl`, so write `%nccl%`."
                ),
            },
        ),
        hints=(
            "Return one row per GPU: `SELECT gpu, ... FROM op ... GROUP BY gpu`.",
            "Add up `CASE WHEN name LIKE '%nccl%' THEN end - start ELSE 0 END` for RCCL.",
            "For the other kernels, swap the two values. Add `WHERE kind = 'kernel'`.",
        ),
        insight="No ready-made table covers four files or divides kernels into your own groups.",
    ),
    Exercise(
        id="06.5",
        answer=Query(COPY_SHARE, ("percent",), units=("percent",)),
        mistakes=(
            *edited(
                COPY_SHARE,
                {
                    ("LIKE '%copy%'", "<> 'KernelExecution'"): (
                        "You counted operations of type `Task` as copies. List the types with"
                        " `GROUP BY opType`, and look at some of their descriptions."
                    ),
                    ("%copy%", "CopyHost%"): (
                        "You counted only copies from the host. Include every type of copy."
                    ),
                    ("%copy%", "%Host%"): (
                        "You left out copies within the GPU. Include every type of copy."
                    ),
                    ("100.0 * ", ""): (
                        "You divided integers, so SQL rounded the share down to 0. Start with"
                        " `100.0 *`."
                    ),
                    ("100.0", "100"): (
                        "You used only integers, so SQL discarded the decimals. Write `100.0 *`."
                    ),
                    ("/ sum(end - start)", "/ (max(end) - min(start))"): (
                        "You divided by the time from the first operation to the last, which"
                        " includes idle time. Divide by the total time of all operations."
                    ),
                    (
                        "/ sum(end - start)",
                        "/ sum(CASE WHEN opType LIKE '%copy%' THEN 0 ELSE end - start END)",
                    ): (
                        "You divided by the time of everything except copies. Divide by the total"
                        " time of all operations, including copies."
                    ),
                },
            ),
            *wrong(
                {
                    "SELECT 100.0 * sum(opType LIKE '%copy%') / count(*) FROM op": (
                        "You computed a share of the operation count. Use the operation time, `end"
                        " - start`."
                    ),
                    "SELECT 100.0 * (SELECT sum(end - start) FROM copy) / sum(end - start) FROM op": (
                        "The `copy` view contains host calls, so you measured host time. Use the"
                        " rows of `op`, which include the copies on the GPU."
                    ),
                    "SELECT 100.0 * (SELECT sum(end - start) FROM copyop) / sum(end - start)"
                    " FROM op": (
                        "The `copyop` view contains only copies whose host call was recorded, so"
                        " some copies are missing. Use `op`, which contains all copies."
                    ),
                }
            ),
        ),
        hints=(
            "List the types with their counts and times, as for the smaller product.",
            "Look at the descriptions of the type that has neither `Kernel` nor `Copy` in its name.",
            "Use the `CASE` of 06.4 with the condition `opType LIKE '%copy%'`.",
        ),
        insight=lambda data: (
            f"Copies take little time, and {one_value(data, WITHIN_SHARE):.0f}% of this time is for"
            " CopyDeviceToDevice, which copies within the GPU. Copies between the host and the GPU"
            f" take only {one_value(data, HOST_SHARE):.1f}% of the operation time."
        ),
    ),
)
