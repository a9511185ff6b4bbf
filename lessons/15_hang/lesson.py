# %% [markdown]
# # Why does a distributed job hang?
#
# A job on many GPUs hangs until every rank reports a timeout. One rank does something different, and all the others
# wait for it. PyTorch's *flight recorder* lists the last collectives of each rank. These lists, side by side, show which
# rank is missing.
#
# After this lesson, you can:
#
# - make every rank write a dump, and read it manually and with `tidyprof hang`;
# - tell five kinds of hangs apart: late, skipped, another size, another order, dead;
# - say what a dump can't prove.
#
# **Before you start:** complete lessons 00 and 07. Everything runs on your CPU, with three processes and `gloo`,
# PyTorch's communication library for CPUs. RCCL has a separate section.

# %%
import pickle
import shutil

import proflab
import tidyprof
from proflab import exercise, show_table, show_text

lesson = proflab.start("15")
folder, recorded = lesson.folder, lesson.file("recorded")
snippet = lesson.file("../../snippets/15_find_missing_ranks.py")
shutil.copy(lesson.file("hangs.py"), folder)
shutil.copy(snippet, folder / "find_missing_ranks.py")
_ = shutil.copytree(recorded / "aborted", folder / "aborted", dirs_exist_ok=True)

# %%
lesson.recall()

# %% [markdown]
# ## The picture to keep in mind
#
# Collectives have no names. The library pairs the first call of each rank with the first call of the others, and so on.
# A rank that skips a call therefore doesn't stop there. The job stops later, usually at a different line:
#
# {drawing 15_missing_call}
#
# | hang | what the rank does | what the others see |
# | --- | --- | --- |
# | late | writes a checkpoint or waits for data | nothing, until the timeout |
# | skipped | takes a branch without the call | wrong sums, then a timeout at the end |
# | another size | has a smaller last batch | a timeout, an abort or a wrong sum |
# | another order | makes the same calls in another order | a timeout on both sides |
# | dead | was killed, for example for its memory use | a lost connection or a timeout |
#
# The *timeout* limits how long a rank waits in a call. `init_process_group(timeout=...)` sets it.
#
# ## Predict
#
# Three ranks make four calls to `all_reduce`. Rank 1 skips the second one. The timeout is 4 s.

# %%
# solution
rank_guess, call_guess = 1, 2
# end solution
proflab.predict("15.a", rank_guess, what="the rank that reports an error first")
proflab.predict("15.b", call_guess, what="the number of the call in which the others wait, from 1")

# %% [markdown]
# ## Capture
#
# Here are the hangs, as short as possible. `fixed` is `skipped` without its branch.

# %% language="bash"
# sed -n '/^def late/,/^def run/p' $FOLDER/hangs.py | head -n -3

# %% [markdown]
# A stuck or crashed rank can't write its own dump. So `watch`, from the snippet at the end of this lesson, writes the
# dump every half second in a separate thread. All hangs run at the same time, which takes about 20 seconds on two cores.

# %% language="bash"
# cd $FOLDER
# python hangs.py live find_missing_ranks.py late skipped other_size other_order dead fixed \
#     2> live.err
# grep says live/*/log_*.txt | sed 's#live/##; s#/log_[0-9]*.txt:#: #' | cut -c 1-100

# %% [markdown]
# None of these errors names the rank that caused it.
#
# ## Read the dumps manually
#
# A dump is a pickle that contains a list of calls. The next cells use a recorded run of `skipped`.
#
# > **Warning:** A pickle can run code when it is loaded, so load only your own. The snippet and `tidyprof` refuse
# > everything except plain data.

# %%
skipped = recorded / "skipped"
call = pickle.loads((skipped / "rank_0").read_bytes())["entries"][-1]
print(call["profiling_name"], "is call", call["collective_seq_id"])
print(*(f"{frame['filename']}:{frame['line']}" for frame in call["frames"]), sep="\n")

# %% [markdown]
# `tidyprof` reads the dumps of all ranks into one table. It leaves out PyTorch's own frames.


# %%
def side_by_side(folder):
    calls = tidyprof.read_flight_recorder(folder)
    in_line = calls["line"].str.extract(r"\((\d+)\)")[0]
    calls["at"] = calls["call"].str.removeprefix("gloo:") + " " + in_line
    return calls.pivot(index="rank", columns="number", values="at").add_prefix("call_")


