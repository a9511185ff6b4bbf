# %% [markdown]
# # What is wrong with my own script?
#
# So far, you profiled the course's trainer, which has ranges and a switch for every fix. This lesson uses a script that
# has neither, and it contains two faults. `tidyprof run` breaks down its steps without any change to the code. To find the
# faults, you use PyTorch, pandas and a shell. Then you do the same with your own script.
#
# After this lesson, you can:
#
# - profile an unmodified program, and say what the verdict leaves open;
# - trace a slow step to the line of Python, with and without a launcher;
# - prove a fix: it is faster in all repeats, and the training is the same.
#
# **Before you start:** complete lessons 00, 02 and 07. Everything runs on your CPU, so all times are *measured* here and
# may be noisy. Rely on counts, ratios and order. If the noise is too large, the lesson reports "inconclusive".

# %%
import gzip
import json
import os
import shutil
from pathlib import Path

import pandas as pd
import proflab
from proflab import exercise, show_figure
from proflab.parts.own_parts import plot_own_parts
from tidyprof.gate.runs import run_times

lesson = proflab.start("14")
folder, HERE = lesson.folder, "measured: this machine"
os.environ["OMP_NUM_THREADS"] = "1"
for name in ("their_script.py", "turns.py", "sort_letters.py"):
    shutil.copy(lesson.file(name), folder)
print((folder / "their_script.py").read_text())

# %%
lesson.recall()

# %% [markdown]
# The script learns which lines of a log need a human. Read it, and write down what you expect:

# %%
# solution
part_guess, factor_guess = 30, 2
# end solution
part_text, factor_text = "the share of the largest part of a step", "the speedup without the faults"
proflab.predict("14.a", part_guess, unit="%", what=part_text)
proflab.predict("14.b", factor_guess, unit="times", what=factor_text)

# %% [markdown]
# ## Profile the unmodified script
#
# Put `tidyprof run` in front of the command. This takes about 10 seconds on two quiet cores. The cell hides most of the
# script's own output.

# %% language="bash"
# cd $FOLDER && rm -rf unedited
# python -m tidyprof run --out unedited -- python their_script.py 2>&1 |
#     grep --line-buffered -v '[1-9]: loss'

# %% [markdown]
# | line | what it shows |
# | --- | --- |
# | Verdict | what limits the run, and its share of the step; `inconclusive` if the files can't show it |
# | Why, Next | the evidence, what to change first, and where to read more |
# | the table | where the time in a step goes without the profiler; *other programs* had the CPU core |
# | Doubt, Note | what weakens the verdict: for other programs, use a quiet machine; for uneven steps, add `--steps 10` |
# | Files | a trace, times and the machine of each rank, for a viewer, for pandas and for `tidyprof gate` |
#
# Add `--why` to see all the evidence. On a quiet machine, the verdict on this script is `no-bottleneck`, because nothing
# waits. Some of its work may still be unnecessary. A profiler can't judge which work your training needs, so check each
# part yourself.
#
# The command relies on hooks of PyTorch. You can time steps with a hook in your own code:
#
# ```python
# from torch.optim.optimizer import register_optimizer_step_post_hook
# ends = []
# register_optimizer_step_post_hook(lambda *_: ends.append(time.perf_counter()))
# ```
#
# `tidyprof run` ignores the first 10 steps, times 20, traces three with torch.profiler, and times 20 more. On a GPU, it
# synchronizes only at the start and end of each of these windows. Without an optimizer, it counts backward passes, calls
# to a module, or what you name with `--step-marker NAME`. If a program is too short, it suggests a value for
# `--skip-steps`.

