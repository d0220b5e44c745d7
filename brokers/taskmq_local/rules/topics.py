"""Matching of topics and listeners' patterns. Pure.

Topics are words separated by dots. In a pattern, `*` stands for one word and `#` for any number of words, including
none, as in AMQP's topic exchanges.
"""

import re
from collections.abc import Callable, Collection
from typing import Final

MAX_TOPIC_BYTES: Final = 255


def matcher(patterns: Collection[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a topic matches one of the patterns."""
    # Each word includes the dot after it, so that `#` can match no word and drop its dot.
    expression = re.compile("|".join("".join(map(_words, pattern.split("."))) for pattern in patterns) or r"(?!)")
    return lambda topic: expression.fullmatch(f"{topic}.") is not None


def _words(word: str) -> str:
    match word:
        case "*":
            return r"[^.]*\."
        case "#":
            return r"(?:[^.]*\.)*"
        case _:
            return re.escape(word) + r"\."
