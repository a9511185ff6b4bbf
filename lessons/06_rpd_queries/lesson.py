# %% [markdown]
# # Can I ask my own question?
#
# Every profiler answers the questions that its authors thought of. Yours may not be among them. Two tools for AMD
# GPUs, rpd and rocprofv3, write a *database*: a file of tables that you question in the language SQL. You learn ten
# questions, each a little harder than the one before, and catch a ready-made answer that misleads.
#
# After this lesson you can
#
# - record a program with rpd or rocprofv3 into one SQLite file, and list what is in it;
# - ask for counts, sums, rankings, shares, links between host and GPU, and gaps;
# - check a ready-made view before you believe it.
#
# You need lessons 00 and 02, no SQL, and about an hour. An AMD GPU is used where there is one; without it the commands
# are answered by stand-ins, which write the files of a *modelled* MI300X. A *schema* is the layout of a database. The
# `.rpd` files here are those of rpd of 2026 (schema 3) and of 2024 (schema 2), the databases those of rocprofv3 since
# ROCm 7.0.

# %%
import sqlite3

import pandas as pd
import proflab
import tidyprof
from proflab import exercise, say, show_figure, show_table
from proflab.exercises import exercises_of
from proflab.parts.published_products import published_products
from proflab.parts.trace_database import open_trace
from proflab.parts.two_rankings import plot_two_rankings, two_rankings
from proflab.parts.witnesses import read_witnesses
from tidyprof import plots

lesson = proflab.start("06")
rungs = exercises_of("06")

# %% [markdown]
# ## The picture to keep in mind
#
# ```
#   host                       link                       GPU
#   api                        rocpd_api_ops              op
#   one row per HIP call  <--  api_id | op_id  -->        one row per kernel or copy
#   apiName, start, end                                   description, opType, start, end
# ```
#
# A call and the work that it launches are two rows with two durations, all times in ns on the same clock. A *table*
# holds rows; a *view* is a stored question that looks like a table. An *operation* is a kernel or a copy that the GPU
# ran. rpd's views:
#
# | view | one row per | columns | beware |
# | --- | --- | --- | --- |
# | `op` | operation | `opType`, `description`, `start`, `end` | copies have no `description` |
# | `api` | call on the host | `apiName`, `start`, `end` | |
# | `kernel` | kernel | `kernelName`, `duration` and more | |
# | `copyop` | copy | `size`, `duration` and more | |
# | `top` | kernel name or type of copy | `TotalCalls`, `Percentage` and more | whole µs |
# | `busy` | GPU | `GpuTime`, `WallTime`, `Busy` | durations added up: can exceed 1 |
#
# ## Predict
#
# AMD's blog on rpd multiplied two matrices, then two that needed ten times the arithmetic. Guess before you look.

# %%
# solution
rate_guess, gap_guess = 1.5, 20
# end solution
proflab.predict("06.a", rate_guess, unit="times", what="the larger product's FLOP/s, compared with the smaller one's")
proflab.predict("06.b", gap_guess, unit="%", what="the share of the smaller run that its longest gap takes")

# %% [markdown]
# ## Capture
#
# `runTracer.sh` stands before the command. `-o` must come first, and replaces the file. The first two lines repeat
# the blog's study: a matrix X times a matrix W, in 32-bit numbers. The third trains the course's ResNet for a few
# steps. rpd is no part of ROCm: you build it from [its repository](https://github.com/ROCm/rocmProfileData). On a real
# node the larger X fills twenty gigabytes of the host's memory. If that is too much, take fewer rows, and leave out the
# third question, whose check counts on these sizes.

# %% language="bash"
# runTracer.sh -o runs/06/small.rpd python -m cifar_train.matmul --x-shape 50000 10000 --w-shape 10000 800
# runTracer.sh -o runs/06/large.rpd python -m cifar_train.matmul --x-shape 100000 50000 --w-shape 50000 800
# runTracer.sh -o runs/06/train.rpd python -m cifar_train --max-steps 4 --run-dir runs/06/train

# %% [markdown]
# ## First look
#
# Python brings SQLite along; in a terminal `sqlite3 runs/06/small.rpd` does the same. Two lines are enough:

# %%
connection = sqlite3.connect("file:runs/06/small.rpd?mode=ro", uri=True)
pd.read_sql("SELECT name, type FROM sqlite_master WHERE type = 'view'", connection)

# %% [markdown]
# `open_trace` does it with more care: it can only read, gives up after some seconds, knows where the numbers come
# from, and turns SQLite's complaints into advice. `ask` takes any question. It also knows a function
# `short_name(...)`, since names of kernels can fill a page.

