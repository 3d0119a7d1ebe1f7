"""Grants, the guard that asks for them, and the gate of a connection: on a placement driver of the test."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from rangelog_core.errors import RightMissing, Unavailable
from rangelog_core.frame import Frame, Opcode
from rangelog_core.net.principals import Principal, Role
from rangelog_core.rights import KINDS, NONE, Verb, wire_verbs
from rangelog_proto.v1 import rights_pb2 as pb
from rangelog_server_common.rights import grants as module
from rangelog_server_common.rights.frame_gate import FrameGate
from rangelog_server_common.rights.grants import GRANT_LIFETIME_S, RENEW_AFTER_S, Grant, Grants
from rangelog_server_common.rights.guard import RightsGuard

STREAM, TOPIC = KINDS["stream"], KINDS["topic"]
KEY = ("client:a", int(STREAM), "", 1)
READ = Grant(Verb.READ, STREAM, "s")
ALICE = Principal(Role.CLIENT, "a")


class Driver:
    """Answers by `verbs`, once `answers` is set; raises `error` where that is set."""

    def __init__(self) -> None:
        self.verbs: dict[tuple[str, int], Verb] = {}
        self.version = 1
        self.error: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked: list[tuple[str, list[int]]] = []

    async def call(self, request: Any, response: Any, *, timeout_s: float, **_: Any) -> Any:
        ids = [each.id for each in request.resources]
        self.asked.append((request.principal, ids))
        version = self.version
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        given = [self.verbs.get((request.principal, number), NONE) for number in ids]
        return pb.CheckRightsResponse(
            grants=[
                pb.AccessGrant(verbs=wire_verbs(verbs), resource=pb.AccessResource(kind=STREAM, name="s"))
                for verbs in given
            ],
            version=version,
        )


def make(driver: Driver, version: int = 1) -> RightsGuard:
    guard = RightsGuard()
    guard.pd = driver  # type: ignore[assignment]
    guard.heard(version)
    return guard


def frame(number: int, payload: bytes = b"") -> Frame:
    return Frame(Opcode.FETCH, number, b"", payload)


def test_a_grant_counts_for_its_version_and_its_time() -> None:
    """Any other version ends it, a higher and a lower one; so does its age."""
    grants = Grants()
    grants.heard(5)
    assert grants.keep(KEY, READ, 5, 100.0)
    assert grants.find(KEY, 100.0 + GRANT_LIFETIME_S - 1) == READ
    assert grants.find(KEY, 100.0 + GRANT_LIFETIME_S) is None
    assert not grants.is_old(KEY, 100.0 + RENEW_AFTER_S - 1) and grants.is_old(KEY, 100.0 + RENEW_AFTER_S)
    assert grants.find(("client:b", *KEY[1:]), 100.0) is None
    assert grants.find((*KEY[:3], 2), 100.0) is None
    grants.heard(6)
    assert grants.find(KEY, 100.0) is None
    assert not grants.keep(KEY, READ, 5, 100.0) and grants.find(KEY, 100.0) is None
    assert grants.keep(KEY, READ, 7, 100.0) and grants.version == 7


def test_the_number_of_grants_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes."""
    monkeypatch.setattr(module, "GRANTS_MAX", 3)
    grants = Grants()
    grants.heard(1)
    for number in range(5):
        grants.keep((*KEY[:3], number), READ, 1, 0.0)
    assert len(grants) == 3
    assert [grants.find((*KEY[:3], number), 0.0) is not None for number in range(5)] == [False, False, True, True, True]


async def test_nobody_is_asked_where_rights_are_not_enforced_or_do_not_limit() -> None:
    """Servers, administrators, and everybody while the version is 0, pass at once."""
    driver = Driver()
    guard = make(driver, version=0)
    await guard.require(ALICE, [(Verb.READ, STREAM, "s", 0)])
    guard.heard(1)
    for principal in (None, Principal(Role.ADMIN, "a"), Principal(Role.BROKER, "a"), Principal(Role.RANGE_SERVER, "a")):
        await guard.require(principal, [(Verb.READ, STREAM, "s", 0)])
        gate = FrameGate(guard, lambda again: None)
        gate.admitted(principal)
        assert gate.passes(frame(1), Verb.READ, (STREAM, 1))
    assert not driver.asked


async def test_a_closed_gate_holds_no_connection() -> None:
    """In a circle with its gate a connection would keep its buffers until the collector comes by: a server grows by that."""

    class Connection:
        def __init__(self) -> None:
            self.gate = FrameGate(make(Driver()), self.handle)

        def handle(self, frame: Frame) -> None:
            """Nothing."""

    gc.disable()
    try:
        connection = Connection()
        still_there = weakref.ref(connection)
        connection.gate.close()
        del connection
        assert still_there() is None
    finally:
        gc.enable()


