"""What is written anew for a new key, and the documented way to read an encrypted object with pyarrow alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rangelog_core.errors import EncryptionKeyMissing
from rangelog_proto.v1 import common_pb2
from rangelog_tier import open_object_store
from rangelog_tier.encryption_keys import KeyDirectory
from rangelog_tier.object_cipher import cipher_of
from rangelog_tier.parquet import write_object
from rangelog_tier.repacking import Repack, plan_new_keys
from rangelog_tier.restore.reading import NO_SNAPSHOT, read_snapshot
from tests.support.lost_clusters import LostCluster
from tests.support.made_batches import make_batches
from tests.unit.tier.restore.test_restore_reading import put_snapshot

PAGE = Path(__file__).parents[3] / "docs" / "encryption.md"
STREAM = common_pb2.Stream(stream_id=1, name="s")


def tiered(index: int, *key_ids: str, open_end: bool = False) -> tuple[common_pb2.Range, list[common_pb2.Object]]:
    """A range of ten records for each object, with objects of these keys."""
    start, state = 100 * index, common_pb2.RANGE_STATE_SEALED
    ends = [start + 10 * (number + 1) for number in range(len(key_ids))]
    end = ends[-1] + (10 if open_end else 0)
    objects = [
        common_pb2.Object(
            object_id=end, stream_id=1, range_index=index, start_offset=end - 10, end_offset=end, size_bytes=1 << 30,
            encryption_key_id=key_id,
        )
        for end, key_id in zip(ends, key_ids, strict=True)
    ]  # fmt: skip
    of = common_pb2.Range(
        index=index, epoch=1, start_offset=start, end_offset=end, tiered_end_offset=ends[-1], state=state
    )
    return of, objects


def test_what_has_another_key_is_written_anew() -> None:
    """Whole ranges, whatever their size; not what has the key, is not wholly in the tier, or is repacked anyway."""
    parts = [
        tiered(0, "new"), tiered(1, "old"), tiered(2, ""), tiered(3, "new", "old"), tiered(4, "old"),
        tiered(5, "old", open_end=True),
    ]  # fmt: skip
    ranges, objects = [of for of, _ in parts], [each for _, some in parts for each in some]
    others = [Repack(1, "s", parts[4][1])]
    found = plan_new_keys(STREAM, ranges, objects, "new", others)
    assert [[each.object_id for each in work.objects] for work in found] == [[110], [210], [310, 320]]
    assert found[2].parts == "3/1/300"
    assert not plan_new_keys(STREAM, ranges[:1], objects[:1], "new", [])


def test_the_page_reads_with_pyarrow(tmp_path: Path) -> None:
    """Its example is run as it stands."""
    keys = KeyDirectory(str(tmp_path / "keys"))
    keys.make_key("k1")
    store = open_object_store(f"file://{tmp_path / 'tier'}", create=True, keys=keys)
    path = tmp_path / "object.parquet"
    write_object(
        path, iter(make_batches(30, 10, start=0)[0]), stream_id=1, stream_name="s", range_index=0, epoch=1, start_offset=0,
        end_offset=30, cipher=cipher_of(store),
    )  # fmt: skip
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {"path": path, "keys": keys.path}
    exec(example, names)
    assert names["table"].column("offset").to_pylist() == list(range(30))
    with pytest.raises((OSError, pa.ArrowInvalid)):
        names["pq"].read_table(path)


def test_a_restore_needs_the_key_of_the_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says which; none is passed over for an earlier one, since it is not damaged."""
    monkeypatch.delenv("RANGELOG_ENCRYPTION_KEYS_DIR", raising=False)
    keys = KeyDirectory(str(tmp_path / "keys"))
    keys.make_key("k1")
    url = f"file://{tmp_path / 'tier'}"
    plain = open_object_store(f"file://{tmp_path / 'plain'}", create=True)
    lost = LostCluster()
    lost.append(lost.create("flights"), 10)
    key = put_snapshot(plain, lost, tmp_path)
    from rangelog_tier.encrypted_file import encrypt_file

    with (tmp_path / "plain" / key).open("rb") as source, (tmp_path / "encrypted").open("wb") as target:
        encrypt_file(source, target, keys)
    store = open_object_store(url, create=True, keys=keys)
    store.put_if_absent(key, tmp_path / "encrypted")
    with pytest.raises(EncryptionKeyMissing, match=f"the snapshot {key} is encrypted with key 'k1'"):
        read_snapshot(open_object_store(url), cluster_id=None, snapshot_id=None)
    found = read_snapshot(store, cluster_id=None, snapshot_id=None)
    assert found.cluster_id == "c1" and found.snapshot_id != NO_SNAPSHOT
