"""The previous release, which tests of upgrades run: the wheel of an earlier commit, with the dependencies of this one.

tools/previous_release.py makes it; docs/decisions/2026-11-25-upgrades.md says which commit, and why.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "previous"
_INSTALL_TIMEOUT_S = 120
_ASKED = "import rangelog, rangelog_pd.state.versions as v; print(rangelog.__file__, v.FEATURE_LEVEL)"


@dataclass(frozen=True)
class PreviousProgram:
    """An installed previous release."""

    directory: Path
    commit: str
    version: str
    feature_level: int

    @property
    def env(self) -> dict[str, str]:
        """What makes a Python process import this program instead of the present one."""
        return {"PYTHONPATH": str(self.directory)}


def install(directory: Path) -> PreviousProgram:
    """Install it there, without an index, and check that it is what a process with its environment gets."""
    told = json.loads((FOLDER / "program.json").read_text())
    plain = lzma.decompress((FOLDER / "program.whl.xz").read_bytes())
    assert hashlib.sha256(plain).hexdigest() == told["sha256"], "program.whl.xz is not what program.json describes"
    directory.mkdir(parents=True)
    wheel = directory / told["wheel"]
    wheel.write_bytes(plain)
    target = directory / "program"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
        "--no-deps",
    ]
    command += ["--target", str(target), str(wheel)]
    subprocess.run(command, check=True, timeout=_INSTALL_TIMEOUT_S)
    made = PreviousProgram(target, told["commit"], told["version"], told["feature_level"])
    asked = subprocess.run([sys.executable, "-c", _ASKED], env=made.env, capture_output=True, text=True, timeout=60)
    assert asked.stdout.split() == [str(target / "rangelog" / "__init__.py"), str(made.feature_level)], asked
    return made
