"""The examples of a page of the documentation, run in their order on one cluster, as a reader runs them.

What holds: each Python block runs in the names that the blocks before it left, with `await` as in `python -m asyncio`; all
examples run in one empty directory. A text block behind an example is what it prints, to the letter, but
for `…`, which stands for anything within a line. Of a console block the lines that call pdctl run; all of it as one script,
where the line above the block is `<!-- tested -->`.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdctl.doctor.findings import DISK_FREE_SHARE_MIN, PROBLEM
from tests.support.forked import pdctl_on_path

ADDRESS = "127.0.0.1:7100"
"""The placement driver in the examples: that of `rangelog local`."""
COMMAND_TIMEOUT_S = 60
ASKED_UNTIL_HEALTHY = ("pdctl cluster status", "pdctl doctor cluster", "pdctl server check-impact")
"""Their exit code tells of health, which comes back a moment after a drain, a change of the leader or a server's pause."""
TESTED = "<!-- tested -->\n"
"""Stands above a console block that runs as it is."""
_NOT_RUN = re.compile(r"<!-- not run: .+ -->\n$")
"""Stands above a block that cannot run here, with the reason."""
_BLOCK = re.compile(r"^```(python|console|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass
class Example:
    """One block, the line of the page at which it begins, and what it is to print; None: the page does not show it."""

    language: str
    code: str
    line: int
    prints: str | None = None
    whole: bool = False


def prints_as_shown(printed: str, shown: str) -> bool:
    """Whether a program printed what its page shows.

    >>> prints_as_shown("0  12:04:55Z  UA\\n", "0  …  UA\\n"), prints_as_shown("0\\n1\\n", "…\\n")
    (True, False)
    """
    return re.fullmatch("[^\n]*".join(map(re.escape, shown.split("…"))), printed) is not None


def page_examples(text: str) -> list[Example]:
    """The examples of a page, in order. Of a console block those lines are examples that call pdctl.

    >>> [each.language for each in page_examples("```console\\nrangelog local\\n```\\n```python\\npass\\n```\\n")]
    ['python']
    """
    found: list[Example] = []
    behind = 0
    for block in _BLOCK.finditer(text):
        language, code = block.groups()
        if language == "text":
            assert found and not text[behind : block.start()].strip(), f"a text block that follows no example: {code}"
            found[-1].prints = code
        elif _NOT_RUN.search(text[: block.start()]):
            pass
        elif (whole := text[: block.start()].endswith(TESTED)) or language == "python" or "pdctl" in code:
            kept = (
                code
                if language == "python" or whole
                else "".join(each for each in code.splitlines(True) if "pdctl" in each)
            )
            found.append(Example(language, kept, text[: block.start(1)].count("\n") + 2, whole=whole))
        behind = block.end()
    return found


class PageRunner:
    """Runs the examples of one page on a cluster, in an empty directory."""

    def __init__(
        self, page: Path, connect_string: str, directory: Path, replaced: Mapping[str, str] | None = None
    ) -> None:
        """Prepare. `replaced`: what stands in the page for something of the reader's own, and what is there instead."""
        self._page = page
        self._replaced = {ADDRESS: connect_string} | dict(replaced or {})
        self._directory = directory
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("RANGELOG_")}
        self._environment |= {
            "RANGELOG_PD": connect_string,
            "XDG_CONFIG_HOME": str(directory),
            "COLUMNS": "200",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    async def run(self) -> int:
        """Run all; return how many examples the page has. A client that the page leaves open is closed."""
        examples = page_examples(self._page.read_text())
        with pdctl_on_path() as folder:
            self._environment["PATH"] = f"{folder}:{self._environment['PATH']}"
            try:
                for example in examples:
                    await self._run(example)
            finally:
                if "client" in self.names:
                    await self.names["client"].close()
        return len(examples)

    async def _run(self, example: Example) -> None:
        with contextlib.chdir(self._directory):
            run = self._python if example.language == "python" else self._console
            printed = await run(example)
        if example.prints is not None:
            shown = prints_as_shown(printed, example.prints)
            assert shown, f"{self._page.name}, line {example.line} prints {printed}"

    async def _python(self, example: Example) -> str:
        code = "\n" * (example.line - 1) + self._with_ours(example.code)
        compiled = compile(code, str(self._page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            if compiled.co_flags & inspect.CO_COROUTINE:
                work = eval(compiled, self.names)
                assert isinstance(work, Awaitable)
                await work
            else:  # a blocking program: members of groups that are open meanwhile go on
                await asyncio.to_thread(exec, compiled, self.names)
        return output.getvalue()

    def _with_ours(self, code: str) -> str:
        """Put what is ours in place of what is the reader's."""
        for text, ours in self._replaced.items():
            code = code.replace(text, ours)
        return code

    async def _console(self, example: Example) -> str:
        printed = ""
        code = self._with_ours(example.code)
        lines = [f"set -e\n{code}"] if example.whole else code.splitlines()
        for number, line in enumerate(lines, example.line):
            deadline_s = time.monotonic() + COMMAND_TIMEOUT_S
            exit_code, output, complaints = await self._command(line)
            asked = line.removeprefix("set -e\n").strip()
            tells_health = asked.startswith(ASKED_UNTIL_HEALTHY) and "\n" not in asked
            while exit_code and tells_health and time.monotonic() < deadline_s:
                if self._only_disks_are_full(output):
                    exit_code = 0
                    break
                exit_code, output, complaints = await self._command(line)
            assert exit_code == 0, f"{self._page.name}, about line {number}: {line}: {complaints}{output}"
            printed += output
        return printed

    def _only_disks_are_full(self, output: str) -> bool:
        """Whether that is the one problem that `pdctl doctor` found, and true of this machine."""
        problems = [line for line in output.splitlines() if f" {PROBLEM} " in line]
        usage = shutil.disk_usage(self._directory)
        return (
            bool(problems)
            and all("of its disk is free" in line for line in problems)
            and usage.free / usage.total < DISK_FREE_SHARE_MIN
        )

    async def _command(self, line: str) -> tuple[int, str, str]:
        """Run a line; return its exit code and what it says."""
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", f"set -o pipefail\n{line}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._directory,
            env=self._environment,
        )
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT_S):
                output, complaints = await process.communicate()
        except TimeoutError:
            raise AssertionError(f"{self._page.name}: {line}: not done after {COMMAND_TIMEOUT_S} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, output.decode(), complaints.decode()
