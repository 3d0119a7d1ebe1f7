"""Every documented bound of what is kept has a row: the constant, and the test that fills it and has the next owner open it.

What holds: a number in one of the sections below that is in no row fails, and so does a row whose constant has another
value, or whose test is not there or does not name the constant; and a constant of `rangelog_core.limits` that is in no row,
unless it bounds a message: of that nothing is kept.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from rangelog_core import limits

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = {
    "topics.md": ("## Limits\n", "\n## "),
    "groups.md": ("## Limits\n", "\n## "),
    "tables.md": ("## Limits\n", "\nRows do not expire"),
    "transactions.md": ("- Limits: ", "\n- "),
    "watermarks.md": ("## Cost\n", "$"),
}
"""By page: where its bounds stand."""


class Bound(NamedTuple):
    """One row."""

    page: str
    phrase: str
    """As the page has it."""
    value: int
    constant: str
    """module:NAME"""
    test: str
    """file::function"""


_BROKER = "tests/unit/broker/test_limits_reopened.py::"
_PD = "tests/unit/pd/state/test_pd_limits_reopened.py::"
_LIMITS, _GROUP, _SESSIONS = (
    "rangelog_core.limits:",
    "rangelog_broker.groups.group:",
    "rangelog_broker.journal.sessions:",
)
_COORDINATOR, _TIMES = "rangelog_broker.transactions.coordinator:", "rangelog_broker.watermarks.topic_times:"
_A_GROUP = f"{_BROKER}test_a_group_of_all_its_bounds"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

BOUNDS = (
    Bound(
        "topics.md",
        "Records up to 1 MiB",
        MIB,
        f"{_LIMITS}RECORD_SIZE_BYTES_MAX",
        f"{_BROKER}test_a_record_of_the_largest_size",
    ),
    Bound("topics.md", "3,000 current shards", 3_000, f"{_LIMITS}TOPIC_SHARDS_MAX", f"{_PD}test_shards_of_a_topic"),
    Bound("topics.md", "1,000 in one creation", 1_000, f"{_LIMITS}COMMAND_SHARDS_MAX", f"{_PD}test_shards_of_a_topic"),
    Bound(
        "topics.md",
        "250,000 of them",
        250_000,
        "rangelog_broker.shards.submission_window:RUNS_MAX",
        f"{_BROKER}test_submissions_of_a_shard",
    ),
    Bound("topics.md", "1,000 namespaces", 1_000, f"{_LIMITS}NAMESPACES_MAX", f"{_PD}test_namespaces"),
    Bound("topics.md", "50 tags", 50, f"{_LIMITS}TAGS_MAX", f"{_PD}test_tags_of_a_topic"),
    Bound("topics.md", "2 KiB together", 2 * KIB, f"{_LIMITS}TAGS_BYTES_MAX", f"{_PD}test_tags_of_a_topic"),
    Bound(
        "topics.md",
        "100,000",
        100_000,
        "rangelog_broker.shards.producer_table:OWN_PRODUCERS_MAX",
        "tests/unit/broker/shards/test_producer_table.py::test_programs_that_begin_and_end",
    ),
    Bound("groups.md", "1,000 members", 1_000, f"{_GROUP}MEMBERS_MAX", _A_GROUP),
    Bound("groups.md", "1,000 topics", 1_000, f"{_GROUP}TOPICS_MAX", _A_GROUP),
    Bound("groups.md", "5,000 shards a group", 5_000, f"{_GROUP}SHARDS_MAX", _A_GROUP),
    Bound(
        "groups.md",
        "100,000 groups",
        100_000,
        "rangelog_broker.groups.machine:GROUPS_MAX",
        f"{_BROKER}test_groups_of_a_coordinator",
    ),
    Bound(
        "groups.md",
        "16 coordinator journals",
        16,
        "rangelog_core.net.owner_calls:JOURNALS",
        "tests/unit/checkers/test_openings.py::test_everything_is_asked",
    ),
    Bound("groups.md", "Ten complete checkpoints", 10, "rangelog_broker.groups.checkpoints:CHECKPOINTS_MAX", _A_GROUP),
    Bound("groups.md", "64 bytes of metadata", 64, f"{_GROUP}METADATA_BYTES_MAX", _A_GROUP),
    Bound("tables.md", "1 to 1,000", 1_000, f"{_LIMITS}COMMAND_SHARDS_MAX", f"{_PD}test_shards_of_a_topic"),
    Bound(
        "tables.md",
        "1 GiB",
        GIB,
        "rangelog_broker.tables.machine:BYTES_MAX",
        "tests/integration/test_table_limits.py::test_a_full_partition_is_opened_again",
    ),
    Bound("tables.md", "4 KiB", 4 * KIB, f"{_LIMITS}TABLE_KEY_BYTES_MAX", f"{_BROKER}test_rows_of_a_partition"),
    Bound(
        "tables.md",
        "1 MiB less 6 KiB",
        MIB - 6 * KIB,
        f"{_LIMITS}TABLE_VALUE_BYTES_MAX",
        f"{_BROKER}test_rows_of_a_partition",
    ),
    Bound("tables.md", "1,000 writes", 1_000, f"{_LIMITS}TABLE_WRITES_MAX", f"{_BROKER}test_updates_of_a_partition"),
    Bound(
        "tables.md",
        "1 MiB together",
        MIB - KIB,
        f"{_LIMITS}TABLE_COMMAND_BYTES_MAX",
        f"{_BROKER}test_updates_of_a_partition",
    ),
    Bound(
        "tables.md",
        "the last 100,000",
        100_000,
        "rangelog_broker.tables.machine:CHANGES_MAX",
        f"{_BROKER}test_updates_of_a_partition",
    ),
    Bound(
        "tables.md",
        "32 MiB of keys",
        32 * MIB,
        "rangelog_broker.tables.machine:CHANGES_BYTES_MAX",
        f"{_BROKER}test_changes_of_long_keys",
    ),
    Bound(
        "transactions.md",
        "48 MiB of keys and values",
        48 * MIB,
        "rangelog._transact.transaction:TRANSACTION_BYTES_MAX",
        "tests/unit/client/transact/test_transactions.py::test_a_transaction_over_its_limits",
    ),
    Bound(
        "transactions.md",
        "1,000 shards in one transaction",
        1_000,
        f"{_COORDINATOR}PARTICIPANTS_MAX",
        f"{_BROKER}test_a_transaction_of_many_shards",
    ),
    Bound(
        "transactions.md",
        "64 MiB of open transactions",
        64 * MIB,
        "rangelog_broker.shards.transactional:STAGED_BYTES_MAX",
        f"{_BROKER}test_what_is_staged_in_a_shard",
    ),
    Bound(
        "transactions.md",
        "most 24 h",
        86_400_000,
        f"{_COORDINATOR}TIMEOUT_MS_MAX",
        f"{_BROKER}test_a_transaction_of_many_shards",
    ),
    Bound(
        "transactions.md",
        "7 days",
        7 * 86_400_000,
        f"{_COORDINATOR}IDLE_MS",
        "tests/unit/broker/transactions/test_coordinator_walks.py::test_an_id_is_forgotten_when_it_is_idle_and_finished",
    ),
    Bound(
        "watermarks.md", "The last 1,000", 1_000, f"{_TIMES}WATERMARKS_MAX", f"{_BROKER}test_watermarks_and_who_notes"
    ),
    Bound(
        "watermarks.md", "10,000 producers", 10_000, f"{_TIMES}PRODUCERS_MAX", f"{_BROKER}test_watermarks_and_who_notes"
    ),
    # ---- in no section of a page
    Bound("", "", 200, f"{_LIMITS}CURSORS_PER_STREAM_MAX", f"{_PD}test_cursors_of_a_stream"),
    Bound("", "", 512, f"{_LIMITS}CURSOR_METADATA_BYTES_MAX", f"{_PD}test_cursors_of_a_stream"),
    Bound("", "", 1_000, f"{_LIMITS}BROKERS_MAX", f"{_PD}test_brokers"),
    Bound("", "", 100, "rangelog_pd.state.cut_tables:GROUPS_MAX", f"{_PD}test_groups_that_a_topic_is_trimmed_by"),
    Bound("", "", 100_000, f"{_SESSIONS}SESSIONS_MAX", f"{_BROKER}test_sessions_and_their_results"),
    Bound("", "", 1_024, f"{_SESSIONS}UNSETTLED_MAX", f"{_BROKER}test_sessions_and_their_results"),
)
NO_BOUNDS = {"watermarks.md": ("at most every 10 s",)}
"""Numbers in the sections that bound nothing that is kept."""


OF_MESSAGES = frozenset(
    [
        "ADDRESS_LENGTH_MAX",
        "APPENDS_BYTES_MAX",
        "BATCH_RECORDS_MAX",
        "BATCH_SIZE_BYTES_MAX",
        "COMMAND_BYTES_MAX",
        "CURSOR_PAGE_SIZE_MAX",
        "CURSOR_SETS_MAX",
        "ENCRYPTION_KEY_ID_LENGTH_MAX",
        "FETCHES_BYTES_MAX",
        "FETCH_BYTES_MAX",
        "FETCH_CREDIT_BYTES_MAX",
        "FETCH_WAIT_MS_MAX",
        "FRAME_MESSAGE_BYTES_MAX",
        "FRAME_PAYLOAD_BYTES_MAX",
        "GRPC_MESSAGE_BYTES_MAX",
        "HEADERS_PER_RECORD_MAX",
        "INFLIGHT_BYTES_MAX",
        "NAME_LENGTH_MAX",
        "OBJECT_PAGE_SIZE_MAX",
        "OFFSET_MAX",
        "RANGE_PAGE_SIZE_MAX",
        "REPACKED_OBJECTS_MAX",
        "REPACKED_RANGES_MAX",
        "REPLICA_LAG_BYTES_MAX",
        "SHARD_PAGE_SIZE_MAX",
        "STREAM_PAGE_SIZE_MAX",
        "TABLE_COMMANDS_BYTES_MAX",
        "TABLE_COMMANDS_MAX",
        "TABLE_KEYS_MAX",
        "TABLE_PAGE_ROWS_MAX",
        "TIMESTAMP_MS_MAX",
        "TOPIC_PAGE_SIZE_MAX",
    ]
)
"""Constants of `rangelog_core.limits` that bound one message, name or value, or what is under way: nothing piles up to them."""


def section(page: str) -> str:
    """The text in which a page names its bounds."""
    begin, end = SECTIONS[page]
    text = (ROOT / "docs" / page).read_text()
    assert text.count(begin) == 1, f"{page}: its section of bounds is not found"
    after = text.partition(begin)[2]
    return after if end == "$" else after.partition(end)[0]


def unclaimed(page: str, bounds: tuple[Bound, ...] = BOUNDS) -> list[str]:
    """The numbers of a page that no row has, with what follows them."""
    text = section(page)
    for phrase in [each.phrase for each in bounds if each.page == page] + list(NO_BOUNDS.get(page, ())):
        assert phrase in text, f"{page} does not say {phrase!r}"
        text = text.replace(phrase, "", 1)
    return re.findall(r"\d[^\n|;]{0,30}", re.sub(r"\]\([^)]*\)", "]", text))


@pytest.mark.parametrize("page", SECTIONS)
def test_every_documented_bound_has_a_row(page: str) -> None:
    """What is documented is filled up and opened again by some test."""
    assert not unclaimed(page)


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda each: each.constant.partition(":")[2])
def test_a_row_is_true(bound: Bound) -> None:
    """The constant has the documented value; the test is there and names it."""
    module, _, name = bound.constant.partition(":")
    assert getattr(importlib.import_module(module), name) == bound.value
    path, _, function = bound.test.partition("::")
    source = (ROOT / path).read_text()
    found = [ast.unparse(each) for each in ast.parse(source).body if getattr(each, "name", "") == function]
    assert found, f"there is no {bound.test}"
    assert name in found[0], f"{bound.test} does not name {name}"


def test_every_bound_of_the_model_is_known() -> None:
    """A new one gets a row, or is one of a message."""
    in_rows = {each.constant.removeprefix(_LIMITS) for each in BOUNDS if each.constant.startswith(_LIMITS)}
    assert not in_rows & OF_MESSAGES
    assert in_rows | OF_MESSAGES == {name for name in vars(limits) if name.endswith("_MAX")}


def test_a_number_without_a_row_is_found() -> None:
    """One row less, one finding."""
    assert unclaimed("topics.md", tuple(each for each in BOUNDS if each.constant != f"{_LIMITS}NAMESPACES_MAX")) == [
        "1,000 namespaces"
    ]
