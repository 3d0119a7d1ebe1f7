"""Client processes of a measurement: one process of Python would be the limit before a broker is.

What holds: a client process ends with this process, however it ends; every answer has a deadline. Both sides exchange lines of
JSON: the first order holds what to do, each further one goes on with it. Times are of one clock, `time.perf_counter`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rangelog_cli.local.lifeline import LIFELINE_ENV, lifeline_fd

ANSWER_S = 120.0
_LINE_BYTES_MAX = 1 << 26


class ClientProcess:
    """One child that runs a role of `roles`."""

    def __init__(self, process: Process, errors: Path) -> None:
        self._process = process
        self._errors = errors

    @classmethod
    async def start(cls, role: str, settings: Mapping[str, object], errors: Path) -> Self:
        """Start it; what it writes to standard error goes to the file `errors`."""
        lifeline = lifeline_fd()
        errors.parent.mkdir(parents=True, exist_ok=True)
        with errors.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rangelog_bench.topics.role_process", role,
                stdin=PIPE, stdout=PIPE, stderr=output, limit=_LINE_BYTES_MAX, start_new_session=True,
                pass_fds=(lifeline,), env=os.environ | {LIFELINE_ENV: str(lifeline)},
            )  # fmt: skip
        started = cls(process, errors)
        started.order(settings)
        return started

    def order(self, order: Mapping[str, object]) -> None:
        """Send an order; `answer` returns what becomes of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(dict(order)).encode() + b"\n")

    async def answer(self, limit_s: float = ANSWER_S) -> dict[str, Any]:
        """Return the next line that the child writes. Raises RuntimeError when it has ended, or says nothing in time."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(limit_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise RuntimeError(f"a client process gave no answer in {limit_s:g} s") from None
        if not line.endswith(b"\n"):
            raise RuntimeError(f"a client process has ended: {self._last_words()}")
        found: dict[str, Any] = json.loads(line)
        return found

    async def kill(self) -> None:
        """`kill -9` it. Idempotent."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    def _last_words(self) -> str:
        lines = self._errors.read_text(errors="replace").split("\n") if self._errors.exists() else []
        return next((line for line in reversed(lines) if line.strip()), "it left no message")


class ClientProcesses:
    """Some of them, as a context manager: at its end all are killed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.running: list[ClientProcess] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(each.kill() for each in self.running))

    async def start(self, role: str, settings: Sequence[Mapping[str, object]]) -> None:
        """Start one for each of `settings`, and return once all are ready."""
        for each in settings:
            errors = self._directory / f"client-{len(self.running) + 1}.log"
            self.running.append(await ClientProcess.start(role, each, errors))
        await self.answers()

    async def answers(self) -> list[dict[str, Any]]:
        """Return the next line of each."""
        return list(await asyncio.gather(*(each.answer() for each in self.running)))

    async def ask(self, order: Mapping[str, object]) -> list[dict[str, Any]]:
        """Send all of them an order; return their answers."""
        for each in self.running:
            each.order(order)
        return await self.answers()
