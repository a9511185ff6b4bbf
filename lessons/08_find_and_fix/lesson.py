# %% [markdown]
# # Blind clinic: what is wrong with these runs?
#
# First the cures of the case, as a ladder that a real GPU ran. Then three programs of others, with at most one fault
# each: find it, and give the evidence.
#
# After this lesson you can
#
# - tell a speed-up from a promise: repeats, an interval, and a model that still trains;
# - go from a symptom to a cause with two tables that agree;
# - say which evidence rules a suspect out.
#
# You need lessons 00, 02 and 04; lesson 07 helps. No GPU is needed.

# %%
from itertools import pairwise

import numpy as np
import pandas as pd
import proflab
import tidyprof
from proflab import CorrectnessGate, case, exercise, ledger, show_figure, show_table, show_text
from proflab.ledger.entries import two_digits
from proflab.parts import clinic
from proflab.parts.clinic_runs import modeled, plain_step
from proflab.parts.steady_part import mean_steps
from tidyprof import plots

lesson = proflab.start("08")

# %%
lesson.recall()

# %% [markdown]
# ## The case so far

# %%
lesson.findings()

# %% [markdown]
# ## Predict
#
# The ladder goes from where the case began to some cures beyond. Guess what came of it on an NVIDIA H200: of the best
# rung that trains as before, and of the compiler.

# %%
# solution
all_guess, compiler_guess = 10, 1.3
# end solution
proflab.predict("08.a", all_guess, unit="times", what="the best speed-up that trains as before")
proflab.predict("08.b", compiler_guess, unit="times", what="the speed-up of the compiler alone")

# %% [markdown]
# ## Cures, in code
#
# The cures in a script of your own, with the trainer's options:
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
# The last one has a trap. A random transform of torchvision that gets a whole batch draws *once*: all images are
# flipped, or none. Draw for each image yourself, as the trainer does.

# %% [markdown]
# ## Does it still train? The gate
#
# A cure is a claim: faster, and still the same training. The second half needs a *correctness gate*: the trainer's own
# network learns one small batch, before and after the change, from equal weights and in 64 bits, here on your
# processor. Every parameter must get the same gradient (the length of the difference, as a share of the length, stays
# below a millionth), and the loss must fall by the same way. The trainer's transform must make the same of one image
# and of a batch, and a `DataLoader` with two processes must hand over the same images in the same order.

# %%
from proflab.parts.short_trial import small_batch, trial
from torch.utils.data import DataLoader, TensorDataset

images, labels = small_batch(one_by_one=True)
from_processes = DataLoader(TensorDataset(images, labels), batch_size=8, num_workers=2)
tried = {
    "plain": lambda: trial(images, labels),
    "loader processes": lambda: trial(*next(iter(from_processes))),
    "fused": lambda: trial(images, labels, fused=True),
    "batched": lambda: trial(*small_batch()),
    "trap": lambda: trial(images, labels, fault="broken-grad"),
}
trials, gates = {}, {}
for name, run in tried.items():
    trials[name] = run()
    gates[name] = CorrectnessGate.of(trials["plain"], trials[name])
    losses = f"loss {trials[name].losses[0]:.2f} to {trials[name].losses[-1]:.2f}"
    show_text(f"{name}: {losses}." + f" {gates[name]}" * (name not in ("plain", "trap")))
plainly = trials["plain"]

# %% [markdown]
# ## The case, cure by cure
#
# This is the ladder as one H200 ran it, with 16 processor cores: *single runs* of fifteen steps. Of some rungs there
# are two; the second recorded a trace, and while that was written its loaders got ahead. The times are of the first.

