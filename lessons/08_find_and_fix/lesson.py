# %% [markdown]
# # What is wrong with these runs, and does the fix help?
#
# First, prove the fixes of the example run on a real GPU. Then diagnose three third-party programs with at most one
# fault each.
#
# After this lesson, you can:
#
# - prove a speedup with repeats, an interval and a check that the model still trains;
# - go from a symptom to a cause with two tables that agree;
# - name the evidence that rules out an alternative.
#
# **Before you start:** complete lessons 00, 02 and 04. Lesson 07 helps. You don't need a GPU.

# %%
import numpy as np
import pandas as pd
import proflab
import tidyprof
from proflab import CorrectnessGate, case, exercise, ledger, show_figure, show_table, show_text
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
# The fixes ran one after another on an NVIDIA H200. Predict their total speedup.

# %%
# solution
all_guess = 10
# end solution
proflab.predict("08.a", all_guess, unit="times", what="the speedup of all fixes that pass")

# %% [markdown]
# ## The fixes, in code
#
# Copy these lines into your own script. The trainer's options are on the right:
#
# ```python
# optimizer = torch.optim.Adam(model.parameters(), fused=True)                 # --fused-optimizer
# model = model.to(memory_format=torch.channels_last)                          # --channels-last,
# images = images.to(memory_format=torch.channels_last)                        #   and the images too
# model = torch.compile(model)                                                 # --compile
# loader = DataLoader(data, batch_size=1024,                                   # --batch-size 1024
#                     num_workers=4, persistent_workers=True,                  # --num-workers 4
#                     pin_memory=True)                                         # always on here,
# images = images.to(device, non_blocking=True)                                #   and so is this
# images = transform(images)          # a uint8 batch, on the device           # --batched-transforms
# ```
#
# > **Warning:** A random transform of torchvision draws *once* per call, so it flips all images of a batch or none.
# > Draw random numbers for each image, as the trainer does.

# %% [markdown]
# ## Does it still train? The gate
#
# A fix makes two claims: the run is faster, and the training is the same. A *correctness gate* checks the second: the
# trainer's network learns one small batch, before and after the change, from equal weights and in 64 bits.
#
# - Each parameter's gradient must be equal, to a relative difference below a millionth.
# - The loss must fall in the same way.
# - Data loading must deliver the same images: by single image or by batch, and from two loader processes.
#
# This takes about half a minute on two cores, and minutes on a busy machine.

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
plainly = trials["plain"]

# %%
loaded, _ = next(iter(DataLoader(TensorDataset(images, labels), batch_size=8, num_workers=2)))
for name, other in {"loaders": loaded, "batched": small_batch()[0]}.items():
    gates[name] = gates["plain"] if other.equal(images) else "not green: other images"
for name in ("loaders", "fused", "batched"):
    show_text(f"{name}: {gates[name]}")

# %% [markdown]
# ## The sequence of fixes
#
# One H200 with 16 CPU cores ran it, in *single runs* of fifteen steady steps. The times are from runs without a
# trace, because loaders get ahead while a trace is being written. Only the last row has no such run.

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
runs = steps.groupby(["traced", "run"])[["images", "duration_ns"]].sum()
runs["image_ns"] = runs["duration_ns"] / runs["images"]
runs["median_ns"] = (
    (steps["duration_ns"] / steps["images"]).groupby([steps["traced"], steps["run"]]).median()
)
runs["images_per_second"] = 1e9 / runs["image_ns"]

# %%
texts = [(change, str(gate).partition(":")[0]) for change, gate in FIXES.values()]
fixes = pd.DataFrame(texts, index=list(FIXES), columns=["change", "gate"])
fixes = fixes.join(runs.loc[False].combine_first(runs.loc[True]))
fixes["with_trace"] = runs.loc[True, "images_per_second"]
columns = "change gate image_us median_us images_per_second with_trace"
origin = f"recorded: {case.MEASURED_ON}, single runs"
show_table(fixes, columns, "Time per image by mean and by median; images/s", origin=origin)

