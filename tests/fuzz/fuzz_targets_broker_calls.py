"""The gRPC services of a broker: a whole broker on loopback, called with bytes that are no messages and messages that lie.

What holds: an answer is OK or one of our errors with a code of its own, never UNKNOWN or INTERNAL; nothing waits beyond its
bound; the broker goes on answering.
"""

from __future__ import annotations

import asyncio
from functools import cache
from random import Random
from typing import Any

from google.protobuf.message import Message

from rangelog_core.net.owner_calls import JOURNALS, journal_of
from rangelog_proto.v1 import group_service_pb2, table_service_pb2, transaction_service_pb2, watermark_service_pb2
from tests.fuzz import fuzz_broker, fuzz_loop
from tests.fuzz.fuzz_broker import GROUP, PROGRAM
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import encoded_changed, message_changed
from tests.fuzz.fuzz_targets_control_plane import Call, call_all, calls_of, defects, methods
from tests.fuzz.fuzz_targets_state import framed, unframed

BROKER_METHODS = [
    *methods(group_service_pb2, "Groups"),
    *methods(table_service_pb2, "Tables"),
    *methods(transaction_service_pb2, "Transactions"),
    *methods(transaction_service_pb2, "Shards"),
    *methods(watermark_service_pb2, "Watermarks"),
]
KNOWN = (1, 2, 3, 5, 1_000, 60_000, JOURNALS - 1, journal_of(GROUP)[1], GROUP, PROGRAM, "m", "c", b"a", b"b")
WAIT_MS_MAX = 5
"""Of what is made here: a wait is not what is tried."""
ANSWER_S = 15.0


@cache
def calls() -> list[Call]:
    """The calls of the running broker."""
    defects()
    broker = fuzz_broker.broker()

    async def connect() -> list[Call]:
        return calls_of(int(broker.control_address.rsplit(":", 1)[1]), BROKER_METHODS)

    return fuzz_loop.run(connect())


def _encoded(number: int, request: Message) -> bytes:
    return bytes((number,)) + _with_short_waits(request).SerializeToString()


def _with_short_waits(request: Message) -> Message:
    """The request with its wait cut."""
    for name in ("wait_ms",):
        if name in request.DESCRIPTOR.fields_by_name:
            setattr(request, name, min(getattr(request, name), WAIT_MS_MAX))
    return request


def seeds() -> list[bytes]:
    """One call of each kind with a plausible request."""
    random = Random(11)
    made = []
    for number, (_, kind) in enumerate(BROKER_METHODS):
        request = kind()
        for _ in range(8):
            message_changed(request, random, known=KNOWN)
        for name, value in (
            ("group", GROUP),
            ("transactional_id", PROGRAM),
            ("topic_id", 2),
            ("journal", journal_of(GROUP)[1]),
        ):
            field: Any = request.DESCRIPTOR.fields_by_name.get(name)
            if field is not None and field.message_type is None and not field.is_repeated:
                setattr(request, name, value)
        made.append(framed([_encoded(number, request)]))
    return made


def change_calls(data: bytes, random: Random) -> bytes:
    """Other requests: one changed, repeated or left out, or a call of another kind made of nothing."""
    parts = unframed(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(parts) + 1)
        choice = random.randrange(5)
        if choice <= 2 and at < len(parts) and parts[at]:
            number = parts[at][0] % len(BROKER_METHODS)
            kind = BROKER_METHODS[number][1]
            changed = encoded_changed(parts[at][1:], kind, random, KNOWN)
            try:
                parts[at] = _encoded(number, kind.FromString(changed))
            except Exception:  # whatever the library says of bytes that are no message
                parts[at] = bytes((number,)) + changed
        elif choice == 3 and len(parts) > 1 and at < len(parts):
            del parts[at]
        else:
            number = random.randrange(len(BROKER_METHODS))
            request = BROKER_METHODS[number][1]()
            for _ in range(random.choice((0, 3, 8))):
                message_changed(request, random, known=KNOWN)
            parts.insert(at, _encoded(number, request))
    return framed(parts[:8])


def run_calls(data: bytes) -> bool:
    """See the module."""
    connected = calls()
    broker = fuzz_broker.broker()
    defects().take()

    async def work() -> int:
        await broker.settle()
        try:
            async with asyncio.timeout(ANSWER_S):
                answered = await call_all(connected, data)
        except TimeoutError:
            raise AssertionError(f"no answer within {ANSWER_S:g} s") from None
        async for _ in broker.client.groups.list():
            pass
        return answered

    return fuzz_loop.run(work()) > 0


TARGETS = (
    Target(
        "broker-grpc",
        seeds,
        run_calls,
        None,
        (change_calls,),
        plain_share=0.1,
        ci_inputs=30,
        peak_bytes_max=32 * MIB,
        afterwards=fuzz_broker.everything_opens,
    ),
)
