"""A producer process of the second scene: sends its share of the flights, keyed by carrier, and notes every ack.

Flight i is sent by producer i mod 8, so every producer sends every carrier, and each carrier comes from all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rangelog_cli.local.lifeline import follow_parent
from rangelog_demo.ack_log import AckLog, LoggedAck, read_acks
from rangelog_demo.appender import FlightAppender
from rangelog_demo.children import DemoChild, run_loop, stand_by, write_status
from rangelog_demo.flights import Flight, read_spool, write_spool

if TYPE_CHECKING:
    from rangelog import ProducerAck, TopicProducer

PRODUCERS = 8
WINDOW_RECORDS = 2_048
"""Sent and not acked at any time, by one producer."""


class ProducerProcess(DemoChild):
    """Producer `number` of the second scene, from 0 on, and its files."""

    def __init__(
        self, number: int, directory: Path, pds: str, topic: str, flights: Sequence[Flight], flights_per_s: float
    ) -> None:
        name = f"producer-{number + 1}"
        self.number = number
        self.acks = directory / f"{name}.acks"
        spool = directory / f"{name}.tsv"
        write_spool(spool, flights[number::PRODUCERS])
        arguments = ["--pds", pds, "--topic", topic, "--spool", str(spool), "--acks", str(self.acks)]
        arguments += ["--flights-per-s", str(flights_per_s)]
        super().__init__(name, directory, "rangelog_demo.topic.producer", arguments)

    def read_acks(self) -> Iterator[LoggedAck]:
        """Return the entries of its log, by the numbers that the flights have in the timetable."""
        for ack in read_acks(self.acks):
            yield ack._replace(flight=ack.flight * PRODUCERS + self.number)


class FlightSender(FlightAppender):
    """Notes the shard of each flight too."""

    def _note(self, index: int, ack: ProducerAck) -> None:
        self._log.acked(index, time.monotonic_ns(), ack.offset, ack.shard)


async def send(pds: str, topic: str, spool: Path, acks: Path, status: Path, flights_per_s: float) -> None:
    """The whole life of a producer process."""
    import rangelog

    flights = read_spool(spool)
    log = AckLog(acks, len(flights))
    async with await rangelog.connect(pds) as client, client.producer(topic) as producer:
        await stand_by(status)
        sender = FlightSender(
            partial(_submit, producer), flights, log, flights_per_s=flights_per_s, window_records=WINDOW_RECORDS
        )
        await sender.run(0)
    write_status(status, state="done")
    log.close()


def _submit(producer: TopicProducer, flight: Flight) -> asyncio.Future[ProducerAck]:
    return producer.submit(flight.value, key=flight.key, timestamp=flight.timestamp_ms)


def main() -> None:
    """Entry point of the child process."""
    follow_parent()
    parser = argparse.ArgumentParser()
    for name in ("pds", "topic"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("spool", "acks", "status"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    parser.add_argument("--flights-per-s", required=True, type=float)
    options = parser.parse_args()
    run_loop(send(options.pds, options.topic, options.spool, options.acks, options.status, options.flights_per_s))


if __name__ == "__main__":
    main()
