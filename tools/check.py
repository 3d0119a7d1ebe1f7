"""Run every check that needs no cluster, two at a time: `make check`.

What holds: a check that fails is printed whole, with nothing of another between its lines, and all others run nevertheless; the
exit code is 1 if any failed; an interruption ends what runs. Types come first, as the longest, in one process after the other,
since both use mypy's cache; the rest runs beside them, the short checks before the long ones.
"""

from __future__ import annotations

import asyncio
import collections
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

AT_ONCE = 2
PYTHON = sys.executable
PYTEST = (PYTHON, "-m", "pytest", "-q")
TYPES_TEST = "tests/tidy/test_types_of_programs.py"


class TreeCheck(NamedTuple):
    """A check: its commands run one after the other, until one fails."""

    name: str
    commands: tuple[tuple[str, ...], ...]


CHECKS = (
    TreeCheck("types", ((PYTHON, "-m", "mypy", "--no-error-summary"), (*PYTEST, TYPES_TEST))),
    TreeCheck("format", ((PYTHON, "-m", "ruff", "format", "--check", "--quiet", "."),)),
    TreeCheck("lint", ((PYTHON, "-m", "ruff", "check", "--quiet", "."),)),
    TreeCheck("import contracts", ((str(Path(PYTHON).with_name("lint-imports")), "--no-cache"),)),
    TreeCheck("stubs", ((PYTHON, "tools/generate_stubs.py", "--check"),)),
    TreeCheck("blocking classes", ((PYTHON, "tools/generate_blocking.py", "--check"),)),
    TreeCheck("lock file", ((PYTHON, "tools/check_lock.py"),)),
    TreeCheck("reference of settings", ((PYTHON, "tools/config_reference.py", "--check"),)),
    TreeCheck("reference of errors", ((PYTHON, "tools/error_reference.py", "--check"),)),
    TreeCheck("house rules", ((*PYTEST, "tests/tidy", f"--ignore={TYPES_TEST}"),)),
    TreeCheck("site", (("make", "--no-print-directory", "docs"),)),
)


async def _said(command: tuple[str, ...]) -> tuple[int, bytes]:
    """Return the exit code of a command and what it printed. It ends with the task."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, said


async def _passes(check: TreeCheck) -> bool:
    started_s = time.monotonic()
    code, said = 0, b""
    for command in check.commands:
        code, said = await _said(command)
        if code:
            break
    result = f"failed with {code}:\n{said.decode(errors='replace').rstrip()}" if code else "in order"
    print(f"check: {time.monotonic() - started_s:4.0f} s  {check.name} {result}", flush=True)
    return code == 0


async def run(checks: Iterable[TreeCheck]) -> int:
    """Run them; return the exit code."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    waiting = collections.deque(checks)
    passed: list[bool] = []

    async def work() -> None:
        while waiting:
            passed.append(await _passes(waiting.popleft()))

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    return 0 if all(passed) else 1


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(run(CHECKS)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)
