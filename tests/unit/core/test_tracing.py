"""Traces: nothing without an SDK; spans of what is done, across processes; no record and no secret in them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceState, use_span

from rangelog.testing import FakeCluster
from rangelog_broker.rest.guard import Guard
from rangelog_core import tracing
from rangelog_core.errors import Unauthorized, Unavailable
from rangelog_core.net.peer_client import PeerClient
from rangelog_proto.v1 import logs_pb2
from rangelog_server_common.grpc_server import GrpcServer
from tests.support.spans import Spans, recorded

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """The spans of this test."""
    with recorded(monkeypatch) as found:
        yield found


def _run(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_nothing_without_an_sdk() -> None:
    """Nothing is loaded, nothing is recorded, metadata stays the same object; the API alone records nothing either."""
    _run(
        "import sys, rangelog\n"
        "from rangelog_core import tracing\n"
        "metadata = (('authorization', 'x'),)\n"
        "def nothing():\n"
        "    assert not tracing.is_active() and tracing.begin('a') is None and tracing.with_context(metadata) is metadata\n"
        "    with tracing.span('a', key=1), tracing.served('b', [('traceparent', '…')]): pass\n"
        "nothing()\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
        "import opentelemetry.trace\n"
        "nothing()\n"
        "assert 'opentelemetry.sdk' not in sys.modules"
    )


def test_an_sdk_that_is_configured_later() -> None:
    """Is found by the next span."""
    _run(
        "import rangelog\n"
        "from rangelog_core import tracing\n"
        "assert not tracing.is_active()\n"
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "trace.set_tracer_provider(TracerProvider())\n"
        "assert tracing.is_active()\n"
        "with tracing.span('a'): assert len(tracing.with_context(())) == 1"
    )


def test_errors_go_on(spans: Spans) -> None:
    """Noted by code, without their message; what was cancelled did not fail."""
    for error in (Unavailable("secret place"), KeyError("secret key"), asyncio.CancelledError()):
        with pytest.raises(type(error)), tracing.span("work", stream="s"):
            raise error
    first, second, third = spans.named("work")
    assert [each.attributes["error.type"] for each in (first, second, third)] == [
        "UNAVAILABLE",
        "KeyError",
        "CANCELLED",
    ]
    assert first.status.status_code is StatusCode.ERROR and third.status.status_code is StatusCode.UNSET
    assert "secret" not in first.to_json() + second.to_json() and first.attributes["rangelog.stream"] == "s"


@pytest.mark.parametrize(
    "headers",
    [[], [("traceparent", "00-zz-1-01")], [("traceparent", "x" * 100_000)], [(b"traceparent", b"\xff")],
     [("traceparent", f"00-{'0' * 32}-b7ad6b7169203331-01")]],
)  # fmt: skip
def test_bad_headers_are_ignored(spans: Spans, headers: Any) -> None:
    """The request is served, in a trace of its own."""
    with tracing.served("call", headers):
        pass
    assert spans.one("call").parent is None


def test_an_endless_tracestate_is_not_passed_on(spans: Spans) -> None:
    """The trace goes on without it."""
    with tracing.served("call", [("traceparent", PARENT), ("tracestate", "a=" + "b" * 2_000)]):
        metadata = dict(tracing.with_context((("authorization", "x"),)))
    assert metadata["traceparent"].split("-")[1] == TRACE and "tracestate" not in metadata
    assert metadata["authorization"] == "x"


def test_no_endless_tracestate_of_this_process_goes_out(spans: Spans) -> None:
    """A server would refuse each call over its size."""
    context = SpanContext(1, 2, is_remote=False, trace_state=TraceState([(f"k{i}", "v" * 200) for i in range(32)]))
    with use_span(NonRecordingSpan(context)):
        metadata = dict(tracing.with_context((("authorization", "x"),)))
    assert set(metadata) == {"authorization", "traceparent"}


async def test_calls_are_parts_of_the_callers_trace(spans: Spans) -> None:
    """Over gRPC; a call that is refused for its token has no span at the server."""
    server = GrpcServer(token="t0ken")
    address = f"127.0.0.1:{await server.start('127.0.0.1:0', ())}"
    request = logs_pb2.ReadLogRequest(limit=1)
    with tracing.span("client"):
        async with PeerClient(address, "pd1", token="t0ken") as peer:
            await peer.read_log(request, timeout_s=5)
        async with PeerClient(address, "pd1") as peer:
            with pytest.raises(Unauthorized):
                await peer.read_log(request, timeout_s=5)
    await server.stop(0)
    served = spans.one("rangelog.v1.Logs/ReadLog")
    assert served.kind is SpanKind.SERVER and served.parent.span_id == spans.one("client").context.span_id
    assert "t0ken" not in served.to_json()


async def test_rest_requests_are_too(spans: Spans) -> None:
    """By the header traceparent."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None: ...

    headers = [(b"traceparent", PARENT.encode()), (b"authorization", b"Bearer t0ken")]
    scope = {"type": "http", "method": "GET", "path": "/v1/streams", "headers": headers}
    await Guard(app, token="t0ken")(scope, receive, send)
    served = spans.one("REST GET")
    assert f"{served.context.trace_id:032x}" == TRACE and served.attributes["rangelog.path"] == "/v1/streams"
    assert "t0ken" not in served.to_json()


