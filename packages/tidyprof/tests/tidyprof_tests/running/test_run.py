"""`tidyprof run` as somebody types it: programs stay as they are, and what they are limited by is
told.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidyprof_tests.patience import PATIENCE_S
from tidyprof_tests.running.programs import BY_HAND, HEAD, TRAINING, Ended, plain, watched, write

PYTHON = sys.executable


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Ended, Path]:
    """The training as it is, and with the command in front of it; and where it ran."""
    folder = tmp_path_factory.mktemp("training")
    script = write(folder, TRAINING, LOADER="{}")
    return plain([PYTHON, script], folder), watched([PYTHON, script], folder), folder


def test_a_program_is_the_same_with_the_command_in_front(
    trained: tuple[Ended, Ended, Path],
) -> None:
    alone, with_command, _ = trained
    assert with_command.output == alone.output
    assert with_command.code == alone.code == 5
    assert "to standard error" in with_command.errors


def test_steps_are_timed_and_traced(trained: tuple[Ended, Ended, Path]) -> None:
    _, ended, folder = trained
    rank = ended.rank
    assert (rank["source"], rank["marks"], rank["stage"]) == ("optimizer", ["AdamW"], "done")
    assert [rank[name]["steps"] + rank[name]["long"]["steps"] for name in ("before", "after")] == [
        20,
        20,
    ]
    assert rank["trace"]["steps"] == 3
    for name in ("before", "after"):
        parts = rank[name]["parts_ns"]
        assert {"data", "between steps", "forward", "backward", "optimizer"} <= parts.keys()
        assert sum(parts.values()) == pytest.approx(rank[name]["step_ns"], rel=0.02)
    assert len((folder / "out/times_rank0.jsonl").read_text().splitlines()) == 40
    shown = plain(
        [PYTHON, "-m", "tidyprof", "table", "steps", "out/trace_rank0.json.gz", "--json", "-"],
        folder,
    )
    assert len(json.loads(shown.output)) == 3
    assert ended.found is not None
    assert ended.found["diagnosis"]["overhead"]["measured_step_ms"]


def test_a_gate_takes_what_a_run_leaves(trained: tuple[Ended, Ended, Path]) -> None:
    *_, folder = trained
    ended = plain([PYTHON, "-m", "tidyprof", "gate", "out", "out/times_rank0.jsonl"], folder)
    assert "the same run" in ended.errors  # it was read, and found to be a copy
    (folder / "other").mkdir()
    times = (folder / "out/times_rank0.jsonl").read_text().splitlines()
    (folder / "other/times_rank0.jsonl").write_text("\n".join(times[:-1]))
    shown = plain([PYTHON, "-m", "tidyprof", "gate", "out", "other"], folder).output
    assert re.search(r"Origin: measured: .+, no GPU, PyTorch", shown), "on this machine"
    about = json.loads((folder / "out/run_rank0.json").read_text())
    about["machine"]["host"] = "another"
    (folder / "other/run_rank0.json").write_text(json.dumps(about))
    shown = plain([PYTHON, "-m", "tidyprof", "gate", "out", "other"], folder).output
    assert "; recorded: another, no GPU, PyTorch" in shown


@pytest.mark.long
def test_workers_of_a_loader_are_no_ranks(tmp_path: Path) -> None:
    script = write(
        tmp_path, TRAINING, LOADER="{'num_workers': 1, 'multiprocessing_context': 'spawn'}"
    )
    ended = watched([PYTHON, script], tmp_path)
    assert list(ended.found["run"]) == ["0"]
    assert ended.rank["stage"] == "done"
    assert not list((tmp_path / "out").glob("program-*"))


FETCHED = """
import queue, threading
from torch.utils.data import TensorDataset

def fetch():
    for (batch,) in DataLoader(TensorDataset(torch.randn(280, 8)), batch_size=4):
        batches.put(batch)

