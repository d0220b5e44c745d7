"""`taskmq store`."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from taskmq.cli.actor import change_with_app, me, name_caller
from taskmq.cli.exits import CONFLICT, FAILED, NOT_FOUND, OK
from taskmq.cli.globals import run_with_app
from taskmq.cli.noun import Noun
from taskmq.cli.output import confirm, note, print_record, print_rows, write_json
from taskmq.cli.progress import progress
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.units import parse_duration, to_ms

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.contracts.jobs import JobStore, KeptJob
    from taskmq.operations.retention import ArchivedDay, Erased
    from taskmq.operations.store_import import Imported

app = Noun(
    name="store",
    help="Manage the job store: upgrade, current, check, rotate-key, prune, archive, read, erase, import.",
)

_ARCHIVED: Final = ("day", "file", "jobs", "is_new")
_IMPORTED: Final = ("what", "name", "came", "note")


@app.command
def upgrade() -> int:
    """Create the tables of the job store, or upgrade them to this version of taskmq. Keeps all jobs.

    Run it before the first scheduler and after each update of taskmq; concurrent runs are safe. A new SQLite file
    gets its tables automatically.
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
    """Show the version of the tables.

    Exits with 0 even if there are no tables.
    """

    async def run(found: "JobStore") -> dict[str, str | None]:
        from taskmq.contracts.jobs import Upgradable

        version = await found.current() if isinstance(found, Upgradable) else None
        return {"store": found.address, "version": version}

    print_record(run_with_app(lambda target: run(_store(target))))
    return OK


@app.command
def check() -> int:
    """Check that the tables have the version that this taskmq needs. Exits with 6 if not."""

    async def run(found: "JobStore") -> str:
        await found.check()
        return found.address

    note(f"{run_with_app(lambda target: run(_store(target)))} works with this version")
    return OK


