"""`taskmq dlq`."""

import os
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from taskmq.api.dead_letters import LetterGroupView, LetterView, PlannedReplay, ReplayBody
from taskmq.api.values import MOST_PER_PAGE
from taskmq.cli.actor import name_caller
from taskmq.cli.exits import FAILED, NOT_FOUND, OK
from taskmq.cli.globals import current_globals, run_with_app
from taskmq.cli.noun import Noun
from taskmq.cli.operators.letters import COLUMNS, Filters, letter_row, parse_rate
from taskmq.cli.output import confirm, note, print_rows
from taskmq.cli.server_link import Api, ask, show_record, show_rows, text_of_instant
from taskmq.errors import InvalidOption, NotPermitted, PartlyReplayed
from taskmq.model.telemetry.plain_text import escape_json
from taskmq.model.topology import PARKING, UNROUTABLE
from taskmq.operations.dead_letters import DeadLetter, letter_line
from taskmq.operations.dead_letters.letter import JobsOfLetters

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.cli.dead_letters import OperatorDeadLetters

app = Noun(name="dlq", help="Manage dead letters: list, groups, show, replay, purge, export, archive.")

_GROUP_COLUMNS: Final = (
    "count", "jobs", "queue", "tenants", "first", "last", "task", "error", "sample", "fingerprint"
)  # fmt: skip
_EVERYTHING: Final = Filters()

Queue = Annotated[str, Parameter(help="The queue, by its name in the app; or taskmq.parking, taskmq.unroutable.")]
AnyQueue = Annotated[
    str | None, Parameter(help="The queue. Default: all queues of the app (--app), and unroutable messages.")
]
Count = Annotated[int, Parameter(validator=Number(gte=1))]
Yes = Annotated[bool, Parameter(negative="", help="Skip the confirmation prompt.")]


@app.command(name="list")
def list_letters(queue: AnyQueue = None, /, *, limit: Count = 50, filters: Filters = _EVERYTHING) -> None:
    """List the oldest dead letters of a queue, or of all queues of the app. Changes nothing.

    Args:
        limit: Maximum number of letters.
    """

    async def run(api: Api) -> tuple[list[LetterView], int]:
        found: list[LetterView] = []
        for name in await _queues(api, queue):
            if left := limit - len(found):
                found += await api.dead_letters.list(name, limit=left, **filters.given)
        # Messages that the broker gives up before the queue had its first dead job go to the unroutable queue.
        is_elsewhere = queue and not found and queue not in (PARKING, UNROUTABLE)
        return found, await _count_lost(api) if is_elsewhere else 0

    found, lost = ask(run, tenant=filters.tenant)
    if lost:
        note(f"none in {queue!r}; {lost} unroutable messages: taskmq dlq list {UNROUTABLE}")
    columns = COLUMNS if queue else ("queue", *COLUMNS)
    show_rows(columns, found, lambda letter: {"queue": letter.letter_of, **letter_row(letter)})
    _note_duplicates(found)


@app.command
def groups(queue: AnyQueue = None, /, *, filters: Filters = _EVERYTHING) -> None:
    """List the failures behind the dead letters of a queue, or of all queues of the app, most frequent first.

    Letters with the same task, error type and innermost code belong to one failure. Pass its fingerprint to the other
    commands. A job can have several letters.
    """

    async def run(api: Api) -> list[LetterGroupView]:
        names = await _queues(api, queue)
        return [group for name in names for group in await api.dead_letters.groups(name, **filters.given)]

    found = sorted(ask(run, tenant=filters.tenant), key=lambda group: -group.count)
    show_rows([column for column in _GROUP_COLUMNS if column != "queue" or not queue], found, _group_row)


