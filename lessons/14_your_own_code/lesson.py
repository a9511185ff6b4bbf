# %% [markdown]
# # What is wrong with my own script?
#
# So far the trainer was ours, with ranges and switches for every cure. Here is a script without any, with two faults.
# One word in front of it says where its steps go. What that word can't tell you find with torch, pandas and a shell,
# then do the same with a script of yours.
#
# After this lesson you can
#
# - see what limits a program without a change in it, and say what such a verdict leaves open;
# - go from the clock to the line of Python, alone and under a launcher;
# - prove a cure: quicker in all repeats, and the same training.
#
# You need lessons 00, 02 and 07. Everything runs on the processor, so all times are *measured* here, and they may be
# noisy. Look at counts, ratios and order. Where the noise is too large, the lesson says "inconclusive".

# %%
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import proflab
from proflab import exercise, show_figure
from proflab.parts.own_parts import plot_own_parts
from proflab.parts.signs_of_life import signs_of_life
from tidyprof.gate.runs import repeats_in, run_times

lesson = proflab.start("14")
folder, HERE = lesson.folder, "measured: this machine"
for name in ("their_script.py", "turns.py", "sort_letters.py"):
    shutil.copy(lesson.file(name), folder)
print((folder / "their_script.py").read_text())

# %%
lesson.recall()

# %% [markdown]
# It sorts lines of a log by the numbers of their words. Read it, and write down what you expect:

# %%
# solution
part_guess, factor_guess = 30, 2
# end solution
proflab.predict("14.a", part_guess, unit="%", what="the largest part of a step, as a share of it")
proflab.predict(
    "14.b",
    factor_guess,
    unit="times",
    what="how many times faster the script gets without its faults",
)

# %% [markdown]
# ## One word in front
#
# The script as it is, behind `tidyprof run` (most of what it prints is left out here):

# %% language="bash"
# cd $FOLDER
# export OMP_NUM_THREADS=1
# rm -rf unedited  # of an earlier try
# python -m tidyprof run --out unedited -- python their_script.py 2>&1 |
#     grep --line-buffered -v '[1-9]: loss'

# %% [markdown]
# | line | what it says |
# | --- | --- |
# | Verdict | what limits the run, with its share of the step; `inconclusive` if the files can't show it |
# | Why, Next | what shows it, what to change first, and where to read more |
# | the table | how a step divides without the profiler; in *other programs*, another program had the CPU core |
# | Doubt | what speaks against the verdict: other programs need a quiet machine, uneven steps `--steps 10` |
# | Files | a trace, times and machine of each rank: for a viewer, for pandas, for `tidyprof gate` |
#
# `--why` adds the evidence: how steps were found, where the host was in them, and the facts with their tables.
#
# On a quiet machine this script is `no-bottleneck`: nothing waits. That does not say that all its work is needed, since
# no profiler knows what your training can do without. That is for you to find, part by part.
#
# **No magic.** torch calls whom you like after each step of an optimizer. The timing, without the command:

# %% language="bash"
# cd $FOLDER
# cat > by_hand.py << 'END'
# import runpy
# import statistics
# import time
# from torch.optim.optimizer import register_optimizer_step_post_hook
#
# ends = []
# register_optimizer_step_post_hook(lambda *_: ends.append(time.perf_counter()))
# runpy.run_path("their_script.py", run_name="__main__")
# steps = [then - first for first, then in zip(ends[10:], ends[11:])]
# print(f"a step: {1e3 * statistics.mean(steps):.1f} ms, the mean of {len(steps)}")
# END
# OMP_NUM_THREADS=1 python by_hand.py 2>&1 | grep --line-buffered -v '[1-9]: loss'

