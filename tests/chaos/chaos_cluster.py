"""The system under test: three placement drivers, four range servers and two brokers, each on a host of its own, with what
faults need.

What holds: `close` leaves no process, mount, namespace or tracer behind, whatever happened before.
"""

from __future__ import annotations

import mmap
import os
import struct
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from rangelog_cli.local.health import describe, wait_healthy
from rangelog_cli.local.plan import PdPlan
from rangelog_cli.local.processes import Cluster, Launch, Process
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_pb2_grpc
from tests.chaos.chaos_disks import Disks
from tests.chaos.chaos_load import READER_HOST, Load, StreamPlan
from tests.chaos.chaos_network import Network, hosts_of, open_network
from tests.chaos.chaos_spark_load import SPARK_HOST, SparkCopies, can_run_spark
from tests.chaos.chaos_topic import MEMBER_HOSTS, PRODUCER_HOST, TopicLoad
from tests.chaos.chaos_trace import can_trace
from tests.support.leader import leader_of

PDS = ("pd1", "pd2", "pd3")
RANGE_SERVERS = ("rs1", "rs2", "rs3", "rs4")
BROKERS = ("broker1", "broker2")
MEMBERS = (*PDS, *RANGE_SERVERS, *BROKERS)
SETTINGS = {
    "RANGELOG_SERVER_SEGMENT_SIZE_BYTES": str(16 * 1024 * 1024),
    "RANGELOG_PD_TIER_PREPARE_TTL_MS": "10000",
    "RANGELOG_PD_SNAPSHOT_ENTRIES": "400",
    "RANGELOG_PD_REPACK_TARGET_BYTES": str(1024 * 1024),
    "RANGELOG_PD_REPACK_MIN_AGE_MS": "3000",
    "RANGELOG_PD_REPACK_TRIMMED_FRACTION": "0.3",
    "RANGELOG_PD_INSECURE": "true",
    "RANGELOG_SERVER_INSECURE": "true",
    "RANGELOG_BROKER_INSECURE": "true",
}
"""Small and soon, so that segments, snapshots, given-up uploads and repacks happen in a run; the hosts are beyond loopback."""
STREAMS = (
    StreamPlan("calls", rate=250, record_bytes=200, range_bytes=192 * 1024, hot_retention_s=8.0),
    StreamPlan("meters", rate=150, record_bytes=400, range_bytes=512 * 1024, hot_retention_s=60.0),
    StreamPlan(
        "bulk", rate=300, record_bytes=24 * 1024, range_bytes=16 * 1024 * 1024, hot_retention_s=3.0, steady=False
    ),
    StreamPlan("far", rate=1_500, record_bytes=400, range_bytes=64 * 1024, hot_retention_s=5.0, steady=False),
    StreamPlan(
        "aging", rate=300, record_bytes=400, range_bytes=64 * 1024, hot_retention_s=5.0, steady=False, retention_s=90.0
    ),
)
SIDE_HOSTS = ("side1", "side2")
"""For clients of one fault."""
HEALTHY_AT_START_S = 60.0
_CLOCK = struct.Struct("<q")


