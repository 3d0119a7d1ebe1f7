"""One form of lines for structlog and the standard library; no secret in any of them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

SCRIPT = """
import logging, structlog
from rangelog_server_common.logging import log_to_stderr
log = structlog.get_logger("tier")
log_to_stderr("pd", "pd1", log_format={log_format!r}, secrets=("s3cret-token", None, ""))
log.info("uploaded", key="a b", url="https://x?token=s3cret-token")
logging.getLogger("rangelog.pd").info("%s leads with %s", "pd1", "s3cret-token")
logging.getLogger("other.library").info("not shown")
logging.getLogger("other.library").warning("a library warns")
try:
    raise ValueError("s3cret-token")
except ValueError:
    log.exception("failed")
"""


def lines(log_format: str) -> list[str]:
    """What a process with this format logs."""
    script = SCRIPT.format(log_format=log_format)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "" and "s3cret" not in done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize("log_format", ["auto", "json"])
def test_json(log_format: str) -> None:
    """A line is an object: who, when, which part, what; an exception is one line as well."""
    found: list[dict[str, Any]] = [json.loads(line) for line in lines(log_format)]
    assert [each["event"] for each in found] == ["uploaded", "pd1 leads with ***", "a library warns", "failed"]
    assert [each["logger"] for each in found] == ["tier", "rangelog.pd", "other.library", "tier"]
    assert {(each["role"], each["process"]) for each in found} == {("pd", "pd1")}
    assert [each["level"] for each in found] == ["info", "info", "warning", "error"]
    assert found[0]["url"] == "https://x?token=***" and found[0]["timestamp"].endswith("Z")
    assert "ValueError: ***" in found[3]["exception"]
    assert {tuple(each)[:6] for each in found} == {("timestamp", "level", "role", "process", "logger", "event")}


def test_logfmt() -> None:
    """Key=value, the same keys first in each line."""
    first, *others = lines("logfmt")
    assert len(others) == 3
    assert (
        first.startswith("timestamp=")
        and ' level=info role=pd process=pd1 logger=tier event=uploaded key="a b"' in first
    )
