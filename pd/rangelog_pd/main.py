"""`run`: one placement driver from its settings until a signal stops it."""

from __future__ import annotations

import asyncio
import os

from rangelog_core.errors import RangelogError
from rangelog_pd.consensus.interface import MemberRemoved
from rangelog_pd.runtime import Runtime, ServePage
from rangelog_pd.settings import PdSettings
from rangelog_server_common.data_directory import lock_directory
from rangelog_server_common.logging import log_to_stderr
from rangelog_server_common.metrics.loop_holds import HOLDS
from rangelog_server_common.process import allow_open_files, fail, stop_on_signals


def run(settings: PdSettings, serve_page: ServePage | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. An error is printed as one line. `serve_page`: see Runtime."""
    secrets = (settings.token, settings.raft_secret)
    log_to_stderr("pd", settings.name, log_format=settings.log_format, secrets=secrets)
    allow_open_files()
    try:
        lock = lock_directory(settings.data_dir)
    except RangelogError as error:
        return fail("pd", error.message)
    try:
        asyncio.run(_serve(settings, serve_page))
        return 0
    except MemberRemoved as error:
        fail("pd", error.message)
        return 0  # it was wanted: nobody is to start it again
    except RangelogError as error:
        return fail("pd", error.message)
    except OSError as error:
        return fail("pd", f"{error.strerror or error}: check the addresses and the data directory {settings.data_dir}")
    finally:
        os.close(lock)


async def _serve(settings: PdSettings, serve_page: ServePage | None) -> None:
    runtime = Runtime(settings, serve_page)
    stop_on_signals(runtime.stop)
    HOLDS.begin()
    await runtime.run()
