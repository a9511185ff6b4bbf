# %% [markdown]
# # Is this kernel near its ceiling?
#
# Lesson 04 gave the GPU more work per launch. Therefore, `$EXAMPLE` now uses `--num-workers 8 --batch-size 1024
# --fused-optimizer`, and kernels fill the modeled steps. Could a single kernel be faster? The evidence again comes from
# an MI300X: AMD's recorded kernels, and modeled runs for the tool's output.
#
# `rocprof-compute` (formerly Omniperf) uses hardware counters to show what a kernel does.
#
# After this lesson, you can:
#
# - use counters to place a kernel below its roof and find the hardware block closest to its peak;
# - recognize a percentage with the wrong average or filter, and calculate the gain from a faster kernel.
#
# **Before you start:** complete lessons 02 and 04. The commands work with ROCm 7.0 through {newest rocm}
# (rocprof-compute 3.2.3 through {newest rocprof-compute}).

# %%
import pandas as pd
import proflab
import tidyprof
from proflab import exercise, show_table, show_text
from proflab.parts.roofline import show_roofline
from proflab.parts.steady_part import own_run

lesson = proflab.start("05")
lesson.findings()

# %%
lesson.recall()

# %% [markdown] slide="A kernel is limited by its arithmetic or by the memory. The knee separates the two."
# ## The picture to keep in mind
#
# A kernel computes and moves data, and the slower of the two limits it. In a *roofline* plot, the horizontal axis is
# the *arithmetic intensity*: operations per byte moved. The roofs meet at the *knee*. To its left, a kernel is
# *memory-bound*, and to its right, *compute-bound*. Fill in the blanks as you go:
#
# {drawing 05_roofline}

# %% [markdown] slide="Data passes several levels of memory. Each level has its own bandwidth."
# {drawing 05_memory}
#
# | word | meaning |
# | --- | --- |
# | *work-item* | one kernel thread; 64 work-items (32 on an MI400) run together as a *wavefront* |
# | *workgroup* | wavefronts that run on the same compute unit (CU) |
# | *VALU*, *MFMA* | vector units, which process 64 numbers at once; matrix units, which have the highest flat roof |
# | *F16* | half-precision numbers; each takes two bytes |
#
# ## Predict
#
# The top kernel only copies memory, so this lesson examines forward batch normalization, the fourth in AMD's table. It
# scales numbers to a mean of 0 and a variance of 1.

# %%
# solution
intensity_guess, share_guess = 50, 40
# end solution
proflab.predict(
    "05.a", intensity_guess, unit="FLOP/byte", what="batch normalization's intensity"
)
proflab.predict(
    "05.b", share_guess, unit="%", what="the share of its roof that it reaches"
)

# %% [markdown]
# ## Calculate the roof first
#
# At a given intensity, the roof is `min(peak, intensity * bandwidth)`. AMD's [data
# sheet](https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html) lists the half-precision *peak* and the bandwidth
# of an MI300X. AMD's best matrix products
# [reach](https://rocm.blogs.amd.com/software-tools-optimization/measuring-max-achievable-flops-part2/) the *achievable*
# rate because their clock slows down under load.
#
# Count what the first normalization in the example run *must* do. It reads each input once, writes each output once and
# computes. We assume eight operations per number.

# %% slide="Compute the intensity first: this kernel is far to the left of the knee."
# FLOP/s, FLOP/s, bytes per second
PEAK, ACHIEVABLE, BANDWIDTH = 1307.4e12, 654e12, 5.3e12

# Images, channels, height, width
numbers = 1024 * 64 * 16 * 16
norm_flops, norm_bytes = 8 * numbers, 2 * 2 * numbers
norm_intensity = norm_flops / norm_bytes
norm_us = 1e6 * norm_flops / min(PEAK, norm_intensity * BANDWIDTH)
show_text(
    f"{norm_flops / 1e6:.0f} MFLOP and {norm_bytes / 1e6:.0f} MB take at least "
    f"{norm_us:.0f} µs."
)
show_text(
    f"Intensity: {norm_intensity:.0f} FLOP per byte; knee: {PEAK / BANDWIDTH:.0f} "
    "(peak)"
)

