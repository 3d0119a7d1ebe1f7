"""One client of a rolling upgrade, as a process of its own: `upgrade_client.py ROLE PD STREAM OUTPUT`.

It uses only what the SDK of the previous release has as well, so the same file is a client of either program. It writes
a line for each ack, record read and error, with the monotonic clock of the machine, and goes on until SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Coroutine
from typing import Any, TextIO

import rangelog
from rangelog.errors import RangelogError

KEYS = 8
VALUE_PADDING = "." * 400
PAUSE_S = 0.03
"""Between two appends: the load is there all the time, and leaves a small machine room for processes that start."""


class Lines:
    """The output: "WHAT TIME_S SHARD OFFSET NUMBER"."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, what: str, shard: int, offset: int, number: int | str) -> None:
        self._file.write(f"{what} {time.monotonic():.4f} {shard} {offset} {number}\n")
        self._file.flush()


def _value(number: int) -> bytes:
    return f"{number:09d}{VALUE_PADDING}".encode()


def _number(value: bytes) -> int:
    return int(value[:9])


async def write(client: rangelog.Client, stream: str, lines: Lines, stopped: asyncio.Event) -> None:
    """Append numbered records, one after the other."""
    number = 0
    async with client.writer(stream) as writer:
        while not stopped.is_set():
            await _try(lines, number, writer.append(_value(number)))
            number += 1
            await asyncio.sleep(PAUSE_S)


async def produce(client: rangelog.Client, topic: str, lines: Lines, stopped: asyncio.Event) -> None:
    """Send numbered records of a few keys."""
    number = 0
    async with client.producer(topic) as producer:
        while not stopped.is_set():
            await _try(lines, number, producer.send(_value(number), key=b"%d" % (number % KEYS)))
            number += 1
            await asyncio.sleep(PAUSE_S)


async def _try(lines: Lines, number: int, call: Any) -> None:
    try:
        ack = await call
    except RangelogError as error:
        lines.write("failed", 0, -1, f"{number} {error!r}")
    else:
        lines.write("acked", getattr(ack, "shard", 0), ack.offset, number)


async def read(client: rangelog.Client, stream: str, lines: Lines, stopped: asyncio.Event) -> None:
    """Follow a stream."""
    await _follow(client.reader(stream, follow=True), lines, stopped)


async def consume(client: rangelog.Client, topic: str, lines: Lines, stopped: asyncio.Event) -> None:
    """Follow a topic."""
    await _follow(client.topic_reader(topic, follow=True), lines, stopped)


async def commit(client: rangelog.Client, topic: str, lines: Lines, stopped: asyncio.Event) -> None:
    """Process a topic as the one member of a group, and commit after each record."""

    async def run() -> None:
        async with client.group(f"{topic}-group", topic, session_s=60) as member:
            async for record in member:
                await member.commit()
                lines.write("read", record.shard_id, record.offset, _number(record.value))

    await _until_stopped(run(), stopped)


async def _follow(reader: Any, lines: Lines, stopped: asyncio.Event) -> None:
    async def run() -> None:
        async for record in reader:
            lines.write("read", getattr(record, "shard_id", 0), record.offset, _number(record.value))

    await _until_stopped(run(), stopped)


async def _until_stopped(work: Coroutine[Any, Any, None], stopped: asyncio.Event) -> None:
    running, end = asyncio.create_task(work), asyncio.create_task(stopped.wait())
    await asyncio.wait((running, end), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    running.cancel()


ROLES = {"write": write, "produce": produce, "read": read, "consume": consume, "commit": commit}


async def main(role: str, pd: str, name: str, output: str) -> None:
    """Be one client until SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    with open(output, "w") as file:
        lines = Lines(file)
        lines.write("began", 0, -1, rangelog.__file__)
        async with await rangelog.connect(pd) as client:
            await ROLES[role](client, name, lines, stopped)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
