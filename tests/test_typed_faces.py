"""What editors and type checkers see of the packages whose names are loaded at their first use."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pytest

import proflab
import tidyprof
from tests.conftest import REPOSITORY
from tidyprof.readers.registry import FORMATS, ReadOptions, read
from tidyprof.tables.contract import Origin, Profile

PACKAGES = (proflab, tidyprof)
WRONG_CALLS = (
    "tidyprof.read(1, 2, 3)",
    "tidyprof.read('trace.json', ranks=1)",
    "tidyprof.read('trace.json', rank='first')",
    "tidyprof.map_profiles(['trace.json'], tidyprof.kernels, ranks=1)",
    "tidyprof.read_torch_trace('trace.json', rank='first')",
    "tidyprof.kernels('trace.json')",
    "tidyprof.kernels(tidyprof.read('trace.json'), wrong=1)",
    "tidyprof.plots.top_kernel",
    "tidyprof.wrong",
    "proflab.wrong",
)
RIGHT_CALLS = (
    "tidyprof.kernels(tidyprof.read('trace.json', rank=0, python_functions=True))",
    "tidyprof.map_profiles(['trace.json'], tidyprof.kernels, rank=0)",
    "tidyprof.plots.top_kernels(tidyprof.kernels(tidyprof.read('trace.json')))",
)


def names() -> list[str]:
    return [f"{package.__name__}.{name}" for package in PACKAGES for name in package.__all__]


@pytest.fixture(scope="module")
def type_messages(tmp_path_factory) -> dict[str, str]:
    """What mypy says to each line of a program, by the line."""
    folder = tmp_path_factory.mktemp("typed")
    lines = [f"import {package.__name__}" for package in PACKAGES]
    lines += [f"reveal_type({name})" for name in names()]
    lines += [*WRONG_CALLS, *RIGHT_CALLS]
    (folder / "program.py").write_text("\n".join(lines))
    checks = ("--enable-error-code=arg-type", "--enable-error-code=misc", "--follow-imports=silent")
    command = [sys.executable, "-m", "mypy", *checks, "--cache-dir", str(folder / "cache")]
    done = subprocess.run(
        [*command, str(folder / "program.py")],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    answers = re.findall(r"program\.py:(\d+): \w+: (.*)", done.stdout)
    return {
        line: "\n".join(text for number, text in answers if int(number) == place)
        for place, line in enumerate(lines, 1)
    }


def test_no_public_name_is_any(type_messages):
    assert [
        name
        for name in names()
        if type_messages[f"reveal_type({name})"] in ("", 'Revealed type is "Any"')
    ] == []


@pytest.mark.parametrize("call", WRONG_CALLS)
def test_a_wrong_call_is_refused(call, type_messages):
    assert type_messages[call]


@pytest.mark.parametrize("call", RIGHT_CALLS)
def test_a_right_call_is_not(call, type_messages):
    assert type_messages[call] == ""


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_name_is_there_and_is_listed(package: ModuleType):
    """`__all__` comes from the imports of the stub; a type checker goes by the `__all__` that is
    written there.
    """
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    (written,) = [
        ast.literal_eval(node.value) for node in stub.body if isinstance(node, ast.Assign)
    ]
    assert sorted(written) == package.__all__
    assert [name for name in (*dir(package), *package.__all__) if not hasattr(package, name)] == []
    with pytest.raises(
        AttributeError, match=f"module '{package.__name__}' has no attribute 'wrong'"
    ):
        package.wrong  # noqa: B018


def options_of(reader: Callable[..., Profile]) -> dict[str, Any]:
    """The types of what a reader takes by name alone."""
    hints = get_type_hints(reader, localns={"Origin": Origin, "Profile": Profile})
    parameters = signature(reader).parameters.values()
    return {one.name: hints[one.name] for one in parameters if one.kind is Parameter.KEYWORD_ONLY}


def test_read_takes_what_any_reader_takes():
    wanted: dict[str, Any] = {}
    for known in FORMATS:
        wanted |= options_of(known.read)
    # What stands for None differs from reader to reader.
    wanted |= {name: wanted[name] | None for name in ("maximum_bytes", "only")}
    assert options_of(read) == wanted
    assert set(ReadOptions.__annotations__) == set(wanted)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_it_says_that_it_is_typed(package: ModuleType):
    assert Path(package.__file__).with_name("py.typed").is_file()
