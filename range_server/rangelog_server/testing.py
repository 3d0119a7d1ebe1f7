"""For tests and benchmarks: a real range server process, and a raw client of the data plane that sends single frames."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rangelog_core.batch import encode_batch
from rangelog_core.errors import RangelogError
from rangelog_core.frame import Frame, Opcode
from rangelog_core.net.data_connection import DataConnection, replica_id
from rangelog_proto.v1 import data_pb2

START_TIMEOUT_S = 20.0
popen = subprocess.Popen
"""How a process begins."""


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Poll until `condition` holds; fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


class ServerProcess:
    """One range server in its own process; restarted on the same data directory by `start`."""

    def __init__(self, home: Path, *, name: str = "rs1", env: dict[str, str] | None = None,
                 arguments: Sequence[str] = (), wrapper: Sequence[str] = ()) -> None:  # fmt: skip
        self.home = home
        self.name = name
        self.env = env or {}
        self.arguments = list(arguments)
        self.wrapper = list(wrapper)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint_file(self) -> Path:
        """The file that exists while the process is ready."""
        return self.home / "endpoint.json"

    @property
    def endpoint(self) -> dict[str, Any]:
        """The content of the endpoint file."""
        return dict(json.loads(self.endpoint_file.read_text()))

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting for it."""
        command = [*self.wrapper, sys.executable, "-m", "rangelog_cli", "range-server", "--name", self.name]
        command += ["--data-dir", str(self.home), "--data-listen", "127.0.0.1:0", "--control-listen", "127.0.0.1:0"]
        command += ["--segment-size-bytes", str(16 * 1024 * 1024), *self.arguments]
        log = (self.home.parent / f"{self.name}.log").open("ab")
        with log:
            self.process = popen(command, stderr=log, env=os.environ | self.env)
        return self.process

    def start(self) -> ServerProcess:
        """Start the process and wait until it serves."""
        self.endpoint_file.unlink(missing_ok=True)
        process = self.spawn()
        wait_until(lambda: self.endpoint_file.exists() or process.poll() is not None, START_TIMEOUT_S)
        assert process.poll() is None, self.log()
        return self

    def log(self) -> str:
        """The process's log so far."""
        return (self.home.parent / f"{self.name}.log").read_text()

    def signal(self, number: int) -> int:
        """Send a signal and wait for the end; return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(20)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self.signal(signal.SIGKILL)

    def stop(self) -> int:
        """End the process with SIGTERM."""
        return self.signal(signal.SIGTERM)

    def close(self) -> None:
        """End the process if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(20)

    def socket(self) -> socket.socket:
        """Return a raw connection to the data plane."""
        host, _, port = self.endpoint["data_address"].rpartition(":")
        return socket.create_connection((host, int(port)), timeout=10)

    async def connect(self, *, token: str | None = None) -> RawClient:
        """Return a client whose hello was accepted."""
        endpoint = self.endpoint
        replica = replica_id(endpoint["server"], endpoint["incarnation"])
        return RawClient(await DataConnection.connect(endpoint["data_address"], replica, token=token))


class NotedReplies:
    """Collects the replies to a range's appends."""

    def __init__(self) -> None:
        self.durable_offset = 0
        self.replies = 0
        self.errors: list[RangelogError] = []

    def append_replied(self, reply: data_pb2.AppendReply) -> None:
        """The replica holds everything below its durable offset."""
        self.durable_offset = max(self.durable_offset, reply.durable_offset)
        self.replies += 1

    def append_refused(self, error: RangelogError) -> None:
        """The replica refused an append."""
        self.errors.append(error)

    def connection_closed(self, error: RangelogError) -> None:
        """No reply will come any more."""
        self.errors.append(error)


def batch(base_offset: int, values: Sequence[bytes], *, stream_id: int = 1, range_index: int = 0, epoch: int = 1,
          extension: bytes = b"") -> bytes:  # fmt: skip
    """Encode one batch whose timestamps are its offsets."""
    return encode_batch(
        stream_id=stream_id,
        range_index=range_index,
        epoch=epoch,
        base_offset=base_offset,
        timestamps_ms=list(range(base_offset, base_offset + len(values))),
        values=values,
        extension=extension,
    )


class RawClient:
    """The operations of the data plane, one method each."""

    def __init__(self, connection: DataConnection) -> None:
        self.connection = connection

    def listen(self, stream_id: int = 1, range_index: int = 0) -> NotedReplies:
        """Collect the replies to a range's appends."""
        log = NotedReplies()
        self.connection.listen(stream_id, range_index, log)
        return log

    def append(self, data: bytes, *, stream_id: int = 1, range_index: int = 0, epoch: int = 1, start_offset: int = 0,
               confirm_offset: int = 0, recovery: bool = False, memory: bool = False) -> None:  # fmt: skip
        """Send one append; replies go to the listener."""
        message = data_pb2.Append(
            stream_id=stream_id,
            range_index=range_index,
            epoch=epoch,
            start_offset=start_offset,
            confirm_offset=confirm_offset,
            recovery=recovery,
            memory=memory,
        )
        self.connection.send(Opcode.APPEND, message.SerializeToString(), [data])

    def confirm(self, confirm_offset: int, *, stream_id: int = 1, range_index: int = 0, epoch: int = 1) -> None:
        """Send a confirm offset."""
        message = data_pb2.Confirm(
            stream_id=stream_id, range_index=range_index, epoch=epoch, confirm_offset=confirm_offset
        )
        self.connection.send(Opcode.CONFIRM, message.SerializeToString())

    async def request(self, opcode: Opcode, message: Any, timeout_s: float = 10.0) -> Frame:
        """Send a request, return its reply."""
        return await self.connection.request(opcode, message.SerializeToString(), timeout_s=timeout_s)

    async def fetch(self, offset: int, *, stream_id: int = 1, range_index: int = 0, bytes_max: int = 1 << 20,
                    **fields: Any) -> tuple[data_pb2.FetchReply, bytes]:  # fmt: skip
        """Return the reply and the batches' bytes."""
        message = data_pb2.Fetch(
            stream_id=stream_id, range_index=range_index, offset=offset, bytes_max=bytes_max, **fields
        )
        frame = await self.request(Opcode.FETCH, message)
        return data_pb2.FetchReply.FromString(frame.message), frame.payload

    async def seal(
        self, epoch: int, *, stream_id: int = 1, range_index: int = 0, start_offset: int = 0
    ) -> data_pb2.SealReply:
        """Fence a range."""
        message = data_pb2.Seal(stream_id=stream_id, range_index=range_index, epoch=epoch, start_offset=start_offset)
        return data_pb2.SealReply.FromString((await self.request(Opcode.SEAL, message)).message)

    async def commit_end(self, epoch: int, end_offset: int, *, stream_id: int = 1, range_index: int = 0,
                         start_offset: int = 0) -> data_pb2.CommitEndReply:  # fmt: skip
        """Send a range its committed end."""
        message = data_pb2.CommitEnd(
            stream_id=stream_id, range_index=range_index, epoch=epoch, start_offset=start_offset, end_offset=end_offset
        )
        return data_pb2.CommitEndReply.FromString((await self.request(Opcode.COMMIT_END, message)).message)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
