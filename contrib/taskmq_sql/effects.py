"""`once` and its relatives: check whether a transaction is the first to use a key."""

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

_UNDEFINED_TABLE: Final = "42P01"

_Insert = ReturningInsert[tuple[str]]


def once(session: Session | Connection, key: str | None = None, *, scope: str | None = None) -> bool:
    """Return whether this transaction is the first to use `key`: True for one that commits, False ever after.

    Call it before the effect. If another transaction holds the key, this call waits for it to end. If that one
    rolls back, this transaction is the first.

    Args:
        session: the session or connection whose transaction has the effect.
        key: default: the idempotency key of the running job, else its id.
        scope: namespace of the key; default: the name of the running task, "" outside tasks.

    Raises:
        InvalidOption: no key is given outside a job, or the key or the scope is too long.
        UnsupportedFeature: the database is neither PostgreSQL nor SQLite, or lacks the table `taskmq_once`.
        sqlalchemy.exc.OperationalError: on PostgreSQL, the isolation level is above READ COMMITTED and the other
            transaction committed meanwhile; on SQLite, the other one did not end within the timeout. Roll back and
            let the job retry.
    """
    bind = session.get_bind(clause=once_keys.insert()) if isinstance(session, Session) else session
    with _explains_missing_table():
        return session.execute(_insert(bind.dialect.name, key, scope)).first() is not None


async def aonce(session: AsyncSession | AsyncConnection, key: str | None = None, *, scope: str | None = None) -> bool:
    """Call `once` without blocking the event loop."""
    if isinstance(session, AsyncSession):
        dialect = session.get_bind(clause=once_keys.insert()).dialect
    else:
        dialect = session.dialect
    with _explains_missing_table():
        return (await session.execute(_insert(dialect.name, key, scope))).first() is not None


def forget(session: Session | Connection, *, older_than: timedelta) -> int:
    """Delete keys older than `older_than`; return their number. A job with a deleted key has its effect again."""
    with _explains_missing_table():
        result = session.execute(delete(once_keys).where(once_keys.c.done < datetime.now(UTC) - older_than))
    return cast("CursorResult[Any]", result).rowcount


async def aforget(session: AsyncSession | AsyncConnection, *, older_than: timedelta) -> int:
    """Call `forget` without blocking the event loop."""
    with _explains_missing_table():
        result = await session.execute(delete(once_keys).where(once_keys.c.done < datetime.now(UTC) - older_than))
    return cast("CursorResult[Any]", result).rowcount


def create_tables(bind: Engine | Connection) -> None:
    """Create the table and its index unless they exist."""
    metadata.create_all(bind)


async def acreate_tables(bind: AsyncEngine | AsyncConnection) -> None:
    """Call `create_tables` without blocking the event loop."""
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
        raise InvalidOption("once(session) needs a key outside a running job: pass one")
    facts = {
        "scope": _check_length("scope", (context.task if context is not None else "") if scope is None else scope),
        "key": _check_length("key", key),
        "job_id": None if job_id is None else job_id[:LIMIT],
        "done": datetime.now(UTC),
    }
    match dialect:
        case "postgresql":
            return postgresql.insert(once_keys).values(facts).on_conflict_do_nothing().returning(once_keys.c.key)
        case "sqlite":
            return sqlite.insert(once_keys).values(facts).on_conflict_do_nothing().returning(once_keys.c.key)
        case _:
            raise UnsupportedFeature(f"once() supports PostgreSQL and SQLite, not {dialect}")


def _check_length(what: str, text: str) -> str:
    if len(text) > LIMIT:
        raise InvalidOption(f"{what}: at most {LIMIT} characters are allowed, got {len(text)}")
    return text
