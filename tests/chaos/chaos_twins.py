"""Two processes of one identity in the topic's group: a supervisor takes a member for dead and starts it once more.

What holds: the later instance is the member. The earlier one ends with MemberFenced, and does not take the id back. What each
was handed under which ownership is in their notes (`chaos_topic_check`).
"""

from __future__ import annotations

import asyncio
import signal

import rangelog
from rangelog_core.net.owner_calls import journal_of
from tests.chaos.chaos_faults import Restarted
from tests.chaos.chaos_topic import MEMBER_HOSTS, TopicClient
from tests.chaos.chaos_topic_notes import GROUP, read_notes
from tests.support.waiting import eventually

OWNER_WITHIN_S = 20.0
HANDED_WITHIN_S = 40.0
TOLD_WITHIN_S = 40.0
LATER_S = (0.0, 1.0)
SAID = "another instance of the member"


class MemberTwins(Restarted):
    """Both members of the group are started again under their ids, beside the one and the stopped other; a broker is killed."""

    name = "group-member-twins"
    side = "all"
    hold_s = (1.0, 5.0)
    """Longer than a session, or not: the one that stood still then learns of its twin in different ways."""
    _earlier: tuple[TopicClient, ...] = ()
    _paused: TopicClient | None = None

    def inject(self) -> str:
        """See Fault. Returns when both twins have been handed records, while the broker is away."""
        topic = self.system.topic
        self._earlier = tuple(topic.current[host] for host in self.dice.sample(MEMBER_HOSTS, 2))
        paused, beside = self._earlier
        for each in self._earlier:
            eventually(lambda each=each: each.progress.last_ns > 0, f"{each.name} is handed nothing", HANDED_WITHIN_S)
        self._paused = paused
        paused.process.signal(signal.SIGSTOP)
        twins = [topic.begin_member(each.host, each.member_id) for each in (paused, beside)]
        self.interrupts.wait(self.dice.uniform(*LATER_S))
        owner = asyncio.run(topic.ask(_owner_of_group, OWNER_WITHIN_S))
        self.kill(owner)
        for each in twins:
            eventually(lambda each=each: each.progress.last_ns > 0, f"{each.name} is handed nothing", HANDED_WITHIN_S)
        return f"{paused.name}, which stood still, {beside.name}, which did not, and {owner}"

    def heal(self) -> None:
        """See Fault. Both earlier instances are told that their id was taken, and end."""
        super().heal()
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.process.signal(signal.SIGCONT)
        earlier, self._earlier = self._earlier, ()
        for each in earlier:
            eventually(lambda each=each: not each.process.running, f"{each.name} outlives its twin", TOLD_WITHIN_S)
            last = list(read_notes(each.history))[-1]
            assert last[0] == "fenced" and SAID in last[1], f"{each.name} ended with {last}"


async def _owner_of_group(client: rangelog.Client) -> str:
    """The broker that coordinates the group. Raises NotOwner, Unavailable."""
    owner = await client._owners.find(journal_of(GROUP))
    return owner.broker.server
