# %% [markdown]
# # Slower after the upgrade: is it true?
#
# A new ROCm, a new PyTorch, a new container: and somebody says that training got slower. Is it true? Which kernel is to
# blame? And what do you write to those who can repair it?
#
# After this lesson you can
#
# - compare two sets of runs so that chance is not blamed, by hand and with `tidyprof gate`;
# - name the kernels that got longer, that are new and that are gone;
# - rule out what looks like the upgrade and is not: first steps, another node, a refused tuning file, a rate that means
#   something else;
# - write a report that somebody can act on.
#
# You need lessons 01, 02 and 04. The capture command holds from ROCm 7.0 to {newest rocm}. No GPU is needed: the
# releases that you compare here are modelled, since two of them on one machine are rarely at hand.

# %%
import json

import numpy as np
import pandas as pd
import proflab
import tidyprof
from proflab import exercise, say, show_figure, show_table
from proflab.parts import upgrades
from proflab.parts.clinic_runs import modelled
from tidyprof import plots
from tidyprof.gate.runs import repeats_in, run_times
from tidyprof.gate.verdict import judge

lesson = proflab.start("13")

# %% [markdown]
# ## The picture to keep in mind
#
# | what happened | what you see in two recordings | what decides |
# | --- | --- | --- |
# | nothing | a difference within the noise | repeats, and an interval |
# | a library's kernel got slower | one kernel is *longer*, as often as before | its time for each call |
# | a library chose other kernels | some kernels are *new*, others *gone* | MIOpen's and TunableOp's files |
# | the first steps are in the window | the mean grew, the median did not | leave them out |
# | another node, a lower clock | many kernels are longer by a similar factor, others not at all | the monitor's clock |
#
# *Noise* is what differs between runs of the same thing. It has to be known before any difference means something.
#
# ## Why bother? Published numbers
#
# AMD's training material compares two releases on one node, with one PyTorch:

# %%
published = pd.read_csv(lesson.file("published_releases.csv"), comment="#")
published["change_percent"] = 100 * (published["rocm_7_2_3"] / published["rocm_6_4_3"] - 1)
columns = "program unit rocm_6_4_3 rocm_7_2_3 change_percent"
show_table(
    published,
    columns,
    "One program, two releases of ROCm",
    origin="published by AMD: 4 MI300A, see the file",
)
worst = published.loc[published["change_percent"].idxmin()]
say(
    f"{worst['program']} lost {-worst['change_percent']:.0f} %, while "
    f"{(published['change_percent'] > 0).sum()} of {len(published)} rates rose."
)

# %% [markdown] tags=["given"]
# The source says that such rates differ by 1 to 2 % from run to run, and gives one number each. So the smallest gain
# can't be told from noise, the other two are not sure, and the two losses are far beyond it. The source also owns up to
# a mistake: an earlier version had blamed the way in which PyTorch was installed, because two things had been changed
# at once. Change one thing at a time.
#
# ## Predict
#
# Below, one release runs five times on one node. Nothing is changed between the runs; only noise is added.

# %%
# solution
apart_guess, wrong_guess = 5, 20
# end solution
proflab.predict(
    "13.a", apart_guess, unit="%", what="how much longer a step is in the slowest of equal runs"
)
proflab.predict(
    "13.b", wrong_guess, unit="%", what="pairs of equal runs that look different by their steps"
)

# %% [markdown]
# ## Capture
#
# Record the kernels, the calls that launch them, and ranges that mark the steps. `--roctx` lets the trainer set the
# ranges. At work you repeat this five times with the old release and five times with the new one, in turns, on one
# node, each run in a folder of its own. Who is first is drawn in each turn, or a load that only grows would always hit
# the same side.

# %% language="bash"
# exec 2>&1
# rocprofv3 --kernel-trace --hip-runtime-trace --marker-trace --output-format rocpd \
#     --output-directory $FOLDER/own/run1 --output-file gpu \
#     -- python -m cifar_train --max-steps 4 --roctx

# %% [markdown]
# Here the model plays the repeats. It has hardly any noise of its own, so some is added: in each run all kernels take a
# little longer, by a random factor. Of the first release two recordings are left; people rarely keep more.

