"""Wrong choices in the journals of brokers: how entries are applied, replayed, snapshotted, and by whom they are proposed."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, rare

_TABLE = "rangelog_broker.shards.producer_table"
_CORE = "rangelog._produce.core"


def _seeds(name: str, harm: str, module: str, old: str, new: str) -> Mutant:
    """Only in the seeds that have a journal."""
    return Mutant(name, harm, (Edit(f"rangelog_broker.journal.{module}", old, new),), first_seed=7, every=8)


def _versions(name: str, harm: str, module: str, old: str, new: str) -> Mutant:
    """Only in the seeds that have a topic: two of three of these begin with brokers of two versions."""
    return Mutant(name, harm, (Edit(module, old, new),), first_seed=17, every=24)


def _tested(name: str, harm: str, module: str, old: str, new: str, test: str) -> Mutant:
    return rare(name, harm, module, old, new, test if test.startswith("tests/") else f"broker/{test}")


_REOPENED = "test_limits_reopened.py"
_FUZZED = "tests/fuzz/test_fuzz_journals.py"


JOURNALS: tuple[Mutant, ...] = (
    _seeds("journal-read-unproved", "a read takes the owner's state for the newest", "journal",
             "        await self._wait(future, timeout_s, outcome_unknown=False)\n        return found\n",
             "        return found\n"),
    _seeds("journal-no-memory", "a command that is in the log twice is applied twice", "fold",
             "            self.sessions.keep(entry, result)\n", ""),
    _seeds("journal-result-before-ack", "a result is given before its entry is acked", "journal",
             "            future = self._writer.submit(proposed.value)\n",
             "            future = self._writer.submit(proposed.value)\n"
             "            self._loop.call_soon(lambda: self.closed or self._apply(proposed.offset + 1))\n"),
    _versions("journal-session-by-lot-too-soon", "an earlier broker cannot open the journals of the later ones",
              "rangelog_broker.journal.owner", "number if self.fold.level >= LEVEL_BROKERS else 0", "number"),
    _tested("journal-snapshot-ahead", "a snapshot is said to cover what was in flight when it was captured",
          "rangelog_broker.journal.owner",
          "self._covers = self.fold.applied_offset", "self._covers = self.next_offset", "journal/test_journal.py"),
    _tested("journal-trim-to-place", "the stream is trimmed to where its snapshot lies", "rangelog_broker.journal.owner",
          "self._trim_offset = self._covers", "self._trim_offset = offset", "journal/test_journal.py"),
    _seeds("journal-own-clock", "who replays an entry takes the time of his own clock", "replay",
             "            self.fold.apply(offset, entry)\n",
             "            import time\n            now_ms = time.time_ns() // 1_000_000\n"
             "            self.fold.apply(offset, entry._replace(now_ms=now_ms) if hasattr(entry, 'now_ms') else entry)\n"),
    Mutant("journal-read-before-fence", "a standby takes over with what it had read before its fence", (
        Edit("rangelog_broker.journal.journal", "            if recovery.next_offset < end_offset:\n",
             "            known = recovery.is_known and recovery.fold.applied_offset\n"
             "            if recovery.next_offset < end_offset and not known:\n"),
        Edit("rangelog_broker.journal.journal", "            return recovery.finish(end_offset)\n",
             "            recovery.fold.applied_offset = end_offset\n            return recovery.fold\n")), 7, 8),
    _seeds("journal-settled-too-much", "a result is forgotten before its proposer has it", "sessions",
             "        for sequence in [each for each in self.results if each < settled]:\n",
             "        for sequence in [each for each in self.results if each <= settled]:\n"),
    _tested("journal-poison-pill", "an entry at which a machine fails ends the journal at every owner",
          "rangelog_broker.journal.fold", "        except Exception as error:\n            self.on_failed(offset, error)\n",
          "        except ZeroDivisionError as error:\n            self.on_failed(offset, error)\n", "journal/test_journal.py"),
    _tested("journal-result-of-any-length", "a session keeps whatever a refusal quotes", "rangelog_broker.journal.fold",
          "            result = kept(self._apply(offset, entry.command, now_ms))\n",
          "            result = self._apply(offset, entry.command, now_ms)\n", "journal/test_journal.py"),
    _tested("journal-level-not-in-snapshots", "the owner after a trim applies entries by former rules",
          "rangelog_broker.journal.fold", "        level = _LEVEL.pack(self.level) if self.level else b\"\"\n",
          "        level = b\"\"\n", _FUZZED),
    _tested("journal-results-not-in-snapshots", "a command that is sent again after a trim is applied again",
          "rangelog_broker.journal.sessions", "each.settled, list(each.results.items())) for",
          "each.settled, []) for", _FUZZED),
    _tested("limit-of-rows-forgotten", "a full partition takes more rows once it was opened again",
          "rangelog_broker.tables.machine", "                    self._bytes += _size(row.key, row.value)\n", "",
          f"{_REOPENED}::test_rows_of_a_partition"),
    _tested("limit-of-changes-forgotten", "a partition keeps more changes once it was opened again",
          "rangelog_broker.tables.machine",
          "                self._changes_bytes += sum(len(change.key) for change in head.changes)\n", "",
          f"{_REOPENED}::test_changes_of_long_keys[50]"),
    _tested("limit-of-results-forgotten", "the results of sessions weigh nothing once a journal was opened again",
          "rangelog_broker.journal.sessions",
          "        self._results_bytes += session.put(sequence, result)\n        return end\n",
          "        session.put(sequence, result)\n        return end\n", f"{_REOPENED}::test_sessions_and_their_results[50]"),
    _tested("journal-later-command-refused", "a later command is taken for refused", "rangelog_broker.journal.fold",
          "        except (UnsupportedVersion, MemoryError):\n", "        except MemoryError:\n", "journal/test_journal.py"),
    _tested("journal-later-part-refused", "a command for a part of a later version is taken for refused",
          "rangelog_broker.journal.joint_machine",
          "            raise UnsupportedVersion(\n                f\"a command for",
          "            raise InvalidArgument(\n                f\"a command for",
          "journal/test_joint_machine.py"),
    _tested("journal-not-read-again", "entries that came while a snapshot was written are not applied",
          "rangelog_broker.journal.replay", "            self.next_offset = piece.covers\n",
          "            self.fold.applied_offset = self.next_offset\n",
          "journal/test_journal_walks.py"),
    _tested("journal-in-one-turn", "nothing else has a turn while a journal is read", "rangelog_broker.journal.journal",
          "                if turn_bytes >= TURN_BYTES:\n", "                if turn_bytes < 0:\n", "journal/test_journal.py"),
    _tested("group-any-name-proposed", "a name that no rule allows is quoted by a refusal in the journal",
          "rangelog_broker.groups.service", "journal_of(check_name(\"group\", group))", "journal_of(group)",
          "groups/test_groups_service.py"),
    _tested("group-any-member-proposed", "a member's name that no rule allows is quoted by a refusal in the journal",
          "rangelog_broker.groups.service", "        _check_member(command)\n", "", "groups/test_groups_service.py"),
    _tested("transaction-any-name-proposed", "a transactional id that no rule allows is quoted by a refusal in the journal",
          "rangelog_broker.transactions.service",
          "journal_of(check_name(\"transactional id\", transactional_id))", "journal_of(transactional_id)",
          "transactions/test_transactions_service.py"),
    _tested("table-snapshot-of-now", "a table's snapshot has rows that changed after the entries that it covers",
          "rangelog_broker.tables.machine", "            each.note(key)\n", "            pass\n",
          "tables/test_table_machine.py"),
    _tested("journal-level-of-the-snapshot", "a snapshot forgets by which rules it goes on", "rangelog_broker.journal.fold",
          "_LEVEL.pack(self.level) if self.level else b\"\"", "b\"\"", "journal/test_journal_walks.py"),
    _tested("journal-level-ahead", "an owner goes by a level before its entry is there", "rangelog_broker.journal.owner",
          "        self._level = level\n", "        self._level = self.fold.level = self.fold.machine.level = level\n",
          "journal/test_journal_walks.py"),
    _tested("journal-level-unknown", "a journal of a later level is gone on with", "rangelog_broker.journal.fold",
          "        if level > FEATURE_LEVEL:\n", "        if level < 0:\n", "journal/test_journal.py"),
    _tested("shard-fields-kept", "a producer's batch may name what the owner does not look at",
          "rangelog_broker.serving.connection", "fields.keys() != {Tag.PRODUCER}", "Tag.PRODUCER not in fields",
          "serving/test_producer_connection.py"),
    _tested("shard-fold-looks-elsewhere", "the next owner looks at the transaction first", "rangelog_core.batch_extension",
          "    if producer is not None:\n", "    if producer is not None and Tag.TRANSACTION not in fields:\n",
          "shards/test_live_and_replayed.py"),
    _tested("journal-session-by-its-place", "a client takes the results of another one's commands, whose session it guesses",
          "rangelog_broker.journal.owner", "number if self.fold.level >= LEVEL_BROKERS else 0", "0", "journal/test_journal.py"),
    _tested("producers-are-kept-for-good", "each start of a program stays in the tables of its shards",
          "rangelog_broker.shards.shard", "        if self.may_expire():\n", "        if False:\n",
          "shards/test_owned_shard.py"),
    _tested("producers-expire-before-all-know", "an earlier broker cannot open a shard from whose table producers are gone",
          "rangelog_broker.shards.shard", "        if self.may_expire():\n", "        if True:\n",
          "shards/test_owned_shard.py"),
    _tested("producers-leave-no-floor", "the late retry of a forgotten producer is taken for a new batch", _TABLE,
          "                self._dated_floor = max(epoch + 1, self._dated_floor)\n", "                pass\n",
          "shards/test_producer_table.py"),
    _tested("producers-floor-for-all-that-are-known", "a long-lived producer is fenced since others expired", _TABLE,
          "        if entry is None and floor < self._dated_floor and", "        if floor < self._dated_floor and",
          "shards/test_producer_table.py"),
    _tested("producers-with-names-expire", "a program that was idle for a day is fenced by nobody", _TABLE,
          "        if producer_id >= OWN_IDS:\n", "        if True:\n", "shards/test_producer_table.py"),
    _tested("producers-expired-break-the-fold", "a shard is not opened again after a snapshot without a producer", _TABLE,
          "(is_dated(producer_id, epoch) and epoch < self._dated_floor)", "False", "shards/test_producer_table.py"),
    _tested("producers-any-date", "one client makes every producer of a shard begin anew, again and again",
          "rangelog_broker.shards.shard", "if producer.epoch > self._latest_date and", "if False and",
          "shards/test_owned_shard.py"),
    rare("producer-begins-anew-in-doubt", "a batch that was sent again is in the log twice", _CORE,
         " or sequence < lane.sent_again:\n", ":\n", "client/produce/test_dated_walks.py"),
    rare("producer-begins-anew-behind-a-gap", "a batch without an answer is numbered anew", _CORE,
         "        if sequence != next(iter(lane.unresolved), None) or", "        if sequence not in lane.unresolved or",
         "client/produce/test_producer_core.py"),
    rare("producer-dates-what-is-in-doubt", "an epoch begins while batches of the former one have no outcome", _CORE,
         "        if self.is_dated and not lane.unresolved and", "        if self.is_dated and",
         "client/produce/test_producer_core.py"),
    rare("producer-late-refusals-count", "refusals of what was sent under the former epoch end the producer",
         "rangelog._produce.shard_link", "        attachment.missing = sent_before\n        return True\n",
         "        return True\n",
         "client/produce/test_dated_producers.py"),
    _tested("watermark-any-position", "a note names records that nobody wrote", "rangelog_broker.watermarks.shard_ends",
          "        end = await asyncio.shield(known.next)\n        end.check_reached(",
          "        await asyncio.shield(known.next)\n        print(", "watermarks/test_watermarks_service.py"),
    _tested("watermark-asks-without-bound", "notes of a topic of thousands of shards have the placement driver asked for each",
          "rangelog_broker.watermarks.shard_ends", "min(PAUSE_S_MAX, len(self._asking) / QUESTIONS_PER_S)", "0.0",
          "watermarks/test_shard_ends.py"),
    _tested("watermark-end-of-before", "an end that was asked for before a note came refuses it",
          "rangelog_broker.watermarks.shard_ends",
          "            known.next = None  # who comes from now on waits for the next answer\n"
          "            known.asked_at = self._loop.time()\n            end = await self._find_end(name)\n",
          "            known.asked_at = self._loop.time()\n            end = await self._find_end(name)\n"
          "            known.next = None\n", "watermarks/test_watermarks_service.py"),
    _tested("host-waits-in-a-slot", "shards that wait for the end of a scale hold up all other openings",
          "rangelog_broker.hosting.host",
          "                await self._settled(key)\n                async with self._openings:\n",
          "                async with self._openings:\n                    await self._settled(key)\n",
          "hosting/test_owned.py"),
    _tested("session-without-a-share", "who settles nothing has the results of all others refused",
          "rangelog_broker.journal.sessions",
          "        return self.level >= LEVEL_BROKERS and session.results_bytes >= SESSION_RESULTS_BYTES\n",
          "        return False\n", "journal/test_sessions.py"),
    _tested("session-share-at-any-level", "a later owner refuses what an owner of before applies",
          "rangelog_broker.journal.sessions",
          "        return self.level >= LEVEL_BROKERS and session.results_bytes >= SESSION_RESULTS_BYTES\n",
          "        return session.results_bytes >= SESSION_RESULTS_BYTES\n", "journal/test_sessions.py"),
    _tested("session-level-not-restored", "the sessions of a snapshot go by the rules of before",
          "rangelog_broker.journal.fold", "self.machine.level = self.sessions.level = max(", "self.machine.level = max(",
          "journal/test_journal_walks.py"),
    _tested("rest-runs-before-its-body", "bodies that are held back close the interface to all others",
          "rangelog_broker.rest.guard",
          "        body = await self._body(headers, receive)\n        if self._running >= self._requests_max:\n"
          "            raise Overloaded(f\"{self._requests_max} requests are running: try again\")\n"
          "        self._running += 1\n        try:\n",
          "        if self._running >= self._requests_max:\n"
          "            raise Overloaded(f\"{self._requests_max} requests are running: try again\")\n"
          "        self._running += 1\n        try:\n            body = await self._body(headers, receive)\n",
          "rest/test_rest_guard.py"),
    _tested("rest-bodies-without-bound", "bodies that are held back use up the broker's memory", "rangelog_broker.rest.guard",
          "            if len(self._bodies) > self._bodies_max:\n", "            if False:\n", "rest/test_rest_guard.py"),
    _tested("journal-steps-with-the-wall", "a step of one broker's wall clock has producers and members silent at once",
          "rangelog_broker.journal.journal", "clock_ms or steady_clock()", "clock_ms or (lambda: time.time_ns() // 1_000_000)",
          "watermarks/test_watermarks_service.py"),
)  # fmt: skip
