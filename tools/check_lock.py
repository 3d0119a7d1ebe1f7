"""Check that requirements.lock is in step with pyproject.toml: same direct dependencies, in bounds, hashed. Offline."""

from __future__ import annotations

import pathlib
import re
import sys
import tomllib
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).resolve().parent.parent
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\\n]+)", re.MULTILINE)
_OURS = "rangelog (pyproject.toml)"  # what the lock says a direct dependency is there for


class Pin(NamedTuple):
    """One pin; a name has several when Pythons differ. `text` is all that the lock says of it."""

    name: str
    version: str
    text: str


def pins_of(lock: str) -> list[Pin]:
    """Return every pin of the lock."""
    starts = list(_PIN.finditer(lock))
    ends = [*(start.start() for start in starts[1:]), len(lock)]
    return [
        Pin(canonicalize_name(start[1]), start[2], lock[start.start() : end])
        for start, end in zip(starts, ends, strict=True)
    ]


def direct(project: dict[str, Any]) -> list[Requirement]:
    """What pyproject.toml asks for, extras included, without the references among the extras."""
    texts = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        texts += extra
    return [wanted for wanted in map(Requirement, texts) if canonicalize_name(wanted.name) != project["name"]]


def problems_of(lock: str, project: dict[str, Any]) -> list[str]:
    """Return what is out of step, one line each."""
    pins = pins_of(lock)
    ours = [pin for pin in pins if _OURS in pin.text]
    wanted = direct(project)
    names = {canonicalize_name(requirement.name) for requirement in wanted}
    found = [f"{pin.name}=={pin.version} has no hash" for pin in pins if "--hash=sha256:" not in pin.text]
    found += [f"{pin.name} is pinned and no longer asked for" for pin in ours if pin.name not in names]
    for requirement in wanted:
        versions = [pin.version for pin in ours if pin.name == canonicalize_name(requirement.name)]
        if not versions:
            found.append(f"{requirement} is not pinned")
        found += [
            f"{requirement} is pinned to {version}"
            for version in versions
            if not requirement.specifier.contains(version, prereleases=True)
        ]
    return found


def main() -> int:
    """Return 0 when the lock file fits."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    problems = problems_of((ROOT / "requirements.lock").read_text(), project)
    for problem in problems:
        print(f"check_lock: {problem}; run `make lock`")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