# %%
folders = {"first": upgrades.record("first", repeats=2)}
folders |= {side: upgrades.record(side) for side in ("second", "third", "other_node")}
runs = {side: [run_times(path) for path in repeats_in(folder)] for side, folder in folders.items()}
origin = runs["second"][0].origin
table = pd.DataFrame(
    [{"side": side, "step_ns": run.step_ns} for side, found in runs.items() for run in found]
)
spread = (
    table.groupby("side", sort=False)["step_ns"]
    .agg(["count", "median", "min", "max"])
    .reset_index()
)
spread = spread.rename(columns={name: f"{name}_ns" for name in ("median", "min", "max")})
show_table(
    spread,
    "side count median_ms min_ms max_ms",
    "A step's time in each run, over the runs",
    origin=origin,
)
say(f"The added noise: up to {100 * upgrades.NOISE:.0f} %.")

# %% [markdown]
# ## First look, by hand: second release against third
#
# A run's time is the median of its steps. Which steps? The host only puts work into a queue and runs ahead, so its own
# steps can end before the GPU is done: take the *device's* steps. Such a step begins with its range on the host, but
# not before the work of earlier steps is done, and lasts until the next one begins. Leave out a run's first steps: they
# take longer. The gate leaves out one; a few more do not move a median.

# %%
path = repeats_in(folders["second"])[0]
steps = tidyprof.steps(tidyprof.read(path), "device")["duration_ns"]
assert steps.iloc[1:].median() == runs["second"][0].step_ns
say(f"Steps of one run, in ms: {', '.join(f'{step / 1e6:.1f}' for step in steps)}.")

# %% [markdown] tags=["given"]
# Is the third release slower? Compare the medians of the runs. How far can the ratio be trusted? *Bootstrap*: draw five
# of the five runs anew, with replacement, ten thousand times, and see between which ends 95 % of the ratios lie.


# %%
def interval(new, old, draws=10_000):
    random = np.random.default_rng(1)
    medians = [np.median(random.choice(side, (draws, len(side))), axis=1) for side in (new, old)]
    return np.quantile(medians[0] / medians[1], [0.025, 0.975])


old, new = (np.array([run.step_ns for run in runs[side]]) for side in ("second", "third"))
ratio, (low, high) = np.median(new) / np.median(old), interval(new, old)
verdict = judge(runs["second"], runs["third"])
assert np.isclose(ratio, verdict.ratio.ratio)
assert np.allclose([low, high], [verdict.ratio.low, verdict.ratio.high], rtol=0.01)
say(f"The step takes {ratio:.3f} times as long; the interval reaches from {low:.3f} to {high:.3f}.")

# %% [markdown]
# The whole interval is above 1: slower beyond doubt, if the runs are independent.
#
# ## Trap: steps are no repeats
#
# Why five runs, when one run has many steps? Because what slows a run down slows all its steps: a warm GPU, a
# busy switch, where its memory happens to be. Steps of one run agree with each other, and say nothing about the next
# run. Try it on runs that are all of the *same* release. The first three steps of each run take longer than the rest,
# so they are left out here.

# %%
same = {
    path.name: tidyprof.steps(tidyprof.read(path), "device")["duration_ns"].to_numpy()[3:]
    for path in repeats_in(folders["second"])
}
one, two = list(same.values())[:2]
low, high = interval(one, two)
say(f"run1 against run2, by {len(one)} steps of each: {low:.4f} to {high:.4f}")

# %%
# 8 minutes: of all pairs of runs in `same`, which percentage looks different, because the interval from their steps
# does not hold 1? `itertools.combinations(same.values(), 2)` gives the pairs, `interval` judges each.
q = exercise("13.1", same)
# solution
from itertools import combinations

intervals = [interval(one, two) for one, two in combinations(same.values(), 2)]
answer = 100 * np.mean([not low <= 1 <= high for low, high in intervals])
# end solution
q.check(answer)

