# %% [markdown]
# # Is this kernel near its ceiling?
#
# In the model, at batch 1,024, the kernels now fill the step (lesson 04). Could one of them be faster? That depends on
# the GPU, and on what the kernel asks of it: `rocprof-compute` (formerly Omniperf) lets the hardware count that.
#
# After this lesson you can
#
# - take a kernel from its counters to its point under the roof, and say which block it is near to;
# - tell a percentage with a wrong average or filter, and say what a faster kernel would bring.
#
# You need lessons 02 and 04. Commands hold from ROCm 7.0 to {newest rocm} (rocprof-compute 3.2.3 to
# {newest rocprof-compute}).

# %%
import numpy as np
import pandas as pd
import proflab
import tidyprof
from proflab import case, exercise, ledger, show_table, show_text
from proflab.parts.modeled_runs import modeled
from proflab.parts.roofline import show_roofline
from proflab.parts.steady_part import own_run

lesson = proflab.start("05")

# %%
lesson.recall()

# %%
lesson.findings()

# %% [markdown]
# ## The picture to keep in mind
#
# A kernel computes and moves data. The lower limit counts. In a *roofline* plot a kernel stands at its *arithmetic
# intensity*, what it computes for each byte that it moves, and at its FLOP/s. The roofs meet at the *knee*: left of it a
# kernel is called *memory-bound*, right of it *compute-bound*. Fill in the blanks as you go:
#
# {drawing 05_roofline}

# %% [markdown]
# {drawing 05_memory}
#
# | word | meaning |
# | --- | --- |
# | *work-item* | one thread of a kernel; 64 of them (32 on an MI400) run together as a *wavefront* |
# | *workgroup* | wavefronts that run on the same compute unit (CU) |
# | *VALU*, *MFMA* | units that do the same to 64 numbers, and those with the highest flat roof |
# | *F16* | numbers of half precision, two bytes each |
#
# ## Predict
#
# The forward batch normalization, fourth in AMD's table of lesson 04 and first in the model, brings its input to mean 0
# and variance 1.

# %%
# solution
intensity_guess, share_guess = 50, 40
# end solution
proflab.predict("05.a", intensity_guess, unit="FLOP/byte", what="intensity of batch normalization")
proflab.predict("05.b", share_guess, unit="%", what="the share of its roof that it reaches")

# %% [markdown]
# ## By hand first
#
# All follows from `min(peak, intensity * bandwidth)`. AMD's [data
# sheet](https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html) gives an MI300X's *peak* in half precision and
# its bandwidth. The *achievable* rate is what AMD's best matrix products
# [reach](https://rocm.blogs.amd.com/software-tools-optimization/measuring-max-achievable-flops-part2/): the clock falls
# under load.
#
# Count what *must* be done in the first normalization of the case: each input is read once, each output written once.
# We take eight operations per number.

# %%
PEAK, ACHIEVABLE, BANDWIDTH = 1307.4e12, 654e12, 5.3e12  # FLOP/s, FLOP/s, bytes per second

numbers = 1024 * 64 * 16 * 16  # images, channels, height, width
norm_flops, norm_bytes = 8 * numbers, 2 * 2 * numbers
norm_intensity = norm_flops / norm_bytes
norm_roof = min(PEAK, norm_intensity * BANDWIDTH)
layer = {"images": 1024, "channels": 128, "filters": 128, "size": 4, "filter_width": 3}
show_text(
    f"The normalization: {norm_flops / 1e6:.0f} MFLOP, {norm_bytes / 1e6:.0f} MB, "
    f"**{norm_intensity:.0f} FLOP per byte**, at least {1e6 * norm_flops / norm_roof:.0f} µs. "
    f"The knees are at {ACHIEVABLE / BANDWIDTH:.0f} (achievable) and {PEAK / BANDWIDTH:.0f} "
    "FLOP per byte (peak)."
)

# %% [markdown]
# A convolution slides `filters` filters over the images, each of `channels * filter_width**2` weights. Each number of
# the output takes a multiplication and an addition for each of them. The output has the input's `size`, in width and in
# height.

