"""The lock of a data directory and the endpoint file in it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rangelog_core.errors import PreconditionFailed, Unavailable
from rangelog_server_common.data_directory import lock_directory
from rangelog_server_common.process import ENDPOINT_FILE, remove_endpoint, write_endpoint


def test_a_directory_is_locked_once_and_free_after_closing(tmp_path: Path) -> None:
    """A second lock is refused by name; after the first is closed the directory can be locked again."""
    home = tmp_path / "deep" / "home"
    lock = lock_directory(home)
    assert home.stat().st_mode & 0o777 == 0o700
    with pytest.raises(PreconditionFailed, match="another process uses the data directory"):
        lock_directory(home)
    os.close(lock)
    os.close(lock_directory(home))


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    """A file in the directory's place is a typed error."""
    (tmp_path / "home").write_text("")
    with pytest.raises(Unavailable, match="cannot be used"):
        lock_directory(tmp_path / "home")


def test_the_endpoint_file_is_whole_and_carries_the_process(tmp_path: Path) -> None:
    """The file holds the addresses and this process's id, leaves no temporary file, and can be removed twice."""
    write_endpoint(tmp_path, {"name": "pd1", "api_address": "h:1"})
    content = json.loads((tmp_path / ENDPOINT_FILE).read_text())
    assert content == {"pid": os.getpid(), "name": "pd1", "api_address": "h:1"}
    assert [path.name for path in tmp_path.iterdir()] == [ENDPOINT_FILE]
    remove_endpoint(tmp_path)
    remove_endpoint(tmp_path)
    assert not list(tmp_path.iterdir())
