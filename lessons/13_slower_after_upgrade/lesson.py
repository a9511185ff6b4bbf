# %% [markdown]
# # Slower after the upgrade: is it true?
#
# After an upgrade of ROCm, PyTorch or a container, a user reports that training got slower.
#
# After this lesson, you can:
#
# - tell a real slowdown from noise, manually and with `tidyprof gate`;
# - identify the kernels that take longer, are new or are gone;
# - rule out other causes, and write a report that developers can act on.
#
# **Before you start:** complete lessons 01, 02 and 04. The capture command works with ROCm 7.0 to {newest rocm}. You
# don't need a GPU, because all data is modeled.

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
# | a library kernel got slower | one kernel is *longer*, with as many calls as before | its time per call |
# | a library chose other kernels | some kernels are *new*, others *gone* | MIOpen and TunableOp files |
# | the first steps are included | the mean grew, but the median didn't | the same comparison without them |
# | another node, a lower clock | many kernels are longer by a similar factor | the clock frequency in a monitor |
#
# *Noise* is the difference between runs of the same work. On an MI300A, [AMD reports][amd] that ROCm 7.2.3 runs a
# transformer 23% slower than ROCm 6.4.3, and ResNet-50 3% faster, based on one number per release. AMD considers 1 to
# 2% to be noise.
#
# [amd]: https://github.com/amd/HPCTrainingExamples/blob/f5f5263efa5313dd705a9a7a3eefd53d111887d3/MLExamples/Pytorch/common/PERFORMANCE_NOTES.md
#
# ## Predict
#
# One release runs five times on one node, so the runs differ only by noise.

# %%
# solution
wrong_guess = 20
# end solution
proflab.predict(
    "13.a", wrong_guess, unit="%", what="pairs of equal runs that look different"
)

# %% [markdown]
# ## Capture
#
# Record kernels, launch calls, and ranges that mark steps (the trainer's `--roctx`). At work, repeat this five times
# per release on one node, in separate folders. Alternate the releases, and choose at random which runs first.
# Otherwise, a growing load always slows down the same release.

# %% language="bash"
# exec 2>&1; rm -rf $FOLDER/own
# rocprofv3 --kernel-trace --hip-runtime-trace --marker-trace --output-format rocpd \
#     --output-directory $FOLDER/own/run1 --output-file gpu \
#     -- python -m cifar_train --max-steps 4 --roctx

# %% [markdown]
# The runs in this lesson come from a [GPU model](../docs/contributors/gpumodel.md). We assume that noise makes all kernels of a run
# longer by one random factor. The first release has only two runs. Reading all runs takes ten seconds or more.

# %%
folders = {
    side: upgrades.unpack() / side
    for side in ("first", "second", "third", "other_node")
}
runs = {
    side: [run_times(path) for path in repeats_in(folder)]
    for side, folder in folders.items()
}
origin = runs["second"][0].origin
values = {side: [run.value for run in found] for side, found in runs.items()}
rows = [
    (side, len(one), np.mean(one), min(one), max(one)) for side, one in values.items()
]
spread = pd.DataFrame(rows, columns=["release", "runs", "mean_ns", "min_ns", "max_ns"])
caption = f"Step time over the runs, with up to {100 * upgrades.NOISE:.0f}% noise"
show_table(spread, "release runs mean_ms min_ms max_ms", caption, origin=origin)

# %% [markdown]
# On the H200, a head start of the loaders changed the mean step by a factor of two (lesson 08), so a single run per
# release proves nothing.
#
# ## First look: the second versus the third release
#
# Time the steps on the *device*, because the host runs ahead. A device step lasts until the work of the next step
# starts. A run's time is the mean over all steps except the first.

# %%
path = repeats_in(folders["second"])[0]
steps = tidyprof.steps(tidyprof.read(path), "device")
first_ms = steps["duration_ns"].iloc[0] / 1e6
show_figure(
    plots.step_times(steps, title="The first step and the others"),
    (f"{first_ms:.0f} ms of warm-up", (0.33, 120), (0.35, 0.75)),
)

