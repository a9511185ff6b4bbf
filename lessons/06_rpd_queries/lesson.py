# %% [markdown]
# # Can I ask my own question?
#
# Every profiler answers the questions that its authors thought of. Yours may not be among them: one about kernels,
# calls and ranges at once, or about the files of four GPUs. Two tools for AMD GPUs, rocprofv3 and rpd, write a
# *database*: a file of tables that you question in the language SQL, or several such files at once.
#
# After this lesson you can
#
# - record a program with rocprofv3 or rpd into SQLite files, and list what is in them;
# - ask for sums, rankings, shares and gaps, with the first step left out, and over the files of many ranks;
# - check a ready-made view before you believe it.
#
# You need lessons 00 and 02, and no SQL. Without an AMD GPU, the course replays the commands with files of a *modeled*
# MI300X. The databases are those of rocprofv3 since ROCm 7.0, the `.rpd` files those of rpd of 2026 and of 2024.

# %%
import gzip
import sqlite3

import pandas as pd
import proflab
from proflab import exercise, show_table, show_text
from proflab.parts.steady_part import own_run

lesson = proflab.start("06")

# %%
lesson.recall()

# %% [markdown]
# ## The case so far
#
# No single kernel decides, it is a sum of many. Which part of a step launches them?

# %%
lesson.findings()

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
# RCCL's kernels exchange the gradients: on four GPUs they carry the same data. Guess before you look.

# %%
# solution
idle_guess, rccl_guess = 5, 1.5
# end solution
proflab.predict("06.a", idle_guess, unit="%", what="time without work, after the first step")
proflab.predict("06.b", rccl_guess, unit="times", what="RCCL's time on four GPUs, most by least")

# %% [markdown]
# ## Capture
#
# `--runtime-trace` records HIP calls, copies, kernels and the ranges that `--roctx` marks. On four GPUs each process
# writes a file of its own. (If you have fewer, write their number.)

# %% language="bash"
# exec 2>&1
# rocprofv3 --runtime-trace --output-format rocpd --output-directory $FOLDER --output-file train \
#     -- $EXAMPLE --max-steps 4 --roctx --run-dir $FOLDER/train
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
show_text("Views: " + ", ".join(found["name"]))
show_table(
    pd.read_sql("SELECT * FROM busy", train),
    "type GpuTime WallTime Busy",
    "The view busy, ns",
    origin=origin,
)

# %% [markdown]
# Mostly idle? In lesson 04 the modeled case computes for nearly all of a step. One of them misleads; a trap below says
# which. `sqlite_master` even has the SQL of a view, in its column `sql`.
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
# ## The ladder
#
# Each rung adds one word. Your answer is the SQL text itself, in three quotes as above. To see what it gives:
# `pd.read_sql(answer, train)`.
#
# | rung | new | what it does |
# | --- | --- | --- |
# | 1 | `GROUP BY c ORDER BY n DESC LIMIT 5` | the five largest groups |
# | 2 | `JOIN v c ON b.x BETWEEN c.y AND c.z` | puts rows of two tables side by side, here by time |
# | 3 | `max(c) OVER (...)` | looks back over the rows before |
# | 4 | `CASE WHEN c LIKE '%x%' THEN y ELSE 0 END` | chooses within a row; capitals don't matter to `LIKE` |
# | 5 | `100.0 * sum(c)` | whole numbers stay whole: write `100.0` |

# %%
# Rung 1, 2 minutes: the five kernels of `train` with the most GPU time: name, calls, ns. The longest first.
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
# ## Which part of a step launches them?
#
# The question of lesson 05. Lesson 02 joined a trace of torch.profiler by `External id`. Any trace that has calls and
# ranges can say it. `JOIN` puts a kernel beside its call: they share a `stack_id`. `k` and `r` are short for the
# tables.

# %%
question = """
SELECT k.name, sum(k.duration) AS total_ns, sum(r.duration) AS launch_ns
FROM kernels k JOIN regions r ON r.stack_id = k.stack_id
GROUP BY k.name ORDER BY total_ns DESC LIMIT 3
"""
clocks = pd.read_sql(question, train)
clocks["name"] = clocks["name"].str[:50]
show_table(clocks, "name total_ms launch_ms", "Two clocks: the GPU's, the call's", origin=origin)

