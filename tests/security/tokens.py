"""Tokens in the matrix: good and bad ones at every port of a real cluster, and a good one at every call."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rangelog_cli.local.processes import Cluster
from rangelog_core.net.channels import open_channel
from rangelog_core.net.principals import Port, Role
from rangelog_core.net.tls import TlsConfig
from rangelog_pd.token_signer import TokenSigner
from rangelog_proto.v1 import tokens_pb2
from tests.security.matrix import CALLS, ROLES_OF_PORTS, Outcome, Target, call, knock, methods_of, targets_of
from tests.security.rights import HEARTBEATS_S, pdctl
from tests.support.certificates import TestCertificates
from tests.support.waiting import eventually

SETTINGS = {f"RANGELOG_{role}_TOKENS": "true" for role in ("PD", "SERVER", "BROKER")}
"""The environment of processes that accept tokens."""
TOKEN_PORTS = (
    Port.PD_API, Port.RANGE_DATA, Port.BROKER_DATA, Port.BROKER_CONTROL, Port.BROKER_REST, Port.BROKER_HTTP, Port.PD_PAGE,
)  # fmt: skip


async def check_tokens(cluster: Cluster, certificates: TestCertificates, outcome: Outcome) -> None:
    """Check every cell. `certificates`: of the cluster's own authority."""
    good = await asyncio.to_thread(create, cluster, "matrix")
    revoked = await asyncio.to_thread(create, cluster, "matrix-revoked")
    await asyncio.to_thread(_run, cluster, "revoke", "matrix-revoked")
    ca = Path(certificates.tls("client").ca)
    targets = list(targets_of(cluster))
    await _until_known(targets, ca, good, revoked)
    head, claims, signature = good.split(".")
    kinds = {
        "token": good,
        "revoked token": revoked,
        "cut token": good[:-6],
        "token by another key": f"{head}.{claims}.{foreign().rpartition('.')[2]}",
        "token of another cluster": foreign(),
        "token with none": f"eyJhbGciOiJub25lIn0.{claims}.",
        "signature for other claims": f"{head}.{foreign().split('.')[1]}.{signature}",
    }
    for target in targets:
        for kind, text in kinds.items():
            expected = "admitted" if kind == "token" and target.port in TOKEN_PORTS else "refused"
            met = await asyncio.to_thread(knock, target, None, ca, text)
            outcome.expect(f"{kind} at the {target.port} {target.process}", expected, met)
    for port in (Port.PD_API, Port.BROKER_CONTROL):
        target = next(each for each in targets if each.port is port)
        channel = open_channel(target.address, TlsConfig(str(ca)), target.server_role)
        for method, allowed in methods_of(CALLS[port]):
            may = Role.CLIENT in allowed.split() and Role.CLIENT in ROLES_OF_PORTS[port].split()
            for text, expected in ((good, "admitted" if may else "refused"), (revoked, "refused")):
                outcome.expect(f"token calls {method}", expected, await call(channel, method, text))
        await channel.close()


def create(cluster: Cluster, name: str) -> str:
    """Return the text of a new token of client:m."""
    return _run(cluster, "create", name, "--for", "client:m")


def foreign() -> str:
    """Return a token that another cluster has signed."""
    signer = TokenSigner()
    row = tokens_pb2.TokenRow(
        token_id="0123456789abcdef",
        principal="client:m",
        created_ms=1,
        expires_ms=1 << 42,
        key_id=signer.public().key_id,
    )
    text = signer.sign(row, "another cluster")
    assert text is not None
    return text


def _run(cluster: Cluster, *arguments: str) -> str:
    done = pdctl(cluster, "token", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


async def _until_known(targets: list[Target], ca: Path, good: str, revoked: str) -> None:
    """Wait until heartbeats have brought the key and the revocation to each server."""
    for target in targets:
        if target.port in TOKEN_PORTS:

            def known(target: Target = target) -> bool:
                return knock(target, None, ca, good) == "admitted" and knock(target, None, ca, revoked) == "refused"

            await asyncio.to_thread(eventually, known, f"{target} knows neither", HEARTBEATS_S + 30)
