# %% [markdown]
# # Blind clinic: what is wrong with these runs?
#
# Until now you knew what you were looking for. Here are three runs of the trainer, each with one fault that nobody
# tells you. You have their profiles, a healthy run beside them, and the tools of the other lessons. Find each fault,
# give the evidence, repair one, and then make the plain trainer fast, one proven cure at a time.
#
# After this lesson you can
#
# - go from a symptom to a cause with two tables that agree;
# - say which evidence rules a suspect out;
# - tell a speed-up from a promise: repeats, an interval, and a model that still trains.
#
# You need lessons 00, 02 and 04; lesson 07 helps. The command holds for ROCm 6.2 to 7.2. No GPU
# is needed: all runs of a GPU that you diagnose here are modelled.

# %%
import proflab
import tidyprof
from proflab import exercise, ledger, say, show_figure, show_table
from proflab.parts import clinic
from proflab.parts.clinic_chart import change_chart
from proflab.parts.clinic_runs import bench, modelled, plain_step
from tidyprof import plots

lesson = proflab.start("08")

# %% [markdown]
# ## The picture to keep in mind
#
# | look at | ask | table |
# | --- | --- | --- |
# | the step budget | which part grew? | `tidyprof.step_budget` |
# | the gaps | what did the host do while the device idled? | `tidyprof.gaps` |
# | the kernels | more of them, or longer ones? | `tidyprof.compare` |
# | the ranks | who waits for whom? | `tidyprof.ranks` |
#
# A *diagnosis* is a cause together with evidence that its rivals can't explain. One table makes a suspicion, the
# second one decides.
#
# These are the suspects. The first two make the data late, the last two make communication long, the others are
# about what the host launches.

# %%
show_table(clinic.suspects_table(), "suspect what_it_is", "The suspects", origin="the course's list")

# %% [markdown]
# ## Predict
#
# All cures of this lesson together will make the plain trainer faster. One of them, transforming whole batches
# of images instead of single ones, makes the loader many times cheaper. Guess both, for an MI300X.

# %%
# solution
all_guess, batched_guess = 3, 1.5
# end solution
proflab.predict("08.a", all_guess, unit="times", what="the speed-up of all cures together, per image")
proflab.predict("08.b", batched_guess, unit="times", what="the speed-up of batched transforms alone, per image")

# %% [markdown]
# ## Admit the patients
#
# The *patients* A, B and C are the three runs. The seed decides which fault each has. In a room, take another one than
# your neighbour; the solutions below work for all. Each patient is one step as `torch.profiler` would record it,
# written by the course's model of an MI300X. So the fault is known to the check.

# %%
seed = 7
ward = clinic.admit(seed)
healthy, sick = ward["healthy"], [ward[letter] for letter in clinic.LETTERS]
say(f"Seed {seed}. " + "; ".join(map(str, sick)) + ".")

# %% [markdown]
# ## Capture
#
# You would record a run of your own like this (lesson 04). On a machine without the tool a stand-in writes a modelled
# file. The output format is named, since the default differs between ROCm 6 (CSV) and ROCm 7 (a database).

# %% language="bash"
# rocprofv3 --kernel-trace --stats --output-format csv \
#     --output-directory runs/08/healthy --output-file gpu -- python -m cifar_train --max-steps 3

# %%
witness = tidyprof.read("runs/08/healthy")
per_step = tidyprof.kernels(witness)["calls"].sum() / 3
say(
    f"rocprofv3 sees {per_step:,.0f} kernels and copies a step, set-up included; torch.profiler "
    f"{healthy.signs['kernels']:,.0f} kernels and {(healthy.profile.events['kind'] == 'copy').sum():,} copies. "
    "Look how near the two tools come on a healthy run before you believe one of them on a sick run."
)

# %% [markdown]
# ## First look: the healthy run
#
# Know the healthy one first. Each part of its step is explained in lesson 02; launch-bound idle is time in which the
# device has nothing to do because the host has launched nothing; while the host waits inside a call that copies,
# allocates or synchronises, the same time is named *blocked host*.
#
# This step was played *with* `torch.profiler`, which costs the host time at every launch. So it is longer than a plain
# step, and more of it is launch-bound. The patients were recorded in the same way: compare them with this step. The
# plain trainer in the second half of the lesson runs without a profiler.

