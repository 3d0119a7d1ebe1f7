"""Kafka and BookKeeper as `make bench` runs them, for real and as short as it gets; skipped where they are not installed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rangelog_bench import measurement as m
from rangelog_bench.anchors import BOOKKEEPER, KAFKA, Anchor

pytestmark = [pytest.mark.integration, pytest.mark.measure, pytest.mark.alone, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "bench" / "peers"
INSTALLED = ROOT / "build" / "bench-peers"


@pytest.mark.parametrize(("script", "anchor"), [("kafka.py", KAFKA), ("bookkeeper.py", BOOKKEEPER)])
def test_a_short_run_gives_figures_and_leaves_nothing(script: str, anchor: Anchor) -> None:
    """Where the peer is installed, real servers give appends, reads and latencies, and are gone with their files."""
    peer = script.removesuffix(".py")
    python = INSTALLED / "venv" / "bin" / "python"
    if not (INSTALLED / "java" / peer / ".installed").exists() or not python.exists():
        pytest.skip("not installed: bench/peers/install.sh")
    command = [
        str(python), str(PEERS / script), "--setting", anchor.setting, "--quick", "--seconds", "0.3",
        "--compile-seconds", "0.2", "--only", "throughput", "--only", "catchup", "--only", "latency",
    ]  # fmt: skip
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = running.communicate(timeout=240)
    finally:
        running.kill()
    assert running.returncode == 0, errors
    found = [json.loads(line) for line in output.splitlines()]
    assert {(each["system"], each["setting"]) for each in found} == {(anchor.system, anchor.setting)}
    assert [each["metric"] for each in found].count(m.LATENCY) == 3
    assert {each["bytes_read"] for each in found if each["metric"] == m.CATCHUP} == {10_000_000, 32 << 20}
    own = f"{INSTALLED / peer}-{running.pid}-"
    assert not any(str(each).startswith(own) for each in INSTALLED.iterdir())
    assert own not in _command_lines()


def _command_lines() -> str:
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(each.read_text().replace("\0", " "))
        except OSError:
            continue
    return "\n".join(found)