# %% [markdown]
# ## The checklist
#
# | | question | tool | in this lesson |
# | --- | --- | --- | --- |
# | 1 | How long does the program really take? | a clock outside the program | `time` |
# | 2 | Is the device busy, or does it wait? | a monitor (`amd-smi monitor`) | CPU time compared with real time |
# | 3 | Where does the time in a step go? | `tidyprof run`, or a timer for its parts | `StepTimer` |
# | 4 | What does the largest part contain? | torch.profiler | counts of operators, Python functions |
# | 5 | Which rank do the others wait for? | a trace of each rank | two ranks under `torchrun` |
# | 6 | Does the fix work? | repeats, and the losses | a ratio with its interval |
#
# ## Time your own parts
#
# Hooks recognize modules and optimizers. To time parts that you name yourself, add a few lines to the loop and a block
# of code, `StepTimer`, which you find at the end of this lesson.
#
# | variable | what `StepTimer` writes |
# | --- | --- |
# | none | nothing; each call returns immediately |
# | `STEP_TIMER=times` | the seconds of each part, one line per step, so a killed job keeps its times |
# | `STEP_TIMER=trace` | a trace of three steps; with `STEP_TIMER_STACK=1`, also Python functions |

# %%
shutil.copy(lesson.file("../../snippets/14_instrument_me.py"), folder / "instrument_me.py")
PARTS = {
    "WORDS, LENGTH": "from instrument_me import StepTimer\n\nWORDS, LENGTH",
    "    for step in": "    timer = StepTimer()\n    for step in",
    "        loss = nn": '        timer("forward")\n        loss = nn',
    "        loss.back": '        timer("backward")\n        loss.back',
    "        optimizer.step": '        timer("optimizer")\n        optimizer.step',
    "        losses.app": '        timer("log")\n        losses.app',
    "    return losses": "        timer.step()\n    timer.close()\n    return losses",
}


def write_version(source, target, changes):
    text = source.read_text()
    for old, new in changes.items():
        assert text.count(old) == 1, f"{source.name} must contain {old!r} exactly once."
        text = text.replace(old, new)
    target.write_text(text)


write_version(folder / "their_script.py", folder / "before.py", PARTS)

# %% [markdown]
# The next cell times one run in both ways: with hooks (`--no-trace` skips the trace) and with `StepTimer`. Then it
# records a trace with Python functions. This takes about 20 seconds on two quiet cores.

# %% language="bash"
# cd $FOLDER && rm -rf hooks && diff their_script.py before.py
# export STEP_TIMER_DIR=parts
# { time STEP_TIMER=times python -m tidyprof run --no-trace --out hooks -- python before.py; } 2>&1 |
#     grep --line-buffered -v '[1-9]: loss'
# STEP_TIMER=trace STEP_TIMER_STACK=1 python before.py 2>&1 | grep --line-buffered -v '[1-9]: loss'

# %% [markdown]
# `real` is the time that you wait. `user` and `sys` are the CPU time. If their sum is about `real`, one core is busy all
# the time, so look inside the program. If it is much less, the program waits for a disk, a network or other programs.
#
# ## Where does the time in a step go?
#
# The figure shows the same steps of the same run, in the words of the hooks and in yours:

# %%
steps = pd.read_json(folder / "parts/times_rank0.jsonl", lines=True)[11:]  # as `tidyprof run`
named = 1e3 * steps.drop(columns=["rank", "step"]).mean()
hooks = run_times(folder / "hooks").parts / 1e6
both = pd.DataFrame({"by hooks": hooks, "by StepTimer": named}).T
show_figure(plot_own_parts(both, HERE, title="The mean step of their script, in one run"))

# %%
# 2 minutes: how many times as long were the traced steps of `tidyprof run` as the steps without the profiler? Take the
# mean of all steps in both windows without the profiler, `about["before"]` and `about["after"]`: weight `step_ns` by
# `steps`. The traced steps are in `about["trace"]`.
about = json.loads((folder / "unedited/run_rank0.json").read_text())
q = exercise("14.1", about)
# solution
windows = [about["before"], about["after"]]
total_ns = sum(window["steps"] * window["step_ns"] for window in windows)
answer = about["trace"]["step_ns"] / (total_ns / sum(window["steps"] for window in windows))
# end solution
q.check(answer)

# %% [markdown]
# > **Note:** Shares on a CPU aren't shares on a GPU. A GPU makes arithmetic much faster, but not Python. A loop of small
# > calls that hides behind arithmetic here can be the limit there. Counts are valid on both.
#
# ## What does the largest part contain?
#
# A large `backward` shows that something there is slow, but not what. The trace contains every operator and the ranges
# around them. Select the events inside one range by their times, and count them by name:


