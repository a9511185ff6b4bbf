"""The check of a machine with a GPU, with parts of a fake: what is done again, what is packed, and
what becomes of the archive.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import tidyprof
from tests.conftest import REPOSITORY
from tidyprof_tests.chrome_writer import HEADER, TraceEvent, call, kernel, write_trace
from tools.gpu_check import __main__ as check
from tools.gpu_check import parts
from tools.gpu_check.parts import Commands, DiffersError, Gpus, NotHereError, Part

FAKE = Gpus("AMD", "AMD Instinct MI300X", 1, "2.14.0+rocm7.2", "HIP 7.2.1")
SECRET = "alice-on-node17"


def part(name: str, script: str = "", outcome: Exception | None = None, minutes: float = 20):
    def check(gpus: Gpus, folder: Path) -> str:
        if outcome:
            raise outcome
        return "all is well"

    def commands(gpus: Gpus, folder: Path) -> Commands:
        if not script:
            raise NotHereError("no such tool")
        return {"only": [sys.executable, "-c", script]}

    return Part(name, f"the part {name}", minutes, commands, check)


def traced(gpus: Gpus, folder: Path) -> Commands:
    """What the part `traces` leaves of one model, with names of a person in many places."""
    training = folder / "vit"
    training.mkdir()
    events = [
        TraceEvent("user_annotation", f"/home/{SECRET}", 850, 700),
        call(SECRET, 900, 50, 1),
        kernel("gemm", 1000, 400, 1),
    ]
    header = HEADER | {"host_name": SECRET}
    write_trace(training / "trace_rank0_of_1.json.gz", events, header=header)
    run = {
        "record": "run",
        "config": {"model": "vit", "precision": "automixed", "batch_size": 64, "data": SECRET},
        "launch": {"world_size": 1},
        "device": gpus.name,
        "host": SECRET,
        "written": "2026-03-04T10:00:00+00:00",
        "planned_steps": 12,
        "versions": {"torch": "2.14.0+rocm7.2", "hip": "7.2.1"},
    }
    (training / "metrics_rank0_of_1.jsonl").write_text(json.dumps(run) + "\n")
    return {"vit": [sys.executable, "-c", f"print({SECRET!r})"]}


TRACES = Part("traces", "traces", 20, traced, lambda gpus, folder: "fine")


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *several: Part, options: str = "") -> int:
    monkeypatch.setattr(check, "find_gpus", lambda: FAKE)
    monkeypatch.setattr(check, "PARTS", several)
    return check.main(["--folder", str(folder / "gpu_check"), *options.split()])


def collect(archive: Path, recordings: Path) -> subprocess.CompletedProcess[str]:
    script = str(REPOSITORY / "scripts/slurm/collect_recordings.py")
    command = [sys.executable, script, str(archive), str(recordings), "--copyright", "Somebody"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def states(folder: Path) -> list[str]:
    summary = json.loads((folder / "gpu_check" / check.SUMMARY).read_text())
    return [part["state"] for part in summary["parts"].values()]


def test_each_part_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    several = (
        part("fine", "pass"),
        part("broken", "import sys; sys.exit('no memory')"),
        part("odd", "pass", DiffersError("2 steps of 12")),
        part("bug", "pass", ValueError("a bug")),
        part("elsewhere"),
        part("endless", "import time; time.sleep(10**6)", minutes=0.01),
    )
    assert run(tmp_path, monkeypatch, *several) == 1
    assert states(tmp_path) == ["passed", "failed", "differed", "failed", "could not run", "failed"]
    assert run(tmp_path, monkeypatch, part("late", "pass"), options="--minutes 0") == 0
    assert states(tmp_path) == ["could not run"]


def test_what_passed_is_not_done_again_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    count = tmp_path / "count"
    counts = part("counts", f"open({str(count)!r}, 'a').write('x')")
    for options, expected in (("", "x"), ("", "x"), ("--again counts", "xx")):
        assert run(tmp_path, monkeypatch, counts, options=options) == 0
        assert count.read_text() == expected


def test_without_a_gpu_nothing_is_checked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(check, "find_gpus", lambda: None)
    assert check.main([]) == 2


@pytest.mark.parametrize("name", ["lessons", "jobs"])
def test_amds_tools_are_not_asked_for_on_another_gpu(tmp_path: Path, name: str):
    (tried,) = [one for one in parts.PARTS if one.name == name]
    with pytest.raises(NotHereError):
        tried.commands(Gpus("NVIDIA", "Fake 9000", 1, ""), tmp_path)


def test_the_archive_holds_known_columns_and_becomes_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert run(tmp_path, monkeypatch, TRACES, part("broken", f"exit({SECRET!r})")) == 1
    archive = tmp_path / "gpu_check.tar.gz"
    assert SECRET in (tmp_path / "gpu_check/traces/vit.log").read_text()
    with tarfile.open(archive) as packed:
        files = {entry.name: packed.extractfile(entry).read() for entry in packed if entry.isfile()}
    assert {Path(name).name for name in files} == {
        *("report.md", "summary.json", "trace_rank0.json.gz", "metrics_rank0_of_1.jsonl")
    }
    for name, content in files.items():
        text = gzip.decompress(content) if name.endswith(".gz") else content
        assert SECRET.encode() not in text, name
    done = collect(archive, tmp_path / "recordings")
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads((tmp_path / "recordings" / "manifest.json").read_text())
    assert entry["name"] == "measured-amd-instinct-mi300x-vit"
    recorded = tidyprof.read(tmp_path / "recordings" / entry["files"][0]["path"])
    assert recorded.device_events["name"].tolist() == ["gemm"]
    assert recorded.device_events["duration_ns"].tolist() == [400]


def archive_of(path: Path, name: str, **attributes: object) -> Path:
    with tarfile.open(path, "w:gz") as target:
        entry = tarfile.TarInfo(name)
        for attribute, value in attributes.items():
            setattr(entry, attribute, value)
        target.addfile(entry)
    return path


def test_of_an_odd_archive_nothing_is_taken(tmp_path: Path):
    trace = "gpu_check/traces/vit/trace_rank0.json.gz"
    link = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
    damaged = tmp_path / "damaged"
    damaged.write_text("nothing")
    for archive in (
        archive_of(tmp_path / "outside", f"../{trace}"),
        archive_of(tmp_path / "link", trace, **link),
        damaged,
        tmp_path / "missing",
    ):
        done = collect(archive, tmp_path / "recordings")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert not (tmp_path / "recordings").exists()