# %% [markdown] tags=["given"]
# Nothing was changed between these runs. Steps would have blamed an upgrade that did not happen.
#
# ## The gate
#
# `tidyprof gate` does what you did by hand, and looks for the blame. Its exit code is 1 where the slow-down is above a
# limit beyond doubt, so that an automatic test can stop there; 5 % is the limit without `--fail-above`. Where the load
# of the machine comes and goes, add `--in-turns`: it takes the ratios of `run1` to `run1`, `run2` to `run2`, and so on,
# and what slowed a turn down falls out of its ratio. It reads traces and the block's `times_rank0.jsonl` (lesson 14).

# %% language="bash"
# python -m tidyprof gate $FOLDER/second $FOLDER/third --fail-above 5% --json $FOLDER/verdict.json \
#     --markdown $FOLDER/report.md || echo "exit code $?"

# %%
told = json.loads((folders["third"].parent / "verdict.json").read_text())
assert np.isclose(told["ratio"]["ratio"], ratio)
kernels = pd.DataFrame(told["kernels"])
columns = "kernel base_calls new_calls base_ms new_ms difference_ms blame"
show_table(kernels, columns, "Blame by kernel, of one step", rows=4, origin=origin)
say(f"The full name of the first: `{kernels['full_name'].iloc[0]}`.")

# %%
# 5 minutes: how many ms of the slow-down of a step does the kernel to blame *not* explain? `told` has `base_ns` and
# `new_ns` of a step; take the absolute value.
q = exercise("13.2", told)
# solution
slower_ns = told["new_ns"] - told["base_ns"]
answer = abs(slower_ns - kernels["difference_ns"].max()) / 1e6
# end solution
q.check(answer)

# %% [markdown]
# So it is one kernel, launched as often as before, and longer. That is a sentence that a library's developers can act
# on. The name in the table is tidyprof's own, shortened; developers search for the full one, which also tells whose it
# is: `miopenSp3AsmConv` is MIOpen's.
#
# ## New and gone
#
# From the first to the second release a step became much longer. Ask the same judge:

# %%
exchanged = judge(runs["first"], runs["second"])
say(
    f"**{exchanged.word}**: {exchanged.reason}. A step took {exchanged.base_ns / 1e6:.1f} ms and "
    f"takes {exchanged.new_ns / 1e6:.1f} ms, "
    f"{100 * (exchanged.new_ns / exchanged.base_ns - 1):+.0f} %."
)
show_table(
    exchanged.kernels, columns, "From the first to the second release", rows=8, origin=origin
)

# %% [markdown]
# *Can't tell*, large as the difference is: with two runs on a side no interval can be had, and a judge that guesses is
# of no use. Record the missing repeats, in turns. The blame stands nevertheless, since calls are counted, not timed:
# here convolutions that were *implicit GEMM* (`igemm`, written as matrix products) are now *Winograd*, an algorithm
# with fewer multiplications. That is no gain if its kernel is slow. What one kernel lost and another won is one change.
# With traces of torch.profiler, `tidyprof compare BEFORE AFTER --by operator` has both in one row, that of the operator
# that launched them.

# %%
# 8 minutes: what did the exchange of convolutions cost, in ms of a step? Add up `difference_ns` of all kernels with
# `conv`, any case, in the column `kernel`. The transposes that some convolutions need, named `batched_transpose` and
# `transpose_`, belong to them. Which signs count?
q = exercise("13.3", exchanged.kernels)
# solution
belongs = exchanged.kernels["kernel"].str.contains("conv|batched_transpose|transpose_", case=False)
answer = exchanged.kernels.loc[belongs, "difference_ns"].sum() / 1e6
# end solution
q.check(answer)

# %% [markdown] tags=["given"]
# ## How many repeats?
#
# That depends on your noise, the standard deviation between runs. Measure it: record one release twice, and compare it
# with itself. This slow-down the gate finds in nine of ten cases, with a limit of 5 %:
#
# | repeats on a side | no added noise | noise of 5 % |
# | --- | --- | --- |
# | 5 | 8 % | 22 % |
# | 20 | 7 % | 12 % |
#
# Where a load comes and goes, repeats on a side miss even large slow-downs, and turns find them.
# [The table](../docs/gate.md) has the rest, and how it was modelled. Here the noise is:

# %%
times = {side: [run.step_ns for run in found] for side, found in runs.items()}
noise = {side: 100 * np.std(own, ddof=1) / np.mean(own) for side, own in times.items()}
say("; ".join(f"{side}: {percent:.1f} %" for side, percent in noise.items()) + ".")