# %%
# 3 minutes: the intensity of this convolution, in FLOP per byte? Input and weights are read once, the output is written
# once. Use `layer["images"]`, `layer["channels"]` and so on.
q = exercise("05.1", layer)
# solution
inputs = layer["images"] * layer["channels"] * layer["size"] ** 2
outputs = layer["images"] * layer["filters"] * layer["size"] ** 2
weights = layer["filters"] * layer["channels"] * layer["filter_width"] ** 2
flops = 2 * outputs * layer["channels"] * layer["filter_width"] ** 2
answer = flops / (2 * (inputs + weights + outputs))
# end solution
q.check(answer)

# %% [markdown]
# ## Capture
#
# *Counters* in the hardware say what was really done. It counts few kinds of events at a time, so the tool **runs your
# program again for each group of counters**, each run a *replay pass*. Hence: one process, few steps, few counters.
#
# | option | why |
# | --- | --- |
# | `--name` | results go to `workloads/NAME/GPU`, such as `workloads/all/MI300X_A1`; for ranks `workloads/NAME/RANK` |
# | `-b 2 10` | count for blocks 2 (*Speed-of-Light*: rates and peaks) and 10 (instructions); by number since ROCm 7.0 |
# | `-k TEXT` | only kernels with this in their name; capitals matter; a regular expression in newer releases |
# | `--no-roof` | no benchmark of the GPU's roofs, which takes a while |
#
# On a real GPU run the program once before, for MIOpen's search. Without a GPU the course replays a *modeled*
# MI300X: operations and bytes come from shapes, and times from AMD's runs. The model has no caches, so their
# counters are missing.

# %% language="bash"
# mkdir -p $FOLDER; cd $FOLDER; rm -rf workloads; echo "Counting, up to a minute"
# rocprof-compute profile --name all --no-roof -b 2 10 -- $EXAMPLE --max-steps 2 2>&1

# %% [markdown]
# `analyze` prints tables; `--gui` shows them in a browser, `--tui` in the terminal (`--experimental` from ROCm 7.14
# on).
#
# ## Trap: an average of what?
#
# The names of convolutions begin with `igemm` (*implicit GEMM*: done as a matrix product). On your GPU MIOpen may
# choose others: take names from your own table.

# %%
mine = own_run(lesson.folder / "workloads/all")
launched = mine.events.query("kind == 'kernel'").astype({"name": str})  # without runtime's copies
for text in ("igemm", "BatchNorm", "igemm|BatchNorm", "batch_norm"):
    kept = launched[launched["name"].str.contains(text)]
    time = 100 * kept["duration_ns"].sum() / launched["duration_ns"].sum()
    show_text(f"`{text}`: {len(kept):,} of {len(launched):,} dispatches, {time:.0f} % of the time.")

# %% [markdown]
# List names first (`analyze --list-stats`, or as above). `-b 2.1.4` asks for block 2, table 1, row 4; two folders make
# a *baseline comparison*.

# %% language="bash"
# cd $FOLDER; echo "Counting two kinds of kernels, up to a minute"
# rocprof-compute profile --name two --no-roof -b 2 10 -k igemm BatchNorm -- $EXAMPLE --max-steps 2 &>log
# rocprof-compute analyze -p workloads/all/* -p workloads/two/* -b 2.1.4 --max-stat-num 2 2>&1

# %%
two = own_run(lesson.folder / "workloads/two")
for way in ("dispatches", "totals"):
    tables = [tidyprof.speed_of_light(run, average=way).set_index("metric") for run in (mine, two)]
    shares = [table.at["MFMA FLOPs (F16)", "percent"] for table in tables]
    show_text(f"F16 share by {way}: all {shares[0]:.2f} % of the peak, both {shares[1]:.2f} %.")

# %% [markdown]
# None is wrong. Up to release 3.6 the tool averages over *dispatches*, so that a
# copy of a few microseconds weighs as much as the longest convolution. From 3.7 (ROCm 7.14) on it divides *totals*. The
# repair: one kernel at a time, and the filter beside every number.

