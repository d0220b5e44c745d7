"""`taskmq definition`: named, versioned templates that jobs are made from."""

from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from taskmq.cli.actor import audited, change_with_app, me
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.globals import run_with_app
from taskmq.cli.output import confirm, note, print_record, print_rows, when
from taskmq.cli.server_link import over_http
from taskmq.cli.typed_values import array_of, label_of, object_of

if TYPE_CHECKING:
    from taskmq.model.jobs.definitions import Definition

__all__ = ["DEFINITION_COLUMNS", "app"]

app = App(
    name="definition",
    help="Definitions: templates that jobs are made from, by `taskmq job submit NAME`.",
    result_action="return_value",
)

DEFINITION_COLUMNS: Final = ("definition", "version", "task", "queue", "priority", "owner", "at", "by", "description")

_Tenant = Annotated[str, Parameter(help="Whose it is.")]
_Version = Annotated[int | None, Parameter(help="End with 6 where it has another version; 0: where it is there.")]


@app.command
@audited
@over_http("templates:put")
def put(
    name: str,
    task: str,
    /,
    *,
    args: Annotated[str, Parameter(help="Positional arguments, a JSON array.")] = "[]",
    kwargs: Annotated[str, Parameter(help="Named arguments, a JSON object.")] = "{}",
    queue: str = "",
    priority: int | None = None,
    expires: str | None = None,
    label: Annotated[tuple[str, ...], Parameter(help="NAME=VALUE; may be repeated.", negative="")] = (),
    description: str = "",
    owner: str = "",
    tenant: _Tenant = "",
    version: _Version = None,
) -> int:
    """Make a version of a definition, unless the last one says the same; print the last one.

    Parameters
    ----------
    name
        The definition's name: no task may have it.
    task
        The name of a task, of the app or of a worker that has registered it.
    queue
        Default: the task's own.
    priority
        0 (lowest) to 9 (highest).
    expires
        A job does not start later than this long after its submission.
    description
        For people.
    owner
        For people.
    """
    positional, named = array_of("--args", args), object_of("--kwargs", kwargs)
    labels = dict(map(label_of, label))
    made = change_with_app(
        lambda target: target.definitions.aput(
            name,
            task,
            args=positional,
            kwargs=named,
            queue=queue,
            priority=priority,
            expires=expires,
            labels=labels,
            description=description,
            owner=owner,
            tenant=tenant,
            version=version,
            by=me().user,
        ),
        "definition.put",
        [name],
        tenant=tenant,
        after={"task": task},
    )
    print_record(_record(made))
    return OK


@app.command
@over_http("templates:show")
def show(
    name: str,
    /,
    *,
    tenant: _Tenant = "",
    version: Annotated[int | None, Parameter(help="This one; also of a deleted definition.")] = None,
) -> int:
    """Show a definition with its arguments; ends with 3 where there is none.

    Parameters
    ----------
    name
        The definition's name.
    """
    print_record(_record(run_with_app(lambda target: target.definitions.aget(name, tenant=tenant, version=version))))
    return OK


@app.command(name="list")
@over_http("templates:list_definitions")
def list_definitions(prefix: str = "", /, *, tenant: _Tenant = "", limit: int = 50, after: str | None = None) -> int:
    """List definitions by name.

    Parameters
    ----------
    prefix
        Only those whose names begin so.
    limit
        How many at most.
    after
        Go on behind this name, where a list has ended.
    """
    page = run_with_app(lambda target: target.definitions.alist(prefix, tenant=tenant, after=after, limit=limit))
    print_rows(DEFINITION_COLUMNS, [_row(one) for one in page.definitions])
    if page.after is not None:
        note(f"there are more: --after {page.after}")
    return OK


@app.command
@over_http("templates:versions")
def versions(name: str, /, *, tenant: _Tenant = "", limit: int = 50, before: int | None = None) -> int:
    """List the versions of a definition, the last one first; those of a deleted one, too.

    Parameters
    ----------
    name
        The definition's name.
    limit
        How many at most.
    before
        Only those below this one.
    """
    found = run_with_app(lambda target: target.definitions.aversions(name, tenant=tenant, before=before, limit=limit))
    print_rows(DEFINITION_COLUMNS, [_row(one) for one in found])
    return OK


@app.command
@audited
@over_http("templates:delete")
def delete(
    name: str,
    /,
    *,
    tenant: _Tenant = "",
    version: _Version = None,
    yes: Annotated[bool, Parameter(negative="", help="Do not ask.")] = False,
) -> int:
    """Make no more jobs from a definition; jobs that were made from it go on, and its versions are kept.

    Parameters
    ----------
    name
        The definition's name.
    """
    if not confirm(f"delete definition {name}?", yes=yes):
        return FAILED
    change_with_app(
        lambda target: target.definitions.adelete(name, tenant=tenant, version=version),
        "definition.delete",
        [name],
        tenant=tenant,
    )
    note(f"definition {name} is deleted: `taskmq definition versions {name}` shows what it was")
    return OK


def _row(one: "Definition") -> dict[str, Any]:
    content = one.content
    return {
        "definition": one.name,
        "tenant": one.tenant,
        "version": one.version,
        "task": content.task,
        "queue": content.queue,
        "priority": content.priority,
        "owner": content.owner,
        "at": when(one.at),
        "by": one.by,
        "description": content.description,
    }


def _record(one: "Definition") -> dict[str, Any]:
    content = one.content
    return {
        **_row(one),
        "expires": None if content.expires is None else content.expires / 1000,
        "labels": dict(content.labels),
        "args": content.args,
        "kwargs": content.kwargs,
    }
