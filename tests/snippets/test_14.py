"""The snippets of lesson 14: the block in a loop that is not the course's, and the check list with
a small srun.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.snippets.conftest import Run
from tests.snippets.test_07 import ROCPROFV3, SRUN, with_programs
from tidyprof_tests.patience import PATIENCE_S

LOOP = """
import torch
from instrument_me import StepTimer

torch.set_num_threads(1)
weights = torch.zeros(4, requires_grad=True)
timer = StepTimer()
for step in range(24):
    timer("forward")
    loss = (weights * torch.ones(4)).sum()
    timer("backward")
    loss.backward()
    timer.step()
timer.close()
print("gradient", weights.grad.sum().item())
"""


@pytest.fixture
def loop(tmp_path: Path) -> str:
    shutil.copy(REPOSITORY / "snippets/14_instrument_me.py", tmp_path / "instrument_me.py")
    (tmp_path / "loop.py").write_text(LOOP)
    return "loop.py"


def test_times_are_a_line_for_each_step(bare: Run, loop: str, tmp_path: Path) -> None:
    assert (
        "gradient 96.0"
        in bare("python", loop, STEP_TIMER="times", STEP_TIMER_DIR="out", RANK="3").stdout
    )
    lines = [
        json.loads(line)
        for line in (tmp_path / "out" / "times_rank3.jsonl").read_text().splitlines()
    ]
    assert [line["step"] for line in lines] == list(range(24))
    assert all(
        set(line) == {"rank", "step", "data", "forward", "backward"} and line["rank"] == 3
        for line in lines
    )


def test_a_trace_has_the_parts_as_ranges_of_some_steps(
    bare: Run, loop: str, tmp_path: Path
) -> None:
    bare("python", loop, STEP_TIMER="trace", SLURM_PROCID="1")
    trace = json.loads(gzip.decompress((tmp_path / "trace_rank1.json.gz").read_bytes()))
    names = [
        event["name"] for event in trace["traceEvents"] if event.get("cat") == "user_annotation"
    ]
    assert {name: names.count(name) for name in ("forward", "backward")} == {
        "forward": 3,
        "backward": 3,
    }
    assert sum(name.startswith("ProfilerStep") for name in names) == 3
    begin = {
        name: event["ts"] for event in trace["traceEvents"] if (name := event["name"]) == "backward"
    }
    parts = [part for part in trace["watch_parts"] if part[0] == "backward"]
    assert len(parts) == 3
    name, began, length, processor, *line = parts[-1]
    assert abs(trace["baseTimeNanoseconds"] + 1000 * begin[name] - began) < 1e6
    assert 0 < processor <= 2 * length
    assert all(waited >= 0 for waited in line)


def test_a_trace_holds_the_steps_before_it_without_a_profiler_and_the_machine(
    bare: Run, loop: str, tmp_path: Path
) -> None:
    bare("python", loop, STEP_TIMER="trace")
    trace = json.loads(gzip.decompress((tmp_path / "trace_rank0.json.gz").read_bytes()))
    untraced, machine = trace["watch_untraced"], trace["watch_machine"]
    assert untraced["steps"] == 10
    assert set(untraced["parts_ns"]) == {"data", "forward", "backward"}
    assert 0 < sum(untraced["parts_ns"].values()) <= untraced["step_ns"]
    assert machine["torch"].count(".") >= 2
    assert {"host", "gpu", "rocm", "cuda", "python"} < {*machine}


def test_a_killed_run_leaves_the_times_of_its_steps(bare: Run, loop: str, tmp_path: Path) -> None:
    killed = "    timer.step()\n    if step == 7:\n        import os; os.kill(os.getpid(), 9)"
    (tmp_path / loop).write_text(LOOP.replace("    timer.step()", killed))
    assert bare("python", loop, STEP_TIMER="times", check=False).returncode == -9
    assert len((tmp_path / "times_rank0.jsonl").read_text().splitlines()) == 8


TRAINER = """
from types import SimpleNamespace

from callbacks import for_transformers
from transformers import TrainerControl, TrainerState
from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback

