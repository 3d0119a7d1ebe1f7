"""Nothing reaches the Raft library that is not exactly one of our messages, and only conflicts are ever cut."""

from __future__ import annotations

import importlib
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from rangelog_core.errors import ProtocolViolation
from rangelog_core.limits import COMMAND_BYTES_MAX
from rangelog_pd.consensus.files.journal import JournalEntry, RaftJournal
from rangelog_pd.consensus.network.messages import (
    APPEND_BYTES_MAX,
    FRAME_BYTES_MAX,
    SNAPSHOT_CHUNK_BYTES,
    Append,
    Message,
    Ping,
    Position,
    SnapshotChunk,
    TakeOver,
    Vote,
    VoteRequest,
    decode,
    encode,
)
from rangelog_pd.consensus.rules.follower_append import settle

msgpack: Any = importlib.import_module("msgpack")
ENTRIES = (JournalEntry(b"\0one", 8, 2), JournalEntry(b"\1", 9, 3), JournalEntry(b"\0" + bytes(100), 10, 3))
MESSAGES: list[Message] = [
    Ping(),
    VoteRequest(5, 10, 4, 9),
    Vote(5),
    Append(3, 7, 7, 2, ENTRIES),
    Append(3, 7, 7, 2, ()),
    SnapshotChunk(3, 7, b"data", first=True, last=False),
    Position(3, 11, reset=False, success=True),
    TakeOver(4),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_survive_the_wire(message: Message) -> None:
    """Each message decodes to itself."""
    assert decode(encode(message)) == message


def test_the_largest_append_fits_a_frame() -> None:
    """What the sender may put into one message is below what the receiver takes."""
    largest = JournalEntry(b"\0" + bytes(COMMAND_BYTES_MAX), 1, 1)
    full = tuple(largest._replace(log_index=index) for index in range(1, APPEND_BYTES_MAX // COMMAND_BYTES_MAX + 2))
    many = tuple(JournalEntry(b"\0", index, 2**60) for index in range(1, APPEND_BYTES_MAX // 17 + 2))
    for entries in (full, many):
        assert len(encode(Append(2**61, 2**61, 0, 0, entries))) <= FRAME_BYTES_MAX
    assert len(encode(SnapshotChunk(2**61, 1, bytes(SNAPSHOT_CHUNK_BYTES), first=True, last=True))) <= FRAME_BYTES_MAX


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        pickle.dumps(["append_entries"]),
        msgpack.packb([]),
        msgpack.packb({"type": "add"}),
        msgpack.packb([99]),
        msgpack.packb([True, 1]),
        msgpack.packb(["add", "host:1"]),
        msgpack.packb([1, 5, 10]),
        msgpack.packb([1, 5, 10, -1, 0]),
        msgpack.packb([1, 5, 10, 2**63, 0]),
        msgpack.packb([1, 5, 10, 1.5, 0]),
        msgpack.packb([5, 3, 11, 0, 1]),
        msgpack.packb([3, 3, 7, 7, 2, {}]),
        msgpack.packb([3, 3, 7, 7, 2, [b"\0x"]]),
        msgpack.packb([3, 3, 7, 7, 2, [[b"", 3]]]),
        msgpack.packb([3, 3, 7, 7, 2, [[b"\2membership", 3]]]),
        msgpack.packb([3, 3, 7, 7, 2, [[b"\3version", 3]]]),
        msgpack.packb([3, 3, 7, 7, 2, [["\0text", 3]]]),
        msgpack.packb([3, 3, 7, 7, 2, [[b"\0", 1]]]),
        msgpack.packb([3, 3, 7, 7, 2, [[b"\0", 4]]]),
        msgpack.packb([3, 3, 7, 7, 2, [[b"\0", 3], [b"\0", 2]]]),
        msgpack.packb([3, 3, 7, 7, 2, [[bytes(COMMAND_BYTES_MAX + 2), 3]]]),
        msgpack.packb([4, 1, 1, bytes(SNAPSHOT_CHUNK_BYTES + 1), True, True]),
        msgpack.packb([4, 1, 1, msgpack.ExtType(1, b"x"), True, True]),
        msgpack.packb([6, msgpack.Timestamp(1)]),
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\x92\x00\xc6\xff\xff\xff\xff",
    ],
)
def test_whatever_is_not_a_message_is_refused(body: bytes) -> None:
    """Pickles, administrative commands, wrong types, wrong orders and claimed sizes raise ProtocolViolation, no more."""
    with pytest.raises(ProtocolViolation):
        decode(body)


def test_random_damage_is_a_message_or_a_refusal() -> None:
    """Mutated messages never raise anything but ProtocolViolation."""
    chooser = random.Random(7)
    for _ in range(20_000):
        body = bytearray(encode(chooser.choice(MESSAGES)))
        for _ in range(chooser.randint(1, 4)):
            body[chooser.randrange(len(body))] = chooser.randrange(256)
        try:
            decode(bytes(body))
        except ProtocolViolation:
            pass


def log_of(tmp_path: Path, terms: list[int], first: int = 1) -> RaftJournal:
    """A journal with entries of these terms."""
    journal = RaftJournal(tmp_path / "journal")
    journal.replace([JournalEntry(b"\0", first + offset, term) for offset, term in enumerate(terms)])
    return journal


def append_of(previous_index: int, previous_term: int, terms: list[int]) -> Append:
    """An append of entries of these terms."""
    entries = [JournalEntry(b"\0", previous_index + 1 + offset, term) for offset, term in enumerate(terms)]
    return Append(9, 0, previous_index, previous_term, tuple(entries))


@pytest.mark.parametrize(
    ("terms", "message", "expected"),
    [
        ([1, 1, 2], append_of(3, 2, [2, 2]), (3, 2, [4, 5], False)),  # new entries
        ([1, 1, 2], append_of(3, 2, []), (3, 2, [], False)),  # heartbeat at the end
        ([1, 1, 2, 2], append_of(2, 1, [2]), (3, 2, [], True)),  # repeated, and there is more: kept
        ([1, 1, 2, 2], append_of(2, 1, []), (2, 1, [], True)),  # an old heartbeat: kept
        ([1, 1, 2, 2], append_of(2, 1, [2, 2, 3]), (4, 2, [5], False)),  # overlap: only the new one
        ([1, 1, 2, 2], append_of(2, 1, [2, 3]), (3, 2, [4], False)),  # conflict at 4
        ([1, 1], append_of(2, 2, [2]), (2, 2, [3], False)),  # previous disagrees: refused as it is
        ([1, 1], append_of(5, 1, [1]), (5, 1, [6], False)),  # previous is missing: refused as it is
    ],
)
def test_only_conflicts_are_cut(
    tmp_path: Path, terms: list[int], message: Append, expected: tuple[int, int, list[int], bool]
) -> None:
    """Entries that are here already are skipped, and a tail that the leader did not contradict stays."""
    settled = settle(log_of(tmp_path, terms), message)
    found = (settled.previous_index, settled.previous_term, [e.log_index for e in settled.entries], settled.keeps_tail)
    assert found == expected
