"""`taskmq admin`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from taskmq.cli.actor import me
from taskmq.cli.administration.roles import app as role
from taskmq.cli.administration.store import administer, at_store, read_password
from taskmq.cli.administration.tenants import app as tenant
from taskmq.cli.administration.tokens import app as token
from taskmq.cli.administration.users import app as user
from taskmq.cli.noun import Noun
from taskmq.cli.output import note, print_record, print_rows
from taskmq.errors import InvalidOption

if TYPE_CHECKING:
    from taskmq.access import IdentityAdministration
    from taskmq.contracts.identity import IdentityStore, User
    from taskmq.operations.audit import RestoredStep

_STEP_COLUMNS: Final = ("is_done", "what", "subject")

app = Noun(
    name="admin",
    help="Manage access to the job store: init, restored, user, token, tenant, role. Needs access to its database.",
)
for _noun in (user, token, tenant, role):
    app.command(_noun)


@app.command
def init(name: str = "admin", /) -> None:
    """Create the first admin of the instance. Exits with 6 if there is one already.

    Prompts for the password, or reads it from the first line of standard input. There is no default password.

    Args:
        name: The user's name.
    """
    password = read_password(name)

    async def run(_: object, administration: "IdentityAdministration") -> "User":
        return await administration.add_first_admin(name, password, by=me())

    added = administer(run)
    print_record({"user": added.name, "id": added.id})
    note(f"{added.name} is now the admin of this instance")


@app.command(name="restored")
def shut_out(
    *,
    since: datetime,
    audit: Path | None = None,
    revoke_tokens: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Revoke access again that was revoked after the restored backup was made.

    Ends all sessions. Removes again whatever the audit records as removed since the backup: tokens, roles, and
    disabled or removed users and tenants. Passwords changed since then are cleared. Nothing is granted. Prints what
    was done and what is left for you to decide. Run it before servers start; it is safe to run again.

    Args:
        since: When the backup was made, such as 2027-01-31T08:00; UTC unless a zone is given.
        audit: The latest output of `taskmq audit export`, if there is one.
        revoke_tokens: Revoke all tokens; needed if no export shows which tokens were revoked.
    """
    lines = None if audit is None else _lines_of(audit)

    async def run(store: "IdentityStore") -> "list[RestoredStep]":
        from taskmq.operations.audit import read_export, restrict_again

        return await restrict_again(
            store,
            since=round((since if since.tzinfo else since.replace(tzinfo=UTC)).timestamp() * 1000),
            export=None if lines is None else read_export(lines),
            revokes_tokens=revoke_tokens,
            by=me(),
        )

    steps = at_store(run)
    print_rows(_STEP_COLUMNS, [step._asdict() for step in steps])
    done = sum(step.is_done for step in steps)
    note(f"{done} steps done, {len(steps) - done} left for you to decide")


def _lines_of(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"--audit {path}: cannot read the file: {error}") from error
