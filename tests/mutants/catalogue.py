"""The wrong choices: each an edit of production source, made in the memory of one test process only.

Names follow the protocol model's. An edit whose text is not found exactly once is an error: the catalogue keeps up with the
code. What is not here: `two-disks` is the promise's own bound, not a choice.
"""

from __future__ import annotations

from tests.mutants.focused import FOCUSED
from tests.mutants.mutant import Edit, Mutant, rare

_QUORUM = "rangelog.protocol.quorum"
_RECOVERY = "rangelog.protocol.recovery"
_APPENDER = "rangelog.protocol.appender"
_REPLICATION = "rangelog.protocol.replication"
_WINDOW = "rangelog.protocol.window"
_REPLICA = "rangelog_server.ranges.replica"
_STORE = "rangelog_server.ranges.store"
_REPLAY = "rangelog_server.ranges.replay"
_SPACE = "rangelog_server.ranges.space"
_COMMITTER = "rangelog_server.wal.committer"
_UPLOAD = "rangelog_server.tier.upload"
_PD_RANGES = "rangelog_pd.state.ranges"
_PD_STORE = "rangelog_pd.state.store"
_ATTENTION = "rangelog_pd.reconcile.attention"
_DIRECTIVES = "rangelog_pd.reconcile.directives"
_PROOF = "rangelog._read.proof"


def _one(name: str, harm: str, module: str, old: str, new: str) -> Mutant:
    return Mutant(name, harm, (Edit(module, old, new),))


def _topic(name: str, harm: str, module: str, old: str, new: str, *, first_seed: int = 17, every: int = 48) -> Mutant:
    """Only in the seeds that have a topic; those of the defaults have one that keeps everything."""
    return Mutant(name, harm, (Edit(module, old, new),), first_seed, every)


def _rare(name: str, harm: str, module: str, old: str, new: str, test: str) -> Mutant:
    return rare(name, harm, module, old, new, test if test.startswith("tests/") else f"broker/{test}")


_COMMITTER_TEST = "tests/unit/client/sink/test_committer.py"
_LOSES = 192
"""Every so many seeds a topic loses records in one way: tests/simulation/virtual_retention.py."""
_SHARDS = "rangelog_broker.shards"
_PD_SHARDS = "rangelog_pd.state.shards"
_PRODUCE = "rangelog._produce.core"
_GROUP = "rangelog_broker.groups.group"
_TIMES = "rangelog_broker.watermarks.topic_times"
_PROGRAM = "rangelog._transact.transaction"
_COORDINATOR = "rangelog_broker.transactions.coordinator"
_MERGING = "rangelog_broker.transactions.merging"
_OWNER = "rangelog_broker.transactions.transaction_owner"
_INQUIRIES = "rangelog_broker.transactions.inquiries"


def _sink(name: str, harm: str, module: str, old: str, new: str) -> Mutant:
    """Only in the seeds that have Spark's sink."""
    return Mutant(name, harm, (Edit(f"rangelog._sink.{module}", old, new),), first_seed=6, every=8)


def _table(name: str, harm: str, module: str, old: str, new: str) -> Mutant:
    """Only in the seeds that have a table."""
    return Mutant(name, harm, (Edit(module, old, new),), first_seed=1, every=8)


_END = "    return known[-rank] if rank > 0 else None\n"

