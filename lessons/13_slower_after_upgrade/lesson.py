# %% [markdown]
# # Slower after the upgrade: is it true?
#
# A new ROCm, a new PyTorch, a new container: and somebody says that training got slower. Is it true?
#
# After this lesson you can
#
# - compare two sets of runs so that chance is not blamed, by hand and with `tidyprof gate`;
# - name the kernels that got longer, that are new and that are gone;
# - rule out what looks like the upgrade and is not, and write a report that somebody can act on.
#
# You need lessons 01, 02 and 04. The capture command holds from ROCm 7.0 to {newest rocm}. No GPU is needed: the
# releases that you compare here are modeled, since two of them on one machine are rarely at hand.

# %%
import json
from itertools import combinations

import numpy as np
import pandas as pd
import proflab
import tidyprof
from proflab import case, exercise, show_figure, show_table, show_text
from proflab.parts import upgrades
from tidyprof import plots
from tidyprof.gate.runs import repeats_in, run_times
from tidyprof.gate.verdict import judge

lesson = proflab.start("13")

# %%
lesson.recall()

# %% [markdown] tags=["given"]
# ## The picture to keep in mind
#
# | what happened | what you see in two recordings | what decides |
# | --- | --- | --- |
# | nothing | a difference within the noise | repeats, and an interval |
# | a library's kernel got slower | one kernel is *longer*, as often as before | its time for each call |
# | a library chose other kernels | some kernels are *new*, others *gone* | MIOpen's and TunableOp's files |
# | the first steps are in the window | the mean grew, the median did not | leave them out |
# | another node, a lower clock | many kernels are longer by a similar factor | the monitor's clock |
#
# *Noise* is what differs between runs of the same thing. [AMD's page][amd] on releases 6.4.3 and 7.2.3 finds a
# transformer 23 % slower and ResNet-50 3 % faster on MI300A, one number each; it calls 1 to 2 % noise, so the loss is
# real.
#
# [amd]: https://github.com/amd/HPCTrainingExamples/blob/f5f5263efa5313dd705a9a7a3eefd53d111887d3/MLExamples/Pytorch/common/PERFORMANCE_NOTES.md
#
# ## Predict
#
# One release runs five times on one node; only noise is added.

# %%
# solution
wrong_guess = 20
# end solution
proflab.predict("13.a", wrong_guess, unit="%", what="pairs of equal runs that look different")

# %% [markdown]
# ## Capture
#
# Record the kernels, the calls that launch them, and ranges that mark the steps (`--roctx` of the trainer). At work you
# repeat this five times with each release, in turns, on one node, each run in a folder of its own. Draw in each turn
# who is first, or a load that only grows would always hit the same side.

# %% language="bash"
# exec 2>&1
# rocprofv3 --kernel-trace --hip-runtime-trace --marker-trace --output-format rocpd \
#     --output-directory $FOLDER/own/run1 --output-file gpu \
#     -- python -m cifar_train --max-steps 4 --roctx

# %% [markdown]
# Here the repeats are those of a [model](../docs/gpumodel.md). Noise is added, an assumption: in each run all kernels take a
# little longer, by a random factor. Of the first release two recordings are left.

# %%
folders = {side: upgrades.unpack() / side for side in ("first", "second", "third", "other_node")}
runs = {side: [run_times(path) for path in repeats_in(folder)] for side, folder in folders.items()}
origin = runs["second"][0].origin
rows = [(side, run.value) for side, found in runs.items() for run in found]
by_side = pd.DataFrame(rows, columns=["side", "step_ns"]).groupby("side", sort=False)["step_ns"]
spread = by_side.agg(runs="count", mean_ns="mean", min_ns="min", max_ns="max").reset_index()
caption = f"A step's time, over the runs; added noise up to {100 * upgrades.NOISE:.0f} %"
show_table(spread, "side runs mean_ms min_ms max_ms", caption, origin=origin)

# %% [markdown]
# And on a real GPU? The case of lessons 00 to 08, the same options twice, without four steps of each second run, which
# the profiler recorded. Where loader processes compete for processors, one run a side proves nothing:

# %%
real = case.measured()
steady = real[(real["part"] == "steady") & ~real["profiled"]]
pairs = steady.groupby(["run", "traced"])["duration_ns"].mean().unstack().dropna()
pairs.columns = ["one_ns", "again_ns"]
pairs["times"] = pairs.max(axis=1) / pairs.min(axis=1)
pairs = pairs.reset_index()
show_table(pairs, "run one_ms again_ms times", "Equal runs: mean step", origin=real.attrs["origin"])

# %% [markdown]
# ## First look, by hand: second release against third
#
# A run's time is the mean of its *device's* steps, because the host runs ahead: each step lasts until the work of the
# next one begins. Leave out the first step.

# %%
path = repeats_in(folders["second"])[0]
steps = tidyprof.steps(tidyprof.read(path), "device")
assert steps["duration_ns"].iloc[1:].mean() == runs["second"][0].value
show_figure(plots.step_times(steps, title="The first step and the others"))

