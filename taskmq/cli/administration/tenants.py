"""`taskmq admin tenant`."""

from typing import TYPE_CHECKING, Any, Final

import msgspec
from cyclopts import App

from taskmq.cli.actor import me
from taskmq.cli.administration.store import administer, at_store
from taskmq.cli.globals import current_globals
from taskmq.cli.output import confirmed, note, print_record, print_rows, when
from taskmq.cli.server_link import over_http
from taskmq.contracts.identity import Tenant
from taskmq.model.identity import EVERYTHING_OF_ALL

if TYPE_CHECKING:
    from taskmq.access import IdentityAdministration
    from taskmq.contracts.identity import IdentityStore

__all__ = ["TENANT_COLUMNS", "app"]

app = App(name="tenant", help="Tenants: add, list, disable, enable, remove.", result_action="return_value")

TENANT_COLUMNS: Final = ("name", "description", "created", "disabled")


@app.command
@over_http("tenants:add")
def add(name: str, /, *, description: str = "") -> None:
    """Add a tenant. Jobs that name it already are its own.

    Parameters
    ----------
    name
        The tenant's name, as jobs have it.
    description
        Who that is.
    """

    async def run(_: "IdentityStore", administration: "IdentityAdministration") -> Tenant:
        return await administration.add_tenant(name, description=description, by=me())

    print_record(_described(administer(run)))


@app.command(name="list")
@over_http("tenants:list_tenants")
def list_tenants() -> None:
    """List the tenants that were added."""

    async def run(store: "IdentityStore") -> list[Tenant]:
        return await store.accounts.tenants(EVERYTHING_OF_ALL)

    print_rows(TENANT_COLUMNS, [_described(each) for each in at_store(run)])


@app.command
@over_http("tenants:disable")
def disable(name: str, /) -> None:
    """Take all roles on a tenant out of force, within a minute everywhere; its jobs go on.

    Parameters
    ----------
    name
        The tenant.
    """
    _set(name, is_disabled=True)
    note(f"tenant {name} is disabled; `taskmq admin tenant enable {name}` undoes it")


@app.command
@over_http("tenants:enable")
def enable(name: str, /) -> None:
    """Put the roles on a tenant in force again.

    Parameters
    ----------
    name
        The tenant.
    """
    _set(name, is_disabled=False)
    note(f"tenant {name} is enabled")


@app.command
@confirmed("Remove tenant {name} and all roles on it?")
@over_http("tenants:remove")
def remove(name: str, /) -> None:
    """Remove a tenant and all roles on it. Its jobs stay, and only roles on the instance see them.

    Parameters
    ----------
    name
        The tenant.
    """

    async def run(_: "IdentityStore", administration: "IdentityAdministration") -> None:
        await administration.remove_tenant(name, by=me())

    administer(run)
    note(f"tenant {name} is removed")


def _set(name: str, *, is_disabled: bool) -> None:
    async def run(_: "IdentityStore", administration: "IdentityAdministration") -> None:
        await administration.change_tenant(name, is_disabled=is_disabled, by=me())

    administer(run)


def _described(tenant: Tenant) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(tenant)
    if current_globals().output == "table":
        facts |= {name: when(facts[name]) for name in ("created", "disabled")}
    return facts
