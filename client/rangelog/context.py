"""The context file: the cluster that the commands use when no other is given.

`rangelog local` writes it, `pdctl` reads it: `$XDG_CONFIG_HOME/rangelog/context.json` (default `~/.config`), for example
`{"name": "local", "pd": ["127.0.0.1:7100", "127.0.0.1:7101"]}`, with TLS also
`"tls": {"ca": PATH, "cert": PATH, "key": PATH}`. Written whole or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rangelog_core.errors import ConfigInvalid
from rangelog_core.net.tls import TlsConfig

_SIZE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Context:
    """One cluster: its name for people, its placement drivers as host:port, and the certificate to use, where it has TLS."""

    name: str
    pd: tuple[str, ...]
    tls: TlsConfig | None = None


def context_path() -> Path:
    """Return the path of the context file, whether it exists or not."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "rangelog" / "context.json"


def write_context(name: str, pd: Sequence[str], tls: TlsConfig | None = None) -> Path:
    """Write the file and return its path. Raises OSError where the directory cannot be written."""
    path = context_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    content = {"name": name, "pd": list(pd)} | ({"tls": asdict(tls)} if tls is not None else {})
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    os.replace(temporary, path)
    return path


def read_context() -> Context | None:
    """Return the context, or None when there is none. Raises ConfigInvalid when the file is damaged."""
    path = context_path()
    try:
        if path.stat().st_size > _SIZE_BYTES_MAX:
            raise ConfigInvalid(f"{path} is not a context file: remove it, or pass --pd")
        parsed = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigInvalid(f"{path} cannot be read: remove it, or pass --pd") from error
    pd = parsed.get("pd") if isinstance(parsed, dict) else None
    if not isinstance(pd, list) or not pd or not all(isinstance(each, str) for each in pd):
        raise ConfigInvalid(f"{path} names no placement drivers: remove it, or pass --pd")
    return Context(str(parsed.get("name", "")), tuple(pd), _tls(path, parsed.get("tls")))


def _tls(path: Path, found: object) -> TlsConfig | None:
    if found is None:
        return None
    if not isinstance(found, dict) or set(found) != {"ca", "cert", "key"} or not all(map(_is_path, found.values())):
        raise ConfigInvalid(f"{path} names no TLS files: remove it, or pass --pd, --ca, --cert and --key")
    return TlsConfig(**found)


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value != ""
