# %% [markdown]
# # Is this kernel near its ceiling?
#
# A kernel table says which kernel takes the time. Whether it *could* be faster is another question: you need to
# know what the GPU can do, and what the kernel asks of it. `rocprof-compute` (formerly Omniperf) lets the hardware
# count the second.
#
# After this lesson you can
#
# - draw a roofline by hand, and say which of its knees you mean;
# - compute a metric from counters, and read how near a kernel comes to which block of the hardware;
# - spot a percentage whose average, peak or filter is wrong, and a roof that is.
#
# You need lessons 00, 02 and 04. Commands hold from ROCm 7.0 to {newest rocm} (rocprof-compute 3.2.3 to
# {newest rocprof-compute}); the text says what differs elsewhere. An AMD GPU is used where there is one.

# %%
import numpy as np
import pandas as pd
import proflab
import tidyprof
from proflab import exercise, say, show_figure, show_table
from proflab.parts.memory_chart import memory_chart
from proflab.parts.steady_part import own_run
from tidyprof.plots.figure import new_figure

lesson = proflab.start("05")

# %% [markdown]
# ## The picture to keep in mind
#
# A kernel computes, and it moves data. Each has a limit, and the lower one counts:
#
# | | unit | meaning |
# | --- | --- | --- |
# | flat roof | FLOP/s, floating-point operations per second | the most that the arithmetic units can do |
# | slanted roof | bytes per second, the *bandwidth* | the most that the GPU's memory (HBM) delivers |
# | *arithmetic intensity* | FLOP per byte | what the kernel computes for each byte that it moves |
# | *knee* | FLOP per byte | the intensity where the roofs meet: flat roof divided by bandwidth |
#
# In a *roofline* plot a kernel stands at its intensity (to the right) and its FLOP/s (up). The memory's roof is
# slanted, since bytes per second times FLOP per byte are FLOP/s. Left of the knee a kernel is called *memory-bound*,
# right of it *compute-bound*.
#
# A GPU has two kinds of arithmetic units, and each has a flat roof. *Vector units* work on many single numbers at
# once, *matrix units* on small matrices, and these have the higher roof.
#
# ## Predict
#
# Batch normalisation shifts and scales its input, so that it has mean 0 and variance 1.

# %%
# solution
intensity_guess, share_guess = 50, 40
# end solution
proflab.predict("05.a", intensity_guess, unit="FLOP/byte", what="the intensity of a batch normalisation")
proflab.predict("05.b", share_guess, unit="%", what="the share of its roof that the longest matrix kernel reaches")

# %% [markdown]
# ## By hand first
#
# Everything here follows from one line, `min(peak, intensity * bandwidth)`. AMD's
# [data sheet](https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html) gives an MI300X's *peak* in half
# precision and its bandwidth. AMD also published what its best matrix products
# [reach](https://rocm.blogs.amd.com/software-tools-optimization/measuring-max-achievable-flops-part2/), the
# *achievable* rate: it is lower, since the clock falls under load.
#
# First a normalisation of a ResNet, with 256 images. Each number has two bytes. Count what *must* be done: each input
# is read once, each output written once. We take eight operations per number (mean, variance, shift, scale).

# %%
PEAK, ACHIEVABLE, BANDWIDTH = 1307.4e12, 654e12, 5.3e12  # FLOP/s, FLOP/s, bytes per second

numbers = 256 * 64 * 8 * 8  # images, channels, height, width
norm_flops, norm_bytes = 8 * numbers, 2 * 2 * numbers
norm_intensity = norm_flops / norm_bytes
norm_roof = min(PEAK, norm_intensity * BANDWIDTH)
layer = {"images": 256, "channels": 128, "filters": 128, "size": 4, "filter_width": 3}
say(
    f"The normalisation: {norm_flops / 1e6:.1f} MFLOP, {norm_bytes / 1e6:.1f} MB, **{norm_intensity:.0f} FLOP per "
    f"byte**. Its roof is {norm_roof / 1e12:.1f} TFLOP/s, {100 * norm_roof / PEAK:.1f} % of the peak, so it takes at "
    f"least {1e6 * norm_flops / norm_roof:.2f} µs. The knees are at {ACHIEVABLE / BANDWIDTH:.0f} (achievable) and "
    f"{PEAK / BANDWIDTH:.0f} (peak)."
)

# %% [markdown]
# Now a convolution. It slides `filters` filters over the images. Each filter has `channels * filter_width**2` weights,
# and each number of the output takes a multiplication and an addition for each of them. The border is padded, so the
# output has the input's `size`, in width and in height.

# %%
# 5 minutes: the intensity of this convolution, in FLOP per byte? Input and weights are read once, the output is written
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
# ## Which knee?
#
# Here are convolutions of this training on an MI300X, with times that AMD published. The same count, as columns. A
# *stride* of two moves the filter by two pixels, so the output is half as wide. The backward pass computes two
# gradients, and has twice the operations and the bytes.

