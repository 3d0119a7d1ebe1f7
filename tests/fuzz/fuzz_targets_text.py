"""What people and files say: settings, plans, addresses, tier URLs, units, names, lines, options; and how records print."""

from __future__ import annotations

import os
import socket
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import click
from google.rpc import error_details_pb2, status_pb2

from pdctl.lines import LineSplitter
from pdctl.record_formats import parse_record, renderer
from pdctl.stream_places import StreamPlace
from pdctl.topics.places import PlaceType, parse_cut
from pdctl.topics.text import (
    KeyRangeType,
    KeyType,
    PositionType,
    ScalingType,
    TagType,
    TopicNameType,
    show_key,
    show_key_range,
)
from pdctl.units import Duration, Size, show_bytes, show_ms, show_time
from rangelog import context
from rangelog._append.batch_builder import check_record
from rangelog._client import Client
from rangelog_cli.local.plan import ClusterPlan, make_plan, read_plan, write_plan
from rangelog_cli.servers import PD_ENV_PREFIX, SERVER_ENV_PREFIX, merge, parse_members
from rangelog_core.errors import ConfigInvalid, InvalidArgument, RangelogError, UnsupportedVersion
from rangelog_core.ids import check_name
from rangelog_core.key_ranges import KEY_SPACE_END, KeyRange
from rangelog_core.net.addresses import split_address
from rangelog_core.net.grpc_errors import _told_by, to_status
from rangelog_core.record import Record
from rangelog_pd.consensus.network.dialing import parse_address
from rangelog_pd.settings import PdSettings
from rangelog_server.settings import RangeServerSettings
from rangelog_server_common.address_settings import split_listen
from rangelog_server_common.settings import load_settings
from rangelog_tier import file_store, opening
from rangelog_tier.object_store import check_key
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import text_mutated

DEEP = b"[" * 50_000


class TextFile:
    """A file with this content, wherever it is looked for."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __truediv__(self, name: str) -> TextFile:
        return self

    def __str__(self) -> str:
        return "a file"

    def read_text(self) -> str:
        """See Path."""
        return self._data.decode()

    def stat(self) -> os.stat_result:
        """See Path."""
        return os.stat_result((0, 0, 0, 0, 0, 0, len(self._data), 0, 0, 0))


def words(*given: str) -> tuple[Callable[[bytes, Random], bytes], ...]:
    """Mutators for a text made of these words."""
    return (lambda data, random: text_mutated(data, random, given),)


def text_of(data: bytes) -> str:
    """Any input as text."""
    return data.decode(errors="replace")


# ---- settings

_PD_TOML = b"""name = "pd1"
data_dir = "data"
tier_url = "s3://b/p"
raft_secret = "0123456789abcdef"
server_dead_ms = 9000
[members.pd1]
raft_address = "a:1"
api_address = "a:2"
"""
_SERVER_TOML = b"""name = "rs1"
data_dir = "data"
data_listen = "127.0.0.1:0"
control_listen = "[::1]:7181"
pd = "a:1, b:2"
capacity_bytes = 1000000
segment_size_bytes = 67108864
"""
_TOML_WORDS = (
    "name", "data_dir", "members.pd1", '"', "'", "=", "[", "]", "{", "}", "#", "1e9", "0x10", "nan", "-1", "1979-05-27", "\n",
    '"""', "true", "\\u0000", "listen", "advertise_host", '"0.0.0.0:1"', "members = 3", "pd = 3", "pd = [1]", "=" + "[" * 2_000,
)  # fmt: skip


def run_pd_toml(data: bytes) -> bool:
    """A configuration file gives settings, or one line that says what is wrong."""
    return _settings(data, PdSettings, PD_ENV_PREFIX)


def run_server_toml(data: bytes) -> bool:
    """The same for a range server."""
    return _settings(data, RangeServerSettings, SERVER_ENV_PREFIX)


def _settings(data: bytes, kind: Any, prefix: str) -> bool:
    values = merge(TextFile(data), {}, prefix)  # type: ignore[arg-type]
    try:
        settings = load_settings(kind, values)
    except ConfigInvalid as refusal:
        assert len(refusal.message) < 64 * 1024
        raise
    assert "\0" not in str(settings.data_dir), "no directory can have this name"
    return True


