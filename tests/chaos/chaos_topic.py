"""The topic of a run: its producer, a client by HTTP, the members of its group, and how far they are.

The first two share a host, each member has one of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import rangelog
from rangelog.errors import RangelogError, TopicExists
from rangelog_cli.local.processes import Process, stop_all
from tests.chaos.chaos_network import Network
from tests.chaos.chaos_topic_notes import GROUP, TOPIC, Progress, read_progress
from tests.support.waiting import WaitRanOut, until

PRODUCER_HOST = "p1"
MEMBER_HOSTS = ("m1", "m2")
RATE = 150
SHARDS = 2
RANGE_BYTES = 64 * 1024
HOT_RETENTION_S = 8.0
ACK_AGE_NS_MAX = 1_000_000_000
CREATED_WITHIN_S = 30.0
COMMITTED_WITHIN_S = 60.0
STOPPED_WITHIN_S = 40.0
_RETRY_S = 0.2
_T = TypeVar("_T")
HERE = Path(__file__).parent


class TopicClient(NamedTuple):
    """A client process and the files that it writes."""

    name: str
    host: str
    process: Process
    history: Path
    pulse_file: Path
    member_id: str = ""
    """Of a member of the group; two instances may have one."""

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return read_progress(self.pulse_file)


class Mark(NamedTuple):
    """How far the producer was when somebody looked."""

    begun: tuple[int, ...]


@dataclass
class TopicLoad:
    """See the module."""

    directory: Path
    network: Network
    connect_string: str
    doors: list[str]
    """Addresses of the brokers' doors for HTTP."""
    producers: list[TopicClient] = field(default_factory=list)
    members: list[TopicClient] = field(default_factory=list)
    """All that ever ran."""
    current: dict[str, TopicClient] = field(default_factory=dict)
    """By host."""

    def start(self) -> None:
        """Create the topic, start the producer and one member on each host."""
        self.directory.mkdir(parents=True, exist_ok=True)
        asyncio.run(self.create(TOPIC))
        self.producers.append(self._client("producer", PRODUCER_HOST, "chaos_producer.py", "--rate", str(RATE)))
        self.producers.append(self._client("http", PRODUCER_HOST, "chaos_http.py", "--doors", ",".join(self.doors)))
        for each in self.producers:
            each.process.start()
        for host in MEMBER_HOSTS:
            self.begin_member(host)

    def begin_member(self, host: str, member_id: str = "") -> TopicClient:
        """Start a member on a host, under an id; by default one that was not there before."""
        name = f"member{len(self.members) + 1}"
        member = self._client(name, host, "chaos_member.py", "--member-id", member_id or name)
        member = member._replace(member_id=member_id or name)
        self.members.append(member)
        self.current[host] = member
        member.process.start()
        return member

    async def create(self, name: str) -> None:
        """Create a topic, unless it is there."""
        stream = rangelog.StreamConfig(
            range_size_bytes_max=RANGE_BYTES, hot_retention_seconds=HOT_RETENTION_S, tiered=True
        )
        config = rangelog.TopicConfig(stream=stream)

        async def create(client: rangelog.Client) -> None:
            with suppress(TopicExists):
                await client.topics.create(name, config, shards=SHARDS)

        await self.ask(create, CREATED_WITHIN_S)

    async def ask(self, call: Callable[[rangelog.Client], Awaitable[_T]], timeout_s: float) -> _T:
        """Call something of the SDK until it succeeds. Raises the last error after the time."""
        deadline = time.monotonic() + timeout_s
        async with await rangelog.connect(self.connect_string) as client:
            while True:
                try:
                    return await call(client)
                except RangelogError:
                    if time.monotonic() > deadline:
                        raise
                    await asyncio.sleep(_RETRY_S)

    # ---- health

    def problem(self, marks: list[Mark]) -> str:
        """What is not well: what had been sent when the first mark was made is to be acked and processed, key by key."""
        for each in (*self.producers, *self.current.values()):
            if not each.process.running:
                return f"{each.name} has ended: {each.process.last_words()}"
        producer = self.producers[0].progress
        if not marks:
            marks.append(Mark(tuple(producer.begun)))
        wanted = marks[0].begun
        if time.monotonic_ns() - producer.last_ns > ACK_AGE_NS_MAX or _is_behind(producer.done, wanted):
            return "the topic's producer does not get acks"
        processed = [max(numbers) for numbers in zip(*(each.progress.done for each in self.members), strict=True)]
        return "the topic's group does not come after" if _is_behind(processed, wanted) else ""

    # ---- the end

    def stop(self) -> list[str]:
        """Let the producer flush and end, the group commit all, and its members end; return what did not work."""
        stop_all([each.process for each in self.producers], STOPPED_WITHIN_S)
        problems = asyncio.run(self._wait_committed())
        stop_all([each.process for each in self.current.values()], STOPPED_WITHIN_S)
        return problems

    async def _wait_committed(self) -> list[str]:
        async def look(client: rangelog.Client) -> list[str]:
            shards = await client.topics.shards(TOPIC, include_ended=True)
            tail = (await client.topics.cut(TOPIC, "tail")).offsets
            known = {each.shard_id: each.offset or 0 for each in (await client.groups.describe(GROUP)).shards}
            return [
                f"the group is at {known.get(each.shard_id)} of shard {each.shard_id}, not at {end}"
                for each in shards
                if known.get(each.shard_id) != (end := _end_of(each, tail))
            ]

        problems: list[str] = []

        async def committed() -> bool:
            problems[:] = await self.ask(look, COMMITTED_WITHIN_S)
            return not problems

        with suppress(WaitRanOut):
            await until(committed, "the group does not commit all", COMMITTED_WITHIN_S)
        return problems

    def close(self) -> None:
        """Kill every client. Idempotent."""
        for each in (*self.producers, *self.members):
            each.process.kill()

    def _client(self, name: str, host: str, script: str, *more: str) -> TopicClient:
        history, pulse = self.directory / f"{name}.jsonl", self.directory / f"{name}.pulse"
        arguments = [str(HERE / script), "--pds", self.connect_string, "--name", name]
        arguments += ["--history", str(history), "--pulse", str(pulse), *more]
        process = Process(name, arguments, log_path=self.directory / f"{name}.log", prefix=self.network.prefix(host))
        return TopicClient(name, host, process, history, pulse)


def _is_behind(numbers: Any, wanted: Any) -> bool:
    return any(number < least for number, least in zip(numbers, wanted, strict=True))


async def length_of(client: rangelog.Client, topic: str) -> int:
    """The number of records in a topic, in all shards that it ever had. Raises what asking raises."""
    shards = await client.topics.shards(topic, include_ended=True)
    tail = (await client.topics.cut(topic, "tail")).offsets
    return sum(_end_of(each, tail) for each in shards)


def _end_of(shard: rangelog.ShardInfo, tail: Any) -> int:
    return shard.end_offset if shard.end_offset is not None else int(tail[shard.shard_id])
