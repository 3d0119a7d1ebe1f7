"""Where a stream ends, proved by asking the replicas of its open range."""

from __future__ import annotations

import pytest

from rangelog._hot import HotRange
from rangelog._transport.data_connection import DataConnections
from rangelog.errors import Unavailable
from rangelog_proto.v1 import common_pb2, data_pb2


def hot_range(monkeypatch: pytest.MonkeyPatch, *rounds: list[tuple[int, int]]) -> HotRange:
    """A range of three replicas that answer, round after round, with these confirm and durable offsets."""
    replicas = [common_pb2.Replica(server=f"rs{number}", incarnation=1) for number in (1, 2, 3)]
    made = HotRange(DataConnections(), common_pb2.Range(stream_id=1, acks=2, replicas=replicas))
    answers = list(rounds)

    async def ask_all(self: HotRange) -> list[data_pb2.FetchReply]:
        told = answers.pop(0) if len(answers) > 1 else answers[0]
        return [data_pb2.FetchReply(confirm_offset=confirm, durable_offset=durable) for confirm, durable in told]

    async def at_once(attempt: int) -> None:
        pass

    monkeypatch.setattr(HotRange, "ask_all", ask_all)
    monkeypatch.setattr("rangelog._hot.backoff", at_once)
    return made


async def test_one_answer_is_not_believed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica alone may not have heard of the last acks: the others are asked again, and what two of them hold counts."""
    end = await hot_range(monkeypatch, [(95, 100)], [(95, 100), (95, 100)]).proved_end()
    assert (end.offset, end.exact) == (100, False)


async def test_all_answers_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every replica heard, the end is what two of them hold."""
    end = await hot_range(monkeypatch, [(5, 7), (5, 6), (5, 5)]).proved_end()
    assert (end.offset, end.exact) == (6, True)


async def test_when_the_others_stay_silent_the_confirmed_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some tries what one replica knows to be acked is all that is known; nobody at all is an error."""
    end = await hot_range(monkeypatch, [(95, 100)]).proved_end()
    assert (end.offset, end.exact) == (95, False)
    with pytest.raises(Unavailable):
        await hot_range(monkeypatch, []).proved_end()


async def test_a_confirm_offset_that_nobody_holds_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody told one replica that offsets are acked which were never written: the end is what is held."""
    end = await hot_range(monkeypatch, [(195, 100), (100, 100), (100, 100)]).proved_end()
    assert (end.offset, end.exact) == (100, True)
    end = await hot_range(monkeypatch, [(195, 100), (95, 95)]).proved_end()
    assert (end.offset, end.exact) == (100, False)
