"""bench/security_cost.py, which gives docs/security.md its part on cost: it measures every kind, once and briefly."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.measure, pytest.mark.alone, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = {
    "tls_flat_out_1024": {"plain", "tls"},
    "tls_one_in_flight_1024": {"plain", "tls"},
    "log_flat_out_1024": {"plain", "encrypted log"},
    "log_one_in_flight_1024": {"plain", "encrypted log"},
    "rights_flat_out_100": {"tls", "tls+rights", "tls+rights+token"},
    "rights_one_in_flight_100": {"tls", "tls+rights", "tls+rights+token"},
    "call_describe": {"plain", "tls", "tls+rights", "tls+rights+token"},
    "call_change": {"plain", "tls", "tls+rights", "tls+rights+audit"},
}


def measure(arguments: Sequence[str]) -> list[dict[str, object]]:
    command = [sys.executable, str(ROOT / "bench" / "security_cost.py"), *arguments]
    done = subprocess.run(command, capture_output=True, timeout=220, check=False, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_kind_is_measured() -> None:
    """Each comparison has all of its kinds, with a ratio for each but the first; the bound of the cipher is below 1."""
    found = measure(["--pairs", "1", "--seconds", "0.3", "--size", "1024"])
    kinds: dict[object, set[object]] = {}
    for each in found:
        if "kind" not in each:
            assert 0 < float(str(each["mb_per_s_ratio"])) < 1, each
            continue
        kinds.setdefault(each["what"], set()).add(each["kind"])
        value = "mb_per_s" if "mb_per_s" in each else "p50_ms"
        assert float(str(each[value])) > 0, each
    assert kinds == EXPECTED
    for what in EXPECTED:
        assert sum("kind" in each and f"{value_of(each)}_ratio" in each for each in found if each["what"] == what) == (
            len(EXPECTED[what]) - 1
        ), what
    assert [each["bits"] for each in found if each["what"] == "cipher_alone_1024"] == [256, 128]


def value_of(figure: dict[str, object]) -> str:
    return "mb_per_s" if "mb_per_s" in figure else "p50_ms"
