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
# - say what samples and cut stacks can't tell;
# - let loader processes close the gap, and say what that gains where.
#
# You need lessons 00 and 02. Commands and settings hold from ROCm 6.4 to {newest rocm}
# ([what changed](../docs/releases.md)). An AMD GPU is used where there is one.

# %%
import json
import time
from itertools import islice

import pandas as pd
import torch

import proflab
import tidyprof
from proflab import CorrectnessGate, exercise, ledger, say, show_figure, show_table
from proflab.correctness_gate import Trial
from proflab.parts.clinic_runs import modelled
from proflab.parts.stacks_over_kernels import stacks_over_kernels
from proflab.parts.steady_part import own_run, steady_part
from tidyprof import plots

lesson = proflab.start("03")
lesson.sheet()

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
# The case: one process that prepares its images itself (`--num-workers 0`).

# %%
# solution
gap_guess, left_guess = 20, 60
# end solution
proflab.predict("03.a", gap_guess, unit="%", what="what the GPU's largest gap takes of a step")
proflab.predict("03.b", left_guess, unit="%", what="what 2 loader processes leave of it (modelled)")

# %% [markdown]
# ## Ranges of your own
#
# A *range* is a name that your program gives to a stretch of its time. AMD's tools read such names from the library
# ROCTX. In a PyTorch that is built for ROCm, `torch.cuda.nvtx` calls it.
# `snippets/03_ranges.py`, shown at the end, wraps its `range_push` and `range_pop` for any loop.
# The trainer's `--roctx` does the same around its five parts `data`, `forward`, `loss`, `backward` and `optimizer`, and
# around each step, as `ProfilerStep#0` and so on.
#
# ## Settings
#
# Settings go into a file: you can keep it, and name it in a job script in place of a dozen environment variables.
# `rocprof-sys-avail -G FILE --advanced` writes all of them with their defaults, `-bd -r` explains one. Three matter:
#
# - `SAMPLING_REALTIME` samples by the clock. By default a thread that sleeps is never sampled: it uses no CPU time.
# - `SAMPLING_FREQ` is the number of samples a second of each thread.
# - `TRACE` asks for a timeline for Perfetto. From ROCm 10.1 on the default is a database (`USE_ROCPD`), so name it.
#
# The rest of the file: tables of sums (`PROFILE`), sensors ten times a second, what of ROCm is traced, memory for the
# trace (once it is full, the *end* of the run is lost), and no folder named after the minute.
#
# Hardware counters go into the same file: `rocprof-sys-avail -H -c GPU` lists what `ROCPROFSYS_ROCM_EVENTS` may name,
# and `-H -c CPU` does it for `ROCPROFSYS_PAPI_EVENTS`, where `perf::PAGE-FAULTS` and `perf::CONTEXT-SWITCHES` tell
# memory that is touched first and threads that lost their core.
#
# `rocprof-sys-sample` switches call stacks on, `rocprof-sys-run` does not.

# %% language="bash"
# rocprof-sys-avail -bd -r SAMPLING_REALTIME
# cat > $FOLDER/course.cfg <<END
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
# ## Capture
#
# The tool knows programs in C, C++, Fortran, HIP, OpenCL and Python. It could also *instrument* one: write probes into
# its machine code. That is no help for Python, since the probes would land in the interpreter. Sampling leaves the
# program as it is, and kernels of libraries such as rocBLAS or hipBLASLt are traced like others. `-c` names the
# settings, `-o` the folder.
#
# Without a GPU the stand-in answers from a model of an MI300X. Every figure then says `modelled`.

# %% language="bash"
# rm -rf $FOLDER/one
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/one \
#     -- $CASE --max-steps 6 --roctx 2>&1 | grep -v Outputting

# %% [markdown]
# The `.proto` file is the timeline, and the samples are in it. File names end with the number of the process, so a
# second run would join the first: hence `rm`.
#
# ## First look: stacks above kernels
#
# `own_run` reads the folder, `steady_part` keeps the steps after the warm-up. The picture shows one step: the *call
# stacks* of both threads as they were sampled, callers above what they call, and below them how full the GPU was.

# %%
run = own_run(lesson.folder / "one")
steady = steady_part(run)
lost = run.meta["data_loss"] or "none"
say(f"{steady.steps} steady steps of {steady.step_ns / 1e6:.1f} ms. Lost data: {lost}.")
step = tidyprof.steps(steady.profile).iloc[1]
window = int(step["start_ns"]), int(step["start_ns"] + step["duration_ns"])
show_figure(stacks_over_kernels(steady.profile, *window, title="Call stacks above the GPU: a step"))