# %% [markdown]
# ## Trap: the other node
#
# The runs `other_node` are of the *second* release. Nothing was upgraded, but the scheduler gave another node:

# %%
elsewhere = judge(runs["second"], runs["other_node"])
say(f"**{elsewhere.word}**, {100 * (elsewhere.ratio.ratio - 1):+.1f} %: {elsewhere.reason}.")
show_table(elsewhere.kernels, columns, "Blame, on the other node", rows=6, origin=origin)

# %% [markdown]
# The same verdict as for the third release. The kernels tell the two apart: a library rarely spoils many kernels at
# once, a lower clock does. Only kernels that wait for memory hardly notice the clock.

# %%
# 6 minutes: a function `suspects(kernels)` of such a table, which returns how many kernels are longer by more than 5 %,
# among those with at least 0.05 ms a step on the base side. Columns: `base_ns`, `new_ns`. It is tried on both.
q = exercise("13.4", {"third": verdict.kernels, "other_node": elsewhere.kernels})


# solution
def answer(kernels):
    large = kernels[kernels["base_ns"] >= 50_000]
    return (large["new_ns"] > 1.05 * large["base_ns"]).sum()


# end solution
q.check(answer)

# %% [markdown]
# The witness is the monitor, so let it run beside each side: `amd-smi monitor -p -u -w 1 --csv --file smi.csv`. The
# column `gfx_clk` is the clock in MHz, `gfx` the activity, `max_power` (since ROCm 7.0) the power limit, which differs
# where somebody set a *power cap*. Compare medians while the GPU works. It runs until you stop it, and newer releases
# refuse a file that exists.

# %%
clocks = []
for side in ("second", "other_node"):
    smi = pd.read_csv(upgrades.watch(side))
    working = smi.loc[smi["gfx"] > 50, ["gfx_clk", "gfx", "power_usage", "max_power"]].median()
    clocks.append({"side": side, **working})
monitor = pd.DataFrame(clocks)
show_table(
    monitor, "side gfx_clk gfx power_usage max_power", "The monitor, medians at work", origin=origin
)
lower = 1 - monitor["gfx_clk"][1] / monitor["gfx_clk"][0]
say(
    f"The clock is {100 * lower:.0f} % lower, so arithmetic takes "
    f"{100 * (1 / (1 - lower) - 1):.0f} % longer. The step takes "
    f"{100 * (elsewhere.ratio.ratio - 1):.0f} % longer: memory is as fast as before. Don't "
    "compare the power: the model leaves the clock out of it."
)

# %% [markdown]
# Equal clocks and limits on both sides rule the node out. On shared clusters ask for one node by name, and run both
# sides in one job.
#
# ## Trap: the first steps
#
# Before a convolution runs for the first time, MIOpen, AMD's library for neural networks, *finds* the fastest kernel
# for its shape: it looks into a database, and tries out what is not there. TunableOp, a part of PyTorch, does so for
# matrix products, if you switch it on with `PYTORCH_TUNABLEOP_ENABLED=1`. Both remember, and an upgrade makes them
# forget:
#
# | who | remembers | where | after an upgrade |
# | --- | --- | --- | --- |
# | MIOpen | what it found for a shape | `~/.config/miopen`, or `MIOPEN_USER_DB_PATH` | [old files are ignored][find] |
# | MIOpen | tuned parameters of kernels (`miopen.udb`) | the same folder | [move or delete the old file][perf] |
# | MIOpen | compiled kernels | `~/.cache/miopen`, or `MIOPEN_CUSTOM_CACHE_DIR` | a new folder for each version |
# | TunableOp | the fastest matrix product for each shape | `PYTORCH_TUNABLEOP_FILENAME` | [the file is refused][tune] |
#
# [find]: https://rocm.docs.amd.com/projects/MIOpen/en/latest/finddb.html
# [perf]: https://rocm.docs.amd.com/projects/MIOpen/en/latest/perfdatabase.html
# [tune]: https://docs.pytorch.org/docs/stable/cuda.tunable.html
#
# So the first run after an upgrade is no sample of the new release: run once, throw it away, then measure. ROCm 10.1
# ships a smaller find database, so that the first run finds more by itself. `MIOPEN_FIND_MODE` says how much MIOpen
# tries: with the same value on both sides you compare releases and not searches. To practise, the trainer's
# `--pathology no-warmup` measures and records from the first step on.

