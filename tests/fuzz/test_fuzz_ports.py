"""Noise, mutated frames and mutated HTTP/2 at the ports of a running cluster: it goes on serving and does not grow."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

import rangelog
from rangelog_cli.local import process as supervising
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster
from rangelog_core.frame import Opcode
from rangelog_core.net.addresses import split_address
from rangelog_proto.v1 import broker_pb2
from tests.fuzz.fuzz_mutation import mutated
from tests.fuzz.fuzz_targets_batches import repair_frames
from tests.fuzz.fuzz_targets_brokers import HELLO as PRODUCER_HELLO
from tests.fuzz.fuzz_targets_brokers import change_producer, port_seeds
from tests.fuzz.fuzz_targets_data_plane import HELLO, change_append, change_frames, request, request_seeds
from tests.fuzz.fuzz_targets_raft import hello_seeds
from tests.fuzz.fuzz_targets_rest import change_request
from tests.fuzz.fuzz_targets_rest import seeds as rest_seeds
from tests.support import forked
from tests.support.openings import everything_opens

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

OTHER_STREAMS = 60
"""Some of what is sent is a request as a writer would make it, to seal the first ranges: without a token it is obeyed."""
DECOYS = 9
"""Topics with the ids that are attacked: a batch that is well formed is taken, though its columns may not decode."""
ATTEMPTS = 300
"""Connections per port and kind."""
GROWTH_BYTES_MAX = 48 << 20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three placement drivers, three range servers and two brokers, which begin by a fork: eight interpreters less."""
    monkeypatch.setattr(supervising, "spawn", forked.spawn)
    env = {"RANGELOG_SERVER_SEGMENT_SIZE_BYTES": str(16 << 20)}
    made = Cluster.open(tmp_path / "cluster", env=env, brokers=2)
    try:
        with made:
            wait_healthy(made)
            yield made
    finally:
        made.kill_all()


def rss_bytes(cluster: Cluster) -> dict[str, int]:
    """Resident memory of each member."""
    found = {}
    for name, process in cluster.members.items():
        lines = Path(f"/proc/{process.pid}/status").read_text().split("\n")
        found[name] = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) << 10
    return found


PATIENCE_S = 0.005
PATIENCE_WEB_S = 0.1
"""A request to a web framework on a busy machine takes longer than a refusal by what reads frames."""


def send(address: str, data: bytes, patience_s: float = PATIENCE_S) -> bool:
    """Say this, hear a little of the answer, hang up; return whether there was one."""
    try:
        with socket.create_connection(split_address(address), timeout=5) as sock:
            sock.settimeout(patience_s)
            sock.sendall(data)
            return bool(sock.recv(4_096))
    except OSError:
        return False  # refused, reset or silent: as it likes


