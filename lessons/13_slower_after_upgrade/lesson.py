# %% [markdown]
# # Slower after the upgrade: is it true?
#
# After an upgrade of ROCm, PyTorch or a container, someone says that training got slower. Is it true?
#
# After this lesson, you can:
#
# - compare two sets of runs without blaming chance, manually and with `tidyprof gate`;
# - name the kernels that take longer, that are new and that are gone;
# - rule out effects that only look like the upgrade, and write a report that developers can act on.
#
# **Before you start:** complete lessons 01, 02 and 04. The capture command works with ROCm 7.0 to {newest rocm}. You
# don't need a GPU: the releases are modeled, because two are rarely available on one machine.

# %%
from itertools import combinations

import numpy as np
import pandas as pd
import proflab
import tidyprof
from proflab import exercise, show_figure, show_table, show_text
from proflab.parts import upgrades
from proflab.parts.upgrades import interval
from tidyprof import plots
from tidyprof.gate.runs import repeats_in, run_times
from tidyprof.gate.verdict import judge

lesson = proflab.start("13")

# %%
lesson.recall()

# %% [markdown] tags=["given"]
# ## The picture to keep in mind
#
# | what happened | what two traces show | what decides |
# | --- | --- | --- |
# | nothing | a difference within the noise | repeats, and an interval |
# | a library's kernel got slower | one kernel is *longer*, with as many calls as before | its time per call |
# | a library chose other kernels | some kernels are *new*, others *gone* | files of MIOpen and TunableOp |
# | the first steps are included | the mean grew, but the median didn't | leave them out |
# | another node, a lower clock | many kernels are longer by a similar factor | the monitor's clock |
#
# *Noise* is the difference between runs of the same work. On MI300A, [AMD's page][amd] reports that release 7.2.3
# runs a transformer 23% slower than 6.4.3, and ResNet-50 3% faster, from one number each. AMD calls 1 to 2% noise, so
# the loss is real.
#
# [amd]: https://github.com/amd/HPCTrainingExamples/blob/f5f5263efa5313dd705a9a7a3eefd53d111887d3/MLExamples/Pytorch/common/PERFORMANCE_NOTES.md
#
# ## Predict
#
# One release runs five times on one node. Only noise is added.

# %%
# solution
wrong_guess = 20
# end solution
proflab.predict("13.a", wrong_guess, unit="%", what="pairs of equal runs that look different")

# %% [markdown]
# ## Capture
#
# Record the kernels, their launch calls, and ranges that mark the steps (the trainer's `--roctx`). At work, repeat
# this five times per release on one node, in separate folders. Alternate the releases, and draw at random which one
# runs first, because a growing load would always slow the same one.

# %% language="bash"
# exec 2>&1; rm -rf $FOLDER/own
# rocprofv3 --kernel-trace --hip-runtime-trace --marker-trace --output-format rocpd \
#     --output-directory $FOLDER/own/run1 --output-file gpu \
#     -- python -m cifar_train --max-steps 4 --roctx

# %% [markdown]
# The repeats here come from a [model](../docs/gpumodel.md) with added noise, an assumption: in each run, all kernels
# take longer by a random factor. Only two runs of the first release are left. Reading them takes ten seconds or more.

# %%
folders = {side: upgrades.unpack() / side for side in ("first", "second", "third", "other_node")}
runs = {side: [run_times(path) for path in repeats_in(folder)] for side, folder in folders.items()}
origin = runs["second"][0].origin
values = {side: [run.value for run in found] for side, found in runs.items()}
rows = [(side, len(one), np.mean(one), min(one), max(one)) for side, one in values.items()]
spread = pd.DataFrame(rows, columns=["release", "runs", "mean_ns", "min_ns", "max_ns"])
caption = f"Step time over the runs, with up to {100 * upgrades.NOISE:.0f}% of noise"
show_table(spread, "release runs mean_ms min_ms max_ms", caption, origin=origin)

# %% [markdown]
# On the H200, a head start of the loaders changed the mean step by a factor of two (lesson 08), so a single run per
# release proves nothing.
#
# ## First look: second release against third
#
# Use the *device's* steps, because the host runs ahead. A step lasts until the work of the next one starts. A run's
# time is the mean over all steps except the first.

