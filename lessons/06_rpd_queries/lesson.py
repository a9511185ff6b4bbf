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
# - ask for counts, sums, rankings, shares, links between host and GPU, and gaps, with the first step left out;
# - check a ready-made view before you believe it.
#
# You need lessons 00 and 02, and no SQL. Without an AMD GPU, stand-ins answer the commands with files of a *modelled*
# MI300X. The `.rpd` files here are those of rpd of 2026 and of 2024, the databases those of rocprofv3 since ROCm 7.0.

# %%
import gzip
import sqlite3
from pathlib import Path

import pandas as pd
import proflab
import tidyprof
from proflab import exercise, say, show_figure, show_table
from proflab.parts.steady_part import own_run
from proflab.parts.two_rankings import plot_two_rankings
from tidyprof import plots, short_name

lesson = proflab.start("06")

# %% [markdown]
# ## The case so far
#
# The GPU of the case now computes most of the time, and no single kernel decides. Which part of a step do its
# kernels belong to, and is there any idle time left to win? No tool so far joins launches, operators and kernels as you
# want them. So ask the database yourself.

# %%
lesson.sheet()

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
# | `api` | call on the host | `apiName`, `args`, `start`, `end` | |
# | `kernel` | kernel | `kernelName`, `duration` and more | GPU times |
# | `copyop`, `copy` | copy | `size` and more | GPU times in `copyop`, times of the call in `copy` |
# | `top` | kernel name or type of copy | `TotalCalls`, `Percentage` and more | adds up copies too |
# | `busy` | GPU | `GpuTime`, `WallTime`, `Busy` | durations added up: can exceed 1 |

# %% [markdown]
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
# rpd is no part of ROCm: you build it from [its repository](https://github.com/ROCm/rocmProfileData). On Debian or
# Ubuntu, once:
#
# ```text
# sudo apt-get install sqlite3 libsqlite3-dev libfmt-dev
# git clone https://github.com/ROCm/rocmProfileData
# cd rocmProfileData && make && sudo make install
# ```
#
# `runTracer.sh` stands before the command. `-o` must come first, and replaces the file. The first two lines below
# repeat the blog's study: a matrix X times a matrix W, in 32-bit numbers. The third is the case; `--roctx` marks the
# parts of each step with names. On a real node the larger X fills twenty gigabytes of the host's memory. If that is too
# much, take fewer rows, and skip rung 2, which counts on these sizes.

# %% language="bash"
# exec 2>&1
# runTracer.sh -o runs/06/small.rpd python -m cifar_train.matmul --x-shape 50000 10000 --w-shape 10000 800
# runTracer.sh -o runs/06/large.rpd python -m cifar_train.matmul --x-shape 100000 50000 --w-shape 50000 800
# runTracer.sh -o runs/06/train.rpd $CASE --max-steps 4 --roctx --run-dir runs/06/train

# %% [markdown]
# ## First look
#
# Python brings SQLite along; in a terminal `sqlite3 runs/06/small.rpd` does the same. `mode=ro` opens a file that
# nothing can change. Every database lists itself in `sqlite_master`:


# %%
def connect(path):
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


small, large, train = (connect(f"runs/06/{name}.rpd") for name in ("small", "large", "train"))
origin = own_run("runs/06/train.rpd").origin
pd.read_sql("SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY type, name", train)

# %% [markdown]
# The tables hold numbers for texts, the views put the texts back. `sqlite_master` even has the SQL of a view: read
# it before you believe what the view is called.

# %%
say("```sql\n" + pd.read_sql("SELECT sql FROM sqlite_master WHERE name = 'kernel'", train)["sql"].iloc[0] + "\n```")
show_table(pd.read_sql("SELECT * FROM busy", small), "gpuId GpuTime WallTime Busy", "The view busy, ns", origin=origin)

# %% [markdown]
# So `kernel` is `op`, joined with the link and with `rocpd_kernelapi`, which holds what the launch call was told.
# `gpuId` counts the GPUs from 0. In files of before June 2024 it counts all processors, and the first GPU is not 0.
#
# ## One question, step by step
#
# *Which calls keep the host busy in the training?* Look at some rows. Then say what you want: `sum` adds up, `GROUP BY`
# makes one row of all rows with the same name, `AS` names a column, `ORDER BY` sorts, and `DESC` begins with the
# largest. SQL doesn't mind lines and small letters.