# %%
def events_of(path):
    events = pd.DataFrame(json.loads(gzip.decompress(Path(path).read_bytes()))["traceEvents"])
    return events.assign(end=events["ts"] + events["dur"])


def inside(path, part, category="cpu_op"):
    events = events_of(path)
    ranges = events[(events["name"] == part) & (events["cat"] == "user_annotation")]
    ranges = ranges[["ts", "end"]].add_suffix("_part")
    pairs = events[events["cat"] == category].merge(ranges, how="cross")
    found = pairs[(pairs["ts"] >= pairs["ts_part"]) & (pairs["end"] <= pairs["end_part"])]
    rows = found.groupby("name")["dur"].agg(calls="size", us="sum") / len(ranges)
    return rows.sort_values("us", ascending=False).round(1)


print(inside(folder / "parts/trace_rank0.json.gz", "backward").head(6).to_string())

# %% [markdown]
# The numbers are per step, and the time of an operator includes the operators inside it. `aten::embedding_dense_backward`
# runs once for each place in a line, because the loop in `forward` calls the table once per place. Each call creates a
# gradient for the *whole* table of words, nearly all zeros, and adds it to the last one. On a GPU, this loop would be
# several hundred small kernels per step, and so launch-bound (lesson 04).

# %%
# 5 minutes: the first fix. Write a function of a table (`torch.nn.Embedding`) and lines (a row of word numbers for each
# line). It returns what the loop in `forward` computes, the mean over the places of a line, with a single call to the
# table.
q = exercise("14.2")


# solution
def answer(table, lines):
    return table(lines).mean(dim=1)


# end solution
q.check(answer)

# %% [markdown]
# ## From the part to the line
#
# Which line of your code starts the operators? Python functions are events of the category `python_function`. Their name
# is `file(line): function`, with the line of the `def`. Select the functions of the script's own file in `log`:

# %%
functions = inside(folder / "parts/trace_rank0.json.gz", "log", "python_function")
print(functions[functions.index.str.startswith("before.py")].to_string())

# %% [markdown]
# So `log` is `accuracy`, which calls `forward`, and the hooks counted it as `forward`. Stacks make Python slower, so rely on
# the counts. Two other tools work without a block of code:
#
# - `python -m cProfile -s cumtime train.py` shows the calls and the time of each function, but makes calls slower.
# - `py-spy record --subprocesses -o stacks.svg -- python train.py` samples lines (`pip install py-spy`).
#
# Data-loader workers are separate processes, so the trace and cProfile show only the wait for them. Use py-spy, or run
# once with `num_workers=0`.
#
# ## Under the launcher
#
# With the first fix, the script now runs on two ranks, and each rank writes a trace. `tidyprof run -- torchrun ...` does
# this too and names the rank that arrives last. Here, you find it manually.

# %%
FIRST = {
    "        total = torch.zeros(len(lines), WIDTH)\n": "",
    "        for place in range(LENGTH):\n": "",
    "            total = total + self.table(lines[:, place])\n": "",
    "self.head(total / LENGTH)": "self.head(self.table(lines).mean(dim=1))",
}
write_version(folder / "before.py", folder / "first_fix.py", FIRST)

# %% language="bash"
# cd $FOLDER
# STEP_TIMER=trace STEP_TIMER_DIR=ranks torchrun --standalone --nproc-per-node 2 first_fix.py 2>&1 |
#     grep --line-buffered 'step.*0: \|wrote'

# %% [markdown]
# On a CPU, an all-reduce is the event `gloo:all_reduce`. It contains the same wait as on a GPU. Number the calls on each
# rank, and compare their starts (lesson 07). The rank that arrives last doesn't wait.


# %%
def all_reduces(rank):
    events = events_of(folder / f"ranks/trace_rank{rank}.json.gz")
    calls = events[events["name"] == "gloo:all_reduce"].sort_values("ts")
    return calls.assign(rank=rank, number=range(len(calls)))


