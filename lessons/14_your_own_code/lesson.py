# %% [markdown]
# # What is wrong with my own script?
#
# So far, you profiled the course's trainer, which has named ranges and an option for every fix. This lesson uses a
# script that has neither and contains two faults. `tidyprof run` breaks down the script's steps without any change to
# its code. To find the faults, you use PyTorch, pandas and a shell. Then you do the same with your own script.
#
# After this lesson, you can:
#
# - profile an unmodified program, and say what the verdict doesn't tell you;
# - trace a slow step to a line of Python code, with and without a launcher;
# - prove that a fix makes every repeat faster and doesn't change the training.
#
# **Before you start:** complete lessons 00, 02 and 07. Everything runs on your CPU, so all times are *measured* on your
# machine and may be noisy. Rely on counts, ratios and the order of results. If the noise is too large, the lesson
# reports "inconclusive".

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

# %%
folder, HERE = lesson.folder, "measured: this machine"
os.environ["OMP_NUM_THREADS"] = "1"
for name in ("their_script.py", "turns.py", "sort_letters.py"):
    shutil.copy(lesson.file(name), folder)
print((folder / "their_script.py").read_text())

# %%
lesson.recall()

# %% [markdown]
# The script trains a network to find the log lines that need a human's attention. Read the script, and write down your
# predictions:

# %%
# solution
part_guess, factor_guess = 30, 2
# end solution
part_text = "the share of the largest part of a step"
factor_text = "the speedup without the faults"
proflab.predict("14.a", part_guess, unit="%", what=part_text)
proflab.predict("14.b", factor_guess, unit="times", what=factor_text)

# %% [markdown]
# ## Profile the unmodified script
#
# Put `tidyprof run` in front of the command that starts the script. The next cell takes about 10 seconds on two idle
# cores and hides most of the script's own output.

# %% language="bash"
# cd $FOLDER && rm -rf unedited
# python -m tidyprof run --out unedited -- python their_script.py 2>&1 |
#     grep --line-buffered -v '[1-9]: loss'

# %% [markdown]
# | line | what it shows |
# | --- | --- |
# | Verdict | what limits the run, and its share of the step; `inconclusive` if the files don't show the limit |
# | Why, Next | the evidence, what to change first, and where to read more |
# | the table | where the time in a step goes without the profiler; *other processes* means CPU time lost to them |
# | Doubt, Note | what weakens the verdict: for other processes, use an idle machine; for uneven steps, `--steps 10` |
# | Files | each rank's trace, step times and machine details, for a trace viewer, pandas and `tidyprof gate` |
#
# Add `--why` to see all the evidence. On an idle machine, the verdict on this script is `no-bottleneck`, because
# nothing waits. However, some of the script's work may still be unnecessary. A profiler can't judge which work your
# training needs, so check each part yourself.
#
# `tidyprof run` relies on PyTorch hooks. You can also time steps with such a hook in your own code:
#
# ```python
# from torch.optim.optimizer import register_optimizer_step_post_hook
# ends = []
# register_optimizer_step_post_hook(lambda *_: ends.append(time.perf_counter()))
# ```
#
# `tidyprof run` ignores the first 10 steps, times 20, traces three with torch.profiler, and then times 20 more. On a
# GPU, it synchronizes only at the start and end of each of these windows. If a program has no optimizer, `tidyprof run`
# counts backward passes, calls to a module, or calls to the function that you name with `--step-marker NAME`. If a
# program has too few steps, `tidyprof run` suggests a value for `--skip-steps`.