# %%
show_table(pd.read_sql("SELECT * FROM api LIMIT 3", train), "id apiName args start end", "Some rows", origin=origin)
question = """
SELECT apiName, count(*) AS calls, sum(end - start) AS total_ns
FROM api
WHERE apiName <> 'UserMarker'
GROUP BY apiName
ORDER BY total_ns DESC LIMIT 3
"""
show_table(pd.read_sql(question, train), "apiName calls total_ms", "Calls of the host", origin=origin)

# %% [markdown]
# `<>` means *is not*. A `UserMarker` is a range that the program marked (`--roctx`), no call.
#
# ## The blog's study
#
# `Busy` is GpuTime, the sum of all operations, divided by WallTime, the time from the first to the last operation.
# These are the two runs as AMD published them. The blog praises the higher `Busy` of the larger one. Look at the other
# columns. A *tile* is the piece of the result that one group of threads computes.

# %%
published = pd.read_csv(lesson.file("published_products.csv"), comment="#")
MI200 = "recorded: AMD Instinct MI200 series, ROCm 6.0.2, published in AMD's ROCm blog of 17 April 2024"
flops = 2 * published["height"] * published["inner"] * published["width"]
published["busy"] = published["gpu_ns"] / published["wall_ns"]
published["idle_ns"] = published["wall_ns"] - published["gpu_ns"]
published["copies_percent"] = 100 * published["copy_ns"] / published["gpu_ns"]
published["TFLOP/s"] = flops / published["kernel_ns"] / 1e3
columns = "run busy idle_ms copies_percent tile TFLOP/s"
show_table(published, columns, "AMD's two matrix products", origin=MI200)
rate = published["TFLOP/s"].iloc[1] / published["TFLOP/s"].iloc[0]
say(
    f"Busy rose by a factor of {published['busy'].iloc[1] / published['busy'].iloc[0]:.1f}. But the product itself ran "
    f"at **{rate:.2f} times** the rate, with another kernel that has smaller tiles. And the GPU was idle for "
    f"{published['idle_ns'].iloc[0] / 1e9:.2f} s in one run, {published['idle_ns'].iloc[1] / 1e9:.2f} s in the other."
)

# %% [markdown]
# `Busy` is higher because more work, and slower work, stands beside nearly the same idle time. That is no success in
# itself. The file of the smaller run is public. Some rungs of the ladder ask it, the others your own files.

# %%
study = proflab.recording("rpd-mi200-matmul")
blog, blog_origin = connect(study.path), study.origin

# %% [markdown]
# ## The ladder
#
# Each rung adds one word. Your answer is the SQL text itself, in three quotes as above. To see what it gives:
# `pd.read_sql(answer, blog)`.
#
# | rung | new | what it does |
# | --- | --- | --- |
# | 1 | `WHERE c <> 'x'`, `c LIKE '%x%'` | keeps some rows; `%` stands for anything, capitals don't matter |
# | 2 | `max(c)`, `/` | computes; whole numbers stay whole, so write `2.0` |
# | 3 | `sum(c)`, `GROUP BY c` | adds up; one row per value of `c` |
# | 4 | `AS n`, `ORDER BY n DESC LIMIT 5` | names a column; the five largest |
# | 5 | `FROM t a JOIN u b ON b.id = a.u_id` | puts rows of two tables side by side; `a` and `b` are short for them |
# | 6 | `CASE WHEN c < 9 THEN x ELSE 0 END` | chooses within a row |
#
# The other rungs bring theirs along.

# %% [markdown]
# Kernels have the `opType` `KernelExecution`, in every version of rpd. What the others are called depends: built on
# roctracer (ROCm 6) rpd writes `CopyHostToDevice` and the like, built on rocprofiler-sdk `MEMORY_COPY_HOST_TO_DEVICE`.
# `LIKE '%copy%'` finds both. But what is *not* a kernel need not be a copy: list the types of a new file first.

# %%
# Rung 1, 2 minutes: how many operations of `blog` are no kernels?
q = exercise("06.1", blog)
# solution
answer = "SELECT count(*) FROM op WHERE opType <> 'KernelExecution'"
# end solution
q.check(answer)

