"""The gate as a command, for all tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tidyprof.cli.main import main

Judged = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def judged(capsys: pytest.CaptureFixture[str]) -> Judged:
    """A function that runs the gate: its exit code and its verdict."""

    def gate(*arguments: object) -> tuple[int, dict[str, Any]]:
        code = main(["gate", *map(str, arguments), "--json", "-"])
        return code, json.loads(capsys.readouterr().out)

    return gate
