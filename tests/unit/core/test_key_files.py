"""Which modes of a file with a key leave it to its program alone."""

from __future__ import annotations

import os

import pytest

from rangelog_core.key_files import is_open_to_others

OWN, ROOT, ANOTHER = 10_001, 0, 20_000


@pytest.mark.parametrize(
    ("user", "owner", "mode", "is_open"),
    [
        (OWN, OWN, 0o600, False),
        (OWN, OWN, 0o640, True),
        (OWN, OWN, 0o604, True),
        (OWN, ROOT, 0o440, False),  # a Secret in a pod
        (OWN, ROOT, 0o444, True),
        (OWN, ROOT, 0o460, True),
        (OWN, ROOT, 0o450, True),
        (OWN, ANOTHER, 0o440, True),
        (ROOT, ROOT, 0o440, True),
        (ROOT, ROOT, 0o400, False),
    ],
)
def test_who_may_use_a_key(user: int, owner: int, mode: int, is_open: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner alone; a file of root's also the group of a program that is not root's."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    told = os.stat_result((0o100000 | mode, 1, 1, 1, owner, 10_001, 32, 0, 0, 0))
    assert is_open_to_others(told) is is_open
