"""The placement drivers' disk and what members say to each other: journal, vote file, snapshot file, messages, handshake."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from functools import cache
from pathlib import Path
from random import Random

import google_crc32c

from rangelog_core.errors import Corruption
from rangelog_pd.consensus.files import hard_state, snapshot_file
from rangelog_pd.consensus.files.journal import INDEX_MAX, JournalEntry, RaftJournal
from rangelog_pd.consensus.files.packing import pack, unpack
from rangelog_pd.consensus.files.snapshot_file import Snapshot
from rangelog_pd.consensus.network import messages
from rangelog_pd.consensus.network.connection import PeerConnection
from rangelog_pd.consensus.network.handshake import MemberIdentity, SessionKeys, group_digest, listen
from rangelog_pd.consensus.rules.snapshots import Snapshots
from tests.fakes.directory import Directory
from tests.fakes.faces import RaftDisk
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import BORDERS, fields_changed

PATH = Path("/raft/file")


def holding(data: bytes) -> RaftDisk:
    """A disk on which the file is."""
    return RaftDisk(Directory.of({PATH.name: data}))


# ---- journal

_HEAD_BYTES, _RECORD_BYTES = 16, 32
_RECORD_FIELDS = ((0, 4), (4, 4), (8, 8), (16, 8), (24, 8))


@cache
def journal_seeds() -> tuple[bytes, ...]:
    """Journals as members leave them: empty, grown, cut and gone on, trimmed at the head."""
    seeds = []
    for first, cut in ((1, 0), (1, 0), (1, 5), (40, 0)):
        files = RaftDisk()
        journal = RaftJournal(PATH, files=files)
        for index in range(first, first + (0 if not seeds else 8)):
            journal.append(b"\0" + bytes(index % 3) * index, index, 1 + index // 4)
            if index % 2:
                journal.sync()
        if cut:
            journal.truncate_from(cut)
            journal.append(b"\0other", cut, 9)
            journal.sync()
        seeds.append(bytes(files.content(PATH.name)))
    return tuple(seeds)


def record_starts(data: bytes) -> list[int]:
    """Where records seem to start."""
    starts = []
    position = _HEAD_BYTES
    while position + _RECORD_BYTES <= len(data) and len(starts) < 100:
        starts.append(position)
        position += _RECORD_BYTES + int.from_bytes(data[position : position + 4], "little")
    return starts


def change_record(data: bytes, random: Random) -> bytes:
    """Other numbers in a record's head."""
    starts = record_starts(data)
    return fields_changed(data, random, _RECORD_FIELDS, random.choice(starts)) if starts else data


def repair_journal(data: bytes, random: Random) -> bytes:
    """Make the records' checksums fit."""
    fixed = bytearray(data)
    for start in record_starts(data):
        end = start + _RECORD_BYTES + int.from_bytes(fixed[start : start + 4], "little")
        crc = google_crc32c.extend(google_crc32c.value(bytes(fixed[start : start + 4])), bytes(fixed[start + 8 : end]))
        struct.pack_into("<I", fixed, start + 4, crc)
    return bytes(fixed)


def run_journal(data: bytes) -> bool:
    """What is recovered is dense, and is there again after the next start; a cut tail stays cut."""
    files = holding(data)
    journal = RaftJournal(PATH, files=files)
    entries = list(journal.entries)
    for before, after in itertools.pairwise(entries):
        assert after.log_index == before.log_index + 1
        assert after.term >= before.term
    assert data.startswith(bytes(files.content(PATH.name)))
    term = entries[-1].term if entries else 1
    if journal.last_index == INDEX_MAX:
        return True
    journal.append(b"\0next", journal.last_index + 1, term)
    journal.sync()
    again = RaftJournal(PATH, files=files, must_hold=journal.last_index)
    assert list(again.entries) == [*entries, journal.entries[-1]]
    again.drop_before(again.last_index)
    assert list(RaftJournal(PATH, files=files).entries) == [journal.entries[-1]]
    return True


# ---- vote file and snapshot file


def vote_seeds() -> list[bytes]:
    """Vote files."""
    seeds = []
    for state in (
        hard_state.HardState("pd1"),
        hard_state.HardState("pd1", 7, "pd2", 90, 100, voter=True),
        hard_state.HardState("x" * 200, (1 << 63) - 1, None, 1, 1),
    ):
        files = RaftDisk()
        hard_state.store(PATH, state, files=files)
        seeds.append(bytes(files.content(PATH.name)))
    return [*seeds, repair_vote(seeds[0][:16] + deep_arrays(4_000, 500), Random(1))]


