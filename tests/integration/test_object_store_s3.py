"""The S3 store over real HTTP: conditional puts, big objects, a store that fails, and what users get wrong.

The contract runs against two servers that have no code in common: moto's, and versitygw over a directory where Go can build it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rangelog_cli.local.ports import free_ports
from rangelog_cli.local.processes import Process
from rangelog_core.errors import (
    AccessDenied,
    ConfigInvalid,
    InvalidArgument,
    ObjectNotFound,
    PreconditionFailed,
    RangelogError,
    Unavailable,
)
from rangelog_tier import ObjectStore, open_object_store
from rangelog_tier.object_store import PIECE_BYTES, probe
from rangelog_tier.s3_examination import examine
from rangelog_tier.s3_store import PART_BYTES, S3Store
from tests.integration.helpers.versitygw import BUILD_TIMEOUT_S, NotBuiltError, running_versitygw
from tests.support.waiting import eventually

BUCKET = "rangelog-test"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret"}

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Server:
    """Where the S3 server listens."""

    endpoint: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One S3 server for the file."""
    port = free_ports(1)[0]
    helper = Path(__file__).parent / "helpers" / "s3_with_faults.py"
    process = Process("s3", [str(helper), str(port)], log_path=tmp_path_factory.mktemp("s3") / "s3.log")
    process.start()

    def listens() -> bool:
        assert process.running, process.log_path.read_text()
        with socket.socket() as probing:
            return probing.connect_ex(("127.0.0.1", port)) == 0

    eventually(listens, "the S3 server does not listen", 30.0)
    yield Server(f"http://127.0.0.1:{port}")
    process.kill()


VERSITYGW = pytest.param("versitygw", marks=[pytest.mark.release, pytest.mark.timeout(BUILD_TIMEOUT_S + 120)])
"""It is built when it is first needed."""


@pytest.fixture(scope="module", params=["moto", VERSITYGW])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Each of the two servers."""
    if request.param == "moto":
        yield request.getfixturevalue("server")
        return
    try:
        with running_versitygw(tmp_path_factory.mktemp("versitygw"), CREDENTIALS) as endpoint:
            yield Server(endpoint)
    except NotBuiltError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The server's credentials and nobody else's."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def store(either: Server) -> ObjectStore:
    """A store under a prefix that no other test uses, on each of the servers."""
    return store_on(either)


@pytest.fixture
def faulty(server: Server) -> ObjectStore:
    """The same on the server that fails as it is asked to."""
    return store_on(server)


def store_on(server: Server) -> ObjectStore:
    """A store under a prefix of its own, in a bucket that is made."""
    return open_object_store(f"s3://{BUCKET}/{uuid.uuid4().hex}?endpoint={server.endpoint}&create=true", create=True)


def one_line(error: RangelogError, *needles: str) -> None:
    """The message is one line, names these, and holds no secret."""
    assert "\n" not in error.message
    for needle in needles:
        assert needle in error.message, error.message
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in error.message


def test_put_get_list_delete(store: ObjectStore, tmp_path: Path) -> None:
    """The verbs do what they say, and keys are relative to the URL's prefix."""
    probe(store)
    source = tmp_path / "file"
    source.write_bytes(b"from a file")
    store.put_if_absent("a/b", b"hello")
    store.put_if_absent("a/c", source)
    assert store.get("a/b") == b"hello"
    assert store.get_range("a/b", 1, 3) == b"ell"
    assert store.head("a/c").size_bytes == 11
    assert [(info.key, info.size_bytes) for info in store.list("a/")] == [("a/b", 5), ("a/c", 11)]
    assert [info.key for info in store.list("")] == ["a/b", "a/c"]
    store.delete("a/b")
    store.delete("a/b")
    for missing in (lambda: store.get("a/b"), lambda: store.head("a/b"), lambda: store.get_range("a/b", 0, 1)):
        with pytest.raises(ObjectNotFound):
            missing()


