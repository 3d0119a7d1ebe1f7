"""Commands of `rangelog` that other distributions bring, by entry points of the group `rangelog.commands`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import click

_GROUP = "rangelog.commands"
_WORKBENCH = ("bench", "demo")
"""Of the distribution rangelog-workbench."""


class Commands(click.Group):
    """A click group with the commands of this package and those that are installed beside it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in order."""
        return sorted({*super().list_commands(ctx), *(each.name for each in entry_points(group=_GROUP))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, None for an unknown name. Raises ClickException: its distribution is not installed."""
        if (own := super().get_command(ctx, cmd_name)) is not None:
            return own
        if found := tuple(entry_points(group=_GROUP, name=cmd_name)):
            return _load(found[0])
        if cmd_name in _WORKBENCH:
            raise click.ClickException(f"{cmd_name} is in another package: pip install rangelog-workbench")
        return None


def _load(entry: EntryPoint) -> click.Command:
    command: click.Command = entry.load()
    return command
