"""Spans that a test looks at: recorded in memory, for this process, until the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rangelog_core import tracing


class Spans:
    """What was recorded so far."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("rangelog")

    def named(self, name: str) -> list[ReadableSpan]:
        """The ended spans of a name, in order of their ends."""
        return [each for each in self.exporter.get_finished_spans() if each.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The only one."""
        (found,) = self.named(name)
        return found


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Record; other tests of the process have no SDK."""
    spans = Spans()
    monkeypatch.setattr(tracing, "_tracer", spans.tracer)
    yield spans
    monkeypatch.setattr(tracing, "_tracer", None)
