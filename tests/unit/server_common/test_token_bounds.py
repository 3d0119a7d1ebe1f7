"""Tokens at work in a server: bounds at the gate and the guard, keys that are fetched, and lines of the log."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from rangelog_core.errors import RightMissing, Unavailable
from rangelog_core.net.principals import Principal, Role
from rangelog_core.rights import EVERY_CLIENT, Verb, wire_verbs
from rangelog_core.tokens import Bounds
from rangelog_proto.v1 import rights_pb2
from rangelog_proto.v1 import tokens_pb2 as pb
from rangelog_server_common.rights.frame_gate import FrameGate
from rangelog_server_common.tokens import trust_keeper as module
from rangelog_server_common.tokens.trust_keeper import TrustKeeper
from rangelog_server_common.tokens.verifier import TokenPrincipal
from tests.unit.server_common.test_rights import STREAM, Driver, frame, make
from tests.unit.server_common.test_token_verifier import Verifying

READS, APPENDS = int(Verb.READ), int(Verb.APPEND)


def bound(verbs: Verb, name: str) -> TokenPrincipal:
    rule = rights_pb2.AccessRule(principal=EVERY_CLIENT, kind=STREAM, name=name, verbs=wire_verbs(verbs))
    return TokenPrincipal(Role.CLIENT, "a", bounds=Bounds([rule]), ends_s=1e12)


async def settled(waiting: list[Any]) -> None:
    async with asyncio.timeout(5):
        while not waiting:
            await asyncio.sleep(0)


async def test_the_gate_lets_a_bound_token_do_less_than_its_client() -> None:
    """The grant is the client's, the bounds are the token's; what is remembered of one is not taken for the other."""
    driver, again = Driver(), []
    driver.verbs = {("client:a", 1): Verb.READ | Verb.APPEND}  # of stream `s`
    guard = make(driver)
    gate = FrameGate(guard, again.append)
    for principal, reads, appends in (
        (bound(Verb.READ, "s"), True, False), (Principal(Role.CLIENT, "a"), True, True), (bound(Verb.READ, "x"), False, False),
    ):  # fmt: skip
        gate.admitted(principal)
        if not gate.passes(frame(1), READS, (STREAM, 1)) if reads else False:
            await settled(again)
        for verbs, passes in ((READS, reads), (APPENDS, appends), (READS, reads), (APPENDS, appends)):
            if passes:
                assert gate.passes(frame(2), verbs, (STREAM, 1))
            else:
                with pytest.raises(RightMissing, match="bound to other things"):
                    gate.passes(frame(2), verbs, (STREAM, 1))
        if not reads:
            with pytest.raises(RightMissing, match="bound to other things"):
                gate.still_passes(READS, (STREAM, 1))
    await guard.close()


async def test_a_bound_token_is_good_for_nothing_without_enforced_rights() -> None:
    """Nobody knows the names then; an unbound one passes, as a certificate does."""
    guard = make(Driver(), version=0)
    gate = FrameGate(guard, lambda again: None)
    gate.admitted(bound(Verb.READ, "s"))
    for work in (
        lambda: gate.passes(frame(1), READS, (STREAM, 1)),
        lambda: gate.still_passes(READS, (STREAM, 1)),
    ):
        with pytest.raises(RightMissing, match="pdctl acl enforce on"):
            work()
    assert not gate.is_open
    with pytest.raises(RightMissing, match="pdctl acl enforce on"):
        await guard.require(bound(Verb.READ, "s"), [(Verb.READ, STREAM, "s", 0)])
    gate.admitted(TokenPrincipal(Role.CLIENT, "a"))
    assert gate.passes(frame(1), READS, (STREAM, 1)) and gate.is_open
    await guard.require(TokenPrincipal(Role.CLIENT, "a"), [(Verb.READ, STREAM, "s", 0)])


async def test_calls_within_bounds() -> None:
    """The same for calls and REST, which ask by name."""
    driver = Driver()
    driver.verbs = {("client:a", 0): Verb.READ | Verb.APPEND}
    guard = make(driver)
    await guard.require(bound(Verb.READ, "s"), [(Verb.READ, STREAM, "s", 0)])
    with pytest.raises(RightMissing, match="bound to other things"):
        await guard.require(bound(Verb.READ, "s"), [(Verb.APPEND, STREAM, "s", 0)])
    await guard.close()


class Trusted:
    """A placement driver that tells what tokens are checked against."""

    def __init__(self, at: Verifying) -> None:
        self.at = at
        self.version = 1
        self.revoked: list[str] = []
        self.asked = 0
        self.error: Exception | None = None

    async def call(self, request: Any, response: Any, *, timeout_s: float, **_: Any) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        keys = [self.at.signer.public()]
        return pb.GetTokenTrustResponse(
            cluster_id=self.at.trust.cluster_id, version=self.version, keys=keys, revoked_ids=self.revoked
        )


async def test_keys_and_revocations_are_fetched_when_the_version_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each version; until the first answer nothing counts; failures leave what is known, and are tried again."""
    monkeypatch.setattr(module, "FETCH_AGAIN_S", 0.0)
    at = Verifying()
    pd, keeper = Trusted(at), TrustKeeper()
    keeper.heard(1)  # nobody can be asked yet
    keeper.pd = pd  # type: ignore[assignment]

    async def heard(version: int) -> None:
        keeper.heard(version)
        while keeper._task is not None:
            await asyncio.sleep(0)

    at.verifier._trust = keeper.now
    with pytest.raises(Unavailable):
        at.verifier.verify(at.text())
    await heard(1)
    assert at.verifier.verify(at.text()) and pd.asked == 1
    await heard(1)
    assert pd.asked == 1
    pd.error = Unavailable("away")
    keeper.heard(2)
    for _ in range(5):
        await asyncio.sleep(0)
    assert at.verifier.verify(at.text())
    pd.error, pd.version, pd.revoked = None, 2, ["0123456789abcdef"]
    await heard(2)
    at.refused(at.text(), "was revoked")
    await keeper.close()


@pytest.mark.parametrize("log_format", ["json", "logfmt"])
def test_no_line_of_a_log_has_a_signed_token(log_format: str) -> None:
    """Whoever logs it, whole or cut off in its last part, also inside a traceback."""
    text = Verifying().text()
    script = f"""
import logging, structlog
from rangelog_server_common.logging import log_to_stderr
log_to_stderr("pd", "pd1", log_format={log_format!r})
structlog.get_logger("x").info("asked", url="https://x?token={text}", header="Bearer {text}")
logging.getLogger("rangelog.pd").warning("cut off: %s", "{text[:-20]}")
try:
    raise ValueError("{text}")
except ValueError:
    structlog.get_logger("x").exception("failed")
from rangelog_server_common.recent_log import RECENT
print(RECENT.__dict__)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    header, claims, _ = text.split(".")
    assert done.stderr.count("***") >= 4
    for part in (header, claims):
        assert part not in done.stderr and part not in done.stdout
