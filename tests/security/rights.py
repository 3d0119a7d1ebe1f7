"""Clients with one right each, and with none, against everything that a client can do to a stream, a topic, a group: principal,
verb, resource and port.

What is not the refusal of a right counts as admitted: requests are such that nothing changes, or what changes does no harm.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

import grpc

import rangelog
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import RangelogError, RightMissing
from rangelog_core.frame import Opcode
from rangelog_core.net.channels import open_channel
from rangelog_core.net.data_connection import DataConnection, replica_id
from rangelog_core.net.grpc_errors import from_rpc_error
from rangelog_core.net.principals import Role
from rangelog_core.net.tls import TlsConfig
from rangelog_proto.v1 import (
    broker_pb2,
    cursor_pb2,
    data_pb2,
    group_pb2,
    group_service_pb2,
    pd_pb2,
    table_service_pb2,
    topic_pb2,
    transaction_pb2,
    transaction_service_pb2,
    watermark_service_pb2,
)
from tests.security.matrix import TIMEOUT_S, Outcome
from tests.support.certificates import TestCertificates
from tests.support.forked import run_pdctl

VERBS = ("append", "read", "seal", "trim", "admin")
STREAM, TOPIC, GROUP, TRANSACTION = "sec-a", "secns/sec-t", "sec-g", "sec-x"

RULES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "none": (),
    **{
        f"only-{verb}": (
            (verb, "stream", STREAM), (verb, "topic", TOPIC), (verb, "group", GROUP), (verb, "transaction", TRANSACTION),
        )
        for verb in VERBS
    },
    "prefix": (("read", "stream", "sec-*"), ("read", "namespace", "secns"), ("read", "group", "sec*")),
    "beside": (("append,read,seal,trim,admin", "stream", f"{STREAM}b"), ("append,read,seal,trim,admin", "stream", "sec"),
               ("append,read,seal,trim,admin", "topic", f"{TOPIC}2"), ("append,read,seal,trim,admin", "namespace", "secn"),
               ("append,read,seal,trim,admin", "group", f"{GROUP}2"), ("append,read,seal,trim,admin", "stream", "sec-aa*")),
    "all": (("append,read,seal,trim,admin", "stream", "*"), ("append,read,seal,trim,admin", "namespace", "*"),
            ("append,read,seal,trim,admin", "group", "*"), ("append,read,seal,trim,admin", "transaction", "*")),
}  # fmt: skip
"""By client: verbs, kind and name."""

VERBS_OF = {"none": "", "prefix": "read", "beside": "", "all": " ".join(VERBS)} | {
    f"only-{verb}": verb for verb in VERBS
}
"""What each client has on STREAM, TOPIC and GROUP; on TRANSACTION the same but for `prefix`, which has nothing there."""


@dataclass(frozen=True)
class Places:
    """What the probes need to know."""

    cluster: Cluster
    stream: Any
    range: Any
    shard_range: Any
    topic_id: int
    other_topic_id: int
    """Of a topic on which no rule but those of `all` gives anything."""
    broker: Any


Probe = Callable[[Places, TlsConfig], Awaitable[None]]


def _pd(service: str, method: str, request: Callable[[Places], Any]) -> Probe:
    async def probe(places: Places, tls: TlsConfig) -> None:
        last: RangelogError | None = None
        for address in places.cluster.pd_addresses:
            try:
                await _call(address, tls, Role.PD, f"/rangelog.v1.{service}/{method}", request(places))
                return
            except RangelogError as error:
                last = error
                if error.code != "NOT_LEADER":
                    raise
        raise last or AssertionError

    return probe


def _broker(service: str, method: str, request: Callable[[Places], Any]) -> Probe:
    async def probe(places: Places, tls: TlsConfig) -> None:
        address = places.broker.control_address
        await _call(address, tls, Role.BROKER, f"/rangelog.v1.{service}/{method}", request(places))

    return probe


async def _call(address: str, tls: TlsConfig, role: Role, method: str, request: Any) -> None:
    channel = open_channel(address, tls, role)
    try:
        await channel.unary_unary(method)(request.SerializeToString(), timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        raise from_rpc_error(error, "it") from error
    finally:
        await channel.close()


def _frame(opcode: Opcode, message: Callable[[Places], Any], *, of_shard: bool = False) -> Probe:
    async def probe(places: Places, tls: TlsConfig) -> None:
        replica = (places.shard_range if of_shard else places.range).replicas[0]
        at = replica_id(replica.server, replica.incarnation)
        connection = await DataConnection.connect(replica.data_address, at, tls=tls)
        try:
            await connection.request(opcode, message(places).SerializeToString(), timeout_s=TIMEOUT_S)
        finally:
            connection.close()

    return probe


def _producer_frame(opcode: Opcode, message: Callable[[Places], Any]) -> Probe:
    async def probe(places: Places, tls: TlsConfig) -> None:
        at = replica_id(places.broker.name, places.broker.incarnation)
        connection = await DataConnection.connect(places.broker.address, at, tls=tls, kind="broker")
        try:
            await connection.request(opcode, message(places).SerializeToString(), timeout_s=TIMEOUT_S)
        finally:
            connection.close()

    return probe


def _rest(method: str, path: str) -> Probe:
    return _http_at(lambda broker: broker.rest_port, method, path, b"[]")


def _door(method: str, path: str, body: Any = None) -> Probe:
    """At the door for HTTP; `body`: of JSON."""
    return _http_at(
        lambda broker: broker.doors["http"], method, path, json.dumps(body).encode() if body is not None else None
    )


def _http_at(port_of: Callable[[Any], int], method: str, path: str, body: bytes | None) -> Probe:
    def ask(places: Places, tls: TlsConfig) -> None:
        context = ssl.create_default_context(cafile=tls.ca)
        context.check_hostname = False
        context.load_cert_chain(tls.cert, tls.key)
        port = next(port_of(each) for each in places.cluster.plan.brokers if each.name == places.broker.name)
        request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", method=method, data=body)
        request.add_header("content-type", "application/json")
        try:
            urllib.request.urlopen(request, context=context, timeout=TIMEOUT_S).close()
        except urllib.error.HTTPError as error:
            if b"RIGHT_MISSING" in error.read():
                assert error.code == 403
                raise RightMissing("it") from error

    async def probe(places: Places, tls: TlsConfig) -> None:
        await asyncio.to_thread(ask, places, tls)

    return probe


def _at(cls: Any, **more: Any) -> Callable[[Places], Any]:
    """A message about the range of the stream."""
    return lambda places: cls(stream_id=places.stream.stream_id, range_index=places.range.index, **more)


def _topic(cls: Any, **more: Any) -> Callable[[Places], Any]:
    return lambda places: cls(topic=topic_pb2.TopicReference(topic_id=places.topic_id), **more)


def _topic_named(cls: Any, **more: Any) -> Callable[[Places], Any]:
    namespace, _, name = TOPIC.partition("/")
    return lambda places: cls(topic=topic_pb2.TopicReference(namespace=namespace, name=name), **more)


def _position(topic_id: int) -> group_pb2.GroupPosition:
    return group_pb2.GroupPosition(shard=group_pb2.GroupShard(topic_id=topic_id))


_X = transaction_pb2.TransactionName(transactional_id=TRANSACTION)
_STREAM = f"/v3/namespaces/{TOPIC.replace('/', '/streams/')}"
ANY = " ".join(VERBS)
PROBES: dict[str, tuple[str, Probe]] = {
    "pd describe": (ANY, _pd("PlacementDriver", "DescribeStream", lambda p: pd_pb2.DescribeStreamRequest(name=STREAM))),
    "pd create": ("admin", _pd("PlacementDriver", "CreateStream", lambda p: pd_pb2.CreateStreamRequest(name=STREAM))),
    "pd update": ("admin", _pd("PlacementDriver", "UpdateStream", lambda p: pd_pb2.UpdateStreamRequest(name=STREAM))),
    "pd delete": ("admin", _pd("PlacementDriver", "DeleteStream", lambda p: pd_pb2.DeleteStreamRequest(name=STREAM))),
    "pd trim": ("trim", _pd("PlacementDriver", "TrimStream", lambda p: pd_pb2.TrimStreamRequest(name=STREAM))),
    "pd trim by id": (
        "trim",
        _pd("PlacementDriver", "TrimStream", lambda p: pd_pb2.TrimStreamRequest(stream_id=p.stream.stream_id)),
    ),
    "pd open writer": ("append seal", _pd("PlacementDriver", "OpenWriter", lambda p: pd_pb2.OpenWriterRequest(name=STREAM))),
    "pd seal": ("append seal", _pd("PlacementDriver", "SealRange", _at(pd_pb2.SealRangeRequest))),
    "pd roll": ("append", _pd("PlacementDriver", "SealRange", _at(pd_pb2.SealRangeRequest, create_next=True))),
    "pd prove end": ("append read seal", _pd("PlacementDriver", "ProveEnd", _at(pd_pb2.ProveEndRequest))),
    "pd list ranges": (ANY, _pd("PlacementDriver", "ListRanges", lambda p: pd_pb2.ListRangesRequest(name=STREAM))),
    "pd list objects": ("read admin", _pd("PlacementDriver", "ListObjects", lambda p: pd_pb2.ListObjectsRequest(name=STREAM))),
    "pd watch": (
        ANY,
        _pd("PlacementDriver", "Watch", lambda p: pd_pb2.WatchRequest(
            begin=[pd_pb2.WatchedStream(stream_id=p.stream.stream_id)], wait_ms=1)),
    ),
    "pd watch of another topic": ("", _pd("PlacementDriver", "Watch", lambda p: pd_pb2.WatchRequest(
        begin_topics=[pd_pb2.WatchedTopic(topic_id=p.other_topic_id)], wait_ms=1))),
    "pd watch of another broker": ("", _pd("PlacementDriver", "Watch", lambda p: pd_pb2.WatchRequest(
        begin_broker=p.broker.name, wait_ms=1))),
    "pd list cursors": ("read", _pd("Cursors", "ListCursors", lambda p: cursor_pb2.ListCursorsRequest(
        stream_id=p.stream.stream_id))),
    "pd delete cursor": ("read", _pd("Cursors", "DeleteCursor", lambda p: cursor_pb2.DeleteCursorRequest(
        stream_id=p.stream.stream_id, name="c"))),
    "pd create range": ("append seal", _pd("PlacementDriver", "CreateRange", lambda p: pd_pb2.CreateRangeRequest(
        stream_id=p.stream.stream_id))),
    "pd cancel scale": ("admin", _pd("Topics", "CancelScale", lambda p: topic_pb2.CancelScaleRequest(topic_id=p.topic_id))),
    "pd repack": (
        "admin",
        _pd("PlacementDriver", "PrepareRepack", lambda p: pd_pb2.PrepareRepackRequest(stream_id=p.stream.stream_id)),
    ),
    "pd get cursor": (
        "read",
        _pd("Cursors", "GetCursor", lambda p: cursor_pb2.GetCursorRequest(stream_id=p.stream.stream_id, name="c")),
    ),
    "pd describe topic": (ANY, _pd("Topics", "DescribeTopic", _topic_named(topic_pb2.DescribeTopicRequest))),
    "pd list shards": (ANY, _pd("Topics", "ListShards", _topic(topic_pb2.ListShardsRequest))),
    "pd update topic": ("admin", _pd("Topics", "UpdateTopic", _topic(topic_pb2.UpdateTopicRequest))),
    "pd seal topic": ("seal", _pd("Topics", "SealTopic", _topic(topic_pb2.SealTopicRequest))),
    "pd truncate topic": ("trim", _pd("Topics", "TruncateTopic", _topic_named(topic_pb2.TruncateTopicRequest))),
    "pd delete topic": ("admin", _pd("Topics", "DeleteTopic", _topic(topic_pb2.DeleteTopicRequest))),
    "pd scale": ("admin", _pd("Topics", "StartScale", _topic(topic_pb2.StartScaleRequest))),
    "data fetch": ("read", _frame(Opcode.FETCH, _at(data_pb2.Fetch, bytes_max=1_000))),
    "data recovery fetch": (
        "append read seal", _frame(Opcode.FETCH, _at(data_pb2.Fetch, bytes_max=1_000, recovery_epoch=1)),
    ),
    "data lookup": ("read", _frame(Opcode.LOOKUP_TIMESTAMP, _at(data_pb2.LookupTimestamp, timestamp_ms=1))),
    "data append": ("append", _frame(Opcode.APPEND, _at(data_pb2.Append, epoch=1))),
    "data recovery append": ("append seal", _frame(Opcode.APPEND, _at(data_pb2.Append, epoch=1, recovery=True))),
    "data fence": ("append seal", _frame(Opcode.SEAL, _at(data_pb2.Seal))),
    "data commit end": ("append seal", _frame(Opcode.COMMIT_END, _at(data_pb2.CommitEnd))),
    "data fetch of a shard": ("read", _frame(
        Opcode.FETCH,
        lambda p: data_pb2.Fetch(stream_id=p.shard_range.stream_id, range_index=p.shard_range.index, bytes_max=1_000),
        of_shard=True)),
    "data append to a shard": ("", _frame(
        Opcode.APPEND,
        lambda p: data_pb2.Append(stream_id=p.shard_range.stream_id, range_index=p.shard_range.index, epoch=1),
        of_shard=True)),
    "broker produce": ("append", _producer_frame(Opcode.PRODUCE, lambda p: data_pb2.Produce(topic_id=p.topic_id))),
    "broker stage": ("append", _producer_frame(
        Opcode.STAGE, lambda p: data_pb2.Stage(topic_id=p.topic_id, transactional_id=TRANSACTION))),
    "broker stage of another program": ("", _producer_frame(
        Opcode.STAGE, lambda p: data_pb2.Stage(topic_id=p.topic_id, transactional_id="another-x"))),
    "broker stage in another topic": ("", _producer_frame(
        Opcode.STAGE, lambda p: data_pb2.Stage(topic_id=p.other_topic_id, transactional_id=TRANSACTION))),
    "broker find": ("append", _producer_frame(Opcode.FIND_BATCH, lambda p: data_pb2.FindBatch(topic_id=p.topic_id))),
    "broker join": ("read", _broker("Groups", "JoinGroup", lambda p: group_service_pb2.JoinGroupRequest(group=GROUP))),
    "broker join of another topic": ("", _broker("Groups", "JoinGroup", lambda p: group_service_pb2.JoinGroupRequest(
        group=GROUP, join=group_pb2.GroupJoin(member="m", topic_ids=[p.topic_id, p.other_topic_id])))),
    "broker group": (ANY, _broker("Groups", "DescribeGroup", lambda p: group_service_pb2.DescribeGroupRequest(group=GROUP))),
    **{
        f"broker {method}": (verb, _broker("Groups", method, lambda p, made=made: made(group=GROUP)))  # type: ignore[misc]
        for verb, methods in (
            ("read", ("HeartbeatGroup", "LeaveGroup", "CommitPositions", "ReleaseShards", "ReachCheckpoint")),
            (ANY, ("DescribeCheckpoint",)),
            ("admin", ("DeleteGroup", "UnsubscribeGroup", "RetainGroup", "RequestCheckpoint", "DeleteCheckpoint")),
        )
        for method in methods
        for made in (getattr(group_service_pb2, f"{method}Request"),)
    },
    "broker reset in another topic": ("", _broker("Groups", "ResetGroup", lambda p: group_service_pb2.ResetGroupRequest(
        group=GROUP, reset=group_pb2.GroupReset(positions=[_position(p.topic_id), _position(p.other_topic_id)])))),
    "broker stage positions of another program": ("", _broker("Groups", "StagePositions", lambda p:
        group_service_pb2.StagePositionsRequest(group=GROUP, stage=group_pb2.GroupStage(transactional_id="another-x")))),
    "broker reset": ("admin", _broker("Groups", "ResetGroup", lambda p: group_service_pb2.ResetGroupRequest(group=GROUP))),
    "broker rows": (
        "read", _broker("Tables", "Get", lambda p: table_service_pb2.GetRowsRequest(topic_id=p.topic_id, keys=[b"k"])),
    ),
    "broker put": ("append", _broker("Tables", "Apply", lambda p: table_service_pb2.ApplyTableRequest(topic_id=p.topic_id))),
    "broker scan": (
        "read", _broker("Tables", "Scan", lambda p: table_service_pb2.ScanTableRequest(topic_id=p.topic_id))),
    "broker watch rows": (
        "read", _broker("Tables", "Watch", lambda p: table_service_pb2.WatchTableRequest(topic_id=p.topic_id, wait_ms=1))),
    "broker open session of a table": (
        "append", _broker("Tables", "OpenSession", lambda p: table_service_pb2.OpenTableSessionRequest(topic_id=p.topic_id))),
    "broker end times": ("append", _broker(
        "Watermarks", "EndTimeNotes", lambda p: watermark_service_pb2.EndTimeNotesRequest(topic_id=p.topic_id))),
    "broker watermarks": ("read", _broker(
        "Watermarks", "ListWatermarks", lambda p: watermark_service_pb2.ListWatermarksRequest(topic_id=p.topic_id))),
    "broker times": (
        "append", _broker("Watermarks", "NoteTime", lambda p: watermark_service_pb2.NoteTimeRequest(topic_id=p.topic_id)),
    ),
    "broker transaction": ("append", _broker("Transactions", "AbortTransaction", lambda p:
        transaction_service_pb2.AbortTransactionRequest(name=transaction_pb2.TransactionName(transactional_id=TRANSACTION)))),
    **{
        f"broker {method}": ("append", _broker("Transactions", method, lambda p, made=made: made(name=_X)))  # type: ignore[misc]
        for method in ("BeginTransaction", "PingTransaction", "CommitTransaction", "DescribeTransaction")
        for made in (getattr(transaction_service_pb2, f"{method}Request"),)
    },
    "broker init of another program": ("", _broker("Transactions", "InitTransactions", lambda p:
        transaction_service_pb2.InitTransactionsRequest(transactional_id="another-x"))),
    "broker commit in another topic": ("", _broker("Transactions", "CommitTransaction", lambda p:
        transaction_service_pb2.CommitTransactionRequest(
            name=_X, participants=[transaction_pb2.Participant(topic_id=p.other_topic_id)]))),
    "broker commit in another group": ("", _broker("Transactions", "CommitTransaction", lambda p:
        transaction_service_pb2.CommitTransactionRequest(name=_X, participants=[transaction_pb2.Participant(group="others")]))),
    "broker own transactions": (ANY, _broker("Transactions", "ListTransactions", lambda p:
        transaction_service_pb2.ListTransactionsRequest(transactional_id=TRANSACTION))),
    "broker transaction session": ("append", _broker("Transactions", "OpenTransactionSession", lambda p:
        transaction_service_pb2.OpenTransactionSessionRequest(transactional_id=TRANSACTION))),
    "broker group session": (ANY, _broker("Groups", "OpenGroupSession", lambda p:
        group_service_pb2.OpenGroupSessionRequest(group=GROUP))),
    "rest stream": (ANY, _rest("GET", f"/v1/streams/{STREAM}")),
    "rest patch": ("admin", _rest("PATCH", f"/v1/streams/{STREAM}")),
    "rest trim": ("trim", _rest("POST", f"/v1/streams/{STREAM}/trim")),
    "rest seal": ("append seal", _rest("POST", f"/v1/streams/{STREAM}/seal?x=1")),
    "rest topic": (ANY, _rest("GET", "/v1/namespaces/secns/topics/sec-t")),
    "rest truncate": ("trim", _rest("POST", "/v1/namespaces/secns/topics/sec-t/truncate")),
    "rest split": ("admin", _rest("POST", "/v1/namespaces/secns/topics/sec-t/scaling/split")),
    "rest group": (ANY, _rest("GET", f"/v1/groups/{GROUP}")),
    "door send": ("append", _door("POST", f"/v1/topics/{TOPIC}/records", 1)),
    "door read": ("read", _door("GET", f"/v1/topics/{TOPIC}/records")),
    "door join": ("read", _door("POST", f"/v1/groups/{GROUP}/consumers", {"topics": [TOPIC], "session_s": 1})),
    "door join of another topic": ("", _door(
        "POST", f"/v1/groups/{GROUP}/consumers", {"topics": [TOPIC, "others/t"], "session_s": 1})),
    "door join another group": ("", _door("POST", "/v1/groups/others/consumers", {"topics": [TOPIC], "session_s": 1})),
    "door dequeue": ("read", _door("POST", f"/v1/groups/{GROUP}/consumers/x/dequeue")),
    "door commit": ("read", _door("POST", f"/v1/groups/{GROUP}/consumers/x/commit?batch=1")),
    "door end": ("read", _door("DELETE", f"/v1/groups/{GROUP}/consumers/x")),
    "door create stream": ("admin", _door("PUT", _STREAM)),
    "door configure stream": ("admin", _door("PUT", f"{_STREAM}/properties", {"ttl": 86_400})),
    "door describe stream": (ANY, _door("GET", f"{_STREAM}/info")),
    "door event": ("append", _door("POST", _STREAM, 1)),
    "door event, unacked": ("append", _door("POST", f"{_STREAM}/async", 1)),
    "door events": ("read", _door("GET", f"{_STREAM}/events?limit=1")),
    "door consumer of a stream, another group": ("", _door("POST", f"{_STREAM}/consumer-id")),
    "rest abort": ("append", _rest("POST", f"/v1/transactions/{TRANSACTION}/abort")),
}  # fmt: skip
"""By what is done: the verbs of which one is enough, and how it is tried."""
OF_TRANSACTIONS = (
    "broker transaction", "rest abort", "broker BeginTransaction", "broker PingTransaction", "broker CommitTransaction",
    "broker DescribeTransaction", "broker own transactions", "broker transaction session",
)  # fmt: skip
LISTS = ("/v1/streams", "/v1/groups", "/v1/transactions", "/v1/namespaces", "/v1/topics", "/v1/tables", "/v1/unknown")
"""Over REST, of all that there is: for who may read it all."""


def pdctl(cluster: Cluster, *arguments: str, tls: TlsConfig | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run pdctl, as the administrator unless it is given another certificate."""
    files = asdict(tls or cluster.tls)  # type: ignore[arg-type, type-var]
    options = [part for key in ("ca", "cert", "key") for part in (f"--{key}", files[key])]
    return run_pdctl(["--pd", cluster.connect_string, *options, *arguments], env=os.environ)


