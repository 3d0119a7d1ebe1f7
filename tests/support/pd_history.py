"""Calls on the placement driver as clients saw them: asked when, answered when, and what the answer said.

A call that got no answer, or one that says "try again", is UNKNOWN: it may have been done, now or later. A refusal is final:
the placement driver keeps it under the request id. Only the fields that the rules speak of are kept of an answer.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rangelog_core.errors import RangelogError
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from tests.support.history import cut_off_a_torn_line, open_for_appending, write_all

Outcome = Literal["ok", "refused", "unknown"]


class StreamView(NamedTuple):
    """A stream, as an answer shows it."""

    stream_id: int
    epoch: int
    trim_offset: int
    next_offset: int
    range_count: int


class RangeView(NamedTuple):
    """A range, as an answer shows it."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    epoch: int
    start: int
    end: int | None
    """None: it is open."""
    tiered_end: int


class ObjectView(NamedTuple):
    """An object, as an answer shows it."""

    object_id: int
    range_index: int
    start: int
    end: int


class Reply(NamedTuple):
    """What an answer said."""

    stream: StreamView | None = None
    ranges: tuple[RangeView, ...] = ()
    next_range: RangeView | None = None
    objects: tuple[ObjectView, ...] = ()


@dataclass(slots=True)
class Call:
    """One call of one client; its repeats under the same request id are part of it, or calls of their own."""

    client: str
    request_id: str
    """Empty for reads."""
    name: str
    """As the API has it: open_writer, seal_range, …"""
    stream: str
    """By name, also where the request has an id."""
    arguments: dict[str, Any]
    invoked_s: float
    returned_s: float = math.inf
    outcome: Outcome = "unknown"
    code: str = ""
    """Of the error."""
    reply: Reply | None = None

    def __str__(self) -> str:
        asked = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        told = self.reply if self.outcome == "ok" else f"{self.outcome} {self.code}".strip()
        return f"{self.client} {self.name}({self.stream}, {asked}) [{self.invoked_s:.3f}, {self.returned_s:.3f}] {told}"


@dataclass
class PdHistory:
    """Calls in memory."""

    calls: list[Call] = field(default_factory=list)

    def ask(self, client: str, name: str, stream: str, time_s: float, request_id: str = "", **arguments: Any) -> Call:
        """A call is about to be made."""
        call = Call(client, request_id, name, stream, arguments, time_s)
        self.calls.append(call)
        return call

    def ok(self, call: Call, reply: Reply, time_s: float) -> None:
        """It was answered."""
        call.returned_s, call.outcome, call.reply = time_s, "ok", reply

    def refused(self, call: Call, code: str, time_s: float) -> None:
        """It was refused, for good."""
        call.returned_s, call.outcome, call.code = time_s, "refused", code

    def unknown(self, call: Call, code: str = "") -> None:
        """Nobody knows; it may be done at any time from now on."""
        call.code = code


