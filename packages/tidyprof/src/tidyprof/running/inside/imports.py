"""Calls functions once the program has imported a module, without importing the module itself."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class AfterImport(importlib.abc.MetaPathFinder):
    """Finds a module as the other finders do, and calls a function after its import.

    A program may look for a module and not import it then, as transformers does.
    """

    def __init__(self, name: str, call: Callable[[ModuleType], None]) -> None:
        self.name, self.call = name, call
        self.is_asking = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Return the module's spec with a loader in front of its loader; None for all others."""
        if fullname != self.name or self.is_asking:
            return None
        self.is_asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.is_asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = ThenCall(self, spec.loader)
        return spec


class ThenCall(importlib.abc.Loader):
    """Loads a module by its own loader, then calls the function."""

    def __init__(self, finder: AfterImport, loader: importlib.abc.Loader) -> None:
        self.finder, self.loader = finder, loader

    def __getattr__(self, name: str) -> object:
        return getattr(self.loader, name)

    def create_module(self, spec: Any) -> ModuleType | None:
        """Return the module as its own loader creates it."""
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then call the function."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        if self.finder in sys.meta_path:  # otherwise the function was called already
            sys.meta_path.remove(self.finder)
            self.finder.call(module)


def call_after_import(name: str, call: Callable[[ModuleType], None]) -> None:
    """Call a function with the module of this name once it is imported; at once if it is."""
    if name in sys.modules:
        call(sys.modules[name])
    else:
        sys.meta_path.insert(0, AfterImport(name, call))
