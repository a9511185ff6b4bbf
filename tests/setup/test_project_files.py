"""The files around the code: dependencies, scripts, and what must not stand in them."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement

from proflab import case
from proflab.exercises.registry import find
from proflab.releases import releases, shown
from tests.conftest import REPOSITORY, require
from tidyprof_tests.conftest import HOUSE, STRANGERS
from tools import mirror, readme_picture

CONDA_NAMES = {"python-isal": "isal", "msgspec-python": "msgspec"}
"""conda-forge's names where they differ from the registry's."""


def project(folder: Path = REPOSITORY) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def all_requirements() -> list[Requirement]:
    """What the course and tidyprof need, but each other."""
    found = []
    for described in (project(), project(HOUSE)):
        extras = described["optional-dependencies"].values()
        found += map(Requirement, itertools.chain(described["dependencies"], *extras))
    return [requirement for requirement in found if requirement.name != "tidyprof"]


def test_environment_and_pyproject_tell_the_same_story():
    described = project()
    wanted = {told(requirement) for requirement in all_requirements()}
    conda = yaml.safe_load((REPOSITORY / "environment.yml").read_text())["dependencies"]
    (pip,) = [entry["pip"] for entry in conda if isinstance(entry, dict)]
    found = {told(Requirement(line)) for line in pip[:-2]}
    for line in [entry for entry in conda if isinstance(entry, str)]:
        name, bounds = re.fullmatch(r"([\w-]+)(>=[\d.]+(?:,<[\d.]+)?)?", line).groups()
        found.add((CONDA_NAMES.get(name, name), bounds or "", ""))
    assert pip[-2:] == ["--editable ./packages/tidyprof", "--editable ."]
    newest = max(
        int(minor) for minor in re.findall(r":: 3\.(\d+)", "\n".join(described["classifiers"]))
    )
    python = ("python", f"{described['requires-python']},<3.{newest + 1}", "")
    assert found == wanted | {python, ("pip", "", "")}


def told(requirement: Requirement) -> tuple[str, str, str]:
    """Name, bounds, and for which Python; empty where a requirement says nothing."""
    return requirement.name, str(requirement.specifier), str(requirement.marker or "")


def newest_change(folder: Path) -> tuple[str, str]:
    """Version and date of the newest part of a changelog."""
    text = (folder / "CHANGELOG.md").read_text()
    return re.search(r"^## (\S+), (\S+)$", text, re.MULTILINE).groups()


def test_a_version_is_the_same_wherever_it_stands():
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert newest_change(REPOSITORY) == (project()["version"], str(cited["date-released"]))
    assert cited["version"] == project()["version"]
    assert newest_change(HOUSE)[0] == project(HOUSE)["version"]


def test_tidyprof_comes_from_its_folder_and_from_no_index():
    described = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    needed = {need.name: need for need in map(Requirement, described["project"]["dependencies"])}
    assert needed["tidyprof"].specifier.contains(project(HOUSE)["version"])
    assert described["tool"]["uv"]["sources"] == {"tidyprof": {"workspace": True}}
    # What is no uv has to be told.
    assert "pip install --no-cache-dir ./packages/tidyprof '.[lab]'" in section("post")


def test_news_become_the_newest_part_of_the_changelog(tmp_path):
    """Towncrier refuses what lies in news under a name that it can't place."""
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(REPOSITORY / name, tmp_path)
    shutil.copytree(REPOSITORY / "news", tmp_path / "news")
    (tmp_path / "news/+one.tools.md").write_text("One thing is new.\n")
    command = ["towncrier", "build", "--yes", "--version", "9.9.9", "--date", "2030-01-01"]
    subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, check=True)
    before, found = (
        (folder / "CHANGELOG.md").read_text().split("\n## ") for folder in (REPOSITORY, tmp_path)
    )
    assert found[1].startswith("9.9.9, 2030-01-01\n")
    assert "\n### Tools\n\n" in found[1]
    assert "\n- One thing is new.\n" in found[1]
    assert (found[0], found[2:]) == (before[0], before[1:])
    assert os.listdir(tmp_path / "news") == ["README.md"]


def test_every_dependency_has_a_tested_version():
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pinned = {line.split("==")[0].lower() for line in lines if "==" in line}
    assert {requirement.name.lower() for requirement in all_requirements()} <= pinned


