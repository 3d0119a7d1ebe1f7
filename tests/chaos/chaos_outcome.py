"""What happened in a run."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Injected:
    """One fault that happened. Times: CLOCK_MONOTONIC, ns."""

    kind: str
    hit: str
    injected_ns: int
    healed_ns: int = 0
    """When it was undone."""
    healthy_ns: int = 0
    """When everything was well again."""
    last_problem: str = ""
    """What took longest to heal."""


@dataclass
class Run:
    """The faults of a run, and what went wrong."""

    seed: int
    injected: list[Injected] = field(default_factory=list)
    skipped: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    opened_again: int = 0
    """Journals and shards that opened once all brokers were killed and started, at the end."""
