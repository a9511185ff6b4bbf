# %% [markdown]
# # Can I ask my own question?
#
# Every profiler answers the questions that its authors thought of. Yours may not be among them. Two tools for AMD
# GPUs, rocprofv3 and rpd, write a *database*: a file of tables that you question in the language SQL. You learn nine
# questions, each a little harder than the one before, and catch a ready-made answer that misleads.
#
# After this lesson you can
#
# - record a program with rocprofv3 or rpd into SQLite files, and list what is in them;
# - say which part of a step launches a kernel, which neither its statistics nor its counters know;
# - ask for sums, rankings, shares and gaps, with the first step left out, and over the files of many ranks;
# - check a ready-made view before you believe it.
#
# You need lessons 00 and 02, and no SQL. Without an AMD GPU, stand-ins answer the commands with files of a *modelled*
# MI300X. The databases are those of rocprofv3 since ROCm 7.0, the `.rpd` files those of rpd of 2026 and of 2024.

# %%
import gzip
import sqlite3

import pandas as pd
import proflab
from proflab import exercise, say, show_figure, show_table
from proflab.parts.steady_part import own_run
from proflab.parts.two_rankings import plot_two_rankings
from tidyprof import short_name

lesson = proflab.start("06")

# %% [markdown]
# ## The case so far
#
# The GPU of the case now computes most of the time, and no single kernel decides. Which part of a step launches those
# that cost most? The counters of lesson 05 know a dispatch, but not who launched it. Kernels, calls and ranges lie
# together in one database. So ask it yourself.

# %%
lesson.sheet()

# %% [markdown]
# ## The picture to keep in mind
#
# ```
#   host                         link                      GPU
#   regions                      stack_id                  kernels, memory_copies
#   one row per HIP call    <--  the same number  -->      one row per kernel or copy
#   name, start, end, duration                             name, start, end, duration
# ```
#
# A call and the work that it launches are two rows with two durations, all times in ns on the same clock. A *table*
# holds rows; a *view* is a stored question that looks like a table. An *operation* is a kernel or a copy that the GPU
# ran. The format of rocprofv3's databases is called *rocpd*. Its views:
#
# | view | one row per | beware |
# | --- | --- | --- |
# | `kernels` | kernel | copies within the GPU are kernels of AMD's runtime |
# | `memory_copies` | copy between host and GPU | |
# | `regions` | call on the host, and range of your program | up to ROCm 10.0 a range's name stands in `extdata` |
# | `top_kernels` | name of a kernel | times in µs |
# | `top` | name of a kernel, copy or call | mixes the two clocks |
# | `busy` | GPU, or processor that copies go to | `Busy` adds durations up: it can exceed 1 |

# %% [markdown]
# ## Predict
#
# AMD's blog on rpd multiplied two matrices, then two that needed ten times the arithmetic. Guess before you look.

# %%
# solution
rate_guess, idle_guess = 1.5, 5
# end solution
proflab.predict(
    "06.a",
    rate_guess,
    unit="times",
    what="the larger product's FLOP/s, compared with the smaller one's",
)
proflab.predict(
    "06.b",
    idle_guess,
    unit="%",
    what="the time without an operation, in the case after its first step",
)

# %% [markdown]
# ## Capture
#
# `--runtime-trace` records HIP calls, copies, kernels and the ranges that `--roctx` marks. On four GPUs each process
# writes a file of its own. (If you have fewer, write their number.)

# %% language="bash"
# exec 2>&1
# rocprofv3 --runtime-trace --output-format rocpd --output-directory $FOLDER --output-file train \
#     -- $CASE --max-steps 4 --roctx --run-dir $FOLDER/train
# rm -rf $FOLDER/four
# rocprofv3 --runtime-trace --output-format rocpd --output-directory $FOLDER/four \
#     --output-file %pid% -- torchrun --standalone --nproc-per-node 4 \
#     -m cifar_train --max-steps 4 --roctx --run-dir $FOLDER/four

# %% [markdown]
# ## First look
#
# Python brings SQLite along; in a terminal `sqlite3 runs/06/train_results.db` does the same. `mode=ro` opens a file
# that nothing can change. Every database lists itself in `sqlite_master`:


# %%
def connect(path):
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


