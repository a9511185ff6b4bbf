# %% [markdown]
# # Why does a distributed job hang?
#
# A job on many GPUs hangs until its ranks report a timeout. Usually, one rank does something different, and all the
# others wait for it. PyTorch's *flight recorder* lists the last collectives of each rank. Compare these lists to find
# the missing rank.
#
# After this lesson, you can:
#
# - make every rank write a dump, and read the dumps manually and with `tidyprof hang`;
# - tell five kinds of hangs apart (late, skipped, another size, another order, dead);
# - say what a dump can't prove.
#
# **Before you start:** complete lessons 00 and 07. Everything runs on your CPU, in three processes that communicate
# through `gloo`, a CPU library. A separate section covers RCCL.

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
# Collectives have no names. The library matches each rank's first call with the first calls of the others, and so on. A
# rank that skips a call therefore doesn't stop there. The job hangs later, usually at a different line:
#
# {drawing 15_missing_call}
#
# | kind of hang | what the faulty rank does | what the other ranks see |
# | --- | --- | --- |
# | late | writes a checkpoint or waits for data | nothing, until the timeout |
# | skipped | takes a branch without the call | wrong sums, and finally a timeout |
# | another size | has a smaller last batch | a timeout, an abort or wrong sums |
# | another order | makes the same calls in another order | a timeout on all ranks |
# | dead | was killed, for example because it used too much memory | a lost connection or a timeout |
#
# The *timeout* limits how long a rank waits in a call. `init_process_group(timeout=...)` sets it.
#
# ## Predict
#
# Three ranks call `all_reduce` three times, then `barrier`. Rank 1 skips the first call. The timeout is 4 s.

# %%
# solution
rank_guess, call_guess = 1, 2
# end solution
proflab.predict("15.a", rank_guess, what="the rank that reports an error first")
proflab.predict(
    "15.b",
    call_guess,
    what="the number of the call in which the others wait, counted from 1",
)

# %% [markdown]
# ## Capture
#
# These functions cause the hangs. `fixed` is `skipped` without the branch.

# %% language="bash"
# sed -n '/^def late/,/^def run/p' $FOLDER/hangs.py | head -n -3

# %% [markdown]
# A stuck or crashed rank can't write a dump. Therefore, `watch`, a function in this lesson's snippet, writes one every
# half second from a separate thread. All hangs run at the same time, which takes about 20 seconds on two cores.

# %% language="bash"
# cd $FOLDER
# python hangs.py live find_missing_ranks.py late skipped other_size other_order \
#     dead fixed 2> live.err
# grep says live/*/log_*.txt | sed 's#live/##; s#/log_[0-9]*.txt:#: #' | cut -c 1-100

# %% [markdown]
# None of these error messages names the rank that caused the hang.
#
# ## Read the dumps manually
#
# A dump is a pickle file that contains a list of calls. The next cells use a recorded run of `skipped`.
#
# > **Warning:** A pickle can run code when you load it, so load only your own. The snippet and `tidyprof` accept only
# > plain data.

# %%
skipped = recorded / "skipped"
call = pickle.loads((skipped / "rank_0").read_bytes())["entries"][-1]
print(call["profiling_name"], "is call", call["collective_seq_id"])
print(*(f"{frame['filename']}:{frame['line']}" for frame in call["frames"]), sep="\n")

# %% [markdown]
# `tidyprof` reads the dumps of all ranks into one table, without PyTorch's own stack frames.


# %%
def side_by_side(folder):
    calls = tidyprof.read_flight_recorder(folder)
    in_line = calls["line"].str.extract(r"\((\d+)\)")[0]
    calls["at"] = calls["call"].str.removeprefix("gloo:") + " " + in_line
    return calls.pivot(index="rank", columns="number", values="at").add_prefix("call_")


origin = "recorded: gloo, all ranks on one CPU, torch 2.15"
lines = side_by_side(skipped)
columns = " ".join(["rank", *lines])
show_table(
    lines.reset_index(), columns, "Calls, each with its line of hangs.py", origin=origin
)
print(*(file.read_text().strip() for file in sorted(skipped.glob("log_*"))), sep="\n")

