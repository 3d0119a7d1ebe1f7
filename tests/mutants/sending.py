"""Mutants of sends and reads through doors, and of the door for HTTP."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_SEND, _READ = "rangelog_broker.verbs.send", "rangelog_broker.verbs.read"
_RECORDS, _BODIES = "rangelog_http.handlers.records", "rangelog_http.wire.records_in"
_TAIL, _TAILS = "rangelog_http.handlers.tails", "http/test_tails.py"
_SOCKET, _SOCKETS, _SERVER = "rangelog_http.handlers.sockets", "http/test_sockets.py", "http/test_server.py"
_SENDS, _READS, _APP, _WIRE = (
    "broker/verbs/test_send.py",
    "broker/verbs/test_read.py",
    "http/test_app.py",
    "http/test_wire.py",
)

SENDING: tuple[Mutant, ...] = (
    rare("send-by-anyone", "a client appends to a topic without a right on it", _SEND,
         "        await caller.require_named(Verb.APPEND, _TOPIC, name)\n", "", _SENDS),
    rare("read-by-anyone", "a client reads a topic without a right on it", _READ,
         "        await caller.require_named(Verb.READ, TOPIC, name)\n        who", "        who", _READS),
    rare("send-out-of-turn", "a request overtakes one that waits for room: records of one key change places", _SEND,
         "        async with found.turn:", "        for _ in (1,):", _SENDS),
    rare("send-by-a-dead-producer", "a topic that was deleted and made again takes no record at this broker", _SEND,
         "            self._drop(found.name, found)\n            return await self._hand_over(",
         "            return await self._hand_over(", _SENDS),
    rare("send-late-is-refused", "a record that has no ack in time is sent again by its client, and is in the log twice", _SEND,
         "is in the log\", outcome_unknown=True", "is in the log\", outcome_unknown=False", _SENDS),
    rare("send-error-of-one-is-all", "one bad record takes the places of all others of its request from the client", _SEND,
         "                except RangelogError as error:\n                    futures.append(error)\n",
         "                except RangelogError as error:\n                    raise error\n", _SENDS),
    rare("send-keeps-producers", "each topic that was ever sent to has a producer for good", _SEND,
         "now_s - found.used_s > IDLE_S", "False", _SENDS),
    rare("read-waits-and-gives-nothing", "a client that waits hears of a record one poll late", _READ,
         "            found = await self._up_to_the_end(who, name, found.position, records_max, wanted)\n",
         "            break\n", _READS),
    rare("read-answers-without-bound", "a client reads a whole topic into the broker's memory", _READ,
         "or size_bytes >= BYTES_MAX", "", _READS),
    rare("tail-by-anyone", "a client follows a topic without a right on it", _READ,
         "        await caller.require_named(Verb.READ, TOPIC, name)\n        if self._leaves",
         "        if self._leaves", _TAILS),
    rare("tail-outlives-its-right", "a token that was revoked reads on for as long as its connection lasts", _TAIL,
         "            await check()\n", "            pass\n", _TAILS),
    rare("tail-of-a-stopped-broker", "a broker that stops waits for its tails, and then cuts them", _READ,
         "        for one in list(self._follows):\n", "        for one in ():\n", _TAILS),
    rare("tail-begins-anew", "a client that was cut off misses what came meanwhile", _TAIL,
         "start_of(last or query", "start_of(query", _TAILS),
    rare("http-lines-in-part", "the good lines of a broken body are in, and its sender sends all again", _BODIES,
         "            value = _parsed(text, f\"line {number}\")\n",
         "            try:\n                value = _parsed(text, f\"line {number}\")\n"
         "            except InvalidArgument:\n                continue\n", _WIRE),
    rare("http-unknown-is-refused", "a client is told that a record is in no log, and it may be there",
         "rangelog_http.answers", "    if error.outcome_unknown:\n        return 504\n", "", _APP),
    rare("http-partly-is-ok", "a batch of which some records are in no log is answered with 200", _RECORDS,
         "    return 207 if", "    return 200 if", _APP),
    rare("http-pages-may", "a web page sends records through somebody's browser", "rangelog_server_common.http_callers",
         "        if b\"origin\" in headers and headers[b\"origin\"] not in self._origins:\n", "        if False:\n", _APP),
    rare("http-bomb", "a few KiB of gzip fill the broker's memory", "rangelog_http.wire.encodings",
         "        plain += _whole(one, body, bytes_max - len(plain))\n",
         "        plain += _whole(one, body, 1 << 30)\n", _WIRE),
    rare("socket-without-credits", "a client that gave credit for one record is sent all that there are", _SOCKET,
         "                self._credits -= 1\n", "", _SOCKETS),
    rare("socket-credits-of-the-last-message", "credits that come one after the other are lost, and the records wait for ever",
         _SOCKET, "            self._credits += given\n", "            self._credits = given\n", _SOCKETS),
    rare("socket-of-any-page", "a web page follows topics through somebody's browser, which lets WebSockets go anywhere",
         "rangelog_server_common.http_callers",
         "        if b\"origin\" in headers and", "        if b\"origin\" in headers and b\"upgrade\" not in headers and"
         " b\"sec-websocket-key\" not in headers and", _SOCKETS),
    rare("socket-outlives-its-right", "a token that was revoked reads on for as long as its WebSocket lasts", _SOCKET,
         "                await self._check()\n", "                pass\n", _SOCKETS),
    rare("socket-is-there-for-ever", "clients that are gone without a word keep the places of those that are there", _SOCKET,
         "            if not self._socket.has_answered:\n", "            if False:\n", _SOCKETS),
    rare("socket-message-without-end", "one message fills the broker's memory", "rangelog_http.upgrades",
         "            if len(self._part) > MESSAGE_LENGTH_MAX:\n", "            if False:\n", _SOCKETS),
    rare("filter-stands-still", "a reader looks at the same records for ever, of which it wants none", _READ,
         "                return ReadRecords(records, reader.position(), more)\n",
         "                ahead = records or not isinstance(start, Cut)\n"
         "                return ReadRecords(records, reader.position() if ahead else start, more)\n",
         _READS),
    rare("filter-skips", "a reader goes on behind a record that it wants and was not given", _READ,
         "                    if wanted.wants(record):\n",
         "                    if wanted.wants(record) and len(records) < records_max - 1:\n", _READS),
    rare("filter-without-bound", "a request for a key that is nowhere reads a whole topic", _READ,
         "                    if seen_count >= SCAN_RECORDS_MAX or seen_bytes >= SCAN_BYTES_MAX:\n",
         "                    if False:\n", _READS),
    rare("http-half-is-gone", "a client that closes its half after its request has no answer", "rangelog_http.server",
         "            each.half_close()\n        return True\n", "            each.half_close()\n        return False\n",
         _SERVER),
    rare("http-lists-without-end", "the broker stands still for a second while one list is parsed", _BODIES,
         "        if len(body) > LIST_BYTES_MAX:\n", "        if False:\n", _WIRE),
    rare("http-answers-vary-by-nothing", "a cache gives the answer for one page to another one", "rangelog_http.origins",
         "added = [(b\"vary\", b\"Origin\")]", "added: list[tuple[bytes, bytes]] = []", "http/test_origins.py"),
)  # fmt: skip
