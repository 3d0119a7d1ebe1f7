"""Spark's own cluster as real processes on loopback, whose Python has the packages of this one but not the project.

What holds: no process has the project on its path. Their Python is that of a new virtual environment, whose packages are links
to those of this one, all but the project; they start in a directory of their own, without PYTHONPATH, with the bundled Java.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sysconfig
import venv
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from rangelog.spark.environment import bundled_java_home
from rangelog_cli.local.ports import LOOPBACK, free_ports
from tests.support.waiting import eventually

SPARK_HOME = Path(pyspark.__file__).parent
_PROJECT = ("rangelog", "pyspark_rangelog", "pdctl", "_editable", "__editable__")
_HOSTS = (LOOPBACK, "127.0.0.2")
"""Of the workers: Spark runs a second attempt beside the first one on another host only."""
_START_S = 60.0
_STOP_S = 20.0
SMALL = (
    "spark.ui.enabled=false",
    "spark.driver.host=127.0.0.1",
    "spark.driver.memory=512m",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
    "spark.executor.memory=512m",
    "spark.executor.cores=1",
    "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions=2",
    "spark.sql.session.timeZone=UTC",
)
"""Settings of an application that starts fast."""


def make_python(directory: Path, *, without: Collection[str] = ()) -> Path:
    """Make a virtual environment with the packages of this one, by links, but not the project; return its Python."""
    venv.create(directory, symlinks=True)
    python = directory / "bin" / "python"
    (packages,) = directory.glob("lib/python*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(_PROJECT) and path.suffix != ".pth" and path.name not in without:
            (packages / path.name).symlink_to(path)
    found = subprocess.run(
        [python, "-c", "import rangelog_core"], env={}, cwd=directory, capture_output=True, check=False, timeout=60
    )
    assert b"No module named 'rangelog_core'" in found.stderr
    return python


def environment(python: Path) -> dict[str, str]:
    """All variables that a process of Spark has here."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(python.parent),
        "JAVA_HOME": str(bundled_java_home()),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
    }


@contextmanager
def running(name: str, command: Sequence[str], directory: Path, env: dict[str, str]) -> Iterator[tuple[int, Path]]:
    """Run a command in a group of its own until the end of the block; yields its pid and its log. No child stays."""
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process.pid, log
    finally:
        process.terminate()  # a worker stops its executors, which stop their Pythons
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


class Standalone:
    """A master and two workers. `url`: what `--master` is given. `env`: of a process that belongs to it."""

    def __init__(self, directory: Path, python: Path, url: str, workers: dict[int, Path]) -> None:
        self.directory, self.python, self.url, self.workers = directory, python, url, workers
        self.env = environment(python)

    @classmethod
    @contextmanager
    def open(cls, directory: Path, python: Path) -> Iterator[Standalone]:
        """Start it, and wait until both workers are there."""
        env = environment(python)
        (port,) = free_ports(1)
        url = f"spark://{LOOPBACK}:{port}"
        spark_class = str(SPARK_HOME / "bin" / "spark-class")
        master = [spark_class, "org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", str(port)]
        worker = [
            spark_class,
            "org.apache.spark.deploy.worker.Worker",
            "--cores",
            "1",
            "--memory",
            "1g",
            "--webui-port",
            "0",
        ]
        env_master = env | {"SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"}
        with running("master", [*master, "--webui-port", "0"], directory, env_master) as (_, log):
            eventually(lambda: listens(port), f"the master does not listen: see {log}", _START_S)
            commands = [
                [*worker, "--host", host, "--work-dir", f"{directory}/work{n}", url] for n, host in enumerate(_HOSTS, 1)
            ]
            with (
                running("worker1", commands[0], directory, env | {"SPARK_LOCAL_IP": _HOSTS[0]}) as one,
                running("worker2", commands[1], directory, env | {"SPARK_LOCAL_IP": _HOSTS[1]}) as two,
            ):
                said = "Registering worker"
                eventually(lambda: log.read_text().count(said) == 2, f"the workers do not come: see {log}", _START_S)
                yield cls(directory, python, url, dict([one, two]))

    def submit(self, *arguments: str) -> list[str]:
        """The command that gives the cluster an application."""
        settings = [part for each in SMALL for part in ("--conf", each)]
        return [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.url, *settings, *arguments]


def listens(port: int) -> bool:
    """Whether somebody listens on a port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def executor_of(pid: int) -> int:
    """The Java process above a Python worker of Spark."""
    while "CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        assert pid > 1
    return pid
