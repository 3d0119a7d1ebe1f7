"""The context file: the clusters that commands know by name, and the one that they use when no other is given.

`rangelog local` and `pdctl context` write it, `pdctl` and the Spark jobs read it: `$XDG_CONFIG_HOME/rangelog/context.json`
(default `~/.config`), for example

    {"name": "local", "pd": ["127.0.0.1:7100"], "data_dir": "/srv/rangelog-data",
     "contexts": {"local": {"pd": ["127.0.0.1:7100"], "data_dir": "/srv/rangelog-data"},
                  "prod": {"pd": ["10.0.0.1:7100"], "tls": {"ca": PATH, "cert": PATH, "key": PATH}},
                  "stage": {"pd": ["10.1.0.1:7100"], "ca": PATH, "token_file": PATH}}}

What holds: no secret is in it, only the paths of the files that have them. The file is written whole or not at all, by one
process at a time. The fields beside `contexts` are those of the context in use: programs before `contexts` read no others.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rangelog_core.errors import ConfigInvalid, InvalidArgument
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import TokenFile

_SIZE_BYTES_MAX = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class Context:
    """One cluster: its name for people, its placement drivers as host:port, and the certificate to use, where it has TLS.

    `data_dir`: of a cluster of `rangelog local`, the directory that it keeps everything in. `token_file`: the file with the
    token that is shown, which is read when it is used.
    """

    name: str
    pd: tuple[str, ...]
    tls: TlsConfig | None = None
    data_dir: str | None = None
    token_file: str | None = None

    def token(self) -> TokenFile | None:
        """Return what reads the token, None without one."""
        return TokenFile(self.token_file) if self.token_file is not None else None


@dataclass
class Contexts:
    """All contexts by name, and the name of the one in use, or None."""

    used: str | None = None
    by_name: dict[str, Context] = field(default_factory=dict)

    def named(self, name: str) -> Context:
        """Return a context. Raises InvalidArgument with the names that there are."""
        found = self.by_name.get(name)
        if found is None:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise InvalidArgument(f"there is no context {name!r} (there are: {known}): see `pdctl context list`")
        return found


def context_path() -> Path:
    """Return the path of the context file, whether it exists or not."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "rangelog" / "context.json"


def check_context_name(name: str) -> str:
    """Return the name. Raises InvalidArgument."""
    if not _NAME.match(name):
        raise InvalidArgument(f"{name[:80]!r} is no name of a context: use 1 to 64 letters, digits, '.', '_' or '-'")
    return name


def write_context(name: str, pd: Sequence[str], tls: TlsConfig | None = None) -> Path:
    """Add or replace a context, use it, and return the file's path. Raises OSError where it cannot be written."""
    with changed_contexts() as contexts:
        contexts.by_name[name] = Context(name, tuple(pd), tls)
        contexts.used = name
    return context_path()


@contextmanager
def changed_contexts() -> Iterator[Contexts]:
    """Yield all contexts, and write them as they are at the end; an error in between writes nothing.

    Raises OSError where the file cannot be written, ConfigInvalid where it is damaged, InvalidArgument where it gets too large.
    """
    path = context_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(".context.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held for as long as it takes to write a small file
        contexts = read_contexts()
        yield contexts
        text = json.dumps(_content(contexts), indent=2) + "\n"
        if len(text) > _SIZE_BYTES_MAX:
            raise InvalidArgument("the contexts do not fit into their file: remove one with `pdctl context delete`")
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(text)
        os.replace(temporary, path)


def read_context(name: str | None = None) -> Context | None:
    """Return the context of that name, or by default the one in use, None when there is none.

    Raises ConfigInvalid when the file is damaged, InvalidArgument for a name that is not there.
    """
    contexts = read_contexts()
    if name is not None:
        return contexts.named(name)
    return contexts.by_name[contexts.used] if contexts.used is not None else None


def read_contexts() -> Contexts:
    """Return all contexts; none where there is no file. Raises ConfigInvalid when the file is damaged."""
    path = context_path()
    try:
        if path.stat().st_size > _SIZE_BYTES_MAX:
            raise ConfigInvalid(f"{path} is not a context file: remove it, or pass --pd")
        parsed = json.loads(path.read_text())
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigInvalid(f"{path} cannot be read: remove it, or pass --pd") from error
    if not isinstance(parsed, dict) or "contexts" not in parsed:
        one = _context(path, str(parsed.get("name", "")) if isinstance(parsed, dict) else "", parsed)
        return Contexts(one.name, {one.name: one})
    listed, used = parsed["contexts"], parsed.get("name")
    if not isinstance(listed, dict):
        raise ConfigInvalid(f"{path} is not a context file: remove it, or pass --pd")
    found = {name: _context(path, name, each) for name, each in listed.items()}
    return Contexts(used if isinstance(used, str) and used in found else None, found)


def _content(contexts: Contexts) -> dict[str, Any]:
    listed = {name: _fields(each) for name, each in sorted(contexts.by_name.items())}
    used = contexts.used if contexts.used in listed else None
    return ({"name": used} | listed[used] if used is not None else {}) | {"contexts": listed}


def _fields(context: Context) -> dict[str, Any]:
    found: dict[str, Any] = {"pd": list(context.pd)}
    if context.tls is not None:  # of an authority alone programs before tokens would refuse the whole file as "tls"
        found |= {"tls": asdict(context.tls)} if context.tls.cert else {"ca": context.tls.ca}
    more = {"data_dir": context.data_dir, "token_file": context.token_file}
    return found | {name: value for name, value in more.items() if value is not None}


def _context(path: Path, name: str, found: object) -> Context:
    pd = found.get("pd") if isinstance(found, dict) else None
    if (
        not isinstance(found, dict)
        or not isinstance(pd, list)
        or not pd
        or not all(isinstance(each, str) for each in pd)
    ):
        raise ConfigInvalid(f"{path} names no placement drivers: remove it, or pass --pd")
    data_dir, token_file, ca = found.get("data_dir"), found.get("token_file"), found.get("ca")
    if not all(each is None or _is_path(each) for each in (token_file, ca)):
        raise ConfigInvalid(f"{path} has paths that are none: remove it, or pass --pd, --token-file and --ca")
    tls = _tls(path, found.get("tls")) or (TlsConfig(str(ca)) if ca is not None else None)
    return Context(name, tuple(pd), tls, data_dir if isinstance(data_dir, str) else None, token_file)


def _tls(path: Path, found: object) -> TlsConfig | None:
    if found is None:
        return None
    if not isinstance(found, dict) or set(found) != {"ca", "cert", "key"} or not all(map(_is_path, found.values())):
        raise ConfigInvalid(f"{path} names no TLS files: remove it, or pass --pd, --ca, --cert and --key")
    return TlsConfig(**found)


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value != ""
