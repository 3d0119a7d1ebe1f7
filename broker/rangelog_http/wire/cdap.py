"""The forms of the stream routes of Continuuity Reactor and CDAP: headers of events, batches, times to live, ids. No I/O.

What holds: what goes into an answer's head has no character that could end a line of it. A consumer's id says how its events
are chosen. It is bound to one principal and one stream: with another one, or changed, it names no consumer.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rangelog import AppendRecord, GroupRecord, TopicRecord
from rangelog.errors import InvalidArgument, MemberNotFound
from rangelog_core.topic_names import TopicName

CONSUMER_HEADER = "X-Continuuity-ConsumerId"
TTL_FOR_EVER = ((1 << 63) - 1) // 1_000
"""Seconds: how CDAP says that events never expire."""
TTL_MAX = 10**12
"""Seconds above which events never expire."""
AGE_S_MIN = 0.001
"""The retention of events that expire at once; 0 is for ever in a topic."""
HEADERS_BYTES_MAX = 16 * 1024
"""Of the headers of one event in an answer's head."""
SIZE_MAX = 1_000
"""Instances of a consumer."""
MODES = ("fifo", "round_robin", "hash")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_TEXT = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_ID = re.compile(r"cdap\.([fh]|r)([0-9]{1,4})\.([0-9]{1,4})\.([0-9a-f]{0,64})\.([0-9a-f]{32})\.([0-9a-f]{32})")
_SHOWN = frozenset(range(0x20, 0x7F)) - {0x5C}


def stream_of(path: str) -> tuple[str, str, str] | None:
    """Return namespace, stream, and what is asked of it ("": itself); None: it is another path.

    >>> stream_of("/v2/streams/who/dequeue"), stream_of("/v3/namespaces/web/streams/who")
    (('default', 'who', 'dequeue'), ('web', 'who', ''))
    """
    parts = path.split("/")
    if parts[1:3] == ["v2", "streams"]:
        found = ["default", *parts[3:]]
    elif parts[1:3] == ["v3", "namespaces"] and parts[4:5] == ["streams"]:
        found = [parts[3], *parts[5:]]
    else:
        return None
    if len(found) not in (2, 3) or not found[-1]:
        return None
    return found[0], found[1], found[2] if len(found) == 3 else ""


def event_headers(stream: str, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, bytes]:
    """Return the headers of an event: those of a request that begin with the stream's name; they are in small letters."""
    start = stream.lower().encode() + b"."
    return {
        name[len(start) :].decode("latin-1"): value
        for name, value in headers
        if name.startswith(start) and len(name) > len(start)
    }


def answer_headers(stream: str, headers: Mapping[str, bytes]) -> tuple[tuple[bytes, bytes], ...]:
    """Return an event's headers for an answer's head. Those that HTTP cannot say, or that are too long, are left out."""
    found: list[tuple[bytes, bytes]] = []
    left = HEADERS_BYTES_MAX
    for name, value in headers.items():
        named = f"{stream}.{name}".encode("utf-8", "replace")
        size_bytes = len(named) + len(value)
        if size_bytes <= left and _NAME.fullmatch(named) and _TEXT.fullmatch(value):
            found.append((named, value))
            left -= size_bytes
    return tuple(found)


def events_of(
    body: bytes, content_type: str, headers: Mapping[str, bytes], count_max: int
) -> list[AppendRecord] | None:
    """Return the events of a batch, one a line; None: its type is not supported. Raises InvalidArgument."""
    kind = content_type.partition(";")[0].strip().lower()
    if not kind:
        raise InvalidArgument("a batch needs a Content-Type: text/plain, with an event a line")
    if not kind.startswith("text/"):
        return None
    lines = body.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if not 1 <= len(lines) <= count_max:
        raise InvalidArgument(f"a batch of {len(lines)} lines: 1 to {count_max} are allowed, and nothing was sent")
    return [AppendRecord(line.removesuffix(b"\r"), None, headers, None) for line in lines]


def age_of_ttl(given: Mapping[str, Any]) -> float | None:
    """Return the retention in seconds for {"ttl": seconds}; None: there is no ttl. Raises InvalidArgument.

    >>> age_of_ttl({"ttl": 86400}), age_of_ttl({"ttl": TTL_FOR_EVER})
    (86400.0, 0.0)
    """
    for name in given:
        if name != "ttl":
            raise InvalidArgument(f"a stream has no property {name[:40]!r} here: there is ttl, in seconds")
    if "ttl" not in given:
        return None
    ttl = given["ttl"]
    if type(ttl) is not int or ttl < 0:
        raise InvalidArgument("ttl is a number of seconds: whole, and not negative")
    return 0.0 if ttl >= TTL_MAX else float(ttl) or AGE_S_MIN


