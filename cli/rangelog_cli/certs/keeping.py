"""What has to be in the Secrets of a plan, given what is in them now. No I/O: contents and the time come in, contents go out.

What holds: a certificate that is good is left alone, so a run that finds nothing to do changes nothing. The authority is made
once; it is made anew only where none of its certificates is left, or where an operator put it aside under `previous.crt`. Then
everybody trusts the new one before a good certificate is replaced by one of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from rangelog_cli.certs.making import BACKDATED, Pair, make_authority, make_certificate, names_of, prolong_authority
from rangelog_cli.certs.secret_plan import CertificatePlan, WantedCertificate
from rangelog_core.errors import ConfigInvalid, PreconditionFailed

CA, CERTIFICATE, KEY, PREVIOUS = "ca.crt", "tls.crt", "tls.key", "previous.crt"
SETTLE = timedelta(hours=1)
"""In so long every pod has heard of a new authority: mounted Secrets follow within minutes."""

Data = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SecretChange:
    """What a Secret is to have, and why."""

    data: Data
    why: str


@dataclass(frozen=True, slots=True)
class Trust:
    """The authority that signs, those before it, and all of them as PEM."""

    signer: Pair
    previous: tuple[x509.Certificate, ...]
    bundle: bytes


def keep_authority(
    plan: CertificatePlan, held: Data, leaves: Iterable[Data], now: datetime
) -> tuple[Trust, SecretChange | None]:
    """Return the authority of a plan, and what its Secret is to have, None where that is there.

    `leaves`: what the plan's other Secrets have. Raises ConfigInvalid: it is damaged; PreconditionFailed: it is gone,
    and its certificates are in use.
    """
    previous = tuple(each for each in _certificates(plan.authority, held.get(PREVIOUS, b"")) if _end(each) > now)
    why = ""
    if not held.get(CERTIFICATE) and not held.get(KEY):
        if PREVIOUS not in held and any(each.get(CERTIFICATE) for each in leaves):
            raise PreconditionFailed(
                f"Secret {plan.authority} has no authority, and certificates of one are in use: bring it back from a copy, or "
                f"give ca.crt of the former one under {PREVIOUS}, and a new one is made beside it"
            )
        signer, why = make_authority(now), "made an authority"
    else:
        try:
            signer = Pair.parse(held.get(CERTIFICATE, b""), held.get(KEY, b""))
        except ConfigInvalid as error:
            raise ConfigInvalid(f"Secret {plan.authority}: {error.message}: bring it back from a copy") from error
        begins = signer.certificate.not_valid_before_utc
        if _end(signer.certificate) - now < (_end(signer.certificate) - begins) / 3:
            signer, why = prolong_authority(signer, now), "prolonged the authority"
    bundle = b"".join([signer.certificate_pem, *(Pair.pem_of(each) for each in previous)])
    data = {CA: bundle, CERTIFICATE: signer.certificate_pem, KEY: signer.key_pem}
    if PREVIOUS in held:
        data[PREVIOUS] = held[PREVIOUS]
    trust = Trust(signer, previous, bundle)
    return trust, None if data == dict(held) else SecretChange(data, why or "wrote down whom to trust")


def keep_certificate(
    plan: CertificatePlan, wanted: WantedCertificate, held: Data, trust: Trust, now: datetime
) -> SecretChange | None:
    """Return what a Secret is to have, None where that is there. Raises InvalidArgument: a host is no name."""
    why = _why_renew(plan, wanted, held, trust, now)
    if why:
        made = make_certificate(trust.signer, wanted.principal, now, plan.lifetime, wanted.hosts)
        return SecretChange({CA: trust.bundle, CERTIFICATE: made.certificate_pem, KEY: made.key_pem}, f"issued: {why}")
    if held.get(CA) != trust.bundle:
        return SecretChange({**held, CA: trust.bundle}, "trusts other authorities now")
    return None


def _why_renew(plan: CertificatePlan, wanted: WantedCertificate, held: Data, trust: Trust, now: datetime) -> str:
    """Return why a certificate has to be issued, "" where it is good."""
    if not held.get(CERTIFICATE) or not held.get(KEY):
        return "there was none"
    try:
        found = Pair.parse(held[CERTIFICATE], held[KEY]).certificate
    except ConfigInvalid as error:
        return error.message
    left = _end(found) - now
    if left < plan.renew_before:
        return "it had expired" if left <= timedelta(0) else f"it expired within {left.days} days"
    if _names(found) != names_of(wanted.principal, wanted.hosts):
        return "it named another process, or other hosts"
    if _signed_by(found, trust.signer.certificate):
        return ""
    is_new = now < trust.signer.certificate.not_valid_before_utc + BACKDATED + SETTLE
    if is_new and any(_signed_by(found, each) for each in trust.previous):
        return ""  # its peers may not have heard of the new one yet: a later run issues it
    return "it was of another authority"


def _names(certificate: x509.Certificate) -> tuple[x509.Name, list[x509.GeneralName]]:
    try:
        alternative = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        alternative = []
    return certificate.subject, alternative


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _certificates(secret: str, pem: bytes) -> list[x509.Certificate]:
    if not pem.strip():
        return []
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise ConfigInvalid(f"Secret {secret}: {PREVIOUS} is not PEM of certificates") from error


def _end(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_after_utc
