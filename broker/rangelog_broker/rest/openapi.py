"""The OpenAPI document of the REST interface. `tools/write_openapi.py` writes it to docs/api/rest.openapi.json."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

VERSION = "1"
"""Of the interface: the `v1` of its paths."""
_ABOUT = (
    "Administration of a rangelog cluster: any broker serves it, with the same rules and errors as the client. Records are "
    "not sent and read here: use the client. Where the cluster has a token, send it as `Authorization: Bearer TOKEN`."
)


def description_of(app: FastAPI) -> bytes:
    """Return the document as JSON; the same bytes for the same application."""
    made: dict[str, Any] = get_openapi(title="rangelog", version=VERSION, description=_ABOUT, routes=app.routes)
    for path in made["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)  # bad input is a 400 with the form of all errors
    for name in ("HTTPValidationError", "ValidationError"):
        made["components"]["schemas"].pop(name, None)
    made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    made["security"] = [{"token": []}, {}]
    return json.dumps(made, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"
