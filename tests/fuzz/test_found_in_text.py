"""What fuzzing found in what people and files say, each once: text that ended in an untyped error."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from rangelog import Cut, context
from rangelog._append.batch_builder import check_record
from rangelog.spark.options import parse_options
from rangelog_cli.local.plan import make_plan, read_plan, write_plan
from rangelog_cli.servers import read_toml
from rangelog_core.errors import ConfigInvalid, InvalidArgument, OffsetOutOfRange, UnsupportedVersion
from rangelog_core.ids import Incarnation, ReplicaId
from rangelog_core.net.addresses import split_address
from rangelog_core.net.data_connection import DataConnection
from rangelog_core.net.grpc_errors import _told_by
from rangelog_core.record import ms_of
from rangelog_pd.consensus.network.dialing import parse_address
from rangelog_pd.settings import MemberSettings, PdSettings
from rangelog_server.settings import RangeServerSettings
from rangelog_server_common.settings import load_settings
from tests.fuzz.fuzz_targets_text import status_seeds

MANY_DIGITS = "9" * 5_000
BAD_HOSTS = ("a..b", "x" * 64 + ".example", "h\0st", "\u0627a.example", "")


@pytest.mark.parametrize(
    "address", [f"{host}:1" for host in BAD_HOSTS] + [f"host:{MANY_DIGITS}", "host:²", "host:65536"]
)
async def test_addresses_that_no_resolver_takes(address: str) -> None:
    """UnicodeError from the resolver, or ValueError of 5,000 digits, reached whoever connected or listened."""
    with pytest.raises(InvalidArgument, match="host:port"):
        split_address(address)
    with pytest.raises(InvalidArgument):
        parse_address(address)
    with pytest.raises(ConfigInvalid):
        load_settings(RangeServerSettings, {"name": "rs1", "data_dir": "data", "data_listen": address})
    with pytest.raises(InvalidArgument):  # a range server may register anything as its address
        await DataConnection.connect(address, ReplicaId("rs1", Incarnation(1)))
    assert split_address("[::1]:7") == ("::1", 7)
    assert parse_address("host:0") == ("host", 0)


@pytest.mark.parametrize("content", [f"n = {MANY_DIGITS}", "a = " + "[" * 50_000, "a = {"])
def test_configuration_files_that_python_gives_up_on(tmp_path: Path, content: str) -> None:
    """A number of 5,000 digits (ValueError) and lists in lists (RecursionError)."""
    path = tmp_path / "file.toml"
    path.write_text(content)
    with pytest.raises(ConfigInvalid, match="is not TOML"):
        read_toml(path)


@pytest.mark.parametrize("content", [b"[" * 50_000, b'{"a": \xff}'])
def test_plan_and_context_that_python_gives_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """RecursionError of both files, UnicodeDecodeError of the plan."""
    (tmp_path / "cluster.json").write_bytes(content)
    with pytest.raises(ConfigInvalid, match="damaged"):
        read_plan(tmp_path)
    monkeypatch.setattr(context, "context_path", lambda: tmp_path / "cluster.json")
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        context.read_context()


def test_a_plan_whose_port_is_no_number(tmp_path: Path) -> None:
    """It was believed, and failed later and elsewhere."""
    write_plan(tmp_path, make_plan(pds=1, range_servers=1, tier_url="file:///t", base_port=7000))
    path = tmp_path / "cluster.json"
    path.write_text(path.read_text().replace("7000,", '"7000",'))
    with pytest.raises(ConfigInvalid, match="not of type int"):
        read_plan(tmp_path)


def test_a_directory_with_a_zero_byte_in_its_name() -> None:
    """The server started, and ended with ValueError and a stack trace."""
    with pytest.raises(ConfigInvalid, match="zero byte"):
        load_settings(RangeServerSettings, {"name": "rs1", "data_dir": "a\0b"})
    member = MemberSettings(raft_address="a:1", api_address="a:2")
    with pytest.raises(ValueError, match="zero byte"):
        PdSettings(name="pd1", data_dir=Path("a\0b"), members={"pd1": member})


@pytest.mark.parametrize("option", ["start", "end", "records_per_partition"])
def test_spark_options_of_many_digits(option: str) -> None:
    """ValueError of 5,000 digits."""
    with pytest.raises(ConfigInvalid, match=option):
        parse_options({"pd": "a:1", "stream": "s", option: MANY_DIGITS})


def test_a_status_whose_offset_has_many_digits() -> None:
    """A server could make every client raise ValueError."""
    from google.rpc import status_pb2

    error = _told_by(status_pb2.Status.FromString(status_seeds()[3]))
    assert isinstance(error, OffsetOutOfRange)
    assert error.offset is None


def test_a_local_time_before_the_calendar_begins() -> None:
    """`datetime.min` has no time in UTC and no zone: refused where a record is appended, and where a reader starts."""
    with pytest.raises(InvalidArgument, match="no time zone"):
        check_record(b"x", None, None, datetime.min)
    with pytest.raises(InvalidArgument, match="no time zone"):
        ms_of(datetime.min)


@pytest.mark.parametrize(
    "text",
    [
        '{"cut":1,"topic_id":7,"offsets":{"%s":1}}' % ("x" * 5_000),
        '{"cut":1,"topic_id":"%s","offsets":{"0":1}}' % ("x" * 5_000),
        '{"cut":%s,"topic_id":7,"offsets":{"0":1}}' % ("9" * 4_000),
    ],
)
def test_what_is_wrong_in_a_cut_is_shown_shortened(text: str) -> None:
    """The message had all of it."""
    with pytest.raises((InvalidArgument, UnsupportedVersion)) as caught:
        Cut.from_json(text)
    assert len(caught.value.message) < 300
