"""Versions of an app's code, as its processes announce them. Pure."""

from typing import Final

from taskmq.errors import InvalidOption

__all__ = ["LONGEST_VERSION", "check_app_version"]

LONGEST_VERSION: Final = 100
"""Maximum characters of a version."""


def check_app_version(text: str) -> str:
    """Return `text` if it can be a version.

    Raises:
        InvalidOption: it is empty, too long, or not printable.
    """
    if not text.isprintable() or not 0 < len(text.strip()) <= len(text) <= LONGEST_VERSION:
        raise InvalidOption(
            f"version={text[:LONGEST_VERSION]!r}: must be 1 to {LONGEST_VERSION} printable characters"
        )
    return text
