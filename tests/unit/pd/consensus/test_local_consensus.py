"""LocalConsensus keeps the contract that the placement driver relies on."""

from __future__ import annotations

import pytest

from rangelog_core.errors import InvalidArgument, NotLeader, OutcomeUnknown, Unavailable
from rangelog_core.limits import COMMAND_BYTES_MAX
from rangelog_pd.consensus.interface import Consensus
from rangelog_pd.consensus.local import LocalConsensus
from tests.support.tape import Tape


async def test_proposals_are_applied_in_order_and_answered() -> None:
    """Each proposal answers what apply returned, and a barrier sees them all."""
    tape = Tape()
    local: Consensus = LocalConsensus(tape)
    await local.start()
    assert [await local.propose(c, timeout_s=1) for c in (b"a", b"b")] == [b"1", b"2"]
    assert await local.barrier(timeout_s=1) == 2
    assert tape.commands == [b"a", b"b"]
    assert local.status().has_majority and local.is_leader() and local.leader() == "local"


async def test_without_leadership_nothing_is_applied() -> None:
    """Another leader means NotLeader, none means Unavailable, and the state stays as it was."""
    tape = Tape()
    local = LocalConsensus(tape)
    local.set_leader("other")
    with pytest.raises(NotLeader):
        await local.propose(b"a", timeout_s=1)
    with pytest.raises(NotLeader):
        await local.barrier(timeout_s=1)
    local.set_leader(None)
    with pytest.raises(Unavailable):
        await local.propose(b"a", timeout_s=1)
    local.set_leader("local")
    await local.close()
    with pytest.raises(Unavailable):
        await local.propose(b"a", timeout_s=1)
    assert tape.commands == []


async def test_an_unknown_outcome_may_or_may_not_be_applied() -> None:
    """A test can lose the next outcome either way; the one after is known again."""
    tape = Tape()
    local = LocalConsensus(tape)
    local.lose_next_outcome(applied=True)
    with pytest.raises(OutcomeUnknown):
        await local.propose(b"a", timeout_s=1)
    local.lose_next_outcome(applied=False)
    with pytest.raises(OutcomeUnknown):
        await local.propose(b"b", timeout_s=1)
    assert await local.propose(b"c", timeout_s=1) == b"2"
    local.reload()
    assert tape.commands == [b"a", b"c"]


async def test_an_oversized_command_is_refused() -> None:
    """A command above the limit is InvalidArgument before anything happens."""
    tape = Tape()
    with pytest.raises(InvalidArgument):
        await LocalConsensus(tape).propose(bytes(COMMAND_BYTES_MAX + 1), timeout_s=1)
    assert tape.commands == []
