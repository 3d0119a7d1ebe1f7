"""Range servers: the registered servers, their incarnations, and the highest known end of their logs.

What holds: within one incarnation the count of starts rises with each process and the log's end does not fall; a directory
that was rolled back violates this, and may not answer for the replicas that it once had. One count belongs to one process: a
start raises it durably before it registers, so the same count from another process is a copy of the directory. An
incarnation that another one replaced, or that was removed, may not answer either: it never returns. A server's mode stays
through its starts and incarnations; one that was removed begins as active.
"""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument, PreconditionFailed
from rangelog_core.ids import check_name
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2

SERVERS_MAX = 1_000
RETIRED_MAX = 100
"""Retired incarnations that are kept, per server."""


def register_server(state: State, request: pd_pb2.RegisterServerRequest, now_ms: int) -> pd_pb2.RegisterServerResponse:
    """Register a server. Raises InvalidArgument, PreconditionFailed (rolled back)."""
    check_name("range server", request.server)
    if not request.incarnation or not request.boot:
        raise InvalidArgument("a range server registers with an incarnation and a boot number, both above 0")
    known = state.servers.find(request.server)
    if known is None and len(state.servers) >= SERVERS_MAX:
        raise InvalidArgument(f"{SERVERS_MAX} range servers are registered, which is the limit")
    before = known if known is not None else state.removed.find(request.server)
    retired = list(before.retired) if before is not None else []
    if request.incarnation in retired:
        raise PreconditionFailed(
            f"this data directory of {request.server} was replaced by a later one, or the server was removed, and its "
            "replicas are given up: "
            "move it away and start with an empty one"
        )
    if known is not None and known.server.incarnation != request.incarnation:
        retired = [*retired, known.server.incarnation][-RETIRED_MAX:]
    elif known is not None and (_is_copy(request, known.server) or request.log_end < known.log_end):
        raise PreconditionFailed(
            f"the data directory of {request.server} is older than what was seen of it "
            f"(boot {request.boot} after {known.server.boot}, log end {request.log_end} after {known.log_end}): "
            "it was rolled back and needs a new incarnation"
        )
    server = common_pb2.Server(
        name=request.server,
        incarnation=request.incarnation,
        boot=request.boot,
        data_address=request.data_address,
        control_address=request.control_address,
        zone=request.zone,
        capacity_bytes=request.capacity_bytes,
        version=request.version,
        process_id=request.process_id,
        formats=request.formats,
        labels=request.labels,
        rack=request.rack,
        host=request.host,
    )
    mode = known.mode if known is not None else common_pb2.SERVER_MODE_UNSPECIFIED
    registered = pd_state_pb2.RegisteredServer(server=server, log_end=request.log_end, retired=retired, mode=mode)
    state.removed.remove(request.server)
    state.servers.put(request.server, registered)
    return pd_pb2.RegisterServerResponse(cluster_id=state.cluster_id)


def _is_copy(request: pd_pb2.RegisterServerRequest, known: common_pb2.Server) -> bool:
    """Whether this start counts from an older state of the directory. A process of an early version has no id."""
    if request.boot != known.boot:
        return request.boot < known.boot
    return bool(request.process_id and known.process_id) and request.process_id != known.process_id


def mark_log_ends(state: State, command: pd_state_pb2.MarkLogEnds, now_ms: int) -> None:
    """Store the ends of the servers' logs."""
    for mark in command.marks:
        mark_log_end(state, mark, now_ms)


def mark_log_end(state: State, command: pd_state_pb2.MarkLogEnd, now_ms: int) -> None:
    """Store the end of a server's log, if it rises."""
    known = state.servers.find(command.server)
    if known is None or known.server.incarnation != command.incarnation or command.log_end <= known.log_end:
        return
    marked = copy_of(known)
    marked.log_end = command.log_end
    state.servers.put(command.server, marked)
