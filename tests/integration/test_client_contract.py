"""The client's contract on real servers: the suite that the cluster in memory of `rangelog.testing` keeps as well."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

import rangelog
from rangelog._append import runner
from rangelog_cli.local.processes import Cluster
from tests.support.client_contract import ClientContract

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


@pytest.fixture(autouse=True)
def _patient_for_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that was fenced asks for the reason once, for a moment: here until the placement drivers answer."""
    monkeypatch.setattr(runner, "_WHY_TIMEOUT_S", 15.0)


@pytest.fixture
async def client(shared_cluster: Cluster) -> AsyncIterator[rangelog.Client]:
    """A client of the file's cluster."""
    async with await rangelog.connect(shared_cluster.connect_string) as made:
        yield made


@pytest.fixture
def stream() -> str:
    """A name that no other test of the file uses."""
    return f"contract-{uuid.uuid4().hex[:12]}"


class TestContract(ClientContract):
    """On three placement drivers and three range servers."""
