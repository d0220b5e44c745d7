"""Interpretation of RabbitMQ's refusals. Pure."""

import re
from typing import Final

from taskmq.errors import AccessDenied, BrokerUnavailable

ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404

# pika keeps the broker's reply only as text inside its own error: "(403) 'ACCESS_REFUSED - Login was refused'".
_LOGIN = re.compile(r"\(403\)|\(530\)(?!.*\b(?:limit|down)\b)", re.DOTALL)
_EXCHANGE = re.compile(r"exchange '(?P<name>[^']*)' in vhost")
_SIZE = re.compile(r"message size (?P<size>[0-9]+) (?:is )?larger than (?:configured )?max size (?P<limit>[0-9]+)")
# If a queue has an exclusive consumer, the code is the same.
_OCCUPIED: Final = "in exclusive use"
_DEFAULT_EXCHANGE: Final = "amq.default"


def denies_connection(reply: str) -> bool:
    """Return whether a connection failed because of the user, the password or the virtual host.

    RabbitMQ uses the same codes for too many connections and for a virtual host that is down; these do not count.
    """
    return _LOGIN.search(reply) is not None


def access_error(text: str) -> BrokerUnavailable:
    """Return the error for a channel that the broker closed with `ACCESS_REFUSED`."""
    if _OCCUPIED in text:
        return BrokerUnavailable(f"the broker refused: {text}")
    return AccessDenied(f"the broker refused: {text}; give the user this permission, or connect as another user")


def refused_exchange(text: str) -> str | None:
    """Return the exchange named in the broker's refusal of a publish; None if it names none."""
    found = _EXCHANGE.search(text)
    if found is None:
        return None
    return "" if found["name"] == _DEFAULT_EXCHANGE else found["name"]


def exceeded_size(text: str) -> tuple[int, int] | None:
    """Return size and limit of a body that the broker found too large; None if that is not the reason."""
    found = _SIZE.search(text)
    return None if found is None else (int(found["size"]), int(found["limit"]))
