"""Names of tenants, users and tokens, patterns of tasks, and texts about them."""

import re
from typing import Final

from taskmq.errors import InvalidOption

__all__ = ["check_name", "check_pattern", "check_text"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}")
_LONGEST_TEXT: Final = 500
_PATTERN: Final = re.compile(r"[A-Za-z0-9_.:*?-]{1,128}")


def check_name(name: str, *, what: str) -> str:
    """The name of a tenant, user or token, as it was given.

    Args:
        what: the kind of thing, for the message.

    Raises:
        InvalidOption: it is none.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidOption(
            f"{what} {name[:80]!r}: 1 to 64 letters, digits and . _ - + @, of which the first is a letter or a digit"
        )
    return name


def check_pattern(pattern: str) -> str:
    """A pattern of task names, as it was given: `*` stands for anything, `?` for one character.

    Raises:
        InvalidOption: it is none.
    """
    if _PATTERN.fullmatch(pattern) is None:
        raise InvalidOption(
            f"task pattern {pattern[:80]!r}: 1 to 128 letters, digits and . _ : -, with * for anything and ? for one"
        )
    return pattern


def check_text(text: str, *, what: str) -> str:
    """A description or an address of mail, as it was given: one line.

    Raises:
        InvalidOption: it is none, or too long.
    """
    if len(text) > _LONGEST_TEXT or not text.isprintable():
        raise InvalidOption(f"{what}: at most {_LONGEST_TEXT} characters of one line")
    return text
