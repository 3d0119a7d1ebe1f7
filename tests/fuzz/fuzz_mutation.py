"""Makes bad bytes out of good ones. Every mutator is a pure function of its input and a seeded `Random`.

A checksum stops plain noise at the door, so a target names a repair beside its mutators: it makes the checksums fit again,
and what is behind them is reached. Messages are changed field by field, with values at the borders of their types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

Mutator = Callable[[bytes, Random], bytes]

BORDERS = (
    0, 1, 2, 3, 7, 8, 63, 64, 127, 128, 255, 256, 4_095, 65_535, 65_536, 65_537, (1 << 24), (1 << 31) - 1, 1 << 31,
    (1 << 32) - 1, 1 << 32, (1 << 53) + 1, (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1,
)  # fmt: skip
"""Where sizes, signs and types end."""

TEXTS = (
    "", "a", "s", "rs1", "..", "../../x", "a/b", "\0", "é", "²", "٣", "\ud7ff", "\u202e", "x" * 199, "x" * 201, "x" * 5_000,
    "9" * 400, "9" * 5_000, "-1", "1e999", "1/2", "²/1", "s\n", "%00", "{}", "sha256:" + "ab" * 32, "replicas", "acks",
)  # fmt: skip
"""Names, numbers and paths that people and attackers send. All are valid in protobuf."""

INPUT_BYTES_MAX = 16 * 1024
"""Mutation does not grow an input beyond this; larger ones are among a target's seeds on purpose."""


def mutated(data: bytes, random: Random, others: Sequence[bytes] = ()) -> bytes:
    """Return `data` with one to a few changes of the kinds that need no knowledge of the format."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        _change(changed, random, others)
        if len(changed) > max(len(data), INPUT_BYTES_MAX):
            del changed[INPUT_BYTES_MAX:]
    return bytes(changed)


def _change(data: bytearray, random: Random, others: Sequence[bytes]) -> None:
    kind = random.randrange(9)
    at = random.randrange(len(data) + 1)
    if kind == 0 and data:
        data[at % len(data)] ^= 1 << random.randrange(8)
    elif kind == 1 and data:
        data[at % len(data)] = random.randrange(256)
    elif kind == 2 and data:
        width = random.choice((1, 2, 4, 8))
        value = _near(random) & ((1 << (8 * width)) - 1)
        data[at : at + width] = value.to_bytes(width, random.choice(("little", "big")))
    elif kind == 3:
        del data[at : at + random.choice((1, 2, 4, 8, 64, 1_000))]
    elif kind == 4:
        data[at:at] = random.randbytes(random.choice((1, 2, 4, 8, 64)))
    elif kind == 5:
        length = random.randrange(1, 65)
        data[at:at] = data[at : at + length]
    elif kind == 6:
        del data[at:]
    elif kind == 7 and others:
        other = random.choice(others)
        start = random.randrange(len(other) + 1)
        data[at : at + random.choice((0, 16, 10_000))] = other[start : start + random.choice((8, 64, 1_000))]
    elif data:
        step = random.choice((-1, 1, -16, 16))
        data[at % len(data)] = (data[at % len(data)] + step) & 0xFF


def _near(random: Random) -> int:
    return max(0, random.choice(BORDERS) + random.choice((-1, 0, 0, 0, 1)))


def fields_changed(data: bytes, random: Random, fields: Sequence[tuple[int, int]], start: int = 0) -> bytes:
    """Return `data` with one or two of its little-endian fields, each (position, width), set to other numbers."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2))):
        position, width = random.choice(fields)
        position += start
        if position + width <= len(changed):
            value = _near(random)
            if random.random() < 0.3:
                value = int.from_bytes(changed[position : position + width], "little") + random.choice((-8, -1, 1, 8))
            changed[position : position + width] = (value & ((1 << (8 * width)) - 1)).to_bytes(width, "little")
    return bytes(changed)


# ---- text


