# %% [markdown]
# # What is the CPU doing while the GPU waits?
#
# A step budget tells how long the GPU waits, not why, and half of the range `data` lay in no operator. `rocprof-sys`,
# AMD's system profiler, looks there: many times a second it interrupts the program and writes down which function
# called which.
#
# After this lesson you can
#
# - name ranges in your own script, and record call stacks of the host beside the GPU's timeline;
# - find the GPU's gaps in a table, and the functions behind them, with pandas alone;
# - say what samples and cut stacks can't tell;
# - close the gap, and prove the cure without a profiler.
#
# You need lessons 00 and 02. Commands and settings hold from ROCm 6.4 to {newest rocm}
# ([what changed](../docs/releases.md)). An AMD GPU is used where there is one.

# %%
import proflab
import tidyprof
from proflab import case, exercise, show_figure, show_table, show_text
from proflab.parts.stacks_over_kernels import stacks_over_kernels
from proflab.parts.steady_part import own_run, steady_part
from tidyprof import plots

lesson = proflab.start("03")
fixed = lesson.folder / "fixed"
lesson.findings()

# %%
lesson.recall()

# %% [markdown] tags=["given"]
# ## The picture to keep in mind
#
# | | tracing | sampling |
# | --- | --- | --- |
# | looks | at every call of HIP, every kernel and copy | at some moments, at each thread |
# | writes | begin and end | a *sample*, the *call stack*: the running function, its caller, and so on outwards |
# | knows | how often, how long | what was going on, whatever it is |
# | does not know | what happens between the calls | what happens between the samples |
#
# The tool does both. A *gap* is time in which nothing runs on the GPU: tracing finds it, samples explain it.
#
# ## Predict
#
# The case's process prepares its images itself (`--num-workers 0`). Guess a for what you run here: without an AMD GPU
# that is a *modeled* MI300X, and the model assumes 0.14 ms for an image. Guess b for the H200, without a profiler.

# %%
# solution
gap_guess, left_guess = 20, 60
# end solution
proflab.predict("03.a", gap_guess, unit="%", what="what the longest gap takes of a step here")
proflab.predict("03.b", left_guess, unit="%", what="what two loaders leave of an H200's step")

# %% [markdown]
# ## Ranges of your own
#
# AMD's tools read the names of ranges from the library ROCTX, which `torch.cuda.nvtx` calls in a PyTorch for ROCm.
# `snippets/03_ranges.py` wraps its `range_push` and `range_pop`. The trainer's `--roctx` does the same
# around its parts (`data`, `forward` and so on) and each step (`ProfilerStep#0`).
#
# ## Settings
#
# Settings go into a file, which a job script can name. `rocprof-sys-avail -G FILE --advanced` writes all of them with
# their defaults, `-bd -r` explains one. Three matter:
#
# - `SAMPLING_REALTIME` samples by the clock. By default a thread that sleeps is never sampled: it uses no CPU time.
# - `SAMPLING_FREQ` is the number of samples a second of each thread.
# - `TRACE` asks for a timeline for Perfetto. From ROCm 10.1 on the default is a database (`USE_ROCPD`), so name it.
#
# The rest of the file: tables of sums (`PROFILE`), sensors, what of ROCm is traced, memory for the trace (once it is
# full, the *end* of the run is lost), and no folder named after the minute. `rocprof-sys-avail -H -c GPU` lists what
# `ROCPROFSYS_ROCM_EVENTS` may count, `-H -c CPU` does it for `ROCPROFSYS_PAPI_EVENTS`, such as `perf::PAGE-FAULTS` and
# `perf::CONTEXT-SWITCHES`. `rocprof-sys-sample` switches call stacks on, `rocprof-sys-run` does not.

# %% language="bash"
# rocprof-sys-avail -bd -r SAMPLING_REALTIME --advanced
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
# its machine code, which for Python would land in the interpreter. Sampling leaves the program as it is, and kernels of
# libraries such as rocBLAS or hipBLASLt are traced like others.
#
# Without a GPU, the course replays a modeled MI300X. Every figure then says `modeled`.