def test_constraints_hold_versions_and_no_addresses():
    for line in (REPOSITORY / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9_.-]+==[^@/ ]+", line), line


def shell_scripts() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    files = [REPOSITORY / name for name in listed if name]
    return [str(path) for path in files if is_bash(path)]


def is_bash(path: Path) -> bool:
    """Whether the first line names bash, options such as `-l` included."""
    return path.is_file() and re.match(rb"#!.*\bbash\b", path.read_bytes()[:60]) is not None


def test_shell_scripts_are_clean():
    require(shutil.which("shellcheck") is not None, "shellcheck")
    scripts = shell_scripts()
    assert len(scripts) >= 3
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def workflow() -> dict:
    text = (REPOSITORY / ".github/workflows/test.yml").read_text()
    return yaml.safe_load(text)["jobs"]


def test_the_workflow_runs_on_each_python_that_the_course_names():
    named = re.findall(r":: (3\.\d+)", "\n".join(project()["classifiers"]))
    assert workflow()["test"]["strategy"]["matrix"]["python"] == named


def test_the_workflow_calls_targets_and_scripts_that_are_here():
    steps = [step for job in workflow().values() for step in job["steps"]]
    run = [step["run"] for step in steps if "run" in step]
    targets = [line.split()[1] for line in run if line.startswith("make ")]
    assert targets == ["setup", "mirror", "test", "book"]
    for target in targets:
        subprocess.run(
            ["make", "--dry-run", target], cwd=REPOSITORY, check=True, capture_output=True
        )
    assert ".ci/run packages" in run
    assert all(
        re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]) for step in steps if "uses" in step
    )


