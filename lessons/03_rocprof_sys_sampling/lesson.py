# %% [markdown]
# # What is the CPU doing while the GPU waits?
#
# A step budget tells how long the GPU waits, not why. The reason is on the host, often in code that belongs to no
# operator. `rocprof-sys`, AMD's system profiler, looks there: many times a second it interrupts the program and
# writes down which function called which.
#
# After this lesson you can
#
# - record call stacks of the host beside the GPU's timeline;
# - name the function behind the largest gap of a step;
# - say what samples, cut stacks and a slowed-down program can't tell.
#
# You need lessons 00 and 02. Commands and settings are those of ROCm 6.4 to 7.12 (rocprof-sys 1.0
# to 1.5). An AMD GPU is used where there is one.

# %%
import proflab
import tidyprof
from proflab import exercise, say, show_figure, show_table
from proflab.parts.stack_samples import main_thread, samples_in, samples_taken, traced_and_sampled
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
# ## Settings
#
# `rocprof-sys-avail -G` writes all settings with their defaults into a file. Read that one, and keep another with only
# the lines that you change.

# %% language="bash"
# rm -f runs/03/default.cfg
# rocprof-sys-avail -G runs/03/default.cfg
# grep -E "TRACE |USE_SAMPLING|USE_ROCM|ROCM_DOMAINS|SAMPLING_FREQ|BUFFER_SIZE|TIME_OUTPUT" runs/03/default.cfg

# %% [markdown]
# | key, after `ROCPROFSYS_` | why |
# | --- | --- |
# | `TRACE` | the format, a timeline for Perfetto. Name it: defaults change |
# | `USE_SAMPLING` | call stacks. `rocprof-sys-sample` switches it on, `rocprof-sys-run` does not |
# | `SAMPLING_REALTIME` | sample by the clock. By default a thread that sleeps is never sampled: it uses no CPU time |
# | `SAMPLING_FREQ` | samples a second of each thread. More for a short run, fewer for a long one |
# | `PROCESS_SAMPLING_FREQ` | the same for sensors such as power; a few are enough |
# | `USE_ROCM` | the switch for HIP calls and kernels: leave it on. Up to ROCm 6.3: `USE_ROCTRACER`, `USE_ROCPROFILER` |
# | `ROCM_DOMAINS` | what of ROCm: calls, ranges, kernels, copies. Each one less makes the trace smaller |
# | `PERFETTO_BUFFER_SIZE_KB` | memory for the trace, of every process. Once it is full, the *end* of the run is lost |
# | `TIME_OUTPUT` | adds a folder named after the minute; ranks may end up in different ones: off |

# %% language="bash"
# cat > runs/03/course.cfg <<END
# ROCPROFSYS_TRACE                   = true
# ROCPROFSYS_SAMPLING_REALTIME       = true
# ROCPROFSYS_SAMPLING_FREQ           = 500
# ROCPROFSYS_PROCESS_SAMPLING_FREQ   = 10
# ROCPROFSYS_ROCM_DOMAINS            = hip_runtime_api,marker_api,kernel_dispatch,memory_copy
# ROCPROFSYS_PERFETTO_BUFFER_SIZE_KB = 200000
# ROCPROFSYS_TIME_OUTPUT             = false
# END

# %% [markdown]
# ## Capture
#
# The tool could also *instrument* a program, that is, write probes into its machine code. For Python this is no way:
# it would be the interpreter's code. Sampling leaves the program as it is. `-c` names the settings, `-o` the folder.
# `--roctx` lets the trainer name its ranges for AMD's tools, through AMD's library ROCTX.
#
# `--num-workers 0` is there because some versions of the tool crash the processes that load images. We come back to
# what it does.
#
# Without a GPU the stand-in answers from a model of an MI300X. Every figure then says `modelled`.

# %% language="bash"
# rm -rf runs/03/one
# rocprof-sys-sample -c runs/03/course.cfg -o runs/03/one -- python -m cifar_train --max-steps 6 --roctx --num-workers 0

# %% [markdown]
# The `.proto` file is the timeline, and the samples are in it. With `ROCPROFSYS_PROFILE = true` the tool also adds them
# up, in tables `sampling_...`. File names end with the number of the process, so a second run would join the first:
# hence `rm`.
#
# ## First look
#
# `own_run` reads the folder, `steady_part` keeps the steps after the warm-up. The button opens one step in Perfetto,
# the viewer of lesson 02; the picture below it needs no button.