# %% [markdown]
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
# Rung 2, 5 minutes: for each range its name, and the ns on the GPU of all kernels that are launched within it, the most
# first. Every kernel of the run was launched in some range. Go on with the question above: its call began in the range.
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
# ## Trap: the view called `busy`
#
# It divides the sum of all operations by the time from the first to the last, and your run has its first step in it,
# which lesson 00 taught you to leave out. Where does the second begin? `OFFSET 1` skips a row. A question in brackets
# can stand where a number stands.

# %%
SECOND_STEP = "SELECT start FROM marks WHERE range = 'data' ORDER BY start LIMIT 1 OFFSET 1"
BUSY = "SELECT 100.0 * sum(duration) / (max(end) - min(start)) AS percent FROM kernels"
for text, question in {"With": BUSY, "Without": f"{BUSY} WHERE start > ({SECOND_STEP})"}.items():
    show_text(f"{text} step 1: busy {pd.read_sql(question, train)['percent'].iloc[0]:.0f} %.")

# %% [markdown]
# A ready-made view has no first step to leave out, and its sum counts overlapping work twice.
#
# ## Four files, one question
#
# A new question begins here, of four GPUs: do the same kernels take equally long on each, and when does none work?
# `ATTACH` opens further databases in the same connection. No view has kernels and copies together, nor those of all
# files. So write your own: a view in the connection's own memory changes no file. `UNION ALL` puts the rows of
# questions below each other; `{0}` stands for each of the four files in turn, of which the first is called `main`.

# %%
OPERATIONS = """
SELECT '{0}' AS gpu, 'kernel' AS kind, name, start, end FROM {0}.kernels UNION ALL
SELECT '{0}', 'copy', name, start, end FROM {0}.memory_copies
"""
paths = sorted((lesson.folder / "four").rglob("*_results.db"))
four, names = connect(paths[0]), ["main"]
for number, path in enumerate(paths[1:], 1):
    names.append(f"gpu{number}")
    four.execute(f"ATTACH 'file:{path}?mode=ro' AS gpu{number}")
four.execute("CREATE TEMP VIEW op AS" + "UNION ALL".join(OPERATIONS.format(name) for name in names))
counted = "SELECT gpu, kind, count(*) AS rows FROM op GROUP BY gpu, kind"
show_table(pd.read_sql(counted, four), "gpu kind rows", "All four files", origin=origin)

# %% [markdown]
# A trace has no row for the time in which nothing ran. So compare each start with what ended before. A *window*,
# `OVER (ORDER BY start)`, lays the rows in a line. In it `lag(end)` is the end of the row before, and right only where
# nothing overlaps: on four GPUs an operation can still run when the row before it has ended. Take the latest end so
# far, the running maximum of lesson 02:
#
# ```
# max(end) OVER (ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
# ```
#
# Where work overlaps, `start` lies before that: `max(0, ...)` takes the larger of two numbers. A window can't stand
# inside `sum(...)`. So put two questions into each other: `SELECT sum(max(0, gap)) FROM (SELECT ... AS gap FROM op)`.

# %%
# Rung 3, 4 minutes: in `four`, for how many ns together does no GPU at all run an operation?
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
# Rung 4, 4 minutes: RCCL's kernels have `nccl` in their names; all others compute. For each `gpu` of `four`, the first
# step included: its name, RCCL's ns, and the ns of the other kernels. Every row of `op` is a kernel or a copy.
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
# ## rpd, and AMD's study in brief
#
# [rpd](https://github.com/ROCm/rocmProfileData) is older than rocpd and no part of ROCm: clone it, install
# `sqlite3 libsqlite3-dev libfmt-dev` (or their names on your system), then `make; make install`. It writes one file for
# all processes, and `runTracer.sh` stands before the command; `-o` must come first, and replaces the file. AMD's blog
# multiplied two matrices with it, in 32-bit numbers, then two that need ten times the arithmetic. This is the smaller
# product:

# %% language="bash"
# exec 2>&1
# runTracer.sh -o $FOLDER/small.rpd \
#     python -m cifar_train.matmul --x-shape 50000 10000 --w-shape 10000 800
# # A Chrome trace for Perfetto:
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
# Don't mix them up: rpd's own Python package is called `rocpd` as well. Files of rpd from before November 2024 have a
# ranking `ktop`: it adds up the [calls that launch](../docs/known-issues.md#ktop-adds-up-launch-calls), the second
# clock above, and names no matrix product at all.

# %%
path = lesson.folder / "small.rpd"
types = "SELECT opType, count(*) AS rows, sum(end - start) AS total_ns FROM op GROUP BY opType"
seen = pd.read_sql(types, connect(path))
show_table(seen, "opType rows total_ms", "The smaller product, in rpd", origin=own_run(path).origin)

