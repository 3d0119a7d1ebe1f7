"""Mutants of fetches: what is shown too early, lost, repeated, refused wrongly, or kept for good."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_FETCH, _READS = "rangelog_broker.verbs.fetch", "rangelog_broker.verbs.log_reads"
_TAIL, _SHARD = "rangelog_broker.shards.tail", "rangelog_broker.shards.shard"
_TESTS, _WALK = "broker/verbs/test_fetch.py", "broker/verbs/test_tail.py"

FETCHING: tuple[Mutant, ...] = (
    rare("fetch-shows-what-is-sent", "a record is shown that a seal may still cut", _SHARD,
         "            self._tail = Tail(memory, self._owner.confirm_offset)\n",
         "            self._tail = Tail(memory, self._owner.next_offset)\n", _TESTS),
    rare("fetch-skips-what-was-in-flight", "a batch that was in flight as the tail began is in no answer", _TAIL,
         "            self.start_offset = end_offset\n            return\n", "            return\n", _WALK),
    rare("fetch-refuses-what-a-later-owner-acked", "a client that follows owners is sent back by a deposed one", _FETCH,
         "                if proved:\n", "                if True:\n", _TESTS),
    rare("fetch-waits-for-ever-at-a-lost-shard", "a fetch waits at an owner that was closed", _SHARD,
         "        self._order.clear()\n        self.drop_tail()\n", "        self._order.clear()\n", _TESTS),
    rare("fetch-memory-without-limit", "a thousand slow clients fill the broker's memory", _TAIL,
         "        return self.taken_bytes < self.bytes_max\n", "        return True\n", _TESTS),
    rare("fetch-tails-make-no-room", "tails and answers together exceed the limit", _TAIL,
         "self.tail_bytes + self.taken_bytes > self.bytes_max", "self.tail_bytes > self.bytes_max", _WALK),
    rare("fetch-cancelled-keeps-memory", "each client that goes away takes memory for good", _READS,
         "            self._ahead.extendleft(reversed(found))\n", "", _TESTS),
    rare("fetch-reads-anew-each-time", "a client that catches up costs a reader for each answer", _READS,
         "self._kept.pop(place, None) or _Read", "_Read", _TESTS),
    rare("fetch-keeps-tails-for-good", "a shard that was fetched from once holds memory until it is closed", _FETCH,
         "now_s - watch.used_s > TAIL_S", "False", _TESTS),
    rare("fetch-at-an-end-says-nothing", "a client waits for ever at the end of a shard that has ended", _FETCH,
         "(), end, end, is_last=True)", "(), end, end)", _TESTS),
    rare("fetch-by-anyone", "a client reads a topic without a right on it", _FETCH,
         "        await caller.require(Verb.READ, _TOPIC, topic_id)\n        counted", "        counted", _TESTS),
)  # fmt: skip
