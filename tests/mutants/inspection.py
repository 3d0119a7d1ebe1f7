"""Wrong choices about what operators are told: health, where a record is, and what a verification proves."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_HEALTH = "rangelog_pd.reconcile.health"
_HEALTH_TEST = "pd/reconcile/test_pd_health.py"
_SUMS = "pdctl.inspection.compare_sums"
_SUMS_TEST = "pdctl/test_pdctl_compare_sums.py"
_OBJECTS = "rangelog_tier.storing"
_SIBLINGS_TEST = "client/consume/test_siblings.py"
_NAMES_TEST = "client/test_sibling_names.py"
_LOCATE_TEST = "pdctl/test_pdctl_locate.py"

INSPECTION: tuple[Mutant, ...] = (
    # ---- one event, two paths
    rare("lost-in-no-shard", "who reads a topic is not told in which shard records are lost", "rangelog._topics.shard_errors",
         "    if isinstance(error, OffsetOutOfRange | StorageFull):\n", "    if error.code == \"OFFSET_TRIMMED\":\n",
         _SIBLINGS_TEST),
    rare("member-names-no-shard", "a member of a group is told of an offset, and not of which shard",
         "rangelog._consume.shard_feed", "            self.failed = of_shard(error, *self._named(begin.shard))\n",
         "            self.failed = error\n", _SIBLINGS_TEST),
    rare("topic-names-no-shard", "a reader of a topic is told of an offset, and not of which shard",
         "rangelog._consume.reader",
         "            except RangelogError as error:\n                raise of_shard(error, self.topic, shard_id) from error\n",
         "            except RangelogError as error:\n                raise\n", _SIBLINGS_TEST),
    rare("lost-is-waited-for", "a reader waits its whole time for records that are lost for good", "rangelog._read.reader",
         "        if not may_change or isinstance(error, RecordsLost):\n", "        if not may_change:\n", _SIBLINGS_TEST),
    rare("no-table-is-no-topic", "who asks for a table is told that there is no topic, and to list topics",
         "rangelog._table.tables", "            raise no_table(str(name)) from None\n", "            raise\n", _NAMES_TEST),
    rare("producer-hears-an-id", "a producer is told by an id that its topic was deleted, a reader by the name",
         "rangelog._produce.topic_map", "            raise deleted_topic(self.name) from error\n", "            raise\n",
         _NAMES_TEST),
    rare("sealed-by-half-a-name", "the same sealed topic has one name at the first producer, and another at the next",
         "rangelog._produce.producer", "            raise sealed_topic(self._map.name)\n",
         "            raise sealed_topic(self.topic)\n", _NAMES_TEST),
    rare("no-topic-without-a-cure", "who names an unknown topic is not told how to find the names", "rangelog_core.name_errors",
         "    return TopicNotFound(_listed(\"topic\", name))\n", "    return TopicNotFound(f\"no topic {name!r}\")\n",
         _NAMES_TEST),
    rare("located-below-the-trim", "what was trimmed is told as not there by one verb and as trimmed by the other",
         "rangelog_pd.handlers.inspection", "            raise OffsetTrimmed(\n", "            raise OffsetOutOfRange(\n",
         "pd/handlers/test_pd_inspection.py"),
    rare("health-ignores-short-ranges", "a cluster with too few copies is called healthy", _HEALTH,
         "    if count:\n", "    if False:\n", _HEALTH_TEST),
    rare("health-ignores-open-ranges", "an open range on too few servers counts as whole", "rangelog_pd.state.store",
         "        mark(self.open_short, key, present=lacks and is_open)\n", "", _HEALTH_TEST),
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
         "    if f\"sha256:{digest.hexdigest()}\" != described.digest:\n", "    if False:\n", _LOCATE_TEST),
    rare("verify-blames-the-object", "an object is damaged because the copy beside it is", "pdctl.inspection.verify_objects",
         "return Verdict(UNREACHABLE, None, f\"nothing", "return Verdict(DIFFERS, low, f\"nothing",
         "pdctl/test_pdctl_verify_objects.py"),
    rare("locate-names-the-listed", "a replica is named as a holder because it is listed", "pdctl.inspection.locate",
         "    if not answer.HasField(\"batch\"):\n        return row | {\"holds\": False,",
         "    if not answer.HasField(\"batch\"):\n        return row | {\"holds\": True,", _LOCATE_TEST),
    rare("locate-in-quarantine", "a replica that trusts none of its records names one", "rangelog_server.inspecting",
         "    if number < 0 or core.trust is DiskTrust.QUARANTINED:\n", "    if number < 0:\n",
         "range_server/test_inspecting.py"),
    rare("wait-trusts-a-new-leader", "a wait ends because a new leader knows of no task yet", "pdctl.tasks",
         "            if not current and told.settled:\n", "            if not current:\n", "pdctl/test_pdctl_tasks.py"),
)  # fmt: skip
