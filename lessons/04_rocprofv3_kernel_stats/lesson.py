# %% [markdown]
# # Which kernels, how often, how small?
#
# `rocprofv3` records every kernel that a program runs on an AMD GPU, without a change to the program. From its
# table you can tell whether there is a kernel worth making faster, or whether the GPU is starved by too many small
# ones.
#
# After this lesson you can
#
# - record a kernel trace in a format that you chose, and group it with pandas alone;
# - compute busy time and gaps, and tell a slow kernel from too many launches;
# - choose hardware counters and read them by kernel, and samples by instruction;
# - say what a percentage in such a table is a percentage of.
#
# You need lessons 00 and 02. Commands hold from ROCm 7.0 to {newest rocm}; the text says what differs
# elsewhere. An AMD GPU is used where there is one.

# %%
from itertools import pairwise

import numpy as np
import pandas as pd

import proflab
import tidyprof
from proflab import exercise, say, show_figure, show_table
from proflab.parts.steady_part import mean_steps, own_run, steady_part
from tidyprof import DEVICE_KINDS, plots

lesson = proflab.start("04")

# %% [markdown]
# ## The picture to keep in mind
#
# One *dispatch* is one run of one kernel. The host launches them one by one, the GPU runs them in order:
#
# | | the GPU is the limit | the host is the limit (*launch-bound*) |
# | --- | --- | --- |
# | host | runs ahead, the queue is full | launches as fast as it can |
# | GPU | one kernel after the other | runs each kernel at once, then waits for the next |
# | a step takes | the sum of all kernels | the number of launches times what one takes the host |
# | a faster kernel | makes the step shorter | makes the gap behind it longer |
#
# So a kernel table must answer three questions together: which, how often, how small?
#
# ## Predict
#
# The training is that of lesson 00: ResNet-50, mixed precision, small images.

# %%
# solution
kernels_guess, step_guess = 500, 10
# end solution
proflab.predict("04.a", kernels_guess, unit="kernels", what="what the GPU runs in one step of 256 images")
proflab.predict("04.b", step_guess, unit="times", what="a step of 512 images, compared with one of 32")

# %% [markdown]
# ## Capture
#
# The tool stands before the program's command, and `--` between them.
#
# | option | why |
# | --- | --- |
# | `--kernel-trace` | record every dispatch. Nothing is recorded unless you name it |
# | `--marker-trace` | record ranges that the program names through AMD's library ROCTX; the trainer: `--roctx` |
# | `--stats` | sum up whatever is recorded |
# | `--output-format` | always name it, see below |
# | `--output-directory`, `--output-file` | folder and start of the names; else `<machine>/<process>` |
#
# Without a GPU the stand-in plays the training on a model of an MI300X, and writes the files that the tool would
# write. Every figure then says `modelled`.

# %% language="bash"
# rocprofv3 --kernel-trace --marker-trace --stats --output-format csv json rocpd \
#     --output-directory runs/04/one --output-file gpu -- python -m cifar_train --max-steps 8 --roctx 2>&1

# %% [markdown]
# `rocpd` is a database in one file; lesson 06 asks it questions. Which format you get without asking depends on the
# release:
#
# | ROCm | without `--output-format` | so |
# | --- | --- | --- |
# | 6.2 to 6.4 | CSV | `rocpd` does not exist yet |
# | 7.0 and later | `rocpd` | a script that looks for CSV finds nothing; `rocpd summary` is there since 7.1 |
# | 10.1 and later | `rocpd` | CSV, `pftrace` and `otf2` are called deprecated, and are still written |
#
# `--stats` with nothing to sum up is an error. Below it stands what the run above wrote, in two formats:

# %% language="bash"
# rocprofv3 --stats --output-format csv -- python -m cifar_train --max-steps 8 2>&1 | grep Fatal
# echo; head -n 5 runs/04/one/gpu_kernel_stats.csv | cut -c 1-118
# echo; rocpd summary -i runs/04/one/gpu_results.db --region-categories NONE 2>&1 | head -n 5 | cut -c 1-118

# %% [markdown]
# All times are nanoseconds. Names contain commas: read the files with a CSV reader, and don't split lines at commas.
#
# ## First look, by hand
#
# `kernel_trace.csv` has a row for each dispatch. Grouped by name, it is the table that `--stats` wrote, and the one
# that `tidyprof.kernels` makes of any format.

