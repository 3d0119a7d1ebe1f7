"""A journal under faults: brokers that take it from each other, die and stand still, proposers in doubt, readers (T8).

Proposers and readers call the owners as over a network that delays and loses; an owner that was deposed, or stood still for
a while, answers as well. What everybody was told is judged at the end by a replay in a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from rangelog_broker.journal.journal import Journal
from rangelog_broker.journal.owner import OwnerLimits
from rangelog_broker.journal.standby import Standby
from rangelog_core.errors import RangelogError, RequestTimeout, SessionExpired
from rangelog_core.versions import FEATURE_LEVEL
from tests.simulation import virtual_streams
from tests.simulation.virtual_life import Life
from tests.simulation.virtual_time import Process, here
from tests.support.journal_machines import Chain, Link, link

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

T = TypeVar("T")
LIMITS = OwnerLimits(snapshot_entries=25)
CALL_TIMEOUT_S = 4.0
OWNERS = 2
PROPOSERS = 2
READERS = 2
COMMANDS = 200
PADDING = b"|" + b"." * 2_000
"""So that ranges are full soon, and the stream can be trimmed."""
IN_DOUBT_MAX = 4


class JournalLife(Life):
    """The stream of a journal: what is in it is judged by `Journals`."""

    def check(self, final: list[tuple[int, bytes]] | None, time_s: float) -> None:
        """Nothing that a client appended by itself."""


@dataclass
class Proposed:
    """One command, and the result that its proposer was given."""

    session: int
    sequence: int
    result: Link | None = None

    @property
    def name(self) -> bytes:
        return b"%d/%d" % (self.session, self.sequence)

    @property
    def command(self) -> bytes:
        return self.name + PADDING


@dataclass
class Journals:
    """One journal, its brokers and clients."""

    clients: Clients
    life: Life
    make_machine: Callable[[], Any] = Chain
    owners: dict[str, tuple[Process, Journal[Any]]] = field(default_factory=dict)
    proposed: list[Proposed] = field(default_factory=list)
    assigned: str = ""
    """The broker that clients are sent to: known before it has fenced the former one."""
    known_count: int = 0
    """Commands that somebody knows to be applied: a read that begins now sees as many."""

    # ---- brokers

    async def own(self, name: str) -> None:
        """Take the journal, hold it until it is taken away, wait, take it again."""
        clients, chance = self.clients, self.clients.chance
        client = await clients.client()
        while not clients.stopping:
            standby = Standby(client, self.life.name, self.make_machine) if chance.random() < 0.5 else None
            if standby is not None:
                standby.start()
            await asyncio.sleep(chance.uniform(0.0, 0.5))
            while self._is_held() and chance.random() < 0.85 and not clients.stopping:
                await asyncio.sleep(0.3)
            self.assigned = name
            try:
                if standby is not None:
                    journal = await standby.take_over(limits=LIMITS, timeout_s=8.0)
                    clients.cluster.note("a standby took a journal over")
                else:
                    journal = await Journal.open(
                        client, self.life.name, self.make_machine, limits=LIMITS, timeout_s=8.0
                    )
            except RangelogError as error:
                clients.cluster.note(f"journal: {type(error).__name__}")
                continue
            clients.cluster.note("journal opened")
            if chance.random() < 0.3:
                journal.raise_level(chance.randint(1, FEATURE_LEVEL))
            self.owners[name] = here(), journal
            while journal.closed is None and not clients.stopping and chance.random() < 0.97:
                await asyncio.sleep(0.3)
            await journal.close()

    def _is_held(self) -> bool:
        """Whether a broker that runs believes that the journal is its own."""
        held = [process for process, journal in self.owners.values() if journal.closed is None]
        return any(process.alive and not process.paused for process in held)

    async def supervise(self) -> None:
        """Start brokers, and kill some; at the end, judge."""
        clients, chance = self.clients, self.clients.chance
        number = 0
        while not clients.stopping:
            running = [name for name in self._brokers() if clients.lives_on(name)]
            if len(running) < OWNERS:
                name = f"j-{self.life.label}-{number}"
                number += 1
                clients.start(name, self.own(name))
            elif chance.random() < 0.08:
                clients.kill(chance.choice(running))
                clients.cluster.note("a broker was killed")
            await asyncio.sleep(chance.uniform(0.3, 1.5))
        await self._judge()

    def _brokers(self) -> list[str]:
        return [name for name in self.clients.processes if name.startswith(f"j-{self.life.label}")]

    # ---- calls

    async def _call(self, make: Callable[[Journal[Any]], Awaitable[T]], *, former: float = 0.08) -> T:
        """Call an owner: the assigned one, or with a probability of `former` any. Raises what it raises, or RequestTimeout."""
        loop, chance = self.clients.loop, self.clients.chance
        running = [name for name, (process, journal) in self.owners.items() if process.alive and journal.closed is None]
        name = chance.choice(running) if running and chance.random() < former else self.assigned
        if name not in self.owners:
            await asyncio.sleep(0.1)
            raise RequestTimeout("the broker does not own the journal yet", outcome_unknown=False)
        process, journal = self.owners[name]
        if journal.closed is None and journal.epoch < max(journal.epoch for _, journal in self.owners.values()):
            self.clients.cluster.note("a deposed broker that does not know it was asked")
        caller, answer = here(), loop.create_future()

        async def serve() -> None:
            try:
                result: T | RangelogError = await make(journal)
            except RangelogError as error:
                result = error
            if chance.random() >= 0.05:
                loop.call_in(caller, chance.expovariate(1 / 0.002), settle, result)

        def settle(result: T | RangelogError) -> None:
            if not answer.done():
                answer.set_result(result)

        if chance.random() >= 0.03:
            loop.call_in(process, chance.expovariate(1 / 0.002), lambda: loop.spawn(process, serve()))
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                result = await answer
        except TimeoutError:
            raise RequestTimeout("the broker does not answer") from None
        if isinstance(result, RangelogError):
            raise result
        return result  # type: ignore[no-any-return]

    # ---- clients

    async def propose(self) -> None:
        """Propose commands, several at once; each again and again until it has a result."""
        session = await self._session()
        if session is None:
            return
        sequence, doubtful = 0, dict[int, asyncio.Task[None]]()
        while not self.clients.stopping and sequence < COMMANDS:
            if len(doubtful) < IN_DOUBT_MAX:
                one = Proposed(session, sequence)
                self.proposed.append(one)
                doubtful[sequence] = asyncio.create_task(self._until_it_has_a_result(one, doubtful))
                sequence += 1
            await asyncio.sleep(self.clients.chance.expovariate(1 / 0.05))
        for task in list(doubtful.values()):
            await asyncio.wait([task])

    async def _session(self) -> int | None:
        while not self.clients.stopping:
            with contextlib.suppress(RangelogError):
                return await self._call(lambda journal: journal.open_session(timeout_s=CALL_TIMEOUT_S))
        return None

    async def _until_it_has_a_result(self, one: Proposed, doubtful: dict[int, asyncio.Task[None]]) -> None:
        again = False
        while not self.clients.stopping:
            settled = min(doubtful)
            try:
                told = await self._call(
                    lambda journal, settled=settled: journal.propose(  # type: ignore[misc]
                        one.session, one.sequence, one.command, settled=settled, timeout_s=CALL_TIMEOUT_S
                    )
                )
            except SessionExpired:
                self.clients.cluster.fail(f"{one.name!r}: the session is not known, though it was never idle")
            except RangelogError as error:
                self.clients.cluster.note(f"propose: {type(error).__name__}")
                again = True
                await asyncio.sleep(self.clients.chance.uniform(0.0, 0.3))
                continue
            one.result = link(told)
            self.known_count = max(self.known_count, one.result.count)
            if again:
                self.clients.cluster.note("a command in doubt got its result")
            break
        del doubtful[one.sequence]

    async def read(self) -> None:
        """Read linearizably: what anybody knew when the read began is there."""
        while not self.clients.stopping:
            known = self.known_count
            with contextlib.suppress(RangelogError):
                found = await self._call(
                    lambda journal: journal.read(lambda machine: machine.count, timeout_s=CALL_TIMEOUT_S),
                    former=0.6,
                )
                if found < known:
                    self.clients.cluster.fail(
                        f"a read of the journal found {found} commands; {known} were known before"
                    )
                self.known_count = max(self.known_count, found)
                self.clients.cluster.note("a linearizable read of a journal")
            await asyncio.sleep(self.clients.chance.expovariate(1 / 0.05))

    # ---- the end

    async def _judge(self) -> None:
        """Every result is the one that the whole log gives, and every command that has one is there once."""
        journal = await self._final()
        stream = await (await self.clients.client()).describe_stream(self.life.name)
        if stream.trim_offset:
            self.clients.cluster.note("a journal was trimmed behind a snapshot")
        machine = journal.machine
        places: dict[bytes, int] = {}
        for number, command in enumerate(machine.commands, 1):
            if command in places:
                self.clients.cluster.fail(f"{command!r} was applied twice, as {places[command]} and {number}")
            places[command] = number
        for one in self.proposed:
            if one.result is None:
                continue
            count, digest = one.result
            if places.get(one.name) != count or machine.digests[count - 1] != digest:
                self.clients.cluster.fail(
                    f"{one.name!r} had the result {count}; the log has it as {places.get(one.name)}"
                )
        if machine.count < self.known_count:
            self.clients.cluster.fail(f"the journal has {machine.count} commands; {self.known_count} were known")
        self.clients.cluster.trace(f"journal {machine.count} {machine.digest!r}")
        await journal.close()

    async def _final(self) -> Journal[Any]:
        """The last owner, in the calm."""
        client = await self.clients.client()
        while True:
            try:
                return await Journal.open(client, self.life.name, self.make_machine, limits=LIMITS, timeout_s=8.0)
            except RangelogError as error:
                self.clients.cluster.note(f"journal: {type(error).__name__}")
                await asyncio.sleep(0.5)


async def keep(clients: Clients, name: str) -> None:
    """Make a journal, its brokers and its clients."""
    made = await virtual_streams.create(clients, name)
    life = clients.cluster.lives[made.stream_id] = JournalLife(made.name, made.label, made.stream_id)
    journals = Journals(clients, life)
    for number in range(PROPOSERS):
        clients.start(f"q-{life.label}-{number}", journals.propose())
    for number in range(READERS):
        clients.start(f"t-{life.label}-{number}", journals.read())
    await journals.supervise()
