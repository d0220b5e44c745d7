"""The language of `if`: whether a step runs, by parameters and by values of earlier steps.

    steps.approve.result.ok and params.region in ["eu", "us"] and not (steps.count.result.rows < 100)

Operators, the weakest first: `or`, `and`, `not`, then `== != < <= > >= in`, `not in`. A path that leads to nothing is
null, and null, false, 0 and everything empty count as false.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from taskmq.model.runs.paths import Lookup, Path, PathError, parse_path

_LONGEST: Final = 2_000
_DEEPEST: Final = 40
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<text>"[^"]*"|'[^']*')
    |(?P<sign>==|!=|<=|>=|<|>|\(|\)|\[|\]|,)|(?P<word>[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[\d+\])*))""",
    re.VERBOSE,
)
_LITERALS: Final = {"true": True, "false": False, "null": None}
_ORDERED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
_WORDS: Final = ("and", "or", "not", "in")

_Term = Callable[[Lookup], Any]


class ConditionError(ValueError):
    """Raised when a condition cannot be parsed, or compares what cannot be compared."""


class Condition(NamedTuple):
    """A condition, with the paths that it reads."""

    paths: tuple[Path, ...]
    evaluate: Callable[[Lookup], Any]

    def is_met(self, lookup: Lookup) -> bool:
        """Return whether it holds.

        Raises:
            ConditionError: it compares values of different kinds.
        """
        return bool(self.evaluate(lookup))


@lru_cache(1024)
def parse_condition(text: str) -> Condition:
    """Return a condition that is ready to be evaluated.

    Raises:
        ConditionError: the text is not a condition; the message says where it ends being one.
    """
    if len(text) > _LONGEST:
        raise ConditionError(f"the condition has {len(text)} characters; the maximum is {_LONGEST}")
    parser = _Parser(text)
    term = parser.read_or(0)
    if parser.kind:
        raise ConditionError(f"expected the end of the condition, not {parser.token!r}")
    return Condition(tuple(parser.paths), term)


class _Parser:
    """A recursive-descent parser; `token` is the one not yet read."""

    def __init__(self, text: str) -> None:
        self.paths: list[Path] = []
        self.kind = ""
        self.token = ""
        self._text = text
        self._at = 0
        self._advance()

    def read_or(self, depth: int) -> _Term:
        terms = [self._read_and(depth)]
        while self._skip("or"):
            terms.append(self._read_and(depth))
        return terms[0] if len(terms) == 1 else lambda lookup: any(term(lookup) for term in terms)

    def _read_and(self, depth: int) -> _Term:
        terms = [self._read_not(depth)]
        while self._skip("and"):
            terms.append(self._read_not(depth))
        return terms[0] if len(terms) == 1 else lambda lookup: all(term(lookup) for term in terms)

    def _read_not(self, depth: int) -> _Term:
        if depth > _DEEPEST:
            raise ConditionError(f"the condition is nested more than {_DEEPEST} deep")
        if not self._skip("not"):
            return self._read_comparison(depth)
        term = self._read_not(depth + 1)
        return lambda lookup: not term(lookup)

    def _read_comparison(self, depth: int) -> _Term:
        left = self._read_operand(depth)
        sign = self.token
        if self.kind == "sign" and sign in ("==", "!=", *_ORDERED):
            self._advance()
        elif self._skip("in"):
            sign = "in"
        elif self._skip("not"):
            sign = "not in"
            if not self._skip("in"):
                raise ConditionError(f"expected 'in' after 'not', not {self.token!r}")
        else:
            return left
        right = self._read_operand(depth)
        return lambda lookup: _compare(sign, left(lookup), right(lookup))

    def _read_operand(self, depth: int) -> _Term:
        kind, token = self.kind, self.token
        self._advance()
        match kind, token:
            case "number", _:
                number = float(token) if any(each in token for each in ".eE") else int(token)
                return lambda _: number
            case "text", _:
                return lambda _: token[1:-1]
            case "sign", "(":
                term = self.read_or(depth + 1)
                self._expect(")")
                return term
            case "sign", "[":
                return self._read_list(depth)
            case "word", _ if token in _LITERALS:
                return lambda _: _LITERALS[token]
            case "word", _ if token not in _WORDS:
                return self._read_path(token)
            case _:
                raise ConditionError(f"expected a path, a literal or '(', not {token or 'the end'!r}")

    def _read_list(self, depth: int) -> _Term:
        terms: list[_Term] = []
        if depth > _DEEPEST:
            raise ConditionError(f"the condition is nested more than {_DEEPEST} deep")
        while not self._skip("]"):
            if terms:
                self._expect(",")
            terms.append(self._read_operand(depth + 1))
        return lambda lookup: [term(lookup) for term in terms]

    def _read_path(self, token: str) -> _Term:
        try:
            path = parse_path(token)
        except PathError as error:
            raise ConditionError(str(error)) from None
        self.paths.append(path)
        return lambda lookup: _find(lookup, path)

    def _skip(self, token: str) -> bool:
        if self.kind not in ("word", "sign") or self.token != token:
            return False
        self._advance()
        return True

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            raise ConditionError(f"expected {token!r}, not {self.token or 'the end'!r}")

    def _advance(self) -> None:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            if rest := self._text[self._at :].strip():
                raise ConditionError(f"cannot parse {rest!r}")
            self.kind = self.token = ""
            return
        self._at = found.end()
        self.kind = found.lastgroup or ""
        self.token = found[self.kind]


def _find(lookup: Lookup, path: Path) -> Any:
    try:
        return lookup(path)
    except PathError:
        return None


def _compare(sign: str, left: Any, right: Any) -> bool:
    match sign:
        case "==":
            return _is_equal(left, right)
        case "!=":
            return not _is_equal(left, right)
        case "in":
            return _contains(right, left)
        case "not in":
            return not _contains(right, left)
        case _:
            if not (_is_number(left) and _is_number(right)) and not (
                isinstance(left, str) and isinstance(right, str)
            ):
                raise ConditionError(f"cannot compare {_kind(left)} {sign} {_kind(right)}")
            return _ORDERED[sign](left, right)


def _is_equal(left: Any, right: Any) -> bool:
    # In JSON, true is not 1.
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _contains(container: Any, value: Any) -> bool:
    match container:
        case list():
            return any(_is_equal(value, each) for each in cast("Sequence[Any]", container))
        case str() | dict() if isinstance(value, str):
            return value in container
        case _:
            raise ConditionError(f"cannot look for {_kind(value)} in {_kind(container)}")


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