# %% [markdown]
# A kernel of a few microseconds is narrower than one dot, so a timeline can look full where it is not: zoom in before
# you believe one.

# %%
proflab.perfetto(steady.profile, step=int(step["step"]), title="One steady step")

# %% [markdown]
# ## Gaps by hand
#
# The latest end so far is `cummax`, as in lesson 02; `shift` moves it to the next row, whose start it meets.
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
show_table(found, "duration_us cause host_range host_call after before", "The longest gaps", rows=6)

# %% [markdown]
# `launched late`: the next work was launched only after the GPU had run dry, so the gap was made on the host.
# `queued`: it had been launched before, and the GPU itself needed the time. `host_range` is the range that covers most
# of the gap, `host_call` the HIP call that covers at least half of it. Where it is missing, the host did something
# else, and no trace of calls says what. Does it add up?

# %%
span_ns = int(end.max() - gpu["start_ns"].iloc[0])
account = {"busy": span_ns - idle.clip(lower=0).sum(), "gaps of 10 µs and more": by_hand.sum()}
account["shorter gaps"] = span_ns - sum(account.values())
account["before the first kernel, after the last"] = steady.duration_ns - span_ns
accounts = pd.DataFrame({"part": account.keys(), "duration_ns": account.values()})
show_table(accounts, "part duration_ms", f"{steady.steps} steady steps", origin=run.origin)
say(
    f"A gap lies between two kernels, so {steady.steps} steps have {steady.steps - 1} gaps from "
    "one step to the next: the wait at the beginning of the first step stands in the last row."
)

# %%
# 4 minutes: what share of the time in the range `backward`, in percent, is the GPU idle in gaps of `found`? Ranges are
# the rows of `steady.profile.events` whose `kind` is `annotation`; give a gap to its `host_range`.
q = exercise("03.1", steady)
# solution
ranges = steady.profile.events.query("kind == 'annotation' and name == 'backward'")
idle_ns = found.loc[found["host_range"] == "backward", "duration_ns"].sum()
answer = 100 * idle_ns / ranges["duration_ns"].sum()
# end solution
q.check(answer)

# %%
# 3 minutes: you have closed the gaps of a millisecond and more. In which range does the GPU then idle longest, all
# gaps of `found` together? Give the name of the range.
q = exercise("03.2", steady)
# solution
short = found[found["duration_ns"] < 1_000_000]
answer = short.groupby("host_range")["duration_ns"].sum().idxmax()
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
found_in_it = [f"- {count} samples: {stack}" for stack, count in stacks.items()]
say("\n".join(found_in_it) or "No sample was taken in it.")

# %% [markdown]
# `__sigaction` is left out because it belongs to the tool, see below. `tidyprof.call_stacks` makes such a table for any
# profile, and draws it as an *icicle*: callers above what they call, as wide as the number of samples. An ellipsis
# stands for functions that only call the next.

# %%
counts = tidyprof.Profile(samples.assign(duration_ns=0), meta=steady.profile.meta)
everything = tidyprof.call_stacks(counts)
innermost = samples.groupby("sample")["name"].last().value_counts()
counted = everything.groupby("name")["self_count"].sum()
assert counted[counted > 0].to_dict() == innermost[innermost > 0].to_dict()
show_figure(plots.call_stacks(everything, title="All samples of the steady steps, all threads"))
by_thread = samples.groupby("thread")["sample"].nunique()
say(", ".join(f"thread {thread}: {count} samples" for thread, count in by_thread.items()) + ".")

# %% [markdown]
# And the kernels below: what ran on the GPU when a function was seen on the main thread?

# %%
seen = samples[samples["thread"] == main_thread].groupby("sample").last().sort_values("taken_ns")
ran = gpu[["start_ns", "duration_ns", "short_name"]].rename(columns={"start_ns": "began_ns"})
below = pd.merge_asof(
    seen[["taken_ns", "short_name"]],
    ran,
    left_on="taken_ns",
    right_on="began_ns",
    suffixes=("", "_gpu"),
)
idle = below["taken_ns"] > below["began_ns"] + below["duration_ns"]
below["kernel"] = below["short_name_gpu"].astype(str).mask(idle | below["began_ns"].isna(), "none")
pairs = below.astype(str).value_counts(["short_name", "kernel"]).rename("samples").reset_index()
show_table(
    pairs,
    "short_name kernel samples",
    "Function above, kernel below",
    rows=5,
    origin=run.origin,
)

