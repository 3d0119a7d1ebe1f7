"""Completion as a shell asks for it: nouns and verbs without a cluster, names with one, and silence where there is none."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pdctl.completing import _LISTS, _WORDS, Named
from pdctl.main import main
from rangelog import sync
from rangelog.context import write_context
from rangelog.testing import FakeCluster
from rangelog_core.errors import Unavailable
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.support.threads import within


def completed(line: str, shell: str = "bash", **env: str) -> list[str]:
    """What a shell offers for the last word of a line: names alone."""
    words = shlex.split(line)
    word = "" if line.endswith(" ") else words[-1]
    given = {
        "_PDCTL_COMPLETE": f"{shell}_complete", "COMP_WORDS": line,
        "COMP_CWORD": word if shell == "fish" else str(len(words) - (word != "")),
    }  # fmt: skip
    result = CliRunner().invoke(main, [], prog_name="pdctl", env=given | env)
    assert result.stderr == "" and result.exit_code == 0, result.output
    lines = result.stdout.strip("\n").splitlines()
    if shell == "zsh":
        return lines[1::3]  # each: kind, name, help
    return [each.partition(",")[2].partition("\t")[0] for each in lines]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[sync.Client]:
    """A cluster with something of everything, to which pdctl connects."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("RANGELOG_PD", "a:1")
    with FakeCluster(brokers=1) as fake, fake.sync_client() as client:
        for name in ("flights", "flights-copy", "logs"):
            client.create_stream(name)
        client.cursors("flights").set("billing", 0)
        client.topics.create_namespace("shop")
        for name in ("orders", "orders-old", "clicks", "shop/orders"):
            client.topics.create(name)
        client.tables.create("totals")
        with client.group("readers", "orders"):
            pass

        async def connect(*_: Any, **__: Any) -> Any:
            return fake.client()

        monkeypatch.setattr("rangelog.connect", connect)
        # What is asked here is the names: a busy machine may take more than a second.
        monkeypatch.setattr("pdctl.completing.ANSWER_S", 30.0)
        yield client


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("pdctl str", ["stream"]),
        ("pdctl stream show fl", ["flights", "flights-copy"]),
        ("pdctl stream read --limit 3 ", ["flights", "flights-copy", "logs"]),
        ("pdctl stream ls --context ", []),
        ("pdctl range list lo", ["logs"]),
        ("pdctl cursor get flights ", ["billing"]),
        ("pdctl topic show or", ["orders", "orders-old"]),
        ("pdctl topic consume ", ["clicks", "orders", "orders-old", "shop/"]),
        ("pdctl topic produce shop/", ["shop/orders"]),
        ("pdctl topic consume orders --group r", ["readers"]),
        ("pdctl shard list cl", ["clicks"]),
        ("pdctl table show t", ["totals"]),
        ("pdctl namespace delete sh", ["shop"]),
        ("pdctl group show ", ["readers"]),
        ("pdctl group lag re", ["readers"]),
        ("pdctl checkpoint list r", ["readers"]),
        ("pdctl stream create ", []),
        ("pdctl topic create ", []),
    ],
)
def test_names_are_those_of_the_cluster(cluster: sync.Client, line: str, offered: list[str]) -> None:
    """Each word names what its verb is about; a name that is to be new is not offered."""
    assert completed(line) == offered


def test_every_shell(cluster: sync.Client) -> None:
    """The three forms in which shells ask."""
    for shell in ("bash", "zsh", "fish"):
        assert completed("pdctl stream show fl", shell) == ["flights", "flights-copy"]


def test_names_of_servers_and_contexts(pd: Any) -> None:
    """Servers that are typed already are not offered again. The cluster is the one of --context, wherever that stands."""
    servers = [common_pb2.Server(name=name) for name in ("rs2", "rs1", "other")]
    pd.answers["list_servers"] = pd_pb2.ListServersResponse(servers=servers)
    write_context("prod", ["p:1"])
    write_context("local", ["l:1"])
    assert completed("pdctl context use ") == completed("pdctl --context ") == ["local", "prod"]
    assert completed("pdctl server list --context p") == ["prod"]
    assert completed("pdctl context add ") == []
    assert completed("pdctl server show rs") == ["rs1", "rs2"]
    assert completed("pdctl logs rs1 ") == ["other", "rs2"]
    assert completed("pdctl --context prod server show rs2") == ["rs2"]
    assert completed("pdctl server show --context prod --token t rs") == ["rs1", "rs2"]
    assert completed("pdctl server show --pd d:4 rs") == ["rs1", "rs2"]
    assert [(endpoints, token) for endpoints, token, _ in pd.opened] == [
        (["l:1"], None), (["l:1"], None), (["p:1"], None), (["p:1"], "t"), (["d:4"], None),
    ]  # fmt: skip


def test_nobody_there(pd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster is named, it refuses, or the file of contexts is damaged: nothing is offered, nothing is said."""
    assert completed("pdctl stream show ") == []
    pd.answers["list_servers"] = Unavailable("it is away")
    monkeypatch.setenv("RANGELOG_PD", "a:1")
    assert completed("pdctl server show ") == []
    write_context("x", ["c:3"]).write_text("{")
    assert completed("pdctl --context ") == completed("pdctl server show rs --context ") == []


@pytest.mark.parametrize(
    "asked_s_max", [pytest.param(math.inf, id="asked"), pytest.param(8.0, marks=pytest.mark.measure, id="a-second")]
)
def test_a_silent_cluster_is_asked_for_a_second(pd: Any, monkeypatch: pytest.MonkeyPatch, asked_s_max: float) -> None:
    """It takes the connection and says nothing. Measured: for how long."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.undo()
        monkeypatch.setenv("RANGELOG_PD", f"127.0.0.1:{silent.getsockname()[1]}")
        begun_s = time.monotonic()
        assert within(lambda: completed("pdctl stream show fl")) == []
        assert within(lambda: completed("pdctl server show rs")) == []
        assert time.monotonic() - begun_s < asked_s_max


def test_every_kind_has_names_and_every_entry_a_parameter() -> None:
    """A verb or argument that gets another name loses no completion unseen."""
    kinds = {kind for words in _WORDS.values() for kind in words.values()}
    assert kinds == set(_LISTS) | {"server", "context"}
    for path, words in _WORDS.items():
        command: Any = main.commands[path[0]]
        verbs = list(command.commands.values()) if hasattr(command, "commands") else [command]
        given = {
            word for each in verbs for param in each.params if isinstance(param.type, Named)
            for word in (param.name, param.opts[0])
        }  # fmt: skip
        assert set(words) <= given, path
