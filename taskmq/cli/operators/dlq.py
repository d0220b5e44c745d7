"""`taskmq dlq`."""

import asyncio
import dataclasses
import os
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, TypeVar

from cyclopts import App, Parameter
from cyclopts.validators import Number

from taskmq.cli.actor import audited, note_change
from taskmq.cli.exits import FAILED, NOT_FOUND
from taskmq.cli.globals import open_app
from taskmq.cli.operators.letters import COLUMNS, Filters, TerminalProgress, letter_row, parse_rate
from taskmq.cli.output import confirm, note, print_record, print_rows, when
from taskmq.cli.server_link import over_http
from taskmq.contracts.broker import Archiving, Broker, QueueStats
from taskmq.errors import InvalidOption, PartlyReplayed, UnsupportedFeature
from taskmq.model.telemetry.plain_text import escape_json
from taskmq.model.topology import PARKING, UNROUTABLE
from taskmq.operations.dead_letters import (
    Choose,
    DeadLetter,
    LetterGroup,
    Replay,
    Replayed,
    browse,
    group_letters,
    letter_line,
    letter_queue,
    purge,
    queues_with_letters,
    replay,
    visit,
)
from taskmq.operations.dead_letters.letter import JobsOfLetters, read_letter

__all__ = ["GROUP_COLUMNS", "app"]

_Result = TypeVar("_Result")

app = App(name="dlq", help="Dead letters: list, groups, show, replay, purge, export.", result_action="return_value")

GROUP_COLUMNS: Final = (
    "count", "jobs", "queue", "tenants", "first", "last", "task", "error", "sample", "fingerprint"
)  # fmt: skip
_SEND_TIMEOUT: Final = 30.0
_EVERYTHING: Final = Filters()

Queue = Annotated[str, Parameter(help="The queue, as people name it; or taskmq.parking, taskmq.unroutable.")]
AnyQueue = Annotated[
    str | None, Parameter(help="The queue; all of the app (--app), and what is lost, when left out.")
]
Count = Annotated[int, Parameter(validator=Number(gte=1))]
Yes = Annotated[bool, Parameter(negative="", help="Do not ask.")]


@app.command(name="list")
@over_http("letters:list_letters")
def list_letters(queue: AnyQueue = None, /, *, limit: Count = 50, filters: Filters = _EVERYTHING) -> None:
    """List the oldest dead letters of a queue, or of all queues of the app; they stay where they are.

    Parameters
    ----------
    limit
        How many at most.
    """
    found: list[tuple[str, DeadLetter]] = []
    elsewhere: list[QueueStats] = []

    async def run(broker: Broker, name: str, choose: Choose | None, progress: TerminalProgress) -> None:
        if left := limit - len(found):
            letters = await browse(broker, name, limit=left, choose=choose, depth=filters.depth, progress=progress)
            found.extend((name, letter) for letter in letters)
        if queue and not found and queue not in (PARKING, UNROUTABLE):
            # What the broker itself gives up has nowhere else to go before the queue has had its first dead job.
            elsewhere.extend(await broker.stats([UNROUTABLE]))

    _in_queues(queue, run, filters, "list")
    if lost := sum(entry.ready for entry in elsewhere):
        note(f"none in {queue!r}; {lost} messages of some queue: taskmq dlq list {UNROUTABLE}")
    if queue:
        print_rows(COLUMNS, [letter_row(letter) for _, letter in found])
    else:
        print_rows(("queue", *COLUMNS), [{"queue": name, **letter_row(letter)} for name, letter in found])
    _note_duplicates(letter for _, letter in found)


@app.command
@over_http("letters:groups")
def groups(queue: AnyQueue = None, /, *, filters: Filters = _EVERYTHING) -> None:
    """List the failures behind the dead letters of a queue, or of all queues of the app, the most frequent first.

    Letters are of one failure when their task, error type and innermost code agree. The fingerprint names the
    failure for the other commands. A job can have several letters.
    """
    groups: list[tuple[str, LetterGroup]] = []

    async def run(broker: Broker, name: str, choose: Choose | None, progress: TerminalProgress) -> None:
        found = await group_letters(broker, name, choose=choose, depth=filters.depth, progress=progress)
        groups.extend((name, group) for group in found)

    _in_queues(queue, run, filters, "groups")
    groups.sort(key=lambda entry: -entry[1].count)
    rows = [
        {
            "count": group.count,
            "jobs": group.jobs,
            "queue": name,
            "tenants": ", ".join(sorted(group.tenants)),
            "first": when(group.first),
            "last": when(group.last),
            "task": group.task,
            "reason": group.reason,
            "error": group.error_type or group.reason,
            "message": group.error,
            "sample": group.sample,
            "fingerprint": group.fingerprint,
        }
        for name, group in groups
    ]
    print_rows([column for column in GROUP_COLUMNS if column != "queue" or not queue], rows)


