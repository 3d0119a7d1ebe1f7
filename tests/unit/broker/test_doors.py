"""Doors: found by name, opened before the broker registers, named in its row, closed to new clients while it hands over."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rangelog.errors import ConfigInvalid
from rangelog_broker import door as doors
from rangelog_broker import runtime as runtimes
from rangelog_broker.door import Door, DoorContext, DoorSettings
from rangelog_broker.settings import BrokerSettings
from tests.support.owner_cluster import OwnerCluster, owner_cluster
from tests.unit.broker.test_broker_runtime import endpoint_in, running

OPENED: list[ToyDoor] = []


class ToySettings(DoorSettings):
    """A key of its own."""

    greeting: str = "hello"


class ToyDoor:
    """Greets whoever connects, and closes the connection."""

    def __init__(self, context: DoorContext, settings: ToySettings) -> None:
        self.context = context
        self.settings = settings
        self.trouble: list[str] = []
        self.life: list[str] = []
        self.server: asyncio.Server

    async def greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self.settings.greeting.encode())
        writer.close()

    def problems(self) -> list[str]:
        return self.trouble

    def leave(self) -> None:
        self.life.append("left")
        self.server.close()

    async def close(self) -> None:
        self.life.append("closed")
        self.server.close()


async def _open(context: DoorContext, settings: ToySettings, bound: socket.socket) -> ToyDoor:
    opened = ToyDoor(context, settings)
    opened.server = await asyncio.start_server(opened.greet, sock=bound)
    OPENED.append(opened)
    return opened


TOY = Door("toy", ToySettings, _open)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy is installed, and another door whose library is not."""
    OPENED.clear()
    points = {
        "toy": EntryPoint("toy", f"{__name__}:TOY", doors.GROUP),
        "bare": EntryPoint("bare", "no_such_library_of_a_door:BARE", doors.GROUP),
    }

    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == doors.GROUP
        return [point for each, point in points.items() if name in (None, each)]

    monkeypatch.setattr(doors, "entry_points", entry_points)


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OwnerCluster]:
    """A cluster without brokers."""
    async with owner_cluster() as made:
        monkeypatch.setattr(runtimes, "Client", lambda *_, **__: made.client())
        yield made


async def test_a_door_lives_with_its_broker(cluster: OwnerCluster, tmp_path: Path) -> None:
    """It is served, named in the broker's row and endpoint file, and part of readiness; it leaves first and closes last."""
    keys = {"listen": "127.0.0.1:0", "greeting": "good day"}
    async with running(cluster, "a", run_dir=tmp_path, doors={"toy": keys}) as broker:
        address = (await endpoint_in(tmp_path))["doors"]["toy"]  # type: ignore[index]
        with cluster.driver.state() as state:
            [endpoint] = state.owners.brokers["a"].endpoints
        assert (endpoint.door, endpoint.address) == ("toy", address)
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.read() == b"good day"
        writer.close()
        [door] = OPENED
        assert door.context.client is not None and door.context.batches.shards is not None
        await broker.stopped()
        assert door.life == ["left", "closed"]
        with pytest.raises(OSError):
            await asyncio.open_connection(host, int(port))


def test_a_door_that_has_trouble_makes_its_broker_unready() -> None:
    """With the door's name."""
    from types import SimpleNamespace

    from rangelog_broker.metrics import BrokerFacts, problems

    door: Any = SimpleNamespace(problems=lambda: ["its listener has ended"])
    port: Any = SimpleNamespace(loop=SimpleNamespace(time=lambda: 1.0))
    nothing: Any = SimpleNamespace(answered_s=1.0)
    facts = BrokerFacts(port, nothing, nothing, nothing, nothing, nothing, {"toy": door})
    assert problems(facts) == ["door toy: its listener has ended"]


@pytest.mark.parametrize(
    ("name", "keys", "said"),
    [
        ("kafak", {"listen": "127.0.0.1:0"}, r"doors.kafak: no such door is installed.*bare, toy"),
        (
            "bare",
            {"listen": "127.0.0.1:0"},
            r"no_such_library_of_a_door is not installed: pip install 'rangelog\[bare\]'",
        ),
        ("toy", {"listen": "nowhere"}, r"doors.toy.listen: "),
        ("toy", {"listen": "127.0.0.1:0", "greting": "x"}, r"doors.toy.greting: "),
    ],
)
async def test_a_door_that_cannot_be_opened_ends_the_start(
    cluster: OwnerCluster, name: str, keys: dict[str, str], said: str
) -> None:
    """With one line that names the key; the broker has not registered."""
    with pytest.raises(ConfigInvalid, match=said):
        async with running(cluster, "a", doors={name: keys}):
            pass
    assert cluster.calls["RegisterBroker"] == 0


def test_settings_of_doors(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a table of the file or from the environment; none without an address, and REST has a key of its own."""
    base: dict[str, Any] = {"name": "a", "pd": ["h:1"]}
    monkeypatch.setenv("RANGELOG_BROKER_DOORS__TOY__LISTEN", "127.0.0.1:9092")
    monkeypatch.setenv("RANGELOG_BROKER_DOORS__TOY__GREETING", "hi")
    made = BrokerSettings(**base)
    assert made.all_doors()["toy"] == {"listen": "127.0.0.1:9092", "greeting": "hi"}
    assert ("doors.toy.listen", "127.0.0.1:9092") in list(made.listened())
    assert list(made.all_doors()) == ["rest", "toy"]
    monkeypatch.delenv("RANGELOG_BROKER_DOORS__TOY__LISTEN")
    with pytest.raises(ValidationError, match=r"give doors\.toy\.listen"):
        BrokerSettings(**base)
    with pytest.raises(ValidationError, match="rest_listen"):
        BrokerSettings(**base, doors={"rest": {"listen": "127.0.0.1:1"}})
