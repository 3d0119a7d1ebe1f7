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
from typing import TYPE_CHECKING, Any

from rangelog import Client, Writer
from rangelog._sink.committer import Committer
from rangelog._sink.decision import Decision, mark_extension
from rangelog._sink.staging import Output, Staging
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


class _Committer(Committer):
    """Counts what it finds."""

    def __init__(self, clients: Clients, client: Client, life: Life) -> None:
        super().__init__(client, life.name, life.stream_id, f"of-{life.name}")
        self._clients = clients

    async def _copied(self, pending: Decision, end: int) -> int:
        copied = await super()._copied(pending, end)
        if not copied:
            self._clients.cluster.note(CORNER_CASES[2])
        else:
            self._clients.cluster.note(CORNER_CASES[3 if copied < pending.batches else 4])
        return copied

    async def _decide(self, control: Writer, target: Writer, number: int, outputs: Sequence[Output]) -> Decision:
        decision = await super()._decide(control, target, number, outputs)
        await self._may_die()
        return decision

    async def _submit(self, target: Writer, data: bytes) -> None:
        await super()._submit(target, data)
        if self._clients.chance.random() < 0.5:
            await target.flush()
        await self._may_die()

    @property
    def target_end(self) -> int:
        """One past the last record of the target that this committer appended."""
        return self._target.next_offset if self._target is not None else 0

    async def _may_die(self) -> None:
        """Die between two steps."""
        process = here()
        if process.name.startswith("driver") and self._clients.chance.random() < DIES:
            self._clients.kill(process.name)
            await asyncio.sleep(0)


class _Sink:
    """One query's."""

    def __init__(self, clients: Clients, life: Life) -> None:
        self._clients, self._life = clients, life
        life.own_fields = True
        self._chance, self._note = clients.chance, clients.cluster.note
        self._next = 0
        self._groups: list[list[list[Append]]] = []
        """By micro-batch: the records of each group, which stay together and in order."""
        self._tasks = 0

    async def drive(self) -> None:
        """A driver that runs until it is killed."""
        client = await self._clients.client()
        committer = _Committer(self._clients, client, self._life)
        while not self._clients.stopping and self._next < MICRO_BATCHES:
            if not await self._micro_batch(committer, self._next):
                await asyncio.sleep(self._chance.uniform(0.0, 0.2))
        await committer.close()

    async def finish(self) -> None:
        """The last driver, in the calm: commits what is left half-way, and checks all."""
        client = await self._clients.client()
        committer = _Committer(self._clients, client, self._life)
        number = max(0, min(self._next, len(self._groups) - 1))
        for _ in range(ATTEMPTS):
            if await self._micro_batch(committer, number):
                break
        else:
            self._clients.cluster.fail("a sink's last driver cannot commit in the calm")
        await committer.close()
        self._check([value async for value in _values(client, self._life)])

    # ---- a micro-batch

    async def _micro_batch(self, committer: _Committer, number: int) -> bool:
        """Run its tasks and commit it; return whether that is done."""
        outputs = [await self._task(number, place, groups) for place, groups in enumerate(self._planned(number))]
        done = [output for output in outputs if output is not None]
        if len(done) < len(outputs):
            return False
        try:
            appended = await committer.commit(number, done, timeout_s=TASK_S)
        except RangelogError as error:
            self._note(f"commit of a sink: {type(error).__name__}")
            return False
        self._note(CORNER_CASES[0 if appended else 1])
        end = committer.target_end
        if appended and end:
            self._clients.check_durable(self._life, end - 1, f"micro-batch {number} was committed")
        if self._chance.random() < 0.8:  # else the checkpoint does not hear of it
            self._next = max(self._next, number + 1)
        return True

    def _planned(self, number: int) -> list[list[list[Append]]]:
        """The groups of each task: those of one micro-batch are the same, the tasks are not."""
        while len(self._groups) <= number:
            self._groups.append(
                [self._group(len(self._groups), place) for place in range(self._chance.randrange(1, 5))]
            )
        groups = list(self._groups[number])
        self._chance.shuffle(groups)
        tasks: list[list[list[Append]]] = [[] for _ in range(self._chance.randrange(1, 4))]
        for group in groups:
            self._chance.choice(tasks).append(group)
        return tasks

    def _group(self, number: int, place: int) -> list[Append]:
        life, writer = self._life, f"k{number}.{place}"
        now = self._clients.loop.now
        records = [
            Append(life.identity_of(writer, sequence), writer, sequence, -1, now)
            for sequence in range(1, self._chance.randrange(2, 9))
        ]
        life.appends += records
        return records

    async def _task(self, number: int, place: int, groups: list[list[Append]]) -> Output | None:
        """Run one task, a second attempt beside the first one if that is late; None if both fail."""
        for _ in range(2):
            self._tasks += 1
            ended: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
            work = self._attempt(place, groups, ended)
            name = f"e{self._tasks}"
            beside = self._chance.random() < 0.7
            if self._clients.start(name, work, here().name if beside else "") is None:
                return None
            if not beside and self._chance.random() < 0.1:
                self._clients.loop.call_later(self._chance.uniform(0.0, 0.1), self._clients.kill, name)
            hurried = self._chance.random() < 0.1
            with contextlib.suppress(TimeoutError, RangelogError):
                async with asyncio.timeout(0.01 if hurried else TASK_S):
                    return await asyncio.shield(ended)
            ended.add_done_callback(lambda done: done.cancelled() or done.exception())
        return None

    async def _attempt(self, place: int, groups: list[list[Append]], ended: asyncio.Future[Output]) -> None:
        """One attempt of a task."""
        chance = self._chance
        attempt = chance.getrandbits(64)
        records = [each for group in groups for each in group]
        batches: list[bytes] = []
        at = 0
        while at < len(records):
            part = records[at : at + chance.randrange(1, 5)]
            at += len(part)
            batches.append(_encoded(attempt, len(batches), part, chance.randrange(0, 3_000)))
        if not batches or chance.random() < 0.5:
            _tell(ended, Output(attempt, len(records), tuple(batches)))
            return
        staging = Staging(await self._clients.client(), f"of-{self._life.name}-{place}", attempt)
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

    # ---- judging

    def _check(self, found: list[bytes]) -> None:
        """Each record once, in order of micro-batches, of groups that stay together."""
        places = {
            each.identity: (number, place, at)
            for number, groups in enumerate(self._groups)
            for place, group in enumerate(groups)
            for at, each in enumerate(group)
        }
        fail = self._clients.cluster.fail
        if len(found) != len(set(found)) or len(found) != len(places):
            fail(f"a sink's target has {len(found)} records, {len(set(found))} of them different, not {len(places)}")
        numbers = [places[identity][0] for identity in found]
        if numbers != sorted(numbers):
            fail(f"micro-batches are mixed in a sink's target: {numbers}")
        for before, after in itertools.pairwise(found):
            if places[before][:2] == places[after][:2] and places[after][2] != places[before][2] + 1:
                fail(f"{after!r} follows {before!r} in a sink's target")


