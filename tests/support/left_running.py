"""No process that the tests started outlives them. Imports little: runs of pytest within a test have it too."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

MARK = "RANGELOG_TEST_SESSION"
GRACE_S = 10.0
ENDS_WITH_US = ("org.apache.spark", "pyspark.daemon", "multiprocessing.resource_tracker")
"""Spark's Java and its workers, and Python's own helper, end when the process of the tests does."""


def marked(mark: str) -> dict[int, str]:
    """Pid → command line of every other process that has this mark in its environment, zombies aside."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        with suppress(OSError):  # ended meanwhile, or another user's
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if command and not any(name in command for name in ENDS_WITH_US):
                    found[int(folder.name)] = command[:200]
    return found


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    """Fails the run when a process is left, and ends it. Children inherit the mark, wherever they are re-parented."""
    value = f"{os.getpid()}-{secrets.token_hex(8)}"
    os.environ[MARK] = value
    yield
    if (forked := sys.modules.get("tests.support.forked")) is not None:
        forked.stop()
    deadline = time.monotonic() + GRACE_S
    while (left := marked(f"{MARK}={value}")) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"tests left these processes running: {left}"
