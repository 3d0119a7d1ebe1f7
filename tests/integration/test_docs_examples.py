"""The pages of concepts: their examples run on a real cluster, in the order of the page, and print what it shows."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from rangelog_cli.local.processes import Cluster
from tests.integration.conftest import ClusterFactory, LocalFactory
from tests.support.page_examples import ADDRESS, PageRunner

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["topics", "groups", "tables", "sdk"]


@pytest.mark.parametrize("page", PAGES)
async def test_the_examples_of_a_page(broker_cluster: Cluster, page: str, tmp_path: Path) -> None:
    """Python blocks and commands succeed one after the other, and print what stands behind them."""
    async with asyncio.timeout(150):
        count = await PageRunner(ROOT / "docs" / f"{page}.md", broker_cluster.connect_string, tmp_path).run()
    assert count >= 7


async def test_the_page_of_quotas(broker_cluster: Cluster, tmp_path: Path) -> None:
    """Its commands succeed one after the other, and leave no quota."""
    async with asyncio.timeout(120):
        assert await PageRunner(ROOT / "docs" / "quotas.md", broker_cluster.connect_string, tmp_path).run() == 1


async def test_the_page_of_the_command_line(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """Its commands succeed one after the other on a cluster without streams, and print what it shows."""
    cluster = await asyncio.to_thread(cluster_factory, brokers=1)
    async with asyncio.timeout(120):
        assert await PageRunner(ROOT / "docs" / "cli.md", cluster.connect_string, tmp_path).run() >= 4


def test_the_topic_example_of_the_readme(broker_cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """The program sends, reads as a group and commits a transaction, as it stands there."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (program,) = [block for block in blocks if "client.producer(" in block and ADDRESS in block]
    addresses = re.escape(ADDRESS) + r"[^\"]*"
    exec(compile(re.sub(addresses, broker_cluster.connect_string, program), "README.md", "exec"), {})
    assert "b'table 7' b'coffee'" in capsys.readouterr().out


async def test_the_quickstart(start_local: LocalFactory, tmp_path: Path) -> None:
    """Each command and program of the page succeeds on a `rangelog local`, and prints what the page shows."""
    page = ROOT / "docs" / "quickstart.md"
    assert "```console\nrangelog local\n```" in page.read_text()
    local = await asyncio.to_thread(start_local)
    await asyncio.to_thread(local.wait_for, "rangelog is up")
    (tmp_path / "rangelog-data").symlink_to(local.data_dir)
    async with asyncio.timeout(120):
        assert await PageRunner(page, local.connect_string, tmp_path).run() >= 7
