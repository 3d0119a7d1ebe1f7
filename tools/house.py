"""The house in figures: the rooms of a package, the import arrows between them, and the floors on which they stand.

    python tools/house.py client/rangelog            # a room is a module or a folder directly in the package
    python tools/house.py core server_common client  # or of several packages together

A room stands on the floor above the highest room that it imports, on floor 1 without one. Rooms that import each other in a
circle share a floor. Imports inside functions count, imports below `if TYPE_CHECKING` do not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path


def packages_of(folder: Path) -> list[Path]:
    """Return the folder if it is a package, otherwise the packages directly in it."""
    return (
        [folder] if (folder / "__init__.py").exists() else sorted(path.parent for path in folder.glob("*/__init__.py"))
    )


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a module imports; of `from a import b` both `a` and `a.b`."""
    for_types_only = {
        id(inner)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for inner in ast.walk(block)
    }
    for each in ast.walk(tree):
        if id(each) in for_types_only:
            continue
        if isinstance(each, ast.Import):
            yield from (alias.name for alias in each.names)
        elif isinstance(each, ast.ImportFrom) and each.module is not None and not each.level:
            yield each.module
            yield from (f"{each.module}.{alias.name}" for alias in each.names)


def arrows_between(packages: list[Path]) -> dict[str, set[str]]:
    """Return for each room the rooms that it imports. Generated stubs are one room, that of their folder."""
    rooms: dict[str, list[Path]] = {}
    for package in packages:
        for path in sorted(package.iterdir()):
            name = f"{package.name}.{path.stem}"
            if path.suffix == ".py" and path.stem != "__init__":
                rooms[name] = [path]
            elif path.is_dir() and any(path.rglob("*.py")):
                rooms[name] = list(path.rglob("*.py"))
    return {
        room: {
            ".".join(name.split(".")[:2])
            for path in paths
            for name in imports(ast.parse(path.read_text()))
            if ".".join(name.split(".")[:2]) in rooms
        }
        - {room}
        for room, paths in rooms.items()
    }


def floors(arrows: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the floor of each room."""
    reached = {room: _reached(arrows, room) for room in arrows}
    found: dict[str, int] = {}
    for room in sorted(arrows, key=lambda each: len(reached[each])):
        below = [found[each] for each in reached[room] if each in found and room not in reached[each]]
        found[room] = max(below, default=0) + 1
    return found


def _reached(arrows: Mapping[str, set[str]], start: str) -> set[str]:
    """Return all rooms that a room imports, directly or through others."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        new = arrows[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def main(folders: list[str]) -> int:
    """Print the rooms by floor, the highest first, and one line of totals."""
    arrows = arrows_between([package for folder in folders for package in packages_of(Path(folder))])
    found = floors(arrows)
    for floor in range(max(found.values(), default=0), 0, -1):
        print(f"{floor:2}  {', '.join(sorted(room for room in found if found[room] == floor))}")
    print(f"rooms={len(arrows)} arrows={sum(map(len, arrows.values()))} floors={max(found.values(), default=0)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["client/rangelog"]))
