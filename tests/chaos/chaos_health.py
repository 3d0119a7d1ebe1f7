"""When a cluster counts as healed, told from outside: not by what it says of itself alone.

Healed: every process runs; a placement driver leads and reaches the others; every range server reports; every range that
still has hot copies is whole on all its members, as these say themselves; the members of open ranges keep up; every
stream's writer acks and its tail reader has seen what was acked when this was asked; what had been sent to the topic
is acked, and its group has processed it; the queries of Spark, if they are part of the run, commit again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import grpc

from rangelog_core.errors import RangelogError
from rangelog_proto.v1 import common_pb2, pd_pb2, range_server_pb2, range_server_pb2_grpc
from tests.chaos import chaos_history as history
from tests.chaos.chaos_cluster import System
from tests.chaos.chaos_spark_load import CopyLengths
from tests.chaos.chaos_topic import Mark

ACK_AGE_NS_MAX = 1_000_000_000
_CALL_TIMEOUT_S = 2.0
_PAGE = 1_000

ONCE_MORE = "to be looked at once more"
"""Whether members keep up takes two looks."""

ReplicaKey = tuple[str, int, int]
"""Server, stream, range."""


@dataclass
class Examination:
    """Asks until all is well. Make one per fault: it remembers what was acked when it began."""

    system: System
    _acked: dict[str, int] = field(default_factory=dict)
    _durable: dict[tuple[int, int], int] = field(default_factory=dict)
    _marks: list[Mark] = field(default_factory=list)
    _copied: list[CopyLengths] = field(default_factory=list)

    def problem(self) -> str:
        """What is not well yet; empty when all is."""
        try:
            return self._processes() or self._cluster() or self._clients() or self._ranges()
        except (grpc.RpcError, RangelogError) as error:
            return f"asking failed: {error.code().name if isinstance(error, grpc.RpcError) else error}"

    def _processes(self) -> str:
        for name, process in self.system.cluster.members.items():
            if not process.ready():
                return f"{name} does not listen"
        for client in (*self.system.load.current.values(), *self.system.load.readers):
            if not client.process.running:
                return f"{client.name} has ended: {client.process.last_words()}"
        return ""

    def _cluster(self) -> str:
        described = self.system.describe()
        if not described.has_majority or not any(member.leader for member in described.members):
            return "no placement driver leads"
        lost = [member.name for member in described.members if not member.reachable]
        if lost:
            return f"placement driver {lost[0]} is not reachable"
        # One with a reason is heard of, and avoided for a while after trouble.
        silent = [
            each.name
            for each in described.servers
            if each.health != common_pb2.SERVER_HEALTH_ALIVE and not each.health_reason
        ]
        if silent or len(described.servers) != len(self.system.cluster.range_servers):
            return f"range servers do not report: {', '.join(silent) or 'some never registered'}"
        return ""

    def _clients(self) -> str:
        now = time.monotonic_ns()
        for stream, writer in self.system.load.current.items():
            pulse = writer.pulse
            if pulse.state != history.OPEN or now - pulse.last_ns > ACK_AGE_NS_MAX:
                return f"{writer.name} does not get acks ({history.STATES[pulse.state]})"
            self._acked.setdefault(stream, pulse.offset)
        for reader in self.system.load.readers:
            if reader.name.endswith("-tail") and reader.pulse.offset < self._acked[reader.stream]:
                return f"{reader.name} has not seen what was acked before {self._acked[reader.stream]}"
        return self.system.topic.problem(self._marks) or self.system.spark.problem(self._copied)

    def _ranges(self) -> str:
        reports: dict[ReplicaKey, pd_pb2.ReplicaReport] = {}
        incarnations: dict[str, int] = {}
        for name, process in self.system.cluster.range_servers.items():
            endpoint = process.endpoint()
            incarnations[name] = int(str(endpoint["incarnation"]))
            for report in list_replicas(str(endpoint["control_address"])):
                reports[name, report.stream_id, report.range_index] = report
        once_more = ""
        for stream in (*(plan.name for plan in self.system.streams), *self.system.spark.streams):
            for each in hot_ranges(self.system, stream):
                problem = self._range(each, reports, incarnations)
                if problem == ONCE_MORE:
                    once_more = problem
                elif problem:
                    return f"{stream}/{each.index}: {problem}"
        return once_more

    def _range(
        self, each: common_pb2.Range, reports: dict[ReplicaKey, pd_pb2.ReplicaReport], incarnations: dict[str, int]
    ) -> str:
        gone = [replica.server for replica in each.replicas if incarnations.get(replica.server) != replica.incarnation]
        if gone:
            return f"its member on {gone[0]} is of another incarnation"
        found = {replica.server: reports.get((replica.server, each.stream_id, each.index)) for replica in each.replicas}
        if each.state == common_pb2.RANGE_STATE_OPEN:
            ends = {name: report.durable_offset if report else each.start_offset for name, report in found.items()}
            key = (each.stream_id, each.index)
            before = self._durable.get(key)
            self._durable[key] = max(ends.values())
            if before is None:
                return ONCE_MORE
            behind = [name for name, end in ends.items() if end < before]
            return f"{behind[0]} does not keep up" if behind else ""
        if each.end_offset == each.start_offset:
            return ""
        if len(found) < 3 and each.tiered_end_offset < each.end_offset:
            return f"it has {len(found)} members"
        unfit = [n for n, report in found.items() if report is None or report.state != pd_pb2.REPLICA_STATE_SEALED]
        return f"not whole on {unfit[0]}" if unfit else ""


def hot_ranges(system: System, stream: str) -> list[common_pb2.Range]:
    """The ranges of a stream that have hot copies, by the placement driver's word. Raises what asking raises."""
    found: list[common_pb2.Range] = []
    index = 0
    while True:
        request = pd_pb2.ListRangesRequest(name=stream, from_index=index, page_size=_PAGE)
        page = system.ask("ListRanges", request)
        assert isinstance(page, pd_pb2.ListRangesResponse)
        trimmed = page.stream.trim_offset
        found += [each for each in page.ranges if not (each.hot_dropped or is_gone(each, trimmed))]
        if not page.more or not page.ranges:
            return found
        index = page.ranges[-1].index + 1


def is_gone(each: common_pb2.Range, trim_offset: int) -> bool:
    """Whether a range is trimmed as a whole."""
    return each.state == common_pb2.RANGE_STATE_SEALED and each.end_offset <= trim_offset


def list_replicas(control_address: str) -> list[pd_pb2.ReplicaReport]:
    """What a range server holds, by its own word. Raises grpc.RpcError."""
    found: list[pd_pb2.ReplicaReport] = []
    with grpc.insecure_channel(control_address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = range_server_pb2_grpc.RangeServerStub(channel)  # type: ignore[no-untyped-call]
        token = ""
        while True:
            page = stub.ListReplicas(
                range_server_pb2.ListReplicasRequest(page_size=_PAGE, page_token=token), timeout=_CALL_TIMEOUT_S
            )
            found += page.replicas
            token = page.next_page_token
            if not token:
                return found
