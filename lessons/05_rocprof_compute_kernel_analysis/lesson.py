# %% [markdown]
# # Is this kernel near its ceiling?
#
# Lesson 04 gave the GPU more work per launch. `$EXAMPLE` is therefore now the run with `--num-workers 8 --batch-size 1024
# --fused-optimizer`, and in the model, kernels fill its steps. Could one kernel be faster? The evidence again comes from
# MI300X GPUs: AMD's recorded kernels, and a model for what the tool prints.
#
# `rocprof-compute` (formerly Omniperf) lets the hardware count what a kernel does.
#
# After this lesson, you can:
#
# - place a kernel below its roof from its counters, and name the hardware block that it comes closest to;
# - recognize a percentage with a wrong average or filter, and calculate what a faster kernel gains.
#
# **Before you start:** complete lessons 02 and 04. Commands apply to ROCm 7.0 through {newest rocm} (rocprof-compute
# 3.2.3 through {newest rocprof-compute}).

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

# %% [markdown]
# ## The picture to keep in mind
#
# A kernel computes and moves data, and the slower of the two is its limit. In a *roofline* plot, a kernel's *arithmetic
# intensity* is how much it computes per byte that it moves. The roofs meet at the *knee*. Left of the knee, a kernel is
# *memory-bound*, and right of it, *compute-bound*. Fill in the blanks as you go:
#
# {drawing 05_roofline}

# %% [markdown]
# {drawing 05_memory}
#
# | word | meaning |
# | --- | --- |
# | *work-item* | one thread of a kernel; 64 of them (32 on an MI400) run together as a *wavefront* |
# | *workgroup* | wavefronts that run on the same compute unit (CU) |
# | *VALU*, *MFMA* | vector units, which do the same to 64 numbers; matrix units, which have the highest flat roof |
# | *F16* | half-precision numbers, two bytes each |
#
# ## Predict
#
# Forward batch normalization scales its input to mean 0 and variance 1. It is fourth in AMD's kernel table.

# %%
# solution
intensity_guess, share_guess = 50, 40
# end solution
proflab.predict(
    "05.a", intensity_guess, unit="FLOP/byte", what="the intensity of batch normalization"
)
proflab.predict("05.b", share_guess, unit="%", what="the share of its roof that it reaches")

# %% [markdown]
# ## Calculate the roof first
#
# The roof at an intensity is `min(peak, intensity * bandwidth)`. An MI300X's *peak* in half precision and its bandwidth
# are in AMD's [data sheet](https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html). AMD's best matrix products
# [reach](https://rocm.blogs.amd.com/software-tools-optimization/measuring-max-achievable-flops-part2/) the *achievable*
# rate, because the clock slows down under load.
#
# Count what the first normalization of the example run *must* do: read each input once, write each output once, and
# compute. We assume eight operations per number.

# %%
PEAK, ACHIEVABLE, BANDWIDTH = 1307.4e12, 654e12, 5.3e12  # FLOP/s, FLOP/s, bytes per second

numbers = 1024 * 64 * 16 * 16  # images, channels, height, width
norm_flops, norm_bytes = 8 * numbers, 2 * 2 * numbers
norm_intensity = norm_flops / norm_bytes
norm_us = 1e6 * norm_flops / min(PEAK, norm_intensity * BANDWIDTH)
show_text(
    f"{norm_flops / 1e6:.0f} MFLOP and {norm_bytes / 1e6:.0f} MB take at least {norm_us:.0f} µs."
)
show_text(f"Intensity: {norm_intensity:.0f} FLOP per byte; knee: {PEAK / BANDWIDTH:.0f} (peak)")

# %% [markdown]
# A convolution slides `filters` filters over the images. Each filter has `channels * filter_width**2` weights, and each
# number of the output takes one multiplication and one addition per weight. Input and output are `size` wide and high.

# %%
# 3 minutes: what is the intensity of this convolution, in FLOP per byte? Input and weights are read once, and the output
# is written once. All numbers have two bytes. Use the values of `layer`.
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

