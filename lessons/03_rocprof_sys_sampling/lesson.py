# %% [markdown]
# # What is the CPU doing while the GPU waits?
#
# A step budget tells how long the GPU waits, not why. The reason is on the host, often in code that belongs to no
# operator. `rocprof-sys`, AMD's system profiler, looks there: many times a second it interrupts the program and
# writes down which function called which.
#
# After this lesson you can
#
# - name ranges in your own script, and record call stacks of the host beside the GPU's timeline;
# - find the GPU's gaps in a table, and the functions behind them, with pandas alone;
# - say what samples, cut stacks and a slowed-down program can't tell.
#
# You need lessons 00 and 02. Commands and settings hold from ROCm 6.4 to {newest rocm}
# ([what changed](../docs/releases.md)). An AMD GPU is used where there is one.

# %%
import json
from contextlib import contextmanager

import pandas as pd
import torch

import proflab
import tidyprof
from proflab import exercise, say, show_figure, show_table
from proflab.parts.stacks_over_kernels import stacks_over_kernels
from proflab.parts.steady_part import own_run, steady_part
from tidyprof import plots

lesson = proflab.start("03")

# %% [markdown]
# ## The picture to keep in mind
#
# | | tracing | sampling |
# | --- | --- | --- |
# | looks | at every call of HIP, every kernel and copy | at some moments, at each thread |
# | writes | begin and end | a *sample*, the *call stack*: the running function, its caller, and so on outwards |
# | costs | something for each call | something for each sample |
# | knows | how often, how long | what was going on, whatever it is |
# | does not know | what happens between the calls | what happens between the samples |
#
# The tool does both on one time axis. A *gap* is time in which nothing runs on the GPU: tracing finds it, samples
# explain it.
#
# ## Predict
#
# The training is that of lesson 00. One process, images prepared by the training process itself.

# %%
# solution
gap_guess, backward_guess = 20, 40
# end solution
proflab.predict("03.a", gap_guess, unit="%", what="the share of a step that the largest gap of the GPU takes")
proflab.predict("03.b", backward_guess, unit="%", what="the share of the backward pass in a recorded training program")

# %% [markdown]
# ## Ranges of your own
#
# A profiler sees kernels and calls, not what you mean by them. A *range* is a name that your program gives to a stretch
# of its time. AMD's tools read such names from the library ROCTX. PyTorch's `torch.cuda.nvtx` calls it where PyTorch
# is built for ROCm; other builds have NVIDIA's library there, or none.

# %%
if torch.version.hip:
    push, pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
else:
    push = pop = lambda *name: None


@contextmanager
def marked(name):
    push(name)
    try:
        yield
    finally:
        pop()


with marked("forward"):
    torch.ones(4) @ torch.ones(4)
say(f"Ranges are {'written' if torch.version.hip else 'not written: this PyTorch is not built for ROCm'}.")

# %% [markdown]
# The trainer's `--roctx` does the same around its five parts `data`, `forward`, `loss`, `backward` and `optimizer`, and
# around each step, as `ProfilerStep#0` and so on.
#
# ## Settings
#
# `rocprof-sys-avail -G` writes all settings with their defaults into a file, those called advanced only with
# `--advanced`: `SAMPLING_REALTIME` below is one. Read that file, and keep another with only the lines that you change.
# `-bd -r` explains one of them.

# %% language="bash"
# rm -f runs/03/default.cfg
# rocprof-sys-avail -G runs/03/default.cfg --advanced
# grep -E "TRACE |USE_SAMPLING|USE_ROCM|SAMPLING_FREQ|SAMPLING_CPUS|TIME_OUTPUT" runs/03/default.cfg
# rocprof-sys-avail -bd -r SMI_METRICS