# %%
trace = pd.read_csv("runs/04/one/gpu_kernel_trace.csv")
trace["ns"] = trace["End_Timestamp"] - trace["Start_Timestamp"]
whole = trace.groupby("Kernel_Name")["ns"].agg(["size", "sum", "mean", "min", "max", "std"])
whole = whole.sort_values("sum", ascending=False)

stats = pd.read_csv("runs/04/one/gpu_kernel_stats.csv").set_index("Name")
run = own_run("runs/04/one/gpu_kernel_trace.csv")
by_tidyprof = tidyprof.kernels(run, include=DEVICE_KINDS).set_index("name")
assert whole["sum"].to_dict() == stats["TotalDurationNs"].to_dict() == by_tidyprof["total_ns"].to_dict()
say(f"{len(trace):,} dispatches, {len(whole)} names, {whole['sum'].sum() / 1e6:.0f} ms of kernels, three times.")

# %% [markdown]
# Copies of the runtime are kernels too, `__amd_rocclr_copyBuffer`, and are counted here.
#
# The ranges are in a file of their own. The trainer's first range in each step is `data`.

# %%
# 6 minutes: how many dispatches start in step 4, the first step being 0? A step lasts from its range `data` to the next
# one. `marks` has the names in `Function` and times in `Start_Timestamp`, as `trace` has.
marks = pd.read_csv("runs/04/one/gpu_marker_api_trace.csv")
q = exercise("04.1", (trace, marks))
# solution
begins = marks.loc[marks["Function"] == "data", "Start_Timestamp"].sort_values()
answer = trace["Start_Timestamp"].between(begins.iloc[4], begins.iloc[5], inclusive="left").sum()
# end solution
q.check(answer)

# %% [markdown]
# The same for all steps at once:

# %%
data = marks.loc[marks["Function"] == "data", "Start_Timestamp"].sort_values()
trace["step"] = np.searchsorted(data, trace["Start_Timestamp"], side="right") - 1
per_step = trace.groupby("step")["ns"].agg(["size", "sum"]).set_axis(["dispatches", "total_ns"], axis=1).reset_index()
show_table(per_step, "step dispatches total_ms", "Dispatches by step of the host", origin=run.origin)
say(
    "Ranges are times of the host, and the GPU comes later: a kernel that is launched at the end of a step may start "
    f"in the next one. {len(trace) / len(data):,.2f} dispatches are launched in a step, if you count over all of them."
)

# %% [markdown]
# In the first step libraries load and MIOpen tries out kernels. `steady_part` keeps the steps after the warm-up, from
# the beginning of the first to the end of the last one; at these two cuts a kernel may be lost or won. `own_run` reads
# what was written here, in any format.

# %%
steady = steady_part(own_run("runs/04/one/gpu_results.db"))
table = tidyprof.kernels(steady.profile, include=DEVICE_KINDS)
show_table(table, "short_name category calls total_ms mean_us max_us percent", "Steady steps, largest total", rows=6)
say(
    f"{steady.steps} steady steps of {steady.step_ns / 1e6:.1f} ms; {len(table)} names; "
    f"{len(steady.dispatches) / steady.steps:,.2f} dispatches a step."
)

# %% [markdown]
# ## Raw and short names
#
# PyTorch's kernels are C++ templates. Their raw name holds the operation, the data type and much else.

# %%
longest = table.loc[table["name"].str.len().idxmax()]
cut = table["name"].str.replace(r"^void |[<(].*", "", regex=True)
say(
    f"Raw: `{longest['name'][:300]}` and so on for {len(longest['name'])} characters.\n\n"
    f"Short: `{longest['short_name']}`. Four characters behind a `#` keep apart what would look the same.\n\n"
    f"Cut at the first bracket, {table['name'].nunique()} names become {cut.nunique()}. rocprofv3's own "
    "`--truncate-kernels` cuts in a similar way, and for ever: different kernels are added up. "
    "Record raw names and shorten them when you read."
)

# %% [markdown]
# ## The Pareto picture
#
# Few kernels often make up most of the time. Do they here?

