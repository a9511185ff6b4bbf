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
# - profile few kernels with few counters, and read how near they come to the roofs;
# - spot a percentage whose average, peak or filter is wrong.
#
# You need lessons 00, 02 and 04, and about an hour. Commands hold for ROCm 7.0 to 7.2 (rocprof-compute 3.2 to 3.4);
# the text says what differs elsewhere. An AMD GPU is used where there is one.

# %%
import proflab
import tidyprof
from proflab import exercise, say, show_figure, show_table
from proflab.parts.instruction_mix import instructions_per_wave, mix_table
from proflab.parts.memory_traffic import memory_traffic, traffic_figure
from proflab.parts.roofline_by_hand import BANDWIDTH, Convolution, knees, knees_figure, published_layers, roofs_above
from proflab.parts.steady_part import own_run
from tidyprof import plots

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
# Take two layers of the ResNet with batches of 256 images. Each number has two bytes. Count what *must* be done: each
# input is read once, each output written once. For a normalisation we take eight operations per number (mean,
# variance, shift, scale).

# %%
numbers = 256 * 64 * 8 * 8  # images, channels, height, width
norm_intensity = 8 * numbers / (2 * 2 * numbers)
layer = Convolution(images=256, channels=256, filters=256, size=2, filter_width=3)
say(
    f"The normalisation: {8 * numbers / 1e6:.1f} MFLOP, {4 * numbers / 1e6:.1f} MB, **{norm_intensity:.0f} FLOP per "
    f"byte**. The memory needs {1e6 * 4 * numbers / BANDWIDTH:.2f} µs for it. The convolution: `{layer}`"
)

# %%
# 5 minutes: the intensity of this convolution, in FLOP per byte? A multiplication and an addition are two operations.
# The border is padded, so the output has the same `size`. Use `layer.images`, `layer.channels`, ..., `layer.weights`.
q = exercise("05.1", layer)
# solution
outputs = layer.images * layer.filters * layer.size**2
flops = 2 * outputs * layer.channels * layer.filter_width**2
answer = flops / (2 * (layer.images * layer.channels * layer.size**2 + layer.weights + outputs))
# end solution
q.check(answer)

# %% [markdown]
# ## Which knee?
#
# The data sheet gives a *peak* rate. AMD also publishes what its best matrix products reach, the *achievable* rate:
# it is lower, since the clock falls under load. Below are convolutions of this training on an MI300X, with times that
# AMD published. The table names the size of the filter, then that of the image.

# %%
layers = published_layers()
flat_roofs = knees().assign(**{"TFLOP/s": knees()["flops_per_second"] / 1e12})
show_table(flat_roofs, "rate TFLOP/s knee", "Two flat roofs of an MI300X, two knees (FLOP per byte)")
show_table(layers, "letter layer direction intensity duration_us percent", "Share of the roof (achievable rate)")
show_figure(knees_figure(layers, title=f"The best layer reaches {layers['percent'].max():.1f} % of its roof"))

# %%
# 4 minutes: how many of these layers are compute-bound by one knee and memory-bound by the other?
q = exercise("05.2", layers)
# solution
low, high = sorted(knees()["knee"])
answer = layers["intensity"].between(low, high).sum()
# end solution
q.check(answer)

# %% [markdown]
# The more important reading: all points are far below *both* roofs. AMD's workbook calls every layer right of the
# lower knee limited by compute. But the knee says only which roof is above you. At such a distance neither roof holds
# you back: perhaps the layer is too small to fill the GPU, perhaps its kernel does something else.
#
# ## Capture
#
# Hand counts are what must be done. *Counters* in the hardware say what was done. It counts only a few kinds of events
# at a time, so the tool **runs your program again for each group of counters**, and joins the runs. This is called
# *replay*, each run a *pass*. Hence: one process, few steps, few counters.
#
# | option | why |
# | --- | --- |
# | `--name` | folder `workloads/NAME/MODEL`; no `-` or `.` in it |
# | `-b 2 10` | count for blocks 2 (*Speed-of-Light*: rates and peaks) and 10 (instructions); by number since ROCm 7.0 |
# | `-k TEXT` | only kernels with this in their name; capitals matter |
# | `--no-roof` | no benchmark of the GPU's roofs, which takes a while |
# | `--format-rocprof-output csv` | always name it: the default is `rocpd` from ROCm 7.12; no `csv` from 10.1 |
#
# On a real GPU run `python -m cifar_train --max-steps 2` once before, so that MIOpen's search is done, and be patient:
# the program starts anew in each pass. MIOpen may choose other kernels there; if none has `igemm` in its name, take one
# from your table of lesson 04.
#
# Without a GPU the *stand-in* answers from a model of an MI300X. It knows operations, memory traffic and time, and
# estimates other instructions. It knows nothing of caches, and leaves their counters out.

