"""Settings of a placement driver: one line that names the key for whatever is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rangelog_core.repack_choice import RepackRules
from rangelog_pd.consensus.rules.timings import ELECTION_MS_MIN, Timings
from rangelog_pd.runtime import Runtime
from rangelog_pd.settings import MemberSettings, PdSettings
from rangelog_pd.state.machine import Machine

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
        ({"election_ms_min": 499}, "election_ms_min"),
        ({"election_ms_max": 60_001}, "election_ms_max"),
        ({"election_ms_min": 1_000}, "election_ms_max must be more"),
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


def test_election_times_become_those_of_raft() -> None:
    """The defaults are those of a group without settings. A leader gives up, and a silent connection ends, no earlier than the
    longest time-out; the heartbeat stays as other members expect it.
    """
    assert PdSettings(**GOOD).timings == Timings()
    slow = PdSettings(**GOOD, election_ms_min=5_000, election_ms_max=8_000).timings
    assert (slow.election_min_s, slow.election_max_s, slow.leader_fallback_s, slow.connection_silent_s) == (5, 8, 8, 8)
    assert slow.heartbeat_s == Timings().heartbeat_s < ELECTION_MS_MIN / 1000 / 3


async def test_the_process_gives_them_to_its_raft(tmp_path: Path) -> None:
    """What the settings say is what a member of a group with others runs by; a member that is alone waits for nobody."""
    members = {"pd1": MemberSettings(raft_address="127.0.0.1:0", api_address="127.0.0.1:0")}
    others = {name: MemberSettings(raft_address="127.0.0.1:1", api_address="127.0.0.1:2") for name in ("pd2", "pd3")}
    times: dict[str, Any] = {"election_ms_min": 40_000, "election_ms_max": 50_000}
    for group, election_s in ((members | others, (40.0, 50.0)), (members, (0.04, 0.05))):
        made = PdSettings(
            name="pd1", data_dir=tmp_path / str(len(group)), members=group, raft_secret="long enough", **times
        )
        consensus = await Runtime(made)._consensus(Machine(), None)
        await consensus.start()
        try:
            raft: Any = consensus._raft
            assert (raft.conf.raftMinTimeout, raft.conf.raftMaxTimeout) == election_s
        finally:
            await consensus.close()
