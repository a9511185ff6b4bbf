"""Checks of the files around the code: dependencies, versions, scripts, the workflow, set-up."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement

from proflab import case
from proflab.releases import releases
from tests.conftest import REPOSITORY, require
from tidyprof_tests.conftest import HOUSE

CONDA_NAMES = {"python-isal": "isal", "msgspec-python": "msgspec"}
"""conda-forge's names where they differ from the registry's."""


LESSON = "notebooks/00_start_here.ipynb"


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
    wanted = {requirement_key(requirement) for requirement in all_requirements()}
    conda = yaml.safe_load((REPOSITORY / "environment.yml").read_text())["dependencies"]
    (pip,) = [entry["pip"] for entry in conda if isinstance(entry, dict)]
    found = {requirement_key(Requirement(line)) for line in pip[:-2]}
    for line in [entry for entry in conda if isinstance(entry, str)]:
        name, bounds = re.fullmatch(r"([\w-]+)(>=[\d.]+(?:,<[\d.]+)?)?", line).groups()
        found.add((CONDA_NAMES.get(name, name), bounds or "", ""))
    assert pip[-2:] == ["--editable ./packages/tidyprof", "--editable ."]
    newest = max(
        int(minor) for minor in re.findall(r":: 3\.(\d+)", "\n".join(described["classifiers"]))
    )
    python = ("python", f"{described['requires-python']},<3.{newest + 1}", "")
    assert found == wanted | {python, ("pip", "", "")}


def requirement_key(requirement: Requirement) -> tuple[str, str, str]:
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


def workflow(name: str) -> dict:
    text = (REPOSITORY / f".github/workflows/{name}.yml").read_text()
    return yaml.safe_load(text)["jobs"]


def steps_of(name: str) -> list[dict]:
    return [step for job in workflow(name).values() for step in job["steps"]]


def test_the_workflow_runs_on_each_python_that_the_course_names():
    named = re.findall(r":: (3\.\d+)", "\n".join(project()["classifiers"]))
    assert workflow("test")["test"]["strategy"]["matrix"]["python"] == named


def test_the_workflow_calls_targets_and_scripts_that_are_here():
    run = [step["run"] for step in steps_of("test") if "run" in step]
    targets = [line.split()[1] for line in run if line.startswith("make ")]
    assert targets == ["setup", "mirror", "test", "book"]
    for target in targets:
        subprocess.run(
            ["make", "--dry-run", target], cwd=REPOSITORY, check=True, capture_output=True
        )
    assert ".ci/run packages" in run


@pytest.mark.parametrize("name", ["release", "test"])
def test_a_workflow_uses_actions_of_github_alone(name):
    used = [step["uses"] for step in steps_of(name) if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", action) for action in used)


def test_publishing_waits_for_the_trial_and_a_maintainer():
    publish = workflow("release")["publish"]
    assert "try" in publish["needs"]
    assert "vars.PUBLISH_TIDYPROF == 'true'" in publish["if"]


def test_one_file_names_the_address_of_the_repository():
    address = project(HOUSE)["urls"]["Repository"]
    listed = git(REPOSITORY, "grep", "--files-with-matches", "--fixed-strings", address).split()
    assert listed == ["packages/tidyprof/pyproject.toml"]


def test_the_gain_that_the_readme_states_is_the_measured_one():
    steps = case.measured().query("part == 'steady' and not traced")
    sums = steps.groupby("run")[["images", "duration_ns"]].sum()
    rates = 1e9 * sums["images"] / sums["duration_ns"]
    before, after = rates["plain"], rates["batched"]
    numbers = set(re.findall(r"[\d,.]*\d", (REPOSITORY / "README.md").read_text()))
    assert {f"{before:,.0f}", f"{after:,.0f}", f"{after / before:.1f}"} <= numbers


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
    ("file", "build"),
    [("dev/kfd", "auto"), ("proc/driver/nvidia/version", "auto"), (None, "cpu")],
)
@pytest.mark.parametrize("reachable", [True, False])
def test_the_build_of_torch_fits_the_machine(tmp_path, file, build, reachable):
    """The installer is a script that either finds the index of that build or doesn't."""
    if file:
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\nexit {0 if reachable else 2}\n")
    uv.chmod(0o755)
    command = [REPOSITORY / "scripts/dev/pick_torch", uv, sys.executable]
    environment = os.environ | {"MACHINE": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == (build if reachable else "registry")


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


@pytest.mark.parametrize("build", ["rocm6.2", "rocm6.2.2"])
def test_an_index_that_ends_before_the_oldest_torch_is_refused_in_one_line(build):
    asked = torch_arguments(build)
    assert (asked.returncode, asked.stdout, asked.stderr.count("\n")) == (2, "", 1)
    assert build in asked.stderr
    assert "2.5.1" in asked.stderr
    assert "rocm6.2.4" in asked.stderr
    assert "rocm6.2 " not in asked.stderr.partition("Choose")[2]


@pytest.mark.parametrize(
    ("build", "backend"),
    [("rocm7.2.4", "rocm7.2"), ("rocm6.4.1", "rocm6.4"), ("rocm6.2.4", "rocm6.2.4")],
)
def test_uv_gets_a_release_that_it_knows_for_a_patch_release(build, backend):
    assert torch_arguments(build).stdout.split() == ["--torch-backend", backend]
    assert backend in uv_backends()


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


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


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
    for name in (".gitattributes", "tools/notebooks/clean.py", LESSON):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    git(tmp_path, "init", "--quiet")
    use_filter(tmp_path)
    git(tmp_path, "add", ".")
    return tmp_path / LESSON


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


@pytest.mark.parametrize(("answer", "changed"), [("...", []), ("94", ["1", "1"])])
def test_git_sees_an_answer_and_no_output_of_a_lesson(shipped, answer, changed):
    run_in_jupyterlab(shipped, answer)
    assert git(shipped.parent, "diff", "--numstat").split()[:2] == changed
