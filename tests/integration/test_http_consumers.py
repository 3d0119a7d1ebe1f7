"""Consumers and streams over HTTP of real brokers: by curl, beside the SDK, and while brokers die before a commit."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from tests.integration.conftest import running
from tests.integration.test_http_door import curl, door
from tests.support.openings import everything_opens
from tests.support.waiting import Seen, eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

LINES = ("-H", "content-type: application/x-ndjson")


def made(url: str, shards: int) -> str:
    """Make a topic; return its URL."""
    eventually(
        lambda: curl("-X", "PUT", "--json", f'{{"shards": {shards}}}', url)[0] in (200, 201), "the topic is made", 60
    )
    return url


def joined(address: str, group: str, topic: str, **more: Any) -> str:
    """Join a group; return the URL of the consumer."""
    body = json.dumps({"topics": [topic]} | more)

    def join() -> Seen:
        status, answer = curl("-X", "POST", "--json", body, f"{address}/v1/groups/{group}/consumers")
        return Seen(status == 201, answer)

    answer: Any = eventually(join, "it has joined", 60).value
    return f"{address}/v1/groups/{group}/consumers/{answer['consumer']}"


class HttpConsumer:
    """A client that joins, dequeues, and commits; it joins again at whichever broker answers."""

    def __init__(self, addresses: list[str], group: str, topic: str) -> None:
        self.addresses, self.group, self.topic = addresses, group, topic
        self.committed: list[tuple[int, int, str]] = []
        self.handed: list[tuple[int, int, str]] = []
        self.joins = 0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        """A commit without an answer may be taken: its records are handed out, and perhaps not again."""
        url = ""
        while not self.stopped.is_set():
            if not url:
                address = self.addresses[self.joins % len(self.addresses)]
                body = json.dumps({"topics": [self.topic], "session_s": 5})
                self.joins += 1
                status, answer = curl("-X", "POST", "--json", body, f"{address}/v1/groups/{self.group}/consumers")
                url = f"{address}/v1/groups/{self.group}/consumers/{answer['consumer']}" if status == 201 else ""
                continue
            status, answer = curl("-X", "POST", f"{url}/dequeue?limit=10&wait_ms=500")
            if status != 200:
                url = "" if status in (0, 404) else url
                continue
            records = [(each["shard"], each["offset"], each["value"]) for each in answer["records"]]
            self.handed += records
            if not records:
                continue
            status, _ = curl("-X", "POST", f"{url}/commit?batch={answer['batch']}")
            if status == 200:
                self.committed += records
            elif status in (0, 404):
                url = ""

    def stop(self) -> None:
        """End it."""
        self.stopped.set()
        self.thread.join()


async def positions(cluster: Cluster, group: str) -> dict[int, int]:
    """What is committed, by shard."""
    async with rangelog.connect(cluster.connect_string) as client:
        return {each.shard_id: each.offset or 0 for each in (await client.groups.describe(group)).shards}


async def read(topic: str, cluster: Cluster) -> dict[int, int]:
    """How many records there are, by shard."""
    async with rangelog.connect(cluster.connect_string) as client:
        return dict((await client.topics.cut(topic, "tail")).offsets)


async def members(cluster: Cluster, group: str) -> list[str]:
    """The members of a group."""
    async with rangelog.connect(cluster.connect_string) as client:
        return [each.member_id for each in (await client.groups.describe(group)).members]


def test_a_consumer_and_the_sdk_share_a_group(broker_cluster: Cluster) -> None:
    """What curl has committed the SDK does not get, and the other way round; any other broker says where to go on."""
    name = f"t{uuid.uuid4().hex[:10]}"
    first, second = (door(broker_cluster, each) for each in ("broker1", "broker2"))
    topic = made(f"{first}/v1/topics/default/{name}", 3)
    lines = b"".join(b"%d\n" % number for number in range(100))
    status, sent = curl(*LINES, f"{topic}/records", data=lines)
    assert (status, sent["failed"]) == (200, 0)
    url = joined(first, name, name)
    found: list[int] = []
    while len(found) < 40:
        status, answer = curl("-X", "POST", f"{url}/dequeue?limit=10&wait_ms=10000")
        assert status == 200 and answer["records"]
        assert curl("-X", "POST", f"{url}/dequeue")[1] == answer, "until it is committed"
        found += [int(each["value"]) for each in answer["records"]]
        assert curl("-X", "POST", f"{url}/commit?batch={answer['batch']}")[0] == 200
    status, answer = curl("-X", "POST", f"{url.replace(first, second)}/dequeue")
    assert (status, answer["code"]) == (404, "MEMBER_NOT_FOUND") and "join here" in answer["message"]
    assert curl("-X", "DELETE", url)[0] == 204

    async def rest() -> list[int]:
        async with rangelog.connect(broker_cluster.connect_string) as client:
            values: list[int] = []
            async with asyncio.timeout(60), client.group(name, name) as member:
                async for record in member:
                    values.append(int(record.value))
                    if len(values) == 30:
                        await member.commit()
                        return values
        return values

    found += asyncio.run(rest())
    url = joined(second, name, name)
    while len(found) < 100:
        status, answer = curl("-X", "POST", f"{url}/dequeue?wait_ms=10000")
        assert status == 200 and answer["records"]
        found += [int(each["value"]) for each in answer["records"]]
        assert curl("-X", "POST", f"{url}/commit?batch={answer['batch']}")[0] == 200
    assert sorted(found) == list(range(100))


def test_a_stream_of_cdap(broker_cluster: Cluster) -> None:
    """Its whole life by curl, as it answers on a socket: statuses, headers, and no body where there is none."""
    name = f"s{uuid.uuid4().hex[:10]}"
    address = door(broker_cluster, "broker1")
    stream = f"{address}/v2/streams/{name}"
    eventually(lambda: curl("-X", "PUT", stream)[0] == 200, "the stream is made", 60)
    for number in range(3):
        assert curl("-H", f"{name}.n: {number}", stream, data=b"event %d" % number) == (200, b"")
    assert curl("-X", "POST", f"{stream}/async", data=b"event 3")[0] == 202
    assert curl("-H", "content-type: text/plain", f"{stream}/batch", data=b"event 4\nevent 5\n")[0] == 200
    status, one = curl("-X", "POST", f"{stream}/consumer-id")
    assert status == 200
    dequeue = [
        "curl",
        "-s",
        "-i",
        "-m",
        "60",
        "-X",
        "POST",
        "-H",
        f"X-Continuuity-ConsumerId: {one.decode()}",
        f"{stream}/dequeue",
    ]
    bodies: list[bytes] = []
    while True:
        head, _, body = subprocess.run(dequeue, capture_output=True, timeout=90, check=True).stdout.partition(
            b"\r\n\r\n"
        )
        if b" 204 " in head.split(b"\r\n")[0]:
            break
        assert b" 200 " in head.split(b"\r\n")[0], head
        assert len(bodies) > 2 or b"%s.n: %d" % (name.encode(), len(bodies)) in head.lower()
        bodies.append(body)
    assert not body and b"content-length" not in head.lower()
    assert sorted(bodies) == [b"event %d" % number for number in range(6)] and bodies[:3] == sorted(bodies)[:3]
    events = curl(f"{stream}/events?limit=2")[1]
    assert [each["body"] for each in events] == ["event 0", "event 1"]
    assert curl("-X", "PUT", "--json", '{"ttl": 60}', f"{stream}/config")[0] == 200
    assert curl(f"{stream}/info")[1] == {"name": name, "ttl": 60}
    assert curl("-X", "POST", f"{stream}/truncate")[0] == 200
    assert curl(f"{stream}/events") == (204, b"")
    assert curl("-X", "DELETE", f"{address}/v3/namespaces/default/streams/{name}")[0] == 200


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose brokers may be killed."""
    with running(tmp_path_factory.mktemp("http"), pds=1, brokers=2, doors=("http",)) as one:
        yield one
        asyncio.run(everything_opens(one))


