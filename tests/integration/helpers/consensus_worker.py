"""One consensus member as a process, for crash tests. Its state is the list of the numbers it was given.

Line protocol on a loopback port (printed on start): a request is one JSON list [id, verb, argument], an answer [id, result].
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

from rangelog_core.errors import RangelogError
from rangelog_pd.consensus.pysyncobj_consensus import PySyncObjConsensus

_NUMBER = struct.Struct("<Q")


class Numbers:
    """Applied numbers, in order."""

    def __init__(self) -> None:
        self.applied = bytearray()

    def apply(self, index: int, command: bytes) -> bytes:
        """Append and answer how many there are."""
        self.applied += command[: _NUMBER.size]
        return _NUMBER.pack(len(self.applied) // _NUMBER.size)

    def freeze(self) -> list[bytes]:
        """Return all of them, as they are now."""
        return [bytes(self.applied)]

    def restore(self, data: bytes) -> None:
        """All of them."""
        self.applied = bytearray(data)


def _die_after_renaming(name: str) -> None:
    """Arm a trap: kill -9 of this process in the moment when a new file of this name has taken its place.

    A snapshot (written on a thread of its own) takes a tenth of a second to do so: entries are acknowledged meanwhile.
    """
    rename = os.rename

    def trap(old: Path, new: Path) -> None:
        if Path(new).name != name:
            rename(old, new)
            return
        if name == "snapshot":
            time.sleep(0.1)
        rename(old, new)
        os.kill(os.getpid(), signal.SIGKILL)

    os.rename = trap  # type: ignore[assignment]


class Member:
    """Answers requests."""

    def __init__(self, consensus: PySyncObjConsensus, numbers: Numbers) -> None:
        self.consensus = consensus
        self.numbers = numbers

    async def answer(self, verb: str, argument: Any) -> Any:
        """One request."""
        if verb == "propose":
            number, size_bytes = argument
            command = _NUMBER.pack(number).ljust(size_bytes, b".")
            return _NUMBER.unpack(await self.consensus.propose(command, timeout_s=3.0))[0]
        if verb == "barrier":
            await self.consensus.barrier(timeout_s=argument)
            return len(self.numbers.applied) // _NUMBER.size
        if verb == "status":
            status = self.consensus.status()
            return [status.leader, status.term, status.applied_index, status.has_majority]
        if verb == "dump":
            with self.consensus.lock:
                data = bytes(self.numbers.applied)
            return [hashlib.sha256(data).hexdigest(), [number for (number,) in _NUMBER.iter_unpack(data)]]
        if verb == "die after renaming":
            _die_after_renaming(argument)
            return None
        return "unknown verb"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection; requests run side by side."""
        running = set()

        async def one(request_id: int, verb: str, argument: Any) -> None:
            try:
                result = await self.answer(verb, argument)
            except RangelogError as error:
                result = {"error": error.code, "unknown": error.outcome_unknown}
            writer.write(json.dumps([request_id, result]).encode() + b"\n")

        while line := await reader.readline():
            task = asyncio.create_task(one(*json.loads(line)))
            running.add(task)
            task.add_done_callback(running.discard)


async def main() -> int:
    """Run until killed, or until consensus fails."""
    options = json.loads(sys.argv[1])
    logging.basicConfig(level=options.get("log", "ERROR"))
    numbers = Numbers()
    consensus = PySyncObjConsensus(
        options["name"],
        options["members"],
        Path(options["data_dir"]),
        numbers,
        secret=options["secret"],
        snapshot_entries=options["snapshot_entries"],
    )
    await consensus.start()
    member = Member(consensus, numbers)
    server = await asyncio.start_server(member.serve, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    print(await consensus.failed(), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