# %% [markdown]
# A convolution slides `filters` filters over the images. Each filter has `channels * filter_width**2` weights, and each
# output number requires one multiplication and one addition per weight. The input and output are `size` wide and high.

# %%
# 3 minutes: what is the intensity of this convolution, in FLOP per byte? The input and weights are read once, and the
# output is written once. Each number takes two bytes. Use the values in `layer`.
layer = {"images": 1024, "channels": 128, "filters": 128, "size": 4, "filter_width": 3}
q = exercise("05.1", layer)
# solution
inputs = layer["images"] * layer["channels"] * layer["size"] ** 2
outputs = layer["images"] * layer["filters"] * layer["size"] ** 2
weights = layer["filters"] * layer["channels"] * layer["filter_width"] ** 2
flops = 2 * outputs * layer["channels"] * layer["filter_width"] ** 2
answer = flops / (2 * (inputs + weights + outputs))
# end solution
q.check(answer)

# %% [markdown] slide="Options select the counters, the kernels and the launches to replay."
# ## Capture
#
# Hardware *counters* show what a kernel really did. The hardware counts only a few kinds of events at a time, so the
# tool **runs your program once for each group of counters**. Each run is a *replay pass*. Use one process, few steps
# and few counters.
#
# | option | purpose |
# | --- | --- |
# | `--name` | Write to `workloads/NAME/GPU`, such as `workloads/all/MI300X_A1`; with ranks, to `workloads/NAME/RANK` |
# | `-b 2 10` | Count for blocks 2 (*Speed-of-Light*: rates, peaks) and 10 (instructions), numbered as since ROCm 7.0 |
# | `-k TEXT` | Count only kernels with this case-sensitive text in the name; a regular expression in newer releases |
# | `--no-roof` | Skip the roof benchmark on the GPU, which takes a while |
#
# On a real GPU, run the program once before profiling so that MIOpen's search is finished. Without a GPU, the course
# replays a *modeled* MI300X run. Modeled operations and bytes come from shapes, and times come from AMD's runs. Caches
# aren't simulated, so their counters are missing. The cell takes up to a minute.

# %% language="bash"
# mkdir -p $FOLDER; cd $FOLDER; rm -rf workloads; echo "Counting, up to a minute"
# rocprof-compute profile --name all --no-roof -b 2 10 -- $EXAMPLE --max-steps 2 2>&1

# %% [markdown]
# `analyze` prints tables, `--gui` shows them in a browser, and `--tui` shows them in the terminal (with
# `--experimental` since ROCm 7.14).
#
# ## Trap: an average of what?
#
# The names of convolution kernels start with `igemm` (*implicit GEMM*, a matrix product). MIOpen may choose other
# kernels on your GPU, so look up the names in your own table (`analyze --list-stats` or the next cell):

# %% slide="An average over all kernels hides the largest one."
mine = own_run(lesson.folder / "workloads/all")
launched = mine.events.query("kind == 'kernel'").astype(
    {"name": str}
    # Without the runtime's copies
)
for text in ("igemm", "BatchNorm", "batch_norm"):
    kept = launched[launched["name"].str.contains(text)]
    time = 100 * kept["duration_ns"].sum() / launched["duration_ns"].sum()
    show_text(
        f"`{text}`: {len(kept):,} of {len(launched):,} dispatches, {time:.0f}% of the "
        "time"
    )

# %% [markdown]
# `-b 2.1.4` selects block 2, table 1, row 4. With two folders, the tool prints a *baseline comparison*. This cell
# compares all kernels with two kinds and takes up to a minute.

