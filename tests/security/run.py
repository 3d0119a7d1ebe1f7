"""`make security`: a real cluster with TLS, every caller at every port, every role at every call; one line of figures."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rangelog_cli.certs.authority import Authority
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.metrics_ports import enable_metrics
from rangelog_cli.local.page_ports import enable_page
from rangelog_cli.local.processes import Cluster
from tests.security.matrix import check
from tests.security.rights import check_rights
from tests.security.tokens import SETTINGS, check_tokens
from tests.support.certificates import TestCertificates
from tests.support.held_loops import long_holds
from tests.support.openings import everything_opens


async def _opens(cluster: Cluster) -> str:
    try:
        await everything_opens(cluster)
    except AssertionError as error:
        return str(error)
    return "opens"


def main() -> int:
    """Return 0 when every cell is as expected."""
    directory = Path(tempfile.mkdtemp(prefix="rangelog-security-"))
    try:
        made = Cluster.open(
            directory / "cluster", pds=3, range_servers=3, brokers=2, tls=True, doors=("http",), env=SETTINGS
        )
        enable_metrics(made)
        enable_page(made)
        with made as cluster:
            wait_healthy(cluster)
            certificates = TestCertificates(directory, Authority.open(directory / "cluster" / "certs"))
            outcome = asyncio.run(check(cluster, certificates))
            asyncio.run(check_tokens(cluster, certificates, outcome))
            asyncio.run(check_rights(cluster, certificates, outcome))
            opens = asyncio.run(_opens(cluster))
            outcome.expect("everything that brokers own, after all of that", "opens", opens)
            outcome.expect("event loops held for long", "[]", str(long_holds(cluster.directory / "logs")))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for each in outcome.wrong:
        print("wrong:", each)
    for each in outcome.plaintext_ports:
        print("plaintext:", each)
    print(outcome.line())
    return 1 if outcome.wrong or outcome.plaintext_ports else 0


if __name__ == "__main__":
    sys.exit(main())
