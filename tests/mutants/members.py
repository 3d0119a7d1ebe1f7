"""Wrong choices about the members of the group of placement drivers, and its upgrade; others are in the Raft simulation."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare
from tests.mutants.upgrades import UPGRADES

_RULES = "rangelog_pd.consensus.rules"
_TEST = "pd/consensus/rules/test_member_changes.py"

MEMBERS: tuple[Mutant, ...] = (
    *UPGRADES,
    rare("members-of-a-cut-entry", "a configuration whose entry lost an election goes on counting", f"{_RULES}.membership",
         "        while len(self._history) > 1 and self.index >= index:\n", "        while False:\n", _TEST),
    rare("members-out-of-reach", "a change is begun that leaves no majority that answers", f"{_RULES}.member_changes",
         "        if not self._has_majority(wanted):\n", "        if False:\n", _TEST),
    rare("members-strangers-disturb", "a removed member raises the term of those that have a leader", f"{_RULES}.raft",
         "        if peer not in self.configuration.voters and self._hears_a_leader():\n", "        if False:\n", _TEST),
    rare("members-removed-never-stand", "the only member that has its own removal can neither win nor let another win",
         f"{_RULES}.raft", "not (self.votes or self._is_being_removed)", "not self.votes", _TEST),
    rare("members-removed-always-stand", "a member whose removal is committed disturbs the group", f"{_RULES}.member_changes",
         "        if self.votes or membership.index <= self.raftCommitIndex:\n", "        if self.votes:\n", _TEST),
    rare("refusals-take-each-other-back", "a follower with another tail, far behind, never gets a further entry",
         f"{_RULES}.raft", "            next_index = min(message.next_index, self._SyncObj__raftNextIndex[node])\n",
         "            next_index = message.next_index\n", "pd/consensus/rules/test_raft_rules.py"),
    rare("transfer-under-load", "a leader that hands over goes on proposing, so nobody ever has everything", f"{_RULES}.raft",
         "paused=leads and self._transfer is not None)", "paused=False)", _TEST),
    rare("joining-taken-for-removed", "a member that is being added is taken for a removed one", f"{_RULES}.member_changes",
         "        if self._log.voter and (\n", "        if True and (\n", _TEST),
    rare("election-times-not-passed", "the settings are read, and the members go by the defaults", "rangelog_pd.runtime",
         "            timings=settings.timings,\n", "", "pd/test_pd_settings.py"),
    rare("restored-like-an-empty-log", "a new member is taken to have a restored state because it has an empty log",
         "rangelog_pd.restoring", "_LAST_INDEX = 3\n", "_LAST_INDEX = 2\n", "pd/state/test_restored_state.py"),
    rare("restored-without-a-gap", "epochs that the lost group gave are given again", "rangelog_pd.state.restored",
         "        raised.epoch += GAP\n", "", "pd/state/test_restored_state.py"),
)  # fmt: skip
