"""The rules of what clients may do, whether they are enforced, and the version of all that.

What holds: one rule for each principal, kind and name, and it gives something; the version rises with each change.
"""

from __future__ import annotations

from collections.abc import Iterable

from rangelog_core.errors import Corruption, InvalidArgument
from rangelog_core.rights import Rules, check_rule
from rangelog_pd.state.tables import Table
from rangelog_proto.v1 import rights_pb2 as pb

RuleKey = tuple[str, int, str]
"""Principal, kind and name."""


class RightsTable:
    """The rules, and the index that answers questions."""

    def __init__(self) -> None:
        self.index = Rules()
        self.rules: Table[RuleKey, pb.AccessRule] = Table(self.index.changed)
        self.version = 0
        self.enforced = False

    @property
    def version_in_force(self) -> int:
        """The version that servers compare; 0: rights are not enforced."""
        return self.version if self.enforced else 0

    def load(self, rules: Iterable[pb.AccessRule], version: int, *, enforced: bool) -> None:
        """Take the rows of a snapshot. Raises Corruption."""
        for rule in rules:
            try:
                check_rule(rule)
            except InvalidArgument as error:
                raise Corruption(f"the snapshot has a malformed rule: {error.message}") from error
            self.rules.put(key_of(rule), rule)
        if (self.rules or enforced) and not version:
            raise Corruption("the snapshot has rules, and no version of them")
        self.version, self.enforced = version, enforced


def key_of(rule: pb.AccessRule) -> RuleKey:
    """Return what a rule is kept under."""
    return rule.principal, rule.kind, rule.name
