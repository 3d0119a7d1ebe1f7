"""Keys, values and headers as text, in both directions."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from pdctl.output import printable

_CONTROLS = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What JSON leaves as it is, and a terminal obeys; all of it is within strings."""


def parse_headers(headers: Sequence[str]) -> dict[str, bytes]:
    """Return the headers of options NAME=VALUE. Raises click.UsageError."""
    pairs = {}
    for header in headers:
        left, equals, right = header.partition("=")
        if not equals or not left:
            raise click.UsageError(f"--header {header!r} is not NAME=VALUE")
        pairs[left] = os.fsencode(right)
    return pairs


def shown_bytes(data: bytes) -> Any:
    """Return UTF-8 text unchanged, and other bytes as marked base64."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(data).decode()}


def shown_headers(headers: Mapping[str, bytes]) -> dict[str, Any]:
    """Return headers for JSON."""
    return {name: shown_bytes(value) for name, value in headers.items()}


def printed_bytes(data: bytes | None) -> str:
    """Return bytes for a table: on one line, without control characters; a dash for none."""
    return "-" if data is None else printable(data.decode("utf-8", "backslashreplace"))


def json_line(shown: Mapping[str, Any]) -> bytes:
    """Return an object as a line of JSON without control characters, so that a terminal may show it."""
    text = json.dumps(shown, ensure_ascii=False)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode() + b"\n"


def yaml_item(shown: Mapping[str, Any]) -> bytes:
    """Return an object as an item of a YAML list, of which the output consists."""
    import yaml

    document: str = yaml.safe_dump([dict(shown)], sort_keys=False, allow_unicode=True)
    return document.encode()