def text_mutated(data: bytes, random: Random, words: Sequence[str]) -> bytes:
    """Return other text made of `words`, digits and what was there; sometimes no text at all."""
    if random.random() < 0.25:
        return mutated(data, random)
    text = data.decode(errors="replace")
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(text) + 1)
        piece = random.choice((*words, *TEXTS, str(_near(random)), text[at : at + 8], chr(random.randrange(0xD800))))
        text = text[:at] + piece + text[at + random.choice((0, 0, 1, len(piece))) :]
    return text[:INPUT_BYTES_MAX].encode(errors="replace")


# ---- protobuf

_WIDTH = {
    FieldDescriptor.TYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
}


def random_value(field: Any, random: Random, *, depth: int = 0, known: Sequence[Any] = ()) -> Any:
    """Return a value for a field: one of `known` that fits its type, or one at a border."""
    if field.type == FieldDescriptor.TYPE_BOOL:
        return random.random() < 0.5
    if field.type == FieldDescriptor.TYPE_ENUM:
        return random.choice((0, 1, 2, 3, 4, 99, -1))
    if field.type == FieldDescriptor.TYPE_STRING:
        texts = [each for each in known if isinstance(each, str)]
        return random.choice(texts) if texts and random.random() < 0.7 else random.choice(TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        strings = [each for each in known if isinstance(each, bytes)]
        return (
            random.choice(strings)
            if strings and random.random() < 0.7
            else random.choice((b"", b"x", random.randbytes(20)))
        )
    low, high = _WIDTH[field.type]
    numbers = [each for each in known if isinstance(each, int) and low <= each <= high]
    if numbers and random.random() < 0.7:
        return random.choice(numbers)
    value = random.choice(BORDERS)
    if low < 0 and random.random() < 0.3:
        value = -value
    return min(max(value, low), high)


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == FieldDescriptor.LABEL_REPEATED


def _is_map_of_texts(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def message_changed(message: Message, random: Random, *, known: Sequence[Any] = (), depth: int = 0) -> None:
    """Change one field of a message in place, or of a message inside it."""
    fields = message.DESCRIPTOR.fields
    if not fields:
        return
    field = random.choice(fields)
    if _is_map_of_texts(field):
        key, value = (random_value(each, random, known=known) for each in field.message_type.fields)
        getattr(message, field.name)[key] = value
    elif _is_repeated(field):
        _change_repeated(getattr(message, field.name), field, random, known, depth)
    elif field.message_type is not None:
        inner = getattr(message, field.name)
        inner.SetInParent()
        if random.random() < 0.1:
            message.ClearField(field.name)
        elif depth < 4:
            for _ in range(random.choice((1, 2, 4))):
                message_changed(inner, random, known=known, depth=depth + 1)
    elif random.random() < 0.15:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, random_value(field, random, known=known))


def _change_repeated(items: Any, field: Any, random: Random, known: Sequence[Any], depth: int) -> None:
    kind = random.randrange(3)
    if kind == 0 and len(items):
        del items[random.randrange(len(items))]
    elif field.message_type is None:
        items.extend(random_value(field, random, known=known) for _ in range(random.choice((1, 1, 2, 30))))
    elif kind == 1 and len(items) and depth < 4:
        message_changed(random.choice(items), random, known=known, depth=depth + 1)
    elif depth < 4:
        added = items.add()
        for _ in range(random.choice((0, 2, 6))):
            message_changed(added, random, known=known, depth=depth + 1)


def encoded_changed(data: bytes, kind: type[Message], random: Random, known: Sequence[Any] = ()) -> bytes:
    """Return the encoding of a message like the one in `data`, changed; sometimes bytes that are none."""
    if random.random() < 0.15:
        return mutated(data, random)
    message = kind()
    try:
        message.ParseFromString(data)
    except Exception:  # whatever the library says of bytes that were spoiled before
        message = kind()
    for _ in range(random.choice((1, 1, 2, 4, 8))):
        message_changed(message, random, known=known)
    return message.SerializeToString()
