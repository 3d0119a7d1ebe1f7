"""Mutants of fetches: what is shown too early, lost, repeated, refused wrongly, or kept for good."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_FETCH, _READS = "rangelog_broker.verbs.fetch", "rangelog_broker.verbs.log_reads"
_TAIL, _SHARD = "rangelog_broker.shards.tail", "rangelog_broker.shards.shard"
_HOT, _FIRST = "rangelog._read.hot", "client/read/test_first_appends.py"
_AWAITED = "range_server/serving/test_awaited_replicas.py"
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
    rare("first-append-unheard", "followers have a range's first record seconds late", "rangelog_server.ranges.store",
         "        self.awaited.made(hosted.key)\n", "", _AWAITED),
    rare("first-append-waits-are-kept", "each client that goes away leaves a waiter for good",
         "rangelog_server.serving.handlers.awaited_replica",
         "        self._connection.store.awaited.discard(self._key, self._again)\n", "", _AWAITED),
    rare("first-append-polls", "a quiet stream costs thirty requests a second for each follower", _HOT,
         "                await (await self._client(replica, address)).wait_for_replica(wait_ms)\n                return\n",
         "                break\n", _FIRST),
    rare("first-append-behind-a-change", "followers wait in a range that was removed", "rangelog._read.refreshing",
         "asyncio.ensure_future(watch.changed(watch.version))]", "asyncio.ensure_future(asyncio.sleep(3600))]", _FIRST),
)  # fmt: skip
