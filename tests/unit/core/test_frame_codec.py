"""The frame codec: any cut of the stream gives the same frames; bad bytes end it."""

from __future__ import annotations

import random

import pytest

from rangelog_core.frame import HEADER_BYTES, Frame, FrameDecoder, FrameError, Opcode, encode_frame


def decoder() -> FrameDecoder:
    """With small limits."""
    return FrameDecoder(message_bytes_max=1000, payload_bytes_max=1 << 20)


def test_any_cut_gives_the_same_frames() -> None:
    """Byte by byte, or in random pieces, across buffers and large payloads."""
    chance = random.Random(3)
    frames = [
        Frame(chance.choice(list(Opcode)), n, chance.randbytes(chance.randrange(100)), chance.randbytes(size))
        for n, size in enumerate([0, 1, 10, 700_000, 3, 1 << 20, 0, 262_144, 5] * 2)
    ]
    stream = b"".join(encode_frame(*frame) for frame in frames)
    for piece_max in (1 << 22, 300_000, 70_000, 1000):
        cut, position, out = decoder(), 0, []
        while position < len(stream):
            size = chance.randrange(1, piece_max)
            out += cut.feed(stream[position : position + size])
            position += size
        assert out == frames


def test_every_flip_in_header_and_message_is_found() -> None:
    """No damaged header or message becomes a frame."""
    good = encode_frame(Opcode.FETCH, 9, b"message", b"payload")
    for position in range(HEADER_BYTES + len(b"message")):
        for bit in range(8):
            bad = good[:position] + bytes([good[position] ^ 1 << bit]) + good[position + 1 :]
            with pytest.raises(FrameError):
                decoder().feed(bad + bytes(100))


@pytest.mark.parametrize("message_bytes,payload_bytes", [(1001, 0), (0, (1 << 20) + 1)])
def test_limits_hold_before_anything_is_buffered(message_bytes: int, payload_bytes: int) -> None:
    """A frame over the limit is refused at its header."""
    frame = encode_frame(Opcode.APPEND, 1, bytes(message_bytes), bytes(payload_bytes))
    with pytest.raises(FrameError):
        decoder().feed(frame[:HEADER_BYTES])


def test_garbage() -> None:
    """Random bytes are refused at once; a cut frame waits for more."""
    chance = random.Random(8)
    for _ in range(300):
        with pytest.raises(FrameError):
            decoder().feed(chance.randbytes(64))
    assert decoder().feed(encode_frame(Opcode.SEAL, 1, b"abc")[:-1]) == []
