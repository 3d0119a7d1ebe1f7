"""A manifest as it is written: a document of this version is read by every later program."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rangelog_core.errors import Corruption, UnsupportedVersion
from rangelog_core.manifest import ManifestObject, ManifestShard, StreamManifest, parse_manifest

KEY = "streams/7/ranges/00000003/00000000000000001000-00000000000000002000-42.parquet"
MANIFEST = StreamManifest(
    stream="_topic-4-shard-2",
    stream_id=7,
    shard=ManifestShard(topic="shop/orders", topic_id=4, shard_id=2),
    trim_offset=1500,
    written_ms=1_700_000_000_000,
    objects=(ManifestObject(KEY, 1000, 2000, 1000, 12_345, "sha256:ab", 5, 7, 1_699_999_999_000),),
)
GOLDEN = f"""{{
 "rangelog.manifest_version": 1,
 "stream": "_topic-4-shard-2",
 "stream_id": 7,
 "folder": "streams/7/",
 "shard": {{"topic": "shop/orders", "topic_id": 4, "shard_id": 2}},
 "revision": 3500,
 "written_ms": 1700000000000,
 "trim_offset": 1500,
 "tiered": [{{"start_offset": 1500, "end_offset": 2000}}],
 "record_count": 500,
 "size_bytes": 12345,
 "objects": [
  {{"key": "{KEY}", "start_offset": 1000, "end_offset": 2000, "record_count": 1000, "size_bytes": 12345, \
"digest": "sha256:ab", "timestamp_ms_min": 5, "timestamp_ms_max": 7, "committed_ms": 1699999999000}}
 ]
}}
""".encode()


def test_a_manifest_is_the_golden_one() -> None:
    """These bytes are written, read, and are the document that pdctl prints."""
    assert MANIFEST.to_bytes() == GOLDEN
    assert parse_manifest(GOLDEN, "it") == MANIFEST
    assert json.loads(GOLDEN) == MANIFEST.document()


def test_that_of_a_stream_with_repacked_objects() -> None:
    """Has version 2 and one field more, which its revision counts; a program of version 1 refuses it."""
    repacked = replace(MANIFEST, repack_count=3)
    expected = (
        GOLDEN.replace(b'version": 1,', b'version": 2,')
        .replace(b'"revision": 3500', b'"revision": 3503')
        .replace(b'"trim_offset": 1500,', b'"trim_offset": 1500,\n "repack_count": 3,')
    )
    assert repacked.to_bytes() == expected
    assert parse_manifest(expected, "it") == repacked


def test_added_fields_are_ignored() -> None:
    """A program that adds fields without a new version is understood."""
    document = json.loads(GOLDEN) | {"more": 1}
    document["objects"][0]["more"] = document["shard"]["more"] = None
    assert parse_manifest(json.dumps(document).encode(), "it") == MANIFEST


@pytest.mark.parametrize("cut", range(0, len(GOLDEN) - 2, 13))
def test_a_cut_one_is_damage(cut: int) -> None:
    """No part of a manifest is one."""
    with pytest.raises(Corruption, match="it is not a manifest"):
        parse_manifest(GOLDEN[:cut], "it")


@pytest.mark.parametrize(
    "changes",
    [
        {"revision": 3501},
        {"trim_offset": 1499},
        {"trim_offset": "x"},
        {"rangelog.manifest_version": 0},
        {"rangelog.manifest_version": True},
        {"rangelog.manifest_version": None},
        {"objects": [{}]},
        {"objects": None},
        {"shard": {"topic": "t"}},
    ],
)
def test_contradictions_are_damage(changes: dict[str, object]) -> None:
    """What does not fit together was changed by hand, or by a fault."""
    with pytest.raises(Corruption):
        parse_manifest(json.dumps(json.loads(GOLDEN) | changes).encode(), "it")


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff", b"7", b'"x"', b"[" * 100_000])
def test_other_documents_are_damage(data: bytes) -> None:
    """Whatever lies there, it is one error."""
    with pytest.raises(Corruption):
        parse_manifest(data, "it")


def test_a_later_version_is_refused() -> None:
    """It is not taken for damage, whatever else is in it."""
    with pytest.raises(UnsupportedVersion, match=r"it is of version 3.*upgrade"):
        parse_manifest(b'{"rangelog.manifest_version": 3}', "it")
