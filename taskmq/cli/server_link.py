"""The way of a command to a server, and back to what it prints."""

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from taskmq.cli.globals import current_globals
from taskmq.cli.output import print_record, print_rows
from taskmq.errors import InvalidOption, NotAuthenticated, NotPermitted, UnsupportedFeature

if TYPE_CHECKING:
    from taskmq.http import Client

__all__ = ["only_here", "over_http", "show_record", "show_rows", "text_of_instant"]

P = ParamSpec("P")
R = TypeVar("R")


def over_http(place: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a command go through the server, where there is one.

    Args:
        place: module and name of its namesake, such as `jobs:submit`.
    """

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(command)

        @functools.wraps(command)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            if current_globals().server is None:
                return command(*args, **kwargs)
            given = parameters.bind(*args, **kwargs)
            given.apply_defaults()
            module, _, name = place.partition(":")
            namesake = getattr(importlib.import_module(f"taskmq.cli.remote.{module}"), name)
            result: R = _through(namesake, given.arguments)
            return result

        return run

    return decorate


def _through(use: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    with _client() as client:
        try:
            return use(client, **arguments)
        except NotAuthenticated as error:
            error.add_note(f"$TASKMQ_TOKEN has to be a token of {current_globals().server}: see `taskmq admin token`")
            raise
        except NotPermitted as error:
            error.add_note(f"the roles and scopes behind $TASKMQ_TOKEN decide at {current_globals().server}")
            raise


def _client() -> "Client":
    try:
        from taskmq.http import Client
    except ImportError as error:
        raise UnsupportedFeature(f"--server needs {error.name}: pip install 'taskmq[client]'") from error

    options = current_globals()
    client = Client(options.server, insecure=options.is_insecure)
    return client if options.tenant is None else client.for_tenant(options.tenant)


def only_here(**given: Any) -> None:
    """See that no option is used that the API does not have; its name, and whether it was given.

    Raises:
        InvalidOption: one is.
    """
    for name, value in given.items():
        if value:
            raise InvalidOption(
                f"--{name.replace('_', '-')} does not go through a server: leave it out, or say --app in place of "
                "--server"
            )


def show_rows(
    columns: Sequence[str],
    found: Sequence[Any],
    row: Callable[[Any], Mapping[str, Any]],
    *,
    folded: Sequence[str] = (),
) -> None:
    """Print things as rows for people, and for programs as the API returns them."""
    if current_globals().output == "table":
        print_rows(columns, [row(one) for one in found], folded=folded)
    else:
        print_rows(columns, [msgspec.to_builtins(one) for one in found])


def show_record(found: Any, record: Callable[[], Mapping[str, Any]]) -> None:
    """Print one thing for people, and for programs as the API returns it."""
    print_record(record() if current_globals().output == "table" else msgspec.to_builtins(found))


def text_of_instant(text: str | None) -> str:
    """An instant of the API for people: to the second."""
    return "" if text is None else f"{text[:19]}Z"