@app.command
@over_http("letters:show")
def show(queue: Queue, job: str, /, *, tenant: str | None = None, depth: Count | None = None) -> int:
    """Show one dead letter with its message and traceback.

    Parameters
    ----------
    job
        The job's id.
    tenant
        Only a letter of this tenant's job.
    depth
        Look at no more than so many letters, the oldest; all when left out.
    """
    filters = Filters(job=job, tenant=tenant, depth=depth)

    async def run(broker: Broker, choose: Choose | None, progress: TerminalProgress) -> list[DeadLetter]:
        return await browse(broker, queue, limit=1, choose=choose, depth=depth, progress=progress)

    letters = _at_broker(run, filters, "show")
    if not letters:
        note(f"no dead letter of job {job} in {queue!r}")
        return NOT_FOUND
    (found,) = letters
    print_record(
        {
            **letter_row(found),
            "error_type": found.error_type,
            "fingerprint": found.fingerprint,
            "queue": found.queue,
            "worker": found.worker,
            **({} if found.starts is None else {"starts": found.starts}),
            "enqueued": when(found.enqueued),
            "started": when(found.started),
            "replayed": found.replayed,
            "body": found.body.decode(errors="replace"),
            "traceback": found.traceback,
        }
    )
    return 0


@app.command(name="replay")
@audited
@over_http("letters:replay")
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
    """Send dead letters back to where they came from, from their first attempt on; in their order.

    Of several letters of one job, as a killed worker may leave them, one is sent and the others are dropped. A letter
    is taken off only after its copy is confirmed. What came after the start is left for the next time.

    Parameters
    ----------
    limit
        How many letters at most; all when left out.
    to
        Another queue to send them to; the priority class stays.
    keep_attempts
        Go on with the attempt that was the last, instead of the first.
    rate
        Letters a second at most, for example 50/s; or 100/m.
    max_replays
        Leave letters that were replayed so often before.
    duplicates
        Send all letters of a job.
    force
        Replay them, too.
    dry_run
        Only list what would be replayed.
    """
    plan = Replay(
        to=to,
        keep_attempts=keep_attempts,
        max_replays=None if force else max_replays,
        rate=None if rate is None else parse_rate(rate),
        duplicates=duplicates,
        queues=open_app().tasks.queues,
    )
    if dry_run:
        return _preview(queue, plan, limit, filters)

    async def run(broker: Broker, choose: Choose | None, progress: TerminalProgress) -> Replayed:
        return await replay(
            broker,
            queue,
            timeout=_SEND_TIMEOUT,
            plan=plan,
            choose=choose,
            limit=limit,
            depth=filters.depth,
            progress=progress,
        )

    try:
        done = _at_broker(run, filters, "replay", change=(queue, {"limit": limit, "to": to}))
    except PartlyReplayed as error:
        note(f"{error.replayed} replayed")
        raise
    note(f"{done.replayed} replayed")
    if done.dropped:
        note(f"{done.dropped} dropped: further letters of the same jobs")
    _note_left(plan, done.too_often, done.no_destination)
    if done.too_often or done.no_destination:
        return FAILED
    return NOT_FOUND if filters.job and not done.replayed else 0


@app.command(name="purge")
@audited
@over_http("letters:purge")
def purge_letters(
    queue: Queue,
    /,
    *,
    limit: Count | None = None,
    yes: Yes = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    filters: Filters = _EVERYTHING,
) -> int:
    """Delete dead letters of a queue: all, or those that are meant. `export` them first.

    Parameters
    ----------
    limit
        How many letters at most, the oldest; all when left out.
    dry_run
        Only list what would be deleted.
    """
    which = "all" if filters == _EVERYTHING and limit is None else "the chosen"
    if dry_run:
        return _list_chosen(queue, limit, filters, lambda _: {})
    if not confirm(f"Delete {which} dead letters of {queue!r}?", yes=yes):
        return FAILED

    async def run(broker: Broker, choose: Choose | None, progress: TerminalProgress) -> int:
        return await purge(broker, queue, choose=choose, limit=limit, depth=filters.depth, progress=progress)

    count = _at_broker(run, filters, "purge", change=(queue, {"limit": limit}))
    note(f"{count} dead letters deleted")
    return NOT_FOUND if filters.job and not count else 0


@app.command
def export(
    queue: Queue, /, *, file: Path | None = None, limit: Count | None = None, filters: Filters = _EVERYTHING
) -> None:
    """Write dead letters as lines of JSON, whole: body, headers, error, times. They stay where they are.

    The body is in "body" where it is text, else in "body_base64".

    Parameters
    ----------
    file
        Where to; standard output when left out. A file that exists is refused.
    limit
        How many letters at most, the oldest; all when left out.
    """
    with _opened(file) as target:

        async def run(broker: Broker, choose: Choose | None, progress: TerminalProgress) -> int:
            return await visit(
                broker,
                queue,
                # Still the same JSON, and nothing in it acts on a terminal.
                lambda letter: target.write(escape_json(letter_line(letter).decode()).encode()),
                choose=choose,
                limit=limit,
                depth=filters.depth,
                progress=progress,
            )

        count = _at_broker(run, filters, "export")
    note(f"{count} dead letters exported")


