"""The names of verbs in other tools, and the names here: for the message on a command that does not exist."""

from __future__ import annotations

import re

import click

_UNKNOWN = re.compile(r"No such command '([^']*)'")
_HERE = {
    "describe": ("show",),
    "get": ("show", "list"),
    "info": ("show", "status"),
    "rm": ("delete", "remove"),
    "remove": ("delete",),
    "new": ("create",),
    "alter": ("update",),
    "write": ("append", "produce"),
    "cat": ("read", "consume"),
}
"""Verbs of other tools; the first of the verbs here that the noun has is named."""
_AT_THE_ROOT = {
    "health": "pdctl cluster status",
    "status": "pdctl cluster status",
    "describe": "pdctl NOUN show, as in pdctl stream show NAME",
    "get": "pdctl NOUN list, as in pdctl stream list",
    "list": "pdctl NOUN list, as in pdctl stream list",
    "create": "pdctl NOUN create, as in pdctl stream create NAME",
}


def meant(error: click.UsageError) -> str:
    """Return what was meant by a command that does not exist: ", use …"; nothing where it is not known."""
    found = _UNKNOWN.match(error.message)
    context = error.ctx
    if found is None or context is None or not isinstance(context.command, click.Group):
        return ""
    if context.parent is None:
        use = _AT_THE_ROOT.get(found[1], "")
    else:
        verbs = [each for each in _HERE.get(found[1], ()) if each in context.command.commands]
        use = f"{context.command_path} {verbs[0]}" if verbs else ""
    return f", use {use}" if use else ""