# %% [markdown]
# | key, after `ROCPROFSYS_` | why |
# | --- | --- |
# | `TRACE` | the format, a timeline for Perfetto. Name it: from ROCm 10.1 on the default is a database (`USE_ROCPD`) |
# | `PROFILE` | sums as tables too, `wall_clock-...` and `sampling_...`. From ROCm 10.1 on never there unless named |
# | `SAMPLING_REALTIME` | sample by the clock. By default a thread that sleeps is never sampled: it uses no CPU time |
# | `SAMPLING_FREQ` | samples a second of each thread. More for a short run, fewer for a long one |
# | `PROCESS_SAMPLING_FREQ` | the same for sensors such as power; a few are enough |
# | `SAMPLING_CPUS` | the clock of these processors, and page faults and context switches (explained below) |
# | `USE_ROCM` | the switch for HIP calls and kernels: leave it on. Up to ROCm 6.3: `USE_ROCTRACER`, `USE_ROCPROFILER` |
# | `ROCM_DOMAINS` | what of ROCm: calls, ranges, kernels, copies. Each one less makes the trace smaller |
# | `PERFETTO_BUFFER_SIZE_KB` | memory for the trace, of every process. Once it is full, the *end* of the run is lost |
# | `TIME_OUTPUT` | adds a folder named after the minute; ranks may end up in different ones: off |
#
# `AMD_SMI_METRICS` says which sensors of the GPU. Its default has what we need, and ROCm 6.4 calls it
# `ROCM_SMI_METRICS`, so it is left out: the tool refuses a file with a name that it does not know.
#
# `rocprof-sys-sample` switches call stacks on, `rocprof-sys-run` does not.

# %% language="bash"
# cat > runs/03/course.cfg <<END
# ROCPROFSYS_TRACE                   = true
# ROCPROFSYS_PROFILE                 = true
# ROCPROFSYS_SAMPLING_REALTIME       = true
# ROCPROFSYS_SAMPLING_FREQ           = 500
# ROCPROFSYS_PROCESS_SAMPLING_FREQ   = 10
# ROCPROFSYS_SAMPLING_CPUS           = all
# ROCPROFSYS_ROCM_DOMAINS            = hip_runtime_api,marker_api,kernel_dispatch,memory_copy
# ROCPROFSYS_PERFETTO_BUFFER_SIZE_KB = 200000
# ROCPROFSYS_TIME_OUTPUT             = false
# END

# %% [markdown]
# *Hardware counters* count events inside a processor, such as instructions. On a GPU node the first line below lists
# those of the GPU, and the second adds a setting that chooses two of them for every kernel ([AMD's page][counters]);
# `SQ_WAVES:device=0` would count on one GPU only. The trace then has a row for each counter below the kernels, and the
# folder a table for each, `rocprof-device-0-SQ_WAVES` and so on. The course's model does not play this; lesson 04
# collects counters with `rocprofv3`, lesson 05 explains them.
#
# ```bash
# rocprof-sys-avail -H -c GPU -d
# echo "ROCPROFSYS_ROCM_EVENTS = SQ_WAVES,SQ_INSTS_VALU" >> runs/03/course.cfg
# ```
#
# [counters]: https://rocm.docs.amd.com/projects/rocprofiler-systems/en/latest/how-to/configuring-runtime-options.html

# %% [markdown]
# ## Capture
#
# The tool could also *instrument* a program, that is, write probes into its machine code. For Python this is no way:
# it would be the interpreter's code. Sampling leaves the program as it is. `-c` names the settings, `-o` the folder.
# `--num-workers 0` lets the training process load its images itself, so that one timeline has all of it. We come back
# to what it does.
#
# Without a GPU the stand-in answers from a model of an MI300X. Every figure then says `modelled`.

# %% language="bash"
# rm -rf runs/03/one
# rocprof-sys-sample -c runs/03/course.cfg -o runs/03/one \
#     -- python -m cifar_train --max-steps 6 --roctx --num-workers 0 2>&1

# %% [markdown]
# The `.proto` file is the timeline, and the samples are in it. File names end with the number of the process, so a
# second run would join the first: hence `rm`.
#
# ## First look: stacks above kernels
#
# `own_run` reads the folder, `steady_part` keeps the steps after the warm-up. The picture shows one step: the *call
# stacks* of both threads as they were sampled, callers above what they call, and below them how full the GPU was.

# %%
run = own_run("runs/03/one")
steady = steady_part(run)
say(f"{steady.steps} steady steps of {steady.step_ns / 1e6:.1f} ms. Lost data: {run.meta['data_loss'] or 'none'}.")
step = tidyprof.steps(steady.profile).iloc[1]
window = int(step["start_ns"]), int(step["start_ns"] + step["duration_ns"])
show_figure(stacks_over_kernels(steady.profile, *window, title="One steady step: call stacks above the GPU"))

