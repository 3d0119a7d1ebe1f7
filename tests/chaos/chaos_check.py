"""Judges a run: what writers were told, what readers saw meanwhile, and what was read at the end must fit together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos_history import Identity, unpacked
from chaos_load import Load
from chaos_reading import ReadBack

EXAMPLES_MAX = 10


@dataclass
class Verdict:
    """Counts; everything but acked, read, unknown, unknown_found, polled and takeovers must be 0."""

    acked: int = 0
    read: int = 0
    polled: int = 0
    unknown: int = 0
    unknown_found: int = 0
    """UNKNOWN at the writer, found in the log."""
    takeovers: int = 0
    lost: int = 0
    duplicated: int = 0
    misordered: int = 0
    double_owner: int = 0
    """Two writers were told that they own one offset."""
    failed_found: int = 0
    never_written: int = 0
    dirty_reads: int = 0
    """A reader saw something else than what stayed."""
    hot_not_cold: int = 0
    unexpected_stops: int = 0
    late_appends: int = 0
    """Longer than a client waits without complaint."""
    reader_errors: int = 0
    examples: list[str] = field(default_factory=list)

    def wrong(self, counter: str, text: str) -> None:
        """Count something that must not be."""
        setattr(self, counter, getattr(self, counter) + 1)
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{counter}: {text}")

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong. A reader may give up while no copy can be reached; that is not."""
        wrong = (self.lost, self.duplicated, self.misordered, self.double_owner, self.failed_found, self.never_written)
        return not any((*wrong, self.dirty_reads, self.hot_not_cold, self.unexpected_stops, self.late_appends))

    def figures(self) -> dict[str, int]:
        """All counts."""
        return {name: value for name, value in vars(self).items() if isinstance(value, int)}


@dataclass
class Writes:
    """What the writers of one stream did."""

    acked: dict[int, Identity] = field(default_factory=dict)
    """Identity by offset."""
    acks_ns: list[int] = field(default_factory=list)
    invoked: set[Identity] = field(default_factory=set)
    failed: set[Identity] = field(default_factory=set)


def lines_of(path: Path) -> Iterator[list[Any]]:
    """The lines of a client's file; the last may be cut off by `kill -9`."""
    with path.open() as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def read_writes(load: Load, stream: str, verdict: Verdict) -> Writes:
    """Merge the histories of a stream's writers."""
    writes = Writes()
    for client in load.writers:
        if client.stream != stream:
            continue
        for what, *rest in lines_of(client.history):
            if what in ("invoke", "fail"):
                epoch, first, count = rest[:3]
                target = writes.invoked if what == "invoke" else writes.failed
                target.update((client.name, epoch, sequence) for sequence in range(first, first + count))
            elif what == "ok":
                epoch, first, offset, count, now_ns = rest
                writes.acks_ns.append(now_ns)
                for index in range(count):
                    identity = (client.name, epoch, first + index)
                    before = writes.acked.setdefault(offset + index, identity)
                    if before != identity:
                        verdict.wrong("double_owner", f"{stream} {offset + index}: {before} and {identity}")
    writes.acks_ns.sort()
    return writes


def judge(load: Load, back: dict[str, ReadBack], verdict: Verdict) -> dict[str, list[int]]:
    """Fill the verdict; returns the times of acks by stream."""
    acks: dict[str, list[int]] = {}
    for stream, read in back.items():
        writes = read_writes(load, stream, verdict)
        _judge_stream(stream, writes, read, verdict)
        for client in load.readers:
            if client.stream == stream:
                _judge_reader(client.history, read.cold_first, verdict)
        acks[stream] = writes.acks_ns
    for client in (*load.writers, *load.readers):
        pulse = client.pulse
        if client in load.readers:
            verdict.reader_errors += pulse.errors
        else:
            verdict.unexpected_stops += pulse.errors
            verdict.late_appends += pulse.waits
    verdict.takeovers = load.takeovers
    return acks


def _judge_stream(stream: str, writes: Writes, back: ReadBack, verdict: Verdict) -> None:
    final = back.cold_first
    verdict.acked += len(writes.acked)
    verdict.read += len(final)
    for offset, identity in writes.acked.items():
        if offset >= len(final) or final[offset] != identity:
            there = final[offset] if offset < len(final) else "nothing"
            verdict.wrong("lost", f"{stream} {offset}: {identity}, there is {there}")
    for offset, (hot, cold) in enumerate(zip(back.hot_first, final, strict=False)):
        if hot != cold:
            verdict.wrong("hot_not_cold", f"{stream} {offset}: {hot} and {cold}")
    seen: set[Identity] = set()
    last: dict[tuple[str, int], int] = {}
    for offset, identity in enumerate(final):
        if identity in seen:
            verdict.wrong("duplicated", f"{stream} {offset}: {identity}")
        seen.add(identity)
        if identity not in writes.invoked:
            verdict.wrong("never_written", f"{stream} {offset}: {identity}")
        if identity in writes.failed:
            verdict.wrong("failed_found", f"{stream} {offset}: {identity}")
        writer, epoch, sequence = identity
        if sequence <= last.get((writer, epoch), -1):
            verdict.wrong("misordered", f"{stream} {offset}: {identity}")
        last[writer, epoch] = sequence
    unknown = writes.invoked - writes.failed - set(writes.acked.values())
    verdict.unknown += len(unknown)
    verdict.unknown_found += len(unknown & seen)


def _judge_reader(path: Path, final: list[Identity], verdict: Verdict) -> None:
    for what, *rest in lines_of(path):
        if what != "poll":
            continue
        kind, start, runs, _ = rest
        for offset, identity in enumerate(unpacked(runs), start):
            verdict.polled += 1
            if offset >= len(final) or final[offset] != identity:
                there = final[offset] if offset < len(final) else "nothing"
                verdict.wrong("dirty_reads", f"{path.stem} {offset} ({kind}): {identity}, there is {there}")
