"""Encryption by the store, as the tier URL asks for it: what is sent, and what is refused before anything is stored."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import ConfigInvalid
from rangelog_tier import open_object_store
from rangelog_tier.opening import store_location
from rangelog_tier.s3_store import S3Store


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of this machine's."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ("", {}),
        ("sse=AES256", {"ServerSideEncryption": "AES256"}),
        ("sse=aws:kms", {"ServerSideEncryption": "aws:kms"}),
        ("sse=aws%3Akms&sse_key_id=alias%2Flogs", {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/logs"}),
        ("region=eu-central-1&sse=aws:kms&sse_key_id=arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab",
         {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab"}),
    ],
)  # fmt: skip
def test_what_is_sent(options: str, sent: dict[str, str]) -> None:
    """With each upload; the place is the same with and without."""
    store = open_object_store(f"s3://bucket/logs?{options}")
    assert isinstance(store, S3Store) and store.encryption == sent
    store.close()
    assert store_location(f"s3://bucket/logs?{options}") == "s3://bucket/logs"


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ("sse=aes256", "sse is AES256 or aws:kms"),
        ("sse=", "sse is AES256 or aws:kms"),
        ("sse=aws:kms:dsse", "sse is AES256 or aws:kms"),
        ("sse=AES256&sse_key_id=k", "it needs sse=aws:kms"),
        ("sse_key_id=k", "it needs sse=aws:kms"),
        ("sse=aws:kms&sse_key_id=", "is the id, alias/name or ARN of a key"),
        ("sse=aws:kms&sse_key_id=a%0Ab", "is the id, alias/name or ARN of a key"),
        ("sse=aws:kms&sse_key_id=" + "k" * 3_000, "is the id, alias/name or ARN of a key"),
        ("sse=aws:kms&sse=AES256", "an option is there twice"),
        ("sse_customer_key=c2VjcmV0", "unknown option 'sse_customer_key'"),
    ],
)
@pytest.mark.parametrize("call", [open_object_store, store_location])
def test_what_is_refused(call: Any, options: str, advice: str) -> None:
    """One line that says what to write, and repeats no value."""
    with pytest.raises(ConfigInvalid, match=advice) as caught:
        call(f"s3://bucket/logs?{options}")
    assert (
        "\n" not in caught.value.message
        and "c2VjcmV0" not in caught.value.message
        and "kkk" not in caught.value.message
    )