origin = "recorded: gloo, all ranks on one CPU, torch 2.15"
lines = side_by_side(skipped)
columns = " ".join(["rank", *lines])
show_table(lines.reset_index(), columns, "Calls, each with its line of hangs.py", origin=origin)
print(*(file.read_text().strip() for file in sorted(skipped.glob("log_*"))), sep="\n")

# %% [markdown]
# Compare the columns from left to right. Where do the lines first differ, and which row ends early?
#
# ## Trap: the line where the ranks wait
#
# The stack trace of the error shows the line of the last call. Most people look there first.

# %%
# 4 minutes: which rank are the others waiting for, and which line of hangs.py contains the call that it skipped? Answer
# with the pair `(rank, line)`.
q = exercise("15.1", skipped)
# solution
parted = lines.loc[:, lines.nunique() > 1].iloc[:, 0]
answer = int(lines.count(axis=1).idxmin()), int(parted[0].split()[1])
# end solution
q.check(answer)

# %% [markdown]
# Starting with call 2, each sum mixed values that don't belong together, and no rank reported an error. A branch around
# a collective is correct only if every rank takes the same branch.
#
# ## The same in one command
#
# `tidyprof hang` finds the first call that isn't the same on all ranks (name, size, type or line). Then it looks for a
# rank that is behind, late or without a dump. The first line of its output is the verdict.

# %% language="bash"
# for hang in late skipped other_size other_order dead fixed; do
#     echo "== $hang"
#     python -m tidyprof hang $FOLDER/live/$hang | head -n 1
# done

# %% [markdown]
# The verdict on your run of `dead` is *inconclusive* if rank 1 died just after it wrote a dump. It is also inconclusive
# if the buffer no longer contains the call at which the ranks parted. In that case, raise `TORCH_FR_BUFFER_SIZE`, the
# number of calls that PyTorch keeps.
#
# In `other_size`, two ranks report "done", although rank 1 sent a tensor of a different size. They continued with a
# wrong sum. The absence of an error proves nothing (lesson 09).
#
# ## Trap: the rank that crashes isn't the cause
#
# In `skipped`, all calls have the same size, so gloo doesn't notice the wrong pairs. In a real job, the loss and the
# gradients differ in size, and gloo aborts a process. In this recorded run, rank 1 skips a call again:

# %% language="bash"
# cd $FOLDER
# sed -n '/^def aborted/,/^$/p' hangs.py
# cut -c 1-180 aborted/log_*.txt
# python -m tidyprof hang aborted

# %% [markdown]
# Rank 0 expected 4 bytes but received 432. The abort stopped its process before it wrote a dump. Yet rank 0 did nothing
# wrong. The dumps of the others show which calls differ, and the script shows that rank 1 skips the smaller one.
#
# ## Trap: late is not a hang
#
# A call that isn't in a dump may still come. Here is the verdict on `late`, two seconds after call 2 and with a timeout
# of 4 seconds:

# %%
late = tidyprof.read_flight_recorder(recorded / "late")
early = late[~((late["rank"] == 1) & (late["number"] == 2))]
moment = early["called_ns"].max() + 2 * 10**9
early.attrs |= {"written_ns": dict.fromkeys(range(3), moment), "logs": {}}
show_text(tidyprof.find_missing_ranks(early).sentence)

# %% [markdown]
# Rank 1 is neither dead nor stuck. It is writing a checkpoint, and its Python stack would show that (`py-spy dump`).
#
# Dumps of different ages cause the same mistake. So `tidyprof hang` reports a rank as *behind* only if its dump is newer
# than the missing call, and if the other ranks waited longer than the timeout. It takes the age from the file's time, so
# copy dumps with `cp -p`.

# %%
# 2 minutes: which timeout, in whole seconds, would have let this job continue? Give the smallest. Use `called_ns` in
# the rows of `late` whose `number` is 2.
q = exercise("15.2", late)
# solution
second = late[late["number"] == 2].set_index("rank")["called_ns"]
after_s = (second.max() - second.min()) / 1e9
answer = int(after_s) + 1
# end solution
q.check(answer)

# %% [markdown]
# A longer timeout doesn't fix a skipped call.
#
# ## Diagnose an unknown job
#
# Four ranks ran another script. Its loop ends with a `barrier`, in which all ranks wait for each other.

# %%
unknown = recorded / "unknown"
job = side_by_side(unknown)
title = "Calls, each with its line of train.py"
show_table(job.reset_index(), " ".join(["rank", *job]), title, origin=origin)
print(*(file.read_text().strip() for file in sorted(unknown.glob("log_*"))), sep="\n")

