"""Check that requirements.lock pins every direct dependency of pyproject.toml, within its bounds, with hashes. Offline."""

from __future__ import annotations

import pathlib
import re
import sys
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).resolve().parent.parent
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", re.MULTILINE)


def main() -> int:
    """Return 0 when the lock file fits."""
    lock = (ROOT / "requirements.lock").read_text()
    pins = {canonicalize_name(name): version for name, version in _PIN.findall(lock)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    problems: list[str] = []
    for text in wanted:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name == project["name"]:
            continue
        if name not in pins:
            problems.append(f"{requirement} is not pinned")
        elif not requirement.specifier.contains(pins[name], prereleases=True):
            problems.append(f"{requirement} is pinned to {pins[name]}")
    if lock.count("--hash=") < len(pins):
        problems.append("not every pin has a hash")
    for problem in problems:
        print(f"check_lock: {problem}; run `make lock`")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