# %% [markdown]
# The command does so for the first 10 steps (that count for nothing) and 20 more, then runs torch.profiler for three,
# then times 20 again. On a GPU it synchronizes only where such a window begins and ends. Without an optimizer a
# backward pass marks the step, else the call of a module, or what you name: `--step-marker NAME`. A shorter program is told
# which `--skip-steps` fits.
#
# ## The check list
#
# | | question | tool | here |
# | --- | --- | --- | --- |
# | 1 | How long does it really take? | a clock outside the program | `time` |
# | 2 | Is the device busy, or does it wait? | a monitor beside it (`amd-smi monitor`) | processor time over real time |
# | 3 | Where does a step go? | `tidyprof run`, or a timer around its parts | the block below |
# | 4 | What is in the largest part? | torch.profiler | operators, counted, and Python functions |
# | 5 | Who waits for whom? | a trace of each rank | two ranks under `torchrun` |
# | 6 | Is it cured? | repeats, and the losses | a ratio with its interval |
#
# ## Instrument
#
# Hooks know modules and optimizers. Parts with names of your own take a few lines in the loop, and a block that
# stands whole at the end of this lesson. `STEP_TIMER=times` makes it write the seconds of each part, a line after each
# step, so that a job that is killed leaves what it had. `STEP_TIMER=trace` makes it write a trace as the command's; with
# `STEP_TIMER_STACK=1` that has Python functions, too (`with_stack=True` of torch.profiler, `--with-stack` of the command).
# Without `STEP_TIMER` a call returns at once. What follows `watch.step()`, up to the next part, is called `data`.

# %%
shutil.copy(lesson.file("../../snippets/14_instrument_me.py"), folder / "instrument_me.py")
LINES = {
    "WORDS, LENGTH": "from instrument_me import Watch\n\nWORDS, LENGTH",
    "    for step in": "    watch = Watch()\n    for step in",
    "        loss = nn": '        watch("forward")\n        loss = nn',
    "        loss.back": '        watch("backward")\n        loss.back',
    "        optimizer.step": '        watch("optimizer")\n        optimizer.step',
    "        losses.app": '        watch("log")\n        losses.app',
    "    return losses": "        watch.step()\n    watch.close()\n    return losses",
}


def written(name, text, changes):
    for old, new in changes.items():
        assert text.count(old) == 1, f"{old!r} is not there once"
        text = text.replace(old, new)
    (folder / f"{name}.py").write_text(text)
    return text


instrumented = written("before", (folder / "their_script.py").read_text(), LINES)

# %% language="bash"
# cd $FOLDER
# diff their_script.py before.py
# export OMP_NUM_THREADS=1 STEP_TIMER_DIR=alone
# (time STEP_TIMER=times python before.py) 2>&1 | grep --line-buffered -v '[1-9]: loss'
# STEP_TIMER=trace STEP_TIMER_STACK=1 python before.py 2>&1 | grep --line-buffered -v '[1-9]: loss'

# %% [markdown]
# `real` is what you wait; `user` and `sys` are the time that processors worked for it. If both together are about as
# long as `real`, one core works all the time, so the answer is inside the program. If they are far less, it waits for
# a disk or a network, or others use this machine too.
#
# ## Where does a step go?
#
# In the command's words and in those of the block; the times are of steps without a profiler, and the first ones are
# left out (lesson 00).


# %%
def mean_step(folder):
    runs = [run_times(path).parts for path in repeats_in(folder)]  # as `tidyprof gate` takes them
    return pd.concat(runs, axis=1).mean(axis=1) / 1e6


hooks, alone = mean_step(folder / "unedited"), mean_step(folder / "alone")
both = pd.DataFrame({"by hooks": hooks, "by the block": alone}).T
show_figure(plot_own_parts(both, HERE, title="The mean step of their script"))

# %%
# 3 minutes: read the command's screen again. `about` is what it wrote of this run (run_rank0.json). Give three: how
# long a step takes, in ms, as you would report it; how many times as long the trace's steps were; and the name of the
# part, among the command's, that holds what the block calls `log`. Both windows of steps without the profiler count,
# each by its number of steps: `about["before"]` and `about["after"]`, with `steps` and `step_ns`.
about = json.loads((folder / "unedited/run_rank0.json").read_text())
q = exercise("14.1", about)
# solution
windows = [about["before"], about["after"]]
run_ns = sum(one["steps"] * one["step_ns"] for one in windows) / sum(
    one["steps"] for one in windows
)
answer = run_ns / 1e6, about["trace"]["step_ns"] / run_ns, "forward"
# end solution
q.check(answer)

# %% [markdown]
# **A processor's shares are not a GPU's.** A GPU makes arithmetic far faster, and Python not at all. So a loop of
# small calls can hide behind arithmetic here, and be the limit there. Counts hold on both.
#
# ## What is in it?
#
# A large `backward` says that something is slow there, not what. The trace has every operator, with the ranges around
# them. So cut out the events of one range by their times, and count by name:


