"""The notebook of docs/spark.md: its cells run in their order, in one namespace, and print what the page shows."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rangelog_cli.local.processes import Cluster
from tests.support.page_examples import ADDRESS, page_examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
SHUFFLES = "spark.sql.shuffle.partitions"


def test_the_cells_of_the_notebook(spark: SparkSession, cluster: Cluster, request: pytest.FixtureRequest) -> None:
    """In this thread: Spark's active session belongs to one."""
    kept = spark.conf.get(SHUFFLES)
    request.addfinalizer(lambda: spark.conf.set(SHUFFLES, str(kept)))  # `create_session` sets those of this session
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = page_examples(PAGE.read_text())
    assert len(cells) == 9
    for cell in cells:
        code = "\n" * (cell.line - 1) + cell.code.replace(ADDRESS, cluster.connect_string)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), names)
        if cell.prints is not None:
            assert printed.getvalue().replace("\n\n", "\n") == cell.prints, f"{PAGE.name}, line {cell.line}"
