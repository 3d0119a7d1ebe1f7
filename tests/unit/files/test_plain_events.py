"""The encoding by hand agrees with the library on any bytes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rangelog_core.errors import Corruption
from rangelog_core.limits import TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN
from rangelog_files.events import (
    DEFAULT_SCHEMA,
    Event,
    decode_any,
    decode_events,
    encode_any,
    encode_events,
    event_count,
)
from rangelog_files.plain_events import decode_plain, encode_plain

SIZES = st.sampled_from([0, 1, 2, 62, 63, 64, 65, 127, 128, 8_191, 8_192, 8_193, 20_000])
BODIES = st.binary(max_size=20) | SIZES.map(bytes)
TIMES = st.none() | st.integers(TIMESTAMP_MS_MIN, TIMESTAMP_MS_MAX) | st.integers(-70, 70)
PLAIN = st.lists(
    st.builds(Event, BODIES, st.just({}), key=st.none() | BODIES, timestamp_ms=TIMES), min_size=1, max_size=6
)


def both(payload: bytes) -> tuple[list[Event] | str, list[Event] | str]:
    """The events by hand, where it takes them, and by the library; an error is its class."""
    found: list[list[Event] | str] = []
    for decode in (decode_events, lambda schema, data: decode_any(schema, data, event_count(data))):
        try:
            found.append(decode(DEFAULT_SCHEMA, payload))
        except Corruption as error:
            found.append(type(error).__name__)
    return found[0], found[1]


@given(PLAIN)
@example([Event(b"")] * 64)
@example([Event(b"")] * 8_192)
def test_the_bytes_are_those_of_the_library(events: list[Event]) -> None:
    """And what is read of them is what was written, by hand."""
    payload = encode_plain(events, len(events))
    assert payload == encode_any(events) == encode_events(events)
    fields = decode_plain(payload, len(events))
    assert fields is not None and [Event(*each) for each in fields] == events
    assert both(payload) == (events, events)


@given(PLAIN, st.dictionaries(st.text(max_size=3), st.binary(max_size=3), min_size=1, max_size=3))
def test_events_with_headers_are_left_to_the_library(events: list[Event], headers: dict[str, bytes]) -> None:
    """One among others is enough."""
    events = [*events, events[0]._replace(headers=headers)]
    payload = encode_events(events)
    assert decode_plain(payload, len(events)) is None
    assert both(payload) == (events, events)


def changed(payload: bytes, rng: Random) -> bytes:
    """The payload with some bytes changed, left out or put in."""
    data = bytearray(payload)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0 and data:
            data[at % len(data)] = rng.choice((0, 1, 2, 3, 4, 0x7F, 0x80, 0x81, 0xFF))
        elif kind == 1 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del data[at : at + rng.choice((1, 2, 5))]
        else:
            data[at:at] = bytes(rng.choice((0, 1, 2, 0x80, 0xFF)) for _ in range(rng.choice((1, 2, 9))))
    return bytes(data)


@settings(max_examples=80)
@given(PLAIN, st.randoms(use_true_random=False))
def test_changed_bytes_are_judged_as_by_the_library(events: list[Event], rng: Random) -> None:
    """The same events, or an error of both."""
    payload = encode_events(events)
    for _ in range(15):
        by_hand, by_library = both(changed(payload, rng))
        assert by_hand == by_library


@settings(max_examples=500)
@given(st.binary(max_size=40))
def test_any_bytes_are_judged_as_by_the_library(payload: bytes) -> None:
    """Also behind a count that fits."""
    assert both(payload)[0] == both(payload)[1]
    assert both(b"\2" + payload)[0] == both(b"\2" + payload)[1]


@pytest.mark.parametrize(
    "payload",
    [
        b"\2\x80\0\0\0\0\0", b"\2\x82\0a\0\0\0\0", b"\2\x82\x80\0a\0\0\0\0", b"\x82\0\2a\0\0\0\0", b"\2\2a\0\2\x82\0k\0\0",
        b"\2\2a\0\0\2\x80\x80\x80\x80\x80\x80\x80\x80\x80\1\0", b"\2\2a\0\0\2\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\0",
        b"\2\2a\0\2\1\0\0", b"\2\2a\0\4\0\0", b"\2\2a\0\0\4\0", b"\2\2a\0\2\x08k\0\0", b"\2\2a\0\0\0\0\0",
        b"\2\2a\0\0\0", b"\2\2a\0\0\0\1", b"\2\2a\1\0\0\0\0",
    ],
)  # fmt: skip
def test_what_is_out_of_the_ordinary_is_judged_as_by_the_library(payload: bytes) -> None:
    """Numbers in more bytes than they need, of ten bytes, of no kind, sizes that do not fit, bytes behind the end."""
    by_hand, by_library = both(payload)
    assert by_hand == by_library
