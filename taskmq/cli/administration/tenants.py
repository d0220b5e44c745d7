"""`taskmq admin tenant`."""

from typing import TYPE_CHECKING, Any, Final

from cyclopts import App

from taskmq.cli.output import confirmed, note
from taskmq.cli.server_link import ask, show_record, show_rows, text_of_instant

if TYPE_CHECKING:
    from taskmq.api.accounts import TenantView

__all__ = ["app"]

app = App(name="tenant", help="Tenants: add, list, disable, enable, remove.", result_action="return_value")

_COLUMNS: Final = ("name", "description", "created", "disabled")


@app.command
def add(name: str, /, *, description: str = "") -> None:
    """Add a tenant. Jobs that name it already are its own.

    Parameters
    ----------
    name
        The tenant's name, as jobs have it.
    description
        Who that is.
    """
    made = ask(lambda api: api.tenants.add(name, description=description))
    show_record(made, lambda: _row(made))


@app.command(name="list")
def list_tenants() -> None:
    """List the tenants that were added."""
    show_rows(_COLUMNS, ask(lambda api: api.tenants.list()), _row)


@app.command
def disable(name: str, /) -> None:
    """Take all roles on a tenant out of force, within a minute everywhere; its jobs go on.

    Parameters
    ----------
    name
        The tenant.
    """
    ask(lambda api: api.tenants.change(name, is_disabled=True))
    note(f"tenant {name} is disabled; `taskmq admin tenant enable {name}` undoes it")


@app.command
def enable(name: str, /) -> None:
    """Put the roles on a tenant in force again.

    Parameters
    ----------
    name
        The tenant.
    """
    ask(lambda api: api.tenants.change(name, is_disabled=False))
    note(f"tenant {name} is enabled")


@app.command
@confirmed("Remove tenant {name} and all roles on it?")
def remove(name: str, /) -> None:
    """Remove a tenant and all roles on it. Its jobs stay, and only roles on the instance see them.

    Parameters
    ----------
    name
        The tenant.
    """
    ask(lambda api: api.tenants.remove(name))
    note(f"tenant {name} is removed")


def _row(tenant: "TenantView") -> dict[str, Any]:
    return {
        "name": tenant.name,
        "description": tenant.description,
        "created": text_of_instant(tenant.created),
        "disabled": text_of_instant(tenant.disabled),
    }