async def keep(clients: Clients, name: str) -> None:
    """Make the target; start drivers, one after the other and sometimes two at a time, and kill them."""
    chance = clients.chance
    sink = _Sink(clients, await virtual_streams.create(clients, name))
    drivers = 0
    while not clients.stopping and drivers < DRIVERS:
        drivers += 1
        driver = f"driver{drivers}"
        clients.start(driver, _quietly(sink.drive()))
        until = clients.loop.now + chance.expovariate(1 / DRIVER_S)
        while clients.lives_on(driver) and clients.loop.now < until:
            await asyncio.sleep(0.1)
        if clients.lives_on(driver) and not clients.stopping:
            if chance.random() < 0.3:
                later = chance.uniform(0.1, 2.0)
                clients.loop.call_later(later, lambda name=driver: clients.kill(name))
            else:
                clients.kill(driver)
    for number in range(1, drivers + 1):
        while clients.lives_on(f"driver{number}"):
            await asyncio.sleep(0.1)
    await sink.finish()


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(RangelogError):  # of connecting: as if it had been killed before it began
        await work


async def _values(client: Client, life: Life) -> AsyncIterator[bytes]:
    async for record in client.reader(life.name, timeout_s=60.0):
        yield record.value.partition(b"|")[0]


def _tell(ended: asyncio.Future[Output], result: Output | RangelogError) -> None:
    if ended.done():
        return
    if isinstance(result, Output):
        ended.set_result(result)
    else:
        ended.set_exception(result)


def _encoded(attempt: int, number: int, records: list[Append], padding: int) -> bytes:
    return encode_batch(
        stream_id=0,
        range_index=0,
        epoch=0,
        base_offset=0,
        timestamps_ms=[int(WALL_S * 1000)] * len(records),
        values=[each.identity + b"|" + bytes(padding) for each in records],
        extension=mark_extension(attempt, number),
    )
