"""Wrong choices in the coordinator of groups that too few seeds see; the others are in the catalogue."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_PLACES_TEST = "client/consume/test_group_places.py"

GROUPS: tuple[Mutant, ...] = (
    rare("group-facts-of-the-dead", "members of a group get no shards: its broker was lost before it knew them",
         "rangelog_broker.groups.group_owner",
         "                if not map_version:  # the owner before was lost before it knew the topic's shards\n",
         "                if False:\n", "broker/groups/test_groups_service.py"),
    rare("group-earliest-is-zero", "a group that is reset to the first records stands before them, and ends at once",
         "rangelog._consume.group_shards", "        return view.stream.trim_offset\n", "        return 0\n", _PLACES_TEST),
    rare("group-checkpoint-of-yesterday", "a checkpoint of a known name returns the positions of the former one",
         "rangelog._consume.groups", "        if each.name != name:\n", "        if each.name != name or not each.waiting:\n",
         _PLACES_TEST),
    rare("group-reset-beyond-the-end", "a group that was moved beyond the end has no lag, and each of its members ends",
         "rangelog._consume.group_shards", "            if wanted <= end.offset:\n",
         "            if wanted <= end.offset or not shard.ended_version:\n", _PLACES_TEST),
    rare("group-reset-of-nothing", "a reset of a group whose topics were all deleted says that it is done",
         "rangelog._consume.groups", "        if topic_ids and not found:\n", "        if False:\n",
         "client/consume/test_groups_of_deleted_topics.py"),
    rare("group-lag-of-deleted-unmarked", "a topic that was deleted looks as if all of it were consumed",
         "rangelog._consume.groups", "0, 0.0, is_deleted=True)", "0, 0.0)", "client/consume/test_groups_of_deleted_topics.py"),
)  # fmt: skip
