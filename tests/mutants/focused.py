"""The mutants of one part each, in the order in which they are tried."""

from __future__ import annotations

from tests.mutants.audit import AUDIT
from tests.mutants.consuming import CONSUMING
from tests.mutants.cursors import CURSORS
from tests.mutants.deployment import DEPLOYMENT
from tests.mutants.encryption import ENCRYPTION
from tests.mutants.event_files import EVENT_FILES
from tests.mutants.fetching import FETCHING
from tests.mutants.files import FILES
from tests.mutants.frames import FRAMES
from tests.mutants.groups import GROUPS
from tests.mutants.harness import HARNESS
from tests.mutants.inspection import INSPECTION
from tests.mutants.journals import JOURNALS
from tests.mutants.log_encryption import LOG_ENCRYPTION
from tests.mutants.members import MEMBERS
from tests.mutants.mutant import Mutant
from tests.mutants.operations import OPERATIONS
from tests.mutants.packing import PACKING
from tests.mutants.page import PAGE
from tests.mutants.placement import PLACEMENT
from tests.mutants.quotas import QUOTAS
from tests.mutants.repacks import REPACKS
from tests.mutants.repairs import REPAIRS
from tests.mutants.replication import REPLICATION
from tests.mutants.restores import RESTORES
from tests.mutants.rights import RIGHTS
from tests.mutants.sending import SENDING
from tests.mutants.spark import SPARK
from tests.mutants.submissions import SUBMISSIONS
from tests.mutants.takeovers import TAKEOVERS
from tests.mutants.tier import TIER
from tests.mutants.tls import TLS
from tests.mutants.tokens import TOKENS

FOCUSED: tuple[Mutant, ...] = (
    *HARNESS,
    *FILES,
    *REPACKS,
    *TAKEOVERS,
    *PACKING,
    *RESTORES,
    *RIGHTS,
    *TOKENS,
    *QUOTAS,
    *FRAMES,
    *AUDIT,
    *MEMBERS,
    *TIER,
    *ENCRYPTION,
    *LOG_ENCRYPTION,
    *TLS,
    *DEPLOYMENT,
    *PAGE,
    *OPERATIONS,
    *GROUPS,
    *FETCHING,
    *EVENT_FILES,
    *SENDING,
    *CONSUMING,
    *SUBMISSIONS,
    *JOURNALS,
    *REPAIRS,
    *REPLICATION,
    *CURSORS,
    *PLACEMENT,
    *INSPECTION,
    *SPARK,
)