# %% [markdown]
# ## The checklist
#
# | | question | tool | in this lesson |
# | --- | --- | --- | --- |
# | 1 | How long does the program really take? | a clock outside the program | `time` |
# | 2 | Is the device busy, or does it wait? | a monitor (`amd-smi monitor`) | CPU time compared with real time |
# | 3 | Where does the time in a step go? | `tidyprof run`, or a timer for parts of the step | `StepTimer` |
# | 4 | What does the largest part contain? | torch.profiler | operator counts, Python functions |
# | 5 | Which rank do the others wait for? | one trace per rank | two ranks under `torchrun` |
# | 6 | Does the fix work? | repeated runs and their losses | a ratio with its confidence interval |
#
# ## Time your own parts
#
# Hooks recognize only modules and optimizers. To time parts that you name yourself, add a few lines to the training
# loop, and add the `StepTimer` class from the end of this lesson.
#
# | variable | what `StepTimer` writes |
# | --- | --- |
# | none | nothing; each call returns immediately |
# | `STEP_TIMER=times` | the seconds that each part takes, one line per step; a killed job keeps its times |
# | `STEP_TIMER=trace` | a trace of three steps; with `STEP_TIMER_STACK=1`, the trace includes Python functions |

# %%
shutil.copy(
    lesson.file("../../snippets/14_instrument_me.py"), folder / "instrument_me.py"
)
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
# The next cell times one run with both methods: hooks (`--no-trace` skips the trace) and `StepTimer`. Then it records a
# trace that includes Python functions. This takes about 20 seconds on two idle cores.

# %% language="bash"
# cd $FOLDER && rm -rf hooks && diff their_script.py before.py
# export STEP_TIMER_DIR=parts
# export STEP_TIMER=times
# { time python -m tidyprof run --no-trace --out hooks -- python before.py; } 2>&1 |
#     grep --line-buffered -v '[1-9]: loss'
# STEP_TIMER=trace STEP_TIMER_STACK=1 python before.py 2>&1 |
#     grep --line-buffered -v '[1-9]: loss'

# %% [markdown]
# `real` is the time that you wait, while `user` and `sys` are CPU times. If the sum of `user` and `sys` is close to
# `real`, the program keeps one core busy, so look inside the program. If the sum is much smaller than `real`, the
# program waits for a disk, a network or other programs.
#
# ## Where does the time in a step go?
#
# The figure shows the same steps of one run twice, divided into the parts that the hooks recognize and into the parts
# that you named:

# %%
# As `tidyprof run`
steps = pd.read_json(folder / "parts/times_rank0.jsonl", lines=True)[11:]
named = 1e3 * steps.drop(columns=["rank", "step"]).mean()
hooks = run_times(folder / "hooks").parts / 1e6
both = pd.DataFrame({"by hooks": hooks, "by StepTimer": named}).T
figure = plot_own_parts(both, HERE, title="The mean step of the script, in one run")
text = f"includes {named['log']:.0f} ms for the log"
show_figure(figure, (text, (0.75 * hooks.sum(), -0.4), (0.62, 1.12)))

# %%
# 2 minutes: how many times as long were the steps that `tidyprof run` traced as the steps without the profiler? Compute
# the mean over all steps in the two windows without the profiler, `about["before"]` and `about["after"]`, by weighting
# `step_ns` by `steps`. The traced steps are in `about["trace"]`.
about = json.loads((folder / "unedited/run_rank0.json").read_text())
q = exercise("14.1", about)
# solution
windows = [about["before"], about["after"]]
total_ns = sum(window["steps"] * window["step_ns"] for window in windows)
answer = about["trace"]["step_ns"] / (
    total_ns / sum(window["steps"] for window in windows)
)
# end solution
q.check(answer)

# %% [markdown]
# > **Note:** Each part's share of the step differs between a CPU and a GPU. A GPU makes arithmetic much faster, but not
# > Python code. A loop of small calls that takes up little of the time on a CPU can therefore be the limit on a GPU.
# > Counts are valid on both.
#
# ## What does the largest part contain?
#
# If `backward` is large, something in the backward pass is slow, but you don't know what. The trace contains every
# operator, and the ranges around the operators. Select the events inside one range by their start and end times, and
# count them by name:


# %%
def events_of(path):
    events = pd.DataFrame(
        json.loads(gzip.decompress(Path(path).read_bytes()))["traceEvents"]
    )
    return events.assign(end=events["ts"] + events["dur"])