# %%
show_figure(
    plots.top_kernels(table, 8, title=f"The first kernel has {table['percent'].iloc[0]:.0f} % of the kernel time")
)
groups = table.groupby("category")["percent"].sum().sort_values(ascending=False)
say("By category: " + ", ".join(f"{name} {share:.0f} %" for name, share in groups.items()) + ".")

# %%
# 6 minutes: how many kernel names, the largest first, make up 80 % of the kernel time of the whole run, warm-up
# included? Begin with `trace`, whose rows have `Kernel_Name` and `ns`.
q = exercise("04.2", trace)
# solution
total = trace.groupby("Kernel_Name")["ns"].sum().sort_values(ascending=False)
answer = (total.cumsum() < 0.8 * total.sum()).sum() + 1
# end solution
q.check(answer)

# %% [markdown]
# ## Three formats, one table
#
# The command above wrote one run three times. If a reader is right, the format makes no difference.

# %%
files = {"csv": "gpu_kernel_trace.csv", "json": "gpu_results.json", "rocpd": "gpu_results.db"}
same = tidyprof.reconcile({name: own_run(f"runs/04/one/{file}") for name, file in files.items()})
columns = "short_name calls_csv calls_json calls_rocpd total_ns_csv total_ns_json total_ns_rocpd reason"
show_table(same, columns, "The whole run, read three times", rows=3)
say(
    f"{(same['reason'] == 'agree').sum()} of {len(same)} names agree in calls and total. They are fewer than the "
    f"{trace['Kernel_Name'].nunique()} raw names: `reconcile` compares short names without the part behind `#`, since "
    "tools may write a raw name in different ways."
)

# %% [markdown]
# ## Trap: percent of what?
#
# The first row's percentage looks like a promise: without this kernel, a step would be that much shorter. It is
# none. Percentages in a kernel table are shares of the time of all *kernels*, and the GPU does not run kernels all
# the time.
#
# How long is that? Durations may not be added up: two streams can run at the same time. Count of each kernel only what
# lies after everything so far has ended. The latest end so far is `cummax`; `shift` moves it to the next row; `clip`
# moves a start to it. `fill_value` keeps whole numbers: as floats, times of this size would be rounded. What is left
# between that end and the next start is a gap.


# %%
def union_ns(start, end):
    """Time in which at least one kernel runs; rows in the order of their start."""
    seen = end.cummax().shift(fill_value=start.iloc[0])
    return (end - start.clip(lower=seen)).clip(lower=0).sum()


gpu = steady.dispatches.query("duration_ns > 0").sort_values("start_ns")
start, end = gpu["start_ns"], gpu["start_ns"] + gpu["duration_ns"]
busy_ns = union_ns(start, end)
assert busy_ns == tidyprof.busy(steady.profile)["union_ns"].sum()
gaps = start - end.cummax().shift(fill_value=start.iloc[0])
assert gaps[gaps >= 10_000].sum() == tidyprof.gaps(steady.profile)["duration_ns"].sum()
first = table.iloc[0]
say(
    f"`{first['short_name']}`: {first['percent']:.1f} % of the kernel time. But kernels run during only "
    f"{100 * busy_ns / steady.duration_ns:.0f} % of the steady steps. There are {(gaps > 0).sum():,} gaps, "
    f"half of them shorter than {gaps[gaps > 0].median() / 1e3:.1f} µs."
)

# %%
# 5 minutes: during which share of the steady steps, in percent, does the first kernel of `table` run? All steady steps
# together take `steady.duration_ns`.
q = exercise("04.3", steady)
# solution
answer = 100 * table["total_ns"].iloc[0] / steady.duration_ns
# end solution
q.check(answer)

# %% [markdown]
# ## How small?
#
# What does the GPU do with the rest? Look at the sizes.