# %%
layers = pd.read_csv(lesson.file("published_layers.csv"), comment="#")
PUBLISHED = "recorded: AMD Instinct MI300X, published by AMD in amd/HPCTrainingExamples; operations and bytes by hand"
passes = layers["direction"].map({"forward": 1, "backward": 2})
output = layers["images"] * layers["filters"] * np.ceil(layers["size"] / layers["stride"]) ** 2
one_filter = layers["channels"] * layers["filter_width"] ** 2
moved = layers["images"] * layers["channels"] * layers["size"] ** 2 + layers["filters"] * one_filter + output
layers["flops"], layers["bytes"] = passes * 2 * output * one_filter, passes * 2 * moved
layers["intensity"] = layers["flops"] / layers["bytes"]
columns = "letter direction channels filters size filter_width intensity duration_us"
show_table(layers, columns, "Ten convolutions of AMD's run", origin=PUBLISHED)

# %%
# 5 minutes: each layer reaches `flops` by `duration_ns`. How many percent of its own roof, with the achievable rate,
# does a layer reach on average (the plain mean of ten shares)?
q = exercise("05.2", layers)
# solution
reached = layers["flops"] / layers["duration_ns"] * 1e9
roofs = (layers["intensity"] * BANDWIDTH).clip(upper=ACHIEVABLE)
answer = (100 * reached / roofs).mean()
# end solution
q.check(answer)

# %% [markdown]
# A roofline is a plot with two logarithmic axes and a `minimum`:


# %%
def roofline(slanted, flat, origin, title, distrusted=None):
    figure, (axes,) = new_figure(origin, height=4.6, title=title)
    x = np.logspace(-5, 4, 400)
    for name, bandwidth in slanted.items():
        look = (distrusted or {}).get(name, {})
        remark = ", not to be trusted" if look else ""
        roof = np.minimum(max(flat.values()), x * bandwidth)
        axes.loglog(x, roof, **look, label=f"{name}: {bandwidth / 1e12:.2f} TB/s{remark}")
    for number, (name, rate) in enumerate(flat.items()):
        axes.axhline(rate, color="0.3", linestyle=["-", "--", "-."][number], label=f"{name}: {rate / 1e12:.0f} TFLOP/s")
    axes.set(xlabel="arithmetic intensity, FLOP per byte", ylabel="FLOP/s")
    return figure, axes


# %%
flat, low, high = {"peak": PEAK, "achievable": ACHIEVABLE}, ACHIEVABLE / BANDWIDTH, PEAK / BANDWIDTH
figure, axes = roofline({"HBM": BANDWIDTH}, flat, PUBLISHED, "All layers lie far below both roofs")
axes.axvspan(low, high, color="0.85", label="between the two knees")
rate = layers["flops"] / layers["duration_ns"] * 1e9
for direction, marker in {"forward": "o", "backward": "s"}.items():
    own = layers["direction"] == direction
    axes.plot(layers["intensity"][own], rate[own], marker, markersize=9, markeredgecolor="black", label=direction)
for number, row in layers.assign(rate=rate).iterrows():
    shift = (8, 3) if row["direction"] == "forward" else (-18, 6 if number % 2 else -12)
    axes.annotate(row["letter"], (row["intensity"], row["rate"]), shift, textcoords="offset points")
axes.set(xlim=(1, 3000), ylim=(2e11, 3e15))
axes.legend(loc="lower right", ncols=2, fontsize=9)
between = layers["intensity"].between(low, high).sum()
figure.alternative_text = (
    f"Roofline with {len(layers)} layers, the fastest at {rate.max() / 1e12:.0f} TFLOP/s, all below both roofs. The "
    f"knees are at {low:.0f} and {high:.0f} FLOP per byte, and {between} layers lie between them."
)
show_figure(figure)
say(f"{between} layers are compute-bound by the achievable rate's knee, and memory-bound by the peak's.")

# %% [markdown]
# The more important reading: all points are far below *both* roofs. AMD's workbook calls every layer right of the
# lower knee limited by compute. But the knee says only which roof is above you. At such a distance neither roof holds
# you back: perhaps the layer is too small to fill the GPU, perhaps its kernel does something else.
#
# ## Capture
#
# Hand counts are what must be done. *Counters* in the hardware say what was done. It counts only a few kinds of events
# at a time, so the tool **runs your program again for each group of counters**, and joins the runs. This is called
# *replay*, each run a *replay pass*. Hence: one process, few steps, few counters.
#
# | option | why |
# | --- | --- |
# | `--name` | folder `workloads/NAME/MODEL`, in a Slurm step `NAME/RANK` since ROCm 7.12; letters, digits and `_` |
# | `-b 2 10` | count for blocks 2 (*Speed-of-Light*: rates and peaks) and 10 (instructions); by number since ROCm 7.0 |
# | `-k TEXT` | only kernels with this in their name; capitals matter; a regular expression since ROCm 7.1 |
# | `--no-roof` | no benchmark of the GPU's roofs, which takes a while |
#
# On a real GPU run `python -m cifar_train --max-steps 2` once before, so that MIOpen's search is done, and be patient:
# the program starts anew in each pass. Without a GPU the *stand-in* answers from a model of an MI300X. It knows
# operations, memory traffic and time, and estimates other instructions. It knows nothing of caches, and leaves
# their counters out.

# %% language="bash"
# mkdir -p runs/05; cd runs/05; rm -rf workloads
# rocprof-compute profile --name all --no-roof -b 2 10 -- python -m cifar_train --max-steps 2 2>&1

