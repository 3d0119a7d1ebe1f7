"""Consensus of one member, in memory, for tests of the placement driver.

What holds: the same contract as the real one (one order of applies, results only after the apply, the lock held during
it), and no state survives the process. Tests move leadership, or make an outcome unknown, by the methods at the end.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Literal

from rangelog_core.errors import InvalidArgument, NotLeader, OutcomeUnknown, PreconditionFailed, Unavailable
from rangelog_core.limits import COMMAND_BYTES_MAX
from rangelog_pd.consensus.interface import ConsensusStatus, MemberStatus, StateMachine
from rangelog_pd.state.versions import FEATURE_LEVEL


class LocalConsensus:
    """Applies commands at once. Leads until a test changes it."""

    def __init__(self, state_machine: StateMachine, *, name: str = "local") -> None:
        self.lock = threading.Lock()
        self.name = name
        self.applied_index = 0
        self._state_machine = state_machine
        self._leader: str | None = name
        self._next_outcome: Literal["known", "applied_unknown", "dropped_unknown"] = "known"
        self._closed = False

    async def start(self) -> None:
        """Do nothing: there is no state to recover."""

    async def propose(self, command: bytes, *, timeout_s: float) -> bytes:
        """Apply a command and return its result. Raises NotLeader, Unavailable, OutcomeUnknown (by a test), InvalidArgument."""
        if len(command) > COMMAND_BYTES_MAX:
            raise InvalidArgument(f"a command has {len(command)} bytes; the limit is {COMMAND_BYTES_MAX}")
        await asyncio.sleep(0)
        self._check_leader()
        outcome, self._next_outcome = self._next_outcome, "known"
        if outcome == "dropped_unknown":
            raise OutcomeUnknown("the command may or may not have been applied")
        with self.lock:
            self.applied_index += 1
            result = self._state_machine.apply(self.applied_index, command)
        if outcome == "applied_unknown":
            raise OutcomeUnknown("the command may or may not have been applied")
        return result

    async def barrier(self, *, timeout_s: float) -> int:
        """Return the applied index. Raises NotLeader or Unavailable."""
        await asyncio.sleep(0)
        self._check_leader()
        return self.applied_index

    async def add_member(
        self, name: str, raft_address: str, api_address: str, *, replaces: str = "", timeout_s: float
    ) -> int:
        """Refuse: a group in memory is of one member. Raises PreconditionFailed."""
        self._check_leader()
        raise PreconditionFailed("a placement driver in memory takes no other members")

    async def remove_member(self, name: str, *, timeout_s: float) -> int:
        """Refuse, as `add_member`."""
        self._check_leader()
        raise PreconditionFailed("a placement driver in memory is the only member of its group")

    async def transfer_leadership(self, name: str | None, *, timeout_s: float) -> str:
        """Return this member. Raises PreconditionFailed for another one."""
        self._check_leader()
        if name not in (None, self.name):
            raise PreconditionFailed(f"{name} is no member")
        return self.name

    def leader(self) -> str | None:
        """Return the name of the leader; None if a test has removed it."""
        return self._leader

    def is_leader(self) -> bool:
        """Whether this member leads."""
        return self._leader == self.name and not self._closed

    def status(self) -> ConsensusStatus:
        """Return the state of a group of one."""
        leads = self.is_leader()
        return ConsensusStatus(
            name=self.name,
            leader=self._leader,
            term=1,
            applied_index=self.applied_index,
            has_majority=leads,
            members=(MemberStatus(name=self.name, reachable=True, leader=leads, feature_level=FEATURE_LEVEL),),
        )

    async def failed(self) -> BaseException:
        """Wait without end, since this consensus never fails."""
        never: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        return await never

    async def close(self) -> None:
        """Refuse all later calls."""
        self._closed = True

    def set_leader(self, name: str | None) -> None:
        """For tests: make another member the leader, or (None) no member."""
        self._leader = name

    def lose_next_outcome(self, *, applied: bool) -> None:
        """For tests: make the next proposal raise OutcomeUnknown, applied or not."""
        self._next_outcome = "applied_unknown" if applied else "dropped_unknown"

    def reload(self) -> None:
        """For tests: encode the state as a snapshot and restore it, as a restart does."""
        with self.lock:
            self._state_machine.restore(b"".join(self._state_machine.freeze()))

    def _check_leader(self) -> None:
        if self._closed:
            raise Unavailable("this placement driver is stopping")
        if self._leader is None:
            raise Unavailable("no placement driver leads at the moment; try again")
        if self._leader != self.name:
            raise NotLeader("this placement driver does not lead")
