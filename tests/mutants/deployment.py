"""Wrong choices about what pods of Kubernetes do: certificates that a job keeps, a lead handed over, who may be evicted."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_KEEPING, _KEPT, _API = (
    "rangelog_cli.certs.keeping",
    "rangelog_cli.certs.kept_secrets",
    "rangelog_cli.certs.kubernetes_api",
)
_JOB, _AWAY, _ANY = "cli/certs/test_kept_secrets.py", "pdctl/test_pdctl_handing_over.py", "pdctl/test_pdctl_spare.py"

DEPLOYMENT: tuple[Mutant, ...] = (
    rare("authority-made-in-silence", "a lost authority is made anew, and every client is cut off", _KEEPING,
         "        if PREVIOUS not in held and any(each.get(CERTIFICATE) for each in leaves):\n", "        if False:\n", _JOB),
    rare("certificates-before-trust", "a new authority's certificates are there before their peers have heard of it", _KEEPING,
         "    if is_new and any(_signed_by(found, each) for each in trust.previous):\n", "    if False:\n", _JOB),
    rare("strangers-settle", "for an hour a new authority keeps certificates of anybody", _KEEPING,
         "    if is_new and any(_signed_by(found, each) for each in trust.previous):\n", "    if is_new:\n", _JOB),
    rare("renewed-when-it-is-late", "certificates are renewed once they have expired", _KEEPING,
         "    if left < plan.renew_before:\n", "    if left <= timedelta(0):\n", _JOB),
    rare("authority-ends", "the authority is left to expire, and all certificates with it", _KEEPING,
         "        if _end(signer.certificate) - now < (_end(signer.certificate) - begins) / 3:\n", "        if False:\n", _JOB),
    rare("conflict-ends-the-job", "of two jobs at once one fails", _KEPT,
         "        except PreconditionFailed as error:\n            raise _Changed(error.message) from error\n",
         "        except PreconditionFailed:\n            raise\n", _JOB),
    rare("api-server-unchecked", "a job tells its token to whoever answers", _API,
         '            self._context = ssl.create_default_context(cafile=str(account / "ca.crt"))\n',
         '            self._context = ssl._create_unverified_context(cafile=str(account / "ca.crt"))\n', _JOB),
    rare("token-into-headers", "a file with line ends writes headers of a request", _API,
         "    if not _WORD.fullmatch(found):\n", "    if False:\n", _JOB),
    rare("leads-back", "a leader that is to stop hands over to itself", "pdctl.members.handing_over",
         " and each.name != leaving]", "]", _AWAY),
    rare("followers-move-the-lead", "each restart of a follower moves the lead", "pdctl.members.handing_over",
         "            if leader != leaving:\n", "            if False:\n", _AWAY),
    rare("evicts-while-short", "a range server is evicted while ranges lack copies", "pdctl.spare",
         "    if described.under_replicated_range_count:\n", "    if False:\n", _ANY),
    rare("nobody-is-ever-evicted", "a cluster that has any trouble can never be maintained", "pdctl.spare",
         "    if not described.health:\n", '    if described.health != "healthy":\n', _ANY),
    rare("group-reads-keys", "a key is used that a group of people may read", "rangelog_core.key_files",
         "    of_root = told.st_uid == 0 and os.geteuid() != 0\n", "    of_root = True\n", "core/test_key_files.py"),
)  # fmt: skip
