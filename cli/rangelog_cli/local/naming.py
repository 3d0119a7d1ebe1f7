"""Which context a local cluster gets: one of its own, never that of another cluster.

What holds: a context of another cluster is neither overwritten nor put out of use, unless it is a local one that does not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pdctl.stopped import supervisor_lives
from rangelog.context import Context, Contexts, changed_contexts, check_context_name, read_contexts
from rangelog_core.errors import PreconditionFailed
from rangelog_core.net.tls import TlsConfig

DEFAULT_NAME = "local"


def choose_name(directory: Path, wanted: str | None) -> str:
    """Return the name for the cluster of a directory: the wanted one, that of its last start, or a free one.

    Raises PreconditionFailed where the wanted one is another cluster's, InvalidArgument, ConfigInvalid.
    """
    return _choose(read_contexts(), directory, wanted)


def write_local_context(directory: Path, name: str, pd: Sequence[str], tls: TlsConfig | None) -> bool:
    """Write the context, and return whether it is in use now. Raises PreconditionFailed, OSError."""
    with changed_contexts() as contexts:
        _check_free(contexts, directory, name)
        contexts.by_name[name] = Context(name, tuple(pd), tls, str(directory))
        if contexts.used is None or _may_be_put_out_of_use(contexts.by_name[contexts.used], directory):
            contexts.used = name
        return contexts.used == name


def _choose(contexts: Contexts, directory: Path, wanted: str | None) -> str:
    if wanted is not None:
        _check_free(contexts, directory, check_context_name(wanted))
        return wanted
    for each in contexts.by_name.values():
        if each.data_dir == str(directory):
            return each.name
    names = [DEFAULT_NAME, *(f"{DEFAULT_NAME}-{number}" for number in range(2, len(contexts.by_name) + 3))]
    return next(name for name in names if _is_free(contexts, directory, name))


def _check_free(contexts: Contexts, directory: Path, name: str) -> None:
    if not _is_free(contexts, directory, name):
        other = contexts.by_name[name]
        raise PreconditionFailed(
            f"context {name!r} is of another cluster ({other.data_dir or ','.join(other.pd)}): choose another --context, "
            f"or remove it with `pdctl context delete {name}`"
        )


def _is_free(contexts: Contexts, directory: Path, name: str) -> bool:
    other = contexts.by_name.get(name)
    return other is None or other.data_dir == str(directory) or (other.data_dir is not None and _is_gone(other))


def _may_be_put_out_of_use(used: Context, directory: Path) -> bool:
    if used.data_dir is None:
        return False
    return used.data_dir == str(directory) or not supervisor_lives(Path(used.data_dir))


def _is_gone(context: Context) -> bool:
    """Whether the directory of a local cluster was removed, and the cluster with it."""
    return context.data_dir is not None and not Path(context.data_dir).exists()
