"""Opens an object store by its URL. Error messages never contain the URL, since it may contain secrets."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from rangelog_core.errors import ConfigInvalid, InvalidArgument, MissingExtra
from rangelog_core.tier_stores import parse_tier, store_of_key
from rangelog_tier import s3_encryption
from rangelog_tier.bucket_names import check_bucket
from rangelog_tier.encryption_keys import KeyProvider, keys_of_environment
from rangelog_tier.object_store import ObjectStore, check_key

_S3_OPTIONS = ("endpoint", "region", "create", *s3_encryption.OPTIONS)
_FILE_FORM = "file:///absolute/directory"
_S3_FORM = "s3://bucket/prefix?endpoint=http://host:port&region=name&create=true"


def open_object_store(url: str, *, create: bool = False, keys: KeyProvider | None = None) -> ObjectStore:
    """Open the object store at a URL.

    Credentials come from boto3's own chain, as does the region where the URL has none.

    Args:
        url: `file:///dir` or `s3://bucket/prefix?endpoint=http://host:port&region=name&create=true`; with `sse=AES256` or
            `sse=aws:kms&sse_key_id=…` the store is asked to encrypt what is uploaded.
        create: Make the directory, or the bucket of a URL with create=true, if it is missing. For who stores objects; a reader
            that made an empty place would take its own mistake for missing objects.
        keys: With which objects are decrypted, and what is written is encrypted. None: those that RANGELOG_ENCRYPTION_KEYS_DIR
            or RANGELOG_ENCRYPTION_KMS_KEY_ID names, where one is set.

    A tier URL with several stores (`rangelog_core.tier_stores`) is opened as one store.

    Raises:
        ConfigInvalid: The URL is not valid.
        MissingExtra: boto3 is not installed.
        Unavailable: The store cannot be reached.

    Example:
        ```python
        store = open_object_store("s3://my-bucket/logs?region=eu-central-1")
        ```
    """
    keys = keys or keys_of_environment()
    opened = _open(url, create=create)
    opened.encryption_keys = keys  # type: ignore[attr-defined]  # for object_cipher.cipher_of
    return opened


def _open(url: str, *, create: bool) -> ObjectStore:
    stores = parse_tier(url)
    if len(stores) > 1:
        from rangelog_tier.routed_store import RoutedStore

        for each in stores:
            store_location(each.url)
        return RoutedStore(stores, lambda each: _open_one(each.url, create=create and each == stores[-1]))
    return _open_one(stores[0].url, create=create)


def _open_one(url: str, *, create: bool) -> ObjectStore:
    try:
        parts = urlsplit(url)
    except ValueError:  # unbalanced brackets
        raise ConfigInvalid(f"bad tier URL: write {_FILE_FORM} or {_S3_FORM}") from None
    if parts.scheme == "file":
        from rangelog_tier.file_store import FileStore

        return FileStore(_directory(parts), create=create)
    if parts.scheme == "s3":
        options = _s3_options(parts)
        try:
            from rangelog_tier.s3_store import S3Store
        except ImportError as error:
            raise MissingExtra("an s3:// tier needs boto3: pip install 'rangelog[tier]'") from error
        return S3Store(
            parts.netloc,
            parts.path.strip("/"),
            endpoint=options.get("endpoint"),
            region=options.get("region"),
            create=create and options.get("create") == "true",
            encryption=s3_encryption.upload_arguments(options),
        )
    raise ConfigInvalid(f"bad tier URL: write {_FILE_FORM} or {_S3_FORM}")


def object_location(url: str, key: str) -> str:
    """Return where other programs find an object of a tier: a path, or s3://bucket/prefix/key. Raises ConfigInvalid.

    Example:
        >>> object_location("file:///a 7=s3://b", "manifests/1/flights.json")
        's3://b/manifests/1/flights.json'
    """
    return f"{store_location(store_of_key(parse_tier(url), key).url)}/{key}"


def store_location(url: str) -> str:
    """Return where other programs find the objects of a store: its directory, or s3://bucket/prefix.

    Of a tier with several stores it is the last one's; `object_location` has the place of each object.

    Raises:
        ConfigInvalid: The URL is not valid.

    Example:
        >>> store_location("s3://my-bucket/logs?region=eu-central-1"), store_location("file:///var/lib/tier")
        ('s3://my-bucket/logs', '/var/lib/tier')
    """
    try:
        parts = urlsplit(parse_tier(url)[-1].url)
    except ValueError:  # unbalanced brackets
        raise ConfigInvalid(f"bad tier URL: write {_FILE_FORM} or {_S3_FORM}") from None
    if parts.scheme == "file":
        return str(_directory(parts))
    if parts.scheme == "s3":
        _s3_options(parts)
        return f"s3://{parts.netloc}/{parts.path.strip('/')}".rstrip("/")
    raise ConfigInvalid(f"bad tier URL: write {_FILE_FORM} or {_S3_FORM}")


def _directory(parts: SplitResult) -> Path:
    path = unquote(parts.path)
    extra = parts.netloc not in ("", "localhost") or parts.query or parts.fragment
    if extra or not path.startswith("/") or "\0" in path:
        raise ConfigInvalid(f"bad tier URL: write {_FILE_FORM}")
    return Path(path)


def _s3_options(parts: SplitResult) -> dict[str, str]:
    given = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(given)
    unknown = [name for name in options if name not in _S3_OPTIONS]
    problem = ""
    if not parts.netloc:
        problem = "no bucket"
    elif "@" in parts.netloc or ":" in parts.netloc:  # half of a pair of credentials is one as well
        problem = "credentials and ports are not allowed in it, boto3 finds credentials in the environment, a profile or a role"
    elif unknown:
        problem = f"unknown option {unknown[0]!r}"
    elif len(options) < len(given):
        problem = "an option is there twice"
    elif options.get("create", "false") not in ("true", "false"):
        problem = "create is true or false"
    elif parts.fragment:
        problem = "a # ends it"
    else:
        problem = s3_encryption.problem_of(options)
    try:
        check_key(parts.path.strip("/") or "none")
    except InvalidArgument:
        problem = "a prefix is names with single slashes between them, without . and .."
    if problem:
        raise ConfigInvalid(f"bad tier URL: {problem}; write {_S3_FORM}")
    check_bucket(parts.netloc)
    return options