# %%
# 4 minutes: which rank is the cause, and why? Answer with a pair `(rank, reason)`. The reason is "it came late",
# "it is dead", "it has fewer batches" or "its batch has a different size".
q = exercise("15.3", unknown)
# solution
batches = sum(job[call].str.startswith("all_reduce") for call in job)
answer = int(batches.idxmin()), "it has fewer batches"
# end solution
q.check(answer)

# %% [markdown]
# ## On GPUs (not tested here)
#
# PyTorch's sources also call RCCL *NCCL*. A call only starts a kernel, and the host continues. After the timeout,
# PyTorch's *watchdog* thread [writes][watchdog] a message:
#
# ```text
# [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=...,
#     NumelOut=..., Timeout(ms)=600000) ran for 600081 milliseconds before timing out.
# ```
#
# `SeqNum` is the number of the call, and `NumelIn` is the size in elements. Only ranks that wait write this message.
# Compare `SeqNum` across *all* logs before you blame a rank.
#
# [watchdog]: https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp

# %% [markdown]
# | setting | purpose |
# | --- | --- |
# | `TORCH_FR_BUFFER_SIZE=2000` | calls to keep: [the default][size] since 2026; earlier: `TORCH_NCCL_TRACE_BUFFER_SIZE` |
# | `TORCH_NCCL_DUMP_ON_TIMEOUT=1` | the watchdog writes [the dump][settings]: [the default][dump] since 2025 |
# | `TORCH_FR_DUMP_TEMP_FILE=dumps/rank_` | path without the rank; earlier: `TORCH_NCCL_DEBUG_INFO_TEMP_FILE` |
# | `TORCH_NCCL_DEBUG_INFO_PIPE_FILE=pipes/rank_` | a pipe `pipes/rank_N.pipe` per rank (create `pipes` first): write a line to it to get a dump |
# | `TORCH_NCCL_ENABLE_TIMING=1` | duration of each call, but it makes hangs [likelier][timing] |
#
# After a hang, **look for dumps first**. Recent PyTorch writes them on each node without any setting, to
# `~/.cache/torch/comm_lib_trace_rank_N` or, without a home directory, to `/tmp`. [The page on dumps](../docs/hang.md)
# compares `tidyprof hang` with PyTorch's own tool, `torchfrtrace FOLDER`.
#
# [settings]: https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
# [size]: https://github.com/pytorch/pytorch/pull/172843
# [dump]: https://github.com/pytorch/pytorch/pull/143446
# [timing]: https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp

# %% [markdown]
# ## Decide
#
# | verdict | what to look at |
# | --- | --- |
# | no dump | the rank's log and exit code, and the kernel log of its node |
# | behind | the rank's Python stack: `py-spy dump --pid PID` on its node |
# | late | what that rank did before the call, with a trace (lesson 07) |
# | left the path | the branch between the two lines |
# | other call | the order of calls on the rank that differs, and the number of its batches |
# | other size | the shapes on the rank that differs, especially in its last batch |
# | inconclusive | dumps of all ranks from the same moment after the timeout |

# %%
errors = [file for file in skipped.glob("log_*") if "says" in file.read_text()]
first = min(errors, key=lambda file: float(file.read_text().split()[0]))
proflab.reveal("15.a", first.stem[-1], origin)
proflab.reveal("15.b", str(len(lines.columns)), origin)

# %% [markdown]
# ## Three takeaways
#
# - A rank that skips a collective doesn't stop there, so the line in the error is rarely the line of the bug.
# - The rank at fault is often not the one that complains or crashes, so compare the calls of all ranks.
# - A missing call proves nothing until it is overdue, so check the timeout and the age of each dump.

# %% [markdown] tags=["given"]
# ## What this tool can't show
#
# - **The reason.** It shows the last call of the missing rank, but not what happened afterwards.
# - **Death.** A rank that is behind may be dead or busy.
# - **Wrong pairs** of calls with the same name, size and line.
# - **Messages** between two ranks (`send`, `recv`) under gloo, which doesn't record them.
# - **Other hangs,** such as in a lock or a data loader.
#
# If a dump contains no calls, `TORCH_FR_BUFFER_SIZE` was 0 or was set too late. If it contains no lines,
# `_dump_fr_trace_file` wrote it, which leaves them out by default. Give each job a separate folder.

# %% [markdown]
# ## At work, without this course
#
# {snippet 15_find_missing_ranks.py}
#
# Import `watch` in your training script. After a hang, run the snippet on the folder of dumps. It uses private functions
# of PyTorch 2.15, which may change.

# %% [markdown]
# Next question: yours.