# %%
edges_us = [0, 2, 5, 10, 20, 50, 100, np.inf]
words = ["under 2", *(f"{low} to {high}" for low, high in pairwise(edges_us[1:-1])), "100 or more"]
size = pd.cut(steady.dispatches["duration_ns"] / 1e3, edges_us, right=False, labels=words)
sizes = steady.dispatches.groupby(size, observed=True)["duration_ns"].agg(["size", "sum"])
shares = (100 * sizes / sizes.sum()).set_axis(["of_calls_percent", "of_time_percent"], axis=1)
shares = shares.rename_axis("duration_in_µs").reset_index()
show_table(shares, "duration_in_µs of_calls_percent of_time_percent", "Kernels by size", origin=steady.profile.origin)
mean_us = steady.dispatches["duration_ns"].mean() / 1e3
pace_us = steady.duration_ns / len(steady.dispatches) / 1e3
say(
    f"A kernel takes {mean_us:.1f} µs on average, and the step has {pace_us:.1f} µs for each. Where does the rest go? "
    "If the host can't launch faster than that, the GPU waits for it."
)

# %% [markdown]
# ## The launch-bound test
#
# Change the amount of work, and keep the number of launches. If the step takes as long as before, the work was not
# the limit. Here only the number of images differs, so about the same kernels are launched.
#
# `--hip-runtime-trace` adds the calls of the host, so that you see each launch beside its kernel. It records more,
# so it costs more: use it for questions like this one.

# %% language="bash"
# for batch in 32 512; do
#     rocprofv3 --kernel-trace --marker-trace --hip-runtime-trace --output-format rocpd \
#         --output-directory runs/04/batch$batch --output-file gpu \
#         -- python -m cifar_train --max-steps 8 --roctx --batch-size $batch 2>&1 | grep -v Opened
# done

# %%
small, large = (steady_part(own_run(f"runs/04/batch{batch}/gpu_results.db")) for batch in (32, 512))
begin = tidyprof.phases(small.profile).query("phase == 'forward'")["start_ns"].iloc[1] + 3_000_000
window = {"start_ns": int(begin), "end_ns": int(begin) + 200_000}
show_figure(plots.timeline(small.profile, **window, title="Batch 32: launches, and the kernels that they start"))
runs = {"batch 32": small, "batch 512": large}
budgets = mean_steps({name: tidyprof.step_budget(part.profile) for name, part in runs.items()})
show_figure(plots.step_budget(budgets, title="The mean step with 32 images and with 512"))
for name, part in runs.items():
    mean_us = part.dispatches["duration_ns"].mean() / 1e3
    lengths = tidyprof.step_budget(part.profile)["duration_ns"] / 1e6
    say(
        f"{name}: {len(part.dispatches) / part.steps:,.0f} kernels a step, {mean_us:.1f} µs each on average. Steps "
        f"take {lengths.mean():.1f} ms on average, as in the figure; their median is {lengths.median():.1f}, the "
        f"longest takes {lengths.max():.1f}."
    )

# %% [markdown]
# The trainer prints the median, which a single long step doesn't change. The last step is longer where the host has run
# ahead: it ends only when the GPU is done.
#
# Between two calls the host runs Python and PyTorch: launching is more than the call.
#
# Idle time has four parts. *Other*: the next kernel was launched already, and the GPU, too, needs a moment to start
# one. In the three others nothing was launched. *Blocked host*: the host waited inside a call that allocates, frees,
# copies or synchronises. *Data wait*: it was in the range `data`. *Launch-bound*: it was running Python and PyTorch, on
# its way to the next launch. Only the last one becomes shorter with fewer launches.

# %%
# 5 minutes: how many percent of the step is the GPU idle with batch 32, and how many with batch 512? Answer the first
# minus the second. Idle are the columns `launch_bound_ns`, `blocked_host_ns`, `data_wait_ns`, `other_ns` of `budgets`.
q = exercise("04.4", budgets)
# solution
idle = budgets[["launch_bound_ns", "blocked_host_ns", "data_wait_ns", "other_ns"]].sum(axis=1)
share = 100 * idle / budgets["duration_ns"]
answer = share.iloc[0] - share.iloc[1]
# end solution
q.check(answer)

# %% [markdown]
# ## Counters: what happened inside
#
# A GPU's *hardware counters* count events while a kernel runs. `SQ_WAVES` counts *waves*, groups of 64 work-items that
# run together on an MI300X; `SQ_INSTS_VALU` the vector instructions that they execute, one for a whole wave;
# `GRBM_GUI_ACTIVE` the clock cycles in which the GPU had work. An MI300X consists of eight *chiplets*, and this counter
# adds up the cycles of all of them. `rocprofv3-avail` lists what your GPU can count, and says whether some fit into one
# run. Counting makes a run much slower: name few counters, and take few steps.