# %% [markdown]
# ## First trap: an average of what?
#
# So many kernels are too many to look at. Good filters keep few dispatches with much time. Two kinds are the work
# that you counted by hand: batch normalisations, and convolutions, whose names begin with `igemm` (for *implicit
# GEMM*: the convolution is done as a matrix product). MIOpen may choose other kernels on your GPU; then take names from
# your own table of lesson 04.

# %%
mine = own_run("runs/05/workloads/all")
events = mine.events.assign(name=mine.events["name"].astype(str))
for text in ("igemm", "BatchNorm", "igemm|BatchNorm", "batch_norm"):
    kept = events[events["name"].str.contains(text)]
    time = 100 * kept["duration_ns"].sum() / events["duration_ns"].sum()
    say(f"`{text}`: {len(kept):,} of {len(events):,} dispatches, {time:.0f} % of the kernel time.")

# %% [markdown]
# The last one finds nothing, although the operator is called `miopen_batch_norm` in PyTorch. The stand-in refuses such
# a filter. Real releases have been reported to warn and go on with empty tables, or to show all kernels. So list names
# first (`analyze --list-stats`, or as above).
#
# `analyze` with two folders is a *baseline comparison*: the tool puts them side by side, the stand-in one below the
# other. Both are the same training, but the second counted only two kinds of kernels. `-b 2.1.4` asks for block 2,
# table 1, row 4.
#
# | word in the tables | meaning |
# | --- | --- |
# | CU | *compute unit*: the GPU consists of many, each with its own arithmetic units |
# | VALU, SALU, MFMA | units of a CU for vectors, for single values, for matrices |
# | VMEM | loads and stores of memory |
# | wavefront | 64 *work-items* (threads of a kernel) that run together |
# | F16, IOPs | numbers of half precision; operations on whole numbers |

# %% language="bash"
# cd runs/05; rm -rf workloads/none workloads/two
# rocprof-compute profile --name none --no-roof -b 2 -k batch_norm -- \
#     python -m cifar_train --max-steps 2 2>&1 | tail -n 1
# rocprof-compute profile --name two --no-roof -b 2 10 -k igemm BatchNorm -- \
#     python -m cifar_train --max-steps 2 > /dev/null 2>&1
# rocprof-compute analyze -p workloads/all/* -p workloads/two/* -b 2.1.4 --max-stat-num 2 2>&1

# %%
two = own_run("runs/05/workloads/two")
ways = {"each dispatch counts once": "dispatches", "sum divided by sum": "totals"}
for words, way in ways.items():
    found = [tidyprof.speed_of_light(run, average=way).set_index("metric") for run in (mine, two)]
    shares = [table.at["MFMA FLOPs (F16)", "percent"] for table in found]
    say(f"F16 share of the peak, {words}: all kernels {shares[0]:.2f} %, the two kinds {shares[1]:.2f} %.")

# %% [markdown]
# Four numbers for one training, and none is wrong. Up to release 3.6 the tool averages over dispatches, so that a
# copy of a few microseconds weighs as much as the longest convolution. From 3.7 (ROCm 7.14) on it divides sums. The
# repair: one kernel at a time (`-k`), and the filter beside every number.
#
# The number of a metric is a trap too. 2.1.4 is F16 on an MI300 since ROCm 6.4.2. Before that, and on an MI200, it is
# F32. So check the name: `rocprof-compute profile --list-metrics gfx942` lists them all. `gfx942` is the architecture
# of MI300A and MI300X.
#
# ## A point from counters
#
# Now your own kernels under the roof. One count of `MOPS` stands for 512 operations of the matrix units. A vector
# instruction is one operation for each of the 64 work-items, a *fused multiply-add* (`FMA`) two. The last lines are
# the traffic of the *fabric*, which connects the last cache to the memory: a read brings 64 bytes (or 128, or 32), a
# write 32 or 64. These are the counters of `gfx942`; an MI200's begin with `TCC_EA_`.

# %%
first = mine.counters.drop_duplicates(["dispatch_id", "name"])  # some are counted in several runs
c = first.pivot_table(index="kernel", columns="name", values="value", aggfunc="sum", observed=True)
points = tidyprof.roofline_points(mine)
if "TCC_BUBBLE_sum" in c:
    flops = 512 * c.filter(regex="MFMA_MOPS_B?F").sum(axis=1)
    flops += 64 * c.filter(regex="VALU_(ADD|MUL|TRANS)_F").sum(axis=1) + 128 * c.filter(regex="VALU_FMA_F").sum(axis=1)
    read = 64 * c["TCC_EA0_RDREQ_sum"] + 64 * c["TCC_BUBBLE_sum"] - 32 * c["TCC_EA0_RDREQ_32B_sum"]
    written = 32 * c["TCC_EA0_WRREQ_sum"] + 32 * c["TCC_EA0_WRREQ_64B_sum"]
    known = points.set_index("name").loc[c.index]
    assert np.allclose(flops, known["flops"].astype(float))
    assert np.allclose(read + written, known["hbm_bytes"].astype(float))
else:
    say("Your GPU's counters have other names: `roofline_points` knows those of MI100 to MI350.")
ceilings = tidyprof.roofline_ceilings(mine)
limits = ceilings.set_index("name")["value"]

