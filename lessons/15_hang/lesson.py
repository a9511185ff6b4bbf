# %% [markdown]
# # Who is missing?
#
# A job on many GPUs stands still until every rank reports a time-out: one rank does something else, and all others wait
# for it. PyTorch keeps a list of the last collectives of each rank, its *flight recorder*. Side by side, these lists
# say who is missing.
#
# After this lesson you can
#
# - make each rank leave a dump, and read it by hand and with `tidyprof hang`;
# - tell five hangs from each other: late, skipped, another size, another order, dead;
# - say what a dump can't prove.
#
# You need lessons 00 and 07. Everything runs here, with three processes and `gloo`, PyTorch's library of collectives
# for processors. RCCL has a section of its own.

# %%
import pickle
import shutil
from pathlib import Path

import pandas as pd
import proflab
import tidyprof
from proflab import exercise, show_table, show_text

lesson = proflab.start("15")
folder = lesson.folder
shutil.copy(lesson.file("hangs.py"), folder)
shutil.copy(
    lesson.file("../../snippets/15_find_missing_ranks.py"), folder / "find_missing_ranks.py"
)
recorded = lesson.file("recorded")

# %%
lesson.recall()

# %% [markdown]
# ## The picture to keep in mind
#
# Collectives have no names. The library pairs the first call of each rank with the first call of the others, and so on.
# So a rank that leaves a call out doesn't stop there. The job stops later, mostly at another line:
#
# {drawing 15_missing_call}
#
# | hang | what the rank does | what the others see |
# | --- | --- | --- |
# | late | writes a checkpoint, waits for data | nothing, until the time-out |
# | skipped | takes a branch without the call | wrong sums, then a time-out at the end |
# | another size | has a smaller last batch | a time-out, an abort, or a wrong sum |
# | another order | calls the same things the other way round | a time-out on both sides |
# | dead | was killed, for instance for its memory | a lost connection, or a time-out |
#
# The *time-out* is how long a rank waits in a call; `init_process_group(timeout=...)` sets it.
#
# ## Predict
#
# Three ranks make four calls of `all_reduce`. Rank 1 leaves out the second one. The time-out is 4 s.

# %%
# solution
rank_guess, call_guess = 1, 2
# end solution
proflab.predict("15.a", rank_guess, what="the rank that reports an error first")
proflab.predict("15.b", call_guess, what="the number of the call in which the others wait, from 1")

# %% [markdown]
# ## Capture
#
# The five hangs, as short as they can be, and a cure: `cured` is `skipped` without its branch. `watch`, from the
# snippet at the end of this lesson, writes a rank's dump every half second from a thread of its own: the rank itself
# may be stuck, or aborted without a word.

# %%
print(
    (folder / "hangs.py")
    .read_text()
    .partition("def run(")[0]
    .partition("import torch.distributed as dist")[2]
)

# %% language="bash"
# cd $FOLDER
# python hangs.py live find_missing_ranks.py late skipped other_size other_order dead cured \
#     2> live.err
# grep says live/*/log_*.txt | sed 's#live/##; s#/log_[0-9]*.txt:#: #' | cut -c 1-100

# %% [markdown]
# No rank names another.
#
# ## Look by hand
#
# A dump is a pickle with a list of calls. A pickle can run code when it is loaded, so load only your own; the snippet
# and `tidyprof` refuse whatever isn't plain data. This run was recorded before, so that what follows is the same for
# everybody:


# %%
def calls_of(file):
    dump = pickle.loads(file.read_bytes())
    rows = []
    for call in dump["entries"]:
        own = [frame for frame in call["frames"] if "torch" not in Path(frame["filename"]).parts]
        rows.append(
            {
                "rank": int(file.name[-1]),
                "number": call["collective_seq_id"],
                "line": own[0]["line"],
            }
        )
    return rows


skipped = recorded / "skipped"
calls = pd.DataFrame([row for file in sorted(skipped.glob("rank_*")) for row in calls_of(file)])
side_by_side = calls.pivot(index="rank", columns="number", values="line").astype("Int64")
origin = "recorded: gloo, three processes on one processor, torch 2.15"
shown = side_by_side.add_prefix("call_").reset_index()
show_table(shown, " ".join(shown), "Line of hangs.py for each call", origin=origin)
for file in sorted(skipped.glob("log_*")):
    print(file.read_text().strip())

