"""An S3 bucket examined as a tier, step by step: what `pdctl doctor s3` prints.

What holds: a finding names one thing that is needed, and where it fails what to do; none holds a secret. Everything that is
stored is below one prefix of its own and is deleted at the end, as far as the rights allow.
"""

from __future__ import annotations

import email.utils
import hashlib
import os
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from rangelog_core.errors import (
    AccessDenied,
    ConfigInvalid,
    InvalidArgument,
    ObjectNotFound,
    PreconditionFailed,
    RangelogError,
)
from rangelog_core.limits import MIB
from rangelog_tier.object_store import PROBE_PREFIX
from rangelog_tier.opening import open_object_store
from rangelog_tier.s3_store import S3Store

OK, FAILED, SKIPPED = "ok", "failed", "skipped"
SPEED_BYTES = 8 * MIB
SKEW_S_MAX = 60.0
"""S3 refuses requests that are 15 minutes off; credentials and dates are trusted less before that."""
_SMALL = b"rangelog examines this tier"
_READS = 7
_SOURCES = {
    "env": "the environment",
    "shared-credentials-file": "the credentials file",
    "config-file": "the configuration file",
    "assume-role": "an assumed role",
    "assume-role-with-web-identity": "a web identity",
    "iam-role": "the role of this instance",
    "container-role": "the role of this container",
    "sso": "single sign-on",
    "custom-process": "a program that the profile names",
}


@dataclass(frozen=True, slots=True)
class S3Finding:
    """The result of one step. `state`: OK, FAILED or SKIPPED."""

    check: str
    state: str
    detail: str


class _Stop(Exception):
    """Nothing more can be examined."""


def examine(url: str, speed_bytes: int = SPEED_BYTES) -> Iterator[S3Finding]:
    """Examine the bucket at a tier URL; yields a finding after each step.

    Args:
        url: `s3://bucket/prefix?…`.
        speed_bytes: The size of the object that is stored and read to measure; 0: none is.

    Example:
        ```python
        for each in examine("s3://my-bucket/logs"):
            print(each.check, each.state, each.detail)
        ```
    """
    try:
        store = open_object_store(url)
        if not isinstance(store, S3Store):
            raise InvalidArgument("only s3:// tiers are examined; a directory is checked by who uses it")
    except RangelogError as error:
        yield S3Finding("tier URL", FAILED, error.message)
        return
    examination = _Examination(store, speed_bytes)
    try:
        yield from examination.run()
    except _Stop:
        return
    finally:
        examination.clean()
        store.close()


