# %% [markdown]
# # Blind clinic: what is wrong with these runs?
#
# Eight lessons examined one training, and each found a part of the answer. First you put them together: the cures of
# the case as a ladder, modelled, each with its gate or without. Then come three runs with one fault each that nobody
# tells you. You have their profiles and a healthy run beside them. Find each fault, give the evidence, and repair one.
#
# After this lesson you can
#
# - tell a speed-up from a promise: repeats, an interval, and a model that still trains;
# - go from a symptom to a cause with two tables that agree;
# - say which evidence rules a suspect out, in a function of ten lines.
#
# You need lessons 00, 02 and 04; lesson 07 helps. No GPU is needed: all runs of a GPU that you
# diagnose here are modelled.

# %%
import time
from functools import partial

import numpy as np
import pandas as pd
import proflab
import tidyprof
from proflab import CorrectnessGate, exercise, ledger, say, show_figure, show_table
from proflab.display import number
from proflab.parts import clinic
from proflab.parts.clinic_chart import change_chart
from proflab.parts.clinic_runs import modelled, plain_step
from tidyprof import plots

lesson = proflab.start("08")

# %% [markdown]
# ## The case so far

# %%
lesson.sheet()

# %% [markdown]
# ## Predict
#
# The ladder below takes the case from where it began to where it stands, and one cure further. Guess what all of it
# brings, in the model of an MI300X. Then guess for one cure alone: batched transforms, which make an image several
# times cheaper to load.

# %%
# solution
all_guess, batched_guess = 10, 1.5
# end solution
proflab.predict(
    "08.a", all_guess, unit="times", what="the speed-up of all cures together, per image"
)
proflab.predict(
    "08.b",
    batched_guess,
    unit="times",
    what="batched transforms alone, once loader processes are there",
)

# %% [markdown]
# ## Cures, in code
#
# Here is what the cures of the case look like in a script of your own, with the trainer's option for each:
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

# %% [markdown]
# The last one has a trap. A random transform of torchvision that gets a whole batch draws *once*: all images are
# flipped, or none. Draw for each image yourself, and one function serves one image or many:

# %%
import torch


def flip_and_brighten(images, flips, factors):
    images = images.float() / 255
    images[flips] = images[flips].flip(-1)
    return (images * factors[:, None, None, None]).clamp(0, 1)


raw = torch.randint(256, (64, 3, 32, 32), dtype=torch.uint8)
flips, factors = torch.rand(64) < 0.5, torch.empty(64).uniform_(0.8, 1.2)
draws = zip(raw.split(1), flips.split(1), factors.split(1), strict=True)
assert torch.equal(
    torch.cat([flip_and_brighten(*one) for one in draws]), flip_and_brighten(raw, flips, factors)
)
say("One by one and as a whole batch: the same images, bit for bit.")

# %% [markdown]
# ## Does it still train? The gate
#
# A cure is a claim: faster, and still the same training. The second half needs a *correctness gate*. You wrote it in
# lesson 03: the trainer's own network learns one small batch, before and after the change, from equal weights and in
# 64 bits. Every parameter must get the same gradient, and the loss must fall by the same way. `trial` does that.
#
# The images come from the trainer's own transform, which flips, crops and colours: `apply_parameters` for given draws,
# on one image or on a batch. A `DataLoader` with two processes must hand over the same images in the same order. The
# trials are real, on your processor.

# %%
from cifar_train.data.loaders import SyntheticImages
from cifar_train.data.transforms import (
    BatchTransform,
    apply_parameters,
    draw_parameters,
    per_image_transform,
)
from proflab.correctness_gate import TOLERANCE
from proflab.parts.short_trial import trial
from torch.utils.data import DataLoader, TensorDataset

# %%
data = SyntheticImages(seed=55)
raw, labels = data.index_select(0, torch.arange(8)), data.labels[:8]
draws = draw_parameters(8, torch.Generator().manual_seed(8))
each = torch.cat(
    [apply_parameters(raw[one : one + 1], draws.part(one, one + 1)) for one in range(8)]
).double()
whole = apply_parameters(raw, draws).double()
from_processes = DataLoader(TensorDataset(each, labels), batch_size=8, num_workers=2)
plainly = trial(each, labels)
trials = {
    "loader processes": trial(*next(iter(from_processes))),
    "fused": trial(each, labels, fused=True),
    "batched": trial(whole, labels),
    "trap": trial(each, labels, fault="broken-grad"),
}