async def test_frames_wait_in_order_by_what_they_concern() -> None:
    """Those of a stream that is known pass those that wait; one call brings the grants of one turn."""
    driver = Driver()
    driver.verbs = {("client:a", 1): Verb.READ, ("client:a", 2): Verb.READ}
    guard, handled = make(driver), []

    def handle(got: Frame) -> None:
        stream = got.request_id // 10
        if gate.passes(got, Verb.READ, (STREAM, stream)):
            handled.append(got.request_id)

    gate = FrameGate(guard, handle)
    gate.admitted(ALICE)
    driver.answers.clear()
    for number in (10, 20, 11):
        handle(frame(number))
    assert handled == []
    driver.answers.set()
    await guard.require(ALICE, [(Verb.READ, STREAM, "", 1), (Verb.READ, STREAM, "", 2)])
    assert handled == [10, 11, 20] and driver.asked == [("client:a", [1, 2])]
    driver.answers.clear()
    for number in (30, 12, 31):
        handle(frame(number))
    assert handled == [10, 11, 20, 12]
    await guard.close()


async def test_what_is_lacking_is_refused_and_so_is_what_cannot_be_asked() -> None:
    """A refusal names the right; without a placement driver nothing is let through, and soon asked for again."""
    driver = Driver()
    driver.verbs = {("client:a", 1): Verb.READ}
    guard = make(driver)
    with pytest.raises(RightMissing, match="client:a may not append stream 's'"):
        await guard.require(ALICE, [(Verb.APPEND, STREAM, "", 1)])
    with pytest.raises(RightMissing):
        await guard.require(Principal(Role.CLIENT, "b"), [(Verb.READ, STREAM, "", 1)])
    driver.error = Unavailable("nobody leads")
    with pytest.raises(Unavailable, match="what client:a may do: nobody leads"):
        await guard.require(ALICE, [(Verb.READ, STREAM, "", 7)])
    await guard.require(ALICE, [(Verb.READ, STREAM, "", 1)])  # known before
    guard.heard(2)
    with pytest.raises(Unavailable):
        await guard.require(ALICE, [(Verb.READ, STREAM, "", 1)])
    await guard.close()


@pytest.mark.parametrize("version", [0, 4])
async def test_before_the_version_is_known_the_first_client_waits_for_it(version: int) -> None:
    """Also where rights are not enforced; without an answer nobody passes."""
    driver = Driver()
    driver.version, driver.error = version, Unavailable("nobody leads")
    guard = make(driver, version=0)
    guard.begin_unknown()
    with pytest.raises(Unavailable):
        await guard.require(ALICE, [(Verb.READ, STREAM, "", 1)])
    driver.error = None
    if version:
        with pytest.raises(RightMissing):
            await guard.require(ALICE, [(Verb.READ, STREAM, "", 2)])
    else:
        await guard.require(ALICE, [(Verb.READ, STREAM, "", 2)])
    assert guard.grants.version == version
    await guard.close()


async def test_an_answer_from_before_a_revocation_is_not_believed() -> None:
    """It was asked before, and comes after: it is asked again."""
    driver = Driver()
    driver.verbs = {("client:a", 1): Verb.READ}
    guard = make(driver)
    driver.answers.clear()
    waiting = asyncio.create_task(guard.require(ALICE, [(Verb.READ, STREAM, "", 1)]))
    while not driver.asked:
        await asyncio.sleep(0)
    guard.heard(2)
    driver.verbs, driver.version = {}, 2
    driver.answers.set()
    with pytest.raises(RightMissing):
        await waiting
    assert len(driver.asked) == 2


async def test_a_connection_that_was_let_through_is_not_for_ever() -> None:
    """Another verb is not let through by what is known of the first, and a revocation counts for the next frame."""
    driver = Driver()
    driver.verbs = {("client:a", 1): Verb.READ}
    guard = make(driver)
    gate = FrameGate(guard, lambda again: None)
    gate.admitted(ALICE)
    await guard.require(ALICE, [(Verb.READ, STREAM, "", 1)])
    for number in (1, 2):
        assert gate.passes(frame(number), int(Verb.READ), (STREAM, 1))
        with pytest.raises(RightMissing):
            gate.passes(frame(number), int(Verb.APPEND), (STREAM, 1))
    driver.verbs, driver.version = {}, 2
    guard.heard(2)
    assert not gate.passes(frame(3), int(Verb.READ), (STREAM, 1))
    with pytest.raises(RightMissing):
        await guard.require(ALICE, [(Verb.READ, STREAM, "", 1)])
    await guard.close()


async def test_a_follower_ends_when_its_right_is_gone() -> None:
    """`still_passes` asks again after a change, and then refuses."""
    driver = Driver()
    driver.verbs = {("client:a", 1): Verb.READ}
    guard = make(driver)
    gate = FrameGate(guard, lambda again: None)
    gate.admitted(ALICE)
    await guard.require(ALICE, [(Verb.READ, STREAM, "", 1)])
    assert gate.still_passes(Verb.READ, (STREAM, 1))
    driver.verbs, driver.version = {}, 2
    guard.heard(2)
    assert not gate.still_passes(Verb.READ, (STREAM, 1))
    with pytest.raises(RightMissing):
        await guard.require(ALICE, [(Verb.READ, STREAM, "", 1)])
    with pytest.raises(RightMissing):
        gate.still_passes(Verb.READ, (STREAM, 1))