train = connect(lesson.folder / "train_results.db")
origin = own_run(lesson.folder / "train_results.db").origin
found = pd.read_sql(
    "SELECT name FROM sqlite_master WHERE type = 'view' AND name NOT LIKE 'rocpd%'", train
)
say("Views: " + ", ".join(found["name"]))
show_table(
    pd.read_sql("SELECT * FROM busy", train),
    "type GpuTime WallTime Busy",
    "The view busy, ns",
    origin=origin,
)

# %% [markdown]
# `sqlite_master` even has the SQL of a view, in its column `sql`: read it before you believe what the view is called.
#
# ## One question, step by step
#
# *Which calls keep the host busy in the training?* Look at some rows. Then say what you want: `sum` adds up, `GROUP BY`
# makes one row of all rows with the same name, `AS` names a column, `ORDER BY` sorts, and `DESC` begins with the
# largest. SQL doesn't mind lines and small letters.

# %%
some = pd.read_sql("SELECT * FROM regions LIMIT 3", train)
show_table(some, "stack_id category name start end", "Some rows", origin=origin)
question = """
SELECT name, count(*) AS calls, sum(duration) AS total_ns
FROM regions
WHERE category NOT LIKE 'MARKER%'
GROUP BY name
ORDER BY total_ns DESC LIMIT 3
"""
show_table(pd.read_sql(question, train), "name calls total_ms", "Calls of the host", origin=origin)

# %% [markdown]
# A *marker* is a range that the program marked (`--roctx`), no call. `%` stands for anything.
#
# No view has kernels and copies together. So write your own: a view in the connection's own memory changes no file.
# `UNION ALL` puts the rows of two questions below each other.

# %%
OPERATIONS = """
SELECT 'kernel' AS kind, name, start, end FROM {0}.kernels UNION ALL
SELECT 'copy', name, start, end FROM {0}.memory_copies
"""
_ = train.execute("CREATE TEMP VIEW op AS" + OPERATIONS.format("main"))

# %% [markdown]
# ## The ladder
#
# Each rung adds one word. Your answer is the SQL text itself, in three quotes as above. To see what it gives:
# `pd.read_sql(answer, train)`.
#
# | rung | new | what it does |
# | --- | --- | --- |
# | 1 | `WHERE c <> 'x'`, `c LIKE '%x%'` | keeps some rows; capitals don't matter to `LIKE` |
# | 2 | `sum(c)`, `GROUP BY c` | adds up; one row per value of `c` |
# | 3 | `AS n`, `ORDER BY n DESC LIMIT 5` | names a column; the five largest |
# | 4 | `FROM t a JOIN u b ON b.id = a.u_id` | puts rows of two tables side by side; `a` and `b` are short for them |
# | 5 | `JOIN v c ON b.x BETWEEN c.y AND c.z` | a third table; rows belong together by time |
# | 6 | `CASE WHEN c < 9 THEN x ELSE 0 END` | chooses within a row; whole numbers stay whole, so write `100.0` |
#
# The other rungs bring theirs along.

# %%
# Rung 1, 2 minutes: AMD's runtime copies within the GPU by kernels of its own, whose names hold `copyBuffer`. How many
# of them did the training run?
q = exercise("06.1", train)
# solution
answer = "SELECT count(*) FROM kernels WHERE name LIKE '%copyBuffer%'"
# end solution
q.check(answer)

# %%
# Rung 2, 2 minutes: for each kind of operation in your view `op` its name, how many, and their ns together.
q = exercise("06.2", train)
# solution
answer = """
SELECT kind, count(*), sum(end - start)
FROM op GROUP BY kind
"""
# end solution
q.check(answer)

# %%
# Rung 3, 2 minutes: the five kernels of `train` with the most GPU time: name, calls, ns. The longest first.
q = exercise("06.3", train)
# solution
answer = """
SELECT name, count(*), sum(duration) AS total
FROM kernels GROUP BY name
ORDER BY total DESC LIMIT 5
"""
# end solution
q.check(answer)

# %%
# Rung 4, 4 minutes: the same five: name, ns on the GPU, ns in their launch calls. Go on with
# FROM kernels k JOIN regions r ON ...; the picture above shows what a kernel and its call share.
q = exercise("06.4", train)
# solution
answer = """
SELECT k.name, sum(k.duration) AS gpu, sum(r.duration) AS launch
FROM kernels k
JOIN regions r ON r.stack_id = k.stack_id
GROUP BY k.name ORDER BY gpu DESC LIMIT 5
"""
# end solution
q.check(answer)