def ttl_of_age(age_s: float) -> int:
    """Return the time to live of a topic's retention in seconds."""
    return int(age_s) if age_s else TTL_FOR_EVER


def event_object(record: TopicRecord) -> bytes:
    """Return an event as an object of JSON; bytes of its body that are no printable ASCII are \\\\xHH."""
    body = "".join(chr(each) if each in _SHOWN else f"\\x{each:02X}" for each in record.value)
    headers = {name: value.decode("utf-8", "backslashreplace") for name, value in record.headers.items()}
    return json.dumps({"timestamp": record.timestamp_ms, "headers": headers, "body": body}).encode()


class Choice(NamedTuple):
    """Which events a consumer gets: of all of its stream, those of one of `size` instances.

    Attributes:
        mode: "fifo": all of them; "round_robin": by their offsets; "hash": by a header.
        size: How many instances there are.
        instance: Which one it is, from 0.
        header: Whose values are hashed; empty: the record's key is.
    """

    mode: str = MODES[0]
    size: int = 1
    instance: int = 0
    header: str = ""

    def takes(self, record: GroupRecord) -> bool:
        """Whether an event is for this instance. Each is for exactly one."""
        if self.mode == "fifo":
            return True
        number = record.offset
        if self.mode == "hash":
            hashed = record.headers.get(self.header, b"") if self.header else record.key or b""
            number = zlib.crc32(hashed)
        return number % self.size == self.instance


def choice_of(query: Mapping[str, str]) -> Choice:
    """Return what the query of a new consumer asks for. Raises InvalidArgument."""
    mode, header = query.get("mode", MODES[0]), query.get("header", "").lower()
    if mode not in MODES:
        raise InvalidArgument(f"mode={mode[:40]!r}: {', '.join(MODES)}")
    numbers = [query.get("size", "1"), query.get("instance", "0")]
    if not all(each.isascii() and each.isdigit() and len(each) <= 4 for each in numbers):
        raise InvalidArgument(f"size is 1 to {SIZE_MAX}, and instance one of them, from 0")
    size, instance = map(int, numbers)
    if not 0 <= instance < size <= SIZE_MAX:
        raise InvalidArgument(f"size is 1 to {SIZE_MAX}, and instance one of them, from 0")
    if mode == "fifo" and size != 1:
        raise InvalidArgument("the clients of a consumer in FIFO order share its id, in place of a size")
    if len(header.encode("utf-8", "replace")) > 32 or (header and mode != "hash"):
        raise InvalidArgument("header is for mode=hash, and has up to 32 bytes")
    return Choice(mode, size, instance, header)


def consumer_id(choice: Choice, owner: str, stream: TopicName, secret: str) -> str:
    """Return the id of a new consumer, which is the name of its group. `secret`: 32 hexadecimal digits."""
    head = f"cdap.{choice.mode[0]}{choice.size}.{choice.instance}.{choice.header.encode('utf-8', 'replace').hex()}.{secret}"
    return f"{head}.{_seal(head, owner, stream)}"


def choice_of_id(text: str, owner: str, stream: TopicName) -> Choice:
    """Return what a consumer's id says. Raises InvalidArgument (its form), MemberNotFound (of another principal or stream)."""
    found = _ID.fullmatch(text)
    if found is None:
        raise InvalidArgument(f"{CONSUMER_HEADER} is missing, or no id of a consumer: POST …/consumer-id gives one")
    letter, size, instance, header, _, seal = found.groups()
    if not hmac.compare_digest(seal, _seal(text[: -len(seal) - 1], owner, stream)):
        raise MemberNotFound(f"stream {stream} has no such consumer: POST …/consumer-id gives one")
    try:
        name = bytes.fromhex(header).decode()
    except ValueError:
        raise InvalidArgument(f"{CONSUMER_HEADER} is no id of a consumer") from None
    return Choice(next(each for each in MODES if each[0] == letter), int(size), int(instance), name)


def _seal(head: str, owner: str, stream: TopicName) -> str:
    """Bind an id. It needs no secret: an id that a client makes up for itself is a group of its own."""
    return hashlib.sha256("\0".join((head, owner, str(stream))).encode("utf-8", "replace")).hexdigest()[:32]
