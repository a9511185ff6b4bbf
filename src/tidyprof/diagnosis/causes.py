"""The causes that triage knows: each with its rule, its evidence and the next thing to do.

A share is what the step would get back at most if the cause were gone. `launch-bound`, `graph-replay` and `one-kernel`
are what remains where no other cause explains the time, so they come after the others whatever their share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidyprof.analyses.common import four_digits
from tidyprof.diagnosis.signs import Signs

LIMIT = 0.20
"""Share of the time from which a cause limits a run: without it a step would be 1.25 times as fast. Smaller shares
are within what gpumodel errs (30 %) and what runs of one machine differ (docs/gate.md)."""

MANY_COPIES = 16
"""Copies to the device in a step from which they come one by one: a batch is images and labels, with masks and
positions a handful."""

FEW_CALLS = 1.0
"""Allocating calls in a step from which memory is under pressure: a caching allocator makes none in a steady step."""

COMPILING_NS = 100_000_000
"""Silence in a step from which a compiled program compiles again: compilations take seconds, logging milliseconds."""

SLOW_START = 2.0
"""First step over the median of the others from which it is a start-up (plots.stepping marks a step from 1.5)."""

ONE_GAP, ALONE = 0.5, 3.0
"""An idle interval that is so much of all idleness, and so many times the next, comes once and not in each step."""

GRAPHS = 0.5
"""Share of device events that graphs launched from which launches per kernel say nothing."""

ONE_KERNEL = 0.5
"""Share of all kernel time of one kernel, in a run that computes for as much, from which it is the one to look at."""

CAPPED = 0.5
"""Share of busy samples at the power cap from which the cap sets the speed."""

NEAR_ROOF = 0.5
"""Share of its roof that a good kernel reaches at least: AMD's measured matrix products on MI300X reach 654 of
1307 TFLOP/s in FP16."""


@dataclass(frozen=True)
class Cause:
    """One cause. part -- the part of the time that it lengthens: causes of one part are rivals.

    share   -- what it takes of the time (0 to 1); 0 where its rule is not met.
    needs_device -- whether it says nothing of a run without a GPU.
    finding -- the numbers that speak for it, or against it, with the analysis that they are from.
    advice  -- what to do or to record next. is_rest -- whether it is what remains once others are ruled out.
    """

    name: str
    title: str
    part: str
    share: Callable[[Signs], float]
    finding: Callable[[Signs], str]
    advice: str
    is_rest: bool = False
    needs_device: bool = True


def percent(share: float) -> str:
    """A share as a person reads it."""
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"


def _part(signs: Signs, *names: str) -> float:
    return sum(signs.shares.get(name, 0.0) for name in names)


def _one_by_one(signs: Signs) -> bool:
    return signs.per_step.get("copies_to_device", 0) >= MANY_COPIES


def _waits(signs: Signs) -> float:
    return _part(signs, "blocked_host") - _part(signs, "allocation")


def _copying(signs: Signs) -> float:
    """Exposed copies; where they come one by one also the time in which the host hands them over and waits for them."""
    return _part(signs, "exposed_copy") + (_part(signs, "data_wait") + _waits(signs) if _one_by_one(signs) else 0.0)


def _late_data(signs: Signs) -> float:
    return 0.0 if _one_by_one(signs) else _part(signs, "data_wait")


def _blocked(signs: Signs) -> float:
    return _part(signs, "stalled") + (0.0 if _one_by_one(signs) else _waits(signs))


def _memory(signs: Signs) -> float:
    return _part(signs, "allocation") if signs.per_step.get("allocations", 0) >= FEW_CALLS else 0.0


def _silence(signs: Signs) -> float:
    return _part(signs, "silent")


def _recompiling(signs: Signs) -> float:
    silence = _silence(signs)
    if _start_up(signs):
        return 0.0
    return (
        max(silence, signs.compiling) if signs.compiled and silence * signs.step_ns >= COMPILING_NS else signs.compiling
    )


def _silent_host(signs: Signs) -> float:
    return 0.0 if _recompiling(signs) >= LIMIT else _silence(signs)


def _start_up(signs: Signs) -> float:
    if signs.first_step is not None and signs.first_step >= SLOW_START:
        return (signs.first_step - 1) / (signs.first_step + signs.steps - 1)
    repeated = signs.marked and signs.steps < 2
    if signs.gap is None or repeated or signs.gap[1] < ONE_GAP or signs.gap[2] < ALONE:
        return 0.0
    return signs.gap[0] / (signs.step_ns * signs.steps)


def waiting(signs: Signs) -> float:
    """Share of their time that devices wait in collectives for the last rank; 0 where that can't be told."""
    table = signs.rank_table
    return 0.0 if table is None else float(table["wait_ns"].sum() / max(table["total_ns"].sum(), 1))