class System:
    """See the module. Use it as a context manager."""

    def __init__(self, directory: Path, *, network: str = "auto", disks: bool = True, light: bool = False) -> None:
        self._stack = ExitStack()
        self.directory = directory
        self.streams = STREAMS
        self.can_trace = can_trace()
        try:
            self._open(network, disks, light)
        except BaseException:
            self._stack.close()
            raise

    def _open(self, network: str, disks: bool, light: bool) -> None:
        directory = self.directory
        directory.mkdir(parents=True, exist_ok=True)
        self.network: Network = self._stack.enter_context(open_network(wanted=network))
        clients = [f"w{number}{side}" for number in range(len(STREAMS)) for side in "abc"]
        clients += [READER_HOST, *SIDE_HOSTS, PRODUCER_HOST, *MEMBER_HOSTS, SPARK_HOST]
        self.hosts = hosts_of([*MEMBERS, *clients], self.network)
        self.clocks = {name: directory / f"{name}.clock" for name in MEMBERS}
        for path in self.clocks.values():
            path.write_bytes(_CLOCK.pack(0))
        homes = {name: directory / "cluster" / name for name in RANGE_SERVERS}
        self.disks = Disks(directory, homes, wanted=disks)
        self._stack.callback(self.disks.close)
        self.cluster = Cluster.open(
            directory / "cluster",
            pds=len(PDS),
            range_servers=len(RANGE_SERVERS),
            brokers=len(BROKERS),
            doors=("http",),
            env=SETTINGS,
            hosts={name: self.hosts[name] for name in MEMBERS},
            launches={name: self._launch(name) for name in MEMBERS},
        )
        self._stack.callback(self.cluster.stop)
        self._stack.callback(self.cluster.kill_all)
        self.load = Load(directory / "clients", self.network, self.cluster.connect_string, STREAMS, light=light)
        self._stack.callback(self.load.close)
        doors = [f"{each.host}:{each.doors['http']}" for each in self.cluster.plan.brokers]
        self.topic = TopicLoad(directory / "topic", self.network, self.cluster.connect_string, doors)
        self._stack.callback(self.topic.close)
        spark = self.network.prefix(SPARK_HOST)
        self.spark = SparkCopies(directory / "spark", spark, self.cluster.connect_string, self.topic)
        self._stack.callback(self.spark.close)

    def start(self) -> None:
        """Start the servers, make the streams, start the clients."""
        self.cluster.start()
        wait_healthy(self.cluster, HEALTHY_AT_START_S)
        for plan in self.streams:
            self.create(plan, plan.name)
        self.load.start()
        self.topic.start()

    def create(self, plan: StreamPlan, request_id: str) -> None:
        """Create a stream. Raises what asking raises."""
        config = common_pb2.StreamConfig(
            range_size_bytes_max=plan.range_bytes,
            hot_retention_ms=int(plan.hot_retention_s * 1000),
            retention_ms=int(plan.retention_s * 1000),
            tiered=True,
        )
        self.ask("CreateStream", pd_pb2.CreateStreamRequest(request_id=request_id, name=plan.name, config=config))

    def add_host(self, name: str) -> str:
        """One more host; returns its address."""
        self.hosts[name] = self.network.add(name)
        return self.hosts[name]

    def joining_pd(self, plan: PdPlan, through: str) -> Process:
        """A placement driver that is to be added to the group; its host is there, its directory empty. It is not started."""
        clock = self.clocks.setdefault(plan.name, self.directory / f"{plan.name}.clock")
        clock.write_bytes(_CLOCK.pack(0))
        home, launch = self.cluster.directory / plan.name, self._launch(plan.name)
        arguments = ["-m", "rangelog_cli", "pd", "--name", plan.name, "--data-dir", str(home), "--join", through]
        arguments += ["--listen", plan.api_address, "--raft-listen", plan.raft_address]
        arguments += ["--tier-url", self.cluster.plan.tier_url]
        return Process(
            plan.name,
            arguments,
            log_path=self.cluster.directory / "logs" / f"{plan.name}.log",
            ready_file=home / "endpoint.json",
            env={"RANGELOG_PD_RAFT_SECRET": self.cluster.plan.raft_secret, **SETTINGS, **launch.env},
            prefix=launch.prefix,
        )

    def ask(self, call: str, request: object, timeout_s: float = 5.0) -> object:
        """Ask the leading placement driver. Raises grpc.RpcError or Unavailable."""
        import grpc

        addresses = {pd.name: pd.api_address for pd in self.cluster.plan.pds}
        with grpc.insecure_channel(addresses[self.leader()], options=[("grpc.enable_http_proxy", 0)]) as channel:
            stub = pd_pb2_grpc.PlacementDriverStub(channel)  # type: ignore[no-untyped-call]
            return getattr(stub, call)(request, timeout=timeout_s)

    def leader(self) -> str:
        """Name of the leading placement driver, as a majority sees it; waits for an election. Raises Unavailable."""
        return leader_of(self.cluster)

    def describe(self) -> pd_pb2.DescribeClusterResponse:
        """The cluster as the placement driver has it. Raises Unavailable."""
        return describe(self.cluster.pd_addresses)

    def set_clock(self, name: str, ahead_s: float) -> None:
        """Let a member's wall clock jump, from now on and over restarts."""
        with self.clocks[name].open("rb+") as file, mmap.mmap(file.fileno(), _CLOCK.size) as page:
            page[:] = _CLOCK.pack(int(ahead_s * 1e9))

    def allows(self, needs: frozenset[str]) -> bool:
        """Whether this machine can do what a fault needs."""
        return not self.lacks(needs)

    def lacks(self, needs: frozenset[str]) -> list[str]:
        """What a fault needs and this machine does not allow."""
        allowed = {
            "network": self.network.can_cut,
            "strace": self.can_trace,
            "disk": self.disks.can_fill,
            "spark": can_run_spark(),
        }
        return sorted(need for need in needs if not allowed[need])

    @property
    def client_hosts(self) -> list[str]:
        """Hosts of clients."""
        return [host for host in self.hosts if host not in MEMBERS]

    def every_host_but(self, *names: str) -> list[str]:
        """All other hosts."""
        return [host for host in self.hosts if host not in names]

    def close(self) -> None:
        """Tear all down. Idempotent."""
        for process in self.cluster.members.values():
            with suppress(ProcessLookupError):
                process.kill()
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _launch(self, name: str) -> Launch:
        clock = Path(__file__).parent / "clock"
        path = os.pathsep.join(filter(None, [str(clock), os.environ.get("PYTHONPATH", "")]))
        return Launch(self.network.prefix(name), {"PYTHONPATH": path, "RANGELOG_CHAOS_CLOCK": str(self.clocks[name])})
