"""The commands of the failover seal's scenarios, and its effects as lines."""

from __future__ import annotations

from rangelog.protocol.recovery import Answer, Copy, Effect, Fence, Recovery
from tests.scenarios.appender_driver import replica


class RecoveryDriver:
    """One failover seal of one range, at a time that `at` sets."""

    def __init__(self) -> None:
        self.core: Recovery
        self.now_ms = 0.0
        self.copies: list[Copy] = []

    def do_range(self, replicas: str, *, acks: str = "2", start: str = "0") -> list[str]:
        """`range a,b,c`: seal this one."""
        self.core = Recovery(tuple(replica(each) for each in replicas.split(",")), int(acks), int(start))
        return self._effects()

    def do_at(self, now_ms: str) -> list[str]:
        """`at 500`: it is 500 ms after the start; a tick."""
        self.now_ms = float(now_ms)
        self.core.tick(self.now_ms)
        return self._effects()

    def do_answer(self, who: str, durable_offset: str, how: str = "truthful") -> list[str]:
        """`answer a 7`, `answer b 5 doubtful`, `answer c 0 unknown`: a replica's fence is durable, and what it holds."""
        self.core.answered(self.now_ms, replica(who), Answer(how), int(durable_offset))
        return self._effects()

    def do_lost(self, who: str, how: str = "down") -> list[str]:
        """`lost c`: it cannot be reached. `lost c gone`: its server has another incarnation now."""
        self.core.lost(self.now_ms, replica(who), how, gone=how == "gone")
        return self._effects()

    def do_retry(self) -> list[str]:
        """Ask those again that were lost or in doubt."""
        self.core.retry_lost()
        return self._effects()

    def do_copied(self, source: str, target: str) -> list[str]:
        """`copied a b`: what was copied from a is durable on b."""
        (copy,) = (each for each in self.copies if (each.source.server, each.target.server) == (source, target))
        self.core.copied(self.now_ms, copy)
        return self._effects()

    def do_committed(self, end_offset: str) -> list[str]:
        """`committed 7`: the placement driver answers with the end in force."""
        self.core.committed(int(end_offset))
        return self._effects()

    def do_state(self) -> list[str]:
        """Where the seal stands."""
        core = self.core
        end = "" if core.end_offset is None else f" end={core.end_offset}"
        blocked = f": {core.blocked_because()}" if core.phase.value == "fencing" else ""
        return [f"{core.phase.value}{end}{blocked}"]

    # ---- inside

    def _effects(self) -> list[str]:
        return [self._line(effect) for effect in self.core.effects()]

    def _line(self, effect: Effect) -> str:
        if isinstance(effect, Fence):
            return f"fence {effect.replica.server}"
        if isinstance(effect, Copy):
            self.copies.append(effect)
            span = f"[{effect.start_offset},{effect.end_offset})"
            return f"copy {span} from {effect.source.server} to {effect.target.server}"
        return f"commit {effect.end_offset}"
