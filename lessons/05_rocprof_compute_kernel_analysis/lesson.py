# %% [markdown]
# # Is this kernel near its ceiling?
#
# The kernels now fill the step, and one of them leads the table of lesson 04. Could it be faster? That depends on what
# the GPU can do, and on what the kernel asks of it. `rocprof-compute` (formerly Omniperf) lets the hardware count the
# second.
#
# After this lesson you can
#
# - take one kernel of a training from its calls to its counters, and to its point under the roof;
# - say which block of the hardware a kernel is near to;
# - tell a percentage with a wrong average, filter or peak, and say what a faster kernel would bring to the step.
#
# You need lessons 02 and 04. Commands hold from ROCm 7.0 to {newest rocm} (rocprof-compute 3.2.3 to
# {newest rocprof-compute}).

# %%
import numpy as np
import pandas as pd
import proflab
import tidyprof
from proflab import case, exercise, ledger, say, show_figure, show_table
from proflab.parts.clinic_runs import modelled
from proflab.parts.modelled_trace import modelled_trace
from proflab.parts.steady_part import own_run
from tidyprof.plots.figure import new_figure

lesson = proflab.start("05")

# %%
lesson.sheet()

# %% [markdown]
# ## The picture to keep in mind
#
# A kernel computes and moves data. The lower limit counts:
#
# | | unit | meaning |
# | --- | --- | --- |
# | flat roof | FLOP/s, floating-point operations per second | the most that the arithmetic units can do |
# | slanted roof | bytes per second, the *bandwidth* | the most that the GPU's memory (HBM) delivers |
# | *arithmetic intensity* | FLOP per byte | what the kernel computes for each byte that it moves |
# | *knee* | FLOP per byte | the intensity where the roofs meet: flat roof divided by bandwidth |
#
# In a *roofline* plot a kernel stands at its intensity (to the right) and its FLOP/s (up). Left of the knee it is
# called *memory-bound*, right of it *compute-bound*.

# %% [markdown]
# | word | meaning |
# | --- | --- |
# | *work-item* | one thread of a kernel; 64 of them (32 on an MI400) run together as a *wavefront* |
# | *workgroup* | wavefronts that run on the same compute unit |
# | *CU* | compute unit; an MI300X has 304 |
# | *VALU* | a CU's vector units: each instruction does the same to 64 numbers |
# | *MFMA* | a CU's matrix units, with the highest flat roof |
# | *F16* | numbers of half precision, two bytes each |
#
# ## Predict
#
# Batch normalisation shifts and scales its input, so that it has mean 0 and variance 1.

# %%
# solution
intensity_guess, share_guess = 50, 40
# end solution
proflab.predict("05.a", intensity_guess, unit="FLOP/byte", what="intensity of batch normalisation")
proflab.predict("05.b", share_guess, unit="%", what="the share of its roof that it reaches")

# %% [markdown]
# ## By hand first
#
# Everything here follows from one line, `min(peak, intensity * bandwidth)`. AMD's
# [data sheet](https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html) gives an MI300X's *peak* in half
# precision and its bandwidth. The *achievable* rate is what AMD's best matrix products
# [reach](https://rocm.blogs.amd.com/software-tools-optimization/measuring-max-achievable-flops-part2/): the clock falls
# under load.
#
# Count what *must* be done in the first normalisation of the case: each input is read once, each output written once.
# We take eight operations per number.

# %%
PEAK, ACHIEVABLE, BANDWIDTH = 1307.4e12, 654e12, 5.3e12  # FLOP/s, FLOP/s, bytes per second

numbers = 1024 * 64 * 16 * 16  # images, channels, height, width
norm_flops, norm_bytes = 8 * numbers, 2 * 2 * numbers
norm_intensity = norm_flops / norm_bytes
norm_roof = min(PEAK, norm_intensity * BANDWIDTH)
layer = {"images": 1024, "channels": 128, "filters": 128, "size": 4, "filter_width": 3}
say(
    f"The normalisation: {norm_flops / 1e6:.0f} MFLOP, {norm_bytes / 1e6:.0f} MB, "
    f"**{norm_intensity:.0f} FLOP per byte**. Its roof is {norm_roof / 1e12:.1f} TFLOP/s, so it "
    f"takes at least {1e6 * norm_flops / norm_roof:.0f} µs. The knees are at "
    f"{ACHIEVABLE / BANDWIDTH:.0f} (achievable) and {PEAK / BANDWIDTH:.0f} FLOP per byte (peak)."
)

