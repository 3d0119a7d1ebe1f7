"""A client's token: where it comes from, how the next one is taken, and over which connections it never goes."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

import rangelog
from rangelog.spark.options import parse_options
from rangelog_core.errors import ConfigInvalid, InvalidArgument
from rangelog_core.net import token_sources
from rangelog_core.net.data_connection import DataConnection, replica_id
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.token_sources import (
    INSECURE_ENV,
    TokenFile,
    chosen_token,
    metadata_for,
    text_for,
    token_from_environment,
)
from rangelog_core.tokens import TEXT_LENGTH_MAX
from rangelog_proto.v1 import pd_pb2

SIGNED = "eyJhbGciOiJFZDI1NTE5In0.eyJpc3MiOiJ4In0.c2ln"


def replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".fresh")
    fresh.write_text(text)
    os.replace(fresh, path)


def test_a_file_is_read_again_once_it_changed(tmp_path: Path) -> None:
    """The next call has the next token; while the file is away, or empty, the one before counts."""
    path = tmp_path / "token"
    file = TokenFile(str(path))
    with pytest.raises(ConfigInvalid, match="cannot read the token"):
        file()
    replace(path, "")
    with pytest.raises(ConfigInvalid, match="no token in"):
        file()
    replace(path, "one\n")
    assert file() == "one" and pickle.loads(pickle.dumps(file))() == "one" and TokenFile(str(path)) == file
    replace(path, "two")
    assert metadata_for(file, None, "127.0.0.1:1") == (("authorization", "Bearer two"),)
    replace(path, "")
    assert file() == "two"
    path.unlink()
    assert file() == "two"
    path.write_bytes(b"\xff\xfe")
    assert file() == "two"


def test_where_a_token_comes_from(tmp_path: Path) -> None:
    """A token goes before a file; neither is none."""
    assert token_from_environment({}) is None and chosen_token(None, "") is None
    assert token_from_environment({"RANGELOG_TOKEN_FILE": "x"}) == TokenFile("x")
    assert token_from_environment({"RANGELOG_TOKEN": "t", "RANGELOG_TOKEN_FILE": "x"}) == "t"
    options = {"pd": "h:1", "stream": "s"}
    assert parse_options(options | {"token_file": "/x"}).token == rangelog.TokenFile("/x")
    assert parse_options(options | {"token": "t"}).token == "t"
    with pytest.raises(ConfigInvalid, match="give one of them"):
        parse_options(options | {"token": "t", "token_file": "/x"})


@pytest.mark.parametrize("address", ["10.0.0.1:1", "example.org:1", "[2001:db8::1]:1", "localhost.example.org:1"])
async def test_no_signed_token_goes_out_unencrypted(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """To this machine it does; to another one only where the user says so. The message does not have it."""
    monkeypatch.delenv(INSECURE_ENV, raising=False)
    for near in ("127.0.0.1:1", "localhost:1", "[::1]:1", "127.9.9.9:1"):
        assert text_for(SIGNED, None, near) == SIGNED
    with pytest.raises(ConfigInvalid, match="unencrypted connection") as refused:
        text_for(SIGNED, None, address)
    assert SIGNED not in refused.value.message and text_for("s3cret", None, address) == "s3cret"
    pd = PdClient([address], token=lambda: SIGNED)
    with pytest.raises(ConfigInvalid, match="unencrypted connection"):
        await pd.call(pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=5)
    await pd.close()
    with pytest.raises(ConfigInvalid, match="unencrypted connection"):
        await DataConnection.connect(address, replica_id("rs1", 1), token=SIGNED, timeout_s=5)
    monkeypatch.setenv(INSECURE_ENV, "1")
    assert text_for(SIGNED, None, address) == SIGNED


def test_what_can_be_no_token() -> None:
    """Line ends, other characters, a megabyte: refused before anything is sent, and not repeated."""
    for bad in ("a\nb", "é", "x" * (TEXT_LENGTH_MAX + 1), "x" * (1 << 20)):
        for given in (bad, lambda bad=bad: bad):
            with pytest.raises(InvalidArgument) as refused:
                text_for(given, None, "127.0.0.1:1")  # type: ignore[arg-type]
            assert bad not in refused.value.message
        with pytest.raises(InvalidArgument):
            PdClient(["h:1"], token=bad)
    with pytest.raises(InvalidArgument):
        text_for(lambda: None, None, "h:1")  # type: ignore[arg-type, return-value]
    assert text_for(None, None, "h:1") == "" and metadata_for(None, None, "h:1") == ()
    assert (
        token_sources.is_signed(SIGNED) and not token_sources.is_signed("eyJ") and not token_sources.is_signed("a.b.c")
    )