# %% [markdown]
# Compare columns from the left: where do the lines part, and where does a call end the row?
#
# ## Trap: the line where they wait
#
# The error's stack has the line of the last call. Everybody looks there first.

# %%
# 4 minutes: which rank are the others waiting for, and at which line of hangs.py is the call that it left out? Answer
# with a pair.
q = exercise("15.1", skipped)
# solution
parted = side_by_side.loc[:, side_by_side.nunique() > 1].iloc[:, 0]
answer = int(side_by_side.count(axis=1).idxmin()), int(parted[0])
# end solution
q.check(answer)

# %% [markdown]
# Since call 2 each sum was made of different things, and nothing complained. A branch around a collective is right only
# if every rank takes the same one.
#
# ## The same in one command
#
# `tidyprof hang` lines up the calls of each process group, looks for the first that isn't the same everywhere (name,
# size, type, line), and then for who is behind, late or without a dump.

# %% language="bash"
# for hang in late skipped other_size other_order dead cured; do
#     echo "== $hang"
#     python -m tidyprof hang $FOLDER/live/$hang
# done

# %%
for name in ("late", "skipped", "other_size", "other_order", "dead"):
    found = tidyprof.find_missing_ranks(tidyprof.read_flight_recorder(recorded / name))
    show_text(f"`{name}`, as recorded: **{found.kind}**, rank {', '.join(map(str, found.ranks))}")

# %% [markdown]
# Your own run above may differ: if rank 1 died just after it wrote a dump, the verdict is *inconclusive*. So it is if
# the buffer no longer holds the call at which the ranks parted. Then raise `TORCH_FR_BUFFER_SIZE`, the number of calls
# that are kept.

# %%
for file in sorted((recorded / "other_size").glob("log_*")):
    print(file.read_text().strip())

# %% [markdown]
# Those that say "done" went on with a sum that is not one. No error is no proof here either (lesson 09).
#
# ## Trap: late is not a hang
#
# A call that isn't in a dump may still come. These are the dumps of `late` two seconds after call 2; the timeout is 4 s:

# %%
late = tidyprof.read_flight_recorder(recorded / "late")
early = late[~((late["rank"] == 1) & (late["number"] == 2))]
moment = early["called_ns"].max() + 2 * 10**9
early.attrs |= {"written_ns": dict.fromkeys(range(3), moment), "logs": {}}
show_text(tidyprof.find_missing_ranks(early).sentence)

# %% [markdown]
# Rank 1 is neither dead nor does it hang: it is writing a checkpoint, as its Python stack shows (`py-spy dump`).
#
# Dumps of different ages are the same trap. Therefore `tidyprof hang` compares their ages first: a rank is *behind* only
# if its dump is younger than the call that it lacks, and if that call waited longer than its timeout. The age is that of
# the file, so copy dumps with `cp -p`.

# %%
# 3 minutes: with which time-out, in whole seconds, would this job have gone on? Give the smallest.
q = exercise("15.2", late)
# solution
second = late[late["number"] == 2].set_index("rank")["called_ns"]
after_s = (second.max() - second.min()) / 1e9
answer = int(after_s) + 1
# end solution
q.check(answer)

# %% [markdown]
# A longer one cures no skipped call.
#
# ## A job that you don't know
#
# Four ranks of another script; its loop ends with a `barrier`, in which all wait for each other.

# %%
unknown = recorded / "unknown"
table = tidyprof.read_flight_recorder(unknown)
table["at"] = (
    table["call"].str.removeprefix("gloo:") + " " + table["line"].str.extract(r"\((\d+)\)")[0]
)
rows = table.pivot(index="rank", columns="number", values="at").add_prefix("call_").reset_index()
show_table(
    rows, " ".join(rows), "Call and line of train.py", origin=origin.replace("three", "four")
)
for file in sorted(unknown.glob("log_*")):
    print(file.read_text().strip())

# %%
# 5 minutes: which rank is at fault, and why? Answer with a pair. The second is "it came late", "it is dead",
# "it has fewer batches" or "its batch has another size".
q = exercise("15.3", unknown)
# solution
counts = table[table["call"] == "gloo:all_reduce"].groupby("rank").size()
answer = int(counts.idxmin()), "it has fewer batches"
# end solution
q.check(answer)