# %% [markdown]
# The median hides the steps that waited for images, so compare means, as in lesson 00. Batched transforms replace the
# fused optimizer here, because data were still the limit.
#
# The column `with_trace` shows the noise. Two runs with the same options differ by up to a factor of two, so a
# smaller difference proves nothing here. The last row has no gate: a larger batch changes the training.

# %%
# 3 minutes: what speedup per image, as a factor, did the H200 show for all fixes that train as before? Divide `image_ns`
# of the plain trainer by `image_ns` of the last row of `fixes` before the first row without a green gate.
q = exercise("08.1", fixes)
# solution
kept = fixes[fixes["gate"].eq("green").cummin()]
answer = kept["image_ns"].iloc[0] / kept["image_ns"].iloc[-1]
# end solution
q.check(answer)

# %% [markdown]
# ## Is the difference real? The complete rule
#
# Lesson 00 started the rule: compare mean step times, and treat a difference as inconclusive if two runs of the same
# work differ by more. The complete rule adds repeats:
#
# 1. Run both versions at least five times, *in shuffled order*, so that a slower machine affects both.
# 2. Take the mean over all steady steps of each run. The steps of one run aren't repeats.
# 3. Compute an interval for the speedup with a *permutation test*, which exchanges runs between the versions at
#    random, ten thousand times.
# 4. If the interval contains 1, the comparison is inconclusive.
# 5. Without a green gate, the speedup doesn't count.
#
# `tidyprof gate` and this *ledger* apply the rule. With a GPU, set `TURNS` to 5:

# %%
TURNS = 0  # 5 takes about ten minutes on a GPU
options = measured.groupby("run")["options"].first() + " --max-steps 20 --warmup-steps 5"
turns = [run for run in FIXES for _ in range(TURNS)]
np.random.default_rng().shuffle(turns)
mine = {run: [] for run in FIXES}
for done, run in enumerate(turns, start=1):
    mine[run].append(ledger.trainer(options[run])())
    print(f"\r{done} of {len(turns)}: {run}, {1 / mine[run][-1]:,.0f} images/s   ", end="")
for run in ("loaders", "fused", "batched") if TURNS else ():
    ledger.add(f"{run} helps", mine["plain"], mine[run], gates[run], change=run,
               origin="measured: this machine")  # fmt: skip

# %% [markdown]
# ## Trap: a queue that was full
#
# At batch 1,024, an image takes far less time. But who loaded the images? Each loader prepares two batches in advance
# (`prefetch_factor=2`), so eight loaders soon have sixteen ready, and a run has only twenty steps. A plain step is
# nearly all loading (lesson 02), so eight loaders need at best an eighth of its time:

# %%
best_us = fixes.at["plain", "image_ns"] / 1e3 / 8
many = steps[(steps["images"] == 1024) & ~steps["traced"]]
place = many["step"].lt(16).map({True: "first_sixteen", False: "later"})
waits = many.assign(ms=many["duration_ns"] / 1e6).pivot_table("ms", "run", place).reset_index()
show_table(waits, "run first_sixteen later", "Mean step in ms at batch 1,024", origin=origin)
show_text(f"Eight loaders: {best_us:.0f} µs per image at best, {1.024 * best_us:.0f} ms per batch.")

# %% [markdown]
# The time at batch 1,024 is what the *device* needs per image, not what an epoch would take. To time loaders, run
# more steps than loaders times `prefetch_factor`.
#
# ## Back to AMD's number
#
# Lesson 00 started with AMD's speed for this model and batch size on an MI300X.

# %%
amd, best, device_us = 12_787, fixes.loc["batched"], fixes.at["large", "image_ns"] / 1e3
tiny_ms = 4 * runs.loc[False, "small4"]["image_ns"] / 1e6
show_text(
    f"H200, all fixes that pass: {best['images_per_second']:,.0f} images/s. AMD's run: {amd:,}. "
    f"On the H200, the device needs about {256 * device_us / 1e3:.0f} of the "
    f"{256 * best['image_ns'] / 1e6:.0f} ms per step. A step of 4 images takes {tiny_ms:.0f} ms."
)

