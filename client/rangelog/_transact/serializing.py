"""Transactions whose records are made by the program's own functions.

What holds: a function runs before anything of its record is sent; what it raises comes to the caller as it is, and leaves the
transaction open, unless it ends the block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rangelog._append.serializing import Serializers
from rangelog._produce.waiters import ProducerAck
from rangelog._transact.transaction import Program, Transaction
from rangelog._transact.transactional import MakeProducer, Transactional
from rangelog_core.net.owner_calls import OwnerCalls


class SerializingTransaction(Transaction):
    """A transaction of any keys and values, in any topics. Make it with `SerializingTransactional.transaction`."""

    def __init__(self, program: Program, serializers: Serializers) -> None:
        super().__init__(program)
        self.serializers = serializers

    async def send(
        self, topic: str, value: Any, *, key: Any = None, headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None, shard: int | None = None,
    ) -> None:  # fmt: skip
        """See Transaction."""
        made, made_key = self.serializers.value(value), self.serializers.key(key)
        await super().send(topic, made, key=made_key, headers=headers, timestamp=timestamp, shard=shard)

    async def submit(
        self, topic: str, value: Any, *, key: Any = None, headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None, shard: int | None = None,
    ) -> asyncio.Future[ProducerAck]:  # fmt: skip
        """See Transaction."""
        made, made_key = self.serializers.value(value), self.serializers.key(key)
        return await super().submit(topic, made, key=made_key, headers=headers, timestamp=timestamp, shard=shard)


class SerializingTransactional(Transactional):
    """An instance of a transactional id with serializers. Make it with `client.transactional(id, value_serializer=…)`.

    Example:
        ```python
        async with client.transactional("billing-1", value_serializer=to_json) as program:
            async with program.transaction() as transaction:
                await transaction.send("shop/orders", {"item": "coffee"}, key=b"table 7")
        ```
    """

    def __init__(
        self, calls: OwnerCalls, make_producer: MakeProducer, transactional_id: str, serializers: Serializers, *,
        timeout_s: float,
    ) -> None:  # fmt: skip
        super().__init__(calls, make_producer, transactional_id, timeout_s=timeout_s)
        self.serializers = serializers

    def transaction(self) -> SerializingTransaction:
        """See Transactional."""
        self.check_next()
        return SerializingTransaction(self, self.serializers)
