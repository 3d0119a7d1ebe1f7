"""Former names of packages: `import rangelog.tier.parquet` returns the module `rangelog_tier.parquet` itself.

What holds: a class has one identity, whichever of the two names it was imported by; the module keeps its own spec.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class FormerName(MetaPathFinder, Loader):
    """Finds the modules of a package by the package's former name, once the former package is imported."""

    def __init__(self, former: str, name: str) -> None:
        self._prefix = former + "."
        self._name = name
        sys.meta_path.insert(0, self)  # a package below it has a path, by which others would load its modules again

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Return a spec for a module below the former name, None for every other."""
        is_ours = fullname.startswith(self._prefix) and not fullname.endswith(".__main__")  # which is a file to run
        return ModuleSpec(fullname, self) if is_ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module by its name of today."""
        module = importlib.import_module(f"{self._name}.{spec.name.removeprefix(self._prefix)}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec: it has run already."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state