# %%
# 6 minutes: of the matrix kernels in `points`, take the one with the most total time, the first. How many percent of
# the lower of its two roofs does it reach? Columns: `main_type`, `hbm_intensity`, `flops_per_second`. The roofs are in
# `limits`: "HBM", and one for each `main_type`.
q = exercise("05.3", mine)
# solution
top = points[points["main_type"].str.startswith("matrix", na=False)].iloc[0]
roof = min(limits[top.main_type], top.hbm_intensity * limits["HBM"])
answer = 100 * top.flops_per_second / roof
# end solution
q.check(answer)

# %%
shown = points[points["flops_per_second"] > 0].head(6)
flat = {name: limits[name] for name in ("matrix fp16", "vector fp32")}
origin = f"{mine.origin}. Roofs: {ceilings.attrs.get('ceilings', mine.origin)}"
figure, axes = roofline({"HBM": limits["HBM"]}, flat, origin, "The longest kernels that compute, as counted")
for number, row in enumerate(shown.itertuples()):
    look = {"marker": "osD^vP"[number], "markersize": 9, "markeredgecolor": "black", "linestyle": "none"}
    axes.plot(row.hbm_intensity, row.flops_per_second, **look, label=row.short_name)
axes.set(xlim=(1e-2, 3e3), ylim=(1e10, 4e15))
axes.legend(loc="lower right", fontsize=8)
longest = shown.iloc[0]
figure.alternative_text = (
    f"Roofline with {len(shown)} kernels of the training. {longest.short_name}, the longest, stands at "
    f"{longest.hbm_intensity:.2g} FLOP per byte and {longest.flops_per_second / 1e12:.2g} TFLOP/s."
)
show_figure(figure)

# %% [markdown]
# ## One metric of each kind
#
# The tool's tables hold hundreds of metrics, and few kinds. Two recordings from an MI300X have the tool's own tables
# beside the counters, so you can check each kind. Both copy the same numbers. Once neighbouring work-items read
# neighbouring numbers (*coalesced*), once they read numbers far apart (with a *stride*). A folder of `profile` is plain
# CSV: a row for each dispatch, a column for each counter (from ROCm 7.12 on a row for each counter). An MI300X has
# eight *chiplets*, pieces of silicon with their own compute units; some counters add up all of them.

# %%
there = proflab.try_recording("rocprof-compute-mi300x-coalescing")
raw = None
if there:
    folders = [there.path / kind / "MI300X_A1" for kind in ("coalesced_profile", "uncoalesced_profile")]
    raw = pd.concat([pd.read_csv(folder / "pmc_perf.csv") for folder in folders], ignore_index=True)
    raw.index = ["coalesced", "stride"]
    tool = [pd.read_csv(folder / "analyze" / "2.1_Speed-of-Light.csv", index_col="Metric") for folder in folders]
    machine = pd.read_csv(folders[0] / "sysinfo.csv").iloc[0]
    size = f"{machine.cu_per_gpu} CUs at {machine.max_sclk} MHz on {machine.num_xcd} chiplets"
    say(f"The GPU: {size}.")

# %%
if there:
    ns = raw["End_Timestamp"] - raw["Start_Timestamp"]
    clocks = raw["GRBM_GUI_ACTIVE"] / machine.num_xcd  # the counter adds up the chiplets
    by_hand = {
        "VALU IOPs": 64 * (raw["SQ_INSTS_VALU_INT32"] + raw["SQ_INSTS_VALU_INT64"]) / ns,
        "L2-Fabric Write BW": (32 * raw["TCC_EA0_WRREQ_sum"] + 32 * raw["TCC_EA0_WRREQ_64B_sum"]) / ns,
        "VALU Utilization": 100 * raw["SQ_ACTIVE_INST_VALU"] / clocks / machine.cu_per_gpu,
        "L2 Cache Hit Rate": 100 * raw["TCC_HIT_sum"] / (raw["TCC_HIT_sum"] + raw["TCC_MISS_sum"]),
        "L2-Fabric Read Latency": raw["TCC_EA0_RDREQ_LEVEL_sum"] / raw["TCC_EA0_RDREQ_sum"],
    }
    for name, values in by_hand.items():
        assert np.allclose(values, [table.at[name, "Avg"] for table in tool], rtol=0, atol=0.006), name
    compared = pd.DataFrame(by_hand).T.map("{:,.2f}".format).rename_axis("metric").reset_index()
    compared["kind"] = ["rate", "bandwidth", "share of the clocks", "share of the requests", "latency"]
    compared["unit"] = tool[0].loc[compared["metric"], "Unit"].to_numpy()
    title = "Five kinds, by hand and as the tool prints them"
    show_table(compared, "kind metric coalesced stride unit", title, origin=there.origin)

# %% [markdown]
# A *rate* or a *bandwidth* divides a count by the time: per nanosecond is the same as 10⁹ per second. A *share* divides
# a count by the most that was possible. A *latency* adds up, clock by clock, how many requests are under way, and
# divides by their number.
#
# The fifth kind needs no hardware at all: a *peak* is a factor times compute units times clock. And the *instruction
# mix* (block 10) divides by wavefronts:

# %%
if there:
    per_wave = (raw["SQ_INSTS_VALU"] - raw["SQ_INSTS_MFMA"]) / raw["SQ_WAVES"]
    tables = [folder / "analyze" / "10.1_Overall_Instruction_Mix.csv" for folder in folders]
    mix = [pd.read_csv(table, index_col="Metric") for table in tables]
    assert np.allclose(per_wave, [table.at["VALU", "Avg"] for table in mix])
    vector_peak = 128 * machine.cu_per_gpu * machine.max_sclk / 1000
    assert np.isclose(vector_peak, tool[0].at["VALU IOPs", "Peak"])
    say(
        f"Vector instructions of a wavefront: {per_wave.iloc[0]:.0f} and {per_wave.iloc[1]:.0f}. The second kernel "
        f"computes more addresses. The durations: {ns.iloc[0] / 1e3:.1f} and {ns.iloc[1] / 1e3:.1f} µs. L2's hit "
        "rate is about half in both, as each line of the cache is asked for about twice. It says nothing of how many: "
        f"the second kernel misses {raw['TCC_MISS_sum'].iloc[1] / raw['TCC_MISS_sum'].iloc[0]:.0f} times as often."
    )

# %% [markdown]
# ## Speed-of-Light, block by block
#
# On its way a number passes the *vL1D* cache of a compute unit (also called L1), the *L2* cache of a chiplet, and the
# fabric towards HBM. Each has its own peak. Which one is a kernel near to? `blocks.csv` beside this lesson says which
# metric belongs to which block; latencies and hit rates are no share of a speed.

# %%
if there:
    blocks = pd.read_csv(lesson.file("blocks.csv"), comment="#", index_col="metric")["block"]
    percent = pd.DataFrame({name: table["Pct of Peak"] for name, table in zip(raw.index, tool, strict=True)})
    percent = percent.join(blocks, how="inner")
    nearest = percent.groupby("block", sort=False)[["coalesced", "stride"]].max().iloc[::-1]
    title = f"Neither kernel brings a block above {np.ceil(nearest.max().max()):.0f} % of its peak"
    figure, (axes,) = new_figure(str(there.origin), height=3.4, title=title)
    nearest.plot.barh(ax=axes, color=["#56b4e9", "#e69f00"], edgecolor="black", width=0.7)
    axes.set(xlabel="percent of the block's peak (its highest metric)", ylabel="", xlim=(0, 100))
    worst = nearest["stride"].idxmax()
    figure.alternative_text = (
        f"Pairs of bars for {len(nearest)} blocks of the hardware. With the stride the highest is {worst}, at "
        f"{nearest['stride'].max():.1f} % of its peak."
    )
    show_figure(figure)

# %% [markdown]
# With so little work no block is near its limit: the kernel waits for answers. But a higher bar is not always good
# news. What does the stride's go for?

# %%
# 6 minutes: how many times as many bytes as the coalesced kernel does the other one move through the fabric, reads and
# writes together? The formulas stand in "A point from counters"; `raw` has a row for each kernel.
q = exercise("05.4", raw)
# solution
if there:
    read = 64 * raw["TCC_EA0_RDREQ_sum"] + 64 * raw["TCC_BUBBLE_sum"] - 32 * raw["TCC_EA0_RDREQ_32B_sum"]
    written = 32 * raw["TCC_EA0_WRREQ_sum"] + 32 * raw["TCC_EA0_WRREQ_64B_sum"]
    fabric = read + written
    answer = fabric["stride"] / fabric["coalesced"]
# end solution
q.check(answer)

# %% [markdown]
# The tool draws such traffic as a *memory chart* (`analyze -p FOLDER -b 3`). Here is one for both kernels. A look-up in
# vL1D counts as a line of 128 bytes, as in the tool. How much of a line was used no counter says.

# %%
if there:
    needed = 2 * 4 * raw["Grid_Size"]  # each work-item reads and writes a number of four bytes
    links = pd.DataFrame(
        {
            "LDS": 4 * machine.lds_banks_per_cu * (raw["SQ_LDS_IDX_ACTIVE"] - raw["SQ_LDS_BANK_CONFLICT"]),
            "vL1D": 128 * raw["TCP_TOTAL_CACHE_ACCESSES_sum"],
            "L2": 128 * raw["TCP_TCC_READ_REQ_sum"] + 64 * raw["TCP_TCC_WRITE_REQ_sum"],
            "fabric": 64 * (raw["TCC_EA0_RDREQ_sum"] + raw["TCC_BUBBLE_sum"])
            + 32 * (raw["TCC_EA0_WRREQ_sum"] + raw["TCC_EA0_WRREQ_64B_sum"]),
        }
    )
    most = (links["L2"] / needed).max()
    title = f"The same copy, and up to {most:.0f} times the bytes that it needs between vL1D and L2"
    show_figure(memory_chart(links, needed.iloc[0], str(there.origin), title))

# %% [markdown]
# A higher bandwidth is no success: the kernel with the stride reads faster, and most of what it reads is thrown away.
# Count bytes against what the work needs.
#
# ## The local data share
#
# *LDS*, the local data share, is a memory inside each compute unit that the work-items of a group share. It has 32
# *banks*: number 0 lies in bank 0, number 1 in bank 1, number 32 in bank 0 again. Two work-items that want different
# numbers of one bank at once are in *conflict*, and wait for each other. Two recordings transpose a matrix through LDS:
# one reads columns of a tile of 32 by 32 numbers, so that all want the same bank, the other one has no conflict.