# %% [markdown]
# How far apart are two sets of gradients? The length of the difference, as a share of the length:


# %%
def gap(before, after):
    return max(
        ((new - old).norm() / old.norm()).item() for old, new in zip(before, after, strict=True)
    )


gates = {name: CorrectnessGate.of(plainly, trial) for name, trial in trials.items()}
far = gap(plainly.gradients, trials["batched"].gradients)
assert (f"{far:.1g} apart" if far else "equal") in gates["batched"].parts[0].figures
moved = f"by more than {far:.0e} of its length" if far else "at all"
say(
    f"The loss of the plain trial falls from {plainly.losses[0]:.2f} to {plainly.losses[-1]:.2f}. "
    f"With whole batches no gradient moves {moved}. The gate allows {TOLERANCE:.0e}."
)
for name in ("loader processes", "fused", "batched"):
    say(f"{name}: {gates[name]}")

# %% [markdown] tags=["given"]
# ## The case, cure by cure
#
# The *ledger* keeps each claim with its evidence: at least five repeats of both sides, an *interval* for the speed-up,
# and the gate. The interval is made by *bootstrap*: draw five of the five repeats anew, with replacement, ten thousand
# times, and see within which range 95 % of the ratios of medians lie. If it contains 1, the repeats can't tell.
#
# Here the times are modelled: five plays of the model with other random numbers. So an interval shows how much the
# modelled host varies, not how wrong the model is. It is no measurement of a GPU.

# %%
rungs = {
    "two loader processes (03)": ("--num-workers 2", gates["loader processes"]),
    "fused optimizer (04)": ("--num-workers 2 --fused-optimizer", gates["fused"]),
    "batch 1024, 8 processes (04)": ("--num-workers 8 --batch-size 1024 --fused-optimizer", None),
    "compile (10)": ("--num-workers 8 --batch-size 1024 --fused-optimizer --compile", None),
}
begin = now = modelled("--num-workers 0")
ladder = []
for name, (options, proof) in rungs.items():
    before, now = now, modelled(options)
    ladder.append(
        ledger.add(
            f"{name} helps", before.seconds, now.seconds, proof, change=name, origin=now.origin
        )
    )
random = np.random.default_rng(20_260_821)
drawn = [
    np.median(random.choice(side, (10_000, 5)), axis=1) for side in (before.seconds, now.seconds)
]
low, high = np.quantile(drawn[0] / drawn[1], [0.025, 0.975])
assert np.allclose([low, high], [ladder[-1].speed_up.low, ladder[-1].speed_up.high], rtol=1e-3)
show_figure(
    ledger.waterfall(list(rungs), title="The case: from the plain trainer, cure by cure (modelled)")
)

# %% [markdown]
# A larger batch is another training, and a few steps can't tell whether it learns as well. Compiling for a processor
# can take minutes. So no gate was looked at for the last two. The others have a green gate: they train as before. How
# much they gain on a GPU is modelled, and no rung is proven until you measure it there.
#
# How far may you believe the model? Put it beside what was published of the same programs on real GPUs:

# %%
published = pd.DataFrame(
    [
        (
            "one MI300X, batch 256",
            "images/s",
            12_790,
            modelled("--num-workers 2").images_per_second,
        ),
        ("ResNet-50, eager to compiled", "times", 2128 / 2013, ladder[-1].speed_up.ratio),
    ],
    columns=["what", "unit", "published", "modelled"],
)

# %%
# Each in a unit of its own.
published[["published", "modelled"]] = published[["published", "modelled"]].map(number)
show_table(
    published,
    "what unit published modelled",
    "Beside the model",
    origin="recorded: AMD, HPCTrainingExamples (first row MI300X, second row MI300A); "
    "modelled: MI300X",
)
say(
    "The model was fitted to the first row. The second one it overrates: it promises "
    f"{ladder[-1].speed_up.ratio:.2f} times by the compiler, and AMD's pair, of another ResNet-50 "
    f"training, gained {2128 / 2013:.2f} times. So try it on your GPU before you promise it "
    "(lesson 10)."
)

