"""Group commit on files: the product's own `CommitCaller`, and every order of the steps of its callers.

A state is what the callers share, where each of them is, and the file. A write and a flush begin and end in two steps each;
each of them may fail, and then the next file is opened. A caller may stop to wait for its outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rangelog_core.errors import RangelogError, StorageFull
from rangelog_files.group_commit import CommitCaller, CommitEntry, CommitQueue, CommitStep

FAILED = StorageFull("no room")


class ModelFlag:
    """The flag, as one caller after another sees it."""

    def __init__(self, is_set: bool) -> None:
        self.is_set = is_set

    def acquire(self, blocking: bool = True) -> bool:
        """Compare and set."""
        won, self.is_set = not self.is_set, True
        return won

    def release(self) -> None:
        """Reset."""
        assert self.is_set, "a flag was reset that was not set"
        self.is_set = False


@dataclass(frozen=True, slots=True)
class EntryState:
    """One entry: whether it is marked, and how. `name`: its caller, and the number of its call."""

    name: tuple[int, int]
    caller_waits: bool = True
    handed: bool = False
    marked: bool = False
    acked: bool = False


@dataclass(frozen=True, slots=True)
class CallerState:
    """Where a caller is. Entries are named by (caller, call)."""

    call: int = 0
    step: CommitStep = CommitStep.ENQUEUE
    leaves: bool = False
    group: tuple[tuple[int, int], ...] = ()
    marking: int = 0
    error: bool = False
    head: tuple[int, int] | None = None
    flushing: int | None = None
    """Of the flush that it has begun: how many entries the file had then."""
    after: CommitStep = CommitStep.WAIT
    took: tuple[tuple[int, int], ...] = ()
    """The group of its last write, for the invariant."""


@dataclass(frozen=True, slots=True)
class CommitState:
    """All of it. `written`: the entries of the file in use, in order; `durable`: those of any file after a flush."""

    callers: tuple[CallerState, ...]
    entries: tuple[EntryState, ...] = ()
    queue: tuple[tuple[int, int], ...] = ()
    flag: bool = False
    written: tuple[tuple[int, int], ...] = ()
    before: tuple[tuple[int, int], ...] = ()
    """The entries of files that were given up."""
    durable: frozenset[tuple[int, int]] = frozenset()
    failed: frozenset[tuple[int, int]] = frozenset()
    """The entries of groups whose write or flush has failed."""
    write_failures: int = 0
    flush_failures: int = 0
    give_ups: int = 0
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Commits:
    """One instance: how many calls each caller makes, what may fail, and how many entries a group has at most."""

    calls: tuple[int, ...] = (1, 1, 1)
    write_failures: int = 0
    flush_failures: int = 0
    give_ups: int = 0
    entries_max: int = 99

    def initial(self) -> CommitState:
        """No caller has begun."""
        return CommitState(
            tuple(CallerState() for _ in self.calls),
            tuple(EntryState((number, 0)) for number in range(len(self.calls))),
            write_failures=self.write_failures, flush_failures=self.flush_failures, give_ups=self.give_ups,
        )  # fmt: skip

    def goal(self, state: CommitState) -> bool:
        """All callers are quiet."""
        return all(self._quiet(number, each) for number, each in enumerate(state.callers))

    def _quiet(self, number: int, caller: CallerState) -> bool:
        return caller.step is CommitStep.DONE and caller.call == self.calls[number] - 1

    def invariant(self, state: CommitState) -> str:
        """Name what is broken, or nothing."""
        if state.broken:
            return state.broken
        everything = state.before + state.written
        if len(frozenset(everything)) != len(everything):
            return "WRITTEN-TWICE"
        for number in range(len(self.calls)):
            own = [call for caller, call in everything if caller == number]
            if own != sorted(own):
                return "OUT-OF-ORDER"
        for entry in state.entries:
            if entry.acked and entry.name in state.failed:
                return "ACKED-AND-FAILED"
            if entry.acked and entry.name not in state.durable:
                return "ACKED-NOT-FLUSHED"
            if entry.marked and not entry.acked and entry.name not in state.failed:
                return "ERROR-OF-ANOTHER-GROUP"
        if self.goal(state):
            if state.queue or any(not entry.marked for entry in state.entries):
                return "LEFT-BEHIND"
            if state.flag:
                return "FLAG-LEFT-SET"
        return ""

    def successors(self, state: CommitState) -> Iterator[tuple[str, CommitState]]:
        """Every step that can be taken from here."""
        for number, caller in enumerate(state.callers):
            for what, found in self._steps(state, number, caller):
                yield f"caller {number}: {what}", found

    def _steps(self, state: CommitState, number: int, caller: CallerState) -> Iterator[tuple[str, CommitState]]:
        if caller.step is CommitStep.WRITE:
            yield from self._write(state, number, caller)
        elif caller.step is CommitStep.FLUSH:
            yield from self._flush(state, number, caller)
        elif caller.step is CommitStep.DONE:
            if caller.call + 1 < self.calls[number]:
                entries = (*state.entries, EntryState((number, caller.call + 1)))
                yield "calls again", _with(replace(state, entries=entries), number, CallerState(caller.call + 1))
        else:
            yield from self._own(state, number, caller)

    def _own(self, state: CommitState, number: int, caller: CallerState) -> Iterator[tuple[str, CommitState]]:
        if caller.step is CommitStep.WAIT and state.give_ups:
            yield "gives up", self._stepped(replace(state, give_ups=state.give_ups - 1), number, CommitCaller.give_up)
        found = self._stepped(state, number, CommitCaller.step)
        if found != state:  # else it waits
            yield caller.step.value, found

    def _stepped(self, state: CommitState, number: int, step: Any, *arguments: Any) -> CommitState:
        """Take one step of the product."""
        entries = {each.name: _thawed(each) for each in state.entries}
        queue: CommitQueue[tuple[int, int]] = CommitQueue(ModelFlag(state.flag), entries_max=self.entries_max)
        queue.entries.extend(entries[name] for name in state.queue)
        was = state.callers[number]
        caller = _caller(queue, entries, was, number)
        try:
            step(caller, *arguments)
        except AssertionError as error:
            return replace(state, broken=str(error).upper().replace(" ", "-"))
        now = replace(
            was, step=caller.next, leaves=caller.leaves, group=tuple(each.event for each in caller.group),
            marking=caller._marked, error=caller._error is not None,
            head=None if caller._head is None else caller._head.event, after=caller._after,
        )  # fmt: skip
        if now.head is not None and now.step is not CommitStep.HAND:
            now = replace(now, head=None)
        if now.step is not CommitStep.WAKE:  # it is of no meaning then: fewer states
            now = replace(now, after=CommitStep.WAIT)
        flag = queue.flag.is_set  # type: ignore[attr-defined]
        frozen = tuple(_frozen(entries[each.name]) for each in state.entries)
        after = replace(state, entries=frozen, queue=tuple(each.event for each in queue.entries), flag=flag)
        return _with(after, number, now)

    def _write(self, state: CommitState, number: int, caller: CallerState) -> Iterator[tuple[str, CommitState]]:
        wrote = replace(state, written=state.written + caller.group)
        yield (
            "writes",
            self._stepped(
                _with(wrote, number, replace(caller, took=caller.group)), number, CommitCaller.wrote, caller.group
            ),
        )
        if state.write_failures:
            given_up = replace(
                state, before=state.before + state.written, written=(), failed=state.failed | {*caller.group},
                write_failures=state.write_failures - 1,
            )  # fmt: skip
            yield "cannot write", self._stepped(given_up, number, CommitCaller.wrote, (), FAILED)

    def _flush(self, state: CommitState, number: int, caller: CallerState) -> Iterator[tuple[str, CommitState]]:
        if caller.flushing is None:
            yield "begins a flush", _with(state, number, replace(caller, flushing=len(state.written)))
            return
        ended = replace(caller, flushing=None)
        flushed = replace(state, durable=state.durable | {*state.written[: caller.flushing]})
        yield "ends its flush", self._stepped(_with(flushed, number, ended), number, CommitCaller.flushed)
        if state.flush_failures:
            given_up = replace(
                state, before=state.before + state.written, written=(), failed=state.failed | {*caller.took},
                flush_failures=state.flush_failures - 1,
            )  # fmt: skip
            yield "its flush fails", self._stepped(_with(given_up, number, ended), number, CommitCaller.flushed, FAILED)


def _with(state: CommitState, number: int, caller: CallerState) -> CommitState:
    return replace(state, callers=(*state.callers[:number], caller, *state.callers[number + 1 :]))


def _thawed(entry: EntryState) -> CommitEntry[tuple[int, int]]:
    made = CommitEntry(entry.name, 1, lambda: None, caller_waits=entry.caller_waits)
    made.handed, made.marked = entry.handed, entry.marked
    made.error = FAILED if entry.marked and not entry.acked else None
    return made


def _frozen(entry: CommitEntry[tuple[int, int]]) -> EntryState:
    acked = entry.marked and entry.error is None
    return EntryState(entry.event, entry.caller_waits, entry.handed, entry.marked, acked)


def _caller(
    queue: CommitQueue[tuple[int, int]],
    entries: dict[tuple[int, int], CommitEntry[tuple[int, int]]],
    was: CallerState,
    number: int,
) -> CommitCaller[tuple[int, int]]:
    caller = CommitCaller(queue, entries[number, was.call], leaves=was.leaves)
    caller.next = was.step
    caller.group = [entries[name] for name in was.group]
    caller.group_bytes = len(was.group)
    caller._marked = was.marking
    error: RangelogError | None = FAILED if was.error else None
    caller._error, caller._places = error, was.group
    caller._after = was.after
    caller._head = None if was.head is None else entries[was.head]
    return caller
