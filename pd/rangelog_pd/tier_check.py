"""The leader's check of the tier, where it can: it needs the extra `tier`, and a file:// tier's directory on its machine.

Otherwise the checks of the range servers, which make the place if it is missing, are all that there is. A store that is asked
for while the cluster runs is more likely mistyped than missing: its directory must be there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from rangelog_core.errors import ConfigInvalid, MissingExtra, PreconditionFailed, RangelogError, Unavailable
from rangelog_core.tier_stores import parse_tier
from rangelog_server_common.tier_watch import TierWatch

TRIAL_WAIT_S = 1.0
"""Below the limit of a client's try."""
TRIALS_MAX = 4

if TYPE_CHECKING:
    from rangelog_tier.encryption_keys import KeyProvider

_log = structlog.get_logger("tier")


def leader_watch(url_now: Callable[[], str], leads: Callable[[], bool], keys: KeyProvider | None = None) -> TierWatch:
    """Return the watch of the tier; it checks while this member leads."""

    async def check() -> None:
        if leads() and (url := url_now()):
            await _on_a_thread(lambda: check_tier(url, keys))

    return TierWatch(check)


def check_tier(url: str, keys: KeyProvider | None = None) -> None:
    """Write to the tier, read it back, write it again, which must be refused, and delete it; ask `keys` for the current key.

    Raises what is wrong with it.
    """
    if keys is not None:
        keys.current()
    from rangelog_tier.object_store import probe
    from rangelog_tier.opening import open_object_store, store_location

    location = store_location(parse_tier(url)[-1].url)
    if location.startswith("/") and not Path(location).is_dir():
        return
    try:
        store = open_object_store(url)
    except MissingExtra:
        _log.info("the tier is not checked by this placement driver: the extra 'tier' is not installed")
        return
    try:
        probe(store)
    finally:
        store.close()


def check_new_tier(url: str) -> None:
    """Check a store that the tier is to get. Raises ConfigInvalid (no such directory here), and what `check_tier` raises."""
    from rangelog_tier.opening import store_location

    location = store_location(parse_tier(url)[-1].url)
    if location.startswith("/") and not Path(location).is_dir():
        raise ConfigInvalid(
            f"there is no directory {location} on the leading placement driver's machine: correct the URL, or make or mount it"
        )
    check_tier(url)


class TierTrials:
    """The checks of stores that the tier is to get: one for each URL, which outlives the call that asked for it."""

    def __init__(self) -> None:
        self._trials: dict[str, asyncio.Future[None]] = {}

    async def passed(self, url: str) -> None:
        """Return once a store is found to work. Raises PreconditionFailed, Unavailable (not yet: ask again)."""
        if url not in self._trials and len(self._trials) >= TRIALS_MAX:
            raise Unavailable("too many stores are being checked: try again")
        trial = self._trials.get(url)
        if trial is None:
            trial = self._trials[url] = asyncio.ensure_future(_on_a_thread(lambda: check_new_tier(url)))
        if not (await asyncio.wait((trial,), timeout=TRIAL_WAIT_S))[0]:
            raise Unavailable("the new tier is being checked: try again")
        self._trials.pop(url, None)
        try:
            trial.result()
        except RangelogError as error:
            raise PreconditionFailed(
                f"the tier stays as it is, the new one fails: {error.code}: {error.message}"
            ) from error


async def _on_a_thread(work: Callable[[], None]) -> None:
    """Run `work` on a thread that does not keep the process from ending: a directory may hang."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if not done.done():
            done.set_result(None) if error is None else done.set_exception(error)

    def run() -> None:
        try:
            work()
            problem: Exception | None = None
        except Exception as error:
            problem = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, problem)

    threading.Thread(target=run, name="tier check", daemon=True).start()
    await done
