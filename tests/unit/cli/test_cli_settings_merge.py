"""Where a server's settings come from: flag, environment, file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rangelog_cli import servers
from rangelog_core.errors import ConfigInvalid


def test_flag_beats_environment_beats_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of the file is passed on only where neither a flag nor the environment has it."""
    config = tmp_path / "c.toml"
    config.write_text('name = "file"\nzone = "file"\ntoken = "file"\n')
    monkeypatch.setenv("RANGELOG_SERVER_ZONE", "env")
    found = servers.merge(config, {"name": "flag", "zone": None, "pd": []}, servers.SERVER_ENV_PREFIX)
    assert found == {"name": "flag", "token": "file"}


@pytest.mark.parametrize("content", [b"name = ", b"\xff\xfe", b"= 3"])
def test_file_that_is_not_toml_is_a_typed_error(tmp_path: Path, content: bytes) -> None:
    """Garbage instead of TOML is reported with the file's name."""
    config = tmp_path / "c.toml"
    config.write_bytes(content)
    with pytest.raises(ConfigInvalid, match=r"c\.toml"):
        servers.read_toml(config)


def test_members_are_parsed() -> None:
    """NAME=RAFT@API becomes what the settings class expects."""
    assert servers.parse_members(("pd1=h:1@h:2", "pd2=[::1]:3@[::1]:4")) == {
        "pd1": {"raft_address": "h:1", "api_address": "h:2"},
        "pd2": {"raft_address": "[::1]:3", "api_address": "[::1]:4"},
    }