@app.command
def show(queue: Queue, job: str, /, *, tenant: str | None = None, depth: Count | None = None) -> int:
    """Show one dead letter with its message and traceback.

    Args:
        job: The job's id.
        tenant: Only a letter of this tenant's job.
        depth: Search only this many letters, oldest first. Default: all.
    """
    letters = ask(
        lambda api: api.dead_letters.list(queue, job=job, depth=depth, limit=1, expand=["body"]), tenant=tenant
    )
    if not letters:
        note(f"no dead letter of job {job} in {queue!r}")
        return NOT_FOUND
    (found,) = letters

    def record() -> dict[str, Any]:
        return {
            **letter_row(found),
            "error_type": found.error_type,
            "fingerprint": found.fingerprint,
            "queue": found.queue,
            "worker": found.worker,
            **({} if found.starts is None else {"starts": found.starts}),
            "enqueued": text_of_instant(found.enqueued),
            "started": text_of_instant(found.started),
            "replayed": found.replayed,
            **({} if found.body is None else {"body": found.body}),
            "traceback": found.traceback,
        }

    show_record(found, record)
    return OK


@app.command(name="replay")
@name_caller
def replay_letters(
    queue: Queue,
    /,
    *,
    limit: Count | None = None,
    to: str | None = None,
    keep_attempts: Annotated[bool, Parameter(negative="")] = False,
    rate: str | None = None,
    max_replays: Count = 3,
    duplicates: Annotated[bool, Parameter(negative="")] = False,
    force: Annotated[bool, Parameter(negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    filters: Filters = _EVERYTHING,
) -> int:
    """Send dead letters back to their queues, in order, starting again from the first attempt.

    If a job has several letters, as after a killed worker, one is sent and the others are dropped. A letter is
    removed only after its copy is confirmed. Letters that arrive later are left for the next run.

    Args:
        limit: Maximum number of letters. Default: all.
        to: Send them to another queue; the priority class stays.
        keep_attempts: Continue with the last attempt instead of the first.
        rate: Maximum rate, such as 50/s or 100/m.
        max_replays: Leave letters that were replayed this often before.
        duplicates: Send all letters of a job.
        force: Replay these, too.
        dry_run: Only list what would be replayed.
    """
    body = ReplayBody(
        **filters.given,
        to=to,
        limit=limit,
        keep_attempts=keep_attempts,
        max_replays=None if force else max_replays,
        rate=None if rate is None else parse_rate(rate),
        duplicates=duplicates,
        dry_run=dry_run,
    )
    try:
        done = ask(lambda api: api.dead_letters.replay(queue, body), tenant=filters.tenant)
    except PartlyReplayed as error:
        note(f"{error.replayed} replayed")
        raise
    if done.planned is None:
        note(f"{done.replayed} replayed")
    else:
        _show_letters([*COLUMNS, "to"], done.planned, done.replayed)
    if done.dropped:
        note(f"{done.dropped} {'would be ' if dry_run else ''}dropped: further letters of the same jobs")
    if done.too_often:
        note(f"{done.too_often} left: already replayed {max_replays} times; use --force to replay them")
    if done.no_destination:
        note(f"{done.no_destination} left: their queue is unknown; name one with --to")
    if not dry_run and (done.too_often or done.no_destination):
        return FAILED
    return NOT_FOUND if filters.job and not done.replayed else OK


@app.command(name="purge")
@name_caller
def purge_letters(
    queue: Queue,
    /,
    *,
    limit: Count | None = None,
    yes: Yes = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    filters: Filters = _EVERYTHING,
) -> int:
    """Delete all or the matching dead letters of a queue. Back them up with `dlq export` first.

    Args:
        limit: Maximum number of letters, oldest first. Default: all.
        dry_run: Only list what would be deleted.
    """
    which = "all" if filters == _EVERYTHING and limit is None else "the matching"
    if not dry_run and not confirm(f"Delete {which} dead letters of {queue!r}?", yes=yes):
        return FAILED

    async def run(api: Api) -> tuple[int, Sequence[LetterView]]:
        shown: Sequence[LetterView] = []
        if dry_run:
            most = sys.maxsize if current_globals().server is None else MOST_PER_PAGE
            shown = await api.dead_letters.list(queue, limit=min(limit or most, most), **filters.given)
        return await api.dead_letters.purge(queue, limit=limit, dry_run=dry_run, **filters.given), shown

    count, shown = ask(run, tenant=filters.tenant)
    if dry_run:
        _show_letters(COLUMNS, shown, count)
    else:
        note(f"{count} dead letters deleted")
    return NOT_FOUND if filters.job and not count else OK


@app.command
def export(
    queue: Queue, /, *, file: Path | None = None, limit: Count | None = None, filters: Filters = _EVERYTHING
) -> None:
    """Write complete dead letters as JSON lines: body, headers, error, times. Changes nothing.

    A text body is in "body", any other in "body_base64".

    Args:
        file: The file to write; it must not exist. Default: standard output.
        limit: Maximum number of letters, oldest first. Default: all.
    """
    # On the same terminal, the bar and the letters would be mixed.
    shows_progress = file is not None or not sys.stdout.isatty()
    with _open_new(file) as target:

        def write(letter: DeadLetter) -> None:
            # Still the same JSON, without characters that control a terminal.
            target.write(escape_json(letter_line(letter).decode()).encode())

        async def run(app: "TaskMQ") -> int:
            letters = _at_app(app, filters.tenant)
            return await letters.visit(queue, write, limit, filters.given, shows_progress=shows_progress)

        count = run_with_app(run)
    note(f"{count} dead letters exported")


@app.command(name="archive")
def list_archived(
    *, start: Annotated[int, Parameter(name="--from", validator=Number(gte=0))] = 0, limit: Count = 50
) -> None:
    """List the dead letters in the broker's archive, of all queues. Changes nothing.

    Args:
        start: The offset to begin at; continue a list at its last offset plus one.
        limit: Maximum number of letters.
    """

    async def run(app: "TaskMQ") -> list[tuple[int, LetterView]]:
        return await _at_app(app).read_archive(start, limit)

    columns = ("offset", *COLUMNS)
    print_rows(columns, [{"offset": place, **letter_row(letter)} for place, letter in run_with_app(run)])


def _at_app(app: "TaskMQ", tenant: str | None = None) -> "OperatorDeadLetters":
    from taskmq.cli.operator import OperatorApi

    return OperatorApi(app, tenant).dead_letters


async def _queues(api: Api, queue: str | None) -> Sequence[str]:
    return [queue] if queue else await api.dead_letters.queues()


async def _count_lost(api: Api) -> int:
    """Return the number of unroutable messages; 0 if the caller has no permission to read it."""
    try:
        found = await api.queues.list([UNROUTABLE], within=0.01)
    except NotPermitted:
        return 0
    return next((line.ready for line in found.items if line.queue == UNROUTABLE), 0)


def _show_letters(columns: Sequence[str], letters: Sequence[LetterView], count: int) -> None:
    def row(letter: LetterView) -> dict[str, Any]:
        return {**letter_row(letter), "to": letter.to} if isinstance(letter, PlannedReplay) else letter_row(letter)

    show_rows(columns if letters else COLUMNS, letters, row)
    note(f"{count} dead letters; nothing was changed")


def _group_row(group: LetterGroupView) -> dict[str, Any]:
    return {
        "count": group.count,
        "jobs": group.jobs,
        "queue": group.letter_of,
        "tenants": ", ".join(group.tenants),
        "first": text_of_instant(group.first),
        "last": text_of_instant(group.last),
        "task": group.task,
        "error": group.error_type or group.reason,
        "sample": group.sample,
        "fingerprint": group.fingerprint,
    }


def _note_duplicates(letters: Iterable[LetterView]) -> None:
    jobs = JobsOfLetters()
    for letter in letters:
        jobs.is_first(letter)
    if jobs.letters > jobs.jobs:
        note(f"{jobs}: replay sends each job once")


@contextmanager
def _open_new(file: Path | None) -> Generator[BinaryIO]:
    if file is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        # Dead letters contain arguments, so only the owner may read the file.
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            yield opened
    except FileExistsError:
        raise InvalidOption(f"{file} exists already: choose another file") from None
    except OSError as error:
        raise InvalidOption(f"{file}: {error}") from error
