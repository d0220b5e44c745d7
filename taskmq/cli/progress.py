"""Progress bar of long commands on a terminal; silent in pipes and with `-o json`."""

import logging
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from taskmq.cli.globals import current_globals

if TYPE_CHECKING:
    from taskmq.operations.retention import Advance

_FOR_PEOPLE: Final = "table"


@contextmanager
def progress(what: str, *, patience: float = 0.0) -> "Generator[Advance]":
    """Show a bar on standard error from the first call until the block ends, then erase it.

    Silent if standard error is not a terminal, with `--quiet`, `-o json` and `-o jsonl`.

    Args:
        patience: seconds without a bar, for actions that are mostly quick.
    """
    options = current_globals()
    if not sys.stderr.isatty() or options.output != _FOR_PEOPLE or options.log_level >= logging.ERROR:
        yield _discard
        return
    with ExitStack() as shown:
        bar: Advance | None = None
        shows_from = time.monotonic() + patience

        def advance(done: int, total: int | None) -> None:
            nonlocal bar
            # Not earlier: the command may ask a question first.
            if bar is None:
                if time.monotonic() < shows_from:
                    return
                bar = shown.enter_context(_bar(what))
            bar(done, total)

        yield advance


@contextmanager
def _bar(what: str) -> "Generator[Advance]":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, *times, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _discard(done: int, total: int | None) -> None:
    """Discard progress."""
