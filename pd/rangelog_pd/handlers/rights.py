"""Calls on rights: administrators change them, servers ask what a client may do before they serve it."""

from __future__ import annotations

from bisect import bisect_right

from rangelog_core.errors import InvalidArgument, PreconditionFailed
from rangelog_core.net.principals import ADMINS
from rangelog_core.rights import RIGHTS_FORMAT, wire_verbs
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import audited
from rangelog_pd.handlers.call import SERVERS, Call, proposing
from rangelog_pd.state.resources import decide
from rangelog_pd.state.store import State
from rangelog_pd.state.versions import LEVEL_RIGHTS
from rangelog_proto.v1 import rights_pb2 as pb

RESOURCES_MAX = 1_000
PAGE_SIZE_MAX = 1_000
_SEPARATOR = " "


grant_rights = proposing("grant_rights", pb.GrantRightsResponse)
"""Add verbs to a rule. Raises InvalidArgument, PreconditionFailed."""

revoke_rights = proposing("revoke_rights", pb.RevokeRightsResponse)
"""Take verbs from a rule. Raises InvalidArgument, PreconditionFailed."""


async def enforce_rights(driver: Driver, request: pb.EnforceRightsRequest) -> pb.EnforceRightsResponse:
    """Turn the enforcement of rights on or off. Raises PreconditionFailed where a process could not do so."""
    if request.enforced:
        if driver.settings.tls is None:
            raise PreconditionFailed("rights need TLS on all ports: without certificates nobody knows who a client is")
        await driver.barrier()
        with driver.state() as state:
            _check_servers(state)
            _check_brokers(driver, state)
    return await driver.propose_request(pb.EnforceRightsResponse, request.request_id, enforce_rights=request)


def _check_servers(state: State) -> None:
    """Raise PreconditionFailed while a registered range server would serve everybody."""
    for name, each in state.servers.items():
        if not any(known.format == RIGHTS_FORMAT for known in each.server.formats):
            raise PreconditionFailed(
                f"range server {name} is of a version that does not know rights: upgrade all range servers and brokers first"
            )


def _check_brokers(driver: Driver, state: State) -> None:
    """Raise PreconditionFailed while a broker that lives would serve everybody, or has not said what it is."""
    for each in sorted(state.owners.brokers.values(), key=lambda each: each.name):
        if each.lost or driver.brokers.feature_level(each) >= LEVEL_RIGHTS:
            continue
        raise PreconditionFailed(
            f"broker {each.name} is of a version that does not know rights, or has not reported to this leader yet: "
            "see `pdctl upgrade check`, upgrade it, or try again in a few seconds"
        )


async def list_rights(driver: Driver, request: pb.ListRightsRequest) -> pb.ListRightsResponse:
    """Return one page of the rules, by principal, kind and name."""
    await driver.barrier()
    size = min(request.page_size or PAGE_SIZE_MAX, PAGE_SIZE_MAX)
    with driver.state() as state:
        chosen = [each for each in state.rights.rules if request.principal in ("", each[0])]
        names = sorted((_token(*each), each) for each in chosen)
        first = bisect_right(names, request.page_token, key=lambda each: each[0]) if request.page_token else 0
        page = names[first : first + size]
        return pb.ListRightsResponse(
            rules=[state.rights.rules[key] for _, key in page],
            next_page_token=page[-1][0] if first + size < len(names) else "",
            enforced=state.rights.enforced,
        )


def _token(principal: str, kind: int, name: str) -> str:
    """Return what rules are ordered by; no name has a space."""
    return _SEPARATOR.join((principal, str(kind), name))


async def check_rights(driver: Driver, request: pb.CheckRightsRequest) -> pb.CheckRightsResponse:
    """Return what a client may do to some resources. Raises InvalidArgument."""
    if not 1 <= len(request.resources) <= RESOURCES_MAX:
        raise InvalidArgument(f"one call asks about 1 to {RESOURCES_MAX:,} resources")
    await driver.barrier()
    response = pb.CheckRightsResponse()
    with driver.state() as state:
        response.version, response.enforced = state.rights.version_in_force, state.rights.enforced
        for asked in request.resources:
            verbs, (kind, name) = decide(state, request.principal, asked)
            decided = pb.AccessResource(kind=kind, name=name)  # type: ignore[arg-type]
            response.grants.add(verbs=wire_verbs(verbs), resource=decided)
    return response


CALLS = (
    Call("GrantRights", grant_rights, ADMINS, audit=audited.of_rule),
    Call("RevokeRights", revoke_rights, ADMINS, audit=audited.of_rule),
    Call("ListRights", list_rights, ADMINS),
    Call("EnforceRights", enforce_rights, ADMINS, audit=audited.cluster),
    Call("CheckRights", check_rights, SERVERS),
)