class FilePdHistory(PdHistory):
    """The same, and every line is with the kernel before the call is made, or its answer used."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._descriptor = open_for_appending(path)
        cut_off_a_torn_line(self._descriptor)

    def ask(self, client: str, name: str, stream: str, time_s: float, request_id: str = "", **arguments: Any) -> Call:
        """A call is about to be made."""
        call = super().ask(client, name, stream, time_s, request_id, **arguments)
        self._write("ask", len(self.calls) - 1, client, request_id, name, stream, arguments, time_s)
        return call

    def ok(self, call: Call, reply: Reply, time_s: float) -> None:
        """It was answered."""
        super().ok(call, reply, time_s)
        self._write("ok", self._place(call), reply, time_s)

    def refused(self, call: Call, code: str, time_s: float) -> None:
        """It was refused, for good."""
        super().refused(call, code, time_s)
        self._write("refused", self._place(call), code, time_s)

    def _place(self, call: Call) -> int:
        return next(place for place in range(len(self.calls) - 1, -1, -1) if self.calls[place] is call)

    def _write(self, *fields: Any) -> None:
        write_all(self._descriptor, json.dumps(fields, separators=(",", ":")) + "\n")


def read_pd_history(path: Path) -> list[Call]:
    """The calls in a file; a torn last line is left out."""
    calls: dict[int, Call] = {}
    notes = PdHistory()
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if not line.endswith("\n"):
                break
            what, place, *fields = json.loads(line)
            if what == "ask":
                client, request_id, name, stream, arguments, time_s = fields
                calls[place] = notes.ask(client, name, stream, time_s, request_id, **arguments)
            elif what == "ok":
                notes.ok(calls[place], _reply_from_json(fields[0]), fields[1])
            else:
                notes.refused(calls[place], *fields)
    return notes.calls


def _reply_from_json(fields: list[Any]) -> Reply:
    stream, ranges, following, objects = fields
    return Reply(
        StreamView(*stream) if stream else None,
        tuple(RangeView(*each) for each in ranges),
        RangeView(*following) if following else None,
        tuple(ObjectView(*each) for each in objects),
    )


# ---- answers of the API

COUNTED_LATER = -1
"""Stands for the number of ranges in the answer to a trim: it is that of the answer's moment, not of the command's."""


def view_of_stream(stream: common_pb2.Stream) -> StreamView:
    """What is kept of a stream."""
    return StreamView(stream.stream_id, stream.epoch, stream.trim_offset, stream.next_offset, stream.range_count)


def view_of_range(found: common_pb2.Range) -> RangeView:
    """What is kept of a range."""
    end = found.end_offset if found.state == common_pb2.RANGE_STATE_SEALED else None
    return RangeView(found.index, found.epoch, found.start_offset, end, found.tiered_end_offset)


def view_of_object(found: common_pb2.Object) -> ObjectView:
    """What is kept of an object."""
    return ObjectView(found.object_id, found.range_index, found.start_offset, found.end_offset)


def reply_of(response: Any) -> Reply:
    """What is kept of an answer, whichever call it belongs to."""
    names = {each.name for each in response.DESCRIPTOR.fields}

    def has(name: str) -> bool:
        return name in names and response.HasField(name)

    ranges = [response.range] if has("range") else [response.last_range] if has("last_range") else []
    if "ranges" in names:
        ranges = list(response.ranges)
    objects = [response.object] if has("object") else list(response.objects) if "objects" in names else []
    stream = view_of_stream(response.stream) if has("stream") else None
    if stream is not None and isinstance(response, pb.TrimStreamResponse):
        stream = stream._replace(range_count=COUNTED_LATER)
    return Reply(
        stream,
        tuple(view_of_range(each) for each in ranges),
        view_of_range(response.next_range) if has("next_range") else None,
        tuple(view_of_object(each) for each in objects),
    )


REQUESTS: dict[str, Callable[..., Any]] = {
    "create_stream": pb.CreateStreamRequest,
    "describe_stream": pb.DescribeStreamRequest,
    "open_writer": pb.OpenWriterRequest,
    "create_range": pb.CreateRangeRequest,
    "seal_range": pb.SealRangeRequest,
    "list_ranges": pb.ListRangesRequest,
    "trim_stream": pb.TrimStreamRequest,
    "prepare_object": pb.PrepareObjectRequest,
    "commit_object": pb.CommitObjectRequest,
    "list_objects": pb.ListObjectsRequest,
}
READS = ("describe_stream", "list_ranges", "list_objects")
_BY_ID = ("create_range", "seal_range", "prepare_object", "commit_object")


class NotingPd:
    """A client of the placement driver whose calls are noted: `pd` is a PdClient, or anything with its methods."""

    def __init__(self, pd: Any, client: str, history: PdHistory, clock: Callable[[], float]) -> None:
        self._pd = pd
        self._client = client
        self._history = history
        self._clock = clock

    async def call(
        self, name: str, stream: str, *, timeout_s: float, request_id: str = "", **arguments: Any
    ) -> Reply | None:
        """Make a call; None when it was refused or nothing is known."""
        if name not in READS:
            request_id = request_id or uuid.uuid4().hex
            request = REQUESTS[name](request_id=request_id, **arguments)
        else:
            request = REQUESTS[name](**arguments)
        if name not in _BY_ID:
            request.name = stream
        noted = {key: value for key, value in arguments.items() if key != "stream_id"}
        call = self._history.ask(self._client, name, stream, self._clock(), request_id, **noted)
        response = getattr(pb, type(request).__name__.removesuffix("Request") + "Response")
        try:
            reply = reply_of(await self._pd.call(request, response, timeout_s=timeout_s))
        except RangelogError as error:
            if error.retriable or error.outcome_unknown:
                self._history.unknown(call, error.code)
            else:
                self._history.refused(call, error.code, self._clock())
            return None
        self._history.ok(call, reply, self._clock())
        return reply


def by_stream(calls: list[Call]) -> Iterator[tuple[str, list[Call]]]:
    """The calls on each stream, in the order in which they were made."""
    found: dict[str, list[Call]] = {}
    for call in calls:
        found.setdefault(call.stream, []).append(call)
    yield from found.items()
