"""Moto's S3 server as a process: one request at a time, so that its conditional puts are as atomic as real ones, with faults.

Keys ask for the faults: `…busy…` answers 503 twice, `…lost…` stores the first PUT and answers 500. A bucket named
`forgetful` ignores If-None-Match, as some stores do; one named `denied` refuses everything.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from rangelog_cli.local.lifeline import follow_parent

_BUSY_ANSWERS = 2


class FaultyS3:
    """A WSGI application in front of moto's."""

    def __init__(self) -> None:
        self._moto: Any = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self._asked: Counter[str] = Counter()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path, verb = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        with self._lock:
            self._asked[f"{verb} {path}"] += 1
            times = self._asked[f"{verb} {path}"]
            if path.startswith("/denied"):
                return _error(start_response, "403 Forbidden", "AccessDenied")
            if "busy" in path and times <= _BUSY_ANSWERS:
                return _error(start_response, "503 Slow Down", "SlowDown")
            if path.startswith("/forgetful"):
                environ.pop("HTTP_IF_NONE_MATCH", None)
            if "lost" in path and verb == "PUT" and times == 1:
                list(self._moto(environ, lambda *_: None))
                return _error(start_response, "500 Internal Server Error", "InternalError")
            return list(self._moto(environ, start_response))


def _error(start_response: Callable[..., Any], status: str, code: str) -> list[bytes]:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as asked</Message></Error>".encode()
    start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


if __name__ == "__main__":
    follow_parent()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    make_server("127.0.0.1", int(sys.argv[1]), FaultyS3(), threaded=True).serve_forever()
