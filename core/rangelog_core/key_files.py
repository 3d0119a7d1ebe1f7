"""Whether a file with a key is closed to other users of the machine.

What holds: a key is of its program's user, and only that one may use it; or it is of root, and the group of a program that
is not root's may read it. The second is what a Secret that is mounted into a pod looks like: of root, and of the pod's group.
"""

from __future__ import annotations

import os

_OF_OTHERS = 0o077
_OF_OTHERS_AND_WRITABLE = 0o037


def is_open_to_others(told: os.stat_result) -> bool:
    """Whether users who should not may use the file, by its mode and owner."""
    of_root = told.st_uid == 0 and os.geteuid() != 0
    return bool(told.st_mode & (_OF_OTHERS_AND_WRITABLE if of_root else _OF_OTHERS))
