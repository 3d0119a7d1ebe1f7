"""The REST interface of a broker: requests made from its OpenAPI description, with values of other types, borders and sizes.

What holds: every request has one answer, soon; an error is one of the documented statuses, in the documented form, with the
code of one of our errors, never 500; what a body has beyond the limit is not read; nothing is in the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from rangelog_broker.rest.app import bare_app, make_app
from rangelog_core import errors
from rangelog_server_common.http_answers import _MEANINGS, MESSAGE_LENGTH_MAX, ErrorAnswer, status_of
from rangelog_server_common.http_app import description_of
from rangelog_server_common.http_guard import DISCARD_TIMES, App
from tests.fuzz import fuzz_broker, fuzz_loop
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import BORDERS, TEXTS, mutated
from tests.fuzz.fuzz_targets_control_plane import KeptDefects

BODY_BYTES_MAX = 4_096
PART_BYTES = 512
ANSWER_S = 10.0
WAIT_S = 0.02
"""Where a request may ask for a wait."""
_NO_TARGET = re.compile(rb"[^\x21-\x7e]")
OF_THE_GUARD = frozenset({403, 404, 405, 408, 413})
"""Statuses that any request may have: of a page, of no resource, of a body."""
METHODS = ("GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS", "TRACE", "get", "")
KNOWN = {
    "namespace": fuzz_broker.NAMESPACE,
    "topic": fuzz_broker.TOPIC,
    "table": fuzz_broker.TABLE,
    "stream": fuzz_broker.STREAM,
    "group": fuzz_broker.GROUP,
    "transactional_id": fuzz_broker.PROGRAM,
    "checkpoint": "c",
}
WORDS = (*KNOWN.values(), "air/flights", "air/counts", "earliest", "latest", "checkpoint:c", "2026-01-01T00:00:00Z",
         "2026-01-01", "0x80000000000000000000000000000000", "team=ops", "true", "head", "open", "default")  # fmt: skip


class Operation(NamedTuple):
    """One method of a path."""

    method: str
    path: str
    query: tuple[str, ...]
    body: Any
    statuses: frozenset[int]


@cache
def document() -> Any:
    """The description."""
    return json.loads(description_of(bare_app()))


@cache
def operations() -> tuple[Operation, ...]:
    """All of the description."""
    made = []
    for path, methods in sorted(document()["paths"].items()):
        for method, described in sorted(methods.items()):
            body = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            query = tuple(each["name"] for each in described.get("parameters", ()) if each["in"] == "query")
            statuses = frozenset(int(each) for each in described["responses"])
            made.append(Operation(method.upper(), path, query, body, statuses))
    return tuple(made)


@cache
def application() -> tuple[App, KeptDefects]:
    """The application over the client of a running broker."""
    kept = KeptDefects()
    for name in ("rangelog.rest", "asyncio"):
        logging.getLogger(name).addHandler(kept)
        logging.getLogger(name).propagate = False
    return make_app(fuzz_broker.broker().client, token=None, body_bytes_max=BODY_BYTES_MAX), kept


# ---- requests


def text_of(method: str, target: str, headers: dict[str, str], body: bytes) -> bytes:
    """A request as an input."""
    lines = [f"{method} {target}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\n".join(lines).encode(errors="replace") + b"\n\n" + body


def parsed(data: bytes) -> tuple[str, bytes, bytes, list[tuple[bytes, bytes]], bytes]:
    """(method, path, query, headers, body) of an input, as a server hands them on; whatever the input is."""
    head, _, body = data.partition(b"\n\n")
    lines = head.split(b"\n")
    method, _, target = lines[0].partition(b" ")
    path, _, query = target.partition(b"?")
    headers = []
    for line in lines[1:]:
        name, _, value = line.partition(b": ")
        if name and not (name.lower() == b"content-length" and not value.isdigit()):  # a server refuses those by itself
            headers.append((name.lower(), value))
    return method.decode("latin-1"), path, query, headers, body


def value_for(schema: Any, random: Random, depth: int = 0) -> Any:
    """A value of a schema, mostly; sometimes of another type."""
    if "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if random.random() < 0.12 or depth > 6:
        return stray(random)
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return value_for(random.choice(schema[choice]), random, depth + 1)
    if "const" in schema or "enum" in schema:
        return random.choice([*schema.get("enum", ()), schema.get("const", ""), stray(random)])
    kind = schema.get("type")
    if kind == "object":
        return object_for(schema, random, depth)
    if kind == "array":
        return [value_for(schema.get("items", {}), random, depth + 1) for _ in range(random.choice((0, 1, 1, 2, 5)))]
    if kind == "integer":
        return random.choice((0, 1, 1, 2, 3, *schema.get("examples", ()), *BORDERS, -1))
    if kind == "number":
        return random.choice((WAIT_S, WAIT_S, 0, -1, 1e-300, 1e308, 1e9, 61))
    if kind == "boolean":
        return random.random() < 0.5
    if kind == "null":
        return None
    return random.choice((*WORDS, *WORDS, *TEXTS, *schema.get("examples", ())))


def object_for(schema: Any, random: Random, depth: int) -> dict[str, Any]:
    """An object: most of what it needs, some of what it may have, seldom what it may not."""
    made: dict[str, Any] = {}
    needed = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        if random.random() < (0.95 if name in needed else 0.35):
            made[name] = value_for(inner, random, depth + 1)
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        for _ in range(random.choice((0, 1, 2, 60))):
            made[random.choice((str(random.choice(BORDERS)), *WORDS, *TEXTS, "0", "1"))] = value_for(
                others, random, depth + 1
            )
    if random.random() < 0.05:
        made[random.choice(TEXTS)] = stray(random)
    return made


def stray(random: Random) -> Any:
    """Something of any type."""
    nested: Any = []
    for _ in range(random.choice((1, 30, 600))):
        nested = [nested]
    return random.choice((
        None, True, -1, 0, random.choice(BORDERS), 1.5, 1e308, float("nan"), float("inf"), 10**400, "", "x" * 300, [], {},
        [None], {"": None}, nested, random.choice(TEXTS), "\ud800",
    ))  # fmt: skip


def target_for(operation: Operation, random: Random) -> str:
    """A path with its parameters, and a query."""
    path = operation.path
    for name, known in KNOWN.items():
        given = known if random.random() < 0.8 else random.choice((*TEXTS, *WORDS))
        path = path.replace(f"{{{name}}}", quote(given, safe="/" if random.random() < 0.2 else ""))
    names = [name for name in operation.query if random.random() < 0.4]
    if random.random() < 0.05:
        names.append(random.choice(TEXTS))
    pairs = []
    for name in names:
        value = random.choice((*WORDS, *TEXTS, str(random.choice(BORDERS)), "1", "-1", "1.5"))
        pairs.append(f"{quote(name)}={quote(value, errors='replace')}")
    return path + ("?" + "&".join(pairs) if pairs else "")


def made_request(random: Random, operation: Operation) -> bytes:
    """A request of an operation, as its description has it, more or less."""
    method = operation.method if random.random() < 0.93 else random.choice(METHODS)
    body, headers = b"", {}
    if operation.body is not None or random.random() < 0.05:
        value = value_for(operation.body or {"type": "object"}, random)
        if isinstance(value, dict) and "timeout_s" in value and value["timeout_s"] != WAIT_S:
            value["timeout_s"] = WAIT_S if isinstance(value["timeout_s"], int | float) else value["timeout_s"]
        body = json.dumps(small(value)).encode()
        headers["content-type"] = "application/json" if random.random() < 0.95 else random.choice(("", *TEXTS[:6]))
    if random.random() < 0.05:
        body += b" " * random.choice((1, BODY_BYTES_MAX, 3 * BODY_BYTES_MAX))
    if random.random() < 0.05:
        headers["content-length"] = str(random.choice(BORDERS))
    headers = {name: value.replace("\n", " ") for name, value in headers.items()}
    return text_of(method, target_for(operation, random), headers, body)


def small(value: Any) -> Any:
    """Without what is allowed and only makes many shards or partitions: these are tried elsewhere."""
    if isinstance(value, dict):
        for name in ("shards", "partitions", "parts"):
            count = value.get(name)
            if isinstance(count, int) and not isinstance(count, bool) and 3 < count <= 1_000:
                value[name] = 3
        return {name: small(each) for name, each in value.items()}
    return [small(each) for each in value] if isinstance(value, list) and len(value) != 1 else value


def change_request(data: bytes, random: Random) -> bytes:
    """Another request altogether, or this one with another body, method or length."""
    kind = random.randrange(10)
    head, _, body = data.partition(b"\n\n")
    if kind == 0:
        return head + b"\n\n" + mutated(body, random)[: 2 * BODY_BYTES_MAX]
    if kind == 1:
        return random.choice(METHODS).encode() + b" " + head.partition(b" ")[2] + b"\n\n" + body
    return made_request(random, random.choice(operations()))


def seeds() -> list[bytes]:
    """Each operation with the examples of its description."""
    found = []
    for each in operations():
        path = each.path
        for name, known in KNOWN.items():
            path = path.replace(f"{{{name}}}", known)
        headers = {"content-type": "application/json"} if each.body is not None else {}
        body = json.dumps(example_of(each.body)).encode() if each.body is not None else b""
        if each.method != "DELETE":
            found.append(text_of(each.method, path, headers, body))
    return [
        *found,
        text_of("GET", "/openapi.json", {}, b""),
        text_of("GET", "/v1/streams", {"origin": "http://x"}, b""),
    ]


def example_of(schema: Any) -> Any:
    """What the description gives as an example; of its needed parts."""
    if "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if schema.get("examples"):
        return schema["examples"][0]
    if schema.get("type") == "object":
        needed = schema.get("required", ())
        made = {name: example_of(inner) for name, inner in schema.get("properties", {}).items() if name in needed}
        return made | ({"timeout_s": WAIT_S} if "timeout_s" in schema.get("properties", {}) else {})
    return {"array": [], "integer": 1, "number": WAIT_S, "boolean": False}.get(schema.get("type", ""), "x")


# ---- judgement


def run_request(data: bytes) -> bool:
    """See the module."""
    app, kept = application()
    kept.take()
    method, path, query, headers, body = parsed(data)
    if _NO_TARGET.search(path + query) or not method.isidentifier():
        raise errors.InvalidArgument("no HTTP: the server does not hand it on")
    parts = [body[at : at + PART_BYTES] for at in range(0, len(body), PART_BYTES)] or [b""]
    came: list[Any] = []
    taken = 0

    async def receive() -> Any:
        nonlocal taken
        if taken >= len(parts):
            return {"type": "http.disconnect"}
        taken += 1
        return {"type": "http.request", "body": parts[taken - 1], "more_body": taken < len(parts)}

    async def send(message: Any) -> None:
        came.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": unquote(path.decode("latin-1")), "raw_path": path, "query_string": query, "root_path": "",
        "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip

    async def ask() -> None:
        await fuzz_broker.broker().settle()
        try:
            async with asyncio.timeout(ANSWER_S):
                await app(scope, receive, send)
        except TimeoutError:
            raise AssertionError(f"no answer within {ANSWER_S:g} s") from None

    fuzz_loop.run(ask())
    defect = kept.take()
    if defect is not None:
        raise defect
    check_body_limit(headers, body, taken, came[0]["status"])
    return check_answer(method, path.decode("latin-1"), came)


def check_body_limit(headers: Sequence[tuple[bytes, bytes]], body: bytes, taken: int, status: int) -> None:
    """What is beyond the limit is refused; of that a bounded part is read, so that who sends it finds the answer."""
    assert taken <= (1 + DISCARD_TIMES) * BODY_BYTES_MAX // PART_BYTES + 2, "more was read than the limit allows"
    if len(body) > BODY_BYTES_MAX and not any(name == b"origin" for name, _ in headers):
        assert status == 413, status


def check_answer(method: str, path: str, came: list[Any]) -> bool:
    """One answer of the documented form."""
    assert [each["type"] for each in came[:1]] == ["http.response.start"] and came, "no answer"
    assert sum(each["type"] == "http.response.start" for each in came) == 1
    status = came[0]["status"]
    content = b"".join(each.get("body", b"") for each in came[1:])
    kind = dict(came[0]["headers"]).get(b"content-type")
    if status < 300:
        assert status == 204 or kind == b"application/json", kind
        assert (content == b"") == (status == 204) or method == "HEAD"
        return True
    assert kind == b"application/json", (status, kind)
    answer = json.loads(content)
    assert set(answer) == set(ErrorAnswer.model_fields), answer
    found = errors._BY_CODE.get(answer["code"])
    assert found is not None, answer
    assert status in _MEANINGS and status != 500, (status, answer)
    assert status in OF_THE_GUARD or status == status_of(found("x")), (status, answer)
    message = answer["message"]
    assert message and message.isprintable() and "Traceback" not in message, answer
    assert len(message) <= MESSAGE_LENGTH_MAX + 1, f"a message of {len(message)} characters"
    documented = statuses_of(method, path)
    assert status in documented | OF_THE_GUARD - ({404} if documented else frozenset()), (
        f"{method} {path}: {status} is not documented: {answer}"
    )
    return False


def statuses_of(method: str, path: str) -> frozenset[int]:
    """The documented statuses of a request; none: there is no such operation."""
    parts = path.split("/")
    for each in operations():
        pattern = each.path.split("/")
        fits = len(pattern) == len(parts) and all(
            mine == theirs or (mine.startswith("{") and theirs) for mine, theirs in zip(pattern, parts, strict=True)
        )
        if fits and each.method == method:
            return each.statuses | {413, 408, 403}
    return frozenset()


TARGETS = (
    Target(
        "rest",
        seeds,
        run_request,
        None,
        (change_request,),
        plain_share=0.08,
        ci_inputs=75,
        peak_bytes_max=32 * MIB,
        afterwards=fuzz_broker.everything_opens,
    ),
)