# %% language="bash"
# mkdir -p runs/05; cd runs/05
# rocprof-compute profile --name all --no-roof -b 2 10 --format-rocprof-output csv -- \
#     python -m cifar_train --max-steps 2
# rocprof-compute profile --name two --no-roof -b 2 10 --format-rocprof-output csv -k igemm BatchNorm -- \
#     python -m cifar_train --max-steps 2 > /dev/null 2>&1

# %% [markdown]
# ## First look, first trap: an average of what?
#
# `analyze` with two folders is a *baseline comparison*: the tool puts them side by side, the stand-in one below the
# other. Both are the same training, but the second counted only convolutions (`igemm`, an implicit matrix product) and
# batch normalisations. `-b 2.1.4` asks for block 2, table 1, row 4. Since rocprof-compute 3.3 (ROCm 7.1) such a
# comparison shows only the metrics that both folders have, and no column `Metric ID`.
#
# | word in the tables | meaning |
# | --- | --- |
# | CU | *compute unit*: the GPU consists of many, each with its own arithmetic units |
# | VALU, SALU, MFMA | units of a CU for vectors, for single values, for matrices |
# | VMEM | loads and stores of memory |
# | wavefront | 64 *work-items* (threads of a kernel) that run together |
# | F16, IOPs | numbers of half precision; operations on whole numbers |
# | L2-Fabric BW | bytes per second between L2, a cache that many compute units share, and the memory |

# %% language="bash"
# cd runs/05
# rocprof-compute analyze -p workloads/all/* -p workloads/two/* -b 2.1.4 --max-stat-num 2

# %%
mine, two = own_run("runs/05/workloads/all"), own_run("runs/05/workloads/two")
ways = {"each dispatch counts once": "dispatches", "sum divided by sum": "totals"}
for words, way in ways.items():
    found = [tidyprof.speed_of_light(run, average=way).set_index("metric") for run in (mine, two)]
    shares = [table.at["MFMA FLOPs (F16)", "percent"] for table in found]
    say(f"F16 share of the peak, {words}: all kernels {shares[0]:.2f} %, the two kinds {shares[1]:.2f} %.")
speed = tidyprof.speed_of_light(two)
known = speed[speed["percent"] > 0]
show_table(known, "metric value unit peak percent", "Speed-of-Light of the two kinds: what is more than 0")
say(f"{speed['value'].isna().sum()} of {len(speed)} metrics have no value: the folder lacks their counters.")

# %% [markdown]
# Four numbers for one training, and none is wrong. Up to release 3.6 the tool averages over dispatches, so that a
# copy of a few microseconds weighs as much as the longest convolution. From 3.7 on it divides sums. The
# repair: one kernel at a time (`-k`), and the filter beside every number.
#
# The number of a metric is a trap too. 2.1.4 is F16 on an MI300 since ROCm 6.4.2. Before that, and on an MI200, it is
# F32. So check the name: `rocprof-compute profile --list-metrics gfx942` lists them all. `gfx942` is the architecture
# of MI300A and MI300X.
#
# Second trap: in PyTorch the operator is `miopen_batch_norm`, so why not filter for that?

# %% language="bash"
# cd runs/05
# rocprof-compute profile --name none --no-roof -b 2 --format-rocprof-output csv -k batch_norm -- \
#     python -m cifar_train --max-steps 2 2>&1 | tail -n 1