# %% [markdown]
# How full, and not just blue or white: a kernel of a few microseconds would be a line as wide as one dot, which stands
# for a hundred of them. A thousand such lines look like a solid bar, whatever lies between them. So zoom in before you
# believe a timeline. Perfetto, the viewer of lesson 02, does it with the keys W, A, S and D.

# %%
busy = steady.profile.device_events["start_ns"].between(*window)
middle = int(steady.profile.device_events.loc[busy, "start_ns"].median())
zoomed = {"start_ns": middle, "end_ns": middle + 300_000}
show_figure(plots.timeline(steady.profile, **zoomed, title="A moment from the middle of the same step"))
proflab.perfetto(steady.profile, step=int(step["step"]), title="One steady step")

# %% [markdown]
# ## Gaps by hand
#
# A gap begins where everything so far has ended. The latest end so far is `cummax`, and `shift` moves it to the next
# row, whose start it meets. `fill_value` keeps whole numbers: as floats, times of this size would be rounded.
#
# Two names in the table: `amp_update_scale_cuda_kernel` ends a step of mixed precision, it adapts the factor that keeps
# small float16 gradients from becoming zero. `multi_tensor` kernels are the optimizer's, for many weights at once.

# %%
gpu = steady.profile.device_events.query("duration_ns > 0").sort_values("start_ns")
end = gpu["start_ns"] + gpu["duration_ns"]
idle = gpu["start_ns"] - end.cummax().shift(fill_value=gpu["start_ns"].iloc[0])
by_hand = idle[idle >= 10_000].sort_values(ascending=False)

found = tidyprof.gaps(steady.profile)
assert by_hand.tolist() == found["duration_ns"].tolist()
show_table(found, "duration_us cause host_range host_call after before", "The GPU's gaps, longest first", rows=6)

# %% [markdown]
# `launched late`: the next work was launched only after the GPU had run dry, so the gap was made on the host.
# `queued`: it had been launched before, and the GPU itself needed the time. `host_range` is the range that covers most
# of the gap, which can be a small part. `host_call` is the HIP call that covers at least half of it. Where it is empty,
# no call took so long: the host did something else, and no trace of calls says what. Does it add up?

# %%
span_ns = int(end.max() - gpu["start_ns"].iloc[0])
account = {"busy": span_ns - idle.clip(lower=0).sum(), "gaps of 10 µs and more": by_hand.sum()}
account["shorter gaps"] = span_ns - sum(account.values())
account["before the first kernel, after the last"] = steady.duration_ns - span_ns
accounts = pd.DataFrame({"part": account.keys(), "duration_ns": account.values()})
show_table(accounts, "part duration_ms", f"{steady.steps} steady steps", origin=steady.profile.origin)
say(
    f"A gap lies between two kernels, so {steady.steps} steps have {steady.steps - 1} gaps from one step to the next: "
    "the wait at the beginning of the first step stands in the last row."
)

# %%
# 6 minutes: what share of the time in the range `backward`, in percent, is the GPU idle in gaps of `found`? Ranges are
# the rows of `steady.profile.events` whose `kind` is `annotation`; give a gap to its `host_range`.
q = exercise("03.1", steady)
# solution
ranges = steady.profile.events.query("kind == 'annotation' and name == 'backward'")
idle_ns = found.loc[found["host_range"] == "backward", "duration_ns"].sum()
answer = 100 * idle_ns / ranges["duration_ns"].sum()
# end solution
q.check(answer)

# %%
# 4 minutes: what share of the idle time in `found`, in percent, lies in gaps shorter than a millisecond?
q = exercise("03.2", steady)
# solution
short = found["duration_ns"] < 1_000_000
answer = 100 * found.loc[short, "duration_ns"].sum() / found["duration_ns"].sum()
# end solution
q.check(answer)

# %% [markdown]
# ## The call-stack answer
#
# A *sample* has one row per function in its stack, `depth` 0 being the outermost. The tool stores it as lasting from
# the thread's sample before; it was taken at the end of that time. By the clock, a thread is looked at whether it works
# or sleeps: so choose the main thread, which marks the ranges.

