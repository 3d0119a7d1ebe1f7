"""The result of the healing demo: figures, the captured output of pdctl, and the last line."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class HealingOutcome:
    """See the module. Times in seconds."""

    appended: int = 0
    read: int = 0
    lost: int = 0
    duplicated: int = 0
    repaired_ranges: int = 0
    repaired_bytes: int = 0
    repair_s: float = 0.0
    """From the kill of a server until every range had all its copies again."""
    copy_s: float = 0.0
    """Of these, since the first range was noticed that lacks a copy."""
    longest_gap_s: float = 0.0
    """Without an ack in any stream while a zone was cut off."""
    drained: bool = False
    zone_survived: bool = False
    restored: bool = False
    problems: list[str] = field(default_factory=list)
    captured: list[tuple[str, str]] = field(default_factory=list)
    """Commands and what they printed."""

    @property
    def ok(self) -> bool:
        """Whether all of it held."""
        whole = self.lost == self.duplicated == 0 and self.read == self.appended > 0
        return (
            whole
            and self.repaired_ranges > 0
            and self.drained
            and self.zone_survived
            and self.restored
            and not self.problems
        )

    @property
    def mb_per_s(self) -> float:
        """The rate at which the copies were made."""
        return self.repaired_bytes / 1e6 / self.copy_s if self.copy_s else 0.0

    @property
    def last_line(self) -> str:
        """The last line of the output, for scripts."""
        return (
            f"healing: {'OK' if self.ok else 'FAILED'} lost={self.lost} duplicated={self.duplicated} "
            f"repaired_ranges={self.repaired_ranges} repair_s={self.repair_s:.1f} drained={_word(self.drained)} "
            f"zone_survived={_word(self.zone_survived)} restored={_word(self.restored)}"
        )

    def text(self) -> str:
        """The report: each command with its output, then the figures."""
        parts = [f"$ {command}\n{output.rstrip()}\n" for command, output in self.captured]
        figures = (
            f"{self.appended:,} records appended, {self.read:,} read back after the restore\n"
            f"{self.repaired_ranges} ranges repaired; all copies of the killed server's were there again after "
            f"{self.repair_s:.1f} s, {self.mb_per_s:.1f} MB/s\n"
            f"longest time without an ack while a zone was cut off: {self.longest_gap_s:.2f} s\n"
        )
        return "\n".join([*parts, figures, *self.problems, self.last_line]) + "\n"


def _word(holds: bool) -> str:
    return "yes" if holds else "NO"