def inside(path, part, category="cpu_op"):
    events = events_of(path)
    ranges = events[(events["name"] == part) & (events["cat"] == "user_annotation")]
    ranges = ranges[["ts", "end"]].add_suffix("_part")
    pairs = events[events["cat"] == category].merge(ranges, how="cross")
    found = pairs[
        (pairs["ts"] >= pairs["ts_part"]) & (pairs["end"] <= pairs["end_part"])
    ]
    rows = found.groupby("name")["dur"].agg(calls="size", us="sum") / len(ranges)
    return rows.sort_values("us", ascending=False).round(1)


# %%
print(inside(folder / "parts/trace_rank0.json.gz", "backward").head(6).to_string())

# %% [markdown]
# The numbers are per step, and an operator's time includes the time of the operators that it calls.
# `aten::embedding_dense_backward` runs once for each word position in a line, because the loop in `forward` calls the
# embedding table once per position. Each call creates a gradient for the *whole* embedding table, which is nearly all
# zeros. Autograd then adds this gradient to the previous ones. On a GPU, this loop would launch several hundred small
# kernels per step, so the script would be launch-bound (lesson 04).

# %%
# 5 minutes: implement the first fix. Write a function with two arguments, a table (`torch.nn.Embedding`) and lines (one
# row of word numbers per line). With a single call to the table, the function returns what the loop in `forward`
# computes: the mean over all positions in a line.
q = exercise("14.2")


# solution
def answer(table, lines):
    return table(lines).mean(dim=1)


# end solution
q.check(answer)

# %% [markdown]
# ## From the part to the line
#
# Which line of your code starts the operators? In a trace, Python functions are events in the `python_function`
# category. Each event name has the form `file(line): function`, where the line is that of the `def`. In the `log`
# range, select the functions that are defined in the script itself:

# %%
functions = inside(folder / "parts/trace_rank0.json.gz", "log", "python_function")
print(functions[functions.index.str.startswith("before.py")].to_string())

# %% [markdown]
# The `log` part consists of `accuracy`, which calls `forward`. That is why the hooks counted this time as `forward`.
# Recording stacks makes Python slower, so rely on the call counts. Two other tools work without changes to the script:
#
# - `python -m cProfile -s cumtime train.py` shows how often each function is called and how long it takes, but slows
#   down every call.
# - `py-spy record --subprocesses -o stacks.svg -- python train.py` samples lines (`pip install py-spy`).
#
# Data-loader workers are separate processes, so the trace and cProfile show only the time that the main process waits
# for them. To see what the workers do, use py-spy, or run the script once with `num_workers=0`.
#
# ## Under the launcher
#
# Next, run the script with the first fix on two ranks, each of which writes a trace. `tidyprof run -- torchrun ...` can
# also record both ranks and name the one that arrives last, but this time you find that rank manually.

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
# export STEP_TIMER=trace STEP_TIMER_DIR=ranks
# torchrun --standalone --nproc-per-node 2 first_fix.py 2>&1 |
#     grep --line-buffered 'step.*0: \|wrote'

# %% [markdown]
# In a CPU trace, an all-reduce appears as a `gloo:all_reduce` event. As on a GPU, its duration includes the wait for
# the other ranks. Number the calls on each rank, and compare the start times of calls with the same number (lesson 07).
# The rank that arrives last doesn't wait.


# %%
def all_reduces(rank):
    events = events_of(folder / f"ranks/trace_rank{rank}.json.gz")
    calls = events[events["name"] == "gloo:all_reduce"].sort_values("ts")
    return calls.assign(rank=rank, number=range(len(calls)))


calls = pd.concat(map(all_reduces, (0, 1)))
calls["waiting_ms"] = (
    calls.groupby("number")["ts"].transform("max") - calls["ts"]
) / 1e3
print(calls.groupby("rank")["waiting_ms"].sum().round(2).to_string())
for rank in (0, 1):
    operators = inside(folder / f"ranks/trace_rank{rank}.json.gz", "log")["calls"].sum()
    print(f"rank {rank}: {operators:.0f} operators in `log` per step")