# %%
run = own_run("runs/03/one")
steady = steady_part(run)
say(f"{steady.steps} steady steps of {steady.step_ns / 1e6:.1f} ms. Lost data: {run.meta['data_loss'] or 'none'}.")
proflab.perfetto(steady.profile, step=int(tidyprof.steps(steady.profile)["step"].max()), title="One steady step")

# %%
found = tidyprof.gaps(steady.profile)
show_table(found, "duration_us cause host_range host_call after before", "The GPU's gaps, longest first", rows=6)
idle_ms = found["duration_ns"].sum() / 1e6
say(f"{len(found):,} gaps of 10 µs or more, {idle_ms:.0f} ms in all, in {steady.duration_ns / 1e6:.0f} ms of steps.")

# %% [markdown]
# `launched late`: the next work was launched only after the GPU had run dry, so the gap was made on the host.
# `host_range` and `host_call` are the range and the HIP call that cover most of the gap, which can be a small part.

# %%
# 3 minutes: in which range does the largest gap lie: data, forward, loss, backward or optimizer? Give it as a text.
q = exercise("03.1", steady)
# solution
answer = found["host_range"].iloc[0]
# end solution
q.check(answer)

# %%
# 5 minutes: what share of the idle time in `found`, in percent, lies in gaps shorter than a millisecond?
q = exercise("03.2", steady)
# solution
short = found["duration_ns"] < 1_000_000
answer = 100 * found.loc[short, "duration_ns"].sum() / found["duration_ns"].sum()
# end solution
q.check(answer)

# %% [markdown]
# ## The call-stack answer
#
# `samples_taken` keeps the samples of one thread in some gaps, `call_stacks` puts equal stacks together; `without`
# leaves out a function that belongs to the tool, see below. Sampled by the clock, threads that sleep have as many
# samples as the one that works: so choose the main thread, which marks the ranges. The picture is an *icicle*: callers
# above what they call, as wide as the number of samples. An ellipsis stands for functions that only call the next.

# %%
in_gap = samples_taken(steady.profile, during=found.head(1), thread=main_thread(steady.profile))
stacks = tidyprof.call_stacks(in_gap, without=["__sigaction"])
show_table(stacks, "depth name count self_count", "The stacks in the largest gap, outermost function first")
everything = tidyprof.call_stacks(samples_taken(steady.profile), without=["__sigaction"])
show_figure(plots.call_stacks(everything, title="All samples of the steady steps, all threads"))

# %%
# 5 minutes: in which function were most of the samples taken that fall into the largest gap? `stacks` has them; give
# the function's name as a text.
q = exercise("03.3", steady)
# solution
answer = stacks.groupby("name")["self_count"].sum().idxmax()
# end solution
q.check(answer)

# %% [markdown]
# The short gaps have another reason. PyTorch runs backward on a thread of its own, which launches kernels one by one,
# while the main thread sleeps in `pthread_cond_wait`. Sampled by CPU time, that sleep would be missing. In forward the
# main thread launches one by one itself. No function is slow here: there are many launches.
#
# The model is nicer than reality: it names Python functions and has two threads. A real stack names C functions, each
# Python function being one more `_PyEval_EvalFrameDefault`, and there are more threads, most of them asleep. Then the
# range says *where* and the C functions *what*. `rocprof-sys-python` names Python functions, but not those of threads
# that the program starts.
#
# ## Trap: samples are not calls
#
# The same functions, traced and sampled:

# %%
both = traced_and_sampled(steady.profile)
show_table(both, "name calls mean_us total_ms samples", "HIP calls of the steady steps, two ways", rows=5)
top = both.iloc[0]
say(
    f"{samples_in(steady.profile)} samples against {both['calls'].sum():,} calls. One call of 20 ms and a thousand of "
    "20 µs get about as many samples: they know a share, never a count. And with few samples a rough one: "
    f"`{top['name']}` ran for {top['total_ns'] / 1e6:.1f} ms. At 500 samples a second that makes "
    f"{top['total_ns'] * 500 / 1e9:.0f}; {top['samples']} are there."
)

# %%
# 4 minutes: how often is `hipLaunchKernel` called in one steady step? `both` counts the calls of all steady steps,
# `steady.steps` is their number.
q = exercise("03.4", steady)
# solution
answer = both.loc[both["name"] == "hipLaunchKernel", "calls"].sum() / steady.steps
# end solution
q.check(answer)

