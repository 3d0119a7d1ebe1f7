"""Directives on a range server: each is tried until it is done, as it was said last."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from rangelog_core.errors import ProtocolViolation, Unavailable
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.agent.directives import copy as copy_module
from rangelog_server.agent.directives import runner as module
from rangelog_server.agent.directives.copy import Copier, SourcesFailed
from rangelog_server.agent.directives.runner import DirectiveRunner


def copy_from(server: str) -> pb.Directive:
    """One task, whose source changes."""
    directive = pb.Directive(task_id="copy-1/0", stream_id=1)
    directive.copy_replica.CopyFrom(pb.CopyReplica(sources=[common_pb2.Replica(server=server)]))
    return directive


async def test_a_task_that_fails_goes_on_with_what_was_said_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source it was given first is gone for good; the placement driver names another one, and that is asked."""
    monkeypatch.setattr(module, "BACKOFF_S", 0.001)
    asked: list[str] = []
    finished = asyncio.Event()
    failed = asyncio.Event()

    async def copy(directive: pb.Directive) -> None:
        source = directive.copy_replica.sources[0].server
        asked.append(source)
        if source == "gone":
            failed.set()
            raise Unavailable("gone is another incarnation by now")

    tasks = DirectiveRunner({"copy_replica": copy}, finished.set)
    tasks.wanted([copy_from("gone")])
    async with asyncio.timeout(5):
        await failed.wait()
        tasks.wanted([copy_from("here")])
        await finished.wait()
    assert asked[-1] == "here"
    assert [(report.done, report.error) for report in tasks.reports()] == [(True, "")]
    await tasks.close()


async def test_peers_that_failed_are_reported_until_the_task_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The placement driver learns which servers were no source at the last attempt, and nothing of earlier ones."""
    monkeypatch.setattr(module, "BACKOFF_S", 0.001)
    reports: list[list[str]] = []
    finished = asyncio.Event()
    attempts = 0

    async def copy(directive: pb.Directive) -> None:
        nonlocal attempts
        attempts += 1
        reports.extend(list(each.failed_servers) for each in tasks.reports())
        if attempts == 1:
            error = SourcesFailed("not whole yet")
            error.servers = ("rs2", "rs3")
            raise error
        if attempts == 2:
            raise Unavailable("the disk is busy")

    tasks = DirectiveRunner({"copy_replica": copy}, finished.set)
    tasks.wanted([copy_from("rs2")])
    async with asyncio.timeout(5):
        await finished.wait()
    reports.extend(list(each.failed_servers) for each in tasks.reports())
    assert reports == [[], ["rs2", "rs3"], [], []]
    await tasks.close()


async def test_a_copy_names_the_sources_that_did_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source is tried; one that answers with a final error is not complained about, one without an answer is."""
    hosted = SimpleNamespace(core=SimpleNamespace(complete=False))
    store = SimpleNamespace(replicas={}, find=lambda *_: hosted)
    copier = Copier(store, SimpleNamespace(), SimpleNamespace(name="rs1", incarnation=1))  # type: ignore[arg-type]

    async def end(*_: object) -> None:
        return None

    async def fail(_: object, source: common_pb2.Replica, __: int) -> None:
        raise Unavailable("no answer") if source.server == "slow" else ProtocolViolation("another range")

    monkeypatch.setattr(copy_module, "commit_end", end)
    monkeypatch.setattr(copier, "_copy_from", fail)
    directive = copy_from("slow")
    directive.copy_replica.sources.add(server="strange")
    with pytest.raises(SourcesFailed, match="strange: another range") as raised:
        await copier.copy_replica(directive)
    assert raised.value.servers == ("slow",) and raised.value.code == Unavailable.code