# %%
events = steady.profile.events
samples = events.query("kind == 'sample' and name != '__sigaction'").sort_values("depth")
samples = samples.assign(taken_ns=samples["start_ns"] + samples["duration_ns"])
main_thread = events.query("kind == 'annotation'")["thread"].mode()[0]
gap = found.iloc[0]
times = gap["start_ns"], gap["start_ns"] + gap["duration_ns"]
inside = samples[samples["taken_ns"].between(*times) & (samples["thread"] == main_thread)]
stacks = inside.groupby("sample")["short_name"].agg(" > ".join).value_counts()
say("\n".join(f"- {count} samples: {stack}" for stack, count in stacks.items()) or "No sample was taken in it.")

# %% [markdown]
# `__sigaction` is left out because it belongs to the tool, see below. That is all there is to a table of call stacks;
# `tidyprof.call_stacks` makes it for any profile, and draws it as an *icicle*: callers above what they call, as wide as
# the number of samples. An ellipsis stands for functions that only call the next.

# %%
everything = tidyprof.call_stacks(tidyprof.Profile(samples.assign(duration_ns=0), meta=steady.profile.meta))
innermost = samples.groupby("sample")["name"].last().value_counts()
counted = everything.groupby("name")["self_count"].sum()
assert counted[counted > 0].to_dict() == innermost[innermost > 0].to_dict()
show_figure(plots.call_stacks(everything, title="All samples of the steady steps, all threads"))
by_thread = samples.groupby("thread")["sample"].nunique()
say(", ".join(f"thread {thread}: {count} samples" for thread, count in by_thread.items()) + ".")

# %% [markdown]
# The short gaps have another reason. With a GPU PyTorch runs backward on a thread of its own, which launches kernels
# one by one, while the main thread sleeps in `pthread_cond_wait`. Sampled by CPU time, that sleep would be missing. In
# forward the main thread launches one by one itself. No function is slow here: there are many launches.
#
# The model is nicer than reality: it names Python functions and has two threads, of which the second is there during
# the backward pass only and has fewer samples. In a real stack each Python function is one more
# `_PyEval_EvalFrameDefault` among C functions, and there are more threads, most of them asleep, each with about as many
# samples. Then the range says *where* and the C functions *what*. `rocprof-sys-python` names Python functions, but not
# those of threads that the program starts.
#
# ## Which function launched which GEMM?
#
# A *GEMM* is a general matrix product. Its kernel's name does not say which layer wanted it. But the call that launched
# it has the kernel's `correlation_id`, and where a sample was taken during that call, its stack names the functions.
# The warm-up is welcome here: the first launch of a kernel loads its code and takes long enough to be sampled.

# %%
calls = run.events.query("kind == 'runtime'").sort_values("start_ns")
frames = run.events.query("kind == 'sample' and name != '__sigaction'").sort_values("depth")
frames = frames.assign(start_ns=frames["start_ns"] + frames["duration_ns"])
taken = frames.groupby("sample").agg({"start_ns": "first", "thread": "first", "short_name": list})
taken["stack"] = taken.pop("short_name").map(lambda names: " > ".join(names[-4:]))

begun = calls[["start_ns", "duration_ns", "thread", "correlation_id"]].assign(called_ns=calls["start_ns"])
hit = pd.merge_asof(taken.sort_values("start_ns"), begun, on="start_ns", by="thread")
hit = hit[hit["start_ns"] < hit["called_ns"] + hit["duration_ns"]]
kernels = run.device_events[["correlation_id", "name", "short_name"]].merge(tidyprof.kernels(run)[["name", "category"]])
gemms = hit.merge(kernels.query("category == 'GEMM'"), on="correlation_id").drop_duplicates(["short_name", "stack"])
show_table(gemms, "short_name stack", "GEMMs, and the innermost four functions of their launch", origin=run.origin)
say(f"{len(hit)} samples fell into a call; {calls['name'].str.contains('Launch').sum():,} launches were made.")

# %% [markdown]
# `merge_asof` finds for each sample the last call that began before it on its thread; the next line of code keeps those
# that had not ended. So a sampler answers this for some kernels, by luck. Perfetto shows the same if you click on a
# kernel and follow the arrow to its call. For every kernel, take torch.profiler with `with_stack` (lesson 02).
#
# ## Trap: samples are not calls
#
# The same functions, traced and sampled:

