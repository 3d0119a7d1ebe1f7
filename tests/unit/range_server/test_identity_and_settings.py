"""The data directory's identity and the settings of a range server."""

from __future__ import annotations

from pathlib import Path

import pytest

from rangelog_core.errors import ConfigInvalid, Corruption, PreconditionFailed, Unavailable
from rangelog_server.identity import DataDirectory
from rangelog_server.settings import RangeServerSettings
from rangelog_server_common.settings import load_settings


def test_identity_stays_and_boot_rises(tmp_path: Path) -> None:
    """Each start has the same incarnation and a higher boot; the directory is for its owner only."""
    home = tmp_path / "rs1"
    boots = []
    for _ in range(3):
        directory = DataDirectory(home)
        boots.append(directory.boot("rs1"))
        directory.close()
    assert len({one.incarnation for one in boots}) == 1
    assert boots[0].incarnation > 0
    assert [one.boot for one in boots] == [1, 2, 3]
    assert home.stat().st_mode & 0o777 == 0o700


def test_directory_is_locked(tmp_path: Path) -> None:
    """A second process is refused while the first lives."""
    directory = DataDirectory(tmp_path)
    with pytest.raises(PreconditionFailed, match="another process"):
        DataDirectory(tmp_path)
    directory.close()
    DataDirectory(tmp_path).close()


def test_foreign_damaged_and_unusable_directories(tmp_path: Path) -> None:
    """Another server's directory, a damaged identity and a file in its place are typed errors."""
    directory = DataDirectory(tmp_path / "rs1")
    directory.boot("rs1")
    with pytest.raises(ConfigInvalid, match="belongs to range server 'rs1'"):
        directory.boot("rs2")
    (tmp_path / "rs1" / "identity.json").write_text("{")
    with pytest.raises(Corruption, match="damaged"):
        directory.boot("rs1")
    directory.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="cannot be used"):
        DataDirectory(tmp_path / "file")


def test_log_without_identity_is_set_aside(tmp_path: Path) -> None:
    """A log whose identity is gone is another's: it is moved away, never taken over."""
    directory = DataDirectory(tmp_path)
    first = directory.boot("rs1")
    (directory.log_directory / "wal-0000000000000001.seg").write_bytes(b"x")
    (tmp_path / "identity.json").unlink()
    second = directory.boot("rs1")
    assert second.incarnation != first.incarnation
    assert not list(directory.log_directory.iterdir())
    assert list(tmp_path.glob("set-aside-*/*.seg"))
    directory.close()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"segments": 3}, "unknown key 'segments'"),
        ({"data_listen": "nowhere"}, "data_listen"),
        ({"pd": ["127.0.0.1"]}, "pd"),
        ({"pd": ["http://127.0.0.1:7100"]}, "pd.*leave out http://"),
        ({"segment_size_bytes": 5}, "segment_size_bytes"),
        ({"name": "a/b"}, "name"),
        ({"capacity_bytes": "much"}, "capacity_bytes"),
        ({"data_listen": "0.0.0.0:7180"}, "advertise_host"),
        ({"labels": ["ssd"]}, "labels.*key=value"),
        ({"rack": "r" * 301}, "rack"),
    ],
)
def test_bad_settings_are_named(values: dict[str, object], said: str, tmp_path: Path) -> None:
    """A bad or unknown key is told by name, in one line."""
    with pytest.raises(ConfigInvalid, match=said) as caught:
        load_settings(RangeServerSettings, {"name": "rs1", "data_dir": tmp_path} | values)
    assert "\n" not in caught.value.message


def test_settings_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are comma-separated; the token is not shown."""
    monkeypatch.setenv("RANGELOG_SERVER_PD", "a:1, b:2")
    monkeypatch.setenv("RANGELOG_SERVER_LABELS", "disk=ssd, team=x")
    monkeypatch.setenv("RANGELOG_SERVER_TOKEN", "s3cret")
    settings = load_settings(RangeServerSettings, {"name": "rs1", "data_dir": tmp_path})
    assert settings.pd == ["a:1", "b:2"]
    assert settings.labels == ["disk=ssd", "team=x"]
    assert "s3cret" not in repr(settings)
