"""Validation of the names of tenants, users and tokens, of task patterns, and of their descriptions."""

import re
from typing import Final

from taskmq.errors import InvalidOption
from taskmq.model.identity.roles import GROUP, Role
from taskmq.model.units import did_you_mean

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}")
_LONGEST_TEXT: Final = 500
_LONGEST_GROUP: Final = 128
_ROLES: Final = [role.value for role in Role]
_PATTERN: Final = re.compile(r"[A-Za-z0-9_.:*?-]{1,128}")


def check_name(name: str, *, what: str) -> str:
    """Return the name of a tenant, user or token if it is valid.

    Args:
        what: the kind of thing, for the message.

    Raises:
        InvalidOption: it is not.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidOption(
            f"{what} {name[:80]!r}: 1 to 64 letters, digits and . _ - + @, beginning with a letter or a digit"
        )
    return name


def check_group(name: str) -> str:
    """Return the name of a group of users if it is valid.

    Raises:
        InvalidOption: it is not.
    """
    if not 0 < len(name) <= _LONGEST_GROUP or not name.isprintable() or name != name.strip():
        raise InvalidOption(
            f"group {name[:80]!r}: 1 to {_LONGEST_GROUP} printable characters, without space at the beginning and end"
        )
    return name


def check_answerer(name: str) -> str:
    """Return a name of a wait's `roles` if it is a role, or `group:` with the name of a group.

    Raises:
        InvalidOption: it is neither.
    """
    if name.startswith(GROUP):
        check_group(name.removeprefix(GROUP))
    elif name not in _ROLES:
        raise InvalidOption(f"no role {name[:80]!r}: {did_you_mean(name, _ROLES)}; a group is group:NAME")
    return name


def check_pattern(pattern: str) -> str:
    """Return a pattern of task names if it is valid: `*` matches anything, `?` one character.

    Raises:
        InvalidOption: it is not.
    """
    if _PATTERN.fullmatch(pattern) is None:
        raise InvalidOption(
            f"task pattern {pattern[:80]!r}: 1 to 128 letters, digits and . _ : -, with * for anything and ? for one"
        )
    return pattern


def check_text(text: str, *, what: str) -> str:
    """Return a description or a mail address if it is one line.

    Raises:
        InvalidOption: it has several lines, or is too long.
    """
    if len(text) > _LONGEST_TEXT or not text.isprintable():
        raise InvalidOption(f"{what}: must be one line of at most {_LONGEST_TEXT} characters")
    return text
