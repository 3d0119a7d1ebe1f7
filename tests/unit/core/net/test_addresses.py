"""Addresses as host:port: a URL is refused with what to leave out."""

from __future__ import annotations

import pytest

from rangelog_core.errors import InvalidArgument
from rangelog_core.net.addresses import split_address
from rangelog_core.net.pd_client import PdClient


@pytest.mark.parametrize(
    ("address", "scheme"),
    [
        ("http://127.0.0.1:7100", "http://"),
        ("https://pd1.example.org:7100/", "https://"),
        ("HTTP://pd1", "HTTP://"),
        ("grpc://[::1]:7100", "grpc://"),
        ("tcp://pd1:7100", "tcp://"),
    ],
)
def test_a_url_is_no_address(address: str, scheme: str) -> None:
    """It is not an unknown host, which the resolver would make of it."""
    with pytest.raises(InvalidArgument, match=f"bad address '.*': write host:port, and leave out {scheme}$"):
        split_address(address)
    with pytest.raises(InvalidArgument, match=f"leave out {scheme}"):
        PdClient(["127.0.0.1:7100", address])


@pytest.mark.parametrize(
    ("address", "host"), [("http:7100", "http"), ("dns:///pd1:7100", "dns:///pd1"), ("[::1]:7100", "::1")]
)
def test_what_the_resolver_takes_stays_legal(address: str, host: str) -> None:
    """A host of such a name, gRPC's own schemes, and IPv6."""
    assert split_address(address) == (host, 7100)