# %% [markdown]
# The long gap is in `__getitem__`, called by `next_batch` on the main thread: the training process transforms its
# images itself, one by one. It reads no file there: the images are in memory. So it is not the disk.
#
# The short gaps have another reason. With a GPU PyTorch runs backward on a thread of its own, which launches kernels
# one by one, while the main thread sleeps in `pthread_cond_wait`. Sampled by CPU time, that sleep would be missing. In
# forward the main thread launches one by one itself. No function is slow here: there are many launches.
#
# The model is nicer than reality: it names Python functions. In a real stack each Python function is one more
# `_PyEval_EvalFrameDefault` among C functions, and most threads sleep. Then the range says *where* and the C functions
# say *what*. `rocprof-sys-python` names Python functions, but not those of threads that the program starts.
#
# ## Trap: samples are not calls
#
# The same functions, traced and sampled:

# %%
calls = events.query("kind == 'runtime'").astype({"name": str}).groupby("name")["duration_ns"]
both = calls.agg(calls="size", mean_ns="mean", total_ns="sum")
seen = samples.astype({"name": str}).groupby("name")["sample"].nunique()
both["samples"] = seen.reindex(both.index, fill_value=0)
both = both.sort_values("total_ns", ascending=False).reset_index()
columns, caption = "name calls mean_us total_ms samples", "HIP calls of the steady steps, two ways"
show_table(both, columns, caption, rows=5, origin=run.origin)
top = both.iloc[0]
say(
    f"{samples['sample'].nunique()} samples against {both['calls'].sum():,} calls. One call of 20 "
    "ms and a thousand of 20 µs get about as many samples: they know a share, never a count. And "
    f"with few samples a rough one: `{top['name']}` ran for {top['total_ns'] / 1e6:.1f} ms. At 500 "
    f"samples a second that makes {top['total_ns'] * 500 / 1e9:.0f}; {top['samples']} are there."
)

# %% [markdown]
# Where you see *n* samples, another run may well differ by the square root of *n*: with nine samples, by three.
#
# But a share is enough to get a time: one sample stands for a second divided by the frequency. Try it on a run that you
# have not seen yet, whose images are slow to read:

# %% language="bash"
# rm -rf $FOLDER/unseen
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/unseen \
#     -- $CASE --max-steps 8 --batch-size 16 --roctx --pathology slow-loader --batched-transforms \
#     2>&1 | grep -v Outputting

# %%
# 4 minutes: how many milliseconds does this program sleep for each image, by its samples alone? The name of the
# innermost function contains `sleep`, and the sampler looked 500 times a second.
unseen = steady_part(own_run(lesson.folder / "unseen"))
q = exercise("03.3", unseen)
# solution
rows = unseen.profile.events.query("kind == 'sample'")
asleep = rows[rows["name"].str.contains("sleep")]["sample"].nunique()
answer = 1000 * asleep / 500 / (unseen.steps * 16)
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
show_table(clock.loc[first : first + 3], columns, "Forward of the first step", origin=run.origin)

# %% [markdown]
# A mean far from the smallest value and a deviation larger than the mean: these calls are of two kinds. Here it is the
# warm-up, where the first launch of each kernel loads code. A mean alone would have described no call at all.

# %%
# 4 minutes: suppose every `hipLaunchKernel` of that forward took either exactly the smallest or exactly the largest
# time. How many took the largest? `row` is its line; count, mean, smallest and largest are enough.
row = clock[clock["prefix"].str.contains("hipLaunchKernel")].iloc[0]
q = exercise("03.4", clock)
# solution
surplus_ns = row["count"] * (row["mean_ns"] - row["min_ns"])
answer = surplus_ns / (row["max_ns"] - row["min_ns"])
# end solution
q.check(answer)

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
say(f"Innermost: `{own.index[0]}`, in {own.iloc[0]} of {real.events['sample'].nunique()} samples.")
show_table(tree.query("depth == 0"), "short_name percent", "Roots", rows=6, origin=real.origin)

# %% [markdown]
# It is the tool itself: its interruption is the innermost *frame*, or entry, of every stack.
# `without=["__sigaction"]` takes it out, and with it the time of samples that hold nothing else.
#
# The second trap is in the table. A program begins in `__libc_start_main`, so there should be one root. But the tool
# keeps a limited number of frames, counted from the inside. Importing a library nests deeper: such
# a stack loses its outer end and begins somewhere in between.

# %%
roots = tree.query("depth == 0")
for warning in real.meta["warnings"][1:]:
    say(f"The reader warns: {warning}")
say(
    f"`{roots['name'].iloc[0]}` has {roots['percent'].iloc[0]:.0f} % of the time, {len(roots) - 1} "
    "other roots have the rest. What you add up below one root is a part of the truth."
)

