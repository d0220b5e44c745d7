"""Paths to parameters, values of steps and facts of a run, alone and inside templates.

    params.day    steps.extract.result.pages[0]    steps.extract.state    run.id    item.url

A template is a JSON value. A text that is one reference, `"${params.day}"`, becomes the referenced value; inside a
longer text the value is inserted as text. `$${` stands for `${`.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import msgspec

from taskmq.model.values.light_values import LightValue

NAME: Final = r"[A-Za-z_][A-Za-z0-9_-]*"
"""Pattern of names of steps and parameters, and of keys in a path."""
LONGEST_NAME: Final = 1_000
"""Maximum of characters in the name of a step: an index row of a database has to hold it."""

_ROOTS: Final = ("params", "steps", "run", "item")
_PART: Final = re.compile(rf"\.({NAME})|\[(0|[1-9][0-9]{{0,8}})\]")
_ROOT: Final = re.compile(NAME)
_REFERENCE: Final = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_CACHED: Final = 4096
_LONGEST_CACHED: Final = 1_000


class PathError(ValueError):
    """Raised when a path cannot be parsed, or leads to nothing."""


class KeptElsewhere(Exception):
    """Raised when a value has to be read here, and parts of it are kept elsewhere."""

    def __init__(self, what: str, value: LightValue) -> None:
        super().__init__(
            f"{what} has {value.size:,} bytes at results_at=, so it can only be a whole argument of a task or the "
            "output of the run: return less, or a reference of your own"
        )


def find_name_flaw(name: str) -> str:
    """Return what is wrong with the name of a step; "" if nothing is."""
    if len(name) > LONGEST_NAME:
        return f"it has {len(name):,} characters, and at most {LONGEST_NAME:,} are possible"
    return "" if re.fullmatch(NAME, name) else "use letters, digits, _ and -, and begin with a letter"


class Path(NamedTuple):
    """A path as its root and the keys below it.

    Attributes:
        root: `params`, `run`, `item`, `steps` for the value of a step, `state` for its state.
        step: name of the step; "" for other roots.
        keys: keys and indexes below the root, of a step those below `result` or `state`.
    """

    text: str
    root: str
    step: str
    keys: tuple[str | int, ...]


Lookup = Callable[[Path], Any]
"""Returns the value of a path as JSON data, encoded, or as a `LightValue`; raises `PathError` if there is none."""


@lru_cache(_CACHED)
def parse_path(text: str) -> Path:
    """Return the root and the keys of a path.

    Raises:
        PathError: the text is not a path; the message says what is wrong.
    """
    text = text.strip()
    root = _ROOT.match(text)
    if root is None or root[0] not in _ROOTS:
        raise PathError(f"{text!r} does not begin with {', '.join(_ROOTS[:-1])} or {_ROOTS[-1]}")
    keys: list[str | int] = []
    at = root.end()
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise PathError(f"{text!r} cannot be parsed from {text[at:]!r}: write .name or [0]")
        keys.append(part[1] if part[1] is not None else int(part[2]))
        at = part.end()
    if root[0] != "steps":
        if not keys and root[0] != "item":
            raise PathError(f"{text!r} names no {root[0]}: write {root[0]}.name")
        return Path(text, root[0], "", tuple(keys))
    match keys:
        case [str(step), "state"]:
            return Path(text, "state", step, ())
        case [str(step), "result", *rest]:
            return Path(text, "steps", step, tuple(rest))
        case _:
            raise PathError(f"{text!r} is neither steps.NAME.result nor steps.NAME.state")


def find_value(value: Any, path: Path) -> Any:
    """Return the part of a root's value that the path leads to.

    Raises:
        PathError: there is none.
    """
    for key in path.keys:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            raise PathError(f"{path.text} leads to nothing: {key!r} does not exist") from None
    return value


def paths_in(template: Any) -> Iterator[Path]:
    """Yield the paths of all references in a template; raises `PathError` if one cannot be parsed."""
    match template:
        case str():
            yield from (each for each in _split(template) if isinstance(each, Path))
        case list() | tuple():
            for item in cast("list[Any]", template):
                yield from paths_in(item)
        case dict():
            for item in cast("dict[str, Any]", template).values():
                yield from paths_in(item)
        case _:
            pass


def resolve(template: Any, lookup: Lookup) -> Any:
    """Return a template with its references replaced, for `lighten`.

    Raises:
        PathError: a reference leads to nothing.
        KeptElsewhere: a text contains a value of which parts are kept elsewhere.
    """
    match template:
        case str():
            return _resolve_text(template, lookup)
        case list() | tuple():
            return [resolve(item, lookup) for item in cast("list[Any]", template)]
        case dict():
            return {key: resolve(item, lookup) for key, item in cast("dict[str, Any]", template).items()}
        case _:
            return template


def _resolve_text(text: str, lookup: Lookup) -> Any:
    parts = _split(text)
    if len(parts) == 1 and isinstance(parts[0], Path):
        return lookup(parts[0])
    return "".join(part if isinstance(part, str) else _to_text(part, lookup(part)) for part in parts)


def _to_text(path: Path, found: Any) -> str:
    value = read_data(path.text, found)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def read_data(what: str, found: Any) -> Any:
    """Return what a lookup has found as JSON data.

    Args:
        what: name of the value, for the error.

    Raises:
        KeptElsewhere: parts of it are kept elsewhere.
    """
    if isinstance(found, LightValue):
        raise KeptElsewhere(what, found)
    return msgspec.json.decode(found) if isinstance(found, msgspec.Raw) else found


def _split(text: str) -> tuple[str | Path, ...]:
    """Split a text into literal parts and paths."""
    if "${" not in text:
        return (text,)
    # Arguments may be large.
    return _parse_text(text) if len(text) <= _LONGEST_CACHED else _parse_text.__wrapped__(text)


@lru_cache(_CACHED)
def _parse_text(text: str) -> tuple[str | Path, ...]:
    parts: list[str | Path] = []
    at = 0
    for found in _REFERENCE.finditer(text):
        parts.append(text[at : found.start()])
        if found[0] == "$${":
            parts.append("${")
        elif found[1] is None:
            raise PathError(f"a reference in {text!r} is not closed: write ${{path}}, or $${{ for the two characters")
        else:
            parts.append(parse_path(found[1]))
        at = found.end()
    parts.append(text[at:])
    return tuple(part for part in parts if part)
