# %% [markdown]
# # Can I ask my own question?
#
# A profiler answers the questions that its authors expected, but yours may combine kernels, host calls and ranges. Two
# tools for AMD GPUs, rocprofv3 and rpd, write SQLite *databases*, which you can query with SQL.
#
# After this lesson, you can:
#
# - record a program into a SQLite file with rocprofv3 or rpd, and list the file's contents;
# - query totals, rankings, shares and gaps, without the first step and across several ranks;
# - check a ready-made view before you trust it.
#
# **Before you start:** complete lessons 00 and 02. You don't need to know SQL. Without an AMD GPU, the course replays
# files from a *modeled* MI300X, in the formats of rocprofv3 (since ROCm 7.0) and rpd (2024 and 2026).

# %%
import gzip
import sqlite3

import pandas as pd
import proflab
from proflab import exercise, show_figure, show_table, show_text
from proflab.parts.steady_part import own_run
from tidyprof import plots
from tidyprof.readers.rpd import reader as rpd_reader

lesson = proflab.start("06")

# %%
lesson.recall()

# %% [markdown]
# ## The example run so far
#
# Many kernels share the GPU time. Which part of a step launches these kernels?

# %%
lesson.findings()

# %% [markdown] slide="A trace in a database has one view per kind of event."
# ## The picture to keep in mind
#
# ```
#   host                         link                      GPU
#   regions                      stack_id                  kernels, memory_copies
#   one row per HIP call    <--  the same number  -->      one row per kernel or copy
#   name, start, end, duration                             name, start, end, duration
# ```
#
# A host call and the GPU work that it launches are two rows. All times are in ns and come from the same clock.
#
# - A *view* is a stored query that you can use like a table.
# - An *operation* is a kernel or copy that the GPU ran.
# - *rocpd* is rocprofv3's database format.
#
# | rocpd view | one row per | note |
# | --- | --- | --- |
# | `kernels` | kernel run | includes copies within the GPU, which are kernels of AMD's runtime |
# | `memory_copies` | copy between host and GPU | |
# | `regions` | host call or range | up to ROCm 10.0, range names are in `extdata` |
# | `top_kernels` | kernel name | times are in µs |
# | `top` | name of a kernel, copy or call | mixes host time and GPU time |
# | `busy` | GPU, or CPU that receives copies | `Busy` adds up durations, so it can exceed 1 |

# %% [markdown]
# ## Predict
#
# Would four GPUs train faster? On four GPUs, kernels from the RCCL library exchange the gradients, the same amount of
# data on each GPU.

# %%
# solution
busy_guess, rccl_guess = 60, 1.5
# end solution
proflab.predict(
    "06.a", busy_guess, unit="%", what="the busy share of one GPU after the first step"
)
proflab.predict(
    "06.b", rccl_guess, unit="times", what="the longest RCCL time / the shortest"
)

# %% [markdown]
# ## Capture
#
# `--runtime-trace` records HIP calls, copies, kernels and the ranges that `--roctx` marks. In the second run, each of
# four processes writes its own file. If you have fewer GPUs, change the number 4.

# %% language="bash"
# exec 2>&1; rm -rf $FOLDER/train* $FOLDER/four
# rocprofv3 --runtime-trace --output-format rocpd --output-directory $FOLDER \
#     --output-file train -- $EXAMPLE --max-steps 4 --roctx --run-dir $FOLDER/train
# rocprofv3 --runtime-trace --output-format rocpd --output-directory $FOLDER/four \
#     --output-file %pid% -- torchrun --standalone --nproc-per-node 4 \
#     -m cifar_train --max-steps 4 --roctx --run-dir $FOLDER/four

# %% [markdown]
# ## First look
#
# Python includes SQLite. `mode=ro` opens a file as read-only. Every database lists its contents in `sqlite_master`. In
# a terminal, `sqlite3 runs/06/train_results.db` opens the same file.


# %% slide="The database brings its own views. Read their definition before you trust them."
def connect(path):
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


trace = own_run(lesson.folder / "train_results.db")
train, origin = connect(lesson.folder / "train_results.db"), trace.origin
VIEWS = "SELECT name FROM sqlite_master WHERE type = 'view' AND name NOT LIKE 'rocpd%'"
show_text("Views: " + ", ".join(pd.read_sql(VIEWS, train)["name"]))
busy = pd.read_sql("SELECT * FROM busy", train)
show_table(
    busy, "type GpuTime WallTime Busy", "The `busy` view, times in ns", origin=origin
)

