"""The role of Spark's sink under faults: drivers that die between any two steps and are followed by others, tasks run twice.

Its checkpoint, as Spark's, outlives the drivers: it has the number of the next micro-batch, and may be behind what was
committed. A micro-batch is the same records whenever it is run, in other tasks each time. At the end all of them are in the
target once, micro-batch after micro-batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rangelog import Client, Writer
from rangelog._sink.committer import SinkCommitter
from rangelog._sink.decision import ControlLog, Decision, mark_extension
from rangelog._sink.staging import Output, TaskStaging
from rangelog._sink.target import Note, StreamTarget
from rangelog_core.batch import encode_batch
from rangelog_core.errors import RangelogError, WriterFenced
from tests.simulation import virtual_streams
from tests.simulation.virtual_life import Append, Life
from tests.simulation.virtual_time import WALL_S, here

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

CORNER_CASES = (
    "a micro-batch was committed",
    "a micro-batch had been committed before",
    "a sink's decision was appended by the next driver",
    "a sink's decision was half appended by a driver that died",
    "a sink's decision was whole, which the next driver did not know",
    "a task was fenced by its next attempt",
)
MICRO_BATCHES = 12
DRIVERS = 20
DRIVER_S = 1.5
DIES = 0.04
"""How often a driver dies between two steps of a commit."""
TASK_S = 6.0
ATTEMPTS = 40
"""Of the last driver, in the calm."""
Row = tuple[bytes | None, bytes]
"""Key and value."""


class DyingCommitter(SinkCommitter):
    """Dies between two steps."""

    mortality: Mortality

    async def _decide(self, control: Writer, number: int, outputs: Sequence[Output]) -> Decision:
        decision = await super()._decide(control, number, outputs)
        await self.mortality.may_die()
        return decision


class _Target(StreamTarget):
    """Counts what it finds, and dies between two batches."""

    mortality: Mortality

    async def copied(self, decided: Decision, log: ControlLog) -> int:
        copied = await super().copied(decided, log)
        note_copied(self.mortality.clients, decided, copied)
        return copied

    async def append(self, copied: int, batches: AsyncIterator[bytes], note: Note) -> None:
        async def dying() -> AsyncIterator[bytes]:
            async for data in batches:
                yield data
                if self.mortality.clients.chance.random() < 0.5:
                    await self._open.flush()
                await self.mortality.may_die()

        await super().append(copied, dying(), note)

    @property
    def end(self) -> int:
        """One past the last record that was appended here; 0 if it is not open."""
        return self._writer.next_offset if self._writer is not None else 0


def note_copied(clients: Clients, decided: Decision, copied: int) -> None:
    """Count what a driver finds of a decision that is not known to be carried out."""
    clients.cluster.note(CORNER_CASES[2] if not copied else CORNER_CASES[3 if copied < decided.batches else 4])


@dataclass
class Mortality:
    """Kills the process whose code runs, if it is a driver's."""

    clients: Clients

    async def may_die(self) -> None:
        """Between two steps."""
        process = here()
        if "driver" in process.name and self.clients.chance.random() < DIES:
            self.clients.kill(process.name)
            await asyncio.sleep(0)


