"""Wrong choices about taking logs over, and about the check of what is read and appended."""

from __future__ import annotations

from tests.mutants.mutant import rare

TAKEOVERS = (
    rare("claim-names-later-ranges", "a repeated claim is answered with ranges of a later writer, which reads may not go by",
         "rangelog_pd.handlers.ranges", "takewhile(last.index.__gt__, from_first)", "from_first",
         "pd/handlers/test_named_ranges.py"),
    rare("first-batch-is-checked", "of the batches of one payload only the first is compared with its checksum",
         "rangelog_core.checked_batches", "        if google_crc32c.value(data) != WHOLE_CRC:\n",
         "        if not position and google_crc32c.value(data) != WHOLE_CRC:\n",
         "range_server/serving/test_damaged_appends.py"),
)  # fmt: skip
