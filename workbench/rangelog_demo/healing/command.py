"""`rangelog demo --healing`: starts the processes, plays the scene, restores, and says what it came to."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import RangelogError
from rangelog_demo.healing.outcome import HealingOutcome
from rangelog_demo.progress import DemoProgress

if TYPE_CHECKING:
    from rangelog_demo.healing.calls import HealingCalls
    from rangelog_demo.healing.load import HealingLoad


def run_healing(report: Path, *, keep: bool) -> int:
    """Run the demo; return 0 if all of it held, otherwise 1. `report`: a text file with the output of each pdctl command."""
    report.absolute().parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="rangelog-healing-"))
    outcome = HealingOutcome()
    interrupted = False
    try:
        asyncio.run(_run(directory, outcome))
    except (KeyboardInterrupt, asyncio.CancelledError):
        interrupted = True
        raise KeyboardInterrupt from None
    except RangelogError as error:
        outcome.problems.append(f"{error.code}: {error.message}")
    finally:
        if keep:
            click.echo(f"data and logs: {directory}")
        else:
            if not interrupted and not outcome.ok:
                _keep_logs(directory, report.absolute().with_suffix(".logs"))
            shutil.rmtree(directory, ignore_errors=True)
    report.write_text(outcome.text())
    for problem in outcome.problems:
        click.echo(f"does not hold: {problem}", err=True)
    click.echo(f"report: {report.absolute()}")
    click.echo(outcome.last_line)
    return 0 if outcome.ok else 1


def _keep_logs(directory: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    for cluster in ("cluster", "restored"):
        if (directory / cluster / "logs").is_dir():
            shutil.copytree(directory / cluster / "logs", target / cluster)
    click.echo(f"logs of the processes: {target}", err=True)


async def _run(directory: Path, outcome: HealingOutcome) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    tier_url = (directory / "bucket").absolute().as_uri()
    with DemoProgress() as progress:
        load = await _play(directory, tier_url, progress, outcome)
        outcome.problems += load.problems
        with progress.step("all servers are gone, with their disks"):
            shutil.rmtree(directory / "cluster", ignore_errors=True)
        await _restore(directory, tier_url, load, progress, outcome)


async def _play(directory: Path, tier_url: str, progress: DemoProgress, outcome: HealingOutcome) -> HealingLoad:
    import rangelog
    from rangelog_demo.healing import scene as scenes
    from rangelog_demo.healing.load import HealingLoad

    async with AsyncExitStack() as stack:
        with progress.step("start the processes") as bar:
            cluster, calls = await _start(directory / "cluster", scenes.RANGE_SERVERS, tier_url, outcome, stack)
            bar.note = f"3 placement drivers, {scenes.RANGE_SERVERS} range servers in 3 zones"
        client = await stack.enter_async_context(await rangelog.connect(cluster.connect_string))
        load = HealingLoad(client, scenes.STREAMS)
        scene = scenes.HealingScene(directory, cluster, client, calls, load, progress, outcome)
        await scene.append()
        await scene.kill()
        await scene.wipe()
        await scene.drain()
        await scene.cut_off()
        await scene.end()
    return load


async def _restore(
    directory: Path, tier_url: str, load: HealingLoad, progress: DemoProgress, outcome: HealingOutcome
) -> None:
    import rangelog
    from rangelog_demo.healing import scene as scenes

    async with AsyncExitStack() as stack:
        cluster, calls = await _start(directory / "restored", scenes.RESTORED_SERVERS, tier_url, outcome, stack)
        client = await stack.enter_async_context(await rangelog.connect(cluster.connect_string))
        await scenes.restore(calls, client, tier_url, load, progress, outcome)


async def _start(
    directory: Path, range_servers: int, tier_url: str, outcome: HealingOutcome, stack: AsyncExitStack
) -> tuple[Cluster, HealingCalls]:
    """Start a cluster, and return once all its servers are there; all of it is undone by `stack`."""
    from rangelog_demo.healing.calls import HealingCalls, wait_for
    from rangelog_demo.healing.scene import SETTINGS, WAIT_S

    cluster = Cluster.open(directory, pds=3, range_servers=range_servers, tier_url=tier_url, env=SETTINGS)
    stack.callback(cluster.stop)
    await asyncio.to_thread(cluster.start)
    calls = HealingCalls(cluster.pd_addresses, outcome.captured)
    stack.push_async_callback(calls.close)

    async def all_alive() -> bool:
        return await calls.alive_count() == range_servers

    await wait_for(all_alive, WAIT_S, "range servers have not registered")
    return cluster, calls
