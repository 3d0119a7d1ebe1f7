"""Ports of local clusters: free ones, and not those that another process is about to use."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from rangelog_cli.local import ports
from rangelog_cli.local.ports import BLOCK_PORTS, LOOPBACK, free_ports
from rangelog_core.errors import Unavailable

CHOOSER = "from rangelog_cli.local.ports import free_ports; print(*free_ports(200), flush=True); input()"


def test_processes_that_choose_at_once_choose_different_ports() -> None:
    """Each has a block of its own as long as it runs."""
    choosers = [
        subprocess.Popen([sys.executable, "-c", CHOOSER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    chosen = [{int(each) for each in chooser.stdout.readline().split()} for chooser in choosers if chooser.stdout]
    for chooser in choosers:
        chooser.communicate("\n", timeout=30)
    chosen.append({*free_ports(200)})
    assert [len(each) for each in chosen] == [200] * 4
    assert len(set.union(*chosen)) == 800


def test_no_port_comes_again_soon() -> None:
    """A client of a cluster that is gone may still try its ports."""
    first, second = free_ports(BLOCK_PORTS // 4), free_ports(BLOCK_PORTS // 4)
    assert not {*first} & {*second}


def test_busy_and_taken_ports_are_passed_over() -> None:
    """Those that somebody listens on, and those of members that do not run now."""
    (port,) = free_ports(1)
    with socket.socket() as busy:
        busy.bind((LOOPBACK, port + 1))
        busy.listen(1)
        found = free_ports(BLOCK_PORTS // 2, taken=[port + 2])
    assert not {port + 1, port + 2} & {*found}


def test_without_a_block_ports_are_chosen_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files cannot be locked."""
    monkeypatch.setattr(ports, "_BLOCK", block := ports._Block())
    monkeypatch.setattr(block, "_lock", lambda: False)
    assert len({*free_ports(20)}) == 20


def test_no_free_port_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to do."""
    monkeypatch.setattr(ports, "is_free", lambda _port: False)
    with pytest.raises(Unavailable, match="stop something"):
        free_ports(1)
