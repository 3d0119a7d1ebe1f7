"""A disk in memory that can be stopped before any of its calls, and what may be left on it then.

Before a call changes anything, `before` is told: there the caller may copy the state and make disks of it as a crash could
leave them. What holds: flushed bytes and names that were flushed with their directory survive; of the rest a power cut
keeps any 512-byte sectors of any write, in any order, and any of the changed names; a killed process loses nothing that
was written, but its last write may have stopped anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

SECTOR_BYTES = 512
Piece = tuple[int, bytes | None]  # position and bytes; no bytes: the file was cut there


@dataclass(eq=False, slots=True)
class CrashFile:
    """One file: as it reads, as it is on the disk, and the writes between the two."""

    now: bytearray = field(default_factory=bytearray)
    flushed: bytearray = field(default_factory=bytearray)
    pending: list[Piece] = field(default_factory=list)

    def write(self, position: int, data: bytes) -> None:
        """Into the page cache."""
        _put(self.now, position, data)
        start = position
        while start < position + len(data):
            end = min((start // SECTOR_BYTES + 1) * SECTOR_BYTES, position + len(data))
            self.pending.append((start, data[start - position : end - position]))
            start = end

    def cut(self, length: int) -> None:
        """Shorten."""
        del self.now[length:]
        self.pending.append((length, None))

    def flush(self) -> None:
        """Everything is on the disk."""
        if self.pending:
            self.flushed = bytearray(self.now)
            self.pending.clear()

    def copy(self) -> CrashFile:
        """Another one like it."""
        return CrashFile(bytearray(self.now), bytearray(self.flushed), list(self.pending))

    def survive(self, keep: Callable[[int, int], bool], *, whole_length: bool = False) -> None:
        """The power went: of the pending pieces those are there that `keep(number, of)` says."""
        content = bytearray(self.flushed)
        for number, (position, data) in enumerate(self.pending):
            if keep(number, len(self.pending)):
                if data is None:
                    del content[position:]
                else:
                    _put(content, position, data)
        if whole_length and len(content) < len(self.now):
            content.extend(bytes(len(self.now) - len(content)))  # the length was written, the bytes were not
        self.now, self.flushed = content, bytearray(content)
        self.pending.clear()


def _put(content: bytearray, position: int, data: bytes) -> None:
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


@dataclass(slots=True)
class DiskState:
    """One directory."""

    names: dict[str, CrashFile] = field(default_factory=dict)
    durable_names: dict[str, CrashFile] = field(default_factory=dict)
    changes: list[tuple[str, str, CrashFile]] = field(default_factory=list)  # from, to: "" for made and for removed

    def change(self, source: str, target: str, file: CrashFile) -> None:
        """A name comes, goes or moves."""
        _rename(self.names, source, target, file)
        self.changes.append((source, target, file))

    def flush_names(self) -> None:
        """The directory is flushed."""
        self.durable_names = dict(self.names)
        self.changes.clear()

    def copy(self) -> DiskState:
        """Another one like it; what is open elsewhere is not open here."""
        twins: dict[int, CrashFile] = {}

        def twin(file: CrashFile) -> CrashFile:
            if id(file) not in twins:
                twins[id(file)] = file.copy()
            return twins[id(file)]

        return DiskState(
            {name: twin(file) for name, file in self.names.items()},
            {name: twin(file) for name, file in self.durable_names.items()},
            [(source, target, twin(file)) for source, target, file in self.changes],
        )

    def content(self) -> dict[str, bytes]:
        """What reads."""
        return {name: bytes(file.now) for name, file in sorted(self.names.items())}

    def power_cut(
        self,
        keep_piece: Callable[[int, int], bool],
        keep_name: Callable[[int, int], bool],
        *,
        whole_length: bool = False,
    ) -> DiskState:
        """Return what is left when the power goes."""
        left = self.copy()
        names = dict(left.durable_names)
        for number, (source, target, file) in enumerate(left.changes):
            if keep_name(number, len(left.changes)):
                _rename(names, source, target, file)
        left.names = names
        for file in {id(each): each for each in names.values()}.values():
            file.survive(keep_piece, whole_length=whole_length)
        left.flush_names()
        return left


def _rename(names: dict[str, CrashFile], source: str, target: str, file: CrashFile) -> None:
    if source and names.get(source) is file:
        del names[source]
    if target:
        names[target] = file


@dataclass(frozen=True, slots=True)
class Step:
    """A call that is about to change the disk; of a write also what it would write."""

    call: str
    name: str
    position: int = 0
    data: bytes = b""


class CrashDisk:
    """The calls that both seams (of the log and of the journal) are made of."""

    def __init__(self, state: DiskState | None = None) -> None:
        self.state = state or DiskState()
        self.before: Callable[[Step], None] = lambda step: None
        self.steps = 0
        self._open: dict[int, CrashFile] = {}
        self._next_fd = 1000

    def file(self, fd: int) -> CrashFile:
        """Return an open file."""
        return self._open[fd]

    def descriptor(self, name: str) -> int:
        """Open. Raises KeyError."""
        self._next_fd += 1
        self._open[self._next_fd] = self.state.names[name]
        return self._next_fd

    def close(self, fd: int) -> None:
        """Close."""
        del self._open[fd]

    def _step(self, call: str, name: str, position: int = 0, data: bytes = b"") -> None:
        self.steps += 1
        self.before(Step(call, name, position, data))

    def create(self, name: str, flushed_bytes: int = 0) -> int:
        """Make a file of so many flushed zeros, or empty the one that is there."""
        self._step("create", name)
        old = self.state.names.get(name)
        if old is not None and not flushed_bytes:
            old.cut(0)
        else:
            self.state.change("", name, CrashFile(bytearray(flushed_bytes), bytearray(flushed_bytes)))
        return self.descriptor(name)

    def _name_of(self, file: CrashFile) -> str:
        return next((name for name, each in self.state.names.items() if each is file), "removed")

    def write(self, fd: int, data: bytes, position: int) -> None:
        """Write."""
        file = self._open[fd]
        self._step("write", self._name_of(file), position, data)
        file.write(position, data)

    def cut(self, fd: int, length: int) -> None:
        """Shorten a file."""
        self._step("truncate", self._name_of(self._open[fd]))
        self._open[fd].cut(length)

    def flush(self, fd: int) -> None:
        """Flush a file."""
        self._step("flush", self._name_of(self._open[fd]))
        self._open[fd].flush()

    def rename(self, source: str, target: str) -> None:
        """Rename."""
        self._step("rename", target)
        self.state.change(source, target, self.state.names[source])

    def unlink(self, name: str) -> None:
        """Remove a name."""
        self._step("unlink", name)
        self.state.change(name, "", self.state.names[name])

    def flush_names(self) -> None:
        """Flush the directory."""
        self._step("flush of the directory", "")
        self.state.flush_names()


# ---- what a crash leaves


def crashed(state: DiskState, step: Step | None, chance: Random, draws: int) -> Iterator[tuple[str, DiskState]]:
    """Yield (kind, disk) for a crash before or in the middle of `step` (None: after the last one)."""
    yield "killed", state.copy()
    under_way = state
    if step is not None and step.call == "write":
        for kept in _borders(len(step.data), chance):
            part = state.copy()
            part.names[step.name].write(step.position, step.data[:kept])
            yield "killed in a write", part
        under_way = state.copy()
        if step.name in under_way.names:
            under_way.names[step.name].write(step.position, step.data)
    yield "nothing unflushed", state.power_cut(_none, _none)
    if not under_way.changes and not any(file.pending for file in under_way.names.values()):
        return
    yield "all of it", under_way.power_cut(_all, _all)
    if under_way.changes:
        yield "names without bytes", under_way.power_cut(_none, _all)
        yield "bytes without names", under_way.power_cut(_all, _none)
    yield "first half of the sectors", under_way.power_cut(lambda n, of: 2 * n < of, _all)
    yield "second half of the sectors", under_way.power_cut(lambda n, of: 2 * n >= of, _all)
    yield "lengths without bytes", under_way.power_cut(_none, _all, whole_length=True)
    for _ in range(draws):
        share, names, ordered = chance.choice((0.2, 0.5, 0.8)), chance.random(), chance.random() < 0.5
        yield (
            "drawn sectors and names",
            under_way.power_cut(
                lambda n, of, share=share: chance.random() < share,
                lambda n, of, names=names, ordered=ordered: n < names * of if ordered else chance.random() < names,
                whole_length=chance.random() < 0.3,
            ),
        )


def _none(number: int, of: int) -> bool:
    return False


def _all(number: int, of: int) -> bool:
    return True


def _borders(length: int, chance: Random) -> list[int]:
    """Where a write may stop: in the middle, one byte short, and anywhere."""
    found = {length // 2, length - 1, chance.randrange(length) if length else 0}
    return sorted(each for each in found if 0 < each < length)
