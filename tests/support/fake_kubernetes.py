"""The part of the API of Kubernetes that a job with rights on Secrets sees: real HTTPS on loopback, Secrets in memory.

What holds: as a real API server does, it gives each write a new version and refuses one on an earlier version (409), refuses
who has no token (401) and what no rule allows (403), knows no Secret that nobody made (404).
"""

from __future__ import annotations

import base64
import json
import ssl
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rangelog_cli.certs.authority import Authority, parse_principal

NAMESPACE, TOKEN = "logs", "of.the-test_"
POLL_S = 0.02
"""The server ends no sooner than it looks whether it should."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet about a caller that has gone; what else fails is printed."""
        if not isinstance(sys.exception(), ConnectionError | ssl.SSLEOFError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class FakeKubernetes:
    """Listens until `close`. `rules`: Secret → verbs; a Secret that is not named is denied."""

    def __init__(self, directory: Path) -> None:
        self.secrets: dict[str, dict[str, Any]] = {}
        self.rules: dict[str, set[str]] = {}
        self.calls: list[tuple[str, str, int]] = []
        self.before_write: Callable[[str], None] = lambda _name: None
        self.answers: Callable[[str], tuple[int, bytes] | None] = lambda _method: None
        self._version = 1
        made = Authority.create(directory / "api").issue(
            parse_principal("broker", "api"), directory / "api-server", hosts=("127.0.0.1",)
        )
        self.account = directory / "serviceaccount"
        self.account.mkdir()
        (self.account / "ca.crt").write_bytes(Path(made.ca).read_bytes())
        (self.account / "token").write_text(TOKEN)
        (self.account / "namespace").write_text(NAMESPACE)
        self._server = _Server(("127.0.0.1", 0), self._handler())
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(made.cert, made.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def make(self, *names: str) -> None:
        """Make empty Secrets, as the chart does, that may be read and changed."""
        for name in names:
            self.rules[name] = {"get", "update"}
            self.secrets[name] = {
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                "metadata": {"name": name, "namespace": NAMESPACE, "resourceVersion": self._next(), "labels": {"kept": "yes"}},
            }  # fmt: skip

    def put(self, name: str, data: Mapping[str, bytes]) -> None:
        """Change what a Secret has, as a person would."""
        found = self.secrets[name]
        found["data"] = {key: base64.b64encode(value).decode() for key, value in data.items()}
        found["metadata"]["resourceVersion"] = self._next()

    def data(self, name: str) -> dict[str, bytes]:
        """Return what a Secret has."""
        return {key: base64.b64decode(value) for key, value in self.secrets[name].get("data", {}).items()}

    def writes(self) -> list[str]:
        """Return the Secrets that were written, in order."""
        return [name for method, name, status in self.calls if method == "PUT" and status == 200]

    def answer(self, method: str, path: str, token: str, body: bytes) -> tuple[int, bytes]:
        """Return what is answered: status and body."""
        head, _, name = path.rpartition("/")
        if head != f"/api/v1/namespaces/{NAMESPACE}/secrets":
            return _status(404, "there is no such path")
        if token != f"Bearer {TOKEN}":
            return _status(401, "Unauthorized")
        verb = {"GET": "get", "PUT": "update"}[method]
        if verb not in self.rules.get(name, ()):
            return _status(403, f'secrets "{name}" is forbidden: User "system:serviceaccount:logs:x" cannot {verb}')
        found = self.secrets.get(name)
        if found is None:
            return _status(404, f'secrets "{name}" not found')
        if method == "PUT":
            given = json.loads(body)
            self.before_write(name)
            if given["metadata"]["resourceVersion"] != self.secrets[name]["metadata"]["resourceVersion"]:
                return _status(409, "the object has been modified")
            given["metadata"]["resourceVersion"] = self._next()
            found = self.secrets[name] = given
        return 200, json.dumps(found).encode()

    def _next(self) -> str:
        self._version += 1
        return str(self._version)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 20

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                forced = fake.answers(self.command)
                status, answer = forced or fake.answer(
                    self.command, self.path, self.headers.get("Authorization", ""), body
                )
                fake.calls.append((self.command, self.path.rpartition("/")[2], status))
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_PUT = do_GET

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _status(code: int, message: str) -> tuple[int, bytes]:
    return code, json.dumps({"kind": "Status", "status": "Failure", "message": message, "code": code}).encode()
