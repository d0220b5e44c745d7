"""Progress bar of long commands on a terminal; silent in pipes and with `-o json`."""

import logging
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from taskmq.cli.globals import current_globals

if TYPE_CHECKING:
    from taskmq.operations.retention import Advance

_FOR_PEOPLE: Final = "table"


@contextmanager
def progress(what: str) -> "Generator[Advance]":
    """Show a bar on standard error from the first call until the block ends, then erase it.

    Silent if standard error is not a terminal, with `--quiet`, `-o json` and `-o jsonl`.
    """
    options = current_globals()
    if not sys.stderr.isatty() or options.output != _FOR_PEOPLE or options.log_level >= logging.ERROR:
        yield _discard
        return
    with ExitStack() as shown:
        bar: Advance | None = None

        def advance(done: int, total: int | None) -> None:
            nonlocal bar
            # Not earlier: the command may ask a question first.
            if bar is None:
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
