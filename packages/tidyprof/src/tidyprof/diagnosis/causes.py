"""The causes that triage knows: each with its rule, its evidence and the next thing to do.

A share is what the step would get back at most if the cause were gone. `power-capped` and
`dominant-kernel` say what a device does that computes, so they come after all others whatever their
share.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from tidyprof.analyses.budget import part_words
from tidyprof.analyses.common import four_digits
from tidyprof.diagnosis.indicators import Signs
from tidyprof.diagnosis.recordings import AMD, NVIDIA

LIMIT = 0.20
"""Share of the time from which a cause limits a run: without it a step would be 1.25 times as fast.
Smaller shares are within gpumodel's error (30 %), and within what runs of one machine differ by
(docs/gate.md).
"""

MANY_COPIES = 16
"""With so many copies to the device for each batch they come one by one: a batch is images and
labels, with masks and positions a handful.
"""

OFFLOADED = 0.1
"""Where exposed copies take this share of the time in each direction, data are parked on the
host.
"""

FEW_CALLS = 1.0
"""Allocating calls in a step from which memory is under pressure: a caching allocator makes none in
a steady step.
"""

COMPILING_NS = 100_000_000
"""Silence in a step from which a compiled program compiles again: compilations take seconds,
logging milliseconds.
"""

SLOW_START = 2.0
"""Ratio of the first step to the median of the others from which it is a start-up (plots.stepping
marks a step from 1.5 on).
"""

ONE_GAP, ALONE = 0.5, 3.0
"""An idle interval that is so much of all idleness, and so many times the next, comes once and not
in each step.
"""

ONE_KERNEL = 0.5
"""A kernel with this share of all kernel time is the one to look at, in a run that computes for at
least this share of its time.
"""

CAPPED = 0.5
"""Share of busy samples at the power cap from which the cap sets the speed."""

NEAR_ROOF = 0.5
"""Share of its roof that a good kernel reaches at least: AMD's measured matrix products on MI300X
reach 654 of 1307 TFLOP/s in FP16.
"""

COUNTERS = "rocprof-compute profile --name run -- python train.py"
LIMITS = "amd-smi static --limit"

TRAINING, INFERENCE, OTHER_PROGRAM = "python train.py", "python infer.py", "./program"
"""How commands call the program that was recorded, by what is known of it."""

TORCH = (
    "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],"
    " schedule=torch.profiler.schedule(...))"
)
OF_NVIDIA = {
    "rocprofv3": TORCH,
    "rocprof-compute": "ncu --set roofline --export run python train.py",
    "amd-smi monitor": "nvidia-smi dmon --select puc",
    "amd-smi static": "nvidia-smi --query --display=POWER",
}
"""How a command for AMD's GPUs begins -> what does the same for NVIDIA's (manuals of Nsight
Compute, nvidia-smi).
"""


IN_SENTENCES = {
    "blocked_host": "in a waiting call",
    "other": "idle for another reason",
    "unseen": "not in the recorded steps",
}
"""What a sentence calls a part to tell it from the others of triage."""


def part_in_words(part: str) -> str:
    """A part in sentences."""
    return IN_SENTENCES.get(part) or part_words(part)


@dataclass(frozen=True)
class Cause:
    """One cause. part -- the part of the time that it lengthens: causes of one part are rivals.

    share   -- what it takes of the time (0 to 1); 0 where its rule is not met.
    where   -- the runs that can have it: with a device, on a host alone, or both.
    finding -- the numbers that speak for it, or against it, with the analysis that they are from.
    advice  -- what to do or to record next. is_rest -- whether it describes a device that computes,
               rather than one that waits.
    """

    name: str
    title: str
    part: str
    share: Callable[[Signs], float]
    finding: Callable[[Signs], str]
    advice: Callable[[Signs], str]
    is_rest: bool = False
    where: tuple[str, ...] = ("device",)


def percent(share: float) -> str:
    """A share as a person reads it."""
    return f"{100 * share:.1f} %" if share < 0.1 or 0.99 <= share < 1 else f"{100 * share:.0f} %"


def _part(signs: Signs, *names: str) -> float:
    return sum(signs.shares.get(name, 0.0) for name in names)


def program(signs: Signs) -> str:
    """How to call the program in a command: a training, another Python program, or any program."""
    if not signs.operators and not signs.tool.startswith("torch"):
        return OTHER_PROGRAM
    return TRAINING if signs.host.trains or not signs.operators else INFERENCE


def of_vendor(command: str, signs: Signs) -> str:
    """A command for the GPU that was recorded, and its program; "" where none is known for that
    GPU.
    """
    tool = next((tool for tool in OF_NVIDIA if command.startswith(tool)), "")
    if tool and signs.vendor != AMD:
        command = OF_NVIDIA[tool] if signs.vendor == NVIDIA else ""
    return command.replace(TRAINING, program(signs))


def copies_for_a_batch(signs: Signs) -> float:
    """Copies to the device for each batch: one a step, or as many as the loader delivered. 0 if
    nobody knows.
    """
    batches = signs.per_step.get("batches", 0.0)
    if not batches and not signs.marked:
        return 0.0
    return signs.per_step.get("copies_to_device", 0.0) / max(batches, 1.0)


def _one_by_one(signs: Signs) -> bool:
    return copies_for_a_batch(signs) >= MANY_COPIES


def _copying(signs: Signs) -> float:
    """Exposed copies; where they come one by one also the time in which the host hands them over
    and waits for them.

    Copies to the host count where as much goes back to the device: then data are parked there, and
    no value is read.
    """
    if _one_by_one(signs):
        return _part(signs, "exposed_copy", "data_wait", "blocked_host")
    if _offloading(signs):
        return _part(signs, "exposed_copy", "fetching")
    return _part(signs, "exposed_copy")


def _offloading(signs: Signs) -> bool:
    return (
        not signs.on_host
        and min(_part(signs, "exposed_copy"), _part(signs, "fetching")) >= OFFLOADED
    )


def _late_data(signs: Signs) -> float:
    return 0.0 if _one_by_one(signs) else _part(signs, "data_wait")


def _blocked(signs: Signs) -> float:
    """In calls that wait, after them, and in copies to the host, for which the host nearly always
    waits.
    """
    # What `_copying` counts is not counted here again.
    fetched = () if _offloading(signs) else ("fetching",)
    waited = () if _one_by_one(signs) else ("blocked_host",)
    return _part(signs, "stalled", *fetched, *waited)


def _memory(signs: Signs) -> float:
    return _part(signs, "allocation") if signs.per_step.get("allocations", 0) >= FEW_CALLS else 0.0


def _recompiling(signs: Signs) -> float:
    silence, ranges = _part(signs, "silent"), max(signs.compiling, _part(signs, "compiling"))
    # Where no range of the compiler tells, a long silence of a compiled program does, unless call
    # stacks name a function for it.
    again = (
        signs.host.compiled and silence * signs.step_ns >= COMPILING_NS and not signs.host.silent_in
    )
    return max(silence, ranges) if again and not _start_up(signs) else ranges


def _silent_host(signs: Signs) -> float:
    return 0.0 if _recompiling(signs) >= LIMIT else _part(signs, "silent")


def _small_operators(signs: Signs) -> float:
    return signs.small


def _start_up(signs: Signs) -> float:
    """Slow first launches; or the excess of a slow first step; or without steps one long interval
    that comes once.
    """
    found = signs.start_up
    if signs.first_step is not None and signs.first_alone is not None:
        # Other programs may have made the first step long, or the later ones.
        first = min(signs.first_step, signs.first_alone)
        if first >= SLOW_START:
            # The first step counts in other steps: what it has beyond one of them, of the time that
            # all take together.
            found = max(found, (first - 1) / (first + signs.steps - 1))
    return max(found, one_gap(signs))


def one_gap(signs: Signs) -> float:
    """Share of the one long interval that comes once, in a recording without steps; 0 where there
    is none.

    Where nothing of the host is recorded it counts only if the event that ends it is the first of
    its name.
    """
    if signs.marked or not signs.gap or signs.gap.share < ONE_GAP or signs.gap.over_second < ALONE:
        return 0.0
    if not _is_heard(signs) and not signs.gap.is_first:
        return 0.0
    return signs.gap.ns / max(signs.step_ns * signs.steps, 1.0)


def _is_heard(signs: Signs) -> bool:
    """Whether anything that the host did is in the file."""
    return bool(signs.calls or signs.operators)


def _straggler(signs: Signs) -> float:
    """What the others wait for a rank, as far as it does more than they do."""
    table = signs.rank_table
    if table is None or table.attrs["straggler"] is None:
        return 0.0
    others = table[table["rank"] != table.attrs["straggler"]]
    waited = float(others["wait_ns"].sum() / max(others["total_ns"].sum(), 1))
    return min(signs.excess.share, waited * _waits_left(signs))


def _waits_left(signs: Signs) -> float:
    """How much of the recorded share of waiting for other ranks is left without the profiler (0 to
    1).
    """
    table = signs.rank_table
    recorded = (
        0.0 if table is None else float(table["wait_ns"].sum() / max(table["total_ns"].sum(), 1))
    )
    return signs.waiting / recorded if recorded else 1.0


def _communication(signs: Signs) -> float:
    """Exposed communication without the waiting in it, as far as several ranks tell the two
    apart.
    """
    table, exposed = signs.rank_table, _part(signs, "exposed_communication")
    if table is None or not table["compared"].any():
        return exposed
    # The table is of the recorded steps. Without the profiler they are shorter and wait less; the
    # transfers stay as they are.
    lasting = signs.step_ns / signs.observer.traced_ns if signs.observer.traced_ns else 1.0
    waited = float(table["wait_ns"].sum()) * _waits_left(signs) * lasting
    transferred = float(table["transfer_ns"].sum())
    return exposed * transferred / max(transferred + waited, 1.0)


def rank_words(signs: Signs) -> str:
    """Who waits for whom, as far as the files tell."""
    table = signs.rank_table
    if table is None:
        return "one rank is here, which can't tell waiting for others from transfer (collectives)"
    if table.attrs["straggler"] is None:
        return f"{table.attrs['evidence']} (ranks)"
    share, part = signs.excess
    more = (
        f"{100 * share:.0f} % of its time more than the others"
        if share >= 0.01
        else "no more time than the others"
    )
    most = f", most of it {part_in_words(part)}" if share >= 0.01 else ""
    evidence = table.attrs["evidence"].replace(
        "its device", "its processor" if signs.on_host else "its device"
    )
    if share >= 0.01 and (part == "compute") != ("computes longer" in evidence):
        # How long it computes contradicts what it does more of, so only its idleness is told.
        evidence = re.sub(r", so its .*? \((idle for .*?)\)", r"; it was \1", evidence)
    little = "" if share >= LIMIT else ": too little to blame it"
    return (
        f"{evidence} It spends {more} on work and waits of its own{most}{little} (ranks,"
        " step_budget, gaps)"
    )


def _rank_advice(signs: Signs) -> str:
    """How to see what the straggler does more: beside a rank that waits for it where it computes
    longer, else alone.
    """
    table, files = signs.rank_table, signs.rank_files
    late = table.attrs["straggler"]
    waiting = (
        table[table["rank"] != late]
        .sort_values("wait_ns", ascending=False)["rank"]
        .astype(int)
        .tolist()
    )
    named = {
        rank: shlex.quote(files[rank]) if rank in files else f"RANK{rank}"
        for rank in (late, waiting[0])
    }
    alone = f"python -m tidyprof triage {named[late]}"
    if signs.excess.part != "compute":
        return f"{alone} judges that rank alone: what makes it late is there."
    beside = f"python -m tidyprof compare {named[waiting[0]]} {named[late]}"
    if signs.operators:
        beside += " --by operator"
    return (
        f"{beside} shows what rank {late} computes longer or more often. Unequal work is the usual"
        " reason: longer texts, larger images, more experts; then deal it out evenly. If the work"
        " is equal, its clock, its cooling or other programs slow it."
    )


def _one_kernel(signs: Signs) -> float:
    top = signs.top_kernel
    if not top or top["percent"] / 100 < ONE_KERNEL or top["category"] == "collective":
        return 0.0
    # Counters alone have no shares of time: then the kernels count as all there is.
    computing = _part(signs, "compute") if signs.shares else 1.0
    return computing * top["percent"] / 100 if computing >= ONE_KERNEL else 0.0


def _kernel_words(signs: Signs) -> str:
    if not signs.top_kernel:
        return "no kernel is in the file (kernels)"
    top = signs.top_kernel
    text = (
        f"{top['short_name']} has {top['percent']:.0f} % of all kernel time, in {top['calls']:,}"
        " calls (kernels)"
    )
    if signs.roof_share is None:
        return f"{text}; how near to its roof it is, only counters tell"
    side = "near" if signs.roof_share >= NEAR_ROOF else "far from"
    if signs.roof_share > 1:
        reached = (
            f"it reaches {percent(signs.roof_share)} of its roof, which can't be: bytes or roof are"
            " wrong"
        )
        return f"{text}; {reached} (roofline_points)"
    return f"{text}; it is {side} its roof, {percent(signs.roof_share)} of it (roofline_points)"


def _start_words(signs: Signs) -> str:
    words = []
    search, slow, gap = signs.search, signs.slow, signs.gap
    if search.name:
        spent = four_digits(search.amount / 1e6)
        words.append(f"{search.name} tried out a library's kernels for {spent} ms (events)")
    if slow.count:
        spent, usual = four_digits(slow.ns / 1e6), four_digits(slow.usual_ns / 1e3)
        text = (
            f"{slow.count} of {slow.launches:,} launches are slow, each the first of its kernel,"
            f" {spent} ms"
        )
        words.append(f"{text} together where the median takes {usual} µs (events)")
    if signs.first_step is not None:
        text = f"the first step took {signs.first_step:.2f} times the others' median (step_budget)"
        if signs.first_alone is not None and signs.first_alone < SLOW_START <= signs.first_step:
            text += f", {signs.first_alone:.2f} times without what other programs took of each step"
        words.append(text)
    elif gap is not None:
        during = f", with the host in {gap.call}" if gap.call else ""
        if gap.is_first and not _is_heard(signs):
            during = ", and ends with the first event of its name"
        words.append(
            "the longest idle interval between two events, outside of loading,"
            f" {four_digits(gap.ns / 1e6)} ms, is {percent(gap.share)} of these{during} (gaps)"
        )
    return "; ".join(words) or "one step or less is here, and no launch is slow (events)"


def _power_words(signs: Signs) -> str:
    if signs.capped_share is None:
        return (
            "no power cap is in the log"
            if signs.has_power
            else "no log of the power and its cap is here"
        )
    return (
        f"{percent(signs.capped_share)} of the samples of busy devices are at the power cap"
        " (counters)"
    )


def _capped(signs: Signs) -> float:
    share = signs.capped_share or 0.0
    return share if share >= CAPPED else 0.0


def _time(signs: Signs, *names: str) -> str:
    """`data wait: 12 % of the time`."""
    return (
        ", ".join(f"{name.replace('_', ' ')} {percent(_part(signs, name))}" for name in names)
        + " of the time"
    )


def _count(signs: Signs, name: str) -> str:
    return four_digits(signs.per_step.get(name, 0))


def _unit(signs: Signs) -> str:
    return "a step" if signs.marked else "in this time"


def _memory_words(signs: Signs) -> str:
    calls = f"calls that allocate or free: {_count(signs, 'allocations')} {_unit(signs)}"
    return (
        f"{calls}, device idle in them for {percent(_part(signs, 'allocation'))} of the time"
        " (blocking_calls)"
    )


def _copies_words(signs: Signs) -> str:
    batches = signs.per_step.get("batches", 0)
    calls = "call" if batches == 1 else "calls"
    each = f" for {four_digits(batches)} {calls} of the loader" if batches else ""
    return (
        f"copies to the device: {_count(signs, 'copies_to_device')} {_unit(signs)}{each} (events)"
    )


def _copy_words(signs: Signs) -> str:
    text = (
        f"{_copies_words(signs)}; {_time(signs, 'exposed_copy', 'data_wait', 'blocked_host')}"
        " (step_budget)"
    )
    if _offloading(signs):
        text += f"; copying back to the host {percent(_part(signs, 'fetching'))}"
    return text


def _data_words(signs: Signs) -> str:
    text = f"{_time(signs, 'data_wait')} (step_budget)"
    if not signs.on_host:
        text += f"; {_copies_words(signs)}"
    text += f"; {signs.host.loader}" if signs.host.loader else ""
    named = signs.host.loading_in if _part(signs, "data_wait") >= 0.01 else ""
    return f"{text}; most of the loading in {named} (call stacks)" if named else text


def _silence_words(signs: Signs) -> str:
    silence = _part(signs, "silent")
    long = (
        f"{percent(silence)} of the time, {four_digits(silence * signs.step_ns / 1e6)} ms"
        f" {_unit(signs)}"
    )
    what = "no operator ran" if signs.on_host else "idle while the host started nothing"
    text = f"{what} for 1 ms or longer: {long} ({'events' if signs.on_host else 'gaps'})"
    if silence >= 0.01:
        text += (
            f"; most of it in your part `{signs.host.silent_part}`"
            if signs.host.silent_part
            else ""
        )
        text += (
            f"; most of it in {signs.host.silent_in} (call stacks)" if signs.host.silent_in else ""
        )
    return f"{text}; {_processor_words(signs)}" if signs.on_host else text


def _processor_words(signs: Signs) -> str:
    if signs.off is None:
        return "whether the thread had a processor then was not recorded"
    text = f"the thread was without a processor for {percent(signs.off)} of the time"
    if signs.stolen is None:
        return f"{text}, asleep or behind other programs (counters)"
    return (
        f"{text}, for {percent(min(signs.stolen, signs.off))} because other programs had it"
        " (counters)"
    )


def _compile_words(signs: Signs) -> str:
    ranges = f"ranges of the compiler {percent(signs.compiling)} of the time (events)"
    compiled = "compiled kernels or ranges: " + ("yes" if signs.host.compiled else "none")
    return f"{ranges}; {compiled}"


def _small_words(signs: Signs) -> str:
    name, count = signs.small_operator
    text = (
        f"in loops over operators below 20 µs, and between these: {percent(signs.small)} of the"
        " time (events)"
    )
    return f"{text}; the most frequent: {four_digits(count)} {name} a step" if name else text


def _blocked_words(signs: Signs) -> str:
    calls = f"calls that wait: {_count(signs, 'waiting_calls')} {_unit(signs)}"
    most = f", most in {signs.call}" if signs.call else ""
    names = ("blocked_host", "stalled", "fetching")
    waits, behind, copies = (percent(_part(signs, name)) for name in names)
    idle = f"idle in them {waits}{most}, from their end to the next work {behind} of the time"
    return f"{calls} (blocking_calls); {idle}, copying to the host {copies} (step_budget, gaps)"


def _communication_words(signs: Signs) -> str:
    text = f"{_time(signs, 'exposed_communication')} (step_budget)"
    if signs.rank_table is None:
        return f"{text}; {rank_words(signs)}"
    return f"{text}, {percent(_communication(signs))} without the waiting in it (ranks)"


def _communication_advice(signs: Signs) -> str:
    """What tells transfer from waiting, where ranks are missing; where all are here, what tells the
    network from its users.
    """
    if signs.rank_table is None or (signs.world_size or 0) > signs.ranks:
        return (
            "Record every rank. If all enter together it is the network, if one enters last it is"
            " that rank."
        )
    return (
        "Time one such collective alone, at this size. If it is as long there, send fewer bytes, or"
        " hide it behind computation; if it is shorter, ranks wait for each other here, or other"
        " work slows it."
    )


def _launching(signs: Signs) -> float:
    return _part(signs, "launch_bound") if signs.pace is None else signs.pace


def _launch_words(signs: Signs) -> str:
    idle = (
        f"idle because nothing was launched, without another reason: {percent(_launching(signs))}"
        " of the time"
    )
    whose = "" if signs.pace is None else " of the rank that waits least"
    worth = (signs.under, signs.module) if _launching(signs) >= LIMIT / 4 else ()
    named = [f"{percent(share)} under {name}" for name, share in worth if share >= LIMIT]
    under = f"; of that {', '.join(named)}" if named else ""
    count = _count(signs, "kernels")
    kernels = f"{count} kernel{'s' * (count != '1')} {_unit(signs)}"
    return f"{idle}{whose} (step_budget, gaps){under}; {kernels}"


def _always(text: str) -> Callable[[Signs], str]:
    return lambda signs: text


def _data_advice(signs: Signs) -> str:
    if signs.host.loading_in:
        return (
            f"Look into {signs.host.loading_in}: do it once, before the training, or on whole"
            " batches; else in processes beside it, a DataLoader with num_workers."
        )
    if not signs.host.workers and (signs.host.loading is None or signs.host.loading < 0.5):
        return (
            "No DataLoader is at work in most of this time, your own code between two steps is:"
            " time its lines, do them on whole batches instead of one sample at a time, or in a"
            " DataLoader with num_workers."
        )
    return (
        "Time the loader alone, without a model, with 0 and with more num_workers, on free cores."
        " If workers help, keep them; if not, look into the data set's __getitem__ and the loader's"
        " collate_fn: slow reading, or Python for each word, row or pixel. Recorded with_stack=True"
        " and num_workers=0, triage names the function."
    )


def _silence_advice(signs: Signs) -> str:
    if signs.host.silent_in:
        return (
            f"Look into {signs.host.silent_in}: do it more seldom, in another thread, or in fewer"
            " pieces."
        )
    where = f"It lies in your part `{signs.host.silent_part}`. " if signs.host.silent_part else ""
    return (
        f"{where}Record call stacks, with_stack=True in torch.profiler, and run triage again: it"
        " names the function. Usual ones: preparing data, logging, checkpoints, an environment,"
        " garbage collection, a lock."
    )


GRAPHS_WRONG, GRAPHS_RIGHT = (7, 2, 0), (7, 2, 4)
"""HIP graphs give wrong results on MI300X (ROCm/clr#279) from the first of these releases on; the
second is the first in which they are right again.
"""


def _graphs(signs: Signs, how: str) -> tuple[list[str], str]:
    """Graphs as a cure, if they are one, and what to know of them: a file may state no release, or
    only the beginning of one.
    """
    if signs.graph_share:
        return [], ""
    # Of a release stated as 7.2 only these two numbers are compared, as it may be 7.2.0.
    release = tuple(map(int, re.findall(r"\d+", signs.release)[:3]))
    wrong = "on ROCm 7.2.0 to 7.2.3 graphs give wrong results on MI300X (ROCm/clr#279)"
    if signs.vendor != AMD or (
        release and not GRAPHS_WRONG[: len(release)] <= release < GRAPHS_RIGHT
    ):
        return [f"graphs ({how})"], ""
    if len(release) == len(GRAPHS_WRONG):
        return [], f" Not {how}: {wrong}."
    return [f"graphs ({how})"], f" Look up your release first: {wrong}."


def _launch_advice(signs: Signs) -> str:
    cures = ["a larger batch"]
    cures += [] if signs.host.compiled else ["torch.compile"]
    if not signs.operators and not signs.tool.startswith("torch"):
        cures = ["larger or fewer kernels"]
        graphs, warning = _graphs(signs, "hipGraphLaunch")
    else:
        graphs, warning = _graphs(signs, "torch.cuda.CUDAGraph")
    cures += graphs
    cures += ["a fused optimizer"] if signs.host.trains else []
    return f"More work for each launch: {', '.join(cures)}.{warning}"


def _start_advice(signs: Signs) -> str:
    if signs.search.name:
        return (
            "A library (cuDNN's benchmark, MIOpen's find) tries out its kernels for each size of"
            " data once. Record steps whose sizes came before; if new ones come all the time, pad"
            " them to few."
        )
    if signs.operators:
        return (
            "Leave the first steps out, torch.profiler.schedule(wait=5, warmup=1, active=3), and"
            " record again."
        )
    return (
        "Run the work several times in the program, and look at the later ones: what comes once is"
        " paid once."
    )


def _power_advice(signs: Signs) -> str:
    return of_vendor(LIMITS, signs) or "Look up the power cap with the tool of your GPU's maker."


def _kernel_advice(signs: Signs) -> str:
    return (
        of_vendor(COUNTERS, signs)
        or "Count its operations and bytes with the profiler of your GPU's maker."
    )


CAUSES = (
    Cause(
        "allocator-churn",
        "memory is allocated and freed in each step",
        "idle",
        _memory,
        _memory_words,
        _always(
            "Compare torch.cuda.memory_stats()['num_alloc_retries'] before and after ten steps."
            " With a smaller batch the calls must vanish."
        ),
    ),
    Cause(
        "exposed-copies",
        "copies to the device that nothing hides",
        "idle",
        _copying,
        _copy_words,
        _always(
            "One copy a batch: pin_memory=True in the DataLoader, .to(device, non_blocking=True) on"
            " the whole batch."
        ),
    ),
    Cause(
        "input-bound",
        "the data come late",
        "idle",
        _late_data,
        _data_words,
        _data_advice,
        where=("device", "host"),
    ),
    Cause(
        "recompilation",
        "the compiler compiles again in the steps",
        "idle",
        _recompiling,
        _compile_words,
        lambda signs: f"TORCH_LOGS=recompiles {program(signs)}",
        where=("device", "host"),
    ),
    Cause(
        "outside-torch",
        "the host does something else than starting work",
        "idle",
        _silent_host,
        _silence_words,
        _silence_advice,
        where=("device", "host"),
    ),
    Cause(
        "sync-bound",
        "the host waits for the device, which then runs dry",
        "idle",
        _blocked,
        _blocked_words,
        _always(
            "torch.cuda.set_sync_debug_mode('warn') names the lines that wait: .item(), .cpu(), a"
            " copy without non_blocking."
        ),
    ),
    Cause(
        "startup",
        "something that comes once is in the recording",
        "idle",
        _start_up,
        _start_words,
        _start_advice,
        where=("device", "host"),
    ),
    Cause(
        "straggler",
        "the ranks wait for one of them",
        "communication",
        _straggler,
        rank_words,
        _rank_advice,
        where=("device", "host"),
    ),
    Cause(
        "exposed-communication",
        "communication that no computation hides",
        "communication",
        _communication,
        _communication_words,
        _communication_advice,
        where=("device", "host"),
    ),
    Cause(
        "operator-overhead",
        "a loop in Python over small operators",
        "idle",
        _small_operators,
        _small_words,
        _always(
            "One operator on the whole tensor, or torch._foreach_... on a list of them, instead of"
            " a loop in Python; .item() and .tolist() once, behind the loop."
        ),
        where=("host",),
    ),
    Cause(
        "launch-bound",
        "the host launches slower than the device works",
        "idle",
        _launching,
        _launch_words,
        _launch_advice,
    ),
    Cause(
        "power-capped",
        "the power cap sets the speed",
        "device",
        _capped,
        _power_words,
        _power_advice,
        is_rest=True,
    ),
    Cause(
        "dominant-kernel",
        "one kernel dominates",
        "device",
        _one_kernel,
        _kernel_words,
        _kernel_advice,
        is_rest=True,
    ),
)
"""All causes; of two with equal shares the earlier one leads."""