# %% [markdown] tags=["given"]
# How far can you trust the ratio of the runs' means? *Bootstrap*: draw five of the five runs anew, with replacement,
# ten thousand times, and see which range contains 95% of the ratios.


# %%
def interval(new, old, draws=10_000):
    random = np.random.default_rng(1)
    means = [random.choice(side, (draws, len(side))).mean(axis=1) for side in (new, old)]
    return np.quantile(means[0] / means[1], [0.025, 0.975])


old, new = (np.array([run.value for run in runs[side]]) for side in ("second", "third"))
ratio, (low, high) = new.mean() / old.mean(), interval(new, old)
verdict = judge(runs["second"], runs["third"])
assert np.allclose([ratio, low, high], verdict.ratio[:3], rtol=0.01)
show_text(f"In the model a step takes {ratio:.2f} times as long: {low:.2f} to {high:.2f}.")

# %% [markdown]
# The whole interval is above 1: slower beyond doubt, if the runs are independent (the model's error is not in it).
#
# ## Trap: steps are no repeats
#
# Why five runs, when one run has many steps? What slows a run down slows all its steps: a warm GPU, a busy switch,
# where its memory happens to be. Try it on runs of the *same* release, without the first three steps of each.

# %%
same = {
    path.name: tidyprof.steps(tidyprof.read(path), "device")["duration_ns"].to_numpy()[3:]
    for path in repeats_in(folders["second"])
}
low, high = interval(same["run1"], same["run2"])
show_text(f"run1 against run2, by {len(same['run1'])} steps of each: {low:.4f} to {high:.4f}")

# %%
# 6 minutes: of all pairs of runs in `same`, which percentage looks different, because the interval from their steps
# does not hold 1? `combinations(same.values(), 2)` gives the pairs, `interval` judges each.
q = exercise("13.1", same)
# solution
intervals = [interval(one, two) for one, two in combinations(same.values(), 2)]
answer = 100 * np.mean([not low <= 1 <= high for low, high in intervals])
# end solution
q.check(answer)

# %% [markdown] tags=["given"]
# Steps would have blamed an upgrade that did not happen.
#
# ## The gate
#
# `tidyprof gate` does what you did manually, and looks for the blame. It exchanges runs between the releases instead of
# drawing them anew, because that is exact even for few runs. The exit code is 1 if the slow-down exceeds a limit beyond
# doubt, so an automatic test can stop there; the default of `--fail-above` is 5%. If a load comes and goes, add
# `--paired`: it compares `run1` with `run1`, `run2` with `run2`, and so on. The gate reads traces and the block's
# `times_rank0.jsonl` (lesson 14). [How many repeats](../docs/gate.md) depends on your noise: compare one release with
# itself.

# %% language="bash"
# python -m tidyprof gate $FOLDER/second $FOLDER/third --fail-above 5% --json $FOLDER/verdict.json \
#     || echo "exit code $?"

# %%
told = json.loads((folders["third"].parent / "verdict.json").read_text())
longest = told["kernels"][0]
show_text(
    f"`{longest['full_name']}` takes {longest['difference_ns'] / 1e6:.1f} ms longer, the step "
    f"{(told['new_value'] - told['base_value']) / 1e6:.1f} ms, both means over the runs."
)

# %% [markdown]
# One kernel, launched as often as before, and longer. The gate's table shortens its name; a library's developers search
# for the full one, which also tells whose it is: `miopenSp3AsmConv` is MIOpen's.
#
# ## New and gone
#
# From the first to the second release a step became much longer. Ask the same judge:

# %%
exchanged = judge(runs["first"], runs["second"])
change = exchanged.new_value / exchanged.base_value - 1
show_text(f"**{exchanged.word}**: {exchanged.reason}. In the model: {100 * change:.0f} % longer.")
columns = "kernel base_calls new_calls base_ms new_ms difference_ms blame"
caption = "From the first to the second release"
show_table(exchanged.kernels, columns, caption, rows=6, origin=origin)

# %% [markdown]
# *Inconclusive*: two runs of a release give no interval. Record the missing repeats, alternating. The blame stands,
# because calls are counted, not timed. Convolutions that were *implicit GEMM* (`igemm`, written as matrix products) are
# now *Winograd*, an algorithm with fewer multiplications. That isn't a gain if its kernel is slow. What one kernel lost
# and another won is one change. With traces of torch.profiler, `tidyprof table compare BEFORE AFTER --by operator`
# has both in one row.

# %%
# 6 minutes: what did the exchange of convolutions cost, in ms of a step? Add up `difference_ns` of all kernels with
# `conv`, any case, in the column `kernel`. The transposes that some convolutions need, named `batched_transpose` and
# `transpose_`, belong to them. Which signs count?
q = exercise("13.2", exchanged.kernels)
# solution
belongs = exchanged.kernels["kernel"].str.contains("conv|batched_transpose|transpose_", case=False)
answer = exchanged.kernels.loc[belongs, "difference_ns"].sum() / 1e6
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: the other node
#
# The runs `other_node` are of the *second* release. Nothing was upgraded, but the scheduler gave another node:

