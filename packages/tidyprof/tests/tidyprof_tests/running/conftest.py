"""The hooks as a package, once for all tests of a process."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from tidyprof.running.launch import HERE


@pytest.fixture(scope="session")
def inside() -> ModuleType:
    """The package of the hooks, under the name that it has in a program."""
    folder = HERE / "inside"
    spec = importlib.util.spec_from_file_location(
        "tidyprof_inside", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["tidyprof_inside"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import tidyprof_inside.files
    import tidyprof_inside.hooks
    import tidyprof_inside.steps  # noqa: F401

    return module
