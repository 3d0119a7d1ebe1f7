"""The state as a file, given out in pieces.

What holds: a file is of the state at one entry, behind a barrier; rows are encoded as they are asked for, so what is kept is
the rows (they do not change) and one piece; a save without further calls is forgotten; few are under way at a time.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rangelog_core import state_file
from rangelog_core.errors import Overloaded, PreconditionFailed
from rangelog_core.limits import MIB

SAVES_MAX = 2
IDLE_MS_MAX = 60_000
PIECE_BYTES = 1 * MIB


@dataclass
class _Save:
    pieces: Iterator[tuple[bytes, bool]]
    used_ms: float
    number: int = -1
    data: bytes = b""
    last: bool = False


class Saves:
    """The saves of one member."""

    def __init__(self) -> None:
        self._saves: dict[str, _Save] = {}

    def begin(self, header: bytes, state: Iterable[bytes], now_ms: float) -> str:
        """Start a save; return its id. Raises Overloaded."""
        for save_id, save in list(self._saves.items()):
            if save.last or now_ms - save.used_ms > IDLE_MS_MAX:
                del self._saves[save_id]
        if len(self._saves) >= SAVES_MAX:
            raise Overloaded(f"{SAVES_MAX} saves of the state are under way: try again once they are done")
        save_id = uuid.uuid4().hex
        self._saves[save_id] = _Save(_joined(state_file.encode(header, state)), now_ms)
        return save_id

    def piece(self, save_id: str, number: int, now_ms: float) -> tuple[bytes, bool]:
        """Return a piece, and whether it is the last: the next one, or the last one again. Raises PreconditionFailed."""
        save = self._saves.get(save_id)
        if save is None or number not in (save.number, save.number + 1) or number < 0:
            raise PreconditionFailed("this save of the state is not known here: begin again")
        save.used_ms = now_ms
        if number > save.number:
            if save.last:
                raise PreconditionFailed("this save of the state has no more pieces")
            save.data, save.last = next(save.pieces)
            save.number = number
        return save.data, save.last


def _joined(parts: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield pieces of about the same size, each with whether it is the last."""
    kept = bytearray()
    for part in parts:
        kept += part
        if len(kept) >= PIECE_BYTES:
            yield bytes(kept), False
            kept.clear()
    yield bytes(kept), True
