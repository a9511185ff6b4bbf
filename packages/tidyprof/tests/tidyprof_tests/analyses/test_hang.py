"""Verdicts on hangs by dumps that gloo wrote (those of lesson 15 and two in this folder), by dumps
that a program writes here, and by synthetic ones.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidyprof
from tidyprof.analyses import hang as kinds
from tidyprof.cli.main import main
from tidyprof_tests.conftest import REPOSITORY
from tidyprof_tests.patience import PATIENCE_S

RECORDED = REPOSITORY / "lessons/15_hang/recorded"


def found(folder: Path) -> kinds.Hang:
    return tidyprof.find_missing_ranks(tidyprof.read_flight_recorder(folder))


def call(number: int, name: str = "gloo:all_reduce", line: int = 7, **other: Any) -> dict[str, Any]:
    """A call as a dump has it; `record` and `after_s` are the record's number and seconds after the
    first call.
    """
    frames = [
        {"name": "all_reduce", "filename": "/x/torch/distributed/distributed_c10d.py", "line": 1}
    ]
    frames.append({"name": "step", "filename": "train.py", "line": line})
    return {
        "frames": frames,
        "record_id": other.get("record", number - 1),
        "process_group": (other.get("group", "0"), "a group"),
        "collective_seq_id": number,
        "profiling_name": name,
        "input_sizes": [[other.get("size", 4)]],
        "input_dtypes": [other.get("dtype", "Float")],
        "time_created_ns": int(1e18 + other.get("after_s", 0) * 1e9),
        "timeout_ms": 3000,
        "state": other.get("state", "scheduled"),
        "retired": other.get("retired", True),
        "is_p2p": other.get("is_p2p", False),
    }


def write(
    folder: Path, dumps: dict[int, list[dict[str, Any]]], groups: dict[str, str] | None = None
) -> Path:
    """A folder with these calls of these ranks. groups -- name of a group -> its ranks, as PyTorch
    writes them.
    """
    folder.mkdir(exist_ok=True)
    groups = {"": str(sorted(dumps))} if groups is None else groups
    config = {name: {"name": name, "desc": "", "ranks": ranks} for name, ranks in groups.items()}
    for rank, calls in dumps.items():
        content = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": calls}
        (folder / f"trace_rank_{rank}").write_bytes(pickle.dumps(content, protocol=2))
    return folder


@pytest.mark.parametrize(
    ("kind", "verdict", "ranks", "words"),
    [
        ("late", kinds.LATE, (1,), ["collective 2 at hangs.py(22): late", "the timeout is 4 s"]),
        (
            "skipped",
            kinds.SKIPPED,
            (1,),
            ["at collective 2", "at hangs.py(28)", "ranks 0, 2 are at hangs.py(27)"],
        ),
        (
            "other_size",
            kinds.OTHER_SIZE,
            (1,),
            ["Rank 1 calls gloo:all_reduce", "6 elements (Float)"],
        ),
        (
            "other_order",
            kinds.OTHER_CALL,
            (1,),
            ["Ranks 0, 2 call gloo:broadcast", "Rank 1 calls gloo:all_reduce"],
        ),
        ("dead", kinds.NO_DUMP, (1,), ["Rank 1 left no dump", "collective 2"]),
        ("fixed", kinds.NOBODY, (), []),
        ("unknown", kinds.OTHER_CALL, (2,), ["Rank 2 calls gloo:barrier at train.py(33)"]),
    ],
)
def test_what_gloo_recorded(
    kind: str, verdict: str, ranks: tuple[int, ...], words: list[str]
) -> None:
    hang = found(RECORDED / kind)
    assert (hang.kind, hang.ranks) == (verdict, ranks)
    assert [word for word in words if word not in hang.sentence] == []


def test_a_rank_that_has_not_come_may_still_come(tmp_path: Path) -> None:
    hang = found(write(tmp_path, {0: [call(1), call(2, line=9)], 1: [call(1)]}))
    assert (hang.kind, hang.ranks) == (kinds.BEHIND, (1,))
    assert "number 1 at train.py(7): step" in hang.sentence
    assert "py-spy" in hang.sentence
    assert hang.table["number"].tolist() == [2, 1]


def test_of_two_ranks_that_differ_none_is_blamed(tmp_path: Path) -> None:
    hang = found(write(tmp_path, {0: [call(1, size=6)], 1: [call(1)]}))
    assert (hang.kind, hang.ranks) == (kinds.OTHER_SIZE, ())
    assert all(f"Rank {rank} calls" in hang.sentence for rank in (0, 1))


def test_sizes_may_differ_where_the_collective_allows_it(tmp_path: Path) -> None:
    one, other = (call(1, name="nccl:all_to_all", size=size) for size in (6, 4))
    assert found(write(tmp_path, {0: [one], 1: [other]})).kind == kinds.NOBODY


@pytest.mark.parametrize("late_s", [2.9, 3.1])
def test_late_is_what_comes_after_the_time_out(late_s: float, tmp_path: Path) -> None:
    kind = found(write(tmp_path, {0: [call(1)], 1: [call(1, after_s=late_s)]})).kind
    assert kind == (kinds.LATE if late_s > 3 else kinds.NOBODY)


@pytest.mark.parametrize(
    "first",
    [
        {0: [call(8, record=7)], 1: [call(3, record=2)]},
        {0: [call(8, record=7, line=9), call(9, record=8)], 1: [call(8, record=7)]},
        {0: [call(8, name="gloo:barrier", record=7)], 1: [call(8, record=7)]},
    ],
    ids=["nothing in common", "another line", "another call"],
)
def test_where_the_buffer_was_overwritten_it_can_not_tell(
    first: dict[int, list], tmp_path: Path
) -> None:
    hang = found(write(tmp_path, first))
    assert (hang.kind, hang.ranks) == (kinds.UNKNOWN, ())
    assert "TORCH_FR_BUFFER_SIZE" in hang.sentence


def test_what_was_kept_in_common_still_tells_who_is_behind(tmp_path: Path) -> None:
    calls = {0: [call(8, record=7), call(9, record=8)], 1: [call(8, record=7)]}
    assert found(write(tmp_path, calls)).kind == kinds.BEHIND


def test_who_is_inside_a_call_has_only_called_less_ahead(tmp_path: Path) -> None:
    """As RCCL's dumps are by PyTorch's sources: hosts call ahead, and call 2 is open on all GPUs,
    or on two.
    """
    done, inside = {"state": "completed"}, {"state": "started", "retired": False}
    ahead = [call(1, **done), call(2, **inside), call(3, state="scheduled", retired=False)]
    hang = found(write(tmp_path / "all", {0: ahead, 1: ahead[:2], 2: ahead}))
    assert (hang.kind, hang.ranks) == (kinds.NOBODY, ())
    assert "inside collective 2" in hang.sentence
    hang = found(write(tmp_path / "one", {0: ahead, 1: [call(1, **done)], 2: ahead[:2]}))
    assert (hang.kind, hang.ranks) == (kinds.BEHIND, (1,))


def test_dumps_without_calls_tell_nothing(tmp_path: Path) -> None:
    assert found(write(tmp_path, {0: [], 1: []}, groups={})).kind == kinds.UNKNOWN
    assert found(write(tmp_path, {0: [], 1: []})).kind == kinds.UNKNOWN


def test_a_rank_without_any_call_is_behind(tmp_path: Path) -> None:
    hang = found(write(tmp_path, {0: [call(1)], 1: []}))
    assert (hang.kind, hang.ranks) == (kinds.BEHIND, (1,))
    assert hang.table["number"].isna().tolist() == [False, True]


def test_the_group_with_a_finding_is_told_and_messages_of_gloo_are_left_out(tmp_path: Path) -> None:
    both = [call(1), call(2)]
    pair = [call(1, group="3", record=2), call(2, group="3", record=3)]
    lonely = call(5, is_p2p=True, record=4)
    calls = {0: [*both, *pair], 1: [*both, pair[0]], 2: [*both, lonely]}
    hang = found(write(tmp_path, calls, {"": "[0, 1, 2]", "3": "[0, 1]"}))
    assert (hang.kind, hang.ranks, hang.table["rank"].tolist()) == (kinds.BEHIND, (1,), [0, 1])


def hsdp(skips: int | None = None, sleeps: int | None = None) -> dict[int, list[dict[str, Any]]]:
    """Calls of eight ranks as gloo recorded them: shard groups 1, 2; replicate groups 3 to 6; the
    world.

    In step 2 of 4 `skips` leaves out the call of its replicate group, and `sleeps` comes no more.
    Who waits, stops.
    """
    plan = {
        rank: [
            (step, group, line)
            for step in range(4)
            for group, line in ((1 + rank // 4, 16), (3 + rank % 4, 18), (0, 19))
        ]
        for rank in range(8)
    }
    for rank in plan:
        if rank == skips:
            plan[rank].remove((2, 3 + rank % 4, 18))
        if rank == sleeps:
            plan[rank] = [step for step in plan[rank] if step[0] < 2]
    members = {
        group: [rank for rank in plan if group in (0, 1 + rank // 4, 3 + rank % 4)]
        for group in range(7)
    }
    made: dict[int, list[dict[str, Any]]] = {rank: [] for rank in plan}
    count = dict.fromkeys(((rank, group) for rank in plan for group in members), 0)
    moved = True
    while moved:
        moved = False
        for rank, steps in plan.items():
            at = len(made[rank])
            before = steps[at - 1][1] if at else None
            left = before is None or all(
                count[one, before] >= count[rank, before] for one in members[before]
            )
            if at < len(steps) and left:
                _, group, line = steps[at]
                count[rank, group] += 1
                made[rank].append(call(count[rank, group], group=str(group), line=line, record=at))
                moved = True
    return made


def test_of_three_groups_the_rank_that_left_a_call_out_is_named(tmp_path: Path) -> None:
    hang = found(write(tmp_path, hsdp(skips=5)))
    assert (hang.kind, hang.ranks) == (kinds.SKIPPED, (5,))
    missing, waiting = "collective 3 of group 4, gloo:all_reduce at train.py(18)", "rank 1 waits"
    left = "after gloo:all_reduce of group 2 at train.py(16)"
    assert hang.sentence.startswith("Rank 5")
    places = [hang.sentence.index(words) for words in (missing, waiting, left)]
    assert places == sorted(places)
    own = (
        "Rank 5 waits for rank 1 in collective 3 of group 0, gloo:all_reduce at train.py(19): step."
    )
    assert hang.sentence.endswith(own)
    assert hang.table["rank"].tolist() == [1, 5]


def test_of_three_groups_the_rank_that_waits_nowhere_is_named_and_not_who_waits_for_it(
    tmp_path: Path,
) -> None:
    hang = found(write(tmp_path, hsdp(sleeps=6)))
    assert (hang.kind, hang.ranks) == (kinds.BEHIND, (6,))


def test_of_three_groups_the_rank_without_a_dump_is_named(tmp_path: Path) -> None:
    dumps = hsdp(sleeps=6)
    del dumps[6]
    hang = found(write(tmp_path, dumps))
    assert (hang.kind, hang.ranks) == (kinds.NO_DUMP, (6,))


def test_groups_of_one_name_are_told_apart_by_their_ranks(tmp_path: Path) -> None:
    for first in (0, 2):
        pair = {
            first: [call(1, group="7"), call(2, group="7")],
            first + 1: [call(1, group="7")][: 2 - first // 2],
        }
        write(tmp_path, pair, {"7": f"[{first}, {first + 1}]"})
    write(tmp_path, {3: [call(1, group="7"), call(2, group="7")]}, {"7": "[2, 3]"})
    hang = found(tmp_path)
    assert (hang.kind, hang.ranks) == (kinds.BEHIND, (1,))


def message(name: str, rank_record: int = 1, **other: Any) -> dict[str, Any]:
    return call(
        1,
        name=name,
        is_p2p=True,
        record=rank_record,
        **({"state": "started", "retired": False} | other),
    )


DONE = call(1, name="nccl:all_reduce", state="completed")


def test_two_receives_wait_for_each_other(tmp_path: Path) -> None:
    hang = found(
        write(
            tmp_path, {0: [DONE, message("nccl:recv 0<-1")], 1: [DONE, message("nccl:recv 1<-0")]}
        )
    )
    assert (hang.kind, hang.ranks) == (kinds.CIRCLE, (0, 1))
    assert "rank 0 waits for rank 1 in nccl:recv 0<-1 at train.py(7)" in hang.sentence


@pytest.mark.parametrize(
    ("other", "ranks", "words"),
    [
        (
            [DONE],
            (1,),
            "its last call is nccl:all_reduce at train.py(7)",
        ),
        ([DONE, message("nccl:send 1->0")], (), "rank 1"),
        ([DONE, message("nccl:send 1->0", state="completed")], (), "rank 1"),
    ],
)
def test_a_pending_receive_names_both_ends(
    other: list, ranks: tuple[int, ...], words: str, tmp_path: Path
) -> None:
    hang = found(write(tmp_path, {0: [DONE, message("nccl:recv 0<-1")], 1: other}))
    assert (hang.kind, hang.ranks) == (kinds.MESSAGE, ranks)
    assert "Rank 0's nccl:recv 0<-1 at train.py(7)" in hang.sentence
    assert words in hang.sentence


def test_a_receive_from_anybody_is_pending_too(tmp_path: Path) -> None:
    hang = found(write(tmp_path, {0: [DONE, message("nccl:recv 0<-?")], 1: [DONE]}))
    assert (hang.kind, hang.ranks) == (kinds.MESSAGE, ())


def test_what_was_batched_has_the_state_of_its_batch(tmp_path: Path) -> None:
    batch = [
        message("nccl:send 0->1", state="scheduled"),
        message("nccl:coalesced", 2, state="completed"),
    ]
    assert found(write(tmp_path, {0: [DONE, *batch], 1: [DONE]})).kind == kinds.NOBODY


def test_behind_a_pipeline_the_stage_that_sends_nothing_is_named(tmp_path: Path) -> None:
    """Rank 2 waits for rank 1, that for rank 0, and rank 3 in a collective for all."""
    calls = {0: [DONE], 1: [DONE, message("nccl:recv 1<-0")], 2: [DONE, message("nccl:recv 2<-1")]}
    calls[3] = [DONE, call(2, name="nccl:all_reduce", state="started", retired=False)]
    assert found(write(tmp_path, calls)).ranks == (0,)


# The ages of the dumps


@pytest.mark.parametrize("job", ["aborted", "healthy"])
def test_an_older_dump_proves_nothing_about_its_rank(job: str) -> None:
    hang = found(Path(__file__).parent / "dumps_of_other_ages" / job)
    assert (hang.kind, hang.ranks) == (kinds.UNKNOWN, ())


def open_call(number: int, **other: Any) -> dict[str, Any]:
    return call(number, "nccl:all_reduce", **({"state": "started", "retired": False} | other))


def done(number: int, **other: Any) -> dict[str, Any]:
    return call(number, **({"name": "nccl:all_reduce", "state": "completed"} | other))


GLOO = {0: [call(1), call(2, after_s=1)], 1: [call(1)]}
NCCL = {0: [done(1), open_call(2, after_s=1)], 1: [done(1)]}
TIMED_OUT = {0: [done(1), open_call(2, after_s=1, retired=True)], 1: [done(1)]}
BEHIND, OPEN = (kinds.BEHIND, (1,)), (kinds.UNKNOWN, ())


@pytest.mark.parametrize(
    ("calls", "written_s", "verdict"),
    [
        (GLOO, {}, OPEN),
        (GLOO, {0: 4.01, 1: 3.5}, BEHIND),
        (GLOO, {0: 4.01, 1: 0.5}, OPEN),
        (GLOO, {0: 3.5, 1: 3.5}, OPEN),
        (GLOO, {0: 4000, 1: 4000}, OPEN),
        ({0: GLOO[0], 1: [call(1, after_s=1.05)]}, {}, OPEN),
        (NCCL, {}, BEHIND),
        (NCCL, {0: 4.1, 1: 4.1}, BEHIND),
        (NCCL, {0: 1.2, 1: 1.3}, OPEN),
        (NCCL, {0: 4.1, 1: 0.5}, OPEN),
        (TIMED_OUT, {0: 1.2, 1: 1.3}, BEHIND),
    ],
)
def test_a_rank_is_behind_if_its_dump_is_young_and_the_call_older_than_its_timeout(
    calls: dict[int, list], written_s: dict[int, float], verdict: tuple, tmp_path: Path
) -> None:
    write(tmp_path, calls)
    for rank, seconds in written_s.items():
        os.utime(tmp_path / f"trace_rank_{rank}", (1e9 + seconds,) * 2)
    hang = found(tmp_path)
    assert (hang.kind, hang.ranks) == verdict


@pytest.mark.parametrize(
    ("first", "verdict"),
    [([done(1), done(2), open_call(3)], OPEN), ([done(1), open_call(2)], BEHIND)],
)
def test_states_tell_without_times(first: list, verdict: tuple, tmp_path: Path) -> None:
    calls = {0: first, 1: [done(1)]}
    for one in [*calls[0], *calls[1]]:
        one.pop("time_created_ns", None)
    hang = found(write(tmp_path, calls))
    assert (hang.kind, hang.ranks) == verdict


def test_an_older_dump_does_not_hide_the_rank_that_is_behind(tmp_path: Path) -> None:
    calls = {0: [done(1)], 1: [done(1), done(2)], 2: [done(1), done(2), open_call(3)]}
    assert found(write(tmp_path, calls)).ranks == (1,)


def test_the_root_of_a_broadcast_finishes_alone(tmp_path: Path) -> None:
    calls = {0: [done(1), done(2, name="nccl:broadcast"), open_call(3)], 1: [done(1)]}
    assert found(write(tmp_path, calls)).ranks == (1,)


def test_a_timeout_that_ran_out_in_another_group_counts(tmp_path: Path) -> None:
    pair = call(1, group="3", record=1, after_s=1) | {"timeout_ms": 60_000}
    calls = {0: [call(1), pair], 1: [call(1)], 2: [call(1), call(2, after_s=1)]}
    write(tmp_path, calls, {"0": "[0, 1, 2]", "3": "[0, 1]"})
    for file in tmp_path.iterdir():
        os.utime(file, (1e9 + 4.1,) * 2)
    assert found(tmp_path).ranks == (1,)


@pytest.mark.parametrize("older", [0, 1])
def test_a_step_of_one_rank_alone_is_named_even_by_older_dumps(older: int, tmp_path: Path) -> None:
    """In step 4, rank 1 leaves out the call at line 8. Only one dump shows the end."""
    lines = {0: [7, 8] * 6, 1: [7, 8, 7, 8, 7, 8, 7, 7, 8, 7, 8, 7]}
    calls = {
        rank: [call(number, line=line, after_s=number) for number, line in enumerate(made, 1)]
        for rank, made in lines.items()
    }
    calls[older] = calls[older][:10]
    hang = found(write(tmp_path, calls))
    assert (hang.kind, hang.ranks) == (kinds.SKIPPED, (1,))


@pytest.mark.parametrize("older", [0, 1, 2])
def test_lines_of_one_rank_alone_are_no_other_path(older: int, tmp_path: Path) -> None:
    calls = {
        rank: [call(1)]
        + [call(number, line=8 + (rank == 0), after_s=number) for number in range(2, 8)]
        for rank in range(3)
    }
    del calls[older][-1]
    assert found(write(tmp_path, calls)).kind == kinds.UNKNOWN


def test_an_older_dump_does_not_show_that_a_message_has_no_answer(tmp_path: Path) -> None:
    calls = {0: [DONE, done(2), message("nccl:recv 0<-1", 2)], 1: [DONE]}
    assert found(write(tmp_path, calls)).kind == kinds.UNKNOWN


# Dumps that can't be read, other formats, gaps


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda file: file.write_bytes(b""), "empty"),
        (lambda file: file.write_bytes(bytes(600)), "zeros"),
        (lambda file: file.write_text("no dump"), "not as PyTorch writes it"),
        (os.mkfifo, "a pipe"),
        (lambda file: file.symlink_to("nowhere"), "a broken link"),
        (lambda file: file.symlink_to(file.name), "a broken link"),
        (lambda file: file.mkdir(), "a folder"),
    ],
)
def test_a_dump_that_cannot_be_read_is_told_from_none(make, words: str, tmp_path: Path) -> None:
    folder = write(tmp_path, {1: [call(1)]}, {"0": "[0, 1]"})
    make(folder / "trace_rank_0")
    hang = found(folder)
    assert (hang.kind, hang.ranks) == (kinds.UNKNOWN, ())
    assert f"trace_rank_0, {words}" in hang.sentence


def test_dumps_in_json_are_read(tmp_path: Path) -> None:
    config = {"0": {"name": "0", "desc": "", "ranks": "[0, 1]"}}
    for rank in (0, 1):
        content = {
            "comm_lib_version": "",
            "entries": [call(1), call(2)][: 2 - rank],
            "pg_config": config,
        }
        (tmp_path / f"node7_rank_{rank}.json").write_text(json.dumps(content))
    (tmp_path / "trace_rank_1.json").write_text('{"traceEvents": [], "entries": []}')
    assert found(tmp_path).ranks == (1,)


def test_a_gap_of_one_rank_is_no_verdict(tmp_path: Path) -> None:
    hang = found(write(tmp_path, {0: [call(1), call(2), call(3)], 1: [call(1), call(3)]}))
    assert hang.kind == kinds.UNKNOWN
    assert "Rank 1" in hang.sentence
    assert "collective 2" in hang.sentence
    assert "TORCH_FR_BUFFER_SIZE" in hang.sentence


def test_the_line_is_the_callers_and_not_a_librarys(tmp_path: Path) -> None:
    calls = {0: [call(1), call(2)], 1: [call(1)]}
    for one in [*calls[0], *calls[1]]:
        helper = {
            "name": "sync",
            "filename": "/x/lib/python3.11/site-packages/helper/sync.py",
            "line": 3,
        }
        one["frames"].insert(1, helper)
    assert set(found(write(tmp_path, calls)).table["line"]) == {"train.py(7): step"}


# The reader and the command


def test_the_command_shows_and_writes_it(tmp_path: Path, capsys) -> None:
    assert main(["hang", str(RECORDED / "dead"), "--json", str(tmp_path / "out.json")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Rank 1 left no dump")
    report = json.loads((tmp_path / "out.json").read_text())
    assert (report["verdict"], report["ranks"]) == (kinds.NO_DUMP, [1])
    assert [row["dump"] for row in report["last_calls"]] == ["rank_0", None, "rank_2"]


@pytest.mark.long
def test_what_torch_writes_today_is_read(tmp_path: Path) -> None:
    program = [sys.executable, REPOSITORY / "lessons/15_hang/hangs.py", tmp_path]
    snippet = REPOSITORY / "snippets/15_find_missing_ranks.py"
    write(tmp_path / "fixed", {0: [call(99)], 1: [], 2: []})  # an earlier run's
    subprocess.run([*program, snippet, "dead", "fixed"], check=True, timeout=PATIENCE_S)
    assert found(tmp_path / "fixed").kind == kinds.NOBODY
    hang = found(tmp_path / "dead")
    # The watcher may have written before the rank ended.
    assert (hang.kind, hang.ranks) in [(kinds.NO_DUMP, (1,)), (kinds.UNKNOWN, ())]


class _Runs:
    def __reduce__(self) -> tuple:
        return os.mkdir, ("ran",)


CODE = pickle.dumps({"entries": [_Runs()], "pg_config": {}}, protocol=2)


@pytest.mark.parametrize("content", [CODE, CODE[:40], pickle.dumps([1], 2), b'{"entries": [1'])
def test_a_dump_of_something_else_is_refused_and_runs_nothing(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write(tmp_path / "dumps", {0: [call(1)]})
    (folder / "rank_1").write_bytes(content)
    assert main(["hang", str(folder)]) == 2
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    "changes",
    [{"input_sizes": sizes} for sizes in ([4], None, 5, [[2**61] * 9], [[1] * 65])]
    + [{"process_group": "0"}, {"collective_seq_id": "1"}, {"input_dtypes": [5]}],
)
def test_a_call_with_members_of_another_kind_is_refused(
    changes: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, {0: [call(1)], 1: [call(1) | changes]})
    assert main(["hang", str(folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_dumps_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    for rank in (5, 6):
        write(tmp_path / "groups", {rank: []}, {"4": f"[{rank}, 9]"})
    folder = write(tmp_path / "twice", {0: [call(1)]})
    (dump,) = folder.iterdir()
    (folder / "other_0").write_bytes(dump.read_bytes())
    for name in ("groups", "twice", "nothing"):
        assert main(["hang", str(tmp_path / name)]) == 2
