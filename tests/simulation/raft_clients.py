"""Clients of a simulated group: they ask, wait, go to another member, and repeat under the same request id.

What each operation came to is kept: OK with a result, FAILED (surely never proposed) or UNKNOWN.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rangelog_core.errors import RangelogError, Unavailable
from rangelog_pd.state.machine import response_of
from rangelog_pd.state.versions import FEATURE_LEVEL
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2
from tests.simulation.raft_group import RaftGroup
from tests.simulation.raft_process import Answer
from tests.simulation.raft_world import World

PATIENCE_S = 3.0
TRIES_MAX = 12
SERVERS = ("s1", "s2", "s3")
STREAMS = ("a", "b", "c", "d")


@dataclass(eq=False)
class Operation:
    """One command, however often it was sent."""

    request_id: str
    action: str
    command: bytes
    invoked_s: float
    seen_index: int
    """What somebody had seen applied when this was asked for first: it must come after."""
    result: bytes | None = None
    perhaps_proposed: bool = False
    over: bool = False
    answers: list[bytes] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """OK, UNKNOWN or FAILED."""
        if self.result is not None:
            return "OK"
        return "UNKNOWN" if self.perhaps_proposed else "FAILED"


class Clients:
    """Three of them, each with one operation at a time."""

    def __init__(self, world: World, group: RaftGroup, violate: Callable[[str], None], *, pause_s: float) -> None:
        self.operations: list[Operation] = []
        self.seen_index = 0
        self.pause_s = pause_s
        self.asking = True
        self.ok_count = 0
        self._world = world
        self._group = group
        self._violate = violate
        self._numbers = itertools.count(1)
        self._leader_hint = ""
        self._open: dict[str, common_pb2.Stream] = {}
        self._ranges: dict[str, common_pb2.Range] = {}
        for server in SERVERS:
            request = pd_pb2.RegisterServerRequest(server=server, incarnation=1, boot=1, data_address=f"{server}:1")
            self.start(lambda operation: None, register_server=request)
        for client in range(3):
            self._next(client)

    # ---- one client

    def _next(self, client: int) -> None:
        wait_s = self._world.random.expovariate(1 / self.pause_s)
        self._world.call_later(wait_s, lambda: self._ask(client))

    def _ask(self, client: int) -> None:
        if not self.asking:
            self._world.call_later(0.5, lambda: self._ask(client))
        elif self._world.random.random() < 0.3:
            self._read(client)
        else:
            self.start(lambda operation: self._next(client), **self._choose())

    def _choose(self) -> dict[str, Any]:
        random = self._world.random
        name = random.choice(STREAMS)
        stream, last = self._open.get(name), self._ranges.get(name)
        kind = random.random()
        if stream is None or kind < 0.1:
            return {"create_stream": pd_pb2.CreateStreamRequest(name=name)}
        if kind < 0.4:
            return {"open_writer": pd_pb2.OpenWriterRequest(name=name)}
        placed = [common_pb2.Replica(server=server, incarnation=1) for server in SERVERS]
        if last is not None and last.state == common_pb2.RANGE_STATE_OPEN and kind < 0.8:
            seal = pd_pb2.SealRangeRequest(
                stream_id=stream.stream_id,
                range_index=last.index,
                epoch=stream.epoch,
                end_offset=last.start_offset + random.randrange(100),
                create_next=random.random() < 0.5,
            )
            return {"seal_range": pd_state_pb2.PlacedSealRange(request=seal, replicas=placed)}
        if kind < 0.83:
            return {"trim_stream": pd_pb2.TrimStreamRequest(name=name, trim_offset=stream.next_offset)}
        create = pd_pb2.CreateRangeRequest(
            stream_id=stream.stream_id, epoch=stream.epoch, start_offset=stream.next_offset
        )
        return {"create_range": pd_state_pb2.PlacedCreateRange(request=create, replicas=placed)}

    def start(self, then: Callable[[Operation], None], **action: Any) -> Operation:
        """Send a command until it is answered or patience ends."""
        request_id = f"r{next(self._numbers)}"
        command = pd_state_pb2.Command(
            version=FEATURE_LEVEL, request_id=request_id, now_ms=int(self._world.now * 1000), **action
        )
        operation = Operation(
            request_id, next(iter(action)), command.SerializeToString(), self._world.now, self.seen_index
        )
        self.operations.append(operation)
        self._try(operation, 1, then)
        return operation

    def _member(self) -> str:
        names = list(self._group.processes)
        random = self._world.random
        return self._leader_hint if self._leader_hint and random.random() < 0.7 else random.choice(names)

    def _try(self, operation: Operation, number: int, then: Callable[[Operation], None]) -> None:
        member = self._member()
        over = [False]

        def go_on() -> None:
            if over[0]:
                return
            over[0] = True
            if operation.result is not None or number >= TRIES_MAX:
                operation.over = True
                self._maybe_repeat(operation)
                then(operation)
            else:
                wait_s = self._world.random.uniform(0.01, 0.15)
                self._world.call_later(wait_s, lambda: self._try(operation, number + 1, then))

        def done(answer: Answer) -> None:
            self._hear(operation, member, answer)
            go_on()

        def lose_patience() -> None:
            if not over[0]:
                operation.perhaps_proposed = True
                self._leader_hint = ""
                go_on()

        self._count_belief(member)
        self._group.propose(member, operation.command, done)
        self._world.call_later(PATIENCE_S, lose_patience)

    def _hear(self, operation: Operation, member: str, answer: Answer) -> None:
        if isinstance(answer, bytes):
            self._leader_hint = member
            operation.answers.append(answer)
            if operation.result is None:
                operation.result = answer
                self.ok_count += 1
            index = self._group.watch.first_index.get(operation.command)
            if index is None:
                self._violate(f"{operation.request_id} was answered by {member} and applied nowhere")
            else:
                self.seen_index = max(self.seen_index, index)
            self._learn(operation, answer)
            self._read_at_the_deposed(member)
        elif isinstance(answer, RangelogError):
            self._leader_hint = ""
            if not isinstance(answer, Unavailable):
                operation.perhaps_proposed = True

    def _learn(self, operation: Operation, answer: bytes) -> None:
        try:
            response = response_of(answer)
        except RangelogError:
            return
        if operation.action == "open_writer":
            opened = pd_pb2.OpenWriterResponse.FromString(response)
            self._open[opened.stream.name] = opened.stream
            if opened.HasField("last_range"):
                self._ranges[opened.stream.name] = opened.last_range
        elif operation.action == "create_stream":
            stream = pd_pb2.CreateStreamResponse.FromString(response).stream
            self._open.setdefault(stream.name, stream)
        elif operation.action == "create_range":
            self._learn_range(pd_pb2.CreateRangeResponse.FromString(response).range)
        elif operation.action == "seal_range":
            sealed = pd_pb2.SealRangeResponse.FromString(response)
            self._learn_range(sealed.range)
            if sealed.HasField("next_range"):
                self._learn_range(sealed.next_range)

    def _learn_range(self, found: common_pb2.Range) -> None:
        for name, stream in self._open.items():
            if stream.stream_id == found.stream_id:
                self._ranges[name] = found
                if found.state == common_pb2.RANGE_STATE_SEALED:
                    stream.next_offset = found.end_offset

    def _maybe_repeat(self, operation: Operation) -> None:
        """A late copy of the same request arrives somewhere."""
        if self._world.random.random() < 0.1 and operation.outcome != "FAILED":
            self._group.propose(self._member(), operation.command, lambda answer: self._hear_again(operation, answer))

    def _hear_again(self, operation: Operation, answer: Answer) -> None:
        if isinstance(answer, bytes):
            self._group.counters["requests repeated after their answer"] += 1
            operation.answers.append(answer)

    # ---- reads

    def _count_belief(self, member: str) -> None:
        process = self._group.processes[member]
        if process.running and process.consensus.is_leader() and self._group.leader() not in (member, None):
            self._group.counters["a cut-off leader was believed"] += 1

    def _read_at_the_deposed(self, leader: str) -> None:
        """Ask all others that still believe that they lead: none may answer with less than what was just acknowledged."""
        for name, process in self._group.processes.items():
            if name != leader and process.running and process.consensus.is_leader():
                self._group.counters["reads at a deposed leader"] += 1
                self.read_at(name)

    def _read(self, client: int) -> None:
        over = [False]

        def go_on() -> None:
            if not over[0]:
                over[0] = True
                self._next(client)

        self.read_at(self._member(), go_on)
        self._world.call_later(PATIENCE_S, go_on)

    def write_at(self, member: str | None) -> None:
        """One more command, most likely at this member."""
        self._leader_hint = member or ""
        self.start(lambda operation: None, open_writer=pd_pb2.OpenWriterRequest(name=STREAMS[0]))

    def read_at(self, member: str, then: Callable[[], None] = lambda: None) -> None:
        """Read behind a barrier: everything seen before must be there."""
        seen = self.seen_index
        self._count_belief(member)

        def done(answer: Answer) -> None:
            if isinstance(answer, int):
                self._group.counters["reads answered"] += 1
                index = self._group.applied_index(member)
                if index < seen:
                    self._violate(f"a read at {member} saw entry {index} after {seen} had been seen")
                self.seen_index = max(self.seen_index, index)
                self._leader_hint = member
            else:
                self._group.counters["reads refused"] += 1
                self._leader_hint = ""
            then()

        self._group.read(member, done)