# %% language="bash"
# rocprofv3-avail list --pmc 2>&1 | cut -c 1-116 | head -n 12
# rocprofv3-avail pmc-check SQ_WAVES SQ_INSTS_VALU GRBM_GUI_ACTIVE 2>&1
# rocprofv3 --pmc SQ_WAVES SQ_INSTS_VALU GRBM_GUI_ACTIVE --output-format csv --output-directory runs/04/pmc \
#     --output-file gpu -- python -m cifar_train --max-steps 2 2>&1 | grep Opened

# %% [markdown]
# The file is *long*: a row for each dispatch and counter. `pivot` makes a column of each counter.

# %%
counted = pd.read_csv("runs/04/pmc/gpu_counter_collection.csv")
wide = counted.pivot(index=["Dispatch_Id", "Kernel_Name"], columns="Counter_Name", values="Counter_Value")

read = own_run("runs/04/pmc").counters.pivot(index="dispatch_id", columns="name", values="value")
assert np.array_equal(wide.to_numpy(), read[wide.columns].to_numpy())
wide = wide.reset_index()
wide["kernel"] = wide["Kernel_Name"].str.removeprefix("void ").str[:50]
columns = "Dispatch_Id kernel GRBM_GUI_ACTIVE SQ_INSTS_VALU SQ_WAVES"
show_table(wide.sample(5, random_state=0), columns, "Five of the dispatches", origin=own_run("runs/04/pmc").origin)

# %%
# 8 minutes: take the kernel name with the most vector instructions of all in `wide`. How many vector instructions does
# one of its waves execute on average? Add up by `Kernel_Name` first.
q = exercise("04.5", wide)
# solution
sums = wide.groupby("Kernel_Name")[["SQ_INSTS_VALU", "SQ_WAVES"]].sum()
most = sums.loc[sums["SQ_INSTS_VALU"].idxmax()]
answer = most["SQ_INSTS_VALU"] / most["SQ_WAVES"]
# end solution
q.check(answer)

# %% [markdown]
# Counters alone don't say what is good: lesson 05 puts them against what the hardware could do.
#
# ## Several ranks: the same trap, deeper
#
# Now four ranks train together (where there are GPUs this needs four; with fewer, lower the number). Each process
# writes its own files, so each name must say whose they are: a fixed name would be overwritten.
#
# | launcher | where the tool stands | rank in the name |
# | --- | --- | --- |
# | `torchrun`, one machine | `rocprofv3 ... -- torchrun ...` | `%env{RANK}%` |
# | `srun` | `srun -n 4 rocprofv3 ... -- python ...` | `%rank%` |
# | `mpirun` | `mpirun -n 4 rocprofv3 ... -- python ...` | `%env{OMPI_COMM_WORLD_RANK}%` |

# %% language="bash"
# rm -rf runs/04/ranks  # other process numbers make other names: an old run would be read too
# rocprofv3 --kernel-trace --marker-trace --stats --output-format csv \
#     --output-directory runs/04/ranks --output-file rank%env{RANK}%_pid%pid% \
#     -- torchrun --standalone --nproc-per-node 4 -m cifar_train --max-steps 8 --roctx 2>&1 | grep -v Opened
# ls runs/04/ranks | grep kernel_stats

# %%
ranks = steady_part(own_run("runs/04/ranks"))
each = tidyprof.kernels(ranks.profile, include=DEVICE_KINDS, per_device=True)
rccl = each[each["category"] == "collective"].sort_values("rank")
rccl["percent"] = 100 * rccl["total_ns"] / rccl["rank"].map(each.groupby("rank")["total_ns"].sum())
show_table(rccl, "rank short_name calls total_ms mean_us percent", "RCCL in the kernel table of each rank")
compared = tidyprof.ranks(ranks.profile)
show_figure(plots.ranks(compared, title="What the GPU of each rank did in the steady steps"))
wait_ns, exchange_ns = compared["wait_ns"].sum(), compared["transfer_ns"].sum()
say(
    "The same collectives and as much data on all ranks, and yet RCCL has "
    f"{rccl['percent'].min():.0f} % of the kernel time on one and {rccl['percent'].max():.0f} % on another. Of all its "
    f"time {100 * wait_ns / (wait_ns + exchange_ns):.0f} % passes before the last rank has entered: **waiting**. The "
    f"exchange itself takes {exchange_ns / len(compared) / ranks.steps / 1e6:.1f} ms a step."
)

