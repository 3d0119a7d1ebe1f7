"""The application over a cluster in memory: what each address answers, to whom, and what it costs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import rangelog_page
from pdctl.session import Session
from pdctl.top import Sample
from rangelog.testing import FakeCluster
from rangelog_core.errors import InvalidArgument, RoleForbids, Unavailable
from rangelog_core.net.principals import Port, Principal, Role
from rangelog_core.rights import KIND_NAMES
from rangelog_page import cluster_views, stream_views
from rangelog_page.app import make_page_app
from rangelog_page.asking import Asking, require
from rangelog_page.rendering import Rendering
from rangelog_page.sections import SECTIONS
from rangelog_page.shared_answers import SharedAnswers
from rangelog_page.viewer_rights import AGE_S
from rangelog_pd.handlers.service import RULES
from rangelog_proto.v1 import broker_pb2, pd_pb2, rights_pb2
from rangelog_server_common.http_server import PRINCIPAL
from tests.support.rest_caller import Answer, RestCaller

HOST = {"host": "localhost"}
SESSION = Session(endpoints="127.0.0.1:1", token=None, ca=None, cert=None, key=None, timeout_s=1.0)


class Page:
    """The page of a cluster in memory, and its client."""

    def __init__(self, asking: Asking) -> None:
        self.asking = asking
        self.now_s = 0.0
        asking.shared = SharedAnswers(lambda: self.now_s)
        self.client = asking.client
        self._app = make_page_app(asking, Rendering("pd1"), token=None, hosts=())

    async def get(self, target: str, *, role: Role | None = None, **headers: str) -> Answer:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            state = {PRINCIPAL: Principal(role, "x")} if role is not None else {}
            await self._app(scope | {"state": state}, receive, send)

        return await RestCaller(app, **HOST)(
            "GET", target, headers=HOST | {k.replace("_", "-"): v for k, v in headers.items()}
        )


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    asking = Asking(FakeCluster().client(), SESSION)
    yield Page(asking)
    await asking.close()


@pytest.fixture
async def real() -> AsyncIterator[Page]:
    """With the production placement driver and a broker."""
    with FakeCluster(brokers=1) as cluster:
        asking = Asking(cluster.client(), SESSION)
        yield Page(asking)
        await asking.close()


async def test_a_stream_from_its_making_to_its_records(page: Page) -> None:
    """An empty list says how to begin; then the stream is in it, is drawn, and its last records are shown, escaped."""
    empty = await page.get("/streams")
    assert empty.status == 200 and b"pdctl stream create" in empty.body
    await page.client.create_stream("clicks")
    assert b'href="/streams/clicks"' in (await page.get("/streams?prefix=cli")).body
    assert b"No stream's name begins so" in (await page.get("/streams?prefix=zzz")).body
    unwritten = await page.get("/streams/clicks")
    assert b"The stream has no range yet" in unwritten.body and b"No record yet" in unwritten.body
    await page.client.append("clicks", [b"<script>alert(1)</script>", b"\xff\x00"])
    page.now_s += 60  # answers are not shared for that long
    written = (await page.get("/streams/clicks")).body.decode()
    assert "&lt;script&gt;alert(1)" in written and "<script>alert" not in written and "ff 00" in written
    assert 'aria-label="range 0, ' in written and "<title>Stream clicks – rangelog</title>" in written


async def test_lists_are_paged(real: Page) -> None:
    """A page has as many rows as were asked for, and the address of the next one; each stream is on one real."""
    for number in range(5):
        await real.client.create_stream(f"s{number}")
    first = (await real.get("/streams?limit=2")).body.decode()
    assert first.count('href="/streams/s') == 2 and 'href="/streams?limit=2&amp;after=s1"' in first
    last = (await real.get("/streams?limit=2&after=s3")).body.decode()
    assert last.count('href="/streams/s') == 1 and "Next page" not in last and "First page" in last


async def test_topics_and_their_shards(real: Page) -> None:
    """A topic is listed, with its shards on the key space, each with its owner and a link to its stream."""
    assert b"pdctl topic create" in (await real.get("/topics")).body
    await real.client.topics.create("orders", shards=2)
    async with real.client.producer("orders") as producer:
        await producer.send(b"v", key=b"k")
    real.now_s += 60
    assert b'href="/topics/default/orders"' in (await real.get("/topics?prefix=or")).body
    assert b'href="/topics/default/orders"' not in (await real.get("/topics?prefix=other/or")).body
    shown = (await real.get("/topics/default/orders")).body.decode()
    assert shown.count('data-key="keys-') == 2 and shown.count("/streams/_topic-") >= 2 and "b1" in shown
    stream = shown.partition('href="/streams/')[2].partition('"')[0]
    assert (await real.get(f"/streams/{stream}")).status == 200
    assert (await real.get("/topics/default/none")).status == 404


async def test_groups_and_their_lag(real: Page) -> None:
    """A group is listed with its members; its page has the lag of each shard."""
    assert b"There are no groups" in (await real.get("/groups")).body
    await real.client.topics.create("orders", shards=1)
    async with real.client.producer("orders") as producer:
        for number in range(10):
            await producer.send(b"%d" % number, key=b"k")
    async with real.client.group("kitchen", "orders") as member:
        async for record in member:
            if record.value == b"3":
                await member.commit()
                break
    real.now_s += 60
    assert b'href="/groups/kitchen"' in (await real.get("/groups?prefix=ki")).body
    shown = (await real.get("/groups/kitchen")).body.decode()
    assert "<dd>6</dd>" in shown and "<bdi>default/orders</bdi>" in shown
    assert (await real.get("/groups/none")).status == 404


async def test_a_tail_goes_on_where_it_ended(page: Page) -> None:
    """It begins with the last records, says where to go on, and then has the new ones alone, as soon as there are any."""
    await page.client.create_stream("clicks")
    await page.client.append("clicks", [b"r%d" % number for number in range(30)])
    first = await page.get("/parts/tail?name=clicks")
    assert first.headers["next-offset"] == "30" and first.body.count(b"<li data-offset") == stream_views.TAIL_FIRST
    await page.client.append("clicks", [b"new"])
    more = await page.get("/parts/tail?name=clicks&offset=30")
    assert more.headers["next-offset"] == "31" and more.body.count(b"<li data-offset") == 1


async def test_a_tail_is_bounded(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is far behind jumps to the last records and says so; large records make an answer shorter, never endless."""
    await page.client.create_stream("clicks")
    await page.client.append("clicks", [b"x" * 30_000] * 70)
    monkeypatch.setattr(stream_views, "TAIL_BYTES_MAX", 100_000)
    far = await page.get("/parts/tail?name=clicks&offset=0")
    fitting = 3
    assert (
        b"20 records were not shown" in far.body
        and far.body.count(b"<li data-offset") == fitting < stream_views.TAIL_MAX
    )
    assert far.headers["next-offset"] == str(20 + fitting) and len(far.body) < 3_000 * fitting
    monkeypatch.setattr(stream_views, "TAIL_WAIT_S", 0.05)
    nothing = await page.get("/parts/tail?name=clicks&offset=70")
    assert nothing.headers["next-offset"] == "70" and b"<li data-offset" not in nothing.body