# %% [markdown]
# In which column do the lines first differ, and which row ends early?
#
# ## Trap: the line where the ranks wait
#
# The error's stack trace shows the line of the last call, so most people look there first.

# %%
# 4 minutes: which rank are the others waiting for, and which line of hangs.py contains the call that this rank skipped?
# Answer with a pair `(rank, line)`.
q = exercise("15.1", skipped)
# solution
parted = lines.loc[:, lines.nunique() > 1].iloc[:, 0]
answer = int(lines.count(axis=1).idxmin()), int(parted[0].split()[1])
# end solution
q.check(answer)

# %% [markdown]
# Starting with call 2, each sum mixed values that don't belong together, but no rank reported an error. A branch around
# a collective is correct only if every rank takes the same branch.
#
# ## The same in one command
#
# `tidyprof hang` finds the first call whose name, size, type or line differs between ranks. Then it looks for a rank
# that is behind, late or without a dump. The verdict comes first.

# %% language="bash"
# for hang in late skipped other_size other_order dead fixed; do
#     echo "== $hang"
#     python -m tidyprof hang $FOLDER/live/$hang | head -n 1
# done

# %% [markdown]
# The verdict on your `dead` run is *inconclusive* if rank 1 died just after it wrote a dump. A verdict is also
# inconclusive if the buffer no longer contains the first call that differs. In that case, increase
# `TORCH_FR_BUFFER_SIZE`, the number of calls that PyTorch keeps.
#
# In `other_size`, two ranks report "done", although rank 1 sent a tensor of a different size. They continued with wrong
# sums, so the absence of an error proves nothing (lesson 09).
#
# ## Trap: the rank that crashes isn't the cause
#
# In `skipped`, all calls have the same size, so gloo doesn't notice the mismatched calls. In a real job, the loss and
# the gradients differ in size, so gloo aborts a process. In the next recorded run, rank 1 skips a call:

# %% language="bash"
# cd $FOLDER
# sed -n '/^def aborted/,/^$/p' hangs.py
# cut -c 1-180 aborted/log_*.txt
# python -m tidyprof hang aborted

# %% [markdown]
# Rank 0 expected 4 bytes but received 432. Its process was aborted before it could write a dump, although rank 0 did
# nothing wrong. The dumps of the other ranks show which calls differ, and the script shows that rank 1 skips the
# smaller call.
#
# ## Trap: a late rank isn't stuck
#
# A rank may still make a call that its dump doesn't contain. This is the verdict on `late` two seconds after call 2,
# with a timeout of 4 seconds:

# %%
late = tidyprof.read_flight_recorder(recorded / "late")
early = late[~((late["rank"] == 1) & (late["number"] == 2))]
moment = early["called_ns"].max() + 2 * 10**9
early.attrs |= {"written_ns": dict.fromkeys(range(3), moment)}
show_text(tidyprof.find_missing_ranks(early).sentence)

# %% [markdown]
# Rank 1 is neither dead nor stuck. It is writing a checkpoint, as its Python stack would show (`py-spy dump`).
#
# Dumps of different ages cause the same mistake. Therefore, `tidyprof hang` reports a rank as *behind* only if its dump
# is newer than the missing call and the other ranks waited longer than the timeout. Copy dumps with `cp -p`, because
# the file's timestamp shows its age.

# %%
# 2 minutes: what is the shortest timeout, in whole seconds, that would have let this job continue? Use `called_ns` in
# the rows of `late` whose `number` is 2.
q = exercise("15.2", late)
# solution
second = late[late["number"] == 2].set_index("rank")["called_ns"]
after_s = (second.max() - second.min()) / 1e9
answer = int(after_s) + 1
# end solution
q.check(answer)

