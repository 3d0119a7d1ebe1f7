"""Wrong choices about the repacks that the placement driver orders, and about rows that leave because they are trimmed."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, rare

_CHOICE = "rangelog_core.repack_choice"
_QUEUE = "rangelog_pd.reconcile.repack_queue"
_UNITS = "rangelog_pd.reconcile.repack_units"
_STATE = "rangelog_pd.state.repacks"
_STORE = "rangelog_pd.state.store"
_COMMIT = "rangelog_pd.state.objects"
_WRITER = "rangelog_tier.repacking"
_SERVER = "rangelog_server.agent.directives.repack"
_CHOICE_TEST, _QUEUE_TEST = "core/test_repack_choice.py", "pd/reconcile/test_pd_repack_queue.py"
_SERVER_TEST = "range_server/agent/test_repack_directive.py"


def _packing(name: str, harm: str, module: str, old: str, new: str) -> Mutant:
    """By seeds: three of four repack."""
    return Mutant(name, harm, (Edit(module, old, new),))


PACKING: tuple[Mutant, ...] = (
    _packing("packing-forgets-the-trim", "trimmed rows are written again and again, and stay", _STATE,
             "    if request.drops_trimmed:\n", "    if False:\n"),
    _packing("packing-drops-too-much", "a repack loses rows that are not trimmed", _STATE,
             "        start = min(max(start, state.streams[request.stream_id].trim_offset), end)\n",
             "        start = min(max(start, state.streams[request.stream_id].trim_offset) + 1, end - 1)\n"),
    _packing("packing-trims-with-the-first-row", "an object goes with the first of its rows that is trimmed", _STORE,
             "each.end_offset <= stream.trim_offset:\n                self.bury",
             "each.start_offset < stream.trim_offset:\n                self.bury"),
    _packing("packing-deletes-at-once", "the earlier objects are deleted before the new one counts", _WRITER,
             "        request = pb.CommitRepackRequest(\n",
             "        for each in work.objects:\n            self._store.delete(each.key)\n"
             "        request = pb.CommitRepackRequest(\n"),
    _packing("packing-in-any-order", "the rows of a repack are not in order", _WRITER,
             "    for described in objects:\n        if described",
             "    for described in reversed(objects):\n        if described")
    .and_also("rangelog_tier.parquet", "        if start != self._position:\n", "        if False:\n"),
    _packing("packing-leaves-a-gap", "the rows of one object are left out", _WRITER,
             "    for described in objects:\n        if described",
             "    for described in [*objects[:1], *objects[2:]]:\n        if described")
    .and_also("rangelog_tier.parquet", "        if start != self._position:\n", "        if False:\n")
    .and_also("rangelog_tier.parquet", "        if self._position != self._end:\n", "        if False:\n")
    .and_also(_COMMIT, "        if group.start_offset != position or not group.count:\n", "        if False:\n")
    .and_also(_COMMIT, "    if request.row_groups and position != found.end_offset:\n", "    if False:\n"),
    _packing("packing-mixes-streams", "an object of another stream is joined", _QUEUE,
             "    ids = tuple(each.object_id for each in objects)\n",
             "    ids = tuple(each.object_id + (number > 0) for number, each in enumerate(objects))\n")
    .and_also(_STATE, "        if each is None or not live or each.stream_id != request.stream_id:\n",
              "        if each is None:\n"),
    _packing("packing-forgets-the-young", "a few small objects are never joined", _QUEUE,
             "            heapq.heappush(self._due_heap, (due_ms, place))\n", ""),
    _packing("packing-under-one-leader", "what was to be repacked is forgotten with the leader", _QUEUE,
             "        self._passing = dict.fromkeys(state.streams, 0) if self._rules.target_bytes else {}\n", ""),
    rare("packing-waits-for-the-dead", "a repack is never given to another server", _QUEUE,
         "            elif not is_there(repack.server, repack.incarnation):\n", "            elif False:\n", _QUEUE_TEST),
    rare("packing-holds-its-place", "one damaged object keeps all others from being repacked", _QUEUE,
         "        elif now_ms - found.fails_since_ms >= FAILS_MAX_MS:\n", "        elif False:\n", _QUEUE_TEST),
    rare("packing-beside-others", "what a job is repacking is repacked once more", _QUEUE,
         "        return object_id in self._busy or object_id in self._claimed\n", "        return object_id in self._busy\n",
         _QUEUE_TEST),
    rare("packing-by-a-scan", "each commit costs a look at the whole stream", _UNITS,
         "    if not center.is_small(target_bytes):\n        return [center], False\n", "", _QUEUE_TEST)
    .and_also(_UNITS, "            if each is None or not each.is_small(target_bytes):\n", "            if each is None:\n")
    .and_also(_UNITS, "            size_bytes += each.size_bytes\n", ""),
    rare("packing-without-end", "a large object is rewritten for each small one that comes", _CHOICE,
         "        if 2 * sizes[largest] <= sum(sizes) or len(some) == 1:\n", "        if True:\n", _CHOICE_TEST),
    rare("packing-for-a-few-trimmed-rows", "an object is rewritten at each trim", _CHOICE,
         "rules.trimmed_fraction < first.trimmed_share < 1.0\n", "0.0 < first.trimmed_share < 1.0\n", _CHOICE_TEST),
    rare("packing-under-a-spoiled-key", "a repack fails for ever at a key that holds other bytes", _SERVER,
         "                    self._spoiled[directive.task_id] = packer.spoiled_object_id\n", "                    pass\n",
         _SERVER_TEST),
    rare("packing-of-what-does-not-count", "a server repacks objects that were replaced", _SERVER,
         "        if missing or not object_ids:\n", "        if not found:\n", _SERVER_TEST),
    rare("packing-cuts-headers", "the first rows after a cut lose the header of their batch", _WRITER,
         "    if headers[row].is_valid or not len(before):\n", "    if True:\n", "client/tier/test_repacking.py"),
    rare("reader-starts-over-in-a-new-object", "a reader gets rows twice when objects are replaced between two pages",
         "rangelog._read.look_ahead", "            groups = reader.row_groups(fetched.start, self.end)\n",
         "            groups = reader.row_groups(self._start, self.end)\n", "client/read/test_cold_reader.py")
    .and_also("rangelog._read.look_ahead", "reader.decode, group, fetched.start, self.end, data",
              "reader.decode, group, self._start, self.end, data"),
    rare("time-below-the-trim", "a start by time fails where trimmed rows have left", "rangelog._read.cold",
         "        position = max(source.start_offset, stream.trim_offset)", "        position = source.start_offset",
         "client/read/test_cold_reader.py"),
)  # fmt: skip