def test_a_broker_dies_between_dequeue_and_commit(own: Cluster) -> None:
    """The batch is handed out again at the other one, and what was committed is not; a broker that stops hands over at once."""
    first, second = (door(own, each) for each in ("broker1", "broker2"))
    topic = made(f"{second}/v1/topics/default/jobs", 1)
    assert curl(*LINES, f"{topic}/records", data=b"".join(b"%d\n" % number for number in range(9)))[0] == 200
    url = joined(first, "g", "jobs")
    done = curl("-X", "POST", f"{url}/dequeue?limit=3&wait_ms=10000")[1]
    assert curl("-X", "POST", f"{url}/commit?batch={done['batch']}")[0] == 200
    lost = curl("-X", "POST", f"{url}/dequeue?limit=3&wait_ms=10000")[1]
    assert [each["value"] for each in lost["records"]] == ["3", "4", "5"]
    other = joined(second, "g", "jobs")
    own.kill("broker1")

    def handed() -> Seen:
        status, answer = curl("-X", "POST", f"{other}/dequeue?limit=3&wait_ms=5000")
        return Seen(status == 200 and answer["records"], answer)

    again: Any = eventually(handed, "the other one is handed the batch", 90).value
    assert again["records"] == lost["records"]
    assert curl("-X", "POST", f"{other}/commit?batch={again['batch']}")[0] == 200
    own.start_member("broker1")
    first = door(own, "broker1")
    eventually(lambda: curl(f"{first}/v1/topics/default/jobs")[0] == 200, "the broker is back", 60)
    last = curl("-X", "POST", f"{other}/dequeue?wait_ms=10000")[1]
    assert [each["value"] for each in last["records"]] == ["6", "7", "8"]
    url = joined(first, "g", "jobs")
    own.restart("broker2")
    assert len(asyncio.run(members(own, "g"))) == 1

    def taken() -> Seen:
        status, answer = curl("-X", "POST", f"{url}/dequeue?wait_ms=2000")
        return Seen(status == 200 and answer["records"], answer)

    found: Any = eventually(taken, "the broker that stopped has handed over", 60).value
    assert found["records"] == last["records"]


