"""`pdctl server check-impact --wait`: what a pod does before it stops. It asks until the answer is yes, or its time is over."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from pdctl.server_waiting import wait_until_safe
from rangelog_core.errors import InvalidArgument, RangelogError, Unavailable
from rangelog_proto.v1 import operations_pb2
from tests.support.pd_calls import CallsByName


class Answers(CallsByName):
    """A placement driver with a list of answers, the last of which it repeats; a clock that only sleeping moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: bool | RangelogError) -> None:
        self.left = list(answers)
        self.asked = 0
        self.now_s = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def check_impact(self, _request: Any, *, timeout_s: float) -> operations_pb2.CheckImpactResponse:
        assert timeout_s > 0
        self.asked += 1
        answer = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if isinstance(answer, RangelogError):
            raise answer
        return operations_pb2.CheckImpactResponse(safe=answer)

    async def _sleep(self, delay_s: float) -> None:
        self.now_s += delay_s

    def wait(self, wait_s: float) -> bool:
        request = operations_pb2.CheckImpactRequest(names=["rs1"])
        steps = wait_until_safe(self, request, 10.0, wait_s)  # type: ignore[arg-type]
        try:
            steps.send(None)
        except StopIteration as done:
            return bool(done.value.safe)
        raise AssertionError("it waits for something else than the clock")


def test_a_yes_ends_the_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a pause."""
    answers = Answers(monkeypatch, True)
    assert answers.wait(240) and answers.asked == 1 and answers.now_s == 100


def test_it_asks_until_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A placement driver that is away meanwhile is a no."""
    answers = Answers(monkeypatch, False, Unavailable("no leader"), False, True)
    assert answers.wait(240) and answers.asked == 4 and answers.now_s < 110


def test_the_wait_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last answer is the result."""
    answers = Answers(monkeypatch, False)
    assert not answers.wait(30) and answers.now_s == 130 and answers.asked < 30


def test_without_wait_it_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before there was a wait."""
    answers = Answers(monkeypatch, False)
    assert not answers.wait(0) and answers.asked == 1


def test_nobody_who_answers_is_an_error_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a no: nobody has said so."""
    answers = Answers(monkeypatch, Unavailable("no leader"))
    with pytest.raises(Unavailable):
        answers.wait(5)
    assert answers.now_s == 105


def test_a_wrong_question_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time does not mend it."""
    answers = Answers(monkeypatch, InvalidArgument("no such server"))
    with pytest.raises(InvalidArgument):
        answers.wait(240)
    assert answers.asked == 1
