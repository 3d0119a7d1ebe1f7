"""Import a CSV file into a stream, each row once: after a crash run it again.

The stream has nothing but this file, so its end says how many rows are there. The writer is opened first: that fences an import
which may still run somewhere, and settles what the end is.

python examples/import_csv.py flights.csv --stream flights-csv --key carrier
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import rangelog
import rangelog.sync


def rows(path: Path, key: str | None, skipped: int) -> Iterator[rangelog.AppendRecord]:
    """Yield the rows of the file behind the first `skipped` ones as JSON objects."""
    with path.open(newline="") as file:
        for row in itertools.islice(csv.DictReader(file), skipped, None):
            yield rangelog.AppendRecord(
                value=json.dumps(row).encode(), key=row[key].encode() if key is not None else None
            )


def main(addresses: str, path: Path, stream: str, key: str | None) -> None:
    """Append what is not there yet."""
    with rangelog.sync.connect(addresses) as client:
        client.create_stream(stream, exist_ok=True)
        with client.writer(stream) as writer:
            there = writer.next_offset
            count = writer.append_all(rows(path, key, there))
        print(f"imported {count} rows, {there} were there")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--pd", default="127.0.0.1:7100")
    parser.add_argument("--stream", default="imported")
    parser.add_argument("--key", help="the column whose value is the record's key")
    given = parser.parse_args()
    main(given.pd, given.file, given.stream, given.key)