# %% [markdown]
# ## Which part of a step launches them?
#
# `--roctx` marked the parts of each step, and these ranges are rows of `regions`, too. Since ROCm 10.1 `name` is the
# mark, before it stands in `extdata`; `coalesce(a, b)` takes `b` where `a` has no value. A table of your own, in the
# connection's memory, has them all. `tid` is the thread that called:

# %%
_ = train.execute("""CREATE TEMP TABLE marks AS
SELECT coalesce(json_extract(extdata, '$.message'), name) AS range, tid, start, end
FROM regions WHERE category LIKE 'MARKER%'""")
some = pd.read_sql("SELECT * FROM marks ORDER BY start LIMIT 5", train)
show_table(some, "range tid start end", "The first marks", origin=origin)

# %%
# Rung 5, 5 minutes: for each range its name, and the ns on the GPU of all kernels that are launched within it, the most
# first. Every kernel of the run was launched in some range. Go on with rung 4: FROM kernels k JOIN regions r ON ...
q = exercise("06.5", train)
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
# Group by kernel *and* range, and the question of lesson 05 has its answer:

# %%
question = """
SELECT k.name, m.range, count(*) AS calls, sum(k.duration) AS total_ns
FROM kernels k JOIN regions r ON r.stack_id = k.stack_id
JOIN marks m ON r.start BETWEEN m.start AND m.end
GROUP BY k.name, m.range ORDER BY total_ns DESC
"""
launched = pd.read_sql(question, train)
launched["short_name"] = launched["name"].map(short_name)
show_table(launched, "short_name range calls total_ms", "Who launches what", rows=6, origin=origin)
share = 100 * launched.groupby("range")["total_ns"].sum() / launched["total_ns"].sum()
most, largest_in = share.idxmax(), launched["range"].iloc[0]
say(
    f"`{largest_in}` launches the largest kernel. But most of the kernel time, {share[most]:.0f} "
    f"%, in `{most}`."
)

# %% [markdown]
# ## Leave out the first step
#
# Your run has its first step in it, which lesson 00 taught you to leave out. Where does the second begin? `OFFSET 1`
# skips a row. A question in brackets can stand where a number stands.

# %%
SECOND_STEP = "SELECT start FROM marks WHERE range = 'data' ORDER BY start LIMIT 1 OFFSET 1"
begin = pd.read_sql(SECOND_STEP, train)["start"].iloc[0]
both = pd.read_sql("SELECT min(start) AS first, max(end) AS last FROM op", train).iloc[0]
say(
    f"The first step takes {100 * (begin - both['first']) / (both['last'] - both['first']):.0f} % "
    "of the whole run."
)

# %%
# Rung 6, 3 minutes: after the first step, what share of all kernel time, in percent, goes into kernels shorter than
# 10,000 ns? `SECOND_STEP` is a text: f"... WHERE start > ({SECOND_STEP})" puts it into yours.
q = exercise("06.6", train)
# solution
answer = f"""
SELECT 100.0 * sum(CASE WHEN duration < 10000 THEN duration ELSE 0 END) / sum(duration)
FROM kernels WHERE start > ({SECOND_STEP})
"""
# end solution
q.check(answer)

# %% [markdown]
# ## Gaps
#
# A trace has no row for the time in which nothing ran. So compare each row with the one before, by a *window*:
# `OVER (ORDER BY start)` lays the rows in a line, and `lag(end)` is the end of the row before. A question mark stands
# for a number that comes from Python, in `params`. Here is the longest gap after the first step, and what the host
# called in it:

# %%
line = "SELECT start AS finish, lag(end) OVER (ORDER BY start) AS begin FROM op WHERE start > ?"
longest = f"SELECT * FROM ({line}) ORDER BY finish - begin DESC LIMIT 1"
gap = pd.read_sql(longest, train, params=[int(begin)]).iloc[0]
question = """
SELECT name, count(*) AS calls, sum(min(end, ?2) - max(start, ?1)) AS total_ns FROM regions
WHERE category NOT LIKE 'MARKER%' AND start < ?2 AND end > ?1
GROUP BY name ORDER BY total_ns DESC
"""
calls = pd.read_sql(question, train, params=[int(gap["begin"]), int(gap["finish"])])
show_table(calls, "name calls total_us", "HIP calls within the longest gap", rows=5, origin=origin)
say(
    f"They fill {calls['total_ns'].sum() / 1e3:,.0f} of "
    f"{(gap['finish'] - gap['begin']) / 1e3:,.0f} µs."
)

