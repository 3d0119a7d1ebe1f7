"""Carries out a client's call on the placement driver as far as its rights reach, once rights are enforced.

What holds: a call without needs is refused; a batch is carried out without the items that are refused, each of which has
its own error; a list leaves out what the client may do nothing to. A refusal by name does not show what exists: rules are asked
by name. Servers and administrators are known by their role alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rangelog_core.errors import HandshakeFailed, RangelogError
from rangelog_core.net.principals import Principal, Role
from rangelog_core.rights import ANY, Verb, right_missing
from rangelog_pd.driver import Driver
from rangelog_pd.handlers.call import Handler
from rangelog_pd.handlers.needs import NAMESPACE, Need, Needs, NeedsOfItems, NeedsOfRows
from rangelog_pd.state.batches import call_error
from rangelog_pd.state.resources import decide
from rangelog_pd.state.store import State
from rangelog_proto.v1 import rights_pb2
from rangelog_server_common.tokens.bounds import check_unbound, left, token_bound


async def serve(
    driver: Driver,
    needs: Needs | NeedsOfItems | NeedsOfRows | None,
    handler: Handler,
    request: Any,
    client: Principal | None,
) -> Any:
    """Make a call for a client, as far as it may. `client`: None for who is no client. Raises RightMissing."""
    if client is None:
        return await handler(driver, request)
    await driver.catch_up()
    if not driver.machine.state.rights.enforced:
        check_unbound(client)
        return await handler(driver, request)
    if isinstance(needs, NeedsOfItems):
        return await _serve_batch(driver, needs, handler, request, client)
    if isinstance(needs, NeedsOfRows):
        return _visible(driver, needs, await handler(driver, request), client)
    with driver.state() as state:
        error = _refusal(state, client, needs(state, request)) if needs is not None else _unknown(str(client))
    if error is not None:
        raise error
    return await handler(driver, request)


def limited(caller: Principal | None, *, tls: bool) -> Principal | None:
    """Return the client that makes a call, None for a server or an administrator, and where there are no certificates."""
    if caller is None and not tls:
        return None  # rights cannot be enforced there
    if caller is None:
        raise HandshakeFailed("the caller shows no certificate")
    return caller if caller.role is Role.CLIENT else None


def _refusal(state: State, client: Principal, needs: Iterator[Need]) -> RangelogError | None:
    for verbs, resource in needs:
        given, (kind, name) = decide(state, str(client), resource)
        if not given & verbs:
            return right_missing(str(client), verbs, kind, name)
        if not given & left(client, kind, name) & verbs:
            return token_bound(client, verbs, kind, name)
    return None


def _unknown(principal: str) -> RangelogError:
    return right_missing(principal, Verb.ADMIN, NAMESPACE, "*")


async def _serve_batch(driver: Driver, batch: NeedsOfItems, handler: Handler, request: Any, client: Principal) -> Any:
    items = getattr(request, batch.items)
    with driver.state() as state:
        refused = {
            number: error
            for number, item in enumerate(items)
            if (error := _refusal(state, client, batch.needs(state, item))) is not None
        }
    if not refused:
        return await handler(driver, request)
    kept = type(request)()
    kept.CopyFrom(request)
    del getattr(kept, batch.items)[:]
    getattr(kept, batch.items).extend(item for number, item in enumerate(items) if number not in refused)
    answered = iter((await handler(driver, kept)).results if len(refused) < len(items) else ())
    response = batch.response()
    for number in range(len(items)):
        if number in refused:
            response.results.add(error=call_error(refused[number]))
        else:
            response.results.append(next(answered))
    return response


def _visible(driver: Driver, listing: NeedsOfRows, response: Any, client: Principal) -> Any:
    rows = list(getattr(response, listing.rows))
    del getattr(response, listing.rows)[:]
    with driver.state() as state:
        getattr(response, listing.rows).extend(row for row in rows if _shown(state, client, listing.resource(row)))
    return response


def _shown(state: State, client: Principal, resource: rights_pb2.AccessResource) -> bool:
    given, (kind, name) = decide(state, str(client), resource)
    return bool(given & left(client, kind, name) & ANY)
