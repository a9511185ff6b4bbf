# %% [markdown]
# # What is wrong with these runs, and does the fix help?
#
# First, check the fixes for the example run with measurements from a real GPU. Then diagnose three third-party
# programs, each with at most one fault.
#
# After this lesson, you can:
#
# - prove a speedup with repeated runs, a confidence interval and a check that the network still trains;
# - trace a symptom to its cause with two tables that agree;
# - name the evidence that rules out an alternative cause.
#
# **Before you start:** complete lessons 00, 02, 04 and, if possible, 07. You don't need a GPU.

# %%
import numpy as np
import pandas as pd
import proflab
import tidyprof
from proflab import (
    CorrectnessGate,
    case,
    exercise,
    ledger,
    show_figure,
    show_table,
    show_text,
)
from proflab.parts import faulty_runs
from proflab.parts.steady_part import mean_steps
from tidyprof import plots

lesson = proflab.start("08")

# %%
lesson.recall()

# %% [markdown]
# ## The example run so far

# %%
lesson.findings()

# %% [markdown]
# ## Predict
#
# We tried the fixes one after another on an NVIDIA H200. Predict their total speedup.

# %%
# solution
all_guess = 10
# end solution
proflab.predict(
    "08.a", all_guess, unit="times", what="the speedup of all fixes that pass"
)

# %% [markdown] slide="Each fix changes a few lines of code."
# ## The fixes, in code
#
# Copy these lines into your own script. The comments show the trainer options:
#
# ```python
# # --fused-optimizer
# optimizer = torch.optim.Adam(model.parameters(), fused=True)
# # --channels-last, for the images too
# model = model.to(memory_format=torch.channels_last)
# images = images.to(memory_format=torch.channels_last)
# # --compile
# model = torch.compile(model)
# # --batch-size 1024, --num-workers 4
# loader = DataLoader(data, batch_size=1024, num_workers=4, persistent_workers=True)
# # Always on in the trainer, like pin_memory=True of the DataLoader
# images = images.to(device, non_blocking=True)
# # --batched-transforms: a uint8 batch, on the device
# images = transform(images)
# ```
#
# > **Warning:** A random torchvision transform draws its random numbers only *once* per call, so it flips either all
# > images in a batch or none. Draw a random number for each image.

# %% [markdown]
# ## Does it still train? The gate
#
# A fix makes two claims: the run is faster, and the training is the same. A *correctness gate* checks the second claim.
# It trains the network on a small batch before and after the change, with equal initial weights in 64-bit precision.
#
# - Each parameter's gradients must agree to within a relative difference of one millionth.
# - The loss must fall in the same way.
# - The images must be the same if they are transformed in batches or loaded by two processes.
#
# This takes about half a minute on two idle cores, and minutes on busy cores.

# %%
from proflab.parts.short_trial import small_batch, trial
from torch.utils.data import DataLoader, TensorDataset

variants = {"plain": {}, "fused": {"fused": True}, "trap": {"fault": "broken-grad"}}
images, labels = small_batch(one_by_one=True)
trials, gates = {}, {}
for name, options in variants.items():
    print(f"{name}: training ...", flush=True)
    trials[name] = trial(images, labels, **options)
    gates[name] = CorrectnessGate.of(trials["plain"], trials[name])

# %% slide="The gate compares what the network learns before and after a fix."
loaded, _ = next(
    iter(DataLoader(TensorDataset(images, labels), batch_size=8, num_workers=2))
)
for name, other in {"loaders": loaded, "batched": small_batch()[0]}.items():
    gates[name] = gates["plain"] if other.equal(images) else "not green: other images"
for name in ("loaders", "fused", "batched"):
    show_text(f"{name}: {gates[name]}")

# %% [markdown]
# ## The sequence of fixes
#
# We measured each fix on an H200 with 16 CPU cores, in a *single run* of fifteen steady steps. Only the last row's run
# was traced. Traces distort these times, because loaders get ahead while a trace is being written.

