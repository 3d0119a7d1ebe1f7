"""A tier of files and a catalog in SQLite for the tests of the job `iceberg`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog

from rangelog_core.manifest import ManifestObject, StreamManifest
from rangelog_core.object_keys import object_key
from rangelog_jobs.iceberg import RegisteredTable, bring_up_to_date
from rangelog_jobs.iceberg_sources import LiveObject, TableSource, objects_of
from rangelog_tier.parquet import FORMAT_VERSION, OBJECT_SCHEMA

FLIGHTS = TableSource("stream", "flights", 7)
ORDERS = TableSource("topic", "shop/orders", 9)
NAME = ("rangelog", "flights")
DAY_MS = 86_400_000
T0_MS = 20_000 * DAY_MS + DAY_MS // 2


class FakeTier:
    """A directory of objects, and which of them are live, as the placement driver would say it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.location = f"file://{folder}"
        self.objects: dict[int, list[ManifestObject]] = {}  # by stream
        self.trims: dict[int, int] = {}

    def add(self, count: int, *, stream_id: int = 7, version: int = 2, ms_per_record: int = 1000) -> ManifestObject:
        """One more object behind the others of a stream."""
        before = self.objects.setdefault(stream_id, [])
        start = before[-1].end_offset if before else 0
        key = object_key(stream_id, len(before), start, start + count, 100 + len(before))
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = OBJECT_SCHEMA.names if version > 1 else OBJECT_SCHEMA.names[:-1]
        rows = {
            "offset": range(start, start + count),
            "timestamp": [(T0_MS + each * ms_per_record) * 1000 for each in range(start, start + count)],
            "key": [None if each % 3 else b"k%d" % each for each in range(count)],
            "value": [b"%d of %d" % (each, stream_id) for each in range(start, start + count)],
            "headers": [[("a", b"x")] if each % 2 else [] for each in range(count)],
            "batch_header": [None] * count,
        }
        schema = pa.schema([OBJECT_SCHEMA.field(each) for each in columns], {FORMAT_VERSION: str(version)})
        table = pa.table({each: pa.array(rows[each], schema.field(each).type) for each in columns}, schema=schema)
        pq.write_table(table, path, row_group_size=7, write_statistics=["offset", "timestamp"], compression="zstd")
        made = ManifestObject(key, start, start + count, count, path.stat().st_size, "", 0, 0, 0)
        before.append(made)
        return made

    def live(self) -> list[LiveObject]:
        """The live objects: a topic's where there are several streams."""
        return [
            each
            for stream_id, objects in self.objects.items()
            for each in objects_of(
                StreamManifest(
                    "s",
                    stream_id,
                    None,
                    self.trims.get(stream_id, 0),
                    0,
                    tuple(each for each in objects if each.end_offset > self.trims.get(stream_id, 0)),
                ),
                stream_id if len(self.objects) > 1 else None,
                self.location,
            )
        ]

    def offsets(self, stream_id: int = 7) -> list[int]:
        """The offsets that are tiered and not trimmed."""
        return list(range(self.trims.get(stream_id, 0), self.objects[stream_id][-1].end_offset))


class FakeTierWithout(FakeTier):
    """A tier of the same place with nothing in it."""

    def __init__(self, tier: FakeTier) -> None:
        super().__init__(tier.folder)


def new_catalog(tmp_path: Path) -> Catalog:
    """A catalog in SQLite, as another process would open it."""
    (tmp_path / "warehouse").mkdir(exist_ok=True)
    return load_catalog(
        "lake", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse"
    )


def update(catalog: Catalog, tier: FakeTier, source: TableSource = FLIGHTS) -> RegisteredTable:
    """One run."""
    return bring_up_to_date(catalog, NAME, source, tier.location, tier.live)


def offsets(catalog: Catalog, where: str = "true") -> list[int]:
    """The offsets in the table, in order."""
    found = catalog.load_table(NAME).scan(row_filter=where, selected_fields=("offset",)).to_arrow()
    return sorted(found.column("offset").to_pylist())


def files_of(catalog: Catalog) -> list[str]:
    """The objects in the table."""
    return sorted(each.file.file_path for each in catalog.load_table(NAME).scan().plan_files())