# %% [markdown]
# Now a convolution. It slides `filters` filters over the images. Each filter has `channels * filter_width**2` weights,
# and each number of the output takes a multiplication and an addition for each of them. The border is padded, so the
# output has the input's `size`, in width and in height.

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
# On a real GPU run the program once before, for MIOpen's search. The *stand-in* answers from a model of an
# MI300X: it takes operations and bytes from shapes, and times from AMD's runs. It knows nothing of caches,
# and leaves their counters out.

# %% language="bash"
# mkdir -p $FOLDER; cd $FOLDER; rm -rf workloads
# rocprof-compute profile --name all --no-roof -b 2 10 -- $CASE --max-steps 2 2>&1

# %% [markdown]
# `analyze` prints the tables; `--gui` shows them in a browser, `--tui` in the terminal (with `--experimental` from ROCm
# 7.14 on).
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
    say(f"`{text}`: {len(kept):,} of {len(launched):,} dispatches, {time:.0f} % of the time.")

# %% [markdown]
# List names first (`analyze --list-stats`, or as above). The second profile counts only convolutions and
# normalisations. `-b 2.1.4` asks for block 2, table 1, row 4; two folders make a *baseline comparison*.

# %% language="bash"
# cd $FOLDER
# rocprof-compute profile --name two --no-roof -b 2 10 -k igemm BatchNorm -- $CASE --max-steps 2 &>log
# rocprof-compute analyze -p workloads/all/* -p workloads/two/* -b 2.1.4 --max-stat-num 2 2>&1

# %%
two = own_run(lesson.folder / "workloads/two")
ways = {"each dispatch counts once": "dispatches", "sum divided by sum": "totals"}
for words, way in ways.items():
    found = [tidyprof.speed_of_light(run, average=way).set_index("metric") for run in (mine, two)]
    shares = [table.at["MFMA FLOPs (F16)", "percent"] for table in found]
    say(f"F16 share of the peak, {words}: all {shares[0]:.2f} %, the two kinds {shares[1]:.2f} %.")

# %% [markdown]
# Four numbers, and none is wrong. Up to release 3.6 the tool averages over dispatches, so that a
# copy of a few microseconds weighs as much as the longest convolution. From 3.7 (ROCm 7.14) on it divides sums. The
# repair: one kernel at a time, and the filter beside every number. Check the row's name, too: 2.1.4 is F16 on an MI300
# since ROCm 6.4.2, and F32 before that or on an MI200.

# %%
# 3 minutes: write the command, as a text, that counts blocks 2 and 10 for the forward batch normalisation alone, in two
# steps of `$CASE`. Its profile is called `norm`, without the benchmark of the roofs.
q = exercise("05.2", launched)
# solution
options = "--name norm --no-roof -b 2 10 -k BatchNormFwd"
answer = f"rocprof-compute profile {options} -- $CASE --max-steps 2"
# end solution
q.check(answer)

# %% language="bash"
# cd $FOLDER
# rocprof-compute profile --name norm --no-roof -b 2 10 -k BatchNormFwd -- $CASE --max-steps 2 &>log
# rocprof-compute analyze -p workloads/norm/* -b 2.1.0 2.1.8 2.1.23 2.1.24 --max-stat-num 1 2>&1