# %%
FIXES = {
    "plain": ("plain trainer", gates["plain"]),
    "loaders": ("2 loaders (03)", gates["loaders"]),
    "fused": ("2 loaders, fused optimizer (04)", gates["fused"]),
    "batched": ("2 loaders, batched transforms (03)", gates["batched"]),
    "large": ("batch 1,024, 8 loaders, fused (04)", "not run"),
}
measured = case.measured()
steps = measured[(measured["part"] == "steady") & ~measured["profiled"]]
rates = steps.groupby(["traced", "run"])[["images", "duration_ns"]].sum()
rates["image_ns"] = rates["duration_ns"] / rates["images"]
rates["median_ns"] = (
    (steps["duration_ns"] / steps["images"])
    .groupby([steps["traced"], steps["run"]])
    .median()
)
rates["images_per_second"] = 1e9 / rates["image_ns"]

# %% slide="Each fix moves the limit, so the next fix looks small until then."
texts = [(change, str(gate).partition(":")[0]) for change, gate in FIXES.values()]
fixes = pd.DataFrame(texts, index=list(FIXES), columns=["change", "gate"])
fixes = fixes.join(rates.loc[False].combine_first(rates.loc[True]))
fixes["with_trace"] = rates.loc[True, "images_per_second"]
columns = "change gate image_us median_us images_per_second with_trace"
origin = f"recorded: {case.MEASURED_ON}, single runs"
show_table(
    fixes,
    columns,
    "Mean and median time per image, and images per second",
    origin=origin,
)

# %% [markdown]
# The run with batched transforms doesn't use the fused optimizer, because data loading was still the limit.
#
# Second runs recorded a trace (`with_trace`). The head start of their loaders changed the rate by up to a factor of two,
# so a smaller difference proves nothing: batched transforms clearly beat the plain trainer, but not two loaders alone.
# We didn't run the gate for the last row, because a larger batch changes the training.

# %%
# 3 minutes: what is the speedup per image, as a factor, with all fixes that pass the gate? Find the first row of
# `fixes` without a green gate. Divide `image_ns` of the plain trainer by `image_ns` of the row above it.
q = exercise("08.1", fixes)
# solution
kept = fixes[fixes["gate"].eq("green").cummin()]
answer = kept["image_ns"].iloc[0] / kept["image_ns"].iloc[-1]
# end solution
q.check(answer)

# %% [markdown]
# ## Is the difference real? The complete rule
#
# In lesson 00, a difference was inconclusive if two runs of the same work differed by more. The complete rule adds
# repeated runs:
#
# 1. Run each version at least five times, *in shuffled order*, so that a machine that slows down affects both.
# 2. For each run, compute the mean over all steady steps. The steps of one run aren't repeats.
# 3. Compute a confidence interval for the speedup with a *permutation test*, which randomly exchanges runs between the
#    versions ten thousand times.
# 4. If the interval contains 1, the comparison is inconclusive.
# 5. A speedup counts only if the gate is green.
#
# `tidyprof gate` and the *ledger* in the next cell apply this rule. If you have a GPU, set `TURNS` to 5:

# %%
# 5 takes about ten minutes on a GPU
TURNS = 0
options = (
    measured.groupby("run")["options"].first() + " --max-steps 20 --warmup-steps 5"
)
turns = [run for run in FIXES for _ in range(TURNS)]
np.random.default_rng().shuffle(turns)
mine = {run: [] for run in FIXES}
for done, run in enumerate(turns, start=1):
    mine[run].append(ledger.trainer(options[run])())
    print(
        f"\r{done} of {len(turns)}: {run}, {1 / mine[run][-1]:,.0f} images/s   ", end=""
    )
for run in ("loaders", "fused", "batched") if TURNS else ():
    ledger.add(f"{run} helps", mine["plain"], mine[run], gates[run], change=run,
               origin="measured: this machine")  # fmt: skip

