"""Commands on rights: a rule gets verbs, or loses them, and rules are enforced, or not.

What holds: a refused command changes nothing; a command without effect leaves the version, so servers ask for nothing again.
"""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument, PreconditionFailed
from rangelog_core.rights import NONE, RULES_MAX, RULES_OF_PRINCIPAL_MAX, Verb, check_rule, verbs_of, wire_verbs
from rangelog_pd.state.rights_table import key_of
from rangelog_pd.state.store import State
from rangelog_proto.v1 import rights_pb2 as pb


def grant_rights(state: State, request: pb.GrantRightsRequest, now_ms: int) -> pb.GrantRightsResponse:
    """Add verbs to a rule, which may be new. Raises InvalidArgument, PreconditionFailed (too many rules)."""
    rule, rights = request.rule, state.rights
    check_rule(rule)
    given = verbs_of(rule.verbs)
    if not given:
        raise InvalidArgument("a rule gives at least one verb")
    known = rights.rules.find(key_of(rule))
    if known is None and len(rights.rules) >= RULES_MAX:
        raise PreconditionFailed(f"{RULES_MAX:,} rules exist, which is the limit: use prefixes, or revoke some")
    if known is None and rights.index.count_of(rule.principal) >= RULES_OF_PRINCIPAL_MAX:
        raise PreconditionFailed(
            f"{rule.principal} has {RULES_OF_PRINCIPAL_MAX:,} rules, which is the limit: use prefixes, or revoke some"
        )
    return pb.GrantRightsResponse(rule=_put(state, rule, given | verbs_of(known.verbs if known is not None else ())))


def revoke_rights(state: State, request: pb.RevokeRightsRequest, now_ms: int) -> pb.RevokeRightsResponse:
    """Take verbs from a rule, or all of them. Raises InvalidArgument, PreconditionFailed (there is no such rule)."""
    rule = request.rule
    check_rule(rule)
    known = state.rights.rules.find(key_of(rule))
    if known is None:
        raise PreconditionFailed(
            f"{rule.principal} has no rule of its own for {rule.name!r}: see `pdctl acl list {rule.principal}`"
        )
    left = verbs_of(known.verbs) & ~verbs_of(rule.verbs) if rule.verbs else NONE
    return pb.RevokeRightsResponse(rule=_put(state, rule, left))


def enforce_rights(state: State, request: pb.EnforceRightsRequest, now_ms: int) -> pb.EnforceRightsResponse:
    """Turn the enforcement of rights on or off. Without rules clients may do nothing then."""
    rights = state.rights
    if rights.enforced != request.enforced:
        rights.enforced = request.enforced
        rights.version += 1
    return pb.EnforceRightsResponse(version=rights.version)


def _put(state: State, named: pb.AccessRule, verbs: Verb) -> pb.AccessRule:
    """Keep a rule with these verbs, or remove it; return it."""
    rights, key = state.rights, key_of(named)
    rule = pb.AccessRule(principal=named.principal, kind=named.kind, name=named.name, verbs=wire_verbs(verbs))
    if rights.rules.find(key) != (rule if verbs else None):
        rights.version += 1
        if verbs:
            rights.rules.put(key, rule)
        else:
            rights.rules.remove(key)
    return rule
