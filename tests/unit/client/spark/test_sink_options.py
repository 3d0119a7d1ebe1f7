"""The options of a sink: what is taken, and what is refused by name."""

from __future__ import annotations

import pickle

import pytest

from rangelog import TlsConfig
from rangelog.spark.options import parse_options
from rangelog.spark.sink_options import SinkOptions, parse_sink_options
from rangelog_core.errors import ConfigInvalid, InvalidArgument


def test_options_are_read_whatever_their_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark passes them; the placement driver may be in the environment."""
    given = {"PD": "h:1", "Stream": "s", "token": "t", "write_id": "day-1"}
    assert parse_sink_options(given, streaming=False) == SinkOptions("h:1", "s", "", "t", "day-1")
    monkeypatch.setenv("RANGELOG_PD", "e:2")
    streaming = {"path": "s", "checkpointLocation": "/c", "queryName": "q"}
    assert parse_sink_options({"topic": "t"}, streaming=True).topic == "default/t"
    assert parse_sink_options(streaming, streaming=True) == SinkOptions("e:2", "s", "", None)


def test_certificates() -> None:
    """Three paths, for reads and writes; two are none. The environment of each executor counts where there are none."""
    files = {"tls_ca": "a", "tls_cert": "b", "TLS_KEY": "c"}
    given = {"pd": "h:1", "stream": "s"}
    assert parse_sink_options(given | files, streaming=True).tls == TlsConfig("a", "b", "c")
    assert parse_options(given | files).tls == TlsConfig("a", "b", "c")
    assert pickle.loads(pickle.dumps(parse_options(given | files))).tls == TlsConfig("a", "b", "c")
    assert parse_options(given).tls is None and parse_sink_options(given, streaming=True).tls is None
    for left_out in files:
        some = {name: value for name, value in files.items() if name != left_out}
        with pytest.raises(ConfigInvalid, match="three files"):
            parse_options(given | some)


@pytest.mark.parametrize(
    ("given", "streaming", "said"),
    [
        ({"pd": "h:1"}, False, "no stream is given"),
        ({"stream": "s"}, False, "no placement driver is given"),
        ({"pd": "h:1", "stream": "s", "start": "0"}, False, "unknown option 'start' to write"),
        ({"pd": "h:1", "stream": "s", "write_id": "x"}, True, "unknown option 'write_id'"),
        ({"pd": "h:1", "stream": "s", "check_repeats": "false"}, False, "unknown option 'check_repeats'"),
        ({"pd": "h:1", "stream": "s", "check_repeats": "no"}, True, "check_repeats is true or false"),
        ({"pd": "h:1", "stream": "s", "write_id": "a b"}, False, "write_id is up to 100 letters"),
        ({"pd": "h:1", "topic": "n/t", "stream": "s"}, True, "both a stream and a topic"),
    ],
)
def test_what_is_wrong_is_named(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], streaming: bool, said: str
) -> None:
    """Before anything is written."""
    monkeypatch.delenv("RANGELOG_PD", raising=False)
    with pytest.raises(ConfigInvalid, match=said):
        parse_sink_options(given, streaming=streaming)


def test_a_bad_name_is_an_invalid_argument() -> None:
    """As everywhere."""
    with pytest.raises(InvalidArgument, match="bad stream name"):
        parse_sink_options({"pd": "h:1", "stream": "a/b"}, streaming=True)
