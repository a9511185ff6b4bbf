"""What a recording can't tell, and the command of its tool that would record it."""

from __future__ import annotations

from collections.abc import Iterator

from tidyprof.diagnosis.causes import TRAINING, program
from tidyprof.diagnosis.signs import Signs

ROCPROFV3 = "rocprofv3 --runtime-trace --output-format csv --output-directory out -- python train.py"
TORCH = "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=schedule(...))"
MONITOR = "amd-smi monitor -p -t -u -m"
LIMITS = "amd-smi static --limit"
COUNTERS = "rocprof-compute profile --name run -- python train.py"

LISTING = "python -m tidyprof summary FILE lists the operators that take the time: fewer, larger or cheaper ones"
"""What to do where a processor computes all the time."""

RECORD_HOST = {"torch.profiler": TORCH, "rocmProfileData": "runTracer.sh -o trace.rpd python train.py"}
"""Tool -> how it records the host as well; for others rocprofv3. All hold for ROCm 6.4 to 10.2."""

COMMANDS = (ROCPROFV3, MONITOR, LIMITS, COUNTERS, RECORD_HOST["rocmProfileData"])
"""Those for a shell."""


def always_last(signs: Signs) -> int | None:
    """The rank that came last in every collective; None where ranks take turns or can't be compared."""
    table = signs.rank_table
    if table is None or table.attrs["straggler"] is None:
        return None
    worst = table[table["rank"] == table.attrs["straggler"]].iloc[0]
    return int(worst["rank"]) if worst["came_last"] == worst["compared"] else None


def missing(signs: Signs) -> tuple[tuple[str, ...], str]:
    """Sentences on what the files can't tell, most important first, and the command for the first of them."""
    host = RECORD_HOST.get(signs.tool, ROCPROFV3)
    found = [*_host(signs, host), *_steps(signs), *_ranks(signs, host)]
    if not signs.on_host:
        found += [*_device(signs, host)]
    own = program(signs)
    found = [(text, command.replace(TRAINING, own)) for text, command in found]
    return tuple(f"{text} ({command})" if command else text for text, command in found), found[0][1] if found else ""


Gaps = Iterator[tuple[str, str]]
"""What is not known, and the command that would record it."""


def _host(signs: Signs, host: str) -> Gaps:
    if signs.on_host:
        yield "no GPU took part: how one would do", ""
    elif not signs.shares:
        yield "no device events: no steps, no idle time", ROCPROFV3
    elif not signs.calls and not signs.operators:
        yield "no calls of the host: why the device was idle", host
    elif signs.unlinked >= 0.005:
        share = 100 * signs.unlinked
        yield f"no launch record for {share:.0f} % of the device's work: when it was asked for", host


def _steps(signs: Signs) -> Gaps:
    if signs.shares and not signs.marked:
        is_torch = signs.operators or signs.tool.startswith("torch")
        mark = "call prof.step()" if is_torch else "mark each with a range of roctx"
        text = f"no steps: whether something comes once or in each step; {mark}"
        for name, count in signs.offered[:1]:
            text += f", or give --mark '{name}', which comes {count:,} times"
        yield text, TORCH if signs.operators else ""
    elif signs.shares and signs.steps < 3:
        yield f"{signs.steps} of many steps: whether others are alike; record three or more", TORCH


def _ranks(signs: Signs, host: str) -> Gaps:
    if signs.world_size and signs.ranks < signs.world_size:
        yield f"{signs.ranks} of {signs.world_size} ranks: who waits for whom; record every rank", host
    if (last := always_last(signs)) is not None:
        where = "processor" if signs.on_host else "GPU"
        text = (
            f"whether rank {last} is slower, or began later once and stays behind: give it another {where}, and compare"
        )
        yield text, "" if signs.on_host else host


def _device(signs: Signs, host: str) -> Gaps:
    if signs.graph_share > 0:
        yield f"launches of the kernels in graphs ({100 * signs.graph_share:.0f} % of all)", host
    if signs.roof_share is None:
        what = "the counters that are here are not those of a roofline" if signs.counted else "no hardware counters"
        yield f"{what}: how near kernels are to their roofs", COUNTERS
    if signs.capped_share is None and signs.has_power:
        yield "no power cap beside the power of busy devices: whether clocks were held back", LIMITS
    elif signs.capped_share is None:
        yield "no log of power: whether clocks were held back", MONITOR
