"""A story of the end that a reader may believe: acks get lost on their way to the writer, which then leaves its range.

Of the three replicas of the open range one is heard by the writer; what it sends reaches a second one, whose acks are lost; the
third hears nothing. So two disks hold what was never acked. Readers ask for the end, read up to it and go on from there,
until the placement driver seals the range; then the writer dies, everything heals, and an heir appends.

Told late, the readers begin only when the writer is about to seal: they hear from the disks before, and their questions and
the seal reach the placement driver at about the same time. Mostly the seal comes a little later and overtakes their proof.

Told early, the readers begin at once, the second replica is soon cut off as well, and the writer appends on: what comes then is
on one disk, above the floor that the readers' proof puts under the range and that the writer hears of as it seals.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from rangelog_proto.v1 import common_pb2
from tests.simulation import virtual_reading
from tests.simulation.virtual_clients import Clients
from tests.simulation.virtual_cluster import VirtualCluster
from tests.simulation.virtual_time import WORLD

_TRY_AGAIN_S = 0.01
_GIVE_UP_S = 8.0
_SLOW_S = (0.1, 0.13)
"""What the writer's seal takes: about as long as a reader waits for the writer before it asks the placement driver."""
_OVERTAKING_S = (0.15, 0.3)
"""Longer than that: the proof is under way when the seal comes."""
_CUT_OFF_S = (0.002, 0.03)
"""While the writer sends the few batches that it has in flight without an ack."""
_LATE_SHARE = 0.7
_OVERTAKING_SHARE = 0.8
"""Of those told late."""
ACKED_MIN = 10
ACKED_MAX = 15
"""In the range: all its replicas are connected, and it is not nearly full."""
ACKED_MAX_EARLY = 150
READERS = 2


class LostAcks:
    """See the module."""

    STORY = "acks are lost on their way, a reader asks for the end, and the writer dies as its range is sealed"

    EARLY = f"{STORY}, told early"

    def __init__(
        self, cluster: VirtualCluster, clients: Clients, chance: Random, running: Callable[[], bool], *, early: bool
    ) -> None:
        """`running`: whether faults may happen; the calm has writers of its own."""
        self._cluster, self._clients, self._chance, self._running = cluster, clients, chance, running
        self._loop = cluster.loop
        self._early = early
        self._late = not early and chance.random() < _LATE_SHARE
        self._acked_max = ACKED_MAX_EARLY if early else ACKED_MAX
        self._overtaking = chance.random() < _OVERTAKING_SHARE

    def begin(self) -> None:
        """Tell it."""
        self._loop.call_in(WORLD, self._chance.uniform(0.5, 1.0), self._lose_acks)

    def _range(self) -> common_pb2.Range | None:
        ranges = list(self._cluster.state.ranges.of(1).values())
        return ranges[-1] if ranges and ranges[-1].state == common_pb2.RANGE_STATE_OPEN else None

    def _lose_acks(self) -> None:
        if not self._running():
            return
        source = self._range()
        writers = [name for name in self._clients.holders if self._clients.processes[name].alive]
        acked = max(self._clients.main.acked, default=0) - (source.start_offset if source is not None else 0)
        if source is None or not writers or len(source.replicas) != 3 or not ACKED_MIN <= acked <= self._acked_max:
            self._loop.call_in(WORLD, _TRY_AGAIN_S, self._lose_acks)
            return
        writer = writers[-1]
        members = [replica.server for replica in source.replicas]
        self._chance.shuffle(members)
        self._cluster.note("one-way partition")
        cuts = [(members[1], writer), (members[2], writer), (writer, members[2])]
        self._cluster.network.cuts.update(dict.fromkeys(cuts))
        if self._early:
            cut_off_s = self._chance.uniform(*_CUT_OFF_S)
            self._loop.call_in(
                WORLD, cut_off_s, lambda: self._cluster.network.cuts.update({(writer, members[1]): None})
            )
        if self._late:
            self._cluster.ambush = lambda moment, host: self._struck(moment, host, writer)
        else:
            self._start_readers()
        self._wait(source, writer, self._loop.now + _GIVE_UP_S)

    def _struck(self, moment: str, host: str, writer: str) -> None:
        if moment == "frozen" and host == writer and self._late:
            self._late = False
            self._cluster.network.slow_s[writer] = self._chance.uniform(
                *(_OVERTAKING_S if self._overtaking else _SLOW_S)
            )
            self._cluster.group.slow_action = "prove_end"
            self._cluster.group.overtaking_action = "seal_range" if self._overtaking else ""
            self._loop.call_in(WORLD, 0.0, self._start_readers)

    def _start_readers(self) -> None:
        for number in range(READERS):
            name = f"a-end-{number}"
            self._clients.start(name, virtual_reading.ask_for_the_end(self._clients, self._clients.main, name, 5, 0.3))
            name = f"a-read-{number}"
            self._clients.start(name, virtual_reading.start_at_the_end(self._clients, self._clients.main, name, 4, 0.2))

    def _wait(self, source: common_pb2.Range, writer: str, until_s: float) -> None:
        now = self._cluster.state.ranges.of(1).get(source.index)
        sealed = now is None or now.state == common_pb2.RANGE_STATE_SEALED
        if not sealed and self._loop.now < until_s and self._running():
            self._loop.call_in(WORLD, 0.0002, self._wait, source, writer, until_s)
            return
        self._cluster.group.slow_action = self._cluster.group.overtaking_action = ""
        if not self._running():
            return
        self._clients.kill(writer)
        self._cluster.network.heal()
        self._clients.start("heir", self._clients.write("heir", 100, 0.02))