# %% [markdown]
# ## Trap: the queue was full
#
# At batch size 1,024, each image takes far less time. But when were the images loaded? Each loader prepares two
# batches in advance (`prefetch_factor=2`), so eight loaders soon have sixteen batches ready, and a run has only twenty
# steps. A plain step is nearly all data loading (lesson 02), so eight loaders need about an eighth of its time per
# image:

# %% slide="Measured at the wrong place: the queue was full, so the loaders had a head start."
loader_us = fixes.at["plain", "image_ns"] / 1e3 / 8
many = steps[(steps["images"] == 1024) & ~steps["traced"]]
place = many["step"].lt(16).map({True: "first_sixteen", False: "later"})
waits = (
    many.assign(ms=many["duration_ns"] / 1e6)
    .pivot_table("ms", "run", place)
    .reset_index()
)
show_table(
    waits,
    "run first_sixteen later",
    "Mean step in ms at batch size 1,024",
    origin=origin,
)
show_text(
    f"Eight loaders: about {loader_us:.0f} µs per image, {1.024 * loader_us:.0f} ms a "
    "batch"
)

# %% [markdown]
# The time per image at batch size 1,024 therefore shows the speed of the *device*, not of an epoch. To time loaders,
# run more steps than the number of loaders times `prefetch_factor`.
#
# ## Back to AMD's published speed
#
# AMD's published run (lesson 00) trained the same network on an MI300X, also with a batch size of 256.

# %% slide="With all fixes, the speed comes close to the speed that AMD published."
amd, best, device_us = 12_787, fixes.loc["batched"], fixes.at["large", "image_ns"] / 1e3
tiny_ms = 4 * rates.loc[False, "small4"]["image_ns"] / 1e6
show_text(
    f"With both fixes, the H200 reaches {best['images_per_second']:,.0f} images/s. "
    f"AMD's run reached {amd:,}. The H200 needs about {256 * device_us / 1e3:.0f} of "
    f"the {256 * best['image_ns'] / 1e6:.0f} ms per step. A step with 4 images takes "
    f"{tiny_ms:.0f} ms."
)

# %% [markdown]
# Neither data loading nor the device is the main limit now. A step with only four images takes nearly as long, because
# the host launches the same kernels (lesson 04). We don't know how AMD's run loaded its data or how long its steps
# waited. We haven't measured these fixes on an MI300X.
#
# ## Trap: a fast run with a falling loss
#
# Someone replaces a normalization layer with a "fast" one. The loss falls, but the gate reports:

# %% slide="A fast run with a falling loss can still be wrong."
show_text(str(gates["trap"]))

# %%
# 3 minutes: what percentage of the weights don't learn in this trial? `trials["trap"].gradients` has one entry per
# parameter, which is None if the parameter got no gradient. In `trials["plain"].gradients`, no entry is None, and
# `.numel()` of an entry is its number of weights.
q = exercise("08.2", (trials["plain"], trials["trap"]))
# solution
pairs = zip(trials["plain"].gradients, trials["trap"].gradients, strict=True)
lost = sum(plain.numel() for plain, trapped in pairs if trapped is None)
answer = 100 * lost / sum(plain.numel() for plain in trials["plain"].gradients)
# end solution
q.check(answer)

# %% [markdown]
# The new layer writes its result without informing *autograd*, which computes the gradients.
#
# ## Diagnosis practice: three third-party programs
#
# We recorded three steps of each run on an H200, and also timed each run without the profiler. A *control* is the same
# program without the fault. Run B has none.

# %% slide="Three programs look launch bound. Only their indicators tell them apart."
practice, runs = faulty_runs.recorded(), {}
for letter, run in practice.items():
    runs |= {letter: run} | ({f"{letter}, control": run.control} if run.control else {})
