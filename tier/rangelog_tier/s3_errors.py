"""Errors of boto3 and of an S3 server, as errors that name the cause and what to do about it.

What holds: only an S3 error that says "no such key" is ObjectNotFound; credentials, rights, expired tokens and clocks are
AccessDenied, everything else that may pass is Unavailable. A message is one line, without the URL and without secrets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
    SSLError,
    SSOError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

from rangelog_core.errors import (
    AccessDenied,
    ConfigInvalid,
    ObjectNotFound,
    PreconditionFailed,
    RangelogError,
    Unavailable,
)
from rangelog_tier.object_store import ObjectTooShort

_TAKEN = ("PreconditionFailed", "412", "BucketAlreadyOwnedByYou", "BucketAlreadyExists")
_WRONG_CREDENTIALS = (
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidClientTokenId", "UnrecognizedClientException",
    "AuthFailure", "XAdminUserNotFound",
)  # fmt: skip
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired")
_SKEWED = ("RequestTimeTooSkewed", "RequestExpired")
_DENIED = (
    "AccessDenied", "AccessDeniedException", "AllAccessDisabled", "AccountProblem", "Forbidden", "Unauthorized",
    "UnauthorizedAccess", "401", "403",
)  # fmt: skip
_ELSEWHERE = (
    "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraintException",
    "InvalidRegionName", "IncorrectEndpoint", "301", "302", "307", "308",
)  # fmt: skip
_BUSY = ("SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout")


@contextmanager
def mapped(where: str, key: str) -> Iterator[None]:
    """Raise what goes wrong in the context as a RangelogError. `where` names the bucket and its endpoint."""
    try:
        yield
    except ClientError as error:
        raise of_answer(error, where, key) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise ConfigInvalid(
            f"no credentials for {where}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile or role"
        ) from error
    except (CredentialRetrievalError, SSOError, TokenRetrievalError) as error:
        raise AccessDenied(
            f"the credentials for {where} cannot be loaded: check the profile or the role, or log in again"
        ) from error
    except SSLError as error:
        raise Unavailable(_tls(str(error), where)) from error
    except ReadTimeoutError as error:
        raise Unavailable(f"{where} did not answer in time: check the network, or try again") from error
    except BotoCoreError as error:
        raise Unavailable(f"{where} cannot be reached: check the endpoint in the tier URL") from error
    except (KeyError, ResponseParserError) as error:
        raise Unavailable(f"{where} is not an S3 server: check the endpoint in the tier URL") from error
    except RecursionError as error:  # boto3 follows redirects for the region, and asks for it again
        raise Unavailable(f"{where} redirects without end: check endpoint and region in the tier URL") from error
    except OSError as error:
        raise Unavailable(f"the file for object {key} cannot be read: {error.strerror}") from error


def code_of(error: ClientError) -> str:
    """Return the code of an S3 error; a number where the server sent none, as in its answer to HEAD."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_unexplained(error: ClientError) -> bool:
    """Whether the answer has a status and no S3 error: always so with HEAD, otherwise of what is no S3 server."""
    code = code_of(error)
    return not code or code.isdecimal()


def of_answer(error: ClientError, where: str, key: str) -> RangelogError:
    """Return the error that an S3 server's refusal is."""
    code = code_of(error)
    if code == "NoSuchKey":
        return ObjectNotFound(f"there is no object {key} in {where}")
    if code == "NoSuchBucket":
        return Unavailable(
            f"there is no bucket at {where}: create it, or add create=true to the placement drivers' tier URL"
        )
    if code in _TAKEN:
        return PreconditionFailed(f"object {key} exists already in {where}")
    if code == "ConditionalRequestConflict":  # two at once: the key may turn out to be taken
        return Unavailable(f"another request for object {key} in {where} is in progress: try again")
    if code in ("InvalidRange", "416"):
        return ObjectTooShort(f"object {key} is shorter than the requested span")
    return _of_key(error, code, where, key) or _of_access(error, code, where, key) or _of_place(error, code, where, key)


def _of_key(error: ClientError, code: str, where: str, key: str) -> RangelogError | None:
    """Return the error of an encryption key that may not, or cannot, be used; None where it is about no key."""
    said = str(error.response.get("Error", {}).get("Message", ""))
    if code in _DENIED and "kms:" in said.lower():
        return AccessDenied(
            f"{where} may not use the encryption key of {key} ({code}): give these credentials kms:Decrypt on the key to "
            "read, and kms:GenerateDataKey, too, to store"
        )
    if not code.lower().startswith("kms"):
        return None
    if "AccessDenied" in code:
        return AccessDenied(
            f"{where} denies the use of the encryption key of {key} ({code}): look at the key's policy and grants"
        )
    if "Throttling" in code:
        return Unavailable(f"the key service of {where} is busy ({code}): try again")
    return Unavailable(
        f"the encryption key of {key} in {where} cannot be used ({code}): is it enabled, in the bucket's region, and is "
        "sse_key_id in the tier URL right?"
    )


def _of_access(error: ClientError, code: str, where: str, key: str) -> RangelogError | None:
    """Return AccessDenied for an error of permissions, else None."""
    if code in _WRONG_CREDENTIALS:
        return AccessDenied(
            f"{where} does not accept the credentials ({code}): check the access key and its secret key"
        )
    if code in _EXPIRED:
        return AccessDenied(
            f"the credentials for {where} have expired ({code}): get new ones, or log in again, and restart who has the old"
        )
    if code in _SKEWED:
        return AccessDenied(f"{where} refuses the time of the request ({code}): set the clock of this machine")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _DENIED or status in (401, 403):
        return AccessDenied(
            f"{where} denies access to {key} ({code}): check the credentials and the bucket's policy; without the right "
            "s3:ListBucket it says so of a missing object, too"
        )
    return None


def _of_place(error: ClientError, code: str, where: str, key: str) -> RangelogError:
    """Return the error of a request at the wrong place, of a busy server, or of one that is no S3."""
    if code in _ELSEWHERE:
        region = error.response.get("Error", {}).get("Region") or _header(error, "x-amz-bucket-region")
        hint = f"region={region}" if region and str(region).replace("-", "").isalnum() else "region=…"
        return Unavailable(
            f"{where} is in another region, or at another endpoint ({code}): write {hint} into the tier URL"
        )
    if code in _BUSY:
        return Unavailable(f"{where} is busy or failing ({code}): try again")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if is_unexplained(error):
        return Unavailable(
            f"{where} answered {code or status} without an S3 error: is it an S3 server? Check the endpoint in the tier URL"
        )
    return Unavailable(f"{where} answered {code} for {key}")


def _header(error: ClientError, name: str) -> str:
    return str(error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get(name, ""))


def _tls(text: str, where: str) -> str:
    if "WRONG_VERSION_NUMBER" in text or "wrong version number" in text:
        return f"{where} does not speak TLS: write endpoint=http://… into the tier URL"
    if "certificate verify failed" in text.lower() or "CERTIFICATE_VERIFY_FAILED" in text:
        return (
            f"the certificate of {where} is not trusted: set AWS_CA_BUNDLE to its CA's file, and check the host's name"
        )
    return f"TLS with {where} failed: check the endpoint in the tier URL, and AWS_CA_BUNDLE"