# %% [markdown]
# The stand-in refuses. Real releases have been reported to warn and go on with empty tables, or to show all
# kernels. So list names first (`analyze --list-stats`, or lesson 04), filter, then count:

# %%
rows = [(name, len(run.events), run.events["name"].nunique()) for name, run in {"all": mine, "two": two}.items()]
say("; ".join(f"`{name}`: {dispatches:,} dispatches, {names} kernels" for name, dispatches, names in rows) + ".")
points, ceilings = tidyprof.roofline_points(mine), tidyprof.roofline_ceilings(mine)
title = "Three kernels of the training, as counted"
show_figure(plots.roofline(tidyprof.roofline_points(two), ceilings, levels=("hbm",), n=3, title=title))

# %%
# 6 minutes: of the matrix kernels in `points`, take the one with the most total time, the first. How many percent of
# the lower of its two roofs does it reach? Columns: `main_type`, `hbm_intensity`, `flops_per_second`. See `ceilings`.
q = exercise("05.3", mine)
# solution
top = points[points["main_type"].str.startswith("matrix", na=False)].iloc[0]
limits = ceilings.set_index("name")["value"]
answer = 100 * top.flops_per_second / min(limits[top.main_type], top.hbm_intensity * limits["HBM"])
# end solution
q.check(answer)

# %% [markdown]
# ## Counters of different runs
#
# A utilisation divides one counter by another. If they were counted in two passes, they belong to two different
# launches. How much can launches differ? Two recordings of a vector copy on an MI300X:

# %%
say(f"Two blocks take {mine.meta['replay_passes']} runs of the program. (In a modelled file all runs are alike.)")
newer, older = map(proflab.try_recording, ("rocprof-compute-mi300x-vcopy-rocpd", "rocprof-compute-mi300x-vcopy"))
if newer and older:
    timed = tidyprof.read(newer.path, origin=newer.origin)
    columns = "dispatch_id replays shortest_us duration_us longest_us"
    show_table(timed.events, columns, "Each dispatch, timed in every run of the program", origin=newer.origin)
    cycles = tidyprof.read(older.path).counters.query("name == 'GRBM_GUI_ACTIVE'").groupby("dispatch_id")["value"]
    table = cycles.agg(runs="count", least="min", most="max").reset_index()
    show_table(table, "dispatch_id runs least most", "Busy cycles (GRBM_GUI_ACTIVE) of a dispatch", origin=older.origin)
    times = timed.events["longest_ns"] / timed.events["shortest_ns"]
    say(
        f"Between runs the duration of the same dispatch differs by a factor of up to {times.max():.1f}, the same "
        f"counter by up to {(table['most'] / table['least']).max():.1f}."
    )

# %% [markdown]
# An MI300X consists of eight *chiplets*, pieces of silicon with their own compute units. The cycles differ by nearly
# that factor: one run may have added up the chiplets, and another not. The file doesn't say, so compare runs before
# you divide by such a counter.
#
# Training can be worse than a copy. If images come in another order, or MIOpen's search ends with another kernel, the
# third launch of one run is not that of the next. Fix the seed of random numbers, let MIOpen search before, and trust
# counts (bytes, operations) more than what is divided by time or cycles.
#
# ## Third trap: percent of which peak?
#
# AMD published a Speed-of-Light table of this very training:

# %%
from proflab.parts.published_speed_of_light import INSTRUCTIONS_PER_WAVE, published_speed_of_light

table = published_speed_of_light()
show_table(table, "metric value unit peak pct_of_peak", "AMD's table, as printed (units are per second)")

# %% [markdown] tags=["given"]
# The peaks tell two things. A peak in GFLOP/s is a factor times compute units times the clock in GHz. The factor of
# the vector units (VALU) is 128, and the clock of MI300A and MI300X is 2.1 GHz: so this GPU has 228 compute units. It
# is an MI300A; an MI300X has 304. And the peak of F16 is too high: releases before ROCm 7.0 used twice the true one for
# F8, F16, BF16 and INT8 on these GPUs. The true factor of F16 is 2048.

