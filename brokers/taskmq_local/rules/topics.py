"""Which topics a listener's patterns mean. Pure.

Topics are words with dots between them. In a pattern `*` stands for one word and `#` for any number of them, none
included, as in AMQP's topic exchanges.
"""

import re
from collections.abc import Callable, Collection
from typing import Final

__all__ = ["MAX_TOPIC_BYTES", "matcher"]

MAX_TOPIC_BYTES: Final = 255


def matcher(patterns: Collection[str]) -> Callable[[str], bool]:
    """Whether a topic fits one of the patterns."""
    # Each word with the dot behind it, so that `#` may stand for no word and take its dot along.
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