# %% [markdown] slide="A query reads from the inside out: which rows, which groups, which order?"
# Is the GPU mostly idle? In lesson 04, the modeled GPU computes for nearly the whole step. A section below shows which
# result is misleading.
#
# ## One query, clause by clause
#
# *Which calls keep the host busy?* An SQL query describes the result that you want:
#
# | clause | meaning |
# | --- | --- |
# | `GROUP BY name` | combine all rows with the same name into one row |
# | `count(*)`, `sum(duration)` | count the rows in a group; add up their durations |
# | `AS total_ns` | name a column |
# | `ORDER BY total_ns DESC LIMIT 3` | sort with the largest total first, and keep three rows |
# | `WHERE category NOT LIKE 'MARKER%'` | leave out ranges; `%` matches any characters |

# %% slide="Your own query returns the same kernels as the tool."
query = """
SELECT name, count(*) AS calls, sum(duration) AS total_ns
FROM regions WHERE category NOT LIKE 'MARKER%'
GROUP BY name ORDER BY total_ns DESC LIMIT 3
"""
show_table(
    pd.read_sql(query, train), "name calls total_ms", "Host calls", origin=origin
)

# %% [markdown]
# In each exercise, `answer` is a string with one SQL query. To see its result, run `pd.read_sql(answer, train)`.

# %%
# 2 minutes: find the five kernels in `train` with the most GPU time. Return three columns (the name, the number of
# calls and the total ns), with the largest total first.
q = exercise("06.1", train)
# solution
answer = """
SELECT name, count(*), sum(duration) AS total
FROM kernels GROUP BY name
ORDER BY total DESC LIMIT 5
"""
# end solution
q.check(answer)

# %% [markdown]
# ## Which part of a step launches the kernels?
#
# `JOIN` combines each kernel with its host call because both rows have the same `stack_id`. `k` and `r` are short names
# for the tables:

# %% slide="A JOIN pairs each kernel with the call that launched it."
query = """
SELECT substr(k.name, 1, 50) AS name, sum(k.duration) AS total_ns,
    sum(r.duration) AS launch_ns
FROM kernels k JOIN regions r ON r.stack_id = k.stack_id
GROUP BY k.name ORDER BY total_ns DESC LIMIT 3
"""
both = pd.read_sql(query, train)
show_table(
    both,
    "name total_ms launch_ms",
    "Time of kernels and their host calls",
    origin=origin,
)

# %% [markdown]
# With `--roctx`, the program also marked the parts of each step. Copy these ranges into a temporary table. `coalesce(a,
# b)` returns `b` if `a` is missing. `tid` is the thread ID.

# %% slide="Ranges are rows, too, so a query can name the part of a step."
train.executescript("""DROP TABLE IF EXISTS marks; CREATE TEMP TABLE marks AS
SELECT coalesce(json_extract(extdata, '$.message'), name) AS range, tid, start, end
FROM regions WHERE category LIKE 'MARKER%'""")
some = pd.read_sql("SELECT * FROM marks ORDER BY start LIMIT 5", train)
show_table(some, "range tid start end", "The first ranges", origin=origin)

# %% [markdown]
# A step starts with its `data` range. Find these starts, and draw the second step:

# %% slide="Kernels run after their launch, so their own time doesn't tell the part of a step."
STARTS = "SELECT start FROM marks WHERE range = 'data' ORDER BY start"
starts = pd.read_sql(STARTS, train)["start"]
step = {"start_ns": starts[1], "end_ns": starts[2]}
QUEUED = """SELECT count(*) FROM kernels k JOIN regions r ON r.stack_id = k.stack_id
WHERE ? BETWEEN r.start AND k.start"""
five_ms = int(starts[1]) + 5_000_000
(queued,) = train.execute(QUEUED, [five_ms]).fetchone()
figure = plots.timeline(trace, **step, title="Step 2: kernels run after their launch")
show_figure(figure, (f"{queued} kernels are queued", (5, 2.6), (0.5, 0.6)))

# %% [markdown]
# The host finishes `forward` while the GPU still runs its kernels. A second thread launches the backward pass.

