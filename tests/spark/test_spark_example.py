"""examples/spark_filter.py: two runs of its query copy what they should, once."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rangelog.sync
from rangelog_cli.local.processes import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "spark_filter.py"


def test_the_streaming_query_of_the_example(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """The second run looks only at what came since."""
    spec = importlib.util.spec_from_file_location("spark_filter", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    addresses = cluster.connect_string
    with rangelog.sync.connect(addresses) as client:
        client.topics.create("to-filter", shards=2)
        client.create_stream("filtered")
        for first in (0, 20):
            with client.producer("to-filter") as producer:
                producer.send_batch([b"%s %d" % (b"ann" if n % 4 else b"ben", n) for n in range(first, first + 20)])
            looked_at = example.run(spark, addresses, "to-filter", "filtered", "ben", str(tmp_path / "checkpoint"))
            assert looked_at == 20
            found = sorted(record.value for record in client.reader("filtered"))
            assert found == sorted(b"ben %d" % n for n in range(0, first + 20, 4))
