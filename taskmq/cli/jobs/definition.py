"""`taskmq definition`: named, versioned templates of jobs."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from taskmq.api.definitions import DefinitionBody
from taskmq.cli.actor import name_caller
from taskmq.cli.flags import JobFlags
from taskmq.cli.noun import Noun
from taskmq.cli.output import ask_first, note
from taskmq.cli.server_link import ask, first_items, show_record, show_rows, text_of_instant
from taskmq.cli.typed_values import array_of, object_of

if TYPE_CHECKING:
    from taskmq.api.definitions import DefinitionView

app = Noun(name="definition", help="Manage job definitions. Submit a job of one with `taskmq job submit NAME`.")

_COLUMNS: Final = ("definition", "version", "task", "queue", "priority", "owner", "at", "by", "description")

_SAME: Final = ("tenant", "version", "task", "queue", "priority", "owner", "by", "description")
_OF_RECORDS: Final = tuple(name for name in DefinitionBody.__struct_fields__ if name not in {*_SAME, "expires_in"})
_NO_FLAGS: Final = JobFlags()
_Tenant = Annotated[str, Parameter(help="The owning tenant.")]
_Version = Annotated[
    int | None, Parameter(help="Exit with 6 if this is not the current version; 0: if the definition exists.")
]


@app.command
@name_caller
def put(
    name: str,
    task: str,
    /,
    *,
    args: Annotated[str, Parameter(help="Positional arguments, a JSON array.")] = "[]",
    kwargs: Annotated[str, Parameter(help="Named arguments, a JSON object.")] = "{}",
    tenant: _Tenant = "",
    version: _Version = None,
    flags: JobFlags = _NO_FLAGS,
) -> None:
    """Create a version of a definition, unless the last one is identical; print the current version.

    Args:
        name: The definition's name; no task may have it.
        task: The name of a task of the app, or of one that a worker has registered.
    """
    body = DefinitionBody(
        task=task, args=array_of("--args", args), kwargs=object_of("--kwargs", kwargs), **flags.fields()
    )
    made = ask(lambda api: api.definitions.put(name, body, version=version), tenant=tenant or None)
    show_record(made, lambda: _record(made))


@app.command
def show(
    name: str,
    /,
    *,
    tenant: _Tenant = "",
    version: Annotated[int | None, Parameter(help="A specific version; works for a deleted definition, too.")] = None,
) -> None:
    """Show a definition with its arguments. Exits with 3 if there is none.

    Args:
        name: The definition's name.
    """
    found = ask(lambda api: api.definitions.get(name, version=version), tenant=tenant or None)
    show_record(found, lambda: _record(found))


@app.command(name="list")
def list_definitions(prefix: str = "", /, *, tenant: _Tenant = "", limit: int = 50, after: str | None = None) -> None:
    """List definitions by name.

    Args:
        prefix: Only names with this prefix.
        limit: Maximum number of definitions.
        after: Continue after this name, printed at the end of an earlier list.
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
    """List the versions of a definition, newest first, including those of a deleted one.

    Args:
        name: The definition's name.
        limit: Maximum number of versions.
        before: Only versions below this number.
    """
    found = ask(lambda api: api.definitions.versions(name, before=before, limit=limit), tenant=tenant or None)
    show_rows(_COLUMNS, found, _row)


@app.command
@name_caller
@ask_first("Delete definition {name}?")
def delete(name: str, /, *, tenant: _Tenant = "", version: _Version = None) -> None:
    """Delete a definition. Its jobs continue, and its versions are kept.

    Args:
        name: The definition's name.
    """
    ask(lambda api: api.definitions.delete(name, version=version), tenant=tenant or None)
    note(f"definition {name} deleted; its versions remain: `taskmq definition versions {name}`")


def _row(one: "DefinitionView") -> dict[str, Any]:
    facts = msgspec.structs.asdict(one)
    return {"definition": one.name, **{name: facts[name] for name in _SAME}, "at": text_of_instant(one.at)}


def _record(one: "DefinitionView") -> dict[str, Any]:
    facts = msgspec.to_builtins(one)
    return {**_row(one), "expires": one.expires_in} | {name: facts[name] for name in _OF_RECORDS}
