"""The loops over the records of a batch (`rangelog_core.record_codec_pure` describes them), compiled where they can be.

What holds: both implementations give the same results and raise the same errors on checked columns; one contract suite runs
for both. The compiled one is optional: it is used where it was built (`make compiled`), unless the environment of the
process has RANGELOG_PURE=1.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rangelog_core.record_codec_pure import cut, encode_offsets, encode_timestamps, iterate_records, seal

__all__ = ["COMPILED", "cut", "encode_offsets", "encode_timestamps", "iterate_records", "seal"]

COMPILED = False
"""Whether the functions of this module are the compiled ones."""

if not TYPE_CHECKING and sys.byteorder == "little" and os.environ.get("RANGELOG_PURE") != "1":
    try:
        from rangelog_core._record_codec import cut, encode_offsets, encode_timestamps, iterate_records, seal
    except ImportError:
        pass
    else:
        COMPILED = True