batches = queue.Queue()
threading.Thread(target=fetch).start()
for _ in range(70):
    model(batches.get()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.long
def test_a_thread_that_fetches_ahead_makes_no_steps(tmp_path: Path) -> None:
    ended = watched([PYTHON, write(tmp_path, HEAD + FETCHED)], tmp_path)
    assert ended.rank["stage"] == "done"
    assert "data" not in ended.rank["before"]["parts_ns"]
    trace = gzip.decompress((tmp_path / "out/trace_rank0.json.gz").read_bytes())
    assert b"aten::linear" in trace  # of the thread that computes


@pytest.mark.parametrize(
    ("command", "code", "sentence"),
    [
        ([PYTHON, "-c", "import torch"], 0, "no PyTorch optimizer took a step"),
        (["ls"], 0, "no process of the program imported torch"),
        ([PYTHON, "missing.py"], 2, "ended with exit code 2 before it imported torch"),
        (
            [PYTHON, "-c", "import os; os.abort()"],
            -signal.SIGABRT,
            "ended with signal 6 before it imported torch",
        ),
        (["no_such_command"], 127, "error: no_such_command: No such file or directory"),
        ([PYTHON, "-E", "-c", "import torch"], 0, "-E or -I"),
    ],
)
def test_no_step_is_told_in_a_line(
    tmp_path: Path, command: list[str | Path], code: int, sentence: str
) -> None:
    ended = watched(command, tmp_path)
    assert ended.code == code
    assert sentence in ended.errors
    assert "Traceback" not in ended.errors
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mark", ["one_step", pytest.param("my range", marks=pytest.mark.long)])
def test_a_mark_is_a_function_or_a_range(tmp_path: Path, mark: str) -> None:
    marked = BY_HAND.replace(
        "    one_step(number)",
        "    with torch.profiler.record_function('my range'):\n        one_step(number)",
    )
    ended = watched([PYTHON, write(tmp_path, marked, STEPS="60")], tmp_path, "--step-marker", mark)
    assert (ended.rank["source"], ended.rank["marks"]) == ("mark", [mark])
    assert ended.rank["stage"] == "done"


@pytest.mark.long
def test_calls_are_steps_where_nothing_is_trained(tmp_path: Path) -> None:
    script = write(tmp_path, HEAD + "for _ in range(70):\n    model(torch.randn(4, 8))\n")
    ended = watched([PYTHON, script], tmp_path)
    assert (ended.rank["source"], ended.rank["marks"]) == ("module", ["Sequential"])
    assert ended.rank["stage"] == "done"


def test_a_training_after_a_first_validation_is_what_counts(tmp_path: Path) -> None:
    first = HEAD + "for _ in range(70):\n    model(torch.randn(4, 8))\n"
    script = write(tmp_path, first + BY_HAND.removeprefix(HEAD), STEPS="60")
    ended = watched([PYTHON, script], tmp_path)
    assert (ended.rank["source"], ended.rank["stage"]) == ("optimizer", "done")


@pytest.mark.long
def test_parts_of_a_large_batch_are_no_steps_once_an_optimizer_takes_one(tmp_path: Path) -> None:
    accumulated = (
        HEAD
        + """
for number in range(40):
    for _ in range(80):
        model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    )
    ended = watched([PYTHON, write(tmp_path, accumulated)], tmp_path)
    assert ended.rank["source"] == "optimizer"
    assert ended.rank["backwards"] == pytest.approx(80, rel=0.1)
    assert ended.rank["trace"]["steps"] == 3
    few = accumulated.replace("range(40)", "range(4)")
    ended = watched([PYTHON, write(tmp_path, few), "few"], tmp_path, "--out", "few")
    assert (ended.rank["source"], ended.rank["marks"]) == ("optimizer", ["AdamW"])
    assert not [*(tmp_path / "few").glob("trace*")]


def test_a_trace_within_which_the_program_ends_is_none(tmp_path: Path) -> None:
    """Its last step would hold what comes after the steps, such as a checkpoint."""
    ended = watched([PYTHON, write(tmp_path, BY_HAND, STEPS="33")], tmp_path)
    assert ended.rank["stage"] == "trace"
    assert "trace" not in ended.rank
    assert not [*(tmp_path / "out").glob("trace*")]
    assert "it ended after 33 steps, but a trace needs 34" in ended.output + ended.errors


@pytest.mark.parametrize("asks", ["find_spec('torch').loader.get_filename()"])
def test_a_program_may_ask_where_torch_is_before_it_imports_it(asks: str, tmp_path: Path) -> None:
    asking = f"import importlib.util\nassert importlib.util.{asks}\n"
    script = write(tmp_path, asking + BY_HAND, STEPS="60")
    assert watched([PYTHON, script], tmp_path).rank["stage"] == "done"


COMPILED = """
@torch.compile(fullgraph=True, backend="eager")
def forward(batch):
    return model(batch).square().mean()

@torch.compile(backend="eager")
def update():
    optimizer.step()

for number in range(60):
    forward(torch.randn(4, 8)).backward()
    update()
    optimizer.zero_grad()
print(torch._dynamo.utils.counters["stats"]["unique_graphs"], \
[*torch._dynamo.utils.counters["graph_break"]])
print([value.sum().item().hex() for value in model.parameters()])
"""


@pytest.mark.long
def test_the_compiler_makes_the_same_graphs(tmp_path: Path) -> None:
    """With the same breaks between them; how often one was met depends on Python's release."""
    script = write(tmp_path, HEAD + COMPILED)
    alone, ended = plain([PYTHON, script], tmp_path), watched([PYTHON, script], tmp_path)
    assert ended.output == alone.output
    assert ended.rank["stage"] == "done"


def test_stacks_are_recorded_if_asked_for(tmp_path: Path) -> None:
    ended = watched(
        [PYTHON, write(tmp_path, BY_HAND, STEPS="60")], tmp_path, "--with-stack", "--record-shapes"
    )
    assert ended.rank["stage"] == "done"
    trace = gzip.decompress((tmp_path / "out/trace_rank0.json.gz").read_bytes())
    assert b"one_step" in trace
    assert b"Input Dims" in trace


@pytest.mark.long
def test_a_profiler_that_begins_within_the_trace_gets_torch_s(tmp_path: Path) -> None:
    own = (
        "for number in range(60):\n    if number == 32:\n        own ="
        " torch.profiler.profile().__enter__()\n    one_step(number)\nown.__exit__(None, None,"
        " None)\nown.export_chrome_trace('own.json')\n"
    )
    ended = watched([PYTHON, write(tmp_path, BY_HAND.split("for number")[0] + own)], tmp_path)
    assert ended.code == 0
    assert (tmp_path / "own.json").is_file()
    assert "runs its own profiler" in ended.errors


def test_an_error_of_the_hooks_is_a_line(tmp_path: Path) -> None:
    # The program takes the folder away, and puts a file in its place.
    spoils = "import os, shutil\nshutil.rmtree('out')\nopen('out', 'w').close()\n"
    script = write(
        tmp_path, HEAD + spoils + BY_HAND.removeprefix(HEAD) + "print('to its end')\n", STEPS="20"
    )
    ended = watched([PYTHON, script], tmp_path)
    assert ended.output == "to its end\n"
    assert ended.code == 0
    assert "tidyprof run: hooks are off" in ended.errors
    assert "Traceback" not in ended.errors


WAITS = BY_HAND + "print('waits', flush=True)\nimport time\ntime.sleep(600)\n"


def _ended_by(number: signal.Signals, command: list[str], folder: Path) -> tuple[int, str]:
    """The exit code of a command that gets a signal once its program waits, and what it told."""
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, errors


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_signals_reach_the_program(tmp_path: Path, number: signal.Signals) -> None:
    program = [PYTHON, str(write(tmp_path, WAITS, STEPS="60"))]
    alone, _ = _ended_by(number, program, tmp_path)
    code, errors = _ended_by(
        number, [PYTHON, "-m", "tidyprof", "run", "--out", "out", "--", *program], tmp_path
    )
    assert code == alone
    assert "without the profiler" in errors


RANKS = (
    "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
    + BY_HAND
    + "\ndist.destroy_process_group()\n"
)


def test_each_rank_leaves_its_files(tmp_path: Path) -> None:
    script = write(tmp_path, RANKS, STEPS="60")
    torchrun = [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    ended = watched([*torchrun, script], tmp_path)
    assert ended.code == 0, ended.errors
    assert sorted(ended.found["run"]) == ["0", "1"]
    assert len(list((tmp_path / "out").glob("trace_rank*.json.gz"))) == 2


def test_a_sitecustomize_of_the_machine_runs_as_well(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('of the machine')\n")
    path = os.pathsep.join([str(own), os.environ.get("PYTHONPATH", "")])
    ended = watched([PYTHON, "-c", "print('of the program')"], tmp_path, PYTHONPATH=path)
    # Once in the command itself, and once in the program.
    assert ended.output == "of the machine\nof the machine\nof the program\n"


FORKS = """
import os
child = os.fork()
for number in range(60):
    one_step(number)
if child:
    os.waitpid(child, 0)
"""


@pytest.mark.long
def test_a_child_by_fork_makes_steps_of_its_own(tmp_path: Path) -> None:
    script = write(tmp_path, BY_HAND.split("for number")[0] + FORKS)
    ended = watched([PYTHON, script], tmp_path)
    assert ended.code == 0
    assert ended.rank["stage"] == "done"
    assert (tmp_path / "out/program-2/run_rank0.json").is_file()
