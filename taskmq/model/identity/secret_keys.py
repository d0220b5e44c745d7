"""Secrets of sessions and tokens: how they look, and what is kept of them."""

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from typing import Final, NamedTuple

from taskmq.errors import LimitReached

__all__ = [
    "MOST_TOKENS",
    "SecretKey",
    "check_token_count",
    "csrf_token",
    "digest",
    "is_token",
    "session_key",
    "token_key",
]

MOST_TOKENS: Final = 100
"""A user has no more API tokens than this that are good at a time."""
_PREFIX: Final = "tmq_"
_TOKEN: Final = re.compile(r"tmq_[A-Za-z0-9_-]{43}")


class SecretKey(NamedTuple):
    """A secret, shown once, and what the store keeps of it.

    Attributes:
        text: what the caller presents.
        digest: its SHA-256: 256 random bits need no slow hash.
    """

    text: str
    digest: bytes


def token_key(random: bytes) -> SecretKey:
    """An API token of 32 random bytes; its prefix lets scanners of secrets find it."""
    return _key(_PREFIX, random)


def session_key(random: bytes) -> SecretKey:
    """A session's secret of 32 random bytes, for its cookie."""
    return _key("", random)


def is_token(text: str) -> bool:
    """Whether it looks like an API token."""
    return _TOKEN.fullmatch(text) is not None


def digest(secret: str) -> bytes:
    """What the store keeps of a secret."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


def csrf_token(secret: str) -> str:
    """The CSRF token of a session: derived from its secret, so that it ends with it and is kept nowhere."""
    return _text(hmac.digest(secret.encode(errors="surrogatepass"), b"taskmq csrf", "sha256"))


def _key(prefix: str, random: bytes) -> SecretKey:
    if len(random) != 32:
        raise ValueError(f"a secret is made of 32 random bytes, not of {len(random)}")
    text = prefix + _text(random)
    return SecretKey(text, digest(text))


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def check_token_count(present: int) -> None:
    """Return if a user with so many tokens that are good may have another one.

    Raises:
        LimitReached: they have as many as a user may have.
    """
    if present >= MOST_TOKENS:
        raise LimitReached(
            f"the user has {present} API tokens that are good, and may have {MOST_TOKENS}: revoke those that no "
            "program uses, or add a user for each program",
            most=MOST_TOKENS,
        )