# %%
# Rung 2, 3 minutes: at how many TFLOP/s did your GPU multiply in `large`? Its longest kernel is the product. A product
# of n by k and k by m numbers takes 2 * n * k * m operations; the sizes stand in the capture.
q = exercise("06.2", large)
# solution
answer = "SELECT 2.0 * 100000 * 50000 * 800 / max(duration) / 1000 FROM kernel"
# end solution
q.check(answer)

# %%
# Rung 3, 2 minutes: for each type of operation in `train` its name, how many, and their ns together.
q = exercise("06.3", train)
# solution
answer = """
SELECT opType, count(*), sum(end - start)
FROM op GROUP BY opType
"""
# end solution
q.check(answer)

# %%
# Rung 4, 2 minutes: the five kernels of `blog` with the most GPU time: name, calls, ns. The longest first.
q = exercise("06.4", blog)
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
# Files of before November 2024 bring such a ranking along. It is called `ktop`, which sounds like the top kernels, and
# the blog reads it as the kernels that took the most time. It has been dropped since.

# %%
found = pd.read_sql("SELECT Name, TotalCalls, TotalDuration AS total_us FROM ktop LIMIT 3", blog)
found["kernel"] = found["Name"].map(short_name)
show_table(found, "kernel TotalCalls total_us", "AMD's smaller product: the view ktop", origin=blog_origin)
say("A program that multiplies matrices, and no matrix product (GEMM) in sight? Read the view:")
say("```sql\n" + pd.read_sql("SELECT sql FROM sqlite_master WHERE name = 'ktop'", blog)["sql"].iloc[0] + "\n```")

# %% [markdown]
# It subtracts times of `rocpd_api`: these are the calls on the host. So put both clocks beside each other. You need the
# link: `l.api_id` is the number of the call, `l.op_id` that of the operation.

# %%
# Rung 5, 5 minutes: the five kernels of `blog` with the most GPU time: name, ns on the GPU, ns in their launch calls.
# Go on with FROM rocpd_api_ops l JOIN op o ON o.id = l.op_id JOIN api a ON ...; `op` holds copies too: leave them out.
q = exercise("06.5", blog)
# solution
answer = """
SELECT o.description, sum(o.end - o.start) AS gpu, sum(a.end - a.start) AS launch
FROM rocpd_api_ops l
JOIN op o ON o.id = l.op_id
JOIN api a ON a.id = l.api_id
WHERE o.opType = 'KernelExecution'
GROUP BY o.description ORDER BY gpu DESC LIMIT 5
"""
# end solution
q.check(answer)

# %% [markdown]
# The same join without `LIMIT` ranks all kernels by both clocks:

# %%
ranking = pd.read_sql(
    """
    SELECT o.description AS name, sum(o.end - o.start) AS gpu_ns, sum(a.end - a.start) AS launch_ns
    FROM rocpd_api_ops l JOIN op o ON o.id = l.op_id JOIN api a ON a.id = l.api_id
    WHERE o.opType = 'KernelExecution' GROUP BY name ORDER BY gpu_ns DESC
    """,
    blog,
)
ranking["short_name"] = ranking["name"].map(short_name)
ranking["launch_place"] = ranking["launch_ns"].rank(ascending=False, method="first").astype(int)
show_figure(plot_two_rankings(ranking, blog_origin, title="The same kernels, ranked by two clocks"))
first = ranking.iloc[0]
say(
    f"`{first.short_name}` takes {100 * first.gpu_ns / ranking['gpu_ns'].sum():.1f} % of all kernel time. "
    f"By `ktop` it is number {first.launch_place} of {len(ranking)}."
)

# %% [markdown]
# `ktop` adds up the **launch calls on the host**. Such a call is long, for instance, where a kernel is launched for the
# first time and its code must be loaded. That says nothing about its time on the GPU.
#
# ## Leave out the first step
#
# Your training run has its first step in it, which lesson 00 taught you to leave out. Where does the second begin?
# `--roctx` marked the parts of each step; they are rows of `api`, with the name in `args`. `OFFSET 1` skips a row.
# A question in brackets can stand where a number stands.

# %%
SECOND_STEP = """
SELECT start FROM api WHERE apiName = 'UserMarker' AND args LIKE '%data%' ORDER BY start LIMIT 1 OFFSET 1
"""
begin = pd.read_sql(SECOND_STEP, train)["start"].iloc[0]
both = pd.read_sql("SELECT min(start) AS first, max(end) AS last FROM op", train).iloc[0]
say(f"The first step takes {100 * (begin - both['first']) / (both['last'] - both['first']):.0f} % of the whole run.")