# %%
# 4 minutes: which speed-up, as a factor, does the model promise for what trains as before? Count from the plain trainer
# to the last change before the first one without a green gate. Each entry of `ladder` has `gate.green`,
# `speed_up.before_ns` and `speed_up.after_ns`.
q = exercise("08.1", ladder)
# solution
from itertools import takewhile

gated = list(takewhile(lambda one: one.gate.green, ladder))
answer = gated[0].speed_up.before_ns / gated[-1].speed_up.after_ns
# end solution
q.check(answer)

# %% [markdown]
# ## A cure for a part that does not limit
#
# Batched transforms make an image cheaper to load. That is measured here and now, on one thread of your processor, the
# transforms alone. Does the step gain as much, once two loader processes are there?

# %%
images = data.index_select(0, torch.arange(256))
single, batch = per_image_transform(training=True), BatchTransform(seed=55, rank=0)


def seconds_per_image(prepare):
    begun = time.perf_counter()
    prepare(images)
    return (time.perf_counter() - begun) / len(images)


def one_by_one(pictures):
    return torch.stack([single(picture) for picture in pictures])


# %%
threads = torch.get_num_threads()
torch.set_num_threads(1)  # threads that wait for each other would be timed, too
both = [partial(seconds_per_image, prepare) for prepare in (one_by_one, batch)]
warm_up = [measure() for measure in both]
loader = ledger.add(
    "Whole batches are cheaper to transform",
    *both,
    gates["batched"],
    change="whole batches, transforms alone",
    origin="measured: the transforms alone, this machine",
)
torch.set_num_threads(threads)

# %%
plain, alone = modelled("--num-workers 2"), modelled("--num-workers 2 --batched-transforms")
step = ledger.add(
    "A cheaper loader makes the step faster",
    plain.seconds,
    alone.seconds,
    gates["batched"],
    change="batched transforms, with loader processes",
    origin=plain.origin,
)
say(
    f"The transforms alone: {loader.interval}. The step on the modelled GPU: {step.interval}, "
    f"{step.verdict}."
)

# %% [markdown]
# The two processes prepare images beside the step, so the step never waited for them. A cure for a part that does not
# limit the step brings nothing; this one even moves work to the device, and with it more launches. Each cure uncovers
# the next limit, so the order matters and old verdicts expire.

# %% [markdown]
# ## Trap: fast, with a good loss
#
# Somebody replaces a normalisation layer by a "fast" one. The times are as good as before, or a little better, and
# the loss falls. The trainer has this fault to practise on, and it was one of the trials:

# %%
trapped = modelled("--num-workers 2 --pathology broken-grad")
fast = ledger.add(
    "A fast normalisation saves time",
    plain.seconds,
    trapped.seconds,
    gates["trap"],
    change="fast normalisation",
    origin=plain.origin,
)
falls = {name: f"{one.losses[0]:.2f} to {one.losses[-1]:.2f}" for name, one in trials.items()}
say(
    f"Loss: {falls['trap']}, plain {plainly.losses[0]:.2f} to {plainly.losses[-1]:.2f}. Verdict: "
    f"**{fast.verdict}**."
)

# %%
# 4 minutes: which share of the weights, in percent, learns nothing in this trial? `trials["trap"].gradients` has one
# entry for each parameter, None where nothing came; `plainly.gradients` has all, each with `.numel()` weights.
q = exercise("08.2", (plainly, trials["trap"]))
# solution
pairs = zip(plainly.gradients, trials["trap"].gradients, strict=True)
lost = sum(plain.numel() for plain, trapped in pairs if trapped is None)
answer = 100 * lost / sum(plain.numel() for plain in plainly.gradients)
# end solution
q.check(answer)

# %% [markdown]
# The layer writes its result without telling *autograd*, which computes the gradients. So everything before it in
# that block stops learning, while the rest learns on. Alone, this loss would look fine. The repair is the rule: no
# green gate, no speed-up.

# %% [markdown]
# ## Blind: three runs
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
# These are the suspects, each with the part of the step that it lengthens. Several lengthen the same part: they are
# *rivals*.

# %%
suspects = pd.read_csv(lesson.file("suspects.csv"), comment="#", index_col="suspect")
show_table(
    suspects.reset_index(),
    "suspect what_it_is lengthens",
    "The suspects",
    origin="the course's list",
)