# %% [markdown]
# RCCL's kernel runs while it waits, so any table counts waiting as work. The repair: leave RCCL out, sort the rest,
# and compare RCCL *between ranks*. Lesson 07 does this properly.
#
# AMD published such tables of this training on MI300X. On one GPU RCCL is not among the published rows; on several it
# is far ahead:

# %%
tables = pd.read_csv(lesson.file("amd_kernel_tables.csv"), comment="#").assign(mean_ns=lambda t: t.total_ns / t.calls)
single, parallel = (tables[tables["run"] == name].reset_index(drop=True) for name in ("one GPU", "parallel"))
columns, origin = "name calls total_ms mean_us max_us percent", "recorded: AMD Instinct MI300X, published by AMD"
for name, rows in {"one GPU": single, "parallel, one rank": parallel}.items():
    show_table(rows, columns, f"AMD, {name}", rows=3, origin=origin)
longest_ns = parallel["max_ns"].iloc[0]
say(
    f"One of the {parallel['calls'].iloc[0]} RCCL calls took {longest_ns / 1e6:.0f} ms, "
    f"{100 * longest_ns / parallel['total_ns'].iloc[0]:.0f} % of the total. Such a mean describes no call."
)

# %%
# 8 minutes: how long do all kernels but RCCL's take in each step of `parallel`, in ms? Only the first rows of AMD's
# table are there, but `percent` is each one's share of all kernels. ResNet-50 calls `MIOpenBatchNormBwdSpatial` 53
# times in each step, which tells the number of steps.
q = exercise("04.6", parallel)
# solution
rccl_ns = parallel["total_ns"].iloc[0]
everything_ns = rccl_ns / parallel["percent"].iloc[0] * 100
steps = parallel.loc[parallel["name"] == "MIOpenBatchNormBwdSpatial", "calls"].sum() / 53
answer = (everything_ns - rccl_ns) / steps / 1e6
# end solution
q.check(answer)

# %% [markdown]
# One more, a recording of one rank on an MI350X. Would you rewrite the collective library?

# %%
there = proflab.try_recording("rocprofv3-json-mi350x-torch-training")
if there:
    real = tidyprof.read(there.path, origin=there.origin)
    names = tidyprof.kernels(real)
    columns = "short_name calls total_ms mean_us max_us percent"
    show_table(names, columns, "One rank on an MI350X", rows=3)
    waits = real.device_events.query("kind == 'collective'")["duration_ns"]
    ten = waits.nlargest(10).sum() / waits.sum()
    say(
        f"RCCL: mean {waits.mean() / 1e6:.2f} ms, median {waits.median() / 1e6:.2f} ms. Ten of {len(waits):,} calls "
        f"make up {100 * ten:.0f} % of its time. Without it the first kernel has "
        f"{100 * names['total_ns'].iloc[1] / names['total_ns'].iloc[1:].sum():.0f} % of the rest."
    )

# %% [markdown]
# So the sum does not tell what RCCL costs. What does: the time in which RCCL runs *and nothing else*. Here is a run
# that you have not seen, one of four ranks, with RCCL on a stream of its own.

# %%
# 10 minutes: during how many percent of the time from the first start to the last end in `unseen` does RCCL run and
# nothing else? RCCL's names contain `nccl`. `union_ns` from above wants rows in the order of their start.
unseen = pd.read_csv(proflab.recording("modelled-rank-skew").path / "rocprofv3/0_kernel_trace.csv.gz")
q = exercise("04.7", unseen)
# solution
rows = unseen.sort_values("Start_Timestamp")
others = rows[~rows["Kernel_Name"].str.contains("nccl")]
busy, without = (union_ns(part["Start_Timestamp"], part["End_Timestamp"]) for part in (rows, others))
answer = 100 * (busy - without) / (rows["End_Timestamp"].max() - rows["Start_Timestamp"].min())
# end solution
q.check(answer)