# %% language="bash"
# cd $FOLDER; echo "Counting one kernel"
# rocprof-compute profile --name norm --no-roof -b 2 10 -k BatchNormFwd -- $EXAMPLE --max-steps 2 &>log
# rocprof-compute analyze -p workloads/norm/* -b 2.1.0 2.1.8 --max-stat-num 1 2>&1

# %% [markdown]
# The peak of `VALU FLOPs` is one *without* packed instructions, which do two numbers at once: with them the roof of
# FP32 is twice as high, and so it is below.
#
# ## One kernel, from its counters to its point
#
# A vector instruction is one operation for each of the 64 work-items, a *fused multiply-add* (`FMA`) two. One count of
# `MOPS` stands for 512 operations of the matrix units. `EA` is the traffic of the *fabric*, which connects the last
# cache to the memory: a read brings 64 bytes (128 if a `BUBBLE`, or 32), a write 32 or 64. These are the counters of
# MI300A and MI300X (architecture `gfx942`); an MI200's begin with `TCC_EA_`, and know no `BUBBLE`.

# %%
norm = own_run(lesson.folder / "workloads/norm")
first = norm.counters.drop_duplicates(["dispatch_id", "name"])  # some are counted in several runs
c = first.groupby("name", observed=True)["value"].sum()
point = tidyprof.roofline_points(norm).iloc[0]
flops = 512 * c.filter(regex="MFMA_MOPS_B?F").sum()
flops += 64 * c.filter(regex="VALU_(ADD|MUL|TRANS)_F").sum()
flops += 128 * c.filter(regex="VALU_FMA_F").sum()
if "TCC_BUBBLE_sum" in c:
    read = 64 * c["TCC_EA0_RDREQ_sum"] + 64 * c["TCC_BUBBLE_sum"] - 32 * c["TCC_EA0_RDREQ_32B_sum"]
    written = 32 * c["TCC_EA0_WRREQ_sum"] + 32 * c["TCC_EA0_WRREQ_64B_sum"]
    assert np.allclose([flops, read + written], [point.flops, point.hbm_bytes])
limits = tidyprof.roofline_ceilings(norm).set_index("name")["value"]
show_text(
    f"`{point.short_name}`: {point.calls} calls, {point.duration_ns / 1e6:.2f} ms, "
    f"{point.flops / 1e9:.2f} GFLOP, {point.hbm_bytes / 1e9:.2f} GB. It uses vector units: the "
    f"roofs are {limits['vector fp32'] / 1e12:.0f} TFLOP/s and {limits['HBM'] / 1e12:.2f} TB/s."
)

# %%
# 3 minutes: how many percent of the lower of its two roofs does this kernel reach, over all its calls? `point` has
# `flops`, `hbm_bytes` and `duration_ns`, `limits` has the roofs "vector fp32" and "HBM".
q = exercise("05.2", norm)
# solution
roof = min(limits["vector fp32"], point.flops / point.hbm_bytes * limits["HBM"])
answer = 100 * point.flops / (point.duration_ns / 1e9) / roof
# end solution
q.check(answer)

# %% [markdown] tags=["given"]
# This very kernel is the model's worst: 12.97 µs on average in a step of 256 images, where AMD recorded 9.39 ([what the
# model gets wrong](../docs/gpumodel.md)). By AMD's time it reaches a third more of its roof.
#
# The point, the largest convolution, and ten of AMD's, recorded with 256 images:

# %%
layers = pd.read_csv(lesson.file("published_layers.csv"), comment="#")
its_roof = (layers["flop_per_byte"] * BANDWIDTH).clip(upper=ACHIEVABLE)
layers["rate"] = layers["pct_of_roof"] / 100 * its_roof
points = tidyprof.roofline_points(mine)
points = points[points["name"].isin(launched["name"])]
convolution = points[points["main_type"].str.startswith("matrix", na=False)].iloc[0]
shown = {"the normalization": point, "largest convolution": convolution}
for name, row in shown.items():
    share = 100 * row.flops_per_second / min(PEAK, row.hbm_intensity * BANDWIDTH)
    show_text(f"{name}: {row.hbm_intensity:.3g} FLOP per byte, {share:.1f} % of its roof.")