def test_the_workflow_keeps_the_mirror_where_it_is_and_publishes_the_book_where_it_is_made(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PROFLAB_RECORDINGS", "PROFLAB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(mirror, "BESIDE", tmp_path / "nothing")
    given = {step["name"]: step["with"] for step in workflow()["test"]["steps"] if "with" in step}
    assert Path(given["Public recordings"]["path"]).expanduser() == mirror.mirror_folder()
    assert "hashFiles('tests/recordings.json')" in given["Public recordings"]["key"]
    (book,) = re.findall(
        r"^book: .* in (\S+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE
    )
    assert given["Its pages"]["path"] == book


def test_a_tag_attaches_the_book_to_its_release_as_one_file(tmp_path):
    text = (REPOSITORY / ".github/workflows/test.yml").read_text()
    # YAML 1.1 reads `on` as a truth value.
    assert yaml.safe_load(text)[True]["push"]["tags"] == ["v*"]
    jobs = workflow()
    kept = next(
        step for step in jobs["test"]["steps"] if step.get("name") == "The book of a release"
    )
    taken, *steps = jobs["release"]["steps"]
    assert kept["if"].startswith(jobs["release"]["if"])
    assert kept["with"]["name"] == taken["with"]["name"]
    name = jobs["release"]["env"]["BOOK"]
    (tmp_path / name).mkdir()
    (tmp_path / name / "index.html").write_text("the book")
    # A program that knows of no release
    (tmp_path / "gh").write_text('#!/bin/sh\necho "$@" >>calls\n[ "$2" != view ]\n')
    (tmp_path / "gh").chmod(0o755)
    environment = os.environ | {
        "BOOK": name,
        "GITHUB_REF_NAME": "v1.2.3",
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
    }
    for step in steps:
        subprocess.run(["bash", "-ec", step["run"]], cwd=tmp_path, env=environment, check=True)
    assert f"{name}/index.html" in zipfile.ZipFile(tmp_path / f"{name}.zip").namelist()
    _, created, uploaded = (tmp_path / "calls").read_text().splitlines()
    assert created.startswith("release create v1.2.3 --verify-tag")
    assert uploaded == f"release upload v1.2.3 {name}.zip --clobber"


def test_the_gain_that_the_readme_states_is_the_measured_one_of_the_case():
    steps = case.measured().query("part == 'steady' and not traced")
    sums = steps.groupby("run")[["images", "duration_ns"]].sum()
    rates = 1e9 * sums["images"] / sums["duration_ns"]
    before, after = rates["plain"], rates["batched"]
    gain = f"from {before:,.0f} to {after:,.0f} images/s, {after / before:.1f} times as many"
    text = (REPOSITORY / "README.md").read_text()
    assert f"On one {case.MEASURED_ON}, in single runs, the case went {gain}" in text
    assert f"batched transforms {after / before:.1f} times" in case.shipped()[-1].evidence


def test_make_names_every_target_in_its_help():
    done = subprocess.run(
        ["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    for target in ("setup", "lab", "mirror", "test", "notebooks", "bench"):
        assert f"make {target}" in done.stdout


@pytest.mark.parametrize("target", ["test", "lessons", "lesson-04"])
def test_lessons_run_as_on_a_machine_without_network_and_mirror(target):
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    (run,) = [
        line for line in done.stdout.replace("\\\n", "").splitlines() if "build/combined" in line
    ]
    assert "-p tests.lessons_alone" in run


def test_a_lesson_finds_no_network_and_no_mirror_and_its_cells_are_timed(tmp_path):
    names = ("PROFLAB_OFFLINE", "PROFLAB_RECORDINGS")
    cell = nbformat.v4.new_code_cell(
        f"import os\nassert [os.environ[name] for name in {names}] == ['1', '']"
    )
    path = tmp_path / "lesson.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.lessons_alone",
        "--nbmake",
        "--overwrite",
    ]
    environment = os.environ | {"PROFLAB_RECORDINGS": str(tmp_path)}
    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}", path],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"s  lesson: import os", done.stdout)


@pytest.mark.parametrize(
    ("file", "build", "words"),
    [
        ("dev/kfd", "auto", "there is an AMD GPU, so torch's build for ROCm"),
        ("proc/driver/nvidia/version", "auto", "there is an NVIDIA GPU, so torch's build for CUDA"),
        (None, "cpu", "no GPU is here, so torch's small build for processors"),
    ],
)
@pytest.mark.parametrize("reachable", [True, False])
def test_the_build_of_torch_fits_the_machine(tmp_path, file, build, words, reachable):
    """A made-up machine, and an installer that either finds the builds' index or does not."""
    if file:
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/asked\nexit {0 if reachable else 2}\n')
    uv.chmod(0o755)
    command = [REPOSITORY / "scripts/dev/pick_torch", uv, sys.executable]
    environment = os.environ | {"MACHINE": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert f"--torch-backend {build} torch" in (tmp_path / "asked").read_text()
    assert done.stdout.strip() == (build if reachable else "registry")
    (line,) = done.stderr.splitlines()
    assert words in line
    assert ("can't be reached" in line) is not reachable
    assert "TORCH=rocm7.2" in line


@pytest.mark.parametrize(
    ("installed", "build"),
    [
        ("7.2.1-81", "auto"),
        ("7.14.0", "rocm7.14"),
        ("10.1.0-12", "rocm10.1"),
        ("10.9.0", "auto"),
        ("later", "auto"),
    ],
)
def test_a_machine_with_a_newer_rocm_gets_the_torch_of_that_release(tmp_path, installed, build):
    for name, text in {"dev/kfd": "", "opt/rocm/.info/version": f"{installed}\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    command = [REPOSITORY / "scripts/dev/pick_torch", "true", sys.executable]
    environment = {name: value for name, value in os.environ.items() if name != "ROCM_PATH"}
    environment |= {"MACHINE": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == build


def torch_arguments(
    *words: str, machine: Path = Path("/nowhere")
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, REPOSITORY / "scripts/dev/torch_arguments.py", *words]
    return subprocess.run(
        command, env=os.environ | {"MACHINE": str(machine)}, capture_output=True, text=True
    )


def test_each_production_release_of_rocm_has_a_torch_or_is_refused_with_those_that_have():
    known = uv_backends()
    for release in releases():
        asked = torch_arguments(f"rocm{release.rocm}", "gfx942")
        arguments = asked.stdout.split()
        if asked.returncode:
            assert (asked.stdout, asked.stderr.count("\n")) == ("", 1)
            assert all(f"rocm{rocm}" in asked.stderr for rocm in ("7.2", "7.14", "10.0", "10.1"))
            assert release.preview or not release.confirmed, f"no index for {release.rocm}"
        elif f"rocm{release.rocm}" in known:
            assert arguments == [
                "--torch-backend",
                f"rocm{release.rocm}",
            ], "uv knows it, and follows the index"
        else:
            assert arguments[0] == "--index"
            assert all(f"+rocm{release.rocm}" in word for word in arguments[-2:])


def test_what_the_readme_counts_is_what_is_there():
    """Minutes and hours are made with the notebooks; these are not."""
    text = (REPOSITORY / "README.md").read_text()
    (listed,) = re.findall(r"against the options of \[([^\]]+)\]\(docs/releases.md\)", text)
    assert tuple(re.findall(r"\d+\.\d+", listed)) == shown()
    programs = {path.parent.name for path in (STRANGERS / "gpu").glob("*/script.txt")}
    assert f"[{len(programs)} programs with a known fault](docs/triage.md)" in text
    pythons = re.findall(
        r"Programming Language :: Python :: (3\.\d+)", (REPOSITORY / "pyproject.toml").read_text()
    )
    assert f"| Python | {pythons[0]} to {pythons[-1]} |" in text


def uv_backends() -> set[str]:
    asked = [
        Path(sys.executable).with_name("uv"),
        "pip",
        "install",
        "--torch-backend",
        "nonsense",
        "x",
    ]
    said = subprocess.run(asked, capture_output=True, text=True).stderr
    return set(re.findall(r"rocm[\d.]+\d", said))


def test_kernels_of_torch_are_asked_for_by_architecture(tmp_path):
    everywhere = torch_arguments("rocm10.1")
    assert "torch[device-all]==2.14.0+rocm10.1.0" in everywhere.stdout.split()
    assert "make setup TORCH=rocm10.1 GFX=gfx942" in everywhere.stderr
    for node, version in ((0, 0), (1, 90010), (2, 90402)):
        properties = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{node}/properties"
        properties.parent.mkdir(parents=True)
        properties.write_text(f"simd_count 4\ngfx_target_version {version}\n")
    here = torch_arguments("rocm10.1", machine=tmp_path)
    assert "torchvision[device-gfx90a]==0.29.0a0+rocm10.1.0" in here.stdout.split()
    assert here.stderr.count("\n") == 1
    assert "[" not in torch_arguments("rocm7.14").stdout, "one package for all GPUs"


def test_pages_name_no_build_that_set_up_refuses():
    pages = [
        REPOSITORY / name for name in ("README.md", "Makefile", "scripts/slurm/site.env.example")
    ]
    pages += [*(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "scripts/dev").iterdir()]
    pages += [REPOSITORY / "docs/known-issues.toml"]
    texts = [page.read_text() for page in pages if page.is_file()]
    named = {build for text in texts for build in re.findall(r"TORCH=(rocm[\d.]*\d)", text)}
    assert len(named) >= 2
    assert {build: torch_arguments(build, "gfx942").returncode for build in named} == dict.fromkeys(
        named, 0
    )


FAKE_PROGRAM = f"""#!/bin/sh
case "$*" in *torch_arguments.py*) exec {shlex.quote(sys.executable)} "$@";; esac
echo "$(basename "$0") $*${{UV_DEFAULT_INDEX:+ index $UV_DEFAULT_INDEX}}" >>"$CALLS"
case "$*" in
*"-m venv .venv")
    mkdir -p .venv/bin .venv/lib/python3.11/site-packages/torch
    echo "__version__ = '2.12'" >.venv/lib/python3.11/site-packages/torch/version.py
    for name in python uv jupyter; do cp "$0" ".venv/bin/$name"; done
    ;;
*--editable*) exit "$INSTALLER_ENDS_WITH" ;;
esac
"""


class Clone:
    """The files of set-up in a folder, with programs that only note how they were called."""

    def __init__(self, place: Path) -> None:
        self.place, self.calls = place / "clone with blank", place / "calls"
        scripts = ("setup", "pick_torch", "torch_arguments.py")
        files = ("Makefile", "constraints.txt", "src/proflab/releases.toml")
        projects = ("pyproject.toml", "packages/tidyprof/pyproject.toml")
        for name in (*files, *projects, *(f"scripts/dev/{script}" for script in scripts)):
            (self.place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, self.place / name)
        self.program = place / "python"
        self.program.write_text(FAKE_PROGRAM)
        self.program.chmod(0o755)

    def outdate(self) -> None:
        """As if pyproject.toml were newer than what was installed."""
        for ready in (self.place / ".venv").glob(".ready-*"):
            os.utime(ready, (1, 1))

    def make(self, *words: str, installer_ends_with: int = 0) -> tuple[int, list[str], str]:
        """Exit code, the builds of torch that were installed, and what was said as error."""
        self.calls.write_text("")
        environment = {
            name: value for name, value in os.environ.items() if name not in ("TORCH", "MAKEFLAGS")
        }
        environment |= {"CALLS": str(self.calls), "MACHINE": str(self.place / "nothing")}
        done = subprocess.run(
            ["make", f"PYTHON={self.program}", *words],
            cwd=self.place,
            env=environment | {"INSTALLER_ENDS_WITH": str(installer_ends_with)},
            capture_output=True,
            text=True,
        )
        installed = re.findall(
            r"(?:--torch-backend |==\S+\+)(\S+) --editable", self.calls.read_text()
        )
        return done.returncode, installed, done.stderr


def test_the_build_of_torch_that_was_asked_for_stays_until_another_is(tmp_path):
    clone = Clone(tmp_path)
    assert clone.make("lab")[:2] == (0, ["cpu"])
    assert clone.make("setup", "TORCH=rocm7.2")[:2] == (0, ["rocm7.2"])
    assert clone.make("lab")[:2] == (0, [])
    assert "jupyter lab" in clone.calls.read_text()
    clone.outdate()
    code, installed, _ = clone.make("lab", installer_ends_with=1)
    assert code != 0
    assert installed == ["rocm7.2"]
    assert "jupyter lab" not in clone.calls.read_text()
    assert clone.make("lab")[:2] == (
        0,
        ["rocm7.2"],
    ), "a set-up that failed keeps what was asked for, and is done again"
    assert clone.make("setup", "TORCH=cpu")[:2] == (0, ["cpu"])
    assert clone.make("lab")[:2] == (0, [])


def test_set_up_takes_the_index_of_a_release_that_the_installer_does_not_know(tmp_path):
    clone = Clone(tmp_path)
    code, installed, said = clone.make("setup", "TORCH=rocm10.1", "GFX=gfx942")
    assert (code, installed) == (0, ["rocm10.1.0"])
    assert "comes from https://stable.repo.amd.com/rocm/whl-next/" in said
    code, installed, said = clone.make("setup", "TORCH=rocm11.9")
    assert code != 0
    assert installed == []
    assert "no index of packages is known to have a torch for rocm11.9; those that are: " in said
    assert clone.make("lab")[:2] == (0, []), "what was refused is not remembered"


@pytest.mark.parametrize("move", [shutil.move, shutil.copytree])
def test_a_clone_that_was_moved_or_copied_is_told_how_to_set_up_again(tmp_path, move):
    clone = Clone(tmp_path)
    assert clone.make("setup", "TORCH=rocm7.2")[0] == 0
    old, clone.place = clone.place, tmp_path / "renamed"
    move(old, clone.place)
    code, installed, said = clone.make("lab")
    assert code != 0
    assert installed == []
    assert f"belongs to {old}; make it anew here: rm -rf .venv && make setup TORCH=rocm7.2" in said
    shutil.rmtree(clone.place / ".venv")
    assert clone.make("setup", "TORCH=rocm7.2")[:2] == (0, ["rocm7.2"])
    assert clone.make("lab")[:2] == (0, [])


def test_a_clone_under_two_names_is_where_it_was(tmp_path):
    clone = Clone(tmp_path)
    assert clone.make("setup")[0] == 0
    (tmp_path / "elsewhere").mkdir()
    clone.place.rename(tmp_path / "elsewhere" / "clone")
    clone.place.symlink_to(tmp_path / "elsewhere" / "clone")
    assert clone.make("lab")[:2] == (0, [])


def test_only_who_develops_gets_the_developers_tools(tmp_path):
    clone = Clone(tmp_path)
    assert clone.make("lab")[0] == 0
    assert "--editable .[train,lab]\n" in clone.calls.read_text()
    assert "[dev]" not in clone.calls.read_text()
    assert clone.make("--dry-run", "test")[0] == 0
    assert clone.make(".venv/.dev")[:2] == (0, [])
    assert "--editable .[dev]\n" in clone.calls.read_text()


@pytest.mark.parametrize(
    "name",
    ["a b", "it's", "$HOME", "a; touch run", 'a"b', "`touch run`", "a&b", "(a)", "a*", "a#b"],
)
def test_make_works_in_a_folder_of_any_name(tmp_path, name):
    clone = Clone(tmp_path)
    clone.place = clone.place.rename(tmp_path / name)
    clone.program = clone.program.rename(tmp_path / "my python")
    assert clone.make("lab")[:2] == (0, ["cpu"])
    assert f" --ServerApp.root_dir={clone.place} --LabApp" in clone.calls.read_text()
    assert not list(tmp_path.rglob("run"))


def test_settings_of_pip_for_other_places_do_not_lead_uv_away(tmp_path):
    """A wheel of uv that holds nothing is installed by the lines of set-up, under what clusters
    often set.
    """
    setup = (REPOSITORY / "scripts/dev/setup").read_text()
    script = re.search(r"^unset PIP_.*\n.* -m pip install .* uv(?= \|\|$)", setup, re.MULTILINE)[0]
    script = script.replace(
        "--constraint constraints.txt uv", f"--no-index --force-reinstall {empty_wheel(tmp_path)}"
    )
    (tmp_path / "pip.conf").write_text("[install]\nuser = true\n")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / ".venv"], check=True)
    elsewhere = tmp_path / "elsewhere"
    for name, value in {
        "PIP_USER": "1",
        "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"),
        "PIP_TARGET": str(elsewhere),
        "PIP_PREFIX": str(elsewhere),
        "PIP_ROOT": str(elsewhere),
    }.items():
        subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=os.environ | {name: value}, check=True
        )
        (found,) = tmp_path.rglob("uv-1.dist-info")
        assert found.is_relative_to(tmp_path / ".venv")
        shutil.rmtree(found)


