"""Drains in any order of heartbeats, copies, drops, changes of modes and of the leader: never fewer whole copies than before.

The servers are models: a set of ranges that each really has. They carry out directives late, or never.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rangelog_core.errors import PreconditionFailed
from rangelog_pd.reconcile.draining import check_drain, progress
from rangelog_proto.v1 import common_pb2, operations_pb2
from tests.unit.pd.conftest import Pd, report

NAMES = ("rs1", "rs2", "rs3", "rs4", "rs5")
REPLICAS = 3
RANGES = 4
_SERVERS = st.sampled_from(NAMES)
_MODES = st.sampled_from(
    [common_pb2.SERVER_MODE_ACTIVE, common_pb2.SERVER_MODE_CORDONED, common_pb2.SERVER_MODE_DRAINING]
)


class Drains(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.pd = Pd()
        self.disks: dict[str, dict[tuple[int, int], None]] = {name: {} for name in NAMES}
        self.called_off = False
        self.told: dict[str, dict[str, Any]] = {name: {} for name in NAMES}
        for name in NAMES:
            self.pd.register(name, zone=f"z{name}")
            self.pd.beat(name)
        stream_id = self.pd.create_stream(replicas=REPLICAS, acks=2).stream_id
        self.pd.open_writer()
        self.pd.create_range(stream_id, 1, 0, *NAMES[:3])
        for index in range(RANGES):
            members = [NAMES[(index + 1 + each) % len(NAMES)] for each in range(REPLICAS)]
            next_on = members if index + 1 < RANGES else ()
            self.pd.seal(stream_id, index, 1, 10 * (index + 1), *next_on)
        for found in self.pd.state.ranges.values():
            for member in found.replicas:
                self.disks[member.server][found.stream_id, found.index] = None
        for name in NAMES:
            self.beat(name)

    @rule(name=_SERVERS)
    def beat(self, name: str) -> None:
        """A server reports what it has, and hears what it is told."""
        reports = [report(*key, "SEALED", end=10 * (key[1] + 1)) for key in self.disks[name]]
        self.pd.beat(name, *reports, tasks=dict.fromkeys(self.told[name], False))
        for each in self.pd.planned(name, tier=False):
            self.told[name][each.task_id] = each

    @rule(name=_SERVERS, number=st.integers(0, 9))
    def carry_out(self, name: str, number: int) -> None:
        """A server does one of the things that it was told, however long ago."""
        if not self.told[name]:
            return
        task_id = list(self.told[name])[number % len(self.told[name])]
        directive = self.told[name].pop(task_id)
        key = (directive.stream_id, directive.range_index)
        if directive.HasField("drop_replica"):
            self.disks[name].pop(key, None)
        elif any(key in self.disks[source.server] for source in directive.copy_replica.sources):
            self.disks[name][key] = None

    @rule(name=_SERVERS, mode=_MODES)
    def set_mode(self, name: str, mode: common_pb2.ServerMode) -> None:
        """An operator changes a mode; a drain that could not end is refused."""
        if mode == common_pb2.SERVER_MODE_DRAINING:
            try:
                check_drain(self.pd.state, self.pd.view, name, self.pd.now_ms)
            except PreconditionFailed:
                return
        self.called_off = self.called_off or (
            name in self.pd.state.modes.draining and mode != common_pb2.SERVER_MODE_DRAINING
        )
        request = operations_pb2.SetServerModeRequest(server=name, mode=mode)
        self.pd.do(operations_pb2.SetServerModeResponse, set_server_mode=request)

    @rule()
    def reconcile(self) -> None:
        """The leader's round."""
        self.pd.reconcile()

    @rule()
    def another_leader(self) -> None:
        """What the leader had in memory is gone: that a drain was called off half way, too, so not after that."""
        if not self.called_off:
            self.pd.view.start_leading(self.pd.now_ms)

    @invariant()
    def no_copy_is_given_up(self) -> None:
        """Each range is on as many disks as it was at first, or more."""
        for key in self.pd.state.ranges:
            assert sum(key in disk for disk in self.disks.values()) >= REPLICAS, key

    def teardown(self) -> None:
        """When nobody changes a mode any more, what is drained gets empty, unless too few others may have replicas."""
        active = [name for name in NAMES if not self.pd.state.modes.bars(name)]
        for _ in range(40):
            self.reconcile()
            for name in NAMES:
                while self.told[name]:
                    self.carry_out(name, 0)
                self.beat(name)
        self.no_copy_is_given_up()
        if len(active) >= REPLICAS:
            for name in self.pd.state.modes.draining:
                assert not self.disks[name], (name, self.disks)
                assert progress(self.pd.state, self.pd.view, self.pd.state.servers[name]).is_over


Drains.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestDrains = Drains.TestCase