class _Examination:
    """One bucket. A step returns what it found in words, or raises what is wrong."""

    def __init__(self, store: S3Store, speed_bytes: int) -> None:
        self._store = store
        self._speed_bytes = speed_bytes
        self._prefix = f"{PROBE_PREFIX}doctor-{uuid.uuid4().hex}/"
        self._small = f"{self._prefix}small"
        self._parts = f"{self._prefix}parts"
        self._large = f"{self._prefix}large"
        self._date = ""
        self._asked_s = 0.0

    def run(self) -> Iterator[S3Finding]:
        """Yield the findings; a step that needs an earlier one is skipped without it."""
        for check, work in (("credentials", self._credentials), ("endpoint", self._endpoint), ("bucket", self._bucket)):
            found = _try(check, work)
            yield found
            if found.state == FAILED:
                raise _Stop
        yield _try("clock", self._clock)
        stored = _try("put", self._put)
        yield stored
        steps: list[tuple[str, Callable[[], str]]] = [
            ("get", self._get),
            ("conditional put", self._conditional_put),
            ("replace", self._replace),
            ("checksum", self._checksum),
            ("list", self._list),
            ("multipart", self._multipart),
            ("latency", self._latency),
        ]
        if self._speed_bytes:
            steps.append(("speed", self._speed))
        for check, work in [*steps, ("delete", self._delete)]:
            yield _try(check, work) if stored.state == OK else S3Finding(check, SKIPPED, "nothing could be stored")

    def clean(self) -> None:
        """Delete what was stored, as far as that is possible."""
        for key in (self._small, self._parts, self._large):
            with suppress(RangelogError):
                self._store.delete(key)

    # ---- steps

    def _credentials(self) -> str:
        with self._store.mapped(""):
            found = boto3.session.Session().get_credentials()
            if found is None:
                raise ConfigInvalid(
                    "none found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile, or give this machine a role"
                )
            frozen = found.get_frozen_credentials()  # loads those of a role
        source = _SOURCES.get(found.method, found.method)
        return f"from {source}{', temporary' if frozen.token else ''}"

    def _endpoint(self) -> str:
        client, begun_s = self._store.client, time.monotonic()
        with self._store.mapped(""):
            try:
                answer = client.head_bucket(Bucket=self._store.bucket)
            except ClientError as error:  # whatever it says, somebody answers
                answer = error.response
        self._asked_s = time.time()
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        self._date = str(headers.get("date", ""))
        return f"{client.meta.endpoint_url} answers in {_ms(time.monotonic() - begun_s)}"

    def _bucket(self) -> str:
        try:
            with self._store.mapped(""):
                self._store.client.list_objects_v2(Bucket=self._store.bucket, MaxKeys=1)
        except AccessDenied:  # perhaps of listing only: the next steps tell
            with self._store.mapped(self._small):
                self._tell_credentials_from_rights()
            return "its listing is denied: whether it is there is seen by storing"
        return f"{self._store.bucket} is there"

    def _tell_credentials_from_rights(self) -> None:
        """Raise the error of credentials that are wrong or have expired: these are denied everything."""
        try:
            self._store.client.get_object(Bucket=self._store.bucket, Key=self._store.full_key(self._small))
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in ("AccessDenied", "NoSuchKey", "403"):
                raise

    def _clock(self) -> str:
        told = email.utils.parsedate_to_datetime(self._date).timestamp() if self._date else None
        if told is None:
            return "the endpoint tells no time"
        off_s = self._asked_s - told
        if abs(off_s) > SKEW_S_MAX:
            way = "ahead of" if off_s > 0 else "behind"
            raise InvalidArgument(
                f"this machine is {abs(off_s):.0f} s {way} the store: set its clock, by NTP for instance"
            )
        return f"within {max(1, round(abs(off_s)))} s of the store's"

    def _put(self) -> str:
        with suppress(PreconditionFailed):  # of its own, repeated after a lost reply
            self._store.put_if_absent(self._small, _SMALL)
        return "an object can be stored"

    def _get(self) -> str:
        if self._store.get(self._small) != _SMALL or self._store.get_range(self._small, 9, 8) != _SMALL[9:17]:
            raise ConfigInvalid("other bytes are returned than were stored: this store cannot be the tier")
        return "whole objects and parts of them can be read"

    def _conditional_put(self) -> str:
        try:
            self._store.put_if_absent(self._small, _SMALL)
        except PreconditionFailed:
            return "If-None-Match is honoured"
        raise ConfigInvalid("If-None-Match is ignored: objects could be overwritten, so this store cannot be the tier")

    def _replace(self) -> str:
        _, etag = self._store.get_with_etag(self._small)
        self._store.replace(self._small, _SMALL + b".", etag)
        try:
            self._store.replace(self._small, _SMALL, etag)
        except PreconditionFailed:
            return "If-Match is honoured"
        raise ConfigInvalid(
            "If-Match is ignored: a manifest may be overwritten by an earlier one; records are not affected"
        )

    def _checksum(self) -> str:
        wrong = "AAAAAAAAAAAAAAAAAAAAAA=="
        with self._store.mapped(self._large):
            try:
                self._store.client.put_object(
                    Bucket=self._store.bucket,
                    Key=self._store.full_key(self._large),
                    Body=_SMALL,
                    ContentMD5=wrong,
                    **self._store.encryption,
                )
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") in ("BadDigest", "InvalidDigest"):
                    return "what arrives damaged is refused"
                raise
        self._store.delete(self._large)
        return "not compared by the store: what is uploaded is read back and compared anyway"

    def _list(self) -> str:
        if [each.key for each in self._store.list(self._prefix)] != [self._small]:
            raise ConfigInvalid("the listing lacks an object that was just stored: scrub and manifests need it")
        return "objects are listed"

    def _multipart(self) -> str:
        where = {"Bucket": self._store.bucket, "Key": self._store.full_key(self._parts)}
        with self._store.mapped(self._parts):
            self._put_in_parts(where)
            try:
                self._put_in_parts(where)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") in ("PreconditionFailed", "412"):
                    return "large objects can be stored in parts, once"
                raise
        raise ConfigInvalid("If-None-Match is ignored when parts are completed: objects could be overwritten")

    def _put_in_parts(self, where: dict[str, str]) -> None:
        client = self._store.client
        upload_id = client.create_multipart_upload(**where, **self._store.encryption)["UploadId"]
        try:
            etag = client.upload_part(**where, UploadId=upload_id, PartNumber=1, Body=_SMALL)["ETag"]
            client.complete_multipart_upload(
                **where,
                UploadId=upload_id,
                MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]},
                IfNoneMatch="*",
            )
        except BaseException:
            with suppress(BotoCoreError, ClientError):
                client.abort_multipart_upload(**where, UploadId=upload_id)
            raise

    def _latency(self) -> str:
        taken: list[float] = []
        for _ in range(_READS):
            begun_s = time.monotonic()
            self._store.get_range(self._small, 0, 8)
            taken.append(time.monotonic() - begun_s)
        return f"a small read takes {_ms(statistics.median(taken))} (median of {_READS}), at most {_ms(max(taken))}"

    def _speed(self) -> str:
        data = os.urandom(self._speed_bytes)
        begun_s = time.monotonic()
        with suppress(PreconditionFailed):
            self._store.put_if_absent(self._large, data)
        stored_s = time.monotonic()
        kept = self._store.get(self._large)
        read_s = time.monotonic()
        if hashlib.sha256(kept).digest() != hashlib.sha256(data).digest():
            raise ConfigInvalid("other bytes are returned than were stored: this store cannot be the tier")
        rates = [len(data) / 1e6 / max(taken_s, 1e-6) for taken_s in (stored_s - begun_s, read_s - stored_s)]
        return f"stores {rates[0]:.1f} MB/s, reads {rates[1]:.1f} MB/s, one request at a time"

    def _delete(self) -> str:
        for key in (self._small, self._parts, self._large):
            self._store.delete(key)
        try:
            self._store.head(self._small)
        except ObjectNotFound:
            return "objects can be deleted"
        except AccessDenied:
            return "objects can be deleted; that they are gone is not seen without the right s3:ListBucket"
        raise ConfigInvalid("a deleted object is still there: trimmed records would be kept for ever")


def _try(check: str, work: Callable[[], str]) -> S3Finding:
    try:
        return S3Finding(check, OK, work())
    except RangelogError as error:
        return S3Finding(check, FAILED, " ".join(error.message.split()))


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"