# %%
elsewhere = judge(runs["second"], runs["other_node"])
show_text(f"**{elsewhere.word}**: {elsewhere.reason}.")
show_table(elsewhere.kernels, columns, "Blame, on the other node", rows=4, origin=origin)

# %% [markdown]
# The same verdict. The kernels tell the two apart: a library rarely spoils many kernels at once, a lower clock does.
# Only those that wait for memory hardly notice.

# %%
# 5 minutes: a function `suspects(kernels)` of such a table, which returns how many kernels are longer by more than 5 %,
# among those with at least 0.05 ms a step on the base side. Columns: `base_ns`, `new_ns`. It is tried on both.
q = exercise("13.3", {"third": verdict.kernels, "other_node": elsewhere.kernels})


# solution
def answer(kernels):
    large = kernels[kernels["base_ns"] >= 50_000]
    return (large["new_ns"] > 1.05 * large["base_ns"]).sum()


# end solution
q.check(answer)

# %% [markdown]
# Run the monitor beside each side: `amd-smi monitor -p -u -w 1 --csv --file smi.csv`. `gfx_clk` is the clock, `gfx`
# the activity, `max_power` (since ROCm 7.0) the power limit, which differs where somebody set a *power cap*. Compare
# medians while the GPU works. Newer releases refuse existing files.

# %%
clocks = []
for side in ("second", "other_node"):
    smi = pd.read_csv(upgrades.watched(side))
    clocks.append((side, *smi.loc[smi["gfx"] > 50, ["gfx_clk", "gfx", "max_power"]].median()))
columns = "side clock_mhz busy_percent limit_watt"
clocks = pd.DataFrame(clocks, columns=columns.split())
show_table(clocks, columns, "The monitor, medians at work", origin=origin)

# %% [markdown]
# The step is longer by less than the clock is lower: memory is as fast as before. Equal clocks and limits on both sides
# rule the node out. On shared clusters ask for one node by name, and run both sides in one job.
#
# ## Trap: the first steps, and files of an older release
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
# So throw the first run after an upgrade away. ROCm 10.1 ships a smaller find database: that run finds more by itself.
# With the same `MIOPEN_FIND_MODE` on both sides you compare releases and not searches. To practice, the trainer's
# `--inject-fault no-warmup` measures and records from the first step on.

# %% [markdown]
# A file of TunableOp begins with *validators*: its versions and its GPU. PyTorch compares each with its own, as texts,
# behind the hyphen too. If one differs, [the whole file is ignored][refused], and the log has `Failed validator` or
# `Unmatched validator`. When it tunes again, an older PyTorch overwrites the file ([AMD's article][tunable]); a newer
# one adds its lines below the old validators ([source][code]), so that the file is refused at every start. Keep a file
# for each release.
#
# [refused]: ../docs/known-issues.md#a-tunableop-file-of-another-release-is-ignored
# [tunable]: https://rocm.blogs.amd.com/artificial-intelligence/pytorch-tunableop/README.html
# [code]: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/cuda/tunable/Tunable.cpp
#
# A rate can mean something else, too: who divides a full batch by the time overstates the last one, which holds what is
# left over. Keep model, precision, batch and device equal.

# %% [markdown]
# ## Report it
#
# A stranger has to be able to repeat it:
#
# 1. **One sentence**: which kernel, how much longer, on which GPU, from which release to which. The kernel's full name
#    and the times are in the gate's `report.md`; GPU and releases you add.
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
# first, and in the [known issues](../docs/known-issues.md).
#
# [log]: https://rocm.docs.amd.com/projects/MIOpen/en/latest/DebugAndLogging.html
#
# ## Decide
#
# Name, for each pair, what you would do next, before you run the cell.

# %%
for before, after, next_step in (
    ("first", "second", "record repeats of the first release; compare MIOpen's databases"),
    ("second", "third", "report the kernel to MIOpen, with its MIOpenDriver line"),
    ("second", "other_node", "nothing to report: compare again on one node"),
):
    show_text(f"{before} to {after}: **{judge(runs[before], runs[after]).word}**; then {next_step}")
ends = [interval(*pair) for pair in combinations(same.values(), 2)]
different = [not low <= 1 <= high for low, high in ends]
proflab.reveal("13.a", 100 * np.mean(different), origin=origin)

# %% [markdown]
# ## What this view cannot show
#
# - Runs on one node say nothing about other nodes: a cluster needs repeats over nodes, too.
# - The gate compares steps. It doesn't see start-up, nor saving and evaluation between steps that aren't timed.
# - Recording costs the host time at each launch, and can hide or make a difference: confirm it with step times without
#   a profiler, as the snippet below does.
# - Why a kernel is longer, only its counters (lesson 05) or its developers can say.

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
# Next question: what is wrong with my own script?
