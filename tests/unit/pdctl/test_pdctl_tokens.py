"""`pdctl token`: what is asked for, what is printed, and where the text goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rangelog.context import Context, changed_contexts
from rangelog_core.errors import PreconditionFailed
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import TokenFile
from rangelog_core.rights import KINDS
from rangelog_proto.v1 import tokens_pb2 as pb

TEXT = "eyJh.eyJi.c2ln"


def row(name: str, **more: Any) -> pb.TokenRow:
    fields = {"token_id": f"{name:0>16}", "principal": "client:a", "created_ms": 1, "expires_ms": 1 << 42} | more
    return pb.TokenRow(name=name, **fields)


def test_create(pd: Any, pdctl: Any, tmp_path: Path) -> None:
    """The text alone on stdout, or in a new file of its owner; JSON has both. Bounds are said as rules are."""
    pd.answers["create_token"] = lambda request: pb.CreateTokenResponse(row=row(request.name), text=TEXT)
    assert pdctl("token", "create", "orders").stdout.strip() == TEXT
    asked = pd.requests[-1][1]
    assert asked.principal == "client:orders" and asked.lifetime_ms == 30 * 86_400_000 and not asked.only
    pdctl("token", "create", "t", "--for", "client:a", "--expires", "2h", "--only", "read,append topic shop/t-*")
    (only,) = pd.requests[-1][1].only
    assert (only.kind, only.name, list(only.verbs), only.principal) == (KINDS["topic"], "shop/t-*", [1, 2], "*")
    path = tmp_path / "token"
    assert TEXT not in pdctl("token", "create", "t", "--out", str(path)).output
    assert path.read_text() == f"{TEXT}\n" and path.stat().st_mode & 0o777 == 0o600
    assert json.loads(pdctl("token", "create", "t", "-o", "json").stdout)["token"] == TEXT
    assert "File exists" in pdctl.fails(2, "token", "create", "t", "--out", str(path))
    assert path.read_text() == f"{TEXT}\n"
    pd.answers["create_token"] = PreconditionFailed("there is a token")
    pdctl.fails(5, "token", "create", "t", "--out", str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "wrong", ["read stream", "read stream a b", "fly stream s", "read shard s", "read topic t", "read stream 'a b'", ""]
)
def test_bounds_that_are_none(pd: Any, pdctl: Any, wrong: str) -> None:
    """Refused before anything is asked for."""
    pdctl.fails(2, "token", "create", "t", "--only", wrong)
    assert pd.requests == []


def test_list_show_and_revoke(pd: Any, pdctl: Any) -> None:
    """What counts, was revoked or has expired; no text, since nobody has it."""
    rows = [row("a"), row("b", revoked_ms=5), row("c", expires_ms=2)]
    pages = {"": (rows[:2], "next"), "next": (rows[2:], "")}
    pd.answers["list_tokens"] = lambda request: pb.ListTokensResponse(
        rows=pages[request.page_token][0], next_page_token=pages[request.page_token][1]
    )
    listed = json.loads(pdctl("token", "list", "-o", "json").stdout)
    assert [(each["name"], each["state"]) for each in listed] == [("a", "valid"), ("b", "revoked"), ("c", "expired")]
    pd.answers["list_tokens"] = pb.ListTokensResponse(rows=[row("a", revoked_ms=5), row("a", token_id="f" * 16)])
    assert json.loads(pdctl("token", "show", "a", "-o", "json").stdout)["id"] == "f" * 16
    pd.answers["list_tokens"] = pb.ListTokensResponse()
    assert "pdctl token list" in pdctl.fails(3, "token", "show", "x")
    pd.answers["revoke_token"] = pb.RevokeTokenResponse(row=row("a", revoked_ms=5))
    assert "revoked" in pdctl("token", "revoke", "a").stdout and pd.requests[-1][1].name == "a"


def test_a_token_in_a_file(pd: Any, pdctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag goes before the environment, before and behind the verb; with a token the authority alone turns TLS on."""
    pd.answers["list_tokens"] = pb.ListTokensResponse()
    monkeypatch.setenv("RANGELOG_TOKEN", "of-the-environment")
    pdctl("--token-file", "/x", "token", "list")
    pdctl("token", "list", "--token-file", "/x")
    monkeypatch.delenv("RANGELOG_TOKEN")
    monkeypatch.setenv("RANGELOG_TOKEN_FILE", "/x")
    pdctl("--ca", "ca.pem", "token", "list")
    assert [token for _, token, _ in pd.opened] == [TokenFile("/x")] * 3
    assert pd.opened[-1][2].ca == "ca.pem" and not pd.opened[-1][2].cert
    monkeypatch.delenv("RANGELOG_TOKEN_FILE")
    said = pdctl.fails(2, "--ca", "ca.pem", "token", "list")
    assert "go together" in said and "with --ca alone a token (--token-file, RANGELOG_TOKEN_FILE or" in said


def test_the_authority_in_the_environment_and_the_token_of_the_context(
    pd: Any, pdctl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only RANGELOG_TLS_CA is set: that is enough where the context has a token."""
    pd.answers["list_tokens"] = pb.ListTokensResponse()
    monkeypatch.setenv("RANGELOG_TLS_CA", "ca.pem")
    pdctl.before = ()
    with changed_contexts() as contexts:
        contexts.by_name["c"] = Context("c", ("127.0.0.1:1",), TlsConfig("other.pem"), token_file="/x")
        contexts.used = "c"
    pdctl("token", "list")
    _, token, tls = pd.opened[-1]
    assert token == TokenFile("/x") and tls == TlsConfig("ca.pem")
