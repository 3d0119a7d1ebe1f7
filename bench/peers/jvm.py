"""Java programs of a peer: their jars, their command line, and a client in Java that runs the workload's loops.

What holds: a program writes below the peer's directory only (no performance data in the temporary folder, native
libraries unpacked in the directory), and a driver ends with this process, however it ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servers import ROOT, Missing, die_with_parent

from rangelog_bench.system import OpenLoopSamples, Sampler, TailSamples

HERE = Path(__file__).resolve().parent / "java"
JAVA = ROOT / "build" / "bench-peers" / "java"
_LINE_BYTES_MAX = 1 << 28
_ANSWER_S = 60.0


def require(peer: str) -> None:
    """Raises Missing where `install_java.sh` did not install the peer."""
    if shutil.which("java") is None or not (JAVA / peer / ".installed").exists():
        raise Missing(f"the jars of {peer} or Java are not there: bench/peers/install_java.sh")


def java(peer: str, directory: Path, options: Sequence[str], main_class: str, *arguments: str) -> list[str]:
    """The command line of a program of the peer that keeps its files in `directory`."""
    at = JAVA / peer
    return [
        "java",
        *options,
        "-XX:-UsePerfData",
        "-Djava.net.preferIPv4Stack=true",
        f"-Djava.io.tmpdir={directory}",
        f"-XX:ErrorFile={directory}/hs_err_%p.log",
        f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
        "-cp",
        f"{at / 'lib'}/*{os.pathsep}{at / 'classes'}",
        main_class,
        *arguments,
    ]


class JavaDriver(Sampler):
    """A client in Java that takes commands line by line (java/driver/Driver.java) and gives samples back.

    Each method raises RuntimeError with what the driver reported, or when it ended or gave no answer in time.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    @classmethod
    async def start(cls, command: Sequence[str], errors: Path) -> JavaDriver:
        """Start it; what it writes to standard error goes to the file `errors`."""
        with errors.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=output,
                limit=_LINE_BYTES_MAX,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        return cls(process)

    async def stop(self) -> None:
        """Kill it."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    @property
    def ended(self) -> bool:
        """Whether the process is gone, so that no command will be answered any more."""
        return self._process.returncode is not None

    async def ask(self, *words: object, limit_s: float = _ANSWER_S) -> dict[str, Any]:
        """Send a command; return the answer to it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = " ".join(map(str, words))
        async with self._turn:
            if self.ended:
                raise RuntimeError(f"the client in Java has ended, asked for: {line}")
            self._process.stdin.write(f"{line}\n".encode())
            try:
                async with asyncio.timeout(limit_s):
                    answer = await self._process.stdout.readline()
            except BaseException as error:  # the next answer would be taken for that of another command
                self._process.kill()
                if isinstance(error, TimeoutError):
                    raise RuntimeError(f"no answer in {limit_s:g} s to: {line}") from None
                raise
        return read_answer(line, answer)

    async def one_in_flight(self, size: int, seconds: float) -> list[float]:
        """See Sampler."""
        answer = await self.ask("one", size, seconds, limit_s=seconds + _ANSWER_S)
        return in_seconds(answer["latencies_ns"])

    async def open_loop(self, size: int, rate_per_s: int, count: int, limit_s: float) -> OpenLoopSamples:
        """See Sampler."""
        longest_s = count / rate_per_s + limit_s + _ANSWER_S
        answer = await self.ask("open", size, rate_per_s, count, limit_s, limit_s=longest_s)
        return OpenLoopSamples(in_seconds(answer["latencies_ns"]), in_seconds(answer["late_ns"]))

    async def start_reader(self, size: int, limit_s: float) -> None:
        """See Sampler."""
        await self.ask("follow", size, limit_s, limit_s=limit_s + _ANSWER_S)

    async def tail(self, size: int, rate_per_s: int, count: int, limit_s: float) -> TailSamples:
        """See Sampler."""
        longest_s = count / rate_per_s + limit_s + _ANSWER_S
        answer = await self.ask("tail", size, rate_per_s, count, limit_s, limit_s=longest_s)
        return TailSamples(in_seconds(answer["latencies_ns"]), int(answer["early"]))

    async def stop_reader(self) -> None:
        """See Sampler."""
        await self.ask("unfollow")

    async def start_appending(self, size: int) -> None:
        """See Sampler."""
        await self.ask("append-start", size)

    async def last_ack_s(self) -> float:
        """See Sampler."""
        return float((await self.ask("append-last"))["at_ns"]) / 1e9

    async def stop_appending(self, limit_s: float) -> tuple[list[float], int]:
        """See Sampler."""
        answer = await self.ask("append-stop", limit_s, limit_s=limit_s + _ANSWER_S)
        return in_seconds(answer["acks_ns"]), int(answer["failed"])


def read_answer(line: str, answer: bytes) -> dict[str, Any]:
    """The answer to the command `line`. Raises RuntimeError when it is an error, or none at all."""
    if not answer.endswith(b"\n"):
        raise RuntimeError(f"the client in Java ended, asked for: {line}")
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RuntimeError(f"the client in Java answered {answer[:100]!r}, asked for: {line}")
    if "error" in found:
        raise RuntimeError(f"{line}: {found['error']}")
    return found


def in_seconds(times_ns: Sequence[int]) -> list[float]:
    """Nanoseconds as seconds."""
    return [each / 1e9 for each in times_ns]