# %% [markdown]
# The repair: begin all stacks at a function that you know, wherever it stands. `root="run_backward"` begins them at
# the C++ function with which a backward pass starts.

# %%
backward = tidyprof.call_stacks(real, root="run_backward", without=["__sigaction"])
show_figure(plots.call_stacks(backward, title="What the CPU does in the backward pass"))

# %%
# 4 minutes: what share of all sampled time of `real`, in percent, lies in the backward pass? The outermost functions
# (`depth` 0) of a tree hold all its time, in `total_ns`.
q = exercise("03.5", real)
# solution
whole = tidyprof.call_stacks(real).query("depth == 0")["total_ns"].sum()
part = tidyprof.call_stacks(real, root="run_backward").query("depth == 0")["total_ns"].sum()
answer = 100 * part / whole
# end solution
q.check(answer)

# %% [markdown]
# ## Close the gap
#
# Back to your own run. You know the function in the gap, and `python -m cifar_train --help` lists the options. Run the
# command of *Capture* with another option, write into `$FOLDER/fixed`, and let the GPU do the same work as before. Two
# options could help: other processes prepare the images, or a whole batch is transformed at once.

# %% language="bash"
# # solution
# rm -rf $FOLDER/fixed
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/fixed \
#     -- $CASE --max-steps 6 --roctx --num-workers 2 2>&1 | grep -v Outputting
# # end solution

# %%
# 5 minutes, open: give a run in which the largest gap is at most half as long:
# `answer = own_run(lesson.folder / "fixed")`.
q = exercise("03.6", steady)
# solution
answer = own_run(lesson.folder / "fixed")
# end solution
q.check(answer)

# %% [markdown]
# ## The cure, measured here
#
# *Loader processes* prepare the next batches while the GPU computes. With the trainer's own loaders, a sleep
# plays the GPU, since your processor is free during a GPU's step as well. This processor may be slower than a GPU
# node's, so a small batch is taken, and the sleep is to the preparing as the modelled step is to the gap.


# %%
from cifar_train.config import parse
from cifar_train.data.loaders import build_loaders


def batches(workers, size=16):
    options = ["--num-workers", str(workers), "--batch-size", str(size), "--data", "synthetic"]
    return iter(build_loaders(parse(options), "synthetic", 0, 1, "cpu").train)


def waiting(workers, sleep_s, first=4, counted=6):
    source, waits = batches(workers), []
    for _ in range(first + counted):
        begin = time.perf_counter()
        next(source)
        waits.append(time.perf_counter() - begin)
        time.sleep(sleep_s)
    return sum(waits[first:]) / counted


# %%
before, after = modelled("--num-workers 0"), modelled("--num-workers 2")
plain_s, step_s = 256 / before.images_per_second, 256 / after.images_per_second
sleep_s = waiting(0, 0) * step_s / (plain_s - step_s)

# %% [markdown]
# Is it still the same training? The trainer draws the random numbers of a batch from the seed and the images in it, not
# from the process. So the batches have to be equal to the last digit, and one of them has to teach the same:


# %%
from cifar_train.models import build_model


def seeded_network():
    torch.manual_seed(55)
    return build_model("resnet").double()


