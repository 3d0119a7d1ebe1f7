"""Damaged files and an object store that lies: the short form of `make corruption`; and checks left out, which it finds."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rangelog_core.errors import PreconditionFailed
from rangelog_pd.consensus.files import journal
from rangelog_server.ranges import reading, replay
from rangelog_server.tier import upload
from rangelog_tier.object_reader import ByteSpan, ObjectReader
from tests.corruption.corruption import S3_SHARE, Results, figures, last_line, run
from tests.corruption.damage_member import MemberDamage
from tests.corruption.damage_object import ObjectDamage
from tests.corruption.damage_store import LogDamage
from tests.corruption.damage_tally import Thoroughness
from tests.corruption.lying_s3 import READING, WRITING
from tests.corruption.s3_faults import S3Faults, impatient
from tests.support.figures import publish

COARSE = Thoroughness(29, 1, 97)


@pytest.mark.timeout(300)
def test_damage_is_noticed_and_never_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is read is true or a typed error, what is missing is in doubt, what is sealed is made good, no bad object counts."""
    results = Results()
    lines = list(run(tmp_path, results, whole=False))
    counted = figures(results)
    publish("corruption", counted)
    with capsys.disabled():
        print(f"\n{last_line(counted)}")
    assert not results.problems, "\n".join([*lines, *results.problems])
    assert counted["detected"]
    assert counted["repaired"]
    assert set(counted["s3_faults_by_kind"]) == {*READING, *WRITING}


def test_a_key_whose_object_was_spoiled_is_given_up(tmp_path: Path) -> None:
    """The uploader goes on under another key. Which request meets which fault depends on real time."""
    for seed in range(1, 13):
        folder = tmp_path / str(seed)
        folder.mkdir()
        with impatient():
            outcome = asyncio.run(S3Faults(folder, seed, share=S3_SHARE, uploads=4, reads=1).run())
        assert not outcome.problems
        if outcome.keys_given_up:
            return
    raise AssertionError("no upload was spoiled in twelve runs")


def test_reads_without_a_checksum_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range server that serves what lies there."""
    monkeypatch.setattr(reading, "_check", lambda plan, one, data: data)
    assert LogDamage(1, sidecars=True).run(COARSE).served_wrong


def test_a_start_that_draws_no_consequences_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range server that takes what is left for all there was."""
    monkeypatch.setattr(replay, "_doubt_all", lambda result, damage, problem: None)
    monkeypatch.setattr(replay, "_judge_middle", lambda result, damage: None)
    assert LogDamage(2, sidecars=False).run(COARSE).problems


def test_a_journal_without_a_checksum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A placement driver that takes any record."""
    monkeypatch.setattr(journal, "_crc", lambda record: int.from_bytes(record[4:8], "little"))
    assert any(MemberDamage(seed).run(COARSE).problems for seed in (1, 2, 3))


def test_an_object_without_a_checksum_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that leaves checking to Parquet."""

    def unchecked(self: ObjectReader, span: ByteSpan, skip: int, *_: object) -> bytes:
        return self._store.get_range(self._object.key, span.begin, span.size)[skip:]

    monkeypatch.setattr(ObjectReader, "_checked", unchecked)
    assert ObjectDamage(tmp_path, 1).run(COARSE).problems


def put_unverified(objects: Any, key: str, path: Path) -> str:
    """Store it, and ask for nothing."""
    with suppress(PreconditionFailed):
        objects.put_if_absent(key, path)
    return ""


def test_an_upload_that_is_not_read_back_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An uploader that believes a 200, and a 412."""
    monkeypatch.setattr(upload, "_store", lambda objects, key, path, written: put_unverified(objects, key, path))
    wrong = 0
    for seed in range(1, 9):  # which request meets which fault depends on real time, too
        with impatient():
            folder = tmp_path / str(seed)
            folder.mkdir()
            wrong = asyncio.run(S3Faults(folder, seed, share=S3_SHARE, uploads=4, reads=1).run()).committed_wrong
        if wrong:
            break
    assert wrong