# %% [markdown]
# ## Inside one kernel: where does it wait?
#
# A trace says how long a kernel ran, counters say how much it did. Two more modes of `rocprofv3` say where in its code
# the time goes. The *program counter*, PC, is the address of the next instruction of a wave.
#
# | | [PC sampling][pc] | [thread trace][att] |
# | --- | --- | --- |
# | looks | now and then at a wave of each compute unit | at every instruction, on one compute unit |
# | answers | at which instruction do waves stand, and why? | how many cycles did each instruction take? |
# | since | ROCm 6.4 (`host_trap`, MI200 on), 7.0 (`stochastic`, MI300 on) | ROCm 7.0, with a decoder of its own |
# | writes | a row for each sample | `stats_*.csv`, and a folder for the viewer [ROCprof Compute Viewer][rcv] |
# | costs | beta: AMD warns that the GPU may freeze, so take a node of your own | large files: name one kernel |
#
# [pc]: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-pc-sampling.html
# [att]: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-thread-trace.html
# [rcv]: https://rocm.docs.amd.com/projects/rocprof-compute-viewer/en/latest/

# %% [markdown]
# Only `stochastic` knows why a wave stands; `host_trap` may name an instruction up to two places beside the right one.
# The interval of `stochastic` is a power of two, in clock cycles. Up to ROCm 10.1 the database has no samples, so ask
# for CSV. That file has no names of kernels: `--kernel-trace` brings them, by `Dispatch_Id`. Neither mode is modelled
# here:
#
# ```bash
# rocprofv3-avail list --pc-sampling
# rocprofv3 --pc-sampling-beta-enabled --pc-sampling-method stochastic --pc-sampling-unit cycles \
#     --pc-sampling-interval 1048576 --kernel-trace --output-format csv -- python train.py
# rocprofv3 --att --kernel-include-regex batched_transpose --output-directory att -- python train.py
# ```
#
# These samples are AMD's: four small kernels, each of which reads two arrays and writes a third.

# %%
samples = pd.read_csv(lesson.file("amd_pc_samples.csv"), comment="#")
SAMPLED = "recorded: an AMD GPU of gfx942, published in AMD's manual of rocprofv3"
show_table(samples.iloc[11:16], " ".join(samples), "Five of the samples", origin=SAMPLED)
reasons = samples.value_counts(["Wave_Issued_Instruction", "Stall_Reason"]).rename("samples").reset_index()
show_table(reasons, " ".join(reasons), f"All {len(samples)} samples", origin=SAMPLED)

# %% [markdown]
# `WAITCNT` is a wait for memory, `ALU_DEPENDENCY` one for an earlier instruction, `NO_INSTRUCTION_AVAILABLE` one for
# the code itself. A trap: there is a reason in every row. Where the wave issued its instruction (1), it means nothing.
#
# `s_waitcnt` is the instruction that waits. `vmcnt` in it counts vector accesses to memory, here to the arrays;
# `lgkmcnt` counts scalar loads, which bring one value for the whole wave, such as the kernel's arguments, and accesses
# to LDS, a small memory inside each compute unit (lesson 05).

# %%
# 6 minutes: in which share of all samples, in percent, did the wave issue nothing because it waited for the arrays?
q = exercise("04.8", samples)
# solution
stalled = samples[samples["Wave_Issued_Instruction"] == 0]
waiting = stalled[stalled["Instruction"].str.contains("vmcnt")]
answer = 100 * len(waiting) / len(samples)
# end solution
q.check(answer)

# %%
standing = samples[samples["Wave_Issued_Instruction"] == 0]
lines = standing.value_counts(["Instruction_Comment", "Instruction"]).rename("samples").reset_index()
show_table(lines, " ".join(lines), "Where waves stand", rows=5, origin=SAMPLED)

