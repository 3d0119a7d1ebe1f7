"""The program `rangelog-spark`: the jobs' command, or one line on what to install where an optional package is missing."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command of `rangelog.spark.jobs` on the process's arguments; return its exit code.

    Example:
        ```console
        $ rangelog-spark audit --pd 127.0.0.1:7100
        ```
    """
    try:
        from rangelog.spark.jobs.command import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(f"rangelog-spark: {error.name} is not installed: pip install 'rangelog[spark]'\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