class Query:
    """A query's drivers and tasks. What it writes, and where to, is its subclasses'."""

    driver_s = DRIVER_S
    """How long a driver lives on average."""

    def __init__(self, clients: Clients, name: str) -> None:
        """`name`: of its processes and staging streams."""
        self.clients = clients
        self.name = name
        self._chance, self._note = clients.chance, clients.cluster.note
        self._next = 0
        self._groups: list[list[list[Row]]] = []
        """By micro-batch: the records of each group, which stay together and in order."""
        self._tasks = 0

    def committer(self, client: Client) -> SinkCommitter:
        """Return a driver's."""
        raise NotImplementedError

    def make_groups(self, number: int) -> list[list[Row]]:
        """Return the records of a micro-batch."""
        raise NotImplementedError

    def committed(self, number: int, committer: SinkCommitter, *, appended: bool) -> None:
        """A commit has returned."""

    async def run(self) -> None:
        """Start drivers, one after the other and sometimes two at a time, and kill them; then settle what is left half-way."""
        clients, chance = self.clients, self._chance
        drivers: list[str] = []
        while not clients.stopping and len(drivers) < DRIVERS:
            driver = f"{self.name}-driver{len(drivers)}"
            drivers.append(driver)
            clients.start(driver, _quietly(self._drive()))
            until = clients.loop.now + chance.expovariate(1 / self.driver_s)
            while clients.lives_on(driver) and clients.loop.now < until:
                await asyncio.sleep(0.1)
            if clients.lives_on(driver) and not clients.stopping:
                if chance.random() < 0.3:
                    clients.loop.call_later(chance.uniform(0.1, 2.0), partial(clients.kill, driver))
                else:
                    clients.kill(driver)
        for driver in drivers:
            while clients.lives_on(driver):
                await asyncio.sleep(0.1)
        await self._finish()

    async def _drive(self) -> None:
        """A driver that runs until it is killed."""
        committer = self.committer(await self.clients.client())
        while not self.clients.stopping and self._next < MICRO_BATCHES:
            if not await self._micro_batch(committer, self._next):
                await asyncio.sleep(self._chance.uniform(0.0, 0.2))
        await committer.close()

    async def _finish(self) -> None:
        """The last driver, in the calm."""
        committer = self.committer(await self.clients.client())
        number = max(0, min(self._next, len(self._groups) - 1))
        for _ in range(ATTEMPTS):
            if await self._micro_batch(committer, number):
                break
        else:
            self.clients.cluster.fail("a sink's last driver cannot commit in the calm")
        await committer.close()

    async def _micro_batch(self, committer: SinkCommitter, number: int) -> bool:
        """Run its tasks and commit it; return whether that is done."""
        outputs = [await self._task(place, groups) for place, groups in enumerate(self._planned(number))]
        done = [output for output in outputs if output is not None]
        if len(done) < len(outputs):
            return False
        try:
            appended = await committer.commit(number, done, timeout_s=TASK_S)
        except RangelogError as error:
            self._note(f"commit of a sink: {type(error).__name__}")
            return False
        self._note(CORNER_CASES[0 if appended else 1])
        self.committed(number, committer, appended=appended)
        if self._chance.random() < 0.8:  # else the checkpoint does not hear of it
            self._next = max(self._next, number + 1)
        return True

    def _planned(self, number: int) -> list[list[list[Row]]]:
        """The groups of each task: those of one micro-batch are the same, the tasks are not."""
        while len(self._groups) <= number:
            self._groups.append(self.make_groups(len(self._groups)))
        groups = list(self._groups[number])
        self._chance.shuffle(groups)
        tasks: list[list[list[Row]]] = [[] for _ in range(self._chance.randrange(1, 4))]
        for group in groups:
            self._chance.choice(tasks).append(group)
        return tasks

    async def _task(self, place: int, groups: list[list[Row]]) -> Output | None:
        """Run one task, a second attempt beside the first one if that is late; None if both fail."""
        for _ in range(2):
            self._tasks += 1
            ended: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
            work = self._attempt(place, groups, ended)
            name = f"{self.name}-task{self._tasks}"
            beside = self._chance.random() < 0.7
            if self.clients.start(name, work, here().name if beside else "") is None:
                return None
            if not beside and self._chance.random() < 0.1:
                self.clients.loop.call_later(self._chance.uniform(0.0, 0.1), self.clients.kill, name)
            hurried = self._chance.random() < 0.1
            with contextlib.suppress(TimeoutError, RangelogError):
                async with asyncio.timeout(0.01 if hurried else TASK_S):
                    return await asyncio.shield(ended)
            ended.add_done_callback(lambda done: done.cancelled() or done.exception())
        return None

    async def _attempt(self, place: int, groups: list[list[Row]], ended: asyncio.Future[Output]) -> None:
        """One attempt of a task."""
        chance = self._chance
        attempt = chance.getrandbits(64)
        records = [each for group in groups for each in group]
        batches: list[bytes] = []
        at = 0
        while at < len(records):
            part = records[at : at + chance.randrange(1, 5)]
            at += len(part)
            batches.append(_encoded(attempt, len(batches), part))
        if not batches or chance.random() < 0.5:
            _tell(ended, Output(attempt, len(records), tuple(batches)))
            return
        staging = TaskStaging(await self.clients.client(), f"of-{self.name}-{place}", attempt)
        try:
            for data in batches:
                await staging.add([data])
            _tell(ended, await staging.finish(len(records)))
        except RangelogError as error:
            if isinstance(error, WriterFenced):
                self._note(CORNER_CASES[5])
            _tell(ended, error)
        finally:
            await staging.close()


