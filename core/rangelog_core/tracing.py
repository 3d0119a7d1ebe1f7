"""Traces by OpenTelemetry, for a process with a configured SDK: spans, and their context from process to process.

What holds: without OpenTelemetry, or without a configured SDK, nothing is imported and nothing recorded; a span never changes
the outcome of what it measures; it holds names, ids, offsets and sizes, and never a record, a key or a secret. Context goes by
W3C `traceparent` and `tracestate`; baggage does not.

Example:
    ```python
    with tracing.span("rangelog.tier.upload", range="flights/7"):
        await upload()
    ```
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from rangelog_core.errors import RangelogError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Self = TypeVar("_Self")

_API = "opentelemetry.trace"
_IS_NAMED = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ
"""Whether OpenTelemetry itself loads an SDK, once it is asked for a tracer."""
CONTEXT_KEYS = ("traceparent", "tracestate")
CONTEXT_LENGTH_MAX = 1_024
"""Characters of a caller's `tracestate`, by the recommendation with room; one that is longer is not passed on."""

_UNRECORDED = nullcontext()
_tracer: Tracer | None = None


def is_active() -> bool:
    """Whether spans are recorded in this process. A look-up in a dictionary where OpenTelemetry is not loaded."""
    return _active() is not None


def _active() -> Tracer | None:
    global _tracer
    if _tracer is None and (trace := sys.modules.get(_API)) is not None:  # whoever configures an SDK has loaded it
        if getattr(trace, "_TRACER_PROVIDER", trace) is None and not _IS_NAMED:
            return None  # as the next line finds, which costs more
        if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            _tracer = trace.get_tracer("rangelog")
    return _tracer


class OpenSpan:
    """A span that is not over yet; `end` it once. It has no child spans, so that many can be open at a time.

    Make it with `begin`.
    """

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def event(self, name: str, **attributes: str | int) -> None:
        """Note that something happened now, with attributes that get the prefix `rangelog.`."""
        self._span.add_event(f"rangelog.{name}", _prefixed(attributes))

    def end(self, error: BaseException | None = None, **attributes: str | int) -> None:
        """End the span, with further attributes, and with the error that ended the work."""
        for key, value in attributes.items():
            self._span.set_attribute(f"rangelog.{key}", value)
        if error is not None:
            _note(self._span, error)
        self._span.end()


def begin(name: str, **attributes: str | int) -> OpenSpan | None:
    """Begin a span in the current context; None where nothing is recorded. Attributes get the prefix `rangelog.`."""
    tracer = _active()
    return OpenSpan(tracer.start_span(name, attributes=_prefixed(attributes))) if tracer is not None else None


@contextmanager
def span(name: str, **attributes: str | int) -> Iterator[None]:
    """Record the work of a `with` block, as the parent of the spans and calls in it. An error is noted, and goes on."""
    tracer = _active()
    if tracer is None:
        yield
        return
    with _recorded(tracer, name, attributes):
        yield


def traced(
    name: str, **attributes: Callable[[Any], str | int]
) -> Callable[
    [Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]]],
    Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]],
]:
    """Record each call of an asynchronous method. `attributes`: functions of the object."""

    def decorate(
        method: Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]],
    ) -> Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]]:
        @functools.wraps(method)
        async def call(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
            if _active() is None:
                return await method(self, *args, **kwargs)
            with span(name, **{key: read(self) for key, read in attributes.items()}):
                return await method(self, *args, **kwargs)

        return call

    return decorate


def with_context(metadata: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return metadata of a gRPC call with the current context in it; a `tracestate` that is too long is left out."""
    if _active() is None:
        return metadata
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return (*metadata, *(each for each in carrier.items() if len(each[1]) <= CONTEXT_LENGTH_MAX))


def served(
    name: str, headers: Iterable[tuple[str | bytes, str | bytes]], **attributes: str | int
) -> AbstractContextManager[None]:
    """Record how a request is served, as a part of the caller's trace where its headers name one. Bad headers are ignored."""
    tracer = _active()
    if tracer is None:
        return _UNRECORDED
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract(_context_of(headers))
    return _recorded(tracer, name, attributes, context=context, kind=SpanKind.SERVER)


def _context_of(headers: Iterable[tuple[str | bytes, str | bytes]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in headers:
        name = key.decode("latin-1") if isinstance(key, bytes) else key
        if name.lower() in CONTEXT_KEYS and len(value) <= CONTEXT_LENGTH_MAX:
            found[name.lower()] = value.decode("latin-1") if isinstance(value, bytes) else value
    return found


@contextmanager
def _recorded(tracer: Tracer, name: str, attributes: Mapping[str, str | int], **options: Any) -> Iterator[None]:
    with tracer.start_as_current_span(
        name, attributes=_prefixed(attributes), record_exception=False, set_status_on_exception=False, **options
    ) as current:
        try:
            yield
        except BaseException as error:
            _note(current, error)
            raise


def _note(current: Span, error: BaseException) -> None:
    """Note an error by its code: messages and tracebacks are for logs."""
    from opentelemetry.trace import Status, StatusCode

    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        current.set_attribute("error.type", "CANCELLED")  # somebody wanted it: no failure
        return
    code = error.code if isinstance(error, RangelogError) else type(error).__name__
    current.set_attribute("error.type", code)
    current.set_status(Status(StatusCode.ERROR, code))


def _prefixed(attributes: Mapping[str, str | int]) -> dict[str, str | int]:
    return {f"rangelog.{key}": value for key, value in attributes.items()}
