"""Keeps the Secrets of a plan: reads them, decides by `keeping`, writes what has to change.

What holds: the authority is written before any certificate of it, so a run that ends in between leaves none of an unknown one.
Where another run, or a person, writes at the same time, all is read and decided again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from rangelog_cli.certs.keeping import keep_authority, keep_certificate
from rangelog_cli.certs.kubernetes_api import Secret
from rangelog_cli.certs.secret_plan import CertificatePlan
from rangelog_core.errors import PreconditionFailed

TRIES = 5
PAUSE_S = 1.0


class Secrets(Protocol):
    """Where Secrets are."""

    def read(self, name: str) -> Secret:
        """Return a Secret."""

    def write(self, secret: Secret, data: Mapping[str, bytes]) -> None:
        """Give it other contents. Raises PreconditionFailed where it was changed since it was read."""


class _Changed(Exception):
    """Somebody else wrote."""


def keep_secrets(secrets: Secrets, plan: CertificatePlan, show: Callable[[str], None]) -> int:
    """Make every Secret of a plan hold what it should; return how many were changed. `show` gets a line for each.

    Raises PreconditionFailed: others write all the time, or the authority is gone; and as `read` and `write`.
    """
    changed = 0

    def write(secret: Secret, data: Mapping[str, bytes], why: str) -> None:
        nonlocal changed
        try:
            secrets.write(secret, data)
        except PreconditionFailed as error:
            raise _Changed(error.message) from error
        changed += 1
        show(f"{secret.name}: {why}")

    for left in reversed(range(TRIES)):
        try:
            _keep(secrets, plan, write)
        except _Changed as error:
            if not left:
                raise PreconditionFailed(f"{error}, in each of {TRIES} tries: run it again") from error
            time.sleep(PAUSE_S)
        else:
            break
    return changed


def _keep(secrets: Secrets, plan: CertificatePlan, write: Callable[[Secret, Mapping[str, bytes], str], None]) -> None:
    held = {each.secret: secrets.read(each.secret) for each in plan.certificates}
    authority = secrets.read(plan.authority)
    now = datetime.now(UTC)
    trust, change = keep_authority(plan, authority.data, [each.data for each in held.values()], now)
    if change is not None:
        write(authority, change.data, change.why)
    for wanted in plan.certificates:
        found = held[wanted.secret]
        change = keep_certificate(plan, wanted, found.data, trust, now)
        if change is not None:
            write(found, change.data, change.why)
