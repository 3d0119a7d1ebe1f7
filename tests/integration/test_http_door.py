"""The door for plain HTTP of real brokers: by curl and by raw sockets, beside the SDK, and while brokers die."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from tests.integration.conftest import running
from tests.support.openings import everything_opens
from tests.support.socket_client import SocketClient
from tests.support.waiting import Seen, eventually, until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "http.md"

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture
def topic(broker_cluster: Cluster) -> str:
    """The URL of a topic of its own, at the first broker."""
    url = f"{door(broker_cluster, 'broker1')}/v1/topics/default/t{uuid.uuid4().hex[:10]}"

    def made() -> bool:
        return curl("-X", "PUT", "--json", '{"shards": 3}', url)[0] == 201

    eventually(made, "the topic is made", 60)
    return url


def door(cluster: Cluster, broker: str) -> str:
    """Where a broker serves it, by its endpoint file."""
    return f"http://{cluster.brokers[broker].endpoint()['doors']['http']}"


def curl(*arguments: str, data: bytes | None = None) -> tuple[int, Any]:
    """Run curl; return the status (0: no answer) and the answer, parsed if it is JSON."""
    given = ["--data-binary", "@-"] if data is not None else []
    done = subprocess.run(
        ["curl", "-s", "-m", "60", "-w", "\n%{http_code}", *given, *arguments], input=data, capture_output=True, timeout=90
    )  # fmt: skip
    body, _, status = done.stdout.rpartition(b"\n")
    try:
        return int(status), json.loads(body)
    except ValueError:
        return int(status), body


def spoken(address: str, *parts: bytes, answers: bool = True) -> bytes:
    """Send bytes as they are; return all that comes until the connection is closed."""
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        came = b""
        try:
            for part in parts:
                connection.sendall(part)
            while some := connection.recv(65_536):
                came += some
        except (ConnectionResetError, BrokenPipeError):
            pass
        return came


def test_records_of_curl_and_of_the_sdk_are_one_topic(broker_cluster: Cluster, topic: str) -> None:
    """Each reads what the other has sent, from either broker; what is acked is where the answer says."""
    lines = b"".join(b'{"id": %d}\n' % number for number in range(300))
    kind = ("-H", "content-type: application/x-ndjson")
    status, sent = curl(*kind, f"{topic}/records?key_pointer=/id", data=lines)
    assert status == 200 and sent["failed"] == 0
    name = f"default/{topic.rpartition('/')[2]}"

    async def run() -> dict[tuple[int, int], bytes]:
        async with rangelog.connect(broker_cluster.connect_string) as client:
            async with client.producer(name) as producer:
                await producer.send(b"by the SDK", key=b"\xff")
            return {(each.shard_id, each.offset): each.value async for each in client.topic_reader(name)}

    found = asyncio.run(run())
    assert len(found) == 301
    for number, place in enumerate(sent["outcomes"]):
        assert found[place["shard"], place["offset"]] == b'{"id": %d}' % number
    other = topic.replace(door(broker_cluster, "broker1"), door(broker_cluster, "broker2"))
    read: dict[tuple[int, int], bytes] = {}
    position = "earliest"
    while True:
        status, answer = curl(f"{other}/records?limit=100&from={position}")
        assert status == 200
        if not answer["records"]:
            break
        read |= {(each["shard"], each["offset"]): each["value"].encode() for each in answer["records"]}
        position = answer["next"]
    assert read == found


def test_requests_that_no_two_programs_would_read_alike(broker_cluster: Cluster, topic: str) -> None:
    """Two lengths, a length beside chunks, bad chunks, a head without end, bare line feeds: refused, and nothing is in."""
    address = door(broker_cluster, "broker1")
    path = topic.removeprefix(address).encode()
    post = b"POST %s/records HTTP/1.1\r\nHost: x\r\n" % path
    for rest in (
        b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\na\r\n0\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"Content-Length: -1\r\n\r\na",
        b"Content-Length: +1\r\n\r\na",
        b"Content-Length: 1\r\nX: a\x00b\r\n\r\na",
        b"Content-Length : 1\r\n\r\na",
        b"X-Big: " + b"x" * 200_000 + b"\r\nContent-Length: 1\r\n\r\na",
        b"".join(b"X-%d: y\r\n" % number for number in range(20_000)) + b"Content-Length: 1\r\n\r\na",
    ):
        came = spoken(address, post + rest + b"GET /openapi.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert came.split(b"\r\n", 1)[0].split(b" ")[1:2] in ([b"400"], []), (rest[:60], came[:200])
        assert b"200 OK" not in came, rest[:60]
    names = b"Idempotency-Key: a\r\nIdempotency-Key: b\r\n"
    came = spoken(address, post + names + b"Connection: close\r\nContent-Length: 1\r\n\r\na")
    assert came.split(b" ")[1:2] == [b"400"]
    status, answer = curl(f"{topic}/records")
    assert (status, answer["records"]) == (200, [])


def test_requests_in_one_piece_are_answered_in_turn(broker_cluster: Cluster, topic: str) -> None:
    """Pipelined, as some clients send them: in order, each once."""
    address = door(broker_cluster, "broker1")
    path = topic.removeprefix(address).encode()
    requests = b"".join(
        b"POST %s/records?key=k HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n%02d" % (path, number)
        for number in range(50)
    )
    last = b"GET %s/records HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path
    came = spoken(address, requests + last)
    assert came.count(b"HTTP/1.1 200 OK") == 51
    _, answer = curl(f"{topic}/records")
    assert [each["value"] for each in answer["records"]] == [f"{number:02d}" for number in range(50)]


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose brokers may be killed."""
    with running(tmp_path_factory.mktemp("http"), pds=1, brokers=2, doors=("http",)) as made:
        yield made
        asyncio.run(everything_opens(made))