# %%
traced = events.query("kind == 'runtime'").groupby("name", observed=True)["duration_ns"].agg(["size", "mean", "sum"])
both = traced.set_axis(["calls", "mean_ns", "total_ns"], axis=1).sort_values("total_ns", ascending=False)
both["samples"] = samples.groupby("name", observed=True)["sample"].nunique().reindex(both.index).fillna(0).astype(int)
both = both.reset_index()
columns, caption = "name calls mean_us total_ms samples", "HIP calls of the steady steps, two ways"
show_table(both, columns, caption, rows=5, origin=run.origin)
top = both.iloc[0]
say(
    f"{samples['sample'].nunique()} samples against {both['calls'].sum():,} calls. One call of 20 ms and a thousand of "
    "20 µs get about as many samples: they know a share, never a count. And with few samples a rough one: "
    f"`{top['name']}` ran for {top['total_ns'] / 1e6:.1f} ms. At 500 samples a second that makes "
    f"{top['total_ns'] * 500 / 1e9:.0f}; {top['samples']} are there."
)

# %% [markdown]
# Where you see *n* samples, another run may well differ by the square root of *n*: with nine samples, by three. So a
# difference of one or two samples needs no explanation.
#
# But a share is enough to get a time: one sample stands for a second divided by the frequency. Try it on a run that you
# have not seen yet, whose images are slow to read:

# %% language="bash"
# rm -rf runs/03/unseen
# rocprof-sys-sample -c runs/03/course.cfg -o runs/03/unseen -- python -m cifar_train --max-steps 6 --roctx \
#     --num-workers 0 --pathology slow-loader --batched-transforms 2>&1 | grep -v Outputting

# %%
# 8 minutes: how many milliseconds does this program sleep for each image, by its samples alone? The name of the
# innermost function contains `sleep`, a batch has 256 images, and the sampler looked 500 times a second.
unseen = steady_part(own_run("runs/03/unseen"))
q = exercise("03.3", unseen)
# solution
rows = unseen.profile.events.query("kind == 'sample'")
asleep = rows[rows["name"].str.contains("sleep")]["sample"].nunique()
answer = 1000 * asleep / 500 / (unseen.steps * 256)
# end solution
q.check(answer)

# %% [markdown]
# ## Mean, smallest, largest, spread
#
# `ROCPROFSYS_PROFILE` adds up what was traced. Its files are tables of text, and JSON for programs: a list of rows,
# each with its place in the call tree, how often it ran, and the *standard deviation*, by which a call typically
# differs from the mean. Times are seconds.

# %%
(file,) = (lesson.folder / "one").glob("wall_clock-*.json")
graph = json.loads(file.read_text())["timemory"]["wall_clock"]["ranks"][0]["graph"]
clock = pd.json_normalize(graph)
clock.columns = clock.columns.str.removeprefix("stats.")
by_reader = run.meta["tables"]["wall_clock"]
assert (clock["mean"] * 1e9 - by_reader["mean_ns"]).abs().max() < 1

clock[["mean_ns", "min_ns", "max_ns", "std_ns"]] = clock[["mean", "min", "max", "stddev"]] * 1e9
first = clock[clock["prefix"].str.contains("forward")].index[0]
columns = "prefix count mean_us min_us max_us std_us"
show_table(clock.loc[first : first + 3], columns, "Forward of the first step, and its calls", origin=run.origin)

# %% [markdown]
# A mean far from the smallest value and a deviation larger than the mean: these calls are of two kinds. Here it is the
# warm-up, where the first launch of each kernel loads code. A mean alone would have described no call at all.

# %%
# 8 minutes: suppose every `hipLaunchKernel` of that forward took either exactly the smallest or exactly the largest
# time. How many took the largest? `row` is its line; count, mean, smallest and largest are enough.
row = clock[clock["prefix"].str.contains("hipLaunchKernel")].iloc[0]
q = exercise("03.4", clock)
# solution
surplus_ns = row["count"] * (row["mean_ns"] - row["min_ns"])
answer = surplus_ns / (row["max_ns"] - row["min_ns"])
# end solution
q.check(answer)

# %% [markdown]
# ## Power and temperature beside the kernels
#
# The sensors lie on the same time axis. To compare, the share of time in which kernels ran becomes one more sensor.

