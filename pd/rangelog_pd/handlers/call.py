"""A call of a service on a placement driver: one row, beside its handler, from which every table of calls is derived.

>>> Call("SealTopic", seal_topic, USERS, needs=needs.of_topic(Verb.SEAL), audit=audited.of_topic)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message

from rangelog_core.net.principals import Principal, Role
from rangelog_pd.driver import Driver
from rangelog_pd.handlers.needs import Needs, NeedsOfItems, NeedsOfRows

R = TypeVar("R", bound=Message)
Handler = Callable[[Driver, Any], Awaitable[Any]]

SERVERS = frozenset({Role.RANGE_SERVER, Role.BROKER, Role.ADMIN})
RANGE_SERVERS = frozenset({Role.RANGE_SERVER})
BROKERS = frozenset({Role.BROKER})


class Call(NamedTuple):
    """One call.

    Args:
        name: as its service calls it.
        handler: given the driver and the request, returns the response.
        roles: who may make it.
        needs: the rights that a client needs where rights are enforced. None: none suffices.
        audit: given the request, names what the call changes; the audit log records the call. None: it is not recorded.
        secret: the request may hold a secret, so that the audit log has no details.
        hidden_by_restore: reads rows, which a restore in progress has not put yet. Commands are refused by the state machine.
        caller_field: the field of the request by which the caller says who it is.
        check: raises RoleForbids by the caller's certificate, where its role is not enough.
        tells_caller: the handler is also given `caller`: the principal as text, and its host.
    """

    name: str
    handler: Callable[..., Awaitable[Any]]
    roles: frozenset[Role]
    needs: Needs | NeedsOfItems | NeedsOfRows | None = None
    audit: Callable[[Any], str] | None = None
    secret: bool = False
    hidden_by_restore: bool = False
    caller_field: str = ""
    check: Callable[[Driver, Any, Principal], None] | None = None
    tells_caller: bool = False


def proposing(action: str, response: type[R]) -> Callable[[Driver, Any], Awaitable[R]]:
    """Return the handler of a call whose request is the operand of one command, by its action. It raises what that raises."""

    async def propose(driver: Driver, request: Any) -> R:
        return await driver.propose_request(response, request.request_id, **{action: request})

    return propose
