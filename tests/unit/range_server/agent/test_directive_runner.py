"""Directives on a range server: each is tried until it is done, as it was said last."""

from __future__ import annotations

import asyncio

import pytest

from rangelog_core.errors import Unavailable
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.agent.directives import runner as module
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
