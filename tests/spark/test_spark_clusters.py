"""Spark on a cluster whose machines do not have the project: spark-submit, the loss of an executor, Spark Connect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rangelog_jobs.__main__
from rangelog.spark import write_archive
from rangelog_cli.local.ports import LOOPBACK, free_ports
from rangelog_cli.local.processes import Cluster
from tests.spark import standalone
from tests.spark.conftest import Filled, Streams, slow_environment
from tests.spark.standalone import SMALL, SPARK_HOME, Standalone
from tests.support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
COUNT = 3_000
ENDS_S = 240.0
SPECULATION = ("=true", ".interval=100ms", ".minTaskRuntime=100ms", ".quantile=0.5", ".multiplier=1.1")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A cluster of Spark's own."""
    directory = tmp_path_factory.mktemp("machines")
    python = standalone.make_python(directory / "python")
    with Standalone.open(directory, python) as opened:
        yield opened


@pytest.fixture(scope="module")
def archive(machines: Standalone) -> Path:
    """What `--py-files` gets; it lies where the driver is, and not where executors work."""
    return write_archive(machines.directory / "rangelog.zip")


def at_driver(archive: Path) -> dict[str, str]:
    """What a driver has besides: Spark plans reads in Python processes that do not get the files of a job."""
    return {"PYTHONPATH": str(archive)}


@pytest.fixture
def source(streams: Streams, request: pytest.FixtureRequest) -> Filled:
    """A stream of several ranges, and two empty ones for its copies."""
    name = request.node.name.replace("test_", "").replace("_", "-")
    for copy in ("batch", "query"):
        streams.client.create_stream(f"{name}-{copy}")
    return streams.fill(name, COUNT, writers=3)


def copies(streams: Streams, source: Filled) -> list[list[tuple[Any, ...]]]:
    """All records of both copies."""
    return [
        [
            (r.offset, r.timestamp_ms, r.key, r.value, dict(r.headers))
            for r in streams.client.reader(f"{source.name}-{copy}")
        ]
        for copy in ("batch", "query")
    ]


def shown(source: Filled) -> list[list[Any]]:
    """The rows as a job writes them."""
    return [
        [offset, stamp, None if key is None else key.hex().upper(), value.hex().upper()]
        for offset, stamp, key, value, _ in source.rows
    ]


def ends_well(process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the end of a job."""
    assert process.wait(ENDS_S) == 0, log.read_text(errors="replace")[-6_000:]


@pytest.fixture
def start(machines: Standalone, tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], Path]]]:
    """`start(command, env)`: a job as a process, which ends with the test, and its log."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(command: list[str], env: dict[str, str]) -> tuple[subprocess.Popen[bytes], Path]:
        log = tmp_path / "job.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=tmp_path, env=env, stdout=output, stderr=output, start_new_session=True
            )
        started.append(process)
        return process, log

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_submitted(
    machines: Standalone, archive: Path, source: Filled, streams: Streams, cluster: Cluster, tmp_path: Path, start: Any
) -> None:
    """Executors have rangelog from the archive alone; reads, writes and queries are those of a local session."""
    job = [str(HERE / "cluster_job.py"), cluster.connect_string, source.name, str(tmp_path), "whole"]
    process, log = start(machines.submit("--py-files", str(archive), *job), machines.env | at_driver(archive))
    ends_well(process, log)
    found = json.loads((tmp_path / "found.json").read_text())
    assert sorted(found["rows"]) == shown(source)
    project = str(HERE.parents[1])
    for prefix, module, *path in found["places"]:
        assert prefix == str(machines.python.parents[1])
        assert str(machines.directory / "work") in module and "rangelog.zip" in module
        assert not [each for each in path if each.startswith(project) and "site-packages" not in each]
    assert copies(streams, source) == [source.rows, source.rows]


def test_a_job_submitted(
    machines: Standalone, archive: Path, source: Filled, streams: Streams, cluster: Cluster, start: Any
) -> None:
    """The program of all jobs, as a file beside the archive: what it copies is the stream."""
    program = machines.directory / "rangelog_jobs.py"
    program.write_bytes(Path(rangelog_jobs.__main__.__file__).read_bytes())
    job = ["replay", source.name, "--to", f"{source.name}-batch", "--pd", cluster.connect_string]
    job += ["--checkpoint", str(machines.directory / "replayed")]
    process, log = start(
        machines.submit("--py-files", str(archive), str(program), *job), machines.env | at_driver(archive)
    )
    ends_well(process, log)
    assert copies(streams, source)[0] == source.rows


