"""Settings of a placement driver: one line that names the key for whatever is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rangelog_core.repack_choice import RepackRules
from rangelog_pd.settings import PdSettings

MEMBERS = {name: {"raft_address": f"{name}:1", "api_address": f"{name}:2"} for name in ("pd1", "pd2", "pd3")}
GOOD: dict[str, Any] = {"name": "pd1", "data_dir": Path("x"), "members": MEMBERS, "raft_secret": "long enough"}


def test_the_good_ones_are_taken() -> None:
    """Name, directory, members and secret are enough."""
    settings = PdSettings(**GOOD)
    assert (settings.api_address, settings.server_suspect_ms, settings.server_dead_ms) == ("pd1:2", 1_500, 5_000)
    assert settings.delete_grace_ms == 600_000


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"name": "pd9"}, "not among the members"),
        ({"members": {}}, "no members"),
        ({"members": {name: MEMBERS[name] for name in ("pd1", "pd2")}}, "1, 3 or 5"),
        ({"raft_secret": ""}, "raft_secret"),
        ({"server_dead_ms": 1_000}, "server_dead_ms"),
        ({"heartbeat_interval_ms": 1}, "heartbeat_interval_ms"),
        ({"members": {"pd1": {"raft_address": "x:1"}}}, "api_address"),
        ({"members": {"pd1": {"raft_address": "127.0.0.1", "api_address": "x:2"}}}, "members.pd1.raft_address"),
        ({"members": {"pd1": {"raft_address": "x:1", "api_address": "nohost"}}}, "members.pd1.api_address"),
        ({"listen": "nohost"}, "listen"),
        ({"repack_target_bytes": 1_000}, "repack_target_bytes must be 0"),
        ({"repack_target_bytes": 1 << 40}, "repack_target_bytes"),
        ({"repack_trimmed_fraction": 0.0}, "repack_trimmed_fraction"),
        ({"repack_concurrency": 0}, "repack_concurrency"),
    ],
)
def test_bad_ones_are_refused_by_name(changes: dict[str, Any], said: str) -> None:
    """An unknown key, a missing part or a value out of bounds is refused, and said which."""
    with pytest.raises(ValidationError, match=said):
        PdSettings(**(GOOD | changes))


def test_repacks_are_on_unless_they_are_switched_off() -> None:
    """With the documented defaults."""
    assert PdSettings(**GOOD).repack_rules == RepackRules(256 * 1024 * 1024, 3_600_000, 0.5)
    assert not PdSettings(**GOOD, repack_target_bytes=0).repack_rules.target_bytes


def test_secrets_are_not_printed() -> None:
    """Neither token nor Raft secret show in logs or tracebacks."""
    shown = repr(PdSettings(**GOOD, token="hush-hush"))
    assert "hush-hush" not in shown
    assert "long enough" not in shown
