"""pdctl on transactions: what is printed of the client's values, and errors in one line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from rangelog import TransactionInfo
from rangelog_core.errors import PreconditionFailed, ProducerFenced, TransactionNotFound
from tests.unit.pdctl.conftest import Pdctl
from tests.unit.pdctl.fake_client import FakeClient

USED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OPEN = TransactionInfo("billing", 17, 3, 9, "open", USED)
COMMITTING = TransactionInfo("orders", 33, 1, 2, "committing", USED, ((4, 0), (4, 1)))


class FakeTransactions:
    """Two ids."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.error: Exception | None = None

    async def list(self, prefix: str, *, state: str | None, timeout_s: float) -> AsyncIterator[TransactionInfo]:
        """As Transactions."""
        self.asked.append((prefix, state))
        for each in (OPEN, COMMITTING):
            yield each

    async def describe(self, name: str, *, timeout_s: float) -> TransactionInfo:
        """As Transactions."""
        if name != "orders":
            raise TransactionNotFound(f"there is no transactional id {name!r}")
        return COMMITTING

    async def abort(self, name: str, *, timeout_s: float) -> TransactionInfo:
        """As Transactions."""
        if self.error is not None:
            raise self.error
        self.asked.append(name)
        return replace(OPEN, state="aborted")


class Client(FakeClient):
    """A client with transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions = FakeTransactions()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    """What `rangelog.connect` returns."""
    made = Client()

    async def connect(*_: Any, **__: Any) -> Client:
        return made

    monkeypatch.setattr("rangelog.connect", connect)
    return made


@pytest.fixture
def run() -> Pdctl:
    return Pdctl("--pd", "a:1")


def test_ids_are_listed(client: Client, run: Pdctl) -> None:
    """With the options handed on; as a table and as JSON."""
    found = run.json("transaction", "list", "--prefix", "b", "--state", "open")
    assert client.transactions.asked == [("b", "open")]
    assert [(each["transactional_id"], each["number"], each["state"]) for each in found] == [
        ("billing", 9, "open"),
        ("orders", 2, "committing"),
    ]
    assert found[0]["used_ms"] == round(USED.timestamp() * 1000)
    table = run("transaction", "list").stdout
    assert table.split()[:5] == ["ID", "EPOCH", "NUMBER", "STATE", "USED"] and "billing" in table
    assert "open" in run("transaction", "list", "-o", "yaml").stdout


def test_one_is_shown(client: Client, run: Pdctl) -> None:
    """With the shards that have not merged; an unknown id has exit code 3."""
    assert run.json("transaction", "show", "orders")["to_merge"] == [
        {"topic_id": 4, "shard_id": 0},
        {"topic_id": 4, "shard_id": 1},
    ]
    assert "shard 1 of topic 4" in run("transaction", "show", "orders").stdout
    assert "pdctl transaction list" in run.fails(3, "transaction", "show", "nothing")


def test_one_is_aborted(client: Client, run: Pdctl) -> None:
    """With --yes only; what cannot be aborted has exit code 5."""
    run.fails(2, "transaction", "abort", "billing")
    assert client.transactions.asked == []
    assert run.json("transaction", "abort", "billing", "--yes")["state"] == "aborted"
    assert client.transactions.asked == ["billing"]
    client.transactions.error = PreconditionFailed("transaction 9 is committed, or about to be")
    assert "committed" in run.fails(5, "transaction", "abort", "billing", "--yes")
    client.transactions.error = ProducerFenced("a later instance has epoch 4")
    run.fails(5, "transaction", "abort", "billing", "--yes")


def test_an_unknown_state_is_a_usage_error(run: Pdctl) -> None:
    """Refused before any call."""
    assert "hanging" in run.fails(2, "transaction", "list", "--state", "hanging")
