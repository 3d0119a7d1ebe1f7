"""What `rangelog local` sets for its processes: small log segments, tokens with TLS; and what it leaves to the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rangelog_cli.local import command
from rangelog_cli.local.plan import read_plan
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import InvalidArgument
from rangelog_core.limits import MIB
from rangelog_server.settings import RangeServerSettings

SEGMENTS = "RANGELOG_SERVER_SEGMENT_SIZE_BYTES"


class _Opened(Exception):
    """The cluster would be opened."""


@pytest.mark.parametrize(("given", "passed"), [(None, {SEGMENTS: str(16 * MIB)}), (str(32 * MIB), {})])
def test_segments_are_small_unless_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, passed: dict[str, str]
) -> None:
    """Of a local cluster alone: a server's own default stays as it is."""
    monkeypatch.delenv(SEGMENTS, raising=False)
    if given is not None:
        monkeypatch.setenv(SEGMENTS, given)
    seen: list[Any] = []

    def opened(*_: Any, env: dict[str, str], **__: Any) -> None:
        seen.append(env)
        raise _Opened

    monkeypatch.setattr(Cluster, "open", opened)
    with pytest.raises(_Opened):
        command.run_local(
            tmp_path, pds=1, range_servers=1, brokers=0, tier_url=None, port=0, tls=None, write_context=False
        )
    assert seen == [passed]
    assert RangeServerSettings.model_fields["segment_size_bytes"].default == 64 * MIB


def _environment(cluster: Cluster) -> dict[str, set[str]]:
    return {name: {key for key in process.env if key.endswith("_TOKENS")} for name, process in cluster.members.items()}


def test_tokens_are_kept_and_need_tls(tmp_path: Path) -> None:
    """Every kind of process accepts them, at later starts too; without TLS they are refused before anything is written."""
    with pytest.raises(InvalidArgument, match="add --tls"):
        Cluster.open(tmp_path / "clear", pds=1, range_servers=1, brokers=1, tokens=True)
    assert read_plan(tmp_path / "clear") is None
    options: dict[str, Any] = {"pds": 1, "range_servers": 1, "brokers": 1}
    asked = {"pd1": {"RANGELOG_PD_TOKENS"}, "rs1": {"RANGELOG_SERVER_TOKENS"}, "broker1": {"RANGELOG_BROKER_TOKENS"}}
    none: dict[str, set[str]] = {name: set() for name in asked}
    for tokens, expected in ((None, none), (True, asked), (None, asked), (False, none)):
        cluster = Cluster.open(tmp_path / "tls", tls=True, tokens=tokens, **options)
        try:
            assert _environment(cluster) == expected
        finally:
            cluster.stop()
    with pytest.raises(InvalidArgument, match="add --tls"):
        Cluster.open(tmp_path / "tls", tls=False, tokens=True, **options)


def test_a_background_start_passes_them_on() -> None:
    """As the other switches."""
    from rangelog_cli.local.background import _as_arguments

    assert _as_arguments({"tokens": True}) == ["--tokens"] and _as_arguments({"tokens": False}) == ["--no-tokens"]
    assert _as_arguments({"tokens": None}) == []