@pytest.mark.parametrize(("start", "length"), [(5, 1), (3, 10), (100, 1)])
def test_ranges_beyond_the_end_are_refused(store: ObjectStore, start: int, length: int) -> None:
    """Asking for bytes that are not there is InvalidArgument, never a short answer."""
    store.put_if_absent("key", b"hello")
    with pytest.raises(InvalidArgument):
        store.get_range("key", start, length)


@pytest.mark.parametrize(("start", "length"), [(5, 1), (3, 10), (100, 1)])
def test_memory_is_not_filled_from_beyond_the_end(store: ObjectStore, start: int, length: int) -> None:
    """The same into memory, and a missing object is missing there as well."""
    store.put_if_absent("key", b"hello")
    target = bytearray(length)
    with memoryview(target) as view:
        with pytest.raises(InvalidArgument):
            store.read_into("key", start, view, lambda: False)
        with pytest.raises(ObjectNotFound):
            store.read_into("none", 0, view, lambda: False)


def test_replace(store: ObjectStore) -> None:
    """An object is replaced by who names its etag; who is late, or names one that is gone, is refused and changes nothing."""
    with pytest.raises(ObjectNotFound):
        store.get_with_etag("key")
    with pytest.raises(PreconditionFailed):
        store.replace("key", b"no", "0" * 32)
    store.put_if_absent("key", b"first")
    data, etag = store.get_with_etag("key")
    assert data == b"first" and etag == store.head("key").etag
    store.replace("key", b"second", etag)
    with pytest.raises(PreconditionFailed) as caught:
        store.replace("key", b"late", etag)
    assert "changed meanwhile" in caught.value.message
    assert store.get("key") == b"second"


def test_memory_is_filled_piece_by_piece_until_it_is_stopped(store: ObjectStore) -> None:
    """Exactly the bytes asked for; a request that was given up in the middle spoils none that comes after it."""
    data = os.urandom(3 * PIECE_BYTES + 5)
    store.put_if_absent("key", data)
    target = bytearray(len(data) - 7)
    with memoryview(target) as view:
        for _ in range(20):  # more than there are connections
            asked = iter((False, True))
            with pytest.raises(Unavailable):
                store.read_into("key", 3, view, lambda asked=asked: next(asked))  # type: ignore[misc]
        store.read_into("key", 3, view, lambda: False)
        assert bytes(view) == data[3:-4]
        store.read_into("key", 0, view[:0], lambda: True)


def test_list_goes_on_past_one_page(store: ObjectStore) -> None:
    """More objects than S3 lists at once are all listed, in order."""
    store_any: Any = store
    keys = [f"many/{number:05d}" for number in range(1_005)]
    for key in keys:
        store_any.put_if_absent(key, b"")
    assert [info.key for info in store.list("many/")] == keys


@pytest.mark.parametrize("size", [10, 20 * 1024 * 1024], ids=["one-request", "multipart"])
def test_a_race_has_one_winner(either: Server, tmp_path: Path, size: int) -> None:
    """Of several that put one key at once, each with a client of its own, exactly one wins, and its bytes are there."""
    url = f"s3://{BUCKET}/{uuid.uuid4().hex}?endpoint={either.endpoint}&create=true"
    files = []
    for number in range(4):
        files.append(tmp_path / str(number))
        files[-1].write_bytes(bytes([number]) * size)
    stores = [open_object_store(url, create=True) for _ in files]
    won: list[int] = []
    lost: list[int] = []
    barrier = threading.Barrier(len(files))

    def put(number: int) -> None:
        barrier.wait()
        try:
            stores[number].put_if_absent("key", files[number])
            won.append(number)
        except PreconditionFailed:
            lost.append(number)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(len(files))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert len(lost) == len(files) - 1
    assert stores[0].head("key").size_bytes == size
    assert stores[0].get("key") == files[won[0]].read_bytes()


def test_failed_multipart_uploads_leave_no_parts(store: Any, tmp_path: Path) -> None:
    """Parts of an upload that lost its race are dropped: they would cost money for ever."""
    source = tmp_path / "big"
    source.write_bytes(bytes(17 * 1024 * 1024))
    store.put_if_absent("key", source)
    with pytest.raises(PreconditionFailed):
        store.put_if_absent("key", source)
    assert not store._client.list_multipart_uploads(Bucket=BUCKET).get("Uploads")


