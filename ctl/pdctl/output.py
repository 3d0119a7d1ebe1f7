"""The output of commands: a table for people, JSON or YAML with stable keys for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

Row = Mapping[str, Any]
Shown = tuple[str, Callable[[Row], object]]
"""A column of a table: its heading, and the function that formats a row's value."""


def emit_list(rows: Sequence[Row], output: str, columns: Sequence[Shown], *, empty: str) -> None:
    """Print rows."""
    if output == "table":
        if rows:
            _table([heading for heading, _ in columns], [[str(show(row)) for _, show in columns] for row in rows])
        else:
            click.echo(empty, err=True)
    else:
        emit_data(list(rows), output)


def emit_one(row: Row, output: str, columns: Sequence[Shown]) -> None:
    """Print one item, a line per field."""
    if output == "table":
        width = max(len(heading) for heading, _ in columns)
        for heading, show in columns:
            click.echo(f"{heading:<{width}}  {printable(str(show(row)))}")
    else:
        emit_data(row, output)


def emit_data(data: Any, output: str) -> None:
    """Print JSON or YAML."""
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))


def emit_done(text: str, data: Any, output: str) -> None:
    """Print what was done: a sentence for people, or what programs read."""
    if output == "table":
        click.echo(text)
    else:
        emit_data(data, output)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    rows = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
        for heading in headings:
            table.add_column(heading, no_wrap=True)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))  # not markup: "[…]" is part of the data
        console = Console(no_color=bool(os.environ.get("NO_COLOR")))
        # A narrow terminal wraps lines at its edge; cells are never cut or folded, so that they can be copied.
        whole = console.measure(table, options=console.options.update(max_width=1 << 16)).maximum
        console.width = max(console.width, whole)
        console.print(table, crop=False)
        return
    widths = [max(len(row[number]) for row in [headings, *rows]) for number in range(len(headings))]
    for row in [headings, *rows]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def printable(text: str) -> str:
    """Return the text on one line, without control characters."""
    return "".join(each if each.isprintable() else "�" for each in " ".join(text.split()))


def field(heading: str, key: str, show: Callable[[Any], object] = str) -> Shown:
    """A column that shows one key."""
    return heading, lambda row: show(row[key])
