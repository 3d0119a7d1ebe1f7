"""Build the wheel of an earlier commit for the tests of upgrades: `python tools/previous_release.py COMMIT`.

What holds: the wheel is built from `git archive` of the commit, of nothing else, and is the same whenever it is built. It is
kept beside a description (commit, version, feature level, SHA-256), so that a test needs neither git nor an index.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "fixtures" / "previous"
WHEEL, DESCRIPTION = FOLDER / "program.whl.xz", FOLDER / "program.json"
_DATE = (2020, 1, 1, 0, 0, 0)
_LEVEL = re.compile(r"^FEATURE_LEVEL = (\d+)$", re.MULTILINE)
_TIMEOUT_S = 120


def build(commit: str) -> None:
    """Write the wheel of a commit, and its description."""
    full = _git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
    level = _LEVEL.search(_git("show", f"{full}:pd/rangelog_pd/state/versions.py").decode())
    if level is None:
        sys.exit(f"previous_release: commit {full} names no FEATURE_LEVEL")
    with tempfile.TemporaryDirectory() as directory:
        source, built = Path(directory) / "source", Path(directory) / "built"
        with tarfile.open(fileobj=BytesIO(_git("archive", full))) as archive:
            archive.extractall(source, filter="data")
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
        subprocess.run(command, cwd=source, check=True, timeout=_TIMEOUT_S)
        (wheel,) = built.glob("*.whl")
        plain = _stored(wheel.read_bytes())
        name = wheel.name
    FOLDER.mkdir(parents=True, exist_ok=True)
    WHEEL.write_bytes(lzma.compress(plain, preset=9 | lzma.PRESET_EXTREME))
    description = {
        "commit": full,
        "wheel": name,
        "version": name.split("-")[1],
        "feature_level": int(level[1]),
        "sha256": hashlib.sha256(plain).hexdigest(),
    }
    DESCRIPTION.write_text(json.dumps(description, indent=2) + "\n")
    print(f"previous_release: {WHEEL.relative_to(ROOT)}, {WHEEL.stat().st_size:,} bytes, level {level[1]} of {full}")


def _stored(wheel: bytes) -> bytes:
    """Return the same wheel with its files not compressed and not dated: xz sees them whole, and it is the same each time."""
    target = BytesIO()
    with zipfile.ZipFile(BytesIO(wheel)) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for name in sorted(old.namelist()):
            new.writestr(zipfile.ZipInfo(name, _DATE), old.read(name))
    return target.getvalue()


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, timeout=_TIMEOUT_S).stdout


def main() -> None:
    """Write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="of the program that is the previous release")
    build(parser.parse_args().commit)


if __name__ == "__main__":
    main()
