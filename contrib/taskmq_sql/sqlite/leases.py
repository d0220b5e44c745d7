"""The leases of the partitions, and others.

A token is the time, in ms, or one more than the one before it where that is later: so also what a file has
forgotten that was brought back is not given twice.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from taskmq.contracts.stores import Lease, members_prefix
from taskmq.errors import StateUnavailable, StoreMismatch, StoreUnavailable
from taskmq_embedded.work import Care
from taskmq_sql.sqlite.file.thread import FileThread
from taskmq_sql.sqlite.file.transaction import Transaction

__all__ = ["SqliteLeases", "drop_ended_leases", "is_held"]

T = TypeVar("T")

_FIND: Final = "SELECT owner, token, until, note FROM lease WHERE key = ? AND owner IS NOT NULL AND until > ?"
_MEMBERS: Final = """
    SELECT owner, token, until, note, key FROM lease
    WHERE key > :prefix AND substr(key, 1, length(:prefix)) = :prefix AND owner IS NOT NULL AND until > :now
    ORDER BY key
"""
_TAKE: Final = """
    INSERT INTO lease (key, token, owner, until, note) VALUES (:key, :first, :owner, :until, :note)
    ON CONFLICT (key) DO UPDATE SET token = max(token + 1, :first), owner = :owner, until = :until, note = :note
    RETURNING token
"""
_RENEW: Final = """
    UPDATE lease SET until = :until, note = ifnull(:note, note)
    WHERE key = :key AND token = :token AND owner IS NOT NULL AND until > :now
"""


# Of partitions they stay: their epochs are compared for ever.
_DROP_ENDED: Final = "DELETE FROM lease WHERE key NOT LIKE 'partition:%' AND until <= ?"
_REMEMBERED: Final = 3_600_000


def drop_ended_leases(transaction: Transaction) -> None:
    """Forget the keys whose leases have ended an hour ago, but those of partitions."""
    transaction.connection.execute(_DROP_ENDED, (transaction.now - _REMEMBERED,))


def is_held(transaction: Transaction, key: str, token: int) -> bool:
    """Whether the key was not taken since, and its holder has not released it."""
    rows = transaction.connection.execute(
        "SELECT 1 FROM lease WHERE key = ? AND token = ? AND owner IS NOT NULL", (key, token)
    ).fetchall()
    return bool(rows)


class SqliteLeases:
    """A `Coordinator` in an SQLite file.

    Args:
        thread: the one that writes.
    """

    def __init__(self, thread: FileThread) -> None:
        self._thread = thread

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        def take(transaction: Transaction) -> int | Lease:
            if (held := _find(transaction, key)) is not None:
                return held
            until = transaction.now + round(seconds * 1000)
            facts = {"key": key, "owner": owner, "until": until, "note": note, "first": transaction.now}
            token: int = transaction.connection.execute(_TAKE, facts).fetchall()[0][0]
            return token

        return await self._ask(take, care=Care.DURABLE)

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        def renew(transaction: Transaction) -> bool:
            until = transaction.now + round(seconds * 1000)
            facts = {"key": key, "token": token, "until": until, "note": note, "now": transaction.now}
            return transaction.connection.execute(_RENEW, facts).rowcount == 1

        # A power failure that takes the renewal takes its holder, too.
        return await self._ask(renew, care=Care.LOOSE)

    async def release(self, key: str, *, token: int) -> None:
        def release(transaction: Transaction) -> None:
            transaction.connection.execute(
                "UPDATE lease SET owner = NULL, until = ?, note = '' WHERE key = ? AND token = ?",
                (transaction.now, key, token),
            )

        await self._ask(release, care=Care.LOOSE)

    async def find(self, key: str) -> Lease | None:
        return await self._ask(lambda transaction: _find(transaction, key), care=Care.LOOSE)

    async def members(self, group: str) -> dict[str, Lease]:
        prefix = members_prefix(group)

        def read(transaction: Transaction) -> dict[str, Lease]:
            facts = {"prefix": prefix, "now": transaction.now}
            rows = transaction.connection.execute(_MEMBERS, facts).fetchall()
            return {row[4].removeprefix(prefix): _lease(row[:4], transaction.now) for row in rows}

        return await self._ask(read, care=Care.LOOSE)

    async def _ask(self, work: Callable[[Transaction], T], *, care: Care) -> T:
        try:
            return await self._thread.call(work, care=care)
        except StoreUnavailable as error:
            raise StateUnavailable(str(error), is_certain=error.is_certain) from error
        except StoreMismatch as error:
            raise StateUnavailable(str(error)) from error


def _find(transaction: Transaction, key: str) -> Lease | None:
    rows = transaction.connection.execute(_FIND, (key, transaction.now)).fetchall()
    if not rows:
        return None
    return _lease(rows[0], transaction.now)


def _lease(row: tuple[str, int, int, str], now: int) -> Lease:
    owner, token, until, note = row
    return Lease(owner=owner, token=token, left=(until - now) / 1000, note=note)