calls = pd.concat(map(all_reduces, (0, 1)))
calls["waiting_ms"] = (calls.groupby("number")["ts"].transform("max") - calls["ts"]) / 1e3
print(calls.groupby("rank")["waiting_ms"].sum().round(2).to_string())
for rank in (0, 1):
    operators = inside(folder / f"ranks/trace_rank{rank}.json.gz", "log")["calls"].sum()
    print(f"rank {rank}: {operators:.0f} operators in `log` per step")

# %% [markdown]
# The times show *which* rank is late, if the machine is quiet. On a busy machine, both ranks wait about as long, and the
# times are inconclusive. The counts show *why*, and a busy machine doesn't change them. In every step, one rank tests
# the model on all held-out lines, and the other waits for it in the next all-reduce. The second fix tests only after
# the last step:

# %%
SECOND = {"        if rank == 0:\n": "        if rank == 0 and step == steps - 1:\n"}
write_version(folder / "first_fix.py", folder / "fixed.py", SECOND)

# %% [markdown]
# ## Prove the fix
#
# One run before and one run after prove nothing. `turns.py` runs both versions alternately on two ranks: five times, plus
# once to warm up. A slow phase of the machine then affects both. A draw decides which version goes first, because on a
# machine that gets slower, the second one would always lose. The program also keeps all losses, because a script
# that trains something else isn't a faster script.

# %% language="bash"
# cd $FOLDER && rm -rf turns && cat turns.py
# STEP_TIMER=times torchrun --standalone --nproc-per-node 2 turns.py 2>turns.err

# %%
runs = pd.read_json(folder / "turns/runs.jsonl", lines=True)
losses = pd.DataFrame(runs.groupby("version")["losses"].first().to_dict())
print(
    "largest relative difference of a loss:", (losses["fixed"] / losses["before"] - 1).abs().max()
)

# %%
# 3 minutes: *at least* how many times as fast is the fixed script in these repeats? Divide the shortest time of `before`
# by the longest time of `fixed`. `runs` has the columns `version` and `seconds`.
q = exercise("14.3", runs)
# solution
seconds = runs.groupby("version")["seconds"]
answer = seconds.min()["before"] / seconds.max()["fixed"]
# end solution
q.check(answer)

# %%
median = runs.groupby("version")["seconds"].median()
proflab.reveal("14.a", 100 * named.max() / named.sum(), HERE)
proflab.reveal("14.b", median["before"] / median["fixed"], f"{HERE}, two ranks, median")

# %% [markdown]
# `StepTimer` timed every step of these runs. `tidyprof gate` compares the pairs of runs, and reports whether the mean
# *step* became slower or faster beyond doubt. It needs at least five pairs, and more to judge single parts. Nine pairs
# are better ([how it decides](../docs/gate.md)).

# %% language="bash"
# # StepTimer doesn't record the machine in its times, so name it here.
# python -m tidyprof gate $FOLDER/turns/before $FOLDER/turns/fixed --paired 2>&1 |
#     sed 's/recorded: machine not stated/measured: this machine/'

# %% [markdown]
# ## Decide
#
# Report the factor of the whole script, because you wait for all of it. The factor of the mean step shows what a longer
# run would gain. The next question is what remains of each part, in the table of the gate.
#
# On two ranks, `backward` includes the all-reduce of a *dense* gradient of the table, nearly all zeros. There are two
# candidates: `sparse=True` sends fewer bytes, and a larger batch sends them less often. Predict, then measure. On GPUs,
# the bytes are the same, but the time is not.

# %% [markdown]
# ## Your own script
#
# Now profile your own script. Make it short and repeatable: 40 steps, a seed, and losses printed with all digits. While
# `OWN_SCRIPT` is empty, the cells use `sort_letters.py`. It has a different style: a class that trains, a data loader,
# no optimizer, and its own fault. Scripts with a library's trainer (transformers, Lightning) also run unmodified.