# %% [markdown]
# So neither data nor the device is the main limit now. A step with hardly any data takes nearly as long, because the
# host launches the same kernels (lesson 04). We don't know how AMD's run got its data or how long its steps waited,
# and these fixes haven't been measured on an MI300X.
#
# ## Trap: fast, with a good loss
#
# Someone replaces a normalization layer with a "fast" one. The loss falls, but the gate says:

# %%
show_text(str(gates["trap"]))

# %%
# 3 minutes: what percentage of the weights learns nothing in this trial? `trials["trap"].gradients` has one entry per
# parameter, or None if it got no gradient. `plainly.gradients` has all entries; `.numel()` is the number of weights.
q = exercise("08.2", (plainly, trials["trap"]))
# solution
pairs = zip(plainly.gradients, trials["trap"].gradients, strict=True)
lost = sum(plain.numel() for plain, trapped in pairs if trapped is None)
answer = 100 * lost / sum(plain.numel() for plain in plainly.gradients)
# end solution
q.check(answer)

# %% [markdown]
# The layer writes its result without informing *autograd*, which computes the gradients. All layers before it in that
# block stop learning.
#
# ## Diagnosis practice: three third-party programs
#
# The runs A, B and C were recorded on an H200, three steps each. A *control* is the same program without the fault; B
# has none. Each was also timed without the profiler.

# %%
practice, runs = faulty_runs.recorded(), {}
for letter, run in practice.items():
    runs |= {letter: run} | ({f"{letter}, control": run.control} if run.control else {})
budgets = mean_steps({name: tidyprof.step_budget(run.profile) for name, run in runs.items()})
show_figure(plots.step_budget(budgets, title="Mean steps: all three runs look launch-bound"))

# %% [markdown]
# Launch-bound idle time is a symptom. A *diagnosis* is a cause plus evidence that its *alternatives*, which lengthen
# the same part of the step, can't explain.

# %%
suspects = pd.read_csv(lesson.file("suspects.csv"), comment="#", index_col="suspect")
columns = "suspect what_it_is lengthens decided_by triage"
show_table(suspects.reset_index(), columns, "The suspects", origin="the course's list")

# %%
# 4 minutes: by how many ms is each part of run C's step longer than in its control? Give a Series or a dictionary with
# one number per part, such as `compute_ns`. A budget has one row per step and one column per part, in ns: all columns
# that end with `_ns`, except `start_ns` and `duration_ns`. Subtract the medians over the steps.
q = exercise("08.3", practice)
# solution
run = practice["C"]
own, control = (tidyprof.step_budget(one.profile) for one in (run, run.control))
parts = [name for name in own if name.endswith("_ns") and name not in ("start_ns", "duration_ns")]
answer = (own[parts].median() - control[parts].median()) / 1e6
# end solution
q.check(answer)

# %% [markdown]
# These differences name a part, but not the cause. So count the copies to the host per step:

# %%
for name in ("A", "A, control"):
    copies = runs[name].profile.events.query("kind == 'copy' and name.str.contains('DtoH')")
    show_text(f"{name}: {len(copies) / 3:.0f} copies to the host per step")

# %% [markdown]
# The other *indicators* are counted in the same way. An *element-wise* kernel processes each number independently; a
# *copy kernel* only moves data. `busy` is the computing time in percent of the step *without* the profiler. The
# longest gap is the device's longest idle time in a step.

# %%
indicators = faulty_runs.indicator_table(runs)
times = "run step_ms unprofiled_step_ms compute_ms launch_bound_ms longest_gap_ms busy_percent"
show_table(indicators, times, "Times per step, medians")
counts = "run kernels mean_kernel_us elementwise_kernels copy_kernels copies_to_device"
show_table(indicators, f"{counts} copies_to_host", "Counts per step")

# %% [markdown]
# ## Diagnose
#
# Evidence *for* a fault isn't enough. Without a control, a count rules out nothing.

# %%
# 5 minutes: what is wrong with each run? For each letter, give the `fault`, an `alternative` that lengthens the same part,
# and the indicator that rules out the alternative (`ruled_out_by`, such as `copies_to_host`), as a dictionary of strings:
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
# Measure a fix by *unprofiled* step times, because both traces contain the profiler's overhead.
#
# ## A second opinion
#
# At work, you often have no control. `tidyprof triage FILE` needs only one trace:

