"""`python -m rangelog_cli`: the command with which the supervisor starts its children."""

from __future__ import annotations

import sys

from rangelog_cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
