"""The writer of a stream of event files for threads.

What holds: as for `EventWriter`: an append returns once its event is on the disk; events of one thread are read in the order
of its appends. When an error has `outcome_unknown` the event may be in a file; otherwise it is in none.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import cast

from rangelog_core.errors import AppendTimeout, WriterClosed
from rangelog_core.record import BytesLike
from rangelog_files.commit_drivers import ThreadCommits
from rangelog_files.event_target import EventAck
from rangelog_files.events import Event, check_event
from rangelog_files.open_prefix import EventPlace, OpenPrefix, event_of


class ThreadedEventWriter:
    """The writer for threads: any number may append at once. Make it with `store.threaded_writer()`, and use it with `with`.

    Example:
        ```python
        with store.threaded_writer() as writer:
            ack = writer.append(b"first", key=b"UA")
        ```
    """

    def __init__(self, place: EventPlace, prefix: str | None, *, append_timeout_s: float) -> None:
        self._place = place
        self._prefix = prefix
        self._append_timeout_s = append_timeout_s
        self._writing: OpenPrefix | None = None
        self._commits: ThreadCommits[Event] | None = None
        self._appending = 0
        self._idle = threading.Condition()

    def __enter__(self) -> ThreadedEventWriter:
        self._writing = OpenPrefix(self._place, self._prefix)
        self._commits = ThreadCommits(self._writing.queue, self._writing.target)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def prefix(self) -> str:
        """The prefix of its files. Raises WriterClosed before it is entered."""
        if self._writing is None:
            raise WriterClosed("the writer is not open: use it with `with`")
        return self._writing.target.prefix

    @property
    def groups(self) -> int:
        """How many flushes its events have shared, so far; 0 for one that is closed."""
        return 0 if self._writing is None else self._writing.target.groups

    def append(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        timeout_s: float | None = None,
    ) -> EventAck:
        """Append one event, and return where it is once it is on the disk. Arguments and errors are those of EventWriter."""
        event = event_of(value, key, headers, timestamp)
        size_bytes = check_event(event)
        with self._idle:
            commits = self._commits
            if commits is None:
                raise WriterClosed("the writer is not open: use it with `with`")
            self._appending += 1
        try:
            limit_s = self._append_timeout_s if timeout_s is None else timeout_s
            return cast(EventAck, commits.append(event, size_bytes, limit_s))
        finally:
            with self._idle:
                self._appending -= 1
                self._idle.notify_all()

    def close(self) -> None:
        """Take no more appends, wait for those of other threads, write the end mark, and leave the prefix. Idempotent."""
        with self._idle:
            writing, self._writing, self._commits = self._writing, None, None
            if not self._idle.wait_for(lambda: not self._appending, self._append_timeout_s):
                raise AppendTimeout("an append has not ended: its file is left as it is, without an end mark")
        if writing is not None:
            writing.close()
