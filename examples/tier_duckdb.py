"""Ask DuckDB about the records of a stream that are in the tier. Only the list of objects comes from the cluster.

python examples/tier_duckdb.py flights-csv --by carrier
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import duckdb


def manifest(addresses: str, stream: str) -> list[str]:
    """Return the paths of the stream's live objects, as `pdctl object manifest` has them."""
    command = [sys.executable, "-m", "pdctl", "--pd", addresses, "object", "manifest", stream, "--urls", "-o", "paths"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split()


def main(addresses: str, stream: str, field: str) -> None:
    """Count the records by a field of their JSON values."""
    files = manifest(addresses, stream)
    if not files:
        sys.exit(f"nothing of {stream} is in the tier yet: see `pdctl range list {stream}`")
    query = """select json_extract_string(decode(value), $path) as name, count(*) as records, max("offset") as last
               from read_parquet($files) group by name order by records desc, name"""
    for row in duckdb.sql(query, params={"files": files, "path": f"$.{field}"}).fetchall():
        print(json.dumps(dict(zip(("name", "records", "last"), row, strict=True))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stream")
    parser.add_argument("--pd", default="127.0.0.1:7100")
    parser.add_argument("--by", default="carrier", help="a field of the values")
    given = parser.parse_args()
    main(given.pd, given.stream, given.by)
