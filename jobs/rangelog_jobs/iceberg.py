"""The job `iceberg`: tiered objects of streams or of a topic as Iceberg tables, where they are; a run brings them up to date.

    rangelog-spark iceberg --pd 127.0.0.1:7100 --stream flights --catalog lake
    rangelog-spark iceberg --prefix air. --catalog local --catalog-property type=sql …

A run adds the objects that a table does not have, takes out those that were trimmed or deleted, and hides the trimmed rows of
partly trimmed ones, in one snapshot; a run that finds nothing new makes none. Nothing is copied, and Spark is not needed.

What holds: a table is read before the placement driver is asked for the objects, and the snapshot is committed only if the
table is still the one that was read. So a snapshot never takes back a later one, no object is in a table twice, and a run may
be killed and repeated anywhere.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import rangelog.sync
from rangelog_core.errors import (
    InvalidArgument,
    MissingExtra,
    ObjectNotFound,
    RangelogError,
    StreamNotFound,
    Unavailable,
)
from rangelog_core.tier_stores import parse_tier
from rangelog_jobs.argument_types import add_output, setting
from rangelog_jobs.cluster import ClusterAddress
from rangelog_jobs.iceberg_sources import (
    LiveObject,
    TableSource,
    find_sources,
    known_tier_url,
    live_objects,
    namespace_name,
    table_name,
    tier_location,
)
from rangelog_jobs.job import EXIT_OK, EXIT_WRONG, Job, JobCall, JobTable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from rangelog_jobs.iceberg_change import TierChange

TRIES_MAX = 20
PYICEBERG_LINE = "0.12."
"""How its version begins; the extra `iceberg` in pyproject.toml asks for the same."""
_PAUSE_S = 0.1
_MISSING_MAX = 5


@dataclass(frozen=True, slots=True)
class RegisteredTable:
    """The changes of a run to one table, and the contents of the table afterwards.

    Attributes:
        table: The table, "namespace.name".
        source: The stream or topic.
        made: Whether this run made the table.
        snapshot_id: The snapshot of this run; None: there was nothing new.
        added: Objects that were added.
        removed: Objects that were taken out, since they were trimmed or deleted.
        object_count: Objects in the table.
        record_count: Rows in the table, without the hidden ones.
        partly_trimmed: Objects of which some rows are trimmed and hidden.
        hidden_count: The rows that are hidden in them.
    """

    table: str
    source: str
    made: bool
    snapshot_id: int | None
    added: int
    removed: int
    object_count: int
    record_count: int
    partly_trimmed: int
    hidden_count: int

    def __str__(self) -> str:
        done = f"{self.added} objects added, {self.removed} removed" if self.snapshot_id else "nothing new"
        hidden = f", {self.hidden_count} trimmed rows hidden in {self.partly_trimmed}" if self.partly_trimmed else ""
        return f"{self.table}: {done}; {self.record_count} records in {self.object_count} objects{hidden}"


@dataclass(frozen=True, slots=True)
class RegisterResult:
    """The result of a run: the tables that are up to date, and by name of the stream the errors of those that are not."""

    tables: tuple[RegisteredTable, ...]
    failures: Mapping[str, RangelogError]


def register(
    cluster: ClusterAddress,
    catalog: Catalog | str,
    *,
    stream: str | None = None,
    prefix: str | None = None,
    topic: str | None = None,
    namespace: str | None = None,
    table: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
) -> RegisterResult:
    """Bring the Iceberg tables of a stream, of all streams with a prefix, or of a topic up to date with the tier.

    Args:
        cluster: The cluster; its `tier_url` is for readers of the table as well.
        catalog: A catalog of pyiceberg, or the name of one that it finds in its configuration.
        stream: The stream. Give exactly one of `stream`, `prefix` and `topic`.
        prefix: How the names of the streams start; "": all. Each becomes a table.
        topic: The topic; all its shards become one table, with a column `shard`.
        namespace: The tables' namespace, parts parted by dots; default: a topic's own, `rangelog` for streams.
        table: The name of the table; default: that of the stream or topic, with `_` for `.` and `-`.
        catalog_properties: Properties of the catalog that `catalog` names, above those of the configuration.

    Returns:
        The result. One stream's error does not stop the others of a prefix: see `failures`.

    Raises:
        InvalidArgument: Not exactly one source is given, or a name is not valid; ConfigInvalid: the catalog's properties.
        StreamNotFound, TopicNotFound, TopicKindForbids: There is no such source.
        PreconditionFailed: The cluster has no tier, or the table is another one's.
        UnsupportedVersion, Corruption, ObjectNotFound: An object cannot be taken.
        Unauthorized, Unavailable: The cluster, the catalog or the object store does not answer. Run it again.
        MissingExtra: pyiceberg is not installed.

    Example:
        ```python
        register(ClusterAddress("127.0.0.1:7100"), "lake", topic="shop/orders")
        ```
    """
    if [stream, prefix, topic].count(None) != 2:
        raise InvalidArgument("give exactly one of stream, prefix and topic")
    parts = _namespace_parts(prefix, namespace, table)
    _need_pyiceberg()
    with rangelog.sync.connect(cluster.pd, token=cluster.token, tier_url=cluster.tier_url, tls=cluster.tls) as client:
        url = client.run(known_tier_url(client.asynchronous, cluster.tier_url))
        sources = client.run(find_sources(client.asynchronous, stream=stream, prefix=prefix, topic=topic))
        opened = open_catalog(catalog, catalog_properties or {}, url)
        done: list[RegisteredTable] = []
        failures: dict[str, RangelogError] = {}
        for source in sources:
            name = (*namespace_name(source, parts), table or table_name(source))
            try:
                done.append(_register_one(client, opened, name, source, url))
            except RangelogError as error:
                if prefix is None:
                    raise
                if not isinstance(error, StreamNotFound):  # it was deleted meanwhile
                    failures[source.name] = error
        return RegisterResult(tuple(done), failures)


def _namespace_parts(prefix: str | None, namespace: str | None, table: str | None) -> tuple[str, ...]:
    if prefix is not None and table is not None:
        raise InvalidArgument("streams with a prefix have a table each: leave out the table's name")
    parts = tuple(namespace.split(".")) if namespace else ()
    if not all(parts) or table == "":
        raise InvalidArgument("a namespace is names parted by single dots, and a table needs a name")
    return parts


def _register_one(
    client: rangelog.sync.Client, catalog: Catalog, name: tuple[str, ...], source: TableSource, tier_url: str
) -> RegisteredTable:
    def look() -> list[LiveObject]:
        return client.run(live_objects(client.asynchronous, source, tier_url))

    return bring_up_to_date(catalog, name, source, tier_location(tier_url), look)


def open_catalog(given: Catalog | str, properties: Mapping[str, str], tier_url: str) -> Catalog:
    """Return the catalog; one that is named gets the S3 endpoint and region of the tier's URL, if it has none of its own.

    Raises ConfigInvalid, Unavailable.
    """
    from pyiceberg.catalog import load_catalog

    from rangelog_jobs.iceberg_table import catalog_errors

    if not isinstance(given, str):
        return given
    with catalog_errors(f"the catalog {given!r}"):
        catalog = load_catalog(given, **properties)
    for option, values in parse_qs(urlsplit(parse_tier(tier_url)[-1].url).query).items():
        if option in ("endpoint", "region"):
            catalog.properties.setdefault(f"s3.{option}", values[0])
    return catalog


def bring_up_to_date(
    catalog: Catalog, name: tuple[str, ...], source: TableSource, location: str, look: Callable[[], list[LiveObject]]
) -> RegisteredTable:
    """Add to one table what it lacks and take out what is gone; after a conflict, look again.

    Args:
        catalog: The catalog.
        name: The namespace and the table.
        source: The stream or topic that the table shows.
        location: The URL below which the objects are.
        look: Returns the live objects of the moment; called after each look at the table.

    Raises:
        PreconditionFailed: The table is another one's, or something else has written to it.
        ObjectNotFound, Corruption, UnsupportedVersion: A file cannot be taken.
        ConfigInvalid, Unauthorized, Unavailable: The catalog or its storage does not work.

    Example:
        ```python
        bring_up_to_date(catalog, ("rangelog", "flights"), source, "file:///var/lib/tier", lambda: objects)
        ```
    """
    from pyiceberg.exceptions import NoSuchTableError

    from rangelog_jobs.iceberg_change import commit_change, plan_change
    from rangelog_jobs.iceberg_table import CONFLICTS, catalog_errors, open_table, read_state

    full_name = ".".join(name)
    made_by_us = False
    gone = ""
    for attempt in range(TRIES_MAX):
        if attempt:
            time.sleep(random.uniform(0, _PAUSE_S * attempt))
        try:
            with catalog_errors(f"the catalog of table {full_name}"):
                table, made = open_table(catalog, name, source, location)
                made_by_us |= made
                state = read_state(table)
            live = look()
            change = plan_change(state, live)
            with catalog_errors(f"the catalog of table {full_name}, or its storage,"):
                snapshot_id = commit_change(table, source, state, change) if change else None
        except FileNotFoundError as error:  # trimmed and deleted meanwhile, or the table's own files are gone
            gone = str(error).splitlines()[0][:200]
            if attempt >= _MISSING_MAX:
                break
        except (*CONFLICTS, NoSuchTableError):  # dropped meanwhile: made anew
            gone = ""
        else:
            return _report(full_name, source, made_by_us, snapshot_id, change, live)
    if gone:
        raise ObjectNotFound(f"a file of table {full_name} is missing ({gone}): look at the object store")
    raise Unavailable(f"others change table {full_name} faster than this run: run it again")


def _report(
    name: str, source: TableSource, made: bool, snapshot_id: int | None, change: TierChange, live: list[LiveObject]
) -> RegisteredTable:
    trimmed = [each.trimmed_count for each in live if each.trimmed_count]
    return RegisteredTable(
        table=name,
        source=source.name,
        made=made,
        snapshot_id=snapshot_id,
        added=len(change.added),
        removed=len(change.removed),
        object_count=len(live),
        record_count=sum(each.end_offset - each.start_offset - each.trimmed_count for each in live),
        partly_trimmed=len(trimmed),
        hidden_count=sum(trimmed),
    )


def _need_pyiceberg() -> None:
    """Raise MissingExtra unless there is a pyiceberg whose private classes are known."""
    advice = "pip install 'rangelog[iceberg]'"
    try:
        import pyarrow  # noqa: F401
        import pyiceberg.io.pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingExtra(f"Iceberg tables need pyiceberg: {advice}") from error
    found = version("pyiceberg")
    if not found.startswith(PYICEBERG_LINE):
        raise MissingExtra(f"Iceberg tables need pyiceberg {PYICEBERG_LINE}*, and {found} is installed: {advice}")


# ---- the command


def add_job(jobs: JobTable) -> None:
    """Add the job."""
    jobs.add(
        Job(
            "iceberg",
            "Keep Iceberg tables of the tiered part of streams or of a topic, without a copy; run again, it follows.",
            [
                "iceberg --stream flights --catalog lake",
                "iceberg --topic shop/orders --catalog lake --namespace raw --table orders",
                "iceberg --prefix air. --catalog lake --catalog-property uri=http://catalog:8181",
            ],
            _arguments,
            _run,
            "Spark is not started, and need not be installed; pyiceberg must be: pip install 'rangelog[iceberg]'.",
        )
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--stream", metavar="NAME", help="the stream")
    what.add_argument("--prefix", metavar="P", help="all streams whose names start with it, a table each")
    what.add_argument("--topic", metavar="NAMESPACE/NAME", help="the topic: all its shards in one table")
    parser.add_argument(
        "--catalog", default="default", metavar="NAME", help="the catalog, as pyiceberg's configuration has it"
    )
    parser.add_argument(
        "--catalog-property", action="append", type=setting, metavar="NAME=VALUE",
        help="a property of the catalog; repeatable",
    )  # fmt: skip
    parser.add_argument("--namespace", help="the tables' namespace; default: that of the topic, or `rangelog`")
    parser.add_argument("--table", metavar="NAME", help="the table's name; default: that of the stream or topic")
    add_output(parser)


def _run(call: JobCall) -> int:
    given = call.arguments
    result = register(
        call.cluster(),
        given.catalog,
        stream=given.stream,
        prefix=given.prefix,
        topic=given.topic,
        namespace=given.namespace,
        table=given.table,
        catalog_properties=dict(given.catalog_property or []),
    )
    failures = {name: error.message for name, error in result.failures.items()}
    document = {"tables": [asdict(each) for each in result.tables], "failures": failures}
    call.emit(document, "\n".join(str(each) for each in result.tables))
    for name, message in failures.items():
        call.console.print_line(f"rangelog-spark: {name}: {message}")
    return EXIT_WRONG if failures else EXIT_OK
