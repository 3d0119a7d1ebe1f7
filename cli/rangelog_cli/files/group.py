"""The group `rangelog files`. Its verbs are imported when one of them is asked for: `rangelog --help` is quick."""

from __future__ import annotations

import importlib

import click

VERBS = ("append", "create", "export", "import", "read", "truncate", "verify")


class FilesGroup(click.Group):
    """Loads a verb from the module of all of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in order."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb, None for an unknown name."""
        if cmd_name not in VERBS:
            return None
        found: click.Command = getattr(importlib.import_module("rangelog_cli.files.verbs"), f"{cmd_name}_verb")
        return found


@click.group(cls=FilesGroup)
def files() -> None:
    """Event files: logs in a directory, without servers.

    LOCATION is the directory of a stream, DIR/NAME, or a URL: file:///DIR/NAME, or s3://BUCKET/PREFIX/NAME to be read.

    \b
    Examples:
      rangelog files create data/who
      echo on | rangelog files append data/who --key lamp
      rangelog files read data/who --format json
      rangelog files import data/who shop.who --pd 127.0.0.1:7100
    """
