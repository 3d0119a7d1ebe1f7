"""RecoverRange: seal an open range whose writer is gone, with the SDK's failover seal.

What holds: nothing is done while the writer answers over the connection on which it appended, or once somebody has opened the
stream since the decision. Whoever else recovers the range at the same time: the first end that the placement driver commits
counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

import rangelog
from rangelog_core.errors import StreamSealed
from rangelog_core.net.tls import TlsConfig
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.ranges.hosted_replica import RangeKey
from rangelog_server.ranges.store import Store

ANSWER_TIMEOUT_S = 10.0
"""How long an idle writer has to answer: its program may stand still for a while, and to fence it for that would be rude."""
_LOOK_S = 0.05
SEAL_TIMEOUT_S = 30.0

_log = structlog.get_logger("agent")


class WriterAnswers(Exception):
    """The writer is alive and idle: it goes on with its range."""


class Recoverer:
    """Seals orphaned ranges. Its client is made when it is first needed."""

    def __init__(self, store: Store, pd: Sequence[str], token: str | None, tls: TlsConfig | None = None) -> None:
        self._store = store
        self._pd = list(pd)
        self._token = token
        self._tls = tls
        self._client: rangelog.Client | None = None
        self._connecting = asyncio.Lock()

    async def recover_range(self, directive: pb.Directive) -> None:
        """Seal the range. Raises WriterAnswers, PreconditionFailed when it was opened meanwhile, SealBlocked when too few
        replicas answer."""
        action = directive.recover_range
        if await _writer_answers(self._store, (directive.stream_id, directive.range_index)):
            raise WriterAnswers
        client = await self._connected()
        try:
            taken = await client.internal.settle_end(
                action.stream_name, timeout_s=SEAL_TIMEOUT_S, expected=(directive.stream_id, action.epoch)
            )
        except StreamSealed:
            return
        _log.info(
            "sealed a range whose writer is gone",
            range=f"{directive.stream_id}/{directive.range_index}", end_offset=taken.end_offset, reason=action.reason,
        )  # fmt: skip

    async def close(self) -> None:
        """Close the client, if there is one."""
        if self._client is not None:
            await self._client.close()

    async def _connected(self) -> rangelog.Client:
        async with self._connecting:
            if self._client is None:
                self._client = rangelog.Client(self._pd, token=self._token, tls=self._tls, tier_url=None)
            return self._client


async def _writer_answers(store: Store, key: RangeKey) -> bool:
    """Whether the range's writer is connected, and answers for the range."""
    hosted = store.replicas.get(key)
    if hosted is None:
        return await _idle_answers(store, key)
    if hosted.writing() is None:
        return False
    before = hosted.confirm_count
    hosted.ask_confirm()
    return await _until(lambda: hosted.confirm_count != before)


async def _idle_answers(store: Store, key: RangeKey) -> bool:
    """The same for one that has not appended to the range."""
    idle = store.idle.of(key)
    connected = idle.connected() if idle is not None else None
    if idle is None or connected is None:
        return False
    before = idle.confirm_count
    connected.ask_idle(key, idle.epoch, idle.start_offset)

    def has_answered() -> bool:
        found = store.idle.of(key)
        return key in store.replicas or (found is not None and found.confirm_count != before)

    return await _until(has_answered)


async def _until(holds: Callable[[], bool]) -> bool:
    deadline = asyncio.get_running_loop().time() + ANSWER_TIMEOUT_S
    while not holds():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(_LOOK_S)
    return True
