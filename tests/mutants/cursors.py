"""Wrong choices about cursors: positions of consumers, and the retention that waits for them."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, rare

_STATE = "rangelog_pd.state.cursors"
_RETENTION = "rangelog_pd.reconcile.retention"
_READER = "rangelog._read.cursor_reader"
_WRITER = "rangelog._append.writer"
_SERIALIZING_TEST = "client/append/test_serializing.py"
_ARGUMENTS_TEST = "client/test_wrong_arguments.py"
_TRIMMED_TEST = "client/read/test_trimmed_starts.py"
_TRIMMED_TOPIC_TEST = "client/consume/test_trimmed_topic_starts.py"
_END_TEST = "client/append/test_expected_end.py"
_STATE_TEST = "pd/state/test_pd_cursors.py"
_RETENTION_TEST = "pd/reconcile/test_pd_cursor_retention.py"


def _cursor(name: str, harm: str, module: str, old: str, new: str) -> Mutant:
    """Only in the seeds in which consumers share a cursor."""
    return Mutant(name, harm, (Edit(module, old, new),), first_seed=2, every=12)


CURSORS: tuple[Mutant, ...] = (
    rare("poll-commits-ahead", "a commit after a poll has what nobody was handed", _READER,
         "        return self.unmarked_chunks()\n", "        return self.chunks()\n", "client/read/test_cursors.py"),
    rare("append-all-runs-ahead", "a bulk append takes all of its input into memory", "rangelog._append.many_records",
         "        async for record in _each(records):\n            if not writer.has_room:\n",
         "        async for record in _each(records):\n            if False:\n", "client/append/test_append_all.py"),
    rare("append-all-knows-too-much", "after an error in the middle, nothing is said to be appended",
         "rangelog._append.many_records",
         "        if count and not error.outcome_unknown:\n", "        if False:\n", "client/append/test_append_all.py"),
    rare("feed-waits-for-its-iterable", "what a slow iterable gave is not sent until it gives more", "rangelog._sync_submit",
         "            self._loop.call_soon(wanted.set)\n",
         "            if self._ended:\n                self._loop.call_soon(wanted.set)\n", "client/test_sync_writer.py"),
    rare("feed-without-bound", "a blocking bulk append takes all of its input into memory", "rangelog._sync_submit",
         "                len(self._items) >= FEED_RECORDS_MAX or", "                False and", "client/test_sync_writer.py"),
    rare("blocking-batch-of-anything", "a batch that is no iterable ends in a TypeError of Python's", "rangelog._sync_submit",
         "    check_iterable(items)\n", "", "client/test_sync_writer.py"),
    rare("child-ends-its-parents-block", "a forked child that fails waits for a loop that it does not have",
         "rangelog._sync_bases", "        if self._loop.forked and kind is not None:\n", "        if False:\n",
         "client/test_sync_bases.py"),
    rare("block-closes-what-is-closed", "a block fails at its end because its client was closed in it", "rangelog._sync_bases",
         "        if not self._of.closed:\n            super()", "        if True:\n            super()",
         "client/test_sync_bases.py"),
    rare("failed-connect-leaves-a-thread", "each failed connect of a program costs a thread", "rangelog._sync_bases",
         "        loop.stop()\n", "        pass\n", "client/test_sync_bases.py"),
    rare("plain-calls-on-the-calling-thread", "two threads change a writer at once", "rangelog._loop_thread",
         "        return self.run(call(), reads=reads)\n", "        return function()\n", "client/test_sync_bases.py"),
    rare("reads-that-may-have-changed-something", "after a read that failed a program looks for a change",
         "rangelog._sync_topics",
         "        return self._loop.run(self._of.describe(name, timeout_s=timeout_s), reads=True)\n",
         "        return self._loop.run(self._of.describe(name, timeout_s=timeout_s))\n", "client/test_sync_bases.py"),
    rare("groups-deserialize-on-the-loop", "a slow deserializer of one member holds up all of the client",
         "rangelog._sync_bases",
         "        self._deserialize, of.deserialize = of.deserialize, None\n", "        self._deserialize = None\n",
         "client/consume/test_topic_serializing.py"),
    rare("transactions-serialize-twice", "a blocking transaction sends what no reader understands",
         "rangelog._sync_serializing",
         "transactional.Transactional.transaction(self._of)", "self._of.transaction()",
         "client/consume/test_topic_serializing.py"),
    rare("lag-moves-a-reader", "asking for the lag in the midst of an iteration brings records again", "rangelog._read.reader",
         "        if not self._is_resolved and self._polling is None:\n",
         "        if not self._is_begun and self._polling is None:\n",
         "client/read/test_polling.py"),
    rare("expected-end-of-what-is-acked", "a repeat of an append that is under way brings a second record", _WRITER,
         "            check_expected_end(self.stream, expected_end, self._next_offset)\n",
         "            check_expected_end(self.stream, expected_end, self.confirm_offset)\n", _END_TEST),
    rare("expected-end-before-the-wait", "an append that waited for room comes behind what others appended", _WRITER,
         "        self.check_room()\n        if not self.has_room:\n            await self.ready(timeout_s=timeout_s)\n"
         "        return",
         "        if expected_end is not None:\n            check_expected_end(self.stream, expected_end, self._next_offset)\n"
         "            expected_end = None\n"
         "        if not self.has_room:\n            await self.ready(timeout_s=timeout_s)\n        return", _END_TEST),
    rare("expected-end-of-the-first-alone", "records of others come into a batch with an expected end",
         "rangelog._append.many_records",
         "            if expected_end is None and not writer.has_room:\n", "            if not writer.has_room:\n", _END_TEST),
    Mutant("expected-end-is-a-least-end", "a record is appended although the stream has grown since",
           (Edit("rangelog._append.expected_end",
                 "    if expected_end != end_offset:\n", "    if expected_end > end_offset:\n"),)),
    rare("poll-loses-behind-a-failure", "records behind one that cannot be deserialized are never handed out",
         "rangelog._read.polling", "        self._taken -= count\n", "        pass\n", _SERIALIZING_TEST),
    rare("commit-covers-what-was-not-made", "a commit covers records of a poll that were not handed out",
         "rangelog._read.polling",
         "        self._polled(handed_out)\n", "        self._polled(records)\n", _SERIALIZING_TEST),
    rare("half-a-list-is-appended", "a serializer raises at the second record of a list, and the first one is in the log",
         "rangelog._append.serializing",
         "        made = [self.serializers.record(record) for record in records]\n",
         "        made = []\n        for record in records:\n"
         "            await self.writer.append(self.serializers.record(record))\n", _SERIALIZING_TEST),
    rare("start-moves-behind-a-record", "records that were trimmed behind one that was handed out are passed over",
         "rangelog._read.reader", "                self._is_movable = False\n", "", _TRIMMED_TEST),
    rare("start-looked-up-once", "the last n records, or those of the last hour, end in an error where retention is quick",
         "rangelog._read.reader", "self._is_movable = start == \"earliest\" or (",
         "self._is_movable = start == \"earliest\" and (", _TRIMMED_TEST),
    rare("latest-moves", "records that came after a reader began at the end are passed over",
         "rangelog._read.reader", "(self.position < tail and not (", "(not (", _TRIMMED_TEST),
    rare("cursor-begins-where-it-would-have", "a new cursor commits a start that was trimmed, and its reader ends",
         _READER, "        self.handed_out.move(self.position)\n", "        pass\n", _TRIMMED_TEST),
    rare("topic-start-by-time-does-not-move", "a topic's reader by time ends where retention is quick",
         "rangelog._consume.reader",
         "            self._movable = {each: None for each, at in start.items() if each not in behind or at < behind[each]}\n",
         "", _TRIMMED_TOPIC_TEST),
    rare("topic-start-by-time-moves-over-the-end", "records that came after the start by time are passed over",
         "rangelog._consume.reader", "if each not in behind or at < behind[each]}", "}", _TRIMMED_TOPIC_TEST),
    rare("query-plans-its-first-start", "a new query that begins at the first record ends where retention is quick",
         "rangelog.spark.stream_source", "            low = until(ends, low, begin_later(self._options, low, ends), high)\n",
         "            pass\n", "client/spark/test_following.py"),
    rare("headers-of-any-shape", "headers that are no mapping end in a bare error", "rangelog_core.batch",
         "    if not isinstance(headers, Mapping):\n", "    if False:\n", _ARGUMENTS_TEST),
    rare("argument-by-name-unchecked", "a wrong value that is given by name ends deep inside, with a bare error",
         "rangelog._arguments", "        for name, value in options.items():\n", "        for name, value in ():\n",
         _ARGUMENTS_TEST),
    rare("argument-of-several-unchecked", "a wrong name among several ends deep inside, with a bare error",
         "rangelog._arguments", "            for value in arguments[len(in_order) :]:\n", "            for value in ():\n",
         _ARGUMENTS_TEST),
    rare("last-records-one-too-few", "the last n records are n - 1", "rangelog._read.reader",
         "max(trim, tail + start)", "max(trim, tail + start + 1)", "client/read/test_relative_starts.py"),
    rare("seconds-taken-for-ms", "records are dated in 1970, and retention takes them at once",
         "rangelog._append.batch_builder",
         "    if looks_like_seconds(timestamp):\n", "    if False:\n", "client/append/test_timestamps.py"),
    rare("copies-of-old-records-refused", "a copy of a record of 1970 is taken for seconds",
         "rangelog_core.record", "    return moment_of(timestamp_ms)\n\n\ndef moment_before",
         "    return timestamp_ms\n\n\ndef moment_before", "client/append/test_timestamps.py"),
    rare("another-loop-unnoticed", "a client on another event loop fails in the midst of asyncio, or hangs",
         "rangelog_core.net.home_loop", "        if loop is self._loop:\n", "        if True:\n", "core/net/test_home_loop.py"),
    rare("poll-forgets", "what a poll waited for in vain is lost", "rangelog._read.polling",
         "        if self._reading is None:\n", "        if True:\n", "client/read/test_polling.py"),
    rare("poll-repeats", "a poll hands the rest of a chunk out again", "rangelog._read.polling",
         "        self._taken += len(found)\n", "        pass\n", "client/read/test_polling.py"),
    _cursor("cursor-moved-back", "a late set moves a cursor back, to what may be trimmed", _STATE,
            "    elif known is not None and wanted.offset < known.offset:\n", "    elif False:\n"),
    _cursor("cursor-passed-by-a-trim", "age trims what a cursor has not passed", _STATE,
            "    return end_of_passed(state, stream, lowest.offset)\n", "    return command.trim_offset\n")
    .and_also(_RETENTION, "    if lowest is None or lowest.offset >= of.end_offset:\n        return None\n",
              "    if True:\n        return None\n"),
    _cursor("cursor-ahead-of-its-records", "a commit covers the records of the next chunk: a death loses them", _READER,
            "        return await self._commit(self.handed_out.end, metadata)\n",
            "        return await self._commit(self._end or self.handed_out.end, metadata)\n"),
    rare("cursor-set-after-the-look", "a trim passes a cursor that was set since the leader looked", _STATE,
         "    return end_of_passed(state, stream, lowest.offset)\n", "    return command.trim_offset\n", _STATE_TEST),
    rare("cursor-expires-though-set", "a cursor expires although its consumer is alive", _STATE,
         "        if known is not None and not known.expired and known.set_ms == each.set_ms:\n",
         "        if known is not None and not known.expired:\n", _STATE_TEST),
    rare("cursor-never-expires", "a dead consumer keeps records for ever", _RETENTION,
         "    for stream_id in upkeep.expiries.take(state, time_ms):\n", "    for stream_id in ():\n", _RETENTION_TEST),
    rare("cursor-outlives-its-stream", "a cursor stays when its stream is deleted", "rangelog_pd.state.store",
         "        self.cursors.remove_stream(stream_id)\n", "", _STATE_TEST),
    rare("cursor-of-a-namesake", "a handle moves the cursor of a stream that has the name now", "rangelog._read.cursors",
         "            await self._view.last_range()\n        return self._view.stream.stream_id\n",
         "            await self._view.last_range()\n"
         "        view = StreamView(self._view._metadata, self._view.name)\n"
         "        await view.last_range()\n        return view.stream.stream_id\n", "client/testing/test_fake_cluster.py"),
    rare("cursor-version-again", "a reset that was meant for a deleted cursor moves a later one",
         "rangelog_pd.state.cursor_table",
         "        self.next_version += 1\n        return self.next_version - 1\n",
         "        self.next_version = 1 + max((each.version for each in self.rows.values()), default=0)\n"
         "        self.next_version += 1\n        return self.next_version - 1\n", _STATE_TEST),
    rare("cursor-commits-the-record-in-hand", "an automatic commit covers a record that is not processed", _READER,
         "        self.processed = self.end\n        self.end = end_offset\n",
         "        self.processed = self.end = end_offset\n", "client/read/test_cursors.py"),
    rare("untiered-trimmed-in-silence", "while the tier is away, age trims the only copy without a word", _RETENTION,
         "    return stream.config.tiered and of.tiered_end_offset != of.end_offset\n", "    return False\n", _RETENTION_TEST),
)  # fmt: skip