# %% [markdown]
# A longer timeout can't fix a skipped call.
#
# ## Diagnose an unknown job
#
# Four ranks ran another script. After its loop, the script calls `barrier`, in which all ranks wait for each other.

# %%
unknown = recorded / "unknown"
job = side_by_side(unknown)
title = "Calls, each with its line of train.py"
show_table(job.reset_index(), " ".join(["rank", *job]), title, origin=origin)
print(*(file.read_text().strip() for file in sorted(unknown.glob("log_*"))), sep="\n")

# %%
# 4 minutes: which rank caused the hang, and why? Answer with a pair `(rank, reason)`. The reason is "it came late", "it
# is dead", "it has fewer batches" or "its batch has a different size".
q = exercise("15.3", unknown)
# solution
batches = sum(job[call].str.startswith("all_reduce") for call in job)
answer = int(batches.idxmin()), "it has fewer batches"
# end solution
q.check(answer)

# %% [markdown]
# ## On GPUs (not tested here)
#
# PyTorch uses the name *NCCL* for RCCL too. A call only launches a kernel, and the host continues. After the timeout,
# PyTorch's *watchdog* thread [writes][watchdog] a message:
#
# ```text
# [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1,
#     OpType=BROADCAST, NumelIn=..., NumelOut=..., Timeout(ms)=600000) ran for
#     600081 milliseconds before timing out.
# ```
#
# `SeqNum` is the call number, and `NumelIn` is the input size in elements. Only waiting ranks write this message.
# Compare `SeqNum` across *all* logs before you blame a rank.
#
# [watchdog]: https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp

# %% [markdown]
# | setting | purpose |
# | --- | --- |
# | `TORCH_FR_BUFFER_SIZE=2000` | number of calls to keep ([the default][size] since 2026; formerly `TORCH_NCCL_TRACE_BUFFER_SIZE`) |
# | `TORCH_NCCL_DUMP_ON_TIMEOUT=1` | makes the watchdog write [a dump][settings] ([the default][dump] since 2025) |
# | `TORCH_FR_DUMP_TEMP_FILE=dumps/rank_` | dump path without the rank (formerly `TORCH_NCCL_DEBUG_INFO_TEMP_FILE`) |
# | `TORCH_NCCL_DEBUG_INFO_PIPE_FILE=pipes/rank_` | one pipe per rank, `pipes/rank_N.pipe`; to get a dump, write a line to it (create `pipes` first) |
# | `TORCH_NCCL_ENABLE_TIMING=1` | records each call's duration, but makes hangs [more likely][timing] |
#
# After a hang, **look for dumps first**. Recent PyTorch releases write dumps on each node by default, to
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
# | late | a trace, to see what that rank did before the call (lesson 07) |
# | left the path | the branch between the two lines |
# | other call | the order of calls and the number of batches on the rank that differs |
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
# - A rank that skips a collective doesn't stop there, so the line in the error message is rarely the buggy line.
# - The rank that reports an error or crashes is often not at fault, so compare the calls of all ranks.
# - A missing call proves nothing until the timeout has passed, so check the age of each dump.

# %% [markdown] tags=["given"]
# ## What this tool can't show
#
# - **The reason.** A dump shows the missing rank's last call, but not what happened afterward.
# - **Whether a rank is alive.** A rank that is behind may be dead or busy.
# - **Mismatched calls** with the same name, size and line.
# - **Point-to-point messages** (`send`, `recv`) under gloo, which doesn't record them.
# - **Other hangs,** such as those in a lock or a data loader.
#
# If a dump contains no calls, `TORCH_FR_BUFFER_SIZE` was 0 or was set too late. A dump without line numbers comes from
# `_dump_fr_trace_file`, which omits them by default. Give each job a separate folder.

# %% [markdown]
# ## At work, without this course
#
# {snippet 15_find_missing_ranks.py}
#
# Import `watch` in your training script. After a hang, run the snippet on the dump folder. The snippet uses private
# functions of PyTorch 2.15, which may change.

# %% [markdown]
# Next question: yours.
