"""`taskmq store`."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import App, Parameter

from taskmq.cli.actor import audited, change_with_app, me
from taskmq.cli.exits import CONFLICT, FAILED, NOT_FOUND, OK
from taskmq.cli.globals import run_with_app
from taskmq.cli.output import confirm, note, print_record, print_rows, write_json
from taskmq.cli.progress import progress
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.units import parse_duration, to_ms

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.contracts.jobs import JobStore, KeptJob
    from taskmq.operations.retention import ArchivedDay, Erased
    from taskmq.operations.store_import import Imported

__all__ = ["app"]

app = App(
    name="store",
    help="The job store: upgrade, current, check, rotate-key, prune, archive, read, erase, import from beats.",
    result_action="return_value",
)

_ARCHIVED: Final = ("day", "file", "jobs", "is_new")
_IMPORTED: Final = ("what", "name", "came", "note")


@app.command
def upgrade() -> int:
    """Make the tables of the job store, or bring them to this taskmq's version. Jobs that are there stay.

    Run it once before the first scheduler, and after each update of taskmq. Several may run it at a time. A SQLite
    file makes its own tables when it is new.
    """

    async def run(found: "JobStore") -> str:
        from taskmq.contracts.jobs import Upgradable

        if isinstance(found, Upgradable):
            await found.upgrade()
        await found.check()
        return found.address

    with progress("upgrading the tables") as advance:
        advance(0, None)
        address = run_with_app(lambda target: run(_store(target)))
    note(f"{address} has the tables of this version")
    return OK


@app.command
def current() -> int:
    """Show which version the tables have.

    Ends with 0 where they have none, too.
    """

    async def run(found: "JobStore") -> dict[str, str | None]:
        from taskmq.contracts.jobs import Upgradable

        version = await found.current() if isinstance(found, Upgradable) else None
        return {"store": found.address, "version": version}

    print_record(run_with_app(lambda target: run(_store(target))))
    return OK


@app.command
def check() -> int:
    """See whether the tables are those that this taskmq works with; ends with 6 where they are not."""

    async def run(found: "JobStore") -> str:
        await found.check()
        return found.address

    note(f"{run_with_app(lambda target: run(_store(target)))} is fit for this version")
    return OK


@app.command
@audited
def rotate_key(
    *,
    forget_older: Annotated[bool, Parameter(negative="")] = False,
    yes: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Make a new key, by which the store knows reports of dispatches that it has forgotten.

    Schedulers use it within half a minute. What older keys have proven stays good. Back up afterwards: a store that
    is restored from before refuses the ends of later dispatches, and those jobs run again.

    Parameters
    ----------
    forget_older
        Nothing that older keys have proven is good any more: they have leaked. Needed only where a store is restored.
    yes
        Do not ask; without --forget-older nothing is asked.
    """
    if forget_older and not confirm("Forget all older keys for good?", yes=yes):
        return FAILED

    async def run(found: "JobStore") -> str:
        entry = me().entry("store.rotate_key", kind="store", after={"forgets_older": forget_older})
        return await found.dispatching.rotate_report_key(forgets=forget_older, audit=entry)

    key = run_with_app(lambda target: run(_store(target)))
    note(f"new dispatches are proven by key {key} within half a minute; back the store up")
    return OK


@app.command
@audited
def prune(*, older_than: str | None = None, where: str | None = None, keep_last: int | None = None) -> int:
    """Forget jobs that ended longer ago, with their history, results and ids; schedulers do so after 30 days.

    Jobs that have not ended stay. PostgreSQL forgets whole days, UTC.

    Parameters
    ----------
    older_than
        Whole days, such as 7d; with --where any time, such as 1h.
    where
        Only jobs that this filter finds, as in `job list`: of a tenant, of a status. One by one.
    keep_last
        With --where: but for so many of them, the newest.
    """
    if where is not None:
        return _thin_out(where, older_than, keep_last)
    if older_than is None or keep_last is not None:
        raise InvalidOption("store prune: --older-than, or --where with --older-than or --keep-last")
    age = _whole_days(older_than)

    async def run(found: "JobStore") -> str:
        from taskmq.contracts.jobs import Prunable

        if not isinstance(found, Prunable):
            raise UnsupportedFeature(f"{found.address} cannot prune jobs early")
        await found.prune(keep_days=age.days)
        return found.address

    with progress("forgetting jobs") as advance:
        advance(0, None)
        address = change_with_app(
            lambda target: run(_store(target)), "store.prune", [""], after={"older_than": older_than}
        )
    note(f"{address} has forgotten jobs that ended over {older_than} ago")
    return OK


@app.command
@audited
def archive(
    folder: str, /, *, older_than: str = "29d", prune: Annotated[bool, Parameter(negative="")] = False
) -> int:
    """Write jobs that ended longer ago into files, one a day: lines of JSON, compressed.

    A file gets its name once it was read back whole. A day that is there already is left alone. Run it each day, with
    the time after which schedulers forget jobs in mind, 30 days.

    Parameters
    ----------
    folder
        Where to; it is made.
    older_than
        Whole days, such as 7d.
    prune
        Forget those jobs afterwards.
    """
    age = _whole_days(older_than)

    async def run(found: "JobStore") -> "list[ArchivedDay]":
        from taskmq.operations.retention import archive_days

        return await archive_days(found, Path(folder), keep_days=age.days, prune=prune, on_progress=advance)

    with progress("archiving days") as advance:
        if prune:
            facts = {"older_than": older_than, "archive": folder}
            days = change_with_app(lambda target: run(_store(target)), "store.prune", [""], after=facts)
        else:
            days = run_with_app(lambda target: run(_store(target)))
    print_rows(_ARCHIVED, [msgspec.to_builtins(each) for each in days])
    return OK


