"""`taskmq demo`."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from taskmq.cli.exits import FAILED
from taskmq.cli.globals import current_globals
from taskmq.cli.output import announce, note, print_record, print_rows
from taskmq.cli.progress import progress
from taskmq.demo.run import Outcome, default_folder, run_demo
from taskmq.operations.retention import Advance


def demo(
    path: Path | None = None, /, *, serve: Annotated[bool, Parameter(negative="")] = False, port: int | None = None
) -> int:
    """Run a self-checking demo on real files: typed tasks, retries, delayed and recurring tasks, a fan-in, and jobs
    of a store that are listed, changed, cancelled and run again.

    Two worker processes on an embedded broker, or on that of --url. Compares the totals with a plain loop over the
    same files. Exits with 1 if anything differs.

    Args:
        path: A folder of Python files. Default: the sources of the standard library.
        serve: Instead, run a busy demo shop with its dashboard until stopped. Leaves no data behind.
        port: Port of the dashboard. Default: 8787, or any free port if that is in use.
    """
    if serve:
        return _serve(port)
    folder = path or default_folder()
    note(f"taskmq demo: the Python files in {folder}, two worker processes")
    with _progress() as advance:
        outcome = run_demo(folder, url=current_globals().url, advance=advance)
    _print(outcome)
    return 0 if outcome.is_right else FAILED


def _serve(port: int | None) -> int:
    from taskmq.cli.processes.dev import dev
    from taskmq.demo.past import write_past

    with tempfile.TemporaryDirectory(prefix="taskmq-demo-") as folder:
        os.chdir(folder)
        Path(".taskmq").mkdir(mode=0o700)
        try:
            announce("writing a day of jobs of a shop ...")
            asyncio.run(write_past("sqlite:///.taskmq/jobs.db?synchronous=normal"))
            return dev("taskmq.demo.showcase:app", port=port)
        finally:
            os.chdir("/")


def _print(outcome: Outcome) -> None:
    if current_globals().output != "table":
        print_record(
            {
                "totals": outcome.totals,
                "largest": [
                    {"definition": name, "lines": lines, "file": file} for name, lines, file in outcome.largest
                ],
                "checks": outcome.checks,
                "seconds": outcome.seconds,
                "is_right": outcome.is_right,
            }
        )
        return
    found = outcome.totals
    print_rows(
        ("files", "bytes", "lines", "tokens", "seconds"),
        [
            {
                "files": found.files,
                "bytes": found.bytes,
                "lines": found.lines,
                "tokens": found.tokens,
                "seconds": round(outcome.seconds, 1),
            }
        ],
    )
    note("")
    print_rows(
        ("definition", "lines", "file"),
        [{"definition": name, "lines": lines, "file": file} for name, lines, file in outcome.largest],
    )
    note("")
    print_rows(
        ("check", "found", "verdict"),
        [
            {"check": check.what, "found": check.found, "verdict": "right" if check.is_right else "WRONG"}
            for check in outcome.checks
        ],
    )


@contextmanager
def _progress() -> Generator[Advance]:
    if not sys.stderr.isatty():
        yield lambda done, total: note(f"{done} of {total} files") if done in (1, total) else None
        return
    with progress("files") as advance:
        yield advance