def test_what_was_answered_is_there_after_kills(own: Cluster, tmp_path: Path) -> None:
    """Nothing acked is lost, the order of each client's acked records is kept; what has a name is there once, over a split too.

    Two clients name their requests and repeat each until it is acked, the others go on to their next one.
    """
    urls = {name: f"{door(own, name)}/v1/topics/default/news" for name in own.brokers}
    eventually(lambda: curl("-X", "PUT", "--json", '{"shards": 4}', urls["broker1"])[0] == 201, "the topic is made", 60)
    stopped = threading.Event()
    acked: dict[str, list[tuple[str, int, int]]] = {f"c{number}": [] for number in range(4)}
    named = ("c2", "c3")

    def send(client: str) -> None:
        number = 0
        while not stopped.is_set():
            value = f"{client}-{number}"
            name = ("-H", f"Idempotency-Key: {value}") if client in named else ()
            for url in (urls["broker1"], urls["broker2"]):
                status, answer = curl(*name, f"{url}/records?key={client}", data=value.encode())
                if status == 200:
                    acked[client].append((value, answer["shard"], answer["offset"]))
                    break
            number += status == 200 or client not in named

    async def split() -> None:
        async with rangelog.connect(own.connect_string) as client:
            await client.topics.scale("news", [0, 1, 2, 3], 7, timeout_s=90)

    threads = [threading.Thread(target=send, args=(client,)) for client in acked]
    for thread in threads:
        thread.start()
    try:
        for name in ("broker1", "broker2", "broker1"):
            before = {client: len(known) for client, known in acked.items()}

            def all_sent(before: dict[str, int] = before) -> Seen:
                counts = {client: len(known) for client, known in acked.items()}
                return Seen(all(counts[each] >= before[each] + 5 for each in counts), counts)

            eventually(all_sent, "each client has five more acks", 90)
            own.kill(name)
            if name == "broker2":
                asyncio.run(split())
            own.start_member(name)
        eventually(all_sent, "each client is acked after the last kill", 90)
    finally:
        stopped.set()
        for thread in threads:
            thread.join()

    async def read() -> dict[tuple[int, int], str]:
        async with rangelog.connect(own.connect_string) as client:
            return {(each.shard_id, each.offset): each.value.decode() async for each in client.topic_reader("news")}

    found = asyncio.run(read())
    for client, known in acked.items():
        assert [found.get((shard, offset)) for _, shard, offset in known] == [value for value, _, _ in known]
        places = [(shard, offset) for _, shard, offset in known]
        assert places == sorted(places), f"the records of {client} are in another order"
    once = sorted(value for value in found.values() if value.startswith(named))
    assert len(once) == len(set(once)), "a record is there twice"
    assert {f"{client}-{number}" for client in named for number in range(len(acked[client]))} <= set(once)


