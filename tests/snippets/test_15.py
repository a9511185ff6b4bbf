"""The snippet of lesson 15 in a program that is not the course's: dumps of ranks, one of which ends
early.
"""

from __future__ import annotations

import pickle
from pathlib import Path

from tests.snippets.conftest import Run

SCRIPT = "snippets/15_who_is_missing.py"
PROGRAM = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("who_is_missing", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
import torch, torch.distributed as dist

def rank(number, calls):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    stop = module.watch("dumps", number, every=0.01)
    for _ in range(calls):
        dist.all_reduce(torch.ones(3))
    stop()
    dist.destroy_process_group()

rank(int(sys.argv[2]), int(sys.argv[3]))
print(os.environ["TORCH_FR_BUFFER_SIZE"])
"""


def test_dumps_are_written_and_the_rank_behind_is_named(bare: Run, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    snippet = str(Path(__file__).parents[2] / SCRIPT)
    assert bare("python", "program.py", snippet, "0", "3").stdout == "2000\n"
    bare("python", "program.py", snippet, "3", "2")
    lines = bare("python", SCRIPT, "dumps").stdout.splitlines()
    assert lines[0].startswith("rank 0: call 3 of 3, gloo:all_reduce [[3]] ")
    assert lines[0].endswith("program.py:12")
    assert lines[2] == "rank 2: call 0 of 3, no dump: dead, or it wrote none   <-- behind"
    assert lines[3].startswith("rank 3: call 2 of 3, ")
    assert lines[3].endswith("<-- behind")
    assert [file.name for file in sorted((tmp_path / "dumps").iterdir())] == ["rank_0", "rank_3"]


class _Runs:
    def __reduce__(self) -> tuple:
        return open, ("ran", "w")


def test_a_dump_that_would_run_code_is_refused(bare: Run, tmp_path: Path) -> None:
    (tmp_path / "rank_0").write_bytes(pickle.dumps({"entries": [_Runs()]}))
    done = bare("python", SCRIPT, ".", check=False)
    assert "not PyTorch's" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_folder_without_dumps_says_so(bare: Run) -> None:
    done = bare("python", SCRIPT, ".", check=False)
    assert (done.returncode, done.stderr) == (1, ".: no dumps here\n")


def test_groups_and_pending_messages_are_told_apart(bare: Run, tmp_path: Path) -> None:
    def call(record: int, group: str, number: int, **other: object) -> dict[str, object]:
        frames = [
            {"filename": "/x/site-packages/lib/a.py", "line": 1},
            {"filename": "train.py", "line": 9},
        ]
        made = {
            "record_id": record,
            "process_group": (group, ""),
            "collective_seq_id": number,
            "frames": frames,
        }
        return (
            made
            | {"profiling_name": "nccl:all_reduce", "input_sizes": [], "is_p2p": False, "state": ""}
            | other
        )

    recv = call(2, "0", 1, is_p2p=True, profiling_name="nccl:recv 0<-1")
    for rank, entries in {
        0: [call(0, "0", 1), call(1, "1", 1), recv],
        1: [call(0, "0", 1)],
    }.items():
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps({"entries": entries}, 2))
    lines = bare("python", SCRIPT, ".").stdout.splitlines()
    assert lines[0] == "group 0:"
    assert lines[4] == "rank 0: call 1 of 1, nccl:all_reduce [] train.py:9"
    assert lines[-1] == "rank 0 waits in nccl:recv 0<-1 train.py:9"


def test_an_empty_dump_is_not_taken_for_none(bare: Run, tmp_path: Path) -> None:
    (tmp_path / "rank_0").write_bytes(b"")
    assert "rank_0: empty or cut off" in bare("python", SCRIPT, ".", check=False).stderr