# %% [markdown]
# Where you see *n* samples, another run may well differ by the square root of *n*: with nine samples, by three. So a
# difference of one or two samples needs no explanation.
#
# ## A real recording, and two more traps
#
# Now real stacks: a small training on a processor. In which function was the program most of the time?

# %%
there = proflab.try_recording("rocprof-sys-cpu")
real = tidyprof.read(there.path, origin=there.origin) if there else None
if there:
    say(f"{there.entry.workload}; {there.entry.tool}, version {there.entry.tool_version}.")
    tree = tidyprof.call_stacks(real)
    own = tree.groupby("short_name")["self_count"].sum().sort_values(ascending=False)
    say(f"Innermost function: `{own.index[0]}`, in {own.iloc[0]} of {samples_in(real)} samples.")
    show_figure(plots.call_stacks(tree, levels=5, title="As recorded: one program, and many roots"))

# %% [markdown]
# It is the tool itself: its interruption is the innermost *frame*, or entry, of every stack.
# `without=["__sigaction"]` takes it out.
#
# The second trap is at the top. A program begins in `__libc_start_main` (here under the first ellipsis), so the first
# row should be one box. But the tool keeps a limited number of frames, counted from the inside. Importing a library
# nests deeper: such a stack loses its outer end and begins somewhere in between.

# %%
if there:
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
if there:
    backward = tidyprof.call_stacks(real, root="run_backward", without=["__sigaction"])
    show_figure(plots.call_stacks(backward, title="What the CPU does in the backward pass"))

# %%
# 8 minutes: what share of all sampled time of `real`, in percent, lies in the backward pass? The outermost functions
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
from proflab.parts.averages import averages
from proflab.parts.published_rates import published_rates

plain_ns = averages(published_rates("one GPU"))["step_ns"].iloc[2]
say(
    f"AMD's step took {plain_ns / 1e6:.1f} ms. Yours took {steady.step_ns / 1e6:.1f} ms, of which "
    f"{found['duration_ns'].iloc[0] / 1e6:.1f} ms are the largest gap."
)

# %% [markdown]
# If your gap is longer than AMD's whole step, AMD's run can't have had it. It came with `--num-workers 0`: the tool
# made us load images in the training process, and then showed us that loading takes long. So check each finding
# without the tool and with your usual options, before you optimise it.
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
from gpumodel.play.costs import PROFILERS

ranks = steady_part(own_run("runs/03/ranks"))
compared = tidyprof.ranks(ranks.profile)
show_figure(plots.ranks(compared, title="The same collectives on four ranks"))
waiting, moving = compared["wait_ns"].sum(), compared["transfer_ns"].sum()
say(
    f"RCCL takes from {compared['communication_ns'].min() / 1e6:.1f} to "
    f"{compared['communication_ns'].max() / 1e6:.1f} ms, and {100 * waiting / (waiting + moving):.0f} % of it is "
    f"waiting for the rank that comes last. What the tool adds is not published; the course's model assumes "
    f"{PROFILERS['rocprof-sys'].call_ns / 1e3:.0f} µs for each recorded call."
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
if there:
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
# | "DataLoader worker is killed by signal" | `--num-workers 0` under this tool, or rocprof-sys 1.5.0 |
# | `-I roctracer` and the like are refused | leave `-I` out: these back ends went with ROCm 6.4 |
# | `omnitrace-...` instead of `rocprof-sys-...` | ROCm 6.2 and older; the settings begin with `OMNITRACE_` |
# | options of `rocprof-sys-sample` are refused in ROCm 7.13 | they were renamed; the settings in a file still hold |
# | `rocprof-sys-avail` fails where there is no GPU | up to 1.5 it asks for one: run it on a GPU node |
# | Perfetto reports data loss, the end is missing | a larger buffer, or a shorter run |
# | the program hangs at the start with several GPUs | begin with one process, then profile one rank |
#
# More, with sources, in the [list of known issues](../docs/known-issues.md).

# %% [markdown]
# ## Key points
#
# - Tracing finds the gap, samples taken in it explain it. Sample by the clock when you look for waiting.
# - Samples give shares, not counts.
# - Stacks are cut at their outer end: begin them at a function that you know.
# - The tool changes the program. A collective shows that first, and so does an option that the tool needs.
#
# Next question: which kernels, how often, how small?
