"""The bounds of a token, beside the rights of its principal. No I/O.

What holds: a bound token is good for nothing while rights are not enforced: only then does a server know the names by which the
token is bound.
"""

from __future__ import annotations

import shlex

from rangelog_core.errors import RightMissing
from rangelog_core.limits import NAME_LENGTH_MAX
from rangelog_core.net.acting import Represented
from rangelog_core.net.principals import Principal
from rangelog_core.rights import ANY, KIND_NAMES, Verb, verb_names
from rangelog_core.tokens import Bounds
from rangelog_server_common.tokens.verifier import TokenPrincipal

_WITH_BOUNDS = (TokenPrincipal, Represented)
"""A union of types in its place would be built for each call: 9 µs."""


def bounds_of(principal: Principal | None) -> Bounds | None:
    """Return what a principal's token is bound to; None: nothing, or there is no token."""
    return principal.bounds if isinstance(principal, _WITH_BOUNDS) else None


def left(principal: Principal | None, kind: int, name: str) -> Verb:
    """Return the verbs that a principal's token leaves on a resource."""
    bounds = bounds_of(principal)
    return bounds.left(kind, name) if bounds is not None else ANY


def check_unbound(principal: Principal | None) -> None:
    """Raise RightMissing for a bound token: called where rights are not enforced."""
    if bounds_of(principal) is not None:
        raise RightMissing(
            f"the token of {principal} is bound to resources, and counts only where rights are enforced: "
            "`pdctl acl enforce on`"
        )


def token_bound(principal: Principal | str, verbs: Verb, kind: int, name: str) -> RightMissing:
    """Return the error for who may do this, but not with this token."""
    wanted, of = verb_names(verbs), KIND_NAMES.get(kind, "resource")
    shown = name[: 2 * NAME_LENGTH_MAX]
    return RightMissing(
        f"the token of {principal} is bound to other things than to {' or '.join(wanted)} {of} {shown!r}: ask for another one, "
        f"`pdctl token create NAME --only {shlex.quote(f'{wanted[0]} {of} {shown}')}`"
    )
