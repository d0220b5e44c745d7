"""Errors of asyncpg, of the server and of the network, and their conversion to those of taskmq."""

from typing import Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq.errors import StoreRefused, StoreUnavailable

_READ_ONLY: Final = "25006"
_NOT_ALLOWED: Final = "42501"
# Errors after which the server has changed nothing: no free resources; a standby; lock or statement timeouts set in
# the database; insufficient privilege.
_REFUSALS: Final = ("53", _READ_ONLY, "55", "57014", _NOT_ALLOWED)
# A prepared statement is missing, or its name exists already: the statement belongs to another connection.
_MIXED_UP: Final = ("26000", "42P05")
# Classes of SQLSTATE: connection; operator intervention; system error; wrong user or database; transaction timeouts;
# internal error.
OUTAGE: Final = (*_REFUSALS, *_MIXED_UP, "08", "57", "58", "28", "3D", "25P", "XX")
"""Beginnings of the SQLSTATEs of a server that cannot answer."""
_DATA: Final = "22"
COLLISIONS: Final = ("40001", "40P01")
"""SQLSTATEs of transactions that collided with others."""
FAILURES: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Errors of asyncpg, of the server and of the network."""
# Classes of SQLSTATE after which the server has ended the connection: lost; idle in a transaction; by an operator.
_LOST: Final = ("08", "25P03", "57P01")
# asyncpg raises such an `InternalClientError` between the server's last message and the end of the connection.
_ENDED: Final = "cannot switch to state"
_POOLED: Final = (
    "a pooler in front of it assigns a connection per transaction: configure session pooling (PgBouncer: "
    "pool_mode = session), or connect to the server directly"
)


def refusal_of(address: str, error: Exception) -> StoreRefused:
    """Return the error for a statement or a value that was rejected, without values."""
    why = type(error).__name__
    # Details and data errors contain values.
    if isinstance(error, asyncpg.PostgresError) and not sqlstate(error).startswith(_DATA):
        why = f"{why}: {error.args[0]}"
    return StoreRefused(f"{address} rejected a statement ({why}); nothing was changed")


def connect_failure(address: str, error: Exception) -> StoreUnavailable:
    """Return the error for a connection that could not be opened."""
    why = f": {_POOLED}" if _is_mixed_up(error) else f" is unreachable: {describe(error)}"
    return StoreUnavailable(f"{address}{why}")


def outage_of(address: str, error: Exception, *, is_undone: bool) -> StoreUnavailable:
    """Return the error for a lost connection or a server that cannot answer.

    Args:
        is_undone: whether the loss of the connection leaves nothing changed.
    """
    if _is_mixed_up(error):
        return StoreUnavailable(f"{address}: {_POOLED}; nothing was changed")
    is_refused = isinstance(error, asyncpg.PostgresError) and sqlstate(error).startswith(_REFUSALS)
    is_certain = is_undone or is_refused
    what = "nothing was changed" if is_certain else "whether the change was made is unknown"
    verb = "rejected the call" if is_refused else "was lost"
    is_ended = isinstance(error, asyncpg.InternalClientError) and str(error).startswith(_ENDED)
    why = "the server ended the connection, see its log" if is_ended else describe(error)
    return StoreUnavailable(f"{address} {verb}: {why}; {what}", is_certain=is_certain)


def is_lost(error: Exception) -> bool:
    """Whether the connection is lost, and a new one may work; a server that did not answer in time stays slow."""
    if isinstance(error, asyncpg.PostgresError):
        return sqlstate(error).startswith(_LOST)
    return not isinstance(error, TimeoutError)


def sqlstate(error: asyncpg.PostgresError) -> str:
    """Return the server's code for the error; "" if it has none."""
    return str(getattr(error, "sqlstate", None) or "")


def describe(error: BaseException) -> str:
    """Return the error's type and text."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _is_mixed_up(error: Exception) -> bool:
    return isinstance(error, asyncpg.PostgresError) and sqlstate(error) in _MIXED_UP