# %%
published = pd.read_csv(lesson.file("published_products.csv"), comment="#")
MI200 = "recorded: AMD Instinct MI200 series, ROCm 6.0.2, published in AMD's blog, 17 April 2024"
flops = 2 * published["height"] * published["inner"] * published["width"]
published["busy"] = published["gpu_ns"] / published["wall_ns"]
published["idle_ns"] = published["wall_ns"] - published["gpu_ns"]
published["copies_percent"] = 100 * published["copy_ns"] / published["gpu_ns"]
published["TFLOP/s"] = flops / published["kernel_ns"] / 1e3
columns = "run busy idle_ms copies_percent tile TFLOP/s"
show_table(published, columns, "AMD's two matrix products", origin=MI200)

# %% [markdown]
# The blog praises the higher `Busy` of the larger product. It is no success: the GPU was idle for as long, and the
# product ran at half the rate, with another kernel that has smaller *tiles* (the piece of the result that one group of
# threads computes). And most of the GPU's time is copying: with small data the processor alone can be faster, since it
# copies nothing.
#
# ## A file that you have not seen
#
# Somebody recorded vLLM, which serves a language model, with rpd of 2024. The file is packed, so unpack it first.

# %%
packed = proflab.recording("rpd-vllm-mytrace")
unpacked = lesson.folder / "vllm.rpd"
unpacked.write_bytes(gzip.decompress(packed.path.read_bytes()))
vllm = connect(unpacked)

# %%
# Rung 5, 3 minutes: how many percent of the time of all operations (rows of `op`) do copies take?
q = exercise("06.5", vllm)
# solution
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
# Answers of SQL are tables of pandas: what is awkward in one language is a line of the other.

# %%
text = OPERATIONS.format("main")
line = pd.read_sql(f"SELECT * FROM ({text}) WHERE start > ({SECOND_STEP}) ORDER BY start", train)
span = line["end"].max() - line["start"].min()
idle = 100 * (line["start"] - line["end"].cummax().shift()).clip(lower=0).sum() / span
copied = 100 * line[line["kind"] == "copy"].eval("end - start").sum() / span
ran = pd.read_sql("SELECT gpu, name, end - start AS ns FROM op WHERE kind = 'kernel'", four)
rccl = ran["name"].str.contains("nccl").map({True: "rccl", False: "others"})
gpus = ran.groupby(["gpu", rccl])["ns"].sum().unstack()
times = gpus.max() / gpus.min()
proflab.reveal("06.a", idle, origin=origin)
proflab.reveal("06.b", times["rccl"], origin=origin)

# %%
joined = "SELECT r.start, k.duration FROM kernels k JOIN regions r ON r.stack_id = k.stack_id"
tables = joined, "SELECT start, range FROM marks"
calls, marks = (pd.read_sql(f"{question} ORDER BY 1", train) for question in tables)
part = pd.merge_asof(calls, marks, on="start").groupby("range")["duration"].sum()
part *= 100 / part.sum()

# %% [markdown]
# The same calls of RCCL carry the same data, and yet last much longer on one GPU than on another. So part of it is no
# work. These sums can't say which part: who waits, and for whom, needs the starts on all ranks.

# %%
lesson.conclude(
    f"Of the kernel time the backward pass launches {part['backward']:.0f} %, the forward pass "
    f"{part['forward']:.0f} %. Without the first step nothing runs for {idle:.1f} % of the time. "
    f"On four GPUs the kernels that compute take equally long ({times['others']:.2f} times); the "
    f"same calls of RCCL take {gpus['rccl'].min() / 1e6:.0f} ms on one and "
    f"{gpus['rccl'].max() / 1e6:.0f} ms on another.",
    rules_out=f"One part of the step alone, copies to and from the host ({copied:.1f} %), and "
    "large gaps.",
    because="A new question, of four GPUs: a kernel of RCCL can wait for another GPU. Who waits, "
    "and for whom? Only all ranks together tell.",
    next="07" if times["rccl"] > 1.5 else "05",
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
# One `.rpd` file for several ranks: name it by rank, inside `srun`, since each rank deletes what has its file's name. A
# database holds the environment of your process, in `rocpd_info_process`: look before you share it. Documented views
# that do not exist, and more: the [list of known issues](../docs/known-issues.md#rocprofv3-and-rocpd).

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
# Next question: what changes with many GPUs?
