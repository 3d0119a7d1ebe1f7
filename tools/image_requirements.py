"""Print the part of requirements.lock that the container image needs: `python tools/image_requirements.py [EXTRA…]`.

What holds: each pin is printed with its hashes, as the lock has it. pip, which is told to require hashes, fails
if one is missing. Needs the standard library alone.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("pd", "server", "broker", "http", "cli", "files")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_START = re.compile(r"^(?=[A-Za-z0-9])", re.MULTILINE)
_VIA = re.compile(r"^ +# +(?:via )?([A-Za-z0-9._-]+)$", re.MULTILINE)


def name_of(requirement: str) -> str:
    """Return the normalized name at the beginning of a requirement."""
    found = _NAME.match(requirement)
    if found is None:
        raise SystemExit(f"image_requirements: {requirement!r} names no package")
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def direct(project: dict[str, Any], extras: Iterable[str]) -> set[str]:
    """Return the names that the project asks for, with these extras and those that they name."""
    names: set[str] = set()
    texts, waiting = list(project["dependencies"]), list(extras)
    while waiting:
        texts += project["optional-dependencies"][waiting.pop()]
        own = [text for text in texts if name_of(text) == project["name"]]
        texts = [text for text in texts if text not in own]
        waiting += [each.strip() for text in own for each in text.partition("[")[2].partition("]")[0].split(",")]
    names.update(map(name_of, texts))
    return names


def needed(lock: str, wanted: set[str]) -> str:
    """Return the pins of what is wanted, and of what these need, in the order of the lock."""
    pins = [part for part in _START.split(lock) if part.strip()]
    kept = set(wanted)
    while more := {name_of(pin) for pin in pins if kept & set(map(name_of, _VIA.findall(pin)))} - kept:
        kept |= more
    return "".join(pin for pin in pins if name_of(pin) in kept)


def main() -> None:
    """Print them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = sys.argv[1:]
    wanted = {"hatchling"} if asked == ["--build"] else direct(project, asked or EXTRAS)
    sys.stdout.write(needed((ROOT / "requirements.lock").read_text(), wanted))


if __name__ == "__main__":
    main()