def run_plan(data: bytes) -> bool:
    """The plan of a local cluster: read again, it is the same."""
    plan = read_plan(TextFile(data))  # type: ignore[arg-type]
    assert isinstance(plan, ClusterPlan)
    assert all(isinstance(port, int) for port in plan.ports().values())
    assert all(isinstance(address, str) for address in plan.pd_addresses)
    return True


def plan_seed() -> bytes:
    """As `rangelog local` writes it."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        plan = make_plan(pds=1, range_servers=2, tier_url="file:///t", base_port=7000)
        write_plan(Path(folder), plan)
        text = (Path(folder) / "cluster.json").read_bytes()
    return text.replace(plan.raft_secret.encode(), b"0" * 16)


def run_context(data: bytes) -> bool:
    """The context file names placement drivers, or is refused."""
    production, context.context_path = context.context_path, lambda: TextFile(data)  # type: ignore[assignment, return-value]
    try:
        found = context.read_context()
    finally:
        context.context_path = production
    assert found is not None
    assert all(isinstance(each, str) for each in found.pd)
    return True


# ---- addresses and URLs


def run_endpoints(data: bytes) -> bool:
    """What `connect` accepts as host:port can be looked up without another kind of error."""
    text = text_of(data)
    client = Client(text, token=None, tls=None, tier_url=None)
    for endpoint in client._pd.endpoints:
        _look_up(split_address(endpoint))
    return True


def _look_up(address: tuple[str, int]) -> None:
    try:
        socket.getaddrinfo(*address, flags=socket.AI_NUMERICHOST)
    except OSError:
        pass  # what a caller expects of a name that is none


def run_listen(data: bytes) -> bool:
    """Addresses to listen on and of Raft members, and the --member flag."""
    text = text_of(data)
    refused: list[RangelogError] = []
    for parse in (parse_address, split_listen):
        try:
            _look_up(parse(text))
        except InvalidArgument as error:
            refused.append(error)
        except ValueError as error:
            if parse is not split_listen or isinstance(error, UnicodeError):
                raise
            refused.append(InvalidArgument(str(error)))
    members = parse_members((text,))
    assert len(members) == 1
    return True


class NoStore:
    """Takes the arguments of a file store, and does nothing."""

    def __init__(self, directory: Path, **_: object) -> None:
        self.directory = Path(directory)


@contextmanager
def no_disk() -> Iterator[None]:
    """File stores are not made."""
    production, file_store.FileStore = file_store.FileStore, NoStore  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        file_store.FileStore = production  # type: ignore[misc]


def run_tier_url(data: bytes) -> bool:
    """A tier URL opens a store, or is refused without being repeated."""
    text = text_of(data)
    try:
        with no_disk():
            opening.open_object_store(text)
    except RangelogError as error:
        secret = "hunter2"  # behind a user's name; alone it is the name of a bucket or of a host
        assert f":{secret}" not in text or secret not in error.message, "a message repeats the URL's secret"
        raise
    return True


def run_key(data: bytes) -> bool:
    """A key that is accepted stays inside the store's directory."""
    key = check_key(text_of(data))
    root = Path("/root-of-store")
    assert os.path.normpath(root / key).startswith("/root-of-store/")
    assert "\0" not in key
    return True


def run_name(data: bytes) -> bool:
    """A name that is accepted can be part of an object key and of a file name."""
    name = check_name("stream", text_of(data))
    assert check_key(name) == name
    assert name.isascii()
    return True


# ---- pdctl


def run_units(data: bytes) -> bool:
    """Sizes, durations and starts: a bounded number, or a usage error; what is shown of a number can be said again."""
    text = text_of(data)
    accepted = 0
    for kind in (Size(), Duration(), Duration(never=True), StreamPlace()):
        try:
            value = kind.convert(text, None, None)
        except click.UsageError as error:
            assert len(error.message) < 1_000
            continue
        accepted += 1
        if isinstance(value, int):
            assert -1 <= value < 1 << 63
            show_bytes(value)
            show_time(value)
            assert show_ms(value, "0")
        if isinstance(value, datetime):
            value.timestamp()
    return accepted > 0


