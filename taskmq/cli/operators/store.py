"""`taskmq store`."""

from typing import TYPE_CHECKING

from cyclopts import App

from taskmq.cli.exits import OK
from taskmq.cli.globals import run_with_app
from taskmq.cli.output import note, print_record

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.contracts.jobs import JobStore

__all__ = ["app"]

app = App(name="store", help="The job store's tables: upgrade, current, check.", result_action="return_value")


@app.command
def upgrade() -> int:
    """Make the tables of the job store, or bring them to this taskmq's version. Jobs that are there stay.

    Run it once before the first scheduler, and after each update of taskmq. Several may run it at a time. A SQLite
    file makes its own tables.
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


def _store(target: "TaskMQ") -> "JobStore":
    return target.sessions.store()
