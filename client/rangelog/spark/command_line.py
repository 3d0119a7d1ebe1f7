"""The program `rangelog-spark`: the jobs' command, or one line on what to install where an optional package is missing."""

from __future__ import annotations

import sys

from rangelog_core.command_entry import run_command


def main() -> int | None:
    """Run the command of `rangelog_jobs` on the process's arguments; return its exit code.

    Example:
        ```console
        $ rangelog-spark audit --pd 127.0.0.1:7100
        ```
    """
    return run_command("rangelog-spark", "rangelog_jobs.command", "spark")


if __name__ == "__main__":
    sys.exit(main())
