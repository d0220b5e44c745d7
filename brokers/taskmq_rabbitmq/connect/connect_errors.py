"""Explanations of connection errors. Pure."""

import re
from collections.abc import Mapping
from typing import Final

UNANSWERED: Final = (
    "the node does not answer: it is starting, a firewall is between, or it has no file handles left (before 4.0: "
    "`rabbitmqctl eval 'file_handle_cache:info().'`); then raise its limit of open files (LimitNOFILE, ulimit -n) "
    "and restart it, or delete unused queues"
)

# Patterns in the messages of OpenSSL, the socket and pika, in this order, with their meanings.
_VERIFY: Final[Mapping[str, str]] = {
    r"Hostname mismatch|IP address mismatch|doesn't match": (
        "the server's certificate is not for this host: connect by a name that is in it"
    ),
    r"certificate has expired": "the server's certificate has expired: renew it on the node",
    r"certificate is not yet valid": "the server's certificate is not valid yet: compare the clocks",
    r"CERTIFICATE_VERIFY_FAILED": (
        "the server's certificate is not signed by an authority that is trusted here: name the right one with "
        "?cafile=FILE"
    ),
    r"ALERT_CERTIFICATE_REQUIRED|ALERT_HANDSHAKE_FAILURE": (
        "the server wants a client certificate: ?certfile=FILE&keyfile=FILE"
    ),
    r"ALERT_UNKNOWN_CA|ALERT_BAD_CERTIFICATE|ALERT_CERTIFICATE_\w+": "the server refuses the client certificate",
    r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE": "the port speaks no TLS: use amqp://, or its TLS port",
    r"PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL": "the server has no TLS 1.2 or 1.3",
}
_PLAIN: Final[Mapping[str, str]] = {
    r"IncompatibleProtocolError": "the port closed the connection before any AMQP: a TLS port wants amqps://",
    r"ConnectionRefusedError": "nothing listens there: is RabbitMQ started, and is this its port",
    r"Timeout (?:while setting up AMQP|during AMQP handshake)": UNANSWERED,
}


def find_tls_problem(failure: str) -> str | None:
    """Return the problem if one side refuses the other's certificate or protocol: retrying does not help."""
    return _first(failure, _VERIFY)


def explain(failure: str) -> str:
    """Return the text of a failure, with its meaning if that is known."""
    meaning = find_tls_problem(failure) or _first(failure, _PLAIN)
    return failure if meaning is None else f"{meaning} ({failure})"


def _first(failure: str, meanings: Mapping[str, str]) -> str | None:
    return next((meaning for pattern, meaning in meanings.items() if re.search(pattern, failure)), None)


def describe(error: BaseException) -> str:
    """Return the innermost cause of an error of pika's as text; the broker's own words if it gave a reason."""
    # pika nests the cause in lists and arguments of its own exceptions.
    seen = 0
    while seen < 8:
        causes = getattr(error, "exceptions", None) or (getattr(error, "exception", None), *error.args)
        nested = [cause for cause in causes if isinstance(cause, BaseException)]
        if not nested:
            break
        error = nested[-1]
        seen += 1
    text = f"{type(error).__name__}: {error}"
    said = re.search(r"\([0-9]{3}\) '.*'", text, re.DOTALL)
    return text if said is None else said[0]
