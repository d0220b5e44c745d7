"""The rule that refuses weak passwords, by an estimate of the guesses that one takes. Pure.

The estimate splits the text in the way that is cheapest for the attacker: into known passwords (also reversed, or
with signs for letters), names, years, runs of letters or digits, keyboard walks, and copies of earlier text. Every
other character is guessed by itself. The cost of a piece is the decimal logarithm of its guesses.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from taskmq.errors import InvalidOption

SHORTEST_PASSWORD: Final = 12
LONGEST_PASSWORD: Final = 1024
"""Longer passwords are refused, never cut: hashing them costs the server."""
_FEWEST_GUESSES: Final = 10.0
"""Decimal logarithm; against argon2id this many guesses take a rich attacker years."""
_WORD: Final = 4.3
"""Cost of one of some 20,000 known passwords."""
_CHANGED_WORD: Final = 4.6
_NAME: Final = 1.0
_YEAR: Final = 2.0
_WALK: Final = 1.7
"""Cost of the first key of a walk or run, of each step, and of each turn."""
_STEP: Final = 0.15
_TURN: Final = 0.5
_COPY: Final = 1.0
_LONGEST_WORD: Final = 24
_FARTHEST_COPY: Final = 64
_SHORTEST_PIECE: Final = 3
_LONGEST_PIECE: Final = 64
"""Maximum length of a walk, and of the end of a copy that counts: every end of each would be quadratic work."""

_KEYS: Final = ("`1234567890-=", " qwertyuiop[]\\", " asdfghjkl;'", " zxcvbnm,./")
_SHIFTED: Final = str.maketrans('~!@#$%^&*()_+{}|:"<>?', "`1234567890-=[]\\;',./")
_SIGNS: Final = tuple(str.maketrans("0134579@$!|", letters) for letters in ("oleastgasil", "oieastgasii"))
"""Signs for letters, as in `p@ssw0rd`: a 1 stands for an l or an i."""


class _Key(NamedTuple):
    row: int
    column: int


class _Step(NamedTuple):
    """A step from one character to the next: on the keyboard or in the alphabet, as `kind` says."""

    kind: str
    down: int
    right: int


_PLACES: Final = {
    letter: _Key(row, column)
    for row, letters in enumerate(_KEYS)
    for column, letter in enumerate(letters)
    if letter != " "
}
_NEIGHBOURS: Final = frozenset({(0, 1), (0, -1), (1, 0), (1, -1), (-1, 0), (-1, 1)})
"""Rows of the keyboard; each is half a key to the right of the row above."""


def check_password(password: str, *, user: str, known: Collection[str]) -> None:
    """Check a user's new password. Every character is allowed, and none is required.

    Args:
        user: the user's name.
        known: passwords that attackers try first, in lower case.

    Raises:
        InvalidOption: it is too short, too long, or built from what attackers try first, in any order.
    """
    if len(password) < SHORTEST_PASSWORD:
        raise InvalidOption(f"the password is too short: at least {SHORTEST_PASSWORD} characters")
    if len(password) > LONGEST_PASSWORD:
        raise InvalidOption(f"the password is too long: at most {LONGEST_PASSWORD} characters")
    if guesses_of(password, known=known, names=(user, "taskmq")) < _FEWEST_GUESSES:
        raise InvalidOption(
            "the password is easy to guess: it consists of known passwords, of your name or the "
            "product's, of years, of adjacent keys, or of repetitions; choose four unrelated words instead"
        )


def guesses_of(text: str, *, known: Collection[str], names: Collection[str] = ()) -> float:
    """Estimate how many guesses a text takes, as a decimal logarithm.

    Args:
        known: passwords that attackers try first, in lower case; looked up very often.
        names: words that belong to this password, such as the user's name.
    """
    plain = text.casefold()
    cheapest = [0.0] + [float("inf")] * len(plain)
    names = {name.casefold() for name in names if len(name) >= _SHORTEST_PIECE}
    walks = (_keyboard_steps(plain), _alphabet_steps(plain))
    copies = _copies(plain)
    for begin, letter in enumerate(plain):
        before = cheapest[begin]
        for end, cost in (
            (begin + 1, _cost_of(letter)),
            *_words(plain, begin, known),
            *_names(plain, begin, names),
            *_years(plain, begin),
            *(piece for steps in walks for piece in _walks(steps, begin)),
            *((end, _COPY) for end in range(begin + 1, min(copies[begin], begin + _LONGEST_PIECE) + 1)),
            (copies[begin], _COPY),
        ):
            cheapest[end] = min(cheapest[end], before + cost)
    return cheapest[-1]


def _cost_of(letter: str) -> float:
    """Return the cost of one character that is guessed by itself."""
    if not letter.isascii():
        return 2.0
    if letter.isdigit():
        return 1.0
    return 1.4 if letter.isalpha() else 1.5


def _words(text: str, begin: int, known: Collection[str]) -> Iterator[tuple[int, float]]:
    longest = text[begin : begin + _LONGEST_WORD]
    changed = [longest.translate(signs) for signs in _SIGNS]
    for length in range(_SHORTEST_PIECE, len(longest) + 1):
        word = longest[:length]
        if word in known:
            yield begin + length, _WORD
        elif word[::-1] in known or any(each[:length] in known for each in changed):
            yield begin + length, _CHANGED_WORD


def _names(text: str, begin: int, names: Collection[str]) -> Iterator[tuple[int, float]]:
    return ((begin + len(name), _NAME) for name in names if text.startswith(name, begin))


def _years(text: str, begin: int) -> Iterator[tuple[int, float]]:
    year = text[begin : begin + 4]
    if len(year) == 4 and year.isascii() and year.isdigit() and year[:2] in {"19", "20"}:
        yield begin + 4, _YEAR


def _walks(steps: Sequence[_Step | None], begin: int) -> Iterator[tuple[int, float]]:
    """Yield pieces that continue from key to key, or from letter to letter."""
    cost, last = _WALK, None
    for index in range(begin, min(len(steps), begin + _LONGEST_PIECE)):
        step = steps[index]
        if step is None:
            return
        cost += _STEP + (_TURN if last not in (None, step) else 0)
        last = step
        length = index - begin + 2
        if length >= _SHORTEST_PIECE:
            # As in `1qaz2wsx3edc`: the same walk from another key.
            is_again = begin >= length and steps[begin - length : begin - 1] == steps[begin : index + 1]
            yield begin + length, _COPY if is_again else cost


def _keyboard_steps(text: str) -> list[_Step | None]:
    keys = [_PLACES.get(letter) for letter in text.translate(_SHIFTED)]
    return [_keyboard_step(one, other) for one, other in itertools.pairwise(keys)]


def _keyboard_step(one: _Key | None, other: _Key | None) -> _Step | None:
    if one is None or other is None:
        return None
    way = (other.row - one.row, other.column - one.column)
    return _Step("key", *way) if way in _NEIGHBOURS else None


def _alphabet_steps(text: str) -> list[_Step | None]:
    """Return steps up or down in digits or letters; 0 follows 9, and a follows z."""
    found: list[_Step | None] = []
    for one, other in itertools.pairwise(text):
        way = ord(other) - ord(one)
        if one + other in {"90", "za"}:
            way = 1
        elif one + other in {"09", "az"}:
            way = -1
        found.append(_Step("letter", 0, way) if abs(way) == 1 else None)
    return found


def _copies(text: str) -> list[int]:
    """Return, for each index, the end of the text that repeats earlier text there; the index if none does."""
    ends = list(range(len(text)))
    for distance in range(1, min(_FARTHEST_COPY, len(text) - 1) + 1):
        shortest = 1 if distance == 1 else _SHORTEST_PIECE
        end = len(text)
        for index in range(len(text) - 1, distance - 1, -1):
            if text[index] != text[index - distance]:
                end = index
            elif end - index >= shortest:
                ends[index] = max(ends[index], end)
    return ends
