"""The state as a file in pieces: order, repeats, bounds."""

from __future__ import annotations

import pytest

from rangelog_core import state_file
from rangelog_core.errors import Overloaded, PreconditionFailed
from rangelog_pd.saving import IDLE_MS_MAX, PIECE_BYTES, SAVES_MAX, Saves


def test_the_pieces_are_the_file() -> None:
    """A repeated call gets the same piece again; what is out of order is refused."""
    saves, rows = Saves(), [bytes([number]) * 300_000 for number in range(12)]
    save_id = saves.begin(b"header", rows, 0.0)
    data, number, last = b"", 0, False
    while not last:
        piece, last = saves.piece(save_id, number, 0.0)
        assert saves.piece(save_id, number, 0.0) == (piece, last)
        assert len(piece) < PIECE_BYTES + 300_000
        data, number = data + piece, number + 1
    assert number > 2
    assert state_file.decode(data, source="x") == (b"header", b"".join(rows))
    for wrong in (number, number + 5, 0):
        with pytest.raises(PreconditionFailed):
            saves.piece(save_id, wrong, 0.0)


def test_few_saves_are_under_way_and_idle_ones_are_forgotten() -> None:
    """Else each would keep the rows of its time."""
    saves = Saves()
    ids = [saves.begin(b"", [], 0.0) for _ in range(SAVES_MAX)]
    with pytest.raises(Overloaded):
        saves.begin(b"", [], 1.0)
    saves.piece(ids[0], 0, 2.0)  # whole
    saves.begin(b"", [], 3.0)
    saves.begin(b"", [], IDLE_MS_MAX + 10.0)
    with pytest.raises(PreconditionFailed):
        saves.piece(ids[1], 0, IDLE_MS_MAX + 10.0)
