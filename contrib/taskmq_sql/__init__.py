"""Exactly-once effects in your own database: `pip install 'taskmq[sql]'`, with SQLAlchemy 2.

    from taskmq_sql import once

    @app.task
    def pay(order_id: int) -> None:
        with Session(engine) as session, session.begin():
            if once(session, f"pay:{order_id}"):
                session.add(Payment(order_id=order_id))

`once` inserts a row into `taskmq_once` in the transaction that has the effect, so both commit or neither does. The
effect happens once, however often the job runs and wherever workers die. It needs no state and no token of taskmq.
It covers what that transaction writes and nothing else: a mail sent inside the transaction may still go out twice.

If two transactions use one key at the same time, the second waits for the first. On PostgreSQL the second counts as
the first if the first rolls back. SQLite has one writer at a time; the second waits for SQLite's `timeout`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskmq_sql.effects import acreate_tables, aforget, aonce, create_tables, forget, once
    from taskmq_sql.location import open_job_store
    from taskmq_sql.tables import metadata, once_keys

__all__ = [
    "acreate_tables",
    "aforget",
    "aonce",
    "create_tables",
    "forget",
    "metadata",
    "once",
    "once_keys",
    "open_job_store",
]

# Lazy imports: the ORM in `effects` takes a quarter of a second to import, and a job store does not need it.
_MODULES = {"open_job_store": "location", "metadata": "tables", "once_keys": "tables"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'taskmq_sql' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"taskmq_sql.{_MODULES.get(name, 'effects')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