def empty_wheel(folder: Path) -> Path:
    path = folder / "uv-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("uv-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 1\n")
        wheel.writestr(
            "uv-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("uv-1.dist-info/RECORD", "")
    return path


def test_uv_takes_the_mirror_that_pip_was_given(tmp_path, monkeypatch):
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    clone = Clone(tmp_path)
    assert clone.make("setup")[0] == 0
    assert "index" not in clone.calls.read_text()
    monkeypatch.setenv("PIP_INDEX_URL", "https://u:pa$s@mirror.example/simple")
    clone.outdate()
    assert clone.make("setup")[0] == 0
    assert (
        "--editable .[train,lab] index https://u:pa$s@mirror.example/simple\n"
        in clone.calls.read_text()
    )
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own.example")
    clone.outdate()
    assert clone.make("setup")[0] == 0
    assert "--editable .[train,lab] index https://own.example\n" in clone.calls.read_text()


LESSONS = ("notebooks/00_start_here.ipynb", "notebooks/01_system_view.ipynb")


def use_filter(clone: Path) -> None:
    """Install git's filter of lessons as set-up does."""
    (command,) = re.findall(
        r"filter\.lesson\.clean '([^']+)'", (REPOSITORY / "scripts/dev/setup").read_text()
    )
    python = command.replace(".venv/bin/python", shlex.quote(sys.executable))
    git(clone, "config", "filter.lesson.clean", python)


@pytest.fixture
def shipped(tmp_path) -> Path:
    """A lesson in a repository of its own, with the filter as set-up installs it."""
    for name in (".gitattributes", "tools/notebooks/clean.py", *LESSONS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    git(tmp_path, "init", "--quiet")
    use_filter(tmp_path)
    git(tmp_path, "add", ".")
    return tmp_path / LESSONS[0]


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def run_in_jupyterlab(path: Path, answer: str = "...") -> None:
    """What JupyterLab and a run change in a lesson's file: metadata, counts, outputs, and here one
    answer.
    """
    notebook = nbformat.read(path, 4)
    notebook.metadata.language_info |= {"version": "3.12.1", "mimetype": "text/x-python"}
    notebook.metadata.kernelspec.display_name = "Python 3 (ipykernel)"
    for cell in notebook.cells:
        cell.metadata["scrolled"] = True
        if cell.cell_type == "code":
            cell.metadata["execution"] = {"shell.execute_reply": "2026-11-24T00:00:00Z"}
            cell.execution_count, cell.outputs = 3, [nbformat.v4.new_output("stream", text="94 ms")]
    asked = next(cell for cell in notebook.cells if "answer = ..." in cell.source)
    asked.source = asked.source.replace("answer = ...", f"answer = {answer}")
    nbformat.write(notebook, path)


def test_a_lesson_that_was_run_is_no_change_for_git(shipped):
    run_in_jupyterlab(shipped)
    assert git(shipped.parent, "diff", "--stat") == ""


def test_an_answer_is_one_changed_line(shipped):
    run_in_jupyterlab(shipped, answer="94")
    assert git(shipped.parent, "diff", "--numstat").split()[:2] == ["1", "1"]


@pytest.fixture
def pulled(shipped, tmp_path_factory, monkeypatch) -> tuple[Path, Callable[[str], None]]:
    """A learner's clone, in which the first lesson was run and the second answered, too; and what
    publishes a new last cell of a lesson.
    """
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)  # somebody may have git pull rebase
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "somebody@example.org")
    author, clone = shipped.parents[1], tmp_path_factory.mktemp("learner") / "clone"
    upstream = tmp_path_factory.mktemp("upstream")
    git(upstream, "init", "--quiet", "--bare")

    def publish(lesson: str) -> None:
        notebook = nbformat.read(author / lesson, 4)
        notebook.cells[-1].source += "\nnew words"
        nbformat.write(notebook, author / lesson)
        git(author, "commit", "--quiet", "--all", "--message", lesson)
        git(author, "push", "--quiet", str(upstream), "HEAD")

    git(author, "commit", "--quiet", "--message", "first")
    git(author, "push", "--quiet", str(upstream), "HEAD")
    git(upstream, "clone", "--quiet", str(upstream), str(clone))
    use_filter(clone)
    run_in_jupyterlab(clone / LESSONS[0])
    run_in_jupyterlab(clone / LESSONS[1], answer="94")
    return clone, publish


