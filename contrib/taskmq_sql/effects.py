"""Whether a transaction is the first of its key."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from sqlalchemy import Connection, CursorResult, Engine, delete
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import ReturningInsert

from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.run.context import current_context
from taskmq_sql.tables import LIMIT, metadata, once_keys

__all__ = ["acreate_tables", "aforget", "aonce", "create_tables", "forget", "once"]

_UNDEFINED_TABLE: Final = "42P01"

_Insert = ReturningInsert[tuple[str]]


def once(session: Session | Connection, key: str | None = None, *, scope: str | None = None) -> bool:
    """Whether this transaction is the first of `key`: True for one that is committed, and False ever after.

    Call it before the effect. Another transaction with the key that has not ended is waited for: where it rolls back,
    this one is the first.

    Args:
        session: in the transaction that has the effect.
        key: default: the idempotency key of the job that runs here, else its id.
        scope: among whose keys it counts; default: the task that runs here, "" outside of tasks.

    Raises:
        InvalidOption: there is no key, or it or the scope is too long.
        UnsupportedFeature: neither PostgreSQL nor SQLite, or the database has no table of such keys.
        sqlalchemy.exc.OperationalError: on PostgreSQL where the isolation is higher than READ COMMITTED and the other
            transaction has committed meanwhile; on SQLite where it has not ended within the timeout. Roll back, and
            have the job tried again.
    """
    bind = session.get_bind(clause=once_keys.insert()) if isinstance(session, Session) else session
    with _explains_missing_table():
        return session.execute(_insert(bind.dialect.name, key, scope)).first() is not None


async def aonce(session: AsyncSession | AsyncConnection, key: str | None = None, *, scope: str | None = None) -> bool:
    """Do what `once` does, without blocking the event loop."""
    if isinstance(session, AsyncSession):
        dialect = session.get_bind(clause=once_keys.insert()).dialect
    else:
        dialect = session.dialect
    with _explains_missing_table():
        return (await session.execute(_insert(dialect.name, key, scope))).first() is not None


def forget(session: Session | Connection, *, older_than: timedelta) -> int:
    """Delete the keys of effects that are older; how many. A job that comes later than that has its effect again."""
    with _explains_missing_table():
        result = session.execute(delete(once_keys).where(once_keys.c.done < datetime.now(UTC) - older_than))
    return cast("CursorResult[Any]", result).rowcount


async def aforget(session: AsyncSession | AsyncConnection, *, older_than: timedelta) -> int:
    """Do what `forget` does, without blocking the event loop."""
    with _explains_missing_table():
        result = await session.execute(delete(once_keys).where(once_keys.c.done < datetime.now(UTC) - older_than))
    return cast("CursorResult[Any]", result).rowcount


def create_tables(bind: Engine | Connection) -> None:
    """Create the table and its index where they are not there."""
    metadata.create_all(bind)


async def acreate_tables(bind: AsyncEngine | AsyncConnection) -> None:
    """Do what `create_tables` does, without blocking the event loop."""
    if isinstance(bind, AsyncConnection):
        await bind.run_sync(metadata.create_all)
        return
    async with bind.begin() as connection:
        await connection.run_sync(metadata.create_all)


@contextmanager
def _explains_missing_table() -> Generator[None]:
    try:
        yield
    except DBAPIError as error:
        words = str(error.orig)
        is_missing = getattr(error.orig, "sqlstate", None) == _UNDEFINED_TABLE or "no such table" in words
        if not is_missing or once_keys.name not in words:
            raise
        raise UnsupportedFeature(
            f"the database has no table {once_keys.name}, which once() needs: call taskmq_sql.create_tables(engine), "
            "or add taskmq_sql.metadata to your migrations; `taskmq store upgrade` makes the job store's tables only"
        ) from error


def _insert(dialect: str, key: str | None, scope: str | None) -> _Insert:
    context = current_context.get()
    job_id = None if context is None else context.job_id or None
    if key is None and context is not None:
        key = context.idempotency_key or job_id
    if key is None:
        raise InvalidOption("once(session) without a key, outside of a running job: name one")
    facts = {
        "scope": _checked("scope", (context.task if context is not None else "") if scope is None else scope),
        "key": _checked("key", key),
        "job_id": None if job_id is None else job_id[:LIMIT],
        "done": datetime.now(UTC),
    }
    match dialect:
        case "postgresql":
            return postgresql.insert(once_keys).values(facts).on_conflict_do_nothing().returning(once_keys.c.key)
        case "sqlite":
            return sqlite.insert(once_keys).values(facts).on_conflict_do_nothing().returning(once_keys.c.key)
        case _:
            raise UnsupportedFeature(f"once() knows PostgreSQL and SQLite, and this is {dialect}")


def _checked(what: str, text: str) -> str:
    if len(text) > LIMIT:
        raise InvalidOption(f"{what}: at most {LIMIT} characters, these are {len(text)}")
    return text
