"""The module that Python imports by itself when a watched program starts: it waits until the
program imports torch, and does not import torch itself.

A sitecustomize of the machine, which this one hides, runs as well. The hooks lie in the folder
beside this one, and are loaded by their path: tidyprof need not be installed for the Python that
runs the program.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))
ASKED = "TIDYPROF_RUN"
"""The environment variable that holds what was asked for, as JSON; without it nothing happens."""


def hidden() -> importlib.machinery.ModuleSpec | None:
    """The sitecustomize that Python would have imported without this folder."""
    others = [path for path in sys.path if os.path.abspath(path or ".") != HERE]
    return importlib.machinery.PathFinder.find_spec("sitecustomize", others)


def run_hidden() -> None:
    """Run the hidden sitecustomize as Python would: under its own name."""
    spec = hidden()
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def load_hooks() -> ModuleType:
    """The package `inside`, under a name that no program has."""
    folder = os.path.join(os.path.dirname(HERE), "inside")
    spec = importlib.util.spec_from_file_location(
        "tidyprof_inside", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tidyprof_inside"] = module
    spec.loader.exec_module(module)
    return module


class AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as the other finders do, and starts the hooks once its import has ended.

    A program may ask where torch is and not import it then, as transformers does.
    """

    def __init__(self) -> None:
        self.is_asking = False

    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        """The spec of torch with a loader in front of its own; None for all others."""
        if fullname != "torch" or self.is_asking:
            return None
        self.is_asking = True
        try:
            spec = importlib.util.find_spec("torch")
        finally:
            self.is_asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = ThenHooks(self, spec.loader)
        return spec


class ThenHooks(importlib.abc.Loader):
    """Loads torch by its own loader, then hooks into it."""

    def __init__(self, finder: AfterTorch, loader: importlib.abc.Loader) -> None:
        self.finder, self.loader = finder, loader

    def __getattr__(self, name: str) -> object:
        return getattr(self.loader, name)

    def create_module(self, spec):  # type: ignore[no-untyped-def]
        """The module as torch's own loader creates it."""
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Import torch, then hook into it."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        if self.finder not in sys.meta_path:  # the hooks are in place already
            return
        sys.meta_path.remove(self.finder)
        try:
            load_hooks().start(module)
        except Exception as error:  # the program goes on
            print(f"tidyprof run: no hooks: {type(error).__name__}: {error}", file=sys.stderr)


if os.environ.get(ASKED):
    sys.meta_path.insert(0, AfterTorch())
run_hidden()
