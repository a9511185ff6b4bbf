"""Every command on every recording, and on what is left of it where something was not recorded: it
ends with 0, or with 2 and one line that names the file. Analyses give a table, or say in a
ValueError of their own what they lack.
"""

from __future__ import annotations

import tomllib
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tidyprof
from tidyprof import Profile, ProfileReadError, analyses
from tidyprof.cli import main as cli
from tidyprof.cli.commands import COMMANDS
from tidyprof.readers.registry import read
from tidyprof_tests.conftest import HOUSE, REPOSITORY, others_later
from tidyprof_tests.cuts import cut_profiles, cut_traces

PACKAGE = Path(tidyprof.__file__).parent
READING = (
    "tidyprof.cli.commands",
    "tidyprof.cli.triage",
    "tidyprof.gate.runs",
    "tidyprof.parallel",
)
"""Modules that commands read with."""

PUBLIC = tomllib.loads((HOUSE / "tests/tidyprof_tests/triage/expected.toml").read_text())
SHIPPED = sorted(
    str(path.relative_to(REPOSITORY))
    for pattern in (
        "recordings/modeled-*/*",
        "recordings/torch-*",
        "recordings/rocprof-sys-cpu/*output",
        "recordings/cuts/r*",
        "recordings/cuts/smi*/monitoring",
        "recordings/cuts/torch-*",
        "packages/tidyprof/tests/third_party/traces/*",
    )
    for path in REPOSITORY.glob(pattern)
)
NOW = {
    "recordings/cuts/torch-mi300x-compile-triton",
    "recordings/cuts/rocprof-compute-mi200-vcopy",
    "recordings/cuts/rocprofv3-csv-gfx1151-llamacpp-decode",
    "recordings/cuts/rpd-mi200-matmul",
    "recordings/modeled-resnet/amd-smi",
    "packages/tidyprof/tests/third_party/traces/two_rank_recommender",
    "torch-mi250-minitoy",
    "rocprofv3-lumi-taylor/kernel_trace.csv",
}
"""Small ones of each tool, with a GPU and without, with steps and without, of one rank and of
two.
"""

OF_MORE_THAN_A_PROFILE = {
    "DeviceTime",
    "budget_parts",
    "compare",
    "compare_ranks",
}
"""Names of tidyprof.analyses that are not called with a profile alone."""


def commands(path: Path, other: Path, folder: Path) -> Iterator[tuple[str | Path, ...]]:
    """Each command, and what it does in another way. other -- the recording to compare with."""
    yield "summary", path
    yield "table", "kernels", path, "--top", "3", "--csv", folder / "kernels.csv"
    yield "table", "busy", path
    yield "table", "steps", path
    yield "table", "steps", path, "--timeline", "device", "--csv", folder / "steps.csv"
    yield "table", "steps", path, "--step-marker", "aten::mm", "--timeline", "device"
    yield "table", "compare", path, other, "--top", "3"
    yield "gate", other, path, "--json", folder / "gate.json"
    yield "triage", path, "--json", folder / "triage.json"
    yield "triage", path, "--step-marker", "aten::mm"
    yield "hang", path
    yield "isa", path


def test_no_command_is_left_out(tmp_path: Path):
    assert {command for command, *_ in commands(tmp_path, tmp_path, tmp_path)} == {*COMMANDS}


@pytest.fixture
def tried(capsys, monkeypatch, tmp_path):
    """What is wrong with the commands on a recording, each file of which is read once."""
    known: dict[tuple[str, bool], Profile] = {}

    def reading(path: str | Path, python_functions: bool = False, **options: Any) -> Profile:
        key = str(path), python_functions
        if key not in known:
            known[key] = read(path, python_functions=python_functions, **options)
        return known[key]

    for module in READING:
        monkeypatch.setattr(f"{module}.read", reading)

    def problems(path: Path, other: Path, profile: Profile | None = None) -> list[str]:
        if profile is not None:
            known.update({(str(path), functions): profile for functions in (False, True)})
        found = [
            f"{' '.join(map(str, command))}: {problem}"
            for command in commands(path, other, tmp_path)
            if (problem := wrong_in(command, (path, other), capsys))
        ]
        for key in [key for key in known if key[0] != str(other)]:
            del known[key]  # cuts of a large recording would fill the memory
        return found

    return problems


def wrong_in(
    command: tuple[str | Path, ...], paths: tuple[Path, ...], capsys: pytest.CaptureFixture[str]
) -> str:
    """What is wrong with the way a command ended that read some of these paths; nothing if nothing
    is.
    """
    code = cli.main([str(argument) for argument in command])
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
    if code == 2:
        named = len(lines) == 1 and any(lines[0].startswith(f"error: {path}") for path in paths)
        return "" if named else f"exit code 2, {err}"
    sound = code == 0 or (code == 1 and command[0] == "gate")
    return "" if sound and out.strip() and not lines else f"exit code {code}, {err}"


def wrong_in_analyses(profile: Profile) -> Iterator[str]:
    """The analyses that a ValueError of pandas or numpy ended; what else they raise ends the
    test.
    """
    for name in sorted({*analyses.__all__} - OF_MORE_THAN_A_PROFILE):
        try:
            getattr(analyses, name)(profile)
        except ValueError as error:
            if not Path(traceback.extract_tb(error.__traceback__)[-1].filename).is_relative_to(
                PACKAGE
            ):
                yield f"{name}: {error!r}"


def place_of(name: str, request: pytest.FixtureRequest) -> Path:
    return REPOSITORY / name if name in SHIPPED else request.getfixturevalue("recordings") / name


@pytest.mark.parametrize("name", others_later([*SHIPPED, *PUBLIC], NOW))
def test_a_command_ends_with_a_result_or_one_line(
    name: str, request: pytest.FixtureRequest, tried: Callable[..., list[str]], tmp_path: Path
):
    path = place_of(name, request)
    found = tried(path, path)
    try:
        whole = tidyprof.read(path)
    except ProfileReadError:
        whole = None
    if whole is not None and whole.meta["tool"] == "torch.profiler":
        for cut, file in cut_traces([Path(file) for file in whole.meta["files"]], tmp_path):
            found += [f"{cut}: {problem}" for problem in tried(file, path)]
    elif whole is not None:
        for cut, profile in cut_profiles(whole):
            wrong = [*tried(tmp_path / cut, path, profile), *wrong_in_analyses(profile)]
            found += [f"{cut}: {problem}" for problem in wrong]
    assert not found, "\n".join(found)
