"""A client process that sends records to the topic by the brokers' doors for HTTP, each request under a name of its own.

A request is repeated, at one broker after the other, until it is acked: nothing tells it whether an earlier try is in. Now and
then it repeats one that was acked, which must have the same place. Lines: those of chaos_producer, and ["differs", producer,
key, number, two places]. SIGTERM: end after the present request.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from rangelog_cli.local.lifeline import follow_parent
from tests.chaos.chaos_topic_notes import KEYS, TOPIC, Notes, ProgressFile, RecordName, value_of

REQUEST_TIMEOUT_S = 5.0
PAUSE_S = 0.05
REPEATED = 7
"""One in so many acked requests is sent again."""
TRIES_AT_THE_END = 6
"""After SIGTERM, of up to REQUEST_TIMEOUT_S each."""


class HttpSender:
    """The requests of one process."""

    def __init__(self, name: str, doors: list[str], notes: Notes, progress: ProgressFile) -> None:
        self._name, self._doors, self._notes, self._progress = name, doors, notes, progress
        self._tries = 0
        self.stopping = False

    async def run(self) -> None:
        """Send until it is stopped."""
        count = 0
        while not self.stopping:
            name = RecordName(self._name, count % KEYS, count // KEYS)
            self._notes.note(("sent", *name))
            self._progress.begun(name.key, name.number)
            place = await self._until_acked(name)
            if place is None:
                return
            self._notes.note(("acked", *name, *place, time.monotonic_ns()))
            self._progress.done(name.key, name.number)
            if count % REPEATED == 0:
                again = await self._until_acked(name)
                if again not in (place, None):
                    self._notes.note(("differs", *name, place, again))
            count += 1
            await asyncio.sleep(PAUSE_S)

    async def _until_acked(self, name: RecordName) -> tuple[int, int] | None:
        """Try until it is acked; once the process is to end some times more."""
        left = TRIES_AT_THE_END
        while left:
            self._tries += 1
            left -= self.stopping
            place = await asyncio.to_thread(self._try, self._doors[self._tries % len(self._doors)], name)
            if place is not None:
                return place
            await asyncio.sleep(PAUSE_S)
        return None

    def _try(self, door: str, name: RecordName) -> tuple[int, int] | None:
        connection = http.client.HTTPConnection(door, timeout=REQUEST_TIMEOUT_S)
        headers = {"Idempotency-Key": f"{name.producer} {name.key} {name.number}", "X-Rangelog-Key": f"key-{name.key}"}
        try:
            connection.request("POST", f"/v1/topics/default/{TOPIC}/records", value_of(name), headers)
            response = connection.getresponse()
            body: Any = json.loads(response.read())
            return (body["shard"], body["offset"]) if response.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()


def main() -> None:
    """Entry point of the child process."""
    follow_parent()
    parser = argparse.ArgumentParser()
    for name in ("pds", "name", "doors"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("history", "pulse"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    options = parser.parse_args()
    notes = Notes(options.history)
    sender = HttpSender(options.name, options.doors.split(","), notes, ProgressFile(options.pulse))

    def stop() -> None:
        sender.stopping = True

    async def run() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        await sender.run()

    asyncio.run(run())
    notes.note(("done",))


if __name__ == "__main__":
    main()
