"""`rangelog demo`, smaller than the real thing and without Spark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(180)]


def test_small_demo_holds(tmp_path: Path) -> None:
    """40,000 flights through the kills of both scenes: exit code 0, the agreed last line, a report, and nothing left behind."""
    report = tmp_path / "report.html"
    arguments = ["demo", "--flights", "40000", "--no-spark", "--report", str(report)]
    done = subprocess.run(
        [sys.executable, "-m", "rangelog_cli", *arguments],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(
        r"demo: OK appended=40000 read=40000 lost=0 duplicated=0 misordered=0 kills=3 "
        r"longest_ack_gap_ms=\d+ spark_matches=skipped tier_objects=[1-9]\d* "
        r"topic_records=40000 topic_lost=0 topic_duplicated=0 order_violations=0 broker_kills=2 "
        r"longest_topic_gap_ms=\d+ table_matches=yes",
        last,
    ), last
    assert report.read_text().count("<svg") == 2
    assert [path.name for path in tmp_path.glob("rangelog-demo-*")] == []
