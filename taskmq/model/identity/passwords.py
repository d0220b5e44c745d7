"""Which passwords are refused, for every user."""

from collections.abc import Collection
from typing import Final

from taskmq.errors import InvalidOption

__all__ = ["LONGEST_PASSWORD", "SHORTEST_PASSWORD", "check_password"]

SHORTEST_PASSWORD: Final = 12
LONGEST_PASSWORD: Final = 1024
"""More is refused, and never cut: hashing it costs the server."""
_FEWEST_CHARACTERS: Final = 5
_AFFIXES: Final = "0123456789!@#$%^&*()-_=+.,;:?/ "


def check_password(password: str, *, user: str, known: Collection[str]) -> None:
    """See whether a user may have that password. Every character is allowed, and none is required.

    Args:
        user: the user's name.
        known: passwords that attackers try first, in lower case.

    Raises:
        InvalidOption: it is too short or too long, is known to attackers or made of what is, or has the user's name.
    """
    if len(password) < SHORTEST_PASSWORD:
        raise InvalidOption(f"the password is too short: at least {SHORTEST_PASSWORD} characters")
    if len(password) > LONGEST_PASSWORD:
        raise InvalidOption(f"the password is too long: at most {LONGEST_PASSWORD} characters")
    plain = password.casefold()
    if len(set(plain)) < _FEWEST_CHARACTERS:
        raise InvalidOption("the password repeats a few characters: choose another one, such as four unrelated words")
    # What is left of "password2026!!" is what people try first.
    if any(each in known for each in (plain, plain.strip(_AFFIXES), _repeated(plain))):
        raise InvalidOption("the password is one that attackers try first: choose four unrelated words instead")
    rest = plain.replace(user.casefold(), "").replace("taskmq", "")
    if len(rest) < SHORTEST_PASSWORD // 2:
        raise InvalidOption("the password is made of the user's name or the product's: choose four unrelated words")


def _repeated(text: str) -> str:
    """The part that the text repeats; the text itself where it repeats none."""
    place = (text + text).find(text, 1)
    return text[:place]