async def prepare(cluster: Cluster) -> Places:
    """Make a stream, a topic and the rules, and have them enforced."""
    async with await rangelog.connect(cluster.connect_string, tls=cluster.tls) as client:
        await client.create_stream(STREAM)
        async with client.writer(STREAM) as writer:
            await writer.append(b"1")
        pd = client.metadata.pd
        await client.topics.create_namespace("secns")
        await client.topics.create_namespace("others")
        other, topic = [await client.topics.create(name) for name in ("others/t", TOPIC)]
        async with client.producer(TOPIC) as producer:
            await producer.send(b"1")
        listed = await pd.call(pd_pb2.ListRangesRequest(name=STREAM), pd_pb2.ListRangesResponse, timeout_s=TIMEOUT_S)
        shards = f"_topic-{topic.topic_id}-shard-0"
        of_shard = await pd.call(pd_pb2.ListRangesRequest(name=shards), pd_pb2.ListRangesResponse, timeout_s=TIMEOUT_S)
        told = await pd.call(broker_pb2.ListBrokersRequest(), broker_pb2.ListBrokersResponse, timeout_s=TIMEOUT_S)
    ranges = listed.ranges[-1], of_shard.ranges[-1]
    return Places(cluster, listed.stream, *ranges, topic.topic_id, other.topic_id, told.brokers[0])