# %%
path = repeats_in(folders["second"])[0]
steps = tidyprof.steps(tidyprof.read(path), "device")
show_figure(plots.step_times(steps, title="The first step and the others"))

# %% [markdown] tags=["given"]
# How far can you trust the ratio of two means? A *permutation test* (lesson 08) exchanges runs between the versions
# in every possible way. Each exchange gives a ratio: the total time of the runs that leave one version, divided by
# the total of those that replace them. `interval` returns the range of the middle 95% of these ratios.

# %%
ratio = np.mean(values["third"]) / np.mean(values["second"])
low, high = interval(values["third"], values["second"])
verdict = judge(runs["second"], runs["third"])
show_text(f"Times as long: {ratio:.2f}, with the interval {low:.2f} to {high:.2f}.")
show_text(f"By the gate: {verdict.ratio.low:.2f} to {verdict.ratio.high:.2f}.")

# %% [markdown]
# The whole interval is above 1, so the new release is slower beyond doubt.
#
# ## Trap: steps aren't repeats
#
# Why do you need five runs if one run has many steps? A warm GPU, a busy switch or an unlucky memory layout slows
# down all steps of a run. Compare runs of the *same* release, without the first three steps. The permutation interval
# is exact even for four values, if they are independent.

# %%
same = {
    path.name: tidyprof.steps(tidyprof.read(path), "device")["duration_ns"].to_numpy()[3:]
    for path in repeats_in(folders["second"])
}
low, high = interval(same["run1"], same["run2"])
show_text(f"run1 against run2, {len(same['run1'])} steps of each: {low:.4f} to {high:.4f}")

# %%
# 6 minutes: what percentage of all pairs of runs in `same` looks different, because the interval from their steps doesn't
# contain 1? `combinations(same.values(), 2)` returns the pairs. Compute `interval` for each.
q = exercise("13.1", same)
# solution
intervals = [interval(one, two) for one, two in combinations(same.values(), 2)]
answer = 100 * np.mean([not low <= 1 <= high for low, high in intervals])
# end solution
q.check(answer)

# %% [markdown] tags=["given"]
# Steps would have blamed an upgrade that didn't happen.
#
# ## The gate
#
# `tidyprof gate` does the same and names the kernels that changed. It reads traces and the block's
# `times_rank0.jsonl` (lesson 14).
#
# - The exit code is 1 if the slowdown exceeds `--fail-above` beyond doubt (default: 5%), so an automatic test can
#   fail.
# - If a load comes and goes, add `--paired`, which compares `run1` with `run1`, `run2` with `run2`, and so on.
# - [How many repeats](../docs/gate.md) you need depends on your noise. To see it, compare a release with itself.

# %% language="bash"
# python -m tidyprof gate $FOLDER/second $FOLDER/third --fail-above 5% || echo "exit code $?"

# %%
longest = verdict.kernels.iloc[0]
show_text(
    f"`{longest['full_name']}` takes {longest['difference_ns'] / 1e6:.1f} ms longer per step, and "
    f"the step takes {(verdict.new_value - verdict.base_value) / 1e6:.1f} ms longer."
)

# %% [markdown]
# One kernel is longer, with as many launches as before. The gate's table shortens its name. Developers search for the
# full name, which also names the library: `miopenSp3AsmConv` belongs to MIOpen.
#
# ## New and gone
#
# From the first release to the second, a step became much longer. Compare them in the same way:

# %%
exchanged = judge(runs["first"], runs["second"])
change = 100 * (exchanged.new_value / exchanged.base_value - 1)
show_text(
    f"**{exchanged.word}**: {exchanged.reason.rstrip('.')}. In the model: {change:.0f}% longer."
)
columns = "kernel base_calls new_calls base_ms new_ms difference_ms blame"
caption = "From the first to the second release"
show_table(exchanged.kernels, columns, caption, rows=6, origin=origin)

# %% [markdown]
# Two runs of a release give no interval, so record the missing repeats. The blame is valid even so, because calls are
# counted, not timed. Some convolutions changed from *implicit GEMM* (`igemm`, a matrix product) to *Winograd*, which
# needs fewer multiplications but gains nothing if the kernel is slow. Loss and gain are one change. With
# `torch.profiler` traces, `tidyprof table compare BEFORE AFTER --by operator` puts both into one row.