def deep_arrays(size_bytes: int, depth: int) -> bytes:
    """Arrays in arrays, each of which announces as many elements as there are bytes."""
    nested = (b"\xdd" + struct.pack(">I", max(1, size_bytes - 10 * depth))) * depth
    return nested + b"\0" * max(0, size_bytes - len(nested))


def repair_vote(data: bytes, random: Random) -> bytes:
    """Make length and checksum fit."""
    if len(data) < 16:
        return data
    body = data[16:]
    return data[:8] + struct.pack("<II", google_crc32c.value(body), len(body)) + body


def run_vote(data: bytes) -> bool:
    """What is read is what is written again, and it is of the right kinds."""
    state = hard_state.load(PATH, files=holding(data))
    assert state is not None
    files = RaftDisk()
    hard_state.store(PATH, state, files=files)
    assert hard_state.load(PATH, files=files) == state
    assert min(state.term, state.commit_index, state.durable_index) >= 0
    return True


def snapshot_seeds() -> list[bytes]:
    """Snapshot files."""
    snapshots = (
        Snapshot(JournalEntry(b"\0a", 8, 2), JournalEntry(b"\1", 9, 3), b"state" * 20),
        Snapshot(JournalEntry(b"\1", 1, 1), JournalEntry(b"\0", 2, 1), b""),
    )
    return [b"".join(snapshot_file.encode(each)) for each in snapshots]


def change_snapshot(data: bytes, random: Random) -> bytes:
    """Other numbers in its head."""
    places = ((8, 4), (16, 8), (24, 8), (32, 4), (36, 8), (44, 8), (52, 4), (56, 8))
    return fields_changed(data, random, places)


def repair_snapshot(data: bytes, random: Random) -> bytes:
    """Make the checksum fit."""
    return data[:12] + struct.pack("<I", google_crc32c.value(data[16:])) + data[16:] if len(data) >= 16 else data


def run_snapshot(data: bytes) -> bool:
    """What is decoded encodes to the same bytes, and a journal can go on from it."""
    snapshot = snapshot_file.decode(data, source="fuzz")
    assert b"".join(snapshot_file.encode(snapshot)) == data
    assert snapshot.last.log_index == snapshot.previous.log_index + 1 == snapshot_file.last_index_of(data)
    files = RaftDisk()
    journal = RaftJournal(PATH, files=files)
    snapshot_file.align(journal, snapshot)
    assert list(RaftJournal(PATH, files=files).entries) == list(journal.entries)
    return True


# ---- messages

_ENTRIES = (JournalEntry(b"\0one", 8, 2), JournalEntry(b"\1", 9, 3), JournalEntry(b"\0" + bytes(100), 10, 3))


def message_seeds() -> list[bytes]:
    """Every message there is, and two that want to allocate."""
    said: tuple[messages.Message, ...] = (
        messages.Ping(),
        messages.VoteRequest(5, 10, 4, 9),
        messages.Vote(5),
        messages.Append(3, 7, 7, 2, _ENTRIES),
        messages.Append(3, 7, 7, 2, ()),
        messages.SnapshotChunk(3, 7, b"data", first=True, last=True),
        messages.Position(3, 8, reset=False, success=True),
        messages.TakeOver(3),
    )
    return [
        *map(messages.encode, said),
        deep_arrays(messages.FRAME_BYTES_MAX, 1_000),
        deep_arrays(messages.FRAME_BYTES_MAX, 30),
    ]


def change_message(data: bytes, random: Random) -> bytes:
    """Another value for one of its fields, or for one of an entry's."""
    if len(data) > 4_096:
        return data[: random.randrange(len(data))]
    try:
        fields = unpack(data)
    except Exception:  # spoiled before
        return data
    values = (
        *(each for each in BORDERS if each < 1 << 64),
        -1,
        None,
        True,
        "x",
        b"",
        b"\0x",
        b"\2x",
        [],
        [b"\0", 1],
        [[b"\0c", 2]],
    )
    target: list[object] = fields
    inner = [each for each in fields if isinstance(each, list)]
    if inner and random.random() < 0.5:
        target = random.choice(inner)
        entries = [each for each in target if isinstance(each, list)]
        if entries and random.random() < 0.7:
            target = random.choice(entries)
    kind = random.randrange(4)
    if kind == 0 or not target:
        target.append(random.choice(values))
    elif kind == 1:
        del target[random.randrange(len(target))]
    else:
        target[random.randrange(len(target))] = random.choice(values)
    return pack(fields)


