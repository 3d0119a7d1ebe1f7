"""Keeps the C allocator from returning large blocks to the kernel after every batch.

What holds: a program that does not call `keep_large_blocks` is unaffected; an allocator other than glibc's is unchanged.

glibc maps blocks above a threshold afresh and unmaps them when freed, so each batch of a MiB would cost the page faults of
its 256 pages: eight times what filling it costs. The threshold rises to the size of the largest mapped block that was
ever freed, up to 32 MiB, and twice that much may then stay at the top of the heap. So one large block that is freed
untouched is enough, for the whole process, and it takes no memory itself.
"""

from __future__ import annotations

from functools import cache

from rangelog_core.limits import MIB

_BLOCK_BYTES = 32 * MIB - 64 * 1024
"""A little below the largest block that still moves the threshold."""


@cache
def keep_large_blocks() -> None:
    """Raise the allocator's threshold for mapped blocks, for the whole process. Call it before the first batch is read."""
    bytes(_BLOCK_BYTES)  # zeroed by the kernel when touched, which never happens