args = SimpleNamespace(
    logging_first_step=False, logging_strategy="steps", eval_strategy="steps", save_strategy="no",
    eval_delay=0,
)
state, control = TrainerState(max_steps=4, logging_steps=2, eval_steps=4), TrainerControl()
on = CallbackHandler([DefaultFlowCallback(), for_transformers()], None, None, None, None)
for step in range(4):  # in the order in which Trainer calls
    on.on_step_begin(args, state, control)
    on.on_pre_optimizer_step(args, state, control)
    state.global_step += 1
    on.on_step_end(args, state, control)
    if control.should_log:
        on.on_log(args, state, control, {})
    if control.should_evaluate:
        on.on_evaluate(args, state, control, {})
on.on_train_end(args, state, control)
on.on_evaluate(args, state, control, {})
"""

LIGHTNING = """
import sys
from types import SimpleNamespace

sys.modules["lightning.pytorch"] = sys.modules["lightning"] = SimpleNamespace(Callback=object)
from callbacks import for_lightning

on = for_lightning()
on.on_validation_start(None, None)
on.on_validation_end(None, None)
for step in range(4):  # in the order in which Lightning calls
    on.on_train_batch_start(None, None, None, step)
    on.on_before_backward(None, None, None)
    on.on_before_optimizer_step(None, None, None)
    on.on_train_batch_end(None, None, None, None, step)
    if step == 1:
        on.on_validation_start(None, None)
        on.on_validation_end(None, None)
on.on_train_end(None, None)
"""


@pytest.mark.parametrize(
    ("script", "parts", "with_log"),
    [
        pytest.param(
            *(TRAINER, {"forward_backward", "optimizer", "data"}, [1, 3]),
            id="transformers",
            marks=pytest.mark.long,
        ),
        pytest.param(LIGHTNING, {"forward", "backward", "optimizer", "data"}, [1], id="lightning"),
    ],
)
def test_a_callback_times_the_parts_of_a_loop_that_a_library_has(
    loop: str, tmp_path: Path, script: str, parts: set[str], with_log: list[int]
) -> None:
    shutil.copy(REPOSITORY / "snippets/14_callbacks.py", tmp_path / "callbacks.py")
    (tmp_path / "trainer.py").write_text(script)
    command = [sys.executable, "trainer.py"]
    subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"STEP_TIMER": "times"},
        check=True,
        timeout=PATIENCE_S,
    )
    lines = [json.loads(line) for line in (tmp_path / "times_rank0.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(4))
    assert [line["step"] for line in lines if "log" in line] == with_log
    assert all({*line} - {"rank", "step", "log"} == parts for line in lines)


TRAIN = """
import os
from pathlib import Path

print("STEP_TIMER", os.environ.get("STEP_TIMER", "off"))
Path(os.environ["STEP_TIMER_DIR"], f"{os.environ.get('STEP_TIMER', 'run')}_rank{os.environ['RANK']}").touch()
"""

ON_SOME_RANKS = SRUN.replace(
    "#!/bin/bash\n", "#!/bin/bash\nexport SLURM_NTASKS=${1#--ntasks=}\nshift\n"
)


def test_the_check_list_asks_every_question(
    bare: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = with_programs(
        tmp_path,
        srun=ON_SOME_RANKS,
        scontrol="#!/bin/bash\necho localhost\n",
        rocprofv3=ROCPROFV3,
        **{"amd-smi": "#!/bin/bash\necho power,gfx\nexec sleep 600\n"},
    )
    monkeypatch.setenv("PATH", programs, prepend=":")
    (tmp_path / "train.py").write_text(TRAIN)
    job = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "localhost"}
    bare("bash", "snippets/14_check_list.sh", **job)
    results = tmp_path / "check_list_7"
    found = {str(path.relative_to(results)) for path in results.rglob("*") if path.is_file()}
    assert found == {
        *("clock_1/run_rank0", "clock_2/run_rank0", "smi.csv", "trace/trace_rank0"),
        *(f"times_{repeat}/times_rank0" for repeat in range(1, 6)),
        *(
            "kernels/rank0_kernel_trace.csv",
            "kernels/run_rank0",
            "ranks/trace_rank0",
            "ranks/trace_rank1",
        ),
    }
