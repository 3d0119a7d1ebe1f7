"""Reads and writes Secrets by the API of Kubernetes, as a pod: HTTPS, with the token of the pod's service account.

What holds: a write succeeds only on the version that was read; another one's write in between is PreconditionFailed. Every call
has a time limit, every answer a bound; the token is read anew for each call, and neither it nor a Secret is in an error.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rangelog_core.errors import (
    AccessDenied,
    ConfigInvalid,
    ObjectNotFound,
    PreconditionFailed,
    ProtocolViolation,
    RequestTimeout,
    Unavailable,
)

ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST_ENV, PORT_ENV = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
TIMEOUT_S = 10.0
_WORD = re.compile(r"[A-Za-z0-9._~+=-]{1,16384}")
ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""A Secret has 1 MiB at most, and a third more in base64."""


@dataclass(frozen=True, slots=True)
class Secret:
    """What was read: the contents, and the whole object, whose version a write must still find."""

    name: str
    data: Mapping[str, bytes]
    whole: Mapping[str, Any]


class KubernetesSecrets:
    """The Secrets of one namespace."""

    def __init__(self, host: str, port: int, account: Path = ACCOUNT_DIRECTORY, timeout_s: float = TIMEOUT_S) -> None:
        """`account`: a directory with token, ca.crt and namespace. Raises ConfigInvalid where they cannot be read."""
        self._host, self._port, self._timeout_s = host, port, timeout_s
        self._token_path = account / "token"
        self.namespace = _word(account / "namespace")
        try:
            self._context = ssl.create_default_context(cafile=str(account / "ca.crt"))
        except (OSError, ssl.SSLError) as error:
            raise ConfigInvalid(f"{account / 'ca.crt'} has no authority of the API server: {error}") from error

    @classmethod
    def of_pod(cls, account: Path = ACCOUNT_DIRECTORY) -> KubernetesSecrets:
        """Return those of the pod that this is. Raises ConfigInvalid outside of a pod, or without a token."""
        host, port = os.environ.get(HOST_ENV, ""), os.environ.get(PORT_ENV, "443")
        if not host or not port.isdecimal():
            raise ConfigInvalid(f"{HOST_ENV} is not set: this command runs in a pod, by the chart")
        return cls(host, int(port), account)

    def read(self, name: str) -> Secret:
        """Return a Secret. Raises ObjectNotFound, AccessDenied, Unavailable, RequestTimeout, ProtocolViolation."""
        whole = self._call("GET", name, None)
        data = whole.get("data") or {}
        try:
            return Secret(name, {key: base64.b64decode(value, validate=True) for key, value in data.items()}, whole)
        except (AttributeError, TypeError, binascii.Error) as error:
            raise ProtocolViolation(f"the API server's answer about Secret {name} is none") from error

    def write(self, secret: Secret, data: Mapping[str, bytes]) -> None:
        """Give a Secret that was read other contents. Raises PreconditionFailed where it was changed since; as `read`."""
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        self._call("PUT", secret.name, {**secret.whole, "data": encoded})

    def _call(self, method: str, name: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        status, answer = self._exchange(method, name, None if body is None else json.dumps(body).encode())
        if status == 200:
            return _object(answer, name)
        said = _message(answer)
        if status in (401, 403):
            raise AccessDenied(
                f"the API server refuses to {'change' if body else 'show'} Secret {name} ({status}): {said}: "
                "the service account of this pod needs a Role with get and update on it"
            )
        if status == 404:
            raise ObjectNotFound(f"there is no Secret {name} in namespace {self.namespace}: the chart makes it, empty")
        if status == 409:
            raise PreconditionFailed(f"Secret {name} was changed by another one meanwhile")
        if status == 429 or status >= 500:
            raise Unavailable(f"the API server cannot answer about Secret {name} now ({status}): {said}")
        raise ProtocolViolation(f"the API server answers {status} about Secret {name}: {said}")

    def _exchange(self, method: str, name: str, body: bytes | None) -> tuple[int, bytes]:
        where = f"the API server at {self._host}:{self._port}"
        headers = {"Authorization": f"Bearer {_word(self._token_path)}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._context)
        try:
            path = f"/api/v1/namespaces/{quote(self.namespace, safe='')}/secrets/{quote(name, safe='')}"
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer = response.read(ANSWER_BYTES_MAX + 1)
        except TimeoutError:
            raise RequestTimeout(f"{where} has not answered within {self._timeout_s:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"{where} cannot be asked: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if len(answer) > ANSWER_BYTES_MAX:
            raise ProtocolViolation(f"{where} answers with more than {ANSWER_BYTES_MAX:,} bytes about Secret {name}")
        return response.status, answer


def _word(path: Path) -> str:
    """Return the one word of a file, which becomes part of a request."""
    try:
        found = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        raise ConfigInvalid(f"{path} cannot be read ({reason}): the pod needs its service account's token") from error
    if not _WORD.fullmatch(found):
        raise ConfigInvalid(f"{path} is not a word: the pod needs its service account's token")
    return found


def _object(answer: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(answer)
        if found["kind"] == "Secret" and found["metadata"]["name"] == name and found["metadata"]["resourceVersion"]:
            return dict(found)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise ProtocolViolation(f"the API server's answer about Secret {name} is none")


def _message(answer: bytes) -> str:
    try:
        said = json.loads(answer)["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no reason given"
    return " ".join(str(said).split())[:300]
