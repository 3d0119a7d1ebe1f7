"""The manifest of a stream: the live objects of its tiered ranges, as a JSON document for programs without rangelog.

What holds: a manifest names the objects that the placement driver has committed and whose span ends beyond the trim offset, by
start offset, and no others. Rows below `trim_offset` may still be in the first of them: a reader leaves them out. Each commit,
trim and repack raises the `revision`, so of two manifests of a stream the one with the higher revision is the later one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from rangelog_core.errors import Corruption
from rangelog_core.object_keys import stream_prefix
from rangelog_core.versions import MANIFEST_VERSIONS, unsupported

_OPTIONAL = frozenset({"encryption_key_id"})
VERSION_KEY = "rangelog.manifest_version"


@dataclass(frozen=True, slots=True)
class ManifestShard:
    """The shard that a stream is behind, and its topic by name and id."""

    topic: str
    topic_id: int
    shard_id: int


@dataclass(frozen=True, slots=True)
class ManifestObject:
    """One live object. Its key is relative to the store's prefix; times are in ms since 1970."""

    key: str
    start_offset: int
    end_offset: int
    record_count: int
    size_bytes: int
    digest: str
    timestamp_ms_min: int
    timestamp_ms_max: int
    committed_ms: int
    encryption_key_id: str = ""
    """Of the key that wraps its data key; "": the object is in clear."""


@dataclass(frozen=True, slots=True)
class StreamManifest:
    """The live objects of one stream at one moment."""

    stream: str
    stream_id: int
    shard: ManifestShard | None
    trim_offset: int
    written_ms: int
    objects: tuple[ManifestObject, ...]
    repack_count: int = 0

    @property
    def tiered(self) -> list[tuple[int, int]]:
        """The contiguous spans [start, end) of offsets that the objects cover, not below the trim offset."""
        spans: list[tuple[int, int]] = []
        for each in self.objects:
            start = max(each.start_offset, self.trim_offset)
            if spans and spans[-1][1] == start:
                spans[-1] = (spans[-1][0], each.end_offset)
            else:
                spans.append((start, each.end_offset))
        return spans

    @property
    def is_encrypted(self) -> bool:
        """Whether one of the objects is."""
        return any(each.encryption_key_id for each in self.objects)

    @property
    def record_count(self) -> int:
        """The number of records in the tier, without those below the trim offset."""
        return sum(end - start for start, end in self.tiered)

    @property
    def revision(self) -> int:
        """A number that each commit, trim and repack raises: a trim takes away at most as many records as it passes over."""
        return 2 * self.trim_offset + self.record_count + self.repack_count

    def document(self) -> dict[str, Any]:
        """Return the manifest as a JSON document."""
        repacks = {"repack_count": self.repack_count} if self.repack_count else {}  # version 1 has no such field
        return {
            VERSION_KEY: 2 if repacks else 1,
            "stream": self.stream,
            "stream_id": self.stream_id,
            "folder": stream_prefix(self.stream_id),
            "shard": asdict(self.shard) if self.shard is not None else None,
            "revision": self.revision,
            "written_ms": self.written_ms,
            "trim_offset": self.trim_offset,
            **repacks,
            "tiered": [{"start_offset": start, "end_offset": end} for start, end in self.tiered],
            "record_count": self.record_count,
            "size_bytes": sum(each.size_bytes for each in self.objects),
            "objects": [_as_document(each) for each in self.objects],
        }

    def to_bytes(self) -> bytes:
        """Return the document as UTF-8 text: one line per object, which people can read and programs encode fast."""
        document = self.document()
        objects = document.pop("objects")
        fields = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in document.items()]
        lines = ",\n  ".join(json.dumps(each) for each in objects)
        fields.append(f'"objects": [\n  {lines}\n ]' if objects else '"objects": []')
        return ("{\n " + ",\n ".join(fields) + "\n}\n").encode()


def _as_document(each: ManifestObject) -> dict[str, Any]:
    """Return an object's fields; one in clear has those of version 1."""
    fields = asdict(each)
    if not each.encryption_key_id:
        del fields["encryption_key_id"]
    return fields


def parse_manifest(data: bytes, what: str) -> StreamManifest:
    """Return the manifest in a document; `what` names it in errors.

    Raises UnsupportedVersion for one of a later version, Corruption for what is not a manifest.
    """
    try:
        document = json.loads(data)
        version = document[VERSION_KEY]
        if type(version) is int and version > MANIFEST_VERSIONS.highest:
            raise unsupported(what, version, MANIFEST_VERSIONS, "this program")
        shard = document["shard"]
        found = StreamManifest(
            stream=document["stream"],
            stream_id=document["stream_id"],
            shard=ManifestShard(**_known(ManifestShard, shard)) if shard is not None else None,
            trim_offset=document["trim_offset"],
            written_ms=document["written_ms"],
            objects=tuple(ManifestObject(**_known(ManifestObject, each)) for each in document["objects"]),
            repack_count=document.get("repack_count", 0),
        )
        if type(version) is not int or version < MANIFEST_VERSIONS.lowest or document["revision"] != found.revision:
            raise ValueError("the fields contradict each other")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Corruption(
            f"{what} is not a manifest: it was changed or cut; the next commit or trim replaces it"
        ) from error
    return found


def _known(kind: type[ManifestShard | ManifestObject], fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that this program knows: a later one may have added some."""
    names: Iterable[str] = kind.__dataclass_fields__
    return {name: fields[name] for name in names if name in fields or name not in _OPTIONAL}
