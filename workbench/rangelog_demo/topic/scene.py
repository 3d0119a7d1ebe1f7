"""The second scene of the demo, on the cluster of the first: a topic, its producers, a group that keeps counts in a table."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rangelog_cli.local.processes import Cluster, stop_all
from rangelog_core.errors import RangelogError, Unavailable
from rangelog_demo.ack_log import LoggedAck
from rangelog_demo.flights import Flight
from rangelog_demo.metadata import wait_for
from rangelog_demo.progress import Bar, DemoProgress
from rangelog_demo.timeline import make_timeline
from rangelog_demo.topic.comparison import TopicComparison
from rangelog_demo.topic.counting import read_counts
from rangelog_demo.topic.deliveries import check_deliveries, read_deliveries
from rangelog_demo.topic.faults import Producing
from rangelog_demo.topic.gaps import ack_times, longest_gap_ms, set_gaps
from rangelog_demo.topic.member import MEMBERS, MemberProcess
from rangelog_demo.topic.outcome import MemberLife, TopicOutcome
from rangelog_demo.topic.placement import BrokerPlacement
from rangelog_demo.topic.producer import PRODUCERS, WINDOW_RECORDS, ProducerProcess
from rangelog_demo.topic.scaling import SHARDS_FIRST, scaling_policy

if TYPE_CHECKING:
    from rangelog import Client

TOPIC, GROUP, TABLE = "flights", "carrier-counts", "carrier-counts"
FLIGHTS_PER_S_MAX = 12_000
DURATION_S_MIN = 14.0
"""Of all producers together. Few flights are sent slowly, so that the effect of each kill is over before the next."""
_BROKERS_TIMEOUT_S = 30.0
_GROUP_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 10.0


def flights_per_s(total: int) -> float:
    """The pace of all producers together."""
    return max(1.0, min(FLIGHTS_PER_S_MAX, total / DURATION_S_MIN))


def pace(total: int) -> str:
    """Return the report's line about the pace."""
    return (
        f"{PRODUCERS} producers send {flights_per_s(total):,.0f} flights a second together, keyed by carrier, each with at "
        f"most {WINDOW_RECORDS:,} not yet acked. A pause is that of one shard, also where the others go on."
    )


