"""Where an open range ends for a reader: what its replicas say, what its writer says, what the placement driver arbitrates."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from rangelog._read.hot import HotRange
from rangelog._read.proof import proved_end
from rangelog.protocol.proof import Told, weigh
from rangelog_core.errors import RangelogError, RangeNotFound, Unavailable
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import DataConnections, replica_id
from rangelog_proto.v1 import common_pb2

OPEN, SEALED = common_pb2.RANGE_STATE_OPEN, common_pb2.RANGE_STATE_SEALED
IDS = [replica_id(f"rs{number}", 1) for number in (1, 2, 3)]


class FakeMetadata:
    """A placement driver that takes every proof for one range, unless `answer` says otherwise."""

    def __init__(self, source: common_pb2.Range) -> None:
        self.source = source
        self.answer: common_pb2.Range | RangelogError | None = None
        self.asked: list[tuple[int, tuple[ReplicaId, ...]]] = []

    async def prove_end(
        self, source: common_pb2.Range, end_offset: int, holders: tuple[ReplicaId, ...], timeout_s: float
    ) -> common_pb2.Range:
        """As Metadata."""
        self.asked.append((end_offset, tuple(holders)))
        if isinstance(self.answer, RangelogError):
            raise self.answer
        if self.answer is not None:
            return self.answer
        self.source.floor_offset = max(self.source.floor_offset, end_offset)
        return self.source


class Case:
    """A range of three replicas that answer, round after round, with these confirm and durable offsets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *rounds: list[tuple[int, int]]) -> None:
        replicas = [common_pb2.Replica(server=each.server, incarnation=1) for each in IDS]
        self.source = common_pb2.Range(stream_id=1, acks=2, replicas=replicas, state=OPEN)
        self.hot = HotRange(DataConnections(), self.source)
        self.metadata: Any = FakeMetadata(self.source)
        self.writer_says: int | None = None  # what replicas hear when they ask for the confirm offset
        self.sealed: int | None = None
        answers = list(rounds)

        async def ask_all(_: HotRange) -> list[Told]:
            told = answers.pop(0) if len(answers) > 1 else answers[0]
            return [
                Told(each, durable, confirm, self.sealed) for each, (confirm, durable) in zip(IDS, told, strict=False)
            ]

        def wait_confirmed(_: HotRange, confirm: int, wait_ms: int) -> list[Coroutine[Any, Any, Told | None]]:
            async def wait(replica: ReplicaId) -> Told | None:
                return None if self.writer_says is None else Told(replica, confirm, self.writer_says)

            return [wait(replica) for replica in IDS]

        async def at_once(attempt: int) -> None:
            pass

        monkeypatch.setattr(HotRange, "ask_all", ask_all)
        monkeypatch.setattr(HotRange, "wait_confirmed", wait_confirmed)
        monkeypatch.setattr("rangelog._read.proof.backoff", at_once)

    async def end(self) -> tuple[int, bool]:
        """The proved end, and whether it is exact."""
        proved = await proved_end(self.hot, self.metadata)
        return proved.offset, proved.exact


async def test_one_answer_is_not_believed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica alone may not have heard of the last acks: the others are asked again, and what two of them hold counts."""
    case = Case(monkeypatch, [(95, 100)], [(95, 100), (95, 100)])
    assert await case.end() == (100, False)
    assert case.metadata.asked == [(100, tuple(IDS[:2]))]


async def test_what_a_quorum_holds_is_arbitrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every replica heard and a silent writer, the placement driver puts a floor under what two of them hold."""
    case = Case(monkeypatch, [(5, 7), (5, 6), (5, 5)])
    assert await case.end() == (6, True)
    assert case.metadata.asked == [(6, (IDS[0], IDS[1]))]


async def test_a_writer_that_answers_costs_the_placement_driver_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replicas hear the confirm offset from the writer: that is proof enough."""
    case = Case(monkeypatch, [(5, 7), (5, 6), (5, 5)])
    case.writer_says = 6
    assert await case.end() == (6, True)
    assert case.metadata.asked == []


async def test_what_is_confirmed_needs_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """When nothing is held beyond the confirm offset nobody is asked anything."""
    case = Case(monkeypatch, [(6, 7), (5, 6), (5, 5)])
    assert await case.end() == (6, True)
    assert case.metadata.asked == []


async def test_a_floor_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was proved to one reader is proved to the next, which asks the placement driver nothing."""
    case = Case(monkeypatch, [(5, 7), (5, 6), (5, 5)])
    case.source.floor_offset = 6
    assert await case.end() == (6, True)
    assert case.metadata.asked == []