# %%
# Rung 6, 3 minutes: after the first step, what share of all kernel time, in percent, goes into kernels shorter than
# 10,000 ns? `SECOND_STEP` is a text: f"... WHERE start > ({SECOND_STEP})" puts it into yours.
q = exercise("06.6", train)
# solution
answer = f"""
SELECT 100.0 * sum(CASE WHEN duration < 10000 THEN duration ELSE 0 END) / sum(duration)
FROM kernel WHERE start > ({SECOND_STEP})
"""
# end solution
q.check(answer)

# %% [markdown]
# ## The same questions to rocprofv3
#
# Since ROCm 7.0 rocprofv3 writes a database too. Its format is called *rocpd*, and so is a command beside it.
# `--runtime-trace` records HIP calls, copies and kernels. `rocpd query` is there since ROCm 7.1.

# %% language="bash"
# exec 2>&1
# rocprofv3 --runtime-trace --output-format rocpd --output-directory runs/06 --output-file train \
#     -- $CASE --max-steps 4 --run-dir runs/06/train
# rocpd query -i runs/06/train_results.db --query "SELECT name, total_calls, percentage FROM top_kernels LIMIT 3"

# %% [markdown]
# | in rpd | in rocpd | what differs in rocpd |
# | --- | --- | --- |
# | `kernel`: `kernelName`, `duration` | `kernels`: `name`, `duration` | copies within the GPU may be kernels |
# | `copyop` | `memory_copies` | |
# | `api` | `regions` | ranges of your program are in it too |
# | `rocpd_api_ops` | `stack_id` | a call and what it launched have the same number |
# | `top` | `top_kernels` in µs | has a view `top` too, which mixes in the calls on the host |
#
# Don't mix them up: rpd's own Python package is called `rocpd` as well.

# %%
# Rung 7, 2 minutes: your question of rung 4, to this database.
rocpd = connect("runs/06/train_results.db")
q = exercise("06.7", rocpd)
# solution
answer = """
SELECT name, count(*), sum(duration) AS total
FROM kernels GROUP BY name
ORDER BY total DESC LIMIT 5
"""
# end solution
q.check(answer)

# %% [markdown]
# Two tools see two runs of a program, so compare counts before times. Even counts can differ: `__amd_rocclr_copyBuffer`
# is a kernel of AMD's runtime that copies within the GPU. rocprofv3 lists it among the kernels, and so does rpd if it
# was built on rocprofiler-sdk. Built on roctracer, rpd lists a copy. *How many kernels?* has two right answers.
#
# ## Gaps
#
# A trace has no row for the time in which nothing ran. So compare each row with the one before, by a *window*:
# `OVER (ORDER BY start)` lays the rows in a line, and `lag(end)` is the end of the row before. Here is the longest gap
# in AMD's file:

# %%
line = "SELECT start AS finish, lag(end) OVER (ORDER BY start) AS begin FROM op"
window = pd.read_sql("SELECT min(start) AS start_ns, max(end) AS end_ns FROM op", blog).to_dict("records")[0]
gap = pd.read_sql(f"SELECT * FROM ({line}) ORDER BY finish - begin DESC LIMIT 1", blog).iloc[0]
gap_share = 100 * (gap["finish"] - gap["begin"]) / (window["end_ns"] - window["start_ns"])
seen = tidyprof.read(study.path, origin=blog_origin)
title = f"From the first to the last operation: the longest gap takes {gap_share:.0f} %"
show_figure(plots.timeline(seen, **window, title=title))

# %% [markdown]
# What did the host do in the gap? Ask for the calls inside it. A question mark stands for a number that comes from
# Python, in `params`:

# %%
question = """
SELECT apiName AS call, count(*) AS calls, sum(end - start) AS total_ns
FROM api WHERE start > ? AND end < ?
GROUP BY apiName ORDER BY total_ns DESC
"""
calls = pd.read_sql(question, blog, params=[int(gap["begin"]), int(gap["finish"])])
show_table(calls, "call calls total_ms", "HIP calls within the longest gap", rows=5, origin=blog_origin)
say(f"They fill {calls['total_ns'].sum() / 1e6:,.1f} of {(gap['finish'] - gap['begin']) / 1e6:,.1f} ms.")

