"""Wrong choices about repacks: of objects of neighbouring ranges into one."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, rare

_STATE = "rangelog_pd.state.repacks"
_PACKER = "rangelog_tier.repacking"
_COLD = "rangelog._read.cold"


def _repack(name: str, harm: str, module: str, old: str, new: str) -> Mutant:
    """Only in the seeds in which objects are repacked."""
    return Mutant(name, harm, (Edit(module, old, new),), first_seed=1, every=3)


REPACKS: tuple[Mutant, ...] = (
    rare("repack-of-what-is-gone", "a repack counts although one of its objects was trimmed or repacked", _STATE,
          "        if replaced is None or replaced.state != common_pb2.OBJECT_STATE_COMMITTED:\n", "        if False:\n",
          "pd/state/test_pd_repacks.py"),
    _repack("repack-beside", "the objects that were repacked go on counting", _STATE,
            "    for object_id in found.replaces:\n        state.bury(object_id)\n", ""),
    rare("repack-with-the-first-range", "a repacked object goes with the first of its ranges", _STATE,
          "        range_index=last.index,\n", "        range_index=replaced[0].range_index,\n",
          "pd/state/test_pd_repacks.py"),
    rare("repack-unverified", "a repacked object counts although other bytes were stored", _PACKER,
          "        if problem:\n", "        if False:\n", "client/tier/test_repacking.py"),
    _repack("repack-loses-headers", "a repacked object loses the senders of its batches", _PACKER,
            "            table = reader.rows(group)\n",
            "            table = reader.rows(group)\n"
            "            table = table.set_column(5, table.field(5), pa.nulls(table.num_rows, pa.binary()))\n"),
    _repack("repack-keeps-the-revision", "a manifest goes on naming objects that were repacked", "rangelog_core.manifest",
            "self.record_count + self.repack_count\n", "self.record_count\n"),
    rare("repack-of-half-a-range", "a repack leaves some objects of its ranges", _STATE,
          "    if cut or not sealed or last.end_offset != found.end_offset:\n",
          "    if False:\n", "pd/state/test_pd_repacks.py"),
    rare("repack-in-two-pages", "a manifest names an object and those that it replaced", "rangelog_core.net.manifest_calls",
          "        if now.repack_count == begun.repack_count:\n", "        if True:\n",
          "range_server/tier/test_manifest_upkeep.py"),
    rare("repack-ends-readers", "a reader ends at an object that was replaced since it was listed", _COLD,
          "        except ObjectNotFound:  # of an object that another has replaced since it was listed\n"
          "            self._fetcher = None  # or that is in a store which the tier got meanwhile\n"
          "            return await self._read(stream.stream_id, position, end())\n",
          "        except ObjectNotFound:\n            raise\n", "client/read/test_cold_reader.py"),
    rare("repack-misleads-times", "a start by time goes back into the range before", _COLD,
          "            return max(position, group.start_offset)\n", "            return int(group.start_offset)\n",
          "client/read/test_cold_reader.py"),
)  # fmt: skip
