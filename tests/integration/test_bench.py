"""`rangelog bench` for real, as short as it gets: a cluster, figures, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rangelog_bench.measurement import read_lines
from rangelog_bench.topics.report import TARGETS
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.alone, pytest.mark.timeout(300)]
COMMAND = [sys.executable, "-m", "rangelog_cli", "bench", "--json", "--seconds", "0.3", "--rounds", "1"]


def processes_with(text: str) -> list[str]:
    """Command lines of running processes that name something."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                line = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if text in line:
                found.append(line)
    return found


@pytest.mark.measure
def test_a_short_run_gives_every_figure_and_leaves_nothing(tmp_path: Path) -> None:
    """Throughput, latency, reading, tail and takeover are measured as asked, and processes and files go."""
    only = ["throughput", "catchup", "latency", "open-loop", "tail", "takeover", "arrow"]
    arguments = ["--data-dir", str(tmp_path), *(word for name in only for word in ("--only", name))]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found = read_lines(done.stdout)
    counts = {metric: [each.metric for each in found].count(metric) for metric in {each.metric for each in found}}
    assert counts == {
        "append_throughput": 3,
        "catchup_read": 3,
        "catchup_read_arrow": 3,
        "append_latency": 3,
        "open_loop_latency": 1,
        "tail_latency": 1,
        "takeover": 1,
    }
    assert all(each.value > 0 for each in found)
    tail = next(each for each in found if each.metric == "tail_latency")
    assert tail.details["missing"] == 0
    assert tail.details["seen_before_acked"] == 0
    assert list(tmp_path.iterdir()) == []
    assert processes_with(str(tmp_path)) == []


def test_interrupting_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C in the middle ends it with one line, without processes or files."""
    with (tmp_path / "output").open("w+") as output:
        running = subprocess.Popen(
            [*COMMAND, "--data-dir", str(tmp_path / "data"), "--seconds", "30", "--only", "latency"],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            started = "run-*/0/cluster/rs3/endpoint.json"
            eventually(lambda: any((tmp_path / "data").glob(started)), "the cluster does not start")
            os.killpg(running.pid, signal.SIGINT)
            assert running.wait(30) == 1
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
        output.seek(0)
        assert output.read().splitlines()[-1] == "rangelog: interrupted: nothing is left running"
    assert list((tmp_path / "data").iterdir()) == []
    assert processes_with(str(tmp_path)) == []


@pytest.mark.measure
def test_a_short_run_of_topics_gives_every_figure_and_leaves_nothing(tmp_path: Path) -> None:
    """Every measurement of topics works on brokers of its own, whose processes and clients go."""
    arguments = ["--topics", "--quick", "--seconds", "0.3", "--data-dir", str(tmp_path)]
    command = [sys.executable, "-m", "rangelog_cli", "bench", "--json"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    found = read_lines(done.stdout)
    assert sorted(each.metric for each in found) == sorted({target.metric for target in TARGETS})
    assert all(each.value > 0 for each in found)
    gap = next(each for each in found if each.metric == "broker_gap")
    assert gap.details["found"] >= gap.details["acked"] > 0
    assert list(tmp_path.iterdir()) == []
    assert processes_with(str(tmp_path)) == []
    assert processes_with("rangelog_bench.topics.role_process") == []
