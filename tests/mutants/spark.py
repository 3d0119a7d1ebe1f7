"""Wrong choices about what Spark reads: positions of streaming queries, what filters leave out, how parts are divided."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, rare

_FOLLOWING = "rangelog.spark.following"
_TOPICS = "rangelog.spark.following_topics"
_ADMISSION = "rangelog.spark.admission"
_DIVIDING = "rangelog.spark.dividing"
_OFFSETS_TEST = "test_query_offsets.py"
_FOLLOWING_TEST = "test_following.py"


def _stream(name: str, harm: str, module: str, old: str, new: str) -> Mutant:
    """Only in the seeds in which a streaming query reads the main stream."""
    return Mutant(name, harm, (Edit(module, old, new),), first_seed=2, every=3)


def _topic(name: str, harm: str, module: str, old: str, new: str) -> Mutant:
    """Only in the seeds that have a topic that keeps everything."""
    return Mutant(name, harm, (Edit(module, old, new),), first_seed=17, every=48)


def _rare(name: str, harm: str, module: str, old: str, new: str, test: str) -> Mutant:
    return rare(name, harm, module, old, new, f"client/spark/{test}")


SPARK: tuple[Mutant, ...] = (
    _stream("query-plans-to-now", "a micro-batch that is run again ends where the stream ends by then", _FOLLOWING,
            "max(low, first), to.offset, selection",
            "max(low, first), (await confirmed_end(view, client.connections)).offset, selection"),
    _stream("query-begins-before", "a micro-batch begins with the last record of the one before", _FOLLOWING,
            "        low = to.first if at is None else at.offset\n",
            "        low = to.first if at is None else max(at.first, at.offset - 1)\n"),
    _stream("query-over-budget", "a micro-batch is as large as what waits", _ADMISSION,
            "    if total <= budget:\n", "    if total:\n"),
    _rare("query-skips-uncounted", "records that were trimmed unread are not counted", _FOLLOWING,
          "        skipped += lost\n    cuts", "        skipped += 0\n    cuts", _OFFSETS_TEST),
    _rare("query-of-a-namesake", "a query goes on in another stream of the same name", _FOLLOWING,
          "    if known.stream_id != end.stream_id:\n", "    if False:\n", _OFFSETS_TEST),
    _rare("query-of-a-new-stream-late", "a new stream of a pattern is read from its end", _FOLLOWING,
          "        return StreamOffset(end.stream_id, end.first, end.first), 0\n",
          "        return StreamOffset(end.stream_id, end.first, end.offset), 0\n", _OFFSETS_TEST),
    _rare("query-goes-back", "an end that a silent replica made lower is gone back to: records come twice", _FOLLOWING,
          "offset=max(begun, min(each.offset, target.streams[name].offset))",
          "offset=min(each.offset, target.streams[name].offset)", _OFFSETS_TEST),
    _rare("query-begins-beyond", "a query that is to begin beyond the end leaves out what comes up to there", _FOLLOWING,
          "        if at > end.offset:\n", "        if False:\n", _FOLLOWING_TEST),
    _rare("query-stays-with-the-deleted", "a planned micro-batch of a stream that is gone is never done", _FOLLOWING,
          "            if _may_go(options):\n                continue\n", "", _FOLLOWING_TEST),
    _rare("query-reads-sinks", "a pattern reads what sinks keep for themselves", _FOLLOWING,
          " and not name.startswith(SINK_STREAMS)", "", _FOLLOWING_TEST),
    _topic("query-topic-to-now", "a micro-batch of a topic that is run again ends where its shards end by then", _TOPICS,
           "    for shard_id, (low, high) in graph.between(low_cut, end.offsets).items():\n",
           "    end = await client.topics.cut_in(known, 'tail')\n"
           "    for shard_id, (low, high) in graph.between(low_cut, end.offsets).items():\n"),
    _topic("query-follows-one-parent", "a query goes on behind a merge when it has read one of the shards", _ADMISSION,
           " or any(cut.get(each, -1) != graph.shards[each].end_offset for each in succession.ended):\n",
           " or cut[shard_id] != graph.shards[shard_id].end_offset:\n").and_also(
        _ADMISSION, "            del cut[each]\n", "            cut.pop(each, None)\n"),
    _topic("query-leaves-a-parent", "a query goes on to the shards that follow without the rest of the one before", _ADMISSION,
           "cut.get(each, -1) != graph.shards[each].end_offset for", "not cut.get(each) for"),
    _rare("query-forgets-trimmed-shards", "records of shards that were trimmed unread are not counted", _TOPICS,
          "    return Cut(at.topic_id, begun), sum(high - low for low, high in lost.values())\n",
          "    return Cut(at.topic_id, begun), 0\n", _OFFSETS_TEST),
    _rare("query-hides-losses", "records of a topic that were trimmed unread are left out without a word", _TOPICS,
          "    if lost and options.fails_on_loss:\n", "    if False:\n", _OFFSETS_TEST),
    Mutant("reader-waits-for-half-a-batch", "an end inside a batch is never read after all replicas were started again",
           (Edit("rangelog._read.reader", "if not sealed and fetched.durable_offset > known and await", "if False and await"),),
           test="tests/integration/test_sdk_faults.py"),
    Mutant("sink-repeats-by-number", "a micro-batch with a number that was appended before is taken for that one",
           (Edit("rangelog._sink.decision", "        if (number, records) == (self.number, self.records):\n",
                 "        if number == self.number:\n"),), test="tests/unit/client/sink/test_decision.py"),
    Mutant("transaction-forgets-a-refusal", "a second commit leaves out a row that was refused",
           (Edit("rangelog._transact.transaction", "                self._refused = self._refused or error\n            await",
                 "                raise\n            await"),), test="tests/unit/client/transact/test_transactions.py"),
    _rare("filter-last-of-group", "the last record of a row group is not looked for", _DIVIDING,
          "            Interval(each.timestamp_ms_min, each.timestamp_ms_max + 1),\n",
          "            Interval(each.timestamp_ms_min, each.timestamp_ms_max),\n", "test_dividing.py"),
    _rare("filter-object-without-times", "an object that does not tell its times is left out", _DIVIDING,
          "if is_told else ALL_TIMES_MS\n", "if is_told else Interval(0, 1)\n", "test_dividing.py"),
    _rare("divide-skips-unlisted", "what no object is listed for is not read", _DIVIDING,
          "            pieces.append(PlannedPart(position, low, 0.0))\n", "            pass\n", "test_dividing.py"),
    _rare("divide-joins-over-gaps", "what a filter leaves out is read with its neighbours", _DIVIDING,
          "            and last.end == piece.start\n", "", "test_dividing.py"),
    _rare("filter-within-a-millisecond", "a bound within a millisecond leaves the whole of it out", "rangelog.spark.filters",
          "Interval(low // 1000, -(-end // 1000))", "Interval(low // 1000, end // 1000)", "test_filters.py"),
    _rare("filter-shard-list", "of a list of shards all between the first and the last are read", "rangelog.spark.filters",
          'and (each.kind != "In" or shard_id in each.values) for each', "for each", "test_filters.py"),
)  # fmt: skip
