"""Channels of gRPC: made on demand, made anew when certificates change, and what their failures say."""

from __future__ import annotations

import asyncio

import pytest

from rangelog_core.errors import HandshakeFailed, Unavailable
from rangelog_core.net import channels as channels_module
from rangelog_core.net import tls as tls_module
from rangelog_core.net.channels import Channels
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.principals import Port, Role
from rangelog_core.net.tls_errors import from_grpc, from_socket
from rangelog_proto.v1 import pd_pb2
from rangelog_proto.v1.pd_pb2_grpc import PlacementDriverStub
from tests.support.certificates import TestCertificates
from tests.unit.tls.ports import opened


async def test_new_files_make_new_channels(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call goes over one; the call in progress ends over the old one."""
    monkeypatch.setattr(tls_module, "LOOK_INTERVAL_S", 0.0)
    certificates = TestCertificates(tmp_path_factory.mktemp("certificates"))
    tls = certificates.tls("client")
    channels = Channels(tls, Role.PD)
    first = channels.stub("127.0.0.1:1", PlacementDriverStub)
    assert channels.stub("127.0.0.1:1", PlacementDriverStub) is first and len(channels) == 1
    old = channels.channel("127.0.0.1:1")
    closed = asyncio.Event()

    async def close(grace_s: float | None = None) -> None:
        assert grace_s == channels_module.OLD_CHANNEL_GRACE_S
        closed.set()

    monkeypatch.setattr(old, "close", close)
    certificates.tls("client")
    second = channels.stub("127.0.0.1:1", PlacementDriverStub)
    assert second is not first and channels.channel("127.0.0.1:1") is not old
    async with asyncio.timeout(5):
        await closed.wait()
    await channels.close()
    with pytest.raises(Unavailable, match="the client is closed"):
        channels.channel("127.0.0.1:1")


async def test_a_call_that_nobody_agrees_to_ends_soon(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A wrong certificate is not waited for until the deadline; one good member is enough."""
    certificates = TestCertificates(tmp_path_factory.mktemp("certificates"))
    good = certificates.tls("pd", "m1")
    async with opened(Port.PD_API, certificates.foreign("pd", "m1")) as bad, opened(Port.PD_API, good) as fine:
        pd = PdClient([f"127.0.0.1:{bad.number}"], tls=certificates.tls("client"))
        with pytest.raises(HandshakeFailed, match=r"the certificate of placement driver .* is not accepted"):
            await pd.call(pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=3_600)
        await pd.close()
        pd = PdClient([f"127.0.0.1:{bad.number}", f"127.0.0.1:{fine.number}"], tls=certificates.tls("client"))
        with pytest.raises(Exception, match="let in"):
            await pd.call(pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=60)
        await pd.close()


@pytest.mark.parametrize(
    "details", ["failed to connect to all addresses; last error: Connection refused", "", "Socket closed"]
)
def test_what_says_nothing_of_tls(details: str) -> None:
    """A server that is not there, and a connection that broke amid calls."""
    assert from_grpc(details, "x", None) is None
    assert from_socket(OSError("no route"), "x", None) is None
    assert from_socket(None, "x", None) is None