# %%
# 5 minutes: what share of its true F16 peak, in percent, did this GPU reach?
q = exercise("05.4", table)
# solution
reached = table.set_index("metric").at["MFMA FLOPs (F16)", "value"]
answer = 100 * reached / (2048 * 228 * 2100 / 1000)
# end solution
q.check(answer)

# %% [markdown]
# ## What kinds of instructions?
#
# Only part of what a kernel does is the work that you counted by hand. It also computes addresses, converts numbers
# and runs loops. Block 10, the *instruction mix*, counts the instructions of each kind that a wavefront executes. Your
# run stands beside the table that AMD published:

# %%
mix = mix_table(
    {"published": INSTRUCTIONS_PER_WAVE, "yours": instructions_per_wave(mine)},
    origin=f"published: {table.attrs['origin']}; yours: {mine.origin}",
)
show_table(mix, "kind meaning published yours", "Instructions per wavefront, mean over dispatches")
say(
    f"AMD's run has {INSTRUCTIONS_PER_WAVE['VALU'] / INSTRUCTIONS_PER_WAVE['MFMA']:.0f} vector instructions for each "
    "matrix instruction. An empty place in `yours` was not counted. If `yours` is modelled, it is an estimate and "
    "confirms nothing."
)

# %% [markdown]
# ## Compare two workloads
#
# Two recordings made for that: the same copy of numbers. Once neighbouring work-items read neighbouring numbers
# (*coalesced*), once they read numbers far apart (with a *stride*). On its way a byte passes the cache of a compute
# unit (vL1D, here L1), the cache of a chiplet (L2) and the *fabric*, which leads to HBM. All blocks were counted, so
# the traffic of every level is known. The tool's *memory chart* draws it for one run: `analyze -p FOLDER -b 3`. This
# figure compares two:

# %%
there = proflab.try_recording("rocprof-compute-mi300x-coalescing")
kinds = ("coalesced", "uncoalesced")
pair = [tidyprof.read(there.path / f"{kind}_profile", origin=there.origin) for kind in kinds] if there else None
if pair:
    traffic = memory_traffic(dict(zip(kinds, pair, strict=True)))
    work_items = int(pair[0].events["grid"].iloc[0].strip("[]"))
    needed = 2 * 4 * work_items  # each work-item reads and writes one number of four bytes
    most = (traffic["bytes"] / needed).max()
    show_figure(traffic_figure(traffic, needed, title=f"The same copy, and up to {most:.0f} times the bytes"))
    both = [tidyprof.speed_of_light(run).set_index("metric") for run in pair]
    compared = both[0].assign(with_stride=both[1]["value"]).reset_index()
    chosen = "VALU IOPs|vL1D Cache Hit|L2 Cache Hit|Fabric Read BW|Fabric Read Lat|Occupancy"
    compared = compared[compared["metric"].str.contains(chosen)]
    show_table(compared, "metric value with_stride unit", "Speed-of-Light of both", origin=there.origin)

# %%
# 5 minutes: how many times as many bytes as the coalesced kernel does the other one move through the fabric? See the
# rows of `traffic` with level `hbm`.
q = exercise("05.5", pair)
# solution
if pair:
    first, second = traffic.query("level == 'hbm'")["bytes"]
    answer = second / first
# end solution
q.check(answer)

# %% [markdown]
# A higher bandwidth is no success: the kernel with the stride reads faster, and most of what it reads is thrown away.
# Count bytes against what the work needs.
#
# ## Roofs that were measured
#
# Without `--no-roof` the tool runs a benchmark and keeps what it reached. With `--roof-only` it runs your program too,
# but just with the counters that a roofline needs. Such roofs are what this GPU did that day, and they make another
# knee. Here a GPU of the same family, an MI308X, estimates π. Each kernel has a point per memory level, since it moves
# other bytes at each.

# %%
found = proflab.try_recording("rocprof-compute-mi308x-montecarlo")
if found:
    real = tidyprof.read(found.path, origin=found.origin)
    dots, roofs = tidyprof.roofline_points(real), tidyprof.roofline_ceilings(real)
    near = 100 * dots["flops_per_second"].iloc[0] / min(roofs_above(dots.iloc[0], roofs))
    title = f"The kernel with the most time is at {near:.0f} % of the memory roof, with hardly any FLOP"
    show_figure(plots.roofline(dots, roofs, title=title))