# %% [markdown]
# ## One kernel, from its counters to its point
#
# A vector instruction is one operation for each of the 64 work-items, a *fused multiply-add* (`FMA`) two. One count of
# `MOPS` stands for 512 operations of the matrix units. `EA` is the traffic of the *fabric*, which connects the last
# cache to the memory: a read brings 64 bytes (128 if a `BUBBLE`, or 32), a write 32 or 64. These are the counters of
# MI300A and MI300X (architecture `gfx942`); an MI200's begin with `TCC_EA_`.

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
ceilings = tidyprof.roofline_ceilings(norm)
limits = ceilings.set_index("name")["value"]
say(
    f"`{point.short_name}`: {point.calls} calls, {point.duration_ns / 1e6:.2f} ms, "
    f"{point.flops / 1e9:.2f} GFLOP, {point.hbm_bytes / 1e9:.2f} GB. It uses vector units: "
    f"the roofs are {limits['vector fp32'] / 1e12:.0f} TFLOP/s and {limits['HBM'] / 1e12:.2f} TB/s."
)

# %%
# 3 minutes: how many percent of the lower of its two roofs does this kernel reach, over all its calls? `point` has
# `flops`, `hbm_bytes` and `duration_ns`, `limits` has the roofs "vector fp32" and "HBM".
q = exercise("05.3", norm)
# solution
roof = min(limits["vector fp32"], point.flops / point.hbm_bytes * limits["HBM"])
answer = 100 * point.flops / (point.duration_ns / 1e9) / roof
# end solution
q.check(answer)

# %% [markdown]
# Which roof, and how far? Here is the point, with its backward pass, the largest convolution, and ten convolutions that
# AMD published of this training with 256 images.

# %%
layers = pd.read_csv(lesson.file("published_layers.csv"), comment="#")
its_roof = (layers["flop_per_byte"] * BANDWIDTH).clip(upper=ACHIEVABLE)
layers["rate"] = layers["pct_of_roof"] / 100 * its_roof
points = tidyprof.roofline_points(mine)
points = points[points["name"].isin(launched["name"])]
convolution = points[points["main_type"].str.startswith("matrix", na=False)].iloc[0]
backward = points[points["name"].str.contains("BatchNormBwd|batch_norm_backward")].iloc[0]
shown = {"the normalisation": point, "backward pass": backward, "largest convolution": convolution}
low, high = ACHIEVABLE / BANDWIDTH, PEAK / BANDWIDTH
for name, row in shown.items():
    share = 100 * row.flops_per_second / min(PEAK, row.hbm_intensity * BANDWIDTH)
    say(f"{name}: {row.hbm_intensity:.3g} FLOP per byte, {share:.1f} % of its roof.")
between = layers["flop_per_byte"].between(low, high).sum()
say(
    f"AMD's ten convolutions: {layers['pct_of_roof'].mean():.1f} % on average. "
    f"{between} of them lie between the knees, {low:.0f} and {high:.0f}."
)

# %%
origin = f"{mine.origin}. Hollow: recorded, MI300X, published by AMD in HPCTrainingExamples"
figure, (axes,) = new_figure(origin, height=4.6, title="Far below both roofs, with either knee")
x = np.logspace(-1, 4, 400)
axes.loglog(x, np.minimum(PEAK, x * BANDWIDTH), "k-", label=f"peak, {BANDWIDTH / 1e12:.1f} TB/s")
for look, name, rate in ("--", "achievable", ACHIEVABLE), (":", "vector", limits["vector fp32"]):
    axes.axhline(rate, color="0.3", linestyle=look, label=f"{name} {rate / 1e12:.0f} TFLOP/s")
axes.axvspan(low, high, color="0.85", label="between the two knees")
axes.plot(layers["flop_per_byte"], layers["rate"], "ko", fillstyle="none", label="AMD's, recorded")
for marker, (name, row) in zip("osD", shown.items(), strict=True):
    axes.plot(row.hbm_intensity, row.flops_per_second, marker, ms=9, mec="black", label=name)
axes.set(xlabel="intensity, FLOP per byte", ylabel="FLOP/s", xlim=(0.3, 3000), ylim=(1e11, 5e15))
axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
figure.alternative_text = f"Far below both roofs: {', '.join(shown)}, {len(layers)} recorded."
show_figure(figure)

