"""Write docs/errors.md, every error with its code, from the tree in rangelog_core/errors.py; or check it with --check.

Statuses and exit codes come from the functions that decide them, advice from error_advice.toml beside this file. A code without
advice, and advice without a code, are errors.
"""

from __future__ import annotations

import pathlib
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping

from google.rpc import code_pb2

from pdctl.session import exit_code
from rangelog_core.errors import InternalError, RangelogError
from rangelog_core.net.grpc_errors import to_status
from rangelog_server_common.http_answers import status_of

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE.parent / "docs" / "errors.md"
ADVICE = HERE / "error_advice.toml"

HEAD = """# Error codes

This page is made from the programs by `python tools/error_reference.py`; `make check` compares. The classes with their fields:
[API](api/errors.md).

Every error of the SDK is a `rangelog.RangelogError`: one sentence that says what happened and what to do, a stable `code`, and two
answers for programs. Match on the class or the code, never on the text.

| answer | meaning |
|---|---|
| `retriable` | the same call may succeed later. The SDK has tried again by itself until its time-out was over |
| `outcome_unknown` | it may have been carried out all the same: look before you repeat what must not happen twice. An error may be more precise than its class, so ask the error |

The last column has the gRPC status, the HTTP status and the exit code of `pdctl`. 0 is success, 1 also *degraded* and a question
answered with no, 2 also a wrong option, 3 also *nothing found*, 130 Ctrl-C. `rangelog` ends with 1 for every error and 2 for a wrong
option; both print one line on stderr.

Below a class in the table stand its subclasses, marked with ↳: who catches the class catches them.
"""  # noqa: E501


def classes(base: type[RangelogError], depth: int = 0) -> Iterator[tuple[int, type[RangelogError]]]:
    """Yield each class of the tree with its depth, a class before its subclasses. Those of other modules never travel."""
    for each in base.__subclasses__():
        if each.__module__ == RangelogError.__module__:
            yield depth, each
            yield from classes(each, depth + 1)


def row(depth: int, kind: type[RangelogError], advice: str) -> str:
    """Return the line of one class."""
    error = kind("")
    meaning = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    meaning = re.sub(r"`(offset|epoch|address)`", r"`error.\1`", meaning)
    status = code_pb2.Code.Name(to_status(error).code)
    again = [
        word for word, holds in (("retriable", kind.retriable), ("outcome unknown", error.outcome_unknown)) if holds
    ]
    codes = f"{status} {status_of(error)} {exit_code(error)}"
    name = f"{'↳ ' * depth}`{kind.code}`<br>`{kind.__name__}`"
    return f"| {name} | {meaning} {advice} | {', '.join(again)} | {codes} |"


def page(advice: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the page, and what does not fit, one line each."""
    found = sorted(classes(RangelogError), key=lambda item: item[1] is InternalError)
    codes = {kind.code for _, kind in found}
    problems = [f"{code}: has no advice" for code in sorted(codes - advice.keys())]
    problems += [f"{code}: is no code" for code in sorted(advice.keys() - codes)]
    lines = [
        HEAD,
        "| code, class | what it means, and what to do | again? | gRPC, HTTP, pdctl |",
        "|---|---|---|---|",
        *(row(depth, kind, advice.get(kind.code, "")) for depth, kind in found),
        "",
    ]
    return "\n".join(lines), problems


def main(arguments: list[str]) -> int:
    """Return 0 when the page is written, or in step."""
    made, problems = page(tomllib.loads(ADVICE.read_text()))
    for each in problems:
        print(f"error_reference: {each}: correct tools/error_advice.toml")
    if problems:
        return 1
    if "--check" not in arguments:
        TARGET.write_text(made)
        return 0
    if TARGET.exists() and TARGET.read_text() == made:
        return 0
    print("error_reference: docs/errors.md is out of step; run `python tools/error_reference.py`")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
