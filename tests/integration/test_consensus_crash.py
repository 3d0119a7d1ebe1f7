"""Three real members, real kills: what was acknowledged is there afterwards, on all of them, in one order."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rangelog_cli.local.ports import free_ports
from tests.support.waiting import until, until_arrived

WORKER = Path(__file__).parent / "helpers" / "consensus_worker.py"
ROUNDS = int(os.environ.get("RANGELOG_ROUNDS", "4"))
pytestmark = [pytest.mark.integration, pytest.mark.alone, pytest.mark.timeout(120 + 10 * ROUNDS)]
SECRET = "a secret for tests"


class Member:
    """A process and the connection to it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.name: str = options["name"]
        self.options = options
        self._process: subprocess.Popen[str] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count()
        self._reading: asyncio.Task[None] | None = None

    def spawn(self) -> None:
        """Start the process."""
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(self.options)], stdout=subprocess.PIPE, text=True
        )

    async def connect(self) -> None:
        """Wait until it serves."""
        assert self._process is not None and self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        assert line, f"{self.name} did not start"
        reader, self._writer = await asyncio.open_connection("127.0.0.1", int(line), limit=1 << 24)
        self._reading = asyncio.create_task(self._read(reader))

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        assert self._process is not None
        self._process.send_signal(number)

    def died(self) -> bool:
        """Whether the process has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def reap(self) -> None:
        """Wait for the killed process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            if self._process.stdout is not None:
                self._process.stdout.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def ask(self, verb: str, argument: Any = None, *, timeout_s: float = 5.0) -> Any:
        """One request. A lost connection or no answer is an unknown outcome."""
        unknown = {"error": "LOST", "unknown": True}
        if self._writer is None or self._writer.is_closing():
            return {"error": "LOST", "unknown": False}
        request_id = next(self._ids)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = future
        self._writer.write(json.dumps([request_id, verb, argument]).encode() + b"\n")
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except (TimeoutError, ConnectionError):
            return unknown
        finally:
            self._answers.pop(request_id, None)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                request_id, result = json.loads(line)
                future = self._answers.get(request_id)
                if future is not None and not future.done():
                    future.set_result(result)
        for future in self._answers.values():
            if not future.done():
                future.set_exception(ConnectionError("lost"))


def failed(answer: Any) -> bool:
    """Whether a request was answered by an error."""
    return isinstance(answer, dict)


