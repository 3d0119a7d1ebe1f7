"""The REST interface of real brokers: the examples of docs/rest.md, groups and transactions, and a stop."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from tests.integration.conftest import running
from tests.support.openings import everything_opens
from tests.support.waiting import Seen, eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rest.md"
LOCAL_ADDRESS = "http://127.0.0.1:7160"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One placement driver and one broker, for all tests here."""
    with running(tmp_path_factory.mktemp("rest"), pds=1, brokers=1) as made:
        yield made
        asyncio.run(everything_opens(made))


@pytest.fixture
def rest(cluster: Cluster) -> str:
    """Where the broker serves it, by its endpoint file."""
    return f"http://{cluster.brokers['broker1'].endpoint()['rest_address']}"


def call(method: str, url: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """One request; status and what came, parsed if it is JSON."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode() if body is not None else None
    known = {"Content-Type": "application/json"} if data is not None else {}
    request = urllib.request.Request(url, data, known | (headers or {}), method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            content = response.read()
            return response.status, json.loads(content) if content else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def patiently(method: str, url: str, body: Any = None) -> tuple[int, Any]:
    """The same until it is possible: a broker that has just started owns nothing yet."""

    def answered() -> Seen:
        status, came = call(method, url, body)
        return Seen(status not in (503, 504), (status, came))

    found: tuple[int, Any] = eventually(answered, f"{method} {url} is not possible").value  # type: ignore[assignment]
    return found


def run_curl(line: str, rest: str) -> Any:
    """Carry out a curl command of the page: -X, --json and a URL are all that it uses."""
    words = shlex.split(line.replace("$REST", rest))
    assert words.pop(0) == "curl"
    method, body, url = "", None, ""
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "--json":
            body = words.pop(0)
        else:
            assert word.startswith("http"), line
            url = word
    _, came = patiently(method or ("POST" if body is not None else "GET"), url, body)
    return came


def is_part(part: Any, whole: Any) -> bool:
    """Whether all that is shown is in the answer; lists have the same length, but for those of brokers."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and is_part(part[key], whole[key]) for key in part)
    if isinstance(part, list):
        return len(part) == len(whole) and all(map(is_part, part, whole))
    return bool(part == whole)


def test_the_examples_of_the_page_give_what_they_show(rest: str) -> None:
    """Every command runs, and each shown answer is part of that of the command before it."""
    blocks = re.findall(r"```(console|json)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    came: Any = None
    ran = compared = 0
    for kind, text in blocks:
        if kind == "json":
            assert is_part(json.loads(text), came), (text, came)
            compared += 1
            continue
        for line in text.strip().splitlines():
            if line.startswith("export"):
                assert line == f"export REST={LOCAL_ADDRESS}"
                continue
            came = run_curl(line, rest)
            assert kind == "console" and ("STREAM_NOT_FOUND" in str(came) or "code" not in (came or {})), (line, came)
            ran += 1
    assert ran >= 15 and compared >= 10


async def test_a_group_by_rest(cluster: Cluster, rest: str) -> None:
    """Lag of what a member has committed, a checkpoint, a reset while it reads, and the delete once it is gone."""

    async def ask(method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return await asyncio.to_thread(patiently, method, rest + path, body)

    async with await rangelog.connect(cluster.connect_string) as client:
        await client.topics.create("orders")
        async with client.producer("orders") as producer:
            for number in range(5):
                await producer.send(b"%d" % number, key=b"k")
        async with client.group("billing", "orders") as member:
            read = 0
            async for _ in member:
                read += 1
                if read == 3:
                    break
            await member.commit()
            status, lag = await ask("GET", "/v1/groups/billing/lag")
            assert status == 200 and lag["records"] in (2, 3), lag
            status, shown = await ask("GET", "/v1/groups/billing")
            assert [each["topic"] for each in shown["shards"]] == ["default/orders"]
            assert len(shown["members"]) == 1
            assert (await ask("DELETE", "/v1/groups/billing"))[0] == 409
        status, shown = await ask("POST", "/v1/groups/billing/reset", {"to": "earliest"})
        assert (status, shown["shards"][0]["offset"]) == (200, 0)
        assert (await ask("GET", "/v1/groups"))[1]["groups"][0]["name"] == "billing"
        assert (await ask("DELETE", "/v1/groups/billing"))[0] == 204
        assert (await ask("GET", "/v1/groups/billing"))[1]["code"] == "GROUP_NOT_FOUND"


async def test_transactions_by_rest(cluster: Cluster, rest: str) -> None:
    """An open transaction is listed and aborted; its program cannot commit it any more."""
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.topics.create("paid")
        async with client.transactional("billing-1") as program:
            transaction = program.transaction()
            await transaction.begin()
            await transaction.send("paid", b"x")
            _, page = await asyncio.to_thread(patiently, "GET", f"{rest}/v1/transactions?state=open")
            assert [each["transactional_id"] for each in page["transactions"]] == ["billing-1"]
            _, done = await asyncio.to_thread(patiently, "POST", f"{rest}/v1/transactions/billing-1/abort")
            assert done["state"] == "aborted"
            with pytest.raises(rangelog.PreconditionFailed):
                await transaction.commit()


def test_bad_input(rest: str) -> None:
    """Typed errors over real sockets too."""
    for method, path, body, status in (
        ("GET", "/v1/namespaces/no/topics/no", None, 404),
        ("GET", "/v1/streams/_topic-1-shard-0", None, 400),
        ("POST", "/v1/streams", "{", 400),
        ("POST", "/v1/streams", " " * (2 << 20), 413),
        ("PUT", "/v1/streams", {}, 405),
        ("GET", "/v3", None, 404),
    ):
        found, came = patiently(method, rest + path, body)
        assert found == status and set(came) == {"code", "message", "retriable", "outcome_unknown"}, path


def test_a_token_is_needed_where_the_cluster_has_one(cluster_factory: Callable[..., Cluster]) -> None:
    """The token of the control plane, as Bearer; the broker ends cleanly with its interface."""
    cluster = cluster_factory(pds=1, brokers=1)
    broker = cluster.brokers["broker1"]
    broker.request_stop()
    assert broker.wait(30) == 0
    broker.env |= {"RANGELOG_BROKER_TOKEN": "secret"}
    cluster.start_member("broker1")
    url = f"http://{broker.endpoint()['rest_address']}/v1/brokers"
    assert call("GET", url)[1]["code"] == "UNAUTHORIZED"
    assert call("GET", url, headers={"Authorization": "Bearer wrong"})[0] == 401
    status, came = call("GET", url, headers={"Authorization": "Bearer secret"})
    assert status == 200 and came["brokers"][0]["name"] == "broker1"
