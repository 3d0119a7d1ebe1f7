"""Which loads of its shards a broker reports: those that changed since the placement driver last had them. Pure.

What holds: what an answered heartbeat contained is not sent again until it changes. Whenever it is not certain what the
placement driver has, the next heartbeat contains all.
"""

from __future__ import annotations

from collections.abc import Mapping

from rangelog_broker.hosting.assignments import OwnedKey
from rangelog_proto.v1 import broker_pb2


class LoadReport:
    """The loads of one broker."""

    def __init__(self) -> None:
        self._known: dict[OwnedKey, broker_pb2.ShardLoad] | None = None
        self._sent: Mapping[OwnedKey, broker_pb2.ShardLoad] = {}

    def next(self, loads: Mapping[OwnedKey, broker_pb2.ShardLoad]) -> tuple[list[broker_pb2.ShardLoad], bool]:
        """Return the loads to send, and whether they are all there are. One that is 0 now is sent as 0."""
        self._sent = loads
        known = self._known
        if known is None:
            return list(loads.values()), True
        changed = [load for key, load in loads.items() if known.get(key) != load]
        gone = [broker_pb2.ShardLoad(topic_id=key[0], shard_id=key[1]) for key in known if key not in loads]
        return changed + gone, False

    def answered(self) -> None:
        """The placement driver has what `next` returned last."""
        self._known = dict(self._sent)

    def forget(self) -> None:
        """It is not known what the placement driver has."""
        self._known = None
