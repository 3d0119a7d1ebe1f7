"""Keys in AWS KMS: data keys are wrapped and unwrapped by the service, and the keys never leave it.

What holds: each call has a time limit; a refusal is AccessDenied, a service that does not answer Unavailable, never the other
way round. Credentials, region and endpoint come from boto3's own chain (AWS_REGION, AWS_ENDPOINT_URL_KMS).
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

from rangelog_core.errors import (
    AccessDenied,
    ConfigInvalid,
    Corruption,
    EncryptionKeyMissing,
    MissingExtra,
    RangelogError,
    Unavailable,
)

CONTEXT = {"rangelog": "data-key"}
"""The encryption context: what was encrypted for something else is not taken for a data key."""
TIMEOUT_S = 5.0
_GONE = frozenset({"NotFoundException", "DisabledException", "KMSInvalidStateException", "InvalidArnException",
                   "IncorrectKeyException", "InvalidKeyUsageException"})  # fmt: skip
_REFUSED = frozenset({"AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException",
                      "ExpiredTokenException", "InvalidClientTokenId"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class KmsKeys:
    """The key of AWS KMS that wraps new data keys, by id, alias/name or ARN; and all that wrapped earlier ones. Needs boto3.

    An alias that is pointed at another key goes on unwrapping what the former one wrapped: the service knows each key itself.

    Example:
        ```python
        client = await rangelog.connect("10.0.0.1:7100", encryption_keys=rangelog.KmsKeys("alias/logs"))
        ```
    """

    key_id: str

    def current(self) -> str:
        """See KeyProvider."""
        return self.key_id

    def wrap(self, key_id: str, data_key: bytes) -> bytes:
        """See KeyProvider."""
        told = _call(key_id, "encrypt", KeyId=key_id, Plaintext=data_key, EncryptionContext=CONTEXT)
        return bytes(told["CiphertextBlob"])

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """See KeyProvider. Of an alias the service finds the key by what it wrapped."""
        named = {} if "alias/" in key_id else {"KeyId": key_id}
        told = _call(key_id, "decrypt", CiphertextBlob=wrapped, EncryptionContext=CONTEXT, **named)
        return bytes(told["Plaintext"])


def _call(key_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        raise MissingExtra("keys of AWS KMS need boto3: pip install 'rangelog[tier]'") from error
    try:
        found: dict[str, Any] = getattr(_client(os.getpid()), name)(**arguments)
        return found
    except ClientError as error:
        raise _error_of(key_id, error.response.get("Error", {}).get("Code", "")) from error
    except BotoCoreError as error:
        raise Unavailable(f"AWS KMS cannot be asked for encryption key {key_id!r}: {error}") from error


def _error_of(key_id: str, code: str) -> RangelogError:
    if code in _GONE:
        return EncryptionKeyMissing(f"AWS KMS has no encryption key {key_id!r} that may be used: {code}")
    if code in _REFUSED:
        return AccessDenied(f"AWS KMS refuses the use of encryption key {key_id!r} ({code}): kms:Encrypt, kms:Decrypt")
    if code == "InvalidCiphertextException":
        return Corruption(f"a data key that encryption key {key_id!r} wraps was changed, or is not of this key")
    return Unavailable(f"AWS KMS fails for encryption key {key_id!r}: {code}")


@functools.lru_cache(maxsize=1)
def _client(_process: int) -> Any:
    """Return this process's client: one that was made before a fork shares its connections."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import NoRegionError

    limits = Config(
        connect_timeout=TIMEOUT_S, read_timeout=TIMEOUT_S, retries={"total_max_attempts": 3, "mode": "standard"}
    )
    try:
        return boto3.client("kms", config=limits)
    except NoRegionError as error:
        raise ConfigInvalid("AWS KMS needs a region: set AWS_REGION") from error
