"""Wrong choices about restores: of a cluster from its bucket."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_STATE = "rangelog_pd.state.restore"
_ROWS = "rangelog.tier.restore.rows"
_PLANNING = "rangelog.tier.restore.planning"
_PD_TEST = "pd/state/test_pd_restore.py"
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
         "rangelog.tier.restore.coverage",
         "    if stream is not None and of_snapshot.revision >= manifest.revision:\n", "    if stream is not None:\n", _MODEL),
    rare("restore-drops-strays", "the last replicas of the former cluster are removed from their servers",
         "rangelog_pd.reconcile.directives", "    if state.is_from_before_restore(key):\n", "    if False:\n",
         "pd/reconcile/test_restored_strays.py"),
    rare("restore-remembers-transactions", "transactions of a restored cluster are taken for merged ones of the former",
         "rangelog_broker.shards.state", "        self.merges = Merges()\n", "", "broker/shards/test_restored_shard.py"),
)  # fmt: skip