# %% [markdown]
# ## On GPUs (not tried here)
#
# PyTorch's sources call RCCL *NCCL*, too. A call only starts a kernel, and the host goes on. PyTorch's *watchdog* thread
# [writes][watchdog] after the timeout:
#
# ```text
# [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=...,
#     NumelOut=..., Timeout(ms)=600000) ran for 600081 milliseconds before timing out.
# ```
#
# `SeqNum` numbers the calls, and `NumelIn` is the size in elements. Only ranks that wait write such a line. Compare
# `SeqNum` over *all* logs before you blame a rank.
#
# [watchdog]: https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp

# %% [markdown]
# | setting | what for |
# | --- | --- |
# | `TORCH_FR_BUFFER_SIZE=2000` | calls to keep: [the default][size] since 2026; older: `TORCH_NCCL_TRACE_BUFFER_SIZE` |
# | `TORCH_NCCL_DUMP_ON_TIMEOUT=1` | the watchdog writes [the dump][settings]: [the default][dump] since 2025 |
# | `TORCH_FR_DUMP_TEMP_FILE=dumps/rank_` | where, without the rank; older: `TORCH_NCCL_DEBUG_INFO_TEMP_FILE` |
# | `TORCH_NCCL_DEBUG_INFO_PIPE_FILE=pipes/rank_` | a pipe for each rank: who writes a line into it gets a dump now |
# | `TORCH_NCCL_ENABLE_TIMING=1` | how long each call took; not in a job that hangs: it makes hangs [likelier][timing] |
#
# So after a hang **look first**: with a torch of this year the dumps lie on each node in
# `~/.cache/torch/comm_lib_trace_rank_N`, or without a home in `/tmp`, though nobody set a variable. The recorder has a
# [price][price] for a server with small kernels. `torchfrtrace FOLDER` is PyTorch's own tool for such dumps; [the page
# on dumps](../docs/hang.md) compares it with `tidyprof hang`.
#
# [settings]: https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
# [size]: https://github.com/pytorch/pytorch/pull/172843
# [dump]: https://github.com/pytorch/pytorch/pull/143446
# [timing]: https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp
# [price]: https://github.com/intel/torch-xpu-ops/pull/5413

# %% [markdown]
# Such a dump [holds more][old] than gloo's. `state` becomes `started` and `completed`, with the times at which that was
# noticed; with gloo it stays `scheduled`. A call that is `retired` and not `completed` has timed out; with gloo every
# call that ended, well or not, is `retired`. gloo writes no dump by itself, so the snippet does.
#
# [old]: https://github.com/pytorch/pytorch/blob/00f0e2f66801e216038f15f885bcdd4f3d955233/torch/csrc/distributed/c10d/FlightRecorder.hpp
#
# ## Decide
#
# | verdict | look at |
# | --- | --- |
# | no dump | the rank's log and exit code, and the kernel log of its node |
# | behind | the rank's Python stack: `py-spy dump --pid PID` on its node |
# | late | what that rank did before the call, with a trace (lesson 07) |
# | left the path | the branch between the two lines |
# | other call | the order of calls on the odd rank, and the number of its batches |
# | other size | the shapes on the odd rank, above all of its last batch |
# | inconclusive | dumps of all ranks from one moment after the timeout |

# %%
says = {file: file.read_text() for file in skipped.glob("log_*")}
errors = {text: file for file, text in says.items() if "says" in text}
first = min(errors, key=lambda text: float(text.split()[0]))
proflab.reveal("15.a", int(errors[first].stem[-1]), origin)
proflab.reveal("15.b", int(calls["number"].max()), origin)

# %% [markdown] tags=["given"]
# ## What this tool cannot see
#
# - Why a rank did not come. It shows the last call before, not what happened since.
# - Whether a rank that is behind is dead, or where it is now.
# - Wrong pairs of the same name, size and line.
# - Messages between two ranks (`send`, `recv`) of gloo, which records none.
# - Hangs outside of collectives: a lock, a loader.
#
# A dump without calls: `TORCH_FR_BUFFER_SIZE` was 0, or set too late. A rank behind by minutes: a dump of an earlier
# job, so give each job its folder. No lines in the dump: `_dump_fr_trace_file` leaves them out unless asked.

# %% [markdown]
# ## At work, without this course
#
# {snippet 15_find_missing_ranks.py}
#
# It uses functions of PyTorch whose names begin with an underscore, so they may change; it was tried with torch 2.15.

# %% [markdown]
# Next question: yours.