# %% [markdown]
# In the rest of the gap the program called nothing of HIP, and rpd can't tell what it did. A call that loads code
# (`hipModuleLoadData`) hints at a library that starts, which happens once: warm up before you record, and look again.
#
# For Perfetto, rpd's repository has a script, `tools/rpd2tracing.py`, that writes a Chrome trace. `rpd2tracing` is the
# course's stand-in for it:

# %% language="bash"
# rpd2tracing runs/06/small.rpd runs/06/small.json 2>&1

# %% [markdown]
# `lag` was right, since nothing overlaps in that file. Now record the trainer on four GPUs. (If you have fewer, write
# their number.) In front of the launcher, rpd writes all ranks into one file:

# %% language="bash"
# exec 2>&1
# runTracer.sh -o runs/06/four.rpd torchrun --standalone --nproc-per-node 4 -m cifar_train --max-steps 4 \
#     --run-dir runs/06/four

# %% [markdown]
# Here an operation can still run when the row before it has ended. So compare with the latest end so far, the running
# maximum of lesson 02:
#
# ```
# max(end) OVER (ORDER BY start, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
# ```
#
# Where work overlaps, `start` lies before that: `max(0, ...)` takes the larger of two numbers. A window can't stand
# inside `sum(...)`. So put two questions into each other: `SELECT sum(max(0, gap)) FROM (SELECT ... AS gap FROM op)`.

# %%
# Rung 8, 4 minutes: in `four`, for how many ns together does no GPU at all run an operation?
four = connect("runs/06/four.rpd")
q = exercise("06.8", four)
# solution
answer = """
SELECT sum(max(0, start - latest)) FROM (
    SELECT start, max(end) OVER (ORDER BY start, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest
    FROM op
)
"""
# end solution
q.check(answer)

# %% [markdown]
# The first operation has no row before it, so its `latest` is NULL, no value; `coalesce(c, d)` puts `d` in its place.
# What an operation adds to the busy time is what lies beyond `latest`: `max(0, end - max(start, latest))`.
# `WITH n AS (SELECT ...) SELECT ... FROM n` names a question and builds on it. `UNION ALL` puts the rows of two
# questions below each other.

# %%
# Rung 9, 5 minutes, open: divide the time of `four`, from the first start to the last end, into rows (name, ns) that
# add up to it. Give three rows or more, each ns once, and call the one for the time without an operation `idle`.
q = exercise("06.9", four)
# solution
answer = """
WITH line AS (SELECT opType, start, end, coalesce(max(end) OVER (
                  ORDER BY start, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start) AS latest FROM op)
SELECT opType AS name, sum(max(0, end - max(start, latest))) AS ns FROM line GROUP BY opType
UNION ALL
SELECT 'idle', sum(max(0, start - latest)) FROM line
"""
# end solution
q.check(answer)

# %% [markdown]
# ## A file that you have not seen
#
# Somebody recorded vLLM, which serves a language model, with rpd of 2024. The file is packed, so unpack it first. You
# know what to do with a new file.

# %%
packed = proflab.recording("rpd-vllm-mytrace")
unpacked = Path("runs/06/vllm.rpd")
unpacked.write_bytes(gzip.decompress(packed.path.read_bytes()))
vllm = connect(unpacked)
show_table(pd.read_sql("SELECT * FROM busy", vllm), "gpuId GpuTime WallTime Busy", "vLLM", origin=packed.origin)

# %%
# Rung 10, 3 minutes: how many percent of the time of all operations (`GpuTime`) do copies take?
q = exercise("06.10", vllm)
# solution
types = pd.read_sql("SELECT opType, min(description), count(*), sum(end - start) FROM op GROUP BY opType", vllm)
answer = """
SELECT 100.0 * sum(CASE WHEN opType LIKE '%copy%' THEN end - start ELSE 0 END) / sum(end - start)
FROM op
"""
# end solution
q.check(answer)

# %%
question = """
SELECT a.apiName, count(*) AS operations, sum(o.end - o.start) AS total_ns
FROM rocpd_api_ops l JOIN op o ON o.id = l.op_id JOIN api a ON a.id = l.api_id
WHERE o.opType = 'Task' GROUP BY a.apiName
"""
show_table(pd.read_sql(question, vllm), "apiName operations total_ms", "Who launched the tasks", origin=packed.origin)

