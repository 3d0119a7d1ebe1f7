"""Consensus on pysyncobj, with a journal, snapshots, transport and rules of rangelog (the folders beside this module).

What holds: the Raft library runs on one thread that this class starts and watches; the event loop gets immutable values and
futures. If that thread ends, `failed` returns the reason and all pending proposals raise OutcomeUnknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rangelog_core.errors import (
    ConfigInvalid,
    InternalError,
    InvalidArgument,
    NotLeader,
    OutcomeUnknown,
    PreconditionFailed,
    RangelogError,
    StorageFull,
    Unavailable,
    UnsupportedVersion,
)
from rangelog_core.limits import COMMAND_BYTES_MAX
from rangelog_core.net.tls import TlsConfig
from rangelog_pd.consensus.files.configuration import Configuration, RaftMember, check_member
from rangelog_pd.consensus.files.disk import REAL_FILES, Files
from rangelog_pd.consensus.interface import ConsensusStatus, MemberRemoved, MemberStatus, StateMachine
from rangelog_pd.consensus.network.dialing import Dialing
from rangelog_pd.consensus.network.handshake import MemberIdentity, group_digest
from rangelog_pd.consensus.network.messages import KIND_COMMAND
from rangelog_pd.consensus.rules.changes import ADD, REMOVE, MemberChange, encode_change
from rangelog_pd.consensus.rules.member_changes import KIND_CHANGE, KIND_TRANSFER
from rangelog_pd.consensus.rules.proposals import Proposals
from rangelog_pd.consensus.rules.raft import Raft
from rangelog_pd.consensus.rules.raft_log import RaftLog
from rangelog_pd.consensus.rules.snapshots import Snapshots
from rangelog_pd.consensus.rules.timings import Timings
from rangelog_pd.state.versions import FEATURE_LEVEL

log = logging.getLogger(__name__)

SECRET_LENGTH_MIN = 8
BARRIER_ROUND_TIMEOUT_S = 2.0
STOP_TIMEOUT_S = 10.0
HAND_OVER_TIMEOUT_S = 0.5
"""How long a leader that stops waits until another member has taken over."""


class PySyncObjConsensus:
    """One member of the group, bound to the event loop on which it is started."""

    def __init__(
        self,
        name: str,
        members: Mapping[str, str],
        data_dir: Path,
        state_machine: StateMachine,
        *,
        secret: str,
        listen: str | None = None,
        api_addresses: Mapping[str, str] | None = None,
        joined: Configuration | None = None,
        timings: Timings = Timings(),  # noqa: B008 - it is frozen
        snapshot_entries: int = 5000,
        feature_level: int = FEATURE_LEVEL,
        tls: TlsConfig | None = None,
        files: Files = REAL_FILES,
    ) -> None:
        """`members`: name → host:port of the Raft port, this member included: those of the start, until the log names others.

        `joined`: instead of `members`, for a member that is to be added to a group: the group as another member knows it.
        `listen`: where to bind, if not at this member's address. Raises ConfigInvalid or InvalidArgument.
        """
        if joined is None and name not in members:
            raise ConfigInvalid(f"{name} is not among the members: {', '.join(sorted(members))}")
        for member, address in members.items():
            check_member(member, address, (api_addresses or {}).get(member, ""))
        if (len(members) > 1 or joined is not None) and len(secret) < SECRET_LENGTH_MIN:
            raise ConfigInvalid(f"raft_secret needs at least {SECRET_LENGTH_MIN} characters, the same on all members")
        if joined is not None and name not in joined.by_name and not listen:
            raise ConfigInvalid(f"raft_listen is missing: where {name} is reached by the group that it joins")
        self.lock = threading.Lock()
        self.applied_index = 0
        self._name = name
        self.initial = joined or initial_configuration(members, api_addresses or {})
        """The group that this member was started with: it counts until the log has another configuration."""
        self._listen = listen or self.initial.by_name[name].raft_address
        self._directory = Path(data_dir) / "raft"
        self._state_machine = state_machine
        self._secret = secret.encode()
        self._timings = timings
        self._snapshot_entries = snapshot_entries
        self._feature_level = feature_level
        self._tls = tls
        self._files = files
        self._view = ConsensusStatus(name, None, 0, 0, has_majority=False, members=())
        self._raft: Raft | None = None
        self._proposals: Proposals | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._failure: asyncio.Future[BaseException] | None = None
        self._barrier_waiters: list[asyncio.Future[int]] = []
        self._barrier_task: asyncio.Task[None] | None = None

    # --- the interface, on the event loop

    async def start(self) -> None:
        """Recover, listen and join. Raises Corruption, Unavailable (the port is in use), StorageFull, InternalError."""
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        self._proposals = Proposals()
        started: asyncio.Future[None] = loop.create_future()
        self._thread = self._start_thread(self._work(loop, started))
        await started

    async def propose(self, command: bytes, *, timeout_s: float) -> bytes:
        """Apply `command` on a majority and return its result, as `Consensus.propose` specifies."""
        if len(command) > COMMAND_BYTES_MAX:
            raise InvalidArgument(f"a command has {len(command)} bytes; the limit is {COMMAND_BYTES_MAX}")
        result: bytes = await self._submit(bytes([KIND_COMMAND]) + command, timeout_s)
        return result

    async def barrier(self, *, timeout_s: float) -> int:
        """Make local reads linearizable, as `Consensus.barrier` specifies. Calls during a round share the next one."""
        self._check_leads()
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._barrier_waiters.append(waiter)
        if self._barrier_task is None:
            self._barrier_task = asyncio.create_task(self._run_barriers())
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter
        except TimeoutError:
            raise Unavailable(f"no majority of placement drivers answered within {timeout_s} s") from None

    async def add_member(
        self, name: str, raft_address: str, api_address: str, *, replaces: str = "", timeout_s: float
    ) -> int:
        """Add a member as a learner, as `Consensus.add_member` specifies."""
        if len(self._secret) < SECRET_LENGTH_MIN:
            raise PreconditionFailed(
                "this placement driver was started without raft_secret, by which members authenticate each other: start it "
                f"with one of at least {SECRET_LENGTH_MIN} characters before another member is added"
            )
        return await self._change(MemberChange(ADD, name, raft_address, api_address, replaces), timeout_s)

    async def remove_member(self, name: str, *, timeout_s: float) -> int:
        """Remove a member, as `Consensus.remove_member` specifies."""
        return await self._change(MemberChange(REMOVE, name), timeout_s)

    async def _change(self, change: MemberChange, timeout_s: float) -> int:
        index: int = await self._submit(bytes([KIND_CHANGE]) + encode_change(change), timeout_s)
        return index

    async def transfer_leadership(self, name: str | None, *, timeout_s: float) -> str:
        """Hand leadership over, as `Consensus.transfer_leadership` specifies."""
        leader: str = await self._submit(bytes([KIND_TRANSFER]) + (name or "").encode(), timeout_s)
        return leader

    def leader(self) -> str | None:
        """Return the name of the probable leader: a hint."""
        return self._view.leader

    def is_leader(self) -> bool:
        """Whether this member is probably the leader: a hint."""
        return self._view.leader == self._name

    def status(self) -> ConsensusStatus:
        """Return the state of the group."""
        return self._view

    async def failed(self) -> BaseException:
        """Wait until consensus has failed and return the reason."""
        if self._failure is None:
            raise InternalError("not started")
        return await asyncio.shield(self._failure)

    async def close(self) -> None:
        """Leave the group cleanly; a leader first has another member take over. Idempotent."""
        self._stopping.set()
        if self._raft is not None:
            self._raft.peers.wake()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_TIMEOUT_S)
        if self._proposals is not None:
            self._proposals.fail_all(OutcomeUnknown("this placement driver stopped"), _stopping())
        for waiter in self._barrier_waiters:
            if not waiter.done():
                waiter.set_exception(_stopping())

    async def _submit(self, command: bytes, timeout_s: float) -> Any:
        self._check_leads()
        if self._proposals is None or self._raft is None:
            raise _stopping()
        proposal, wakes = self._proposals.put(command)
        if wakes:
            self._raft.peers.wake()
        try:
            async with asyncio.timeout(timeout_s):
                return await proposal.future
        except TimeoutError:
            if self._proposals.drop(proposal):
                raise Unavailable(
                    f"the placement driver was too busy for {timeout_s} s; nothing was proposed"
                ) from None
            raise OutcomeUnknown(f"no majority confirmed the command within {timeout_s} s") from None
        finally:
            self._proposals.drop(proposal)

    async def _run_barriers(self) -> None:
        while self._barrier_waiters:
            waiters, self._barrier_waiters = self._barrier_waiters, []
            outcome: int | RangelogError
            try:
                outcome = await self._submit(b"", BARRIER_ROUND_TIMEOUT_S)
            except OutcomeUnknown as error:
                outcome = Unavailable(error.message)
            except RangelogError as error:
                outcome = error
            for waiter in waiters:
                if waiter.done():
                    continue
                if isinstance(outcome, RangelogError):
                    waiter.set_exception(outcome)
                else:
                    waiter.set_result(outcome)
        self._barrier_task = None

    def _check_leads(self) -> None:
        if self._stopping.is_set() or self._thread is None or not self._thread.is_alive():
            raise _stopping()
        if not self.is_leader():
            raise self._refusal()

    def _refusal(self) -> RangelogError:
        leader = self._view.leader
        if leader is None or leader == self._name:
            return Unavailable("no placement driver leads at the moment; try again")
        return NotLeader(f"this placement driver does not lead, {leader} does")

    # --- the tick thread

    def _start_thread(self, work: Iterator[None]) -> threading.Thread:
        thread = threading.Thread(target=_exhaust, args=(work,), name="raft", daemon=True)
        thread.start()
        return thread

    def _work(self, loop: asyncio.AbstractEventLoop, started: asyncio.Future[None]) -> Iterator[None]:
        """Do the thread's work, one tick between two yields, so that a simulation can step it on its own clock."""
        error: BaseException | None = None
        try:
            self._raft = self._open()
            self._raft.tick()
            self._publish_view(self._raft)
            _post(loop, lambda: None if started.done() else started.set_result(None))
            while not self._stopping.is_set():
                yield
                self._raft.tick()
            yield from self._hand_over(self._raft)
        except BaseException as caught:
            error = caught
        try:
            if self._raft is not None:
                self._raft.destroy()
        except BaseException as caught:
            error = error or caught
        if error is not None:
            if self._proposals is not None:
                self._proposals.post()
            self._report(loop, started, _as_rangelog_error(error))

    def _report(self, loop: asyncio.AbstractEventLoop, started: asyncio.Future[None], error: RangelogError) -> None:
        if isinstance(error, MemberRemoved):
            log.warning("raft stopped: %s", error)
        else:
            log.critical("raft stopped: %s", error, exc_info=error.__cause__)
        self._view = ConsensusStatus(
            self._name, None, self._view.term, self.applied_index, has_majority=False, members=()
        )

        def tell() -> None:
            if not started.done():
                started.set_exception(error)
            if self._proposals is not None:
                self._proposals.fail_all(OutcomeUnknown(f"this placement driver failed: {error}"), _stopping())
            if self._failure is not None and not self._failure.done():
                self._failure.set_result(error)

        _post(loop, tell)

    def _open(self) -> Raft:
        files = self._files
        files.make_directory(self._directory)
        snapshots = Snapshots(self._directory / "snapshot", self._state_machine, self.lock, files=files)
        raft_log = RaftLog(self._directory, self._name, snapshots.loaded, initial=self.initial, files=files)
        # Whoever has no secret is alone, and stays so.
        dialing = self._make_dialing(raft_log.membership.current) if len(self._secret) >= SECRET_LENGTH_MIN else None
        raft = Raft(
            self._name,
            raft_log,
            snapshots,
            self,
            timings=self._timings,
            snapshot_entries=self._snapshot_entries,
            feature_level=self._feature_level,
        )
        if dialing is not None:
            raft.peers.dialing = dialing
            dialing.start(raft.peers.adopt)
            raft.on_members = partial(self._dial, dialing)
            raft.on_members({name: member.raft_address for name, member in raft.configuration.by_name.items()})
        return raft

    def _make_dialing(self, configuration: Configuration) -> Dialing:
        identity = MemberIdentity(self._name, configuration.group, self._secret)
        return Dialing(identity, self._listen, retry_s=Timings.connect_retry_s, tls=self._tls)

    def _dial(self, dialing: Dialing, addresses: Mapping[str, str]) -> None:
        """Dial the members of the configuration, at the addresses that it has."""
        dialing.follow({name: address for name, address in addresses.items() if name != self._name})

    def _hand_over(self, raft: Raft) -> Iterator[None]:
        if raft.configuration.voters <= {self._name} or not raft._isLeader():
            return
        raft.transferLeadership()
        deadline_s = time.monotonic() + HAND_OVER_TIMEOUT_S
        while raft._isLeader() and time.monotonic() < deadline_s:
            yield
            raft.tick()

    def apply(self, index: int, command: bytes) -> Any:
        """Apply a command for `Raft`: an exception of the state machine is the result, the same on every member."""
        try:
            with self.lock:
                result: Any = self._state_machine.apply(index, command)
        except (MemoryError, UnsupportedVersion):
            raise  # of this member alone: to continue would make its state differ from the others'
        except Exception as error:
            log.critical("applying entry %d raised", index, exc_info=error)
            result = InternalError(
                f"applying the command raised {type(error).__name__}; it may have been applied in part"
            )
        self.applied_index = index
        return result

    def take_proposals(self, *, leads: bool, paused: bool = False) -> list[tuple[bytes, Callable[[Any, int], None]]]:
        """Return the proposals of this tick, for `Raft`."""
        proposals = self._proposals
        if self._raft is None or proposals is None:
            return []
        self._publish_view(self._raft)
        proposals.post()
        if paused:
            return []
        taken, more = proposals.take(leads=leads, refusal=self._refusal)
        if more:
            self._raft.peers.wake()
        return [(proposal.command, partial(proposals.answer, proposal)) for proposal in taken]

    def _publish_view(self, raft: Raft) -> None:
        self.applied_index = raft.raftLastApplied
        leader_node = raft._getLeader()
        leader = leader_node.id if leader_node is not None else None
        if leader == self._name and not raft._isLeader():
            leader = None
        connected = raft.peers.connected
        members = tuple(
            MemberStatus(
                name,
                reachable=name == self._name or name in connected,
                leader=name == leader,
                feature_level=raft.levels.get(name, 0),
                raft_address=member.raft_address,
                api_address=member.api_address,
                voter=member.voter,
                replaces=member.replaces,
                acknowledged_index=raft.acknowledged_index(name),
            )
            for name, member in raft.configuration.by_name.items()
        )
        majority = leader is not None and raft.hasQuorum
        view = ConsensusStatus(
            self._name,
            leader,
            raft.raftCurrentTerm,
            self.applied_index,
            majority,
            members,
            raft.configuration.group,
            raft.configuration_index,
            raft.last_index,
        )
        if view != self._view:
            self._view = view


def initial_configuration(members: Mapping[str, str], api_addresses: Mapping[str, str]) -> Configuration:
    """Return the configuration of a group that begins with these members."""
    made = [RaftMember(name, address, api_addresses.get(name, "")) for name, address in members.items()]
    return Configuration(group_digest(members), ()).with_members(made)


def _exhaust(work: Iterator[None]) -> None:
    for _ in work:
        pass


def _post(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


def _stopping() -> Unavailable:
    return Unavailable("this placement driver is stopping")


def _as_rangelog_error(error: BaseException) -> RangelogError:
    if isinstance(error, RangelogError):
        return error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        wrapped: RangelogError = StorageFull("the disk of the Raft journal is full: free some space and start again")
    elif isinstance(error, OSError):
        wrapped = InternalError(f"the disk of the Raft journal failed: {error.strerror}")
    else:
        wrapped = InternalError(f"the Raft thread failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