# %%
used = tidyprof.utilisation(run, bins=80)
used = pd.DataFrame({"time_ns": used["start_ns"], "device": used["device"], "value": used["busy_percent"]})
sensors = pd.concat([run.counters, used.assign(name="by kernels", unit="%")])
sensors["name"] = sensors["name"].astype(str).str.replace(r"GPU \[\d+\] | \(S\)", "", regex=True)
begin = int(run.device_events["start_ns"].min()) - 300_000_000
shown = tidyprof.Profile(run.events, sensors[sensors["time_ns"] > begin], run.meta)
names = [name for name in ("Power", "Temperature", "GFX Busy", "by kernels") if name in set(sensors["name"])]
show_figure(plots.counters(shown, names, title="What the sensors saw, and what the kernels did"))
power = sensors.loc[sensors["name"] == "Power", "value"]
say(f"Power: {power.min():.0f} W while the program gets ready, {power.max():.0f} W at most. Samples: {len(power)}.")

# %% [markdown]
# A sensor says what the whole chip did on average since its last look; a step is over before that. For a curve worth
# reading, train for seconds, not for six steps (lesson 01).

# %% [markdown]
# ## A real recording, and two more traps
#
# Now real stacks: a small training on a processor. In which function was the program most of the time?

# %%
there = proflab.recording("rocprof-sys-cpu")
real = tidyprof.read(there.path, origin=there.origin)
say(f"{there.entry.workload}; {there.entry.tool}, version {there.entry.tool_version}.")
tree = tidyprof.call_stacks(real)
own = tree.groupby("short_name")["self_count"].sum().sort_values(ascending=False)
say(f"Innermost function: `{own.index[0]}`, in {own.iloc[0]} of {real.events['sample'].nunique()} samples.")
show_figure(plots.call_stacks(tree, levels=5, title="As recorded: one program, and many roots"))

# %% [markdown]
# It is the tool itself: its interruption is the innermost *frame*, or entry, of every stack.
# `without=["__sigaction"]` takes it out, and with it the time of samples that hold nothing else.
#
# The second trap is at the top. A program begins in `__libc_start_main` (here under the first ellipsis), so the first
# row should be one box. But the tool keeps a limited number of frames, counted from the inside. Importing a library
# nests deeper: such a stack loses its outer end and begins somewhere in between.

# %%
roots = tree.query("depth == 0")
for warning in real.meta["warnings"][1:]:
    say(f"The reader warns: {warning}")
say(
    f"`{roots['name'].iloc[0]}` has {roots['percent'].iloc[0]:.0f} % of the time, {len(roots) - 1} other roots "
    "have the rest. What you add up below one root is a part of the truth."
)

# %% [markdown]
# The repair: begin all stacks at a function that you know, wherever it stands. `root="run_backward"` begins them at
# the C++ function with which a backward pass starts.

# %%
backward = tidyprof.call_stacks(real, root="run_backward", without=["__sigaction"])
show_figure(plots.call_stacks(backward, title="What the CPU does in the backward pass"))

# %%
# 6 minutes: what share of all sampled time of `real`, in percent, lies in the backward pass? The outermost functions
# (`depth` 0) of a tree hold all its time, in `total_ns`.
q = exercise("03.5", real)
# solution
whole = tidyprof.call_stacks(real).query("depth == 0")["total_ns"].sum()
part = tidyprof.call_stacks(real, root="run_backward").query("depth == 0")["total_ns"].sum()
answer = 100 * part / whole
# end solution
q.check(answer)

# %% [markdown]
# ## Page faults, context switches, clock
#
# The same recording has what the kernel of the operating system counts for the program. A *page fault* is the first
# touch of a piece of memory, which the system must then provide; a *context switch* takes the program off its processor
# for a while. Both are sums since the start, so take differences. The names end in `(S)` for sampled.