# %% [markdown]
# The file and line of the source are there where it was compiled with `-g`; kernels of a PyTorch wheel show
# instructions only. The one that waits is not to blame, but the load before it: lesson 09 reads code in the same way.
#
# ## Three more switches
#
# | wish | how | since |
# | --- | --- | --- |
# | look into a job that runs already | start it with `ROCP_TOOL_ATTACH=1`; then the command below | ROCm 7.1 |
# | more counters than fit into one run | `--replay-mode kernel`: repeats each kernel, not the program | 10.1, beta |
# | the database without SQL, on a desktop | [ROCm Optiq][optiq], AMD's viewer for `.db` and `.rpd` | its own releases |
#
# ```bash
# rocprofv3 --attach 4711 --attach-duration-msec 2000 --kernel-trace --output-format csv   # 4711: the process
# rocprofv3 --pmc SQ_WAVES SQ_INSTS_VALU --pmc GRBM_GUI_ACTIVE --replay-mode kernel --kernel-replay-beta-enabled \
#     --output-format csv -- python train.py
# ```
#
# Without `--replay-mode` each `--pmc` is a run of the whole program (from ROCm 7.13 on). Replay keeps a copy of the
# GPU's memory on the host, which needs the room, and is for one process without collectives.
#
# Coming from `rocprof` or `rocprofv2`? [The options look alike, their meaning changed](../docs/migration.md).
#
# [optiq]: https://rocm.docs.amd.com/projects/roc-optiq/en/latest/

# %% [markdown]
# ## Decide
#
# Two wishes choose the next question: if the GPU were never idle, and if the first kernel took half its time, how much
# faster would a step be at most? Go after the larger one. Take the numbers from a run with a single rank, where no
# waiting looks like work. A run under a profiler proves no speed-up: when you change something, measure it without the
# tool.


# %%
def decide(run, part):
    busy_ns = tidyprof.busy(part.profile)["union_ns"].mean()
    first_ns = tidyprof.kernels(part.profile)["total_ns"].iloc[0]
    full, quick = part.duration_ns / busy_ns, part.duration_ns / (part.duration_ns - first_ns / 2)
    question = "why is the GPU idle? (03)" if full > quick else "is the first kernel near its ceiling? (05)"
    say(f"{run}: at most {full:.2f} times faster without idle time, {quick:.2f} with half a kernel. Next: {question}")


decide("Batch 256", steady)
decide("Batch 512", large)
proflab.reveal("04.a", len(steady.dispatches) / steady.steps, steady.profile)
proflab.reveal("04.b", large.step_ns / small.step_ns, large.profile)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# It knows no operators and no shapes: which layer called a kernel is a question for lesson 02. It says how long a
# kernel ran, not whether it could be faster: lesson 05. It can't tell waiting from work inside an RCCL kernel. And
# the tool makes launches slower, by an amount that nobody has published for this training: compare with the
# trainer's own step time, without the tool, before you call a run launch-bound.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# {issue no-csv-where-there-used-to-be-one}
# {issue all-ranks-write-into-one-file}
# {issue the-tool-profiles-the-launcher}
# {issue rocprofv3-in-a-virtual-environment-finds-no-gpu}
# {issue two-profilers-in-one-process}
# {issue rocprofv3-and-a-torch-with-its-own-rocprofiler-sdk}
# {issue the-start-of-a-profiler-hangs}
# {issue attaching-to-pytorch-gives-no-files}
# {issue a-database-beside-the-format-that-was-asked-for}
# | `Opened result file` as an error | normal: so it says which files it wrote |
# | `--pmc` twice in a command | up to ROCm 7.2 only the last one counts; from 7.13 on each is a run of its own |
# | RCCL is `rccl_main_kernel` in one file, `ncclDevKernel...` in another | releases differ: search for both |
#
# More of them, with sources, are in the [list of known issues](../docs/known-issues.md).

# %% [markdown]
# ## At work, without this course
#
# A job script for any program, and a table of what it wrote. The table needs pandas and nothing else:
#
# {snippet 04_profile_job.sh}

# %% [markdown]
# And the table:
#
# {snippet 04_busy_time.py}
#
# Read on: [AMD's manual of rocprofv3](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html).

# %% [markdown]
# ## Key points
#
# - Name the format, the trace and the file in every command; the defaults change.
# - A percentage in a kernel table is a share of kernel time. Ask for the share of a step.
# - Many short kernels make the host the limit. More work per launch is then nearly free.
# - An RCCL kernel's time can be mostly waiting. Compare ranks before you blame the network.
#
# Next question: is this kernel near its ceiling?
