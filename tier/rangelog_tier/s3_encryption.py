"""Server-side encryption of S3 objects, as the tier URL asks for it: `sse=AES256`, or `sse=aws:kms&sse_key_id=…`.

What holds: the store encrypts and decrypts, with keys that it has or that its key service has; who reads sends nothing. A value
that S3 would not take is refused when the URL is read, before anything is stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

OPTIONS = ("sse", "sse_key_id")
S3_KEYS, KMS_KEYS = "AES256", "aws:kms"
_KEY_ID = re.compile(r"[A-Za-z0-9:/_.-]{1,2048}")
"""A key's id, its alias as alias/name, or an ARN of either."""


def problem_of(options: Mapping[str, str]) -> str:
    """Return what is wrong with these options of a tier URL, and what to write; "" when nothing is."""
    sse, key_id = options.get("sse"), options.get("sse_key_id")
    if sse is not None and sse not in (S3_KEYS, KMS_KEYS):
        return f"sse is {S3_KEYS} or {KMS_KEYS}"
    if key_id is not None and sse != KMS_KEYS:
        return f"sse_key_id names a key of the key service: it needs sse={KMS_KEYS}"
    if key_id is not None and not _KEY_ID.fullmatch(key_id):
        return "sse_key_id is the id, alias/name or ARN of a key; leave it out for the bucket's own key"
    return ""


def upload_arguments(options: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments of boto3 with which an upload is begun.

    Example:
        >>> upload_arguments({"sse": "aws:kms", "sse_key_id": "alias/logs"})
        {'ServerSideEncryption': 'aws:kms', 'SSEKMSKeyId': 'alias/logs'}
    """
    names = {"sse": "ServerSideEncryption", "sse_key_id": "SSEKMSKeyId"}
    return {name: options[option] for option, name in names.items() if option in options}
