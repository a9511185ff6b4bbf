# %% [markdown]
# # Which kernels, how often, how small?
#
# `rocprofv3` records every kernel that a program runs on an AMD GPU, without a change to the program. From its
# table you can tell whether there is a kernel worth making faster, or whether the GPU is starved by too many small
# ones.
#
# After this lesson you can
#
# - record a kernel table in a format that you chose, and read the same table from all of them;
# - tell a slow kernel from too many launches;
# - say what a percentage in such a table is a percentage of.
#
# You need lessons 00 and 02. Commands are those of ROCm 7.0 to 7.2; the text says what differs
# elsewhere. An AMD GPU is used where there is one.

# %%
import proflab
import tidyprof
from proflab import exercise, say, show_figure, show_table
from proflab.parts.kernel_sizes import kernel_sizes, share_below, sizes_figure
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
#     --output-directory runs/04/one --output-file gpu -- python -m cifar_train --max-steps 8 --roctx

# %% [markdown]
# `rocpd` is a database in one file; lesson 06 asks it questions. Which format you get without asking depends on the
# release:
#
# | ROCm | without `--output-format` | so |
# | --- | --- | --- |
# | 6.2 to 6.4 | CSV | `rocpd` does not exist yet |
# | 7.0 and later | `rocpd` | a script that looks for CSV finds nothing |
# | in development | `rocpd` | direct CSV is deprecated: `rocpd convert` makes it. `--stats` needs CSV or JSON |
#
# `--stats` with nothing to sum up is an error. Below it stands what the run above wrote, in two formats:

# %% language="bash"
# rocprofv3 --stats --output-format csv -- python -m cifar_train --max-steps 8 2>&1 | grep Fatal
# echo; head -n 5 runs/04/one/gpu_kernel_stats.csv | cut -c 1-118
# echo; rocpd summary -i runs/04/one/gpu_results.db --region-categories NONE 2>&1 | head -n 5 | cut -c 1-118

# %% [markdown]
# All times are nanoseconds. Names contain commas: read the file with a CSV reader, and don't split lines at commas.
#
# ## First look
#
# `own_run` reads what was written here. `steady_part` keeps the steps after the warm-up, which the ranges make
# possible: in the first step libraries load and MIOpen tries out kernels.

# %%
run = own_run("runs/04/one/gpu_results.db")
steady = steady_part(run)
table = tidyprof.kernels(steady.profile, include=DEVICE_KINDS)
show_table(table, "short_name category calls total_ms mean_us max_us percent", "Steady steps, largest total", rows=6)
say(f"{steady.steps} steady steps of {steady.step_ns / 1e6:.1f} ms; {len(table)} names.")

# %%
# 3 minutes: how many kernels does the GPU run in one steady step, copies included? `steady.dispatches` has a row for
# each dispatch of all steady steps, `steady.steps` is their number.
q = exercise("04.1", steady)
# solution
answer = len(steady.dispatches) / steady.steps
# end solution
q.check(answer)

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
# 5 minutes: how many kernel names, the largest first, make up 80 % of the kernel time? `table` is sorted already.
q = exercise("04.2", table)
# solution
answer = (table["percent"].cumsum() < 80).sum() + 1
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
say(f"{(same['reason'] == 'agree').sum()} of {len(same)} names agree in calls and total.")

# %% [markdown]
# ## Trap: percent of what?
#
# The first row's percentage looks like a promise: without this kernel, a step would be that much shorter. It is
# none. Percentages in a kernel table are shares of the time of all *kernels*, and the GPU does not run kernels all
# the time.

