"""Opens an object store by its URL."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from rangelog.errors import ConfigInvalid, MissingExtra
from rangelog.tier.object_store import ObjectStore

_S3_OPTIONS = ("endpoint", "region", "create")


def open_object_store(url: str) -> ObjectStore:
    """Open `file:///dir` or `s3://bucket/prefix?endpoint=http://host:port&region=name&create=true`.

    Raises ConfigInvalid, MissingExtra, Unavailable.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query:
            raise ConfigInvalid(f"bad tier URL {url!r}: write file:///absolute/directory")
        from rangelog.tier.file_store import FileStore

        return FileStore(Path(unquote(parts.path)))
    if parts.scheme == "s3":
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = [name for name in options if name not in _S3_OPTIONS]
        if unknown or not parts.netloc:
            what = f"unknown option {unknown[0]!r}" if unknown else "no bucket"
            raise ConfigInvalid(f"bad tier URL: {what}; write s3://bucket/prefix?endpoint=http://host:port&region=name")
        try:
            from rangelog.tier.s3_store import S3Store
        except ImportError as error:
            raise MissingExtra("an s3:// tier needs boto3: pip install 'rangelog[tier]'") from error
        return S3Store(
            parts.netloc,
            parts.path.strip("/"),
            endpoint=options.get("endpoint"),
            region=options.get("region"),
            create=options.get("create") == "true",
        )
    raise ConfigInvalid(f"bad tier URL {url!r}: write file:///directory or s3://bucket/prefix")