@app.command(name="archive")
def list_archived(
    *, start: Annotated[int, Parameter(name="--from", validator=Number(gte=0))] = 0, limit: Count = 50
) -> None:
    """List what the broker's archive keeps of dead letters, of all queues; nothing changes.

    Parameters
    ----------
    start
        The offset to begin at; the last one of a list, plus one, goes on from there.
    limit
        How many at most.
    """
    target = open_app()

    async def run() -> list[dict[str, Any]]:
        async with target:
            broker = target.sessions.current().broker
            if not isinstance(broker, Archiving):
                raise UnsupportedFeature(f"{broker.address} keeps no archive of dead letters; RabbitMQ does")
            found = await broker.archived(offset=start, limit=limit)
            return [{"offset": place, **letter_row(read_letter(delivery))} for place, delivery in found]

    print_rows(("offset", *COLUMNS), asyncio.run(run()))


def _preview(queue: str, plan: Replay, limit: int | None, filters: Filters) -> int:
    def goes(letter: DeadLetter) -> bool:
        refusals.append(refusal := plan.refusal(letter))
        return refusal is None and (plan.duplicates or jobs.is_first(letter))

    refusals: list[str | None] = []
    jobs = JobsOfLetters()
    code = _list_chosen(queue, limit, filters, lambda letter: {"to": plan.target(letter)}, goes)
    if jobs.letters > jobs.jobs:
        note(f"{jobs.letters - jobs.jobs} would be dropped: further letters of the same jobs")
    _note_left(plan, refusals.count("replayed too often"), refusals.count("no destination"))
    return code


def _list_chosen(
    queue: str,
    limit: int | None,
    filters: Filters,
    more: Callable[[DeadLetter], dict[str, Any]],
    goes: Callable[[DeadLetter], bool] = lambda _: True,
) -> int:
    letter_queue(queue)
    rows: list[dict[str, Any]] = []

    async def run(broker: Broker, choose: Choose | None, progress: TerminalProgress) -> int:
        return await visit(
            broker,
            queue,
            lambda letter: rows.append({**letter_row(letter), **more(letter)}),
            choose=lambda letter: (choose is None or choose(letter)) and goes(letter),
            limit=limit,
            depth=filters.depth,
            progress=progress,
        )

    count = _at_broker(run, filters, "dry run")
    print_rows((*COLUMNS, "to") if rows and "to" in rows[0] else COLUMNS, rows)
    note(f"{count} dead letters, nothing was changed")
    return NOT_FOUND if filters.job and not count else 0


def _note_duplicates(letters: Iterable[DeadLetter]) -> None:
    jobs = JobsOfLetters()
    for letter in letters:
        jobs.is_first(letter)
    if jobs.letters > jobs.jobs:
        note(f"{jobs}: replay sends each job once")


def _note_left(plan: Replay, too_often: int, no_destination: int) -> None:
    if too_often:
        note(f"{too_often} left: replayed {plan.max_replays} times before; --force replays them, too")
    if no_destination:
        note(f"{no_destination} left: they do not say where they came from; name a queue with --to")


def _in_queues(
    queue: str | None,
    use: Callable[[Broker, str, Choose | None, TerminalProgress], Coroutine[Any, Any, None]],
    filters: Filters,
    what: str,
) -> None:
    async def run(broker: Broker, choose: Choose | None, progress: TerminalProgress) -> None:
        names = [queue] if queue else await queues_with_letters(broker, known)
        for name in names:
            await use(broker, name, choose, progress)

    known = [] if queue else [each.name for each in open_app().tasks.queues]
    if not known and not queue:
        raise InvalidOption("which queue? Name it, or its app with --app MODULE:ATTRIBUTE")
    _at_broker(run, filters, what)


def _at_broker(
    use: Callable[[Broker, Choose | None, TerminalProgress], Coroutine[Any, Any, _Result]],
    filters: Filters,
    what: str,
    *,
    change: tuple[str, dict[str, Any]] | None = None,
) -> _Result:
    """Do something at the broker; `change` is the queue that it changes, and facts for the audit."""
    target = open_app()
    choose = filters.choose(target.sessions.clock.now_ms())
    progress = TerminalProgress(what)

    async def run() -> _Result:
        async with target:
            if change is not None:
                queue, facts = change
                given = {name: value for name, value in dataclasses.asdict(filters).items() if value is not None}
                await note_change(target, f"dead_letters.{what}", queue, after={**given, **facts})
            return await use(target.sessions.current().broker, choose, progress)

    try:
        return asyncio.run(run())
    finally:
        progress.end()


@contextmanager
def _opened(file: Path | None) -> Generator[BinaryIO]:
    if file is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        # Dead letters have arguments: the file is for its owner alone.
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            yield opened
    except FileExistsError:
        raise InvalidOption(f"{file} exists: name another file") from None
    except OSError as error:
        raise InvalidOption(f"{file}: {error}") from error
