"""What an S3 store refuses is named as what it is: never as a missing object, and never as corruption."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from rangelog_core.errors import (
    AccessDenied,
    ConfigInvalid,
    ObjectNotFound,
    RangelogError,
    Unavailable,
    error_from_code,
)
from rangelog_tier import ObjectStore, open_object_store
from rangelog_tier.object_store import probe
from tests.corruption.lying_s3 import POLL_S, LyingS3
from tests.corruption.s3_faults import impatient

CALLS: dict[str, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get("key"),
    "head": lambda store: store.head("key"),
    "get_range": lambda store: store.get_range("key", 0, 1),
    "read_into": lambda store: store.read_into("key", 0, memoryview(bytearray(1)), lambda: False),
    "put_if_absent": lambda store: store.put_if_absent("key", b"x"),
    "list": lambda store: list(store.list("")),
    "delete": lambda store: store.delete("key"),
}
REFUSALS = [
    ("denied", AccessDenied, "s3:ListBucket"),
    ("wrong key", AccessDenied, "does not accept the credentials"),
    ("wrong secret", AccessDenied, "does not accept the credentials"),
    ("unknown user", AccessDenied, "does not accept the credentials"),
    ("of its own", AccessDenied, "denies access"),
    ("expired", AccessDenied, "expired"),
    ("skewed", AccessDenied, "clock"),
    ("key denied", AccessDenied, "kms:Decrypt on the key"),
    ("key forbidden", AccessDenied, "the key's policy"),
    ("key disabled", Unavailable, "cannot be used (KMS.DisabledException)"),
    ("key missing", Unavailable, "sse_key_id"),
    ("key busy", Unavailable, "try again"),
    ("no bucket", Unavailable, "no bucket"),
    ("elsewhere", Unavailable, "region"),
    ("wrong region", Unavailable, "region"),
]


@pytest.fixture
def s3() -> Iterator[LyingS3]:
    """An S3 with one object, whose clients do not wait long."""
    with impatient(), LyingS3(1) as server:
        server.objects["t/key"] = b"hello"
        yield server


@pytest.mark.parametrize(("fault", "expected", "needle"), REFUSALS)
def test_a_refusal_is_named(s3: LyingS3, fault: str, expected: type[RangelogError], needle: str) -> None:
    """Each call names rights, tokens, clocks, buckets and regions as such, HEAD too, whose answer holds no reason."""
    store = open_object_store(s3.url)
    s3.choose = lambda verb, key: fault
    for call in CALLS.values():
        with pytest.raises(RangelogError) as caught:
            call(store)
        assert type(caught.value) is expected and caught.value.retriable
        assert needle in caught.value.message and "\n" not in caught.value.message
        assert "test-secret" not in caught.value.message


def test_a_missing_object_is_missing_for_each_call(s3: LyingS3) -> None:
    """What is not there is ObjectNotFound, by HEAD as well."""
    store = open_object_store(s3.url)
    s3.objects.clear()
    for name in ("get", "head", "get_range", "read_into"):
        with pytest.raises(ObjectNotFound):
            CALLS[name](store)


def test_the_code_of_denied_access_travels() -> None:
    """A server's error is the same class at the client."""
    assert type(error_from_code("ACCESS_DENIED", "no")) is AccessDenied


def test_a_reader_never_makes_a_bucket_or_a_directory(s3: LyingS3, tmp_path: Path) -> None:
    """create=true in the tier URL is for who stores objects; a place that is missing is no empty one."""
    asked: list[tuple[str, str]] = []
    s3.choose = lambda verb, key: asked.append((verb, key)) or ""  # type: ignore[func-returns-value]
    open_object_store(f"{s3.url}&create=true").get("key")
    assert asked == [("GET", "t/key")]
    with pytest.raises(Unavailable, match="no directory"):
        open_object_store(f"file://{tmp_path}/none")
    assert not (tmp_path / "none").exists()
    store = open_object_store(f"file://{tmp_path}/made", create=True)
    (tmp_path / "made").rename(tmp_path / "away")
    for name in ("get", "head", "get_range", "read_into", "list"):
        with pytest.raises(Unavailable, match="mounted"):
            CALLS[name](store)


def test_who_may_not_make_a_bucket_may_use_one(s3: LyingS3) -> None:
    """A bucket that is there is not created again: the right to create one is not needed."""
    s3.choose = lambda verb, key: "denied" if verb == "PUT" and not key else ""
    probe(open_object_store(f"{s3.url}&create=true", create=True))


@contextmanager
def web_server(status: int, body: bytes, tls: Path | None = None) -> Iterator[int]:
    """An HTTP server that answers all requests alike; yields its port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_PUT = do_HEAD = do_POST = do_DELETE = do_GET

        def log_message(self, *_: Any) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Page)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("body", [b"<!DOCTYPE html><p>not here", b"", b"<html>hello</html>"])
def test_a_page_that_is_not_found_is_no_missing_object(body: bytes) -> None:
    """A web server's 404 says nothing of objects."""
    with impatient(), web_server(404, body) as port:
        store = open_object_store(f"s3://bucket?endpoint=http://127.0.0.1:{port}")
        for name in ("get", "head", "get_range", "put_if_absent", "list"):
            with pytest.raises(Unavailable, match=r"is it an S3 server|is not an S3 server"):
                CALLS[name](store)


def test_a_server_that_says_yes_to_everything_is_no_tier() -> None:
    """The probe reads back what it has stored."""
    with impatient(), web_server(200, b"hello") as port, pytest.raises(Unavailable, match="S3 server"):
        probe(open_object_store(f"s3://bucket?endpoint=http://127.0.0.1:{port}"))


def test_tls_where_there_is_none() -> None:
    """https:// to a server without TLS says what to write."""
    with impatient(), web_server(200, b"") as port, pytest.raises(Unavailable, match="endpoint=http://"):
        open_object_store(f"s3://bucket?endpoint=https://127.0.0.1:{port}").get("key")


def test_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    """A certificate of an unknown CA names the variable for it."""
    pem = tmp_path / "server.pem"
    pem.write_bytes(self_signed())
    with impatient(), web_server(200, b"", pem) as port, pytest.raises(Unavailable, match="AWS_CA_BUNDLE"):
        open_object_store(f"s3://bucket?endpoint=https://127.0.0.1:{port}").get("key")


def self_signed() -> bytes:
    """A key and a certificate that nobody trusts."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_no_credentials(s3: LyingS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials nothing is asked, and the variables are named."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ConfigInvalid, match="AWS_ACCESS_KEY_ID"):
        open_object_store(s3.url).get("key")
    assert s3.requests == 0
