"""Verdicts on hangs by dumps that gloo wrote (those of lesson 15 and two in this folder), by dumps
that a program writes here, and by synthetic ones.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tidyprof
from tidyprof.analyses import hang as kinds
from tidyprof.cli.main import main
from tidyprof_tests.conftest import HOUSE, of_the_course
from tidyprof_tests.patience import PATIENCE_S

RECORDED, CASES = tomllib.loads((Path(__file__).parent / "hangs.toml").read_text("utf-8")).values()


CALLED = "time_created_ns"


def found(folder: Path) -> kinds.Hang:
    return tidyprof.find_missing_ranks(tidyprof.read_flight_recorder(folder))


def call(text: str) -> dict[str, Any]:
    """A call as a dump has it, from its text in hangs.toml."""
    number, *words = text.split()
    given = dict(word.partition("=")[::2] for word in words)
    frames = [
        {"name": "all_reduce", "filename": "/x/torch/distributed/distributed_c10d.py", "line": 1},
        {"name": "step", "filename": "train.py", "line": int(given.get("line", 7))},
    ]
    made = {
        "frames": frames,
        "record_id": int(given.get("record", int(number) - 1)),
        "process_group": (given.get("group", "0"), "a group"),
        "collective_seq_id": int(number),
        "profiling_name": given.get("name", "gloo:all_reduce").replace("~", " "),
        "input_sizes": [[int(given.get("size", 4))]],
        "input_dtypes": ["Float"],
        "timeout_ms": int(given.get("timeout_ms", 3000)),
        "state": given.get("state", "scheduled"),
        "retired": "open" not in given,
        "is_p2p": "message" in given,
    }
    after_s = given.get("after_s", "0")
    if after_s != "unknown":
        made[CALLED] = int(1e18 + float(after_s) * 1e9)
    return made


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


@pytest.mark.parametrize("case", CASES, ids=[case["what"] for case in CASES])
def test_verdict(case: dict[str, Any], tmp_path: Path) -> None:
    dumps = {
        int(rank): [call(text) for text in calls.split(";") if text]
        for rank, calls in case["dumps"].items()
    }
    write(tmp_path, dumps, case.get("groups"))
    called = [one[CALLED] for of in dumps.values() for one in of if CALLED in one]
    at_timeout = {rank: max(called, default=0) / 1e9 - 1e9 + 3.05 for rank in dumps}
    for rank, seconds in (at_timeout | case.get("written_s", {})).items():
        os.utime(tmp_path / f"trace_rank_{rank}", (1e9 + seconds,) * 2)
    hang = found(tmp_path)
    assert (hang.kind, [*hang.ranks]) == (case["kind"], case["ranks"])
    assert [word for word in case.get("words", []) if word not in hang.sentence] == []


@pytest.mark.parametrize("case", RECORDED, ids=[case["folder"] for case in RECORDED])
def test_what_gloo_recorded(case: dict[str, Any]) -> None:
    folder = case["folder"]
    hang = found(HOUSE / folder if folder.startswith("tests/") else of_the_course(folder))
    assert (hang.kind, [*hang.ranks]) == (case["kind"], case["ranks"])
    assert [word for word in case["words"] if word not in hang.sentence] == []


def test_a_message_has_the_number_of_its_messages(tmp_path: Path) -> None:
    """PyTorch counts messages apart from collectives."""
    message = call("5 name=nccl:send~0->1 message") | {"p2p_seq_id": 2}
    write(tmp_path, {0: [call("5"), message], 1: []})
    assert tidyprof.read_flight_recorder(tmp_path)["number"].tolist() == [5, 2]


def test_groups_of_one_name_are_told_apart_by_their_ranks(tmp_path: Path) -> None:
    for first in (0, 2):
        pair = {
            first: [call("1 group=7 state=completed"), call("2 group=7 state=started open")],
            first + 1: [call("1 group=7 state=completed")],
        }
        write(tmp_path, pair, {"7": f"[{first}, {first + 1}]"})
    write(tmp_path, {3: pair[2]}, {"7": "[2, 3]"})
    hang = found(tmp_path)
    assert (hang.kind, hang.ranks) == (kinds.BEHIND, (1,))


# Dumps that can't be read, other formats, gaps


@pytest.mark.parametrize(
    "make",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(bytes(600)),
        lambda file: file.write_text("no dump"),
        os.mkfifo,
        lambda file: file.symlink_to("nowhere"),
        lambda file: file.symlink_to(file.name),
        lambda file: file.mkdir(),
    ],
)
def test_a_dump_that_cannot_be_read_is_told_from_none(make, tmp_path: Path) -> None:
    folder = write(tmp_path, {1: [call("1")]}, {"0": "[0, 1]"})
    make(folder / "trace_rank_0")
    hang = found(folder)
    assert (hang.kind, hang.ranks) == (kinds.UNKNOWN, ())
    assert "trace_rank_0" in hang.sentence


def test_dumps_in_json_are_read(tmp_path: Path) -> None:
    config = {"0": {"name": "0", "desc": "", "ranks": "[0, 1]"}}
    for rank in (0, 1):
        content = {
            "comm_lib_version": "",
            "entries": [call("1 state=completed"), call("2 state=started open")][: 2 - rank],
            "pg_config": config,
        }
        (tmp_path / f"node7_rank_{rank}.json").write_text(json.dumps(content))
    (tmp_path / "trace_rank_1.json").write_text('{"traceEvents": [], "entries": []}')
    assert found(tmp_path).ranks == (1,)


def test_the_line_is_the_callers_and_not_a_librarys(tmp_path: Path) -> None:
    calls = {0: [call("1"), call("2")], 1: [call("1")]}
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
    assert (
        main(
            [
                "hang",
                str(of_the_course("lessons/15_hang/recorded/dead")),
                "--json",
                str(tmp_path / "out.json"),
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert shown.startswith("Rank 1 left no dump")
    report = json.loads((tmp_path / "out.json").read_text())
    assert (report["verdict"], report["ranks"]) == (kinds.NO_DUMP, [1])
    rows = [(row["dump"], row["number"]) for row in report["last_calls"]]
    assert rows == [("rank_0", 2), (None, None), ("rank_2", 2)]


@pytest.mark.long
def test_what_torch_writes_today_is_read(tmp_path: Path) -> None:
    program = [sys.executable, of_the_course("lessons/15_hang/hangs.py"), tmp_path]
    snippet = of_the_course("snippets/15_find_missing_ranks.py")
    write(tmp_path / "fixed", {0: [call("99")], 1: [], 2: []})  # an earlier run's
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
    folder = write(tmp_path / "dumps", {0: [call("1")]})
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
    folder = write(tmp_path, {0: [call("1")], 1: [call("1") | changes]})
    assert main(["hang", str(folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_dumps_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    for rank in (5, 6):
        write(tmp_path / "groups", {rank: []}, {"4": f"[{rank}, 9]"})
    folder = write(tmp_path / "twice", {0: [call("1")]})
    (dump,) = folder.iterdir()
    (folder / "other_0").write_bytes(dump.read_bytes())
    for name in ("groups", "twice", "nothing"):
        assert main(["hang", str(tmp_path / name)]) == 2
