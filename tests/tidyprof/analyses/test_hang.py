"""Who is missing, by dumps that gloo wrote (those of lesson 15), by one that is written here, and by made-up ones."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidyprof
from tests.conftest import REPOSITORY
from tests.patience import PATIENCE_S
from tidyprof.analyses import hang as kinds
from tidyprof.cli.main import main

RECORDED = REPOSITORY / "lessons/15_hang/recorded"


def found(folder: Path) -> kinds.Hang:
    return tidyprof.who_is_missing(tidyprof.read_flight_recorder(folder))


def call(number: int, name: str = "gloo:all_reduce", line: int = 7, **other: Any) -> dict[str, Any]:
    """A call as a dump has it; `record` and `after_s` are the record's number and seconds after the first call."""
    frames = [{"name": "all_reduce", "filename": "/x/torch/distributed/distributed_c10d.py", "line": 1}]
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


def write(folder: Path, dumps: dict[int, list[dict[str, Any]]], groups: dict[str, str] | None = None) -> Path:
    """A folder with these calls of these ranks. groups -- name of a group -> its ranks, as PyTorch writes them."""
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
        ("late", kinds.LATE, (1,), ["collective 2 at hangs.py(22): late", "the time-out is 4 s"]),
        ("skipped", kinds.SKIPPED, (1,), ["at collective 2: at hangs.py(28)", "Ranks 0, 2 are at hangs.py(27)"]),
        ("other_size", kinds.OTHER_SIZE, (1,), ["Rank 1 calls gloo:all_reduce of 6 elements (Float)"]),
        ("other_order", kinds.OTHER_CALL, (1,), ["Ranks 0, 2 call gloo:broadcast", "Rank 1 calls gloo:all_reduce"]),
        ("dead", kinds.NO_DUMP, (1,), ["Rank 1 left no dump", "Ranks 0, 2 wait in collective 2"]),
        ("cured", kinds.NOBODY, (), ["all ranks made the same calls"]),
        ("unknown", kinds.OTHER_CALL, (2,), ["Rank 2 calls gloo:barrier at train.py(33)"]),
    ],
)
def test_what_gloo_recorded(kind: str, verdict: str, ranks: tuple[int, ...], words: list[str]) -> None:
    hang = found(RECORDED / kind)
    assert (hang.kind, hang.ranks) == (verdict, ranks)
    assert [word for word in words if word not in hang.sentence] == []


def test_a_rank_that_has_not_come_may_still_come(tmp_path: Path) -> None:
    hang = found(write(tmp_path, {0: [call(1), call(2, line=9)], 1: [call(1)]}))
    assert (hang.kind, hang.ranks) == (kinds.BEHIND, (1,))
    assert "with last call number 1 at train.py(7): step" in hang.sentence
    assert "late, stuck or dead" in hang.sentence
    assert hang.table["number"].tolist() == [2, 1]


def test_the_sentence_has_the_name_of_a_file_and_the_table_its_path(tmp_path: Path) -> None:
    calls = {0: [call(1), call(2)], 1: [call(1)]}
    for one in [*calls[0], *calls[1]]:
        one["frames"][1]["filename"] = "/home/somebody/train.py"
    hang = found(write(tmp_path, calls))
    assert "at train.py(7): step" in hang.sentence
    assert set(hang.table["line"]) == {"/home/somebody/train.py(7): step"}


def test_of_two_ranks_that_differ_none_is_blamed(tmp_path: Path) -> None:
    hang = found(write(tmp_path, {0: [call(1, size=6)], 1: [call(1)]}))
    assert (hang.kind, hang.ranks) == (kinds.OTHER_SIZE, ())
    assert "can't say who is wrong" in hang.sentence


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
def test_where_the_buffer_was_overwritten_it_can_not_tell(first: dict[int, list], tmp_path: Path) -> None:
    hang = found(write(tmp_path, first))
    assert (hang.kind, hang.ranks) == (kinds.UNKNOWN, ())
    assert hang.sentence.startswith("Can't tell")
    assert "TORCH_FR_BUFFER_SIZE" in hang.sentence


def test_what_was_kept_in_common_still_tells_who_is_behind(tmp_path: Path) -> None:
    calls = {0: [call(8, record=7), call(9, record=8)], 1: [call(8, record=7)]}
    assert found(write(tmp_path, calls)).kind == kinds.BEHIND


