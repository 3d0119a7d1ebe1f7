"""An object store with the S3 protocol, by boto3. Credentials come from boto3's own chain, never from the URL.

What holds: `put_if_absent` sends If-None-Match, on multipart uploads at their completion, and `replace` If-Match; every call
has timeouts and boto3's standard retries; every failure is a RangelogError (s3_errors.py). A bucket is made only for who
asks for it with `create`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from rangelog_core.errors import ConfigInvalid, ObjectNotFound, PreconditionFailed, Unavailable
from rangelog_core.limits import MIB
from rangelog_tier.bucket_names import check_bucket
from rangelog_tier.object_store import ObjectInfo, check_key, check_span, fill, source_size
from rangelog_tier.s3_errors import is_unexplained, mapped
from rangelog_tier.s3_spans import check_answer, is_partial

CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 30
ATTEMPTS_MAX = 3
POOL_CONNECTIONS = 16
PART_BYTES = 16 * MIB
_REGION_DEFAULT = "us-east-1"


class S3Store:
    """An ObjectStore in an S3 bucket."""

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        endpoint: str | None,
        region: str | None,
        create: bool = False,
        encryption: Mapping[str, str] | None = None,
    ) -> None:
        """`encryption`: arguments with which each upload begins; see s3_encryption."""
        self.encryption = dict(encryption or {})
        _check_place(bucket, endpoint)
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._where = f"s3://{bucket} at {endpoint or 'AWS'}"
        config = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "max_attempts": ATTEMPTS_MAX},
            max_pool_connections=POOL_CONNECTIONS,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if endpoint else "auto"},
        )
        try:
            session = boto3.session.Session()
            region = region or session.region_name or _REGION_DEFAULT
            self._client: Any = session.client("s3", endpoint_url=endpoint, region_name=region, config=config)
        except (BotoCoreError, ValueError) as error:
            raise ConfigInvalid(f"the tier {self._where} cannot be set up: {error}") from error
        if create:
            self._create_bucket(region)

    def _create_bucket(self, region: str) -> None:
        """Create the bucket unless it is there: who may not create one may use it."""
        try:
            with self.mapped(self._bucket):
                self._client.head_bucket(Bucket=self._bucket)
            return
        except Unavailable:
            options: dict[str, Any] = {}
        if region != _REGION_DEFAULT:  # the one region that S3 refuses as a location
            options["CreateBucketConfiguration"] = {"LocationConstraint": region}
        try:
            with self.mapped(self._bucket):
                self._client.create_bucket(Bucket=self._bucket, **options)
        except PreconditionFailed:
            return

    @property
    def client(self) -> Any:
        """boto3's client, for who examines the bucket."""
        return self._client

    @property
    def bucket(self) -> str:
        """The name of the bucket."""
        return self._bucket

    def full_key(self, key: str) -> str:
        """Return the key with the URL's prefix. Raises InvalidArgument."""
        return self._prefix + check_key(key)

    def put_if_absent(self, key: str, source: bytes | Path) -> None:
        """Store bytes or a file under a new key."""
        if source_size(source) > PART_BYTES and isinstance(source, Path):
            self._put_parts(key, source)
            return
        with self.mapped(key):
            body = source if isinstance(source, bytes) else source.read_bytes()
            where = {"Bucket": self._bucket, "Key": self.full_key(key)}
            self._client.put_object(**where, Body=body, IfNoneMatch="*", **self.encryption)

    def _put_parts(self, key: str, source: Path) -> None:
        where = {"Bucket": self._bucket, "Key": self.full_key(key)}
        with self.mapped(key):
            upload_id = self._client.create_multipart_upload(**where, **self.encryption)["UploadId"]
        try:
            parts: list[dict[str, Any]] = []
            with self.mapped(key), source.open("rb") as origin:
                while data := origin.read(PART_BYTES):
                    number = len(parts) + 1
                    sent = self._client.upload_part(**where, UploadId=upload_id, PartNumber=number, Body=data)
                    parts.append({"PartNumber": number, "ETag": sent["ETag"]})
                self._client.complete_multipart_upload(
                    **where, UploadId=upload_id, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
                )
        except BaseException:
            self._abort_parts(where, upload_id)
            raise

    def _abort_parts(self, where: dict[str, str], upload_id: str) -> None:
        """Delete the parts of a failed upload, which cost money; if this fails too, the store's lifecycle rules delete them."""
        try:
            self._client.abort_multipart_upload(**where, UploadId=upload_id)
        except (BotoCoreError, ClientError):
            return

    def get(self, key: str) -> bytes:
        """Return the whole object. Raises ObjectNotFound, Unavailable."""
        return self.get_with_etag(key)[0]

    def get_with_etag(self, key: str) -> tuple[bytes, str]:
        """Return the whole object and the etag of these bytes. Raises ObjectNotFound, Unavailable."""
        with self.mapped(key):
            answer = self._client.get_object(Bucket=self._bucket, Key=self.full_key(key))
            with closing(answer["Body"]) as body:
                if is_partial(answer):
                    raise Unavailable(f"{self._where} answered with a part of object {key}: try again")
                return body.read(), answer["ETag"].strip('"')

    def replace(self, key: str, data: bytes, etag: str) -> None:
        """Overwrite the object that still has this etag. Raises PreconditionFailed, Unavailable."""
        try:
            with self.mapped(key):
                where = {"Bucket": self._bucket, "Key": self.full_key(key)}
                self._client.put_object(**where, Body=data, IfMatch=f'"{etag}"', **self.encryption)
        except (PreconditionFailed, ObjectNotFound) as error:
            raise PreconditionFailed(f"object {key} in {self._where} was changed meanwhile") from error

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start` on. Raises ObjectNotFound, ObjectTooShort, Unavailable."""
        check_span(key, start, length)
        if not length:
            return b""
        wanted = f"bytes={start}-{start + length - 1}"
        with self.mapped(key):
            answer = self._client.get_object(Bucket=self._bucket, Key=self.full_key(key), Range=wanted)
            with closing(answer["Body"]) as body:
                check_answer(answer, key, start, length)
                data: bytes = body.read()
        return data

    def read_into(self, key: str, start: int, target: memoryview, stopped: Callable[[], bool]) -> float:
        """Fill `target` with the bytes from `start` on, piece by piece, until `stopped` returns True."""
        check_span(key, start, len(target))
        if not len(target):
            return 0.0
        wanted = f"bytes={start}-{start + len(target) - 1}"
        with self.mapped(key):
            answer = self._client.get_object(Bucket=self._bucket, Key=self.full_key(key), Range=wanted)
            with closing(answer["Body"]) as body:  # closes the connection of a reply that was not read to its end
                check_answer(answer, key, start, len(target))
                return fill(target, body.read, stopped, key)

    def head(self, key: str) -> ObjectInfo:
        """Return the metadata of an object. Raises ObjectNotFound, Unavailable."""
        with self.mapped(key):
            try:
                answer = self._client.head_object(Bucket=self._bucket, Key=self.full_key(key))
            except ClientError as error:
                self._explain(error, key)
                raise
        return ObjectInfo(key, answer["ContentLength"], answer["ETag"].strip('"'), _milliseconds(answer))

    def _explain(self, error: ClientError, key: str) -> None:
        """Ask again by GET, whose answer has the reason that HEAD cannot have: a missing key or bucket, a right, a token."""
        if is_unexplained(error):
            self._client.get_object(Bucket=self._bucket, Key=self.full_key(key), Range="bytes=0-0")["Body"].close()

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys start with `prefix`, by key. Raises Unavailable."""
        asked: dict[str, str] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        with self.mapped(prefix):
            while True:
                page = self._client.list_objects_v2(**asked)
                for each in page.get("Contents", ()):
                    key = each["Key"].removeprefix(self._prefix)
                    yield ObjectInfo(key, each["Size"], each["ETag"].strip('"'), _milliseconds(each))
                token = page.get("NextContinuationToken", "")
                if not page.get("IsTruncated", bool(token)):
                    return
                if token == asked.get("ContinuationToken", ""):  # boto3's paginator takes a missing one for the end
                    raise Unavailable(f"{self._where} lists a part of what it has, and does not say where it goes on")
                asked["ContinuationToken"] = token

    def delete(self, key: str) -> None:
        """Remove an object; idempotent. Raises Unavailable."""
        with self.mapped(key):
            self._client.delete_object(Bucket=self._bucket, Key=self.full_key(key))

    def close(self) -> None:
        """Close all connections; idempotent."""
        self._client.close()

    def mapped(self, key: str) -> AbstractContextManager[None]:
        """Raise what goes wrong in the context as a RangelogError that names this bucket."""
        return mapped(self._where, key)


def _milliseconds(answer: dict[str, Any]) -> int:
    """Return when an object was stored, by the store's clock."""
    stored = answer.get("LastModified")
    return int(stored.timestamp() * 1000) if stored is not None else 0


def _check_place(bucket: str, endpoint: str | None) -> None:
    """Check bucket and endpoint. Raises ConfigInvalid where one is not valid."""
    check_bucket(bucket)
    if endpoint is None:
        return
    try:
        parts = urlsplit(endpoint)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.username
    except ValueError:  # of the port
        good = False
    if not good:
        raise ConfigInvalid("bad endpoint in the tier URL: write endpoint=http://host:port or https://host")