@app.command
def read(file: str, /, *, job: str | None = None) -> int:
    """Read an archive: its jobs as lines of JSON, with their calls and results as they are; no store is needed.

    Ends with 3 where a job is looked for that is not there, and with 1 where the file is not whole.

    Parameters
    ----------
    file
        That `store archive` has written.
    job
        Only the job of this id: the store's, or its submitter's.
    """
    from taskmq.operations.retention import read_archive

    count = 0
    try:
        for one in read_archive(Path(file)):
            if job in (None, one.job.id, one.job.key):
                count += 1
                write_json(_readable(one))
    except OSError as error:
        raise InvalidOption(f"{file}: {error.strerror}") from None
    return OK if count or job is None else NOT_FOUND


@app.command
@audited
def erase(
    where: str = "",
    /,
    *,
    tenant: str | None = None,
    yes: Annotated[bool, Parameter(negative="", help="Do not ask.")] = False,
) -> int:
    """Forget jobs for good, whatever their age: of a tenant, or what a filter finds, such as a person's label.

    Those that wait are cancelled first. Those that a worker has are asked to end, and stay: it ends with 6 then;
    erase again. The audit keeps that it was done, by whom, and how many they were. Archives are not touched.

    Parameters
    ----------
    where
        A filter, as in `job list`: 'label.customer:17'.
    tenant
        Only this tenant's; without a filter its definitions, logs and figures, too.
    """
    if not where and tenant is None:
        raise InvalidOption("store erase: a filter, or --tenant")

    async def run(target: "TaskMQ") -> "Erased":
        from taskmq.model.jobs.filter_text import parse_filter
        from taskmq.operations.retention import erase_jobs

        which = parse_filter(where, await _store(target).now_ms())
        if tenant is not None:
            which = msgspec.structs.replace(which, tenant=tenant)
        everything_of = None if where else tenant
        return await erase_jobs(target, which, by=me(), everything_of=everything_of, on_progress=advance)

    if not confirm(f"Erase jobs for good: {where or 'all'} of {tenant or 'every tenant'}?", yes=yes):
        return FAILED
    with progress("erasing jobs") as advance:
        erased = run_with_app(run)
    note(f"{erased.jobs:,} jobs are forgotten; {erased.left:,} are with workers, or were submitted meanwhile")
    return CONFLICT if erased.left else OK


@app.command(name="import")
@audited
def import_from_state(
    *, dry_run: Annotated[bool, Parameter(negative="")] = False, yes: Annotated[bool, Parameter(negative="")] = False
) -> int:
    """Move schedules of beats, and jobs that wait by delay="state", from the state to the job store; once.

    Stop all beats before, and workers of apps with delay="state". Shows what would move, and asks. May be stopped
    anywhere and begun again. Ends with 6 where something stays in the state.

    Parameters
    ----------
    dry_run
        Only show what would move.
    yes
        Do not ask.
    """

    async def run(target: "TaskMQ", *, dry_run: bool) -> "list[Imported]":
        from taskmq.operations.store_import import import_state

        return await import_state(target, dry_run=dry_run, on_progress=advance)

    with progress("looking at schedules and jobs") as advance:
        found = run_with_app(lambda target: run(target, dry_run=True))
    moving = [each for each in found if each.outcome == "moves"]
    if moving and not dry_run:
        print_rows(_IMPORTED, [msgspec.to_builtins(each) for each in found])
        if not confirm(f"move {len(moving)} schedules and jobs to the store? Are the beats stopped?", yes=yes):
            return FAILED
        planned = found
        with progress("moving schedules and jobs") as advance:
            found = change_with_app(lambda target: run(target, dry_run=False), "store.import", [""])
        for each in found:
            if each.outcome == "stays" and each not in planned:
                note(f"{each.what} {each.name} stays: {each.note}")
        note(f"{sum(each.outcome == 'moves' for each in found)} have moved")
    else:
        print_rows(_IMPORTED, [msgspec.to_builtins(each) for each in found])
    return CONFLICT if any(each.outcome == "stays" for each in found) else OK


def _store(target: "TaskMQ") -> "JobStore":
    return target.sessions.store()


def _whole_days(older_than: str) -> timedelta:
    age = parse_duration(older_than, what="--older-than")
    if age.days < 1 or age != timedelta(days=age.days):
        raise InvalidOption(f"--older-than {older_than}: whole days, at least 1d")
    return age


def _thin_out(where: str, older_than: str | None, keep_last: int | None) -> int:
    age = None if older_than is None else to_ms(parse_duration(older_than, what="--older-than"))

    async def run(target: "TaskMQ") -> int:
        from taskmq.model.jobs.filter_text import parse_filter
        from taskmq.operations.retention import thin_out

        store = _store(target)
        which = parse_filter(where, await store.now_ms())
        return await thin_out(store, which, older_than=age, keep_last=keep_last, on_progress=advance)

    with progress("forgetting jobs") as advance:
        facts = {"where": where, "older_than": older_than, "keep_last": keep_last}
        gone = change_with_app(run, "store.prune", [""], after=facts)
    note(f"{gone:,} jobs are forgotten")
    return OK


def _readable(one: "KeptJob") -> dict[str, Any]:
    """The record with its call and its result as JSON, where they are that."""
    record: dict[str, Any] = msgspec.to_builtins(one)
    for name, content in (("body", one.job.body), ("result", one.job.result)):
        try:
            record["job"][name] = msgspec.json.decode(content) if content else None
        except msgspec.DecodeError:
            # It stays what it is: base64.
            continue
    return record
