"""Secrets of sessions and tokens: their form, and the digests that the store keeps."""

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from typing import Final, NamedTuple

from taskmq.errors import LimitReached

MOST_TOKENS: Final = 100
"""Maximum of valid API tokens of a user."""
_PREFIX: Final = "tmq_"
_TOKEN: Final = re.compile(r"tmq_[A-Za-z0-9_-]{43}")


class SecretKey(NamedTuple):
    """A secret, shown once, and the digest that the store keeps of it.

    Attributes:
        text: the secret that the caller presents.
        digest: its SHA-256: 256 random bits need no slow hash.
    """

    text: str
    digest: bytes


def token_key(random: bytes) -> SecretKey:
    """Return an API token of 32 random bytes; its prefix lets secret scanners find it."""
    return _key(_PREFIX, random)


def session_key(random: bytes) -> SecretKey:
    """Return a session's secret of 32 random bytes, for its cookie."""
    return _key("", random)


def is_token(text: str) -> bool:
    """Return whether a text looks like an API token."""
    return _TOKEN.fullmatch(text) is not None


def digest(secret: str) -> bytes:
    """Return the digest of a secret that the store keeps."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


def csrf_token(secret: str) -> str:
    """Return the CSRF token of a session.

    It is derived from the secret, so it ends with the session and is not stored.
    """
    return _text(hmac.digest(secret.encode(errors="surrogatepass"), b"taskmq csrf", "sha256"))


def _key(prefix: str, random: bytes) -> SecretKey:
    if len(random) != 32:
        raise ValueError(f"a secret is made of 32 random bytes, not of {len(random)}")
    text = prefix + _text(random)
    return SecretKey(text, digest(text))


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def check_token_count(present: int) -> None:
    """Check that a user with this many valid tokens may have another one.

    Raises:
        LimitReached: they have the maximum.
    """
    if present >= MOST_TOKENS:
        raise LimitReached(
            f"the user has {present} valid API tokens of at most {MOST_TOKENS}: revoke those that no "
            "program uses, or add a user for each program",
            most=MOST_TOKENS,
        )