peak = tidyprof.speed_of_light(mine).set_index("metric").at["VALU FLOPs", "peak"] / 1e3
witness = pair[0] if pair else mine
vector = tidyprof.roofline_ceilings(witness).set_index("name").at["vector fp32", "value"] / 1e12
say(
    f"Fourth trap: for `VALU FLOPs` the tool divides by {peak:.1f} TFLOP/s. But vector units reach {vector:.1f} "
    f'TFLOP/s in FP32 ({witness.origin}), {100 * vector / peak:.0f} % of that "peak": it leaves out *packed* '
    "instructions, which work on two numbers at once."
)

# %% [markdown]
# ## Your turn: choose what to count
#
# A good filter keeps few dispatches with much time.

# %%
# 8 minutes, open: up to three texts for `-k` that keep at least a third of the kernel time and at most a fifth of
# the dispatches of `mine`. See `tidyprof.kernels(mine)`.
q = exercise("05.6", mine)
# solution
kernel_table = tidyprof.kernels(mine)
wanted = kernel_table[kernel_table["category"].isin(["convolution", "normalisation"])]
answer = list(wanted["name"].astype(str).str.split("_").str[0].unique()[:3])
# end solution
q.check(answer)

# %% [markdown]
# ## Decide
#
# Distance first, side of the knee second. To *fuse* kernels means to do their work in one, so that what lies between
# them need not go through memory. A change that follows goes into the ledger (lesson 03), measured without the tool.


# %%
def decide(row):
    flat, slanted = roofs_above(row, ceilings)
    share = 100 * row.flops_per_second / min(flat, slanted)
    near = "move fewer bytes (fuse it)" if slanted < flat else "use fewer or cheaper operations"
    far = "neither roof: more work per launch (larger batch, fusion), or another kernel"
    say(f"`{row.short_name}`: {share:.0f} % of the roof above it. Next: {near if share > 50 else far}.")
    return share


reached_share = decide(points[points["main_type"].str.startswith("matrix", na=False)].iloc[0])
decide(points[points["name"].str.contains("batch_?norm", case=False)].iloc[0])
proflab.reveal("05.a", norm_intensity, "by hand")
proflab.reveal("05.b", reached_share, mine)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# It sees kernels one at a time: no host, no queue, no other stream, no collectives, and no operators (experimental
# since ROCm 7.12). Times under the counters are no times of the training. *Wavefront Occupancy*, how many wavefronts
# are on the GPU at once, is not reliable for kernels under 1 ms, and this training has hardly any other. And what
# passes the fabric may come from the 256 MB *Infinity Cache* in front of HBM: a point above the HBM roof is possible.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# | percentages half as large as they should be, F8 to INT8 on an MI300 | ROCm 7.0 or later, or divide yourself |
# | a filter changes nothing | [count dispatches with and without it][all] |
# | several processes, empty tables | one process; ranks get folders of their own from ROCm 7.12 on |
# | the job hangs in a collective | profiled runs repeat: one process, no other rank |
# | `analyze` misses Python packages | an environment of its own, or read the folder with `tidyprof` |
# | L1 and L2 roofs off by two | ROCm 7.14 or later; until then use HBM |
# | "folder is not empty" from ROCm 10.0 on | add `--overwrite`; folders of older releases must be profiled again |
# | arguments of the program are refused | older releases: put the command into a script |
#
# More of them, with sources, are in the [list of known issues](../docs/known-issues.md).
#
# [all]: https://github.com/ROCm/rocprofiler-compute/issues/339

# %% [markdown]
# ## Key points
#
# - Count operations and bytes by hand first; the counters then tell what was done beyond that.
# - State the knee: peak, achievable or measured. Far below both roofs the side of the knee explains nothing.
# - A percentage needs its peak, its average and its filter.
# - The program runs once per group of counters: few steps, few kernels, few blocks.
#
# Next question: can I ask my own question?