def http2(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """One frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream_id) + payload


def http2_seed() -> bytes:
    """A connection that opens a stream, with a header block of literals and a message that is none."""
    pairs = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/rangelog.v1.PlacementDriver/ListStreams"),
        ("te", "trailers"),
    )
    block = b"".join(
        bytes((0, len(name))) + name.encode() + bytes((len(value),)) + value.encode() for name, value in pairs
    )
    message = b"\0" + struct.pack(">I", 2) + b"\x0a\xff"
    return PREFACE + http2(4, 0, 0, b"") + http2(1, 4, 1, block) + http2(0, 1, 1, message)


def broker_attacks(name: str, incarnation: int) -> dict[str, Callable[[Random], bytes]]:
    """What is sent to a broker's port of producers and to its REST port."""
    hello = request(Opcode.HELLO, 1, protocol_version=1, server=name, incarnation=incarnation)
    bodies = [hello + seed[len(PRODUCER_HELLO) :] for seed in port_seeds()[:3]]

    def produced(random: Random) -> bytes:
        data = random.choice((change_frames, change_producer))(random.choice(bodies), random)
        return repair_frames(mutated(data, random), random) if random.random() < 0.3 else data

    def http1(random: Random) -> bytes:
        head, _, body = change_request(random.choice(seeds), random).partition(b"\n\n")
        lines = [*head.split(b"\n"), b"host: x", b"content-length: %d" % len(body)]
        lines[0] += b" HTTP/1.1"
        data = b"\r\n".join(lines) + b"\r\n\r\n" + body
        return mutated(data, random) if random.random() < 0.5 else data

    seeds = rest_seeds()
    return {"produced": produced, "http1": http1}


def attacks(server: str, incarnation: int) -> dict[str, Callable[[Random], bytes]]:
    """What is sent to a data port, a gRPC port and a Raft port."""
    hello = request(Opcode.HELLO, 1, protocol_version=1, server=server, incarnation=incarnation)
    bodies = [hello + seed[len(HELLO) :] for seed in request_seeds()[:3]]

    def frames(random: Random) -> bytes:
        data = random.choice((change_frames, change_append))(random.choice(bodies), random)
        return repair_frames(mutated(data, random), random) if random.random() < 0.3 else data

    return {
        "frames": frames,
        "http2": lambda random: PREFACE + mutated(http2_seed()[len(PREFACE) :], random),
        "raft": lambda random: mutated(random.choice(hello_seeds()), random),
        "noise": lambda random: random.randbytes(random.choice((1, 24, 500, 20_000))),
    }


async def produce_and_read(cluster: Cluster, first: int) -> int:
    """Brokers serve: what is produced, staged and put is read. Topics that the attacks made are none of it."""
    async with await rangelog.connect(cluster.connect_string) as client:
        if not first:
            await client.topics.create_namespace("safe")
            for number in range(DECOYS):
                await client.topics.create(f"decoy-{number}")
            await client.topics.create("safe/t", shards=4)
            await client.tables.create("safe/counts", partitions=2)
        async with client.producer("safe/t") as producer:
            for number in range(first, first + 100):
                await producer.send(b"%d" % number, key=b"%d" % number)
        async with client.transactional(f"safe-{first}") as program, program.transaction() as transaction:
            await transaction.send("safe/t", b"%d" % (first + 100), key=b"k")
        await client.table("safe/counts").put(b"k", b"%d" % first)
        row = await client.table("safe/counts").get(b"k")
        assert row is not None and row.value == b"%d" % first
        async with asyncio.timeout(30):
            read: list[int] = []
            while len(read) <= first + 100:
                read = sorted([int(record.value) async for record in client.topic_reader("safe/t")])
        assert read == list(range(first + 101))
        return first + 101


async def incarnation_of(cluster: Cluster, name: str) -> int:
    """Of a broker."""
    async with await rangelog.connect(cluster.connect_string) as client:
        listed = await client.metadata.pd.call(
            broker_pb2.ListBrokersRequest(), broker_pb2.ListBrokersResponse, timeout_s=10
        )
    return next(each.incarnation for each in listed.brokers if each.name == name)


async def append_and_read(cluster: Cluster, name: str, *, create: bool) -> None:
    """The cluster serves: what is appended is read."""
    async with await rangelog.connect(cluster.connect_string) as client:
        if create:
            for number in range(OTHER_STREAMS):
                await client.create_stream(f"other-{number}")
            await client.create_stream(name)
        before = await client.end_offset(name)
        values = [b"%d" % number for number in range(100)]
        async with client.writer(name) as writer:
            for value in values:
                await writer.ready()
                writer.submit(value)
            await writer.flush()
        read = [record.value async for record in client.reader(name, start=before)]
    assert read == values


async def test_garbage_at_every_port_of_a_broker_changes_nothing(cluster: Cluster) -> None:
    """Producers, transactions, tables and REST are served as before; a broker neither ends nor grows."""
    following = await produce_and_read(cluster, 0)
    random = Random(6)
    name = "broker1"
    endpoint = json.loads((cluster.directory / name / "endpoint.json").read_text())
    kinds = attacks("rs1", 1) | broker_attacks(name, await incarnation_of(cluster, name))
    ports = {
        endpoint["address"]: ("produced", "frames", "noise", "http2"),
        endpoint["control_address"]: ("http2", "noise", "produced"),
        endpoint["rest_address"]: ("http1", "noise", "http2"),
    }
    answered = dict.fromkeys(kinds, 0)
    growth: list[dict[str, int]] = []
    for _turn in range(2):
        before = rss_bytes(cluster)
        for address, chosen in ports.items():
            for kind in chosen:
                for _ in range(ATTEMPTS // 2):
                    answered[kind] += send(
                        address, kinds[kind](random), PATIENCE_WEB_S if kind == "http1" else PATIENCE_S
                    )
        after = rss_bytes(cluster)
        growth.append({each: after[each] - before[each] for each in before})
    await produce_and_read(cluster, following)
    assert all(process.running for process in cluster.members.values()), "a member ended"
    assert min(answered["produced"], answered["http1"], answered["http2"]) > ATTEMPTS // 10, answered
    assert max(growth[1].values()) < GROWTH_BYTES_MAX, growth
    for each in cluster.members:
        log = (cluster.directory / "logs" / f"{each}.log").read_text()
        assert "Traceback" not in log, f"{each}: {log[-2_000:]}"
    assert await everything_opens(cluster) > DECOYS


async def test_garbage_at_every_port_changes_nothing(cluster: Cluster) -> None:
    """Connections that say nonsense end; the members keep their memory, and records go in and out as before."""
    await append_and_read(cluster, "s", create=True)
    plan = cluster.plan
    random = Random(5)
    server = plan.range_servers[0]
    endpoint = json.loads((cluster.directory / server.name / "endpoint.json").read_text())
    kinds = attacks(server.name, endpoint["incarnation"])
    ports = {
        endpoint["data_address"]: ("frames", "noise", "http2"),
        endpoint["control_address"]: ("http2", "noise", "frames"),
        plan.pds[0].api_address: ("http2", "noise"),
        plan.pds[0].raft_address: ("raft", "noise"),
    }
    growth: list[dict[str, int]] = []
    answered = dict.fromkeys(kinds, 0)
    for _turn in range(2):
        before = rss_bytes(cluster)
        for address, chosen in ports.items():
            for kind in chosen:
                for _ in range(ATTEMPTS // 2):
                    answered[kind] += send(
                        address, kinds[kind](random), PATIENCE_WEB_S if kind == "http1" else PATIENCE_S
                    )
        after = rss_bytes(cluster)
        growth.append({name: after[name] - before[name] for name in before})
    await append_and_read(cluster, "s", create=False)
    assert all(process.running for process in cluster.members.values()), "a member ended"
    assert min(answered["frames"], answered["http2"], answered["raft"]) > ATTEMPTS // 10, answered
    assert max(growth[1].values()) < GROWTH_BYTES_MAX, growth
    for name in cluster.members:
        log = (cluster.directory / "logs" / f"{name}.log").read_text()
        assert "Traceback" not in log, f"{name}: {log[-2_000:]}"
    await everything_opens(cluster)
    sent = ATTEMPTS * sum(map(len, ports.values()))
    print(f"ports: connections={sent} grown_kib_max={max(growth[1].values()) >> 10} crashes=0")