# %%
def inside(path, part, kind="cpu_op"):
    events = json.loads(gzip.decompress(Path(path).read_bytes()))["traceEvents"]
    table = pd.DataFrame(event for event in events if event.get("ph") == "X")
    table["end"] = table["ts"] + table["dur"]
    ranges = table[(table["name"] == part) & (table["cat"] == "user_annotation")]
    table = table[table["cat"] == kind]
    found = [
        table[(table["ts"] >= one.ts) & (table["end"] <= one.end)] for one in ranges.itertuples()
    ]
    return pd.concat(found), ranges


backward, ranges = inside(lesson.folder / "alone/trace_rank0.json.gz", "backward")
counts = backward.groupby("name").agg(calls=("dur", "size"), total_us=("dur", "sum"))
print((counts.sort_values("total_us", ascending=False).head(6) / len(ranges)).round(1).to_string())

# %% [markdown]
# These are a step's, the inner ones also part of the outer ones. As many calls of `aten::embedding_dense_backward` as
# a line has places: the loop in `forward` calls the table once for each. One call would do. Each makes a gradient for
# the *whole* table of words, nearly all zeros, which is then added to the last one. On a GPU the same loop would be
# some hundred small kernels a step: it is launch bound (lesson 04).

# %%
# 5 minutes: the first cure. A function of a table (`torch.nn.Embedding`) and lines (numbers of words, a row for each
# line) that gives what the loop in `forward` gives, the mean over the places of a line, with one call of the table.
q = exercise("14.2")


# solution
def answer(table, lines):
    return table(lines).mean(dim=1)


# end solution
q.check(answer)

# %% [markdown]
# ## From the part to the line
#
# Operators say *what*. Which line of yours starts them? Python functions are events `python_function` in the trace,
# named `file(line): function`, with the line of the `def`. Ask for those of the script's own file, in `log`:


# %%
def functions(path, part, file=""):
    found, ranges = inside(path, part, "python_function")
    found = found[found["name"].str.startswith(file)].assign(ms=found["dur"] / 1e3)
    table = found.groupby("name").agg(calls=("ms", "size"), ms=("ms", "sum")) / len(ranges)
    return table.sort_values("ms", ascending=False).round(2)


print(functions(lesson.folder / "alone/trace_rank0.json.gz", "log", "before.py").to_string())

# %% [markdown]
# So `log` is `accuracy`, which calls `forward`: that is why the hooks called it so. Recording makes Python slower:
# again, count. Two more tools need no block: `python -m cProfile -s cumtime train.py` has calls and time of each
# function (calls get slower), and `py-spy record --subprocesses -o stacks.svg -- python train.py` lines, sampled
# (`pip install py-spy`).
#
# Workers of a data loader are processes of their own. The trace has only the wait for them, and cProfile does not see
# them either: use py-spy, or `num_workers=0` for once.

# %% [markdown]
# ## Under the launcher
#
# With the first cure the script runs as two ranks, each with a trace. (`tidyprof run -- torchrun ...` writes one of
# each rank, too, and names who comes last; here by hand.)

# %%
FIRST = {
    "        total = torch.zeros(len(lines), WIDTH)\n": "",
    "        for place in range(LENGTH):\n": "",
    "            total = total + self.table(lines[:, place])\n": "",
    "self.head(total / LENGTH)": "self.head(self.table(lines).mean(dim=1))",
}
once_cured = written("once_cured", instrumented, FIRST)

# %% language="bash"
# cd $FOLDER
# export OMP_NUM_THREADS=1 STEP_TIMER=trace STEP_TIMER_DIR=two_ranks
# torchrun --standalone --nproc-per-node 2 once_cured.py 2>&1 |
#     grep --line-buffered 'step.*0: \|wrote'

# %% [markdown]
# On a processor the all-reduce is `gloo:all_reduce` in the trace; it is the same collective, with the same wait in it
# as on a GPU. Number them on each rank, and compare the starts (lesson 07): a rank that comes last does not wait.


# %%
def collectives_of(rank):
    path = folder / f"two_ranks/trace_rank{rank}.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    table = pd.DataFrame(one for one in events if one.get("name") == "gloo:all_reduce")
    return table.sort_values("ts").assign(rank=rank, number=range(len(table)))