# %% language="bash"
# rm -rf $FOLDER/one
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/one \
#     -- $EXAMPLE --max-steps 6 --roctx 2>&1 | grep -v Outputting

# %% [markdown]
# The `.proto` file is the timeline, and the samples are in it. File names end with the number of the process, so a
# second run would join the first: hence `rm`.
#
# ## First look: stacks above kernels
#
# `own_run` reads the folder, `steady_part` keeps the steps after the warm-up. The picture shows one step: the *call
# stacks* of both threads, callers above what they call, and below them how full the GPU was. A stack is drawn half the
# way to its neighbors, so it may stand beside its range. Functions too short for a name are left out, as in `forward`.

# %%
sampled = own_run(lesson.folder / "one")
steady = steady_part(sampled)
lost = f"Lost data: {sampled.meta['data_loss'] or 'none'}."
show_text(f"{steady.steps} steady steps of {steady.step_ns / 1e6:.0f} ms. {lost}")
step = tidyprof.steps(steady.profile).iloc[1]
window = int(step["start_ns"]), int(step["start_ns"] + step["duration_ns"])
show_figure(stacks_over_kernels(steady.profile, *window, title="Call stacks above the GPU: a step"))

# %% [markdown]
# A kernel is narrower than a dot: zoom in before you believe that a timeline is full.

# %%
proflab.perfetto(steady.profile, step=int(step["step"]), title="One steady step")

# %% [markdown]
# ## Gaps by hand
#
# The latest end so far is `cummax`; `shift` moves it to the next row, whose start it meets. In the table
# `amp_update_scale_cuda_kernel` ends a step of mixed precision, `multi_tensor` kernels are the optimizer's.

# %%
works = steady.profile.device_events.query("duration_ns > 0").sort_values("start_ns")
end = works["start_ns"] + works["duration_ns"]
idle = works["start_ns"] - end.cummax().shift(fill_value=works["start_ns"].iloc[0])
by_hand = idle[idle >= 10_000].sort_values(ascending=False)

found = tidyprof.gaps(steady.profile)
assert by_hand.tolist() == found["duration_ns"].tolist()
show_table(found, "duration_us cause host_range host_call after before", "The longest gaps", rows=6)
gap = found.iloc[0]
proflab.reveal("03.a", 100 * gap["duration_ns"] / steady.step_ns, steady.profile)

# %% [markdown] tags=["given"]
# The H200 waited for 87 % of its traced steps (lesson 02). A modeled gap is as long as the loader that the model
# [assumes](../docs/gpumodel.md#what-it-does-not-know): 0.14 ms for an image, where the H200's node took up to 0.88 ms.
# For lengths trust the recording; the model shows where the gap is, and what AMD's tool writes.
#
# `launched late`: the next work was launched only after the GPU had run dry, so the gap was made on the host. `queued`:
# it had been launched before, and the GPU itself needed the time. `host_range` covers most of the gap, `host_call` (a
# HIP call) at least half of it; where it is missing, the host did something else.

# %% [markdown]
# ## The call-stack answer
#
# A *sample* has one row per function in its stack, `depth` 0 being the outermost. The tool stores it as lasting from
# the thread's sample before; it was taken at the end of that time. Choose the main thread, which marks the ranges.

# %%
events = steady.profile.events
samples = events.query("kind == 'sample' and name != '__sigaction'").sort_values("depth")
samples = samples.assign(taken_ns=samples["start_ns"] + samples["duration_ns"])
main_thread = events.query("kind == 'annotation'")["thread"].mode()[0]
times = gap["start_ns"], gap["start_ns"] + gap["duration_ns"]
inside = samples[samples["taken_ns"].between(*times) & (samples["thread"] == main_thread)]
stacks = inside.groupby("sample")["short_name"].agg(" > ".join).value_counts()
show_text("\n".join(f"{count} samples: {stack}" for stack, count in stacks.items()) or "No sample.")

