"""Replacement of secrets in texts before they are kept. Pure.

Log lines, error messages and tracebacks pass through here in the worker before they leave its process; no other place
redacts. So the store, dead letters, the API, searches, the command line and alerts never have what was replaced.
"""

import re
from collections.abc import Sequence
from typing import Final

from taskmq.errors import InvalidOption

_HIDDEN: Final = "[redacted]"
# Other words may precede and follow, as in `AWS_SECRET_ACCESS_KEY`.
_WORDS: Final = (
    r"(?:pass(?:word|wd|phrase)|pwd|secret|api[_-]?key|(?:access|refresh|auth|id|session)[_-]?token"
    r"|(?:private|access|secret|signing)[_-]?key|authorization)(?:s|\d{1,3})?(?:[_-][a-z0-9_-]{0,40})?"
)
# In quotes, which may be escaped (JSON in a `repr`) and unclosed (a line that was cut); or one word.
_VALUE: Final = (
    r"(?:b?\\{1,4}\"(?:(?!\\{1,4}\")[^\n])*\\{0,4}\"?|b?\"(?:[^\"\\]|\\.)*\"?|b?'(?:[^'\\]|\\.)*'?|[^\s,;&\"')}\]]+)"
)
# Repetitions before a secret are bounded, so a hostile line takes linear time. Each pattern costs about a microsecond
# a character, and searches only texts that contain one of these words.
_DEFAULT: Final = (
    # The password of a URL, even with unescaped `/` and `@`; `h:80/` is a port.
    (("://",), r"(?P<keep>\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@]{0,200}:)(?!\d{1,5}/)[^\s\"'<>]{1,500}(?=@)"),
    (("://",), r"(?P<keep>\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@]{0,200}:)[^\s/@]{1,500}(?=@)"),
    (("bearer", "bas"), r"(?P<keep>\b(?:bearer|basic)\s{1,20})[a-z0-9._~+/=-]{8,}"),
    (
        ("pass", "pwd", "secret", "token", "key", "author"),
        (
            rf"(?P<keep>{_WORDS}(?:\\{{0,4}}[\"'])?\s{{0,20}}[=:]\s{{0,20}}"
            rf"(?:(?:token|digest|apikey|negotiate)\s{{1,20}})?)(?!(?:bearer|basic)\s){_VALUE}"
        ),
    ),
    (("tmq_",), r"(?P<keep>)\btmq_[a-z0-9_-]{16,}"),
)


class Redactor:
    """Replaces passwords in URLs, bearer tokens, values after words such as `password=`, and taskmq's own tokens.

    Args:
        patterns: regular expressions of further secrets, case-insensitive. A group `keep` is kept.

    Raises:
        InvalidOption: a pattern is not a regular expression.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        given = ((("",), pattern) for pattern in patterns)
        self._patterns = [(words, _compile(pattern)) for words, pattern in (*_DEFAULT, *given)]

    def redact(self, text: str) -> str:
        """Return the text with its secrets replaced."""
        folded = text.casefold()
        for words, pattern in self._patterns:
            if any(word in folded for word in words):
                text = pattern.sub(_replacement, text)
        return text


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise InvalidOption(f"the pattern {pattern!r} is not a regular expression: {error}") from error


def _replacement(found: re.Match[str]) -> str:
    return f"{found.groupdict().get('keep') or ''}{_HIDDEN}"