def test_a_store_that_ignores_conditions_is_refused(server: Server) -> None:
    """A store that would let two uploads overwrite each other is found out before anything is stored there."""
    store = open_object_store(f"s3://forgetful?endpoint={server.endpoint}&create=true", create=True)
    with pytest.raises(ConfigInvalid) as caught:
        probe(store)
    one_line(caught.value, "If-None-Match")
    assert list(store.list("")) == []


def test_a_busy_store_is_asked_again(faulty: ObjectStore) -> None:
    """Two answers of 503 are not the caller's trouble."""
    faulty.put_if_absent("busy", b"hello")
    assert faulty.get("busy") == b"hello"


def test_a_lost_answer_never_makes_two_objects(faulty: ObjectStore) -> None:
    """A put that was stored but not answered is repeated and says "exists": the bytes are the caller's own."""
    with pytest.raises(PreconditionFailed):
        faulty.put_if_absent("lost", b"hello")
    assert faulty.get("lost") == b"hello"


def test_access_denied(server: Server) -> None:
    """A refusal is one line that names the place and what to check, and not taken for a missing object."""
    store = open_object_store(f"s3://denied?endpoint={server.endpoint}")
    for call in (lambda: store.get("key"), lambda: store.head("key"), lambda: store.put_if_absent("key", b"")):
        with pytest.raises(Unavailable) as caught:
            call()
        one_line(caught.value, "denied", "check the credentials")


@pytest.mark.parametrize("either", [VERSITYGW], indirect=True)
@pytest.mark.parametrize(
    ("name", "value"), [("AWS_SECRET_ACCESS_KEY", "another-secret"), ("AWS_ACCESS_KEY_ID", "nobody")]
)
def test_wrong_credentials(monkeypatch: pytest.MonkeyPatch, either: Server, name: str, value: str) -> None:
    """A server that checks signatures refuses each call, and nothing is taken for a missing object; moto's checks none."""
    store_on(either)
    monkeypatch.setenv(name, value)
    store = open_object_store(f"s3://{BUCKET}?endpoint={either.endpoint}")
    for call in (lambda: store.get("key"), lambda: store.head("key"), lambda: store.put_if_absent("key", b"")):
        with pytest.raises(AccessDenied) as caught:
            call()
        one_line(caught.value, "does not accept the credentials")
        assert value not in caught.value.message


def test_an_examination_finds_nothing_wrong(either: Server) -> None:
    """What `pdctl doctor s3` asks for, both servers have; nothing is left behind."""
    store = store_on(either)
    url = f"s3://{BUCKET}/{uuid.uuid4().hex}?endpoint={either.endpoint}"
    found = list(examine(url, speed_bytes=1 << 20))
    assert [each for each in found if each.state != "ok"] == []
    assert len(found) == 14
    assert list(open_object_store(url).list("")) == [] == list(store.list(""))


def test_missing_bucket(server: Server) -> None:
    """A bucket that does not exist is said in one line, with the way out, which works."""
    bucket = f"b-{uuid.uuid4().hex}"
    url = f"s3://{bucket}?endpoint={server.endpoint}&region=eu-west-1"
    store = open_object_store(url)
    for call in (lambda: probe(store), lambda: store.get("key"), lambda: list(store.list(""))):
        with pytest.raises(Unavailable) as caught:
            call()
        one_line(caught.value, bucket, "create=true")
    for _ in range(2):  # made, then found
        probe(open_object_store(url + "&create=true", create=True))


