"""A cluster of tables in memory, without trouble unless a test makes some."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rangelog import Table
from rangelog._table.tables import Tables
from tests.support.table_cluster import TableCluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[TableCluster]:
    async with TableCluster(tmp_path) as made:
        yield made


@pytest.fixture
def tables(cluster: TableCluster) -> Tables:
    return cluster.tables()


@pytest.fixture
async def table(tables: Tables) -> Table:
    """A table of four partitions."""
    await tables.create("t", partitions=4)
    return tables.table("t")
