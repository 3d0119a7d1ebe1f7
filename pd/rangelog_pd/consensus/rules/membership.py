"""The configuration of a log: which one counts at which entry. Pure.

What holds: a configuration counts from the moment its entry is appended, committed or not; when the entry is cut, the one
before it counts again; the one that a snapshot has is found again behind it.

Source: Ongaro, "Consensus: Bridging Theory and Practice", chapter 4.
"""

from __future__ import annotations

from rangelog_pd.consensus.files.configuration import Configuration


class ConfigurationHistory:
    """The configurations of one log, oldest first. The first one is never cut: it is of the snapshot, or of the start."""

    def __init__(self, configuration: Configuration, index: int = 0) -> None:
        self._history = [(index, configuration)]

    @property
    def current(self) -> Configuration:
        """The one that counts."""
        return self._history[-1][1]

    @property
    def index(self) -> int:
        """Index of its entry; 0: that of the start."""
        return self._history[-1][0]

    def at(self, index: int) -> tuple[Configuration, int]:
        """Return the configuration that counts at an entry, and the index of its own entry."""
        for at, configuration in reversed(self._history):
            if at <= index:
                return configuration, at
        return self._history[0][1], self._history[0][0]

    def append(self, index: int, configuration: Configuration) -> None:
        """Add that of a new entry. One that is known already changes nothing."""
        if index > self.index:
            self._history.append((index, configuration))

    def cut_from(self, index: int) -> None:
        """Forget those of the entries from `index` on."""
        while len(self._history) > 1 and self.index >= index:
            self._history.pop()

    def forget_before(self, index: int) -> None:
        """Keep only what counts at `index` and after it."""
        while len(self._history) > 1 and self._history[1][0] <= index:
            self._history.pop(0)
