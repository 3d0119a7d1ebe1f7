"""Mutants of consumers through doors, and of the stream routes of the door for HTTP."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_CONSUME, _CORE = "rangelog_broker.verbs.consume", "rangelog_broker.verbs.consumer"
_VERB, _MODEL = "broker/verbs/test_consume.py", "broker/verbs/test_consumer.py"
_WIRE, _DEQUEUE = "rangelog_http.wire.cdap", "rangelog_http.handlers.cdap_dequeue"
_STREAMS, _FORMS = "http/test_cdap.py", "http/test_cdap_wire.py"

CONSUMING: tuple[Mutant, ...] = (
    rare("consume-by-anyone", "a client reads a topic through a group without a right on it", _CONSUME,
         "        for each in topics:\n            await caller.require_named(Verb.READ, TOPIC, each)\n", "", _VERB),
    rare("consume-any-group", "a client commits for a group without a right on it", _CONSUME,
         "        await caller.require_named(Verb.READ, GROUP, group)\n        for each", "        for each", _VERB),
    rare("consume-added-topics", "a member is handed a topic that others have added, and that it may not read", _CONSUME,
         "            for topic in sizes:\n                await caller",
         "            for topic in ():\n                await caller", _VERB),
    rare("consume-by-id", "who learns the id of a consumer reads and commits for it", _CONSUME,
         " or found.owner != owner_of(caller)", "", _VERB),
    rare("consume-for-ever", "a client that has gone keeps its shards from all others", _CONSUME,
         "        if found is not None and not found.users:\n            self.counts.expired += 1\n",
         "        if found is not None and not found.users and found.has_ended:\n            self.counts.expired += 1\n",
         _VERB),
    rare("consume-expires-while-asked", "a client that waits for records loses its shards meanwhile", _CONSUME,
         "        if found is not None and not found.users:\n", "        if found is not None:\n", _VERB),
    rare("consume-stop-keeps", "a broker that stops keeps its members' shards for a session more", _CONSUME,
         "        for name, each in list(self._consumers.items()):\n            self._drop(name, each)\n",
         "        pass\n", _VERB),
    rare("consume-no-repeat", "an answer that is lost on its way takes its records with it", _CONSUME,
         "                if not found.core.records:\n                    await self._fill(",
         "                if True:\n                    await self._fill(", _VERB),
    rare("consume-commit-unseen", "a commit of an earlier batch covers the one that no client has seen", _CORE,
         "        if 0 < number == self.number:\n", "        if 0 < number <= self.number:\n", _MODEL),
    rare("consume-lost-is-silent", "a client takes records for committed that others process again", _CORE,
         "        self._lost += [shard for shard, end in self._ends.items() if position.get(shard, -1) < end]\n", "", _MODEL),
    rare("consume-hands-out-lost", "records are handed out that another member has committed by now", _CORE,
         "if position.get(shard) != end]\n        for shard in lost:", "if False]\n        for shard in lost:", _MODEL),
    rare("consume-one-for-all", "a client takes all places of a broker's consumers", _CONSUME,
         "        if owner and own >= CONSUMERS_OF_ONE_MAX:\n", "        if False:\n", _VERB),
    rare("consume-keeps-all", "the batches of many consumers fill the broker's memory", _CONSUME,
         "                    if core.records and kept_bytes + core.size_bytes >= KEPT_BYTES_MAX:\n",
         "                    if False:\n", _VERB),
    rare("cdap-any-id", "who has the id of a stream's consumer takes its events", _WIRE,
         "    if not hmac.compare_digest(seal, _seal(text[: -len(seal) - 1], owner, stream)):\n", "    if False:\n", _FORMS),
    rare("cdap-splits-heads", "an event's header writes a header of the answer", _WIRE,
         "_NAME.fullmatch(named) and _TEXT.fullmatch(value):", "named:", _FORMS),
    rare("cdap-end-too-early", "a client stops at 204, and there are events", _DEQUEUE,
         "                    if await self._consumes.is_at_end(asked.caller, group, instance.consumer):\n",
         "                    if True:\n", _STREAMS),
    rare("cdap-commit-first", "an event is committed, and its client never had it", _DEQUEUE,
         "                    if found.records:\n",
         "                    await self._consumes._commit_open(self._consumes._consumers[instance.consumer])\n"
         "                    if found.records:\n", _STREAMS),
    rare("cdap-truncate-in-part", "a truncated stream has all its events", "rangelog_http.handlers.cdap",
         "            await topics.truncate(name, cut, timeout_s=CALL_TIMEOUT_S)\n",
         "            await topics.describe(name)\n", _STREAMS),
    rare("cdap-part-is-ok", "a batch of which some events are in no log is answered with 200", "rangelog_http.handlers.cdap",
         "        if errors and len(errors) < len(outcomes):\n            raise",
         "        if False:\n            raise", _STREAMS),
)  # fmt: skip
