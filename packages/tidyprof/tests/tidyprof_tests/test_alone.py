"""tidyprof as a package of its own: it reads, tells and writes with nothing but what its own
pyproject.toml names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from tidyprof_tests.conftest import HOUSE

RECORDINGS = (
    "torch-mi250-minitoy",
    "rpd-mi200-matmul",
    "rocprofv3-csv-gfx1151-llamacpp-decode",
    "rocprofv3-lumi-taylor/results.pftrace",
    "rocprof-compute-mi200-vcopy",
    "rocprof-sys-cpu/rocprofsys-python-output",
    "smi-mi300x-vllm-llama31-bs1/monitoring",
)
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
)

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


def test_plots_alone_need_matplotlib():
    code = WITHOUT_THEM.replace("from tidyprof.cli.main import main", "tidyprof.plots")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "No module named 'matplotlib'" in done.stderr


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