# %% [markdown]
# For the rest of the gap the program called nothing of HIP, and the trace can't tell what it did.
#
# `lag` is right only where nothing overlaps. On four GPUs an operation can still run when the row before it has ended.
# `ATTACH` opens further databases in the same connection, so one view can hold them all:

# %%
paths = sorted((lesson.folder / "four").rglob("*_results.db"))
four = connect(paths[0])
for number, path in enumerate(paths[1:], 1):
    four.execute(f"ATTACH 'file:{path}?mode=ro' AS gpu{number}")
names = ["main", *(f"gpu{number}" for number in range(1, len(paths)))]
_ = four.execute(
    "CREATE TEMP VIEW op AS" + "UNION ALL".join(OPERATIONS.format(name) for name in names)
)

# %% [markdown]
# Compare with the latest end so far, the running maximum of lesson 02:
#
# ```
# max(end) OVER (ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
# ```
#
# Where work overlaps, `start` lies before that: `max(0, ...)` takes the larger of two numbers. A window can't stand
# inside `sum(...)`. So put two questions into each other: `SELECT sum(max(0, gap)) FROM (SELECT ... AS gap FROM op)`.

# %%
# Rung 7, 4 minutes: in `four`, for how many ns together does no GPU at all run an operation?
q = exercise("06.7", four)
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

# %% [markdown]
# The first operation has no row before it, so its `latest` is NULL, no value; `coalesce` puts its own `start` there.
# What an operation adds to the busy time is what lies beyond `latest`: `max(0, end - max(start, latest))`.
# `WITH n AS (SELECT ...) SELECT ... FROM n` names a question and builds on it.

# %%
# Rung 8, 5 minutes, open: divide the time of `four`, from the first start to the last end, into rows (name, ns) that
# add up to it. Give three rows or more, each ns once. Call the one for the time without an operation `idle`, and one
# `kernel`.
q = exercise("06.8", four)
# solution
answer = """
WITH line AS (SELECT kind, start, end, coalesce(max(end) OVER (
    ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start) AS latest
              FROM op)
SELECT kind AS name, sum(max(0, end - max(start, latest))) AS ns FROM line GROUP BY kind
UNION ALL
SELECT 'idle', sum(max(0, start - latest)) FROM line
"""
# end solution
q.check(answer)

# %% [markdown]
# ## rpd, and AMD's study
#
# [rpd](https://github.com/ROCm/rocmProfileData) is older than rocpd and no part of ROCm: clone it, install
# `sqlite3 libsqlite3-dev libfmt-dev` (or their names on your system), then `make; make install`. It writes one file for
# all processes, and `runTracer.sh` stands before the command; `-o` must come first, and replaces the file.
#
# This is the smaller product of AMD's blog: a matrix X times a matrix W, in 32-bit numbers.

# %% language="bash"
# exec 2>&1
# runTracer.sh -o $FOLDER/small.rpd \
#     python -m cifar_train.matmul --x-shape 50000 10000 --w-shape 10000 800
# # A Chrome trace for Perfetto, by the course's stand-in:
# rpd2tracing $FOLDER/small.rpd $FOLDER/small.json

# %% [markdown]
# | in rocpd | in rpd | what differs in rpd |
# | --- | --- | --- |
# | `kernels`: `name`, `duration` | `kernel`: `kernelName`, `duration` | built on roctracer (ROCm 6), no kernel copies |
# | `memory_copies` | `copyop` | |
# | your `op` | `op`: `opType`, `description` | copies have no `description` |
# | `regions` | `api`: `apiName`, `args` | ranges are rows with `apiName` `UserMarker` |
# | `stack_id` | `rocpd_api_ops`: `api_id`, `op_id` | a table of its own links calls and operations |
# | | `rocpd_kernelapi`, `rocpd_copyapi` | what a launch or copy asked for: subclasses of `rocpd_api`, by `api_ptr_id` |
# | | `kernel`, `copy`, `copyop` | views that join both: calls of kernels and copies, copies on the GPU |
# | `top_kernels` | `top` | adds up copies too |
#
# Don't mix them up: rpd's own Python package is called `rocpd` as well.