def test_a_lesson_that_was_run_is_pulled_as_readme_says_and_answers_stay(pulled):
    clone, publish = pulled
    publish(LESSONS[0])
    with pytest.raises(subprocess.CalledProcessError):
        git(clone, "pull", "--quiet")
    words = " ".join((REPOSITORY / "README.md").read_text().split())
    assert "`git add -u notebooks`: do that before `git pull`" in words
    git(clone, "add", "-u", "notebooks")
    git(clone, "pull", "--quiet")
    assert "new words" in (clone / LESSONS[0]).read_text()
    assert "answer = 94" in (clone / LESSONS[1]).read_text()
    assert git(clone, "status", "--short").split() == ["M", LESSONS[1]]


def test_a_lesson_with_answers_that_changed_is_brought_together_as_readme_says(pulled):
    clone, publish = pulled
    publish(LESSONS[1])
    git(clone, "add", "-u", "notebooks")
    with pytest.raises(subprocess.CalledProcessError):
        git(clone, "pull", "--quiet")
    assert "`git stash`, `git pull`, `git stash pop`" in (REPOSITORY / "README.md").read_text()
    for words in (["stash"], ["pull", "--quiet"], ["stash", "pop"]):
        git(clone, *words)
    notebook = nbformat.read(clone / LESSONS[1], 4)
    assert notebook.cells[-1].source.endswith("new words")
    assert any("answer = 94" in cell.source for cell in notebook.cells)


