"""The OpenAPI document: what is committed is what the broker serves, and every operation is described in full."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rangelog_broker.rest.app import bare_app, make_app
from rangelog_server_common.http_app import description_of
from tests.support.rest_caller import RestCaller

pytestmark = pytest.mark.virtual

COMMITTED = Path(__file__).resolve().parents[4] / "docs" / "api" / "rest.openapi.json"
DOCUMENT: dict[str, Any] = json.loads(COMMITTED.read_bytes())
OPERATIONS = [(path, method) for path, each in DOCUMENT["paths"].items() for method in each]
NAMED = {
    "streams", "namespaces", "topics", "shards", "scaling", "groups", "checkpoints", "transactions", "tables", "brokers",
}  # fmt: skip


def test_the_committed_document_is_in_step() -> None:
    """tools/write_openapi.py writes it."""
    assert description_of(bare_app()) == COMMITTED.read_bytes(), "run `python tools/write_openapi.py`"


async def test_the_document_is_served() -> None:
    """The same one, at the first and at any later request."""
    client: Any = None
    call = RestCaller(make_app(client, token=None))
    for _ in range(2):
        served = await call("GET", "/openapi.json")
        assert (served.status, served.body) == (200, DOCUMENT)


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_each_operation_is_described(path: str, method: str) -> None:
    """Summary, description, kind of resource, errors in the one form, and examples of what is sent and received."""
    operation = DOCUMENT["paths"][path][method]
    assert operation["summary"] and operation["description"] and operation["tags"]
    responses = operation["responses"]
    assert {"400", "401", "503", "504"} <= set(responses)
    for status, response in responses.items():
        if status != "204":
            reference = response["content"]["application/json"]["schema"]["$ref"]
            assert (int(status) >= 400) == reference.endswith("/ErrorAnswer"), status
            assert has_example(reference), reference
    for each in operation.get("parameters", ()):
        assert each["description"], each["name"]
    body = operation.get("requestBody")
    if body is not None:
        assert has_example(body["content"]["application/json"]["schema"]["$ref"])


def test_no_operation_carries_records() -> None:
    """One that did would have to count for the quotas of prefixes: docs/quotas.md says that none does."""
    changing = {path for path, method in OPERATIONS if method in ("post", "put", "patch")}
    assert {path.rpartition("/")[2] for path in changing} == {
        "streams", "{stream}", "trim", "seal", "namespaces", "topics", "{topic}", "truncate", "split", "merge", "cancel",
        "tables", "checkpoints", "reset", "retain", "unsubscribe", "abort",
    }  # fmt: skip


def has_example(reference: str) -> bool:
    """Whether a schema, or one that it consists of, has an example."""
    schema = DOCUMENT["components"]["schemas"][reference.rpartition("/")[2]]
    assert schema["description"]
    return "examples" in json.dumps(schema) or any(
        has_example(each["items"]["$ref"]) for each in schema["properties"].values() if "$ref" in each.get("items", {})
    )


def test_every_kind_of_resource_is_there() -> None:
    """And no operation without a kind."""
    tags = {tag for path, method in OPERATIONS for tag in DOCUMENT["paths"][path][method]["tags"]}
    assert tags == NAMED and len(OPERATIONS) >= 40
