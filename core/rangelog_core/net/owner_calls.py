"""Calls on the gRPC services of brokers: on the owner of a shard or of a coordinator journal, wherever it is by now.

What holds: a call ends by its deadline. A broker that cannot be reached is reported to the placement driver, which makes
sure and assigns what it owned to others; the call goes on at the new owner. A call that may have been carried out and has no
answer raises an error with `outcome_unknown`, unless the caller says that a repeat is harmless.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import grpc

from rangelog_core.errors import (
    ClientClosed,
    NotOwner,
    RangelogError,
    RequestTimeout,
    SessionExpired,
    ShardEnded,
    StorageFull,
    TopicNotFound,
    Unavailable,
)
from rangelog_core.key_hash import key_position
from rangelog_core.net.channels import Channels
from rangelog_core.net.fork_guard import note_call
from rangelog_core.net.grpc_errors import from_rpc_error, may_have_been_carried_out
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.principals import Role
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import Token, metadata_for
from rangelog_core.tracing import with_context
from rangelog_proto.v1 import broker_pb2 as pb

JOURNALS = 16
"""Coordinator journals of a cluster."""
TRY_TIMEOUT_S = 5.0
_FIND_TIMEOUT_S = 3.0
_BACKOFF_S = 0.02
_BACKOFF_S_MAX = 0.5

OwnedKey = tuple[int, int]
"""(topic id, shard id); (0, number) for a coordinator journal."""

_Response = TypeVar("_Response")


def journal_of(name: str) -> OwnedKey:
    """Return the coordinator journal that a name belongs to, by its hash."""
    return 0, key_position(name.encode()) * JOURNALS >> 128


def journal_of_topic(topic_id: int) -> OwnedKey:
    """Return the coordinator journal that has the watermarks of a topic."""
    return journal_of(str(topic_id))


async def _pause(attempt: int, deadline: float) -> None:
    pause_s = min(_BACKOFF_S_MAX, _BACKOFF_S * 2.0 ** min(attempt, 6)) * random.uniform(0.5, 1.0)
    await asyncio.sleep(max(0.0, min(pause_s, deadline - time.monotonic())))


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and bool(task.cancelling())


def _final(error: RangelogError, *, before: bool, now: bool) -> RangelogError | None:
    """Return the refusal that ends a call; None: try again. `before`, `now`: an earlier try, this one may have an effect."""
    if isinstance(error, SessionExpired):  # this one was refused, and had none
        return error.with_outcome(unknown=before)
    if isinstance(error, StorageFull):  # another try, or another owner, finds no room either
        return error.with_outcome(unknown=before or now)
    return None if error.retriable else error


class OwnerCalls:
    """The connections to brokers' services. One per client is enough; `close` it."""

    def __init__(self, pd: PdClient, *, token: Token | None = None, tls: TlsConfig | None = None) -> None:
        self._brokers = pd
        self._token = token
        self._owners: dict[OwnedKey, pb.Broker] = {}
        self._channels = Channels(tls, Role.BROKER)
        self._closed = False

    async def close(self) -> None:
        """Close all connections; idempotent."""
        self._closed = True
        await self._channels.close()

    def known_owner(self, key: OwnedKey) -> str:
        """Return the broker that a call about a shard or journal would go to without a look-up; "" where none is known."""
        known = self._owners.get(key)
        return known.name if known is not None else ""

    def _metadata(self, broker: pb.Broker) -> Any:
        return with_context(metadata_for(self._token, self._channels.tls, broker.control_address))

    async def call(
        self,
        key: OwnedKey,
        stub_type: type[Any],
        method: Callable[[Any], Callable[..., Awaitable[_Response]]],
        request: object,
        *,
        timeout_s: float,
        repeatable: bool,
    ) -> _Response:
        """Call the owner of a shard or journal.

        Args:
            key: The ids of the shard or journal.
            stub_type: The gRPC stub.
            method: Picks the method of a stub.
            request: The request.
            timeout_s: Limit in seconds of all tries together.
            repeatable: Carrying the request out twice does the same as once: it reads, or it carries a number by which a
                repeat is known.

        Raises:
            Unavailable, RequestTimeout: No owner answered in time.
            RangelogError: The owner's refusal, as `_final`; ShardEnded and TopicNotFound also without an owner.
        """
        note_call()
        deadline = time.monotonic() + timeout_s
        last: RangelogError = Unavailable("no broker owns it")
        unknown = False
        attempt = 0
        while (left_s := deadline - time.monotonic()) > 0 and not self._closed:
            try:
                broker = await self._owner(key, left_s)
            except RangelogError as error:
                if not error.retriable:
                    raise (error.with_outcome(unknown=True) if unknown else error) from None
                last = error
            else:
                try:
                    stub = self._stub(broker.control_address, stub_type)
                    timeout = max(0.001, min(TRY_TIMEOUT_S, deadline - time.monotonic()))
                    return await method(stub)(request, timeout=timeout, metadata=self._metadata(broker))
                except asyncio.CancelledError:
                    if not self._closed or _is_cancelled():
                        raise  # otherwise close() has ended it, which gRPC reports in the same way
                    unknown = True
                except grpc.RpcError as failed:
                    last = from_rpc_error(failed, f"broker {broker.name}", self._channels.tls)
                    maybe = may_have_been_carried_out(failed) or last.outcome_unknown
                    if maybe and not repeatable:
                        raise last.with_outcome(unknown=True) from failed
                    if (final := _final(last, before=unknown, now=maybe)) is not None:
                        raise final from failed
                    unknown = unknown or maybe
                    self._owners.pop(key, None)
                    await self._report(broker, last, deadline)
            attempt += 1
            await _pause(attempt, deadline)
        if self._closed:
            raise ClientClosed("the client is closed", outcome_unknown=unknown)
        raise RequestTimeout(f"no owner answered within {timeout_s:g} s ({last.message})", outcome_unknown=unknown)

    async def _owner(self, key: OwnedKey, left_s: float) -> pb.Broker:
        """Return the owner of a shard or journal. Raises NotOwner where it has none now, ShardEnded, TopicNotFound."""
        known = self._owners.get(key)
        if known is not None:
            return known
        request = pb.FindOwnersRequest(shards=[pb.OwnedShard(topic_id=key[0], shard_id=key[1])])
        found = await self._brokers.call(request, pb.FindOwnersResponse, timeout_s=min(left_s, _FIND_TIMEOUT_S))
        if found.ended:
            raise ShardEnded(f"shard {key[1]} of topic {key[0]} has ended: its successors follow")
        if found.missing:
            raise TopicNotFound(f"topic {key[0]} was deleted, or never was")
        if not found.brokers:
            raise NotOwner("no broker owns it now: is one running? See `pdctl broker list`")
        broker = self._owners[key] = found.brokers[0]
        return broker

    async def _report(self, broker: pb.Broker, error: RangelogError, deadline: float) -> None:
        """Report a broker that does not answer; it is asked no more by those who ask the placement driver."""
        if isinstance(error, NotOwner) or not isinstance(error, Unavailable):
            return
        for key in [each for each, owner in self._owners.items() if owner.name == broker.name]:
            del self._owners[key]
        request = pb.ReportBrokerLostRequest(name=broker.name, incarnation=broker.incarnation)
        with suppress(RangelogError):
            left_s = min(_FIND_TIMEOUT_S, deadline - time.monotonic())
            if left_s > 0:
                await self._brokers.call(request, pb.ReportBrokerLostResponse, timeout_s=left_s)

    def _stub(self, address: str, stub_type: type[Any]) -> Any:
        return self._channels.stub(address, stub_type)
