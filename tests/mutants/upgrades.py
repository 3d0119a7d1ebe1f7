"""Wrong choices about the end of an upgrade: who must have the new program before it is final, and who is next."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_RULES = "rangelog_pd.reconcile.finalizing"
_RULES_TEST = "pd/reconcile/test_pd_finalizing.py"
_CALL = "rangelog_pd.handlers.operations"
_CALL_TEST = "pd/handlers/test_pd_finalize.py"
_PLAN = "pdctl.upgrade.plan"
_PLAN_TEST = "pdctl/test_pdctl_upgrade.py"

UPGRADES: tuple[Mutant, ...] = (
    rare("upgrade-logs-unknown-fields", "a later member applies what the leader does not know: their states differ",
         "rangelog_pd.driver", "        command.DiscardUnknownFields()  # ", "        # ",
         "pd/handlers/test_pd_registration.py"),
    rare("finalize-newest-counts", "the version rises with the first new member, and the others stop", _RULES,
         "    return min(levels, default=0)\n", "    return max(levels, default=0)\n", _RULES_TEST),
    rare("finalize-without-being-asked", "an operator who wants a way back loses it", _RULES,
         "(auto_finalize or cluster_version == CLUSTER_VERSION_FIRST)", "True", _RULES_TEST),
    rare("finalize-new-cluster-waits", "a new cluster refuses topics until an upgrade is finalized that never was", _RULES,
         "(auto_finalize or cluster_version == CLUSTER_VERSION_FIRST)", "auto_finalize", _RULES_TEST),
    rare("finalize-unheard-member", "a member that is down while all others are new comes back, and stops", _RULES,
         "for each in members if each.feature_level != level]",
         "for each in members if each.feature_level not in (0, level)]", _CALL_TEST),
    rare("finalize-accepts-older-members", "a flag that is meant for servers stops a placement driver", _CALL,
         "        servers, brokers = [], []\n", "        members, servers, brokers = [], [], []\n", _CALL_TEST),
    rare("finalize-servers-do-not-count", "the operator is not told that half of the range servers are of before", _CALL,
         "hindrances(level, members, servers, brokers)", "hindrances(level, members, [], brokers)", _CALL_TEST),
    rare("finalize-dry-run-for-real", "who only asks has no way back", _CALL,
         "    if request.dry_run:\n", "    if request.dry_run and found:\n", _CALL_TEST),
    rare("upgrade-leader-first", "leadership moves to a member that is replaced next, and again", _PLAN,
         "key=lambda each: (each.leader, each.name)", "key=lambda each: (not each.leader, each.name)", _PLAN_TEST),
    rare("upgrade-untold-is-new", "a server of before levels were told is never replaced", _PLAN,
         "        return process.program.feature_level < than.feature_level\n",
         "        return 0 < process.program.feature_level < than.feature_level\n", _PLAN_TEST),
    rare("upgrade-servers-first", "range servers ask for what the placement drivers do not know yet", _PLAN,
         "    for kind in ProcessKind:\n", "    for kind in reversed(ProcessKind):\n", _PLAN_TEST),
    rare("broker-version-of-the-newest", "an older broker is to own what it cannot read", "rangelog_pd.state.owner_tables",
         "min(cluster_version, min(levels, default=0))", "min(cluster_version, max(levels, default=0))",
         "pd/state/test_pd_brokers.py"),
    rare("broker-version-falls", "an older broker makes the others write as before", "rangelog_pd.state.owner_tables",
         "self.broker_version = max(self.broker_version, ", "self.broker_version = max(0, ", "pd/state/test_pd_brokers.py"),
    rare("broker-version-ahead-of-the-cluster", "brokers write what a placement driver of before does not know of",
         "rangelog_pd.state.owner_tables", "min(cluster_version, min(levels, default=0))", "min(levels, default=0)",
         "pd/state/test_pd_brokers.py"),
    rare("broker-too-old-is-taken", "a broker of before registers, and is given what it cannot open",
         "rangelog_pd.state.brokers",
         "    if request.feature_level < state.owners.broker_version:\n", "    if request.feature_level < 0:\n",
         "pd/state/test_pd_brokers.py"),
    rare("broker-keeps-what-it-cannot-open", "a journal is down while a broker that can open it runs",
         "rangelog_pd.reconcile.assigning", "        for key in view.unopenable(giver):\n", "        for key in ():\n",
         "pd/reconcile/test_pd_assigning.py"),
    rare("broker-of-before-asked-for-ever", "each heartbeat of an older broker becomes a registration",
         "rangelog_pd.handlers.brokers", "min(state.cluster_version, request.feature_level) >= LEVEL_BROKERS",
         "state.cluster_version >= LEVEL_BROKERS", "pd/handlers/test_pd_broker_calls.py"),
    rare("doors-told-to-an-earlier-pd", "members of two versions keep different rows of a broker",
         "rangelog_pd.handlers.brokers",
         "        request.ClearField(\"endpoints\")\n", "", "pd/handlers/test_pd_broker_calls.py"),
    rare("door-stays-open", "clients connect to a broker that is about to end, and are cut off", "rangelog_broker.runtime",
         "        for close in closings:\n            close()\n", "        closings\n", "broker/test_doors.py"),
    rare("shard-moves-to-the-dead", "a shard is assigned to a broker that is lost", "rangelog_pd.handlers.brokers",
         "        if broker is None or broker.lost:\n", "        if broker is None:\n", "pd/handlers/test_pd_broker_calls.py"),
    rare("shard-move-overtaken-unseen", "an operator is told of a move that did not happen", "rangelog_pd.handlers.brokers",
         "    if now is None or now.broker != broker.name:\n", "    if now is None:\n", "pd/handlers/test_pd_broker_calls.py"),
)  # fmt: skip
