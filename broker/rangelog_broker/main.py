"""`run`: one broker from its settings until a signal stops it."""

from __future__ import annotations

import sys

import uvloop

from rangelog.errors import RangelogError
from rangelog_broker.runtime import Runtime
from rangelog_broker.settings import BrokerSettings
from rangelog_core.allocator import keep_large_blocks
from rangelog_server_common.garbage import spare_long_lived
from rangelog_server_common.logging import log_to_stderr
from rangelog_server_common.metrics.loop_holds import HOLDS
from rangelog_server_common.process import allow_open_files, fail, stop_on_signals


def run(settings: BrokerSettings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. An error is printed as one line."""
    log_to_stderr("broker", settings.name, log_format=settings.log_format, secrets=(settings.token,))
    allow_open_files()
    keep_large_blocks()
    try:
        uvloop.run(_serve(settings))
    except RangelogError as error:
        return fail("broker", error.message)
    except OSError as error:
        return fail("broker", f"{settings.run_dir}: {error.strerror or error}")
    return 0


async def _serve(settings: BrokerSettings) -> None:
    runtime = Runtime(settings)
    stop_on_signals(runtime.stop)
    HOLDS.begin()
    sys.setswitchinterval(0.001)
    spare_long_lived(50_000)
    await runtime.run()