# %%
found = proflab.try_recording("rocprof-compute-mi300x-bank-conflict")
lds = None
if found:
    homes = [found.path / kind / "MI300X_A1" for kind in ("conflict_profile", "no_conflict_profile")]
    lds = pd.concat([pd.read_csv(home / "pmc_perf.csv") for home in homes], ignore_index=True)
    columns = "SQ_INSTS_LDS SQ_LDS_IDX_ACTIVE SQ_LDS_BANK_CONFLICT LDS_Per_Workgroup"
    shown = lds[columns.split()].assign(kernel=["conflict", "no conflict"])
    show_table(shown, f"kernel {columns}", "Counters of LDS", origin=found.origin)

# %%
# 5 minutes: `SQ_LDS_IDX_ACTIVE` counts the clocks in which LDS works on accesses, `SQ_LDS_BANK_CONFLICT` those of them
# that a conflict cost. How many clocks does a conflict cost for each clock that an access would take without one?
# Answer for the first kernel; the tool calls it "LDS Bank Conflicts/Access".
q = exercise("05.5", lds)
# solution
if found:
    kernel = lds.iloc[0]
    useful = kernel["SQ_LDS_IDX_ACTIVE"] - kernel["SQ_LDS_BANK_CONFLICT"]
    answer = kernel["SQ_LDS_BANK_CONFLICT"] / useful
# end solution
q.check(answer)

# %%
if found:
    stats = [pd.read_csv(home / "analyze" / "12.2_LDS_Stats.csv", index_col="Metric")["Avg"] for home in homes]
    assert np.isclose(lds["SQ_LDS_BANK_CONFLICT"].iloc[0] / lds["SQ_WAVES"].iloc[0], stats[0]["Bank Conflict"])
    lasted = (lds["End_Timestamp"] - lds["Start_Timestamp"]) / 1e3
    say(
        f"An LDS access takes {stats[0]['LDS Latency']:.0f} clocks with conflicts, {stats[1]['LDS Latency']:.0f} "
        f"without. And the kernel? {lasted.iloc[0]:.1f} against {lasted.iloc[1]:.1f} µs. That is one launch of each, "
        "so it can't be told whether the difference is more than noise. The cure shows in the table: the second kernel "
        f"takes {lds['LDS_Per_Workgroup'].iloc[1]:,} bytes for a tile instead of {lds['LDS_Per_Workgroup'].iloc[0]:,}, "
        "which is room for one number more in each row. So the numbers of a column fall into different banks."
    )

# %% [markdown]
# ## Second trap: percent of which peak?
#
# AMD published a Speed-of-Light table of this very training:

# %%
table = pd.read_csv(lesson.file("published_speed_of_light.csv"), comment="#")
AMD = "recorded: an AMD Instinct MI300, release not stated, published in amd/HPCTrainingExamples"
show_table(table, "metric value unit peak pct_of_peak", "AMD's table, as printed (units are per second)", origin=AMD)

# %% [markdown] tags=["given"]
# Remember: a peak in GFLOP/s is a factor times compute units times the clock in GHz. The factor of the vector units
# (VALU) is 128, and the clock of MI300A and MI300X is 2.1 GHz. An MI300X has 304 compute units, an MI300A 228. And the
# peak of F16 is too high: releases before ROCm 7.0 used twice the true one for F8, F16, BF16 and INT8 on these GPUs.
# The true factor of F16 is 2048 operations per compute unit and clock.

# %%
# 5 minutes: what share of its true F16 peak, in percent, did this GPU reach? First find out which GPU it is.
q = exercise("05.6", table)
# solution
rows = table.set_index("metric")
units = rows.at["VALU FLOPs", "peak"] / (128 * 2.1)
answer = 100 * rows.at["MFMA FLOPs (F16)", "value"] / (2048 * units * 2.1)
# end solution
q.check(answer)

# %% [markdown]
# ## Roofs that were measured, and which not to trust
#
# Without `--no-roof` the tool runs a benchmark and keeps what it reached, in `roofline.csv`. Such roofs are what this
# GPU did that day, and they make another knee. Here a GPU of the same family, an MI308X, estimates π. Each kernel has
# a point for each memory level, since it moves other bytes at each.