def test_the_examples_of_the_page(broker_cluster: Cluster) -> None:
    """Each command works, in the order of docs/http.md, and the answers shown are parts of the real ones."""
    blocks = re.findall(r"```(console|json)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for path in ("v1/topics/default/orders?force=true", "v2/streams/who"):  # other pages have such topics
        curl("-X", "DELETE", f"{door(broker_cluster, 'broker1')}/{path}")
    came = b""
    count = 0
    for kind, text in blocks:
        if kind == "json":
            real = json.loads(came.splitlines()[-1])
            assert {key: real[key] for key in json.loads(text)} == json.loads(text)
        elif "export HTTP" not in text:
            env = {"HTTP": door(broker_cluster, "broker1"), "PATH": os.environ["PATH"]}
            came = subprocess.run(["bash", "-c", text], env=env, capture_output=True, timeout=90, check=True).stdout
            assert came and b'"error"' not in came and b'"code"' not in came, (text, came)
            count += 1
    assert count >= 6


def test_a_tail_goes_on_at_another_broker(own: Cluster) -> None:
    """Its broker is killed: by the id of the last event the records go on at the other one, none missing, none twice."""
    urls = {name: f"{door(own, name)}/v1/topics/default/followed" for name in own.brokers}
    eventually(lambda: curl("-X", "PUT", "--json", '{"shards": 2}', urls["broker2"])[0] == 201, "the topic is made", 60)
    came: list[tuple[str, int, int]] = []
    last = ""

    def follow(broker: str, until_count: int) -> None:
        nonlocal last
        resume = ["-H", f"Last-Event-ID: {last}"] if last else []
        command = ["curl", "-sN", "-m", "120", *resume, f"{urls[broker]}/tail?from=earliest"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(b"id: "):
                    last = line[4:].strip().decode()
                elif line.startswith(b"data: "):
                    record = json.loads(line[6:])
                    came.append((record["value"], record["shard"], record["offset"]))
                    if len(came) == until_count:
                        break
            process.kill()

    lines = b"".join(b"%d\n" % number for number in range(100))
    kind = ("-H", "content-type: application/x-ndjson")
    assert curl(*kind, f"{urls['broker2']}/records", data=lines)[0] == 200
    follow("broker1", 40)
    own.kill("broker1")
    follow("broker2", 100)
    assert sorted(int(value) for value, _, _ in came) == list(range(100))
    assert len({(shard, offset) for _, shard, offset in came}) == 100
    own.start_member("broker1")


def test_a_socket_goes_on_at_another_broker(broker_cluster: Cluster, topic: str) -> None:
    """From the position of whichever message came last, with a filter: none missing, none twice."""
    lines = b"".join(b'{"id": "%d", "n": %d}\n' % (number % 3, number) for number in range(90))
    kind = ("-H", "content-type: application/x-ndjson")
    assert curl(*kind, f"{topic}/records?key_pointer=/id", data=lines)[0] == 200
    path = topic.removeprefix(door(broker_cluster, "broker1"))

    async def follow(broker: str, start: str, count: int) -> SocketClient:
        host, _, port = door(broker_cluster, broker).removeprefix("http://").partition(":")
        client = await SocketClient.open((host, int(port)), f"{path}/tail?key=1&from={start}")
        assert client.status == 101
        client.send({"credits": count})
        await until(lambda: len(client.values) == count, "the records come")
        await client.close()
        return client

    async def run() -> list[str]:
        first = await follow("broker1", "earliest", 12)
        second = await follow("broker2", first.messages[-1]["next"], 18)
        return first.values + second.values

    assert [json.loads(value)["n"] for value in asyncio.run(run())] == list(range(1, 90, 3))


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js")
def test_a_program_in_node(broker_cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """Its own fetch and WebSocket: it sends, follows with credits, and closes."""
    script = tmp_path / "follow.mjs"
    script.write_text("""
const [address] = process.argv.slice(2);
for (const n of [1, 2, 3]) {
  const sent = await fetch(`${address}/records?key=k`, {method: "POST", body: `value ${n}`});
  if (sent.status !== 200) throw new Error(`status ${sent.status}`);
}
const socket = new WebSocket(`${address.replace("http:", "ws:")}/tail?from=earliest`, ["rangelog.v1"]);
const came = [];
socket.onopen = () => socket.send('{"credits": 3}');
socket.onmessage = (message) => {
  const {record} = JSON.parse(message.data);
  if (record) came.push(record.value);
  if (came.length === 3) socket.close(1000);
};
socket.onclose = (event) => console.log(JSON.stringify({came, code: event.code, chosen: socket.protocol}));
""")
    done = subprocess.run(
        ["node", "--experimental-websocket", str(script), topic], capture_output=True, timeout=90, check=True
    )
    came = json.loads(done.stdout)
    assert came == {"came": ["value 1", "value 2", "value 3"], "code": 1000, "chosen": "rangelog.v1"}


def test_a_client_that_closes_its_half_is_answered(broker_cluster: Cluster, topic: str) -> None:
    """As `nc -N` does after a request."""
    address = door(broker_cluster, "broker1")
    path = topic.removeprefix(address).encode()
    host, _, port = address.removeprefix("http://").partition(":")
    for request in (
        b"POST %s/records HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na" % path,
        b"GET %s/records?wait_ms=60000&from=latest HTTP/1.1\r\nHost: x\r\n\r\n" % path,
        b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path,
    ):
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            came = b""
            while some := connection.recv(65_536):
                came += some
        assert came.startswith(b"HTTP/1.1 200 OK\r\n"), (request, came)
