"""The snippet of lesson 11: exact counts on a processor, and on a GPU that is put in its place a
snapshot.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.snippets.conftest import Run

SNIPPET = REPOSITORY / "snippets/11_memory.py"
PARAMETERS = 4 * (512 * 2048 + 2048 + 2048 * 100 + 100)
SAVED = 4 * 256 * (512 + 2048 + 100) + 8 * 256 + 4

GPU = """
def answering(name, answer):
    def called(*arguments, **keywords):
        print("called", name)
        return answer
    return called

answers = {"reset_peak_memory_stats": None, "mem_get_info": (30, 100), "memory_allocated": 10, \
"memory_reserved": 40,
           "max_memory_allocated": 20, "memory_stats": {"num_alloc_retries": 2}}
for name, answer in answers.items():
    setattr(torch.cuda, name, lambda *arguments, answer=answer: answer)
for name, answer in {"_record_memory_history": None, "_snapshot": {"segments": []}}.items():
    setattr(torch.cuda.memory, name, answering(name, answer))
has_gpu, device = True, "cpu"
"""


def counts(text: str) -> dict[str, int]:
    found = re.findall(r"^(\w[\w ]*?) +([\d,]+) bytes", text, re.MULTILINE)
    return {name: int(value.replace(",", "")) for name, value in found}


def test_counts_on_a_processor_are_those_by_hand(bare: Run) -> None:
    text = bare(
        "python", "snippets/11_memory.py", CUDA_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES=""
    ).stdout
    found = counts(text)
    stages = [found.pop("when forward ends"), found.pop("in the update")]
    assert stages == [3 * PARAMETERS + 4 * 4 + SAVED, 4 * PARAMETERS + 4 * 4 + 2 * 4 * 512 * 2048]
    assert found.pop("the larger") == max(stages)
    assert found == {
        "parameters": PARAMETERS,
        "gradients": PARAMETERS,
        "optimizer states": 2 * PARAMETERS + 4 * 4,
        "saved for backward": SAVED,
    }
    assert "no GPU" in text


def test_on_a_gpu_it_writes_a_snapshot_also_when_memory_runs_out(bare: Run, tmp_path: Path) -> None:
    """The GPU is an object that notes what it is asked: the order and the file are what counts."""
    head, _, tail = SNIPPET.read_text(encoding="utf-8").partition(
        'device = "cuda" if has_gpu else "cpu"\n'
    )
    (tmp_path / "on_gpu.py").write_text(head + GPU + tail)
    text = bare("python", "on_gpu.py").stdout
    assert re.findall(r"called (\w+)", text) == [
        "_record_memory_history",
        "_snapshot",
        "_record_memory_history",
    ]
    found = counts(text)
    assert (found["allocated"], found["reserved"], found["used on the device"]) == (10, 40, 70)
    assert "retried allocations: 2" in text
    path = tmp_path / "snapshot.pickle"
    assert path.read_bytes()[:2] == b"\x80\x04"
    assert pickle.loads(path.read_bytes())["segments"] == []
    path.unlink()
    failing = (head + GPU + tail).replace(
        "        for _ in range(3):\n", "        raise MemoryError\n        for _ in range(3):\n"
    )
    (tmp_path / "out_of_memory.py").write_text(failing)
    assert bare("python", "out_of_memory.py", check=False).returncode == 1
    assert path.exists()
