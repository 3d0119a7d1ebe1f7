"""Spark reads and writes a cluster with TLS, by the files that its options name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rangelog.sync
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster
from rangelog_jobs.cluster import ClusterAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_certificates_reach_the_workers(spark: SparkSession, tmp_path: Path) -> None:
    """What tasks read from one stream they append to another, with clients of their own; without files they are refused."""
    with Cluster.open(tmp_path / "cluster", pds=1, range_servers=3, tls=True) as cluster:
        wait_healthy(cluster)
        address = ClusterAddress(cluster.connect_string, tls=cluster.client_tls)
        with rangelog.sync.connect(cluster.connect_string, tls=cluster.client_tls) as client:
            client.create_stream("from")
            client.create_stream("to")
            with client.writer("from") as writer:
                writer.append_batch([b"%d" % number for number in range(500)])
        read = spark.read.format("rangelog").options(**address.to_options(stream="from", records_per_partition="200"))
        rows = read.load()
        assert rows.rdd.getNumPartitions() == 3
        assert sorted(int(row.value) for row in rows.collect()) == list(range(500))
        rows.select("value").write.format("rangelog").options(**address.to_sink_options(stream="to")).mode(
            "append"
        ).save()
        with rangelog.sync.connect(cluster.connect_string, tls=cluster.client_tls) as client:
            assert len([*client.reader("to", start="earliest", follow=False)]) == 500
        with pytest.raises(Exception, match="if it serves TLS, give the files"):
            spark.read.format("rangelog").options(pd=cluster.connect_string, stream="from").load().collect()