# %%
small, rpd_origin = (
    connect(lesson.folder / "small.rpd"),
    own_run(lesson.folder / "small.rpd").origin,
)
seen = pd.read_sql(
    "SELECT opType, count(*) AS operations, sum(end - start) AS total_ns FROM op GROUP BY opType",
    small,
)
show_table(seen, "opType operations total_ms", "The smaller product, in rpd", origin=rpd_origin)

# %% [markdown]
# `Busy` is GpuTime, the sum of all operations, divided by WallTime, the time from the first to the last operation.
# These are the two runs as AMD published them. The blog praises the higher `Busy` of the larger one. Look at the other
# columns. A *tile* is the piece of the result that one group of threads computes.

# %%
published = pd.read_csv(lesson.file("published_products.csv"), comment="#")
MI200 = (
    "recorded: AMD Instinct MI200 series, ROCm 6.0.2, published in AMD's ROCm blog of 17 April 2024"
)
flops = 2 * published["height"] * published["inner"] * published["width"]
published["busy"] = published["gpu_ns"] / published["wall_ns"]
published["idle_ns"] = published["wall_ns"] - published["gpu_ns"]
published["copies_percent"] = 100 * published["copy_ns"] / published["gpu_ns"]
published["TFLOP/s"] = flops / published["kernel_ns"] / 1e3
columns = "run busy idle_ms copies_percent tile TFLOP/s"
show_table(published, columns, "AMD's two matrix products", origin=MI200)
rate = published["TFLOP/s"].iloc[1] / published["TFLOP/s"].iloc[0]
say(
    f"Busy rose by a factor of {published['busy'].iloc[1] / published['busy'].iloc[0]:.1f}. But "
    f"the product itself ran at **{rate:.2f} times** the rate, with another kernel that has "
    f"smaller tiles. And the GPU was idle for {published['idle_ns'].iloc[0] / 1e9:.2f} s in one "
    f"run, {published['idle_ns'].iloc[1] / 1e9:.2f} s in the other."
)

# %% [markdown]
# `Busy` is higher because more work, and slower work, stands beside nearly the same idle time. That is no success in
# itself. The file of the smaller run is public.

# %%
study = proflab.recording("rpd-mi200-matmul")
blog, blog_origin = connect(study.path), study.origin

# %% [markdown]
# ## Trap: the view called `ktop`
#
# Files from before November 2024 bring a ranking along. It is called `ktop`, which sounds like the top kernels, and the
# blog reads it as the kernels that took the most time. It has been dropped since.

# %%
found = pd.read_sql("SELECT Name, TotalCalls, TotalDuration AS total_us FROM ktop LIMIT 3", blog)
found["kernel"] = found["Name"].map(short_name)
show_table(
    found, "kernel TotalCalls total_us", "AMD's smaller product: the view ktop", origin=blog_origin
)
say("A program that multiplies matrices, and no matrix product (GEMM) in sight? Read the view:")
say(
    "```sql\n"
    + pd.read_sql("SELECT sql FROM sqlite_master WHERE name = 'ktop'", blog)["sql"].iloc[0]
    + "\n```"
)

# %% [markdown]
# It subtracts times of `rocpd_api`: these are the calls on the host. Rung 4 put both clocks beside each other. Here is
# that question in rpd's words, for all kernels:

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
    f"`{first.short_name}` takes {100 * first.gpu_ns / ranking['gpu_ns'].sum():.1f} % of all "
    f"kernel time. By `ktop` it is number {first.launch_place} of {len(ranking)}."
)

# %% [markdown]
# `ktop` adds up the **launch calls on the host**. Such a call is long, for instance, where a kernel is launched for the
# first time and its code must be loaded. That says nothing about its time on the GPU.
#
# ## A file that you have not seen
#
# Somebody recorded vLLM, which serves a language model, with rpd of 2024. The file is packed, so unpack it first. You
# know what to do with a new file.

# %%
packed = proflab.recording("rpd-vllm-mytrace")
unpacked = lesson.folder / "vllm.rpd"
unpacked.write_bytes(gzip.decompress(packed.path.read_bytes()))
vllm = connect(unpacked)
show_table(
    pd.read_sql("SELECT * FROM busy", vllm),
    "gpuId GpuTime WallTime Busy",
    "vLLM",
    origin=packed.origin,
)

# %%
# Rung 9, 3 minutes: how many percent of the time of all operations (`GpuTime`) do copies take?
q = exercise("06.9", vllm)
# solution
types = pd.read_sql(
    "SELECT opType, min(description), count(*), sum(end - start) FROM op GROUP BY opType", vllm
)
answer = """
SELECT 100.0 * sum(CASE WHEN opType LIKE '%copy%' THEN end - start ELSE 0 END) / sum(end - start)
FROM op
"""
# end solution
q.check(answer)