# %%
there_too = proflab.try_recording("rocprof-compute-mi308x-montecarlo")
if there_too:
    reached = pd.read_csv(there_too.files["roofline.csv"]).median()  # of the eight GPUs of the node
    slanted = {level: 1e9 * reached[f"{level}Bw"] for level in ("HBM", "L2", "L1")}
    flat = {"matrix fp16": 1e9 * reached["MFMAF16Flops"], "vector fp32": 1e9 * reached["FP32Flops"]}
    dots = tidyprof.roofline_points(tidyprof.read(there_too.path, origin=there_too.origin))
    dots = dots.set_index("short_name").filter(regex="intensity|flops_per").astype(float).query("flops_per_second > 0")
    above = dots.index[dots["flops_per_second"] > dots["l1_intensity"] * slanted["L1"]]
    title = "The L1 roof is no higher than L2's, so neither is to be trusted"
    looks = {"L2": {"linewidth": 7, "alpha": 0.3}, "L1": {"linestyle": "--"}}
    figure, axes = roofline(slanted, flat, str(there_too.origin), title, looks)
    for level, marker in {"hbm": "o", "l2": "s", "l1": "^"}.items():
        style = {"markeredgecolor": "black", "label": f"kernels, by their {level.upper()} traffic"}
        axes.plot(dots[f"{level}_intensity"], dots["flops_per_second"], marker, **style)
    axes.set(xlim=(3e-5, 1e3), ylim=(1e6, 1e15))
    axes.legend(loc="lower right", ncols=2, fontsize=8)
    for _, row in dots.loc[above].iterrows():
        place, arrow = (row["l1_intensity"], row["flops_per_second"]), {"arrowstyle": "->"}
        axes.annotate("above the L1 roof", place, (5e-4, 2e11), arrowprops=arrow)
    figure.alternative_text = (
        f"Roofline of the {len(dots)} kernels that compute with floating-point numbers, and three slanted roofs. L1's, "
        f"{slanted['L1'] / 1e12:.2f} TB/s, is dashed "
        f"and below L2's, {slanted['L2'] / 1e12:.2f}. Above L1's: {', '.join(above)}."
    )
    show_figure(figure)

# %%
if there_too:
    unmeasured = [name for name in reached.index if reached[name] == 0 and name.endswith(("Flops", "Ops"))]
    say(
        f"Above the L1 roof, where no kernel can be: {', '.join(f'`{name}`' for name in above)}. And "
        f"{', '.join(f'`{name}`' for name in unmeasured)} are 0 in the file: not measured, no roof either. HBM reached "
        f"{slanted['HBM'] / 1e12:.2f} TB/s. The data sheet's {BANDWIDTH / 1e12:.1f} are an MI300X's, and the file "
        "doesn't say what kept this GPU so far below: a measured roof is what that benchmark reached, no limit."
    )
peak = tidyprof.speed_of_light(mine).set_index("metric").at["VALU FLOPs", "peak"] / 1e3
if there:
    vector = pd.read_csv(folders[0] / "roofline.csv")["FP32Flops"].iloc[0] / 1e3
    say(
        f"And for `VALU FLOPs` the tool divides by {vector_peak / 1e3:.1f} TFLOP/s on an MI300X. But its vector units "
        f"reached {vector:.1f} TFLOP/s in FP32 ({there.origin}), {100 * vector / (vector_peak / 1e3):.0f} % of that "
        '"peak": it leaves out *packed* instructions, which work on two numbers at once.'
    )

# %% [markdown] tags=["given"]
# | roof | trust it? |
# | --- | --- |
# | HBM, published | as a limit; points above it can come from the 256 MB *Infinity Cache* in front of HBM |
# | HBM, measured | as what the benchmark reached; far below the published one, ask why before you use it |
# | L1 and L2 | yes; the *points* of kernels on MI300 and MI350 not before ROCm 7.14: rate half, intensity double |
# | matrix F16, measured or published | yes |
# | peak of F8, F16, BF16, INT8 in the tables, MI300 | not before ROCm 7.0: twice too high |
# | peak of `VALU FLOPs` | without packed instructions: FP32 can exceed 100 % |
#
# ## Counters of different runs
#
# A share divides one counter by another. If they were counted in two passes, they belong to two different launches.
# How much can launches differ? A vector copy on an MI300X, recorded in many passes:

# %%
older = proflab.try_recording("rocprof-compute-mi300x-vcopy")
if older:
    counted = tidyprof.read(older.path).counters.query("name == 'GRBM_GUI_ACTIVE'")
    cycles = counted.groupby("dispatch_id")["value"].agg(runs="count", least="min", most="max").reset_index()
    show_table(cycles, "dispatch_id runs least most", "Busy cycles (GRBM_GUI_ACTIVE) of a launch", origin=older.origin)
    say(f"The same counter of the same launch differs by a factor of up to {(cycles.most / cycles.least).max():.1f}.")

# %% [markdown]
# That is nearly the number of chiplets: one run may have added them up, and another not. The file doesn't say, so
# compare runs before you divide by such a counter.
#
# Training can be worse than a copy. If images come in another order, or MIOpen's search ends with another kernel, the
# third launch of one run is not that of the next. Fix the seed of random numbers, let MIOpen search before, and trust
# counts (bytes, operations) more than what is divided by time or cycles.
#
# ## One run instead of many
#
# The tool has two answers to replay, and each has its price:
#
# | option of `profile` | since | counts in one run, since | price |
# | --- | --- | --- | --- |
# | `--set NAME` (`--list-sets`: which) | ROCm 7.1 | the counters of a set fit together | its metrics only, no `-b` |
# | `--iteration-multiplexing kernel` | 7.12 | launches of a kernel count by turns | many launches, all alike |
#
# Which sets your release has, from ROCm 7.1 on:

# %% language="bash"
# rocprof-compute profile --list-sets 2>&1 | head -n 20

# %% [markdown]
# By turns: the first launch of a kernel counts one group of counters, the second one the next. This is for long runs,
# and for programs that can't be repeated; a kernel with fewer launches than groups stays incomplete. Without a word
# behind the option only launches of equal size (grid, workgroup, LDS) take turns with each other.