def _straggler(signs: Signs) -> float:
    """What the others wait for a rank, as far as it does more than they do."""
    table = signs.rank_table
    if table is None or table.attrs["straggler"] is None:
        return 0.0
    others = table[table["rank"] != table.attrs["straggler"]]
    return min(signs.excess[0], float(others["wait_ns"].sum() / max(others["total_ns"].sum(), 1)))


def _communication(signs: Signs) -> float:
    """Exposed communication without the waiting in it, as far as several ranks tell the two apart."""
    table, exposed = signs.rank_table, _part(signs, "exposed_communication")
    if table is None or not table["compared"].any():
        return exposed
    return exposed * float(table["transfer_ns"].sum() / max((table["transfer_ns"] + table["wait_ns"]).sum(), 1))


def rank_words(signs: Signs) -> str:
    """Who waits for whom, as far as the files tell."""
    table = signs.rank_table
    if table is None:
        return "one rank is here, which can't tell waiting for others from transfer (collectives)"
    if table.attrs["straggler"] is None:
        return f"ranks: {table.attrs['evidence']}"
    share, part = signs.excess
    more = f"{100 * share:.0f} % of its time more than the others" if share >= 0.01 else "no more time than the others"
    most = f", most of it {part.replace('_', ' ')}" if share >= 0.01 else ""
    return f"ranks: {table.attrs['evidence']} It spends {more} on work and waits of its own{most} (step_budget, gaps)"


def _one_kernel(signs: Signs) -> float:
    alone = signs.top_kernel and signs.top_kernel["percent"] / 100 >= ONE_KERNEL
    computing = _part(signs, "compute") if signs.shares else 1.0
    is_kernel = alone and signs.top_kernel["category"] != "collective"
    return computing * signs.top_kernel["percent"] / 100 if is_kernel and computing >= ONE_KERNEL else 0.0


def _kernel_words(signs: Signs) -> str:
    if not signs.top_kernel:
        return "no kernel is in the file (kernels)"
    top = signs.top_kernel
    text = f"{top['short_name']} has {top['percent']:.0f} % of all kernel time, in {top['calls']:,} calls (kernels)"
    if signs.roof_share is None:
        return f"{text}; how near to its roof it is, only counters tell"
    side = "near" if signs.roof_share >= NEAR_ROOF else "far from"
    return f"{text}; it is {side} its roof, {percent(signs.roof_share)} of it (roofline_points)"


def _gap_words(signs: Signs) -> str:
    found = []
    if signs.first_step is not None:
        found.append(f"the first step took {signs.first_step:.2f} times the others' median (steps)")
    if signs.gap is not None:
        longest, share, _, call = signs.gap
        during = f", with the host in {call}" if call else ""
        length = f"{four_digits(longest / 1e6)} ms"
        found.append(f"the longest idle interval, {length}, is {percent(share)} of all{during} (gaps)")
    return "; ".join(found) or "no idle interval outside of waiting for data (gaps)"


def _power_words(signs: Signs) -> str:
    if signs.capped_share is None:
        return "no log of the power and its cap is here"
    return f"{percent(signs.capped_share)} of the samples of busy devices are at the power cap (counters)"


def _capped(signs: Signs) -> float:
    return signs.capped_share if (signs.capped_share or 0) >= CAPPED else 0.0


def _replay(signs: Signs) -> float:
    return _part(signs, "compute") if signs.graph_share >= GRAPHS else 0.0


def _time(signs: Signs, *names: str) -> str:
    """`data wait: 12 % of the time`."""
    return ", ".join(f"{name.replace('_', ' ')} {percent(_part(signs, name))}" for name in names) + " of the time"


def _count(signs: Signs, name: str) -> str:
    return four_digits(signs.per_step.get(name, 0))


def _memory_words(signs: Signs) -> str:
    calls = f"calls that allocate or free: {_count(signs, 'allocations')} a step"
    return f"{calls}, device idle in them for {percent(_part(signs, 'allocation'))} of the time (blocked_calls)"


def _copy_words(signs: Signs) -> str:
    copies = f"copies to the device: {_count(signs, 'copies_to_device')} a step (events)"
    return f"{copies}; {_time(signs, 'exposed_copy', 'data_wait', 'blocked_host')} (step_budget)"


def _data_words(signs: Signs) -> str:
    text = f"{_time(signs, 'data_wait')} (step_budget)"
    if not signs.on_host:
        text += f", copies to the device: {_count(signs, 'copies_to_device')} a step"
    return f"{text}; {signs.loader}" if signs.loader else text


def _silence_words(signs: Signs) -> str:
    silence = _silence(signs)
    long = f"{percent(silence)} of the time, {four_digits(silence * signs.step_ns / 1e6)} ms a step"
    if signs.on_host:
        return f"neither loading nor in an operator: {long} (step_budget, events)"
    return f"idle while the host made no call for 1 ms or longer: {long} (gaps)"


