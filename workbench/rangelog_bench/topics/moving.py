"""How long producers and members stand still when shards move: a dead broker, a split, a dead member of a group."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from rangelog import ShardInfo, TopicProducer
from rangelog_bench import measurement as m
from rangelog_bench.measurement import Measurement, percentile
from rangelog_bench.ours import NAME, SETTING
from rangelog_bench.payload import make_record
from rangelog_bench.topics.client_process import ClientProcess, ClientProcesses
from rangelog_bench.topics.topic_cluster import TopicCluster, topic_cluster
from rangelog_bench.workload import ONE_SIZE, Effort, Emit, now
from rangelog_core.key_hash import key_position

_CLIENTS = 2
_BALANCED_S_MAX = 60.0
_AFTER_S = 4.0
_MEMBERS = 3
_SESSION_S = 2.0
_PRODUCERS_OF_SPLIT = 20
_BESIDE_SPLIT_S = 0.5


async def measure_broker_gap(directory: Path, effort: Effort, emit: Emit) -> None:
    """One record in flight for each shard of a broker, which is killed: the longest time between acks of each shard.

    Raises RuntimeError when an acked record is gone.
    """
    count = effort.shards_of_broker
    async with topic_cluster(directory, brokers=2) as cluster, cluster.client_processes() as clients:
        topic = await cluster.new_topic(2 * count)
        victim, shards = await _shards_of_a_broker(cluster, topic.topic_id, 2 * count)
        each = {"endpoints": cluster.endpoints, "topic": topic.name, "size": ONE_SIZE}
        await clients.start("one-by-one", [{**each, "shards": shards[number::_CLIENTS]} for number in range(_CLIENTS)])
        for client in clients.running:
            client.order({})
        await asyncio.sleep(max(0.5, effort.before_kill_s))
        killed_s = now()
        await asyncio.to_thread(cluster.kill, victim)
        await asyncio.sleep(max(_AFTER_S, effort.after_kill_s))
        answers = await clients.ask({"since_s": killed_s})
        written, found = sum(answer["written"] for answer in answers), 0
        async for chunk in cluster.client.topic_reader(topic.name).chunks():
            found += len(chunk.records)
    if found < written:
        raise RuntimeError(f"{written - found} of {written} acked records are gone")
    gaps = sorted(gap for answer in answers for gap in answer["longest_s"])
    usual = sorted(gap for answer in answers for gap in answer["usual_s"])
    details = {
        "p50": round(percentile(gaps, 50) * 1e3, 1), "max": round(gaps[-1] * 1e3, 1), "shards": len(shards),
        "usual_p50": round(percentile(usual, 50) * 1e3, 1), "usual_max": round(usual[-1] * 1e3, 1),
        "acked": written, "found": found,
    }  # fmt: skip
    emit(Measurement(NAME, SETTING, m.BROKER_GAP, ONE_SIZE, details["p50"], m.MS, details))


async def _shards_of_a_broker(cluster: TopicCluster, topic_id: int, count: int) -> tuple[str, list[int]]:
    """Return the broker that owns the most shards, and those shards."""
    owners = await cluster.owners(topic_id, range(count))
    names = list(owners.values())
    victim = max(set(names), key=names.count)
    return victim, [shard for shard, owner in owners.items() if owner == victim]


async def measure_split(directory: Path, effort: Effort, emit: Emit) -> None:
    """Producers with one record in flight each on one shard, which is split: the longest time between acks of each."""
    pauses: list[float] = []
    took: list[float] = []
    async with topic_cluster(directory, brokers=2) as cluster:
        topic = await cluster.new_topic(effort.splits)
        for shard in await cluster.client.topics.shards(topic.name):
            found, took_s = await _pauses_of_split(cluster, topic.name, shard)
            pauses += found
            took.append(took_s)
    pauses.sort()
    took.sort()
    details = {
        "p50": round(percentile(pauses, 50) * 1e3, 1), "p99": round(percentile(pauses, 99) * 1e3, 1),
        "max": round(pauses[-1] * 1e3, 1), "count": len(pauses), "split_p50": round(percentile(took, 50) * 1e3, 1),
    }  # fmt: skip
    emit(Measurement(NAME, SETTING, m.SPLIT_PAUSE, ONE_SIZE, details["p99"], m.MS, details))


async def _pauses_of_split(cluster: TopicCluster, topic: str, shard: ShardInfo) -> tuple[list[float], float]:
    acks_s: list[list[float]] = [[] for _ in range(_PRODUCERS_OF_SPLIT)]
    stopping = False

    async def produce(producer: TopicProducer, key: bytes, times_s: list[float]) -> None:
        while not stopping:
            await producer.send(payload, key=key)
            times_s.append(now())

    payload = make_record(ONE_SIZE, 0)
    producers = [cluster.client.producer(topic) for _ in acks_s]
    try:
        await asyncio.gather(*(each.open() for each in producers))
        tasks = [asyncio.create_task(produce(*each)) for each in zip(producers, _keys_in(shard), acks_s, strict=False)]
        await asyncio.sleep(_BESIDE_SPLIT_S)
        started_s = now()
        await cluster.client.topics.scale(topic, [shard.shard_id], 2)
        took_s = now() - started_s
        await asyncio.sleep(_BESIDE_SPLIT_S)
        stopping = True
        await asyncio.gather(*tasks)
    finally:
        for producer in producers:
            await producer.close(flush=False)
    return [max(b - a for a, b in pairwise(times_s) if b > started_s) for times_s in acks_s], took_s


def _keys_in(shard: ShardInfo) -> Sequence[bytes]:
    """Keys of the shard, one for each producer."""
    low, high = shard.key_range
    numbered = (b"key-%d" % number for number in itertools.count())
    return list(itertools.islice((key for key in numbered if low <= key_position(key) < high), _PRODUCERS_OF_SPLIT))


async def measure_rebalance(directory: Path, effort: Effort, emit: Emit) -> None:
    """A member of a group is killed: from when the group has noticed it until others have all its shards.

    The group is asked again and again whether it has noticed; counted is from the last time that it had not.
    """
    count, group = effort.shards_of_group, f"bench-{uuid.uuid4().hex[:8]}"
    async with topic_cluster(directory, brokers=2) as cluster, cluster.client_processes() as clients:
        topic = await cluster.new_topic(count)
        settings = {"endpoints": cluster.endpoints, "topic": topic.name, "group": group, "session_s": _SESSION_S}
        members = [f"member-{number}" for number in range(_MEMBERS)]
        await clients.start("member", [{**settings, "member": member} for member in members])
        shards = _Shards(clients)
        try:
            await shards.until(lambda: shards.are_even(count))
            taken = set(shards.of[0])
            killed_s = now()
            await clients.running[0].kill()
            last_seen_s, noticed_s = await _noticed(cluster, group, members[0])
            await shards.until(lambda: taken <= shards.of[1] | shards.of[2])
        finally:
            await shards.close()
    rebalanced_s = max(shards.gained_s[shard] for shard in taken)
    details = {
        "at_least": round(max(0.0, rebalanced_s - noticed_s) * 1e3, 1), "shards": count, "moved": len(taken),
        "since_kill": round((rebalanced_s - killed_s) * 1e3, 1), "session_ms": _SESSION_S * 1e3,
    }  # fmt: skip
    value = round(max(0.0, rebalanced_s - last_seen_s) * 1e3, 1)
    emit(Measurement(NAME, SETTING, m.REBALANCE, 0, value, m.MS, details))


async def _noticed(cluster: TopicCluster, group: str, member: str) -> tuple[float, float]:
    """When the group was last asked and had the member, and when it had it no more."""
    async with asyncio.timeout(_BALANCED_S_MAX):
        last_seen_s = now()
        while True:
            asked_s = now()
            found = await cluster.client.groups.describe(group)
            if all(each.member_id != member for each in found.members):
                return last_seen_s, now()
            last_seen_s = asked_s
            await asyncio.sleep(0.002)


class _Shards:
    """Which member has which shards, as they report it."""

    def __init__(self, clients: ClientProcesses) -> None:
        self.of: list[set[int]] = [set() for _ in clients.running]
        self.gained_s: dict[int, float] = {}
        self._changed = asyncio.Event()
        self._tasks = [
            asyncio.create_task(self._follow(each, has)) for each, has in zip(clients.running, self.of, strict=True)
        ]

    async def _follow(self, client: ClientProcess, has: set[int]) -> None:
        while True:
            try:
                report = await client.answer(_BALANCED_S_MAX)
            except RuntimeError:
                return  # it was killed
            has -= set(report.get("lost", ()))
            has |= set(report.get("gained", ()))
            self.gained_s.update(dict.fromkeys(report.get("gained", ()), report.get("at_s", 0.0)))
            self._changed.set()

    def are_even(self, count: int) -> bool:
        """Whether all shards are divided equally."""
        sizes = [len(has) for has in self.of]
        return sum(sizes) == count and max(sizes) - min(sizes) <= 1

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition."""
        async with asyncio.timeout(_BALANCED_S_MAX):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def close(self) -> None:
        """Follow them no longer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
