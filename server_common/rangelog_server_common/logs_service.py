"""The gRPC service Logs of a process, over its recent log. Every GrpcServer has it."""

from __future__ import annotations

from typing import Any

import grpc

from rangelog_proto.v1 import logs_pb2 as pb
from rangelog_proto.v1.logs_pb2_grpc import LogsServicer, add_LogsServicer_to_server
from rangelog_server_common.recent_log import RECENT, RecentLog

LOGS_SERVICE_NAME = "rangelog.v1.Logs"


class LogsService(LogsServicer):
    """Answers with pages of a recent log."""

    def __init__(self, recent: RecentLog) -> None:
        self._recent = recent

    async def ReadLog(self, request: pb.ReadLogRequest, context: Any) -> pb.ReadLogResponse:
        """Return a page. Raises InvalidArgument for an unknown level, and for a limit out of bounds."""
        after = request.after if request.run == self._recent.run else 0
        page = self._recent.read(limit=request.limit, level=request.level, since_ms=request.since_ms, after=after)
        return pb.ReadLogResponse(
            run=self._recent.run,
            entries=[pb.LogEntry(number=each.number, wall_ms=each.wall_ms, line=each.line) for each in page.entries],
            last=page.last,
            missed=page.missed,
            more=page.more,
        )


def add_logs_service(server: grpc.aio.Server, recent: RecentLog = RECENT) -> None:
    """Add the service to a server that is not started yet."""
    add_LogsServicer_to_server(LogsService(recent), server)  # type: ignore[no-untyped-call]
