"""A writer whose records are made by the program's own functions.

What holds: a function runs before anything of its record, or of its list, is appended; what it raises comes to the caller
as it is, and leaves the writer as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from rangelog._append.many_records import check_iterable
from rangelog._append.writer import Writer
from rangelog_core.errors import InvalidArgument
from rangelog_core.record import Ack, AppendRecord


class Serializers:
    """The functions for keys and values; one that is None leaves what it is given."""

    def __init__(self, key: Callable[[Any], bytes] | None, value: Callable[[Any], bytes] | None) -> None:
        for name, each in (("key_serializer", key), ("value_serializer", value)):
            if each is not None and not callable(each):
                raise InvalidArgument(f"{name} is a function that returns bytes, not {each!r}")
        self._key, self._value = key, value

    def key(self, key: Any) -> Any:
        """Return the bytes of a key; a record without one stays without."""
        return key if key is None or self._key is None else self._key(key)

    def value(self, value: Any) -> Any:
        """Return the bytes of a value."""
        return value if self._value is None else self._value(value)

    def record(self, record: Any) -> bytes | AppendRecord:
        """Return a record of bytes, of a value or an AppendRecord."""
        if isinstance(record, AppendRecord):
            return record._replace(value=self.value(record.value), key=self.key(record.key))
        made: bytes = self.value(record)
        return made


class SerializingWriter:
    """A writer of any keys and values. Make it with `client.writer(name, value_serializer=…)`, and use `async with`.

    Its methods are those of `Writer`; an exception of a serializer comes out of them, and nothing is appended then.

    Example:
        ```python
        async with client.writer("orders", value_serializer=lambda order: json.dumps(order).encode()) as writer:
            await writer.append({"item": "coffee"})
        ```
    """

    def __init__(self, writer: Writer, serializers: Serializers) -> None:
        self.writer = writer
        """The writer underneath, which takes bytes."""
        self.serializers = serializers

    async def __aenter__(self) -> SerializingWriter:
        await self.writer.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.writer.close(flush=kind is None)

    async def open(self) -> None:
        """See Writer."""
        await self.writer.open()

    async def close(self, *, flush: bool = True, timeout_s: float | None = None) -> None:
        """See Writer."""
        await self.writer.close(flush=flush, timeout_s=timeout_s)

    async def append(
        self, value: Any, *, key: Any = None, headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None, expected_end: int | None = None, timeout_s: float | None = None,
    ) -> Ack:  # fmt: skip
        """See Writer."""
        made, made_key = self.serializers.value(value), self.serializers.key(key)
        return await self.writer.append(
            made, key=made_key, headers=headers, timestamp=timestamp, expected_end=expected_end, timeout_s=timeout_s
        )

    def submit(
        self, value: Any, *, key: Any = None, headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None, expected_end: int | None = None,
    ) -> asyncio.Future[Ack]:  # fmt: skip
        """See Writer."""
        made, made_key = self.serializers.value(value), self.serializers.key(key)
        return self.writer.submit(made, key=made_key, headers=headers, timestamp=timestamp, expected_end=expected_end)

    def append_nowait(
        self, value: Any, *, key: Any = None, headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None, expected_end: int | None = None,
    ) -> int:  # fmt: skip
        """See Writer."""
        made, made_key = self.serializers.value(value), self.serializers.key(key)
        return self.writer.append_nowait(
            made, key=made_key, headers=headers, timestamp=timestamp, expected_end=expected_end
        )

    async def append_batch(
        self, records: Iterable[Any], *, expected_end: int | None = None, timeout_s: float | None = None
    ) -> list[Ack]:
        """See Writer: `records` are values, or AppendRecords of values and keys. All are made before one is appended."""
        made = [self.serializers.record(record) for record in records]
        return await self.writer.append_batch(made, expected_end=expected_end, timeout_s=timeout_s)

    async def append_all(self, records: Iterable[Any] | AsyncIterable[Any], *, timeout_s: float | None = None) -> int:
        """See Writer. An exception of a serializer leaves the records before it appended."""
        return await self.writer.append_all(self._each(records), timeout_s=timeout_s)

    async def _each(self, records: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[bytes | AppendRecord]:
        if isinstance(records, AsyncIterable):
            async for record in records:
                yield self.serializers.record(record)
        else:
            check_iterable(records)
            for record in records:
                yield self.serializers.record(record)

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """See Writer."""
        await self.writer.flush(timeout_s=timeout_s)

    async def ready(self, *, timeout_s: float | None = None) -> None:
        """See Writer."""
        await self.writer.ready(timeout_s=timeout_s)

    @property
    def closed(self) -> bool:
        """See Writer."""
        return self.writer.closed

    @property
    def epoch(self) -> int:
        """See Writer."""
        return self.writer.epoch

    @property
    def next_offset(self) -> int:
        """See Writer."""
        return self.writer.next_offset

    @property
    def confirm_offset(self) -> int:
        """See Writer."""
        return self.writer.confirm_offset