# %% language="bash"
# cd $FOLDER; rm -rf workloads/two; echo "Counting two kinds of kernels, up to a minute"
# rocprof-compute profile --name two --no-roof -b 2 10 -k igemm BatchNorm \
#     -- $EXAMPLE --max-steps 2 &>log
# rocprof-compute analyze -p workloads/all/* -p workloads/two/* -b 2.1.4 \
#     --max-stat-num 2 2>&1

# %% slide="The share depends on what the tool divides by."
two = own_run(lesson.folder / "workloads/two")
for way in ("dispatches", "totals"):
    tables = [
        tidyprof.speed_of_light(run, average=way).set_index("metric")
        for run in (mine, two)
    ]
    shares = [table.at["MFMA FLOPs (F16)", "percent"] for table in tables]
    show_text(
        f"F16 share by {way}: {shares[0]:.2f}% of the peak (all), {shares[1]:.2f}% "
        "(two kinds)"
    )

# %% [markdown]
# Both averages are correct. Up to release 3.6, the tool averages over *dispatches*, so a copy of a few microseconds
# counts as much as the longest convolution. Since 3.7 (ROCm 7.14), it divides *totals*. To avoid this trap, look at one
# kernel at a time, and state the filter with every number.

# %% language="bash"
# cd $FOLDER; rm -rf workloads/norm; echo "Counting one kernel, up to a minute"
# rocprof-compute profile --name norm --no-roof -b 2 10 -k BatchNormFwd \
#     -- $EXAMPLE --max-steps 2 &>log
# rocprof-compute analyze -p workloads/norm/* -b 2.1.0 2.1.8 --max-stat-num 1 2>&1

# %% [markdown] slide="A few counters are enough to place a kernel in the roofline."
# The tool's peak for `VALU FLOPs` *excludes* packed instructions, which process two numbers at once. The FP32 roof
# below includes these, so it is twice as high.
#
# ## One kernel, from its counters to its point
#
# | counter | meaning |
# | --- | --- |
# | `VALU_ADD`, `_MUL`, `_TRANS` | a vector instruction with 64 operations, one per work-item |
# | `VALU_FMA` | a *fused multiply-add* with 128 operations |
# | `MFMA_MOPS` | 512 operations in the matrix units |
# | `EA0_RDREQ`, `EA0_WRREQ` | 64-byte reads and 32-byte writes through the *fabric* between the last cache and memory |
# | `BUBBLE`, `RDREQ_32B`, `WRREQ_64B` | requests of other sizes: 128-byte reads, 32-byte reads, 64-byte writes |
#
# These counters are for the MI300A and MI300X (architecture `gfx942`). On an MI200, the fabric counters start with
# `TCC_EA_`, and `BUBBLE` doesn't exist.

# %% slide="The manual calculation and the library agree."
norm = own_run(lesson.folder / "workloads/norm")
# Some are counted in several runs
first = norm.counters.drop_duplicates(["dispatch_id", "name"])
c = first.groupby("name", observed=True)["value"].sum()
flops = 512 * c.filter(regex="MFMA_MOPS_B?F").sum()
flops += 64 * c.filter(regex="VALU_(ADD|MUL|TRANS)_F").sum()
flops += 128 * c.filter(regex="VALU_FMA_F").sum()
point = tidyprof.roofline_points(norm).iloc[0]
limits = tidyprof.roofline_ceilings(norm).set_index("name")["value"]
show_text(
    f"Manually: {flops / 1e9:.2f} GFLOP; with the library: {point.flops / 1e9:.2f} "
    "GFLOP"
)
show_text(f"Flat roof of the vector units: {limits['vector fp32'] / 1e12:.0f} TFLOP/s")

# %%
# 3 minutes: what percentage of the lower of its two roofs does this kernel reach over all its calls? `point` has
# `flops`, `hbm_bytes` and `duration_ns`. `limits` contains the roofs "vector fp32" in FLOP/s and "HBM" in bytes per
# second.
q = exercise("05.2", norm)
# solution
roof = min(limits["vector fp32"], point.flops / point.hbm_bytes * limits["HBM"])
answer = 100 * point.flops / (point.duration_ns / 1e9) / roof
# end solution
q.check(answer)

