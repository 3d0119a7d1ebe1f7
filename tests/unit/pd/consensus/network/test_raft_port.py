"""The Raft port lets in members that know the secret, and nobody else gets anything out of it or into it."""

from __future__ import annotations

import asyncio
import importlib
import os
import pickle
import socket
import struct
import threading
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rangelog_core.errors import (
    InternalError,
    InvalidArgument,
    ProtocolViolation,
    Unauthorized,
    Unavailable,
)
from rangelog_pd.consensus.network import dialing
from rangelog_pd.consensus.network.connection import SEND_QUEUE_BYTES_MAX, PeerConnection
from rangelog_pd.consensus.network.handshake import (
    MemberIdentity,
    SessionKeys,
    dial,
    group_digest,
    listen,
)
from rangelog_pd.consensus.network.messages import FRAME_BYTES_MAX
from rangelog_pd.consensus.pysyncobj_consensus import PySyncObjConsensus
from rangelog_pd.consensus.rules import pysyncobj_seams

GROUP = group_digest(["a", "b"])
SECRET = b"the shared secret"


class Evil:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (str(self.path), "w"))


class Nothing:
    """A state without content."""

    def apply(self, index: int, command: bytes) -> bytes:
        """Nothing."""
        return []

    def freeze(self) -> list[bytes]:
        """Nothing."""
        return []

    def restore(self, data: bytes) -> None:
        """Nothing."""


def meet(dialer: MemberIdentity, listener: MemberIdentity, *, wanted: str = "b") -> tuple[object, object]:
    """Run both ends; each result is the keys (with the peer's name) or the error."""
    left, right = socket.socketpair()
    results: list[object] = [None, None]

    def run_dialer() -> None:
        try:
            results[0] = dial(left, dialer, wanted, timeout_s=1.0)
        except (Unauthorized, Unavailable) as error:
            results[0] = error
            left.close()

    thread = threading.Thread(target=run_dialer)
    thread.start()
    try:
        results[1] = listen(right, listener, timeout_s=1.0)
    except (Unauthorized, Unavailable) as error:
        results[1] = error
        right.close()
    thread.join()
    left.close()
    right.close()
    return results[0], results[1]


def test_members_with_the_secret_agree_on_keys() -> None:
    """Both prove themselves; one's send key is the other's receive key; the next session has others."""
    identities = MemberIdentity("a", GROUP, SECRET), MemberIdentity("b", GROUP, SECRET)
    keys, answer = meet(*identities)
    assert isinstance(keys, SessionKeys) and isinstance(answer, tuple)
    peer, other = answer
    assert (peer, other.send, other.receive) == ("a", keys.receive, keys.send)
    again, _ = meet(*identities)
    assert isinstance(again, SessionKeys) and again.send != keys.send


@pytest.mark.parametrize(
    ("dialer", "wanted"),
    [
        (MemberIdentity("a", GROUP, b"another secret"), "b"),
        (MemberIdentity("a", group_digest(["a", "b", "c"]), SECRET), "b"),
        (MemberIdentity("b", GROUP, SECRET), "b"),
        (MemberIdentity("a", GROUP, SECRET), "c"),
    ],
    ids=["secret", "group", "itself", "wrong address"],
)
def test_others_are_refused(dialer: MemberIdentity, wanted: str) -> None:
    """Another secret, another group, this member itself and who looks for another member get no keys, on either end."""
    keys, answer = meet(dialer, MemberIdentity("b", GROUP, SECRET), wanted=wanted)
    assert isinstance(keys, Unavailable | Unauthorized)
    assert isinstance(answer, Unauthorized)


def test_a_member_that_is_not_known_yet_gets_in() -> None:
    """It may have been added by a change that this member has not heard of; the rules decide what it may say."""
    keys, answer = meet(MemberIdentity("new", GROUP, SECRET), MemberIdentity("b", GROUP, SECRET))
    assert isinstance(keys, SessionKeys) and isinstance(answer, tuple) and answer[0] == "new"


