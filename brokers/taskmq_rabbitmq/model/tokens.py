"""OAuth 2 tokens, as far as a client reads them. Pure."""

import base64
import binascii
import json
import math
from dataclasses import dataclass, field
from typing import Any, Final, cast

MAX_BYTES: Final = 65_536

_RENEW_AT: Final = 0.8
_LOOK_AGAIN: Final = 0.25
_SHORTEST: Final = 1.0
_EXPIRED: Final = 5.0
_LONGEST: Final = 86_400.0


class TokenError(Exception):
    """A text is not a token. The message never contains any of it."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token that RabbitMQ accepts as the password.

    Attributes:
        expires: seconds since the epoch; None if it is unknown.
    """

    secret: str = field(repr=False)
    expires: float | None = None


def read_token(text: str) -> Token:
    """Read the token in a file's text; a JWT contains its expiry.

    Raises:
        TokenError: there is no token, or more than one line.
    """
    secret = text.strip()
    if not secret:
        raise TokenError("it is empty")
    if len(secret) > MAX_BYTES or not secret.isprintable():
        raise TokenError("it is not a token: one line is expected")
    return Token(secret, _expiry(secret))


def read_answer(body: bytes, *, now: float) -> Token:
    """Read the token in a token server's answer (RFC 6749, 5.1).

    Raises:
        TokenError: there is no token.
    """
    try:
        answer = json.loads(body)
    except ValueError:
        raise TokenError("the answer is not JSON") from None
    found = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    secret = found.get("access_token")
    if not isinstance(secret, str):
        raise TokenError("the answer has no access_token")
    token = read_token(secret)
    if token.expires is None and (lifetime := _seconds(found.get("expires_in"))) is not None:
        return Token(token.secret, now + lifetime)
    return token


def next_look(token: Token, *, now: float, is_new: bool) -> float | None:
    """Return the seconds until the next attempt to get a newer token; None for one that does not expire.

    That is after 80 % of a new token's life, then again after a quarter of the rest, and every 5 s once it has
    expired.
    """
    if token.expires is None:
        return None
    left = token.expires - now
    if left <= 0:
        return _EXPIRED
    return min(max(left * (_RENEW_AT if is_new else _LOOK_AGAIN), _SHORTEST), _LONGEST)


def _expiry(secret: str) -> float | None:
    """Return the expiry of a JWT. The broker verifies its signature."""
    parts = secret.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None
    return _seconds(cast("dict[str, Any]", claims).get("exp")) if isinstance(claims, dict) else None


def _seconds(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e12:
        return None
    return float(value) if math.isfinite(value) else None
