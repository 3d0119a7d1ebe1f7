"""Wrong choices about the page: what it lends to its viewers, what it believes of a request, what it puts out."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, rare

_APP, _GUARD, _RENDERING = "rangelog_page.app", "rangelog_page.guard", "rangelog_page.rendering"
_TEXTS, _SHARED, _STREAMS, _AXIS = (
    "rangelog_page.texts", "rangelog_page.shared_answers", "rangelog_page.stream_views", "rangelog_page.axis",
)  # fmt: skip
_OF_APP, _OF_GUARD, _OF_RENDERING = "page/test_page_app.py", "page/test_page_guard.py", "page/test_page_rendering.py"

PAGE: tuple[Mutant, ...] = (
    rare("page-lends-its-rights", "a client sees through the page what only administrators may ask for", _APP,
         "            require(caller, section.needs)\n", "", _OF_APP),
    rare("page-asks-what-it-may-not", "a page of role client shows servers that do not answer, where it is not answered",
         "rangelog_page.cluster_views", "    if may(principal, *LOAD_NEEDS) and may(asking.own, *LOAD_NEEDS):\n",
         "    if may(principal, *LOAD_NEEDS):\n", _OF_APP),
    rare("page-escapes-nothing", "the name of a stream runs as a script in an administrator's browser", _RENDERING,
         "            autoescape=True,\n", "            autoescape=False,\n", _OF_RENDERING),
    rare("page-link-leaves-its-part", "a name with slashes and dots leads elsewhere", _RENDERING,
         'quote(name, safe="/" if kind == "topic" else "")', 'quote(name, safe="/")', _OF_RENDERING),
    rare("page-turns-the-writing", "a name is read backwards, and passes for another one", _TEXTS,
         '_UNSEEN = {"Cc", "Cf",', '_UNSEEN = {"Cc",', "page/test_page_texts.py"),
    rare("page-any-host", "a site that points its own name to loopback reads the page", _GUARD,
         '    if name == "localhost" or name in names:\n', "    if True:\n", _OF_GUARD),
    rare("page-host-by-prefix", "127.0.0.1.evil.example passes for an address", _GUARD,
         '    if name == "localhost" or name in names:\n',
         '    if name == "localhost" or name in names or name[:4] == "127.":\n', _OF_GUARD),
    rare("page-headers-on-success-only", "an error page can be framed and run scripts",
         "rangelog_server_common.http_guard", "                await answer(scope, receive, start)\n",
         "                await answer(scope, receive, send)\n", _OF_GUARD),
    rare("page-token-of-any-length", "the beginning of the token is enough",
         "rangelog_server_common.tokens.admission",
         'hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode())',
         'secret.startswith(text)', _OF_GUARD),
    rare("page-keeps-errors", "one failed question is an error for all who ask later", _SHARED,
         "        self._running.pop(key, None)\n", "        pass\n", "page/test_shared_answers.py"),
    rare("page-asks-for-each-browser", "a hundred browsers cost the cluster a hundred times as much", _SHARED,
         "        if known is not None and self._clock() - known[0] <= age_max_s:\n", "        if False:\n",
         "page/test_shared_answers.py"),
    rare("page-tail-without-end", "a tail that is far behind reads all of the stream", _STREAMS,
         "        start = max(first, trim, end - limit)\n", "        start = max(first, trim)\n", _OF_APP),
    rare("page-large-records", "an answer of a tail has megabytes", _STREAMS,
         "                    if rows and size_bytes > TAIL_BYTES_MAX:\n", "                    if False:\n", _OF_APP),
    rare("page-lost-range-takes-all", "of a stream with a lost range nothing else can be seen", _AXIS,
         '    if found["lost"]:\n        return 0.0\n', "", "page/test_page_axis.py"),
)  # fmt: skip