# %%
budget = tidyprof.step_budget(healthy.profile)
show_figure(plots.step_budget(budget, title="The healthy step, watched: the device mostly waits for its host"))
unwatched = plain_step()
say(
    f"With the profiler the healthy step takes {healthy.signs['step_ms']:.1f} ms, of which "
    f"{healthy.signs['launch_bound_ms']:.1f} ms are launch-bound. Without it a step takes "
    f"{unwatched['step_ms']:.1f} ms, of which {unwatched['launch_bound_ms']:.1f} ms are launch-bound. Both are "
    "modelled."
)

# %%
# 3 minutes: which share of the healthy step, in percent, is launch-bound idle? See `healthy.signs`.
q = exercise("08.1", healthy)
# solution
answer = 100 * healthy.signs["launch_bound_ms"] / healthy.signs["step_ms"]
# end solution
q.check(answer)

# %% [markdown]
# ## First look: the patients
#
# The chart shows by how much each part of the step is longer or shorter than in the healthy run.

# %%
show_figure(change_chart(sick, title="Each patient minus the healthy run"))

# %% [markdown]
# The longest bar is a symptom, not a cause. Two suspects can lengthen the same part. So count: the table of *signs*
# has one row per run, per step and rank. An *element-wise* kernel works on each number by itself; a *copy kernel*
# is a kernel that only moves data; copies to and from the device are what the copy engines do.

# %%
signs = clinic.signs_table(ward)
times = "run step_ms compute_ms exposed_communication_ms exposed_copy_ms launch_bound_ms"
times += " blocked_host_ms data_wait_ms mean_kernel_us"
counts = "run ranks kernels elementwise_kernels copy_kernels copies_to_device copies_to_host waits_for_one_rank_percent"
show_table(signs, times, "Times per step, medians over ranks")
show_table(signs, counts, "Counts per step and rank")

# %% [markdown]
# During which range of your script did the device idle? And which kernels are new?

# %%
for patient in sick:
    show_table(clinic.gap_table(patient), "host_range gaps total_ms", f"Gaps of patient {patient.letter}", rows=3)
    new = tidyprof.compare(healthy.profile, patient.profile)
    show_table(new, "short_name category calls_before calls_after difference_us", f"Kernels of {patient.letter}", 3)

# %% [markdown]
# Where there are several ranks, all their kernels are counted in the last table. What matters there is who waits
# for whom.

# %%
for patient in (one for one in sick if one.signs["ranks"] > 1):
    ranks = tidyprof.ranks(patient.profile)
    columns = "rank computation_ms exposed_communication_ms came_last wait_ms caused_wait_ms"
    show_table(ranks, columns, f"Ranks of patient {patient.letter}")

# %% [markdown]
# ## Diagnose
#
# For each patient give the suspect, the part of the step that changed most, and by how many milliseconds:
# `answer = {"fault": "...", "part": "...", "change_ms": ...}`. `fault` is a name from the list of suspects, `part` and
# the change come from `patient.changes` (in ns there), and `change_ms` is negative for a part that became shorter. To a
# wrong suspect the check answers with the evidence against it.

# %%
# 8 minutes: what is wrong with patient A? Give `fault`, `part` and `change_ms`.
patient = ward["A"]
q = exercise("08.2", patient)
# solution
suspects = clinic.differential(patient)
answer = dict(zip(("part", "change_ms"), patient.largest_change, strict=True))
answer["fault"] = suspects.loc[suspects["fits"], "suspect"].iloc[0]
# end solution
q.check(answer)
ill_with = clinic.option_of(answer)

# %%
# 8 minutes: what is wrong with patient B? Give `fault`, `part` and `change_ms`.
patient = ward["B"]
q = exercise("08.3", patient)
# solution
suspects = clinic.differential(patient)
answer = dict(zip(("part", "change_ms"), patient.largest_change, strict=True))
answer["fault"] = suspects.loc[suspects["fits"], "suspect"].iloc[0]
# end solution
q.check(answer)