def test_a_listener_without_the_secret_is_found_out() -> None:
    """A dialer does not take a listener at its word."""
    left, right = socket.socketpair()

    def impostor() -> None:
        right.recv(4096)
        right.sendall(bytes(32))
        right.recv(4096)
        right.sendall(bytes(32))

    thread = threading.Thread(target=impostor)
    thread.start()
    with pytest.raises(Unauthorized):
        dial(left, MemberIdentity("a", GROUP, SECRET), "b", timeout_s=1.0)
    thread.join()
    left.close()
    right.close()


def connections() -> tuple[PeerConnection, PeerConnection, socket.socket]:
    """Two ends of an authenticated connection, and the raw socket of the first."""
    listener = socket.create_server(("127.0.0.1", 0))
    left = socket.create_connection(listener.getsockname())
    right, _ = listener.accept()
    listener.close()
    return (
        PeerConnection("b", left, SessionKeys(b"1" * 32, b"2" * 32)),
        PeerConnection("a", right, SessionKeys(b"2" * 32, b"1" * 32)),
        left,
    )


def receive(connection: PeerConnection, count: int) -> list[bytes]:
    """Read until `count` frames came."""
    frames: list[bytes] = []
    deadline_s = time.monotonic() + 5
    while len(frames) < count and time.monotonic() < deadline_s:
        connection.read(frames.append)
    return frames


def test_frames_arrive_whole_and_in_order() -> None:
    """Small and large frames, written piecemeal, come out as they went in."""
    left, right, _ = connections()
    bodies = [b"", b"x", os.urandom(FRAME_BYTES_MAX), b"y" * 1000]
    for body in bodies:
        left.queue(body, needs_flush=False)
    frames: list[bytes] = []
    while len(frames) < len(bodies):
        left.write()
        right.read(frames.append)
    assert frames == bodies
    left.close()
    right.close()


@pytest.mark.parametrize("announced", [FRAME_BYTES_MAX + 1, 2**31 - 1, 2**32 - 1])
def test_an_oversized_frame_is_refused_at_its_head(announced: int) -> None:
    """The length is enough: nothing of the body is waited for or kept."""
    left, right, raw = connections()
    raw.sendall(struct.pack("<I16s", announced, bytes(16)))
    with pytest.raises(ProtocolViolation):
        receive(right, 1)
    left.close()
    right.close()


def test_an_altered_or_repeated_frame_ends_the_connection() -> None:
    """A keyed checksum with the frame's number covers each frame."""
    for attack in ("altered", "repeated"):
        left, right, raw = connections()
        left.queue(b"hello", needs_flush=False)
        frame = bytearray(left._queued)
        if attack == "altered":
            frame[-1] ^= 1
        else:
            frame = frame * 2
        raw.sendall(frame)
        with pytest.raises(ProtocolViolation):
            receive(right, 2)
        left.close()
        right.close()


