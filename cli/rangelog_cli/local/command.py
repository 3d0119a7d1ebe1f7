"""`rangelog local`: a whole cluster on this machine, supervised until Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import click

from pdctl.units import show_count
from rangelog_cli.local.background import Running, write_running
from rangelog_cli.local.doors import chosen_doors, door_lines, door_tries
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.keeper import Keeper
from rangelog_cli.local.metrics_ports import TARGETS_FILE, enable_metrics
from rangelog_cli.local.naming import choose_name, write_local_context
from rangelog_cli.local.page_ports import enable_page
from rangelog_cli.local.plan import read_plan
from rangelog_cli.local.processes import Cluster
from rangelog_cli.local.tier_check import check_tier
from rangelog_core.errors import RangelogError
from rangelog_core.limits import MIB
from rangelog_core.net.tls import CA_ENV, CERTIFICATE_ENV, KEY_ENV, TlsConfig
from rangelog_tier.encryption_keys import KEYS_DIR_ENV

DEFAULT_PORT = 7100
SMALL = {"RANGELOG_SERVER_SEGMENT_SIZE_BYTES": str(16 * MIB)}
"""Settings for trying: three segments are set aside at each range server, 48 MiB in place of 192."""
DEFAULT_BROKERS = 2
_CHECK_S = 0.2


def run_local(
    data_dir: Path,
    *,
    pds: int | None,
    range_servers: int | None,
    brokers: int | None,
    tier_url: str | None,
    port: int | None,
    tls: bool | None,
    encrypted: bool | None = None,
    tokens: bool | None = None,
    doors: str | None = None,
    write_context: bool = True,
    context_name: str | None = None,
    in_background: bool = False,
) -> int:
    """Run until SIGINT or SIGTERM; exit code 0 after a clean stop. Raises the errors of `Cluster.open` and `start`.

    `context_name`: of the context for pdctl, None: see `naming`. Raises PreconditionFailed where it is another cluster's.
    """
    fresh = not (data_dir / "cluster.json").exists()
    if brokers is None and fresh:
        brokers = DEFAULT_BROKERS if range_servers != 1 else 0
    if write_context:
        _check_name(data_dir, context_name)
    if fresh and tier_url is not None:
        check_tier(tier_url)
    cluster = Cluster.open(
        data_dir,
        pds=pds,
        range_servers=range_servers,
        brokers=brokers,
        tier_url=tier_url,
        base_port=DEFAULT_PORT if port is None and fresh else port,
        tls=tls,
        encrypted=encrypted,
        tokens=tokens,
        doors=chosen_doors(doors, fresh=fresh),
        env={name: value for name, value in SMALL.items() if name not in os.environ},
    )
    name = choose_name(cluster.directory, context_name, cluster.pd_addresses) if write_context else ""
    write_running(cluster.directory, running := Running.this_process(in_background=in_background, context=name))
    enable_metrics(cluster)
    pages = enable_page(cluster)
    try:
        _on_stop_signals(_interrupt)
        _start(cluster)
        stop = threading.Event()
        _on_stop_signals(lambda *_: stop.set())
        note = _write_context(cluster, name) if name else ContextNote()
        click.echo(banner(cluster, note, pages=pages, in_background=in_background))
        sys.stdout.flush()
        _look_after(cluster, stop, replace(running, is_up=True))
    except KeyboardInterrupt:
        pass  # a stop was requested during the start
    finally:
        _on_stop_signals(signal.SIG_IGN)
        click.echo("Stopping …")
        cluster.stop()
    click.echo("Stopped. A start with the same --data-dir continues with the same data.")
    return 0


def _check_name(data_dir: Path, context_name: str | None) -> None:
    """Refuse the name of another cluster's context before anything is made."""
    plan = read_plan(data_dir)
    choose_name(data_dir.absolute(), context_name, plan.pd_addresses if plan else ())


def _start(cluster: Cluster) -> None:
    click.echo(f"Starting {len(cluster.members)} processes in {cluster.directory} …")
    cluster.start()
    for server in sorted(cluster.left_out):
        click.echo(left_out_line(cluster, server))
    wait_healthy(cluster)


@dataclass(frozen=True)
class ContextNote:
    """The context that was written: its name, or "", and whether commands go to it."""

    name: str = ""
    in_use: bool = False

    @property
    def pdctl(self) -> str:
        """Return how pdctl is called for this cluster."""
        return "pdctl" if self.in_use or not self.name else f"pdctl --context {self.name}"

    def __str__(self) -> str:
        if self.in_use:
            return f"{self.name}, in use"
        return f"{self.name}, not in use: another cluster is; `pdctl context use {self.name}` changes that"