# %%
RUNGS = {
    "plain": ("plain trainer", gates["plain"]),
    "loaders": ("2 loader processes (03)", gates["loader processes"]),
    "fused": ("and the fused optimizer (04)", gates["fused"]),
    "batched": ("batched transforms instead", gates["batched"]),
    "large": ("batch 1,024, 8 processes, fused (04)", None),
    "compiled": ("and compile (10)", None),
    "channels": ("channels last instead of compile", None),
}
measured = case.measured()
steps = measured[(measured["part"] == "steady") & ~measured["profiled"]]
runs = steps.groupby(["run", "traced"], sort=False).agg(
    images=("images", "sum"), total_ns=("duration_ns", "sum"), middle_ns=("duration_ns", "median"),
    batch=("images", "first"),
).reset_index("traced").sort_values("traced", kind="stable")  # fmt: skip
rates = (1e9 * runs["images"] / runs["total_ns"]).map("{:,.0f}".format)
first = runs[~runs.index.duplicated()]
rows = [(text, str(gate or "not looked at").partition(":")[0]) for text, gate in RUNGS.values()]
ladder = pd.DataFrame(rows, index=list(RUNGS), columns=["change", "gate"])
ladder["image_ns"] = first["total_ns"] / first["images"]
ladder["median_ns"] = first["middle_ns"] / first["batch"]
ladder["images_per_second"] = rates.groupby("run", sort=False).agg(" and ".join)
columns = "change gate image_us median_us images_per_second"
show_table(ladder, columns, "An image, by the mean and by the median step", origin="recorded: "
           f"{case.MEASURED_ON}, single runs")  # fmt: skip

# %% [markdown]
# The rule of lesson 00 decides: compare the mean over all steps after the warm-up. The median hides the steps that
# waited for images. And two runs of one rung differ by a
# factor of two, so no rung that brings less has shown anything: not the compiler, and not channels last. A larger batch
# is another training, and compiling for a processor can take minutes: no gate was looked at for these.

# %%
# 3 minutes: which speed-up per image, as a factor, did the H200 show for what trains as before? Count by `image_ns`
# from the plain trainer to the last rung of `ladder` before the first one without a green gate.
q = exercise("08.1", ladder)
# solution
kept = ladder[ladder["gate"].eq("green").cummin()]
answer = kept["image_ns"].iloc[0] / kept["image_ns"].iloc[-1]
# end solution
q.check(answer)

# %% [markdown]
# ## Trap: a queue that was full
#
# At batch 1,024 an image takes far less. Who loaded these images? Each loader process works ahead by two batches
# (`prefetch_factor=2`): eight have sixteen ready when the first step ends, after a second or two, and a run has twenty
# steps. A plain step is nearly all loading (lesson 02). So eight processes need an eighth of it for an image, at best.

# %%
best_us = ladder.at["plain", "image_ns"] / 1e3 / 8
many = steps[(steps["images"] == 1024) & ~steps["traced"]]
ahead = many["step"].lt(16).map({True: "first_sixteen", False: "behind"})
waits = many.assign(ms=many["duration_ns"] / 1e6).pivot_table("ms", "run", ahead).reset_index()
show_table(waits, "run first_sixteen behind", "Mean step in ms",
           origin=f"recorded: {case.MEASURED_ON}, single runs")  # fmt: skip
show_text(f"Eight loaders at best: {best_us:.0f} µs an image, {1.024 * best_us:.0f} ms a batch.")

# %% [markdown]
# These runs lived on their queue. The time at batch 1,024 is what the *device* needs for an image, and no time that an
# epoch would see. Time loaders behind the queue: after more steps than processes times `prefetch_factor`.
#
# With a GPU, you can decide what single runs can't: each rung five times, *in shuffled order*, so that a machine that
# slows down hits all alike.

# %%
TURNS = 0  # 5 where you have a GPU: some ten minutes
options = measured.groupby("run")["options"].first() + " --max-steps 20 --warmup-steps 5"
turns = [run for run in RUNGS for _ in range(TURNS)]
np.random.default_rng().shuffle(turns)
mine = {run: [] for run in turns}
for done, run in enumerate(turns, start=1):
    mine[run].append(ledger.trainer(options[run])())
    show_text(f"{done} of {len(turns)}: {run}, {1 / mine[run][-1]:,.0f} images/s")
