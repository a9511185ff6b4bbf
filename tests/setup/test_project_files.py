"""The files around the code: dependencies, scripts, and what must not stand in them."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tests.conftest import REPOSITORY, require

CONDA_NAMES = {"python-isal": "isal", "msgspec-python": "msgspec"}
"""conda-forge's names where they differ from the registry's."""


def project() -> dict:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def all_requirements() -> list[Requirement]:
    described = project()
    extras = described["optional-dependencies"].values()
    return [Requirement(line) for line in itertools.chain(described["dependencies"], *extras)]


def test_environment_and_pyproject_tell_the_same_story():
    described = project()
    wanted = {told(requirement) for requirement in all_requirements()}
    conda = yaml.safe_load((REPOSITORY / "environment.yml").read_text())["dependencies"]
    (pip,) = [entry["pip"] for entry in conda if isinstance(entry, dict)]
    found = {told(Requirement(line)) for line in pip[:-1]}
    for line in [entry for entry in conda if isinstance(entry, str)]:
        name, bound, version = re.fullmatch(r"([\w-]+)(>=)?([\d.]+)?", line).groups()
        found.add((CONDA_NAMES.get(name, name), f"{bound}{version}" if bound else "", ""))
    assert pip[-1] == "--editable ."
    assert found - {("python", described["requires-python"], ""), ("pip", "", "")} == wanted
    assert ("python", described["requires-python"], "") in found


def told(requirement: Requirement) -> tuple[str, str, str]:
    """Name, bounds, and for which Python; empty where a requirement says nothing."""
    return requirement.name, str(requirement.specifier), str(requirement.marker or "")


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


def test_make_names_every_target_in_its_help():
    done = subprocess.run(["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for target in ("setup", "lab", "test", "notebooks", "bench"):
        assert f"make {target}" in done.stdout


def test_lessons_run_as_on_a_machine_without_network_and_mirror():
    command = ["make", "--dry-run", "lessons"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    (run,) = [line for line in done.stdout.splitlines() if "build/combined" in line]
    assert "PROFLAB_OFFLINE=1 PROFLAB_RECORDINGS= PROFLAB_CACHE=" in run


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
    command = [REPOSITORY / "scripts/dev/pick_torch", uv, "python"]
    environment = os.environ | {"MACHINE": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert f"--torch-backend {build} torch" in (tmp_path / "asked").read_text()
    assert done.stdout.strip() == (build if reachable else "registry")
    (line,) = done.stderr.splitlines()
    assert words in line
    assert ("can't be reached" in line) is not reachable
    assert "TORCH=rocm7.2" in line


def test_the_other_doors_lead_to_the_same_packages():
    container = json.loads((REPOSITORY / ".devcontainer/devcontainer.json").read_text())
    assert container["postCreateCommand"].startswith("make setup")
    assert (REPOSITORY / "binder/environment.yml").resolve() == REPOSITORY / "environment.yml"
    assert os.access(REPOSITORY / "binder/postBuild", os.X_OK)
    image = (REPOSITORY / "packaging/apptainer.def").read_text()
    trained = project()["optional-dependencies"]["train"]
    assert next(need for need in trained if need.startswith("transformers")) in image
