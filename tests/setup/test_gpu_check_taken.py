"""An archive of gpu-check becomes measured recordings, and one that is not sound is refused in one
line.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path

import pytest

import tidyprof
from tests.slurm.test_recording import SCRIPT, collect
from tidyprof_tests.chrome_writer import HEADER, call, kernel, write_trace
from tools.gpu_check import __main__ as check
from tools.gpu_check.parts import Commands, Gpus, Part

VERSIONS = {
    "AMD": {"torch": "2.14.0+rocm7.2", "hip": "7.2.1"},
    "NVIDIA": {"torch": "2.15.0+cu132", "cuda": "13.2"},
}


def traced(gpus: Gpus, folder: Path) -> Commands:
    """What the part `traces` leaves of one model on such a GPU."""
    training = folder / "vit"
    training.mkdir()
    write_trace(
        training / "trace_rank0_of_1.json.gz",
        [call("launch", 900, 50, 1), kernel("gemm", 1000, 400, 1)],
        header=HEADER,
    )
    run = {
        "record": "run",
        "config": {"model": "vit", "precision": "automixed", "batch_size": 64},
        "launch": {"world_size": 1},
        "device": gpus.name,
        "host": "node17",
        "written": "2026-03-04T10:00:00+00:00",
        "planned_steps": 12,
        "versions": {"hip": None, "cuda": None} | VERSIONS[gpus.maker],
    }
    (training / "metrics_rank0_of_1.jsonl").write_text(json.dumps(run) + "\n")
    return {"vit": [sys.executable, "-c", f"import sys; sys.exit({gpus.count - 1})"]}


def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: Gpus) -> Path:
    """The archive of a check that had this one part; it fails where there is more than one GPU."""
    monkeypatch.setattr(check, "find_gpus", lambda: gpus)
    monkeypatch.setattr(
        check, "PARTS", (Part("traces", "traces", 20, traced, lambda gpus, folder: "fine"),)
    )
    check.main(["--folder", str(tmp_path / "gpu_check")])
    return tmp_path / "gpu_check.tar.gz"


@pytest.mark.parametrize(
    ("gpus", "name", "rocm", "platform"),
    [
        (
            Gpus("AMD", "AMD Instinct MI300X", 1, ""),
            "measured-amd-instinct-mi300x-vit",
            "HIP 7.2.1",
            "HIP 7.2.1",
        ),
        (
            Gpus("NVIDIA", "NVIDIA H100 80GB HBM3", 1, ""),
            "measured-nvidia-h100-80gb-hbm3-vit",
            None,
            "CUDA 13.2",
        ),
    ],
)
def test_its_traces_are_entered_as_what_they_are(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpus: Gpus,
    name: str,
    rocm: str | None,
    platform: str,
):
    recordings = tmp_path / "recordings"
    (recordings / "modelled-vit").mkdir(parents=True)
    done = collect(packed(tmp_path, monkeypatch, gpus), recordings, "--replace")
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads((recordings / "manifest.json").read_text())
    assert (entry["name"], entry["gpu"], entry["rocm"], entry["origin"]) == (
        name,
        gpus.name,
        rocm,
        "recorded",
    )
    assert entry["notes"].startswith(f"Measured 2026-03-04 with {platform}; ")
    assert (entry["torch"], entry["copyright"]) == (
        VERSIONS[gpus.maker]["torch"],
        "Copyright (c) 2026 Somebody",
    )
    assert len(tidyprof.read(recordings / entry["files"][0]["path"]).device_events) == 1
    assert (recordings / "modelled-vit").exists() == (gpus.maker == "NVIDIA")


def test_a_part_that_did_not_pass_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    done = collect(
        packed(tmp_path, monkeypatch, Gpus("AMD", "AMD Instinct MI300X", 2, "")),
        tmp_path / "recordings",
    )
    assert done.returncode == 2
    assert "left out torch_profiler_0: the job did not end with exit code 0" in done.stderr


def archive_of(path: Path, name: str, **attributes: object) -> None:
    """An archive of one entry, which gpu-check would not pack."""
    with tarfile.open(path, "w:gz") as target:
        entry = tarfile.TarInfo(name)
        for attribute, value in attributes.items():
            setattr(entry, attribute, value)
        target.addfile(entry, io.BytesIO(bytes(entry.size)) if entry.isfile() else None)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-300])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-6] ^= 1  # of the checksum
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut, "cannot be unpacked"),
        (flipped, "cannot be unpacked (CRC check failed"),
        (lambda path: path.write_text("nothing"), "cannot be unpacked"),
        (Path.unlink, "No such file"),
        (lambda path: archive_of(path, "../../outside.txt"), "outside of the archive's folder"),
        (
            lambda path: archive_of(
                path, "gpu_check/link", type=tarfile.SYMTYPE, linkname="/etc/passwd"
            ),
            "is no file",
        ),
        (lambda path: archive_of(path, "gpu_check/pipe", type=tarfile.FIFOTYPE), "is no file"),
        (
            lambda path: archive_of(path, "gpu_check/report.md", size=5),
            "no traced training is in it",
        ),
        (
            lambda path: archive_of(path, "gpu_check/traces/result.json", size=5),
            "result.json cannot be read",
        ),
    ],
)
def test_what_is_no_sound_archive_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage, reason: str
):
    archive = packed(tmp_path, monkeypatch, Gpus("AMD", "AMD Instinct MI300X", 1, ""))
    damage(archive)
    done = collect(archive, tmp_path / "recordings")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert reason in done.stderr
    assert not (tmp_path / "recordings").exists()
    assert not (tmp_path.parent / "outside.txt").exists()


def test_an_archive_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import gpu_check_archive

    monkeypatch.setattr(gpu_check_archive, "LARGEST_BYTES", 100)
    archive_of(tmp_path / "large.tar.gz", "gpu_check/report.md", size=101)
    with pytest.raises(gpu_check_archive.UserError, match="too large"):
        gpu_check_archive.unpack(tmp_path / "large.tar.gz", tmp_path / "there")
    assert not list(tmp_path.glob("there/**/*.md"))