# %%
# 5 minutes: for each range name, return the name and the total ns that its kernels run on the GPU, with the largest
# total first. A kernel belongs to the range in which its host call starts. Extend the `JOIN` query above. Every kernel
# has a range.
q = exercise("06.2", train)
# solution
answer = """
SELECT m.range, sum(k.duration) AS gpu
FROM kernels k JOIN regions r ON r.stack_id = k.stack_id
JOIN marks m ON r.start BETWEEN m.start AND m.end
GROUP BY m.range ORDER BY gpu DESC
"""
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: the `busy` view
#
# The view divides the total duration of all operations by the time from the first operation to the last. This time
# includes the first step, which lesson 00 leaves out. `:begin` is a query parameter:

# %% slide="The view divides by the wrong time. A query shows it."
BUSY = """SELECT 100.0 * sum(duration) / (max(end) - min(start)) AS percent
FROM kernels WHERE start >= :begin"""
for words, begin in {"all four steps": 0, "steps 2 to 4": int(starts[1])}.items():
    percent = pd.read_sql(BUSY, train, params={"begin": begin})["percent"].iloc[0]
    show_text(f"Busy in {words}: {percent:.0f}%")
proflab.reveal("06.a", percent, origin=origin)

# %% [markdown]
# The view can't leave out the first step, and it counts overlapping work twice.
#
# ## Four files, one query
#
# Do the same kernels take equally long on four GPUs? When are all four idle?
#
# `ATTACH` opens more databases in the same connection. No view combines kernels with copies or covers all files, so
# create your own temporary view. `UNION ALL` appends one result to another. In the cell, `{0}` is a database name (the
# first is always `main`), and `{1}` is the start of the second step.

# %%
OPERATIONS = """
SELECT '{0}' AS gpu, 'kernel' AS kind, name, start, end
FROM {0}.kernels WHERE start > {1}
UNION ALL SELECT '{0}', 'copy', name, start, end
FROM {0}.memory_copies WHERE start > {1}
"""
SECOND = """(SELECT start FROM {0}.regions
WHERE 'data' = coalesce(json_extract(extdata, '$.message'), name)
ORDER BY start LIMIT 1, 1)"""
paths = sorted((lesson.folder / "four").rglob("*_results.db"))
four, names = connect(paths[0]), ["main"]
for number, path in enumerate(paths[1:], 1):
    names.append(f"gpu{number}")
    four.execute(f"ATTACH 'file:{path}?mode=ro' AS gpu{number}")
views = (OPERATIONS.format(one, SECOND.format(one)) for one in names)
_ = four.execute("CREATE TEMP VIEW op AS" + "UNION ALL".join(views))

# %% [markdown] slide="A window function compares each row with the rows before it."
# A trace has no rows for idle time, so compare each start with an earlier end. A *window*, `OVER (ORDER BY start)`,
# puts the rows in order. `lag(end)` returns the end of the previous row. On four GPUs, an older operation may still be
# running, so you need the latest end so far (the running maximum from lesson 02):
#
# ```
# max(end) OVER (ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
# ```

# %%
# 4 minutes: for how many ns in total are all four GPUs idle? Return one number for all rows of `op` in `four`. If
# operations overlap, the gap `start - latest` is negative, and `max(0, gap)` turns it into 0. You can't use a window
# inside `sum(...)`, so nest two queries: `SELECT sum(max(0, gap)) FROM (SELECT ... AS gap FROM op)`.
q = exercise("06.3", four)
# solution
answer = """
SELECT sum(max(0, start - latest)) FROM (
    SELECT start, max(end) OVER (
        ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest
    FROM op
)
"""
# end solution
q.check(answer)

# %%
# 4 minutes: RCCL kernels have `nccl` in their names, and all other kernels compute. For each `gpu` in `four`, return
# its name, the total ns of its RCCL kernels and the total ns of its other kernels. Leave out copies.
# `CASE WHEN c LIKE '%x%' THEN y ELSE 0 END` selects a value for each row. `LIKE` isn't case-sensitive.
q = exercise("06.4", four)
# solution
answer = """
SELECT gpu, sum(CASE WHEN name LIKE '%nccl%' THEN end - start ELSE 0 END),
       sum(CASE WHEN name LIKE '%nccl%' THEN 0 ELSE end - start END)
FROM op WHERE kind = 'kernel' GROUP BY gpu
"""
# end solution
q.check(answer)