def test_a_file_that_is_no_notebook_passes_the_filter_as_it_is(shipped):
    shipped.write_text("<<<<<<< a merge was not finished\n")
    git(shipped.parent, "add", shipped.name)
    assert git(shipped.parent, "show", f":notebooks/{shipped.name}") == shipped.read_text()


def test_the_container_of_an_editor_has_the_courses_kernel_and_no_other(tmp_path):
    container = json.loads((REPOSITORY / ".devcontainer/devcontainer.json").read_text())
    set_up, kernel = container["postCreateCommand"].split(" && ")
    assert set_up == "make setup TORCH=cpu"
    command = [sys.executable, *shlex.split(kernel.removeprefix(".venv/bin/python "))]
    subprocess.run(
        command, env=os.environ | {"HOME": str(tmp_path)}, check=True, capture_output=True
    )
    (spec,) = tmp_path.rglob("kernel.json")
    wanted = nbformat.read(REPOSITORY / "notebooks/00_start_here.ipynb", 4).metadata.kernelspec.name
    assert (spec.parent.name, json.loads(spec.read_text())["argv"][0]) == (wanted, sys.executable)


def test_binder_installs_the_course_once_from_where_it_is_with_the_small_build_of_torch(tmp_path):
    environment = yaml.safe_load((REPOSITORY / "binder/environment.yml").read_text())
    assert [re.split(r"[=<>]", entry)[0] for entry in environment["dependencies"]] == [
        "python",
        "uv",
    ]
    (tmp_path / "uv").write_text(f'#!/bin/sh\necho "$PWD" "$@" >>{tmp_path}/asked\n')
    (tmp_path / "uv").chmod(0o755)
    paths = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    # Binder runs it by its path, in the repository (https://repo2docker.readthedocs.io/).
    subprocess.run(
        [REPOSITORY / "binder/postBuild"],
        cwd=REPOSITORY,
        env=os.environ | {"PATH": paths},
        check=True,
    )
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert asked.startswith(f"{REPOSITORY} pip install ")
    assert asked.endswith(" --torch-backend cpu --editable .[train,lab]")


