"""Call a function after the program itself imports a module."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class AfterImport(importlib.abc.MetaPathFinder):
    """A finder that calls a function after the import of one module. The other finders find the
    module.

    A program may look up a module without importing it, as transformers does.
    """

    def __init__(self, name: str, call: Callable[[ModuleType], None]) -> None:
        self.name, self.call = name, call
        self.is_asking = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Return the module's spec with a wrapped loader, or None for all other modules."""
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
    """A loader that loads a module with its original loader and then calls a function."""

    def __init__(self, finder: AfterImport, loader: importlib.abc.Loader) -> None:
        self.finder, self.loader = finder, loader

    def __getattr__(self, name: str) -> object:
        return getattr(self.loader, name)

    def create_module(self, spec: Any) -> ModuleType | None:
        """Return the module that the original loader creates."""
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then call the function."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        if self.finder in sys.meta_path:  # otherwise the function has already been called
            sys.meta_path.remove(self.finder)
            self.finder.call(module)


def call_after_import(name: str, call: Callable[[ModuleType], None]) -> None:
    """Call a function with a module as soon as the module has been imported."""
    if name in sys.modules:
        call(sys.modules[name])
    else:
        sys.meta_path.insert(0, AfterImport(name, call))