class Cluster:
    """Three members and what is known of the numbers proposed to them."""

    def __init__(self, directory: Path, *, snapshot_entries: int = 300, size: int = 3) -> None:
        names = [f"pd-{number}" for number in range(1, size + 1)]
        self.addresses = dict(zip(names, (f"127.0.0.1:{port}" for port in free_ports(size)), strict=True))
        self.members = [
            Member(
                {
                    "name": name,
                    "members": self.addresses,
                    "data_dir": str(directory / name),
                    "secret": SECRET,
                    "snapshot_entries": snapshot_entries,
                }
            )
            for name in names
        ]
        self.numbers = itertools.count(1)
        self.acked: set[int] = set()
        self.refused: set[int] = set()
        self.last_ack_s = 0.0

    async def start(self) -> None:
        """Start all that do not run."""
        for member in self.members:
            member.spawn()
        await asyncio.gather(*(member.connect() for member in self.members))

    async def current_leader(self, *, but: Member | None = None) -> Member | None:
        """The member that says it leads, if one does."""
        for member in self.members:
            if member is but:
                continue
            status = await member.ask("status", timeout_s=1.0)
            if not failed(status) and status[0] == member.name:
                return member
        return None

    async def leader(self, *, but: Member | None = None) -> Member:
        """The same, waited for."""
        found: Member = await until(lambda: self.current_leader(but=but), "a leader")
        return found

    async def propose_once(self, member: Member, *, size_bytes: int = 100) -> bool:
        """Propose the next number and note what came of it. True if acknowledged."""
        number = next(self.numbers)
        answer = await member.ask("propose", [number, size_bytes])
        if not failed(answer):
            self.acked.add(number)
            self.last_ack_s = time.monotonic()
            return True
        if not answer["unknown"]:
            self.refused.add(number)
        return False

    async def acknowledged(self, count: int, *, but: Member | None = None) -> None:
        """Until so many more numbers are acknowledged, by whoever leads: a leader that stands still is replaced."""
        goal = len(self.acked) + count
        async with asyncio.timeout(60):
            while len(self.acked) < goal:
                await self.propose_once(await self.leader(but=but))

    async def load(self, stop: asyncio.Event, *, clients: int) -> None:
        """Keep `clients` proposals under way until told to stop."""

        async def client() -> None:
            member: Member | None = None
            while not stop.is_set():
                member = member or await self.current_leader()
                if member is None or not await self.propose_once(member, size_bytes=random.choice([8, 100, 3000])):
                    member = None
                    await asyncio.sleep(0.02)

        await asyncio.gather(*(client() for _ in range(clients)))

    async def lost_majority(self) -> bool:
        """Whether more than half have died."""
        return sum(member.died() for member in self.members) > len(self.members) // 2

    def kill_all(self) -> None:
        """At once."""
        for member in self.members:
            member.signal(signal.SIGKILL)
        for member in self.members:
            member.reap()

    async def check(self) -> list[int]:
        """All members hold the same numbers: every acknowledged one, none that was refused, none twice."""
        await self.acknowledged(1)

        async def dumped() -> list[Any]:
            return [await member.ask("dump", timeout_s=10.0) for member in self.members]

        def equal(dumps: list[Any], kinds: int) -> bool:
            return not any(failed(dump) for dump in dumps) and len({dump[0] for dump in dumps}) == kinds

        dumps = await until_arrived(dumped, 1, "equal replicas", by=equal)
        numbers: list[int] = dumps[0][1]
        held = set(numbers)
        assert len(held) == len(numbers), "a number was applied twice"
        assert not self.acked - held, f"{len(self.acked - held)} acknowledged numbers are lost"
        assert not self.refused & held, f"{len(self.refused & held)} refused numbers were applied"
        return numbers


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three running members."""
    made = Cluster(tmp_path)
    await made.start()
    yield made
    for member in made.members:
        member.reap()


async def test_kill_all_three_around_a_compaction(cluster: Cluster) -> None:
    """kill -9 of the whole group under load, again and again: nothing acknowledged is lost, the replicas are equal.

    In two rounds of three each member dies by itself in the middle of its compaction: snapshot renamed and journal not
    yet trimmed, or journal just replaced. In the third all are killed at once, at some moment.
    """
    for trap in itertools.islice(itertools.cycle(["snapshot", None, "journal"]), ROUNDS):
        await cluster.leader()
        acked_before = len(cluster.acked)
        stop = asyncio.Event()
        load = asyncio.create_task(cluster.load(stop, clients=32))

        async def compacted(least: int = acked_before + 600) -> bool:
            return len(cluster.acked) > least

        if trap is None:
            await until(compacted, "600 acks: two compactions", 20.0)
            await asyncio.sleep(random.uniform(0.0, 0.3))  # the moment of the kill is what varies
        else:
            await asyncio.gather(*(member.ask("die after renaming", trap) for member in cluster.members))
            await until(cluster.lost_majority, "a majority to die", 20.0)
            await asyncio.sleep(0.1)
        stop.set()
        cluster.kill_all()
        await load
        await cluster.start()
        await cluster.check()
    assert (Path(cluster.members[0].options["data_dir"]) / "raft" / "snapshot").exists()
    print(f"rounds={ROUNDS} acked={len(cluster.acked)} refused={len(cluster.refused)} lost=0")


async def test_a_killed_leader_is_replaced(cluster: Cluster) -> None:
    """After kill -9 of the leader another acknowledges within two seconds; the killed one catches up."""
    gaps_ms = []
    for _ in range(min(ROUNDS, 20)):
        leader = await cluster.leader()
        stop = asyncio.Event()
        load = asyncio.create_task(cluster.load(stop, clients=8))
        acked = len(cluster.acked)

        async def loaded(least: int = acked + 400) -> bool:
            return len(cluster.acked) > least

        await until(loaded, "load")
        killed_s = time.monotonic()
        leader.signal(signal.SIGKILL)
        leader.reap()

        async def acked_again(since_s: float = killed_s) -> bool:
            return cluster.last_ack_s > since_s + 0.05

        await until(acked_again, "an ack of the next leader")
        gaps_ms.append(round((cluster.last_ack_s - killed_s) * 1000))
        leader.spawn()
        await leader.connect()
        stop.set()
        await load
        await cluster.check()
    print(f"gaps_ms={gaps_ms}")
    assert max(gaps_ms) < 2000


async def test_a_leader_that_was_stopped_never_answers_from_the_past(cluster: Cluster) -> None:
    """SIGSTOP the leader, let another commit, SIGCONT: no barrier of the old one succeeds without the new commits."""
    await cluster.acknowledged(1)
    old = await cluster.leader()
    old.signal(signal.SIGSTOP)
    barriers = [asyncio.create_task(old.ask("barrier", 3.0)) for _ in range(20)]
    await cluster.acknowledged(50, but=old)
    least = len(cluster.acked)
    old.signal(signal.SIGCONT)
    answers = await asyncio.gather(*barriers, *(old.ask("barrier", 3.0) for _ in range(50)))
    assert all(failed(answer) or answer >= least for answer in answers)
    assert any(failed(answer) for answer in answers)
    await cluster.check()


async def test_without_a_majority_nothing_is_acknowledged(cluster: Cluster) -> None:
    """With both followers stopped the leader gives up within seconds; what it took is unknown, later it is refused."""
    leader = await cluster.leader()
    others = [member for member in cluster.members if member is not leader]
    for member in others:
        member.signal(signal.SIGSTOP)
    answers = await asyncio.gather(*(leader.ask("propose", [number, 8]) for number in range(10**9, 10**9 + 5)))
    assert all(failed(answer) for answer in answers)

    async def gave_up() -> bool:
        return (await leader.ask("status"))[0] is None

    await until(gave_up, "the leader to step down", 5.0)
    assert failed(await leader.ask("barrier", 1.0)) and not await cluster.propose_once(leader)
    for member in others:
        member.signal(signal.SIGCONT)
    await cluster.check()


async def test_an_emptied_member_is_refilled(cluster: Cluster) -> None:
    """A member whose directory is gone gets the snapshot and the rest, and only then counts again."""
    await cluster.acknowledged(700)
    leader = await cluster.leader()
    victim = next(member for member in cluster.members if member is not leader)
    victim.signal(signal.SIGKILL)
    victim.reap()
    await asyncio.to_thread(subprocess.run, ["rm", "-rf", victim.options["data_dir"]], check=True)
    victim.spawn()
    await victim.connect()
    await cluster.check()
