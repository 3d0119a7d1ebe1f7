"""One placement driver behind its API: proposes commands, reads behind a barrier, runs the reconcilers as leader.

What holds: what is answered was applied by a majority, or read after a barrier; a follower names the leader; decisions
that need a clock or the heartbeats are made here and go into the command.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from google.protobuf.message import Message

from rangelog.errors import InvalidArgument, NotLeader, RangelogError, Unavailable
from rangelog_pd.consensus.interface import Consensus
from rangelog_pd.reconcile.proposals import proposals
from rangelog_pd.reconcile.tasks import Tasks
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.settings import PdSettings
from rangelog_pd.state.machine import COMMAND_VERSION, Machine, response_of
from rangelog_pd.state.store import State
from rangelog_proto.v1 import pd_state_pb2

PROPOSE_TIMEOUT_S = 2.5
BARRIER_TIMEOUT_S = 2.0
"""Both below a client's try at one member, so that it hears from us what is the matter."""
REQUEST_ID_LENGTH_MAX = 100

_T = TypeVar("_T", bound=Message)
_log = logging.getLogger("rangelog.pd")


class Driver:
    """See the module. Lives on one event loop."""

    def __init__(self, settings: PdSettings, consensus: Consensus, machine: Machine) -> None:
        self.settings = settings
        self.consensus = consensus
        self._machine = machine
        self.view = ClusterView(settings.server_suspect_ms, settings.server_dead_ms)
        self.tasks = Tasks()
        self._leading_term: int | None = None

    # ---- time

    @staticmethod
    def now_ms() -> float:
        """Monotonic; for leases."""
        return time.monotonic() * 1000

    @staticmethod
    def wall_ms() -> int:
        """Wall clock; for what people read, and for retention."""
        return time.time_ns() // 1_000_000

    # ---- consensus

    @contextmanager
    def state(self) -> Iterator[State]:
        """The state as applied so far, held still; no awaits inside."""
        with self.consensus.lock:
            yield self._machine.state

    async def barrier(self) -> None:
        """After this the state holds everything that was acknowledged before. Raises NotLeader with a hint, Unavailable."""
        try:
            await self.consensus.barrier(timeout_s=BARRIER_TIMEOUT_S)
        except NotLeader as error:
            raise self._hint() from error
        self._note_leading()

    async def propose_request(self, response: type[_T], request_id: str, **action: Message) -> _T:
        """Apply a client's command, which needs a request id: without one a retry would do it twice."""
        if not request_id:
            raise InvalidArgument(
                "the request id is missing: a command is repeated under the one it was first sent with"
            )
        return await self.propose(response, request_id, **action)

    async def propose(self, response: type[_T], request_id: str, **action: Message) -> _T:
        """Apply one command and return its response. Raises what the command came to, NotLeader, OutcomeUnknown."""
        if len(request_id) > REQUEST_ID_LENGTH_MAX:
            raise InvalidArgument(f"a request id of {len(request_id)} characters; the limit is {REQUEST_ID_LENGTH_MAX}")
        command = pd_state_pb2.Command(
            version=COMMAND_VERSION,
            request_id=request_id,
            now_ms=self.wall_ms(),
            **action,  # type: ignore[arg-type]
        )
        try:
            result = await self.consensus.propose(command.SerializeToString(), timeout_s=PROPOSE_TIMEOUT_S)
        except NotLeader as error:
            raise self._hint() from error
        return response.FromString(response_of(result))

    def _hint(self) -> NotLeader:
        leader = self.consensus.leader()
        self._leading_term = None
        if leader is None or leader == self.settings.name or leader not in self.settings.members:
            return NotLeader("this placement driver does not lead, and knows of no leader")
        address = self.settings.members[leader].api_address
        return NotLeader(f"this placement driver does not lead; {leader} does", address=address)

    def _note_leading(self) -> None:
        """A term of leadership begins at its first barrier: leases count from here, and every server must report anew."""
        term = self.consensus.status().term
        if self._leading_term != term:
            self._leading_term = term
            self.view.start_leading(self.now_ms())
            self.tasks.clear()
            _log.info("%s leads", self.settings.name)

    # ---- the leader's own work

    async def reconcile(self) -> None:
        """One round; called again and again. Does nothing on a follower."""
        if not self.consensus.is_leader():
            self._leading_term = None
            return
        try:
            await self.barrier()
            with self.state() as state:
                named = bool(state.cluster_id)
                commands = proposals(state, self.view, self.now_ms(), self.wall_ms())
            if not named:
                await self._propose_own(
                    pd_state_pb2.Command(name_cluster=pd_state_pb2.NameCluster(cluster_id=uuid.uuid4().hex))
                )
            for command in commands:
                await self._propose_own(command)
            self.tasks.expire(self.wall_ms())
        except Unavailable as error:
            _log.debug("a round of reconciling was cut short: %s", error)

    async def _propose_own(self, command: pd_state_pb2.Command) -> None:
        command.version = COMMAND_VERSION
        command.now_ms = self.wall_ms()
        result = await self.consensus.propose(command.SerializeToString(), timeout_s=PROPOSE_TIMEOUT_S)
        try:
            response_of(result)
        except RangelogError as error:
            _log.info("%s: %s", command.WhichOneof("action"), error)
