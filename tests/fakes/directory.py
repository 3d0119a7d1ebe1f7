"""The one directory of a disk in memory: the names as they read, those on the disk, and the changes between the two.

What holds: a name is on the disk once the directory was flushed after it was made, moved or removed. A power cut keeps any
of the changes since then, as its caller chooses. A copy is a snapshot: the disk may be put back to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.fakes.disk_file import Choice, DiskFile

Change = tuple[str, str, DiskFile]  # from, to: "" for made and for removed


@dataclass(slots=True)
class Directory:
    """See the module."""

    names: dict[str, DiskFile] = field(default_factory=dict)
    durable_names: dict[str, DiskFile] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    @classmethod
    def of(cls, content: Mapping[str, bytes | bytearray]) -> Directory:
        """Return a directory of flushed files."""
        names = {name: DiskFile(data) for name, data in content.items()}
        return cls(names, dict(names))

    def change(self, source: str, target: str, file: DiskFile) -> None:
        """A name is made (no source), moved, or removed (no target)."""
        _rename(self.names, source, target, file)
        self.changes.append((source, target, file))

    def flush_names(self) -> None:
        """The directory is flushed."""
        self.durable_names = dict(self.names)
        self.changes.clear()

    def copy(self) -> Directory:
        """Return a snapshot; what is open here is not open there."""
        twins: dict[int, DiskFile] = {}

        def twin(file: DiskFile) -> DiskFile:
            if id(file) not in twins:
                twins[id(file)] = file.copy()
            return twins[id(file)]

        return Directory(
            {name: twin(file) for name, file in self.names.items()},
            {name: twin(file) for name, file in self.durable_names.items()},
            [(source, target, twin(file)) for source, target, file in self.changes],
        )

    def content(self) -> dict[str, bytes]:
        """Return what reads."""
        return {name: bytes(file.now) for name, file in sorted(self.names.items())}

    def surely_holds(self, name: str, length: int) -> bool:
        """Whether the first bytes of a file would be the same after any power cut."""
        file = self.names.get(name)
        if file is None or self.durable_names.get(name) is not file:
            return False
        return len(file.flushed) >= length and file.flushed[:length] == file.now[:length]

    # ---- what happens to the disk

    def settle(self) -> None:
        """All that reads is on the disk."""
        for file in self.files():
            file.settle()
        self.flush_names()

    def cut_names(self, keep: Choice) -> None:
        """The power went: of the changed names those are there that `keep` chooses. The files are left to the caller."""
        names = dict(self.durable_names)
        for number, (source, target, file) in enumerate(self.changes):
            if keep(number, len(self.changes)):
                _rename(names, source, target, file)
        self.names = names
        self.flush_names()

    def power_cut(self, keep_piece: Choice, keep_name: Choice, *, whole_length: bool = False) -> Directory:
        """Return a snapshot of what is left when the power goes: see `DiskFile.survive_pieces`."""
        left = self.copy()
        left.cut_names(keep_name)
        for file in left.files():
            file.survive_pieces(keep_piece, whole_length=whole_length)
        return left

    def files(self) -> Iterable[DiskFile]:
        """Return each file that has a name, once."""
        return {id(file): file for file in self.names.values()}.values()


def _rename(names: dict[str, DiskFile], source: str, target: str, file: DiskFile) -> None:
    if source and names.get(source) is file:
        del names[source]
    if target:
        names[target] = file
