"""The gRPC channels of one client to processes of one role, made on demand.

What holds: with TLS the peer is of that role and shows a certificate of the given authorities, or no call reaches it. Once the
files of the certificates have changed, the next call goes over a new channel; the old one is closed when its calls are over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from rangelog_core.errors import ClientClosed
from rangelog_core.net.fork_guard import never_free_in_children
from rangelog_core.net.grpc_options import CHANNEL_OPTIONS
from rangelog_core.net.principals import Role, server_dns_name
from rangelog_core.net.routes import route_of
from rangelog_core.net.tls import TlsConfig, certificates_of

OLD_CHANNEL_GRACE_S = 60.0

_Response = TypeVar("_Response", bound=Message)


class Channels:
    """Channels and stubs by address. Bound to the event loop that it is first used on."""

    def __init__(self, tls: TlsConfig | None, role: Role) -> None:
        """`role`: of the peers. Raises ConfigInvalid where the files of `tls` cannot be used."""
        self.tls = tls
        self._role = role
        self._certificates = certificates_of(tls) if tls is not None else None
        self._load_count = self._certificates.load_count if self._certificates is not None else 0
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stubs: dict[tuple[str, type[Any]], Any] = {}  # making one costs about as much as its call
        self._calls: dict[tuple[str, type[Message]], Any] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        """The number of addresses with a channel."""
        return len(self._channels)

    async def close(self) -> None:
        """Close all channels; idempotent."""
        self._closed = True
        channels, self._channels = self._channels, {}
        self._stubs.clear()
        self._calls.clear()
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for channel in channels.values():
            await channel.close()

    def stub(self, address: str, stub_type: type[Any]) -> Any:
        """Return a stub for an address. Raises ClientClosed once closed."""
        if self._certificates is not None:
            self._take_new_files()
        stub = self._stubs.get((address, stub_type))
        if stub is None:
            stub = self._stubs[address, stub_type] = stub_type(self.channel(address))
        return stub

    def call(self, address: str, request: Message, response: type[_Response]) -> Callable[..., Awaitable[_Response]]:
        """Return what makes the call that takes this request, at an address. Raises ClientClosed once closed."""
        if self._certificates is not None:
            self._take_new_files()
        made: Callable[..., Awaitable[_Response]] | None = self._calls.get((address, type(request)))
        if made is None:
            made = self._calls[address, type(request)] = self.channel(address).unary_unary(
                route_of(type(request)).path,
                request_serializer=type(request).SerializeToString,
                response_deserializer=response.FromString,
            )
        return made

    def channel(self, address: str) -> grpc.aio.Channel:
        """Return the channel to an address. Raises ClientClosed once closed."""
        channel = self._channels.get(address)
        if channel is None:
            if self._closed:
                raise ClientClosed("the client is closed")
            channel = self._channels[address] = open_channel(address, self.tls, self._role)
        return channel

    def _take_new_files(self) -> None:
        assert self._certificates is not None
        self._certificates.now  # noqa: B018 - looks at the files
        if self._load_count == self._certificates.load_count:
            return
        self._load_count = self._certificates.load_count
        channels, self._channels = self._channels, {}
        self._stubs.clear()
        self._calls.clear()
        for channel in channels.values():
            task = asyncio.get_running_loop().create_task(channel.close(OLD_CHANNEL_GRACE_S))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def open_channel(address: str, tls: TlsConfig | None, role: Role) -> grpc.aio.Channel:
    """Open a channel to a process of this role. Raises ConfigInvalid where the files of `tls` cannot be used."""
    if tls is not None:
        credentials = certificates_of(tls).now.channel_credentials()
        options = (*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", server_dns_name(role)))
        channel = grpc.aio.secure_channel(address, credentials, options=options)
    else:
        channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    never_free_in_children(channel)
    return channel
