"""The target of journals reaches what it is for: commands that are carried out, before and behind a level."""

from __future__ import annotations

from rangelog_broker.journal.entry import Command
from rangelog_broker.journal.fold import Fold
from rangelog_broker.kinds import coordinator_machine
from tests.fuzz.fuzz_targets_journals import entries, run, seeds


def test_the_seeds_are_carried_out_and_open_again() -> None:
    """Each command of the session is taken; the next owner has the state of each seed."""
    fold = Fold(coordinator_machine(0))
    for offset, entry in enumerate(entries()):
        result = fold.apply(offset, entry)
        if isinstance(entry, Command):
            assert result is not None and not result.error_code, (offset, result)
    assert all(map(run, seeds()))
