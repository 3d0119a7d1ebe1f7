"""Wrong choices about restores: of a cluster from its bucket."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_STATE = "rangelog_pd.state.restore"
_ROWS = "rangelog_tier.restore.rows"
_PLANNING = "rangelog_tier.restore.planning"
_PD_TEST = "pd/state/test_pd_restore.py"
_PDCTL_TEST = "pdctl/test_pdctl_restore.py"
_MODEL = "client/tier/restore/test_restore_model.py"

RESTORES: tuple[Mutant, ...] = (
    rare("restore-over-streams", "a restore goes into a cluster that has streams of its own", _STATE,
         "    if not streams and not topics and not state.objects:\n", "    if True:\n", _PD_TEST),
    rare("restore-beside-others", "streams are made and opened while rows are being restored", _STATE,
         "    if state.restore.phase != pb.RESTORE_PHASE_RUNNING or action in _GO_ON:\n", "    if True:\n", _PD_TEST),
    rare("restore-half", "a cluster serves before all rows are there", _STATE,
         "    if mark.rows_put != mark.row_count:\n", "    if False:\n", _PD_TEST),
    rare("restore-epochs-kept", "a writer of the former cluster goes on in the restored one", _ROWS,
         "    row.epoch = beyond(max([row.epoch, *(each.epoch for each in objects)]))\n",
         "    row.epoch = max([row.epoch, *(each.epoch for each in objects)])\n", _PD_TEST),
    rare("restore-ids-again", "an object gets the key of one that the former cluster was uploading", _PLANNING,
         "        self._plan.next_object_id = beyond(max([header.next_object_id, *(each.object_id for each in places)]))\n",
         "        self._plan.next_object_id = max([header.next_object_id, *(each.object_id + 1 for each in places)])\n",
         _PD_TEST),
    rare("restore-by-the-snapshot", "what was committed after the snapshot is lost, although a manifest names it",
         "rangelog_tier.restore.coverage",
         "    if stream is not None and of_snapshot.revision >= manifest.revision:\n", "    if stream is not None:\n", _MODEL),
    rare("restore-drops-strays", "the last replicas of the former cluster are removed from their servers",
         "rangelog_pd.reconcile.directives", "    if state.is_from_before_restore(key):\n", "    if False:\n",
         "pd/reconcile/test_restored_strays.py"),
    rare("restore-remembers-transactions", "transactions of a restored cluster are taken for merged ones of the former",
         "rangelog_broker.shards.state", "        self.merges = Merges()\n", "", "broker/shards/test_restored_shard.py"),
    rare("restore-of-the-last-store", "objects of a former store are taken for missing ones, and streams are cut",
         "rangelog_tier.restore.stores", "    if len(saved) <= 1:\n", "    if True:\n", _PDCTL_TEST),
    rare("restore-from-any-copy", "a copy of the last store is read as if it were all of them",
         "rangelog_tier.restore.stores", "    if store_location(last.url) != store_location(url):\n", "    if False:\n",
         _PDCTL_TEST),
    rare("restore-into-the-last-store", "a restored cluster does not know where its older objects are",
         "rangelog_tier.restore.stores", "    return _places(one) == _places(other)\n",
         "    return _places(one)[-1][1] == _places(other)[-1][1]\n", _PDCTL_TEST),
    rare("restore-stores-unsaved", "a snapshot does not say where the first store is", "rangelog_pd.tier_snapshots",
         "                tier_url=tier_url(state, driver.settings.tier_url),\n", "", "pd/test_tier_snapshots.py"),
    rare("restore-counts-the-gap", "a restored stream has a million ranges", "rangelog_pd.handlers.streams",
         "    found.range_count = len(state.ranges.of(stream.stream_id))\n", "", _PDCTL_TEST),
)  # fmt: skip
