"""Wrong choices in the base of frame connections: who is waited for, and who is not read."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_BASE = "rangelog_server_common.frames.connection"
_TEST, _BROKER = "server_common/test_frame_connection.py", "broker/serving/test_producer_connection.py"
_RESUMED = "        self._slow_deadline = 0.0\n        self.resume_if_settled()\n"

FRAMES: tuple[Mutant, ...] = (
    rare("frames-late-since-unread", "a client is closed for a frame that it could not end, since it was not read", _BASE,
         "            if self._deadline and self.greeted:\n", "            if False:\n", _TEST),
    rare("frames-endless-after-a-pause", "who does not read for a moment may keep half a frame for ever", _BASE,
         _RESUMED, _RESUMED + "        self._deadline = 0.0\n", _TEST),
    rare("frames-granted-uncounted", "a client is read on though what waited for a grant is above its limit", _BASE,
         "            self._handle(frame)\n            self._handled()\n", "            self._handle(frame)\n", _TEST),
    rare("frames-before-the-hello", "requests are served before the token is known", _BASE,
         "            if not self.greeted and frame.opcode", "            if False and frame.opcode", _BROKER),
    rare("frames-slow-reader-stays", "a client that never reads keeps its connection", _BASE,
         "            if now > self._slow_deadline:\n", "            if False:\n", "broker/serving/test_producer_flow.py"),
)  # fmt: skip
