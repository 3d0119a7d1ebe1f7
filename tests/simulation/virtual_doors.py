"""The door of virtual brokers, with an address of its own in every broker's row: each call is handed to the production verb.

What holds: a call is a line of Python literals; its answer is ("", result) or (code, message, offset, outcome_unknown).
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable
from typing import Any
from unittest import mock

import grpc

import rangelog_broker.runtime
import rangelog_broker.verbs.consume
from rangelog import AppendRecord, Cut
from rangelog.errors import RangelogError
from rangelog_broker.door import Door, DoorContext, DoorSettings
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.send import Outcome
from rangelog_core.errors import error_from_code
from rangelog_server_common.rights.guard import RightsGuard
from tests.simulation.virtual_network import Channel, Network, Service
from tests.simulation.virtual_time import here

PORT = 7193
MEMBER_SESSION_S = 1.5
"""Of consumers: for how long a broker may stand still before others get their shards."""
_PREFIX = "/sim.Door/"


class VirtualDoor:
    """See door.OpenDoor."""

    def __init__(self, context: DoorContext) -> None:
        self._desk = context
        self._caller = Caller(RightsGuard(), lambda *_: None)

    async def fetch(self, *place: int, bytes_min: int, bytes_max: int, wait_s: float) -> Any:
        """Return (next offset, whether it is the last, the records)."""
        with await self._desk.fetches.fetch(
            self._caller,
            *place,
            bytes_min=bytes_min,
            bytes_max=bytes_max,
            wait_s=wait_s,  # type: ignore[misc]
        ) as fetched:
            records = [(record.offset, bytes(record.value)) for batch in fetched.batches for record in batch.records()]
            return fetched.next_offset, fetched.is_last, records

    async def send(self, topic: str, *records: tuple[bytes, bytes, int]) -> Any:
        """Given values with keys and times; return for each its place, or its error and whether its outcome is unknown."""
        return _told(await self._desk.sends.send(self._caller, topic, _given(records)))

    async def send_once(self, topic: str, *records: tuple[bytes, bytes, int], name: str) -> Any:
        """The same, under a name."""
        return _told(await self._desk.sends.send_once(self._caller, topic, _given(records), name=name))

    async def read(self, topic: str, start: str, *, records_max: int, wait_s: float) -> Any:
        """Return the position as a text, and (shard, offset, value) of each record."""
        begin = Cut.from_json(start) if start.startswith("{") else start
        found = await self._desk.reads.read(self._caller, topic, begin, records_max=records_max, wait_s=wait_s)
        return found.position.to_json(), [(each.shard_id, each.offset, each.value) for each in found.records]

    async def join(self, group: str, topics: list[str], *, session_s: float) -> str:
        """Return the id of a consumer."""
        return await self._desk.consumes.join(self._caller, group, topics, session_s=session_s)

    async def dequeue(self, group: str, consumer: str, *, records_max: int, wait_s: float, commit: int) -> Any:
        """Return the number of a batch, (shard, offset, value) of each record, and the shards that were lost."""
        found = await self._desk.consumes.dequeue(
            self._caller, group, consumer, records_max=records_max, wait_s=wait_s, commit=commit
        )
        places = [(each.shard_id, each.offset, each.value) for each in found.records]
        return found.batch, places, [each.shard_id for each in found.lost]

    async def commit(self, group: str, consumer: str, batch: int) -> None:
        """Commit a batch."""
        await self._desk.consumes.commit(self._caller, group, consumer, batch)

    async def answer(self, request: bytes, method: str) -> bytes:
        """Answer a call."""
        arguments, options = ast.literal_eval(request.decode())
        try:
            return repr(("", await getattr(self, method)(*arguments, **options))).encode()
        except RangelogError as error:
            return repr((error.code, error.message, error.offset, error.outcome_unknown)).encode()

    def problems(self) -> list[str]:
        """See OpenDoor."""
        return []

    def leave(self) -> None:
        """See OpenDoor: those who know the address are served on."""

    async def close(self) -> None:
        """See OpenDoor."""


def _given(records: Iterable[tuple[bytes, bytes, int]]) -> list[AppendRecord]:
    return [AppendRecord(value, key, None, ms) for value, key, ms in records]


def _told(outcomes: Iterable[Outcome]) -> list[Any]:
    return [(each.code, each.outcome_unknown) if isinstance(each, RangelogError) else tuple(each) for each in outcomes]


@contextlib.contextmanager
def virtual_doors(network: Network) -> Any:
    """Brokers open this door, whatever their settings name."""

    async def opened(context: DoorContext, settings: Any, bound: Any) -> VirtualDoor:
        door = VirtualDoor(context)
        process = here()
        service = Service(network, process, f"{process.name}:{PORT}")
        for method in ("fetch", "send", "send_once", "read", "join", "dequeue", "commit"):

            async def call(request: bytes, _: Any, method: str = method) -> bytes:
                return await door.answer(request, method)

            service.handlers[_PREFIX + method] = grpc.unary_unary_rpc_method_handler(call)  # type: ignore[arg-type]
        return door

    def found(name: str, values: Any) -> tuple[Door, DoorSettings]:
        return Door(name, DoorSettings, opened), DoorSettings(listen=values["listen"])

    with (
        mock.patch.object(rangelog_broker.runtime, "find_door", found),
        mock.patch.object(rangelog_broker.verbs.consume, "MEMBER_SESSION_S", MEMBER_SESSION_S),
    ):
        yield


async def call_door(
    network: Network, broker: str, method: str, *arguments: Any, timeout_s: float, **options: Any
) -> Any:
    """Call a broker's door. Raises RangelogError as it answers; grpc.RpcError: the outcome is unknown."""
    channel = Channel(network, f"{broker}:{PORT}")
    call = channel.unary_unary(_PREFIX + method, lambda asked: repr(asked).encode(), bytes)
    answer = ast.literal_eval((await call((arguments, options), timeout=timeout_s)).decode())
    if answer[0]:
        code, message, offset, unknown = answer
        raise error_from_code(code, message, offset=offset).with_outcome(unknown=unknown)
    return answer[1]