each = pd.concat(map(collectives_of, (0, 1)))
each["wait"] = each.groupby("number")["ts"].transform("max") - each["ts"]
waits = each.groupby("rank")[["dur", "wait"]].sum() / 1e3
print(waits.rename(columns={"dur": "in all-reduces, ms", "wait": "of it waiting"}).round(2))
for rank in (0, 1):
    operators, ranges = inside(folder / f"two_ranks/trace_rank{rank}.json.gz", "log")
    print(f"rank {rank}: {len(operators) // len(ranges)} operators in `log`, a step")

# %% [markdown]
# Times say *who*, if the machine is quiet: on a busy one both wait about as long, and they can't tell. The counts say
# *why*, and a busy machine can't change them: in every step one rank tries the model on all lines that were kept
# back, and the other waits for it in the next all-reduce. The second cure asks for it at the end alone:

# %%
SECOND = {"        if rank == 0:\n": "        if rank == 0 and step == steps - 1:\n"}
twice_cured = written("cured", once_cured, SECOND)

# %% [markdown]
# ## Proof
#
# One run before and one after prove nothing. So both, in turns, five times after one that is not counted: what slows
# the machine down meanwhile slows both. Who is first is drawn in each turn: on a machine that gets slower and slower,
# the second one would always lose. And a script that trains something else is no faster script, so the losses of all
# steps are kept too. On two ranks, as at work:

# %% language="bash"
# cd $FOLDER
# export OMP_NUM_THREADS=1 STEP_TIMER=times
# cat turns.py
# torchrun --standalone --nproc-per-node 2 turns.py 2>/dev/null

# %%
runs = pd.read_json(folder / "turns_2/runs_rank0.jsonl", lines=True)

# %%
# 5 minutes: how many times faster is the cured script *at least*, by all repeats: its slowest
# run against the quickest of the other? And is it the same training: the largest relative difference of two losses of
# a step? Give both numbers.
q = exercise("14.3", runs)
# solution
seconds = runs.groupby("script")["seconds"]
at_least = seconds.min()["before"] / seconds.max()["cured"]
losses = runs.groupby("script")["losses"].first()
difference = max(
    abs(one - other) / other for one, other in zip(losses["cured"], losses["before"], strict=True)
)
answer = at_least, difference
# end solution
q.check(answer)

# %%
seconds = runs.groupby("script")["seconds"].agg(["min", "median", "max"])
ratio = seconds.loc["before", "median"] / seconds.loc["cured", "median"]
sure = seconds.loc["before", "min"] > seconds.loc["cured", "max"]
print(f"{ratio:.1f} times faster (median)", "" if sure else "inconclusive: the repeats overlap")
proflab.reveal("14.a", 100 * alone.max() / alone.sum(), "measured here")
proflab.reveal("14.b", ratio, "measured here, two ranks")

# %% [markdown]
# The block was on in all of these runs and timed their steps, with a line for each rank. `tidyprof gate` reads such
# folders, and those of `tidyprof run`, compares each pair of runs, and reports whether the mean *step* got slower or
# faster beyond doubt. Five pairs are the minimum. Single parts need more ([how it judges](../docs/gate.md)).

# %% language="bash"
# python -m tidyprof gate $FOLDER/turns_2/before $FOLDER/turns_2/cured --paired 2>&1

# %% [markdown]
# ## Decide
#
# Report the factor of the whole script: you wait for all of it. The factor of the mean step shows what a longer
# training run would gain. And what remains of each part, in the gate's table, is the next question.
#
# On two ranks `backward` holds the all-reduce of a *dense* gradient of the table, nearly all zeros. Two candidates: a
# table with `sparse=True` sends fewer bytes, a larger batch sends them less often. Predict, then measure it by the
# same list. On GPUs the bytes are the same; the time that they take is not.

# %% [markdown]
# ## Your own script
#
# Now a script of yours, as it is. Make it short and repeatable: 40 steps, a seed, the losses printed with all digits.
# If the GPU is the limit, look at its kernels: `rocprofv3 --kernel-trace --stats --output-format csv` (lesson 04),
# then lesson 05. One cure at a time, five repeats in turns, better nine, the same losses; write down what you expect.
#
# The command ends with `tidyprof triage`, which also reads traces of other makers (`--step-time-ms MS` says how long a
# step takes without the profiler), says what speaks against its verdict, and writes [a page to
# send](../docs/triage.md). `tidyprof gate` compares [repeats before and after](../docs/gate.md). All of it comes with
# tidyprof, which [runs without an installation](../docs/triage.md).