# %% [markdown]
# ## Admit the patients
#
# The *patients* A, B and C are the three runs. The seed decides which fault each has. In a room, take another one than
# your neighbour; the solutions below work for all. Each patient is one step as `torch.profiler` would record it,
# written by the course's model of an MI300X. So the fault is known to the check.
#
# A *control* is a healthy run that differs from the patient in the fault alone. One of the patients has four ranks, so
# its control, `patient.healthy`, has four, too: a run on one GPU has no collectives to compare with.

# %%
seed = 7
ward = clinic.admit(seed)
healthy, sick = ward["healthy"], [ward[letter] for letter in clinic.LETTERS]
runs = {"healthy": healthy, "healthy, 4 ranks": clinic.healthy_run(clinic.RANKS)}
runs |= {patient.letter: patient for patient in sick}
say(f"Seed {seed}. " + "; ".join(map(str, sick)) + ".")

# %% [markdown]
# ## First look: the healthy run
#
# Know the healthy one first. Each part of its step is explained in lesson 02; launch-bound idle is time in which the
# device has nothing to do because the host has launched nothing; while the host waits inside a call that copies,
# allocates or synchronises, the same time is named *blocked host*. A wait costs twice: while the host is blocked the
# queue runs empty, and after it the device waits for the first new launches. That part is launch-bound again.
#
# This step was played *with* `torch.profiler`, which costs the host time at every launch. So it is longer than a plain
# step, and more of it is launch-bound. The patients were recorded in the same way: compare them with this step. The
# ladder above runs without a profiler.

# %%
budget = tidyprof.step_budget(healthy.profile)
show_figure(plots.step_budget(budget, title="The healthy step, watched: where does its time go?"))
unwatched = plain_step()
watched_share = 100 * healthy.signs["launch_bound_ms"] / healthy.signs["step_ms"]
say(
    f"With the profiler the healthy step takes {healthy.signs['step_ms']:.1f} ms, and "
    f"{watched_share:.0f} % of it are launch-bound. Without it a step takes "
    f"{unwatched['step_ms']:.1f} ms, and "
    f"{100 * unwatched['launch_bound_ms'] / unwatched['step_ms']:.0f} % are launch-bound. Both "
    "are modelled."
)

# %% [markdown]
# ## First look: the patients
#
# A budget has a row for each rank, and a column for each part of the step, in ns: those with `_ns`, but for `start_ns`
# and `duration_ns`. Over ranks take the median.

# %%
# 4 minutes: by how many ms is each part of patient A's step longer than in its control? Give a Series or dictionary
# with a name for each part, such as `compute_ns`. Two budgets are needed: of `patient` and of `patient.healthy`.
patient = ward["A"]
q = exercise("08.3", patient)
# solution
own, well = (tidyprof.step_budget(one.profile) for one in (patient, patient.healthy))
parts = [
    name for name in budget if name.endswith("_ns") and name not in ("start_ns", "duration_ns")
]
answer = (own[parts].median() - well[parts].median()) / 1e6
# end solution
q.check(answer)

# %% [markdown]
# From here on `patient.changes` has these differences. All three patients as a picture:

# %%
show_figure(change_chart(sick, title="Each patient minus its control"))

# %% [markdown]
# The longest bar is a symptom, not a cause: rivals lengthen the same part. So count. The table of *signs*
# has one row per run, per step and rank. An *element-wise* kernel works on each number by itself; a *copy kernel*
# is a kernel that only moves data; copies to and from the device are what the copy engines do. `waiting_ms` and
# `transfer_ms` are the two parts of the time in collectives (lesson 07), and `waits_for_one_rank_percent` is the share
# of the waiting that one rank has caused.

# %%
signs = clinic.signs_table(runs)
times = "run step_ms compute_ms exposed_communication_ms exposed_copy_ms launch_bound_ms"
times += " blocked_host_ms data_wait_ms mean_kernel_us waiting_ms transfer_ms"
counts = "run ranks kernels elementwise_kernels copy_kernels copies_inside copies_to_device "
show_table(signs, times, "Times per step, medians over ranks")
show_table(signs, counts + "copies_to_host waits_for_one_rank_percent", "Counts per step and rank")

