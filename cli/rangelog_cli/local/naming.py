"""Which context a local cluster gets: one of its own, never that of another cluster.

What holds: a context of another cluster is neither overwritten nor put out of use, unless it is a local one that does not run.
One that somebody made with the very addresses of this cluster is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pdctl.stopped import supervisor_lives
from rangelog.context import Context, Contexts, changed_contexts, check_context_name, read_contexts
from rangelog_core.errors import PreconditionFailed
from rangelog_core.net.tls import TlsConfig

DEFAULT_NAME = "local"


def choose_name(directory: Path, wanted: str | None, pd: Sequence[str] = ()) -> str:
    """Return the name for the cluster of a directory: the wanted one, that of its last start or addresses, or a free one.

    `pd`: the addresses, where they are known. Raises PreconditionFailed where the wanted one is another cluster's,
    InvalidArgument, ConfigInvalid.
    """
    contexts = read_contexts()
    if wanted is None:
        return _own_name(contexts, directory, pd) or _free_name(contexts, directory)
    _check_free(contexts, directory, check_context_name(wanted), pd)
    return wanted


def known_as(directory: Path, pd: Sequence[str]) -> str:
    """Return the name of the context that the cluster has, "" without one. Raises ConfigInvalid."""
    return _own_name(read_contexts(), directory, pd)


def write_local_context(directory: Path, name: str, pd: Sequence[str], tls: TlsConfig | None) -> bool:
    """Write the context, and return whether it is in use now. Raises PreconditionFailed, OSError."""
    with changed_contexts() as contexts:
        _check_free(contexts, directory, name, pd)
        contexts.by_name[name] = Context(name, tuple(pd), tls, str(directory))
        if contexts.used is None or _may_be_put_out_of_use(contexts.by_name[contexts.used], directory):
            contexts.used = name
        return contexts.used == name


def _own_name(contexts: Contexts, directory: Path, pd: Sequence[str]) -> str:
    """Return the name of the context with the directory, else of one with the addresses, else ""."""
    every = contexts.by_name.values()
    found = [each.name for each in every if each.data_dir == str(directory)]
    found += [each.name for each in every if _has_addresses(each, pd)]
    return found[0] if found else ""


def _has_addresses(context: Context, pd: Sequence[str]) -> bool:
    """Whether it was made by hand for these placement drivers; one with a token is for another use."""
    return context.data_dir is None and context.token_file is None and set(context.pd) == set(pd)


def _free_name(contexts: Contexts, directory: Path) -> str:
    names = [DEFAULT_NAME, *(f"{DEFAULT_NAME}-{number}" for number in range(2, len(contexts.by_name) + 3))]
    return next(name for name in names if _is_free(contexts, directory, name))


def _check_free(contexts: Contexts, directory: Path, name: str, pd: Sequence[str]) -> None:
    if not _is_free(contexts, directory, name) and not _has_addresses(contexts.by_name[name], pd):
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
