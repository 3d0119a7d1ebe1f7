"""Wrong choices in the coordinator of groups that too few seeds see; the others are in the catalogue."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

GROUPS: tuple[Mutant, ...] = (
    rare("group-facts-of-the-dead", "members of a group get no shards: its broker was lost before it knew them",
         "rangelog_broker.groups.group_owner",
         "                if not map_version:  # the owner before was lost before it knew the topic's shards\n",
         "                if False:\n", "broker/groups/test_groups_service.py"),
    rare("group-twins", "an earlier instance of a member commits and reads on", "rangelog_broker.groups.machine",
         "        return by.joined if self.level >= LEVEL_BROKERS else 0\n", "        return 0\n",
         "broker/groups/test_group_machine.py"),
    rare("group-twins-at-any-level", "a broker of before goes on where this one refuses", "rangelog_broker.groups.machine",
         "        return by.joined if self.level >= LEVEL_BROKERS else 0\n", "        return by.joined\n",
         "broker/groups/test_group_machine.py"),
    rare("group-twins-see-one-view", "an earlier instance is handed what its twin has", "rangelog_broker.groups.group_owner",
         "        self.journal.machine.group(name).member(member, joined)\n",
         "        self.journal.machine.group(name).member(member, 0)\n", "broker/groups/test_groups_service.py"),
    rare("group-twins-in-turns", "an instance whose id was taken takes it back", "rangelog._consume.membership",
         "                except MemberFenced as error:\n                    self._end(error)\n                    return\n",
         "                except MemberFenced:\n                    self.expel()\n", "client/consume/test_group_member.py"),
    rare("group-its-own-twin", "a member that joined again ends by a command from before", "rangelog._consume.membership",
         "            if joined != self.joined:", "            if joined < 0:", "client/consume/test_group_member.py"),
    rare("group-trimmed-is-read", "what was trimmed of an ended shard is left out without a word",
         "rangelog_broker.groups.group", "        if shard.offset is None or self.passes_trimmed:\n",
         "        if shard.offset is None or self is not None:\n", "client/consume/test_group_member.py"),
    rare("group-trimmed-comes-back", "shards that were passed long ago are handed out after an upgrade",
         "rangelog_broker.groups.group", "                if shard.offset is not None and self.finished(shard):\n",
         "                if False:\n", "broker/groups/test_group_machine.py"),
)  # fmt: skip
