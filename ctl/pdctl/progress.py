"""A line on the terminal with how far a long input is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

Advance = Callable[[int], None]


def progress(what: str, *, shown: bool, unit: str = "records") -> AbstractContextManager[Advance]:
    """Show a number of records, or of another unit, while the context lasts, if `shown`; yields what sets the number."""
    return _bar(what, unit) if shown else nullcontext(lambda count: None)


@contextmanager
def _bar(what: str, unit: str) -> Iterator[Advance]:
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} " + unit), TimeElapsedColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda count: bar.update(task, completed=count)