# %%
watched = real.counters.pivot_table(index="time_ns", columns="name", values="value", observed=True)
watched.columns = watched.columns.str.removesuffix(" (S)")
sums = watched[["CPU Page Faults", "CPU Context Switches"]].set_axis(["faults / s", "switches / s"], axis=1)
rates = sums.diff().div(watched.index.to_series().diff() / 1e9, axis=0)
rows = rates.assign(**{"CPU 0, MHz": watched["CPU Frequency [0]"]}).melt(ignore_index=False, var_name="name")
rows = rows.reset_index().dropna().assign(device=pd.NA, unit="")
seen = tidyprof.Profile(real.events, rows, real.meta)
show_figure(plots.counters(seen, list(rows["name"].unique()), title="Page faults, context switches, clock"))
is_backward = real.events["name"].astype(str).str.contains("run_backward")
training_ns = (real.events["start_ns"] + real.events["duration_ns"])[is_backward].min()
early = watched["CPU Page Faults"].loc[:training_ns].iloc[-1] / watched["CPU Page Faults"].iloc[-1]
say(f"{100 * early:.0f} % of the page faults came before the first backward pass: imports, and memory's first use.")

# %% [markdown]
# A clock that sinks under load, many context switches while the GPU waits, page faults in every step (buffers that are
# allocated anew): each is a reason for a slow host that no call stack shows.
#
# ## Close the gap
#
# Back to your own run. You know the function in the gap, and `python -m cifar_train --help` lists the options. Change
# one in the command of *Capture*, write into `runs/03/fixed`, and let the GPU do the same work as before.

# %% language="bash"
# # solution
# rm -rf runs/03/fixed
# rocprof-sys-sample -c runs/03/course.cfg -o runs/03/fixed \
#     -- python -m cifar_train --max-steps 6 --roctx --num-workers 0 --batched-transforms 2>&1 | grep -v Outputting
# # end solution

# %%
# 10 minutes, open: give a run in which the largest gap is at most half as long: `answer = own_run("runs/03/fixed")`.
q = exercise("03.6", steady)
# solution
answer = own_run("runs/03/fixed")
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: who made the gap?
#
# You closed a gap, but was it there without the tool? AMD published this training on an MI300X, with no tool and
# with two processes that load images.

# %%
amd = pd.read_csv(lesson.file("amd_one_gpu_rates.csv"), comment="#")
plain_ns = (256 / amd["images_per_second"].iloc[5:]).median() * 1e9
say(
    f"AMD's step took {plain_ns / 1e6:.1f} ms. Yours took {steady.step_ns / 1e6:.1f} ms, of which "
    f"{found['duration_ns'].iloc[0] / 1e6:.1f} ms are the largest gap."
)

# %% [markdown]
# If your gap is longer than AMD's whole step, AMD's run can't have had it. It came with `--num-workers 0`: for the
# tool's sake we loaded images in the training process, and then it showed us that loading takes long. So check each
# finding without the tool and with your usual options, before you optimise it.
#
# ## Four ranks, and the same trap again
#
# `rocprof-sys-run` is `rocprof-sys-sample` without call stacks. A *launcher* starts one process per rank. Where does
# the tool stand? In file names it replaces what stands between `%` signs.
#
# | launcher | command | watches |
# | --- | --- | --- |
# | Slurm | `srun -n 4 rocprof-sys-run -c FILE -- python ...` | each rank; `%rank%` in names |
# | Open MPI | `mpirun -n 4 rocprof-sys-run -c FILE -- python ...` | each rank; `%env{OMPI_COMM_WORLD_RANK}%` |
# | torchrun, inside the tool | `rocprof-sys-run -c FILE -- torchrun ...` | launcher and ranks; `%env{RANK}%` |
# | torchrun, outside | `torchrun --no-python ... rocprof-sys-run -c FILE -- python ...` | ranks only; `%env{RANK}%` |
#
# Within a job of Slurm `%rank%` asks Slurm first, so under `mpirun` it would be 0 for all. A tool around `srun` watches
# `srun`, and no kernel. The second value of `-o` begins the file names; without it only the number of the process tells
# ranks apart. Where there are GPUs, the command needs four; with fewer, lower the number.

# %% language="bash"
# rm -rf runs/03/ranks
# rocprof-sys-run -c runs/03/course.cfg -o runs/03/ranks rank%env{RANK}%- \
#     -- torchrun --standalone --nproc-per-node 4 -m cifar_train --max-steps 3 --roctx --num-workers 0 \
#     2>&1 | grep -v Outputting
# ls runs/03/ranks | grep proto

