"""Faults of brokers, of a topic's shards and of the members of its group."""

from __future__ import annotations

import asyncio
import signal

import rangelog
from tests.chaos.chaos_cluster import BROKERS, PDS, RANGE_SERVERS
from tests.chaos.chaos_faults import Fault, Paused, Restarted
from tests.chaos.chaos_partitions import Cut, both_ways
from tests.chaos.chaos_topic import MEMBER_HOSTS, TopicClient
from tests.chaos.chaos_topic_notes import TOPIC
from tests.support.waiting import eventually

ENDS_WITHIN_S = 20.0
SCALED_WITHIN_S = 40.0


class BrokerKilled(Restarted):
    """`kill -9` of a broker: another one takes over what it owned."""

    name = "broker-killed"
    side = "broker"

    def inject(self) -> str:
        """See Fault."""
        victim = self.dice.choice(BROKERS)
        self.kill(victim)
        return victim


class BrokerPaused(Paused):
    """A broker stands still; when it goes on, it must not ack under its former epochs."""

    name = "broker-paused"
    side = "broker"

    def choose(self) -> str:
        """See Paused."""
        return self.dice.choice(BROKERS)


class BrokerStopped(Restarted):
    """SIGTERM of a broker, which hands over what it owns and ends."""

    name = "broker-stopped"
    side = "broker"

    def inject(self) -> str:
        """See Fault."""
        victim = self.dice.choice(BROKERS)
        self._down = (victim,)
        process = self.system.cluster.members[victim]
        process.signal(signal.SIGTERM)
        eventually(lambda: not process.running, f"{victim} does not end when told to", ENDS_WITHIN_S)
        return victim


class BrokerCutFromPd(Cut):
    """A broker and the placement drivers: producers and range servers still reach it."""

    name = "broker-cut-from-pd"
    side = "broker"
    hold_s = (4.0, 8.0)

    def inject(self) -> str:
        """See Fault."""
        victim = self.dice.choice(BROKERS)
        self.cut(*both_ways(victim, list(PDS)))
        return victim


class BrokerCutFromServers(Cut):
    """A broker and the range servers: it is there for everybody and can append nothing."""

    name = "broker-cut-from-servers"
    side = "broker"

    def inject(self) -> str:
        """See Fault."""
        victim = self.dice.choice(BROKERS)
        self.cut(*both_ways(victim, list(RANGE_SERVERS)))
        return victim


class TopicScaled(Fault):
    """A shard of the topic is split under load, and what came of it is merged again."""

    name = "topic-scaled"
    side = "all"
    hold_s = (0.2, 1.0)

    def inject(self) -> str:
        """See Fault."""
        return asyncio.run(self.system.topic.ask(self._scale, SCALED_WITHIN_S))

    async def _scale(self, client: rangelog.Client) -> str:
        shards = await client.topics.shards(TOPIC)
        parent = self.dice.choice(list(shards))
        children = await client.topics.scale(TOPIC, [parent.shard_id], 2, timeout_s=SCALED_WITHIN_S)
        await asyncio.sleep(self.dice.uniform(0.0, 1.0))
        ids = [child.shard_id for child in children]
        merged = await client.topics.scale(TOPIC, ids, 1, timeout_s=SCALED_WITHIN_S)
        return f"shard {parent.shard_id} to {ids[0]} and {ids[1]}, these to {merged[0].shard_id}"

    def heal(self) -> None:
        """Nothing is to be undone."""


class MemberKilled(Fault):
    """`kill -9` of a member of the group; another one comes."""

    name = "group-member-killed"
    side = "all"
    _host = ""

    def inject(self) -> str:
        """See Fault."""
        self._host = self.dice.choice(MEMBER_HOSTS)
        victim = self.system.topic.current[self._host]
        victim.process.kill()
        return victim.name

    def heal(self) -> None:
        """See Fault."""
        host, self._host = self._host, ""
        if host:
            self.system.topic.begin_member(host)


class MemberPaused(Fault):
    """SIGSTOP of a member of the group for longer than its session's time, or not; it goes on with what it then has."""

    name = "group-member-paused"
    side = "all"
    hold_s = (1.0, 8.0)
    _victim: TopicClient | None = None

    def inject(self) -> str:
        """See Fault."""
        self._victim = self.system.topic.current[self.dice.choice(MEMBER_HOSTS)]
        self._victim.process.signal(signal.SIGSTOP)
        return self._victim.name

    def heal(self) -> None:
        """See Fault."""
        victim, self._victim = self._victim, None
        if victim is not None:
            victim.process.signal(signal.SIGCONT)
