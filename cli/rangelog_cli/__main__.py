"""`python -m rangelog_cli`: the command with which the supervisor starts its children."""

from __future__ import annotations

from rangelog_cli.main import main

if __name__ == "__main__":
    main()