@pytest.mark.long
def test_nothing_is_lost_while_brokers_are_killed(own: Cluster) -> None:
    """Three clients consume while records come and brokers die: each record is handed out before it is committed."""
    addresses = [door(own, each) for each in own.brokers]
    made(f"{addresses[0]}/v1/topics/default/tasks", 4)
    sent: set[str] = set()
    stopped = threading.Event()

    def send() -> None:
        number = 0
        while not stopped.is_set():
            lines = b"".join(b"%d\n" % each for each in range(number, number + 20))
            status, answer = curl(*LINES, f"{addresses[number // 20 % 2]}/v1/topics/default/tasks/records", data=lines)
            if status == 200 and not answer["failed"]:
                sent.update(str(each) for each in range(number, number + 20))
            number += 20

    consumers = [HttpConsumer(addresses, "workers", "tasks") for _ in range(3)]
    sender = threading.Thread(target=send)
    sender.start()
    try:
        for name in ("broker1", "broker2", "broker1"):
            before = sum(len(each.committed) for each in consumers)

            def goes_on(before: int = before) -> Seen:
                count = sum(len(each.committed) for each in consumers)
                return Seen(count >= before + 40, count)

            eventually(goes_on, "the consumers go on", 90)
            own.kill(name)
            own.start_member(name)
        stopped.set()
        sender.join()

        def all_done() -> Seen:
            found = asyncio.run(read("tasks", own)), asyncio.run(positions(own, "workers"))
            return Seen(found[0] == found[1], found)

        eventually(all_done, "all that is there is committed", 120)
    finally:
        stopped.set()
        sender.join()
        for each in consumers:
            each.stop()
    handed = {(shard, offset) for each in consumers for shard, offset, _ in each.handed}
    assert sent <= {value for each in consumers for _, _, value in each.handed}
    for shard, offset in asyncio.run(positions(own, "workers")).items():
        assert {(shard, each) for each in range(offset)} <= handed, f"records of shard {shard} were passed over"
    assert sum(each.joins for each in consumers) > 3, "no consumer's broker died"
