"""Wrong choices about what operators are told: health, where a record is, and what a verification proves."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_HEALTH = "rangelog_pd.reconcile.health"
_HEALTH_TEST = "pd/reconcile/test_pd_health.py"
_SUMS = "pdctl.inspection.compare_sums"
_SUMS_TEST = "pdctl/test_pdctl_compare_sums.py"
_OBJECTS = "pdctl.inspection.object_checks"
_LOCATE_TEST = "pdctl/test_pdctl_locate.py"

INSPECTION: tuple[Mutant, ...] = (
    rare("health-ignores-short-ranges", "a cluster with too few copies is called healthy", _HEALTH,
         "    if count:\n", "    if False:\n", _HEALTH_TEST),
    rare("health-ignores-open-ranges", "an open range on too few servers counts as whole", "rangelog_pd.state.store",
         "            (self.open_short, lacks and is_open),\n", "            (self.open_short, False),\n", _HEALTH_TEST),
    rare("health-takes-the-named-for-the-copied", "a member that has still to copy counts as a copy",
         "rangelog_pd.reconcile.shortfalls", "        if view.upkeep.repairs.copying:\n", "        if False:\n", _HEALTH_TEST),
    rare("refuses-no-replicas", "a stream gets more replicas than there are servers", "rangelog_pd.handlers.streams",
         "    if 0 < count < replicas:\n", "    if False:\n", "pd/handlers/test_pd_inspection.py"),
    rare("verify-trusts-the-list", "a copy that ends early is whole because it is listed", _SUMS,
         "            self.fail(name, MISSING, position, f\"it holds nothing from {position} on\")\n",
         "            position = self._end\n", _SUMS_TEST),
    rare("verify-trusts-the-first", "a copy that differs is right if it is the first", _SUMS,
         "            right = max(heads, key=lambda head: len(heads[head]))\n", "            right = next(iter(heads))\n",
         _SUMS_TEST),
    rare("verify-skips-gaps", "batches with a gap count as a copy", _SUMS,
         "            if each.base_offset != position and not inside:\n", "            if False:\n", _SUMS_TEST),
    rare("verify-trusts-objects", "an object with other bytes is right because it is there", _OBJECTS,
         "    if f\"sha256:{sha.hexdigest()}\" != described.digest:\n", "    if False:\n", _LOCATE_TEST),
    rare("locate-names-the-listed", "a replica is named as a holder because it is listed", "pdctl.inspection.locate",
         "    if not answer.HasField(\"batch\"):\n        return row | {\"holds\": False,",
         "    if not answer.HasField(\"batch\"):\n        return row | {\"holds\": True,", _LOCATE_TEST),
    rare("locate-in-quarantine", "a replica that trusts none of its records names one", "rangelog_server.inspecting",
         "    if number < 0 or core.trust is DiskTrust.QUARANTINED:\n", "    if number < 0:\n",
         "range_server/test_inspecting.py"),
    rare("wait-trusts-a-new-leader", "a wait ends because a new leader knows of no task yet", "pdctl.tasks",
         "            if not current and told.settled:\n", "            if not current:\n", "pdctl/test_pdctl_tasks.py"),
)  # fmt: skip