class _ToStream(Query):
    """A query that writes a stream; its values begin with identities."""

    def __init__(self, clients: Clients, life: Life) -> None:
        super().__init__(clients, life.name)
        self._life = life
        life.own_fields = True

    def committer(self, client: Client) -> SinkCommitter:
        """See Query."""
        target = _Target(client, self._life.name, self._life.stream_id, "control")
        made = DyingCommitter(client, f"of-{self.name}-control", target)
        made.mortality = target.mortality = Mortality(self.clients)
        return made

    def make_groups(self, number: int) -> list[list[Row]]:
        """See Query."""
        return [self._group(number, place) for place in range(self._chance.randrange(1, 5))]

    def committed(self, number: int, committer: SinkCommitter, *, appended: bool) -> None:
        """What was appended is on two disks."""
        assert isinstance(committer.target, _Target)
        if appended and committer.target.end:
            self.clients.check_durable(
                self._life, committer.target.end - 1, f"micro-batch {number} of a sink was committed"
            )

    def _group(self, number: int, place: int) -> list[Row]:
        life, writer = self._life, f"k{number}.{place}"
        rows: list[Row] = []
        for sequence in range(1, self._chance.randrange(2, 9)):
            identity = life.identity_of(writer, sequence)
            life.appends.append(Append(identity, writer, sequence, -1, self.clients.loop.now))
            rows.append((None, identity + b"|" + bytes(self._chance.randrange(0, 3_000))))
        return rows

    async def check(self) -> None:
        """Each record once, in order of micro-batches, of groups that stay together."""
        client = await self.clients.client()
        reader = client.reader(self.name, timeout_s=60.0)
        found = [record.value.partition(b"|")[0] async for record in reader]
        places = {
            value.partition(b"|")[0]: (number, place, at)
            for number, groups in enumerate(self._groups)
            for place, group in enumerate(groups)
            for at, (_, value) in enumerate(group)
        }
        fail = self.clients.cluster.fail
        if len(found) != len(set(found)) or len(found) != len(places):
            fail(f"a sink's target has {len(found)} records, {len(set(found))} of them different, not {len(places)}")
        numbers = [places[identity][0] for identity in found]
        if numbers != sorted(numbers):
            fail(f"micro-batches are mixed in a sink's target: {numbers}")
        for before, after in itertools.pairwise(found):
            if places[before][:2] == places[after][:2] and places[after][2] != places[before][2] + 1:
                fail(f"{after!r} follows {before!r} in a sink's target")


async def keep(clients: Clients, name: str) -> None:
    """Make a stream, and have a query write it."""
    query = _ToStream(clients, await virtual_streams.create(clients, name))
    await query.run()
    await query.check()


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(RangelogError):  # of connecting: as if it had been killed before it began
        await work


def _tell(ended: asyncio.Future[Output], result: Output | RangelogError) -> None:
    if ended.done():
        return
    if isinstance(result, Output):
        ended.set_result(result)
    else:
        ended.set_exception(result)


def _encoded(attempt: int, number: int, rows: list[Row]) -> bytes:
    keys = [key for key, _ in rows]
    return encode_batch(
        stream_id=0,
        range_index=0,
        epoch=0,
        base_offset=0,
        timestamps_ms=[int(WALL_S * 1000)] * len(rows),
        values=[value for _, value in rows],
        keys=keys if any(key is not None for key in keys) else None,
        extension=mark_extension(attempt, number),
    )