async def check_rights(cluster: Cluster, certificates: TestCertificates, outcome: Outcome) -> None:
    """Check every cell."""
    places = await prepare(cluster)
    for name, rules in RULES.items():
        for verbs, kind, resource in rules:
            done = await asyncio.to_thread(pdctl, cluster, "acl", "grant", f"client:{name}", verbs, kind, resource)
            outcome.expect(
                f"grant {verbs} on {kind} {resource} to {name}: {done.stderr.decode()}", "0", str(done.returncode)
            )
    before = await _tried(PROBES["pd describe"][1], places, certificates.tls("client", "none"))
    outcome.expect("a client without rules, before they are enforced", "admitted", before)
    done = await asyncio.to_thread(pdctl, cluster, "acl", "enforce", "on", "--yes")
    outcome.expect(f"enforce: {done.stderr.decode()}", "0", str(done.returncode))
    await asyncio.sleep(HEARTBEATS_S)
    for name in RULES:
        tls = certificates.tls("client", name)
        for what, (enough, probe) in PROBES.items():
            has = set(VERBS_OF[name].split()) if what not in OF_TRANSACTIONS or name != "prefix" else set()
            expected = "admitted" if has & set(enough.split()) or (name == "all" and " another " in what) else "refused"
            outcome.expect(f"{name}: {what}", expected, await _tried(probe, places, tls))
        for path in LISTS:
            seen = await _tried(_rest("GET", path), places, tls)
            outcome.expect(f"{name}: rest {path}", "admitted" if name == "all" else "refused", seen)
    admin = certificates.tls("admin", "m")
    for what, (_, probe) in PROBES.items():
        outcome.expect(f"an administrator: {what}", "admitted", await _tried(probe, places, admin))


HEARTBEATS_S = 2.0
"""The bound within which servers know that rights changed: a heartbeat, and its answer."""


async def _tried(probe: Probe, places: Places, tls: TlsConfig) -> str:
    try:
        await probe(places, tls)
    except RightMissing:
        return "refused"
    except RangelogError as error:
        unsure = error.code in ("REQUEST_TIMEOUT", "HANDSHAKE_FAILED") or "not known now" in error.message
        return error.code if unsure else "admitted"
    return "admitted"