# %% [markdown]
# **The form.** Fill in `OWN_SCRIPT`. While it is empty, the form runs on `sort_letters.py`: another style, with a
# class that trains, a data loader, no optimizer, and a fault of its own. A trainer of a library (transformers,
# Lightning) needs nothing either; where hooks can't name its parts, hand it one of the two callbacks at the end of
# this lesson. They do not run here: Trainer needs `accelerate`, and neither that nor Lightning is part of the course.

# %%
OWN_SCRIPT = ""  # path of yours
LAUNCH = [sys.executable]  # or ["torchrun", "--standalone", "--nproc-per-node", "2"]
script = Path(OWN_SCRIPT or folder / "sort_letters.py").expanduser().resolve(strict=True)


def run(script, to, *options):
    watched = [sys.executable, "-m", "tidyprof", "run", *options, "--out", folder.resolve() / to]
    own, command = os.environ | {"OMP_NUM_THREADS": "1"}, [*watched, "--", *LAUNCH, script.name]
    with signs_of_life(to):
        done = subprocess.run(command, cwd=script.parent, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-800:]
    return done.stdout, done.stderr


# %%
shutil.rmtree(folder / "own", ignore_errors=True)  # of an earlier try
said, screen = run(script, "own/first", "--with-stack")
print(screen)

# %% [markdown]
# **Verdict and cure.** Which part, which function, why? If the verdict is `inconclusive` or not confident, *Next* says
# what to do first. The cure is text of the script, and the text that replaces it. It goes into a copy beside the script, so that
# the two can run in turns, with `--no-trace`: times alone.

# %%
VERDICT = "data: `numbers_of` reads each letter anew in every epoch, in the process that trains"
FIX = {
    "self.letters = list(lines)": "self.letters = [numbers_of(line) for line in lines]",
    "return numbers_of(self.letters[place])": "return self.letters[place]",
}
text = script.read_text()
for old, new in FIX.items():
    assert text.count(old) == 1, f"{old!r} is not there once"
    text = text.replace(old, new)
own_cured = script.with_name(f"cured_{script.name}")
own_cured.write_text(text)
print(f"{own_cured.name} has {len(FIX)} changes")

# %%
shutil.rmtree(folder / "own/turns", ignore_errors=True)
differs = []
for turn in range(1, 6):
    for side, path in random.sample([("before", script), ("cured", own_cured)], 2):
        prints, _ = run(path, f"own/turns/{side}/run{turn}", "--no-trace")
        pairs = zip(said.splitlines(), prints.splitlines(), strict=False)
        differs += [f"{old!r}, now {line!r}" for old, line in pairs if old != line]
print(f"a print differs: {differs[0]}" if differs else "the same prints in all runs")
print(f"verdict: {VERDICT}")

# %% language="bash"
# python -m tidyprof gate $FOLDER/own/turns/before $FOLDER/own/turns/cured --paired 2>&1

# %% [markdown]
# A print that differs may be a time. A loss may differ only if the cure deals the data out in another way: then
# compare final losses over several seeds. Is one rank slower? `triage` names it; compare what its batches hold.
#
# The gate compares steps. A short run is mostly start-up, so its seconds say little about a long one.

# %% [markdown] tags=["given"]
# ## What this way cannot see
#
# A timer on the host sees what the host waits for. With a GPU the command has parts of the host alone, which runs
# ahead; the block with `STEP_TIMER=times` synchronizes at each part, so that host and GPU do not overlap as they do
# otherwise, and the parts add up to more than a step without it. Compare parts with parts. A trace of three steps
# shows no fault that comes once an hour.
#
# No trace, or one of too few steps: the loop ended early, so lower `--skip-steps`, or `STEP_TIMER_SKIP` of the block. No
# `distributedInfo`: the process group began after the profiler, so create the watch later. No ranges in a compiled
# model: put the lines outside of what is compiled. A part that takes long without any operator in it: the host waits
# for a copy, a lock, a processor, a batch.

# %% [markdown]
# ## At work, without this course
#
# First `python -m tidyprof run -- python train.py`, or without tidyprof the hook of torch above. Where hooks can't name
# your parts, this block:
#
# {snippet 14_instrument_me.py}
#
# The same where a library has the loop:
#
# {snippet 14_callbacks.py}
#
# And the check list as a job for Slurm, with the questions in their order; fill in account and command:
#
# {snippet 14_check_list.sh}

# %% [markdown]
# Next question: yours.
