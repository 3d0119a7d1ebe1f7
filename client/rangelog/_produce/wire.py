"""How a producer's batches travel: into a shard's log, or beside it until a transaction is committed."""

from __future__ import annotations

from typing import Protocol

from rangelog_core.frame import Opcode
from rangelog_proto.v1 import data_pb2


class Wire(Protocol):
    """The message before each batch, and what is asked of ended shards."""

    opcode: Opcode
    staged: bool
    """Whether batches are looked for among what is staged."""

    def message(self, topic_id: int, shard_id: int) -> bytes:
        """Return the message for a batch that is sent now."""

    def acked(self, topic_id: int, shard_id: int) -> None:
        """Records of a shard are acked."""


class ProduceWire:
    """Into the log."""

    opcode = Opcode.PRODUCE
    staged = False

    def message(self, topic_id: int, shard_id: int) -> bytes:
        """See Wire."""
        return data_pb2.Produce(topic_id=topic_id, shard_id=shard_id).SerializeToString()

    def acked(self, topic_id: int, shard_id: int) -> None:
        """See Wire."""


class StageWire:
    """Staged for transaction `number` of a transactional id. Set the number between two transactions, when nothing is sent."""

    opcode = Opcode.STAGE
    staged = True

    def __init__(self, transactional_id: str) -> None:
        self.number = 0
        self.participants: dict[tuple[int, int], None] = {}
        """(topic id, shard id) of what the transaction has staged, acked."""
        self._transactional_id = transactional_id

    def message(self, topic_id: int, shard_id: int) -> bytes:
        """See Wire."""
        return data_pb2.Stage(
            topic_id=topic_id, shard_id=shard_id, transactional_id=self._transactional_id, number=self.number
        ).SerializeToString()

    def acked(self, topic_id: int, shard_id: int) -> None:
        """See Wire."""
        self.participants[topic_id, shard_id] = None