def test_refused_connection(server: Server) -> None:
    """An endpoint where nobody listens fails in one line that says what to check."""
    store = open_object_store(f"s3://{BUCKET}?endpoint=http://127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(Unavailable) as caught:
        store.head("key")
    one_line(caught.value, "127.0.0.1", "check the endpoint")


@pytest.mark.measure
def test_a_refused_connection_fails_within_seconds(server: Server) -> None:
    """Fewer than 15, the tries of the S3 library included."""
    store = open_object_store(f"s3://{BUCKET}?endpoint=http://127.0.0.1:{free_ports(1)[0]}")
    started = time.monotonic()
    with pytest.raises(Unavailable):
        store.head("key")
    assert time.monotonic() - started < 15


@pytest.mark.parametrize(
    "endpoint", ["nonsense", "127.0.0.1:9000", "http://", "http://127.0.0.1:99999", "ftp://127.0.0.1"]
)
def test_bad_endpoint(endpoint: str) -> None:
    """An endpoint that cannot be one is ConfigInvalid when the store is opened."""
    with pytest.raises(ConfigInvalid) as caught:
        open_object_store(f"s3://{BUCKET}?endpoint={endpoint}")
    one_line(caught.value, "endpoint")


@pytest.mark.parametrize("bucket", ["UPPER", "a", "under_score", "-x-", "a..b"])
def test_bad_bucket_name(server: Server, bucket: str) -> None:
    """A bucket name that S3 does not allow is ConfigInvalid when the store is opened."""
    with pytest.raises(ConfigInvalid, match="bucket"):
        open_object_store(f"s3://{bucket}?endpoint={server.endpoint}")


def test_no_credentials(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials the error says which variables to set."""
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    store = open_object_store(f"s3://{BUCKET}?endpoint={server.endpoint}")
    with pytest.raises(ConfigInvalid) as caught:
        store.head("key")
    one_line(caught.value, "AWS_ACCESS_KEY_ID")


def test_not_s3_at_all(tmp_path: Path) -> None:
    """An HTTP server that does not speak S3 is a typed error, not a parser's."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(int(self.path.rpartition("/")[2][:3]))
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        do_PUT = do_HEAD = do_GET

        def log_message(self, *args: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        store = open_object_store(f"s3://{BUCKET}?endpoint=http://127.0.0.1:{server.server_port}")
        for key, expected in (("403", Unavailable), ("404", Unavailable), ("400", Unavailable)):
            with pytest.raises(expected) as caught:
                store.get(key)
            one_line(caught.value)
        with pytest.raises(RangelogError):
            probe(store)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", ("AES256", None)),  # what S3 does by itself; moto, too
        ("&sse=AES256", ("AES256", None)),
        ("&sse=aws:kms", ("aws:kms", "")),
        ("&sse=aws:kms&sse_key_id=alias/logs", ("aws:kms", "alias/logs")),
        (
            "&sse=aws%3Akms&sse_key_id=arn:aws:kms:eu-central-1:1:key/0a-1",
            ("aws:kms", "arn:aws:kms:eu-central-1:1:key/0a-1"),
        ),
    ],
)
def test_uploads_ask_for_encryption(
    server: Server, tmp_path: Path, options: str, expected: tuple[str, str | None]
) -> None:
    """Small ones, those in parts, and replaced ones; a reader whose URL says nothing of it reads all of them."""
    prefix = uuid.uuid4().hex
    place = f"s3://{BUCKET}/{prefix}?endpoint={server.endpoint}&create=true"
    store = open_object_store(place + options, create=True)
    assert isinstance(store, S3Store)
    large = tmp_path / "large"
    large.write_bytes(os.urandom(PART_BYTES + 1))
    store.put_if_absent("small", b"records")
    store.put_if_absent("large", large)
    store.put_if_absent("manifest", b"1")
    store.replace("manifest", b"2", store.head("manifest").etag)
    probe(store)
    for key in ("small", "large", "manifest"):
        head = store.client.head_object(Bucket=BUCKET, Key=f"{prefix}/{key}")
        found = head.get("ServerSideEncryption"), head.get("SSEKMSKeyId")
        if expected[0] == "AES256":
            assert found[0] in (("AES256",) if options else ("AES256", None)) and found[1] is None
        else:
            assert found[0] == expected[0] and (not expected[1] or found[1] == expected[1])
    reader = open_object_store(place)
    assert (reader.get("small"), reader.get("manifest")) == (b"records", b"2")
    assert reader.get("large") == large.read_bytes()
    assert all(each.state != "failed" for each in examine(place + options, speed_bytes=0))