def _compile_words(signs: Signs) -> str:
    ranges = f"ranges of the compiler {percent(signs.compiling)} of the time"
    if signs.on_host:
        return f"{ranges} (events)"
    return f"{_silence_words(signs)}; compiled kernels: {'yes' if signs.compiled else 'none'} (kernels); {ranges}"


def _blocked_words(signs: Signs) -> str:
    calls = f"calls that wait: {_count(signs, 'waiting_calls')} a step"
    most = f", most in {signs.call}" if signs.call else ""
    idle = f"idle in them {percent(_waits(signs))}, behind them {percent(_part(signs, 'stalled'))} of the time"
    return f"{calls}{most} (blocked_calls); {idle} (step_budget, gaps)"


def _communication_words(signs: Signs) -> str:
    text = f"{_time(signs, 'exposed_communication')} (step_budget)"
    if signs.rank_table is None:
        return f"{text}; {rank_words(signs)}"
    return f"{text}, {percent(_communication(signs))} without the waiting in it (ranks)"


def _graph_words(signs: Signs) -> str:
    share = f"graphs launched {percent(signs.graph_share)} of all device events (launches)"
    return f"{share}; {_time(signs, 'compute')} (step_budget)"


def _launching(signs: Signs) -> float:
    return _part(signs, "launch_bound") if signs.pace is None else signs.pace


def _launch_words(signs: Signs) -> str:
    idle = f"idle because nothing was launched, without another reason: {percent(_launching(signs))} of the time"
    whose = "" if signs.pace is None else " of the rank that waits least"
    return f"{idle}{whose} (step_budget, gaps); {_count(signs, 'kernels')} kernels a step"


CAUSES = (
    Cause(
        "memory-pressure", "memory is allocated and freed in each step", "idle", _memory, _memory_words,
        "Compare torch.cuda.memory_stats()['num_alloc_retries'] before and after ten steps. With a smaller batch the "
        "calls must vanish.",
    ),
    Cause(
        "exposed-copies", "copies to the device that nothing hides", "idle", _copying, _copy_words,
        "One copy a batch: pin_memory=True in the DataLoader, .to(device, non_blocking=True) on the whole batch.",
    ),
    Cause(
        "late-data", "the data come late", "idle", _late_data, _data_words,
        "Time the loader alone, without a model, with 0 and with more num_workers, on free cores. If workers help, "
        "keep them; if not, look into the data set's __getitem__: slow reading, or Python for each pixel.",
        needs_device=False,
    ),
    Cause(
        "recompiling", "the compiler compiles again in the steps", "idle", _recompiling, _compile_words,
        "TORCH_LOGS=recompiles python train.py",
        needs_device=False,
    ),
    Cause(
        "silent-host", "the host does something else than starting work", "idle", _silent_host, _silence_words,
        "Record call stacks, with_stack=True in torch.profiler, and look between the operators: logging, "
        "checkpoints, garbage collection, a lock.",
        needs_device=False,
    ),
    Cause(
        "blocked-host", "the host waits for the device, which then runs dry", "idle", _blocked, _blocked_words,
        "torch.cuda.set_sync_debug_mode('warn') names the lines that wait: .item(), .cpu(), a copy without "
        "non_blocking.",
    ),
    Cause(
        "start-up", "something that comes once is in the recording", "idle", _start_up, _gap_words,
        "Leave the first steps out, torch.profiler.schedule(wait=5, warmup=1, active=3), and record again.",
        needs_device=False,
    ),
    Cause(
        "straggler", "the ranks wait for one of them", "communication", _straggler, rank_words,
        "Run triage on the recording of that rank alone: what makes it late is there.",
    ),
    Cause(
        "exposed-communication", "communication that no computation hides", "communication", _communication,
        _communication_words,
        "Record every rank. If all enter together it is the network, if one enters last it is that rank.",
    ),
    Cause(
        "power-limit", "the power cap sets the speed", "device", _capped, _power_words, "amd-smi static --limit",
        is_rest=True,
    ),
    Cause(
        "graph-replay", "a graph is replayed: one launch, many kernels", "device", _replay, _graph_words,
        "Launches per kernel don't apply. Look at the kernels themselves: tidyprof kernels FILE",
        is_rest=True,
    ),
    Cause(
        "one-kernel", "one kernel dominates", "device", _one_kernel, _kernel_words,
        "rocprof-compute profile --name run -- python train.py",
        is_rest=True,
    ),
    Cause(
        "launch-bound", "the host launches slower than the device works", "idle",
        _launching, _launch_words,
        "Measure without a profiler first: it slows launches down. Then give each launch more work: a larger batch, "
        "torch.compile, a fused optimizer.",
        is_rest=True,
    ),
)  # fmt: skip
"""All causes; where shares are equal the earlier one counts."""
