"""tidyprof as a package of its own: it reads, tells and writes with nothing but what its own
pyproject.toml names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from tidyprof_tests.conftest import HOUSE, REPOSITORY

RECORDINGS = (
    "torch-mi250-minitoy",
    "rpd-mi200-matmul",
    "rocprofv3-csv-gfx1151-llamacpp-decode",
    "rocprofv3-lumi-taylor/results.pftrace",
    "rocprof-compute-mi200-vcopy",
    "rocprof-sys-cpu/rocprofsys-python-output",
    "smi-mi300x-vllm-llama31-bs1/monitoring",
)
CASE = REPOSITORY / "recordings"
THE_COURSE = ("cifar_train", "gpumodel", "proflab", "tests", "tools", "lessons", "snippets")
MISSING = (
    *THE_COURSE,
    *(
        "torch",
        "matplotlib",
        "transformers",
        "jupyterlab",
        "psutil",
        "pooch",
    ),
    "polars",
    "tqdm",
)

EXTRAS = ("adbc_driver_sqlite", "google", "matplotlib", "perfetto", "pyarrow")

WITHOUT_THEM = f"""
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {MISSING!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
import tidyprof
from tidyprof.cli.main import main

for path in sys.argv[1:]:
    profile = tidyprof.read(path)
    print(len(profile.events) + len(profile.counters), flush=True)
    assert main(["summary", path]) == 0
"""


def test_every_format_is_read_without_the_course(recordings):
    paths = [str(recordings / name) for name in RECORDINGS]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THEM, *paths], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("origin") >= len(RECORDINGS)


CORE = WITHOUT_THEM.partition("for path")[0].replace(repr(MISSING), repr(MISSING + EXTRAS))


def in_core(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run code where no extra of tidyprof is installed."""
    command = [sys.executable, "-c", CORE + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command",
    [
        ("triage", CASE / "torch-h200-case-plain"),
        ("gate", CASE / "torch-h200-case-plain", CASE / "torch-h200-case-loaders"),
        ("hang", HOUSE / "tests/tidyprof_tests/analyses/dumps_of_other_ages/aborted"),
    ],
    ids=lambda command: command[0],
)
def test_the_core_judges_what_torch_wrote(command):
    done = in_core("sys.exit(main(sys.argv[1:]))", *command)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_core_reads_traces_of_torch_and_logs_and_names_the_extra_of_other_formats(
    name, recordings
):
    """A folder may hold other files, which must not stop it."""
    done = in_core("sys.exit(main(['summary', sys.argv[1]]))", recordings / name)
    is_core = name.startswith(("torch", "smi"))
    assert done.returncode == (0 if is_core else 2), done.stderr
    assert ("tidyprof[rocm]" in done.stderr, done.stderr.count("\n")) == (not is_core, not is_core)


@pytest.mark.parametrize(
    ("name", "extra"), [("plots", "plots"), ("read_rocprofv3", "rocm"), ("read_csv", None)]
)
def test_a_name_of_python_says_which_extra_it_needs(name, extra):
    done = in_core(f"tidyprof.{name}")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError" if extra else "AttributeError")
    assert (f"tidyprof[{extra}]" in last) == bool(extra)


def test_nothing_of_it_or_of_its_tests_knows_the_course():
    known = re.compile(rf"^\s*(?:from|import) ({'|'.join(THE_COURSE)})\b", re.MULTILINE)
    for path in HOUSE.rglob("*.py"):
        if "third_party" not in path.parts:
            assert known.findall(path.read_text(encoding="utf-8")) == [], path


def test_a_copy_elsewhere_collects_its_tests(tmp_path):
    copy = shutil.copytree(HOUSE, tmp_path / "x", ignore=shutil.ignore_patterns(".*", "traces"))
    (copy / "tests/third_party/traces").mkdir()
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/tidyprof_tests"]
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=copy, env=known, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
