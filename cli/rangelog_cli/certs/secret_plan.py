"""Which Secrets of Kubernetes are to hold which certificates: the plan that the chart writes for `rangelog certs secrets`.

What holds: a plan that is parsed names each Secret once, no certificate outlives what clocks and authorities bear, and each is
renewed before it ends. Sizes are bounded; whatever else is in the file is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rangelog_cli.certs.authority import parse_principal
from rangelog_cli.certs.making import names_of
from rangelog_core.errors import ConfigInvalid, RangelogError
from rangelog_core.net.principals import Principal

PLAN_BYTES_MAX = 1024 * 1024
CERTIFICATES_MAX = 5_000
HOSTS_MAX = 20
LIFETIME_MIN, LIFETIME_MAX = timedelta(hours=1), timedelta(days=825)
_SECRET_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_DURATION = re.compile(r"([1-9][0-9]{0,8})(h|m|s)")
_SECONDS = {"h": 3600, "m": 60, "s": 1}


@dataclass(frozen=True, slots=True)
class WantedCertificate:
    """One Secret: a principal's certificate, key, and the authorities to trust."""

    secret: str
    principal: Principal
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CertificatePlan:
    """What `rangelog certs secrets` keeps. `authority`: the Secret of the authority, which no pod mounts."""

    authority: str
    certificates: tuple[WantedCertificate, ...]
    lifetime: timedelta
    renew_before: timedelta


def parse_plan(text: bytes) -> CertificatePlan:
    """Return the plan in a JSON document. Raises ConfigInvalid.

    Example:
        >>> parse_plan(b'{"authority": "a", "duration": "2160h", "renew_before": "720h", "certificates": []}').lifetime.days
        90
    """
    if len(text) > PLAN_BYTES_MAX:
        raise ConfigInvalid(f"the plan has more than {PLAN_BYTES_MAX:,} bytes")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid(f"the plan is no JSON: {error}") from error
    _check_keys(found, "the plan", {"authority", "duration", "renew_before", "certificates"})
    listed = found["certificates"]
    if not isinstance(listed, list) or len(listed) > CERTIFICATES_MAX:
        raise ConfigInvalid(f"certificates of the plan is not a list of at most {CERTIFICATES_MAX:,}")
    plan = CertificatePlan(
        authority=_secret(found["authority"]),
        certificates=tuple(_wanted(each) for each in listed),
        lifetime=_duration(found, "duration"),
        renew_before=_duration(found, "renew_before"),
    )
    names = [plan.authority, *(each.secret for each in plan.certificates)]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigInvalid(f"the plan names Secret {twice} twice")
    if not LIFETIME_MIN <= plan.lifetime <= LIFETIME_MAX:
        raise ConfigInvalid(f"duration of the plan is not within 1 hour and {LIFETIME_MAX.days} days")
    if plan.renew_before >= plan.lifetime:
        raise ConfigInvalid("renew_before of the plan is not less than duration: each run would renew everything")
    return plan


def _wanted(each: Any) -> WantedCertificate:
    _check_keys(each, "a certificate of the plan", {"secret", "role", "name", "hosts"})
    secret, hosts = _secret(each["secret"]), each["hosts"]
    if not isinstance(hosts, list) or len(hosts) > HOSTS_MAX or not all(isinstance(host, str) for host in hosts):
        raise ConfigInvalid(f"hosts of Secret {secret} is not a list of at most {HOSTS_MAX} names")
    if not (isinstance(each["role"], str) and isinstance(each["name"], str)):
        raise ConfigInvalid(f"role or name of Secret {secret} is not text")
    try:
        principal = parse_principal(each["role"], each["name"])
        names_of(principal, hosts)
        return WantedCertificate(secret, principal, tuple(hosts))
    except RangelogError as error:
        raise ConfigInvalid(f"Secret {secret}: {error.message}") from error


def _check_keys(found: Any, what: str, keys: set[str]) -> None:
    if not isinstance(found, Mapping) or set(found) != keys:
        raise ConfigInvalid(f"{what} is not an object with the keys {', '.join(sorted(keys))}")


def _secret(name: Any) -> str:
    if not isinstance(name, str) or not _SECRET_NAME.fullmatch(name):
        raise ConfigInvalid(f"{str(name)[:100]!r} is no name of a Secret")
    return name


def _duration(found: Mapping[str, Any], key: str) -> timedelta:
    match = _DURATION.fullmatch(found[key]) if isinstance(found[key], str) else None
    if match is None:
        raise ConfigInvalid(f"{key} of the plan is not a number of hours, minutes or seconds, as in 2160h")
    return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