# %%
union_ns = tidyprof.busy(steady.profile)["union_ns"].sum()
first = table.iloc[0]
say(
    f"`{first['short_name']}`: {first['percent']:.1f} % of the kernel time. But kernels run during only "
    f"{100 * union_ns / steady.duration_ns:.0f} % of the steady steps."
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
sizes = kernel_sizes(steady.profile)
below = share_below(sizes, 10_000)
show_figure(sizes_figure(sizes, title=f"{below:.0f} % of the kernels take less than 10 µs"))
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
#         -- python -m cifar_train --max-steps 8 --roctx --batch-size $batch
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
    say(f"{name}: {len(part.dispatches) / part.steps:,.0f} kernels a step, {mean_us:.1f} µs each on average.")

# %% [markdown]
# Between two calls the host runs Python and PyTorch: launching is more than the call.
#
# *Other* is idle time although the next kernel was launched already: the GPU, too, needs a moment to start one. *Data
# wait* is idle time while the host was in the range `data`. *Blocked host* is idle time, with nothing launched, in
# which the host waited inside a call that allocates, copies or synchronises. The rest of the idle time is launch-bound.

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
from proflab.parts.published_kernels import STEPS, all_kernels_ns, published_kernels

single, parallel = published_kernels("one GPU"), published_kernels("parallel")
columns = "short_name calls total_ms mean_us max_us percent"
show_table(single, columns, f"AMD, one GPU, {STEPS['one GPU']} steps", rows=3)
show_table(parallel, columns, f"AMD, parallel, one rank, {STEPS['parallel']} steps", rows=3)
longest_ns = parallel["max_ns"].iloc[0]
say(
    f"One of the {parallel['calls'].iloc[0]} RCCL calls took {longest_ns / 1e6:.0f} ms, "
    f"{100 * longest_ns / parallel['total_ns'].iloc[0]:.0f} % of the total. Such a mean describes no call. "
    f"On one GPU all kernels took {all_kernels_ns(single) / STEPS['one GPU'] / 1e6:.1f} ms a step."
)

# %%
# 8 minutes: how long do all kernels but RCCL's take in each step of `parallel`, in ms? Only the first rows of AMD's
# table are there, but `percent` is each one's share of all kernels; `STEPS["parallel"]` is the number of steps.
q = exercise("04.5", parallel)
# solution
everything = parallel["total_ns"].iloc[0] / parallel["percent"].iloc[0] * 100
answer = (everything - parallel["total_ns"].iloc[0]) / STEPS["parallel"] / 1e6
# end solution
q.check(answer)

# %% [markdown]
# One more, a recording of one rank on an MI350X. Would you rewrite the collective library?

# %%
there = proflab.try_recording("rocprofv3-json-mi350x-torch-training")
if there:
    real = tidyprof.read(there.path, origin=there.origin)
    names = tidyprof.kernels(real)
    show_table(names, columns, "One rank on an MI350X", rows=3)
    waits = real.device_events.query("kind == 'collective'")["duration_ns"]
    ten = waits.nlargest(10).sum() / waits.sum()
    say(
        f"RCCL: mean {waits.mean() / 1e6:.2f} ms, median {waits.median() / 1e6:.2f} ms. Ten of {len(waits):,} calls "
        f"make up {100 * ten:.0f} % of its time. Without it the first kernel has "
        f"{100 * names['total_ns'].iloc[1] / names['total_ns'].iloc[1:].sum():.0f} % of the rest."
    )

# %% [markdown]
# ## Coming from rocprof
#
# `rocprof` and `rocprofv2` are retired. The names look alike, their meaning changed:
#
# | old | rocprofv3 | what changed |
# | --- | --- | --- |
# | `--stats` | `--kernel-trace --stats` | by itself it is an error |
# | `--hip-trace`, `--hsa-trace` | the same | calls only, no kernels and no copies |
# | (part of these) | `--memory-copy-trace` | on its own |
# | `--roctx-trace` | `--marker-trace` | |
# | `--sys-trace` | `--sys-trace`, or the lighter `--runtime-trace` | |
# | `--basenames on` | `--truncate-kernels` | |
# | `-i` with `pmc:` lines | `--pmc`, or `-i` with YAML or JSON | |
# | `results.stats.csv` | `<name>_kernel_stats.csv` | only with `--output-format csv` |
# | program at the end | program behind `--` | |

# %%
# 8 minutes, open: translate `rocprof --stats --roctx-trace --basenames on python train.py`, with results as CSV.
q = exercise("04.6")
# solution
answer = "rocprofv3 --kernel-trace --marker-trace --stats -T -f csv -- python train.py"
# end solution
q.check(answer)

# %% [markdown]
# ## Decide
#
# One number chooses the next question: how much of the time the GPU is idle. Take it from a run with a single rank,
# where no waiting looks like work. A run under a profiler proves no speed-up: when you change something, measure it
# without the tool.


# %%
def decide(run, part):
    idle = 100 - tidyprof.busy(part.profile)["union_percent"].mean()
    launching, computing = "what is the host doing between launches? (03)", "is the first kernel near its ceiling? (05)"
    say(f"{run}: idle for {idle:.0f} % of the time. Next: {launching if idle > 30 else computing}")


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
# | no CSV since ROCm 7.0 | name the format: `--output-format csv` |
# | one file for four ranks | put `%pid%` or the rank into the name |
# | no kernel at all under `srun` | the tool stands inside: `srun rocprofv3 ... -- python ...` |
# | "No HIP GPUs are available" under the tool | [use the rocprofv3 of the ROCm that torch was built for][venv] |
# | a crash or an empty result beside `--torch-profile` | one profiler in a run |
# | `Opened result file` as an error | normal: so it says which files it wrote |
# | RCCL is `rccl_main_kernel` in one file, `ncclDevKernel...` in another | releases differ: search for both |
#
# More of them, with sources, are in the [list of known issues](../docs/known-issues.md).
#
# [venv]: https://github.com/ROCm/rocprofiler-sdk/issues/66

# %% [markdown]
# ## At work, without this course
#
# This needs pandas and nothing else:
#
# {snippet 04_busy_time.py}

# %% [markdown]
# ## Key points
#
# - Name the format, the trace and the file in every command; the defaults change.
# - A percentage in a kernel table is a share of kernel time. Ask for the share of a step.
# - Many short kernels make the host the limit. More work per launch is then nearly free.
# - An RCCL kernel's time can be mostly waiting. Compare ranks before you blame the network.
#
# Next question: is this kernel near its ceiling?