# %% [markdown]
# During which range of your script did the device idle? And which kernels are new?

# %%
for patient in sick:
    gaps = tidyprof.gaps(patient.profile)
    by_range = (
        gaps.groupby("host_range", observed=True)["duration_ns"]
        .agg(gaps="count", total_ns="sum")
        .reset_index()
    )
    by_range = by_range.sort_values("total_ns", ascending=False)
    columns, name = "host_range gaps total_ms", f"Gaps of patient {patient.letter}, all ranks"
    show_table(by_range, columns, name, rows=3, origin=patient.profile.origin)
    new = tidyprof.compare(patient.healthy.profile, patient.profile)
    show_table(
        new,
        "short_name category calls_before calls_after difference_us",
        f"Kernels of {patient.letter}",
        3,
    )

# %% [markdown]
# Where there are several ranks, look at each of them, and at those of the control.

# %%
columns = (
    "rank computation_ms exposed_communication_ms came_last wait_ms transfer_ms caused_wait_ms"
)
for patient in (one for one in sick if one.signs["ranks"] > 1):
    for name, one in {f"patient {patient.letter}": patient, "its control": patient.healthy}.items():
        show_table(tidyprof.ranks(one.profile), columns, f"Ranks of {name}")

# %% [markdown]
# ## Write the differential
#
# A doctor's *differential* is the list of causes that fit, and what tells them apart. Yours is a function of two rows
# of signs: `patient.healthy.signs` and `patient.signs` are Series with the names of the two tables above. First ask two
# times: did exposed communication or the data wait grow by a fifth of the healthy step or more? Counts decide the rest,
# however little the step grew: the trainer launches the same work in every step, so a hundred more events are no
# accident.
#
# It will be tried on one run of *each* suspect, beside its control, and on both healthy runs. Go through the list.

# %%
# 8 minutes: write `differential(before, after)`. It returns the name of the suspect, or "healthy" if nothing grew.
q = exercise("08.4", healthy)


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
    if grew[most] > 100:
        return launched[most]
    return "tiny-batch" if after["mean_kernel_us"] < 0.8 * before["mean_kernel_us"] else "healthy"


answer = differential
# end solution
q.check(answer)

# %% [markdown]
# ## Diagnose
#
# Now be the doctor who signs: for each patient give the `fault`, by how many ms the part changed that changed most
# (`change_ms`, negative if it became shorter), a `rival` that lengthens the same part, and the sign that rules the
# rival out (`ruled_out_by`, a name such as `copies_to_host`). To a wrong suspect the check answers with the evidence
# against it.

# %%
# 6 minutes: what is wrong with the patients? Give a dictionary with a diagnosis for each letter, itself a dictionary:
# {"A": {"fault": "...", "change_ms": ..., "rival": "...", "ruled_out_by": "..."}, ...}
q = exercise("08.5", ward)


# solution
def diagnosis(patient):
    fault = differential(patient.healthy.signs, patient.signs)
    same_part = suspects[suspects["lengthens"] == suspects.loc[fault, "lengthens"]]
    rival = same_part.index.drop(fault)[0]
    change = patient.changes[patient.changes.abs().idxmax()]
    found = {"fault": fault, "change_ms": change, "rival": rival}
    return found | {"ruled_out_by": suspects.loc[rival, "decided_by"]}


answer = {patient.letter: diagnosis(patient) for patient in sick}
# end solution
q.check(answer)

# %% [markdown]
# ## A second opinion
#
# At work there is often no healthy run to compare with. `tidyprof triage FILE` asks the same tables as you did, of one
# recording alone, and says what its time is lost to, what rules other causes out and what the file can't tell.

# %%
for patient in sick:
    second = tidyprof.triage(patient.profile)
    sure = "sure" if second.sure else "not sure"
    also = ", ".join(rival.name for rival in second.rivals if rival.fired) or "nothing"
    say(
        f"Patient {patient.letter}: **{second.cause}**, {100 * second.share:.0f} % of the time, "
        f"{sure}; also {also}. {second.evidence[0]}"
    )
alone = tidyprof.triage(healthy.profile)
say(f"And the healthy run? **{alone.cause}**, {100 * alone.share:.0f} % of the time.")