for before, run in pairwise(list(RUNGS)[:5] if TURNS else []):
    ledger.add(f"{run} helps", mine[before], mine[run], RUNGS[run][1], change=run,
               origin="measured: this machine")  # fmt: skip

# %% [markdown]
# The *ledger* keeps each claim with its evidence: at least five repeats of both versions, the gate, and an *interval*
# for the speed-up of the mean. A *permutation test* finds it: it exchanges repeats between the versions ten thousand
# times. If the interval contains 1, the comparison is inconclusive.

# %% [markdown]
# ## What others measured, and what the model says
#
# The model of an MI300X comes last: what it says is no gain. [What it assumes](../docs/gpumodel.md), above all the
# loader's time for an image.

# %%
MODELED = [
    "--num-workers 0",
    "--num-workers 2",
    case.options("05"),
    f"{case.options('05')} --compile",
]
plain, loaders, large, compiled = (modeled(text).images_per_second for text in MODELED)
on_gpu, twice = ladder["image_ns"], runs[runs["traced"]].eval("total_ns / images")
rows = [
    ("two loaders", on_gpu["plain"] / on_gpu["loaders"], "-", loaders / plain),
    ("compile", twice["large"] / twice["compiled"], f"{2128 / 2013:.2f}", compiled / large),
]
beside = pd.DataFrame(rows, columns=["rungs", "H200", "AMD", "model"])
beside["model"] = beside["model"].map(two_digits)
sources = f"recorded: NVIDIA H200, AMD (HPCTrainingExamples, MI300A); {modeled(MODELED[0]).origin}"
show_table(beside, "rungs H200 AMD model", "Times as fast", origin=sources)
assumed_us = 1e3 * plain_step("--num-workers 0")["data_wait_ms"] / 256
show_text(f"An image of the plain run: {on_gpu['plain'] / 1e3:.0f} µs (H200). In the model "
    f"{two_digits(assumed_us)} µs are the loader's, an assumption.")  # fmt: skip

# %% [markdown]
# The model got two things wrong. It promises more by the compiler than either GPU shows. And it takes two loader
# processes for enough: on the H200's host they were not, so batched transforms helped there, which bring nothing in the
# model. A cure for a part that does not limit the step brings nothing, and *which* part limits, your machine says.

# %% [markdown]
# ## Trap: fast, with a good loss
#
# Somebody replaces a normalization layer by a "fast" one. The loss falls, as in the trial `trap` above. Its gate:

# %%
show_text(str(gates["trap"]))

# %%
# 3 minutes: which share of the weights, in percent, learns nothing in this trial? `trials["trap"].gradients` has one
# entry for each parameter, None where nothing came; `plainly.gradients` has all, each with `.numel()` weights.
q = exercise("08.2", (plainly, trials["trap"]))
# solution
pairs = zip(plainly.gradients, trials["trap"].gradients, strict=True)
lost = sum(plain.numel() for plain, trapped in pairs if trapped is None)
answer = 100 * lost / sum(plain.numel() for plain in plainly.gradients)
# end solution
q.check(answer)

# %% [markdown]
# The layer writes its result without telling *autograd*, which computes the gradients. So everything before it in that
# block stops learning, while the rest learns on. The rule: no green gate, no speed-up.

# %% [markdown]
# ## Blind: three programs of others
#
# The *patients* A, B and C, three steps each, were recorded on an H200. A *control* is the same program without the
# fault, `patient.healthy`; of B there is none. And each was timed without the profiler, too: `untraced`.

# %%
ward = clinic.recorded()
runs = {}
for letter, patient in ward.items():
    runs |= {letter: patient} | ({f"{letter}, control": patient.healthy} if patient.healthy else {})
