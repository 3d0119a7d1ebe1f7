"""How a server process begins, stops, fails, and publishes where it listens."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENDPOINT_FILE = "endpoint.json"
"""In the data directory while the server runs: the process id and the addresses, for the program that started the server."""


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` in the running event loop on SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


def allow_open_files() -> None:
    """Raise the limit of open files as far as the system lets this process.

    Each connection takes one, also of strangers who say nothing; without a free one the log of a server cannot go on.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def fail(program: str, message: str, exit_code: int = 1) -> int:
    """Write `message` as one line to stderr and return the exit code."""
    sys.stderr.write(f"{program}: {message}\n")
    return exit_code


def write_endpoint(directory: Path, content: dict[str, Any]) -> None:
    """Write the endpoint file, whole or not at all, with this process's id as `pid`. Raises OSError."""
    path = directory / ENDPOINT_FILE
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({"pid": os.getpid()} | content))
    os.replace(temporary, path)


def remove_endpoint(directory: Path) -> None:
    """Remove the endpoint file if it is there, at the end or at the start after a crash."""
    (directory / ENDPOINT_FILE).unlink(missing_ok=True)