# %%
# 8 minutes: what is wrong with patient C? Give `fault`, `part` and `change_ms`.
patient = ward["C"]
q = exercise("08.4", patient)
# solution
suspects = clinic.differential(patient)
answer = dict(zip(("part", "change_ms"), patient.largest_change, strict=True))
answer["fault"] = suspects.loc[suspects["fits"], "suspect"].iloc[0]
# end solution
q.check(answer)

# %% [markdown]
# ## Repair one, and prove it
#
# A repair is a claim: faster, and still the same training. The *ledger* keeps the claim with its proof. It wants
#
# - at least five repeats of both sides, and gives an *interval* for the speed-up: the range in which it most likely
#   lies, by the spread of the repeats;
# - a *correctness gate*: finite gradients, the same loss at the beginning and the end, equally many images.
#
# Here the times are modelled: five plays of the model with other random numbers. So the interval shows how much the
# modelled host varies, not how wrong the model is. The gate is real: short trainings on your processor, one for each
# change of this lesson. They go on side by side, and this cell takes the longest.

# %%
batched = "--batched-transforms"
changes = {"plain": "", "fused": "--fused-optimizer", "channels last": "--channels-last", "batched": batched}
others = {"ill": ill_with, "trap": "--pathology broken-grad"}
here = bench(changes | others, loader=("", batched))

# %%
from proflab.correctness_gate import CorrectnessGate

gates = {name: CorrectnessGate.of_runs(here.runs["plain"], here.runs[name]) for name in changes}
ranks = int(ward["A"].signs["ranks"])
ill, plain = modelled(ill_with, ranks=ranks), modelled(ranks=ranks)
repair = ledger.add(
    "Patient A recovers when its fault is taken out",
    ill.seconds,
    plain.seconds,
    CorrectnessGate.of_runs(here.runs["ill"], here.runs["plain"]),
    change="repair of patient A",
    per="image",
    origin=plain.origin,
)

# %% [markdown]
# ## Trap: fast, with a good loss
#
# Somebody replaces a normalisation layer by a "fast" one. The times are as good as before, or a little better. The
# loss looks the same. The trainer has this fault to practise on, and it was one of the short trainings above:
# `python -m cifar_train --pathology broken-grad --check-gradients`. The last option looks at the gradients.

# %%
gate = CorrectnessGate.of_runs(here.runs["plain"], here.runs["trap"])
trap, plain = modelled("--pathology broken-grad"), modelled()
trapped = ledger.add(
    "A fast normalisation saves time", plain.seconds, trap.seconds, gate,
    change="fast normalisation", per="image", origin=trap.origin,
)  # fmt: skip
say(f"{trapped.interval}, and the verdict is **{trapped.verdict}**.")

# %%
# 3 minutes: which part of the gate does the trap not pass? `gate.parts`, or `print(gate)`.
q = exercise("08.5", gate)
# solution
answer = next(part.name for part in gate.parts if not part.passed)
# end solution
q.check(answer)

# %% [markdown]
# The layer writes its result without telling *autograd*, which computes the gradients. So everything before it in
# that block stops learning. In a few steps no loss shows this. The repair is the rule: no green gate, no speed-up.
#
# ## Make the plain trainer fast
#
# First a cure that looks good by itself. The loader prepares images one by one; `--batched-transforms` does it for
# whole batches. This is measured here and now, on your processor, the loader alone:

# %%
loader = ledger.add(
    "Whole batches are cheaper to transform", *here.loader, gates["batched"],
    change="batched transforms, loader alone", per="image", origin="measured: the loader alone, this machine",
)  # fmt: skip
alone = modelled(batched)
step = ledger.add(
    "A cheaper loader makes the step faster", plain.seconds, alone.seconds, gates["batched"],
    change="batched transforms, first", per="image", origin=plain.origin,
)  # fmt: skip
say(f"The loader alone: {loader.speed_up.ratio:.1f} times. The step on the modelled GPU: {step.interval}.")

