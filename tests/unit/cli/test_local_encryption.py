"""`rangelog local --encrypted`: the choice and the key stay with the data."""

from __future__ import annotations

from pathlib import Path

from rangelog_cli.local.encryption import FIRST_KEY_ID, KEYS
from rangelog_cli.local.processes import Cluster
from rangelog_tier.encryption_keys import KEYS_DIR_ENV, KeyDirectory


def test_a_choice_is_kept(tmp_path: Path) -> None:
    """A later start goes on with it and with the same key; a cluster in clear has no keys; all servers get the directory."""
    plain = Cluster.open(tmp_path / "plain", pds=1, range_servers=1)
    assert not plain.plan.encrypted and not (plain.directory / KEYS).exists()
    assert all(KEYS_DIR_ENV not in each.env for each in plain.members.values())
    plain.stop()
    first = Cluster.open(tmp_path / "c", pds=1, range_servers=1, brokers=1, encrypted=True)
    keys = KeyDirectory(str(first.keys_dir))
    assert keys.current() == FIRST_KEY_ID and first.keys_dir.stat().st_mode & 0o077 == 0
    assert [each.env[KEYS_DIR_ENV] for each in first.members.values()] == [keys.path] * 3
    before = (first.keys_dir / f"{FIRST_KEY_ID}.key").read_bytes()
    first.stop()
    again = Cluster.open(tmp_path / "c")
    assert again.plan.encrypted and (again.keys_dir / f"{FIRST_KEY_ID}.key").read_bytes() == before
    again.stop()
