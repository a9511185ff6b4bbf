"""The snippets of lesson 09 around programs that are not the course's; no fault is caused."""

from __future__ import annotations

from pathlib import Path

from tests.snippets.conftest import Run

SCRIPT = "snippets/09_debug_a_fault.sh"
SHOW = "import os, sys; print({name: value for name, value in os.environ.items()}); sys.exit(3)"

GUARD = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("guard_labels", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)

def complaint(work):
    try:
        work()
    except ValueError as error:
        return str(error)

good, bad = torch.tensor([0, 99]), torch.tensor([[5, 100], [-1, 7]])
batches = [("images", good), ("images", bad)]
print(complaint(lambda: module.guard(good, 100)))
print(complaint(lambda: module.guard(bad, 100)))
print(complaint(lambda: module.guard(good.int(), 100)))
print(complaint(lambda: module.guard(torch.tensor([3, -100]), 100, ignored=-100)))
print(complaint(lambda: list(module.guarded(batches, 100))))
model = torch.nn.Sequential(torch.nn.Embedding(10, 4))
off = module.guard_embeddings(model)
print(complaint(lambda: model(torch.tensor([10]))))
off()
print(complaint(lambda: model(torch.tensor([9]))))
torch.save(bad, "labels.pt")
torch.save(good, "good.pt")
"""


def test_a_program_runs_with_the_settings_and_keeps_its_exit_code(
    bare: Run, tmp_path: Path
) -> None:
    agent = tmp_path / "agent.so"
    agent.touch()
    done = bare(
        "bash",
        SCRIPT,
        "python",
        "-c",
        SHOW,
        check=False,
        DEBUG_AGENT_LIB=str(agent),
        RANK="2",
        WAVES="--all",
    )
    assert (done.returncode, done.stdout) == (3, "rank 2 ended with 3; see fault/rank2\n")
    seen = (tmp_path / "fault/rank2/out.txt").read_text()
    for setting in (
        "'AMD_SERIALIZE_KERNEL': '3'",
        "'PYTORCH_NO_HIP_MEMORY_CACHING': '1'",
        f"'HSA_TOOLS_LIB': '{agent}'",
    ):
        assert setting in seen
    assert "'--all --output=fault/rank2/agent.txt --save-code-objects=fault/rank2/objects'" in seen
    assert "AMD_LOG_LEVEL" not in seen
    assert (tmp_path / "fault/rank2/objects").is_dir()


def test_the_file_of_the_faulting_kernel_is_named(bare: Run, tmp_path: Path) -> None:
    (tmp_path / "fault/rank0").mkdir(parents=True)
    line = "    code object: memory://4711#offset=0x7a8a3c000000&size=8192\n"
    (tmp_path / "fault/rank0/agent.txt").write_text(2 * line)
    shown = bare("bash", SCRIPT, "true").stdout.splitlines()
    name = "memory___4711_offset_0x7a8a3c000000_size_8192"
    assert shown[1:] == [f"fault/rank0/objects/{name}"]


def test_the_guard_names_the_first_bad_label(bare: Run, tmp_path: Path) -> None:
    (tmp_path / "try_guard.py").write_text(GUARD)
    snippet = Path(__file__).parents[2] / "snippets/09_guard_labels.py"
    lines = bare("python", "try_guard.py", str(snippet)).stdout.splitlines()
    assert lines[0] == "None"
    assert lines[1].startswith("2 of 4 labels are outside 0 to 99")
    assert "100 at (0, 1)" in lines[1]
    assert lines[2].startswith("labels are torch.int32")
    assert lines[3] == "None"
    assert lines[4].startswith("2 of 4 batch 1: labels")
    assert lines[5].startswith("1 of 1 0: rows are outside 0 to 9")
    assert "10 at 0" in lines[5]
    assert lines[6] == "None"
    done = bare("python", "snippets/09_guard_labels.py", "labels.pt", "100", check=False)
    assert (done.returncode, done.stderr.startswith("labels.pt: 2 of 4")) == (1, True)
    assert (
        bare("python", "snippets/09_guard_labels.py", "good.pt", "100").stdout
        == "good.pt: all 2 are in range\n"
    )
