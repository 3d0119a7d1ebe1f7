"""Mutants of the writers of event files: group commit, flushes, generations."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_CORE, _DRIVERS = "rangelog_files.group_commit", "rangelog_files.commit_drivers"
_OPEN, _TARGET = "rangelog_files.open_file", "rangelog_files.event_target"
_STORE, _READER = "rangelog_files.event_store", "rangelog_files.stream_reader"
_PROPERTIES = "rangelog_files.property_store"
_MODEL = "tests/model/test_commit_model.py"
_DRIVEN, _WRITER, _OPENED = "files/test_commit_drivers.py", "files/test_event_writer.py", "files/test_event_store.py"
_POWER = "files/test_power_cuts.py"

EVENT_FILES: tuple[Mutant, ...] = (
    rare("commit-flag-reset-unchecked", "an event that is queued as a winner ends waits until somebody appends again", _CORE,
         "        self._queue.flag.release()\n        self.next = CommitStep.LOOK\n",
         "        self._queue.flag.release()\n        self._after, self.next = self._when_idle(), CommitStep.WAKE\n", _MODEL),
    rare("commit-done-before-the-flush", "an event is acked, and lost by a power cut", _CORE,
         "        self.next = CommitStep.FLUSH if error is None else CommitStep.MARK\n",
         "        self.next = CommitStep.MARK\n", _MODEL),
    rare("commit-winner-does-not-drain", "each event has a flush of its own", _CORE,
         "        full = len(self.group) >= self._queue.entries_max or",
         "        full = len(self.group) >= 1 or", _DRIVEN),
    rare("commit-error-told-to-one", "events of a flush that failed are acked", _CORE,
         "self._places[self._marked] if self._error is None else None, self._error)",
         "self._marked, self._error if entry is self.entry else None)", _MODEL),
    rare("commit-flag-not-compared", "two threads write into one file at once", _CORE,
         "        won = self._queue.flag.acquire(blocking=False)\n",
         "        won = self._queue.flag.acquire(blocking=False) or True\n", _MODEL),
    rare("commit-leaves-with-the-work", "a caller whose time is up takes the work that it was handed with it", _CORE,
         "        self.leaves = True\n        self.next = CommitStep.CLAIM\n",
         "        self.leaves = True\n        self.next = CommitStep.DONE\n", _MODEL),
    rare("commit-interrupted-keeps-the-flag", "Ctrl-C in one thread stops all others for good", _DRIVERS,
         "            interrupted = error\n", "            raise\n", _DRIVEN),
    rare("files-flushed-no-names", "an acked event is in a file that has no name after a power cut", _OPEN,
         "                files.flush_directory(self._folder)\n", "                pass\n", _POWER),
    rare("files-written-after-a-failed-flush", "what a failed flush has lost is in front of acked events", _OPEN,
         "                self._files.flush(self._data)\n        except BaseException:\n            self.give_up()\n",
         "                self._files.flush(self._data)\n        except BaseException:\n            pass\n", _WRITER),
    rare("files-clock-goes-back", "times fall within a file, and the writer refuses events for an hour", _TARGET,
         "        now_ms = max(self._clock_ms(), self._last_ms)\n        file =",
         "        now_ms = self._clock_ms()\n        file =", _WRITER),
    rare("files-old-generation", "events that are appended after a truncation are gone with those before it", _TARGET,
         "file.path.generation == properties.generation and ", "", _OPENED),
    rare("files-writer-too-many", "a writer that was removed goes on", _TARGET,
         "self._number >= properties.writers", "False", _OPENED),
    rare("files-reader-of-an-old-generation", "a reader that follows sees no event after a truncation", _READER,
         "        same_generation = found.generation == self._opened.generation\n",
         "        same_generation = True\n", _OPENED),
    rare("files-properties-by-any-version", "of two changes at once one is overwritten unseen", _PROPERTIES,
         "        if found.version != expected.version:\n", "        if False:\n", _OPENED),
    rare("files-notice-alone", "a writer whose notice was lost writes into an old generation for good", _PROPERTIES,
         " or now_s - self._read_s >= self._interval_s", "", _OPENED),
)  # fmt: skip