show_text(f"AMD's ten convolutions, recorded: {layers['pct_of_roof'].mean():.1f} % on average.")

# %%
origin = f"{mine.origin}; hollow: recorded, MI300X, published by AMD in HPCTrainingExamples"
recorded = ("AMD's convolutions, recorded", layers["flop_per_byte"], layers["rate"])
placed = {name: (row.hbm_intensity, row.flops_per_second) for name, row in shown.items()}
roofs = {"peak": PEAK, "achievable": ACHIEVABLE}
title = "Far below both roofs, with either knee"
show_roofline(placed, roofs, BANDWIDTH, title, origin, recorded)

# %% [markdown]
# So far below, neither roof holds you back. What does? A workgroup runs on one compute unit, so a launch with few
# of them leaves most of the GPU empty. `grid` is the number of work-items, here in AMD's recording of this kernel:

# %%
there = proflab.recording("torch-mi300-ddp-4ranks-fused")
recorded = tidyprof.read(there.path, origin=there.origin).events.astype({"name": str})
place = ["rank", "external_id"]
asked = recorded[recorded["name"] == "aten::miopen_batch_norm"].set_index(place)["input_shapes"]
own = recorded[recorded["name"] == "MIOpenBatchNormFwdTrainSpatial"]
own = own.drop(columns="input_shapes").join(asked.astype(str), on=place)
sizes = own[["grid", "block"]].astype(str).apply(lambda text: text.str.extract(r"(\d+)")[0])
own["workgroups"] = sizes["grid"].astype(int) // sizes["block"].astype(int)
groups = own[own["input_shapes"].str.contains(", 8, 8]", regex=False)].groupby("workgroups")
groups = groups["duration_ns"].agg(calls="size", mean_ns="mean").reset_index()
moved = 2 * 2 * 256 * 8 * 8 * groups["workgroups"]  # bytes: a workgroup for each channel
groups["hbm_percent"] = 100 * moved / groups["mean_ns"] * 1e9 / BANDWIDTH
show_table(groups, "workgroups calls mean_us hbm_percent", "Images of 8 x 8", origin=there.origin)
few, many = groups.iloc[0], groups.iloc[-1]
show_text(
    f"Each workgroup does the same: {many.workgroups / few.workgroups:.0f} times the channels take "
    f"{many.mean_ns / few.mean_ns:.2f} times the time. At the top "
    f"{few.workgroups:.0f} compute units have work. The library chose so."
)

# %% [markdown]
# ## Which block is it near to?
#
# The second drawing has the way of a number from HBM through *L2* and *vL1D* (also called L1), and *LDS*, which a
# workgroup shares. The table *Speed-of-Light* (2.1) compares each with its peak.
#
# Here are four small kernels, recorded on an MI300X. Two copy the same numbers:
# once neighboring work-items read neighboring numbers (*coalesced*), once numbers far apart (with a *stride*). Two
# transpose a matrix through LDS. LDS of an MI300X has 32 *banks* (an MI350's has 64): numbers 0 and 32 lie in bank 0,
# number 1 in bank 1.
# Work-items that want different numbers of one bank at once are in *conflict*, and wait for each other.

