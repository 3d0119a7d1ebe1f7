"""`run`: one placement driver from its settings until it is told to stop."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import sys

from rangelog._transport.server_log import log_to_stderr
from rangelog_core.errors import RangelogError
from rangelog_pd.runtime import Runtime
from rangelog_pd.settings import PdSettings


def run(settings: PdSettings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. What goes wrong is said in one line."""
    _set_up_logs()
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(settings.data_dir / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return _failed(f"cannot use the data directory {settings.data_dir}: {error.strerror}")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return _failed(
            f"the data directory {settings.data_dir} is in use by another process: stop it, or choose another"
        )
    try:
        asyncio.run(_serve(settings))
        return 0
    except RangelogError as error:
        return _failed(error.message)
    except OSError as error:
        return _failed(f"{error.strerror or error}: check the addresses and the data directory {settings.data_dir}")
    finally:
        os.close(lock)


async def _serve(settings: PdSettings) -> None:
    runtime = Runtime(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, runtime.stop)
    await runtime.run()


def _failed(message: str) -> int:
    sys.stderr.write(f"pd: {message}\n")
    return 1


def _set_up_logs() -> None:
    """Structured lines on stderr; of the library's own, only warnings."""
    log_to_stderr()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    logging.getLogger("rangelog").setLevel(logging.INFO)