# %% [markdown] tags=["given"]
# How far can you trust the ratio of two means? A *permutation test* (lesson 08) exchanges runs between the versions in
# every possible way. For each exchange, it divides the total time of the runs that leave one version by the total time
# of the runs that replace them. `interval` returns the range of the middle 95% of these ratios.

# %%
ratio = np.mean(values["third"]) / np.mean(values["second"])
low, high = interval(values["third"], values["second"])
verdict = judge(runs["second"], runs["third"])
show_text(f"Steps take {ratio:.2f} times as long (interval: {low:.2f} to {high:.2f}).")
show_text(f"The gate's interval: {verdict.ratio.low:.2f} to {verdict.ratio.high:.2f}.")

# %% [markdown]
# The whole interval is above 1, so by this rule, the new release is slower.
#
# ## Trap: steps aren't repeats
#
# Why do you need five runs if one run has many steps? A warm GPU, a busy switch or an unlucky memory layout slows down
# all steps of a run. To see this, compare runs of the *same* release, without the first three steps. If values are
# independent, their permutation interval is exact, even for four values.

# %%
same = {
    path.name: tidyprof.steps(tidyprof.read(path), "device")["duration_ns"].to_numpy()[
        3:
    ]
    for path in repeats_in(folders["second"])
}
low, high = interval(same["run1"], same["run2"])
show_text(f"run1 versus run2, {len(same['run1'])} steps each: {low:.4f} to {high:.4f}")

# %%
# 6 minutes: for what percentage of all pairs of runs in `same` does the interval computed from their steps not contain
# 1, so that the two runs look different? Compute `interval` for each pair that `combinations(same.values(), 2)`
# returns.
q = exercise("13.1", same)
# solution
intervals = [interval(one, two) for one, two in combinations(same.values(), 2)]
answer = 100 * np.mean([not low <= 1 <= high for low, high in intervals])
# end solution
q.check(answer)

# %% [markdown] tags=["given"]
# Using steps as repeats would blame an upgrade that never happened.
#
# ## The gate
#
# `tidyprof gate` also compares runs, and names the kernels that changed. It reads traces and the `times_rank0.jsonl`
# files of `StepTimer` (lesson 14).
#
# - The exit code is 1 if the slowdown exceeds `--fail-above` beyond doubt (default: 5%), so an automated test can fail.
# - If the machine's load varies, add `--paired`, which compares `run1` with `run1`, `run2` with `run2`, and so on.
# - [The number of repeats](../docs/gate.md) that you need depends on your noise. To see it, compare a release with
#   itself.

# %% language="bash"
# python -m tidyprof gate $FOLDER/second $FOLDER/third --fail-above 5% ||
#     echo "exit code $?"

# %%
longest = verdict.kernels.iloc[0]
show_text(
    f"`{longest['full_name']}` takes {longest['difference_ns'] / 1e6:.1f} ms longer "
    "per step, and the step takes "
    f"{(verdict.new_value - verdict.base_value) / 1e6:.1f} ms longer."
)

# %% [markdown]
# One kernel takes longer, although it is launched as often as before. The gate's table shortens kernel names. Report
# the full name, which also shows the library: `miopenSp3AsmConv` is from MIOpen.
#
# ## New and gone
#
# From the first release to the second, a step became much longer:

# %%
exchanged = judge(runs["first"], runs["second"])
change = 100 * (exchanged.new_value / exchanged.base_value - 1)
show_text(
    f"**{exchanged.word}**: {exchanged.reason.rstrip('.')}. Modeled step: "
    f"{change:.0f}% longer."
)
columns = "kernel base_calls new_calls base_ms new_ms difference_ms blame"
caption = "From the first to the second release"
show_table(exchanged.kernels, columns, caption, rows=6, origin=origin)

# %% [markdown]
# Two runs are too few for an interval, so record the missing runs. Even so, the `blame` column is valid, because it
# depends on call counts, not on times. Some convolutions changed from *implicit GEMM* (`igemm`, a matrix product) to
# *Winograd*, which needs fewer multiplications but gains nothing if the kernel is slow.