@app.command
@name_caller
def rotate_key(
    *,
    forget_older: Annotated[bool, Parameter(negative="")] = False,
    yes: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Create a new signing key for reports of dispatched jobs.

    Schedulers use it within half a minute. Reports signed with older keys remain valid. Back up the store afterwards:
    after a restore from an older backup, it rejects reports of dispatches signed with the new key, and those jobs run
    again.

    Args:
        forget_older: Reject everything signed with older keys, because they have leaked.
            Needed only if a store is restored.
        yes: Skip the confirmation prompt of --forget-older.
    """
    if forget_older and not confirm("Forget all older keys for good?", yes=yes):
        return FAILED

    async def run(found: "JobStore") -> str:
        entry = me().entry("store.rotate_key", kind="store", after={"forgets_older": forget_older})
        return await found.dispatching.rotate_report_key(forgets=forget_older, audit=entry)

    key = run_with_app(lambda target: run(_store(target)))
    note(f"new dispatches use key {key} within half a minute; back up the store now")
    return OK


@app.command
@name_caller
def prune(*, older_than: str | None = None, where: str | None = None, keep_last: int | None = None) -> int:
    """Delete ended jobs with their history, results and ids. Schedulers do so after 30 days.

    Jobs that have not ended are kept. PostgreSQL deletes whole days, UTC.

    Args:
        older_than: Minimum age: whole days, such as 7d; with --where any time, such as 1h.
        where: Only jobs that match this filter, as in `job list`; deletes them one by one.
        keep_last: With --where: keep this many of the newest.
    """
    if where is not None:
        return _prune_filtered(where, older_than, keep_last)
    if older_than is None or keep_last is not None:
        raise InvalidOption("store prune needs --older-than, or --where with --older-than or --keep-last")
    age = _whole_days(older_than)

    async def run(found: "JobStore") -> str:
        from taskmq.contracts.jobs import Prunable

        if not isinstance(found, Prunable):
            raise UnsupportedFeature(f"{found.address} cannot delete ended jobs on request")
        await found.prune(keep_days=age.days)
        return found.address

    with progress("deleting jobs") as advance:
        advance(0, None)
        address = change_with_app(
            lambda target: run(_store(target)), "store.prune", [""], after={"older_than": older_than}
        )
    note(f"{address} deleted jobs that ended over {older_than} ago")
    return OK


@app.command
@name_caller
def archive(
    folder: str, /, *, older_than: str = "29d", prune: Annotated[bool, Parameter(negative="")] = False
) -> int:
    """Write ended jobs into one compressed file of JSON lines per day.

    A file gets its final name after it has been verified. Existing days are skipped. Run it daily, more often than
    schedulers delete ended jobs (after 30 days).

    Args:
        folder: The folder for the files; created if missing.
        older_than: Minimum age in whole days, such as 7d.
        prune: Delete the archived jobs from the store.
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
    """Print the jobs in an archive as JSON lines, with calls and results. Needs no store.

    Exits with 3 if --job is not in the archive, and with 1 if the file is incomplete.

    Args:
        file: A file written by `store archive`.
        job: Only this job, by the store's id or its submitter's.
    """
    from taskmq.operations.retention import read_archive

    count = 0
    try:
        for one in read_archive(Path(file)):
            if job in (None, one.job.id, one.job.key):
                count += 1
                write_json(_decode(one))
    except OSError as error:
        raise InvalidOption(f"{file}: {error.strerror}") from None
    return OK if count or job is None else NOT_FOUND


@app.command
@name_caller
def erase(
    where: str = "",
    /,
    *,
    tenant: str | None = None,
    yes: Annotated[bool, Parameter(negative="", help="Skip the confirmation prompt.")] = False,
) -> int:
    """Erase jobs for good, whatever their age: those of a tenant, or those that match a filter.

    Waiting jobs are cancelled first. Running jobs are asked to end and stay: the command then exits with 6; run it
    again. The audit records who erased how many jobs. Archives are not changed.

    Args:
        where: A filter, as in `job list`: 'label.customer:17'.
        tenant: Only this tenant's jobs; without a filter, its definitions, logs and statistics, too.
    """
    if not where and tenant is None:
        raise InvalidOption("store erase needs a filter or --tenant")

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
    note(f"{erased.jobs:,} jobs erased; {erased.left:,} left, in workers or submitted in the meantime")
    return CONFLICT if erased.left else OK


@app.command(name="import")
@name_caller
def import_from_state(
    *, dry_run: Annotated[bool, Parameter(negative="")] = False, yes: Annotated[bool, Parameter(negative="")] = False
) -> int:
    """Move schedules of beats, and jobs delayed with delay="state", from the state to the job store.

    First stop all beats, and the workers of apps with delay="state". Shows what would move and asks for confirmation.
    May be interrupted and run again. Exits with 6 if something stays in the state.

    Args:
        dry_run: Only show what would move.
        yes: Skip the confirmation prompt.
    """

    async def run(target: "TaskMQ", *, dry_run: bool) -> "list[Imported]":
        from taskmq.operations.store_import import import_state

        return await import_state(target, dry_run=dry_run, on_progress=advance)

    with progress("reading schedules and jobs") as advance:
        found = run_with_app(lambda target: run(target, dry_run=True))
    moving = [each for each in found if each.outcome == "moves"]
    if moving and not dry_run:
        print_rows(_IMPORTED, [msgspec.to_builtins(each) for each in found])
        if not confirm(f"Move {len(moving)} schedules and jobs to the store? All beats must be stopped.", yes=yes):
            return FAILED
        planned = found
        with progress("moving schedules and jobs") as advance:
            found = change_with_app(lambda target: run(target, dry_run=False), "store.import", [""])
        for each in found:
            if each.outcome == "stays" and each not in planned:
                note(f"{each.what} {each.name} stays: {each.note}")
        note(f"{sum(each.outcome == 'moves' for each in found)} moved")
    else:
        print_rows(_IMPORTED, [msgspec.to_builtins(each) for each in found])
    return CONFLICT if any(each.outcome == "stays" for each in found) else OK


def _store(target: "TaskMQ") -> "JobStore":
    return target.sessions.store()


def _whole_days(older_than: str) -> timedelta:
    age = parse_duration(older_than, what="--older-than")
    if age.days < 1 or age != timedelta(days=age.days):
        raise InvalidOption(f"--older-than {older_than}: must be whole days, at least 1d")
    return age


def _prune_filtered(where: str, older_than: str | None, keep_last: int | None) -> int:
    age = None if older_than is None else to_ms(parse_duration(older_than, what="--older-than"))

    async def run(target: "TaskMQ") -> int:
        from taskmq.model.jobs.filter_text import parse_filter
        from taskmq.operations.retention import thin_out

        store = _store(target)
        which = parse_filter(where, await store.now_ms())
        return await thin_out(store, which, older_than=age, keep_last=keep_last, on_progress=advance)

    with progress("deleting jobs") as advance:
        facts = {"where": where, "older_than": older_than, "keep_last": keep_last}
        gone = change_with_app(run, "store.prune", [""], after=facts)
    note(f"{gone:,} jobs deleted")
    return OK


def _decode(one: "KeptJob") -> dict[str, Any]:
    """Return the record with its call and its result decoded from JSON where possible."""
    record: dict[str, Any] = msgspec.to_builtins(one)
    for name, content in (("body", one.job.body), ("result", one.job.result)):
        try:
            record["job"][name] = msgspec.json.decode(content) if content else None
        except msgspec.DecodeError:
            # Not JSON: leave it as base64.
            continue
    return record
