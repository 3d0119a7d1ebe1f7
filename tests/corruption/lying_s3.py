"""An S3 of our own on loopback that fails and lies as it is told: real HTTP, objects in memory.

It honours If-None-Match, ranges and multipart uploads. A fault is asked for at each request; what it does:

    busy, error       503 or 500 before anything is done          conflict   409 to a conditional put
    dropped request   closed before anything is done              slow       an answer after the client has given up
    dropped reply     done, then closed                           lost reply done, then 500
    cut short         half of the body, then closed               shortened  half of the body, and a length that fits it
    wrong bytes       a bit of the body flipped                   stale      the bytes of another object
    stored wrong      a bit flipped in what is stored             stored short   half of it is stored, and 200

REFUSING has further faults, which are not drawn: who asks may not, or asks at the wrong place. Neither are those of an answer
that says of itself that it is incomplete:

    no token, same token   half of a listing, and more to come: without a word where, or at the same place again
    only a token           a page of a listing that has a token and does not say that there is more
    span cut               the first half of a span, as a span of its own           other span   another one than was asked for
    range ignored          the whole object in place of a span                      partial      half of an object, as a span
    failed inside          200 to the last request of an upload in parts, with an error as its body
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

READING = ("busy", "error", "dropped request", "slow", "cut short", "shortened", "wrong bytes", "stale")
WRITING = ("busy", "error", "dropped request", "dropped reply", "lost reply", "conflict", "slow", "stored wrong",
           "stored short")  # fmt: skip
REFUSING: dict[str, tuple[Any, ...]] = {
    "denied": (403, "AccessDenied"),
    "wrong key": (403, "InvalidAccessKeyId"),
    "wrong secret": (403, "SignatureDoesNotMatch"),
    "expired": (400, "ExpiredToken"),
    "unknown user": (404, "XAdminUserNotFound"),
    "of its own": (403, "QuotaOfThisVendor"),
    "skewed": (403, "RequestTimeTooSkewed"),
    "key denied": (403, "AccessDenied", "User: u is not authorized to perform: kms:GenerateDataKey on resource: k"),
    "key forbidden": (400, "KMS.AccessDeniedException"),
    "key disabled": (400, "KMS.DisabledException"),
    "key missing": (400, "KMS.NotFoundException"),
    "key busy": (400, "KMS.ThrottlingException"),
    "no bucket": (404, "NoSuchBucket"),
    "elsewhere": (301, "PermanentRedirect"),
    "wrong region": (400, "AuthorizationHeaderMalformed"),
}
SLOW_S = 0.6
POLL_S = 0.02
"""A server ends no sooner than it looks whether it should."""


class LyingS3:
    """See the module. A context manager; `choose(verb, key)` names the fault of a request, "" for none."""

    def __init__(self, seed: int) -> None:
        self.objects: dict[str, bytes] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.chance = Random(seed)
        self.choose: Callable[[str, str], str] = lambda verb, key: ""
        self.forgetful = False  # conditions are ignored
        self.clock_off_s = 0.0
        self.faults: Counter[str] = Counter()
        self.requests = 0
        self.lock = threading.Lock()
        self.leaving = threading.Event()
        owner = self

        class Handler(_Handler):
            s3 = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), daemon=True)

    @property
    def url(self) -> str:
        """A tier URL."""
        return f"s3://lying/t?endpoint=http://127.0.0.1:{self._server.server_port}"

    def draw(self, share: float) -> Callable[[str, str], str]:
        """Return a choice that draws a fault for that share of the requests, each kind about as often."""

        def choose(verb: str, key: str) -> str:
            if self.chance.random() >= share:
                return ""
            kinds = WRITING if verb in ("PUT", "POST") else READING
            fewest = min(self.faults[kind] for kind in kinds)
            return self.chance.choice([kind for kind in kinds if self.faults[kind] == fewest])

        return choose

    def __enter__(self) -> LyingS3:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leaving.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    s3: LyingS3
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._with_fault(lambda fault: self._put(body, fault))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._with_fault(lambda fault: self._post(fault))

    def do_GET(self) -> None:
        self._with_fault(lambda fault: self._get(fault))

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        self._with_fault(lambda fault: self._delete())

    # ---- faults

    def _with_fault(self, act: Callable[[str], tuple[int, bytes, dict[str, str]]]) -> None:
        s3 = self.s3
        with s3.lock:
            s3.requests += 1
            fault = s3.choose(self.command, self._key)
            if fault:
                s3.faults[fault] += 1
            if fault in ("busy", "error", "conflict"):
                answer = _error({"busy": 503, "error": 500, "conflict": 409}[fault])
            elif fault in REFUSING:
                answer = _error(*REFUSING[fault])
            elif fault == "dropped request":
                self.close_connection = True
                return
            else:
                answer = act(fault)
        if fault == "dropped reply":
            self.close_connection = True
            return
        if fault == "lost reply":
            answer = _error(500)
        if fault == "slow":
            s3.leaving.wait(SLOW_S)
        self._answer(*answer, cut=fault == "cut short")

    def _answer(self, status: int, body: bytes, headers: dict[str, str], *, cut: bool) -> None:
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[: len(body) // 2] if cut else body)
            if cut:
                self.close_connection = True
        except OSError:  # the client has given up
            self.close_connection = True

    # ---- S3

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/lying").lstrip("/")

    @property
    def _query(self) -> dict[str, str]:
        return {name: found[0] for name, found in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()}

    def _stored(self, data: bytes, fault: str) -> bytes:
        if fault == "stored short":
            return data[: len(data) // 2]
        return _flipped(data, self.s3.chance) if fault == "stored wrong" else data

    def _put(self, body: bytes, fault: str) -> tuple[int, bytes, dict[str, str]]:
        s3, query = self.s3, self._query
        if "uploadId" in query:
            if query["uploadId"] not in s3.parts:
                return _error(404, "NoSuchUpload")
            s3.parts[query["uploadId"]][int(query["partNumber"])] = self._stored(body, fault)
        elif self._refused(s3.objects.get(self._key)):
            return _error(412)
        else:
            s3.objects[self._key] = self._stored(body, fault)
        return 200, b"", {"ETag": _etag(body)}

    def _refused(self, there: bytes | None) -> bool:
        """Whether a condition of the request does not hold."""
        if self.s3.forgetful:
            return False
        wanted = self.headers.get("If-Match")
        if wanted is not None:
            return there is None or _etag(there) != wanted
        return there is not None and self.headers.get("If-None-Match") == "*"

    def _post(self, fault: str) -> tuple[int, bytes, dict[str, str]]:
        s3, query = self.s3, self._query
        if "uploads" in query:
            upload_id = f"u{len(s3.parts)}"
            s3.parts[upload_id] = {}
            return 200, _xml("InitiateMultipartUploadResult", f"<UploadId>{upload_id}</UploadId>"), {}
        if query["uploadId"] not in s3.parts:
            return _error(404, "NoSuchUpload")
        if self._refused(s3.objects.get(self._key)):
            return _error(412)
        if fault == "failed inside":
            return 200, _xml("Error", "<Code>InternalError</Code><Message>as asked</Message>"), {}
        parts = s3.parts.pop(query["uploadId"])
        s3.objects[self._key] = b"".join(data for _, data in sorted(parts.items()))
        return 200, _xml("CompleteMultipartUploadResult", "<ETag>e</ETag>"), {}

    def _get(self, fault: str) -> tuple[int, bytes, dict[str, str]]:
        s3, key = self.s3, self._key
        if not key:
            return self._listed(fault)
        data = s3.objects.get(key)
        if fault == "stale":
            others = [each for name, each in sorted(s3.objects.items()) if name != key]
            data = s3.chance.choice([None, *others])
        if data is None:
            return _error(404)
        headers: dict[str, str] = {"ETag": _etag(data)}
        status, body = 200, data
        wanted = self.headers.get("Range") or ("bytes=0-" if fault == "partial" else "")
        if wanted and fault != "range ignored":
            first, last = (int(each or len(data)) for each in wanted.removeprefix("bytes=").split("-"))
            if fault in ("span cut", "partial"):
                last = first + (min(last, len(data)) - first) // 2
            elif fault == "other span":
                first, last = first + 1, last + 1
            body = data[first : last + 1]
            if not body:
                return _error(416)
            status = 206
            headers["Content-Range"] = f"bytes {first}-{first + len(body) - 1}/{len(data)}"
        if fault == "shortened":
            body = body[: len(body) // 2]
        if fault == "wrong bytes":
            body = _flipped(body, s3.chance)
        return status, body, headers

    def _listed(self, fault: str) -> tuple[int, bytes, dict[str, str]]:
        prefix, after = self._query.get("prefix", ""), self._query.get("continuation-token", "")
        keys = sorted(key for key in self.s3.objects if key.startswith(prefix) and key > after)
        told = "<IsTruncated>false</IsTruncated>"
        if fault in ("no token", "same token", "only a token"):
            keys = keys[: (len(keys) + 1) // 2]
            token = {"no token": "", "same token": "t/"}.get(fault, keys[-1] if keys else "")
            told = "" if fault == "only a token" else "<IsTruncated>true</IsTruncated>"
            told += f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.s3.objects[key])}</Size><ETag>e</ETag></Contents>"
            for key in keys
        )
        return 200, _xml("ListBucketResult", told + found), {}

    def _delete(self) -> tuple[int, bytes, dict[str, str]]:
        query = self._query
        if "uploadId" in query:
            self.s3.parts.pop(query["uploadId"], None)
        else:
            self.s3.objects.pop(self._key, None)
        return 204, b"", {}

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The time of the Date header."""
        return super().date_time_string((timestamp or time.time()) + self.s3.clock_off_s)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _etag(data: bytes) -> str:
    return f'"{zlib.crc32(data):08x}"'


def _flipped(data: bytes, chance: Random) -> bytes:
    if not data:
        return data
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def _xml(name: str, content: str) -> bytes:
    return f"<?xml version='1.0'?><{name}>{content}</{name}>".encode()


def _error(status: int, code: str = "", message: str = "as asked") -> tuple[int, bytes, dict[str, str]]:
    codes = {503: "SlowDown", 500: "InternalError", 409: "ConditionalRequestConflict", 412: "PreconditionFailed",
             404: "NoSuchKey", 416: "InvalidRange"}  # fmt: skip
    return status, _xml("Error", f"<Code>{code or codes[status]}</Code><Message>{message}</Message>"), {}