def trial(workers):
    model = seeded_network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    (images, labels), losses, gradients = next(batches(workers, 4)), [], None
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(model(images.double()).logits, labels)
        loss.backward()
        gradients = gradients or [weights.grad for weights in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return Trial(losses, gradients, 2 * 4)


# %%
pairs = zip(islice(batches(0), 2), islice(batches(2), 2), strict=True)
assert all(torch.equal(one[0], other[0]) for one, other in pairs)
gate = CorrectnessGate.of(trial(0), trial(2))
say(f"Gate {gate}")

# %%
live = ledger.add(
    "loader processes prepare images while the GPU computes",
    lambda: waiting(0, sleep_s),
    lambda: waiting(2, sleep_s),
    gate,
    change="2 loader processes: waiting for a batch",
    per="step",
)
image_s = waiting(0, 0) / 16
whole_s = ledger.trainer("--num-workers 0 --batch-size 8 --max-steps 4", inside=True)()
say(
    f"Preparing an image takes {1e3 * image_s:.1f} ms here, training on it {1e3 * whole_s:.1f} ms "
    f"in all. So the cure could hide {100 * min(1, image_s / whole_s):.0f} % of it at most, if a "
    "core were free."
)

# %% [markdown]
# On a processor that core is not free: arithmetic and loaders share it, and the arithmetic takes nearly all the time.
# So the whole training gains next to nothing here. Is the verdict *undecided*? Then other programs took the cores. On a
# GPU node the processor is free while the GPU computes. What does the model say of an MI300X, and what did AMD publish
# for two loader processes, without a profiler?

# %%
cure = ledger.add(
    "loader processes prepare images while the GPU computes",
    before.seconds,
    after.seconds,
    gate,
    change="2 loader processes (modelled)",
    origin=before,
)
amd = pd.read_csv(lesson.file("amd_one_gpu_rates.csv"), comment="#")
published = amd["images_per_second"].iloc[5:].median()
sides = pd.DataFrame({"training": ["modelled, 0 loaders", "modelled, 2", "recorded by AMD, 2"]})
sides["images/s"] = [before.images_per_second, after.images_per_second, published]
sides["us/image"] = (1e6 / sides["images/s"]).round(1)
origin = "modelled; recorded: AMD, MI300X"
show_table(sides.round(), "training images/s us/image", "Three rates side by side", origin=origin)

# %% [markdown]
# The case now is AMD's workload. The model was fitted to that rate, so its agreement proves nothing, and what it says
# of the gain is no proof either. The other cure, `--batched-transforms`, lets the device transform a whole batch at
# once. It keeps images, labels and their order. But it draws other random numbers, so this gate can't pass it.
#
# ## Several ranks
#
# The tool stands inside the launcher: `srun -n 4 rocprof-sys-run -c FILE -- python ...`. A tool around `srun` watches
# `srun`, and no kernel. Each recorded call delays some rank, and then all wait: take the time of communication from a
# lighter tool (lesson 07).
#
# ## Decide
#
# What is left of the waiting chooses the next question.


# %%
NEXT = {"data_wait_ns": "03", "launch_bound_ns": "04", "compute_ns": "05"}
NEXT |= {"exposed_communication_ns": "07"}


def decide(part):
    budget = tidyprof.step_budget(part.profile)
    shares = 100 * budget[list(NEXT)].mean() / budget["duration_ns"].mean()
    waits = shares.drop("compute_ns")
    return shares, NEXT["compute_ns" if waits.max() < shares["compute_ns"] / 2 else waits.idxmax()]


# %%
fixed = lesson.folder / "fixed"
cured = steady_part(own_run(fixed)) if fixed.exists() else steady
(plain, _), (left, chosen) = decide(steady), decide(cured)
proflab.reveal("03.a", 100 * found["duration_ns"].iloc[0] / steady.step_ns, steady.profile)
proflab.reveal("03.b", 100 * before.images_per_second / after.images_per_second, before)
lesson.conclude(
    "Call stacks show the image transforms of the training process itself under the longest gap, "
    f"{found['duration_ns'].iloc[0] / 1e6:.0f} ms of a step of {steady.step_ns / 1e6:.0f} ms. "
    f"{'Not cured:' if cured is steady else 'With the cure'} {left['data_wait_ns']:.0f} % of a "
    f"step waits for data ({plain['data_wait_ns']:.0f} % before), "
    f"{left['compute_ns']:.0f} % computes, "
    f"{left['launch_bound_ns']:.0f} % is launch-bound.",
    rules_out="the loader, once it has processes of its own; the disk",
    because="Launching keeps the GPU waiting: which kernels are these, and how many?",
    next=chosen,
    origin=steady.profile.origin,
    changes=[cure, live],
)

# %% [markdown]
# The rule: the next lesson follows the largest wait, or goes to the kernels (05) where no wait is half as long as the
# computing. If your own data still waits for data, try more loader processes before you go on.

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# It knows neither operators nor shapes (lesson 02), and not whether a kernel is good (lesson 05). Between two samples
# anything can happen. A function that has no symbol is shown under the nearest one that has, which can be wrong:
# [compile][tips] your own C++ with `-g1` and optimised. With sampling on, no time of this run is that of your training.
#
# [tips]: https://rocm.docs.amd.com/projects/rocprofiler-systems/en/latest/how-to/general-tips-using-rocprof-sys.html

# %% [markdown]
# ## Known issues
#
# | symptom | what to do |
# | --- | --- |
# {issue dataloader-workers-crash-under-sampling}
# {issue rocprof-sys-hangs-with-include-all}
# | no Perfetto file from ROCm 10.1 on | a database is the default: `TRACE`, or `--trace` on the command line |
# {issue slices-that-did-not-end}
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
# - Loader processes help where the processor is free while the GPU computes.
# - The tool changes the program: prove a cure without it.
#
# Next question: which kernels, how often, how small?