# %% [markdown]
# On an idle machine, the waiting times show *which* rank is late. On a busy machine, both ranks wait about equally
# long, so the times are inconclusive. The operator counts show *why* a rank is late, and they are the same on a busy
# machine. In every step, one rank tests the network on all held-out lines, while the other rank waits for it in the
# next all-reduce. With the second fix, the script runs this test only after the last step:

# %%
SECOND = {"        if rank == 0:\n": "        if rank == 0 and step == steps - 1:\n"}
write_version(folder / "first_fix.py", folder / "fixed.py", SECOND)

# %% [markdown]
# ## Prove the fix
#
# One run before the fix and one run after it prove nothing. `turns.py` runs both versions alternately on two ranks:
# five times, plus once to warm up. If the machine is slow for a while, both versions are then affected. In each round,
# a random draw decides which version runs first, because on a machine that slows down, the second version would always
# lose. The program also records all losses, because a fix must not change what the script trains.

# %% language="bash"
# cd $FOLDER && rm -rf turns && cat turns.py
# STEP_TIMER=times torchrun --standalone --nproc-per-node 2 turns.py 2>turns.err

# %%
runs = pd.read_json(folder / "turns/runs.jsonl", lines=True)
losses = pd.DataFrame(runs.groupby("version")["losses"].first().to_dict())
print(
    "largest relative difference of a loss:",
    (losses["fixed"] / losses["before"] - 1).abs().max(),
)

# %%
# 3 minutes: *at least* how many times as fast is the fixed script in these repeats? Divide the shortest time of the
# `before` version by the longest time of the `fixed` version. `runs` has the columns `version` and `seconds`.
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
# `StepTimer` also timed every step of these runs. `tidyprof gate` compares the runs in pairs, and reports whether the
# mean *step* became slower or faster beyond doubt. The gate needs at least five pairs of runs, and more pairs to judge
# individual parts. Nine pairs are better ([how the gate decides](../docs/gate.md)).

# %% language="bash"
# # StepTimer doesn't record the machine in its times, so name it here.
# python -m tidyprof gate $FOLDER/turns/before $FOLDER/turns/fixed --paired 2>&1 |
#     sed 's/recorded: machine not stated/measured: this machine/'

# %% [markdown]
# ## Decide
#
# Report the speedup of the whole script, because you wait for the whole script. The speedup of the mean step shows what
# a longer run would gain. Next, look at the gate's table to see how much of each part remains.
#
# On two ranks, `backward` includes the all-reduce of the embedding table's *dense* gradient, which is nearly all zeros.
# There are two possible fixes: with `sparse=True`, the ranks send fewer bytes, and with a larger batch, they send the
# gradient less often. Predict the effect of each fix, and then measure it. On GPUs, the ranks send the same number of
# bytes, but the transfer takes a different time.

# %% [markdown]
# ## Your own script
#
# Now profile your own script. Make the script short and repeatable: use 40 steps, set a seed, and print the losses with
# all digits. While `OWN_SCRIPT` is empty, the cells use `sort_letters.py`. That script has a different style, with a
# trainer class, a data loader and no optimizer, and contains a different fault. Scripts that use a library's trainer
# (transformers, Lightning) also run unmodified.

# %%
# The path of your script
OWN_SCRIPT = ""
# Or "torchrun --standalone --nproc-per-node 2"
LAUNCH = "python"
script = (
    Path(OWN_SCRIPT or folder / "sort_letters.py").expanduser().resolve(strict=True)
)
fixed_script = script.with_name(f"fixed_{script.name}")
os.environ |= {"LAUNCH": LAUNCH, "PLACE": str(script.parent), "SCRIPT": script.name}
os.environ["OWN"] = str((folder / "own").resolve())

# %% language="bash"
# rm -rf "$OWN" && mkdir -p "$OWN" && cd "$PLACE"
# python -m tidyprof run --with-stack --out "$OWN/first" -- $LAUNCH "$SCRIPT" 2>&1

