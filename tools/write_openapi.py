"""Write the OpenAPI document of the broker's REST interface to docs/api, or check with --check that it is in step."""

from __future__ import annotations

import pathlib
import sys

from rangelog_broker.rest.app import bare_app
from rangelog_broker.rest.openapi import description_of

TARGET = pathlib.Path(__file__).resolve().parent.parent / "docs" / "api" / "rest.openapi.json"


def main(arguments: list[str]) -> int:
    """Return 0 when the document is written, or in step."""
    made = description_of(bare_app())
    if "--check" not in arguments:
        TARGET.write_bytes(made)
        return 0
    if TARGET.exists() and TARGET.read_bytes() == made:
        return 0
    print("write_openapi: docs/api/rest.openapi.json is out of step; run `python tools/write_openapi.py`")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
