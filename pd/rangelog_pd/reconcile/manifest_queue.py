"""The streams whose manifests are to be written because they were trimmed or deleted: a commit's is written by its own server.

What holds: a stream is in the queue until a server has reported the batch that it is in as done. In the leader's memory only:
another leader does not know of it, and the manifest is right again after the next commit, trim or deletion of objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

STREAMS_MAX = 100
"""The streams in one batch."""
_START = "manifests-"


@dataclass(slots=True)
class ManifestQueue:
    """One batch at a time; what comes meanwhile is in the next one."""

    _waiting: dict[int, None] = field(default_factory=dict)
    _batch: list[int] = field(default_factory=list)
    _name: str = ""

    def put(self, stream_id: int) -> None:
        """Add a stream."""
        self._waiting[stream_id] = None

    def batch(self, time_ms: int) -> tuple[str, list[int]]:
        """Return the name and the streams of the batch in progress, or of the next one. No two have one name."""
        if not self._batch and self._waiting:
            self._batch = list(islice(self._waiting, STREAMS_MAX))
            for stream_id in self._batch:
                del self._waiting[stream_id]
            self._name = f"{_START}{time_ms}-{self._batch[0]}-{len(self._batch)}"
        return self._name, self._batch

    def done(self, task_id: str) -> None:
        """End the batch, if the task is that of its directive."""
        if self._batch and task_id.partition("@")[0] == self._name:
            self._batch = []

    def clear(self) -> None:
        """Forget all."""
        self._waiting.clear()
        self._batch = []
