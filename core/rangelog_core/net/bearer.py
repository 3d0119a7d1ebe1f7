"""The certificate of who has none, and shows a token: it is public, with its key, and stands for no principal.

gRPC for Python has no port where a client's certificate is optional: it is required, or never asked for. So a client without
one shows this one, and ports that accept tokens trust it, beside the authorities. What holds: its holder is known by the token
alone; it is the certificate of no authority, so nothing that its key signs is accepted; no other port trusts it.
"""

from __future__ import annotations

from collections.abc import Sequence

BEARER_URI = "rangelog://bearer"
"""Its one URI. It is of no role, so whatever asks for a principal refuses it."""

BEARER_CERTIFICATE = b"""\
-----BEGIN CERTIFICATE-----
MIIBjzCCATWgAwIBAgIUBs3hElg5HGgMoreR8hlxq7Moo2UwCgYIKoZIzj0EAwIw
HDEaMBgGA1UEAwwRYmVhcmVyIG9mIGEgdG9rZW4wIBcNMjAwMTAxMDAwMDAwWhgP
MjEyMDAxMDEwMDAwMDBaMBwxGjAYBgNVBAMMEWJlYXJlciBvZiBhIHRva2VuMFkw
EwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEnBkFg5FDLLKPZqVowswtWv7qCqvTpo0d
m57cRicmxjeAUltwVav0Mr2mjgyxF572vF6tavYF1EuHonXKcZICzaNTMFEwDAYD
VR0TAQH/BAIwADAOBgNVHQ8BAf8EBAMCB4AwEwYDVR0lBAwwCgYIKwYBBQUHAwIw
HAYDVR0RBBUwE4YRcmFuZ2Vsb2c6Ly9iZWFyZXIwCgYIKoZIzj0EAwIDSAAwRQIh
AMHJpA/YDR2RnNSaHCAWon0LBIvl6DYRuG6erJvtqk9gAiBSjElKNm20B6ZN9UPu
vnorfNq/3+gN40mViaqNCkNBmA==
-----END CERTIFICATE-----
"""

BEARER_KEY = b"""\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgT153nz5sVhoW5xJj
8KbREBkfIqIcY8SzZsKyZEjvdZChRANCAAScGQWDkUMsso9mpWjCzC1a/uoKq9Om
jR2bntxGJybGN4BSW3BVq/QyvaaODLEXnva8Xq1q9gXUS4eidcpxkgLN
-----END PRIVATE KEY-----
"""


def is_bearer(uris: Sequence[str]) -> bool:
    """Whether a certificate with these URIs is this one."""
    return list(uris) == [BEARER_URI]
