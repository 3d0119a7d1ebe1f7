"""What `rangelog.connect` returns: it may be awaited, or entered with `async with`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from rangelog._client import Client


class Connecting(AbstractAsyncContextManager["Client"]):
    """A client that is about to be made.

    Example:
        ```python
        async with rangelog.connect("127.0.0.1:7100") as client: ...
        client = await rangelog.connect("127.0.0.1:7100")
        ```
    """

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self.made().__await__()

    async def made(self) -> Client:
        """Return the client."""
        return self._make()

    async def __aenter__(self) -> Client:
        self._client = self._make()
        return await self._client.__aenter__()

    async def __aexit__(self, *failure: Any) -> None:
        if self._client is not None:
            await self._client.__aexit__(*failure)

    def __getattr__(self, name: str) -> NoReturn:
        """Say what was forgotten."""
        raise AttributeError(
            f"no {name!r} here: write `client = await rangelog.connect(…)`, or `async with rangelog.connect(…) as client`"
        )