def section(name: str) -> str:
    """The lines of a section of the image's definition, without their indent."""
    text = (REPOSITORY / "packaging/apptainer.def").read_text()
    return textwrap.dedent(re.search(rf"^%{name}\n((?:    .*\n|\n)*)", text, re.MULTILINE)[1])


def test_the_image_is_pinned_and_takes_what_the_wheel_and_the_lessons_need():
    text = (REPOSITORY / "packaging/apptainer.def").read_text()
    python = re.search(
        r"^From: rocm/pytorch:rocm[\d.]+_ubuntu[\d.]+_py(3\.\d+)_pytorch_release_[\d.]+$",
        text,
        re.MULTILINE,
    )
    assert f"Programming Language :: Python :: {python[1]}" in project()["classifiers"]
    trained = project()["optional-dependencies"]["train"]
    assert next(need for need in trained if need.startswith("transformers")) in section("post")
    taken = [line.split() for line in section("files").strip().splitlines()]
    assert all(
        place == f"/opt/course/{source}" or place == f"/opt/course/{source.partition('/')[0]}/"
        for source, place in taken
    )
    sources = {
        source if source.startswith("packages/") else source.partition("/")[0]
        for source, _ in taken
    }
    wheel = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    tidyprof = project(HOUSE)
    assert sources >= {
        "pyproject.toml",
        project()["readme"],
        *project()["license-files"],
        "src",
        *wheel["force-include"],
        *(f"packages/tidyprof/{part}" for part in ("pyproject.toml", "src")),
        *(f"packages/tidyprof/{part}" for part in (tidyprof["readme"], *tidyprof["license-files"])),
    }
    copied = re.search(r"for part in (.*); do", section("runscript"))[1].split()
    assert sources >= {"notebooks", *copied}
    listed = set(git(REPOSITORY, "ls-files").splitlines())
    assert all(
        any(file == source or file.startswith(f"{source}/") for file in listed)
        for source in sources
    )