budgets = mean_steps(
    {name: tidyprof.step_budget(run.profile) for name, run in runs.items()}
)
figure = plots.step_budget(budgets, "Mean step of each run: all look launch-bound")
ms, control = budgets["duration_ns"].iloc[:2] / 1e6
show_figure(
    figure,
    (f"{ms - control:.1f} ms longer than its control", (ms, 0.3), (0.6, 0.75)),
)

# %% [markdown]
# Launch-bound idle time is only a symptom. A *diagnosis* needs evidence that its *alternatives* can't explain. These
# are other causes that lengthen the same part of the step.

# %%
suspects = pd.read_csv(lesson.file("suspects.csv"), comment="#", index_col="suspect")
columns = "suspect what_it_is lengthens decided_by triage"
show_table(suspects.reset_index(), columns, "The suspects", origin="the course's list")

# %%
# 4 minutes: by how many ms is each part of run C's step longer than in its control? Answer with a Series or a
# dictionary that has one number per part, such as `compute_ns`. A budget has one row per step. The parts are all
# columns that end in `_ns`, except `start_ns` and `duration_ns`. Subtract the medians over the steps.
q = exercise("08.3", practice)
# solution
run = practice["C"]
own, control = (tidyprof.step_budget(one.profile) for one in (run, run.control))
parts = [
    name
    for name in own
    if name.endswith("_ns") and name not in ("start_ns", "duration_ns")
]
answer = (own[parts].median() - control[parts].median()) / 1e6
# end solution
q.check(answer)

# %% [markdown]
# For run A, count the copies to the host per step:

# %%
for name in ("A", "A, control"):
    copies = runs[name].profile.events.query(
        "kind == 'copy' and name.str.contains('DtoH')"
    )
    show_text(f"{name}: {len(copies) / 3:.0f} copies to the host per step")

# %% [markdown]
# The next tables show more *indicators*. An *element-wise* kernel processes each number independently, while a *copy
# kernel* only moves data. `busy` is the compute time as a percentage of the step *without* the profiler. The longest
# gap is the device's longest idle time in a step.

# %% slide="Compare each indicator with the healthy run, not with a rule of thumb."
indicators = faulty_runs.indicator_table(runs)
times = (
    "run step_ms unprofiled_step_ms compute_ms launch_bound_ms longest_gap_ms "
    "busy_percent"
)
show_table(indicators, times, "Median times per step")
counts = "run kernels mean_kernel_us elementwise_kernels copy_kernels copies_to_device"
show_table(indicators, f"{counts} copies_to_host", "Counts per step")

# %% [markdown]
# ## Diagnose
#
# Evidence *for* a fault isn't enough. Without a control, only `busy_percent` can rule out an alternative.

# %%
# 5 minutes: what is wrong with each run? For each letter, name the `fault`, an `alternative` that lengthens the same
# part, and the indicator that rules out the alternative (`ruled_out_by`, such as `copies_to_host`). Answer with a
# dictionary of strings:
# {"A": {"fault": "...", "alternative": "...", "ruled_out_by": "..."}, ...}
q = exercise("08.4", practice)
# solution
answer = {
    "A": {
        "fault": "sync-every-step",
        "alternative": "outside-torch",
        "ruled_out_by": "longest_gap_ms",
    },
    "B": {
        "fault": "only-the-profiler",
        "alternative": "tiny-batch",
        "ruled_out_by": "busy_percent",
    },
    "C": {
        "fault": "outside-torch",
        "alternative": "many-small-kernels",
        "ruled_out_by": "elementwise_kernels",
    },
}
# end solution
q.check(answer)

# %% [markdown]
# ## A second opinion
#
# At work, you often have no control. `tidyprof triage FILE` needs only one trace:

# %% slide="triage gives a second opinion, and states when it can't tell."
for letter, run in practice.items():
    second = tidyprof.diagnose(run.profile)
    verdict = f"**{second.cause}**{'' if second.confident else ', not confident'}"
    show_text(f"Run {letter}: {verdict}: {second.headline}. {second.why}")