# %%
ranks = steady_part(own_run("runs/03/ranks"))
compared = tidyprof.ranks(ranks.profile)
show_figure(plots.ranks(compared, title="The same collectives on four ranks"))
waiting, moving = compared["wait_ns"].sum(), compared["transfer_ns"].sum()
say(
    f"RCCL takes from {compared['communication_ns'].min() / 1e6:.1f} to "
    f"{compared['communication_ns'].max() / 1e6:.1f} ms, and {100 * waiting / (waiting + moving):.0f} % of it is "
    "waiting for the rank that comes last. What the tool adds to each call is not published; the course's model takes "
    "a fixed time for it."
)

# %% [markdown]
# A collective on a rank ends only after the last rank has come. Each recorded call and each sample delays some rank
# a little, and then all of them wait. So what a tool costs shows first as *longer collectives*. Take from such a run
# which rank is late and what its host was doing; take the time of communication from a lighter tool (lesson 07).
#
# RCCL's kernels are in every trace. `ROCPROFSYS_USE_RCCLP=true` adds its calls on the host; [before ROCm 7.12][rccl]
# the program then ends with an error, though the trace is there.
#
# [rccl]: https://github.com/ROCm/rocm-systems/blob/develop/projects/rocprofiler-systems/docs/how-to/communication-runtime-profiling.rst
#
# ## Decide
#
# What is left of the gaps chooses the next question.


# %%
NEXT = {
    "data_wait_ns": "is it so without the tool? (clock of lesson 00)",
    "launch_bound_ns": "which kernels are so many? (lesson 04)",
    "blocked_host_ns": "in which call does the host wait? (tidyprof.blocked_calls)",
}


def decide(name, part):
    budget = tidyprof.step_budget(part.profile)
    waits = budget[list(NEXT)].mean() / budget["duration_ns"].mean()
    say(f"{name}: {100 * waits.sum():.0f} % waiting. Next: {NEXT[waits.idxmax()]}")


decide("Your first run", steady)
if (lesson.folder / "fixed").exists():
    decide("After the change", steady_part(own_run("runs/03/fixed")))
proflab.reveal("03.a", 100 * found["duration_ns"].iloc[0] / steady.step_ns, steady.profile)
proflab.reveal("03.b", 100 * backward.query("depth == 0")["total_ns"].sum() / roots["total_ns"].sum(), real)

# %% [markdown]
# A cure is proven only without the tool, by several runs of each side, which takes minutes on a GPU. Lesson 08 keeps
# such proofs in a *ledger*; the lines for this one:
#
# ```python
# from proflab import ledger
# ledger.add("transforms take the data range", ledger.trainer(""), ledger.trainer("--batched-transforms"))
# ```

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# It knows neither operators nor shapes (lesson 02), and not whether a kernel is good (lesson 05). Between two samples
# anything can happen. A function whose name a library does not export is shown under the nearest name that it does,
# which can be wrong. And with sampling on, no time of this run is the time of your training.
#
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# {issue dataloader-workers-crash-under-sampling}
# {issue rocprof-sys-hangs-with-include-all}
# {issue rocprof-omniperf-and-omnitrace-are-retired}
# | no Perfetto file from ROCm 10.1 on | a database is the default: `TRACE`, or `--trace` on the command line |
# | `rocprof-sys-avail` fails where there is no GPU | up to 1.5 it asks for one: run it on a GPU node |
# {issue slices-that-did-not-end}
# {issue a-run-with-several-gpus-hangs}
#
# More, with sources, in the [list of known issues](../docs/known-issues.md).

# %% [markdown]
# ## At work, without this course
#
# Ranges for any training loop. Without a GPU, and without ROCTX, the file does nothing and says so once:
#
# {snippet 03_ranges.py}

# %% [markdown]
# Settings and command for any program:
#
# {snippet 03_sample.sh}

# %% [markdown]
# And its sums, as a table that shows where a mean describes no call:
#
# {snippet 03_wall_clock.py}
#
# Read on: [AMD's manual of rocprof-sys](https://rocm.docs.amd.com/projects/rocprofiler-systems/en/latest/).

# %% [markdown]
# ## Key points
#
# - Tracing finds the gap, samples taken in it explain it. Sample by the clock when you look for waiting.
# - Samples give shares, not counts.
# - Stacks are cut at their outer end: begin them at a function that you know.
# - The tool changes the program. A collective shows that first, and so does an option that the tool needs.
#
# Next question: which kernels, how often, how small?