# %%
window = steps.to_numpy() / 1e6
say(
    f"Mean with the first step: {window.mean():.0f} ms; without it: {window[1:].mean():.1f} ms; "
    f"median: {np.median(window):.1f} ms. Of {len(window)} steps, one decides the mean."
)
show_figure(
    plots.step_times(
        tidyprof.steps(tidyprof.read(path), "device"), title="The first step and the others"
    )
)

# %% [markdown]
# ## Trap: a tuning file of an older release
#
# The file of TunableOp begins with its *validators*: for which versions and which GPU these results hold. The rest is
# one line for each shape: operator, shape, the kernel that won, and its time in ms. Here is one that AMD published:

# %%
names = ["kind", "name", "value", "ms"]
tuned = pd.read_csv(lesson.file("tuned_mi200.csv"), comment="#", names=names)
validators = tuned[tuned["kind"] == "Validator"].set_index("name")["value"]
show_table(
    validators.reset_index(), "name value", "Validators", origin="published by AMD, see the file"
)

# %% [markdown]
# PyTorch compares each with its own, as texts. If one differs, the log shows `Failed validator: ROCBLAS_VERSION`, or
# another name, and *the whole file is ignored*: training goes on without what you tuned, or tunes again for minutes.
# Names change as well: newer versions ask for `HIP_VERSION` instead of `ROCM_VERSION`, and say `Unmatched validator`.
# Two more surprises, from [AMD's article](https://rocm.blogs.amd.com/artificial-intelligence/pytorch-tunableop/README.html)
# and from [PyTorch's source](https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/cuda/tunable/Tunable.cpp): when
# it tunes again, an older PyTorch overwrites the file; a newer one adds its lines below the old validators, so that
# the file is refused at every start. Keep a file for each release, and look for these words in the log.
# `PYTORCH_TUNABLEOP_VERBOSE=1` shows what was expected.

# %%
# 5 minutes: `tuned_llama.csv` is a file as above; `expected_later.csv` has, in `name` and `value`, what a PyTorch of
# seven weeks later expected. Give the set of the validators that differ.
files = {name: lesson.file(f"{name}.csv") for name in ("tuned_llama", "expected_later")}
q = exercise("13.5", files)
# solution
lines = pd.read_csv(files["tuned_llama"], comment="#", names=names)
written = lines[lines["kind"] == "Validator"].set_index("name")["value"]
expected = pd.read_csv(files["expected_later"], comment="#", index_col="name")["value"]
answer = {
    name for name in written.index.union(expected.index) if written.get(name) != expected.get(name)
}
# end solution
q.check(answer)

# %% [markdown] tags=["given"]
# ## Trap: a rate that means something else
#
# Not every number that people compare is a step's time. AMD published the lines of a run on several GPUs, each with
# 256 images divided by the time. But the last batch holds what is left over. How many GPUs there were is not stated. If
# eight share the 40,000 images of an epoch (one pass over all of them), the run ends after exactly as many lines as it
# has.

# %%
# 6 minutes: if eight GPUs shared 40,000 images, what was the true rate of the last line, in images per second of this
# one GPU? `rates` has the columns `step` and `images_per_second`. Look at it first.
rates = pd.read_csv(lesson.file("published_rates.csv"), comment="#")
q = exercise("13.6", rates)
# solution
left = 40_000 // 8 - 256 * (len(rates) - 1)
answer = rates["images_per_second"].iloc[-1] * left / 256
# end solution
q.check(answer)

# %% [markdown]
# And a rate without its conditions says little. Here nothing was upgraded, and one option differs:

# %%
small, large = (modelled(f"--num-workers 8 --batch-size {batch}") for batch in (256, 1024))
say(
    f"{small.images_per_second:,.0f} images/s, and {large.images_per_second:,.0f} with batches of "
    f"1024 images ({small.origin}). State model, precision, batch size and device, and keep them "
    "equal on both sides."
)