# %%
# 6 minutes: how many ms per step did the exchange of convolutions cost? Add up `difference_ns` of all kernels whose
# column `kernel` contains `conv`, ignoring case. Include the transposes that some convolutions need, named
# `batched_transpose` and `transpose_`. Which signs count?
q = exercise("13.2", exchanged.kernels)
# solution
belongs = exchanged.kernels["kernel"].str.contains("conv|batched_transpose|transpose_", case=False)
answer = exchanged.kernels.loc[belongs, "difference_ns"].sum() / 1e6
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: the other node
#
# The runs `other_node` use the *second* release. Nothing was upgraded, but the scheduler assigned a different node:

# %%
elsewhere = judge(runs["second"], runs["other_node"])
show_text(f"**{elsewhere.word}**: {elsewhere.reason}")
show_table(elsewhere.kernels, columns, "Blame on the other node", rows=4, origin=origin)

# %% [markdown]
# The verdict is the same, but the kernels differ. A library rarely slows down many kernels at once. A lower clock
# does, except for kernels that wait for memory.

# %%
# 5 minutes: write a function `suspects(kernels)` that returns how many kernels take more than 5% longer. Count only
# kernels with at least 0.05 ms per step before. The table has columns `base_ns` and `new_ns`. We call it on both
# comparisons, and on both in reverse.
q = exercise("13.3", {"third": verdict.kernels, "other_node": elsewhere.kernels})


# solution
def answer(kernels):
    large = kernels[kernels["base_ns"] >= 50_000]
    return (large["new_ns"] > 1.05 * large["base_ns"]).sum()


# end solution
q.check(answer)

# %% [markdown]
# During each run, log `amd-smi monitor -p -u -w 1 --csv --file smi.csv`. `gfx_clk` is the clock, `gfx` the activity,
# and `max_power` (since ROCm 7.0) the power limit, which a *power cap* lowers. Compare medians while the GPU works.
# Newer releases don't overwrite existing files.

# %%
logs = {side: pd.read_csv(upgrades.watched(side)) for side in ("second", "other_node")}
medians = {side: smi[smi["gfx"] > 50].median(numeric_only=True) for side, smi in logs.items()}
clocks = pd.DataFrame(medians).T.reset_index(names="run")
show_table(clocks, "run gfx_clk gfx max_power", "Medians: MHz, percent, W", origin=origin)

# %% [markdown]
# The step is longer by less than the clock is lower, because memory is as fast as before. Equal clocks and limits
# rule out the node. On a shared cluster, request one node by name, and run both versions in one job.
#
# ## Trap: the first steps, and files of an older release
#
# Before a convolution runs for the first time, MIOpen, AMD's library for neural networks, *finds* the fastest kernel
# for its shape. It looks in a database and tries out what is missing. PyTorch's TunableOp does the same for matrix
# products if you set `PYTORCH_TUNABLEOP_ENABLED=1`. An upgrade makes both forget:
#
# | who | remembers | where | after an upgrade |
# | --- | --- | --- | --- |
# | MIOpen | what it found for a shape | `~/.config/miopen`, or `MIOPEN_USER_DB_PATH` | [old files are ignored][find] |
# | MIOpen | tuned parameters of kernels (`miopen.udb`) | the same folder | [move or delete the old file][perf] |
# | MIOpen | compiled kernels | `~/.cache/miopen`, or `MIOPEN_CUSTOM_CACHE_DIR` | each version has a new folder |
# | TunableOp | the fastest matrix product per shape | `PYTORCH_TUNABLEOP_FILENAME` | [the file is refused][tune] |
#
# [find]: https://rocm.docs.amd.com/projects/MIOpen/en/latest/finddb.html
# [perf]: https://rocm.docs.amd.com/projects/MIOpen/en/latest/perfdatabase.html
# [tune]: https://docs.pytorch.org/docs/stable/cuda.tunable.html
#
# So discard the first run after an upgrade. ROCm 10.1 ships a smaller find database, so that run has to find more.
# Set the same `MIOPEN_FIND_MODE` for both releases, or you compare searches. To practice, the trainer's
# `--inject-fault no-warmup` measures and records from the first step.

