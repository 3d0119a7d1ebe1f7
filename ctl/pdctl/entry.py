"""The entry point of `pdctl`."""

from __future__ import annotations

from rangelog_core.command_entry import run_command


def main() -> int | None:
    """Run the command."""
    return run_command("pdctl", "pdctl.main", "cli")