def test_an_executor_dies(
    machines: Standalone, archive: Path, source: Filled, streams: Streams, cluster: Cluster, tmp_path: Path, start: Any
) -> None:
    """Killed in the middle of a task, of a batch and of a query: the copies have each record once, in order."""
    job = [str(HERE / "cluster_job.py"), cluster.connect_string, source.name, str(tmp_path), "held"]
    process, log = start(machines.submit("--py-files", str(archive), *job), machines.env | at_driver(archive))
    for copy in ("batch", "query"):
        mark = tmp_path / copy
        eventually(lambda mark=mark: mark.exists() or process.poll() is not None, f"no task stops: see {log}", ENDS_S)
        assert process.poll() is None, log.read_text()[-6_000:]
        os.kill(standalone.executor_of(int(mark.read_text())), signal.SIGKILL)
    ends_well(process, log)
    assert copies(streams, source) == [source.rows, source.rows]


def test_a_slow_attempt_is_outrun(
    machines: Standalone, archive: Path, source: Filled, streams: Streams, cluster: Cluster, tmp_path: Path, start: Any
) -> None:
    """Spark starts a task a second time beside itself: rows of both attempts are in the copies once, in order."""
    job = [str(HERE / "cluster_job.py"), cluster.connect_string, source.name, str(tmp_path), "outrun"]
    conf = [part for each in SPECULATION for part in ("--conf", f"spark.speculation{each}")]
    process, log = start(machines.submit(*conf, "--py-files", str(archive), *job), machines.env | at_driver(archive))
    ends_well(process, log)
    assert [(tmp_path / copy).read_text() for copy in ("batch", "query")] == ["1", "1"]
    assert copies(streams, source) == [source.rows, source.rows]


@contextmanager
def connect_server(machines: Standalone, archive: Path, *settings: str) -> Iterator[str]:
    """Run a server of Spark Connect that plans with rangelog; yields its address."""
    (port,) = free_ports(1)
    listening = (f"spark.connect.grpc.binding.port={port}", f"spark.connect.grpc.binding.address={LOOPBACK}")
    conf = [part for each in (*SMALL, *listening) for part in ("--conf", each)]
    main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    server = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", machines.url, *conf, *settings, *main]
    env = machines.env | at_driver(archive) | {"SPARK_DAEMON_MEMORY": "768m"}
    with standalone.running("connect", server, machines.directory, env) as (_, log):
        eventually(lambda: standalone.listens(port), f"the server does not listen: see {log}", ENDS_S)
        yield f"sc://{LOOPBACK}:{port}"


def test_connected(
    machines: Standalone, archive: Path, source: Filled, streams: Streams, cluster: Cluster, tmp_path: Path, start: Any
) -> None:
    """A client gives a session what its tasks lack; for queries that follow, the server is started with it."""
    env = {name: value for name, value in slow_environment().items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    given = ("--files", str(archive), "--conf", "spark.executorEnv.PYTHONPATH=rangelog.zip")
    for mode, settings in (("batch", ()), ("query", given)):
        with connect_server(machines, archive, *settings) as address:
            client = [sys.executable, str(HERE / "connect_job.py"), cluster.connect_string, source.name]
            ends_well(*start([*client, str(tmp_path), mode], env | {"SPARK_REMOTE": address}))
    found = json.loads((tmp_path / "found.json").read_text())
    assert sorted(found["rows"]) == shown(source)
    assert copies(streams, source) == [source.rows, source.rows]


def test_a_package_is_missing(
    machines: Standalone, archive: Path, source: Filled, cluster: Cluster, tmp_path: Path, start: Any
) -> None:
    """A Python of workers without a compiled package says so in one sentence."""
    python = standalone.make_python(tmp_path / "python", without=["zstandard"])
    env = machines.env | at_driver(archive) | {"PYSPARK_PYTHON": str(python)}
    job = [str(HERE / "cluster_job.py"), cluster.connect_string, source.name, str(tmp_path), "whole"]
    process, log = start(machines.submit("--master", "local[1]", "--py-files", str(archive), *job), env)
    assert process.wait(ENDS_S) != 0
    said = f"the Python of this Spark process, {python}, lacks zstandard: install there"
    assert said in log.read_text(), log.read_text()[-6_000:]
