"""The context file: the cluster that the commands use when no other is given.

`rangelog local` writes it, `pdctl` reads it: `$XDG_CONFIG_HOME/rangelog/context.json` (default `~/.config`), for example
`{"name": "local", "pd": ["127.0.0.1:7100", "127.0.0.1:7101"]}`. Written whole or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rangelog_core.errors import ConfigInvalid

_SIZE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Context:
    """One cluster: its name for people, and its placement drivers as host:port."""

    name: str
    pd: tuple[str, ...]


def context_path() -> Path:
    """Return the path of the context file, whether it exists or not."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "rangelog" / "context.json"


def write_context(name: str, pd: Sequence[str]) -> Path:
    """Write the file and return its path. Raises OSError where the directory cannot be written."""
    path = context_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps({"name": name, "pd": list(pd)}, indent=2) + "\n")
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
    return Context(str(parsed.get("name", "")), tuple(pd))
