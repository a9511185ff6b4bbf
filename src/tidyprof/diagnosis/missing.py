"""What a recording can't tell, and the command of its tool that would record it."""

from __future__ import annotations

from tidyprof.diagnosis.signs import Signs

ROCPROFV3 = "rocprofv3 --runtime-trace --output-format csv --output-directory out -- python train.py"
TORCH = "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=schedule(...))"
MONITOR = "amd-smi monitor -p -t -u -m"
COUNTERS = "rocprof-compute profile --name run -- python train.py"

LISTING = "python -m tidyprof summary FILE lists the operators that take the time: fewer, larger or cheaper ones"
"""What to do where a processor computes all the time."""

RECORD_HOST = {"torch.profiler": TORCH, "rocmProfileData": "runTracer.sh -o trace.rpd python train.py"}
"""Tool -> how it records the host as well; for others rocprofv3. All hold for ROCm 6.4 to 10.2."""

COMMANDS = (ROCPROFV3, MONITOR, COUNTERS, RECORD_HOST["rocmProfileData"])
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
    found = []
    if signs.on_host:
        found.append(("no GPU took part: how one would do", ""))
    elif not signs.shares:
        found.append(("no device events: no steps, no idle time", ROCPROFV3))
    elif not signs.host_events:
        found.append(("no calls of the host: why the device was idle", host))
    elif signs.unlinked:
        share = 100 * signs.unlinked
        found.append((f"no launch record for {share:.0f} % of the device's work: when it was asked for", host))
    if signs.shares and not signs.marked:
        found.append(
            ("no steps: whether something comes once or in each step; call prof.step(), or give --mark", TORCH)
        )
    elif signs.shares and signs.steps < 3:
        found.append((f"{signs.steps} of many steps: whether others are alike; record three or more", TORCH))
    if signs.world_size and signs.ranks < signs.world_size:
        text = f"{signs.ranks} of {signs.world_size} ranks: who waits for whom; record every rank"
        found.append((text, host))
    if (last := always_last(signs)) is not None:
        text = f"whether rank {last} is slower, or began later once and stays behind: give it another GPU, and compare"
        found.append((text, host))
    if signs.graph_share > 0:
        found.append((f"launches of the kernels in graphs ({100 * signs.graph_share:.0f} % of all)", host))
    if signs.roof_share is None and not signs.on_host:
        found.append(("no counters: how near kernels are to their roofs", COUNTERS))
    if signs.capped_share is None and not signs.on_host:
        found.append(("no log of power and its cap: whether clocks were held back", MONITOR))
    return tuple(f"{text} ({command})" if command else text for text, command in found), found[0][1] if found else ""
