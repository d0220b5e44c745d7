"""`taskmq admin tenant`."""

from typing import TYPE_CHECKING, Any, Final

from taskmq.cli.noun import Noun
from taskmq.cli.output import ask_first, note
from taskmq.cli.server_link import ask, show_record, show_rows, text_of_instant

if TYPE_CHECKING:
    from taskmq.api.accounts import TenantView

app = Noun(name="tenant", help="Manage tenants: add, list, disable, enable, remove.")

_COLUMNS: Final = ("name", "description", "created", "disabled")


@app.command
def add(name: str, /, *, description: str = "") -> None:
    """Add a tenant. It owns the jobs that already carry its name.

    Args:
        name: The tenant's name, as used in jobs.
        description: Who the tenant is.
    """
    made = ask(lambda api: api.tenants.add(name, description=description))
    show_record(made, lambda: _row(made))


@app.command(name="list")
def list_tenants() -> None:
    """List the tenants."""
    show_rows(_COLUMNS, ask(lambda api: api.tenants.list()), _row)


@app.command
def disable(name: str, /) -> None:
    """Suspend all roles on a tenant, within a minute everywhere. Its jobs continue.

    Args:
        name: The tenant.
    """
    ask(lambda api: api.tenants.change(name, is_disabled=True))
    note(f"tenant {name} disabled; undo with `taskmq admin tenant enable {name}`")


@app.command
def enable(name: str, /) -> None:
    """Restore the roles on a disabled tenant.

    Args:
        name: The tenant.
    """
    ask(lambda api: api.tenants.change(name, is_disabled=False))
    note(f"tenant {name} enabled")


@app.command
@ask_first("Remove tenant {name} and all roles on it?")
def remove(name: str, /) -> None:
    """Remove a tenant and all roles on it. Its jobs remain, visible only to roles on the instance.

    Args:
        name: The tenant.
    """
    ask(lambda api: api.tenants.remove(name))
    note(f"tenant {name} removed")


def _row(tenant: "TenantView") -> dict[str, Any]:
    return {
        "name": tenant.name,
        "description": tenant.description,
        "created": text_of_instant(tenant.created),
        "disabled": text_of_instant(tenant.disabled),
    }