budgets = mean_steps({name: tidyprof.step_budget(one.profile) for name, one in runs.items()})
show_figure(plots.step_budget(budgets, title="Three patients' mean steps: all look launch bound"))

# %% [markdown]
# To be launch bound is a symptom: the host has launched nothing. A *diagnosis* is a cause together with evidence that
# its *alternatives*, which lengthen the same part of the step, can't explain. The suspects, each with that part, the
# sign that decides, and what `tidyprof triage` calls it:

# %%
suspects = pd.read_csv(lesson.file("suspects.csv"), comment="#", index_col="suspect")
columns = "suspect what_it_is lengthens decided_by triage"
show_table(suspects.reset_index(), columns, "The suspects", origin="the course's list")

# %%
# 4 minutes: by how many ms is each part of patient C's step longer than in its control? Give a Series or dictionary
# with a name for each part, such as `compute_ns`. A budget has a row for each step, and a column for each part, in ns:
# those with `_ns`, but for `start_ns` and `duration_ns`. Over the steps take the median.
q = exercise("08.3", ward)
# solution
patient = ward["C"]
own, well = (tidyprof.step_budget(one.profile) for one in (patient, patient.healthy))
parts = [name for name in own if name.endswith("_ns") and name not in ("start_ns", "duration_ns")]
answer = (own[parts].median() - well[parts].median()) / 1e6
# end solution
q.check(answer)

# %% [markdown]
# `patient.changes` has these differences. They name a part, not a cause. So count. The table of *signs* has one row
# per run. An *element-wise* kernel works on each number by itself; a *copy kernel* only moves data; copies to and from
# the device are what the copy engines do. `busy` is the time in which the device computes, as a share of the step
# *without* the profiler; the longest gap is the longest time in a step in which the device had nothing to do.

# %%
signs = clinic.signs_table(runs)
times = "run step_ms untraced_ms compute_ms launch_bound_ms blocked_host_ms longest_gap_ms"
show_table(signs, f"{times} busy_percent", "Times per step, medians of all three")
counts = "run kernels mean_kernel_us elementwise_kernels copy_kernels copies_to_device"
show_table(signs, f"{counts} copies_to_host", "Counts per step")

# %% [markdown]
# During which range of the script did the device idle? The ranges are the author's own.

# %%
for patient in ward.values():
    gaps = tidyprof.gaps(patient.profile)
    lengths = gaps.groupby("host_range", observed=True)["duration_ns"]
    by_range = lengths.agg(gaps="count", total_ns="sum", longest_ns="max").reset_index()
    by_range = by_range.sort_values("total_ns", ascending=False)
    columns, title = "host_range gaps total_ms longest_ms", f"Gaps of patient {patient.letter}"
    show_table(by_range, columns, title, rows=3, origin=patient.profile.origin)

# %% [markdown]
# ## Diagnose
#
# For each patient give the `fault`, an `alternative` that lengthens the same part, and the sign that rules the
# alternative out (`ruled_out_by`, such as `copies_to_host`).

# %%
# 5 minutes: what is wrong with the patients? Give a dictionary with a diagnosis for each letter, itself a dictionary:
# {"A": {"fault": "...", "alternative": "...", "ruled_out_by": "..."}, ...}
q = exercise("08.4", ward)
# solution
tells = {one: suspects.loc[one, "decided_by"] for one in suspects.index}
found = {
    "A": ("sync-every-step", "outside-torch"),
    "B": ("only-the-profiler", "tiny-batch"),
    "C": ("outside-torch", "many-small-kernels"),
}
answer = {
    letter: {"fault": fault, "alternative": alternative, "ruled_out_by": tells[alternative]}
    for letter, (fault, alternative) in found.items()
}
answer["B"]["ruled_out_by"] = "busy_percent"
# end solution
q.check(answer)

