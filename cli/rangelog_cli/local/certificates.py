"""The certificates of a cluster on this machine: an authority in the cluster's directory, a pair for each process.

What holds: they are made at the first start with TLS, and again at a later one when they end soon.
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from rangelog_cli.local.plan import ClusterPlan
from rangelog_core.errors import ConfigInvalid
from rangelog_core.net.principals import Principal, Role
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.tls_rehearsal import own_certificate

ADMIN = Principal(Role.ADMIN, "local")
CLIENT = Principal(Role.CLIENT, "local")
PAGE = Principal(Role.ADMIN, "page")
"""By which the pages of the placement drivers ask the cluster."""
_RENEW_BEFORE_S = 30 * 24 * 3600


@dataclass(frozen=True, slots=True)
class LocalCertificates:
    """Where the files of a local cluster are."""

    directory: Path

    @classmethod
    def of(cls, cluster: Path, plan: ClusterPlan) -> LocalCertificates:
        """Return the certificates of a cluster's directory, those that are missing or end soon made anew."""
        from rangelog_cli.certs.authority import Authority

        found = cls(cluster / "certs")
        authority = Authority.open(found.directory) if (found.directory / "ca.pem").exists() else None
        authority = authority or Authority.create(found.directory)
        wanted = [(Principal(Role.PD, each.name), each.host) for each in plan.pds]
        wanted += [(Principal(Role.RANGE_SERVER, each.name), each.host) for each in plan.range_servers]
        wanted += [(Principal(Role.BROKER, each.name), each.host) for each in plan.brokers]
        for principal, host in [*wanted, (ADMIN, ""), (CLIENT, ""), (PAGE, "")]:
            if not _lasts(found.files(principal)):
                authority.issue(principal, found.directory, hosts=("localhost", host) if host else ())
        return found

    def files(self, principal: Principal) -> TlsConfig:
        """Return the files of a process or a user."""
        from rangelog_cli.certs.authority import paths_of

        return paths_of(principal, self.directory)


def _lasts(files: TlsConfig) -> bool:
    try:
        found = own_certificate(files.cert, files.key)
    except ConfigInvalid:
        return False
    return ssl.cert_time_to_seconds(found["notAfter"]) > time.time() + _RENEW_BEFORE_S
