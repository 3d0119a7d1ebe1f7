"""Wrong choices in the coordinator of groups that too few seeds see; the others are in the catalogue."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

GROUPS: tuple[Mutant, ...] = (
    rare("group-facts-of-the-dead", "members of a group get no shards: its broker was lost before it knew them",
         "rangelog_broker.groups.group_owner",
         "                if not map_version:  # the owner before was lost before it knew the topic's shards\n",
         "                if False:\n", "broker/groups/test_groups_service.py"),
)  # fmt: skip
