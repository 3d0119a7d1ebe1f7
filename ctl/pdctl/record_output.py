"""The printer of `pdctl stream read`, `stream tail` and `topic consume`: records of one key or any, up to a number of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click

from pdctl.record_formats import BINARY, renderer

READ_PREFERENCE = click.Choice(["hot_first", "cold_first", "hot_only", "cold_only"])


class RecordPrinter:
    """Standard output for records. `escapes`: values have no control characters, not even in a file."""

    def __init__(
        self, shape: str, count_max: int | None = None, *, key: str | None = None, escapes: bool = False
    ) -> None:
        """Raises click.UsageError for bytes on a terminal."""
        on_terminal = sys.stdout.isatty()
        if on_terminal and shape in BINARY:
            raise click.UsageError(f"--format {shape} is not for a terminal: write it to a file or a pipe")
        self._render = renderer(shape, on_terminal=on_terminal or escapes)
        self._key = key.encode("utf-8", "surrogateescape") if key is not None else None
        self._count_max = count_max
        self._out = sys.stdout.buffer
        self.count = 0

    def write(self, record: Any) -> bool:
        """Write a record if it has the key; return whether no further one is wanted."""
        if self._key is None or record.key == self._key:
            self._out.write(self._render(record))
            self.count += 1
        return self.count == self._count_max

    def flush(self) -> None:
        """Hand what was written to the system."""
        self._out.flush()

    def write_chunk(self, records: Iterable[Any]) -> bool:
        """Write records up to the number that is wanted, and flush; return whether no further one is."""
        is_full = any(self.write(each) for each in records)
        self.flush()
        return is_full