# %% [markdown]
# **The fix.** Which part is slow, in which function, and why? If the verdict is `inconclusive` or not confident, follow
# the advice under *Next* first. If the GPU is the limit, look at its kernels (lessons 04 and 05). Test one fix at a
# time, and write down what you expect from it. Enter your fix below as pairs of text from the script and the text that
# replaces it. The next cell saves the fixed version as a copy in the script's folder.

# %%
FIX = {
    "self.letters = list(lines)": "self.letters = [numbers_of(line) for line in lines]",
    "return numbers_of(self.letters[place])": "return self.letters[place]",
}
write_version(script, fixed_script, FIX)

# %% [markdown]
# The next cell runs both versions alternately, which takes about half a minute for `sort_letters.py`. Then the cell
# counts how often each line was printed. If all 10 runs printed the same lines, the count of each is 10.

# %% language="bash"
# cd "$PLACE" && rm -rf "$OWN/turns" "$OWN/prints" && mkdir "$OWN/prints"
# for turn in 1 2 3 4 5; do
#     for version in $(shuf -e "$SCRIPT" "fixed_$SCRIPT"); do
#         printf '\rturn %s, %-40s' "$turn" "$version"
#         python -m tidyprof run --no-trace --out "$OWN/turns/$version/$turn" \
#             -- $LAUNCH "$version" >"$OWN/prints/$version.$turn" 2>"$OWN/errors.txt" ||
#             tail -n 5 "$OWN/errors.txt"
#     done
# done
# echo && sort "$OWN/prints/"* | uniq -c
# python -m tidyprof gate "$OWN/turns/$SCRIPT" "$OWN/turns/fixed_$SCRIPT" --paired 2>&1

# %% [markdown]
# A printed line may differ between runs if it contains a time. A loss may differ only if the fix changes the order of
# the data. In that case, compare the final losses over several seeds. If one rank is slower than the others, `tidyprof
# triage` names it, so compare its batches with the batches on other ranks.
#
# The gate compares only step times. A short run consists mostly of startup, so its total time doesn't tell you how long
# a long run takes.

# %% [markdown]
# ## Three takeaways
#
# - `tidyprof run` shows what limits a script, but only you can judge which part of its work is unnecessary.
# - Operators, Python functions and their counts lead from a slow part to the line that starts it.
# - A fix is proven if the fixed version is faster in all paired repeats and has the same losses.

# %% [markdown] tags=["given"]
# ## What this method can't show
#
# - **Work on a GPU:** a timer on the host measures only the time that the host spends or waits. `STEP_TIMER=times`
#   therefore synchronizes after each part. As a result, host and GPU no longer overlap, and the parts add up to more
#   than a step takes without the timer. Compare these parts only with one another.
# - **Rare faults:** a trace of three steps doesn't show a fault that occurs once an hour.
#
# | problem | likely cause |
# | --- | --- |
# | no trace, or too few steps | the loop ended too early, so lower `--skip-steps` or `STEP_TIMER_SKIP` |
# | no `distributedInfo` | the process group was created after the profiler started, so create the timer later |
# | no ranges in a compiled model | the timer calls are inside the compiled code, so move them outside |
# | a long part without operators | the host waits for a copy, a lock, a CPU core or a batch |

# %% [markdown]
# ## At work, without this course
#
# First, run `python -m tidyprof run -- python train.py`, which [works without an installation](../docs/triage.md).
# `tidyprof triage` also reads traces from other tools and writes a report page that you can share. To time parts that
# hooks don't recognize, paste this block into your script:
#
# {snippet 14_instrument_me.py}
#
# If a library runs the training loop, pass it a callback from this file:
#
# {snippet 14_callbacks.py}
#
# This Slurm job script answers the checklist's questions in order. Fill in your account and command:
#
# {snippet 14_check_list.sh}

# %% [markdown]
# Next question: yours.
