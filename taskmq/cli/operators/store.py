"""`taskmq store`."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from cyclopts import App, Parameter

from taskmq.cli.exits import CONFLICT, FAILED, OK
from taskmq.cli.globals import run_with_app
from taskmq.cli.output import confirm, note, print_record, print_rows
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.units import parse_duration

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.contracts.jobs import JobStore
    from taskmq.operations.store_import import Imported

__all__ = ["app"]

app = App(
    name="store",
    help="The job store: upgrade, current, check, prune, import from beats.",
    result_action="return_value",
)

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

    note(f"{run_with_app(lambda target: run(_store(target)))} has the tables of this version")
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
def prune(*, older_than: str) -> int:
    """Forget jobs that ended longer ago, with their history, results and ids; schedulers do so after 30 days.

    Jobs that have not ended stay. PostgreSQL forgets whole days, UTC.

    Parameters
    ----------
    older_than
        Whole days, such as 7d.
    """
    age = parse_duration(older_than, what="--older-than")
    if age.days < 1 or age != timedelta(days=age.days):
        raise InvalidOption(f"--older-than {older_than}: whole days, at least 1d")

    async def run(found: "JobStore") -> str:
        from taskmq.contracts.jobs import Prunable

        if not isinstance(found, Prunable):
            raise UnsupportedFeature(f"{found.address} cannot forget jobs before its time")
        await found.prune(keep_days=age.days)
        return found.address

    note(f"{run_with_app(lambda target: run(_store(target)))} has forgotten jobs that ended over {older_than} ago")
    return OK


@app.command(name="import")
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

        return await import_state(target, dry_run=dry_run)

    found = run_with_app(lambda target: run(target, dry_run=True))
    moving = [each for each in found if each.came == "moves"]
    if moving and not dry_run:
        print_rows(_IMPORTED, [msgspec.to_builtins(each) for each in found])
        if not confirm(f"move {len(moving)} schedules and jobs to the store? Are the beats stopped?", yes=yes):
            return FAILED
        found = run_with_app(lambda target: run(target, dry_run=False))
        note(f"{sum(each.came == 'moves' for each in found)} have moved")
    else:
        print_rows(_IMPORTED, [msgspec.to_builtins(each) for each in found])
    return CONFLICT if any(each.came == "stays" for each in found) else OK


def _store(target: "TaskMQ") -> "JobStore":
    return target.sessions.store()