# %%
# 6 minutes: how many ms per step did the change of convolution kernels cost? Add up `difference_ns` of all rows whose
# `kernel` column contains `conv`, ignoring case. Include the transposes that some convolutions need
# (`batched_transpose` and `transpose_`). Which signs count?
q = exercise("13.2", exchanged.kernels)
# solution
belongs = exchanged.kernels["kernel"].str.contains(
    "conv|batched_transpose|transpose_", case=False
)
answer = exchanged.kernels.loc[belongs, "difference_ns"].sum() / 1e6
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: the other node
#
# The `other_node` runs use the *second* release. Nothing was upgraded, but the scheduler assigned a different node:

# %%
elsewhere = judge(runs["second"], runs["other_node"])
show_text(f"**{elsewhere.word}**: {elsewhere.reason}")
show_table(
    elsewhere.kernels,
    columns,
    "Kernel changes on the other node",
    rows=4,
    origin=origin,
)

# %% [markdown]
# The verdict is the same, but other kernels changed. A library rarely slows down many kernels at once. A lower clock
# frequency slows down all kernels except those that wait for memory.

# %%
# 5 minutes: write a function `suspects(kernels)` that returns how many kernels take more than 5% longer. Count only
# kernels that took at least 0.05 ms per step before. The `kernels` table has columns `base_ns` and `new_ns`. The check
# calls your function on both comparisons and on other tables.
q = exercise("13.3", {"third": verdict.kernels, "other_node": elsewhere.kernels})


# solution
def answer(kernels):
    large = kernels[kernels["base_ns"] >= 50_000]
    return (large["new_ns"] > 1.05 * large["base_ns"]).sum()


# end solution
q.check(answer)

# %% [markdown]
# During each run, log `amd-smi monitor -p -u -w 1 --csv --file smi.csv`. `gfx_clk` is the clock frequency, `gfx` is the
# GPU activity, and `max_power` (since ROCm 7.0) is the power limit, which a *power cap* lowers. Compare medians from
# periods when the GPU is working. Newer `amd-smi` releases don't overwrite existing files.

# %%
logs = {side: pd.read_csv(upgrades.watched(side)) for side in ("second", "other_node")}
medians = {
    side: smi[smi["gfx"] > 50].median(numeric_only=True) for side, smi in logs.items()
}
clocks = pd.DataFrame(medians).T.reset_index(names="run")
show_table(
    clocks, "run gfx_clk gfx max_power", "Medians: MHz, percent, W", origin=origin
)

# %% [markdown]
# The step time grows by a smaller factor than the clock frequency drops, because memory is as fast as before. Equal
# clock frequencies and power limits rule out the node. On a shared cluster, run both versions in one job on one node.
#
# ## Trap: first steps, and files from an older release
#
# Before a convolution runs for the first time, MIOpen, AMD's library for neural networks, *finds* the fastest kernel
# for its shape. MIOpen looks in a database, and times several kernels if a shape is missing. PyTorch's TunableOp does
# the same for matrix products if you set `PYTORCH_TUNABLEOP_ENABLED=1`. After an upgrade, both have to search again:
#
# | library | what it stores | where | after an upgrade |
# | --- | --- | --- | --- |
# | MIOpen | fastest kernel per shape | `~/.config/miopen`, or `MIOPEN_USER_DB_PATH` | [old files are ignored][find] |
# | MIOpen | tuned kernel parameters (`miopen.udb`) | the same folder | [move or delete the old file][perf] |
# | MIOpen | compiled kernels | `~/.cache/miopen`, or `MIOPEN_CUSTOM_CACHE_DIR` | each version has a new folder |
# | TunableOp | the fastest matrix product per shape | `PYTORCH_TUNABLEOP_FILENAME` | [the file is refused][tune] |
#
# [find]: https://rocm.docs.amd.com/projects/MIOpen/en/latest/finddb.html
# [perf]: https://rocm.docs.amd.com/projects/MIOpen/en/latest/perfdatabase.html
# [tune]: https://docs.pytorch.org/docs/stable/cuda.tunable.html
#
# Therefore, discard the first run after an upgrade. ROCm 10.1 ships a smaller find database, so that run searches for
# more kernels. Set the same `MIOPEN_FIND_MODE` for both releases, or you compare search modes. To practice, use the
# trainer's `--inject-fault no-warmup`, which records the first steps.