def test_a_peer_that_does_not_read_is_given_up() -> None:
    """What waits to be sent is bounded."""
    left, right, _ = connections()
    with pytest.raises(Unavailable):
        for _ in range(SEND_QUEUE_BYTES_MAX // FRAME_BYTES_MAX + 40):
            left.queue(bytes(FRAME_BYTES_MAX), needs_flush=False)
    assert left.backlog_bytes <= SEND_QUEUE_BYTES_MAX + FRAME_BYTES_MAX
    left.close()
    right.close()


@pytest.fixture
def _short_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger has half a second, so that a test waits no longer for the end of it."""
    monkeypatch.setattr(dialing, "HANDSHAKE_TIMEOUT_S", 0.5)


@pytest.fixture
async def member(_short_handshake: None, tmp_path: Path) -> AsyncIterator[tuple[PySyncObjConsensus, tuple[str, int]]]:
    """A member of two that waits for the other, and its Raft address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    members = {"a": "127.0.0.1:1", "b": f"127.0.0.1:{address[1]}"}
    consensus = PySyncObjConsensus("b", members, tmp_path / "b", Nothing(), secret=SECRET.decode())
    await consensus.start()
    yield consensus, address
    await consensus.close()


async def poke(address: tuple[str, int], data: bytes) -> bytes:
    """Send bytes to the Raft port and return what it answers until it hangs up."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    try:
        async with asyncio.timeout(30):
            return await reader.read(1 << 20)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_pickles_and_garbage_on_the_raft_port_do_nothing(
    member: tuple[PySyncObjConsensus, tuple[str, int]], tmp_path: Path
) -> None:
    """A pickle that would make a file, as pysyncobj frames it, raw, or behind our own greeting, makes none."""
    consensus, address = member
    target = tmp_path / "made by a pickle"
    evil = pickle.dumps(Evil(target))
    packed = zlib.compress(evil)
    framed = struct.pack("i", len(packed)) + packed
    for data in (framed, evil, b"RLRAFT01" + evil, os.urandom(4096), b"\xff" * 100_000, b"GET / HTTP/1.1\r\n\r\n"):
        answer = await poke(address, data)
        assert len(answer) <= 32, "nothing but a nonce is ever said to a stranger"
    assert not target.exists()
    assert consensus.status().members[0].reachable is False


async def test_silent_strangers_do_not_keep_the_port(member: tuple[PySyncObjConsensus, tuple[str, int]]) -> None:
    """Connections that say nothing are hung up on after the handshake's deadline, and more than a few at once."""
    _, address = member
    answers = await asyncio.gather(*(poke(address, b"") for _ in range(dialing.HANDSHAKES_MAX * 3)))
    assert set(answers) == {b""}


async def test_a_taken_port_is_one_clear_error(
    member: tuple[PySyncObjConsensus, tuple[str, int]], tmp_path: Path
) -> None:
    """A second listener on the same address raises Unavailable that names it."""
    _, address = member
    members = {"a": f"127.0.0.1:{address[1]}", "b": "127.0.0.1:1"}
    second = PySyncObjConsensus("a", members, tmp_path / "a", Nothing(), secret=SECRET.decode())
    with pytest.raises(Unavailable, match=str(address[1])):
        await second.start()
    await second.close()


def test_bad_configurations_are_refused(tmp_path: Path) -> None:
    """No secret, an unknown name and a bad address are typed errors before anything is opened."""
    members = {"a": "127.0.0.1:1", "b": "127.0.0.1:2"}
    for name, group, secret in (
        ("c", members, "long enough"),
        ("a", members, "short"),
        ("a", {**members, "b": "nowhere"}, "long enough"),
    ):
        with pytest.raises(InvalidArgument):
            PySyncObjConsensus(name, group, tmp_path, Nothing(), secret=secret)
    assert list(tmp_path.iterdir()) == []


def test_pickle_is_cut_off() -> None:
    """Whoever calls the library's pickle functions gets an error instead."""
    pysyncobj_seams.prepare()
    module_names = ("pysyncobj.pickle", "pysyncobj.journal")
    modules: list[Any] = [importlib.import_module(name) for name in module_names]
    for module in (*modules, importlib.import_module("pysyncobj.syncobj").pickle):
        for name in ("loads", "dumps"):
            with pytest.raises(InternalError):
                getattr(module, name)(pickle.dumps(1))
    with pytest.raises(InternalError):
        modules[0].load(None)


def test_an_untested_library_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The private seams were read in one version: another one is an error at start, not a surprise later."""
    monkeypatch.setattr(pysyncobj_seams, "VERSION", "0.3.99")
    with pytest.raises(InternalError, match=r"0\.3\.99"):
        pysyncobj_seams.prepare()
    monkeypatch.setattr(pysyncobj_seams, "VERSION", pysyncobj_seams.TESTED_VERSIONS[0])
    monkeypatch.setattr(pysyncobj_seams, "_PRIVATE_NAMES", ("noSuchName",))
    with pytest.raises(InternalError, match="noSuchName"):
        pysyncobj_seams.prepare()
