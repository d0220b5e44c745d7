"""Output formats: tables for people, JSON for programs; truncated only on a terminal."""

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Annotated, Any, Final, ParamSpec, TypeVar, cast

import msgspec
from cyclopts import Parameter

from taskmq.cli.exits import FAILED
from taskmq.cli.globals import current_globals
from taskmq.model.telemetry.plain_text import escape_controls, escape_json
from taskmq.model.units import to_datetime

P = ParamSpec("P")
R = TypeVar("R")

_Yes = Annotated[bool, Parameter(name="--yes", help="Skip the confirmation prompt.", negative="")]
# Width limits of a table and of a column that wraps.
_LINE: Final = 118
_NARROWEST: Final = 24
# On a terminal these stay on one line: errors are cut to the available width, ids only if that is not enough.
_ERRORS: Final = frozenset({"error", "message", "summary"})
_IDS: Final = frozenset({"job", "id", "sample"})


def print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, folded: Collection[str] = ()) -> None:
    """Print rows in the requested format.

    Args:
        folded: columns of sentences, which wrap instead of widening the table.
    """
    match current_globals().output:
        case "json":
            write_json(list(rows), is_pretty=True)
        case "jsonl":
            for row in rows:
                write_json(row)
        case "table" if sys.stdout.isatty():
            _print_table(columns, rows, folded=folded)
        case "table":
            write_plain(columns, rows, folded=folded)


def print_record(record: Mapping[str, Any]) -> None:
    """Print the fields of one record."""
    if current_globals().output == "table":
        width = max(map(len, record), default=0)
        for name, value in record.items():
            texts = _string_items(value)
            text = printable(value) if texts is None else "\n".join(f"  {printable(one)}" for one in texts)
            write_line(f"{name:<{width}}  {text}" if "\n" not in text and not texts else f"{name}:\n{text}")
    elif current_globals().output == "jsonl":
        write_json(record)
    else:
        write_json(record, is_pretty=True)


def print_line(record: Mapping[str, Any], text: str) -> None:
    """Print one record of a stream: `text` for people, a line of JSON for programs."""
    if current_globals().output == "table":
        write_line(printable(text))
    else:
        write_json(record)
    sys.stdout.flush()


def note(text: str) -> None:
    """Write a message to standard error. Control characters are escaped, as the text may quote a server."""
    sys.stderr.write(f"{escape_controls(text)}\n")


def announce(text: str) -> None:
    """Write a status message of a service, unless `--quiet`."""
    if current_globals().log_level < logging.ERROR:
        note(text)


def when(milliseconds: int | None) -> str:
    """Format an instant for people."""
    if milliseconds is None:
        return ""
    return to_datetime(milliseconds).isoformat(timespec="seconds").replace("+00:00", "Z")


def confirm(question: str, *, yes: bool) -> bool:
    """Ask on a terminal before something is destroyed, elsewhere require `--yes`; return the answer."""
    if yes:
        return True
    if not sys.stdin.isatty():
        note(f"{question} Not a terminal: pass --yes.")
        return False
    sys.stderr.write(f"{escape_controls(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def ask_first(question: str) -> Callable[[Callable[P, R]], Callable[P, R | int]]:
    """Make a destructive command ask before it runs, and add the option `--yes`.

    If the user declines, the command changes nothing and exits with 1.

    Args:
        question: a sentence with parameters of the command in braces.
    """

    def decorate(command: Callable[P, R]) -> Callable[P, R | int]:
        known = inspect.signature(command)

        @functools.wraps(command)
        def run(*args: Any, **kwargs: Any) -> R | int:
            yes = kwargs.pop("yes", False)
            given = known.bind(*args, **kwargs)
            given.apply_defaults()
            if not confirm(question.format(**given.arguments), yes=yes):
                return FAILED
            return command(*args, **kwargs)

        option = inspect.Parameter("yes", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_Yes)
        own: Any = run
        own.__signature__ = known.replace(parameters=[*known.parameters.values(), option])
        own.__annotations__ = {**command.__annotations__, "yes": _Yes}
        return cast("Callable[P, R | int]", run)

    return decorate


def _print_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, folded: Collection[str] = ()) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(box=None, header_style="bold", pad_edge=False)
    # Wrap a long name if there are columns of sentences, or it takes their room.
    most = max(console.width // 4, _NARROWEST) if folded else None
    # As Text, since a str such as "list[int]" would be read as rich's markup.
    cells = [[Text(_cell(column, row.get(column))) for column in columns] for row in rows]
    widths = [max(len(column), *(line[index].cell_len for line in cells), 0) for index, column in enumerate(columns)]
    errors = _ERRORS.intersection(columns) - {*folded}
    taken = sum(width + 2 for column, width in zip(columns, widths, strict=True) if column not in errors)
    left = max((console.width - taken) // max(len(errors), 1) - 2, _NARROWEST)
    for column in columns:
        if column in errors:
            table.add_column(column, no_wrap=True, overflow="ellipsis", max_width=left)
        elif column in _IDS and column not in folded:
            table.add_column(column, no_wrap=True, overflow="ellipsis", max_width=most)
        else:
            table.add_column(column, overflow="fold", max_width=None if column in folded else most)
    for line in cells:
        table.add_row(*line)
    console.print(table)


def _cell(column: str, value: object) -> str:
    """Format a value for a table on a terminal; of an error, only its first line."""
    text = printable(value)
    return text.strip().partition("\n")[0] if column in _ERRORS else text


def write_plain(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, folded: Collection[str] = ()) -> None:
    """Write rows as plain-text columns, see `print_rows`."""
    cells = [list(columns), *([printable(row.get(column)).replace("\n", " ") for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    indexes = [index for index, column in enumerate(columns) if column in folded]
    room = _LINE - 2 * (len(columns) - 1) - sum(widths) + sum(widths[index] for index in indexes)
    # Narrow columns first, so that their unused width goes to the others.
    for done, index in enumerate(sorted(indexes, key=widths.__getitem__)):
        widths[index] = min(widths[index], max(room // (len(indexes) - done), _NARROWEST))
        room -= widths[index]
    for line in cells:
        texts = [
            wrap(cell, widths[index], break_long_words=False, break_on_hyphens=False) if index in indexes else [cell]
            for index, cell in enumerate(line)
        ]
        for parts in zip_longest(*texts, fillvalue=""):
            write_line("  ".join(f"{part:<{width}}" for part, width in zip(parts, widths, strict=True)).rstrip())


def printable(value: object) -> str:
    """Format a value for people, with control characters escaped."""
    texts = _string_items(value)
    text = "" if value is None else str(value) if texts is None else ", ".join(texts)
    # A message must not move the cursor or write into the terminal's answers.
    return escape_controls(text) if sys.stdout.isatty() else text


def _string_items(value: object) -> list[str] | None:
    """Return the items of a list of strings; None for any other value."""
    if not isinstance(value, list | tuple):
        return None
    items = cast("Sequence[object]", value)
    texts = [one for one in items if isinstance(one, str)]
    return texts if len(texts) == len(items) else None


def write_json(value: object, *, is_pretty: bool = False) -> None:
    """Write a value as JSON, on one line or several, with terminal control characters escaped."""
    encoded = msgspec.json.encode(value)
    write_line(escape_json((msgspec.json.format(encoded) if is_pretty else encoded).decode()))


def write_line(text: str) -> None:
    """Write a line of data."""
    sys.stdout.write(f"{text}\n")
