"""A line on the terminal with how far a long input is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

Advance = Callable[[int], None]


def progress(what: str, *, shown: bool) -> AbstractContextManager[Advance]:
    """Show a number of records while the context lasts; yields what sets the number. `shown`: otherwise nothing is shown."""
    return _bar(what) if shown else nullcontext(lambda count: None)


@contextmanager
def _bar(what: str) -> Iterator[Advance]:
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} records"), TimeElapsedColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda count: bar.update(task, completed=count)