MUTANTS: tuple[Mutant, ...] = (
    # ---- where a range ends
    _one("min", "the seal ends at the shortest answer", _QUORUM, _END,
         "    return known[0] if rank > 0 else None\n"),
    _one("ack-formula", "the seal ends at the second largest of what came in", _QUORUM, _END,
         "    return (known[-acks] if len(known) >= acks else None) if rank > 0 else None\n"),
    _one("confirm-offset", "replicas answer a seal with the confirm offset they heard of", _REPLICA,
         "return SealAnswer(outcome, self.durable_offset, crc, self.readable_end())",
         "return SealAnswer(outcome, self.readable_end(), crc, self.readable_end())"),
    Mutant("seal-one", "one answer of three is enough for a seal", (
        Edit(_QUORUM, "    rank = acks - silent  # silent replicas count as the largest\n", "    rank = acks - silent + 1\n"),
        Edit(_QUORUM, _END, "    return known[-max(1, rank - 1)] if known and rank > 0 else None\n"),
        Edit(_RECOVERY, "len(answers) < min(self._holders, left)", "len(answers) < min(self._holders - 1, left)"))),
    _one("no-copy", "a seal commits before two disks hold everything", _RECOVERY,
         "order[1 : self._holders] if answers[target] < end", "order[1 : self._holders] if answers[target] < 0"),
    _rare("doubtful-counts", "an answer from a torn tail counts as the truth", _RECOVERY,
          "if dead >= self.acks - 1 > 0 else (Answer.TRUTHFUL,)", "if True else (Answer.TRUTHFUL,)",
          "tests/scenarios/test_scenarios.py"),
    # ---- fences
    _one("fence-one", "one replica of two is fenced", _REPLICA,
         "        self.epoch = epoch\n        self.fenced = True\n\n    def seal_answer",
         "        if self.durable_offset % 2 == 0:\n            self.epoch = epoch\n"
         "            self.fenced = True\n\n    def seal_answer"),
    _one("no-fence", "a seal reads the ends and fences nobody", _STORE,
         "        hosted.core.seal(epoch, by)\n", "        hosted.core.seal(hosted.core.epoch)\n"
         "        hosted.core.fenced = False\n"),
    _one("answer-before-fence", "a seal is answered before its fence is durable", _STORE,
         "        self.write_state(hosted, lambda: done(hosted))\n\n    def commit_end",
         "        done(hosted)\n\n    def commit_end"),
    Mutant("fence-volatile", "a fence does not survive a restart", (
        Edit("rangelog_server.ranges.state",
             "    replica.epoch = max(replica.epoch, state.epoch)\n    replica.fenced = state.fenced\n",
             "    replica.fenced = state.sealed_end_offset is not None\n"),
        Edit(_REPLAY, "start, epoch = state.start_offset, state.epoch",
             "start, epoch = state.start_offset, first.epoch if first is not None else state.epoch"))),
    _one("stale-recovery", "a recovery copy of an older epoch is taken", _REPLICA,
         "if epoch < self.epoch or (epoch == self.epoch and self.fenced and not recovery):",
         "if (epoch < self.epoch and not recovery) or (epoch == self.epoch and self.fenced and not recovery):"),
    # ---- amnesia
    Mutant("wiped-answers", "a server with an empty disk answers for the one it had", (
        Edit("rangelog_server.serving.handlers.hello", "hello.incarnation not in (0, identity.incarnation)", "False"),
        Edit("rangelog_pd.reconcile.view", "registered is not None and registered.server.incarnation == replica.incarnation",
             "registered is not None"))),
    _one("quarantine-answers", "a replica with damage in the middle answers as if it were whole", _REPLICA,
         "DiskTrust.QUARANTINED: SealOutcome.UNKNOWN", "DiskTrust.QUARANTINED: SealOutcome.FENCED"),
    _one("tail-cut-unsaid", "a damaged tail is cut and nobody is told", _REPLAY,
         '        _doubt_all(result, tail, "the tail of the log was damaged and cut")\n', "        pass\n"),
    _one("rolled-back-serves", "an older copy of a disk is taken for the disk", "rangelog_pd.state.servers",
         "(_is_copy(request, known.server) or request.log_end < known.log_end)", "False"),
    # ---- the log's space
    _one("copies-not-replayed", "recovery does not know batches that were moved", _REPLAY,
         "        if entry.kind in BATCH_KINDS:\n",
         "        if entry.kind is Kind.MOVED:\n            pass\n        elif entry.kind is Kind.BATCHES:\n"),
    _one("copy-of-what-was-cut", "a copy counts although its batch was cut or dropped meanwhile", _SPACE,
         "        count = count_current(hosted, plan)  # batches are cut at the end only\n",
         "        count = len(wanted)\n"),
    # ---- acks
    _one("ack-before-fsync", "the log is written and never flushed", _COMMITTER,
         "            self._io.fdatasync(segment.fd)\n", ""),
    rare("prepared-segment-not-cleared", "what a killed write left in a prepared segment makes a later tail doubtful",
         "rangelog_server.wal.log", "logs[tail + 1 :] if last is None else logs[tail:]:", "logs[tail:][: last is not None]:",
         "range_server/ranges/test_crash_in_recovery.py"),
    _one("reply-before-flush", "an append is answered when it was taken", _STORE,
         "        memory = memory and core.durable_offset >= hosted.strict_end\n", "        memory = True\n"),
    _one("ack-at-one", "one durable copy is enough for an ack", _REPLICATION,
         "for member in members], self.acks)", "for member in members], 1)"),
    _one("gaps", "a replica takes a batch beyond its end", _REPLICA, "            if base == expected:\n",
         "            if base >= expected:\n"),
    _one("no-freeze", "the writer goes on acking while its range is sealed", _APPENDER,
         "        self._window.frozen = True\n", ""),
    _one("cut-before-commit", "replicas are cut before the placement driver agreed", _APPENDER,
         "        bad, strictly = self._to_avoid()\n        self._effects.append(SealRange(",
         "        bad, strictly = self._to_avoid()\n        old = self._range\n"
         "        self._effects.append(Leave(old.index, old.start_offset, self._window.confirm_offset, old.replicas))\n"
         "        self._effects.append(SealRange("),
    rare("slow-for-ever", "a range stays with two replicas after the third was restarted", _APPENDER,
         "progress.unreachable = progress.slow = False", "progress.unreachable = False",
         "client/protocol/test_appender_lag.py"),
    rare("lag-limits-not-passed", "the limits of a slow replica are read, and writers go by the defaults",
         "rangelog._append.runner", ", lag_limits=host.lag_limits)", ")", "client/test_connect.py"),
    rare("lag-limits-of-brokers", "a broker reads its limits of a slow replica, and goes by the defaults",
         "rangelog_broker.runtime", "            lag_limits=settings.lag_limits,\n", "", "broker/test_broker_runtime.py"),
    # ---- the placement driver
    Mutant("pd-last-wins", "a second seal changes a range's end", (
        Edit(_PD_RANGES, "    if sealed.state == common_pb2.RANGE_STATE_SEALED:\n        if request",
             "    if sealed.state == common_pb2.RANGE_STATE_SEALED and request.create_next:\n        if request"),
        Edit(_PD_RANGES, "    state.check_epoch(stream, request.epoch)\n    sealed = state.range",
             "    sealed = state.range"))),
    _one("pd-any-epoch", "a deposed writer may still seal", _PD_RANGES,
         "    state.check_epoch(stream, request.epoch)\n    sealed = state.range", "    sealed = state.range"),
    _one("open-without-epoch", "opening a stream fences nobody", "rangelog_pd.state.streams",
         "    stream.epoch += 1\n", "    stream.epoch = max(stream.epoch, 1)\n"),
    _one("empty-without-a-look", "the last sealed range makes room for the next one, whatever it holds", _PD_STORE,
         "            if last.state != common_pb2.RANGE_STATE_SEALED or last.start_offset != last.end_offset:\n",
         "            if last.state != common_pb2.RANGE_STATE_SEALED:\n"),
    Mutant("open-is-empty", "a range that is not sealed is taken for empty, and makes room for the next one", (
        Edit("rangelog._append.takeover", "    if last.state == common_pb2.RANGE_STATE_SEALED:\n",
             "    if last.end_offset <= last.start_offset:\n"
             "        return TakenOver(opened.stream, last.start_offset, None, {})\n"
             "    if last.state == common_pb2.RANGE_STATE_SEALED:\n"),
        Edit(_PD_RANGES, "    if last is not None and is_open:\n        raise",
             "    if last is not None and is_open and request.start_offset != last.start_offset:\n        raise"),
        Edit(_PD_STORE,
             "            if last.state != common_pb2.RANGE_STATE_SEALED or last.start_offset != last.end_offset:\n",
             "            if last.end_offset > last.start_offset:\n"))),
    # ---- reads
    _one("read-log-end", "readers are served what is not acked", _REPLICA,
         "        return min(self.durable_offset, max(self.confirm_offset, known))\n",
         "        return self.durable_offset if self.sealed_end_offset is None else min(self.durable_offset, known)\n"),
    _one("proof-without-arbitration", "a reader believes what two replicas hold, and an active seal cuts it", _PROOF,
         "    return await _arbitrate(hot.source, evidence, metadata)\n",
         "    return ProvedEnd(evidence.held_offset, exact=evidence.complete)\n"),
    _one("floor-ignored", "the placement driver seals below what it proved to a reader", _PD_RANGES,
         "    if request.end_offset < sealed.floor_offset and not lossy:\n", "    if False:\n"),
    _one("proof-of-one", "what one replica holds is taken for proved", "rangelog.protocol.proof",
         "held = max(held, confirmed_offset([each.durable_offset for each in told], acks))\n        "
         "holders = tuple(each.replica for each in told if each.durable_offset >= held)",
         "held = max(held, confirmed_offset([each.durable_offset for each in told], 1))\n        "
         "holders = tuple(each.replica for each in told)"),
    _one("floor-after-seal", "a proof that came after the seal is answered as if it had come before", _PD_RANGES,
         "    if found.state == common_pb2.RANGE_STATE_SEALED:\n        return pd_pb2.ProveEndResponse(range=found)\n"
         "    if not",
         "    if found.state == common_pb2.RANGE_STATE_SEALED:\n        told = common_pb2.Range()\n"
         "        told.CopyFrom(found)\n        told.floor_offset = request.end_offset\n"
         "        told.state = common_pb2.RANGE_STATE_OPEN\n"
         "        return pd_pb2.ProveEndResponse(range=told)\n    if not"),
    _one("floor-confirms-all", "a writer that is told a floor takes all that it sent for acked", _WINDOW,
         "        self._confirm(floor_offset)\n        self._release()\n        return True\n",
         "        self._confirm(self.end_offset)\n        self._release()\n        return True\n"),
    _one("time-behind-is-absent", "a start by time takes a replica's word that has not looked as far",
         "rangelog._read.hot",
         "            if answer.readable_end_offset >= known_end_offset:\n", "            if True:\n"),
    _one("name-resolved-again", "a reader of a deleted stream goes on in its namesake",
         "rangelog._read.stream_view",
         "await self._metadata.ranges(self.name, from_offset, stream_id=stream_id)",
         "await self._metadata.ranges(self.name, from_offset)"),
    _one("sent-is-said-to-be-certain", "an append that was sent and not acked is said not to be in the log",
         "rangelog._append.writer",
         "of_sent.with_outcome(unknown=True)", "of_sent.with_outcome(unknown=False)"),
    _one("dropped-is-empty", "a replica that gave the range up is taken for one that never held anything",
         "rangelog._read.hot",
         "        except RangeDropped:\n            raise\n",
         "        except RangeDropped:\n            return Told(replica, start, start)\n"),
    _one("deleted-still-acked", "a deletion fences nobody: appends are acked after it returned",
         "rangelog._append.fencing",
         '    if deleted.HasField("open_range"):\n', "    if False:\n"),
    # ---- clocks
    _one("one-clock-decides", "the leader's wall clock says how old things are", "rangelog_pd.cluster_time",
         "        self._time_ms = run_ms\n        return int(run_ms)\n",
         "        self._time_ms = wall_ms\n        return int(wall_ms)\n"),
    # ---- the tier and repair
    Mutant("drop-before-commit", "hot copies go before objects cover the range", (
        Edit(_PD_RANGES, " or found.tiered_end_offset != found.end_offset:\n", ":\n"),
        Edit("rangelog_pd.state.due",
             "whole = of.state == _SEALED and of.tiered_end_offset == of.end_offset  # so is an empty one",
             "whole = of.state == _SEALED"))),
    # ---- work queues and versions of the placement driver
    _one("waiting-forgotten", "a range that waits for something elsewhere is not looked at again", _ATTENTION,
         "        if not done:\n            self.waiting[key] = None\n", ""),
    _one("told-once", "a directive is given once, whether or not it is carried out", _ATTENTION,
         "            self.issued[key] = None\n            return\n", "            return\n"),
    _one("missed-changes-passed-over", "changes that were missed are taken for none", "rangelog_pd.reconcile.upkeep",
         "        if changes is None:\n            self._begin(state)\n",
         "        if changes is None:\n            self._state = state\n"),
    _one("proposed-before-all-know", "one upgraded member is enough for a later cluster version",
         "rangelog_pd.reconcile.finalizing",
         "    return min(levels, default=0)\n", "    return max(levels, default=0)\n"),
    _one("lost-answer-is-an-answer", "an item of many whose answer was lost is answered for", "rangelog_pd.handlers.batches",
         "    if error.retriable and not isinstance(error, NoPlacement):\n", "    if False:\n"),
    _one("commit-unverified", "an object counts although other bytes were stored", "rangelog_tier.storing",
         "    size = objects.head(key).size_bytes\n", '    return ""\n    size = objects.head(key).size_bytes\n'),
    _one("short-is-whole", "a replica that lacks records counts as whole", "rangelog_pd.reconcile.view",
         "return report is not None and report.state == pd_pb2.REPLICA_STATE_SEALED", "return report is not None"),
    _one("headers-not-tiered", "an object loses the senders of its batches", "rangelog_tier.parquet",
         "            if header.header_size != HEADER_BYTES:\n                group.headers",
         "            if header.header_size > HEADER_BYTES + 512:\n                group.headers"),
    *FOCUSED,
    _one("roll-drops-fields", "a batch that moves to the writer's next range loses its header's extension",
         "rangelog_core.batch",
         "    known = header or peek_header(data)\n",
         "    known = header or peek_header(data)\n"
         "    data = data[:HEADER_BYTES] + data[known.header_size :]\n"
         "    known = known._replace(header_size=HEADER_BYTES, length=len(data))\n"),
    _one("unread-served", "bytes from the disk are served unchecked", "rangelog_server.ranges.reading",
         "        batches.append(_check(plan, one, bytes(data[place : place + one.length])))\n",
         "        batches.append(bytes(data[place : place + one.length]))\n"),
    # ---- topics
    _topic("shard-no-table", "who takes a shard over does not know what was sent to it before", f"{_SHARDS}.shard",
           "        await fold_log(self._client, state, self.key, self._writer.stream_id, start, end, cut, self._writer)\n",
           ""),
    _topic("shard-table-before-fence", "who takes a shard over reads it before the fence", f"{_SHARDS}.shard",
           "        end = self._writer.next_offset\n        snapshot",
           "        end = snapshot.offset if (snapshot := self._side.snapshot) else 0\n        snapshot"),
    _topic("shard-ack-early", "a batch is acked as it is appended", f"{_SHARDS}.shard",
           "        self._waiting[offset] = [(reply, request_id)]\n",
           "        self._waiting[offset] = []\n        reply.acked(request_id, offset)\n"),
    _topic("shard-snapshot-ahead", "a snapshot of the table is said to hold what is in flight", f"{_SHARDS}.shard_snapshots",
           "            await self._side.write_snapshot(self._epoch, self._owner.confirm_offset, self._owner.state)\n",
           "            await self._side.write_snapshot(self._epoch, self._owner.next_offset, self._owner.state)\n"),
    _topic("shard-gap-taken", "a batch is taken before those that it follows", f"{_SHARDS}.producer_table",
           "            return GAP if ahead else NEXT\n", "            return NEXT\n"),
    _topic("shard-retry-appended", "a batch that is in flight is appended again", f"{_SHARDS}.owner",
           "            return pending.batches[place]\n", "            return NEXT._replace(offset=self.next_offset)\n"),
    _topic("scale-not-for-good", "a shard that has ended is opened again", "rangelog_pd.state.shards",
           "    stream.sealed_for_good = True\n", "    stream.sealed_for_good = False\n"),
    Mutant("scale-end-unchecked", "the children of a scale begin while a parent is open", (
        Edit(_PD_SHARDS, "    if not holds:\n", "    if False:\n"),
        Edit(f"{_SHARDS}.scaling", "            if last.state != common_pb2.RANGE_STATE_SEALED:\n                return None\n",
             "")), 17, 48),
    _rare("producer-cancelled-is-told", "the refusal of a record whose future was cancelled is told to nobody",
          "rangelog._produce.waiters", "            if future is not None and not future.cancelled():\n",
          "            if future is not None:\n", "tests/unit/client/produce/test_waiters.py"),
    _topic("forged-headers-are-taken", "who may append makes a batch of another's transaction, or closes a shard for good",
           "rangelog_broker.verbs.produce", "    if len(fields) != 1 or not header.count or ", "    if not header.count or "),
    _topic("group-passes-what-is-trimmed", "records that were trimmed before a group read them are left out without a word",
           "rangelog._consume.group", "            skips_trimmed=skip_trimmed, ", "            skips_trimmed=True, ",
           first_seed=89, every=_LOSES),
    _topic("scale-forgets-doubt", "a producer sends to the successors what the parent may hold", _PRODUCE,
           "                if lane.unresolved:\n                    self._doubtful.add(shard_id)\n",
           "                waiting += [each for batch in lane.unresolved.values() for each in batch]\n"
           "                lane.unresolved.clear()\n"
           "                if lane.unresolved:\n                    self._doubtful.add(shard_id)\n"),
    _topic("scale-overtakes", "a producer goes on at a successor while its parent is in doubt", _PRODUCE,
           "        if self._doubtful and not self._doubtful.isdisjoint(self._ancestors(shard_id)):\n            return\n", ""),
    _topic("producer-renumbers", "a batch without an answer is sent again under another number", _PRODUCE,
           "        for sequence, records in lane.unresolved.items():\n",
           "        again = enumerate(lane.unresolved.values(), lane.next_sequence)\n"
           "        lane.unresolved = dict(again)\n"
           "        lane.next_sequence += len(lane.unresolved)\n"
           "        for sequence, records in lane.unresolved.items():\n"),
    _topic("plan-without-ended", "a Spark plan of a topic has its current shards only", "rangelog._topics.shard_graph",
           "        return {**found, **cut}\n", "        return dict(cut)\n"),
    _topic("plan-not-pinned", "each plan of a snapshot of a topic ends where the topic ends then",
           "rangelog.spark.topic_planning", ".between(snapshot.start.offsets, snapshot.end.offsets)",
           ".between(snapshot.start.offsets, (await client.topics.cut_in(known, 'tail')).offsets)"),
    # ---- groups, and readers of topics
    Mutant("group-stale-commit", "a commit counts, whoever has the shard by now", (
        Edit("rangelog_broker.groups.machine", "                self._hear(group, message.commit, now_ms)\n", ""),
        Edit(_GROUP, "        if not self._has(member, key, position.since):\n"
             "            return group_pb2.GROUP_REFUSAL_NOT_ASSIGNED\n", "")), 17, 48),
    _topic("group-position-back", "of two commits the one that comes last counts", _GROUP,
           "        if shard.offset is not None and offset < shard.offset:\n            return False\n", ""),
    _topic("group-reset-in-place", "members go on where they are after a reset, and commit that", _GROUP,
           "        for member in self.members:\n            self._take_away(member)\n        self.generation += 1\n",
           "        self.generation += 1\n", every=96),
    _topic("group-successor-early", "a shard is handed out while what precedes it is not committed", _GROUP,
           "            waits = any(ShardKey(key.topic_id, each) in unfinished for each in facts.predecessors)\n",
           "            waits = False\n"),
    _topic("reader-child-early", "a reader goes on to a shard when one of those that precede it is finished",
           "rangelog._consume.core",
           "        if found is None or not all(self._is_finished(each) for each in found.ended):\n",
           "        if found is None:\n"),
    _topic("reader-parent-short", "a reader leaves a shard as it ends, whatever is left of it", "rangelog._consume.core",
           "            if limit is None or self._position[shard_id] < limit:\n",
           "            if limit is None or (self._end is not None and self._position[shard_id] < limit):\n"
           ),
    _topic("cut-ahead", "a cut has the records that the reader holds ready", "rangelog._consume.reader",
           "                    self.note(chunk.shard_id, chunk.start_offset)\n                    yield chunk\n"
           "                    self._yielded = None\n                    core.read(chunk.shard_id, chunk.end_offset)\n",
           "                    core.read(chunk.shard_id, chunk.end_offset)\n                    yield chunk\n"
           "                    self._yielded = None\n"),
    _table("table-read-unproved", "a row is read from what the broker takes for the newest state",
           "rangelog_broker.tables.service", "            if request.stale:\n", "            if request.stale or True:\n"),
    _table("table-new-number", "a command in doubt is sent again as another one", "rangelog._table.partition_calls",
           "            on_try()\n",
           "            on_try()\n            for each in request.commands:\n                each.sequence += 10_000\n"),
    _table("table-lost-update", "a write on condition of an older version is taken", "rangelog_broker.tables.machine",
           "row.version != write.condition.version:", "row.version < write.condition.version:"),
    _table("table-condition-before-log", "a condition is compared as a write is asked for, not as it is applied",
           "rangelog_broker.tables.service",
           "        commands = _checked(request)\n        journal = self._journals.find(request.topic_id, request.shard_id)\n",
           "        journal = self._journals.find(request.topic_id, request.shard_id)\n"
           "        for each in request.commands:\n"
           "            journal.read_stale(lambda table, each=each: table._checked(each.command))\n"
           "            for write in each.command.writes:\n                write.ClearField('condition')\n"
           "        commands = _checked(request)\n"),
    _table("table-settled-early", "a result is given up before its caller has it", "rangelog._table.numbering",
           "        return next(iter(self._unresolved), self._next_sequence)\n",
           "        return max(self._next_sequence - 1, 0)\n"),
    _table("table-watch-ahead", "a page of changes claims those that did not fit", "rangelog_broker.tables.machine",
           "                return ChangePage(found, reached)\n", "                return ChangePage(found, self.version)\n"),
    _table("table-half-update", "of an update that writes several keys, one version is read with another one's value",
           "rangelog_broker.tables.machine", "            self.version += 1\n            for write in changed:\n",
           "            for write in changed:\n                self.version += 1\n"),
    # ---- what may be trimmed of topics
    _topic("topic-trim-uncovered", "a shard is trimmed before a snapshot has its producers", "rangelog_pd.state.topic_work",
           "        is_covered = each.offset <= max(stream.trim_offset, covered.get(each.shard_id, 0))\n",
           "        is_covered = True\n", first_seed=89, every=_LOSES),
    _topic("topic-cut-of-any-age", "a topic is trimmed to its newest cut, however young",
           "rangelog_pd.reconcile.retention_policy",
           "time_ms - row.taken_ms >= retention.age_ms", "time_ms >= row.taken_ms", first_seed=41, every=_LOSES),
    _topic("topic-fastest-group", "what one group has consumed is trimmed, whatever the others have", "rangelog_pd.state.cuts",
           "found[shard_id] = min(offset, other[shard_id])", "found[shard_id] = max(offset, other[shard_id])",
           first_seed=137, every=_LOSES),
    _topic("topic-one-group", "a topic keeps what one of its groups has to read, whatever the others have",
           "rangelog_pd.state.retention",
           "cut if earliest is None else earlier_of(state, topic_id, earliest, cut)", "cut", first_seed=137,
           every=_LOSES),
    _topic("topic-truncated-beyond", "a truncation trims a shard up to what is sealed of it", "rangelog_pd.state.topic_work",
           "        trim(state, stream, each.offset)\n", "        trim(state, stream, stream.next_offset)\n", first_seed=89,
           every=_LOSES),
    _topic("topic-no-last-snapshot", "an ended shard counts as covered without a snapshot at its end",
           "rangelog_broker.shards.finished",
           "            if side.snapshot is None or side.snapshot.offset < end:\n", "            if not end:\n",
           first_seed=137, every=_LOSES),
    # ---- transactions
    _topic("transact-commit-unflushed", "a commit does not wait until its records are staged", _PROGRAM,
           "                await self._program.flush()\n            except (AppendTimeout",
           "                pass\n            except (AppendTimeout"),
    _topic("transact-staged-ack-early", "a staged batch is acked as it is appended to the side log",
           f"{_SHARDS}.transactional", "        self._waiting[producer] = [(reply, request_id)]\n",
           "        self._waiting[producer] = []\n        reply.acked(request_id, 0)\n"),
    _topic("transact-no-order", "a commit is decided before the one before it is merged", _COORDINATOR,
           "        if not transaction.is_finished:\n            return\n\n\ndef _find", "\n\ndef _find"),
    _topic("transact-forgotten-unmerged", "a commit is forgotten as the next transaction begins", _COORDINATOR,
           "[each for each in of.transactions if not each.is_finished]", "[]"),
    _topic("transact-one-successor", "of the successors of a shard one merges what is staged there", _MERGING,
           "                pending += [each for each in row.successors if each not in done]\n",
           "                pending += [each for each in row.successors[:1] if each not in done]\n"),
    _topic("transact-side-unread", "who takes a shard over does not read what is staged", f"{_SHARDS}.side_log",
           "        self.snapshot, self.staging = fold.best, fold.staging\n", "        self.snapshot = fold.best\n"),
    _rare("transact-unproved", "a deposed owner says that nothing is left to merge", f"{_SHARDS}.transactional",
          "            await self._prove()  #", "            pass  #", "shards/test_staged_shard.py"),
    _rare("transact-side-kept", "an owner refuses what it cannot stage any more, and stays", f"{_SHARDS}.transactional",
          "            self._lost(NotOwner(f\"shard {self._name} lost its side log: {error.message}\"))\n", "",
          "shards/test_staged_shard.py"),
    _rare("transact-side-first", "the side log is read before the shard is claimed", f"{_SHARDS}.shard",
          "                await writer.claim()  #", "                pass  #", "shards/test_staged_shard.py"),
    _rare("owner-gap-unasked", "an owner that misses batches does not ask whether it is deposed", f"{_SHARDS}.shard",
          "            self._missed()\n", "", "shards/test_owned_shard.py"),
    _topic("transact-merged-unread", "who takes a shard over does not read what is merged", f"{_SHARDS}.shard",
           "        self._owner = ShardOwner(state, end, self.key[1])\n",
           "        state = ShardState(state.table)\n        self._owner = ShardOwner(state, end, self.key[1])\n"),
    _topic("transact-dedup-lost", "a successor does not ask what was merged before it", f"{_SHARDS}.finished",
           "        ways = await self._between(shard, staging_id, key)\n", "        ways: list[tuple[KeyRange, int]] = []\n"),
    _topic("transact-dropped-unasked", "an owner drops what is staged for long", _INQUIRIES,
           "        try:\n            result = await self._described(",
           "        shard.transactions.drop(key)\n        return\n        try:\n            result = await self._described("),
    _topic("transact-ended-is-merged", "a shard that has ended is taken for one that has merged", _MERGING,
           "                pending += [each for each in row.successors if each not in done]\n", ""),
    _topic("transact-any-order", "a shard merges before those that it follows", _OWNER,
           "        ended = {row.shard_id for row in rows if row.ended_version}\n", "        ended: set[int] = set()\n"),
    _topic("transact-staged-unasked", "who takes a shard over does not ask what became of what is staged",
           "rangelog_broker.hosting.owned",
           "        if shard.transactions.staged():\n            self.on_staged(shard)\n", ""),
    _rare("transact-run-unfinished", "who takes a shard over goes on inside a run", f"{_SHARDS}.shard",
          "                await shard._finish_run(finished)\n", "", "shards/test_staged_shard.py"),
    _topic("transact-sealed-over", "a topic is sealed over what is to be merged into it", f"{_SHARDS}.scaling",
           "        return all(results)\n", "        return True\n"),
    _topic("transact-positions-unmerged", "the positions of a commit are not committed", _MERGING,
           "            check_name(\"group\", group)\n", "            return\n"),
    _topic("group-staged-handed-out", "a shard is handed out while a position of it is staged", _GROUP,
           " and key not in undecided]", "]", first_seed=65, every=96),
    _topic("group-ended-is-consumed", "a shard that has ended counts as consumed", "rangelog_broker.groups.consumed_cut",
           "    return min(position, facts.end_offset) if facts.ended", "    return facts.end_offset if facts.ended",
           first_seed=137, every=_LOSES),
    # ---- watermarks
    _topic("watermark-of-the-fastest", "the lower time is that of the fastest producer", _TIMES,
           "min(times), max(times)", "max(times), max(times)"),
    _topic("watermark-position-passed-over", "a note's position does not count", _TIMES,
           "                self.reached[each.shard_id] = each.offset\n", "                pass\n"),
    _topic("watermark-unsettled", "a time is noted while earlier records are in flight", "rangelog._produce.time_notes",
           "                    await self._settled()\n", "                    pass\n"),
    # ---- Spark's sink
    _sink("sink-undecided", "a driver's decision is not carried out by the next one", "committer",
          "            if log.last is not None and not log.done:\n", "            if False:\n"),
    _sink("sink-from-the-start", "who carries a decision out does not look what is there", "committer",
          "await self.target.copied(log.last, log), {})", "0, {})"),
    _rare("sink-looks-before-the-fence", "who carries a decision out looks before the former writer is fenced",
          "rangelog._sink.target", "        await writer.open()\n",
          "        self.known_end = await self._client.end_offset(self._name)\n        await writer.open()\n",
          _COMMITTER_TEST).and_also(
          "rangelog._sink.target", "decided.target_from), self._open.next_offset", "decided.target_from), self.known_end"),
    _sink("sink-done-unacked", "a decision counts as carried out before it is acked", "target",
          "        await writer.flush()\n", "        pass\n"),
    _sink("sink-number-again", "the last batch of work is not known to be committed", "decision",
          "return self.last is not None and number <=", "return self.last is not None and number <"),
    _sink("sink-undurable", "what is appended is not decided durably before", "committer",
          "        await control.flush()\n        self._control_log.note(", "        self._control_log.note("),
    _rare("sink-chunk-unasked", "a transaction whose outcome is not known is sent again", "rangelog._sink.topic_target",
          "return chunk.end if await program.was_committed(chunk.transaction) else chunk.first", "return chunk.first",
          _COMMITTER_TEST),
    _rare("sink-chunk-believed", "a transaction that was about to begin is taken for committed", "rangelog._sink.topic_target",
          "return chunk.end if await program.was_committed(chunk.transaction) else chunk.first", "return chunk.end",
          _COMMITTER_TEST),
    _rare("sink-chunk-noted-late", "a transaction is noted when it is committed", "rangelog._sink.topic_target",
          "        await note(CHUNK, chunk.encode())\n        try:\n", "        try:\n", _COMMITTER_TEST).and_also(
          "rangelog._sink.topic_target", "            await transaction.commit()\n",
          "            await transaction.commit()\n            await note(CHUNK, chunk.encode())\n"),
    _sink("staging-whole-stream", "a task's span begins where its staging stream does", "staging",
          "self._start = self._writer.next_offset", "self._start = 0"),
    _sink("staging-unacked", "a span is handed over before it is acked", "staging",
          "        await self._writer.flush()\n", ""),
)  # fmt: skip