# %%
for letter, run in practice.items():
    second = tidyprof.diagnose(run.profile)
    verdict = f"**{second.cause}**{'' if second.confident else ', not confident'}"
    show_text(f"Run {letter}: {verdict}: {second.headline}. {second.why}")

# %% [markdown]
# Only a control shows which time is *new*, so keep a trace of a healthy run. See [how often triage is
# right](../docs/triage.md).
#
# ## More practice
#
# The seed draws the faults of three modeled runs. One has four ranks; `waiting` and `transfer` are the parts of its
# time in collectives (lesson 07).

# %%
modeled, runs = faulty_runs.drawn(seed=7), {}
for letter, run in modeled.items():
    runs |= {letter: run, f"{letter}, control": run.control}
indicators = faulty_runs.indicator_table(runs)
times = "run ranks exposed_communication_ms launch_bound_ms data_wait_ms waiting_ms transfer_ms"
show_table(indicators, times, "Times per step")
show_table(indicators, f"{counts} copies_to_host", "Counts per step and rank")

# %%
# 3 minutes: what is wrong with each run? Give a dictionary with one suspect per letter.
q = exercise("08.5", modeled)


# solution
def differential(before, after):
    grew, much = after - before, 0.2 * before["step_ms"]
    if grew["exposed_communication_ms"] > much:
        return "slow-network" if grew["transfer_ms"] > grew["waiting_ms"] else "rank-skew"
    if grew["data_wait_ms"] > much:
        return "unpinned-copies" if grew["copies_to_device"] > 100 else "slow-loader"
    launched = {"copies_to_host": "sync-every-step", "elementwise_kernels": "many-small-kernels"}
    launched["copy_kernels"] = "wrong-layout"
    most = grew[list(launched)].idxmax()
    return launched[most] if grew[most] > 100 else "tiny-batch"


answer = {
    letter: differential(run.control.indicators, run.indicators) for letter, run in modeled.items()
}
# end solution
q.check(answer)

# %% [markdown]
# ## Decide
#
# The findings log is your report. `python -m proflab findings --html findings.html` writes it as a page.

# %%
faster = fixes["image_ns"]["plain"] / fixes["image_ns"]
lesson.conclude(
    f"On one H200, in single runs, two loaders make an image {faster['loaders']:.1f} times as fast "
    f"and batched transforms {faster['batched']:.1f} times, with green gates: "
    f"{best['images_per_second']:,.0f} images/s. At batch 1,024, the device needs {device_us:.0f} "
    f"µs per image, but eight loaders deliver one every {best_us:.0f} µs at best.",
    rules_out="A single cause: after each fix, the limit moves.",
    because="Single runs can't prove the small gains. Repeat them in shuffled order.",
    next="",
    origin=measured.attrs["origin"],
)

# %% [markdown]
# ## Three takeaways
#
# - A speedup is proven by repeats in shuffled order, an interval without 1, and a green gate.
# - A diagnosis needs evidence against each alternative, not only evidence for the fault.
# - The limit moves after each fix, so find it again.

# %% [markdown]
# ## Prediction and result
#
# Your predictions from all lessons:

# %%
from proflab.predictions import show_guesses

proflab.reveal("08.a", faster["batched"], origin=measured.attrs["origin"])
show_guesses()

# %% [markdown]
# ## What this view can't show
#
# - Real runs have several faults, and the largest hides the others.
# - The gate computes in 64 bits on a CPU. Only long runs show the effect of 16 bits.
# - Some faults aren't visible in one step: growing memory, a wrong loss, a missing warm-up.
#
# [The known issues](../docs/known-issues.md) list faults of profilers that look like your own.

# %% [markdown]
# ## At work, without this course
#
# The fixes as options of a small training loop, which writes step times and losses:
#
# {snippet 08_fixes.py}
#
# This script applies the rule above to the step times and losses of any two versions:
#
# {snippet 08_compare_two_runs.py}
#
# The core ends here. Next, as you need it: crashes (09), the compiler (10), memory (11), language models (12),
# upgrades (13), your own script (14), hangs (15), your own kernels (16) or sharding (17).
