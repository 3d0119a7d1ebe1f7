"""A kind of machine that journals run, in one row: the `kind.py` of its folder, which `kinds.py` lists.

What holds: the number of a kind is part of the format of journals, and never given to another; a call without a row needs the
right to administer everything; a kind is asked for nothing before all brokers have its level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from rangelog import Client
from rangelog_broker.hosting.owned import OwnedShards
from rangelog_broker.journal.machine import JournalMachine
from rangelog_broker.settings import BrokerSettings
from rangelog_broker.topic_rights import TopicRights
from rangelog_core.net.owner_calls import OwnerCalls
from rangelog_core.net.pd_client import PdClient
from rangelog_core.quotas import Measure
from rangelog_core.rights import Verb
from rangelog_proto.v1 import rights_pb2

Need = tuple[Verb, int, str, int]
"""One of the verbs, on a resource by kind, and name or id."""
Needs = Callable[[Any], list[Need]]
"""From a request, its needs."""

EVERYTHING: Need = (Verb.ADMIN, rights_pb2.RESOURCE_KIND_NAMESPACE, "*", 0)


class KindCall(NamedTuple):
    """A call on a kind."""

    needs: Needs = lambda request: [EVERYTHING]
    measure: Measure | None = None
    """The quota by which its bytes count, at the topic that the request names; None: by none."""


class Journals(Protocol):
    """The journals of one kind that this broker has open."""

    def find(self, *key: int) -> Any:
        """Return the kind's part of a coordinator journal by its number, or the journal of a shard. Raises NotOwner."""


class KindContext(NamedTuple):
    """The broker around the verbs of a kind, besides its journals."""

    client: Client
    topics: PdClient
    calls: OwnerCalls
    shards: OwnedShards
    rights: TopicRights
    settings: BrokerSettings


class KindService(Protocol):
    """The verbs of a kind. Those on coordinator journals also have `owner_of(number)`, called once a journal is open."""

    def close(self) -> None:
        """End all timers and tasks; before the journals are closed. Idempotent."""


@dataclass(frozen=True, slots=True)
class MachineKind:
    """See the module.

    Args:
        number: The first byte of its commands in a coordinator journal; 0: each shard has a journal of its own.
        service: The gRPC service with its calls, "package.Service".
        make: Makes the machine in its first state, from the number of the coordinator journal (0 for a shard's).
        open: Opens its verbs over its journals.
        add: Adds these to a gRPC server.
        calls: The calls by method; others are for servers and administrators.
        level: The broker version that it needs.
        more_services: Further services that `add` adds, for servers alone.
    """

    number: int
    service: str
    make: Callable[[int], JournalMachine]
    open: Callable[[Journals, KindContext], KindService]
    add: Callable[[Any, Any], None]
    calls: Mapping[str, KindCall]
    level: int = 0
    more_services: tuple[str, ...] = ()


def on_group(verbs: Verb) -> Needs:
    """Return the need of one of the verbs on the group that a request names."""
    return lambda request: [(verbs, rights_pb2.RESOURCE_KIND_GROUP, request.group, 0)]


def on_topic(verbs: Verb) -> Needs:
    """Return the need of one of the verbs on the topic whose id a request has."""
    return lambda request: [(verbs, rights_pb2.RESOURCE_KIND_TOPIC, "", request.topic_id)]