# %% [markdown]
# The long gap is in `__getitem__`, called by `next_batch` on the main thread: the training process fetches its images
# itself, one by one. There the stack ends. That `__getitem__` transforms them, the H200's trace told, by
# `upsample_bilinear2d`; whether it also reads files, neither says.
#
# The model is nicer than reality: it names Python functions. In a real stack each is one more
# `_PyEval_EvalFrameDefault` among C functions; the range says *where*, these say *what*. `rocprof-sys-python` names
# Python functions, but not those of threads that the program starts.
#
# ## Function above, GPU below
#
# Did the GPU work when a function was seen?

# %%
busy = tidyprof.Intervals.union(works["start_ns"], end)
seen = samples[samples["thread"] == main_thread].groupby("sample").last()
seen["gpu_works"] = busy.contains(seen["taken_ns"])
pairs = seen.astype({"short_name": str}).value_counts(["short_name", "gpu_works"])
pairs, columns = pairs.rename("samples").reset_index(), "short_name gpu_works samples"
show_table(pairs, columns, "Function above, GPU below", rows=5, origin=sampled.origin)

# %% [markdown]
# The short gaps have another reason. With a GPU PyTorch runs backward on a thread of its own, which launches kernels
# one by one, while the main thread sleeps in `pthread_cond_wait`; sampled by CPU time, that would be missing. In
# forward the main thread launches them itself.
#
# ## Trap: samples are not calls
#
# The same functions, traced and sampled:

# %%
calls = events.query("kind == 'runtime'").astype({"name": str}).groupby("name")["duration_ns"]
both = calls.agg(calls="size", total_ns="sum")
both["samples"] = samples.astype({"name": str}).groupby("name")["sample"].nunique()
both["expected"] = (both["total_ns"] * 500 / 1e9).round(1)
both = both.fillna({"samples": 0}).astype({"samples": int}).nlargest(5, "total_ns").reset_index()
columns, caption = "name calls total_ms samples expected", "HIP calls of the steady steps, two ways"
show_table(both, columns, caption, origin=sampled.origin)

# %% [markdown]
# `expected` is 500 samples for each second. One long call and a thousand short ones get about as many: samples know a
# share, never a count. Where you see *n*, another run may well differ by the square root of *n*.
#
# A share gives a time: one sample stands for a second divided by the frequency. Here images are slow to read:

# %% language="bash"
# rm -rf $FOLDER/unseen
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/unseen \
#     -- $EXAMPLE --max-steps 8 --batch-size 16 --roctx --inject-fault slow-loader --batched-transforms \
#     2>&1 | grep -v Outputting

# %%
# 4 minutes: how many milliseconds does this program sleep for each image, by its samples alone? The name of the
# innermost function contains `sleep`, and the sampler looked 500 times a second.
unseen = steady_part(own_run(lesson.folder / "unseen"))
q = exercise("03.1", unseen)
# solution
rows = unseen.profile.events.query("kind == 'sample'")
asleep = rows[rows["name"].str.contains("sleep")]["sample"].nunique()
answer = 1000 * asleep / 500 / (unseen.steps * 16)
# end solution
q.check(answer)

# %% [markdown]
# ## A real recording, and two more traps
#
# A small training on a processor:

# %%
there = proflab.recording("rocprof-sys-cpu")
real = tidyprof.read(there.path, origin=there.origin)
tree = tidyprof.call_stacks(real)
own = tree.groupby("short_name")["self_count"].sum().sort_values(ascending=False)
show_text(f"In `{own.index[0]}`: {own.iloc[0]} of {real.events['sample'].nunique()} samples.")
show_table(tree.query("depth == 0"), "short_name percent", "Roots", rows=4, origin=real.origin)
show_text(f"The reader warns: {real.meta['warnings'][1]}")

# %% [markdown]
# It is the tool itself: its interruption is the innermost *frame*, or entry, of every stack.
# `without=["__sigaction"]` takes it out, and with it the time of samples that hold nothing else.
#
# The second trap is in the table. A program begins in `__libc_start_main`, so there should be one root. But the tool
# keeps a limited number of frames, counted from the inside: a deeper stack loses its outer end.
#
# The repair: begin all stacks at a function that you know, here `root="run_backward"`, the C++ function that starts a
# backward pass. The picture is an *icicle*: callers above what they call, as wide as their samples.

