"""Scenario files: commands and the output that they are to give, in the manner of etcd's raft.

    # A comment, up to the first command of a step.
    submit 3
    ack a 3
    ----
    send r0 a,b,c [0,3) confirm=0

A step is some lines of commands, a line of dashes, and the output, which ends with an empty line or the file. A command is a
word, then words and `key=value` pairs. What is rewritten keeps all but the output.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DASHES = "----"


class BadScenario(Exception):
    """The file has no such form, or a command that its driver does not know."""


@dataclass
class Step:
    """Some commands, what stands before them, and the output that is expected of them."""

    place: str
    comments: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)


def parse(text: str, name: str) -> list[Step]:
    """Return the steps of a file. Raises BadScenario."""
    steps: list[Step] = []
    step: Step | None = None
    in_output = False
    for number, line in enumerate(text.splitlines(), 1):
        if in_output:
            if line:
                steps[-1].expected.append(line)
                continue
            in_output = False
        elif line == DASHES:
            if step is None or not step.commands:
                raise BadScenario(f"{name}:{number}: dashes without a command before them")
            steps.append(step)
            step, in_output = None, True
        elif step is not None and step.commands and (not line or line.startswith("#")):
            raise BadScenario(f"{name}:{number}: the commands from {step.place} on have no line of dashes")
        else:
            step = step or Step(f"{name}:{number}")
            (step.comments if not line or line.startswith("#") else step.commands).append(line)
    if step is not None and (step.commands or any(step.comments)):
        raise BadScenario(f"{name}: the end from {step.place} on has no line of dashes")
    return steps


def run(step: Step, driver: Any) -> list[str]:
    """Give a step's commands to the driver, a method for each; return its output. Raises BadScenario."""
    output: list[str] = []
    for line in step.commands:
        word, *rest = line.split()
        method: Callable[..., list[str]] | None = getattr(driver, f"do_{word.replace('-', '_')}", None)
        if method is None:
            raise BadScenario(f"{step.place}: {type(driver).__name__} knows no command {word!r}")
        named = dict(each.split("=", 1) for each in rest if "=" in each)
        plain = [each for each in rest if "=" not in each]
        try:
            inspect.signature(method).bind(*plain, **named)
        except TypeError as error:
            raise BadScenario(f"{step.place}: {line!r}: {error}") from None
        output += method(*plain, **named)
    return output


def check(path: Path, driver: Any, *, rewrite: bool) -> list[str]:
    """Run a file; return where its output differs, or write what it is now into the file."""
    steps = parse(path.read_text(), path.name)
    outputs = [run(step, driver) for step in steps]
    if rewrite:
        path.write_text("\n".join(_text(step, output) for step, output in zip(steps, outputs, strict=True)))
        return []
    return [
        f"{step.place}: {' ; '.join(step.commands)}\n  expected {step.expected}\n  got      {output}"
        for step, output in zip(steps, outputs, strict=True)
        if step.expected != output
    ]


def _text(step: Step, output: list[str]) -> str:
    return "".join(f"{line}\n" for line in (*step.comments, *step.commands, DASHES, *output))