async def test_too_many_tails(page: Page) -> None:
    """Those beyond the limit are refused with what to do; the others go on."""
    await page.client.create_stream("clicks")
    for _ in range(16):
        await page.asking.tails.acquire()
    refused = await page.get("/parts/tail?name=clicks")
    assert refused.status == 503 and b"pdctl stream tail -f" in refused.body
    page.asking.tails.release()
    assert (await page.get("/parts/tail?name=clicks")).status == 200


async def test_what_has_not_changed_is_not_sent_again(page: Page) -> None:
    """A browser that has a section is told so; after a change it gets the new one."""
    await page.client.create_stream("clicks")
    first = await page.get("/parts/streams")
    again = await page.get("/parts/streams", if_none_match=first.headers["etag"])
    assert again.status == 304 and again.body == b"" and again.headers["cache-control"] == "no-store"
    await page.client.create_stream("more")
    page.now_s += 60  # answers are not shared for that long
    changed = await page.get("/parts/streams", if_none_match=first.headers["etag"])
    assert changed.status == 200 and b"more" in changed.body


async def test_many_browsers_ask_the_cluster_once(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who ask the same within a moment share one answer."""
    calls = 0
    ask = page.asking.pd.call

    async def counted(request: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += isinstance(request, pd_pb2.ListStreamsRequest)
        return await ask(request, *args, **kwargs)

    monkeypatch.setattr(page.asking.pd, "call", counted)
    for _ in range(20):
        assert (await page.get("/streams")).status == 200
    assert calls == 1


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/streams/none", 404, b"none"),
        ("/streams/..%2F..%2Fetc%2Fpasswd", 404, b""),
        ("/streams/%3Cscript%3E", 400, b"&lt;script&gt;"),
        ("/streams/-bad", 400, b"letters, digits"),
        ("/streams?limit=0", 400, b"limit"),
        ("/streams?limit=1000000", 400, b"limit"),
        ("/streams?first=-1", 400, b"first"),
        ("/streams?offset=99999999999999999999", 400, b"offset"),
        ("/streams?prefix=" + "x" * 301, 400, b"prefix"),
        ("/streams?%3Cb%3E=1", 400, b"&lt;b&gt;"),
        ("/parts/none", 404, b"nothing at this address"),
        ("/parts/stream", 400, b"needs a name"),
        ("/nowhere", 404, b"nothing at this address"),
        ("/streams/", 404, b""),
        ("/docs", 404, b""),
        ("/openapi.json", 404, b""),
    ],
)
async def test_bad_addresses(page: Page, target: str, status: int, said: bytes) -> None:
    """Each is refused with what is wrong, as a page of its own, and nothing of it is markup."""
    answer = await page.get(target)
    assert answer.status == status and said in answer.body and b"<script>" not in answer.body
    assert (
        answer.headers["content-type"] == "text/html; charset=utf-8"
        and answer.headers["x-content-type-options"] == "nosniff"
    )


@pytest.mark.parametrize(
    "name",
    ["../app.py", "..%2Fapp.py", "%2e%2e/app.py", "....//app.py", "/etc/passwd", "%2Fetc%2Fpasswd", "page.css/../../app.py", "",
     "page.css%00", "..\\app.py", "templates/base.html", "PAGE.CSS"],
)  # fmt: skip
async def test_no_path_leads_out_of_the_static_files(page: Page, name: str) -> None:
    """Only exact names are files."""
    answer = await page.get(f"/static/{name}")
    assert answer.status == 404 and b"import" not in answer.body and b"root:" not in answer.body


async def test_static_files(page: Page) -> None:
    """All of them are served with their types; by the address that the page has they are kept by the browser."""
    shown = (await page.get("/streams")).body.decode()
    for path in (Path(rangelog_page.__file__).parent / "static").iterdir():
        answer = await page.get(f"/static/{path.name}")
        assert (
            answer.status == 200 and answer.body == path.read_bytes() and answer.headers["cache-control"] == "no-cache"
        )
        assert f"/static/{path.name}?v=" in shown
        version = shown.partition(f"/static/{path.name}?v=")[2].partition('"')[0]
        kept = await page.get(f"/static/{path.name}?v={version}")
        assert "immutable" in kept.headers["cache-control"]


def test_who_sees_what() -> None:
    """A section is for the roles that may make all of its calls: administration is not for clients."""
    seen = {
        role: {name for name, section in SECTIONS.items() if _sees(Principal(role, "x"), name)} for role in Role
    }  # fmt: skip
    assert seen[Role.ADMIN] == set(SECTIONS)
    assert seen[Role.CLIENT] == set(SECTIONS) - {"findings", "tasks", "repairs"}
    for section in SECTIONS.values():
        for each in section.needs:
            assert isinstance(each, Port) or RULES.roles_of(each), each  # the name of a call that there is
        require(None, section.needs)  # without TLS nobody is told apart


def _sees(principal: Principal, name: str) -> bool:
    try:
        require(principal, SECTIONS[name].needs)
    except RoleForbids:
        return False
    return True


@pytest.mark.parametrize("name", ["findings", "tasks", "repairs"])
async def test_a_client_is_refused_administration(page: Page, name: str) -> None:
    """Before anything is asked of the cluster; the page itself may more than a client."""
    answer = await page.get(f"/parts/{name}", role=Role.CLIENT)
    assert answer.status == 403 and b"client:x may not use" in answer.body and b"role admin" in answer.body


@pytest.mark.parametrize(
    ("target", "kind", "name"),
    [
        ("/parts/stream?name=flights", "stream", "flights"),
        ("/parts/tail?name=flights", "stream", "flights"),
        ("/parts/streams?prefix=fl", "stream", "fl*"),
        ("/parts/topic?name=default/orders", "topic", "default/orders"),
        ("/parts/topics", "topic", "*"),
        ("/parts/group?name=kitchen", "group", "kitchen"),
        ("/parts/groups", "group", "*"),
    ],
)
async def test_a_client_sees_what_it_may_read(
    page: Page, monkeypatch: pytest.MonkeyPatch, target: str, kind: str, name: str
) -> None:
    """Once rights are enforced: the page asks about its viewer, by name, before anything else; not about an administrator."""
    asked: list[tuple[str, str, str]] = []
    answer = rights_pb2.CheckRightsResponse(enforced=True, version=1, grants=[rights_pb2.AccessGrant()])

    async def checked(_: Any, request: Any, *__: Any, **___: Any) -> Any:
        if not isinstance(request, rights_pb2.CheckRightsRequest):
            raise InvalidArgument("not before rights are known")  # and not asked again
        (resource,) = request.resources
        asked.append((request.principal, KIND_NAMES[resource.kind], resource.name))
        return answer

    monkeypatch.setattr(type(page.asking.pd), "call", checked)
    refused = await page.get(target, role=Role.CLIENT)
    assert refused.status == 403, refused.body
    assert f"pdctl acl grant client:x read {kind}".encode() in refused.body
    assert asked == [("client:x", kind, name)]
    answer.grants[0].verbs.append(rights_pb2.VERB_READ)
    page.now_s += AGE_S + 1
    assert b"acl grant" not in (await page.get(target, role=Role.CLIENT)).body
    assert len(asked) == 2
    await page.get(target, role=Role.ADMIN)
    assert len(asked) == 2


async def test_every_section_with_records_or_names_asks_for_rights() -> None:
    """A section that is added later says what it shows, or is about the cluster alone."""
    of_the_cluster = {"health", "servers", "findings", "tasks", "repairs"}
    assert {name for name, each in SECTIONS.items() if each.reads is None} == of_the_cluster


async def test_a_page_of_role_client(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for no administration, whoever looks: an administrator is told whose certificate does not allow it."""
    asked: list[str] = []

    async def described(*_: Any) -> dict[str, Any]:
        return {"servers": [], "members": []}

    async def counts(*_: Any) -> broker_pb2.ListBrokersResponse:
        return broker_pb2.ListBrokersResponse()

    async def sampled(*_: Any) -> Any:
        asked.append("load")
        return Sample(0.0)

    monkeypatch.setattr(cluster_views, "describe_cluster", described)
    monkeypatch.setattr(cluster_views, "broker_counts", counts)
    monkeypatch.setattr(cluster_views, "take_sample", sampled)
    assert (await page.get("/parts/servers", role=Role.ADMIN)).status == 200 and asked == ["load"]
    page.now_s += 60
    page.asking.own = Principal(Role.CLIENT, "page")
    assert (await page.get("/parts/servers", role=Role.ADMIN)).status == 200 and asked == ["load"]
    refused = await page.get("/parts/tasks", role=Role.ADMIN)
    assert refused.status == 403 and b"client:page may not use" in refused.body


async def test_a_defect_is_not_shown(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of its own says where its details are, and has none of them."""

    async def breaks(*_: Any, **__: Any) -> Any:
        raise ValueError("the password is 1234")

    monkeypatch.setattr(page.asking.pd, "call", breaks)
    answer = await page.get("/streams")
    assert answer.status == 500 and b"1234" not in answer.body and b"log of this placement driver" in answer.body
    assert answer.headers["content-security-policy"]


async def test_a_section_that_fails_leaves_the_others(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known is shown beside an error with what to do."""
    await page.client.create_stream("clicks")
    await page.client.append("clicks", [b"seen"])

    ask = page.asking.pd.call

    async def silent(request: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(request, pd_pb2.ListObjectsRequest):
            raise Unavailable("no placement driver leads")
        return await ask(request, *args, **kwargs)

    monkeypatch.setattr(page.asking.pd, "call", silent)
    answer = await page.get("/streams/clicks")
    body = answer.body.decode()
    assert (
        answer.status == 503 and "no placement driver leads" in body and "a majority of the placement drivers" in body
    )
    assert "seen" in body


async def test_any_search(real: Page) -> None:
    """Whatever is typed, and whatever stands for a page: an answer or a refusal, never a defect, and no markup."""
    texts = ("<script>", "a/b/c", "//", "\u202e", "é" * 100, "\x00", "'; --", "%s%n", "../..", "-", " ", "\ud7ff")
    for path, text, parameter in product(("/streams", "/topics", "/groups"), texts, ("prefix", "after")):
        answer = await real.get(f"{path}?{parameter}={quote(text)}")
        assert answer.status in (200, 400) and b"<script>" not in answer.body, (path, text, answer.body)