# %% [markdown]
# ## Capture
#
# Hardware *counters* show what a kernel really did. The hardware counts only a few kinds of events at a time, so the tool
# **runs your program again for each group of counters**. Each run is a *replay pass*. Use one process, few steps and few
# counters.
#
# | option | purpose |
# | --- | --- |
# | `--name` | Write to `workloads/NAME/GPU`, such as `workloads/all/MI300X_A1`, or to `workloads/NAME/RANK` for ranks |
# | `-b 2 10` | Count for blocks 2 (*Speed-of-Light*: rates and peaks) and 10 (instructions); numbers since ROCm 7.0 |
# | `-k TEXT` | Only kernels with this text in the name, case-sensitive; a regular expression in newer releases |
# | `--no-roof` | Skip the benchmark of the GPU's roofs, which takes a while |
#
# On a real GPU, run the program once before, so that MIOpen's search is over. Without a GPU, the course replays a
# *modeled* MI300X. It derives operations and bytes from shapes, and times from AMD's runs. It models no caches, so their
# counters are missing. The cell takes up to a minute.

# %% language="bash"
# mkdir -p $FOLDER; cd $FOLDER; rm -rf workloads; echo "Counting, up to a minute"
# rocprof-compute profile --name all --no-roof -b 2 10 -- $EXAMPLE --max-steps 2 2>&1

# %% [markdown]
# `analyze` prints tables, `--gui` shows them in a browser, and `--tui` in the terminal (with `--experimental` since ROCm
# 7.14).
#
# ## Trap: an average of what?
#
# Names of convolutions start with `igemm` (*implicit GEMM*, a matrix product). MIOpen may choose other kernels on your
# GPU, so take the names from your own table (`analyze --list-stats`, or as here):

# %%
mine = own_run(lesson.folder / "workloads/all")
launched = mine.events.query("kind == 'kernel'").astype(
    {"name": str}
)  # without the runtime's copies
for text in ("igemm", "BatchNorm", "batch_norm"):
    kept = launched[launched["name"].str.contains(text)]
    time = 100 * kept["duration_ns"].sum() / launched["duration_ns"].sum()
    show_text(f"`{text}`: {len(kept):,} of {len(launched):,} dispatches, {time:.0f}% of the time")

# %% [markdown]
# `-b 2.1.4` selects block 2, table 1, row 4. Two folders make a *baseline comparison*, here of all kernels with two kinds
# of kernels. The cell takes up to a minute.

# %% language="bash"
# cd $FOLDER; rm -rf workloads/two; echo "Counting two kinds of kernels, up to a minute"
# rocprof-compute profile --name two --no-roof -b 2 10 -k igemm BatchNorm \
#     -- $EXAMPLE --max-steps 2 &>log
# rocprof-compute analyze -p workloads/all/* -p workloads/two/* -b 2.1.4 --max-stat-num 2 2>&1

# %%
two = own_run(lesson.folder / "workloads/two")
for way in ("dispatches", "totals"):
    tables = [tidyprof.speed_of_light(run, average=way).set_index("metric") for run in (mine, two)]
    shares = [table.at["MFMA FLOPs (F16)", "percent"] for table in tables]
    show_text(
        f"F16 share by {way}: {shares[0]:.2f}% of the peak (all), {shares[1]:.2f}% (two kinds)"
    )

# %% [markdown]
# Both are right. Up to release 3.6, the tool averages over *dispatches*, so a copy of a few microseconds weighs as
# much as the longest convolution. Since 3.7 (ROCm 7.14), it divides *totals*. To avoid the trap, look at one kernel at a
# time, and state the filter with every number.

# %% language="bash"
# cd $FOLDER; rm -rf workloads/norm; echo "Counting one kernel, up to a minute"
# rocprof-compute profile --name norm --no-roof -b 2 10 -k BatchNormFwd \
#     -- $EXAMPLE --max-steps 2 &>log
# rocprof-compute analyze -p workloads/norm/* -b 2.1.0 2.1.8 --max-stat-num 1 2>&1

