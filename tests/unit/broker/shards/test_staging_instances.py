"""Who may stage: an instance of a transactional program that its coordinator knows, and nobody who only says that it is one."""

from __future__ import annotations

import asyncio

import pytest

from rangelog.errors import InternalError, NotOwner, ProducerFenced, RangelogError, TransactionNotFound, Unavailable
from rangelog_broker.shards.shard import OwnedShard
from rangelog_broker.transactions.inquiries import Inquiries
from rangelog_core.batch_extension import Producer
from tests.support.owner_cluster import made_batch
from tests.support.transaction_cluster import TransactionCluster
from tests.support.waiting import until
from tests.unit.broker.shards.test_owned_shard import Bench, bench

pytestmark = pytest.mark.virtual

__all__ = ["bench"]
EPOCH_MAX = (1 << 32) - 1


class Coordinator:
    """Knows epoch 1 of producer 7; answers once it may."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, int]] = []
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None

    async def verify(self, name: str, producer: Producer, number: int) -> None:
        self.asked.append((name, producer.producer_id, producer.epoch, number))
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        if (producer.producer_id, producer.epoch) != (7, 1):
            raise ProducerFenced("another epoch has it")


class Requests:
    """Batches that are staged, by the numbers of their requests."""

    def __init__(self, bench: Bench, owner: OwnedShard) -> None:
        self._bench, self._owner, self._count = bench, owner, 0

    def stage(self, producer: Producer, name: str = "id") -> int:
        self._count += 1
        data = made_batch(producer, b"%d" % self._count)
        self._owner.transactions.stage(1, name, producer, data, self._bench.replies, self._count)
        return self._count

    async def outcome(self, request: int) -> str:
        try:
            await self._bench.replies.answer(request)
        except RangelogError as error:
            return type(error).__name__
        return "staged"


async def test_the_coordinator_is_asked_once_for_each_instance(bench: Bench) -> None:
    """Batches that come meanwhile follow in order; one under an epoch that was never given changes nothing."""
    owner, coordinator = await bench.open(), Coordinator()
    owner.transactions.verify = coordinator.verify
    requests = Requests(bench, owner)
    forged = requests.stage(Producer(7, EPOCH_MAX, 0))
    honest = [requests.stage(Producer(7, 1, sequence)) for sequence in range(3)]
    await until(lambda: len(coordinator.asked) == 2)
    assert not bench.replies.acks
    coordinator.may_answer.set()
    assert await requests.outcome(forged) == "ProducerFenced"
    assert [await requests.outcome(each) for each in honest] == ["staged"] * 3
    assert await requests.outcome(requests.stage(Producer(7, 1, 3))) == "staged"
    assert coordinator.asked == [("id", 7, EPOCH_MAX, 1), ("id", 7, 1, 1)]
    stolen = requests.stage(Producer(7, 1, 4), name="another")
    await requests.outcome(stolen)
    assert coordinator.asked[2:] == [("another", 7, 1, 1)], "what is known of one id says nothing of another"


@pytest.mark.parametrize("error", [Unavailable("nobody owns the journal"), KeyError("a defect")])
async def test_a_coordinator_that_does_not_answer_is_asked_again(bench: Bench, error: Exception) -> None:
    """By the program's next try; nothing was staged meanwhile."""
    owner, coordinator = await bench.open(), Coordinator()
    owner.transactions.verify = coordinator.verify
    coordinator.may_answer.set()
    requests = Requests(bench, owner)
    coordinator.error = error
    expected = type(error) if isinstance(error, RangelogError) else InternalError
    assert await requests.outcome(requests.stage(Producer(7, 1, 0))) == expected.__name__
    assert not owner.transactions.staged()
    coordinator.error = None
    assert await requests.outcome(requests.stage(Producer(7, 1, 0))) == "staged"


async def test_who_waits_for_the_coordinator_hears_of_the_shards_end(bench: Bench) -> None:
    """One answer, and no task is left."""
    owner, coordinator = await bench.open(), Coordinator()
    owner.transactions.verify = coordinator.verify
    requests = Requests(bench, owner)
    request = requests.stage(Producer(7, 1, 0))
    await until(lambda: bool(coordinator.asked))
    await owner.close()
    assert await requests.outcome(request) == NotOwner.__name__
    await until(lambda: not owner.transactions._asking)


async def test_what_a_coordinator_says_of_instances() -> None:
    """Of a transaction that it began: the id's producer, and the epoch that began it."""
    async with TransactionCluster() as cluster:
        inquiries = Inquiries(cluster)  # type: ignore[arg-type]
        async with cluster.program() as program, program.transaction() as transaction:
            await transaction.send("t", b"x")
            name = transaction._name
            mine = Producer(name.producer_id, name.epoch, 0)
            await inquiries.verify("job", mine, name.number)
            for epoch in (name.epoch + 1, EPOCH_MAX):
                with pytest.raises(ProducerFenced):
                    await inquiries.verify("job", mine._replace(epoch=epoch), name.number)
            for id_, producer, number in (
                ("another", mine, name.number),
                ("job", mine._replace(producer_id=name.producer_id + 16), name.number),
                ("job", mine, name.number + 1),
            ):
                with pytest.raises(TransactionNotFound):
                    await inquiries.verify(id_, producer, number)