# %% [markdown]
# It names what takes most of the time, and is sure where nothing else comes near. Which part of that is *new*, it can't
# know. The healthy run is `launch-bound`, too, since its batch is small, and so is one with more or smaller kernels.
# Which launches are *too many* only the comparison tells. So keep a recording of a run that was well. [How often it is
# right](../docs/triage.md).

# %% [markdown]
# ## Repair one, and check it
#
# A fault that is a switch of the trainer is repaired by leaving it out. Take the first such patient: a network can't be
# repaired from here. The check is the same as for the ladder: five repeats of both sides, an interval, and a gate. The
# times are modelled again; the gate is real.

# %%
from cifar_train.config import PATHOLOGIES

given = answer if isinstance(answer, dict) else {}
named = {letter: one.get("fault") for letter, one in given.items() if isinstance(one, dict)}
letter, ill_with = next((one for one in named.items() if one[1] in PATHOLOGIES), ("A", None))
gate = CorrectnessGate.of(plainly, trial(each, labels, fault=ill_with))
ranks = int(ward[letter].signs["ranks"])
ill, cured = (
    modelled(f"--pathology {ill_with}" if ill_with else "", ranks=ranks),
    modelled(ranks=ranks),
)
repair = ledger.add(
    f"Patient {letter} recovers when its fault is taken out",
    ill.seconds,
    cured.seconds,
    gate,
    change=f"repair of patient {letter}",
    origin=cured.origin,
)

# %% [markdown]
# ## Decide: the case is closed
#
# The ledger is what you hand over. It keeps what did not work, too: the next person need not try it again. And the
# case sheet is your report: one line for each question, with its evidence and what that ruled out. `python -m proflab
# case --html case.html` writes it as a page.

# %%
show_table(ledger.table(), "change interval verdict", "Every attempt so far")
kept = gated if isinstance(gated, list) and gated else ladder[:1]
lesson.conclude(
    f"The ladder goes from {1e6 * begin.seconds[0]:.0f} to {1e6 * now.seconds[0]:.0f} µs an image "
    f"in the model; {kept[0].speed_up.before_ns / kept[-1].speed_up.after_ns:.1f} times of it "
    "have green gates.",
    rules_out="One cause: the limit was the loader, then the launches, then many kernels far below "
    "each roof.",
    because="What is left needs a GPU: measure the rungs there. The electives go on from here.",
    next="",
    origin=now.origin,
    changes=ladder,
)

# %% [markdown]
# ## Prediction and result
#
# Your predictions of all lessons, the farthest off first:

# %%
from proflab.predictions import show_guesses

total = ladder[0].speed_up.before_ns / ladder[-1].speed_up.after_ns
proflab.reveal("08.a", total, origin=now.origin)
proflab.reveal("08.b", step.speed_up.ratio, origin=plain.origin)
show_guesses()

# %% [markdown]
# ## What this view cannot show
#
# - A modelled patient has one fault, and one step has no spread. Real ones have several, and the largest hides the
#   others.
# - The model has no caches and does not know your machine. Its ladder tells where to look, not what you will get.
# - The gate computes in 64 bits on a processor. What 16 bits do to a long training, only long runs show.
# - Some faults that the trainer can have leave no trace in one step: memory that grows, a wrong loss, no warm-up.
#
# ## Known issues
#
# Profilers have faults as well: [the register](../docs/known-issues.md) lists those that look like a fault of yours.

# %% [markdown]
# ## At work, without this course
#
# The cures behind switches, in a training loop of its own, to copy from and to try on your machine. Each run writes
# its step times and losses:
#
# {snippet 08_cures.py}
#
# And the judge, for step times and losses of any program:
#
# {snippet 08_compare_two_runs.py}

# %% [markdown]
# ## Key points
#
# - Compare with a healthy run; know its noise and its shape first.
# - A symptom has several causes. Name the sign that rules the rival out.
# - Cure what limits the step, then measure again: the limit has moved.
# - Repeats and an interval show the speed, where it was measured. The gate shows that it is the same training. You
#   need both.
#
# The core ends here. Next question, as you need it: which kernel killed my job (09), what did the compiler change (10),
# why does it not fit (11), how fast can a token be (12), is it slower than before (13), or: what is wrong with my own
# script (14)?
