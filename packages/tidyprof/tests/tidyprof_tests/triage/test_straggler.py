"""triage on ranks of which one is late: what it does more, and the command that shows it. Times in
ms.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import tidyprof
from tidyprof.cli.main import main
from tidyprof_tests.chrome_writer import HEADER, TraceEvent, call, kernel, operator, write_trace

MS = 1_000_000


def two_ranks(
    folder: Path,
    computing: tuple[float, float],
    sleeping: tuple[float, float],
    gpu: bool = False,
    in_turn: bool = False,
) -> Path:
    """Steps of 100 ms: a rank computes, sleeps, and is in a collective until the step ends for
    both. in_turn -- whether the ranks swap their parts with each step.
    """
    for rank in range(2):
        events = []
        for step in range(4):
            part = (rank + step * in_turn) % 2
            works, sleeps = round(computing[part] * MS), round(sleeping[part] * MS)
            begin = MS + step * 100 * MS
            enters = begin + works + sleeps
            events += [
                TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, 100 * MS),
                operator("aten::mm", begin, 5 * MS if gpu else works, step),
            ]
            if gpu:
                events += [
                    call("hipLaunchKernel", begin, 5_000, 10 + step),
                    kernel("gemm", begin + 10_000, works, 10 + step),
                    call("hipLaunchKernel", enters - 10_000, 5_000, 20 + step),
                    kernel(
                        "ncclDevKernel_Generic",
                        enters,
                        begin + 99 * MS - enters,
                        20 + step,
                        stream=4,
                    ),
                ]
            else:
                events.append(
                    TraceEvent(
                        "user_annotation", "gloo:all_reduce", enters, begin + 99 * MS - enters
                    )
                )
        known = {"distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2}}
        header = (HEADER if gpu else {"schemaVersion": 1, "deviceProperties": []}) | known
        write_trace(folder / f"trace_rank{rank}.json", events, header=header)
    return folder


@pytest.mark.parametrize("gpu", [False, True], ids=["processor", "GPU"])
@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_computes_longer_is_compared_with_one_that_waits(
    late: int, gpu: bool, tmp_path: Path, capsys
):
    folder = two_ranks(tmp_path, (80, 30) if late == 0 else (30, 80), (1, 1), gpu)
    files = [str(folder / f"trace_rank{rank}.json") for rank in (1 - late, late)]
    command = f"tidyprof compare {files[0]} {files[1]} --by operator"
    for given in ([str(folder)], files):
        assert main(["triage", *given]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith("straggler")
        assert command in shown
        assert "computes longer" in shown
    assert command in tidyprof.triage(tidyprof.read(folder)).next_step
    assert main(command.split()[1:]) == 0


def test_a_rank_that_is_silent_computes_no_longer_and_is_judged_alone(tmp_path: Path):
    folder = two_ranks(tmp_path, (30, 20), (50, 1))
    found = tidyprof.triage(tidyprof.read(folder))
    assert found.cause == "straggler"
    assert found.signs.excess.part == "silent"
    assert "computes longer" not in found.evidence[0]
    assert f"tidyprof triage {folder / 'trace_rank0.json'}" in found.next_step


def test_ranks_that_are_late_in_turn_are_no_stragglers(tmp_path: Path):
    folder = two_ranks(tmp_path, (80, 10), (1, 1), gpu=True, in_turn=True)
    found = tidyprof.triage(tidyprof.read(folder))
    assert found.cause == "inconclusive"
