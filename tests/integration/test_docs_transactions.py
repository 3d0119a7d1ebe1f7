"""The examples of docs/transactions.md run as they stand, on a cluster with brokers; and pdctl on what they left."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rangelog
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster
from tests.integration.helpers.pdctl_command import Pdctl

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(180)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "transactions.md"


async def test_the_examples_hold(cluster_factory: Callable[..., Cluster]) -> None:
    """One block after the other, in one namespace; then the ids are listed, shown and aborted."""
    cluster = cluster_factory(pds=1, brokers=2)
    wait_healthy(cluster)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 6
    async with await rangelog.connect(cluster.connect_string) as client:
        module: dict[str, Any] = {"client": client, "endpoints": cluster.connect_string}
        for block in blocks:
            code = compile(block, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, module)
            if inspect.isawaitable(running):
                await running
    pdctl = Pdctl(cluster)
    found = {each["transactional_id"]: each for each in pdctl.json("transaction", "list")}
    assert set(found) == {"billing-1", "doubling-1", "nightly", "report"}
    assert found["report"]["state"] == "aborted"
    assert pdctl.json("transaction", "list", "--state", "open") == []
    assert pdctl.json("transaction", "show", "billing-1")["epoch"] == 3
    assert pdctl.json("transaction", "abort", "report", "--yes")["state"] == "aborted"
    assert "pdctl transaction list" in pdctl.fails(3, "transaction", "show", "unknown")
    assert "committed" in pdctl.fails(5, "transaction", "abort", "nightly", "--yes")
