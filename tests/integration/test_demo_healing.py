"""`rangelog demo --healing`, whole: it takes a minute and a half on an idle machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(420)]


def test_the_healing_demo_holds(tmp_path: Path) -> None:
    """A server killed, a disk wiped, one drained, a zone cut off, a restore: exit code 0, the last line, nothing left."""
    report = tmp_path / "report.html"
    done = subprocess.run(
        [sys.executable, "-m", "rangelog_cli", "demo", "--healing", "--report", str(report)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(
        r"healing: OK lost=0 duplicated=0 repaired_ranges=[1-9]\d* repair_s=\d+\.\d drained=yes zone_survived=yes restored=yes",
        last,
    ), last
    text = (tmp_path / "healing.txt").read_text()
    assert "$ pdctl server list" in text and "dead" in text
    assert list(tmp_path.glob("rangelog-healing-*")) == []
