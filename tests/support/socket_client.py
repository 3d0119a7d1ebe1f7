"""A WebSocket client of its own frames, for tests: what it sends may break the protocol."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import CloseConnection, Ping, Pong, TextMessage

from tests.support.waiting import until

KEY = base64.b64encode(bytes(16)).decode()


class SocketClient:
    """One connection: `messages` as they came, and the code it was closed with. `await SocketClient.open(address, target)`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.status = 0
        self.head = b""
        self.body = b""
        self.messages: list[Any] = []
        self.pings = 0
        self.pongs: list[bytes] = []
        self.code: int | None = None
        self.reason = ""
        self.answers_pings = True
        self._frames = Connection(ConnectionType.CLIENT)
        self.reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def open(cls, address: tuple[str, int], target: str, **headers: str) -> SocketClient:
        """Ask, and return once there is a status; `headers`: with _ for -."""
        reader, writer = await asyncio.open_connection(*address)
        known = {
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": KEY,
        }  # fmt: skip
        known |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in known.items() if value)
        writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())
        made = cls(reader, writer)
        await until(lambda: bool(made.status), "there is an answer")
        return made

    def send(self, value: Any) -> None:
        """Send a message."""
        self.writer.write(self._frames.send(TextMessage(data=value if isinstance(value, str) else json.dumps(value))))

    def send_event(self, event: Any) -> None:
        """Send another frame."""
        self.writer.write(self._frames.send(event))

    @property
    def values(self) -> list[str]:
        """The values of the records that came."""
        return [each["record"]["value"] for each in self.messages if "record" in each]

    async def close(self) -> None:
        """Go away."""
        self.writer.transport.abort()
        await asyncio.gather(self.reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        self.head = await reader.readuntil(b"\r\n\r\n")
        status = int(self.head.split()[1])
        if status != 101:
            length = int(self.head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            self.body = await reader.readexactly(length)
            self.status = status
            return
        self.status = status
        part = ""
        while data := await reader.read(65_536):
            self._frames.receive_data(data)
            for event in self._frames.events():
                if isinstance(event, TextMessage):
                    part += event.data
                    if event.message_finished:
                        self.messages.append(json.loads(part))
                        part = ""
                elif isinstance(event, Ping):
                    self.pings += 1
                    if self.answers_pings:
                        self.writer.write(self._frames.send(event.response()))
                elif isinstance(event, Pong):
                    self.pongs.append(bytes(event.payload))
                elif isinstance(event, CloseConnection):
                    self.code, self.reason = event.code, event.reason or ""
                    if self.answers_pings and self._frames.state is ConnectionState.REMOTE_CLOSING:
                        self.writer.write(self._frames.send(event.response()))
                    return
