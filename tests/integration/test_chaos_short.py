"""The short form of `make chaos`: some kinds of faults, once each, on a real cluster under load; nothing acked is lost."""

from __future__ import annotations

import os
import random
import socket
import time
from pathlib import Path

import pytest

from rangelog_core.net.owner_calls import JOURNALS
from tests.chaos import chaos_engine, chaos_report, chaos_vanished
from tests.chaos.chaos_faults import REGISTRY
from tests.chaos.chaos_proxy import DelayProxy
from tests.simulation.fresh_seeds import commit_id, fresh_seed

pytestmark = [pytest.mark.integration, pytest.mark.alone, pytest.mark.timeout(600)]

KINDS = (
    "range-server-killed",
    "pd-leader-killed",
    "everything-killed",
    "writer-paused",
    "range-server-cut-off",
    "flush-fails",
    "disk-lost",
)
NOT_EVERYWHERE = {"range-server-cut-off", "flush-fails"}
"""They need a network namespace and strace."""
OF_A_COMMIT = 3


def test_nothing_acked_is_lost_under_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kinds drawn from the commit's id, each in its turn, amid load: all acked is read back, once, in order."""
    seed = fresh_seed(commit_id())
    kinds = random.Random(seed).sample(KINDS, OF_A_COMMIT)
    said: list[str] = []
    result = chaos_engine.run(tmp_path / "run", kinds, 1, seed, said.append)
    with capsys.disabled():
        print(f"\n{result.last_line}")
    assert result.clean, "\n".join([*said, result.text])
    assert result.figures["faults"] >= len({*kinds} - NOT_EVERYWHERE), said
    assert result.figures["acked"] == result.figures["final"] - result.figures["unknown_found"]
    assert result.figures["read"] > 0
    assert result.figures["takeovers"] == ("writer-paused" in kinds)
    assert result.figures["opened_again"] > JOURNALS


def test_the_gap_around_a_fault_is_the_longest_pause_that_reaches_into_it() -> None:
    """Pauses before and after the fault do not count; one that begins before it, or ends after it, does, in full."""
    acks_ns = [ms * 1_000_000 for ms in (0, 500, 600, 610, 900, 910, 5_000)]
    assert chaos_report.ack_gap_ms(acks_ns, 605_000_000, 905_000_000) == 290
    assert chaos_report.ack_gap_ms(acks_ns, 100_000_000, 200_000_000) == 500
    assert chaos_report.ack_gap_ms(acks_ns, 905_000_000, 1_000_000_000) == 4_090
    assert chaos_report.ack_gap_ms([], 0, 1) == 0


def test_every_kind_comes_as_often_as_asked() -> None:
    """The order is drawn, the numbers are not; the same seed gives the same order."""
    kinds = list(REGISTRY)
    order = chaos_engine.schedule(kinds, 5, random.Random(1))
    assert order == chaos_engine.schedule(kinds, 5, random.Random(1))
    assert min(order.count(kind) for kind in kinds) == 5


def test_what_goes_through_the_proxy_arrives_whole_and_late() -> None:
    """Both ways, in order, no earlier than it may; the end of one side is the end of the other."""
    with (
        socket.create_server(("127.0.0.1", 0)) as target,
        socket.create_server(("127.0.0.1", 0)) as listener,
        DelayProxy(0.05) as proxy,
    ):
        proxy.forward(listener.dup(), target.getsockname()[:2])
        with socket.create_connection(listener.getsockname()[:2]) as near, target.accept()[0] as far:
            began = time.monotonic()
            near.sendall(b"ping" * 10_000)
            near.shutdown(socket.SHUT_WR)
            assert b"".join(iter(lambda: far.recv(1 << 16), b"")) == b"ping" * 10_000
            assert time.monotonic() - began >= 0.05
            far.sendall(b"pong")
            far.shutdown(socket.SHUT_WR)
            assert b"".join(iter(lambda: near.recv(1 << 16), b"")) == b"pong"
            assert time.monotonic() - began >= 0.1


def test_connections_to_an_address_are_those_that_a_process_still_has() -> None:
    """One that is open counts, on either side; one that was closed does not, nor one to another address."""
    with socket.create_server(("127.0.0.9", 0)) as listener:
        before = chaos_vanished.connections_to("127.0.0.9", os.getpid())
        with socket.create_connection(listener.getsockname()[:2]):
            assert chaos_vanished.connections_to("127.0.0.9", os.getpid()) == before + 1
            assert chaos_vanished.connections_to("127.0.0.99", os.getpid()) == 0
        assert chaos_vanished.connections_to("127.0.0.9", os.getpid()) == before