# %%
small, large, train = (open_trace(f"runs/06/{name}.rpd") for name in ("small", "large", "train"))
show_table(small.ask("SELECT * FROM busy"), "gpuId GpuTime WallTime Busy", "Small product: the view busy, ns")
show_table(large.ask("SELECT * FROM busy"), "gpuId GpuTime WallTime Busy", "Large product: the view busy, ns")
tops = small.ask("SELECT short_name(Name) AS name, * FROM top LIMIT 5")
show_table(tops, "name TotalCalls Percentage", "Small product: the view top")

# %% [markdown]
# ## The blog's study
#
# `Busy` is GpuTime, the sum of all operations, divided by WallTime, the time from the first to the last operation.
# These are the two runs as AMD published them. The blog praises the higher `Busy` of the larger one. Look at the other
# columns. A *tile* is the piece of the result that one group of threads computes.

# %%
published = published_products()
columns = "run product busy gpu_ms wall_ms idle_ms kernel_ms tile TFLOP/s"
show_table(published.rename(columns={"tflops_per_second": "TFLOP/s"}), columns, "AMD's two matrix products")
first, second = published.iloc[0], published.iloc[1]
rate = second.tflops_per_second / first.tflops_per_second
say(
    f"Busy rose by a factor of {second.busy / first.busy:.1f}. But the product itself ran at **{rate:.2f} times** the "
    f"rate, with another kernel that has smaller tiles. And the GPU was idle for {first.idle_ns / 1e9:.2f} s "
    f"in one run and {second.idle_ns / 1e9:.2f} s in the other. Busy is higher because more work, and slower work, "
    "stands beside nearly the same idle time."
)

# %% [markdown]
# A higher `Busy` is no success in itself. Your runs are almost never idle if they are modelled: the model knows nothing
# of what AMD's program did in that time. The ninth question looks for it, in the file of the blog's smaller run.
#
# ## The ladder
#
# Each rung adds one word. Your answer is the SQL text itself, in quotes, or in three quotes over several lines. The
# check runs it on your file and compares what comes out. To see what your question gives: `train.ask(answer)`.
#
# | rung | new | what it does |
# | --- | --- | --- |
# | 1 | `SELECT count(*) FROM t` | counts rows |
# | 2 | `WHERE c LIKE 'Copy%'` | keeps some rows; `%` stands for anything |
# | 3 | `max(c)`, `/` | computes; whole numbers stay whole, so write `2.0` |
# | 4 | `sum(c)`, `GROUP BY c` | adds up; one row per value of `c` |
# | 5 | `AS n`, `ORDER BY n DESC LIMIT 5` | names a column; the five largest |
# | 6 | `FROM t a JOIN u b ON b.id = a.u_id` | puts rows of two tables side by side; `a` and `b` are short for them |
# | 7 | `CASE WHEN c < 9 THEN x ELSE 0 END` | chooses within a row |
# | 8 | the same in rocprofv3's database | other names |
# | 9 | `lag(c) OVER (ORDER BY start)` | looks at the row before |
# | 10 | `WITH n AS (SELECT ...)`, `UNION ALL` | builds on a question; puts rows below each other |

# %%
# Rung 1, 1 minute: how many operations did the GPU run?
q = exercise("06.1", train)
# solution
answer = "SELECT count(*) FROM op"
# end solution
q.check(answer)

# %%
# Rung 2, 2 minutes: how many of them are copies?
q = exercise("06.2", train)
# solution
answer = "SELECT count(*) FROM op WHERE opType LIKE 'Copy%'"
# end solution
q.check(answer)

# %%
# Rung 3, 4 minutes: at how many TFLOP/s did your GPU multiply in `large`? Its longest kernel is the product. A product
# of n by k and k by m numbers takes 2 * n * k * m operations; the sizes stand in the capture.
q = exercise("06.3", large)
# solution
answer = "SELECT 2.0 * 100000 * 50000 * 800 / max(duration) / 1000 FROM kernel"
# end solution
q.check(answer)

# %%
# Rung 4, 3 minutes: for each type of operation its name, how many, and their ns together. END is a word of SQL too:
# write "end" - start, with the quotes.
q = exercise("06.4", train)
# solution
answer = """
SELECT opType, count(*), sum("end" - start)
FROM op GROUP BY opType
"""
# end solution
q.check(answer)