# %% [markdown]
# Only a control shows which part of the time is *new*, so keep a trace of a healthy run. See [how often triage is
# right](../docs/triage.md).
#
# ## More practice
#
# The seed selects the faults of three modeled runs. One run has four ranks, whose time in collectives consists of
# `waiting` and `transfer` (lesson 07).

# %%
modeled, drawn = faulty_runs.drawn(seed=7), {}
for letter, run in modeled.items():
    drawn |= {letter: run, f"{letter}, control": run.control}
indicators = faulty_runs.indicator_table(drawn)
times = (
    "run ranks exposed_communication_ms launch_bound_ms data_wait_ms waiting_ms "
    "transfer_ms"
)
show_table(indicators, times, "Times per step")
show_table(indicators, f"{counts} copies_to_host", "Counts per step and rank")

# %%
# 3 minutes: what is wrong with each run? Answer with a dictionary that has one suspect per letter.
q = exercise("08.5", modeled)


# solution
def differential(before, after):
    grew, much = after - before, 0.2 * before["step_ms"]
    if grew["exposed_communication_ms"] > much:
        return (
            "slow-network" if grew["transfer_ms"] > grew["waiting_ms"] else "rank-skew"
        )
    if grew["data_wait_ms"] > much:
        return "unpinned-copies" if grew["copies_to_device"] > 100 else "slow-loader"
    launched = {
        "copies_to_host": "sync-every-step",
        "elementwise_kernels": "many-small-kernels",
    }
    launched["copy_kernels"] = "wrong-layout"
    most = grew[list(launched)].idxmax()
    return launched[most] if grew[most] > 100 else "tiny-batch"


answer = {
    letter: differential(run.control.indicators, run.indicators)
    for letter, run in modeled.items()
}
# end solution
q.check(answer)

# %% [markdown]
# ## Decide
#
# This command writes your report: `python -m proflab findings --html findings.html`.

# %% slide="The limit moved from data to launches to kernels. A sequence of fixes needs evidence for each step."
faster = fixes["image_ns"]["plain"] / fixes["image_ns"]
lesson.conclude(
    "In single runs on one H200, two loaders gave a speedup of "
    f"{faster['loaders']:.1f}, and with batched transforms, {faster['batched']:.1f} "
    f"({best['images_per_second']:,.0f} images/s), with green gates. At batch 1,024, "
    f"the device needs {device_us:.0f} µs per image; eight loaders need about "
    f"{loader_us:.0f} µs.",
    rules_out="A single cause, because the limit moves after each fix.",
    because="Single runs can't prove small gains. Repeat the runs in shuffled order.",
    next="",
    origin=measured.attrs["origin"],
)

# %% [markdown]
# ## Three takeaways
#
# - To prove a speedup, you need shuffled repeats, an interval that excludes 1, and a green gate.
# - A diagnosis needs evidence against each alternative, not only evidence for the fault.
# - Each fix moves the limit, so find it again.

# %% [markdown]
# ## Predictions and results

# %%
from proflab.predictions import show_guesses

proflab.reveal("08.a", faster["batched"], origin=measured.attrs["origin"])
show_guesses()

# %% [markdown]
# ## What this view can't show
#
# - Real runs often have several faults, and the largest hides the others.
# - The gate computes in 64 bits, so only long runs show the effect of 16-bit precision.
# - Some faults, such as growing memory use or a wrong loss, aren't visible in a single step.
#
# [The known issues](../docs/known-issues.md) list profiler faults that look like your own.

# %% [markdown]
# ## At work, without this course
#
# This small training loop offers the fixes as options, and writes step times and losses:
#
# {snippet 08_fixes.py}
#
# This script applies the rule above to the step times and losses of any two versions:
#
# {snippet 08_compare_two_runs.py}
#
# The core lessons end here. Continue with what you need: crashes (09), the compiler (10), memory (11), language models
# (12), upgrades (13), your own script (14), hangs (15), your own kernels (16) or sharding (17).