async def test_a_stream(spans: Spans) -> None:
    """Opening, each batch (none per record), the reader; no record in any span; a batch that is never acked ends, too."""
    cluster = FakeCluster()
    async with cluster.client() as client:
        await client.create_stream("flights")
        async with client.writer("flights") as writer:
            for number in range(1_000):
                writer.append_nowait(b"secret-%d" % number)
            await writer.flush()
        read = [record.value async for record in client.reader("flights", start="earliest", follow=False)]
        assert len(read) == 1_000
        assert spans.one("rangelog.writer.open").attributes["rangelog.stream"] == "flights"
        batches = spans.named("rangelog.append")
        assert sum(each.attributes["rangelog.records"] for each in batches) == 1_000 and len(batches) < 100
        assert batches[0].attributes["rangelog.base_offset"] == 0
        assert all(each.status.status_code is StatusCode.UNSET for each in batches)
        for each in batches:  # this cluster has one server
            flushed = [event.attributes["rangelog.server"] for event in each.events if event.name == "rangelog.flushed"]
            assert flushed == ["fake"]
            assert all(each.start_time <= event.timestamp <= each.end_time for event in each.events)
        assert spans.one("rangelog.reader.open").attributes["rangelog.stream"] == "flights"
        cluster.hold_acks()
        async with client.writer("flights") as writer:
            writer.append_nowait(b"held")
            for _ in range(10):  # the batch goes out in the next turn of the loop
                await asyncio.sleep(0)
            await writer.close(flush=False)
        assert spans.named("rangelog.append")[-1].attributes["error.type"] == "WRITER_CLOSED"
        cluster.release_acks()
    assert all("secret-" not in each.to_json() for each in spans.exporter.get_finished_spans())


async def test_topics_and_transactions(spans: Spans) -> None:
    """Batches of producers, and commits."""
    with FakeCluster(brokers=1) as cluster:
        async with cluster.client() as client:
            await client.topics.create("orders", shards=1)
            async with client.producer("orders") as producer:
                await producer.send(b"secret", key=b"k")
            produced = spans.one("rangelog.produce")
            assert produced.attributes["rangelog.topic"] == "orders" and produced.attributes["rangelog.records"] == 1
            assert produced.attributes["rangelog.tries"] == 1 and "secret" not in produced.to_json()
            async with client.transactional("billing") as program, program.transaction() as transaction:
                await transaction.send("orders", b"bill", key=b"k")
            assert spans.one("rangelog.transaction.commit").status.status_code is StatusCode.UNSET