# %%
# Rung 5, 4 minutes: the five kernels with the most GPU time: name, calls, ns. The longest first.
q = exercise("06.5", train)
# solution
answer = """
SELECT kernelName, count(*), sum(duration) AS total
FROM kernel GROUP BY kernelName
ORDER BY total DESC LIMIT 5
"""
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: the view called `ktop`
#
# Files of schema 2 bring such a ranking along. It is called `ktop`, which sounds like the top kernels, and the blog
# reads it as the kernels that took the most time. Schema 3 has dropped it. The file below is the very one behind the
# blog's smaller run. If it can't be had, your training run takes its place.

# %%
there = proflab.try_recording("rpd-mi200-matmul")
blog = open_trace(there.path, origin=there.origin) if there else train
if there:
    found = blog.ask("SELECT short_name(Name) AS kernel, TotalCalls, TotalDuration FROM ktop LIMIT 3")
    show_table(found, "kernel TotalCalls TotalDuration", "AMD's smaller product: the view ktop, µs")
    say("A program that multiplies matrices, and no matrix product (GEMM) in sight?")

# %% [markdown]
# Put two durations beside each other, that of the kernel and that of the call which launched it:

# %%
ranking = two_rankings(blog)
top_kernel = ranking.iloc[0]
show_figure(plot_two_rankings(ranking, title="The same kernels, ranked by two clocks"))
say(
    f"`{top_kernel.short_name}` takes {100 * top_kernel.gpu_ns / ranking['gpu_ns'].sum():.1f} % of all kernel time. "
    f"By `ktop` it is number {top_kernel.launch_place} of {len(ranking)}, since `ktop` adds up the **launch calls on "
    "the host**. Such a call is long, for instance, where a kernel is launched for the first time and its code must be "
    "loaded. That says nothing about its time on the GPU."
)

# %% [markdown]
# The repair is to name the clock in the question. You need both tables, and the link between them: `l.api_id` is
# the number of the call, `l.op_id` that of the operation.

# %%
# Rung 6, 6 minutes: the five kernels with the most GPU time: name, ns on the GPU, ns in their launch calls. Go on with
# FROM rocpd_api_ops l JOIN op o ON o.id = l.op_id JOIN api a ON ...; copies in `op` are to be left out.
q = exercise("06.6", train)
# solution
answer = """
SELECT o.description, sum(o."end" - o.start) AS gpu, sum(a."end" - a.start) AS launch
FROM rocpd_api_ops l
JOIN op o ON o.id = l.op_id
JOIN api a ON a.id = l.api_id
WHERE o.opType = 'KernelExecution'
GROUP BY o.description ORDER BY gpu DESC LIMIT 5
"""
# end solution
q.check(answer)

# %%
# Rung 7, 4 minutes: what share of all kernel time, in percent, goes into kernels shorter than 10,000 ns?
q = exercise("06.7", train)
# solution
answer = """
SELECT 100.0 * sum(CASE WHEN duration < 10000 THEN duration ELSE 0 END) / sum(duration)
FROM kernel
"""
# end solution
q.check(answer)

# %% [markdown]
# ## The same questions to rocprofv3
#
# Since ROCm 7.0 rocprofv3 writes a database too. Its format is called *rocpd*, and so is a command beside it.
# `--runtime-trace` records HIP calls, copies and kernels; the format is named although it is the default now, as
# it was CSV before.

# %% language="bash"
# rocprofv3 --runtime-trace --output-format rocpd --output-directory runs/06 --output-file train \
#     -- python -m cifar_train --max-steps 4 --run-dir runs/06/train
# rocpd query -i runs/06/train_results.db --query "SELECT name, total_calls, percentage FROM top_kernels LIMIT 3"

# %% [markdown]
# | in rpd | in rocpd | what differs in rocpd |
# | --- | --- | --- |
# | `kernel`: `kernelName`, `duration` | `kernels`: `name`, `duration` | copies within the GPU may be kernels |
# | `copyop` | `memory_copies` | |
# | `api` | `regions` | ranges of your program are in it too |
# | `rocpd_api_ops` | `stack_id` | a call and what it launched have the same number |
# | `top` in whole µs | `top_kernels` in µs | has a view `top` too, which mixes in the calls on the host |
#
# Don't mix them up: rpd's own Python package is called `rocpd` as well.

# %%
# Rung 8, 3 minutes: your question of rung 5, to this database.
rocpd = open_trace("runs/06/train_results.db")
q = exercise("06.8", rocpd)
# solution
answer = """
SELECT name, count(*), sum(duration) AS total
FROM kernels GROUP BY name
ORDER BY total DESC LIMIT 5
"""
# end solution
q.check(answer)

# %% [markdown]
# The other rungs in the same way. The two tools saw two runs of the same training, so compare counts before times:

# %%

