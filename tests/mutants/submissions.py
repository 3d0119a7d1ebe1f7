"""Mutants of submissions: records that are sent under a name, and are in a topic once."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_WINDOW, _SEND = "rangelog_broker.shards.submission_window", "rangelog_broker.verbs.send"
_SUBMISSIONS, _ONCE = "broker/shards/test_submissions.py", "broker/verbs/test_send_once.py"
_LIVES_ON, _ATTACKED = "broker/shards/test_submission_window.py", "broker/verbs/test_send_once_attacked.py"

SUBMISSIONS: tuple[Mutant, ...] = (
    rare("submission-not-in-snapshots", "a repeat is appended again once its first owner's log was snapshot",
         "rangelog_broker.shards.state", ", self.submissions.snapshot())", ")", _SUBMISSIONS),
    rare("submission-not-folded", "a repeat is appended again by the next owner", "rangelog_broker.shards.state",
         "            self.note_submitted(origin, shard_id, header.base_offset)\n", "", _SUBMISSIONS),
    rare("submission-not-inherited", "a repeat is appended again after a split", "rangelog_broker.shards.state",
         "            submissions.inherit(each.submissions)\n", "", _SUBMISSIONS),
    rare("submission-forgotten-early", "a repeat after a few minutes is appended again", _WINDOW,
         "while marks[0][0] <= time_ms - WINDOW_MS:", "while marks[0][0] <= time_ms - WINDOW_MS // 2:", _SUBMISSIONS),
    rare("submission-kept-for-good", "the names of all requests that ever came fill the owner's memory", _WINDOW,
         "            del self._noted[digest]\n", "            break\n", _SUBMISSIONS),
    rare("submission-in-flight-again", "two tries at the same time are both appended", "rangelog_broker.shards.owner",
         "                ahead = each\n", "                pass\n", _SUBMISSIONS),
    rare("submission-of-other-content", "other records under a name have the first ones' answer, and are in no log", _WINDOW,
         "for each in _sections(value) if each.content == submission.content)", "for each in _sections(value))", _SUBMISSIONS),
    rare("submission-of-a-name-given-again", "a name that was given again after its time stands for what it was first", _WINDOW,
         "if value and not self._excludes(submission) else []", "if value else []", _LIVES_ON),
    rare("contents-mixed-in-a-merge", "a request is answered with the places of another one's records", _WINDOW,
         "            own = {each.content: each.runs for each in _sections(noted.get(digest, b\"\"))}\n",
         "            own = {}\n", _LIVES_ON),
    rare("submission-of-many-runs", "a hundred requests of many keys fill the windows of all shards",
         "rangelog._produce.submitter", "sorted(range(len(rows)), key=positions.__getitem__)", "list(range(len(rows)))",
         _ATTACKED),
    rare("name-of-a-former-topic", "a topic that was deleted and made again takes no named request at a broker", _SEND,
         "                self._drop(found.name, found)  # it", "                pass  # it", _ATTACKED),
    rare("name-refused-in-part", "a request of which some records are in is said to be refused",
         "rangelog_http.handlers.records", "refused[0] if len(refused) == len(outcomes) else None",
         "refused[0] if refused else None", "http/test_app.py"),
    rare("submission-in-part-again", "a request of which some records are there is appended whole", _WINDOW,
         "                if low < high:\n", "                if (low, high - low) == (first, count):\n", _SUBMISSIONS),
    rare("submission-without-limit", "a flood of names fills the owner's memory", "rangelog_broker.shards.owner",
         "            self.state.submissions.check_room(origin)\n", "", _SUBMISSIONS),
    rare("submission-before-all-know", "an earlier broker cannot open a shard that has one", "rangelog_broker.shards.shard",
         "        if self.broker_version() < LEVEL_SUBMISSIONS:\n", "        if False:\n", _SUBMISSIONS),
    rare("submission-by-a-client", "a client takes the names of another one, whose requests are then in no log",
         "rangelog_broker.verbs.produce", "            _require_broker(caller)\n", "            pass\n", _ONCE),
    rare("names-of-all-clients", "a client's name is that of another one, whose request has its answer", _SEND,
         "len(who).to_bytes(4, \"big\") + who + _name_bytes(name)", "_name_bytes(name)", _ONCE),
    rare("submission-late-is-refused", "a request without an answer is said to be in no log", "rangelog._produce.submitter",
         "outcome_unknown=number in self.sent) if known", "outcome_unknown=False) if known", _ONCE),
    rare("submission-at-once", "the batches of one request overtake each other", "rangelog._produce.submitter",
         "                batch = next(work.batches(numbers))\n",
         "                batch = list(work.batches(numbers))[-1]\n", _ONCE),
)  # fmt: skip
