"""`taskmq definition`: named, versioned templates that jobs are made from."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import App, Parameter

from taskmq.cli.actor import audited
from taskmq.cli.output import confirmed, note
from taskmq.cli.server_link import ask, first_items, show_record, show_rows, text_of_instant
from taskmq.cli.typed_values import array_of, label_of, object_of

if TYPE_CHECKING:
    from taskmq.api.definitions import DefinitionView

__all__ = ["app"]

app = App(
    name="definition",
    help="Definitions: templates that jobs are made from, by `taskmq job submit NAME`.",
    result_action="return_value",
)

_COLUMNS: Final = ("definition", "version", "task", "queue", "priority", "owner", "at", "by", "description")

_SAME: Final = ("tenant", "version", "task", "queue", "priority", "owner", "by", "description")
_Tenant = Annotated[str, Parameter(help="Whose it is.")]
_Version = Annotated[int | None, Parameter(help="End with 6 where it has another version; 0: where it is there.")]


@app.command
@audited
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
) -> None:
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
    made = ask(
        lambda api: api.definitions.put(
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
            version=version,
        ),
        tenant=tenant or None,
    )
    show_record(made, lambda: _record(made))


@app.command
def show(
    name: str,
    /,
    *,
    tenant: _Tenant = "",
    version: Annotated[int | None, Parameter(help="This one; also of a deleted definition.")] = None,
) -> None:
    """Show a definition with its arguments; ends with 3 where there is none.

    Parameters
    ----------
    name
        The definition's name.
    """
    found = ask(lambda api: api.definitions.get(name, version=version), tenant=tenant or None)
    show_record(found, lambda: _record(found))


@app.command(name="list")
def list_definitions(prefix: str = "", /, *, tenant: _Tenant = "", limit: int = 50, after: str | None = None) -> None:
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
    found = ask(
        lambda api: first_items(partial(api.definitions.page, prefix), limit, after=after),
        tenant=tenant or None,
    )
    show_rows(_COLUMNS, found.items, _row)
    if found.next is not None:
        note(f"there are more: --after {found.next}")


@app.command
def versions(name: str, /, *, tenant: _Tenant = "", limit: int = 50, before: int | None = None) -> None:
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
    found = ask(lambda api: api.definitions.versions(name, before=before, limit=limit), tenant=tenant or None)
    show_rows(_COLUMNS, found, _row)


@app.command
@audited
@confirmed("Delete definition {name}?")
def delete(name: str, /, *, tenant: _Tenant = "", version: _Version = None) -> None:
    """Make no more jobs from a definition; jobs that were made from it go on, and its versions are kept.

    Parameters
    ----------
    name
        The definition's name.
    """
    ask(lambda api: api.definitions.delete(name, version=version), tenant=tenant or None)
    note(f"definition {name} is deleted: `taskmq definition versions {name}` shows what it was")


def _row(one: "DefinitionView") -> dict[str, Any]:
    facts = msgspec.structs.asdict(one)
    return {"definition": one.name, **{name: facts[name] for name in _SAME}, "at": text_of_instant(one.at)}


def _record(one: "DefinitionView") -> dict[str, Any]:
    return {**_row(one), "expires": one.expires_in, "labels": one.labels, "args": one.args, "kwargs": one.kwargs}