def run_topic_text(data: bytes) -> bool:
    """Names of topics, keys, policies, tags, positions, places: a value within bounds, or a usage error; keys print again."""
    text = text_of(data)
    accepted = 0
    place = PlaceType(("earliest", "latest"), files=False, checkpoints=True)
    for kind in (TopicNameType(), KeyType(), KeyRangeType(), ScalingType(), TagType(), PositionType(), place):
        try:
            value = kind.convert(text, None, None)  # type: ignore[attr-defined]
        except click.UsageError as error:
            assert len(error.message) < 1_000
            continue
        accepted += 1
        if isinstance(value, KeyRange):
            assert 0 <= value.low < value.high <= KEY_SPACE_END
            assert KeyRangeType().convert(show_key_range(value), None, None) == value
        if isinstance(value, int):
            assert 0 <= value <= KEY_SPACE_END
            assert KeyType().convert(show_key(value), None, None) == value
    return accepted > 0


def run_cut(data: bytes) -> bool:
    """A cut from a file: one that prints again as it was read, or one message."""
    try:
        cut = parse_cut(data)
    except (InvalidArgument, UnsupportedVersion) as error:
        assert len(error.message) < 1_000
        return False
    assert parse_cut(cut.to_json().encode()) == cut
    return True


def run_lines(data: bytes) -> bool:
    """Lines are the same however the bytes are cut, and nothing is lost."""
    whole, pieces = LineSplitter(200), LineSplitter(200)
    lines = [*whole.feed(data), *whole.close()]
    step = 1 + len(data) // 5
    parts = [line for at in range(0, len(data), step) for line in pieces.feed(data[at : at + step])]
    assert [*parts, *pieces.close()] == lines
    assert all(b"\n" not in line for line in lines)
    expected = data.split(b"\n")
    assert lines == (expected if expected[-1] else expected[:-1])
    without = LineSplitter(200, crlf=True)
    assert [*without.feed(data), *without.close()] == [each.removesuffix(b"\r") for each in lines]
    return bool(lines)


def run_rendering(data: bytes) -> bool:
    """Any record prints in any shape; JSON and YAML read back. What is no record's JSON is refused in words."""
    import yaml

    half = len(data) // 2
    stamp = int.from_bytes(data[:8].ljust(8, b"\0"), "little", signed=True)
    name = text_of(data[:8])
    record = Record(7, stamp, data[:half] if half % 3 else None, data[half:], {name: data[:20]})
    for shape in ("value", "text", "raw", "prefixed"):
        assert record.value in renderer(shape, on_terminal=False)(record)
    for shape in ("value", "text", "json"):
        shown = renderer(shape, on_terminal=True)(record).decode()
        assert not any(unicodedata.category(each) == "Cc" and each != "\t" for each in shown[:-1])
    found = parse_record(renderer("json", on_terminal=False)(record))
    assert found == (record.value, record.key, record.headers, stamp)
    assert yaml.safe_load(renderer("yaml", on_terminal=False)(record))[0]["offset"] == 7
    with suppress(InvalidArgument):
        parse_record(data)
    return True


def run_record(data: bytes) -> bool:
    """What an application appends is checked, its timestamp too."""
    stamp = int.from_bytes(data[:8].ljust(8, b"\0"), "little", signed=True)
    edges = (datetime.min, datetime.max)
    for timestamp in (stamp, stamp % (1 << 40), *(edges if len(data) % 3 == 0 else ())):
        checked = check_record(data, None, {text_of(data[:9]): data}, timestamp)
        assert checked.size_bytes >= len(data)
    return True


# ---- errors from a server


def status_seeds() -> list[bytes]:
    """Statuses as servers send them."""
    return [
        to_status(InvalidArgument("no", epoch=3, offset=4, address="a:1")).SerializeToString(),
        to_status(RangelogError("é" * 600)).SerializeToString(),
        status_pb2.Status(code=3, message="m").SerializeToString(),
        _status_with("9" * 5_000),
    ]


def _status_with(offset: str) -> bytes:
    status = status_pb2.Status(code=3, message="m")
    info = error_details_pb2.ErrorInfo(reason="OFFSET_OUT_OF_RANGE", domain="rangelog", metadata={"offset": offset})
    status.details.add().Pack(info)
    return status.SerializeToString()


def change_status(data: bytes, random: Random) -> bytes:
    """Another number in the details."""
    return _status_with(random.choice(("", "-1", "²", "9" * random.randrange(6_000), "1.5", str(1 << 70))))


