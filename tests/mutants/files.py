"""Wrong choices about event files: their format, their indexes, and who reads on where."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_FILE, _FILE_TEST = "rangelog_files.event_file", "files/test_event_file.py"
_CURSOR, _MERGE, _READER_TEST = "rangelog_files.writer_cursor", "rangelog_files.merging", "files/test_event_reader.py"
_LAYOUT, _LAYOUT_TEST = "rangelog_files.layout", "files/test_layout.py"
_LOCAL, _LOCAL_TEST = "rangelog_files.local_files", "files/test_local_files.py"
_SCHEMA, _SCHEMA_TEST = "rangelog_files.event_schema", "files/test_event_schema.py"

FILES: tuple[Mutant, ...] = (
    rare("files-half-block", "a block that is half written is handed out, or taken for damage", _FILE,
         "        if len(self._data) - start < head.size:\n            return None\n", "", _FILE_TEST),
    rare("files-payload-unchecked", "flipped bytes of a block are handed out as events", _FILE,
         "        if google_crc32c.value(payload) != head.payload_crc:\n", "        if False:\n", _FILE_TEST),
    rare("files-size-unchecked", "a flipped size makes a reader wait for ever, or skip blocks", _FILE,
         "        if _head_crc(properties.salt, self._offset, checked) != head_crc:\n", "        if False:\n", _FILE_TEST),
    rare("files-head-anywhere", "a file within an event is read as a part of the file", _FILE,
         "google_crc32c.extend(salt, _PLACE.pack(offset) + checked)", "google_crc32c.extend(salt, checked)", _FILE_TEST),
    rare("files-head-of-any-file", "the index of another file leads into the midst of this one", "rangelog_files.properties",
         "HEAD_BYTES + size, map_crc)", "HEAD_BYTES + size, 0)", _FILE_TEST),
    rare("files-end-mark-passed", "bytes behind the end mark are passed over", _FILE,
         "        if self._at < len(self._data):\n            raise", "        if False:\n            raise", _FILE_TEST),
    rare("files-times-fall", "a block of an earlier time follows, and a seek by time passes it over", _FILE,
         "        if abs(timestamp_ms) < self._last_ms or", "        if", _FILE_TEST),
    rare("files-count-believed", "a block with fewer events than it claims is taken", "rangelog_files.events",
         "    if len(rows) != count or source.tell() != len(payload):\n", "    if source.tell() != len(payload):\n",
         _FILE_TEST),
    rare("files-rest-unread", "bytes behind the events of a block are passed over", "rangelog_files.events",
         "    if len(rows) != count or source.tell() != len(payload):\n", "    if len(rows) != count:\n", _FILE_TEST),
    rare("files-schema-of-nothing", "a few bytes of a block become millions of values", _SCHEMA,
         "        if not size:\n", "        if False:\n", _SCHEMA_TEST),
    rare("files-index-believed", "what an index says is not proved by the block", _CURSOR,
         "            if self._is_at_head(entry.timestamp_ms):\n", "            if True:\n", _READER_TEST),
    rare("files-index-time-believed", "a block of another time than the index says is begun at", _CURSOR,
         "else timestamp_ms in (None, head.timestamp_ms)", "else True", _READER_TEST),
    rare("files-index-of-equal-times", "of several blocks of one time those before the index entry are passed over",
         "rangelog_files.index_file", "bisect_left(self.entries, timestamp_ms,", "bisect_right(self.entries, timestamp_ms,",
         _READER_TEST),
    rare("files-late-bytes", "what a writer wrote before it died, after the reader was there, is passed over", _CURSOR,
         "                return False\n            self._sleep()\n            yield None\n",
         "                return False\n            self._sleep()\n            yield None\n"
         "            if self._next_path() is not None:\n                return False\n", _READER_TEST),
    rare("files-dead-writer", "the file of a dead writer holds its readers up for ever", _CURSOR,
         "            if next_path is not None or not self._follow:\n", "            if not self._follow:\n", _READER_TEST),
    rare("files-partition-early", "a reader leaves for the next day while the present one is written to", _CURSOR,
         "path if is_over or not self._follow or self._decoder.ended is not None else None", "path", _READER_TEST),
    rare("files-silent-writer", "a writer without news holds all others up", _MERGE,
         "        if self._blocks:\n", "        if self._blocks and not self._asleep:\n", _READER_TEST),
    rare("files-merge-unasked", "a block is handed out before all writers were asked", _MERGE,
         "        while self._awake:\n", "        while self._awake and not self._blocks:\n", _READER_TEST),
    rare("files-time-off-by-one", "a block of the first time that is wanted is left out", _CURSOR,
         "first_ms is None or timestamp_ms >= first_ms", "first_ms is None or timestamp_ms > first_ms", _READER_TEST),
    rare("files-until-off-by-one", "a block of the time until which is read is handed out", "rangelog_files.block_filters",
         "timestamp_ms >= self.until_ms", "timestamp_ms > self.until_ms", _READER_TEST),
    rare("files-position-within-block", "a reader that resumes within a block gets its events once more",
         "rangelog_files.event_reader", "        if step.from_offset > offset:\n", "        if False:\n", _READER_TEST),
    rare("files-position-believed", "a position of another file passes events over", _CURSOR,
         "            if not self._is_at_head():\n", "            if False:\n", _READER_TEST),
    rare("files-back-off-for-ever", "after a quiet night news are looked for each 3.2 s", _CURSOR,
         "                self._missed = 0\n                self._decoder.feed", "                self._decoder.feed",
         _READER_TEST),
    rare("files-partition-pruned", "the partition that ends where a time range begins is read, or one is left out", _LAYOUT,
         "each.end_s * 1_000 > from_ms", "each.start_s * 1_000 > from_ms", _LAYOUT_TEST),
    rare("files-clock-back", "a writer whose clock went back writes where no reader looks any more", _LAYOUT,
         "    if time_ms < latest.end_s * 1_000:\n        return latest\n",
         "    if latest.holds(time_ms):\n        return latest\n    if time_ms < latest.start_s * 1_000:\n"
         "        return TimePartition(start_s, duration_s)\n", _LAYOUT_TEST),
    rare("files-two-spellings", "one file has two paths", _LAYOUT,
         "    return number if f\"{number:0{digits}}\" == text and number <= NUMBER_MAX else None\n",
         "    return number if number <= NUMBER_MAX else None\n", _LAYOUT_TEST),
    rare("files-link-followed", "a symbolic link leads out of the store", _LOCAL,
         "_FILE = os.O_RDONLY | os.O_NOFOLLOW |", "_FILE = os.O_RDONLY |", _LOCAL_TEST),
    rare("files-linked-folder-followed", "a linked directory leads out of the store", _LOCAL,
         "os.O_DIRECTORY | os.O_NOFOLLOW |", "os.O_DIRECTORY |", _LOCAL_TEST),
    rare("files-verify-any-time", "a block that no reader of its time opens is fine", "rangelog_files.verifying",
         "                if not self._path.partition.holds(block.timestamp_ms):\n", "                if False:\n",
         "files/test_verifying.py"),
)  # fmt: skip
