"""Write the OpenAPI documents of brokers' doors to docs/api, or check with --check that they are in step."""

from __future__ import annotations

import pathlib
import sys

import rangelog_broker.rest.app
import rangelog_http.app
from rangelog_server_common.http_app import description_of

HERE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "api"
DOCUMENTS = {"rest": rangelog_broker.rest.app.bare_app, "http": rangelog_http.app.bare_app}


def main(arguments: list[str]) -> int:
    """Return 0 when the documents are written, or in step."""
    for name, app in DOCUMENTS.items():
        target, made = HERE / f"{name}.openapi.json", description_of(app())
        if "--check" not in arguments:
            target.write_bytes(made)
        elif not target.exists() or target.read_bytes() != made:
            print(f"write_openapi: docs/api/{target.name} is out of step; run `python tools/write_openapi.py`")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