def run_status(data: bytes) -> bool:
    """A status becomes one of our errors, or nobody's."""
    try:
        status = status_pb2.Status.FromString(data)
        error = _told_by(status)
    except Exception as failure:
        if type(failure).__name__ == "DecodeError":
            raise InvalidArgument("not a status") from failure  # as from_rpc_error takes it
        raise
    assert error is None or isinstance(error, RangelogError)
    return error is not None


_URLS = (
    b"file:///tier", b"s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=eu&create=false", b"s3://b", b"file://localhost/x",
    b"s3://user:hunter2@bucket/p", b"https://user:hunter2@host/p",
)  # fmt: skip

TARGETS = (
    Target(
        "pd-settings", lambda: [_PD_TOML, b"a = " + DEEP, b"n = " + b"9" * 5_000], run_pd_toml, None, words(*_TOML_WORDS),
        ci_inputs=30,
    ),
    Target("server-settings", lambda: [_SERVER_TOML], run_server_toml, None, words(*_TOML_WORDS), ci_inputs=50),
    Target(
        "local-plan", lambda: [plan_seed(), DEEP], run_plan, None,
        words('"pds"', '"format"', "1", "null", "[]", "{}", '"x"', '"tier_url"', '"host"'), ci_inputs=62,
    ),
    Target(
        "context", lambda: [b'{"name": "local", "pd": ["a:1"]}', DEEP], run_context, None,
        words('"pd"', "[", "]", "{", "1"),
    ),
    Target(
        "endpoints", lambda: [b"127.0.0.1:7100,[::1]:7101, host.example:1"], run_endpoints, None,
        words("a..b:1", ":", ",", "[", "]", "host", ".", "\0", "x" * 70, "%eth0", "://"),
    ),
    Target(
        "listen", lambda: [b"pd1=a:1@b:2", b"127.0.0.1:7180", b"[::1]:0"], run_listen, None,
        words("@", "=", ":", "a..b", "x" * 70, "65536", "0.0.0.0", "\0"),
    ),
    Target(
        "tier-url", lambda: list(_URLS), run_tier_url, None,
        words("s3://", "file://", "?", "&", "#", "@", "endpoint=", "region=", "create=true", "[", "]", "%2e%2e", "..", "//", "http://"),
        peak_bytes_max=64 * MIB, time_s_max=10.0, ci_inputs=15,
    ),
    Target(
        "object-key", lambda: [b"streams/1/ranges/00000003/0-1-42.parquet"], run_key, None,
        words("/", ".", "..", "\0", "\\"),
    ),
    Target("name", lambda: [b"flights-2013.v1_x", b"a" * 200], run_name, None, words("/", ".", "-", "_", "\n")),
    Target(
        "units", lambda: [b"64MiB", b"1.5GB", b"7d", b"never", b"2026-01-31T12:00Z", b"12345", b"earliest"], run_units, None,
        words("ms", "w", "KiB", ".", "1e9", "T", "Z", "+14:00", "-12:00", "0001-01-01", "9999-12-31T23:59:59"),
    ),
    Target(
        "topic-text",
        lambda: [b"ns/flights", b"4..c", b"8", b"0x" + b"0" * 32, b"events:1000,factor=2,min=1", b"bytes:8MiB", b"0=12"],
        run_topic_text, None,
        words("/", "..", "end", "0x1", "fixed", ",factor=", ",min=", "=", ":", "f" * 32, "9" * 20, "\u00b2"),
    ),
    Target(
        "cut", lambda: [b'{"cut":1,"topic_id":7,"offsets":{"0":12,"3":0}}', DEEP, b'{"cut":1,"topic_id":7,"offsets":{}}'],
        run_cut, None,
        words('"cut"', '"offsets"', '"topic_id"', "{", "}", "[", ":", ",", '"0"', "-1", "1e3", "true", "null", "9" * 30),
    ),
    Target("lines", lambda: [b"one\ntwo\r\n\nlast", b"\r\n" * 5, b"x" * 300], run_lines),
    Target("rendering", lambda: [b"key and value", bytes(range(256)), b'\xff{"a": 1}\r\n'], run_rendering, ci_inputs=40),
    Target("record", lambda: [b"value", b"12345678\xff\xff", b"abc"], run_record),
    Target("grpc-status", status_seeds, run_status, None, (change_status,)),
)  # fmt: skip
__all__ = ["TARGETS", "ConfigInvalid"]
