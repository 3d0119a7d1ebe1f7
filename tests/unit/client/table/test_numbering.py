"""The numbers of commands: one command, one number, whatever becomes of the batches."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rangelog._table import numbering
from rangelog._table.numbering import Batch, Numbering, QueuedCommand
from rangelog.errors import Overloaded, RangelogError, SessionExpired, Unavailable
from rangelog_proto.v1 import table_pb2
from rangelog_proto.v1 import table_service_pb2 as pb


def queued(results: list[Any], name: bytes = b"k") -> QueuedCommand:
    message = table_pb2.TableCommand(writes=[table_pb2.TableWrite(key=name, value=b"v")])
    return QueuedCommand(message, results.append)


def outcomes(batch: Batch, code: str = "") -> list[pb.TableOutcome]:
    return [pb.TableOutcome(version=1, error_code=code) for _ in batch.commands]


def sent(made: Numbering) -> Batch:
    batch = made.next_batch()
    assert batch is not None
    return batch


def test_nothing_is_sent_without_a_session() -> None:
    """Whose number may be 0."""
    made, results = Numbering(), list[Any]()
    made.add(queued(results))
    assert made.has_work and made.next_batch() is None
    made.opened(0)
    assert [command.sequence for command in sent(made).commands] == [0]


def test_an_overloaded_owner_gets_the_same_numbers_again() -> None:
    """And a later command the next one."""
    made, results = Numbering(), list[Any]()
    made.opened(7)
    for _ in range(2):
        made.add(queued(results))
    batch = sent(made)
    assert not made.answered(batch, outcomes(batch, "OVERLOADED"), tries=1)
    made.add(queued(results))
    assert [command.sequence for command in sent(made).commands] == [0, 1, 2]
    assert not results


def test_a_command_that_may_have_arrived_is_not_numbered_anew() -> None:
    """Overloaded at its second try, and the session expired meanwhile: its outcome is unknown."""
    made, results = Numbering(), list[Any]()
    made.opened(7)
    made.add(queued(results))
    batch = sent(made)
    made.answered(batch, outcomes(batch, "OVERLOADED"), tries=2)
    made.opened(8)
    assert made.next_batch() is None
    (error,) = results
    assert isinstance(error, SessionExpired) and error.outcome_unknown


def test_the_outcome_of_what_was_never_sent_is_known() -> None:
    """Of everything else it is not, once nobody answers."""
    made, results = Numbering(), list[Any]()
    made.opened(7)
    made.add(queued(results))
    made.failed(sent(made), Unavailable("nobody"), tries=0)
    made.add(queued(results))
    made.failed(sent(made), Unavailable("nobody"), tries=1)
    made.add(queued(results))
    made.failed_all(Unavailable("no session"))
    assert [each.outcome_unknown for each in results] == [False, True, False]


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By number and by bytes."""
    monkeypatch.setattr(numbering, "QUEUE_BYTES_MAX", 30)
    made, results = Numbering(), list[Any]()
    for _ in range(3):
        made.add(queued(results))
    with pytest.raises(Overloaded):
        made.add(queued(results))


@pytest.mark.parametrize("seed", range(40))
def test_walks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command is resolved once; a number is one command's; what is settled is resolved; the window holds."""
    monkeypatch.setattr(numbering, "WINDOW", 8)
    monkeypatch.setattr(numbering, "BATCH_COMMANDS_MAX", 3)
    rng, made = random.Random(seed), Numbering()
    results: dict[int, list[Any]] = {}
    commands: list[QueuedCommand] = []
    used: dict[tuple[int, int], QueuedCommand] = {}
    under_way: list[Batch] = []
    session = 0
    for step in range(300):
        kind = rng.choice(
            ["add", "add", "send", "send", "answer", "answer", "fail", "overloaded", "expired", "give up"]
        )
        if kind == "add" and step < 250:
            command = queued(results.setdefault(len(commands), []))
            commands.append(command)
            made.add(command)
        elif kind == "send":
            if made.session is None:
                session += 1
                made.opened(session)
            batch = made.next_batch()
            if batch is not None:
                under_way.append(batch)
                for each in batch.commands:
                    assert used.setdefault((batch.session, each.sequence), each) is each
                    assert each.sequence >= batch.settled
                    assert each.sequence - batch.settled < 8
                for (of, number), each in used.items():
                    assert of != batch.session or number >= batch.settled or each.resolved
        elif kind == "give up" and commands:
            made.give_up(rng.choice(commands), 1)
        elif under_way:
            batch = under_way.pop(rng.randrange(len(under_way)))
            if kind == "fail":
                made.failed(batch, Unavailable("nobody"), tries=1)
            else:
                code = {"overloaded": "OVERLOADED", "expired": "SESSION_EXPIRED"}.get(kind, "")
                made.answered(batch, outcomes(batch, code), tries=rng.randint(1, 2))
        assert all(len(each) <= 1 for each in results.values())
    for batch in under_way:
        made.answered(batch, outcomes(batch), tries=1)
    made.opened(session + 1)
    while (batch := made.next_batch()) is not None:
        made.answered(batch, outcomes(batch), tries=1)
    assert all(len(each) == 1 for each in results.values())
    assert all(isinstance(each[0], table_pb2.TableResult | RangelogError) for each in results.values())