# %% [markdown]
# A TunableOp file starts with *validators*: its versions and its GPU. PyTorch compares each with its own as a string,
# including the part after the hyphen. If one differs, [PyTorch ignores the whole file][refused] and logs `Failed
# validator` or `Unmatched validator`. When it tunes again, an older PyTorch overwrites the file ([AMD's
# article][tunable]). A newer one appends its lines below the old validators ([source][code]), so the file is refused
# at every start. Keep one file per release.
#
# [refused]: ../docs/known-issues.md#a-tunableop-file-of-another-release-is-ignored
# [tunable]: https://rocm.blogs.amd.com/artificial-intelligence/pytorch-tunableop/README.html
# [code]: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/cuda/tunable/Tunable.cpp
#
# > **Note:** Compare equal models, precisions, batches and devices. A rate by full batches is too high for the last,
# > smaller batch.

# %% [markdown]
# ## Report it
#
# Anyone must be able to reproduce it:
#
# 1. **One sentence**: which kernel, how much longer, on which GPU, from which release to which. The gate's
#    `report.md` has the kernel's full name and the times. Add the GPU and the releases.
# 2. **The environment of both releases**, from commands: `python -m torch.utils.collect_env`, `amd-smi version`,
#    `rocminfo`.
# 3. **The smallest script** that shows it: one layer, one shape, 20 lines, timed as in lesson 00. For a convolution,
#    set `MIOPEN_ENABLE_LOGGING_CMD=1`. MIOpen then prints each call as a command for its test program,
#    `MIOpenDriver`. [For support][log], AMD also asks for `MIOPEN_ENABLE_LOGGING=1` and `MIOPEN_LOG_LEVEL=6`.
# 4. **The evidence**: the gate's report with repeats and interval, and the clocks of both.
# 5. **What you ruled out**: first steps, another node, tuning files.
#
# First search the [known issues](../docs/known-issues.md) and these trackers:
#
# - [ROCm/rocm-libraries](https://github.com/ROCm/rocm-libraries/issues): MIOpen, rocBLAS, hipBLASLt
# - [ROCm/rocm-systems](https://github.com/ROCm/rocm-systems/issues): the profilers and AMD SMI
# - [pytorch/pytorch](https://github.com/pytorch/pytorch/issues): the operators that choose between libraries
#
# [log]: https://rocm.docs.amd.com/projects/MIOpen/en/latest/DebugAndLogging.html
#
# ## Decide
#
# What would you do next for each pair?

# %%
for pair, compared, next_step in (
    ("First to second", exchanged, "Record more of the first, and compare MIOpen's databases."),
    ("Second to third", verdict, "Report the kernel to MIOpen, with its MIOpenDriver line."),
    ("Second to other_node", elsewhere, "Report nothing, and compare again on one node."),
):
    show_text(f"{pair}: **{compared.word}**. {next_step}")
ends = [interval(*pair) for pair in combinations(same.values(), 2)]
different = [not low <= 1 <= high for low, high in ends]
proflab.reveal("13.a", 100 * np.mean(different), origin=origin)

# %% [markdown]
# ## Three takeaways
#
# - Compare at least five runs of each release, because the steps of one run aren't repeats.
# - One longer kernel points to a library, but many point to the node.
# - Discard the first run after an upgrade, because libraries search for their kernels again.

# %% [markdown]
# ## What this view can't show
#
# - Runs on one node don't show how other nodes behave: repeat over nodes.
# - The gate compares steps. It doesn't see startup, checkpoints or validation between steps.
# - A profiler costs host time per launch, which can hide or create a difference. Confirm it without a profiler, as
#   with the snippet below.
# - Only counters (lesson 05) or developers can tell why a kernel takes longer.

# %% [markdown]
# ## At work, without this course
#
# This script compares step times that your own training loop writes. Each file is one run:
#
# {snippet 13_slower.py}

# %% [markdown]
# This script collects the environment for the report. Run it once per release:
#
# {snippet 13_report.sh}

# %% [markdown]
# Next question: what is wrong with my own script?
