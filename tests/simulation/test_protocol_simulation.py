"""Seeds of the simulated cluster: crashes, pauses, losses, racing writers; nothing acked may be lost."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from simulated_cluster import Simulation
from simulated_writer import SimulatedWriter

pytestmark = pytest.mark.timeout(300)
FAULT_MS = 4_000.0


def simulate(seed: int) -> Simulation:
    """Run one seed: faults for four virtual seconds, then calm, then a last writer."""
    sim = Simulation(seed)
    chance = sim.random
    for number in range(chance.randrange(1, 4)):
        writer = SimulatedWriter(sim, f"w{number}", chance.randrange(30, 300))
        sim.after(chance.uniform(0, FAULT_MS * 0.8) if number else 0.0, writer.open)
    down: list[str] = []

    def fault() -> None:
        if sim.now > FAULT_MS:
            return
        server = chance.choice(list(sim.servers.values()))
        kind = chance.choice(["crash", "pause", "break", "none"])
        if kind == "crash" and server.up and len(down) < 2:
            down.append(server.name)
            sim.crash(server)

            def back() -> None:
                sim.restart(server)
                down.remove(server.name)

            sim.after(chance.uniform(10, 3_000), back)
        elif kind == "pause" and server.up:
            server.paused_until = sim.now + chance.uniform(10, 3_000)
            sim.counters["pause"] += 1
        elif kind == "break":
            for writer in sim.writers:
                writer.connection_broke(server)
        sim.after(chance.expovariate(1 / 300), fault)

    sim.after(chance.uniform(0, 500), fault)
    sim.run(FAULT_MS + 4_000)
    sim.calm = True
    last = SimulatedWriter(sim, "last", 20)
    last.open()
    sim.run(sim.now + 60_000)
    if last.core is None or last.left or last.payloads:
        blocked = last.recovery.blocked_because() if last.recovery is not None else "no recovery under way"
        sim.fail(f"the last writer does not get on: {blocked}; {last.left} left, {len(last.payloads)} not acked")
    sim.check_all_there()
    return sim


def test_nothing_acked_is_lost_over_many_seeds() -> None:
    """Every seed keeps every acked record, and the corner cases that matter are reached."""
    one = os.environ.get("SEED")
    seeds = [int(one)] if one else range(int(os.environ.get("SEEDS", "150")))
    reached: Counter[str] = Counter()
    for seed in seeds:
        sim = simulate(seed)
        reached.update(sim.counters)
        reached["acked"] += len(sim.acked)
    print(dict(reached))
    if not one:
        for corner in ("crash", "restart", "pause", "active seal", "failover seal", "copy before commit",
                       "duplicate append", "seal answer lost", "stopped: WriterFenced"):  # fmt: skip
            assert reached[corner] > 0, f"no seed reached: {corner}"


def test_a_seed_runs_the_same_twice() -> None:
    """The simulation is deterministic: the same seed gives the same acks and counters."""
    first, second = simulate(7), simulate(7)
    assert first.acked == second.acked
    assert first.counters == second.counters