async def test_a_seal_that_went_first_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The range was sealed at less than two replicas hold: that is its end, and nothing beyond it is shown."""
    case = Case(monkeypatch, [(5, 7), (5, 6), (5, 5)])
    case.metadata.answer = common_pb2.Range(stream_id=1, state=SEALED, end_offset=5)
    assert await case.end() == (5, True)


async def test_a_sealed_end_that_a_replica_tells_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that knows the committed end is right about it, whatever others hold."""
    case = Case(monkeypatch, [(5, 7), (5, 6), (5, 5)])
    case.sealed = 5
    assert await case.end() == (5, True)
    assert case.metadata.asked == []


@pytest.mark.parametrize("silent_writer_and", [Unavailable("no leader"), RangelogError("of a newer version")])
async def test_without_arbitration_only_the_confirmed_is_believed(
    monkeypatch: pytest.MonkeyPatch, silent_writer_and: RangelogError
) -> None:
    """No writer and no placement driver: what is held may still be cut by a seal, so it is not shown."""
    case = Case(monkeypatch, [(5, 7), (5, 6), (5, 5)])
    case.metadata.answer = silent_writer_and
    assert await case.end() == (5, False)


async def test_a_range_that_is_gone_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range that was trimmed or deleted meanwhile is not taken for an empty one."""
    case = Case(monkeypatch, [(5, 7), (5, 6), (5, 5)])
    case.metadata.answer = RangeNotFound("it was trimmed")
    with pytest.raises(RangeNotFound):
        await case.end()


async def test_when_the_others_stay_silent_the_confirmed_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some tries what one replica knows to be acked is all that is known; nobody at all is an error."""
    assert await Case(monkeypatch, [(95, 100)]).end() == (95, False)
    with pytest.raises(Unavailable):
        await Case(monkeypatch, []).end()


async def test_a_confirm_offset_that_nobody_holds_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody told one replica that offsets are acked which were never written: the end is what is held."""
    assert await Case(monkeypatch, [(195, 100), (100, 100), (100, 100)]).end() == (100, True)
    assert await Case(monkeypatch, [(195, 100), (95, 95)]).end() == (100, False)


def test_a_replica_in_doubt_makes_no_end_exact() -> None:
    """Its tail was cut: an ack may have been there and on one more replica, of which nobody heard. What it holds counts."""
    told = [Told(IDS[0], 1, 0), Told(IDS[1], 0, 0, doubtful=True), Told(IDS[2], 0, 0)]
    evidence = weigh(told, replicas=3, acks=2, start_offset=0, floor_offset=0)
    assert (evidence.held_offset, evidence.complete) == (0, False)
    told = [Told(IDS[1], 0, 0, doubtful=True), Told(IDS[2], 0, 1)]
    assert weigh(told, replicas=3, acks=2, start_offset=0, floor_offset=0).confirmed_offset == 1
    told = [Told(IDS[0], 3, 0), Told(IDS[1], 2, 0, doubtful=True)]
    assert weigh(told, replicas=3, acks=2, start_offset=0, floor_offset=0).held_offset == 2


def test_evidence_names_who_holds_it() -> None:
    """The holders of what A replicas hold are those that hold all of it; a floor counts as confirmed."""
    told = [Told(IDS[0], 9, 4), Told(IDS[1], 8, 4), Told(IDS[2], 5, 4)]
    evidence = weigh(told, replicas=3, acks=2, start_offset=0, floor_offset=0)
    assert (evidence.confirmed_offset, evidence.held_offset, evidence.holders) == (4, 8, (IDS[0], IDS[1]))
    evidence = weigh(told, replicas=3, acks=2, start_offset=0, floor_offset=9)
    assert (evidence.confirmed_offset, evidence.held_offset) == (9, 9)
