"""Calls on the placement driver: finds the leader, follows it, retries until the deadline.

What holds: a call ends by its deadline with a reply or a RangelogError; a command that may be retried carries its request
id, so a retry has no second effect; a command that may have been carried out never ends with an error that excludes it
(see pd_tries). A client is bound to the event loop that it is first used on. When an answer names a leader that is not among
the given placement drivers, the client learns the members from it, so it finds the group after those were replaced.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Sequence
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from rangelog_core.errors import (
    ClientClosed,
    HandshakeFailed,
    InvalidArgument,
    NoPlacement,
    NotLeader,
    RangelogError,
    RequestTimeout,
    Unavailable,
)
from rangelog_core.net.acting import with_principal
from rangelog_core.net.addresses import split_address
from rangelog_core.net.channels import Channels
from rangelog_core.net.fork_guard import note_call
from rangelog_core.net.home_loop import HomeLoop
from rangelog_core.net.pd_tries import Contact, Tries
from rangelog_core.net.principals import Role
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import Token, check_token, metadata_for
from rangelog_core.tracing import with_context
from rangelog_proto.v1 import members_pb2

TRY_TIMEOUT_S = 3.0
"""The limit of one try at one member: an isolated leader must not use up the whole deadline."""

REFUSED_ROUNDS_MAX = 3
"""A call ends when all members were tried so often and none has agreed on TLS."""

ENDPOINTS_MAX = 32
"""Addresses are learned up to so many."""

_BACKOFF_S = 0.05
_BACKOFF_S_MAX = 0.5

_Response = TypeVar("_Response", bound=Message)


class PdClient:
    """The calls of the placement driver's API. One instance per process is enough; `close` it."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        token: Token | None = None,
        tls: TlsConfig | None = None,
        first_contact_s: float = math.inf,
    ) -> None:
        """`first_contact_s`: while nothing has ever been reached, a call gives up after so long if nothing is there at all."""
        if not endpoints:
            raise InvalidArgument("no placement driver is given: pass host:port, or set RANGELOG_PD")
        for endpoint in endpoints:
            split_address(endpoint)
        check_token(token)
        self._endpoints = list(dict.fromkeys(endpoints))
        self._token = token
        self._channels = Channels(tls, Role.PD)
        self._leader: str | None = None
        self._learning: asyncio.Task[None] | None = None
        self._closed = False
        self.home = HomeLoop()
        self._first_contact_s = first_contact_s
        self._contact = Contact()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The configured addresses of placement drivers, and those that were learned since."""
        return tuple(self._endpoints)

    @property
    def was_reached(self) -> bool:
        """Whether a placement driver, or something that may be one, has ever been reached."""
        return self._contact.was_made

    async def close(self) -> None:
        """Close all channels; idempotent."""
        self._closed = True
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.gather(self._learning, return_exceptions=True)
        await self._channels.close()

    async def call(
        self, request: Message, response: type[_Response], *, timeout_s: float, wait_for_placement: bool = False
    ) -> _Response:
        """Make the call that takes this request.

        Args:
            request: a command has its request id set.
            response: the type of the answer.
            timeout_s: of all tries, in seconds.
            wait_for_placement: NoPlacement is retried, too: servers may be coming up.

        Raises:
            RangelogError: as the placement driver answers; Unavailable, RequestTimeout, HandshakeFailed, ClientClosed.

        Example:
            ```python
            found = await pd.call(DescribeStreamRequest(name="flights"), DescribeStreamResponse, timeout_s=5)
            ```
        """
        self.home.check()
        if self._closed:
            raise ClientClosed("the client is closed")
        note_call()
        deadline = time.monotonic() + timeout_s
        tries = Tries(request, Unavailable(self._nobody_answers(timeout_s)), self._contact, self._channels.tls)
        attempt, began = 0, deadline - timeout_s
        while time.monotonic() < deadline and not self._closed:
            for endpoint in self._order():
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    break
                try:
                    call = self._channels.call(endpoint, request, response)
                    metadata = self._metadata(endpoint)
                    answer = await call(request, timeout=min(left, TRY_TIMEOUT_S), metadata=metadata)
                    self._leader = endpoint
                    self._contact.answered()
                    if endpoint not in self._endpoints and self._learning is None:
                        self._learning = asyncio.create_task(self._learn(endpoint))
                    return answer
                except grpc.RpcError as error:
                    last = self._judge(tries.failed(error, f"placement driver {endpoint}"), endpoint)
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    if not self._closed or (task is not None and task.cancelling()):
                        raise  # cancelled by the caller; otherwise by close(), which gRPC reports in the same way
                    tries.cut_off()
                    break
                if not last.retriable or (isinstance(last, NoPlacement) and not wait_for_placement):
                    raise tries.answer(last)
                if isinstance(last, NoPlacement) or (isinstance(last, NotLeader) and self._leader):
                    break  # retry at the leader, at once where the error names it, else after a pause
            attempt += 1
            if attempt == REFUSED_ROUNDS_MAX and tries.only_refused:
                break  # certificates do not change while a call waits
            if not self._contact.was_made and time.monotonic() - began >= self._first_contact_s:
                break  # a wrong address, most likely: who waits for a cluster to start tries again
            if not self._closed and not (isinstance(tries.last, NotLeader) and self._leader and attempt == 1):
                await _pause(attempt, deadline)
        raise self._give_up(tries, timeout_s)

    # ---- inside

    def _metadata(self, endpoint: str) -> tuple[tuple[str, str], ...]:
        """Return what goes with a call. Without TLS a placement driver cannot identify a broker, and believes no caller."""
        tls = self._channels.tls
        metadata = with_context(metadata_for(self._token, tls, endpoint))
        return with_principal(metadata) if tls is not None else metadata

    async def _learn(self, endpoint: str) -> None:
        """Learn the members from a leader that was not among the given addresses: the group has changed since."""
        told = members_pb2.ListMembersResponse()
        try:
            request = members_pb2.ListMembersRequest(own_view=True)
            call = self._channels.call(endpoint, request, members_pb2.ListMembersResponse)
            metadata = metadata_for(self._token, self._channels.tls, endpoint)
            told = await call(request, timeout=TRY_TIMEOUT_S, metadata=metadata)
        except (grpc.RpcError, RangelogError):
            pass  # the leader itself is known now, and asked no more
        finally:
            self._learning = None
        for address in [endpoint, *(member.api_address for member in told.members)]:
            if _is_address(address) and address not in self._endpoints and len(self._endpoints) < ENDPOINTS_MAX:
                self._endpoints.append(address)

    def _give_up(self, tries: Tries, timeout_s: float) -> RangelogError:
        if self._closed:
            return tries.no_answer(ClientClosed("the client is closed"))
        last = tries.last
        if isinstance(last, NoPlacement):
            return tries.told_of(last)
        if isinstance(last, HandshakeFailed):
            return tries.no_answer(last)
        if not self._contact.was_made and self._first_contact_s < timeout_s:
            return tries.no_answer(Unavailable(f"no placement driver at {', '.join(self._endpoints)}: {last.message}"))
        if isinstance(last, RequestTimeout):
            return tries.no_answer(
                RequestTimeout(f"{last.message}; {self._nobody_answers(timeout_s)}{tries.refused_before}")
            )
        return tries.no_answer(Unavailable(f"{self._nobody_answers(timeout_s)} ({last.message})"))

    def _judge(self, error: RangelogError, endpoint: str) -> RangelogError:
        """Update the believed leader after a failed try."""
        if isinstance(error, NotLeader):
            self._leader = error.address if _is_address(error.address or "") else None
        elif self._leader == endpoint and error.retriable and not isinstance(error, NoPlacement):
            self._leader = None
        return error

    def _order(self) -> list[str]:
        """The believed leader first, the rest in turn."""
        leader = self._leader
        if leader is None:
            return list(self._endpoints)
        return [leader, *(endpoint for endpoint in self._endpoints if endpoint != leader)]

    def _nobody_answers(self, timeout_s: float) -> str:
        listed = ", ".join(self._endpoints)
        return f"no placement driver leads within {timeout_s:g} s at {listed}: are a majority of them running?"


async def _pause(attempt: int, deadline: float) -> None:
    pause = min(_BACKOFF_S_MAX, _BACKOFF_S * 2.0 ** min(attempt, 5)) * random.uniform(0.5, 1.0)
    await asyncio.sleep(max(0.0, min(pause, deadline - time.monotonic())))


def _is_address(hint: str) -> bool:
    try:
        split_address(hint)
    except InvalidArgument:
        return False
    return hint.isprintable()
