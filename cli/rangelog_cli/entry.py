"""The entry point of `rangelog`."""

from __future__ import annotations

from rangelog_core.command_entry import run_command


def main() -> int | None:
    """Run the command."""
    return run_command("rangelog", "rangelog_cli.main", "cli")