# %%
copied = proflab.recording("rocprof-compute-mi300x-coalescing")
turned = proflab.recording("rocprof-compute-mi300x-bank-conflict")
kinds = {"coalesced": (copied, "coalesced"), "stride": (copied, "uncoalesced")}
kinds |= {"conflict": (turned, "conflict"), "padded": (turned, "no_conflict")}
homes = {k: there.path / f"{kind}_profile" / "MI300X_A1" for k, (there, kind) in kinds.items()}
raw = {name: pd.read_csv(home / "pmc_perf.csv") for name, home in homes.items()}
raw = pd.concat(raw).droplevel(1).copy()
raw = raw.assign(ns=raw["End_Timestamp"] - raw["Start_Timestamp"]).select_dtypes("number")
table = "analyze/2.1_Speed-of-Light.csv"
percent = {name: pd.read_csv(home / table, index_col="Metric") for name, home in homes.items()}
percent = pd.DataFrame({name: table["Pct of Peak"] for name, table in percent.items()})
blocks = pd.read_csv(lesson.file("blocks.csv"), comment="#", index_col="metric")["block"]
nearest = percent.join(blocks, how="inner").groupby("block", sort=False).max().reset_index()
show_table(nearest, f"block {' '.join(homes)}", "Highest percent of peak", origin=copied.origin)

# %% [markdown]
# `-b 3` draws the traffic between these levels, a *memory chart*. The stride brings the fabric higher: good news? Count
# bytes against what the work needs.

# %%
# 3 minutes: each work-item copies one number of four bytes: it reads it, and writes it. For each byte that has to be
# moved, how many does the kernel `stride` move through the fabric? `raw` has a row for each kernel, with its
# `Grid_Size` and the counters of the section before (`raw[...]` for `c[...]`).
q = exercise("05.3", raw)
# solution
read = 64 * (raw["TCC_EA0_RDREQ_sum"] + raw["TCC_BUBBLE_sum"]) - 32 * raw["TCC_EA0_RDREQ_32B_sum"]
written = 32 * raw["TCC_EA0_WRREQ_sum"] + 32 * raw["TCC_EA0_WRREQ_64B_sum"]
answer = ((read + written) / (2 * 4 * raw["Grid_Size"]))["stride"]
# end solution
q.check(answer)

# %% [markdown]
# A higher bandwidth is no success.
#
# The transposes: in the table LDS looks idle, since its row counts the bytes that were delivered, and not the
# clocks that were lost. `SQ_LDS_IDX_ACTIVE` counts, over all compute units, the clocks in which LDS is busy, and
# `SQ_LDS_BANK_CONFLICT` those that a conflict cost. `padded` takes room for one number more in each row of its tile,
# so that the numbers of a column fall into different banks. Is it faster?

# %%
machine = pd.read_csv(homes["conflict"] / "sysinfo.csv").iloc[0]
kernel, change = raw.loc["conflict"], raw.loc["padded"] / raw.loc["conflict"]
clocks = kernel["GRBM_GUI_ACTIVE"] / machine.num_xcd  # each of the eight chiplets counts them
busy = kernel["SQ_LDS_IDX_ACTIVE"] / (clocks * machine.cu_per_gpu)
lost = kernel["SQ_LDS_BANK_CONFLICT"] / kernel["SQ_LDS_IDX_ACTIVE"]
show_text(
    f"In `conflict` LDS is busy for {100 * busy:.0f} % of the clocks, {100 * lost:.0f} % of that "
    f"are conflicts. `padded` needs {change['SQ_LDS_IDX_ACTIVE']:.2f} times these, "
    f"{change['ns']:.2f} times the time in one run, {change['GRBM_GUI_ACTIVE']:.2f} times all "
    "clocks in another."
)

# %% [markdown]
# Launches differ by more: **no gain is proven**.
#
# Which percentages to trust: [by which peak, and from which
# run](../docs/more-of-rocprofv3.md#percentages-of-rocprof-compute).
#
# ## Trap: a cure by its name
#
# MIOpen's transposes (`batched_transpose`) turn the case's images to the layout that its convolutions want, and back.
# With `--channels-last` PyTorch keeps that layout from the start. The model plays both:

# %%
options = case.options("05")
plain, nhwc = modeled(options), modeled(f"{options} --channels-last")
kernels = pd.read_csv(lesson.file("modeled_kernels.csv"), skiprows=3)
before, after = (kernels[kernels["layout"] == layout] for layout in ("plain", "channels last"))
totals = [table.set_index("short_name")["total_ns"].astype(float) for table in (before, after)]
grown = totals[1].sub(totals[0], fill_value=0).sort_values()
gone = before[before["name"].str.contains("batched_transpose")]["percent"].sum()
refused = ledger.add(
    "No transposes, faster", plain.seconds, nhwc.seconds, change="channels last", origin=plain,
)  # fmt: skip
show_text(
    f"The transposes, {gone:.0f} % of the kernel time, are gone. In three steps kernels that "
    f"shrank save {-grown.clip(upper=0).sum() / 1e6:.0f} ms, those that grew cost "
    f"{grown.clip(lower=0).sum() / 1e6:.0f}, `{grown.index[-1]}` above all."
)

# %% [markdown]
# Yet an image takes no less. In this layout PyTorch does the normalization with its own kernels, not MIOpen's. A step
# is a sum: look at all that changed. On a real GPU:

# %%
steady = case.measured().query("part == 'steady' and not profiled").groupby("run")["duration_ns"]
there = steady.agg(["median", "mean"]).loc[["large", "channels"]] / 1e6
show_text(
    f"Median step {there.at['large', 'median']:.0f} ms, with channels last "
    f"{there.at['channels', 'median']:.0f}; mean {there.at['large', 'mean']:.0f} and "
    f"{there.at['channels', 'mean']:.0f} (recorded: NVIDIA H200, one run each)."
)

# %% [markdown]
# Median and mean disagree: nothing is proven.
#
# ## Decide
#
# What could a perfect kernel bring? If a part of the time takes none, the rest stays: the gain is at most
# `1 / (1 - part)` (*Amdahl's law*). Compare the first kernel of AMD's table with all that mainly carry numbers.

# %%
table = lesson.file("../04_rocprofv3_kernel_stats/amd_kernel_tables.csv")
amd = pd.read_csv(table, comment="#").query("run == 'one GPU'")
carriers = amd[~amd["name"].str.startswith("igemm")]["percent"]
one, five = (1 / (1 - part / 100) for part in (carriers.max(), carriers.sum()))
reached_share = 100 * point.hbm_bytes / point.duration_ns * 1e9 / limits["HBM"]
proflab.reveal("05.a", norm_intensity, "by hand")
proflab.reveal("05.b", reached_share, norm)

# %% [markdown]
# So it is a sum of many. Which part of the step launches them: forward, backward, optimizer? Counters know no ranges, a
# table of kernels knows no calls. A trace has all three, in a table each: ask across them.

# %%
lesson.conclude(
    f"If the first kernel of AMD's table took no time, all kernels together would be {one:.2f} "
    f"times as fast; if its five that mainly move data took none, {five:.2f} times. Forward "
    "batch normalization reaches "
    f"{few.hbm_percent:.0f} to {many.hbm_percent:.0f} % of the memory's roof in AMD's recording, "
    f"in the model {reached_share:.0f} %.",
    rules_out="one bad kernel",
    because="A sum of many: which part of the step launches them? No counter tells.",
    next="06" if five > 1.2 * one else "08",
    origin=f"recorded: AMD Instinct MI300 series, amd/HPCTrainingExamples; {mine.origin}",
    changes=[refused],
)

# %% [markdown]
# ## What this view cannot see
#
# It sees kernels one at a time: no host, no range, no queue, no collectives. Times under the counters are none of the
# training, and *Wavefront Occupancy*, how many wavefronts the GPU holds at once, is not reliable for short kernels. An
# experimental option (`--torch-trace`, since ROCm 7.12) notes the operator of each kernel.
#
# ## Known issues
#
# A collective waits for ever: profiled runs repeat, so one process, no other rank. "folder is not empty" from ROCm 10.0
# on: add `--overwrite`. More: the [list of known issues](../docs/known-issues.md#rocprof-compute).

# %% [markdown]
# ## At work, without this course
#
# Points from your own counts or a folder of `rocprof-compute profile`, roofs (data sheet or `roofline.csv`), a picture:
#
# {snippet 05_roofline.py}

# %% [markdown]
# Next question: which part of the step launches them? Can I ask my own question?