# %% [markdown]
# The loader was never what the step waited for: look at the data wait of the healthy run. A cure for a part that
# does not limit the step brings nothing; this one even moves work to the device, and with it more launches. So begin
# with the part that does: launch-bound idle. The cures, in order:
#
# | cure | acts on |
# | --- | --- |
# | fused optimizer | one kernel updates many weights: fewer launches |
# | channels last | the numbers lie in memory as the convolutions read them: fewer copy kernels |
# | compile | small operators become few generated kernels |
# | larger batch | more work per launch |
# | batched transforms | the loader, again |
#
# For the compiler and the larger batch no gate is made here. Compiling for a processor can take minutes, and a larger
# batch is another training: a few steps can't tell whether it learns as well. The ledger will call both unproven.

# %%
cures = {
    "fused optimizer": ("--fused-optimizer", gates["fused"]),
    "channels last": ("--channels-last", gates["channels last"]),
    "compile": ("--compile", CorrectnessGate(())),
    "batch 1024": ("--batch-size 1024", CorrectnessGate(())),
    "batched transforms": (batched, gates["batched"]),
}
options, now, ladder = "", plain, []
for name, (option, proof) in cures.items():
    options = f"{options} {option}"
    before, now = now, modelled(options)
    keep = {"change": name, "per": "image", "origin": now.origin}
    ladder.append(ledger.add(f"{name} helps", before.seconds, now.seconds, proof, **keep))

# %%
show_figure(ledger.waterfall(list(cures), title="From the plain trainer to the fastest, cure by cure"))
first, last = step.speed_up.ratio, ladder[-1].speed_up.ratio
say(f"Batched transforms as the first cure: {first:.2f} times. As the last: {last:.2f} times.")

# %% [markdown]
# Read the bars from the top, and look for one that grows. With a large batch the GPU works so fast that the loader
# can become the limit. Then the same cheap loader that brought nothing at first pays. Each cure uncovers the next
# limit, so the order matters and old verdicts expire.

# %%
# 6 minutes: which speed-up of the model, as a factor, may you report today: from the plain trainer to the last change
# before the first unproven one? Each entry of `ladder` has `gate.green`, `speed_up.before_ns` and `speed_up.after_ns`.
q = exercise("08.6", ladder)
# solution
from itertools import takewhile

proven = list(takewhile(lambda one: one.gate.green, ladder))
answer = proven[0].speed_up.before_ns / proven[-1].speed_up.after_ns
# end solution
q.check(answer)

# %% [markdown]
# ## Open challenge
#
# Reach twice the plain trainer's images per second with two options, in the model: same network, no fault. Which two
# cures need each other?

# %%
# 8 minutes, open: options of the trainer as one text, such as "--compile --channels-last".
from proflab.exercises import exercises_of

q = exercise("08.7", exercises_of("08").Challenge(plain.images_per_second))
# solution
answer = "--batch-size 1024 --batched-transforms"
# end solution
q.check(answer)

# %% [markdown]
# ## Decide
#
# The ledger is what you hand over. It keeps what did not work, too: the next person need not try it again.

# %%
show_table(ledger.table(), "change speed_up low high verdict", "Every attempt so far")

# %% [markdown]
# ## Prediction and result
#
# The chart gathers your predictions of all lessons. Points near the diagonal were close.

# %%
total = ladder[0].speed_up.before_ns / ladder[-1].speed_up.after_ns
proflab.reveal("08.a", total, origin=plain.origin)
proflab.reveal("08.b", step.speed_up.ratio, origin=plain.origin)
ledger.show_calibration(title="How well you guessed so far")

# %% [markdown]
# ## What this view cannot show
#
# - A modelled patient has one fault. Real ones have several, and the largest hides the others.
# - One step has no spread. In real life, record several and look whether they agree.
# - The model has no caches and does not know your machine. Its ladder tells where to look, not what you will get.
# - Some faults that the trainer can have leave no trace in one step: memory that grows, a wrong loss, no warm-up.
#
# ## Known issues
#
# Profilers have faults as well: [the register](../docs/known-issues.md) lists those that look like a fault of yours.
#
# ## Key points
#
# - Compare with a healthy run; know its noise and its shape first.
# - A symptom has several causes. Name the sign that rules the rival out.
# - Cure what limits the step, then measure again: the limit has moved.
# - Repeats and an interval prove the speed, the gate proves the training. You need both.
#
# Next question: which kernel killed my job?
