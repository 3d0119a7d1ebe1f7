"""Event files as a part of the client: `rangelog.open_files`. The package is loaded when it is called: it needs an extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rangelog_core.errors import MissingExtra

if TYPE_CHECKING:
    from rangelog_files.event_store import EventStore


def open_files(url: str, *, create: bool = False, look_interval_s: float = 1.0) -> EventStore:
    """Return a stream of event files, a log without servers; use it with `async with`.

    Args:
        url: `file:///data/who`: the stream `who` in the directory /data. `s3://bucket/prefix/who?endpoint=…`: to be read only.
        create: Make the stream if it does not exist.
        look_interval_s: How often properties are read again, noticed or not, in seconds.

    Raises:
        MissingExtra: The extra `files` is not installed.
        ConfigInvalid: The URL is not valid.
        InvalidArgument: The last part of the URL is not the name of a stream.

    Example:
        ```python
        async with rangelog.open_files("file:///data/who", create=True) as store:
            async with store.writer() as writer:
                await writer.append(b"on", key=b"lamp")
            async for record in store.reader():
                print(record.value)
        ```
    """
    try:
        import fastavro  # noqa: F401
    except ImportError as error:
        raise MissingExtra("event files need fastavro: pip install 'rangelog[files]'") from error
    from rangelog_files.event_store import open_files as opened

    return opened(url, create=create, look_interval_s=look_interval_s)