# %% [markdown]
# The repair is measured, too: compare `untraced` of patient and control. Ask the clock, not the trace: in that, the
# profiler's own cost is in both.
#
# ## A second opinion
#
# At work there is often no control. `tidyprof triage FILE` asks the same tables of one recording alone.

# %%
for patient in ward.values():
    second = tidyprof.diagnose(patient.profile)
    verdict = f"**{second.cause}**{'' if second.confident else ', not confident'}"
    show_text(f"Patient {patient.letter}: {verdict}: {second.headline}. {second.why}")

# %% [markdown]
# It takes the step without the profiler from the file, where lesson 14's block timed some (others than `untraced`'s),
# and estimates it where not. What of a time is *new* only a control tells: keep a recording of a run that was well.
# [How often triage is right](../docs/triage.md).

# %% [markdown]
# ## More to practice on
#
# Three more, modeled, one step each: the seed draws their faults. One has four ranks, and so has its control:
# `waiting` and `transfer` are the parts of the time in collectives (lesson 07).

# %%
seed, runs = 7, {}
for letter, patient in (practice := clinic.admit(seed)).items():
    runs |= {letter: patient, f"{letter}, control": patient.healthy}
    show_text(repr(patient))
signs = clinic.signs_table(runs)
times = "run exposed_communication_ms launch_bound_ms data_wait_ms waiting_ms transfer_ms"
show_table(signs, times, f"Seed {seed}: times per step")
show_table(signs, f"{counts} copies_to_host", "Counts per step and rank")

# %%
# 3 minutes: what is wrong with each of them? Give a dictionary from the letter to a suspect.
q = exercise("08.5", practice)


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


answer = {name: differential(one.healthy.signs, one.signs) for name, one in practice.items()}
# end solution
q.check(answer)

# %% [markdown]
# ## Decide: the case is closed
#
# The case sheet is your report: one line for each question, with its evidence and what that ruled out. `python -m
# proflab findings --html findings.html` writes it as a page.

# %%
faster = on_gpu["plain"] / on_gpu
lesson.conclude(
    f"On one H200, in single runs, two loader processes make an image {faster['loaders']:.1f} "
    f"times as fast and batched transforms {faster['batched']:.1f} times, with green gates. At "
    f"batch 1,024 the device needs {on_gpu['large'] / 1e3:.0f} µs an image, and eight loaders "
    f"deliver one each {best_us:.0f} µs at best.",
    rules_out="That one cause explains it all: first the loader was the limit; behind it, in the "
    "model, launches and then many kernels far below each roof.",
    because="Single runs can't tell the small rungs apart: repeat them, in turns. The electives "
    "go on from here.",
    next="",
    origin=measured.attrs["origin"],
)

# %% [markdown]
# ## Prediction and result
#
# Your predictions of all lessons, the farthest off first:

# %%
from proflab.predictions import show_guesses

proflab.reveal("08.a", faster["batched"], origin=measured.attrs["origin"])
proflab.reveal("08.b", twice["large"] / twice["compiled"], origin=measured.attrs["origin"])
show_guesses()

# %% [markdown]
# ## What this view cannot show
#
# - These patients have one fault each. Real ones have several, and the largest hides the others.
# - The gate computes in 64 bits on a processor. What 16 bits do to a long training, only long runs show.
# - Some faults that the trainer can have leave no trace in one step: memory that grows, a wrong loss, no warm-up.
#
# Profilers have faults as well: [the register](../docs/known-issues.md) lists those that look like a fault of yours.

# %% [markdown]
# ## At work, without this course
#
# The cures behind switches, in a training loop of its own, to copy from and to try on your machine. Each run writes
# its step times and losses:
#
# {snippet 08_fixes.py}
#
# And the judge, for step times and losses of any program:
#
# {snippet 08_compare_two_runs.py}
#
# The core ends here. Next question, as you need it: crashes (09), the compiler (10), memory (11), language models (12),
# upgrades (13), a script of yours (14), hangs (15), your own kernels (16), sharding (17)?