# %% [markdown]
# ## Two matrix products from AMD's blog, recorded with rpd
#
# [rpd](https://github.com/ROCm/rocmProfileData) is older than rocpd and isn't part of ROCm. On Ubuntu, install it:
#
# ```
# sudo apt install sqlite3 libsqlite3-dev libfmt-dev nlohmann-json3-dev xxd \
#     cmake build-essential
# git clone https://github.com/ROCm/rocmProfileData && cd rocmProfileData
# git submodule update --init rlog && sudo ./install.sh
# ```
#
# Put `runTracer.sh` before your command; one file holds all processes. `-o` must come first and overwrites an existing
# file. Environment variables such as `RPDT_DATASOURCES_EXPLICIT` select the GPU data source. AMD's blog recorded two
# products of 32-bit matrices, the larger with ten times the arithmetic. Record the smaller one:

# %% language="bash"
# exec 2>&1
# runTracer.sh -o $FOLDER/small.rpd \
#     python -m cifar_train.matmul --x-shape 50000 10000 --w-shape 10000 800
# # A Chrome trace for Perfetto; with a real rpd, run its tools/rpd2tracing.py:
# rpd2tracing $FOLDER/small.rpd $FOLDER/small.json

# %% [markdown] slide="The same idea has different names in rocpd and rpd."
# In rpd, `rocpd_op` is the base table for GPU operations, and `rocpd_api` is the base table for host calls. They store
# names as rows of `rocpd_string`. The views `op` and `api` contain the strings.
#
# | in rocpd | in rpd | difference |
# | --- | --- | --- |
# | `kernels`: `name`, `duration` | `kernel`: `kernelName`, `duration` | with roctracer (ROCm 6), copies aren't kernels |
# | `memory_copies` | `copyop` | |
# | your `op` | `op`: `opType`, `description` | copies have no `description` |
# | `regions` | `api`: `apiName`, `args` | ranges have the `apiName` `UserMarker` |
# | `stack_id` | `rocpd_api_ops`: `api_id`, `op_id` | a separate table links calls and operations |
# | | `rocpd_kernelapi`, `rocpd_copyapi` | launch and copy arguments (subclasses of `rocpd_api`, by `api_ptr_id`) |
# | | `kernel`, `copy`, `copyop` | views of launched kernels, copy calls and copies on the GPU |
# | `top_kernels` | `top` | includes copies |
#
# > **Warning:** The rpd Python package is also called `rocpd`. Files from before November 2024 contain a `ktop` view
# > that adds up [launch calls](../docs/known-issues.md#ktop-adds-up-launch-calls), not kernels.

# %% slide="In rpd, each operation is a row with a start and an end."
path = lesson.folder / "small.rpd"
TYPES = """SELECT opType, count(*) AS rows, sum(end - start) AS total_ns
FROM op GROUP BY opType"""
seen = pd.read_sql(TYPES, connect(path))
show_table(
    seen,
    "opType rows total_ms",
    "The smaller product in rpd",
    origin=own_run(path).origin,
)

# %% [markdown]
# `tidyprof.read` reads the operations of an rpd file with the first query. The second query finds the host call of
# each operation:

# %% slide="These are the queries with which tidyprof reads the file."
for query in ("operations", "launches"):
    print(rpd_reader.SCHEMA.query(query))

# %% slide="A higher busy share isn't a higher speed: the larger product ran at half the rate."
published = pd.read_csv(lesson.file("published_products.csv"), comment="#")
MI200 = "recorded: AMD Instinct MI200 series, ROCm 6.0.2, AMD's blog of 17 April 2024"
products = published.eval("""busy = gpu_ns / wall_ns
idle_ns = wall_ns - gpu_ns
copies_percent = 100 * copy_ns / gpu_ns
tflops = 1e6 * gflop / kernel_ns""").rename(columns={"tflops": "TFLOP/s"})
columns = "run busy idle_ms copies_percent tile TFLOP/s"
show_table(products, columns, "AMD's two matrix products", origin=MI200)

# %% [markdown]
# The blog praises the larger product for its higher `Busy` value. However, the GPU was idle for about as long in both
# runs, and the larger product ran at half the rate. Its kernel uses smaller *tiles* (parts of the result that a group
# of threads computes). Copies take most of the GPU time. With small data, the CPU alone can be faster because it copies
# nothing.
#
# ## A file that you haven't seen
#
# Someone used a 2024 version of rpd to record vLLM, which serves a language model. Unpack the file first:

# %%
packed = proflab.recording("rpd-vllm-mytrace")
unpacked = lesson.folder / "vllm.rpd"
unpacked.write_bytes(gzip.decompress(packed.path.read_bytes()))
vllm = connect(unpacked)

# %%
# 2 minutes: what percentage of the total time of all operations (rows of `op` in `vllm`) do copies account for? Return
# one number. In SQL, 7 / 2 is 3, so write `100.0 * ...`.
q = exercise("06.5", vllm)
# solution
answer = """
SELECT 100.0 * sum(CASE WHEN opType LIKE '%copy%' THEN end - start ELSE 0 END)
    / sum(end - start)
FROM op
"""
# end solution
q.check(answer)

# %% [markdown]
# A *HIP graph* is a list of kernels and copies that a single `hipGraphLaunch` call launches together. In this file,
# graph kernels have the type `Task`, and the `kernel` view leaves them out.
#
# ## Decide
#
# Compare the kernels on the four GPUs, and compute the share of kernel time that each range accounts for:

# %%
GROUPS = """
SELECT gpu, iif(name LIKE '%nccl%', 'rccl', 'others') AS kind,
    sum(end - start) / 1e6 AS ms
FROM op WHERE kind = 'kernel' GROUP BY 1, 2
"""
gpus = pd.read_sql(GROUPS, four).pivot(index="gpu", columns="kind", values="ms")
times = gpus.max() / gpus.min()
proflab.reveal("06.b", times["rccl"], origin=origin)
joined = """SELECT r.start, k.duration
FROM kernels k JOIN regions r ON r.stack_id = k.stack_id"""
queries = f"{joined} ORDER BY 1", "SELECT start, range FROM marks ORDER BY 1"
calls = pd.merge_asof(*(pd.read_sql(query, train) for query in queries), on="start")
part = 100 * calls.groupby("range")["duration"].sum() / calls["duration"].sum()

# %% [markdown]
# RCCL calls transfer the same amount of data on all GPUs, but on one GPU, they take several times as long as on
# another. Therefore, part of that time must be waiting.

# %% slide="RCCL kernels can wait for other ranks. Which rank waits for which?"
lesson.conclude(
    f"Backward passes account for {part['backward']:.0f}% of kernel time, forward "
    f"passes for {part['forward']:.0f}%. After step 1, the GPU is busy {percent:.0f}% "
    "of the time. On four GPUs, compute kernels take equally long (factor "
    f"{times['others']:.2f}), whereas the same RCCL calls take "
    f"{gpus['rccl'].min():.0f} ms on one GPU and {gpus['rccl'].max():.0f} ms on "
    "another.",
    rules_out="A single part of the step and large gaps.",
    because="RCCL kernels can wait for other ranks. Which rank waits for which?",
    next="07" if times["rccl"] > 1.5 else "05",
    origin=origin,
)

# %% [markdown]
# ## Three takeaways
#
# - SQL can answer questions about kernels, calls, ranges and files that no ready-made table covers.
# - Before you trust a view, check how it treats the first step, overlapping work and units.
# - To find idle time, compare each start with the latest end of all earlier operations.

# %% [markdown] tags=["given"]
# ## What this view can't show
#
# A trace doesn't show what the host did outside HIP calls (lesson 03) or how well a kernel used the GPU (lesson 05).
# PyTorch operators are missing unless the program marks them. SQL also answers wrong questions, so check the clock, the
# unit and the rows.
#
# ## Known issues
#
# - rpd overwrites existing files. With several ranks, run it inside `srun`, with the rank in the file name.
# - `rocpd_info_process` contains your process's environment variables. Check this table before sharing a database.
# - Some documented views don't exist: see the [known issues](../docs/known-issues.md#rocprofv3-and-rocpd).

# %% [markdown]
# ## At work, without this course
#
# Five queries for any rpd or rocpd trace:
#
# {snippet 06_rpd_report.sql}
#
# Run all five queries with one script:
#
# {snippet 06_rpd_report.py}
#
# Read on: [AMD's rocpd manual][rocpd]. Since May 2026, rpd includes `rpd-viewer`, which shows a file in the browser on
# port 8050.
#
# [rocpd]: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocpd-output-format.html

# %% [markdown]
# Next question: what changes with many GPUs?
