"""What RabbitMQ says when it refuses. Pure."""

import re
from typing import Final

from taskmq.errors import AccessDenied, BrokerUnavailable

__all__ = ["ACCESS_REFUSED", "NOT_FOUND", "denies_connection", "exceeded_size", "refused_exchange", "whose_fault"]

ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404

# pika keeps the broker's reply only as text inside its own error: "(403) 'ACCESS_REFUSED - Login was refused'".
_LOGIN = re.compile(r"\(403\)|\(530\)(?!.*\b(?:limit|down)\b)", re.DOTALL)
_EXCHANGE = re.compile(r"exchange '(?P<name>[^']*)' in vhost")
_SIZE = re.compile(r"message size (?P<size>[0-9]+) (?:is )?larger than (?:configured )?max size (?P<limit>[0-9]+)")
# Where a queue has a consumer that wants to be alone, the code is the same.
_OCCUPIED: Final = "in exclusive use"
_DEFAULT_EXCHANGE: Final = "amq.default"


def denies_connection(reply: str) -> bool:
    """Whether a connection failed because of the user, the password or the virtual host.

    Too many connections, and a virtual host that is down for now, are refused with the same codes and are not meant.
    """
    return _LOGIN.search(reply) is not None


def whose_fault(text: str) -> BrokerUnavailable:
    """The error for a channel that the broker closed with `ACCESS_REFUSED`."""
    if _OCCUPIED in text:
        return BrokerUnavailable(f"the broker refused: {text}")
    return AccessDenied(f"the broker refused: {text}; give the user this permission, or connect as another user")


def refused_exchange(text: str) -> str | None:
    """The exchange that the broker's refusal of a publish names; None where it names none."""
    found = _EXCHANGE.search(text)
    if found is None:
        return None
    return "" if found["name"] == _DEFAULT_EXCHANGE else found["name"]


def exceeded_size(text: str) -> tuple[int, int] | None:
    """Size and limit of a body that the broker found too large; None where that is not why it refused."""
    found = _SIZE.search(text)
    return None if found is None else (int(found["size"]), int(found["limit"]))
