"""Each snippet that reads files, on a shipped trace: its output is the one in `expected`.

To accept a new output, look at the difference and run `pytest --accept-output` on this file.
"""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.snippets.conftest import Run

RECORDINGS, LESSONS = REPOSITORY / "recordings", REPOSITORY / "lessons"
CUTS = RECORDINGS / "cuts"
HERE = Path(__file__).parent
RANKS = [RECORDINGS / f"modeled-rank-skew/torch/trace_rank{rank}_of_4.json.gz" for rank in range(4)]
REPORTS: dict[str, tuple[str, list[str | Path]]] = {
    "01_summary": ("01_gpu_log.py", ["summary", HERE / "inputs/gpu.csv", "--images", "5000"]),
    "02_budget": ("02_step_budget.py", [RECORDINGS / "torch-h200-resnet50/trace_rank0.json.gz"]),
    "02_table": (
        "02_trace_to_table.py",
        [CUTS / "torch-mi300x-resnet18-train/train_resnet18.json.gz"],
    ),
    "03_wall_clock": ("03_wall_clock.py", ["."]),
    "04_busy_time": ("04_busy_time.py", [CUTS / "rocprofv3-csv-gfx1151-llamacpp-decode"]),
    "05_counters": (
        "05_roofline.py",
        [
            CUTS / "rocprof-compute-mi308x-montecarlo/pmc_perf.csv",
            "--roofs",
            CUTS / "rocprof-compute-mi308x-montecarlo/roofline.csv",
        ],
    ),
    "06_rpd": ("06_rpd_report.py", [CUTS / "rpd-mi200-matmul/matmul_result.rpd"]),
    "06_rocpd": ("06_rpd_report.py", ["0_results.db", "--skip-ms", "100"]),
    "07_ranks": ("07_who_waits.py", [*RANKS]),
    "08_runs": ("08_compare_two_runs.py", ["before/*.csv", "after/*.csv"]),
    "13_runs": ("13_slower.py", ["before", "after"]),
    "15_hang": ("15_find_missing_ranks.py", [LESSONS / "15_hang/recorded/skipped"]),
    "16_kernels": ("16_compiler.py", ["compiled"]),
    "17_ranks": ("17_sharded.py", [*RANKS]),
}
"""Name of the expected output -> the snippet and its arguments."""

NOISE = (1.0, 1.012, 0.991, 1.004, 0.996, 1.007, 0.999, 1.002, 1.005)


@pytest.fixture
def inputs(tmp_path: Path) -> None:
    """Files that the repository stores compressed, and the steps of two versions of a program."""
    for name in (
        "rocpd/0_results.db",
        "rocprof-sys/rocprofsys-python-output/wall_clock-41250.json",
    ):
        unpacked = gzip.decompress((RECORDINGS / f"modeled-swinv2/{name}.gz").read_bytes())
        (tmp_path / Path(name).name).write_bytes(unpacked)
    for packed in (LESSONS / "16_compiler/compiled/3.9.0").glob("add_norm*/*"):
        (tmp_path / "compiled" / packed.parent.name).mkdir(parents=True, exist_ok=True)
        target = tmp_path / "compiled" / packed.parent.name / packed.name.removesuffix(".gz")
        shutil.copy(packed, target)
        if packed.suffix == ".gz":
            target.write_bytes(gzip.decompress(packed.read_bytes()))
    for folder, seconds in (("before", 0.2), ("after", 0.25)):
        (tmp_path / folder).mkdir()
        for number, noise in enumerate(NOISE):
            rows = [f"{seconds * noise * (1 + step % 3 / 10)},{4 - step / 4}" for step in range(8)]
            (tmp_path / folder / f"run{number}.csv").write_text("\n".join(["seconds,loss", *rows]))


@pytest.mark.parametrize("name", REPORTS)
def test_the_report_is_the_expected_one(
    name: str, inputs: None, bare: Run, request: pytest.FixtureRequest
) -> None:
    snippet, arguments = REPORTS[name]
    done = bare("python", f"snippets/{snippet}", *arguments, check=False)
    found = (done.stdout + done.stderr).replace(f"{REPOSITORY}/", "")
    expected = HERE / f"expected/{name}.txt"
    if request.config.getoption("--accept-output"):
        expected.write_text(found, encoding="utf-8")
    assert found == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("snippet", "text"),
    [
        ("02_step_budget.py", "no trace"),
        ("04_busy_time.py", "no trace"),
        ("06_rpd_report.py", "no trace"),
        ("15_find_missing_ranks.py", "cos\nsystem\n(S'touch ran'\ntR."),
        ("16_compiler.py", "no trace"),
        ("17_sharded.py", "no trace"),
    ],
)
def test_what_is_no_trace_fails_and_runs_nothing(
    snippet: str, text: str, bare: Run, tmp_path: Path
) -> None:
    (tmp_path / "rank_0").write_text(text)
    arguments = ["."] if snippet == "15_find_missing_ranks.py" else ["rank_0", "rank_0"]
    done = bare("python", f"snippets/{snippet}", *arguments, check=False)
    assert done.returncode
    assert not (tmp_path / "ran").exists()