def run_message(data: bytes) -> bool:
    """A message that is understood says the same when it is said again, and its entries fit a journal."""
    message = messages.decode(data)
    assert messages.decode(messages.encode(message)) == message
    if isinstance(message, messages.Append):
        terms = [entry.term for entry in message.entries]
        assert terms == sorted(terms)
        journal = RaftJournal(PATH, files=RaftDisk())
        for entry in message.entries:
            journal.append(entry.command, entry.log_index, entry.term)
    if isinstance(message, messages.SnapshotChunk):
        receiver = Snapshots(PATH, None, threading.Lock(), files=RaftDisk())  # type: ignore[arg-type]
        receiver.receive(message.data, first=message.first, last=message.last)
    return True


# ---- the connection: handshake and frames

_KEYS = SessionKeys(b"k" * 32, b"k" * 32)
_IDENTITY = MemberIdentity("pd1", group_digest(["pd1", "pd2"]), b"s" * 16)


def hello_seeds() -> list[bytes]:
    """A greeting, and one with a proof that cannot be right."""
    hello = b"RLRAFT01\x03\x03pd2pd1" + _IDENTITY.group + b"n" * 32
    return [hello, hello + b"p" * 32]


def run_hello(data: bytes) -> bool:
    """Nobody without the secret gets in, whatever it says; nothing is read beyond the fixed sizes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        listen(ours, _IDENTITY, timeout_s=2.0)
    raise AssertionError("a stranger got in")


class Given:
    """A socket that has these bytes and no more."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def setblocking(self, flag: bool) -> None:
        """Nothing to do."""

    def setsockopt(self, *option: int) -> None:
        """Nothing to do."""

    def recv(self, count: int) -> bytes:
        """The next bytes."""
        data, self._data = self._data[:count], self._data[count:]
        if not data:
            raise BlockingIOError
        return data


def mac_of(number: int, body: bytes) -> bytes:
    """The checksum of a frame, as the connection makes it."""
    from rangelog_pd.consensus.network.connection import _mac

    return _mac(_KEYS.receive, number, body)


def link_seeds() -> list[bytes]:
    """Frames of one connection."""
    bodies = message_seeds()[:8]
    framed = [struct.pack("<I16s", len(body), mac_of(number, body)) + body for number, body in enumerate(bodies)]
    return [b"".join(framed), framed[0], struct.pack("<I16s", messages.FRAME_BYTES_MAX, bytes(16))]


def repair_link(data: bytes, random: Random) -> bytes:
    """Make the frames' checksums fit."""
    fixed = bytearray(data)
    position = number = 0
    while position + 20 <= len(fixed):
        (length,) = struct.unpack_from("<I", fixed, position)
        body = bytes(fixed[position + 20 : position + 20 + length])
        fixed[position + 4 : position + 20] = mac_of(number, body)
        position, number = position + 20 + length, number + 1
    return bytes(fixed)


def run_link(data: bytes) -> bool:
    """Only frames of the right checksum and number are handed on."""
    taken: list[bytes] = []
    PeerConnection("pd2", Given(data), _KEYS).read(taken.append)  # type: ignore[arg-type]
    expected = b"".join(struct.pack("<I16s", len(body), mac_of(i, body)) + body for i, body in enumerate(taken))
    assert data.startswith(expected)
    return bool(taken)


def run_packed(data: bytes) -> bool:
    """Packed lists pack to something that is the same list."""
    fields = unpack(data)
    assert unpack(pack(fields)) == fields
    return True


TARGETS = (
    Target("pd-journal", journal_seeds, run_journal, repair_journal, (change_record,), plain_share=0.25),
    Target("pd-vote", vote_seeds, run_vote, repair_vote),
    Target("pd-snapshot-file", snapshot_seeds, run_snapshot, repair_snapshot, (change_snapshot,)),
    Target("raft-message", message_seeds, run_message, None, (change_message,), peak_bytes_max=90 * MIB, ci_inputs=37),
    Target("raft-packing", message_seeds, run_packed, None, (change_message,), peak_bytes_max=90 * MIB, ci_inputs=37),
    Target("raft-hello", hello_seeds, run_hello, ci_inputs=37),
    Target("raft-link", link_seeds, run_link, repair_link, ci_inputs=50),
)
__all__ = ["TARGETS", "Corruption", "holding"]
