"""What the tests of the jobs share: a stream in both tiers, and the command in this process. Imported by name as fixtures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from rangelog_cli.local.processes import Cluster
from rangelog_jobs.command import main
from tests.spark.conftest import Filled, Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 20_000
SMALL_RANGES: dict[str, Any] = {"range_size_bytes_max": 128 * 1024}
_made: list[Filled] = []


@pytest.fixture(scope="session")
def mixed(streams: Streams) -> Filled:
    """A stream of several ranges, of which some are in the object store only and the last is open."""
    if not _made:  # each module that imports this has a fixture of its own
        _made.append(
            streams.fill("jobs-mixed", COUNT, tail=1_000, flushed_every=1_000, hot_retention_seconds=1, **SMALL_RANGES)
        )
    streams.wait_for_drops("jobs-mixed", 2)
    return _made[0]


@pytest.fixture
def run(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> Callable[..., tuple[int, str, str]]:
    """The command, in this process: exit code, output, errors."""

    def call(*argv: str, pd: str = cluster.connect_string) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main([*argv, "--pd", pd, "--quiet"])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call