again = [
    ("1, operations", rungs.COUNT, "SELECT (SELECT count(*) FROM kernels) + (SELECT count(*) FROM memory_copies)"),
    ("2, copies", rungs.COPIES, "SELECT count(*) FROM memory_copies"),
    ("7, short kernels, % of time", rungs.SHORT_SHARE, rungs.SHORT_SHARE.replace("kernel", "kernels")),
]
rows = [(rung, train.answer(old).rows[0][0], rocpd.answer(new).rows[0][0]) for rung, old, new in again]
show_table(pd.DataFrame(rows, columns=["rung", "rpd", "rocpd"]), "rung rpd rocpd", "Two files", origin=rocpd.origin)
launches = rocpd.ask("""
SELECT short_name(k.name) AS name, sum(k.duration) AS gpu_ns, sum(r.duration) AS launch_ns
FROM kernels k JOIN regions r ON r.stack_id = k.stack_id
GROUP BY k.name ORDER BY gpu_ns DESC LIMIT 3
""")
show_table(launches, "name gpu_ms launch_ms", "Rung 6, asked of rocpd: the kernels' time, and that of their launches")

# %% [markdown]
# If the two differ in the number of copies, copies within the GPU are the likely reason. The comparison of the tools
# below looks into it.
#
# ## Gaps
#
# A trace has a row for everything that ran, and none for the time in which nothing ran. For that you compare each row
# with the one before, by a *window*: `OVER (ORDER BY start)` lays the rows in a line, and `lag("end")` is the end of
# the row before. This is right as long as no operations overlap. In general compare with the latest end so far:
#
# ```
# max("end") OVER (ORDER BY start, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
# ```
#
# A window can't stand inside `max(...)`. So put two questions into each other:
# `SELECT max(gap) FROM (SELECT ... AS gap FROM op)`.

# %%
# Rung 9, 5 minutes: the longest gap in `blog`, in ns: the longest time between two operations in which none runs.
q = exercise("06.9", blog)
# solution
answer = """
SELECT max(start - latest) FROM (
    SELECT start, max("end") OVER (ORDER BY start, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest
    FROM op
)
"""
# end solution
q.check(answer)

# %% [markdown]
# A picture instead of a number: both databases can be turned into a Chrome trace, a JSON file that
# [Perfetto](https://ui.perfetto.dev) opens. For rpd there is `python3 tools/rpd2tracing.py IN.rpd OUT.json` in its
# repository, a script that is not installed as a command. The course's stand-in for it is called `rpd2tracing`. It
# reads real files too, and is used here even where rpd is installed. The course's `tidyprof` does it for every format
# that it reads.

# %% language="bash"
# rpd2tracing runs/06/small.rpd runs/06/small.json
# python -m tidyprof convert runs/06/train_results.db runs/06/train.json.gz

# %%
seen = tidyprof.read(blog.path, origin=blog.origin)
work = seen.device_events
window = {"start_ns": work["start_ns"].min(), "end_ns": (work["start_ns"] + work["duration_ns"]).max()}
title = f"From the first to the last operation: the longest gap takes {rungs.longest_gap_share(blog):.0f} %"
show_figure(plots.timeline(seen, **window, title=title))

# %% [markdown]
# What did the host do in the gap? Ask for the calls inside it.

# %%
calls = blog.ask("""
WITH gap AS (
        SELECT max("end") OVER (ORDER BY start, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS begin,
               start AS finish
        FROM op
     ),
     longest AS (SELECT * FROM gap ORDER BY finish - begin DESC LIMIT 1)
SELECT apiName AS call, count(*) AS calls, sum(a."end" - a.start) AS total_ns
FROM api a JOIN longest ON a.start > begin AND a."end" < finish
GROUP BY apiName ORDER BY total_ns DESC
""")
gap_ns = blog.answer(rungs.TRUE_GAP).rows[0][0]
show_table(calls, "call calls total_ms", "HIP calls within the longest gap", rows=5)
say(
    f"They fill {calls['total_ns'].sum() / 1e6:,.1f} of {gap_ns / 1e6:,.1f} ms. In the rest the program called nothing "
    "of HIP, and rpd can't tell what it did. Calls that load code (`hipModuleLoadData`) are a hint that a library was "
    "starting, which happens once. To test this, warm up before you record, and look for the gap again."
)

