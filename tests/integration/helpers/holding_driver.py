"""A placement driver's double between a writer and the real one: forwards every call, and holds those that leave a range."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

import grpc

CALL_TIMEOUT_S = 10.0


class HoldingDriver(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Probes for a better place wait for `let_probe`. Seals wait for `let_through`, are then made, and are never answered."""

    def __init__(self, target: str) -> None:
        self.probed = asyncio.Event()
        self.let_probe = asyncio.Event()
        self.asked = asyncio.Event()
        self.let_through = asyncio.Event()
        self.done = asyncio.Event()
        self.address = ""
        options = [("grpc.enable_http_proxy", 0)]
        self._channel = grpc.aio.insecure_channel(target, options=options)
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])

    async def __aenter__(self) -> Self:
        self._server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop(None)
        await self._channel.close()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """See grpc.GenericRpcHandler: requests and responses stay bytes."""
        method = handler_call_details.method
        special = {"ListServers": self._probe, "SealRange": self._seal}
        work: Callable[..., Any] = special.get(method.rpartition("/")[2], self._forward)
        return grpc.unary_unary_rpc_method_handler(partial(work, method))

    async def _probe(self, method: str, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        self.probed.set()
        await self.let_probe.wait()
        return await self._forward(method, request, context)

    async def _seal(self, method: str, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        self.asked.set()
        await self.let_through.wait()
        try:
            await self._channel.unary_unary(method)(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            pass  # refused: that is an answer
        self.done.set()
        return await asyncio.Event().wait() and b""

    async def _forward(self, method: str, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        try:
            return await self._channel.unary_unary(method)(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "", error.trailing_metadata() or ())
            raise