# %%
OWN_SCRIPT = ""  # the path of your script
LAUNCH = "python"  # or "torchrun --standalone --nproc-per-node 2"
script = Path(OWN_SCRIPT or folder / "sort_letters.py").expanduser().resolve(strict=True)
fixed_script = script.with_name(f"fixed_{script.name}")
os.environ |= {"LAUNCH": LAUNCH, "PLACE": str(script.parent), "SCRIPT": script.name}
os.environ["OWN"] = str((folder / "own").resolve())

# %% language="bash"
# rm -rf "$OWN" && mkdir -p "$OWN" && cd "$PLACE"
# python -m tidyprof run --with-stack --out "$OWN/first" -- $LAUNCH "$SCRIPT"

# %% [markdown]
# **The fix.** Which part is slow, in which function, and why? If the verdict is `inconclusive` or not confident, follow
# *Next* first. If the GPU is the limit, look at its kernels (lessons 04 and 05). Test one fix at a time, and write down
# what you expect. Enter your fix below: text from the script, and the text that replaces it. The fixed version is a copy
# next to the script.

# %%
FIX = {
    "self.letters = list(lines)": "self.letters = [numbers_of(line) for line in lines]",
    "return numbers_of(self.letters[place])": "return self.letters[place]",
}
write_version(script, fixed_script, FIX)

# %% [markdown]
# The next cell runs both versions alternately, which takes about half a minute for `sort_letters.py`. Then it counts how
# often each line was printed. If all 10 runs printed the same lines, the count of each is 10.

# %% language="bash"
# cd "$PLACE" && rm -rf "$OWN/turns" "$OWN/prints" && mkdir "$OWN/prints"
# for turn in 1 2 3 4 5; do
#     for version in $(shuf -e "$SCRIPT" "fixed_$SCRIPT"); do
#         printf '\rturn %s, %-40s' "$turn" "$version"
#         python -m tidyprof run --no-trace --out "$OWN/turns/$version/$turn" -- $LAUNCH "$version" \
#             >"$OWN/prints/$version.$turn" 2>"$OWN/errors.txt" || tail -n 5 "$OWN/errors.txt"
#     done
# done
# echo && sort "$OWN/prints/"* | uniq -c
# python -m tidyprof gate "$OWN/turns/$SCRIPT" "$OWN/turns/fixed_$SCRIPT" --paired 2>&1

# %% [markdown]
# A printed line may differ if it contains a time. A loss may differ only if the fix changes the order of the data. In
# that case, compare final losses over several seeds. If one rank is slower, `triage` names it; compare its batches.
#
# The gate compares steps. A short run consists mostly of startup, so don't infer the time of a long run from it.

# %% [markdown]
# ## Three takeaways
#
# - `tidyprof run` shows what limits a script, but only you can find out which of its work is unnecessary.
# - Operators, Python functions and their counts lead from a slow part to the line that starts it.
# - A fix is proven if it is faster in all paired repeats and the losses are the same.

# %% [markdown] tags=["given"]
# ## What this method can't show
#
# - **Work on a GPU:** a timer on the host sees only what the host waits for. `STEP_TIMER=times` synchronizes at each part, so
#   host and GPU no longer overlap, and the parts add up to more than a step. Compare parts only with parts.
# - **Rare faults:** a trace of three steps doesn't show a fault that occurs once an hour.
#
# | problem | likely cause |
# | --- | --- |
# | no trace, or too few steps | the loop ended early: lower `--skip-steps` or `STEP_TIMER_SKIP` |
# | no `distributedInfo` | the process group started after the profiler: create the timer later |
# | no ranges in a compiled model | the lines are inside the compiled code: move them outside |
# | a long part without operators | the host waits for a copy, a lock, a CPU core or a batch |

# %% [markdown]
# ## At work, without this course
#
# Run `python -m tidyprof run -- python train.py` first, which [works without an installation](../docs/triage.md).
# `tidyprof triage` also reads traces from other tools and writes a page that you can send. To time parts that hooks can't
# name, paste this block:
#
# {snippet 14_instrument_me.py}
#
# If a library owns the loop, pass it a callback from this file:
#
# {snippet 14_callbacks.py}
#
# This Slurm job answers the questions of the checklist in order. Fill in your account and command:
#
# {snippet 14_check_list.sh}

# %% [markdown]
# Next question: yours.