# %%
# Rung 10, 8 minutes, open: divide the WallTime of `blog` into rows (name, ns) that add up to it. Give three rows or
# more, and call the one for the time without an operation `idle`.
q = exercise("06.10", blog)
# solution
answer = """
WITH part AS (SELECT opType AS name, sum("end" - start) AS ns FROM op GROUP BY opType),
     wall AS (SELECT max("end") - min(start) AS ns FROM op)
SELECT name, ns FROM part
UNION ALL
SELECT 'idle', wall.ns - (SELECT sum(ns) FROM part) FROM wall
"""
# end solution
q.check(answer)

# %% [markdown]
# ## Do the tools agree?
#
# Six witnesses, one run: the model plays two training steps once, and five tools' files are written from it: rpd,
# rocprofv3 (`rocpd` and `csv`), rocprof-sys (`sys`), torch.profiler (`torch`) and rocprof-compute (`compute`).
# `reconcile` puts them side by side, one row per name of a kernel or copy.

# %% language="bash"
# python -m proflab.parts.witnesses runs/06/witnesses --max-steps 2

# %%
witnesses = read_witnesses("runs/06/witnesses")
table = tidyprof.reconcile(witnesses)
differ = table[table["reason"] != "agree"]
sights = " ".join(f"calls_{name}" for name in witnesses)
show_table(table[table["reason"] == "agree"], f"short_name {sights} difference_ns", "All six agree", rows=3)
show_table(differ, f"short_name {sights} difference_ns", "They differ", rows=9)
say(
    f"{len(table) - len(differ)} of {len(table)} names agree to the ns. The other {len(differ)} are copies under "
    "several names. One name matters: `__amd_rocclr_copyBuffer` is a kernel of AMD's runtime that copies within the "
    "GPU. rocprofv3, rocprof-sys and rocprof-compute list it among the kernels, rpd and torch.profiler among the "
    "copies. And rocprof-compute has no other copies: it counts inside kernels. So *how many kernels?* has two right "
    f"answers. Of your training, rpd has {train.answer('SELECT count(*) FROM kernel').rows[0][0]:,} rows in `kernel`, "
    f"rocprofv3 {rocpd.answer('SELECT count(*) FROM kernels').rows[0][0]:,} in `kernels`."
)

# %% [markdown]
# On real machines the witnesses saw separate runs, and each tool slows the program in its own way. Then compare
# counts first, and times with the spread that you know from lesson 00.
#
# ## Decide
#
# A gap, a copy or a kernel: the largest part chooses the next question. Name it before you run the cell. Mind the
# start: your training run has its first step in it, which lesson 00 taught you to leave out.

# %%
NEXT = {
    "idle": "what does the host do meanwhile? (lesson 03)",
    "KernelExecution": "is the top kernel near its ceiling? (lesson 05)",
}


def decide(name, database):
    parts = database.ask(rungs.PARTS).sort_values("ns")
    largest, share = parts["name"].iloc[-1], 100 * parts["ns"].iloc[-1] / parts["ns"].sum()
    say(f"{name}: {largest} takes {share:.0f} %. Next: {NEXT.get(largest, 'can this copy be smaller, or hidden?')}")


decide("Your smaller product", small)
decide("Your training run", train)
proflab.reveal("06.a", rate, origin=published)
if there:
    decide("AMD's smaller product", blog)
    proflab.reveal("06.b", rungs.longest_gap_share(blog), origin=blog)

# %% [markdown] tags=["given"]
# ## What this view cannot show
#
# A trace knows when, not why: nothing about what the host did outside HIP (lesson 03), nor how well a kernel used the
# GPU (lesson 05). PyTorch's operators are missing unless the program marks them. The size of a copy is blank above
# 2 GiB in rpd, so no bandwidth can be had from it. And SQL answers a wrong question as readily as a right one: name the
# clock, the unit and the rows.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# | `runTracer.sh` ends without an error, and nothing ran | it could not make the file: is ROCm's `rocpd` in its way? |
# | one `.rpd` file for several ranks | name it by rank, inside `srun`: each rank deletes what has its file's name |
# | no column `TotalDuration` | `PRAGMA table_info(top)`: in schema 3 it is `TotalDuration_us` |
# | a view of the documentation does not exist | [list what is there](../docs/known-issues.md) |
# | scripts take minutes on a large file | [newer versions make indexes][slow] |
# | a database is to be shared | rocpd's holds the environment of your process, in `rocpd_info_process` |
#
# [slow]: https://github.com/ROCm/rocmProfileData/pull/92

# %% [markdown]
# ## Key points
#
# - A trace is a table: count, filter, group, rank, join, look back.
# - Read what a view adds up before you believe its name. `ktop` is no GPU time.
# - A higher `Busy` is no speed-up: divide the work by the time.
# - What did not run has no row. Look for gaps.
#
# Next question: what changes with many GPUs?