# %%
groups = mine.meta["replay_passes"]
launches = events.groupby("name")["duration_ns"].agg(["size", "sum"])
enough = launches[launches["size"] >= groups]
say(
    f"Your first command, with `-b 2 10`, ran the training for {groups} groups of counters. In its two steps "
    f"{len(enough)} of {len(launches)} kernel names are launched that often; they have "
    f"{100 * enough['sum'].sum() / launches['sum'].sum():.0f} % of the kernel time."
)

# %% [markdown]
# Which *operator* do the counters belong to? With `--torch-trace` (since ROCm 7.12, experimental; from 10.2 on it needs
# PyTorch 2.13) the tool notes the operator of each kernel, and `analyze` lists them:
#
# ```bash
# rocprof-compute profile --name operators --no-roof --experimental --torch-trace -- python train.py
# rocprof-compute analyze --experimental --list-torch-operators -p workloads/operators/*
# ```
#
# ## Your turn: a recording that you have not seen
#
# A GPU of the MI200 series copies a vector of numbers three times. Its architecture is `gfx90a`: all its reads are of
# 64 bytes, or 32, and nothing counts larger ones. `roofline.csv` has a row for each GPU of the node; bandwidths are in
# 10⁹ bytes per second.

# %%
unseen = proflab.try_recording("rocprof-compute-mi200-vcopy")
if unseen:
    copies, roofs = pd.read_csv(unseen.files["pmc_perf.csv"]), pd.read_csv(unseen.files["roofline.csv"])
    found = copies.filter(regex="TCC_EA_.*REQ(_32B|_64B)?_sum").columns
    say("Sums over the fabric: " + ", ".join(f"`{name}`" for name in found))

# %%
# 8 minutes: over the three launches together (sum divided by sum), how many percent of the measured HBM roof did the
# copies reach? Take the first GPU of `roofs`.
q = exercise("05.7", (copies, roofs) if unseen else None)
# solution
if unseen:
    total = copies.sum(numeric_only=True)
    moved = 64 * total["TCC_EA_RDREQ_sum"] - 32 * total["TCC_EA_RDREQ_32B_sum"]
    moved += 32 * total["TCC_EA_WRREQ_sum"] + 32 * total["TCC_EA_WRREQ_64B_sum"]
    bandwidth = moved / (total["End_Timestamp"] - total["Start_Timestamp"])
    answer = 100 * bandwidth / roofs["HBMBw"].iloc[0]
# end solution
q.check(answer)

# %% [markdown]
# ## Decide
#
# Distance first, side of the knee second. To *fuse* kernels means to do their work in one, so that what lies between
# them need not go through memory. A change that follows goes into the ledger (lesson 03), measured without the tool.


# %%
def decide(row):
    flat, slanted = limits.get(row.main_type, float("inf")), row.hbm_intensity * limits["HBM"]
    share = 100 * row.flops_per_second / min(flat, slanted)
    near = "move fewer bytes (fuse it)" if slanted < flat else "use fewer or cheaper operations"
    far = "neither roof: more work per launch (larger batch, fusion), or another kernel"
    say(f"`{row.short_name}`: {share:.0f} % of the roof above it. Next: {near if share > 50 else far}.")
    return share


reached_share = decide(points[points["main_type"].str.startswith("matrix", na=False)].iloc[0])
decide(points[points["name"].str.contains("batch_?norm", case=False)].iloc[0])
proflab.reveal("05.a", norm_intensity, "by hand")
proflab.reveal("05.b", reached_share, mine)

# %% [markdown]
# ## What this view cannot see
#
# It sees kernels one at a time: no host, no queue, no other stream, no collectives. Times under the counters are no
# times of the training. *Wavefront Occupancy*, how many wavefronts are on the GPU at once, is not reliable for short
# kernels, and this training has hardly any other.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# {issue a-filter-that-matches-nothing-shows-everything}
# {issue several-processes-empty-tables}
# | the job hangs in a collective | profiled runs repeat: one process, no other rank |
# {issue rocprof-compute-asks-for-python-packages}
# | "folder is not empty" from ROCm 10.0 on | add `--overwrite` |
# {issue folders-of-an-older-release-are-refused}
# | arguments of the program are refused | older releases: put the command into a script |
#
# More of them, with sources, are in the [list of known issues](../docs/known-issues.md).

# %% [markdown]
# ## At work, without this course
#
# Points from your own counts or from a folder of `rocprof-compute profile`, roofs from the data sheet or from
# `roofline.csv`, and a picture for the report:
#
# {snippet 05_roofline.py}
#
# Read on: [AMD's manual of rocprof-compute](https://rocm.docs.amd.com/projects/rocprofiler-compute/en/latest/).

# %% [markdown]
# ## Key points
#
# - Count operations and bytes by hand first; the counters then tell what was done beyond that.
# - State the knee: peak, achievable or measured. Far below both roofs the side of the knee explains nothing.
# - A percentage needs its peak, its average and its filter. A roof needs a reason to be trusted.
# - The program runs once per group of counters: few steps, few kernels, few blocks.
#
# Next question: can I ask my own question?
