"""Starts a command whose own libraries may be missing: the light client installs the commands too.

What holds: a missing library is one line that says what to install; a module of ours that is missing is a defect, and raised.
Ctrl-C ends it without a trace of calls, also while the modules are loaded.
"""

from __future__ import annotations

import importlib
import sys

EXIT_INTERRUPTED = 130
_OURS = ("rangelog", "pdctl", "pyspark_rangelog")


def run_command(command: str, module: str, extra: str) -> int | None:
    """Run `main` of a module, and return what it returns; 1 where a library is missing, 130 where it is interrupted.

    Args:
        command: The name that the user typed.
        module: The module that has `main`.
        extra: The extra to install for it.

    Example:
        >>> run_command("anything", "no_such_library_of_rangelog_core.main", "cli")
        1
    """
    try:
        return _run(command, module, extra)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(command: str, module: str, extra: str) -> int | None:
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing.startswith(_OURS):
            raise
        sys.stderr.write(f"{command}: {missing} is not installed: pip install 'rangelog[{extra}]'\n")
        return 1
    result: int | None = found.main()
    return result
