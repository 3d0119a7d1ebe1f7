"""Tokens: what a client shows in place of a certificate. Their limits, what they are bound to, whom they name. No I/O.

What holds: a token never gives more than its principal has; what it is bound to can only take away.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rangelog_core.errors import InvalidArgument
from rangelog_core.rights import EVERY_CLIENT, Rules, Verb, check_rule, verbs_of
from rangelog_proto.v1 import rights_pb2 as pb

TEXT_LENGTH_MAX = 8_192
"""Characters of a token."""
CLOCK_SKEW_S = 300.0
"""By so much may the clocks of who signs a token and who checks it differ."""
LIFETIME_MS_MIN, LIFETIME_MS_MAX = 60_000, 366 * 24 * 3_600_000
TOKENS_MAX = 10_000
BOUNDS_MAX = 20
"""Resources that one token is bound to."""
ISSUER = "rangelog"
"""The issuer of the tokens that a cluster signs itself."""


class Bounds:
    """The bounds of a token: the verbs that are left of its principal's, for each resource.

    Example: `Bounds([rule]).left(pb.RESOURCE_KIND_STREAM, "orders")`.
    """

    def __init__(self, rules: Iterable[pb.AccessRule]) -> None:
        """Raises InvalidArgument: a rule is malformed or names a principal, or there are too many."""
        self._rules = Rules()
        self.rules = tuple(rules)
        check_bounds(self.rules)
        for each in self.rules:
            self._rules.changed(None, each)

    def left(self, kind: int, name: str) -> Verb:
        """Return the verbs that the token leaves on a resource."""
        return self._rules.given(EVERY_CLIENT, kind, name)


def listed(bounds: Iterable[pb.AccessRule]) -> list[Any]:
    """Return what a token is bound to as JSON has it: of each resource its verbs, kind and name."""
    return [[list(each.verbs), int(each.kind), each.name] for each in bounds]


def bounds_of_list(found: Any) -> Bounds:
    """Return the bounds that a list names. Raises InvalidArgument."""
    try:
        rules = [
            pb.AccessRule(principal=EVERY_CLIENT, kind=kind, name=name, verbs=verbs) for verbs, kind, name in found
        ]
    except (TypeError, ValueError) as error:
        raise InvalidArgument("this is no list of resources with their verbs") from error
    if not rules:
        raise InvalidArgument("a token is bound to something, or not bound")
    return Bounds(rules)


def check_bounds(rules: Iterable[pb.AccessRule]) -> None:
    """Raise InvalidArgument unless a token can be bound to this."""
    seen: set[tuple[int, str]] = set()
    for each in rules:
        if each.principal != EVERY_CLIENT:
            raise InvalidArgument(f"what a token is bound to names no client but {EVERY_CLIENT}")
        check_rule(each)
        if not verbs_of(each.verbs):
            raise InvalidArgument("what a token is bound to has at least one verb")
        if (each.kind, each.name) in seen:
            raise InvalidArgument(f"a token is bound to {each.name!r} twice: give its verbs together")
        seen.add((each.kind, each.name))
    if len(seen) > BOUNDS_MAX:
        raise InvalidArgument(f"a token is bound to {BOUNDS_MAX} resources at most: use prefixes")
