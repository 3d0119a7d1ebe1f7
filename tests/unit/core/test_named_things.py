"""The table of what a client can name of another one: it has each field of each request, and what it refers to exists."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor

from rangelog_core.net.principals import Role
from rangelog_pd.handlers.service import RULES
from rangelog_proto.v1 import data_pb2
from tests.security.named_things import PLAIN, ROWS
from tests.security.rights import PROBES
from tests.unit.core.net.test_principals import SERVICES

ROOT = Path(__file__).resolve().parents[3]
FRAMES = (
    "Hello",
    "Append",
    "Confirm",
    "Fetch",
    "LookupTimestamp",
    "Seal",
    "CommitEnd",
    "Produce",
    "Stage",
    "FindBatch",
)
"""Requests of frames; the other messages there are answers."""


def fields_of(message: Descriptor, seen: set[str]) -> Iterator[str]:
    """Yield the fields of a message and of those in it, without those that are messages themselves."""
    if message.full_name in seen:
        return
    seen.add(message.full_name)
    for field in message.fields:
        if field.message_type is not None:
            yield from fields_of(field.message_type, seen)
        else:
            yield f"{message.name}.{field.name}"


def fields_of_clients() -> set[str]:
    """Every field of what a client may send to a cluster."""
    found: set[str] = set()
    seen: set[str] = set()
    for service, methods in SERVICES.items():
        for method in methods:
            if Role.CLIENT in RULES.roles_of(f"/{service}/{method}"):
                described = descriptor_pool.Default().FindServiceByName(service).FindMethodByName(method)
                found.update(fields_of(described.input_type, seen))
    for name in FRAMES:
        found.update(fields_of(data_pb2.DESCRIPTOR.message_types_by_name[name], seen))
    return found


def test_every_field_of_a_request_is_guarded_or_plain() -> None:
    """A new field needs a word on what it lets one client do to another one's things; one that is gone needs none."""
    named = {field for row in ROWS for field in row.fields.split()}
    plain = {f"{message}.{field}" for message, fields in PLAIN.items() for field in fields.split()}
    assert not named & plain
    assert named | plain == fields_of_clients()


def test_every_message_of_the_data_plane_is_a_request_or_an_answer() -> None:
    """A new frame is not forgotten."""
    messages = set(data_pb2.DESCRIPTOR.message_types_by_name)
    assert {each for each in messages - set(FRAMES) if not each.endswith("Reply")} == {"Error", "PlacedRun"}


def test_what_is_to_show_a_guard_exists() -> None:
    """Cells of the security suite, and tests."""
    known: dict[str, set[str]] = {}
    for row in ROWS:
        assert row.guard
        for cell in row.cells:
            path, separator, name = cell.partition("::")
            if not separator:
                assert cell in PROBES, cell
                continue
            if path not in known:
                tree = ast.parse((ROOT / path).read_text())
                known[path] = {
                    each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                }
            assert name in known[path], cell


def test_every_cell_of_a_client_shows_something_of_another_one() -> None:
    """What a cell names as another one's is in the table."""
    shown = {cell for row in ROWS for cell in row.cells}
    assert {each for each in PROBES if " another " in each} <= shown