# %% [markdown]
# A TunableOp file starts with *validators*, which name the software versions and the GPU. PyTorch compares each
# validator string with its own, including the part after the hyphen. If one differs, [PyTorch ignores the whole
# file][refused] and logs `Failed validator` or `Unmatched validator`. After tuning again, an older PyTorch overwrites
# the file ([AMD's article][tunable]). A newer PyTorch appends lines below the old validators ([source][code]), so it
# refuses the file at every start. Keep one file per release.
#
# [refused]: ../docs/known-issues.md#torch-ignores-a-tunableop-file-from-another-release
# [tunable]: https://rocm.blogs.amd.com/artificial-intelligence/pytorch-tunableop/README.html
# [code]: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/cuda/tunable/Tunable.cpp
#
# > **Note:** Compare runs with the same network, precision, batch size and device. If the last batch is smaller, a rate
# > that assumes full batches is too high.

# %% [markdown]
# ## Report it
#
# Anyone must be able to reproduce your result:
#
# 1. **One sentence**: which kernel got slower, by how much, on which GPU, and between which releases. The gate's
#    `report.md` contains the kernel's full name and times.
# 2. **The environment of both releases**, from `python -m torch.utils.collect_env`, `amd-smi version` and `rocminfo`.
# 3. **The smallest script** that shows the slowdown: one layer, one shape, 20 lines, timed as in lesson 00. For a
#    convolution, set `MIOPEN_ENABLE_LOGGING_CMD=1`. MIOpen then prints each call as a command for its test program,
#    `MIOpenDriver`. [For support][log], AMD also asks for `MIOPEN_ENABLE_LOGGING=1` and `MIOPEN_LOG_LEVEL=6`.
# 4. **The evidence**: the gate's report with repeats and interval, and the clock frequencies of both runs.
# 5. **What you ruled out**: first steps, another node and tuning files.
#
# First, search the [known issues](../docs/known-issues.md) and these trackers:
#
# - [ROCm/rocm-libraries](https://github.com/ROCm/rocm-libraries/issues): MIOpen, rocBLAS, hipBLASLt
# - [ROCm/rocm-systems](https://github.com/ROCm/rocm-systems/issues): the profilers and AMD SMI
# - [pytorch/pytorch](https://github.com/pytorch/pytorch/issues): the operators that choose between libraries
#
# [log]: https://rocm.docs.amd.com/projects/MIOpen/en/latest/DebugAndLogging.html
#
# ## Decide

# %%
for pair, compared, next_step in (
    ("First to second", exchanged, "Record more runs, and compare MIOpen's databases."),
    (
        "Second to third",
        verdict,
        "Report the kernel to MIOpen, with its MIOpenDriver line.",
    ),
    (
        "Second to other_node",
        elsewhere,
        "Report nothing, and compare again on one node.",
    ),
):
    show_text(f"{pair}: **{compared.word}**. {next_step}")
ends = [interval(*pair) for pair in combinations(same.values(), 2)]
different = [not low <= 1 <= high for low, high in ends]
proflab.reveal("13.a", 100 * np.mean(different), origin=origin)

# %% [markdown]
# ## Three takeaways
#
# - Compare at least five runs of each release, because the steps of one run aren't repeats.
# - One slower kernel points to a library, but many point to the node.
# - Discard the first run after an upgrade, because libraries search for their kernels again.

# %% [markdown]
# ## What this view can't show
#
# - Runs on one node don't show how other nodes behave, so repeat the comparison on several nodes.
# - The gate compares only steps, not startup, checkpoints or validation.
# - A profiler adds host time to each launch, which can hide or create a difference. Confirm any difference without a
#   profiler, for example with the snippet below.
# - To learn why a kernel takes longer, ask its developers or use counters (lesson 05).

# %% [markdown]
# ## At work, without this course
#
# This script compares step times that your own training loop writes, one file per run:
#
# {snippet 13_slower.py}

# %% [markdown]
# This script collects the environment for the report. Run it once per release:
#
# {snippet 13_report.sh}

# %% [markdown]
# Next question: what is wrong with my own script?