@dataclass
class TopicScene:
    """The state that the parts of the scene share."""

    directory: Path
    flights: Sequence[Flight]
    cluster: Cluster
    client: Client
    placement: BrokerPlacement
    progress: DemoProgress
    stack: AsyncExitStack
    outcome: TopicOutcome
    producers: list[ProducerProcess] = field(default_factory=list)
    all_members: list[MemberProcess] = field(default_factory=list)

    async def produce(self) -> None:
        """Topic, table, producers and members; then all flights through scales and kills, until the group has them all."""
        members = await self._start()
        total = len(self.flights)
        with self.progress.step("produce through scales and kills", total=total) as bar:
            producing = Producing(
                self.cluster,
                self.client,
                self.placement,
                TOPIC,
                GROUP,
                self.producers,
                members,
                self._make_member,
                total,
                bar,
            )
            await producing.run()
            await self._note_acks(producing)
            bar.note = f"longest pause of a shard {self.outcome.longest_gap_ms:.0f} ms"
        with self.progress.step("the group reads to the end") as bar:
            await wait_for(self._group_is_done, _GROUP_TIMEOUT_S, f"group {GROUP} is behind (see the members' logs)")
            await asyncio.to_thread(stop_all, [member.process for member in members], _STOP_TIMEOUT_S)
            killed = {kill.process: kill.replaced_by for kill in producing.member_kills}
            self.outcome.members = [
                MemberLife(
                    each.name,
                    sum(end - start for _, _, start, end in read_deliveries(each.deliveries)),
                    f"killed; {killed[each.name]} took its place" if each.name in killed else "read to the end",
                )
                for each in self.all_members
            ]
            bar.note = f"{len(members)} members, {len(killed)} killed"

    async def compare(self) -> None:
        """Every record of the topic, every delivery to the group, and every count in the table."""
        outcome = self.outcome
        with self.progress.step("read the topic and compare", total=len(self.flights)) as bar:
            outcome.comparison = await self._read_back(bar)
            bar.note = f"{outcome.comparison.read:,} records in {len(outcome.shards)} shards"
            deliveries = itertools.chain.from_iterable(read_deliveries(each.deliveries) for each in self.all_members)
            outcome.deliveries = check_deliveries(deliveries, outcome.shards, outcome.comparison.shard_records)
        with self.progress.step("the table against pandas") as bar:
            from rangelog_demo.verify import ask_pandas

            outcome.counts = await read_counts(self.client.table(TABLE))
            found = await asyncio.to_thread(ask_pandas, len(self.flights))
            outcome.expected = {carrier: flights for carrier, (flights, _, _) in found.items()}
            bar.note = f"{len(outcome.counts)} carriers, {sum(outcome.counts.values()):,} flights"

    # ---- parts

    async def _start(self) -> list[MemberProcess]:
        """Make topic and table, start all processes, and return the members of the group."""
        from rangelog import TopicConfig

        with self.progress.step("start producers and a group") as bar:
            await wait_for(self._brokers_are_there, _BROKERS_TIMEOUT_S, "brokers have not registered")
            pace_per_s = flights_per_s(len(self.flights))
            await self.client.topics.create(TOPIC, TopicConfig(scaling=scaling_policy(pace_per_s)), shards=SHARDS_FIRST)
            await self.client.tables.create(TABLE)
            rate = pace_per_s / PRODUCERS
            pds = self.cluster.connect_string
            self.producers += [
                ProducerProcess(number, self.directory, pds, TOPIC, self.flights, rate) for number in range(PRODUCERS)
            ]
            self.stack.callback(stop_all, [producer.process for producer in self.producers], 0.0)
            members = [self._make_member() for _ in range(MEMBERS)]
            for child in (*self.producers, *members):
                child.start()
            for child in (*self.producers, *members):
                await asyncio.to_thread(child.wait_ready)
            bar.note = f"{PRODUCERS} producers, {MEMBERS} members"
        return members

    def _make_member(self) -> MemberProcess:
        name = f"member-{len(self.all_members) + 1}"
        member = MemberProcess(name, self.directory, self.cluster.connect_string, GROUP, TOPIC, TABLE)
        self.all_members.append(member)
        self.stack.callback(stop_all, [member.process], 0.0)
        return member

    async def _brokers_are_there(self) -> bool:
        return await self.placement.alive() >= set(self.cluster.brokers)

    async def _group_is_done(self) -> bool:
        for member in self.all_members:
            if not member.process.running and member.process.returncode not in (0, -9):
                raise Unavailable(f"{member.name} has failed: {member.process.last_words()}")
        try:
            return all(each.records == 0 for each in await self.client.groups.lag(GROUP))
        except RangelogError as error:
            if not error.retriable:
                raise
            return False

    def _acks(self) -> list[LoggedAck]:
        return [ack for producer in self.producers for ack in producer.read_acks()]

    async def _note_acks(self, producing: Producing) -> None:
        outcome = self.outcome
        outcome.shards = await self.client.topics.shards(TOPIC, include_ended=True)
        acks = self._acks()
        outcome.acked = sum(ack.acked_ns is not None for ack in acks)
        outcome.scales, outcome.member_kills = producing.scale_marks, producing.member_kills
        outcome.timeline = make_timeline(acks, producing.broker_kills)
        times = ack_times(acks, outcome.shards)
        outcome.longest_gap_ms = longest_gap_ms(times)
        set_gaps(outcome.timeline.kills, times)

    async def _read_back(self, bar: Bar) -> TopicComparison:
        comparison = TopicComparison(self.flights, self._acks(), PRODUCERS)
        async for chunk in self.client.topic_reader(TOPIC).chunks():
            for record in chunk.records:
                comparison.add(chunk.shard_id, record.offset, record.timestamp_ms, record.key, record.value)
            bar.update(comparison.read)
        return comparison
