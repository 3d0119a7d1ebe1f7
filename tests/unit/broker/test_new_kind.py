"""A new kind of machine is one row: by it alone it is opened with each coordinator journal, checked, charged and served."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, NamedTuple, cast

import pytest

from rangelog.errors import PreconditionFailed
from rangelog_broker import kinds, services
from rangelog_broker.hosting import journals as hosting
from rangelog_broker.hosting.journals import KindJournals
from rangelog_broker.kind import EVERYTHING, Journals, KindCall, KindContext, MachineKind, on_topic
from rangelog_broker.topic_rights import TopicRights
from rangelog_core.quotas import Measure
from rangelog_core.rights import Verb
from rangelog_proto.v1.rights_pb2 import RESOURCE_KIND_TOPIC
from rangelog_server_common.rights.guard import RightsGuard
from tests.support.journal_machines import Chain
from tests.support.memory_broker import MemoryBroker
from tests.support.owner_cluster import owner_cluster
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

LEVEL = 900
OPENED: list[tuple[str, int]] = []


class Toy:
    """The verbs of a machine that keeps every command."""

    def __init__(self, journals: Journals) -> None:
        self.journals = journals

    def owner_of(self, number: int) -> None:
        """Called once a coordinator journal is open."""
        OPENED.append(("toy", number))

    def close(self) -> None:
        """See KindService."""
        OPENED.append(("closed", 0))


TOY = MachineKind(
    number=200,
    service="toys.v1.Toys",
    make=lambda number: Chain(),
    open=lambda journals, context: Toy(journals),
    add=lambda service, server: server.append(service),
    calls={"Play": KindCall(on_topic(Verb.APPEND), Measure.APPEND)},
    level=LEVEL,
)


class Request(NamedTuple):
    """Of any call on a topic."""

    topic_id: int


async def test_a_new_kind_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands are applied once, at each owner; a broker version below its level refuses it."""
    every = (*kinds.KINDS, TOY)
    for module in (kinds, services, hosting):
        monkeypatch.setattr(module, "KINDS", every)
    OPENED.clear()
    async with owner_cluster() as cluster, AsyncExitStack() as stack:
        first = MemoryBroker(cluster, "a")
        server = cast(Any, type("Server", (), {"server": []}))
        only_toy = (TOY,)
        monkeypatch.setattr(services, "KINDS", only_toy)
        told = TopicRights(RightsGuard(), first.topics)
        context = KindContext(first.client, first.topics, cast(Any, None), first.owned, told, cast(Any, None))
        services.add_services(stack, server, first.journals, context)
        await first.start()
        await until(lambda: len(OPENED) == 16, "each coordinator journal has announced itself to the kind")
        (toy,) = server.server
        with pytest.raises(PreconditionFailed, match="needs broker version 900"):
            toy.journals.find(3)
        first.journals.broker_version = LEVEL
        part = toy.journals.find(3)
        session = await part.open_session()
        await part.propose(session, 1, b"one")
        await part.propose(session, 1, b"one")  # again: once
        await part.propose(session, 2, b"two")
        assert part.machine.commands == [b"one", b"two"]
        second = await MemoryBroker(cluster, "b").start()
        await first.die()
        await until(lambda: len(second.journals._coordinators) == 16)
        second.journals.broker_version = LEVEL
        assert KindJournals(second.journals, TOY).find(3).machine.commands == [b"one", b"two"]
        await second.end()
    assert OPENED[-1] == ("closed", 0)


def test_the_tables_follow_from_the_row() -> None:
    """Rights, and the quota by which bytes count; a call without a row needs everything."""
    call = kinds.calls_of((TOY,))["/toys.v1.Toys/Play"]
    assert call.needs(Request(7)) == [(Verb.APPEND, RESOURCE_KIND_TOPIC, "", 7)]
    by = kinds.byte_calls_of((TOY,))["/toys.v1.Toys/Play"]
    assert (by.measure, by.resource(Request(7))) == (Measure.APPEND, (RESOURCE_KIND_TOPIC, 7))
    assert kinds.needs_of_call("/toys.v1.Toys/Play", Request(7)) == [EVERYTHING]


def test_no_two_kinds_share_a_number() -> None:
    """Numbers are part of the format of journals."""
    numbers = [kind.number for kind in kinds.KINDS if kind.number]
    assert sorted(set(numbers)) == sorted(numbers)