# %% [markdown]
# The tool's peak of `VALU FLOPs` is *without* packed instructions, which process two numbers at once. With them, the FP32
# roof is twice as high, and so it is below.
#
# ## One kernel, from its counters to its point
#
# | counter | meaning |
# | --- | --- |
# | `VALU_ADD`, `_MUL`, `_TRANS` | one vector instruction: 64 operations, one per work-item |
# | `VALU_FMA` | *fused multiply-add*: 128 operations |
# | `MFMA_MOPS` | 512 operations of the matrix units |
# | `EA0_RDREQ`, `EA0_WRREQ` | reads of 64 and writes of 32 bytes through the *fabric*, which connects the last cache to the memory |
# | `BUBBLE`, `RDREQ_32B`, `WRREQ_64B` | those of them that have 128, 32 and 64 bytes; `BUBBLE` is AMD's name for a long read |
#
# These are the counters of MI300A and MI300X (architecture `gfx942`). An MI200's names start with `TCC_EA_`, and
# it lacks `BUBBLE`.

# %%
norm = own_run(lesson.folder / "workloads/norm")
first = norm.counters.drop_duplicates(["dispatch_id", "name"])  # some are counted in several runs
c = first.groupby("name", observed=True)["value"].sum()
flops = 512 * c.filter(regex="MFMA_MOPS_B?F").sum()
flops += 64 * c.filter(regex="VALU_(ADD|MUL|TRANS)_F").sum()
flops += 128 * c.filter(regex="VALU_FMA_F").sum()
point = tidyprof.roofline_points(norm).iloc[0]
limits = tidyprof.roofline_ceilings(norm).set_index("name")["value"]
show_text(f"By hand {flops / 1e9:.2f} GFLOP, by the library {point.flops / 1e9:.2f} GFLOP.")
show_text(f"It uses vector units, so its flat roof is {limits['vector fp32'] / 1e12:.0f} TFLOP/s.")

# %%
# 3 minutes: what percentage of the lower of its two roofs does this kernel reach, over all its calls? `point` has
# `flops`, `hbm_bytes` and `duration_ns`. `limits` has the roofs "vector fp32" in FLOP/s and "HBM" in bytes per second.
q = exercise("05.2", norm)
# solution
roof = min(limits["vector fp32"], point.flops / point.hbm_bytes * limits["HBM"])
answer = 100 * point.flops / (point.duration_ns / 1e9) / roof
# end solution
q.check(answer)

# %% [markdown] tags=["given"]
# > **Warning:** The model gets this kernel wrong more than any other: 12.97 µs on average in a step of 256 images, where
# > AMD recorded 9.39 µs ([details](../docs/gpumodel.md)). By AMD's time, it reaches a third more of its roof.
#
# The figure compares it with the largest modeled convolution, and with ten that AMD recorded with 256 images. `vector
# FP32` is the flat roof of the normalization, and the other two belong to convolutions. Two points coincide, so their
# mean is drawn.

# %%
layers = pd.read_csv(lesson.file("published_layers.csv"), comment="#")
roof = (layers["flop_per_byte"] * BANDWIDTH).clip(upper=ACHIEVABLE)
layers["rate"] = layers["pct_of_roof"] / 100 * roof
layers = layers.groupby(["direction", "flop_per_byte"])["rate"].mean().reset_index()
points = tidyprof.roofline_points(mine).query("main_type.str.startswith('matrix', na=False)")
shown = {"normalization, modeled": point, "largest convolution, modeled": points.iloc[0]}
groups = {name: ([row.hbm_intensity], [row.flops_per_second]) for name, row in shown.items()}
for direction, rows in layers.groupby("direction", sort=False):
    groups[f"convolutions, recorded: {direction}"] = rows["flop_per_byte"], rows["rate"]
roofs = {"peak": PEAK, "achievable": ACHIEVABLE, "vector FP32": limits["vector fp32"]}
origin = f"{mine.origin}; hollow: recorded, MI300X, published by AMD in HPCTrainingExamples"
show_roofline(groups, roofs, BANDWIDTH, "All kernels are far below their roofs", origin)

# %% [markdown]
# Neither roof limits a kernel so far below it. What does? A workgroup runs on one compute unit, so a launch with few
# workgroups leaves most of the GPU empty. In AMD's trace of this kernel, `grid` is the number of work-items, and each
# channel is one workgroup:

# %%
there = proflab.recording("torch-mi300-ddp-4ranks-fused")
recorded = tidyprof.read(there.path, origin=there.origin).events.astype({"name": str})
names, key = ("aten::miopen_batch_norm", "MIOpenBatchNormFwdTrainSpatial"), ["rank", "external_id"]
operators, own = (recorded[recorded["name"] == name] for name in names)
shapes = operators.set_index(key)["input_shapes"].astype(str)
own = own.join(
    shapes[shapes.str.contains(", 8, 8]", regex=False)].rename("shape"), on=key, how="inner"
)
grid, block = (
    own[size].astype(str).str.extract(r"(\d+)")[0].astype(int) for size in ("grid", "block")
)
sizes = own.groupby(grid // block)["duration_ns"].agg(calls="size", mean_ns="mean")
sizes = sizes.rename_axis("workgroups").reset_index()
moved = 2 * 2 * 256 * 8 * 8 * sizes["workgroups"]  # bytes: one workgroup per channel
sizes["hbm_percent"] = 100 * moved / sizes["mean_ns"] * 1e9 / BANDWIDTH
show_table(sizes, "workgroups calls mean_us hbm_percent", "Images of 8 x 8", origin=there.origin)

# %% [markdown]
# Four times the channels take hardly longer, because each workgroup does the same work. In the first row, only 64 compute
# units have work. The library chose this launch.
#
# ## Which hardware block is it near?
#
# A number travels from HBM through *L2* and *vL1D* (also called L1). A workgroup shares the memory *LDS*. The table
# *Speed-of-Light* (2.1) compares each block with its peak. Four small kernels were recorded on an MI300X:
#
# - `coalesced` and `stride` copy the same numbers. Neighboring work-items read neighboring numbers in `coalesced`, and
#   distant numbers in `stride`.
# - `conflict` and `padded` transpose a matrix through LDS. The LDS of an MI300X has 32 *banks* (64 on an MI350), so
#   numbers 0 and 32 are in bank 0. Work-items that want different numbers from one bank are in *conflict* and wait for
#   each other.

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
raw = pd.concat({name: pd.read_csv(home / "pmc_perf.csv") for name, home in homes.items()})
raw = raw.droplevel(1).select_dtypes("number").copy()
raw["ns"] = raw["End_Timestamp"] - raw["Start_Timestamp"]
table = "analyze/2.1_Speed-of-Light.csv"
tables = {name: pd.read_csv(home / table, index_col="Metric") for name, home in homes.items()}
percent = pd.DataFrame({name: table["Pct of Peak"] for name, table in tables.items()})
blocks = pd.read_csv(lesson.file("blocks.csv"), comment="#", index_col="metric")["block"]
nearest = percent.join(blocks, how="inner").groupby("block", sort=False).max().reset_index()
show_table(nearest, f"block {' '.join(homes)}", "Highest percent of peak", origin=copied.origin)

# %% [markdown]
# `-b 3` draws the traffic between these blocks, a *memory chart*. `stride` uses more of the fabric's bandwidth than
# `coalesced`. Is that good? Compare the bytes with what the work needs:

# %%
# 3 minutes: each work-item of `stride` reads one number of four bytes and writes it. How many bytes does the kernel move
# through the fabric per byte that it must read or write? `raw` has one row per kernel, with its `Grid_Size` and counters:
# `TCC_EA0_RDREQ_sum`, `TCC_BUBBLE_sum`, `TCC_EA0_RDREQ_32B_sum`, `TCC_EA0_WRREQ_sum` and `TCC_EA0_WRREQ_64B_sum`.
q = exercise("05.3", raw)
# solution
read = 64 * (raw["TCC_EA0_RDREQ_sum"] + raw["TCC_BUBBLE_sum"]) - 32 * raw["TCC_EA0_RDREQ_32B_sum"]
written = 32 * raw["TCC_EA0_WRREQ_sum"] + 32 * raw["TCC_EA0_WRREQ_64B_sum"]
answer = ((read + written) / (2 * 4 * raw["Grid_Size"]))["stride"]
# end solution
q.check(answer)

# %% [markdown]
# In the transposes, LDS looks idle, because its row counts delivered bytes and not lost clock cycles. `SQ_LDS_IDX_ACTIVE`
# counts the cycles when LDS is busy, and `SQ_LDS_BANK_CONFLICT` those that a conflict costs. `padded` adds one number to
# each row of its tile, so the numbers of a column are in different banks. Is it faster?

# %%
machine = pd.read_csv(homes["conflict"] / "sysinfo.csv").iloc[0]
kernel, change = raw.loc["conflict"], raw.loc["padded"] / raw.loc["conflict"]
cycles = kernel["GRBM_GUI_ACTIVE"] / machine.num_xcd  # each of the eight chiplets counts them
busy = kernel["SQ_LDS_IDX_ACTIVE"] / (cycles * machine.cu_per_gpu)
lost = kernel["SQ_LDS_BANK_CONFLICT"] / kernel["SQ_LDS_IDX_ACTIVE"]
show_text(
    f"`conflict`: LDS is busy for {100 * busy:.0f}% of the cycles, {100 * lost:.0f}% of them lost."
)
show_text(
    f"`padded`: {change['SQ_LDS_IDX_ACTIVE']:.2f} times the LDS cycles; time: "
    f"{change['ns']:.2f} times in one run, {change['GRBM_GUI_ACTIVE']:.2f} times in another"
)

# %% [markdown]
# The difference is smaller than the variation between launches, so **no gain is proven**. Which percentages can you
# trust? See [by which peak, and from which run](../docs/more-of-rocprofv3.md#percentages-of-rocprof-compute).
#
# ## Decide
#
# What could a perfect kernel gain? If a part of the time takes none, the rest remains, so the gain is at most
# `1 / (1 - part)` (*Amdahl's law*). Compare the first kernel in AMD's table with all its kernels that mainly move data:

# %%
table = lesson.file("../04_rocprofv3_kernel_stats/amd_kernel_tables.csv")
amd = pd.read_csv(table, comment="#").query("run == 'one GPU'")
movers = amd[~amd["name"].str.startswith("igemm")]["percent"]
one, five = (1 / (1 - part / 100) for part in (movers.max(), movers.sum()))
show_text(
    f"At most {one:.2f} times without the first kernel, and {five:.2f} times without all five"
)
reached = 100 * point.hbm_bytes / point.duration_ns * 1e9 / limits["HBM"]
proflab.reveal("05.a", norm_intensity, "calculated")
proflab.reveal("05.b", reached, norm)

# %% [markdown]
# Many kernels share the time. Which part of the step launches them? Counters don't show that, but a trace has ranges,
# calls and kernels in tables, which the next lesson queries.

# %%
low, high = sizes["hbm_percent"].iloc[[0, -1]]
lesson.conclude(
    f"Without the first kernel of AMD's table, all kernels together would be {one:.2f} times as "
    f"fast, and without its five kernels that mainly move data, {five:.2f} times. Forward batch "
    f"normalization reaches {low:.0f} to {high:.0f}% of the memory's roof in AMD's trace, and "
    f"{reached:.0f}% in the model.",
    rules_out="a single bad kernel",
    because="Many kernels share the time. Which part of the step launches them?",
    next="06",
    origin=f"recorded: AMD Instinct MI300 series, amd/HPCTrainingExamples; {mine.origin}",
)

# %% [markdown]
# ## Three takeaways
#
# - The roof of a kernel follows from its intensity, and counters show how far below the roof it stays.
# - A percentage needs its filter and its average, so look at one kernel at a time.
# - Before you optimize a kernel, calculate what the whole run gains without that kernel.
#
# ## What this view cannot see
#
# - **Everything around a kernel:** CPU, ranges, queues, collectives. The experimental `--torch-trace` (since ROCm
#   7.12) records the operator of each kernel.
# - **The run's real times:** counting changes them. *Wavefront Occupancy* isn't reliable for short kernels.
#
# > **Note:** Profiled runs repeat, so a collective would wait forever. Use a single process. If the tool
# > reports "folder is not empty" (since ROCm 10.0), add `--overwrite`. See the [list of known
# > issues](../docs/known-issues.md#rocprof-compute).

# %% [markdown]
# ## At work, without this course
#
# {snippet 05_roofline.py}
#
# Draw the roofline from your own counts or a `rocprof-compute profile` folder. The roofs come from the data sheet or from
# `roofline.csv`.

# %% [markdown]
# Next question: which part of the step launches the kernels? Can I ask my own question?
