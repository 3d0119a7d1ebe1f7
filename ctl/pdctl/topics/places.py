"""Places in a topic in text form: earliest, latest, a time, or a file with a cut as `pdctl topic cut` prints it.

What holds: a file is read up to a bound, and what is not a cut is refused before any call.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from pdctl.stream_places import no_zone
from pdctl.units import quoted
from rangelog_core.errors import InvalidArgument

if TYPE_CHECKING:
    from rangelog import Cut

CUT_BYTES_MAX = 1 << 20
"""A cut of the largest topic, with some space around each number."""
CHECKPOINT = "checkpoint:"


def parse_cut(data: bytes) -> Cut:
    """Return the cut in a text. Raises InvalidArgument, UnsupportedVersion (a later rangelog has written it)."""
    from rangelog import Cut

    if len(data) > CUT_BYTES_MAX:
        raise InvalidArgument(f"a cut has at most {CUT_BYTES_MAX} bytes: is this the right file?")
    try:
        return Cut.from_json(data.decode())
    except UnicodeDecodeError as error:
        raise InvalidArgument("this is not the text of a cut: `pdctl topic cut` prints one") from error
    except InvalidArgument as error:
        raise InvalidArgument(f"{error.message}: `pdctl topic cut` prints one") from error


class CutFileType(click.ParamType["Cut"]):
    """A file with a cut; - is standard input."""

    name = "file"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read. Raises InvalidArgument for what is not a cut."""
        if not isinstance(value, str):
            return value  # click converts what is converted already again
        file = click.File("rb").convert(value, param, ctx)
        data = file.read(CUT_BYTES_MAX + 1)
        if value != "-":
            file.close()
        return parse_cut(data)


class PlaceType(click.ParamType["str | datetime | Cut"]):
    """One of some words, an ISO time, or a file with a cut; with `checkpoints` also checkpoint:NAME."""

    name = "place"

    def __init__(self, words: Sequence[str], *, files: bool = True, checkpoints: bool = False) -> None:
        self._words = tuple(words)
        self._files = files
        self._checkpoints = checkpoints

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse. A file whose name is a word or a time is given with its folder: ./latest."""
        if not isinstance(value, str):
            return value
        if value in self._words or (self._checkpoints and value.startswith(CHECKPOINT)):
            return value
        with suppress(ValueError):
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is None:
                self.fail(no_zone(value), param, ctx)
            return moment
        words = " or ".join(self._words)
        if not self._files:
            return self.fail(f"{quoted(value)} is not {words}, nor a time such as 2026-01-31T12:00Z", param, ctx)
        try:
            return CutFileType().convert(value, param, ctx)
        except click.UsageError:
            return self.fail(
                f"{quoted(value)} is not {words}, nor a time such as 2026-01-31T12:00Z, nor a file with a cut",
                param,
                ctx,
            )
