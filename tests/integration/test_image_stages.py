"""The commands by which the image is built, run here: what they install starts, and answers its probe."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rangelog_cli.local.ports import free_ports
from tests.support.dockerfile import instructions

pytestmark = [pytest.mark.integration, pytest.mark.release, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]


def build(directory: Path) -> Path:
    """Carry out COPY and RUN of the first stage in a directory; return where /opt is then. Needs the package index."""
    work, opt, bin_directory = directory / "build", directory / "opt", directory / "bin"
    for each in (work, opt, bin_directory):
        each.mkdir()
    (bin_directory / "python").symlink_to(sys.executable if sys.prefix == sys.base_prefix else sys._base_executable)  # type: ignore[attr-defined]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment["PATH"] = f"{bin_directory}:/usr/bin:/bin"
    steps = instructions(ROOT / "Dockerfile")
    end = [index for index, (name, _) in enumerate(steps) if name == "FROM"][1]
    for name, text in steps[:end]:
        if name == "COPY":
            *sources, target = text.split()
            for source in sources:
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, work / target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
                else:
                    (work / target).mkdir(exist_ok=True)
                    shutil.copy(ROOT / source, work / target)
        elif name == "RUN":
            command = text.replace("/opt/", f"{opt}/")
            done = subprocess.run(
                command, shell=True, cwd=work, env=environment, capture_output=True, text=True, timeout=400
            )
            assert done.returncode == 0, f"{command}: {done.stdout[-2_000:]}{done.stderr[-2_000:]}"
    return opt


def test_what_the_first_stage_installs_runs_a_placement_driver(tmp_path: Path) -> None:
    """By the lock file's hashes alone; pdctl is there, and nothing of the demo."""
    opt = build(tmp_path)
    programs = opt / "rangelog" / "bin"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    checked = subprocess.run([programs / "pip", "check"], env=environment, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout
    for role in ("rangelog_pd.main", "rangelog_server.main", "rangelog_broker.main", "pdctl.main"):
        subprocess.run([programs / "python", "-I", "-c", f"import {role}"], env=environment, check=True, timeout=60)
    assert not list((opt / "rangelog").rglob("pyspark")), "the image has Spark"
    api, raft, metrics = free_ports(3)
    member = f"pd1=127.0.0.1:{raft}@127.0.0.1:{api}"
    command = [programs / "rangelog", "pd", "--name", "pd1", "--data-dir", tmp_path / "pd1", "--member", member]
    driver = subprocess.Popen([*command, "--metrics-listen", f"127.0.0.1:{metrics}"], env=environment)
    try:
        probe = [programs / "rangelog", "healthcheck", "ready", "--metrics", f"127.0.0.1:{metrics}"]
        for _ in range(60):
            if subprocess.run(probe, env=environment, capture_output=True, timeout=20).returncode == 0:
                break
            assert driver.poll() is None
        else:
            raise AssertionError("it does not get ready")
        driver.terminate()
        assert driver.wait(20) == 0
    finally:
        driver.kill()
        driver.wait()