# %%
backward = tidyprof.call_stacks(real, root="run_backward", without=["__sigaction"])
show_figure(plots.call_stacks(backward, title="What the CPU does in the backward pass"))

# %%
# 4 minutes: what share of all sampled time of `real`, in percent, lies in the backward pass? The outermost functions
# (`depth` 0) of a tree hold all its time, in `total_ns`.
q = exercise("03.2", real)
# solution
whole = tidyprof.call_stacks(real).query("depth == 0")["total_ns"].sum()
part = tidyprof.call_stacks(real, root="run_backward").query("depth == 0")["total_ns"].sum()
answer = 100 * part / whole
# end solution
q.check(answer)

# %% [markdown]
# ## Close the gap
#
# Run the command of *Capture* with another option (`python -m cifar_train --help`) into `$FOLDER/fixed`, which is
# `fixed` in Python, and let the GPU do the same work.

# %% language="bash"
# # solution
# rm -rf $FOLDER/fixed
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/fixed \
#     -- $EXAMPLE --max-steps 6 --roctx --num-workers 2 2>&1 | grep -v Outputting
# # end solution

# %%
# 5 minutes, open: give the folder of a run in which the largest gap is at most half as long: `answer = fixed`.
q = exercise("03.3", steady)
# solution
# In the cell above, behind `rm -rf $FOLDER/fixed`:
# rocprof-sys-sample -c $FOLDER/course.cfg -o $FOLDER/fixed \
#     -- $EXAMPLE --max-steps 6 --roctx --num-workers 2
answer = fixed
# end solution
q.check(answer)

# %% [markdown]
# ## The cure, measured
#
# A cure is proven without the tool. On the H200 the case ran four times, with and without *loader processes*, which
# prepare the next batches while the GPU computes. `torch.profiler` was on in some steps of two of these runs; the table
# has the others:

# %%
recorded = case.measured()
steps = recorded.query("part == 'steady' and not profiled and run in ['plain', 'loaders']")
steps = steps.assign(profiler=steps["traced"].map({False: "off", True: "on before"}))
sides = steps.groupby(["options", "profiler"])["duration_ns"]
sides = sides.agg(steps="size", mean_ns="mean", median_ns="median", max_ns="max").reset_index()
columns, origin = "options profiler steps mean_ms median_ms max_ms", recorded.attrs["origin"]
show_table(sides, columns, "Four runs of the case", origin=origin)

means = sides.pivot(index="profiler", columns="options", values="mean_ns")
plain, loaders = means["--num-workers 0"], means["--num-workers 2"]
gain = (plain / loaders)["off"]

# %% [markdown]
# Only the run without a profiler is the run: there two loaders more than halve the mean step. In the other the loaders
# got ahead while the profiler wrote its file, and the cure looks twice as good. Some steps find a batch that is ready,
# others wait long: the mean has both, the median hides it.
#
# ## What does an image cost?
#
# How far loaders carry depends on what an image costs the processor:


# %%
import time

from cifar_train.config import parse
from cifar_train.data.loaders import build_loaders
from cifar_train.models import build_model


def batches(workers):
    options = f"--num-workers {workers} --batch-size 4 --data synthetic"
    return iter(build_loaders(parse(options.split()), "synthetic", 0, 1, "cpu").train)


alone, begin = batches(0), time.perf_counter()
images = sum(len(next(alone)[0]) for _ in range(20))
show_text(
    f"An image takes {1e3 * (time.perf_counter() - begin) / images:.2f} ms here (measured), at "
    f"most {plain.max() / 256e6:.2f} ms on the H200's node (recorded), "
    f"{gap['duration_ns'] / 256e6:.2f} ms in the gap above ({sampled.origin.kind})."
)