# %% [markdown]
# A *HIP graph* is a list of kernels and copies that is recorded once and launched by one call, `hipGraphLaunch`. Its
# kernels are of the type `Task` here, and the view `kernel` leaves them out.
#
# ## Decide
#
# A gap, a copy or a kernel: the largest part chooses the next question. Name it before you run the cell. The case
# is cut at its second step, as in rung 8.
#
# And the same kernels on four GPUs? `{0}` stands for each of the four files in turn. RCCL's kernels (their names hold
# `nccl`) exchange what the GPUs have learnt; all others compute.

# %%
PARTS = """
WITH line AS (SELECT kind, start, end, coalesce(max(end) OVER (
    ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start) AS latest
              FROM op WHERE start > ?)
SELECT kind AS name, sum(max(0, end - max(start, latest))) AS ns FROM line GROUP BY kind
UNION ALL SELECT 'idle', sum(max(0, start - latest)) FROM line
"""
EACH = """
SELECT '{0}' AS file, sum(CASE WHEN name LIKE '%nccl%' THEN 0 ELSE duration END) AS others_ns,
       sum(CASE WHEN name LIKE '%nccl%' THEN duration ELSE 0 END) AS rccl_ns
FROM {0}.kernels
"""
parts = pd.read_sql(PARTS, train, params=[int(begin)]).set_index("name")["ns"]
gpus = pd.read_sql("UNION ALL".join(EACH.format(name) for name in names), four)
show_table(gpus, "file others_ms rccl_ms", "Four GPUs, the first step included", origin=origin)


# %%
def decide(parts, gpus):
    if parts.idxmax() == "idle":
        return "03"  # what does the host do meanwhile?
    if parts.idxmax() == "copy":
        return "04"  # who launches them?
    return "07" if gpus["rccl_ns"].max() > 1.5 * gpus["rccl_ns"].min() else "05"


shares, following = 100 * parts / parts.sum(), decide(parts, gpus)
times = {name: gpus[name].max() / gpus[name].min() for name in ("others_ns", "rccl_ns")}
say(
    f"On one GPU the largest part is `{parts.idxmax()}`, {shares.max():.0f} % of the time. On "
    f"four, the kernels that compute take {times['others_ns']:.2f} times as long on one GPU as on "
    f"another, RCCL's {times['rccl_ns']:.1f} times."
)
proflab.reveal("06.a", rate, origin=MI200)
proflab.reveal("06.b", shares["idle"], origin=origin)

# %% [markdown]
# The same calls of RCCL carry the same data, and yet their kernels last much longer on one GPU than on another. So part
# of their time is no work. These sums can't say which part: whom a GPU waits for stands in the files of the others.
# Where your own run gives another part, take the lesson that is named.

# %%
lesson.conclude(
    f"`{most}` launches {share[most]:.0f} % of the kernel time, `{largest_in}` the largest kernel. "
    f"Without the first step nothing runs for {shares['idle']:.1f} % of the time. On four GPUs "
    f"the same calls of RCCL take {gpus['rccl_ns'].min() / 1e6:.0f} ms on one and "
    f"{gpus['rccl_ns'].max() / 1e6:.0f} ms on another.",
    rules_out=f"Copies to and from the host ({shares['copy']:.1f} %), and large gaps.",
    because="A kernel of RCCL can wait for another GPU. Who waits, and for whom? Only all ranks "
    "together tell.",
    next=following,
    origin=origin,
)

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
# Read on in [AMD's manual of rocpd][rocpd]. Builds of rpd since May 2026 bring `rpd-viewer`, which shows a file in the
# browser, at port 8050.
#
# [rocpd]: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocpd-output-format.html

# %% [markdown]
# ## Key points
#
# - A trace is a table: count, filter, group, rank, join, look back.
# - A kernel belongs to the range in which its *call* began, in whatever thread.
# - Read what a view adds up before you believe its name. `ktop` is no GPU time.
# - List the types of operations first: what is no kernel need not be a copy.
# - A higher `Busy` is no speed-up: divide the work by the time.
# - What did not run has no row. Look for gaps, and leave out the first step.
#
# Next question: what changes with many GPUs?
