"""Pages of the web: by default none may use the door, and those that are listed may, each by its name."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rangelog_broker.door import DoorContext
from rangelog_http.app import application
from rangelog_http.origins import ASKED_MAX, is_origin
from rangelog_http.settings import HttpSettings
from tests.support.rest_caller import RestCaller

RECORDS = "/v1/topics/default/t/records"
SHOP, EVIL = "https://shop.example", "https://evil.example"
ASKS = {"access-control-request-method": "POST", "access-control-request-headers": "x-rangelog-key"}


@pytest.fixture
def call(context: DoorContext) -> RestCaller:
    """The door of a cluster with a token, for pages of one origin."""
    settings = HttpSettings(listen="127.0.0.1:0", allow_origins=[SHOP, "http://[::1]:8080"])
    return RestCaller(application(context._replace(token="secret"), settings))


async def test_a_listed_page(call: RestCaller) -> None:
    """Is asked about, and answered by its name; a token is needed as ever, and no cookie would do."""
    asked = await call("OPTIONS", RECORDS, headers=ASKS | {"origin": SHOP})
    assert (asked.status, asked.headers["access-control-allow-origin"]) == (200, SHOP)
    assert asked.headers["access-control-allow-headers"] == "x-rangelog-key"
    assert "POST" in asked.headers["access-control-allow-methods"] and asked.headers["vary"] == "Origin"
    good = {"origin": SHOP, "authorization": "Bearer secret"}
    for answer in (
        await call("POST", RECORDS, raw=[b"x"], headers=good), await call("GET", RECORDS, headers=good),
        await call("PUT", "/v1/topics/default/t", headers=good), await call("GET", f"{RECORDS}?limit=x", headers=good),
        await call("GET", RECORDS, headers={"origin": SHOP}),
    ):  # fmt: skip
        assert answer.headers["access-control-allow-origin"] == SHOP and answer.headers["vary"] == "Origin"
        assert not [name for name in answer.headers if "credentials" in name]
    assert (await call("GET", RECORDS, headers={"origin": SHOP})).status == 401


@pytest.mark.parametrize("origin", [EVIL, "null", "", "*", f"{SHOP}.evil.example", f"{SHOP}:444", SHOP.upper()])
async def test_another_page_is_refused(call: RestCaller, origin: str) -> None:
    """Whatever it shows, and also where it asks; its answers vary by origin as well."""
    good = {"origin": origin, "authorization": "Bearer secret"}
    for answer in (
        await call("POST", RECORDS, raw=[b"x"], headers=good), await call("OPTIONS", RECORDS, headers=good | ASKS),
        await call("GET", f"{RECORDS[:-8]}/tail", headers=good),
    ):  # fmt: skip
        assert answer.status == 403 and answer.headers["vary"] == "Origin"
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert (await call("GET", RECORDS, headers={"authorization": "Bearer secret"})).body["records"] == []


async def test_without_a_list_no_page_may(context: DoorContext) -> None:
    """And the answers say nothing of pages."""
    call = RestCaller(application(context, HttpSettings(listen="127.0.0.1:0")))
    asked = await call("OPTIONS", RECORDS, headers=ASKS | {"origin": SHOP})
    assert asked.status == 403 and "vary" not in asked.headers
    assert "vary" not in (await call("GET", RECORDS)).headers


async def test_what_a_page_may_send(call: RestCaller) -> None:
    """The headers of this door, and no others; a question has a bounded number of them."""
    names = ["Authorization", "X-Rangelog-Header-Source", "x-rangelog-header-a\r\nset-cookie: x", "cookie", "X-Other"]
    asked = await call(
        "OPTIONS", RECORDS, headers=ASKS | {"origin": SHOP, "access-control-request-headers": ", ".join(names)}
    )
    assert asked.headers["access-control-allow-headers"] == "authorization, x-rangelog-header-source"
    many = ",".join(["authorization"] * (ASKED_MAX + 10))
    asked = await call("OPTIONS", RECORDS, headers=ASKS | {"origin": SHOP, "access-control-request-headers": many})
    assert asked.headers["access-control-allow-headers"].count("authorization") == ASKED_MAX


@pytest.mark.parametrize(
    "text",
    [
        "*", "https://*.example", "shop.example", "https://shop.example/", "https://shop.example/a", "https://u@shop.example",
        "https://shop.example:443", "http://shop.example:80", "https://Shop.example", "null", "", "https://", "https://x:99999",
        "https://ä.example", "https://shop.example?x", " https://shop.example",
    ],
)  # fmt: skip
def test_what_is_no_origin(text: str) -> None:
    """No browser sends it: it is a mistake that the broker's start names."""
    assert not is_origin(text)
    with pytest.raises(ValidationError, match="is no origin"):
        HttpSettings(listen="127.0.0.1:0", allow_origins=[text])