# %% [markdown] tags=["given"]
# > **Warning:** The GPU model is least accurate for this kernel: it predicts 12.97 µs on average with 256 images,
# > whereas AMD recorded 9.39 µs ([details](../docs/contributors/gpumodel.md)). With AMD's time, its share of the roof is a third
# > higher.
#
# The figure compares this kernel with the largest modeled convolution and with ten convolutions that AMD recorded with
# 256 images. `vector FP32` is the flat roof for the normalization, and the other two are for convolutions. Two points
# coincide, so the figure shows their mean.

# %% slide="All kernels are far below their roofs, so neither arithmetic nor memory bandwidth limits them."
layers = pd.read_csv(lesson.file("published_layers.csv"), comment="#")
roof = (layers["flop_per_byte"] * BANDWIDTH).clip(upper=ACHIEVABLE)
layers["rate"] = layers["pct_of_roof"] / 100 * roof
layers = layers.groupby(["direction", "flop_per_byte"])["rate"].mean().reset_index()
points = tidyprof.roofline_points(mine).query(
    "main_type.str.startswith('matrix', na=False)"
)
shown = {
    "normalization, modeled": point,
    "largest convolution, modeled": points.iloc[0],
}
groups = {
    name: ([row.hbm_intensity], [row.flops_per_second]) for name, row in shown.items()
}
for direction, rows in layers.groupby("direction", sort=False):
    groups[f"convolutions, recorded: {direction}"] = rows["flop_per_byte"], rows["rate"]
roofs = {"peak": PEAK, "achievable": ACHIEVABLE, "vector FP32": limits["vector fp32"]}
origin = (
    f"{mine.origin}; hollow: recorded, MI300X, published by AMD in HPCTrainingExamples"
)
show_roofline(groups, roofs, BANDWIDTH, "All kernels are far below their roofs", origin)

# %% [markdown]
# If a kernel is this far below both roofs, neither roof limits it. What does? A workgroup runs on one compute unit, so
# a launch with few workgroups leaves most of the GPU idle. In AMD's trace of this kernel, `grid` is the number of
# work-items, and each channel is one workgroup:

# %% slide="One kernel, one row: its intensity and its distance from each roof."
there = proflab.recording("torch-mi300-ddp-4ranks-fused")
recorded = tidyprof.read(there.path, origin=there.origin).events.astype({"name": str})
names = ("aten::miopen_batch_norm", "MIOpenBatchNormFwdTrainSpatial")
key = ["rank", "external_id"]
operators, own = (recorded[recorded["name"] == name] for name in names)
shapes = operators.set_index(key)["input_shapes"].astype(str)
own = own.join(
    shapes[shapes.str.contains(", 8, 8]", regex=False)].rename("shape"),
    on=key,
    how="inner",
)
grid, block = (
    own[size].astype(str).str.extract(r"(\d+)")[0].astype(int)
    for size in ("grid", "block")
)
sizes = own.groupby(grid // block)["duration_ns"].agg(calls="size", mean_ns="mean")
sizes = sizes.rename_axis("workgroups").reset_index()
# Bytes: one workgroup per channel
moved = 2 * 2 * 256 * 8 * 8 * sizes["workgroups"]
sizes["hbm_percent"] = 100 * moved / sizes["mean_ns"] * 1e9 / BANDWIDTH
show_table(
    sizes, "workgroups calls mean_us hbm_percent", "8 x 8 images", origin=there.origin
)

# %% [markdown]
# With four times as many channels, the kernel hardly takes longer because each workgroup does the same work. In the
# first row, only 64 compute units have work. The library chose this size. In AMD's
# table (04), this kernel is faster. We don't know why.
#
# ## Which hardware block is close to its peak?
#
# Data travels from HBM through the *L2* and *vL1D* (or L1) caches. Each workgroup has shared memory called *LDS*. The
# *Speed-of-Light* table (2.1) compares each block with its peak. Four small kernels were recorded on an MI300X:
#
# - `coalesced` and `stride` copy the same numbers. Neighboring work-items read neighboring numbers in `coalesced` but
#   distant numbers in `stride`.
# - `conflict` and `padded` transpose a matrix through LDS. On an MI300X, LDS has 32 *banks* (64 on an MI350), so
#   numbers 0 and 32 are both in bank 0. Work-items that need different numbers from one bank are in *conflict* and wait
#   for each other.

# %%
copied = proflab.recording("rocprof-compute-mi300x-coalescing")
turned = proflab.recording("rocprof-compute-mi300x-bank-conflict")
folders = {
    "coalesced": copied.path / "coalesced_profile",
    "stride": copied.path / "uncoalesced_profile",
}
folders |= {
    "conflict": turned.path / "conflict_profile",
    "padded": turned.path / "no_conflict_profile",
}
homes = {name: folder / "MI300X_A1" for name, folder in folders.items()}
raw = pd.concat(
    {name: pd.read_csv(home / "pmc_perf.csv") for name, home in homes.items()}
)
raw = raw.droplevel(1).select_dtypes("number").copy()
raw["ns"] = raw["End_Timestamp"] - raw["Start_Timestamp"]

# %% slide="No hardware block is close to its peak."
table = "analyze/2.1_Speed-of-Light.csv"
tables = {
    name: pd.read_csv(home / table, index_col="Metric") for name, home in homes.items()
}
percent = pd.DataFrame({name: table["Pct of Peak"] for name, table in tables.items()})
blocks = pd.read_csv(lesson.file("blocks.csv"), comment="#", index_col="metric")[
    "block"
]
nearest = (
    percent.join(blocks, how="inner").groupby("block", sort=False).max().reset_index()
)
show_table(
    nearest,
    f"block {' '.join(homes)}",
    "Highest percentage of peak",
    origin=copied.origin,
)

# %% [markdown]
# `-b 3` draws a *memory chart* of the traffic between these blocks. `stride` uses more of the fabric bandwidth than
# `coalesced`. Is that good? Compare the moved bytes with the needed bytes:

# %%
# 3 minutes: each work-item of `stride` reads and writes one four-byte number. How many bytes does the kernel move
# through the fabric per byte that it must read or write? `raw` has one row per kernel, with its `Grid_Size` and its
# counters: `TCC_EA0_RDREQ_sum`, `TCC_BUBBLE_sum`, `TCC_EA0_RDREQ_32B_sum`, `TCC_EA0_WRREQ_sum` and
# `TCC_EA0_WRREQ_64B_sum`.
q = exercise("05.3", raw)
# solution
read = (
    64 * (raw["TCC_EA0_RDREQ_sum"] + raw["TCC_BUBBLE_sum"])
    - 32 * raw["TCC_EA0_RDREQ_32B_sum"]
)
written = 32 * raw["TCC_EA0_WRREQ_sum"] + 32 * raw["TCC_EA0_WRREQ_64B_sum"]
answer = ((read + written) / (2 * 4 * raw["Grid_Size"]))["stride"]
# end solution
q.check(answer)

# %% [markdown]
# In the transposes, LDS appears idle because its row counts delivered bytes, not lost clock cycles. `SQ_LDS_IDX_ACTIVE`
# counts the cycles when LDS is busy, and `SQ_LDS_BANK_CONFLICT` counts the cycles lost to conflicts. `padded` adds one
# number to each row of its tile, so the numbers in a column are in different banks. Is `padded` faster?

# %% slide="Bank conflicts make the same instructions take longer in the LDS."
machine = pd.read_csv(homes["conflict"] / "sysinfo.csv").iloc[0]
kernel, change = raw.loc["conflict"], raw.loc["padded"] / raw.loc["conflict"]
# Each of the eight chiplets counts them
cycles = kernel["GRBM_GUI_ACTIVE"] / machine.num_xcd
busy = kernel["SQ_LDS_IDX_ACTIVE"] / (cycles * machine.cu_per_gpu)
lost = kernel["SQ_LDS_BANK_CONFLICT"] / kernel["SQ_LDS_IDX_ACTIVE"]
show_text(
    f"`conflict`: LDS is busy for {100 * busy:.0f}% of cycles; {100 * lost:.0f}% of "
    "these are lost"
)
show_text(
    f"`padded`: {change['SQ_LDS_IDX_ACTIVE']:.2f} times as many LDS cycles; "
    f"{change['ns']:.2f} times as long in one run, {change['GRBM_GUI_ACTIVE']:.2f} "
    "times in another"
)

# %% [markdown]
# The time difference is smaller than the variation between launches, so **this doesn't prove a gain**. [Which
# percentages](../docs/more-of-rocprofv3.md#percentages-of-rocprof-compute) can you trust?
#
# ## Decide
#
# How much could you gain from a perfect kernel? If a part of the run took no time, the rest would remain, so the
# speedup is at most `1 / (1 - part)` (*Amdahl's law*). Compare the top kernel in AMD's table with all kernels in the
# table that mainly move data:

# %% slide="Without its top kernel, the run would hardly be faster."
table = lesson.file("../04_rocprofv3_kernel_stats/amd_kernel_tables.csv")
amd = pd.read_csv(table, comment="#").query("run == 'one GPU'")
movers = amd[~amd["name"].str.startswith("igemm")]["percent"]
one, five = (1 / (1 - part / 100) for part in (movers.max(), movers.sum()))
show_text(
    f"Speedup: at most {one:.2f} times without the top kernel, {five:.2f} times "
    "without all five"
)
reached = 100 * point.hbm_bytes / point.duration_ns * 1e9 / limits["HBM"]
proflab.reveal("05.a", norm_intensity, "calculated")
proflab.reveal("05.b", reached, norm)

# %% [markdown]
# Many kernels share the time. Which part of the step launches them? A trace shows this.

# %% slide="Many kernels share the time. Which part of the step launches them?"
low, high = sizes["hbm_percent"].iloc[[0, -1]]
lesson.conclude(
    f"Without the top kernel in AMD's table, all kernels together would be {one:.2f} "
    f"times as fast. Without all five that mainly move data, they would be {five:.2f} "
    f"times. Forward batch normalization reaches {low:.0f}% to {high:.0f}% of the "
    f"memory roof in AMD's trace and {reached:.0f}% in the modeled run.",
    rules_out="a single bad kernel",
    because="Many kernels share the time. Which part of the step launches them?",
    next="06",
    origin="recorded: AMD Instinct MI300 series, amd/HPCTrainingExamples; "
    f"{mine.origin}",
)

# %% [markdown]
# ## Three takeaways
#
# - A kernel's intensity determines its roof, and counters show how far below this roof the kernel is.
# - A percentage depends on the filter and the average, so look at one kernel at a time.
# - Before you optimize a kernel, calculate how much faster the whole run would be without it.
#
# ## What this view cannot see
#
# - **Everything around a kernel:** the CPU, ranges, queues and collectives. The experimental `--torch-trace` option
#   (since ROCm 7.12) records each kernel's operator.
# - **Real run times:** counting changes them. *Wavefront Occupancy* isn't reliable for short kernels.
#
# > **Note:** The tool repeats the run, so a collective would wait forever. Use a single process. If the tool reports
# > "folder is not empty" (since ROCm 10.0), add `--overwrite`. See the [known
# > issues](../docs/known-issues.md#rocprof-compute).

# %% [markdown]
# ## At work, without this course
#
# {snippet 05_roofline.py}
#
# Draw a roofline from your own counts or a `rocprof-compute profile` folder. The roofs come from the data sheet or
# `roofline.csv`.

# %% [markdown]
# Next question: which part of the step launches the kernels? Can I ask my own question?
