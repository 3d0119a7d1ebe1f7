"""Compiles production modules with a mutant's edits; nothing on the disk changes. Install it before they are imported."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.mutants.mutant import Edit, Mutant


class StaleMutant(Exception):
    """The text that a mutant changes is not there (once): bring the catalogue up to date."""


def edited(source: str, edit: Edit) -> str:
    """Return a module's source with one edit. Raises StaleMutant."""
    found = source.count(edit.old)
    if found != 1:
        raise StaleMutant(f"{edit.module}: found {found} times, not once: {edit.old!r}")
    return source.replace(edit.old, edit.new)


def source_of(module: str) -> Path:
    """Return where a module's source lies."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise StaleMutant(f"there is no module {module}")
    return Path(spec.origin)


class _Loader(importlib.machinery.SourceFileLoader):
    """Reads the source, edits it, compiles it; takes nothing from the cache of compiled files."""

    def __init__(self, name: str, path: str, edits: Sequence[Edit]) -> None:
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        for edit in self._edits:
            source = edited(source, edit)
        code: CodeType = compile(source, self.path, "exec", dont_inherit=True)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._edits: dict[str, list[Edit]] = {}
        for edit in mutant.edits:
            self._edits.setdefault(edit.module, []).append(edit)
        self._looking = False

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        """Change the loader of a module that is to be edited."""
        edits = self._edits.get(fullname)
        if edits is None or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking = False
        if spec is None or spec.origin is None:
            raise StaleMutant(f"there is no module {fullname}")
        spec.loader = _Loader(fullname, spec.origin, edits)
        return spec


def install(mutant: Mutant) -> None:
    """From now on this process runs the mutant. Raises StaleMutant when one of its modules is loaded already."""
    loaded = [edit.module for edit in mutant.edits if edit.module in sys.modules]
    if loaded:
        raise StaleMutant(f"{loaded[0]} is imported already")
    sys.meta_path.insert(0, _Finder(mutant))
