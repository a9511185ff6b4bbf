"""The trainer as a user meets it: exit codes, one clear line, no traceback."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socketserver
import subprocess
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from cifar_train import cli, train
from tests.conftest import REPOSITORY, require
from tests.patience import PATIENCE_S
from tests.test_architecture import files_entered, stated_way
from tidyprof.errors import UserError

QUICK = [
    "--data",
    "synthetic",
    "--device",
    "cpu",
    "-bs",
    "4",
    "-ms",
    "2",
    "--num-workers",
    "0",
    "--precision",
    "float32",
]


def cold(*arguments: str, prefix: tuple[str, ...] = (), **variables: str):
    """Run the command line with small models in an interpreter of its own, as a user starts it."""
    return started(
        [*prefix, sys.executable, "-m", "tests.cifar_train.tiny_trainer", *arguments], **variables
    )


def started(command: list[str], **variables: str):
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


@pytest.fixture
def trainer(warm):
    """Run the command line in a process of its own, by default with small models."""
    return lambda *arguments, module="tests.cifar_train.tiny_trainer": started(
        [warm, "-m", module, *arguments]
    )


def assert_one_line_refusal(done, *words: str) -> None:
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert lines[-1].startswith("error: ")
    for word in words:
        assert word in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "lenet"], ["--model", "resnet"]),
        (["--batch-size", "none"], ["--batch-size"]),
        (["--torch-profile", "-ms", "5", "--profile-wait", "9"], ["wait 9", "only 5"]),
        (["--device", "xpu"], ["xpu", "--device cpu"]),
        (["--data", "cifar100", "--data-path", "/nonexistent"], ["--download-only"]),
        (["-bs", "50000"], ["50000"]),
    ],
)
def test_refusals(trainer, arguments, words, tmp_path):
    base = [] if "--device" in arguments else ["--device", "cpu"]
    assert_one_line_refusal(trainer(*base, *arguments, "--run-dir", str(tmp_path)), *words)


def test_unwritable_run_folder(trainer, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert_one_line_refusal(
        trainer(*QUICK, "--run-dir", str(blocked / "run")), str(blocked), "--run-dir"
    )


@pytest.mark.long
def test_full_disk_while_results_are_written(tmp_path):
    """A file size limit makes writing fail as a full disk does, with another error number."""
    limit = ("bash", "-c", 'ulimit -f 64; exec "$0" "$@"')
    done = cold(*QUICK, "--torch-profile", "--run-dir", str(tmp_path), prefix=limit)
    assert_one_line_refusal(done)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_folder_where_a_result_belongs(trainer, tmp_path):
    (tmp_path / "metrics_rank0_of_1.jsonl").mkdir()
    assert_one_line_refusal(
        trainer(*QUICK, "--run-dir", str(tmp_path)), "metrics_rank0_of_1.jsonl: Is a directory"
    )


def test_a_reader_of_the_trainer_opens_as_many_files_as_the_architecture_says(tmp_path):
    most = 22
    entered = files_entered(
        tmp_path, "tests.cifar_train.tiny_trainer", "main", *QUICK, "--torch-profile"
    )
    assert stated_way("the trainer with `--torch-profile`") == (entered, most)
    assert entered <= most


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_disk_errors_are_user_errors(number, monkeypatch, capsys):
    def fail(config):
        raise OSError(number, os.strerror(number), "metrics.jsonl")

    monkeypatch.setattr(cli, "_train", fail)
    assert cli.main([]) == 2
    assert os.strerror(number) in capsys.readouterr().err


def test_bugs_keep_their_traceback(monkeypatch):
    def fail(config):
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "_train", fail)
    with pytest.raises(ZeroDivisionError):
        cli.main([])


def test_json_output_is_one_line_and_nothing_else(trainer, tmp_path):
    done = trainer(*QUICK, "--json", "--run-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["ranks"][0]["steps"] == 2
    assert result["folder"] == str(tmp_path)


def test_result_table_fits_80_columns(trainer, tmp_path):
    done = trainer(*QUICK, "--torch-profile", "--run-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if not line.startswith("cifar_train: ")]
    # How long the folder's name is lies with the user.
    assert max(len(line.replace(str(tmp_path), "runs/mine")) for line in table) <= 80
    assert any(line.startswith("images/s") for line in table)


def test_synthetic_data_is_announced_once(trainer, tmp_path):
    done = trainer(
        *QUICK[2:], "--data-path", str(tmp_path / "none"), "--run-dir", str(tmp_path / "run")
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("synthetic images") == 1


def test_validation_uses_the_held_out_images(trainer, tmp_path):
    done = trainer(*QUICK, "-bs", "256", "--validate", "--run-dir", str(tmp_path))
    assert "accuracy on 10000 held-out images" in done.stdout, done.stderr


def test_login_node_download_touches_neither_torch_nor_a_device(tmp_path):
    """--download-only with a file where the folder should be fails before anything heavy is
    loaded.
    """
    script = (
        "import sys\n"
        "from cifar_train.cli import main\n"
        f"code = main(['--download-only', '--data-path', {str(tmp_path / 'file' / 'data')!r}])\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
        "sys.exit(code)\n"
    )
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert_one_line_refusal(done)


@pytest.mark.parametrize(
    "model", [*(pytest.param(name, marks=pytest.mark.long) for name in ("resnet", "vit")), "swinv2"]
)
def test_real_models_train_and_leave_a_readable_trace(trainer, model, tmp_path):
    import tidyprof

    options = [
        "-bs",
        "2",
        "-ms",
        "5",
        "--torch-profile",
        "--model",
        model,
        "--run-dir",
        str(tmp_path),
    ]
    done = trainer(*QUICK[:-2], *options, module="cifar_train")
    assert done.returncode == 0, done.stderr
    profile = tidyprof.read(tmp_path / "trace_rank0_of_1.json.gz")
    assert len(tidyprof.steps(profile)) == 3
    assert (profile.events["kind"] == "operator").sum() > 1000


@pytest.mark.long
def test_a_server_that_is_no_rank_is_one_line_without_frames():
    """Such as a proxy behind MASTER_ADDR, which answers whatever it is asked."""

    class Proxy(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(100)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01}).start()
        rank = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1"}
        # Torch gives up after half of this; where a busy machine makes it later than all, it still
        # writes.
        done = cold(
            *QUICK, "--rendezvous-timeout", "8", MASTER_PORT=str(proxy.server_address[1]), **rank
        )
        proxy.shutdown()
    assert_one_line_refusal(done, "could not meet", f"MASTER_PORT={proxy.server_address[1]}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("launcher", [pytest.param("torchrun", marks=pytest.mark.long), "mpirun"])
def test_launchers(warm, launcher, tmp_path):
    if launcher == "torchrun":
        prefix = (warm, "-m", "torch.distributed.run", "--nproc_per_node", "2", "-m")
    else:
        require(shutil.which("mpirun") is not None, "mpirun (Debian package openmpi-bin)")
        prefix = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", warm, "-m")
    arguments = ["tests.cifar_train.tiny_trainer", *QUICK, "--json", "--run-dir", str(tmp_path)]
    # torchrun asks PYTHON_EXEC for the interpreter of its ranks.
    done = started([*prefix, *arguments], OMP_NUM_THREADS="1", PYTHON_EXEC=warm)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.strip().splitlines()[-1])
    assert [rank["world_size"] for rank in result["ranks"]] == [2, 2]


@pytest.mark.long
def test_compile_is_timed_apart_and_keeps_the_losses(tmp_path):
    require(shutil.which("g++") is not None, "a C++ compiler (Debian package g++)")
    eager = cold(*QUICK, "-ms", "4", "--json", "--run-dir", str(tmp_path / "eager"))
    compiled = cold(
        *QUICK, "-ms", "4", "--json", "--compile", "--run-dir", str(tmp_path / "compiled")
    )
    assert compiled.returncode == 0, compiled.stderr
    before, after = (json.loads(done.stdout)["ranks"][0] for done in (eager, compiled))
    assert before["compile_ns"] is None
    # Compiling takes longer than any step that follows.
    assert after["compile_ns"] > after["first_step_ns"]
    assert after["last_loss"] == pytest.approx(before["last_loss"], rel=1e-3)


def test_compile_that_fails_says_what_it_needs():
    """As in the following test, without a minute of waiting: the error by hand."""

    def compiled(images: torch.Tensor) -> None:
        raise torch._dynamo.exc.TorchDynamoException("no-such-compiler is not here\nmore")

    few = SimpleNamespace(batch_size=1)
    trainer = SimpleNamespace(
        raw_model=torch.nn.Identity(),
        model=compiled,
        config=few,
        device=torch.device("cpu"),
        autocast=nullcontext,
    )
    trainer.input_dtype, trainer.memory_format = torch.float32, torch.contiguous_format
    with pytest.raises(
        UserError,
        match=r"no-such-compiler is not here; on a CPU it needs a C\+\+ compiler \(g\+\+\)",
    ):
        train._compile(trainer)


@pytest.mark.long
def test_compile_without_a_compiler_says_so(tmp_path):
    """A PATH without g++ and a CXX that does not exist."""
    done = cold(
        *QUICK, "--compile", "--run-dir", str(tmp_path), CXX="no-such-compiler", PATH="/nonexistent"
    )
    assert_one_line_refusal(done, "--compile", "g++")
