"""Values of YAML and JSON texts, with the line of each value.

Plain scalars of YAML follow its core schema: `no`, `on` and `2027-01-31` are texts. Only what JSON can represent is
accepted: no tags, anchors, aliases, merge keys, second documents, NaN or infinity.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple, cast

from taskmq.errors import UnsupportedFeature

FileFormat = Literal["yaml", "json"]

LONGEST: Final = 262_144
"""Maximum size of a file, in bytes."""

_DEEPEST: Final = 40
_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|-?Infinity|NaN")
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\],:"]+')
_MOST_DIGITS: Final = 20

Place = tuple[str | int, ...]


class DocumentError(ValueError):
    """Raised when a text is not an acceptable document.

    Attributes:
        line: line of the fault, from 1.
    """

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class Document(NamedTuple):
    """A mapping that was read from a text.

    Attributes:
        lines: line of each value or of its key, by the keys and indexes that lead to it.
    """

    value: dict[str, Any]
    lines: dict[Place, int]

    def line_of(self, place: Place) -> int:
        """Return the line of a value; of the nearest one around it if it does not exist."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines[place]


class _Event(NamedTuple):
    kind: Literal["scalar", "map", "list", "end"]
    line: int
    value: Any = None


class _Frame(NamedTuple):
    values: Any
    place: Place
    is_map: bool = False


def read_document(text: bytes, form: FileFormat) -> Document:
    """Return the mapping that a text contains.

    Raises:
        DocumentError: the text is too long, malformed, or has something that is not accepted.
        UnsupportedFeature: the YAML library is not installed.
    """
    if len(text) > LONGEST:
        raise DocumentError(1, f"the file has {len(text):,} bytes; the maximum is {LONGEST:,}")
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(text.count(b"\n", 0, error.start) + 1, "the file is not UTF-8") from None
    return _build(_read_yaml(decoded) if form == "yaml" else _read_json(decoded))


def _build(events: Iterable[_Event]) -> Document:
    """Build the value of a document from its events."""
    root: list[Any] = []
    stack = [_Frame(root, ())]
    lines: dict[Place, int] = {}
    key: str | None = None
    line = 1
    for event in events:
        if event.kind == "end":
            stack.pop()
            continue
        values, place, is_map = stack[-1]
        if is_map and key is None:
            key, line = _check_key(event, values), event.line
            continue
        if len(stack) == 1:
            here: Place = ()
        else:
            here = (*place, len(values) if key is None else key)
        lines[here] = event.line if key is None else line
        value: Any = event.value
        if event.kind != "scalar":
            value = dict[str, Any]() if event.kind == "map" else list[Any]()
        if key is None:
            values.append(value)
        else:
            values[key] = value
            key = None
        if event.kind != "scalar":
            if len(stack) > _DEEPEST:
                raise DocumentError(event.line, f"values are nested more than {_DEEPEST} deep")
            stack.append(_Frame(value, here, event.kind == "map"))
    if not root:
        raise DocumentError(1, "the file is empty")
    if not isinstance(root[0], dict):
        raise DocumentError(lines[()], "a workflow is a mapping with the key `steps`")
    return Document(root[0], lines)


def _check_key(event: _Event, values: dict[str, Any]) -> str:
    if not isinstance(event.value, str):
        what = "a key is a collection" if event.kind != "scalar" else f"the key {event.value!r} is not text"
        raise DocumentError(event.line, f"{what}: write it in quotes")
    if event.value in values:
        raise DocumentError(event.line, f"the key {event.value!r} occurs twice")
    return event.value


def _read_yaml(text: str) -> Iterator[_Event]:
    try:
        import yaml
    except ImportError as error:
        raise UnsupportedFeature(
            "YAML files need a library: run pip install 'taskmq[workflows]', or write the file as JSON"
        ) from error

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents = 0
    try:
        for event in cast("Iterable[Any]", yaml.parse(text, Loader=loader)):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise DocumentError(line, "the file has a second document: write one workflow a file")
                if event.tags:
                    raise DocumentError(line, "tags are not accepted: remove the %TAG directive")
            yield from _convert(event, line)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(str(each) for each in (error.context, error.problem) if each)
        raise DocumentError(1 if mark is None else mark.line + 1, f"malformed YAML: {said}") from None
    except yaml.YAMLError as error:
        at = getattr(error, "position", 0) or 0
        raise DocumentError(text.count("\n", 0, at) + 1, "malformed YAML: a character is not accepted") from None


def _convert(event: Any, line: int) -> Iterator[_Event]:
    """Yield the event of the document that an event of the YAML library stands for, if there is one."""
    kind = type(event).__name__
    if kind == "AliasEvent":
        raise DocumentError(line, f"aliases are not accepted: write the value in place of *{event.anchor}")
    if getattr(event, "anchor", None) is not None:
        raise DocumentError(line, f"anchors are not accepted: remove &{event.anchor}")
    if getattr(event, "tag", None) is not None:
        raise DocumentError(line, f"tags are not accepted: remove {event.tag}")
    if kind == "ScalarEvent":
        yield _Event("scalar", line, _resolve_scalar(event.value, line, is_plain=event.implicit[0]))
    elif kind in ("MappingStartEvent", "SequenceStartEvent"):
        yield _Event("map" if kind.startswith("Map") else "list", line)
    elif kind in ("MappingEndEvent", "SequenceEndEvent"):
        yield _Event("end", line)


def _read_json(text: str) -> Iterator[_Event]:
    try:
        # Only to find what is malformed: numbers and constants are read below, with their line.
        json.loads(text, parse_int=len, parse_float=len, parse_constant=len)
    except json.JSONDecodeError as error:
        raise DocumentError(error.lineno, f"malformed JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise DocumentError(1, f"values are nested more than {_DEEPEST} deep") from None
    line, at = 1, 0
    for token in _TOKEN.finditer(text):
        line += text.count("\n", at, token.start())
        at = token.start()
        match token[0]:
            case "{":
                yield _Event("map", line)
            case "[":
                yield _Event("list", line)
            case "}" | "]":
                yield _Event("end", line)
            case scalar if scalar.startswith('"'):
                yield _Event("scalar", line, _check_text(json.loads(scalar), line))
            case scalar:
                yield _Event("scalar", line, _resolve_scalar(scalar, line, is_plain=True))


def _resolve_scalar(text: str, line: int, *, is_plain: bool) -> Any:
    """Return the value of a scalar; a plain one may be null, a boolean or a number."""
    if not is_plain:
        return _check_text(text, line)
    if text in _WORDS:
        return _WORDS[text]
    if text == "<<":
        raise DocumentError(line, "merge keys are not accepted: write the fields out")
    if _NOT_FINITE.fullmatch(text):
        raise DocumentError(line, f"{text} is not a number of JSON")
    if _INTEGER.fullmatch(text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        number = int(text, base) if len(text) <= _MOST_DIGITS else 1 << 64
        if not -(1 << 63) <= number < 1 << 64:
            raise DocumentError(line, f"the number {text[:_MOST_DIGITS]} does not fit into 64 bits")
        return number
    if _NUMBER.fullmatch(text):
        value = float(text)
        if math.isinf(value):
            raise DocumentError(line, f"the number {text[:_MOST_DIGITS]} is too large")
        return value
    return _check_text(text, line)


def _check_text(text: str, line: int) -> str:
    if "\0" in text:
        raise DocumentError(line, "a text has a NUL character, which no store can keep")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DocumentError(line, "a text has half a surrogate pair, which is not a character") from None
    return text