# %% [markdown]
# ## Report it
#
# A report can be acted on if a stranger can repeat it. It has five parts:
#
# 1. **One sentence**: which kernel, how much longer, on which GPU, from which release to which. The kernel's full name
#    and the times are in the gate's report; GPU and releases you add.
# 2. **The environment of both sides**, from commands and not from memory: `python -m torch.utils.collect_env`,
#    `amd-smi version`, `rocminfo`.
# 3. **The smallest script** that shows it: one layer, one shape, 20 lines, timed as in lesson 00. For a convolution
#    MIOpen writes it for you: with `MIOPEN_ENABLE_LOGGING_CMD=1` it prints, for each call, the line for its own test
#    program `MIOpenDriver`. [For support][log] AMD asks for `MIOPEN_ENABLE_LOGGING=1` and `MIOPEN_LOG_LEVEL=6` too.
# 4. **The evidence**: the gate's report with its repeats and interval, and both sides' clocks.
# 5. **What you ruled out**: first steps, another node, tuning files.
#
# Where to? [ROCm/rocm-libraries](https://github.com/ROCm/rocm-libraries/issues) has MIOpen, rocBLAS and hipBLASLt,
# [ROCm/rocm-systems](https://github.com/ROCm/rocm-systems/issues) the profilers and AMD SMI, and
# [pytorch/pytorch](https://github.com/pytorch/pytorch/issues) the operators that choose between libraries. Search there
# first.
#
# [log]: https://rocm.docs.amd.com/projects/MIOpen/en/latest/DebugAndLogging.html

# %%
print((folders["third"].parent / "report.md").read_text())

# %% [markdown]
# ## Decide
#
# Name, for each pair, what you would do next, before you run the cell.

# %%
for before, after, next_step in (
    ("first", "second", "record repeats of the first release; compare MIOpen's databases"),
    ("second", "third", "report the kernel to MIOpen, with its MIOpenDriver line"),
    ("second", "other_node", "nothing to report: compare again on one node"),
):
    found = judge(runs[before], runs[after])
    say(
        f"{before} to {after}: **{found.word}**, {100 * (found.new_ns / found.base_ns - 1):+.0f} "
        f"%. {next_step}."
    )
proflab.reveal("13.a", 100 * (old.max() / old.min() - 1), origin=origin)
pairs = [
    (one, two)
    for place, one in enumerate(same.values())
    for two in list(same.values())[place + 1 :]
]
proflab.reveal(
    "13.b",
    100 * np.mean([not low <= 1 <= high for low, high in (interval(*pair) for pair in pairs)]),
    origin,
)

# %% [markdown]
# ## What this view cannot show
#
# - Runs on one node say nothing about other nodes; a whole cluster needs repeats over nodes too.
# - The gate compares a step. Start-up, saving and evaluation may have become slower unseen.
# - Recording costs the host time at each launch, and can hide a difference, or make one: confirm it with step times
#   without a profiler, as the snippet below does.
# - Why a kernel is longer, only its counters (lesson 05) or its developers can say.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# {issue bfloat16-matrix-products-hang-on-rocm-72}
# {issue a-tunableop-file-of-another-release-is-ignored}
# {issue miopen-databases-on-a-network-file-system}
# {issue triton-kernels-spill-registers-after-an-upgrade}
# {issue the-pin-memory-thread-holds-up-the-training-loop}
# {issue rccl-is-slow-on-mi250x}
#
# More of them, with sources, are in the [list of known issues](../docs/known-issues.md).

# %% [markdown]
# ## At work, without this course
#
# Step times of two sides, written by your own loop; each file is one run:
#
# {snippet 13_slower.py}

# %% [markdown]
# And the environment for the report, collected once on each side:
#
# {snippet 13_report.sh}

# %% [markdown]
# ## Key points
#
# - Repeats are runs. Steps of one run agree with each other and prove nothing.
# - The interval decides, not the ratio. *Can't tell* is a result: record more.
# - One kernel longer points to a library, many to the node, new and gone to another choice.
# - The first run after an upgrade is for MIOpen and TunableOp, not for you.
# - Report the kernel, both environments, the smallest script, and what you ruled out.
#
# Next question: what is wrong with my own script?