# %% [markdown]
# A *HIP graph* is a list of kernels and copies that is recorded once and launched by one call, `hipGraphLaunch`. Its
# kernels are of the type `Task` here: the view `kernel` leaves them out, `opType <> 'KernelExecution'` counts them in.
#
# ## Decide
#
# A gap, a copy or a kernel: the largest part chooses the next question. Name it before you run the cell. The training
# run is cut at its second step. A window counts of each operation what lies beyond the latest end so far.

# %%
PARTS = """
WITH line AS (SELECT opType, start, end, coalesce(max(end) OVER (
                  ORDER BY start, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start) AS latest
              FROM op WHERE start > :begin)
SELECT opType AS name, sum(max(0, end - max(start, latest))) AS ns FROM line GROUP BY opType
UNION ALL SELECT 'idle', sum(max(0, start - latest)) FROM line
"""
NEXT = {"idle": ("03", "what does the host do meanwhile?"), "KernelExecution": ("07", "what do other GPUs add?")}
COPY = ("04", "which copies are these, and who launches them?")


def decide(name, database, begin=0):
    parts = pd.read_sql(PARTS, database, params={"begin": int(begin)}).sort_values("ns")
    largest, share = parts["name"].iloc[-1], 100 * parts["ns"].iloc[-1] / parts["ns"].sum()
    number, question = NEXT.get(largest, COPY)
    say(f"{name}: {largest} takes {share:.0f} %. Next: {question} (lesson {number})")
    return number, dict(zip(parts["name"], 100 * parts["ns"] / parts["ns"].sum(), strict=True))


# %%
decide("Your smaller product", small)
decide("Your training run, first step and all", train)
following, shares = decide("Your training run without the first step", train, begin)
proflab.reveal("06.a", rate, origin=MI200)
decide("AMD's smaller product", blog)
proflab.reveal("06.b", gap_share, origin=blog_origin)

# %% [markdown]
# For the case the largest part is kernels: on one GPU most of the time is spent in them. That is what the
# next lesson needs to know before it adds GPUs. Where your own run gives another part, take the lesson that is named.

# %%
lesson.conclude(
    f"Without the first step, kernels take {shares['KernelExecution']:.0f} % of the GPU's time and idle time "
    f"{shares['idle']:.1f} %, by one SQL query over all operations.",
    rules_out="Idle time and copies: there is little to win between the kernels.",
    because="One GPU works for most of its time. Others can share the work, and can wait for each other.",
    next=following, origin=origin,
)  # fmt: skip

# %% [markdown] tags=["given"]
# ## What this view cannot show
#
# A trace knows when, not why: nothing about what the host did outside HIP (lesson 03), nor how well a kernel used the
# GPU (lesson 05). PyTorch's operators are missing unless the program marks them. And SQL answers a wrong question as
# readily as a right one: name the clock, the unit and the rows.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# | one `.rpd` file for several ranks | name it by rank, inside `srun`: each rank deletes what has its file's name |
# {issue ktop-adds-up-launch-calls}
# {issue documented-sql-views-do-not-exist}
# | a database is to be shared | rocpd's holds the environment of your process, in `rocpd_info_process` |

# %% [markdown]
# ## At work, without this course
#
# Five questions that are worth asking of every trace, for rpd and for rocpd: the same text, after a first block that
# gives both the same names.
#
# {snippet 06_rpd_report.sql}
#
# And the script that asks them:
#
# {snippet 06_rpd_report.py}
#
# Read on: [rpd](https://github.com/ROCm/rocmProfileData), [AMD's manual of rocpd][rocpd]. Builds of rpd since
# May 2026 bring `rpd-viewer`, which shows a file in the browser, at port 8050.
#
# [rocpd]: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocpd-output-format.html

# %% [markdown]
# ## Key points
#
# - A trace is a table: count, filter, group, rank, join, look back.
# - Read what a view adds up before you believe its name. `ktop` is no GPU time.
# - List the types of operations first: what is no kernel need not be a copy.
# - A higher `Busy` is no speed-up: divide the work by the time.
# - What did not run has no row. Look for gaps, and leave out the first step.
#
# Next question: what changes with many GPUs?