def banner(
    cluster: Cluster, note: ContextNote = ContextNote(), *, pages: Sequence[str] = (), in_background: bool = False
) -> str:
    """Return the text for people after the start: addresses, and the next commands."""
    plan = cluster.plan
    running = [server for server in plan.range_servers if server.name not in cluster.left_out]
    servers = ", ".join(f"{server.name} 127.0.0.1:{server.data_port}" for server in running)
    counts = ", ".join([
        show_count(len(plan.pds), "placement driver"),
        show_count(len(running), "range server"),
        show_count(len(plan.brokers), "broker"),
    ])  # fmt: skip
    brokers = ", ".join(f"{broker.name} 127.0.0.1:{broker.port}" for broker in plan.brokers)
    scheme = "https" if plan.tls else "http"
    rest = ", ".join(f"{scheme}://{broker.host}:{broker.rest_port}" for broker in plan.brokers if broker.rest_port)
    lines = [
        "",
        f"  rangelog is up: {counts}",
        "",
        f"  connect to     {cluster.connect_string}",
        f"  range servers  {servers}",
        *([f"  brokers        {brokers}"] if brokers else []),
        *([f"  REST           {rest}"] if rest else []),
        *door_lines(plan),
        *([f"  page           {', '.join(pages)}"] if pages else []),
        f"  tier           {plan.tier_url}",
        f"  data and logs  {cluster.directory}",
        "  disk space     each range server sets three segments of its log aside before there are records",
        f"  metrics        {cluster.directory / TARGETS_FILE}",
        *(
            [f"  certificates   {cluster.certificates.directory}: mutual TLS on all ports"]
            if cluster.certificates
            else []
        ),
        *([f"  keys           {cluster.keys_dir}: nobody reads the tier without them"] if plan.encrypted else []),
        *([f"  pdctl context  {note}"] if note.name else []),
        *_one_copy(len(plan.range_servers)),
        "",
        "  Try:" if in_background else "  Try, in another terminal:",
        *([] if note.name else [f"    export RANGELOG_PD={cluster.connect_string}", *_exports(cluster.tls)]),
        *([f"    export {KEYS_DIR_ENV}={cluster.keys_dir}"] if plan.encrypted else []),
        f"    {note.pdctl} cluster status",
        f"    {note.pdctl} stream create hello && echo 'first record' | {note.pdctl} stream append hello",
        f"    {note.pdctl} stream read hello",
        *door_tries(plan),
        "",
        f"  `rangelog local stop --data-dir {cluster.directory}` stops it; the data stays."
        if in_background
        else "  Ctrl-C stops it; the data stays.",
        "",
    ]
    return "\n".join(lines)


def _one_copy(range_servers: int) -> list[str]:
    """Return what one range server means."""
    if range_servers > 1:
        return []
    return [
        "",
        "  One range server: streams have one copy and an ack means that it is on this one disk; what the disk loses is lost.",
        "  Topics, groups and tables need two: start again with --range-servers 3 --brokers 2.",
    ]


def _exports(tls: TlsConfig | None) -> list[str]:
    if tls is None:
        return []
    return [
        f"    export {name}={path}"
        for name, path in ((CA_ENV, tls.ca), (CERTIFICATE_ENV, tls.cert), (KEY_ENV, tls.key))
    ]


def _on_stop_signals(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def left_out_line(cluster: Cluster, name: str) -> str:
    """Return what is said of a range server that does not run because it was removed."""
    return (
        f"{name} was removed from the cluster: it is left out; "
        f"delete {cluster.directory / name} to have it back as an empty server at the next start"
    )


def _look_after(cluster: Cluster, stop: threading.Event, running: Running) -> None:
    write_running(cluster.directory, replace(running, left_out=tuple(sorted(cluster.left_out))))
    keeper = Keeper(cluster.members, time.monotonic(), lambda line: click.echo(line), cluster.left_out)
    while not stop.wait(_CHECK_S):
        removed = cluster.leave_out_removed()
        for name in removed:
            click.echo(left_out_line(cluster, name))
        if removed:
            write_running(cluster.directory, replace(running, left_out=tuple(sorted(cluster.left_out))))
        keeper.check(time.monotonic())


def _write_context(cluster: Cluster, name: str) -> ContextNote:
    """Write the context for pdctl; a failure is only reported."""
    try:
        return ContextNote(name, write_local_context(cluster.directory, name, cluster.pd_addresses, cluster.tls))
    except (OSError, RangelogError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.message
        click.echo(f"rangelog: the context was not written ({reason}): pass --pd to pdctl", err=True)
        return ContextNote()