# %% [markdown]
# A layer between the knees is compute-bound by one rate, and memory-bound by the other. But the knee says
# only which roof is above you, and at such a distance neither holds you back. What does? A workgroup runs on one
# compute unit, and a launch with few workgroups leaves most of the GPU empty. `grid` is the number of work-items, here
# in AMD's recording of this kernel:

# %%
there = proflab.recording("torch-mi300-ddp-4ranks-fused")
recorded = tidyprof.read(there.path, origin=there.origin).events.astype({"name": str})
asked = recorded[recorded["name"] == "aten::miopen_batch_norm"].set_index(["rank", "external_id"])
own = recorded[recorded["name"] == "MIOpenBatchNormFwdTrainSpatial"]
asked = asked["input_shapes"].astype(str).str.extract(r"\[\[(?P<input>[^]]*)")
own = own.join(asked, on=["rank", "external_id"])
sizes = (own[name].astype(str).str.extract(r"(\d+)")[0] for name in ("grid", "block"))
grid, block = (size.astype(int) for size in sizes)
same = own.assign(workgroups=grid // block)[own["input"].str.endswith(", 8, 8")]
groups = same.groupby(["workgroups", "input"])["duration_ns"]
groups = groups.agg(calls="size", mean_ns="mean").reset_index()
show_table(groups, "workgroups input calls mean_us", "Images of 8 x 8", origin=there.origin)
few, many = groups.iloc[0], groups.iloc[-1]
say(
    "One workgroup for each channel, and all have the same work. "
    f"{many.workgroups / few.workgroups:.0f} times the channels take "
    f"{many.mean_ns / few.mean_ns:.2f} times the time: with {few.workgroups}, at most "
    f"{few.workgroups} compute units have work. The library chose so."
)

# %% [markdown]
# ## Which block is it near to?
#
# On its way a number passes the *vL1D* cache of a compute unit (also called L1), the *L2* cache and the fabric towards
# HBM. *LDS* is a small memory inside each compute unit that a workgroup shares. The table *Speed-of-Light* (2.1)
# compares each with its peak.
#
# Here are four small kernels that were recorded on an MI300X, with the tool's own tables. Two copy the same numbers:
# once neighbouring work-items read neighbouring numbers (*coalesced*), once numbers far apart (with a *stride*). Two
# transpose a matrix through LDS. LDS of an MI300X has 32 *banks* (an MI350's has 64): number 0 lies in bank 0, number 1
# in bank 1, number 32 in bank 0 again.
# Work-items that want different numbers of one bank at once are in *conflict*, and wait for each other. The
# kernel `padded` has the cure.

# %%
copied = proflab.recording("rocprof-compute-mi300x-coalescing")
turned = proflab.recording("rocprof-compute-mi300x-bank-conflict")
kinds = {"coalesced": (copied, "coalesced"), "stride": (copied, "uncoalesced")}
kinds |= {"conflict": (turned, "conflict"), "padded": (turned, "no_conflict")}
homes = {k: there.path / f"{kind}_profile" / "MI300X_A1" for k, (there, kind) in kinds.items()}
raw = {name: pd.read_csv(home / "pmc_perf.csv") for name, home in homes.items()}
raw = pd.concat(raw).droplevel(1).copy()
files = {name: home / "analyze" / "2.1_Speed-of-Light.csv" for name, home in homes.items()}
tables = {name: pd.read_csv(file, index_col="Metric") for name, file in files.items()}
blocks = pd.read_csv(lesson.file("blocks.csv"), comment="#", index_col="metric")["block"]
percent = {name: table["Pct of Peak"] for name, table in tables.items()}
percent = pd.DataFrame(percent).join(blocks, how="inner")
nearest = percent.groupby("block", sort=False)[list(homes)].max().reset_index()
show_table(nearest, f"block {' '.join(homes)}", "Highest percent of peak", origin=copied.origin)

# %% [markdown]
# The tool draws the traffic between these levels as a *memory chart* (`-b 3`). The stride brings the fabric higher. Is
# that good news? Count bytes against what the work needs.

# %%
# 3 minutes: how many times as many bytes as the coalesced kernel does the one with the stride move through the fabric,
# reads and writes together? `raw` has a row for each kernel and a column for each counter of the section before.
q = exercise("05.4", raw)
# solution
read = 64 * (raw["TCC_EA0_RDREQ_sum"] + raw["TCC_BUBBLE_sum"]) - 32 * raw["TCC_EA0_RDREQ_32B_sum"]
written = 32 * raw["TCC_EA0_WRREQ_sum"] + 32 * raw["TCC_EA0_WRREQ_64B_sum"]
fabric = read + written
answer = fabric["stride"] / fabric["coalesced"]
# end solution
q.check(answer)

# %% [markdown]
# A higher bandwidth is no success.
#
# The transposes: in the table LDS looks idle, since its row counts the bytes that were delivered, and not the
# clocks that were lost. `SQ_LDS_IDX_ACTIVE` counts, over all compute units, the clocks in which LDS is busy, and
# `SQ_LDS_BANK_CONFLICT` those that a conflict cost.

# %%
machine = pd.read_csv(homes["conflict"] / "sysinfo.csv").iloc[0]
raw["clocks"] = raw["GRBM_GUI_ACTIVE"] / machine.num_xcd  # each of the eight chiplets counts them
raw["CUs"] = machine.cu_per_gpu
columns = "clocks CUs SQ_LDS_IDX_ACTIVE SQ_LDS_BANK_CONFLICT LDS_Per_Workgroup"
shown = raw.loc[["conflict", "padded"]].rename_axis("kernel").reset_index()
show_table(shown, f"kernel {columns}", "Counters of LDS", origin=turned.origin)

# %%
# 3 minutes: which block is the kernel `conflict` nearest to the limit of, if you take LDS by its busy clocks? Answer
# "LDS", "vL1D", "L2" or "fabric". The share of LDS is its busy clocks over clocks times compute units.
q = exercise("05.5", (raw, nearest))
# solution
kernel = raw.loc["conflict"]
shares = nearest.set_index("block")["conflict"][["vL1D", "L2", "fabric"]]
shares["LDS"] = 100 * kernel["SQ_LDS_IDX_ACTIVE"] / (kernel["clocks"] * kernel["CUs"])
answer = shares.idxmax()
# end solution
q.check(answer)

# %% [markdown]
# The cure: `padded` takes room for one number more in each row of its tile, so that the numbers of a column fall into
# different banks.

# %%
raw["ns"] = raw["End_Timestamp"] - raw["Start_Timestamp"]
change = raw.loc["padded", ["SQ_LDS_IDX_ACTIVE", "ns", "clocks"]] / raw.loc["conflict"]
say(
    f"LDS is busy for {change.SQ_LDS_IDX_ACTIVE:.2f} times the clocks. Is the kernel as much "
    f"faster? It takes {change.ns:.2f} times the time and, in another run, {change.clocks:.2f} "
    "times the clocks. LDS was the nearest block, but far from its limit: ask the time."
)

# %% [markdown]
# ## Trap: percent of which peak?
#
# AMD published a Speed-of-Light table of this very training:

# %%
table = pd.read_csv(lesson.file("published_speed_of_light.csv"), comment="#")
AMD = "recorded: an AMD Instinct MI300, release not stated, published in amd/HPCTrainingExamples"
show_table(table, "metric value unit peak pct_of_peak", "AMD's table, units per second", origin=AMD)

# %% [markdown] tags=["given"]
# Remember: a peak in GFLOP/s is a factor times compute units times the clock in GHz. The factor of the vector units
# (VALU) is 128, and the clock of MI300A and MI300X is 2.1 GHz. An MI300X has 304 compute units, an MI300A 228. And the
# peak of F16 is too high: releases before ROCm 7.0 used twice the true one for F8, F16, BF16 and INT8 on these GPUs.
# The true factor of F16 is 2048 operations per compute unit and clock.

# %%
# 2 minutes: what share of its true F16 peak, in percent, did this GPU reach? First find out which GPU it is.
q = exercise("05.6", table)
# solution
rows = table.set_index("metric")
units = rows.at["VALU FLOPs", "peak"] / (128 * 2.1)
answer = 100 * rows.at["MFMA FLOPs (F16)", "value"] / (2048 * units * 2.1)
# end solution
q.check(answer)

# %%
pi = proflab.recording("rocprof-compute-mi308x-montecarlo")
roof = pd.read_csv(pi.files["roofline.csv"])["L1Bw"].median() * 1e9  # of the eight GPUs of the node
dots = tidyprof.roofline_points(tidyprof.read(pi.path, origin=pi.origin))
above = (dots["flops_per_second"] > dots["l1_intensity"] * roof).sum()
say(f"Kernels above the L1 roof: {above}. A benchmark reached that roof once ({pi.origin}).")

# %% [markdown] tags=["given"]
# | roof | trust it? |
# | --- | --- |
# | HBM, published | as a limit; points above it can come from the 256 MB *Infinity Cache* in front of HBM |
# | L1 and L2 | yes; the *points* of kernels on MI300 and MI350 not before ROCm 7.14: rate half, intensity double |
# | peak of F8, F16, BF16, INT8 in the tables, MI300 | not before ROCm 7.0: twice too high |
# | peak of `VALU FLOPs` | without *packed* instructions, which do two numbers at once: FP32 can exceed 100 % |
#
# ## Counters of different runs
#
# A share divides one counter by another. If two runs counted them, they belong to two different launches. How much can
# launches differ? A vector copy on an MI300X, recorded in many runs:

# %%
older = proflab.recording("rocprof-compute-mi300x-vcopy")
counted = tidyprof.read(older.path).counters.query("name == 'GRBM_GUI_ACTIVE'")
times = counted.groupby("dispatch_id")["value"].agg(lambda runs: runs.max() / runs.min()).max()
say(f"Busy cycles of one launch (GRBM_GUI_ACTIVE) differ up to {times:.1f}-fold ({older.origin}).")

# %% [markdown]
# Trust counts more than what is divided by time.
# Two options count in one run: `--set NAME` (since ROCm 7.1, its metrics only), and `--iteration-multiplexing kernel`
# (since 7.12), where the launches of a kernel count by turns.
#
# ## Your turn: a recording that you have not seen
#
# A GPU of the MI200 series copies a vector of numbers three times. Its architecture is `gfx90a`: all its reads are of
# 64 bytes, or 32, and nothing counts larger ones. `roofline.csv` has a row for each GPU of the node; bandwidths are in
# 10⁹ bytes per second.

# %%
unseen = proflab.recording("rocprof-compute-mi200-vcopy")
copies, roofs = pd.read_csv(unseen.files["pmc_perf.csv"]), pd.read_csv(unseen.files["roofline.csv"])

# %%
# 4 minutes: how many percent of the measured HBM roof did the copies reach, over the three launches together? Take the
# first GPU of `roofs`, and give a tenth of a percent.
q = exercise("05.7", (copies, roofs))
# solution
total = copies.sum(numeric_only=True)
moved = 64 * total["TCC_EA_RDREQ_sum"] - 32 * total["TCC_EA_RDREQ_32B_sum"]
moved += 32 * total["TCC_EA_WRREQ_sum"] + 32 * total["TCC_EA_WRREQ_64B_sum"]
bandwidth = moved / (total["End_Timestamp"] - total["Start_Timestamp"])
answer = 100 * bandwidth / roofs["HBMBw"].iloc[0]
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: a cure by its name
#
# The case has transposes, `batched_transpose`: MIOpen turns the images to the layout that its
# convolutions want, and back. A colleague knows the cure: with `--channels-last` PyTorch keeps that layout from the
# start, and the transposes go. The model plays both:

# %%
options = case.options("05")
plain, nhwc = modelled(options), modelled(f"{options} --channels-last")
before, after = (tidyprof.kernels(modelled_trace(options + x)) for x in ("", " --channels-last"))
for title, shown in {"The case, three steps": before, "With channels last": after}.items():
    show_table(shown, "short_name calls total_ms percent", title, rows=7, origin=plain.origin)
gone = before[before["name"].str.contains("batched_transpose")]["percent"].sum()
refused = ledger.add(
    "No transposes, faster", plain.seconds, nhwc.seconds, change="channels last", origin=plain,
)  # fmt: skip
say(f"The transposes, {gone:.0f} % of the kernel time, are gone. Yet an image takes longer.")

# %%
# 2 minutes: a judgement: which kernel eats the gain? Give the name of the one whose total grew the most. Both tables
# have `name` and `total_ns`; a kernel that is missing in one of them has 0 there.
q = exercise("05.8", (before, after))
# solution
totals = [table.set_index("name")["total_ns"] for table in (before, after)]
answer = totals[1].sub(totals[0], fill_value=0).astype(float).idxmax()
# end solution
q.check(answer)

# %% [markdown]
# In this layout PyTorch does the normalisation with its own kernels, not MIOpen's. A step is a sum: look at all that
# changed.
#
# ## Decide
#
# What could a perfect kernel bring? If a part of the time takes none, the rest stays: the gain is at most
# `1 / (1 - part)` (*Amdahl's law*). Compare the first kernel with all others below 20 FLOP per byte: these mainly carry
# numbers to memory and back.


# %%
def decide(points):
    time, data = (points[name] / points[name].sum() for name in ("duration_ns", "hbm_bytes"))
    light = (points["hbm_intensity"] < 20) & (points.index != points.index[0])
    one, many = 1 / (1 - time.iloc[0]), 1 / (1 - time[light].sum())
    say(f"If the first took no time: at most {one:.2f} times, the {light.sum()} others {many:.2f}.")
    return one, 100 * time.iloc[0], 100 * data[light].sum(), "06" if many > one else "08"


gain, first_share, light_bytes, next_lesson = decide(points)
if next_lesson != "06":
    say("One kernel is the largest part: try another library for it, and prove it as in lesson 08.")
known = launched[["launch_ns", "operator"]].notna().any(axis=1).sum()
say(
    f"Who launches these others? Of {len(launched):,} counted kernels {known} know their call or "
    "operator. Kernel statistics (04) have names and sums. So neither says whether to cure the "
    "forward or the backward pass. That takes kernels, calls and ranges in one file."
)
reached_share = 100 * point.hbm_bytes / point.duration_ns * 1e9 / limits["HBM"]
proflab.reveal("05.a", norm_intensity, "by hand")
proflab.reveal("05.b", reached_share, norm)

# %%
lesson.conclude(
    f"The largest kernel, `{point.short_name}`, takes {first_share:.1f} % of the kernel time and "
    f"reaches {reached_share:.0f} % of the memory's roof. If it took no time, the gain would be "
    f"{gain:.2f} times. Of the bytes, {light_bytes:.0f} % are moved by others that hardly compute.",
    rules_out="one bad kernel",
    because=f"Which part of a step launches them? It is known for {known} of {len(launched):,}.",
    next=next_lesson,
    origin=mine.origin,
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
# | symptom | what to do |
# | --- | --- |
# {issue a-filter-that-matches-nothing-shows-everything}
# {issue several-processes-empty-tables}
# | the job hangs in a collective | profiled runs repeat: one process, no other rank |
# | "folder is not empty" from ROCm 10.0 on | add `--overwrite` |
#
# More of them, with sources, are in the [list of known issues](../docs/known-issues.md).

# %% [markdown]
# ## At work, without this course
#
# Points from your own counts or from a folder of `rocprof-compute profile`, roofs from the data sheet or from
# `roofline.csv`, and a picture:
#
# {snippet 05_roofline.py}

# %% [markdown]
# ## Key points
#
# - Count operations and bytes by hand first.
# - Far below both roofs the side of the knee explains nothing: count workgroups, look block by block.
# - A percentage needs its peak, average and filter.
# - A kernel brings at most its share of the step. A cure is judged by the step, not by its name.
#
# Next question: which part of a step launches them? Can I ask my own question?
