"""`taskmq admin`."""

from typing import TYPE_CHECKING

from cyclopts import App

from taskmq.cli.administration.roles import app as role
from taskmq.cli.administration.store import administer, me, read_password
from taskmq.cli.administration.tenants import app as tenant
from taskmq.cli.administration.tokens import app as token
from taskmq.cli.administration.users import app as user
from taskmq.cli.output import note, print_record

if TYPE_CHECKING:
    from taskmq.access import IdentityAdministration
    from taskmq.contracts.identity import User

__all__ = ["app"]

app = App(
    name="admin",
    help="Who may do what, at the job store: init, user, token, tenant, role. Needs access to its database.",
    result_action="return_value",
)
for _noun in (user, token, tenant, role):
    app.command(_noun)


@app.command
def init(name: str = "admin", /) -> None:
    """Make the first admin of the instance; ends with 6 where there is one.

    The password is asked for, or read from the first line of standard input. There is no default.

    Parameters
    ----------
    name
        The user's name.
    """
    password = read_password(name)

    async def run(_: object, administration: "IdentityAdministration") -> "User":
        return await administration.add_first_admin(name, password, by=me())

    added = administer(run)
    print_record({"user": added.name, "id": added.id})
    note(f"{added.name} is the admin of this instance")