# %% [markdown]
# Without a GPU your own training gains next to nothing: its arithmetic needs the loaders' cores.
#
# ## The same training?
#
# The trainer draws the random numbers of a batch from the seed and the images in it. So batches have to be
# equal to the last digit, and one of them has to teach the same. That is a *correctness gate*:


# %%
import torch
from proflab import CorrectnessGate
from proflab.correctness_gate import Trial


def trial(images, labels):
    torch.manual_seed(55)
    model = build_model("resnet").double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        losses.append(torch.nn.functional.cross_entropy(model(images).logits, labels))
        losses[-1].backward()
        gradients = [weights.grad.clone() for weights in model.parameters()]
        optimizer.step()
    return Trial([loss.item() for loss in losses], gradients, 2 * len(images))


# %%
trials = {}
for workers in (0, 2):
    images, labels = next(batches(workers))
    assert torch.equal(images, next(batches(0))[0])
    trials[workers] = trial(images.double(), labels)
    print(f"{workers} loader processes, loss: {trials[workers].losses}")
show_text(f"Gate {CorrectnessGate.of(*trials.values())}")

# %% [markdown]
# The other cure, `--batched-transforms`, lets the device transform a batch at once. The trainer then draws other random
# numbers, so this gate, which compares its batches, can't pass it. From the same draws both ways make the same batch:
# that is the gate of lesson 08.
#
# ## Several ranks
#
# The tool stands inside the launcher: `srun -n 4 rocprof-sys-run -c FILE -- python ...`. Each recorded call delays some
# rank, and then all wait: take the time of communication from a lighter tool (lesson 07).
#
# ## Decide
#
# The next question follows the largest wait, or the kernels (05) where no wait is half as long as the computing. If it
# still waits for data, try more loader processes before you go on.


# %%
THEN = {
    "data_wait_ns": ("04", "Here the GPU still waits for data (03.3). And with that cured?"),
    "launch_bound_ns": ("04", "In the model it then waits for launches: which kernels, how many?"),
    "exposed_communication_ns": ("07", "The GPU then waits for other GPUs. For which one?"),
    "compute_ns": ("05", "The GPU then computes: is its largest kernel near its ceiling?"),
}

# %%
cured = steady_part(own_run(fixed)) if fixed.exists() else steady
left = tidyprof.step_budget(cured.profile)[[*THEN]].mean()
wait = left.drop("compute_ns").idxmax()
then, because = THEN[wait if left[wait] > left["compute_ns"] / 2 else "compute_ns"]
proflab.reveal("03.b", 100 / gain, origin)
lesson.conclude(
    f"The longest gap, {gap['duration_ns'] / 1e6:.0f} ms of a step of {steady.step_ns / 1e6:.0f} "
    f"ms ({sampled.origin.kind}), lies under `__getitem__`, which the training process calls "
    f"itself. On an H200 two loader processes make the mean step {gain:.1f} times as fast "
    "(recorded, without a profiler).",
    rules_out="the GPU as the reason of that gap: the host makes it",
    because=because,
    next=then,
    origin=f"{steady.profile.origin}; {origin}",
)

# %% [markdown] tags=["given"]
# ## What this view cannot see
#
# It knows neither operators nor shapes (lesson 02), and not whether a kernel is good (lesson 05). A function that has
# no symbol is shown under the nearest one that has, which can be wrong: [compile][tips] your own C++ with `-g1` and
# optimized. With sampling on, no time of this run is that of your training. A known issue: [DataLoader workers crash
# under sampling](../docs/known-issues.md#dataloader-workers-crash-under-sampling).
#
# [tips]: https://rocm.docs.amd.com/projects/rocprofiler-systems/en/latest/how-to/general-tips-using-rocprof-sys.html

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
# `ROCPROFSYS_PROFILE` adds up what was traced: count, mean, smallest, largest and standard deviation. Where that is
# larger than the mean, calls are of several kinds, and the mean describes none. As a table:
#
# {snippet 03_wall_clock.py}
#
# Read on: [AMD's manual of rocprof-sys](https://rocm.docs.amd.com/projects/rocprofiler-systems/en/latest/).

# %% [markdown]
# Next question: which kernels, how often, how small?
