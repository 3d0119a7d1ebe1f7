"""Applies commands: one after the other, the same on every member.

What holds: `apply` never raises, an error is a result; a request id that the same call brought before gets its first
result, for as long as results.py says; time and choices come inside the command, so nothing here asks a clock or draws lots.
A refusal that says "try again" is no result, with one exception: a seal refused for want of a place. Its writer goes on with
the range, so no late copy of that request may ever seal it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError, Message

from rangelog_core.errors import Corruption, InternalError, NoPlacement, Overloaded, RangelogError, error_from_code
from rangelog_pd.state import objects, ranges, servers, streams
from rangelog_pd.state.results import Results
from rangelog_pd.state.store import State
from rangelog_proto.v1 import common_pb2, pd_state_pb2

COMMAND_VERSION = 1
SNAPSHOT_VERSION = 1


def _name_cluster(state: State, command: pd_state_pb2.NameCluster, now_ms: int) -> None:
    state.cluster_id = state.cluster_id or command.cluster_id


_OPERATIONS: dict[str, Callable[[State, Any, int], Message | None]] = {
    "name_cluster": _name_cluster,
    "create_stream": streams.create_stream,
    "update_stream": streams.update_stream,
    "delete_stream": streams.delete_stream,
    "trim_stream": streams.trim_stream,
    "open_writer": streams.open_writer,
    "create_range": ranges.create_range,
    "seal_range": ranges.seal_range,
    "prove_end": ranges.prove_end,
    "drop_hot": ranges.drop_hot,
    "replace_replica": ranges.replace_replica,
    "register_server": servers.register_server,
    "mark_log_end": servers.mark_log_end,
    "mark_log_ends": servers.mark_log_ends,
    "prepare_object": objects.prepare_object,
    "commit_object": objects.commit_object,
    "abandon_object": objects.abandon_object,
    "collect_objects": objects.collect_objects,
}


class Machine:
    """The state machine that consensus drives; see StateMachine in consensus/interface.py."""

    def __init__(self) -> None:
        self.state = State()
        self._results = Results()

    def apply(self, index: int, command: bytes) -> bytes:
        """Apply one command; return an encoded CommandResult."""
        try:
            parsed = pd_state_pb2.Command.FromString(command)
        except DecodeError:
            return _failed(InternalError(f"log entry {index} is no command"))
        request = f"{parsed.WhichOneof('action')} {parsed.request_id}"
        kept = self._results.find(request) if parsed.request_id else None
        if kept is not None:
            return kept
        self.state.advance(parsed.now_ms, provisional=parsed.time_is_provisional)
        if parsed.request_id and not self._results.has_room(self.state.time_ms):
            return _failed(Overloaded("too many commands within a minute: try again in a while"))
        result, final = self._run(parsed)
        if parsed.request_id and final:
            self._results.keep(request, self.state.time_ms, result)
        return result

    def _run(self, command: pd_state_pb2.Command) -> tuple[bytes, bool]:
        """Return the result, and whether it is the last word on its request."""
        action = command.WhichOneof("action")
        if command.version != COMMAND_VERSION or action is None:
            unknown = f"a command of version {command.version}, which this member does not know"
            return _failed(InternalError(unknown)), True
        try:
            response = _OPERATIONS[action](self.state, getattr(command, action), self.state.time_ms)
        except RangelogError as error:
            return _failed(error), not error.retriable or (action == "seal_range" and isinstance(error, NoPlacement))
        except Exception as error:  # the same on every member: the command is answered, the cluster lives
            return _failed(InternalError(f"{action} failed: {type(error).__name__}")), True
        encoded = response.SerializeToString() if response is not None else b""
        return pd_state_pb2.CommandResult(response=encoded).SerializeToString(), True

    def snapshot(self) -> bytes:
        """Encode the whole state."""
        state = self.state
        return pd_state_pb2.StateSnapshot(
            version=SNAPSHOT_VERSION,
            cluster_id=state.cluster_id,
            time_ms=state.time_ms,
            next_stream_id=state.next_stream_id,
            next_object_id=state.next_object_id,
            streams=state.streams.values(),
            ranges=[each for ranges_ in state.ranges.values() for each in ranges_.values()],
            objects=state.objects.values(),
            servers=state.servers.values(),
            results=[
                pd_state_pb2.KeptResult(request_id=request_id, now_ms=now_ms, result=result)
                for request_id, now_ms, result in self._results
            ],
        ).SerializeToString(deterministic=True)

    def restore(self, data: bytes) -> None:
        """Replace the whole state. Raises Corruption before anything is changed."""
        try:
            snapshot = pd_state_pb2.StateSnapshot.FromString(data)
        except DecodeError as error:
            raise Corruption("the placement driver's snapshot cannot be read") from error
        if snapshot.version != SNAPSHOT_VERSION:
            raise Corruption(f"a snapshot of version {snapshot.version}; this program reads {SNAPSHOT_VERSION}")
        state = State(
            snapshot.cluster_id,
            next_stream_id=snapshot.next_stream_id,
            next_object_id=snapshot.next_object_id,
        )
        for stream in snapshot.streams:
            state.streams[stream.stream_id] = stream
            state.names[stream.name] = stream.stream_id
            state.ranges[stream.stream_id] = {}
        for each in snapshot.ranges:
            if each.stream_id not in state.ranges:
                raise Corruption(f"the snapshot has a range of stream {each.stream_id} but not the stream")
            state.add_range(each)
            state.note_dates(each)
        for found in snapshot.objects:
            state.objects[found.object_id] = found
            if found.range_index in state.ranges.get(found.stream_id, {}):
                state.add_object(found)
            if found.state == common_pb2.OBJECT_STATE_DELETED and not found.deleted_ms:
                state.undated[found.object_id] = None
        for server in snapshot.servers:
            state.servers[server.server.name] = server
        latest = max((kept.now_ms for kept in snapshot.results), default=0)
        state.time_ms = snapshot.time_ms or max(latest, state.latest_date())
        self.state = state
        self._results = Results((kept.request_id, kept.now_ms, kept.result) for kept in snapshot.results)


def _failed(error: RangelogError) -> bytes:
    return pd_state_pb2.CommandResult(
        error_code=error.code,
        error_message=error.message,
        error_epoch=error.epoch or 0,
        error_offset=error.offset or 0,
        has_error_offset=error.offset is not None,
    ).SerializeToString()


def response_of(result: bytes) -> bytes:
    """Return the response inside an encoded CommandResult, or raise the error inside it."""
    parsed = pd_state_pb2.CommandResult.FromString(result)
    if parsed.error_code:
        raise error_from_code(
            parsed.error_code,
            parsed.error_message,
            epoch=parsed.error_epoch or None,
            offset=parsed.error_offset if parsed.has_error_offset else None,
        )
    return parsed.response
