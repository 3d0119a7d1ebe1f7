"""What a type checker says of a program that uses the client: nothing of what is right, and each mistake by its line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import rangelog
import rangelog.sync


async def main() -> None:
    client = await rangelog.connect("127.0.0.1:7100")
    async with client.writer("s") as writer:
        await writer.append(bytearray(b"x"), key=memoryview(b"k"))
        await writer.append_batch([b"a", bytearray(b"b"), rangelog.AppendRecord(memoryview(b"c"), key=bytearray(b"d"))])
        await writer.append_all(each.encode() for each in ("a", "b"))
        await writer.append("text")  # wrong
    async with client.producer("t") as producer:
        await producer.send(memoryview(b"x"), key=bytearray(b"k"))
        await producer.send(b"x", key="k")  # wrong
    async for record in client.reader("s"):
        offset: int = record.offset
        text: str = record.value  # wrong
    await rangelog.conect("127.0.0.1:7100")  # wrong
    rangelog.sync.conect("127.0.0.1:7100")  # wrong


try:
    with rangelog.sync.connect("127.0.0.1:7100") as blocking, blocking.writer("s") as appender:
        appender.append(bytearray(b"x"))
        appender.append(1)  # wrong
except rangelog.StreamNotFound as error:
    print(error.retriable)
"""


def test_right_calls_pass_and_wrong_ones_are_told(tmp_path: Path) -> None:
    """With mypy, strict. A name that is none is no Any."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", program],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    told = {int(line) for line in re.findall(r"^\S*program\.py:(\d+): error", run.stdout, re.MULTILINE)}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert told == wrong, run.stdout + run.stderr