def test_the_image_starts_in_a_copy_that_can_be_written_to_and_stays(tmp_path):
    for part in ("notebooks", "docs", "snippets", "scripts", "packages/tidyprof/docs"):
        (tmp_path / "image" / part).mkdir(parents=True)
        (tmp_path / "image" / part / "file").write_text("as shipped")
    (tmp_path / "python3").write_text(
        f'#!/bin/sh\necho "$PWD" "$COURSE_DIR" "$@" >>{tmp_path}/started\n'
    )
    (tmp_path / "python3").chmod(0o755)
    script = section("runscript").replace("/opt/course", str(tmp_path / "image"))
    environment = os.environ | {
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
    }
    environment.pop("COURSE_DIR", None)
    here = tmp_path / "rocm-profiling-course"
    for elsewhere in ({}, {}, {"COURSE_DIR": str(tmp_path / "mine")}):
        subprocess.run(
            ["sh", "-c", script, "run", "--port=1"], env=environment | elsewhere, check=True
        )
        (here / "notebooks/file").write_text("an answer")
    assert (tmp_path / "mine/notebooks/file").read_text() == "as shipped"
    assert (tmp_path / "mine/packages/tidyprof/docs/file").read_text() == "as shipped"
    assert (here / "notebooks/file").read_text() == "an answer"
    places = [line.split()[:2] for line in (tmp_path / "started").read_text().splitlines()]
    assert places == 2 * [2 * [str(here)]] + [2 * [str(tmp_path / "mine")]]
    assert "COURSE_DIR" in section("help")


def test_the_words_of_readmes_picture_are_those_of_its_exercise():
    words = re.search(r'first_look.png" alt="([^"]+)"', (REPOSITORY / "README.md").read_text())[1]
    assert f"question {readme_picture.EXERCISE}: " in words
    replies = [mistake.message for mistake in find(readme_picture.EXERCISE).mistakes]
    said = words.rpartition("not yet right, ")[2].rstrip(".").partition(", ")
    assert any(said[0] in text.lower() and said[2] in text.lower() for text in replies)