def test_who_is_inside_a_call_has_only_called_less_ahead(tmp_path: Path) -> None:
    """As RCCL's dumps are by PyTorch's sources: hosts call ahead, and call 2 is open on all GPUs, or on two."""
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
    assert "no call at all" in hang.sentence


def test_the_group_with_a_finding_is_told_and_messages_between_two_are_left_out(tmp_path: Path) -> None:
    both = [call(1), call(2)]
    pair = [call(1, group="3", record=2), call(2, group="3", record=3)]
    lonely = call(5, is_p2p=True, record=4)
    calls = {0: [*both, *pair], 1: [*both, pair[0]], 2: [*both, lonely]}
    hang = found(write(tmp_path, calls, {"": "[0, 1, 2]", "3": "[0, 1]"}))
    assert (hang.kind, hang.ranks, hang.table["rank"].tolist()) == (kinds.BEHIND, (1,), [0, 1])


# The reader and the command


def test_the_command_shows_and_writes_it(tmp_path: Path, capsys) -> None:
    assert main(["hang", str(RECORDED / "dead"), "--json", str(tmp_path / "out.json")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Rank 1 left no dump")
    report = json.loads((tmp_path / "out.json").read_text())
    assert (report["verdict"], report["ranks"]) == (kinds.NO_DUMP, [1])
    assert [row["dump"] for row in report["last_calls"]] == ["rank_0", None, "rank_2"]


class _Runs:
    def __reduce__(self) -> tuple:
        return os.mkdir, ("ran",)


def hostile(folder: Path) -> None:
    (folder / "rank_1").write_bytes(pickle.dumps({"entries": [_Runs()], "pg_config": {}}, protocol=2))


def cut(folder: Path) -> None:
    (folder / "rank_1").write_bytes((folder / "rank_0").read_bytes()[:900])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (hostile, "an instruction that plain data don't need"),
        (cut, "a pickle without an end"),
        (lambda folder: shutil.copy(folder / "rank_0", folder / "other_0"), "are both of rank 0"),
        (lambda folder: [file.unlink() for file in folder.glob("rank_*")], "no dump of PyTorch's flight recorder"),
        (lambda folder: (folder / "rank_1").write_bytes(pickle.dumps([1], 2)), "its top level is not as it writes"),
        (lambda folder: write(folder, {1: [call(1) | {"input_sizes": [4]}]}), "input_sizes is not"),
        (lambda folder: write(folder, {1: [call(1) | {"process_group": "0"}]}), "process_group is not"),
        (lambda folder: write(folder, {1: [call(1) | {"collective_seq_id": "1"}]}), "collective_seq_id is not"),
        (shutil.rmtree, "no such file"),
    ],
    ids=lambda value: None if isinstance(value, str) else getattr(value, "__name__", None),
)
def test_what_is_no_folder_of_dumps_is_one_line_and_runs_nothing(damage, words, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(RECORDED / "skipped", tmp_path / "dumps"))
    if words.endswith(" is not"):
        (folder / "rank_1").unlink()
    damage(folder)
    assert main(["hang", "dumps"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not Path("ran").exists()


def test_one_dump_is_not_enough(capsys) -> None:
    assert main(["hang", str(RECORDED / "dead" / "rank_0")]) == 2
    assert "give the folder with the dumps of all ranks" in capsys.readouterr().err


@pytest.mark.long
def test_what_torch_writes_today_is_read(tmp_path: Path) -> None:
    program = [sys.executable, REPOSITORY / "lessons/15_hang/hangs.py", tmp_path]
    snippet = REPOSITORY / "snippets/15_who_is_missing.py"
    write(tmp_path / "cured", {0: [call(99)], 1: [], 2: []})  # an earlier run's
    subprocess.run([*program, snippet, "dead", "cured"], check=True, timeout=PATIENCE_S)
    assert found(tmp_path / "cured").kind == kinds.NOBODY
    hang = found(tmp_path / "dead")
    assert hang.ranks == (1,)
    assert hang.kind in (kinds.NO_DUMP, kinds.BEHIND)  # the watcher may have written before the rank ended
