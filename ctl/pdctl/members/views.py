"""How members of the group are shown."""

from __future__ import annotations

from typing import Any

from pdctl.output import field


def members_view(found: Any) -> dict[str, Any]:
    """Return what a ListMembersResponse says, as plain values."""
    return {
        "members": [_member_view(each, found) for each in found.members],
        "voters": sum(each.voter for each in found.members),
        "has_majority": found.has_majority,
        "passing": found.passing,
        "term": found.term,
        "configuration_index": found.configuration_index,
        "last_index": found.last_index,
        "group": found.group.hex(),
        "answered_by": found.answered_by,
    }


def _member_view(each: Any, found: Any) -> dict[str, Any]:
    state = "leader" if each.leader else "voter" if each.voter else "learner"
    return {
        "name": each.name,
        "state": state if each.reachable else f"{state}, unreachable",
        "voter": each.voter,
        "leader": each.leader,
        "reachable": each.reachable,
        "replaces": each.replaces,
        "raft_address": each.raft_address,
        "api_address": each.api_address,
        "feature_level": each.feature_level,
        "behind_entries": found.last_index - each.acknowledged_index if each.acknowledged_index else None,
    }


COLUMNS = [
    field("NAME", "name"),
    field("STATE", "state"),
    field("API", "api_address"),
    field("RAFT", "raft_address"),
    field("LEVEL", "feature_level", lambda level: level or "-"),
    field("BEHIND", "behind_entries", lambda count: "-" if count is None else f"{count:,}"),
    field("REPLACES", "replaces", lambda name: name or "-"),
]


def remark(view: dict[str, Any]) -> str:
    """Return a sentence about what is not as it should stay; "" where there is nothing."""
    if not view["has_majority"]:
        return "no majority of the voters is reachable: nothing can be changed until one is"
    learning = [each["name"] for each in view["members"] if not each["voter"]]
    if learning:
        return f"{', '.join(learning)} catches up, and votes then; `pdctl pd remove` gives it up"
    if view["passing"]:
        return (
            f"{view['voters']} voters are a passing state: they bear no more losses than one fewer; go on to 1, 3 or 5"
        )
    return ""
