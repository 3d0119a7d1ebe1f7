"""Several faults together: two at once, crash after crash, a random storm, writers that race for a stream."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import ClassVar

from tests.chaos import chaos_history
from tests.chaos.chaos_cluster import MEMBERS, PDS, RANGE_SERVERS
from tests.chaos.chaos_faults import FENCED_WITHIN_S, REGISTRY, Fault, Replaced, Restarted
from tests.chaos.chaos_load import Client
from tests.support.waiting import eventually

STEP_S = (0.2, 0.8)
STARTS_WITHIN_S = 60.0


class TwoAtOnce(Fault):
    """Two faults that overlap: at most one placement driver and one disk; two range servers may be away."""

    name = "two-at-once"
    side = "all"
    hold_s = (2.0, 5.0)
    often = 2
    _parts: tuple[Fault, ...] = ()

    def inject(self) -> str:
        """See Fault."""
        fit = [kind for kind in REGISTRY.values() if kind.side != "all" and self.system.allows(kind.needs)]
        first = self.dice.choice(fit)
        second = self.dice.choice([kind for kind in fit if _may_meet(first, kind)])
        said: list[str] = []
        for kind in sorted((first, second), key=lambda kind: ("writer", "broker", "server", "pd").index(kind.side)):
            part = kind(self.system, self.dice)
            part.avoid = tuple(name for other in self._parts for name in other.picked)
            self._parts = (*self._parts, part)
            said.append(f"{kind.name} ({part.inject()})")
        return " + ".join(said)

    def heal(self) -> None:
        """The servers first: a writer waits for them."""
        parts, self._parts = self._parts, ()
        errors: list[BaseException] = []
        for part in reversed(parts):
            try:
                part.heal()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


def _may_meet(first: type[Fault], second: type[Fault]) -> bool:
    if first.side == second.side:
        return first.side == "server" and not (first.loses_data and second.loses_data) and first is not second
    return True


class CrashLoop(Restarted):
    """A range server is killed, started, and killed again while it recovers, several times."""

    name = "crash-loop"
    ROUNDS = 4

    def inject(self) -> str:
        """See Fault."""
        victim = self.a_range_server()
        for _ in range(self.ROUNDS):
            self.kill(victim)
            self.system.cluster.start_member(victim, wait=False)
            self.interrupts.wait(self.dice.uniform(*STEP_S))
        self.kill(victim)
        return f"{victim}, {self.ROUNDS + 1} times"


class PdMajorityKilled(Restarted):
    """`kill -9` of two of three placement drivers: appends go on, seals wait."""

    name = "pd-majority-killed"
    side = "pd"

    def inject(self) -> str:
        """See Fault."""
        leader = self.system.leader()
        victims = (leader, self.dice.choice([name for name in PDS if name != leader]))
        self.kill(*victims)
        return " and ".join(victims)


class RollingRestart(Fault):
    """Every server in turn is told to end, and started again as soon as it has."""

    name = "rolling-restart"
    side = "all"
    hold_s = (0.0, 0.1)

    def inject(self) -> str:
        """See Fault."""
        names = list(MEMBERS)
        self.dice.shuffle(names)
        for name in names:
            self.system.cluster.restart(name, timeout_s=STARTS_WITHIN_S)
        return " ".join(names)

    def heal(self) -> None:
        """Nothing is to be undone."""


class Storm(Restarted):
    """For some seconds members are killed, paused and brought back at random: at most one of three, two of four."""

    name = "storm"
    side = "all"
    hold_s = (0.0, 0.1)
    LASTS_S = 8.0
    AWAY_MAX: ClassVar = {PDS: 1, RANGE_SERVERS: 2}

    def inject(self) -> str:
        """See Fault."""
        self._down, self._paused = (), ()
        deadline, count = time.monotonic() + self.LASTS_S, 0
        while time.monotonic() < deadline:
            group = self.dice.choice((PDS, RANGE_SERVERS, RANGE_SERVERS))
            away = [name for name in group if name in (*self._down, *self._paused)]
            if len(away) < self.AWAY_MAX[group]:
                self._send_away(self.dice.choice([name for name in group if name not in away]))
                count += 1
            else:
                self._bring_back(self.dice.choice(away))
            self.interrupts.wait(self.dice.uniform(*STEP_S))
        return f"{count} kills and pauses"

    def heal(self) -> None:
        """Everybody comes back."""
        for name in (*self._down, *self._paused):
            self._bring_back(name)

    _paused: tuple[str, ...] = ()

    def _send_away(self, name: str) -> None:
        if self.dice.random() < 0.3:
            self.system.cluster.pause(name)
            self._paused = (*self._paused, name)
        else:
            self.system.cluster.kill(name)
            self._down = (*self._down, name)

    def _bring_back(self, name: str) -> None:
        if name in self._paused:
            self.system.cluster.resume(name)
            self._paused = tuple(each for each in self._paused if each != name)
        else:
            self.system.cluster.start_member(name, wait=False)
            self._down = tuple(each for each in self._down if each != name)


class WritersRace(Replaced):
    """Two processes open a stream at the same moment while its writer works: one stays, the others are fenced."""

    name = "writers-race"
    hold_s = (0.5, 1.5)
    BURST_SHARE = 0.0
    _racers: tuple[Client, ...] = ()

    def inject(self) -> str:
        """See Fault."""
        stream = self.a_stream()
        load = self.system.load
        racers = (load.standby(stream), load.standby(stream))
        self._racers = (load.current[stream], *racers)
        for racer in racers:
            load.take_over(racer)
        return f"{racers[0].name} and {racers[1].name} against {self._racers[0].name}"

    def heal(self) -> None:
        """All but one must notice."""
        racers, self._racers = self._racers, ()
        if not racers:
            return
        load = self.system.load
        eventually(
            lambda: sum(racer.process.running for racer in racers) <= 1, "more than one goes on", FENCED_WITHIN_S
        )
        left = [racer for racer in racers if racer.process.running]
        states = {racer.name: chaos_history.STATES[racer.pulse.state] for racer in racers}
        assert len(left) == 1, f"nobody won the race: {states}"
        load.current[left[0].stream] = left[0]
        for racer in racers:
            if racer is not left[0]:
                assert racer.pulse.state == chaos_history.FENCED, f"not fenced: {states}"
                load.retire(racer)


class ObjectStoreGone(Fault):
    """The object store answers nothing but errors; local copies stay until it is back."""

    name = "object-store-gone"
    side = "all"
    hold_s = (4.0, 8.0)
    _aside: Path | None = None

    def inject(self) -> str:
        """See Fault. The store is a directory: a file takes its place."""
        store = self.system.cluster.directory / "tier"
        store.mkdir(exist_ok=True)
        self._aside = store.with_suffix(".aside")
        os.rename(store, self._aside)
        store.write_bytes(b"")
        return "an error for every request"

    def heal(self) -> None:
        """See Fault."""
        if self._aside is not None:
            aside, self._aside = self._aside, None
            store = self.system.cluster.directory / "tier"
            store.unlink()
            os.rename(aside, store)


class Terminated(Restarted):
    """SIGTERM of a range server, which stays away for a while."""

    name = "range-server-stopped"

    def inject(self) -> str:
        """See Fault."""
        victim = self.a_range_server()
        self._down = (victim,)
        process = self.system.cluster.members[victim]
        process.signal(signal.SIGTERM)
        eventually(lambda: not process.running, f"{victim} does not end when told to", FENCED_WITHIN_S)
        return victim
